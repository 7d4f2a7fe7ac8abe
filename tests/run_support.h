/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of runs share: a small network on ref at the least budget, so that its plan copies and computes again.
 */
#ifndef EBB_TESTS_RUN_SUPPORT_H
#define EBB_TESTS_RUN_SUPPORT_H

#include "support.h"

#include "backend/lower.h"
#include "plan/plan_priv.h"
#include "run/run.h"
#include "run_ports.h"

#define RUN_BATCH 4
#define RUN_CLASSES 5

typedef struct run_fixture {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_plan *plan;
} run_fixture;

static inline ebb_graph *run_fixture_graph(void) {
    ebb_graph *g = NULL;
    assert_int_equal(ebb_graph_create(NULL, &g), EBB_OK);
    ebb_value x = ebb_graph_images(g, RUN_BATCH, 1, 8, 8), labels = ebb_graph_labels(g, RUN_BATCH, RUN_CLASSES);
    for (int i = 0; i < 4; i++) {
        ebb_window three = ebb_window_square(3, 1, 1);
        x = ebb_graph_relu(g, NULL, ebb_graph_conv(g, NULL, x, 8, &three, true));
    }
    x = ebb_graph_linear(g, "fc", ebb_graph_flatten(g, NULL, x), RUN_CLASSES, true);
    (void)ebb_graph_softmax_loss(g, x, labels);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    assert_int_equal(ebb_graph_train(g, &optimizer, false), EBB_OK);
    return g;
}

/* At the least budget, so that there are copies and recomputed steps to record. */
static inline ebb_plan *run_fixture_make_plan(const ebb_program *program) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.effort = 0;
    options.budget_bytes = 1;
    ebb_no_fit no_fit = {0};
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_E_NO_FIT);
    options.budget_bytes = no_fit.least_budget_bytes;
    assert_int_equal(ebb_plan_make(program, machine, &options, &plan, &no_fit), EBB_OK);
    ebb_machine_destroy(machine);
    return plan;
}

/* The planner answers the same each time, and a sanitizer makes it take seconds: it is asked once, and its answer kept
 * as the text of a plan's file. */
static inline ebb_plan *run_fixture_plan(const ebb_program *program) {
    static char text[1 << 16];
    static size_t n_text;
    ebb_plan *plan = NULL;
    if (n_text == 0) {
        data_dir dir;
        data_dir_make(&dir);
        plan = run_fixture_make_plan(program);
        assert_int_equal(ebb_plan_save(plan, data_path(&dir, "plan")), EBB_OK);
        ebb_plan_destroy(plan);
        FILE *file = fopen(dir.file, "rb");
        assert_non_null(file);
        n_text = fread(text, 1, sizeof text, file);
        assert_in_range(n_text, 1, sizeof text - 1); /* all of it */
        assert_int_equal(fclose(file), 0);
        data_dir_remove(&dir);
    }
    if (ebb__plan_parse(NULL, "the fixture's plan", text, n_text, &plan) != EBB_OK) {
        fail_msg("%s", ebb_last_error());
    }
    return plan;
}

static inline void run_fixture_init(run_fixture *f, const ebb_mem *mem) {
    ebb_device_options device_options = EBB_DEVICE_OPTIONS_INIT;
    device_options.mem = mem;
    assert_int_equal(ebb_device_open("ref", &device_options, &f->device), EBB_OK);
    f->graph = run_fixture_graph();
    assert_int_equal(ebb_lower(f->graph, f->device, &f->lowered), EBB_OK);
    f->plan = run_fixture_plan(ebb_lowered_program(f->lowered));
    assert_int_equal(ebb_plan_check(ebb_lowered_program(f->lowered), f->plan), EBB_OK);
}

static inline void run_fixture_fini(run_fixture *f) {
    ebb_plan_destroy(f->plan);
    ebb_lowered_destroy(f->lowered);
    ebb_graph_destroy(f->graph);
    ebb_device_close(f->device);
}

static inline ebb_run *run_fixture_start(const run_fixture *f, const ebb_mem *mem) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.mem = mem;
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(f->lowered, f->plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_init_values(run, 3), EBB_OK);
    for (int i = 0; i < RUN_BATCH * 64; i++) { run_images(run)[i] = (float)(i % 7) - 3.0f; }
    for (int i = 0; i < RUN_BATCH; i++) { run_labels(run)[i] = i; }
    return run;
}

/* h, continued over all that persists or is kept. */
static inline uint64_t run_hash_values(const run_fixture *f, ebb_run *run, uint64_t h) {
    for (ebb_value v = 0; v < f->graph->values.n; v++) {
        const ebb_value_info *info = &f->graph->values.data[v];
        const bool is_there = ebb__value_is_persistent(info->kind) || info->kept;
        if (!is_there || info->opaque || f->lowered->values[v].tensor == UINT32_MAX) { continue; }
        const size_t bytes = (size_t)ebb__shape_elements(&info->shape) * sizeof(float);
        float *plain = malloc(bytes);
        assert_int_equal(ebb_run_get_value(run, v, plain), EBB_OK);
        h = ebb__hash(h, plain, bytes);
        free(plain);
    }
    return h;
}

#endif
