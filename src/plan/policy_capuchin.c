/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy capuchin: Peng et al., "Capuchin: Tensor-based GPU Memory Management for Deep Learning", ASPLOS 2020,
 * section 4. Where memory is short, the tensor that has the most free time leaves: the time between two accesses, less
 * both copies. When none is left whose copies can be hidden, the one with the most memory saved per second (MSPS)
 * leaves, of what remains visible of its copies or of what computing it again takes, whichever is less.
 *
 * The paper measures accesses in its first iterations and moves copies in earlier as long as it sees waiting. Here the
 * machine's times take the place of both.
 */
#include "plan/joint.h"

#include <math.h>

static ebb_joint_choice choose_hidden(const ebb_joint *j, uint32_t step) {
    ebb_joint_choice best = {.gap = SIZE_MAX};
    double most_ns = 0;
    for (size_t i = 0; i < j->gaps.n; i++) {
        if (!ebb__gap_holds(&j->gaps.data[i], step)) { continue; }
        const double free_ns = ebb__joint_free_ns(j, &j->gaps.data[i]);
        if (free_ns < most_ns) { continue; }
        most_ns = free_ns;
        best.gap = i;
    }
    return best;
}

static ebb_joint_choice choose_cheapest(ebb_joint *j, uint32_t step) {
    ebb_joint_choice best = {.gap = SIZE_MAX};
    double most = 0;
    for (size_t i = 0; i < j->gaps.n; i++) {
        const ebb_gap *gap = &j->gaps.data[i];
        if (!ebb__gap_holds(gap, step)) { continue; }
        const double swap_ns = -ebb__joint_free_ns(j, gap), again_ns = ebb__joint_again_ns(j, gap);
        const double saved = (double)gap->bytes / (1 + fmin(swap_ns, again_ns));
        if (saved <= most) { continue; }
        most = saved;
        best = (ebb_joint_choice){.gap = i, .is_remade = again_ns < swap_ns};
    }
    return best;
}

static ebb_joint_choice choose(ebb_joint *j, uint32_t step) {
    const ebb_joint_choice hidden = choose_hidden(j, step);
    return hidden.gap != SIZE_MAX ? hidden : choose_cheapest(j, step);
}

static ebb_status draft_capuchin(const ebb_policy_input *input, ebb_draft *draft) {
    return ebb__joint_draft(input, choose, draft);
}

const ebb_policy ebb__policy_capuchin = {
    .name = "capuchin",
    .about = "Capuchin 2020: copies that can be hidden, then the cheaper of copying and computing again",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_capuchin,
};
