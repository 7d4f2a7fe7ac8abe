/* SPDX-License-Identifier: Apache-2.0
 *
 * Parking: while another run has the arena, and after it has come back, a run's values are what they were, those
 * that persist and those that are kept to be read out.
 */
#include "backend/lower.h"
#include "run/run.h"
#include "support.h"

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

static void set_up(fixture *f) {
    assert_int_equal(ebb_device_open("ref", NULL, &f->device), EBB_OK);
    assert_int_equal(ebb_graph_create(NULL, &f->graph), EBB_OK);
    ebb_window three = ebb_window_square(3, 1, 1);
    ebb_value labels = ebb_graph_labels(f->graph, BATCH, CLASSES);
    ebb_value x = ebb_graph_conv(f->graph, "conv", ebb_graph_images(f->graph, BATCH, 1, 6, 6), 4, &three, true);
    x = ebb_graph_linear(f->graph, "fc", ebb_graph_flatten(f->graph, NULL, ebb_graph_relu(f->graph, NULL, x)), CLASSES,
                         true);
    (void)ebb_graph_softmax_loss(f->graph, x, labels);
    assert_int_equal(ebb_graph_train(f->graph, NULL, true), EBB_OK); /* gradients are kept */
    assert_int_equal(ebb_lower(f->graph, f->device, &f->lowered), EBB_OK);
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_plan_make(ebb_lowered_program(f->lowered), machine, &options, &f->plan, NULL), EBB_OK);
    ebb_machine_destroy(machine);
    ebb_run_options run_options = EBB_RUN_OPTIONS_INIT;
    assert_int_equal(ebb_arena_create(f->device, ebb_plan_get_summary(f->plan).peak_bytes, &f->arena), EBB_OK);
    run_options.arena = f->arena;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, &run_options, &f->run), EBB_OK);
    assert_int_equal(ebb_run_init_values(f->run, 1), EBB_OK);
    for (int i = 0; i < BATCH * 36; i++) { ebb_run_images(f->run)[i] = (float)(i % 5) - 2.0f; }
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
    set_up(&f);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parking_keeps_all_there_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
