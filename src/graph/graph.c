/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph itself: its values, its operators, the names of what persists, and the first failure of a
 * builder call. What operators mean is in builder.c and below; here they are rows with operands.
 *
 * Names, operand lists and nothing else lie in the bump, so that a network of a million operators costs a few
 * thousand allocations. Persistent names must be unique, because weights are saved and begun by name: an
 * open-addressing table over the values keeps that check at constant cost.
 */
#include "graph/graph_priv.h"

#define MAX_ELEMENTS ((int64_t)1 << 48)

static const struct {
    const char *name;
    uint32_t n_in_min, n_in_max, n_out_max, n_inout_max;
} op_table[EBB_N_OPS] = {
#define OP_ROW(kind, name, n_in_min, n_in_max, n_out_max, n_inout_max)                                                 \
    [EBB_OP_##kind] = {name, n_in_min, n_in_max, n_out_max, n_inout_max},
    EBB_OP_TABLE(OP_ROW)
#undef OP_ROW
};

const char *ebb__op_name(ebb_op_kind kind) {
    return (unsigned)kind < EBB_N_OPS ? op_table[kind].name : "unknown";
}

static bool in_range(uint32_t n, uint32_t min, uint32_t max) {
    return n >= min && n <= max;
}

bool ebb__op_takes(ebb_op_kind kind, uint32_t n_in, uint32_t n_out, uint32_t n_inout) {
    if ((unsigned)kind >= EBB_N_OPS) { return false; }
    const uint32_t n_in_min = op_table[kind].n_in_min, n_in_max = op_table[kind].n_in_max;
    const uint32_t n_out_max = op_table[kind].n_out_max, n_inout_max = op_table[kind].n_inout_max;
    const bool any = n_in_max == 0 && n_in_min > 0;
    return in_range(n_in, n_in_min, any ? UINT32_MAX : n_in_max) && in_range(n_out, n_out_max > 0, n_out_max) &&
           in_range(n_inout, n_inout_max > 0, n_inout_max);
}

ebb_shape ebb__shape_1d(int64_t n) {
    return (ebb_shape){.n_dims = 1, .dims = {n}};
}

ebb_shape ebb__shape_2d(int64_t n, int64_t c) {
    return (ebb_shape){.n_dims = 2, .dims = {n, c}};
}

ebb_shape ebb__shape_4d(int64_t n, int64_t c, int64_t h, int64_t w) {
    return (ebb_shape){.n_dims = 4, .dims = {n, c, h, w}};
}

int64_t ebb__shape_elements(const ebb_shape *shape) {
    int64_t n = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) { n *= shape->dims[i]; }
    return n;
}

bool ebb__shape_equal(const ebb_shape *a, const ebb_shape *b) {
    if (a->n_dims != b->n_dims) { return false; }
    for (int32_t i = 0; i < a->n_dims; i++) {
        if (a->dims[i] != b->dims[i]) { return false; }
    }
    return true;
}

size_t ebb__shape_hash(uint64_t h, const ebb_shape *shape) {
    for (int32_t i = 0; i < shape->n_dims; i++) {
        h = (h ^ (uint64_t)shape->dims[i]) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    return (size_t)(h ^ (h >> 32));
}

/* ---- the object ------------------------------------------------------------------------------- */

ebb_status ebb_graph_create(const ebb_graph_options *options, ebb_graph **graph_out) {
    EBB_NEED(graph_out);
    ebb_graph_options defaults = EBB_GRAPH_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "graph: options of another version");
    }
    const ebb_mem *mem = ebb__mem_or_default(options->mem);
    ebb_graph *graph = ebb__calloc(mem, 1, sizeof *graph);
    if (graph == NULL) { return EBB_E_NO_MEMORY; }
    graph->mem = mem;
    graph->inference = options->inference;
    graph->loss = EBB_NO_VALUE;
    ebb__bump_init(&graph->bump, mem);
    graph->name = ebb__bump_strdup(&graph->bump, options->name != NULL ? options->name : "network");
    if (graph->name == NULL) {
        ebb_graph_destroy(graph);
        return EBB_E_NO_MEMORY;
    }
    *graph_out = graph;
    return EBB_OK;
}

