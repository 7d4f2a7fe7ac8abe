/* SPDX-License-Identifier: Apache-2.0
 *
 * The policies dtr and dtr-eq: against the authors' own simulator on a log of ours, action by action against a second
 * implementation that remembers nothing (regions and classes are found anew each time), and any program's plans
 * followed with real bytes.
 */
#include "ebb/program_import.h"
#include "plan_support.h"

#define MAX_TENSORS 256u
#define MAX_ACTIONS 20000u
#define NONE UINT32_MAX

static ebb_policy_input make_policy_input(const ebb_program *p, const ebb_machine *m, uint64_t limit_bytes) {
    return (ebb_policy_input){.program = p,
                              .machine = m,
                              .mem = ebb__mem_or_default(NULL),
                              .limit_bytes = limit_bytes,
                              .budget_bytes = limit_bytes};
}

/* A machine without links on which a step takes as many ns as its choice has flops. */
static ebb_machine *make_machine(void) {
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_machine_set_rates(m, 1e9, 1e18, 0);
    return m;
}

static uint64_t step_ns(const ebb_program *p, const ebb_machine *m, uint32_t s) {
    return ebb_machine_step_time_ns(m, &p->choices.data[p->steps.data[s].first_choice]);
}

static uint64_t draft_ns(const ebb_program *p, const ebb_machine *m, const ebb_draft *draft) {
    uint64_t ns = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (ebb__action_computes(action)) { ns += step_ns(p, m, action->target); }
    }
    return ns;
}

/* ---- the authors' simulator ----------------------------------------------------------------------- */

/* What RuntimeV2EagerOptimized of simrd counts for this log (its clock less the 1 with which it begins), with the
 * heuristics DTR and DTREqClass; 0: out of memory. Run outside of this project, on github uwsampl/dtr-prototype. */
static void test_simulator(void **state) {
    (void)state;
    static const struct {
        uint64_t limit_bytes, exact_ns, eq_ns;
    } cases[] = {{53100, 25200, 25200}, {40000, 27740, 27740}, {34000, 29640, 29440}, {28000, 31520, 31520},
                 {24000, 33820, 33880}, {20000, 82180, 85020}, {17000, 90520, 0},     {15000, 0, 0}};
    ebb_program *p = NULL;
    ebb_draft draft;
    ebb_machine *m = make_machine();
    assert_int_equal(ebb_program_import("tests/fuzz/corpus/foreign_dtr/chain", NULL, &p), EBB_OK);
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int eq = 0; eq < 2; eq++) {
            const ebb_policy *policy = eq ? &ebb__policy_dtr_eq : &ebb__policy_dtr;
            const ebb_policy_input input = make_policy_input(p, m, cases[i].limit_bytes);
            const uint64_t expected_ns = eq ? cases[i].eq_ns : cases[i].exact_ns;
            ebb__draft_reset(&draft, p);
            const ebb_status st = policy->draft(&input, &draft);
            assert_int_equal(st, expected_ns > 0 ? EBB_OK : EBB_E_NO_FIT);
            if (st == EBB_OK) { assert_int_equal(draft_ns(p, m, &draft), expected_ns); }
        }
    }
    ebb__draft_fini(&draft);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* ---- a second implementation ---------------------------------------------------------------------- */

/* For programs in which each tensor is written once, by a step that may run again. */
typedef struct naive {
    const ebb_program *p;
    const ebb_machine *m;
    bool is_eq;
    uint64_t limit, load, clock, accessed[MAX_TENSORS];
    uint32_t maker[MAX_TENSORS], locks[MAX_TENSORS], class[MAX_TENSORS], n_classes;
    int64_t class_ns[MAX_ACTIONS];
    bool here[MAX_TENSORS], made[MAX_TENSORS], in_region[MAX_TENSORS];
    uint32_t pool[MAX_TENSORS], n_pool;
    char *text; /* "r3 a2 d7 ": what is done */
    size_t n_text, n_actions;
    bool is_stuck;
} naive;

