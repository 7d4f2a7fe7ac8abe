/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that copy in: the engine for copies carries them, beside computing, where the machine has one; the text form
 * and the fingerprint know them; and between its last read and such a step a tensor's bytes are others'.
 */
#include "plan/machine_priv.h"

#include "ebb/ebb.h"
#include "support.h"

#define SIZE "1048576"
#define STEP_NS 100000u

/* x is read first, and then copied in for the next iteration; big is there in between. */
static const char text[] =
    "ebb-program 1\nname \"fed\"\nalignment 64\n"
    "tensor 0 \"x\" " SIZE " input persistent\n"
    "tensor 1 \"a\" " SIZE " activation\n"
    "tensor 2 \"big\" " SIZE " activation\n"
    "tensor 3 \"w\" 64 parameter persistent\n"
    "step 0 \"first\" \"k\" forward read 0 write 1 choice \"c\" 0 0000000000000001 0 0 time 100000\n"
    "step 1 \"second\" \"k\" forward read 1 write 2 choice \"c\" 0 0000000000000001 0 0 time 100000\n"
    "step 2 \"third\" \"k\" backward read 2 update 3 choice \"c\" 0 0000000000000001 0 0 time 100000\n"
    "step 3 \"feed\" \"feed\" forward never write 0 choice \"c\" 0 0000000000000002 0 0%s\n"
    "step 4 \"last\" \"k\" update update 3 choice \"c\" 0 0000000000000001 0 0 time 100000\n"
    "end 4 5\n";

static ebb_program *load(bool copies_in) {
    ebb_program *program = NULL;
    FILE *file = fopen(test_path, "w");
    assert_non_null(file);
    assert_true(fprintf(file, text, copies_in ? " copies-in" : " time 100000") > 0);
    assert_int_equal(fclose(file), 0);
    if (ebb_program_load(NULL, test_path, &program) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return program;
}

static ebb_plan *plan_for(const ebb_program *program, const ebb_machine *machine, const char *policy) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = policy;
    if (ebb_plan_make(program, machine, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_plan_check(program, plan), EBB_OK);
    return plan;
}

/* What an iteration takes, and the engine that has the step "feed". */
static ebb_timeline simulate(bool copies_in, double bytes_per_s, const char **engine_out) {
    ebb_machine *machine = NULL;
    ebb_timeline timeline;
    ebb_executor *executor = NULL;
    ebb_proof proof;
    size_t n = 0;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    const ebb_link link = {EBB_DEVICE, EBB_HOST, {bytes_per_s, 0, 1}, {bytes_per_s, 0, 2}, EBB_LINK_SHARES_ONE};
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    ebb_program *program = load(copies_in);
    ebb_plan *plan = plan_for(program, machine, "none");
    assert_int_equal(ebb_plan_simulate(program, plan, machine, &timeline, NULL, NULL), EBB_OK);
    assert_int_equal(ebb_executor_create(NULL, program, plan, &executor), EBB_OK);
    const ebb_command *commands = ebb_executor_commands(executor, &n);
    for (size_t c = 0; c < n; c++) {
        if (commands[c].action.kind != EBB_ACT_RUN || commands[c].action.target != 3) { continue; }
        *engine_out = ebb_plan_topology(plan)->engine[commands[c].engine];
    }
    assert_string_equal(*engine_out, copies_in ? ebb_machine_topology(machine)->engine[2] : "compute");
    ebb_executor_destroy(executor);
    if (ebb_executor_prove(NULL, program, plan, &proof) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_plan_destroy(plan);
    ebb_program_destroy(program);
    ebb_machine_destroy(machine);
    return timeline;
}

static void copies_hide_behind_steps(void **state) {
    (void)state;
    const char *engine = "";
    assert_int_equal(simulate(false, 1e12, &engine).iteration_ns, 5 * STEP_NS);
    /* about 100 us: as long as the step after it */
    assert_int_equal(simulate(true, 1048576 / 100e-6, &engine).iteration_ns, 4 * STEP_NS);
    /* 350 us, from the end of the first step on, before which x is read: the next iteration waits for 50 us of it */
    const ebb_timeline slow = simulate(true, 1048576 / 350e-6, &engine);
    assert_in_range(slow.iteration_ns, STEP_NS + 349000, STEP_NS + 351000);
    assert_int_equal(slow.busy_ns[EBB_COMPUTE], 4 * STEP_NS);
    assert_in_range(slow.busy_ns[2], 349000, 351000);
}

static void bytes_are_others_until_the_feed(void **state) {
    (void)state;
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_program *program = load(true);
    ebb_plan *none = plan_for(program, machine, "none"), *liveness = plan_for(program, machine, "liveness");
    assert_int_equal(ebb_plan_get_summary(none).peak_bytes, 3 * 1048576 + 64);
    assert_int_equal(ebb_plan_get_summary(liveness).peak_bytes, 2 * 1048576 + 64);
    ebb_plan_destroy(none);
    ebb_plan_destroy(liveness);
    ebb_program_destroy(program);
    ebb_machine_destroy(machine);
}

static void the_text_form_has_it(void **state) {
    (void)state;
    ebb_program *program = load(true), *plain = load(false), *again = NULL;
    size_t n = 0;
    assert_int_equal(ebb_program_save(program, test_path), EBB_OK);
    assert_int_equal(ebb_program_load(NULL, test_path, &again), EBB_OK);
    const ebb_choice *choices = ebb_program_choices(again, &n);
    for (size_t c = 0; c < n; c++) { assert_int_equal(choices[c].copies_in, c == 3); }
    assert_true(ebb_program_fingerprint(again) == ebb_program_fingerprint(program));
    assert_true(ebb_program_fingerprint(plain) != ebb_program_fingerprint(program));
    ebb_program_destroy(again);
    ebb_program_destroy(plain);
    ebb_program_destroy(program);
}

/* Measured or not, a copy takes longer on slower links, and has no time where there is no link. */
static void its_time_is_that_of_a_copy(void **state) {
    (void)state;
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    const ebb_link link = {EBB_DEVICE, EBB_HOST, {1e9, 0, 1}, {1e9, 0, 2}, EBB_LINK_SHARES_ONE};
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    const ebb_machine slower = ebb__machine_slow_links(machine, 1.5), endless = ebb__machine_slow_links(machine, 1e300);
    const ebb_choice plain = {.copies_in = true}, told = {.copies_in = true, .time_ns = 3000};
    assert_int_equal(ebb__machine_feed_time_ns(machine, EBB_HOST, &plain, 1000), 1000);
    assert_int_equal(ebb__machine_feed_time_ns(machine, EBB_HOST, &told, 1000), 3000);
    assert_int_equal(ebb__machine_feed_time_ns(&slower, EBB_HOST, &plain, 1000), 1500);
    assert_int_equal(ebb__machine_feed_time_ns(&slower, EBB_HOST, &told, 1000), 4500);
    assert_true(ebb__machine_feed_time_ns(&endless, EBB_HOST, &told, 1000) == EBB_MACHINE_MAX_NS);
    assert_true(ebb__machine_feed_time_ns(machine, EBB_MAX_TIERS, &told, 1000) == UINT64_MAX);
    ebb_machine_destroy(machine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_hide_behind_steps),
        cmocka_unit_test(bytes_are_others_until_the_feed),
        cmocka_unit_test(the_text_form_has_it),
        cmocka_unit_test(its_time_is_that_of_a_copy),
    };
    return cmocka_run_group_tests(tests, setup_path, teardown_path);
}
