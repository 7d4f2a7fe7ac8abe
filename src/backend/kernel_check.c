/* SPDX-License-Identifier: Apache-2.0
 *
 * The operand table of graph.h as checks. Each rule names its operands as the table does; a rule that fails
 * becomes one message with the operator's name.
 */
#include "backend/kernel_check.h"

/* The operands of a window operator by role, so that forward and backward share their rule. */
typedef struct window_shapes {
    const ebb_shape *src, *weights, *dst; /* weights: NULL for pools */
} window_shapes;

static ebb_status fail_desc(const ebb_kernel_desc *desc, const char *what) {
    return ebb_fail(EBB_E_ARGUMENT, "%s: %s", ebb__op_name(desc->kind), what);
}

static const ebb_shape *in_shape(const ebb_kernel_desc *desc, uint32_t idx) {
    return &ebb__kernel_in(desc, idx)->shape;
}

static const ebb_shape *out_shape(const ebb_kernel_desc *desc, uint32_t idx) {
    return &ebb__kernel_out(desc, idx)->shape;
}

static bool is_vector(const ebb_shape *shape, int64_t n) {
    return ebb__shape_elements(shape) == n;
}

static ebb_status check_counts(const ebb_kernel_desc *desc) {
    if ((unsigned)desc->kind >= EBB_N_OPS) { return ebb_fail(EBB_E_ARGUMENT, "no operator %d", (int)desc->kind); }
    bool ok = ebb__op_takes(desc->kind, desc->n_in, desc->n_out, desc->n_inout);
    return ok ? EBB_OK : fail_desc(desc, "another number of operands");
}

static ebb_status check_operands(const ebb_kernel_desc *desc) {
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *operand = &desc->operand[i];
        if ((unsigned)operand->dtype >= EBB_N_DTYPES) { return fail_desc(desc, "an operand of no known type"); }
        uint64_t n_bytes = ebb_dtype_bytes(operand->dtype);
        bool ok = operand->shape.n_dims >= 1 && operand->shape.n_dims <= 4;
        for (int32_t d = 0; ok && d < operand->shape.n_dims; d++) {
            ok = operand->shape.dims[d] >= 1 && ebb_mul_u64(n_bytes, (uint64_t)operand->shape.dims[d], &n_bytes);
        }
        if (!ok || n_bytes > INT64_MAX) { return fail_desc(desc, "an operand of no or too many elements"); }
    }
    return EBB_OK;
}

/* Which elements kernels compute with. What only moves bytes takes all types. */
static ebb_status check_types(const ebb_kernel_desc *desc) {
    if (desc->kind == EBB_OP_FEED || desc->kind == EBB_OP_FETCH) { return EBB_OK; }
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_dtype type = desc->operand[i].dtype;
        if (type != EBB_F32 && type != EBB_S32 && type != EBB_U8) {
            return ebb_fail(EBB_E_UNSUPPORTED, "%s: operand %u is of %s, which no kernel computes with",
                            ebb__op_name(desc->kind), i, ebb_dtype_name(type));
        }
    }
    return EBB_OK;
}

static bool all_shapes_equal(const ebb_kernel_desc *desc) {
    for (uint32_t i = 1; i < ebb__kernel_n_operands(desc); i++) {
        if (!ebb__shape_equal(&desc->operand[0].shape, &desc->operand[i].shape)) { return false; }
    }
    return true;
}

/* One direction of a window: it yields dst places, each of which touches src. */
static bool is_window(const ebb_op_attr *a, int axis, int64_t src, int64_t dst) {
    if (a->kernel[axis] < 1 || a->stride[axis] < 1 || a->dilation[axis] < 1) { return false; }
    if (a->pad_begin[axis] < 0 || a->pad_end[axis] < 0) { return false; }
    const int64_t extent = (int64_t)a->dilation[axis] * (a->kernel[axis] - 1) + 1;
    const int64_t padded = src + a->pad_begin[axis] + a->pad_end[axis];
    return padded >= extent && (padded - extent) / a->stride[axis] + 1 == dst;
}

