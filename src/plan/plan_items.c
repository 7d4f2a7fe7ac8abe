/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stays are one item of the placer's. Parts of a tensor that are on the device together must lie side by
 * side, so stays of one tensor that overlap in time are one item, and those that these overlap with:
 *
 *      bytes   |  stay 1  .  .  .  .  .  .  .  |        one item; while stay 2 is over and stay 3 has not begun, it has
 *              |  stay 2  |    gap     | stay 3 |        a gap, and others may use the bytes
 *              +--------------------- time -----
 *
 * If one of them goes around the end, they are one item that lives from 0 to the end, with gaps: there it has one
 * address anyway. While none of its stays is there, its gap is empty. A stay of a whole tensor, and scratch, is an item
 * by itself.
 */
#include "plan/plan_items.h"

#include "plan/ordset.h"

#include <stdlib.h>

static bool is_around(const ebb_stay *stay) {
    return stay->first >= stay->last;
}

typedef struct maker {
    const ebb_plan *plan;
    const uint32_t *order; /* stays by tensor, then first */
    uint32_t *around;      /* room for the stays of one item; the next three likewise */
    uint32_t *by_begin, *by_last;
    uint32_t *rank; /* of a stay among those of its item, by begin */
    ebb_bump *bump;
    ebb_plan_items *items;
} maker;

static const ebb_stay *stay_at(const maker *m, size_t i) {
    return &m->plan->stays.data[m->order[i]];
}

/* When it ends, or the circle does. */
static uint64_t end_of(const maker *m, size_t i) {
    const ebb_stay *stay = stay_at(m, i);
    return is_around(stay) ? m->plan->actions.n : stay->last;
}

static int by_begin(const void *a, const void *b, void *stays) {
    const ebb_stay *sa = (const ebb_stay *)stays + *(const uint32_t *)a;
    const ebb_stay *sb = (const ebb_stay *)stays + *(const uint32_t *)b;
    return sa->begin != sb->begin ? (sa->begin < sb->begin ? -1 : 1) : sa->first < sb->first ? -1 : 1;
}

static int by_last(const void *a, const void *b, void *stays) {
    const uint64_t la = ((const ebb_stay *)stays)[*(const uint32_t *)a].last;
    const uint64_t lb = ((const ebb_stay *)stays)[*(const uint32_t *)b].last;
    return la < lb ? -1 : la > lb;
}

/* The part that is live from one time to another, as a range from the item's base on: no two live stays of a tensor
 * share a byte, so it begins where the lowest does and ends where the highest does. */
static ebb_place_gap look_at(const maker *m, const ebb_ordset *live, size_t n, uint64_t base, uint64_t first,
                             uint64_t last) {
    const uint64_t low = ebb__ordset_next(live, 0), high = ebb__ordset_prev(live, n - 1);
    ebb_place_gap gap = {.item = m->items->n, .first = first, .last = last};
    if (low >= n) { return gap; }
    EBB_ASSERT(low <= high && high < n);
    const ebb_stay *stays = m->plan->stays.data, *top = &stays[m->by_begin[high]];
    gap.low_bytes = stays[m->by_begin[low]].begin - base;
    gap.high_bytes = top->begin + top->size_bytes - base;
    return gap;
}

/* Sweep the item's n stays, which are by first, in time. */
static ebb_status add_gaps(maker *m, const uint32_t *list, size_t n, uint64_t base, const ebb_place_item *item) {
    ebb_stay *stays = m->plan->stays.data;
    ebb_ordset live;
    EBB_TRY(ebb__ordset_init(&live, n, m->bump));
    memcpy(m->by_begin, list, n * sizeof *m->by_begin);
    memcpy(m->by_last, list, n * sizeof *m->by_last);
    qsort_r(m->by_begin, n, sizeof *m->by_begin, by_begin, stays);
    qsort_r(m->by_last, n, sizeof *m->by_last, by_last, stays);
    for (size_t i = 0; i < n; i++) {
        m->rank[m->by_begin[i]] = (uint32_t)i;
        if (is_around(&stays[m->by_begin[i]])) { ebb__ordset_add(&live, i); }
    }
    size_t begun = 0, ended = 0;
    for (uint64_t time = item->first, next = time; time < item->last; time = next) {
        for (; ended < n && stays[m->by_last[ended]].last == time; ended++) {
            ebb__ordset_remove(&live, m->rank[m->by_last[ended]]);
        }
        for (; begun < n && stays[list[begun]].first == time; begun++) { ebb__ordset_add(&live, m->rank[list[begun]]); }
        next = ended < n ? ebb_min_u64(stays[m->by_last[ended]].last, item->last) : item->last;
        next = begun < n ? ebb_min_u64(stays[list[begun]].first, next) : next;
        const ebb_place_gap gap = look_at(m, &live, n, base, time, next);
        if (gap.low_bytes == 0 && gap.high_bytes == item->size_bytes) { continue; }
        EBB_TRY(EBB_PUSH(m->plan->mem, &m->items->gaps, gap));
    }
    return EBB_OK;
}

