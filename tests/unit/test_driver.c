/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks that are cudaMallocs of their own: pages by hand; and CnMem's replay with a first segment.
 */
#include "ebb/place.h"
#include "place/driver.h"
#include "support.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)

static void test_pages(void **state) {
    (void)state;
    ebb_driver *d = NULL;
    uint32_t a = 0, b = 0, c = 0, e = 0;
    assert_int_equal(ebb__driver_create(NULL, &d), EBB_OK);
    assert_int_equal(ebb__driver_take(d, 1, &a), EBB_OK);
    assert_int_equal(ebb__driver_peak(d), 2 * MIB);
    assert_int_equal(ebb__driver_take(d, MIB, &b), EBB_OK); /* beside it */
    assert_int_equal(ebb__driver_peak(d), 2 * MIB);
    assert_int_equal(ebb__driver_take(d, MIB, &c), EBB_OK); /* what is left is 512 bytes too little */
    assert_int_equal(ebb__driver_peak(d), 4 * MIB);
    assert_int_equal(ebb__driver_take(d, 3 * MIB, &e), EBB_OK);
    assert_int_equal(ebb__driver_peak(d), 8 * MIB);
    ebb__driver_give(d, c, MIB); /* its page goes */
    ebb__driver_give(d, e, 3 * MIB);
    assert_int_equal(ebb__driver_take(d, 6 * MIB, &e), EBB_OK);
    assert_int_equal(ebb__driver_peak(d), 8 * MIB);
    ebb__driver_give(d, a, 1);
    ebb__driver_give(d, b, MIB);
    assert_int_equal(ebb__driver_take(d, 0, &a), EBB_OK);
    ebb__driver_give(d, a, 0);
    assert_int_equal(ebb__driver_take(d, MIB + 1, &a), EBB_OK);
    assert_int_equal(ebb__driver_peak(d), 8 * MIB);
    assert_int_equal(ebb__driver_take(d, UINT64_MAX, &a), EBB_E_UNSUPPORTED);
    ebb__driver_destroy(d);
}

static uint64_t replay(uint64_t first_segment_bytes) {
    static const ebb_place_item items[] = {{4 * KIB, 0, 2}, {8 * KIB, 1, 4}, {6 * KIB, 2, 4}};
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_result result = {0};
    uint64_t offsets[3];
    problem.items = items;
    problem.n_items = 3;
    options.solver = "best-fit";
    options.first_segment_bytes = first_segment_bytes;
    assert_int_equal(ebb_place_solve(&problem, &options, offsets, &result), EBB_OK);
    assert_int_equal(ebb_place_check(&problem, NULL, offsets, NULL), EBB_OK);
    return result.peak_bytes;
}

static void test_first_segment(void **state) {
    (void)state;
    assert_int_equal(replay(0), 18 * KIB); /* the last does not fit where the first was */
    assert_int_equal(replay(MIB), MIB);
    assert_int_equal(replay(20 * KIB), 20 * KIB);
    assert_int_equal(replay(12 * KIB), 18 * KIB);
    assert_int_equal(replay(1), 18 * KIB + 512);
}

static void test_out_of_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_driver *d = NULL;
        uint32_t block = 0;
        st = ebb__driver_create(mem, &d);
        if (st == EBB_OK) { st = ebb__driver_take(d, 700, &block); }
        if (st == EBB_OK) { ebb__driver_give(d, block, 700); }
        ebb__driver_destroy(d);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_first_segment),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
