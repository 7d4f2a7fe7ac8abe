/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: each is made by its operator's family, bound to places, and run. The parts that all have in common are here:
 * the check of the description, the layouts, the work figures, the addresses. An operator without a maker is
 * unsupported; the message names it.
 *
 * One allocation holds a kernel and its layouts, one a bound kernel and its addresses.
 */
#include "backend/cuda/cuda_priv.h"
#include "backend/work.h"

static const ebb_cuda_make_fn make[EBB_N_OPS] = {
    [EBB_OP_FEED] = ebb__cuda_make_port,
    [EBB_OP_FETCH] = ebb__cuda_make_port,
    [EBB_OP_CONV] = ebb__cuda_make_conv,
    [EBB_OP_CONV_BWD_DATA] = ebb__cuda_make_conv,
    [EBB_OP_CONV_BWD_WEIGHTS] = ebb__cuda_make_conv,
    [EBB_OP_CONV_BWD_DATA_ADD] = ebb__cuda_make_conv,
    [EBB_OP_LINEAR] = ebb__cuda_make_linear,
    [EBB_OP_LINEAR_BWD_DATA] = ebb__cuda_make_linear,
    [EBB_OP_LINEAR_BWD_WEIGHTS] = ebb__cuda_make_linear,
    [EBB_OP_BATCH_NORM] = ebb__cuda_make_batch_norm,
    [EBB_OP_BATCH_NORM_INFER] = ebb__cuda_make_batch_norm,
    [EBB_OP_BATCH_NORM_BWD] = ebb__cuda_make_batch_norm,
    [EBB_OP_BATCH_NORM_STATS] = ebb__cuda_make_batch_norm_stats,
    [EBB_OP_RELU] = ebb__cuda_make_flat,
    [EBB_OP_RELU_BWD] = ebb__cuda_make_flat,
    [EBB_OP_MAX_POOL] = ebb__cuda_make_pool,
    [EBB_OP_MAX_POOL_BWD] = ebb__cuda_make_pool,
    [EBB_OP_AVG_POOL] = ebb__cuda_make_pool,
    [EBB_OP_AVG_POOL_BWD] = ebb__cuda_make_pool,
    [EBB_OP_LRN] = ebb__cuda_make_lrn,
    [EBB_OP_LRN_BWD] = ebb__cuda_make_lrn,
    [EBB_OP_DROPOUT] = ebb__cuda_make_dropout,
    [EBB_OP_DROPOUT_BWD] = ebb__cuda_make_dropout,
    [EBB_OP_ADD] = ebb__cuda_make_flat,
    [EBB_OP_CONCAT] = ebb__cuda_make_concat,
    [EBB_OP_SLICE] = ebb__cuda_make_slice,
    [EBB_OP_RESHAPE] = ebb__cuda_make_reshape,
    [EBB_OP_SOFTMAX_LOSS] = ebb__cuda_make_loss,
    [EBB_OP_SOFTMAX_LOSS_BWD] = ebb__cuda_make_loss,
    [EBB_OP_UPDATE] = ebb__cuda_make_update,
    [EBB_OP_REORDER] = ebb__cuda_make_reorder,
};

/* ---- what families build with ------------------------------------------------------------------ */

ebb_status ebb__cuda_all_same(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    ebb_layout common = EBB_LAYOUT_ANY;
    for (uint32_t i = 0; i < desc->n_in && common == EBB_LAYOUT_ANY; i++) { common = desc->operand[i].layout; }
    if (common == EBB_LAYOUT_ANY) { return ebb__kernel_all_plain(&device->base, desc, kernel->layout); }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) { kernel->layout[i] = common; }
    return EBB_OK;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static ebb_status fill_in(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel) {
    if (make[desc->kind] == NULL) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cuda: no kernel for %s", ebb__op_name(desc->kind));
    }
    EBB_TRY(ebb__cuda_enter(device));
    EBB_TRY(make[desc->kind](device, desc, kernel));
    if (desc->choice >= kernel->base.n_choices) {
        return ebb_fail(EBB_E_LIMIT, "cuda: %s has no choice %u", ebb__op_name(desc->kind), desc->choice);
    }
    EBB_ASSERT(kernel->run != NULL);
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) { EBB_ASSERT(kernel->layout[i] != EBB_LAYOUT_ANY); }
    return ebb__work_measure(desc, &kernel->base);
}

