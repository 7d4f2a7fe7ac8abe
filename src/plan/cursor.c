/* SPDX-License-Identifier: Apache-2.0
 *
 * The cursor: where every tensor lies, action by action. Before the first action it stands on the border
 * between two iterations, where the stays and slots that live around the end are.
 */
#include "plan/plan_priv.h"

ebb_status ebb__plan_cursor_init(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                                 ebb_plan_cursor *cursor_out) {
    ebb_plan_cursor cursor = {.plan = plan, .position = UINT64_MAX};
    size_t n_tensors = 0;
    (void)ebb_program_tensors(program, &n_tensors);
    cursor.offset = ebb__bump_alloc(bump, n_tensors, sizeof *cursor.offset);
    cursor.slot = ebb__bump_alloc(bump, n_tensors, sizeof *cursor.slot);
    if (cursor.offset == NULL || cursor.slot == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__plan_order_slot_ends(plan, bump, &cursor.slot_by_end));
    for (size_t t = 0; t < n_tensors; t++) { cursor.offset[t] = cursor.slot[t] = UINT64_MAX; }
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        if (stay->first >= stay->last) { cursor.offset[stay->tensor] = stay->offset; }
    }
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *slot = &plan->slots.data[i];
        if (slot->first >= slot->last) { cursor.slot[slot->tensor] = i; }
    }
    *cursor_out = cursor;
    return EBB_OK;
}

static void end_slots(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    for (; cursor->next_slot_end < plan->slots.n; cursor->next_slot_end++) {
        size_t i = cursor->slot_by_end[cursor->next_slot_end];
        EBB_ASSERT(i < plan->slots.n);
        const ebb_slot *slot = &plan->slots.data[i];
        bool always = slot->first == slot->last;
        if (slot->last > cursor->position) { return; }
        if (!always && cursor->slot[slot->tensor] == i) { cursor->slot[slot->tensor] = UINT64_MAX; }
    }
}

void ebb__plan_cursor_next(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    if (cursor->position != UINT64_MAX) {
        EBB_ASSERT(cursor->position < plan->actions.n);
        const ebb_action *gone = &plan->actions.data[cursor->position];
        EBB_ASSERT(gone->kind != EBB_ACT_DROP || cursor->offset[gone->target] != UINT64_MAX);
        if (gone->kind == EBB_ACT_DROP) { cursor->offset[gone->target] = UINT64_MAX; }
    }
    cursor->position++;
    cursor->scratch_offset = 0;
    end_slots(cursor);
    for (; cursor->next_stay < plan->stays.n; cursor->next_stay++) {
        const ebb_stay *stay = &plan->stays.data[cursor->next_stay];
        EBB_ASSERT(stay->first >= cursor->position);
        if (stay->first != cursor->position) { break; }
        if (stay->tensor == EBB_SCRATCH) {
            cursor->scratch_offset = stay->offset;
        } else {
            cursor->offset[stay->tensor] = stay->offset;
        }
    }
    for (; cursor->next_slot < plan->slots.n; cursor->next_slot++) {
        const ebb_slot *slot = &plan->slots.data[cursor->next_slot];
        EBB_ASSERT(slot->first >= cursor->position);
        if (slot->first != cursor->position) { break; }
        cursor->slot[slot->tensor] = cursor->next_slot;
    }
}
