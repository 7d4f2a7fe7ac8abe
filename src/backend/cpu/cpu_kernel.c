/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels: made by their operator's family, bound to places, run. What all have in common is here: the check
 * of the description, the layouts, the work figures; for those of the library the argument array.
 *
 * One allocation holds a kernel and its layouts, one a bound kernel with its addresses and arguments; oneDNN's
 * objects are beside them, made before the first iteration.
 */
#include "backend/cpu/cpu_priv.h"
#include "backend/host_memory.h"
#include "backend/work.h"

static const ebb_cpu_make_fn make[EBB_N_OPS] = {
    [EBB_OP_FEED] = ebb__cpu_make_port,
    [EBB_OP_FETCH] = ebb__cpu_make_port,
    [EBB_OP_CONV] = ebb__cpu_make_conv,
    [EBB_OP_CONV_BWD_DATA] = ebb__cpu_make_conv,
    [EBB_OP_CONV_BWD_WEIGHTS] = ebb__cpu_make_conv,
    [EBB_OP_LINEAR] = ebb__cpu_make_linear,
    [EBB_OP_LINEAR_BWD_DATA] = ebb__cpu_make_linear,
    [EBB_OP_LINEAR_BWD_WEIGHTS] = ebb__cpu_make_linear,
    [EBB_OP_BATCH_NORM] = ebb__cpu_make_batch_norm,
    [EBB_OP_BATCH_NORM_INFER] = ebb__cpu_make_batch_norm_infer,
    [EBB_OP_BATCH_NORM_BWD] = ebb__cpu_make_batch_norm_bwd,
    [EBB_OP_BATCH_NORM_STATS] = ebb__cpu_make_batch_norm_stats,
    [EBB_OP_RELU] = ebb__cpu_make_flat,
    [EBB_OP_RELU_BWD] = ebb__cpu_make_flat,
    [EBB_OP_MAX_POOL] = ebb__cpu_make_pool,
    [EBB_OP_MAX_POOL_BWD] = ebb__cpu_make_pool_bwd,
    [EBB_OP_AVG_POOL] = ebb__cpu_make_pool,
    [EBB_OP_AVG_POOL_BWD] = ebb__cpu_make_pool_bwd,
    [EBB_OP_LRN] = ebb__cpu_make_lrn,
    [EBB_OP_LRN_BWD] = ebb__cpu_make_lrn_bwd,
    [EBB_OP_DROPOUT] = ebb__cpu_make_dropout,
    [EBB_OP_DROPOUT_BWD] = ebb__cpu_make_dropout,
    [EBB_OP_ADD] = ebb__cpu_make_flat,
    [EBB_OP_CONCAT] = ebb__cpu_make_concat,
    [EBB_OP_SLICE] = ebb__cpu_make_slice,
    [EBB_OP_RESHAPE] = ebb__cpu_make_reshape,
    [EBB_OP_SOFTMAX_LOSS] = ebb__cpu_make_loss,
    [EBB_OP_SOFTMAX_LOSS_BWD] = ebb__cpu_make_loss,
    [EBB_OP_UPDATE] = ebb__cpu_make_update,
    [EBB_OP_REORDER] = ebb__cpu_make_reorder,
};

/* ---- what families build with ------------------------------------------------------------------ */

static ebb_status run_primitive(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    EBB_CPU_DNNL(
        dnnl_primitive_execute(kernel->primitive, ebb__cpu_of(kernel)->stream, (int)bound->n_args, bound->args),
        kernel->base.algorithm);
    return EBB_OK;
}

ebb_status ebb__cpu_add_arg(ebb_cpu_kernel *kernel, int arg, uint32_t operand, const_dnnl_memory_desc_t md) {
    EBB_ASSERT(kernel->n_args < EBB_CPU_MAX_ARGS && md != NULL);
    ebb_cpu_arg *a = &kernel->args[kernel->n_args];
    EBB_CPU_DNNL(dnnl_memory_desc_clone(&a->md, md), "an argument");
    a->arg = arg;
    a->operand = operand;
    kernel->n_args++;
    return EBB_OK;
}

