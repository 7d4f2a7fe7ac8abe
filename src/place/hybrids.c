/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: sweeps around obstacles, with more and fewer of the largest items as obstacles, forward and backward through
 * time. Which number is best cannot be told beforehand, and a sweep is cheap.
 */
#include "place/search.h"

#define MAX_WRAPPING 4096u

typedef struct hybrids {
    ebb_search *search;
    const ebb_compact *compact; /* as seen in this direction */
    uint32_t *by_size;          /* its items around the end, and the largest, first of all the former */
    uint32_t n_wrapping, n_by_size;
    uint32_t *obstacles;
    uint64_t *offsets;
} hybrids;

/* Enough of the largest, largest first: those of so many orders of magnitude. */
static ebb_status list_large(hybrids *h, uint32_t n_wanted) {
    const ebb_sections *s = &h->compact->sections;
    size_t n_of_log[64] = {0}, n = 0;
    for (size_t i = 0; i < s->n_items; i++) { n_of_log[63 - __builtin_clzll(s->rounded[i])]++; }
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
    return ebb__sort_by_key(s->mem, h->by_size, h->n_by_size, h->search->key);
}

/* The first of by_size as obstacles, each as low as it can lie. */
static ebb_status place_obstacles(const hybrids *h, uint32_t n, ebb_bump *bump) {
    const ebb_sections *s = &h->compact->sections;
    ebb_taken *taken = NULL;
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

static ebb_status try_hybrid(const hybrids *h, uint32_t n_large) {
    ebb_search *s = h->search;
    const uint32_t n_most = h->n_wrapping + n_large, n = n_most < h->n_by_size ? n_most : h->n_by_size;
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    const ebb_place_hybrid_options options = {.by_death = h->compact->by_death,
                                              .obstacles = h->obstacles,
                                              .n_obstacles = n,
                                              .give_up_bytes = s->best.peak_bytes};
    ebb_status st = place_obstacles(h, n, &bump);
    if (st == EBB_OK) {
        st = ebb__place_hybrid(&h->compact->sections, &options, h->offsets, &s->now.peak_bytes, &s->work);
    }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__search_hybrids(ebb_search *s) {
    static const uint32_t n_large[] = {64, 256, 16, 1024, 0, 4096};
    const size_t n = s->sections->n_items, n_tries = sizeof n_large / sizeof n_large[0];
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    hybrids h = {.search = s, .compact = s->compact, .offsets = s->now.offsets};
    h.by_size = ebb__bump_alloc(&bump, n, sizeof *h.by_size);
    h.obstacles = ebb__bump_alloc(&bump, n, sizeof *h.obstacles);
    ebb_status st = h.by_size != NULL && h.obstacles != NULL ? list_large(&h, n_large[n_tries - 1]) : EBB_E_NO_MEMORY;
    s->now.is_order = false;
    for (size_t i = 0; st == EBB_OK && h.n_wrapping <= MAX_WRAPPING && i < n_tries; i++) {
        if (i > 0 && ebb__search_is_over(s, s->max_work / 2)) { break; }
        st = try_hybrid(&h, n_large[i]);
        if (st == EBB_OK) { (void)ebb__search_keep(s); }
    }
    ebb__bump_fini(&bump);
    return st;
}
