/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of algorithm over random programs, machines, budgets and policies: every way's plan passes the validator and
 * gives the results of any other; fitting is there where another way is and never slower, as predicted; without a
 * budget it is the fastest; what is named as least works; the same again is the same. And on programs so
 * small that all choices can be tried, fitting is seldom worse than the best of them, and then by little.
 */
#include "plan_support.h"

#include "plan/maker.h"

#define N_LAPS 2

typedef struct fixture {
    ebb_rng rng;
    ebb_program *program;
    ebb_machine *machine;
} fixture;

static void fixture_init(fixture *f, uint64_t seed, uint32_t n_open, uint32_t max_choices) {
    print_message("seed %llu\n", (unsigned long long)seed);
    ebb__rng_init(&f->rng, seed, 3);
    ebb_program *plain = random_program(seed);
    f->program = with_choices(plain, &f->rng, n_open, max_choices);
    ebb_program_destroy(plain);
    assert_int_equal(ebb_machine_create(NULL, &f->machine), EBB_OK);
    const double out_per_s = 1e6 * (double)(1 + ebb__rng_below(&f->rng, 100));
    const double in_per_s = 1e6 * (double)(1 + ebb__rng_below(&f->rng, 100));
    set_link(f->machine, EBB_HOST, out_per_s, in_per_s, ebb__rng_below(&f->rng, 2000));
}

static void fixture_fini(fixture *f) {
    ebb_machine_destroy(f->machine);
    ebb_program_destroy(f->program);
}

static uint64_t time_of(const fixture *f, const ebb_plan *plan) {
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(f->program, plan, f->machine, &timeline, NULL, NULL), EBB_OK);
    return timeline.iteration_ns;
}

/* NULL: it does not fit, and with what it says is the least it does. */
static ebb_plan *make(const fixture *f, ebb_plan_options options) {
    ebb_plan *plan = NULL, *with_least = NULL;
    ebb_no_fit no_fit = {0};
    const ebb_status st = ebb_plan_make(f->program, f->machine, &options, &plan, &no_fit);
    if (st == EBB_OK) {
        assert_true(ebb_plan_get_summary(plan).peak_bytes <= options.budget_bytes);
        return plan;
    }
    assert_int_equal(st, EBB_E_NO_FIT);
    assert_true(no_fit.least_budget_bytes > options.budget_bytes && no_fit.least_budget_bytes >= no_fit.step_bytes);
    options.budget_bytes = no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(f->program, f->machine, &options, &with_least, NULL), EBB_OK);
    ebb_plan_destroy(with_least);
    return NULL;
}

static void assert_same_plan(const ebb_plan *a, const ebb_plan *b) {
    assert_same_actions(a, b);
    assert_int_equal(a->stays.n, b->stays.n);
    assert_int_equal(a->slots.n, b->slots.n);
    for (size_t i = 0; i < a->stays.n; i++) { assert_int_equal(a->stays.data[i].offset, b->stays.data[i].offset); }
}

static void assert_results(const fixture *f, const ebb_plan *plan, const world *expected) {
    world w;
    execute_in_order(&w, f->program, plan, N_LAPS);
    assert_same_results(&w, expected, N_LAPS);
    world_free(&w);
}

/* All ways with these options. */
static void compare_ways(fixture *f, ebb_plan_options options, const world *expected) {
    uint64_t other_ns = UINT64_MAX, fitting_ns = UINT64_MAX;
    for (size_t way = 0; way < EBB_N_ALGORITHMS; way++) {
        options.algorithms = ebb_algorithms_name(way, NULL);
        ebb_plan *plan = make(f, options);
        if (plan == NULL) { continue; }
        assert_results(f, plan, expected);
        if (way == EBB_ALGORITHMS_GREEDY) {
            assert_true(ebb_plan_get_summary(plan).peak_bytes <= options.budget_bytes); /* no search: no more to ask */
        } else if (way != EBB_ALGORITHMS_FITTING) {
            other_ns = ebb_min_u64(other_ns, time_of(f, plan));
        } else {
            ebb_plan *again = make(f, options);
            assert_same_plan(plan, again);
            ebb_plan_destroy(again);
            fitting_ns = time_of(f, plan);
        }
        ebb_plan_destroy(plan);
    }
    assert_true(fitting_ns <= other_ns);
}

static void compare_unlimited(fixture *f, const char *policy) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    options.algorithms = "fastest";
    ebb_plan *fastest = make(f, options);
    options.algorithms = "fitting";
    ebb_plan *fitting = make(f, options);
    assert_non_null(fastest);
    assert_non_null(fitting);
    assert_same_plan(fastest, fitting);
    ebb_plan_destroy(fastest);
    ebb_plan_destroy(fitting);
}

