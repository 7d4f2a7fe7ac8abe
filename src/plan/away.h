/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensors are away, and when: the decisions of a plan that copies. The policy swap searches for them, and g10
 * makes them by a rule.
 *
 * A gap is the time between two uses of a tensor, one after the other, in which its content is not needed. A tensor
 * can have several, around all peaks; the gap of a persistent tensor after its last use reaches into the next
 * iteration. A set of gaps is followed through two iterations, of which the second is the steady one:
 *
 *      a copy out    begins when the content has been made and the engine is free, even if it is read until the gap
 *                    begins. What leaves first is copied first. What nothing wrote since its last copy is not copied
 *
 *      a drop        comes as late as it can: where a step or a copy in wants the room. What wants it waits for the
 *                    copy out. With several tiers, what is copied out first is dropped first
 *
 *      a copy in     begins so late that it and those after it end in time, or as soon after that as there is room
 *
 * Copies go to the fastest tier at first. All those of a tensor may go to another (ebb__away_move), or those of one gap
 * alone (ebb__away_send).
 *
 *      computing again   instead of the copies, if that is allowed (may_again): a tensor is dropped at once, and made
 *                    again where the gap ends. Only of tensors that steps make which make nothing else, in an
 *                    iteration once; what these steps read has to be on the device there (ebb__away_allows)
 *
 *      parts         a large tensor may leave in parts, each at its own time. One that is computed again leaves as
 *                    a whole
 *
 * Tensors that are small beside the limit stay. Steps between which no gap begins or ends are looked at as one, a
 * place.
 *
 * Freed bytes are one heap, as in best_time.c: where they lie is the placer's affair. What is never dropped does not
 * have to be copied.
 */
#ifndef EBB_SRC_AWAY_H
#define EBB_SRC_AWAY_H

#include "plan/plan_priv.h"

typedef struct ebb_away_gap {
    uint32_t tensor, tier;
    uint32_t leave, need;  /* places of the uses around it; a need above n is in the next iteration, that of n itself is
                              the end, where the tensor is kept */
    uint32_t ready;        /* the first place before which the copy out may go */
    uint32_t version;      /* gaps with the same one have the same content */
    uint32_t next_version; /* of the tensor when the next iteration begins */
    bool has_copy;         /* always: nothing ever writes the tensor */
    uint64_t begin, size_bytes; /* which bytes of the tensor, as actions have them */
    uint64_t bytes;             /* rounded up */
    double out_ns, in_ns;
    /* of the latest run */
    uint32_t out, drop, in; /* the places before which it is copied out, dropped and copied in */
    double out_end_ns, in_end_ns;
    bool copies_out, is_dropped;
} ebb_away_gap;

/* Into how many parts a large tensor may be split; 1: it leaves as a whole. */
typedef struct ebb_away_split {
    uint32_t passing;    /* one that lives within an iteration */
    uint32_t persistent; /* one that goes on living around its end */
} ebb_away_split;
#define EBB_AWAY_WHOLE ((ebb_away_split){1, 1})

