/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of every policy over random programs and budgets: the plan passes the validator, keeps the budget,
 * gives the results of a run without limits, in the list's order and in any that the schedule allows. The least budget
 * that a refusal names is accepted, so is every larger one, and none below it; and nothing moves where what liveness
 * needs fits.
 */
#include "plan_support.h"

#include <inttypes.h>

#define N_LAPS 3

static ebb_machine *make_machine(ebb_rng *rng) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    /* so that copying and computing again are about equally dear */
    const double out_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100));
    const double in_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100));
    set_link(machine, EBB_HOST, out_per_s, in_per_s, ebb__rng_below(rng, 2000));
    return machine;
}

static ebb_plan *make_plan(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t budget) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    options.budget_bytes = budget;
    ebb_plan *plan = NULL;
    ebb_status st = ebb_plan_make(p, m, &options, &plan, NULL);
    if (st != EBB_OK) { print_error("%s\n", ebb_last_error()); }
    assert_int_equal(st, EBB_OK);
    return plan;
}

static void assert_works(const ebb_program *p, const ebb_plan *plan, const world *expected, ebb_rng *rng) {
    world w;
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_true(sum.peak_bytes <= sum.budget_bytes);
    assert_true(sum.bound_bytes <= sum.peak_bytes);
    execute_in_order(&w, p, plan, N_LAPS);
    assert_same_results(&w, expected, N_LAPS);
    world_free(&w);
    execute_any_order(&w, p, plan, N_LAPS, rng);
    assert_same_results(&w, expected, N_LAPS);
    world_free(&w);
}

/* The budgets at which something may change: the floor, below it, between it and what liveness needs. */
static void try_budgets(const ebb_program *p, const ebb_machine *m, const char *policy, const world *expected,
                        ebb_rng *rng) {
    ebb_plan *live = make_plan(p, m, "liveness", UINT64_MAX);
    assert_works(p, live, expected, rng);
    uint64_t top = ebb_plan_get_summary(live).peak_bytes, floor = ebb_program_floor_bytes(p, NULL);
    ebb_plan_destroy(live);
    for (int i = 0; i <= 4; i++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = policy;
        options.budget_bytes = i == 4 ? floor / 2 : floor + (top > floor ? top - floor : 0) * (uint64_t)i / 4;
        uint64_t dice = ebb__rng_below(rng, 6);
        options.effort = dice == 3;
        options.as_coded = dice == 4;
        if (dice == 0) { options.tier_bytes[EBB_HOST] = 0; }
        if (dice == 1) { options.tier_bytes[EBB_HOST] = top / 3; }
        if (dice == 1 || dice == 2) { options.tier_bytes[EBB_DISK] = UINT64_MAX; }
        ebb_plan *plan = NULL;
        ebb_no_fit no_fit = {0};
        ebb_status st = ebb_plan_make(p, m, &options, &plan, &no_fit);
        if (st == EBB_E_NO_FIT) {
            assert_true(no_fit.least_budget_bytes > options.budget_bytes);
            assert_true(no_fit.least_budget_bytes >= floor);
            assert_int_equal(no_fit.step_bytes, floor);
            options.budget_bytes = no_fit.least_budget_bytes;
            st = ebb_plan_make(p, m, &options, &plan, &no_fit);
        }
        if (st != EBB_OK) { print_error("%s\n", ebb_last_error()); }
        assert_int_equal(st, EBB_OK);
        assert_works(p, plan, expected, rng);
        ebb_plan_summary sum = ebb_plan_get_summary(plan);
        for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) { assert_true(sum.tier_bytes[t] <= options.tier_bytes[t]); }
        ebb_plan_destroy(plan);
    }
}

/* ---- what is accepted -------------------------------------------------------------------------- */

/* What decides whether a plan fits, and no times: nothing of this differs from run to run. */
typedef struct question {
    const ebb_program *program;
    const ebb_machine *machine;
    ebb_plan_options options;
} question;

static question make_question(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t top,
                              ebb_rng *rng) {
    question q = {.program = p, .machine = m, .options = EBB_PLAN_OPTIONS_INIT};
    q.options.policy = policy;
    q.options.effort = 0;
    const uint64_t dice = ebb__rng_below(rng, 6);
    if (dice == 0) { q.options.tier_bytes[EBB_HOST] = 0; }
    if (dice == 1) { q.options.tier_bytes[EBB_HOST] = top / 3; }
    if (dice == 2) { q.options.tier_bytes[EBB_DISK] = top / 2; }
    return q;
}