/* The floor of the least scratch, and what liveness takes with the fastest. */
static void find_range(const fixture *f, uint64_t *low_out, uint64_t *high_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    options.algorithms = "fastest";
    ebb_plan *plan = make(f, options);
    *low_out = ebb_program_floor_bytes(f->program, NULL);
    *high_out = ebb_max_u64(*low_out, ebb_plan_get_summary(plan).peak_bytes);
    ebb_plan_destroy(plan);
}

/* The others are like one of these to the maker. */
static const char *const policies[] = {"none", "liveness", "order", "budget", "best"};

static void test_ways(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(1, 2, 2));
    for (uint64_t seed = first; seed < first + n; seed++) {
        fixture f;
        fixture_init(&f, seed, 1000, 4);
        uint64_t low = 0, high = 0;
        find_range(&f, &low, &high);
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = "none";
        ebb_plan *none = make(&f, options);
        world expected;
        execute_in_order(&expected, f.program, none, N_LAPS);
        ebb_plan_destroy(none);
        for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
            options.policy = policies[i];
            compare_unlimited(&f, options.policy);
            const bool keeps = strcmp(options.policy, "budget") == 0;
            for (uint64_t part = keeps ? 0 : 2; part < 3; part++) {
                options.budget_bytes = keeps ? low + (high - low) * part / 4 : high * 4 / 5;
                options.tier_bytes[EBB_HOST] = part == 2 && keeps ? high / 3 : UINT64_MAX;
                compare_ways(&f, options, &expected);
            }
        }
        world_free(&expected);
        fixture_fini(&f);
    }
}

/* ---- all choices ------------------------------------------------------------------------------- */

/* The next of all combinations; false: that was the last. */
static bool next_choices(const ebb_program *p, uint32_t *choice) {
    for (size_t s = 0; s < p->steps.n; s++) {
        if (++choice[s] < p->steps.data[s].n_choices) { return true; }
        choice[s] = 0;
    }
    return false;
}

/* The time of the best plan that the maker has for any choices; UINT64_MAX: for none. */
static uint64_t best_of_all(const fixture *f, const ebb_plan_options *options, size_t *n_out) {
    uint32_t *choice = calloc(f->program->steps.n, sizeof *choice);
    uint64_t best_ns = UINT64_MAX;
    ebb_maker m;
    assert_int_equal(ebb__maker_init(&m, f->program, f->machine, options, &ebb__policy_budget), EBB_OK);
    *n_out = 0;
    do {
        ebb_plan *plan = NULL;
        ebb__maker_choose(&m, choice);
        const ebb_status st = ebb__maker_try(&m, &plan);
        assert_true(st == EBB_OK || st == EBB_E_NO_FIT);
        if (st == EBB_OK) { best_ns = ebb_min_u64(best_ns, time_of(f, plan)); }
        ebb_plan_destroy(plan);
        ++*n_out;
    } while (next_choices(f->program, choice));
    ebb__maker_fini(&m);
    free(choice);
    return best_ns;
}

static void test_all_choices(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(1, 2, 2));
    double all_ns = 0, fitting_ns = 0;
    size_t n_cases = 0, n_best = 0, n_vectors = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        fixture f;
        fixture_init(&f, seed, 4, 2);
        uint64_t low = 0, high = 0;
        find_range(&f, &low, &high);
        for (uint64_t part = 1; part < 3; part++) {
            size_t n_all = 0;
            ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
            options.algorithms = "fitting";
            options.budget_bytes = low + (high - low) * part / 3;
            const uint64_t best_ns = best_of_all(&f, &options, &n_all);
            ebb_plan *plan = make(&f, options);
            assert_true(plan != NULL || best_ns == UINT64_MAX);
            if (plan == NULL) { continue; }
            const uint64_t ns = time_of(&f, plan);
            assert_true((double)ns <= 1.05 * (double)best_ns);
            n_cases++;
            n_best += ns <= best_ns;
            n_vectors += n_all;
            all_ns += (double)best_ns;
            fitting_ns += (double)ns;
            ebb_plan_destroy(plan);
        }
        fixture_fini(&f);
    }
    print_message("%zu of %zu cases at the best of %zu choices; time %.5f of it\n", n_best, n_cases, n_vectors,
                  fitting_ns / all_ns);
    assert_true(n_cases > 0 && fitting_ns <= 1.01 * all_ns);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ways), cmocka_unit_test(test_all_choices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
