/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy best from inside: the walk that turns keys into a draft, what it weighs, and what a draft's time is.
 */
#ifndef EBB_SRC_BEST_H
#define EBB_SRC_BEST_H

#include "plan/bound.h"

#define EBB_BEST_NEVER UINT64_MAX
#define EBB_BEST_NONE UINT32_MAX
#define EBB_BEST_MAX_DEPTH 1024u /* of recomputations, each for the one before it */

/* What a search varies; a walk with the same keys makes the same draft. */
typedef struct ebb_best_keys {
    float *weight;     /* [n_tensors]: by how much a tensor's price is multiplied when one is chosen to leave; log 2 */
    float *copy;       /* [n_tensors]: the same for its copies alone */
    bool *no_again;    /* [n_tensors]: it may leave by a copy only */
    uint8_t *resident; /* [n_tensors]: persistent ones on the device where the circle closes */
    float link_price;  /* of a nanosecond of an engine that copies, in nanoseconds of computing; or times the duals */
    float reach;       /* exponent of the distance to the next use; or its weight beside the duals */
    float patience;    /* a slower tier is taken if its copies fit this many times into an absence; INFINITY: never */
    uint64_t limit_bytes; /* of the load */
    bool copies_only;     /* nothing is computed again */
    bool by_duals;        /* the duals say what room and copies are worth, and when */
    bool keeps_parts;     /* what a larger tensor is made of is wanted for as long as that is */
} ebb_best_keys;

/* The prices of the bound (bound.h), along the program. */
typedef struct ebb_best_duals {
    uint8_t *segment; /* [n_steps + 1]: in which a step is */
    double *upto;     /* [n_steps + 1]: what a byte costs that is there from the beginning until a step */
    double out[EBB_BOUND_PIVOTS + 1][EBB_BOUND_PIVOTS + 1]; /* the least price of a copy, from segment to segment */
    double in[EBB_BOUND_PIVOTS + 1][EBB_BOUND_PIVOTS + 1];
    uint32_t last_segment;
} ebb_best_duals;

/* How many nanoseconds of computing a nanosecond of copying costs where both go on, by tier: the copy then takes
 * longer, and computing is slower all the while. An average over the program's steps. */
typedef struct ebb_best_drag {
    double of[EBB_MAX_TIERS];
} ebb_best_drag;

/* The fields that are read most come first. */
typedef struct ebb_best_tensor {
    uint64_t bytes;             /* rounded up */
    uint64_t need;              /* the step by which it is wanted by the program or for what is computed again */
    double weight, copy_weight; /* 2 to the power of the keys */
    double ready_ns;            /* when its content was made */
    double out_ns;              /* when its copy has ended */
    double again_ns;            /* to compute it again as things are; below 0: not known */
    double chain_ns;            /* of the steps that made its content: no less to compute it again */
    uint64_t holds;             /* the step that first overwrites an input of its recomputation */
    uint64_t made;              /* the use that made its current version; NEVER: the iteration began with it */
    uint32_t locks;             /* it may not leave */
    uint32_t tier;              /* of its copy */
    bool copied;                /* its current version has a copy */
    bool is_floor;              /* again_ns is a lower bound: the search stopped there */
    bool never_written;
    bool never_again; /* by the keys it is not computed again */
    bool present;
    bool gone;        /* absent without a copy: it will be computed again, or is dead */
    bool waits;       /* for its need to be found */
    bool in_price;    /* gone, and counted in what it costs to compute another one again, as far as that is known */
    bool in_floor;    /* the same for a floor in the queue */
    uint32_t version; /* current at the step at hand, present or not */
    uint64_t use;     /* its first use at or after the step at hand; index into uses */
    uint64_t bound;   /* after the action that filled (or, absent, dropped) it: how early it may be copied */
} ebb_best_tensor;

/* A tensor in a queue: its score is not below this. */
typedef struct ebb_best_floor {
    double score;
    uint32_t tensor;
} ebb_best_floor;

