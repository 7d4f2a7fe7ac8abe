/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans in paper accounting, and the bytes that they hold step by step, for comparisons with what a paper drew.
 */
#ifndef EBB_TESTS_PAPER_SUPPORT_H
#define EBB_TESTS_PAPER_SUPPORT_H

#include "plan/plan_priv.h"
#include "support.h"

#include "ebb/graph.h"
#include "ebb/device.h"

#define MIB 1048576.0
#define N_LAYERS 23

static inline ebb_program *lower(const char *net, int64_t batch) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    ebb_graph *graph = NULL;
    ebb_program *program = NULL;
    options.batch = batch;
    assert_int_equal(ebb_zoo_build(net, &options, &graph), EBB_OK);
    if (ebb_lower_paper(graph, &program) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_graph_destroy(graph);
    return program;
}

static inline ebb_plan *make(const ebb_program *program, const char *policy) {
    ebb_machine *machine = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    options.policy = policy;
    if (ebb_plan_make(program, machine, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_machine_destroy(machine);
    return plan;
}

/* The bytes of stays while each step runs for the first time, in MiB. */
static inline void find_curve(const ebb_plan *plan, double *curve) {
    for (size_t a = 0; a < plan->actions.n; a++) {
        if (plan->actions.data[a].kind != EBB_ACT_RUN) { continue; }
        uint64_t bytes = 0;
        for (size_t i = 0; i < plan->stays.n; i++) {
            const ebb_stay *stay = &plan->stays.data[i];
            if (stay->first <= a && a < stay->last) { bytes += stay->size_bytes; }
        }
        curve[plan->actions.data[a].target] = (double)bytes / MIB;
    }
}

static inline void expect_near(double is, double should, double within, const char *what, size_t at) {
    if (!(is > should - within && is < should + within)) { fail_msg("%s %zu: %.3f, not %.3f", what, at, is, should); }
}

static inline void expect_curve(const ebb_program *program, const char *policy, const double drawn[2 * N_LAYERS],
                                double peak_mib) {
    double curve[2 * N_LAYERS] = {0}, most = 0;
    ebb_plan *plan = make(program, policy);
    find_curve(plan, curve);
    for (size_t s = 0; s < 2 * N_LAYERS; s++) {
        expect_near(curve[s], drawn[s], 0.1, policy, s + 1);
        most = curve[s] > most ? curve[s] : most;
    }
    expect_near(most, peak_mib, 0.001, policy, 0);
    expect_near((double)ebb_plan_get_summary(plan).peak_bytes / MIB, peak_mib, 0.001, policy, 0);
    ebb_plan_destroy(plan);
}

#endif
