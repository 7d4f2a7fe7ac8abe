/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows: how many launches, and where in scratch each has its sums.
 */
#include "backend/cuda/cuda_sums.h"

static uint64_t divide_up(uint64_t a, uint64_t b) {
    return (a + b - 1) / b;
}

uint64_t ebb__cuda_chunks(uint64_t n_rows) {
    return divide_up(n_rows, EBB_CUDA_CHUNK_ROWS);
}

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

ebb_status ebb__cuda_sum_rows(cudaStream_t stream, const float *x, uint64_t n_rows, uint64_t c, void *scratch,
                              float *dst) {
    uint64_t n = ebb__cuda_chunks(n_rows);
    ebb_cuda_pair *sums = scratch;
    const ebb_cuda_sums_args args = {.x = x, .sums = sums, .n_rows = n_rows, .c = c};
    EBB_CUDA(ebb__cuda_launch_sum_gradients(stream, &args, n * c), "a bias's gradient");
    EBB_TRY(ebb__cuda_fold(stream, &sums, &n, c));
    const ebb_cuda_put_sums_args put = {.sums = sums, .dst = dst, .n = n, .c = c};
    EBB_CUDA(ebb__cuda_launch_put_sums(stream, &put, c), "a bias's gradient");
    return EBB_OK;
}
