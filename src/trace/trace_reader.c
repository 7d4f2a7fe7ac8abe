/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the trace file of docs/trace-format.md, event by event.
 *
 * Memory: one buffer, the strings and frames, the live blocks, the open steps. Nothing in the file is trusted:
 * every number is checked where it is read, so a mutated file gives events or an error, never more. A record
 * that the end of the file cuts off ends the trace; whatever else does not fit is EBB_E_FORMAT.
 *
 * Invariants
 *  1. at .. end is what was read and not yet taken; base is the file's offset of the buffer's first byte.
 *  2. A record is taken (at moves) only when it is whole and right.
 */
#include "trace/trace_priv.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)256 * 1024)
#define MAX_OPEN_STEPS 65536u

typedef struct open_copy {
    ebb_trace_event begin;
    bool is_open;
} open_copy;

typedef struct row {
    EBB_VEC(uint64_t) open_steps;
    open_copy copy;
} row;

typedef struct note {
    uint32_t key, value;
} note;

struct ebb_trace_reader {
    const ebb_mem *mem;
    ebb_bump bump; /* strings */
    char *path;
    ebb_trace_read_fn read;
    void *read_ctx;
    int fd;       /* -1: there is no file of its own */
    uint8_t *buf; /* NULL: the bytes are the caller's, and all there */
    const uint8_t *data, *at, *end;
    uint64_t base;
    bool eof; /* nothing more behind end */
    bool ended;
    ebb_status status; /* of the failure that ended it */

    EBB_VEC(const char *) strings; /* of number i + 1 */
    EBB_VEC(ebb_trace_frame) frames;
    EBB_VEC(note) notes;
    ebb_trace_live live;
    EBB_VEC(row) rows;
    uint32_t current_row, next_stack;
    uint64_t time_ns, address;
    ebb_trace_info info;

    ebb_trace_devices devices;
    uint64_t n_given; /* blocks of the chosen one */
};

/* A record being decoded. */
typedef struct cursor {
    const uint8_t *at, *end;
    bool cut; /* the bytes ended in it */
    bool bad; /* a number of more than 64 bits */
} cursor;

/* ---- bytes ------------------------------------------------------------------------------------ */

static uint64_t offset_of(const ebb_trace_reader *r) {
    return r->base + (uint64_t)(r->at - r->data);
}

static ebb_status malformed(ebb_trace_reader *r, const char *what) {
    r->status = ebb_fail(EBB_E_FORMAT, "%s: offset %llu: %s", r->path, (unsigned long long)offset_of(r), what);
    return r->status;
}

static ebb_status read_fd(void *ctx, void *buf, size_t n, size_t *n_out) {
    const ebb_trace_reader *r = ctx;
    ssize_t got = 0;
    do { got = read(r->fd, buf, n); } while (got < 0 && errno == EINTR);
    if (got < 0) { return ebb__fail_errno(r->path, "read"); }
    *n_out = (size_t)got;
    return EBB_OK;
}

/* Have n_bytes at hand unless the file ends before. n_bytes is at most the buffer. */
static ebb_status fill(ebb_trace_reader *r, size_t n_bytes) {
    EBB_ASSERT(n_bytes <= BUFFER_BYTES && r->data <= r->at && r->at <= r->end);
    if ((size_t)(r->end - r->at) >= n_bytes || r->eof) { return EBB_OK; }
    size_t n = (size_t)(r->end - r->at);
    memmove(r->buf, r->at, n);
    r->base += (uint64_t)(r->at - r->data);
    r->at = r->buf;
    while (n < BUFFER_BYTES && !r->eof) {
        size_t got = 0;
        r->status = r->read(r->read_ctx, r->buf + n, BUFFER_BYTES - n, &got);
        r->end = r->buf + n;
        if (r->status != EBB_OK) { return r->status; }
        EBB_ASSERT(got <= BUFFER_BYTES - n);
        r->eof = got == 0;
        n += got;
    }
    r->end = r->buf + n;
    return EBB_OK;
}

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

