/* SPDX-License-Identifier: Apache-2.0
 *
 * What could be copied out after one access and be back before the next, without anybody waiting:
 *
 *      access                                                access
 *        |--- out ---|............ absent ............|--- in ---|
 *        begin       start                            stop       end
 *
 * An interval is free when its block is at most S_max = (interval - 2 latencies) / (1 / out + 1 / in) bytes. The links
 * are not shared among blocks here: this bounds what a schedule can do.
 *
 * The content must matter, so an interval that begins with an alloc or ends with a free does not count: there the block
 * could simply be allocated later or freed earlier. A block that was there before, or stays, is idle from the
 * recording's begin or to its end for at least so long (EBB_STUDY_ANY stands for what is beyond): it may have been out
 * before, and need not be back. Otherwise what stays would all be there at the end, and the peak without it never below
 * that.
 */
#include "study/intervals.h"

#include <math.h>

typedef struct window {
    uint64_t start_ns, stop_ns, size_bytes;
} window;

typedef struct search {
    const ebb_study *study;
    const bool *are; /* which blocks; NULL: all */
    study_away *away;
    EBB_VEC(window) windows;
    bool is_new;               /* no interval of this block so far */
    uint64_t from_ns, till_ns; /* of which the totals are */
} search;

static double out_ns(const ebb_study *s, uint64_t size_bytes) {
    return (double)s->options.latency_ns + (double)size_bytes * 1e9 / s->options.out_bytes_per_s;
}

static double in_ns(const ebb_study *s, uint64_t size_bytes) {
    return (double)s->options.latency_ns + (double)size_bytes * 1e9 / s->options.in_bytes_per_s;
}

bool ebb__study_is_free(const ebb_study *s, uint64_t interval_ns, uint64_t size_bytes) {
    return out_ns(s, size_bytes) + in_ns(s, size_bytes) <= (double)interval_ns;
}

/* ---- windows ---------------------------------------------------------------------------------- */

static ebb_status take_window(search *w, const ebb_study_interval *interval) {
    const ebb_study *s = w->study;
    ebb_study_swappable *sum = &w->away->sum;
    const bool leaves = interval->from != EBB_STUDY_ANY, returns = interval->to != EBB_STUDY_ANY;
    const double out = leaves ? ceil(out_ns(s, interval->size_bytes)) : 0;
    const double in = returns ? ceil(in_ns(s, interval->size_bytes)) : 0;
    const bool counts = w->from_ns <= interval->begin_ns && interval->begin_ns < w->till_ns;
    sum->n_intervals += counts;
    if (counts && w->is_new) {
        sum->bytes = study_add(sum->bytes, interval->size_bytes);
        sum->n_blocks++;
        w->is_new = false;
    }
    if (out + in >= (double)(interval->end_ns - interval->begin_ns)) { return EBB_OK; }
    window absent = {.start_ns = interval->begin_ns + (uint64_t)out,
                     .stop_ns = interval->end_ns - (uint64_t)in,
                     .size_bytes = interval->size_bytes};
    if (absent.start_ns >= absent.stop_ns) { return EBB_OK; }
    sum->out_busy += out; /* in ns for now */
    sum->in_busy += in;
    if (counts) { sum->byte_seconds += (double)absent.size_bytes * (double)(absent.stop_ns - absent.start_ns) * 1e-9; }
    if (!returns) { absent.stop_ns = UINT64_MAX; }
    if (absent.start_ns < s->summary.peak_ns && s->summary.peak_ns < absent.stop_ns) {
        sum->bytes_at_peak = study_add(sum->bytes_at_peak, absent.size_bytes);
        sum->n_blocks_at_peak++;
        EBB_TRY(EBB_PUSH(s->mem, &w->away->blocks, (uint32_t)interval->block));
    }
    return EBB_PUSH(s->mem, &w->windows, absent);
}

static ebb_status look_at(void *ctx, const ebb_study_interval *interval) {
    search *w = ctx;
    if (interval->from == EBB_STUDY_ALLOC || interval->to == EBB_STUDY_FREE) { return EBB_OK; }
    const uint64_t ns = interval->end_ns - interval->begin_ns;
    return ebb__study_is_free(w->study, ns, interval->size_bytes) ? take_window(w, interval) : EBB_OK;
}

