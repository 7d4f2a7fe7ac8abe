/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, all three directions. Images come and go in channel blocks where there are enough channels, so
 * that the layers between convolutions find what they like; a network's first image stays plain, for which
 * oneDNN has a kernel of its own. Where it cannot do what is asked, everything is left to its choice.
 *
 * Weights: forward decides. Their gradient comes in the same form whenever the library's best kernel for it can
 * write that (it can, for direct kernels); backward to data wants its blocks transposed, which is a REORDER.
 *
 * A description of the problem is put together once (problem), from operands by role, so that the three
 * directions differ in one call.
 */
#include "backend/cpu/cpu_priv.h"

#include <inttypes.h>

/* Up to this many channels an image stays row-major: the library's kernels for a first layer. */
#define FEW_CHANNELS 4

typedef struct problem {
    ebb_cpu_product md;
    dnnl_dims_t strides, dilates, pad_begin, pad_end;
} problem;

/* What an image operand may be: plain where it is a first layer's, blocks where they come out even or are there
 * already, else the library's choice. */
static ebb_status describe_image(const ebb_cpu_device *device, const ebb_operand *o, bool may_be_plain,
                                 bool free_choice, dnnl_memory_desc_t *md_out) {
    const ebb_shape *s = &o->shape;
    if (!free_choice && may_be_plain && s->dims[1] <= FEW_CHANNELS) {
        return ebb__cpu_describe(4, s->dims, dnnl_nchw, md_out);
    }
    if (!free_choice && o->layout != EBB_LAYOUT_ANY) {
        const ebb_cpu_layout *given = ebb__cpu_layout(device, o->layout);
        if (given->rows.n_blocks * given->rows.width > s->dims[1]) {
            EBB_CPU_DNNL(dnnl_memory_desc_clone(md_out, given->md), "an image");
            return EBB_OK;
        }
    }
    bool blocks = !free_choice && s->dims[1] % device->block == 0;
    dnnl_format_tag_t tag = blocks ? ebb__cpu_blocked_tag(device) : dnnl_format_tag_any;
    return ebb__cpu_describe(4, s->dims, tag, md_out);
}

/* want: a layout, or EBB_LAYOUT_ANY for the library's choice. */
static ebb_status describe_weights(const ebb_cpu_device *device, const ebb_shape *s, int64_t groups, ebb_layout want,
                                   dnnl_memory_desc_t *md_out) {
    if (want != EBB_LAYOUT_ANY) {
        EBB_CPU_DNNL(dnnl_memory_desc_clone(md_out, ebb__cpu_layout(device, want)->md), "weights");
        return EBB_OK;
    }
    const int64_t grouped[5] = {groups, s->dims[0] / groups, s->dims[1], s->dims[2], s->dims[3]};
    return groups > 1 ? ebb__cpu_describe(5, grouped, dnnl_format_tag_any, md_out)
                      : ebb__cpu_describe(4, s->dims, dnnl_format_tag_any, md_out);
}

static ebb_status init_problem(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const ebb_cpu_roles *r,
                               ebb_layout weights, bool free_choice, problem *p) {
    const ebb_op_attr *a = &desc->attr;
    for (int d = 0; d < 2; d++) {
        p->strides[d] = a->stride[d];
        p->dilates[d] = a->dilation[d] - 1;
        p->pad_begin[d] = a->pad_begin[d];
        p->pad_end[d] = a->pad_end[d];
    }
    EBB_TRY(describe_image(device, r->src, desc->kind != EBB_OP_CONV_BWD_DATA, free_choice, &p->md.src));
    EBB_TRY(describe_image(device, r->dst, false, free_choice, &p->md.dst));
    EBB_TRY(describe_weights(device, &r->weights->shape, a->groups, weights, &p->md.weights));
    return r->bias == NULL ? EBB_OK : ebb__cpu_describe(1, &r->dst->shape.dims[1], dnnl_a, &p->md.bias);
}

static dnnl_status_t describe_forward(const ebb_cpu_device *device, const problem *p, bool relu,
                                      dnnl_primitive_desc_t *pd_out) {
    return dnnl_convolution_forward_primitive_desc_create(
        pd_out, device->engine, dnnl_forward_training, dnnl_convolution_direct, p->md.src, p->md.weights, p->md.bias,
        p->md.dst, p->strides, p->dilates, p->pad_begin, p->pad_end, relu ? device->attr_relu : device->attr);
}

