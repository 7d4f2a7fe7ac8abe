/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory given out from both ends: where each piece lies, what joins again, and the largest hole.
 */
#include "plan/two_ends.h"
#include "support.h"

static void gives_from_both_ends(void **state) {
    (void)state;
    ebb_two_ends space;
    assert_int_equal(ebb__two_ends_init(&space, ebb__mem_or_default(NULL), 100), EBB_OK);
    assert_int_equal(ebb__two_ends_take(&space, 30, false), 0);
    assert_int_equal(ebb__two_ends_take(&space, 20, true), 80);
    assert_int_equal(ebb__two_ends_take(&space, 10, true), 70);
    assert_int_equal(ebb__two_ends_largest(&space), 40);
    assert_int_equal(ebb__two_ends_take(&space, 41, false), EBB_NO_ROOM);
    assert_int_equal(ebb__two_ends_take(&space, 0, true), 0);
    assert_int_equal(ebb__two_ends_give_back(&space, 0, 10), EBB_OK);
    assert_int_equal(ebb__two_ends_take(&space, 11, false), 30); /* the first hole has 10 */
    assert_int_equal(ebb__two_ends_take(&space, 5, false), 0);
    assert_int_equal(ebb__two_ends_take(&space, 29, true), 41);
    assert_int_equal(ebb__two_ends_largest(&space), 5);
    assert_int_equal(ebb__two_ends_take(&space, 5, true), 5);
    assert_int_equal(ebb__two_ends_largest(&space), 0);
    ebb__two_ends_fini(&space);
}

/* Three pieces between two that stay; they come back in each order and make one hole. */
static void holes_join(void **state) {
    (void)state;
    static const uint64_t orders[6][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}};
    for (size_t i = 0; i < 6; i++) {
        ebb_two_ends space;
        assert_int_equal(ebb__two_ends_init(&space, ebb__mem_or_default(NULL), 50), EBB_OK);
        for (uint64_t k = 0; k < 5; k++) { assert_int_equal(ebb__two_ends_take(&space, 10, false), 10 * k); }
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(ebb__two_ends_give_back(&space, 10 * orders[i][k], 10), EBB_OK);
        }
        assert_int_equal(space.holes.n, 1);
        assert_int_equal(ebb__two_ends_largest(&space), 30);
        assert_int_equal(ebb__two_ends_take(&space, 30, true), 10);
        ebb__two_ends_fini(&space);
    }
}

static void nothing_is_there(void **state) {
    (void)state;
    ebb_two_ends space;
    assert_int_equal(ebb__two_ends_init(&space, ebb__mem_or_default(NULL), 0), EBB_OK);
    assert_int_equal(ebb__two_ends_take(&space, 1, false), EBB_NO_ROOM);
    assert_int_equal(ebb__two_ends_largest(&space), 0);
    ebb__two_ends_fini(&space);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_from_both_ends),
        cmocka_unit_test(holes_join),
        cmocka_unit_test(nothing_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
