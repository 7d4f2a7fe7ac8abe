/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the pickle of a snapshot into the tables of snapshot.h.
 *
 * A dictionary is known by its keys, not by where it stands: one with an action is an event, with blocks a segment,
 * with a state a block, with a file name a frame. It becomes its record as soon as its items come, and a list becomes
 * a run of records as soon as the first record goes into it; so whatever order a generation writes its parts in, no
 * more than a number is left of each on the machine. A list of frames becomes one number, its stack: a node of a tree
 * whose root is the outermost caller. Most stacks share their outer frames with the one before, which saves looking
 * those up.
 *
 * The rules for a pickle to be a snapshot: a record's items come at once, as every pickler writes them, and the
 * records of a list lie one after the other. Anything of another shape or with another key is passed over.
 */
#include "trace/snapshot.h"

#define MAX_FRAMES ((size_t)4096)   /* of a stack; the outer ones are left out */
#define MAX_DEVICES ((size_t)65535) /* that have a list of events */
#define MAX_TEXT_BYTES ((size_t)1024)
#define MAX_SETTINGS ((size_t)4096)
#define MAX_STREAMS 256u

/* X(code, text): what a snapshot's texts are compared with */
#define WORDS(X)                                                                                                       \
    X(ACTION, "action")                                                                                                \
    X(ADDR, "addr")                                                                                                    \
    X(ADDRESS, "address")                                                                                              \
    X(SIZE, "size")                                                                                                    \
    X(STREAM, "stream")                                                                                                \
    X(TIME_US, "time_us")                                                                                              \
    X(COMPILE_CONTEXT, "compile_context")                                                                              \
    X(USER_METADATA, "user_metadata")                                                                                  \
    X(CATEGORY, "category")                                                                                            \
    X(FRAMES, "frames")                                                                                                \
    X(DEVICE_FREE, "device_free")                                                                                      \
    X(DEVICE, "device")                                                                                                \
    X(TOTAL_SIZE, "total_size")                                                                                        \
    X(ALLOCATED_SIZE, "allocated_size")                                                                                \
    X(ACTIVE_SIZE, "active_size")                                                                                      \
    X(REQUESTED_SIZE, "requested_size")                                                                                \
    X(BLOCKS, "blocks")                                                                                                \
    X(STATE, "state")                                                                                                  \
    X(HISTORY, "history")                                                                                              \
    X(REAL_SIZE, "real_size")                                                                                          \
    X(NAME, "name")                                                                                                    \
    X(FILENAME, "filename")                                                                                            \
    X(LINE, "line")                                                                                                    \
    X(STAGE, "stage")                                                                                                  \
    X(SEGMENTS, "segments")                                                                                            \
    X(DEVICE_TRACES, "device_traces")                                                                                  \
    X(ALLOC_CONF, "PYTORCH_CUDA_ALLOC_CONF")                                                                           \
    X(MAX_SPLIT_SIZE, "max_split_size")                                                                                \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                                      \
    X(ONE, "1") /* the first key of a setting for powers of two */                                                     \
    X(ALLOC, "alloc")                                                                                                  \
    X(FREE, "free")                                                                                                    \
    X(FREE_REQUESTED, "free_requested")                                                                                \
    X(FREE_COMPLETED, "free_completed")                                                                                \
    X(SEGMENT_ALLOC, "segment_alloc")                                                                                  \
    X(SEGMENT_MAP, "segment_map")                                                                                      \
    X(SEGMENT_FREE, "segment_free")                                                                                    \
    X(SEGMENT_UNMAP, "segment_unmap")                                                                                  \
    X(SNAPSHOT, "snapshot")                                                                                            \
    X(OOM, "oom")                                                                                                      \
    X(ANNOTATE, "annotate")                                                                                            \
    X(ACTIVE_ALLOCATED, "active_allocated")                                                                            \
    X(END, "END")                                                                                                      \
    X(NOT_AVAILABLE, "N/A")

