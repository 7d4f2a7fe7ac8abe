/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of planning, checking, scheduling, simulating, saving and loading, and of following a plan, fails in
 * turn.
 */
#include "order_support.h"

#include "ebb/executor.h"
#include "ebb/program_import.h"
#include "plan/hold.h"
#include "plan/order.h"

#include <unistd.h>

static char path[64];

static ebb_status plan_as(const ebb_mem *mem, const ebb_program *p, const ebb_machine *m, const char *policy,
                          uint64_t budget, const char *algorithms, const ebb_plan_asked *asked) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.mem = mem;
    options.policy = policy;
    options.algorithms = algorithms;
    options.effort = 0;
    options.budget_bytes = budget;
    options.tier_bytes[EBB_DISK] = UINT64_MAX;
    ebb_plan *plan = NULL, *read = NULL;
    ebb_timeline timeline;
    ebb_status st = ebb__plan_make(p, m, &options, asked, &plan, NULL);
    if (st == EBB_OK) { st = ebb_plan_simulate(p, plan, m, &timeline, NULL, NULL); }
    if (st == EBB_OK) { st = ebb_plan_save(plan, path); }
    if (st == EBB_OK) { st = ebb_plan_load(mem, path, &read); }
    if (st == EBB_OK) { st = ebb_plan_check(p, read); }
    ebb_plan_destroy(plan);
    ebb_plan_destroy(read);
    return st;
}

static ebb_status plan_all(const ebb_mem *mem, const ebb_program *p, const ebb_machine *m, const char *policy,
                           uint64_t budget, const char *algorithms) {
    const ebb_plan_asked asked = {0};
    return plan_as(mem, p, m, policy, budget, algorithms, &asked);
}

/* The placer can do with less memory, so a plan does not mean that no allocation failed: ever larger
 * steps through all of them. How many there are, about. For policies that search. */
static size_t fail_each_of(const char *policy, const ebb_program *p, const ebb_machine *m, uint64_t budget,
                           const char *algorithms, const ebb_plan_asked *asked) {
    failing_mem mem;
    size_t at = 0;
    do {
        const ebb_status st =
            plan_as(&failing_mem_init(&mem, at += 1 + at / 16)->hooks, p, m, policy, budget, algorithms, asked);
        assert_true(st == EBB_OK || st == EBB_E_NO_MEMORY);
        assert_int_equal(mem.n_live, 0);
    } while (mem.n_calls >= at);
    return at;
}

/* What follows a plan, and the proof of what it hands out. */
static ebb_status follow(const ebb_mem *mem, const ebb_program *p, const ebb_plan *plan) {
    ebb_executor *executor = NULL;
    ebb_proof proof;
    EBB_TRY(ebb_executor_create(mem, p, plan, &executor));
    ebb_executor_destroy(executor);
    return ebb_executor_prove(mem, p, plan, &proof);
}

static void test_executor_oom(void **state) {
    (void)state;
    for (uint64_t seed = 2; seed <= 3; seed++) {
        ebb_program *p = random_program(seed);
        ebb_plan *plan = make_tight_plan(p);
        OOM_LOOP(mem, st, st = follow(mem, p, plan));
        ebb_plan_destroy(plan);
        ebb_program_destroy(p);
    }
}

static void test_plan_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    for (uint64_t seed = 2; seed <= 3; seed++) {
        ebb_program *p = random_program(seed);
        uint64_t budget = ebb_program_floor_bytes(p, NULL) * 2;
        OOM_LOOP(mem, st, st = plan_all(mem, p, m, "budget", budget, "given"));
        ebb_program_destroy(p);
    }
    ebb_machine_destroy(m);
}

/* The host is full, so copies go to the disk, and whether some move on is tried. */
static ebb_status plan_pool(const ebb_mem *mem, const ebb_program *p, const ebb_machine *m, uint64_t *disk_bytes_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.mem = mem;
    options.policy = "budget";
    options.no_recompute = true;
    options.budget_bytes = ebb_program_floor_bytes(p, NULL) * 3 / 2;
    options.tier_bytes[EBB_HOST] = 256;
    options.tier_bytes[EBB_DISK] = UINT64_MAX;
    ebb_plan *plan = NULL;
    EBB_TRY(ebb_plan_make(p, m, &options, &plan, NULL));
    *disk_bytes_out = ebb_plan_get_summary(plan).tier_bytes[EBB_DISK];
    ebb_plan_destroy(plan);
    return EBB_OK;
}

