/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the trace file of docs/trace-format.md, record by record.
 *
 * Adding an event encodes it on the stack and copies it to the file's buffer: no memory is taken and nothing
 * is looked up, so that a run may record itself. Only new strings and frames take memory.
 */
#include "trace/trace_priv.h"

#include "base/file.h"

struct ebb_trace_writer {
    const ebb_mem *mem;
    ebb_file_writer *file;
    ebb_trace_keys strings, frames;
    uint64_t time_ns, address; /* of the event before */
    uint64_t n_events, n_blocks;
    uint64_t total_bytes; /* of all blocks, so that those of the live ones have a sum */
    uint32_t row;
    const char *name; /* in messages about blocks: what the trace is made of */
};

typedef struct frame_key {
    uint32_t caller, function, file, line;
} frame_key;

_Static_assert(RECORD_LAST_EVENT - RECORD_FIRST_EVENT + 1 == EBB_TRACE_N_KINDS, "a record a kind of event");

/* ---- the header ------------------------------------------------------------------------------- */

static void put_le(uint8_t *at, uint64_t x, unsigned n_bytes) {
    for (unsigned i = 0; i < n_bytes; i++) { at[i] = (uint8_t)(x >> (8 * i)); }
}

static ebb_status write_header(ebb_trace_writer *writer, const ebb_trace_writer_options *options) {
    uint8_t header[TRACE_HEADER_BYTES] = {0};
    memcpy(header, TRACE_MAGIC, TRACE_MAGIC_BYTES);
    put_le(header + 8, TRACE_MAJOR, 2);
    put_le(header + 10, TRACE_MINOR, 2);
    put_le(header + 12, options->tells, 4);
    put_le(header + 16, options->start_unix_ns, 8);
    put_le(header + 24, TRACE_HEADER_BYTES, 4);
    return ebb__file_writer_write(writer->file, header, sizeof header);
}

/* Takes file over in any case. */
static ebb_status begin(ebb_file_writer *file, const ebb_trace_writer_options *options, ebb_trace_writer **writer_out) {
    const ebb_mem *mem = ebb__mem_or_default(options->mem);
    ebb_trace_writer *writer = ebb__calloc(mem, 1, sizeof *writer);
    if (writer == NULL) {
        ebb__file_writer_abandon(file);
        return EBB_E_NO_MEMORY;
    }
    writer->mem = mem;
    writer->file = file;
    writer->name = "trace";
    ebb__trace_keys_init(&writer->strings, mem);
    ebb__trace_keys_init(&writer->frames, mem);
    ebb_status st = write_header(writer, options);
    if (st != EBB_OK) {
        ebb_trace_writer_abandon(writer);
        return st;
    }
    *writer_out = writer;
    return EBB_OK;
}

ebb_status ebb_trace_writer_open(const char *path, const ebb_trace_writer_options *options,
                                 ebb_trace_writer **writer_out) {
    EBB_NEED(path);
    EBB_NEED(writer_out);
    const ebb_trace_writer_options defaults = EBB_TRACE_WRITER_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: options of another version");
    }
    ebb_file_writer *file = NULL;
    EBB_TRY(ebb__file_writer_open(options->mem, path, options->at_close ? 0 : EBB_FILE_IN_PLACE, &file));
    return begin(file, options, writer_out);
}

void ebb__trace_writer_name(ebb_trace_writer *writer, const char *name) {
    writer->name = name;
}

ebb_status ebb__trace_writer_open_fd(const char *name, int fd, const ebb_trace_writer_options *options,
                                     ebb_trace_writer **writer_out) {
    ebb_file_writer *file = NULL;
    EBB_TRY(ebb__file_writer_open_fd(options->mem, name, fd, &file));
    return begin(file, options, writer_out);
}

void ebb__trace_writer_count(const ebb_trace_writer *writer, uint64_t *n_events_out, uint64_t *n_blocks_out) {
    *n_events_out = writer->n_events;
    *n_blocks_out = writer->n_blocks;
}

/* ---- what events refer to --------------------------------------------------------------------- */

