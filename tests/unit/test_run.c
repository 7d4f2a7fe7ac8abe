/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run refuses to be made from; nothing is handed out then. And a batch that it refuses, which changes nothing.
 * And how long its engines waited for each other.
 */
#include "backend/host_stream.h"
#include "ebb/trace.h"
#include "plan/plan_priv.h"
#include "run_support.h"

#include <math.h>
#include <time.h>
#include <unistd.h>

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

static uint64_t state_of(ebb_run *run, const ebb_graph *graph) {
    static float plain[1 << 14];
    uint64_t h = EBB_HASH_INIT;
    for (ebb_value v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!ebb__value_is_persistent(info->kind)) { continue; }
        const size_t n = (size_t)ebb__shape_elements(&info->shape);
        assert_true(n <= sizeof plain / sizeof plain[0]);
        assert_int_equal(ebb_run_get_value(run, v, plain), EBB_OK);
        h = ebb__hash(h, plain, n * sizeof *plain);
    }
    return h;
}

/* It is refused before the first step: nothing has changed, and the next batch is trained as if it had not been. */
static void a_bad_label_leaves_a_run_usable(void **state) {
    (void)state;
    static const int32_t bad[] = {-1, RUN_CLASSES, INT32_MIN, INT32_MAX};
    char trace[80];
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL), *other = run_fixture_start(&f, NULL);
    (void)snprintf(trace, sizeof trace, "%s.trace", test_path);
    assert_int_equal(ebb_run_record_next(run, trace, 1), EBB_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const uint64_t before = state_of(run, f.graph);
        run_labels(run)[2] = bad[i];
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.1f), EBB_E_ARGUMENT);
        expect_message("of image 2 is not in [0, 5)");
        assert_true(state_of(run, f.graph) == before);
        run_labels(run)[2] = 2;
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.1f), EBB_OK);
        assert_int_equal(ebb_run_iteration(other, i, i + 1, 0.1f), EBB_OK);
        assert_true(run_loss(run) == run_loss(other));
        assert_true(state_of(run, f.graph) == state_of(other, f.graph));
    }
    const uint64_t before = state_of(run, f.graph);
    assert_int_equal(ebb_run_iteration(run, 9, 0, 0.1f), EBB_E_ARGUMENT);
    expect_message("updates count from 1");
    assert_int_equal(ebb_run_iteration(run, 9, 10, NAN), EBB_E_ARGUMENT);
    assert_int_equal(ebb_run_iteration(run, 9, 10, -0.1f), EBB_E_ARGUMENT);
    expect_message("update 10: the learning rate");
    assert_true(state_of(run, f.graph) == before);
    assert_int_equal(ebb_run_record_status(run), EBB_OK);
    assert_int_equal(unlink(trace), 0);
    ebb_run_destroy(run);
    ebb_run_destroy(other);
    run_fixture_fini(&f);
}

/* Neither is a batch taken that could not be trained with, nor by a run that takes none. */
static void feeds_are_refused_with_words(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    assert_int_equal(ebb_run_feed(run), EBB_E_ARGUMENT);
    expect_message("the network is not fed early");
    ebb_run_destroy(run);
    ebb_plan_destroy(f.plan);
    ebb_lowered_destroy(f.lowered);
    ebb_machine *machine = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = "liveness";
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb_lower_fed_early(f.graph, f.device, &f.lowered), EBB_OK);
    assert_int_equal(ebb_plan_make(ebb_lowered_program(f.lowered), machine, &options, &f.plan, NULL), EBB_OK);
    run = run_fixture_start(&f, NULL);
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_E_ARGUMENT);
    expect_message("has no batch yet");
    run_labels(run)[2] = RUN_CLASSES;
    assert_int_equal(ebb_run_feed(run), EBB_E_ARGUMENT);
    expect_message("of image 2 is not in [0, 5)");
    run_labels(run)[2] = 2;
    assert_int_equal(ebb_run_park(run), EBB_OK);
    assert_int_equal(ebb_run_feed(run), EBB_E_ARGUMENT);
    expect_message("left its arena to another");
    assert_int_equal(ebb_run_unpark(run), EBB_OK);
    assert_int_equal(ebb_run_feed(run), EBB_OK);
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_OK); /* after the last batch the other memory will do */
    run->failed = true;
    assert_int_equal(ebb_run_feed(run), EBB_E_DEVICE);
    expect_message("failed halfway");
    ebb_run_destroy(run);
    ebb_machine_destroy(machine);
    run_fixture_fini(&f);
}

