/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy order: liveness in the order of steps with the lowest peak that was found. Where none is lower, it is the
 * program's own.
 */
#include "plan/order.h"
#include "plan/plan_priv.h"

static ebb_status draft_in(const ebb_policy_input *input, const uint32_t *order, ebb_draft *draft) {
    ebb_policy_input ordered = *input;
    ordered.order = order;
    return ebb__policy_liveness.draft(&ordered, draft);
}

static ebb_status draft_order(const ebb_policy_input *input, ebb_draft *draft) {
    size_t n_steps = 0;
    (void)ebb_program_steps(input->program, &n_steps);
    ebb_order_figures figures = {0};
    if (input->known_order != NULL) { return draft_in(input, input->known_order, draft); }
    uint32_t *order = ebb__alloc(input->mem, n_steps, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_order_care care = input->is_hasty ? EBB_ORDER_QUICK : EBB_ORDER_THOROUGH;
    ebb_status st = ebb__order_find(input->program, input->choice, care, input->mem, order, &figures);
    if (st == EBB_OK) { st = draft_in(input, order, draft); }
    ebb__free(input->mem, order);
    return st;
}

const ebb_policy ebb__policy_order = {
    .name = "order",
    .about = "as liveness, with the steps in an order that needs less",
    .draft = draft_order,
    .yardstick = &ebb__policy_liveness,
};
