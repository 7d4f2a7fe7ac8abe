/* SPDX-License-Identifier: Apache-2.0
 *
 * What a placement is, said again as plainly as can be: every pair of items at every time. And random problems for it.
 * It shares no code with the library's checker or any solver.
 */
#ifndef EBB_TESTS_PLACE_SLOW_H
#define EBB_TESTS_PLACE_SLOW_H

#include "ebb/place.h"
#include "support.h"

#define SLOW_MAX_ITEMS 60u
#define SLOW_MAX_GAPS 4u /* an item */

static inline uint64_t slow_up(uint64_t x, uint64_t alignment) {
    return x % alignment == 0 ? x : x + alignment - x % alignment;
}

/* Whether item i lives in the moment that begins at time t. */
static inline bool slow_lives(const ebb_place_problem *p, size_t i, uint64_t t) {
    const uint64_t first = p->items[i].first, last = p->items[i].last;
    if (p->period == 0 || first < last) { return first <= t && t < last; }
    return t >= first % p->period || t < last;
}

/* Its own bytes that it holds then; empty: low == high. */
static inline void slow_window(const ebb_place_problem *p, size_t i, uint64_t t, uint64_t *low, uint64_t *high) {
    *low = *high = 0;
    if (p->items[i].size_bytes == 0 || !slow_lives(p, i, t)) { return; }
    *high = slow_up(p->items[i].size_bytes, p->alignment_bytes);
    for (size_t g = 0; g < p->n_gaps; g++) {
        const ebb_place_gap *gap = &p->gaps[g];
        if (gap->item != i || t < gap->first || t >= gap->last) { continue; }
        *low = gap->low_bytes - gap->low_bytes % p->alignment_bytes;
        *high = slow_up(gap->high_bytes, p->alignment_bytes);
        if (gap->low_bytes == gap->high_bytes) { *low = *high = 0; }
    }
}

/* The end of what it holds then, not rounded up. */
static inline uint64_t slow_top(const ebb_place_problem *p, size_t i, uint64_t t) {
    for (size_t g = 0; g < p->n_gaps; g++) {
        const ebb_place_gap *gap = &p->gaps[g];
        if (gap->item == i && gap->first <= t && t < gap->last) { return gap->high_bytes; }
    }
    return p->items[i].size_bytes;
}

static inline bool slow_collide(const ebb_place_problem *p, const uint64_t *offsets, size_t i, size_t j, uint64_t t) {
    uint64_t low_i, high_i, low_j, high_j;
    slow_window(p, i, t, &low_i, &high_i);
    slow_window(p, j, t, &low_j, &high_j);
    if (low_i == high_i || low_j == high_j) { return false; }
    return offsets[i] + low_i < offsets[j] + high_j && offsets[j] + low_j < offsets[i] + high_i;
}

static inline bool slow_is_offset(const ebb_place_problem *p, size_t i, uint64_t offset) {
    if (offset % p->alignment_bytes != 0) { return false; }
    if (p->alignments != NULL && offset % p->alignments[i] != 0) { return false; }
    return p->fixed == NULL || p->fixed[i] == EBB_PLACE_ANYWHERE || p->fixed[i] == offset;
}

/* Every pair at every time below n_times; the peak, if it is a placement. */
static inline bool slow_is_placement(const ebb_place_problem *p, const uint64_t *offsets, uint64_t n_times,
                                     uint64_t *peak_out) {
    *peak_out = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (!slow_is_offset(p, i, offsets[i])) { return false; }
    }
    for (uint64_t t = 0; t < n_times; t++) {
        uint64_t start[SLOW_MAX_ITEMS], end[SLOW_MAX_ITEMS];
        for (size_t i = 0; i < p->n_items; i++) {
            slow_window(p, i, t, &start[i], &end[i]);
            if (start[i] == end[i]) { continue; }
            start[i] += offsets[i];
            end[i] += offsets[i];
            *peak_out = ebb_max_u64(*peak_out, offsets[i] + slow_top(p, i, t));
            for (size_t j = 0; j < i; j++) {
                if (start[j] < end[j] && start[i] < end[j] && start[j] < end[i]) { return false; }
            }
        }
    }
    return true;
}

/* Most bytes at a time, and the highest end of what is fixed. */
static inline uint64_t slow_bound(const ebb_place_problem *p, uint64_t n_times) {
    uint64_t bound = 0, low, high;
    for (uint64_t t = 0; t < n_times; t++) {
        uint64_t held = 0;
        for (size_t i = 0; i < p->n_items; i++) {
            slow_window(p, i, t, &low, &high);
            held += high - low;
            if (low < high && p->fixed != NULL && p->fixed[i] != EBB_PLACE_ANYWHERE) {
                bound = ebb_max_u64(bound, p->fixed[i] + high);
            }
        }
        bound = ebb_max_u64(bound, held);
    }
    return bound;
}

/* ---- random problems -------------------------------------------------------------------------- */

