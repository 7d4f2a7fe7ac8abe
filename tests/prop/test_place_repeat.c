/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems whose iterations are alike: what is told of them makes the answer better, and never wrong.
 */
#include "place_expect.h"
#include "place_slow.h"
#define MAX_MADE 4096u
#define N_PATTERN 24u
#define PERIOD 96u

typedef unsigned long long ull;

/* A recording: a warm-up that is no iteration, iterations of one pattern, some of whose blocks live on into the next or
 * the one after, and an end; with weights that are made in the warm-up. */
typedef struct recording {
    ebb_place_item items[MAX_MADE];
    uint64_t starts[16];
    size_t n_items, n_starts;
    ebb_place_problem p;
} recording;

static void add(recording *r, uint64_t size_bytes, uint64_t first, uint64_t last) {
    assert_true(r->n_items < MAX_MADE);
    r->items[r->n_items++] = (ebb_place_item){size_bytes, first, last};
}

static uint64_t draw_size(ebb_rng *rng) {
    return (1 + ebb__rng_below(rng, 40)) << ebb__rng_below(rng, 5);
}

static void make(recording *r, uint64_t seed) {
    ebb_rng rng;
    ebb_place_item pattern[N_PATTERN];
    ebb__rng_init(&rng, seed, 31);
    const uint64_t n = 4 + ebb__rng_below(&rng, 9), warm_up = 30 + ebb__rng_below(&rng, 90), end = warm_up + n * PERIOD;
    const bool is_odd = ebb__rng_below(&rng, 4) == 0; /* an iteration has a block more */
    *r = (recording){.n_starts = n + 1};
    for (unsigned k = 0; k < N_PATTERN; k++) {
        const uint64_t longest = k % 6 == 0 ? 2 * PERIOD : k % 3 == 0 ? PERIOD : PERIOD / 4;
        const uint64_t first = ebb__rng_below(&rng, PERIOD);
        pattern[k] = (ebb_place_item){draw_size(&rng), first, first + 1 + ebb__rng_below(&rng, longest)};
    }
    for (unsigned k = 0; k < 6; k++) { add(r, draw_size(&rng), ebb__rng_below(&rng, warm_up), end + 9); }
    for (unsigned k = 0; k < 12; k++) {
        const uint64_t first = ebb__rng_below(&rng, warm_up);
        add(r, draw_size(&rng), first, first + 1 + ebb__rng_below(&rng, 40));
    }
    for (uint64_t i = 0; i <= n; i++) {
        r->starts[i] = warm_up + i * PERIOD;
        for (unsigned k = 0; k < N_PATTERN && i < n; k++) {
            add(r, pattern[k].size_bytes, r->starts[i] + pattern[k].first, r->starts[i] + pattern[k].last);
        }
    }
    if (is_odd) { add(r, draw_size(&rng), warm_up + PERIOD + 5, warm_up + PERIOD + 50); }
    r->p = EBB_PLACE_PROBLEM_INIT;
    r->p.items = r->items;
    r->p.n_items = r->n_items;
}

static ebb_place_options told(const recording *r) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.iteration_starts = r->starts;
    options.n_iteration_starts = r->n_starts;
    options.max_steps = 20000;
    return options;
}

/* The middle ones are alike and within the steady peak. */
static void check_steady(const recording *r, const uint64_t *offsets, const ebb_place_result *result, uint64_t seed) {
    const uint64_t from = r->starts[r->n_starts / 2], to = r->starts[r->n_starts / 2 + 1];
    for (size_t i = 0; i < r->n_items; i++) {
        const ebb_place_item *item = &r->items[i];
        if (item->last <= from || item->first >= to) { continue; }
        if (offsets[i] + item->size_bytes > result->steady_peak_bytes) {
            fail_msg("seed %llu: item %zu", (ull)seed, i);
        }
    }
    assert_true(result->steady_peak_bytes >= result->steady_bound_bytes && result->steady_bound_bytes > 0);
    assert_true(result->steady_peak_bytes <= result->peak_bytes);
}

static void test_made(void **state) {
    (void)state;
    static recording r;
    static uint64_t offsets[MAX_MADE], again[MAX_MADE];
    unsigned n_told = 0, n_untold = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        make(&r, seed);
        ebb_place_options options = told(&r);
        const ebb_place_result result = expect_answer(&r.p, &options, offsets, seed);
        const ebb_place_result same = expect_answer(&r.p, &options, again, seed);
        assert_true(memcmp(offsets, again, r.n_items * sizeof *offsets) == 0 && same.n_steps == result.n_steps);
        check_steady(&r, offsets, &result, seed);
        options.n_iteration_starts = 0;
        const ebb_place_result untold = expect_answer(&r.p, &options, again, seed);
        assert_true(untold.steady_bound_bytes == 0 && untold.bound_bytes <= result.peak_bytes);
        n_told += result.peak_bytes == result.bound_bytes;
        n_untold += untold.peak_bytes == untold.bound_bytes;
        const char *solver = NULL;
        options = told(&r);
        for (size_t k = 1; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
            ebb_place_result other = {0};
            options.solver = solver;
            if (ebb_place_solve(&r.p, &options, again, &other) != EBB_OK) { continue; }
            if (other.peak_bytes < result.peak_bytes) { fail_msg("seed %llu: %s is better", (ull)seed, solver); }
        }
    }
    print_message("at the bound: %u told, %u not, of 150\n", n_told, n_untold);
    assert_true(n_told > n_untold + 15);
}

/* Starts that tell nothing, or something wrong: an answer all the same. */
static void test_wrong_starts(void **state) {
    (void)state;
    static recording r;
    static uint64_t offsets[MAX_MADE];
    for (uint64_t seed = 0; seed < 60; seed++) {
        ebb_rng rng;
        make(&r, seed);
        ebb__rng_init(&rng, seed, 32);
        const uint64_t step = ebb__rng_below(&rng, 3 * PERIOD), from = ebb__rng_below(&rng, 1000);
        for (size_t i = 0; i < r.n_starts; i++) { r.starts[i] = from + i * step; }
        if (seed % 3 == 0) { r.n_starts = seed % 4; }
        const ebb_place_options options = told(&r);
        (void)expect_answer(&r.p, &options, offsets, seed);
    }
}

static void test_out_of_memory(void **state) {
    (void)state;
    static recording r;
    static uint64_t offsets[MAX_MADE];
    make(&r, 1);
    OOM_LOOP(mem, st, {
        ebb_place_options options = told(&r);
        ebb_place_result result = {0};
        options.mem = mem;
        options.max_steps = 500;
        st = ebb_place_solve(&r.p, &options, offsets, &result);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_wrong_starts),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
