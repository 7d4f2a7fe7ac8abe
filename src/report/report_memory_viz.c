/* SPDX-License-Identifier: Apache-2.0
 *
 * What PyTorch's memory viewer reads (pytorch.org/memory_viz, torch/cuda/_memory_viz.py): a snapshot, as a pickle of
 * protocol 4 with the opcodes that the viewer knows, lists in pieces of a thousand, stacks and texts memoised.
 *
 * The recording is read once to learn its devices and what blocks turn out to be for, and once more for each device.
 * A block's free is requested and complete at once. Blocks that were there before are in the segments if they are at
 * the end, and else the viewer sees them by their free. Reads, writes, steps and copies have no place in a snapshot.
 * Where a source tells no addresses, each block gets one that no other has; where it tells no segments, what blocks
 * have touched is one. Unless that is far more than ever lived: a host's heap and its mappings lie tens of TiB apart.
 */
#include "report/report_pickle.h"

#include "trace/ranges.h"
#include "trace/trace.h"
#include "base/u64_map.h"

#include <inttypes.h>
#include <stdlib.h>

#define MAX_SPACES 64u
#define BATCH 1000u
#define MAX_FRAMES 1000u
#define FAR_APART 64u /* times the peak */
#define BLOCK_ALIGN ((uint64_t)512)

/* X(code, text): keys and words of a snapshot */
#define WORDS(X)                                                                                                       \
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

typedef enum word {
#define WORD_ENUM(code, text) WORD_##code,
    WORDS(WORD_ENUM)
#undef WORD_ENUM
        N_WORDS
} word;

static const char *const words[] = {
#define WORD_TEXT(code, text) text,
    WORDS(WORD_TEXT)
#undef WORD_TEXT
};

/* ---- the file --------------------------------------------------------------------------------- */

typedef struct live_block {
    uint64_t block, address, size_bytes;
    uint32_t stack, row;
} live_block;

/* A space of the trace, and what is there at the end. */
typedef struct viz_device {
    bool is_used;
    uint32_t space;
    EBB_VEC(live_block) live;
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

    uint32_t word_of[N_WORDS]; /* memo entries plus one, 0: not written so far */
    uint32_t role_word_of[EBB_N_ROLES];
    /* Of the reader's strings and stacks; the same numbers in each pass, since the file is the same. */
    EBB_VEC(uint32_t) string_of;
    EBB_VEC(uint32_t) frame_of; /* a stack's topmost frame */
    EBB_VEC(uint32_t) list_of;  /* a stack's frames */
    size_t n_in_batch;

    viz_device device[MAX_SPACES];
    viz_device *d; /* of this pass */
} viz;

static void put_word(viz *v, word w) {
    ebb__report_pickle_again(&v->pickle, words[w], &v->word_of[w]);
}

static void put_number(viz *v, word key, uint64_t x) {
    put_word(v, key);
    ebb__report_pickle_u64(&v->pickle, x);
}

static void put_pair(viz *v, word key, word value) {
    put_word(v, key);
    put_word(v, value);
}

static void open_list(viz *v) {
    ebb__report_pickle_op(&v->pickle, ']');
    (void)ebb__report_pickle_memoize(&v->pickle);
    v->n_in_batch = 0;
}

/* Before each element. */
static void next_element(viz *v) {
    if (v->n_in_batch == BATCH) {
        ebb__report_pickle_op(&v->pickle, 'e');
        v->n_in_batch = 0;
    }
    if (v->n_in_batch++ == 0) { ebb__report_pickle_op(&v->pickle, '('); }
}

static void close_list(viz *v) {
    if (v->n_in_batch > 0) { ebb__report_pickle_op(&v->pickle, 'e'); }
}

static void open_dict(viz *v) {
    ebb__report_pickle_op(&v->pickle, '}');
    (void)ebb__report_pickle_memoize(&v->pickle);
    ebb__report_pickle_op(&v->pickle, '(');
}

static void close_dict(viz *v) {
    ebb__report_pickle_op(&v->pickle, 'u');
}

/* ---- stacks ----------------------------------------------------------------------------------- */

/* Where the memo entry of number is kept, 0 the first time. */
#define ENTRY_OF(v, vec, number, entry_out)                                                                            \
    entry_of((v)->mem, (void **)&(vec)->data, &(vec)->n, &(vec)->cap, number, entry_out)

