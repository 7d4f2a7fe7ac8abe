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

/* Whether a layout of src or weights is in the channel blocks that src could have. */
static bool is_blocked(const ebb_cpu_device *device, ebb_layout layout) {
    if (layout == EBB_LAYOUT_ANY) { return false; }
    const ebb_cpu_layout *l = ebb__cpu_layout(device, layout);
    return !l->plain && l->rows.width == device->block;
}

/* blocked: the form of the operand that decides. */
static ebb_status init_problem(const ebb_cpu_device *device, const ebb_cpu_roles *r, bool blocked, ebb_cpu_product *p) {
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

static dnnl_status_t describe_kind(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const ebb_cpu_product *p,
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

static ebb_status make(ebb_cpu_device *device, const ebb_kernel_desc *desc, const ebb_cpu_roles *r, bool blocked,
                       dnnl_primitive_desc_t *pd_out) {
    ebb_cpu_product p = {0};
    ebb_status st = init_problem(device, r, blocked, &p);
    if (st == EBB_OK) {
        dnnl_status_t described = describe_kind(device, desc, &p, pd_out);
        if (described != dnnl_success) { st = ebb__cpu_fail(described, ebb__op_name(desc->kind)); }
    }
    ebb__cpu_product_fini(&p);
    return st;
}

ebb_status ebb__cpu_make_linear(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const ebb_cpu_roles r = ebb__cpu_roles(desc);
    const ebb_operand *decides = desc->kind == EBB_OP_LINEAR_BWD_DATA ? r.weights : r.src;
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(make(device, desc, &r, is_blocked(device, decides->layout), &pd));
    EBB_TRY(ebb__cpu_set_product(kernel, desc, pd));
    return restore_plain(device, desc, kernel);
}