static void say(naive *n, char what, uint32_t idx) {
    if (++n->n_actions >= MAX_ACTIONS) { n->is_stuck = true; }
    if (!n->is_stuck) { n->n_text += (size_t)sprintf(n->text + n->n_text, "%c%u ", what, idx); }
}

static bool reads(const naive *n, uint32_t s, uint32_t t, uint32_t mode) {
    const ebb_step *step = &n->p->steps.data[s];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &n->p->accesses.data[step->first_access + i];
        if (access->tensor == t && access->mode == mode) { return true; }
    }
    return false;
}

static bool is_evicted(const naive *n, uint32_t t) {
    return n->made[t] && !n->here[t];
}

/* Whether b is made from a. */
static bool leads(const naive *n, uint32_t a, uint32_t b) {
    return n->maker[b] != NONE && reads(n, n->maker[b], a, EBB_READ);
}

static uint64_t region(naive *n, uint32_t t, bool is_up) {
    uint64_t ns = 0;
    memset(n->in_region, 0, sizeof n->in_region);
    n->in_region[t] = true;
    for (bool has_grown = true; has_grown;) {
        has_grown = false;
        for (uint32_t a = 0; a < n->p->tensors.n; a++) {
            for (uint32_t b = 0; b < n->p->tensors.n && n->in_region[a]; b++) {
                if (n->in_region[b] || !is_evicted(n, b)) { continue; }
                if (!(is_up ? leads(n, b, a) : leads(n, a, b))) { continue; }
                n->in_region[b] = has_grown = true;
                ns += step_ns(n->p, n->m, n->maker[b]);
            }
        }
    }
    return ns;
}

static uint64_t classes_around(const naive *n, uint32_t t) {
    int64_t ns = 0;
    for (uint32_t c = 0; c < n->n_classes; c++) {
        for (uint32_t b = 0; b < n->p->tensors.n; b++) {
            if (b == t || !is_evicted(n, b) || n->class[b] != c || !(leads(n, b, t) || leads(n, t, b))) { continue; }
            ns += n->class_ns[c];
            break;
        }
    }
    return ns > 0 ? (uint64_t)ns : 0;
}

static void leave_pool(naive *n, uint32_t t) {
    for (uint32_t i = 0; i < n->n_pool; i++) {
        if (n->pool[i] != t) { continue; }
        memmove(&n->pool[i], &n->pool[i + 1], (n->n_pool - i - 1) * sizeof n->pool[0]);
        n->n_pool--;
        return;
    }
}

static void enter_pool(naive *n, uint32_t t) {
    leave_pool(n, t);
    if (n->maker[t] != NONE && n->locks[t] == 0) { n->pool[n->n_pool++] = t; }
}

static void evict(naive *n, uint32_t t) {
    leave_pool(n, t);
    say(n, 'd', t);
    n->here[t] = false;
    n->load -= n->p->tensors.data[t].size_bytes;
    const uint32_t own = n->n_classes++;
    n->class[t] = own;
    n->class_ns[own] = (int64_t)step_ns(n->p, n->m, n->maker[t]);
    for (uint32_t b = 0; b < n->p->tensors.n; b++) {
        if (b == t || !is_evicted(n, b) || n->class[b] == own || !(leads(n, b, t) || leads(n, t, b))) { continue; }
        const uint32_t other = n->class[b];
        n->class_ns[own] += n->class_ns[other];
        for (uint32_t c = 0; c < n->p->tensors.n; c++) { n->class[c] = n->class[c] == other ? own : n->class[c]; }
    }
}

