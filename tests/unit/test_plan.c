/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies on programs small enough to know the answer: peaks, what moves, what is computed again, and what is said
 * when nothing fits.
 */
#include "plan_support.h"

#include "plan/machine_priv.h"

#include <math.h>

static ebb_machine *make_machine(double link_bytes_per_s) {
    ebb_machine *m = make_plain_machine(EBB_HOST, link_bytes_per_s, link_bytes_per_s);
    set_link(m, EBB_DISK, link_bytes_per_s, link_bytes_per_s, 0);
    return m;
}

/* A chain there and back: a 100, b 100, c 100 made in turn, then read in reverse. */
static ebb_program *make_chain(void) {
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "chain", 1, &p), EBB_OK);
    uint32_t a = make_tensor(p, 100, false, false), b = make_tensor(p, 100, false, false);
    uint32_t c = make_tensor(p, 100, false, false), d = make_tensor(p, 100, false, false);
    uint32_t out = make_tensor(p, 4, false, true);
    STEP(p, 0, 1000, {a, EBB_WRITE});
    STEP(p, 0, 1000, {a, EBB_READ}, {b, EBB_WRITE});
    STEP(p, 0, 1000, {b, EBB_READ}, {c, EBB_WRITE});
    STEP(p, 0, 1000, {c, EBB_READ}, {d, EBB_WRITE});
    STEP(p, 0, 1000, {c, EBB_READ}, {d, EBB_UPDATE});
    STEP(p, 0, 1000, {b, EBB_READ}, {d, EBB_UPDATE});
    STEP(p, 0, 1000, {a, EBB_READ}, {d, EBB_READ}, {out, EBB_WRITE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

static ebb_status make(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t budget,
                       ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    options.budget_bytes = budget;
    return ebb_plan_make(p, m, &options, plan_out, no_fit_out);
}

static ebb_plan_summary summary_of(const ebb_program *p, const ebb_machine *m, const char *policy, uint64_t budget) {
    ebb_plan *plan = NULL;
    assert_int_equal(make(p, m, policy, budget, &plan, NULL), EBB_OK);
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_string_equal(sum.policy, policy);
    ebb_plan_destroy(plan);
    sum.policy = NULL;
    return sum;
}

static void test_names(void **state) {
    (void)state;
    const char *about = NULL;
    assert_string_equal(ebb_policy_name(0, &about), "none");
    assert_non_null(about);
    assert_string_equal(ebb_policy_name(1, NULL), "liveness");
    assert_string_equal(ebb_policy_name(2, NULL), "order");
    assert_string_equal(ebb_policy_name(3, NULL), "budget");
    assert_string_equal(ebb_policy_name(4, NULL), "best");
    size_t n_policies = 5;
    while (ebb_policy_name(n_policies, &about) != NULL) { n_policies++; }
    assert_true(n_policies > 5);
    assert_null(ebb_policy_name(n_policies + 1, &about));
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e9);
    ebb_plan *plan = NULL;
    assert_int_equal(make(p, m, "lru", 1, &plan, NULL), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "lru"));
    assert_null(plan);
    ebb_plan_destroy(NULL);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_margins(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e9);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    const double bad[] = {-1, -1e-9, EBB_MAX_MARGIN * 1.001, 1e28, INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        options.margin = bad[i];
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_E_ARGUMENT);
        assert_non_null(strstr(ebb_last_error(), "margin"));
        assert_null(plan);
    }
    options.margin = EBB_MAX_MARGIN;
    options.budget_bytes = 304;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_peaks(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e9);
    assert_int_equal(summary_of(p, m, "none", UINT64_MAX).peak_bytes, 404);
    assert_int_equal(summary_of(p, m, "liveness", UINT64_MAX).peak_bytes, 400);
    assert_int_equal(summary_of(p, m, "budget", UINT64_MAX).peak_bytes, 400);
    ebb_plan_summary sum = summary_of(p, m, "budget", 400);
    assert_int_equal(sum.moved_out_bytes + sum.moved_in_bytes + sum.n_recomputed_steps, 0);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* One tensor has to leave: by copy where the link is fast, computed again where it is slow. */
