/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch-norm, our own: sums over the batch in a fixed order, then one pass that normalises, rectifies, and notes in a
 * bit an element what backward has to let pass.
 *
 *   scratch   sums [parts][c], and after them coef [1 or 3][c]
 */
#include "backend/cuda/cuda_quad.h"
#include "backend/cuda/cuda_sums.h"

static uint64_t n_channels(const ebb_cuda_kernel *kernel) {
    return (uint64_t)kernel->shape.dims[1];
}

static uint64_t n_rows(const ebb_cuda_kernel *kernel) {
    return kernel->n_elements / n_channels(kernel);
}

static float *coef_of(const ebb_cuda_kernel *kernel, const ebb_bound *bound) {
    return (float *)((unsigned char *)bound->scratch + ebb__cuda_sums_bytes(n_rows(kernel), n_channels(kernel)));
}

/* x: what is added. */
static ebb_cuda_norm_channel_args channel_args(const ebb_cuda_kernel *kernel, const ebb_bound *bound, const float *x) {
    return (ebb_cuda_norm_channel_args){
        .rows = ebb__cuda_sums(x, n_rows(kernel), n_channels(kernel), bound->scratch, bound->tickets),
        .coef = coef_of(kernel, bound),
        .epsilon = kernel->attr.epsilon};
}

/* Groups of EBB_CUDA_VOTERS bits, whole ones. */
static uint64_t mask_bytes(const ebb_cuda_kernel *kernel) {
    return ebb_align_up(kernel->n_elements, EBB_CUDA_VOTERS) / 8;
}

/* ---- forward ----------------------------------------------------------------------------------- */

static ebb_status normalize(const ebb_cuda_kernel *kernel, const ebb_bound *bound, const float *mean, float *dst,
                            uint8_t *mask, cudaStream_t stream) {
    const ebb_cuda_norm_args args = {.src = bound->at[0],
                                     .mean = mean,
                                     .coef = coef_of(kernel, bound),
                                     .beta = bound->at[2],
                                     .to = dst,
                                     .mask = mask,
                                     .n = kernel->n_elements,
                                     .c = n_channels(kernel),
                                     .relu = kernel->attr.relu != 0};
    EBB_CUDA(ebb__cuda_launch_norm(stream, &args), "batch_norm");
    return EBB_OK;
}

static ebb_status run_forward(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_norm_channel_args channel = channel_args(kernel, bound, bound->at[0]);
    channel.gamma = bound->at[1];
    channel.mean = bound->at[4];
    channel.variance = bound->at[5];
    EBB_CUDA(ebb__cuda_launch_norm_statistics(stream, &channel), "batch_norm");
    uint8_t *mask = kernel->n_out > 3 ? bound->at[6] : NULL;
    return normalize(kernel, bound, channel.mean, bound->at[3], mask, stream);
}

static ebb_status run_infer(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_norm_channel_args channel = channel_args(kernel, bound, NULL);
    channel.gamma = bound->at[1];
    channel.variance = bound->at[4];
    EBB_CUDA(ebb__cuda_launch_norm_infer_channel(stream, &channel, channel.rows.c), "batch_norm_infer");
    return normalize(kernel, bound, bound->at[3], bound->at[5], NULL, stream);
}

/* ---- backward ---------------------------------------------------------------------------------- */

static ebb_status run_backward(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    void *const *out = bound->at + kernel->n_in;
    uint8_t *mask = kernel->n_in > 5 ? bound->at[5] : NULL;
    ebb_cuda_norm_channel_args channel = channel_args(kernel, bound, bound->at[1]);
    channel.rows.src = bound->at[0];
    channel.rows.mean = bound->at[2];
    channel.rows.mask = mask;
    channel.variance = bound->at[3];
    channel.gamma = bound->at[4];
    channel.diff_gamma = out[1];
    channel.diff_beta = out[2];
    EBB_CUDA(ebb__cuda_launch_norm_gradients(stream, &channel), "batch_norm_bwd");
    const ebb_cuda_norm_args second = {.src = bound->at[0],
                                       .diff_dst = bound->at[1],
                                       .mean = bound->at[2],
                                       .coef = channel.coef,
                                       .to = out[0],
                                       .mask = mask,
                                       .n = kernel->n_elements,
                                       .c = channel.rows.c};
    EBB_CUDA(ebb__cuda_launch_norm_bwd(stream, &second), "batch_norm_bwd");
    return EBB_OK;
}

/* ---- making them ------------------------------------------------------------------------------- */

/* Operands of src's shape lie channels last, or as they are if that is (n, c). The mask is bits. All others have one
 * value per channel. */
static ebb_status set_layouts(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    const ebb_shape *src = &desc->operand[0].shape;
    const uint32_t n_coef = desc->kind == EBB_OP_BATCH_NORM_BWD ? 3 : 1;
    if (src->n_dims != 4 && src->n_dims != 2) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s of %d dimensions", ebb__op_name(desc->kind), (int)src->n_dims);
    }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        if (o->opaque) {
            EBB_TRY(ebb__cuda_layout_of_bytes(&device->base, mask_bytes(kernel), &kernel->layout[i]));
        } else if (o->shape.n_dims == 4) {
            EBB_TRY(ebb__cuda_layout_channels_last(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
        } else {
            EBB_TRY(ebb__cuda_layout_plain(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
        }
    }
    kernel->base.scratch_bytes =
        ebb__cuda_sums_bytes(n_rows(kernel), n_channels(kernel)) + n_coef * n_channels(kernel) * sizeof(float);
    return EBB_OK;
}

ebb_status ebb__cuda_make_batch_norm(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->base.inplace = 1u << 0;
    kernel->adds_rows = desc->kind != EBB_OP_BATCH_NORM_INFER;
    switch (desc->kind) {
    case EBB_OP_BATCH_NORM: kernel->run = run_forward; break;
    case EBB_OP_BATCH_NORM_INFER: kernel->run = run_infer; break;
    default:
        kernel->run = run_backward;
        kernel->base.inplace = 1u << 0 | 1u << 1;
        break;
    }
    return set_layouts(device, desc, kernel);
}

/* ---- running statistics ------------------------------------------------------------------------ */

static ebb_status run_stats(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const int32_t n = kernel->attr.size;
    const ebb_cuda_norm_stats_args args = {.mean = bound->at[0],
                                           .variance = bound->at[1],
                                           .running_mean = bound->at[2],
                                           .running_var = bound->at[3],
                                           .momentum = kernel->attr.momentum,
                                           .unbias = n > 1 ? (float)n / (float)(n - 1) : 1.0f};
    EBB_CUDA(ebb__cuda_launch_norm_stats(stream, &args, kernel->n_elements), "batch_norm_stats");
    return EBB_OK;
}

ebb_status ebb__cuda_make_batch_norm_stats(ebb_cuda_device *device, const ebb_kernel_desc *desc,
                                           ebb_cuda_kernel *kernel) {
    kernel->run = run_stats;
    return ebb__kernel_all_plain(&device->base, desc, kernel->layout);
}