void ebb_graph_destroy(ebb_graph *graph) {
    if (graph == NULL) { return; }
    const ebb_mem *mem = graph->mem;
    EBB_VEC_FINI(mem, &graph->values);
    EBB_VEC_FINI(mem, &graph->ops);
    EBB_VEC_FINI(mem, &graph->ports);
    ebb__free(mem, graph->name_slots);
    ebb__free(mem, graph->message);
    ebb__bump_fini(&graph->bump);
    ebb__free(mem, graph);
}

ebb_status ebb_graph_check(const ebb_graph *graph) {
    EBB_NEED(graph);
    if (graph->status == EBB_OK) { return EBB_OK; }
    return ebb_fail(graph->status, "%s", graph->message != NULL ? graph->message : ebb_status_text(graph->status));
}

const ebb_port *ebb_graph_ports(const ebb_graph *graph, size_t *n_out) {
    *n_out = graph->ports.n;
    return graph->ports.data;
}

const ebb_port *ebb__graph_port(const ebb_graph *graph, const char *name) {
    for (size_t p = 0; p < graph->ports.n; p++) {
        if (strcmp(graph->ports.data[p].name, name) == 0) { return &graph->ports.data[p]; }
    }
    return NULL;
}

size_t ebb_graph_n_values(const ebb_graph *graph) {
    return graph->values.n;
}

ebb_status ebb_graph_value_shape(const ebb_graph *graph, ebb_value value, int64_t dims_out[4], size_t *n_dims_out) {
    EBB_NEED(graph);
    EBB_NEED(dims_out);
    EBB_NEED(n_dims_out);
    if (value >= graph->values.n) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: there is no value %u", graph->name, (unsigned)value);
    }
    const ebb_shape *shape = &graph->values.data[value].shape;
    memcpy(dims_out, shape->dims, sizeof shape->dims);
    *n_dims_out = (size_t)shape->n_dims;
    return EBB_OK;
}

/* ---- names ------------------------------------------------------------------------------------ */

const char *ebb__graph_join(ebb_graph *graph, const char *prefix, const char *suffix) {
    size_t n_prefix = strlen(prefix), n_suffix = strlen(suffix);
    char *text = ebb__bump_alloc(&graph->bump, n_prefix + n_suffix + 1, 1);
    if (text == NULL) { return NULL; }
    memcpy(text, prefix, n_prefix);
    memcpy(text + n_prefix, suffix, n_suffix + 1);
    return text;
}

static uint32_t hash_name(const char *name) {
    uint64_t h = ebb__hash(EBB_HASH_INIT, name, strlen(name));
    return (uint32_t)(h ^ (h >> 32));
}

/* The slot that holds name, or the empty one where it belongs. */
static ebb_name_slot *find_slot(const ebb_graph *graph, uint32_t hash, const char *name) {
    size_t mask = graph->n_name_slots - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
        ebb_name_slot *slot = &graph->name_slots[at];
        if (slot->value == EBB_NO_VALUE) { return slot; }
        if (slot->hash == hash && strcmp(graph->values.data[slot->value].name, name) == 0) { return slot; }
    }
}

static ebb_status grow_names(ebb_graph *graph) {
    size_t n_old = graph->n_name_slots, n_new = n_old < 64 ? 64 : 2 * n_old;
    if (2 * (graph->n_names + 1) <= n_old) { return EBB_OK; }
    ebb_name_slot *slots = ebb__alloc(graph->mem, n_new, sizeof *slots);
    if (slots == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n_new; i++) { slots[i] = (ebb_name_slot){0, EBB_NO_VALUE}; }
    for (size_t i = 0; i < n_old; i++) {
        ebb_name_slot slot = graph->name_slots[i];
        size_t at = slot.hash & (n_new - 1);
        if (slot.value == EBB_NO_VALUE) { continue; }
        while (slots[at].value != EBB_NO_VALUE) { at = (at + 1) & (n_new - 1); }
        slots[at] = slot;
    }
    ebb__free(graph->mem, graph->name_slots);
    graph->name_slots = slots;
    graph->n_name_slots = n_new;
    return EBB_OK;
}

