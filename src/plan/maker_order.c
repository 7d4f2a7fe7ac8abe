/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of steps whose load is lower, for which a maker also drafts: see maker.h.
 */
#include "plan/maker.h"
#include "plan/order.h"

#define WORTH_ORDER 128 /* an order is another one if its load is lower by more than this part */

void ebb__maker_forget_order(ebb_maker *m) {
    ebb__best_forget(&m->kept);
    ebb_program_destroy(m->reordered.program);
    ebb__free(m->mem, m->reordered.order);
    ebb__free(m->mem, m->reordered.choice);
    m->reordered = (ebb_reordered){0};
    m->is_order_known = false;
}

static ebb_status turn_program(ebb_maker *m) {
    const size_t n_steps = ebb__plan_view(m->program).n_steps;
    EBB_TRY(ebb__program_reorder(m->program, m->reordered.order, m->mem, &m->reordered.program));
    if (m->choice == NULL) { return EBB_OK; }
    m->reordered.choice = ebb__alloc(m->mem, n_steps, sizeof *m->reordered.choice);
    if (m->reordered.choice == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n_steps; i++) { m->reordered.choice[i] = m->choice[m->reordered.order[i]]; }
    return EBB_OK;
}

bool ebb__maker_may_reorder(const ebb_maker *m) {
    return m->policy->changes_order && !m->is_large && !m->is_hasty;
}

ebb_status ebb__maker_find_order(ebb_maker *m) {
    ebb_order_figures figures = {0};
    if (m->is_order_known || !ebb__maker_may_reorder(m)) { return EBB_OK; }
    m->is_order_known = true;
    m->reordered.order = ebb__alloc(m->mem, ebb__plan_view(m->program).n_steps, sizeof *m->reordered.order);
    if (m->reordered.order == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__order_find(m->program, m->choice, EBB_ORDER_THOROUGH, m->mem, m->reordered.order, &figures));
    const bool is_lower = figures.order_bytes < figures.program_bytes - figures.program_bytes / WORTH_ORDER;
    return is_lower ? turn_program(m) : EBB_OK;
}

ebb_status ebb__maker_copy_order(ebb_maker *m, const ebb_maker *from) {
    const size_t n_steps = ebb__plan_view(m->program).n_steps;
    EBB_ASSERT(m->program == from->program && m->choice == from->choice && !m->is_order_known);
    m->is_order_known = from->is_order_known;
    if (from->reordered.order == NULL) { return EBB_OK; }
    m->reordered.order = ebb__alloc(m->mem, n_steps, sizeof *m->reordered.order);
    if (m->reordered.order == NULL) { return EBB_E_NO_MEMORY; }
    memcpy(m->reordered.order, from->reordered.order, n_steps * sizeof *m->reordered.order);
    return from->reordered.program != NULL ? turn_program(m) : EBB_OK;
}
