/* SPDX-License-Identifier: Apache-2.0
 *
 * The deep check of a graph against the contract in graph.h, by rules that builders and passes do not share: one
 * walk over the operators that notes what has been produced, and for each operator its operands' number, shape
 * and type.
 */
#include "graph/graph_priv.h"

typedef struct walk {
    const ebb_graph *graph;
    const ebb_op *op;
    uint8_t *produced; /* [n_values] */
    uint8_t *updated;  /* [n_values] */
    ebb_phase phase;   /* the latest of forward and backward seen */
} walk;

static ebb_status bad(const walk *w, const char *what) {
    return ebb_fail(EBB_E_INTERNAL, "%s: op %s (%s): %s", w->graph->name, w->op->name, ebb__op_name(w->op->kind), what);
}

static const ebb_value_info *value_of(const walk *w, ebb_value value) {
    return &w->graph->values.data[value];
}

static const ebb_shape *in_shape(const walk *w, uint32_t i) {
    return &value_of(w, w->op->in[i])->shape;
}

static const ebb_shape *out_shape(const walk *w, uint32_t i) {
    return &value_of(w, w->op->out[i])->shape;
}

/* ---- order and production (invariants 1 to 3) ------------------------------------------------- */

static ebb_status check_counts(const walk *w) {
    bool good = ebb__op_takes(w->op->kind, w->op->n_in, w->op->n_out, w->op->n_inout);
    return good ? EBB_OK : bad(w, "a wrong number of operands");
}

static ebb_status check_reads(const walk *w) {
    for (uint32_t k = 0; k < w->op->n_in; k++) {
        ebb_value v = w->op->in[k];
        if (v >= w->graph->values.n) { return bad(w, "reads no value"); }
        bool persistent = ebb__value_is_persistent(value_of(w, v)->kind);
        if (!persistent && !w->produced[v]) { return bad(w, "reads what is not made yet"); }
        if (persistent && w->updated[v]) { return bad(w, "reads a parameter after its update"); }
    }
    return EBB_OK;
}

static ebb_status check_writes(const walk *w) {
    for (uint32_t k = 0; k < w->op->n_out; k++) {
        ebb_value v = w->op->out[k];
        if (v >= w->graph->values.n) { return bad(w, "makes no value"); }
        if (w->produced[v]) { return bad(w, "makes a value again"); }
        if (ebb__value_is_persistent(value_of(w, v)->kind)) { return bad(w, "makes a persistent value"); }
        w->produced[v] = 1;
    }
    for (uint32_t k = 0; k < w->op->n_inout; k++) {
        ebb_value v = w->op->inout[k];
        if (v >= w->graph->values.n || !ebb__value_is_persistent(value_of(w, v)->kind)) {
            return bad(w, "changes what is not persistent");
        }
        if (w->updated[v]) { return bad(w, "changes a value that was changed"); }
        w->updated[v] = 1;
    }
    return EBB_OK;
}

static ebb_status check_phase(walk *w) {
    const ebb_op *op = w->op;
    if ((op->kind == EBB_OP_UPDATE) != (op->phase == EBB_PHASE_UPDATE)) { return bad(w, "is in a wrong phase"); }
    if (op->phase == EBB_PHASE_UPDATE) { return EBB_OK; }
    if (op->phase < w->phase) { return bad(w, "is a forward op after a backward one"); }
    w->phase = op->phase;
    return EBB_OK;
}

/* ---- shapes and types ------------------------------------------------------------------------- */

static bool vector_of(const ebb_shape *shape, int64_t n) {
    return shape->n_dims == 1 && shape->dims[0] == n;
}

static int64_t features(const ebb_shape *shape) {
    return ebb__shape_elements(shape) / shape->dims[0];
}

/* dst of a window over src, for convolutions and pools. */
static bool window_fits(const ebb_op_attr *attr, const ebb_shape *src, const ebb_shape *dst) {
    if (src->n_dims != 4 || dst->n_dims != 4 || src->dims[0] != dst->dims[0]) { return false; }
    for (int i = 0; i < 2; i++) {
        int64_t padded = src->dims[2 + i] + attr->pad_begin[i] + attr->pad_end[i];
        int64_t first = (int64_t)(dst->dims[2 + i] - 1) * attr->stride[i];
        int64_t end = first + (int64_t)attr->dilation[i] * (attr->kernel[i] - 1) + 1;
        if (end > padded || end + attr->stride[i] <= padded) { return false; }
    }
    return true;
}

