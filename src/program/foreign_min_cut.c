/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph that PyTorch's min-cut partitioner cuts, as it writes it: the artifact min_cut_information of
 * torch.compile's structured trace (docs/import.md says how to have it written), a JSON object of nodes by name:
 *
 *     {"Joint Graph Node Information": {"mm": {"index": 7, "target": "aten.mm.default", "shape": "torch.Size([4, 8])",
 *      "input_arguments": ["view", "t"], "is_recomputable_candidate": true,
 *      "recomputable_candidate_info": {"memory": 0.4, "runtime": 1.5, "recomputable_node_idx": 0, ...}, ...}, ...},
 *      "Recomputable Banned Nodes Order": ["mm", ...], "Absolute Memories": [128, ...],
 *      "Knapsack Input Runtimes": [512.0, ...], ...}
 *
 * Nodes become steps in the order of "index", each with one value. The file tells no types of elements, and bytes and
 * runtimes of candidates alone. A candidate's bytes over its elements tell the bytes of an element, and the most common
 * of these holds for all nodes whose bytes are not told. A runtime is in what PyTorch's estimator counts, by default
 * floating-point operations; here one is a nanosecond. Other nodes take no time.
 *
 * A node without inputs that is no operator is an input: a persistent tensor. A node of a target that only looks at its
 * input's storage (view, transpose, getitem ...) is that storage. "output" reads what the graph gives back, which is
 * kept.
 */
#include "program/foreign_priv.h"

#include <math.h>

#define INFORMATION "Joint Graph Node Information"
#define ORDER "Recomputable Banned Nodes Order"
#define MEMORIES "Absolute Memories"
#define RUNTIMES "Knapsack Input Runtimes"
#define MOST 9e18
#define DEFAULT_ELEMENT_BYTES 4u
#define MAX_ELEMENT_BYTES 16u

typedef struct cut_node {
    uint32_t name;
    uint64_t index;
    const char *target;
    uint64_t n_elements;
    uint64_t first_input; /* into inputs: names */
    uint32_t n_inputs;
    bool has_bytes, is_known;
    uint64_t size_bytes, time_ns;
    uint32_t tensor;
} cut_node;

typedef struct cut_graph {
    ebb_foreign *f;
    ebb_foreign_names names;
    EBB_VEC(cut_node) nodes; /* by name */
    EBB_VEC(uint32_t) inputs;
    EBB_VEC(uint32_t) candidates; /* names */
    EBB_VEC(double) memories, runtimes;
    bool has_information;
} cut_graph;

