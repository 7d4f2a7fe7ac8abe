/* SPDX-License-Identifier: Apache-2.0
 *
 * Builder calls for the operators without a window: linear, batch-norm, ReLU, LRN, dropout, add, concat,
 * flatten, the loss, and what comes from outside. Each public call is begin, a static function that may fail,
 * end; the pattern keeps 'the graph remembers the first failure' in one place.
 *
 * A graph for inference gets other operators here already (BATCH_NORM_INFER, no dropout, nothing kept for
 * backward), so no later pass needs to know of it.
 */
#include "graph/graph_priv.h"

#include <math.h>

static const ebb_shape *shape_of(const ebb_graph *graph, ebb_value value) {
    return &graph->values.data[value].shape;
}

/* ---- from outside, to outside ----------------------------------------------------------------- */

static ebb_status add_port(ebb_graph *graph, const char *name, ebb_value value, bool is_input, int32_t *port_out) {
    const ebb_value_info *info = &graph->values.data[value];
    ebb_port port = {.name = name,
                     .value = value,
                     .dtype = info->dtype,
                     .is_input = is_input,
                     .n_dims = (uint32_t)info->shape.n_dims,
                     .size_bytes = (uint64_t)ebb__shape_elements(&info->shape) * ebb_dtype_bytes(info->dtype)};
    memcpy(port.dims, info->shape.dims, sizeof port.dims);
    if (graph->ports.n >= INT32_MAX) { return ebb_fail(EBB_E_LIMIT, "2^31 - 1 ports or more"); }
    *port_out = (int32_t)graph->ports.n;
    return EBB_PUSH(graph->mem, &graph->ports, port);
}

static ebb_status check_port(const ebb_graph *graph, const char *name) {
    if (ebb__graph_port(graph, name) != NULL) { return ebb_fail(EBB_E_ARGUMENT, "the graph has its %s already", name); }
    return EBB_OK;
}

/* FEEDs stand before everything else, in whatever order the caller asks for them. */
static ebb_status add_input(ebb_graph *graph, const char *name, ebb_dtype dtype, ebb_shape shape,
                            ebb_value *value_out) {
    EBB_TRY(check_port(graph, name));
    const ebb_value_info info = {.shape = shape, .dtype = dtype, .kind = EBB_VALUE_INPUT};
    ebb_value value;
    EBB_TRY(ebb__graph_add_value(graph, name, "", &info, &value));
    ebb_op op = {.kind = EBB_OP_FEED, .name = name, .n_out = 1, .out = &value};
    EBB_TRY(add_port(graph, name, value, true, &op.attr.port));
    EBB_TRY(ebb__graph_add_op(graph, &op));
    size_t place = 0;
    while (graph->ops.data[place].kind == EBB_OP_FEED && place + 1 < graph->ops.n) { place++; }
    ebb_op feed = graph->ops.data[graph->ops.n - 1];
    memmove(&graph->ops.data[place + 1], &graph->ops.data[place], (graph->ops.n - 1 - place) * sizeof feed);
    graph->ops.data[place] = feed;
    *value_out = value;
    return EBB_OK;
}

static ebb_status add_any_input(ebb_graph *graph, const char *name, ebb_dtype dtype, const int64_t *dims, size_t n_dims,
                                ebb_value *value_out) {
    if ((unsigned)dtype >= EBB_N_DTYPES) { return ebb_fail(EBB_E_ARGUMENT, "%s: no such type of elements", name); }
    if (dims == NULL || n_dims < 1 || n_dims > 4) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: %zu dimensions; 1 to 4 work", name, n_dims);
    }
    ebb_shape shape = {.n_dims = (int32_t)n_dims};
    memcpy(shape.dims, dims, n_dims * sizeof *dims);
    return add_input(graph, name, dtype, shape, value_out);
}