/* The tensors on the device (best_queue.c). */
typedef struct ebb_best_queue {
    ebb_best_floor *entry; /* [n]: a heap; [n_tensors] at most */
    uint32_t *place;       /* [n_tensors]: in it; NONE */
    uint32_t n;
} ebb_best_queue;

/* Bytes that are dropped and free once their copy has ended. */
typedef struct ebb_best_pending {
    double end_ns;
    uint64_t bytes;
} ebb_best_pending;

typedef struct ebb_best_walk {
    const ebb_policy_input *input;
    const ebb_best_keys *keys;
    ebb_draft *draft;
    ebb_program_view view;
    ebb_bump bump;
    ebb_versions versions;
    ebb_uses uses;
    uint64_t *next_write; /* [n_accesses] by use: step of the tensor's first write there or after; NEVER */
    double *step_ns;      /* [n_steps] */
    double *begin_ns;     /* [n_steps + 1]: without waiting and without anything computed again */
    double *copy_ns;      /* [n_tensors * n_tiers * 2]: out to a tier, in from it */
    uint32_t n_tiers;
    uint32_t only_tier; /* that takes copies; EBB_MAX_TIERS: none does, or several do */
    bool has_spilled;   /* of the latest walk: what was copied found no room in the fastest tier */
    uint8_t out_engine[EBB_MAX_TIERS];
    ebb_best_drag drag;
    double *far;           /* [3 * n_steps + 2]: by distance, to the power of reach */
    ebb_best_duals *duals; /* NULL: they say nothing; no keys are by_duals then */
    bool *is_part;         /* [n_tensors]: its last use makes something at least as large from it */
    ebb_best_tensor *state;
    ebb_best_queue by_copy, by_again; /* by the scores of the two ways to leave */
    ebb_best_floor *aside;            /* [n_tensors]: taken from a queue for a moment */
    uint8_t queue_segment;            /* of the duals, for which by_copy is */
    uint32_t *waiting;                /* [n_tensors]: to be looked at */
    EBB_VEC(ebb_best_pending) pending;
    uint64_t pending_bytes;
    uint64_t limit_bytes, load, tier_used[EBB_MAX_TIERS];
    uint64_t step; /* at hand */
    uint64_t n_again, max_again;
    uint64_t max_looks;      /* a walk that passes it is given up */
    uint64_t n_looks;        /* at tensors, weighted: what choosing costs, whatever the machine */
    uint64_t looks_at_step;  /* n_looks when the latest step began, where it was compared with max_looks */
    double now_ns, limit_ns; /* of computing; a walk that takes longer is given up */
    double engine_ns[EBB_MAX_ENGINES];
    uint64_t engine_bound[EBB_MAX_ENGINES];    /* of the last copy on each, so that they keep their order */
    uint32_t depth, chain[EBB_BEST_MAX_DEPTH]; /* what is being computed again */
    uint32_t blocked; /* of a walk that found no room to compute something again: what had better be copied; NONE */
    float reach;      /* of far */
    uint32_t mark;
    uint32_t *tensor_mark, *step_mark;
    uint32_t *n_gone; /* [n_steps]: tensors that are gone and are computed again by this step, among others */
} ebb_best_walk;

/* ---- the walk (best_walk.c) --------------------------------------------------------------------- */

ebb_status ebb__best_walk_init(ebb_best_walk *w, const ebb_policy_input *input, ebb_draft *draft);
void ebb__best_walk_fini(ebb_best_walk *w);

/* Make a draft by these keys. EBB_E_NO_FIT without a message: there is none, or its computing, with its waits for
 * copies out, takes limit_ns or more before anything is pruned. With find_resident the resident ones are found first
 * and put into keys. */
ebb_status ebb__best_walk(ebb_best_walk *w, ebb_best_keys *keys, double limit_ns, bool find_resident);

/* ---- the bound's prices (best_duals.c) ----------------------------------------------------------- */

