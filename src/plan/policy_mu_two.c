/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy mu-two: Purandare, Wasay, Jain and Idreos, "mu-TWO: 3x Faster Multi-Model Training with Orchestration and
 * Memory Optimization", MLSys 2023, for one model. Where memory is short there are two candidates: the tensor that is
 * inactive longest, to be copied, and the one with the highest ratio of bytes to the time that computing it again
 * takes. The one with the smaller overhead leaves.
 *
 * The paper also runs other models while one waits. That is not here.
 */
#include "plan/joint.h"

#include <math.h>

static ebb_joint_choice choose(ebb_joint *j, uint32_t step) {
    size_t idle = SIZE_MAX, cheap = SIZE_MAX;
    double longest_ns = 0, best_ratio = 0, again_ns = INFINITY;
    for (size_t i = 0; i < j->gaps.n; i++) {
        const ebb_gap *gap = &j->gaps.data[i];
        if (!ebb__gap_holds(gap, step)) { continue; }
        const double idle_ns = j->begin_ns[gap->need] - j->begin_ns[gap->leave + 1];
        if (gap->out_ns < INFINITY && idle_ns >= longest_ns) {
            longest_ns = idle_ns;
            idle = i;
        }
        const double its_ns = ebb__joint_again_ns(j, gap), ratio = (double)gap->bytes / (1 + its_ns);
        if (ratio <= best_ratio) { continue; }
        best_ratio = ratio;
        again_ns = its_ns;
        cheap = i;
    }
    const double swap_ns = idle != SIZE_MAX ? fmax(0, -ebb__joint_free_ns(j, &j->gaps.data[idle])) : INFINITY;
    const bool is_remade = cheap != SIZE_MAX && again_ns < swap_ns;
    return (ebb_joint_choice){.gap = is_remade ? cheap : idle, .is_remade = is_remade};
}

static ebb_status draft_mu_two(const ebb_policy_input *input, ebb_draft *draft) {
    return ebb__joint_draft(input, choose, draft);
}

const ebb_policy ebb__policy_mu_two = {
    .name = "mu-two",
    .about = "mu-TWO 2023, of one model: what is idle longest is copied, or what is cheapest computed again",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_mu_two,
};
