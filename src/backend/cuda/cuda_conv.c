/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, forward and both backward: cuDNN's algorithm by choice (cuda_conv_algorithms.h), as a rule with bias
 * and ReLU, else after it an own kernel for these. The bias's gradient is an own kernel's, whose sums lie in the
 * workspace when the library is done with it. Where the library has no algorithm that is allowed, an own kernel does
 * the convolution slowly.
 */
#include "backend/cuda/cuda_conv_algorithms.h"
#include "backend/cuda/cuda_sums.h"

typedef struct convolution {
    ebb_cuda_conv_key key;
    cudnnHandle_t handle;
    const ebb_cuda_conv *conv; /* NULL: by the own kernel, and nothing below is set */
    ebb_cuda_conv_algorithm chosen;
} convolution;

static void destroy_extra(const ebb_cuda_kernel *kernel) {
    ebb__free(kernel->mem, kernel->extra); /* what it points to is the device's */
}

/* ---- binding and running ----------------------------------------------------------------------- */

/* Which operands they are. */
typedef struct operands {
    uint32_t src, weights, dst;
} operands;

static operands operands_of(uint32_t direction, uint32_t n_in) {
    switch (direction) {
    case EBB_OP_CONV: return (operands){0, 1, n_in};
    case EBB_OP_CONV_BWD_DATA:
    case EBB_OP_CONV_BWD_DATA_ADD: return (operands){2, 1, 0};
    default: return (operands){0, 2, 1};
    }
}

static ebb_cuda_conv_places places_of(const ebb_cuda_kernel *kernel, const ebb_bound *bound) {
    const convolution *p = kernel->extra;
    const operands is = operands_of(p->key.direction, kernel->n_in);
    return (ebb_cuda_conv_places){.src = bound->at[is.src],
                                  .weights = bound->at[is.weights],
                                  .dst = bound->at[is.dst],
                                  .bias = p->key.bias != 0 ? bound->at[2] : NULL,
                                  .workspace = p->chosen.workspace_bytes > 0 ? bound->scratch : NULL};
}

static ebb_status create_pack(const ebb_cuda_kernel *kernel, ebb_bound *bound) {
    const convolution *p = kernel->extra;
    const ebb_cuda_conv_places at = places_of(kernel, bound);
    return p->conv != NULL ? ebb__cuda_conv_pack(p->conv, &at, &bound->pack) : EBB_OK;
}

static void destroy_pack(const ebb_cuda_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    if (bound->pack != NULL) { (void)cudnnBackendDestroyDescriptor(bound->pack); }
}

static uint64_t n_elements(const int64_t dims[4]) {
    return (uint64_t)(dims[0] * dims[1] * dims[2] * dims[3]);
}

static ebb_status convolve_slowly(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const ebb_cuda_conv_key *k = &((const convolution *)kernel->extra)->key;
    const ebb_cuda_conv_places at = places_of(kernel, bound);
    const int64_t n_groups = k->src[1] / k->weights[1];
    ebb_cuda_conv_args args = {.src = at.src,
                               .weights = at.weights,
                               .dst = at.dst,
                               .n_images = k->src[0],
                               .src_c = (int32_t)k->src[1],
                               .dst_c = (int32_t)k->dst[1],
                               .group_c = (int32_t)k->weights[1],
                               .group_dst_c = (int32_t)(k->dst[1] / n_groups)};
    for (int i = 0; i < 2; i++) {
        args.src_size[i] = (int32_t)k->src[2 + i];
        args.dst_size[i] = (int32_t)k->dst[2 + i];
        args.kernel[i] = (int32_t)k->weights[2 + i];
        args.stride[i] = (int32_t)k->stride[i];
        args.pad[i] = (int32_t)k->pad_begin[i];
        args.dilation[i] = (int32_t)k->dilation[i];
    }
    if (k->direction == EBB_OP_CONV) {
        args.to = at.dst;
        EBB_CUDA(ebb__cuda_launch_conv(stream, &args, n_elements(k->dst)), "conv");
    } else if (k->direction != EBB_OP_CONV_BWD_WEIGHTS) {
        args.to = at.src;
        args.adds = k->direction == EBB_OP_CONV_BWD_DATA_ADD;
        EBB_CUDA(ebb__cuda_launch_conv_bwd_data(stream, &args, n_elements(k->src)), "conv_bwd_data");
    } else {
        args.to = at.weights;
        EBB_CUDA(ebb__cuda_launch_conv_bwd_weights(stream, &args, n_elements(k->weights)), "conv_bwd_weights");
    }
    return EBB_OK;
}

static ebb_status convolve(const ebb_cuda_kernel *kernel, const ebb_bound *bound, const char *op, cudaStream_t stream) {
    const convolution *p = kernel->extra;
    if (p->conv == NULL) { return convolve_slowly(kernel, bound, stream); }
    EBB_CUDA_DNN(op, "the stream", cudnnSetStream, p->handle, stream);
    EBB_CUDA_DNN(op, "an algorithm", cudnnBackendExecute, p->handle, p->chosen.execution, bound->pack);
    return EBB_OK;
}

