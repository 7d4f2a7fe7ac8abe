/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and local response normalisation over images with channels last: the windows and divisors of ref_pool.c and
 * ref_lrn.c. Backward gathers: each place of src adds what the windows that it lies in give, in the windows' order, so
 * no two threads write one element and no order is left to chance.
 */
#ifndef EBB_SRC_CUDA_WINDOW_BODY_H
#define EBB_SRC_CUDA_WINDOW_BODY_H

#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_quad.h"

#include <math.h>

/* An element of an image tensor. */
typedef struct ebb_cuda_place {
    uint64_t image, c;
    int32_t y, x;
} ebb_cuda_place;

EBB_HD ebb_cuda_place ebb__cuda_place(uint64_t i, int64_t c, int32_t h, int32_t w) {
    ebb_cuda_place p;
    uint64_t row, line;
    p.c = ebb__cuda_divide(i, (uint64_t)c, &row);
    p.x = (int32_t)ebb__cuda_divide(row, (uint64_t)w, &line);
    p.y = (int32_t)ebb__cuda_divide(line, (uint64_t)h, &p.image);
    return p;
}

EBB_HD uint64_t ebb__cuda_src_at(const ebb_cuda_pool_args *a, ebb_cuda_place p, int32_t y, int32_t x) {
    const uint64_t line = p.image * (uint64_t)a->src_h + (uint64_t)y;
    return (line * (uint64_t)a->src_w + (uint64_t)x) * (uint64_t)a->c + p.c;
}

EBB_HD uint64_t ebb__cuda_dst_at(const ebb_cuda_pool_args *a, ebb_cuda_place p, int32_t y, int32_t x) {
    const uint64_t line = p.image * (uint64_t)a->dst_h + (uint64_t)y;
    return (line * (uint64_t)a->dst_w + (uint64_t)x) * (uint64_t)a->c + p.c;
}

/* ---- places of a window, windows of a place ----------------------------------------------------- */

/* [first, end) along one axis. */
typedef struct ebb_cuda_range {
    int32_t first, end;
} ebb_cuda_range;

/* The part of dst place o's window that lies in src. */
EBB_HD ebb_cuda_range ebb__cuda_seen(const ebb_cuda_pool_args *a, int axis, int32_t o) {
    const int32_t size = axis == 0 ? a->src_h : a->src_w, begin = o * a->stride[axis] - a->pad[axis];
    ebb_cuda_range r;
    r.first = begin < 0 ? 0 : begin;
    r.end = begin + a->kernel[axis] < size ? begin + a->kernel[axis] : size;
    return r;
}

/* The dst places whose windows hold src place s. */
EBB_HD ebb_cuda_range ebb__cuda_seers(const ebb_cuda_pool_args *a, int axis, int32_t s) {
    const int32_t size = axis == 0 ? a->dst_h : a->dst_w, at = s + a->pad[axis], stride = a->stride[axis];
    ebb_cuda_range r;
    r.first = at < a->kernel[axis] ? 0 : (at - a->kernel[axis]) / stride + 1;
    r.end = at / stride + 1 < size ? at / stride + 1 : size;
    return r;
}

/* ---- pools ---------------------------------------------------------------------------------------
 *
 * The bodies take `width` channels of a place, 1 or 4 (a constant), beginning with element i: four where a row of
 * channels ends with whole quads, so that a thread's arithmetic of places serves four elements and 16 bytes. */

/* Places within a window, of as many channels. */
typedef struct ebb_cuda_taps {
    int32_t v[4];
} ebb_cuda_taps;

EBB_HD ebb_cuda_quad ebb__cuda_load_channels(const float *from, uint64_t at, int width) {
    ebb_cuda_quad quad = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (width == 4) { return ebb__cuda_load_quad(from + at); }
    quad.v[0] = from[at];
    return quad;
}

EBB_HD void ebb__cuda_store_channels(float *to, uint64_t at, int width, ebb_cuda_quad quad) {
    if (width == 4) {
        ebb__cuda_store_quad(to + at, quad);
    } else {
        to[at] = quad.v[0];
    }
}

EBB_HD void ebb__cuda_put_taps(const ebb_cuda_pool_args *a, uint64_t i, int width, ebb_cuda_taps taps) {
    if (a->index_bytes != 1) {
        for (int j = 0; j < width; j++) { ((int32_t *)a->indices)[i + (uint64_t)j] = taps.v[j]; }
    } else if (width == 4) { /* four bytes in one store; GPUs have the first one lowest, as the fake's processor has */
        uint32_t word = 0;
        for (int j = 0; j < 4; j++) { word |= (uint32_t)taps.v[j] << 8 * j; }
        *(uint32_t *)(void *)((uint8_t *)a->indices + i) = word;
    } else {
        ((uint8_t *)a->indices)[i] = (uint8_t)taps.v[0];
    }
}

