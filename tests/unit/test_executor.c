/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor, used as its header says, with kernels and memory of the test's own: what it tells is what an executor
 * of the tests' own finds (plan_support.h), the waits are those of the schedule, and an iteration ends with what a
 * callback returns.
 */
#include "plan_support.h"

#include "ebb/executor.h"

#define N_LAPS 3

/* A caller that does each command before it returns, and checks each against the tests' own executor. */
typedef struct caller {
    world *world;
    ebb_schedule schedule;
    const ebb_command *commands;
    uint64_t lap, n_computed, n_copied, n_waits, n_records;
    uint64_t fail_at; /* command that is not done; UINT64_MAX: none */
    bool *recorded;   /* by event */
} caller;

static ebb_status do_command(caller *c, const ebb_command *command) {
    const size_t a = (size_t)(command - c->commands);
    if (a == c->fail_at) { return ebb_fail(EBB_E_DEVICE, "it broke"); }
    assert_int_equal(command->engine, c->schedule.engine[a]);
    assert_int_equal(command->n_waits, c->schedule.start[a + 1] - c->schedule.start[a]);
    do_action(c->world, a, c->lap);
    return EBB_OK;
}

static ebb_status compute(void *ctx, const ebb_command *command) {
    caller *c = ctx;
    const bound_action *b = &c->world->bound[command - c->commands];
    const ebb_step *step = &c->world->program->steps.data[command->action.target];
    for (uint32_t i = 0; i < step->n_accesses; i++) { assert_int_equal(command->offsets[i], b->offset[i]); }
    assert_int_equal(command->scratch_bytes, b->scratch_bytes);
    if (b->scratch_bytes > 0) { assert_int_equal(command->scratch_offset, b->scratch); }
    c->n_computed++;
    return do_command(c, command);
}

static ebb_status copy(void *ctx, const ebb_command *command) {
    caller *c = ctx;
    const bound_action *b = &c->world->bound[command - c->commands];
    assert_int_equal(command->size_bytes, b->n_bytes);
    assert_int_equal(command->from_offset, command->from == EBB_DEVICE ? b->offset[0] : b->from);
    assert_int_equal(command->to_offset, command->to == EBB_DEVICE ? b->offset[0] : b->to);
    c->n_copied++;
    return do_command(c, command);
}

static ebb_status wait(void *ctx, uint32_t engine, uint32_t event) {
    caller *c = ctx;
    assert_true(engine < c->world->plan->topology.n_engines);
    if (c->lap > 0) { assert_true(c->recorded[event]); }
    c->n_waits++;
    return EBB_OK;
}

static ebb_status record(void *ctx, uint32_t engine, uint32_t event) {
    caller *c = ctx;
    (void)engine;
    c->recorded[event] = true;
    c->n_records++;
    return EBB_OK;
}

/* Homes are where the tests' own executor puts what persists: all bytes of it are somewhere, those in the arena first.
 */
static void check_homes(const ebb_executor *x, const world *w) {
    for (uint32_t t = 0; t < w->program->tensors.n; t++) {
        const ebb_tensor *tensor = &w->program->tensors.data[t];
        size_t n = 0;
        uint64_t bytes = 0;
        const ebb_home *homes = ebb_executor_homes(x, t, &n);
        for (size_t h = 0; h < n; h++) {
            bytes += homes[h].size_bytes;
            if (h > 0) { assert_true(homes[h - 1].tier == EBB_DEVICE || homes[h].tier != EBB_DEVICE); }
        }
        assert_true(tensor->persistent || tensor->kept ? bytes >= tensor->size_bytes : n == 0);
    }
    size_t n = 1;
    (void)ebb_executor_homes(x, EBB_NO_TENSOR, &n); /* what the builder says of a tensor of no bytes */
    assert_int_equal(n, 0);
}

static void follows_plans(void **state) {
    (void)state;
    uint64_t n_copied = 0, n_waits = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        ebb_program *p = random_program(seed);
        ebb_plan *plan = make_tight_plan(p);
        ebb_executor *x = NULL;
        world w;
        size_t n = 0;
        assert_int_equal(ebb_executor_create(NULL, p, plan, &x), EBB_OK);
        world_begin(&w, p, plan, N_LAPS);
        caller c = {.world = &w, .commands = ebb_executor_commands(x, &n), .fail_at = UINT64_MAX};
        assert_int_equal(n, plan->actions.n);
        assert_int_equal(ebb__plan_schedule(p, plan, &w.bump, &c.schedule), EBB_OK);
        c.recorded = calloc(ebb_executor_n_events(x) + 1, sizeof *c.recorded);
        ebb_executor_ops ops = EBB_EXECUTOR_OPS_INIT;
        ops.compute = compute;
        ops.copy = copy;
        ops.wait = wait;
        ops.record = record;
        for (c.lap = 0; c.lap < N_LAPS; c.lap++) { assert_int_equal(ebb_executor_iterate(x, &ops, &c), EBB_OK); }
        assert_int_equal(c.n_waits, N_LAPS * c.schedule.start[n]);
        assert_int_equal(c.n_records, N_LAPS * ebb_executor_n_events(x));
        check_homes(x, &w);
        n_copied += c.n_copied;
        n_waits += c.n_waits;
        c.lap = 0;
        for (c.fail_at = 0; c.commands[c.fail_at].engine == EBB_NO_ENGINE; c.fail_at++) {}
        assert_int_equal(ebb_executor_iterate(x, &ops, &c), EBB_E_DEVICE);
        free(c.recorded);
        world_end(&w);
        world expected;
        execute_in_order(&expected, p, plan, N_LAPS);
        assert_memory_equal(expected.digest, w.digest, N_LAPS * p->steps.n * sizeof *w.digest);
        world_free(&expected);
        world_free(&w);
        ebb_executor_destroy(x);
        ebb_plan_destroy(plan);
        ebb_program_destroy(p);
    }
    assert_true(n_copied > 100 && n_waits > 100);
}

static void refuses(void **state) {
    (void)state;
    ebb_program *p = random_program(1), *other = random_program(2);
    ebb_plan *plan = make_tight_plan(p);
    ebb_executor *x = NULL;
    ebb_executor_ops ops = EBB_EXECUTOR_OPS_INIT;
    assert_int_equal(ebb_executor_create(NULL, other, plan, &x), EBB_E_INVALID_PLAN);
    assert_null(x);
    assert_int_equal(ebb_executor_create(NULL, p, plan, &x), EBB_OK);
    assert_int_equal(ebb_executor_iterate(x, &ops, NULL), EBB_E_ARGUMENT);
    ops.compute = compute;
    ops.copy = copy;
    ops.size_bytes--;
    assert_int_equal(ebb_executor_iterate(x, &ops, NULL), EBB_E_ARGUMENT);
    ebb_executor_destroy(x);
    ebb_executor_destroy(NULL);
    OOM_LOOP(mem, st, {
        x = NULL;
        st = ebb_executor_create(mem, p, plan, &x);
        ebb_executor_destroy(x);
    });
    ebb_plan_destroy(plan);
    ebb_program_destroy(other);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(follows_plans), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
