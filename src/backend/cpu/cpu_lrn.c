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

/* Backward over images of md, by the library's first implementation. */
static ebb_status describe_backward(const ebb_cpu_device *device, const ebb_op_attr *a, const_dnnl_memory_desc_t md,
                                    dnnl_primitive_desc_t *pd_out) {
    dnnl_primitive_desc_t forward = NULL;
    EBB_CPU_DNNL(describe_forward(device, a, true, md, &forward), "lrn");
    dnnl_status_t st =
        dnnl_lrn_backward_primitive_desc_create(pd_out, device->engine, dnnl_lrn_across_channels, md, md, md, a->size,
                                                a->alpha, a->beta, a->k, forward, device->attr);
    (void)dnnl_primitive_desc_destroy(forward);
    return st == dnnl_success ? EBB_OK : ebb__cpu_fail(st, "lrn_bwd");
}

static bool has_workspace(const_dnnl_primitive_desc_t pd) {
    const_dnnl_memory_desc_t workspace = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    return workspace != NULL && dnnl_memory_desc_get_size(workspace) > 0;
}

/* Forward has a workspace where backward's first implementation reads one. Where it does not (so it is with AVX2),
 * forward is described as for inference, which writes none. */
static ebb_status describe_kept(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const_dnnl_memory_desc_t md,
                                dnnl_primitive_desc_t *pd_out) {
    bool kept = false;
    if (desc->n_out > 1) {
        dnnl_primitive_desc_t backward = NULL;
        EBB_TRY(describe_backward(device, &desc->attr, md, &backward));
        kept = has_workspace(backward);
        (void)dnnl_primitive_desc_destroy(backward);
    }
    EBB_CPU_DNNL(describe_forward(device, &desc->attr, kept, md, pd_out), "lrn");
    return EBB_OK;
}

ebb_status ebb__cpu_make_lrn(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DST, 1, dnnl_query_dst_md, 0},
                                         {DNNL_ARG_WORKSPACE, 2, dnnl_query_workspace_md, 0}};
    const_dnnl_memory_desc_t md = NULL;
    dnnl_primitive_desc_t pd = NULL;
    if (desc->attr.size % 2 == 0) { return make_by_ref(device, desc, kernel); }
    EBB_TRY(image_of(device, ebb__kernel_in(desc, 0), &md));
    EBB_TRY(describe_kept(device, desc, md, &pd));
    bool kept = has_workspace(pd);
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, kept ? 3 : 2));
    if (desc->n_out == 1 || kept) { return EBB_OK; }
    return ebb__cpu_intern_bytes(device, EBB_HOST_ALIGNMENT, &kernel->layout[2]);
}

/* The library's first implementation that reads the workspace that forward left, or none. */
static ebb_status find_reader(ebb_cpu_device *device, ebb_layout given, dnnl_primitive_desc_t pd) {
    while (has_workspace(pd)) {
        ebb_layout wanted = EBB_LAYOUT_ANY;
        EBB_TRY(ebb__cpu_intern(device, dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0), &wanted));
        if (given == EBB_LAYOUT_ANY || given == wanted) { break; }
        EBB_CPU_DNNL(dnnl_primitive_desc_next_impl(pd), "lrn_bwd of another forward's workspace");
    }
    return EBB_OK;
}

ebb_status ebb__cpu_make_lrn_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DIFF_DST, 1, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_DIFF_SRC, 3, dnnl_query_diff_src_md, 0},
                                         {DNNL_ARG_WORKSPACE, 2, dnnl_query_workspace_md, 0}};
    const ebb_layout given = desc->operand[2].layout;
    const_dnnl_memory_desc_t md = NULL;
    dnnl_primitive_desc_t pd = NULL;
    if (desc->attr.size % 2 == 0) { return make_by_ref(device, desc, kernel); }
    EBB_TRY(image_of(device, ebb__kernel_in(desc, 0), &md));
    EBB_TRY(describe_backward(device, &desc->attr, md, &pd));
    ebb_status st = find_reader(device, given, pd);
    if (st != EBB_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return st;
    }
    bool read = has_workspace(pd);
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, read ? 4 : 3));
    if (read) { return EBB_OK; }
    kernel->layout[2] = given; /* whatever it is */
    return given != EBB_LAYOUT_ANY ? EBB_OK : ebb__cpu_intern_bytes(device, EBB_HOST_ALIGNMENT, &kernel->layout[2]);
}
