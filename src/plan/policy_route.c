/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy route: liveness with the steps in the order of SuperNeurons' algorithm 1 (Wang et al., PPoPP 2018, section
 * 3.1), a walk through the network depth first. On a chain it is the program's order.
 */
#include "plan/order.h"
#include "plan/plan_priv.h"

static ebb_status draft_route(const ebb_policy_input *input, ebb_draft *draft) {
    size_t n_steps = 0;
    (void)ebb_program_steps(input->program, &n_steps);
    ebb_policy_input ordered = *input;
    uint32_t *order = ebb__alloc(input->mem, n_steps, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status status = ebb__order_route(input->program, input->mem, order);
    ordered.order = order;
    if (status == EBB_OK) { status = ebb__policy_liveness.draft(&ordered, draft); }
    ebb__free(input->mem, order);
    return status;
}

const ebb_policy ebb__policy_route = {
    .name = "route",
    .about = "SuperNeurons: as liveness, with the steps depth first",
    .draft = draft_route,
};
