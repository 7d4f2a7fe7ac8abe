/* SPDX-License-Identifier: Apache-2.0
 *
 * A memory snapshot of PyTorch as a trace. The tables come from snapshot.c, what was there before them from
 * snapshot_before.c; here they become events: of one device, or of all by time.
 */
#include "trace/import_priv.h"
#include "trace/ranges.h"
#include "trace/snapshot.h"

typedef struct device_state {
    uint32_t space; /* its number */
    ebb_snapshot_list events;
    ebb_u64_map block_of;       /* of live addresses */
    ebb_snapshot_before before; /* its segments are then those that are held */
} device_state;

typedef struct device_facts {
    uint64_t n_events, held_bytes; /* of segments; of their blocks at the end */
    uint64_t n_oom, peak_bytes;    /* about: of a free that comes in two parts the first counts */
    bool has_segments;
} device_facts;

typedef struct job {
    ebb_importer *importer;
    ebb_snapshot snapshot;
    EBB_VEC(device_state) devices; /* that are imported */
    EBB_VEC(device_facts) facts;   /* of all */
    EBB_VEC(uint32_t) device_of;   /* of a space: index into devices plus one; 0: it is left out */
    EBB_VEC(uint32_t) string_of;   /* of the pickle's strings: the writer's plus one */
    EBB_VEC(uint32_t) stack_of;    /* of nodes: the writer's, 0: not yet */
    EBB_VEC(uint32_t) chain;       /* scratch: nodes */
    EBB_VEC(uint32_t) annotations; /* by time */
    size_t n_annotations_done;
    uint64_t start_us, time_ns, n_blocks;
} job;

/* ---- texts and stacks ------------------------------------------------------------------------- */

/* The writer's number of a string of the pickle. */
static ebb_status get_string(job *j, uint32_t string, uint32_t *string_out) {
    *string_out = 0;
    if (string == 0) { return EBB_OK; }
    EBB_ASSERT(string < j->string_of.n);
    uint32_t *known = &j->string_of.data[string];
    if (*known == 0) {
        size_t n = 0;
        const char *bytes = ebb__pickle_text(j->snapshot.pickle, string, &n);
        uint32_t number = 0;
        EBB_TRY(ebb__trace_writer_text(j->importer->writer, bytes, n, &number));
        *known = number + 1;
    }
    *string_out = *known - 1;
    return EBB_OK;
}

static ebb_status write_frame(job *j, uint32_t stack, uint32_t caller, uint32_t *stack_out) {
    uint32_t below = 0, function = 0, file = 0;
    const ebb_snapshot_frame frame = ebb__snapshot_frame(&j->snapshot, stack, &below);
    EBB_TRY(get_string(j, frame.function, &function));
    EBB_TRY(get_string(j, frame.file, &file));
    return ebb_trace_writer_frame(j->importer->writer, caller, function, file, frame.line, stack_out);
}

/* The writer's number of a stack, whose callers are written before it. */
static ebb_status get_stack(job *j, uint32_t stack, uint32_t *stack_out) {
    j->chain.n = 0;
    uint32_t below = stack, written = 0;
    while (below != 0 && j->stack_of.data[below] == 0) {
        EBB_TRY(EBB_PUSH(j->importer->mem, &j->chain, below));
        (void)ebb__snapshot_frame(&j->snapshot, below, &below);
    }
    if (below != 0) { written = j->stack_of.data[below]; }
    for (size_t i = j->chain.n; i-- > 0;) {
        EBB_TRY(write_frame(j, j->chain.data[i], written, &written));
        j->stack_of.data[j->chain.data[i]] = written;
    }
    *stack_out = written;
    return EBB_OK;
}

/* An array of zeros, of n elements of 4 bytes. */
#define MAKE_ZEROS(j, v, n_elems)                                                                                      \
    (EBB_RESERVE((j)->importer->mem, (v), (n_elems)) == EBB_OK                                                         \
         ? (memset((v)->data, 0, (n_elems) * sizeof *(v)->data), (v)->n = (n_elems), EBB_OK)                           \
         : EBB_E_NO_MEMORY)

