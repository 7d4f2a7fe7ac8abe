/* SPDX-License-Identifier: Apache-2.0
 *
 * Fully connected layers: dst (N, O) = src (N, I) weights' (I, O) + bias. A src of more dimensions counts as
 * (N, I), which row-major needs no work for.
 */
#include "backend/ref/ref.h"

/* The sum over k of a[k * a_step] * b[k * b_step]. */
static double dot(const float *a, int64_t a_step, const float *b, int64_t b_step, int64_t n) {
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++) { sum += (double)a[k * a_step] * (double)b[k * b_step]; }
    return sum;
}

ebb_status ebb__ref_linear(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *weights = ebb__ref_in(call, 1);
    const float *bias = call->desc->n_in > 2 ? ebb__ref_in(call, 2) : NULL;
    float *dst = ebb__ref_out(call, 0);
    const ebb_shape *d = &ebb__kernel_out(call->desc, 0)->shape;
    const int64_t n_in = ebb__kernel_in(call->desc, 1)->shape.dims[1], n_out = d->dims[1];
    for (int64_t n = 0; n < d->dims[0]; n++) {
        for (int64_t o = 0; o < n_out; o++) {
            double v = dot(src + n * n_in, 1, weights + o * n_in, 1, n_in) + (bias != NULL ? (double)bias[o] : 0.0);
            dst[n * n_out + o] = (float)(call->desc->attr.relu && v < 0.0 ? 0.0 : v);
        }
    }
    return EBB_OK;
}

ebb_status ebb__ref_linear_bwd_data(const ebb_ref_call *call) {
    const float *diff_dst = ebb__ref_in(call, 0), *weights = ebb__ref_in(call, 1);
    float *diff_src = ebb__ref_out(call, 0);
    const ebb_shape *d = &ebb__kernel_in(call->desc, 0)->shape;
    const int64_t n_in = ebb__kernel_in(call->desc, 1)->shape.dims[1], n_out = d->dims[1];
    for (int64_t n = 0; n < d->dims[0]; n++) {
        for (int64_t i = 0; i < n_in; i++) {
            diff_src[n * n_in + i] = (float)dot(diff_dst + n * n_out, 1, weights + i, n_in, n_out);
        }
    }
    return EBB_OK;
}

ebb_status ebb__ref_linear_bwd_weights(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *diff_dst = ebb__ref_in(call, 1);
    float *diff_weights = ebb__ref_out(call, 0);
    float *diff_bias = call->desc->n_out > 1 ? ebb__ref_out(call, 1) : NULL;
    const int64_t batch = ebb__kernel_in(call->desc, 1)->shape.dims[0];
    const ebb_shape *w = &ebb__kernel_out(call->desc, 0)->shape;
    const int64_t n_in = w->dims[1], n_out = w->dims[0];
    static const float one = 1.0f;
    for (int64_t o = 0; o < n_out; o++) {
        for (int64_t i = 0; i < n_in; i++) {
            diff_weights[o * n_in + i] = (float)dot(src + i, n_in, diff_dst + o, n_out, batch);
        }
        if (diff_bias != NULL) { diff_bias[o] = (float)dot(diff_dst + o, n_out, &one, 0, batch); }
    }
    return EBB_OK;
}
