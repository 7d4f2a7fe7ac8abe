/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax with mean cross-entropy by EBB_CUDA_LANES threads a row, in double precision: small beside everything else.
 * Lanes pass values to one another through scratch between launches, in the order of lanes.
 */
#ifndef EBB_SRC_CUDA_LOSS_BODY_H
#define EBB_SRC_CUDA_LOSS_BODY_H

#include "backend/cuda/cuda_sums_body.h"

#include <math.h>

/* The sum of pairs [first, end) of column c of [.][n_columns]. */
EBB_HD ebb_cuda_pair ebb__cuda_add_pairs(const ebb_cuda_pair *sums, uint64_t n_columns, uint64_t c, uint64_t first,
                                         uint64_t end) {
    ebb_cuda_pair sum;
    sum.a = 0.0;
    sum.b = 0.0;
    for (uint64_t k = first; k < end; k++) {
        sum.a += sums[k * n_columns + c].a;
        sum.b += sums[k * n_columns + c].b;
    }
    return sum;
}

EBB_HD void ebb__cuda_fold_element(const ebb_cuda_fold_args *args, uint64_t i) {
    uint64_t group;
    const uint64_t c = ebb__cuda_divide(i, args->c, &group), first = group * EBB_CUDA_FOLD;
    const uint64_t end = first + EBB_CUDA_FOLD < args->n ? first + EBB_CUDA_FOLD : args->n;
    args->to[i] = ebb__cuda_add_pairs(args->from, args->c, c, first, end);
}

/* The first of equal ones. */
EBB_HD void ebb__cuda_loss_largest_element(const ebb_cuda_loss_args *args, uint64_t i) {
    const float *row = args->logits + i / EBB_CUDA_LANES * args->n_classes;
    ebb_cuda_largest best;
    best.value = 0.0f;
    best.at = -1;
    for (uint64_t k = i % EBB_CUDA_LANES; k < args->n_classes; k += EBB_CUDA_LANES) {
        if (best.at < 0 || row[k] > best.value) {
            best.value = row[k];
            best.at = (int32_t)k;
        }
    }
    args->largest[i] = best;
}

EBB_HD ebb_cuda_largest ebb__cuda_row_largest(const ebb_cuda_loss_args *args, uint64_t row) {
    const ebb_cuda_largest *lanes = args->largest + row * EBB_CUDA_LANES;
    ebb_cuda_largest best = lanes[0];
    for (unsigned l = 1; l < EBB_CUDA_LANES && lanes[l].at >= 0; l++) {
        const bool earlier = lanes[l].value == best.value && lanes[l].at < best.at;
        if (lanes[l].value > best.value || earlier) { best = lanes[l]; }
    }
    return best;
}

EBB_HD void ebb__cuda_loss_sums_element(const ebb_cuda_loss_args *args, uint64_t i) {
    const uint64_t row = i / EBB_CUDA_LANES;
    const double max = (double)ebb__cuda_row_largest(args, row).value;
    double sum = 0.0;
    for (uint64_t k = i % EBB_CUDA_LANES; k < args->n_classes; k += EBB_CUDA_LANES) {
        sum += exp((double)args->logits[row * args->n_classes + k] - max);
    }
    args->exp_sums[i] = sum;
}

EBB_HD void ebb__cuda_loss_rows_element(const ebb_cuda_loss_args *args, uint64_t i) {
    const uint64_t row = i / EBB_CUDA_LANES, n = args->n_classes;
    const float *logits = args->logits + row * n;
    const ebb_cuda_largest best = ebb__cuda_row_largest(args, row);
    const double max = (double)best.value;
    double sum = 0.0;
    for (unsigned l = 0; l < EBB_CUDA_LANES; l++) { sum += args->exp_sums[row * EBB_CUDA_LANES + l]; }
    for (uint64_t k = i % EBB_CUDA_LANES; k < n; k += EBB_CUDA_LANES) {
        args->probabilities[row * n + k] = (float)(exp((double)logits[k] - max) / sum);
    }
    if (i % EBB_CUDA_LANES != 0) { return; }
    const int32_t label = args->labels[row];
    const bool is_label = label >= 0 && (uint64_t)label < n;
    args->rows[row].a = is_label ? log(sum) + max - (double)logits[label] : (double)NAN;
    args->rows[row].b = best.at == label ? 1.0 : 0.0;
}

EBB_HD void ebb__cuda_loss_put_element(const ebb_cuda_loss_put_args *args, uint64_t i) {
    const ebb_cuda_pair sum = ebb__cuda_add_pairs(args->sums, 1, i, 0, args->n);
    *args->loss = (float)(sum.a / args->n_rows);
    *args->correct = (float)sum.b;
}

EBB_HD void ebb__cuda_loss_bwd_element(const ebb_cuda_loss_bwd_args *args, uint64_t i) {
    uint64_t row;
    const uint64_t k = ebb__cuda_divide(i, args->n_classes, &row);
    const float target = (int64_t)k == args->labels[row] ? 1.0f : 0.0f;
    args->diff_logits[i] = (args->probabilities[i] - target) * args->share;
}

#endif
