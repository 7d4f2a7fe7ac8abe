/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: offsets in one arena for items with known lifetimes, so that items that live at the same
 * time do not overlap (dynamic storage allocation with known lifetimes). Independent of everything else
 * in ebb.
 *
 * Threads: every function here may be called from any thread, on one problem from several at once.
 */
#ifndef EBB_PLACE_H
#define EBB_PLACE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the problem ------------------------------------------------------------------------------ */

/* An item lives at times [first, last). In a cyclic problem, first >= last means that it lives past the end: at [first,
 * period) and [0, last). first == last then means always. The times period and 0 are the same moment: a birth at period
 * is one at 0, and a death at 0 is one at period. So both [period, 0) and [0, period) are the whole circle. */
typedef struct ebb_place_item {
    uint64_t size_bytes;
    uint64_t first, last;
} ebb_place_item;

/* At times [first, last) of its life an item holds only its own bytes [low_bytes, high_bytes), rounded outwards to the
 * problem's alignment; if the two are equal, it holds none. An item with several lifetimes lives from the beginning of
 * the first to the end of the last, with an empty gap between each two. */
typedef struct ebb_place_gap {
    size_t item;
    uint64_t first, last;
    uint64_t low_bytes, high_bytes;
} ebb_place_gap;

#define EBB_PLACE_ANYWHERE UINT64_MAX

typedef struct ebb_place_problem {
    size_t size_bytes;
    const ebb_place_item *items; /* this and all below is borrowed for the call */
    size_t n_items;
    uint64_t alignment_bytes; /* of every offset; a power of two. So an item keeps its size, rounded up, to itself */
    uint64_t period;          /* 0: not cyclic; else every time is in [0, period] */
    /* Members that only some problems use; NULL: not used. */
    const uint64_t *alignments; /* [n_items]: the offset is also a multiple of this, any number but 0 */
    const uint64_t *fixed;      /* [n_items]: the offset that it must have, or EBB_PLACE_ANYWHERE */
    const ebb_place_gap *gaps;  /* by item, and of one item by time, without overlap; within the item's life, which
                                   does not go around the end */
    size_t n_gaps;
    const uint64_t *hints; /* [n_items]: the offset that is preferred, or EBB_PLACE_ANYWHERE. "best" uses it if that
                              raises the peak by less than alignment_bytes; the other solvers ignore it */
    /* Names an item in messages: write a text of less than n_bytes to buf. NULL: its number, from 0. */
    void (*name)(const void *ctx, size_t item, char *buf, size_t n_bytes);
    const void *name_ctx;
} ebb_place_problem;
#define EBB_PLACE_PROBLEM_INIT EBB_INIT(ebb_place_problem, EBB_SET(alignment_bytes, 1))

/* ---- solving ---------------------------------------------------------------------------------- */

typedef struct ebb_place_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *solver; /* a name from ebb_place_solver_name; NULL: "best" */
    uint64_t
        enough_bytes; /* a peak of at most this is good enough, and ends the search. Use it to ask whether a capacity is
                         enough: result.peak_bytes tells that it is, result.bound_bytes that it cannot be */
    /* Search steps, each a few tens of ns. 0: the default.
     *  - "best" ends after this many with the best answer so far; there always is one, after O(n log n). Its default is
     *    EBB_PLACE_STEPS and EBB_PLACE_STEPS_AN_ITEM for each item; of plain items four times EBB_PLACE_STEPS for at
     *    most EBB_PLACE_FEW, and twice for a hundred times as many; for more plain items at least
     *    EBB_PLACE_MANY_STEPS_AN_ITEM for each, but no more than EBB_PLACE_MANY_STEPS of these.
     *  - With more than the default, it searches with the default first, then with twice as many steps, then with four
     *    times, while the steps suffice. The best answer counts, so more steps never give a worse one.
     *  - With 0 here and in enough_bytes, a plain problem of more than 200,000 items is first searched in haste, which
     *    ends early near the bound. If the bound is not met, a full search gets the steps that are left, provided that
     *    they are at least 100 for each item, and the better answer counts.
     *  - A rule, as all solvers but "best" are, gives up after this many. Its default is EBB_PLACE_RULE_STEPS and
     *    EBB_PLACE_RULE_STEPS_AN_ITEM for each item. */
    uint64_t max_steps;
    /* The times at which iterations begin, ascending; the last may be the end of one. For a plain problem that is not a
     * circle, such as a recording. "best" solves the iterations that are alike as a circle, and places the rest around
     * them. Without them the answer is seldom as good. NULL: not known. */
    const uint64_t *iteration_starts; /* borrowed for the call */
    size_t n_iteration_starts;
    /* Asked every few thousand steps; true ends the search with the best so far, or a rule with none. NULL: never. It
     * makes a result that depends on it: without it, the same problem gives the same answer anywhere. */
    bool (*stop)(void *ctx);
    void *stop_ctx;
    bool any_end; /* where within its last multiple of the alignment the highest item ends is of no use: "best" does not
                     look for a lower end there */
    uint64_t first_segment_bytes; /* "best-fit" and "first-fit" begin with a segment of this size, as CnMem does
                                     with an initial size (of SINGA's, 256 MiB); 0: with none */
} ebb_place_options;
#define EBB_PLACE_FEW 2048u /* up to this many the exact search is of use */
#define EBB_PLACE_STEPS ((uint64_t)20 * 1000 * 1000)
#define EBB_PLACE_RULED ((size_t)200 * 1000) /* with up to this many items "best" tries all rules */
#define EBB_PLACE_STEPS_AN_ITEM ((uint64_t)96)
#define EBB_PLACE_MANY_STEPS ((uint64_t)100 * 1000 * 1000)
#define EBB_PLACE_MANY_STEPS_AN_ITEM ((uint64_t)320)
#define EBB_PLACE_RULE_STEPS ((uint64_t)150 * 1000 * 1000)
#define EBB_PLACE_RULE_STEPS_AN_ITEM ((uint64_t)100)
#define EBB_PLACE_OPTIONS_INIT EBB_INIT(ebb_place_options, )

