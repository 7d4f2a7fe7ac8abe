/* SPDX-License-Identifier: Apache-2.0
 *
 * The fewest bytes that can be live before a step, over all sets of steps that may have run by then: a minimum cut.
 *
 * A set must hold what the step comes after, and cannot hold the step nor what comes after it. The steps between are
 * free; they and the tensors that they touch are the nodes. If a step is in the set, so is all that it comes after: an
 * arc without limit each. A tensor whose maker is in the set and one of whose users is not costs its bytes: an arc of
 * them from the maker to the tensor, and arcs without limit from there to the users. The flow is found as by Dinic:
 * shortest ways, many in each phase.
 */
#include "plan/order_priv.h"

#define SOURCE 0u
#define SINK 1u
#define FIRST_NODE 2u
#define NO_LIMIT ((uint64_t)1 << 62)
#define ARCS_A_STEP 8u /* of search */

/* Arcs come in pairs: 2i and its reverse 2i + 1. */
typedef struct arc {
    uint32_t to;
    uint32_t next; /* from the same node, or EBB_ORDER_NONE */
    uint64_t room; /* what may still flow */
} arc;

typedef struct cut {
    ebb_order_search *s;
    uint32_t *node;   /* [n_steps]: SINK: cannot be in the set; SOURCE: must be; else a node, or NONE: not yet seen */
    uint32_t n_nodes; /* of steps; more of tensors follow */
    EBB_VEC(uint32_t) stack, first, at, level;
    EBB_VEC(arc) arcs;
    uint64_t fixed_bytes; /* live whatever the set is */
    uint64_t n_looked;    /* arcs */
} cut;

/* ---- the network -------------------------------------------------------------------------------- */

/* Mark all that comes after a step, or before. */
static ebb_status mark(cut *c, uint32_t step, const ebb_order_rows *rows, uint32_t as) {
    c->stack.n = 0;
    EBB_TRY(EBB_PUSH(c->s->mem, &c->stack, step));
    while (c->stack.n > 0) {
        const uint32_t from = c->stack.data[--c->stack.n];
        for (uint64_t i = rows->start[from]; i < rows->start[from + 1]; i++) {
            const uint32_t to = rows->list[i];
            if (c->node[to] != EBB_ORDER_NONE) { continue; }
            c->node[to] = as;
            EBB_TRY(EBB_PUSH(c->s->mem, &c->stack, to));
        }
    }
    return EBB_OK;
}

static ebb_status add_node(cut *c) {
    EBB_TRY(EBB_PUSH(c->s->mem, &c->first, EBB_ORDER_NONE));
    EBB_TRY(EBB_PUSH(c->s->mem, &c->at, 0));
    return EBB_PUSH(c->s->mem, &c->level, 0);
}

static ebb_status add_arc(cut *c, uint32_t from, uint32_t to, uint64_t room) {
    if (c->arcs.n >= UINT32_MAX - 2) { return ebb_fail(EBB_E_LIMIT, "2^32 arcs between steps and tensors, or more"); }
    EBB_TRY(EBB_RESERVE(c->s->mem, &c->arcs, 2));
    c->arcs.data[c->arcs.n] = (arc){to, c->first.data[from], room};
    c->first.data[from] = (uint32_t)c->arcs.n++;
    c->arcs.data[c->arcs.n] = (arc){from, c->first.data[to], 0};
    c->first.data[to] = (uint32_t)c->arcs.n++;
    return EBB_OK;
}