static void the_arena_of_another_device_is_refused(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_device *other = NULL;
    assert_int_equal(ebb_device_open("ref", NULL, &other), EBB_OK);
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    assert_int_equal(ebb_arena_create(other, 1 << 20, &options.arena), EBB_OK);
    refuse(&f, &options, EBB_E_ARGUMENT, "the arena is another device's");
    ebb_arena_destroy(options.arena);
    ebb_device_close(other);
    run_fixture_fini(&f);
}

/* ---- stalls -------------------------------------------------------------------------------------- */

#define SLOW_NS 1000000

static ebb_status sleep_a_little(void *ctx) {
    (void)ctx;
    nanosleep(&(struct timespec){.tv_nsec = SLOW_NS}, NULL);
    return EBB_OK;
}

static ebb_status copy_slowly(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side) {
    assert_int_equal(ebb__host_call(stream, sleep_a_little, NULL), EBB_OK);
    return ebb__host_copy(stream, direction, device_side, host_side);
}

/* A recording says what was measured: ns in its notes, whose events alone do not tell. */
static void expect_noted_stalls(ebb_run *run) {
    char path[] = "/tmp/ebb_test_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(ebb_run_record_next(run, path, 2), EBB_OK);
    uint64_t sum_ns = 0;
    for (uint64_t i = 3; i < 5; i++) {
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.1f), EBB_OK);
        sum_ns += ebb_run_get_stats(run).stall_ns[EBB_COMPUTE];
    }
    assert_int_equal(ebb_run_record_status(run), EBB_OK);
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    assert_int_equal(ebb_trace_reader_open(NULL, path, &reader), EBB_OK);
    for (bool done = false; !done;) { assert_int_equal(ebb_trace_reader_next(reader, &event, &done), EBB_OK); }
    const char *note = ebb_trace_reader_note(reader, "stall.0");
    assert_non_null(note);
    assert_true(strtoull(note, NULL, 10) == sum_ns / 2 && sum_ns / 2 >= SLOW_NS / 2);
    ebb_trace_reader_close(reader);
    assert_int_equal(remove(path), 0);
}

/* At the least budget there is no room to fetch anything early, so computing waits for copies. */
static void computing_waits_for_slow_copies(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    const ebb_backend_ops *ops = f.device->ops;
    ebb_backend_ops slow = *ops;
    slow.copy = copy_slowly;
    ebb_run *run = run_fixture_start(&f, NULL);
    assert_true(ebb_run_get_stats(run).stall_ns[EBB_COMPUTE] == UINT64_MAX); /* there was no iteration yet */
    f.device->ops = &slow;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.1f), EBB_OK);
        const ebb_run_stats stats = ebb_run_get_stats(run);
        assert_in_range(stats.stall_ns[EBB_COMPUTE], SLOW_NS / 2, stats.iteration_ns);
        assert_int_equal(stats.stall_ns[EBB_MAX_ENGINES - 1], 0); /* there is no such engine */
    }
    expect_noted_stalls(run);
    f.device->ops = ops;
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

static const ebb_stream *counted;
static uint64_t count_ns;

static uint64_t count_of_one(const ebb_stream *stream) {
    return stream == counted ? count_ns : 0;
}

static void stalls_are_of_one_iteration(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    const ebb_backend_ops *ops = f.device->ops;
    ebb_backend_ops counts = *ops, blind = *ops;
    counts.stream_waited_ns = count_of_one;
    blind.stream_waited_ns = NULL;
    ebb_run *run = run_fixture_start(&f, NULL);
    f.device->ops = &blind;
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_OK);
    ebb_run_stats stats = ebb_run_get_stats(run);
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { assert_true(stats.stall_ns[e] == UINT64_MAX); }
    f.device->ops = &counts;
    for (uint32_t e = 0; e < run->n_engines; e++) {
        if (run->stream[e] == NULL) { continue; }
        counted = run->stream[e];
        count_ns = 0;
        for (uint64_t i = 1; i < 4; i++) {
            count_ns += 10 * i; /* also what ended between two iterations */
            assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.1f), EBB_OK);
            stats = ebb_run_get_stats(run);
            for (uint32_t k = 0; k < EBB_MAX_ENGINES; k++) { assert_int_equal(stats.stall_ns[k], k == e ? 10 * i : 0); }
        }
        count_ns = run->waited_ns[e] = 0;
    }
    f.device->ops = ops;
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(a_plan_of_another_program_is_refused),
        cmocka_unit_test_setup_teardown(a_bad_label_leaves_a_run_usable, setup_path, teardown_path),
        cmocka_unit_test(feeds_are_refused_with_words),
        cmocka_unit_test(the_arena_of_another_device_is_refused),
        cmocka_unit_test(computing_waits_for_slow_copies),
        cmocka_unit_test(stalls_are_of_one_iteration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
