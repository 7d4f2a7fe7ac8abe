/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement from a section outwards, in one direction of time. What lives there has its place, as tight as can be; from
 * there on it is a sweep around obstacles (hybrid.c) of the sections up to some other, in which those that already have
 * a place, and only those, are obstacles.
 *
 *             |  ######|                      the stack at s is full; a sweep to the right, and one to the left
 *             | #######|###                   through time that goes backward, meet no other problem than a sweep
 *             |########|######                from an empty arena does, but begin without waste where there is
 *             +--------s---------             least room for it.
 *
 * The sweep is made of a problem of its own: sections are counted from s, and items numbered by birth as it is met,
 * those that live at s after all others, with a birth that never comes.
 */
#include "place/place_priv.h"

#define NEVER UINT32_MAX
#define WORK_AN_ITEM 8u /* to see it */

typedef struct view {
    const ebb_sections *from;
    const ebb_place_outward_options *options;
    ebb_sections sections; /* of the items in view */
    uint32_t *item;        /* [sections.n_items]: its number before */
    uint32_t *by_death, *obstacles;
    uint32_t n_obstacles;
    uint64_t *offsets, *key;
    const uint64_t *of_all; /* offsets */
    size_t n_born;          /* of the items; those after them live where it begins, and never come back */
} view;

/* ---- items in view ---------------------------------------------------------------------------- */

/* How many sections after it begins the sweep meets the item's beginning. */
static uint32_t met_after(const view *v, uint32_t item) {
    const ebb_place_range r = v->from->range[item];
    return v->options->backward ? ebb__place_distance(v->from->n, r.last - 1, v->options->section)
                                : ebb__place_distance(v->from->n, v->options->section, r.first);
}

/* How many sections before the one where the sweep begins, in its time, the item does; of one that lives there. */
static uint32_t lived_before(const view *v, uint32_t item) {
    const uint32_t met = met_after(v, item);
    return met == 0 ? 0 : v->from->n - met;
}

static bool lives_where_it_begins(const view *v, uint32_t item) {
    return lived_before(v, item) < ebb__place_n_sections(v->from, item);
}

/* An item that lives where it begins, and comes back before it ends, is around the end; as if it were, with a birth
 * that never comes, if it does not. Deaths may lie beyond the end: items that die together should lie together. */
static ebb_place_range range_of(const view *v, uint32_t item) {
    const uint32_t met = met_after(v, item), length = ebb__place_n_sections(v->from, item);
    if (!lives_where_it_begins(v, item)) { return (ebb_place_range){met, met + length}; }
    EBB_ASSERT(length > lived_before(v, item));
    const bool comes_back = met > 0 && met < v->sections.n;
    return (ebb_place_range){comes_back ? met : NEVER, length - lived_before(v, item)};
}

