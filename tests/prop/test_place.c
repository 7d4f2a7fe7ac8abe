/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement on thousands of random problems, against a checker that looks at every pair, and on the published
 * shapes: nested lifetimes, everything alive, around the end.
 */
#include "place_expect.h"
#include "place_slow.h"

#define MAX_ITEMS SLOW_MAX_ITEMS
#define MAX_STEPS 200000u /* a search that cannot meet the bound uses all, which is slow under sanitizers */

static ebb_status solve(const ebb_place_problem *p, uint64_t enough_bytes, uint64_t *offsets, uint64_t *peak_out) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_result result = {0};
    options.enough_bytes = enough_bytes;
    options.max_steps = MAX_STEPS;
    EBB_TRY(ebb_place_solve(p, &options, offsets, &result));
    *peak_out = result.peak_bytes;
    return EBB_OK;
}

/* Plain problems. */
static void test_random_problems(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 1);
        slow_problem s;
        uint64_t offsets[MAX_ITEMS + 1], again[MAX_ITEMS + 1], slow = 0;
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        slow_draw(&s, &rng, 0);
        options.max_steps = MAX_STEPS;
        options.enough_bytes = seed % 8 == 0 ? 0 : UINT64_MAX; /* the search for better is slow under sanitizers */
        const ebb_place_result first = expect_answer(&s.p, &options, offsets, seed),
                               second = expect_answer(&s.p, &options, again, seed);
        if (!slow_is_placement(&s.p, offsets, s.n_times, &slow) || slow != first.peak_bytes) {
            fail_msg("seed %llu: no placement of this peak", (unsigned long long)seed);
        }
        if (second.peak_bytes != slow || memcmp(offsets, again, s.p.n_items * sizeof *offsets) != 0) {
            fail_msg("seed %llu: another answer the second time", (unsigned long long)seed);
        }
    }
}

/* Activations of a network: item k lives over [k, 2n - k). Any of them fits exactly under its parents. */
static void test_nested_meets_bound(void **state) {
    (void)state;
    enum { N = 2000 };
    ebb_place_item *items = calloc(2 * N, sizeof *items);
    uint64_t *offsets = calloc(2 * N, sizeof *offsets);
    ebb_rng rng;
    ebb__rng_init(&rng, 5, 0);
    for (uint64_t k = 0; k < N; k++) {
        items[k] = (ebb_place_item){.size_bytes = 1 + ebb__rng_below(&rng, 100000), .first = k, .last = 2 * N - k};
        items[N + k] = (ebb_place_item){.size_bytes = 1000000, .first = 2 * N, .last = k + 1 == N ? 0 : 2 * N};
    }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    p.alignment_bytes = 64;
    uint64_t peak = 0, bound = 0;
    assert_int_equal(solve(&p, 0, offsets, &peak), EBB_OK);
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_true(ebb_align_up(peak, p.alignment_bytes) == bound);
    p.n_items = 2 * N; /* with weights that live always */
    p.period = 2 * N;
    assert_int_equal(solve(&p, 0, offsets, &peak), EBB_OK);
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_true(ebb_align_up(peak, p.alignment_bytes) == bound);
    assert_int_equal(ebb_place_check(&p, NULL, offsets, &bound), EBB_OK);
    assert_true(peak == bound);
    free(items);
    free(offsets);
}

/* Each row: sections where 1, 2, 3 ... items pile up at random. A peak that is good enough ends the search. */
static void test_enough(void **state) {
    (void)state;
    enum { N = 400 };
    ebb_place_item items[N];
    uint64_t offsets[N], best = 0, bound = 0, peak = 0;
    ebb_rng rng;
    ebb__rng_init(&rng, 3, 3);
    for (size_t i = 0; i < N; i++) {
        uint64_t first = ebb__rng_below(&rng, 100);
        items[i] = (ebb_place_item){1 + ebb__rng_below(&rng, 1000), first, first + 1 + ebb__rng_below(&rng, 60)};
    }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    assert_int_equal(solve(&p, 0, offsets, &best), EBB_OK);
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_true(best >= bound);
    assert_int_equal(solve(&p, bound * 2, offsets, &peak), EBB_OK);
    assert_true(peak > best && peak <= bound * 2);
    assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_OK);
    assert_int_equal(solve(&p, best, offsets, &peak), EBB_OK);
    assert_true(peak == best);
}

/* With the least work there is a placement; with more it is no worse. */
static void test_max_steps(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 5);
        slow_problem s;
        uint64_t offsets[MAX_ITEMS + 1], before = UINT64_MAX;
        slow_draw(&s, &rng, 0);
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        for (options.max_steps = 1; options.max_steps < 1000000; options.max_steps *= 30) {
            const ebb_place_result result = expect_answer(&s.p, &options, offsets, seed);
            if (result.peak_bytes > before) { fail_msg("seed %llu", (unsigned long long)seed); }
            before = options.max_steps == 1 ? result.peak_bytes : before;
        }
    }
}

/* A great many items come within a third of a percent of the bound, and more steps than the default's give nothing
 * worse. A caller who asks for a peak is done as soon as it is reached. */
