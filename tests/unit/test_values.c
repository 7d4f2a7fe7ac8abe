/* SPDX-License-Identifier: Apache-2.0
 *
 * Values between iterations: those that persist and those that are kept are there, and no others, whatever else the
 * plan leaves in the arena. Parking: while another run has the arena, and after it has come back, they are what they
 * were. An arena that was used before starts a run with zeros all the same.
 */
#include "backend/lower.h"
#include "run/run.h"
#include "support.h"

#include "run_ports.h"

#define BATCH 2
#define CLASSES 3
#define MAX_ELEMENTS 4096

typedef struct fixture {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_plan *plan;
    ebb_arena *arena;
    ebb_run *run;
} fixture;

static void set_up(fixture *f, const char *backend, const char *policy) {
    assert_int_equal(ebb_device_open(backend, NULL, &f->device), EBB_OK);
    assert_int_equal(ebb_graph_create(NULL, &f->graph), EBB_OK);
    ebb_window three = ebb_window_square(3, 1, 1);
    ebb_value labels = ebb_graph_labels(f->graph, BATCH, CLASSES);
    ebb_value x = ebb_graph_conv(f->graph, "conv", ebb_graph_images(f->graph, BATCH, 1, 6, 6), 4, &three, true);
    x = ebb_graph_lrn(f->graph, "lrn", ebb_graph_relu(f->graph, NULL, x), 3, 1e-4f, 0.75f, 1.0f);
    x = ebb_graph_linear(f->graph, "fc", ebb_graph_flatten(f->graph, NULL, x), CLASSES, true);
    (void)ebb_graph_softmax_loss(f->graph, x, labels);
    assert_int_equal(ebb_graph_train(f->graph, NULL, true), EBB_OK); /* gradients are kept */
    assert_int_equal(ebb_lower(f->graph, f->device, &f->lowered), EBB_OK);
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    assert_int_equal(ebb_plan_make(ebb_lowered_program(f->lowered), machine, &options, &f->plan, NULL), EBB_OK);
    ebb_machine_destroy(machine);
    ebb_run_options run_options = EBB_RUN_OPTIONS_INIT;
    assert_int_equal(ebb_arena_create(f->device, ebb_plan_get_summary(f->plan).peak_bytes, &f->arena), EBB_OK);
    run_options.arena = f->arena;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, &run_options, &f->run), EBB_OK);
    assert_int_equal(ebb_run_init_values(f->run, 1), EBB_OK);
    for (int i = 0; i < BATCH * 36; i++) { run_images(f->run)[i] = (float)(i % 5) - 2.0f; }
    assert_int_equal(ebb_run_iteration(f->run, 0, 1, 0.1f), EBB_OK);
}

static void tear_down(fixture *f) {
    ebb_run_destroy(f->run);
    ebb_arena_destroy(f->arena);
    ebb_plan_destroy(f->plan);
    ebb_lowered_destroy(f->lowered);
    ebb_graph_destroy(f->graph);
    ebb_device_close(f->device);
}

/* Of all that persists or is kept; how many of each. */
static uint64_t hash_values(const fixture *f, size_t *n_persistent, size_t *n_kept) {
    static float plain[MAX_ELEMENTS];
    uint64_t h = EBB_HASH_INIT;
    *n_persistent = *n_kept = 0;
    for (ebb_value v = 0; v < f->graph->values.n; v++) {
        const ebb_value_info *info = &f->graph->values.data[v];
        bool persistent = ebb__value_is_persistent(info->kind);
        if (!persistent && !info->kept) { continue; }
        *(persistent ? n_persistent : n_kept) += 1;
        size_t n = (size_t)ebb__shape_elements(&info->shape);
        assert_true(n <= MAX_ELEMENTS);
        assert_int_equal(ebb_run_get_value(f->run, v, plain), EBB_OK);
        h = ebb__hash(h, plain, n * sizeof *plain);
    }
    return h;
}

static void parking_keeps_all_there_is(void **state) {
    (void)state;
    fixture f;
    size_t n_persistent = 0, n_kept = 0;
    set_up(&f, "ref", "budget");
    const uint64_t want = hash_values(&f, &n_persistent, &n_kept);
    assert_int_equal(n_persistent, 4);
    assert_int_equal(n_kept, 4);
    assert_int_equal(ebb_run_park(f.run), EBB_OK);
    assert_int_equal(ebb_run_park(f.run), EBB_E_ARGUMENT);
    ebb_buf all = {.arena = f.arena->memory, .size_bytes = ebb_arena_bytes(f.arena)};
    memset(f.device->ops->host_address(all), 0xee, (size_t)all.size_bytes); /* what another run would do */
    assert_true(hash_values(&f, &n_persistent, &n_kept) == want);
    assert_int_equal(ebb_run_unpark(f.run), EBB_OK);
    assert_int_equal(ebb_run_unpark(f.run), EBB_E_ARGUMENT);
    assert_true(hash_values(&f, &n_persistent, &n_kept) == want);
    tear_down(&f);
}

