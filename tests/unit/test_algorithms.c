/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of algorithm where each step is judged by itself: which are taken, what they need, what is told of them.
 */
#include "plan_support.h"

#include "plan/maker.h"

static ebb_machine *make_machine(void) {
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e9, 1e9, 0);
    return m;
}

static void add_step(ebb_program *p, uint32_t tensor, const ebb_choice *choices, uint32_t n) {
    const ebb_access access = {.tensor = tensor, .mode = EBB_WRITE};
    const ebb_step step = {.name = "open", .kind = "op", .n_accesses = 1, .n_choices = n};
    assert_int_equal(ebb_program_add_step(p, &step, &access, choices), EBB_OK);
}

/* Steps 0 and 2 have several choices, of which the last ones are as good as the ones before. */
static ebb_program *make_program(void) {
    static const ebb_choice first[4] = {{.name = "a", .scratch_bytes = 100, .key = 1, .flops = 300},
                                        {.name = "b", .scratch_bytes = 10, .key = 2, .flops = 900},
                                        {.name = "c", .scratch_bytes = 500, .key = 3, .flops = 100},
                                        {.name = "d", .scratch_bytes = 10, .key = 4, .flops = 100}};
    static const ebb_choice second[2] = {{.name = "a", .scratch_bytes = 7, .key = 5, .flops = 50},
                                         {.name = "b", .scratch_bytes = 7, .key = 6, .flops = 50}};
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "open", 1, &p), EBB_OK);
    const uint32_t x = make_tensor(p, 20, false, false), y = make_tensor(p, 30, false, true);
    add_step(p, x, first, 4);
    STEP(p, 3, 1000, {x, EBB_READ}, {y, EBB_WRITE});
    add_step(p, y, second, 2);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"given", "least", "fitting", "fastest", "greedy"};
    const char *about = NULL;
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(ebb_algorithms_name(i, &about), names[i]);
        assert_non_null(about);
        assert_int_equal(ebb__algorithms_find(names[i]), i);
    }
    assert_null(ebb_algorithms_name(5, &about));
    assert_int_equal(ebb__algorithms_find("quick"), EBB_N_ALGORITHMS);
    assert_int_equal(ebb__algorithms_find(NULL), EBB_N_ALGORITHMS);
    ebb_program *p = make_program();
    ebb_machine *m = make_machine();
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.algorithms = "quick";
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "'quick'"));
    options.algorithms = NULL;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "''"));
    assert_null(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_choose(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_machine *m = make_machine();
    uint32_t choice[3];
    ebb__algorithms_choose(p, m, EBB_ALGORITHMS_GIVEN, choice);
    assert_int_equal(choice[0] + choice[1] + choice[2], 0);
    ebb__algorithms_choose(p, m, EBB_ALGORITHMS_LEAST, choice);
    assert_int_equal(choice[0], 1);
    assert_int_equal(choice[1] + choice[2], 0);
    ebb__algorithms_choose(p, m, EBB_ALGORITHMS_FASTEST, choice);
    assert_int_equal(choice[0], 2);
    assert_int_equal(choice[1] + choice[2], 0);
    assert_int_equal(ebb_machine_set_time(m, 1, 1), EBB_OK); /* measured times count */
    ebb__algorithms_choose(p, m, EBB_ALGORITHMS_FASTEST, choice);
    assert_int_equal(choice[0], 0);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_floor(void **state) {
    (void)state;
    ebb_program *p = make_program();
    const uint32_t least[3] = {1, 0, 0}, fastest[3] = {2, 0, 0};
    uint32_t step = 9;
    assert_int_equal(ebb__plan_floor(p, NULL, &step), 120);
    assert_int_equal(step, 0);
    assert_int_equal(ebb__plan_floor(p, least, &step), 53);
    assert_int_equal(step, 1);
    assert_int_equal(ebb_program_floor_bytes(p, NULL), 53);
    assert_int_equal(ebb__plan_floor(p, fastest, &step), 520);
    ebb_program_destroy(p);
}

static void assert_figures(const ebb_program *p, const ebb_machine *m, const char *policy, const char *algorithms,
                           const ebb_choice_figures *expected) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = policy;
    options.algorithms = algorithms;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    assert_string_equal(ebb_plan_get_summary(plan).algorithms, algorithms);
    const ebb_choice_figures figures = ebb_plan_choice_figures(p, plan, m);
    assert_memory_equal(&figures, expected, sizeof figures);
    ebb_plan_destroy(plan);
}

/* Every policy takes the choices that it is given. */
static void test_figures(void **state) {
    (void)state;
    ebb_program *p = make_program();
    ebb_machine *m = make_machine();
    const char *policy = NULL;
    for (size_t i = 0; (policy = ebb_policy_name(i, NULL)) != NULL; i++) {
        ebb_choice_figures f = {.n_open_steps = 2, .n_steps = {2}, .most_scratch_bytes = 100};
        f.given_ns = f.chosen_ns = 1350;
        assert_figures(p, m, policy, "given", &f);
        f = (ebb_choice_figures){.n_open_steps = 2, .n_steps = {1, 1}, .most_scratch_bytes = 10, .given_ns = 1350};
        f.chosen_ns = 1950;
        assert_figures(p, m, policy, "least", &f);
        f = (ebb_choice_figures){.n_open_steps = 2, .n_steps = {1, 0, 1}, .most_scratch_bytes = 500, .given_ns = 1350};
        f.chosen_ns = 1150;
        assert_figures(p, m, policy, "fastest", &f);
        assert_figures(p, m, policy, "fitting", &f); /* without a budget */
        assert_figures(p, m, policy, "greedy", &f);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* 'Too little' is reported for the choices that were asked for. */
static void test_too_little(void **state) {
    (void)state;
    static const struct {
        const char *algorithms;
        uint64_t least_bytes;
        uint32_t step;
    } cases[] = {{"given", 120, 0}, {"least", 53, 1}, {"fitting", 53, 1}, {"fastest", 520, 0}, {"greedy", 53, 1}};
    ebb_program *p = make_program();
    ebb_machine *m = make_machine();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        ebb_no_fit no_fit = {0};
        options.algorithms = cases[i].algorithms;
        options.budget_bytes = cases[i].least_bytes - 1;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &no_fit), EBB_E_NO_FIT);
        assert_int_equal(no_fit.least_budget_bytes, cases[i].least_bytes);
        assert_int_equal(no_fit.step, cases[i].step);
        options.budget_bytes = cases[i].least_bytes;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
        ebb_plan_destroy(plan);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* Step 0 has 20 bytes of a tensor; its choices c and d are equally fast, with 500 and 10 bytes of scratch. */
static void test_greedy(void **state) {
    (void)state;
    static const struct {
        uint64_t budget_bytes;
        uint32_t choice;
    } cases[] = {{53, 3}, {120, 3}, {519, 3}, {520, 2}, {UINT64_MAX, 2}};
    ebb_program *p = make_program();
    ebb_machine *m = make_machine();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        options.policy = "liveness";
        options.algorithms = "greedy";
        options.budget_bytes = cases[i].budget_bytes;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
        assert_int_equal(plan->actions.data[0].choice, cases[i].choice);
        assert_true(ebb_plan_get_summary(plan).peak_bytes <= cases[i].budget_bytes);
        ebb_plan_destroy(plan);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),      cmocka_unit_test(test_choose),
                                       cmocka_unit_test(test_floor),      cmocka_unit_test(test_figures),
                                       cmocka_unit_test(test_too_little), cmocka_unit_test(test_greedy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