/* A port is nothing without a name, and the frame would make one up. */
static bool begin_port(ebb_graph *graph, ebb_op_kind kind, const char **name) {
    if (graph != NULL && *name == NULL) {
        (void)ebb__graph_end(graph, ebb_fail(EBB_E_ARGUMENT, "a port needs a name"));
        return false;
    }
    return ebb__graph_begin(graph, kind, name);
}

ebb_value ebb_graph_input(ebb_graph *graph, const char *name, ebb_dtype dtype, const int64_t *dims, size_t n_dims) {
    ebb_value value = EBB_NO_VALUE;
    if (begin_port(graph, EBB_OP_FEED, &name)) {
        (void)ebb__graph_end(graph, add_any_input(graph, name, dtype, dims, n_dims, &value));
    }
    return value;
}

ebb_value ebb_graph_images(ebb_graph *graph, int64_t n, int64_t channels, int64_t height, int64_t width) {
    return ebb_graph_input(graph, "images", EBB_F32, (const int64_t[]){n, channels, height, width}, 4);
}

static ebb_status add_labels(ebb_graph *graph, const char *name, int64_t n, int64_t classes, ebb_value *value_out) {
    if (classes < 1 || classes > INT32_MAX) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: %lld classes", name, (long long)classes);
    }
    EBB_TRY(add_input(graph, name, EBB_S32, ebb__shape_1d(n), value_out));
    graph->ports.data[graph->ports.n - 1].below = graph->classes = classes;
    return EBB_OK;
}

ebb_value ebb_graph_labels(ebb_graph *graph, int64_t n, int64_t classes) {
    ebb_value value = EBB_NO_VALUE;
    const char *name = "labels";
    if (ebb__graph_begin(graph, EBB_OP_FEED, &name)) {
        (void)ebb__graph_end(graph, add_labels(graph, name, n, classes, &value));
    }
    return value;
}

static ebb_status add_output(ebb_graph *graph, const char *name, ebb_value value) {
    EBB_TRY(check_port(graph, name));
    if (value >= graph->values.n) { return ebb_fail(EBB_E_ARGUMENT, "%s: it is no value of this graph", name); }
    if (graph->values.data[value].opaque) { return ebb_fail(EBB_E_ARGUMENT, "%s: only a device can read it", name); }
    ebb_op op = {.kind = EBB_OP_FETCH, .name = ebb__graph_join(graph, "fetch_", name), .n_in = 1, .in = &value};
    if (op.name == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(add_port(graph, name, value, false, &op.attr.port));
    return ebb__graph_add_op(graph, &op);
}

ebb_value ebb_graph_output(ebb_graph *graph, const char *name, ebb_value value) {
    if (!begin_port(graph, EBB_OP_FETCH, &name)) { return EBB_NO_VALUE; }
    return ebb__graph_end(graph, add_output(graph, name, value)) == EBB_OK ? value : EBB_NO_VALUE;
}

static ebb_status check_loss(const ebb_graph *graph, const char *name, ebb_value logits, ebb_value labels) {
    if (graph->loss != EBB_NO_VALUE) { return ebb_fail(EBB_E_ARGUMENT, "the graph has its loss already"); }
    const ebb_port *port = ebb__graph_port(graph, "labels");
    if (port == NULL || labels != port->value) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: its labels are not the graph's", name);
    }
    EBB_TRY(ebb__graph_check_src(graph, name, logits, 2, 2));
    const ebb_shape *shape = shape_of(graph, logits);
    if (shape->dims[0] != shape_of(graph, labels)->dims[0] || shape->dims[1] != graph->classes) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: logits of %lld by %lld for %lld labels of %lld classes", name,
                        (long long)shape->dims[0], (long long)shape->dims[1],
                        (long long)shape_of(graph, labels)->dims[0], (long long)graph->classes);
    }
    return EBB_OK;
}