enum {
    WORD_NONE,
#define WORD_ENUM(code, text) WORD_##code,
    WORDS(WORD_ENUM)
#undef WORD_ENUM
        N_WORDS
};

static const char *const words[] = {
#define WORD_TEXT(code, text) text,
    WORDS(WORD_TEXT)
#undef WORD_TEXT
};

/* What a list or dictionary has become; the number after it is an index, or a stack, or nothing. */
enum {
    IS_NOTHING,
    IS_FRAME,
    IS_STACK,
    IS_EVENT,
    IS_SEGMENT,
    IS_BLOCK,
    IS_HISTORY, /* what an old generation says of a block */
    IS_ANNOTATION,
    IS_TEXT,
    IS_SETTINGS,
    IS_LIST,
    IS_SNAPSHOT,
};
_Static_assert((int)IS_ANNOTATION < (int)EBB_SNAPSHOT_N_RECORDS, "a count for each kind of record");

static ebb_pickle_value become(unsigned what, uint64_t number) {
    return ebb__pickle_mine(number << 8 | what);
}

static unsigned what_of(ebb_pickle_value value) {
    return ebb__pickle_kind(value) == EBB_PICKLE_MINE ? (unsigned)(ebb__pickle_payload(value) & 255) : IS_NOTHING;
}

static uint64_t number_of(ebb_pickle_value value) {
    return ebb__pickle_payload(value) >> 8;
}

/* ---- stacks ----------------------------------------------------------------------------------- */

static ebb_status find_node(ebb_snapshot *s, uint32_t caller, uint32_t frame, uint32_t *node_out) {
    EBB_ASSERT(caller <= s->nodes.n && frame < s->frames.keys.n);
    const uint64_t key = (uint64_t)caller << 32 | frame;
    uint64_t *node = NULL;
    bool is_new = false;
    if (s->nodes.n >= UINT32_MAX - 1) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 distinct stacks"); }
    EBB_TRY(EBB_RESERVE(s->mem, &s->nodes, 1));
    EBB_TRY(ebb__u64_map_add(&s->node_of, key, &node, &is_new));
    if (is_new) {
        s->nodes.data[s->nodes.n++] = key;
        *node = s->nodes.n;
    }
    *node_out = (uint32_t)*node;
    return EBB_OK;
}

/* The list of frames that is open, innermost first, becomes a stack. */
static ebb_status close_stack(ebb_snapshot *s) {
    if (ebb__pickle_kind(s->open.list) == EBB_PICKLE_ABSENT) { return EBB_OK; }
    const size_t n = s->open.frames.n;
    size_t i = 0; /* frames from the outside that the path has too */
    while (i < n && i < s->open.path.n && (uint32_t)s->open.path.data[i] == s->open.frames.data[n - 1 - i]) { i++; }
    s->open.path.n = i;
    uint32_t node = i > 0 ? (uint32_t)(s->open.path.data[i - 1] >> 32) : 0;
    EBB_TRY(EBB_RESERVE(s->mem, &s->open.path, n - i));
    for (; i < n; i++) {
        const uint32_t frame = s->open.frames.data[n - 1 - i];
        EBB_TRY(find_node(s, node, frame, &node));
        s->open.path.data[s->open.path.n++] = (uint64_t)node << 32 | frame;
    }
    ebb__pickle_become(s->pickle, s->open.list, become(IS_STACK, node));
    s->open.list = (ebb_pickle_value){0};
    s->open.frames.n = 0;
    return EBB_OK;
}

