/* SPDX-License-Identifier: Apache-2.0
 *
 * A PyTorch execution trace that has been read, as events. Nodes begin in the order of their ids and end in the order
 * of the file, so one is within another if it begins later and ends earlier. Parents do not tell it: the observer takes
 * an operator that ended with an exception, as those of a checkpoint do that stops early, for the parent of what comes
 * after it. Only in a file that is sorted by ids parents tell it. A node ends when one of its thread begins that is not
 * within it. What a node does to blocks comes at its end, after what the nodes within
 * it do; only blocks that it makes come at its beginning. Each event is one tick later than the one before.
 *
 * Nodes of other threads may end late in this order, so a block is freed when the last node that holds it has ended.
 */
#include "trace/execution.h"

#define MAX_OPEN 4096u /* nodes within each other */
#define ITERATION "ProfilerStep#"

typedef struct open_node {
    const execution_node *node;
    uint64_t iteration; /* EBB_TRACE_NONE: it is not one */
    uint32_t phase;
    uint32_t names_blocks;  /* what is made within; 0: nothing does */
    uint32_t module, range; /* of modules: what the node is of; the range around it */
} open_node;

typedef struct row_state {
    EBB_VEC(open_node) open;
} row_state;

typedef struct output {
    execution *e;
    ebb_importer *importer;
    uint32_t space[EXECUTION_MAX_DEVICES];
    uint32_t *order;   /* of nodes, by ids */
    uint32_t *strings; /* [texts + 1]: the writer's numbers, 0 until asked for */
    row_state rows[EBB_TRACE_MAX_ROWS];
    execution_modules modules;
    uint32_t main_thread, before_name;
    uint64_t tick, n_blocks, n_iterations;
    bool is_sorted; /* the file is in the order of ids */
} output;

static ebb_status add(output *out, ebb_trace_event event) {
    event.time_ns = out->tick++;
    return ebb_trace_writer_add(out->importer->writer, &event);
}

/* ---- blocks ----------------------------------------------------------------------------------- */

static bool is_wanted(const output *out, const execution_block *block) {
    return out->space[block->device] != IMPORT_NO_SPACE;
}

static ebb_status add_alloc(output *out, execution_block *block, uint32_t row) {
    const row_state *state = &out->rows[row];
    const uint32_t named = state->open.n > 0 ? state->open.data[state->open.n - 1].names_blocks : 0;
    if (block->number != 0) { return EBB_OK; }
    block->number = ++out->n_blocks;
    return add(out, (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                      .row = row,
                                      .block = block->number - 1,
                                      .size_bytes = block->size_bytes,
                                      .address = EBB_TRACE_NONE,
                                      .space = out->space[block->device],
                                      .role = EBB_ROLE_UNKNOWN,
                                      .name = block->before ? out->before_name : named,
                                      .before = block->before});
}

static ebb_status add_access(output *out, execution_block *block, uint32_t row, ebb_trace_kind kind) {
    EBB_TRY(add_alloc(out, block, row)); /* a file whose ids are in no order */
    EBB_ASSERT(block->number > 0 && block->number <= out->n_blocks);
    return add(out, (ebb_trace_event){.kind = kind, .row = row, .block = block->number - 1});
}

static ebb_status let_go(output *out, execution_block *block, uint32_t row) {
    EBB_ASSERT(block->n_holds > 0);
    if (--block->n_holds > 0 || (block->before && !block->is_replaced)) { return EBB_OK; }
    return add_access(out, block, row, EBB_TRACE_FREE);
}

/* All touches of the node that are of this use, or of uses that are reads and writes. */
static ebb_status do_touches(output *out, const execution_node *node, uint32_t row, execution_use use) {
    EBB_ASSERT(node->first_touch + node->n_touches <= out->e->touches.n);
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const execution_touch *t = &out->e->touches.data[node->first_touch + i];
        EBB_ASSERT(t->block < out->e->blocks.n);
        execution_block *block = &out->e->blocks.data[t->block];
        const bool is_access = t->use == EXECUTION_READ || t->use == EXECUTION_WRITE;
        if (!is_wanted(out, block) || (t->use != use && !(is_access && use == EXECUTION_READ))) { continue; }
        switch ((execution_use)t->use) {
        case EXECUTION_BIRTH: EBB_TRY(add_alloc(out, block, row)); break;
        case EXECUTION_READ: EBB_TRY(add_access(out, block, row, EBB_TRACE_READ)); break;
        case EXECUTION_WRITE: EBB_TRY(add_access(out, block, row, EBB_TRACE_WRITE)); break;
        case EXECUTION_HOLD: EBB_TRY(let_go(out, block, row)); break;
        }
    }
    return EBB_OK;
}