static ebb_status add_loss(ebb_graph *graph, const char *name, ebb_value logits, ebb_value labels,
                           ebb_value *loss_out) {
    EBB_TRY(check_loss(graph, name, logits, labels));
    ebb_value_info scalar = {.shape = ebb__shape_1d(1)};
    ebb_value_info table = {.shape = *shape_of(graph, logits)};
    ebb_value out[3];
    EBB_TRY(ebb__graph_add_value(graph, name, "", &scalar, &out[0]));
    EBB_TRY(ebb__graph_add_value(graph, name, ".probabilities", &table, &out[1]));
    EBB_TRY(ebb__graph_add_value(graph, name, ".correct", &scalar, &out[2]));
    ebb_op op = {.kind = EBB_OP_SOFTMAX_LOSS,
                 .name = name,
                 .n_in = 2,
                 .n_out = 3,
                 .in = (ebb_value[]){logits, labels},
                 .out = out};
    EBB_TRY(ebb__graph_add_op(graph, &op));
    EBB_TRY(add_output(graph, "loss", out[0]));
    EBB_TRY(add_output(graph, "correct", out[2]));
    graph->loss = out[0];
    *loss_out = out[0];
    return EBB_OK;
}

ebb_value ebb_graph_softmax_loss(ebb_graph *graph, ebb_value logits, ebb_value labels) {
    ebb_value loss = EBB_NO_VALUE;
    const char *name = "loss";
    if (ebb__graph_begin(graph, EBB_OP_SOFTMAX_LOSS, &name)) {
        (void)ebb__graph_end(graph, add_loss(graph, name, logits, labels, &loss));
    }
    return loss;
}

/* ---- layers with parameters ------------------------------------------------------------------- */

static ebb_status add_linear(ebb_graph *graph, const ebb_op *base, int64_t out_features, bool bias,
                             ebb_value *dst_out) {
    ebb_value in[3] = {base->in[0]};
    EBB_TRY(ebb__graph_check_src(graph, base->name, in[0], 2, 4));
    if (out_features < 1) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: %lld output features", base->name, (long long)out_features);
    }
    ebb_shape src = *shape_of(graph, in[0]);
    int64_t in_features = ebb__shape_elements(&src) / src.dims[0];
    float bound = 1.0f / sqrtf((float)in_features);
    ebb_value_info info = {.shape = ebb__shape_2d(out_features, in_features),
                           .kind = EBB_VALUE_PARAMETER,
                           .init = EBB_INIT_UNIFORM,
                           .init_scale = bound};
    EBB_TRY(ebb__graph_add_value(graph, base->name, ".weight", &info, &in[1]));
    info.shape = ebb__shape_1d(out_features);
    if (bias) { EBB_TRY(ebb__graph_add_value(graph, base->name, ".bias", &info, &in[2])); }
    ebb_op op = {.kind = EBB_OP_LINEAR, .name = base->name, .n_in = bias ? 3 : 2, .in = in};
    ebb_shape dst = ebb__shape_2d(src.dims[0], out_features);
    return ebb__graph_add_layer(graph, &op, &dst, dst_out);
}

ebb_value ebb_graph_linear(ebb_graph *graph, const char *name, ebb_value src, int64_t out_features, bool bias) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_LINEAR, &name)) {
        ebb_op base = {.name = name, .in = &src};
        (void)ebb__graph_end(graph, add_linear(graph, &base, out_features, bias, &dst));
    }
    return dst;
}

/* gamma, beta, running mean and variance, each (channels). */
static ebb_status add_norm_parameters(ebb_graph *graph, const char *name, int64_t channels, ebb_value out[4]) {
    static const struct {
        const char *suffix;
        ebb_value_kind kind;
        ebb_init init;
    } row[4] = {
        {".weight", EBB_VALUE_PARAMETER, EBB_INIT_ONE},
        {".bias", EBB_VALUE_PARAMETER, EBB_INIT_ZERO},
        {".running_mean", EBB_VALUE_BUFFER, EBB_INIT_ZERO},
        {".running_var", EBB_VALUE_BUFFER, EBB_INIT_ONE},
    };
    for (size_t i = 0; i < 4; i++) {
        ebb_value_info info = {.shape = ebb__shape_1d(channels), .kind = row[i].kind, .init = row[i].init};
        EBB_TRY(ebb__graph_add_value(graph, name, row[i].suffix, &info, &out[i]));
    }
    return EBB_OK;
}