static ebb_status append_frames(ebb_snapshot *s, const ebb_pickle_step *step) {
    if (step->target.bits != s->open.list.bits) {
        EBB_TRY(close_stack(s));
        s->open.list = step->target;
    }
    const size_t n = (size_t)ebb_min_u64(step->n, MAX_FRAMES - s->open.frames.n);
    EBB_TRY(EBB_RESERVE(s->mem, &s->open.frames, n));
    for (size_t i = 0; i < n; i++) {
        ebb_pickle_value item = step->items[i];
        if (what_of(item) != IS_FRAME) { item = ebb__pickle_resolve(s->pickle, item); } /* most come from the memo */
        if (what_of(item) == IS_FRAME) { s->open.frames.data[s->open.frames.n++] = (uint32_t)number_of(item); }
    }
    return EBB_OK;
}

/* The stack that value, a list of frames, is; 0 for anything else. */
static ebb_status get_stack(ebb_snapshot *s, ebb_pickle_value value, uint32_t *stack_out) {
    if (ebb__pickle_kind(value) == EBB_PICKLE_LIST && value.bits == s->open.list.bits) { EBB_TRY(close_stack(s)); }
    value = ebb__pickle_resolve(s->pickle, value);
    *stack_out = what_of(value) == IS_STACK ? (uint32_t)number_of(value) : 0;
    s->has_stacks = s->has_stacks || *stack_out != 0;
    return EBB_OK;
}

/* ---- lists ------------------------------------------------------------------------------------ */

/* The kind of records that these items make a list of. */
static unsigned kind_of_list(const ebb_snapshot *s, const ebb_pickle_step *step) {
    for (size_t i = 0; i < step->n; i++) {
        const ebb_pickle_value item = ebb__pickle_resolve(s->pickle, step->items[i]);
        const unsigned what = what_of(item);
        if (ebb__pickle_kind(item) == EBB_PICKLE_LIST || what == IS_LIST) { return IS_LIST; }
        if (what == IS_FRAME || (what >= IS_EVENT && what <= IS_ANNOTATION)) { return what; }
    }
    return IS_NOTHING;
}

static ebb_status append_list(ebb_snapshot *s, uint64_t number, ebb_pickle_value item) {
    EBB_ASSERT(number < s->lists.n);
    const uint64_t position = s->lists.data[number].n++;
    if (what_of(item) != IS_LIST) { return EBB_OK; } /* an empty one */
    EBB_ASSERT(number_of(item) < s->lists.n);
    ebb_snapshot_list *child = &s->lists.data[number_of(item)];
    if (child->parent != 0) { return ebb__pickle_malformed(s->pickle, "a list that lies in two others"); }
    child->parent = number + 1;
    child->position = position;
    return EBB_OK;
}

static ebb_status append_record(ebb_snapshot *s, uint64_t number, ebb_pickle_value item) {
    EBB_ASSERT(number < s->lists.n);
    ebb_snapshot_list *list = &s->lists.data[number];
    const uint64_t record = number_of(item);
    if (what_of(item) != list->kind) { return EBB_OK; }
    if (list->n == 0) { list->first = record; }
    if (record != list->first + list->n || record < s->n_listed[list->kind]) {
        return ebb__pickle_malformed(s->pickle, "a record that stands in two lists, or lists that are mixed");
    }
    s->n_listed[list->kind] = record + 1;
    list->n++;
    return EBB_OK;
}

static ebb_status append(ebb_snapshot *s, const ebb_pickle_step *step) {
    if (step->n == 0) { return EBB_OK; } /* as C++ programs write empty lists */
    if (step->target.bits == s->open.list.bits) { return append_frames(s, step); }
    ebb_pickle_value list = ebb__pickle_resolve(s->pickle, step->target);
    if (ebb__pickle_kind(list) == EBB_PICKLE_LIST) {
        const unsigned kind = kind_of_list(s, step);
        if (kind == IS_FRAME) { return append_frames(s, step); }
        list = become(kind == IS_NOTHING ? IS_NOTHING : IS_LIST, s->lists.n);
        if (kind != IS_NOTHING) {
            const ebb_snapshot_list empty = {.kind = (uint8_t)kind};
            EBB_TRY(EBB_PUSH(s->mem, &s->lists, empty));
        }
        ebb__pickle_become(s->pickle, step->target, list);
    }
    if (what_of(list) == IS_STACK) { return ebb__pickle_malformed(s->pickle, "more frames for a stack in use"); }
    if (what_of(list) != IS_LIST) { return EBB_OK; }
    const bool is_outer = s->lists.data[number_of(list)].kind == IS_LIST;
    for (size_t i = 0; i < step->n; i++) {
        const ebb_pickle_value item = ebb__pickle_resolve(s->pickle, step->items[i]);
        EBB_TRY(is_outer ? append_list(s, number_of(list), item) : append_record(s, number_of(list), item));
    }
    return EBB_OK;
}

