/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy liveness: a tensor is there from its first write to its last access, kept ones to the end of the circle,
 * persistent ones always, but for the time before a step that overwrites all of them. Nothing moves and nothing is
 * computed twice.
 */
#include "plan/plan_priv.h"

/* For each access: nothing of the iteration reads what the tensor holds after it. */
static void find_ends(const ebb_program_view *view, const ebb_policy_input *input, uint32_t *next_mode, bool *ends) {
    for (size_t at = view->n_steps; at-- > 0;) {
        const ebb_step *step = &view->steps[ebb__step_at(input, at)];
        for (uint64_t a = step->first_access; a < step->first_access + step->n_accesses; a++) {
            const ebb_access *access = &view->accesses[a];
            const ebb_tensor *tensor = &view->tensors[access->tensor];
            const uint32_t next = next_mode[access->tensor];
            ends[a] = !tensor->kept && (tensor->persistent ? next == EBB_WRITE : next == 0);
            next_mode[access->tensor] = access->mode;
        }
    }
}

bool ebb__liveness_drops_persistent(const ebb_program *program) {
    const ebb_program_view view = ebb__plan_view(program);
    bool *seen = ebb__calloc(program->mem, view.n_tensors, sizeof *seen), drops = false;
    if (seen == NULL) { return true; }             /* it cannot be told */
    for (size_t a = 0; a < view.n_accesses; a++) { /* in the order of the steps */
        const ebb_access *access = &view.accesses[a];
        const ebb_tensor *tensor = &view.tensors[access->tensor];
        drops = drops || (tensor->persistent && !tensor->kept && seen[access->tensor] && access->mode == EBB_WRITE);
        seen[access->tensor] = true;
    }
    ebb__free(program->mem, seen);
    return drops;
}

static ebb_status draft_steps(const ebb_program_view *view, const ebb_policy_input *input, const bool *ends,
                              ebb_draft *draft) {
    for (size_t at = 0; at < view->n_steps; at++) {
        const uint32_t s = ebb__step_at(input, at);
        const ebb_step *step = &view->steps[s];
        EBB_TRY(ebb__draft_step(draft, EBB_ACT_RUN, s, ebb__choice_of(input->choice, s)));
        for (uint64_t a = step->first_access; a < step->first_access + step->n_accesses; a++) {
            if (!ends[a]) { continue; }
            EBB_TRY(ebb__draft_tensor(draft, EBB_ACT_DROP, view->accesses[a].tensor, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
    }
    return EBB_OK;
}

static ebb_status draft_liveness(const ebb_policy_input *input, ebb_draft *draft) {
    const ebb_program_view view = ebb__plan_view(input->program);
    uint32_t *next_mode = ebb__calloc(input->mem, view.n_tensors, sizeof *next_mode);
    bool *ends = ebb__calloc(input->mem, view.n_accesses, sizeof *ends);
    ebb_status st = next_mode != NULL && ends != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        find_ends(&view, input, next_mode, ends);
        st = draft_steps(&view, input, ends, draft);
    }
    ebb__free(input->mem, next_mode);
    ebb__free(input->mem, ends);
    return st;
}

const ebb_policy ebb__policy_liveness = {
    .name = "liveness",
    .about = "each tensor is there from its first write to its last use",
    .draft = draft_liveness,
};
