/* SPDX-License-Identifier: Apache-2.0
 *
 * The cursor: where every tensor lies, action by action. Before the first action it stands on the border
 * between two iterations, where the stays and slots that live around the end are.
 */
#include "plan/plan_priv.h"

#include <stdlib.h>

typedef struct slot_end {
    uint64_t last;
    size_t slot;
} slot_end;

static int compare_ends(const void *left, const void *right) {
    const slot_end *a = left, *b = right;
    if (a->last != b->last) { return a->last < b->last ? -1 : 1; }
    return (a->slot > b->slot) - (a->slot < b->slot);
}

static ebb_status order_slot_ends(const ebb_plan *plan, ebb_bump *bump, ebb_plan_cursor *cursor) {
    size_t n = plan->slots.n;
    slot_end *ends = ebb__bump_alloc(bump, n, sizeof *ends);
    cursor->slot_by_end = ebb__bump_alloc(bump, n, sizeof *cursor->slot_by_end);
    if (ends == NULL || cursor->slot_by_end == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { ends[i] = (slot_end){.last = plan->slots.data[i].last, .slot = i}; }
    if (n > 1) { qsort(ends, n, sizeof *ends, compare_ends); }
    for (size_t i = 0; i < n; i++) { cursor->slot_by_end[i] = ends[i].slot; }
    return EBB_OK;
}

ebb_status ebb__plan_cursor_init(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                                 ebb_plan_cursor *cursor_out) {
    ebb_plan_cursor cursor = {.plan = plan, .position = UINT64_MAX};
    size_t n_tensors = 0;
    (void)ebb_program_tensors(program, &n_tensors);
    cursor.offset = ebb__bump_alloc(bump, n_tensors, sizeof *cursor.offset);
    cursor.slot = ebb__bump_alloc(bump, n_tensors, sizeof *cursor.slot);
    if (cursor.offset == NULL || cursor.slot == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(order_slot_ends(plan, bump, &cursor));
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
        if (gone->kind == EBB_ACT_DROP) { cursor->offset[gone->target] = UINT64_MAX; }
    }
    cursor->position++;
    cursor->scratch_offset = 0;
    end_slots(cursor);
    for (; cursor->next_stay < plan->stays.n; cursor->next_stay++) {
        const ebb_stay *stay = &plan->stays.data[cursor->next_stay];
        if (stay->first != cursor->position) { break; }
        if (stay->tensor == EBB_SCRATCH) {
            cursor->scratch_offset = stay->offset;
        } else {
            cursor->offset[stay->tensor] = stay->offset;
        }
    }
    for (; cursor->next_slot < plan->slots.n; cursor->next_slot++) {
        const ebb_slot *slot = &plan->slots.data[cursor->next_slot];
        if (slot->first != cursor->position) { break; }
        cursor->slot[slot->tensor] = cursor->next_slot;
    }
}