static ebb_status write_string(ebb_trace_writer *writer, const char *bytes, size_t n_bytes) {
    uint8_t head[16], *end = head;
    EBB_ASSERT(n_bytes > 0 && n_bytes <= TRACE_MAX_STRING_BYTES);
    *end++ = RECORD_STRING;
    end = ebb__trace_put(end, n_bytes);
    ebb_status st = ebb__file_writer_write(writer->file, head, (size_t)(end - head));
    for (size_t at = 0; at < n_bytes; at++) { /* a failure stays, and comes again with the last piece */
        const size_t n = ebb__utf8_sound_bytes(bytes + at, n_bytes - at);
        st = ebb__file_writer_write(writer->file, bytes + at, n);
        at += n;
        if (at < n_bytes) { st = ebb__file_writer_write(writer->file, "?", 1); }
    }
    return st;
}

ebb_status ebb__trace_writer_text(ebb_trace_writer *writer, const void *bytes, size_t n_bytes, uint32_t *string_out) {
    uint32_t number = 0;
    n_bytes = (size_t)ebb_min_u64(n_bytes, TRACE_MAX_STRING_BYTES);
    if (n_bytes > 0) {
        bool is_new = false;
        EBB_TRY(ebb__trace_keys_add(&writer->strings, bytes, n_bytes, &number, &is_new));
        if (is_new) { EBB_TRY(write_string(writer, bytes, n_bytes)); }
    }
    *string_out = number;
    return EBB_OK;
}

ebb_status ebb_trace_writer_string(ebb_trace_writer *writer, const char *text, uint32_t *string_out) {
    EBB_NEED(writer);
    EBB_NEED(string_out);
    const size_t n_bytes = text == NULL ? 0 : strlen(text);
    if (n_bytes > TRACE_MAX_STRING_BYTES) { return ebb_fail(EBB_E_LIMIT, "a string of %zu bytes in a trace", n_bytes); }
    return ebb__trace_writer_text(writer, text, n_bytes, string_out);
}

static ebb_status check_string(const ebb_trace_writer *writer, uint32_t string) {
    if (string <= writer->strings.keys.n) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "trace: there is no string %u", string);
}

static ebb_status check_stack(const ebb_trace_writer *writer, uint32_t stack) {
    if (stack <= writer->frames.keys.n) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "trace: there is no stack %u", stack);
}

ebb_status ebb_trace_writer_frame(ebb_trace_writer *writer, uint32_t caller, uint32_t function, uint32_t file,
                                  uint32_t line, uint32_t *stack_out) {
    EBB_NEED(writer);
    EBB_NEED(stack_out);
    EBB_TRY(check_stack(writer, caller));
    EBB_TRY(check_string(writer, function));
    EBB_TRY(check_string(writer, file));
    const frame_key key = {caller, function, file, line};
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&writer->frames, &key, sizeof key, &number, &is_new));
    if (is_new) {
        uint8_t record[TRACE_MAX_RECORD_BYTES], *end = record;
        *end++ = RECORD_FRAME;
        end = ebb__trace_put(end, caller);
        end = ebb__trace_put(end, function);
        end = ebb__trace_put(end, file);
        end = ebb__trace_put(end, line);
        EBB_TRY(ebb__file_writer_write(writer->file, record, (size_t)(end - record)));
    }
    *stack_out = number;
    return EBB_OK;
}

static ebb_status write_note(ebb_trace_writer *writer, uint32_t key_string, uint32_t value_string) {
    uint8_t record[TRACE_MAX_RECORD_BYTES], *end = record;
    *end++ = RECORD_NOTE;
    end = ebb__trace_put(end, key_string);
    end = ebb__trace_put(end, value_string);
    EBB_ASSERT(end <= record + sizeof record);
    return ebb__file_writer_write(writer->file, record, (size_t)(end - record));
}

ebb_status ebb_trace_writer_note(ebb_trace_writer *writer, const char *key, const char *value) {
    EBB_NEED(writer);
    uint32_t key_string = 0, value_string = 0;
    EBB_TRY(ebb_trace_writer_string(writer, key, &key_string));
    EBB_TRY(ebb_trace_writer_string(writer, value, &value_string));
    return write_note(writer, key_string, value_string);
}

ebb_status ebb__trace_writer_note_text(ebb_trace_writer *writer, const char *key, const void *bytes, size_t n_bytes) {
    uint32_t key_string = 0, value_string = 0;
    EBB_TRY(ebb_trace_writer_string(writer, key, &key_string));
    EBB_TRY(ebb__trace_writer_text(writer, bytes, n_bytes, &value_string));
    return write_note(writer, key_string, value_string);
}

/* ---- events ----------------------------------------------------------------------------------- */