/* The first, in order of birth or of death, that the sweep meets in this section or a later one. */
static size_t find_first(const view *v, uint32_t section) {
    size_t lo = 0, hi = v->from->n_items;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        const uint32_t at =
            v->options->backward ? v->from->range[v->options->by_death[mid]].last - 1 : v->from->range[mid].first;
        if (at < section) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

/* Those that the sweep meets in sections [first, last), in its order; counted only where v->item is NULL. */
static void list_met_in(view *v, uint32_t first, uint32_t last) {
    const size_t begin = find_first(v, first), end = find_first(v, last);
    EBB_ASSERT(begin <= end && end <= v->from->n_items);
    for (size_t i = 0; i < end - begin; i++) {
        const uint32_t item = v->options->backward ? v->options->by_death[end - 1 - i] : (uint32_t)(begin + i);
        const bool is_beyond = met_after(v, item) >= v->options->n_to_place;
        if (is_beyond && v->of_all[item] == EBB_PLACE_NOWHERE) { continue; }
        if (v->item != NULL) { v->item[v->n_born] = item; }
        v->n_born++;
    }
}

static void list_met(view *v) {
    const uint32_t n = v->from->n, s = v->options->section, length = v->sections.n - 1;
    v->n_born = 0;
    if (v->options->backward) {
        list_met_in(v, s > length ? s - length : 0, s);
        if (length > s) { list_met_in(v, n - (length - s), n); }
    } else {
        list_met_in(v, s + 1, length < n - s ? s + 1 + length : n);
        if (length >= n - s) { list_met_in(v, 0, s + 1 + length - n); }
    }
}

/* Backward, those that are met together are not in order of size yet. */
static ebb_status sort_met(view *v, uint32_t *idx, uint32_t *item) {
    for (uint32_t i = 0; i < v->n_born; i++) {
        idx[i] = i;
        item[i] = v->item[i];
        v->key[i] = UINT64_MAX - v->from->rounded[item[i]];
    }
    EBB_TRY(ebb__sort_by_key(v->from->mem, idx, v->n_born, v->key));
    for (uint32_t i = 0; i < v->n_born; i++) { v->key[i] = met_after(v, item[i]); }
    EBB_TRY(ebb__sort_by_key(v->from->mem, idx, v->n_born, v->key));
    for (uint32_t i = 0; i < v->n_born; i++) { v->item[i] = item[idx[i]]; }
    return EBB_OK;
}

/* ---- the sweep -------------------------------------------------------------------------------- */

static ebb_status alloc_all(view *v, ebb_bump *bump) {
    list_met(v);
    const size_t n = v->n_born + v->options->n_alive;
    v->item = ebb__bump_alloc(bump, n, sizeof *v->item);
    v->by_death = ebb__bump_alloc(bump, n, sizeof *v->by_death);
    v->obstacles = ebb__bump_alloc(bump, n, sizeof *v->obstacles);
    v->offsets = ebb__bump_alloc(bump, n, sizeof *v->offsets);
    v->key = ebb__bump_alloc(bump, n, sizeof *v->key);
    v->sections.range = ebb__bump_alloc(bump, n, sizeof *v->sections.range);
    v->sections.rounded = ebb__bump_alloc(bump, n, sizeof *v->sections.rounded);
    const bool ok = v->item != NULL && v->by_death != NULL && v->obstacles != NULL && v->offsets != NULL &&
                    v->key != NULL && v->sections.range != NULL && v->sections.rounded != NULL;
    return ok ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status prepare(view *v, ebb_bump *bump) {
    EBB_TRY(alloc_all(v, bump));
    list_met(v);
    if (v->options->backward) { EBB_TRY(sort_met(v, v->by_death, v->obstacles)); }
    v->sections.n_items = v->n_born;
    for (uint32_t i = 0; i < v->options->n_alive; i++) {
        const uint32_t item = v->options->alive[i];
        if (range_of(v, item).first == NEVER) { v->item[v->sections.n_items++] = item; }
    }
    for (uint32_t i = 0; i < v->sections.n_items; i++) {
        v->offsets[i] = v->of_all[v->item[i]];
        v->sections.range[i] = range_of(v, v->item[i]);
        v->sections.rounded[i] = v->from->rounded[v->item[i]];
        v->by_death[i] = i;
        v->key[i] = v->sections.range[i].last;
        EBB_ASSERT(v->sections.range[i].first < v->sections.range[i].last || v->offsets[i] != EBB_PLACE_NOWHERE);
        if (v->offsets[i] != EBB_PLACE_NOWHERE) { v->obstacles[v->n_obstacles++] = i; }
    }
    EBB_ASSERT(v->sections.n_items <= v->n_born + v->options->n_alive);
    return ebb__sort_by_key(v->from->mem, v->by_death, v->sections.n_items, v->key);
}

ebb_status ebb__place_outward(const ebb_sections *sections, const ebb_place_outward_options *options,
                              const uint64_t *offsets, ebb_bump *bump, ebb_place_outward_result *result_out,
                              uint64_t *work) {
    view v = {.from = sections,
              .options = options,
              .sections = {.mem = sections->mem, .n = options->n_sections},
              .of_all = offsets};
    EBB_ASSERT(options->n_sections > 0 && options->n_sections <= sections->n);
    EBB_TRY(prepare(&v, bump));
    const ebb_place_hybrid_options of_hybrid = {.by_death = v.by_death,
                                                .obstacles = v.obstacles,
                                                .n_obstacles = v.n_obstacles,
                                                .weight = options->weight,
                                                .is_hasty = options->is_hasty,
                                                .give_up_bytes = options->give_up_bytes,
                                                .max_work = options->max_work};
    uint64_t peak = UINT64_MAX;
    *work += WORK_AN_ITEM * v.sections.n_items;
    EBB_TRY(ebb__place_hybrid(&v.sections, &of_hybrid, v.offsets, &peak, work));
    *result_out = (ebb_place_outward_result){v.item, v.offsets, v.n_born, peak};
    return EBB_OK;
}
