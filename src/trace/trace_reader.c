/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the trace file of docs/trace-format.md, event by event: where its bytes come from, the header, the chosen
 * device's events, and views of what was read. What a record says is decoded in trace_records.c.
 *
 * Memory: one buffer, the strings and frames, the live blocks, the open steps. Nothing in the file is trusted:
 * every number is checked where it is read, so a mutated file gives events or an error, never more. A record
 * that the end of the file cuts off ends the trace; whatever else does not fit is EBB_E_FORMAT.
 *
 * Invariants
 *  1. at .. end is what was read and not yet taken; base is the file's offset of the buffer's first byte.
 *  2. A record is taken (at moves) only when it is whole and right.
 */
#include "trace/trace_reader_priv.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

/* ---- bytes ------------------------------------------------------------------------------------ */

ebb_status ebb__trace_reader_malformed(ebb_trace_reader *r, const char *what) {
    r->status =
        ebb_fail(EBB_E_FORMAT, "%s: offset %llu: %s", r->path, (unsigned long long)ebb__trace_reader_offset(r), what);
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

ebb_status ebb__trace_reader_refill(ebb_trace_reader *r) {
    EBB_ASSERT(r->buf != NULL && r->data <= r->at && r->at <= r->end);
    size_t n = (size_t)(r->end - r->at);
    memmove(r->buf, r->at, n);
    r->base += (uint64_t)(r->at - r->data);
    r->at = r->buf;
    while (n < TRACE_BUFFER_BYTES && !r->eof) {
        size_t got = 0;
        r->status = r->read(r->read_ctx, r->buf + n, TRACE_BUFFER_BYTES - n, &got);
        r->end = r->buf + n;
        if (r->status != EBB_OK) { return r->status; }
        EBB_ASSERT(got <= TRACE_BUFFER_BYTES - n);
        r->eof = got == 0;
        n += got;
    }
    r->end = r->buf + n;
    ebb__trace_tell_read(&r->progress, r->base + n, r->file_bytes);
    if (r->eof) { ebb__tell(&r->progress, "studying what was read", 0, 0); }
    return EBB_OK;
}

void ebb__trace_tell_read(const ebb_progress *progress, uint64_t n_done, uint64_t n_bytes) {
    const uint64_t n = n_bytes / MIB;
    if (n > 0) { ebb__tell(progress, "reading MiB", ebb_min_u64(n_done / MIB, n), n); }
}

void ebb__trace_reader_tell(ebb_trace_reader *reader, const ebb_progress *progress) {
    struct stat info;
    const bool is_regular = reader->fd >= 0 && fstat(reader->fd, &info) == 0 && S_ISREG(info.st_mode);
    reader->progress = *progress;
    reader->file_bytes = is_regular ? (uint64_t)info.st_size : 0;
}

/* ---- events ----------------------------------------------------------------------------------- */

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
    EBB_NEED(reader);
    EBB_NEED(event_out);
    EBB_NEED(done_out);
    if (reader->status != EBB_OK) {
        return ebb_fail(reader->status, "%s: an earlier failure ended the reading", reader->path);
    }
    for (bool is_event = false; !reader->ended;) {
        ebb_trace_event event;
        ebb_status st = ebb__trace_read_record(reader, &event, &is_event);
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
    EBB_TRY(ebb__trace_reader_fill(r, TRACE_HEADER_BYTES));
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
    if (header_bytes < TRACE_HEADER_BYTES || header_bytes > TRACE_BUFFER_BYTES) {
        return ebb__trace_reader_malformed(r, "the header's length is out of range");
    }
    EBB_TRY(ebb__trace_reader_fill(r, (size_t)header_bytes));
    if ((uint64_t)(r->end - r->at) < header_bytes) { return ebb_fail(EBB_E_FORMAT, "%s: cut in its header", r->path); }
    r->at += header_bytes;
    r->info.offset = ebb__trace_reader_offset(r);
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
    trace_row first = {0};
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
    r->buf = ebb__alloc(r->mem, TRACE_BUFFER_BYTES, 1);
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
    EBB_NEED(path);
    EBB_NEED(reader_out);
    int fd = -1;
    EBB_TRY(ebb_path_open_input(path, &fd));
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

const ebb_trace_devices *ebb__trace_reader_found(const ebb_trace_reader *reader) {
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
    r->rows.data[0] = (trace_row){0};
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
    const bool is_cut = ebb_trace_reader_note(reader, TRACE_CUT_NOTE) != NULL;
    info.complete = (info.complete && !is_cut) || reader->devices.is_complete;
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