/* ---- devices ---------------------------------------------------------------------------------- */

/* Devices that the snapshot speaks of. */
static size_t count_devices(const ebb_snapshot *s) {
    size_t n = s->devices.n;
    for (size_t i = 0; i < s->segments.n; i++) {
        const uint64_t device = s->segments.data[i].device;
        if (device >= n && device < 65536) { n = (size_t)device + 1; }
    }
    return n;
}

static const ebb_snapshot_event *event_at(const job *j, const device_state *d, uint64_t i) {
    EBB_ASSERT(i < d->events.n && d->events.first + i < j->snapshot.events.n);
    return &j->snapshot.events.data[d->events.first + i];
}

/* The end is what the segments say, and the events lead there. */
static void judge_events(const job *j, size_t device, device_facts *f) {
    const ebb_snapshot *s = &j->snapshot;
    const ebb_snapshot_list list = device < s->devices.n ? s->devices.data[device] : (ebb_snapshot_list){0};
    uint64_t after = f->held_bytes; /* the events after this one are undone */
    f->n_events = list.n;
    f->peak_bytes = after;
    for (uint64_t i = list.n; i-- > 0;) {
        const ebb_snapshot_event *event = &s->events.data[list.first + i];
        f->n_oom += event->action == EBB_SNAPSHOT_OOM;
        if (event->action == EBB_SNAPSHOT_ALLOC) {
            after -= ebb_min_u64(after, event->size_bytes);
        } else if (event->action == EBB_SNAPSHOT_FREE_REQUESTED && event->size_bytes < UINT64_MAX - after) {
            after += event->size_bytes;
        }
        f->peak_bytes = ebb_max_u64(f->peak_bytes, after);
    }
}

static ebb_status judge_devices(job *j, size_t n_devices) {
    const ebb_snapshot *s = &j->snapshot;
    const device_facts none = {.n_events = 0};
    for (size_t i = 0; i < n_devices; i++) { EBB_TRY(EBB_PUSH(j->importer->mem, &j->facts, none)); }
    for (size_t i = 0; i < s->segments.n; i++) {
        const ebb_snapshot_segment *segment = &s->segments.data[i];
        if (segment->device >= n_devices) { continue; }
        device_facts *f = &j->facts.data[segment->device];
        f->has_segments = true;
        if (segment->allocated_bytes < UINT64_MAX - f->held_bytes) { f->held_bytes += segment->allocated_bytes; }
    }
    for (size_t i = 0; i < n_devices; i++) { judge_events(j, i, &j->facts.data[i]); }
    return EBB_OK;
}

/* One that ran out of memory; then the one with the highest peak, with the most events. */
static bool is_better(const device_facts *a, const device_facts *b) {
    if ((a->n_oom > 0) != (b->n_oom > 0)) { return a->n_oom > 0; }
    return a->peak_bytes != b->peak_bytes ? a->peak_bytes > b->peak_bytes : a->n_events > b->n_events;
}

static uint32_t find_first(const job *j) {
    size_t first = 0;
    for (size_t i = 1; i < j->facts.n; i++) {
        if (is_better(&j->facts.data[i], &j->facts.data[first])) { first = i; }
    }
    return (uint32_t)first;
}

static ebb_status add_device(job *j, uint32_t space) {
    const ebb_snapshot *s = &j->snapshot;
    EBB_ASSERT(space < j->device_of.n && j->device_of.data[space] == 0);
    EBB_TRY(EBB_RESERVE(j->importer->mem, &j->devices, 1));
    device_state *d = &j->devices.data[j->devices.n++];
    *d = (device_state){.space = space};
    if (space < s->devices.n) { d->events = s->devices.data[space]; }
    ebb__u64_map_init(&d->block_of, j->importer->mem);
    ebb__snapshot_before_init(&d->before, j->importer->mem);
    j->device_of.data[space] = (uint32_t)j->devices.n;
    return EBB_OK;
}

