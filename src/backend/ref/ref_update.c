/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimisers, in PyTorch's forms (graph.h names the papers). w, g: weight and gradient; v: momentum; m, s:
 * Adam's first and second moment.
 */
#include "backend/ref/ref.h"

#include <math.h>

static void descend(const ebb_ref_call *call, int64_t n) {
    const ebb_op_attr *a = &call->desc->attr;
    const float *gradient = ebb__ref_in(call, 0);
    float *weights = ebb__ref_inout(call, 0), *velocity = call->desc->n_inout > 1 ? ebb__ref_inout(call, 1) : NULL;
    const double rate = (double)call->state->learning_rate, mu = (double)a->momentum;
    for (int64_t i = 0; i < n; i++) {
        const double w = (double)weights[i], g = (double)gradient[i] + (double)a->weight_decay * w;
        double step = g;
        if (velocity != NULL) {
            const double v = mu * (double)velocity[i] + g;
            velocity[i] = (float)v;
            step = a->optimizer == EBB_OPT_NESTEROV ? g + mu * v : v;
        }
        weights[i] = (float)(w - rate * step);
    }
}

static void adapt(const ebb_ref_call *call, int64_t n) {
    const ebb_op_attr *a = &call->desc->attr;
    const float *gradient = ebb__ref_in(call, 0);
    float *weights = ebb__ref_inout(call, 0), *first = ebb__ref_inout(call, 1), *second = ebb__ref_inout(call, 2);
    const double rate = (double)call->state->learning_rate, t = (double)call->state->update;
    const double beta1 = (double)a->beta1, beta2 = (double)a->beta2, decay = (double)a->weight_decay;
    const double correct1 = 1.0 - pow(beta1, t), correct2 = sqrt(1.0 - pow(beta2, t));
    const bool decoupled = a->optimizer == EBB_OPT_ADAMW;
    for (int64_t i = 0; i < n; i++) {
        const double w = (double)weights[i] * (decoupled ? 1.0 - rate * decay : 1.0);
        const double g = (double)gradient[i] + (decoupled ? 0.0 : decay * w);
        const double m = beta1 * (double)first[i] + (1.0 - beta1) * g;
        const double s = beta2 * (double)second[i] + (1.0 - beta2) * g * g;
        first[i] = (float)m;
        second[i] = (float)s;
        weights[i] = (float)(w - rate / correct1 * m / (sqrt(s) / correct2 + (double)a->epsilon));
    }
}

ebb_status ebb__ref_update(const ebb_ref_call *call) {
    const int64_t n = ebb__shape_elements(&ebb__kernel_in(call->desc, 0)->shape);
    const bool adaptive = call->desc->attr.optimizer == EBB_OPT_ADAM || call->desc->attr.optimizer == EBB_OPT_ADAMW;
    if (adaptive) {
        adapt(call, n);
    } else {
        descend(call, n);
    }
    return EBB_OK;
}
