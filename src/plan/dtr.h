/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the policies dtr and dtr-eq: what can be made again at all (dtr_chain.c), what evicting a
 * tensor is estimated to cost (dtr_price.c), and the walk that asks for it (policy_dtr.c).
 */
#ifndef EBB_SRC_DTR_H
#define EBB_SRC_DTR_H

#include "plan/plan_priv.h"

#define EBB_DTR_NONE UINT32_MAX

/* Visits of neighbours, for prices; about four seconds. Beyond it a plan is given up: it would take far longer than the
 * limit on recomputation allows, as a rule. */
#define EBB_DTR_MAX_VISITS ((uint64_t)1 << 30)

typedef enum ebb_dtr_where {
    EBB_DTR_AHEAD,   /* no step has made it yet */
    EBB_DTR_HERE,    /* on the device */
    EBB_DTR_EVICTED, /* it was, and can be made again */
    EBB_DTR_GONE,    /* it was, and nothing needs it any more */
} ebb_dtr_where;

typedef struct ebb_dtr_tensor {
    uint64_t bytes;
    uint64_t chain_ns;    /* what making it again takes by itself */
    uint64_t accessed_ns; /* DTR's clock when it was last needed */
    uint64_t region_ns;   /* what the evicted ones around it take; exact h, for one that is here */
    uint32_t end_step;    /* the last step that writes it; EBB_DTR_NONE: none does */
    uint32_t needed;      /* by the program, or to make another again, until this step is done */
    uint32_t released;    /* after so many steps */
    uint32_t locks;
    uint32_t before, after; /* in the list of those that may be evicted */
    uint32_t class;         /* of one that is evicted: its node in ebb_dtr_prices.nodes */
    ebb_dtr_where where;
    bool can_again, is_complete, is_listed, is_priced;
} ebb_dtr_tensor;

/* A step that is to run: one of the program, or one of a chain. */
typedef struct ebb_dtr_frame {
    uint32_t step, tensor; /* whose chain it is of; EBB_DTR_NONE: it is the program's */
    uint64_t use;          /* of tensor, that this step is */
    uint32_t input;        /* the access that is to be there next */
    size_t first_locked;
} ebb_dtr_frame;

/* A set of evicted tensors, or a part of one that is found through its parent. */
typedef struct ebb_dtr_class {
    uint32_t parent; /* itself: a root */
    int64_t sum_ns;  /* of a root */
} ebb_dtr_class;

typedef struct ebb_dtr_walk {
    const ebb_policy_input *input;
    ebb_draft *draft;
    ebb_program_view view;
    ebb_bump bump;
    ebb_uses uses;
    ebb_dtr_tensor *tensor; /* [n_tensors] */
    uint64_t *step_ns;      /* [n_steps] */
    uint32_t *next_write;   /* [n_accesses]: the next step that writes the tensor; n_steps: none */
    bool has_classes;       /* dtr-eq */

    uint64_t load_bytes; /* as DTR counts it */
    uint64_t clock_ns, again_ns, base_ns;
    uint64_t n_visits;
    uint32_t first, last; /* of the list of those that may be evicted */
    EBB_VEC(struct ebb_dtr_frame) frames;
    EBB_VEC(uint8_t) locked; /* of the inputs of all frames */
    EBB_VEC(ebb_dtr_class) classes;
    /* scratch of dtr_price.c */
    uint32_t *mark; /* [n_tensors] */
    uint32_t n_marks;
    EBB_VEC(uint32_t) stack;
} ebb_dtr_walk;

/* Which tensors can be made again once all steps that write them have run, by running these, and until when each is
 * needed. O(accesses). */
ebb_status ebb__dtr_find_chains(ebb_dtr_walk *w);

/* Tell the prices that a tensor was evicted, or is here again. */
ebb_status ebb__dtr_evicted(ebb_dtr_walk *w, uint32_t t);
ebb_status ebb__dtr_returned(ebb_dtr_walk *w, uint32_t t);

/* The time to make the evicted tensors around t again; t is here. */
ebb_status ebb__dtr_region_ns(ebb_dtr_walk *w, uint32_t t, uint64_t *ns_out);

#endif
