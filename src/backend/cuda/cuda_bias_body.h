/* SPDX-License-Identifier: Apache-2.0
 *
 * The bias of each channel and the ReLU after a product, in place.
 */
#ifndef EBB_SRC_CUDA_BIAS_BODY_H
#define EBB_SRC_CUDA_BIAS_BODY_H

#include "backend/cuda/cuda_elementwise_body.h"
#include "backend/cuda/cuda_launch_ops.h"

EBB_HD void ebb__cuda_bias_quads(const ebb_cuda_bias_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad x[EBB_CUDA_QUADS];
    uint64_t row, c = ebb__cuda_divide(at, args->c, &row);
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load(args->x, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        if (args->bias != NULL) {
            const ebb_cuda_quad bias = ebb__cuda_of_channels(args->bias, c, args->c, fit);
            for (int j = 0; j < 4; j++) { x[k].v[j] += bias.v[j]; }
        }
        for (int j = 0; j < 4; j++) { x[k].v[j] = args->relu ? ebb__cuda_rectify(x[k].v[j]) : x[k].v[j]; }
        ebb__cuda_store(args->x, at + k * EBB_CUDA_STRIDE, args->n, fit, x[k]);
        c = ebb__cuda_next_channel(c, args->c);
    }
}

#endif
