/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof of a plan: it holds on each backend and tier, says how much was proven, refuses a plan for another program,
 * names what is wrong with a plan that puts two tensors into one place, needs no network, knows versions whatever the
 * order of steps, and gives back what it took when any of its allocations fails.
 */
#include "run_support.h"

#include "plan/draft.h"
#include "plan/plan_priv.h"

static void a_plan_is_proven(void **state) {
    (void)state;
    run_fixture f;
    ebb_proof proof = {0};
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
    ebb_proof proof;
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
    ebb_proof proof;
    size_t n_moved = 0, n_found = 0, n_named = 0, n_found_alone = 0;
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
        n_found_alone += ebb_executor_prove(NULL, f.lowered->program, f.plan, &proof) == EBB_E_INTERNAL;
        stays[s].offset = offset;
    }
    print_message("%zu of %zu found\n", n_found, n_moved);
    assert_true(n_moved > 5 && n_found == n_moved && n_named == n_found);
    assert_int_equal(n_found_alone, n_moved);
    assert_int_equal(ebb_run_prove(f.graph, f.device, f.plan, &proof), EBB_OK);
    run_fixture_fini(&f);
}

/* ---- without a network -------------------------------------------------------------------------- */

static void a_program_alone_is_enough(void **state) {
    (void)state;
    run_fixture f;
    ebb_proof proof = {0}, of_run = {0};
    run_fixture_init(&f, NULL);
    const ebb_program *program = f.lowered->program;
    if (ebb_executor_prove(NULL, program, f.plan, &proof) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    assert_int_equal(ebb_run_prove(f.graph, f.device, f.plan, &of_run), EBB_OK);
    assert_int_equal(proof.n_waits * of_run.n_iterations, of_run.n_waits * proof.n_iterations);
    assert_true(proof.n_iterations > 3 && proof.n_pairs > 0 && proof.n_graph_pairs == 0);
    assert_true(proof.n_versions > proof.n_iterations * program->steps.n);
    f.plan->fingerprint++;
    assert_int_equal(ebb__plan_seal(f.plan), EBB_OK);
    assert_int_equal(ebb_executor_prove(NULL, program, f.plan, &proof), EBB_E_INVALID_PLAN);
    run_fixture_fini(&f);
}

/* No order of commands helps where a kernel writes over what it reads. */
static void a_step_keeps_its_tensors_apart(void **state) {
    (void)state;
    run_fixture f;
    ebb_proof proof;
    run_fixture_init(&f, NULL);
    const ebb_program *p = f.lowered->program;
    const ebb_action *actions = f.plan->actions.data;
    for (size_t s = 0; s < f.plan->stays.n; s++) {
        ebb_stay *stay = &f.plan->stays.data[s];
        if (stay->tensor == EBB_SCRATCH || stay->first >= stay->last) { continue; }
        const ebb_action *action = &actions[stay->first];
        if (action->kind != EBB_ACT_RUN || p->steps.data[action->target].n_accesses < 2) { continue; }
        for (size_t q = 0; q < f.plan->stays.n; q++) {
            const ebb_stay *other = &f.plan->stays.data[q];
            const bool is_there = other->first < stay->first && stay->first < other->last;
            if (other->tensor == EBB_SCRATCH || !is_there) { continue; }
            if (!touches(p, &p->steps.data[action->target], other->tensor)) { continue; }
            stay->offset = other->offset;
            assert_int_equal(ebb_executor_prove(NULL, p, f.plan, &proof), EBB_E_INTERNAL);
            assert_non_null(strstr(ebb_last_error(), "share byte"));
            run_fixture_fini(&f);
            return;
        }
    }
    fail_msg("no step makes a tensor of another");
}

/* ---- another order ------------------------------------------------------------------------------ */

/* A step that reads weights, to be run after the step that updates them. */
typedef struct late_reader {
    uint32_t weights, reader, update;
    bool *is_late; /* [n_steps]: the reader, and what comes after it in any order */
} late_reader;

/* Whether two steps touch a tensor, other than the weights, that one of them writes. */
static bool conflict(const ebb_program *p, size_t a, size_t b, uint32_t weights) {
    for (uint32_t i = 0; i < p->steps.data[a].n_accesses; i++) {
        const ebb_access *mine = &p->accesses.data[p->steps.data[a].first_access + i];
        for (uint32_t k = 0; k < p->steps.data[b].n_accesses; k++) {
            const ebb_access *other = &p->accesses.data[p->steps.data[b].first_access + k];
            const bool writes = ((mine->mode | other->mode) & EBB_WRITE) != 0;
            if (mine->tensor == other->tensor && mine->tensor != weights && writes) { return true; }
        }
    }
    return false;
}

static uint32_t mode_of(const ebb_program *p, size_t s, uint32_t tensor) {
    const ebb_step *step = &p->steps.data[s];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (p->accesses.data[step->first_access + i].tensor == tensor) {
            return p->accesses.data[step->first_access + i].mode;
        }
    }
    return 0;
}