static void test_cheaper_way(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *fast = make_machine(1e9), *slow = make_machine(1e6);
    ebb_plan_summary sum = summary_of(p, fast, "budget", 304);
    assert_int_equal(sum.moved_out_bytes, 100);
    assert_int_equal(sum.moved_in_bytes, 100);
    assert_int_equal(sum.n_recomputed_steps, 0);
    assert_int_equal(sum.tier_bytes[EBB_HOST], 100);
    sum = summary_of(p, slow, "budget", 304);
    assert_int_equal(sum.moved_out_bytes + sum.moved_in_bytes, 0);
    assert_int_equal(sum.n_recomputed_steps, 1);
    for (uint32_t r = EBB_REPEAT_OTHER_BITS; r < EBB_N_REPEATS; r++) { /* no step can make the same bits again */
        for (size_t s = 0; s < p->steps.n; s++) { p->steps.data[s].repeat = r; }
        sum = summary_of(p, slow, "budget", 304);
        assert_int_equal(sum.moved_out_bytes + sum.moved_in_bytes, 200);
        assert_int_equal(sum.n_recomputed_steps, 0);
    }
    ebb_machine_destroy(fast);
    ebb_machine_destroy(slow);
    ebb_program_destroy(p);
}

static void test_too_little(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e9);
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    assert_int_equal(make(p, m, "liveness", 399, &plan, &no_fit), EBB_E_NO_FIT);
    assert_int_equal(no_fit.least_budget_bytes, 400);
    assert_int_equal(make(p, m, "none", 300, &plan, &no_fit), EBB_E_NO_FIT);
    assert_int_equal(no_fit.least_budget_bytes, 404);
    assert_int_equal(make(p, m, "budget", 100, &plan, &no_fit), EBB_E_NO_FIT);
    assert_int_equal(no_fit.least_budget_bytes, 204); /* the floor itself */
    assert_int_equal(no_fit.step, 6);
    assert_int_equal(no_fit.step_bytes, 204);
    assert_non_null(strstr(ebb_last_error(), "204 bytes"));
    assert_non_null(strstr(ebb_last_error(), "s6"));
    assert_null(plan);
    assert_int_equal(make(p, m, "budget", 204, &plan, &no_fit), EBB_OK);
    assert_int_equal(ebb_plan_get_summary(plan).peak_bytes, 204);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* Weights that do not fit together go round by way of the host; one that is never written is not copied out. */
static void test_persistent(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = make_machine(1e9);
    assert_int_equal(ebb_program_create(NULL, "weights", 1, &p), EBB_OK);
    uint32_t w[3], x = make_tensor(p, 8, false, false);
    for (int i = 0; i < 3; i++) { w[i] = make_tensor(p, 100, true, false); }
    STEP(p, 0, 1000, {x, EBB_WRITE});
    STEP(p, 0, 1000, {w[0], EBB_READ}, {x, EBB_UPDATE});
    STEP(p, 0, 1000, {w[1], EBB_UPDATE}, {x, EBB_UPDATE});
    STEP(p, 0, 1000, {w[2], EBB_READ}, {x, EBB_UPDATE});
    assert_int_equal(summary_of(p, m, "budget", 308).moved_in_bytes, 0);
    ebb_plan_summary sum = summary_of(p, m, "budget", 216);
    assert_true(sum.moved_in_bytes >= 200 && sum.moved_in_bytes <= 300);
    assert_true(sum.moved_out_bytes <= 100); /* w1 at most */
    sum = summary_of(p, m, "budget", 108);
    assert_int_equal(sum.moved_in_bytes, 300);
    assert_int_equal(sum.moved_out_bytes, 100);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A limit on the faster tier, and on none: then only what can be computed again leaves. */
static void test_tiers(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e9);
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.budget_bytes = 204;
    options.tier_bytes[EBB_HOST] = 100;
    options.tier_bytes[EBB_DISK] = 1000;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    ebb_plan_summary sum = ebb_plan_get_summary(plan);
    assert_int_equal(sum.tier_bytes[EBB_HOST], 100);
    assert_int_equal(sum.tier_bytes[EBB_DISK], 100);
    ebb_plan_destroy(plan);
    plan = NULL;
    options.budget_bytes = 304;
    options.tier_bytes[EBB_HOST] = options.tier_bytes[EBB_DISK] = 0;
    assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
    sum = ebb_plan_get_summary(plan);
    assert_int_equal(sum.moved_out_bytes, 0);
    assert_true(sum.n_recomputed_steps > 0);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A chain whose two tensors leave, with a policy; the bytes of each tier that the plan takes. Returns what an iteration
 * takes. Links, by tier; a link of 0 bytes a second stays as it was. */
typedef struct tier_case {
    double bytes_per_s[4];
    uint64_t latency_ns[4], tier_bytes[4], wanted_bytes[4];
} tier_case;

static uint64_t check_tiers(const ebb_program *p, const ebb_machine *m, const tier_case *c, const char *policy) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = policy;
    options.budget_bytes = 204;
    options.no_recompute = true;
    memcpy(options.tier_bytes, c->tier_bytes, sizeof c->tier_bytes);
    if (ebb_plan_make(p, m, &options, &plan, NULL) != EBB_OK) { fail_msg("%s: %s", policy, ebb_last_error()); }
    const ebb_plan_summary sum = ebb_plan_get_summary(plan);
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    for (uint32_t t = 1; t < 4; t++) {
        if (sum.tier_bytes[t] == c->wanted_bytes[t]) { continue; }
        fail_msg("%s: tier %u has %zu bytes, wanted %zu", policy, t, (size_t)sum.tier_bytes[t],
                 (size_t)c->wanted_bytes[t]);
    }
    ebb_plan_destroy(plan);
    return timeline.iteration_ns;
}

