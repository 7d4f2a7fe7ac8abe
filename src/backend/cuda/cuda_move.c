/* SPDX-License-Identifier: Apache-2.0
 *
 * Operators that only move elements: concatenation and slices of channels, in the order that the images are in;
 * reorders from one order to another; reshapes, which copy the bytes as they are, since row-major is.
 */
#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_priv.h"

/* Elements that follow one another in (n, c, ...) for one index of what lies outside of the channels. */
static uint64_t run_of(const ebb_cuda_kernel *kernel, uint32_t idx) {
    const ebb_cuda_layout *layout = ebb__cuda_layout(kernel->base.device, kernel->layout[idx]);
    const ebb_shape *s = &layout->shape;
    if (layout->order == EBB_CUDA_CHANNELS_LAST) { return (uint64_t)s->dims[1]; }
    return (uint64_t)(ebb__shape_elements(s) / s->dims[0]);
}

/* Elements of one channel that follow one another. */
static uint64_t inner_of(const ebb_cuda_kernel *kernel, uint32_t idx) {
    const ebb_shape *s = &ebb__cuda_layout(kernel->base.device, kernel->layout[idx])->shape;
    return run_of(kernel, idx) / (uint64_t)(s->n_dims > 1 ? s->dims[1] : 1);
}

/* The first operand that is an image and decided says in which order all are; else row-major. */
static ebb_status follow_inputs(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    ebb_layout given = EBB_LAYOUT_ANY;
    for (uint32_t i = 0; i < desc->n_in && given == EBB_LAYOUT_ANY; i++) { given = desc->operand[i].layout; }
    bool last = given != EBB_LAYOUT_ANY && ebb__cuda_layout(&device->base, given)->order == EBB_CUDA_CHANNELS_LAST;
    if (!last) { return ebb__kernel_all_plain(&device->base, desc, kernel->layout); }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        EBB_TRY(ebb__cuda_layout_channels_last(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    return EBB_OK;
}

/* ---- channels ---------------------------------------------------------------------------------- */

static ebb_status run_concat(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    ebb_cuda_move_args args = {.dst = bound->at[kernel->n_in], .row = run_of(kernel, kernel->n_in)};
    for (uint32_t i = 0; i < kernel->n_in; i++) {
        args.src = bound->at[i];
        args.run = run_of(kernel, i);
        args.n = ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[i]) / sizeof(float);
        EBB_CUDA(ebb__cuda_launch_join(stream, &args), "concat");
        args.first += args.run;
    }
    return EBB_OK;
}

ebb_status ebb__cuda_make_concat(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = run_concat;
    return follow_inputs(device, desc, kernel);
}

static ebb_status run_slice(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const uint32_t dst = kernel->n_in;
    const ebb_cuda_move_args args = {.src = bound->at[0],
                                     .acc = kernel->n_in > 1 ? bound->at[1] : NULL,
                                     .dst = bound->at[dst],
                                     .n = ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[dst]) /
                                          sizeof(float),
                                     .run = run_of(kernel, dst),
                                     .row = run_of(kernel, 0),
                                     .first = (uint64_t)kernel->attr.offset * inner_of(kernel, 0)};
    EBB_CUDA(ebb__cuda_launch_slice(stream, &args), "slice");
    return EBB_OK;
}

ebb_status ebb__cuda_make_slice(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = run_slice;
    kernel->base.inplace = desc->n_in > 1 ? 1u << 1 : 0; /* over what is added */
    return follow_inputs(device, desc, kernel);
}

/* ---- orders ------------------------------------------------------------------------------------ */

static ebb_status run_copy(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    if (bound->at[0] == bound->at[1]) { return EBB_OK; }
    EBB_CUDA(cudaMemcpyAsync(bound->at[1], bound->at[0], ebb__cuda_layout_bytes(kernel->base.device, kernel->layout[0]),
                             cudaMemcpyDeviceToDevice, stream),
             "a copy on the device");
    return EBB_OK;
}

static ebb_status run_transpose(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream) {
    const bool last = ebb__cuda_layout(kernel->base.device, kernel->layout[1])->order == EBB_CUDA_CHANNELS_LAST;
    const ebb_shape *s = &kernel->shape;
    const uint64_t c = (uint64_t)s->dims[1], hw = (uint64_t)(s->dims[2] * s->dims[3]);
    const ebb_cuda_transpose_args args = {
        .src = bound->at[0], .dst = bound->at[1], .n_rows = last ? c : hw, .n_columns = last ? hw : c};
    EBB_CUDA(ebb__cuda_launch_transpose(stream, &args, kernel->n_elements), "reorder");
    return EBB_OK;
}

ebb_status ebb__cuda_make_reshape(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    kernel->run = run_copy;
    kernel->base.inplace = 1u << 0;
    return ebb__kernel_all_plain(&device->base, desc, kernel->layout);
}

/* Into dst's layout, from whatever src is in; what is not decided is row-major. Elements have four bytes: labels and
 * images alike. */
ebb_status ebb__cuda_make_reorder(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    for (uint32_t i = 0; i < 2; i++) {
        const ebb_operand *o = &desc->operand[i];
        if (o->layout != EBB_LAYOUT_ANY) { continue; }
        EBB_TRY(ebb__cuda_layout_plain(&device->base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    const bool same = kernel->layout[0] == kernel->layout[1];
    if (!same && ebb_dtype_bytes(desc->operand[0].dtype) != sizeof(float)) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: reorder of elements that are not of four bytes");
    }
    kernel->run = same ? run_copy : run_transpose;
    kernel->base.inplace = same ? 1u << 0 : 0;
    return EBB_OK;
}
