/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule against its definition, checked pair by pair: over two laps, any two actions that touch a byte in
 * common, one of them writing, are ordered by engines and waits; and no wait is implied by the others. Plans are
 * those of random programs under small budgets. Then the cursor and the simulator on a plan of known times.
 */
#include "plan_support.h"

/* Reachability over two laps, as rows of bits. */
typedef struct order {
    size_t n;         /* actions of two laps */
    uint64_t *before; /* [n * words]: bit b of row a: b happens before a */
    size_t words;
} order;

static bool is_before(const order *o, size_t b, size_t a) {
    return (o->before[a * o->words + b / 64] >> (b % 64) & 1) != 0;
}

static void add_before(order *o, size_t b, size_t a) {
    for (size_t i = 0; i < o->words; i++) { o->before[a * o->words + i] |= o->before[b * o->words + i]; }
    o->before[a * o->words + b / 64] |= (uint64_t)1 << (b % 64);
}

/* The direct predecessors of a: the engine's action before, and the waits. */
static size_t find_predecessors(const ebb_schedule *s, size_t n, size_t a, size_t pred[EBB_MAX_ENGINES]) {
    size_t count = 0, at = a % n;
    if (s->engine[at] == EBB_NO_ENGINE) { return 0; }
    for (size_t b = a; b-- > 0;) {
        if (s->engine[b % n] != s->engine[at]) { continue; }
        pred[count++] = b;
        break;
    }
    for (uint64_t i = s->start[at]; i < s->start[at + 1]; i++) {
        size_t d = s->dep[i];
        assert_true(s->engine[d] != s->engine[at] && s->engine[d] != EBB_NO_ENGINE);
        if (d < at) {
            pred[count++] = a - at + d;
        } else if (a >= n) {
            pred[count++] = a - at - n + d;
        }
    }
    return count;
}

static void build_order(order *o, const ebb_schedule *s, size_t n) {
    o->n = 2 * n;
    o->words = (o->n + 63) / 64;
    o->before = calloc(o->n * o->words, sizeof *o->before);
    for (size_t a = 0; a < o->n; a++) {
        size_t pred[EBB_MAX_ENGINES], count = find_predecessors(s, n, a, pred);
        for (size_t i = 0; i < count; i++) { /* no wait that another implies */
            for (size_t k = 0; k < count; k++) { assert_false(i != k && k > 0 && is_before(o, pred[k], pred[i])); }
        }
        for (size_t i = 0; i < count; i++) { add_before(o, pred[i], a); }
    }
}

typedef struct range {
    uint64_t low, high;
    uint32_t space; /* the tier */
    bool writes;
} range;

static size_t find_ranges(const world *w, size_t a, range out[10]) {
    const bound_action *b = &w->bound[a];
    size_t n = 0;
    if (b->action.kind == EBB_ACT_DROP) { return 0; }
    if (!ebb__action_computes(&b->action)) {
        const bool is_out = b->action.kind == EBB_ACT_OUT, is_in = b->action.kind == EBB_ACT_IN;
        if (is_out || is_in) { out[n++] = (range){b->offset[0], b->offset[0] + b->n_bytes, EBB_DEVICE, is_in}; }
        if (!is_out) { out[n++] = (range){b->from, b->from + b->n_bytes, b->action.tier, false}; }
        if (!is_in) { out[n++] = (range){b->to, b->to + b->n_bytes, is_out ? b->action.tier : b->action.to, true}; }
        return n;
    }
    const ebb_step *step = &w->program->steps.data[b->action.target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->program->accesses.data[step->first_access + i];
        out[n++] =
            (range){b->offset[i], b->offset[i] + tensor_bytes(w, access->tensor), 0, (access->mode & EBB_WRITE) != 0};
    }
    if (b->scratch_bytes > 0) { out[n++] = (range){b->scratch, b->scratch + b->scratch_bytes, 0, true}; }
    return n;
}

/* What one action touches. */
typedef struct touched {
    range range[10];
    size_t n;
} touched;

static bool conflict(const touched *a, const touched *b) {
    for (size_t i = 0; i < a->n; i++) {
        const range x = a->range[i];
        for (size_t k = 0; k < b->n; k++) {
            const range y = b->range[k];
            if (x.space == y.space && x.low < y.high && y.low < x.high && (x.writes || y.writes)) { return true; }
        }
    }
    return false;
}

static void check_schedule(const ebb_program *p, const ebb_plan *plan, size_t *n_deps) {
    world w;
    ebb_schedule s;
    order o;
    size_t n = plan->actions.n;
    world_begin(&w, p, plan, 1);
    assert_int_equal(ebb__plan_schedule(p, plan, &w.bump, &s), EBB_OK);
    build_order(&o, &s, n);
    touched *touches = calloc(n, sizeof *touches);
    for (size_t a = 0; a < n; a++) { touches[a].n = find_ranges(&w, a, touches[a].range); }
    *n_deps += s.start[n];
    for (size_t a = 0; a < o.n; a++) {
        for (size_t b = 0; b < a; b++) {
            if (s.engine[a % n] == s.engine[b % n] || is_before(&o, b, a)) { continue; }
            assert_false(conflict(&touches[a % n], &touches[b % n]));
        }
    }
    free(touches);
    free(o.before);
    world_end(&w);
    world_free(&w);
}