static ebb_status entry_of(const ebb_mem *mem, void **data, size_t *n, size_t *cap, uint32_t number,
                           uint32_t **entry_out) {
    if (number >= *n) {
        const size_t n_more = (size_t)number + 1 - *n;
        EBB_TRY(ebb__grow(mem, data, cap, *n, n_more, sizeof(uint32_t)));
        memset((uint32_t *)*data + *n, 0, n_more * sizeof(uint32_t));
        *n += n_more;
    }
    *entry_out = (uint32_t *)*data + number;
    return EBB_OK;
}

static ebb_status put_string(viz *v, uint32_t string) {
    uint32_t *entry = NULL;
    EBB_TRY(ENTRY_OF(v, &v->string_of, string, &entry));
    ebb__report_pickle_again(&v->pickle, ebb_trace_reader_string(v->reader, string), entry);
    return EBB_OK;
}

static ebb_status put_frame(viz *v, uint32_t stack, const ebb_trace_frame *frame) {
    uint32_t *entry = NULL;
    EBB_TRY(ENTRY_OF(v, &v->frame_of, stack, &entry));
    if (*entry != 0) {
        ebb__report_pickle_get(&v->pickle, *entry);
        return EBB_OK;
    }
    ebb__report_pickle_op(&v->pickle, '}');
    *entry = ebb__report_pickle_memoize(&v->pickle);
    ebb__report_pickle_op(&v->pickle, '(');
    put_word(v, WORD_NAME);
    EBB_TRY(put_string(v, frame->function));
    put_word(v, WORD_FILENAME);
    EBB_TRY(put_string(v, frame->file));
    put_number(v, WORD_LINE, frame->line);
    close_dict(v);
    return EBB_OK;
}

/* The key and the list of a stack's frames, innermost first. */
static ebb_status put_frames(viz *v, uint32_t stack) {
    uint32_t *entry = NULL;
    put_word(v, WORD_FRAMES);
    EBB_TRY(ENTRY_OF(v, &v->list_of, stack, &entry));
    if (*entry != 0) {
        ebb__report_pickle_get(&v->pickle, *entry);
        return EBB_OK;
    }
    ebb__report_pickle_op(&v->pickle, ']');
    *entry = ebb__report_pickle_memoize(&v->pickle);
    if (stack == 0) { return EBB_OK; }
    ebb__report_pickle_op(&v->pickle, '(');
    for (size_t i = 0; stack != 0 && i < MAX_FRAMES; i++) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(v->reader, stack);
        EBB_TRY(put_frame(v, stack, &frame));
        stack = frame.caller;
    }
    ebb__report_pickle_op(&v->pickle, 'e');
    return EBB_OK;
}

/* ---- the first pass --------------------------------------------------------------------------- */

/* A space below MAX_SPACES keeps its number, others take what is free. */
static ebb_status note_space(viz *v, uint32_t space) {
    size_t free_idx = MAX_SPACES;
    for (size_t i = 0; i < v->n_devices; i++) {
        if (v->device[i].is_used && v->device[i].space == space) { return EBB_OK; }
        if (!v->device[i].is_used) { free_idx = i; }
    }
    if (space < MAX_SPACES && !v->device[space].is_used) { free_idx = space; }
    if (free_idx == MAX_SPACES) { free_idx = v->n_devices; }
    if (free_idx == MAX_SPACES) {
        return ebb_fail(EBB_E_UNSUPPORTED, "%s: more than %u devices, too many for PyTorch's viewer", v->report->path,
                        MAX_SPACES);
    }
    v->device[free_idx].is_used = true;
    v->device[free_idx].space = space;
    v->n_devices = free_idx >= v->n_devices ? free_idx + 1 : v->n_devices;
    return EBB_OK;
}

static ebb_status note_mark(viz *v, const ebb_trace_event *event) {
    viz_mark mark = {.time_ns = event->time_ns};
    const char *name = ebb_trace_reader_string(v->reader, event->name);
    if (event->mark == EBB_TRACE_ANNOTATION) {
        mark.is_end = strncmp(name, EBB_TRACE_END_PREFIX, sizeof EBB_TRACE_END_PREFIX - 1) == 0;
        mark.name = ebb__bump_strdup(&v->bump, mark.is_end ? name + sizeof EBB_TRACE_END_PREFIX - 1 : name);
    } else { /* as PyTorch's profiler calls an iteration */
        mark.is_end = event->mark == EBB_TRACE_ITERATION_END;
        mark.name = ebb__bump_printf(&v->bump, "ProfilerStep#%" PRIu64, event->number);
    }
    return mark.name == NULL ? EBB_E_NO_MEMORY : EBB_PUSH(v->mem, &v->marks, mark);
}

