/* SPDX-License-Identifier: Apache-2.0
 *
 * PyTorch execution traces: the JSON of ExecutionTraceObserver, of schema 1.0.1 (a node's fields beside each other) and
 * of the later ones ('chakra': inputs, outputs and attrs apart). A node is an operator's call with the storages of its
 * tensors; no times, no allocs and no frees are told.
 *
 * Nodes come in the order of their ends, children before their parents, with ids in the order of their beginnings. So
 * of a node's thread the nodes before it with higher ids are those within it.
 *
 *  - A read or write belongs to the innermost operator that has the storage: what a node within it has read or written
 * is not told again. Results count as written; an operator that returns its argument as it is (a view) does not read
 * it.
 *  - The observer names a storage by its address, so one number may stand for many blocks. A node whose result is
 * neither an argument nor from within it has made a new block; the one before of that number is over.
 *  - A block lives from the node that makes it to the end of the last one that uses it; one that no node makes was
 * there before, and stays.
 *
 * Held are nodes, what they touch and blocks: some 100 bytes a node, of about a thousand in the file.
 */
#include "trace/execution.h"

#define MAX_BLOCKS ((size_t)1 << 30)
#define MAX_LOOK_BACK 256u /* nodes within one */
#define SEQUENCE_BITS 40u  /* of a thread's */

/* What a storage id stands for now, and the last nodes of one thread that did something to it. */
typedef struct storage {
    uint32_t block;
    uint32_t thread;
    uint64_t made_by, read_by, written_by, used_by; /* ids */
    uint64_t found_by;                              /* id of the node at which a block from before came up */
    uint64_t grown_by, small_bytes;                 /* the last node for which it grew; and how large it was */
    uint64_t argument_of, result_of, held_by;       /* calls, by their number */
} storage;

/* A tensor of a node: its storage, and how far it reaches in it. */
typedef struct tensor {
    uint64_t id, storage_id, size_bytes;
    uint32_t arg;
    uint16_t device;
    bool has_strides; /* size_bytes is exact */
} tensor;

typedef EBB_VEC(tensor) tensors;

typedef struct reader {
    execution e;
    ebb_u64_map storage_of; /* an id's index in storages */
    EBB_VEC(storage) storages;
    ebb_trace_keys schema_texts;
    EBB_VEC(execution_schema) schemas; /* [i]: of text i + 1 */
    ebb_u64_map threads;
    ebb_u64_map expanded; /* 1: this tensor has more elements than its storage, which without strides is not seen */
    tensors inputs, outputs;
} reader;

/* A node while it is read. */
typedef struct call {
    uint64_t number; /* the how-manieth it is, from 1 */
    uint64_t id;
    uint32_t thread;
    execution_schema schema;
} call;