/* The fastest tier with room, there and back, whatever its number: the disk is number 2, the remote number 3. */
static void test_fastest_tier(void **state) {
    (void)state;
    enum { ANY = 1000 };
    static const char *const policies[] = {"budget", "best", "swap", "tensor-cache"};
    static const tier_case cases[] = {
        {{0, 3e9, 2e9, 1e9}, {0}, {0, 100, ANY, ANY}, {0, 100, 100, 0}},      /* host, disk, remote */
        {{0, 3e9, 1e9, 2e9}, {0}, {0, 100, ANY, ANY}, {0, 100, 0, 100}},      /* host, remote, disk */
        {{0, 1e9, 3e9, 2e9}, {0}, {0, ANY, ANY, ANY}, {0, 0, 200, 0}},        /* the disk first of all */
        {{0, 1e9, 2e9, 3e9}, {0}, {0, ANY, ANY, 100}, {0, 0, 100, 100}},      /* remote, disk, host */
        {{0, 3e9, 2e9, 1e9}, {0, 1 << 20}, {0, ANY, ANY, 0}, {0, 0, 200, 0}}, /* fast, but late */
        {{0, 1e9, 1e9, 1e9}, {0}, {0, ANY, ANY, ANY}, {0, 200, 0, 0}},        /* equals */
        {{0, 3e9, 2e9, 1e9}, {0}, {0, 0, 100, ANY}, {0, 0, 100, 100}},        /* nothing on the host */
    };
    ebb_program *p = make_chain();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tier_case *c = &cases[i];
        uint32_t remote = 0;
        ebb_machine *m = make_machine(1e9);
        assert_int_equal(ebb_machine_add_remote(m, &remote), EBB_OK);
        assert_int_equal(remote, 3);
        for (uint32_t t = 1; t < 4; t++) { set_link(m, t, c->bytes_per_s[t], c->bytes_per_s[t], c->latency_ns[t]); }
        for (size_t k = 0; k < sizeof policies / sizeof policies[0]; k++) { (void)check_tiers(p, m, c, policies[k]); }
        ebb_machine_destroy(m);
    }
    ebb_program_destroy(p);
}

/* The host has room for a or b, the disk for both. b is away for three steps: the disk would be too slow for it. a is
 * away for longer, so it goes there, and nothing waits. */
