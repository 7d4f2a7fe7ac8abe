/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the rows of (n_rows, c), the same bits each time: a thread adds EBB_CUDA_CHUNK_ROWS rows of one channel in
 * single precision, EBB_CUDA_FOLD of those sums are added in double precision, and so on until one thread can add the
 * rest. Neighbouring threads have neighbouring channels, so what they read lies together.
 */
#ifndef EBB_SRC_CUDA_SUMS_BODY_H
#define EBB_SRC_CUDA_SUMS_BODY_H

#include "backend/cuda/cuda_quad.h"
#include "backend/cuda/cuda_launch_ops.h"

EBB_HD void ebb__cuda_chunk(const ebb_cuda_sums_args *args, uint64_t unit, uint64_t *c_out, uint64_t *first_out,
                            uint64_t *end_out) {
    uint64_t chunk;
    *c_out = ebb__cuda_divide(unit, args->c, &chunk);
    *first_out = chunk * EBB_CUDA_CHUNK_ROWS;
    *end_out = *first_out + EBB_CUDA_CHUNK_ROWS < args->n_rows ? *first_out + EBB_CUDA_CHUNK_ROWS : args->n_rows;
}

EBB_HD void ebb__cuda_sum_statistics_element(const ebb_cuda_sums_args *args, uint64_t i) {
    uint64_t c, first, end;
    ebb__cuda_chunk(args, i, &c, &first, &end);
    const float origin = args->x[c];
    float a = 0.0f, b = 0.0f;
    for (uint64_t r = first; r < end; r++) {
        const float d = args->x[r * args->c + c] - origin;
        a += d;
        b += d * d;
    }
    args->sums[i].a = (double)a;
    args->sums[i].b = (double)b;
}

EBB_HD bool ebb__cuda_passes(const uint8_t *mask, uint64_t i) {
    return mask == NULL || (ebb__cuda_mask_get(mask, i / 4 * 4) >> (i % 4) & 1u) != 0;
}

EBB_HD void ebb__cuda_sum_gradients_element(const ebb_cuda_sums_args *args, uint64_t i) {
    uint64_t c, first, end;
    ebb__cuda_chunk(args, i, &c, &first, &end);
    const float mean = args->src != NULL ? args->mean[c] : 0.0f;
    float a = 0.0f, b = 0.0f;
    for (uint64_t r = first; r < end; r++) {
        const uint64_t at = r * args->c + c;
        const float d = ebb__cuda_passes(args->mask, at) ? args->x[at] : 0.0f;
        a += d;
        if (args->src != NULL) { b += d * (args->src[at] - mean); }
    }
    args->sums[i].a = (double)a;
    args->sums[i].b = (double)b;
}

/* Of channel c, sums [first, end) of [.][n_channels]. */
EBB_HD ebb_cuda_pair ebb__cuda_add_pairs(const ebb_cuda_pair *sums, uint64_t n_channels, uint64_t c, uint64_t first,
                                         uint64_t end) {
    ebb_cuda_pair sum;
    sum.a = 0.0;
    sum.b = 0.0;
    for (uint64_t k = first; k < end; k++) {
        sum.a += sums[k * n_channels + c].a;
        sum.b += sums[k * n_channels + c].b;
    }
    return sum;
}

EBB_HD void ebb__cuda_fold_element(const ebb_cuda_fold_args *args, uint64_t i) {
    uint64_t group;
    const uint64_t c = ebb__cuda_divide(i, args->c, &group), first = group * EBB_CUDA_FOLD;
    const uint64_t end = first + EBB_CUDA_FOLD < args->n ? first + EBB_CUDA_FOLD : args->n;
    args->to[i] = ebb__cuda_add_pairs(args->from, args->c, c, first, end);
}

EBB_HD void ebb__cuda_put_sums_element(const ebb_cuda_put_sums_args *args, uint64_t c) {
    args->dst[c] = (float)ebb__cuda_add_pairs(args->sums, args->c, c, 0, args->n).a;
}

#endif
