/* SPDX-License-Identifier: Apache-2.0
 *
 * What writer and reader of the trace file share: the numbers of docs/trace-format.md.
 */
#ifndef EBB_SRC_TRACE_PRIV_H
#define EBB_SRC_TRACE_PRIV_H

#include "base/u64_map.h"
#include "trace/trace.h"

#define TRACE_MAGIC "\x89\x65\x62\x62\x74\x72\x0d\x0a"
#define TRACE_MAGIC_BYTES 8u
#define TRACE_MAJOR 1u
#define TRACE_MINOR 1u
#define TRACE_HEADER_BYTES 32u
#define TRACE_MAX_STRING_BYTES ((size_t)1 << 20)
#define TRACE_MAX_TIERS 256u
#define TRACE_MAX_RECORD_BYTES 128u /* of any record that is no string and cannot be skipped */

enum {
    RECORD_END = 0x00,
    RECORD_STRING = 0x01,
    RECORD_FRAME = 0x02,
    RECORD_NOTE = 0x03,
    RECORD_ROW = 0x04,
    RECORD_STACK = 0x05,
    RECORD_FIRST_EVENT = 0x10,
    RECORD_ALLOC = RECORD_FIRST_EVENT,
    RECORD_FREE,
    RECORD_READ,
    RECORD_WRITE,
    RECORD_LABEL,
    RECORD_STEP_BEGIN,
    RECORD_STEP_END,
    RECORD_COPY_BEGIN,
    RECORD_COPY_END,
    RECORD_MARK,
    RECORD_SEGMENT_ALLOC,
    RECORD_SEGMENT_FREE,
    RECORD_LAST_EVENT = RECORD_SEGMENT_FREE,
    RECORD_FIRST_SKIPPABLE = 0x40,
};

enum {
    ALLOC_HAS_NAME = 1u << 0,
    ALLOC_HAS_ADDRESS = 1u << 1,
    ALLOC_HAS_SPACE = 1u << 2,
    ALLOC_BEFORE = 1u << 3,
    ALLOC_ROLE_SHIFT = 4,
};

/* ---- numbers ---------------------------------------------------------------------------------- */

static inline uint8_t *ebb__trace_put(uint8_t *at, uint64_t x) {
    while (x >= 0x80) {
        *at++ = (uint8_t)(x | 0x80);
        x >>= 7;
    }
    *at++ = (uint8_t)x;
    return at;
}

static inline uint64_t ebb__trace_fold_sign(uint64_t x) {
    return (x << 1) ^ (0 - (x >> 63));
}

static inline uint64_t ebb__trace_unfold_sign(uint64_t x) {
    return (x >> 1) ^ (0 - (x & 1));
}

/* ---- live blocks ------------------------------------------------------------------------------ */

typedef struct ebb_trace_block {
    uint64_t block; /* its number plus one; 0: a free slot */
    uint64_t given; /* its number as the reader gives it; EBB_TRACE_NONE: of a device that is left out */
    uint64_t size_bytes, address;
    uint32_t name, space;
    ebb_role role;
} ebb_trace_block;

typedef struct ebb_trace_live {
    const ebb_mem *mem;
    ebb_trace_block *slot; /* [n_slots], open addressing */
    size_t n_slots, n;
} ebb_trace_live;

void ebb__trace_live_init(ebb_trace_live *live, const ebb_mem *mem);
void ebb__trace_live_fini(ebb_trace_live *live);
/* The block of this number; NULL when it is not live. Valid until the next add or remove. */
ebb_trace_block *ebb__trace_live_find(const ebb_trace_live *live, uint64_t block);
ebb_status ebb__trace_live_add(ebb_trace_live *live, const ebb_trace_block *block);
void ebb__trace_live_remove(ebb_trace_live *live, ebb_trace_block *block);

/* ---- devices ---------------------------------------------------------------------------------- */

/* The note of a trace that was made from a recording whose end is missing. */
#define TRACE_CUT_NOTE "cut"

/* What ebb_trace_reader_choose found; empty before. */
typedef struct ebb_trace_devices {
    const ebb_mem *mem;
    ebb_bump names;
    ebb_u64_map device_of; /* of a space with blocks, or with refused ones: index into list */
    EBB_VEC(ebb_trace_device) list;
    size_t chosen;
    const char *left_out; /* others' names, by the import; NULL: none exist */
    bool is_complete;     /* as of ebb_trace_info: the trace was read to its end for these */
} ebb_trace_devices;

void ebb__trace_devices_init(ebb_trace_devices *d, const ebb_mem *mem);
void ebb__trace_devices_fini(ebb_trace_devices *d); /* empty again */
/* Whether the events of this space are given: all where there is no more than one device. */
bool ebb__trace_devices_keep(const ebb_trace_devices *d, uint32_t space);

/* The reader's own. */
ebb_trace_devices *ebb__trace_reader_devices(ebb_trace_reader *reader);
const ebb_trace_devices *ebb__trace_reader_found(const ebb_trace_reader *reader);
const char *ebb__trace_reader_path(const ebb_trace_reader *reader);

/* Tell progress that n_done of a file's n_bytes are read. n_bytes less than a MiB: it is told nothing. */
void ebb__trace_tell_read(const ebb_progress *progress, uint64_t n_done, uint64_t n_bytes);
/* The reader tells progress (copied) from now on. */
void ebb__trace_reader_tell(ebb_trace_reader *reader, const ebb_progress *progress);
/* As it was opened, but for what was chosen. EBB_E_IO: it reads from what gives its bytes once. */
ebb_status ebb__trace_reader_rewind(ebb_trace_reader *reader);

/* ---- a trace written anew ---------------------------------------------------------------------- */

typedef struct trace_rewriting {
    ebb_trace_reader *reader;
    ebb_trace_writer *writer;
    uint64_t last_ns; /* written */
} trace_rewriting;

/* What the new trace has that the old one has not. Any of the functions may be NULL: all is copied. */
typedef struct trace_rewrite {
    void *ctx;
    uint32_t tells; /* besides what the old one tells */
    /* Called before each event, with its time, and with UINT64_MAX after the last one. */
    ebb_status (*before)(void *ctx, trace_rewriting *r, uint64_t time_ns);
    /* Put a frame of the reader's on top of the writer's stack caller. */
    ebb_status (*add_frame)(void *ctx, trace_rewriting *r, const ebb_trace_frame *frame, uint32_t caller,
                            uint32_t *stack_out);
    bool (*keeps_note)(const char *key);
} trace_rewrite;

/* Write the trace at path anew; it is replaced once all is written, and stays as it was on failure. One that was cut
 * off has no end afterwards either. Memory for the trace's strings and stacks. */
ebb_status ebb__trace_rewrite(const ebb_mem *mem, const char *path, const trace_rewrite *rewrite);

#endif
