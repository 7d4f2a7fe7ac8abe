/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as the runtime sees it: the schedule, which says for each action what it must wait for.
 */
#ifndef EBB_SRC_PLAN_H
#define EBB_SRC_PLAN_H

#include "base/base.h"
#include "ebb/plan.h"
#include "plan/shelf.h"
#include "program/program.h"

/* What each action waits for beyond the earlier actions of its own engine. Dependencies of action a are
 * dep[start[a] .. start[a + 1]): indices of actions of other engines. A dependency d < a is on this
 * iteration's d, one with d >= a on the iteration's before. Where the engine of d runs in order, waiting
 * for d waits for all before it, so each action has at most one dependency an engine. Drops have none and
 * nothing depends on them.
 * In the very first iteration the dependencies on the one before count as met. */
typedef struct ebb_schedule {
    uint64_t *start; /* [n_actions + 1] */
    uint64_t *dep;
    uint8_t *engine; /* [n_actions]: of the plan's topology; EBB_NO_ENGINE for a drop */
} ebb_schedule;

/* Derive it from the order, the accesses and the bytes of stays and slots. O(n log n). All arrays come from
 * the bump. */
ebb_status ebb__plan_schedule(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                              ebb_schedule *schedule_out);

/* Whether the machine has a measured time of that key. */
bool ebb__machine_has_time(const ebb_machine *machine, uint64_t key);

/* How much of a tier there is. */
void ebb__machine_set_capacity(ebb_machine *machine, uint32_t tier, uint64_t capacity_bytes);

/* Whether it is run or again. */
static inline bool ebb__action_computes(const ebb_action *action) {
    return action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN;
}

/* One past the last byte that an action on a tensor of this many bytes is about. */
static inline uint64_t ebb__action_end(const ebb_action *action, uint64_t tensor_bytes) {
    return action->size_bytes == EBB_WHOLE ? tensor_bytes : action->begin + action->size_bytes;
}

/* The places of all bytes, action by action: a cursor that walks the actions in order and knows which stays and slots
 * are live.
 */
typedef struct ebb_plan_cursor {
    const ebb_plan *plan;
    ebb_shelf stays, slots;
    uint32_t scratch;  /* the stay that is the scratch of the action at hand, or EBB_NO_PIECE */
    uint64_t position; /* the action at hand; UINT64_MAX before the first: the border between iterations */
    size_t first_stay, first_slot, first_slot_end; /* those that are still to come */
    uint32_t *slot_by_end;                         /* slots by last */
} ebb_plan_cursor;
ebb_status ebb__plan_cursor_init(const ebb_plan *plan, ebb_bump *bump, ebb_plan_cursor *cursor_out);
/* Go to the next action (the first call goes to action 0): the tensors that it brings are there, those that it
 * drops are still there. One call after the last action is the border again. */
void ebb__plan_cursor_next(ebb_plan_cursor *cursor);

/* Back to where it stood at first. O(n). */
void ebb__plan_cursor_rewind(ebb_plan_cursor *cursor);

/* The live stays of a tensor by begin, as numbers: the first that ends above a byte, and the one after a live one;
 * EBB_NO_PIECE: none. */
uint32_t ebb__plan_cursor_stay(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte);
uint32_t ebb__plan_cursor_next_stay(const ebb_plan_cursor *cursor, uint32_t stay);
/* Where a byte of a tensor lies in the arena; UINT64_MAX: it is absent. */
uint64_t ebb__plan_cursor_offset(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte);
/* The slot that holds a byte of a tensor on a tier, or EBB_NO_PIECE. At an out or move, the one that it fills. */
uint32_t ebb__plan_cursor_slot(const ebb_plan_cursor *cursor, uint32_t tensor, uint32_t tier, uint64_t byte);

/* Whether a store's bytes have no addresses, so that the host calls something to move them. */
static inline bool ebb__moves_by_calls(ebb_store store) {
    return store == EBB_STORE_FILE || store == EBB_STORE_REMOTE;
}

#endif