/* *duals_out comes from the walk's bump; NULL: room has no price, as all fits or nothing is known. *bound_ns_out: no
 * draft within the walk's limits is faster. */
ebb_status ebb__best_find_duals(ebb_best_walk *w, ebb_best_duals **duals_out, double *bound_ns_out);

/* What each byte is worth that is free from now until the tensor is needed again. */
double ebb__best_worth(const ebb_best_walk *w, uint64_t need);

/* The least price of a nanosecond of copying: out, between `from` and now; in, between now and `need`. */
double ebb__best_out_price(const ebb_best_walk *w, uint64_t from);
double ebb__best_in_price(const ebb_best_walk *w, uint64_t need);

/* ---- what leaves (best_price.c) ----------------------------------------------------------------- */

/* The step by which the current content is wanted by the program; n_steps: at the end; n_steps + 1 + s: by step s of
 * the next iteration; NEVER: it is dead. */
uint64_t ebb__best_find_need(const ebb_best_walk *w, uint32_t t);

/* The step of the next iteration by which something is needed; 0: it is needed in this one, or dead. */
static inline uint64_t ebb__best_next_lap(const ebb_best_walk *w, uint64_t need) {
    return need > w->view.n_steps && need != EBB_BEST_NEVER ? need - w->view.n_steps - 1 : 0;
}

/* The first use of the chain that makes t's current version; NEVER: it began before the iteration. */
uint64_t ebb__best_find_chain(const ebb_best_walk *w, uint32_t t);

/* An absent tensor without a copy is gone until it is computed again. */
void ebb__best_set_gone(ebb_best_walk *w, uint32_t t, bool gone);

/* What the program wants of a present tensor has changed: a step has used it, or an iteration begins. */
void ebb__best_set_need(ebb_best_walk *w, uint32_t t);

/* The step of the next write of a tensor, at the step at hand or after it; NEVER in this lap. */
uint64_t ebb__best_next_write(const ebb_best_walk *w, uint32_t t);

/* How the chosen one leaves. */
typedef enum ebb_best_way { EBB_BEST_DROP, EBB_BEST_AGAIN, EBB_BEST_COPY, EBB_BEST_STUCK } ebb_best_way;

/* Choose which tensor leaves next, among those large enough to matter for these bytes, and how; STUCK: none can. */
ebb_best_way ebb__best_choose(ebb_best_walk *w, uint64_t bytes, uint32_t *tensor_out);

/* What computing other tensors again costs has changed, because this one came or left. */
void ebb__best_changed(ebb_best_walk *w, uint32_t t);

static inline double ebb__best_copy_ns(const ebb_best_walk *w, uint32_t t, uint32_t tier, bool in) {
    return w->copy_ns[((size_t)t * w->n_tiers + tier) * 2 + in];
}

/* Where several tiers take copies: the fastest with room, or by the keys' patience the fastest of the others that has
 * time for both copies. EBB_MAX_TIERS: none has room. */
uint32_t ebb__best_pick_of_several(const ebb_best_walk *w, uint32_t t);

/* A tier with room for a copy of t; EBB_MAX_TIERS: none has. */
static inline uint32_t ebb__best_pick_tier(const ebb_best_walk *w, uint32_t t) {
    const uint32_t only = w->only_tier;
    if (only == EBB_MAX_TIERS) { return ebb__best_pick_of_several(w, t); }
    return ebb__has_room(w->input->tier_bytes[only], w->tier_used[only], w->state[t].bytes) ? only : EBB_MAX_TIERS;
}

/* ---- queues of those that may leave (best_queue.c) ----------------------------------------------- */

ebb_status ebb__best_queue_init(ebb_best_queue *q, ebb_bump *bump, size_t n_tensors);
void ebb__best_queue_empty(ebb_best_queue *q, size_t n_tensors);
void ebb__best_queue_add(ebb_best_queue *q, ebb_best_floor entry);
void ebb__best_queue_remove(ebb_best_queue *q, uint32_t t);
void ebb__best_queue_raise_top(ebb_best_queue *q, double score);

