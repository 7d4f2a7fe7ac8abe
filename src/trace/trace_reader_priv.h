/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader of traces from inside: its state, and what its two files share. trace_reader.c opens, fills the buffer and
 * gives events; trace_records.c decodes a record.
 */
#ifndef EBB_SRC_TRACE_READER_PRIV_H
#define EBB_SRC_TRACE_READER_PRIV_H

#include "trace/trace_priv.h"

#define TRACE_BUFFER_BYTES ((size_t)256 * 1024)

typedef struct trace_open_copy {
    ebb_trace_event begin;
    bool is_open;
} trace_open_copy;

typedef struct trace_row {
    EBB_VEC(uint64_t) open_steps;
    trace_open_copy copy;
} trace_row;

typedef struct trace_note {
    uint32_t key, value;
} trace_note;

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
    bool eof; /* nothing more after end */
    bool ended;
    ebb_status status; /* of the failure that ended it */

    EBB_VEC(char *) strings; /* of number i + 1 */
    EBB_VEC(ebb_trace_frame) frames;
    EBB_VEC(trace_note) notes;
    ebb_trace_live live;
    EBB_VEC(trace_row) rows;
    uint32_t current_row, next_stack;
    uint64_t time_ns, address;
    ebb_trace_info info;

    ebb_progress progress; /* of reading file_bytes */
    uint64_t file_bytes;
    ebb_trace_devices devices;
    uint64_t n_given; /* blocks of the chosen one */
};

/* The rest goes to the buffer's front, and more after it. */
ebb_status ebb__trace_reader_refill(ebb_trace_reader *r);

/* Have n_bytes at hand unless the file ends before. n_bytes is at most the buffer. */
static inline ebb_status ebb__trace_reader_fill(ebb_trace_reader *r, size_t n_bytes) {
    EBB_ASSERT(n_bytes <= TRACE_BUFFER_BYTES);
    return (size_t)(r->end - r->at) >= n_bytes || r->eof ? EBB_OK : ebb__trace_reader_refill(r);
}

/* In the file, of what is taken next. */
static inline uint64_t ebb__trace_reader_offset(const ebb_trace_reader *r) {
    return r->base + (uint64_t)(r->at - r->data);
}

/* EBB_E_FORMAT, with the file and the offset. */
ebb_status ebb__trace_reader_malformed(ebb_trace_reader *r, const char *what);

/* Take one record. *is_event_out: it is in *event_out. The file's end or cut sets r->ended. */
ebb_status ebb__trace_read_record(ebb_trace_reader *r, ebb_trace_event *event_out, bool *is_event_out);

#endif