static ebb_status choose_devices(job *j) {
    const size_t n_devices = count_devices(&j->snapshot);
    uint32_t wanted = ebb__import_device(j->importer);
    if (wanted == IMPORT_CPU) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: a snapshot of PyTorch has no blocks of the processor", j->importer->path);
    }
    if (n_devices == 0) { return EBB_OK; }
    EBB_TRY(MAKE_ZEROS(j, &j->device_of, n_devices));
    EBB_TRY(judge_devices(j, n_devices));
    if (wanted == IMPORT_BUSIEST) { wanted = find_first(j); }
    if (wanted == IMPORT_ALL) {
        for (size_t i = 0; i < n_devices; i++) { EBB_TRY(add_device(j, (uint32_t)i)); }
        return EBB_OK;
    }
    if (wanted >= n_devices) {
        return ebb_fail(EBB_E_ARGUMENT, "%s: there is no device %u, but those from 0 to %zu", j->importer->path, wanted,
                        n_devices - 1);
    }
    return add_device(j, wanted);
}

/* NULL: it is left out. */
static device_state *device_at(const job *j, uint64_t space) {
    const uint32_t idx = space < j->device_of.n ? j->device_of.data[space] : 0;
    return idx == 0 ? NULL : &j->devices.data[idx - 1];
}

/* ---- events ----------------------------------------------------------------------------------- */

static ebb_status add(job *j, const ebb_trace_event *event) {
    ebb_trace_event e = *event;
    e.time_ns = j->time_ns;
    return ebb_trace_writer_add(j->importer->writer, &e);
}

static ebb_status add_free(job *j, uint64_t block, uint32_t stack) {
    const ebb_trace_event event = {.kind = EBB_TRACE_FREE, .block = block, .stack = stack};
    return add(j, &event);
}

/* event: an alloc, whose block is still to be numbered. */
static ebb_status add_alloc(job *j, device_state *d, ebb_trace_event *event) {
    uint64_t *block = NULL;
    bool is_new = false;
    EBB_TRY(ebb__u64_map_add(&d->block_of, event->address, &block, &is_new));
    if (!is_new) { /* its free is missing */
        EBB_TRY(add_free(j, *block, 0));
        j->importer->n_left_out++;
    }
    *block = j->n_blocks++;
    event->kind = EBB_TRACE_ALLOC;
    event->block = *block;
    event->space = d->space;
    return add(j, event);
}

static ebb_status add_death(job *j, device_state *d, const ebb_snapshot_event *event, uint32_t stack) {
    const uint64_t *block = ebb__u64_map_find(&d->block_of, event->address);
    if (block == NULL) {
        j->importer->n_left_out++;
        return EBB_OK;
    }
    EBB_ASSERT(*block < j->n_blocks);
    EBB_TRY(add_free(j, *block, stack));
    ebb__u64_map_remove(&d->block_of, event->address);
    return EBB_OK;
}

static ebb_status add_mark(job *j, const char *text, size_t n_bytes, uint32_t stack) {
    ebb_trace_event event = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .stack = stack};
    EBB_TRY(ebb__trace_writer_text(j->importer->writer, text, n_bytes, &event.name));
    return add(j, &event);
}

static ebb_status add_oom(job *j, const ebb_snapshot_event *event, uint32_t stack) {
    char text[128];
    (void)snprintf(text, sizeof text, "out of memory: %llu bytes asked for, %llu left on the device",
                   (unsigned long long)event->size_bytes, (unsigned long long)event->address);
    ebb_trace_event mark = {
        .kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .number = event->size_bytes, .stack = stack};
    EBB_TRY(ebb__trace_writer_text(j->importer->writer, text, strlen(text), &mark.name));
    return add(j, &mark);
}

static ebb_status add_annotate(job *j, const ebb_snapshot_event *event, uint32_t stack) {
    ebb_trace_event mark = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION, .stack = stack};
    EBB_TRY(get_string(j, event->name, &mark.name));
    return add(j, &mark);
}

/* What ebb__ranges_... calls for each segment that comes and goes. */
typedef struct segment_sink {
    job *job;
    uint32_t space, stack;
} segment_sink;

