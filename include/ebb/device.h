/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices, and what a network becomes on one: a program with the kernels that compute it.
 */
#ifndef EBB_DEVICE_H
#define EBB_DEVICE_H

#include "ebb/graph.h"
#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Used by one thread at a time; outlives whatever was made on it. */
typedef struct ebb_device ebb_device;

typedef struct ebb_device_options {
    size_t size_bytes;
    const ebb_mem *mem; /* outlives the device */
    int32_t index;      /* which of the backend's devices */
    int32_t n_threads;  /* 0: as many as the process may run on */
    /* Of GPUs; the others have no use for them. */
    bool tf32;             /* products of matrices in 19 bits where the hardware is faster so */
    bool nondeterministic; /* algorithms whose sums depend on the order in which threads arrive may be chosen */
    bool no_capture;       /* an iteration's commands are issued one by one each time, never replayed as one */
} ebb_device_options;
#define EBB_DEVICE_OPTIONS_INIT EBB_INIT(ebb_device_options, )

typedef struct ebb_device_info {
    char name[128]; /* of the hardware */
    uint64_t capacity_bytes;
    uint64_t context_bytes; /* what the vendor's context takes of it beyond ebb's reach */
    int32_t n_threads;
} ebb_device_info;

/* Backend number idx of this build ("cpu", "ref", "dry", "cuda"), with *about_out a line about it (may be NULL); NULL
 * past the last. The first is the default. */
EBB_API const char *ebb_backend_name(size_t idx, const char **about_out);

/* The device is the caller's (ebb_device_close). options may be NULL. EBB_E_NO_DEVICE: no such backend in this build,
 * no such device, or a library or driver that it needs is missing, which the message names. EBB_E_ARGUMENT: no name,
 * options of another version, or threads below 0. */
EBB_API ebb_status ebb_device_open(const char *backend, const ebb_device_options *options, ebb_device **device_out);
EBB_API void ebb_device_close(ebb_device *device);
EBB_API ebb_status ebb_device_get_info(ebb_device *device, ebb_device_info *info_out);
EBB_API const char *ebb_device_backend(const ebb_device *device); /* its backend's name; static */

/* A lowered network: its program, and for each step the kernel. Keeps the device and the graph; both must
 * outlive it. */
typedef struct ebb_lowered ebb_lowered;

/* A graph that is not for training may lose operators to those beside them (a ReLU to its convolution). What failed
 * in building the graph fails here again. EBB_E_UNSUPPORTED names the operator that the device cannot compute. */
EBB_API ebb_status ebb_lower(ebb_graph *graph, ebb_device *device, ebb_lowered **lowered_out);
EBB_API void ebb_lowered_destroy(ebb_lowered *lowered);
EBB_API const ebb_program *ebb_lowered_program(const ebb_lowered *lowered); /* borrowed until it dies */

#ifdef __cplusplus
}
#endif

#endif
