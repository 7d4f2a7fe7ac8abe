/* SPDX-License-Identifier: Apache-2.0
 *
 * The events of a reader as tables: blocks, the log of their births and deaths, accesses, steps, segments.
 *
 * A label counts for the whole of a block's life: a recorder gives it once it knows better. A copy between the device
 * and another tier is two accesses, its begin and its end.
 */
#include "study/study_priv.h"

#include <stdlib.h>

#define MAX_BLOCKS (UINT32_MAX >> 1)

typedef struct collector {
    ebb_study *study;
    ebb_iteration_finder *finder;
    uint32_t event; /* number of the current one */
    bool has_address, has_history;
    uint32_t first_space;
    uint64_t lowest, highest; /* addresses */
    uint64_t segment_bytes, live_bytes;
} collector;

/* ---- blocks ----------------------------------------------------------------------------------- */

static void note_address(collector *c, const ebb_trace_event *e) {
    ebb_study_summary *sum = &c->study->summary;
    if (e->block == 0) { c->first_space = e->space; }
    sum->several_spaces = sum->several_spaces || e->space != c->first_space;
    if (e->address == EBB_TRACE_NONE) { return; }
    const uint64_t end = e->address + e->size_bytes < e->address ? UINT64_MAX : e->address + e->size_bytes;
    c->lowest = c->has_address ? ebb_min_u64(c->lowest, e->address) : e->address;
    c->highest = c->has_address ? ebb_max_u64(c->highest, end) : end;
    c->has_address = true;
}

static uint8_t role_of(const ebb_study *s, ebb_role role) {
    return (uint8_t)(study_tells(s, EBB_TRACE_TELLS_ROLES) ? role : EBB_ROLE_UNKNOWN);
}

static ebb_status add_block(collector *c, const ebb_trace_event *e) {
    ebb_study *s = c->study;
    if (s->blocks.n >= MAX_BLOCKS) { return ebb_fail(EBB_E_LIMIT, "a study of more than 2^31 - 1 blocks"); }
    EBB_ASSERT(e->block == s->blocks.n);
    const study_block block = {.size_bytes = e->size_bytes,
                               .address = e->address,
                               .born_ns = e->time_ns,
                               .died_ns = EBB_STUDY_UNKNOWN,
                               .longest_idle_ns = EBB_STUDY_UNKNOWN,
                               .born_event = c->event,
                               .died_event = STUDY_NONE,
                               .name = e->name,
                               .stack = e->stack,
                               .space = e->space,
                               .role = role_of(s, e->role),
                               .use = EBB_STUDY_USE_UNKNOWN,
                               .row = (uint8_t)e->row,
                               .before = e->before};
    s->max_stack = e->stack > s->max_stack ? e->stack : s->max_stack;
    s->summary.n_before += e->before;
    note_address(c, e);
    c->live_bytes += e->size_bytes;
    EBB_TRY(EBB_PUSH(s->mem, &s->blocks, block));
    return EBB_PUSH(s->mem, &s->log, (uint32_t)(s->blocks.n - 1) << 1);
}

static ebb_status end_block(collector *c, const ebb_trace_event *e) {
    study_block *block = &c->study->blocks.data[e->block];
    block->died_ns = e->time_ns;
    block->died_event = c->event;
    c->live_bytes -= block->size_bytes;
    return EBB_PUSH(c->study->mem, &c->study->log, (uint32_t)e->block << 1 | 1u);
}

static void label_block(collector *c, const ebb_trace_event *e) {
    study_block *block = &c->study->blocks.data[e->block];
    block->role = role_of(c->study, e->role);
    block->name = e->name;
}

/* ---- accesses --------------------------------------------------------------------------------- */

/* Input until it is written, if it was read first. */
static void note_use(study_block *block, study_touch touch) {
    const bool is_write = touch == TOUCH_WRITE;
    if (block->use == EBB_STUDY_USE_UNKNOWN) {
        block->use = is_write ? EBB_STUDY_USE_INTERMEDIATE : EBB_STUDY_USE_INPUT;
    } else if (is_write && block->use == EBB_STUDY_USE_INPUT) {
        block->use = EBB_STUDY_USE_PARAMETER;
    }
}

