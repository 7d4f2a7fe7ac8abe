/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs in the node-link JSON of NetworkX, in which the instances of Checkmate (Jain et al., MLSys 2020) and Moccasin
 * (Bartan et al., ICML 2023) are published. A node makes one value, and reads those of the nodes from which edges lead
 * to it:
 *
 *     {"graph": {...}, "nodes": [{"id": 0, "name": "conv1", "cost_cpu": 385, "cost_ram": 1024, "backward": false},
 * ...], "links": [{"source": 0, "target": 1}, ...]}
 *
 * or, in random layered graphs, "duration", "out_cost" and no "id" (the name is one then), and edges of "0" and "1".
 * Costs have no unit; here one of them is a nanosecond, and one of memory a byte. Parallel edges count once.
 *
 * Nodes become steps in the order of graph.order; else by their ids if all are numbers, else as they stand in the
 * file. Where an edge contradicts that order, a node waits for those that it reads, and of the nodes that can run the
 * first in that order does.
 */
#include "program/foreign_priv.h"

#include <math.h>

#define MOST 9e18 /* of a cost */

typedef struct link_node {
    const char *name;
    uint64_t bytes, time_ns;
    ebb_phase phase;
    uint64_t rank; /* where it stands in the order */
} link_node;

typedef struct link_edge {
    uint32_t from, to; /* names of ids, until all nodes are known */
} link_edge;

typedef struct link_graph {
    ebb_foreign *f;
    ebb_foreign_names ids;
    EBB_VEC(link_node) nodes;
    EBB_VEC(uint32_t) node_of; /* by id; FOREIGN_NONE: no node has this one */
    EBB_VEC(link_edge) edges;
    EBB_VEC(uint32_t) order; /* ids */
    bool has_order, has_links;
    bool has_text_id;
    EBB_VEC(uint32_t) ready; /* a heap of nodes by rank */
} link_graph;

bool ebb__foreign_is_node_link(const char *head, size_t n) {
    return ebb__foreign_begins(head, n, "{") && ebb__foreign_has(head, n, "\"directed\"") &&
           ebb__foreign_has(head, n, "\"graph\"");
}

/* ---- ids and costs ---------------------------------------------------------------------------- */

static ebb_status id_at(link_graph *g, const ebb_json_value *json, uint32_t token, uint32_t *id_out) {
    bool is_new = false;
    if (!ebb__json_value_is(json, token, EBB_JSON_NUMBER) && !ebb__json_value_is(json, token, EBB_JSON_STRING)) {
        return ebb__json_value_fail(json, "a node's id is neither a number nor a text");
    }
    EBB_TRY(ebb__foreign_names_add(&g->ids, ebb__json_value_text(json, token), id_out, &is_new));
    return is_new ? EBB_PUSH(g->f->mem, &g->node_of, FOREIGN_NONE) : EBB_OK;
}

static uint32_t either(const ebb_json_value *json, uint32_t token, const char *key, const char *other_key) {
    const uint32_t member = ebb__json_value_member(json, token, key);
    return member != EBB_JSON_NONE ? member : ebb__json_value_member(json, token, other_key);
}

static ebb_status get_cost(const ebb_json_value *json, const char *key, const char *other_key, uint64_t *cost_out) {
    const uint32_t member = either(json, 0, key, other_key);
    double cost = 0;
    if (member == EBB_JSON_NONE) { return ebb__json_value_fail(json, "a node has neither %s nor %s", key, other_key); }
    if (ebb__json_value_u64(json, member, cost_out)) { return EBB_OK; }
    if (!ebb__json_value_f64(json, member, &cost) || !(cost >= 0) || cost > MOST) {
        return ebb__json_value_fail(json, "a node's %s is not from 0 to 9e18", key);
    }
    *cost_out = (uint64_t)round(cost);
    return EBB_OK;
}

/* ---- what the file holds ---------------------------------------------------------------------- */

