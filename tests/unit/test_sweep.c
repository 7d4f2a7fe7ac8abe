/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps alone: from whatever section and in either direction, what comes out is a placement; lifetimes that nest
 * meet the bound, around the end too; giving up is said.
 */
#include "place_fixture.h"

#define N N_FIXTURE

typedef struct fixture {
    place_fixture base;
    uint32_t idx[N];
    ebb_place_sweep_options options;
} fixture;

/* In an order without order. */
static void prepare(fixture *f, uint64_t seed) {
    uint64_t key[N];
    for (uint32_t i = 0; i < f->base.compact.sections.n_items; i++) {
        f->idx[i] = i;
        key[i] = (i * 7 + seed) % N;
    }
    assert_int_equal(ebb__sort_by_key(NULL, f->idx, f->base.compact.sections.n_items, key), EBB_OK);
    f->options = (ebb_place_sweep_options){.idx = f->idx, .give_up_bytes = UINT64_MAX};
}

static void draw(fixture *f, uint64_t seed, uint64_t period) {
    draw_fixture(&f->base, seed, period);
    prepare(f, seed);
}

static uint64_t run(fixture *f) {
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_sweep(&f->base.compact.sections, &f->options, f->base.offsets, &peak, &work), EBB_OK);
    assert_true(work > 0);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        fixture f;
        draw(&f, seed, 30);
        for (uint32_t k = 0; k < 2 * f.base.compact.sections.n; k++) {
            f.options.cut = k / 2;
            f.options.backward = k % 2 != 0;
            f.options.give_up_bytes = UINT64_MAX;
            const uint64_t peak = run(&f);
            expect_placement(&f.base, peak, seed);
            f.options.give_up_bytes = peak;
            assert_true(run(&f) == UINT64_MAX);
            f.options.give_up_bytes = peak + 1;
            assert_true(run(&f) == peak);
        }
        ebb__bump_fini(&f.base.bump);
    }
}

/* Item k lives over [k, 2N - k), and before and after it half as large a one that is around the end: as weights
 * that leave in between. The sweep from the time 0 loses nothing. */
static void test_nested_meets_bound(void **state) {
    (void)state;
    fixture f;
    draw(&f, 1, 4 * N);
    ebb__bump_fini(&f.base.bump);
    for (uint64_t i = 0; i < N / 2; i++) {
        f.base.items[i] = (ebb_place_item){160 + i * 37 % 91 * 16, 2 * i + 2, 4 * N - 2 * i - 2};
        f.base.items[N / 2 + i] = (ebb_place_item){f.base.items[i].size_bytes, 4 * N - 2 * i - 1, 2 * i + 1};
    }
    begin_fixture(&f.base);
    prepare(&f, 1);
    assert_true(run(&f) == f.base.compact.sections.bound_bytes);
    expect_placement(&f.base, f.base.compact.sections.bound_bytes, 1);
    ebb__bump_fini(&f.base.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placements),
        cmocka_unit_test(test_nested_meets_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