static ebb_status add_access(collector *c, const ebb_trace_event *e, study_touch touch) {
    ebb_study *s = c->study;
    study_block *block = &s->blocks.data[e->block];
    block->n_reads += touch == TOUCH_READ;
    block->n_writes += touch == TOUCH_WRITE;
    block->n_copies += touch == TOUCH_COPY_BEGIN;
    if (touch == TOUCH_READ || touch == TOUCH_WRITE) { note_use(block, touch); }
    const uint32_t step = e->step == EBB_TRACE_NONE ? STUDY_NO_STEP : (uint32_t)e->step;
    const study_access access = {.time_ns = e->time_ns,
                                 .block = (uint32_t)e->block,
                                 .event = c->event,
                                 .step_touch = step << 2 | (uint32_t)touch};
    return EBB_PUSH(s->mem, &s->accesses, access);
}

/* Counting sort: each block's accesses in their order. */
static ebb_status sort_accesses(ebb_study *s) {
    if (s->accesses.n == 0) { return EBB_OK; }
    s->by_block = ebb__alloc(s->mem, s->accesses.n, sizeof *s->by_block);
    if (s->by_block == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < s->accesses.n; a++) { s->blocks.data[s->accesses.data[a].block].first_access++; }
    uint32_t first = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        const uint32_t n = s->blocks.data[b].first_access;
        s->blocks.data[b].first_access = first; /* for now, where its next one goes */
        first += n;
    }
    for (size_t a = 0; a < s->accesses.n; a++) {
        s->by_block[s->blocks.data[s->accesses.data[a].block].first_access++] = (uint32_t)a;
    }
    for (size_t b = s->blocks.n; b-- > 1;) { s->blocks.data[b].first_access = s->blocks.data[b - 1].first_access; }
    s->blocks.data[0].first_access = 0;
    return EBB_OK;
}

/* ---- steps and segments ----------------------------------------------------------------------- */

static ebb_status begin_step(collector *c, const ebb_trace_event *e) {
    ebb_study *s = c->study;
    if (s->steps.n >= STUDY_NO_STEP) { return ebb_fail(EBB_E_LIMIT, "a study of more than 2^30 - 1 steps"); }
    EBB_ASSERT(e->step == s->steps.n);
    const study_step step = {.begin_ns = e->time_ns,
                             .end_ns = EBB_STUDY_UNKNOWN,
                             .index = e->index,
                             .begin_event = c->event,
                             .end_event = STUDY_NONE,
                             .name = e->name,
                             .op = e->op,
                             .phase = (uint8_t)e->phase,
                             .row = (uint8_t)e->row};
    return EBB_PUSH(s->mem, &s->steps, step);
}

static void end_step(collector *c, const ebb_trace_event *e) {
    EBB_ASSERT(e->step < c->study->steps.n);
    c->study->steps.data[e->step].end_ns = e->time_ns;
    c->study->steps.data[e->step].end_event = c->event;
}

/* A segment that goes is at first one of its own; match_segments finds whose end it is. */
static ebb_status add_segment(collector *c, const ebb_trace_event *e, bool goes) {
    ebb_study *s = c->study;
    const study_segment segment = {.address = e->address,
                                   .size_bytes = e->size_bytes,
                                   .born_ns = e->time_ns,
                                   .died_ns = EBB_STUDY_UNKNOWN,
                                   .born_event = c->event,
                                   .died_event = STUDY_NONE,
                                   .space = e->space};
    if (!ebb_add_u64(c->segment_bytes, e->size_bytes, &c->segment_bytes)) {
        return ebb_fail(EBB_E_LIMIT, "a study of segments of 2^64 bytes or more in all");
    }
    EBB_TRY(EBB_PUSH(s->mem, &s->segments, segment));
    return EBB_PUSH(s->mem, &s->segment_log, (uint32_t)(s->segments.n - 1) << 1 | goes);
}

static bool is_same_place(const study_segment *a, const study_segment *b) {
    return a->space == b->space && a->address == b->address;
}

/* Each end in the log gets the segment that began last at its address. One that never began stays, with size 0. */
static void join_segments(ebb_study *s, const uint32_t *order) {
    for (size_t i = 1; i < s->segments.n; i++) {
        study_segment *before = &s->segments.data[order[i - 1]], *here = &s->segments.data[order[i]];
        const bool goes = (s->segment_log.data[order[i]] & 1u) != 0;
        const bool had_gone = (s->segment_log.data[order[i - 1]] & 1u) != 0;
        if (!goes || had_gone || !is_same_place(before, here)) { continue; }
        before->died_event = here->born_event;
        before->died_ns = here->born_ns;
        s->segment_log.data[order[i]] = order[i - 1] << 1 | 1u;
    }
}