/* The statistics of the batch, then the step that moves the running ones: an op of its own, so that the
 * normalisation can be run again without moving them twice. */
static ebb_status add_norm_training(ebb_graph *graph, const ebb_op *base, const ebb_value param[4],
                                    ebb_value *dst_out) {
    ebb_value_info like_src = {.shape = *shape_of(graph, base->in[0])};
    ebb_value_info statistic = {.shape = *shape_of(graph, param[0])};
    ebb_value out[3];
    EBB_TRY(ebb__graph_add_value(graph, base->name, "", &like_src, &out[0]));
    EBB_TRY(ebb__graph_add_value(graph, base->name, ".mean", &statistic, &out[1]));
    EBB_TRY(ebb__graph_add_value(graph, base->name, ".variance", &statistic, &out[2]));
    ebb_op norm = {.kind = EBB_OP_BATCH_NORM,
                   .name = base->name,
                   .n_in = 3,
                   .n_out = 3,
                   .in = (ebb_value[]){base->in[0], param[0], param[1]},
                   .out = out,
                   .attr = {.epsilon = base->attr.epsilon}};
    EBB_TRY(ebb__graph_add_op(graph, &norm));
    ebb_op stats = {.kind = EBB_OP_BATCH_NORM_STATS,
                    .name = ebb__graph_join(graph, base->name, ".stats"),
                    .n_in = 2,
                    .n_inout = 2,
                    .in = &out[1],
                    .inout = (ebb_value[]){param[2], param[3]},
                    .attr = {.momentum = base->attr.momentum, .size = base->attr.size}};
    if (stats.name == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__graph_add_op(graph, &stats));
    *dst_out = out[0];
    return EBB_OK;
}

static ebb_status check_norm(const ebb_graph *graph, const ebb_op *base, int64_t n_per_channel) {
    if (!(base->attr.epsilon > 0.0f) || !(base->attr.momentum >= 0.0f && base->attr.momentum <= 1.0f)) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: epsilon must be above 0 and momentum in [0, 1]", base->name);
    }
    if (n_per_channel > INT32_MAX) {
        return ebb_fail(EBB_E_LIMIT, "%s: more than 2^31 values per channel", base->name);
    }
    if (n_per_channel == 1 && !graph->inference) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: a batch of one 1x1 image has no variance; take a larger batch or image",
                        base->name);
    }
    return EBB_OK;
}

static ebb_status add_batch_norm(ebb_graph *graph, ebb_op *base, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, base->name, base->in[0], 2, 4));
    ebb_shape src = *shape_of(graph, base->in[0]);
    int64_t n_per_channel = ebb__shape_elements(&src) / src.dims[1];
    EBB_TRY(check_norm(graph, base, n_per_channel));
    base->attr.size = (int32_t)n_per_channel;
    ebb_value param[4];
    EBB_TRY(add_norm_parameters(graph, base->name, src.dims[1], param));
    if (!graph->inference) { return add_norm_training(graph, base, param, dst_out); }
    ebb_op op = {.kind = EBB_OP_BATCH_NORM_INFER,
                 .name = base->name,
                 .n_in = 5,
                 .in = (ebb_value[]){base->in[0], param[0], param[1], param[2], param[3]},
                 .attr = {.epsilon = base->attr.epsilon}};
    return ebb__graph_add_layer(graph, &op, &src, dst_out);
}

ebb_value ebb_graph_batch_norm(ebb_graph *graph, const char *name, ebb_value src, float epsilon, float momentum) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_BATCH_NORM, &name)) {
        ebb_op base = {.name = name, .in = &src, .attr = {.epsilon = epsilon, .momentum = momentum}};
        (void)ebb__graph_end(graph, add_batch_norm(graph, &base, &dst));
    }
    return dst;
}

