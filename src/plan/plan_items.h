/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan's stays as items of the placer's.
 */
#ifndef EBB_SRC_PLAN_ITEMS_H
#define EBB_SRC_PLAN_ITEMS_H

#include "ebb/place.h"
#include "plan/plan_priv.h"

typedef struct ebb_plan_items {
    const ebb_mem *mem;
    ebb_place_item *items;
    size_t n;
    EBB_VEC(ebb_place_gap) gaps;
    uint32_t *item_of; /* [n_stays] */
    uint64_t *base;    /* [n]: the byte of the tensor with which the item begins */
} ebb_plan_items;

/* Arrays come from the bump. Call fini, whatever init returns. */
ebb_status ebb__plan_items_init(ebb_plan_items *items, const ebb_plan *plan, ebb_bump *bump);
void ebb__plan_items_fini(ebb_plan_items *items);

#endif
