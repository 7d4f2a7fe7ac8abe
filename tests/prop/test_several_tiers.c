/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies that choose between tiers, over random programs and machines of up to five tiers with any rates,
 * latencies and capacities: every plan passes the validator, keeps its budget and its tiers, and gives the results of a
 * run without limits. Other times refuse the same budgets. More effort is never slower, and best is not slower than
 * g10 and flashneuron. EBB_SEED and EBB_COUNT choose the programs. With EBB_SEARCHES=1 plans are searched for, too,
 * which takes ten seconds for each program.
 */
#include "plan_support.h"

#include <inttypes.h>

#define N_LAPS 2

typedef struct question {
    const ebb_program *program;
    const ebb_machine *machine, *other; /* the same one with other times */
    ebb_plan_options options;
    uint64_t top_bytes;
    world expected;
} question;

static double random_rate(ebb_rng *rng) {
    switch (ebb__rng_below(rng, 10)) {
    case 0: return 1e-300;
    case 1: return 1e300;
    case 2: return 1e-3;
    case 3: return 1e12;
    case 4: return 5e6;
    default: return 1e6 * (double)(1 + ebb__rng_below(rng, 100));
    }
}

static uint64_t random_latency(ebb_rng *rng) {
    static const uint64_t some[] = {UINT64_MAX, INT64_MAX, 5000000000u, 1000000u};
    const uint64_t dice = ebb__rng_below(rng, 16);
    return dice < 4 ? some[dice] : dice < 8 ? 0 : ebb__rng_below(rng, 5000);
}

/* A tier of its own, sometimes without a link to the device, sometimes with one engine for both ways. */
static void add_tier(ebb_machine *machine, uint32_t number, ebb_rng *rng) {
    const uint64_t capacity_bytes = ebb__rng_below(rng, 2) == 0 ? UINT64_MAX : ebb__rng_below(rng, 3000);
    ebb_tier tier = {"", EBB_STORE_MEMORY, capacity_bytes};
    ebb_link link = {EBB_DEVICE, 0, {1e6, 0, 0}, {1e6, 0, 0}, EBB_LINK_SHARES_ONE};
    (void)snprintf(tier.name, sizeof tier.name, "far%u", number);
    assert_int_equal(ebb_machine_add_engine(machine, tier.name, &link.out.engine), EBB_OK);
    link.in.engine = link.out.engine;
    assert_int_equal(ebb_machine_add_tier(machine, &tier, &link.far), EBB_OK);
    if (ebb__rng_below(rng, 2) == 0) {
        (void)snprintf(tier.name, sizeof tier.name, "back%u", number);
        assert_int_equal(ebb_machine_add_engine(machine, tier.name, &link.in.engine), EBB_OK);
    }
    if (ebb__rng_below(rng, 8) > 0) { assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK); }
}

/* The tiers follow from the first seed, the rates and latencies from the second. */
static ebb_machine *make_machine(uint64_t seed, uint64_t times_seed) {
    ebb_machine *machine = NULL;
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 5);
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    const uint32_t n_more = (uint32_t)ebb__rng_below(&rng, 3);
    for (uint32_t i = 0; i < n_more; i++) { add_tier(machine, i, &rng); }
    ebb__rng_init(&rng, times_seed, 6);
    const bool are_equal = ebb__rng_below(&rng, 4) == 0;
    const double rate = random_rate(&rng);
    for (uint32_t tier = 1; tier < ebb_machine_topology(machine)->n_tiers; tier++) {
        ebb_link link;
        if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link)) { continue; }
        link.out.bytes_per_s = are_equal ? rate : random_rate(&rng);
        link.in.bytes_per_s = are_equal ? rate : random_rate(&rng);
        link.out.latency_ns = are_equal ? 100 : random_latency(&rng);
        link.in.latency_ns = are_equal ? 100 : random_latency(&rng);
        assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
    }
    return machine;
}

static ebb_program *make_program(uint64_t seed, ebb_rng *rng) {
    ebb_program *p = random_program(seed);
    const size_t n = p->steps.n, first = ebb__rng_below(rng, 8) == 0 ? n : ebb__rng_below(rng, n + 1);
    for (size_t s = first; s < n; s++) { p->steps.data[s].phase = EBB_PHASE_BACKWARD; }
    for (size_t t = 0; t < p->tensors.n; t++) {
        if (ebb__rng_below(rng, 12) == 0) { p->tensors.data[t].size_bytes = 1; }
    }
    for (size_t s = 0; s < n; s++) {
        if (ebb__rng_below(rng, 10) == 0) { p->steps.data[s].repeat = EBB_REPEAT_NEVER; }
        if (ebb__rng_below(rng, 10) == 0) { p->choices.data[p->steps.data[s].first_choice].flops = 0; }
    }
    return p;
}

typedef struct answer {
    bool fits;
    uint64_t time_ns;     /* UINT64_MAX: it does not fit */
    uint64_t least_bytes; /* where it does not */
} answer;

static void assert_right(const question *q, const ebb_machine *machine, const ebb_plan *plan, ebb_rng *rng) {
    const ebb_topology *topology = ebb_machine_topology(machine);
    const ebb_plan_summary sum = ebb_plan_get_summary(plan);
    world w;
    assert_int_equal(ebb_plan_check(q->program, plan), EBB_OK);
    assert_true(sum.peak_bytes <= q->options.budget_bytes);
    for (uint32_t t = 1; t < topology->n_tiers; t++) {
        assert_true(sum.tier_bytes[t] <= ebb_min_u64(q->options.tier_bytes[t], topology->tier[t].capacity_bytes));
    }
    if (q->options.no_recompute) { assert_int_equal(sum.n_recomputed_steps, 0); }
    execute_any_order(&w, q->program, plan, N_LAPS, rng);
    assert_same_results(&w, &q->expected, N_LAPS);
    world_free(&w);
}

