/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes the records of a trace (docs/trace-format.md), one at a time, and keeps what later ones refer to: strings,
 * frames, notes, live blocks, open steps and copies. Every number is checked where it is read.
 */
#include "trace/trace_reader_priv.h"

#define MAX_OPEN_STEPS 65536u

/* A record being decoded. */
typedef struct cursor {
    const uint8_t *at, *end;
    bool cut; /* the bytes ended in it */
    bool bad; /* a number of more than 64 bits */
} cursor;

/* ---- numbers ---------------------------------------------------------------------------------- */

static uint8_t get_byte(cursor *c) {
    if (c->at == c->end) {
        c->cut = true;
        return 0;
    }
    return *c->at++;
}

static uint64_t get(cursor *c) {
    uint64_t x = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = get_byte(c);
        if (shift == 63 && byte > 1) { break; }
        x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) { return x; }
    }
    c->bad = true;
    return 0;
}

/* A number below limit. */
static uint32_t get_below(cursor *c, uint64_t limit) {
    uint64_t x = get(c);
    if (x >= limit) {
        c->bad = true;
        return 0;
    }
    return (uint32_t)x;
}

static uint32_t get_string(const ebb_trace_reader *r, cursor *c) {
    return get_below(c, (uint64_t)r->strings.n + 1);
}

static uint64_t get_address(ebb_trace_reader *r, cursor *c) {
    return r->address + ebb__trace_unfold_sign(get(c));
}

/* A live block; NULL, and the record is bad, when it names none. */
static ebb_trace_block *get_block(const ebb_trace_reader *r, cursor *c) {
    uint64_t distance = get(c);
    ebb_trace_block *block =
        distance < r->info.n_blocks ? ebb__trace_live_find(&r->live, r->info.n_blocks - 1 - distance) : NULL;
    c->bad = c->bad || block == NULL;
    return block;
}

/* ---- records that are no events --------------------------------------------------------------- */

/* Text of n_bytes after at, which may be longer than the buffer. *whole_out: the file did not end before. */
static ebb_status take_text(ebb_trace_reader *r, size_t n_bytes, char *text, bool *whole_out) {
    for (size_t n = 0; n < n_bytes;) {
        EBB_TRY(ebb__trace_reader_fill(r, 1));
        size_t n_here = (size_t)ebb_min_u64((uint64_t)(r->end - r->at), n_bytes - n);
        if (n_here == 0) {
            *whole_out = false;
            return EBB_OK;
        }
        memcpy(text + n, r->at, n_here);
        r->at += n_here;
        n += n_here;
    }
    text[n_bytes] = '\0';
    *whole_out = true;
    return EBB_OK;
}

