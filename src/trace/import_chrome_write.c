/* SPDX-License-Identifier: Apache-2.0
 *
 * A Chrome trace that has been read, as events in order of time.
 *
 * Spans are sorted by their begins, longer ones first, and points (allocs, frees, marks) by time; the two are merged,
 * and before each the open spans that end by then are closed. A span that reaches out of the one around it on its
 * thread is cut to that one's end, so that the steps of a row nest. At one time come the begins, then the points, then
 * the ends. Iterations nest with nothing: the profiler begins one within a call of its step(), and ends it in the next.
 *
 * A block that is freed and was never allocated was there before; what a device's totals say was allocated then, less
 * those, is one block more.
 */
#include "trace/chrome.h"

#define NO_ROW UINT32_MAX
#define MAX_OPEN 4096u                                                /* spans within each other */
#define ITERATIONS EBB_TRACE_MAX_ROWS                                 /* where open iterations are, of any row */
#define UNIX_FROM ((uint64_t)1000 * 1000 * 1000 * 1000 * 1000 * 1000) /* times above are since 1970: 2001, in ns */

typedef struct open_span {
    uint64_t end_ns, number;
    uint32_t row, name, stack; /* stack: within it */
    uint32_t names_blocks;     /* what is allocated within; 0: nothing does */
    uint32_t phase;
    chrome_span_kind kind;
} open_span;

typedef struct before {
    uint64_t address, size_bytes;
    uint32_t device;
} before;

typedef struct row_state {
    EBB_VEC(open_span) open;
} row_state;

typedef struct output {
    chrome *c;
    ebb_importer *importer;
    ebb_import_device devices[CHROME_MAX_DEVICES];
    uint32_t space[CHROME_MAX_DEVICES];
    uint32_t *spans, *points; /* in order */
    uint32_t *strings;        /* [texts + 1]: the writer's numbers, 0 until asked for */
    EBB_VEC(before) befores;
    ebb_u64_map blocks; /* a block's number plus one by place; 0: freed */
    row_state rows[EBB_TRACE_MAX_ROWS + 1];
    uint64_t next_end_ns; /* of the open spans; UINT64_MAX: none is open */
    uint32_t next_row;    /* of rows: whose innermost span ends then; NO_ROW: none is open */
    uint64_t start_ns, now_ns, n_blocks, n_iterations;
} output;

/* ---- which device ----------------------------------------------------------------------------- */

static bool is_cpu(const chrome_device *d) {
    return d->type == 0;
}

static ebb_status choose_devices(output *out) {
    const chrome *c = out->c;
    for (size_t i = 0; i < c->n_devices; i++) {
        const chrome_device *d = &c->devices[i];
        ebb_import_device *id = &out->devices[i];
        *id = (ebb_import_device){.is_cpu = is_cpu(d), .index = d->index, .n_blocks = d->n_points};
        ebb__chrome_device_name(d, id->name, sizeof id->name);
    }
    return ebb__import_choose_devices(out->importer, out->devices, c->n_devices, out->space);
}

/* ---- order ------------------------------------------------------------------------------------ */

static ebb_status sort_spans(output *out, uint64_t *key) {
    const chrome *c = out->c;
    const size_t n = c->spans.n;
    for (size_t i = 0; i < n; i++) {
        out->spans[i] = (uint32_t)i;
        key[i] = UINT64_MAX - c->spans.data[i].end_ns;
    }
    EBB_TRY(ebb__sort_by_key(out->importer->mem, out->spans, n, key));
    for (size_t i = 0; i < n; i++) { key[i] = c->spans.data[i].begin_ns; }
    return ebb__sort_by_key(out->importer->mem, out->spans, n, key);
}

static ebb_status sort_points(output *out, uint64_t *key) {
    const chrome *c = out->c;
    for (size_t i = 0; i < c->points.n; i++) {
        out->points[i] = (uint32_t)i;
        key[i] = c->points.data[i].time_ns;
    }
    return ebb__sort_by_key(out->importer->mem, out->points, c->points.n, key);
}