static ebb_status make_primitive(ebb_cpu_kernel *kernel, dnnl_primitive_desc_t pd) {
    const_dnnl_memory_desc_t scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    EBB_CPU_DNNL(dnnl_primitive_create(&kernel->primitive, pd), "a primitive");
    if (scratch != NULL && dnnl_memory_desc_get_size(scratch) > 0) {
        EBB_CPU_DNNL(dnnl_memory_desc_clone(&kernel->scratch_md, scratch), "scratch");
        kernel->base.scratch_bytes = dnnl_memory_desc_get_size(scratch);
    }
    const_dnnl_primitive_desc_t made = NULL; /* the primitive's own: its name lives as long */
    const char *name = NULL;
    EBB_CPU_DNNL(dnnl_primitive_get_primitive_desc(kernel->primitive, &made), "a primitive");
    EBB_CPU_DNNL(dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, (void *)&name), "a primitive");
    kernel->base.algorithm = name;
    kernel->run = run_primitive;
    return EBB_OK;
}

ebb_status ebb__cpu_set_primitive(ebb_cpu_kernel *kernel, dnnl_primitive_desc_t pd, const ebb_cpu_wire *wires,
                                  uint32_t n_wires) {
    EBB_ASSERT(kernel->primitive == NULL);
    ebb_status st = EBB_OK;
    for (uint32_t i = 0; i < n_wires && st == EBB_OK; i++) {
        const ebb_cpu_wire *w = &wires[i];
        const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, w->query, w->index);
        st = ebb__cpu_add_arg(kernel, w->arg, w->operand, md);
        if (st == EBB_OK) { st = ebb__cpu_intern(ebb__cpu_of(kernel), md, &kernel->layout[w->operand]); }
    }
    if (st == EBB_OK) { st = make_primitive(kernel, pd); }
    (void)dnnl_primitive_desc_destroy(pd);
    return st;
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static ebb_status fill_in(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    if (make[desc->kind] == NULL) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cpu: no kernel for %s", ebb__op_name(desc->kind));
    }
    ebb_cpu_before before = ebb__cpu_enter(device); /* oneDNN divides the work when a primitive is made */
    ebb_status st = make[desc->kind](device, desc, kernel);
    ebb__cpu_leave(&before);
    EBB_TRY(st);
#if EBB_DEBUG >= 1
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) { EBB_ASSERT(kernel->layout[i] != EBB_LAYOUT_ANY); }
#endif
    return ebb__work_measure(desc, &kernel->base);
}

ebb_status ebb__cpu_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    EBB_TRY(ebb__kernel_check(desc));
    if (desc->choice != 0) {
        return ebb_fail(EBB_E_LIMIT, "cpu: %s has no choice %u", ebb__op_name(desc->kind), desc->choice);
    }
    const uint32_t n = ebb__kernel_n_operands(desc);
    ebb_cpu_kernel *kernel = ebb__calloc(device->mem, 1, sizeof *kernel + n * sizeof(ebb_layout));
    if (kernel == NULL) { return EBB_E_NO_MEMORY; }
    kernel->layout = (ebb_layout *)(kernel + 1);
    kernel->base = (ebb_kernel){.device = device, .layout = kernel->layout, .algorithm = "own", .n_choices = 1};
    kernel->mem = device->mem;
    kernel->attr = desc->attr;
    kernel->n_in = desc->n_in;
    kernel->n_out = desc->n_out;
    kernel->n_inout = desc->n_inout;
    kernel->shape = desc->operand[0].shape;
    for (uint32_t i = 0; i < n; i++) { kernel->layout[i] = desc->operand[i].layout; }
    ebb_status st = fill_in((ebb_cpu_device *)device, desc, kernel);
    if (st != EBB_OK) {
        ebb__cpu_kernel_destroy(&kernel->base);
        return st;
    }
    *kernel_out = &kernel->base;
    return EBB_OK;
}

