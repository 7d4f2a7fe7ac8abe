/* SPDX-License-Identifier: Apache-2.0
 *
 * What other modules use of trace beyond its public header.
 */
#ifndef EBB_SRC_TRACE_H
#define EBB_SRC_TRACE_H

#include "base/base.h"
#include "ebb/trace.h"

/* Read a trace from memory, which stays the caller's; name is what messages call it. */
ebb_status ebb__trace_reader_open_memory(const ebb_mem *mem, const char *name, const void *data, size_t n_bytes,
                                         ebb_trace_reader **reader_out);

/* Read a trace from what a function gives: at most n bytes; *n_out is 0 at the end only. */
typedef ebb_status (*ebb_trace_read_fn)(void *ctx, void *buf, size_t n, size_t *n_out);
ebb_status ebb__trace_reader_open_from(const ebb_mem *mem, const char *name, ebb_trace_read_fn read, void *ctx,
                                       ebb_trace_reader **reader_out);

/* Read a trace from an open file, which is the reader's in any case. */
ebb_status ebb__trace_reader_open_fd(const ebb_mem *mem, const char *name, int fd, ebb_trace_reader **reader_out);

/* The idx-th note so far; NULL after the last. */
const char *ebb__trace_reader_note_at(const ebb_trace_reader *reader, size_t idx, const char **key_out);

/* The name by which messages about blocks call the trace: the recording that it is made from. Borrowed until the
 * writer is closed. */
void ebb__trace_writer_name(ebb_trace_writer *writer, const char *name);

/* Write a trace to an open file, which is the writer's in any case. */
ebb_status ebb__trace_writer_open_fd(const char *name, int fd, const ebb_trace_writer_options *options,
                                     ebb_trace_writer **writer_out);

/* The number of a text of another program's: n_bytes, of which those that are no character of UTF-8, or NUL, become
 * '?'; of more than 1 MiB the rest is cut off. And a note with such a value. */
ebb_status ebb__trace_writer_text(ebb_trace_writer *writer, const void *bytes, size_t n_bytes, uint32_t *string_out);
ebb_status ebb__trace_writer_note_text(ebb_trace_writer *writer, const char *key, const void *bytes, size_t n_bytes);

/* Hand what was added to the kernel now. */
ebb_status ebb__trace_writer_flush(ebb_trace_writer *writer);

/* A mark at the end of an annotated range is named so, and then as the range: who looks for the range finds its
 * beginning alone. */
#define EBB_TRACE_END_PREFIX "end of "

/* What a file for ebb_trace_add_late_steps begins with; after it the trace's time 0 on the clock of the steps. */
#define EBB_TRACE_LATE_STEPS_HEAD "ebb-late-steps 1 "

/* What a recorder of native programs tells of its callers until they have names (docs/trace-format.md). */
#define EBB_TRACE_CALLERS_NOTE "callers"
#define EBB_TRACE_CALLERS_OFFSETS "offsets"
#define EBB_TRACE_OBJECT_PREFIX "object."

/* The note of a module that can be called: its class, "" where that is not known. */
#define EBB_TRACE_CLASS_PREFIX "class."

/* Whether this function of this program or library allocates for its caller. */
bool ebb__trace_is_allocator(const char *function, const char *file);

/* Events and blocks so far. */
void ebb__trace_writer_count(const ebb_trace_writer *writer, uint64_t *n_events_out, uint64_t *n_blocks_out);

/* ---- distinct keys ---------------------------------------------------------------------------- */

/* Numbers keys of bytes 1, 2, 3 ... in the order in which they first come. */
typedef struct ebb_trace_keys {
    const ebb_mem *mem;
    ebb_bump bump;
    EBB_VEC(struct {
        const void *data;
        size_t n_bytes;
        uint64_t hash;
    })
    keys;
    uint32_t *slot; /* [n_slots]: a key's number, 0 free; open addressing */
    size_t n_slots; /* a power of two, or 0 */
} ebb_trace_keys;

void ebb__trace_keys_init(ebb_trace_keys *keys, const ebb_mem *mem);
void ebb__trace_keys_fini(ebb_trace_keys *keys);
ebb_status ebb__trace_keys_add(ebb_trace_keys *keys, const void *data, size_t n_bytes, uint32_t *number_out,
                               bool *is_new_out);
/* Its number; 0: it is not there. */
uint32_t ebb__trace_keys_find(const ebb_trace_keys *keys, const void *data, size_t n_bytes);

#endif
