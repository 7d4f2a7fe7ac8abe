/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that write PyTorch's snapshots share: the words of a snapshot, the state of the writing, and how
 * lists, dictionaries, texts and stacks are put. What comes often is memoised: written once, then named.
 */
#ifndef EBB_SRC_REPORT_VIZ_H
#define EBB_SRC_REPORT_VIZ_H

#include "base/u64_map.h"
#include "report/report_pickle.h"
#include "trace/ranges.h"

#define VIZ_MAX_SPACES 64u
#define VIZ_BLOCK_ALIGN ((uint64_t)512) /* of addresses and of blocks, as PyTorch's allocator rounds them */

/* X(code, text): keys and words of a snapshot */
#define VIZ_WORDS(X)                                                                                                   \
    X(ACTION, "action")                                                                                                \
    X(ADDR, "addr")                                                                                                    \
    X(SIZE, "size")                                                                                                    \
    X(STREAM, "stream")                                                                                                \
    X(TIME_US, "time_us")                                                                                              \
    X(FRAMES, "frames")                                                                                                \
    X(CATEGORY, "category")                                                                                            \
    X(USER_METADATA, "user_metadata")                                                                                  \
    X(NAME, "name")                                                                                                    \
    X(FILENAME, "filename")                                                                                            \
    X(LINE, "line")                                                                                                    \
    X(ALLOC, "alloc")                                                                                                  \
    X(FREE_REQUESTED, "free_requested")                                                                                \
    X(FREE_COMPLETED, "free_completed")                                                                                \
    X(SEGMENT_ALLOC, "segment_alloc")                                                                                  \
    X(SEGMENT_FREE, "segment_free")                                                                                    \
    X(DEVICE, "device")                                                                                                \
    X(ADDRESS, "address")                                                                                              \
    X(TOTAL_SIZE, "total_size")                                                                                        \
    X(ALLOCATED_SIZE, "allocated_size")                                                                                \
    X(ACTIVE_SIZE, "active_size")                                                                                      \
    X(REQUESTED_SIZE, "requested_size")                                                                                \
    X(SEGMENT_TYPE, "segment_type")                                                                                    \
    X(LARGE, "large")                                                                                                  \
    X(SMALL, "small")                                                                                                  \
    X(SEGMENT_POOL_ID, "segment_pool_id")                                                                              \
    X(IS_EXPANDABLE, "is_expandable")                                                                                  \
    X(BLOCKS, "blocks")                                                                                                \
    X(STATE, "state")                                                                                                  \
    X(ACTIVE_ALLOCATED, "active_allocated")                                                                            \
    X(INACTIVE, "inactive")                                                                                            \
    X(STAGE, "stage")                                                                                                  \
    X(START, "START")                                                                                                  \
    X(END, "END")                                                                                                      \
    X(SEGMENTS, "segments")                                                                                            \
    X(DEVICE_TRACES, "device_traces")                                                                                  \
    X(ALLOCATOR_SETTINGS, "allocator_settings")                                                                        \
    X(EXTERNAL_ANNOTATIONS, "external_annotations")

typedef enum viz_word {
#define WORD_ENUM(code, text) WORD_##code,
    VIZ_WORDS(WORD_ENUM)
#undef WORD_ENUM
        N_VIZ_WORDS
} viz_word;

/* ---- the writing ------------------------------------------------------------------------------ */

typedef struct viz_block {
    uint64_t block, address, size_bytes;
    uint32_t stack, row;
} viz_block;

/* A space of the trace, and what is there at the end. */
typedef struct viz_device {
    bool is_used;
    uint32_t space;
    EBB_VEC(viz_block) live;
    ebb_u64_map live_of; /* of a block: index into live */
    ebb_ranges held;
    uint64_t next_address;                /* for blocks without one */
    uint64_t first_address, last_address; /* that blocks have touched */
    uint64_t live_bytes, peak_bytes;
} viz_device;

typedef struct viz_mark {
    uint64_t time_ns;
    const char *name;
    bool is_end;
} viz_mark;

typedef struct viz {
    ebb_report_pickle pickle;
    const ebb_mem *mem;
    ebb_report *report;
    ebb_trace_reader *reader; /* of this pass */
    ebb_trace_info info;      /* at the end of the first pass */
    ebb_bump bump;            /* names of marks */
    EBB_VEC(viz_mark) marks;
    EBB_VEC(uint8_t) role_of; /* of blocks, as the last label says */
    size_t n_devices;         /* that a list of them needs */
    uint64_t stream_of[EBB_TRACE_MAX_ROWS];

    uint32_t word_of[N_VIZ_WORDS]; /* memo entries plus one, 0: not written so far */
    uint32_t role_word_of[EBB_N_ROLES];
    /* Numbers of the reader's strings and stacks; the same numbers in each pass, since the file is the same. */
    EBB_VEC(uint32_t) string_of;
    EBB_VEC(uint32_t) frame_of; /* a stack's topmost frame */
    EBB_VEC(uint32_t) list_of;  /* a stack's frames */
    size_t n_in_batch;

    viz_device device[VIZ_MAX_SPACES];
    viz_device *d; /* of this pass */
} viz;

/* ---- putting ---------------------------------------------------------------------------------- */

void ebb__report_viz_word(viz *v, viz_word w);
void ebb__report_viz_number(viz *v, viz_word key, uint64_t x);
void ebb__report_viz_pair(viz *v, viz_word key, viz_word value);

/* A list is written in pieces; next goes before each element. */
void ebb__report_viz_open_list(viz *v);
void ebb__report_viz_next(viz *v);
void ebb__report_viz_close_list(viz *v);

void ebb__report_viz_open_dict(viz *v);
void ebb__report_viz_close_dict(viz *v);

/* A string of the reader's; and the key and the list of a stack's frames, innermost first. */
ebb_status ebb__report_viz_string(viz *v, uint32_t string);
ebb_status ebb__report_viz_frames(viz *v, uint32_t stack);

/* The segments at the end of the pass, with their blocks; a block outside of all is a segment of its own. */
ebb_status ebb__report_viz_segments(viz *v, uint32_t device);

#endif
