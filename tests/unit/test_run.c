/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run refuses to be made from; nothing is handed out then.
 */
#include "plan/plan_priv.h"
#include "run_support.h"

static void refuse(const run_fixture *f, const ebb_run_options *options, ebb_status status, const char *message) {
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, options, &run), status);
    assert_null(run);
    if (strstr(ebb_last_error(), message) == NULL) { fail_msg("'%s' lacks '%s'", ebb_last_error(), message); }
}

static void bad_options_are_refused(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.size_bytes = 0;
    refuse(&f, &options, EBB_E_ARGUMENT, "another version");
    options = EBB_RUN_OPTIONS_INIT;
    assert_int_equal(ebb_arena_create(f.device, 64, &options.arena), EBB_OK);
    refuse(&f, &options, EBB_E_ARGUMENT, "less than the plan's");
    ebb_arena_destroy(options.arena);
    run_fixture_fini(&f);
}

static void a_plan_of_another_program_is_refused(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    const uint64_t fingerprint = f.plan->fingerprint;
    f.plan->summary.fingerprint = fingerprint + 1;
    refuse(&f, NULL, EBB_E_INVALID_PLAN, "another program");
    f.plan->summary.fingerprint = fingerprint;
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_plan_of_another_program_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
