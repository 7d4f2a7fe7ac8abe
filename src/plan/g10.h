/* SPDX-License-Identifier: Apache-2.0
 *
 * The decisions of G10 (policy_g10.c), and what an iteration takes with them if freed bytes are one heap.
 */
#ifndef EBB_SRC_G10_H
#define EBB_SRC_G10_H

#include "plan/plan_priv.h"

typedef struct ebb_g10 {
    double time_ns;           /* of the iteration */
    uint64_t hidden_bytes;    /* the highest load, counted as the rule does: a tensor is off between its copies */
    uint32_t n_hidden, n_all; /* gaps that left by the rule; with those that left for want of another way */
} ebb_g10;

/* Decide, and write it as a draft. */
ebb_status ebb__g10_decide(const ebb_policy_input *input, ebb_draft *draft, ebb_g10 *told_out);

#endif
