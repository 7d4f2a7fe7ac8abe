/* SPDX-License-Identifier: Apache-2.0
 *
 * Properties of every policy over random programs and budgets: the plan passes the validator, keeps the budget,
 * gives the results of a run without limits, in the list's order and in any that the schedule allows; and what it
 * says is the least budget works.
 */
#include "plan_support.h"

#define N_LAPS 3

static ebb_machine *make_machine(ebb_rng *rng) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    /* so that copying and computing again are about equally dear */
    ebb_link link = {.out_bytes_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100)),
                     .in_bytes_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100)),
                     .latency_ns = ebb__rng_below(rng, 2000)};
    ebb_machine_set_link(machine, EBB_TIER_HOST, &link);
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
static void try_budgets(const ebb_program *p, const ebb_machine *m, const world *expected, ebb_rng *rng) {
    ebb_plan *live = make_plan(p, m, "liveness", UINT64_MAX);
    assert_works(p, live, expected, rng);
    uint64_t top = ebb_plan_get_summary(live).peak_bytes, floor = ebb_program_floor_bytes(p, NULL);
    ebb_plan_destroy(live);
    for (int i = 0; i <= 4; i++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.budget_bytes = i == 4 ? floor / 2 : floor + (top > floor ? top - floor : 0) * (uint64_t)i / 4;
        uint64_t dice = ebb__rng_below(rng, 6);
        if (dice == 0) { options.tier_bytes[EBB_TIER_HOST] = 0; }
        if (dice == 1) { options.tier_bytes[EBB_TIER_HOST] = top / 3; }
        if (dice == 1 || dice == 2) { options.tier_bytes[EBB_TIER_DISK] = UINT64_MAX; }
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
        for (uint32_t t = 0; t < EBB_N_TIERS; t++) { assert_true(sum.tier_bytes[t] <= options.tier_bytes[t]); }
        ebb_plan_destroy(plan);
    }
}

static void test_random_programs(void **state) {
    (void)state;
    const char *from = getenv("EBB_SEED"), *count = getenv("EBB_COUNT");
    uint64_t first = from != NULL ? strtoull(from, NULL, 10) : 1, n = count != NULL ? strtoull(count, NULL, 10) : 40;
    for (uint64_t seed = first; seed < first + n; seed++) {
        print_message("seed %llu\n", (unsigned long long)seed);
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 2);
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(&rng);
        ebb_plan *none = make_plan(p, m, "none", UINT64_MAX);
        world expected;
        execute_in_order(&expected, p, none, N_LAPS);
        try_budgets(p, m, &expected, &rng);
        world_free(&expected);
        ebb_plan_destroy(none);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
