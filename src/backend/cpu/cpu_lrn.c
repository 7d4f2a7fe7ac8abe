/* SPDX-License-Identifier: Apache-2.0
 *
 * Local response normalisation across channels, forward and backward, in the layout that the source is in; over an
 * even number of channels by ref's kernel.
 */
#include "backend/cpu/cpu_priv.h"
#include "backend/ref/ref.h"

static dnnl_status_t describe_forward(const ebb_cpu_device *device, const ebb_op_attr *a, bool training,
                                      const_dnnl_memory_desc_t md, dnnl_primitive_desc_t *pd_out) {
    return dnnl_lrn_forward_primitive_desc_create(
        pd_out, device->engine, training ? dnnl_forward_training : dnnl_forward_inference, dnnl_lrn_across_channels, md,
        md, a->size, a->alpha, a->beta, a->k, device->attr);
}

/* The layout of the source, which everything else follows. */
static ebb_status image_of(ebb_cpu_device *device, const ebb_operand *src, const_dnnl_memory_desc_t *md_out) {
    ebb_layout layout = src->layout;
    bool keep = layout != EBB_LAYOUT_ANY && ebb__cpu_layout(device, layout)->plain;
    if (!keep) { EBB_TRY(ebb__cpu_rows_layout(device, src, &layout)); }
    *md_out = ebb__cpu_layout(device, layout)->md;
    return EBB_OK;
}

/* ---- even windows ------------------------------------------------------------------------------ */

/* The library's kernels do not agree on which side of an even window is the longer. Nothing needs such a window to be
 * fast, so ref computes it, row-major. */
static ebb_status run_by_ref(const ebb_cpu_kernel *kernel, const ebb_bound *bound) {
    const ebb_operand src = {.shape = kernel->shape};
    const ebb_kernel_desc desc = {
        .attr = kernel->attr, .n_in = kernel->n_in, .n_out = kernel->n_out, .operand = &src /* all that is read */};
    const ebb_ref_call call = {.desc = &desc, .operand = bound->at, .state = bound->state};
    return kernel->n_in > 1 ? ebb__ref_lrn_bwd(&call) : ebb__ref_lrn(&call);
}

static ebb_status make_by_ref(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const uint64_t n = (uint64_t)ebb__shape_elements(&desc->operand[0].shape);
    kernel->run = run_by_ref;
    kernel->base.algorithm = "ref";
    EBB_TRY(ebb__kernel_all_plain(&device->host.base, desc, kernel->layout));
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        if (!desc->operand[i].opaque) { continue; }
        EBB_TRY(ebb__cpu_intern_bytes(device, n * sizeof(float), &kernel->layout[i]));
    }
    return EBB_OK;
}

/* ---- the library's ----------------------------------------------------------------------------- */

ebb_status ebb__cpu_make_lrn(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DST, 1, dnnl_query_dst_md, 0},
                                         {DNNL_ARG_WORKSPACE, 2, dnnl_query_workspace_md, 0}};
    const_dnnl_memory_desc_t md = NULL;
    dnnl_primitive_desc_t pd = NULL;
    if (desc->attr.size % 2 == 0) { return make_by_ref(device, desc, kernel); }
    EBB_TRY(image_of(device, ebb__kernel_in(desc, 0), &md));
    EBB_CPU_DNNL(describe_forward(device, &desc->attr, desc->n_out > 1, md, &pd), "lrn");
    const_dnnl_memory_desc_t workspace = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    bool empty = workspace == NULL || dnnl_memory_desc_get_size(workspace) == 0;
    if (desc->n_out == 1 || !empty) { return ebb__cpu_set_primitive(kernel, pd, wires, desc->n_out > 1 ? 3 : 2); }
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, 2)); /* backward gets by without */
    return ebb__cpu_intern_bytes(device, EBB_HOST_ALIGNMENT, &kernel->layout[2]);
}

ebb_status ebb__cpu_make_lrn_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DIFF_DST, 1, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_DIFF_SRC, 3, dnnl_query_diff_src_md, 0},
                                         {DNNL_ARG_WORKSPACE, 2, dnnl_query_workspace_md, 0}};
    const_dnnl_memory_desc_t md = NULL;
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    if (desc->attr.size % 2 == 0) { return make_by_ref(device, desc, kernel); }
    EBB_TRY(image_of(device, ebb__kernel_in(desc, 0), &md));
    EBB_CPU_DNNL(describe_forward(device, &desc->attr, true, md, &forward), "lrn");
    const ebb_op_attr *a = &desc->attr;
    dnnl_status_t st =
        dnnl_lrn_backward_primitive_desc_create(&pd, device->engine, dnnl_lrn_across_channels, md, md, md, a->size,
                                                a->alpha, a->beta, a->k, forward, device->attr);
    (void)dnnl_primitive_desc_destroy(forward);
    if (st != dnnl_success) { return ebb__cpu_fail(st, "lrn_bwd"); }
    const_dnnl_memory_desc_t workspace = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    if (workspace != NULL && dnnl_memory_desc_get_size(workspace) > 0) {
        return ebb__cpu_set_primitive(kernel, pd, wires, 4);
    }
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, 3));
    return ebb__cpu_intern_bytes(device, EBB_HOST_ALIGNMENT, &kernel->layout[2]);
}
