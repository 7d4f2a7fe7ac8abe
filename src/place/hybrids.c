/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: sweeps around obstacles, with more and fewer of the largest items as obstacles, and neighbours' times of death
 * weighed more and less. What is best cannot be told beforehand, and a sweep is cheap.
 */
#include "place/search.h"

#define MAX_WRAPPING 4096u
#define MAX_LARGE 4096u
#define PROMISING 32u /* near the bound: by less than this part of it */

typedef struct hybrids {
    ebb_search *search;
    const ebb_compact *compact; /* as seen in this direction */
    uint32_t *by_size;          /* its items around the end, and the largest, first of all the former */
    uint32_t n_wrapping, n_by_size;
    uint32_t *obstacles;
    uint64_t *offsets;
    uint64_t end; /* of the work */
} hybrids;

/* Enough of the largest, largest first: those of so many orders of magnitude. */
static ebb_status list_large(hybrids *h, uint32_t n_wanted) {
    const ebb_sections *s = &h->compact->sections;
    size_t n_of_log[64] = {0}, n = 0;
    for (size_t i = 0; i < s->n_items; i++) {
        EBB_ASSERT(s->rounded[i] > 0);
        n_of_log[63 - __builtin_clzll(s->rounded[i])]++;
    }
    int log = 63;
    for (; log > 0 && n + n_of_log[log] < n_wanted; log--) { n += n_of_log[log]; }
    for (uint32_t i = 0; i < s->n_items; i++) {
        const ebb_place_range range = s->range[i];
        h->search->key[i] = range.first >= range.last ? 0 : UINT64_MAX - s->rounded[i];
        if (range.first >= range.last) {
            h->n_wrapping++;
        } else if (s->rounded[i] >> log == 0) {
            continue;
        }
        h->by_size[h->n_by_size++] = i;
    }
    EBB_ASSERT(h->n_wrapping <= h->n_by_size && h->n_by_size <= s->n_items);
    return ebb__sort_by_key(s->mem, h->by_size, h->n_by_size, h->search->key);
}

/* The first of by_size as obstacles, each as low as it can lie. */
static ebb_status place_obstacles(const hybrids *h, uint32_t n, ebb_bump *bump) {
    const ebb_sections *s = &h->compact->sections;
    ebb_taken *taken = NULL;
    EBB_ASSERT(n <= h->n_by_size && (n >= h->n_wrapping || n == h->n_by_size));
    EBB_TRY(ebb__taken_create(bump, s->n, &taken));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t item = h->by_size[i];
        const uint64_t size_bytes = s->rounded[item];
        h->obstacles[i] = item;
        h->search->key[item] = item;
        h->offsets[item] = ebb__taken_find(taken, s->range[item], size_bytes, 0, EBB_PLACE_LOWEST);
        EBB_TRY(ebb__taken_add(taken, s->range[item], h->offsets[item], size_bytes));
    }
    h->search->work += ebb__taken_work(taken);
    return ebb__sort_by_key(s->mem, h->obstacles, n, h->search->key);
}

typedef struct try {
    uint32_t n_large;
    uint64_t weight;
}
try;

static ebb_status try_hybrid(const hybrids *h, const try *t) {
    ebb_search *s = h->search;
    const uint32_t n_most = h->n_wrapping + t->n_large, n = n_most < h->n_by_size ? n_most : h->n_by_size;
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    const bool is_first = s->best.peak_bytes == UINT64_MAX; /* then it is gone through whatever it takes */
    const uint64_t max_work = is_first ? UINT64_MAX : ebb__search_left(s);
    const ebb_place_hybrid_options options = {.by_death = h->compact->by_death,
                                              .obstacles = h->obstacles,
                                              .n_obstacles = n,
                                              .weight = t->weight,
                                              .give_up_bytes = s->best.peak_bytes,
                                              .max_work = max_work};
    ebb_status st = place_obstacles(h, n, &bump);
    ebb__bump_fini(&bump);
    if (st == EBB_OK) {
        st = ebb__place_hybrid(&h->compact->sections, &options, h->offsets, &s->now.peak_bytes, &s->work);
    }
    return st;
}

static ebb_status try_all(const hybrids *h, const try *tries, size_t n_tries) {
    ebb_search *s = h->search;
    for (size_t i = 0; i < n_tries; i++) {
        if (s->best.peak_bytes != UINT64_MAX && ebb__search_is_over(s, h->end)) { return EBB_OK; }
        EBB_TRY(try_hybrid(h, &tries[i]));
        (void)ebb__search_keep(s);
    }
    return EBB_OK;
}

/* One that is good for most; of a great many items, more where it comes near. */
static ebb_status try_first(const hybrids *h) {
    static const try first = {64, 0}, more[] = {{1024, 0}, {256, 0}};
    ebb_search *s = h->search;
    EBB_TRY(try_all(h, &first, 1));
    if (!s->is_hasty || ebb__search_is_almost(s)) { return EBB_OK; }
    ebb__search_be_content(s);
    const bool is_promising = s->best.peak_bytes - s->sections->bound_bytes < s->sections->bound_bytes / PROMISING;
    return is_promising ? try_all(h, more, sizeof more / sizeof *more) : EBB_OK;
}

/* Where the smallest gap alone comes near the bound, more of it is tried first, else what weighs lives. */
static ebb_status try_some(const hybrids *h) {
    static const try smallest[] = {{1024, 0}, {16, 0}, {256, 0}, {0, 0}, {MAX_LARGE, 0}},
                     weighed[] = {{64, 5}, {0, 5}, {0, 3}, {16, 2}, {0, 10}, {256, 5}, {64, 2}};
    const ebb_search *s = h->search;
    if (s->n_hybrids == 1) { return try_first(h); }
    const bool is_near = ebb__search_is_near(s);
    if (is_near) { EBB_TRY(try_all(h, smallest, sizeof smallest / sizeof *smallest)); }
    EBB_TRY(try_all(h, weighed, sizeof weighed / sizeof *weighed));
    return try_all(h, smallest, is_near ? 0 : sizeof smallest / sizeof *smallest);
}

ebb_status ebb__search_hybrids(ebb_search *s) {
    const size_t n = s->sections->n_items;
    const uint64_t end = s->work + ebb__search_left(s) / 2;
    if (s->n_hybrids++ > 0 && ebb__search_is_over(s, end)) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    hybrids h = {.search = s, .compact = s->compact, .offsets = s->now.offsets};
    h.end = s->work + ebb__search_left(s) / 2;
    h.by_size = ebb__bump_alloc(&bump, n, sizeof *h.by_size);
    h.obstacles = ebb__bump_alloc(&bump, n, sizeof *h.obstacles);
    ebb_status st = h.by_size != NULL && h.obstacles != NULL ? list_large(&h, MAX_LARGE) : EBB_E_NO_MEMORY;
    s->now.is_order = false;
    if (st == EBB_OK && h.n_wrapping <= MAX_WRAPPING) { st = try_some(&h); }
    ebb__bump_fini(&bump);
    return st;
}
