/* SPDX-License-Identifier: Apache-2.0
 *
 * The cursor: which stays and slots are live, action by action. Before the first action it stands on the border
 * between two iterations, where the stays and slots that live around the end are.
 */
#include "plan/plan_priv.h"

/* In a valid plan it shares bytes with none that is live. */
static void enter(ebb_shelf *shelf, size_t number) {
    const bool is_apart = ebb__shelf_add(shelf, (uint32_t)number);
    EBB_ASSERT(is_apart);
}

ebb_status ebb__plan_cursor_init(const ebb_plan *plan, ebb_bump *bump, ebb_plan_cursor *cursor_out) {
    ebb_plan_cursor cursor = {.plan = plan};
    EBB_TRY(ebb__shelf_of_stays(&cursor.stays, plan, bump));
    EBB_TRY(ebb__shelf_of_slots(&cursor.slots, plan, bump));
    EBB_TRY(ebb__plan_order_slot_ends(plan, bump, &cursor.slot_by_end));
    ebb__plan_cursor_rewind(&cursor);
    *cursor_out = cursor;
    return EBB_OK;
}

void ebb__plan_cursor_rewind(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    cursor->position = UINT64_MAX;
    cursor->scratch = EBB_NO_PIECE;
    cursor->first_stay = cursor->first_slot = cursor->first_slot_end = 0;
    ebb__shelf_clear(&cursor->stays);
    ebb__shelf_clear(&cursor->slots);
    for (uint32_t i = 0; i < plan->stays.n; i++) {
        if (plan->stays.data[i].first >= plan->stays.data[i].last) { enter(&cursor->stays, i); }
    }
    for (uint32_t i = 0; i < plan->slots.n; i++) {
        if (plan->slots.data[i].first >= plan->slots.data[i].last) { enter(&cursor->slots, i); }
    }
}

/* The stays that the action at hand drops. */
static void end_stays(ebb_plan_cursor *cursor, const ebb_action *drop) {
    const ebb_shelf *shelf = &cursor->stays;
    const uint64_t end = ebb__action_end(drop, UINT64_MAX);
    for (uint32_t i = ebb__shelf_above(shelf, drop->target, drop->begin); i != EBB_NO_PIECE && shelf->begin[i] < end;
         i = ebb__shelf_next(shelf, (uint64_t)i + 1, drop->target)) {
        const ebb_stay *stay = &cursor->plan->stays.data[shelf->number[i]];
        const bool ends = stay->last == cursor->position && stay->first != stay->last;
        if (ends) { ebb__shelf_remove(&cursor->stays, shelf->number[i]); }
    }
}

static void end_slots(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    for (; cursor->first_slot_end < plan->slots.n; cursor->first_slot_end++) {
        const uint32_t idx = cursor->slot_by_end[cursor->first_slot_end];
        const ebb_slot *slot = &plan->slots.data[idx];
        if (slot->last > cursor->position) { return; }
        if (slot->first == slot->last) { continue; }
        ebb__shelf_remove(&cursor->slots, idx);
    }
}

void ebb__plan_cursor_next(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    if (cursor->position != UINT64_MAX) {
        EBB_ASSERT(cursor->position < plan->actions.n);
        const ebb_action *gone = &plan->actions.data[cursor->position];
        if (gone->kind == EBB_ACT_DROP) { end_stays(cursor, gone); }
    }
    cursor->position++;
    cursor->scratch = EBB_NO_PIECE;
    end_slots(cursor);
    for (; cursor->first_stay < plan->stays.n; cursor->first_stay++) {
        const ebb_stay *stay = &plan->stays.data[cursor->first_stay];
        EBB_ASSERT(stay->first >= cursor->position);
        if (stay->first != cursor->position) { break; }
        if (stay->first == stay->last) { continue; } /* it is always there */
        if (stay->tensor == EBB_SCRATCH) {
            cursor->scratch = (uint32_t)cursor->first_stay;
        } else {
            enter(&cursor->stays, cursor->first_stay);
        }
    }
    for (; cursor->first_slot < plan->slots.n; cursor->first_slot++) {
        const ebb_slot *slot = &plan->slots.data[cursor->first_slot];
        EBB_ASSERT(slot->first >= cursor->position);
        if (slot->first != cursor->position) { break; }
        if (slot->first != slot->last) { enter(&cursor->slots, cursor->first_slot); }
    }
}

static uint32_t number_of(const ebb_shelf *shelf, uint32_t rank) {
    return rank != EBB_NO_PIECE ? shelf->number[rank] : EBB_NO_PIECE;
}

uint32_t ebb__plan_cursor_stay(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte) {
    return number_of(&cursor->stays, ebb__shelf_above(&cursor->stays, tensor, byte));
}

uint32_t ebb__plan_cursor_next_stay(const ebb_plan_cursor *cursor, uint32_t stay) {
    const ebb_shelf *shelf = &cursor->stays;
    const uint64_t rank = shelf->rank[stay];
    return number_of(shelf, ebb__shelf_next(shelf, rank + 1, shelf->group[rank]));
}

uint64_t ebb__plan_cursor_offset(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte) {
    const uint32_t i = ebb__plan_cursor_stay(cursor, tensor, byte);
    const ebb_stay *stay = i != EBB_NO_PIECE ? &cursor->plan->stays.data[i] : NULL;
    return stay != NULL && stay->begin <= byte ? stay->offset + byte - stay->begin : UINT64_MAX;
}

uint32_t ebb__plan_cursor_slot(const ebb_plan_cursor *cursor, uint32_t tensor, uint32_t tier, uint64_t byte) {
    const ebb_shelf *shelf = &cursor->slots;
    const uint32_t i = ebb__shelf_above(shelf, ebb__shelf_slot_group(tensor, tier), byte);
    return i != EBB_NO_PIECE && shelf->begin[i] <= byte ? shelf->number[i] : EBB_NO_PIECE;
}
