/* SPDX-License-Identifier: Apache-2.0
 *
 * The cursor: which stays and slots are live, action by action. Before the first action it stands on the border
 * between two iterations, where the stays and slots that live around the end are.
 */
#include "plan/plan_priv.h"

#define NONE EBB_NO_PIECE

static void enter_stay(ebb_plan_cursor *cursor, uint32_t idx) {
    const ebb_stay *stays = cursor->plan->stays.data;
    uint32_t *at = &cursor->stay[stays[idx].tensor];
    while (*at != NONE && stays[*at].begin < stays[idx].begin) { at = &cursor->next_stay[*at]; }
    cursor->next_stay[idx] = *at;
    *at = idx;
}

static void enter_slot(ebb_plan_cursor *cursor, uint32_t idx) {
    uint32_t *first = &cursor->slot[cursor->plan->slots.data[idx].tensor];
    cursor->next_slot[idx] = *first;
    *first = idx;
}

static ebb_status take_lists(ebb_plan_cursor *cursor, ebb_bump *bump) {
    const size_t n_stays = cursor->plan->stays.n, n_slots = cursor->plan->slots.n;
    if (n_stays >= NONE || n_slots >= NONE) { return ebb_fail(EBB_E_LIMIT, "plan: 2^32 - 1 stays or slots, or more"); }
    cursor->stay = ebb__bump_alloc(bump, cursor->n_tensors, sizeof *cursor->stay);
    cursor->slot = ebb__bump_alloc(bump, cursor->n_tensors, sizeof *cursor->slot);
    cursor->next_stay = ebb__bump_alloc(bump, n_stays, sizeof *cursor->next_stay);
    cursor->next_slot = ebb__bump_alloc(bump, n_slots, sizeof *cursor->next_slot);
    const bool has_all =
        cursor->stay != NULL && cursor->slot != NULL && cursor->next_stay != NULL && cursor->next_slot != NULL;
    return has_all ? EBB_OK : EBB_E_NO_MEMORY;
}

ebb_status ebb__plan_cursor_init(const ebb_program *program, const ebb_plan *plan, ebb_bump *bump,
                                 ebb_plan_cursor *cursor_out) {
    ebb_plan_cursor cursor = {.plan = plan};
    (void)ebb_program_tensors(program, &cursor.n_tensors);
    EBB_TRY(take_lists(&cursor, bump));
    EBB_TRY(ebb__plan_order_slot_ends(plan, bump, &cursor.slot_by_end));
    ebb__plan_cursor_rewind(&cursor);
    *cursor_out = cursor;
    return EBB_OK;
}

void ebb__plan_cursor_rewind(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    cursor->position = UINT64_MAX;
    cursor->scratch = NONE;
    cursor->first_stay = cursor->first_slot = cursor->first_slot_end = 0;
    for (size_t t = 0; t < cursor->n_tensors; t++) { cursor->stay[t] = cursor->slot[t] = NONE; }
    for (uint32_t i = 0; i < plan->stays.n; i++) {
        if (plan->stays.data[i].first >= plan->stays.data[i].last) { enter_stay(cursor, i); }
    }
    for (uint32_t i = 0; i < plan->slots.n; i++) {
        if (plan->slots.data[i].first >= plan->slots.data[i].last) { enter_slot(cursor, i); }
    }
}

/* The stays of a tensor that are dropped at the action at hand. */
static void end_stays(ebb_plan_cursor *cursor, uint32_t tensor) {
    const ebb_stay *stays = cursor->plan->stays.data;
    for (uint32_t *at = &cursor->stay[tensor]; *at != NONE;) {
        const bool ends = stays[*at].last == cursor->position && stays[*at].first != stays[*at].last;
        if (ends) {
            *at = cursor->next_stay[*at];
        } else {
            at = &cursor->next_stay[*at];
        }
    }
}

static void end_slots(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    for (; cursor->first_slot_end < plan->slots.n; cursor->first_slot_end++) {
        const uint32_t idx = cursor->slot_by_end[cursor->first_slot_end];
        const ebb_slot *slot = &plan->slots.data[idx];
        if (slot->last > cursor->position) { return; }
        if (slot->first == slot->last) { continue; }
        uint32_t *at = &cursor->slot[slot->tensor];
        while (*at != NONE && *at != idx) { at = &cursor->next_slot[*at]; }
        if (*at == idx) { *at = cursor->next_slot[idx]; }
    }
}

void ebb__plan_cursor_next(ebb_plan_cursor *cursor) {
    const ebb_plan *plan = cursor->plan;
    if (cursor->position != UINT64_MAX) {
        EBB_ASSERT(cursor->position < plan->actions.n);
        const ebb_action *gone = &plan->actions.data[cursor->position];
        if (gone->kind == EBB_ACT_DROP) { end_stays(cursor, gone->target); }
    }
    cursor->position++;
    cursor->scratch = NONE;
    end_slots(cursor);
    for (; cursor->first_stay < plan->stays.n; cursor->first_stay++) {
        const ebb_stay *stay = &plan->stays.data[cursor->first_stay];
        EBB_ASSERT(stay->first >= cursor->position);
        if (stay->first != cursor->position) { break; }
        if (stay->first == stay->last) { continue; } /* it is always there */
        if (stay->tensor == EBB_SCRATCH) {
            cursor->scratch = (uint32_t)cursor->first_stay;
        } else {
            enter_stay(cursor, (uint32_t)cursor->first_stay);
        }
    }
    for (; cursor->first_slot < plan->slots.n; cursor->first_slot++) {
        const ebb_slot *slot = &plan->slots.data[cursor->first_slot];
        EBB_ASSERT(slot->first >= cursor->position);
        if (slot->first != cursor->position) { break; }
        if (slot->first != slot->last) { enter_slot(cursor, (uint32_t)cursor->first_slot); }
    }
}

uint64_t ebb__plan_cursor_offset(const ebb_plan_cursor *cursor, uint32_t tensor, uint64_t byte) {
    for (uint32_t i = cursor->stay[tensor]; i != NONE; i = cursor->next_stay[i]) {
        const ebb_stay *stay = &cursor->plan->stays.data[i];
        if (byte >= stay->begin && byte - stay->begin < stay->size_bytes) { return stay->offset + byte - stay->begin; }
    }
    return UINT64_MAX;
}

uint32_t ebb__plan_cursor_slot(const ebb_plan_cursor *cursor, uint32_t tensor, uint32_t tier, uint64_t byte) {
    for (uint32_t i = cursor->slot[tensor]; i != NONE; i = cursor->next_slot[i]) {
        const ebb_slot *slot = &cursor->plan->slots.data[i];
        const bool holds = byte >= slot->begin && byte - slot->begin < slot->size_bytes;
        if (slot->tier == tier && holds) { return i; }
    }
    return NONE;
}
