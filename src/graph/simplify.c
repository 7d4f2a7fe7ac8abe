/* SPDX-License-Identifier: Apache-2.0
 *
 * Passes over a forward graph that spare memory and time on every device: a ReLU goes into the operator that
 * makes its input, and a flatten before a linear layer goes, because the layer flattens by itself.
 *
 * Each pass is one walk: readers are counted and makers noted first, then operators are changed in place and the
 * dead ones squeezed out. The value between the two operators stays in the table of values, but no operator
 * names it any more; numbers that a caller holds stay good. Running a pass again changes nothing.
 */
#include "graph/graph_priv.h"

#define DEAD EBB_N_OPS

typedef struct links {
    uint32_t *n_uses; /* [n_values] */
    uint32_t *maker;  /* [n_values]: the op that makes it, or EBB_NO_OP */
    size_t n_values;  /* when they were made */
} links;

static void unlink_all(const ebb_graph *graph, links *l) {
    ebb__free(graph->mem, l->n_uses);
    ebb__free(graph->mem, l->maker);
}

static ebb_status link_all(const ebb_graph *graph, links *l_out) {
    links l = {.n_values = graph->values.n};
    EBB_TRY(ebb__graph_count_uses(graph, &l.n_uses));
    l.maker = ebb__alloc(graph->mem, l.n_values, sizeof *l.maker);
    if (l.maker == NULL) {
        unlink_all(graph, &l);
        return EBB_E_NO_MEMORY;
    }
    for (size_t v = 0; v < l.n_values; v++) { l.maker[v] = EBB_NO_OP; }
    for (size_t i = 0; i < graph->ops.n; i++) {
        const ebb_op *op = &graph->ops.data[i];
        for (uint32_t k = 0; k < op->n_out; k++) { l.maker[op->out[k]] = (uint32_t)i; }
    }
    *l_out = l;
    return EBB_OK;
}

static void squeeze(ebb_graph *graph) {
    size_t n = 0;
    for (size_t i = 0; i < graph->ops.n; i++) {
        if (graph->ops.data[i].kind != DEAD) { graph->ops.data[n++] = graph->ops.data[i]; }
    }
    graph->ops.n = n;
}

static bool takes_relu(const ebb_op *op) {
    switch (op->kind) {
    case EBB_OP_CONV:
    case EBB_OP_LINEAR:
    case EBB_OP_BATCH_NORM:
    case EBB_OP_BATCH_NORM_INFER:
    case EBB_OP_ADD: return op->attr.relu == 0;
    default: return false;
    }
}

/* maker's result becomes the ReLU's, so that the ReLU's readers need no change. */
static ebb_status fuse(ebb_graph *graph, ebb_op *maker, ebb_op *relu) {
    ebb_value dst = relu->out[0];
    if (maker->kind == EBB_OP_BATCH_NORM) {
        ebb_shape shape = graph->values.data[dst].shape;
        EBB_ASSERT(maker->n_out == 3);
        EBB_TRY(ebb__graph_add_opaque(graph, maker->name, ".mask", &shape, &maker->out[3]));
        maker->n_out = 4;
    }
    maker->out[0] = dst;
    maker->attr.relu = 1;
    relu->kind = DEAD;
    return EBB_OK;
}

ebb_status ebb__graph_fuse_relu(ebb_graph *graph) {
    links l;
    EBB_TRY(link_all(graph, &l));
    ebb_status st = EBB_OK;
    for (size_t i = 0; i < graph->ops.n && st == EBB_OK; i++) {
        ebb_op *relu = &graph->ops.data[i];
        if (relu->kind != EBB_OP_RELU) { continue; }
        ebb_value src = relu->in[0], dst = relu->out[0];
        if (l.n_uses[src] != 1 || l.maker[src] == EBB_NO_OP) { continue; }
        ebb_op *maker = &graph->ops.data[l.maker[src]];
        if (!takes_relu(maker)) { continue; }
        st = fuse(graph, maker, relu);
        l.maker[dst] = l.maker[src];
    }
    squeeze(graph);
    unlink_all(graph, &l);
    return st;
}

ebb_status ebb__graph_drop_flatten(ebb_graph *graph) {
    links l;
    EBB_TRY(link_all(graph, &l));
    for (size_t i = 0; i < graph->ops.n; i++) {
        ebb_op *linear = &graph->ops.data[i];
        if (linear->kind != EBB_OP_LINEAR) { continue; }
        ebb_value src = linear->in[0];
        if (l.n_uses[src] != 1 || l.maker[src] == EBB_NO_OP) { continue; }
        ebb_op *flatten = &graph->ops.data[l.maker[src]];
        if (flatten->kind != EBB_OP_RESHAPE) { continue; }
        linear->in[0] = flatten->in[0]; /* which still has as many readers */
        flatten->kind = DEAD;
    }
    squeeze(graph);
    unlink_all(graph, &l);
    return EBB_OK;
}

ebb_status ebb__graph_simplify(ebb_graph *graph) {
    EBB_TRY(ebb_graph_check(graph));
    if (graph->differentiated) { return EBB_OK; } /* it was simplified before, and backward relies on it */
    ebb_status st = ebb__graph_fuse_relu(graph);
    if (st == EBB_OK) { st = ebb__graph_drop_flatten(graph); }
    EBB_TRY(ebb__graph_end(graph, st));
    EBB_GRAPH_DEEP_CHECK(graph);
    return EBB_OK;
}