void ebb__cpu_kernel_destroy(ebb_kernel *base) {
    if (base == NULL) { return; }
    ebb_cpu_kernel *kernel = (ebb_cpu_kernel *)base;
    for (uint32_t i = 0; i < kernel->n_args; i++) { (void)dnnl_memory_desc_destroy(kernel->args[i].md); }
    if (kernel->scratch_md != NULL) { (void)dnnl_memory_desc_destroy(kernel->scratch_md); }
    if (kernel->primitive != NULL) { (void)dnnl_primitive_destroy(kernel->primitive); }
    ebb__free(kernel->mem, kernel);
}

/* ---- binding and running ----------------------------------------------------------------------- */

static ebb_status add_memory(const ebb_cpu_kernel *kernel, ebb_bound *bound, int arg, const_dnnl_memory_desc_t md,
                             void *at) {
    dnnl_exec_arg_t *a = &bound->args[bound->n_args];
    EBB_CPU_DNNL(dnnl_memory_create(&a->memory, md, ebb__cpu_of(kernel)->engine, at), "an argument");
    a->arg = arg;
    bound->n_args++;
    return EBB_OK;
}

static ebb_status bind_args(const ebb_cpu_kernel *kernel, ebb_bound *bound) {
    for (uint32_t i = 0; i < kernel->n_args; i++) {
        const ebb_cpu_arg *a = &kernel->args[i];
        EBB_TRY(add_memory(kernel, bound, a->arg, a->md, bound->at[a->operand]));
    }
    if (kernel->scratch_md == NULL) { return EBB_OK; }
    return add_memory(kernel, bound, DNNL_ARG_SCRATCHPAD, kernel->scratch_md, bound->scratch);
}

ebb_status ebb__cpu_bind(ebb_kernel *base, const ebb_binding *binding, ebb_bound **bound_out) {
    const ebb_cpu_kernel *kernel = (const ebb_cpu_kernel *)base;
    const uint32_t n = kernel->n_in + kernel->n_out + kernel->n_inout;
    const size_t n_bytes = sizeof(ebb_bound) + (kernel->n_args + 1) * sizeof(dnnl_exec_arg_t) + n * sizeof(void *);
    ebb_bound *bound = ebb__calloc(kernel->mem, 1, n_bytes);
    if (bound == NULL) { return EBB_E_NO_MEMORY; }
    bound->state = binding->state;
    bound->rng_stream = binding->rng_stream;
    bound->args = (dnnl_exec_arg_t *)(bound + 1);
    bound->at = (void **)(bound->args + kernel->n_args + 1);
    for (uint32_t i = 0; i < n; i++) { bound->at[i] = ebb__host_address(binding->operand[i]); }
    if (base->scratch_bytes > 0) { bound->scratch = ebb__host_address(binding->scratch); }
    ebb_status st = bind_args(kernel, bound);
    if (st != EBB_OK) {
        ebb__cpu_unbind(base, bound);
        return st;
    }
    *bound_out = bound;
    return EBB_OK;
}

void ebb__cpu_unbind(ebb_kernel *base, ebb_bound *bound) {
    if (bound == NULL) { return; }
    for (uint32_t i = 0; i < bound->n_args; i++) { (void)dnnl_memory_destroy(bound->args[i].memory); }
    ebb__free(((const ebb_cpu_kernel *)base)->mem, bound);
}

ebb_status ebb__cpu_run(ebb_kernel *base, ebb_bound *bound) {
    const ebb_cpu_kernel *kernel = (const ebb_cpu_kernel *)base;
    ebb_cpu_before before = ebb__cpu_enter(ebb__cpu_of(kernel));
    ebb_status st = kernel->run(kernel, bound);
    ebb__cpu_leave(&before);
    return st;
}
