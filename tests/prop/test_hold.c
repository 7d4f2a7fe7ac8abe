/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies that are held: the plan is no slower, valid, needs the same bytes, and gives the same results in whatever
 * order its engines work. Plans by chance have what policies do not make: parts, moves, copies on several tiers at one
 * time.
 */
#include "plan_chance.h"

#include "plan/hold.h"

#include <inttypes.h>

#define N_LAPS 2

typedef struct counts {
    uint64_t n_plans, n_faster, n_held, n_moved;
} counts;

static uint64_t time_of(const ebb_program *p, const ebb_plan *plan, const ebb_machine *m) {
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    return timeline.iteration_ns;
}

static uint64_t count_held(const ebb_plan *plan) {
    uint64_t n = 0;
    for (size_t a = 0; a < plan->actions.n; a++) { n += plan->actions.data[a].held; }
    return n;
}

static bool is_copy(const ebb_action *action) {
    return action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN;
}

/* In how many places of the list is another action than before. */
static uint64_t count_moved(const ebb_plan *a, const ebb_plan *b) {
    uint64_t n = 0;
    assert_int_equal(a->actions.n, b->actions.n);
    for (size_t i = 0; i < a->actions.n; i++) {
        n += a->actions.data[i].kind != b->actions.data[i].kind ||
             a->actions.data[i].target != b->actions.data[i].target;
    }
    return n;
}

/* Whatever is not copied out or in is in the same order as before. */
static void assert_same_others(const ebb_plan *a, const ebb_plan *b) {
    size_t k = 0;
    for (size_t i = 0; i < a->actions.n; i++) {
        if (is_copy(&a->actions.data[i])) { continue; }
        while (k < b->actions.n && is_copy(&b->actions.data[k])) { k++; }
        assert_true(k < b->actions.n && is_same_action(&a->actions.data[i], &b->actions.data[k]));
        k++;
    }
}

static void try_hold(const ebb_program *p, const ebb_machine *m, ebb_plan **plan_io, ebb_rng *rng, counts *c) {
    world expected;
    const uint64_t before_ns = time_of(p, *plan_io, m);
    const ebb_plan_summary before = ebb_plan_get_summary(*plan_io);
    execute_in_order(&expected, p, *plan_io, N_LAPS);
    ebb_plan *was = NULL;
    assert_int_equal(ebb__plan_create_like(*plan_io, &was), EBB_OK);
    for (size_t a = 0; a < (*plan_io)->actions.n; a++) {
        assert_int_equal(EBB_PUSH(NULL, &was->actions, (*plan_io)->actions.data[a]), EBB_OK);
    }
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.effort = ebb__rng_below(rng, 4) > 0;
    assert_int_equal(ebb__plan_hold(p, m, &options, plan_io), EBB_OK);
    ebb_plan *plan = *plan_io;
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    if (ebb_plan_check(p, plan) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    const ebb_plan_summary after = ebb_plan_get_summary(plan);
    assert_int_equal(after.peak_bytes, before.peak_bytes);
    assert_int_equal(after.moved_out_bytes, before.moved_out_bytes);
    for (uint32_t t = 0; t < EBB_MAX_TIERS; t++) { assert_int_equal(after.tier_bytes[t], before.tier_bytes[t]); }
    const uint64_t after_ns = time_of(p, plan, m);
    assert_true(after_ns <= before_ns);
    c->n_plans++;
    c->n_faster += after_ns < before_ns;
    c->n_held += count_held(plan);
    c->n_moved += count_moved(was, plan);
    assert_same_others(was, plan);
    assert_has_results(p, plan, &expected, N_LAPS, rng);
    world_free(&expected);
    ebb_plan_destroy(was);
}

static void by_chance(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(30, 100, 300));
    counts c = {0};
    for (uint64_t seed = first; seed < first + n; seed++) {
        ebb_rng rng;
        ebb_machine *m = NULL;
        ebb__rng_init(&rng, seed, 21);
        ebb_program *p = random_program(seed);
        ebb_plan *plan = make_plan(p, seed, &m);
        assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
        ebb_machine_set_rates(m, 2e13, 1e13, 10); /* so that copies take about as long as steps */
        try_hold(p, m, &plan, &rng, &c);
        ebb_plan_destroy(plan);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    print_message("%" PRIu64 " plans, %" PRIu64 " faster, %" PRIu64 " copies held, %" PRIu64 " actions elsewhere\n",
                  c.n_plans, c.n_faster, c.n_held, c.n_moved);
    assert_true(c.n_faster * 3 > c.n_plans && c.n_held * 2 > c.n_plans && c.n_moved * 2 > c.n_plans);
}

/* A step bound by memory follows the one that makes what is copied, and stands still beside a copy. The copy is put
 * before the step after it, which it does not slow. */
static void goes_beside_arithmetic(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_plan *plan = NULL;
    ebb_link link;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_program_create(NULL, "beside", 1, &p), EBB_OK);
    const uint32_t x = make_tensor(p, 100, false, false), y = make_tensor(p, 100, false, false);
    const uint32_t z = make_tensor(p, 100, false, false);
    STEP(p, 0, 500, {x, EBB_WRITE});
    STEP(p, 0, 0, {x, EBB_READ}, {y, EBB_WRITE});
    STEP(p, 0, 500, {y, EBB_UPDATE});
    STEP(p, 0, 500, {y, EBB_READ}, {z, EBB_WRITE});
    STEP(p, 0, 500, {z, EBB_UPDATE});
    STEP(p, 0, 500, {x, EBB_READ}, {z, EBB_READ});
    for (size_t s = 0; s < p->steps.n; s++) { p->steps.data[s].repeat = EBB_REPEAT_NEVER; }
    p->choices.data[1].traffic_bytes = 200;
    p->choices.data[1].time_ns = 200;
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e9, 1e9);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    link.work_rate[EBB_STEP_TRAFFIC] = 0.01;
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    options.budget_bytes = 200;
    options.tier_bytes[EBB_DISK] = 0;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    assert_int_equal(time_of(p, plan, m), 5 * 500 + 200);
    assert_true(count_held(plan) > 0);
    ebb_plan_destroy(plan);
    options.policy = "budget"; /* fixed rules hold nothing */
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    assert_true(time_of(p, plan, m) > 5 * 500 + 250 && count_held(plan) == 0);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* The slot of a goes around the end and begins right after it ended, but for a copy in. That copy would be faster
 * later, but then the slot would begin where it ends, which no plan can say. */