static ebb_status read_string(ebb_trace_reader *r, cursor *c, bool *whole_out) {
    const uint32_t n_bytes = get_below(c, TRACE_MAX_STRING_BYTES + 1);
    if (c->cut || c->bad) { return EBB_OK; }
    char *text = ebb__bump_alloc(&r->bump, (size_t)n_bytes + 1, 1);
    if (text == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(EBB_RESERVE(r->mem, &r->strings, 1));
    if (r->strings.n >= UINT32_MAX - 1) { return ebb__trace_reader_malformed(r, "too many strings"); }
    r->at = c->at;
    EBB_TRY(take_text(r, n_bytes, text, whole_out));
    c->at = r->at;
    if (!*whole_out) { return EBB_OK; }
    if (strlen(text) != n_bytes) { return ebb__trace_reader_malformed(r, "a string with a NUL in it"); }
    if (ebb__utf8_sound_bytes(text, n_bytes) != n_bytes) {
        return ebb__trace_reader_malformed(r, "a string that is not UTF-8");
    }
    r->strings.data[r->strings.n++] = text;
    return EBB_OK;
}

/* A path of Windows, C:\a\b.py or a\b.py, with slashes, so that it reads as any other. */
static void use_slashes(char *path) {
    if (strchr(path, '\\') == NULL || path[0] == '/') { return; }
    for (; *path != '\0'; path++) {
        if (*path == '\\') { *path = '/'; }
    }
}

static ebb_status read_frame(ebb_trace_reader *r, cursor *c) {
    ebb_trace_frame frame = {.caller = get_below(c, (uint64_t)r->frames.n + 1)};
    frame.function = get_string(r, c);
    frame.file = get_string(r, c);
    frame.line = get_below(c, (uint64_t)UINT32_MAX + 1);
    if (c->cut || c->bad) { return EBB_OK; }
    if (frame.file != 0) { use_slashes(r->strings.data[frame.file - 1]); }
    return EBB_PUSH(r->mem, &r->frames, frame);
}

static ebb_status read_note(ebb_trace_reader *r, cursor *c) {
    trace_note n = {.key = get_string(r, c)};
    n.value = get_string(r, c);
    if (c->cut || c->bad) { return EBB_OK; }
    return EBB_PUSH(r->mem, &r->notes, n);
}

static ebb_status read_row(ebb_trace_reader *r, cursor *c) {
    const uint32_t idx = get_below(c, EBB_TRACE_MAX_ROWS);
    if (c->cut || c->bad) { return EBB_OK; }
    while (r->rows.n <= idx) {
        trace_row empty = {0};
        EBB_TRY(EBB_PUSH(r->mem, &r->rows, empty));
    }
    r->current_row = idx;
    return EBB_OK;
}

static ebb_status read_end(ebb_trace_reader *r, cursor *c) {
    const uint64_t n_events = get(c), n_blocks = get(c);
    if (c->cut || c->bad) { return EBB_OK; }
    if (n_events != r->info.n_events || n_blocks != r->info.n_blocks) {
        return ebb__trace_reader_malformed(r, "the end counts other events than were read");
    }
    r->at = c->at;
    EBB_TRY(ebb__trace_reader_fill(r, 1));
    if (r->at != r->end) { return ebb__trace_reader_malformed(r, "bytes after the end"); }
    r->info.complete = true;
    r->ended = true;
    return EBB_OK;
}

/* Skip a record of a later version. */
static ebb_status skip(ebb_trace_reader *r, cursor *c, bool *whole_out) {
    uint64_t n_left = get(c);
    if (c->cut || c->bad) { return EBB_OK; }
    r->at = c->at;
    while (n_left > 0) {
        EBB_TRY(ebb__trace_reader_fill(r, 1));
        uint64_t n_here = ebb_min_u64((uint64_t)(r->end - r->at), n_left);
        if (n_here == 0) { break; }
        r->at += n_here;
        n_left -= n_here;
    }
    c->at = r->at;
    *whole_out = n_left == 0;
    return EBB_OK;
}

/* ---- events ----------------------------------------------------------------------------------- */

static void describe(ebb_trace_event *event, const ebb_trace_block *block) {
    EBB_ASSERT(block->block > 0);
    event->block = block->given;
    event->size_bytes = block->size_bytes;
    event->address = block->address;
    event->name = block->name;
    event->role = block->role;
    event->space = block->space;
}

static ebb_role role_of(uint64_t number) {
    return number < EBB_N_ROLES ? (ebb_role)number : EBB_ROLE_OTHER;
}

static ebb_status read_alloc(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    const uint32_t flags = get_below(c, 256);
    event->size_bytes = get(c);
    event->name = (flags & ALLOC_HAS_NAME) != 0 ? get_string(r, c) : 0;
    event->address = (flags & ALLOC_HAS_ADDRESS) != 0 ? get_address(r, c) : EBB_TRACE_NONE;
    event->space = (flags & ALLOC_HAS_SPACE) != 0 ? get_below(c, (uint64_t)UINT32_MAX + 1) : 0;
    event->before = (flags & ALLOC_BEFORE) != 0;
    event->role = role_of(flags >> ALLOC_ROLE_SHIFT);
    event->block = ebb__trace_devices_keep(&r->devices, event->space) ? r->n_given : EBB_TRACE_NONE;
    uint64_t live_bytes = 0;
    c->bad = c->bad || !ebb_add_u64(r->info.live_bytes, event->size_bytes, &live_bytes);
    if (c->cut || c->bad) { return EBB_OK; }
    const ebb_trace_block block = {.block = r->info.n_blocks + 1,
                                   .given = event->block,
                                   .size_bytes = event->size_bytes,
                                   .address = event->address,
                                   .name = event->name,
                                   .space = event->space,
                                   .role = event->role};
    EBB_TRY(ebb__trace_live_add(&r->live, &block));
    if ((flags & ALLOC_HAS_ADDRESS) != 0) { r->address = event->address; }
    r->info.n_blocks++;
    r->n_given += event->block != EBB_TRACE_NONE;
    r->info.live_bytes = live_bytes;
    return EBB_OK;
}

static void read_free(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    ebb_trace_block *block = get_block(r, c);
    if (c->cut || c->bad) { return; }
    describe(event, block);
    EBB_ASSERT(r->info.live_bytes >= block->size_bytes);
    r->info.live_bytes -= block->size_bytes;
    ebb__trace_live_remove(&r->live, block);
}

static void read_access(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    const ebb_trace_block *block = get_block(r, c);
    if (!c->cut && !c->bad) { describe(event, block); }
}

static void read_label(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    ebb_trace_block *block = get_block(r, c);
    const ebb_role role = role_of(get(c));
    const uint32_t name = get_string(r, c);
    if (c->cut || c->bad) { return; }
    block->role = role;
    block->name = name;
    describe(event, block);
}

static ebb_status read_step_begin(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    trace_row *here = &r->rows.data[r->current_row];
    event->name = get_string(r, c);
    event->op = get_string(r, c);
    event->phase = get_below(c, EBB_TRACE_PHASE_UNKNOWN + 1);
    event->index = get(c) - 1;
    c->bad = c->bad || here->open_steps.n >= MAX_OPEN_STEPS;
    if (c->cut || c->bad) { return EBB_OK; }
    EBB_TRY(EBB_PUSH(r->mem, &here->open_steps, r->info.n_steps));
    event->step = r->info.n_steps++;
    return EBB_OK;
}

static void read_step_end(ebb_trace_reader *r, cursor *c) {
    trace_row *here = &r->rows.data[r->current_row];
    c->bad = c->bad || here->open_steps.n == 0;
    if (!c->cut && !c->bad) { here->open_steps.n--; }
}

static void read_copy_begin(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    trace_open_copy *copy = &r->rows.data[r->current_row].copy;
    const ebb_trace_block *block = get_block(r, c);
    const uint64_t size_bytes = get(c);
    event->direction = get_below(c, EBB_TRACE_IN + 1);
    event->tier = get_below(c, TRACE_MAX_TIERS);
    c->bad = c->bad || copy->is_open;
    if (c->cut || c->bad) { return; }
    describe(event, block);
    event->size_bytes = size_bytes;
    *copy = (trace_open_copy){.begin = *event, .is_open = true};
}

static void read_copy_end(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    trace_open_copy *copy = &r->rows.data[r->current_row].copy;
    c->bad = c->bad || !copy->is_open;
    if (c->cut || c->bad) { return; }
    const ebb_trace_event end = *event;
    *event = copy->begin;
    event->kind = end.kind;
    event->time_ns = end.time_ns;
    event->stack = end.stack;
    event->step = end.step;
    copy->is_open = false;
}

static void read_mark(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    event->mark = get_below(c, EBB_TRACE_ANNOTATION + 1);
    event->name = get_string(r, c);
    event->number = get(c);
}

static void read_segment(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    event->space = get_below(c, (uint64_t)UINT32_MAX + 1);
    event->address = get_address(r, c);
    event->size_bytes = event->kind == EBB_TRACE_SEGMENT_ALLOC ? get(c) : 0;
    if (!c->cut && !c->bad) { r->address = event->address; }
}

static ebb_status read_fields(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC: return read_alloc(r, c, event);
    case EBB_TRACE_FREE: read_free(r, c, event); break;
    case EBB_TRACE_READ:
    case EBB_TRACE_WRITE: read_access(r, c, event); break;
    case EBB_TRACE_LABEL: read_label(r, c, event); break;
    case EBB_TRACE_STEP_BEGIN: return read_step_begin(r, c, event);
    case EBB_TRACE_STEP_END: read_step_end(r, c); break;
    case EBB_TRACE_COPY_BEGIN: read_copy_begin(r, c, event); break;
    case EBB_TRACE_COPY_END: read_copy_end(r, c, event); break;
    case EBB_TRACE_MARK: read_mark(r, c, event); break;
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: read_segment(r, c, event); break;
    case EBB_TRACE_N_KINDS: break;
    }
    return EBB_OK;
}

