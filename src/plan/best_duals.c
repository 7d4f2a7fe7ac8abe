/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound's prices as the walk uses them. Looking for a bound, ebb finds at which steps room is short and how much a
 * byte of it is worth there, and in which stretches copies are what everything waits for (bound.h). The walk knows
 * neither of them by itself: it sees the program only up to the step at hand.
 *
 * The price of a pivot is spread over its stretch of the program.
 */
#include "plan/best.h"

#include <math.h>

static double sum_prices(const ebb_bound_problem *problem, const ebb_bound_prices *prices, size_t n_steps,
                         double *upto) {
    uint32_t pivot = 0;
    upto[0] = 0;
    for (uint64_t w = 0; w < problem->n_stretches; w++) {
        const uint64_t begin = ebb__bound_stretch(n_steps, w, problem->n_stretches);
        const uint64_t end = ebb__bound_stretch(n_steps, w + 1, problem->n_stretches);
        const bool has_pivot = pivot < problem->n_pivots && problem->pivot[pivot] < end;
        const double price = has_pivot ? prices->byte[pivot++] / (double)(end - begin) : 0;
        for (uint64_t i = begin; i < end; i++) { upto[i + 1] = upto[i] + price; }
    }
    return upto[n_steps];
}

static void find_segments(const ebb_bound_problem *problem, size_t n_steps, uint8_t *segment) {
    uint8_t at = 0;
    for (size_t i = 0; i <= n_steps; i++) {
        while (at < problem->n_pivots && problem->pivot[at] <= i) { at++; }
        segment[i] = at;
    }
}

static void find_least(const ebb_bound_prices *prices, ebb_best_duals *duals) {
    for (uint32_t from = 0; from <= duals->last_segment; from++) {
        double out = INFINITY, in = INFINITY;
        for (uint32_t to = from; to <= duals->last_segment; to++) {
            duals->out[from][to] = out = fmin(out, prices->out[to]);
            duals->in[from][to] = in = fmin(in, prices->in[to]);
        }
    }
}

ebb_status ebb__best_find_duals(ebb_best_walk *w, ebb_best_duals **duals_out, double *bound_ns_out) {
    const ebb_policy_input *input = w->input;
    const size_t n = w->view.n_steps;
    ebb_plan_options limits = {.budget_bytes = input->limit_bytes, .no_recompute = input->copies_only};
    ebb_bound_problem problem;
    ebb_bound_prices prices;
    *duals_out = NULL;
    memcpy(limits.tier_bytes, input->tier_bytes, sizeof limits.tier_bytes);
    const ebb_bound_choices choices = {true, input->choice};
    const ebb_bound_care care = EBB_BOUND_QUICK;
    EBB_TRY(ebb__bound_problem(input->program, input->machine, &limits, choices, care, &w->bump, &problem));
    EBB_TRY(ebb__bound_price(&problem, care, INFINITY, &w->bump, bound_ns_out, &prices));
    ebb_best_duals *duals = ebb__bump_alloc(&w->bump, 1, sizeof *duals);
    if (duals == NULL) { return EBB_E_NO_MEMORY; }
    duals->segment = ebb__bump_alloc(&w->bump, n + 1, sizeof *duals->segment);
    duals->upto = ebb__bump_alloc(&w->bump, n + 1, sizeof *duals->upto);
    if (duals->segment == NULL || duals->upto == NULL) { return EBB_E_NO_MEMORY; }
    if (sum_prices(&problem, &prices, n, duals->upto) == 0) { return EBB_OK; }
    duals->last_segment = problem.n_pivots;
    find_segments(&problem, n, duals->segment);
    find_least(&prices, duals);
    *duals_out = duals;
    return EBB_OK;
}

double ebb__best_worth(const ebb_best_walk *w, uint64_t need) {
    const uint64_t n = w->view.n_steps;
    const double *upto = w->duals->upto;
    EBB_ASSERT(need <= 2 * n);
    const uint64_t now = ebb_min_u64(ebb_min_u64(w->step, n), need);
    const double away = upto[ebb_min_u64(need, n)] - upto[now] + upto[ebb__best_next_lap(w, need)];
    const double distance = (double)(need - now + 1) / (double)n;
    return away + (double)w->keys->reach * upto[n] * distance;
}

double ebb__best_out_price(const ebb_best_walk *w, uint64_t from) {
    const uint8_t *segment = w->duals->segment;
    return (double)w->keys->link_price * w->duals->out[segment[from]][segment[w->step]];
}

double ebb__best_in_price(const ebb_best_walk *w, uint64_t need) {
    const ebb_best_duals *d = w->duals;
    const uint64_t n = w->view.n_steps;
    const uint8_t now = d->segment[w->step], last = need <= n ? d->segment[need] : d->last_segment;
    double price = d->in[now][last > now ? last : now];
    if (need > n) { price = fmin(price, d->in[0][d->segment[ebb__best_next_lap(w, need)]]); }
    return (double)w->keys->link_price * price;
}
