/* SPDX-License-Identifier: Apache-2.0
 *
 * Dives alone: whatever the ranks and the cap, what comes out is a placement; a cap that suffices is kept; giving
 * up is said.
 */
#include "place_fixture.h"

#define N N_FIXTURE

typedef struct fixture {
    place_fixture base;
    uint64_t rank[N];
    ebb_place_dive_options options;
} fixture;

static void prepare(fixture *f) {
    f->options = (ebb_place_dive_options){.rank = f->rank,
                                          .cap_bytes = f->base.compact.sections.bound_bytes,
                                          .give_up_bytes = UINT64_MAX,
                                          .max_work = UINT64_MAX};
}

static void draw(fixture *f, uint64_t seed) {
    draw_fixture(&f->base, seed, 30);
    for (size_t i = 0; i < N; i++) { f->rank[i] = (i * 7 + seed) % N; } /* 7 and N have no common factor: all differ */
    prepare(f);
}

static uint64_t run(fixture *f) {
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_dive(&f->base.compact.sections, &f->options, f->base.offsets, &peak, &work), EBB_OK);
    assert_true(work > 0);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 500; seed++) {
        fixture f;
        draw(&f, seed);
        const uint64_t peak = run(&f);
        expect_placement(&f.base, peak, seed);
        f.options.cap_bytes = peak; /* it is known to suffice for some placement, and no cap is exceeded in vain */
        f.options.give_up_bytes = peak + 1;
        uint64_t again = run(&f);
        assert_true(again == UINT64_MAX || again <= peak);
        ebb__bump_fini(&f.base.bump);
    }
}

/* Nested lifetimes, the longest last in rank: those must wait for no one, the others for them. */
static void test_nested_meets_bound(void **state) {
    (void)state;
    fixture f;
    draw(&f, 1);
    ebb__bump_fini(&f.base.bump);
    for (uint64_t i = 0; i < N / 2; i++) { /* between two births something small comes and goes */
        f.base.items[i] = (ebb_place_item){100 + i * 37 % 91, 2 * i, 4 * N - 2 * i};
        f.base.items[N / 2 + i] = (ebb_place_item){10, 2 * i + 1, 2 * i + 2};
    }
    f.base.problem.period = 0;
    begin_fixture(&f.base);
    for (uint32_t i = 0; i < f.base.compact.sections.n_items; i++) {
        const uint32_t item = f.base.compact.item[i];
        f.rank[i] = item < N / 2 ? N - item : item - N / 2;
    }
    prepare(&f);
    assert_true(run(&f) == f.base.compact.sections.bound_bytes);
    expect_placement(&f.base, f.base.compact.sections.bound_bytes, 1);
    ebb__bump_fini(&f.base.bump);
}

static void test_gives_up(void **state) {
    (void)state;
    fixture f;
    draw(&f, 3);
    f.options.give_up_bytes = f.options.cap_bytes; /* at once */
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_dive(&f.base.compact.sections, &f.options, f.base.offsets, &peak, &work), EBB_OK);
    assert_true(peak == UINT64_MAX);
    f.options.give_up_bytes = UINT64_MAX;
    f.options.max_work = 1;
    assert_true(run(&f) == UINT64_MAX);
    ebb__bump_fini(&f.base.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placements), cmocka_unit_test(test_nested_meets_bound),
                                       cmocka_unit_test(test_gives_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
