/* SPDX-License-Identifier: Apache-2.0
 *
 * A program from a trace; include/ebb/program_trace.h has the rules. Three passes: read all events into tables and let
 * the finder of iterations see them; choose a stretch of events and say what each block is in it; walk the stretch once
 * more, from which steps come.
 *
 * Rows of the trace run beside each other, a program's steps after each other. Each row gathers the accesses of its
 * operator and makes a step of them when the operator ends, when an inner one begins, or when another row accesses what
 * one of the two writes. So steps come in an order in which each read finds what was written.
 *
 * Invariants
 *  1. A block's accesses come in the order of their events: the first one of a block without a content is a write.
 *  2. A row that gathers nothing has no accesses; its time goes to the next step that it makes.
 */
#include "ebb/program_trace.h"

#include "program/program.h"

#define NONE UINT32_MAX
#define N_ROWS ((size_t)EBB_TRACE_MAX_ROWS)
#define NAME_BYTES 32

typedef struct trace_block {
    uint64_t size_bytes, address;
    uint32_t born, died; /* events; died NONE: never */
    uint32_t name;
    uint32_t space;
    uint32_t tensor; /* in drafts of tensors; NONE: not in the stretch, or of no bytes */
    uint8_t role;
    bool before;      /* there before the recording began */
    bool touched;     /* has an access in the stretch */
    bool is_read;     /* has a read in it */
    bool first_read;  /* and that is its first access */
    bool has_content; /* so far in the walk */
} trace_block;

typedef struct trace_event {
    uint64_t time_ns;
    uint32_t block, step; /* NONE: none */
    uint8_t kind, row;
    bool out; /* of a copy */
} trace_event;

typedef struct trace_step {
    uint32_t name, op;
    uint8_t phase;
} trace_step;

typedef struct draft_tensor {
    uint32_t block; /* whose name and bytes it has */
    bool persistent, kept;
    bool shared;                 /* read by several rows since it was last written */
    uint64_t toucher, writer;    /* serials of the gatherings that did so last; 0: none */
    uint32_t toucher_row, place; /* the toucher's row, and where the access is among the gathered */
} draft_tensor;

typedef struct draft_step {
    uint64_t begin_ns, time_ns;
    uint64_t first_access;
    uint32_t n_accesses;
    uint32_t step;    /* of the trace; NONE: the kind says what */
    uint32_t block;   /* whose name it has, without a step */
    const char *kind; /* static, without a step */
    bool until_next;  /* its time is that to the next step */
} draft_step;

/* What a row is about to make a step of. */
typedef struct row_state {
    EBB_VEC(ebb_access) accesses;
    uint64_t serial; /* of the gathering, 1 or more */
    uint32_t step;   /* the operator's */
    uint32_t depth;  /* open operators */
    uint64_t since_ns, time_ns;
    size_t last_made; /* step, plus 1; 0: none */
    bool is_leaf;     /* the innermost operator has no inner one and no step so far */
    bool has_freed;
} row_state;

typedef struct conversion {
    const ebb_mem *mem;
    ebb_trace_reader *reader;
    EBB_VEC(trace_block) blocks;
    EBB_VEC(trace_event) events;
    EBB_VEC(trace_step) steps;
    EBB_VEC(draft_tensor) tensors;
    EBB_VEC(draft_step) made;
    EBB_VEC(ebb_access) accesses;
    row_state *rows; /* [N_ROWS] */
    uint64_t n_serials;
    uint32_t first, end; /* the stretch, in events */
    uint64_t now_ns;
    bool has_roles;
    ebb_program_trace_notes notes;
} conversion;

/* ---- reading ---------------------------------------------------------------------------------- */

