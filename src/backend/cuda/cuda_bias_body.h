/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes after a product: a bias for each channel, a ReLU. In place.
 */
#ifndef EBB_SRC_CUDA_BIAS_BODY_H
#define EBB_SRC_CUDA_BIAS_BODY_H

#include "backend/cuda/cuda_divide.h"
#include "backend/cuda/cuda_launch_ops.h"

EBB_HD void ebb__cuda_bias_element(const ebb_cuda_bias_args *args, uint64_t i) {
    uint64_t row;
    float v = args->x[i];
    if (args->bias != NULL) { v += args->bias[ebb__cuda_divide(i, args->c, &row)]; }
    args->x[i] = args->relu && v < 0.0f ? 0.0f : v;
}

#endif
