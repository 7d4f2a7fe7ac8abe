/* SPDX-License-Identifier: Apache-2.0
 *
 * Paper accounting against what SuperNeurons (Wang et al., PPoPP 2018) printed and drew: AlexNet's peaks of
 * section 4.1, its curves of figure 10, the formulas of section 3, and the layers that a network of branches has.
 */
#include "paper_support.h"

#include "ebb/session.h"

/* Read from the drawing, so to 0.1 MiB. */
static const double liveness_curve[2 * N_LAYERS] = {
    221.5,  443.2,  664.7,  718.1,  860.5,  1002.8, 1145.3, 1178.3, 1227.7, 1277.2, 1326.8, 1376.2,
    1409.2, 1442.2, 1449.3, 1452.4, 1455.6, 1458.7, 1461.9, 1464.9, 1468.1, 1468.9, 1469.6, 1469.6,
    1471.9, 1471.2, 1468.1, 1464.9, 1461.9, 1458.7, 1459.5, 1489.3, 1475.3, 1458.8, 1425.8, 1376.2,
    1326.8, 1260.7, 1353.6, 1287.6, 1145.3, 913.9,  993.0,  886.2,  664.7,  339.5};

static void test_curves(void **state) {
    (void)state;
    ebb_program *program = lower("alexnet", 200);
    size_t n_tensors = 0, n_steps = 0;
    (void)ebb_program_tensors(program, &n_tensors);
    (void)ebb_program_steps(program, &n_steps);
    assert_int_equal(n_tensors, 36);
    assert_int_equal(n_steps, 2 * N_LAYERS);
    expect_curve(program, "liveness", liveness_curve, 1489.355);
    ebb_program_destroy(program);
}

/* ---- the formulas of section 3 ------------------------------------------------------------------ */

#define DISTANCE 3u /* how many steps before its use an offloaded tensor is back */

static bool touches(const ebb_program_view *view, size_t step, uint32_t tensor) {
    for (uint32_t k = 0; k < view->steps[step].n_accesses; k++) {
        if (view->accesses[view->steps[step].first_access + k].tensor == tensor) { return true; }
    }
    return false;
}

static bool is_touched(const ebb_program_view *view, size_t first, size_t last, uint32_t tensor) {
    bool is = false;
    for (size_t s = first; s < last && s < 2 * N_LAYERS; s++) { is = is || touches(view, s, tensor); }
    return is;
}

/* At backward step s: the forward tensors of this and earlier layers that are still needed, and what the step itself
 * touches. offloads: of checkpoints only those that are needed within the distance. */
static double formula(const ebb_program_view *view, size_t s, bool offloads) {
    double sum = 0;
    for (uint32_t t = 0; t < view->n_tensors; t++) {
        const bool is_checkpoint = (view->tensors[t].marks & EBB_MARK_CHECKPOINT) != 0;
        const bool is_forward = is_touched(view, 0, N_LAYERS, t);
        const size_t reach = offloads && is_checkpoint ? s + DISTANCE + 1 : 2 * N_LAYERS;
        const bool is_there = is_forward ? is_touched(view, s, reach, t) : touches(view, s, t);
        sum += is_there ? (double)view->tensors[t].size_bytes / MIB : 0;
    }
    return sum;
}

