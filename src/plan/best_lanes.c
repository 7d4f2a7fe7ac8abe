/* SPDX-License-Identifier: Apache-2.0
 *
 * Local search from several drafts at once, the lanes. Where one search is stuck another may not be, and several
 * threads can work. Each lane has its own random numbers and is alone in a round; between rounds the slowest one starts
 * anew from the fastest. So the outcome is the same for any number of threads.
 *
 * Walks with copies are often given much less than the budget, because their drafts could not be placed otherwise.
 * Local search learns where placing wastes memory, so there lanes have limits of their own, from that of the walks up
 * to nearly the budget.
 */
#include "base/thread.h"
#include "plan/tape.h"

#include <math.h>

typedef ebb_best_lane lane;

ebb_status ebb__best_lanes_copy(const ebb_best_lane *from, ebb_draft *draft) {
    return ebb__draft_copy(&from->at, from->walk.input->program, draft);
}

ebb_status ebb__best_lanes_init(ebb_best_lanes *lanes, const ebb_policy_input *input) {
    *lanes = (ebb_best_lanes){.own = *input, .input = &lanes->own, .low_limit_bytes = input->limit_bytes};
    lanes->own.options = NULL; /* the caller's may go before a search that is kept */
    lanes->own.progress = NULL;
    lanes->own.kept = NULL;
    if (ebb__has_tiers(input->tier_bytes)) {
        const uint64_t budget_bytes = ebb_min_u64(input->budget_bytes, INT64_MAX);
        lanes->own.limit_bytes = ebb_max_u64(input->limit_bytes, ebb__draft_full_load(budget_bytes));
    }
    ebb__bump_init(&lanes->bump, input->mem);
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        lane *l = &lanes->lane[i];
        lanes->by_time[i] = i;
        l->time_ns = INFINITY;
        ebb__rng_init(&l->rng, 1, 2 + i);
    }
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        lane *l = &lanes->lane[i];
        EBB_TRY(ebb__draft_init(&l->at, input->program, input->mem));
        EBB_TRY(ebb__draft_init(&l->found, input->program, input->mem));
        EBB_TRY(ebb__best_walk_init(&l->walk, lanes->input, &l->found));
    }
    return ebb__tape_find_recipes(&lanes->lane[0].walk, &lanes->bump, &lanes->recipes);
}

void ebb__best_lanes_fini(ebb_best_lanes *lanes) {
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        lane *l = &lanes->lane[i];
        if (l->walk.input != NULL) { ebb__best_walk_fini(&l->walk); }
        ebb__draft_fini(&l->at);
        ebb__draft_fini(&l->found);
    }
    ebb__bump_fini(&lanes->bump);
}

static void sort_lanes(ebb_best_lanes *lanes) {
    for (uint32_t i = 1; i < EBB_BEST_LANES; i++) {
        const uint32_t mine = lanes->by_time[i];
        uint32_t at = i;
        for (; at > 0 && lanes->lane[lanes->by_time[at - 1]].time_ns > lanes->lane[mine].time_ns; at--) {
            lanes->by_time[at] = lanes->by_time[at - 1];
        }
        lanes->by_time[at] = mine;
    }
}

ebb_status ebb__best_lanes_offer(ebb_best_lanes *lanes, const ebb_draft *draft, double time_ns) {
    lane *slowest = &lanes->lane[lanes->by_time[EBB_BEST_LANES - 1]];
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        if (lanes->lane[i].time_ns == time_ns) { return EBB_OK; }
    }
    if (time_ns >= slowest->time_ns) { return EBB_OK; }
    EBB_TRY(ebb__draft_copy(draft, lanes->input->program, &slowest->at));
    slowest->time_ns = time_ns;
    slowest->has_draft = true;
    slowest->is_stale = lanes->is_wasting;
    sort_lanes(lanes);
    return EBB_OK;
}

/* ---- a round ------------------------------------------------------------------------------------ */

/* Local search knows no time but that of computing. So the load has to count what is taken until a copy has ended, and
 * afterwards copies in go up further where what is computed now asks for it. */
static ebb_status search_lane(const ebb_best_lanes *lanes, lane *l) {
    const ebb_policy_input *input = lanes->input;
    const bool has_copies = ebb__has_tiers(input->tier_bytes);
    if (has_copies) { EBB_TRY(ebb__best_settle(input, &l->walk.drag, l->options.limit_bytes, &l->at)); }
    EBB_TRY(ebb__best_refine(&l->walk, &l->at, &l->options, &l->found));
    if (!has_copies) { return EBB_OK; }
    return ebb__draft_move_up(&l->found, input->program, input->machine, l->options.limit_bytes, false,
                              input->early_in);
}

static ebb_status refine_lane(const ebb_best_lanes *lanes, lane *l) {
    double time_ns = INFINITY;
    l->has_moved = false;
    if (!l->has_draft) { return EBB_OK; }
    const ebb_status st = search_lane(lanes, l);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    if (st == EBB_OK) { EBB_TRY(ebb__best_time(lanes->input, &l->walk.drag, &l->found, &time_ns)); }
    if (!l->is_stale && time_ns >= l->time_ns) { return EBB_OK; }
    if (st == EBB_OK) { ebb__draft_swap(&l->at, &l->found); }
    l->time_ns = time_ns;
    l->is_stale = st != EBB_OK;
    l->has_moved = true;
    return EBB_OK;
}

static void run_lane(void *ctx, uint32_t i) {
    ebb_best_lanes *lanes = ctx;
    lane *l = &lanes->lane[i];
    l->status = refine_lane(lanes, l);
    if (l->status != EBB_OK) { (void)snprintf(l->message, sizeof l->message, "%s", ebb_last_error()); }
}

void ebb__best_lanes_renew(ebb_best_lanes *lanes) {
    lanes->is_wasting = true;
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) { lanes->lane[i].is_stale = true; }
}

ebb_status ebb__best_lanes_run(ebb_best_lanes *lanes, const uint64_t *waste, uint64_t max_looks) {
    static const double heats[EBB_BEST_LANES] = {0.0001, 0.0005, 0.002, 0.006};
    static const double shares[EBB_BEST_LANES] = {0, 0.25, 0.5, 1};
    const double room_bytes = (double)(lanes->input->limit_bytes - lanes->low_limit_bytes);
    lane *slowest = &lanes->lane[lanes->by_time[EBB_BEST_LANES - 1]];
    const lane *fastest = &lanes->lane[lanes->by_time[0]];
    if (!fastest->has_draft) { return EBB_OK; }
    EBB_TRY(ebb__draft_copy(&fastest->at, lanes->input->program, &slowest->at));
    slowest->time_ns = fastest->time_ns;
    slowest->has_draft = true;
    slowest->is_stale = fastest->is_stale;
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        lane *l = &lanes->lane[i];
        l->options = (ebb_refine_options){.limit_bytes = lanes->low_limit_bytes + (uint64_t)(shares[i] * room_bytes),
                                          .waste = waste,
                                          .max_looks = max_looks,
                                          .heat = heats[i],
                                          .rng = &l->rng,
                                          .recipes = lanes->recipes};
    }
    ebb__thread_share(lanes->input->n_threads, EBB_BEST_LANES, run_lane, lanes);
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        if (lanes->lane[i].status != EBB_OK) { return ebb__fail_adopt(lanes->lane[i].status, lanes->lane[i].message); }
    }
    sort_lanes(lanes);
    return EBB_OK;
}
