/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalisation (Ioffe and Szegedy, 2015) with PyTorch's conventions: the batch's biased variance
 * normalises, the unbiased one moves the running statistics. Everything is read before it is overwritten, so
 * dst may be src, and diff_src may be diff_dst or src.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* Element r of image n in channel c. */
static int64_t at(ebb_ref_ncr s, int64_t n, int64_t c, int64_t r) {
    return (n * s.c + c) * s.rest + r;
}

static void measure(const float *src, ebb_ref_ncr s, int64_t c, double *mean_out, double *variance_out) {
    const double n_values = (double)s.n * (double)s.rest;
    double sum = 0.0, squares = 0.0;
    for (int64_t n = 0; n < s.n; n++) {
        for (int64_t r = 0; r < s.rest; r++) { sum += (double)src[at(s, n, c, r)]; }
    }
    const double mean = sum / n_values;
    for (int64_t n = 0; n < s.n; n++) {
        for (int64_t r = 0; r < s.rest; r++) {
            double d = (double)src[at(s, n, c, r)] - mean;
            squares += d * d;
        }
    }
    *mean_out = mean;
    *variance_out = squares / n_values;
}

ebb_status ebb__ref_batch_norm(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *gamma = ebb__ref_in(call, 1), *beta = ebb__ref_in(call, 2);
    float *dst = ebb__ref_out(call, 0), *means = ebb__ref_out(call, 1), *variances = ebb__ref_out(call, 2);
    uint8_t *mask = call->desc->n_out > 3 ? ebb__ref_out(call, 3) : NULL;
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0));
    for (int64_t c = 0; c < s.c; c++) {
        double mean, variance;
        measure(src, s, c, &mean, &variance);
        means[c] = (float)mean;
        variances[c] = (float)variance;
        const double scale = (double)gamma[c] / sqrt(variance + (double)call->desc->attr.epsilon);
        for (int64_t n = 0; n < s.n; n++) {
            for (int64_t r = 0; r < s.rest; r++) {
                double v = ((double)src[at(s, n, c, r)] - mean) * scale + (double)beta[c];
                if (mask != NULL) { mask[at(s, n, c, r)] = v > 0.0; }
                dst[at(s, n, c, r)] = (float)(call->desc->attr.relu && v < 0.0 ? 0.0 : v);
            }
        }
    }
    return EBB_OK;
}

ebb_status ebb__ref_batch_norm_infer(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *gamma = ebb__ref_in(call, 1), *beta = ebb__ref_in(call, 2);
    const float *means = ebb__ref_in(call, 3), *variances = ebb__ref_in(call, 4);
    float *dst = ebb__ref_out(call, 0);
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0));
    for (int64_t c = 0; c < s.c; c++) {
        const double scale = (double)gamma[c] / sqrt((double)variances[c] + (double)call->desc->attr.epsilon);
        for (int64_t n = 0; n < s.n; n++) {
            for (int64_t r = 0; r < s.rest; r++) {
                double v = ((double)src[at(s, n, c, r)] - (double)means[c]) * scale + (double)beta[c];
                dst[at(s, n, c, r)] = (float)(call->desc->attr.relu && v < 0.0 ? 0.0 : v);
            }
        }
    }
    return EBB_OK;
}

/* diff_dst after the fused ReLU. */
static double masked(const float *diff_dst, const uint8_t *mask, int64_t i) {
    return mask == NULL || mask[i] ? (double)diff_dst[i] : 0.0;
}

/* With x the normalised src and m values a channel:
 *   diff_beta = sum of diff_dst, diff_gamma = sum of diff_dst * x,
 *   diff_src = gamma / deviation * (diff_dst - diff_beta / m - x * diff_gamma / m) */
ebb_status ebb__ref_batch_norm_bwd(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *diff_dst = ebb__ref_in(call, 1), *means = ebb__ref_in(call, 2);
    const float *variances = ebb__ref_in(call, 3), *gamma = ebb__ref_in(call, 4);
    const uint8_t *mask = call->desc->n_in > 5 ? ebb__ref_in(call, 5) : NULL;
    float *diff_src = ebb__ref_out(call, 0), *diff_gamma = ebb__ref_out(call, 1), *diff_beta = ebb__ref_out(call, 2);
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0));
    const double n_values = (double)s.n * (double)s.rest;
    for (int64_t c = 0; c < s.c; c++) {
        const double mean = (double)means[c];
        const double inverse = 1.0 / sqrt((double)variances[c] + (double)call->desc->attr.epsilon);
        double sum = 0.0, product = 0.0;
        for (int64_t n = 0; n < s.n; n++) {
            for (int64_t r = 0; r < s.rest; r++) {
                double d = masked(diff_dst, mask, at(s, n, c, r));
                sum += d;
                product += d * ((double)src[at(s, n, c, r)] - mean) * inverse;
            }
        }
        for (int64_t n = 0; n < s.n; n++) {
            for (int64_t r = 0; r < s.rest; r++) {
                double x = ((double)src[at(s, n, c, r)] - mean) * inverse;
                double d = masked(diff_dst, mask, at(s, n, c, r));
                diff_src[at(s, n, c, r)] =
                    (float)((double)gamma[c] * inverse * (d - sum / n_values - x * product / n_values));
            }
        }
        diff_gamma[c] = (float)product;
        diff_beta[c] = (float)sum;
    }
    return EBB_OK;
}

ebb_status ebb__ref_batch_norm_stats(const ebb_ref_call *call) {
    const float *mean = ebb__ref_in(call, 0), *variance = ebb__ref_in(call, 1);
    float *running_mean = ebb__ref_inout(call, 0), *running_var = ebb__ref_inout(call, 1);
    const double momentum = (double)call->desc->attr.momentum, m = (double)call->desc->attr.size;
    const double unbias = m > 1.0 ? m / (m - 1.0) : 1.0;
    const int64_t n = ebb__shape_elements(&ebb__kernel_in(call->desc, 0)->shape);
    for (int64_t c = 0; c < n; c++) {
        running_mean[c] = (float)((1.0 - momentum) * (double)running_mean[c] + momentum * (double)mean[c]);
        running_var[c] = (float)((1.0 - momentum) * (double)running_var[c] + momentum * unbias * (double)variance[c]);
    }
    return EBB_OK;
}
