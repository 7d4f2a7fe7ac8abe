/* SPDX-License-Identifier: Apache-2.0
 *
 * A problem in sections as the search wants it. Items that hold nothing, and those that live always, are left out: the
 * latter lie at the bottom, where they could be moved in any placement without raising its peak. The others are
 * numbered by birth, the larger first of those born together, so that a sweep through a million of them reads memory in
 * order; and sizes are counted in their greatest common divisor.
 */
#include "place/place_priv.h"

#define FEW 16u /* sorted in place */

/* Items [n], counted into sorted by the section of their birth or death; equal ones keep their order. */
static ebb_status sort_by_section(const ebb_sections *s, const uint32_t *items, uint32_t *sorted, size_t n,
                                  bool by_death) {
    uint32_t *begin = ebb__calloc(s->mem, (size_t)s->n + 2, sizeof *begin);
    if (begin == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        const ebb_place_range r = s->range[items[i]];
        begin[(by_death ? r.last : r.first) + 1]++;
    }
    for (uint32_t k = 0; k <= s->n; k++) { begin[k + 1] += begin[k]; }
    EBB_ASSERT(begin[s->n + 1] == n);
    for (size_t i = 0; i < n; i++) {
        const ebb_place_range r = s->range[items[i]];
        sorted[begin[by_death ? r.last : r.first]++] = items[i];
    }
    ebb__free(s->mem, begin);
    return EBB_OK;
}

/* Those born together: larger first, then in their order. *key is made once, for the first that are many. */
static ebb_status sort_by_size(const ebb_sections *s, uint32_t *items, size_t n, uint64_t **key) {
    if (n > FEW) {
        if (*key == NULL) { *key = ebb__alloc(s->mem, s->n_items, sizeof **key); }
        if (*key == NULL) { return EBB_E_NO_MEMORY; }
        for (size_t i = 0; i < n; i++) { (*key)[items[i]] = UINT64_MAX - s->rounded[items[i]]; }
        return ebb__sort_by_key(s->mem, items, n, *key);
    }
    for (size_t i = 1; i < n; i++) {
        const uint32_t item = items[i];
        size_t at = i;
        for (; at > 0 && s->rounded[items[at - 1]] < s->rounded[item]; at--) { items[at] = items[at - 1]; }
        items[at] = item;
    }
    return EBB_OK;
}

static ebb_status number_items(const ebb_sections *from, ebb_compact *c, uint32_t *spare) {
    size_t n = 0;
    for (size_t i = 0; i < from->n_items; i++) {
        if (from->rounded[i] == 0) { continue; }
        if (ebb__place_lives_always(from, i)) {
            c->base_bytes += from->rounded[i];
            continue;
        }
        c->granule_bytes = ebb__place_common_divisor(c->granule_bytes, from->rounded[i]);
        spare[n++] = (uint32_t)i;
    }
    EBB_ASSERT(n <= from->n_items && c->base_bytes <= from->bound_bytes);
    c->sections.n_items = n;
    EBB_TRY(sort_by_section(from, spare, c->item, n, false));
    uint64_t *key = NULL;
    ebb_status st = EBB_OK;
    for (size_t begin = 0, end = 0; begin < n && st == EBB_OK; begin = end) {
        while (end < n && from->range[c->item[end]].first == from->range[c->item[begin]].first) { end++; }
        EBB_ASSERT(end == n || from->range[c->item[end]].first > from->range[c->item[begin]].first);
        st = sort_by_size(from, c->item + begin, end - begin, &key);
    }
    ebb__free(from->mem, key);
    return st;
}

ebb_status ebb__place_compact(const ebb_sections *from, ebb_bump *bump, ebb_compact *compact_out) {
    ebb_compact c = {.sections = {.mem = from->mem, .n = from->n}};
    const size_t max_items = from->n_items;
    c.item = ebb__bump_alloc(bump, max_items, sizeof *c.item);
    c.by_death = ebb__bump_alloc(bump, max_items, sizeof *c.by_death);
    c.sections.range = ebb__bump_alloc(bump, max_items, sizeof *c.sections.range);
    c.sections.rounded = ebb__bump_alloc(bump, max_items, sizeof *c.sections.rounded);
    if (c.item == NULL || c.by_death == NULL || c.sections.range == NULL || c.sections.rounded == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(number_items(from, &c, c.by_death));
    c.granule_bytes = ebb_max_u64(c.granule_bytes, 1);
    c.sections.bound_bytes = (from->bound_bytes - c.base_bytes) / c.granule_bytes;
    uint32_t *numbers = ebb__alloc(from->mem, c.sections.n_items, sizeof *numbers);
    if (numbers == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < c.sections.n_items; i++) {
        c.sections.range[i] = from->range[c.item[i]];
        EBB_ASSERT(from->rounded[c.item[i]] > 0 && from->rounded[c.item[i]] % c.granule_bytes == 0);
        c.sections.rounded[i] = from->rounded[c.item[i]] / c.granule_bytes;
        numbers[i] = (uint32_t)i;
    }
    const ebb_status st = sort_by_section(&c.sections, numbers, c.by_death, c.sections.n_items, true);
    ebb__free(from->mem, numbers);
    if (st == EBB_OK) { *compact_out = c; }
    return st;
}

void ebb__place_expand(const ebb_compact *compact, const ebb_place_problem *problem, const uint64_t *compact_offsets,
                       uint64_t *offsets) {
    uint64_t stacked_bytes = 0;
    for (size_t i = 0; i < problem->n_items; i++) { offsets[i] = EBB_PLACE_NOWHERE; }
    for (size_t i = 0; i < compact->sections.n_items; i++) {
        EBB_ASSERT(compact_offsets[i] <= (UINT64_MAX - compact->base_bytes) / compact->granule_bytes);
        offsets[compact->item[i]] = compact->base_bytes + compact_offsets[i] * compact->granule_bytes;
    }
    for (size_t i = 0; i < problem->n_items; i++) {
        if (offsets[i] != EBB_PLACE_NOWHERE) { continue; }
        const uint64_t size_bytes = ebb_align_up(problem->items[i].size_bytes, problem->alignment_bytes);
        offsets[i] = size_bytes > 0 ? stacked_bytes : 0;
        stacked_bytes += size_bytes;
    }
    EBB_ASSERT(stacked_bytes == compact->base_bytes);
}
