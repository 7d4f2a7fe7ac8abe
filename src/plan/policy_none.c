/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy none: every tensor has bytes of its own. What an iteration makes stays until its end; only scratch
 * dies with its step. It is what a program needs that never frees, and the yardstick for all others.
 */
#include "plan/plan_priv.h"

static ebb_status draft_none(const ebb_policy_input *input, ebb_draft *draft) {
    size_t n_steps = 0;
    (void)ebb_program_steps(input->program, &n_steps);
    for (size_t at = 0; at < n_steps; at++) {
        const uint32_t s = ebb__step_at(input, at);
        EBB_TRY(ebb__draft_step(draft, EBB_ACT_RUN, s, ebb__choice_of(input->choice, s)));
    }
    return EBB_OK;
}

const ebb_policy ebb__policy_none = {
    .name = "none",
    .about = "nothing is freed within the iteration",
    .draft = draft_none,
};
