/* SPDX-License-Identifier: Apache-2.0
 *
 * How much work a plan is whose one tensor is in a great many parts, each of which leaves the device and comes back by
 * itself: twice as many parts may be little more than twice the work. The planner's code is compiled with a call at the
 * beginning of each basic block, and these calls are counted.
 */
#include "plan/plan_items.h"
#include "plan_support.h"

#define PART_BYTES 64u
#define N_PARTS 5000u /* deep checks look through smaller sets at each step */

static uint64_t n_blocks;

void __sanitizer_cov_trace_pc(void);

void __sanitizer_cov_trace_pc(void) {
    n_blocks++;
}

static ebb_program *make_program(uint32_t n_parts) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "parts", PART_BYTES, &p), EBB_OK);
    const uint32_t x = make_tensor(p, (uint64_t)n_parts * PART_BYTES, false, false), k = make_tensor(p, 4, false, true);
    STEP(p, 0, 1e6, {x, EBB_WRITE});
    STEP(p, 0, 1e6, {k, EBB_WRITE});
    STEP(p, 0, 1e6, {x, EBB_READ}, {k, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static void add_parts(ebb_plan *plan, ebb_action_kind kind, uint32_t n_parts) {
    for (uint32_t i = 0; i < n_parts; i++) {
        const ebb_action action = {.kind = kind,
                                   .tier = kind == EBB_ACT_DROP ? 0 : EBB_HOST,
                                   .begin = (uint64_t)i * PART_BYTES,
                                   .size_bytes = PART_BYTES};
        assert_int_equal(EBB_PUSH(plan->mem, &plan->actions, action), EBB_OK);
    }
}

static void add_action(ebb_plan *plan, ebb_action action) {
    assert_int_equal(EBB_PUSH(plan->mem, &plan->actions, action), EBB_OK);
}

static void add_stay(ebb_plan *plan, uint32_t tensor, uint64_t first, uint64_t last, uint64_t offset, uint64_t begin) {
    const ebb_stay stay = {.tensor = tensor,
                           .first = first,
                           .last = last,
                           .offset = offset,
                           .size_bytes = tensor == 0 ? PART_BYTES : 4,
                           .begin = begin};
    assert_int_equal(EBB_PUSH(plan->mem, &plan->stays, stay), EBB_OK);
}

/* Written; out, dropped and in again part by part; read; dropped whole. */
static ebb_plan *make_plan(const ebb_program *p, uint32_t n_parts) {
    const uint64_t n = n_parts;
    ebb_plan *plan = make_empty_plan(p, (n + 1) * PART_BYTES);
    add_action(plan, (ebb_action)ACT_RUN(0));
    add_parts(plan, EBB_ACT_OUT, n_parts);
    add_parts(plan, EBB_ACT_DROP, n_parts);
    add_action(plan, (ebb_action)ACT_RUN(1));
    add_parts(plan, EBB_ACT_IN, n_parts);
    add_action(plan, (ebb_action)ACT_RUN(2));
    add_action(plan, (ebb_action)ACT_DROP(0));
    for (uint64_t i = 0; i < n; i++) { add_stay(plan, 0, 0, n + 1 + i, i * PART_BYTES, i * PART_BYTES); }
    add_stay(plan, 1, 2 * n + 1, 3 * n + 4, n * PART_BYTES, 0);
    for (uint64_t i = 0; i < n; i++) { add_stay(plan, 0, 2 * n + 2 + i, 3 * n + 3, i * PART_BYTES, i * PART_BYTES); }
    for (uint64_t i = 0; i < n; i++) {
        const ebb_slot slot = {.tensor = 0,
                               .tier = EBB_HOST,
                               .first = 1 + i,
                               .last = 2 * n + 3 + i,
                               .offset = i * PART_BYTES,
                               .size_bytes = PART_BYTES,
                               .begin = i * PART_BYTES};
        assert_int_equal(EBB_PUSH(plan->mem, &plan->slots, slot), EBB_OK);
    }
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    return plan;
}

typedef struct work {
    uint64_t check, simulate, items; /* basic blocks */
} work;

static work count_work(uint32_t n_parts) {
    ebb_program *p = make_program(n_parts);
    ebb_plan *plan = make_plan(p, n_parts);
    ebb_machine *m = NULL;
    ebb_timeline timeline;
    ebb_plan_items items;
    ebb_bump bump;
    work w;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    n_blocks = 0;
    const ebb_status st = ebb_plan_check(p, plan);
    if (st != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    w.check = n_blocks;
    n_blocks = 0;
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    w.simulate = n_blocks;
    ebb__bump_init(&bump, NULL);
    n_blocks = 0;
    assert_int_equal(ebb__plan_items_init(&items, plan, &bump), EBB_OK);
    w.items = n_blocks;
    ebb__plan_items_fini(&items);
    ebb__bump_fini(&bump);
    ebb_machine_destroy(m);
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
    return w;
}

/* Twice as much, and what the logarithm adds. */
static void assert_near_linear(const char *what, uint64_t once, uint64_t twice) {
    print_message("%s: %llu, %llu blocks\n", what, (unsigned long long)once, (unsigned long long)twice);
    assert_true(once > N_PARTS); /* blocks are counted */
    if (twice > once * 5 / 2) { fail_msg("%s of twice as many parts is more than 2.5 times the work", what); }
}

static void test_many_parts(void **state) {
    (void)state;
    const work once = count_work(N_PARTS), twice = count_work(2 * N_PARTS);
    assert_near_linear("checking", once.check, twice.check);
    assert_near_linear("simulating", once.simulate, twice.simulate);
    assert_near_linear("making items", once.items, twice.items);
}

/* With this many parts a wrong one is still found. */
static void test_wrong_part(void **state) {
    (void)state;
    ebb_program *p = make_program(N_PARTS);
    ebb_plan *plan = make_plan(p, N_PARTS);
    plan->slots.data[N_PARTS / 2].last--;
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "it has no slot"));
    plan->slots.data[N_PARTS / 2].last++;
    plan->stays.data[N_PARTS / 2].last--;
    assert_int_equal(ebb_plan_check(p, plan), EBB_E_INVALID_PLAN);
    assert_non_null(strstr(ebb_last_error(), "its stay does not end here"));
    ebb_plan_destroy(plan);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_parts), cmocka_unit_test(test_wrong_part)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