static bool is_accepted(const question *q, uint64_t budget, ebb_plan_summary *sum_out) {
    ebb_plan_options options = q->options;
    ebb_plan *plan = NULL;
    options.budget_bytes = budget;
    const ebb_status st = ebb_plan_make(q->program, q->machine, &options, &plan, NULL);
    if (st == EBB_OK) { *sum_out = ebb_plan_get_summary(plan); }
    if (st != EBB_OK) { assert_int_equal(st, EBB_E_NO_FIT); }
    ebb_plan_destroy(plan);
    return st == EBB_OK;
}

static uint64_t least_of(const question *q, uint64_t budget) {
    ebb_plan_options options = q->options;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    options.budget_bytes = budget;
    assert_int_equal(ebb_plan_make(q->program, q->machine, &options, &plan, &no_fit), EBB_E_NO_FIT);
    return no_fit.least_budget_bytes;
}

/* From the named least on every budget is accepted and none below, whatever was refused and on whatever machine. */
static void sweep_budgets(const question *q, uint64_t top, uint64_t n_budgets) {
    const uint64_t floor = ebb_program_floor_bytes(q->program, NULL);
    const uint64_t least = least_of(q, floor - 1);
    ebb_plan_summary sum;
    assert_true(least >= floor && least <= top);
    assert_true(is_accepted(q, least, &sum));
    for (uint64_t i = 1; i <= n_budgets; i++) {
        const uint64_t above = least + (top - least) * i / n_budgets;
        if (!is_accepted(q, above, &sum)) { fail_msg("%" PRIu64 " is refused, least is %" PRIu64, above, least); }
        assert_true(sum.peak_bytes <= above);
    }
    if (least == floor) { return; }
    assert_int_equal(least_of(q, least - 1), least);
    question other = *q;
    ebb_machine *round = NULL;
    assert_int_equal(ebb_machine_create(NULL, &round), EBB_OK);
    other.machine = round;
    assert_int_equal(least_of(&other, floor + (least - floor) * (least % 16) / 16), least);
    ebb_machine_destroy(round);
}

static void test_larger_budgets_are_accepted(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(1, 2, 3));
    for (uint64_t seed = first; seed < first + n; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 4);
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(&rng);
        ebb_plan *live = make_plan(p, m, "liveness", UINT64_MAX);
        const uint64_t top = ebb_plan_get_summary(live).peak_bytes;
        const question by_budget = make_question(p, m, "budget", top, &rng);
        sweep_budgets(&by_budget, top, number("EBB_BUDGETS", 16));
        const question by_best = make_question(p, m, "best", top, &rng);
        sweep_budgets(&by_best, top, number("EBB_BUDGETS", 16) / 4);
        ebb_plan_destroy(live);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

/* Where all that lives together fits, nothing has to leave. */
static void test_nothing_moves_from_liveness_on(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 5);
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(&rng);
        ebb_plan *live = make_plan(p, m, "liveness", UINT64_MAX);
        const uint64_t top = ebb_plan_get_summary(live).peak_bytes, alignment = ebb_program_alignment_bytes(p);
        assert_true(top >= ebb_program_floor_bytes(p, NULL));
        const uint64_t budgets[] = {top, top + 1, top + alignment - 1, top + alignment, top + top / 7, 2 * top};
        for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
            ebb_plan *plan = make_plan(p, m, i % 2 == 0 ? "budget" : "best", budgets[i]);
            const ebb_plan_summary sum = ebb_plan_get_summary(plan);
            if (sum.moved_out_bytes + sum.moved_in_bytes + sum.n_recomputed_steps > 0) {
                fail_msg("seed %" PRIu64 ": something moves at %" PRIu64 " of %" PRIu64, seed, budgets[i], top);
            }
            assert_int_equal(sum.peak_bytes, top);
            ebb_plan_destroy(plan);
        }
        ebb_plan_destroy(live);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

/* ---- what is planned --------------------------------------------------------------------------- */

static void test_random_programs(void **state) {
    static const char *const copying[] = {"autoswap-doa",  "autoswap-aoa", "autoswap-wdoa", "autoswap-swdoa",
                                          "autoswap-vote", "autoswap-bo",  "swap"};
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(3, 10, 25));
    for (uint64_t seed = first; seed < first + n; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 2);
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(&rng);
        ebb_plan *none = make_plan(p, m, "none", UINT64_MAX);
        world expected;
        execute_in_order(&expected, p, none, N_LAPS);
        try_budgets(p, m, "budget", &expected, &rng);
        if (seed % 2 == 0) { try_budgets(p, m, copying[seed % (sizeof copying / sizeof copying[0])], &expected, &rng); }
        if (seed % 4 == 0) { try_budgets(p, m, "best", &expected, &rng); }
        world_free(&expected);
        ebb_plan_destroy(none);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_larger_budgets_are_accepted),
                                       cmocka_unit_test(test_nothing_moves_from_liveness_on),
                                       cmocka_unit_test(test_random_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
