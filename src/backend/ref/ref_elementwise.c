/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes element by element: ReLU and its backward, addition. Outputs may lie over inputs.
 */
#include "backend/ref/ref.h"

static int64_t n_elements(const ebb_ref_call *call) {
    return ebb__shape_elements(&call->desc->operand[0].shape);
}

/* A NaN stays one. */
static float rectify(float x) {
    return x < 0.0f ? 0.0f : x;
}

ebb_status ebb__ref_relu(const ebb_ref_call *call) {
    const float *src = ebb__ref_in(call, 0);
    float *dst = ebb__ref_out(call, 0);
    const int64_t n = n_elements(call);
    for (int64_t i = 0; i < n; i++) { dst[i] = rectify(src[i]); }
    return EBB_OK;
}

ebb_status ebb__ref_relu_bwd(const ebb_ref_call *call) {
    const float *diff_dst = ebb__ref_in(call, 0), *dst = ebb__ref_in(call, 1);
    float *diff_src = ebb__ref_out(call, 0);
    const int64_t n = n_elements(call);
    for (int64_t i = 0; i < n; i++) { diff_src[i] = dst[i] > 0.0f ? diff_dst[i] : 0.0f; }
    return EBB_OK;
}

ebb_status ebb__ref_add(const ebb_ref_call *call) {
    const float *a = ebb__ref_in(call, 0), *b = ebb__ref_in(call, 1);
    float *dst = ebb__ref_out(call, 0);
    const int64_t n = n_elements(call);
    for (int64_t i = 0; i < n; i++) { dst[i] = call->desc->attr.relu ? rectify(a[i] + b[i]) : a[i] + b[i]; }
    return EBB_OK;
}
