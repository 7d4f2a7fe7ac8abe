/* SPDX-License-Identifier: Apache-2.0
 *
 * The bound on time: no plan is faster, whoever made it; it is never below computing alone, and above it where links
 * are slow and memory is short.
 */
#include "plan_support.h"

#include <inttypes.h>
#include <math.h>

static ebb_certificate certify(const ebb_program *p, const ebb_machine *m, const ebb_plan_options *limits) {
    ebb_certificate c = {0};
    assert_int_equal(ebb__plan_certify(p, m, limits, true, ebb__bound_care(limits->effort), &c), EBB_OK);
    return c;
}

static uint64_t time_of(const ebb_program *p, const ebb_plan *plan, const ebb_machine *m) {
    ebb_timeline timeline;
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL), EBB_OK);
    return timeline.iteration_ns;
}

/* ---- plans of policies -------------------------------------------------------------------------- */

static double random_share(ebb_rng *rng) {
    return ebb__rng_below(rng, 2) == 0 ? 1 : (double)(1 + ebb__rng_below(rng, 8)) / 8;
}

static void set_shares(ebb_machine *machine, uint32_t tier, ebb_rng *rng) {
    ebb_link link;
    assert_true(ebb_machine_link(machine, EBB_DEVICE, tier, &link));
    link.both_rate = random_share(rng);
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) {
        link.work_rate[k] = random_share(rng);
        link.copy_rate[k] = random_share(rng);
    }
    assert_int_equal(ebb_machine_set_link(machine, &link), EBB_OK);
}

/* Links from so slow that a copy takes as long as many steps to so fast that it takes no time. */
static ebb_machine *make_machine(ebb_rng *rng, uint64_t seed) {
    ebb_machine *machine = NULL;
    ebb_rng of_shares;
    ebb__rng_init(&of_shares, seed, 12);
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    for (uint32_t tier = EBB_HOST; tier <= EBB_DISK; tier++) {
        const double out_per_s = 2e5 * (double)(1u << ebb__rng_below(rng, 10));
        const double in_per_s = 2e5 * (double)(1u << ebb__rng_below(rng, 10));
        set_link(machine, tier, out_per_s, in_per_s, 0);
        set_shares(machine, tier, &of_shares);
    }
    return machine;
}

static ebb_plan_options make_limits(const ebb_program *p, ebb_rng *rng) {
    ebb_plan_options limits = EBB_PLAN_OPTIONS_INIT;
    const uint64_t floor = ebb_program_floor_bytes(p, NULL);
    limits.effort = ebb__rng_below(rng, 4) == 0;
    limits.budget_bytes = floor + floor * ebb__rng_below(rng, 4) / 4;
    limits.tier_bytes[EBB_HOST] = ebb__rng_below(rng, 4) == 0 ? 0 : UINT64_MAX;
    limits.tier_bytes[EBB_DISK] = ebb__rng_below(rng, 2) == 0 ? 0 : floor;
    return limits;
}

static void try_policies(uint64_t seed, uint64_t *n_plans, uint64_t *n_priced, double *least) {
    static const char *const policies[] = {"budget", "best", "liveness"};
    ebb_rng rng;
    ebb__rng_init(&rng, seed, 11);
    ebb_program *p = random_program(seed);
    ebb_machine *m = make_machine(&rng, seed);
    ebb_plan_options limits = make_limits(p, &rng);
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        ebb_plan *plan = NULL;
        limits.policy = policies[i];
        if (ebb_plan_make(p, m, &limits, &plan, NULL) != EBB_OK) { continue; }
        const uint64_t peak_bytes = ebb_plan_get_summary(plan).peak_bytes;
        if (peak_bytes > limits.budget_bytes) { limits.budget_bytes = peak_bytes; }
        const ebb_certificate c = ebb_plan_get_summary(plan).certificate;
        const uint64_t time_ns = time_of(p, plan, m);
        if (c.bound_ns > time_ns) {
            fail_msg("seed %" PRIu64 ", %s: %" PRIu64 " ns, and %s says %" PRIu64, seed, policies[i], time_ns,
                     c.ns_rule, c.bound_ns);
        }
        const bool is_priced = strcmp(c.ns_rule, "prices") == 0;
        *n_priced += is_priced;
        *n_plans += 1;
        *least = fmin(*least, is_priced ? (double)time_ns / (double)c.bound_ns : INFINITY);
        ebb_plan_destroy(plan);
    }
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void policies_are_not_faster(void **state) {
    (void)state;
    const uint64_t first = number("EBB_SEED", 1), n = number("EBB_COUNT", by_form(10, 20, 40));
    uint64_t n_plans = 0, n_priced = 0;
    double least = INFINITY;
    for (uint64_t seed = first; seed < first + n; seed++) { try_policies(seed, &n_plans, &n_priced, &least); }
    print_message("%" PRIu64 " plans, %" PRIu64
                  " with prices; of them the closest to its bound is %.4f times as long\n",
                  n_plans, n_priced, least);
    assert_true(n_plans >= n && n_priced * 6 >= n_plans);
}

