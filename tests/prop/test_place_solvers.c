/* SPDX-License-Identifier: Apache-2.0
 *
 * Every solver by name, on random problems of every kind: what comes out is a placement, for the library's checker
 * and the slow one; it is not below the bound, and the same again. And what each is known to do on small problems.
 */
#include "place_expect.h"
#include "place_slow.h"

typedef unsigned long long ull;

static ebb_status solve(const ebb_place_problem *p, const char *solver, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.solver = solver;
    if (strcmp(solver, "best") == 0) { options.max_steps = 10000; } /* more is slow under sanitizers */
    return ebb_place_solve(p, &options, offsets, result);
}

/* With steps for what it can find: before those a rule may do better with one form of a problem than with another. */
static ebb_status search(const ebb_place_problem *p, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.max_steps = 50000;
    return ebb_place_solve(p, &options, offsets, result);
}

static bool is_online(const char *solver) {
    return strstr(solver, "-fit") != NULL || strcmp(solver, "pytorch") == 0;
}

/* NULL when all is well. */
static const char *try_solver(const slow_problem *s, const char *solver, bool is_huge) {
    uint64_t offsets[SLOW_MAX_ITEMS + 1], again[SLOW_MAX_ITEMS + 1], slow = 0;
    ebb_place_result result = {0}, result_again = {0};
    bool is_fixed = false;
    for (size_t i = 0; s->p.fixed != NULL && i < s->p.n_items; i++) {
        is_fixed = is_fixed || s->fixed[i] != EBB_PLACE_ANYWHERE;
    }
    const ebb_status st = solve(&s->p, solver, offsets, &result);
    if (is_fixed && is_online(solver)) { return st == EBB_E_UNSUPPORTED ? NULL : "takes fixed offsets"; }
    const bool reserves = is_online(solver) || strstr(solver, "smartpool") != NULL; /* more than it uses */
    if (st == EBB_E_UNSUPPORTED && is_huge && reserves) { return NULL; }
    if (st != EBB_OK) { return "fails"; }
    if (solve(&s->p, solver, again, &result_again) != EBB_OK) { return "fails again"; }
    if (memcmp(offsets, again, s->p.n_items * sizeof *offsets) != 0) { return "gives other offsets"; }
    if (result.peak_bytes != result_again.peak_bytes) { return "gives another peak"; }
    if (!slow_is_placement(&s->p, offsets, s->n_times, &slow)) { return "is no placement"; }
    if (reserves ? slow > result.peak_bytes : slow != result.peak_bytes) { return "has two peaks"; }
    return wrong_answer(&s->p, offsets, &result, reserves);
}

static void test_random(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 12);
        slow_problem s;
        const unsigned kinds = (unsigned)seed % SLOW_N_KINDS;
        slow_draw(&s, &rng, kinds);
        const char *solver = NULL, *wrong = NULL;
        for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
            wrong = try_solver(&s, solver, (kinds & SLOW_HUGE) != 0);
            if (wrong != NULL) { fail_msg("seed %llu: %s %s; %s", (ull)seed, solver, wrong, ebb_last_error()); }
        }
    }
}

/* The beginning and the end of a period are one moment: rules do not care by which name it is called, but for
 * SmartPool's, which take births of equal sizes in the order in which they are written. */
static void test_one_moment(void **state) {
    (void)state;
    static const ebb_place_item named[2][4] = {{{8, 2, 6}, {8, 0, 9}, {8, 0, 4}, {4, 6, 9}},
                                               {{8, 2, 6}, {8, 9, 0}, {8, 9, 4}, {4, 6, 0}}};
    const char *solver = NULL;
    for (size_t k = 1; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
        uint64_t offsets[2][4] = {{0}};
        for (size_t i = 0; i < 2 && strstr(solver, "smartpool") == NULL; i++) {
            ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
            ebb_place_result result;
            p.items = named[i];
            p.n_items = 4;
            p.period = 9;
            assert_int_equal(solve(&p, solver, offsets[i], &result), EBB_OK);
        }
        if (memcmp(offsets[0], offsets[1], sizeof offsets[0]) != 0) { fail_msg("%s gives other offsets", solver); }
    }
}