static ebb_status add_tensor(cut *c, uint32_t t) {
    const ebb_order_graph *g = &c->s->graph;
    const uint64_t begin = g->users.start[t], end = g->users.start[t + 1];
    const uint32_t from = c->node[g->maker[t]];
    bool outlives = begin == end, is_open = false;
    for (uint64_t u = begin; u < end; u++) {
        outlives = outlives || c->node[g->users.list[u]] == SINK;
        is_open = is_open || c->node[g->users.list[u]] != SOURCE;
    }
    if (from == SINK) { return EBB_OK; }
    if (outlives && from == SOURCE) { c->fixed_bytes += g->size_bytes[t]; }
    if (outlives && from != SOURCE) { return add_arc(c, from, SINK, g->size_bytes[t]); }
    if (outlives || !is_open) { return EBB_OK; }
    const uint32_t node = (uint32_t)c->first.n;
    EBB_TRY(add_node(c));
    EBB_TRY(add_arc(c, from, node, g->size_bytes[t]));
    for (uint64_t u = begin; u < end; u++) {
        const uint32_t to = c->node[g->users.list[u]];
        if (to != SOURCE) { EBB_TRY(add_arc(c, node, to, NO_LIMIT)); }
    }
    return EBB_OK;
}

static ebb_status make_network(cut *c, uint32_t step) {
    const ebb_order_graph *g = &c->s->graph;
    c->node = ebb__alloc(c->s->mem, g->n_steps, sizeof *c->node);
    if (c->node == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < g->n_steps; i++) { c->node[i] = EBB_ORDER_NONE; }
    c->node[step] = SINK;
    EBB_TRY(mark(c, step, &g->after, SINK));
    EBB_TRY(mark(c, step, &g->before, SOURCE));
    EBB_TRY(add_node(c));
    EBB_TRY(add_node(c));
    for (size_t i = 0; i < g->n_steps; i++) {
        if (c->node[i] != EBB_ORDER_NONE) { continue; }
        c->node[i] = (uint32_t)c->first.n;
        EBB_TRY(add_node(c));
    }
    for (size_t i = 0; i < g->n_steps; i++) {
        for (uint64_t b = g->before.start[i]; c->node[i] >= FIRST_NODE && b < g->before.start[i + 1]; b++) {
            const uint32_t before = c->node[g->before.list[b]];
            EBB_ASSERT(before != SINK);
            if (before != SOURCE) { EBB_TRY(add_arc(c, c->node[i], before, NO_LIMIT)); }
        }
    }
    c->fixed_bytes = g->always_bytes;
    for (uint32_t t = 0; t < g->n_tensors; t++) {
        if (g->maker[t] != EBB_ORDER_NONE) { EBB_TRY(add_tensor(c, t)); }
    }
    return EBB_OK;
}

/* ---- the flow ----------------------------------------------------------------------------------- */

/* How far each node is from the source, by arcs with room; UINT32_MAX: not within reach. */
static ebb_status find_levels(cut *c) {
    for (size_t i = 0; i < c->level.n; i++) { c->level.data[i] = UINT32_MAX; }
    c->stack.n = 0;
    c->level.data[SOURCE] = 0;
    EBB_TRY(EBB_PUSH(c->s->mem, &c->stack, SOURCE));
    for (size_t i = 0; i < c->stack.n; i++) {
        const uint32_t from = c->stack.data[i];
        for (uint32_t a = c->first.data[from]; a != EBB_ORDER_NONE; a = c->arcs.data[a].next) {
            const arc *it = &c->arcs.data[a];
            c->n_looked++;
            if (it->room == 0 || c->level.data[it->to] != UINT32_MAX) { continue; }
            c->level.data[it->to] = c->level.data[from] + 1;
            EBB_TRY(EBB_PUSH(c->s->mem, &c->stack, it->to));
        }
    }
    return EBB_OK;
}

/* Send what one way takes: the stack holds its arcs. Back to the first one that is full. */
static uint64_t send(cut *c) {
    uint64_t bytes = UINT64_MAX;
    size_t full = 0;
    for (size_t i = 0; i < c->stack.n; i++) { bytes = ebb_min_u64(bytes, c->arcs.data[c->stack.data[i]].room); }
    for (size_t i = c->stack.n; i-- > 0;) {
        const uint32_t a = c->stack.data[i];
        c->arcs.data[a].room -= bytes;
        c->arcs.data[a ^ 1].room += bytes;
        if (c->arcs.data[a].room == 0) { full = i; }
    }
    c->stack.n = full;
    return bytes;
}