static void test_slow_tier(void **state) {
    (void)state;
    static const char *const policies[] = {"swap", "best"};
    static const tier_case wants = {.tier_bytes = {0, 100, UINT64_MAX}, .wanted_bytes = {0, 100, 100}};
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "slow", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 100, false, false), b = make_tensor(p, 100, false, false);
    const uint32_t c = make_tensor(p, 200, false, false);
    uint32_t then[5];
    for (size_t i = 0; i < 5; i++) { then[i] = make_tensor(p, 1, false, false); }
    STEP(p, 0, 1000, {a, EBB_WRITE});
    STEP(p, 0, 1000, {a, EBB_READ}, {b, EBB_WRITE});
    STEP(p, 0, 1000, {b, EBB_READ}, {then[0], EBB_WRITE});
    STEP(p, 0, 1000, {then[0], EBB_READ}, {c, EBB_WRITE});
    STEP(p, 0, 1000, {c, EBB_READ}, {then[1], EBB_WRITE});
    STEP(p, 0, 1000, {then[1], EBB_READ}, {then[2], EBB_WRITE});
    STEP(p, 0, 1000, {then[2], EBB_READ}, {b, EBB_READ}, {then[3], EBB_WRITE});
    STEP(p, 0, 1000, {then[3], EBB_READ}, {then[4], EBB_WRITE});
    STEP(p, 0, 1000, {then[4], EBB_READ}, {a, EBB_READ});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_machine *m = make_machine(1e9);
    ebb_machine_set_rates(m, 1e9, 1e9, 0);
    set_link(m, EBB_HOST, 1e9, 1e9, 0);
    set_link(m, EBB_DISK, 0.05e9, 0.05e9, 0);
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        assert_int_equal(check_tiers(p, m, &wants, policies[i]), 9000);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A plan does not put more on a tier than the machine has there. */
static void test_capacity(void **state) {
    (void)state;
    static const tier_case wants = {.tier_bytes = {0, UINT64_MAX, UINT64_MAX}, .wanted_bytes = {0, 100, 100}};
    const ebb_tier large = {"large", EBB_STORE_FILE, UINT64_MAX};
    static const char text[] = "{\"format\": \"ebb-machine\", \"version\": 2, \"tiers\": [{\"name\": \"device\", "
                               "\"store\": \"device\"}, {\"name\": \"host\", \"store\": \"memory\", "
                               "\"capacity_bytes\": 150}]}";
    ebb_program *p = make_chain();
    ebb_machine *m = NULL;
    uint32_t tier = 0;
    assert_int_equal(ebb__machine_parse(NULL, "text", text, sizeof text - 1, &m), EBB_OK);
    assert_int_equal(ebb_machine_add_tier(m, &large, &tier), EBB_OK); /* out of reach */
    (void)check_tiers(p, m, &wants, "budget");
    (void)check_tiers(p, m, &wants, "best");
    ebb__machine_set_capacity(m, EBB_HOST, 200);
    (void)check_tiers(p, m, &(tier_case){.tier_bytes = {0, UINT64_MAX, UINT64_MAX}, .wanted_bytes = {0, 200}},
                      "budget");
    ebb__machine_set_capacity(m, EBB_HOST, 1000); /* never reached */
    (void)check_tiers(p, m, &(tier_case){.tier_bytes = {0, UINT64_MAX, UINT64_MAX}, .wanted_bytes = {0, 200}},
                      "budget");
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* Room on a tier that is not there, or that the device has no way to, does not count. */
static void test_tiers_out_of_reach(void **state) {
    (void)state;
    const ebb_tier far = {"far", EBB_STORE_MEMORY, UINT64_MAX};
    const ebb_way way = {1e9, 10, 1};
    for (uint64_t seed = 1; seed < 5; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = NULL;
        ebb_plan *plan = NULL;
        ebb_no_fit without = {0}, with = {0};
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        uint32_t tier = 0;
        assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
        options.budget_bytes = 1;
        options.tier_bytes[EBB_HOST] = 0;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &without), EBB_E_NO_FIT);
        options.tier_bytes[3] = UINT64_MAX;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &with), EBB_E_NO_FIT);
        assert_int_equal(with.least_budget_bytes, without.least_budget_bytes);
        assert_int_equal(ebb_machine_add_tier(m, &far, &tier), EBB_OK);
        const ebb_link link = {EBB_HOST, tier, way, way, EBB_LINK_SHARES_ONE};
        assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &with), EBB_E_NO_FIT);
        assert_int_equal(with.least_budget_bytes, without.least_budget_bytes);
        options.budget_bytes = with.least_budget_bytes;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, NULL), EBB_OK);
        assert_int_equal(ebb_plan_get_summary(plan).tier_bytes[tier], 0);
        ebb_plan_destroy(plan);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