typedef struct ebb_place_result {
    /* End of the highest byte that an item holds, not rounded up; of an allocator that takes segments, what it took. */
    uint64_t peak_bytes;
    /* No placement has a lower peak: ebb_place_bound less what the highest item leaves of its last multiple of the
     * alignment, or more where the search proved more, but at most the peak. */
    uint64_t bound_bytes;
    uint64_t n_steps; /* search steps that it took */
    /* If iterations were given and are alike: the peak of those in the middle, and a bound for it. Else 0. */
    uint64_t steady_peak_bytes, steady_bound_bytes;
} ebb_place_result;

/* Write each item's offset to offsets_out[n_items]; optimal is result.peak_bytes == result.bound_bytes. options may be
 * NULL. EBB_E_ARGUMENT names the item that is malformed, the solver that does not exist, or the iteration starts that
 * do not ascend; EBB_E_UNSUPPORTED: fixed offsets with a solver that is an allocator's replay, or an answer of 2^63
 * bytes or more; EBB_E_NO_FIT: fixed offsets that overlap, named; EBB_E_LIMIT: a rule that gave up, or too many items
 * and gaps, as for ebb_place_bound. */
EBB_API ebb_status ebb_place_solve(const ebb_place_problem *problem, const ebb_place_options *options,
                                   uint64_t *offsets_out, ebb_place_result *result_out);

/* The name of a solver, and a line about it, static; NULL beyond the last. 0 is "best". about_out may be NULL.
 *
 * "best" is never worse than any other solver on the same problem: if its own search does not end at the bound or at
 * enough_bytes, it also tries the others and takes the best answer. There are three limits. "size" and SmartPool's
 * rules are tried with up to EBB_PLACE_RULED items. They may take EBB_PLACE_STEPS steps, or max_steps if that is
 * given. The result of a rule that stop ends is not used.
 *
 * Only "best" searches, and only "best" uses enough_bytes and hints. "size" and SmartPool's rules look for the tightest
 * or lowest gap among all that are there, which is near O(n log n) where an arena has few gaps, and quadratic where
 * each item leaves one. "first-fit", "best-fit" and "pytorch" take O(n log n); they replay allocators, which serve
 * births and deaths in order of time (at the same time, deaths first, then in the order of the problem). Their segments
 * lie one after the other. An item keeps its block during its gaps. If 512 bytes, their granule, is not a multiple of
 * an item's alignment, they take that much more. A circle is replayed until it repeats; if it never does, items that
 * live past its end keep their blocks all the time. */
EBB_API const char *ebb_place_solver_name(size_t idx, const char **about_out);

/* ---- bound and validator ---------------------------------------------------------------------- */

/* The most bytes held at one time or, if it is more, the end of the highest fixed item or of the items that must lie
 * above fixed ones, all with sizes rounded up: no placement has a peak that is lower by alignment_bytes or more. If all
 * items have a common alignment and there are no gaps, the bytes that the alignment must waste are included. If there
 * are many fixed items, some may be ignored. EBB_E_ARGUMENT names the item or gap that is malformed: at no time,
 * outside of its item's life or bytes, misaligned, or where sizes, alignments and fixed offsets add up to 2^63 bytes or
 * more. EBB_E_LIMIT: there are about 2^31 items and gaps, or more. O(n log n). */
EBB_API ebb_status ebb_place_bound(const ebb_place_problem *problem, const ebb_mem *mem, uint64_t *bound_bytes_out);

/* Check offsets against the problem, with no code of a solver: alignment, fixed offsets, sums below 2^64, and that no
 * two items hold the same byte at one time. EBB_E_INVALID_PLAN names the two; EBB_E_ARGUMENT: a problem of another
 * version, or malformed so that it cannot be checked; EBB_E_LIMIT: 2^30 items or 2^29 gaps, or more. *peak_bytes_out is
 * the end of the highest byte that an item holds, not rounded up. O(n log n). peak_bytes_out may be NULL. */
EBB_API ebb_status ebb_place_check(const ebb_place_problem *problem, const ebb_mem *mem, const uint64_t *offsets,
                                   uint64_t *peak_bytes_out);

#ifdef __cplusplus
}
#endif

#endif