static void test_random_plans(void **state) {
    (void)state;
    const uint64_t n = by_form(20, 60, 60);
    size_t n_deps = 0, n_plans = 0;
    for (uint64_t seed = 1000; seed < 1000 + n; seed++) {
        ebb_program *p = random_program(seed);
        ebb_machine *m = NULL;
        assert_int_equal(ebb_machine_create(NULL, &m), EBB_OK);
        ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
        options.policy = seed % 4 == 0 ? "best" : "budget";
        options.effort = 0;
        options.budget_bytes = ebb_program_floor_bytes(p, NULL) * (5 + seed % 4) / 4;
        if (seed % 5 == 0) { options.tier_bytes[EBB_DISK] = UINT64_MAX; }
        if (seed % 10 == 0) { options.tier_bytes[EBB_HOST] = 500; }
        ebb_plan *plan = NULL;
        if (ebb_plan_make(p, m, &options, &plan, NULL) == EBB_OK && plan->actions.n < 600) {
            check_schedule(p, plan, &n_deps);
            n_plans++;
        }
        ebb_plan_destroy(plan);
        ebb_machine_destroy(m);
        ebb_program_destroy(p);
    }
    print_message("%zu plans, %zu waits\n", n_plans, n_deps);
    assert_true(n_plans * 3 > n && n_deps > 200);
}

/* a, b, c in turn: x is copied out while b computes, its bytes are taken by z, and it comes back for d. */
static ebb_plan *make_known(ebb_program **program_out, ebb_machine **machine_out) {
    ebb_program *p = NULL;
    ebb_plan *plan = NULL;
    assert_int_equal(ebb_program_create(NULL, "known", 1, &p), EBB_OK);
    uint32_t x = make_tensor(p, 100, false, false), y = make_tensor(p, 10, false, false);
    uint32_t z = make_tensor(p, 100, false, false);
    STEP(p, 0, 50, {x, EBB_WRITE});
    STEP(p, 0, 30, {x, EBB_READ}, {y, EBB_WRITE});
    STEP(p, 0, 20, {y, EBB_READ}, {z, EBB_WRITE});
    STEP(p, 0, 40, {x, EBB_READ}, {y, EBB_UPDATE});
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e9, 2e9);
    plan = make_empty_plan(p, UINT64_MAX);
    ebb_action list[] = {ACT_RUN(0),  ACT_OUT(x), ACT_RUN(1), ACT_DROP(x), ACT_RUN(2),
                         ACT_DROP(z), ACT_IN(x),  ACT_RUN(3), ACT_DROP(x), ACT_DROP(y)};
    for (size_t i = 0; i < 10; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, list[i]), EBB_OK); }
    ebb_stay stays[] = {{x, 0, 3, 0, 100, 0}, {y, 2, 9, 100, 10, 0}, {z, 4, 5, 0, 100, 0}, {x, 6, 8, 0, 100, 0}};
    for (size_t i = 0; i < 4; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, stays[i]), EBB_OK); }
    ebb_slot slot = {x, EBB_HOST, 1, 7, 0, 100, 0};
    assert_int_equal(EBB_PUSH(NULL, &plan->slots, slot), EBB_OK);
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    *program_out = p;
    *machine_out = m;
    return plan;
}

static void test_known_times(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan *plan = make_known(&p, &m);
    ebb_timeline timeline;
    uint64_t start[10], end[10];
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, start, end), EBB_OK);
    /* x 0..50, out 50..150, b 50..80, c waits for the out: 150..170, in 170..220, d 220..260 */
    const uint64_t want_start[] = {0, 50, 50, 80, 150, 170, 170, 220, 260, 260};
    const uint64_t want_end[] = {50, 150, 80, 80, 170, 170, 220, 260, 260, 260};
    assert_memory_equal(start, want_start, sizeof start);
    assert_memory_equal(end, want_end, sizeof end);
    assert_int_equal(timeline.iteration_ns, 260);
    assert_int_equal(timeline.busy_ns[EBB_COMPUTE], 140);
    assert_int_equal(timeline.busy_ns[1], 100);
    assert_int_equal(timeline.busy_ns[2], 50);
    assert_int_equal(timeline.again_ns, 0);
    /* compute waits from 80 to 150 and from 170 to 220; the out for x, the in for z, which is dropped at 170 */
    assert_int_equal(timeline.stall_ns[EBB_COMPUTE], 120);
    assert_int_equal(timeline.stall_ns[1], 50);
    assert_int_equal(timeline.stall_ns[2], 170);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A copy and a step that go on at once slow each other. */
static void test_shares(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan *plan = make_known(&p, &m);
    ebb_link link;
    ebb_timeline timeline;
    uint64_t start[10], end[10];
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    link.work_rate[EBB_STEP_ARITHMETIC] = 0.5;
    link.copy_rate[EBB_STEP_ARITHMETIC] = 0.25;
    link.work_rate[EBB_STEP_TRAFFIC] = 1.0 / 1024;
    assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, start, end), EBB_OK);
    /* x 0..50, b 50..110 at half its rate, of the out 15 until then and the other 85 until 195, c 195..215, in ..265 */
    const uint64_t want_end[] = {50, 195, 110, 110, 215, 215, 265, 305, 305, 305};
    assert_memory_equal(end, want_end, sizeof end);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A machine may leave next to nothing of a rate: times are long then, but they end and are numbers. */
