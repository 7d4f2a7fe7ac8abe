/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak, and who is there then: one walk through the log for the moment, one for those who live at it.
 */
#include "study/study_priv.h"

/* ---- the peak --------------------------------------------------------------------------------- */

typedef struct walk {
    uint64_t live_bytes, n_live;
    uint64_t last_at; /* time, or event where there are no times */
    double area;      /* live bytes x what has passed since the first */
} walk;

static void pass(const ebb_study *s, walk *w, uint64_t at) {
    EBB_ASSERT(at >= w->last_at && s->log.n > 0);
    w->area += (double)w->live_bytes * (double)(at - w->last_at);
    w->last_at = at;
}

static void take_entry(const ebb_study *s, walk *w, uint32_t entry) {
    const uint64_t size_bytes = s->blocks.data[entry >> 1].size_bytes;
    const bool dies = (entry & 1u) != 0;
    EBB_ASSERT(!dies || w->live_bytes >= size_bytes);
    w->live_bytes = dies ? w->live_bytes - size_bytes : w->live_bytes + size_bytes;
    w->n_live = dies ? w->n_live - 1 : w->n_live + 1;
}

static void mark_live(ebb_study *s) {
    for (size_t i = 0; i <= s->peak_log; i++) {
        s->blocks.data[s->log.data[i] >> 1].live_at_peak = (s->log.data[i] & 1u) == 0;
    }
}

static void find_reserved_peak(ebb_study *s) {
    ebb_study_summary *sum = &s->summary;
    uint64_t reserved_bytes = 0;
    sum->reserved_peak_bytes = sum->reserved_peak_event = EBB_STUDY_UNKNOWN;
    if (!study_tells(s, EBB_TRACE_TELLS_SEGMENTS)) { return; }
    sum->reserved_peak_bytes = 0;
    for (size_t i = 0; i < s->segment_log.n; i++) {
        const uint32_t entry = s->segment_log.data[i];
        const uint64_t size_bytes = s->segments.data[entry >> 1].size_bytes;
        reserved_bytes = (entry & 1u) != 0 ? reserved_bytes - size_bytes : reserved_bytes + size_bytes;
        if (reserved_bytes <= sum->reserved_peak_bytes) { continue; }
        sum->reserved_peak_bytes = reserved_bytes;
        sum->reserved_peak_event = study_segment_event(s, entry);
    }
}

void ebb__study_find_peak(ebb_study *s) {
    ebb_study_summary *sum = &s->summary;
    const bool by_time = study_tells(s, EBB_TRACE_TELLS_TIMES);
    walk w = {.last_at = by_time ? sum->first_ns : 0};
    const uint64_t first = w.last_at, last = by_time ? sum->last_ns : sum->n_events;
    s->peak_log = STUDY_NONE;
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i];
        pass(s, &w, by_time ? study_log_ns(s, entry) : study_log_event(s, entry));
        take_entry(s, &w, entry);
        if ((entry & 1u) != 0 || (s->peak_log != STUDY_NONE && w.live_bytes <= sum->peak_bytes)) { continue; }
        s->peak_log = (uint32_t)i;
        sum->peak_bytes = w.live_bytes;
        sum->n_live_at_peak = w.n_live;
    }
    if (s->log.n > 0) {
        pass(s, &w, last);
        mark_live(s);
    }
    sum->peak_ns = s->peak_log == STUDY_NONE ? EBB_STUDY_UNKNOWN : study_log_ns(s, s->log.data[s->peak_log]);
    sum->peak_event = s->peak_log == STUDY_NONE ? EBB_STUDY_UNKNOWN : study_log_event(s, s->log.data[s->peak_log]);
    sum->end_live_bytes = w.live_bytes;
    sum->mean_live_bytes = last > first ? (uint64_t)(w.area / (double)(last - first) + 0.5) : w.live_bytes;
    find_reserved_peak(s);
}

/* ---- roles ------------------------------------------------------------------------------------ */

static void add_share(ebb_study_share *share, uint64_t size_bytes) {
    share->bytes = study_add(share->bytes, size_bytes);
    share->n_blocks++;
}

/* A batch that a step of the run copies in is input all the same. */
static void name_inputs(ebb_study *s) {
    for (size_t i = 0; i < s->blocks.n; i++) {
        if (s->blocks.data[i].role == EBB_ROLE_INPUT) { s->blocks.data[i].use = EBB_STUDY_USE_INPUT; }
    }
}

void ebb__study_break_down(ebb_study *s) {
    name_inputs(s);
    ebb_study_breakdown *b = &s->breakdown;
    const ebb_iteration_part *part = s->usual_part < s->parts.n ? &s->parts.data[s->usual_part] : NULL;
    b->is_of_iteration = part != NULL;
    for (size_t i = 0; i < s->blocks.n; i++) {
        const study_block *block = &s->blocks.data[i];
        if (part == NULL || study_is_in(block, part)) {
            add_share(&b->in_all[block->likely_role], block->size_bytes);
            add_share(&b->use_in_all[block->use], block->size_bytes);
        }
        if (!block->live_at_peak) { continue; }
        add_share(&b->at_peak[block->likely_role], block->size_bytes);
        add_share(&b->use_at_peak[block->use], block->size_bytes);
    }
}

ebb_study_breakdown ebb_study_get_breakdown(const ebb_study *study) {
    return study->breakdown;
}