bool ebb__import_is_execution(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    if (memmem(head, n, "\"nodes\"", 7) == NULL || memmem(head, n, "\"schema\"", 8) == NULL) { return false; }
    return memmem(head, n, "\"rf_id\"", 7) != NULL;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

/* false: there are too many. */
static bool find_device(execution *e, const char *name, uint16_t *device_out) {
    for (size_t i = 0; i < e->n_devices; i++) {
        *device_out = (uint16_t)i;
        if (strncmp(e->devices[i].name, name, sizeof e->devices[i].name - 1) == 0) { return true; }
    }
    if (e->n_devices == EXECUTION_MAX_DEVICES) { return false; }
    *device_out = (uint16_t)e->n_devices;
    ebb_import_device *d = &e->devices[e->n_devices++];
    const char *number = strchr(name, ':');
    (void)snprintf(d->name, sizeof d->name, "%s", name);
    d->is_cpu = strncmp(name, "cpu", 3) == 0;
    if (number == NULL || !ebb__parse_u64(number + 1, &d->index)) { d->index = 0; }
    return true;
}

/* Elements from the storage's beginning to the last of a tensor with this shape and these strides. */
static bool reach_of(const ebb_json_value *json, uint32_t shape, uint32_t strides, uint64_t offset, uint64_t *n_out) {
    uint64_t n = offset;
    if (!ebb__json_value_is(json, shape, EBB_JSON_ARRAY) || !ebb__json_value_is(json, strides, EBB_JSON_ARRAY)) {
        return false;
    }
    uint32_t s = strides + 1;
    for (uint32_t d = shape + 1; d < json->tokens[shape].next; d = json->tokens[d].next) {
        uint64_t size = 0, stride = 0, step = 0;
        if (s >= json->tokens[strides].next || !ebb__json_value_u64(json, d, &size) ||
            !ebb__json_value_u64(json, s, &stride)) {
            return false;
        }
        if (size == 0 || !ebb_mul_u64(size - 1, stride, &step) || !ebb_add_u64(n, step, &n)) { return false; }
        s = json->tokens[s].next;
    }
    return ebb_add_u64(n, 1, n_out);
}

/* [tensor, storage, offset, elements, bytes of one, "device"] */
static bool read_tensor(execution *e, const ebb_json_value *json, uint32_t at, uint32_t shape, uint32_t strides,
                        tensor *out) {
    uint64_t number[5];
    uint64_t n_elems = 0;
    if (!ebb__json_value_is(json, at, EBB_JSON_ARRAY) || json->tokens[at].next != at + 7) { return false; }
    for (uint32_t i = 0; i < 5; i++) {
        if (!ebb__json_value_u64(json, at + 1 + i, &number[i])) { return false; }
    }
    if (!ebb__json_value_is(json, at + 6, EBB_JSON_STRING)) { return false; }
    const bool has_reach = reach_of(json, shape, strides, number[2], &n_elems);
    if (!has_reach && !ebb_add_u64(number[2], number[3], &n_elems)) { return false; }
    out->id = number[0];
    out->storage_id = number[1];
    out->has_strides = has_reach;
    out->size_bytes = 0;
    if (number[3] == 0 || !ebb_mul_u64(n_elems, number[4], &out->size_bytes) || out->size_bytes == 0) { return true; }
    return find_device(e, ebb__json_value_text(json, at + 6), &out->device);
}

/* The next of an array's elements at *at, which moves on; EBB_JSON_NONE where there is no array or no more. */
static uint32_t take(const ebb_json_value *json, uint32_t array, uint32_t *at) {
    if (array == EBB_JSON_NONE || *at >= json->tokens[array].next) { return EBB_JSON_NONE; }
    const uint32_t found = *at;
    EBB_ASSERT(json->tokens[found].next > found);
    *at = json->tokens[found].next;
    return found;
}

static uint32_t if_array(const ebb_json_value *json, uint32_t token) {
    return ebb__json_value_is(json, token, EBB_JSON_ARRAY) ? token : EBB_JSON_NONE;
}

/* A value of a node, and what says its shape and strides. */
typedef struct described {
    uint32_t token, shape, strides;
} described;

/* The tensor of a value, or those of the list there (lists within lists too). */
static ebb_status add_tensors(reader *r, const ebb_json_value *json, described value, uint32_t arg, tensors *list) {
    tensor t = {.arg = arg};
    if (!ebb__json_value_is(json, value.token, EBB_JSON_ARRAY)) { return EBB_OK; }
    if (read_tensor(&r->e, json, value.token, value.shape, value.strides, &t)) {
        return t.size_bytes > 0 ? EBB_PUSH(r->e.importer->mem, list, t) : EBB_OK;
    }
    const uint32_t shape = if_array(json, value.shape), strides = if_array(json, value.strides);
    uint32_t at = value.token + 1, shape_at = shape + 1, strides_at = strides + 1;
    for (described next; (next.token = take(json, value.token, &at)) != EBB_JSON_NONE;) {
        next.shape = take(json, shape, &shape_at);
        next.strides = take(json, strides, &strides_at);
        EBB_TRY(add_tensors(r, json, next, arg, list));
    }
    return EBB_OK;
}

/* A node's arguments or results; of_node is "inputs" or "outputs", shapes_name the later word for shapes. */
static ebb_status read_tensors(reader *r, const ebb_json_value *json, const char *of_node, const char *shapes_name,
                               tensors *list) {
    const uint32_t member = ebb__json_value_member(json, 0, of_node);
    const bool is_apart = ebb__json_value_is(json, member, EBB_JSON_OBJECT);
    const uint32_t values = if_array(json, is_apart ? ebb__json_value_member(json, member, "values") : member);
    const uint32_t shapes = if_array(json, is_apart ? ebb__json_value_member(json, member, "shapes")
                                                    : ebb__json_value_member(json, 0, shapes_name));
    const uint32_t strides = if_array(json, is_apart ? ebb__json_value_member(json, member, "strides") : EBB_JSON_NONE);
    uint32_t at = values + 1, shape_at = shapes + 1, strides_at = strides + 1, arg = 0;
    list->n = 0;
    for (described next; (next.token = take(json, values, &at)) != EBB_JSON_NONE;) {
        next.shape = take(json, shapes, &shape_at);
        next.strides = take(json, strides, &strides_at);
        EBB_TRY(add_tensors(r, json, next, arg++, list));
    }
    return EBB_OK;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

static ebb_status touch(reader *r, uint32_t block, execution_use use) {
    EBB_ASSERT(block < r->e.blocks.n);
    const execution_touch t = {.block = block & 0x3fffffffu, .use = (unsigned)use};
    if (use == EXECUTION_HOLD) { r->e.blocks.data[block].n_holds++; }
    return EBB_PUSH(r->e.importer->mem, &r->e.touches, t);
}

static ebb_status add_block(reader *r, const tensor *t, bool before, uint32_t *block_out) {
    if (r->e.blocks.n == MAX_BLOCKS) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^30 blocks", r->e.importer->path); }
    EBB_ASSERT(t->device < r->e.n_devices);
    const execution_block block = {.size_bytes = t->size_bytes, .device = t->device, .before = before};
    *block_out = (uint32_t)r->e.blocks.n;
    r->e.devices[t->device].n_blocks++;
    return EBB_PUSH(r->e.importer->mem, &r->e.blocks, block);
}

static storage *find_storage(const reader *r, uint64_t storage_id) {
    const uint64_t *idx = ebb__u64_map_find(&r->storage_of, storage_id);
    EBB_ASSERT(idx == NULL || *idx < r->storages.n);
    return idx != NULL ? &r->storages.data[*idx] : NULL;
}

static ebb_status add_storage(reader *r, const tensor *t, bool before, const call *c, storage **storage_out) {
    storage s = {.thread = c->thread, .found_by = before ? c->id : 0};
    uint64_t *idx = NULL;
    bool is_new = false;
    EBB_TRY(add_block(r, t, before, &s.block));
    EBB_TRY(EBB_PUSH(r->e.importer->mem, &r->storages, s));
    EBB_TRY(ebb__u64_map_add(&r->storage_of, t->storage_id, &idx, &is_new));
    EBB_ASSERT(is_new);
    *idx = r->storages.n - 1;
    *storage_out = &r->storages.data[*idx];
    return EBB_OK;
}

/* Whether the call, or a node within it, is the one of this id that did it. */
static bool is_within(const storage *s, uint64_t by, const call *c) {
    return s->thread == c->thread && by >= c->id && by != 0;
}

static void set_thread(storage *s, const call *c) {
    if (s->thread != c->thread) {
        s->made_by = s->read_by = s->written_by = s->used_by = s->found_by = s->grown_by = 0;
    }
    s->thread = c->thread;
}

static ebb_status read_block(reader *r, storage *s, const call *c) {
    if (is_within(s, s->read_by, c) || is_within(s, s->written_by, c)) { return EBB_OK; }
    set_thread(s, c);
    s->read_by = c->id;
    return touch(r, s->block, EXECUTION_READ);
}

static ebb_status write_block(reader *r, storage *s, const call *c) {
    if (is_within(s, s->written_by, c)) { return EBB_OK; }
    set_thread(s, c);
    s->written_by = c->id;
    return touch(r, s->block, EXECUTION_WRITE);
}

/* ---- a node's tensors ------------------------------------------------------------------------- */

static void grow_block(reader *r, const storage *s, const tensor *t) {
    execution_block *block = &r->e.blocks.data[s->block];
    block->size_bytes = ebb_max_u64(block->size_bytes, t->size_bytes);
}

static uint64_t bit_of(const tensor *t) {
    return t->arg < EXECUTION_MAX_ARGS ? (uint64_t)1 << t->arg : 0;
}

/* All storages of the arguments, and the existing ones of the results. */
static ebb_status mark_storages(reader *r, const call *c) {
    for (size_t i = 0; i < r->inputs.n; i++) {
        const tensor *t = &r->inputs.data[i];
        storage *s = find_storage(r, t->storage_id);
        if (s == NULL) { EBB_TRY(add_storage(r, t, true, c, &s)); }
        const uint64_t *is_expanded = t->has_strides ? NULL : ebb__u64_map_find(&r->expanded, t->id);
        if (r->e.blocks.data[s->block].before && (is_expanded == NULL || *is_expanded == 0)) { grow_block(r, s, t); }
        s->argument_of = c->number;
    }
    for (size_t i = 0; i < r->outputs.n; i++) {
        storage *s = find_storage(r, r->outputs.data[i].storage_id);
        if (s != NULL) { s->result_of = c->number; }
    }
    return EBB_OK;
}

static ebb_status use_argument(reader *r, const tensor *t, const call *c) {
    storage *s = find_storage(r, t->storage_id);
    const uint64_t bit = bit_of(t);
    if (!c->schema.is_there || ((c->schema.ignored | c->schema.overwritten) & bit) != 0) { return EBB_OK; }
    const bool is_view = (c->schema.aliased & bit) != 0 && s->result_of == c->number;
    return is_view ? EBB_OK : read_block(r, s, c);
}

static ebb_status use_written(reader *r, const tensor *t, const call *c) {
    return (c->schema.written & bit_of(t)) != 0 ? write_block(r, find_storage(r, t->storage_id), c) : EBB_OK;
}

/* Make a block of this storage id; another one that it stood for is over. */
static ebb_status make(reader *r, const tensor *t, const call *c, storage *s) {
    if (s == NULL) {
        EBB_TRY(add_storage(r, t, false, c, &s));
    } else {
        r->e.blocks.data[s->block].is_replaced = true;
        EBB_TRY(add_block(r, t, false, &s->block));
    }
    s->thread = c->thread;
    s->made_by = c->id;
    s->read_by = s->written_by = s->used_by = s->grown_by = 0;
    return touch(r, s->block, EXECUTION_BIRTH);
}

/* A result that no operator within returned, though one uses it: made here all the same, without an operator. What came
 * up within as a block from before is this one; of one that was known the nodes within meant the new one. */
static ebb_status make_unseen(reader *r, const tensor *t, const call *c, storage *s) {
    const uint32_t old = s->block;
    uint32_t block = old;
    if (is_within(s, s->found_by, c)) {
        r->e.blocks.data[old].before = false;
    } else {
        EBB_TRY(add_block(r, t, false, &block));
        r->e.blocks.data[old].is_replaced = true;
        if (is_within(s, s->grown_by, c)) { r->e.blocks.data[old].size_bytes = s->small_bytes; }
    }
    for (size_t n = 0; n < MAX_LOOK_BACK && n < r->e.nodes.n && block != old; n++) {
        const execution_node *node = &r->e.nodes.data[r->e.nodes.n - 1 - n];
        if (node->thread != c->thread || node->id < c->id) { break; }
        for (uint32_t i = 0; i < node->n_touches; i++) {
            execution_touch *touched = &r->e.touches.data[node->first_touch + i];
            if (touched->block != old) { continue; }
            touched->block = block & 0x3fffffffu;
            r->e.blocks.data[old].n_holds -= touched->use == EXECUTION_HOLD;
            r->e.blocks.data[block].n_holds += touched->use == EXECUTION_HOLD;
        }
    }
    s->block = block;
    s->made_by = c->id;
    return touch(r, block, EXECUTION_BIRTH);
}

static ebb_status use_result(reader *r, const tensor *t, const call *c) {
    storage *s = find_storage(r, t->storage_id);
    if (s != NULL && s->argument_of == c->number) {
        if (c->schema.written != 0 && t->size_bytes > r->e.blocks.data[s->block].size_bytes) {
            s->grown_by = c->id;
            s->small_bytes = r->e.blocks.data[s->block].size_bytes;
            grow_block(r, s, t);
        }
        return EBB_OK;
    }
    const bool was_made = s != NULL && is_within(s, s->made_by, c);
    const bool was_found = s != NULL && !was_made && is_within(s, s->used_by, c);
    if (s != NULL && !was_made && !c->schema.is_there) { return EBB_OK; }
    if (was_found) {
        EBB_TRY(make_unseen(r, t, c, s));
    } else if (!was_made) {
        EBB_TRY(make(r, t, c, s));
        s = find_storage(r, t->storage_id);
    }
    grow_block(r, s, t);
    return c->schema.is_there && !c->schema.only_allocates ? write_block(r, s, c) : EBB_OK;
}

/* Once a block, when all that the node does to it is said. */
static ebb_status hold(reader *r, const tensor *t, const call *c) {
    storage *s = find_storage(r, t->storage_id);
    EBB_ASSERT(s != NULL); /* an argument's is made, if need be, and a result's too */
    if (s->held_by == c->number) { return EBB_OK; }
    s->held_by = c->number;
    set_thread(s, c);
    s->used_by = c->id;
    return touch(r, s->block, EXECUTION_HOLD);
}

static ebb_status use_tensors(reader *r, const call *c) {
    static ebb_status (*const of_inputs[])(reader *, const tensor *, const call *) = {use_argument, use_written, hold};
    static ebb_status (*const of_outputs[])(reader *, const tensor *, const call *) = {use_result, NULL, hold};
    EBB_TRY(mark_storages(r, c));
    for (unsigned pass = 0; pass < 3; pass++) {
        for (size_t i = 0; i < r->inputs.n; i++) { EBB_TRY(of_inputs[pass](r, &r->inputs.data[i], c)); }
        for (size_t i = 0; i < r->outputs.n && of_outputs[pass] != NULL; i++) {
            EBB_TRY(of_outputs[pass](r, &r->outputs.data[i], c));
        }
    }
    return EBB_OK;
}

/* ---- nodes ------------------------------------------------------------------------------------ */

/* What a node says beside its tensors: a member of its own, or of the later schemas one of its attrs. */
static uint32_t find_attribute(const ebb_json_value *json, const char *name) {
    const uint32_t attrs = if_array(json, ebb__json_value_member(json, 0, "attrs"));
    if (attrs == EBB_JSON_NONE) { return ebb__json_value_member(json, 0, name); }
    for (uint32_t at = attrs + 1; at < json->tokens[attrs].next; at = json->tokens[at].next) {
        const char *its_name = ebb__json_value_string(json, at, "name");
        if (its_name != NULL && strcmp(its_name, name) == 0) { return ebb__json_value_member(json, at, "value"); }
    }
    return EBB_JSON_NONE;
}

static ebb_status note_expanded(reader *r, const char *name) {
    const bool expands = strncmp(name, "aten::expand", 12) == 0;
    for (size_t i = 0; i < r->outputs.n; i++) {
        uint64_t *value = NULL;
        bool is_new = false;
        if (r->outputs.data[i].has_strides) { continue; }
        EBB_TRY(ebb__u64_map_add(&r->expanded, r->outputs.data[i].id, &value, &is_new));
        *value = expands;
    }
    return EBB_OK;
}

static ebb_status find_schema(reader *r, const char *text, execution_schema *schema_out) {
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&r->schema_texts, text, strlen(text) + 1, &number, &is_new));
    if (is_new) { EBB_TRY(EBB_PUSH(r->e.importer->mem, &r->schemas, ebb__execution_schema(text))); }
    EBB_ASSERT(number > 0 && number <= r->schemas.n);
    *schema_out = r->schemas.data[number - 1];
    return EBB_OK;
}