/* ---- the best of few items -------------------------------------------------------------------- */

/* Lower *best to the least peak below it, over all offsets of items i and on. */
static void try_offsets(const slow_problem *s, uint64_t *offsets, size_t i, uint64_t *best) {
    uint64_t peak = 0;
    if (i == s->p.n_items) {
        if (slow_is_placement(&s->p, offsets, s->n_times, &peak)) { *best = ebb_min_u64(*best, peak); }
        return;
    }
    for (uint64_t offset = 0; offset < *best; offset++) {
        bool good = slow_is_offset(&s->p, i, offset);
        offsets[i] = offset;
        for (size_t j = 0; j < i && good; j++) {
            for (uint64_t t = 0; t < s->n_times && good; t++) { good = !slow_collide(&s->p, offsets, i, j, t); }
        }
        if (good) { try_offsets(s, offsets, i + 1, best); }
    }
}

static void draw_few(slow_problem *s, ebb_rng *rng, unsigned kinds) {
    static const uint64_t alignments[] = {1, 1, 2, 3};
    s->p = EBB_PLACE_PROBLEM_INIT;
    s->n_times = 5;
    s->p.items = s->items;
    s->p.n_items = 2 + ebb__rng_below(rng, 4);
    for (size_t i = 0; i < s->p.n_items; i++) {
        s->items[i].size_bytes = 1 + ebb__rng_below(rng, 3);
        s->items[i].first = ebb__rng_below(rng, 4);
        s->items[i].last = s->items[i].first + 1 + ebb__rng_below(rng, 5 - s->items[i].first);
        s->alignments[i] = alignments[ebb__rng_below(rng, 4)];
    }
    if ((kinds & SLOW_ALIGNED) != 0) { s->p.alignments = s->alignments; }
    if ((kinds & SLOW_GAPS) != 0) { slow_draw_gaps(s, rng); }
    if ((kinds & SLOW_FIXED) != 0) { slow_draw_fixed(s, rng, 2); }
}

/* Nothing is better, and the bound is one. Plain problems are best.c's. */
static void test_few(void **state) {
    (void)state;
    unsigned n_above_bound = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 13);
        slow_problem s;
        uint64_t offsets[SLOW_MAX_ITEMS], least = UINT64_MAX, bound = 0;
        ebb_place_result result = {0};
        draw_few(&s, &rng, 1 + (unsigned)seed % (SLOW_HUGE - 1));
        if (solve(&s.p, "best", offsets, &result) != EBB_OK) { fail_msg("seed %llu: %s", (ull)seed, ebb_last_error()); }
        least = result.peak_bytes;
        try_offsets(&s, offsets, 0, &least);
        assert_int_equal(ebb_place_bound(&s.p, NULL, &bound), EBB_OK);
        n_above_bound += least > bound;
        if (result.peak_bytes != least || result.bound_bytes > least) {
            fail_msg("seed %llu: peak %llu, bound %llu, not %llu", (ull)seed, (ull)result.peak_bytes,
                     (ull)result.bound_bytes, (ull)least);
        }
    }
    assert_true(n_above_bound > 20);
}

/* ---- circles ---------------------------------------------------------------------------------- */

