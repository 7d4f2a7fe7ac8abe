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

static ebb_command *find(ebb_run *run, ebb_action_kind kind) {
    size_t a = 0;
    while (a < run->n_commands && run->commands[a].kind != kind) { a++; }
    assert_true(a < run->n_commands);
    return &run->commands[a];
}

static void broken_commands_are_seen(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    ebb_command *kernel = find(run, EBB_ACT_RUN), *out = find(run, EBB_ACT_OUT), *drop = find(run, EBB_ACT_DROP);
    BREAK(run, run->n_commands, run->n_commands - 1);
    BREAK(run, kernel->bound, NULL);
    BREAK(run, kernel->engine, EBB_ENGINE_IN);
    BREAK(run, kernel->kind, EBB_ACT_DROP);
    BREAK(run, drop->engine, EBB_ENGINE_OUT);
    BREAK(run, out->transfer.direction, EBB_COPY_IN);
    BREAK(run, out->transfer.tier, EBB_TIER_DISK);
    BREAK(run, out->transfer.offset, UINT64_MAX - 8);
    BREAK(run, out->transfer.buf.offset, run->stats.peak_bytes);
    BREAK(run, out->transfer.buf.size_bytes, out->transfer.buf.size_bytes + 1);
    BREAK(run, run->schedule.dep[0], run->n_commands);
    BREAK(run, run->commands[run->schedule.dep[0]].done, NULL);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

static void broken_homes_and_tiers_are_seen(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    size_t t = 0;
    while (run->homes[t].offset == UINT64_MAX || run->homes[t].slot != UINT64_MAX) { t++; }
    BREAK(run, run->homes[t].offset, run->arena->size_bytes);
    BREAK(run, run->homes[t].offset, UINT64_MAX); /* gone */
    BREAK(run, run->homes[t].slot, UINT64_MAX - 1);
    BREAK(run, run->tiers.slab_bytes, 0);
    BREAK(run, run->tiers.file_bytes, 1);
    BREAK(run, run->stats.peak_bytes, run->stats.peak_bytes + 1);
    assert_int_equal(ebb_run_park(run), EBB_OK);
    BREAK(run, run->homes[t].parked, ebb_run_parked_bytes(run));
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