static void test_move_on_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    uint64_t disk_bytes = 0;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_program *p = random_program(2);
    OOM_LOOP(mem, st, st = plan_pool(mem, p, m, &disk_bytes));
    assert_true(disk_bytes > 0);
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

static ebb_status hold_copies(const ebb_mem *mem, const ebb_program *p, const ebb_machine *m) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.mem = mem;
    options.policy = "budget";
    options.no_recompute = true;
    options.budget_bytes = ebb_program_floor_bytes(p, NULL) * 3 / 2;
    EBB_TRY(ebb_plan_make(p, m, &options, &plan, NULL));
    const ebb_status st = ebb__plan_hold(p, m, &options, &plan);
    ebb_plan_destroy(plan);
    return st;
}

static void test_hold_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_link link;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    link.work_rate[EBB_STEP_ARITHMETIC] = 0.5;
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    ebb_program *p = random_program(2);
    OOM_LOOP(mem, st, st = hold_copies(mem, p, m));
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

static void test_paper_policies_oom(void **state) {
    (void)state;
    static const char *const policies[] = {"recompute-cost-aware",
                                           "recompute-printed",
                                           "sqrt-n",
                                           "utp",
                                           "tensor-cache-next",
                                           "superneurons",
                                           "autoswap-doa",
                                           "autoswap-swdoa",
                                           "autoswap-vote",
                                           "autoswap-bo",
                                           "swap",
                                           "chen-greedy",
                                           "ap-sqrt-n",
                                           "ap-greedy",
                                           "revolve",
                                           "mixed",
                                           "capuchin",
                                           "mu-two",
                                           "g10",
                                           "flashneuron"};
    ebb_machine *m = NULL;
    ebb_program *p = random_program(3);
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    for (size_t s = p->steps.n / 2; s < p->steps.n; s++) { p->steps.data[s].phase = EBB_PHASE_BACKWARD; }
    for (size_t t = 0; t < p->tensors.n; t += 2) { p->tensors.data[t].marks = EBB_MARK_CHECKPOINT; }
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        OOM_LOOP(mem, st, st = plan_all(mem, p, m, policies[i], UINT64_MAX, "given"));
        ebb_no_fit no_fit = {0};
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        ebb_plan *plan = NULL;
        options.policy = policies[i];
        options.budget_bytes = 1;
        assert_int_equal(ebb_plan_make(p, m, &options, &plan, &no_fit), EBB_E_NO_FIT);
        const uint64_t least = no_fit.least_budget_bytes;
        const char *algorithms = i % 2 == 0 ? "given" : "greedy";
        if (strcmp(policies[i], "swap") == 0) {
            (void)fail_each_of(policies[i], p, m, least, algorithms, &(ebb_plan_asked){0});
        } else {
            OOM_LOOP(mem, st, st = plan_all(mem, p, m, policies[i], least, algorithms));
        }
    }
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

static void test_dtr_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_program *p = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_int_equal(ebb_program_import("tests/fuzz/corpus/foreign_dtr/chain", NULL, &p), EBB_OK);
    OOM_LOOP(mem, st, st = plan_all(mem, p, m, "dtr", 40000, "given"));
    OOM_LOOP(mem, st, st = plan_all(mem, p, m, "dtr-eq", 40000, "given"));
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

