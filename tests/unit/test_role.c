/* SPDX-License-Identifier: Apache-2.0
 *
 * The names of roles and of what sources tell: each has one, and it is its own.
 */
#include "trace/trace.h"

#include "support.h"

static void test_roles(void **state) {
    (void)state;
    for (unsigned r = 0; r < EBB_N_ROLES; r++) {
        const char *name = ebb_role_name((ebb_role)r);
        ebb_role found = EBB_N_ROLES;
        assert_true(ebb__role_find(name, strlen(name), &found));
        assert_int_equal(found, r);
        assert_false(ebb__role_find(name, strlen(name) - 1, &found));
    }
}

/* Names go by the number of their bit. */
static void test_tells(void **state) {
    (void)state;
    static const struct {
        uint32_t bit;
        const char *name;
    } wanted[] = {
        {EBB_TRACE_TELLS_TIMES, "times"},         {EBB_TRACE_TELLS_ACCESSES, "accesses"},
        {EBB_TRACE_TELLS_ADDRESSES, "addresses"}, {EBB_TRACE_TELLS_ROLES, "roles"},
        {EBB_TRACE_TELLS_STEPS, "steps"},         {EBB_TRACE_TELLS_SEGMENTS, "segments"},
        {EBB_TRACE_TELLS_STACKS, "stacks"},       {EBB_TRACE_TELLS_BEFORE, "before"},
    };
    const size_t n = sizeof wanted / sizeof *wanted;
    const char *words = NULL;
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(wanted[i].bit, 1u << i);
        assert_string_equal(ebb_trace_tells_name(i, &words), wanted[i].name);
        assert_true(words != NULL && *words != '\0');
        assert_string_equal(ebb_trace_tells_name(i, NULL), wanted[i].name);
    }
    assert_null(ebb_trace_tells_name(n, &words));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_roles), cmocka_unit_test(test_tells)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
