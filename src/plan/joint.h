/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules that choose, one tensor after the other, what is copied out and what is computed again: the policies capuchin
 * and mu-two. What they share is here: gaps between two uses of a tensor, what it would cost to be without the
 * tensor there, and the plan that follows from the choices.
 *
 * A rule works on the steps of the program, at the times at which they begin if nothing waits. Where the load is
 * highest it is asked for the next choice, until no step has more than the limit. What is computed again comes back
 * once, at its first need, with all of its makers that are gone by then. Copies out go in the order of their gaps, one
 * after the other; copies in end when they are needed, or earlier, so that none waits for another one. Parameters stay.
 *
 * The plan may need more than the rule thought, since what is computed again takes memory, and what it reads comes back
 * early. Then more is chosen. Choices * (gaps + steps); of a program with more gaps than EBB_JOINT_MAX_GAPS the largest
 * count.
 */
#ifndef EBB_SRC_JOINT_H
#define EBB_SRC_JOINT_H

#include "plan/remake.h"

#define EBB_JOINT_MAX_GAPS 2048u

typedef enum ebb_fate { EBB_FATE_STAYS, EBB_FATE_SWAPPED, EBB_FATE_REMADE } ebb_fate;

typedef struct ebb_gap {
    uint32_t tensor, tier;
    uint32_t leave, need; /* steps: two uses, with others between them */
    uint64_t bytes;
    double out_ns, in_ns; /* infinite: there is no way */
    bool may_remake;
    ebb_fate fate;
} ebb_gap;

typedef struct ebb_joint {
    const ebb_policy_input *input;
    ebb_remake r; /* for what can be made again, and for the choices */
    ebb_bump bump;
    double *begin_ns; /* [n_steps + 1]: of each step */
    uint64_t *load;   /* [n_steps]: without what was chosen */
    EBB_VEC(ebb_gap) gaps;
    uint64_t used_bytes[EBB_MAX_TIERS];
    double *out_free_ns; /* [n_steps]: when the copies out after this step and before have ended */
    double *in_begin_ns; /* [n_steps]: when the copies in for this step and later ones begin */
    uint32_t *last_use;  /* [n_tensors] */
    uint32_t *mark, n_marks;
    EBB_VEC(uint32_t) open;
    ebb_status status; /* of the rule */
} ebb_joint;

/* The next choice; the step has more than the limit. SIZE_MAX: none. */
typedef struct ebb_joint_choice {
    size_t gap;
    bool is_remade;
} ebb_joint_choice;
typedef ebb_joint_choice (*ebb_joint_rule)(ebb_joint *j, uint32_t step);

/* Whether a tensor could still be away at a step. */
static inline bool ebb__gap_holds(const ebb_gap *gap, uint32_t step) {
    return gap->fate == EBB_FATE_STAYS && gap->leave < step && step < gap->need;
}

/* The time for which it would be away if it was copied, both copies hidden, beside all copies chosen so far. Below 0:
 * computing would wait for as long. */
double ebb__joint_free_ns(const ebb_joint *j, const ebb_gap *gap);

/* The time to make it again, with all that is gone by then; infinite: it cannot be made. A failure is kept in
 * j->status. */
double ebb__joint_again_ns(ebb_joint *j, const ebb_gap *gap);

ebb_status ebb__joint_draft(const ebb_policy_input *input, ebb_joint_rule rule, ebb_draft *draft);

#endif
