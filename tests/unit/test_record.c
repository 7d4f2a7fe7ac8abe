/* SPDX-License-Identifier: Apache-2.0
 *
 * A recorded iteration: its trace is whole and agrees with the plan; and whatever loses the trace (a full disk, a
 * folder that is not there, each allocation in turn) loses nothing else.
 */
#include "ebb/trace.h"
#include "run_support.h"

#include "ebb/trace.h"

#include <fcntl.h>
#include <unistd.h>

static float iterate(ebb_run *run, uint64_t i) {
    if (ebb_run_iteration(run, i, i + 1, 0.1f) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return run_loss(run);
}

/* The whole trace: how many events of each kind. */
static ebb_trace_info read_trace(const char *path, uint64_t n_of[EBB_TRACE_N_KINDS]) {
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    memset(n_of, 0, EBB_TRACE_N_KINDS * sizeof *n_of);
    assert_int_equal(ebb_trace_reader_open(NULL, path, &r), EBB_OK);
    for (bool done = false; !done;) {
        if (ebb_trace_reader_next(r, &event, &done) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
        n_of[event.kind] += !done;
        if (done || event.kind != EBB_TRACE_ALLOC) { continue; }
        const bool is_scratch = strcmp(ebb_trace_reader_string(r, event.name), "scratch") == 0;
        assert_true(is_scratch == (event.role == EBB_ROLE_WORKSPACE));
    }
    ebb_trace_info info = ebb_trace_reader_info(r);
    ebb_trace_reader_close(r);
    return info;
}

static void make_path(char path[64]) {
    (void)snprintf(path, 64, "/tmp/ebb-record-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
}

static void a_trace_agrees_with_its_plan(void **state) {
    (void)state;
    run_fixture f;
    char path[64];
    uint64_t n_of[EBB_TRACE_N_KINDS];
    make_path(path);
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    (void)iterate(run, 0);
    assert_int_equal(ebb_run_record_next(run, path, 1), EBB_OK);
    (void)iterate(run, 1);
    assert_int_equal(ebb_run_record_status(run), EBB_OK);
    ebb_trace_info info = read_trace(path, n_of);
    size_t n_actions = 0, n_by[EBB_ACT_DROP + 1] = {0};
    const ebb_action *actions = ebb_plan_actions(f.plan, &n_actions);
    for (size_t a = 0; a < n_actions; a++) { n_by[actions[a].kind]++; }
    assert_true(info.complete);
    assert_true(n_by[EBB_ACT_OUT] + n_by[EBB_ACT_AGAIN] > 0);
    assert_int_equal(n_of[EBB_TRACE_STEP_BEGIN], n_by[EBB_ACT_RUN] + n_by[EBB_ACT_AGAIN]);
    assert_int_equal(n_of[EBB_TRACE_STEP_END], n_of[EBB_TRACE_STEP_BEGIN]);
    assert_int_equal(n_of[EBB_TRACE_COPY_BEGIN], n_by[EBB_ACT_OUT] + n_by[EBB_ACT_IN]);
    assert_int_equal(n_of[EBB_TRACE_COPY_END], n_of[EBB_TRACE_COPY_BEGIN]);
    assert_int_equal(n_of[EBB_TRACE_MARK], 2);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
    assert_int_equal(unlink(path), 0);
}

/* The marks of a trace's iterations by their numbers, and that blocks that were there before are told once. */
static void check_iterations(const char *path, uint64_t first, uint64_t n) {
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    uint64_t n_begun = 0, n_ended = 0;
    assert_int_equal(ebb_trace_reader_open(NULL, path, &r), EBB_OK);
    for (bool done = false; !done;) {
        assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
        if (done) { break; }
        if (event.kind == EBB_TRACE_ALLOC) { assert_int_equal(event.before, n_begun == 0); }
        if (event.kind != EBB_TRACE_MARK) { continue; }
        uint64_t *count = event.mark == EBB_TRACE_ITERATION_BEGIN ? &n_begun : &n_ended;
        assert_int_equal(event.number, first + (*count)++);
        assert_true(n_begun == n_ended + (event.mark == EBB_TRACE_ITERATION_BEGIN));
    }
    assert_int_equal(n_begun, n);
    assert_int_equal(n_ended, n);
    ebb_trace_reader_close(r);
}

static void iterations_go_on_in_one_trace(void **state) {
    (void)state;
    run_fixture f;
    char path[64];
    uint64_t n_of[2][EBB_TRACE_N_KINDS];
    ebb_trace_info info[2];
    make_path(path);
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    for (uint64_t i = 0; i < 2; i++) {
        const uint64_t n = i == 0 ? 1 : 3;
        assert_int_equal(ebb_run_record_next(run, path, n), EBB_OK);
        for (uint64_t k = 0; k < n; k++) { (void)iterate(run, i + k); }
        assert_int_equal(ebb_run_record_status(run), EBB_OK);
        check_iterations(path, i, n);
        info[i] = read_trace(path, n_of[i]);
        assert_true(info[i].complete);
    }
    for (int k = 0; k < EBB_TRACE_N_KINDS; k++) {
        if (k != EBB_TRACE_ALLOC) { assert_int_equal(n_of[1][k], 3 * n_of[0][k]); }
    }
    assert_int_equal(n_of[0][EBB_TRACE_ALLOC] - n_of[0][EBB_TRACE_FREE], info[0].n_live_blocks);
    assert_true(info[0].n_live_blocks > 0 && info[0].n_live_blocks == info[1].n_live_blocks);
    assert_int_equal(info[0].live_bytes, info[1].live_bytes);
    assert_int_equal(ebb_run_record_next(run, path, 0), EBB_E_ARGUMENT);
    assert_int_equal(ebb_run_record_next(run, path, 4), EBB_OK);
    (void)iterate(run, 4);
    (void)iterate(run, 5);
    ebb_run_destroy(run); /* two of four */
    check_iterations(path, 4, 2);
    run_fixture_fini(&f);
    assert_int_equal(unlink(path), 0);
}

static void a_lost_recording_loses_nothing_else(void **state) {
    (void)state;
    static const char *const bad[] = {"/dev/full", "/tmp/no/such/folder/trace", "/tmp"};
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL), *undisturbed = run_fixture_start(&f, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(ebb_run_record_next(run, bad[i], 1), EBB_OK);
        assert_int_equal(ebb_run_record_status(run), EBB_OK); /* that of the one before is forgotten */
        assert_true(iterate(run, i) == iterate(undisturbed, i));
        assert_int_equal(ebb_run_record_status(run), EBB_E_IO);
        assert_non_null(strstr(ebb_last_error(), bad[i]));
    }
    assert_true(iterate(run, 3) == iterate(undisturbed, 3));
    assert_int_equal(ebb_run_record_status(run), EBB_E_IO); /* until it is asked for again */
    ebb_run_destroy(undisturbed);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

/* The first, the second ... allocation of the recording fails; the last time none does. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    run_fixture f;
    failing_mem mem;
    char path[64];
    make_path(path);
    run_fixture_init(&f, &failing_mem_init(&mem, 0)->hooks); /* events are the device's */
    ebb_run *run = run_fixture_start(&f, &mem.hooks);
    size_t n_lost = 0;
    for (ebb_status recorded = EBB_E_NO_MEMORY; recorded != EBB_OK; n_lost++) {
        assert_int_equal(ebb_run_record_next(run, path, 1), EBB_OK);
        const size_t n_live = mem.n_live;
        mem.n_calls = 0;
        mem.fail_at = n_lost + 1;
        (void)iterate(run, n_lost);
        mem.fail_at = 0;
        recorded = ebb_run_record_status(run);
        assert_true(recorded == EBB_OK || recorded == EBB_E_NO_MEMORY);
        assert_true(mem.n_live <= n_live); /* the path is gone; the words may have come */
    }
    assert_true(n_lost > 10);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
    assert_int_equal(mem.n_live, 0);
    assert_int_equal(unlink(path), 0);
}

static ebb_status break_down(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    (void)stream;
    (void)kernel;
    (void)bound;
    return ebb_fail(EBB_E_UNSUPPORTED, "the device broke down");
}

static void a_failed_iteration_is_no_recording(void **state) {
    (void)state;
    run_fixture f;
    run_fixture_init(&f, NULL);
    ebb_run *run = run_fixture_start(&f, NULL);
    const ebb_backend_ops *whole = f.device->ops;
    ebb_backend_ops broken = *whole;
    broken.run = break_down;
    f.device->ops = &broken;
    assert_int_equal(ebb_run_record_next(run, "/tmp/no/such/folder/trace", 1), EBB_OK);
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_E_UNSUPPORTED);
    expect_message("broke down");
    assert_int_equal(ebb_run_record_status(run), EBB_E_UNSUPPORTED);
    expect_message("broke down");
    f.device->ops = whole;
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_E_DEVICE);
    ebb_run_destroy(run);
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_agrees_with_its_plan),        cmocka_unit_test(iterations_go_on_in_one_trace),
        cmocka_unit_test(a_lost_recording_loses_nothing_else), cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_failed_iteration_is_no_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
