/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax with cross-entropy: small beside everything else, so plain loops in double, on one thread. That
 * makes the loss independent of the number of threads.
 */
#include "backend/cpu/cpu_priv.h"

#include <math.h>

/* The first of equal ones. */
static int64_t find_largest(const float *row, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (row[i] > row[best]) { best = i; }
    }
    return best;
}

/* Probabilities of a row; returns the logarithm of the sum of exp(logit - max). */
static double softmax(const float *logits, int64_t n, float max, float *probabilities) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        probabilities[i] = expf(logits[i] - max);
        sum += (double)probabilities[i];
    }
    const double inverse = 1.0 / sum;
    for (int64_t i = 0; i < n; i++) { probabilities[i] = (float)((double)probabilities[i] * inverse); }
    return log(sum);
}

static ebb_status run_loss(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const float *logits = bound->at[0];
    const int32_t *labels = bound->at[1];
    float *loss = bound->at[2], *probabilities = bound->at[3], *correct = bound->at[4];
    const int64_t n_rows = kernel->shape.dims[0], n_classes = kernel->shape.dims[1];
    EBB_TRY(ebb__kernel_check_labels(labels, n_rows, n_classes));
    double sum = 0.0;
    int64_t n_correct = 0;
    for (int64_t r = 0; r < n_rows; r++) {
        const float *row = logits + r * n_classes;
        const int64_t best = find_largest(row, n_classes);
        n_correct += best == labels[r];
        sum += softmax(row, n_classes, row[best], probabilities + r * n_classes) -
               ((double)row[labels[r]] - (double)row[best]);
    }
    *loss = (float)(sum / (double)n_rows);
    *correct = (float)n_correct;
    return EBB_OK;
}

static ebb_status run_loss_bwd(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const float *probabilities = bound->at[0];
    const int32_t *labels = bound->at[1];
    float *diff_logits = bound->at[2];
    const int64_t n_rows = kernel->shape.dims[0], n_classes = kernel->shape.dims[1];
    const float share = 1.0f / (float)n_rows;
    EBB_TRY(ebb__kernel_check_labels(labels, n_rows, n_classes));
    for (int64_t r = 0; r < n_rows; r++) {
        const int64_t at = r * n_classes;
        for (int64_t i = 0; i < n_classes; i++) {
            const float target = i == labels[r] ? 1.0f : 0.0f;
            diff_logits[at + i] = (probabilities[at + i] - target) * share;
        }
    }
    return EBB_OK;
}

ebb_status ebb__cpu_make_loss(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const bool forward = desc->kind == EBB_OP_SOFTMAX_LOSS;
    kernel->run = forward ? run_loss : run_loss_bwd;
    if (!forward) { kernel->base.inplace = 1u << 0; }
    return ebb__kernel_all_plain(&device->host.base, desc, kernel->layout);
}
