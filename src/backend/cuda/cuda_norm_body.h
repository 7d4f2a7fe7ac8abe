/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-norm for one channel (from its sums) and for eight elements (with its figures): ref_batch_norm.c's formulas.
 */
#ifndef EBB_SRC_CUDA_NORM_BODY_H
#define EBB_SRC_CUDA_NORM_BODY_H

#include "backend/cuda/cuda_sums_body.h"

#include <math.h>

/* One pass gives both: squares are of the distance to the channel's first value, so a mean far from
 * 0 cancels nothing; a first value far from all others still does, as far as doubles leave it to. */
EBB_HD void ebb__cuda_norm_forward_channel(const ebb_cuda_norm_channel_args *args, uint64_t c) {
    const ebb_cuda_pair sum = ebb__cuda_add_pairs(args->sums, args->c, c, 0, args->n);
    const double distance = sum.a / args->n_rows, raw = sum.b / args->n_rows - distance * distance;
    const double variance = raw < 0.0 ? 0.0 : raw; /* a NaN stays one */
    args->mean[c] = (float)((double)args->src[c] + distance);
    args->variance[c] = (float)variance;
    args->coef[c] = (float)((double)args->gamma[c] / sqrt(variance + (double)args->epsilon));
}

EBB_HD void ebb__cuda_norm_infer_channel(const ebb_cuda_norm_channel_args *args, uint64_t c) {
    args->coef[c] = (float)((double)args->gamma[c] / sqrt((double)args->variance[c] + (double)args->epsilon));
}

EBB_HD void ebb__cuda_norm_backward_channel(const ebb_cuda_norm_channel_args *args, uint64_t c) {
    const ebb_cuda_pair sum = ebb__cuda_add_pairs(args->sums, args->c, c, 0, args->n);
    const double inverse = 1.0 / sqrt((double)args->variance[c] + (double)args->epsilon);
    const double scale = (double)args->gamma[c] * inverse;
    args->diff_gamma[c] = (float)(sum.b * inverse);
    args->diff_beta[c] = (float)sum.a;
    args->coef[c] = (float)scale;
    args->coef[args->c + c] = (float)(scale * inverse * inverse * sum.b / args->n_rows);
    args->coef[2 * args->c + c] = (float)(scale * sum.a / args->n_rows);
}

EBB_HD void ebb__cuda_norm_element(const ebb_cuda_norm_args *args, uint64_t unit) {
    const uint64_t first = 8 * unit, end = first + 8 < args->n ? first + 8 : args->n;
    uint64_t row, c = ebb__cuda_divide(first, args->c, &row);
    unsigned bits = 0;
    for (uint64_t i = first; i < end; i++) {
        const float v = (args->src[i] - args->mean[c]) * args->coef[c] + args->beta[c];
        bits |= (unsigned)(v > 0.0f) << (i - first);
        args->to[i] = args->relu && v < 0.0f ? 0.0f : v;
        c = c + 1 == args->c ? 0 : c + 1;
    }
    if (args->mask != NULL) { args->mask[unit] = (uint8_t)bits; }
}

EBB_HD void ebb__cuda_norm_bwd_element(const ebb_cuda_norm_args *args, uint64_t unit) {
    const uint64_t first = 8 * unit, end = first + 8 < args->n ? first + 8 : args->n;
    uint64_t row, c = ebb__cuda_divide(first, args->c, &row);
    for (uint64_t i = first; i < end; i++) {
        const float d = ebb__cuda_passes(args->mask, i) ? args->diff_dst[i] : 0.0f;
        const float distance = args->src[i] - args->mean[c];
        args->to[i] = args->coef[c] * d - args->coef[args->c + c] * distance - args->coef[2 * args->c + c];
        c = c + 1 == args->c ? 0 : c + 1;
    }
}

EBB_HD void ebb__cuda_norm_stats_element(const ebb_cuda_norm_stats_args *args, uint64_t c) {
    args->running_mean[c] += args->momentum * (args->mean[c] - args->running_mean[c]);
    args->running_var[c] += args->momentum * (args->variance[c] * args->unbias - args->running_var[c]);
}

#endif
