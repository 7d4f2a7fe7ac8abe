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
    const uint64_t size_bytes = 1 + ebb__rng_below(rng, 40);
    return size_bytes << ebb__rng_below(rng, 5);
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

/* ---- trainings: tight iterations, of which the first allocates more between the usual blocks, and the last ends early
 */

#define TURN 400u
#define N_LAYERS 60u
#define N_BRIEF 120u
#define N_SIZES 9u
#define EXTRA_EVERY 5u /* moments of the first iteration; a block that stays, and one that goes again */
#define N_TRAINED 7u   /* iterations */

typedef struct network {
    ebb_place_item blocks[2 * N_LAYERS + N_BRIEF];
    size_t n_blocks;
} network;

/* Activations, which nest; brief ones; with updates late: gradients that the next iteration frees. */
static void make_network(network *net, ebb_rng *rng, bool updates_late) {
    uint64_t sizes[N_SIZES];
    net->n_blocks = 0;
    for (unsigned k = 0; k < N_SIZES; k++) { sizes[k] = draw_size(rng); }
    for (unsigned k = 0; k < N_LAYERS; k++) {
        const uint64_t size_bytes = sizes[ebb__rng_below(rng, N_SIZES)];
        net->blocks[net->n_blocks++] = (ebb_place_item){size_bytes, 3 * k, TURN - 3 * k};
        if (!updates_late || k % 4 != 0) { continue; }
        net->blocks[net->n_blocks++] = (ebb_place_item){draw_size(rng), 100 + k, TURN + 300 - k};
    }
    for (unsigned k = 0; k < N_BRIEF; k++) {
        const uint64_t first = ebb__rng_below(rng, TURN - 12), life = 1 + ebb__rng_below(rng, 12);
        net->blocks[net->n_blocks++] = (ebb_place_item){sizes[ebb__rng_below(rng, N_SIZES)], first, first + life};
    }
}

/* A moment of the first iteration, which is longer. */
static uint64_t stretched(uint64_t moment) {
    return moment + 2 * (ebb_min_u64(moment, TURN / 2) / EXTRA_EVERY);
}

static void train(recording *r, uint64_t seed, bool updates_late) {
    ebb_rng rng;
    network net;
    ebb__rng_init(&rng, seed, 33);
    make_network(&net, &rng, updates_late);
    const uint64_t usual = stretched(TURN), end = usual + N_TRAINED * TURN;
    *r = (recording){.n_starts = N_TRAINED + 1};
    for (uint64_t at = EXTRA_EVERY; at < TURN / 2; at += EXTRA_EVERY) {
        const uint64_t first = stretched(at) - 2;
        add(r, 1 + ebb__rng_below(&rng, 40), first, end);
        add(r, 1 + ebb__rng_below(&rng, 40), first + 1, first + 2);
    }
    for (size_t k = 0; k < net.n_blocks; k++) {
        const ebb_place_item *b = &net.blocks[k];
        add(r, b->size_bytes, stretched(b->first), stretched(b->last));
        for (uint64_t i = 0; i < N_TRAINED; i++) {
            const uint64_t begin = usual + i * TURN;
            add(r, b->size_bytes, begin + b->first, ebb_min_u64(begin + b->last, end));
        }
    }
    for (uint64_t i = 0; i <= N_TRAINED; i++) { r->starts[i] = usual + i * TURN; }
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

/* How many of 30 are at the bound; *n_spoilt_out: where the beginning or the end is higher than the steady part. */
static unsigned count_trained(bool updates_late, unsigned *n_spoilt_out) {
    static recording r;
    static uint64_t offsets[MAX_MADE];
    unsigned n_met = 0;
    *n_spoilt_out = 0;
    for (uint64_t seed = 0; seed < 30; seed++) {
        train(&r, seed, updates_late);
        ebb_place_options options = told(&r);
        options.max_steps = 1000000;
        const ebb_place_result result = expect_answer(&r.p, &options, offsets, seed);
        check_steady(&r, offsets, &result, seed);
        n_met += result.peak_bytes == result.bound_bytes;
        *n_spoilt_out += result.peak_bytes > ebb_max_u64(result.bound_bytes, result.steady_peak_bytes);
    }
    print_message("updates %s: %u of 30 at the bound, %u spoilt\n", updates_late ? "late" : "at once", n_met,
                  *n_spoilt_out);
    return n_met;
}

/* The first iteration is nearly one of the circle, so it finds its place in what the circle needs anyway. */
static void test_beginning_costs_nothing(void **state) {
    (void)state;
    unsigned n_spoilt = 0;
    assert_true(count_trained(false, &n_spoilt) >= 28);
    assert_int_equal(n_spoilt, 0);
}

/* What outlives its iteration needs two places, in turn. */
static void test_two_turns(void **state) {
    (void)state;
    unsigned n_spoilt = 0;
    assert_true(count_trained(true, &n_spoilt) >= 28);
    assert_int_equal(n_spoilt, 0);
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

/* Starts that are not as place.h says are refused by each solver, and nothing is written. */
static void test_malformed_starts(void **state) {
    (void)state;
    const ebb_place_item items[] = {{1, 0, 2}, {1, 1, 3}};
    const uint64_t descending[] = {0, 5, 4, 9}, equal[] = {0, 5, 5, 9};
    uint64_t offsets[] = {77, 78};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_result result = {.peak_bytes = 79};
    p.items = items;
    p.n_items = 2;
    for (size_t k = 0; ebb_place_solver_name(k, NULL) != NULL; k++) {
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        options.solver = ebb_place_solver_name(k, NULL);
        options.n_iteration_starts = 4;
        assert_int_equal(ebb_place_solve(&p, &options, offsets, &result), EBB_E_ARGUMENT);
        assert_non_null(strstr(ebb_last_error(), "iteration_starts is NULL"));
        options.iteration_starts = descending;
        assert_int_equal(ebb_place_solve(&p, &options, offsets, &result), EBB_E_ARGUMENT);
        assert_non_null(strstr(ebb_last_error(), "iteration_starts[2] is 4"));
        assert_true(offsets[0] == 77 && offsets[1] == 78 && result.peak_bytes == 79);
    }
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.iteration_starts = equal;
    options.n_iteration_starts = 4;
    (void)expect_answer(&p, &options, offsets, 0);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made),
                                       cmocka_unit_test(test_beginning_costs_nothing),
                                       cmocka_unit_test(test_two_turns),
                                       cmocka_unit_test(test_wrong_starts),
                                       cmocka_unit_test(test_malformed_starts),
                                       cmocka_unit_test(test_out_of_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