/* Fill ways along rising levels until none is left. */
static ebb_status send_all(cut *c, uint64_t *flow) {
    memcpy(c->at.data, c->first.data, c->first.n * sizeof *c->at.data);
    c->stack.n = 0;
    for (;;) {
        const uint32_t node = c->stack.n > 0 ? c->arcs.data[c->stack.data[c->stack.n - 1]].to : SOURCE;
        if (node == SINK) {
            *flow += send(c);
            continue;
        }
        uint32_t *at = &c->at.data[node];
        for (; *at != EBB_ORDER_NONE; *at = c->arcs.data[*at].next) {
            const arc *it = &c->arcs.data[*at];
            c->n_looked++;
            if (it->room > 0 && c->level.data[it->to] == c->level.data[node] + 1) { break; }
        }
        if (*at != EBB_ORDER_NONE) {
            EBB_TRY(EBB_PUSH(c->s->mem, &c->stack, *at));
        } else if (c->stack.n > 0) {
            const uint32_t came = c->stack.data[--c->stack.n];
            uint32_t *last = &c->at.data[c->arcs.data[came ^ 1].to];
            EBB_ASSERT(*last == came);
            *last = c->arcs.data[came].next;
        } else {
            return EBB_OK;
        }
    }
}

/* *done_out: no more can flow; else the work is spent. */
static ebb_status find_flow(cut *c, uint64_t *flow_out, bool *done_out) {
    uint64_t flow = 0;
    for (;;) {
        EBB_TRY(find_levels(c));
        *done_out = c->level.data[SINK] == UINT32_MAX;
        if (*done_out || c->n_looked / ARCS_A_STEP >= c->s->work) { break; }
        EBB_TRY(send_all(c, &flow));
    }
    c->s->work -= ebb_min_u64(c->s->work, c->n_looked / ARCS_A_STEP);
    *flow_out = flow;
    return EBB_OK;
}

/* ---- the order ---------------------------------------------------------------------------------- */

static bool is_in(const cut *c, uint32_t step) {
    const uint32_t node = c->node[step];
    return node != SINK && c->level.data[node] != UINT32_MAX;
}

/* The set, the step, the others. */
static void write_trial(const cut *c, uint32_t step) {
    ebb_order_search *s = c->s;
    size_t n = 0;
    for (size_t i = 0; i < s->graph.n_steps; i++) {
        if (is_in(c, s->order[i])) { s->trial[n++] = s->order[i]; }
    }
    s->trial[n++] = step;
    for (size_t i = 0; i < s->graph.n_steps; i++) {
        if (!is_in(c, s->order[i]) && s->order[i] != step) { s->trial[n++] = s->order[i]; }
    }
    EBB_ASSERT(n == s->graph.n_steps);
}

static ebb_status cut_before(cut *c, uint32_t step, bool *found_out) {
    const ebb_order_search *s = c->s;
    uint64_t flow = 0;
    bool done = false;
    EBB_TRY(make_network(c, step));
    EBB_TRY(find_flow(c, &flow, &done));
    *found_out = false;
    if (!done) { return EBB_OK; }
    const uint64_t least = c->fixed_bytes + flow + s->graph.made_bytes[step] + s->graph.own_bytes[step];
    EBB_ASSERT(least <= s->load[s->place[step]]);
    c->s->bound_bytes = ebb_max_u64(s->bound_bytes, least);
    *found_out = least < s->load[s->place[step]];
    if (*found_out) { write_trial(c, step); }
    return EBB_OK;
}

ebb_status ebb__order_cut(ebb_order_search *s, uint32_t step, bool *found_out) {
    cut c = {.s = s};
    const ebb_status st = cut_before(&c, step, found_out);
    ebb__free(s->mem, c.node);
    EBB_VEC_FINI(s->mem, &c.stack);
    EBB_VEC_FINI(s->mem, &c.first);
    EBB_VEC_FINI(s->mem, &c.at);
    EBB_VEC_FINI(s->mem, &c.level);
    EBB_VEC_FINI(s->mem, &c.arcs);
    return st;
}
