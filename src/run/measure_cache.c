/* SPDX-License-Identifier: Apache-2.0
 *
 * What measure_cache.h says: how long ago steps touched a tensor, in bytes, and filling the cache.
 */
#include "run/measure.h"

#define LINE_BYTES 64u
#define CHANNELS 1024u
#define LEAST_CACHE ((uint64_t)64 << 10)
#define WARM_PARTS 4u /* of the cache: what was touched since is at most one of them */

/* Of all tensors; no more than most_bytes or little more. */
static uint64_t count_bytes(const ebb_program *program, uint64_t most_bytes) {
    uint64_t bytes = 0;
    for (size_t t = 0; t < program->tensors.n && bytes <= most_bytes; t++) {
        bytes += program->tensors.data[t].size_bytes;
    }
    return bytes;
}

/* A sum of one tensor with itself; both tensors together are as large as the cache. */
static ebb_status open_kernel(ebb_bench_cache *cache, const ebb_run_state *state) {
    const ebb_backend_ops *ops = cache->device->ops;
    const int64_t n = (int64_t)(cache->size_bytes / 2 / (CHANNELS * sizeof(float)));
    const ebb_shape shape = {.n_dims = 2, .dims = {n, CHANNELS}};
    ebb_operand operand[3] = {{.shape = shape}, {.shape = shape}, {.shape = shape}};
    EBB_TRY(ops->layout_plain(cache->device, EBB_F32, &shape, &operand[0].layout));
    operand[1].layout = operand[2].layout = operand[0].layout;
    const ebb_kernel_desc desc = {.kind = EBB_OP_ADD, .n_in = 2, .n_out = 1, .operand = operand};
    EBB_TRY(ops->kernel_create(cache->device, &desc, &cache->kernel));
    const uint64_t bytes = ops->layout_bytes(cache->device, cache->kernel->layout[0]);
    const uint64_t behind = ebb_align_up(bytes, ops->alignment_bytes), scratch = 2 * behind;
    EBB_TRY(ebb_arena_create(cache->device, scratch + cache->kernel->scratch_bytes, &cache->arena));
    cache->operand[0] = cache->operand[1] = (ebb_buf){cache->arena->memory, 0, bytes};
    cache->operand[2] = (ebb_buf){cache->arena->memory, behind, bytes};
    ebb__bench_zero(cache->device, cache->operand[0]);
    const ebb_binding binding = {.operand = cache->operand,
                                 .scratch = {cache->arena->memory, scratch, cache->kernel->scratch_bytes},
                                 .state = state};
    return ops->bind(cache->kernel, &binding, &cache->bound);
}

ebb_status ebb__cache_open(const ebb_lowered *low, const ebb_run_state *state, ebb_bench_cache *cache) {
    ebb_device_info info;
    *cache = (ebb_bench_cache){.device = low->device};
    EBB_TRY(ebb_device_get_info(low->device, &info));
    const uint64_t size_bytes = ebb_min_u64(info.cache_bytes, EBB_MOST_CACHE);
    if (!low->device->ops->host_visible || size_bytes < LEAST_CACHE ||
        count_bytes(low->program, size_bytes) <= size_bytes) {
        return EBB_OK;
    }
    cache->size_bytes = size_bytes;
    cache->seen = ebb__calloc(low->device->mem, low->program->tensors.n, sizeof *cache->seen);
    const ebb_status st = cache->seen != NULL ? open_kernel(cache, state) : EBB_E_NO_MEMORY;
    if (st != EBB_OK) { ebb__cache_close(cache); }
    return st == EBB_E_NO_MEMORY ? EBB_OK : st;
}

void ebb__cache_close(ebb_bench_cache *cache) {
    if (cache->device == NULL) { return; }
    if (cache->bound != NULL) { cache->device->ops->unbind(cache->kernel, cache->bound); }
    if (cache->kernel != NULL) { cache->device->ops->kernel_destroy(cache->kernel); }
    ebb_arena_destroy(cache->arena);
    ebb__free(cache->device->mem, cache->seen);
    *cache = (ebb_bench_cache){.device = cache->device};
}

/* Count a tensor, unless it has been since n_asked went up. */
static uint64_t count_once(ebb_bench_cache *cache, uint32_t tensor, uint64_t bytes) {
    const bool is_new = cache->seen[tensor] != cache->n_asked;
    cache->seen[tensor] = cache->n_asked;
    return is_new ? bytes : 0;
}

static bool is_warm(ebb_bench_cache *cache, const ebb_lowered *low, uint32_t step_idx, uint32_t operand) {
    const uint64_t most_bytes = cache->size_bytes / WARM_PARTS;
    const uint32_t n = (uint32_t)low->steps.n;
    const ebb_lowered_step *step = &low->steps.data[step_idx];
    cache->n_asked++;
    uint64_t bytes = count_once(cache, step->operand[operand], step->bytes[operand]);
    for (uint32_t back = 1; back <= n && bytes <= most_bytes; back++) {
        const ebb_lowered_step *before = &low->steps.data[(step_idx + n - back) % n];
        for (uint32_t i = 0; i < before->n_operands; i++) {
            if (before->operand[i] == step->operand[operand]) { return true; }
            bytes += count_once(cache, before->operand[i], before->bytes[i]);
        }
    }
    return false;
}

uint32_t ebb__cache_find_warm(ebb_bench_cache *cache, const ebb_lowered *low, uint32_t step, const ebb_buf *operands,
                              ebb_buf *warm_out) {
    uint32_t n = 0;
    for (uint32_t i = 0; cache->seen != NULL && i < low->steps.data[step].n_operands; i++) {
        if (is_warm(cache, low, step, i)) { warm_out[n++] = operands[i]; }
    }
    return n;
}

ebb_status ebb__cache_prepare(const ebb_bench_cache *cache, ebb_stream *stream, const ebb_warm *warm) {
    volatile unsigned char seen = 0;
    if (cache->bound == NULL) { return EBB_OK; }
    EBB_TRY(cache->device->ops->run(stream, cache->kernel, cache->bound));
    EBB_TRY(cache->device->ops->stream_sync(stream));
    for (uint32_t i = 0; warm != NULL && i < warm->n; i++) {
        const unsigned char *bytes = cache->device->ops->host_address(warm->bufs[i]);
        for (uint64_t at = 0; at < warm->bufs[i].size_bytes; at += LINE_BYTES) { seen = bytes[at]; }
    }
    (void)seen;
    return EBB_OK;
}
