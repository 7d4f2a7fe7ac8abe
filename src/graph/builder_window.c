/* SPDX-License-Identifier: Apache-2.0
 *
 * Builder calls for operators that slide a window: convolutions and pools. A window is made canonical here
 * once (zeros replaced, ceil_mode turned into padding), so that no backend sees two forms of the same thing.
 */
#include "graph/graph_priv.h"

#include <math.h>

static const char *const axis_name[2] = {"height", "width"};

ebb_window ebb_window_square(int32_t kernel, int32_t stride, int32_t pad) {
    return (ebb_window){
        .kernel = {kernel, kernel}, .stride = {stride, stride}, .pad_begin = {pad, pad}, .pad_end = {pad, pad}};
}

static int32_t one_if_zero(int32_t x) {
    return x == 0 ? 1 : x;
}

static ebb_status canonical(const char *name, const ebb_window *window, ebb_op_attr *attr_out) {
    ebb_op_attr attr = {.groups = one_if_zero(window->groups)};
    bool good = attr.groups > 0;
    for (int i = 0; i < 2; i++) {
        attr.kernel[i] = one_if_zero(window->kernel[i]);
        attr.stride[i] = one_if_zero(window->stride[i]);
        attr.dilation[i] = one_if_zero(window->dilation[i]);
        attr.pad_begin[i] = window->pad_begin[i];
        attr.pad_end[i] = window->pad_end[i];
        good = good && attr.kernel[i] > 0 && attr.stride[i] > 0 && attr.dilation[i] > 0;
        good = good && attr.pad_begin[i] >= 0 && attr.pad_end[i] >= 0;
    }
    if (!good) { return ebb_fail(EBB_E_ARGUMENT, "%s: a negative figure in its window", name); }
    *attr_out = attr;
    return EBB_OK;
}

/* How far the window reaches from its first cell. */
static int64_t reach(const ebb_op_attr *attr, int axis) {
    return (int64_t)attr->dilation[axis] * (attr->kernel[axis] - 1) + 1;
}

/* How many windows fit along an axis of n cells; less than 1 when none does. */
static int64_t count_windows(const ebb_op_attr *attr, int axis, int64_t n) {
    int64_t room = n + attr->pad_begin[axis] + attr->pad_end[axis] - reach(attr, axis);
    return room < 0 ? 0 : room / attr->stride[axis] + 1;
}

static ebb_status slide(const char *name, const ebb_op_attr *attr, const ebb_shape *src, int64_t size_out[2]) {
    int64_t size[2];
    for (int i = 0; i < 2; i++) {
        size[i] = count_windows(attr, i, src->dims[2 + i]);
        if (size[i] < 1) {
            return ebb_fail(
                EBB_E_ARGUMENT,
                "%s: the image is too small here: %s %lld with padding %d+%d is less than the kernel's %lld", name,
                axis_name[i], (long long)src->dims[2 + i], (int)attr->pad_begin[i], (int)attr->pad_end[i],
                (long long)reach(attr, i));
        }
    }
    memcpy(size_out, size, sizeof size);
    return EBB_OK;
}

/* ---- convolution ------------------------------------------------------------------------------ */

typedef struct conv_call {
    const char *name;
    ebb_value src;
    int64_t out_channels;
    const ebb_window *window;
    bool bias;
} conv_call;

static ebb_status add_conv_parameters(ebb_graph *graph, const conv_call *call, const ebb_op_attr *attr,
                                      int64_t in_channels, ebb_value param_out[2]) {
    ebb_shape shape = ebb__shape_4d(call->out_channels, in_channels / attr->groups, attr->kernel[0], attr->kernel[1]);
    double fan_in = (double)shape.dims[1] * (double)shape.dims[2] * (double)shape.dims[3];
    ebb_value_info info = {.shape = shape,
                           .kind = EBB_VALUE_PARAMETER,
                           .init = EBB_INIT_UNIFORM,
                           .init_scale = (float)(1.0 / sqrt(fan_in))};
    EBB_TRY(ebb__graph_add_value(graph, call->name, ".weight", &info, &param_out[0]));
    info.shape = ebb__shape_1d(call->out_channels);
    if (call->bias) { EBB_TRY(ebb__graph_add_value(graph, call->name, ".bias", &info, &param_out[1])); }
    return EBB_OK;
}

static ebb_status add_conv(ebb_graph *graph, const conv_call *call, ebb_value *dst_out) {
    ebb_op op = {.kind = EBB_OP_CONV, .name = call->name, .n_in = call->bias ? 3 : 2};
    EBB_TRY(ebb__graph_check_src(graph, call->name, call->src, 4, 4));
    EBB_TRY(canonical(call->name, call->window, &op.attr));
    ebb_shape src = graph->values.data[call->src].shape;
    if (call->out_channels < 1 || call->out_channels % op.attr.groups != 0 || src.dims[1] % op.attr.groups != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: %lld to %lld channels in %d groups", call->name, (long long)src.dims[1],
                        (long long)call->out_channels, (int)op.attr.groups);
    }
    int64_t size[2];
    EBB_TRY(slide(call->name, &op.attr, &src, size));
    ebb_value in[3] = {call->src};
    EBB_TRY(add_conv_parameters(graph, call, &op.attr, src.dims[1], &in[1]));
    op.in = in;
    ebb_shape dst = ebb__shape_4d(src.dims[0], call->out_channels, size[0], size[1]);
    return ebb__graph_add_layer(graph, &op, &dst, dst_out);
}

