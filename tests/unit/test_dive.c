/* SPDX-License-Identifier: Apache-2.0
 *
 * Dives alone: whatever the ranks and the cap, what comes out is a placement; a cap that suffices is kept; giving
 * up is said.
 */
#include "place/place_priv.h"
#include "support.h"

#define N 40u

typedef struct fixture {
    ebb_place_item items[N];
    ebb_place_problem problem;
    ebb_bump bump;
    ebb_sections sections;
    uint64_t rank[N], offsets[N];
    ebb_place_dive_options options;
} fixture;

/* What the solver does before a dive. */
static void prepare(fixture *f) {
    ebb__bump_init(&f->bump, NULL);
    assert_int_equal(ebb__place_cut(&f->problem, &f->bump, &f->sections), EBB_OK);
    f->options = (ebb_place_dive_options){
        .rank = f->rank, .cap_bytes = f->sections.bound_bytes, .give_up_bytes = UINT64_MAX, .max_work = UINT64_MAX};
    for (size_t i = 0; i < N; i++) { /* those that live always lie below */
        f->offsets[i] = 0;
        if (f->sections.rounded[i] == 0 || !ebb__place_lives_always(&f->sections, i)) { continue; }
        f->offsets[i] = f->options.base_bytes;
        f->options.base_bytes += f->sections.rounded[i];
    }
}

static void draw(fixture *f, uint64_t seed) {
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 0);
    for (size_t i = 0; i < N; i++) {
        f->items[i].size_bytes = ebb__rng_below(&rng, 1000);
        f->items[i].first = ebb__rng_below(&rng, 30);
        f->items[i].last = ebb__rng_below(&rng, 30);
        f->rank[i] = (i * 7 + seed) % N; /* 7 and N have no common factor: all differ */
    }
    f->problem = EBB_PLACE_PROBLEM_INIT;
    f->problem.items = f->items;
    f->problem.n_items = N;
    f->problem.alignment_bytes = 16;
    f->problem.period = 30;
    prepare(f);
}

static uint64_t run(fixture *f) {
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_dive(&f->sections, &f->options, f->offsets, &peak, &work), EBB_OK);
    assert_true(work > 0);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        fixture f;
        draw(&f, seed);
        uint64_t peak = run(&f), checked = 0;
        if (ebb_place_check(&f.problem, NULL, f.offsets, &checked) != EBB_OK || checked != peak ||
            peak < f.sections.bound_bytes) {
            fail_msg("seed %llu: %s", (unsigned long long)seed, ebb_last_error());
        }
        f.options.cap_bytes = peak; /* it is known to suffice for some placement, and no cap is exceeded in vain */
        f.options.give_up_bytes = peak + 1;
        uint64_t again = run(&f);
        assert_true(again == UINT64_MAX || again <= peak);
        ebb__bump_fini(&f.bump);
    }
}

/* Nested lifetimes, the longest last in rank: those must wait for nobody, the others for them. */
static void test_nested_meets_bound(void **state) {
    (void)state;
    fixture f;
    draw(&f, 1);
    ebb__bump_fini(&f.bump);
    for (uint64_t i = 0; i < N / 2; i++) { /* between two births something small comes and goes */
        f.items[i] = (ebb_place_item){100 + i * 37 % 91, 2 * i, 4 * N - 2 * i};
        f.items[N / 2 + i] = (ebb_place_item){10, 2 * i + 1, 2 * i + 2};
        f.rank[i] = N - i;
        f.rank[N / 2 + i] = i;
    }
    f.problem.period = 0;
    prepare(&f);
    assert_true(run(&f) == f.sections.bound_bytes);
    assert_int_equal(ebb_place_check(&f.problem, NULL, f.offsets, NULL), EBB_OK);
    ebb__bump_fini(&f.bump);
}

static void test_gives_up(void **state) {
    (void)state;
    fixture f;
    draw(&f, 3);
    f.options.give_up_bytes = f.options.cap_bytes; /* at once */
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_dive(&f.sections, &f.options, f.offsets, &peak, &work), EBB_OK);
    assert_true(peak == UINT64_MAX);
    f.options.give_up_bytes = UINT64_MAX;
    f.options.max_work = 1;
    assert_true(run(&f) == UINT64_MAX);
    ebb__bump_fini(&f.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placements), cmocka_unit_test(test_nested_meets_bound),
                                       cmocka_unit_test(test_gives_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
