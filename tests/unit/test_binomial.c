/* SPDX-License-Identifier: Apache-2.0
 *
 * Binomial checkpointing of chains: exactly as many stages run again as the papers' formulas say, in as many slots.
 *
 * Stage i makes m[i] from x[i] (kind "tape"), and from both x[i + 1]; the backward pass reads m[i]. So a stage that is
 * advanced over and one that is reversed each run their tape once. What stage 0 begins with is always there.
 */
#include "plan/binomial.h"
#include "plan_support.h"

#define MAX_STAGES 40u

static void make_kind(ebb_program *p, const char *kind, uint32_t phase, const ebb_access *accesses, uint32_t n) {
    const ebb_choice choice = {.name = "only", .key = 1, .flops = 1e6};
    const ebb_step step = {.name = kind, .kind = kind, .phase = phase, .n_accesses = n, .n_choices = 1};
    assert_int_equal(ebb_program_add_step(p, &step, accesses, &choice), EBB_OK);
}
#define KIND(p, kind, phase, ...)                                                                                      \
    make_kind((p), (kind), (phase), (const ebb_access[]){__VA_ARGS__},                                                 \
              (uint32_t)(sizeof((const ebb_access[]){__VA_ARGS__}) / sizeof(ebb_access)))
#define FORWARD(p, kind, ...) KIND(p, kind, EBB_PHASE_FORWARD, __VA_ARGS__)
#define BACKWARD(p, ...) KIND(p, "back", EBB_PHASE_BACKWARD, __VA_ARGS__)

