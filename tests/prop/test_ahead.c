/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that other threads make ahead for a contest: the plan is that of one thread, the caller's hooks for stopping
 * are called by the caller's thread alone and end the search with a plan, and memory that only the other threads do not
 * get ends in an error or in that same plan, with nothing left behind.
 */
#include "plan_support.h"

#include <pthread.h>
#include <stdatomic.h>

#if defined(__SANITIZE_THREAD__)
#define COUNT 1 /* it sees in one program what it sees in more */
#else
#define COUNT by_form(1, 2, 6)
#endif
#define FIRST 11u /* it is searched by all threads */

/* Memory hooks that know the caller's thread. */
typedef struct shared_mem {
    ebb_mem hooks;
    pthread_t caller;
    atomic_size_t n_others, n_live; /* allocations of other threads; blocks that are out */
    size_t fail_at;                 /* of n_others, from 1; 0: never */
} shared_mem;

static bool fails(shared_mem *mem) {
    if (pthread_equal(pthread_self(), mem->caller)) { return false; }
    return atomic_fetch_add(&mem->n_others, 1) + 1 == mem->fail_at;
}

static void *take(void *ctx, size_t size_bytes) {
    shared_mem *mem = ctx;
    void *ptr = fails(mem) ? NULL : malloc(size_bytes);
    if (ptr != NULL) { atomic_fetch_add(&mem->n_live, 1); }
    return ptr;
}

static void *resize(void *ctx, void *ptr, size_t size_bytes) {
    shared_mem *mem = ctx;
    void *grown = fails(mem) ? NULL : realloc(ptr, size_bytes);
    if (ptr == NULL && grown != NULL) { atomic_fetch_add(&mem->n_live, 1); }
    return grown;
}

static void give(void *ctx, void *ptr) {
    shared_mem *mem = ctx;
    if (ptr != NULL) { atomic_fetch_sub(&mem->n_live, 1); }
    free(ptr);
}

typedef struct question {
    ebb_program *program;
    ebb_machine *machine;
    ebb_plan_options options;
    shared_mem mem;
} question;

/* A program whose plan takes searching, because copies are slow. */
static void begin(question *q, uint64_t seed) {
    *q = (question){.program = random_program(seed), .options = EBB_PLAN_OPTIONS_INIT};
    assert_int_equal(ebb_machine_create(NULL, &q->machine), EBB_OK);
    set_link(q->machine, EBB_HOST, 2e7, 3e7, 100);
    q->mem = (shared_mem){.hooks = {take, resize, give, &q->mem}, .caller = pthread_self()};
    q->options.mem = &q->mem.hooks;
    q->options.policy = "best";
    q->options.budget_bytes = liveness_bytes(q->program, q->machine) / 10 * 6;
    q->options.tier_bytes[EBB_HOST] = UINT64_MAX;
}

static void end(question *q) {
    assert_int_equal(atomic_load(&q->mem.n_live), 0);
    ebb_machine_destroy(q->machine);
    ebb_program_destroy(q->program);
}

/* The plan, checked, or NULL. */
static ebb_plan *ask(question *q, uint32_t n_threads, ebb_status *status_out) {
    ebb_plan *plan = NULL;
    q->options.n_threads = n_threads;
    *status_out = ebb_plan_make(q->program, q->machine, &q->options, &plan, NULL);
    if (plan != NULL) {
        assert_int_equal(ebb_plan_check(q->program, plan), EBB_OK);
        assert_true(ebb_plan_get_summary(plan).peak_bytes <= q->options.budget_bytes);
    }
    return plan;
}

static void assert_same(const ebb_plan *a, const ebb_plan *b) {
    size_t n_a = 0, n_b = 0;
    assert_int_equal(a == NULL, b == NULL);
    if (a == NULL) { return; }
    assert_same_actions(a, b);
    const ebb_stay *a_stays = ebb_plan_stays(a, &n_a), *b_stays = ebb_plan_stays(b, &n_b);
    assert_int_equal(n_a, n_b);
    for (size_t i = 0; i < n_a; i++) { assert_int_equal(a_stays[i].offset, b_stays[i].offset); }
}

static void test_threads(void **state) {
    (void)state;
    for (uint64_t seed = number("EBB_SEED", FIRST), last = seed + number("EBB_COUNT", COUNT); seed < last; seed++) {
        question q;
        ebb_status st = EBB_OK, other = EBB_OK;
        begin(&q, seed);
        ebb_plan *alone = ask(&q, 1, &st);
        assert_int_equal(atomic_load(&q.mem.n_others), 0);
        static const uint32_t n_threads[] = {2, 4, 100};
        for (size_t i = 0; i < sizeof n_threads / sizeof *n_threads; i++) {
            ebb_plan *plan = ask(&q, n_threads[i], &other);
            assert_int_equal(st, other);
            assert_same(alone, plan);
            ebb_plan_destroy(plan);
        }
        ebb_plan_destroy(alone);
        end(&q);
    }
}

/* ---- memory ------------------------------------------------------------------------------------- */

/* Whether any of other threads' allocations was one that the plan had to have. */
static bool fail_others(uint64_t seed) {
    question q;
    ebb_status st = EBB_OK;
    bool has_failed = false;
    begin(&q, seed);
    ebb_plan *alone = ask(&q, 1, &st);
    for (size_t at = 0; at < 2000; at = 1 + 4 * at) { /* the first: nothing fails */
        q.mem.fail_at = at;
        atomic_store(&q.mem.n_others, 0);
        ebb_plan *plan = ask(&q, 3, &st);
        assert_true(st == EBB_OK || (at > 0 && st == EBB_E_NO_MEMORY));
        if (st == EBB_OK) { assert_same(alone, plan); }
        has_failed |= st != EBB_OK;
        ebb_plan_destroy(plan);
    }
    ebb_plan_destroy(alone);
    end(&q);
    return has_failed;
}

static void test_memory(void **state) {
    (void)state;
    bool has_failed = false;
    for (uint64_t round = 0; round < 40 && !has_failed; round++) { /* one thread may do all that is wanted */
        has_failed = fail_others(FIRST + round % 10);
    }
    assert_true(has_failed);
}

/* ---- stopping ----------------------------------------------------------------------------------- */

typedef struct patience {
    pthread_t caller;
    uint64_t n_asked, n_goes;
} patience;

static bool is_enough(void *ctx) {
    patience *p = ctx;
    assert_true(pthread_equal(pthread_self(), p->caller));
    return ++p->n_asked > p->n_goes;
}

static void test_stop(void **state) {
    (void)state;
    question q;
    ebb_status st = EBB_OK;
    begin(&q, FIRST);
    for (uint64_t n_goes = 0; n_goes < 40; n_goes += 1 + 2 * n_goes) {
        patience p = {.caller = pthread_self(), .n_goes = n_goes};
        q.options.stop = is_enough;
        q.options.stop_ctx = &p;
        ebb_plan *plan = ask(&q, 4, &st);
        assert_int_equal(st, EBB_OK);
        assert_true(p.n_asked > 0);
        ebb_plan_destroy(plan);
    }
    end(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
