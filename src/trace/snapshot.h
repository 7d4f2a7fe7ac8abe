/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory snapshot of PyTorch as tables: what its pickle says, in the order of the file, before anything is made of
 * it. All generations become the same tables; docs/import.md names them.
 */
#ifndef EBB_SRC_TRACE_SNAPSHOT_H
#define EBB_SRC_TRACE_SNAPSHOT_H

#include "trace/pickle.h"
#include "trace/ranges.h"
#include "base/u64_map.h"

typedef enum ebb_snapshot_action {
    EBB_SNAPSHOT_ALLOC,
    EBB_SNAPSHOT_FREE_REQUESTED,
    EBB_SNAPSHOT_FREE_COMPLETED,
    EBB_SNAPSHOT_SEGMENT_ALLOC, /* or map */
    EBB_SNAPSHOT_SEGMENT_FREE,  /* or unmap */
    EBB_SNAPSHOT_SNAPSHOT,
    EBB_SNAPSHOT_OOM, /* the address is what the device had left */
    EBB_SNAPSHOT_ANNOTATE,
    EBB_SNAPSHOT_UNKNOWN,
} ebb_snapshot_action;

/* Strings are the pickle's, stacks are nodes; 0 means none. */
typedef struct ebb_snapshot_event {
    uint64_t time_us, address, size_bytes;
    uint32_t stack, name;
    uint16_t device;
    uint8_t action, role;
    uint8_t stream; /* index into streams */
} ebb_snapshot_event;

typedef struct ebb_snapshot_segment {
    uint64_t address, total_bytes, allocated_bytes, active_bytes, requested_bytes;
    uint64_t device;
    uint32_t stack, blocks; /* the list of its blocks plus one; 0: none */
    uint8_t stream;         /* index into streams */
} ebb_snapshot_segment;

typedef struct ebb_snapshot_block {
    uint64_t address; /* or EBB_TRACE_NONE */
    uint64_t size_bytes, requested_bytes;
    uint32_t stack;
    bool is_allocated;
} ebb_snapshot_block;

typedef struct ebb_snapshot_annotation {
    uint64_t time_us, device; /* or EBB_TRACE_NONE */
    uint32_t name;
    bool is_end;
} ebb_snapshot_annotation;

typedef struct ebb_snapshot_setting {
    uint32_t key;
    const char *value;
} ebb_snapshot_setting;

typedef struct ebb_snapshot_frame {
    uint32_t function, file, line;
} ebb_snapshot_frame;

/* Records of one kind that stand one after the other in a list, or lists in a list. */
typedef struct ebb_snapshot_list {
    uint8_t kind; /* of its records */
    uint64_t first, n;
    uint64_t parent, position; /* the list plus one that it lies in, 0: none; and where */
} ebb_snapshot_list;

enum { EBB_SNAPSHOT_N_RECORDS = 8 }; /* kinds of them */

typedef struct ebb_snapshot {
    const ebb_mem *mem;
    const char *name; /* of the file */
    ebb_pickle *pickle;
    ebb_bump bump; /* values of settings */
    EBB_VEC(ebb_snapshot_event) events;
    EBB_VEC(ebb_snapshot_segment) segments;
    EBB_VEC(ebb_snapshot_block) blocks;
    EBB_VEC(ebb_snapshot_block) histories; /* what old generations say of blocks */
    EBB_VEC(ebb_snapshot_annotation) annotations;
    EBB_VEC(ebb_snapshot_setting) settings;
    EBB_VEC(ebb_snapshot_list) lists;
    ebb_trace_keys frames;              /* ebb_snapshot_frame */
    EBB_VEC(uint64_t) nodes;            /* of stack i + 1: its caller << 32 | its frame */
    EBB_VEC(ebb_snapshot_list) devices; /* their events; n is 0 for a device without any */
    EBB_VEC(uint64_t) streams;          /* as PyTorch names them, in the order in which they come; at most 256 */
    bool has_segments, has_times, has_roles, has_stacks;

    /* While it is read. */
    ebb_u64_map node_of;
    EBB_VEC(const char *) texts;               /* what dictionaries say that are the value of a setting */
    uint64_t device_traces;                    /* the list plus one of the devices' events; 0: none */
    uint64_t n_listed[EBB_SNAPSHOT_N_RECORDS]; /* of each kind of record: how many lie in a list, or before one */
    struct {
        ebb_pickle_value list; /* of frames, that is being read; absent: none */
        EBB_VEC(uint32_t) frames;
        EBB_VEC(uint64_t) path; /* of the last stack, outermost first: node << 32 | frame */
    } open;
} ebb_snapshot;

void ebb__snapshot_init(ebb_snapshot *snapshot, const ebb_mem *mem);
void ebb__snapshot_fini(ebb_snapshot *snapshot);

/* name is borrowed. Failures as of ebb__pickle_next; EBB_E_UNSUPPORTED also: it is a pickle, but no snapshot. */
ebb_status ebb__snapshot_read(ebb_snapshot *snapshot, const char *name, ebb_trace_read_fn read, void *ctx);

/* The frame of a stack, and the stack below. */
ebb_snapshot_frame ebb__snapshot_frame(const ebb_snapshot *snapshot, uint32_t stack, uint32_t *caller_out);

/* ---- what was there before (snapshot_before.c) -------------------------------------------------- */

typedef struct ebb_snapshot_kept {
    uint64_t address, size_bytes;
    uint32_t stack;
    uint8_t stream;
} ebb_snapshot_kept;

typedef struct ebb_snapshot_before {
    const ebb_mem *mem;
    bool has_requests; /* the recording says when frees are requested */
    EBB_VEC(ebb_snapshot_kept) blocks;
    ebb_ranges segments;
} ebb_snapshot_before;

void ebb__snapshot_before_init(ebb_snapshot_before *before, const ebb_mem *mem);
void ebb__snapshot_before_fini(ebb_snapshot_before *before);
ebb_status ebb__snapshot_find_before(const ebb_snapshot *snapshot, uint32_t device, ebb_snapshot_before *before);

/* Whether a block ends by this event: when that is requested, since from then on the program does not use it; only
 * where a recording leaves the requests out, when the free is complete. */
bool ebb__snapshot_is_death(const ebb_snapshot_before *before, const ebb_snapshot_event *event);

#endif
