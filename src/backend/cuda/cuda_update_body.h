/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimisers of ref_update.c, in single precision but for Adam's corrections: one pass that reads and writes each
 * of a parameter's tensors once.
 */
#ifndef EBB_SRC_CUDA_UPDATE_BODY_H
#define EBB_SRC_CUDA_UPDATE_BODY_H

#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_quad.h"
#include "ebb/graph.h"

#include <math.h>

/* One element of each of a parameter's tensors, before the update and after it. */
typedef struct ebb_cuda_parameter {
    float g, w, first, second;
} ebb_cuda_parameter;

EBB_HD void ebb__cuda_descend(const ebb_cuda_update_args *args, ebb_cuda_parameter *p, float rate) {
    const float g = p->g + args->weight_decay * p->w;
    float step = g;
    if (args->first != NULL) {
        p->first = args->momentum * p->first + g;
        step = args->rule == EBB_OPT_NESTEROV ? g + args->momentum * p->first : p->first;
    }
    p->w -= rate * step;
}

/* rate is divided by the first moment's correction, root is that of the second's. */
EBB_HD void ebb__cuda_adapt(const ebb_cuda_update_args *args, ebb_cuda_parameter *p, float decay, float rate,
                            float root) {
    float g = p->g;
    if (args->rule == EBB_OPT_ADAMW) {
        p->w -= p->w * decay;
    } else {
        g += args->weight_decay * p->w;
    }
    p->first = args->beta1 * p->first + (1.0f - args->beta1) * g;
    p->second = args->beta2 * p->second + (1.0f - args->beta2) * g * g;
    p->w -= rate * p->first / (sqrtf(p->second) / root + args->epsilon);
}

/* A tensor that this rule has not is NULL, and reads as zeros. */
EBB_HD void ebb__cuda_load_state(const float *from, uint64_t at, uint64_t n, ebb_cuda_fit fit,
                                 ebb_cuda_quad x[EBB_CUDA_QUADS]) {
    const ebb_cuda_quad zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = from != NULL ? ebb__cuda_load(from, at + k * EBB_CUDA_STRIDE, n, fit) : zeros;
    }
}

EBB_HD void ebb__cuda_update_quads(const ebb_cuda_update_args *args, uint64_t at, ebb_cuda_fit fit) {
    const float rate = args->state->learning_rate;
    const bool adapts = args->rule == EBB_OPT_ADAM || args->rule == EBB_OPT_ADAMW;
    const double t = (double)args->state->update;
    const float slow = adapts ? (float)((double)rate / (1.0 - pow((double)args->beta1, t))) : rate;
    const float root = adapts ? (float)sqrt(1.0 - pow((double)args->beta2, t)) : 1.0f;
    ebb_cuda_quad g[EBB_CUDA_QUADS], w[EBB_CUDA_QUADS], first[EBB_CUDA_QUADS], second[EBB_CUDA_QUADS];
    ebb__cuda_load_state(args->gradient, at, args->n, fit, g);
    ebb__cuda_load_state(args->weights, at, args->n, fit, w);
    ebb__cuda_load_state(args->first, at, args->n, fit, first);
    ebb__cuda_load_state(args->second, at, args->n, fit, second);
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        for (int j = 0; j < 4; j++) {
            ebb_cuda_parameter p = {g[k].v[j], w[k].v[j], first[k].v[j], second[k].v[j]};
            if (adapts) {
                ebb__cuda_adapt(args, &p, rate * args->weight_decay, slow, root);
            } else {
                ebb__cuda_descend(args, &p, rate);
            }
            w[k].v[j] = p.w;
            first[k].v[j] = p.first;
            second[k].v[j] = p.second;
        }
        const uint64_t here = at + k * EBB_CUDA_STRIDE;
        ebb__cuda_store(args->weights, here, args->n, fit, w[k]);
        if (args->first != NULL) { ebb__cuda_store(args->first, here, args->n, fit, first[k]); }
        if (args->second != NULL) { ebb__cuda_store(args->second, here, args->n, fit, second[k]); }
    }
}

#endif