static ebb_status add_befores(output *out) {
    EBB_TRY(ebb_trace_writer_string(out->importer->writer, IMPORT_BEFORE, &out->before_name));
    for (size_t i = 0; i < out->e->blocks.n; i++) {
        execution_block *block = &out->e->blocks.data[i];
        if (block->before && is_wanted(out, block)) { EBB_TRY(add_alloc(out, block, EBB_TRACE_ROW_COMPUTE)); }
    }
    return EBB_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------ */

static const char *name_of(const output *out, const execution_node *node) {
    EBB_ASSERT(node->name > 0 && node->name <= out->e->texts.keys.n);
    return out->e->texts.keys.data[node->name - 1].data;
}

static bool is_module(const output *out, const open_node *o) {
    return o->node->scope == EXECUTION_SCOPE_RANGE && o->phase != EBB_TRACE_PHASE_UPDATE &&
           ebb__execution_is_own_range(name_of(out, o->node));
}

/* A range around passes other than the forward is no module of theirs: what runs again in the backward pass begins
 * ranges anew. */
static ebb_status find_module(output *out, const open_node *around, open_node *o) {
    const execution_node *node = o->node;
    const bool is_new_pass = o->phase != around->phase && o->phase != EBB_TRACE_PHASE_FORWARD;
    if (node->scope == EXECUTION_SCOPE_BACKWARD) {
        o->module = ebb__execution_module_of(&out->modules, node->sequence);
        return EBB_OK;
    }
    o->module = is_new_pass ? 0 : around->module;
    o->range = is_new_pass ? 0 : around->range;
    if (is_module(out, o)) {
        EBB_TRY(ebb__execution_find_name(&out->modules, o->range, node->name, name_of(out, o->node), true, &o->range));
        o->module = o->range;
        o->names_blocks = 0;
    }
    return node->sequence != 0 ? ebb__execution_note_sequence(&out->modules, node->sequence, o->module) : EBB_OK;
}

/* The outermost operator names what is made within it, or within a range. */
static ebb_status name_blocks(output *out, open_node *o) {
    const char *name = name_of(out, o->node);
    uint32_t number = 0;
    if (o->names_blocks != 0 || is_module(out, o) || !ebb__import_names_blocks(name)) { return EBB_OK; }
    o->names_blocks = out->strings[o->node->name];
    if (o->range == 0) { return EBB_OK; }
    EBB_TRY(ebb__execution_find_name(&out->modules, o->range, o->node->name, name, false, &number));
    o->names_blocks = out->modules.names.data[number].string;
    return EBB_OK;
}

/* A step is named after its module; PyTorch's own ranges keep their names. */
static uint32_t step_name(const output *out, const open_node *o) {
    const bool is_of_pytorch = o->node->scope == EXECUTION_SCOPE_RANGE && !is_module(out, o);
    if (o->module == 0 || is_of_pytorch) { return out->strings[o->node->name]; }
    return out->modules.names.data[o->module].string;
}

static ebb_status begin_node(output *out, const execution_node *node, uint32_t row) {
    row_state *state = &out->rows[row];
    const char *name = name_of(out, node);
    uint32_t *string = &out->strings[node->name];
    const open_node none = {.phase = EBB_TRACE_PHASE_UNKNOWN};
    const open_node *around = state->open.n > 0 ? &state->open.data[state->open.n - 1] : &none;
    open_node o = {.node = node, .iteration = EBB_TRACE_NONE, .names_blocks = around->names_blocks};
    o.phase = ebb__import_phase(name, node->sequence != 0, around->phase);
    if (*string == 0) { EBB_TRY(ebb__import_string(out->importer, name, string)); }
    EBB_TRY(find_module(out, around, &o));
    EBB_TRY(name_blocks(out, &o));
    ebb_trace_event mark = {.kind = EBB_TRACE_MARK, .row = row, .mark = EBB_TRACE_ANNOTATION, .name = *string};
    if (ebb__import_begins_with(name, IMPORT_OPTIMIZER)) { EBB_TRY(add(out, mark)); }
    if (ebb__import_begins_with(name, ITERATION)) {
        if (!ebb__parse_u64(name + strlen(ITERATION), &o.iteration)) { o.iteration = out->n_iterations; }
        out->n_iterations++;
        mark.mark = EBB_TRACE_ITERATION_BEGIN;
        mark.name = 0;
        mark.number = o.iteration;
        EBB_TRY(add(out, mark));
    }
    EBB_TRY(add(out, (ebb_trace_event){.kind = EBB_TRACE_STEP_BEGIN,
                                       .row = row,
                                       .name = step_name(out, &o),
                                       .op = *string,
                                       .phase = o.phase,
                                       .index = EBB_TRACE_NONE}));
    EBB_TRY(EBB_PUSH(out->importer->mem, &state->open, o));
    return do_touches(out, node, row, EXECUTION_BIRTH);
}

static ebb_status end_node(output *out, uint32_t row) {
    row_state *state = &out->rows[row];
    EBB_ASSERT(state->open.n > 0);
    const open_node o = state->open.data[--state->open.n];
    EBB_TRY(do_touches(out, o.node, row, EXECUTION_READ));
    EBB_TRY(add(out, (ebb_trace_event){.kind = EBB_TRACE_STEP_END, .row = row}));
    EBB_TRY(do_touches(out, o.node, row, EXECUTION_HOLD));
    if (o.iteration == EBB_TRACE_NONE) { return EBB_OK; }
    return add(out, (ebb_trace_event){
                        .kind = EBB_TRACE_MARK, .row = row, .mark = EBB_TRACE_ITERATION_END, .number = o.iteration});
}

/* Row 0 is the thread with most nodes. What threads there are beyond the rows share the last one. */
static uint32_t row_of(const output *out, uint32_t thread) {
    EBB_ASSERT(thread < out->e->n_threads);
    if (thread == out->main_thread) { return EBB_TRACE_ROW_COMPUTE; }
    const uint32_t row = IMPORT_FIRST_FREE_ROW + thread - (thread > out->main_thread);
    return row < EBB_TRACE_MAX_ROWS ? row : EBB_TRACE_MAX_ROWS - 1;
}

static bool is_within(const output *out, const execution_node *node, const execution_node *around) {
    return out->is_sorted ? around->id == node->parent : around->thread == node->thread && node < around;
}

static ebb_status write_node(output *out, const execution_node *node) {
    const uint32_t row = row_of(out, node->thread);
    const row_state *state = &out->rows[row];
    while (state->open.n > 0 &&
           (!is_within(out, node, state->open.data[state->open.n - 1].node) || state->open.n == MAX_OPEN)) {
        EBB_TRY(end_node(out, row));
    }
    return begin_node(out, node, row);
}

static ebb_status write_nodes(output *out) {
    for (size_t i = 0; i < out->e->nodes.n; i++) { EBB_TRY(write_node(out, &out->e->nodes.data[out->order[i]])); }
    for (uint32_t row = 0; row < EBB_TRACE_MAX_ROWS; row++) {
        while (out->rows[row].open.n > 0) { EBB_TRY(end_node(out, row)); }
    }
    return EBB_OK;
}

/* ---- all -------------------------------------------------------------------------------------- */

static ebb_status sort_nodes(output *out) {
    const size_t n = out->e->nodes.n;
    const ebb_mem *mem = out->importer->mem;
    if (n > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^32 nodes", out->importer->path); }
    out->order = ebb__alloc(mem, n + 1, sizeof *out->order);
    out->strings = ebb__calloc(mem, out->e->texts.keys.n + 1, sizeof *out->strings);
    uint64_t *ids = ebb__alloc(mem, n + 1, sizeof *ids);
    ebb_status st = out->order != NULL && out->strings != NULL && ids != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    out->is_sorted = true;
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        out->order[i] = (uint32_t)i;
        ids[i] = out->e->nodes.data[i].id;
        out->is_sorted = out->is_sorted && (i == 0 || ids[i - 1] < ids[i]);
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, out->order, n, ids); }
    ebb__free(mem, ids);
    return st;
}