static ebb_status sort_segments(ebb_study *s, uint32_t *order, uint64_t *key) {
    for (size_t i = 0; i < s->segments.n; i++) {
        order[i] = (uint32_t)i;
        key[i] = s->segments.data[i].address;
    }
    EBB_TRY(ebb__sort_by_key(s->mem, order, s->segments.n, key));
    for (size_t i = 0; i < s->segments.n; i++) { key[i] = s->segments.data[i].space; }
    return ebb__sort_by_key(s->mem, order, s->segments.n, key);
}

/* Entry i of the log is about segment i until here. What of it ends a segment that no one saw begin goes. */
static ebb_status match_segments(ebb_study *s) {
    const size_t n = s->segments.n;
    if (n == 0) { return EBB_OK; }
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    uint32_t *order = ebb__bump_alloc(&scratch, n, sizeof *order);
    uint64_t *key = ebb__bump_alloc(&scratch, n, sizeof *key);
    ebb_status st = order != NULL && key != NULL ? sort_segments(s, order, key) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        join_segments(s, order);
        size_t n_kept = 0;
        for (size_t i = 0; i < n; i++) {
            const uint32_t entry = s->segment_log.data[i];
            if ((entry & 1u) == 0 || entry >> 1 != i) { s->segment_log.data[n_kept++] = entry; }
        }
        s->segment_log.n = n_kept;
        for (size_t i = 0; i < n_kept && st == EBB_OK; i++) {
            const uint32_t entry = s->segment_log.data[i];
            if ((entry & 1u) == 0) { st = EBB_PUSH(s->mem, &s->born_segments, entry >> 1); }
        }
    }
    ebb__bump_fini(&scratch);
    return st;
}

/* ---- refusals --------------------------------------------------------------------------------- */

/* Marks do not say of which device they are; a report of one that never ran out has none of them. */
static bool may_be_refused(const ebb_study *s) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(s->reader, &n, &chosen);
    return n <= 1 || devices[chosen].is_out_of_memory;
}

/* The number that text begins with; UNKNOWN: it begins with none. */
static uint64_t number_at(const char *text) {
    return *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : EBB_STUDY_UNKNOWN;
}

/* The number before, or after, these words in a mark; UNKNOWN: they are not in it. */
static uint64_t number_before(const char *text, const char *words) {
    const char *at = strstr(text, words);
    if (at == NULL) { return EBB_STUDY_UNKNOWN; }
    while (at > text && at[-1] >= '0' && at[-1] <= '9') { at--; }
    return number_at(at);
}

static uint64_t number_after(const char *text, const char *words) {
    const char *at = strstr(text, words);
    return at != NULL ? number_at(at + strlen(words)) : EBB_STUDY_UNKNOWN;
}

/* A mark as ebb record, ebb.torch and the importer of snapshots write it, with the bytes that were asked for. */
static ebb_status take_mark(collector *c, const ebb_trace_event *e) {
    ebb_study *s = c->study;
    const char *name = ebb_trace_reader_string(s->reader, e->name);
    const bool is_refusal = strcmp(name, "refused") == 0 || study_begins_with(name, "out of memory: ");
    if (e->mark != EBB_TRACE_ANNOTATION || e->number == 0 || !is_refusal || !may_be_refused(s)) { return EBB_OK; }
    uint64_t free_bytes = number_before(name, " left of "); /* a capacity */
    if (free_bytes == EBB_STUDY_UNKNOWN) {
        free_bytes = number_before(name, " left on ");
    } /* a device, of unknown size */
    const ebb_study_refusal refusal = {.time_ns = e->time_ns,
                                       .event = c->event,
                                       .size_bytes = e->number,
                                       .live_bytes = c->live_bytes,
                                       .stack = e->stack,
                                       .site = "",
                                       .free_bytes = free_bytes,
                                       .capacity_bytes = number_after(name, " left of "),
                                       .reserved_bytes = EBB_STUDY_UNKNOWN};
    s->max_stack = e->stack > s->max_stack ? e->stack : s->max_stack;
    return EBB_PUSH(s->mem, &s->refusals, refusal);
}

/* ---- what must hold --------------------------------------------------------------------------- */

static bool is_log_valid(const ebb_study *s) {
    for (size_t i = 1; i < s->log.n; i++) {
        const uint32_t before = s->log.data[i - 1], entry = s->log.data[i];
        if (study_log_event(s, before) >= study_log_event(s, entry)) { return false; }
        if (study_log_ns(s, before) > study_log_ns(s, entry)) { return false; }
    }
    return true;
}

