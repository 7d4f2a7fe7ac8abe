/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy liveness: a tensor is there from its first write to its last access, persistent ones always, kept
 * ones to the end of the circle. Nothing moves and nothing is computed twice.
 */
#include "plan/plan_priv.h"

static ebb_status draft_steps(const ebb_program_view *view, const ebb_policy_input *input, const uint32_t *last_step,
                              ebb_draft *draft) {
    for (size_t at = 0; at < view->n_steps; at++) {
        const uint32_t s = ebb__step_at(input, at);
        const ebb_step *step = &view->steps[s];
        EBB_TRY(ebb__draft_step(draft, EBB_ACT_RUN, s, ebb__choice_of(input->choice, s)));
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            uint32_t t = view->accesses[step->first_access + i].tensor;
            if (last_step[t] != s || view->tensors[t].persistent || view->tensors[t].kept) { continue; }
            EBB_TRY(ebb__draft_tensor(draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
    }
    return EBB_OK;
}

static ebb_status draft_liveness(const ebb_policy_input *input, ebb_draft *draft) {
    const ebb_program_view view = ebb__plan_view(input->program);
    uint32_t *last_step = ebb__calloc(input->mem, view.n_tensors, sizeof *last_step);
    if (last_step == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t at = 0; at < view.n_steps; at++) {
        const uint32_t s = ebb__step_at(input, at);
        const ebb_step *step = &view.steps[s];
        for (uint32_t i = 0; i < step->n_accesses; i++) { last_step[view.accesses[step->first_access + i].tensor] = s; }
    }
    ebb_status st = draft_steps(&view, input, last_step, draft);
    ebb__free(input->mem, last_step);
    return st;
}

const ebb_policy ebb__policy_liveness = {
    .name = "liveness",
    .about = "each tensor is there from its first write to its last use",
    .draft = draft_liveness,
};