static ebb_status look(viz *v, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC:
        EBB_TRY(note_space(v, event->space));
        return EBB_PUSH(v->mem, &v->role_of, (uint8_t)event->role);
    case EBB_TRACE_LABEL: v->role_of.data[event->block] = (uint8_t)event->role; return EBB_OK;
    case EBB_TRACE_SEGMENT_ALLOC: return note_space(v, event->space);
    case EBB_TRACE_MARK: return note_mark(v, event);
    default: return EBB_OK;
    }
}

/* ---- events ----------------------------------------------------------------------------------- */

static uint64_t to_us(const viz *v, uint64_t time_ns) {
    return v->info.start_unix_ns / 1000 + time_ns / 1000;
}

/* Where the recording still grows, a block may not have been there in the first pass. */
static ebb_role final_role(const viz *v, const ebb_trace_event *alloc) {
    return alloc->block < v->role_of.n ? (ebb_role)v->role_of.data[alloc->block] : alloc->role;
}

static ebb_status put_event(viz *v, word action, uint64_t address, const ebb_trace_event *event) {
    next_element(v);
    open_dict(v);
    put_pair(v, WORD_ACTION, action);
    put_number(v, WORD_ADDR, address);
    put_number(v, WORD_SIZE, event->size_bytes);
    put_number(v, WORD_STREAM, v->stream_of[event->row]);
    if ((v->info.tells & EBB_TRACE_TELLS_TIMES) != 0) { put_number(v, WORD_TIME_US, to_us(v, event->time_ns)); }
    if (event->kind == EBB_TRACE_ALLOC && event->name != 0) {
        put_word(v, WORD_USER_METADATA);
        EBB_TRY(put_string(v, event->name));
    }
    if (event->kind == EBB_TRACE_ALLOC && (v->info.tells & EBB_TRACE_TELLS_ROLES) != 0) {
        const ebb_role role = final_role(v, event);
        put_word(v, WORD_CATEGORY);
        ebb__report_pickle_again(&v->pickle, ebb_role_name(role), &v->role_word_of[role]);
    }
    EBB_TRY(put_frames(v, event->stack));
    close_dict(v);
    return EBB_OK;
}

static ebb_status tell_alloc(viz *v, const ebb_trace_event *event) {
    live_block b = {event->block, event->address, event->size_bytes, event->stack, event->row};
    if (b.address == EBB_TRACE_NONE) {
        b.address = v->d->next_address;
        v->d->next_address += ebb_align_up(ebb_min_u64(b.size_bytes, (uint64_t)1 << 50) + 1, BLOCK_ALIGN);
    }
    uint64_t *idx = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&v->d->live_of, b.block, &idx, &is_new));
    *idx = v->d->live.n;
    EBB_TRY(EBB_PUSH(v->mem, &v->d->live, b));
    v->d->live_bytes += b.size_bytes;
    v->d->peak_bytes = ebb_max_u64(v->d->peak_bytes, v->d->live_bytes);
    if (b.size_bytes <= UINT64_MAX - b.address) {
        v->d->first_address = ebb_min_u64(v->d->first_address, b.address);
        v->d->last_address = ebb_max_u64(v->d->last_address, b.address + b.size_bytes);
    }
    return event->before ? EBB_OK : put_event(v, WORD_ALLOC, b.address, event);
}

static ebb_status tell_free(viz *v, const ebb_trace_event *event) {
    const uint64_t *found = ebb__u64_map_find(&v->d->live_of, event->block);
    EBB_ASSERT(found != NULL); /* the reader frees what is live */
    const size_t idx = (size_t)*found;
    const uint64_t address = v->d->live.data[idx].address;
    v->d->live_bytes -= v->d->live.data[idx].size_bytes;
    ebb_trace_event end = *event;
    end.row = v->d->live.data[idx].row;
    v->d->live.data[idx] = v->d->live.data[--v->d->live.n];
    if (idx < v->d->live.n) { *ebb__u64_map_find(&v->d->live_of, v->d->live.data[idx].block) = idx; }
    ebb__u64_map_remove(&v->d->live_of, event->block);
    EBB_TRY(put_event(v, WORD_FREE_REQUESTED, address, &end));
    return put_event(v, WORD_FREE_COMPLETED, address, &end);
}