static ebb_status check_window(const ebb_kernel_desc *desc, window_shapes s) {
    if (s.src->n_dims != 4 || s.dst->n_dims != 4 || s.src->dims[0] != s.dst->dims[0]) {
        return fail_desc(desc, "not (N, C, H, W) on both sides");
    }
    for (int axis = 0; axis < 2; axis++) {
        if (!is_window(&desc->attr, axis, s.src->dims[2 + axis], s.dst->dims[2 + axis])) {
            return fail_desc(desc, "a window that does not give its output's size");
        }
    }
    return EBB_OK;
}

static ebb_status check_conv(const ebb_kernel_desc *desc, window_shapes s, const ebb_operand *bias) {
    EBB_TRY(check_window(desc, s));
    const ebb_op_attr *a = &desc->attr;
    const int64_t n_groups = a->groups, n_in = s.src->dims[1], n_out = s.dst->dims[1];
    if (n_groups < 1 || n_in % n_groups != 0 || n_out % n_groups != 0) {
        return fail_desc(desc, "channels that its groups do not divide");
    }
    const ebb_shape want = {.n_dims = 4, .dims = {n_out, n_in / n_groups, a->kernel[0], a->kernel[1]}};
    if (!ebb__shape_equal(s.weights, &want)) { return fail_desc(desc, "weights of another shape"); }
    if (bias != NULL && !is_vector(&bias->shape, n_out)) { return fail_desc(desc, "a bias of another length"); }
    return EBB_OK;
}

static ebb_status check_linear(const ebb_kernel_desc *desc, window_shapes s, const ebb_operand *bias) {
    const int64_t n_in = s.weights->dims[s.weights->n_dims - 1], n_out = s.weights->dims[0];
    bool ok = s.weights->n_dims == 2 && s.dst->n_dims == 2 && s.dst->dims[1] == n_out &&
              s.dst->dims[0] == s.src->dims[0] && ebb__shape_elements(s.src) == s.src->dims[0] * n_in;
    ok = ok && (bias == NULL || is_vector(&bias->shape, n_out));
    return ok ? EBB_OK : fail_desc(desc, "shapes that do not belong together");
}

/* Pools see each channel by itself, and a window has at least one place within src: padding below its size. */
static ebb_status check_pool(const ebb_kernel_desc *desc, const ebb_shape *src, const ebb_shape *dst) {
    EBB_TRY(check_window(desc, (window_shapes){.src = src, .dst = dst}));
    const ebb_op_attr *a = &desc->attr;
    for (int axis = 0; axis < 2; axis++) {
        const int64_t last = (dst->dims[2 + axis] - 1) * a->stride[axis] - a->pad_begin[axis];
        if (a->dilation[axis] != 1 || a->pad_begin[axis] >= a->kernel[axis] || last >= src->dims[2 + axis]) {
            return fail_desc(desc, "a window that lies in the padding alone, or is dilated");
        }
    }
    return src->dims[1] == dst->dims[1] ? EBB_OK : fail_desc(desc, "another number of channels");
}

/* Forward may leave the mask out where no backward follows; backward of a fused ReLU cannot do without. */
static ebb_status check_mask(const ebb_kernel_desc *desc) {
    const bool relu = desc->attr.relu != 0;
    bool ok = desc->n_out == 1;
    if (desc->kind == EBB_OP_BATCH_NORM) { ok = desc->n_out == 3 || (desc->n_out == 4 && relu); }
    if (desc->kind == EBB_OP_BATCH_NORM_BWD) { ok = desc->n_out == 3 && (desc->n_in == 6) == relu; }
    return ok ? EBB_OK : fail_desc(desc, "a mask without a ReLU or the other way round");
}

/* dst, diff_dst and the mask have src's shape, all else one value a channel. */
static ebb_status check_batch_norm(const ebb_kernel_desc *desc) {
    const ebb_shape *src = in_shape(desc, 0);
    if (src->n_dims < 2) { return fail_desc(desc, "no channels"); }
    for (uint32_t i = 1; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *operand = &desc->operand[i];
        bool like_src = operand->opaque || i == desc->n_in || (desc->kind == EBB_OP_BATCH_NORM_BWD && i == 1);
        bool ok = like_src ? ebb__shape_equal(&operand->shape, src) : is_vector(&operand->shape, src->dims[1]);
        if (!ok) { return fail_desc(desc, "shapes that do not belong together"); }
    }
    return check_mask(desc);
}