static void test_least_rates(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_link link;
    assert_int_equal(ebb_program_create(NULL, "slow", 1, &p), EBB_OK);
    const uint32_t x = make_tensor(p, 100, false, false), w = make_tensor(p, 100, true, false);
    STEP(p, 0, 50, {x, EBB_WRITE});
    STEP(p, 0, 0, {w, EBB_READ});
    STEP(p, 0, 50, {x, EBB_READ});
    assert_int_equal(ebb_program_finish(p), EBB_OK);
    ebb_plan *plan = make_empty_plan(p, UINT64_MAX);
    const ebb_action list[] = {ACT_RUN(0), ACT_OUT(x), ACT_IN(w), ACT_RUN(1), ACT_DROP(w), ACT_RUN(2), ACT_DROP(x)};
    const ebb_stay stays[] = {{x, 0, 6, 0, 100, 0}, {w, 2, 4, 100, 100, 0}};
    const ebb_slot slots[] = {{w, EBB_HOST, 0, 0, 100, 100, 0}, {x, EBB_HOST, 1, 6, 0, 100, 0}};
    for (size_t i = 0; i < 7; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->actions, list[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->stays, stays[i]), EBB_OK); }
    for (size_t i = 0; i < 2; i++) { assert_int_equal(EBB_PUSH(NULL, &plan->slots, slots[i]), EBB_OK); }
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    ebb_machine *m = make_plain_machine(EBB_HOST, 1e9, 5e8); /* so that both copy at one time */
    assert_true(ebb_machine_link(m, EBB_DEVICE, EBB_HOST, &link));
    const double rates[] = {1, 1e-3, 1e-300, 5e-324};
    uint64_t before_ns = 0;
    for (size_t i = 0; i < 4; i++) {
        ebb_timeline timeline;
        uint64_t start[7], end[7];
        link.both_rate = rates[i];
        assert_int_equal(ebb_machine_set_link(m, &link), EBB_OK);
        assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, start, end), EBB_OK);
        assert_true(timeline.iteration_ns >= before_ns && timeline.iteration_ns < UINT64_MAX);
        before_ns = timeline.iteration_ns;
        for (size_t a = 0; a < 7; a++) { assert_true(start[a] <= end[a] && end[a] < UINT64_MAX); }
        assert_true(start[3] >= end[2] && end[5] == timeline.iteration_ns);
    }
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

static void test_known_waits(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan *plan = make_known(&p, &m);
    ebb_bump bump;
    ebb_schedule s;
    ebb__bump_init(&bump, NULL);
    assert_int_equal(ebb__plan_schedule(p, plan, &bump, &s), EBB_OK);
    /* run 0 needs no wait for the lap before: its engine knows of the copies. out waits for run 0, run 2 for the out,
     * in for run 2, run 3 for the in. */
    const uint64_t start[] = {0, 0, 1, 1, 1, 2, 2, 3, 4, 4, 4}, dep[] = {0, 1, 4, 6};
    assert_memory_equal(s.start, start, sizeof start);
    assert_memory_equal(s.dep, dep, sizeof dep);
    ebb__bump_fini(&bump);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

/* A copy that is held waits for what is computed before it in the list, and no longer. */
static void test_held_waits(void **state) {
    (void)state;
    ebb_program *p = NULL;
    ebb_machine *m = NULL;
    ebb_plan *plan = make_known(&p, &m);
    ebb_timeline timeline;
    uint64_t start[10], end[10];
    const ebb_action out = plan->actions.data[1];
    plan->actions.data[1] = plan->actions.data[2]; /* b, then the copy out, held */
    plan->actions.data[2] = out;
    plan->actions.data[2].held = plan->actions.data[6].held = true;
    plan->stays.data[1].first = 1;
    plan->slots.data[0].first = 2;
    assert_int_equal(ebb_plan_check(p, plan), EBB_OK);
    assert_int_equal(ebb_plan_simulate(p, plan, m, &timeline, start, end), EBB_OK);
    /* x 0..50, b 50..80, out 80..180, c 180..200, in 200..250, d 250..290 */
    const uint64_t want_start[] = {0, 50, 80, 80, 180, 200, 200, 250, 290, 290};
    const uint64_t want_end[] = {50, 80, 180, 80, 200, 200, 250, 290, 290, 290};
    assert_memory_equal(start, want_start, sizeof start);
    assert_memory_equal(end, want_end, sizeof end);
    ebb_plan_destroy(plan);
    ebb_machine_destroy(m);
    ebb_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_plans), cmocka_unit_test(test_known_times),
                                       cmocka_unit_test(test_shares),       cmocka_unit_test(test_least_rates),
                                       cmocka_unit_test(test_known_waits),  cmocka_unit_test(test_held_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
