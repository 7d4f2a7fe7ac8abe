/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps alone: from whatever section and in either direction, what comes out is a placement; lifetimes that nest
 * meet the bound, around the end too; giving up is said.
 */
#include "place/place_priv.h"
#include "support.h"

#define N 40u

typedef struct fixture {
    ebb_place_item items[N];
    ebb_place_problem problem;
    ebb_bump bump;
    ebb_sections sections;
    uint32_t idx[N];
    uint64_t offsets[N];
    ebb_place_sweep_options options;
} fixture;

/* What the solver does before a sweep. */
static void prepare(fixture *f) {
    ebb__bump_init(&f->bump, NULL);
    assert_int_equal(ebb__place_cut(&f->problem, &f->bump, &f->sections), EBB_OK);
    f->options = (ebb_place_sweep_options){.idx = f->idx, .give_up_bytes = UINT64_MAX};
    for (size_t i = 0; i < N; i++) { /* those that live always lie below */
        f->offsets[i] = 0;
        if (f->sections.rounded[i] == 0 || !ebb__place_lives_always(&f->sections, i)) { continue; }
        f->offsets[i] = f->options.base_bytes;
        f->options.base_bytes += f->sections.rounded[i];
    }
}

static void draw(fixture *f, uint64_t seed, uint64_t period) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 0);
    for (uint32_t i = 0; i < N; i++) {
        f->items[i].size_bytes = ebb__rng_below(&rng, 1000);
        f->items[i].first = ebb__rng_below(&rng, period);
        f->items[i].last = ebb__rng_below(&rng, period);
        f->idx[i] = (uint32_t)((i * 7 + seed) % N); /* 7 and N have no common factor: all differ */
    }
    f->problem = EBB_PLACE_PROBLEM_INIT;
    f->problem.items = f->items;
    f->problem.n_items = N;
    f->problem.alignment_bytes = 16;
    f->problem.period = period;
    prepare(f);
}

static uint64_t run(fixture *f) {
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_sweep(&f->sections, &f->options, f->offsets, &peak, &work), EBB_OK);
    assert_true(work > 0);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        fixture f;
        draw(&f, seed, 30);
        for (uint32_t k = 0; k < 2 * f.sections.n; k++) {
            f.options.cut = k / 2;
            f.options.backward = k % 2 != 0;
            f.options.give_up_bytes = UINT64_MAX;
            uint64_t peak = run(&f), checked = 0;
            if (ebb_place_check(&f.problem, NULL, f.offsets, &checked) != EBB_OK || checked != peak ||
                peak < f.sections.bound_bytes) {
                fail_msg("seed %llu, cut %u: %s", (unsigned long long)seed, k, ebb_last_error());
            }
            f.options.give_up_bytes = peak;
            assert_true(run(&f) == UINT64_MAX);
            f.options.give_up_bytes = peak + 1;
            assert_true(run(&f) == peak);
        }
        ebb__bump_fini(&f.bump);
    }
}

/* Item k lives over [k, 2N - k), and before and after it half as large a one that is around the end: as weights
 * that leave in between. The sweep from the time 0 loses nothing. */
static void test_nested_meets_bound(void **state) {
    (void)state;
    fixture f;
    draw(&f, 1, 4 * N);
    ebb__bump_fini(&f.bump);
    for (uint64_t i = 0; i < N / 2; i++) {
        f.items[i] = (ebb_place_item){160 + i * 37 % 91 * 16, 2 * i + 2, 4 * N - 2 * i - 2};
        f.items[N / 2 + i] = (ebb_place_item){f.items[i].size_bytes, 4 * N - 2 * i - 1, 2 * i + 1};
    }
    prepare(&f);
    assert_true(run(&f) == f.sections.bound_bytes);
    assert_int_equal(ebb_place_check(&f.problem, NULL, f.offsets, NULL), EBB_OK);
    ebb__bump_fini(&f.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_nested_meets_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