/* What comes after the reader; false: the update does. */
static bool put_off(const ebb_program *p, const late_reader *l) {
    memset(l->is_late, 0, p->steps.n * sizeof *l->is_late);
    l->is_late[l->reader] = true;
    for (size_t s = l->reader + 1; s <= l->update; s++) {
        for (size_t before = l->reader; before < s; before++) {
            if (l->is_late[before] && conflict(p, before, s, l->weights)) { l->is_late[s] = true; }
        }
    }
    return !l->is_late[l->update];
}

static void find_late_reader(const ebb_program *p, late_reader *l) {
    l->is_late = calloc(p->steps.n, sizeof *l->is_late);
    for (l->update = 0; l->update < p->steps.n; l->update++) {
        for (l->weights = 0; l->weights < p->tensors.n; l->weights++) {
            const bool updates = mode_of(p, l->update, l->weights) == EBB_UPDATE;
            if (!updates || !p->tensors.data[l->weights].persistent) { continue; }
            for (l->reader = l->update; l->reader-- > 0;) {
                if (mode_of(p, l->reader, l->weights) == EBB_READ && put_off(p, l)) { return; }
            }
        }
    }
    fail_msg("no step that can go after an update");
}

/* Nothing leaves but the weights: copies of both versions, if has_copies, for those who are late and for the end. */
static void draft_late_reader(ebb_draft *d, const ebb_program *p, const late_reader *l, bool has_copies) {
    for (uint32_t s = 0; s < l->update; s++) {
        if (!l->is_late[s]) { assert_int_equal(ebb__draft_step(d, EBB_ACT_RUN, s, 0), EBB_OK); }
    }
    const uint64_t fixed = EBB_DRAFT_FIXED;
    if (has_copies) { assert_int_equal(ebb__draft_tensor(d, EBB_ACT_OUT, l->weights, EBB_HOST, fixed), EBB_OK); }
    assert_int_equal(ebb__draft_step(d, EBB_ACT_RUN, l->update, 0), EBB_OK);
    if (has_copies) {
        assert_int_equal(ebb__draft_tensor(d, EBB_ACT_OUT, l->weights, EBB_DISK, fixed), EBB_OK);
        assert_int_equal(ebb__draft_tensor(d, EBB_ACT_DROP, l->weights, 0, fixed), EBB_OK);
        assert_int_equal(ebb__draft_tensor(d, EBB_ACT_IN, l->weights, EBB_HOST, fixed), EBB_OK);
    }
    for (uint32_t s = 0; s < l->update; s++) {
        if (l->is_late[s]) { assert_int_equal(ebb__draft_step(d, EBB_ACT_RUN, s, 0), EBB_OK); }
    }
    if (has_copies) {
        assert_int_equal(ebb__draft_tensor(d, EBB_ACT_DROP, l->weights, 0, fixed), EBB_OK);
        assert_int_equal(ebb__draft_tensor(d, EBB_ACT_IN, l->weights, EBB_DISK, fixed), EBB_OK);
    }
    for (uint32_t s = l->update + 1; s < p->steps.n; s++) {
        assert_int_equal(ebb__draft_step(d, EBB_ACT_RUN, s, 0), EBB_OK);
    }
}