static ebb_status add_segment_event(void *ctx, const ebb_range *range, bool comes) {
    const segment_sink *sink = ctx;
    const ebb_trace_event event = {.kind = comes ? EBB_TRACE_SEGMENT_ALLOC : EBB_TRACE_SEGMENT_FREE,
                                   .space = sink->space,
                                   .stack = sink->stack,
                                   .address = range->address,
                                   .size_bytes = range->size_bytes};
    return add(sink->job, &event);
}

static ebb_status add_segment(job *j, device_state *d, const ebb_snapshot_event *event, uint32_t stack) {
    segment_sink sink = {j, d->space, stack};
    const ebb_range range = {event->address, event->size_bytes, event->stack};
    if (event->action == EBB_SNAPSHOT_SEGMENT_ALLOC) {
        return ebb__ranges_add(&d->before.segments, &range, add_segment_event, &sink);
    }
    return ebb__ranges_remove(&d->before.segments, &range, add_segment_event, &sink);
}

static uint64_t to_ns(const job *j, uint64_t time_us) {
    uint64_t ns = UINT64_MAX;
    if (time_us < j->start_us || !ebb_mul_u64(time_us - j->start_us, 1000, &ns)) { return j->time_ns; }
    return ebb_max_u64(ns, j->time_ns);
}

/* The end of an annotated range has a name of its own, so that a search for the range finds its beginning. */
static ebb_status add_annotation(job *j, const ebb_snapshot_annotation *a) {
    ebb_trace_event mark = {.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ANNOTATION};
    char text[256];
    if (!a->is_end) {
        EBB_TRY(get_string(j, a->name, &mark.name));
        return add(j, &mark);
    }
    size_t n = 0, n_text = sizeof EBB_TRACE_END_PREFIX - 1;
    const char *name = a->name == 0 ? "" : ebb__pickle_text(j->snapshot.pickle, a->name, &n);
    memcpy(text, EBB_TRACE_END_PREFIX, n_text);
    n = (size_t)ebb_min_u64(n, sizeof text - n_text);
    memcpy(text + n_text, name, n);
    return add_mark(j, text, n_text + n, 0);
}

/* Annotations of what happens up to now. */
static ebb_status add_annotations(job *j, uint64_t until_us) {
    const ebb_snapshot *s = &j->snapshot;
    for (; j->n_annotations_done < j->annotations.n; j->n_annotations_done++) {
        const ebb_snapshot_annotation *a = &s->annotations.data[j->annotations.data[j->n_annotations_done]];
        if (a->time_us > until_us) { break; }
        j->time_ns = to_ns(j, a->time_us);
        EBB_TRY(add_annotation(j, a));
    }
    return EBB_OK;
}

static ebb_status add_event(job *j, device_state *d, const ebb_snapshot_event *event) {
    uint32_t stack = 0;
    EBB_TRY(get_stack(j, event->stack, &stack));
    switch ((ebb_snapshot_action)event->action) {
    case EBB_SNAPSHOT_ALLOC: {
        ebb_trace_event alloc = {.row = event->stream,
                                 .stack = stack,
                                 .size_bytes = event->size_bytes,
                                 .address = event->address,
                                 .role = (ebb_role)event->role};
        EBB_TRY(get_string(j, event->name, &alloc.name));
        return add_alloc(j, d, &alloc);
    }
    case EBB_SNAPSHOT_FREE_REQUESTED:
    case EBB_SNAPSHOT_FREE_COMPLETED:
        return ebb__snapshot_is_death(&d->before, event) ? add_death(j, d, event, stack) : EBB_OK;
    case EBB_SNAPSHOT_SEGMENT_ALLOC:
    case EBB_SNAPSHOT_SEGMENT_FREE: return add_segment(j, d, event, stack);
    case EBB_SNAPSHOT_SNAPSHOT: return add_mark(j, "snapshot", sizeof "snapshot" - 1, stack);
    case EBB_SNAPSHOT_OOM: return add_oom(j, event, stack);
    case EBB_SNAPSHOT_ANNOTATE: return add_annotate(j, event, stack);
    case EBB_SNAPSHOT_UNKNOWN: break;
    }
    j->importer->n_left_out++;
    return EBB_OK;
}

