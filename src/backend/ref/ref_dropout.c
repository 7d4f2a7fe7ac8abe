/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout, and its backward, which is the same: multiply by the mask's factors.
 */
#include "backend/dropout_mask.h"
#include "backend/ref/ref.h"

ebb_status ebb__ref_dropout(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0);
    float *dst = ebb__ref_out(call, 0);
    const ebb_dropout_mask mask = ebb__dropout_mask(call->state, call->rng_stream, call->desc->attr.p);
    const int64_t n = ebb__shape_elements(&ebb__kernel_in(call->desc, 0)->shape);
    float factors[4];
    for (int64_t i = 0; i < n; i++) {
        if (i % 4 == 0) { ebb__dropout_factors(&mask, (uint64_t)i / 4, factors); }
        dst[i] = src[i] * factors[i % 4];
    }
    return EBB_OK;
}
