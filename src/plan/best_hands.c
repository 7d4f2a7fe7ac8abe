/* SPDX-License-Identifier: Apache-2.0
 *
 * Several walks at once, each by a hand with its own keys. What a walk makes of its keys depends on nothing else. So a
 * search that would walk with one set of keys after the other hands some out ahead of time, and takes the answers in
 * order. If an answer changes what would have been tried next, it throws the later ones away. So its plan is the same
 * with one hand and with many.
 */
#include "base/thread.h"
#include "plan/best.h"

#include <math.h>

#define MAX_LOWERED 3u      /* times, for the same keys */
#define LOWER (255.0 / 256) /* of the limit, at most */

typedef ebb_best_hand hand;

/* ---- keys --------------------------------------------------------------------------------------- */

ebb_status ebb__best_keys_init(ebb_best_keys *keys, ebb_bump *bump, size_t n_tensors, uint64_t limit_bytes) {
    keys->weight = ebb__bump_alloc(bump, n_tensors, sizeof *keys->weight);
    keys->copy = ebb__bump_alloc(bump, n_tensors, sizeof *keys->copy);
    keys->resident = ebb__bump_alloc(bump, n_tensors, sizeof *keys->resident);
    keys->no_again = ebb__bump_alloc(bump, n_tensors, sizeof *keys->no_again);
    if (keys->weight == NULL || keys->copy == NULL || keys->resident == NULL || keys->no_again == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(keys->weight, 0, n_tensors * sizeof *keys->weight);
    memset(keys->copy, 0, n_tensors * sizeof *keys->copy);
    memset(keys->resident, 0, n_tensors * sizeof *keys->resident);
    memset(keys->no_again, 0, n_tensors * sizeof *keys->no_again);
    keys->link_price = keys->reach = 1;
    keys->patience = INFINITY;
    keys->limit_bytes = limit_bytes;
    keys->copies_only = keys->by_duals = keys->keeps_parts = false;
    return EBB_OK;
}

void ebb__best_keys_copy(ebb_best_keys *to, const ebb_best_keys *from, size_t n_tensors) {
    memcpy(to->weight, from->weight, n_tensors * sizeof *to->weight);
    memcpy(to->copy, from->copy, n_tensors * sizeof *to->copy);
    memcpy(to->resident, from->resident, n_tensors * sizeof *to->resident);
    memcpy(to->no_again, from->no_again, n_tensors * sizeof *to->no_again);
    to->link_price = from->link_price;
    to->reach = from->reach;
    to->patience = from->patience;
    to->limit_bytes = from->limit_bytes;
    to->copies_only = from->copies_only;
    to->by_duals = from->by_duals;
    to->keeps_parts = from->keeps_parts;
}

/* ---- hands -------------------------------------------------------------------------------------- */

ebb_status ebb__best_hands_init(ebb_best_hand *hands, uint32_t n, const ebb_policy_input *input) {
    memset(hands, 0, n * sizeof *hands);
    for (uint32_t i = 0; i < n; i++) {
        hand *h = &hands[i];
        EBB_TRY(ebb__draft_init(&h->draft, input->program, input->mem));
        ebb__draft_reset(&h->draft, input->program);
        EBB_TRY(ebb__best_walk_init(&h->walk, input, &h->draft));
        EBB_TRY(ebb__best_keys_init(&h->keys, &h->walk.bump, h->walk.view.n_tensors, input->limit_bytes));
    }
    return EBB_OK;
}

void ebb__best_hands_fini(ebb_best_hand *hands, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (hands[i].walk.input != NULL) { ebb__best_walk_fini(&hands[i].walk); }
        ebb__draft_fini(&hands[i].draft);
    }
}