static ebb_status find_main_thread(output *out) {
    const execution *e = out->e;
    uint64_t *n_nodes = ebb__calloc(out->importer->mem, e->n_threads + 1, sizeof *n_nodes);
    if (n_nodes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < e->nodes.n; i++) { n_nodes[e->nodes.data[i].thread]++; }
    for (uint32_t t = 1; t < e->n_threads; t++) {
        if (n_nodes[t] > n_nodes[out->main_thread]) { out->main_thread = t; }
    }
    ebb__free(out->importer->mem, n_nodes);
    return EBB_OK;
}

static ebb_status write_all(output *out) {
    const execution *e = out->e;
    EBB_TRY(ebb__import_choose_devices(out->importer, e->devices, e->n_devices, out->space));
    EBB_TRY(sort_nodes(out));
    EBB_TRY(find_main_thread(out));
    EBB_TRY(ebb__import_begin(out->importer, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS, 0));
    EBB_TRY(ebb__import_note_devices(out->importer, e->devices, e->n_devices, out->space));
    EBB_TRY(add_befores(out));
    return write_nodes(out);
}

ebb_status ebb__execution_write(execution *e) {
    const ebb_mem *mem = e->importer->mem;
    output *out = ebb__calloc(mem, 1, sizeof *out);
    if (out == NULL) { return EBB_E_NO_MEMORY; }
    out->e = e;
    out->importer = e->importer;
    ebb_status st = ebb__execution_modules_init(&out->modules, e->importer);
    if (st == EBB_OK) { st = write_all(out); }
    ebb__execution_modules_fini(&out->modules);
    for (size_t i = 0; i < EBB_TRACE_MAX_ROWS; i++) { EBB_VEC_FINI(mem, &out->rows[i].open); }
    ebb__free(mem, out->order);
    ebb__free(mem, out->strings);
    ebb__free(mem, out);
    return st;
}