/* CONCAT: the channels of the sources, in order, are those of dst. SLICE: dst's lie within src's. */
static ebb_status check_channels(const ebb_kernel_desc *desc) {
    const ebb_shape *dst = out_shape(desc, 0);
    const bool concat = desc->kind == EBB_OP_CONCAT;
    int64_t n_channels = 0;
    for (uint32_t i = 0; i < desc->n_in; i++) {
        ebb_shape like = *in_shape(desc, i);
        n_channels += like.n_dims >= 2 ? like.dims[1] : 0;
        if (like.n_dims >= 2) { like.dims[1] = dst->dims[1]; }
        if (dst->n_dims < 2 || !ebb__shape_equal(&like, dst)) {
            return fail_desc(desc, "shapes that differ beyond channels");
        }
    }
    const int64_t offset = desc->attr.offset;
    bool ok = concat ? n_channels == dst->dims[1]
                     : offset >= 0 && offset <= in_shape(desc, 0)->dims[1] - dst->dims[1] &&
                           (desc->n_in == 1 || ebb__shape_equal(in_shape(desc, 1), dst));
    return ok ? EBB_OK : fail_desc(desc, "channels that do not add up");
}

static ebb_status check_loss(const ebb_kernel_desc *desc) {
    const ebb_shape *logits = in_shape(desc, 0);
    const bool forward = desc->kind == EBB_OP_SOFTMAX_LOSS;
    bool ok = logits->n_dims == 2 && is_vector(in_shape(desc, 1), logits->dims[0]) &&
              ebb__kernel_in(desc, 1)->dtype == EBB_S32 && ebb__shape_equal(out_shape(desc, forward), logits);
    ok = ok && (!forward || (desc->n_out == 3 && is_vector(out_shape(desc, 0), 1) && is_vector(out_shape(desc, 2), 1)));
    return ok ? EBB_OK : fail_desc(desc, "shapes or types that do not belong together");
}

static ebb_status check_update(const ebb_kernel_desc *desc) {
    static const uint32_t n_states[] = {
        [EBB_OPT_SGD] = 0, [EBB_OPT_MOMENTUM] = 1, [EBB_OPT_NESTEROV] = 1, [EBB_OPT_ADAM] = 2, [EBB_OPT_ADAMW] = 2};
    const int32_t optimizer = desc->attr.optimizer;
    if (optimizer < 0 || optimizer > EBB_OPT_ADAMW || desc->n_inout != 1 + n_states[optimizer]) {
        return fail_desc(desc, "an optimizer with another number of states");
    }
    return all_shapes_equal(desc) ? EBB_OK : fail_desc(desc, "shapes that differ");
}

static ebb_status check_port(const ebb_kernel_desc *desc) {
    return desc->attr.port >= 0 ? EBB_OK : fail_desc(desc, "no such port");
}

