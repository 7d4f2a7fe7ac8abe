/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison and its files with each allocation failing in turn; in one thread, since the hooks count.
 */
#include "ebb/comparison.h"
#include "ebb/session.h"

#include "support.h"

static ebb_status compare(ebb_session *session, const ebb_mem *mem) {
    static const char *const policies[] = {"liveness", "none"};
    const uint64_t budgets[] = {1, UINT64_MAX / 2};
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_comparison_options o = EBB_COMPARISON_OPTIONS_INIT;
    ebb_comparison *comparison = NULL;
    o.plan.mem = mem;
    o.policies = policies;
    o.n_policies = 2;
    o.budgets = budgets;
    o.n_budgets = 2;
    const ebb_status st = ebb_comparison_create(parts.program, parts.machine, &o, &comparison);
    ebb_comparison_destroy(comparison);
    return st;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    ebb_session_options o = EBB_SESSION_OPTIONS_INIT;
    ebb_session *session = NULL;
    o.net = "perceptron:2";
    o.backend = "dry";
    o.batch = 2;
    assert_int_equal(ebb_session_open(&o, &session), EBB_OK);
    OOM_LOOP(mem, st, { st = compare(session, mem); });
    ebb_session_close(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