static bool names_block(ebb_trace_kind kind) {
    return kind == EBB_TRACE_FREE || kind == EBB_TRACE_READ || kind == EBB_TRACE_WRITE || kind == EBB_TRACE_LABEL ||
           kind == EBB_TRACE_COPY_BEGIN;
}

static bool has_name(ebb_trace_kind kind) {
    return kind == EBB_TRACE_ALLOC || kind == EBB_TRACE_LABEL || kind == EBB_TRACE_STEP_BEGIN || kind == EBB_TRACE_MARK;
}

static ebb_status check_event(const ebb_trace_writer *writer, const ebb_trace_event *event) {
    if ((unsigned)event->kind >= EBB_TRACE_N_KINDS || event->row >= EBB_TRACE_MAX_ROWS) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: kind %d on row %u", (int)event->kind, event->row);
    }
    if (event->time_ns < writer->time_ns) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: time goes back from %llu to %llu", (unsigned long long)writer->time_ns,
                        (unsigned long long)event->time_ns);
    }
    if (event->kind == EBB_TRACE_ALLOC && event->block != writer->n_blocks) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: alloc of block %llu, the next is %llu",
                        (unsigned long long)event->block, (unsigned long long)writer->n_blocks);
    }
    uint64_t total_bytes = 0;
    if (event->kind == EBB_TRACE_ALLOC && !ebb_add_u64(writer->total_bytes, event->size_bytes, &total_bytes)) {
        return ebb_fail(EBB_E_LIMIT, "%s: blocks of 2^64 bytes or more in all", writer->name);
    }
    if (names_block(event->kind) && event->block >= writer->n_blocks) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: there is no block %llu", (unsigned long long)event->block);
    }
    if (event->kind == EBB_TRACE_COPY_BEGIN && event->tier >= TRACE_MAX_TIERS) {
        return ebb_fail(EBB_E_ARGUMENT, "trace: a copy to or from tier %u", event->tier);
    }
    if (event->stack != 0) { EBB_TRY(check_stack(writer, event->stack)); }
    if (event->kind == EBB_TRACE_STEP_BEGIN) { EBB_TRY(check_string(writer, event->op)); }
    return has_name(event->kind) ? check_string(writer, event->name) : EBB_OK;
}

static uint8_t *put_role(uint8_t *at, ebb_role role) {
    return ebb__trace_put(at, (unsigned)role < EBB_N_ROLES ? (uint64_t)role : EBB_ROLE_OTHER);
}

static uint8_t *put_address(ebb_trace_writer *writer, uint8_t *at, uint64_t address) {
    at = ebb__trace_put(at, ebb__trace_fold_sign(address - writer->address));
    writer->address = address;
    return at;
}

static uint8_t *put_block(const ebb_trace_writer *writer, uint8_t *at, uint64_t block) {
    EBB_ASSERT(block < writer->n_blocks);
    return ebb__trace_put(at, writer->n_blocks - 1 - block);
}

static uint8_t *put_alloc(ebb_trace_writer *writer, uint8_t *at, const ebb_trace_event *event) {
    const ebb_role role = (unsigned)event->role < EBB_N_ROLES ? event->role : EBB_ROLE_OTHER;
    const bool has_address = event->address != EBB_TRACE_NONE;
    at = ebb__trace_put(at, (event->name != 0 ? ALLOC_HAS_NAME : 0u) | (has_address ? ALLOC_HAS_ADDRESS : 0u) |
                                (event->space != 0 ? ALLOC_HAS_SPACE : 0u) | (event->before ? ALLOC_BEFORE : 0u) |
                                (uint64_t)role << ALLOC_ROLE_SHIFT);
    at = ebb__trace_put(at, event->size_bytes);
    if (event->name != 0) { at = ebb__trace_put(at, event->name); }
    if (has_address) { at = put_address(writer, at, event->address); }
    if (event->space != 0) { at = ebb__trace_put(at, event->space); }
    writer->n_blocks++;
    writer->total_bytes += event->size_bytes;
    return at;
}

static uint8_t *put_segment(ebb_trace_writer *writer, uint8_t *at, const ebb_trace_event *event) {
    at = ebb__trace_put(at, event->space);
    at = put_address(writer, at, event->address);
    return event->kind == EBB_TRACE_SEGMENT_ALLOC ? ebb__trace_put(at, event->size_bytes) : at;
}