ebb_status ebb__best_place(const ebb_policy_input *input, const ebb_draft *draft, uint64_t work, double *time_ns_out,
                           uint64_t *bytes_out, uint64_t *over, uint64_t *load) {
    const uint64_t alignment = ebb_program_alignment_bytes(input->program);
    ebb_placing_options options = {
        .alignment = alignment, .work = work, .enough_bytes = input->budget_bytes, .limit_bytes = input->budget_bytes};
    ebb_timeline timeline = {0};
    ebb_placed placed = {0};
    ebb_plan *plan = NULL;
    *time_ns_out = INFINITY;
    memcpy(options.tier_bytes, input->tier_bytes, sizeof options.tier_bytes);
    EBB_TRY(ebb__plan_create(input->mem, "best", ebb_machine_topology(input->machine), &plan));
    plan->alignment_bytes = alignment;
    ebb_status st = ebb__draft_to_plan(draft, input->program, plan);
    if (st == EBB_OK) { st = ebb__plan_place(plan, &options, &placed); }
    *bytes_out = placed.peak_bytes;
    if (st == EBB_OK && ebb__placed_fits(&placed, input->budget_bytes, input->tier_bytes)) {
        st = ebb_plan_simulate(input->program, plan, input->machine, &timeline, NULL, NULL);
        *time_ns_out = (double)timeline.iteration_ns;
    }
    const ebb_excess what = input->copies_only ? EBB_EXCESS_STAYS : EBB_EXCESS_STACKS;
    if (st == EBB_OK && over != NULL) { st = ebb__best_find_excess(plan, input->budget_bytes, what, over, load); }
    ebb_plan_destroy(plan);
    return st;
}

ebb_status ebb__best_hand_place(ebb_best_hand *h, uint64_t work, uint64_t *over, uint64_t *load) {
    return ebb__best_place(h->walk.input, &h->draft, work, &h->placed_ns, &h->placed_bytes, over, load);
}

/* Walk, and place what seems faster. */
static ebb_status walk_once(hand *h) {
    h->time_ns = h->placed_ns = INFINITY;
    const ebb_status st = ebb__best_walk(&h->walk, &h->keys, h->limit_ns, h->find_resident);
    if (st == EBB_E_NO_FIT) { return EBB_OK; }
    if (st != EBB_OK) { return st; }
    EBB_TRY(ebb__best_time(h->walk.input, &h->walk.drag, &h->draft, &h->time_ns));
    return h->time_ns < h->place_ns ? ebb__best_hand_place(h, EBB_PLACING_QUICK, NULL, NULL) : EBB_OK;
}

/* The draft needs more than the budget when it is placed. One whose load is lower by the same share may fit. */
static void lower(hand *h) {
    const ebb_policy_input *input = h->walk.input;
    const double share = (double)input->budget_bytes / (double)ebb_max_u64(h->placed_bytes, 1);
    h->keys.limit_bytes = (uint64_t)((double)h->keys.limit_bytes * fmin(share, LOWER));
    h->n_lowered++;
}

static uint64_t looks_upto(const hand *h, uint64_t more) {
    return more > UINT64_MAX - h->walk.n_looks ? UINT64_MAX : h->walk.n_looks + more;
}

/* Walk within lower limits until a draft can be placed, or none seems faster. */
static ebb_status walk_lower(hand *h) {
    const uint64_t looks = h->walk.n_looks;
    const uint32_t blocked = h->walk.blocked;
    ebb_status st = EBB_OK;
    h->walk.max_looks = looks_upto(h, h->max_lower_looks);
    while (st == EBB_OK && h->time_ns < h->place_ns && h->placed_ns == INFINITY && h->n_lowered < MAX_LOWERED) {
        lower(h);
        st = walk_once(h);
    }
    h->n_lower_looks = h->walk.n_looks - looks;
    h->walk.blocked = blocked;
    return st;
}

static ebb_status walk(hand *h) {
    const uint64_t looks = h->walk.n_looks;
    h->n_lowered = 0;
    h->first_limit_bytes = h->keys.limit_bytes;
    h->walk.max_looks = looks_upto(h, h->max_looks);
    EBB_TRY(walk_once(h));
    h->n_looks = h->walk.n_looks - looks;
    h->looks_at_step = h->walk.looks_at_step - looks;
    return walk_lower(h);
}

static void run_hand(void *ctx, uint32_t i) {
    hand *h = &((hand *)ctx)[i];
    h->status = walk(h);
    if (h->status != EBB_OK) { (void)snprintf(h->message, sizeof h->message, "%s", ebb_last_error()); }
}

void ebb__best_hands_run(ebb_best_hand *hands, uint32_t n) {
    ebb__thread_share(n, n, run_hand, hands);
}