static ebb_status take_node(void *ctx, const ebb_json_value *json) {
    link_graph *g = ctx;
    link_node node = {.phase = EBB_PHASE_FORWARD};
    uint32_t id = 0;
    uint64_t number = 0;
    EBB_TRY(id_at(g, json, either(json, 0, "id", "name"), &id));
    if (g->node_of.data[id] != FOREIGN_NONE) {
        return ebb__json_value_fail(json, "a second node of the id %.64s", g->ids.text.data[id]);
    }
    EBB_TRY(get_cost(json, "cost_cpu", "duration", &node.time_ns));
    EBB_TRY(get_cost(json, "cost_ram", "out_cost", &node.bytes));
    const char *name = ebb__json_value_string(json, 0, "name");
    node.name = name != NULL ? ebb__bump_strdup(&g->f->bump, name) : g->ids.text.data[id];
    if (node.name == NULL) { return EBB_E_NO_MEMORY; }
    const uint32_t backward = ebb__json_value_member(json, 0, "backward");
    if (ebb__json_value_is(json, backward, EBB_JSON_BOOL) && *ebb__json_value_text(json, backward) == 't') {
        node.phase = EBB_PHASE_BACKWARD;
    }
    g->has_text_id = g->has_text_id || !ebb__parse_u64(g->ids.text.data[id], &number);
    node.rank = number;
    if (g->nodes.n >= FOREIGN_NONE - 1) { return ebb_fail(EBB_E_LIMIT, "%s: 2^32 - 2 nodes", g->f->path); }
    g->node_of.data[id] = (uint32_t)g->nodes.n;
    return EBB_PUSH(g->f->mem, &g->nodes, node);
}

static ebb_status take_links(link_graph *g, const ebb_json_value *json) {
    if (!ebb__json_value_is(json, 0, EBB_JSON_ARRAY)) { return ebb__json_value_fail(json, "links is no list"); }
    g->has_links = true;
    for (uint32_t at = 1; at < json->tokens[0].next; at = json->tokens[at].next) {
        const uint32_t from = either(json, at, "source", "0"), to = either(json, at, "target", "1");
        link_edge edge = {0};
        if (from == EBB_JSON_NONE || to == EBB_JSON_NONE) {
            return ebb__json_value_fail(json, "a link has no source and target");
        }
        EBB_TRY(id_at(g, json, from, &edge.from));
        EBB_TRY(id_at(g, json, to, &edge.to));
        EBB_TRY(EBB_PUSH(g->f->mem, &g->edges, edge));
    }
    return EBB_OK;
}

static ebb_status take_graph(link_graph *g, const ebb_json_value *json) {
    const char *name = ebb__json_value_string(json, 0, "name");
    const uint32_t order = ebb__json_value_member(json, 0, "order");
    if (name != NULL && name[0] != '\0') {
        g->f->name = ebb__bump_strdup(&g->f->bump, name);
        if (g->f->name == NULL) { return EBB_E_NO_MEMORY; }
    }
    if (!ebb__json_value_is(json, order, EBB_JSON_ARRAY)) { return EBB_OK; }
    g->has_order = true;
    for (uint32_t at = order + 1; at < json->tokens[order].next; at = json->tokens[at].next) {
        uint32_t id = 0;
        EBB_TRY(id_at(g, json, at, &id));
        EBB_TRY(EBB_PUSH(g->f->mem, &g->order, id));
    }
    return EBB_OK;
}

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    return strcmp(key, "links") == 0 || strcmp(key, "edges") == 0 || strcmp(key, "graph") == 0;
}

static ebb_status take_member(void *ctx, const char *key, const ebb_json_value *json) {
    return strcmp(key, "graph") == 0 ? take_graph(ctx, json) : take_links(ctx, json);
}

/* ---- the order -------------------------------------------------------------------------------- */

