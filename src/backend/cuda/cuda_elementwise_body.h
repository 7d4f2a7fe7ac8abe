/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, its backward, addition, for the quads of a thread: the arithmetic of ref_elementwise.c. Outputs may lie over
 * inputs. Beside them what sets a run's state, which is one element.
 */
#ifndef EBB_SRC_CUDA_ELEMENTWISE_BODY_H
#define EBB_SRC_CUDA_ELEMENTWISE_BODY_H

#include "backend/cuda/cuda_quad.h"

/* A NaN stays one. */
EBB_HD float ebb__cuda_rectify(float x) {
    return x < 0.0f ? 0.0f : x;
}

EBB_HD void ebb__cuda_relu_quads(const ebb_cuda_relu_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad x[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load(args->src, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        for (int j = 0; j < 4; j++) { x[k].v[j] = ebb__cuda_rectify(x[k].v[j]); }
        ebb__cuda_store(args->dst, at + k * EBB_CUDA_STRIDE, args->n, fit, x[k]);
    }
}

EBB_HD void ebb__cuda_relu_bwd_quads(const ebb_cuda_relu_bwd_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad dst[EBB_CUDA_QUADS], diff[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        dst[k] = ebb__cuda_load(args->dst, at + k * EBB_CUDA_STRIDE, args->n, fit);
        diff[k] = ebb__cuda_load(args->diff_dst, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        for (int j = 0; j < 4; j++) { diff[k].v[j] = dst[k].v[j] > 0.0f ? diff[k].v[j] : 0.0f; }
        ebb__cuda_store(args->diff_src, at + k * EBB_CUDA_STRIDE, args->n, fit, diff[k]);
    }
}

EBB_HD void ebb__cuda_add_quads(const ebb_cuda_add_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad a[EBB_CUDA_QUADS], b[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        a[k] = ebb__cuda_load(args->a, at + k * EBB_CUDA_STRIDE, args->n, fit);
        b[k] = ebb__cuda_load(args->b, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        for (int j = 0; j < 4; j++) {
            const float sum = a[k].v[j] + b[k].v[j];
            a[k].v[j] = args->relu ? ebb__cuda_rectify(sum) : sum;
        }
        ebb__cuda_store(args->dst, at + k * EBB_CUDA_STRIDE, args->n, fit, a[k]);
    }
}

EBB_HD void ebb__cuda_set_state_element(const ebb_cuda_set_state_args *args, uint64_t i) {
    args->dst[i] = args->state;
}

#endif
