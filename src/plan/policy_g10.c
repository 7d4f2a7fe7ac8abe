/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy g10: Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart
 * Tensor Migrations", MICRO 2023, section 4.3. Of all inactive periods of all tensors the one with the highest ratio of
 * benefit to cost leaves, until no step has more than there is room for. The benefit is what is then less above the
 * limit, in bytes times time, between the end of the copy out and the beginning of the copy in; the cost is the time of
 * both copies. A copy in begins as late as is safe. Nothing is computed again.
 *
 * When no period helps whose copies can be hidden, the one that makes computing wait least leaves. Parameters stay,
 * which G10 moves too.
 */
#include "plan/joint.h"

#include <math.h>

static double benefit_of(const ebb_joint *j, const ebb_gap *gap) {
    const double gone_ns = ebb__joint_gone_ns(j, gap), back_ns = ebb__joint_back_ns(j, gap);
    const uint64_t limit = j->input->limit_bytes;
    double benefit = 0;
    for (uint32_t s = gap->leave + 1; s < gap->need && back_ns > gone_ns; s++) {
        const double away_ns = fmin(j->begin_ns[s + 1], back_ns) - fmax(j->begin_ns[s], gone_ns);
        if (j->load[s] <= limit || away_ns <= 0) { continue; }
        benefit += (double)ebb_min_u64(gap->bytes, j->load[s] - limit) * away_ns;
    }
    return benefit;
}

/* Copies are not hidden, and wait least. */
static ebb_joint_choice choose_least_waiting(const ebb_joint *j, uint32_t step) {
    ebb_joint_choice best = {.gap = SIZE_MAX};
    double most_ns = -INFINITY;
    for (size_t i = 0; i < j->gaps.n; i++) {
        const double free_ns = ebb__joint_free_ns(j, &j->gaps.data[i]);
        if (!ebb__gap_holds(&j->gaps.data[i], step) || free_ns <= most_ns) { continue; }
        most_ns = free_ns;
        best.gap = i;
    }
    return best;
}

static ebb_joint_choice choose(ebb_joint *j, uint32_t step) {
    ebb_joint_choice best = {.gap = SIZE_MAX};
    double most = 0;
    for (size_t i = 0; i < j->gaps.n; i++) {
        const ebb_gap *gap = &j->gaps.data[i];
        if (gap->fate != EBB_FATE_STAYS || gap->out_ns == INFINITY) { continue; }
        const double ratio = benefit_of(j, gap) / (1 + gap->out_ns + gap->in_ns);
        if (ratio <= most) { continue; }
        most = ratio;
        best.gap = i;
    }
    return best.gap != SIZE_MAX ? best : choose_least_waiting(j, step);
}

static ebb_status draft_g10(const ebb_policy_input *input, ebb_draft *draft) {
    return ebb__joint_draft(input, choose, draft);
}

const ebb_policy ebb__policy_g10 = {
    .name = "g10",
    .about = "G10 2023: what relieves most for the time of its copies is copied",
    .keeps_limit = true,
    .copies_only = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_g10,
};