static void test_many(void **state) {
    (void)state;
    only_when_all();
    enum { N = 205 * 1000 };
    ebb_place_item *items = calloc(N, sizeof *items);
    uint64_t *offsets = calloc(N, sizeof *offsets);
    ebb_rng rng;
    ebb__rng_init(&rng, 3, 7);
    for (uint64_t i = 0; i < N; i++) {
        const uint64_t size_bytes = 1 + ebb__rng_below(&rng, (uint64_t)1 << ebb__rng_below(&rng, 4));
        const uint64_t life = 1 + ebb__rng_below(&rng, (uint64_t)1 << ebb__rng_below(&rng, 14));
        items[i] = (ebb_place_item){size_bytes, i, i % 50 == 0 ? 2 * N : i + life};
    }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_result asked = {0};
    const ebb_place_result hasty = expect_answer(&p, &options, offsets, 3);
    assert_true(hasty.peak_bytes > hasty.bound_bytes);
    assert_true(hasty.peak_bytes <= hasty.bound_bytes + hasty.bound_bytes / 300);
    options.max_steps = 2 * hasty.n_steps;
    assert_int_equal(ebb_place_solve(&p, &options, offsets, &asked), EBB_OK);
    assert_true(asked.n_steps >= hasty.n_steps && asked.peak_bytes <= hasty.peak_bytes);
    options.max_steps = 0;
    options.enough_bytes = hasty.bound_bytes + hasty.bound_bytes / 4;
    assert_int_equal(ebb_place_solve(&p, &options, offsets, &asked), EBB_OK);
    assert_true(asked.peak_bytes <= options.enough_bytes && asked.n_steps <= hasty.n_steps);
    free(items);
    free(offsets);
}

static void test_out_of_memory(void **state) {
    (void)state;
    enum { N = 50 };
    ebb_place_item items[N];
    ebb_rng rng;
    ebb__rng_init(&rng, 4, 4);
    for (size_t i = 0; i < N; i++) {
        items[i] = (ebb_place_item){1 + ebb__rng_below(&rng, 1000), ebb__rng_below(&rng, 9), ebb__rng_below(&rng, 9)};
    }
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = N;
    p.period = 9;
    uint64_t offsets[N], bound = 0;
    ebb_place_result result = {0};
    OOM_LOOP(mem, st, {
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        options.mem = mem;
        memset(offsets, 0x55, sizeof offsets);
        st = ebb_place_solve(&p, &options, offsets, &result);
        assert_true(st == EBB_OK || offsets[N - 1] == 0x5555555555555555u);
    });
    OOM_LOOP(mem, st, { st = ebb_place_bound(&p, mem, &bound); });
    OOM_LOOP(mem, st, { st = ebb_place_check(&p, mem, offsets, NULL); });
    assert_true(result.peak_bytes >= bound);
}

static void expect_argument(ebb_place_item item, uint64_t period, uint64_t alignment_bytes) {
    ebb_place_item items[2] = {{.size_bytes = 5, .first = 0, .last = 1}, item};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 2;
    p.period = period;
    p.alignment_bytes = alignment_bytes;
    uint64_t offsets[2] = {7, 7}, peak = 7;
    assert_int_equal(solve(&p, 0, offsets, &peak), EBB_E_ARGUMENT);
    if (alignment_bytes == 1) { assert_non_null(strstr(ebb_last_error(), "item 1")); }
    assert_int_equal(ebb_place_bound(&p, NULL, &peak), EBB_E_ARGUMENT);
    assert_true(offsets[0] == 7 && offsets[1] == 7 && peak == 7);
}

static void test_malformed(void **state) {
    (void)state;
    expect_argument((ebb_place_item){1, 3, 3}, 0, 1);
    expect_argument((ebb_place_item){1, 4, 3}, 0, 1);
    expect_argument((ebb_place_item){1, 4, 3}, 3, 1);
    expect_argument((ebb_place_item){1, 0, 4}, 3, 1);
    expect_argument((ebb_place_item){UINT64_MAX, 0, 4}, 0, 1);
    expect_argument((ebb_place_item){((uint64_t)1 << 63) - 2, 0, 4}, 0, 1);
    expect_argument((ebb_place_item){1, 0, 1}, 0, 3);
    expect_argument((ebb_place_item){1, 0, 1}, 0, 0);
}

static void test_empty(void **state) {
    (void)state;
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    uint64_t peak = 1, bound = 1;
    assert_int_equal(solve(&p, 0, NULL, &peak), EBB_OK);
    assert_int_equal(ebb_place_bound(&p, NULL, &bound), EBB_OK);
    assert_int_equal(peak, 0);
    assert_int_equal(bound, 0);
    assert_int_equal(ebb_place_check(&p, NULL, NULL, &peak), EBB_OK);
}

static void test_overlap_message(void **state) {
    (void)state;
    ebb_place_item items[] = {{10, 0, 5}, {10, 3, 4}, {10, 5, 9}};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 3;
    uint64_t offsets[] = {0, 9, 0};
    assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "items 0 and 1 overlap at time 3"));
    offsets[1] = 10;
    assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_OK);
    offsets[1] = UINT64_MAX - 5;
    assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "64 bits"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_problems), cmocka_unit_test(test_nested_meets_bound),
        cmocka_unit_test(test_malformed),       cmocka_unit_test(test_empty),
        cmocka_unit_test(test_overlap_message), cmocka_unit_test(test_enough),
        cmocka_unit_test(test_max_steps),       cmocka_unit_test(test_many),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