static ebb_status add_before(job *j, device_state *d) {
    for (size_t i = 0; i < d->before.segments.ranges.n; i++) {
        const ebb_range *range = &d->before.segments.ranges.data[i];
        segment_sink sink = {j, d->space, 0};
        EBB_TRY(get_stack(j, range->stack, &sink.stack));
        EBB_TRY(add_segment_event(&sink, range, true));
    }
    for (size_t i = 0; i < d->before.blocks.n; i++) {
        const ebb_snapshot_kept *b = &d->before.blocks.data[i];
        ebb_trace_event alloc = {.row = b->stream,
                                 .size_bytes = b->size_bytes,
                                 .address = b->address,
                                 .role = EBB_ROLE_UNKNOWN,
                                 .before = true};
        EBB_TRY(get_stack(j, b->stack, &alloc.stack));
        EBB_TRY(add_alloc(j, d, &alloc));
    }
    EBB_VEC_FINI(j->importer->mem, &d->before.blocks);
    return EBB_OK;
}

/* ---- order ------------------------------------------------------------------------------------ */

/* Annotations of the devices that are imported, by time. */
static ebb_status sort_annotations(job *j) {
    const ebb_snapshot *s = &j->snapshot;
    const ebb_mem *mem = j->importer->mem;
    if (s->annotations.n == 0 || s->annotations.n > UINT32_MAX) { return EBB_OK; }
    EBB_TRY(EBB_RESERVE(mem, &j->annotations, s->annotations.n));
    uint64_t *key = ebb__alloc(mem, s->annotations.n, sizeof *key);
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < s->annotations.n; i++) {
        const ebb_snapshot_annotation *a = &s->annotations.data[i];
        key[i] = a->time_us;
        const bool is_wanted = a->device == EBB_TRACE_NONE || device_at(j, a->device) != NULL;
        if (is_wanted) { j->annotations.data[j->annotations.n++] = (uint32_t)i; }
    }
    const ebb_status st = ebb__sort_by_key(mem, j->annotations.data, j->annotations.n, key);
    ebb__free(mem, key);
    return st;
}

static void find_start(job *j) {
    const ebb_snapshot *s = &j->snapshot;
    uint64_t start_us = UINT64_MAX;
    for (size_t i = 0; i < j->devices.n && s->has_times; i++) {
        const device_state *d = &j->devices.data[i];
        if (d->events.n > 0) { start_us = ebb_min_u64(start_us, event_at(j, d, 0)->time_us); }
    }
    if (s->has_times && j->annotations.n > 0) {
        start_us = ebb_min_u64(start_us, s->annotations.data[j->annotations.data[0]].time_us);
    }
    j->start_us = start_us == UINT64_MAX ? 0 : start_us;
}

static ebb_status add_one(job *j, device_state *d, const ebb_snapshot_event *event) {
    if (j->snapshot.has_times) {
        EBB_TRY(add_annotations(j, event->time_us));
        j->time_ns = to_ns(j, event->time_us);
    } else {
        j->time_ns++;
    }
    return add_event(j, d, event);
}

/* The events of several devices, by time. */
static ebb_status add_merged(job *j) {
    const ebb_snapshot *s = &j->snapshot;
    const ebb_mem *mem = j->importer->mem;
    const size_t n = s->events.n;
    if (n > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^32 - 1 events", j->importer->path); }
    uint64_t *key = ebb__alloc(mem, n, sizeof *key);
    uint32_t *order = ebb__alloc(mem, n, sizeof *order);
    ebb_status st = key == NULL || order == NULL ? EBB_E_NO_MEMORY : EBB_OK;
    size_t n_wanted = 0;
    for (size_t i = 0; st == EBB_OK && i < j->devices.n; i++) {
        const ebb_snapshot_list *list = &j->devices.data[i].events;
        for (uint64_t k = list->first; k < list->first + list->n; k++) {
            key[k] = s->events.data[k].time_us;
            order[n_wanted++] = (uint32_t)k;
        }
    }
    EBB_ASSERT(n_wanted <= n);
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, order, n_wanted, key); }
    ebb__free(mem, key);
    for (size_t i = 0; st == EBB_OK && i < n_wanted; i++) {
        const ebb_snapshot_event *event = &s->events.data[order[i]];
        st = add_one(j, device_at(j, event->device), event);
    }
    ebb__free(mem, order);
    return st;
}

