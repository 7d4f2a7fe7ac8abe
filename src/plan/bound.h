/* SPDX-License-Identifier: Apache-2.0
 *
 * A bound on the time of an iteration: no plan that runs the steps in the program's order, within the budget and the
 * tiers, is faster. It looks at what of the program no plan can avoid (bound_intervals.c) and puts prices on it
 * (bound_prices.c).
 *
 * Why it holds. At a few steps, the pivots, more bytes are waiting to be used than there is room for: all that was made
 * and is read later, and is not accessed by the pivot itself, has only what the pivot leaves of the budget. The rest is
 * absent. What is absent there was copied out before and comes back in after, or is computed again after. The pivots
 * cut the iteration into segments. No segment is shorter than what the compute engine does in it, nor than what the
 * links copy out in it, nor than what they copy in, and so not shorter than any mean of the three, either. With three
 * shares for each segment that add up to 1, and a price for each byte of room that is missing at a pivot, all that is
 * left to decide is, for each interval between two uses of a tensor by itself, what absences save the most. That is
 * found exactly, and whatever the shares and prices are, what comes out is a bound (Lagrangian relaxation;
 * docs/best.md). They are varied to make it as large as can be.
 *
 * What it does not see, and could be better for: that what is computed again needs its inputs; that what is absent at a
 * pivot is so until the step ends; tiers that are full, latencies, alignment, where bytes lie.
 *
 * Where copies slow computing, a nanosecond of copying costs some computing time even if it goes on at the same time.
 * drag is how much at least: whatever engines are busy at a moment, the work that they do then, a nanosecond of
 * computing counted as 1 and one of copying as drag, is not more than the time that passes. So COMPUTING's share of a
 * segment also pays for drag times its copies.
 */
#ifndef EBB_SRC_BOUND_H
#define EBB_SRC_BOUND_H

#include "plan/plan_priv.h"

#define EBB_BOUND_PIVOTS 32u        /* at most */
#define EBB_BOUND_PIVOTS_AT_ONCE 8u /* of a first plan: in few rounds, fewer prices get closer */

/* Between two uses of a tensor's content, over at least one pivot. Segment j comes before pivot j; after the last pivot
 * comes the last segment, and after it, as iteration follows iteration, segment 0 again: an interval of a persistent
 * tensor may go on there, and numbers of segments then count on. */
typedef struct ebb_bound_interval {
    uint32_t first, last; /* segments; the pivots between them are first .. last - 1 */
    uint32_t lead;        /* how many segments before the first it could already be copied out */
    uint32_t maker;       /* the step that makes it again; EBB_BOUND_NONE: none can */
    bool has_copy;        /* a copy of it is always there */
    double bytes;
    double again_ns;      /* its share of its maker's time */
    double out_ns, in_ns; /* its share of the copy out; a copy in. Infinite: there is no way */
} ebb_bound_interval;

#define EBB_BOUND_NONE UINT32_MAX

/* The first step of a stretch: the program is cut into n_stretches, each with at most one pivot. */
static inline uint64_t ebb__bound_stretch(uint64_t n_steps, uint64_t stretch, uint32_t n_stretches) {
    return n_steps * stretch / n_stretches;
}

typedef struct ebb_bound_problem {
    uint32_t n_stretches, n_pivots;
    uint32_t pivot[EBB_BOUND_PIVOTS];          /* steps, ascending */
    double missing[EBB_BOUND_PIVOTS];          /* bytes that have no room at a pivot; below 0: there is room */
    double computing_ns[EBB_BOUND_PIVOTS + 1]; /* of each segment, each step once */
    double drag;
    ebb_bound_interval *intervals;
    size_t n_intervals;
    const atomic_bool *is_unwanted; /* prices are not looked for any longer; NULL: they are */
} ebb_bound_problem;

/* The plans that a bound is for: those with these choices of algorithm, or with any. */
typedef struct ebb_bound_choices {
    bool is_given;
    const uint32_t *choice; /* [n_steps], if they are given; NULL: 0 everywhere */
} ebb_bound_choices;

/* What no such plan can avoid within the limits' budget_bytes and tier_bytes. The care says how many pivots there may
 * be. No pivots: all fits. Its arrays come from the bump. */
ebb_status ebb__bound_problem(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                              ebb_bound_choices choices, ebb_bound_care care, ebb_bump *bump,
                              ebb_bound_problem *problem_out);

/* The prices at the best bound. out, in: of a nanosecond of copying in each segment, beside what it slows computing;
 * byte: of a byte on the device at each pivot, in nanoseconds. */
typedef struct ebb_bound_prices {
    double out[EBB_BOUND_PIVOTS + 1], in[EBB_BOUND_PIVOTS + 1], byte[EBB_BOUND_PIVOTS + 1];
} ebb_bound_prices;

/* The largest bound that is found with this care, in nanoseconds. At most a hair below the time of computing. It is
 * not looked for beyond stop_ns. prices_out may be NULL. */
ebb_status ebb__bound_price(const ebb_bound_problem *problem, ebb_bound_care care, double stop_ns, ebb_bump *bump,
                            double *bound_ns_out, ebb_bound_prices *prices_out);

#endif