static ebb_program *make_chain(uint32_t n) {
    ebb_program *p = NULL;
    uint32_t m[MAX_STAGES];
    assert_int_equal(ebb_program_create(NULL, "chain", 1, &p), EBB_OK);
    const uint32_t weights = make_tensor(p, 1, true, false), loss = make_tensor(p, 1, false, true);
    uint32_t x = make_tensor(p, 1, false, false); /* x[0], made in two steps, so that m[0] is never alone */
    FORWARD(p, "begin", {weights, EBB_READ}, {x, EBB_WRITE});
    for (uint32_t i = 0; i < n; i++) {
        m[i] = make_tensor(p, 1, false, false);
        if (i == 0) {
            FORWARD(p, "tape", {weights, EBB_READ}, {m[i], EBB_WRITE});
            FORWARD(p, "begun", {x, EBB_UPDATE});
        } else {
            FORWARD(p, "tape", {x, EBB_READ}, {m[i], EBB_WRITE});
        }
        const uint32_t next = i + 1 < n ? make_tensor(p, 1, false, false) : loss;
        FORWARD(p, "go", {x, EBB_READ}, {m[i], EBB_READ}, {next, EBB_WRITE});
        x = next;
    }
    uint32_t diff = make_tensor(p, 1, false, false);
    BACKWARD(p, {m[n - 1], EBB_READ}, {diff, EBB_WRITE});
    for (uint32_t i = n - 1; i-- > 0;) {
        const uint32_t next = make_tensor(p, 1, false, false);
        BACKWARD(p, {m[i], EBB_READ}, {diff, EBB_READ}, {next, EBB_WRITE});
        diff = next;
    }
    BACKWARD(p, {diff, EBB_READ}, {weights, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* How many tapes run again, and the most bytes. */
static uint64_t count_again(const ebb_program *p, ebb_binomial_kind kind, uint32_t n, uint32_t n_slots,
                            uint64_t *peak_out) {
    const ebb_policy_input input = {.program = p, .limit_bytes = UINT64_MAX};
    ebb_remake r;
    ebb_stages stages;
    ebb_binomial *binomial = NULL;
    ebb_sequence sequence;
    uint64_t n_again = 0;
    assert_int_equal(ebb__remake_init(&r, &input), EBB_OK);
    ebb__sequence_init(&sequence, NULL);
    assert_int_equal(ebb__stages_find(&r, MAX_STAGES, &stages), EBB_OK);
    for (uint32_t t = 0; t < r.view.n_tensors; t++) { r.is_dropped[t] = stages.made[t] != EBB_NO_STAGE; }
    assert_int_equal(ebb__remake_find_segments(&r), EBB_OK);
    assert_int_equal(stages.n, n);
    assert_int_equal(ebb__binomial_create(kind, n, n_slots, &r.bump, &binomial), EBB_OK);
    assert_int_equal(ebb__binomial_sequence(&r, &stages, binomial, n_slots, &sequence), EBB_OK);
    assert_int_equal(ebb__sequence_peak(&sequence, &input, peak_out), EBB_OK);
    for (size_t c = 0; c < sequence.computes.n; c++) {
        const ebb_compute *compute = &sequence.computes.data[c];
        n_again += compute->is_again && strcmp(r.view.steps[compute->step].kind, "tape") == 0;
    }
    ebb__sequence_fini(&sequence);
    ebb__remake_fini(&r);
    return n_again;
}

static uint64_t choose(uint64_t n, uint64_t k) {
    uint64_t c = 1;
    for (uint64_t i = 1; i <= k; i++) { c = c * (n - k + i) / i; }
    return c;
}

/* Griewank and Walther: r n - binomial(s + r, s + 1), where r is the least with n <= binomial(s + r, s). */
static uint64_t revolve_formula(uint64_t n, uint64_t s) {
    uint64_t r = 0;
    while (choose(s + r, s) < n) { r++; }
    return r * n - (r > 0 ? choose(s + r, s + 1) : 0);
}

/* Maddison's recurrence for all steps that run forward, written apart from the policy's. */
static uint64_t mixed_formula(uint64_t n, uint64_t s) {
    static uint64_t known[MAX_STAGES + 1][MAX_STAGES + 1];
    if (n <= s + 1) { return n; }
    if (s == 1) { return n * (n + 1) / 2 - 1; }
    if (known[n][s] > 0) { return known[n][s]; }
    uint64_t least = 1 + mixed_formula(n - 1, s - 1);
    for (uint64_t i = 2; i < n; i++) {
        least = ebb_min_u64(least, i + mixed_formula(i, s) + mixed_formula(n - i, s - 1));
    }
    known[n][s] = least;
    return least;
}

static void check_formula(ebb_binomial_kind kind) {
    for (uint32_t n = 2; n <= MAX_STAGES; n += 1 + n / 8) {
        ebb_program *p = make_chain(n);
        for (uint32_t s = 1; s <= n && s <= 12; s++) {
            uint64_t peak_bytes = 0;
            const uint64_t n_again = count_again(p, kind, n, s, &peak_bytes);
            const uint64_t should = kind == EBB_BINOMIAL_REVOLVE ? revolve_formula(n, s) : mixed_formula(n, s) - n;
            if (n_again != should) {
                fail_msg("%u stages, %u slots: %llu, not %llu", n, s, (unsigned long long)n_again,
                         (unsigned long long)should);
            }
            /* slots, of which x[0]'s is not counted twice; weights, loss; x, m and the next x; two gradients */
            assert_true(peak_bytes <= s + 7);
        }
        ebb_program_destroy(p);
    }
}

static void revolve_runs_as_few_as_its_formula(void **state) {
    (void)state;
    check_formula(EBB_BINOMIAL_REVOLVE);
}

static void mixed_runs_as_few_as_its_recurrence(void **state) {
    (void)state;
    check_formula(EBB_BINOMIAL_MIXED);
}

/* By name: within each budget as many slots as fit, so less memory never takes fewer steps; and mixed, which has more
 * to choose from, never takes more than revolve. */
static void policies_take_what_fits(void **state) {
    (void)state;
    static const char *const policies[] = {"revolve", "mixed"};
    ebb_program *p = make_chain(24);
    ebb_machine *machine = NULL;
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    uint64_t before[2] = {UINT64_MAX, UINT64_MAX};
    for (uint64_t budget = 12; budget <= 48; budget += 4) {
        uint64_t n[2];
        for (size_t i = 0; i < 2; i++) {
            ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
            ebb_plan *plan = NULL;
            options.policy = policies[i];
            options.budget_bytes = budget;
            options.tier_bytes[EBB_HOST] = 0;
            if (ebb_plan_make(p, machine, &options, &plan, NULL) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
            n[i] = ebb_plan_get_summary(plan).n_recomputed_steps;
            assert_true(n[i] <= before[i]);
            before[i] = n[i];
            ebb_plan_destroy(plan);
        }
        assert_true(n[1] <= n[0]);
    }
    assert_true(before[0] == 0 && before[1] == 0); /* everything fits */
    ebb_machine_destroy(machine);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(revolve_runs_as_few_as_its_formula),
        cmocka_unit_test(mixed_runs_as_few_as_its_recurrence),
        cmocka_unit_test(policies_take_what_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
