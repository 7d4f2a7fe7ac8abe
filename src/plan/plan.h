/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as the runtime sees it: the schedule, which says for each action what it must wait for.
 */
#ifndef EBB_SRC_PLAN_H
#define EBB_SRC_PLAN_H

#include "base/base.h"
#include "ebb/plan.h"
#include "program/program.h"

/* What each action waits for beyond the earlier actions of its own engine. Dependencies of action a are
 * dep[start[a] .. start[a + 1]): indices of actions of other engines. A dependency d < a is on this
 * iteration's d, one with d >= a on the iteration's before. Where the engine of d runs in order, waiting
 * for d waits for all before it, so each action has at most one dependency an engine. Drops have none and
 * are nobody's dependency.
 * In the very first iteration the dependencies on the one before count as met. */
typedef struct ebb_schedule {
    uint64_t *start; /* [n_actions + 1] */
    uint64_t *dep;
    uint8_t *engine; /* [n_actions]: ebb_engine; EBB_N_ENGINES for a drop */
} ebb_schedule;

/* Derive it from the order, the accesses and the bytes of stays and slots. O(n log n). All arrays come from
 * the bump. */
ebb_status ebb__plan_schedule(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                              ebb_schedule *schedule_out);

/* For the action at hand: the offset at which a tensor lies there. A cursor that walks the actions in order;
 * offset[t] is UINT64_MAX while t is absent. */
typedef struct ebb_plan_cursor {
    const ebb_plan *plan;
    uint64_t *offset;        /* [n_tensors] */
    uint64_t *slot;          /* [n_tensors]: index of the slot that holds a copy, or UINT64_MAX */
    uint64_t position;       /* the action at hand; UINT64_MAX before the first: the border between iterations */
    uint64_t scratch_offset; /* of the action at hand; 0 when it has none */
    size_t next_stay, next_slot, next_slot_end;
    uint32_t *slot_by_end; /* slots by last */
} ebb_plan_cursor;
ebb_status ebb__plan_cursor_init(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                                 ebb_plan_cursor *cursor_out);
/* Go to the next action (the first call goes to action 0): the tensors that it brings are there, those that it
 * drops are still there. One call behind the last action is the border again. */
void ebb__plan_cursor_next(ebb_plan_cursor *cursor);

#endif
