/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy best over random programs and budgets: with or without effort it has a plan wherever budget has one; with
 * some effort it is never slower than that, nor than any rule, and needs no more than any; more effort is never slower,
 * and the same question gets the same answer from any number of threads.
 */
#include "plan_support.h"

#include <inttypes.h>

/* So that copying and computing again cost about the same. */
static ebb_machine *make_machine(ebb_rng *rng) {
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    const double out_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100));
    const double in_per_s = 1e6 * (double)(1 + ebb__rng_below(rng, 100));
    set_link(machine, EBB_HOST, out_per_s, in_per_s, ebb__rng_below(rng, 2000));
    return machine;
}

typedef struct question {
    const ebb_program *program;
    const ebb_machine *machine;
    uint64_t budget_bytes, host_bytes;
} question;

/* What the simulator says, UINT64_MAX if there is no plan. *hash_out: of the plan. */
static uint64_t ask_threads(const question *q, const char *policy, uint32_t effort, uint32_t n_threads,
                            uint64_t *hash_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    ebb_timeline timeline;
    size_t n = 0;
    options.policy = policy;
    options.effort = effort;
    options.n_threads = n_threads;
    options.budget_bytes = q->budget_bytes;
    options.tier_bytes[EBB_HOST] = q->host_bytes;
    if (ebb_plan_make(q->program, q->machine, &options, &plan, NULL) != EBB_OK) { return UINT64_MAX; }
    assert_int_equal(ebb_plan_simulate(q->program, plan, q->machine, &timeline, NULL, NULL), EBB_OK);
    const ebb_action *actions = ebb_plan_actions(plan, &n);
    *hash_out = EBB_HASH_INIT;
    for (size_t i = 0; i < n; i++) {
        const uint64_t words[] = {actions[i].kind, actions[i].target, actions[i].tier, actions[i].choice};
        *hash_out = ebb__hash(*hash_out, words, sizeof words);
    }
    const ebb_stay *stays = ebb_plan_stays(plan, &n);
    for (size_t i = 0; i < n; i++) { *hash_out = ebb__hash(*hash_out, &stays[i].offset, sizeof stays[i].offset); }
    ebb_plan_destroy(plan);
    return timeline.iteration_ns;
}

static uint64_t ask(const question *q, const char *policy, uint32_t effort, uint64_t *hash_out) {
    return ask_threads(q, policy, effort, 1, hash_out);
}

static void assert_not_slower(const question *q, uint64_t seed, uint64_t *n_faster) {
    uint64_t hash[4] = {0};
    const uint64_t budget_ns = ask(q, "budget", 0, &hash[0]);
    const uint64_t first_ns = ask(q, "best", 0, &hash[1]), second_ns = ask(q, "best", 1, &hash[2]);
    const bool is_lost = budget_ns != UINT64_MAX && first_ns == UINT64_MAX;
    if (is_lost || second_ns > budget_ns || second_ns > first_ns) {
        fail_msg("seed %" PRIu64 ", %" PRIu64 " bytes: budget %" PRIu64 " ns, best %" PRIu64 " and %" PRIu64 " ns",
                 seed, q->budget_bytes, budget_ns, first_ns, second_ns);
    }
    if (seed % 4 == 1) {
        assert_true(ask_threads(q, "best", 1, 1 + (uint32_t)(seed % 3), &hash[3]) == second_ns && hash[3] == hash[2]);
        assert_true(ask_threads(q, "best", 1, 4, &hash[3]) == second_ns && hash[3] == hash[2]);
    }
    *n_faster += second_ns < budget_ns;
}

/* With some effort it asks all policies but those that change the order. */
static bool is_rival(const char *policy) {
    static const char *const others[] = {"best", "order", "route"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(policy, others[i]) == 0) { return false; }
    }
    return true;
}

static void assert_not_beaten(const question *q, uint64_t seed, uint64_t *n_asked) {
    uint64_t hash = 0;
    const uint64_t best_ns = ask(q, "best", 1, &hash);
    const char *name = NULL;
    for (size_t i = 0; (name = ebb_policy_name(i, NULL)) != NULL; i++) {
        if (!is_rival(name)) { continue; }
        const uint64_t time_ns = ask(q, name, 1, &hash);
        *n_asked += time_ns != UINT64_MAX;
        if (time_ns >= best_ns) { continue; }
        fail_msg("seed %" PRIu64 ", %" PRIu64 " bytes: %s %" PRIu64 " ns, best %" PRIu64 " ns", seed, q->budget_bytes,
                 name, time_ns, best_ns);
    }
}