static ebb_status register_name(ebb_graph *graph, const char *name, ebb_value value) {
    EBB_TRY(grow_names(graph));
    uint32_t hash = hash_name(name);
    ebb_name_slot *slot = find_slot(graph, hash, name);
    if (slot->value != EBB_NO_VALUE) { return ebb_fail(EBB_E_ARGUMENT, "the name %s is taken by another layer", name); }
    *slot = (ebb_name_slot){hash, value};
    graph->n_names++;
    return EBB_OK;
}

/* ---- values and operators --------------------------------------------------------------------- */

static ebb_status check_shape(const char *name, const ebb_shape *shape) {
    EBB_ASSERT(shape->n_dims >= 1 && shape->n_dims <= 4);
    int64_t n = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] < 1) { return ebb_fail(EBB_E_ARGUMENT, "%s: a dimension is less than 1", name); }
        if (shape->dims[i] > MAX_ELEMENTS / n) {
            return ebb_fail(EBB_E_LIMIT, "%s: a tensor of more than 2^48 elements", name);
        }
        n *= shape->dims[i];
    }
    return EBB_OK;
}

ebb_status ebb__graph_add_value(ebb_graph *graph, const char *prefix, const char *suffix, const ebb_value_info *info,
                                ebb_value *value_out) {
    ebb_value_info copy = *info;
    copy.name = suffix[0] == '\0' ? prefix : ebb__graph_join(graph, prefix, suffix);
    if (copy.name == NULL) { return EBB_E_NO_MEMORY; }
    if (copy.kind != EBB_VALUE_GRADIENT && copy.kind != EBB_VALUE_STATE) { copy.of = EBB_NO_VALUE; }
    EBB_TRY(check_shape(copy.name, &copy.shape));
    if (graph->values.n >= EBB_NO_VALUE) { return ebb_fail(EBB_E_LIMIT, "%s: too many values", graph->name); }
    ebb_value value = (ebb_value)graph->values.n;
    EBB_TRY(EBB_RESERVE(graph->mem, &graph->values, 1));
    if (ebb__value_is_persistent(copy.kind)) { EBB_TRY(register_name(graph, copy.name, value)); }
    graph->values.data[graph->values.n++] = copy;
    *value_out = value;
    return EBB_OK;
}

static ebb_value *copy_operands(ebb_value *to, const ebb_value *from, uint32_t n) {
    if (n > 0) { memcpy(to, from, n * sizeof *to); }
    return to;
}

ebb_status ebb__graph_copy_op(ebb_graph *graph, const ebb_op *op, ebb_op *copy_out) {
    EBB_ASSERT((unsigned)op->kind < EBB_N_OPS);
    size_t n_out_room = op_table[op->kind].n_out_max;
    EBB_ASSERT(op->n_out <= n_out_room);
    ebb_value *list = ebb__bump_alloc(&graph->bump, op->n_in + n_out_room + op->n_inout, sizeof *list);
    if (list == NULL) { return EBB_E_NO_MEMORY; }
    *copy_out = *op;
    copy_out->in = copy_operands(list, op->in, op->n_in);
    copy_out->out = copy_operands(list + op->n_in, op->out, op->n_out);
    copy_out->inout = copy_operands(list + op->n_in + n_out_room, op->inout, op->n_inout);
    return EBB_OK;
}

