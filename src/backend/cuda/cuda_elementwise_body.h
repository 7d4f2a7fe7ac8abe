/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, its backward, addition, for one element: the arithmetic of ref_elementwise.c. Outputs may lie over inputs.
 * Beside them what sets a run's state, which is one element.
 */
#ifndef EBB_SRC_CUDA_ELEMENTWISE_BODY_H
#define EBB_SRC_CUDA_ELEMENTWISE_BODY_H

#include "backend/cuda/cuda_each.h"

/* A NaN stays one. */
EBB_HD float ebb__cuda_rectify(float x) {
    return x < 0.0f ? 0.0f : x;
}

EBB_HD void ebb__cuda_relu_element(const ebb_cuda_relu_args *args, uint64_t i) {
    args->dst[i] = ebb__cuda_rectify(args->src[i]);
}

EBB_HD void ebb__cuda_relu_bwd_element(const ebb_cuda_relu_bwd_args *args, uint64_t i) {
    args->diff_src[i] = args->dst[i] > 0.0f ? args->diff_dst[i] : 0.0f;
}

EBB_HD void ebb__cuda_add_element(const ebb_cuda_add_args *args, uint64_t i) {
    const float sum = args->a[i] + args->b[i];
    args->dst[i] = args->relu ? ebb__cuda_rectify(sum) : sum;
}

EBB_HD void ebb__cuda_set_state_element(const ebb_cuda_set_state_args *args, uint64_t i) {
    args->dst[i] = args->state;
}

#endif