static void make_naive_room(naive *n, uint64_t bytes) {
    while (n->load + bytes > n->limit && !n->is_stuck) {
        double best_price = 1e300;
        uint32_t best = NONE;
        for (uint32_t i = 0; i < n->n_pool; i++) {
            const uint32_t t = n->pool[i];
            const uint64_t around = n->is_eq ? classes_around(n, t) : region(n, t, true) + region(n, t, false);
            const double cost = (double)(step_ns(n->p, n->m, n->maker[t]) + around);
            const uint64_t age = n->clock - n->accessed[t];
            const double price = age > 0 ? cost / ((double)n->p->tensors.data[t].size_bytes * (double)age) : 1e300;
            if (price <= best_price) {
                best_price = price;
                best = t;
            }
        }
        if (best == NONE) {
            n->is_stuck = true;
        } else {
            evict(n, best);
        }
    }
}

/* target: NONE for a step of the program. */
static void run_naive(naive *n, uint32_t s, uint32_t target) {
    const ebb_step *step = &n->p->steps.data[s];
    const ebb_access *access = &n->p->accesses.data[step->first_access];
    bool locked[16] = {false};
    uint64_t bytes = 0;
    if (n->is_stuck) { return; }
    assert_true(step->n_accesses <= 16);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = access[i].tensor;
        if (access[i].mode != EBB_READ) {
            bytes += n->p->tensors.data[t].size_bytes;
            continue;
        }
        n->accessed[t] = n->clock;
        locked[i] = n->here[t];
        n->locks[t] += locked[i];
        if (locked[i]) { leave_pool(n, t); }
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = access[i].tensor;
        if (access[i].mode != EBB_READ || locked[i]) { continue; }
        if (!n->here[t]) { run_naive(n, n->maker[t], t); }
        if (n->is_stuck) { return; }
        n->locks[t]++;
        leave_pool(n, t);
    }
    make_naive_room(n, bytes);
    if (n->is_stuck) { return; }
    say(n, target == NONE ? 'r' : 'a', s);
    n->clock += step_ns(n->p, n->m, s);
    for (int round = 0; round < 2; round++) { /* the target comes last */
        bool is_first = true;
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const uint32_t t = access[i].tensor;
            if (access[i].mode == EBB_READ) { continue; }
            const bool is_target = target == NONE ? is_first : t == target;
            is_first = false;
            if (is_target != (round == 1) || n->here[t]) { continue; }
            if (n->made[t]) { n->class_ns[n->class[t]] -= (int64_t)step_ns(n->p, n->m, s); }
            n->here[t] = n->made[t] = true;
            n->class[t] = NONE;
            n->load += n->p->tensors.data[t].size_bytes;
            enter_pool(n, t);
        }
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (access[i].mode != EBB_READ) { continue; }
        if (--n->locks[access[i].tensor] == 0) { enter_pool(n, access[i].tensor); }
    }
}

static void release_naive(naive *n, uint32_t s) {
    for (uint32_t t = 0; t < n->p->tensors.n; t++) {
        const ebb_tensor *tensor = &n->p->tensors.data[t];
        uint32_t last = 0;
        for (uint32_t u = 0; u < n->p->steps.n; u++) {
            if (reads(n, u, t, EBB_READ) || reads(n, u, t, EBB_WRITE)) { last = u; }
        }
        const uint32_t due = tensor->released > 0 ? tensor->released : last + 1;
        if (due == s + 1 && n->here[t] && !tensor->persistent && !tensor->kept && !n->is_stuck) { evict(n, t); }
    }
}

static void walk_naive(naive *n) {
    n->clock = 1;
    for (uint32_t t = 0; t < n->p->tensors.n; t++) {
        n->maker[t] = n->class[t] = NONE;
        for (uint32_t s = 0; s < n->p->steps.n; s++) {
            if (reads(n, s, t, EBB_WRITE)) { n->maker[t] = s; }
        }
        n->here[t] = n->p->tensors.data[t].persistent;
        n->load += n->here[t] ? n->p->tensors.data[t].size_bytes : 0;
    }
    for (uint32_t s = 0; s < n->p->steps.n; s++) {
        run_naive(n, s, NONE);
        for (uint32_t t = 0; t < n->p->tensors.n; t++) {
            if (reads(n, s, t, EBB_WRITE)) { n->accessed[t] = n->clock; }
        }
        release_naive(n, s);
    }
    for (uint32_t t = 0; t < n->p->tensors.n; t++) {
        if (!n->p->tensors.data[t].kept) { continue; }
        if (!n->here[t]) { run_naive(n, n->maker[t], t); }
        n->locks[t]++;
        leave_pool(n, t);
    }
}