static ebb_status find_thread(reader *r, const ebb_json_value *json, const char *attribute, uint32_t *thread_out) {
    uint64_t tid = 0, *thread = NULL;
    bool is_new = false;
    (void)ebb__json_value_u64(json, find_attribute(json, attribute), &tid);
    EBB_TRY(ebb__u64_map_add(&r->threads, tid, &thread, &is_new));
    if (is_new) { *thread = r->e.n_threads++; }
    *thread_out = (uint32_t)*thread & 0x7fffffffu;
    return EBB_OK;
}

/* Each thread counts by itself, from 0; a node of the backward pass has the number of the thread that made it. */
static ebb_status find_sequence(reader *r, const ebb_json_value *json, execution_node *node) {
    uint32_t thread = node->thread;
    int64_t number = -1;
    uint64_t scope = 0;
    (void)ebb__json_value_u64(json, find_attribute(json, "scope"), &scope);
    node->scope = scope <= EXECUTION_SCOPE_RANGE ? (uint8_t)scope : 0;
    if (!ebb__json_value_i64(json, find_attribute(json, "seq_id"), &number) || number < 0) { return EBB_OK; }
    if (node->scope == EXECUTION_SCOPE_BACKWARD) { EBB_TRY(find_thread(r, json, "fw_tid", &thread)); }
    node->sequence =
        ((uint64_t)thread << SEQUENCE_BITS | ((uint64_t)number & (((uint64_t)1 << SEQUENCE_BITS) - 1))) + 1;
    return EBB_OK;
}