/* Edges between nodes, no longer between ids. */
static ebb_status settle_edges(link_graph *g) {
    for (size_t e = 0; e < g->edges.n; e++) {
        link_edge *edge = &g->edges.data[e];
        const uint32_t from = g->node_of.data[edge->from], to = g->node_of.data[edge->to];
        if (from == FOREIGN_NONE || to == FOREIGN_NONE) {
            return ebb_fail(EBB_E_FORMAT, "%s: a link names %.64s, which is no node", g->f->path,
                            g->ids.text.data[from == FOREIGN_NONE ? edge->from : edge->to]);
        }
        *edge = (link_edge){from, to};
    }
    return EBB_OK;
}

static ebb_status rank_nodes(link_graph *g) {
    for (size_t n = 0; n < g->nodes.n && (g->has_text_id || g->has_order); n++) {
        g->nodes.data[n].rank = g->has_order ? UINT64_MAX : n;
    }
    for (size_t i = 0; i < g->order.n; i++) {
        const uint32_t node = g->node_of.data[g->order.data[i]];
        if (node == FOREIGN_NONE || g->nodes.data[node].rank != UINT64_MAX) {
            return ebb_fail(EBB_E_FORMAT, "%s: the order names %.64s, which is %s", g->f->path,
                            g->ids.text.data[g->order.data[i]], node == FOREIGN_NONE ? "no node" : "in it twice");
        }
        g->nodes.data[node].rank = i;
    }
    if (!g->has_order || g->order.n == g->nodes.n) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s: the order has %zu of %zu nodes", g->f->path, g->order.n, g->nodes.n);
}

static bool is_before(const link_graph *g, uint32_t a, uint32_t b) {
    const uint64_t rank_a = g->nodes.data[a].rank, rank_b = g->nodes.data[b].rank;
    return rank_a < rank_b || (rank_a == rank_b && a < b);
}

static void swap_ready(link_graph *g, size_t a, size_t b) {
    const uint32_t node = g->ready.data[a];
    g->ready.data[a] = g->ready.data[b];
    g->ready.data[b] = node;
}

static ebb_status push_ready(link_graph *g, uint32_t node) {
    EBB_TRY(EBB_PUSH(g->f->mem, &g->ready, node));
    for (size_t at = g->ready.n - 1; at > 0; at = (at - 1) / 2) {
        if (!is_before(g, g->ready.data[at], g->ready.data[(at - 1) / 2])) { break; }
        swap_ready(g, at, (at - 1) / 2);
    }
    return EBB_OK;
}

static uint32_t pop_ready(link_graph *g) {
    const uint32_t first = g->ready.data[0];
    g->ready.data[0] = g->ready.data[--g->ready.n];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < g->ready.n; child++) {
            if (is_before(g, g->ready.data[child], g->ready.data[least])) { least = child; }
        }
        if (least == at) { return first; }
        swap_ready(g, at, least);
        at = least;
    }
}

/* Edges by their ends: those of node n are of[start[n] .. start[n + 1]), as the nodes at the other end. */
typedef struct link_ends {
    uint64_t *start;
    uint32_t *of;
} link_ends;

static ebb_status gather_ends(const link_graph *g, bool is_by_target, link_ends *ends_out) {
    link_ends ends = {.start = ebb__bump_alloc(&g->f->bump, g->nodes.n + 1, sizeof *ends.start),
                      .of = ebb__bump_alloc(&g->f->bump, g->edges.n, sizeof *ends.of)};
    if (ends.start == NULL || ends.of == NULL) { return EBB_E_NO_MEMORY; }
    memset(ends.start, 0, (g->nodes.n + 1) * sizeof *ends.start);
    for (size_t e = 0; e < g->edges.n; e++) {
        ends.start[is_by_target ? g->edges.data[e].to : g->edges.data[e].from]++;
    }
    uint64_t sum = 0;
    for (size_t n = 0; n <= g->nodes.n; n++) {
        const uint64_t count = ends.start[n];
        ends.start[n] = sum += count;
    }
    for (size_t e = g->edges.n; e-- > 0;) {
        const link_edge edge = g->edges.data[e];
        ends.of[--ends.start[is_by_target ? edge.to : edge.from]] = is_by_target ? edge.from : edge.to;
    }
    *ends_out = ends;
    return EBB_OK;
}

