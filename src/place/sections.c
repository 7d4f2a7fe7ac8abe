/* SPDX-License-Identifier: Apache-2.0
 *
 * Time cut into sections, and the most bytes that one of them holds.
 */
#include "place/place_priv.h"

#define MAX_TIMES 8u /* an item, to be gone through one by one */

/* ---- by sorting ------------------------------------------------------------------------------- */

/* Events 0..n are the deaths, n..2n the births, so that at one time deaths come first. */
static ebb_status sort_events(const ebb_place_problem *problem, ebb_bump *scratch, uint32_t **event_out) {
    const size_t n = problem->n_items;
    uint64_t *time = ebb__bump_alloc(scratch, 2 * n, sizeof *time);
    uint32_t *event = ebb__bump_alloc(scratch, 2 * n, sizeof *event);
    if (time == NULL || event == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        time[i] = ebb__place_death(problem->period, &problem->items[i]);
        time[n + i] = ebb__place_birth(problem->period, &problem->items[i]);
        event[i] = (uint32_t)i;
        event[n + i] = (uint32_t)(n + i);
    }
    EBB_TRY(ebb__sort_by_key(scratch->mem, event, 2 * n, time));
    *event_out = event;
    return EBB_OK;
}

static ebb_status cut_sorted(const ebb_place_problem *problem, ebb_bump *scratch, ebb_sections *sections) {
    const size_t n = problem->n_items;
    uint32_t *event = NULL, current = 0;
    bool died = false; /* in the current section */
    EBB_TRY(sort_events(problem, scratch, &event));
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
    sections->n = current + 1;
    return EBB_OK;
}

/* ---- by counting ------------------------------------------------------------------------------ */

/* The times [low, low + n) of all births and deaths; where those are all 2^64, one fewer. */
typedef struct span {
    uint64_t low, n;
} span;

static span find_span(const ebb_place_problem *problem) {
    uint64_t low = UINT64_MAX, high = 0;
    for (size_t i = 0; i < problem->n_items; i++) {
        const uint64_t birth = ebb__place_birth(problem->period, &problem->items[i]);
        const uint64_t death = ebb__place_death(problem->period, &problem->items[i]);
        low = ebb_min_u64(low, ebb_min_u64(birth, death));
        high = ebb_max_u64(high, ebb_max_u64(birth, death));
    }
    return (span){low, problem->n_items > 0 ? ebb_max_u64(high - low + 1, high - low) : 0};
}

/* Where there are few times between events, what happens at each is noted, and nothing need be sorted. */
static ebb_status cut_counted(const ebb_place_problem *problem, span times, ebb_bump *scratch, ebb_sections *sections) {
    enum { DEATH = 1, BIRTH = 2 };
    uint8_t *what = ebb__bump_alloc(scratch, times.n, sizeof *what);
    uint32_t *after = ebb__bump_alloc(scratch, times.n + 1, sizeof *after); /* the section after each time */
    if (what == NULL || after == NULL) { return EBB_E_NO_MEMORY; }
    memset(what, 0, times.n * sizeof *what);
    for (size_t i = 0; i < problem->n_items; i++) {
        if (problem->items[i].size_bytes == 0) { continue; }
        what[ebb__place_death(problem->period, &problem->items[i]) - times.low] |= DEATH;
        what[ebb__place_birth(problem->period, &problem->items[i]) - times.low] |= BIRTH;
    }
    uint32_t current = 0;
    bool died = false; /* in the current section */
    after[0] = 0;
    for (uint64_t t = 0; t < times.n; t++) {
        died = died || (what[t] & DEATH) != 0;
        if (died && (what[t] & BIRTH) != 0) {
            current++;
            died = false;
        }
        after[t + 1] = current;
    }
    for (size_t i = 0; i < problem->n_items; i++) {
        const ebb_place_item *item = &problem->items[i];
        sections->range[i] = (ebb_place_range){0, 1};
        if (item->size_bytes == 0) { continue; }
        sections->range[i].first = after[ebb__place_birth(problem->period, item) - times.low + 1];
        sections->range[i].last = after[ebb__place_death(problem->period, item) - times.low] + 1;
    }
    sections->n = current + 1;
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status cut(const ebb_place_problem *problem, ebb_sections *sections) {
    const span times = find_span(problem);
    ebb_bump scratch;
    ebb__bump_init(&scratch, sections->mem);
    const ebb_status st = times.n / MAX_TIMES <= problem->n_items ? cut_counted(problem, times, &scratch, sections)
                                                                  : cut_sorted(problem, &scratch, sections);
    ebb__bump_fini(&scratch);
    return st;
}

/* Most bytes in one section: the sum itself fits. */
static ebb_status find_bound(ebb_sections *sections) {
    uint64_t *bytes = ebb__alloc(sections->mem, (size_t)sections->n + 1, sizeof *bytes);
    if (bytes == NULL) { return EBB_E_NO_MEMORY; }
    ebb__place_add_up(sections, bytes);
    sections->bound_bytes = 0;
    for (uint32_t t = 0; t < sections->n; t++) {
        EBB_ASSERT(bytes[t] < (uint64_t)1 << 63);
        sections->bound_bytes = ebb_max_u64(sections->bound_bytes, bytes[t]);
    }
    ebb__free(sections->mem, bytes);
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
    EBB_TRY(cut(problem, &sections));
    EBB_TRY(find_bound(&sections));
    *sections_out = sections;
    return EBB_OK;
}

bool ebb__place_lives_always(const ebb_sections *sections, size_t item) {
    const ebb_place_range range = sections->range[item];
    EBB_ASSERT(item < sections->n_items && range.last <= sections->n);
    return range.first == range.last || (range.first == 0 && range.last == sections->n);
}

uint32_t ebb__place_n_sections(const ebb_sections *sections, size_t item) {
    const ebb_place_range range = sections->range[item];
    EBB_ASSERT(item < sections->n_items && range.first < sections->n && range.last <= sections->n);
    return ebb__place_length(sections->n, range);
}

void ebb__place_add_up(const ebb_sections *sections, uint64_t *bytes) {
    memset(bytes, 0, ((size_t)sections->n + 1) * sizeof *bytes);
    for (size_t i = 0; i < sections->n_items; i++) { /* differences, modulo 2^64 */
        const ebb_place_range range = sections->range[i];
        if (sections->rounded[i] == 0) { continue; }
        EBB_ASSERT(range.first < sections->n && range.last <= sections->n);
        bytes[range.first] += sections->rounded[i];
        bytes[range.last] -= sections->rounded[i];
        if (range.first >= range.last) { bytes[0] += sections->rounded[i]; }
    }
    for (uint32_t t = 1; t < sections->n; t++) { bytes[t] += bytes[t - 1]; }
}

bool ebb__place_is_circle(const ebb_sections *sections) {
    for (size_t i = 0; i < sections->n_items; i++) {
        EBB_ASSERT(sections->rounded[i] > 0);
        if (sections->range[i].first >= sections->range[i].last) { return true; }
    }
    return false;
}