ebb_status ebb__graph_add_op(ebb_graph *graph, const ebb_op *op) {
    ebb_op copy;
    if (graph->ops.n >= EBB_NO_OP) { return ebb_fail(EBB_E_LIMIT, "%s: too many operators", graph->name); }
    EBB_TRY(EBB_RESERVE(graph->mem, &graph->ops, 1));
    EBB_TRY(ebb__graph_copy_op(graph, op, &copy));
    graph->ops.data[graph->ops.n++] = copy;
    return EBB_OK;
}

ebb_status ebb__graph_count_uses(const ebb_graph *graph, uint32_t **uses_out) {
    uint32_t *uses = ebb__calloc(graph->mem, graph->values.n, sizeof *uses);
    if (uses == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < graph->ops.n; i++) {
        const ebb_op *op = &graph->ops.data[i];
        for (uint32_t k = 0; k < op->n_in; k++) { uses[op->in[k]]++; }
    }
    *uses_out = uses;
    return EBB_OK;
}

/* ---- the frame of a builder call -------------------------------------------------------------- */

ebb_status ebb__graph_end(ebb_graph *graph, ebb_status status) {
    if (status == EBB_OK || graph->status != EBB_OK) { return status; }
    graph->status = status;
    (void)ebb_fail(status, "%s: %s", graph->name, ebb_last_error());
    size_t n = strlen(ebb_last_error()) + 1;
    graph->message = graph->mem->alloc(graph->mem->ctx, n); /* not ebb__alloc: its failure would hide this one */
    if (graph->message != NULL) { memcpy(graph->message, ebb_last_error(), n); }
    return status;
}

bool ebb__graph_begin(ebb_graph *graph, ebb_op_kind kind, const char **name) {
    if (graph == NULL) { (void)ebb_fail(EBB_E_ARGUMENT, "a layer or a port, but graph is NULL"); }
    if (graph == NULL || graph->status != EBB_OK) { return false; }
    if (graph->differentiated) {
        (void)ebb__graph_end(graph, ebb_fail(EBB_E_ARGUMENT, "a training graph takes no more layers"));
        return false;
    }
    *name = *name != NULL ? ebb__bump_strdup(&graph->bump, *name)
                          : ebb__bump_printf(&graph->bump, "%s_%zu", ebb__op_name(kind), graph->ops.n);
    if (*name == NULL) { (void)ebb__graph_end(graph, EBB_E_NO_MEMORY); }
    return *name != NULL;
}

ebb_status ebb__graph_check_src(const ebb_graph *graph, const char *name, ebb_value src, int32_t min_dims,
                                int32_t max_dims) {
    if (src >= graph->values.n) { return ebb_fail(EBB_E_ARGUMENT, "%s: its input is no value of this graph", name); }
    const ebb_value_info *info = &graph->values.data[src];
    if (info->dtype != EBB_F32 || info->opaque || ebb__value_is_persistent(info->kind)) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: %s is no activation", name, info->name);
    }
    if (info->shape.n_dims < min_dims || info->shape.n_dims > max_dims) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: its input has %d dimensions, not %d", name, (int)info->shape.n_dims,
                        (int)(info->shape.n_dims < min_dims ? min_dims : max_dims));
    }
    return EBB_OK;
}

ebb_status ebb__graph_add_layer(ebb_graph *graph, const ebb_op *op, const ebb_shape *shape, ebb_value *dst_out) {
    ebb_value_info info = {.shape = *shape};
    ebb_value dst;
    EBB_TRY(ebb__graph_add_value(graph, op->name, "", &info, &dst));
    ebb_op layer = *op;
    layer.n_out = 1;
    layer.out = &dst;
    EBB_TRY(ebb__graph_add_op(graph, &layer));
    *dst_out = dst;
    return EBB_OK;
}

ebb_status ebb__graph_add_opaque(ebb_graph *graph, const char *name, const char *suffix, const ebb_shape *shape,
                                 ebb_value *value_out) {
    ebb_value_info info = {.shape = *shape, .dtype = EBB_U8, .opaque = true};
    return ebb__graph_add_value(graph, name, suffix, &info, value_out);
}