bool ebb__foreign_is_min_cut(const char *head, size_t n) {
    return ebb__foreign_begins(head, n, "{") && ebb__foreign_has(head, n, "\"Joint Graph ");
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static ebb_status name_of(cut_graph *g, const ebb_json_value *json, uint32_t token, uint32_t *name_out) {
    bool is_new = false;
    if (!ebb__json_value_is(json, token, EBB_JSON_STRING) && !ebb__json_value_is(json, token, EBB_JSON_KEY)) {
        return ebb__json_value_fail(json, "a node's name is no text");
    }
    EBB_TRY(ebb__foreign_names_add(&g->names, ebb__json_value_text(json, token), name_out, &is_new));
    const cut_node node = {.name = *name_out, .target = ""};
    return is_new ? EBB_PUSH(g->f->mem, &g->nodes, node) : EBB_OK;
}

/* "torch.Size([4, 8])" has 32; a text without numbers, such as "[]", 1 if it is a size and else 0. Sizes that are names
 * (of dynamic shapes) are not known: 0. */
static bool count_elements(const char *shape, uint64_t *n_out) {
    uint64_t n = 1;
    if (strncmp(shape, "torch.Size([", 12) != 0 && shape[0] != '(') {
        *n_out = 0;
        return true;
    }
    for (const char *at = strpbrk(shape, "(["); at != NULL && *at != '\0';) {
        if (*at >= '0' && *at <= '9') {
            uint64_t size = 0;
            for (; *at >= '0' && *at <= '9'; at++) {
                if (!ebb_mul_u64(size, 10, &size) || !ebb_add_u64(size, (uint64_t)(*at - '0'), &size)) { return false; }
            }
            if (!ebb_mul_u64(n, size, &n)) { return false; }
        } else if (strchr("()[], ", *at) != NULL) {
            at++;
        } else {
            n = 0;
            break;
        }
    }
    *n_out = n;
    return true;
}

static ebb_status take_node(cut_graph *g, const ebb_json_value *json, uint32_t key) {
    const uint32_t info = key + 1;
    uint32_t name = 0, input = 0;
    cut_node node = {.is_known = true, .first_input = g->inputs.n};
    EBB_TRY(name_of(g, json, key, &name));
    if (g->nodes.data[name].is_known) {
        return ebb__json_value_fail(json, "node %.64s is there twice", g->names.text.data[name]);
    }
    if (!ebb__json_value_u64(json, ebb__json_value_member(json, info, "index"), &node.index)) {
        return ebb__json_value_fail(json, "node %.64s has no index", g->names.text.data[name]);
    }
    const char *target = ebb__json_value_string(json, info, "target");
    const char *shape = ebb__json_value_string(json, info, "shape");
    const uint32_t inputs = ebb__json_value_member(json, info, "input_arguments");
    if (target == NULL || shape == NULL || !ebb__json_value_is(json, inputs, EBB_JSON_ARRAY)) {
        return ebb__json_value_fail(json, "node %.64s lacks target, shape or input_arguments",
                                    g->names.text.data[name]);
    }
    if (!count_elements(shape, &node.n_elements)) {
        return ebb__json_value_fail(json, "node %.64s has 2^64 elements or more", g->names.text.data[name]);
    }
    for (uint32_t at = inputs + 1; at < json->tokens[inputs].next; at = json->tokens[at].next) {
        EBB_TRY(name_of(g, json, at, &input));
        EBB_TRY(EBB_PUSH(g->f->mem, &g->inputs, input));
    }
    node.name = name;
    node.n_inputs = (uint32_t)(g->inputs.n - node.first_input);
    node.target = ebb__bump_strdup(&g->f->bump, target);
    if (node.target == NULL) { return EBB_E_NO_MEMORY; }
    g->nodes.data[name] = node;
    return EBB_OK;
}

/* ---- what the file holds ---------------------------------------------------------------------- */

static ebb_status take_information(cut_graph *g, const ebb_json_value *json) {
    if (!ebb__json_value_is(json, 0, EBB_JSON_OBJECT)) {
        return ebb__json_value_fail(json, INFORMATION " is no object");
    }
    g->has_information = true;
    for (uint32_t key = 1; key < json->tokens[0].next; key = json->tokens[key + 1].next) {
        EBB_TRY(take_node(g, json, key));
    }
    return EBB_OK;
}

static ebb_status take_names(cut_graph *g, const ebb_json_value *json) {
    if (!ebb__json_value_is(json, 0, EBB_JSON_ARRAY)) { return ebb__json_value_fail(json, ORDER " is no list"); }
    for (uint32_t at = 1; at < json->tokens[0].next; at = json->tokens[at].next) {
        uint32_t name = 0;
        EBB_TRY(name_of(g, json, at, &name));
        EBB_TRY(EBB_PUSH(g->f->mem, &g->candidates, name));
    }
    return EBB_OK;
}

static ebb_status take_costs(cut_graph *g, const char *key, const ebb_json_value *json) {
    const bool is_memory = strcmp(key, MEMORIES) == 0;
    if (!ebb__json_value_is(json, 0, EBB_JSON_ARRAY)) { return ebb__json_value_fail(json, "%s is no list", key); }
    for (uint32_t at = 1; at < json->tokens[0].next; at = json->tokens[at].next) {
        double cost = 0;
        if (!ebb__json_value_f64(json, at, &cost) || !(cost >= 0) || cost > MOST) {
            return ebb__json_value_fail(json, "%s has a cost that is not from 0 to 9e18", key);
        }
        EBB_TRY(is_memory ? EBB_PUSH(g->f->mem, &g->memories, cost) : EBB_PUSH(g->f->mem, &g->runtimes, cost));
    }
    return EBB_OK;
}

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    return strcmp(key, INFORMATION) == 0 || strcmp(key, ORDER) == 0 || strcmp(key, MEMORIES) == 0 ||
           strcmp(key, RUNTIMES) == 0;
}

static ebb_status take_member(void *ctx, const char *key, const ebb_json_value *json) {
    if (strcmp(key, INFORMATION) == 0) { return take_information(ctx, json); }
    return strcmp(key, ORDER) == 0 ? take_names(ctx, json) : take_costs(ctx, key, json);
}

/* ---- costs ------------------------------------------------------------------------------------ */

static ebb_status settle_candidates(cut_graph *g) {
    const size_t n = g->candidates.n;
    if (g->runtimes.n != n || (g->memories.n != n && g->memories.n != 0)) {
        return ebb_fail(EBB_E_FORMAT, "%s: %zu candidates, but %zu memories and %zu runtimes", g->f->path, n,
                        g->memories.n, g->runtimes.n);
    }
    for (size_t i = 0; i < n; i++) {
        cut_node *node = &g->nodes.data[g->candidates.data[i]];
        node->time_ns = (uint64_t)round(g->runtimes.data[i]);
        node->has_bytes = g->memories.n > 0;
        if (node->has_bytes) { node->size_bytes = (uint64_t)round(g->memories.data[i]); }
    }
    return EBB_OK;
}