ebb_value ebb_graph_conv(ebb_graph *graph, const char *name, ebb_value src, int64_t out_channels,
                         const ebb_window *window, bool bias) {
    ebb_value dst = EBB_NO_VALUE;
    ebb_window point = {0};
    if (ebb__graph_begin(graph, EBB_OP_CONV, &name)) {
        conv_call call = {name, src, out_channels, window != NULL ? window : &point, bias};
        (void)ebb__graph_end(graph, add_conv(graph, &call, &dst));
    }
    return dst;
}

/* ---- pools ------------------------------------------------------------------------------------ */

/* Padding of at most half a kernel leaves no window without a cell of the image. */
static ebb_status check_pool(const char *name, const ebb_op_attr *attr) {
    for (int i = 0; i < 2; i++) {
        if (attr->dilation[i] != 1) { return ebb_fail(EBB_E_UNSUPPORTED, "%s: a dilated pool", name); }
        if (attr->pad_begin[i] > attr->kernel[i] / 2 || attr->pad_end[i] > attr->kernel[i] / 2) {
            return ebb_fail(EBB_E_ARGUMENT, "%s: padding of more than half the kernel", name);
        }
    }
    if (attr->groups != 1) { return ebb_fail(EBB_E_ARGUMENT, "%s: a pool has no groups", name); }
    return EBB_OK;
}

/* A last partial window counts if it begins inside the image or its first padding (PyTorch's rule): give it
 * the padding that makes it whole. Average pools that count padding must not count this one. */
static ebb_status extend_padding(const char *name, ebb_op_attr *attr, const ebb_shape *src) {
    for (int i = 0; i < 2; i++) {
        int64_t n = src->dims[2 + i], stride = attr->stride[i];
        int64_t room = n + attr->pad_begin[i] + attr->pad_end[i] - attr->kernel[i];
        if (room <= -stride) { continue; } /* not even one: slide will say so */
        int64_t last = (room + stride - 1) / stride;
        if (last * stride >= n + attr->pad_begin[i]) { last--; }
        int64_t pad_end = last * stride + attr->kernel[i] - n - attr->pad_begin[i];
        if (pad_end <= attr->pad_end[i]) { continue; }
        if (attr->count_padding != 0) {
            return ebb_fail(EBB_E_UNSUPPORTED, "%s: ceil_mode that cuts a window while padding counts", name);
        }
        attr->pad_end[i] = (int32_t)pad_end;
    }
    return EBB_OK;
}

static ebb_status add_pool(ebb_graph *graph, ebb_op *op, const ebb_window *window, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, op->name, op->in[0], 4, 4));
    EBB_TRY(canonical(op->name, window, &op->attr));
    EBB_TRY(check_pool(op->name, &op->attr));
    op->attr.groups = 0;
    op->attr.count_padding = op->kind == EBB_OP_AVG_POOL && window->count_padding;
    ebb_shape src = graph->values.data[op->in[0]].shape;
    if (window->ceil_mode) { EBB_TRY(extend_padding(op->name, &op->attr, &src)); }
    int64_t size[2];
    EBB_TRY(slide(op->name, &op->attr, &src, size));
    ebb_shape dst = ebb__shape_4d(src.dims[0], src.dims[1], size[0], size[1]);
    if (op->kind == EBB_OP_AVG_POOL || graph->inference) { return ebb__graph_add_layer(graph, op, &dst, dst_out); }
    ebb_value_info info = {.shape = dst};
    ebb_value out[2];
    EBB_TRY(ebb__graph_add_value(graph, op->name, "", &info, &out[0]));
    EBB_TRY(ebb__graph_add_opaque(graph, op->name, ".indices", &dst, &out[1]));
    op->n_out = 2;
    op->out = out;
    EBB_TRY(ebb__graph_add_op(graph, op));
    *dst_out = out[0];
    return EBB_OK;
}

static ebb_value pool(ebb_graph *graph, ebb_op_kind kind, const char *name, ebb_value src, const ebb_window *window) {
    ebb_value dst = EBB_NO_VALUE;
    ebb_window point = {0};
    if (ebb__graph_begin(graph, kind, &name)) {
        ebb_op op = {.kind = kind, .name = name, .n_in = 1, .in = &src};
        (void)ebb__graph_end(graph, add_pool(graph, &op, window != NULL ? window : &point, &dst));
    }
    return dst;
}

ebb_value ebb_graph_max_pool(ebb_graph *graph, const char *name, ebb_value src, const ebb_window *window) {
    return pool(graph, EBB_OP_MAX_POOL, name, src, window);
}

ebb_value ebb_graph_avg_pool(ebb_graph *graph, const char *name, ebb_value src, const ebb_window *window) {
    return pool(graph, EBB_OP_AVG_POOL, name, src, window);
}

ebb_value ebb_graph_global_avg_pool(ebb_graph *graph, const char *name, ebb_value src) {
    ebb_window window = {0}; /* of a bad src pool says what is wrong */
    if (graph != NULL && src < graph->values.n && graph->values.data[src].shape.n_dims == 4) {
        const int64_t *dims = graph->values.data[src].shape.dims;
        if (dims[2] <= INT32_MAX && dims[3] <= INT32_MAX) {
            window.kernel[0] = (int32_t)dims[2];
            window.kernel[1] = (int32_t)dims[3];
        }
    }
    return pool(graph, EBB_OP_AVG_POOL, name, src, &window);
}
