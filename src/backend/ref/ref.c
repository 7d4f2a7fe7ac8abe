/* SPDX-License-Identifier: Apache-2.0
 *
 * ref's table: a row-major device on host memory whose kernels are plain functions.
 */
#include "backend/ref/ref.h"
#include "backend/host_memory.h"
#include "backend/plain.h"

static const ebb_ref_fn functions[EBB_N_OPS] = {
    [EBB_OP_FEED] = ebb__ref_feed,
    [EBB_OP_FETCH] = ebb__ref_fetch,
    [EBB_OP_CONV] = ebb__ref_conv,
    [EBB_OP_CONV_BWD_DATA] = ebb__ref_conv_bwd_data,
    [EBB_OP_CONV_BWD_WEIGHTS] = ebb__ref_conv_bwd_weights,
    [EBB_OP_CONV_BWD_DATA_ADD] = ebb__ref_conv_bwd_data,
    [EBB_OP_LINEAR] = ebb__ref_linear,
    [EBB_OP_LINEAR_BWD_DATA] = ebb__ref_linear_bwd_data,
    [EBB_OP_LINEAR_BWD_WEIGHTS] = ebb__ref_linear_bwd_weights,
    [EBB_OP_BATCH_NORM] = ebb__ref_batch_norm,
    [EBB_OP_BATCH_NORM_INFER] = ebb__ref_batch_norm_infer,
    [EBB_OP_BATCH_NORM_BWD] = ebb__ref_batch_norm_bwd,
    [EBB_OP_BATCH_NORM_STATS] = ebb__ref_batch_norm_stats,
    [EBB_OP_RELU] = ebb__ref_relu,
    [EBB_OP_RELU_BWD] = ebb__ref_relu_bwd,
    [EBB_OP_MAX_POOL] = ebb__ref_max_pool,
    [EBB_OP_MAX_POOL_BWD] = ebb__ref_max_pool_bwd,
    [EBB_OP_AVG_POOL] = ebb__ref_avg_pool,
    [EBB_OP_AVG_POOL_BWD] = ebb__ref_avg_pool_bwd,
    [EBB_OP_LRN] = ebb__ref_lrn,
    [EBB_OP_LRN_BWD] = ebb__ref_lrn_bwd,
    [EBB_OP_DROPOUT] = ebb__ref_dropout,
    [EBB_OP_DROPOUT_BWD] = ebb__ref_dropout,
    [EBB_OP_ADD] = ebb__ref_add,
    [EBB_OP_CONCAT] = ebb__ref_concat,
    [EBB_OP_SLICE] = ebb__ref_slice,
    [EBB_OP_RESHAPE] = ebb__ref_same_elements,
    [EBB_OP_SOFTMAX_LOSS] = ebb__ref_softmax_loss,
    [EBB_OP_SOFTMAX_LOSS_BWD] = ebb__ref_softmax_loss_bwd,
    [EBB_OP_UPDATE] = ebb__ref_update,
    [EBB_OP_REORDER] = ebb__ref_same_elements,
};

ebb_ref_fn ebb__ref_function(ebb_op_kind kind) {
    return functions[kind];
}

struct ebb_bound {
    ebb_ref_call call;
    void *operand[];
};

/* A batch-norm's mask: a byte an element. A pool's indices: the place within the window, 32 bits. LRN's
 * workspace: the sum that is raised to -beta, a float. */
static uint64_t opaque_bytes(const ebb_kernel_desc *desc, uint32_t out_idx) {
    const uint64_t n = (uint64_t)ebb__shape_elements(&ebb__kernel_out(desc, out_idx)->shape);
    return desc->kind == EBB_OP_BATCH_NORM ? n : 4 * n;
}

static ebb_status run_kernel(ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    return functions[bound->call.desc->kind](&bound->call);
}

static ebb_status bind_kernel(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out) {
    const ebb_kernel_desc *desc = &((const ebb_plain_kernel *)kernel)->desc;
    const uint32_t n = ebb__kernel_n_operands(desc);
    ebb_bound *bound = ebb__alloc(kernel->device->mem, 1, sizeof *bound + n * sizeof(void *));
    if (bound == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) { bound->operand[i] = ebb__host_address(binding->operand[i]); }
    bound->call = (ebb_ref_call){desc, bound->operand, binding->state, binding->rng_stream};
    *bound_out = bound;
    return EBB_OK;
}

static ebb_status open_device(const ebb_device_options *options, ebb_device **device_out) {
    const ebb_plain_device kind = {.host = {.base = {.ops = &ebb__backend_ref}, .run = run_kernel},
                                   .opaque_bytes = opaque_bytes};
    return ebb__plain_open(options, &kind, device_out);
}

static ebb_status get_info(ebb_device *device, ebb_device_info *info_out) {
    (void)device;
    ebb__host_describe(info_out);
    info_out->n_threads = 1;
    return EBB_OK;
}

const ebb_backend_ops ebb__backend_ref = {
    .abi = EBB_BACKEND_ABI,
    .name = "ref",
    .about = "plain C, one thread, for checking the others",
    .alignment_bytes = EBB_HOST_ALIGNMENT,
    .host_visible = true,
    .has_data = true,
    .open = open_device,
    .close = ebb__plain_close,
    .info = get_info,
    .arena_create = ebb__host_arena_create,
    .arena_destroy = ebb__host_arena_destroy,
    .arena_measure = ebb__host_arena_measure,
    .host_alloc = ebb__host_alloc,
    .host_free = ebb__host_free,
    .host_address = ebb__host_address,
    .layout_plain = ebb__plain_layout_plain,
    .layout_bytes = ebb__plain_layout_bytes,
    .layout_name = ebb__plain_layout_name,
    .layout_pack = ebb__plain_layout_copy,
    .layout_unpack = ebb__plain_layout_copy,
    .kernel_create = ebb__plain_kernel_create,
    .kernel_destroy = ebb__plain_kernel_destroy,
    .bind = bind_kernel,
    .unbind = ebb__plain_unbind,
    .stream_create = ebb__host_stream_create,
    .stream_destroy = ebb__host_stream_destroy,
    .event_create = ebb__host_event_create,
    .event_destroy = ebb__host_event_destroy,
    .run = ebb__host_run,
    .copy = ebb__host_copy,
    .call = ebb__host_call,
    .event_record = ebb__host_event_record,
    .event_wait = ebb__host_event_wait,
    .event_sync = ebb__host_event_sync,
    .event_time_ns = ebb__host_event_time_ns,
    .stream_sync = ebb__host_stream_sync,
    .stream_waited_ns = ebb__host_stream_waited_ns,
};