/* What lives around the end, said with gaps: the same problem, and best sees that. */
static void test_circle(void **state) {
    (void)state;
    unsigned n_gaps = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 15);
        slow_problem s;
        uint64_t offsets[SLOW_MAX_ITEMS + 1], peak = 0;
        ebb_place_result circle = {0}, gaps = {0};
        do { slow_draw(&s, &rng, 0); } while (s.p.period == 0);
        for (size_t i = 0; i < s.p.n_items; i++) { /* the whole circle in the form that comes back below */
            if (s.items[i].first == s.items[i].last) {
                s.items[i] = (ebb_place_item){s.items[i].size_bytes, 0, s.n_times};
            }
        }
        assert_int_equal(search(&s.p, offsets, &circle), EBB_OK);
        for (size_t i = 0; i < s.p.n_items; i++) {
            const ebb_place_item item = s.items[i];
            if (item.first < item.last) { continue; }
            s.items[i].first = 0;
            s.items[i].last = s.n_times;
            s.gaps[s.p.n_gaps++] = (ebb_place_gap){i, item.last, item.first, 0, 0};
        }
        s.p.gaps = s.gaps;
        s.p.period = seed % 2 * s.n_times;
        n_gaps += s.p.n_gaps > 0;
        assert_int_equal(search(&s.p, offsets, &gaps), EBB_OK);
        if (!slow_is_placement(&s.p, offsets, s.n_times, &peak) || peak != gaps.peak_bytes ||
            (s.p.n_gaps > 0 && ebb_align_up(gaps.peak_bytes, s.p.alignment_bytes) !=
                                   ebb_align_up(circle.peak_bytes, s.p.alignment_bytes))) {
            fail_msg("seed %llu: peak %llu, %llu, not %llu", (ull)seed, (ull)gaps.peak_bytes, (ull)peak,
                     (ull)circle.peak_bytes);
        }
    }
    assert_true(n_gaps > 200);
}

/* ---- what each is known for ------------------------------------------------------------------- */

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

/* Peak and offsets of a problem of at most five items. */
static void expect(const ebb_place_item *items, size_t n_items, uint64_t period, const char *solver,
                   const uint64_t *expected /* [n_items], and the peak */) {
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    ebb_place_result result = {0};
    uint64_t offsets[5];
    p.items = items;
    p.n_items = n_items;
    p.period = period;
    assert_int_equal(solve(&p, solver, offsets, &result), EBB_OK);
    for (size_t i = 0; i < n_items; i++) {
        if (offsets[i] != expected[i]) { fail_msg("%s: item %zu at %llu", solver, i, (ull)offsets[i]); }
    }
    if (result.peak_bytes != expected[n_items]) { fail_msg("%s: peak %llu", solver, (ull)result.peak_bytes); }
}

static void test_allocators(void **state) {
    (void)state;
    /* segments as asked for, in granules; free blocks of two segments never join */
    const ebb_place_item segments[] = {{1024, 0, 2}, {512, 0, 9}, {600, 3, 5}, {512, 3, 9}, {2048, 10, 11}};
    expect(segments, 5, 0, "best-fit", (const uint64_t[]){0, 1024, 0, 1536, 2048, 4096});
    const ebb_place_item fits[] = {{2048, 0, 1}, {1024, 0, 1}, {1024, 2, 3}};
    expect(fits, 3, 0, "best-fit", (const uint64_t[]){0, 2048, 2048, 3072});
    expect(fits, 3, 0, "first-fit", (const uint64_t[]){0, 2048, 0, 3072});
    /* two small ones share a segment; of the large ones' the second leaves too little to be split off */
    const ebb_place_item pools[] = {
        {100, 0, 9}, {MIB, 0, 9}, {MIB + 1, 0, 9}, {18 * MIB + 512 * KIB, 0, 9}, {30 * MIB + 1, 0, 9}};
    expect(pools, 5, 0, "pytorch", (const uint64_t[]){0, 512, 2 * MIB, 3 * MIB + 512, 22 * MIB, 54 * MIB});
}

static void test_allocators_circle(void **state) {
    (void)state;
    const ebb_place_item returns[] = {{512, 6, 2}, {512, 3, 5}};
    expect(returns, 2, 8, "best-fit", (const uint64_t[]){0, 0, 512});
    /* in the first period the second takes a part of what the first left, which comes back elsewhere */
    const ebb_place_item moves[] = {{1024, 6, 4}, {512, 5, 7}};
    expect(moves, 2, 8, "best-fit", (const uint64_t[]){1024, 0, 2048});
    const ebb_place_item always[] = {{512, 0, 0}, {512, 3, 5}, {512, 0, 8}};
    expect(always, 3, 8, "first-fit", (const uint64_t[]){0, 1024, 512, 1536});
}

