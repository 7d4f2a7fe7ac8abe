/* SPDX-License-Identifier: Apache-2.0
 *
 * Making plans by one policy for one program, machine and budget: with one choice of algorithm for each step, which may
 * be another for the next plan.
 */
#ifndef EBB_SRC_MAKER_H
#define EBB_SRC_MAKER_H

#include "plan/plan_priv.h"

typedef struct ebb_maker {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_plan_options *options;
    const ebb_policy *policy;
    const ebb_mem *mem;
    ebb_machine *nominal; /* round figures, for the last word on what fits */
    uint64_t alignment, fingerprint;
    bool is_large;
    bool is_hasty; /* little work is spent on placing, and the first plan that fits will do: no higher limit is tried,
                      no lower peak looked for */
    ebb_draft draft;
    /* of the choices at hand */
    const uint32_t *choice;  /* [n_steps]; NULL: 0 everywhere */
    uint64_t floor_bytes;    /* most bytes that one step touches */
    uint32_t floor_step;     /* which */
    uint64_t liveness_bytes; /* what liveness needs, placed; 0: unknown */
    uint64_t last_bytes;     /* what the last try needs, placed; 0: unknown; UINT64_MAX: it is no plan at any budget */
} ebb_maker;

/* Keeps the arguments; the choices are 0. */
ebb_status ebb__maker_init(ebb_maker *m, const ebb_program *program, const ebb_machine *machine,
                           const ebb_plan_options *options, const ebb_policy *policy);
void ebb__maker_fini(ebb_maker *m);

/* From now on with these, which are borrowed until others come. */
void ebb__maker_choose(ebb_maker *m, const uint32_t *choice);

/* A plan, not sealed yet. EBB_E_NO_FIT: there is none; no message. */
ebb_status ebb__maker_try(ebb_maker *m, ebb_plan **plan_out);

/* The same, and where there is none the least budget is searched and said. */
ebb_status ebb__maker_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

/* Offsets within the limits for a plan whose stays have changed. EBB_E_NO_FIT without a message: none were found. */
ebb_status ebb__maker_place(const ebb_maker *m, ebb_plan *plan);

/* ---- choices of algorithm (algorithms.c, fitting.c) -------------------------------------------- */

/* The choice of each step where each is by itself: all but fitting. */
void ebb__algorithms_choose(const ebb_program *program, const ebb_machine *machine, ebb_algorithms how,
                            uint32_t *choice_out);

/* The fastest plan found over the choices of all steps. Not faster than it: the plans of given, least and fastest.
 * EBB_E_NO_FIT: none of these fits, with least's least budget. */
ebb_status ebb__fitting_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

#endif
