/* SPDX-License-Identifier: Apache-2.0
 *
 * The promises of "best": no other solver's answer is better, on any problem, with the same options; and more steps
 * than the default never give a worse answer.
 */
#include "place/place_priv.h"

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
        if (other.peak_bytes < best.peak_bytes || other.peak_bytes < best.bound_bytes) {
            fail_msg("%s, seed %llu, %llu steps: best %llu, bound %llu, %s %llu", what, seed, (ull)max_steps,
                     (ull)best.peak_bytes, (ull)best.bound_bytes, solver, (ull)other.peak_bytes);
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
            p.alignment_bytes = 64;
            compare(&p, 1000 << seed % 7, kind, seed);
            free(items);
        }
    }
}

/* Sizes within a few multiples of the alignment: what lies highest decides. */
static void test_ends(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 1000; seed++) {
        ebb_rng rng;
        ebb_place_item items[6];
        ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
        ebb__rng_init(&rng, seed, 16);
        p.items = items;
        p.n_items = 1 + ebb__rng_below(&rng, 6);
        p.alignment_bytes = (uint64_t)4 << ebb__rng_below(&rng, 5);
        for (size_t i = 0; i < p.n_items; i++) {
            const uint64_t first = ebb__rng_below(&rng, 6),
                           size_bytes = 1 + ebb__rng_below(&rng, 2 * p.alignment_bytes);
            items[i] = (ebb_place_item){size_bytes, first, first + 1 + ebb__rng_below(&rng, 3)};
        }
        compare(&p, 0, "ends", seed);
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

/* ---- more steps ------------------------------------------------------------------------------- */

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

/* Whether more than the default's steps gave a better answer at last. */
static bool climb(const ebb_place_problem *p, uint64_t default_steps, ull seed) {
    uint64_t least = UINT64_MAX, first = 0;
    for (uint64_t times = 4; times <= 64; times += times / 4) { /* quarters of the default */
        ebb_place_job job = {.problem = p, .default_steps = default_steps, .stop = never};
        ebb_place_result result = {0};
        job.max_steps = default_steps / 4 * times;
        assert_int_equal(ebb__place_search(&job, offsets, &result), EBB_OK);
        if (result.peak_bytes > least) {
            fail_msg("seed %llu, %llu quarters of %llu steps: %llu, with fewer %llu", seed, (ull)times,
                     (ull)default_steps, (ull)result.peak_bytes, (ull)least);
        }
        least = result.peak_bytes;
        first = times == 4 ? least : first;
    }
    return least < first;
}

static void test_more_steps(void **state) {
    (void)state;
    unsigned n_better = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        static const char *const kinds[] = {"guillotine", "uniform", "random", "pinwheel"};
        ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
        ebb_place_item *items = NULL;
        ebb_rng rng;
        slow_problem s;
        assert_true(ebb_bench_make_items(kinds[seed % 4], 60, seed, &items, &p.n_items));
        p.items = items;
        n_better += climb(&p, 2000, seed);
        free(items);
        ebb__rng_init(&rng, seed, 15);
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        (void)climb(&s.p, 400, seed);
    }
    assert_true(n_better > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_ends),
                                       cmocka_unit_test(test_any_kind), cmocka_unit_test(test_more_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
