/* SPDX-License-Identifier: Apache-2.0
 *
 * Live stays and slots in order (shelf.h).
 */
#include "plan/shelf.h"

#include "plan/plan_priv.h"

#define INDEXED 4u /* groups, for each piece, so that a plan with any numbers takes little memory */

static ebb_status init(ebb_shelf *s, uint64_t n, ebb_bump *bump) {
    if (n >= EBB_NO_PIECE) { return ebb_fail(EBB_E_LIMIT, "plan: 2^32 - 1 stays or slots, or more"); }
    *s = (ebb_shelf){.n = n, .n_indexed = INDEXED * n};
    s->first = ebb__bump_alloc(bump, s->n_indexed + 1, sizeof *s->first);
    s->group = ebb__bump_alloc(bump, n, sizeof *s->group);
    s->begin = ebb__bump_alloc(bump, n, sizeof *s->begin);
    s->end = ebb__bump_alloc(bump, n, sizeof *s->end);
    s->number = ebb__bump_alloc(bump, n, sizeof *s->number);
    s->rank = ebb__bump_alloc(bump, n, sizeof *s->rank);
    const bool has_all = s->group != NULL && s->begin != NULL && s->end != NULL && s->number != NULL &&
                         s->rank != NULL && s->first != NULL;
    return has_all ? ebb__ordset_init(&s->live, n, bump) : EBB_E_NO_MEMORY;
}

/* Bring what is by number into the order of ranks. */
static ebb_status permute(uint64_t **values, const ebb_shelf *s, ebb_bump *bump) {
    uint64_t *ranked = ebb__bump_alloc(bump, s->n, sizeof *ranked);
    if (ranked == NULL) { return EBB_E_NO_MEMORY; }
    for (uint64_t rank = 0; rank < s->n; rank++) { ranked[rank] = (*values)[s->number[rank]]; }
    *values = ranked;
    return EBB_OK;
}

static void index_groups(ebb_shelf *s) {
    uint64_t rank = 0;
    for (uint64_t group = 0; group <= s->n_indexed; group++) {
        while (rank < s->n && s->group[rank] < group) { rank++; }
        s->first[group] = rank;
    }
}

/* group, begin and end are by number. */
static ebb_status rank_all(ebb_shelf *s, ebb_bump *bump) {
    for (uint64_t i = 0; i < s->n; i++) { s->number[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(bump->mem, s->number, s->n, s->begin));
    EBB_TRY(ebb__sort_by_key(bump->mem, s->number, s->n, s->group)); /* keeps the order of equal ones */
    for (uint64_t rank = 0; rank < s->n; rank++) { s->rank[s->number[rank]] = (uint32_t)rank; }
    EBB_TRY(permute(&s->group, s, bump));
    EBB_TRY(permute(&s->begin, s, bump));
    index_groups(s);
    return permute(&s->end, s, bump);
}

ebb_status ebb__shelf_of_stays(ebb_shelf *shelf, const ebb_plan *plan, ebb_bump *bump) {
    EBB_TRY(init(shelf, plan->stays.n, bump));
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        shelf->group[i] = stay->tensor;
        shelf->begin[i] = stay->begin;
        shelf->end[i] = stay->begin + stay->size_bytes;
    }
    return rank_all(shelf, bump);
}

ebb_status ebb__shelf_of_slots(ebb_shelf *shelf, const ebb_plan *plan, ebb_bump *bump) {
    EBB_TRY(init(shelf, plan->slots.n, bump));
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *slot = &plan->slots.data[i];
        shelf->group[i] = ebb__shelf_slot_group(slot->tensor, slot->tier);
        shelf->begin[i] = slot->begin;
        shelf->end[i] = slot->begin + slot->size_bytes;
    }
    return rank_all(shelf, bump);
}

/* The first rank that is not before this byte of this group, live or not. */
static uint64_t rank_of(const ebb_shelf *s, uint64_t group, uint64_t byte) {
    const bool is_indexed = group < s->n_indexed;
    uint64_t low = s->first[is_indexed ? group : s->n_indexed], high = is_indexed ? s->first[group + 1] : s->n;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (s->group[middle] < group || (s->group[middle] == group && s->begin[middle] < byte)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t ebb__shelf_next(const ebb_shelf *shelf, uint64_t rank, uint64_t group) {
    const uint64_t next = ebb__ordset_next(&shelf->live, rank);
    return next != EBB_ORDSET_NONE && shelf->group[next] == group ? (uint32_t)next : EBB_NO_PIECE;
}

uint32_t ebb__shelf_above(const ebb_shelf *shelf, uint64_t group, uint64_t byte) {
    const uint64_t rank = rank_of(shelf, group, byte);
    const uint64_t before = rank > 0 ? ebb__ordset_prev(&shelf->live, rank - 1) : EBB_ORDSET_NONE;
    const bool reaches = before != EBB_ORDSET_NONE && shelf->group[before] == group && shelf->end[before] > byte;
    return reaches ? (uint32_t)before : ebb__shelf_next(shelf, rank, group);
}

bool ebb__shelf_add(ebb_shelf *shelf, uint32_t number) {
    const uint32_t rank = shelf->rank[number];
    const uint32_t other = ebb__shelf_above(shelf, shelf->group[rank], shelf->begin[rank]);
    if (other != EBB_NO_PIECE && shelf->begin[other] < shelf->end[rank]) { return false; }
    ebb__ordset_add(&shelf->live, rank);
    return true;
}

void ebb__shelf_remove(ebb_shelf *shelf, uint32_t number) {
    if (ebb__shelf_has(shelf, number)) { ebb__ordset_remove(&shelf->live, shelf->rank[number]); }
}

bool ebb__shelf_has(const ebb_shelf *shelf, uint32_t number) {
    return ebb__ordset_has(&shelf->live, shelf->rank[number]);
}

void ebb__shelf_clear(ebb_shelf *shelf) {
    for (uint64_t rank = ebb__ordset_next(&shelf->live, 0); rank != EBB_ORDSET_NONE;
         rank = ebb__ordset_next(&shelf->live, rank + 1)) {
        ebb__ordset_remove(&shelf->live, rank);
    }
}