static ebb_status add_events(job *j) {
    if (j->devices.n > 1) { return add_merged(j); }
    for (uint64_t i = 0; j->devices.n == 1 && i < j->devices.data[0].events.n; i++) {
        EBB_TRY(add_one(j, &j->devices.data[0], event_at(j, &j->devices.data[0], i)));
    }
    return EBB_OK;
}

/* ---- notes ------------------------------------------------------------------------------------ */

static ebb_status add_settings(job *j) {
    const ebb_snapshot *s = &j->snapshot;
    for (size_t i = 0; i < s->settings.n; i++) {
        const ebb_snapshot_setting *setting = &s->settings.data[i];
        char key[128];
        size_t n = 0;
        const char *name = ebb__pickle_text(s->pickle, setting->key, &n);
        if (n > sizeof key - 16) { continue; }
        (void)snprintf(key, sizeof key, "allocator.%.*s", (int)n, name);
        EBB_TRY(ebb__import_note(j->importer, key, setting->value));
    }
    return EBB_OK;
}

/* What the segments say of themselves. */
static ebb_status add_stated(job *j) {
    const ebb_snapshot *s = &j->snapshot;
    uint64_t reserved = 0, allocated = 0, active = 0, requested = 0;
    bool has_requested = true, fits = true;
    for (size_t i = 0; i < s->segments.n; i++) {
        const ebb_snapshot_segment *segment = &s->segments.data[i];
        if (device_at(j, segment->device) == NULL) { continue; }
        has_requested = has_requested && segment->requested_bytes != EBB_TRACE_NONE;
        fits = fits && ebb_add_u64(reserved, segment->total_bytes, &reserved) &&
               ebb_add_u64(allocated, segment->allocated_bytes, &allocated) &&
               ebb_add_u64(active, segment->active_bytes, &active) &&
               (!has_requested || ebb_add_u64(requested, segment->requested_bytes, &requested));
    }
    if (!s->has_segments || !fits) { return EBB_OK; }
    EBB_TRY(ebb__import_note_u64(j->importer, "stated.reserved_bytes", reserved));
    EBB_TRY(ebb__import_note_u64(j->importer, "stated.allocated_bytes", allocated));
    EBB_TRY(ebb__import_note_u64(j->importer, "stated.active_bytes", active));
    return has_requested ? ebb__import_note_u64(j->importer, "stated.requested_bytes", requested) : EBB_OK;
}

/* A row for each stream. */
static ebb_status add_streams(job *j) {
    for (size_t i = 0; i < j->snapshot.streams.n && j->snapshot.streams.n > 1; i++) {
        char key[32], text[48];
        (void)snprintf(key, sizeof key, "row.%zu", i);
        (void)snprintf(text, sizeof text, "stream %llu", (unsigned long long)j->snapshot.streams.data[i]);
        EBB_TRY(ebb_trace_writer_note(j->importer->writer, key, text));
    }
    return EBB_OK;
}

/* Which devices are here, which of them ran out of memory, and which are left out. */
static ebb_status add_devices(job *j) {
    char text[32];
    const size_t n_devices = j->device_of.n;
    if (j->devices.n > 0) {
        (void)snprintf(text, sizeof text, "%u", j->devices.data[0].space);
        EBB_TRY(ebb__import_note_device(j->importer, j->devices.n == 1 ? text : "all"));
    }
    for (size_t i = 0; i < n_devices; i++) {
        const device_facts facts = j->facts.data[i];
        const bool is_here = device_at(j, i) != NULL;
        (void)snprintf(text, sizeof text, "%s%zu", is_here ? "oom." : "device ", i);
        if (is_here && facts.n_oom > 0) { EBB_TRY(ebb__import_note_u64(j->importer, text, facts.n_oom)); }
        if (!is_here && (facts.n_events > 0 || facts.has_segments)) {
            EBB_TRY(ebb__import_leave_out(j->importer, text));
        }
    }
    return ebb__import_note_u64(j->importer, "devices", n_devices);
}

