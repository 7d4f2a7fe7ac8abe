/* SPDX-License-Identifier: Apache-2.0
 *
 * From a forward graph to a training graph: simplify, differentiate, update. An update stands directly after
 * the last operator that reads its parameter or makes its gradient: the earliest legal place, after which
 * the gradient's memory is free.
 *
 * The new order is made in one pass: the parameters due after each operator form a list through next[].
 */
#include "graph/graph_priv.h"

typedef struct update_plan {
    ebb_value *gradient; /* [n_values]: of a parameter, or EBB_NO_VALUE */
    uint32_t *last;      /* [n_values]: the last op that reads the parameter or makes its gradient */
    ebb_value *first;    /* [n_ops]: the first parameter that is due after this op */
    ebb_value *next;     /* [n_values]: ... and the one after it */
    size_t n_updates;
} update_plan;

static void fini_plan(const ebb_graph *graph, update_plan *plan) {
    ebb__free(graph->mem, plan->gradient);
    ebb__free(graph->mem, plan->last);
    ebb__free(graph->mem, plan->first);
    ebb__free(graph->mem, plan->next);
}

static ebb_status init_plan(const ebb_graph *graph, update_plan *plan) {
    size_t n_values = graph->values.n, n_ops = graph->ops.n;
    *plan = (update_plan){0};
    plan->gradient = ebb__alloc(graph->mem, n_values, sizeof *plan->gradient);
    plan->last = ebb__calloc(graph->mem, n_values, sizeof *plan->last);
    plan->first = ebb__alloc(graph->mem, n_ops, sizeof *plan->first);
    plan->next = ebb__alloc(graph->mem, n_values, sizeof *plan->next);
    if (plan->gradient == NULL || plan->last == NULL || plan->first == NULL || plan->next == NULL) {
        fini_plan(graph, plan);
        return EBB_E_NO_MEMORY;
    }
    for (size_t v = 0; v < n_values; v++) { plan->gradient[v] = plan->next[v] = EBB_NO_VALUE; }
    for (size_t i = 0; i < n_ops; i++) { plan->first[i] = EBB_NO_VALUE; }
    return EBB_OK;
}

/* Where each update goes. A parameter's gradient is whole at the last op that makes one of it: sums come later. */
static void place_updates(const ebb_graph *graph, update_plan *plan) {
    for (size_t i = 0; i < graph->ops.n; i++) {
        const ebb_op *op = &graph->ops.data[i];
        for (uint32_t k = 0; k < op->n_in; k++) { plan->last[op->in[k]] = (uint32_t)i; }
        for (uint32_t k = 0; k < op->n_out; k++) {
            const ebb_value_info *info = &graph->values.data[op->out[k]];
            if (info->kind != EBB_VALUE_GRADIENT) { continue; }
            plan->gradient[info->of] = op->out[k];
            plan->last[info->of] = (uint32_t)i;
        }
    }
    for (size_t v = graph->values.n; v-- > 0;) {
        if (plan->gradient[v] == EBB_NO_VALUE) { continue; }
        plan->next[v] = plan->first[plan->last[v]];
        plan->first[plan->last[v]] = (ebb_value)v;
        plan->n_updates++;
    }
}

/* Only what the kind reads, so that equal updates are equal bytes. */
static ebb_op_attr update_attr(const ebb_optimizer *optimizer) {
    ebb_op_attr attr = {.optimizer = (int32_t)optimizer->kind, .weight_decay = optimizer->weight_decay};
    if (optimizer->kind == EBB_OPT_MOMENTUM || optimizer->kind == EBB_OPT_NESTEROV) {
        attr.momentum = optimizer->momentum;
    }
    if (optimizer->kind == EBB_OPT_ADAM || optimizer->kind == EBB_OPT_ADAMW) {
        attr.beta1 = optimizer->beta1;
        attr.beta2 = optimizer->beta2;
        attr.epsilon = optimizer->epsilon;
    }
    return attr;
}

/* The parameter and its state: n_inout tensors of the same shape. */
static ebb_status make_operands(ebb_graph *graph, ebb_optimizer_kind kind, ebb_value param, ebb_value inout[3],
                                uint32_t *n_inout_out) {
    static const char *const momentum[] = {".momentum"};
    static const char *const adam[] = {".exp_avg", ".exp_avg_sq"};
    bool adaptive = kind == EBB_OPT_ADAM || kind == EBB_OPT_ADAMW;
    const char *const *suffix = adaptive ? adam : momentum;
    uint32_t n_states = adaptive ? 2 : kind == EBB_OPT_SGD ? 0 : 1;
    inout[0] = param;
    for (uint32_t i = 0; i < n_states; i++) {
        ebb_value_info info = {
            .shape = graph->values.data[param].shape, .kind = EBB_VALUE_STATE, .init = EBB_INIT_ZERO, .of = param};
        EBB_TRY(ebb__graph_add_value(graph, graph->values.data[param].name, suffix[i], &info, &inout[1 + i]));
    }
    *n_inout_out = 1 + n_states;
    return EBB_OK;
}

