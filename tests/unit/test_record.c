/* SPDX-License-Identifier: Apache-2.0
 *
 * A recorded iteration: its trace is whole and agrees with the plan; and whatever loses the trace (a full disk, a
 * folder that is not there, each allocation in turn) loses nothing else.
 */
#include "backend/lower.h"
#include "run/run.h"
#include "support.h"

#include <fcntl.h>
#include <unistd.h>

#define BATCH 4
#define CLASSES 5

typedef struct fixture {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_plan *plan;
} fixture;

static ebb_graph *make_graph(void) {
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(NULL, &g), EBB_OK);
    ebb_value x = ebb_graph_images(g, BATCH, 1, 8, 8), labels = ebb_graph_labels(g, BATCH, CLASSES);
    for (int i = 0; i < 4; i++) {
        ebb_window three = ebb_window_square(3, 1, 1);
        x = ebb_graph_relu(g, NULL, ebb_graph_conv(g, NULL, x, 8, &three, true));
    }
    x = ebb_graph_linear(g, "fc", ebb_graph_flatten(g, NULL, x), CLASSES, true);
    (void)ebb_graph_softmax_loss(g, x, labels);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    assert_int_equal(ebb_graph_train(g, &optimizer, false), EBB_OK);
    return g;
}

/* At the least budget, so that there are copies and recomputed steps to record. */
static void set_up(fixture *f, const ebb_mem *mem) {
    ebb_device_options device_options = EBB_DEVICE_OPTIONS_INIT;
    device_options.mem = mem;
    assert_int_equal(ebb_device_open("ref", &device_options, &f->device), EBB_OK);
    f->graph = make_graph();
    assert_int_equal(ebb_lower(f->graph, f->device, &f->lowered), EBB_OK);
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.budget_bytes = 1;
    ebb_no_fit no_fit = {0};
    const ebb_program *program = ebb_lowered_program(f->lowered);
    assert_int_equal(ebb_plan_make(program, machine, &options, &f->plan, &no_fit), EBB_E_NO_FIT);
    options.budget_bytes = no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(program, machine, &options, &f->plan, &no_fit), EBB_OK);
    ebb_machine_destroy(machine);
}

static void tear_down(fixture *f) {
    ebb_plan_destroy(f->plan);
    ebb_lowered_destroy(f->lowered);
    ebb_graph_destroy(f->graph);
    ebb_device_close(f->device);
}

static ebb_run *make_run(const fixture *f, const ebb_mem *mem) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.mem = mem;
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_init_values(run, 3), EBB_OK);
    for (int i = 0; i < BATCH * 64; i++) { ebb_run_images(run)[i] = (float)(i % 7) - 3.0f; }
    for (int i = 0; i < BATCH; i++) { ebb_run_labels(run)[i] = i; }
    return run;
}

static float iterate(ebb_run *run, uint64_t i) {
    if (ebb_run_iteration(run, i, i + 1, 0.1f) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return ebb_run_loss(run);
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
    fixture f;
    char path[64];
    uint64_t n_of[EBB_TRACE_N_KINDS];
    make_path(path);
    set_up(&f, NULL);
    ebb_run *run = make_run(&f, NULL);
    (void)iterate(run, 0);
    assert_int_equal(ebb_run_record_next(run, path), EBB_OK);
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
    tear_down(&f);
    assert_int_equal(unlink(path), 0);
}

static void a_lost_recording_loses_nothing_else(void **state) {
    (void)state;
    static const char *const bad[] = {"/dev/full", "/tmp/no/such/folder/trace", "/tmp"};
    fixture f;
    set_up(&f, NULL);
    ebb_run *run = make_run(&f, NULL), *undisturbed = make_run(&f, NULL);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(ebb_run_record_next(run, bad[i]), EBB_OK);
        assert_int_equal(ebb_run_record_status(run), EBB_OK); /* that of the one before is forgotten */
        assert_true(iterate(run, i) == iterate(undisturbed, i));
        assert_int_equal(ebb_run_record_status(run), EBB_E_IO);
        assert_non_null(strstr(ebb_last_error(), bad[i]));
    }
    assert_true(iterate(run, 3) == iterate(undisturbed, 3));
    assert_int_equal(ebb_run_record_status(run), EBB_E_IO); /* until it is asked for again */
    ebb_run_destroy(undisturbed);
    ebb_run_destroy(run);
    tear_down(&f);
}

/* The first, the second ... allocation of the recording fails; the last time none does. */
static void any_allocation_may_fail(void **state) {
    (void)state;
    fixture f;
    failing_mem mem;
    char path[64];
    make_path(path);
    set_up(&f, &failing_mem_init(&mem, 0)->hooks); /* events are the device's */
    ebb_run *run = make_run(&f, &mem.hooks);
    size_t n_lost = 0;
    for (ebb_status recorded = EBB_E_NO_MEMORY; recorded != EBB_OK; n_lost++) {
        assert_int_equal(ebb_run_record_next(run, path), EBB_OK);
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
    tear_down(&f);
    assert_int_equal(mem.n_live, 0);
    assert_int_equal(unlink(path), 0);
}

static void a_failed_iteration_is_no_recording(void **state) {
    (void)state;
    fixture f;
    set_up(&f, NULL);
    ebb_run *run = make_run(&f, NULL);
    ebb_run_labels(run)[1] = CLASSES;
    assert_int_equal(ebb_run_record_next(run, "/tmp/no/such/folder/trace"), EBB_OK);
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "label"));
    assert_int_equal(ebb_run_iteration(run, 0, 1, 0.1f), EBB_E_DEVICE);
    ebb_run_destroy(run);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_agrees_with_its_plan),
        cmocka_unit_test(a_lost_recording_loses_nothing_else),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_failed_iteration_is_no_recording),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