static ebb_status read_node(void *ctx, const ebb_json_value *json) {
    reader *r = ctx;
    execution_node node = {.first_touch = r->e.touches.n};
    call c = {.number = r->e.nodes.n + 1};
    bool is_new = false;
    const char *name = ebb__json_value_string(json, 0, "name");
    uint32_t parent = ebb__json_value_member(json, 0, "ctrl_deps");
    if (parent == EBB_JSON_NONE) { parent = ebb__json_value_member(json, 0, "parent"); }
    if (name == NULL || !ebb__json_value_u64(json, ebb__json_value_member(json, 0, "id"), &node.id)) {
        return ebb__json_value_fail(json, "a node without a name or an id");
    }
    (void)ebb__json_value_u64(json, parent, &node.parent);
    if (strncmp(name, "[pytorch|profiler|execution_", 28) == 0) { return EBB_OK; } /* the process and its threads */
    const uint32_t schema = find_attribute(json, "op_schema");
    EBB_TRY(find_schema(r, ebb__json_value_is(json, schema, EBB_JSON_STRING) ? ebb__json_value_text(json, schema) : "",
                        &c.schema));
    EBB_TRY(find_thread(r, json, "tid", &c.thread));
    c.id = node.id;
    node.thread = c.thread;
    EBB_TRY(find_sequence(r, json, &node));
    EBB_TRY(ebb__trace_keys_add(&r->e.texts, name, strlen(name) + 1, &node.name, &is_new));
    EBB_TRY(read_tensors(r, json, "inputs", "input_shapes", &r->inputs));
    EBB_TRY(read_tensors(r, json, "outputs", "output_shapes", &r->outputs));
    EBB_TRY(use_tensors(r, &c));
    EBB_TRY(note_expanded(r, name));
    node.n_touches = (uint32_t)(r->e.touches.n - node.first_touch);
    return EBB_PUSH(r->e.importer->mem, &r->e.nodes, node);
}