static bool conv_fits(const ebb_op_attr *attr, const ebb_shape *src, const ebb_shape *weights, const ebb_shape *dst) {
    return window_fits(attr, src, dst) && weights->n_dims == 4 && weights->dims[0] == dst->dims[1] &&
           weights->dims[1] * attr->groups == src->dims[1] && weights->dims[2] == attr->kernel[0] &&
           weights->dims[3] == attr->kernel[1];
}

static bool linear_fits(const ebb_shape *src, const ebb_shape *weights, const ebb_shape *dst) {
    return weights->n_dims == 2 && dst->n_dims == 2 && src->dims[0] == dst->dims[0] &&
           dst->dims[1] == weights->dims[0] && features(src) == weights->dims[1];
}

static bool norm_fits(const walk *w) {
    const ebb_op *op = w->op;
    const ebb_shape *src = in_shape(w, 0);
    int64_t channels = src->dims[1];
    uint32_t n_statistics = op->kind == EBB_OP_BATCH_NORM_INFER ? 0 : 2;
    bool relu = op->attr.relu != 0;
    if (op->kind == EBB_OP_BATCH_NORM_BWD) {
        return op->n_in == (relu ? 6u : 5u) && ebb__shape_equal(in_shape(w, 1), src) &&
               vector_of(in_shape(w, 2), channels) && vector_of(in_shape(w, 4), channels) &&
               (!relu || value_of(w, op->in[5])->opaque) && op->n_out == 3 && ebb__shape_equal(out_shape(w, 0), src) &&
               vector_of(out_shape(w, 1), channels) && vector_of(out_shape(w, 2), channels);
    }
    bool mask = relu && op->kind == EBB_OP_BATCH_NORM;
    bool good = op->n_out == 1 + n_statistics + (mask ? 1 : 0) && ebb__shape_equal(out_shape(w, 0), src);
    for (uint32_t k = 1; k < op->n_in; k++) { good = good && vector_of(in_shape(w, k), channels); }
    for (uint32_t k = 1; k <= n_statistics; k++) { good = good && vector_of(out_shape(w, k), channels); }
    return good && (!mask || value_of(w, op->out[3])->opaque);
}

static bool concat_fits(const walk *w) {
    ebb_shape sum = *in_shape(w, 0);
    for (uint32_t k = 1; k < w->op->n_in; k++) { sum.dims[1] += in_shape(w, k)->dims[1]; }
    return ebb__shape_equal(&sum, out_shape(w, 0));
}

static bool slice_fits(const walk *w) {
    const ebb_shape *src = in_shape(w, 0), *dst = out_shape(w, 0);
    ebb_shape like = *src;
    like.dims[1] = dst->dims[1];
    return ebb__shape_equal(&like, dst) && w->op->attr.offset >= 0 &&
           w->op->attr.offset + dst->dims[1] <= src->dims[1] &&
           (w->op->n_in == 1 || ebb__shape_equal(in_shape(w, 1), dst));
}

static bool update_fits(const walk *w) {
    const ebb_value_info *gradient = value_of(w, w->op->in[0]);
    bool good = gradient->kind == EBB_VALUE_GRADIENT && gradient->of == w->op->inout[0] &&
                value_of(w, w->op->inout[0])->kind == EBB_VALUE_PARAMETER;
    for (uint32_t k = 0; k < w->op->n_inout; k++) {
        const ebb_value_info *info = value_of(w, w->op->inout[k]);
        good = good && ebb__shape_equal(&info->shape, &gradient->shape);
        good = good && (k == 0 || (info->kind == EBB_VALUE_STATE && info->of == w->op->inout[0]));
    }
    return good;
}

/* Weights' gradients have the weights' shape by `of`; a bias's is a vector. */
static bool weights_gradient_fits(const walk *w) {
    for (uint32_t k = 0; k < w->op->n_out; k++) {
        const ebb_value_info *info = value_of(w, w->op->out[k]);
        if (info->kind != EBB_VALUE_GRADIENT || info->of >= w->graph->values.n) { return false; }
        if (!ebb__shape_equal(&info->shape, &value_of(w, info->of)->shape)) { return false; }
    }
    return true;
}

static bool loss_fits(const walk *w) {
    const ebb_shape *logits = in_shape(w, 0);
    return w->op->n_out == 3 && value_of(w, w->op->in[1])->dtype == EBB_S32 &&
           vector_of(in_shape(w, 1), logits->dims[0]) && vector_of(out_shape(w, 0), 1) &&
           ebb__shape_equal(out_shape(w, 1), logits) && vector_of(out_shape(w, 2), 1);
}