/* The bytes of an element that most candidates have. */
static uint64_t common_element_bytes(const cut_graph *g) {
    uint64_t count[MAX_ELEMENT_BYTES + 1] = {0}, best = DEFAULT_ELEMENT_BYTES;
    for (size_t n = 0; n < g->nodes.n; n++) {
        const cut_node *node = &g->nodes.data[n];
        if (!node->has_bytes || node->n_elements == 0 || node->size_bytes % node->n_elements != 0) { continue; }
        const uint64_t bytes = node->size_bytes / node->n_elements;
        if (bytes > 0 && bytes <= MAX_ELEMENT_BYTES) { count[bytes]++; }
    }
    for (uint64_t bytes = 1; bytes <= MAX_ELEMENT_BYTES; bytes++) { best = count[bytes] > count[best] ? bytes : best; }
    return best;
}

static ebb_status settle_bytes(cut_graph *g) {
    const uint64_t element_bytes = common_element_bytes(g);
    for (size_t n = 0; n < g->nodes.n; n++) {
        cut_node *node = &g->nodes.data[n];
        if (!node->is_known) {
            return ebb_fail(EBB_E_FORMAT, "%s: %.64s is named, but no node", g->f->path, g->names.text.data[n]);
        }
        if (!node->has_bytes && !ebb_mul_u64(node->n_elements, element_bytes, &node->size_bytes)) {
            return ebb_fail(EBB_E_FORMAT, "%s: node %.64s has 2^64 bytes or more", g->f->path, g->names.text.data[n]);
        }
    }
    return EBB_OK;
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Whether a node of this target is another look at the storage of its first input. */
static bool is_look(const char *target) {
    static const char *const looks[] = {
        "aten.view",      "aten._unsafe_view", "aten.t.",     "aten.transpose",   "aten.permute",    "aten.expand",
        "aten.unsqueeze", "aten.squeeze",      "aten.slice.", "aten.select.",     "aten.split",      "aten.alias",
        "aten.detach",    "aten.reshape",      "aten.unbind", "aten.as_strided.", "aten.lift_fresh", "aten.diagonal."};
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (strncmp(target, looks[i], strlen(looks[i])) == 0) { return true; }
    }
    return false;
}

/* The tensors of what was many values are those of the nodes that take them apart. */
static bool is_part(const char *target) {
    return strstr(target, "getitem") != NULL;
}

static ebb_status add_value(cut_graph *g, cut_node *node, bool is_input) {
    const char *name = g->names.text.data[node->name];
    const bool is_gradient = strncmp(name, "tangents", 8) == 0;
    const ebb_tensor tensor = {.name = name,
                               .size_bytes = node->size_bytes,
                               .role = is_gradient ? EBB_ROLE_GRADIENT
                                       : is_input  ? EBB_ROLE_PARAMETER
                                                   : EBB_ROLE_ACTIVATION,
                               .persistent = is_input};
    return ebb__foreign_add_tensor(g->f, &tensor, &node->tensor);
}

/* The nodes that take apart what this node makes are its values. */
static ebb_status add_step(cut_graph *g, cut_node *node, const uint32_t *parts, size_t n_parts) {
    ebb_foreign *f = g->f;
    EBB_TRY(ebb__foreign_add_step(f, g->names.text.data[node->name], node->target, EBB_PHASE_UNKNOWN, node->time_ns));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const cut_node *input = &g->nodes.data[g->inputs.data[node->first_input + i]];
        if (input->tensor != FOREIGN_NONE) { EBB_TRY(ebb__foreign_add_access(f, input->tensor, EBB_READ)); }
    }
    if (n_parts == 0) {
        EBB_TRY(add_value(g, node, false));
        return ebb__foreign_add_access(f, node->tensor, EBB_WRITE);
    }
    for (size_t i = 0; i < n_parts; i++) {
        cut_node *part = &g->nodes.data[parts[i]];
        EBB_TRY(add_value(g, part, false));
        EBB_TRY(ebb__foreign_add_access(f, part->tensor, EBB_WRITE));
    }
    return EBB_OK;
}

/* parts: for each node the nodes that take it apart, parts.of[start[n] .. start[n + 1]). */
typedef struct cut_parts {
    uint64_t *start;
    uint32_t *of;
} cut_parts;