static answer ask(question *q, const ebb_machine *machine, uint32_t effort, ebb_rng *rng) {
    ebb_plan *plan = NULL;
    ebb_no_fit no_fit = {0};
    ebb_timeline timeline;
    q->options.effort = effort;
    const ebb_status st = ebb_plan_make(q->program, machine, &q->options, &plan, &no_fit);
    if (st == EBB_E_NO_FIT) {
        assert_true(no_fit.least_budget_bytes == 0 || no_fit.least_budget_bytes > q->options.budget_bytes);
        return (answer){.time_ns = UINT64_MAX, .least_bytes = no_fit.least_budget_bytes};
    }
    if (st != EBB_OK) { fail_msg("%s: %s", q->options.policy, ebb_last_error()); }
    assert_right(q, machine, plan, rng);
    assert_int_equal(ebb_plan_simulate(q->program, plan, machine, &timeline, NULL, NULL), EBB_OK);
    const answer found = {true, timeline.iteration_ns, 0};
    ebb_plan_destroy(plan);
    return found;
}

static void random_options(question *q, ebb_rng *rng) {
    const uint64_t floor = ebb_program_floor_bytes(q->program, NULL), top = q->top_bytes;
    const uint64_t part = ebb__rng_below(rng, 9);
    q->options = (ebb_plan_options)EBB_PLAN_OPTIONS_INIT;
    q->options.budget_bytes = floor + (top > floor ? top - floor : 0) * part / 8;
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) {
        const uint64_t some[] = {0, 1, 3, ebb__rng_below(rng, 100), top / 8, top / 4, top, UINT64_MAX, UINT64_MAX};
        q->options.tier_bytes[t] = some[ebb__rng_below(rng, sizeof some / sizeof *some)];
    }
    q->options.no_recompute = ebb__rng_below(rng, 4) == 0;
    q->options.as_coded = ebb__rng_below(rng, 4) == 0;
    if (ebb__rng_below(rng, 8) == 0) { q->options.margin = (double)ebb__rng_below(rng, 3); }
}

/* Other times refuse the same budgets, and the least that a refusal names has a plan. */
static uint64_t try_policy(question *q, const char *policy, uint64_t seed, ebb_rng *rng) {
    const uint64_t budget_bytes = q->options.budget_bytes;
    q->options.policy = policy;
    const answer first = ask(q, q->machine, 0, rng), other = ask(q, q->other, 0, rng);
    if (first.fits != other.fits || first.least_bytes != other.least_bytes) {
        fail_msg("seed %" PRIu64 ": %s: least budgets %" PRIu64 " and %" PRIu64, seed, policy, first.least_bytes,
                 other.least_bytes);
    }
    if (first.least_bytes > 0) {
        q->options.budget_bytes = first.least_bytes;
        if (!ask(q, q->machine, 0, rng).fits) { fail_msg("seed %" PRIu64 ": %s: no plan at its least", seed, policy); }
        q->options.budget_bytes = budget_bytes;
    }
    return first.time_ns;
}

/* Plans by the policy that try_policy asked, which takes first_ns without a search. */
static uint64_t try_efforts(question *q, uint64_t first_ns, uint64_t seed, ebb_rng *rng) {
    const answer one = ask(q, q->machine, 1, rng), two = ask(q, q->machine, 2, rng);
    if (one.time_ns > first_ns || two.time_ns > one.time_ns) {
        fail_msg("seed %" PRIu64 ": %s: %" PRIu64 ", %" PRIu64 ", %" PRIu64 " ns", seed, q->options.policy, first_ns,
                 one.time_ns, two.time_ns);
    }
    return one.time_ns;
}

static void try_program(uint64_t seed, bool searches) {
    question q = {0};
    ebb_rng rng;
    ebb_plan *plan = NULL;
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb__rng_init(&rng, seed, 99);
    ebb_program *p = make_program(seed, &rng);
    ebb_machine *machine = make_machine(seed, seed), *other = make_machine(seed, seed + 1000000);
    q = (question){.program = p, .machine = machine, .other = other};
    options.policy = "liveness";
    assert_int_equal(ebb_plan_make(p, machine, &options, &plan, NULL), EBB_OK);
    q.top_bytes = ebb_plan_get_summary(plan).peak_bytes;
    execute_in_order(&q.expected, p, plan, N_LAPS);
    ebb_plan_destroy(plan);
    random_options(&q, &rng);
    const uint64_t g10_ns = try_policy(&q, "g10", seed, &rng), flash_ns = try_policy(&q, "flashneuron", seed, &rng);
    uint64_t swap_ns = try_policy(&q, "swap", seed, &rng), best_ns = 0;
    if (searches) { swap_ns = try_efforts(&q, swap_ns, seed, &rng); }
    best_ns = try_policy(&q, "best", seed, &rng);
    if (searches) {
        best_ns = try_efforts(&q, best_ns, seed, &rng);
        assert_true(q.options.margin > 0 || best_ns <= ebb_min_u64(g10_ns, flash_ns));
    }
    world_free(&q.expected);
    ebb_program_destroy(p);
    ebb_machine_destroy(machine);
    ebb_machine_destroy(other);
}

static void test_programs(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", 5);
    for (uint64_t seed = first; seed < first + n; seed++) {
        print_message("seed %" PRIu64 "\n", seed);
        try_program(seed, number("EBB_SEARCHES", 0) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_programs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