/* ---- records ---------------------------------------------------------------------------------- */

/* The values of the words, of one dictionary; absent: it has no such key. */
typedef struct items {
    ebb_pickle_value of[N_WORDS];
} items;

static bool has(const items *it, unsigned word) {
    return ebb__pickle_kind(it->of[word]) != EBB_PICKLE_ABSENT;
}

static uint64_t u64_or(const ebb_snapshot *s, const items *it, unsigned word, uint64_t otherwise) {
    uint64_t x = otherwise;
    (void)ebb__pickle_u64(s->pickle, it->of[word], &x);
    return x;
}

/* 0 for what is no text. */
static uint32_t string_or_0(const items *it, unsigned word) {
    const bool is_string = ebb__pickle_kind(it->of[word]) == EBB_PICKLE_STRING;
    return is_string ? (uint32_t)ebb__pickle_payload(it->of[word]) : 0;
}

static ebb_snapshot_action action_of(uint32_t word) {
    switch (word) {
    case WORD_ALLOC: return EBB_SNAPSHOT_ALLOC;
    case WORD_FREE:
    case WORD_FREE_REQUESTED: return EBB_SNAPSHOT_FREE_REQUESTED;
    case WORD_FREE_COMPLETED: return EBB_SNAPSHOT_FREE_COMPLETED;
    case WORD_SEGMENT_ALLOC:
    case WORD_SEGMENT_MAP: return EBB_SNAPSHOT_SEGMENT_ALLOC;
    case WORD_SEGMENT_FREE:
    case WORD_SEGMENT_UNMAP: return EBB_SNAPSHOT_SEGMENT_FREE;
    case WORD_SNAPSHOT: return EBB_SNAPSHOT_SNAPSHOT;
    case WORD_OOM: return EBB_SNAPSHOT_OOM;
    case WORD_ANNOTATE: return EBB_SNAPSHOT_ANNOTATE;
    default: return EBB_SNAPSHOT_UNKNOWN;
    }
}

static ebb_role role_of(const ebb_snapshot *s, uint32_t string) {
    char name[32];
    size_t n = 0;
    ebb_role role = EBB_ROLE_UNKNOWN;
    if (string == 0) { return role; }
    const char *text = ebb__pickle_text(s->pickle, string, &n);
    if (n >= sizeof name) { return role; }
    for (size_t i = 0; i < n; i++) { name[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i]); }
    if (n == 9 && memcmp(name, "temporary", n) == 0) { return EBB_ROLE_TEMP; }
    (void)ebb__role_find(name, n, &role);
    return role;
}

/* What the program says of itself at this moment: what the user set, or what is being compiled. */
static uint32_t name_of(const ebb_snapshot *s, const items *it) {
    static const unsigned sources[] = {WORD_USER_METADATA, WORD_COMPILE_CONTEXT};
    for (size_t i = 0; i < 2; i++) {
        const uint32_t string = string_or_0(it, sources[i]);
        size_t n = 0;
        if (string == 0 || string == WORD_NOT_AVAILABLE) { continue; }
        (void)ebb__pickle_text(s->pickle, string, &n);
        if (n > 0) { return string; }
    }
    return 0;
}