static ebb_status tell_segment(viz *v, const ebb_trace_event *event) {
    if (event->kind == EBB_TRACE_SEGMENT_ALLOC) {
        const ebb_range range = {event->address, event->size_bytes, event->stack};
        EBB_TRY(ebb__ranges_add(&v->d->held, &range, NULL, NULL));
        return put_event(v, WORD_SEGMENT_ALLOC, event->address, event);
    }
    const ebb_range *found = ebb__ranges_find(&v->d->held, event->address);
    if (found == NULL) { return EBB_OK; }
    const ebb_range range = *found;
    ebb_trace_event whole = *event;
    whole.size_bytes = range.size_bytes;
    EBB_TRY(ebb__ranges_remove(&v->d->held, &range, NULL, NULL));
    return put_event(v, WORD_SEGMENT_FREE, event->address, &whole);
}

static ebb_status tell(viz *v, const ebb_trace_event *event) {
    switch (event->kind) {
    case EBB_TRACE_ALLOC: return tell_alloc(v, event);
    case EBB_TRACE_FREE: return tell_free(v, event);
    case EBB_TRACE_SEGMENT_ALLOC:
    case EBB_TRACE_SEGMENT_FREE: return tell_segment(v, event);
    default: return EBB_OK;
    }
}

/* Read the recording once; without a device it is looked at, with one its events are written. */
static ebb_status pass(viz *v) {
    ebb_trace_reader_close(v->reader);
    v->reader = NULL;
    EBB_TRY(ebb_trace_open_any(v->mem, v->report->path, &v->reader));
    for (;;) {
        bool done = false;
        ebb_trace_event event;
        EBB_TRY(ebb_trace_reader_next(v->reader, &event, &done));
        if (done) { break; }
        if (v->d == NULL) {
            EBB_TRY(look(v, &event));
        } else if (event.space == v->d->space) {
            EBB_TRY(tell(v, &event));
        }
        EBB_TRY(v->pickle.out->status);
    }
    v->info = ebb_trace_reader_info(v->reader);
    return EBB_OK;
}

/* ---- segments --------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b) {
    const live_block *x = a, *y = b;
    if (x->address != y->address) { return x->address < y->address ? -1 : 1; }
    return x->block < y->block ? -1 : 1;
}

/* A free block has no stack and NULL for its own. */
static ebb_status put_block(viz *v, uint64_t address, uint64_t size_bytes, const live_block *own) {
    next_element(v);
    open_dict(v);
    put_number(v, WORD_ADDRESS, address);
    put_number(v, WORD_SIZE, size_bytes);
    put_number(v, WORD_REQUESTED_SIZE, own != NULL ? own->size_bytes : 0);
    put_pair(v, WORD_STATE, own != NULL ? WORD_ACTIVE_ALLOCATED : WORD_INACTIVE);
    EBB_TRY(put_frames(v, own != NULL ? own->stack : 0));
    close_dict(v);
    return EBB_OK;
}

/* The blocks from first on that lie before end, with the gaps between them. */
static ebb_status put_blocks(viz *v, const ebb_range *range, size_t first, size_t last) {
    uint64_t at = range->address;
    const uint64_t end = range->address + range->size_bytes;
    const size_t n_outer = v->n_in_batch;
    put_word(v, WORD_BLOCKS);
    open_list(v);
    for (size_t i = first; i < last; i++) {
        const live_block *b = &v->d->live.data[i];
        if (b->address > at) { EBB_TRY(put_block(v, at, b->address - at, NULL)); }
        const uint64_t limit = i + 1 < last ? v->d->live.data[i + 1].address : end;
        const uint64_t rounded = ebb_align_up(ebb_min_u64(b->size_bytes, UINT64_MAX - BLOCK_ALIGN), BLOCK_ALIGN);
        const uint64_t size_bytes = ebb_max_u64(ebb_min_u64(rounded, limit - b->address), 1);
        EBB_TRY(put_block(v, b->address, size_bytes, b));
        at = b->address + size_bytes;
    }
    if (at < end) { EBB_TRY(put_block(v, at, end - at, NULL)); }
    close_list(v);
    v->n_in_batch = n_outer;
    return EBB_OK;
}