static ebb_status run_conv(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const convolution *p = kernel->extra;
    const ebb_cuda_bias_args args = {.x = bound->at[kernel->n_in],
                                     .bias = p->key.bias != 0 ? bound->at[2] : NULL,
                                     .n = n_elements(p->key.dst),
                                     .c = (uint64_t)p->key.dst[1],
                                     .relu = p->key.relu != 0};
    EBB_TRY(convolve(kernel, bound, "conv", stream));
    if ((args.bias == NULL && !args.relu) || (p->conv != NULL && p->conv->has_tail)) { return EBB_OK; }
    EBB_CUDA(ebb__cuda_launch_bias(stream, &args), "conv");
    return EBB_OK;
}

static ebb_status run_bwd_data(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    return convolve(kernel, bound, "conv_bwd_data", stream);
}

static ebb_status run_bwd_weights(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const int64_t *dst = ((const convolution *)kernel->extra)->key.dst;
    EBB_TRY(convolve(kernel, bound, "conv_bwd_weights", stream));
    if (kernel->n_out < 2) { return EBB_OK; }
    return ebb__cuda_sum_rows(stream, bound->at[1], (uint64_t)(dst[0] * dst[2] * dst[3]), (uint64_t)dst[1],
                              bound->scratch, bound->tickets, bound->at[3]);
}

/* ---- making them ------------------------------------------------------------------------------- */

static ebb_cuda_conv_key key_of(const ebb_kernel_desc *desc) {
    const operands is = operands_of(desc->kind, desc->n_in);
    ebb_cuda_conv_key key = {.direction = desc->kind};
    memcpy(key.src, desc->operand[is.src].shape.dims, sizeof key.src);
    memcpy(key.weights, desc->operand[is.weights].shape.dims, sizeof key.weights);
    memcpy(key.dst, desc->operand[is.dst].shape.dims, sizeof key.dst);
    for (int i = 0; i < 2; i++) {
        key.stride[i] = desc->attr.stride[i];
        key.pad_begin[i] = desc->attr.pad_begin[i];
        key.pad_end[i] = desc->attr.pad_end[i];
        key.dilation[i] = desc->attr.dilation[i];
    }
    key.bias = desc->kind == EBB_OP_CONV && desc->n_in > 2;
    key.relu = desc->kind == EBB_OP_CONV && desc->attr.relu != 0;
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

/* Sizes are 32 bits in the own kernel. */
static bool is_small(const ebb_cuda_conv_key *k) {
    for (int i = 1; i < 4; i++) {
        if (k->src[i] > INT32_MAX || k->dst[i] > INT32_MAX || k->weights[i] > INT32_MAX) { return false; }
    }
    return true;
}

static ebb_status choose_algorithm(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    convolution *p = kernel->extra;
    ebb_status st = ebb__cuda_conv_find(device, &p->key, &p->conv);
    if (st == EBB_E_UNSUPPORTED && is_small(&p->key)) {
        kernel->base.algorithm = "own";
        if (!device->warned_own) { ebb__log(EBB_LOG_WARN, "%s; it is computed without, slowly", ebb_last_error()); }
        device->warned_own = true;
        return EBB_OK;
    }
    EBB_TRY(st);
    kernel->base.n_choices = p->conv->n_algorithms;
    if (desc->choice >= p->conv->n_algorithms) { return EBB_OK; } /* refused by who called */
    p->handle = device->libraries->dnn;
    p->chosen = p->conv->algorithms[desc->choice];
    kernel->base.algorithm = p->chosen.name;
    kernel->base.scratch_bytes = p->chosen.workspace_bytes;
    return EBB_OK;
}

ebb_status ebb__cuda_make_conv(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->extra = ebb__calloc(kernel->mem, 1, sizeof(convolution));
    if (kernel->extra == NULL) { return EBB_E_NO_MEMORY; }
    kernel->extra_destroy = destroy_extra;
    kernel->pack_create = create_pack;
    kernel->pack_destroy = destroy_pack;
    switch (desc->kind) {
    case EBB_OP_CONV: kernel->run = run_conv; break;
    case EBB_OP_CONV_BWD_DATA:
    case EBB_OP_CONV_BWD_DATA_ADD: kernel->run = run_bwd_data; break;
    default: kernel->run = run_bwd_weights; break;
    }
    convolution *p = kernel->extra;
    p->key = key_of(desc);
    EBB_TRY(set_layouts(device, desc, kernel));
    EBB_TRY(choose_algorithm(device, desc, kernel));
    if (desc->kind == EBB_OP_CONV_BWD_WEIGHTS && desc->n_out > 1) {
        const uint64_t n_rows = (uint64_t)(p->key.dst[0] * p->key.dst[2] * p->key.dst[3]);
        const uint64_t n_bytes = ebb__cuda_sums_bytes(n_rows, (uint64_t)p->key.dst[1]);
        kernel->adds_rows = true;
        kernel->base.scratch_bytes = ebb_max_u64(kernel->base.scratch_bytes, n_bytes);
    }
    return EBB_OK;
}

/* Where the library adds. An own kernel would, too, but slowly. */
ebb_status ebb__cuda_merges(ebb_device *device, const ebb_kernel_desc *desc, bool *merges_out) {
    const ebb_cuda_conv_key key = key_of(desc);
    const ebb_cuda_conv *conv = NULL;
    EBB_TRY(ebb__kernel_check(desc));
    EBB_TRY(ebb__cuda_enter(ebb__cuda_of(device)));
    const ebb_status st = ebb__cuda_conv_find(ebb__cuda_of(device), &key, &conv);
    if (st != EBB_OK && st != EBB_E_UNSUPPORTED) { return st; }
    *merges_out = st == EBB_OK;
    return EBB_OK;
}
