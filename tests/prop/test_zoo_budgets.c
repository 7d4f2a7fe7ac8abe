/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks of the zoo at budgets around their liveness peak, on a device without data and on the processor: at the peak
 * and above it nothing is copied and nothing is computed again; below it the plan keeps the budget. No policy has a
 * plan where best has none.
 */
#include "support.h"

#include "ebb/session.h"

#include <inttypes.h>

#define N_BUDGETS 60u
#define BATCH 4
#define SMALL_STEPS 100 /* plans of more take long: fewer of them, and none below the peak unless all tests run */

/* Images as small as the network takes them; 0: its own. */
static const struct {
    const char *name;
    int64_t side;
} networks[] = {{"mlp", 0},       {"lenet", 0},           {"alexnet", 67},    {"alexnet_tv", 67},
                {"vgg11", 32},    {"vgg16_bn", 32},       {"resnet18", 32},   {"resnet20", 32},
                {"resnet50", 32}, {"resnet:1,2,2,1", 32}, {"inception4", 75}, {"densenet121", 32}};
#define N_NETWORKS (sizeof networks / sizeof networks[0])

static ebb_session *open_network(size_t idx, const char *backend) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    ebb_session *session = NULL;
    options.net = networks[idx].name;
    options.height = options.width = networks[idx].side;
    options.batch = BATCH;
    options.backend = backend;
    const ebb_status st = ebb_session_open(&options, &session);
    if (st == EBB_E_NO_DEVICE) { return NULL; } /* this build has no such backend */
    if (st != EBB_OK) { fail_msg("%s: %s", networks[idx].name, ebb_last_error()); }
    return session;
}

/* Makes a plan of a policy within the budget, and tells of it: *sum_out is its summary, all zeros if there is no plan;
 * *least_out is the budget that the refusal names then. */
static ebb_status plan_at(ebb_session *session, const char *policy, uint64_t host_bytes, uint64_t budget_bytes,
                          ebb_plan_summary *sum_out, uint64_t *least_out) {
    const ebb_session_parts parts = ebb_session_get_parts(session);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    options.policy = policy;
    options.budget_bytes = budget_bytes;
    options.tier_bytes[EBB_HOST] = host_bytes;
    options.effort = 0;
    const ebb_status st = ebb_plan_make(parts.program, parts.machine, &options, &plan, &no_fit);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { fail_msg("%s: %s", policy, ebb_last_error()); }
    assert_true(st == EBB_OK || no_fit.least_budget_bytes > budget_bytes);
    *sum_out = st == EBB_OK ? ebb_plan_get_summary(plan) : (ebb_plan_summary){0};
    *least_out = no_fit.least_budget_bytes;
    ebb_plan_destroy(plan);
    return st;
}

static ebb_plan_summary plan_within(ebb_session *session, const char *policy, uint64_t budget_bytes, bool *fits_out) {
    ebb_plan_summary sum = {0};
    uint64_t least = 0;
    *fits_out = plan_at(session, policy, UINT64_MAX, budget_bytes, &sum, &least) == EBB_OK;
    return sum;
}

/* Budgets 0 to 29 are at the peak and above it, near ones first and up to twice as much; the others are below it, down
 * to half. */
static uint64_t budget_of(uint64_t peak_bytes, uint64_t alignment, uint64_t i) {
    const uint64_t near_bytes[] = {0, 1, alignment - 1, alignment, alignment + 1};
    const uint64_t n_near = sizeof near_bytes / sizeof near_bytes[0], half = N_BUDGETS / 2;
    if (i < n_near) { return peak_bytes + near_bytes[i]; }
    if (i < half) { return peak_bytes + peak_bytes / (half - n_near) * (i + 1 - n_near); }
    return peak_bytes - 1 - peak_bytes / N_BUDGETS * (i - half);
}

typedef struct sums {
    uint64_t n_above, n_below, n_moving, n_refused;
} sums;

static void try_budget(ebb_session *session, size_t idx, uint64_t top_bytes, uint64_t i, sums *s) {
    const uint64_t alignment = ebb_program_alignment_bytes(ebb_session_get_parts(session).program);
    const uint64_t budget_bytes = budget_of(top_bytes, alignment, i);
    const bool is_above = budget_bytes >= top_bytes;
    bool fits = false;
    const ebb_plan_summary sum = plan_within(session, i % 2 == 0 ? "best" : "budget", budget_bytes, &fits);
    const uint64_t moved_bytes = sum.moved_out_bytes + sum.moved_in_bytes + sum.moved_on_bytes;
    const bool moves = moved_bytes > 0 || sum.n_recomputed_steps > 0;
    if (is_above && (!fits || moves || sum.peak_bytes != top_bytes)) {
        fail_msg("%s: %" PRIu64 " bytes move and %" PRIu64 " steps run again at %" PRIu64 ", though %" PRIu64
                 " are enough",
                 networks[idx].name, moved_bytes, sum.n_recomputed_steps, budget_bytes, top_bytes);
    }
    assert_true(!fits || sum.peak_bytes <= budget_bytes);
    s->n_above += is_above;
    s->n_below += !is_above;
    s->n_moving += moves;
    s->n_refused += !fits;
}

