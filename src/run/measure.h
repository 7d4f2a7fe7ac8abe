/* SPDX-License-Identifier: Apache-2.0
 *
 * A place to run kernels by themselves, for the two files that measure: measure.c and measure_links.c.
 */
#ifndef EBB_SRC_MEASURE_H
#define EBB_SRC_MEASURE_H

#include "run/measure_cache.h"

typedef struct ebb_bench {
    ebb_device *device;
    ebb_arena *arena;
    ebb_stream *stream;
    ebb_event *before, *behind;
    ebb_run_state state;
    void **port; /* [n_ports], all one: what feeds carry does not matter */
    uint64_t port_bytes;
    ebb_bench_cache cache; /* zeros: kernels find it as the run before left it */
} ebb_bench;

/* Close it in any case. */
ebb_status ebb__bench_open(ebb_device *device, uint64_t arena_bytes, size_t n_ports, uint64_t port_bytes, ebb_bench *b);
void ebb__bench_close(ebb_bench *b);

/* Write zeros, where the host can write to the device's memory. Memory that nobody has written to yet is a single page
 * of zeros, which stays in the cache: what is measured on it is too fast. */
void ebb__bench_zero(const ebb_device *device, ebb_buf buf);

/* From the stream's event before to this one, which has been reached. */
uint64_t ebb__bench_elapsed(const ebb_bench *b, ebb_event *event);

/* The least of reps runs after one that warms up: on a machine that others use too, the least is the least disturbed. A
 * kernel that is soon done is run more often, since one disturbance is all of its time. A run that takes longer than
 * hopeless_ns is the last, but for a first one that may have waited for its code. warm may be NULL. */
ebb_status ebb__bench_time(ebb_bench *b, ebb_kernel *kernel, const ebb_binding *binding, const ebb_warm *warm,
                           uint32_t reps, uint64_t hopeless_ns, uint64_t *ns_out);

#endif