/* Text of n_bytes behind at, which may be longer than the buffer. *whole_out: the file did not end before. */
static ebb_status take_text(ebb_trace_reader *r, size_t n_bytes, char *text, bool *whole_out) {
    for (size_t n = 0; n < n_bytes;) {
        EBB_TRY(fill(r, 1));
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
    if (r->strings.n >= UINT32_MAX - 1) { return malformed(r, "too many strings"); }
    r->at = c->at;
    EBB_TRY(take_text(r, n_bytes, text, whole_out));
    c->at = r->at;
    if (!*whole_out) { return EBB_OK; }
    if (strlen(text) != n_bytes) { return malformed(r, "a string with a NUL in it"); }
    if (ebb__utf8_sound_bytes(text, n_bytes) != n_bytes) { return malformed(r, "a string that is not UTF-8"); }
    r->strings.data[r->strings.n++] = text;
    return EBB_OK;
}

static ebb_status read_frame(ebb_trace_reader *r, cursor *c) {
    ebb_trace_frame frame = {.caller = get_below(c, (uint64_t)r->frames.n + 1)};
    frame.function = get_string(r, c);
    frame.file = get_string(r, c);
    frame.line = get_below(c, (uint64_t)UINT32_MAX + 1);
    if (c->cut || c->bad) { return EBB_OK; }
    return EBB_PUSH(r->mem, &r->frames, frame);
}

static ebb_status read_note(ebb_trace_reader *r, cursor *c) {
    note n = {.key = get_string(r, c)};
    n.value = get_string(r, c);
    if (c->cut || c->bad) { return EBB_OK; }
    return EBB_PUSH(r->mem, &r->notes, n);
}

static ebb_status read_row(ebb_trace_reader *r, cursor *c) {
    const uint32_t idx = get_below(c, EBB_TRACE_MAX_ROWS);
    if (c->cut || c->bad) { return EBB_OK; }
    while (r->rows.n <= idx) {
        row empty = {0};
        EBB_TRY(EBB_PUSH(r->mem, &r->rows, empty));
    }
    r->current_row = idx;
    return EBB_OK;
}

static ebb_status read_end(ebb_trace_reader *r, cursor *c) {
    const uint64_t n_events = get(c), n_blocks = get(c);
    if (c->cut || c->bad) { return EBB_OK; }
    if (n_events != r->info.n_events || n_blocks != r->info.n_blocks) {
        return malformed(r, "the end counts other events than were read");
    }
    r->at = c->at;
    EBB_TRY(fill(r, 1));
    if (r->at != r->end) { return malformed(r, "bytes behind the end"); }
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
        EBB_TRY(fill(r, 1));
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
    row *here = &r->rows.data[r->current_row];
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
    row *here = &r->rows.data[r->current_row];
    c->bad = c->bad || here->open_steps.n == 0;
    if (!c->cut && !c->bad) { here->open_steps.n--; }
}

static void read_copy_begin(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    open_copy *copy = &r->rows.data[r->current_row].copy;
    const ebb_trace_block *block = get_block(r, c);
    const uint64_t size_bytes = get(c);
    event->direction = get_below(c, EBB_TRACE_IN + 1);
    event->tier = get_below(c, TRACE_MAX_TIERS);
    c->bad = c->bad || copy->is_open;
    if (c->cut || c->bad) { return; }
    describe(event, block);
    event->size_bytes = size_bytes;
    *copy = (open_copy){.begin = *event, .is_open = true};
}

static void read_copy_end(ebb_trace_reader *r, cursor *c, ebb_trace_event *event) {
    open_copy *copy = &r->rows.data[r->current_row].copy;
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
    const row *here = &r->rows.data[r->current_row];
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
    return malformed(r, "an unknown kind of record");
}

/* Take one record. *is_event_out: it is in *event_out. The file's end or cut sets r->ended. */
static ebb_status read_record(ebb_trace_reader *r, ebb_trace_event *event_out, bool *is_event_out) {
    EBB_TRY(fill(r, TRACE_MAX_RECORD_BYTES));
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
        return malformed(r, "a field is out of range, or names a string, stack, step or block that is not there");
    }
    EBB_ASSERT(c.at >= r->at && c.at <= r->end);
    r->at = c.at;
    r->info.offset = offset_of(r);
    *is_event_out = is_event;
    if (is_event) { *event_out = event; }
    return EBB_OK;
}

/* Whether it is of the chosen device, or of none. */
static bool is_given(const ebb_trace_reader *r, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_STEP_BEGIN:
    case EBB_TRACE_STEP_END:
    case EBB_TRACE_MARK:
    case EBB_TRACE_N_KINDS: return true;
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: return ebb__trace_devices_keep(&r->devices, event->space);
    default: return event->block != EBB_TRACE_NONE;
    }
}

