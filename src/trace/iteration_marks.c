/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations that the trace names itself.
 *
 * A marked one goes from its begin mark to its end mark, both included, or where it has none up to the next begin mark;
 * one that neither ends is not whole.
 *
 * An optimiser's annotation is where an update begins. The iteration begins somewhere between an update and the next:
 * where the least memory is live, and if that is so more than once, where most is added until it is so again, which is
 * the forward and backward pass. It ends as far behind the next annotation as the shortest update says; an evaluation
 * behind that is not part of it.
 */
#include "trace/iteration_priv.h"

ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations) {
    bool is_open = false;
    uint64_t first_event = 0;
    for (size_t m = 0; m < finder->marks.n; m++) {
        const ebb_iteration_mark *mark = &finder->marks.data[m];
        if (mark->mark == EBB_TRACE_ANNOTATION) { continue; }
        const bool begins = mark->mark == EBB_TRACE_ITERATION_BEGIN;
        if (is_open) {
            ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION, .first_event = first_event};
            part.n_events = mark->event + (begins ? 0u : 1u) - first_event;
            EBB_TRY(EBB_PUSH(finder->mem, iterations, part));
        }
        is_open = begins;
        first_event = mark->event;
    }
    return EBB_OK;
}

uint32_t ebb__iteration_least(const uint64_t *live_bytes, uint32_t first, uint32_t last) {
    uint32_t best = first, low = first;
    double most = -1.0, more = 0.0; /* byte-events above the least, behind low */
    for (uint32_t at = first + 1; at <= last; at++) {
        if (at < last && live_bytes[at] > live_bytes[low]) {
            more += (double)(live_bytes[at] - live_bytes[low]);
            continue;
        }
        if (more > most) {
            most = more;
            best = low;
        }
        if (at < last && live_bytes[at] < live_bytes[low]) {
            most = -1.0;
            best = at;
        }
        low = at;
        more = 0.0;
    }
    return best;
}

/* The places of the updates. */
static ebb_status find_updates(const ebb_iteration_finder *finder, ebb_u32s *updates) {
    for (size_t m = 0; m < finder->marks.n; m++) {
        const ebb_iteration_mark *mark = &finder->marks.data[m];
        if (mark->mark != EBB_TRACE_ANNOTATION) { continue; }
        const uint32_t at = ebb__iteration_at_of(finder, mark->event);
        if (updates->n > 0 && updates->data[updates->n - 1] == at) { continue; } /* two optimisers */
        EBB_TRY(EBB_PUSH(finder->mem, updates, at));
    }
    return EBB_OK;
}

static ebb_status add(const ebb_iteration_finder *finder, uint32_t first, uint32_t last, ebb_iteration_parts *parts) {
    if (first >= last || last > finder->symbols.n) { return EBB_OK; }
    ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION,
                               .first_event = ebb__iteration_event_of(finder, first)};
    part.n_events = ebb__iteration_event_of(finder, last - 1) + 1 - part.first_event;
    return EBB_PUSH(finder->mem, parts, part);
}

/* begins[i]: where the iteration begins whose update is updates[i + 1]. */
static ebb_status add_all(const ebb_iteration_text *text, const ebb_u32s *updates, uint32_t *begins,
                          ebb_iteration_parts *iterations) {
    const uint32_t *at = updates->data;
    uint32_t n_behind = UINT32_MAX; /* events of an update */
    for (size_t i = 0; i + 1 < updates->n; i++) {
        begins[i] = ebb__iteration_least(text->live_bytes, at[i], at[i + 1]);
        const bool is_warm_up = i == 0 && updates->n > 2; /* the first update makes the optimiser's state */
        if (!is_warm_up) { n_behind = (uint32_t)ebb_min_u64(n_behind, begins[i] - at[i]); }
    }
    const uint32_t n_before = at[1] - begins[0];
    if (at[0] >= n_before) { EBB_TRY(add(text->finder, at[0] - n_before, at[0] + n_behind, iterations)); }
    for (size_t i = 0; i + 1 < updates->n; i++) {
        EBB_TRY(add(text->finder, begins[i], at[i + 1] + n_behind, iterations));
    }
    return EBB_OK;
}

ebb_status ebb__iteration_from_annotations(const ebb_iteration_text *text, ebb_iteration_parts *iterations) {
    const ebb_mem *mem = text->finder->mem;
    ebb_u32s updates = {0};
    uint32_t *begins = NULL;
    ebb_status st = find_updates(text->finder, &updates);
    if (st == EBB_OK && updates.n > 1) {
        begins = ebb__alloc(mem, updates.n, sizeof *begins);
        st = begins != NULL ? add_all(text, &updates, begins, iterations) : EBB_E_NO_MEMORY;
    }
    ebb__free(mem, begins);
    EBB_VEC_FINI(mem, &updates);
    return st;
}