/* ---- layers without parameters ---------------------------------------------------------------- */

static ebb_status add_relu(ebb_graph *graph, const char *name, ebb_value src, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, name, src, 1, 4));
    ebb_op op = {.kind = EBB_OP_RELU, .name = name, .n_in = 1, .in = &src};
    ebb_shape shape = *shape_of(graph, src);
    return ebb__graph_add_layer(graph, &op, &shape, dst_out);
}

ebb_value ebb_graph_relu(ebb_graph *graph, const char *name, ebb_value src) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_RELU, &name)) { (void)ebb__graph_end(graph, add_relu(graph, name, src, &dst)); }
    return dst;
}

static ebb_status add_lrn(ebb_graph *graph, const ebb_op *op, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, op->name, op->in[0], 4, 4));
    if (op->attr.size < 1 || !(op->attr.k > 0.0f) || !(op->attr.alpha >= 0.0f)) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: size and k must be above 0 and alpha not negative", op->name);
    }
    ebb_shape shape = *shape_of(graph, op->in[0]);
    if (graph->inference) { return ebb__graph_add_layer(graph, op, &shape, dst_out); }
    ebb_value_info info = {.shape = shape};
    ebb_value out[2];
    EBB_TRY(ebb__graph_add_value(graph, op->name, "", &info, &out[0]));
    EBB_TRY(ebb__graph_add_opaque(graph, op->name, ".workspace", &shape, &out[1]));
    ebb_op full = *op;
    full.n_out = 2;
    full.out = out;
    EBB_TRY(ebb__graph_add_op(graph, &full));
    *dst_out = out[0];
    return EBB_OK;
}

/* Seven parameters: those of the formula. */
ebb_value ebb_graph_lrn(ebb_graph *graph, const char *name, ebb_value src, int32_t size, float alpha, float beta,
                        float k) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_LRN, &name)) {
        ebb_op op = {.kind = EBB_OP_LRN,
                     .name = name,
                     .n_in = 1,
                     .in = &src,
                     .attr = {.size = size, .alpha = alpha, .beta = beta, .k = k}};
        (void)ebb__graph_end(graph, add_lrn(graph, &op, &dst));
    }
    return dst;
}

static ebb_status add_dropout(ebb_graph *graph, const char *name, ebb_value src, float p, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, name, src, 1, 4));
    if (!(p >= 0.0f && p < 1.0f)) { return ebb_fail(EBB_E_ARGUMENT, "%s: p must be in [0, 1)", name); }
    if (graph->inference || p == 0.0f) {
        *dst_out = src;
        return EBB_OK;
    }
    uint64_t place = graph->ops.n; /* two layers of one name still draw different masks */
    uint64_t stream = ebb__hash(ebb__hash(EBB_HASH_INIT, name, strlen(name)), &place, sizeof place);
    ebb_op op = {.kind = EBB_OP_DROPOUT, .name = name, .n_in = 1, .in = &src, .attr = {.p = p}, .rng_stream = stream};
    ebb_shape shape = *shape_of(graph, src);
    return ebb__graph_add_layer(graph, &op, &shape, dst_out);
}

ebb_value ebb_graph_dropout(ebb_graph *graph, const char *name, ebb_value src, float p) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_DROPOUT, &name)) {
        (void)ebb__graph_end(graph, add_dropout(graph, name, src, p, &dst));
    }
    return dst;
}

static ebb_status add_add(ebb_graph *graph, const char *name, ebb_value in[2], ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, name, in[0], 1, 4));
    EBB_TRY(ebb__graph_check_src(graph, name, in[1], 1, 4));
    ebb_shape shape = *shape_of(graph, in[0]);
    if (!ebb__shape_equal(&shape, shape_of(graph, in[1]))) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: its two inputs have different shapes", name);
    }
    ebb_op op = {.kind = EBB_OP_ADD, .name = name, .n_in = 2, .in = in};
    return ebb__graph_add_layer(graph, &op, &shape, dst_out);
}