/* A program whose arrays are larger than what memory is taken in: each of them can fail alone. */
static void test_large_oom(void **state) {
    (void)state;
    enum { N = 3000, FIRST = 120 };
    ebb_machine *m = NULL;
    ebb_program *p = NULL;
    failing_mem mem;
    uint32_t t[N];
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_int_equal(ebb_program_create(NULL, "large", 1, &p), EBB_OK);
    for (int i = 0; i < N; i++) {
        t[i] = make_tensor(p, 1000, false, false);
        STEP(p, 0, 1e6, {t[i], EBB_WRITE});
    }
    for (int i = N; i-- > 0;) { STEP(p, 0, 1e6, {t[i], EBB_READ}); }
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    for (size_t at = 1; at < FIRST; at++) {
        (void)plan_all(&failing_mem_init(&mem, at)->hooks, p, m, "swap", (uint64_t)1000 * N * 2 / 3, "given");
        assert_true(mem.n_calls >= at);
        assert_int_equal(mem.n_live, 0);
    }
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

static void test_best_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_program *p = random_program(2);
    const uint64_t budget = ebb_program_floor_bytes(p, NULL) / 4 * 5;
    const ebb_plan_asked walks = {.always_walks = true}, first = {0};
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_true(fail_each_of("best", p, m, budget, "given", &walks) > 1000); /* it searched */
    (void)fail_each_of("best", p, m, budget, "given", &first);
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

/* A program for which another order is searched and found. */
static void test_order_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_rng rng;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb__rng_init(&rng, 3, 5);
    ebb_program *p = random_branches(&rng, 20, true);
    ebb_order_figures figures;
    uint32_t *order = calloc(p->steps.n, sizeof *order);
    assert_int_equal(ebb__order_find(p, NULL, EBB_ORDER_QUICK, NULL, order, &figures), EBB_OK);
    const uint64_t quick_bytes = figures.order_bytes;
    OOM_LOOP(mem, st, st = ebb__order_find(p, NULL, EBB_ORDER_THOROUGH, mem, order, &figures));
    assert_true(figures.order_bytes < quick_bytes && quick_bytes < figures.program_bytes);
    free(order);
    OOM_LOOP(mem, st, st = plan_all(mem, p, m, "order", UINT64_MAX, "given"));
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

/* A program small enough that all that fitting tries can fail at each allocation. */
static void test_fitting_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    ebb_program *p = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    assert_int_equal(ebb_program_create(NULL, "trade", 1, &p), EBB_OK);
    const uint32_t a = make_tensor(p, 100, false, false), b = make_tensor(p, 50, false, true);
    STEP(p, 0, 1e6, {a, EBB_WRITE});
    const ebb_access writes = {.tensor = b, .mode = EBB_WRITE};
    const ebb_choice choices[2] = {{.name = "slow", .key = 1, .flops = 1e9},
                                   {.name = "fast", .scratch_bytes = 60, .key = 2, .flops = 1e8}};
    const ebb_step step = {.name = "s", .kind = "op", .n_accesses = 1, .n_choices = 2};
    assert_int_equal(ebb_program_add_step(p, &step, &writes, choices), EBB_OK);
    STEP(p, 0, 1e6, {a, EBB_READ}, {b, EBB_UPDATE});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    OOM_LOOP(mem, st, st = plan_all(mem, p, m, "budget", 160, "fastest"));
    OOM_LOOP(mem, st, st = plan_all(mem, p, m, "budget", 160, "fitting"));
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

/* Not fitting is found with as many allocations failing. */
static void test_no_fit_oom(void **state) {
    (void)state;
    ebb_machine *m = NULL;
    assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
    ebb_program *p = NULL;
    assert_int_equal(ebb_program_create(NULL, "small", 1, &p), EBB_OK);
    uint32_t a = make_tensor(p, 10, false, false), b = make_tensor(p, 10, false, false);
    uint32_t c = make_tensor(p, 10, false, false);
    STEP(p, 0, 1, {a, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_WRITE});
    STEP(p, 0, 1, {c, EBB_WRITE});
    STEP(p, 0, 1, {b, EBB_UPDATE}, {c, EBB_READ});
    STEP(p, 0, 1, {a, EBB_READ}, {b, EBB_READ});
    ebb_status end = EBB_E_NO_MEMORY;
    for (size_t at = 1; end == EBB_E_NO_MEMORY; at++) {
        failing_mem f;
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.mem = &failing_mem_init(&f, at)->hooks;
        options.budget_bytes = 19;
        ebb_plan *plan = NULL;
        end = ebb_plan_make(p, m, &options, &plan, NULL);
        assert_null(plan);
        assert_int_equal(f.n_live, 0);
    }
    assert_int_equal(end, EBB_E_NO_FIT);
    ebb_program_destroy(p);
    ebb_machine_destroy(m);
}

static int remove_file(void **state) {
    (void)state;
    (void)unlink(path);
    return 0;
}

int main(void) {
    (void)snprintf(path, sizeof path, "/tmp/ebb-test-plan-oom-%d.plan", (int)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan_oom),
                                       cmocka_unit_test(test_executor_oom),
                                       cmocka_unit_test(test_move_on_oom),
                                       cmocka_unit_test(test_hold_oom),
                                       cmocka_unit_test(test_paper_policies_oom),
                                       cmocka_unit_test(test_best_oom),
                                       cmocka_unit_test(test_order_oom),
                                       cmocka_unit_test(test_fitting_oom),
                                       cmocka_unit_test(test_dtr_oom),
                                       cmocka_unit_test(test_no_fit_oom),
                                       cmocka_unit_test(test_large_oom)};
    return cmocka_run_group_tests(tests, NULL, remove_file);
}