static ebb_status add_node(link_graph *g, uint32_t n, const link_ends *inputs, uint32_t *tensor_of) {
    ebb_foreign *f = g->f;
    const link_node *node = &g->nodes.data[n];
    const ebb_tensor tensor = {.name = node->name,
                               .size_bytes = node->bytes,
                               .role = node->phase == EBB_PHASE_BACKWARD ? EBB_ROLE_GRADIENT : EBB_ROLE_ACTIVATION};
    EBB_TRY(ebb__foreign_add_step(f, node->name, "node", node->phase, node->time_ns));
    for (uint64_t i = inputs->start[n]; i < inputs->start[n + 1]; i++) {
        EBB_TRY(ebb__foreign_add_access(f, tensor_of[inputs->of[i]], EBB_READ));
    }
    EBB_TRY(ebb__foreign_add_tensor(f, &tensor, &tensor_of[n]));
    return ebb__foreign_add_access(f, tensor_of[n], EBB_WRITE);
}

static ebb_status add_nodes(link_graph *g) {
    link_ends inputs, outputs;
    EBB_TRY(gather_ends(g, true, &inputs));
    EBB_TRY(gather_ends(g, false, &outputs));
    uint64_t *n_missing = ebb__bump_alloc(&g->f->bump, g->nodes.n, sizeof *n_missing);
    uint32_t *tensor_of = ebb__bump_alloc(&g->f->bump, g->nodes.n, sizeof *tensor_of);
    if (n_missing == NULL || tensor_of == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t n = 0; n < g->nodes.n; n++) {
        n_missing[n] = inputs.start[n + 1] - inputs.start[n];
        if (n_missing[n] == 0) { EBB_TRY(push_ready(g, n)); }
    }
    size_t n_done = 0;
    for (; g->ready.n > 0; n_done++) {
        const uint32_t n = pop_ready(g);
        EBB_TRY(add_node(g, n, &inputs, tensor_of));
        for (uint64_t i = outputs.start[n]; i < outputs.start[n + 1]; i++) {
            if (--n_missing[outputs.of[i]] == 0) { EBB_TRY(push_ready(g, outputs.of[i])); }
        }
    }
    if (n_done == g->nodes.n) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s: its links run in a circle", g->f->path);
}

static ebb_status read_graph(link_graph *g) {
    ebb_foreign *f = g->f;
    ebb_json_source source = {.mem = f->mem, .path = f->path, .read = ebb__foreign_read, .ctx = f, .is_strict = true};
    const ebb_json_handler handler = {
        .array = "nodes", .element = take_node, .wants = wants, .member = take_member, .ctx = g};
    EBB_TRY(ebb__json_read(&source, &handler));
    if (!g->has_links) { return ebb_fail(EBB_E_FORMAT, "%s: there is no member links", f->path); }
    EBB_TRY(settle_edges(g));
    EBB_TRY(rank_nodes(g));
    return add_nodes(g);
}

ebb_status ebb__foreign_read_node_link(ebb_foreign *f) {
    link_graph g = {.f = f};
    ebb__foreign_names_init(&g.ids, f->mem, &f->bump);
    const ebb_status st = read_graph(&g);
    ebb__foreign_names_fini(&g.ids);
    EBB_VEC_FINI(f->mem, &g.nodes);
    EBB_VEC_FINI(f->mem, &g.node_of);
    EBB_VEC_FINI(f->mem, &g.edges);
    EBB_VEC_FINI(f->mem, &g.order);
    EBB_VEC_FINI(f->mem, &g.ready);
    return st;
}
