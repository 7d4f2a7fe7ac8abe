/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows: how they are shared among blocks, which the sizes alone decide. And sums of pairs, of which the loss
 * has one for each row: how many launches, and where in scratch each has its sums.
 */
#include "backend/cuda/cuda_sums.h"
#include "backend/cuda/cuda_each.h"

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

/* ---- rows ---------------------------------------------------------------------------------------- */

/* A thread has at least this many rows, where there are as many. */
#define EBB_CUDA_LEAST_ROWS 4u

ebb_cuda_sums_args ebb__cuda_sums(const float *x, uint64_t n_rows, uint64_t c, void *scratch, unsigned *tickets) {
    const uint64_t n_quads = divide_up(c, 4);
    uint32_t n_lanes = 1;
    while (n_lanes < EBB_CUDA_GROUP_LANES && n_lanes < n_quads) { n_lanes *= 2; }
    const uint64_t n_groups = divide_up(n_quads, n_lanes);
    const uint64_t block_rows = EBB_CUDA_LEAST_ROWS * EBB_CUDA_BLOCK / n_lanes;
    const uint64_t n_most = ebb_max_u64(1, EBB_CUDA_SUM_BLOCKS / n_groups);
    const uint64_t part_rows = divide_up(n_rows, ebb_min_u64(n_most, divide_up(n_rows, block_rows)));
    EBB_ASSERT(n_rows > 0 && n_groups <= INT32_MAX);
    return (ebb_cuda_sums_args){.x = x,
                                .sums = scratch,
                                .tickets = tickets,
                                .n_rows = n_rows,
                                .c = c,
                                .part_rows = part_rows,
                                .n_groups = (uint32_t)n_groups,
                                .n_parts = (uint32_t)divide_up(n_rows, part_rows),
                                .n_lanes = n_lanes};
}

uint64_t ebb__cuda_sums_bytes(uint64_t n_rows, uint64_t c) {
    const ebb_cuda_sums_args args = ebb__cuda_sums(NULL, n_rows, c, NULL, NULL);
    return args.n_parts > 1 ? args.n_parts * c * sizeof(ebb_cuda_pair) : 0;
}

ebb_status ebb__cuda_sum_rows(cudaStream_t stream, const float *x, uint64_t n_rows, uint64_t c, void *scratch,
                              unsigned *tickets, float *dst) {
    const ebb_cuda_column_args args = {.rows = ebb__cuda_sums(x, n_rows, c, scratch, tickets), .dst = dst};
    EBB_CUDA(ebb__cuda_launch_sum_columns(stream, &args), "a bias's gradient");
    return EBB_OK;
}

/* ---- pairs --------------------------------------------------------------------------------------- */

uint64_t ebb__cuda_fold_bytes(uint64_t n, uint64_t c) {
    uint64_t n_pairs = n;
    for (; n > EBB_CUDA_FOLD; n_pairs += n) { n = divide_up(n, EBB_CUDA_FOLD); }
    return n_pairs * c * sizeof(ebb_cuda_pair);
}

ebb_status ebb__cuda_fold(cudaStream_t stream, ebb_cuda_pair **sums, uint64_t *n, uint64_t c) {
    while (*n > EBB_CUDA_FOLD) {
        const ebb_cuda_fold_args args = {.from = *sums, .to = *sums + *n * c, .n = *n, .c = c};
        *n = divide_up(*n, EBB_CUDA_FOLD);
        EBB_CUDA(ebb__cuda_launch_fold(stream, &args, *n * c), "adding sums");
        *sums = args.to;
    }
    return EBB_OK;
}