static ebb_status sort_all(output *out) {
    const chrome *c = out->c;
    const ebb_mem *mem = out->importer->mem;
    if (c->spans.n > UINT32_MAX || c->points.n > UINT32_MAX) {
        return ebb_fail(EBB_E_LIMIT, "%s: more than 2^32 events", out->importer->path);
    }
    out->spans = ebb__alloc(mem, c->spans.n + 1, sizeof *out->spans);
    out->points = ebb__alloc(mem, c->points.n + 1, sizeof *out->points);
    out->strings = ebb__calloc(mem, c->texts.keys.n + 1, sizeof *out->strings);
    if (out->spans == NULL || out->points == NULL || out->strings == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t *key = ebb__alloc(mem, (size_t)ebb_max_u64(c->spans.n, c->points.n) + 1, sizeof *key);
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = sort_spans(out, key);
    if (st == EBB_OK) { st = sort_points(out, key); }
    ebb__free(mem, key);
    return st;
}

/* Row 0 is the thread with most steps; others are in order of their first event. */
static void choose_rows(chrome *c) {
    size_t most = 0;
    uint32_t next = IMPORT_FIRST_FREE_ROW;
    for (size_t i = 0; i < c->threads.n; i++) {
        if (c->threads.data[i].n_steps > c->threads.data[most].n_steps) { most = i; }
    }
    for (size_t i = 0; i < c->threads.n; i++) {
        c->threads.data[i].row = i == most ? EBB_TRACE_ROW_COMPUTE : next < EBB_TRACE_MAX_ROWS ? next++ : NO_ROW;
    }
}

/* ---- what was there before -------------------------------------------------------------------- */

static uint64_t place_of(const chrome_point *p) {
    return p->address * CHROME_MAX_DEVICES + p->device;
}

static bool is_wanted(const output *out, const chrome_point *p) {
    return p->name != 0 || out->space[p->device] != IMPORT_NO_SPACE;
}

/* The blocks that are freed and were never allocated. */
static ebb_status find_befores(output *out) {
    for (size_t i = 0; i < out->c->points.n; i++) {
        const chrome_point *p = &out->c->points.data[out->points[i]];
        uint64_t *value = NULL;
        bool is_new = false;
        if (p->name != 0 || !is_wanted(out, p)) { continue; }
        EBB_TRY(ebb__u64_map_add(&out->blocks, place_of(p), &value, &is_new));
        if (!is_new || !p->is_free) { continue; }
        const before b = {p->address, p->size_bytes, p->device};
        EBB_TRY(EBB_PUSH(out->importer->mem, &out->befores, b));
    }
    ebb__u64_map_fini(&out->blocks);
    return EBB_OK;
}

static ebb_status add_before(output *out, const before *b) {
    uint32_t name = 0;
    EBB_ASSERT(out->space[b->device] != IMPORT_NO_SPACE);
    EBB_TRY(ebb_trace_writer_string(out->importer->writer, IMPORT_BEFORE, &name));
    const ebb_trace_event event = {.kind = EBB_TRACE_ALLOC,
                                   .block = out->n_blocks++,
                                   .size_bytes = b->size_bytes,
                                   .address = b->address,
                                   .space = out->space[b->device],
                                   .name = name,
                                   .role = EBB_ROLE_UNKNOWN,
                                   .before = true};
    return ebb_trace_writer_add(out->importer->writer, &event);
}

/* For each device, the bytes of its totals beyond the known blocks. */
static ebb_status add_rest(output *out) {
    for (uint32_t d = 0; d < out->c->n_devices; d++) {
        const chrome_device *device = &out->c->devices[d];
        uint64_t known = 0;
        for (size_t i = 0; i < out->befores.n; i++) {
            if (out->befores.data[i].device == d && !ebb_add_u64(known, out->befores.data[i].size_bytes, &known)) {
                break;
            }
        }
        if (out->space[d] == IMPORT_NO_SPACE || !device->tells_totals || device->before_bytes <= known) { continue; }
        const before rest = {EBB_TRACE_NONE, device->before_bytes - known, d};
        EBB_TRY(add_before(out, &rest));
    }
    return EBB_OK;
}

static ebb_status write_befores(output *out) {
    for (size_t i = 0; i < out->befores.n; i++) {
        const before *b = &out->befores.data[i];
        const chrome_point place = {.address = b->address, .device = (uint16_t)b->device};
        uint64_t *value = NULL;
        bool is_new = false;
        EBB_TRY(ebb__u64_map_add(&out->blocks, place_of(&place), &value, &is_new));
        EBB_ASSERT(is_new);
        *value = out->n_blocks + 1;
        EBB_TRY(add_before(out, b));
    }
    return add_rest(out);
}

/* ---- the head --------------------------------------------------------------------------------- */

static void find_start(output *out) {
    const chrome *c = out->c;
    out->start_ns = UINT64_MAX;
    if (c->spans.n > 0) { out->start_ns = c->spans.data[out->spans[0]].begin_ns; }
    if (c->points.n > 0) { out->start_ns = ebb_min_u64(out->start_ns, c->points.data[out->points[0]].time_ns); }
}

static uint64_t start_unix_ns(const output *out) {
    uint64_t ns = 0;
    if (out->c->base_unix_ns > 0) { return ebb_add_u64(out->c->base_unix_ns, out->start_ns, &ns) ? ns : 0; }
    return out->start_ns >= UNIX_FROM ? out->start_ns : 0;
}

static uint32_t tells(const output *out) {
    const chrome *c = out->c;
    uint32_t bits = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES;
    bool all_before = true;
    for (size_t i = 0; i < c->n_devices; i++) { /* the processor's totals begin with the recording */
        const chrome_device *d = &c->devices[i];
        all_before = all_before && (out->space[i] == IMPORT_NO_SPACE || (d->tells_totals && !is_cpu(d)));
    }
    for (size_t i = 0; i < c->threads.n; i++) { bits |= c->threads.data[i].n_steps > 0 ? EBB_TRACE_TELLS_STEPS : 0u; }
    return bits | (all_before ? EBB_TRACE_TELLS_BEFORE : 0u) | (c->any_frame ? EBB_TRACE_TELLS_STACKS : 0u);
}

static const char *text_of(const chrome *c, uint32_t number) {
    EBB_ASSERT(number > 0 && number <= c->texts.keys.n);
    return c->texts.keys.data[number - 1].data;
}

static ebb_status string_of(output *out, uint32_t number, uint32_t *string_out) {
    if (out->strings[number] == 0) {
        EBB_TRY(ebb__import_string(out->importer, text_of(out->c, number), &out->strings[number]));
    }
    *string_out = out->strings[number];
    return EBB_OK;
}

/* What the source says of its one device. */
static ebb_status note_totals(const output *out) {
    const chrome_device *found = NULL;
    for (size_t i = 0; i < out->c->n_devices; i++) {
        if (out->space[i] == IMPORT_NO_SPACE) { continue; }
        if (found != NULL) { return EBB_OK; }
        found = &out->c->devices[i];
    }
    if (found == NULL || !found->tells_totals || is_cpu(found)) { return EBB_OK; }
    EBB_TRY(ebb__import_note_u64(out->importer, "stated.allocated_bytes", found->allocated_bytes));
    return ebb__import_note_u64(out->importer, "stated.reserved_bytes", found->reserved_bytes);
}

static ebb_status name_rows(output *out) {
    const chrome *c = out->c;
    char key[32];
    for (size_t i = 0; i < c->threads.n; i++) {
        const chrome_thread *t = &c->threads.data[i];
        if (t->name == 0 || t->row == NO_ROW) { continue; }
        (void)snprintf(key, sizeof key, "row.%u", t->row);
        EBB_TRY(ebb__import_note(out->importer, key, text_of(c, t->name)));
    }
    return EBB_OK;
}

static ebb_status write_notes(output *out) {
    EBB_TRY(ebb__import_note_devices(out->importer, out->devices, out->c->n_devices, out->space));
    EBB_TRY(note_totals(out));
    return name_rows(out);
}

/* ---- spans ------------------------------------------------------------------------------------ */

static ebb_status add_mark(output *out, const open_span *span, uint32_t mark, uint64_t number) {
    const ebb_trace_event event = {.kind = EBB_TRACE_MARK,
                                   .row = span->row,
                                   .time_ns = out->now_ns,
                                   .mark = mark,
                                   .name = mark == EBB_TRACE_ANNOTATION ? span->name : 0,
                                   .number = number};
    return ebb_trace_writer_add(out->importer->writer, &event);
}

/* "path.py(12): function", or a function alone. */
static ebb_status push_frame(output *out, const char *text, uint32_t caller, uint32_t *stack_out) {
    const char *close = strstr(text, "): "), *open = close;
    uint64_t line = 0;
    uint32_t function = 0, file = 0;
    char path[1024], digits[16];
    while (open != NULL && open > text && *open != '(') { open--; }
    const bool has_place =
        open != NULL && *open == '(' && (size_t)(open - text) < sizeof path && (size_t)(close - open) <= sizeof digits;
    if (has_place) {
        (void)snprintf(path, sizeof path, "%.*s", (int)(open - text), text);
        (void)snprintf(digits, sizeof digits, "%.*s", (int)(close - open - 1), open + 1);
        if (!ebb__parse_u64(digits, &line) || line > UINT32_MAX) { line = 0; }
        EBB_TRY(ebb__import_string(out->importer, path, &file));
        text = close + 3;
    }
    EBB_TRY(ebb__import_string(out->importer, text, &function));
    return ebb_trace_writer_frame(out->importer->writer, caller, function, file, (uint32_t)line, stack_out);
}

static ebb_status begin_step(output *out, const open_span *span) {
    const ebb_trace_event event = {.kind = EBB_TRACE_STEP_BEGIN,
                                   .row = span->row,
                                   .time_ns = out->now_ns,
                                   .stack = span->stack,
                                   .name = span->name,
                                   .op = span->name,
                                   .phase = span->phase,
                                   .index = EBB_TRACE_NONE};
    return ebb_trace_writer_add(out->importer->writer, &event);
}

static row_state *state_of(output *out, const chrome_span *span, uint32_t row) {
    EBB_ASSERT(row < EBB_TRACE_MAX_ROWS);
    return &out->rows[span->kind == CHROME_ITERATION ? ITERATIONS : row];
}

/* The row's innermost span may be the next to end; of several that end then, the first row's is. */
static void note_end(output *out, uint32_t row) {
    const row_state *state = &out->rows[row];
    const uint64_t end_ns = state->open.data[state->open.n - 1].end_ns;
    if (end_ns > out->next_end_ns || (end_ns == out->next_end_ns && row > out->next_row)) { return; }
    out->next_end_ns = end_ns;
    out->next_row = row;
}

static ebb_status open_one(output *out, const chrome_span *span, uint32_t row) {
    row_state *state = state_of(out, span, row);
    EBB_ASSERT(state->open.n < MAX_OPEN);
    const char *text = text_of(out->c, span->name), *number = strchr(text, '#');
    const open_span *around = state->open.n > 0 ? &state->open.data[state->open.n - 1] : NULL;
    open_span o = {
        .end_ns = around != NULL ? ebb_min_u64(span->end_ns, around->end_ns) : span->end_ns,
        .row = row,
        .stack = around != NULL ? around->stack : 0,
        .phase = ebb__import_phase(text, span->is_forward, around != NULL ? around->phase : EBB_TRACE_PHASE_UNKNOWN),
        .kind = (chrome_span_kind)span->kind};
    if (o.kind == CHROME_FRAME) { EBB_TRY(push_frame(out, text, o.stack, &o.stack)); }
    if (o.kind == CHROME_STEP) { EBB_TRY(string_of(out, span->name, &o.name)); }
    o.names_blocks = around != NULL ? around->names_blocks : 0;
    if (o.names_blocks == 0 && o.kind == CHROME_STEP && ebb__import_names_blocks(text)) { o.names_blocks = o.name; }
    if (o.kind == CHROME_ITERATION) {
        if (number == NULL || !ebb__parse_u64(number + 1, &o.number)) { o.number = out->n_iterations; }
        out->n_iterations++;
        EBB_TRY(add_mark(out, &o, EBB_TRACE_ITERATION_BEGIN, o.number));
    }
    if (ebb__import_begins_with(text, IMPORT_OPTIMIZER)) { EBB_TRY(add_mark(out, &o, EBB_TRACE_ANNOTATION, 0)); }
    if (o.kind == CHROME_STEP) { EBB_TRY(begin_step(out, &o)); }
    EBB_TRY(EBB_PUSH(out->importer->mem, &state->open, o));
    note_end(out, (uint32_t)(state - out->rows));
    return EBB_OK;
}

static ebb_status close_one(output *out, uint32_t row) {
    row_state *state = &out->rows[row];
    EBB_ASSERT(state->open.n > 0 && state->open.data[state->open.n - 1].end_ns >= out->start_ns);
    const open_span o = state->open.data[--state->open.n];
    out->now_ns = ebb_max_u64(out->now_ns, o.end_ns - out->start_ns);
    const ebb_trace_event event = {.kind = EBB_TRACE_STEP_END, .row = row, .time_ns = out->now_ns};
    if (o.kind == CHROME_STEP) { EBB_TRY(ebb_trace_writer_add(out->importer->writer, &event)); }
    return o.kind == CHROME_ITERATION ? add_mark(out, &o, EBB_TRACE_ITERATION_END, o.number) : EBB_OK;
}

static void find_next_end(output *out) {
    out->next_end_ns = UINT64_MAX;
    out->next_row = NO_ROW;
    for (uint32_t i = 0; i <= ITERATIONS; i++) {
        if (out->rows[i].open.n > 0) { note_end(out, i); }
    }
}

/* Close what ends before time_ns, or at_it too. */
static ebb_status close_until(output *out, uint64_t time_ns, bool at_it) {
    while (out->next_row != NO_ROW && (out->next_end_ns < time_ns || (at_it && out->next_end_ns == time_ns))) {
        EBB_TRY(close_one(out, out->next_row));
        find_next_end(out);
    }
    return EBB_OK;
}

static void move_to(output *out, uint64_t time_ns) {
    EBB_ASSERT(time_ns >= out->start_ns);
    out->now_ns = ebb_max_u64(out->now_ns, time_ns - out->start_ns);
}

static ebb_status write_span(output *out, const chrome_span *span) {
    const uint32_t row = out->c->threads.data[span->thread].row;
    EBB_TRY(close_until(out, span->begin_ns, true));
    move_to(out, span->begin_ns);
    if (row == NO_ROW || state_of(out, span, row)->open.n == MAX_OPEN) {
        out->importer->n_left_out++;
        return EBB_OK;
    }
    return open_one(out, span, row);
}

/* ---- points ----------------------------------------------------------------------------------- */

static ebb_status write_free(output *out, ebb_trace_event event, uint64_t *value) {
    EBB_ASSERT(*value > 0 && *value <= out->n_blocks);
    event.kind = EBB_TRACE_FREE;
    event.block = *value - 1;
    *value = 0;
    return ebb_trace_writer_add(out->importer->writer, &event);
}

static ebb_status write_memory(output *out, const chrome_point *p, ebb_trace_event event) {
    const row_state *state = &out->rows[event.row];
    uint64_t *value = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&out->blocks, place_of(p), &value, &is_new));
    const bool is_live = *value != 0;
    out->importer->n_left_out += is_live != p->is_free; /* a free that is missing, or of nothing */
    if (is_live) { EBB_TRY(write_free(out, event, value)); }
    if (p->is_free) { return EBB_OK; }
    event.kind = EBB_TRACE_ALLOC;
    event.block = out->n_blocks++;
    event.size_bytes = p->size_bytes;
    event.address = p->address;
    event.space = out->space[p->device];
    event.role = EBB_ROLE_UNKNOWN;
    event.name = state->open.n > 0 ? state->open.data[state->open.n - 1].names_blocks : 0;
    *value = out->n_blocks;
    return ebb_trace_writer_add(out->importer->writer, &event);
}

