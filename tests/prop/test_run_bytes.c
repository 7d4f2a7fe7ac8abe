/* SPDX-License-Identifier: Apache-2.0
 *
 * What a step does to the arena is what the plan says. The network of run_bits.h is trained command by command, with
 * every stream drained in between, and:
 *
 *  - before each command all bytes that no stay holds are filled with NaNs. A step that reads one of them, or that
 *    counts on what was there before the tensor that it brings, ends with other bits than an undisturbed run;
 *  - after each command every byte of the arena is as it was, but for those of the tensors that the command writes and
 *    its scratch.
 *
 * Stays and accesses are read from plan and program here, not from what the run made of them.
 */
#include "plan/plan_priv.h"
#include "run_bits.h"

#include <unistd.h>

typedef struct watch {
    ebb_run *run;
    ebb_stay *stays; /* as the plan has them */
    size_t n_stays;
    unsigned char *arena, *want, *fresh;
    uint64_t size_bytes;
    size_t spoil;    /* the command after which a byte is changed that is not its own; SIZE_MAX: none */
    size_t offender; /* the first command that wrote elsewhere; SIZE_MAX: none */
} watch;

static watch watch_begin(const ebb_lowered *low, const ebb_plan *plan) {
    watch w = {.spoil = SIZE_MAX, .offender = SIZE_MAX, .size_bytes = peak_of(plan)};
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.seed = 11;
    options.disk_dir = "/tmp";
    assert_int_equal(ebb_run_create(low, plan, &options, &w.run), EBB_OK);
    assert_int_equal(ebb_run_init_values(w.run, 5), EBB_OK);
    const ebb_stay *stays = ebb_plan_stays(plan, &w.n_stays);
    w.stays = malloc(w.n_stays * sizeof *stays);
    w.want = malloc(w.size_bytes);
    w.fresh = malloc(w.size_bytes);
    assert_true(w.stays != NULL && w.want != NULL && w.fresh != NULL);
    memcpy(w.stays, stays, w.n_stays * sizeof *stays);
    w.arena = low->device->ops->host_address((ebb_buf){.arena = w.run->arena->memory, .size_bytes = w.size_bytes});
    return w;
}

static void watch_end(watch *w) {
    ebb_run_destroy(w->run);
    free(w->stays);
    free(w->want);
    free(w->fresh);
}

/* Whether it holds its bytes as action a begins, and as it ends. */
static bool is_there_before(const ebb_stay *s, uint64_t a) {
    return s->first == s->last || (s->first < s->last ? s->first < a && a < s->last : a > s->first || a < s->last);
}

static bool is_there(const ebb_stay *s, uint64_t a) {
    return s->first == a || is_there_before(s, a);
}

/* NaNs in all that no stay holds. */
static void poison(watch *w, uint64_t a) {
    memset(w->fresh, 0xff, w->size_bytes);
    for (size_t s = 0; s < w->n_stays; s++) {
        const ebb_stay *stay = &w->stays[s];
        if (!is_there_before(stay, a)) { continue; }
        memcpy(w->fresh + stay->offset, w->arena + stay->offset, stay->size_bytes);
    }
    memcpy(w->arena, w->fresh, w->size_bytes);
}

static bool is_written(const watch *w, const ebb_action *action, uint32_t tensor) {
    if (action->kind == EBB_ACT_IN) { return tensor == action->target; }
    if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) { return false; }
    if (tensor == EBB_SCRATCH) { return true; }
    const ebb_program *program = w->run->lowered->program;
    const ebb_step *step = &program->steps.data[action->target];
    const ebb_access *accesses = &program->accesses.data[step->first_access];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (accesses[i].tensor == tensor && accesses[i].mode != EBB_READ) { return true; }
    }
    return false;
}