/* All tensors of a layer, the gradient in place once as dy and once as dx: l_i, whose greatest is l_peak. */
static double layer_bytes(const ebb_program_view *view, size_t s) {
    double sum = 0;
    for (uint32_t k = 0; k < view->steps[s].n_accesses; k++) {
        const ebb_access *access = &view->accesses[view->steps[s].first_access + k];
        sum += (access->mode == EBB_UPDATE ? 2 : 1) * (double)view->tensors[access->tensor].size_bytes / MIB;
    }
    return sum;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static void test_formulas(void **state) {
    (void)state;
    ebb_program *program = lower("alexnet", 200);
    const ebb_program_view view = ebb__plan_view(program);
    double all = 0, liveness = 0, offload = 0, l_peak = 0;
    for (size_t t = 0; t < view.n_tensors; t++) { all += (double)view.tensors[t].size_bytes / MIB; }
    for (size_t s = N_LAYERS; s < 2 * N_LAYERS; s++) {
        liveness = larger(liveness, formula(&view, s, false));
        offload = larger(offload, formula(&view, s, true));
        l_peak = larger(l_peak, layer_bytes(&view, s));
    }
    expect_near(all, 2189.437, 0.001, "formula", 1);
    expect_near(liveness, 1489.355, 0.001, "formula", 2);
    expect_near(offload, 1132.056, 0.001, "formula", 3);
    expect_near(l_peak, 886.230, 0.001, "formula", 4);
    ebb_plan *plan = make(program, "none");
    expect_near((double)ebb_plan_get_summary(plan).peak_bytes / MIB, all, 0.001, "none", 0);
    ebb_plan_destroy(plan);
    ebb_program_destroy(program);
}

/* ---- branches ----------------------------------------------------------------------------------- */

static size_t count(const ebb_program *program, const char *kind) {
    const ebb_program_view view = ebb__plan_view(program);
    size_t n = 0;
    for (size_t i = 0; i < view.n_steps; i++) { n += strcmp(view.steps[i].kind, kind) == 0; }
    return n;
}

static void test_branches(void **state) {
    (void)state;
    ebb_program *program = lower("resnet50", 2);
    assert_int_equal(count(program, "conv"), 53);
    assert_int_equal(count(program, "add"), 16);
    assert_int_equal(count(program, "fork"), 16);
    assert_int_equal(count(program, "fork_bwd"), 16);
    assert_int_equal(count(program, "conv_bwd"), 53);
    ebb_program_destroy(program);
    program = lower("inception4", 1);
    assert_true(count(program, "concat") > 0 && count(program, "concat") == count(program, "concat_bwd"));
    ebb_program_destroy(program);
    ebb_program_destroy(lower("densenet121", 1));
}

/* ---- sessions ----------------------------------------------------------------------------------- */

static void test_sessions(void **state) {
    (void)state;
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    ebb_session *session = NULL;
    options.net = "lenet";
    options.accounting = "paper";
    assert_int_equal(ebb_session_open(&options, &session), EBB_OK);
    const ebb_session_parts parts = ebb_session_get_parts(session);
    assert_non_null(parts.program);
    assert_true(parts.device == NULL && parts.graph == NULL && parts.lowered == NULL);
    ebb_session_close(session);
    options.backend = "ref";
    assert_int_equal(ebb_session_open(&options, &session), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "backend dry"));
    options.backend = "dry";
    options.accounting = "papers";
    assert_int_equal(ebb_session_open(&options, &session), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "papers"));
    options.net = NULL;
    options.accounting = "paper";
    assert_int_equal(ebb_session_open(&options, &session), EBB_E_ARGUMENT);
}

static void test_refusals(void **state) {
    (void)state;
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    ebb_graph *graph = NULL;
    ebb_program *program = NULL;
    options.inference = true;
    assert_int_equal(ebb_zoo_build("lenet", &options, &graph), EBB_OK);
    assert_int_equal(ebb_lower_paper(graph, &program), EBB_E_ARGUMENT);
    ebb_graph_destroy(graph);
}

static void test_no_memory(void **state) {
    (void)state;
    OOM_LOOP(mem, st, {
        ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
        ebb_graph *graph = NULL;
        ebb_program *program = NULL;
        options.mem = mem;
        st = ebb_zoo_build("lenet", &options, &graph);
        if (st == EBB_OK) { st = ebb_lower_paper(graph, &program); }
        ebb_program_destroy(program);
        ebb_graph_destroy(graph);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curves),   cmocka_unit_test(test_formulas), cmocka_unit_test(test_branches),
        cmocka_unit_test(test_sessions), cmocka_unit_test(test_refusals), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