EBB_HD ebb_cuda_taps ebb__cuda_get_taps(const ebb_cuda_pool_args *a, uint64_t i, int width) {
    ebb_cuda_taps taps = {{0, 0, 0, 0}};
    if (a->index_bytes != 1) {
        for (int j = 0; j < width; j++) { taps.v[j] = ((const int32_t *)a->indices)[i + (uint64_t)j]; }
    } else if (width == 4) {
        const uint32_t word = *(const uint32_t *)(const void *)((const uint8_t *)a->indices + i);
        for (int j = 0; j < 4; j++) { taps.v[j] = (int32_t)(word >> 8 * j & 255u); }
    } else {
        taps.v[0] = (int32_t)((const uint8_t *)a->indices)[i];
    }
    return taps;
}

/* Where (y, x) is within the window of dst place (oy, ox). */
EBB_HD int32_t ebb__cuda_tap(const ebb_cuda_pool_args *a, int32_t oy, int32_t ox, int32_t y, int32_t x) {
    return (y - (oy * a->stride[0] - a->pad[0])) * a->kernel[1] + x - (ox * a->stride[1] - a->pad[1]);
}

/* The first of equal ones wins, and a NaN over all. */
EBB_HD void ebb__cuda_max_pool(const ebb_cuda_pool_args *a, uint64_t i, int width) {
    const ebb_cuda_place p = ebb__cuda_place(i, a->c, a->dst_h, a->dst_w);
    const ebb_cuda_range ys = ebb__cuda_seen(a, 0, p.y), xs = ebb__cuda_seen(a, 1, p.x);
    const int32_t first = ebb__cuda_tap(a, p.y, p.x, ys.first, xs.first);
    ebb_cuda_quad best = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    ebb_cuda_taps taps = {{first, first, first, first}};
    for (int32_t y = ys.first; y < ys.end; y++) {
        for (int32_t x = xs.first; x < xs.end; x++) {
            const ebb_cuda_quad v = ebb__cuda_load_channels(a->from, ebb__cuda_src_at(a, p, y, x), width);
            const int32_t tap = ebb__cuda_tap(a, p.y, p.x, y, x);
            for (int j = 0; j < width; j++) {
                if (v.v[j] > best.v[j] || isnan(v.v[j])) {
                    best.v[j] = v.v[j];
                    taps.v[j] = tap;
                }
            }
        }
    }
    ebb__cuda_store_channels(a->to, i, width, best);
    if (a->indices != NULL) { ebb__cuda_put_taps(a, i, width, taps); }
}

EBB_HD void ebb__cuda_max_pool_bwd(const ebb_cuda_pool_args *a, uint64_t i, int width) {
    const ebb_cuda_place p = ebb__cuda_place(i, a->c, a->src_h, a->src_w);
    const ebb_cuda_range ys = ebb__cuda_seers(a, 0, p.y), xs = ebb__cuda_seers(a, 1, p.x);
    ebb_cuda_quad sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int32_t y = ys.first; y < ys.end; y++) {
        for (int32_t x = xs.first; x < xs.end; x++) {
            const uint64_t o = ebb__cuda_dst_at(a, p, y, x);
            const ebb_cuda_taps taps = ebb__cuda_get_taps(a, o, width);
            const ebb_cuda_quad diff = ebb__cuda_load_channels(a->from, o, width);
            const int32_t tap = ebb__cuda_tap(a, y, x, p.y, p.x);
            for (int j = 0; j < width; j++) { sum.v[j] += taps.v[j] == tap ? diff.v[j] : 0.0f; }
        }
    }
    ebb__cuda_store_channels(a->to, i, width, sum);
}

EBB_HD float ebb__cuda_divisor(const ebb_cuda_pool_args *a, ebb_cuda_range ys, ebb_cuda_range xs) {
    return a->count_padding ? (float)(a->kernel[0] * a->kernel[1]) : (float)((ys.end - ys.first) * (xs.end - xs.first));
}

EBB_HD void ebb__cuda_avg_pool(const ebb_cuda_pool_args *a, uint64_t i, int width) {
    const ebb_cuda_place p = ebb__cuda_place(i, a->c, a->dst_h, a->dst_w);
    const ebb_cuda_range ys = ebb__cuda_seen(a, 0, p.y), xs = ebb__cuda_seen(a, 1, p.x);
    const float divisor = ebb__cuda_divisor(a, ys, xs);
    ebb_cuda_quad sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int32_t y = ys.first; y < ys.end; y++) {
        for (int32_t x = xs.first; x < xs.end; x++) {
            const ebb_cuda_quad v = ebb__cuda_load_channels(a->from, ebb__cuda_src_at(a, p, y, x), width);
            for (int j = 0; j < width; j++) { sum.v[j] += v.v[j]; }
        }
    }
    for (int j = 0; j < width; j++) { sum.v[j] /= divisor; }
    ebb__cuda_store_channels(a->to, i, width, sum);
}

