/* SPDX-License-Identifier: Apache-2.0
 *
 * The live stays of a plan, or its live slots, in order: by tensor (slots: by tensor and tier), then by where in the
 * tensor they begin. As no two live ones of a group share a byte, the one that holds a byte is found by its neighbours:
 * each call is O(log n), however many parts a tensor has. Groups with low numbers are found at once: all tensors of a
 * usual plan, and the slots of the first ones.
 *
 * All pieces of the plan are ranked once; what is live is an ordered set of ranks.
 */
#ifndef EBB_SRC_SHELF_H
#define EBB_SRC_SHELF_H

#include "ebb/plan.h"
#include "plan/ordset.h"

#define EBB_NO_PIECE UINT32_MAX

typedef struct ebb_shelf {
    uint64_t n;
    uint64_t *group, *begin, *end; /* [rank]; a stay's group is its tensor */
    uint32_t *number;              /* [rank]: of the stay or slot, as in the plan */
    uint32_t *rank;                /* [number] */
    uint64_t n_indexed;            /* groups below this are indexed */
    uint64_t *first;               /* [n_indexed + 1]: the first rank that is not before a group */
    ebb_ordset live;               /* ranks */
} ebb_shelf;

/* None is live yet. The plan may be of any form; of one that is not valid the ends may have wrapped. EBB_E_LIMIT: 2^32
 * - 1 stays or slots, or more. */
ebb_status ebb__shelf_of_stays(ebb_shelf *shelf, const ebb_plan *plan, ebb_bump *bump);
ebb_status ebb__shelf_of_slots(ebb_shelf *shelf, const ebb_plan *plan, ebb_bump *bump);

static inline uint64_t ebb__shelf_slot_group(uint32_t tensor, uint32_t tier) {
    return (uint64_t)tensor * EBB_MAX_TIERS + tier;
}

/* false: it shares bytes with a live one of its group, and is not added. */
bool ebb__shelf_add(ebb_shelf *shelf, uint32_t number);
void ebb__shelf_remove(ebb_shelf *shelf, uint32_t number); /* nothing happens when it is not live */
bool ebb__shelf_has(const ebb_shelf *shelf, uint32_t number);
void ebb__shelf_clear(ebb_shelf *shelf);

/* Ranks of live ones, or EBB_NO_PIECE: the first of a group that ends above a byte; the first of it from a rank on. */
uint32_t ebb__shelf_above(const ebb_shelf *shelf, uint64_t group, uint64_t byte);
uint32_t ebb__shelf_next(const ebb_shelf *shelf, uint64_t rank, uint64_t group);

#endif
