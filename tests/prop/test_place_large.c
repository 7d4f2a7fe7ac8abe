/* SPDX-License-Identifier: Apache-2.0
 *
 * Large problems of the kinds that real ones come in, which few items never are: through every stage, what comes out is
 * a placement, and the same again. Of more than 200,000 items, which the search goes through in haste, allocations
 * fail.
 */
#include "place_expect.h"
#include "place_instances.h"

#define N_LARGE ((size_t)3000) /* beyond the exact search's 2,048 */
#define LARGE_STEPS ((uint64_t)1000 * 1000)
#define N_MANY ((size_t)200 * 1000 + 100)
#define N_FULL ((size_t)220 * 1000)

typedef struct large {
    ebb_place_problem problem;
    ebb_place_item *items;
    uint64_t *offsets, *again;
} large;

static void make(large *l, const char *kind, size_t n, uint64_t seed) {
    l->problem = EBB_PLACE_PROBLEM_INIT;
    if (!ebb_bench_make_items(kind, n, seed, &l->items, &l->problem.n_items)) { fail_msg("no items of %s", kind); }
    l->problem.items = l->items;
    l->offsets = malloc(l->problem.n_items * sizeof *l->offsets);
    l->again = malloc(l->problem.n_items * sizeof *l->again);
    assert_non_null(l->offsets);
    assert_non_null(l->again);
}

static void end(large *l) {
    free(l->items);
    free(l->offsets);
    free(l->again);
}

/* Few kinds are at the bound so soon that later stages see nothing of them. */
static void test_kinds(void **state) {
    (void)state;
    const char *kind = NULL;
    unsigned n_open = 0;
    for (uint64_t k = 0; (kind = ebb_bench_kind(k, NULL)) != NULL; k++) {
        large l;
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        make(&l, kind, N_LARGE, k);
        options.max_steps = LARGE_STEPS;
        const ebb_place_result first = expect_answer(&l.problem, &options, l.offsets, k),
                               second = expect_answer(&l.problem, &options, l.again, k);
        n_open += first.peak_bytes > first.bound_bytes;
        if (memcmp(l.offsets, l.again, l.problem.n_items * sizeof *l.offsets) != 0 || first.n_steps != second.n_steps) {
            fail_msg("%s: another answer the second time", kind);
        }
        end(&l);
    }
    assert_true(n_open >= 3);
}

/* ---- circles ---------------------------------------------------------------------------------- */

#define N_TIMES ((uint64_t)6000)
#define VALLEY_FIRST (N_TIMES * 3 / 10)
#define VALLEY_LAST (N_TIMES * 9 / 20)
#define FULL_BYTES ((uint64_t)1 << 20)
#define N_DRAWS 120000
#define STEPS_AN_ITEM ((uint64_t)75)

static bool fits(const uint64_t *load, const ebb_place_item *item) {
    for (uint64_t t = item->first; t != item->last; t = (t + 1) % N_TIMES) {
        const bool is_low = t >= VALLEY_FIRST && t < VALLEY_LAST;
        if (load[t] + item->size_bytes > (is_low ? FULL_BYTES / 4 : FULL_BYTES)) { return false; }
    }
    return true;
}

/* What a plan under a budget is like: a circle that is nearly full but for a valley, of few sizes, most of them of
 * short life and some that last for half of it. */
static void make_full_circle(large *l, uint64_t seed) {
    ebb_rng rng;
    uint64_t *load = calloc(N_TIMES, sizeof *load);
    *l = (large){.problem = EBB_PLACE_PROBLEM_INIT, .items = malloc(N_DRAWS * sizeof *l->items)};
    assert_non_null(load);
    assert_non_null(l->items);
    ebb__rng_init(&rng, seed, 5);
    for (unsigned i = 0; i < N_DRAWS; i++) {
        const uint64_t longest = N_TIMES >> (1 + ebb__rng_below(&rng, 9)), first = ebb__rng_below(&rng, N_TIMES);
        const uint64_t log = 5 + ebb__rng_below(&rng, 8), times = 1 + ebb__rng_below(&rng, 3);
        const ebb_place_item item = {times << log, first, (first + 1 + ebb__rng_below(&rng, longest)) % N_TIMES};
        if (!fits(load, &item)) { continue; }
        for (uint64_t t = item.first; t != item.last; t = (t + 1) % N_TIMES) { load[t] += item.size_bytes; }
        l->items[l->problem.n_items++] = item;
    }
    free(load);
    l->problem.items = l->items;
    l->problem.period = N_TIMES;
    l->offsets = malloc(l->problem.n_items * sizeof *l->offsets);
    l->again = NULL;
    assert_non_null(l->offsets);
}

/* Both directions from the fullest moment get their turn, and the better one comes first, however little the work is.
 */
static void test_full_circles(void **state) {
    (void)state;
    uint64_t peaks = 0, bounds = 0;
    for (uint64_t seed = 0; seed < 4; seed++) {
        large l;
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        make_full_circle(&l, seed);
        options.max_steps = STEPS_AN_ITEM * l.problem.n_items;
        const ebb_place_result result = expect_answer(&l.problem, &options, l.offsets, seed);
        peaks += result.peak_bytes;
        bounds += result.bound_bytes;
        end(&l);
    }
    if (peaks > bounds + bounds / 20 * 3) {
        fail_msg("%llu bytes, the bounds are %llu", (unsigned long long)peaks, (unsigned long long)bounds);
    }
}

/* ---- in haste --------------------------------------------------------------------------------- */

/* The last allocation fails, then one in the middle of those before it, and so on up to the first: what fails late has
 * gone through all before it, so each of them in turn would take minutes. */
static void test_out_of_memory(void **state) {
    (void)state;
    only_when_all();
    large l;
    failing_mem mem;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    make(&l, "uniform", N_MANY, 3);
    options.mem = &failing_mem_init(&mem, 0)->hooks;
    (void)expect_answer(&l.problem, &options, l.offsets, 3);
    const size_t n_calls = mem.n_calls;
    assert_true(n_calls > 300);
    for (size_t at = n_calls; at > 0; at /= 2) {
        ebb_place_result result = {.peak_bytes = 7};
        options.mem = &failing_mem_init(&mem, at)->hooks;
        l.again[0] = l.again[l.problem.n_items - 1] = 7;
        if (ebb_place_solve(&l.problem, &options, l.again, &result) != EBB_E_NO_MEMORY || mem.n_live != 0 ||
            result.peak_bytes != 7 || l.again[0] != 7 || l.again[l.problem.n_items - 1] != 7) {
            fail_msg("allocation %zu of %zu: %s", at, n_calls, ebb_last_error());
        }
    }
    end(&l);
}

/* The search in haste stops near the bound, and the full one that comes after it meets it. */
static void test_full_after_haste(void **state) {
    (void)state;
    large l;
    const ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    make(&l, "malloc", N_FULL, 8);
    const ebb_place_result result = expect_answer(&l.problem, &options, l.offsets, 8);
    assert_int_equal(result.peak_bytes, result.bound_bytes);
    end(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_full_circles),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_full_after_haste),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