static ebb_status read_event(ebb_trace_reader *r, cursor *c, uint8_t kind, ebb_trace_event *event) {
    uint64_t dt_ns = get(c), time_ns = 0;
    c->bad = c->bad || !ebb_add_u64(r->time_ns, dt_ns, &time_ns);
    if (c->cut || c->bad) { return EBB_OK; }
    EBB_ASSERT(r->current_row < r->rows.n);
    const trace_row *here = &r->rows.data[r->current_row];
    *event = (ebb_trace_event){.kind = (ebb_trace_kind)(kind - RECORD_FIRST_EVENT),
                               .row = r->current_row,
                               .time_ns = time_ns,
                               .stack = r->next_stack};
    event->step = here->open_steps.n > 0 ? here->open_steps.data[here->open_steps.n - 1] : EBB_TRACE_NONE;
    EBB_TRY(read_fields(r, c, event));
    if (c->cut || c->bad) { return EBB_OK; }
    r->time_ns = time_ns;
    r->next_stack = 0;
    r->info.n_events++;
    EBB_ASSERT(r->live.n <= r->info.n_blocks && r->info.n_blocks <= r->info.n_events);
    return EBB_OK;
}

/* ---- one record ------------------------------------------------------------------------------- */

/* *whole_out false: the file ended in it. An event is in *event. */
static ebb_status read_other(ebb_trace_reader *r, cursor *c, uint8_t kind, bool *whole_out) {
    switch (kind) {
    case RECORD_END: return read_end(r, c);
    case RECORD_STRING: return read_string(r, c, whole_out);
    case RECORD_FRAME: return read_frame(r, c);
    case RECORD_NOTE: return read_note(r, c);
    case RECORD_ROW: return read_row(r, c);
    case RECORD_STACK: {
        uint32_t stack = get_below(c, (uint64_t)r->frames.n + 1);
        if (!c->cut && !c->bad) { r->next_stack = stack; }
        return EBB_OK;
    }
    default: break;
    }
    if (kind >= RECORD_FIRST_SKIPPABLE) { return skip(r, c, whole_out); }
    return ebb__trace_reader_malformed(r, "an unknown kind of record");
}

ebb_status ebb__trace_read_record(ebb_trace_reader *r, ebb_trace_event *event_out, bool *is_event_out) {
    EBB_TRY(ebb__trace_reader_fill(r, TRACE_MAX_RECORD_BYTES));
    cursor c = {.at = r->at, .end = r->end};
    const uint8_t kind = get_byte(&c);
    bool whole = true;
    ebb_trace_event event;
    *is_event_out = false;
    if (c.cut) {
        r->ended = true;
        return EBB_OK;
    }
    const bool is_event = kind >= RECORD_FIRST_EVENT && kind <= RECORD_LAST_EVENT;
    EBB_TRY(is_event ? read_event(r, &c, kind, &event) : read_other(r, &c, kind, &whole));
    if (c.cut || !whole) { /* what it could still say is lost with its end */
        r->ended = true;
        return EBB_OK;
    }
    if (c.bad) {
        return ebb__trace_reader_malformed(
            r, "a field is out of range, or names a string, stack, step or block that is not there");
    }
    EBB_ASSERT(c.at >= r->at && c.at <= r->end);
    r->at = c.at;
    r->info.offset = ebb__trace_reader_offset(r);
    *is_event_out = is_event;
    if (is_event) { *event_out = event; }
    return EBB_OK;
}