static ebb_status write_point(output *out, const chrome_point *p) {
    const uint32_t row = out->c->threads.data[p->thread].row;
    if (!is_wanted(out, p)) { return EBB_OK; }
    EBB_TRY(close_until(out, p->time_ns, false));
    move_to(out, p->time_ns);
    ebb_trace_event event = {.row = row != NO_ROW ? row : EBB_TRACE_ROW_COMPUTE, .time_ns = out->now_ns};
    const row_state *state = &out->rows[event.row];
    if (state->open.n > 0) { event.stack = state->open.data[state->open.n - 1].stack; }
    if (p->name == 0) { return write_memory(out, p, event); }
    event.kind = EBB_TRACE_MARK;
    event.mark = EBB_TRACE_ANNOTATION;
    EBB_TRY(string_of(out, p->name, &event.name));
    return ebb_trace_writer_add(out->importer->writer, &event);
}

/* ---- all -------------------------------------------------------------------------------------- */

static ebb_status write_events(output *out) {
    const chrome *c = out->c;
    for (size_t s = 0, p = 0; s < c->spans.n || p < c->points.n;) {
        const chrome_span *span = s < c->spans.n ? &c->spans.data[out->spans[s]] : NULL;
        const chrome_point *point = p < c->points.n ? &c->points.data[out->points[p]] : NULL;
        const bool takes_span = point == NULL || (span != NULL && span->begin_ns <= point->time_ns);
        EBB_TRY(takes_span ? write_span(out, span) : write_point(out, point));
        s += takes_span;
        p += !takes_span;
    }
    return close_until(out, UINT64_MAX, false);
}