/* Values that are written once, read by some later steps, and given back some time after. */
static ebb_program *random_values(ebb_rng *rng) {
    const uint32_t n_steps = 10 + (uint32_t)ebb__rng_below(rng, 30);
    ebb_tensor tensors[MAX_TENSORS] = {{0}};
    ebb_access accesses[40][6];
    uint32_t n_accesses[40] = {0}, n = 1, last[MAX_TENSORS] = {0};
    tensors[0] = (ebb_tensor){.name = "w", .size_bytes = 100, .persistent = true};
    for (uint32_t s = 0; s < n_steps; s++) {
        const uint32_t n_reads = (uint32_t)ebb_min_u64(ebb__rng_below(rng, 4), n), before = n;
        for (uint32_t i = 0; i < n_reads; i++) {
            const uint32_t back = (uint32_t)ebb__rng_below(rng, ebb__rng_below(rng, 2) ? 4 : n);
            const uint32_t t = back < before ? before - 1 - back : 0;
            accesses[s][n_accesses[s]++] = (ebb_access){t, EBB_READ};
            last[t] = s;
        }
        for (uint64_t i = 1 + ebb__rng_below(rng, 2); i > 0; i--) {
            tensors[n] = (ebb_tensor){.name = "v", .size_bytes = 1 + ebb__rng_below(rng, 200)};
            tensors[n].kept = ebb__rng_below(rng, 12) == 0;
            last[n] = s;
            accesses[s][n_accesses[s]++] = (ebb_access){n++, EBB_WRITE};
        }
    }
    accesses[0][n_accesses[0]++] = (ebb_access){0, EBB_READ};
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "values", 1, &p), EBB_OK);
    for (uint32_t t = 0; t < n; t++) {
        uint32_t handle = 0;
        const uint64_t released = last[t] + 1 + ebb__rng_below(rng, 4);
        const bool goes = !tensors[t].kept && !tensors[t].persistent && ebb__rng_below(rng, 3) > 0;
        tensors[t].released = goes ? (uint32_t)ebb_min_u64(released, n_steps) : 0;
        assert_int_equal(ebb_program_add_tensor(p, &tensors[t], &handle), EBB_OK);
    }
    for (uint32_t s = 0; s < n_steps; s++) {
        make_step(p, accesses[s], n_accesses[s], 0, (double)(1 + ebb__rng_below(rng, 1000)));
    }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    return p;
}

/* The draft in the words of the second implementation, up to the drops at the end. */
static void expect_same(const ebb_draft *draft, const naive *n, uint64_t seed, uint64_t limit) {
    char *text = calloc(MAX_ACTIONS, 16);
    size_t n_text = 0;
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        const char what = action->kind == EBB_ACT_RUN ? 'r' : action->kind == EBB_ACT_AGAIN ? 'a' : 'd';
        assert_true(action->kind == EBB_ACT_DROP || what != 'd');
        n_text += (size_t)sprintf(text + n_text, "%c%u ", what, action->target);
    }
    if (strncmp(text, n->text, n->n_text) != 0 || strpbrk(text + n->n_text, "ra") != NULL) {
        fail_msg("seed %llu, limit %llu, %s:\n%s\nis not\n%s", (unsigned long long)seed, (unsigned long long)limit,
                 n->is_eq ? "eq" : "exact", text, n->text);
    }
    free(text);
}

