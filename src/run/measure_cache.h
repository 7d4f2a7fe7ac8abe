/* SPDX-License-Identifier: Apache-2.0
 *
 * What a processor's cache holds when a kernel is measured. If a kernel runs again and again on the same bytes, it
 * finds them in the cache. In training it finds there what the steps just before it touched, and no more: kernels that
 * wait for memory took 1.1 to 2.4 times as long in training as when they were measured without this.
 *
 * So before each run a kernel of the device adds up other bytes, as many as the cache has; then those are read that
 * training would find. It is a kernel, so that the threads that compute are as awake as they are in training.
 * Not for cards: their kernels are measured with their caches as they are.
 */
#ifndef EBB_SRC_MEASURE_CACHE_H
#define EBB_SRC_MEASURE_CACHE_H

#include "run/run.h"

#define EBB_MOST_CACHE ((uint64_t)64 << 20) /* a larger one counts as this: many processors share it */

typedef struct ebb_bench_cache {
    ebb_device *device;
    ebb_kernel *kernel;
    ebb_bound *bound; /* NULL: the cache is left as it is */
    ebb_arena *arena; /* what it reads, what it writes */
    ebb_buf operand[3];
    uint64_t size_bytes; /* of the cache */
    uint32_t *seen;      /* [n_tensors]: the latest question for which a tensor was counted */
    uint32_t n_asked;
} ebb_bench_cache;

/* The operands that a kernel finds in the cache. */
typedef struct ebb_warm {
    const ebb_buf *bufs;
    uint32_t n;
} ebb_warm;

/* Leaves the cache as it is where the host cannot write to the device's memory, where an iteration's tensors fit the
 * cache anyway, and where there is no memory for as many bytes. Close it in any case; one that is all zeros, because it
 * was never opened, may be closed, too. The state is borrowed. */
ebb_status ebb__cache_open(const ebb_lowered *low, const ebb_run_state *state, ebb_bench_cache *cache);
void ebb__cache_close(ebb_bench_cache *cache);

/* Those of a step's operands that one of the steps before it touched, of this iteration or the one before, with less
 * than a quarter of the cache touched since. warm_out: room for all of them. Returns how many. */
uint32_t ebb__cache_find_warm(ebb_bench_cache *cache, const ebb_lowered *low, uint32_t step, const ebb_buf *operands,
                              ebb_buf *warm_out);

/* warm: NULL: nothing is. stream: the one that computes. */
ebb_status ebb__cache_prepare(const ebb_bench_cache *cache, ebb_stream *stream, const ebb_warm *warm);

#endif
