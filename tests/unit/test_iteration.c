/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration of small traces that were thought out.
 */
#include "iteration_fixture.h"

static made_trace m;

static int setup(void **state) {
    (void)state;
    made_init(&m);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    made_fini(&m);
    return 0;
}

static void play(uint64_t base_bytes) {
    uint64_t a = made_alloc(&m, base_bytes), b = made_alloc(&m, base_bytes + 1);
    made_touch(&m, EBB_TRACE_WRITE, a);
    made_touch(&m, EBB_TRACE_FREE, b);
    made_touch(&m, EBB_TRACE_FREE, a);
}

static void nothing_is_no_iteration(void **state) {
    (void)state;
    ebb_iteration found = made_find(&m);
    assert_false(found.found);
    made_check_parts(&m, &found);
    made_alloc(&m, 1);
    assert_false(made_find(&m).found);
}

static void marks_are_taken_at_their_word(void **state) {
    (void)state;
    made_alloc(&m, 7);
    for (uint64_t i = 0; i < 3; i++) {
        made_mark(&m, EBB_TRACE_ITERATION_BEGIN, i);
        play(100);
        if (i == 1) { made_alloc(&m, 3); }
        made_mark(&m, EBB_TRACE_ITERATION_END, i);
        if (i == 0) { play(9); }
    }
    made_mark(&m, EBB_TRACE_ITERATION_BEGIN, 3); /* not whole */
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_true(found.found);
    assert_int_equal(found.source, EBB_ITERATION_FROM_MARKS);
    assert_int_equal(found.first_event, 1);
    assert_int_equal(found.length_events, 7);
    assert_int_equal(found.count, 3);
    assert_true(found.confidence == 1.0);
    size_t n = 0;
    const ebb_iteration_part *parts = ebb_iteration_finder_parts(m.finder, &n);
    assert_int_equal(n, 6);
    assert_int_equal(parts[2].kind, EBB_PART_BETWEEN);
    assert_int_equal(parts[2].n_events, 5);
    assert_int_equal(parts[3].n_events, 8);
    assert_true(parts[3].regularity == 5.0 / 6.0);
    assert_true(parts[1].regularity == 1.0 && parts[4].regularity == 1.0);
}

static void marks_without_ends_end_at_the_next(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        made_mark(&m, EBB_TRACE_ITERATION_BEGIN, i);
        play(100);
    }
    ebb_iteration found = made_find(&m);
    made_check_parts(&m, &found);
    assert_int_equal(found.count, 2); /* the last may go on */
    assert_int_equal(found.length_events, 6);
}

static void blocks_come_in_order(void **state) {
    (void)state;
    const ebb_trace_event late = {.kind = EBB_TRACE_ALLOC, .block = 1};
    const ebb_trace_event unknown = {.kind = EBB_TRACE_READ, .block = 0};
    assert_int_equal(ebb_iteration_finder_add(m.finder, &late), EBB_E_ARGUMENT);
    assert_int_equal(ebb_iteration_finder_add(m.finder, &unknown), EBB_E_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_is_no_iteration, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_are_taken_at_their_word, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_without_ends_end_at_the_next, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_come_in_order, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
