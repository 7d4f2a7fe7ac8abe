/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that a contest will probably ask for, made by other threads in the meantime.
 */
#ifndef EBB_SRC_AHEAD_H
#define EBB_SRC_AHEAD_H

#include "plan/maker.h"

#define EBB_AHEAD_MAX 8u

typedef struct ebb_ahead_ask {
    const ebb_policy *policy;
    uint64_t budget_bytes;
} ebb_ahead_ask;

typedef struct ebb_ahead ebb_ahead;

/* Begin to make these, the first ones first, with the maker's choices and order of steps, which must not change until
 * the end; at most EBB_AHEAD_MAX. By the maker's own policy it is a plan of ebb__maker_fit_own, by another one of
 * ebb__maker_fit. *ahead_out: NULL if there is no other thread, or no other plan to make at the same time. */
ebb_status ebb__ahead_begin(const ebb_maker *m, const ebb_ahead_ask *asks, uint32_t n, ebb_ahead **ahead_out);

/* Wait for one of them. false: it was not asked for, or no thread has begun it; then none will. Otherwise *status_out
 * and *plan_out are what making it gave; a failure's message is the calling thread's. ahead may be NULL. */
bool ebb__ahead_take(ebb_ahead *ahead, const ebb_policy *policy, uint64_t budget_bytes, ebb_status *status_out,
                     ebb_plan **plan_out);

/* Stop what is being made, wait for the threads, and drop what was not taken. ahead may be NULL. */
void ebb__ahead_end(ebb_ahead *ahead);

#endif