static ebb_status write_all(output *out) {
    EBB_TRY(choose_devices(out));
    EBB_TRY(sort_all(out));
    choose_rows(out->c);
    EBB_TRY(find_befores(out));
    find_start(out);
    EBB_TRY(ebb__import_begin(out->importer, tells(out), start_unix_ns(out)));
    EBB_TRY(write_notes(out));
    EBB_TRY(write_befores(out));
    return write_events(out);
}

ebb_status ebb__chrome_write(chrome *c) {
    const ebb_mem *mem = c->importer->mem;
    output *out = ebb__calloc(mem, 1, sizeof *out);
    if (out == NULL) { return EBB_E_NO_MEMORY; }
    out->c = c;
    out->importer = c->importer;
    out->next_end_ns = UINT64_MAX;
    out->next_row = NO_ROW;
    ebb__u64_map_init(&out->blocks, mem);
    const ebb_status st = write_all(out);
    for (size_t i = 0; i <= ITERATIONS; i++) { EBB_VEC_FINI(mem, &out->rows[i].open); }
    ebb__u64_map_fini(&out->blocks);
    EBB_VEC_FINI(mem, &out->befores);
    ebb__free(mem, out->spans);
    ebb__free(mem, out->points);
    ebb__free(mem, out->strings);
    ebb__free(mem, out);
    return st;
}
