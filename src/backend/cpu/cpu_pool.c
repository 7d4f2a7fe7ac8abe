/* SPDX-License-Identifier: Apache-2.0
 *
 * Pools and local response normalisation, forward and backward: oneDNN's kernels in the layout that their
 * source is in. What they keep for backward (indices, workspace) is in a description of the library's own; since
 * backward is given that description, it looks for the image layout that goes with it.
 */
#include "backend/cpu/cpu_priv.h"

/* Which operator, over which image layout; both directions are described from this. */
typedef struct window {
    dnnl_memory_desc_t src, dst;
    dnnl_alg_kind_t algorithm;
    dnnl_dims_t kernel, stride, dilation, pad_begin, pad_end;
} window;

static void fini_window(window *w) {
    (void)dnnl_memory_desc_destroy(w->src);
    (void)dnnl_memory_desc_destroy(w->dst);
}

static dnnl_alg_kind_t algorithm_of(const ebb_kernel_desc *desc) {
    if (desc->kind == EBB_OP_MAX_POOL || desc->kind == EBB_OP_MAX_POOL_BWD) { return dnnl_pooling_max; }
    return desc->attr.count_padding != 0 ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

static ebb_status init_window(const ebb_kernel_desc *desc, const ebb_shape *src, const ebb_shape *dst,
                              dnnl_format_tag_t tag, window *w) {
    const ebb_op_attr *a = &desc->attr;
    for (int d = 0; d < 2; d++) {
        w->kernel[d] = a->kernel[d];
        w->stride[d] = a->stride[d];
        w->pad_begin[d] = a->pad_begin[d];
        w->pad_end[d] = a->pad_end[d];
    }
    w->algorithm = algorithm_of(desc);
    EBB_TRY(ebb__cpu_describe(4, src->dims, tag, &w->src));
    return ebb__cpu_describe(4, dst->dims, tag, &w->dst);
}

/* Row-major images are kept, else rows as everywhere. */
static ebb_status tag_of(const ebb_cpu_device *device, const ebb_operand *o, dnnl_format_tag_t *tag_out) {
    if (o->shape.n_dims != 4) {
        return ebb_fail(EBB_E_UNSUPPORTED, "cpu: a pool of %d dimensions", (int)o->shape.n_dims);
    }
    const ebb_cpu_layout *given = o->layout == EBB_LAYOUT_ANY ? NULL : ebb__cpu_layout(device, o->layout);
    dnnl_format_tag_t tag = o->shape.dims[1] % device->block == 0 ? ebb__cpu_blocked_tag(device) : dnnl_nhwc;
    if (given != NULL && given->plain && given->rows.width == 0) {
        tag = dnnl_nchw;
    } else if (given != NULL && given->rows.width > 0) {
        bool blocked = given->rows.width == device->block && given->rows.n_blocks * device->block >= o->shape.dims[1];
        tag = blocked ? ebb__cpu_blocked_tag(device) : dnnl_nhwc;
    }
    *tag_out = tag;
    return EBB_OK;
}

static dnnl_status_t describe_forward(const ebb_cpu_device *device, const window *w, bool training,
                                      dnnl_primitive_desc_t *pd_out) {
    return dnnl_pooling_forward_primitive_desc_create(
        pd_out, device->engine, training ? dnnl_forward_training : dnnl_forward_inference, w->algorithm, w->src, w->dst,
        w->stride, w->kernel, w->dilation, w->pad_begin, w->pad_end, device->attr);
}

ebb_status ebb__cpu_make_pool(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DST, 1, dnnl_query_dst_md, 0},
                                         {DNNL_ARG_WORKSPACE, 2, dnnl_query_workspace_md, 0}};
    const ebb_operand *src = ebb__kernel_in(desc, 0);
    dnnl_format_tag_t tag = dnnl_format_tag_undef;
    dnnl_primitive_desc_t pd = NULL;
    window w = {0};
    EBB_TRY(tag_of(device, src, &tag));
    ebb_status st = init_window(desc, &src->shape, &ebb__kernel_out(desc, 0)->shape, tag, &w);
    if (st == EBB_OK) {
        dnnl_status_t described = describe_forward(device, &w, desc->n_out > 1, &pd);
        if (described != dnnl_success) { st = ebb__cpu_fail(described, ebb__op_name(desc->kind)); }
    }
    fini_window(&w);
    EBB_TRY(st);
    return ebb__cpu_set_primitive(kernel, pd, wires, desc->n_out > 1 ? 3 : 2);
}

/* Backward over images of that tag. EBB_E_UNSUPPORTED also where forward would have left other indices. */
static ebb_status describe_backward(ebb_cpu_device *device, const ebb_kernel_desc *desc, dnnl_format_tag_t tag,
                                    dnnl_primitive_desc_t *pd_out) {
    window w = {0};
    dnnl_primitive_desc_t forward = NULL, pd = NULL;
    ebb_layout indices = EBB_LAYOUT_ANY;
    ebb_status st = init_window(desc, &ebb__kernel_out(desc, 0)->shape, &desc->operand[0].shape, tag, &w);
    dnnl_status_t described = dnnl_success;
    if (st == EBB_OK) { described = describe_forward(device, &w, true, &forward); }
    if (st == EBB_OK && described == dnnl_success) {
        described = dnnl_pooling_backward_primitive_desc_create(&pd, device->engine, w.algorithm, w.src, w.dst,
                                                                w.stride, w.kernel, w.dilation, w.pad_begin, w.pad_end,
                                                                forward, device->attr);
    }
    if (st == EBB_OK && described != dnnl_success) { st = ebb__cpu_fail(described, ebb__op_name(desc->kind)); }
    if (st == EBB_OK && desc->n_in > 1) {
        st = ebb__cpu_intern(device, dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0), &indices);
        if (st == EBB_OK && desc->operand[1].layout != EBB_LAYOUT_ANY && indices != desc->operand[1].layout) {
            st = ebb_fail(EBB_E_UNSUPPORTED, "cpu: %s of indices of another forward", ebb__op_name(desc->kind));
        }
    }
    (void)dnnl_primitive_desc_destroy(forward);
    fini_window(&w);
    if (st != EBB_OK) {
        (void)dnnl_primitive_desc_destroy(pd);
        return st;
    }
    *pd_out = pd;
    return EBB_OK;
}

ebb_status ebb__cpu_make_pool_bwd(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const ebb_cpu_wire wires[] = {{DNNL_ARG_DIFF_DST, 0, dnnl_query_diff_dst_md, 0},
                                  {DNNL_ARG_DIFF_SRC, desc->n_in, dnnl_query_diff_src_md, 0},
                                  {DNNL_ARG_WORKSPACE, 1, dnnl_query_workspace_md, 0}};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_format_tag_t tags[4] = {dnnl_format_tag_undef, ebb__cpu_blocked_tag(device), dnnl_nhwc, dnnl_nchw};
    EBB_TRY(tag_of(device, &desc->operand[0], &tags[0]));
    ebb_status st = EBB_E_UNSUPPORTED;
    for (int i = 0; i < 4 && st == EBB_E_UNSUPPORTED; i++) { st = describe_backward(device, desc, tags[i], &pd); }
    EBB_TRY(st);
    return ebb__cpu_set_primitive(kernel, pd, wires, desc->n_in > 1 ? 3 : 2);
}
