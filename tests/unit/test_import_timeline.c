/* SPDX-License-Identifier: Apache-2.0
 *
 * The raw memory timeline of PyTorch's profiler.
 */
#include "import_support.h"

/* A weight from before, an activation that becomes a gradient, and two equal blocks of which the younger goes first. */
static void entries_become_events(void **state) {
    (void)state;
    imported im;
    const char *text = "[[-1, 1, 400, 0], [1700000000000000100, 2, 64, 4], [1700000000000000150, 3, -64, 4],\n"
                       " [1700000000000000150, 3, 64, 5], [1700000000000000200, 2, 32, 3],\n"
                       " [1700000000000000210, 2, 32, 3], [1700000000000000220, 4, -32, 3],\n"
                       " [1700000000000000300, 4, -64, 5], [1700000000000000310, 4, -999, 7]]";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    assert_string_equal(im.result.format, "timeline");
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_BEFORE);
    static const struct {
        ebb_trace_kind kind;
        uint64_t time_ns, block;
        ebb_role role;
    } expected[] = {
        {EBB_TRACE_ALLOC, 0, 0, EBB_ROLE_PARAMETER}, {EBB_TRACE_ALLOC, 0, 1, EBB_ROLE_ACTIVATION},
        {EBB_TRACE_LABEL, 50, 1, EBB_ROLE_GRADIENT}, {EBB_TRACE_ALLOC, 100, 2, EBB_ROLE_TEMP},
        {EBB_TRACE_ALLOC, 110, 3, EBB_ROLE_TEMP},    {EBB_TRACE_FREE, 120, 3, EBB_ROLE_TEMP},
        {EBB_TRACE_FREE, 200, 1, EBB_ROLE_GRADIENT},
    };
    assert_int_equal(im.n, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < im.n; i++) {
        assert_int_equal(im.events[i].kind, expected[i].kind);
        assert_int_equal(im.events[i].time_ns, expected[i].time_ns);
        assert_int_equal(im.events[i].block, expected[i].block);
        assert_int_equal(im.events[i].role, expected[i].role);
    }
    assert_true(im.events[0].before && !im.events[1].before);
    assert_int_equal(im.result.n_left_out, 1); /* a block of 999 bytes was never there */
    imported_fini(&im);
}

/* Older profilers count in us. */
static void times_in_us(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "[[1700000000000100, 2, 8, 4], [1700000000000130, 4, -8, 4]]", &im), EBB_OK);
    assert_int_equal(im.events[1].time_ns, 30000);
    imported_fini(&im);
}

static void what_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "[[1, 2], [[0, 1], [0, 2]]]",       "[[1, 9, 4, 0]]",   "[[1, 2, 4, 8]]",   "[[1, 2, 4, -1]]", "[[1, 4, 4, 0]]",
        "[[1, 2, 9223372036854775807, 0]]", "[[1.5, 2, 4, 0]]", "[[1, 2, 4, 0, 0]]"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        imported im;
        assert_int_equal(import_text("f", texts[i], &im), EBB_E_FORMAT);
        expect_message("f:1: ");
    }
}

/* A block whose increment has no second half cannot be followed, and counts as left out. */
static void half_an_increment(void **state) {
    (void)state;
    imported im;
    const char *text = "[[17, 2, 8, 4], [18, 2, 8, 4], [19, 3, -8, 4], [20, 3, -8, 4], [20, 3, 8, 5], [21, 4, -8, 5]]";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    assert_int_equal(im.n, 4); /* two allocs, a label, a free */
    assert_int_equal(im.result.n_left_out, 1);
    imported_fini(&im);
}

/* One that is cut off keeps what it has. */
static void a_cut_timeline(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "[[1700000000000000100, 2, 64, 4], [17000000000000", &im), EBB_OK);
    assert_int_equal(im.n, 1);
    assert_false(im.result.complete);
    imported_fini(&im);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(entries_become_events), IN_DIR(times_in_us),    IN_DIR(what_is_refused),
        IN_DIR(half_an_increment),     IN_DIR(a_cut_timeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
