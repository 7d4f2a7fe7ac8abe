/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of programs small enough to know the answer.
 */
#include "plan_support.h"

#include "plan/order.h"

#define MAX_STEPS 8u

static ebb_program *begin(uint64_t alignment_bytes) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "order", alignment_bytes, &p), EBB_OK);
    return p;
}

/* Finish the program, and compare what is found with both kinds of care. */
static void assert_order(ebb_program *p, ebb_order_figures expected, uint64_t quick_bytes, const uint32_t *steps) {
    ebb_order_figures got;
    uint32_t order[MAX_STEPS];
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    assert_int_equal(ebb__order_find(p, NULL, EBB_ORDER_QUICK, NULL, order, &got), EBB_OK);
    assert_int_equal(got.program_bytes, expected.program_bytes);
    assert_int_equal(got.order_bytes, quick_bytes);
    assert_int_equal(ebb__order_find(p, NULL, EBB_ORDER_THOROUGH, NULL, order, &got), EBB_OK);
    assert_int_equal(got.program_bytes, expected.program_bytes);
    assert_int_equal(got.order_bytes, expected.order_bytes);
    assert_int_equal(got.bound_bytes, expected.bound_bytes);
    assert_memory_equal(order, steps, p->steps.n * sizeof *order);
    ebb_program_destroy(p);
}

/* A tensor that is made long before its use is made right before it. */
static void test_late(void **state) {
    (void)state;
    ebb_program *p = begin(1);
    const uint32_t labels = make_tensor(p, 50, false, false), image = make_tensor(p, 100, false, false);
    const uint32_t act = make_tensor(p, 80, false, false), loss = make_tensor(p, 4, false, true);
    STEP(p, 0, 1, {labels, EBB_WRITE});
    STEP(p, 0, 1, {image, EBB_WRITE});
    STEP(p, 0, 1, {image, EBB_READ}, {act, EBB_WRITE});
    STEP(p, 0, 1, {act, EBB_READ}, {labels, EBB_READ}, {loss, EBB_WRITE});
    assert_order(p, (ebb_order_figures){230, 180, 180}, 180, (const uint32_t[]){1, 2, 0, 3});
}

/* What ends more than it makes goes at once, with its scratch, where that is below the peak. */
static void test_early(void **state) {
    (void)state;
    ebb_program *p = begin(1);
    const uint32_t a = make_tensor(p, 100, false, false), b = make_tensor(p, 100, false, false);
    const uint32_t sum_a = make_tensor(p, 4, false, true), sum_b = make_tensor(p, 4, false, true);
    STEP(p, 0, 1, {a, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_WRITE});
    STEP(p, 10, 1, {a, EBB_READ}, {sum_a, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_READ}, {sum_b, EBB_WRITE});
    assert_order(p, (ebb_order_figures){214, 114, 114}, 114, (const uint32_t[]){0, 2, 1, 3});
}

/* An update comes after all readers of the version before it, and what reads the new one after it; a persistent tensor
 * counts everywhere, a kept one to the end. No other order is left, whatever it would save. */
static void test_versions(void **state) {
    (void)state;
    ebb_program *p = begin(64);
    const uint32_t w = make_tensor(p, 10, true, false), a = make_tensor(p, 100, false, false);
    const uint32_t out = make_tensor(p, 65, false, true), last = make_tensor(p, 1, false, true);
    STEP(p, 0, 1, {w, EBB_READ}, {a, EBB_WRITE});
    STEP(p, 0, 1, {a, EBB_READ}, {w, EBB_READ}, {out, EBB_WRITE});
    STEP(p, 1, 1, {w, EBB_UPDATE}, {a, EBB_UPDATE});
    STEP(p, 0, 1, {w, EBB_READ}, {last, EBB_WRITE});
    assert_order(p, (ebb_order_figures){384, 384, 384}, 384, (const uint32_t[]){0, 1, 2, 3});
}

/* A large gradient of weights waits until what fills the device has gone, which takes two steps of which the first
 * makes more than it ends: no step can be moved by itself. */
static void test_search(void **state) {
    (void)state;
    ebb_program *p = begin(1);
    const uint32_t w = make_tensor(p, 8, true, false), a = make_tensor(p, 100, false, false);
    const uint32_t x = make_tensor(p, 10, false, false), g = make_tensor(p, 10, false, false);
    const uint32_t dw = make_tensor(p, 80, false, false), b = make_tensor(p, 20, false, false);
    const uint32_t out = make_tensor(p, 5, false, true);
    STEP(p, 0, 1, {a, EBB_WRITE});
    STEP(p, 0, 1, {a, EBB_READ}, {x, EBB_WRITE});
    STEP(p, 0, 1, {x, EBB_READ}, {g, EBB_WRITE});
    STEP(p, 0, 1, {x, EBB_READ}, {g, EBB_READ}, {dw, EBB_WRITE});
    STEP(p, 0, 1, {dw, EBB_READ}, {w, EBB_UPDATE});
    STEP(p, 0, 1, {g, EBB_READ}, {b, EBB_WRITE});
    STEP(p, 0, 1, {a, EBB_READ}, {b, EBB_READ}, {out, EBB_WRITE});
    assert_order(p, (ebb_order_figures){208, 153, 138}, 208, (const uint32_t[]){0, 1, 2, 5, 6, 3, 4});
}

/* A program that keeps its order: that of test_early, no other order is found, and a plan in that one is refused. */
static void test_kept(void **state) {
    (void)state;
    ebb_program *p = begin(1);
    const uint32_t a = make_tensor(p, 100, false, false), b = make_tensor(p, 100, false, false);
    uint32_t route[MAX_STEPS];
    STEP(p, 0, 1, {a, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_WRITE});
    STEP(p, 10, 1, {a, EBB_READ});
    STEP(p, 0, 1, {b, EBB_READ});
    assert_int_equal(ebb_program_keep_order(p), EBB_OK);
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    assert_true(ebb_program_keeps_order(p));
    assert_int_equal(ebb_program_keep_order(p), EBB_E_ARGUMENT);
    assert_int_equal(ebb__order_route(p, NULL, route), EBB_OK);
    assert_memory_equal(route, ((const uint32_t[]){0, 1, 2, 3}), 4 * sizeof *route);

    ebb_plan *plan = make_empty_plan(p, 1000);
    const ebb_action actions[] = {ACT_RUN(0), ACT_RUN(2), ACT_DROP(0), ACT_RUN(1), ACT_RUN(3), ACT_DROP(1)};
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        assert_int_equal(EBB_PUSH(plan->mem, &plan->actions, actions[i]), EBB_OK);
    }
    const ebb_stay stays[] = {{.tensor = a, .first = 0, .last = 2, .size_bytes = 100},
                              {.tensor = EBB_SCRATCH, .first = 1, .last = 2, .offset = 100, .size_bytes = 10},
                              {.tensor = b, .first = 3, .last = 5, .size_bytes = 100}};
    for (size_t i = 0; i < sizeof stays / sizeof stays[0]; i++) {
        assert_int_equal(EBB_PUSH(plan->mem, &plan->stays, stays[i]), EBB_OK);
    }
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "which this program keeps"));
    p->keeps_order = false;
    plan->fingerprint = ebb_program_fingerprint(p);
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    p->keeps_order = true;
    ebb_plan_destroy(plan);
    p->finished = false;
    assert_order(p, (ebb_order_figures){210, 210, 210}, 210, (const uint32_t[]){0, 1, 2, 3});
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_late), cmocka_unit_test(test_early),
                                       cmocka_unit_test(test_versions), cmocka_unit_test(test_search),
                                       cmocka_unit_test(test_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