static ebb_status gather_parts(const cut_graph *g, const uint32_t *order, cut_parts *parts_out) {
    const size_t n = g->nodes.n;
    cut_parts parts = {.start = ebb__bump_alloc(&g->f->bump, n + 2, sizeof *parts.start),
                       .of = ebb__bump_alloc(&g->f->bump, n, sizeof *parts.of)};
    if (parts.start == NULL || parts.of == NULL) { return EBB_E_NO_MEMORY; }
    memset(parts.start, 0, (n + 2) * sizeof *parts.start);
    for (size_t i = 0; i < n; i++) {
        const cut_node *node = &g->nodes.data[i];
        if (is_part(node->target) && node->n_inputs > 0) { parts.start[g->inputs.data[node->first_input] + 2]++; }
    }
    for (size_t i = 2; i < n + 2; i++) { parts.start[i] += parts.start[i - 1]; }
    for (size_t i = 0; i < n; i++) {
        const cut_node *node = &g->nodes.data[order[i]];
        if (!is_part(node->target) || node->n_inputs == 0) { continue; }
        parts.of[parts.start[g->inputs.data[node->first_input] + 1]++] = order[i];
    }
    *parts_out = parts;
    return EBB_OK;
}

/* The values that output reads are kept. */
static void keep_outputs(cut_graph *g, const cut_node *node) {
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const uint32_t t = g->nodes.data[g->inputs.data[node->first_input + i]].tensor;
        if (t != FOREIGN_NONE && !g->f->tensors.data[t].persistent) { g->f->tensors.data[t].kept = true; }
    }
}

static ebb_status add_node(cut_graph *g, cut_node *node, const cut_parts *parts) {
    const char *name = g->names.text.data[node->name];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const cut_node *input = &g->nodes.data[g->inputs.data[node->first_input + i]];
        if (input->index < node->index) { continue; }
        return ebb_fail(EBB_E_FORMAT, "%s: node %.64s reads %.64s, which does not come before it", g->f->path, name,
                        g->names.text.data[input->name]);
    }
    if (strcmp(name, "output") == 0) {
        keep_outputs(g, node);
        return EBB_OK;
    }
    const size_t n_parts = (size_t)(parts->start[node->name + 1] - parts->start[node->name]);
    if (node->n_inputs == 0 && strncmp(node->target, "aten.", 5) != 0) { return add_value(g, node, true); }
    if (node->n_inputs > 0 && is_part(node->target)) { return EBB_OK; } /* made by what it takes apart */
    if (node->n_inputs > 0 && is_look(node->target)) {
        node->tensor = g->nodes.data[g->inputs.data[node->first_input]].tensor;
        for (size_t i = 0; i < n_parts; i++) {
            g->nodes.data[parts->of[parts->start[node->name] + i]].tensor = node->tensor;
        }
        return EBB_OK;
    }
    return add_step(g, node, parts->of + parts->start[node->name], n_parts);
}

static ebb_status add_nodes(cut_graph *g) {
    const size_t n = g->nodes.n;
    uint32_t *order = ebb__bump_alloc(&g->f->bump, n, sizeof *order);
    uint64_t *key = ebb__bump_alloc(&g->f->bump, n, sizeof *key);
    cut_parts parts;
    if (order == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        key[i] = g->nodes.data[i].index;
        g->nodes.data[i].tensor = FOREIGN_NONE;
    }
    EBB_TRY(ebb__sort_by_key(g->f->mem, order, n, key));
    EBB_TRY(gather_parts(g, order, &parts));
    for (size_t i = 0; i < n; i++) { EBB_TRY(add_node(g, &g->nodes.data[order[i]], &parts)); }
    return ebb__foreign_read_unused(g->f);
}

static ebb_status no_element(void *ctx, const ebb_json_value *json) {
    (void)ctx;
    (void)json;
    return EBB_OK;
}

static ebb_status read_graph(cut_graph *g) {
    ebb_foreign *f = g->f;
    ebb_json_source source = {.mem = f->mem, .path = f->path, .read = ebb__foreign_read, .ctx = f, .is_strict = true};
    const ebb_json_handler handler = {.element = no_element, .wants = wants, .member = take_member, .ctx = g};
    EBB_TRY(ebb__json_read(&source, &handler));
    if (!g->has_information) { return ebb_fail(EBB_E_FORMAT, "%s: there is no member " INFORMATION, f->path); }
    EBB_TRY(settle_candidates(g));
    EBB_TRY(settle_bytes(g));
    return add_nodes(g);
}

ebb_status ebb__foreign_read_min_cut(ebb_foreign *f) {
    cut_graph g = {.f = f};
    ebb__foreign_names_init(&g.names, f->mem, &f->bump);
    const ebb_status st = read_graph(&g);
    ebb__foreign_names_fini(&g.names);
    EBB_VEC_FINI(f->mem, &g.nodes);
    EBB_VEC_FINI(f->mem, &g.inputs);
    EBB_VEC_FINI(f->mem, &g.candidates);
    EBB_VEC_FINI(f->mem, &g.memories);
    EBB_VEC_FINI(f->mem, &g.runtimes);
    return st;
}
