/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that no policy makes: steps in any order that the versions allow, tensors in parts, copies on several tiers at
 * one time, moves between tiers, recomputation wherever it can be, all by chance. The validator accepts them; executed
 * with real bytes, in the list's order and in any that the schedule allows, they end with what a plain run ends with;
 * the simulator keeps the schedule. Then one thing is changed in such a plan: it is refused, or its results are still
 * right.
 */
#include "plan_chance.h"

#define N_LAPS 3

/* What a plain run makes: every tensor always there, steps as the program has them. */
static void run_plainly(const ebb_program *program, world *expected) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "none";
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, NULL), EBB_OK);
    execute_in_order(expected, program, plan, N_LAPS);
    expected->plan = NULL;
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
}

/* The simulator starts nothing before what it waits for has ended, and each engine does one thing after the other. */
static void assert_simulated(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine) {
    const size_t n = plan->actions.n;
    uint64_t *start = calloc(n, sizeof *start), *end = calloc(n, sizeof *end);
    uint64_t is_free[EBB_MAX_ENGINES] = {0};
    ebb_timeline timeline;
    ebb_schedule s;
    ebb_bump bump;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb_plan_simulate(program, plan, machine, &timeline, start, end), EBB_OK);
    assert_int_equal(ebb__plan_schedule(program, plan, &bump, &s), EBB_OK);
    for (size_t a = 0; a < n; a++) {
        assert_true(start[a] <= end[a]);
        if (s.engine[a] == EBB_NO_ENGINE) { continue; }
        assert_true(start[a] >= is_free[s.engine[a]]);
        is_free[s.engine[a]] = end[a];
        for (uint64_t i = s.start[a]; i < s.start[a + 1]; i++) {
            if (s.dep[i] < a) { assert_true(start[a] >= end[s.dep[i]]); }
        }
    }
    assert_int_equal(timeline.iteration_ns, is_free[EBB_COMPUTE]);
    assert_true(timeline.stall_ns[EBB_COMPUTE] <= timeline.iteration_ns);
    ebb__bump_fini(&bump);
    free(start);
    free(end);
}

static void test_plans_by_chance(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", getenv("EBB_TEST_ALL") != NULL ? 2000 : 150);
    uint64_t n_parts = 0, n_moves = 0, n_again = 0, n_out_of_order = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        ebb_program *program = random_program(seed);
        ebb_machine *machine = NULL;
        ebb_plan *plan = make_plan(program, seed, &machine);
        if (ebb_plan_check(program, plan) != EBB_OK) { fail_msg("seed %zu: %s", (size_t)seed, ebb_last_error()); }
        world expected;
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 9);
        run_plainly(program, &expected);
        assert_has_results(program, plan, &expected, N_LAPS, &rng);
        world_free(&expected);
        assert_simulated(program, plan, machine);
        uint32_t next = 0;
        for (size_t a = 0; a < plan->actions.n; a++) {
            const ebb_action *action = &plan->actions.data[a];
            n_parts += !ebb__action_computes(action) && action->size_bytes != EBB_WHOLE;
            n_moves += action->kind == EBB_ACT_MOVE;
            n_again += action->kind == EBB_ACT_AGAIN;
            if (action->kind == EBB_ACT_RUN) { n_out_of_order += action->target != next++; }
        }
        ebb_plan_destroy(plan);
        ebb_machine_destroy(machine);
        ebb_program_destroy(program);
    }
    print_message("%zu parts, %zu moves, %zu run again, %zu out of order\n", (size_t)n_parts, (size_t)n_moves,
                  (size_t)n_again, (size_t)n_out_of_order);
    assert_true(n_parts > n && n_moves > n / 4 && n_again > n / 4 && n_out_of_order > n);
}

/* ---- mistakes ------------------------------------------------------------------------------------ */

static void break_action(ebb_plan *plan, ebb_rng *rng) {
    ebb_action *a = &plan->actions.data[ebb__rng_below(rng, plan->actions.n)];
    ebb_action *b = &plan->actions.data[ebb__rng_below(rng, plan->actions.n)];
    const ebb_action copy = *a;
    switch (ebb__rng_below(rng, 6)) {
    case 0: *a = *b, *b = copy; return;
    case 1: a->target = (uint32_t)ebb__rng_below(rng, 20); return;
    case 2: a->tier = (uint16_t)ebb__rng_below(rng, N_TIERS + 2); return;
    case 3: a->begin = ebb__rng_below(rng, 4) * 64; return;
    case 4: a->size_bytes = ebb__rng_below(rng, 4) * 64; return;
    default: a->kind = (uint32_t)ebb__rng_below(rng, EBB_ACT_DROP + 1); return;
    }
}

static void break_place(ebb_plan *plan, ebb_rng *rng, uint64_t alignment) {
    if (plan->slots.n > 0 && ebb__rng_below(rng, 2) == 0) {
        ebb_slot *slot = &plan->slots.data[ebb__rng_below(rng, plan->slots.n)];
        switch (ebb__rng_below(rng, 4)) {
        case 0: slot->last = ebb__rng_below(rng, plan->actions.n + 1); return;
        case 1: slot->begin += alignment; return;
        case 2: slot->tier = 1 + (uint32_t)ebb__rng_below(rng, N_TIERS); return;
        default: slot->offset = ebb__rng_below(rng, slot->offset + 1); return;
        }
    }
    ebb_stay *stay = &plan->stays.data[ebb__rng_below(rng, plan->stays.n)];
    switch (ebb__rng_below(rng, 4)) {
    case 0: stay->last = ebb__rng_below(rng, plan->actions.n + 1); return;
    case 1: stay->begin = ebb__rng_below(rng, 3) * alignment; return;
    case 2: stay->size_bytes -= ebb__rng_below(rng, stay->size_bytes); return;
    default: stay->offset = ebb__rng_below(rng, stay->offset / alignment + 2) * alignment; return;
    }
}

static void test_mistakes(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", 60);
    uint64_t n_refused = 0, n_fine = 0;
    for (uint64_t seed = first; seed < first + n; seed++) {
        ebb_program *program = random_program(seed);
        world expected;
        run_plainly(program, &expected);
        for (uint64_t i = 0; i < 20; i++) {
            ebb_machine *machine = NULL;
            ebb_plan *plan = make_plan(program, seed, &machine);
            ebb_rng rng;
            ebb__rng_init(&rng, seed * 100 + i, 11);
            if (ebb__rng_below(&rng, 2)) {
                break_action(plan, &rng);
            } else {
                break_place(plan, &rng, program->alignment_bytes);
            }
            const ebb_status st = ebb_plan_check(program, plan);
            assert_true(st == EBB_OK || st == EBB_E_INVALID_PLAN);
            n_refused += st != EBB_OK;
            if (st == EBB_OK && ebb__plan_seal(plan) == EBB_OK && ebb_plan_get_summary(plan).peak_bytes < 1 << 20) {
                world got;
                execute_any_order(&got, program, plan, N_LAPS, &rng);
                assert_same_results(&expected, &got, N_LAPS);
                world_free(&got);
                n_fine++;
            }
            ebb_plan_destroy(plan);
            ebb_machine_destroy(machine);
        }
        world_free(&expected);
        ebb_program_destroy(program);
    }
    print_message("%zu refused, %zu harmless\n", (size_t)n_refused, (size_t)n_fine);
    assert_true(n_refused > 8 * n);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans_by_chance), cmocka_unit_test(test_mistakes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