typedef struct ebb_away {
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_bump bump;
    uint32_t n_tiers;   /* of the machine */
    uint32_t n;         /* places */
    uint32_t *step;     /* [n + 1]: the first of each place */
    double *begin_ns;   /* [n + 1]: if nothing waits */
    double *meant_ns;   /* [n + 1]: when places are taken to begin, to time copies in */
    double *run_ns;     /* [n + 1]: when they began in the latest run */
    int64_t *base;      /* [n]: the load if nothing leaves */
    int64_t *load;      /* [n]: if all that is chosen leaves */
    ebb_away_gap *gaps; /* by leave */
    uint32_t n_gaps;
    bool *chosen; /* [n_gaps] */
    ebb_away_split split;
    bool *again;                              /* [n_tensors]: is computed again where a gap ends */
    uint32_t *gap_start;                      /* [n_tensors + 1]: where the gaps of each begin in gap_of */
    bool may_again;                           /* tensors may be computed again; else the next seven are NULL */
    bool *can_again;                          /* [n_tensors] */
    double *again_ns;                         /* [n_tensors] */
    uint32_t *gap_of;                         /* [n_gaps]: by tensor */
    uint32_t *reads, *read_start;             /* what its steps read: read_start[t] .. read_start[t + 1] */
    uint32_t *makes, *make_start;             /* the other way round */
    uint32_t *by_need;                        /* [n_gaps]: from the first to be needed within an iteration */
    uint32_t *leaving, *returning, *arriving; /* [n_gaps]: of a run: the chosen ones by leave, by need, by in */
    bool *has_out;                            /* [n_versions]: of a run */
    uint32_t n_versions;
    uint32_t n_chosen;                 /* of the latest run */
    uint32_t *n_away;                  /* [n_tensors]: chosen gaps */
    uint8_t *tier;                     /* [n_tensors]: of its copies; likewise */
    uint64_t tier_used[EBB_MAX_TIERS]; /* bytes of tensors with chosen gaps; not kept where ebb__away_send is used */
    bool drops_early;  /* a drop comes as soon as its copy out has ended; the room is then easier to place in */
    uint64_t n_visits; /* of places and gaps: what runs cost */
} ebb_away;

/* fini also after a failure. */
ebb_status ebb__away_init(ebb_away *away, const ebb_policy_input *input, bool may_again, ebb_away_split split);
void ebb__away_fini(ebb_away *away);

/* Choose a gap, or take it back. If its tensor is computed again, the gaps of its other parts follow. */
void ebb__away_set(ebb_away *away, uint32_t gap, bool chosen);

/* Copies of a tensor go to another tier from now on, for all its gaps. */
void ebb__away_move(ebb_away *away, uint32_t tensor, uint32_t tier);

/* A tensor is computed again from now on, or copied. */
void ebb__away_compute(ebb_away *away, uint32_t tensor, bool again);

/* Whether, if a gap is chosen, what is read to compute something again is still on the device then. */
bool ebb__away_allows(const ebb_away *away, uint32_t gap);

/* Copies of one gap, which is not chosen yet, go to a tier, wherever those of the tensor's other gaps go. Who calls
 * this counts the bytes of tiers: ebb__away_has_room and ebb__away_is_over do not. */
void ebb__away_send(ebb_away *away, uint32_t gap, uint32_t tier);

/* Whether a tensor is large beside the limit. */
bool ebb__away_is_large(const ebb_policy_input *input, const ebb_tensor *tensor);

/* What a load must keep within, as loads are counted. */
static inline int64_t ebb__away_limit(const ebb_away *away) {
    return (int64_t)ebb_min_u64(away->input->limit_bytes, INT64_MAX);
}

/* How long a gap takes if nothing waits. */
double ebb__away_gap_ns(const ebb_away *away, const ebb_away_gap *gap);

/* Whether a gap's tensor is away at a place of an iteration if it is chosen. */
bool ebb__away_covers(const ebb_away *away, const ebb_away_gap *gap, uint32_t place);

/* What a tensor takes on a tier as soon as one of its parts is there. */
uint64_t ebb__away_tensor_bytes(const ebb_away *away, uint32_t tensor);

/* Whether a tier holds a copy of a gap's tensor beside those of all that are chosen. */
bool ebb__away_has_room(const ebb_away *away, uint32_t gap, uint32_t tier);

/* Whether a tier holds more than it may. */
bool ebb__away_is_over(const ebb_away *away, uint32_t tier);

/* The place with the highest load if all that is chosen leaves. */
uint32_t ebb__away_peak(const ebb_away *away);

/* What an iteration takes with the chosen gaps, if no load is above the limit. */
double ebb__away_run(ebb_away *away);

/* Write the latest run as a draft. */
ebb_status ebb__away_draft(ebb_away *away, ebb_draft *draft);

#endif
