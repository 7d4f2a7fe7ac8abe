/* SPDX-License-Identifier: Apache-2.0
 *
 * Hints: heard where they can be, of no cost to the peak, and never a reason for an invalid placement.
 */
#include "place_expect.h"
#include "place_slow.h"

#define STEPS 10000u

typedef unsigned long long ull;

static uint64_t solve(const ebb_place_problem *p, uint64_t *offsets, uint64_t seed) {
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.max_steps = STEPS;
    return slow_up(expect_answer(p, &options, offsets, seed).peak_bytes, p->alignment_bytes);
}

/* A plain answer upside down is one too: asked for, it is what comes out. */
static void test_all_are_heard(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 31);
        slow_problem s;
        uint64_t before[SLOW_MAX_ITEMS + 1] = {0}, hints[SLOW_MAX_ITEMS + 1], after[SLOW_MAX_ITEMS + 1] = {0};
        slow_draw(&s, &rng, 0);
        const uint64_t peak = solve(&s.p, before, seed);
        for (size_t i = 0; i < s.p.n_items; i++) {
            hints[i] = peak - before[i] - slow_up(s.items[i].size_bytes, s.p.alignment_bytes);
        }
        s.p.hints = hints;
        const uint64_t again = solve(&s.p, after, seed);
        if (again != peak) { fail_msg("seed %llu: peak %llu, not %llu", (ull)seed, (ull)again, (ull)peak); }
        for (size_t i = 0; i < s.p.n_items; i++) {
            if (s.items[i].size_bytes == 0 || after[i] == hints[i]) { continue; }
            fail_msg("seed %llu: item %zu at %llu, not %llu", (ull)seed, i, (ull)after[i], (ull)hints[i]);
        }
    }
}

/* Whatever is wished: the peak is no higher than without, and the answer a placement. */
static void test_any(void **state) {
    (void)state;
    unsigned n_heard = 0;
    for (uint64_t seed = 0; seed < 600; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 32);
        slow_problem s;
        uint64_t before[SLOW_MAX_ITEMS + 1], hints[SLOW_MAX_ITEMS + 1], after[SLOW_MAX_ITEMS + 1],
            again[SLOW_MAX_ITEMS + 1];
        slow_draw(&s, &rng, (unsigned)seed % SLOW_N_KINDS);
        const uint64_t peak = solve(&s.p, before, seed);
        for (size_t i = 0; i < s.p.n_items; i++) {
            const uint64_t own = s.p.alignments != NULL ? s.alignments[i] : 1, unit = own * s.p.alignment_bytes;
            hints[i] = ebb__rng_below(&rng, peak + unit + 1) / unit * unit;
            if (ebb__rng_below(&rng, 3) == 0) { hints[i] = EBB_PLACE_ANYWHERE; }
        }
        s.p.hints = hints;
        const uint64_t with = solve(&s.p, after, seed);
        if (with > peak) { fail_msg("seed %llu: peak %llu, not %llu", (ull)seed, (ull)with, (ull)peak); }
        assert_true(solve(&s.p, again, seed) == with && memcmp(after, again, s.p.n_items * sizeof *after) == 0);
        for (size_t i = 0; i < s.p.n_items; i++) { n_heard += after[i] == hints[i] && before[i] != hints[i]; }
    }
    assert_true(n_heard > 500);
}

static void test_out_of_memory(void **state) {
    (void)state;
    const ebb_place_item items[] = {{10, 0, 4}, {20, 1, 3}, {30, 3, 5}};
    const uint64_t hints[] = {20, 0, 10};
    uint64_t offsets[3];
    ebb_place_problem p = EBB_PLACE_PROBLEM_INIT;
    p.items = items;
    p.n_items = 3;
    p.hints = hints;
    OOM_LOOP(mem, st, {
        ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
        ebb_place_result result;
        options.mem = mem;
        st = ebb_place_solve(&p, &options, offsets, &result);
    });
    assert_true(offsets[0] == 0 && offsets[2] == 10); /* the largest is heard, and the first has to stay below */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_heard),
        cmocka_unit_test(test_any),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
