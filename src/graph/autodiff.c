/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation: the forward operators backwards, each adding the operators that turn the
 * gradient of its result into the gradients of its inputs.
 *
 * A value that several operators read gets one contribution from each. Two whole contributions are joined by an
 * ADD. What a CONCAT hands to one of its parts is a slice of the concat's gradient, and it is kept as such, 'these
 * channels of that value', until someone needs it: then one SLICE makes it, and when another contribution has come
 * meanwhile the same SLICE adds it. So dense blocks pay one pass over memory per layer, not two, and a concat of
 * concats costs nothing.
 *
 * Invariants
 *  1. grad[v] is complete when the walk reaches v's maker: all of v's readers stand after the maker.
 *  2. Nothing is made for values that depend on no parameter (the images).
 *  3. Of two backward operators of a layer the weights' comes first: it is the last reader of the layer's input, which
 *     can go before the gradient of its size comes.
 */
#include "graph/graph_priv.h"

/* The gradient so far: all of value, or as many channels of it as the owner has, from offset on. */
typedef struct pending {
    ebb_value value;
    int32_t offset; /* WHOLE: not a slice */
} pending;
#define WHOLE (-1)

typedef struct diff {
    ebb_graph *graph;
    pending *grad; /* [n_values of the forward graph] */
    bool *needs;   /* [the same]: depends on a parameter */
} diff;

static const ebb_value_info *info_of(const diff *d, ebb_value value) {
    return &d->graph->values.data[value];
}

/* A new value for the gradient of `of`. */
static ebb_status make_gradient(diff *d, ebb_value of, const char *suffix, ebb_value *value_out) {
    const ebb_value_info *forward = info_of(d, of);
    bool parameter = forward->kind == EBB_VALUE_PARAMETER;
    ebb_value_info info = {
        .shape = forward->shape, .kind = parameter ? EBB_VALUE_GRADIENT : EBB_VALUE_TEMPORARY, .of = of};
    return ebb__graph_add_value(d->graph, forward->name, suffix, &info, value_out);
}

/* Add back, a backward operator of the layer `forward`, whose name becomes forward's with the suffix. */
static ebb_status emit(diff *d, const ebb_op *back, const char *forward, const char *suffix) {
    ebb_op op = *back;
    op.phase = EBB_PHASE_BACKWARD;
    op.name = ebb__graph_join(d->graph, forward, suffix);
    return op.name == NULL ? EBB_E_NO_MEMORY : ebb__graph_add_op(d->graph, &op);
}

/* ---- contributions ---------------------------------------------------------------------------- */

/* Channels [offset, ...) of src, plus acc unless that is EBB_NO_VALUE, as of's gradient. */
static ebb_status emit_slice(diff *d, ebb_value of, pending slice, ebb_value acc, ebb_value *value_out) {
    ebb_value dst;
    EBB_TRY(make_gradient(d, of, acc != EBB_NO_VALUE ? ".grad_sum" : ".grad", &dst));
    ebb_op op = {.kind = EBB_OP_SLICE,
                 .n_in = acc != EBB_NO_VALUE ? 2 : 1,
                 .n_out = 1,
                 .in = (ebb_value[]){slice.value, acc},
                 .out = &dst,
                 .attr = {.offset = slice.offset}};
    EBB_TRY(emit(d, &op, info_of(d, of)->name, acc != EBB_NO_VALUE ? ".slice_add" : ".slice"));
    *value_out = dst;
    return EBB_OK;
}

static ebb_status emit_add(diff *d, ebb_value of, ebb_value a, ebb_value b, ebb_value *value_out) {
    ebb_value dst;
    EBB_TRY(make_gradient(d, of, ".grad_sum", &dst));
    ebb_op op = {.kind = EBB_OP_ADD, .n_in = 2, .n_out = 1, .in = (ebb_value[]){a, b}, .out = &dst};
    EBB_TRY(emit(d, &op, info_of(d, of)->name, ".grad_add"));
    *value_out = dst;
    return EBB_OK;
}

/* Make a pending slice a value. */
static ebb_status settle(diff *d, ebb_value of) {
    pending *p = &d->grad[of];
    if (p->offset == WHOLE) { return EBB_OK; }
    EBB_TRY(emit_slice(d, of, *p, EBB_NO_VALUE, &p->value));
    p->offset = WHOLE;
    return EBB_OK;
}

static ebb_status contribute(diff *d, ebb_value of, pending more) {
    if (!d->needs[of]) { return EBB_OK; }
    pending *have = &d->grad[of];
    if (have->value == EBB_NO_VALUE) {
        *have = more;
        return EBB_OK;
    }
    if (more.offset != WHOLE) {
        EBB_TRY(settle(d, of));
        return emit_slice(d, of, more, have->value, &have->value);
    }
    if (have->offset == WHOLE) { return emit_add(d, of, have->value, more.value, &have->value); }
    EBB_TRY(emit_slice(d, of, *have, more.value, &have->value));
    have->offset = WHOLE;
    return EBB_OK;
}

