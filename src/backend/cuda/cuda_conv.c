/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, forward and both backward: cuDNN's plan by choice (cuda_conv_plans.h), and behind it own kernels for
 * bias and ReLU, or for the bias's gradient, which lies in the workspace when the library is done with it.
 */
#include "backend/cuda/cuda_conv_plans.h"
#include "backend/cuda/cuda_sums.h"

typedef struct conv_plan {
    cudnnHandle_t handle;
    const ebb_cuda_conv *conv;
    ebb_cuda_conv_plan chosen;
} conv_plan;

static void destroy_plan(const ebb_cuda_kernel *kernel) {
    ebb__free(kernel->mem, kernel->plan); /* what it points to is the device's */
}

/* ---- binding and running ----------------------------------------------------------------------- */

static ebb_status create_pack(const ebb_cuda_kernel *kernel, ebb_bound *bound) {
    const conv_plan *p = kernel->plan;
    void *const *at = bound->at;
    void *workspace = p->chosen.workspace_bytes > 0 ? bound->scratch : NULL;
    void *src = at[0], *weights = at[1], *dst = at[kernel->n_in];
    if (p->conv->key.direction == EBB_OP_CONV_BWD_DATA) { src = at[2], dst = at[0]; }
    if (p->conv->key.direction == EBB_OP_CONV_BWD_WEIGHTS) { weights = at[2], dst = at[1]; }
    return ebb__cuda_conv_pack(p->conv, src, weights, dst, workspace, &bound->pack);
}

static void destroy_pack(const ebb_cuda_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    if (bound->pack != NULL) { (void)cudnnBackendDestroyDescriptor(bound->pack); }
}

static ebb_status convolve(const ebb_cuda_kernel *kernel, const ebb_bound *bound, const char *op, cudaStream_t stream) {
    const conv_plan *p = kernel->plan;
    EBB_CUDA_DNN(op, "the stream", cudnnSetStream, p->handle, stream);
    EBB_CUDA_DNN(op, "a plan", cudnnBackendExecute, p->handle, p->chosen.plan, bound->pack);
    return EBB_OK;
}

static ebb_status run_conv(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const int64_t *dst = ((const conv_plan *)kernel->plan)->conv->key.dst;
    const ebb_cuda_bias_args args = {.x = bound->at[kernel->n_in],
                                     .bias = kernel->n_in > 2 ? bound->at[2] : NULL,
                                     .c = (uint64_t)dst[1],
                                     .relu = kernel->attr.relu != 0};
    EBB_TRY(convolve(kernel, bound, "conv", stream));
    if (args.bias == NULL && !args.relu) { return EBB_OK; }
    EBB_CUDA(ebb__cuda_launch_bias(stream, &args, (uint64_t)(dst[0] * dst[1] * dst[2] * dst[3])), "conv");
    return EBB_OK;
}

static ebb_status run_bwd_data(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    return convolve(kernel, bound, "conv_bwd_data", stream);
}

static ebb_status run_bwd_weights(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const int64_t *dst = ((const conv_plan *)kernel->plan)->conv->key.dst;
    EBB_TRY(convolve(kernel, bound, "conv_bwd_weights", stream));
    if (kernel->n_out < 2) { return EBB_OK; }
    return ebb__cuda_sum_rows(stream, bound->at[1], (uint64_t)(dst[0] * dst[2] * dst[3]), (uint64_t)dst[1],
                              bound->scratch, bound->at[3]);
}

/* ---- making them ------------------------------------------------------------------------------- */

static ebb_cuda_conv_key key_of(const ebb_kernel_desc *desc) {
    const ebb_operand *src = &desc->operand[0], *weights = &desc->operand[1], *dst = &desc->operand[desc->n_in];
    if (desc->kind == EBB_OP_CONV_BWD_DATA) { src = &desc->operand[2], dst = &desc->operand[0]; }
    if (desc->kind == EBB_OP_CONV_BWD_WEIGHTS) { weights = &desc->operand[2], dst = &desc->operand[1]; }
    ebb_cuda_conv_key key = {.direction = desc->kind};
    memcpy(key.src, src->shape.dims, sizeof key.src);
    memcpy(key.weights, weights->shape.dims, sizeof key.weights);
    memcpy(key.dst, dst->shape.dims, sizeof key.dst);
    for (int i = 0; i < 2; i++) {
        key.stride[i] = desc->attr.stride[i];
        key.pad_begin[i] = desc->attr.pad_begin[i];
        key.pad_end[i] = desc->attr.pad_end[i];
        key.dilation[i] = desc->attr.dilation[i];
    }
    return key;
}

/* Images and weights have their channels last, a bias is a vector. */
static ebb_status set_layouts(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        const bool bias = (desc->kind == EBB_OP_CONV && i == 2 && desc->n_in > 2) ||
                          (desc->kind == EBB_OP_CONV_BWD_WEIGHTS && i == 3);
        EBB_TRY(bias ? ebb__cuda_layout_plain(&device->base, o->dtype, &o->shape, &kernel->layout[i])
                     : ebb__cuda_layout_channels_last(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    return EBB_OK;
}

static ebb_status choose_plan(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    conv_plan *p = kernel->plan;
    const ebb_cuda_conv_key key = key_of(desc);
    EBB_TRY(ebb__cuda_conv_find(device, &key, &p->conv));
    kernel->base.n_choices = p->conv->n_plans;
    if (desc->choice >= p->conv->n_plans) { return EBB_OK; } /* refused by who called */
    p->handle = device->libraries->dnn;
    p->chosen = p->conv->plans[desc->choice];
    kernel->base.scratch_bytes = p->chosen.workspace_bytes;
    if (desc->kind == EBB_OP_CONV_BWD_WEIGHTS && desc->n_out > 1) {
        const uint64_t n_rows = (uint64_t)(key.dst[0] * key.dst[2] * key.dst[3]);
        const uint64_t n_bytes = ebb__cuda_fold_bytes(ebb__cuda_chunks(n_rows), (uint64_t)key.dst[1]);
        kernel->base.scratch_bytes = ebb_max_u64(kernel->base.scratch_bytes, n_bytes);
    }
    return EBB_OK;
}

ebb_status ebb__cuda_make_conv(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->plan = ebb__calloc(kernel->mem, 1, sizeof(conv_plan));
    if (kernel->plan == NULL) { return EBB_E_NO_MEMORY; }
    kernel->plan_destroy = destroy_plan;
    kernel->pack_create = create_pack;
    kernel->pack_destroy = destroy_pack;
    kernel->base.algorithm = "cudnn";
    switch (desc->kind) {
    case EBB_OP_CONV: kernel->run = run_conv; break;
    case EBB_OP_CONV_BWD_DATA: kernel->run = run_bwd_data; break;
    default: kernel->run = run_bwd_weights; break;
    }
    EBB_TRY(set_layouts(device, desc, kernel));
    return choose_plan(device, desc, kernel);
}
