/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and local response normalisation, over images with channels last. Own kernels: they wait for memory alone, and
 * backward by gathering is deterministic, which the library's is not everywhere.
 */
#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_priv.h"

/* Float images channels last; opaque operands by their bytes. */
static ebb_status image_layouts(ebb_cuda_device *device, const ebb_kernel_desc *desc, uint64_t opaque_bytes,
                                ebb_cuda_kernel *kernel) {
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        EBB_TRY(o->opaque ? ebb__cuda_layout_of_bytes(&device->base, opaque_bytes, &kernel->layout[i])
                          : ebb__cuda_layout_channels_last(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    return EBB_OK;
}

/* ---- pools ------------------------------------------------------------------------------------- */

/* A place within the window. */
static int32_t index_bytes(const ebb_op_attr *a) {
    return (int64_t)a->kernel[0] * a->kernel[1] <= 256 ? 1 : 4;
}

static bool is_backward(ebb_op_kind kind) {
    return kind == EBB_OP_MAX_POOL_BWD || kind == EBB_OP_AVG_POOL_BWD;
}

static ebb_cuda_pool_args pool_args(const ebb_cuda_kernel *kernel, const ebb_bound *bound, bool backward) {
    const ebb_device *device = kernel->base.device;
    const ebb_shape *from = &kernel->shape, *to = &ebb__cuda_layout(device, kernel->layout[kernel->n_in])->shape;
    const ebb_shape *src = backward ? to : from, *dst = backward ? from : to;
    const ebb_op_attr *a = &kernel->attr;
    return (ebb_cuda_pool_args){.from = bound->at[0],
                                .to = bound->at[kernel->n_in],
                                .c = src->dims[1],
                                .src_h = (int32_t)src->dims[2],
                                .src_w = (int32_t)src->dims[3],
                                .dst_h = (int32_t)dst->dims[2],
                                .dst_w = (int32_t)dst->dims[3],
                                .kernel = {a->kernel[0], a->kernel[1]},
                                .stride = {a->stride[0], a->stride[1]},
                                .pad = {a->pad_begin[0], a->pad_begin[1]},
                                .index_bytes = index_bytes(a),
                                .count_padding = a->count_padding != 0};
}

static uint64_t n_out_elements(const ebb_cuda_kernel *kernel) {
    return ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[kernel->n_in]) / sizeof(float);
}

static ebb_status run_max_pool(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_pool_args args = pool_args(kernel, bound, false);
    args.indices = kernel->n_out > 1 ? bound->at[2] : NULL;
    EBB_CUDA(ebb__cuda_launch_max_pool(stream, &args, n_out_elements(kernel)), "max_pool");
    return EBB_OK;
}

static ebb_status run_max_pool_bwd(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_pool_args args = pool_args(kernel, bound, true);
    args.indices = bound->at[1];
    EBB_CUDA(ebb__cuda_launch_max_pool_bwd(stream, &args, n_out_elements(kernel)), "max_pool_bwd");
    return EBB_OK;
}

static ebb_status run_avg_pool(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_pool_args args = pool_args(kernel, bound, false);
    EBB_CUDA(ebb__cuda_launch_avg_pool(stream, &args, n_out_elements(kernel)), "avg_pool");
    return EBB_OK;
}

static ebb_status run_avg_pool_bwd(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_pool_args args = pool_args(kernel, bound, true);
    EBB_CUDA(ebb__cuda_launch_avg_pool_bwd(stream, &args, n_out_elements(kernel)), "avg_pool_bwd");
    return EBB_OK;
}

/* The figures of a window are 32 bits on the device, and so is what is made of them. */
static ebb_status check_sizes(const ebb_kernel_desc *desc) {
    const int64_t limit = INT32_MAX / 4;
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_shape *s = &desc->operand[i].shape;
        if (s->n_dims != 4 || s->dims[2] > limit || s->dims[3] > limit) {
            return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s of images that are no images or too large",
                            ebb__op_name(desc->kind));
        }
    }
    if ((int64_t)desc->attr.kernel[0] * desc->attr.kernel[1] > limit) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s with a window that is too large", ebb__op_name(desc->kind));
    }
    return EBB_OK;
}

ebb_status ebb__cuda_make_pool(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    switch (desc->kind) {
    case EBB_OP_MAX_POOL: kernel->run = run_max_pool; break;
    case EBB_OP_MAX_POOL_BWD: kernel->run = run_max_pool_bwd; break;
    case EBB_OP_AVG_POOL: kernel->run = run_avg_pool; break;
    default: kernel->run = run_avg_pool_bwd; break;
    }
    const ebb_operand *dst = is_backward(desc->kind) ? &desc->operand[0] : ebb__kernel_out(desc, 0);
    const uint64_t n = (uint64_t)ebb__shape_elements(&dst->shape);
    EBB_TRY(check_sizes(desc));
    return image_layouts(device, desc, n * (uint64_t)index_bytes(&desc->attr), kernel);
}

/* ---- local response normalisation -------------------------------------------------------------- */

static ebb_cuda_lrn_args lrn_args(const ebb_cuda_kernel *kernel, const ebb_bound *bound) {
    const ebb_op_attr *a = &kernel->attr;
    return (ebb_cuda_lrn_args){.src = bound->at[0],
                               .c = kernel->shape.dims[1],
                               .size = a->size,
                               .alpha = a->alpha / (float)a->size,
                               .beta = a->beta,
                               .k = a->k};
}

static ebb_status run_lrn(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_lrn_args args = lrn_args(kernel, bound);
    args.to = bound->at[1];
    args.base = kernel->n_out > 1 ? bound->at[2] : NULL;
    EBB_CUDA(ebb__cuda_launch_lrn(stream, &args, kernel->n_elements), "lrn");
    return EBB_OK;
}

static ebb_status run_lrn_bwd(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_lrn_args args = lrn_args(kernel, bound);
    args.diff_dst = bound->at[1];
    args.base = bound->at[2];
    args.to = bound->at[3];
    EBB_CUDA(ebb__cuda_launch_lrn_bwd(stream, &args, kernel->n_elements), "lrn_bwd");
    return EBB_OK;
}

ebb_status ebb__cuda_make_lrn(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = desc->kind == EBB_OP_LRN ? run_lrn : run_lrn_bwd;
    if (desc->operand[0].shape.n_dims != 4) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: %s of what is not an image", ebb__op_name(desc->kind));
    }
    return image_layouts(device, desc, kernel->n_elements * sizeof(float), kernel);
}
