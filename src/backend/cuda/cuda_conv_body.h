/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution as its definition reads, for what cuDNN has no algorithm for that is allowed: each thread gathers the sum
 * after one element, in double precision. Slow, and always there.
 */
#ifndef EBB_SRC_CUDA_CONV_BODY_H
#define EBB_SRC_CUDA_CONV_BODY_H

#include "backend/cuda/cuda_divide.h"
#include "backend/cuda/cuda_launch_ops.h"

/* An element of (n, h, w, c), channels last; of weights (o, h, w, i). */
typedef struct ebb_cuda_conv_place {
    int64_t n, y, x, c;
} ebb_cuda_conv_place;

EBB_HD ebb_cuda_conv_place ebb__cuda_conv_place(uint64_t i, int64_t h, int64_t w, int64_t c) {
    ebb_cuda_conv_place p;
    uint64_t row, line, image;
    p.c = (int64_t)ebb__cuda_divide(i, (uint64_t)c, &row);
    p.x = (int64_t)ebb__cuda_divide(row, (uint64_t)w, &line);
    p.y = (int64_t)ebb__cuda_divide(line, (uint64_t)h, &image);
    p.n = (int64_t)image;
    return p;
}

/* Which src row (or column) tap k of the window of dst place o is; -1: in the padding. */
EBB_HD int64_t ebb__cuda_conv_tap(const ebb_cuda_conv_args *a, int axis, int64_t o, int64_t k) {
    const int64_t at = o * a->stride[axis] - a->pad[axis] + k * a->dilation[axis];
    return at >= 0 && at < a->src_size[axis] ? at : -1;
}

/* Which dst place has src place `at` as tap k; -1: none. */
EBB_HD int64_t ebb__cuda_conv_untap(const ebb_cuda_conv_args *a, int axis, int64_t at, int64_t k) {
    const int64_t o = at + a->pad[axis] - k * a->dilation[axis];
    return o >= 0 && o % a->stride[axis] == 0 && o / a->stride[axis] < a->dst_size[axis] ? o / a->stride[axis] : -1;
}

EBB_HD const float *ebb__cuda_conv_src(const ebb_cuda_conv_args *a, int64_t n, int64_t y, int64_t x) {
    return a->src + ((n * a->src_size[0] + y) * a->src_size[1] + x) * a->src_c;
}

EBB_HD const float *ebb__cuda_conv_dst(const ebb_cuda_conv_args *a, int64_t n, int64_t y, int64_t x) {
    return a->dst + ((n * a->dst_size[0] + y) * a->dst_size[1] + x) * a->dst_c;
}

EBB_HD const float *ebb__cuda_conv_weights(const ebb_cuda_conv_args *a, int64_t o, int64_t ky, int64_t kx) {
    return a->weights + ((o * a->kernel[0] + ky) * a->kernel[1] + kx) * a->group_c;
}

EBB_HD void ebb__cuda_conv_element(const ebb_cuda_conv_args *a, uint64_t i) {
    const ebb_cuda_conv_place p = ebb__cuda_conv_place(i, a->dst_size[0], a->dst_size[1], a->dst_c);
    const int64_t first = p.c / a->group_dst_c * a->group_c;
    double sum = 0.0;
    for (int64_t k = 0; k < (int64_t)a->kernel[0] * a->kernel[1]; k++) {
        const int64_t ky = k / a->kernel[1], kx = k % a->kernel[1];
        const int64_t y = ebb__cuda_conv_tap(a, 0, p.y, ky), x = ebb__cuda_conv_tap(a, 1, p.x, kx);
        if (y < 0 || x < 0) { continue; }
        const float *src = ebb__cuda_conv_src(a, p.n, y, x) + first, *w = ebb__cuda_conv_weights(a, p.c, ky, kx);
        for (int64_t c = 0; c < a->group_c; c++) { sum += (double)src[c] * (double)w[c]; }
    }
    a->to[i] = (float)sum;
}

EBB_HD void ebb__cuda_conv_bwd_data_element(const ebb_cuda_conv_args *a, uint64_t i) {
    const ebb_cuda_conv_place p = ebb__cuda_conv_place(i, a->src_size[0], a->src_size[1], a->src_c);
    const int64_t first = p.c / a->group_c * a->group_dst_c, c = p.c % a->group_c;
    double sum = a->adds ? (double)a->to[i] : 0.0;
    for (int64_t k = 0; k < (int64_t)a->kernel[0] * a->kernel[1]; k++) {
        const int64_t ky = k / a->kernel[1], kx = k % a->kernel[1];
        const int64_t y = ebb__cuda_conv_untap(a, 0, p.y, ky), x = ebb__cuda_conv_untap(a, 1, p.x, kx);
        if (y < 0 || x < 0) { continue; }
        const float *dst = ebb__cuda_conv_dst(a, p.n, y, x);
        for (int64_t o = first; o < first + a->group_dst_c; o++) {
            sum += (double)dst[o] * (double)ebb__cuda_conv_weights(a, o, ky, kx)[c];
        }
    }
    a->to[i] = (float)sum;
}

EBB_HD void ebb__cuda_conv_bwd_weights_element(const ebb_cuda_conv_args *a, uint64_t i) {
    const ebb_cuda_conv_place w = ebb__cuda_conv_place(i, a->kernel[0], a->kernel[1], a->group_c);
    const int64_t c = w.n / a->group_dst_c * a->group_c + w.c;
    double sum = 0.0;
    for (int64_t n = 0; n < a->n_images; n++) {
        for (int64_t k = 0; k < (int64_t)a->dst_size[0] * a->dst_size[1]; k++) {
            const int64_t oy = k / a->dst_size[1], ox = k % a->dst_size[1];
            const int64_t y = ebb__cuda_conv_tap(a, 0, oy, w.y), x = ebb__cuda_conv_tap(a, 1, ox, w.x);
            if (y < 0 || x < 0) { continue; }
            sum += (double)ebb__cuda_conv_src(a, n, y, x)[c] * (double)ebb__cuda_conv_dst(a, n, oy, ox)[w.n];
        }
    }
    a->to[i] = (float)sum;
}

#endif
