/* SPDX-License-Identifier: Apache-2.0
 *
 * What moves elements without changing them: channels put after one another, channels taken out (with
 * something added, where gradients of a value with several readers meet), another shape, another layout.
 */
#include "backend/ref/ref.h"

ebb_status ebb__ref_concat(const ebb_ref_call *call) {
    float *dst = ebb__ref_out(call, 0);
    const ebb_ref_ncr d = ebb__ref_ncr(ebb__kernel_out(call->desc, 0));
    int64_t first = 0;
    for (uint32_t k = 0; k < call->desc->n_in; k++) {
        const float *src = ebb__ref_in(call, k);
        const int64_t run = ebb__ref_ncr(ebb__kernel_in(call->desc, k)).c;
        for (int64_t n = 0; n < d.n; n++) {
            memcpy(dst + (n * d.c + first) * d.rest, src + n * run * d.rest, (size_t)(run * d.rest) * sizeof *dst);
        }
        first += run;
    }
    return EBB_OK;
}

ebb_status ebb__ref_slice(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0), *acc = call->desc->n_in > 1 ? ebb__ref_in(call, 1) : NULL;
    float *dst = ebb__ref_out(call, 0);
    const ebb_ref_ncr s = ebb__ref_ncr(ebb__kernel_in(call->desc, 0)), d = ebb__ref_ncr(ebb__kernel_out(call->desc, 0));
    const int64_t run = d.c * d.rest;
    for (int64_t n = 0; n < d.n; n++) {
        const float *from = src + (n * s.c + call->desc->attr.offset) * s.rest;
        for (int64_t i = 0; i < run; i++) { dst[n * run + i] = from[i] + (acc != NULL ? acc[n * run + i] : 0.0f); }
    }
    return EBB_OK;
}

ebb_status ebb__ref_same_elements(const ebb_ref_call *call) {
    const ebb_operand *src = ebb__kernel_in(call->desc, 0);
    const void *from = ebb__ref_in(call, 0);
    void *to = ebb__ref_out(call, 0);
    if (from != to) { memcpy(to, from, (size_t)ebb__shape_elements(&src->shape) * ebb_dtype_bytes(src->dtype)); }
    return EBB_OK;
}
