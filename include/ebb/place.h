/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: offsets in one arena for items with known lifetimes, so that items that live at the same
 * time do not overlap (dynamic storage allocation with known lifetimes). Independent of everything else
 * in ebb.
 */
#ifndef EBB_PLACE_H
#define EBB_PLACE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lives at times [first, last). In a cyclic problem first >= last means that it lives around the end,
 * [first, period) and [0, last); first == last is then the whole circle. */
typedef struct ebb_place_item {
    uint64_t size_bytes;
    uint64_t first, last;
} ebb_place_item;

typedef struct ebb_place_problem {
    size_t size_bytes;
    const ebb_mem *mem;
    const ebb_place_item *items; /* borrowed for the call */
    size_t n_items;
    uint64_t alignment_bytes; /* of every offset; a power of two; sizes are rounded up to it */
    uint64_t period;          /* 0: not cyclic; else every time is in [0, period] */
    uint64_t enough_bytes;    /* a peak of at most this is good enough: nothing better is looked for */
    uint64_t max_work;        /* search steps of a few tens of ns, about, after which the best so far will do; 0: the
                                 default, EBB_PLACE_WORK. Something is always found, in O(n log n). */
} ebb_place_problem;
#define EBB_PLACE_WORK ((uint64_t)20 * 1000 * 1000)
#define EBB_PLACE_PROBLEM_INIT ((ebb_place_problem){.size_bytes = sizeof(ebb_place_problem), .alignment_bytes = 1})

/* Write each item's offset to offsets_out[n_items], and the end of the highest item to *peak_bytes_out.
 * Sweeps through time, each item into the lowest gap at its birth; greedy orders, each item into the tightest gap
 * among those placed before it that live at the same time; then repairs of the best: until the peak is enough or
 * the work is done. Deterministic. EBB_E_ARGUMENT names the item that is malformed. */
EBB_API ebb_status ebb_place_solve(const ebb_place_problem *problem, uint64_t *offsets_out, uint64_t *peak_bytes_out);

/* Most bytes alive at one time, rounded sizes: no placement has a lower peak. O(n log n). */
EBB_API ebb_status ebb_place_bound(const ebb_place_problem *problem, uint64_t *bound_bytes_out);

/* Check offsets against the problem, sharing no code with the solver: alignment, 64 bits, no two items
 * that live at one time overlap. EBB_E_INVALID_PLAN names the two. O(n log n). *peak_bytes_out may be NULL. */
EBB_API ebb_status ebb_place_check(const ebb_place_problem *problem, const uint64_t *offsets, uint64_t *peak_bytes_out);

#ifdef __cplusplus
}
#endif

#endif
