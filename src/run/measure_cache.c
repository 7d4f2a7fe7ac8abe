/* SPDX-License-Identifier: Apache-2.0
 *
 * What measure_cache.h says: how long ago steps touched a tensor, in bytes, and writing and reading lines of the cache.
 */
#include "run/measure_cache.h"

#define LINE_BYTES 64u
#define WARM_PARTS 2u /* of the cache: what was touched since is at most one of them */

/* What an iteration touches, each tensor as often as steps do; no more than most_bytes or little more. */
static uint64_t count_touched(const ebb_lowered *low, uint64_t most_bytes) {
    uint64_t bytes = 0;
    for (size_t s = 0; s < low->steps.n && bytes <= most_bytes; s++) {
        for (uint32_t i = 0; i < low->steps.data[s].n_operands; i++) { bytes += low->steps.data[s].bytes[i]; }
    }
    return bytes;
}

ebb_status ebb__cache_open(const ebb_lowered *low, ebb_bench_cache *cache) {
    ebb_device_info info;
    void *other = NULL;
    *cache = (ebb_bench_cache){.device = low->device};
    EBB_TRY(ebb_device_get_info(low->device, &info));
    const uint64_t size_bytes = ebb_min_u64(info.cache_bytes, EBB_MOST_CACHE);
    if (!low->device->ops->host_visible || count_touched(low, size_bytes) <= size_bytes) { return EBB_OK; }
    if (low->device->ops->host_alloc(low->device, size_bytes, &other) != EBB_OK) { return EBB_OK; }
    cache->other = other;
    cache->size_bytes = size_bytes;
    return EBB_OK;
}

void ebb__cache_close(ebb_bench_cache *cache) {
    if (cache->other == NULL) { return; }
    cache->device->ops->host_free(cache->device, cache->other, cache->size_bytes);
    cache->other = NULL;
}

static bool is_warm(const ebb_lowered *low, uint32_t step_idx, uint32_t operand, uint64_t most_bytes) {
    const uint32_t n = (uint32_t)low->steps.n;
    const ebb_lowered_step *step = &low->steps.data[step_idx];
    uint64_t bytes = step->bytes[operand];
    for (uint32_t back = 1; back <= n && bytes <= most_bytes; back++) {
        const ebb_lowered_step *before = &low->steps.data[(step_idx + n - back) % n];
        for (uint32_t i = 0; i < before->n_operands; i++) {
            if (before->operand[i] == step->operand[operand]) { return true; }
            bytes += before->bytes[i];
        }
    }
    return false;
}

uint32_t ebb__cache_find_warm(const ebb_bench_cache *cache, const ebb_lowered *low, uint32_t step,
                              const ebb_buf *operands, ebb_buf *warm_out) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < low->steps.data[step].n_operands; i++) {
        if (is_warm(low, step, i, cache->size_bytes / WARM_PARTS)) { warm_out[n++] = operands[i]; }
    }
    return n;
}

void ebb__cache_prepare(const ebb_bench_cache *cache, const ebb_warm *warm) {
    volatile unsigned char seen = 0;
    if (cache->other == NULL) { return; }
    for (uint64_t at = 0; at < cache->size_bytes; at += LINE_BYTES) { cache->other[at]++; }
    for (uint32_t i = 0; warm != NULL && i < warm->n; i++) {
        const unsigned char *bytes = cache->device->ops->host_address(warm->bufs[i]);
        for (uint64_t at = 0; at < warm->bufs[i].size_bytes; at += LINE_BYTES) { seen ^= bytes[at]; }
    }
}