static void test_smartpool(void **state) {
    (void)state;
    /* the last one could go below; best fit looks between first */
    const ebb_place_item quirk[] = {{50, 0, 4}, {40, 0, 8}, {35, 0, 3}, {30, 2, 8}, {20, 5, 8}};
    expect(quirk, 5, 0, "smartpool-bf", (const uint64_t[]){0, 50, 90, 125, 90, 155});
    expect(quirk, 5, 0, "smartpool-ff", (const uint64_t[]){0, 50, 90, 125, 0, 155});
    /* but below where all that is taken is in one piece */
    const ebb_place_item one[] = {{50, 0, 4}, {40, 0, 8}, {30, 5, 8}};
    expect(one, 3, 0, "smartpool-bf", (const uint64_t[]){0, 50, 0, 90});
    const ebb_place_item circle[] = {{30, 0, 0}, {100, 8, 2}, {50, 3, 5}};
    expect(circle, 3, 10, "smartpool-bf", (const uint64_t[]){0, 30, 230, 280});
    expect(circle, 3, 10, "smartpool-cyclic", (const uint64_t[]){0, 30, 30, 130});
}

static void test_size(void **state) {
    (void)state;
    /* between the first two and below them: the tighter gap */
    const ebb_place_item items[] = {{100, 0, 4}, {90, 0, 8}, {80, 0, 3}, {70, 2, 8}, {60, 5, 8}};
    expect(items, 5, 0, "size", (const uint64_t[]){0, 100, 190, 270, 190, 340});
    const ebb_place_item ties[] = {{10, 0, 2}, {10, 0, 5}, {10, 0, 5}};
    expect(ties, 3, 0, "size", (const uint64_t[]){20, 0, 10, 30});
}

/* ---- ends before its time ----------------------------------------------------------------------- */

static bool stop_after(void *ctx) {
    uint64_t *n_left = ctx;
    if (*n_left == 0) { return true; }
    --*n_left;
    return false;
}

/* A problem that takes each of them more than a few thousand steps. */
static size_t make_long(ebb_place_item *items, size_t n) {
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 16);
    for (size_t i = 0; i < n; i++) {
        const uint64_t first = ebb__rng_below(&rng, n);
        items[i] = (ebb_place_item){1 + ebb__rng_below(&rng, 5000), first, first + 1 + ebb__rng_below(&rng, n / 4)};
    }
    return n;
}

/* The best so far, or no answer at all, which says so. */
static void test_stop(void **state) {
    (void)state;
    enum { N = 3000 };
    static ebb_place_item items[N];
    static uint64_t offsets[N];
    const char *solver = NULL;
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = make_long(items, N);
    for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
        for (unsigned by_steps = 0; by_steps < 2; by_steps++) {
            uint64_t n_left = 1;
            ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
            ebb_place_result result = {.peak_bytes = 7};
            options.solver = solver;
            options.max_steps = by_steps == 1 ? 100 : UINT64_MAX;
            if (by_steps == 0) { options.stop = stop_after; }
            options.stop_ctx = &n_left;
            offsets[0] = 7;
            const ebb_status st = ebb_place_solve(&p, &options, offsets, &result);
            if (k == 0) {
                assert_int_equal(st, EBB_OK);
                assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_OK);
                continue;
            }
            if (st != EBB_E_LIMIT) { fail_msg("%s: %d", solver, (int)st); }
            expect_message(by_steps == 1 ? "more than the 100 steps that it may" : "it was stopped after ");
            assert_true(offsets[0] == 7 && result.peak_bytes == 7);
        }
    }
}

#define STEPS_A_CALL 500000u