/* Take over what the command may have written; all else must be as it was. */
static void look(watch *w, uint64_t a) {
    const ebb_action *action = &ebb_plan_actions(w->run->plan, &(size_t){0})[a];
    bool is_spoilt = a != w->spoil;
    memcpy(w->want, w->fresh, w->size_bytes);
    for (size_t s = 0; s < w->n_stays; s++) {
        const ebb_stay *stay = &w->stays[s];
        if (!is_there(stay, a)) { continue; }
        if (is_written(w, action, stay->tensor)) {
            const bool is_part = action->kind == EBB_ACT_IN && action->size_bytes != EBB_WHOLE;
            if (is_part && (stay->begin < action->begin || stay->begin >= action->begin + action->size_bytes)) {
                continue;
            }
            memcpy(w->want + stay->offset, w->arena + stay->offset, stay->size_bytes);
        } else if (!is_spoilt) { /* the planted mistake */
            w->arena[stay->offset + stay->size_bytes / 2] ^= 1u;
            is_spoilt = true;
        }
    }
    const bool same = memcmp(w->want, w->arena, w->size_bytes) == 0;
    if (!same && w->offender == SIZE_MAX) { w->offender = a; }
}

static void iterate(watch *w, uint64_t i) {
    ebb_run *run = w->run;
    fill_batch(run, i);
    run->state.iteration = i;
    run->state.update = i + 1;
    run->state.learning_rate = 0.05f;
    for (size_t a = 0; a < run->n_commands; a++) {
        const uint32_t engine = run->commands[a].engine;
        ebb_run_command *c = &run->made[a];
        poison(w, a);
        if (engine == EBB_NO_ENGINE) { continue; }
        ebb_stream *stream = run->stream[engine];
        const bool is_kernel = engine == EBB_COMPUTE;
        assert_int_equal(is_kernel ? run->device->ops->run(stream, c->kernel, c->bound)
                                   : ebb__tiers_transfer(stream, &c->transfer),
                         EBB_OK);
        assert_int_equal(ebb__run_drain(run), EBB_OK);
        look(w, a);
    }
}

/* Only bits: measured figures are of undisturbed runs. */
static outcome train_watched(watch *w) {
    outcome out = {0};
    for (uint64_t i = 0; i < N_ITERATIONS; i++) {
        iterate(w, i);
        const float loss = run_loss(w->run);
        memcpy(&out.loss_bits[i], &loss, sizeof loss);
    }
    out.state_hash = hash_state(w->run, w->run->lowered->graph);
    return out;
}

static bool is_same(const outcome *a, const outcome *b) {
    return memcmp(a->loss_bits, b->loss_bits, sizeof a->loss_bits) == 0 && a->state_hash == b->state_hash;
}

static void expect_clean(const ebb_lowered *low, const ebb_plan *plan) {
    const outcome want = train(low, plan);
    watch w = watch_begin(low, plan);
    const outcome got = train_watched(&w);
    if (w.offender != SIZE_MAX) {
        const ebb_action *action = &ebb_plan_actions(plan, &(size_t){0})[w.offender];
        fail_msg("action %zu (kind %u) wrote to bytes that are not its own: %s", w.offender, action->kind,
                 action->kind <= EBB_ACT_AGAIN ? low->program->steps.data[action->target].name : "a copy");
    }
    assert_true(is_same(&got, &want));
    watch_end(&w);
}

static uint64_t least_budget(const ebb_lowered *low, uint32_t tier) {
    ebb_no_fit no_fit = {0};
    assert_null(make_plan(low, "budget", 64, tier, &no_fit));
    return no_fit.least_budget_bytes;
}

static ebb_lowered *open_lowered(const char *backend, ebb_graph **graph_out, ebb_device **device_out) {
    ebb_lowered *low = NULL;
    if (ebb_device_open(backend, NULL, device_out) != EBB_OK) { skip(); }
    *graph_out = make_graph();
    assert_int_equal(ebb_lower(*graph_out, *device_out, &low), EBB_OK);
    return low;
}

static void close_lowered(ebb_lowered *low, ebb_graph *graph, ebb_device *device) {
    ebb_lowered_destroy(low);
    ebb_graph_destroy(graph);
    ebb_device_close(device);
}