ebb_status ebb__cuda_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    EBB_TRY(ebb__kernel_check(desc));
    const uint32_t n = ebb__kernel_n_operands(desc);
    ebb_cuda_kernel *kernel = ebb__calloc(device->mem, 1, sizeof *kernel + n * sizeof(ebb_layout));
    if (kernel == NULL) { return EBB_E_NO_MEMORY; }
    kernel->layout = (ebb_layout *)(kernel + 1);
    kernel->base = (ebb_kernel){.device = device, .layout = kernel->layout, .algorithm = "own", .n_choices = 1};
    kernel->mem = device->mem;
    kernel->attr = desc->attr;
    kernel->n_in = desc->n_in;
    kernel->n_out = desc->n_out;
    kernel->n_inout = desc->n_inout;
    kernel->shape = desc->operand[0].shape;
    kernel->n_elements = (uint64_t)ebb__shape_elements(&kernel->shape);
    for (uint32_t i = 0; i < n; i++) { kernel->layout[i] = desc->operand[i].layout; }
    ebb_status st = fill_in(ebb__cuda_of(device), desc, kernel);
    if (st != EBB_OK) {
        ebb__cuda_kernel_destroy(&kernel->base);
        return st;
    }
    *kernel_out = &kernel->base;
    return EBB_OK;
}

void ebb__cuda_kernel_destroy(ebb_kernel *base) {
    if (base == NULL) { return; }
    ebb_cuda_kernel *kernel = (ebb_cuda_kernel *)base;
    if (kernel->extra_destroy != NULL) { kernel->extra_destroy(kernel); }
    ebb__free(kernel->mem, kernel);
}

/* ---- binding and running ----------------------------------------------------------------------- */

static ebb_status fill_bound(ebb_cuda_kernel *kernel, ebb_bound *bound) {
    ebb_cuda_device *device = ebb__cuda_of(kernel->base.device);
    EBB_TRY(ebb__cuda_enter(device));
    if (kernel->reads_state || kernel->adds_rows) {
        EBB_TRY(ebb__cuda_state_hold(device, bound->host_state, &bound->slot));
        if (kernel->reads_state) { bound->state = device->states + bound->slot; }
        if (kernel->adds_rows) { bound->tickets = device->tickets + (size_t)bound->slot * EBB_CUDA_MAX_TICKETS; }
    }
    return kernel->pack_create != NULL ? kernel->pack_create(kernel, bound) : EBB_OK;
}

ebb_status ebb__cuda_bind(ebb_kernel *base, const ebb_binding *binding, ebb_bound **bound_out) {
    ebb_cuda_kernel *kernel = (ebb_cuda_kernel *)base;
    const uint32_t n = kernel->n_in + kernel->n_out + kernel->n_inout;
    ebb_bound *bound = ebb__calloc(kernel->mem, 1, sizeof *bound + n * sizeof(void *));
    if (bound == NULL) { return EBB_E_NO_MEMORY; }
    bound->host_state = binding->state;
    bound->rng_stream = binding->rng_stream;
    for (uint32_t i = 0; i < n; i++) { bound->at[i] = ebb__cuda_address(binding->operand[i]); }
    if (base->scratch_bytes > 0) { bound->scratch = ebb__cuda_address(binding->scratch); }
    ebb_status st = fill_bound(kernel, bound);
    if (st != EBB_OK) {
        ebb__cuda_unbind(base, bound);
        return st;
    }
    *bound_out = bound;
    return EBB_OK;
}

void ebb__cuda_unbind(ebb_kernel *base, ebb_bound *bound) {
    if (bound == NULL) { return; }
    const ebb_cuda_kernel *kernel = (const ebb_cuda_kernel *)base;
    if (kernel->pack_destroy != NULL) { kernel->pack_destroy(kernel, bound); }
    if (bound->state != NULL || bound->tickets != NULL) {
        ebb__cuda_state_release(ebb__cuda_of(base->device), bound->slot);
    }
    ebb__free(kernel->mem, bound);
}

ebb_status ebb__cuda_run(ebb_stream *stream, ebb_kernel *base, ebb_bound *bound) {
    const ebb_cuda_kernel *kernel = (const ebb_cuda_kernel *)base;
    ebb_cuda_device *device = ebb__cuda_of(base->device);
    EBB_TRY(ebb__cuda_begin_command(stream));
    if (bound->state != NULL && !ebb__cuda_capture_keeps_state(device, bound->slot)) {
        EBB_TRY(ebb__cuda_state_send(device, bound->slot, stream->handle));
    }
    return kernel->run(kernel, bound, stream->handle);
}
