/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax with mean cross-entropy, how many rows the largest logit got right, and the gradient.
 */
#include "backend/ref/ref.h"

#include <math.h>

/* The first of equal ones. */
static int64_t largest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[best]) { best = i; }
    }
    return best;
}

/* Writes the row's probabilities; returns the logarithm of the label's, which is exact where the
 * probability itself has become 0. */
static double softmax(const float *logits, int64_t n, int32_t label, float *probabilities) {
    const double max = (double)logits[largest(logits, n)];
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) { sum += exp((double)logits[i] - max); }
    const double log_p = (double)logits[label] - max - log(sum);
    for (int64_t i = 0; i < n; i++) { probabilities[i] = (float)(exp((double)logits[i] - max) / sum); }
    return log_p;
}

ebb_status ebb__ref_softmax_loss(const ebb_ref_call *call) {
    const float *logits = ebb__ref_in(call, 0);
    const int32_t *labels = ebb__ref_in(call, 1);
    float *loss = ebb__ref_out(call, 0), *probabilities = ebb__ref_out(call, 1), *correct = ebb__ref_out(call, 2);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape;
    const int64_t n_rows = s->dims[0], n_classes = s->dims[1];
    EBB_TRY(ebb__kernel_check_labels(labels, n_rows, n_classes));
    double sum = 0.0, n_correct = 0.0;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = logits + r * n_classes;
        n_correct += largest(row, n_classes) == labels[r];
        sum -= softmax(row, n_classes, labels[r], probabilities + r * n_classes);
    }
    *loss = (float)(sum / (double)n_rows);
    *correct = (float)n_correct;
    return EBB_OK;
}

ebb_status ebb__ref_softmax_loss_bwd(const ebb_ref_call *call) {
    const float *probabilities = ebb__ref_in(call, 0);
    const int32_t *labels = ebb__ref_in(call, 1);
    float *diff_logits = ebb__ref_out(call, 0);
    const ebb_shape *s = &ebb__kernel_in(call->desc, 0)->shape;
    const int64_t n_rows = s->dims[0], n_classes = s->dims[1];
    for (int64_t i = 0; i < n_rows * n_classes; i++) {
        double target = i % n_classes == labels[i / n_classes] ? 1.0 : 0.0;
        diff_logits[i] = (float)(((double)probabilities[i] - target) / (double)n_rows);
    }
    return EBB_OK;
}
