/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans side by side: the figures are the plans' own, threads do not change them, a smaller budget's plan stands for a
 * larger one where it was asked for, and files are whole.
 */
#include "ebb/comparison.h"
#include "ebb/session.h"

#include "support.h"

#include <math.h>

#define N_BUDGETS 4
static const char *const policies[] = {"liveness", "order", "budget"};
#define N_POLICIES (sizeof policies / sizeof policies[0])

static ebb_session *open_session(void) {
    ebb_session_options o = EBB_SESSION_OPTIONS_INIT;
    ebb_session *session = NULL;
    o.net = "resnet_cifar:1";
    o.backend = "dry";
    o.batch = 16;
    assert_int_equal(ebb_session_open(&o, &session), EBB_OK);
    return session;
}

/* Budgets of these shares of what liveness needs. */
static ebb_comparison *compare(ebb_session *session, const double shares[N_BUDGETS], bool is_monotone,
                               uint32_t n_threads) {
    uint64_t liveness_bytes = 0, budgets[N_BUDGETS];
    ebb_comparison *comparison = NULL;
    ebb_comparison_options o = EBB_COMPARISON_OPTIONS_INIT;
    const ebb_session_parts parts = ebb_session_get_parts(session);
    assert_int_equal(ebb_session_liveness_bytes(session, &liveness_bytes), EBB_OK);
    assert_int_equal(ebb_session_plan_options(session, &o.plan), EBB_OK);
    for (size_t i = 0; i < N_BUDGETS; i++) { budgets[i] = (uint64_t)(shares[i] * (double)liveness_bytes); }
    o.budgets = budgets;
    o.n_budgets = N_BUDGETS;
    o.policies = policies;
    o.n_policies = N_POLICIES;
    o.is_monotone = is_monotone;
    o.n_threads = n_threads;
    if (ebb_comparison_create(parts.program, parts.machine, &o, &comparison) != EBB_OK) {
        fail_msg("%s", ebb_last_error());
    }
    return comparison;
}

static void figures_are_the_plans_own(void **state) {
    (void)state;
    static const double shares[N_BUDGETS] = {1.0, 0.7, 0.5, 0.3};
    ebb_session *session = open_session();
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_comparison *one = compare(session, shares, false, 1), *many = compare(session, shares, false, 3);
    size_t n = 0, n_many = 0, n_budgets = 0;
    const ebb_compared *rows = ebb_comparison_rows(one, &n), *others = ebb_comparison_rows(many, &n_many);
    const ebb_compared_budget *budgets = ebb_comparison_budgets(one, &n_budgets);
    assert_int_equal(n, N_BUDGETS * N_POLICIES);
    assert_int_equal(n_many, n);
    assert_int_equal(n_budgets, N_BUDGETS);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(rows[i].policy, policies[i % N_POLICIES]);
        assert_int_equal(rows[i].budget, i / N_POLICIES);
        assert_true((rows[i].plan == NULL) == (rows[i].why != NULL));
        assert_true((rows[i].plan == NULL) == (others[i].plan == NULL));
        if (rows[i].plan == NULL) {
            assert_true(rows[i].no_fit.least_budget_bytes > budgets[rows[i].budget].bytes);
            continue;
        }
        uint64_t out = 0, in = 0;
        ebb_timeline timeline = {0};
        assert_int_equal(ebb_plan_check(parts.program, rows[i].plan), EBB_OK);
        assert_int_equal(ebb_plan_simulate(parts.program, rows[i].plan, parts.machine, &timeline, NULL, NULL), EBB_OK);
        assert_true(timeline.iteration_ns == rows[i].timeline.iteration_ns);
        assert_true(timeline.iteration_ns == others[i].timeline.iteration_ns);
        assert_true(rows[i].summary.peak_bytes <= budgets[rows[i].budget].bytes);
        for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) {
            out += rows[i].copied_bytes[EBB_DEVICE][t];
            in += rows[i].copied_bytes[t][EBB_DEVICE];
        }
        assert_true(out == rows[i].summary.moved_out_bytes && in == rows[i].summary.moved_in_bytes);
        assert_true(rows[i].gap >= 0);
    }
    assert_non_null(rows[0].plan);                  /* liveness, all that it needs */
    assert_null(rows[1 * N_POLICIES].plan);         /* and less */
    assert_non_null(rows[3 * N_POLICIES + 2].plan); /* budget, a third */
    assert_true(rows[3 * N_POLICIES + 2].summary.moved_out_bytes > 0);
    ebb_comparison_destroy(many);
    ebb_comparison_destroy(one);
    ebb_session_close(session);
}

