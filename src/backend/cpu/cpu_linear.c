/* SPDX-License-Identifier: Apache-2.0
 *
 * Fully connected layers, all three directions, by oneDNN's inner product. All three go over the weights in one
 * and the same form, so that no copy of what is often the largest tensor of a network is ever made:
 *
 *   src of 2 dimensions          weights as they are, (O, I) row-major
 *   src of 4, in channel blocks  weights (O, C, H, W) in the same channel blocks: src needs no reorder either
 *   src of 4, otherwise          both row-major
 *
 * src and weights have one tag; which, the weights' layout tells in the direction that has no src.
 */
#include "backend/cpu/cpu_priv.h"

typedef struct problem {
    dnnl_memory_desc_t src, weights, bias, dst; /* bias: NULL without */
} problem;

typedef struct roles {
    const ebb_operand *src, *weights, *bias, *dst;
} roles;

static void fini_problem(problem *p) {
    (void)dnnl_memory_desc_destroy(p->src);
    (void)dnnl_memory_desc_destroy(p->weights);
    (void)dnnl_memory_desc_destroy(p->bias);
    (void)dnnl_memory_desc_destroy(p->dst);
}

/* Whether a layout of src or weights is in the channel blocks that src could have. */
static bool is_blocked(const ebb_cpu_device *device, ebb_layout layout) {
    if (layout == EBB_LAYOUT_ANY) { return false; }
    const ebb_cpu_layout *l = ebb__cpu_layout(device, layout);
    return !l->plain && l->rows.width == device->block;
}

/* blocked: the form of the operand that decides. */
static ebb_status init_problem(const ebb_cpu_device *device, const roles *r, bool blocked, problem *p) {
    const ebb_shape *src = &r->src->shape;
    const int64_t n_out = r->dst->shape.dims[1];
    const bool as_image = blocked && src->n_dims == 4 && src->dims[1] % device->block == 0;
    if (as_image) {
        const int64_t weights[] = {n_out, src->dims[1], src->dims[2], src->dims[3]};
        EBB_TRY(ebb__cpu_describe(4, src->dims, ebb__cpu_blocked_tag(device), &p->src));
        EBB_TRY(ebb__cpu_describe(4, weights, ebb__cpu_blocked_tag(device), &p->weights));
    } else {
        const int64_t n_in = r->weights->shape.dims[1];
        const int64_t flat[] = {src->dims[0], n_in}, weights[] = {n_out, n_in};
        EBB_TRY(ebb__cpu_describe(2, flat, dnnl_ab, &p->src));
        EBB_TRY(ebb__cpu_describe(2, weights, dnnl_ab, &p->weights));
    }
    EBB_TRY(ebb__cpu_describe(2, r->dst->shape.dims, dnnl_ab, &p->dst));
    return r->bias == NULL ? EBB_OK : ebb__cpu_describe(1, &n_out, dnnl_a, &p->bias);
}

static dnnl_status_t describe_kind(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const problem *p,
                                   dnnl_primitive_desc_t *pd_out) {
    const bool forward = desc->kind == EBB_OP_LINEAR;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_inner_product_forward_primitive_desc_create(
        &pd, device->engine, dnnl_forward_training, p->src, p->weights, p->bias, p->dst,
        forward && desc->attr.relu != 0 ? device->attr_relu : device->attr);
    if (st != dnnl_success || forward) {
        *pd_out = pd;
        return st;
    }
    if (desc->kind == EBB_OP_LINEAR_BWD_DATA) {
        st = dnnl_inner_product_backward_data_primitive_desc_create(pd_out, device->engine, p->src, p->weights, p->dst,
                                                                    pd, device->attr);
    } else {
        st = dnnl_inner_product_backward_weights_primitive_desc_create(pd_out, device->engine, p->src, p->weights,
                                                                       p->bias, p->dst, pd, device->attr);
    }
    (void)dnnl_primitive_desc_destroy(pd);
    return st;
}

/* The library sees flattened shapes; row-major operands keep the layout of their own. */
static ebb_status restore_plain(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        if (!ebb__cpu_layout(device, kernel->layout[i])->plain) { continue; }
        EBB_TRY(ebb__cpu_layout_plain(&device->host.base, o->dtype, &o->shape, &kernel->layout[i]));
    }
    return EBB_OK;
}

static ebb_status make(ebb_cpu_device *device, const ebb_kernel_desc *desc, const roles *r, bool blocked,
                       dnnl_primitive_desc_t *pd_out) {
    problem p = {0};
    ebb_status st = init_problem(device, r, blocked, &p);
    if (st == EBB_OK) {
        dnnl_status_t described = describe_kind(device, desc, &p, pd_out);
        if (described != dnnl_success) { st = ebb__cpu_fail(described, ebb__op_name(desc->kind)); }
    }
    fini_problem(&p);
    return st;
}

ebb_status ebb__cpu_make_linear(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const ebb_operand *o = desc->operand;
    const bool bias = desc->n_in > 2;
    const roles r = {.src = &o[0], .weights = &o[1], .bias = bias ? &o[2] : NULL, .dst = ebb__kernel_out(desc, 0)};
    const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                  {DNNL_ARG_WEIGHTS, 1, dnnl_query_weights_md, 0},
                                  {DNNL_ARG_DST, desc->n_in, dnnl_query_dst_md, 0},
                                  {DNNL_ARG_BIAS, 2, dnnl_query_weights_md, 1}};
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(make(device, desc, &r, is_blocked(device, o[0].layout), &pd));
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, bias ? 4 : 3));
    return restore_plain(device, desc, kernel);
}

ebb_status ebb__cpu_make_linear_bwd_data(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const ebb_operand *o = desc->operand;
    const roles r = {.src = &o[2], .weights = &o[1], .dst = &o[0]};
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_DIFF_DST, 0, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_WEIGHTS, 1, dnnl_query_weights_md, 0},
                                         {DNNL_ARG_DIFF_SRC, 2, dnnl_query_diff_src_md, 0}};
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(make(device, desc, &r, is_blocked(device, o[1].layout), &pd));
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, 3));
    return restore_plain(device, desc, kernel);
}

ebb_status ebb__cpu_make_linear_bwd_weights(ebb_cpu_device *device, const ebb_kernel_desc *desc,
                                            ebb_cpu_kernel *kernel) {
    const ebb_operand *o = desc->operand;
    const bool bias = desc->n_out > 1;
    const roles r = {.src = &o[0], .weights = &o[2], .bias = bias ? &o[3] : NULL, .dst = &o[1]};
    static const ebb_cpu_wire wires[] = {{DNNL_ARG_SRC, 0, dnnl_query_src_md, 0},
                                         {DNNL_ARG_DIFF_DST, 1, dnnl_query_diff_dst_md, 0},
                                         {DNNL_ARG_DIFF_WEIGHTS, 2, dnnl_query_diff_weights_md, 0},
                                         {DNNL_ARG_DIFF_BIAS, 3, dnnl_query_diff_weights_md, 1}};
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(make(device, desc, &r, is_blocked(device, o[0].layout), &pd));
    EBB_TRY(ebb__cpu_set_primitive(kernel, pd, wires, bias ? 4 : 3));
    return restore_plain(device, desc, kernel);
}