/* Alignments leave a gap below each item, and then one filling takes long: it ends, too. */
static void test_stop_of_filling(void **state) {
    (void)state;
    enum { N = 3000 };
    static ebb_place_item items[N];
    static uint64_t offsets[N], alignments[N];
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = make_long(items, N);
    p.alignments = alignments;
    for (size_t i = 0; i < N; i++) { alignments[i] = 3 + i % 7; }
    uint64_t n_steps = 0;
    for (uint64_t n_calls = 18; n_calls < 28; n_calls++) {
        uint64_t n_left = n_calls;
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        ebb_place_result result = {0};
        options.max_steps = 2 * 1000 * 1000;
        options.stop = stop_after;
        options.stop_ctx = &n_left;
        assert_int_equal(ebb_place_solve(&p, &options, offsets, &result), EBB_OK);
        assert_int_equal(ebb_place_check(&p, NULL, offsets, NULL), EBB_OK);
        if (n_calls > 18 && result.n_steps > n_steps + STEPS_A_CALL) {
            fail_msg("%llu steps between two calls", (ull)(result.n_steps - n_steps));
        }
        n_steps = result.n_steps;
    }
}

/* ---- refusals --------------------------------------------------------------------------------- */

static void test_fixed(void **state) {
    (void)state;
    const ebb_place_item items[] = {{10, 0, 5}, {10, 3, 9}, {10, 4, 6}, {10, 6, 9}};
    uint64_t fixed[] = {0, EBB_PLACE_ANYWHERE, 5, 5}, offsets[] = {7, 7, 7, 7};
    const char *solver = NULL;
    ebb_place_result result = {.peak_bytes = 7};
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 4;
    p.fixed = fixed;
    for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
        const bool online = is_online(solver);
        assert_int_equal(solve(&p, solver, offsets, &result), online ? EBB_E_UNSUPPORTED : EBB_E_NO_FIT);
        assert_non_null(strstr(ebb_last_error(), online ? "item 0 has a fixed offset" : "items 0 and 2 overlap"));
        assert_true(offsets[0] == 7 && offsets[3] == 7 && result.peak_bytes == 7);
    }
    fixed[2] = 10;
    assert_int_equal(solve(&p, "best", offsets, &result), EBB_OK);
    assert_true(offsets[1] == 20 && result.peak_bytes == 30 && result.bound_bytes == 30);
    assert_int_equal(solve(&p, "worst", offsets, &result), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "'worst'"));
}

static void test_out_of_memory(void **state) {
    (void)state;
    slow_problem s;
    const char *solver = NULL;
    ebb_rng rng;
    for (unsigned kinds = 0; kinds < SLOW_HUGE; kinds++) {
        ebb__rng_init(&rng, 20 + kinds, 14);
        do { slow_draw(&s, &rng, kinds); } while (s.p.n_items < 15 || s.p.n_items > 25 || s.p.period == 0);
        for (size_t k = 0; (solver = ebb_place_solver_name(k, NULL)) != NULL; k++) {
            if (is_online(solver) && (kinds & SLOW_FIXED) != 0) { continue; }
            uint64_t offsets[SLOW_MAX_ITEMS], peak = 0;
            OOM_LOOP(mem, st, {
                ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
                ebb_place_result result = {0};
                options.mem = mem;
                options.solver = solver;
                if (k == 0) { options.max_steps = 3000; }
                memset(offsets, 0x55, sizeof offsets);
                st = ebb_place_solve(&s.p, &options, offsets, &result);
                assert_true(st == EBB_OK || offsets[s.p.n_items - 1] == 0x5555555555555555u);
            });
            OOM_LOOP(mem, st, { st = ebb_place_check(&s.p, mem, offsets, &peak); });
            OOM_LOOP(mem, st, { st = ebb_place_bound(&s.p, mem, &peak); });
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),     cmocka_unit_test(test_one_moment),
        cmocka_unit_test(test_few),        cmocka_unit_test(test_circle),
        cmocka_unit_test(test_allocators), cmocka_unit_test(test_allocators_circle),
        cmocka_unit_test(test_smartpool),  cmocka_unit_test(test_size),
        cmocka_unit_test(test_stop),       cmocka_unit_test(test_stop_of_filling),
        cmocka_unit_test(test_fixed),      cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