enum { SLOW_ALIGNED = 1, SLOW_FIXED = 2, SLOW_GAPS = 4, SLOW_HUGE = 8, SLOW_N_KINDS = 16 };
#define SLOW_HUGE_SHIFT 45u /* all sizes and offsets of a huge problem come near 2^63 */

typedef struct slow_problem {
    ebb_place_problem p;
    uint64_t n_times;
    ebb_place_item items[SLOW_MAX_ITEMS];
    uint64_t alignments[SLOW_MAX_ITEMS], fixed[SLOW_MAX_ITEMS];
    ebb_place_gap gaps[SLOW_MAX_ITEMS * SLOW_MAX_GAPS];
} slow_problem;

static inline void slow_draw_gaps(slow_problem *s, ebb_rng *rng) {
    for (size_t i = 0; i < s->p.n_items; i++) {
        const ebb_place_item *item = &s->items[i];
        uint64_t time = item->first;
        for (unsigned k = 0; k < SLOW_MAX_GAPS && item->first < item->last && ebb__rng_below(rng, 2) == 0; k++) {
            time += ebb__rng_below(rng, 4);
            ebb_place_gap gap = {.item = i, .first = time, .last = time + 1 + ebb__rng_below(rng, 6)};
            if (gap.last > item->last) { break; }
            if (ebb__rng_below(rng, 2) == 0) {
                gap.low_bytes = ebb__rng_below(rng, item->size_bytes + 1);
                gap.high_bytes = gap.low_bytes + ebb__rng_below(rng, item->size_bytes - gap.low_bytes + 1);
            }
            s->gaps[s->p.n_gaps++] = gap;
            time = gap.last;
        }
    }
    s->p.gaps = s->gaps;
}

/* Some offsets, as long as they do not collide. */
static inline void slow_draw_fixed(slow_problem *s, ebb_rng *rng, uint64_t max_bytes) {
    for (size_t i = 0; i < s->p.n_items; i++) {
        s->fixed[i] = EBB_PLACE_ANYWHERE;
        if (ebb__rng_below(rng, 4) != 0) { continue; }
        const uint64_t own = s->p.alignments != NULL ? s->alignments[i] : 1;
        const uint64_t unit = s->p.alignment_bytes * own;
        s->fixed[i] = ebb__rng_below(rng, ebb_max_u64(4 * max_bytes, 4 * unit)) / unit * unit;
        for (size_t j = 0; j < i; j++) {
            for (uint64_t t = 0; t < s->n_times && s->fixed[j] != EBB_PLACE_ANYWHERE; t++) {
                if (!slow_collide(&s->p, s->fixed, i, j, t)) { continue; }
                s->fixed[i] = EBB_PLACE_ANYWHERE;
                j = i; /* ends the loop around this one */
                break;
            }
        }
    }
    s->p.fixed = s->fixed;
}

/* Of these kinds; cyclic or not. */
static inline void slow_draw(slow_problem *s, ebb_rng *rng, unsigned kinds) {
    static const uint64_t alignments[] = {1, 1, 2, 3, 6, 7, 8, 64, 100, 512};
    s->p = EBB_PLACE_PROBLEM_INIT;
    s->n_times = 1 + ebb__rng_below(rng, 40);
    s->p.items = s->items;
    s->p.n_items = ebb__rng_below(rng, SLOW_MAX_ITEMS + 1);
    s->p.alignment_bytes = (uint64_t)1 << ebb__rng_below(rng, 8);
    s->p.period = ebb__rng_below(rng, 2) * s->n_times;
    const unsigned shift = (kinds & SLOW_HUGE) != 0 ? SLOW_HUGE_SHIFT : 0;
    const uint64_t max_bytes = (uint64_t)1 << (2 + ebb__rng_below(rng, 10) + shift);
    const uint64_t max_life = 1 + ebb__rng_below(rng, s->n_times);
    for (size_t i = 0; i < s->p.n_items; i++) {
        s->items[i].size_bytes = ebb__rng_below(rng, 20) == 0 ? 0 : 1 + ebb__rng_below(rng, max_bytes);
        s->items[i].first = ebb__rng_below(rng, s->n_times);
        s->items[i].last = s->items[i].first + 1 + ebb__rng_below(rng, max_life);
        if (s->p.period == 0) { s->items[i].last = ebb_min_u64(s->items[i].last, s->n_times); }
        if (s->p.period != 0 && s->items[i].last > s->n_times) { s->items[i].last %= s->n_times; }
        s->alignments[i] = alignments[ebb__rng_below(rng, sizeof alignments / sizeof alignments[0])];
    }
    if ((kinds & SLOW_ALIGNED) != 0) { s->p.alignments = s->alignments; }
    if ((kinds & SLOW_GAPS) != 0) { slow_draw_gaps(s, rng); }
    if ((kinds & SLOW_FIXED) != 0) { slow_draw_fixed(s, rng, max_bytes); }
}

#endif
