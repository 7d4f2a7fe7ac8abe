/* SPDX-License-Identifier: Apache-2.0
 *
 * The least peak for a time: the question that is the other way round. Budgets are halved between the floor and the
 * peak of a plan that is fast enough, first with plans that are made quickly, then with the effort that was asked for.
 * A budget whose bound is above the time (bound.h) is not planned for.
 *
 * A smaller budget can have the faster plan, so what is found is not always the least there is.
 */
#include "plan/plan_priv.h"

#include <math.h>

#define QUICK_HALVINGS 10u
#define HALVINGS 5u
#define CLOSE 256u /* of the peak: less is not looked for */

typedef struct search {
    const ebb_program *program;
    const ebb_machine *machine;
    ebb_plan_options options;   /* of the plan at hand */
    uint64_t free_ns, limit_ns; /* without limits; to keep */
    ebb_plan *best;
    uint64_t low_bytes;    /* no plan for it was found */
    ebb_progress progress; /* of the budgets; of a plan alone only while it is the first one */
} search;

static ebb_status time_plan(const search *s, const ebb_plan *plan, uint64_t *time_ns_out) {
    ebb_timeline timeline = {0};
    EBB_TRY(ebb_plan_simulate(s->program, plan, s->machine, &timeline, NULL, NULL));
    *time_ns_out = timeline.iteration_ns;
    return EBB_OK;
}

static uint64_t peak_of(const ebb_plan *plan) {
    return ebb_plan_get_summary(plan).peak_bytes;
}

/* The quick plans are walked for, too: a first plan alone is often too slow. */
static ebb_status make(const search *s, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    const ebb_plan_asked asked = {.always_walks = true};
    return ebb__plan_make(s->program, s->machine, &s->options, &asked, plan_out, no_fit_out);
}

/* Take a plan for this budget if it is fast enough and needs less; else the budget is the low end. */
static ebb_status try_budget(search *s, uint64_t budget_bytes) {
    ebb_certificate c = {0};
    ebb_plan *plan = NULL;
    uint64_t time_ns = UINT64_MAX;
    ebb_plan_options limits = s->options;
    limits.budget_bytes = budget_bytes;
    const bool in_order = strcmp(limits.policy, "order") != 0;
    EBB_TRY(ebb__plan_certify(s->program, s->machine, &limits, in_order, EBB_BOUND_QUICK, &c));
    s->options.budget_bytes = budget_bytes;
    ebb_status st = c.bound_ns <= s->limit_ns ? make(s, &plan, NULL) : EBB_OK;
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    st = plan != NULL ? time_plan(s, plan, &time_ns) : EBB_OK;
    if (st == EBB_OK && plan != NULL && time_ns <= s->limit_ns && peak_of(plan) < peak_of(s->best)) {
        ebb_plan *worse = s->best;
        s->best = plan;
        plan = worse;
    } else {
        s->low_bytes = budget_bytes;
    }
    ebb_plan_destroy(plan);
    return st;
}

/* n budgets at most. */
static ebb_status halve(search *s, uint32_t effort, uint32_t n) {
    const char *what = effort > 0 ? "searching for budget" : "planning for budget";
    s->options.effort = effort;
    s->low_bytes = ebb_program_floor_bytes(s->program, NULL) - 1;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t high_bytes = peak_of(s->best);
        if (high_bytes - s->low_bytes <= high_bytes / CLOSE + 1 || ebb__is_stopped(&s->options)) { break; }
        ebb__tell(&s->progress, what, i, n);
        EBB_TRY(try_budget(s, s->low_bytes + (high_bytes - s->low_bytes) / 2));
    }
    return EBB_OK;
}

/* The time without limits is that of liveness. */
static ebb_status find_limit(search *s, double slowdown) {
    ebb_plan_options free = s->options;
    ebb_plan *plan = NULL;
    free.policy = "liveness";
    free.budget_bytes = UINT64_MAX;
    EBB_TRY(ebb_plan_make(s->program, s->machine, &free, &plan, NULL));
    const ebb_status st = time_plan(s, plan, &s->free_ns);
    ebb_plan_destroy(plan);
    const double limit_ns = (double)s->free_ns * (1 + slowdown);
    s->limit_ns = limit_ns < (double)INT64_MAX ? (uint64_t)(limit_ns + 0.5) : UINT64_MAX;
    return st;
}

static ebb_status find_first(search *s, ebb_no_fit *no_fit_out) {
    uint64_t time_ns = 0;
    EBB_TRY(make(s, &s->best, no_fit_out));
    EBB_TRY(time_plan(s, s->best, &time_ns));
    if (time_ns <= s->limit_ns) { return EBB_OK; }
    if (no_fit_out != NULL) { *no_fit_out = (ebb_no_fit){0}; }
    return ebb_fail(EBB_E_NO_FIT,
                    "no plan that fast was found: within the budget an iteration takes %.2f %% more than without",
                    100 * ((double)time_ns / (double)s->free_ns - 1));
}

ebb_status ebb__plan_least_peak(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                                ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    search s = {.program = program, .machine = machine, .options = *options};
    s.options.slowdown = -1;
    EBB_TRY(find_limit(&s, options->slowdown));
    ebb_status st = find_first(&s, no_fit_out);
    s.progress = options->progress;
    s.options.progress = (ebb_progress){0};
    if (st == EBB_OK) { st = halve(&s, 0, QUICK_HALVINGS); }
    if (st == EBB_OK && options->effort > 0) { st = halve(&s, options->effort, HALVINGS); }
    if (st != EBB_OK) {
        ebb_plan_destroy(s.best);
        return st;
    }
    *plan_out = s.best;
    return EBB_OK;
}