/* Idle from the recording's begin, to its end, or all the time. */
static ebb_status look_at_ends(search *w, uint32_t block) {
    const ebb_study *s = w->study;
    const study_block *b = &s->blocks.data[block];
    const size_t first = b->first_access, end = study_first_access(s, (size_t)block + 1);
    const bool stays = b->died_event == STUDY_NONE;
    ebb_study_interval interval = {.block = block,
                                   .size_bytes = b->size_bytes,
                                   .begin_ns = b->born_ns,
                                   .end_ns = s->summary.last_ns,
                                   .from = EBB_STUDY_ANY,
                                   .to = EBB_STUDY_ANY};
    if (first == end) { return b->before && stays ? look_at(w, &interval) : EBB_OK; }
    if (b->before) {
        interval.end_ns = s->accesses.data[s->by_block[first]].time_ns;
        interval.to = EBB_STUDY_READ; /* or whatever it is */
        EBB_TRY(look_at(w, &interval));
    }
    if (!stays) { return EBB_OK; }
    interval.begin_ns = s->accesses.data[s->by_block[end - 1]].time_ns;
    interval.end_ns = s->summary.last_ns;
    interval.from = EBB_STUDY_READ;
    interval.to = EBB_STUDY_ANY;
    return look_at(w, &interval);
}

typedef struct wanted_access {
    const ebb_study *study;
    uint64_t event;
} wanted_access;

static bool is_earlier_access(const void *ctx, size_t access) {
    const wanted_access *wanted = ctx;
    return wanted->study->accesses.data[access].event < wanted->event;
}

/* When the first access from this event on was; UINT64_MAX: none. */
static uint64_t access_ns(const ebb_study *s, uint64_t event) {
    const wanted_access wanted = {s, event};
    const size_t first = ebb__first_not_before(s->accesses.n, is_earlier_access, &wanted);
    return first < s->accesses.n ? s->accesses.data[first].time_ns : UINT64_MAX;
}

static void choose_times(search *w) {
    const ebb_study *s = w->study;
    w->till_ns = UINT64_MAX;
    if (s->usual_part >= s->parts.n) { return; }
    const ebb_iteration_part *part = &s->parts.data[s->usual_part];
    w->from_ns = access_ns(s, part->first_event);
    w->till_ns = access_ns(s, part->first_event + part->n_events);
    w->away->sum.is_of_iteration = true;
}

static ebb_status find_windows(search *w) {
    const ebb_study *s = w->study;
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        if (w->are != NULL && !w->are[b]) { continue; }
        const uint64_t died_ns = block->died_event != STUDY_NONE ? block->died_ns : s->summary.last_ns;
        const uint64_t from_ns = ebb_max_u64(block->born_ns, w->from_ns), till_ns = ebb_min_u64(died_ns, w->till_ns);
        if (from_ns < till_ns) {
            w->away->sum.byte_seconds_all += (double)block->size_bytes * (double)(till_ns - from_ns) * 1e-9;
        }
        if (block->size_bytes == 0) { continue; }
        w->is_new = true;
        EBB_TRY(ebb__study_each_interval(s, (uint32_t)b, look_at, w));
        EBB_TRY(look_at_ends(w, (uint32_t)b));
    }
    return EBB_OK;
}

/* ---- the peak without them -------------------------------------------------------------------- */

typedef struct sweep {
    const search *search;
    uint32_t *by_start, *by_stop;
    size_t next_start, next_stop;
    uint64_t absent_bytes, peak_bytes, live_bytes;
} sweep;

