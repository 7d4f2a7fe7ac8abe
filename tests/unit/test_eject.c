/* SPDX-License-Identifier: Apache-2.0
 *
 * Ejection alone: from all items one above the other to a placement under the cap, around the end too; offsets are as
 * they were where that fails.
 */
#include "place_fixture.h"

static void stack(place_fixture *f) {
    uint64_t top = 0;
    for (size_t i = 0; i < f->compact.sections.n_items; i++) {
        f->offsets[i] = top;
        top += f->compact.sections.rounded[i];
    }
}

static uint64_t run(place_fixture *f, uint64_t cap_bytes, uint64_t max_work) {
    const ebb_place_eject_options options = {.cap_bytes = cap_bytes, .max_work = max_work};
    uint64_t peak = 0, work = 0;
    assert_int_equal(ebb__place_eject(&f->compact.sections, &options, f->offsets, &peak, &work), EBB_OK);
    assert_true(work > 0);
    return peak;
}

static void test_placements(void **state) {
    (void)state;
    unsigned n_found = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        place_fixture f;
        uint64_t before[N_FIXTURE];
        draw_fixture(&f, seed, 30);
        stack(&f);
        memcpy(before, f.offsets, sizeof before);
        const uint64_t bound = f.compact.sections.bound_bytes, cap = bound + bound / 8 * (seed % 4);
        const uint64_t peak = run(&f, cap, 100000);
        if (peak == UINT64_MAX) {
            assert_memory_equal(before, f.offsets, f.compact.sections.n_items * sizeof *before);
        } else {
            n_found++;
            assert_true(peak <= cap);
            expect_placement(&f, peak, seed);
        }
        ebb__bump_fini(&f.bump);
    }
    assert_true(n_found > 200);
}

static void test_no_work(void **state) {
    (void)state;
    place_fixture f;
    draw_fixture(&f, 1, 30);
    stack(&f);
    assert_true(run(&f, f.compact.sections.bound_bytes, 0) == UINT64_MAX);
    ebb__bump_fini(&f.bump);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_placements), cmocka_unit_test(test_no_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
