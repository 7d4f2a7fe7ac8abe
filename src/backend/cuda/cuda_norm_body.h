/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows as they are; batch-norm for one channel (from its sums) and for quads (with their figures):
 * ref_batch_norm.c's formulas.
 */
#ifndef EBB_SRC_CUDA_NORM_BODY_H
#define EBB_SRC_CUDA_NORM_BODY_H

#include "backend/cuda/cuda_elementwise_body.h"
#include "backend/cuda/cuda_rows.h"

#include <math.h>

/* One pass gives both: squares are of the distance to the channel's first value, so a mean far from
 * 0 cancels nothing; a first value far from all others still does, as far as doubles leave it to. */
EBB_HD void ebb__cuda_norm_forward_channel(const ebb_cuda_norm_channel_args *args, uint64_t c, ebb_cuda_pair sum) {
    const double n_rows = (double)args->rows.n_rows;
    const double distance = sum.a / n_rows, raw = sum.b / n_rows - distance * distance;
    const double variance = raw < 0.0 ? 0.0 : raw; /* a NaN stays one */
    args->mean[c] = (float)((double)args->rows.x[c] + distance);
    args->variance[c] = (float)variance;
    args->coef[c] = (float)((double)args->gamma[c] / sqrt(variance + (double)args->epsilon));
}

EBB_HD void ebb__cuda_norm_infer_channel(const ebb_cuda_norm_channel_args *args, uint64_t c) {
    args->coef[c] = (float)((double)args->gamma[c] / sqrt((double)args->variance[c] + (double)args->epsilon));
}

EBB_HD void ebb__cuda_norm_backward_channel(const ebb_cuda_norm_channel_args *args, uint64_t c, ebb_cuda_pair sum) {
    const double n_rows = (double)args->rows.n_rows;
    const double inverse = 1.0 / sqrt((double)args->variance[c] + (double)args->epsilon);
    const double scale = (double)args->gamma[c] * inverse;
    args->diff_gamma[c] = (float)(sum.b * inverse);
    args->diff_beta[c] = (float)sum.a;
    args->coef[c] = (float)scale;
    args->coef[args->rows.c + c] = (float)(scale * inverse * inverse * sum.b / n_rows);
    args->coef[2 * args->rows.c + c] = (float)(scale * sum.a / n_rows);
}

EBB_HD void ebb__cuda_column(const ebb_cuda_column_args *args, uint64_t c, ebb_cuda_pair sum) {
    args->dst[c] = (float)sum.a;
}

EBB_HD void ebb__cuda_norm_quads(const ebb_cuda_norm_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad x[EBB_CUDA_QUADS];
    uint64_t c = ebb__cuda_rest(at, args->c);
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load(args->src, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        const ebb_cuda_quad mean = ebb__cuda_of_channels(args->mean, c, args->c, fit);
        const ebb_cuda_quad coef = ebb__cuda_of_channels(args->coef, c, args->c, fit);
        const ebb_cuda_quad beta = ebb__cuda_of_channels(args->beta, c, args->c, fit);
        unsigned bits = 0;
        for (int j = 0; j < 4; j++) {
            const float v = (x[k].v[j] - mean.v[j]) * coef.v[j] + beta.v[j];
            bits |= (unsigned)(v > 0.0f) << j;
            x[k].v[j] = args->relu ? ebb__cuda_rectify(v) : v;
        }
        ebb__cuda_store(args->to, at + k * EBB_CUDA_STRIDE, args->n, fit, x[k]);
        if (args->mask != NULL) { ebb__cuda_mask_put(args->mask, at + k * EBB_CUDA_STRIDE, args->n, bits); }
        c = ebb__cuda_next_channel(c, args->c);
    }
}

EBB_HD void ebb__cuda_norm_bwd_quads(const ebb_cuda_norm_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad src[EBB_CUDA_QUADS], diff[EBB_CUDA_QUADS];
    unsigned bits[EBB_CUDA_QUADS];
    uint64_t c = ebb__cuda_rest(at, args->c);
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        const uint64_t first = at + k * EBB_CUDA_STRIDE;
        src[k] = ebb__cuda_load(args->src, first, args->n, fit);
        diff[k] = ebb__cuda_load(args->diff_dst, first, args->n, fit);
        bits[k] = args->mask != NULL && (fit == EBB_CUDA_ALL || first < args->n) ? ebb__cuda_mask_get(args->mask, first)
                                                                                 : 15u;
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        const ebb_cuda_quad mean = ebb__cuda_of_channels(args->mean, c, args->c, fit);
        const ebb_cuda_quad scale = ebb__cuda_of_channels(args->coef, c, args->c, fit);
        const ebb_cuda_quad slope = ebb__cuda_of_channels(args->coef + args->c, c, args->c, fit);
        const ebb_cuda_quad constant = ebb__cuda_of_channels(args->coef + 2 * args->c, c, args->c, fit);
        for (int j = 0; j < 4; j++) {
            const float d = (bits[k] >> j & 1u) != 0 ? diff[k].v[j] : 0.0f;
            src[k].v[j] = scale.v[j] * d - slope.v[j] * (src[k].v[j] - mean.v[j]) - constant.v[j];
        }
        ebb__cuda_store(args->to, at + k * EBB_CUDA_STRIDE, args->n, fit, src[k]);
        c = ebb__cuda_next_channel(c, args->c);
    }
}

EBB_HD void ebb__cuda_norm_stats_element(const ebb_cuda_norm_stats_args *args, uint64_t c) {
    args->running_mean[c] += args->momentum * (args->mean[c] - args->running_mean[c]);
    args->running_var[c] += args->momentum * (args->variance[c] * args->unbias - args->running_var[c]);
}

#endif