/* One operator family a line. long: one switch over the table */
static ebb_status check_kind(const ebb_kernel_desc *desc) {
    const ebb_operand *in = desc->operand, *out = desc->operand + desc->n_in;
    switch (desc->kind) {
    case EBB_OP_FEED:
    case EBB_OP_FETCH: return check_port(desc);
    case EBB_OP_CONV:
        return check_conv(desc, (window_shapes){&in[0].shape, &in[1].shape, &out[0].shape},
                          desc->n_in > 2 ? &in[2] : NULL);
    case EBB_OP_CONV_BWD_DATA:
    case EBB_OP_CONV_BWD_DATA_ADD: /* out or inout */
        return check_conv(desc, (window_shapes){&out[0].shape, &in[1].shape, &in[0].shape}, NULL);
    case EBB_OP_CONV_BWD_WEIGHTS:
        return check_conv(desc, (window_shapes){&in[0].shape, &out[0].shape, &in[1].shape},
                          desc->n_out > 1 ? &out[1] : NULL);
    case EBB_OP_LINEAR:
        return check_linear(desc, (window_shapes){&in[0].shape, &in[1].shape, &out[0].shape},
                            desc->n_in > 2 ? &in[2] : NULL);
    case EBB_OP_LINEAR_BWD_DATA:
        return check_linear(desc, (window_shapes){&out[0].shape, &in[1].shape, &in[0].shape}, NULL);
    case EBB_OP_LINEAR_BWD_WEIGHTS:
        return check_linear(desc, (window_shapes){&in[0].shape, &out[0].shape, &in[1].shape},
                            desc->n_out > 1 ? &out[1] : NULL);
    case EBB_OP_BATCH_NORM:
    case EBB_OP_BATCH_NORM_INFER:
    case EBB_OP_BATCH_NORM_BWD: return check_batch_norm(desc);
    case EBB_OP_MAX_POOL:
    case EBB_OP_AVG_POOL: return check_pool(desc, &in[0].shape, &out[0].shape);
    case EBB_OP_MAX_POOL_BWD:
    case EBB_OP_AVG_POOL_BWD: return check_pool(desc, &out[0].shape, &in[0].shape);
    case EBB_OP_LRN:
    case EBB_OP_LRN_BWD:
        if (desc->attr.size < 1 || in[0].shape.n_dims < 2) { return fail_desc(desc, "no channels to go across"); }
        return all_shapes_equal(desc) ? EBB_OK : fail_desc(desc, "shapes that differ");
    case EBB_OP_BATCH_NORM_STATS:
        if (desc->attr.size < 1) { return fail_desc(desc, "statistics of no values"); }
        return all_shapes_equal(desc) ? EBB_OK : fail_desc(desc, "shapes that differ");
    case EBB_OP_RELU:
    case EBB_OP_RELU_BWD:
    case EBB_OP_DROPOUT:
    case EBB_OP_DROPOUT_BWD:
    case EBB_OP_ADD:
    case EBB_OP_REORDER: return all_shapes_equal(desc) ? EBB_OK : fail_desc(desc, "shapes that differ");
    case EBB_OP_CONCAT:
    case EBB_OP_SLICE: return check_channels(desc);
    case EBB_OP_RESHAPE:
        return ebb__shape_elements(&in[0].shape) == ebb__shape_elements(&out[0].shape)
                   ? EBB_OK
                   : fail_desc(desc, "another number of elements");
    case EBB_OP_SOFTMAX_LOSS:
    case EBB_OP_SOFTMAX_LOSS_BWD: return check_loss(desc);
    case EBB_OP_UPDATE: return check_update(desc);
    case EBB_N_OPS: break;
    }
    return ebb_fail(EBB_E_ARGUMENT, "no operator %d", (int)desc->kind);
}

ebb_status ebb__kernel_check(const ebb_kernel_desc *desc) {
    EBB_TRY(check_counts(desc));
    EBB_TRY(check_operands(desc));
    EBB_TRY(check_types(desc));
    return check_kind(desc);
}

ebb_status ebb__kernel_check_labels(const int32_t *labels, int64_t n_images, int64_t n_classes) {
    for (int64_t i = 0; i < n_images; i++) {
        if (labels[i] < 0 || labels[i] >= n_classes) {
            return ebb_fail(EBB_E_ARGUMENT, "label %d of image %lld is not in [0, %lld)", (int)labels[i], (long long)i,
                            (long long)n_classes);
        }
    }
    return EBB_OK;
}

ebb_status ebb__kernel_all_plain(ebb_device *device, const ebb_kernel_desc *desc, ebb_layout *layouts_out) {
    for (uint32_t i = 0; i < ebb__kernel_n_operands(desc); i++) {
        const ebb_operand *o = &desc->operand[i];
        EBB_TRY(device->ops->layout_plain(device, o->dtype, &o->shape, &layouts_out[i]));
    }
    return EBB_OK;
}
