/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA runtime without a GPU, for tests of the plug-in's C files: the calls that it makes, under their names, over
 * host memory. Linked instead of the runtime, it is made to find mistakes that a GPU would forgive:
 *
 *   device memory    has no access rights but while a command runs: the host cannot read it by mistake
 *   streams          queue; whenever someone waits, a seeded scheduler runs any command that may run, whichever
 *                    stream it is on, until the wait is over: an order that no event demands is not kept
 *   host calls       run on another thread
 *   capture          the rules of forks, joins and isolation are checked; a graph's nodes run in any order that its
 *                    edges allow
 *   failures         any call can be made to fail, once; the error stays until it is asked for, as the runtime's does
 *   leaks            everything that is created is counted
 *
 * One thread uses it at a time. A deadlock ends the process.
 */
#ifndef EBB_TESTS_FAKE_CUDA_H
#define EBB_TESTS_FAKE_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

typedef struct fake_cuda {
    /* the machine; to be set before a device is opened */
    int driver_version, n_devices;
    size_t dnn_version, blas_version;
    const char *name; /* of the GPU */
    bool has_mapping;
    bool has_no_locks;     /* the host can read device memory: unlocking a large arena for each command takes long */
    bool tells_time;       /* a command takes the time that it took, not a made-up one of the seed's */
    bool computes_nothing; /* kernels are queued, and leave everything as it is: for sizes that would take long */
    bool no_engines;       /* cuDNN knows no algorithm for anything */
    bool no_small_engines; /* its first list has only those that need much workspace */
    bool no_tails;         /* it knows none for a convolution with a bias or a ReLU after it */
    bool no_sums;          /* nor for one that adds to what is there */
    bool no_epilogues;     /* cuBLASLt knows none for a product with a bias */
    bool broken_list;      /* asking for its first list fails */
    bool broken_engines;   /* it knows some, and making an execution plan of them fails */
    uint32_t graph_ms, launch_ms; /* what launching a graph takes, and a kernel outside of a capture */
    uint64_t total_bytes, context_bytes, granule_bytes, cache_bytes;
    uint64_t seed; /* of the order */

    /* failures: call number fail_at from now on (1: the next) fails with error; 0: none does */
    uint64_t n_calls, fail_at;
    cudaError_t error;
    const char *failed; /* name of the call that did */

    /* figures */
    uint64_t used_bytes; /* of the device, context_bytes not among them */
    uint64_t most_used_bytes;
    uint64_t pinned_bytes;
    uint64_t n_untouched_pages; /* of what was pinned, ever: those that the driver would have had to make */
    size_t n_live;              /* allocations, reservations, streams, events, graphs, registrations */
    uint64_t n_launches, n_graph_nodes, n_graph_launches, n_pageable_copies;
    uint64_t n_syncs; /* of the host, with a stream, an event or the device */
} fake_cuda;

extern fake_cuda fake;

/* The machine as it is by default: one GPU with 64 MiB, 3 of them taken. Nothing may be alive. */
void fake_cuda_reset(uint64_t seed);
void fake_cuda_fail(uint64_t call, cudaError_t error);

/* Make this device memory readable for the test, and undo it. */
void fake_cuda_unlock(void);
void fake_cuda_lock(void);

#endif