static bool port_fits(const walk *w) {
    if (w->op->attr.port < 0 || (size_t)w->op->attr.port >= w->graph->ports.n) { return false; }
    const ebb_port *port = &w->graph->ports.data[w->op->attr.port];
    const bool is_input = w->op->kind == EBB_OP_FEED;
    return port->is_input == is_input && port->value == (is_input ? w->op->out[0] : w->op->in[0]);
}

static bool stats_fit(const walk *w) {
    return w->op->n_inout == 2 && w->op->attr.size >= 2 &&
           ebb__shape_equal(in_shape(w, 0), &value_of(w, w->op->inout[0])->shape) &&
           ebb__shape_equal(in_shape(w, 1), &value_of(w, w->op->inout[1])->shape);
}

/* long: one switch */
static bool shapes_fit(const walk *w) {
    const ebb_op *op = w->op;
    switch (op->kind) {
    case EBB_OP_CONV: return conv_fits(&op->attr, in_shape(w, 0), in_shape(w, 1), out_shape(w, 0));
    case EBB_OP_CONV_BWD_DATA: return conv_fits(&op->attr, out_shape(w, 0), in_shape(w, 1), in_shape(w, 0));
    case EBB_OP_CONV_BWD_WEIGHTS:
        return weights_gradient_fits(w) && conv_fits(&op->attr, in_shape(w, 0), out_shape(w, 0), in_shape(w, 1));
    case EBB_OP_LINEAR: return linear_fits(in_shape(w, 0), in_shape(w, 1), out_shape(w, 0));
    case EBB_OP_LINEAR_BWD_DATA: return linear_fits(out_shape(w, 0), in_shape(w, 1), in_shape(w, 0));
    case EBB_OP_LINEAR_BWD_WEIGHTS:
        return weights_gradient_fits(w) && linear_fits(in_shape(w, 0), out_shape(w, 0), in_shape(w, 1));
    case EBB_OP_BATCH_NORM:
    case EBB_OP_BATCH_NORM_INFER:
    case EBB_OP_BATCH_NORM_BWD: return norm_fits(w);
    case EBB_OP_BATCH_NORM_STATS: return stats_fit(w);
    case EBB_OP_MAX_POOL:
    case EBB_OP_AVG_POOL: return window_fits(&op->attr, in_shape(w, 0), out_shape(w, 0));
    case EBB_OP_MAX_POOL_BWD:
        return value_of(w, op->in[1])->opaque && window_fits(&op->attr, out_shape(w, 0), in_shape(w, 0));
    case EBB_OP_AVG_POOL_BWD: return window_fits(&op->attr, out_shape(w, 0), in_shape(w, 0));
    case EBB_OP_ADD:
    case EBB_OP_RELU_BWD:
    case EBB_OP_LRN_BWD:
        return ebb__shape_equal(in_shape(w, 0), in_shape(w, 1)) && ebb__shape_equal(in_shape(w, 0), out_shape(w, 0));
    case EBB_OP_RELU:
    case EBB_OP_LRN:
    case EBB_OP_DROPOUT:
    case EBB_OP_DROPOUT_BWD:
    case EBB_OP_SOFTMAX_LOSS_BWD: return ebb__shape_equal(in_shape(w, 0), out_shape(w, 0));
    case EBB_OP_CONCAT: return concat_fits(w);
    case EBB_OP_SLICE: return slice_fits(w);
    case EBB_OP_RESHAPE: return ebb__shape_elements(in_shape(w, 0)) == ebb__shape_elements(out_shape(w, 0));
    case EBB_OP_SOFTMAX_LOSS: return loss_fits(w);
    case EBB_OP_UPDATE: return update_fits(w);
    case EBB_OP_FEED:
    case EBB_OP_FETCH: return port_fits(w);
    default: return false;
    }
}

static ebb_status check_op(walk *w) {
    EBB_TRY(check_counts(w));
    EBB_TRY(check_phase(w));
    EBB_TRY(check_reads(w));
    EBB_TRY(check_writes(w));
    return shapes_fit(w) ? EBB_OK : bad(w, "operands of wrong shapes");
}

ebb_status ebb__graph_validate(const ebb_graph *graph) {
    walk w = {.graph = graph};
    ebb_status st = EBB_OK;
    w.produced = ebb__calloc(graph->mem, graph->values.n, 1);
    w.updated = ebb__calloc(graph->mem, graph->values.n, 1);
    if (w.produced == NULL || w.updated == NULL) { st = EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < graph->ops.n && st == EBB_OK; i++) {
        w.op = &graph->ops.data[i];
        st = check_op(&w);
    }
    ebb__free(graph->mem, w.produced);
    ebb__free(graph->mem, w.updated);
    return st;
}
