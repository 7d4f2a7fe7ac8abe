/* SPDX-License-Identifier: Apache-2.0
 *
 * A session and its plan with each allocation failing in turn.
 */
#include "ebb/session.h"

#include "support.h"

static ebb_status live(const ebb_mem *mem) {
    ebb_session_options o = EBB_SESSION_OPTIONS_INIT;
    o.policy = "budget"; /* best searches: see test_plan_oom */
    o.mem = mem;
    o.net = "perceptron:1";
    o.backend = "dry";
    o.batch = 2;
    o.budget_percent = 90;
    ebb_session *session = NULL;
    ebb_plan *plan = NULL;
    ebb_status st = ebb_session_open(&o, &session);
    if (st == EBB_OK) { st = ebb_session_plan(session, &plan, NULL); }
    ebb_plan_destroy(plan);
    ebb_session_close(session);
    return st;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    OOM_LOOP(mem, st, { st = live(mem); });
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