/* ---- the file --------------------------------------------------------------------------------- */

static bool wants(void *ctx, const char *key) {
    (void)ctx;
    return strcmp(key, "schema") == 0;
}

static ebb_status read_member(void *ctx, const char *key, const ebb_json_value *json) {
    const reader *r = ctx;
    (void)key;
    if (ebb__json_value_is(json, 0, EBB_JSON_STRING) && strncmp(ebb__json_value_text(json, 0), "1.", 2) == 0) {
        return EBB_OK;
    }
    return ebb_fail(EBB_E_UNSUPPORTED, "%s: an execution trace of schema '%.40s'; 1.x are read", r->e.importer->path,
                    ebb__json_value_text(json, 0));
}

static ebb_status check(const reader *r) {
    if (r->e.n_devices > 0) { return EBB_OK; }
    return ebb_fail(EBB_E_UNSUPPORTED, "%s: no operator in it has a tensor", r->e.importer->path);
}

ebb_status ebb__import_execution(ebb_importer *importer) {
    const ebb_mem *mem = importer->mem;
    reader *r = ebb__calloc(mem, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    r->e.importer = importer;
    ebb__trace_keys_init(&r->e.texts, mem);
    ebb__trace_keys_init(&r->schema_texts, mem);
    ebb__u64_map_init(&r->storage_of, mem);
    ebb__u64_map_init(&r->threads, mem);
    ebb__u64_map_init(&r->expanded, mem);
    const ebb_json_handler handler = {"nodes", false, read_node, wants, read_member, r};
    ebb_status st = ebb__import_json_read(importer, &handler);
    if (st == EBB_OK) { st = check(r); }
    if (st == EBB_OK) { st = ebb__execution_write(&r->e); }
    EBB_VEC_FINI(mem, &r->inputs);
    EBB_VEC_FINI(mem, &r->outputs);
    EBB_VEC_FINI(mem, &r->schemas);
    EBB_VEC_FINI(mem, &r->storages);
    EBB_VEC_FINI(mem, &r->e.nodes);
    EBB_VEC_FINI(mem, &r->e.touches);
    EBB_VEC_FINI(mem, &r->e.blocks);
    ebb__u64_map_fini(&r->threads);
    ebb__u64_map_fini(&r->expanded);
    ebb__u64_map_fini(&r->storage_of);
    ebb__trace_keys_fini(&r->schema_texts);
    ebb__trace_keys_fini(&r->e.texts);
    ebb__free(mem, r);
    return st;
}
