/* SPDX-License-Identifier: Apache-2.0
 *
 * AutoSwap's planner (Zhang, Yeung, Shu, He and Wang, "Efficient Memory Management for GPU-based Deep Learning
 * Systems", arXiv 1903.06631, section V), on any sequence of events: a time and a load for each of three iterations,
 * and candidates. A candidate is what lies between two accesses of a block, one before and one after the moment of the
 * peak, so that the block may be away at the peak.
 *
 * The authors' code (memInfoSwap and pull request 412 of Apache SINGA) differs from their text. as_coded does what the
 * code does, so that it gives the recorded figures; otherwise it does what the text says:
 *
 *                                          as coded                         corrected
 *     DOA                                  the copy in is left out          duration less both copies
 *     WDOA                                 load[number of the candidate]    load at each event of the absence
 *     loads                                of the events named              of the same events of all iterations
 *     a copy that ends too late            a block leaves twice at one      a block leaves once
 *     copies in                            begin at the access, and are     begin so that they end at the access,
 *                                          delayed on paper only            or later, if the limit asks for it
 *     the first event is over the limit    counts as none is                counts
 *
 * In both, stalls are added up and shift nothing (ebb_plan_simulate is what knows better), and of equal scores the
 * candidate that is first in the list is first.
 *
 * Costs O(candidates * events), and of SWDOA and BO O(candidates ^ 2) more: each choice changes all loads.
 */
#ifndef EBB_SRC_AUTOSWAP_H
#define EBB_SRC_AUTOSWAP_H

#include "plan/plan_priv.h"

typedef enum ebb_autoswap_rule {
    EBB_AUTOSWAP_DOA,   /* the duration of absence, less the copies */
    EBB_AUTOSWAP_AOA,   /* the area: DOA times size, or if it is negative DOA over size */
    EBB_AUTOSWAP_WDOA,  /* the load while it is away, added up */
    EBB_AUTOSWAP_SWDOA, /* the same, with those away that were chosen before */
    EBB_AUTOSWAP_VOTE,  /* by the sum of its ranks by the first three */
    EBB_AUTOSWAP_BO,    /* a weighted sum of the first four, with the weights of least overhead (autoswap_mix.c) */
    EBB_AUTOSWAP_N_RULES
} ebb_autoswap_rule;
#define EBB_AUTOSWAP_N_SCORES 4u

typedef struct ebb_autoswap_block {
    uint32_t id, tier; /* the caller's */
    double bytes;
    int64_t leave, need; /* events of the two accesses: leave < peak < need; leave may be in the iteration before */
    int64_t ready;       /* the event at which it may begin to leave */
    double out_ns, in_ns;
    double score[EBB_AUTOSWAP_N_SCORES];
    int64_t gone, back; /* scheduled: away at the events [gone, back) */
} ebb_autoswap_block;

typedef struct ebb_autoswap {
    int64_t n;          /* events of an iteration */
    const double *time; /* [3 * n]: ns; event 0 is time[n] */
    const double *load; /* [3 * n]: bytes */
    ebb_autoswap_block *blocks;
    size_t n_blocks;
    bool as_coded;
    /* of the planner */
    ebb_bump *bump;
    double *now;   /* [3 * n]: the load, less what is away */
    double *sum;   /* [3 * n + 1]: of now, up to an event */
    size_t *order; /* [n_blocks]: from the highest score */
    size_t *mine;  /* [n_blocks]: for sorting */
    double *key;   /* [n_blocks]: what order is by */
} ebb_autoswap;

/* With the first members set, ready too: get memory from the bump and work out all scores but SWDOA, which only two
 * rules need. */
ebb_status ebb__autoswap_init(ebb_autoswap *a);

/* Put all candidates into order by a rule. limit_bytes is for BO alone: its weights are those of the least overhead
 * there. */
ebb_status ebb__autoswap_rank(ebb_autoswap *a, ebb_autoswap_rule rule, double limit_bytes);

/* How many candidates, from the first in order on, have to be away so that no event of an iteration has more than
 * limit_bytes. All of them where that is not enough: *peak_out is what is then left. */
size_t ebb__autoswap_select(ebb_autoswap *a, double limit_bytes, double *peak_out);

/* Schedule the first n of order under a limit. Returns the overhead in ns, as AutoSwap counts it. */
double ebb__autoswap_stick_to(ebb_autoswap *a, size_t n, double limit_bytes);

/* Schedule them without any overhead: what is away is so only where both copies are hidden. Returns the peak. */
double ebb__autoswap_no_overhead(ebb_autoswap *a, size_t n);

/* Copy indices by falling key, of equal ones in the order that they had. */
void ebb__autoswap_sort(ebb_autoswap *a, size_t *items, size_t n);

/* The order of least overhead that a mix of scores gives (autoswap_mix.c). */
ebb_status ebb__autoswap_mix(ebb_autoswap *a, double limit_bytes);

#endif