/* A stream's place among those that have come so far; the last place is for all that have none of their own. */
static ebb_status find_stream(ebb_snapshot *s, const items *it, uint8_t *stream_out) {
    const uint64_t stream = u64_or(s, it, WORD_STREAM, 0);
    size_t idx = 0;
    while (idx < s->streams.n && s->streams.data[idx] != stream) { idx++; }
    if (idx == s->streams.n && idx < MAX_STREAMS) { EBB_TRY(EBB_PUSH(s->mem, &s->streams, stream)); }
    *stream_out = (uint8_t)(idx < MAX_STREAMS ? idx : MAX_STREAMS - 1);
    return EBB_OK;
}

static ebb_status add_event(ebb_snapshot *s, const items *it, ebb_pickle_value *record) {
    ebb_snapshot_event event = {.time_us = u64_or(s, it, WORD_TIME_US, 0),
                                .size_bytes = u64_or(s, it, WORD_SIZE, 0),
                                .name = name_of(s, it),
                                .action = (uint8_t)action_of(string_or_0(it, WORD_ACTION))};
    event.address = u64_or(s, it, event.action == EBB_SNAPSHOT_OOM ? WORD_DEVICE_FREE : WORD_ADDR, 0);
    event.role = (uint8_t)role_of(s, string_or_0(it, WORD_CATEGORY));
    EBB_TRY(get_stack(s, it->of[WORD_FRAMES], &event.stack));
    EBB_TRY(find_stream(s, it, &event.stream));
    s->has_times = s->has_times || event.time_us != 0;
    s->has_roles = s->has_roles || event.role != EBB_ROLE_UNKNOWN;
    *record = become(IS_EVENT, s->events.n);
    return EBB_PUSH(s->mem, &s->events, event);
}

static ebb_status add_segment(ebb_snapshot *s, const items *it, ebb_pickle_value *record) {
    ebb_snapshot_segment segment = {.address = u64_or(s, it, WORD_ADDRESS, 0),
                                    .total_bytes = u64_or(s, it, WORD_TOTAL_SIZE, 0),
                                    .allocated_bytes = u64_or(s, it, WORD_ALLOCATED_SIZE, 0),
                                    .active_bytes = u64_or(s, it, WORD_ACTIVE_SIZE, 0),
                                    .requested_bytes = u64_or(s, it, WORD_REQUESTED_SIZE, EBB_TRACE_NONE),
                                    .device = u64_or(s, it, WORD_DEVICE, 0)};
    EBB_TRY(get_stack(s, it->of[WORD_FRAMES], &segment.stack));
    EBB_TRY(find_stream(s, it, &segment.stream));
    const ebb_pickle_value blocks = ebb__pickle_resolve(s->pickle, it->of[WORD_BLOCKS]);
    const bool has_list = what_of(blocks) == IS_LIST && s->lists.data[number_of(blocks)].kind == IS_BLOCK;
    if (has_list) { segment.blocks = (uint32_t)number_of(blocks) + 1; }
    *record = become(IS_SEGMENT, s->segments.n);
    return EBB_PUSH(s->mem, &s->segments, segment);
}

/* A block, or what an old generation says of one in its history. */
static ebb_status add_block(ebb_snapshot *s, const items *it, bool is_history, ebb_pickle_value *record) {
    ebb_snapshot_block block = {.address = u64_or(s, it, is_history ? WORD_ADDR : WORD_ADDRESS, EBB_TRACE_NONE),
                                .size_bytes = u64_or(s, it, WORD_SIZE, 0),
                                .is_allocated = string_or_0(it, WORD_STATE) == WORD_ACTIVE_ALLOCATED};
    EBB_TRY(get_stack(s, it->of[WORD_FRAMES], &block.stack));
    const ebb_pickle_value history = ebb__pickle_resolve(s->pickle, it->of[WORD_HISTORY]);
    uint64_t real_bytes = block.size_bytes;
    if (what_of(history) == IS_LIST && s->lists.data[number_of(history)].kind == IS_HISTORY) {
        const ebb_snapshot_block *latest = &s->histories.data[s->lists.data[number_of(history)].first];
        real_bytes = latest->requested_bytes;
        block.stack = latest->stack;
    }
    block.requested_bytes = u64_or(s, it, is_history ? WORD_REAL_SIZE : WORD_REQUESTED_SIZE, real_bytes);
    *record = is_history ? become(IS_HISTORY, s->histories.n) : become(IS_BLOCK, s->blocks.n);
    return is_history ? EBB_PUSH(s->mem, &s->histories, block) : EBB_PUSH(s->mem, &s->blocks, block);
}

