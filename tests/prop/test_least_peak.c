/* SPDX-License-Identifier: Apache-2.0
 *
 * The least peak for a time: the plan is as fast as was asked for, and needs no more than liveness does.
 */
#include "plan_support.h"

#include <inttypes.h>
#include <math.h>

static uint64_t time_of(const ebb_program *p, const ebb_plan *plan, const ebb_machine *m) {
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    return timeline.iteration_ns;
}

static ebb_plan *plan_of(const ebb_program *p, const ebb_machine *m, const ebb_plan_options *options) {
    ebb_plan *plan = NULL;
    if (ebb_plan_make(p, m, options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return plan;
}

static void is_as_fast_as_asked(void **state) {
    (void)state;
    static const double slowdowns[] = {0, 0.1, 1, 20};
    const uint64_t first = by_form(6, 5, 5), apart = by_form(2, 1, 1); /* quick: those without effort */
    uint64_t n_plans = 0;
    uint64_t n_less = 0;
    for (uint64_t seed = first; seed <= 8; seed += apart) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 12);
        ebb_program *p = random_program(seed);
        ebb_machine *m = NULL;
        assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
        set_link(m, EBB_HOST, 1e6 * (double)(1u << ebb__rng_below(&rng, 10)), 1e8, 0);
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = "liveness";
        ebb_plan *live = plan_of(p, m, &options);
        const uint64_t free_ns = time_of(p, live, m), live_bytes = ebb_plan_get_summary(live).peak_bytes;
        options.policy = seed == 8 ? "best" : "budget";
        options.effort = seed % 2;
        for (size_t i = 0; i < sizeof slowdowns / sizeof *slowdowns; i += by_form(2, 2, 1)) {
            options.slowdown = slowdowns[i];
            ebb_plan *plan = plan_of(p, m, &options);
            const uint64_t peak_bytes = ebb_plan_get_summary(plan).peak_bytes;
            assert_true((double)time_of(p, plan, m) <= (double)free_ns * (1 + slowdowns[i]) + 1);
            assert_true(peak_bytes <= live_bytes && peak_bytes >= ebb_program_floor_bytes(p, NULL));
            n_plans++;
            n_less += peak_bytes < live_bytes;
            ebb_plan_destroy(plan);
        }
        ebb_plan_destroy(live);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    print_message("%" PRIu64 " of %" PRIu64 " plans need less than liveness\n", n_less, n_plans);
    assert_true(n_less * 8 >= n_plans * 5);
}

static void a_budget_is_kept_too(void **state) {
    (void)state;
    ebb_program *p = random_program(2);
    ebb_machine *m = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_no_fit no_fit = {.least_budget_bytes = 1};
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    set_link(m, EBB_HOST, 1e5, 1e5, 0);
    options.policy = by_form(1, 0, 0) ? "budget" : "best"; /* best takes long */
    options.effort = 0;
    options.budget_bytes = ebb_program_floor_bytes(p, NULL) * 5 / 4;
    options.slowdown = 1e6;
    plan = plan_of(p, m, &options);
    assert_true(ebb_plan_get_summary(plan).peak_bytes <= options.budget_bytes);
    ebb_plan_destroy(plan);
    options.slowdown = 0;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, &no_fit), EBB_E_NO_FIT);
    assert_true(no_fit.least_budget_bytes == 0);
    expect_message("no plan that fast was found: within the budget an iteration takes");
    options.slowdown = (double)NAN;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, &no_fit), EBB_E_ARGUMENT);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* Where an iteration takes longer than can be counted, any time will do; but some budgets have no plan. */
static void time_may_be_endless(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_int_equal(ebb_program_create(NULL, "endless", 1, &p), EBB_OK);
    const uint32_t x = make_tensor(p, 4096, false, false), y = make_tensor(p, 4096, false, false);
    STEP(p, 0, 1e300, {x, EBB_WRITE});
    STEP(p, 0, 1e300, {y, EBB_WRITE});
    STEP(p, 0, 1e300, {x, EBB_READ});
    STEP(p, 0, 1e300, {y, EBB_READ});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    options.slowdown = 0.1;
    ebb_plan *plan = plan_of(p, m, &options);
    assert_true(time_of(p, plan, m) == UINT64_MAX);
    assert_true(ebb_plan_get_summary(plan).peak_bytes == 8192);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_as_fast_as_asked), cmocka_unit_test(a_budget_is_kept_too),
                                       cmocka_unit_test(time_may_be_endless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