ebb_status ebb_trace_reader_next(ebb_trace_reader *reader, ebb_trace_event *event_out, bool *done_out) {
    if (reader->status != EBB_OK) {
        return ebb_fail(reader->status, "%s: an earlier failure ended the reading", reader->path);
    }
    for (bool is_event = false; !reader->ended;) {
        ebb_trace_event event;
        ebb_status st = read_record(reader, &event, &is_event);
        if (st != EBB_OK) {
            reader->status = st;
            return st;
        }
        if (is_event && is_given(reader, &event)) {
            *event_out = event;
            *done_out = false;
            return EBB_OK;
        }
    }
    *done_out = true;
    return EBB_OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

static uint64_t get_le(const uint8_t *at, unsigned n_bytes) {
    uint64_t x = 0;
    for (unsigned i = 0; i < n_bytes; i++) { x |= (uint64_t)at[i] << (8 * i); }
    return x;
}

static ebb_status read_header(ebb_trace_reader *r) {
    EBB_TRY(fill(r, TRACE_HEADER_BYTES));
    if (r->end - r->at < TRACE_HEADER_BYTES || memcmp(r->at, TRACE_MAGIC, TRACE_MAGIC_BYTES) != 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: not a trace", r->path);
    }
    const uint64_t major = get_le(r->at + 8, 2), header_bytes = get_le(r->at + 24, 4);
    if (major != TRACE_MAJOR) {
        return ebb_fail(EBB_E_UNSUPPORTED, "%s: a trace of version %llu, this reads version %u", r->path,
                        (unsigned long long)major, TRACE_MAJOR);
    }
    r->info.tells = (uint32_t)get_le(r->at + 12, 4);
    r->info.start_unix_ns = get_le(r->at + 16, 8);
    if (header_bytes < TRACE_HEADER_BYTES || header_bytes > BUFFER_BYTES) {
        return malformed(r, "the header's length is out of range");
    }
    EBB_TRY(fill(r, (size_t)header_bytes));
    if ((uint64_t)(r->end - r->at) < header_bytes) { return ebb_fail(EBB_E_FORMAT, "%s: cut in its header", r->path); }
    r->at += header_bytes;
    r->info.offset = offset_of(r);
    return EBB_OK;
}

static ebb_status create(const ebb_mem *mem, const char *path, ebb_trace_reader **reader_out) {
    mem = ebb__mem_or_default(mem);
    ebb_trace_reader *r = ebb__calloc(mem, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    r->mem = mem;
    r->fd = -1;
    ebb__bump_init(&r->bump, mem);
    ebb__trace_live_init(&r->live, mem);
    ebb__trace_devices_init(&r->devices, mem);
    row first = {0};
    r->path = ebb__strdup(mem, path);
    if (r->path == NULL || EBB_PUSH(mem, &r->rows, first) != EBB_OK) {
        ebb_trace_reader_close(r);
        return EBB_E_NO_MEMORY;
    }
    *reader_out = r;
    return EBB_OK;
}

/* Closes the reader when it fails. */
static ebb_status begin(ebb_trace_reader *r, ebb_trace_read_fn read, void *ctx, ebb_trace_reader **reader_out) {
    r->read = read;
    r->read_ctx = ctx;
    r->buf = ebb__alloc(r->mem, BUFFER_BYTES, 1);
    r->data = r->at = r->end = r->buf;
    const ebb_status st = r->buf != NULL ? read_header(r) : EBB_E_NO_MEMORY;
    if (st != EBB_OK) {
        ebb_trace_reader_close(r);
        return st;
    }
    *reader_out = r;
    return EBB_OK;
}

ebb_status ebb__trace_reader_open_from(const ebb_mem *mem, const char *name, ebb_trace_read_fn read, void *ctx,
                                       ebb_trace_reader **reader_out) {
    ebb_trace_reader *r = NULL;
    EBB_TRY(create(mem, name, &r));
    return begin(r, read, ctx, reader_out);
}

ebb_status ebb__trace_reader_open_fd(const ebb_mem *mem, const char *name, int fd, ebb_trace_reader **reader_out) {
    ebb_trace_reader *r = NULL;
    const ebb_status st = create(mem, name, &r);
    if (st != EBB_OK) {
        (void)close(fd);
        return st;
    }
    r->fd = fd;
    return begin(r, read_fd, r, reader_out);
}

ebb_status ebb_trace_reader_open(const ebb_mem *mem, const char *path, ebb_trace_reader **reader_out) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return ebb__fail_errno(path, "open"); }
    return ebb__trace_reader_open_fd(mem, path, fd, reader_out);
}

