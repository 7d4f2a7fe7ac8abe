/* SPDX-License-Identifier: Apache-2.0
 *
 * Local response normalisation across channels (Krizhevsky et al., 2012) with PyTorch's window: channel c sees
 * [c - size / 2, c + (size - 1) / 2], and alpha is divided by size. The workspace keeps, for each element, the
 * sum k + alpha / size * squares that is raised to -beta.
 */
#include "backend/ref/ref.h"

#include <math.h>

static int64_t first_seen(int64_t c, int32_t size) {
    return c < size / 2 ? 0 : c - size / 2;
}

static int64_t end_seen(int64_t c, int32_t size, int64_t n_channels) {
    int64_t end = c + (size - 1) / 2 + 1;
    return end < n_channels ? end : n_channels;
}

ebb_status ebb__ref_lrn(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0);
    float *dst = ebb__ref_out(call, 0), *workspace = call->desc->n_out > 1 ? ebb__ref_out(call, 1) : NULL;
    const ebb_op_attr *a = &call->desc->attr;
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0));
    for (int64_t i = 0; i < s.n * s.c * s.rest; i++) {
        const int64_t c = i / s.rest % s.c;
        double squares = 0.0;
        for (int64_t j = first_seen(c, a->size); j < end_seen(c, a->size, s.c); j++) {
            double x = (double)src[i + (j - c) * s.rest];
            squares += x * x;
        }
        const double base = (double)a->k + (double)a->alpha / (double)a->size * squares;
        if (workspace != NULL) { workspace[i] = (float)base; }
        dst[i] = (float)((double)src[i] * pow(base, -(double)a->beta));
    }
    return EBB_OK;
}

/* diff_src(j) = diff_dst(j) base(j)^-beta
 *               - 2 alpha beta / size * src(j) * sum over i that see j of diff_dst(i) src(i) base(i)^(-beta - 1) */
ebb_status ebb__ref_lrn_bwd(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *diff_dst = ebb__ref_in(call, 1), *workspace = ebb__ref_in(call, 2);
    float *diff_src = ebb__ref_out(call, 0);
    const ebb_op_attr *a = &call->desc->attr;
    const double beta = (double)a->beta, factor = 2.0 * (double)a->alpha * beta / (double)a->size;
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0));
    for (int64_t at = 0; at < s.n * s.c * s.rest; at++) {
        const int64_t j = at / s.rest % s.c;
        double sum = 0.0;
        for (int64_t i = 0; i < s.c; i++) {
            if (j < first_seen(i, a->size) || j >= end_seen(i, a->size, s.c)) { continue; }
            const int64_t k = at + (i - j) * s.rest;
            sum += (double)diff_dst[k] * (double)src[k] * pow((double)workspace[k], -beta - 1.0);
        }
        diff_src[at] =
            (float)((double)diff_dst[at] * pow((double)workspace[at], -beta) - factor * (double)src[at] * sum);
    }
    return EBB_OK;
}
