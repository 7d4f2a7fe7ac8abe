/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a plan's stays and slots lie: the placer's problem made from a plan, and its answer put back.
 *
 * The arena is what the budget is for, so there the placer gets the work. A tier has room as a rule: a peak within a
 * sixteenth of the bound is enough there, and where it has no limit and the arena's peak is too high already, nothing
 * is placed in it, because the plan will not be taken.
 */
#include "plan/plan_items.h"

/* Few items that cannot be placed at their bound are not worth all the work that many are. */
#define MAX_WORK_AN_ITEM 4000u

typedef struct placing {
    ebb_place_problem problem;
    ebb_place_options options;
    ebb_place_item *items;
    uint64_t *offsets;
    uint64_t work;
} placing;

static ebb_status place_items(placing *p, size_t n, uint64_t enough_bytes, uint64_t *peak_out) {
    ebb_place_result result = {0};
    p->problem.items = p->items;
    p->problem.n_items = n;
    p->options.enough_bytes = enough_bytes;
    const uint64_t work = ebb_min_u64(p->work, MAX_WORK_AN_ITEM * (uint64_t)n) + EBB_PLACING_WORK_AN_ITEM * n;
    p->options.max_steps = p->work > 0 ? work : 1; /* the first sweep is gone through whatever it takes */
    if (n > 0) { EBB_TRY(ebb_place_solve(&p->problem, &p->options, p->offsets, &result)); }
    EBB_ASSERT(result.peak_bytes >= result.bound_bytes);
    *peak_out = result.peak_bytes;
    return EBB_OK;
}

static ebb_status place_stays(placing *p, ebb_plan *plan, uint64_t enough_bytes, uint64_t *peak_out) {
    ebb_plan_items items = {0};
    ebb_bump bump;
    ebb__bump_init(&bump, plan->mem);
    ebb_status st = ebb__plan_items_init(&items, plan, &bump);
    if (st == EBB_OK) {
        ebb_place_item *own = p->items;
        p->items = items.items;
        p->problem.gaps = items.gaps.data;
        p->problem.n_gaps = items.gaps.n;
        st = place_items(p, items.n, enough_bytes, peak_out);
        p->items = own;
        p->problem.gaps = NULL;
        p->problem.n_gaps = 0;
    }
    for (size_t i = 0; st == EBB_OK && i < plan->stays.n; i++) {
        ebb_stay *stay = &plan->stays.data[i];
        stay->offset = p->offsets[items.item_of[i]] + stay->begin - items.base[items.item_of[i]];
        EBB_ASSERT(stay->offset <= *peak_out && stay->size_bytes <= *peak_out - stay->offset);
    }
    ebb__plan_items_fini(&items);
    ebb__bump_fini(&bump);
    return st;
}

static ebb_status find_tier_bound(const placing *p, const ebb_plan *plan, uint32_t tier, uint64_t *bound_out) {
    ebb_load load;
    EBB_TRY(ebb__load_init(&load, plan->mem, plan->actions.n));
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *s = &plan->slots.data[i];
        if (s->tier != tier) { continue; }
        ebb__load_add(&load, s->first, s->last, ebb_align_up(s->size_bytes, p->problem.alignment_bytes));
    }
    *bound_out = ebb__load_most(&load);
    ebb__load_fini(&load);
    return EBB_OK;
}

static ebb_status place_slots(placing *p, ebb_plan *plan, uint32_t tier, uint64_t *peak_out) {
    size_t n = 0;
    uint64_t bound = 0;
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *s = &plan->slots.data[i];
        if (s->tier != tier) { continue; }
        p->items[n++] = (ebb_place_item){.size_bytes = s->size_bytes, .first = s->first, .last = s->last};
    }
    *peak_out = 0;
    if (n == 0) { return EBB_OK; }
    EBB_TRY(find_tier_bound(p, plan, tier, &bound));
    EBB_TRY(place_items(p, n, bound + bound / 16, peak_out));
    n = 0;
    for (size_t i = 0; i < plan->slots.n; i++) {
        if (plan->slots.data[i].tier == tier) { plan->slots.data[i].offset = p->offsets[n++]; }
    }
    return EBB_OK;
}

static ebb_status place_all(placing *p, ebb_plan *plan, const ebb_placing_options *options, bool has_stays,
                            ebb_placed *placed) {
    if (!has_stays) { EBB_TRY(place_stays(p, plan, options->enough_bytes, &placed->peak_bytes)); }
    const bool is_refused = placed->peak_bytes > options->limit_bytes;
    for (uint32_t tier = 1; tier < plan->topology.n_tiers; tier++) {
        if (is_refused && options->tier_bytes[tier] == UINT64_MAX) { continue; }
        EBB_TRY(place_slots(p, plan, tier, &placed->tier_bytes[tier]));
    }
    return EBB_OK;
}

static ebb_status place(ebb_plan *plan, const ebb_placing_options *options, bool has_stays, ebb_placed *placed_out) {
    const size_t n = plan->stays.n > plan->slots.n ? plan->stays.n : plan->slots.n;
    placing p = {.problem = EBB_PLACE_PROBLEM_INIT, .options = EBB_PLACE_OPTIONS_INIT, .work = options->work};
    ebb_placed placed = {0};
    p.options.mem = plan->mem;
    p.options.any_end = true;
    p.problem.alignment_bytes = options->alignment;
    p.problem.period = plan->actions.n;
    p.items = ebb__alloc(plan->mem, n, sizeof *p.items);
    p.offsets = ebb__alloc(plan->mem, n, sizeof *p.offsets);
    ebb_status st = p.items != NULL && p.offsets != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = place_all(&p, plan, options, has_stays, &placed); }
    if (st == EBB_OK) { *placed_out = placed; }
    ebb__free(plan->mem, p.items);
    ebb__free(plan->mem, p.offsets);
    return st;
}

ebb_status ebb__plan_place(ebb_plan *plan, const ebb_placing_options *options, ebb_placed *placed_out) {
    return place(plan, options, false, placed_out);
}

ebb_status ebb__plan_place_slots(ebb_plan *plan, const ebb_placing_options *options, ebb_placed *placed_out) {
    return place(plan, options, true, placed_out);
}
