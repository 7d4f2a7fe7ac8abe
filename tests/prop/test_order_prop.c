/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders over random programs: the load is never above that of the program's order and never below the bound, small
 * programs get the least that there is, and the policy's plan passes the validator, is as high as the order said, is
 * placed no higher than liveness, and gives the results of a plain run.
 */
#include "order_support.h"

#include "plan/order.h"

#define N_LAPS 3

typedef struct sums {
    size_t n, n_lower, n_best, n_exact, n_exact_found;
    double order, quick; /* loads over those of the programs' orders */
} sums;

static ebb_plan *make_plan_within(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t budget) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = policy;
    options.budget_bytes = budget;
    if (ebb_plan_make(p, m, &options, &plan, NULL) != EBB_OK) { fail_msg("%s: %s", policy, ebb_last_error()); }
    return plan;
}

static ebb_plan *make_plan(const ebb_program *p, const ebb_machine *m, const char *policy) {
    return make_plan_within(p, m, policy, UINT64_MAX);
}

static uint64_t load_of_plan(const ebb_program *p, const ebb_plan *plan) {
    uint64_t bytes = 0;
    assert_int_equal(ebb__plan_bound(plan, p->alignment_bytes, &bytes), EBB_OK);
    return bytes;
}

/* Whether a step overwrites a persistent tensor after another access: liveness gives its bytes to others before that,
 * and the search for an order does not see it. */
static bool overwrites(const ebb_program *p) {
    bool *seen = calloc(p->tensors.n, sizeof *seen), found = false;
    for (size_t a = 0; a < p->accesses.n; a++) { /* of the steps in their order */
        const ebb_access *access = &p->accesses.data[a];
        const bool persists = p->tensors.data[access->tensor].persistent;
        found = found || (persists && seen[access->tensor] && access->mode == EBB_WRITE);
        seen[access->tensor] = true;
    }
    free(seen);
    return found;
}

static void compare_plans(const ebb_program *p, uint64_t seed, const ebb_order_figures *figures) {
    ebb_machine *m = NULL;
    ebb_rng rng;
    world expected;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_plan *none = make_plan(p, m, "none"), *liveness = make_plan(p, m, "liveness"),
             *order = make_plan(p, m, "order");
    if (overwrites(p)) {
        assert_true(load_of_plan(p, liveness) <= figures->program_bytes);
    } else {
        assert_int_equal(load_of_plan(p, liveness), figures->program_bytes);
    }
    const uint64_t order_bytes = load_of_plan(p, order);
    const uint64_t peak_bytes = ebb_plan_get_summary(order).peak_bytes;
    assert_true(peak_bytes <= ebb_plan_get_summary(liveness).peak_bytes);
    assert_true(order_bytes == figures->order_bytes || overwrites(p) ||
                peak_bytes == ebb_plan_get_summary(liveness).peak_bytes);
    ebb_plan_destroy(make_plan_within(p, m, "order", ebb_plan_get_summary(liveness).peak_bytes));
    ebb__rng_init(&rng, seed, 13);
    execute_in_order(&expected, p, none, N_LAPS);
    assert_has_results(p, order, &expected, N_LAPS, &rng);
    world_free(&expected);
    ebb_plan_destroy(none);
    ebb_plan_destroy(liveness);
    ebb_plan_destroy(order);
    ebb_machine_destroy(m);
}

static void try_program(const ebb_program *p, uint64_t seed, bool executes, sums *s) {
    uint32_t *order = calloc(p->steps.n, sizeof *order);
    ebb_order_figures quick, f;
    assert_int_equal(ebb__order_find(p, NULL, EBB_ORDER_QUICK, NULL, order, &quick), EBB_OK);
    assert_int_equal(ebb__order_find(p, NULL, EBB_ORDER_THOROUGH, NULL, order, &f), EBB_OK);
    assert_int_equal(quick.program_bytes, f.program_bytes);
    if (f.bound_bytes > f.order_bytes || f.order_bytes > quick.order_bytes || quick.order_bytes > f.program_bytes) {
        fail_msg("seed %zu: loads of %zu, %zu and %zu", (size_t)seed, (size_t)f.program_bytes,
                 (size_t)quick.order_bytes, (size_t)f.order_bytes);
    }
    if (p->steps.n <= MAX_EXACT_STEPS) {
        const uint64_t least_bytes = least_load(p);
        assert_true(f.bound_bytes <= least_bytes && least_bytes <= f.order_bytes);
        s->n_exact++;
        s->n_exact_found += least_bytes == f.order_bytes;
    }
    if (executes) { compare_plans(p, seed, &f); }
    s->n++;
    s->n_lower += f.order_bytes < f.program_bytes;
    s->n_best += f.order_bytes == f.bound_bytes;
    s->order += (double)f.order_bytes / (double)f.program_bytes;
    s->quick += (double)quick.order_bytes / (double)f.program_bytes;
    free(order);
}

static void tell(const char *what, const sums *s) {
    print_message(
        "%-22s %3zu programs: %5.1f %% of the program's load, quick %5.1f %%; lower in %zu, proven the least in "
        "%zu; of %zu small ones %zu the least\n",
        what, s->n, 100 * s->order / (double)s->n, 100 * s->quick / (double)s->n, s->n_lower, s->n_best, s->n_exact,
        s->n_exact_found);
}

static void test_programs(void **state) {
    (void)state;
    const uint64_t n = getenv("EBB_TEST_ALL") != NULL ? 200 : 60;
    sums s = {0};
    for (uint64_t seed = 1; seed <= n; seed++) {
        ebb_program *p = random_program(seed);
        try_program(p, seed, true, &s);
        ebb_program_destroy(p);
    }
    tell("networks and soups", &s);
    assert_int_equal(s.n_exact_found, s.n_exact);
    assert_true(s.n_lower > n / 8 && s.n_exact > n / 8);
}

static void try_branches(const char *what, uint32_t max_nodes, bool trains, uint64_t n) {
    sums s = {0};
    for (uint64_t seed = 1; seed <= n; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 5);
        ebb_program *p = random_branches(&rng, max_nodes, trains);
        try_program(p, seed, seed % 4 == 0, &s);
        ebb_program_destroy(p);
    }
    tell(what, &s);
    assert_int_equal(s.n_exact_found, s.n_exact);
    assert_true(s.n_lower > n / 2 && s.order < 0.9 * (double)n);
}

static void test_branches(void **state) {
    (void)state;
    const bool in_full = getenv("EBB_TEST_ALL") != NULL;
    try_branches("branches", 40, false, in_full ? 200 : 60);
    try_branches("branches in training", 40, true, in_full ? 200 : 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs), cmocka_unit_test(test_branches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