static ebb_status add_annotation(ebb_snapshot *s, const items *it, ebb_pickle_value *record) {
    const ebb_snapshot_annotation annotation = {.time_us = u64_or(s, it, WORD_TIME_US, 0),
                                                .device = u64_or(s, it, WORD_DEVICE, EBB_TRACE_NONE),
                                                .name = string_or_0(it, WORD_NAME),
                                                .is_end = string_or_0(it, WORD_STAGE) == WORD_END};
    *record = become(IS_ANNOTATION, s->annotations.n);
    return EBB_PUSH(s->mem, &s->annotations, annotation);
}

static ebb_status add_frame(ebb_snapshot *s, const items *it, ebb_pickle_value *record) {
    const ebb_snapshot_frame frame = {string_or_0(it, WORD_NAME), string_or_0(it, WORD_FILENAME),
                                      (uint32_t)ebb_min_u64(u64_or(s, it, WORD_LINE, 0), UINT32_MAX)};
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&s->frames, &frame, sizeof frame, &number, &is_new));
    *record = become(IS_FRAME, number - 1);
    return EBB_OK;
}

/* The dictionary of a setting that has a value for each power of two, as a text. */
static ebb_status add_text(ebb_snapshot *s, const ebb_pickle_step *step, ebb_pickle_value *record) {
    char text[MAX_TEXT_BYTES];
    size_t n = 0;
    if (s->texts.n >= MAX_SETTINGS) { return EBB_OK; }
    for (size_t i = 0; i < step->n && n + 2 < sizeof text; i++) {
        if (i > 0) { text[n++] = ','; }
        ebb__pickle_show(s->pickle, step->items[2 * i], text, sizeof text - 1, &n);
        text[n++] = ':';
        ebb__pickle_show(s->pickle, step->items[2 * i + 1], text, sizeof text, &n);
    }
    text[n] = '\0';
    const char *copy = ebb__bump_strdup(&s->bump, text);
    if (copy == NULL) { return EBB_E_NO_MEMORY; }
    *record = become(IS_TEXT, s->texts.n);
    return EBB_PUSH(s->mem, &s->texts, copy);
}

static ebb_status add_setting(ebb_snapshot *s, uint32_t key, ebb_pickle_value value) {
    char text[MAX_TEXT_BYTES] = "";
    size_t n = 0;
    if (what_of(value) == IS_NOTHING) { ebb__pickle_show(s->pickle, value, text, sizeof text, &n); }
    text[n] = '\0';
    ebb_snapshot_setting setting = {.key = key};
    setting.value = what_of(value) == IS_TEXT ? s->texts.data[number_of(value)] : ebb__bump_strdup(&s->bump, text);
    return setting.value == NULL ? EBB_E_NO_MEMORY : EBB_PUSH(s->mem, &s->settings, setting);
}

static ebb_status add_settings(ebb_snapshot *s, const ebb_pickle_step *step, ebb_pickle_value *record) {
    for (size_t i = 0; i < step->n && s->settings.n < MAX_SETTINGS; i++) {
        if (ebb__pickle_kind(step->items[2 * i]) != EBB_PICKLE_STRING) { continue; }
        EBB_TRY(add_setting(s, (uint32_t)ebb__pickle_payload(step->items[2 * i]),
                            ebb__pickle_resolve(s->pickle, step->items[2 * i + 1])));
    }
    *record = become(IS_SETTINGS, 0);
    return EBB_OK;
}

