/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, and lowering a network for one: the result is a program and the kernels that compute it.
 */
#ifndef EBB_DEVICE_H
#define EBB_DEVICE_H

#include "ebb/graph.h"
#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Only one thread at a time may use it. It must outlive everything that was made on it. */
typedef struct ebb_device ebb_device;

typedef struct ebb_device_options {
    size_t size_bytes;
    const ebb_mem *mem; /* outlives the device */
    int32_t index;      /* which of the backend's devices */
    int32_t n_threads;  /* that compute; 0: as many as the process may run on. On the host each stream that copies has
                           up to four of its own, which sleep while it copies nothing */
    /* For GPUs only: */
    bool tf32;             /* matrix products in 19 bits, where that is faster */
    bool nondeterministic; /* allow algorithms whose sums depend on the order of threads */
    bool no_capture;       /* issue an iteration's commands one by one each time; never replay a capture */
} ebb_device_options;
#define EBB_DEVICE_OPTIONS_INIT EBB_INIT(ebb_device_options, )

typedef struct ebb_device_info {
    char name[128]; /* of the hardware */
    uint64_t capacity_bytes;
    uint64_t context_bytes; /* of these, what the vendor's context takes */
    uint64_t granule_bytes; /* an arena takes whole ones of these; 0: any number of bytes */
    uint64_t cache_bytes;   /* the largest: a GPU's second level, a processor's last one; 0: not known */
    int32_t n_threads;      /* of the host, for computing (cpu, ref) and for decoding images */
} ebb_device_info;

/* The name of backend number idx of this build ("cpu", "ref", "dry", "cuda"), and in *about_out (may be NULL) a line
 * about it. NULL after the last one. The first is the default. */
EBB_API const char *ebb_backend_name(size_t idx, const char **about_out);

/* The caller closes the device (ebb_device_close). options may be NULL. EBB_E_NO_DEVICE: no such backend in this build,
 * no such device, or a library or driver that it needs is missing (the message names it). EBB_E_ARGUMENT: no name,
 * options of another version, or n_threads below 0. */
EBB_API ebb_status ebb_device_open(const char *backend, const ebb_device_options *options, ebb_device **device_out);
EBB_API void ebb_device_close(ebb_device *device);
EBB_API ebb_status ebb_device_get_info(ebb_device *device, ebb_device_info *info_out);
EBB_API const char *ebb_device_backend(const ebb_device *device); /* its backend's name; static */

/* A lowered network: its program, and for each step the kernel. Keeps the device and the graph; both must
 * outlive it. */
typedef struct ebb_lowered ebb_lowered;

/* In a graph that is not for training, an operator may be merged into the one before (a ReLU into its convolution). If
 * building the graph failed, this fails with the same error. EBB_E_UNSUPPORTED names the operator that the device
 * cannot compute. */
EBB_API ebb_status ebb_lower(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out);
/* The same, but for when inputs come: each iteration copies in what the next one begins with, near its end and beside
 * computing, so that no iteration waits for its batch (ebb_run_feed). */
EBB_API ebb_status ebb_lower_fed_early(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out);
EBB_API void ebb_lowered_destroy(ebb_lowered *lowered);
EBB_API const ebb_program *ebb_lowered_program(const ebb_lowered *lowered); /* borrowed until it dies */

/* The program of a forward graph as the paper SuperNeurons (Wang et al., PPoPP 2018) counts memory, for comparisons
 * with its figures: one forward and one gradient tensor per layer, activations, without parameters, images and
 * workspaces (src/backend/lower_paper.c has the whole rule). It has no kernels, so nothing can be trained with it. The
 * caller destroys it; it keeps nothing of the graph. EBB_E_ARGUMENT: the graph is for inference, has its backward
 * already, or no loss. EBB_E_UNSUPPORTED names an operator for which the paper has no rule. */
EBB_API ebb_status ebb_lower_paper(const ebb_graph *graph, ebb_program **program_out);

#ifdef __cplusplus
}
#endif

#endif