static ebb_status make_update(ebb_graph *graph, const ebb_optimizer *optimizer, ebb_value param, ebb_value gradient,
                              ebb_op *op_out) {
    ebb_value inout[3];
    ebb_op op = {.kind = EBB_OP_UPDATE,
                 .phase = EBB_PHASE_UPDATE,
                 .name = ebb__graph_join(graph, graph->values.data[param].name, ".update"),
                 .n_in = 1,
                 .in = &gradient,
                 .inout = inout,
                 .attr = update_attr(optimizer)};
    if (op.name == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(make_operands(graph, optimizer->kind, param, inout, &op.n_inout));
    return ebb__graph_copy_op(graph, &op, op_out);
}

/* Fill order, which has room for every op and update. */
static ebb_status weave(ebb_graph *graph, const ebb_optimizer *optimizer, const update_plan *plan, ebb_op *order) {
    size_t n = 0;
    for (size_t i = 0; i < graph->ops.n; i++) {
        order[n++] = graph->ops.data[i];
        for (ebb_value v = plan->first[i]; v != EBB_NO_VALUE; v = plan->next[v]) {
            EBB_TRY(make_update(graph, optimizer, v, plan->gradient[v], &order[n]));
            n++;
        }
    }
    EBB_ASSERT(n == graph->ops.n + plan->n_updates);
    return EBB_OK;
}

ebb_status ebb__graph_add_updates(ebb_graph *graph, const ebb_optimizer *optimizer) {
    update_plan plan;
    EBB_TRY(init_plan(graph, &plan));
    place_updates(graph, &plan);
    size_t n = graph->ops.n + plan.n_updates;
    ebb_op *order = NULL;
    ebb_status st = n < EBB_NO_OP ? EBB_OK : ebb_fail(EBB_E_LIMIT, "%s: too many operators", graph->name);
    if (st == EBB_OK) {
        order = ebb__alloc(graph->mem, n, sizeof *order);
        st = order == NULL ? EBB_E_NO_MEMORY : weave(graph, optimizer, &plan, order);
    }
    if (st == EBB_OK) {
        ebb__free(graph->mem, graph->ops.data);
        graph->ops.data = order;
        graph->ops.n = graph->ops.cap = n;
        order = NULL;
    }
    ebb__free(graph->mem, order);
    fini_plan(graph, &plan);
    return st;
}

static ebb_status check_trainable(const ebb_graph *graph, const ebb_optimizer *optimizer, bool keep_gradients) {
    if (optimizer != NULL) { EBB_TRY(ebb__optimizer_check(optimizer)); }
    if (optimizer == NULL && !keep_gradients) {
        return ebb_fail(EBB_E_ARGUMENT, "training needs an optimizer, or gradients that are kept");
    }
    if (graph->inference) { return ebb_fail(EBB_E_ARGUMENT, "a graph made for inference cannot be trained"); }
    if (graph->differentiated) { return ebb_fail(EBB_E_ARGUMENT, "it is a training graph already"); }
    if (graph->loss == EBB_NO_VALUE) { return ebb_fail(EBB_E_ARGUMENT, "a graph without a loss cannot be trained"); }
    return EBB_OK;
}

ebb_status ebb_graph_train(ebb_graph *graph, const ebb_optimizer *optimizer, bool keep_gradients) {
    EBB_NEED(graph);
    EBB_TRY(ebb_graph_check(graph));
    EBB_TRY(check_trainable(graph, optimizer, keep_gradients));
    EBB_TRY(ebb__graph_simplify(graph));
    ebb_status st = ebb__graph_differentiate(graph);
    if (st == EBB_OK && optimizer != NULL) { st = ebb__graph_add_updates(graph, optimizer); }
    EBB_TRY(ebb__graph_end(graph, st)); /* half a backward pass is of no use: the graph stays failed */
    for (size_t v = 0; v < graph->values.n && keep_gradients; v++) {
        if (graph->values.data[v].kind == EBB_VALUE_GRADIENT) { graph->values.data[v].kept = true; }
    }
    EBB_GRAPH_DEEP_CHECK(graph);
    return EBB_OK;
}