/* The load of a draft keeps within the limit that the policy was given, with copies that begin early too. */
static void test_limit_is_kept(void **state) {
    (void)state;
    size_t n_drafts = 0;
    for (uint64_t seed = 100; seed < 200; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(seed % 2 == 0 ? 1e6 : 1e8);
        uint64_t alignment = ebb_program_alignment_bytes(p), floor = ebb_program_floor_bytes(p, NULL);
        ebb_policy_input input = {.program = p,
                                  .machine = m,
                                  .limit_bytes = ebb_align_up(floor + floor * (seed % 3) / 4, alignment),
                                  .tier_bytes[EBB_HOST] = UINT64_MAX,
                                  .early_out = true,
                                  .early_in = true};
        ebb_draft draft;
        ebb_plan *plan = NULL;
        assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
        plan = make_empty_plan(p, UINT64_MAX);
        if (ebb__policy_budget.draft(&input, &draft) == EBB_OK) {
            assert_int_equal(ebb__draft_to_plan(&draft, p, plan), EBB_OK);
            for (size_t i = 0; i < plan->stays.n; i++) {
                plan->stays.data[i].size_bytes = ebb_align_up(plan->stays.data[i].size_bytes, alignment);
            }
            assert_int_equal(ebb__plan_seal(plan), EBB_OK);
            assert_true(ebb_plan_get_summary(plan).bound_bytes <= input.limit_bytes);
            n_drafts++;
        }
        ebb_plan_destroy(plan);
        ebb__draft_fini(&draft);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    assert_true(n_drafts > 50);
}

/* Times beyond 64 bits stop there. */
static void test_slow_machine(void **state) {
    (void)state;
    ebb_program *p = make_chain();
    ebb_machine *m = make_machine(1e-9);
    ebb_plan *plan = NULL;
    ebb_timeline timeline;
    ebb_machine_set_rates(m, 1e-300, 1e-300, 0);
    assert_int_equal(make(p, m, "budget", 304, &plan, NULL), EBB_OK);
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    assert_true(timeline.busy_ns[EBB_COMPUTE] == UINT64_MAX);
    assert_true(timeline.again_ns <= timeline.busy_ns[EBB_COMPUTE]);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A program that is large: few tries, and what is named works. */
static void test_large(void **state) {
    (void)state;
    enum { N = 10100 };
    ebb_program *p = NULL;
    ebb_machine *m = make_machine(1e9);
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    assert_int_equal(ebb_program_create(NULL, "deep", 1, &p), EBB_OK);
    for (uint32_t i = 0; i < N; i++) { make_tensor(p, 50 + i % 7 * 13, false, false); }
    uint32_t sum = make_tensor(p, 8, false, true);
    STEP(p, 0, 1000, {0, EBB_WRITE});
    for (uint32_t i = 1; i < N; i++) { STEP(p, 0, 1000, {i - 1, EBB_READ}, {i, EBB_WRITE}); }
    STEP(p, 0, 1000, {N - 1, EBB_READ}, {sum, EBB_WRITE});
    for (uint32_t i = N - 1; i-- > 0;) { STEP(p, 0, 1000, {i, EBB_READ}, {sum, EBB_UPDATE}); }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    const uint64_t floor = ebb_program_floor_bytes(p, NULL);
    assert_int_equal(make(p, m, "budget", floor - 1, &plan, &no_fit), EBB_E_NO_FIT);
    assert_int_equal(no_fit.step_bytes, floor);
    assert_true(no_fit.least_budget_bytes >= floor && no_fit.least_budget_bytes < 4 * floor);
    const uint64_t budgets[] = {no_fit.least_budget_bytes, 100 * floor, 2000 * floor};
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i += by_form(3, 1, 1)) {
        assert_int_equal(make(p, m, "budget", budgets[i], &plan, NULL), EBB_OK);
        assert_true(ebb_plan_get_summary(plan).peak_bytes <= budgets[i]);
        ebb_plan_destroy(plan);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_deterministic(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = make_machine(1e8);
        uint64_t budget = ebb_program_floor_bytes(p, NULL) * 3 / 2;
        ebb_plan *a = NULL, *b = NULL;
        ebb_status st = make(p, m, "budget", budget, &a, NULL);
        assert_int_equal(make(p, m, "budget", budget, &b, NULL), st);
        if (st == EBB_OK) {
            assert_same_actions(a, b);
            for (size_t i = 0; i < a->stays.n; i++) {
                assert_int_equal(a->stays.data[i].offset, b->stays.data[i].offset);
            }
        }
        ebb_plan_destroy(a);
        ebb_plan_destroy(b);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_margins),
                                       cmocka_unit_test(test_peaks),
                                       cmocka_unit_test(test_cheaper_way),
                                       cmocka_unit_test(test_too_little),
                                       cmocka_unit_test(test_persistent),
                                       cmocka_unit_test(test_tiers),
                                       cmocka_unit_test(test_fastest_tier),
                                       cmocka_unit_test(test_slow_tier),
                                       cmocka_unit_test(test_capacity),
                                       cmocka_unit_test(test_tiers_out_of_reach),
                                       cmocka_unit_test(test_limit_is_kept),
                                       cmocka_unit_test(test_deterministic),
                                       cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_slow_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
