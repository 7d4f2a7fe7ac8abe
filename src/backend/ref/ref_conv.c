/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolution as its definition reads: dst(n, o, y, x) is the sum over a window of src times weights. The
 * backward operators go over the same triples (dst place, weight, src place) and sum the other way.
 */
#include "backend/ref/ref.h"

/* Which src row (or column) tap k of the window of output place o is; -1: in the padding. */
static int64_t tap(const ebb_op_attr *a, int axis, int64_t o, int64_t k, int64_t src_size) {
    int64_t at = o * a->stride[axis] - a->pad_begin[axis] + k * a->dilation[axis];
    return at >= 0 && at < src_size ? at : -1;
}

/* Which output place has src place `at` as tap k; -1: none. */
static int64_t untap(const ebb_op_attr *a, int axis, int64_t at, int64_t k, int64_t dst_size) {
    int64_t o = at + a->pad_begin[axis] - k * a->dilation[axis];
    return o >= 0 && o % a->stride[axis] == 0 && o / a->stride[axis] < dst_size ? o / a->stride[axis] : -1;
}

/* The sum that gives one element of dst. */
static double convolve(const ebb_ref_call *call, int64_t n, int64_t o, int64_t y, int64_t x) {
    const float *src = ebb__ref_in(call, 0), *weights = ebb__ref_in(call, 1);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape, *w = &ebb__kernel_in(call->desc, 1)->shape;
    const ebb_op_attr *a = &call->desc->attr;
    const int64_t first_channel = o / (w->dims[0] / a->groups) * w->dims[1];
    double sum = 0.0;
    for (int64_t i = 0; i < w->dims[1]; i++) {
        for (int64_t ky = 0; ky < w->dims[2]; ky++) {
            const int64_t sy = tap(a, 0, y, ky, s->dims[2]);
            for (int64_t kx = 0; kx < w->dims[3] && sy >= 0; kx++) {
                const int64_t sx = tap(a, 1, x, kx, s->dims[3]);
                if (sx < 0) { continue; }
                sum += (double)src[ebb__ref_at(s, n, first_channel + i, sy, sx)] *
                       (double)weights[ebb__ref_at(w, o, i, ky, kx)];
            }
        }
    }
    return sum;
}

ebb_status ebb__ref_conv(const ebb_ref_call *call) {
    const float *bias = call->desc->n_in > 2 ? ebb__ref_in(call, 2) : NULL;
    float *dst = ebb__ref_out(call, 0);
    const ebb_shape *d = &ebb__kernel_out(call->desc, 0)->shape;
    for (int64_t n = 0; n < d->dims[0]; n++) {
        for (int64_t o = 0; o < d->dims[1]; o++) {
            for (int64_t y = 0; y < d->dims[2]; y++) {
                for (int64_t x = 0; x < d->dims[3]; x++) {
                    double v = convolve(call, n, o, y, x) + (bias != NULL ? (double)bias[o] : 0.0);
                    dst[ebb__ref_at(d, n, o, y, x)] = (float)(call->desc->attr.relu && v < 0.0 ? 0.0 : v);
                }
            }
        }
    }
    return EBB_OK;
}

/* The sum that gives diff_src(n, c, sy, sx): every output that read it, times the weight it was read with. */
static double gather(const ebb_ref_call *call, int64_t n, int64_t c, int64_t sy, int64_t sx) {
    const float *diff_dst = ebb__ref_in(call, 0), *weights = ebb__ref_in(call, 1);
    const ebb_shape *d = &ebb__kernel_in(call->desc, 0)->shape, *w = &ebb__kernel_in(call->desc, 1)->shape;
    const ebb_op_attr *a = &call->desc->attr;
    const int64_t per_group = w->dims[0] / a->groups, first_out = c / w->dims[1] * per_group, i = c % w->dims[1];
    double sum = 0.0;
    for (int64_t ky = 0; ky < w->dims[2]; ky++) {
        const int64_t y = untap(a, 0, sy, ky, d->dims[2]);
        for (int64_t kx = 0; kx < w->dims[3] && y >= 0; kx++) {
            const int64_t x = untap(a, 1, sx, kx, d->dims[3]);
            for (int64_t o = first_out; o < first_out + per_group && x >= 0; o++) {
                sum += (double)diff_dst[ebb__ref_at(d, n, o, y, x)] * (double)weights[ebb__ref_at(w, o, i, ky, kx)];
            }
        }
    }
    return sum;
}