ebb_value ebb_graph_add(ebb_graph *graph, const char *name, ebb_value a, ebb_value b) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_ADD, &name)) {
        (void)ebb__graph_end(graph, add_add(graph, name, (ebb_value[2]){a, b}, &dst));
    }
    return dst;
}

static ebb_status add_concat(ebb_graph *graph, const ebb_op *op, ebb_value *dst_out) {
    if (op->n_in == 0 || op->in == NULL) { return ebb_fail(EBB_E_ARGUMENT, "%s: nothing to put together", op->name); }
    ebb_shape dst = {0};
    for (uint32_t i = 0; i < op->n_in; i++) {
        EBB_TRY(ebb__graph_check_src(graph, op->name, op->in[i], 2, 4));
        ebb_shape src = *shape_of(graph, op->in[i]);
        int64_t channels = dst.n_dims == 0 ? 0 : dst.dims[1];
        if (dst.n_dims == 0) { dst = src; }
        dst.dims[1] = src.dims[1]; /* the one dimension in which they may differ */
        if (!ebb__shape_equal(&dst, &src)) {
            return ebb_fail(EBB_E_ARGUMENT, "%s: input %u differs in more than channels", op->name, (unsigned)i);
        }
        dst.dims[1] = channels + src.dims[1];
    }
    if (dst.dims[1] > INT32_MAX) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^31 channels", op->name); }
    return ebb__graph_add_layer(graph, op, &dst, dst_out);
}

ebb_value ebb_graph_concat(ebb_graph *graph, const char *name, const ebb_value *src, size_t n_src) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_CONCAT, &name)) {
        ebb_op op = {.kind = EBB_OP_CONCAT, .name = name, .n_in = (uint32_t)n_src, .in = (ebb_value *)src};
        (void)ebb__graph_end(graph, add_concat(graph, &op, &dst));
    }
    return dst;
}

static ebb_status add_flatten(ebb_graph *graph, const char *name, ebb_value src, ebb_value *dst_out) {
    EBB_TRY(ebb__graph_check_src(graph, name, src, 2, 4));
    ebb_shape shape = *shape_of(graph, src);
    ebb_shape dst = ebb__shape_2d(shape.dims[0], ebb__shape_elements(&shape) / shape.dims[0]);
    ebb_op op = {.kind = EBB_OP_RESHAPE, .name = name, .n_in = 1, .in = &src};
    return ebb__graph_add_layer(graph, &op, &dst, dst_out);
}

ebb_value ebb_graph_flatten(ebb_graph *graph, const char *name, ebb_value src) {
    ebb_value dst = EBB_NO_VALUE;
    if (ebb__graph_begin(graph, EBB_OP_RESHAPE, &name)) {
        (void)ebb__graph_end(graph, add_flatten(graph, name, src, &dst));
    }
    return dst;
}

/* ---- how parameters begin --------------------------------------------------------------------- */

static void set_init(ebb_graph *graph, uint32_t operand, ebb_init init, float scale) {
    if (graph->status != EBB_OK) { return; }
    const ebb_op *op = &graph->ops.data[graph->ops.n - 1];
    EBB_ASSERT(op->kind == EBB_OP_CONV || op->kind == EBB_OP_LINEAR);
    EBB_ASSERT(operand < op->n_in);
    graph->values.data[op->in[operand]].init = init;
    graph->values.data[op->in[operand]].init_scale = scale;
}

void ebb__graph_init_weights(ebb_graph *graph, ebb_init init, float scale) {
    set_init(graph, 1, init, scale);
}

void ebb__graph_init_bias(ebb_graph *graph, ebb_init init, float scale) {
    set_init(graph, 2, init, scale);
}
