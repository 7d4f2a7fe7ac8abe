/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy swap: AutoSwap's question (arXiv 1903.06631, section V) without its limits. What is copied out, and when,
 * so that an iteration takes the least time within the budget, if nothing is computed again?
 *
 * It is the search of the policy best with copies alone. So it looks at all absences of all tensors, of which one
 * tensor may have several, around all peaks, and also across the iteration's end; what has not changed since its last
 * copy is not copied out again, and what is overwritten next is not copied in. Each plan that counts is placed and
 * simulated, so a stall delays all that follows, and no time is better than its simulation.
 *
 * Where a rule is faster than what was searched for, its plan is taken.
 *
 * With a slowdown of 0 it says the lowest peak that costs nothing.
 */
#include "plan/best.h"

static ebb_status draft_swap(const ebb_policy_input *input, ebb_draft *draft) {
    EBB_ASSERT(input->copies_only);
    return ebb__policy_best.draft(input, draft);
}

/* Put the faster of two drafts, as estimated, into *draft. */
static ebb_status take_faster(const ebb_policy_input *input, ebb_draft *draft, ebb_draft *other) {
    double time_ns = 0, other_ns = 0;
    ebb_best_drag drag;
    ebb__best_find_drag(input, &drag);
    EBB_TRY(ebb__best_time(input, &drag, draft, &time_ns));
    EBB_TRY(ebb__best_time(input, &drag, other, &other_ns));
    if (other_ns < time_ns) { ebb__draft_swap(draft, other); }
    return EBB_OK;
}

/* AutoSwap's best mix, or, where it has no draft or a slower one, what is needed last is copied out first. */
static ebb_status draft_rules(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_draft other;
    EBB_TRY(ebb__draft_init(&other, input->program, input->mem));
    ebb__draft_reset(&other, input->program);
    ebb_status st = ebb__policy_budget.draft(input, draft);
    const ebb_status mixed = st == EBB_OK || st == EBB_E_NO_FIT ? ebb__policy_autoswap_bo.draft(input, &other) : st;
    if (mixed == EBB_OK && st == EBB_OK) {
        st = take_faster(input, draft, &other);
    } else if (mixed == EBB_OK) {
        ebb__draft_swap(draft, &other);
        st = EBB_OK;
    } else if (mixed != EBB_E_NO_FIT) {
        st = mixed;
    }
    ebb__draft_fini(&other);
    return st;
}

static const ebb_policy rules = {
    .name = "swap", .about = "", .keeps_limit = true, .copies_only = true, .draft = draft_rules};

static const ebb_policy *const rivals[] = {&rules};

const ebb_policy ebb__policy_swap = {
    .name = "swap",
    .about = "as best, with copies alone: nothing is computed again",
    .keeps_limit = true,
    .copies_only = true,
    .changes_order = true,
    .when_it_fits = &ebb__policy_liveness,
    .rivals = rivals,
    .n_rivals = 1,
    .n_quick_rivals = 1,
    .draft = draft_swap,
};
