/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation by rules: what is dropped after its last use in the forward pass, and made again in the backward pass.
 *
 * A tensor that can be made again is the largest that its step writes; what else the step writes (statistics, masks)
 * comes with it. The steps that make it are forward steps that may run again, and find the versions that they read at
 * every time at which the tensor is needed.
 *
 * A segment is a set of dropped tensors that are made from each other: what lies between two checkpoints. In a graph
 * with branches it may have several beginnings and ends.
 */
#ifndef EBB_SRC_REMAKE_H
#define EBB_SRC_REMAKE_H

#include "plan/sequence.h"

typedef struct ebb_remake {
    const ebb_policy_input *input;
    ebb_program_view view;
    ebb_bump bump;
    ebb_uses uses;
    uint64_t *later_write; /* [n_accesses]: the next step that writes the tensor; UINT64_MAX: none */
    uint64_t *makers_end; /* [n_tensors]: the steps that make it forward are those of its uses before this that write */
    bool *can_drop;       /* [n_tensors]: it could be made again */
    bool *is_dropped;     /* [n_tensors] */
    uint64_t *until;      /* [n_tensors]: the last step for which it can be made again */
    uint64_t *end;        /* [n_tensors]: the step that overwrites it after the forward pass; UINT64_MAX: none */
    uint32_t *segment;    /* [n_tensors]: of a dropped one: the smallest tensor of its segment */
    bool *is_memory;      /* [n_tensors]: of a segment: it is made again for each step that needs it */
} ebb_remake;

/* Find the tensors that can be dropped; none is yet. */
ebb_status ebb__remake_init(ebb_remake *r, const ebb_policy_input *input);
void ebb__remake_fini(ebb_remake *r);

/* After is_dropped has been set, only where can_drop is: take back what cannot be made again because of others, and
 * find the segments. */
ebb_status ebb__remake_find_segments(ebb_remake *r);

/* The computations, with each segment made again as is_memory says: once, at the first need, and kept (speed), or for
 * each step that needs something of it, after which only what the next such step needs too is kept (memory). Memory
 * takes O(n^2) steps for a segment of n; where it comes to more than 64 for each step of the program, the rest is made
 * once. */
ebb_status ebb__remake_sequence(ebb_remake *r, ebb_sequence *sequence);

/* Making again what a rule of its own wants, computation by computation. */
typedef struct ebb_rewalk {
    ebb_remake *r;
    ebb_sequence *sequence;
    bool *is_there;          /* [n_tensors]: a dropped tensor that has been made again, or that was not dropped */
    EBB_VEC(uint32_t) open;  /* tensors whose makers are still to be collected */
    EBB_VEC(uint32_t) made;  /* of memory segments, since the last step */
    EBB_VEC(uint32_t) again; /* steps to be run */
    uint64_t n_again, max_again;
} ebb_rewalk;

/* Nothing is there yet. The array comes from the bump of r. */
ebb_status ebb__rewalk_init(ebb_rewalk *w, ebb_remake *r, ebb_sequence *sequence);
void ebb__rewalk_fini(ebb_rewalk *w);

/* A dropped tensor is to be there; nothing happens if it is. */
ebb_status ebb__rewalk_want(ebb_rewalk *w, uint32_t t);

/* Run the makers of what is wanted and of what they read, in the program's order. */
ebb_status ebb__rewalk_make(ebb_rewalk *w);

/* Whether step s, of the backward pass, reads a tensor as it was made forward, and dropped. */
static inline bool ebb__remake_needs(const ebb_remake *r, const ebb_access *access, uint32_t s) {
    return r->is_dropped[access->tensor] && (access->mode & EBB_READ) != 0 && s <= r->end[access->tensor];
}

static inline bool ebb__remake_is_forward(const ebb_remake *r, uint32_t step) {
    return r->view.steps[step].phase == EBB_PHASE_FORWARD;
}

/* SuperNeurons' cost-aware sequence (policy_recompute.c). */
ebb_status ebb__recompute_cost_aware(const ebb_policy_input *input, ebb_sequence *sequence);

#endif