static ebb_status contribute_whole(diff *d, ebb_value of, ebb_value value) {
    return contribute(d, of, (pending){value, WHOLE});
}

/* ---- operators -------------------------------------------------------------------------------- */

/* The gradient before the ReLU that is fused to op's end, or diff_dst itself. */
static ebb_status before_relu(diff *d, const ebb_op *op, ebb_value *diff_dst) {
    if (op->attr.relu == 0) { return EBB_OK; }
    ebb_value diff_src;
    EBB_TRY(make_gradient(d, op->out[0], ".grad_relu", &diff_src));
    ebb_op back = {
        .kind = EBB_OP_RELU_BWD, .n_in = 2, .n_out = 1, .in = (ebb_value[]){*diff_dst, op->out[0]}, .out = &diff_src};
    EBB_TRY(emit(d, &back, op->name, ".relu_bwd"));
    *diff_dst = diff_src;
    return EBB_OK;
}

/* Conv and linear alike: weights, then data. */
static ebb_status differentiate_weighted(diff *d, const ebb_op *op, ebb_value diff_dst) {
    bool conv = op->kind == EBB_OP_CONV;
    ebb_op back = {.attr = op->attr, .in = (ebb_value[]){op->in[0], diff_dst}, .n_in = 2};
    EBB_TRY(before_relu(d, op, &back.in[1]));
    back.attr.relu = 0;
    diff_dst = back.in[1];

    ebb_value out[2];
    back.kind = conv ? EBB_OP_CONV_BWD_WEIGHTS : EBB_OP_LINEAR_BWD_WEIGHTS;
    back.n_out = op->n_in - 1;
    back.out = out;
    for (uint32_t i = 0; i < back.n_out; i++) { EBB_TRY(make_gradient(d, op->in[1 + i], ".grad", &out[i])); }
    EBB_TRY(emit(d, &back, op->name, ".bwd_weights"));
    for (uint32_t i = 0; i < back.n_out; i++) { EBB_TRY(contribute_whole(d, op->in[1 + i], out[i])); }

    if (!d->needs[op->in[0]]) { return EBB_OK; }
    back.kind = conv ? EBB_OP_CONV_BWD_DATA : EBB_OP_LINEAR_BWD_DATA;
    back.in = (ebb_value[]){diff_dst, op->in[1]};
    back.n_out = 1;
    EBB_TRY(make_gradient(d, op->in[0], ".grad", &out[0]));
    EBB_TRY(emit(d, &back, op->name, ".bwd_data"));
    return contribute_whole(d, op->in[0], out[0]);
}

static ebb_status differentiate_batch_norm(diff *d, const ebb_op *op, ebb_value diff_dst) {
    ebb_value out[3];
    for (uint32_t i = 0; i < 3; i++) { EBB_TRY(make_gradient(d, op->in[i], ".grad", &out[i])); }
    bool relu = op->attr.relu != 0;
    EBB_ASSERT(op->n_out == (relu ? 4u : 3u));
    ebb_op back = {
        .kind = EBB_OP_BATCH_NORM_BWD,
        .n_in = relu ? 6 : 5,
        .n_out = 3,
        .in = (ebb_value[]){op->in[0], diff_dst, op->out[1], op->out[2], op->in[1], relu ? op->out[3] : EBB_NO_VALUE},
        .out = out,
        .attr = op->attr};
    EBB_TRY(emit(d, &back, op->name, ".bwd"));
    for (uint32_t i = 0; i < 3; i++) { EBB_TRY(contribute_whole(d, op->in[i], out[i])); }
    return EBB_OK;
}

/* One gradient in, one out; in[1] and in[2] of the backward operator as given, EBB_NO_VALUE for none. */
static ebb_status differentiate_unary(diff *d, const ebb_op *op, ebb_op_kind kind, const ebb_value in[3]) {
    ebb_value diff_src;
    if (!d->needs[op->in[0]]) { return EBB_OK; }
    EBB_TRY(make_gradient(d, op->in[0], ".grad", &diff_src));
    ebb_op back = {.kind = kind,
                   .n_out = 1,
                   .in = (ebb_value *)in,
                   .out = &diff_src,
                   .attr = op->attr,
                   .rng_stream = op->rng_stream};
    while (back.n_in < 3 && in[back.n_in] != EBB_NO_VALUE) { back.n_in++; }
    EBB_TRY(emit(d, &back, op->name, ".bwd"));
    return contribute_whole(d, op->in[0], diff_src);
}

static ebb_status differentiate_add(diff *d, const ebb_op *op, ebb_value diff_dst) {
    EBB_TRY(before_relu(d, op, &diff_dst));
    EBB_TRY(contribute_whole(d, op->in[0], diff_dst));
    return contribute_whole(d, op->in[1], diff_dst);
}

