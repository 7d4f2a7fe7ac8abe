/* SPDX-License-Identifier: Apache-2.0
 *
 * The promise of "best": no other solver's answer is better, on any problem, with the same options.
 */
#include "place_expect.h"
#include "place_instances.h"
#include "place_slow.h"

typedef unsigned long long ull;

static uint64_t offsets[4096];

static void compare(const ebb_place_problem *p, uint64_t max_steps, const char *what, ull seed) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_result best = {0}, other = {0};
    const char *solver = NULL;
    uint64_t peak = 0;
    assert_true(p->n_items <= sizeof offsets / sizeof offsets[0]);
    options.max_steps = max_steps;
    assert_int_equal(ebb_place_solve(p, &options, offsets, &best), EBB_OK);
    assert_int_equal(ebb_place_check(p, NULL, offsets, &peak), EBB_OK);
    assert_int_equal(peak, best.peak_bytes);
    for (size_t k = 1; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
        options.solver = solver;
        if (ebb_place_solve(p, &options, offsets, &other) != EBB_OK) { continue; } /* given up, or fixed offsets */
        if (other.peak_bytes < best.peak_bytes) {
            fail_msg("%s, seed %llu, %llu steps: best %llu, %s %llu", what, seed, (ull)max_steps, (ull)best.peak_bytes,
                     solver, (ull)other.peak_bytes);
        }
    }
}

/* Tilings are where greedy rules and the search differ most. */
static void test_made(void **state) {
    (void)state;
    const char *kind = NULL;
    for (size_t k = 0; (kind = ebb_bench_kind(k, NULL)) != NULL; k++) {
        for (uint64_t seed = 0; seed < 24; seed++) {
            ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
            ebb_place_item *items = NULL;
            assert_true(ebb_bench_make_items(kind, 40 << seed % 5, seed, &items, &p.n_items));
            p.items = items;
            compare(&p, 1000 << seed % 7, kind, seed);
            free(items);
        }
    }
}

static void test_any_kind(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        ebb_rng rng;
        slow_problem s;
        ebb__rng_init(&rng, seed, 15);
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        compare(&s.p, seed % 2 == 0 ? 300 : 3000, "random", seed);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_any_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