static ebb_status sort_windows(const search *w, ebb_bump *scratch, sweep *sw) {
    const size_t n = w->windows.n;
    uint64_t *key = ebb__bump_alloc(scratch, n, sizeof *key);
    sw->by_start = ebb__bump_alloc(scratch, n, sizeof *sw->by_start);
    sw->by_stop = ebb__bump_alloc(scratch, n, sizeof *sw->by_stop);
    if (key == NULL || sw->by_start == NULL || sw->by_stop == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        sw->by_start[i] = sw->by_stop[i] = (uint32_t)i;
        key[i] = w->windows.data[i].start_ns;
    }
    EBB_TRY(ebb__sort_by_key(w->study->mem, sw->by_start, n, key));
    for (size_t i = 0; i < n; i++) { key[i] = w->windows.data[i].stop_ns; }
    return ebb__sort_by_key(w->study->mem, sw->by_stop, n, key);
}

static void note_peak(sweep *sw) {
    EBB_ASSERT(sw->absent_bytes <= sw->live_bytes);
    sw->peak_bytes = ebb_max_u64(sw->peak_bytes, sw->live_bytes - sw->absent_bytes);
}

/* What leaves before this time leaves, and what is back by then is back; at one time the returns come first, then
 * births and deaths, then what leaves: the bytes of all that may meet count. */
static void pass_until(sweep *sw, uint64_t ns) {
    const search *w = sw->search;
    const size_t n = w->windows.n;
    for (;;) {
        const window *leaves = sw->next_start < n ? &w->windows.data[sw->by_start[sw->next_start]] : NULL;
        const window *returns = sw->next_stop < n ? &w->windows.data[sw->by_stop[sw->next_stop]] : NULL;
        const bool may_return = returns != NULL && returns->stop_ns <= ns;
        if (leaves != NULL && leaves->start_ns < ns && !(may_return && returns->stop_ns <= leaves->start_ns)) {
            sw->absent_bytes += leaves->size_bytes;
            sw->next_start++;
        } else if (may_return) {
            EBB_ASSERT(sw->absent_bytes >= returns->size_bytes);
            sw->absent_bytes -= returns->size_bytes;
            sw->next_stop++;
            note_peak(sw);
        } else {
            return;
        }
    }
}

static ebb_status find_peak(const search *w, uint64_t *peak_bytes_out) {
    const ebb_study *s = w->study;
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    sweep sw = {.search = w};
    const ebb_status st = sort_windows(w, &scratch, &sw);
    for (size_t i = 0; st == EBB_OK && i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i];
        const study_block *block = &s->blocks.data[entry >> 1];
        pass_until(&sw, study_log_ns(s, entry));
        const bool is_birth = (entry & 1u) == 0;
        sw.live_bytes += is_birth ? block->size_bytes : 0 - block->size_bytes;
        if (!is_birth || !block->before) { note_peak(&sw); } /* what was there may be out by what comes next */
    }
    if (st == EBB_OK) {
        pass_until(&sw, s->summary.last_ns);
        note_peak(&sw);
        *peak_bytes_out = sw.peak_bytes;
    }
    ebb__bump_fini(&scratch);
    return st;
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__study_find_away(const ebb_study *s, const bool *are, study_away *away) {
    ebb_study_swappable *sum = &away->sum;
    sum->bytes_per_s = 1.0 / (1.0 / s->options.out_bytes_per_s + 1.0 / s->options.in_bytes_per_s);
    sum->known = study_tells(s, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ACCESSES);
    if (!sum->known) { return EBB_OK; }
    search w = {.study = s, .are = are, .away = away};
    choose_times(&w);
    ebb_status st = find_windows(&w);
    const double duration_ns = s->summary.duration_ns > 0 ? (double)s->summary.duration_ns : 1;
    sum->out_busy /= duration_ns;
    sum->in_busy /= duration_ns;
    if (st == EBB_OK) { st = find_peak(&w, &sum->peak_bytes); }
    EBB_VEC_FINI(s->mem, &w.windows);
    return st;
}

ebb_status ebb__study_find_swappable(ebb_study *s) {
    study_away away = {.sum = {.known = false}};
    const ebb_status st = ebb__study_find_away(s, NULL, &away);
    EBB_VEC_FINI(s->mem, &away.blocks);
    s->swappable = away.sum;
    return st;
}

ebb_study_swappable ebb_study_get_swappable(const ebb_study *study) {
    return study->swappable;
}