/* n stays of a tensor, by first, are one item. */
static ebb_status add_item(maker *m, const uint32_t *list, size_t n) {
    const ebb_stay *stays = m->plan->stays.data;
    ebb_place_item item = {.first = stays[list[0]].first, .last = stays[list[0]].last};
    uint64_t base = UINT64_MAX, end = 0;
    bool goes_around = false;
    for (size_t i = 0; i < n; i++) {
        const ebb_stay *stay = &stays[list[i]];
        base = ebb_min_u64(base, stay->begin);
        end = ebb_max_u64(end, stay->begin + stay->size_bytes);
        item.last = n == 1 ? item.last : ebb_max_u64(item.last, stay->last);
        goes_around = goes_around || is_around(stay);
        m->items->item_of[list[i]] = (uint32_t)m->items->n;
    }
    item.size_bytes = end - base;
    if (n > 1 && goes_around) { item.first = 0, item.last = m->plan->actions.n; }
    if (n > 1) { EBB_TRY(add_gaps(m, list, n, base, &item)); }
    m->items->base[m->items->n] = base;
    m->items->items[m->items->n++] = item;
    return EBB_OK;
}

/* The end of the stays from `from` on that overlap one another without a break, and what lives before `last`. */
static size_t find_break(const maker *m, size_t from, size_t to, uint64_t last) {
    size_t end = from;
    for (; end < to && stay_at(m, end)->first < last; end++) { last = ebb_max_u64(last, end_of(m, end)); }
    return end;
}

/* A tensor's stays order[from .. to), some of them parts. Those that go around the end are among the last ones, and
 * with them belong the first ones, which overlap them there. */
static ebb_status add_parts(maker *m, size_t from, size_t to) {
    uint64_t around_last = 0;
    bool goes_around = false;
    for (size_t i = from; i < to; i++) {
        goes_around = goes_around || is_around(stay_at(m, i));
        if (is_around(stay_at(m, i))) { around_last = ebb_max_u64(around_last, stay_at(m, i)->last); }
    }
    const size_t head = goes_around ? find_break(m, from, to, around_last) : from;
    for (size_t begin = head, end = head; begin < to; begin = end) {
        end = find_break(m, begin, to, end_of(m, begin));
        if (end < to || !goes_around) {
            EBB_TRY(add_item(m, m->order + begin, end - begin));
            continue;
        }
        memcpy(m->around, m->order + from, (head - from) * sizeof *m->around);
        memcpy(m->around + (head - from), m->order + begin, (end - begin) * sizeof *m->around);
        return add_item(m, m->around, head - from + end - begin);
    }
    return goes_around && head == to ? add_item(m, m->order + from, to - from) : EBB_OK;
}

static ebb_status add_all(maker *m) {
    const size_t n = m->plan->stays.n;
    for (size_t from = 0, to = 0; from < n; from = to) {
        const uint32_t tensor = stay_at(m, from)->tensor;
        bool is_cut = false;
        for (to = from; to < n && stay_at(m, to)->tensor == tensor; to++) {
            is_cut = is_cut || stay_at(m, to)->begin != 0; /* a tensor in parts has one that begins within it */
        }
        if (is_cut) {
            EBB_TRY(add_parts(m, from, to));
            continue;
        }
        for (size_t i = from; i < to; i++) { EBB_TRY(add_item(m, m->order + i, 1)); }
    }
    return EBB_OK;
}

ebb_status ebb__plan_items_init(ebb_plan_items *items, const ebb_plan *plan, ebb_bump *bump) {
    const size_t n = plan->stays.n;
    uint32_t *order = ebb__bump_alloc(bump, n, sizeof *order);
    uint64_t *tensor = ebb__bump_alloc(bump, n, sizeof *tensor);
    maker m = {.plan = plan, .order = order, .items = items, .bump = bump};
    *items = (ebb_plan_items){.mem = plan->mem};
    items->items = ebb__bump_alloc(bump, n, sizeof *items->items);
    items->item_of = ebb__bump_alloc(bump, n, sizeof *items->item_of);
    items->base = ebb__bump_alloc(bump, n, sizeof *items->base);
    m.around = ebb__bump_alloc(bump, n, sizeof *m.around);
    m.by_begin = ebb__bump_alloc(bump, n, sizeof *m.by_begin);
    m.by_last = ebb__bump_alloc(bump, n, sizeof *m.by_last);
    m.rank = ebb__bump_alloc(bump, n, sizeof *m.rank);
    if (order == NULL || tensor == NULL || items->items == NULL || items->item_of == NULL || items->base == NULL ||
        m.around == NULL || m.by_begin == NULL || m.by_last == NULL || m.rank == NULL) {
        return EBB_E_NO_MEMORY;
    }
    bool is_cut = false;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        tensor[i] = plan->stays.data[i].tensor;
        is_cut = is_cut || plan->stays.data[i].begin != 0;
    }
    for (size_t i = 0; !is_cut && i < n; i++) { EBB_TRY(add_item(&m, order + i, 1)); }
    if (!is_cut) { return EBB_OK; }
    EBB_TRY(ebb__sort_by_key(bump->mem, order, n, tensor));
    return add_all(&m);
}

void ebb__plan_items_fini(ebb_plan_items *items) {
    EBB_VEC_FINI(items->mem, &items->gaps);
}