/* Each part's gradient is a slice; of a gradient that is a slice itself, one further in. */
static ebb_status differentiate_concat(diff *d, const ebb_op *op) {
    pending part = d->grad[op->out[0]];
    if (part.offset == WHOLE) { part.offset = 0; }
    if (op->n_in == 1) { return contribute(d, op->in[0], d->grad[op->out[0]]); }
    for (uint32_t i = 0; i < op->n_in; i++) {
        EBB_TRY(contribute(d, op->in[i], part));
        part.offset += (int32_t)info_of(d, op->in[i])->shape.dims[1];
    }
    return EBB_OK;
}

/* long: one switch */
static ebb_status differentiate_op(diff *d, const ebb_op *op) {
    if (op->kind == EBB_OP_CONCAT) { return differentiate_concat(d, op); }
    EBB_TRY(settle(d, op->out[0]));
    ebb_value diff_dst = d->grad[op->out[0]].value;
    const ebb_value none = EBB_NO_VALUE;
    switch (op->kind) {
    case EBB_OP_CONV:
    case EBB_OP_LINEAR: return differentiate_weighted(d, op, diff_dst);
    case EBB_OP_BATCH_NORM: return differentiate_batch_norm(d, op, diff_dst);
    case EBB_OP_RELU: return differentiate_unary(d, op, EBB_OP_RELU_BWD, (ebb_value[]){diff_dst, op->out[0], none});
    case EBB_OP_MAX_POOL:
        return differentiate_unary(d, op, EBB_OP_MAX_POOL_BWD, (ebb_value[]){diff_dst, op->out[1], none});
    case EBB_OP_AVG_POOL: return differentiate_unary(d, op, EBB_OP_AVG_POOL_BWD, (ebb_value[]){diff_dst, none, none});
    case EBB_OP_LRN: return differentiate_unary(d, op, EBB_OP_LRN_BWD, (ebb_value[]){op->in[0], diff_dst, op->out[1]});
    case EBB_OP_DROPOUT: return differentiate_unary(d, op, EBB_OP_DROPOUT_BWD, (ebb_value[]){diff_dst, none, none});
    case EBB_OP_RESHAPE: return differentiate_unary(d, op, EBB_OP_RESHAPE, (ebb_value[]){diff_dst, none, none});
    case EBB_OP_ADD: return differentiate_add(d, op, diff_dst);
    default: return ebb_fail(EBB_E_INTERNAL, "%s: %s has no derivative", op->name, ebb__op_name(op->kind));
    }
}

/* ---- the walk --------------------------------------------------------------------------------- */

static void find_needs(diff *d) {
    for (size_t i = 0; i < d->graph->ops.n; i++) {
        const ebb_op *op = &d->graph->ops.data[i];
        bool needs = false;
        for (uint32_t k = 0; k < op->n_in; k++) {
            if (info_of(d, op->in[k])->kind == EBB_VALUE_PARAMETER) { d->needs[op->in[k]] = true; }
            needs = needs || d->needs[op->in[k]];
        }
        for (uint32_t k = 0; k < op->n_out; k++) { d->needs[op->out[k]] = needs; }
    }
}

static ebb_status walk(diff *d, size_t n_forward) {
    for (size_t i = n_forward; i-- > 0;) {
        ebb_op op = d->graph->ops.data[i]; /* by value: the array grows */
        if (op.kind == EBB_OP_SOFTMAX_LOSS) {
            EBB_TRY(
                differentiate_unary(d, &op, EBB_OP_SOFTMAX_LOSS_BWD, (ebb_value[]){op.out[1], op.in[1], EBB_NO_VALUE}));
            continue;
        }
        bool wanted = op.n_out > 0 && d->needs[op.out[0]] && d->grad[op.out[0]].value != EBB_NO_VALUE;
        if (wanted) { EBB_TRY(differentiate_op(d, &op)); }
    }
    return EBB_OK;
}

ebb_status ebb__graph_differentiate(ebb_graph *graph) {
    EBB_ASSERT(!graph->differentiated && graph->loss != EBB_NO_VALUE);
    size_t n_values = graph->values.n;
    diff d = {.graph = graph};
    ebb_status st = EBB_E_NO_MEMORY;
    d.grad = ebb__alloc(graph->mem, n_values, sizeof *d.grad);
    d.needs = ebb__calloc(graph->mem, n_values, sizeof *d.needs);
    if (d.grad == NULL || d.needs == NULL) { goto out; }
    for (size_t v = 0; v < n_values; v++) { d.grad[v] = (pending){EBB_NO_VALUE, WHOLE}; }
    find_needs(&d);
    st = EBB_OK;
    if (!d.needs[graph->loss]) { st = ebb_fail(EBB_E_ARGUMENT, "the loss depends on no parameter"); }
    if (st == EBB_OK) { st = walk(&d, graph->ops.n); }
    if (st == EBB_OK) { graph->differentiated = true; }
out:
    ebb__free(graph->mem, d.grad);
    ebb__free(graph->mem, d.needs);
    return st;
}
