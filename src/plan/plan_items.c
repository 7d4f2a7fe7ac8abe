/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stays are one item of the placer's. Parts of a tensor that are on the device together must lie side by
 * side, so stays of one tensor that overlap in time are one item, and those that these overlap with:
 *
 *      bytes   |  stay 1  .  .  .  .  .  .  .  |        one item; while stay 2 is over and stay 3 has not begun, it has
 *              |  stay 2  |    gap     | stay 3 |        a gap, and others may use the bytes
 *              +--------------------- time -----
 *
 * A tensor in parts of which one goes around the end is one item that is always there, without gaps: the placer knows
 * no gaps of what goes around. A stay of a whole tensor, and scratch, is an item by itself.
 */
#include "plan/plan_items.h"

static bool is_around(const ebb_stay *stay) {
    return stay->first >= stay->last;
}

typedef struct maker {
    const ebb_plan *plan;
    const uint32_t *order; /* stays by tensor, then first */
    uint64_t *times;       /* room for those of one item */
    ebb_plan_items *items;
} maker;

static const ebb_stay *stay_at(const maker *m, size_t i) {
    return &m->plan->stays.data[m->order[i]];
}

/* What is there of the item's stays [from, to) during [first, last), as a range from the item's base on. */
static ebb_place_gap look_at(const maker *m, size_t from, size_t to, uint64_t base, uint64_t first, uint64_t last) {
    ebb_place_gap seen = {.item = m->items->n, .first = first, .last = last, .low_bytes = UINT64_MAX};
    for (size_t i = from; i < to; i++) {
        const ebb_stay *stay = stay_at(m, i);
        if (stay->first > first || stay->last < last) { continue; }
        seen.low_bytes = ebb_min_u64(seen.low_bytes, stay->begin - base);
        seen.high_bytes = ebb_max_u64(seen.high_bytes, stay->begin + stay->size_bytes - base);
    }
    EBB_ASSERT(seen.low_bytes < seen.high_bytes); /* they overlap one another without a break */
    return seen;
}

static ebb_status add_gaps(maker *m, size_t from, size_t to, uint64_t base, uint64_t size_bytes) {
    size_t n = 0;
    for (size_t i = from; i < to; i++) {
        m->times[n++] = stay_at(m, i)->first;
        m->times[n++] = stay_at(m, i)->last;
    }
    for (size_t i = 1; i < n; i++) { /* few: by insertion */
        const uint64_t time = m->times[i];
        size_t at = i;
        for (; at > 0 && m->times[at - 1] > time; at--) { m->times[at] = m->times[at - 1]; }
        m->times[at] = time;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        if (m->times[i] == m->times[i + 1]) { continue; }
        const ebb_place_gap gap = look_at(m, from, to, base, m->times[i], m->times[i + 1]);
        if (gap.low_bytes == 0 && gap.high_bytes == size_bytes) { continue; }
        EBB_TRY(EBB_PUSH(m->plan->mem, &m->items->gaps, gap));
    }
    return EBB_OK;
}

/* Stays order[from .. to) are one item. */
static ebb_status add_item(maker *m, size_t from, size_t to, bool always) {
    const ebb_stay *only = stay_at(m, from);
    ebb_place_item item = {.first = only->first, .last = only->last};
    uint64_t base = UINT64_MAX, end = 0;
    for (size_t i = from; i < to; i++) {
        const ebb_stay *stay = stay_at(m, i);
        base = ebb_min_u64(base, stay->begin);
        end = ebb_max_u64(end, stay->begin + stay->size_bytes);
        item.last = to - from == 1 ? item.last : ebb_max_u64(item.last, stay->last);
        m->items->item_of[m->order[i]] = (uint32_t)m->items->n;
    }
    item.size_bytes = end - base;
    if (always) { item.first = item.last = 0; }
    if (!always && to - from > 1) { EBB_TRY(add_gaps(m, from, to, base, item.size_bytes)); }
    m->items->base[m->items->n] = base;
    m->items->items[m->items->n++] = item;
    return EBB_OK;
}

/* A tensor's stays order[from .. to), some of them parts. */
static ebb_status add_parts(maker *m, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        if (is_around(stay_at(m, i))) { return add_item(m, from, to, true); }
    }
    for (size_t begin = from, end = from; begin < to; begin = end) {
        uint64_t last = stay_at(m, begin)->last;
        for (end = begin + 1; end < to && stay_at(m, end)->first < last; end++) {
            last = ebb_max_u64(last, stay_at(m, end)->last);
        }
        EBB_TRY(add_item(m, begin, end, false));
    }
    return EBB_OK;
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
        for (size_t i = from; i < to; i++) { EBB_TRY(add_item(m, i, i + 1, false)); }
    }
    return EBB_OK;
}

ebb_status ebb__plan_items_init(ebb_plan_items *items, const ebb_plan *plan, ebb_bump *bump) {
    const size_t n = plan->stays.n;
    uint32_t *order = ebb__bump_alloc(bump, n, sizeof *order);
    uint64_t *tensor = ebb__bump_alloc(bump, n, sizeof *tensor);
    maker m = {.plan = plan, .order = order, .items = items};
    *items = (ebb_plan_items){.mem = plan->mem};
    items->items = ebb__bump_alloc(bump, n, sizeof *items->items);
    items->item_of = ebb__bump_alloc(bump, n, sizeof *items->item_of);
    items->base = ebb__bump_alloc(bump, n, sizeof *items->base);
    m.times = ebb__bump_alloc(bump, 2 * n, sizeof *m.times);
    if (order == NULL || tensor == NULL || items->items == NULL || items->item_of == NULL || items->base == NULL ||
        m.times == NULL) {
        return EBB_E_NO_MEMORY;
    }
    bool is_cut = false;
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        tensor[i] = plan->stays.data[i].tensor;
        is_cut = is_cut || plan->stays.data[i].begin != 0;
    }
    for (size_t i = 0; !is_cut && i < n; i++) { EBB_TRY(add_item(&m, i, i + 1, false)); }
    if (!is_cut) { return EBB_OK; }
    EBB_TRY(ebb__sort_by_key(bump->mem, order, n, tensor));
    return add_all(&m);
}

void ebb__plan_items_fini(ebb_plan_items *items) {
    EBB_VEC_FINI(items->mem, &items->gaps);
}
