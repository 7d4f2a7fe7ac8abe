/* SPDX-License-Identifier: Apache-2.0
 *
 * Making plans by one policy for one program, machine and budget: with one choice of algorithm for each step, which may
 * be another for the next plan.
 */
#ifndef EBB_SRC_MAKER_H
#define EBB_SRC_MAKER_H

#include "plan/plan_priv.h"

#define EBB_MAKER_NOMINAL 3u

/* A limit on the load. need_bytes: what its plan on each nominal machine needs; a lower bound until the plan is placed,
 * then exact. UINT64_MAX: there is no such plan. */
typedef struct ebb_rung {
    uint64_t limit_bytes, need_bytes[EBB_MAKER_NOMINAL];
} ebb_rung;
typedef EBB_VEC(ebb_rung) ebb_ladder;

/* A program with its steps in an order whose load is lower. */
typedef struct ebb_reordered {
    ebb_program *program;
    uint32_t *order;  /* [n_steps]: the step at each place */
    uint32_t *choice; /* [n_steps]: by place; NULL: 0 everywhere */
} ebb_reordered;

#define EBB_SMALL_STEPS 300u /* of a program that is worth more tries, because plans take a fraction of a second */

typedef struct ebb_maker {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_plan_options *options;
    const ebb_policy *policy;
    const ebb_mem *mem;
    ebb_machine *nominal[EBB_MAKER_NOMINAL]; /* their times are fixed; they decide what fits */
    uint32_t n_nominal;                      /* how many are asked */
    uint64_t n_ladder_parts;
    uint64_t alignment, fingerprint;
    uint32_t effort, other; /* of the draft at hand */
    bool is_small, is_large;
    bool is_hasty; /* little work is spent on placing, and the first plan that fits will do: no higher limit is tried,
                      no lower peak looked for, no nominal machine asked */
    bool first_will_do; /* while there is a first plan, no other order, rival or search is tried */
    bool is_first;      /* it is being made: the placer makes its first sweep alone */
    bool walks;         /* for it the policy makes a walk, which is slower than the rule of haste, and better */
    ebb_draft draft;
    /* of the choices at hand */
    const uint32_t *choice;  /* [n_steps]; NULL: 0 everywhere */
    uint64_t floor_bytes;    /* most bytes that one step touches: no plan needs less */
    uint32_t floor_step;     /* which */
    uint64_t fitting_bytes;  /* what the plan needs that is taken where it fits, placed; 0: unknown */
    uint64_t least_bytes;    /* the least budget with a plan; 0: unknown */
    ebb_reordered reordered; /* without a program if no order has a lower load, or none was looked for yet */
    bool is_order_known;
    bool is_turned;         /* drafts are made for the reordered program */
    uint64_t to_beat_ns;    /* plans that are not faster are worth little work; UINT64_MAX: there is nothing to beat */
    uint64_t unsearched_ns; /* what the fastest own plan takes before a search */
    double loss;            /* peak over load of a nominal machine's plan, of a large program; 1: not known */
    struct ebb_best_kept *kept; /* first walks that a search goes on from */
    ebb_ladder rungs;           /* of the policy at hand, as far as they were needed, from the lowest */
} ebb_maker;

/* Keeps the arguments; the choices are 0. */
ebb_status ebb__maker_init(ebb_maker *m, const ebb_program *program, const ebb_machine *machine,
                           const ebb_plan_options *options, const ebb_policy *policy);
void ebb__maker_fini(ebb_maker *m);

/* From now on with these, which are borrowed until others come. */
void ebb__maker_choose(ebb_maker *m, const uint32_t *choice);

/* With the choices at hand no plan within the budget is faster than this. It is not looked for beyond stop_ns. */
ebb_status ebb__maker_bound(ebb_maker *m, uint64_t stop_ns, uint64_t *bound_ns_out);

/* A plan, not sealed yet. EBB_E_NO_FIT: none; no message. */
ebb_status ebb__maker_try(ebb_maker *m, ebb_plan **plan_out);

/* The same, and if none exists the least budget is searched and said. */
ebb_status ebb__maker_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

/* The least budget with a plan for these choices: ebb__maker_try has a plan from there on, and none below, whatever the
 * machine. A plan with the machine's own times may need less, by chance; it is not asked, since it is another one in
 * the next run. */
ebb_status ebb__maker_find_least(ebb_maker *m, uint64_t *least_out);

/* Fail with EBB_E_NO_FIT and a message that names least_bytes. */
ebb_status ebb__maker_refuse(const ebb_maker *m, uint64_t least_bytes, ebb_no_fit *no_fit_out);

