/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage: orders, gone through once. Each item goes into a gap among those placed before it that share a section with it
 * (taken.c finds it). Largest first is the strongest single order on training's items, where a few large activations
 * make the peak and small ones fill what they leave; longest first wins where lifetimes nest; in order of birth is what
 * an allocator would do that knows each item's end.
 *
 * Repair puts the items that stick out above the lower bound first and places all again, over and over: they then
 * displace those that are easily placed elsewhere.
 *
 * An order under which the gaps become too many is given up early, and one that is no better than the best so far when
 * that shows.
 */
#include "place/search.h"

#define MAX_FAILED_REPAIRS 40u /* in a row */
#define FREE_WORK ((uint64_t)2 * 1000 * 1000)
#define PARTS 4u             /* of all work, of which an order may take one */
#define MAX_WORK_A_LEVEL 12u /* an item */

static const ebb_order orders[] = {
    {{EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_TIGHTEST, 0},
    {{EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0},
    {{EBB_BY_LIFETIME, EBB_BY_SIZE}, EBB_PLACE_LOWEST, 0},
    {{EBB_BY_BIRTH, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_TIGHTEST, 0},
    {{EBB_BY_BIRTH, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_TIGHTEST, 64},
    {{EBB_BY_BIRTH, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_TIGHTEST, 256},
    {{EBB_BY_BIRTH, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_TIGHTEST, 1024},
    {{EBB_BY_AREA, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0},
};

static uint64_t max_work_an_item(const ebb_search *s) {
    uint64_t work = MAX_WORK_A_LEVEL;
    for (uint32_t m = s->sections->n; m > 0; m /= 2) { work += MAX_WORK_A_LEVEL; }
    return work;
}

bool ebb__search_is_large(const ebb_search *s, unsigned parts) {
    return s->sections->n_items > s->max_work / parts / max_work_an_item(s);
}

/* The peak of what is placed already. */
static uint64_t peak_before(const ebb_search *s, size_t first) {
    uint64_t peak_bytes = 0;
    for (size_t i = 0; i < first; i++) {
        const uint32_t item = s->now.idx[i];
        peak_bytes = ebb_max_u64(peak_bytes, s->now.offsets[item] + s->sections->rounded[item]);
    }
    return peak_bytes;
}

ebb_status ebb__search_place_from(ebb_search *s, ebb_taken *taken, size_t first, uint64_t give_up_bytes,
                                  uint64_t free_work) {
    const uint64_t max_work = s->max_work > s->work ? s->max_work - s->work : 0;
    const uint64_t an_item = max_work_an_item(s);
    const size_t n = s->sections->n_items;
    EBB_ASSERT(first <= n);
    uint64_t peak_bytes = peak_before(s, first);
    size_t i = first;
    for (; i < n && peak_bytes < give_up_bytes; i++) {
        const uint32_t item = s->now.idx[i];
        EBB_ASSERT(item < n && s->sections->rounded[item] > 0);
        const uint64_t size_bytes = s->sections->rounded[item];
        const uint64_t work = ebb__taken_work(taken);
        if (work > max_work || (work > free_work && work / (i + 1) > an_item)) { break; }
        const uint64_t offset = ebb__taken_find(taken, s->sections->range[item], size_bytes, 0, s->now.fit);
        EBB_TRY(ebb__taken_add(taken, s->sections->range[item], offset, size_bytes));
        s->now.offsets[item] = offset;
        peak_bytes = ebb_max_u64(peak_bytes, offset + size_bytes);
    }
    const bool is_stuck = peak_bytes >= give_up_bytes;
    EBB_ASSERT(i < n || is_stuck || peak_bytes >= s->sections->bound_bytes);
    s->now.is_order = true;
    s->now.peak_bytes = i == n && !is_stuck ? peak_bytes : UINT64_MAX;
    s->now.stuck = is_stuck && i > first ? (uint32_t)i - 1 : (uint32_t)n;
    s->work += ebb__taken_work(taken);
    return EBB_OK;
}

ebb_status ebb__search_place(ebb_search *s, uint64_t give_up_bytes, uint64_t free_work) {
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    ebb_taken *taken = NULL;
    ebb_status st = ebb__taken_create(&bump, s->sections->n, &taken);
    if (st == EBB_OK) { st = ebb__search_place_from(s, taken, 0, give_up_bytes, free_work); }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__search_orders(ebb_search *s) {
    if (ebb__search_is_large(s, PARTS)) { return EBB_OK; }
    for (size_t o = 0; o < sizeof orders / sizeof orders[0] && !ebb__search_is_over(s, s->max_work); o++) {
        EBB_TRY(ebb__search_sort(s, &orders[o]));
        EBB_TRY(ebb__search_place(s, s->best.peak_bytes, FREE_WORK));
        (void)ebb__search_keep(s);
    }
    return EBB_OK;
}

ebb_status ebb__search_settle(ebb_search *s) {
    const uint64_t before_bytes = s->now.peak_bytes;
    EBB_ASSERT(before_bytes != UINT64_MAX);
    for (size_t i = 0; i < s->sections->n_items; i++) {
        s->now.idx[i] = (uint32_t)i;
        s->key[i] = s->now.offsets[i];
    }
    EBB_TRY(ebb__sort_by_key(s->job->mem, s->now.idx, s->sections->n_items, s->key));
    s->now.fit = EBB_PLACE_LOWEST;
    EBB_TRY(ebb__search_place(s, UINT64_MAX, FREE_WORK));
    EBB_ASSERT(s->now.peak_bytes <= before_bytes || s->now.peak_bytes == UINT64_MAX);
    (void)ebb__search_keep(s);
    return EBB_OK;
}

/* What sticks out above the lower bound goes first, in the order in which it was. */
static ebb_status sort_repaired(ebb_search *s) {
    for (size_t i = 0; i < s->sections->n_items; i++) {
        s->key[i] = s->now.offsets[i] + s->sections->rounded[i] > s->sections->bound_bytes ? 0 : 1;
    }
    return ebb__sort_by_key(s->job->mem, s->now.idx, s->sections->n_items, s->key);
}

ebb_status ebb__search_repair(ebb_search *s) {
    const uint64_t end = s->work + ebb__search_left(s) / 8;
    const size_t n = s->sections->n_items;
    if (ebb__search_is_large(s, PARTS) || ebb__search_is_over(s, end)) { return EBB_OK; }
    EBB_ASSERT(s->best.peak_bytes != UINT64_MAX && s->best.peak_bytes > s->sections->bound_bytes);
    memcpy(s->now.offsets, s->best.offsets, n * sizeof *s->now.offsets);
    s->now.peak_bytes = s->best.peak_bytes;
    if (s->best.is_order) {
        memcpy(s->now.idx, s->best.idx, n * sizeof *s->now.idx);
        s->now.fit = s->best.fit;
    } else {
        EBB_TRY(ebb__search_settle(s));
    }
    for (unsigned n_failed = 0; n_failed < MAX_FAILED_REPAIRS; n_failed++) {
        if (ebb__search_is_over(s, end) || s->now.peak_bytes == UINT64_MAX) { break; }
        EBB_TRY(sort_repaired(s));
        EBB_TRY(ebb__search_place(s, UINT64_MAX, FREE_WORK));
        if (ebb__search_keep(s)) { n_failed = 0; }
    }
    return EBB_OK;
}
