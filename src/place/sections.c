/* SPDX-License-Identifier: Apache-2.0
 *
 * Time cut into sections, and the most bytes that one of them holds.
 */
#include "place/place_priv.h"

/* The item's births and deaths in the form in which birth < death unless it lives around the end. */
static uint64_t birth_time(const ebb_place_problem *problem, const ebb_place_item *item) {
    return problem->period != 0 && item->first == problem->period ? 0 : item->first;
}

static uint64_t death_time(const ebb_place_problem *problem, const ebb_place_item *item) {
    return problem->period != 0 && item->last == 0 && item->first != 0 ? problem->period : item->last;
}

/* Events 0..n are the deaths, n..2n the births, so that at one time deaths come first. */
static ebb_status sort_events(const ebb_place_problem *problem, ebb_bump *bump, uint32_t **event_out) {
    const size_t n = problem->n_items;
    uint64_t *time = ebb__bump_alloc(bump, 2 * n, sizeof *time);
    uint32_t *event = ebb__bump_alloc(bump, 2 * n, sizeof *event);
    if (time == NULL || event == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        time[i] = death_time(problem, &problem->items[i]);
        time[n + i] = birth_time(problem, &problem->items[i]);
        event[i] = (uint32_t)i;
        event[n + i] = (uint32_t)(n + i);
    }
    EBB_TRY(ebb__sort_by_key(bump->mem, event, 2 * n, time));
    *event_out = event;
    return EBB_OK;
}

static void cut(const ebb_place_problem *problem, const uint32_t *event, ebb_sections *sections) {
    const size_t n = problem->n_items;
    uint32_t current = 0;
    bool died = false; /* in the current section */
    for (size_t e = 0; e < 2 * n; e++) {
        size_t i = event[e] < n ? event[e] : event[e] - n;
        if (problem->items[i].size_bytes == 0) {
            sections->range[i] = (ebb_place_range){0, 1};
            continue;
        }
        EBB_ASSERT(event[e] < 2 * n && current < n);
        if (event[e] < n) {
            sections->range[i].last = current + 1;
            died = true;
            continue;
        }
        current += died ? 1 : 0;
        died = false;
        sections->range[i].first = current;
    }
    EBB_ASSERT(current <= n);
    sections->n = current + 1;
}

/* Bytes of each section from what comes and goes at its beginning. */
static ebb_status find_bound(const ebb_place_problem *problem, ebb_bump *bump, ebb_sections *sections) {
    uint64_t *come = ebb__bump_alloc(bump, (size_t)sections->n + 1, sizeof *come);
    uint64_t *go = ebb__bump_alloc(bump, (size_t)sections->n + 1, sizeof *go);
    if (come == NULL || go == NULL) { return EBB_E_NO_MEMORY; }
    memset(come, 0, ((size_t)sections->n + 1) * sizeof *come);
    memset(go, 0, ((size_t)sections->n + 1) * sizeof *go);
    for (size_t i = 0; i < problem->n_items; i++) {
        if (problem->items[i].size_bytes == 0) { continue; }
        ebb_place_range range = sections->range[i];
        EBB_ASSERT(range.first < sections->n && range.last <= sections->n);
        come[range.first] += sections->rounded[i];
        go[range.last] += sections->rounded[i];
        if (range.first >= range.last) { come[0] += sections->rounded[i]; }
    }
    uint64_t live_bytes = 0, bound_bytes = 0;
    for (uint32_t s = 0; s < sections->n; s++) {
        live_bytes = live_bytes + come[s] - go[s]; /* modulo 2^64; the sum itself fits */
        bound_bytes = ebb_max_u64(bound_bytes, live_bytes);
        EBB_ASSERT(live_bytes < (uint64_t)1 << 63);
    }
    sections->bound_bytes = bound_bytes;
    return EBB_OK;
}

ebb_status ebb__place_cut(const ebb_place_problem *problem, ebb_bump *bump, ebb_sections *sections_out) {
    const size_t n = problem->n_items;
    ebb_sections sections = {.mem = bump->mem,
                             .n_items = n,
                             .range = ebb__bump_alloc(bump, n, sizeof *sections.range),
                             .rounded = ebb__bump_alloc(bump, n, sizeof *sections.rounded)};
    if (sections.range == NULL || sections.rounded == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        sections.rounded[i] = ebb_align_up(problem->items[i].size_bytes, problem->alignment_bytes);
    }
    uint32_t *event = NULL;
    EBB_TRY(sort_events(problem, bump, &event));
    cut(problem, event, &sections);
    EBB_TRY(find_bound(problem, bump, &sections));
    *sections_out = sections;
    return EBB_OK;
}

bool ebb__place_lives_always(const ebb_sections *sections, size_t item) {
    const ebb_place_range range = sections->range[item];
    EBB_ASSERT(item < sections->n_items && range.last <= sections->n);
    return range.first == range.last || (range.first == 0 && range.last == sections->n);
}
