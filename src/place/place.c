/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement by a few greedy orders, the best of which is kept.
 *
 * An order is gone through once; each item goes into a gap among those placed before it that share a section
 * with it (taken.c finds it). Largest first is the strongest single order on training's items, where a few
 * large activations make the peak and small ones fill what they leave; longest first wins where lifetimes
 * nest; in order of birth is what an allocator would do that knows each item's end. Orders are tried until
 * one meets the lower bound or the work allowed is done; work is counted, not timed, so that the same problem
 * gives the same answer anywhere.
 *
 * Items that live in all sections come first of all, at the bottom: whatever is placed, they could be moved
 * there without raising the peak, and what then is asked about starts above them.
 */
#include "place/place_priv.h"

#define MAX_WORK ((uint64_t)40 * 1000 * 1000) /* spans looked at, after which no further order is begun */

typedef enum order_key { BY_SIZE, BY_LIFETIME, BY_AREA, BY_BIRTH } order_key;

static const struct {
    order_key key;
    ebb_place_fit fit;
} orders[] = {
    {BY_SIZE, EBB_PLACE_TIGHTEST}, {BY_SIZE, EBB_PLACE_LOWEST},    {BY_LIFETIME, EBB_PLACE_LOWEST},
    {BY_AREA, EBB_PLACE_LOWEST},   {BY_BIRTH, EBB_PLACE_TIGHTEST},
};

typedef struct solver {
    const ebb_place_problem *problem;
    ebb_sections sections;
    uint64_t *key;       /* [n_items] */
    uint32_t *idx;       /* [n_items]: the order */
    uint64_t *offsets;   /* [n_items]: of the order at hand */
    uint64_t *best;      /* [n_items]: of the best order so far */
    uint64_t base_bytes; /* what lives in all sections */
    uint64_t work;
} solver;

static uint64_t n_sections_of(const solver *s, size_t item) {
    ebb_place_range range = s->sections.range[item];
    return range.first < range.last ? range.last - range.first : s->sections.n - range.first + range.last;
}

static bool lives_always(const solver *s, size_t item) {
    return n_sections_of(s, item) == s->sections.n;
}

/* Larger keys come first. */
static uint64_t key_of(const solver *s, size_t item, order_key key) {
    const uint64_t size_bytes = s->sections.rounded[item], n_sections = n_sections_of(s, item);
    uint64_t area = 0;
    switch (key) {
    case BY_SIZE: return size_bytes;
    case BY_LIFETIME: return n_sections;
    case BY_BIRTH: return UINT64_MAX - s->sections.range[item].first;
    case BY_AREA: return ebb_mul_u64(size_bytes, n_sections, &area) ? area : UINT64_MAX;
    }
    return 0;
}

static ebb_status sort_by(solver *s, order_key key) {
    const size_t n = s->problem->n_items;
    for (size_t i = 0; i < n; i++) { s->key[i] = UINT64_MAX - key_of(s, i, key); }
    return ebb__sort_by_key(s->problem->mem, s->idx, n, s->key);
}

/* Ties: larger, then longer, then first in the problem. */
static ebb_status make_order(solver *s, order_key key) {
    for (size_t i = 0; i < s->problem->n_items; i++) { s->idx[i] = (uint32_t)i; }
    if (key != BY_LIFETIME) { EBB_TRY(sort_by(s, BY_LIFETIME)); }
    if (key != BY_SIZE) { EBB_TRY(sort_by(s, BY_SIZE)); }
    return sort_by(s, key);
}

/* Place all items in the order at hand; *peak_out is the end of the highest. */
static ebb_status place_in_order(solver *s, ebb_place_fit fit, ebb_bump *bump, uint64_t *peak_out) {
    ebb_taken *taken = NULL;
    EBB_TRY(ebb__taken_create(bump, s->sections.n, &taken));
    uint64_t stacked_bytes = 0, peak_bytes = s->base_bytes;
    for (size_t i = 0; i < s->problem->n_items; i++) {
        const uint32_t item = s->idx[i];
        const uint64_t size_bytes = s->sections.rounded[item];
        s->offsets[item] = 0;
        if (size_bytes == 0) { continue; }
        if (lives_always(s, item)) {
            s->offsets[item] = stacked_bytes;
            stacked_bytes += size_bytes;
            continue;
        }
        uint64_t offset = ebb__taken_find(taken, s->sections.range[item], size_bytes, s->base_bytes, fit);
        EBB_TRY(ebb__taken_add(taken, s->sections.range[item], offset, size_bytes));
        s->offsets[item] = offset;
        peak_bytes = ebb_max_u64(peak_bytes, offset + size_bytes);
    }
    EBB_ASSERT(stacked_bytes == s->base_bytes);
    s->work += ebb__taken_work(taken);
    *peak_out = peak_bytes;
    return EBB_OK;
}

/* Leaves the best offsets in s->best. */
static ebb_status solve(solver *s, uint64_t *peak_out) {
    uint64_t best_bytes = UINT64_MAX;
    for (size_t o = 0; o < sizeof orders / sizeof orders[0]; o++) {
        if (best_bytes == s->sections.bound_bytes || s->work > MAX_WORK) { break; }
        EBB_TRY(make_order(s, orders[o].key));
        ebb_bump bump;
        ebb__bump_init(&bump, s->problem->mem);
        uint64_t peak_bytes = 0;
        ebb_status st = place_in_order(s, orders[o].fit, &bump, &peak_bytes);
        ebb__bump_fini(&bump);
        if (st != EBB_OK) { return st; }
        EBB_ASSERT(peak_bytes >= s->sections.bound_bytes);
        if (peak_bytes < best_bytes) {
            best_bytes = peak_bytes;
            uint64_t *swap = s->best;
            s->best = s->offsets;
            s->offsets = swap;
        }
    }
    *peak_out = best_bytes;
    return EBB_OK;
}

static ebb_status prepare(solver *s, ebb_bump *bump) {
    const size_t n = s->problem->n_items;
    EBB_TRY(ebb__place_cut(s->problem, bump, &s->sections));
    s->key = ebb__bump_alloc(bump, n, sizeof *s->key);
    s->idx = ebb__bump_alloc(bump, n, sizeof *s->idx);
    s->offsets = ebb__bump_alloc(bump, n, sizeof *s->offsets);
    s->best = ebb__bump_alloc(bump, n, sizeof *s->best);
    if (s->key == NULL || s->idx == NULL || s->offsets == NULL || s->best == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        if (s->sections.rounded[i] > 0 && lives_always(s, i)) { s->base_bytes += s->sections.rounded[i]; }
    }
    return EBB_OK;
}

ebb_status ebb_place_solve(const ebb_place_problem *problem, uint64_t *offsets_out, uint64_t *peak_bytes_out) {
    ebb_bump bump;
    ebb__bump_init(&bump, problem->mem);
    solver s = {.problem = problem};
    uint64_t peak_bytes = 0;
    ebb_status st = prepare(&s, &bump);
    if (st == EBB_OK) { st = solve(&s, &peak_bytes); }
    if (st == EBB_OK) {
        if (problem->n_items > 0) { memcpy(offsets_out, s.best, problem->n_items * sizeof *offsets_out); }
        *peak_bytes_out = peak_bytes;
    }
    ebb__bump_fini(&bump);
    return st;
}