static void expect_clean_everywhere(const char *backend) {
    ebb_graph *graph = NULL;
    ebb_device *device = NULL;
    ebb_lowered *low = open_lowered(backend, &graph, &device);
    expect_clean(low, make_plan(low, "none", UINT64_MAX, EBB_HOST, NULL));
    expect_clean(low, make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL));
    expect_clean(low, make_plan(low, "budget", least_budget(low, EBB_HOST), EBB_HOST, NULL));
    expect_clean(low, make_plan(low, "budget", least_budget(low, EBB_DISK), EBB_DISK, NULL));
    close_lowered(low, graph, device);
}

static void ref_touches_what_the_plan_says(void **state) {
    (void)state;
    expect_clean_everywhere("ref");
}

static void cpu_touches_what_the_plan_says(void **state) {
    (void)state;
    expect_clean_everywhere("cpu");
}

/* A byte that a command changes and should not is found at that command; a stay that ends too early changes bits. */
static void planted_mistakes_are_found(void **state) {
    (void)state;
    ebb_graph *graph = NULL;
    ebb_device *device = NULL;
    ebb_lowered *low = open_lowered("ref", &graph, &device);
    const ebb_plan *plan = make_plan(low, "liveness", UINT64_MAX, EBB_HOST, NULL);
    const outcome want = train(low, plan);
    size_t n_actions = 0;
    const ebb_action *actions = ebb_plan_actions(plan, &n_actions);
    for (size_t a = 3; a < n_actions; a += 13) {
        if (actions[a].kind == EBB_ACT_DROP) { continue; }
        watch w = watch_begin(low, plan);
        w.spoil = a;
        iterate(&w, 0);
        assert_int_equal(w.offender, a);
        watch_end(&w);
    }
    size_t n_planted = 0;
    for (size_t s = 0; s < plan->stays.n && n_planted < 5; s++) {
        const ebb_stay *stay = &plan->stays.data[s];
        const bool is_kept = stay->tensor == EBB_SCRATCH || stay->first >= stay->last;
        if (is_kept || stay->last - stay->first < n_actions / 3) { continue; }
        watch w = watch_begin(low, plan);
        w.stays[s].last = stay->first + 1;
        const outcome got = train_watched(&w);
        assert_false(is_same(&got, &want));
        watch_end(&w);
        n_planted++;
    }
    assert_true(n_planted > 0);
    close_lowered(low, graph, device);
}

/* In an arena that is larger than the plan, pages alone say where the run ended. */
static void nothing_above_the_peak_is_touched(void **state) {
    (void)state;
    ebb_graph *graph = NULL;
    ebb_device *device = NULL;
    ebb_lowered *low = open_lowered("ref", &graph, &device);
    const ebb_plan *plan = make_plan(low, "budget", least_budget(low, EBB_HOST), EBB_HOST, NULL);
    const uint64_t peak = peak_of(plan), page = (uint64_t)sysconf(_SC_PAGESIZE);
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    assert_int_equal(ebb_arena_create(device, peak + 10 * page, &options.arena), EBB_OK);
    ebb_run *run = NULL;
    assert_int_equal(ebb_run_create(low, plan, &options, &run), EBB_OK);
    assert_int_equal(ebb_run_init_values(run, 5), EBB_OK);
    for (uint64_t i = 0; i < 2; i++) {
        fill_batch(run, i);
        assert_int_equal(ebb_run_iteration(run, i, i + 1, 0.05f), EBB_OK);
    }
    const uint64_t measured = ebb_run_get_stats(run).peak_bytes;
    if (measured != UINT64_MAX) { assert_in_range(measured, peak - page, peak + page); }
    ebb_run_destroy(run);
    ebb_arena_destroy(options.arena);
    close_lowered(low, graph, device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_touches_what_the_plan_says),
        cmocka_unit_test(cpu_touches_what_the_plan_says),
        cmocka_unit_test(planted_mistakes_are_found),
        cmocka_unit_test(nothing_above_the_peak_is_touched),
    };
    return cmocka_run_group_tests(tests, NULL, forget_plans);
}
