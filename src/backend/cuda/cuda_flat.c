/* SPDX-License-Identifier: Apache-2.0
 *
 * ReLU, its backward, and addition: they take elements in whatever order these lie. This file is the model of a family
 * of own kernels: a maker chooses layouts and says which operands may share bytes, and a run queues one launch.
 */
#include "backend/cuda/cuda_priv.h"

static ebb_status run_relu(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_relu_args args = {.src = bound->at[0], .dst = bound->at[1], .n = kernel->n_elements};
    EBB_CUDA(ebb__cuda_launch_relu(stream, &args), "relu");
    return EBB_OK;
}

static ebb_status run_relu_bwd(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_relu_bwd_args args = {
        .diff_dst = bound->at[0], .dst = bound->at[1], .diff_src = bound->at[2], .n = kernel->n_elements};
    EBB_CUDA(ebb__cuda_launch_relu_bwd(stream, &args), "relu_bwd");
    return EBB_OK;
}

static ebb_status run_add(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_add_args args = {
        .a = bound->at[0], .b = bound->at[1], .dst = bound->at[2], .n = kernel->n_elements, .relu = kernel->attr.relu};
    EBB_CUDA(ebb__cuda_launch_add(stream, &args), "add");
    return EBB_OK;
}

ebb_status ebb__cuda_make_flat(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    switch (desc->kind) {
    case EBB_OP_RELU: kernel->run = run_relu; break;
    case EBB_OP_RELU_BWD: kernel->run = run_relu_bwd; break;
    default: kernel->run = run_add; break;
    }
    kernel->base.inplace = desc->kind == EBB_OP_RELU ? 1u << 0 : 1u << 0 | 1u << 1;
    return ebb__cuda_all_same(device, desc, kernel);
}