static bool are_accesses_valid(const ebb_study *s) {
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        uint32_t event = block->born_event;
        for (size_t i = block->first_access; i < study_first_access(s, b + 1); i++) {
            const study_access *a = &s->accesses.data[s->by_block[i]];
            if (a->block != b || a->event <= event || a->event >= block->died_event) { return false; }
            event = a->event;
        }
    }
    return true;
}

/* ---- the door --------------------------------------------------------------------------------- */

static ebb_status take_event(collector *c, const ebb_trace_event *e) {
    const bool comes = e->kind == EBB_TRACE_ALLOC && !e->before, goes = e->kind == EBB_TRACE_FREE;
    c->has_history = c->has_history || comes || goes;
    switch (e->kind) {
    case EBB_TRACE_ALLOC: return add_block(c, e);
    case EBB_TRACE_FREE: return end_block(c, e);
    case EBB_TRACE_READ: return add_access(c, e, TOUCH_READ);
    case EBB_TRACE_WRITE: return add_access(c, e, TOUCH_WRITE);
    case EBB_TRACE_COPY_BEGIN: return add_access(c, e, TOUCH_COPY_BEGIN);
    case EBB_TRACE_COPY_END: return add_access(c, e, TOUCH_COPY_END);
    case EBB_TRACE_LABEL: label_block(c, e); break;
    case EBB_TRACE_STEP_BEGIN: return begin_step(c, e);
    case EBB_TRACE_STEP_END: end_step(c, e); break;
    case EBB_TRACE_SEGMENT_ALLOC: return add_segment(c, e, false);
    case EBB_TRACE_SEGMENT_FREE: return add_segment(c, e, true);
    case EBB_TRACE_MARK: return take_mark(c, e);
    case EBB_TRACE_N_KINDS: break;
    }
    return EBB_OK;
}

static ebb_status read_events(collector *c) {
    ebb_trace_reader *reader = c->study->reader;
    ebb_study_summary *sum = &c->study->summary;
    for (;; c->event++) {
        ebb_trace_event event;
        bool done = false;
        EBB_TRY(ebb_trace_reader_next(reader, &event, &done));
        if (done) { return EBB_OK; }
        if (c->event == STUDY_NONE) { return ebb_fail(EBB_E_LIMIT, "a study of more than 2^32 - 1 events"); }
        if (c->event == 0) {
            sum->first_ns = event.time_ns;
            sum->tells = ebb_trace_reader_info(reader).tells;
        }
        sum->last_ns = event.time_ns;
        EBB_TRY(ebb_iteration_finder_add(c->finder, &event));
        EBB_TRY(take_event(c, &event));
    }
}

static void summarize(collector *c) {
    ebb_study *s = c->study;
    ebb_study_summary *sum = &s->summary;
    const ebb_trace_info info = ebb_trace_reader_info(s->reader);
    sum->tells = info.tells;
    sum->complete = info.complete;
    sum->is_moment = !c->has_history && s->blocks.n > 0;
    sum->n_events = c->event;
    sum->n_blocks = s->blocks.n;
    sum->n_steps = s->steps.n;
    sum->n_accesses = s->accesses.n;
    sum->duration_ns = study_tells(s, EBB_TRACE_TELLS_TIMES) ? sum->last_ns - sum->first_ns : EBB_STUDY_UNKNOWN;
    const bool has_span = study_tells(s, EBB_TRACE_TELLS_ADDRESSES) && c->has_address && !sum->several_spaces;
    sum->span_bytes = has_span ? c->highest - c->lowest : EBB_STUDY_UNKNOWN;
}

static ebb_status collect(collector *c) {
    EBB_TRY(read_events(c));
    EBB_TRY(ebb__study_take_parts(c->study, c->finder));
    ebb_iteration_finder_destroy(c->finder); /* its memory is of use for what follows */
    c->finder = NULL;
    EBB_TRY(sort_accesses(c->study));
    EBB_TRY(match_segments(c->study));
    summarize(c);
    if (EBB_DEBUG >= 2) { EBB_ASSERT(is_log_valid(c->study) && are_accesses_valid(c->study)); }
    return EBB_OK;
}

ebb_status ebb__study_collect(ebb_study *s) {
    collector c = {.study = s};
    EBB_TRY(ebb_iteration_finder_create(s->mem, s->reader, &c.finder));
    const ebb_status st = collect(&c);
    ebb_iteration_finder_destroy(c.finder);
    return st;
}