static void add_snapshot(ebb_snapshot *s, const items *it, ebb_pickle_value *record) {
    const ebb_pickle_value traces = ebb__pickle_resolve(s->pickle, it->of[WORD_DEVICE_TRACES]);
    const bool is_outer = what_of(traces) == IS_LIST && s->lists.data[number_of(traces)].kind == IS_LIST;
    s->device_traces = is_outer ? number_of(traces) + 1 : 0;
    s->has_segments = has(it, WORD_SEGMENTS);
    *record = become(IS_SNAPSHOT, 0);
}

static ebb_status set(ebb_snapshot *s, const ebb_pickle_step *step) {
    items it;
    memset(&it, 0, sizeof it);
    for (size_t i = 0; i < step->n; i++) {
        const ebb_pickle_value key = step->items[2 * i];
        const uint64_t word = ebb__pickle_payload(key);
        if (ebb__pickle_kind(key) == EBB_PICKLE_STRING && word < N_WORDS) { it.of[word] = step->items[2 * i + 1]; }
    }
    const ebb_pickle_value before = ebb__pickle_resolve(s->pickle, step->target);
    ebb_pickle_value record = become(IS_NOTHING, 0);
    if (has(&it, WORD_ACTION)) {
        EBB_TRY(add_event(s, &it, &record));
    } else if (has(&it, WORD_FILENAME) || has(&it, WORD_LINE)) {
        EBB_TRY(add_frame(s, &it, &record));
    } else if (has(&it, WORD_BLOCKS)) {
        EBB_TRY(add_segment(s, &it, &record));
    } else if (has(&it, WORD_STATE) || has(&it, WORD_REAL_SIZE)) {
        EBB_TRY(add_block(s, &it, !has(&it, WORD_STATE), &record));
    } else if (has(&it, WORD_STAGE)) {
        EBB_TRY(add_annotation(s, &it, &record));
    } else if (has(&it, WORD_SEGMENTS) || has(&it, WORD_DEVICE_TRACES)) {
        add_snapshot(s, &it, &record);
    } else if (has(&it, WORD_MAX_SPLIT_SIZE) || has(&it, WORD_ALLOC_CONF) || has(&it, WORD_EXPANDABLE_SEGMENTS)) {
        EBB_TRY(add_settings(s, step, &record));
    } else if (has(&it, WORD_ONE)) {
        EBB_TRY(add_text(s, step, &record));
    }
    const bool was_open = ebb__pickle_kind(before) == EBB_PICKLE_DICT;
    if (!was_open && (what_of(before) != IS_NOTHING || what_of(record) != IS_NOTHING)) {
        return ebb__pickle_malformed(s->pickle, "a dictionary whose items come in pieces");
    }
    ebb__pickle_become(s->pickle, step->target, record);
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* The lists of events, by device. */
static ebb_status sort_out_devices(ebb_snapshot *s) {
    if (s->device_traces == 0) { return EBB_OK; }
    const uint64_t n_devices = s->lists.data[s->device_traces - 1].n;
    if (n_devices > MAX_DEVICES) {
        return ebb_fail(EBB_E_LIMIT, "%s: a snapshot of %llu devices", s->name, (unsigned long long)n_devices);
    }
    EBB_TRY(EBB_RESERVE(s->mem, &s->devices, (size_t)n_devices));
    memset(s->devices.data, 0, (size_t)n_devices * sizeof *s->devices.data);
    s->devices.n = (size_t)n_devices;
    for (size_t i = 0; i < s->lists.n; i++) {
        const ebb_snapshot_list *list = &s->lists.data[i];
        if (list->parent != s->device_traces || list->kind != IS_EVENT) { continue; }
        s->devices.data[list->position] = *list;
        for (uint64_t k = 0; k < list->n; k++) { s->events.data[list->first + k].device = (uint16_t)list->position; }
    }
    return EBB_OK;
}

static ebb_status end(ebb_snapshot *s, ebb_pickle_value whole) {
    /* The oldest snapshots are a list of segments. */
    const bool is_segments = what_of(whole) == IS_LIST && s->lists.data[number_of(whole)].kind == IS_SEGMENT;
    if (what_of(whole) != IS_SNAPSHOT && !is_segments) {
        return ebb_fail(EBB_E_UNSUPPORTED,
                        "%s: a pickle, but no memory snapshot of PyTorch: it has neither segments nor device_traces",
                        s->name);
    }
    s->has_segments = s->has_segments || is_segments;
    return sort_out_devices(s);
}

static ebb_status read_steps(ebb_snapshot *s) {
    for (;;) {
        ebb_pickle_step step;
        EBB_TRY(ebb__pickle_next(s->pickle, &step));
        switch (step.kind) {
        case EBB_PICKLE_APPEND: EBB_TRY(append(s, &step)); break;
        case EBB_PICKLE_SET: EBB_TRY(set(s, &step)); break;
        case EBB_PICKLE_END: return end(s, step.target);
        }
    }
}

void ebb__snapshot_init(ebb_snapshot *s, const ebb_mem *mem) {
    memset(s, 0, sizeof *s);
    s->mem = ebb__mem_or_default(mem);
    ebb__bump_init(&s->bump, s->mem);
    ebb__trace_keys_init(&s->frames, s->mem);
    ebb__u64_map_init(&s->node_of, s->mem);
}

static void free_reading(ebb_snapshot *s) {
    ebb__u64_map_fini(&s->node_of);
    EBB_VEC_FINI(s->mem, &s->texts);
    EBB_VEC_FINI(s->mem, &s->open.frames);
    EBB_VEC_FINI(s->mem, &s->open.path);
}

void ebb__snapshot_fini(ebb_snapshot *s) {
    free_reading(s);
    ebb__pickle_close(s->pickle);
    EBB_VEC_FINI(s->mem, &s->streams);
    EBB_VEC_FINI(s->mem, &s->events);
    EBB_VEC_FINI(s->mem, &s->segments);
    EBB_VEC_FINI(s->mem, &s->blocks);
    EBB_VEC_FINI(s->mem, &s->histories);
    EBB_VEC_FINI(s->mem, &s->annotations);
    EBB_VEC_FINI(s->mem, &s->settings);
    EBB_VEC_FINI(s->mem, &s->lists);
    EBB_VEC_FINI(s->mem, &s->nodes);
    EBB_VEC_FINI(s->mem, &s->devices);
    ebb__trace_keys_fini(&s->frames);
    ebb__bump_fini(&s->bump);
}

ebb_status ebb__snapshot_read(ebb_snapshot *s, const char *name, ebb_trace_read_fn read, void *ctx) {
    EBB_ASSERT(s->pickle == NULL);
    s->name = name;
    const ebb_pickle_source source = {name, read, ctx, words, N_WORDS - 1};
    EBB_TRY(ebb__pickle_open(s->mem, &source, &s->pickle));
    EBB_TRY(read_steps(s));
    free_reading(s);
    return EBB_OK;
}

ebb_snapshot_frame ebb__snapshot_frame(const ebb_snapshot *s, uint32_t stack, uint32_t *caller_out) {
    EBB_ASSERT(stack > 0 && stack <= s->nodes.n);
    const uint64_t key = s->nodes.data[stack - 1];
    ebb_snapshot_frame frame;
    memcpy(&frame, s->frames.keys.data[(uint32_t)key].data, sizeof frame);
    *caller_out = (uint32_t)(key >> 32);
    EBB_ASSERT(*caller_out < stack);
    return frame;
}
