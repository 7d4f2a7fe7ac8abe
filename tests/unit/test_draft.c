/* SPDX-License-Identifier: Apache-2.0
 *
 * From a draft to stays and slots: what begins at one action comes in order however much it is and in whatever order
 * the step names it, around the end and always; and an invalid draft is told.
 */
#include "plan_support.h"

#define N_WIDE 100u

/* A step that writes this many tensors at once, the last first, and one that reads them. */
static ebb_program *make_wide(uint32_t n) {
    ebb_program *p = NULL;
    ebb_access access[N_WIDE];
    assert_int_equal(ebb_program_create(NULL, "wide", 64, &p), EBB_OK);
    for (uint32_t i = 0; i < n; i++) { make_tensor(p, 10 + i, i % 3 == 0, false); }
    for (uint32_t i = 0; i < n; i++) { access[i] = (ebb_access){n - 1 - i, EBB_WRITE}; }
    make_step(p, access, n, 7, 1.0);
    for (uint32_t i = 0; i < n; i++) { access[i].mode = EBB_READ; }
    make_step(p, access, n, 0, 1.0);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static void assert_in_order(const ebb_plan *plan) {
    for (size_t i = 1; i < plan->stays.n; i++) {
        const ebb_stay *a = &plan->stays.data[i - 1], *b = &plan->stays.data[i];
        assert_true(a->first < b->first || (a->first == b->first && a->tensor < b->tensor));
    }
    for (size_t i = 1; i < plan->slots.n; i++) {
        const ebb_slot *a = &plan->slots.data[i - 1], *b = &plan->slots.data[i];
        assert_true(a->first < b->first || (a->first == b->first && a->tensor < b->tensor));
    }
}

static void test_many_at_once(void **state) {
    (void)state;
    for (uint32_t n = 2; n <= N_WIDE; n += 7) {
        ebb_program *p = make_wide(n);
        ebb_draft draft;
        ebb_plan *plan = NULL;
        assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
        for (uint32_t t = 0; t < n; t += 2) { draft.resident[t] = 0; } /* they come with the first step */
        assert_int_equal(ebb__draft_step(&draft, EBB_ACT_RUN, 0, 0), EBB_OK);
        assert_int_equal(ebb__draft_step(&draft, EBB_ACT_RUN, 1, 0), EBB_OK);
        assert_true(ebb__draft_is_valid(&draft, p));
        plan = make_empty_plan(p, UINT64_MAX);
        assert_int_equal(ebb__draft_to_plan(&draft, p, plan), EBB_OK);
        assert_in_order(plan);
        assert_int_equal(plan->stays.n, n + 1);       /* and the scratch */
        assert_int_equal(plan->slots.n, (n + 5) / 6); /* persistent, and not resident: always on the host */
        for (size_t i = 0; i < plan->slots.n; i++) { assert_int_equal(plan->slots.data[i].last, 0); }
        ebb_plan_destroy(plan);
        ebb__draft_fini(&draft);
        ebb_program_destroy(p);
    }
}

/* An out that is the very first action begins its slot among those that are always there. */
static void test_first_out(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_draft draft;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_program_create(NULL, "out", 1, &p), EBB_OK);
    uint32_t w = make_tensor(p, 8, true, false), r = make_tensor(p, 8, true, false);
    STEP(p, 0, 1, {r, EBB_READ});
    STEP(p, 0, 1, {w, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    const ebb_action list[] = {ACT_OUT(w), ACT_DROP(w), ACT_IN(r), ACT_RUN(0), ACT_DROP(r), ACT_IN(w), ACT_RUN(1)};
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    draft.resident[r] = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        assert_int_equal(ebb__draft_add(&draft, &list[i], EBB_DRAFT_FIXED), EBB_OK);
    }
    assert_true(ebb__draft_is_valid(&draft, p));
    plan = make_empty_plan(p, UINT64_MAX);
    assert_int_equal(ebb__draft_to_plan(&draft, p, plan), EBB_OK);
    assert_in_order(plan);
    assert_int_equal(plan->stays.n, 2);
    assert_int_equal(plan->stays.data[1].first, 5); /* w goes around */
    assert_int_equal(plan->stays.data[1].last, 1);
    assert_int_equal(plan->slots.n, 2);
    assert_int_equal(plan->slots.data[0].tensor, w);
    assert_int_equal(plan->slots.data[0].last, 6);
    plan->fingerprint = ebb_program_fingerprint(p);
    plan->budget_bytes = 8;
    plan->slots.data[1].offset = 8;
    ebb_status st = ebb_plan_check(p, plan);
    if (st != EBB_OK) { print_error("%s\n", ebb_last_error()); }
    assert_int_equal(st, EBB_OK);
    ebb_plan_destroy(plan);
    ebb__draft_fini(&draft);
    ebb_program_destroy(p);
}

static void test_no_draft(void **state) {
    (void)state;
    const ebb_action list[] = {ACT_DROP(1), ACT_IN(0), ACT_RUN(1), ACT_OUT(1)};
    ebb_program *p = make_wide(3);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) { /* 0 is there from the start, 1 is not */
        ebb_draft draft;
        assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
        assert_int_equal(ebb__draft_add(&draft, &list[i], EBB_DRAFT_FIXED), EBB_OK);
        assert_false(ebb__draft_is_valid(&draft, p));
        ebb__draft_fini(&draft);
    }
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_at_once), cmocka_unit_test(test_first_out),
                                       cmocka_unit_test(test_no_draft)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