ebb_status ebb__trace_reader_open_memory(const ebb_mem *mem, const char *name, const void *data, size_t n_bytes,
                                         ebb_trace_reader **reader_out) {
    ebb_trace_reader *r = NULL;
    EBB_TRY(create(mem, name, &r));
    r->data = r->at = data;
    r->end = r->data + n_bytes;
    r->eof = true;
    ebb_status st = read_header(r);
    if (st != EBB_OK) {
        ebb_trace_reader_close(r);
        return st;
    }
    *reader_out = r;
    return EBB_OK;
}

/* All that the records said. */
static void forget(ebb_trace_reader *r) {
    for (size_t i = 0; i < r->rows.n; i++) { EBB_VEC_FINI(r->mem, &r->rows.data[i].open_steps); }
    EBB_VEC_FINI(r->mem, &r->strings);
    EBB_VEC_FINI(r->mem, &r->frames);
    EBB_VEC_FINI(r->mem, &r->notes);
    ebb__trace_live_fini(&r->live);
    ebb__bump_fini(&r->bump);
}

void ebb_trace_reader_close(ebb_trace_reader *reader) {
    if (reader == NULL) { return; }
    const ebb_mem *mem = reader->mem;
    if (reader->fd >= 0) { (void)close(reader->fd); }
    forget(reader);
    EBB_VEC_FINI(mem, &reader->rows);
    ebb__trace_devices_fini(&reader->devices);
    ebb__free(mem, reader->buf);
    ebb__free(mem, reader->path);
    ebb__free(mem, reader);
}

/* ---- once more -------------------------------------------------------------------------------- */

ebb_trace_devices *ebb__trace_reader_devices(ebb_trace_reader *reader) {
    return &reader->devices;
}

const char *ebb__trace_reader_path(const ebb_trace_reader *reader) {
    return reader->path;
}

ebb_status ebb__trace_reader_rewind(ebb_trace_reader *r) {
    if (r->buf != NULL && (r->fd < 0 || lseek(r->fd, 0, SEEK_SET) != 0)) {
        return ebb_fail(EBB_E_IO, "%s: cannot be read twice", r->path);
    }
    forget(r);
    ebb__bump_init(&r->bump, r->mem);
    ebb__trace_live_init(&r->live, r->mem);
    EBB_ASSERT(r->rows.n > 0);
    r->rows.n = 1;
    r->rows.data[0] = (row){0};
    r->at = r->data;
    if (r->buf != NULL) { r->end = r->data; }
    r->eof = r->buf == NULL;
    r->base = r->time_ns = r->address = r->n_given = 0;
    r->current_row = r->next_stack = 0;
    r->ended = false;
    r->info = (ebb_trace_info){0};
    return read_header(r);
}

/* ---- views ------------------------------------------------------------------------------------ */

ebb_trace_info ebb_trace_reader_info(const ebb_trace_reader *reader) {
    ebb_trace_info info = reader->info;
    info.n_live_blocks = reader->live.n;
    return info;
}

const char *ebb_trace_reader_string(const ebb_trace_reader *reader, uint32_t string) {
    return string > 0 && string <= reader->strings.n ? reader->strings.data[string - 1] : "";
}

ebb_trace_frame ebb_trace_reader_frame(const ebb_trace_reader *reader, uint32_t stack) {
    const ebb_trace_frame none = {0};
    return stack > 0 && stack <= reader->frames.n ? reader->frames.data[stack - 1] : none;
}

const char *ebb__trace_reader_note_at(const ebb_trace_reader *reader, size_t idx, const char **key_out) {
    if (idx >= reader->notes.n) { return NULL; }
    *key_out = ebb_trace_reader_string(reader, reader->notes.data[idx].key);
    return ebb_trace_reader_string(reader, reader->notes.data[idx].value);
}

const char *ebb_trace_reader_note(const ebb_trace_reader *reader, const char *key) {
    for (size_t i = reader->notes.n; i-- > 0;) {
        if (strcmp(ebb_trace_reader_string(reader, reader->notes.data[i].key), key) == 0) {
            return ebb_trace_reader_string(reader, reader->notes.data[i].value);
        }
    }
    return NULL;
}