EBB_HD void ebb__cuda_avg_pool_bwd(const ebb_cuda_pool_args *a, uint64_t i, int width) {
    const ebb_cuda_place p = ebb__cuda_place(i, a->c, a->src_h, a->src_w);
    const ebb_cuda_range ys = ebb__cuda_seers(a, 0, p.y), xs = ebb__cuda_seers(a, 1, p.x);
    ebb_cuda_quad sum = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int32_t y = ys.first; y < ys.end; y++) {
        for (int32_t x = xs.first; x < xs.end; x++) {
            const float divisor = ebb__cuda_divisor(a, ebb__cuda_seen(a, 0, y), ebb__cuda_seen(a, 1, x));
            const ebb_cuda_quad diff = ebb__cuda_load_channels(a->from, ebb__cuda_dst_at(a, p, y, x), width);
            for (int j = 0; j < width; j++) { sum.v[j] += diff.v[j] / divisor; }
        }
    }
    ebb__cuda_store_channels(a->to, i, width, sum);
}

/* Defines launcher(stream, args, n) of n elements over two kernels, NAME_fours and NAME_ones. */
#define EBB_CUDA_POOL(launcher, body)                                                                                  \
    EBB_HD void launcher##_fours_element(const ebb_cuda_pool_args *args, uint64_t i) {                                 \
        body(args, 4 * i, 4);                                                                                          \
    }                                                                                                                  \
    EBB_HD void launcher##_ones_element(const ebb_cuda_pool_args *args, uint64_t i) {                                  \
        body(args, i, 1);                                                                                              \
    }                                                                                                                  \
    EBB_CUDA_EACH_AS(static, launcher##_fours, ebb_cuda_pool_args, launcher##_fours_element)                           \
    EBB_CUDA_EACH_AS(static, launcher##_ones, ebb_cuda_pool_args, launcher##_ones_element)                             \
    cudaError_t launcher(cudaStream_t stream, const ebb_cuda_pool_args *args, uint64_t n) {                            \
        return args->c % 4 == 0 ? launcher##_fours(stream, args, n / 4) : launcher##_ones(stream, args, n);            \
    }

/* ---- local response normalisation ---------------------------------------------------------------- */

/* x to the power of beta, which is nearly always 0.75: two roots are a fraction of a logarithm and an exponential. */
EBB_HD float ebb__cuda_raise(float x, float beta) {
    if (beta != 0.75f) { return powf(x, beta); }
    const float root = sqrtf(x);
    return root * sqrtf(root);
}

EBB_HD void ebb__cuda_lrn_element(const ebb_cuda_lrn_args *a, uint64_t i) {
    uint64_t row;
    const int64_t c = (int64_t)ebb__cuda_divide(i, (uint64_t)a->c, &row);
    const float *line = a->src + row * (uint64_t)a->c;
    const int64_t first = c < a->size / 2 ? 0 : c - a->size / 2;
    const int64_t end = c + (a->size - 1) / 2 + 1 < a->c ? c + (a->size - 1) / 2 + 1 : a->c;
    float squares = 0.0f;
    for (int64_t j = first; j < end; j++) { squares += line[j] * line[j]; }
    const float base = a->k + a->alpha * squares;
    if (a->base != NULL) { a->base[i] = base; }
    a->to[i] = line[c] / ebb__cuda_raise(base, a->beta);
}

/* Channel i sees j when j - (size - 1) / 2 <= i <= j + size / 2. */
EBB_HD void ebb__cuda_lrn_bwd_element(const ebb_cuda_lrn_args *a, uint64_t at) {
    uint64_t row;
    const int64_t j = (int64_t)ebb__cuda_divide(at, (uint64_t)a->c, &row);
    const uint64_t line = row * (uint64_t)a->c;
    const int64_t first = j < (a->size - 1) / 2 ? 0 : j - (a->size - 1) / 2;
    const int64_t end = j + a->size / 2 + 1 < a->c ? j + a->size / 2 + 1 : a->c;
    float sum = 0.0f;
    for (int64_t i = first; i < end; i++) {
        const uint64_t k = line + (uint64_t)i;
        sum += a->diff_dst[k] * a->src[k] / (a->base[k] * ebb__cuda_raise(a->base[k], a->beta));
    }
    a->to[at] = a->diff_dst[at] / ebb__cuda_raise(a->base[at], a->beta) - 2.0f * a->alpha * a->beta * a->src[at] * sum;
}

#endif