/* In no order: each policy's time falls, or stays, from the least budget to the largest. */
static void more_memory_is_never_slower(void **state) {
    (void)state;
    static const double shares[N_BUDGETS] = {0.5, 1.1, 0.3, 0.9};
    static const size_t ascending[N_BUDGETS] = {2, 0, 3, 1};
    ebb_session *session = open_session();
    ebb_comparison *c = compare(session, shares, true, 2);
    size_t n = 0, n_budgets = 0;
    const ebb_compared *rows = ebb_comparison_rows(c, &n);
    const ebb_compared_budget *budgets = ebb_comparison_budgets(c, &n_budgets);
    for (size_t p = 0; p < N_POLICIES; p++) {
        uint64_t time_ns = UINT64_MAX;
        for (size_t i = 0; i < N_BUDGETS; i++) {
            const ebb_compared *row = &rows[ascending[i] * N_POLICIES + p];
            assert_int_equal(row->budget, ascending[i]);
            if (row->plan == NULL) {
                assert_true(time_ns == UINT64_MAX); /* once there is a plan, there is one from there on */
                continue;
            }
            assert_true(row->timeline.iteration_ns <= time_ns);
            assert_true(row->summary.peak_bytes <= budgets[row->budget].bytes);
            time_ns = row->timeline.iteration_ns;
        }
        assert_true(time_ns < UINT64_MAX);
    }
    for (size_t i = 1; i < N_BUDGETS; i++) {
        assert_true(budgets[ascending[i]].certificate.bound_ns <= budgets[ascending[i - 1]].certificate.bound_ns);
    }
    ebb_comparison_destroy(c);
    ebb_session_close(session);
}

extern bool ebb_test_no_threads; /* tests/threads.c */

/* The caller does all the work, and the figures are the same. */
static void no_thread_can_be_started(void **state) {
    (void)state;
    static const double shares[N_BUDGETS] = {1.0, 0.7, 0.5, 0.3};
    ebb_session *session = open_session();
    ebb_comparison *many = compare(session, shares, false, 2);
    ebb_test_no_threads = true;
    ebb_comparison *alone = compare(session, shares, false, 2);
    ebb_test_no_threads = false;
    size_t n = 0;
    const ebb_compared *rows = ebb_comparison_rows(many, &n), *others = ebb_comparison_rows(alone, &n);
    for (size_t i = 0; i < n; i++) {
        assert_true((rows[i].plan == NULL) == (others[i].plan == NULL));
        assert_true(rows[i].timeline.iteration_ns == others[i].timeline.iteration_ns);
    }
    ebb_comparison_destroy(alone);
    ebb_comparison_destroy(many);
    ebb_session_close(session);
}

/* A plan in the program's order has the bound of its budget, as the plan by itself has it. */
static void bounds_are_shared(void **state) {
    (void)state;
    static const double shares[N_BUDGETS] = {0.9, 0.7, 0.5, 0.3}; /* falling: no budget's bound is raised by another */
    ebb_session *session = open_session();
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_comparison *c = compare(session, shares, false, 2);
    size_t n = 0, n_budgets = 0;
    const ebb_compared *rows = ebb_comparison_rows(c, &n);
    const ebb_compared_budget *budgets = ebb_comparison_budgets(c, &n_budgets);
    for (size_t i = 0; i < N_BUDGETS; i++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_certificate own;
        assert_int_equal(ebb_session_plan_options(session, &options), EBB_OK);
        options.budget_bytes = budgets[i].bytes;
        assert_int_equal(ebb_plan_certify(parts.program, parts.machine, &options, &own), EBB_OK);
        const ebb_compared *row = &rows[i * N_POLICIES + 2];
        assert_non_null(row->plan);
        assert_true(row->summary.certificate.bound_ns == own.bound_ns);
        assert_true(row->summary.certificate.bound_bytes == own.bound_bytes);
    }
    ebb_comparison_destroy(c);
    ebb_session_close(session);
}

static void what_is_refused(void **state) {
    (void)state;
    static const double shares[N_BUDGETS] = {1.0, 0.7, 0.5, 0.3};
    static const char *const unknown[] = {"lru"};
    const uint64_t budget = 1;
    ebb_session *session = open_session();
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_comparison_options o = EBB_COMPARISON_OPTIONS_INIT;
    ebb_comparison *c = NULL;
    assert_int_equal(ebb_comparison_create(parts.program, parts.machine, &o, &c), EBB_E_ARGUMENT);
    assert_string_equal(ebb_last_error(), "comparison: there is no budget");
    o.budgets = &budget;
    o.n_budgets = 1;
    o.policies = unknown;
    o.n_policies = 1;
    assert_int_equal(ebb_comparison_create(parts.program, parts.machine, &o, &c), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "no policy is called 'lru'; there are: "));
    o.policies = policies;
    o.plan.algorithms = "none such"; /* a failure in a thread, said in this one */
    assert_int_equal(ebb_comparison_create(parts.program, parts.machine, &o, &c), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "no way to choose algorithms is called 'none such'"));
    o.size_bytes--;
    assert_int_equal(ebb_comparison_create(parts.program, parts.machine, &o, &c), EBB_E_ARGUMENT);
    c = compare(session, shares, false, 1);
    const ebb_compared_run run = {.has_run = true, .time_s = 1.5, .peak_bytes = 7, .loss_bits = 0xabc};
    assert_int_equal(ebb_comparison_set_run(c, 0, &run), EBB_OK);
    assert_int_equal(ebb_comparison_set_run(c, N_POLICIES, &run), EBB_E_ARGUMENT); /* no plan */
    assert_int_equal(ebb_comparison_set_run(c, N_BUDGETS * N_POLICIES, &run), EBB_E_ARGUMENT);
    assert_int_equal(ebb_comparison_save(c, "/tmp/ebb.txt"), EBB_E_ARGUMENT);
    assert_int_equal(ebb_comparison_save(c, "/no/such/folder.csv"), EBB_E_IO);
    ebb_comparison_destroy(c);
    ebb_session_close(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_the_plans_own), cmocka_unit_test(more_memory_is_never_slower),
        cmocka_unit_test(no_thread_can_be_started),  cmocka_unit_test(bounds_are_shared),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