/* The least budget that a refusal names; UINT64_MAX: a byte is enough. */
static uint64_t least_of(const question *q, const char *policy) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {.least_budget_bytes = UINT64_MAX};
    options.policy = policy;
    options.effort = 1;
    options.budget_bytes = 1;
    options.tier_bytes[EBB_HOST] = q->host_bytes;
    assert_int_not_equal(ebb_plan_make(q->program, q->machine, &options, &plan, &no_fit), EBB_OK);
    return no_fit.least_budget_bytes;
}

static void assert_needs_no_more(const question *q, uint64_t seed) {
    const question at_least = {q->program, q->machine, least_of(q, "best"), q->host_bytes};
    uint64_t hash = 0;
    const char *name = NULL;
    assert_true(ask(&at_least, "best", 1, &hash) != UINT64_MAX);
    for (size_t i = 0; (name = ebb_policy_name(i, NULL)) != NULL; i++) {
        const uint64_t least_bytes = is_rival(name) ? least_of(q, name) : UINT64_MAX;
        if (least_bytes >= at_least.budget_bytes) { continue; }
        fail_msg("seed %" PRIu64 ": %s needs %" PRIu64 " bytes, best %" PRIu64, seed, name, least_bytes,
                 at_least.budget_bytes);
    }
}

/* Where nothing may be computed again, effort does not lead to a plan that does so and is refused. */
static void assert_copies_alone(const question *q, uint64_t seed) {
    for (uint32_t effort = 0; effort < 2; effort++) {
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        ebb_no_fit no_fit = {0};
        options.policy = "best";
        options.no_recompute = true;
        options.effort = effort;
        options.budget_bytes = q->budget_bytes;
        options.tier_bytes[EBB_HOST] = q->host_bytes;
        const ebb_status st = ebb_plan_make(q->program, q->machine, &options, &plan, &no_fit);
        const bool is_right = st == EBB_OK ? ebb_plan_get_summary(plan).n_recomputed_steps == 0
                                           : st == EBB_E_NO_FIT && no_fit.least_budget_bytes > q->budget_bytes;
        if (!is_right) { fail_msg("seed %" PRIu64 ", %" PRIu64 " bytes: %s", seed, q->budget_bytes, ebb_last_error()); }
        ebb_plan_destroy(plan);
    }
}

/* The thread sanitizer sees in one program what it sees in more, and takes minutes for each. */
#if defined(__SANITIZE_THREAD__)
#define FIRST 5u
#define N_PROGRAMS 1u
#define N_BUDGETS 1u
#else
#define FIRST by_form(5, 5, 1) /* it is small, and searched by threads */
#define N_PROGRAMS by_form(2, 4, 8)
#define N_BUDGETS by_form(2, 3, 3)
#endif

static void never_slower(void **state) {
    (void)state;
    const uint64_t n = N_PROGRAMS;
    uint64_t n_faster = 0, n_asked = 0;
    for (uint64_t seed = FIRST; seed < FIRST + n; seed++) {
        ebb_rng rng;
        uint64_t peak = 0;
        ebb__rng_init(&rng, seed, 9);
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(&rng);
        const uint64_t floor = ebb_program_floor_bytes(p, NULL);
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *live = NULL;
        options.policy = "liveness";
        assert_int_equal(ebb_plan_make(p, m, &options, &live, NULL), EBB_OK);
        peak = ebb_plan_get_summary(live).peak_bytes;
        ebb_plan_destroy(live);
        for (uint64_t i = 1; i <= N_BUDGETS; i++) {
            const question q = {.program = p,
                                .machine = m,
                                .budget_bytes = floor + (peak - floor) * i / 4,
                                .host_bytes = ebb__rng_below(&rng, 3) == 0 ? 0 : UINT64_MAX};
            assert_not_slower(&q, seed, &n_faster);
            if (i == 2) { assert_not_beaten(&q, seed, &n_asked); }
            if (i == 2) { assert_needs_no_more(&q, seed); }
            if (q.host_bytes > 0) { assert_copies_alone(&q, seed); }
        }
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    assert_true(n_faster >= n / 2 && n_asked >= n / 2 * (N_BUDGETS - 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(never_slower)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
