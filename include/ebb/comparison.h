/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans side by side: for one program and machine, a plan by each of some policies for each of some budgets, with its
 * figures, beside what no plan can beat. It is what `ebb compare` shows, and the curve of `ebb plan --curve`.
 */
#ifndef EBB_COMPARISON_H
#define EBB_COMPARISON_H

#include "ebb/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_comparison ebb_comparison;

typedef struct ebb_comparison_options {
    size_t size_bytes;
    ebb_plan_options plan; /* of each plan; policy and budget_bytes are not looked at. mem is called from all threads */
    const char *const *policies; /* [n_policies]; none: all that ebb_policy_name lists */
    size_t n_policies;
    const uint64_t *budgets; /* [n_budgets]: bytes of the device, in any order; one or more */
    size_t n_budgets;
    bool is_monotone;   /* a plan for a smaller budget also stands for a larger one, where it is faster or there is none
                           for the larger. So more memory never makes a policy slower */
    uint32_t n_threads; /* that make plans at the same time; 0: one. The plans do not depend on it */
    ebb_progress progress;
} ebb_comparison_options;
#define EBB_COMPARISON_OPTIONS_INIT EBB_INIT(ebb_comparison_options, EBB_SET(plan, EBB_PLAN_OPTIONS_INIT))

typedef struct ebb_compared_budget {
    uint64_t bytes;
    ebb_certificate certificate; /* of all plans in the program's order */
} ebb_compared_budget;

/* Figures that a run of a plan measured. */
typedef struct ebb_compared_run {
    bool has_run;
    double time_s;       /* an iteration */
    uint64_t peak_bytes; /* UINT64_MAX: not known */
    uint32_t loss_bits;  /* of the last iteration's loss, a float */
} ebb_compared_run;

/* A policy at a budget. */
typedef struct ebb_compared {
    const char *policy;
    size_t budget;        /* number of */
    const ebb_plan *plan; /* NULL: the policy has none; the next figures are then 0 */
    ebb_plan_summary summary;
    ebb_timeline timeline;
    uint64_t copied_bytes[EBB_MAX_TIERS][EBB_MAX_TIERS]; /* [from][to], an iteration */
    double gap;                                          /* the predicted time over its bound, less 1 */
    const char *why;                                     /* it has no plan; NULL: it has */
    ebb_no_fit no_fit;
    double made_s;
    ebb_compared_run run;
} ebb_compared;

/* Make all plans. The caller destroys the comparison; it keeps the memory hooks, and borrows nothing else. A budget for
 * which a policy has no plan is no failure. EBB_E_ARGUMENT: options of another version, no budget, or as ebb_plan_make.
 * All others as ebb_plan_make. */
EBB_API ebb_status ebb_comparison_create(const ebb_program *program, const ebb_machine *machine,
                                         const ebb_comparison_options *options, ebb_comparison **comparison_out);
EBB_API void ebb_comparison_destroy(ebb_comparison *comparison);

/* Views, borrowed until it dies: budgets in the options' order, and for each of them a row for each policy. */
EBB_API const ebb_compared_budget *ebb_comparison_budgets(const ebb_comparison *comparison, size_t *n_out);
EBB_API const ebb_compared *ebb_comparison_rows(const ebb_comparison *comparison, size_t *n_out);
EBB_API const ebb_topology *ebb_comparison_topology(const ebb_comparison *comparison);

/* Say what a run of a row's plan measured, for the files. EBB_E_ARGUMENT: there is no such row, it has no plan, or the
 * time is not a number from 0 to 10^9. */
EBB_API ebb_status ebb_comparison_set_run(ebb_comparison *comparison, size_t row, const ebb_compared_run *run);

/* Write the rows, as comma-separated values (path ends in .csv) or as a picture of time over memory with the bound
 * (.svg). EBB_E_ARGUMENT: another ending. EBB_E_IO: what was at path is still there. */
EBB_API ebb_status ebb_comparison_save(const ebb_comparison *comparison, const char *path);

#ifdef __cplusplus
}
#endif

#endif