static void compare(const ebb_program *p, const ebb_machine *m, uint64_t limit, bool is_eq, uint64_t seed,
                    size_t *n_again) {
    naive *n = calloc(1, sizeof *n);
    ebb_draft draft;
    *n = (naive){.p = p, .m = m, .is_eq = is_eq, .limit = limit, .text = calloc(MAX_ACTIONS, 16)};
    walk_naive(n);
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    const ebb_policy_input input = make_policy_input(p, m, limit);
    const ebb_status st = (is_eq ? ebb__policy_dtr_eq : ebb__policy_dtr).draft(&input, &draft);
    uint64_t base_ns = 0;
    for (uint32_t s = 0; s < p->steps.n; s++) { base_ns += step_ns(p, m, s); }
    if (st == EBB_OK) {
        assert_false(n->is_stuck);
        expect_same(&draft, n, seed, limit);
        *n_again += strchr(n->text, 'a') != NULL;
    } else {
        assert_int_equal(st, EBB_E_NO_FIT);
        assert_true(n->is_stuck || n->clock > 10 * base_ns);
    }
    ebb__draft_fini(&draft);
    free(n->text);
    free(n);
}

static void test_second(void **state) {
    (void)state;
    ebb_machine *m = make_machine();
    size_t n_again = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 0);
        ebb_program *p = random_values(&rng);
        uint64_t bytes = 0;
        for (size_t t = 0; t < p->tensors.n; t++) { bytes += p->tensors.data[t].size_bytes; }
        for (uint64_t part = 2; part <= 9; part++) {
            compare(p, m, bytes * part / 10, false, seed, &n_again);
            compare(p, m, bytes * part / 10, true, seed, &n_again);
        }
        ebb_program_destroy(p);
    }
    assert_true(n_again > 100);
    ebb_machine_destroy(m);
}

/* ---- any program ---------------------------------------------------------------------------------- */

static void expect_same_bytes(const ebb_program *p, const ebb_machine *m, const ebb_plan *plan) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *none = NULL;
    world expected, got;
    options.policy = "none";
    assert_int_equal(ebb_plan_make(p, m, &options, &none, NULL), EBB_OK);
    execute_in_order(&expected, p, none, 2);
    execute_in_order(&got, p, plan, 2);
    assert_same_results(&got, &expected, 2);
    world_free(&expected);
    world_free(&got);
    ebb_plan_destroy(none);
}

/* Plans of programs with updates in place, several versions and running statistics pass the validator, copy nothing,
 * and make the bytes that the program makes. */
static void test_any_program(void **state) {
    (void)state;
    ebb_machine *m = make_machine();
    size_t n_again = 0;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        ebb_rng rng;
        ebb__rng_init(&rng, seed, 1);
        ebb_program *p = seed % 3 == 0 ? random_soup(&rng) : random_network(&rng);
        ebb_plan *plan = NULL;
        ebb_no_fit no_fit = {0};
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = seed % 2 == 0 ? "dtr" : "dtr-eq";
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &no_fit), EBB_OK);
        const uint64_t peak = ebb_plan_get_summary(plan).peak_bytes;
        ebb_plan_destroy(plan);
        plan = NULL;
        options.budget_bytes = peak * (uint64_t)(5 + seed % 5) / 10;
        ebb_status st = ebb_plan_make(p, m, &options, &plan, &no_fit);
        if (st == EBB_E_NO_FIT) {
            options.budget_bytes = no_fit.least_budget_bytes;
            st = ebb_plan_make(p, m, &options, &plan, &no_fit);
        }
        assert_int_equal(st, EBB_OK);
        const ebb_plan_summary sum = ebb_plan_get_summary(plan);
        assert_true(sum.peak_bytes <= options.budget_bytes);
        assert_int_equal(sum.moved_in_bytes + sum.moved_out_bytes, 0);
        n_again += sum.n_recomputed_steps > 0;
        expect_same_bytes(p, m, plan);
        ebb_plan_destroy(plan);
        ebb_program_destroy(p);
    }
    assert_true(n_again > 10);
    ebb_machine_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_simulator), cmocka_unit_test(test_second),
                                       cmocka_unit_test(test_any_program)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
