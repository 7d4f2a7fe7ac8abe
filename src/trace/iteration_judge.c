/* SPDX-License-Identifier: Apache-2.0
 *
 * From stretches that are one iteration each to the answer: the usual iteration is the one that comes most often (the
 * first of those that come as often), or if no two are the same, one of the length that comes most often; each is
 * compared with it, and the trace is cut into parts. In front and at the end only usual ones count, or if no two are
 * the same, those that have half of their events in common with it.
 */
#include "trace/iteration_priv.h"

#define MIN_REGULARITY 0.5

static ebb_stretch stretch_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return (ebb_stretch){ebb__iteration_at_of(finder, part->first_event),
                         ebb__iteration_at_of(finder, part->first_event + part->n_events)};
}

static uint64_t hash_of(const ebb_iteration_finder *finder, const uint32_t *symbols, const ebb_iteration_part *part) {
    const ebb_stretch at = stretch_of(finder, part);
    const uint64_t h = ebb__hash(EBB_HASH_INIT, &part->n_events, sizeof part->n_events);
    if (at.first == at.last) { return h; } /* marks with no event of a block between them; there may be no symbols */
    return ebb__hash(h, symbols + at.first, (size_t)(at.last - at.first) * sizeof(uint32_t));
}

/* The index of the first of those keys that come most often, and how often. */
static ebb_status find_usual(const ebb_mem *mem, const uint64_t *key, size_t n, size_t *usual_out,
                             size_t *n_usual_out) {
    EBB_ASSERT(n > 0);
    uint32_t *order = ebb__alloc(mem, n, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { order[i] = (uint32_t)i; }
    ebb_status st = ebb__sort_by_key(mem, order, n, key);
    size_t usual = 0, n_usual = 0;
    for (size_t i = 0, end = 0; st == EBB_OK && i < n; i = end) {
        for (end = i + 1; end < n && key[order[end]] == key[order[i]];) { end++; }
        if (end - i > n_usual || (end - i == n_usual && order[i] < usual)) {
            n_usual = end - i;
            usual = order[i]; /* the sort is stable: the first */
        }
    }
    ebb__free(mem, order);
    if (st != EBB_OK) { return st; }
    *usual_out = usual;
    *n_usual_out = n_usual;
    return EBB_OK;
}

static void compare_with(const ebb_iteration_finder *finder, const uint32_t *symbols, ebb_iteration_part *parts,
                         size_t n, size_t usual) {
    const ebb_stretch reference = stretch_of(finder, &parts[usual]);
    const uint64_t wanted = hash_of(finder, symbols, &parts[usual]);
    for (size_t i = 0; i < n; i++) {
        const ebb_stretch at = stretch_of(finder, &parts[i]);
        const uint32_t n_longer = (uint32_t)ebb_max_u64(at.last - at.first, reference.last - reference.first);
        parts[i].regularity = 1.0;
        if (hash_of(finder, symbols, &parts[i]) == wanted || n_longer == 0) { continue; }
        parts[i].regularity = ebb__iteration_n_common(symbols, reference, at) / (double)n_longer;
    }
}

static ebb_status compare(const ebb_iteration_finder *finder, const uint32_t *symbols, ebb_iteration_part *parts,
                          size_t n, size_t *usual_out, size_t *n_usual_out) {
    uint64_t *key = ebb__alloc(finder->mem, n, sizeof *key);
    size_t usual = 0, n_usual = 0, n_as_long = 0;
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { key[i] = hash_of(finder, symbols, &parts[i]); }
    ebb_status st = find_usual(finder->mem, key, n, &usual, &n_usual);
    if (st == EBB_OK && n_usual == 1) {
        for (size_t i = 0; i < n; i++) { key[i] = parts[i].n_events; }
        st = find_usual(finder->mem, key, n, &usual, &n_as_long);
    }
    ebb__free(finder->mem, key);
    if (st != EBB_OK) { return st; }
    compare_with(finder, symbols, parts, n, usual);
    *usual_out = usual;
    *n_usual_out = n_usual;
    return EBB_OK;
}

/* A part of another kind up to this event, if there are events between. */
static ebb_status fill_up(ebb_iteration_finder *finder, ebb_iteration_part_kind kind, uint64_t *event,
                          uint64_t to_event) {
    EBB_ASSERT(*event <= to_event);
    if (*event == to_event) { return EBB_OK; }
    ebb_iteration_part part = {.kind = kind, .first_event = *event, .n_events = to_event - *event};
    *event = to_event;
    return EBB_PUSH(finder->mem, &finder->parts, part);
}

static ebb_status cut(ebb_iteration_finder *finder, const ebb_iteration_part *iterations, size_t n) {
    uint64_t event = 0;
    for (size_t i = 0; i < n; i++) {
        EBB_TRY(fill_up(finder, i == 0 ? EBB_ITERATION_PART_BEFORE : EBB_ITERATION_PART_BETWEEN, &event,
                        iterations[i].first_event));
        EBB_TRY(EBB_PUSH(finder->mem, &finder->parts, iterations[i]));
        event += iterations[i].n_events;
    }
    return fill_up(finder, EBB_ITERATION_PART_AFTER, &event, finder->symbols.n + finder->passed.n);
}

static void sum_up(const ebb_iteration_part *iterations, size_t n, size_t usual, ebb_iteration *iteration_out) {
    const ebb_iteration_part *last = &iterations[n - 1];
    const uint64_t n_spanned = last->first_event + last->n_events - iterations[0].first_event;
    double regularity = 0.0, sure = 1.0;
    uint64_t n_events = 0;
    for (size_t i = 0; i < n; i++) {
        regularity += iterations[i].regularity / (double)n;
        n_events += iterations[i].n_events;
        if (i > 0 && i < 64) { sure /= 2.0; }
    }
    iteration_out->found = true;
    iteration_out->first_event = iterations[0].first_event;
    iteration_out->length_events = iterations[usual].n_events;
    iteration_out->count = n;
    iteration_out->regularity = regularity;
    iteration_out->confidence = regularity * (1.0 - sure) * (double)n_events / (double)n_spanned;
}

/* The symbols, with frees in a row in one order within each iteration. */
static ebb_status copy_sorted(const ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                              uint32_t **symbols_out) {
    uint32_t *symbols = ebb__alloc(finder->mem, finder->symbols.n, sizeof *symbols);
    if (symbols == NULL) { return EBB_E_NO_MEMORY; }
    if (finder->symbols.n > 0) { memcpy(symbols, finder->symbols.data, finder->symbols.n * sizeof *symbols); }
    for (size_t i = 0; i < iterations->n; i++) {
        ebb__iteration_sort_frees(symbols, stretch_of(finder, &iterations->data[i]));
    }
    *symbols_out = symbols;
    return EBB_OK;
}

ebb_status ebb__iteration_judge(ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                                ebb_iteration_source source, ebb_iteration *iteration_out) {
    const bool is_marked = source == EBB_ITERATION_FROM_MARKS;
    ebb_iteration_part *parts = iterations->data;
    size_t usual = 0, n_usual = 0, first = 0, last = iterations->n;
    uint32_t *symbols = NULL;
    EBB_TRY(copy_sorted(finder, iterations, &symbols));
    const ebb_status st = compare(finder, symbols, parts, last, &usual, &n_usual);
    ebb__free(finder->mem, symbols);
    EBB_TRY(st);
    const double wanted = is_marked ? 0.0 : n_usual > 1 ? 1.0 : MIN_REGULARITY;
    while (first < usual && parts[first].regularity < wanted) { first++; }
    while (last > usual + 1 && parts[last - 1].regularity < wanted) { last--; }
    finder->parts.n = 0;
    EBB_TRY(cut(finder, parts + first, last - first));
    sum_up(parts + first, last - first, usual - first, iteration_out);
    iteration_out->source = source;
    if (is_marked) { iteration_out->confidence = 1.0; }
    return EBB_OK;
}
