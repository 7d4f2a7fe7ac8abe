/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a placed plan needs more than the budget: at the places where a stack of tensors reaches above it, not for as
 * long as the topmost one stays.
 */
#include "plan/best.h"
#include "plan_support.h"

#define BUDGET 100u
#define N_RUNS 6u

typedef struct stay {
    uint64_t first, last, offset, size_bytes;
} stay;

/* The excess at each place of a plan of six runs. */
static void find(const stay *stays, size_t n, ebb_excess what, uint64_t over[N_RUNS + 1]) {
    ebb_plan plan = {.mem = ebb__mem_or_default(NULL), .alignment_bytes = 1};
    for (uint32_t i = 0; i < N_RUNS; i++) {
        const ebb_action run = ACT_RUN(i);
        assert_int_equal(EBB_PUSH(NULL, &plan.actions, run), EBB_OK);
    }
    for (uint32_t i = 0; i < n; i++) {
        const ebb_stay own = {i, stays[i].first, stays[i].last, stays[i].offset, stays[i].size_bytes, 0};
        assert_int_equal(EBB_PUSH(NULL, &plan.stays, own), EBB_OK);
    }
    assert_int_equal(ebb__best_find_excess(&plan, BUDGET, what, over, NULL), EBB_OK);
    EBB_VEC_FINI(NULL, &plan.actions);
    EBB_VEC_FINI(NULL, &plan.stays);
}

static void assert_over_of(const stay *stays, size_t n, ebb_excess what, const uint64_t *expected) {
    uint64_t over[N_RUNS + 1];
    find(stays, n, what, over);
    for (uint32_t p = 0; p <= N_RUNS; p++) { assert_int_equal(over[p], expected[p]); }
}

static void assert_over(const stay *stays, size_t n, const uint64_t *expected) {
    assert_over_of(stays, n, EBB_EXCESS_STACKS, expected);
}

static void test_a_small_one_lies_on_a_large_one(void **state) {
    (void)state;
    const stay stays[] = {{0, 6, 0, 40}, {2, 4, 40, 70}, {4, 6, 40, 20}, {0, 6, 110, 5}};
    assert_over(stays, 4, (uint64_t[]){0, 0, 15, 15, 0, 0, 0});
    assert_over_of(stays, 4, EBB_EXCESS_STAYS, (uint64_t[]){15, 15, 15, 15, 15, 15, 0});
}

/* The most that is there at each place, also of what comes and goes between two runs, and of what stays around the end.
 */
static void test_the_load_is_told(void **state) {
    (void)state;
    const ebb_action actions[] = {ACT_RUN(0), ACT_AGAIN(0), ACT_AGAIN(0), ACT_RUN(1)};
    const ebb_stay stays[] = {{0, 0, 4, 0, 10, 0}, {1, 1, 2, 10, 5, 0}, {2, 2, 3, 10, 7, 0}, {3, 3, 1, 20, 3, 0}};
    uint64_t over[3], load[3];
    ebb_plan plan = {.mem = ebb__mem_or_default(NULL), .alignment_bytes = 4};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(EBB_PUSH(NULL, &plan.actions, actions[i]), EBB_OK);
        assert_int_equal(EBB_PUSH(NULL, &plan.stays, stays[i]), EBB_OK);
    }
    assert_int_equal(ebb__best_find_excess(&plan, BUDGET, EBB_EXCESS_STACKS, over, load), EBB_OK);
    assert_int_equal(load[0], 12 + 4); /* before the first run: the one that comes around the end, too */
    assert_int_equal(load[1], 12 + 8);
    assert_int_equal(load[2], 0);
    EBB_VEC_FINI(NULL, &plan.actions);
    EBB_VEC_FINI(NULL, &plan.stays);
}

/* The lowest has gone when the topmost comes. */
static void test_a_stack_begins_anew(void **state) {
    (void)state;
    const stay stays[] = {{0, 2, 0, 60}, {1, 3, 60, 30}, {2, 4, 90, 30}};
    assert_over(stays, 3, (uint64_t[]){0, 0, 20, 0, 0, 0, 0});
}

static void test_nothing_lies_below(void **state) {
    (void)state;
    const stay stays[] = {{0, 2, 50, 60}, {4, 1, 120, 10}};
    assert_over(stays, 2, (uint64_t[]){30, 10, 0, 0, 30, 30, 30});
}

static void test_all_fits(void **state) {
    (void)state;
    const stay stays[] = {{0, 6, 0, 40}, {2, 4, 40, 60}};
    assert_over(stays, 2, (uint64_t[]){0, 0, 0, 0, 0, 0, 0});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_one_lies_on_a_large_one),
        cmocka_unit_test(test_the_load_is_told),
        cmocka_unit_test(test_a_stack_begins_anew),
        cmocka_unit_test(test_nothing_lies_below),
        cmocka_unit_test(test_all_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