/* Offsets within the limits for a plan whose stays have changed. EBB_E_NO_FIT without a message: none were found. */
ebb_status ebb__maker_place(const ebb_maker *m, ebb_plan *plan);

/* What the plan's iteration takes on the machine. */
ebb_status ebb__maker_time(const ebb_maker *m, const ebb_plan *plan, uint64_t *time_ns_out);
ebb_status ebb__maker_is_faster(const ebb_maker *m, const ebb_plan *a, const ebb_plan *b, bool *faster_out);

/* ---- one policy within a budget (maker.c), several (contest.c) ------------------------------------- */

/* EBB_E_NO_FIT of all these has no message: there is no such plan. A policy that keeps a limit, in every way; with the
 * machine's own times, or with a nominal machine's; one that keeps none. */
ebb_status ebb__maker_fit(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out);
ebb_status ebb__maker_fit_own(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out);
ebb_status ebb__maker_fit_nominal(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out);
ebb_status ebb__maker_try_fixed(ebb_maker *m, ebb_plan **plan_out);

/* A plan that fits; the highest limit that is known to fit, or a lower one whose plan is faster; and the lowest higher
 * limit that is known to fail, else the budget. */
typedef struct ebb_fitted {
    ebb_plan *plan;
    uint64_t limit_bytes, failed_bytes;
    bool is_turned; /* it is for the reordered program */
} ebb_fitted;

/* The two halves of ebb__maker_fit_own: the plan before a search, and a search from there on. After a failure of the
 * second f->plan is still the caller's. */
ebb_status ebb__maker_fit_unsearched(ebb_maker *m, uint64_t budget_bytes, ebb_fitted *f_out);
ebb_status ebb__maker_search_on(ebb_maker *m, uint64_t budget_bytes, ebb_fitted *f);

/* The fastest of a policy's plan and its rivals'. */
ebb_status ebb__contest(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out);

/* The fastest plan of those policies that may need less than the maker's own, which has none within the budget. Lowers
 * m->least_bytes, which is known, to the least that one of them needs. */
ebb_status ebb__contest_below(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out);

/* ---- another order (maker_order.c) ------------------------------------------------------------------ */

/* Whether drafts for another order of steps may be made. */
bool ebb__maker_may_reorder(const ebb_maker *m);
/* Look once for an order whose load is lower by more than a little. */
ebb_status ebb__maker_find_order(ebb_maker *m);
/* What another maker with the same program and choices knows. */
ebb_status ebb__maker_copy_order(ebb_maker *m, const ebb_maker *from);
/* The choices change: forget it, and walks that were kept. */
void ebb__maker_forget_order(ebb_maker *m);

/* ---- rungs (ladder.c) ----------------------------------------------------------------------------- */

/* Begin a ladder for another policy or way; gives the one at hand, which goes back when it is over. */
ebb_ladder ebb__ladder_begin(ebb_maker *m);
void ebb__ladder_end(ebb_maker *m, ebb_ladder former);
/* Make all rungs up to these bytes, and the one above them. */
ebb_status ebb__ladder_extend(ebb_maker *m, uint64_t bytes);
/* The highest rung that is not above these bytes, or the lowest of all. */
ebb_status ebb__ladder_find(ebb_maker *m, uint64_t bytes, size_t *rung_out);

/* ---- nominal machines (nominal.c) --------------------------------------------------------------- */

/* A machine with the tiers of another one and nominal times, the caller's; which: below EBB_MAKER_NOMINAL. */
ebb_status ebb__nominal_machine(const ebb_mem *mem, const ebb_machine *like, uint32_t which, ebb_machine **machine_out);

/* ---- choices of algorithm (algorithms.c, fitting.c, greedy.c) ---------------------------------- */

/* The choice of each step where each is by itself: all but fitting and greedy. */
void ebb__algorithms_choose(const ebb_program *program, const ebb_machine *machine, ebb_algorithms how,
                            uint32_t *choice_out);

/* Fill an empty plan with the actions of another one, but with these choices, and scratch accordingly. Offsets are to
 * be found. */
ebb_status ebb__algorithms_apply(const ebb_program *program, const ebb_plan *plan, const uint32_t *choice,
                                 ebb_plan *copy);

/* The plan of least, with faster choices where the bytes that are free at a step hold their scratch. EBB_E_NO_FIT: that
 * of ebb__maker_make with least. */
ebb_status ebb__greedy_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

/* The fastest plan found over the choices of all steps. Not faster than it: the plans of given, least and fastest.
 * EBB_E_NO_FIT: none of these fits, with the least budget of the three. */
ebb_status ebb__fitting_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out);

#endif