static ebb_plan *make_late_reader_plan(const ebb_program *p, bool has_copies) {
    ebb_machine *machine = NULL;
    ebb_plan *plan = NULL;
    ebb_draft draft;
    late_reader l;
    ebb_placed placed;
    find_late_reader(p, &l);
    assert_int_equal(ebb__draft_init(&draft, p, NULL), EBB_OK);
    draft_late_reader(&draft, p, &l, has_copies);
    assert_int_equal(ebb_machine_create(NULL, &machine), EBB_OK);
    assert_int_equal(ebb__plan_create(NULL, "late", ebb_machine_topology(machine), &plan), EBB_OK);
    plan->fingerprint = ebb_program_fingerprint(p);
    plan->alignment_bytes = p->alignment_bytes;
    plan->budget_bytes = UINT64_MAX;
    assert_int_equal(ebb__draft_to_plan(&draft, p, plan), EBB_OK);
    ebb_placing_options options = {.alignment = p->alignment_bytes, .work = 10000, .limit_bytes = UINT64_MAX};
    options.tier_bytes[EBB_HOST] = options.tier_bytes[EBB_DISK] = UINT64_MAX;
    assert_int_equal(ebb__plan_place(plan, &options, &placed), EBB_OK);
    assert_int_equal(ebb__plan_seal(plan), EBB_OK);
    ebb_machine_destroy(machine);
    ebb__draft_fini(&draft);
    free(l.is_late);
    return plan;
}

/* Versions are those of the program, and not those that the plan's list would make. */
static void a_right_plan_may_have_another_order(void **state) {
    (void)state;
    run_fixture f;
    ebb_proof proof;
    run_fixture_init(&f, NULL);
    ebb_plan *plan = make_late_reader_plan(f.lowered->program, true);
    if (ebb_plan_check(f.lowered->program, plan) != EBB_OK ||
        ebb_executor_prove(NULL, f.lowered->program, plan, &proof) != EBB_OK ||
        ebb_run_prove(f.graph, f.device, plan, &proof) != EBB_OK) {
        fail_msg("%s", ebb_last_error());
    }
    ebb_plan_destroy(plan);
    run_fixture_fini(&f);
}

static void a_wrong_order_is_found(void **state) {
    (void)state;
    run_fixture f;
    ebb_proof proof;
    run_fixture_init(&f, NULL);
    ebb_plan *plan = make_late_reader_plan(f.lowered->program, false);
    assert_int_equal(ebb_plan_check(f.lowered->program, plan), EBB_E_INVALID_PLAN);
    assert_int_equal(ebb_run_prove(f.graph, f.device, plan, &proof), EBB_E_INTERNAL);
    assert_non_null(strstr(ebb_last_error(), "not the version that the program means"));
    assert_int_equal(ebb_executor_prove(NULL, f.lowered->program, plan, &proof), EBB_E_INTERNAL);
    assert_non_null(strstr(ebb_last_error(), "not the version that the program means"));
    ebb_plan_destroy(plan);
    run_fixture_fini(&f);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    ebb_proof proof;
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
    st = EBB_E_NO_MEMORY;
    for (size_t i = 1; st != EBB_OK; i += 1 + i / 40) {
        mem.n_calls = 0;
        mem.fail_at = i;
        st = ebb_executor_prove(&mem.hooks, f.lowered->program, f.plan, &proof);
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
        cmocka_unit_test(a_program_alone_is_enough),
        cmocka_unit_test(a_step_keeps_its_tensors_apart),
        cmocka_unit_test(a_right_plan_may_have_another_order),
        cmocka_unit_test(a_wrong_order_is_found),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
