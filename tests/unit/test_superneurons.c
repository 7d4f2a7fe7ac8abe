/* SPDX-License-Identifier: Apache-2.0
 *
 * SuperNeurons' policies (Wang et al., PPoPP 2018) in paper accounting: what its table 1 prints and its figure 10
 * draws.
 */
#include "paper_support.h"

/* Figure 10c, read from the drawing. */
static const double recompute_curve[2 * N_LAYERS] = {
    221.5, 443.2, 664.7, 496.6, 417.3, 506.3, 648.7, 539.3, 446.5, 463.0, 512.5, 512.5, 545.5, 529.0, 536.0, 506.2,
    502.2, 505.4, 505.4, 505.4, 508.4, 506.1, 503.7, 503.7, 512.4, 511.6, 508.4, 511.6, 508.4, 505.4, 546.2, 576.0,
    562.0, 595.0, 562.0, 562.0, 512.5, 764.2, 857.1, 791.1, 648.7, 470.7, 771.5, 886.2, 664.7, 339.5};

/* Figure 10b. */
static const double offload_curve[2 * N_LAYERS] = {
    221.5, 443.2,  443.2,  496.6,  638.9, 781.2, 781.2, 814.2,  863.8,  913.3,  913.3,  962.9,
    946.3, 979.3,  953.3,  956.5,  959.6, 959.6, 962.7, 965.9,  965.9,  966.6,  967.3,  970.5,
    972.9, 972.1,  972.1,  969.0,  965.9, 995.7, 996.5, 1075.9, 1061.9, 1094.9, 1061.9, 1012.3,
    962.9, 1039.2, 1132.0, 1066.0, 923.6, 913.9, 993.0, 886.2,  664.7,  339.5};

static void test_offload_curve(void **state) {
    (void)state;
    ebb_program *program = lower("alexnet", 200);
    expect_curve(program, "utp", offload_curve, 1132.056);
    ebb_program_destroy(program);
}

static void test_recompute_curve(void **state) {
    (void)state;
    ebb_program *program = lower("alexnet", 200);
    expect_curve(program, "recompute-cost-aware", recompute_curve, 886.230);
    ebb_program_destroy(program);
}

