/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy budget from inside: the state of its walk, which the search for recomputations reads.
 */
#ifndef EBB_SRC_BUDGET_H
#define EBB_SRC_BUDGET_H

#include "plan/plan_priv.h"

#define EBB_BUDGET_NEVER UINT64_MAX
#define EBB_BUDGET_MAX_LEAVES 512

typedef struct ebb_budget_tensor {
    uint64_t bytes;   /* rounded up */
    uint64_t use;     /* its first use at or after the step at hand; index into uses */
    uint64_t made;    /* the use that made its current version; NEVER: the iteration began with it */
    uint64_t bound;   /* after the action that filled (or, absent, dropped) it: how early it may be copied */
    uint64_t needed;  /* one past the last step at which a recomputation means to read it; 0: none */
    uint32_t burden;  /* how many steps those recomputations run at most, nested */
    uint32_t version; /* current at the step at hand, present or not */
    uint32_t locks;   /* it may not leave */
    uint32_t stamp;   /* of its latest entry in the heap */
    uint32_t tier;    /* of its copy */
    bool copied;      /* its current version has a copy */
    bool present;
} ebb_budget_tensor;

/* A candidate for leaving; valid while stamp is the tensor's. */
typedef struct ebb_budget_entry {
    uint64_t need, bytes;
    uint32_t tensor, stamp;
} ebb_budget_entry;

/* A link in the list of tensors that are no longer needed after some step. */
typedef struct ebb_budget_expiry {
    uint32_t tensor, next;
} ebb_budget_expiry;

/* What must be run to make a tensor again by some step, and what is then read that must be at hand. */
typedef struct ebb_budget_closure {
    uint64_t horizon;  /* the step by which it is wanted: versions must hold until then */
    uint64_t limit_ns; /* dearer is of no interest */
    uint64_t cost_ns;
    uint32_t n_steps, n_leaves;
    uint32_t leaves[EBB_BUDGET_MAX_LEAVES];
} ebb_budget_closure;

typedef struct ebb_budget_walk {
    const ebb_policy_input *input;
    ebb_draft *draft;
    ebb_program_view view;
    ebb_bump bump;
    ebb_versions versions;
    ebb_uses uses;
    uint64_t *next_write; /* [n_accesses] by use: step of the tensor's first write there or after; NEVER */
    uint64_t *step_ns;    /* [n_steps] */
    uint8_t *copy_only;   /* [n_tensors]: not to be computed again; stays from one try to the next */
    ebb_budget_tensor *state;
    EBB_VEC(ebb_budget_entry) heap;
    EBB_VEC(ebb_budget_entry) stuck; /* popped, but could not leave */
    uint64_t load, tier_used[EBB_MAX_TIERS];
    uint64_t step; /* at hand */
    uint64_t n_again, max_again;
    uint32_t depth;     /* of nested recomputations */
    bool stuck_retried; /* within this step */
    bool gave_up;       /* on a recomputation: this lap is good for nothing but to learn */
    bool copies_only;   /* nothing is computed again */
    uint32_t mark;      /* of the search at hand */
    uint32_t *tensor_mark, *step_mark;
    EBB_VEC(ebb_budget_expiry) expiries;
    uint32_t *expiry_head; /* [n_steps + 1]: the first of those to look at after a step */
    ebb_budget_closure closure;
} ebb_budget_walk;

ebb_status ebb__budget_push(ebb_budget_walk *w, ebb_budget_entry entry);
ebb_budget_entry ebb__budget_pop(ebb_budget_walk *w); /* the heap is not empty */

/* Whether load and copies add up, and all that may leave can be found. Quadratic: of small walks only. */
bool ebb__budget_walk_is_valid(const ebb_budget_walk *w);
#define EBB_BUDGET_MAX_WALKED 64u /* tensors */

/* Step of the next write of a tensor, at the step at hand or after it; NEVER in this lap. */
uint64_t ebb__budget_next_write(const ebb_budget_walk *w, uint32_t t);

/* Find what it takes to make t's current version again at step horizon, into w->closure. false: it cannot be
 * done, or takes limit_ns or more. */
bool ebb__budget_find_closure(ebb_budget_walk *w, uint32_t t, uint64_t horizon, uint64_t limit_ns);

/* ---- of every walk over a program (policy_budget.c) ---------------------------------------------- */

/* By use: the step of its tensor's first write there or after; NEVER. */
ebb_status ebb__budget_find_next_writes(const ebb_program_view *view, const ebb_uses *uses, ebb_bump *bump,
                                        uint64_t **next_write_out);

/* A lap begins with copies where there was room. What reads them reads those that the lap before ended with: on the
 * tier of the last copy out. */
ebb_status ebb__budget_close_copies(const ebb_policy_input *input, ebb_draft *draft);

#endif