/* The direction of kind, over p; backward ones take a forward description as a hint. */
static dnnl_status_t describe_kind(const ebb_cpu_device *device, ebb_op_kind kind, const problem *p, bool relu,
                                   dnnl_primitive_desc_t *pd_out) {
    if (kind == EBB_OP_CONV) { return describe_forward(device, p, relu, pd_out); }
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t st = describe_forward(device, p, false, &hint);
    if (st != dnnl_success) { return st; }
    if (kind == EBB_OP_CONV_BWD_DATA) {
        st = dnnl_convolution_backward_data_primitive_desc_create(
            pd_out, device->engine, dnnl_convolution_direct, p->md.src, p->md.weights, p->md.dst, p->strides,
            p->dilates, p->pad_begin, p->pad_end, hint, device->attr);
    } else {
        st = dnnl_convolution_backward_weights_primitive_desc_create(
            pd_out, device->engine, dnnl_convolution_direct, p->md.src, p->md.weights, p->md.bias, p->md.dst,
            p->strides, p->dilates, p->pad_begin, p->pad_end, hint, device->attr);
    }
    (void)dnnl_primitive_desc_destroy(hint);
    return st;
}

static ebb_status try_describe(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const ebb_cpu_roles *r,
                               ebb_layout weights, bool free_choice, dnnl_primitive_desc_t *pd_out) {
    problem p = {0};
    ebb_status st = init_problem(device, desc, r, weights, free_choice, &p);
    if (st == EBB_OK) {
        dnnl_status_t described = describe_kind(device, desc->kind, &p, desc->attr.relu != 0, pd_out);
        if (described != dnnl_success) { st = ebb__cpu_fail(described, ebb__op_name(desc->kind)); }
    }
    ebb__cpu_product_fini(&p.md);
    return st;
}

static const char *name_of(dnnl_primitive_desc_t pd) {
    const char *name = "";
    (void)dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name);
    return name;
}

static bool is_reference(dnnl_primitive_desc_t pd) {
    return strncmp(name_of(pd), "ref", 3) == 0;
}

/* The library counts an image's pixels, a block of channels deep, in 32 bits without looking; where they run over to 0
 * it divides by them. */
static ebb_status check_image(const ebb_cpu_device *device, const ebb_operand *o) {
    const int64_t height = o->shape.dims[2], width = o->shape.dims[3];
    if (height <= INT32_MAX / device->block / width) { return EBB_OK; }
    return ebb_fail(EBB_E_UNSUPPORTED, "cpu: an image of %" PRId64 "x%" PRId64 " is too large for a convolution",
                    height, width);
}

/* The library's best with free weights; when the very same kernel also takes the weights as they lie, then that. */
static ebb_status choose(const ebb_cpu_device *device, const ebb_kernel_desc *desc, const ebb_cpu_roles *r,
                         dnnl_primitive_desc_t *pd_out) {
    dnnl_primitive_desc_t pd = NULL, fixed = NULL;
    bool free_choice = false;
    EBB_TRY(check_image(device, r->src));
    EBB_TRY(check_image(device, r->dst));
    ebb_status st = try_describe(device, desc, r, EBB_LAYOUT_ANY, free_choice, &pd);
    if (st != EBB_OK || is_reference(pd)) {
        (void)dnnl_primitive_desc_destroy(pd);
        pd = NULL;
        free_choice = true;
        EBB_TRY(try_describe(device, desc, r, EBB_LAYOUT_ANY, free_choice, &pd));
    }
    if (r->weights->layout != EBB_LAYOUT_ANY &&
        try_describe(device, desc, r, r->weights->layout, free_choice, &fixed) == EBB_OK) {
        bool same = strcmp(name_of(pd), name_of(fixed)) == 0;
        (void)dnnl_primitive_desc_destroy(same ? pd : fixed);
        if (same) { pd = fixed; }
    }
    *pd_out = pd;
    return EBB_OK;
}

ebb_status ebb__cpu_make_conv(ebb_cpu_device *device, const ebb_kernel_desc *desc, ebb_cpu_kernel *kernel) {
    const ebb_cpu_roles r = ebb__cpu_roles(desc);
    dnnl_primitive_desc_t pd = NULL;
    EBB_TRY(choose(device, desc, &r, &pd));
    return ebb__cpu_set_product(kernel, desc, pd);
}