static void test_table_1(void **state) {
    (void)state;
    static const struct {
        const char *net, *policy;
        uint64_t n_again;
        double peak_mib; /* 0: the paper does not say of which batch */
    } rows[] = {
        {"alexnet", "recompute-speed", 14, 993.018},      {"alexnet", "recompute-memory", 23, 886.230},
        {"alexnet", "recompute-cost-aware", 17, 886.230}, {"alexnet", "recompute-printed", 14, 993.018},
        {"resnet50", "recompute-speed", 84, 0},           {"resnet50", "recompute-memory", 118, 0},
        {"resnet50", "recompute-cost-aware", 85, 0},      {"resnet101", "recompute-speed", 169, 0},
        {"resnet101", "recompute-memory", 237, 0},        {"resnet101", "recompute-cost-aware", 170, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ebb_program *program = lower(rows[i].net, rows[i].peak_mib > 0 ? 200 : 1);
        ebb_plan *plan = make(program, rows[i].policy);
        const ebb_plan_summary summary = ebb_plan_get_summary(plan);
        if (summary.n_recomputed_steps != rows[i].n_again) {
            fail_msg("%s %s: %llu steps", rows[i].net, rows[i].policy, (unsigned long long)summary.n_recomputed_steps);
        }
        if (rows[i].peak_mib > 0) {
            expect_near((double)summary.peak_bytes / MIB, rows[i].peak_mib, 0.001, rows[i].policy, i);
        }
        ebb_plan_destroy(plan);
        ebb_program_destroy(program);
    }
}

/* The largest sets of a step bound each: nothing is lower than the floor, and less than liveness comes out. */
static void test_sqrt_n(void **state) {
    (void)state;
    ebb_program *program = lower("resnet101", 1);
    ebb_plan *liveness = make(program, "liveness"), *plan = make(program, "sqrt-n");
    const ebb_plan_summary summary = ebb_plan_get_summary(plan);
    size_t n_steps = 0;
    (void)ebb_program_steps(program, &n_steps);
    assert_true(summary.n_recomputed_steps > 0 && summary.n_recomputed_steps <= n_steps / 2);
    assert_true(summary.peak_bytes < ebb_plan_get_summary(liveness).peak_bytes / 3);
    ebb_plan_destroy(liveness);
    ebb_plan_destroy(plan);
    ebb_program_destroy(program);
}

static ebb_plan_summary within(const ebb_program *program, const char *policy, double budget_mib) {
    ebb_machine *machine = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    options.policy = policy;
    options.budget_bytes = (uint64_t)(budget_mib * MIB);
    if (ebb_plan_make(program, machine, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    ebb_plan_summary summary = ebb_plan_get_summary(plan);
    summary.policy = NULL;
    ebb_plan_destroy(plan);
    ebb_machine_destroy(machine);
    return summary;
}

/* Depth first: a chain is as it was; of a network with branches one branch is finished before the next begins, and the
 * order is another one. */
static void test_route(void **state) {
    (void)state;
    static const char *const nets[] = {"alexnet", "inception4"};
    for (size_t i = 0; i < 2; i++) {
        ebb_program *program = lower(nets[i], 1);
        ebb_plan *plan = make(program, "route");
        size_t n_runs = 0, n_moved = 0;
        for (size_t a = 0; a < plan->actions.n; a++) {
            if (plan->actions.data[a].kind != EBB_ACT_RUN) { continue; }
            n_moved += plan->actions.data[a].target != n_runs++;
        }
        assert_int_equal(n_runs, ebb__plan_view(program).n_steps);
        assert_true((n_moved > 0) == (i == 1));
        ebb_plan_destroy(plan);
        ebb_program_destroy(program);
    }
}

/* Transfers only under pressure: none where everything fits (table 3), and below what the paper calls the least, 886.23
 * MiB, down to the tensors that one step touches. */
static void test_cache(void **state) {
    (void)state;
    ebb_program *program = lower("alexnet", 1024);
    ebb_plan_summary sum = within(program, "tensor-cache", 12 * 1024);
    assert_int_equal(sum.moved_out_bytes + sum.moved_in_bytes, 0);
    ebb_program_destroy(program);
    program = lower("alexnet", 200);
    sum = within(program, "superneurons", 886.231);
    assert_int_equal(sum.moved_out_bytes + sum.moved_in_bytes, 0);
    assert_int_equal(sum.n_recomputed_steps, 17);
    static const char *const policies[] = {"tensor-cache", "tensor-cache-next", "superneurons"};
    for (size_t i = 0; i < 3; i++) {
        sum = within(program, policies[i], 664.673);
        assert_true(sum.moved_out_bytes > 0 && sum.moved_in_bytes > 0);
        assert_int_equal(sum.n_recomputed_steps, i == 2 ? 17 : 0);
        expect_near((double)sum.peak_bytes / MIB, 664.673, 0.001, policies[i], 0);
    }
    ebb_program_destroy(program);
}

/* On a route that goes back the way it came the least recently used is about what is needed last, so the rules differ
 * little; Belady's never moves more here. */
static void test_next_use(void **state) {
    (void)state;
    ebb_program *program = lower("resnet50", 8);
    ebb_plan *liveness = make(program, "liveness");
    const double full_mib = (double)ebb_plan_get_summary(liveness).peak_bytes / MIB;
    ebb_plan_destroy(liveness);
    for (int tenths = 3; tenths <= 9; tenths += 3) {
        const ebb_plan_summary lru = within(program, "tensor-cache", full_mib * tenths / 10);
        const ebb_plan_summary next = within(program, "tensor-cache-next", full_mib * tenths / 10);
        assert_true(lru.moved_in_bytes > 0 && next.moved_in_bytes <= lru.moved_in_bytes);
    }
    ebb_program_destroy(program);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offload_curve), cmocka_unit_test(test_recompute_curve), cmocka_unit_test(test_table_1),
        cmocka_unit_test(test_sqrt_n),        cmocka_unit_test(test_route),           cmocka_unit_test(test_cache),
        cmocka_unit_test(test_next_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