/* The score of a tensor may have become as low as this; nothing happens if it is not in the queue. all: every score
 * may have become lower. */
void ebb__best_queue_lower(ebb_best_queue *q, uint32_t t, double score);
void ebb__best_queue_lower_all(ebb_best_queue *q);

/* ---- afterwards (best_prune.c) ------------------------------------------------------------------ */

/* Take out of the walk's draft what is computed again and could stay. Drops of what has no copy are right after the
 * last action on their tensor, and must go there again. */
ebb_status ebb__best_prune(ebb_best_walk *w);

/* ---- local search (best_refine.c) ---------------------------------------------------------------- */

typedef struct ebb_refine_options {
    uint64_t limit_bytes;  /* of the load; the draft may be above it */
    const uint64_t *waste; /* [n_steps + 1]: bytes that placing wastes at each place (tape.h); NULL: none */
    uint64_t max_looks;    /* about */
    double heat;           /* of computing: a loss that is taken with a chance of 1 in e, at first */
    ebb_rng *rng;
    const struct ebb_tape_recipes *recipes; /* of the walk's program (tape.h) */
} ebb_refine_options;

/* Compute less again than a draft of the walk does, within a limit. draft becomes the best that is found, and means
 * nothing after a failure; w is for its program and its marks. EBB_E_NO_FIT without a message: the limit is not kept
 * with so few looks. */
ebb_status ebb__best_refine(ebb_best_walk *w, const ebb_draft *from, const ebb_refine_options *options,
                            ebb_draft *draft);

/* ---- from several drafts at once (best_lanes.c) -------------------------------------------------- */

#define EBB_BEST_LANES 4u

typedef struct ebb_best_lane {
    ebb_best_walk walk;
    ebb_draft at, found;
    bool has_draft;
    double time_ns; /* of at, estimated; INFINITY: there is none, or it is above the limit with what is wasted */
    bool is_stale;  /* at does not count what is wasted now */
    bool has_moved; /* at is another one since the last round */
    ebb_rng rng;
    ebb_refine_options options;
    ebb_status status; /* of its last round, and the message */
    char message[256];
} ebb_best_lane;

typedef struct ebb_best_lanes {
    ebb_policy_input own; /* with the highest limit of a lane */
    const ebb_policy_input *input;
    uint64_t low_limit_bytes; /* of the lane with the lowest: that of the walks */
    ebb_bump bump;
    struct ebb_tape_recipes *recipes; /* the same for all lanes and rounds */
    ebb_best_lane lane[EBB_BEST_LANES];
    uint32_t by_time[EBB_BEST_LANES]; /* the fastest first */
    bool is_wasting;                  /* what is wasted has counted before */
} ebb_best_lanes;

ebb_status ebb__best_lanes_init(ebb_best_lanes *lanes, const ebb_policy_input *input); /* fini also after a failure */
void ebb__best_lanes_fini(ebb_best_lanes *lanes);

/* A draft takes the slowest lane's place, if it is faster and no lane's draft takes as long. */
ebb_status ebb__best_lanes_offer(ebb_best_lanes *lanes, const ebb_draft *draft, double time_ns);

/* A lane's draft; its time stays the lane's. */
ebb_status ebb__best_lanes_copy(const ebb_best_lane *lane, ebb_draft *draft);

/* More is wasted from now on: drafts that are faster for not counting it no longer are. */
void ebb__best_lanes_renew(ebb_best_lanes *lanes);

/* One round of local search in each lane, within its limit for the load and what is wasted. What comes out does not
 * depend on how many threads do it. */
ebb_status ebb__best_lanes_run(ebb_best_lanes *lanes, const uint64_t *waste, uint64_t max_looks);

/* ---- several walks at once (best_hands.c) -------------------------------------------------------- */

#define EBB_BEST_HANDS 4u

