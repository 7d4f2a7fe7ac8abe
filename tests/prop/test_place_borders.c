/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of as many items as lie around the borders of stages: the exact search ends at 2,048, patience at 200,000.
 * Every answer passes the library's checker, and where there are few enough, a look at every pair. And times at both
 * ends of 64 bits.
 */
#include "place_expect.h"

#include <stdlib.h>

#define STEPS ((uint64_t)500 * 1000)
#define MAX_PAIRED ((size_t)3000)

/* Mostly small and short, as an allocator's, in order of birth or not; lives of this many orders of magnitude, less
 * one.
 */
static void draw(ebb_place_item *items, size_t n, uint64_t seed, uint64_t n_lives) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, n);
    for (size_t i = 0; i < n; i++) {
        const uint64_t first = seed % 2 == 0 ? i : ebb__rng_below(&rng, n);
        items[i] = (ebb_place_item){16 * (1 + ebb__rng_below(&rng, (uint64_t)1 << ebb__rng_below(&rng, 8))), first,
                                    first + 1 + ebb__rng_below(&rng, (uint64_t)1 << ebb__rng_below(&rng, n_lives))};
    }
}

static bool any_pair_overlaps(const ebb_place_item *items, size_t n, const uint64_t *offsets) {
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            const bool together = items[i].first < items[j].last && items[j].first < items[i].last;
            if (together && offsets[i] < offsets[j] + items[j].size_bytes &&
                offsets[j] < offsets[i] + items[i].size_bytes) {
                return true;
            }
        }
    }
    return false;
}

static void place(size_t n, uint64_t seed, uint64_t n_lives, uint64_t max_steps) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_item *items = malloc(n * sizeof *items);
    uint64_t *offsets = malloc(n * sizeof *offsets);
    assert_non_null(items);
    assert_non_null(offsets);
    draw(items, n, seed, n_lives);
    problem.items = items;
    problem.n_items = n;
    options.max_steps = max_steps;
    (void)expect_answer(&problem, &options, offsets, seed);
    if (n <= MAX_PAIRED && any_pair_overlaps(items, n, offsets)) {
        fail_msg("%zu items, seed %llu: two overlap", n, (unsigned long long)seed);
    }
    free(items);
    free(offsets);
}

static void test_exact(void **state) {
    (void)state;
    for (size_t n = 2047; n <= 2049; n++) { place(n, n % 2, 11, STEPS); }
}

static void test_patience(void **state) {
    (void)state;
    place(200001, 0, 9, 0);
}

static void test_all_times(void **state) {
    (void)state;
    const uint64_t end = UINT64_MAX;
    const ebb_place_item items[] = {{3, 0, end}, {5, end - 1, end}, {5, 0, 1}, {4, 1, end - 1}, {4, end - 2, end}};
    uint64_t offsets[5], peak = 0;
    const char *solver = NULL;
    for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
        for (size_t n = 1; n <= 5; n++) {
            ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
            ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
            ebb_place_result result;
            problem.items = items;
            problem.n_items = n;
            problem.period = (k + n) % 2 == 0 ? 0 : end;
            options.solver = solver;
            assert_int_equal(ebb_place_solve(&problem, &options, offsets, &result), EBB_OK);
            assert_int_equal(ebb_place_check(&problem, NULL, offsets, &peak), EBB_OK);
            assert_true(peak <= result.peak_bytes && result.bound_bytes == (n == 1 ? 3 : n == 5 ? 12 : 8));
            assert_true(k > 0 || result.peak_bytes == result.bound_bytes);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exact),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_all_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