static void keeps_gap_of_slot(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_link link;
    const ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_program_create(NULL, "gap", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 1, true, false), b = make_tensor(p, 100, true, false);
    const uint32_t x = make_tensor(p, 1, false, false);
    STEP(p, 0, 0, {x, EBB_WRITE});
    STEP(p, 0, 500, {x, EBB_UPDATE});
    STEP(p, 0, 500, {a, EBB_READ}, {b, EBB_READ}, {x, EBB_READ});
    p->choices.data[0].traffic_bytes = p->choices.data[0].time_ns = 200;
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_plan *plan = make_empty_plan(p, UINT64_MAX);
    const ebb_action list[] = {ACT_IN(b), ACT_OUT(a), ACT_DROP(a), ACT_RUN(0), ACT_RUN(1),
                               ACT_IN(a), ACT_RUN(2), ACT_DROP(b), ACT_DROP(x)};
    const ebb_stay stays[] = {{b, 0, 7, 0, 100, 0}, {x, 3, 8, 100, 1, 0}, {a, 5, 2, 101, 1, 0}};
    const ebb_slot slots[] = {{b, EBB_HOST, 0, 0, 0, 100, 0}, {a, EBB_HOST, 1, 0, 100, 1, 0}};
    for (size_t i = 0; i < 9; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, list[i]), EBB_OK); }
    for (size_t i = 0; i < 3; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, stays[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->slots, slots[i]), EBB_OK); }
    if (ebb_plan_check(p, plan) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e9, 1e9);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    link.work_rate[EBB_STEP_TRAFFIC] = 0.01;
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    const uint64_t before_ns = time_of(p, plan, m);
    assert_int_equal(ebb__plan_hold(p, m, &options, &plan), EBB_OK);
    if (ebb_plan_check(p, plan) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_true(time_of(p, plan, m) <= before_ns);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_chance), cmocka_unit_test(goes_beside_arithmetic),
                                       cmocka_unit_test(keeps_gap_of_slot)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