static void try_network(size_t idx, const char *backend, sums *s) {
    ebb_session *session = open_network(idx, backend);
    if (session == NULL) { skip(); }
    size_t n_steps = 0;
    uint64_t top_bytes = 0;
    (void)ebb_program_steps(ebb_session_get_parts(session).program, &n_steps);
    assert_int_equal(ebb_session_liveness_bytes(session, &top_bytes), EBB_OK);
    const bool in_full = getenv("EBB_TEST_ALL") != NULL, is_small = n_steps < SMALL_STEPS;
    for (uint64_t i = 0; i < N_BUDGETS; i++) {
        const bool is_above = i < N_BUDGETS / 2;
        const uint64_t stride = in_full    ? (is_above || is_small ? 1 : 10)
                                : is_small ? by_form(6, 3, 1)
                                : is_above ? 12
                                           : N_BUDGETS;
        if (i % stride == 0) { try_budget(session, idx, top_bytes, i, s); }
    }
    ebb_session_close(session);
}

static void try_all(const char *backend) {
    sums s = {0};
    for (size_t i = 0; i < N_NETWORKS; i++) { try_network(i, backend, &s); }
    print_message("%s, %zu networks: nothing moves at any of %" PRIu64
                  " budgets from the peak on; something does at %" PRIu64 " of %" PRIu64 " below it, %" PRIu64
                  " are refused\n",
                  backend, N_NETWORKS, s.n_above, s.n_moving, s.n_below, s.n_refused);
    assert_true(s.n_above >= 3 * N_NETWORKS && s.n_moving > s.n_below / 4); /* best may find an order that needs less */
}

static void nothing_moves_from_the_peak_on_dry(void **state) {
    (void)state;
    try_all("dry");
}

static void nothing_moves_from_the_peak_on_cpu(void **state) {
    (void)state;
    if (by_form(1, 0, 0)) { skip(); } /* dry has the same rules */
    try_all("cpu");
}

static uint64_t least_of(ebb_session *session, const char *policy, uint64_t host_bytes) {
    ebb_plan_summary sum = {0};
    uint64_t least = 0;
    assert_int_equal(plan_at(session, policy, host_bytes, 1, &sum, &least), EBB_E_NO_FIT);
    return least;
}

static void assert_best_fits(ebb_session *session, uint64_t host_bytes, uint64_t budget_bytes) {
    ebb_plan_summary sum = {0};
    uint64_t least = 0;
    assert_int_equal(plan_at(session, "best", host_bytes, budget_bytes, &sum, &least), EBB_OK);
    assert_true(sum.peak_bytes <= budget_bytes);
}

/* Of this network, mixed needs less than what best finds itself without copies, and swap with copies. */
static void best_goes_as_low_as_others(void **state) {
    (void)state;
    static const char *const others[] = {"swap",   "revolve", "ap-greedy",   "dtr",  "capuchin",
                                         "dtr-eq", "g10",     "flashneuron", "order"};
    if (by_form(1, 0, 0)) { skip(); } /* it takes long */
    size_t idx = 0;
    while (strcmp(networks[idx].name, "resnet20") != 0) { idx++; }
    ebb_session *session = open_network(idx, "dry");
    const uint64_t least = least_of(session, "mixed", 0);
    ebb_plan_summary sum = {0};
    uint64_t named = 0;
    assert_int_equal(plan_at(session, "best", 0, least - 1, &sum, &named), EBB_E_NO_FIT);
    assert_int_equal(named, least);
    assert_best_fits(session, 0, least);
    assert_best_fits(session, 0, least + least / 1000);
    assert_true(least_of(session, "budget", 0) > least);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_true(least_of(session, others[i], 0) >= least);
    }
    const uint64_t copied = least_of(session, "swap", UINT64_MAX);
    assert_true(least_of(session, "budget", UINT64_MAX) > copied);
    assert_best_fits(session, UINT64_MAX, copied);
    ebb_session_close(session);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_moves_from_the_peak_on_dry),
                                       cmocka_unit_test(nothing_moves_from_the_peak_on_cpu),
                                       cmocka_unit_test(best_goes_as_low_as_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