/* diff_src is the only output, or the only operand that is updated: then the sum is added to what it has. */
ebb_status ebb__ref_conv_bwd_data(const ebb_ref_call *call) {
    float *diff_src = ebb__ref_out(call, 0);
    const ebb_shape *s = &ebb__kernel_out(call->desc, 0)->shape;
    const bool adds = call->desc->n_inout > 0;
    for (int64_t n = 0; n < s->dims[0]; n++) {
        for (int64_t c = 0; c < s->dims[1]; c++) {
            for (int64_t y = 0; y < s->dims[2]; y++) {
                for (int64_t x = 0; x < s->dims[3]; x++) {
                    float *at = &diff_src[ebb__ref_at(s, n, c, y, x)];
                    *at = (float)(gather(call, n, c, y, x) + (adds ? (double)*at : 0.0));
                }
            }
        }
    }
    return EBB_OK;
}

/* The sum that gives diff_weights(o, i, ky, kx): over the batch and all places of dst. */
static double correlate(const ebb_ref_call *call, int64_t o, int64_t i, int64_t ky, int64_t kx) {
    const float *src = ebb__ref_in(call, 0), *diff_dst = ebb__ref_in(call, 1);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape, *d = &ebb__kernel_in(call->desc, 1)->shape;
    const ebb_shape *w = &ebb__kernel_out(call->desc, 0)->shape;
    const ebb_op_attr *a = &call->desc->attr;
    const int64_t channel = o / (w->dims[0] / a->groups) * w->dims[1] + i;
    double sum = 0.0;
    for (int64_t n = 0; n < d->dims[0]; n++) {
        for (int64_t y = 0; y < d->dims[2]; y++) {
            const int64_t sy = tap(a, 0, y, ky, s->dims[2]);
            for (int64_t x = 0; x < d->dims[3] && sy >= 0; x++) {
                const int64_t sx = tap(a, 1, x, kx, s->dims[3]);
                if (sx < 0) { continue; }
                sum += (double)src[ebb__ref_at(s, n, channel, sy, sx)] * (double)diff_dst[ebb__ref_at(d, n, o, y, x)];
            }
        }
    }
    return sum;
}

static void sum_bias(const ebb_ref_call *call) {
    const float *diff_dst = ebb__ref_in(call, 1);
    float *diff_bias = ebb__ref_out(call, 1);
    const ebb_ref_ncr d = ebb__ref_ncr(ebb__kernel_in(call->desc, 1));
    for (int64_t o = 0; o < d.c; o++) {
        double sum = 0.0;
        for (int64_t n = 0; n < d.n; n++) {
            for (int64_t r = 0; r < d.rest; r++) { sum += (double)diff_dst[(n * d.c + o) * d.rest + r]; }
        }
        diff_bias[o] = (float)sum;
    }
}

ebb_status ebb__ref_conv_bwd_weights(const ebb_ref_call *call) {
    float *diff_weights = ebb__ref_out(call, 0);
    const ebb_shape *w = &ebb__kernel_out(call->desc, 0)->shape;
    for (int64_t o = 0; o < w->dims[0]; o++) {
        for (int64_t i = 0; i < w->dims[1]; i++) {
            for (int64_t y = 0; y < w->dims[2]; y++) {
                for (int64_t x = 0; x < w->dims[3]; x++) {
                    diff_weights[ebb__ref_at(w, o, i, y, x)] = (float)correlate(call, o, i, y, x);
                }
            }
        }
    }
    if (call->desc->n_out > 1) { sum_bias(call); }
    return EBB_OK;
}