static ebb_status keep_event(conversion *c, const ebb_trace_event *e) {
    const uint32_t number = (uint32_t)c->events.n;
    trace_event event = {.time_ns = e->time_ns, .block = NONE, .kind = (uint8_t)e->kind, .row = (uint8_t)e->row};
    event.step = e->step == EBB_TRACE_NONE ? NONE : (uint32_t)e->step;
    switch (e->kind) {
    case EBB_TRACE_ALLOC: {
        EBB_ASSERT(e->block == c->blocks.n);
        const trace_block block = {.size_bytes = e->size_bytes,
                                   .address = e->address,
                                   .born = number,
                                   .died = NONE,
                                   .name = e->name,
                                   .space = e->space,
                                   .tensor = NONE,
                                   .role = (uint8_t)e->role,
                                   .before = e->before};
        event.block = (uint32_t)e->block;
        EBB_TRY(EBB_PUSH(c->mem, &c->blocks, block));
        break;
    }
    case EBB_TRACE_FREE:
        event.block = (uint32_t)e->block;
        c->blocks.data[e->block].died = number;
        break;
    case EBB_TRACE_LABEL: /* a recorder gives it once it knows better */
        c->blocks.data[e->block].name = e->name;
        c->blocks.data[e->block].role = (uint8_t)e->role;
        break;
    case EBB_TRACE_READ:
    case EBB_TRACE_WRITE:
    case EBB_TRACE_COPY_BEGIN:
    case EBB_TRACE_COPY_END:
        event.block = (uint32_t)e->block;
        event.out = e->direction == EBB_TRACE_OUT;
        break;
    case EBB_TRACE_STEP_BEGIN: {
        EBB_ASSERT(e->step == c->steps.n);
        const trace_step step = {.name = e->name, .op = e->op, .phase = (uint8_t)e->phase};
        EBB_TRY(EBB_PUSH(c->mem, &c->steps, step));
        break;
    }
    default: break;
    }
    return EBB_PUSH(c->mem, &c->events, event);
}

static ebb_status read_all(conversion *c, ebb_iteration_finder *finder) {
    for (;;) {
        ebb_trace_event event;
        bool done = false;
        EBB_TRY(ebb_trace_reader_next(c->reader, &event, &done));
        if (done) { break; }
        EBB_TRY(ebb_iteration_finder_add(finder, &event)); /* also sees to the limit of events */
        EBB_TRY(keep_event(c, &event));
    }
    const uint32_t tells = ebb_trace_reader_info(c->reader).tells;
    c->notes.has_accesses = (tells & EBB_TRACE_TELLS_ACCESSES) != 0;
    c->has_roles = (tells & EBB_TRACE_TELLS_ROLES) != 0;
    c->notes.has_times = (tells & EBB_TRACE_TELLS_TIMES) != 0;
    const char *source = ebb_trace_reader_note(c->reader, "source");
    c->notes.is_slowed =
        c->notes.has_times && source != NULL && strcmp(source, "ebb.torch") == 0; /* Python sees each */
    return c->blocks.n > 0 ? EBB_OK : ebb_fail(EBB_E_FORMAT, "a program from a trace: nothing is allocated in it");
}

/* ---- the stretch ------------------------------------------------------------------------------ */

/* The most bytes live at once from event first on, before event end; *live_bytes are live before it, and then after it.
 */
static uint64_t walk_live(const conversion *c, uint64_t first, uint64_t end, uint64_t *live_bytes) {
    uint64_t peak_bytes = *live_bytes;
    for (uint64_t i = first; i < end; i++) {
        const trace_event *event = &c->events.data[i];
        if (event->kind == EBB_TRACE_ALLOC) { *live_bytes += c->blocks.data[event->block].size_bytes; }
        if (event->kind == EBB_TRACE_FREE) { *live_bytes -= c->blocks.data[event->block].size_bytes; }
        peak_bytes = ebb_max_u64(peak_bytes, *live_bytes);
    }
    return peak_bytes;
}

static ebb_status choose_stretch(conversion *c, ebb_iteration_finder *finder) {
    EBB_TRY(ebb_iteration_finder_find(finder, &c->notes.iteration));
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(finder, &n);
    uint64_t live_bytes = 0;
    double regularity = -1;
    for (size_t i = 0; i < n; i++) {
        const uint64_t end = parts[i].first_event + parts[i].n_events;
        const uint64_t peak_bytes = walk_live(c, parts[i].first_event, end, &live_bytes);
        if (parts[i].kind != EBB_ITERATION_PART_ITERATION || parts[i].regularity < regularity) { continue; }
        if (parts[i].regularity <= regularity && peak_bytes < c->notes.peak_bytes) { continue; }
        regularity = parts[i].regularity;
        c->notes.peak_bytes = peak_bytes;
        c->first = (uint32_t)parts[i].first_event;
        c->end = (uint32_t)end;
    }
    if (regularity < 0) {
        c->end = (uint32_t)c->events.n;
        live_bytes = 0;
        c->notes.peak_bytes = walk_live(c, 0, c->end, &live_bytes);
    }
    c->notes.first_event = c->first;
    c->notes.n_events = c->end - c->first;
    return EBB_OK;
}

