/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of a plan: it holds on each backend and tier, says how much was proven, refuses a plan for another program,
 * names what is wrong with a plan that puts two tensors into one place, and gives back what it took when any of its
 * allocations fails.
 */
#include "run_support.h"

#include "plan/plan_priv.h"

static void a_plan_is_proven(void **state) {
    (void)state;
    run_fixture f;
    ebb_run_proof proof = {0};
    run_fixture_init(&f, NULL);
    size_t n_actions = 0, n_commands = 0;
    const ebb_action *actions = ebb_plan_actions(f.plan, &n_actions);
    for (size_t a = 0; a < n_actions; a++) { n_commands += actions[a].kind != EBB_ACT_DROP; }
    if (ebb_run_prove(f.graph, f.device, f.plan, &proof) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_true(proof.n_iterations >= 6 && proof.n_commands > proof.n_iterations * n_commands);
    assert_true(proof.n_pairs > 0 && proof.n_events > 0 && proof.n_waits > 10 * proof.n_implied_waits);
    const size_t n_steps = f.lowered->steps.n;
    assert_true(proof.n_versions > proof.n_iterations * n_steps && proof.n_graph_pairs >= proof.n_pairs);
    run_fixture_fini(&f);
}

static void it_is_for_its_program_alone(void **state) {
    (void)state;
    run_fixture f;
    ebb_run_proof proof;
    ebb_graph *other = NULL;
    const ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    run_fixture_init(&f, NULL);
    assert_int_equal(ebb_zoo_build("lenet", NULL, &other), EBB_OK);
    assert_int_equal(ebb_graph_train(other, &optimizer, false), EBB_OK);
    assert_int_equal(ebb_run_prove(other, f.device, f.plan, &proof), EBB_E_INVALID_PLAN);
    ebb_graph_destroy(other);
    run_fixture_fini(&f);
}

static bool touches(const ebb_program *p, const ebb_step *step, uint32_t tensor) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (p->accesses.data[step->first_access + i].tensor == tensor) { return true; }
    }
    return false;
}

/* Whether anything reads or copies the stay's bytes from then on. */
static bool is_wanted(const run_fixture *f, const ebb_stay *stay, uint64_t from) {
    for (uint64_t a = from; a < stay->last; a++) {
        const ebb_action *action = &f->plan->actions.data[a];
        const bool runs = action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN;
        if (runs && touches(f->lowered->program, &f->lowered->program->steps.data[action->target], stay->tensor)) {
            return true;
        }
        if (action->kind == EBB_ACT_OUT && action->target == stay->tensor) { return true; }
    }
    return false;
}

/* Whether stay s could lie where q does, which is wanted later, without two operands of one step in its way. */
static bool fits_upon(const run_fixture *f, const ebb_stay *s, const ebb_stay *q) {
    const ebb_program *p = f->lowered->program;
    if (s == q || s->tensor == EBB_SCRATCH || q->tensor == EBB_SCRATCH || s->size_bytes > q->size_bytes) {
        return false;
    }
    if (s->first >= s->last || q->first > s->first || q->last < s->last) { return false; }
    if (!is_wanted(f, q, s->first)) { return false; }
    for (size_t a = 0; a < f->plan->actions.n; a++) {
        const ebb_action *action = &f->plan->actions.data[a];
        if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) { continue; }
        const ebb_step *step = &p->steps.data[action->target];
        if (touches(p, step, s->tensor) && touches(p, step, q->tensor)) { return false; }
    }
    return true;
}

/* The order of commands follows from the bytes, so it is no race; but what lay there is gone. */
static void a_tensor_that_is_gone_is_named(void **state) {
    (void)state;
    run_fixture f;
    ebb_run_proof proof;
    size_t n_moved = 0, n_found = 0, n_named = 0;
    run_fixture_init(&f, NULL);
    ebb_stay *stays = f.plan->stays.data;
    for (size_t s = 0; s < f.plan->stays.n; s++) {
        size_t q = 0;
        while (q < f.plan->stays.n && !fits_upon(&f, &stays[s], &stays[q])) { q++; }
        if (q == f.plan->stays.n) { continue; }
        const uint64_t offset = stays[s].offset;
        stays[s].offset = stays[q].offset;
        n_moved++;
        if (ebb_run_prove(f.graph, f.device, f.plan, &proof) != EBB_OK) {
            const char *text = ebb_last_error();
            n_found++;
            n_named += strstr(text, "action") != NULL && strstr(text, "of the arena") != NULL;
        }
        stays[s].offset = offset;
    }
    print_message("%zu of %zu found\n", n_found, n_moved);
    assert_true(n_moved > 5 && n_found == n_moved && n_named == n_found);
    assert_int_equal(ebb_run_prove(f.graph, f.device, f.plan, &proof), EBB_OK);
    run_fixture_fini(&f);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    ebb_run_proof proof;
    run_fixture f;
    failing_mem mem;
    run_fixture_init(&f, &failing_mem_init(&mem, 0)->hooks);
    const size_t n_live = mem.n_live;
    ebb_status st = EBB_E_NO_MEMORY;
    for (size_t i = 1; st != EBB_OK; i += 1 + i / 40) {
        mem.n_calls = 0;
        mem.fail_at = i;
        st = ebb_run_prove(f.graph, f.device, f.plan, &proof);
        assert_true(st == EBB_OK || st == EBB_E_NO_MEMORY);
        assert_int_equal(mem.n_live, n_live);
    }
    mem.fail_at = 0;
    run_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_proven),
        cmocka_unit_test(it_is_for_its_program_alone),
        cmocka_unit_test(a_tensor_that_is_gone_is_named),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