static ebb_run *start_again(const fixture *f, ebb_status want) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.arena = f->arena;
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, &options, &run), want);
    return run;
}

static void a_used_arena_starts_with_zeros(const char *policy) {
    static float plain[MAX_ELEMENTS];
    fixture f;
    size_t n_persistent = 0;
    set_up(&f, "ref", policy);
    ebb_run_destroy(f.run);
    ebb_buf all = {.arena = f.arena->memory, .size_bytes = ebb_arena_bytes(f.arena)};
    memset(f.device->ops->host_address(all), 0xee, (size_t)all.size_bytes); /* the rubbish of a run before */
    f.run = start_again(&f, EBB_OK);
    for (ebb_value v = 0; v < f.graph->values.n; v++) {
        const ebb_value_info *info = &f.graph->values.data[v];
        if (!ebb__value_is_persistent(info->kind)) { continue; }
        assert_int_equal(ebb_run_get_value(f.run, v, plain), EBB_OK);
        const int64_t n = ebb__shape_elements(&info->shape);
        for (int64_t i = 0; i < n; i++) { assert_true(plain[i] == 0.0f); }
        n_persistent++;
    }
    assert_int_equal(n_persistent, 4);
    tear_down(&f);
}

static void a_run_starts_with_zeros_in_a_used_arena(void **state) {
    (void)state;
    a_used_arena_starts_with_zeros("none");
    a_used_arena_starts_with_zeros("budget");
}

/* A second run would clear the first one's values. */
static void an_arena_is_one_runs_at_a_time(void **state) {
    (void)state;
    fixture f;
    set_up(&f, "ref", "none");
    assert_null(start_again(&f, EBB_E_ARGUMENT));
    expect_message("the arena is in use");
    assert_int_equal(ebb_run_park(f.run), EBB_OK);
    ebb_run *other = start_again(&f, EBB_OK);
    assert_int_equal(ebb_run_unpark(f.run), EBB_E_ARGUMENT);
    expect_message("the arena is in use");
    ebb_run_destroy(other);
    assert_int_equal(ebb_run_unpark(f.run), EBB_OK);
    assert_int_equal(ebb_run_iteration(f.run, 1, 2, 0.1f), EBB_OK);
    tear_down(&f);
}

/* The policy none drops nothing, so the last iteration's values are all in the arena. Some are larger there than their
 * shape says: workspaces are the backend's. */
static void only_lasting_values_are_there(const char *backend) {
    static float plain[MAX_ELEMENTS];
    fixture f;
    size_t n_refused = 0;
    set_up(&f, backend, "none");
    for (ebb_value v = 0; v < f.graph->values.n; v++) {
        const ebb_value_info *info = &f.graph->values.data[v];
        if (ebb__value_is_persistent(info->kind) || info->kept || f.lowered->values[v].tensor == UINT32_MAX) {
            continue;
        }
        memset(plain, 0x5a, sizeof plain);
        assert_int_equal(ebb_run_get_value(f.run, v, plain), EBB_E_ARGUMENT);
        expect_message("is not there between iterations");
        for (size_t i = 0; i < sizeof plain; i++) { assert_int_equal(((unsigned char *)plain)[i], 0x5a); }
        assert_int_equal(ebb_run_set_value(f.run, v, plain), EBB_E_ARGUMENT);
        n_refused++;
    }
    assert_true(n_refused >= 8);
    tear_down(&f);
}

static void what_a_plan_leaves_behind_is_refused(void **state) {
    (void)state;
    only_lasting_values_are_there("ref");
}

static void what_a_plan_leaves_behind_is_refused_on_cpu(void **state) {
    (void)state;
    ebb_device *device = NULL;
    if (ebb_device_open("cpu", NULL, &device) != EBB_OK) { skip(); }
    ebb_device_close(device);
    only_lasting_values_are_there("cpu");
}

/* It takes of the host no more than what persists and what is kept, whatever else lies in the arena. */
static void parking_takes_what_lasts_alone(void **state) {
    (void)state;
    fixture f;
    uint64_t lasting_bytes = 0;
    set_up(&f, "ref", "none");
    size_t n_tensors = 0;
    const ebb_tensor *tensors = ebb_program_tensors(ebb_lowered_program(f.lowered), &n_tensors);
    for (size_t t = 0; t < n_tensors; t++) {
        lasting_bytes += tensors[t].persistent || tensors[t].kept ? tensors[t].size_bytes : 0;
    }
    assert_true(lasting_bytes < ebb_arena_bytes(f.arena));
    assert_int_equal(ebb_run_parked_bytes(f.run), lasting_bytes);
    tear_down(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parking_keeps_all_there_is),
        cmocka_unit_test(parking_takes_what_lasts_alone),
        cmocka_unit_test(a_run_starts_with_zeros_in_a_used_arena),
        cmocka_unit_test(an_arena_is_one_runs_at_a_time),
        cmocka_unit_test(what_a_plan_leaves_behind_is_refused),
        cmocka_unit_test(what_a_plan_leaves_behind_is_refused_on_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
