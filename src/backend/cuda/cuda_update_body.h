/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimisers of ref_update.c, in single precision but for Adam's corrections: one pass that reads and writes each
 * of a parameter's tensors once.
 */
#ifndef EBB_SRC_CUDA_UPDATE_BODY_H
#define EBB_SRC_CUDA_UPDATE_BODY_H

#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_each.h"
#include "ebb/graph.h"

#include <math.h>

EBB_HD void ebb__cuda_descend(const ebb_cuda_update_args *args, uint64_t i, float rate) {
    const float w = args->weights[i], g = args->gradient[i] + args->weight_decay * w;
    float step = g;
    if (args->first != NULL) {
        const float v = args->momentum * args->first[i] + g;
        args->first[i] = v;
        step = args->rule == EBB_OPT_NESTEROV ? g + args->momentum * v : v;
    }
    args->weights[i] = w - rate * step;
}

/* rate is divided by the first moment's correction, root is that of the second's. */
EBB_HD void ebb__cuda_adapt(const ebb_cuda_update_args *args, uint64_t i, float decay, float rate, float root) {
    const bool decoupled = args->rule == EBB_OPT_ADAMW;
    float w = args->weights[i], g = args->gradient[i];
    if (decoupled) {
        w -= w * decay;
    } else {
        g += args->weight_decay * w;
    }
    const float m = args->beta1 * args->first[i] + (1.0f - args->beta1) * g;
    const float s = args->beta2 * args->second[i] + (1.0f - args->beta2) * g * g;
    args->first[i] = m;
    args->second[i] = s;
    args->weights[i] = w - rate * m / (sqrtf(s) / root + args->epsilon);
}

EBB_HD void ebb__cuda_update_element(const ebb_cuda_update_args *args, uint64_t i) {
    const float rate = args->state->learning_rate;
    if (args->rule != EBB_OPT_ADAM && args->rule != EBB_OPT_ADAMW) {
        for (; i < args->n; i += args->n_units) { ebb__cuda_descend(args, i, rate); }
        return;
    }
    const double t = (double)args->state->update;
    const double first = 1.0 - pow((double)args->beta1, t), second = sqrt(1.0 - pow((double)args->beta2, t));
    for (; i < args->n; i += args->n_units) {
        ebb__cuda_adapt(args, i, rate * args->weight_decay, (float)((double)rate / first), (float)second);
    }
}

#endif
