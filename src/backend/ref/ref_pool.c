/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools: the largest or the mean of each window. A window that sticks out sees only what lies inside; the
 * mean's divisor counts those places, or with count_padding all of the window's.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* One window clipped to src: rows [y0, y1), columns [x0, x1); it began at (y, x), maybe outside. */
typedef struct pool_window {
    int64_t y, x, y0, y1, x0, x1;
} pool_window;

static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static pool_window clip(const ebb_op_attr *a, const ebb_shape *src, int64_t dst_y, int64_t dst_x) {
    const int64_t y = dst_y * a->stride[0] - a->pad_begin[0], x = dst_x * a->stride[1] - a->pad_begin[1];
    return (pool_window){.y = y,
                         .x = x,
                         .y0 = max_i64(y, 0),
                         .y1 = min_i64(y + a->kernel[0], src->dims[2]),
                         .x0 = max_i64(x, 0),
                         .x1 = min_i64(x + a->kernel[1], src->dims[3])};
}

static double divisor(const ebb_op_attr *a, pool_window w) {
    return a->count_padding ? (double)a->kernel[0] * (double)a->kernel[1]
                            : (double)(w.y1 - w.y0) * (double)(w.x1 - w.x0);
}

/* Calls visit for each place of dst: with call, the window there, n, c and dst's element number. */
typedef void (*visit_fn)(const ebb_ref_call *call, pool_window w, int64_t n, int64_t c, int64_t i);

static void each_window(const ebb_ref_call *call, const ebb_shape *src, const ebb_shape *dst, visit_fn visit) {
    for (int64_t n = 0; n < dst->dims[0]; n++) {
        for (int64_t c = 0; c < dst->dims[1]; c++) {
            for (int64_t y = 0; y < dst->dims[2]; y++) {
                for (int64_t x = 0; x < dst->dims[3]; x++) {
                    visit(call, clip(&call->desc->attr, src, y, x), n, c, ebb__ref_at(dst, n, c, y, x));
                }
            }
        }
    }
}

/* The first of equal ones wins, and a NaN over all, as in PyTorch. */
static void take_largest(const ebb_ref_call *call, pool_window w, int64_t n, int64_t c, int64_t i) {
    const float *src = ebb__ref_in(call, 0);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape;
    float best = -INFINITY;
    int64_t best_y = w.y0, best_x = w.x0;
    for (int64_t y = w.y0; y < w.y1; y++) {
        for (int64_t x = w.x0; x < w.x1; x++) {
            float v = src[ebb__ref_at(s, n, c, y, x)];
            if (v > best || isnan(v)) { best = v, best_y = y, best_x = x; }
        }
    }
    ((float *)ebb__ref_out(call, 0))[i] = best;
    if (call->desc->n_out > 1) {
        ((int32_t *)ebb__ref_out(call, 1))[i] = (int32_t)((best_y - w.y) * call->desc->attr.kernel[1] + best_x - w.x);
    }
}

ebb_status ebb__ref_max_pool(const ebb_ref_call *call) {
    each_window(call, &ebb__kernel_in(call->desc, 0)->shape, &ebb__kernel_out(call->desc, 0)->shape, take_largest);
    return EBB_OK;
}

static void give_to_largest(const ebb_ref_call *call, pool_window w, int64_t n, int64_t c, int64_t i) {
    const ebb_shape *s = &ebb__kernel_out(call->desc, 0)->shape;
    const int64_t k = ((const int32_t *)ebb__ref_in(call, 1))[i], width = call->desc->attr.kernel[1];
    ((float *)ebb__ref_out(call, 0))[ebb__ref_at(s, n, c, w.y + k / width, w.x + k % width)] +=
        ((const float *)ebb__ref_in(call, 0))[i];
}

static void clear_diff_src(const ebb_ref_call *call) {
    const int64_t n = ebb__shape_elements(&ebb__kernel_out(call->desc, 0)->shape);
    memset(ebb__ref_out(call, 0), 0, (size_t)n * sizeof(float));
}

ebb_status ebb__ref_max_pool_bwd(const ebb_ref_call *call) {
    clear_diff_src(call);
    each_window(call, &ebb__kernel_out(call->desc, 0)->shape, &ebb__kernel_in(call->desc, 0)->shape, give_to_largest);
    return EBB_OK;
}

static void take_mean(const ebb_ref_call *call, pool_window w, int64_t n, int64_t c, int64_t i) {
    const float *src = ebb__ref_in(call, 0);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape;
    double sum = 0.0;
    for (int64_t y = w.y0; y < w.y1; y++) {
        for (int64_t x = w.x0; x < w.x1; x++) { sum += (double)src[ebb__ref_at(s, n, c, y, x)]; }
    }
    ((float *)ebb__ref_out(call, 0))[i] = (float)(sum / divisor(&call->desc->attr, w));
}

ebb_status ebb__ref_avg_pool(const ebb_ref_call *call) {
    each_window(call, &ebb__kernel_in(call->desc, 0)->shape, &ebb__kernel_out(call->desc, 0)->shape, take_mean);
    return EBB_OK;
}

static void give_to_all(const ebb_ref_call *call, pool_window w, int64_t n, int64_t c, int64_t i) {
    float *diff_src = ebb__ref_out(call, 0);
    const ebb_shape *s = &ebb__kernel_out(call->desc, 0)->shape;
    const double share = (double)((const float *)ebb__ref_in(call, 0))[i] / divisor(&call->desc->attr, w);
    for (int64_t y = w.y0; y < w.y1; y++) {
        for (int64_t x = w.x0; x < w.x1; x++) { diff_src[ebb__ref_at(s, n, c, y, x)] += (float)share; }
    }
}

ebb_status ebb__ref_avg_pool_bwd(const ebb_ref_call *call) {
    clear_diff_src(call);
    each_window(call, &ebb__kernel_out(call->desc, 0)->shape, &ebb__kernel_in(call->desc, 0)->shape, give_to_all);
    return EBB_OK;
}