static ebb_status add_notes(job *j) {
    EBB_TRY(add_devices(j));
    EBB_TRY(add_streams(j));
    EBB_TRY(add_settings(j));
    return add_stated(j);
}

static uint32_t tells_of(const job *j) {
    const ebb_snapshot *s = &j->snapshot;
    bool has_segments = s->has_segments;
    for (size_t i = 0; i < s->events.n && !has_segments; i++) {
        has_segments = s->events.data[i].action == EBB_SNAPSHOT_SEGMENT_ALLOC;
    }
    return EBB_TRACE_TELLS_ADDRESSES | (s->has_times ? EBB_TRACE_TELLS_TIMES : 0u) |
           (s->has_roles ? EBB_TRACE_TELLS_ROLES : 0u) | (has_segments ? EBB_TRACE_TELLS_SEGMENTS : 0u) |
           (s->has_stacks ? EBB_TRACE_TELLS_STACKS : 0u) | (s->has_segments ? EBB_TRACE_TELLS_BEFORE : 0u);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status begin(job *j) {
    uint64_t start_ns = 0;
    EBB_TRY(choose_devices(j));
    EBB_TRY(sort_annotations(j));
    find_start(j);
    if (!ebb_mul_u64(j->start_us, 1000, &start_ns)) { start_ns = 0; }
    EBB_TRY(ebb__import_begin(j->importer, tells_of(j), start_ns));
    EBB_TRY(MAKE_ZEROS(j, &j->string_of, (size_t)ebb__pickle_n_strings(j->snapshot.pickle) + 1));
    EBB_TRY(MAKE_ZEROS(j, &j->stack_of, j->snapshot.nodes.n + 1));
    return add_notes(j);
}

static ebb_status convert(job *j) {
    EBB_TRY(begin(j));
    for (size_t i = 0; i < j->devices.n; i++) {
        device_state *d = &j->devices.data[i];
        EBB_TRY(ebb__snapshot_find_before(&j->snapshot, d->space, &d->before));
        EBB_TRY(add_before(j, d));
    }
    EBB_TRY(add_events(j));
    return add_annotations(j, UINT64_MAX);
}

static ebb_status read_file(void *ctx, void *buf, size_t n, size_t *n_out) {
    return ebb__import_read(ctx, buf, n, n_out);
}

bool ebb__import_is_snapshot(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    return n >= 2 && head[0] == 0x80 && head[1] >= 2 && head[1] < 16;
}

ebb_status ebb__import_snapshot(ebb_importer *importer) {
    const ebb_mem *mem = importer->mem;
    job j = {.importer = importer};
    ebb__snapshot_init(&j.snapshot, mem);
    ebb_status st = ebb__snapshot_read(&j.snapshot, importer->path, read_file, importer);
    if (st == EBB_OK) { st = convert(&j); }
    for (size_t i = 0; i < j.devices.n; i++) {
        ebb__u64_map_fini(&j.devices.data[i].block_of);
        ebb__snapshot_before_fini(&j.devices.data[i].before);
    }
    EBB_VEC_FINI(mem, &j.devices);
    EBB_VEC_FINI(mem, &j.facts);
    EBB_VEC_FINI(mem, &j.device_of);
    EBB_VEC_FINI(mem, &j.string_of);
    EBB_VEC_FINI(mem, &j.stack_of);
    EBB_VEC_FINI(mem, &j.chain);
    EBB_VEC_FINI(mem, &j.annotations);
    ebb__snapshot_fini(&j.snapshot);
    return st;
}