/* A block that a copy brings is there from the copy's begin on; one that it takes away, to its end. */
static bool is_access(const trace_event *event, bool *writes_out) {
    *writes_out = event->kind == EBB_TRACE_WRITE || (event->kind == EBB_TRACE_COPY_BEGIN && !event->out);
    return *writes_out || event->kind == EBB_TRACE_READ || (event->kind == EBB_TRACE_COPY_END && event->out);
}

static void find_touched(conversion *c) {
    for (uint32_t i = c->first; i < c->end; i++) {
        bool writes = false;
        if (!is_access(&c->events.data[i], &writes)) { continue; }
        trace_block *block = &c->blocks.data[c->events.data[i].block];
        block->first_read = block->touched ? block->first_read : !writes;
        block->is_read = block->is_read || !writes;
        block->touched = true;
    }
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static bool is_from_before(const conversion *c, const trace_block *block) {
    return block->before || block->born < c->first;
}

static bool is_to_after(const conversion *c, const trace_block *block) {
    return block->died == NONE || block->died >= c->end;
}

static ebb_status add_tensor(conversion *c, uint32_t block_idx, bool persistent, bool kept) {
    trace_block *block = &c->blocks.data[block_idx];
    block->tensor = (uint32_t)c->tensors.n;
    block->has_content = is_from_before(c, block);
    const draft_tensor tensor = {.block = block_idx, .persistent = persistent, .kept = kept};
    return EBB_PUSH(c->mem, &c->tensors, tensor);
}

/* What a pair over the border has in common. */
static uint64_t place_key(const trace_block *block) {
    const uint64_t place[3] = {block->address, block->size_bytes, block->space};
    return ebb__hash(EBB_HASH_INIT, place, sizeof place);
}

static bool is_same_place(const trace_block *a, const trace_block *b) {
    return a->address == b->address && a->size_bytes == b->size_bytes && a->space == b->space;
}

/* Give blocks that are live at the end the tensors of those that were read, at the same place, and freed. By address no
 * two of either are live at once, so the hashes' order makes the pairs. */
static ebb_status join_pairs(conversion *c, uint32_t *idx, uint64_t *key, size_t n) {
    EBB_TRY(ebb__sort_by_key(c->mem, idx, n, key));
    for (size_t i = 0; i + 1 < n; i++) {
        const trace_block *old = &c->blocks.data[idx[i]];
        trace_block *new = &c->blocks.data[idx[i + 1]];
        if (!is_from_before(c, old) || is_from_before(c, new) || !is_same_place(old, new)) { continue; }
        new->tensor = old->tensor;
        c->tensors.data[old->tensor].persistent = true;
        c->notes.n_joined++;
    }
    return EBB_OK;
}

/* Old blocks get their tensors at once, new ones only where they are joined. */
static ebb_status join_over_border(conversion *c) {
    const size_t n_blocks = c->blocks.n;
    uint32_t *idx = ebb__alloc(c->mem, n_blocks, sizeof *idx);
    uint64_t *key = ebb__alloc(c->mem, n_blocks, sizeof *key);
    ebb_status st = idx != NULL && key != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    size_t n = 0;
    for (uint32_t b = 0; b < n_blocks && st == EBB_OK; b++) {
        const trace_block *block = &c->blocks.data[b];
        key[b] = place_key(block);
        const bool from_before = is_from_before(c, block), to_after = is_to_after(c, block);
        const bool is_in = block->born < c->end && (block->died == NONE || block->died >= c->first);
        if (!is_in || block->size_bytes == 0 || from_before == to_after) { continue; }
        if (from_before) { st = add_tensor(c, b, false, false); }
        if (block->address != EBB_TRACE_NONE && (to_after || block->is_read)) { idx[n++] = b; }
    }
    if (st == EBB_OK) { st = join_pairs(c, idx, key, n); }
    ebb__free(c->mem, idx);
    ebb__free(c->mem, key);
    return st;
}

static ebb_status name_tensors(conversion *c) {
    ebb_program_trace_notes *notes = &c->notes;
    EBB_TRY(join_over_border(c));
    for (uint32_t b = 0; b < c->blocks.n; b++) {
        const trace_block *block = &c->blocks.data[b];
        const bool from_before = is_from_before(c, block), to_after = is_to_after(c, block);
        if (block->born >= c->end || (block->died != NONE && block->died < c->first)) { continue; }
        notes->n_blocks++;
        notes->n_untouched += !block->touched;
        notes->n_persistent += from_before && to_after;
        if (block->size_bytes == 0) { continue; }
        if (block->tensor == NONE) { EBB_TRY(add_tensor(c, b, from_before && to_after, !from_before && to_after)); }
        notes->n_from_before += from_before && !c->tensors.data[block->tensor].persistent;
        notes->n_to_after += c->tensors.data[block->tensor].kept;
    }
    return EBB_OK;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static ebb_status make_step(conversion *c, draft_step step, const ebb_access *accesses, size_t n) {
    step.first_access = c->accesses.n;
    step.n_accesses = (uint32_t)n;
    EBB_TRY(EBB_RESERVE(c->mem, &c->accesses, n));
    for (size_t i = 0; i < n; i++) { c->accesses.data[c->accesses.n++] = accesses[i]; }
    return EBB_PUSH(c->mem, &c->made, step);
}

static void count_time(conversion *c, row_state *row) {
    if (row->depth == 0) { return; }
    row->time_ns += c->now_ns - row->since_ns;
    row->since_ns = c->now_ns;
}

/* Make a step of what the row has gathered; with nothing gathered, one without accesses if may_be_empty. */
static ebb_status flush_row(conversion *c, row_state *row, bool may_be_empty) {
    if (row->accesses.n == 0 && !may_be_empty) { return EBB_OK; }
    count_time(c, row);
    const draft_step step = {.begin_ns = c->now_ns - row->time_ns, .time_ns = row->time_ns, .step = row->step};
    EBB_TRY(make_step(c, step, row->accesses.data, row->accesses.n));
    c->notes.n_operators++;
    row->accesses.n = 0;
    row->time_ns = 0;
    row->serial = 0;
    row->is_leaf = row->has_freed = false;
    row->last_made = c->made.n;
    return EBB_OK;
}

static ebb_status flush_others(conversion *c, const row_state *own) {
    for (size_t r = 0; r < N_ROWS; r++) {
        if (&c->rows[r] != own) { EBB_TRY(flush_row(c, &c->rows[r], false)); }
    }
    return EBB_OK;
}

static bool is_gathered_by_other(const conversion *c, const draft_tensor *tensor, const row_state *own) {
    const row_state *row = &c->rows[tensor->toucher_row];
    return tensor->toucher != 0 && row != own && row->serial == tensor->toucher;
}

/* See to it that no other row holds back an access that comes before this one. */
static ebb_status settle_order(conversion *c, draft_tensor *tensor, const row_state *own, bool writes) {
    const bool others = is_gathered_by_other(c, tensor, own);
    if ((writes && (others || tensor->shared)) || (others && tensor->writer == tensor->toucher)) {
        EBB_TRY(flush_others(c, own));
        tensor->shared = false;
    }
    tensor->shared = tensor->shared || others;
    return EBB_OK;
}

/* own NULL: the access is a step by itself. */
static ebb_status touch(conversion *c, row_state *own, const trace_event *event, bool writes, const char *kind) {
    trace_block *block = &c->blocks.data[event->block];
    if (block->tensor == NONE) { return EBB_OK; }
    draft_tensor *tensor = &c->tensors.data[block->tensor];
    const uint32_t mode = !writes ? EBB_READ : block->has_content ? EBB_UPDATE : EBB_WRITE;
    EBB_ASSERT(writes || block->has_content);
    EBB_TRY(settle_order(c, tensor, own, writes));
    block->has_content = true;
    const ebb_access access = {.tensor = block->tensor, .mode = mode};
    if (own == NULL) {
        const draft_step step = {
            .begin_ns = c->now_ns, .step = NONE, .block = event->block, .kind = kind, .until_next = c->steps.n == 0};
        return make_step(c, step, &access, 1);
    }
    if (own->serial == 0) {
        own->serial = ++c->n_serials;
        own->step = event->step;
    }
    if (tensor->toucher == own->serial) {
        uint32_t *before = &own->accesses.data[tensor->place].mode;
        if (*before != EBB_WRITE) { *before |= mode; } /* what it has written itself it does not need */
    } else {
        tensor->toucher = own->serial;
        tensor->toucher_row = (uint32_t)(own - c->rows);
        tensor->place = (uint32_t)own->accesses.n;
        EBB_TRY(EBB_PUSH(c->mem, &own->accesses, access));
    }
    if (writes) { tensor->writer = own->serial; }
    return EBB_OK;
}

/* The row that gathers for the event's operator; NULL: it is in none. */
static ebb_status row_of(conversion *c, const trace_event *event, row_state **row_out) {
    row_state *row = &c->rows[event->row];
    *row_out = event->step == NONE ? NULL : row;
    if (event->step == NONE || row->serial == 0 || row->step == event->step) { return EBB_OK; }
    return flush_row(c, row, false);
}

static ebb_status begin_operator(conversion *c, const trace_event *event) {
    row_state *row = &c->rows[event->row];
    count_time(c, row);
    EBB_TRY(flush_row(c, row, false));
    row->since_ns = c->now_ns;
    row->depth++;
    row->is_leaf = true;
    return EBB_OK;
}

static ebb_status end_operator(conversion *c, const trace_event *event) {
    row_state *row = &c->rows[event->row];
    if (row->serial == 0) { row->step = event->step; }
    EBB_TRY(flush_row(c, row, row->is_leaf));
    count_time(c, row);
    row->is_leaf = false;
    row->depth -= row->depth > 0;
    if (row->depth > 0) { return EBB_OK; }
    if (row->last_made > 0) { c->made.data[row->last_made - 1].time_ns += row->time_ns; }
    row->time_ns = 0;
    return EBB_OK;
}

/* Blocks that are not accessed live from their allocation to their free. Within an operator that frees one and then
 * allocates another, the two are not there at once. */
static ebb_status walk_life(conversion *c, const trace_event *event) {
    const trace_block *block = &c->blocks.data[event->block];
    row_state *own = NULL;
    const bool is_alloc = event->kind == EBB_TRACE_ALLOC;
    if (is_alloc ? is_from_before(c, block) || (block->touched && !block->first_read) : block->touched) {
        return EBB_OK;
    }
    EBB_TRY(row_of(c, event, &own));
    if (own != NULL && is_alloc && own->has_freed && !c->notes.has_accesses) { EBB_TRY(flush_row(c, own, false)); }
    EBB_TRY(touch(c, own, event, is_alloc, is_alloc ? "alloc" : "free"));
    if (own != NULL && !is_alloc) { own->has_freed = true; }
    return EBB_OK;
}

static ebb_status walk_access(conversion *c, const trace_event *event, bool writes) {
    row_state *own = NULL;
    if (event->kind == EBB_TRACE_COPY_BEGIN || event->kind == EBB_TRACE_COPY_END) {
        c->notes.n_copies++;
        return touch(c, NULL, event, writes, writes ? "copy in" : "copy out");
    }
    EBB_TRY(row_of(c, event, &own));
    return touch(c, own, event, writes, writes ? "write" : "read");
}

static ebb_status walk_event(conversion *c, const trace_event *event) {
    bool writes = false;
    c->now_ns = event->time_ns;
    if (is_access(event, &writes)) { return walk_access(c, event, writes); }
    switch (event->kind) {
    case EBB_TRACE_STEP_BEGIN: return begin_operator(c, event);
    case EBB_TRACE_STEP_END: return end_operator(c, event);
    case EBB_TRACE_ALLOC:
    case EBB_TRACE_FREE: return walk_life(c, event);
    default: return EBB_OK;
    }
}

/* A step for each tensor of these by itself: all at once would need all of them at once. */
static ebb_status make_border_steps(conversion *c, bool at_end) {
    for (size_t t = 0; t < c->tensors.n; t++) {
        const uint32_t b = c->tensors.data[t].block;
        trace_block *block = &c->blocks.data[b];
        const bool persistent = c->tensors.data[t].persistent;
        const bool is_meant = at_end ? persistent && !block->touched : !persistent && is_from_before(c, block);
        if (!is_meant) { continue; }
        const ebb_access access = {.tensor = (uint32_t)t, .mode = at_end ? EBB_READ : EBB_WRITE};
        const draft_step step = {.begin_ns = c->now_ns, .step = NONE, .block = b, .kind = at_end ? "held" : "border"};
        EBB_TRY(make_step(c, step, &access, 1));
    }
    return EBB_OK;
}

static ebb_status make_steps(conversion *c) {
    c->rows = ebb__calloc(c->mem, N_ROWS, sizeof *c->rows);
    if (c->rows == NULL) { return EBB_E_NO_MEMORY; }
    if (c->first < c->end) { c->now_ns = c->events.data[c->first].time_ns; }
    EBB_TRY(make_border_steps(c, false));
    for (uint32_t i = c->first; i < c->end; i++) { EBB_TRY(walk_event(c, &c->events.data[i])); }
    EBB_TRY(flush_others(c, NULL));
    EBB_TRY(make_border_steps(c, true));
    for (size_t s = 0; s < c->made.n; s++) {
        const uint64_t next_ns = s + 1 < c->made.n ? c->made.data[s + 1].begin_ns : c->now_ns;
        draft_step *step = &c->made.data[s];
        if (step->until_next && next_ns > step->begin_ns) { step->time_ns = next_ns - step->begin_ns; }
        if (!c->notes.has_times) { step->time_ns = 0; }
    }
    return EBB_OK;
}

/* ---- the program ------------------------------------------------------------------------------ */

static const char *block_name(const conversion *c, uint32_t block, char *buf) {
    const char *name = ebb_trace_reader_string(c->reader, c->blocks.data[block].name);
    if (name[0] != '\0') { return name; }
    (void)snprintf(buf, NAME_BYTES, "block %lu", (unsigned long)block);
    return buf;
}

static ebb_status build_tensors(const conversion *c, ebb_program *program) {
    for (size_t t = 0; t < c->tensors.n; t++) {
        const draft_tensor *draft = &c->tensors.data[t];
        const trace_block *block = &c->blocks.data[draft->block];
        char buf[NAME_BYTES];
        const ebb_tensor tensor = {.name = block_name(c, draft->block, buf),
                                   .size_bytes = block->size_bytes,
                                   .role = c->has_roles ? (ebb_role)block->role : EBB_ROLE_UNKNOWN,
                                   .persistent = draft->persistent,
                                   .kept = draft->kept};
        uint32_t handle = 0;
        const ebb_status st = ebb_program_add_tensor(program, &tensor, &handle);
        if (st == EBB_E_ARGUMENT) { return ebb_fail(EBB_E_FORMAT, "a program from a trace: %s", ebb_last_error()); }
        EBB_TRY(st);
        EBB_ASSERT(handle == t); /* none is empty */
    }
    return EBB_OK;
}

/* Operators of one name over the same bytes do the same work. */
static uint64_t work_key(const conversion *c, const draft_step *draft, const char *kind, double *bytes_out) {
    uint64_t h = ebb__hash(EBB_HASH_INIT, kind, strlen(kind));
    for (uint64_t a = draft->first_access; a < draft->first_access + draft->n_accesses; a++) {
        const ebb_access *access = &c->accesses.data[a];
        const uint64_t bytes = c->blocks.data[c->tensors.data[access->tensor].block].size_bytes;
        const uint64_t same[2] = {access->mode, bytes};
        h = ebb__hash(h, same, sizeof same);
        *bytes_out += (double)bytes * (access->mode == EBB_UPDATE ? 2 : 1);
    }
    return h;
}

static ebb_status build_steps(const conversion *c, ebb_program *program) {
    for (size_t s = 0; s < c->made.n; s++) {
        const draft_step *draft = &c->made.data[s];
        const bool is_operator = draft->step != NONE;
        const trace_step *told = is_operator ? &c->steps.data[draft->step] : NULL;
        char buf[NAME_BYTES];
        const char *name =
            is_operator ? ebb_trace_reader_string(c->reader, told->name) : block_name(c, draft->block, buf);
        const char *op = is_operator ? ebb_trace_reader_string(c->reader, told->op) : draft->kind;
        const char *kind = op[0] != '\0' ? op : "operator";
        ebb_choice choice = {.name = "recorded", .time_ns = draft->time_ns};
        choice.key = work_key(c, draft, kind, &choice.traffic_bytes);
        const ebb_step step = {.name = name[0] != '\0' ? name : kind,
                               .kind = kind,
                               .phase = is_operator && told->phase < EBB_N_PHASES ? told->phase : EBB_PHASE_UNKNOWN,
                               .repeat = EBB_REPEAT_NEVER,
                               .n_accesses = draft->n_accesses,
                               .n_choices = 1};
        const ebb_access *accesses = draft->n_accesses > 0 ? &c->accesses.data[draft->first_access] : NULL;
        EBB_TRY(ebb_program_add_step(program, &step, accesses, &choice));
    }
    return EBB_OK;
}

static ebb_status build(const conversion *c, const ebb_program_trace_options *options, ebb_program **program_out) {
    const char *net = ebb_trace_reader_note(c->reader, "net");
    const char *name = options->name != NULL ? options->name : net != NULL ? net : "trace";
    const uint64_t alignment_bytes = options->alignment_bytes > 0 ? options->alignment_bytes : 1;
    ebb_program *program = NULL;
    EBB_TRY(ebb_program_create(options->mem, name, alignment_bytes, &program));
    ebb_status st = ebb_program_keep_order(program);
    if (st == EBB_OK) { st = build_tensors(c, program); }
    if (st == EBB_OK) { st = build_steps(c, program); }
    if (st == EBB_OK) { st = ebb_program_finish(program); }
    if (st == EBB_OK) {
        *program_out = program;
        program = NULL; /* handed over */
    }
    ebb_program_destroy(program);
    return st;
}

static ebb_status convert(conversion *c, ebb_iteration_finder *finder) {
    EBB_TRY(read_all(c, finder));
    EBB_TRY(choose_stretch(c, finder));
    find_touched(c);
    EBB_TRY(name_tensors(c));
    return make_steps(c);
}

static void conversion_fini(conversion *c) {
    for (size_t r = 0; c->rows != NULL && r < N_ROWS; r++) { EBB_VEC_FINI(c->mem, &c->rows[r].accesses); }
    ebb__free(c->mem, c->rows);
    EBB_VEC_FINI(c->mem, &c->blocks);
    EBB_VEC_FINI(c->mem, &c->events);
    EBB_VEC_FINI(c->mem, &c->steps);
    EBB_VEC_FINI(c->mem, &c->tensors);
    EBB_VEC_FINI(c->mem, &c->made);
    EBB_VEC_FINI(c->mem, &c->accesses);
}

ebb_status ebb_program_from_trace(ebb_trace_reader *reader, const ebb_program_trace_options *options,
                                  ebb_program **program_out, ebb_program_trace_notes *notes_out) {
    EBB_NEED(reader);
    EBB_NEED(program_out);
    const ebb_program_trace_options defaults = EBB_PROGRAM_TRACE_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "a program from a trace: options of another version");
    }
    conversion c = {.mem = ebb__mem_or_default(options->mem), .reader = reader};
    ebb_iteration_finder *finder = NULL;
    EBB_TRY(ebb_iteration_finder_create(options->mem, reader, &finder));
    ebb_status st = convert(&c, finder);
    ebb_iteration_finder_destroy(finder);
    if (st == EBB_OK) { st = build(&c, options, program_out); }
    if (st == EBB_OK && notes_out != NULL) { *notes_out = c.notes; }
    conversion_fini(&c);
    return st;
}
