/* SPDX-License-Identifier: Apache-2.0
 *
 * The deep check of a run sees what is wrong: each thing that it looks at is broken once and mended again.
 */
#include "run_support.h"

#define BREAK(run, member, wrong)                                                                                      \
    do {                                                                                                               \
        __typeof__(member) right_ = (member);                                                                          \
        assert_true(ebb__run_is_valid(run));                                                                           \
        (member) = (wrong);                                                                                            \
        assert_false(ebb__run_is_valid(run));                                                                          \
        (member) = right_;                                                                                             \
    } while (0)

static ebb_run_command *find(ebb_run *run, ebb_action_kind kind) {
    size_t a = 0;
    while (a < run->n_commands && run->commands[a].action.kind != kind) { a++; }
    assert_true(a < run->n_commands);
    return &run->made[a];
}

static void broken_commands_are_seen(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    ebb_run_command *kernel = find(run, EBB_ACT_RUN), *out = find(run, EBB_ACT_OUT);
    BREAK(run, run->n_commands, run->n_commands - 1);
    BREAK(run, kernel->bound, NULL);
    BREAK(run, kernel->kernel, NULL);
    BREAK(run, out->transfer.from, EBB_HOST);
    BREAK(run, out->transfer.to, EBB_DISK);
    BREAK(run, out->transfer.to_offset, UINT64_MAX - 8);
    BREAK(run, out->transfer.buf.offset, run->bound_end_bytes);
    BREAK(run, out->transfer.buf.size_bytes, out->transfer.buf.size_bytes + 1);
    BREAK(run, run->events[0], NULL);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

static void broken_homes_and_tiers_are_seen(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    size_t n_homes = 0;
    uint32_t t = 0;
    while (ebb_executor_homes(run->executor, t, &n_homes)->tier != EBB_DEVICE || n_homes == 0) { t++; }
    ebb_home *home = (ebb_home *)(uintptr_t)ebb_executor_homes(run->executor, t, &n_homes);
    BREAK(run, home->offset, run->arena->size_bytes);
    BREAK(run, home->tier, EBB_DISK); /* nothing is there */
    BREAK(run, home->size_bytes, home->size_bytes - 1);
    BREAK(run, run->tiers.store[EBB_HOST].size_bytes, 0);
    BREAK(run, run->tiers.store[EBB_DISK].size_bytes, 1);
    BREAK(run, run->bound_end_bytes, run->bound_end_bytes + 1);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_commands_are_seen),
        cmocka_unit_test(broken_homes_and_tiers_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