static ebb_status put_segment(viz *v, uint32_t device, const ebb_range *range, size_t first, size_t last) {
    uint64_t requested = 0;
    for (size_t i = first; i < last; i++) { requested += v->d->live.data[i].size_bytes; }
    next_element(v);
    open_dict(v);
    put_number(v, WORD_DEVICE, device);
    put_number(v, WORD_ADDRESS, range->address);
    put_number(v, WORD_TOTAL_SIZE, range->size_bytes);
    put_number(v, WORD_ALLOCATED_SIZE, requested);
    put_number(v, WORD_ACTIVE_SIZE, requested);
    put_number(v, WORD_REQUESTED_SIZE, requested);
    put_number(v, WORD_STREAM, v->stream_of[first < last ? v->d->live.data[first].row : 0]);
    put_pair(v, WORD_SEGMENT_TYPE, range->size_bytes > (uint64_t)2 << 20 ? WORD_LARGE : WORD_SMALL);
    put_word(v, WORD_SEGMENT_POOL_ID);
    ebb__report_pickle_u64(&v->pickle, 0);
    ebb__report_pickle_u64(&v->pickle, 0);
    ebb__report_pickle_op(&v->pickle, 0x86);
    put_word(v, WORD_IS_EXPANDABLE);
    ebb__report_pickle_op(&v->pickle, 0x89);
    EBB_TRY(put_frames(v, range->stack));
    EBB_TRY(put_blocks(v, range, first, last));
    close_dict(v);
    return EBB_OK;
}

/* The segments at the end of the pass, with their blocks; a block outside of all is a segment of its own. */
static ebb_status put_segments(viz *v, uint32_t device) {
    const uint64_t span_bytes = v->d->first_address < v->d->last_address ? v->d->last_address - v->d->first_address : 0;
    if (v->d->held.ranges.n == 0 && span_bytes > 0 && span_bytes / FAR_APART <= v->d->peak_bytes) {
        const ebb_range range = {v->d->first_address, span_bytes, 0};
        EBB_TRY(ebb__ranges_add(&v->d->held, &range, NULL, NULL));
    }
    if (v->d->live.n > 0) { qsort(v->d->live.data, v->d->live.n, sizeof *v->d->live.data, by_address); }
    size_t i = 0;
    for (size_t r = 0; r <= v->d->held.ranges.n; r++) {
        const ebb_range *range = r < v->d->held.ranges.n ? &v->d->held.ranges.data[r] : NULL;
        for (; i < v->d->live.n && (range == NULL || v->d->live.data[i].address < range->address); i++) {
            const ebb_range own = {v->d->live.data[i].address, ebb_max_u64(v->d->live.data[i].size_bytes, 1), 0};
            EBB_TRY(put_segment(v, device, &own, i, i + 1));
        }
        if (range == NULL) { break; }
        const size_t first = i;
        while (i < v->d->live.n && v->d->live.data[i].address - range->address < range->size_bytes) { i++; }
        EBB_TRY(put_segment(v, device, range, first, i));
    }
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* A setting as what it looks like: a whole number, a truth value, a text. */
static void put_setting(viz *v, const char *key) {
    char note[64];
    (void)snprintf(note, sizeof note, "allocator.%s", key);
    const char *value = ebb_trace_reader_note(v->reader, note);
    if (value == NULL) { return; }
    ebb__report_pickle_text(&v->pickle, key);
    const bool is_number = value[0] != '\0' && strlen(value) < 19 && strspn(value, "0123456789") == strlen(value);
    if (is_number) {
        ebb__report_pickle_u64(&v->pickle, strtoull(value, NULL, 10));
    } else if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) {
        ebb__report_pickle_op(&v->pickle, value[0] == 't' ? 0x88 : 0x89);
    } else if (strcmp(value, "-1") == 0) {
        ebb__report_pickle_minus_one(&v->pickle);
    } else {
        ebb__report_pickle_text(&v->pickle, value);
    }
}

