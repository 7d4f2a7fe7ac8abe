/* SPDX-License-Identifier: Apache-2.0
 *
 * The papers' policies over random programs with random marks, of which some steps are the backward pass: every plan
 * passes the validator, keeps its budget and its tiers, and gives the results of a run without limits, in the list's
 * order and in any that the schedule allows. EBB_SEED and EBB_COUNT choose the programs.
 */
#include "plan_support.h"

#define N_LAPS 3

static const char *const policies[] = {
    "recompute-speed",
    "recompute-memory",
    "recompute-cost-aware",
    "recompute-printed",
    "sqrt-n",
    "chen-greedy",
    "ap-sqrt-n",
    "ap-greedy",
    "revolve",
    "mixed",
    "vdnn-all",
    "vdnn-conv",
    "utp",
    "tensor-cache",
    "tensor-cache-next",
    "superneurons",
    "route",
    "capuchin",
    "mu-two",
    "g10",
    "flashneuron",
};
#define N_POLICIES (sizeof policies / sizeof policies[0])

/* From a random step on it is the backward pass; tensors have roles and marks. */
static ebb_program *make_program(uint64_t seed, ebb_rng *rng) {
    ebb_program *p = random_program(seed);
    const size_t first = p->steps.n / 3 + ebb__rng_below(rng, p->steps.n / 3 + 1);
    for (size_t s = first; s < p->steps.n; s++) { p->steps.data[s].phase = EBB_PHASE_BACKWARD; }
    for (size_t t = 0; t < p->tensors.n; t++) {
        p->tensors.data[t].marks = (uint32_t)ebb__rng_below(rng, EBB_MARKS_ALL + 1);
        if (ebb__rng_below(rng, 8) != 0) { p->tensors.data[t].role = EBB_ROLE_ACTIVATION; }
    }
    for (size_t s = 0; s < p->steps.n; s++) {
        if (ebb__rng_below(rng, 10) == 0) { p->steps.data[s].repeat = EBB_REPEAT_NEVER; }
    }
    return p;
}

static void assert_works(const ebb_program *p, const ebb_plan *plan, const world *expected, ebb_rng *rng) {
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    assert_has_results(p, plan, expected, N_LAPS, rng);
}

/* part 0 to 4: budgets from the floor to what liveness needs; tiers large, small or none. */
static void try_policy(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t top, uint64_t part,
                       const world *expected, ebb_rng *rng, uint64_t moved[3]) {
    const uint64_t floor = ebb_program_floor_bytes(p, NULL), dice = ebb__rng_below(rng, 4);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    options.policy = policy;
    options.budget_bytes = part == 4 ? UINT64_MAX : floor + (top > floor ? top - floor : 0) * part / 4;
    options.tier_bytes[EBB_HOST] = dice == 0 ? 0 : dice == 1 ? top / 3 : UINT64_MAX;
    options.tier_bytes[EBB_DISK] = dice == 1 ? top / 3 : 0;
    ebb_status st = ebb_plan_make(p, m, &options, &plan, &no_fit);
    if (st == EBB_E_NO_FIT) {
        assert_true(no_fit.least_budget_bytes > options.budget_bytes);
        options.budget_bytes = no_fit.least_budget_bytes;
        st = ebb_plan_make(p, m, &options, &plan, NULL);
    }
    if (st != EBB_OK) { fail_msg("%s: %s", policy, ebb_last_error()); }
    const ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_true(sum.peak_bytes <= options.budget_bytes);
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) { assert_true(sum.tier_bytes[t] <= options.tier_bytes[t]); }
    assert_works(p, plan, expected, rng);
    moved[0] += sum.n_recomputed_steps;
    moved[1] += sum.moved_out_bytes;
    moved[2] += sum.moved_in_bytes;
    ebb_plan_destroy(plan);
}

static void test_results(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", 40);
    uint64_t moved[N_POLICIES][3] = {{0}};
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    for (uint64_t seed = first; seed < first + n; seed++) {
        ebb_rng rng;
        world expected;
        ebb__rng_init(&rng, seed, 77);
        print_message("seed %llu\n", (unsigned long long)seed);
        ebb_program *p = make_program(seed, &rng);
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        options.policy = "liveness";
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
        const uint64_t top = ebb_plan_get_summary(plan).peak_bytes;
        execute_in_order(&expected, p, plan, N_LAPS);
        ebb_plan_destroy(plan);
        for (size_t i = 0; i < N_POLICIES; i++) {
            try_policy(p, m, policies[i], top, ebb__rng_below(&rng, 5), &expected, &rng, moved[i]);
        }
        world_free(&expected);
        ebb_program_destroy(p);
    }
    for (size_t i = 0; n >= 40 && i < N_POLICIES; i++) { /* or nothing was tested */
        static const char *const again[] = {"recompute", "sqrt-n", "greedy", "revolve", "mixed"};
        bool recomputes = false;
        for (size_t k = 0; k < sizeof again / sizeof again[0]; k++) {
            recomputes = recomputes || strstr(policies[i], again[k]) != NULL;
        }
        const bool is_joint = strcmp(policies[i], "capuchin") == 0 || strcmp(policies[i], "mu-two") == 0;
        if (recomputes || is_joint) { assert_true(moved[i][0] > 0); }
        if (!recomputes && strcmp(policies[i], "route") != 0) { assert_true(moved[i][1] > 0 && moved[i][2] > 0); }
    }
    ebb_machine_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_results)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
