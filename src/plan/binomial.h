/* SPDX-License-Identifier: Apache-2.0
 *
 * Binomial checkpointing of the stages of the forward pass: what is kept in a fixed number of slots, and what is
 * computed again, so that the fewest stages run again.
 */
#ifndef EBB_SRC_BINOMIAL_H
#define EBB_SRC_BINOMIAL_H

#include "plan/stages.h"

typedef enum ebb_binomial_kind {
    EBB_BINOMIAL_REVOLVE, /* a slot holds what a stage begins with */
    EBB_BINOMIAL_MIXED    /* or what the backward pass reads of a stage */
} ebb_binomial_kind;

/* Mixed looks its schedule up in a table of stages times slots. */
#define EBB_BINOMIAL_MAX_STAGES 512u
#define EBB_BINOMIAL_MAX_SLOTS 64u

typedef struct ebb_binomial ebb_binomial;
/* For up to n_stages and n_slots of them, both at least 1. From the bump. */
ebb_status ebb__binomial_create(ebb_binomial_kind kind, uint32_t n_stages, uint32_t n_slots, ebb_bump *bump,
                                ebb_binomial **binomial_out);

/* What to do where n stages are to be reversed from a restart, with so many slots free, its own one included: keep what
 * stage 0 begins with and go on to stage *advance_out (true), or keep what the backward pass reads of stage 0 and go on
 * to stage 1 (false). n is 2 or more; there is a free slot. */
bool ebb__binomial_decide(const ebb_binomial *binomial, uint32_t n, uint32_t n_slots, uint32_t *advance_out);

/* The computations of r, of which only what has a stage is dropped, with so many slots. What the program begins with
 * takes one. EBB_E_NO_FIT without a message: more steps would run again than ebb__remake_sequence allows. */
ebb_status ebb__binomial_sequence(ebb_remake *r, const ebb_stages *stages, const ebb_binomial *binomial,
                                  uint32_t n_slots, ebb_sequence *sequence);

#endif