/* One walk with keys of its own, and what came of it. */
typedef struct ebb_best_hand {
    ebb_best_walk walk;
    ebb_draft draft;
    ebb_best_keys keys;
    ebb_rng rng_after; /* the caller's: random numbers as they are after those that these keys took */
    float dice;        /* the caller's */
    /* to do */
    uint64_t max_looks;       /* that the walk may take */
    uint64_t max_lower_looks; /* the same for all walks with lower limits */
    double limit_ns;          /* a walk that takes longer is given up */
    double place_ns; /* a draft that seems faster is placed and simulated. If it cannot be placed, the hand walks
                        again with a lower limit in its keys, a few times */
    bool find_resident;
    /* done */
    ebb_status status; /* and its message */
    char message[256];
    double time_ns;             /* estimated; INFINITY: no draft */
    double placed_ns;           /* simulated; INFINITY: its places are not within the budget, or it was not placed */
    uint64_t placed_bytes;      /* what it needs then */
    uint32_t n_lowered;         /* how often the keys' limit was lowered */
    uint64_t first_limit_bytes; /* what it was */
    uint64_t n_looks, looks_at_step; /* of the first walk */
    uint64_t n_lower_looks;
} ebb_best_hand;

ebb_status ebb__best_hands_init(ebb_best_hand *hands, uint32_t n, const ebb_policy_input *input); /* fini also after a
                                                                                                     failure */
void ebb__best_hands_fini(ebb_best_hand *hands, uint32_t n);

/* Do what the first n hands have to do, on as many threads. */
void ebb__best_hands_run(ebb_best_hand *hands, uint32_t n);

/* Place a draft and simulate it. *bytes_out: what it needs then; *time_ns_out is INFINITY if that is above the budget.
 * over and load, if any: as below. */
ebb_status ebb__best_place(const ebb_policy_input *input, const ebb_draft *draft, uint64_t work, double *time_ns_out,
                           uint64_t *bytes_out, uint64_t *over, uint64_t *load);

/* Where a plan counts as above the budget: where a stack of tensors is, or all the time that the top tensor stays. */
typedef enum ebb_excess { EBB_EXCESS_STACKS, EBB_EXCESS_STAYS } ebb_excess;

/* At each place, by how much a placed plan is above the budget (best_excess.c). over: [n_steps + 1]. load: as
 * many, the most bytes that are on the device there, without what placing wastes; or NULL. */
ebb_status ebb__best_find_excess(const ebb_plan *plan, uint64_t budget_bytes, ebb_excess what, uint64_t *over,
                                 uint64_t *load);

/* The same with the hand's draft: placed_ns, placed_bytes. */
ebb_status ebb__best_hand_place(ebb_best_hand *hand, uint64_t work, uint64_t *over, uint64_t *load);

ebb_status ebb__best_keys_init(ebb_best_keys *keys, ebb_bump *bump, size_t n_tensors, uint64_t limit_bytes);
void ebb__best_keys_copy(ebb_best_keys *to, const ebb_best_keys *from, size_t n_tensors);

/* ---- time (best_time.c) ------------------------------------------------------------------------- */

void ebb__best_find_drag(const ebb_policy_input *input, ebb_best_drag *drag);

/* What an iteration of a draft takes, its places not known yet: freed bytes are one heap. */
ebb_status ebb__best_time(const ebb_policy_input *input, const ebb_best_drag *drag, const ebb_draft *draft,
                          double *time_ns_out);

/* Move each drop whose copy out is still going on to where its bytes are free: before the first action that begins when
 * the copy has ended, or that waits for it, with this limit for the load. The draft takes as long as before, but its
 * load now includes the bytes that are still being copied. A copy that has not ended by the end of the iteration moves
 * no drop. */
ebb_status ebb__best_settle(const ebb_policy_input *input, const ebb_best_drag *drag, uint64_t limit_bytes,
                            ebb_draft *draft);

#endif