static void put_settings(viz *v) {
    static const char *const keys[] = {"PYTORCH_CUDA_ALLOC_CONF", "max_split_size", "expandable_segments",
                                       "garbage_collection_threshold", "roundup_power2_divisions"};
    put_word(v, WORD_ALLOCATOR_SETTINGS);
    open_dict(v);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) { put_setting(v, keys[i]); }
    close_dict(v);
}

/* Marks are of no device; the first that is used stands for it. */
static void put_annotations(viz *v) {
    uint32_t device = 0;
    while (device + 1 < v->n_devices && !v->device[device].is_used) { device++; }
    put_word(v, WORD_EXTERNAL_ANNOTATIONS);
    open_list(v);
    for (size_t i = 0; i < v->marks.n; i++) {
        const viz_mark *mark = &v->marks.data[i];
        next_element(v);
        open_dict(v);
        put_word(v, WORD_NAME);
        ebb__report_pickle_text(&v->pickle, mark->name);
        put_pair(v, WORD_STAGE, mark->is_end ? WORD_END : WORD_START);
        put_number(v, WORD_DEVICE, device);
        put_number(v, WORD_TIME_US, to_us(v, mark->time_ns));
        close_dict(v);
    }
    close_list(v);
}

static ebb_status put_devices(viz *v) {
    put_word(v, WORD_DEVICE_TRACES);
    ebb__report_pickle_op(&v->pickle, ']');
    (void)ebb__report_pickle_memoize(&v->pickle);
    for (size_t i = 0; i < v->n_devices; i++) {
        v->d = &v->device[i];
        v->d->next_address = (uint64_t)1 << 40;
        v->d->first_address = UINT64_MAX;
        ebb__u64_map_init(&v->d->live_of, v->mem);
        ebb__ranges_init(&v->d->held, v->mem);
        open_list(v);
        if (v->d->is_used) { EBB_TRY(pass(v)); }
        close_list(v);
        ebb__report_pickle_op(&v->pickle, 'a');
    }
    return EBB_OK;
}

/* The streams that rows stand for; the import of snapshots notes which. */
static void find_streams(viz *v) {
    for (uint32_t row = 0; row < EBB_TRACE_MAX_ROWS; row++) {
        char key[32];
        (void)snprintf(key, sizeof key, "row.%" PRIu32, row);
        const char *note = ebb_trace_reader_note(v->reader, key);
        const bool is_stream = note != NULL && strncmp(note, "stream ", 7) == 0;
        v->stream_of[row] = is_stream ? strtoull(note + 7, NULL, 10) : row;
    }
}

static ebb_status write_all(viz *v) {
    EBB_TRY(pass(v));
    find_streams(v);
    ebb__report_pickle_op(&v->pickle, 0x80);
    ebb__report_pickle_op(&v->pickle, 4);
    open_dict(v);
    EBB_TRY(put_devices(v));
    put_word(v, WORD_SEGMENTS);
    open_list(v);
    for (size_t i = 0; i < v->n_devices; i++) {
        v->d = &v->device[i];
        if (v->d->is_used) { EBB_TRY(put_segments(v, (uint32_t)i)); }
    }
    close_list(v);
    put_settings(v);
    put_annotations(v);
    close_dict(v);
    ebb__report_pickle_op(&v->pickle, '.');
    return EBB_OK;
}

ebb_status ebb__report_render_memory_viz(ebb_report *report, ebb_report_out *out) {
    viz *v = ebb__calloc(report->mem, 1, sizeof *v);
    if (v == NULL) { return EBB_E_NO_MEMORY; }
    v->mem = report->mem;
    v->report = report;
    v->pickle.out = out;
    ebb__bump_init(&v->bump, v->mem);
    const ebb_status st = write_all(v);
    for (size_t i = 0; i < v->n_devices; i++) {
        EBB_VEC_FINI(v->mem, &v->device[i].live);
        ebb__u64_map_fini(&v->device[i].live_of);
        ebb__ranges_fini(&v->device[i].held);
    }
    EBB_VEC_FINI(v->mem, &v->marks);
    EBB_VEC_FINI(v->mem, &v->role_of);
    EBB_VEC_FINI(v->mem, &v->string_of);
    EBB_VEC_FINI(v->mem, &v->frame_of);
    EBB_VEC_FINI(v->mem, &v->list_of);
    ebb__bump_fini(&v->bump);
    ebb_trace_reader_close(v->reader);
    ebb__free(v->mem, v);
    return st;
}