/* ---- known bounds ------------------------------------------------------------------------------- */

/* Two tensors of 1000 bytes are made, room is for one beside what a step uses, nothing can be computed again. What is
 * absent goes out at 1 byte a nanosecond and comes in at 2. */
static void make_two(ebb_program **program_out, ebb_machine **machine_out) {
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_program_create(NULL, "two", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 1000, false, false), b = make_tensor(p, 1000, false, false);
    const uint32_t c = make_tensor(p, 1000, false, false);
    STEP(p, 0, 1, {a, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_WRITE});
    STEP(p, 0, 1, {c, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_READ});
    STEP(p, 0, 1, {a, EBB_READ});
    for (size_t s = 0; s < p->steps.n; s++) { p->steps.data[s].repeat = EBB_REPEAT_NEVER; }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e9, 1e18, 99);
    set_link(m, EBB_HOST, 1e9, 2e9, 0);
    *program_out = p;
    *machine_out = m;
}

static void one_has_to_go(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan_options limits = EBB_PLAN_OPTIONS_INIT;
    make_two(&p, &m);
    limits.tier_bytes[EBB_DISK] = 0;
    limits.budget_bytes = 2000;
    const ebb_certificate tight = certify(p, m, &limits);
    assert_string_equal(tight.ns_rule, "prices");
    /* Make a; copy it out; copy it in beside the other three steps. That it cannot come in while c is made is not seen.
     */
    assert_in_range(tight.bound_ns, 100 + 1000 + 500 - 1, 100 + 1000 + 500);
    limits.budget_bytes = 3000;
    const ebb_certificate wide = certify(p, m, &limits);
    assert_string_equal(wide.ns_rule, "compute");
    assert_true(wide.bound_ns == 500);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* The steps are long enough to hide all copies, but a copy leaves half of computing's speed, and computing half of the
 * copy's: a nanosecond of copying costs one of computing, and half of one where both ways are used at once. */
static void hidden_copies_cost(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_link link;
    ebb_plan_options limits = EBB_PLAN_OPTIONS_INIT;
    make_two(&p, &m);
    ebb_machine_set_rates(m, 1e9, 1e18, 9999);
    limits.tier_bytes[EBB_DISK] = 0;
    limits.budget_bytes = 2000;
    assert_in_range(certify(p, m, &limits).bound_ns, 49999, 50000);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    for (int k = 0; k < EBB_N_STEP_KINDS; k++) { link.work_rate[k] = link.copy_rate[k] = 0.5; }
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    assert_in_range(certify(p, m, &limits).bound_ns, 50000 + 700, 50000 + (1000 + 500) / 2);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A tensor of 1000 bytes is made, copied out during a long step, updated, dropped for two steps, and comes back during
 * another long one: as it was before the update, which runs again. All copies are hidden. */
static void older_copy_comes_back(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan_options limits = EBB_PLAN_OPTIONS_INIT;
    assert_int_equal(ebb_program_create(NULL, "older copy", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 1000, false, false), b = make_tensor(p, 1000, false, false);
    const uint32_t c = make_tensor(p, 10, false, false);
    STEP(p, 0, 1901, {a, EBB_WRITE});
    STEP(p, 0, 1901, {c, EBB_WRITE});
    STEP(p, 0, 1, {a, EBB_UPDATE});
    STEP(p, 0, 1, {b, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_READ});
    STEP(p, 0, 1901, {c, EBB_READ});
    STEP(p, 0, 1, {a, EBB_READ});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e9, 1e18, 99);
    set_link(m, EBB_HOST, 1e9, 1e9, 0);
    limits.tier_bytes[EBB_DISK] = 0;
    limits.budget_bytes = 1500;
    const uint64_t computing_ns = 3 * 2000 + 4 * 100;
    assert_in_range(certify(p, m, &limits).bound_ns, computing_ns - 1, computing_ns + 100);
    limits.no_recompute = true; /* then the copy out has to wait for the update */
    assert_true(certify(p, m, &limits).bound_ns > computing_ns + 100);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(policies_are_not_faster), cmocka_unit_test(one_has_to_go),
                                       cmocka_unit_test(hidden_copies_cost), cmocka_unit_test(older_copy_comes_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
