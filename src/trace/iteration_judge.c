/* SPDX-License-Identifier: Apache-2.0
 *
 * From stretches that are one iteration each to the answer: the usual iteration is the one that comes most often (the
 * first of those that come as often), or if no two are the same, one of the length that comes most often; each is
 * compared with it, and the trace is cut into parts. In front and at the end only usual ones count, or if no two are
 * the same, those that have half of their events in common with it.
 */
#include "trace/iteration_priv.h"

#define MIN_REGULARITY 0.5
#define MIN_TOLD 0.95   /* where updates are told, this regularity makes an iteration a usual one */
#define DOUBT_SHARE 4.0 /* of the doubt that each repetition leaves */

static ebb_stretch stretch_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return (ebb_stretch){ebb__iteration_at_of(finder, part->first_event),
                         ebb__iteration_at_of(finder, part->first_event + part->n_events)};
}

/* Of all but frees, which may be seen elsewhere. */
static uint64_t hash_of_work(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    const ebb_stretch of = stretch_of(finder, part);
    uint64_t hash = EBB_HASH_INIT;
    for (uint32_t at = of.first; at < of.last; at++) {
        const uint32_t *symbol = &finder->symbols.data[at];
        if (!ebb__symbol_is_free(*symbol)) { hash = ebb__hash(hash, symbol, sizeof *symbol); }
    }
    return hash;
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

/* Into work the hashes of what they do. The usual one has a length that comes most often, of those that do what is
 * done most often; else of all. */
static ebb_status compare(const ebb_iteration_finder *finder, const uint32_t *symbols, ebb_iteration_part *parts,
                          size_t n, uint64_t *work, size_t *usual_out, size_t *n_usual_out) {
    uint64_t *key = ebb__alloc(finder->mem, n, sizeof *key);
    size_t usual = 0, n_usual = 0, n_as_long = 0;
    if (key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { work[i] = hash_of_work(finder, &parts[i]); }
    ebb_status st = find_usual(finder->mem, work, n, &usual, &n_usual);
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        const bool counts = n_usual == 1 || work[i] == work[usual];
        key[i] = counts ? parts[i].n_events : UINT64_MAX - i;
    }
    if (st == EBB_OK) { st = find_usual(finder->mem, key, n, &usual, &n_as_long); }
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

double ebb__iteration_share(const ebb_iteration_part *iterations, size_t n) {
    EBB_ASSERT(n > 0);
    const ebb_iteration_part *last = &iterations[n - 1];
    const uint64_t n_spanned = last->first_event + last->n_events - iterations[0].first_event;
    uint64_t n_events = 0;
    for (size_t i = 0; i < n; i++) { n_events += iterations[i].n_events; }
    EBB_ASSERT(n_events > 0 && n_events <= n_spanned);
    return (double)n_events / (double)n_spanned;
}

double ebb__iteration_doubt(uint64_t count) {
    double doubt = 1.0;
    for (uint64_t i = 1; i < count && i < 32; i++) { doubt /= DOUBT_SHARE; }
    return doubt;
}

static void sum_up(const ebb_iteration_part *iterations, size_t n, size_t usual, ebb_iteration *iteration_out) {
    double regularity = 0.0;
    for (size_t i = 0; i < n; i++) { regularity += iterations[i].regularity; }
    const double share = ebb__iteration_share(iterations, n);
    iteration_out->found = true;
    iteration_out->first_event = iterations[0].first_event;
    iteration_out->length_events = iterations[usual].n_events;
    iteration_out->count = n;
    iteration_out->regularity = regularity / (double)n;
    iteration_out->confidence =
        iteration_out->regularity * (1.0 - ebb__iteration_doubt(n)) * (share < 0.5 ? 2.0 * share : 1.0);
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

typedef struct judgement {
    const ebb_iteration_parts *parts;
    const uint64_t *work;
    size_t usual;
    bool has_usual;
    bool is_told; /* by updates */
} judgement;

static bool counts(const judgement *j, size_t i) {
    const double regularity = j->parts->data[i].regularity;
    if (!j->has_usual) { return regularity >= MIN_REGULARITY; }
    return j->work[i] == j->work[j->usual] || (j->is_told && regularity >= MIN_TOLD);
}

/* The iterations without those in front and at the end that do something else than the usual one, or if no two do the
 * same, that have less than half of their events in common with it. */
static ebb_stretch trim(const judgement *j) {
    ebb_stretch inner = {0, (uint32_t)j->parts->n};
    EBB_ASSERT(j->usual < j->parts->n);
    for (; !counts(j, inner.first); inner.first++) {}
    for (; !counts(j, inner.last - 1); inner.last--) {}
    EBB_ASSERT(inner.first <= j->usual && j->usual < inner.last);
    return inner;
}

ebb_status ebb__iteration_judge(ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                                ebb_iteration_source source, ebb_iteration *iteration_out) {
    const bool is_marked = source == EBB_ITERATION_FROM_MARKS;
    const ebb_mem *mem = finder->mem;
    ebb_iteration_part *parts = iterations->data;
    size_t usual = 0, n_usual = 0;
    ebb_stretch inner = {0, (uint32_t)iterations->n};
    uint32_t *symbols = NULL;
    uint64_t *work = ebb__alloc(mem, iterations->n, sizeof *work);
    ebb_status st = work != NULL ? copy_sorted(finder, iterations, &symbols) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = compare(finder, symbols, parts, iterations->n, work, &usual, &n_usual); }
    if (st == EBB_OK && !is_marked) {
        inner = trim(&(judgement){.parts = iterations,
                                  .work = work,
                                  .usual = usual,
                                  .has_usual = n_usual > 1,
                                  .is_told = source == EBB_ITERATION_FROM_ANNOTATIONS});
    }
    ebb__free(mem, symbols);
    ebb__free(mem, work);
    EBB_TRY(st);
    finder->parts.n = 0;
    if (!is_marked && inner.last - inner.first < 2) { return EBB_OK; } /* what comes once is no repetition */
    EBB_TRY(cut(finder, parts + inner.first, inner.last - inner.first));
    sum_up(parts + inner.first, inner.last - inner.first, usual - inner.first, iteration_out);
    iteration_out->source = source;
    if (is_marked) { iteration_out->confidence = 1.0; }
    return EBB_OK;
}
