/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy liveness: a tensor is there from its first write to its last access, persistent ones always, kept
 * ones to the end of the circle. Nothing moves and nothing is computed twice.
 */
#include "plan/plan_priv.h"

static ebb_status draft_steps(const ebb_program *program, const uint32_t *last_step, ebb_draft *draft) {
    size_t n_steps = 0, n = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    const ebb_access *accesses = ebb_program_accesses(program, &n);
    const ebb_tensor *tensors = ebb_program_tensors(program, &n);
    for (uint32_t s = 0; s < n_steps; s++) {
        EBB_TRY(ebb__draft_add(draft, EBB_ACT_RUN, s, 0, EBB_DRAFT_FIXED));
        for (uint32_t i = 0; i < steps[s].n_accesses; i++) {
            uint32_t t = accesses[steps[s].first_access + i].tensor;
            if (last_step[t] != s || tensors[t].persistent || tensors[t].kept) { continue; }
            EBB_TRY(ebb__draft_add(draft, EBB_ACT_DROP, t, 0, EBB_DRAFT_FIXED));
        }
    }
    return EBB_OK;
}

static ebb_status draft_liveness(const ebb_policy_input *input, ebb_draft *draft) {
    size_t n_steps = 0, n_tensors = 0, n = 0;
    const ebb_step *steps = ebb_program_steps(input->program, &n_steps);
    const ebb_access *accesses = ebb_program_accesses(input->program, &n);
    (void)ebb_program_tensors(input->program, &n_tensors);
    uint32_t *last_step = ebb__calloc(input->mem, n_tensors, sizeof *last_step);
    if (last_step == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t i = 0; i < steps[s].n_accesses; i++) {
            last_step[accesses[steps[s].first_access + i].tensor] = s;
        }
    }
    ebb_status st = draft_steps(input->program, last_step, draft);
    ebb__free(input->mem, last_step);
    return st;
}

const ebb_policy ebb__policy_liveness = {
    .name = "liveness",
    .about = "each tensor is there from its first write to its last use",
    .draft = draft_liveness,
};
