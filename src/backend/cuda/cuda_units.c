/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators that read the run's state: dropout, whose masks depend on the iteration, and updates.
 */
#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_priv.h"

/* ---- dropout ----------------------------------------------------------------------------------- */

static ebb_status run_dropout(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const bool last = ebb__cuda_layout(kernel->base.device, kernel->layout[0])->order == EBB_CUDA_CHANNELS_LAST;
    const ebb_shape *s = &kernel->shape;
    const float p = kernel->attr.p;
    const ebb_cuda_dropout_args args = {
        .src = bound->at[0],
        .dst = bound->at[1],
        .state = bound->state,
        .stream_hash = ebb__hash(EBB_HASH_INIT, &bound->rng_stream, sizeof bound->rng_stream),
        .n = kernel->n_elements,
        .c = last ? (uint64_t)s->dims[1] : 1,
        .hw = last ? (uint64_t)(s->dims[2] * s->dims[3]) : 1,
        .p = p,
        .scale = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f,
    };
    EBB_CUDA(last ? ebb__cuda_launch_dropout_last(stream, &args) : ebb__cuda_launch_dropout(stream, &args), "dropout");
    return EBB_OK;
}

ebb_status ebb__cuda_make_dropout(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = run_dropout;
    kernel->reads_state = true;
    kernel->base.inplace = 1u << 0;
    return ebb__cuda_all_same(device, desc, kernel);
}

/* ---- updates ----------------------------------------------------------------------------------- */

static ebb_status run_update(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_op_attr *a = &kernel->attr;
    const ebb_cuda_update_args args = {
        .gradient = bound->at[0],
        .weights = bound->at[1],
        .first = kernel->n_inout > 1 ? bound->at[2] : NULL,
        .second = kernel->n_inout > 2 ? bound->at[3] : NULL,
        .state = bound->state,
        .n = kernel->n_elements,
        .momentum = a->momentum,
        .weight_decay = a->weight_decay,
        .beta1 = a->beta1,
        .beta2 = a->beta2,
        .epsilon = a->epsilon,
        .rule = a->optimizer,
    };
    EBB_CUDA(ebb__cuda_launch_update(stream, &args), "update");
    return EBB_OK;
}

/* Weights lie as forward left them, and everything else lies as they do. */
ebb_status ebb__cuda_make_update(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = run_update;
    kernel->reads_state = true;
    const ebb_layout weights = ebb__kernel_inout(desc, 0)->layout;
    if (weights == EBB_LAYOUT_ANY) { return ebb__cuda_all_same(device, desc, kernel); }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) { kernel->layout[i] = weights; }
    return EBB_OK;
}
