/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax with cross-entropy, and its gradient.
 *
 *   scratch   rows: loss and correct of each, with what they are folded to | exp_sums | largest
 */
#include "backend/cuda/cuda_sums.h"

static uint64_t n_lanes(const ebb_cuda_kernel *kernel) {
    return (uint64_t)kernel->shape.dims[0] * EBB_CUDA_LANES;
}

static ebb_status run_loss(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const uint64_t n_rows = (uint64_t)kernel->shape.dims[0];
    ebb_cuda_pair *rows = bound->scratch;
    double *exp_sums = (double *)((unsigned char *)bound->scratch + ebb__cuda_fold_bytes(n_rows, 1));
    const ebb_cuda_loss_args args = {.logits = bound->at[0],
                                     .labels = bound->at[1],
                                     .probabilities = bound->at[3],
                                     .largest = (ebb_cuda_largest *)(exp_sums + n_lanes(kernel)),
                                     .exp_sums = exp_sums,
                                     .rows = rows,
                                     .n_classes = (uint64_t)kernel->shape.dims[1]};
    EBB_CUDA(ebb__cuda_launch_loss_largest(stream, &args, n_lanes(kernel)), "softmax_loss");
    EBB_CUDA(ebb__cuda_launch_loss_sums(stream, &args, n_lanes(kernel)), "softmax_loss");
    EBB_CUDA(ebb__cuda_launch_loss_rows(stream, &args, n_lanes(kernel)), "softmax_loss");
    uint64_t n = n_rows;
    EBB_TRY(ebb__cuda_fold(stream, &rows, &n, 1));
    const ebb_cuda_loss_put_args put = {
        .sums = rows, .loss = bound->at[2], .correct = bound->at[4], .n = n, .n_rows = (double)n_rows};
    EBB_CUDA(ebb__cuda_launch_loss_put(stream, &put, 1), "softmax_loss");
    return EBB_OK;
}

static ebb_status run_loss_bwd(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_loss_bwd_args args = {.probabilities = bound->at[0],
                                         .labels = bound->at[1],
                                         .diff_logits = bound->at[2],
                                         .n_classes = (uint64_t)kernel->shape.dims[1],
                                         .share = 1.0f / (float)kernel->shape.dims[0]};
    EBB_CUDA(ebb__cuda_launch_loss_bwd(stream, &args, kernel->n_elements), "softmax_loss_bwd");
    return EBB_OK;
}

ebb_status ebb__cuda_make_loss(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    if (kernel->shape.dims[1] > INT32_MAX) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s of more classes than labels can tell", ebb__op_name(desc->kind));
    }
    if (desc->kind == EBB_OP_SOFTMAX_LOSS) {
        kernel->run = run_loss;
        kernel->base.scratch_bytes = ebb__cuda_fold_bytes((uint64_t)kernel->shape.dims[0], 1) +
                                     n_lanes(kernel) * (sizeof(double) + sizeof(ebb_cuda_largest));
    } else {
        kernel->run = run_loss_bwd;
        kernel->base.inplace = 1u << 0;
    }
    return ebb__kernel_all_plain(&device->base, desc, kernel->layout);
}