static uint8_t *put_step_begin(uint8_t *at, const ebb_trace_event *event) {
    at = ebb__trace_put(at, event->name);
    at = ebb__trace_put(at, event->op);
    at = ebb__trace_put(at, ebb_min_u64(event->phase, EBB_TRACE_PHASE_UNKNOWN));
    return ebb__trace_put(at, event->index + 1); /* EBB_TRACE_NONE + 1 is 0 */
}

static uint8_t *put_copy_begin(const ebb_trace_writer *writer, uint8_t *at, const ebb_trace_event *event) {
    at = put_block(writer, at, event->block);
    at = ebb__trace_put(at, event->size_bytes);
    at = ebb__trace_put(at, event->direction == EBB_TRACE_IN ? EBB_TRACE_IN : EBB_TRACE_OUT);
    return ebb__trace_put(at, event->tier);
}

static uint8_t *put_fields(ebb_trace_writer *writer, uint8_t *at, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC: return put_alloc(writer, at, event);
    case EBB_TRACE_FREE:
    case EBB_TRACE_READ:
    case EBB_TRACE_WRITE: return put_block(writer, at, event->block);
    case EBB_TRACE_LABEL:
        at = put_role(put_block(writer, at, event->block), event->role);
        return ebb__trace_put(at, event->name);
    case EBB_TRACE_STEP_BEGIN: return put_step_begin(at, event);
    case EBB_TRACE_COPY_BEGIN: return put_copy_begin(writer, at, event);
    case EBB_TRACE_MARK:
        at = ebb__trace_put(at, ebb_min_u64(event->mark, EBB_TRACE_ANNOTATION));
        return ebb__trace_put(ebb__trace_put(at, event->name), event->number);
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: return put_segment(writer, at, event);
    case EBB_TRACE_STEP_END:
    case EBB_TRACE_COPY_END:
    case EBB_TRACE_N_KINDS: break;
    }
    return at;
}

ebb_status ebb_trace_writer_add(ebb_trace_writer *writer, const ebb_trace_event *event) {
    EBB_NEED(writer);
    EBB_NEED(event);
    EBB_TRY(check_event(writer, event));
    uint8_t record[2 * TRACE_MAX_RECORD_BYTES], *end = record;
    if (event->row != writer->row) {
        *end++ = RECORD_ROW;
        end = ebb__trace_put(end, event->row);
        writer->row = event->row;
    }
    if (event->stack != 0) {
        *end++ = RECORD_STACK;
        end = ebb__trace_put(end, event->stack);
    }
    *end++ = (uint8_t)(RECORD_FIRST_EVENT + (unsigned)event->kind);
    end = ebb__trace_put(end, event->time_ns - writer->time_ns);
    end = put_fields(writer, end, event);
    EBB_ASSERT(end <= record + sizeof record);
    writer->time_ns = event->time_ns;
    writer->n_events++;
    EBB_TRY(ebb__file_writer_write(writer->file, record, (size_t)(end - record)));
    /* An iteration is what a reader of a cut file wants whole. */
    return event->kind == EBB_TRACE_MARK ? ebb__file_writer_flush(writer->file) : EBB_OK;
}

ebb_status ebb__trace_writer_flush(ebb_trace_writer *writer) {
    return ebb__file_writer_flush(writer->file);
}

/* ---- the end ---------------------------------------------------------------------------------- */

ebb_status ebb_trace_writer_close(ebb_trace_writer *writer) {
    EBB_NEED(writer);
    EBB_ASSERT(writer->n_blocks <= writer->n_events);
    uint8_t record[TRACE_MAX_RECORD_BYTES], *end = record;
    *end++ = RECORD_END;
    end = ebb__trace_put(end, writer->n_events);
    end = ebb__trace_put(end, writer->n_blocks);
    (void)ebb__file_writer_write(writer->file, record, (size_t)(end - record));
    ebb_status st = ebb__file_writer_commit(writer->file);
    writer->file = NULL; /* commit freed it */
    ebb_trace_writer_abandon(writer);
    return st;
}

void ebb_trace_writer_abandon(ebb_trace_writer *writer) {
    if (writer == NULL) { return; }
    ebb__file_writer_abandon(writer->file);
    ebb__trace_keys_fini(&writer->strings);
    ebb__trace_keys_fini(&writer->frames);
    ebb__free(writer->mem, writer);
}
