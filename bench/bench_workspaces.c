/* SPDX-License-Identifier: Apache-2.0
 *
 * What scratch memory is worth: training steps with each way to choose every step's algorithm, budget by budget.
 *
 *   bench_workspaces NET BATCH IMAGE BACKEND ROUNDS [tf32] [BUDGET%...]
 *
 * The planner takes choice 0 of every step, whatever the budget, so that bits do not depend on it. Here a step's
 * choices change places before the plan is made, which nobody above notices; the four ways:
 *
 *   given    the backend's order, as every run has it
 *   none     the one with the least scratch
 *   fitting  the fastest whose scratch fits into what the plan of `none` leaves free when the step runs
 *   fastest  the fastest
 *
 * Times are measured once, ahead. Prints CSV: way, per cent, budget, peak, most scratch of a step, predicted seconds,
 * rounds, and median, least and most seconds of an iteration; a budget that is too small has a 0 as rounds. Not a test.
 */
#include "backend/lower.h"
#include "ebb/ebb.h"

#include <inttypes.h>
#include <stdlib.h>

enum { MEASURE_REPS = 3, WARM_UP = 3, MAX_ROUNDS = 100 };

typedef enum way { WAY_GIVEN, WAY_NONE, WAY_FITTING, WAY_FASTEST, N_WAYS } way;
static const char *const way_names[N_WAYS] = {"given", "none", "fitting", "fastest"};

typedef struct bench {
    ebb_graph *graph;
    ebb_device *device;
    ebb_lowered *low;
    ebb_machine *machine;
    uint32_t *at_first; /* of each step: the choice that changed places with choice 0 */
    uint64_t *room;     /* of each step: bytes free when it runs */
    int n_rounds;
} bench;

static void must(ebb_status st) {
    if (st == EBB_OK) { return; }
    (void)fprintf(stderr, "bench_workspaces: %s\n", ebb_last_error());
    exit(st == EBB_E_NO_DEVICE ? 5 : 1);
}

static void *take(size_t n, size_t elem_bytes) {
    void *ptr = calloc(n + 1, elem_bytes);
    if (ptr == NULL) { must(ebb_fail(EBB_E_NO_MEMORY, "no memory")); }
    return ptr;
}

static void build(bench *b, char **argv, bool tf32) {
    ebb_zoo_options zoo = EBB_ZOO_OPTIONS_INIT;
    zoo.batch = atoi(argv[2]);
    zoo.height = zoo.width = atoi(argv[3]);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_device_options device = EBB_DEVICE_OPTIONS_INIT;
    device.tf32 = tf32;
    must(ebb_zoo_build(argv[1], &zoo, &b->graph));
    must(ebb_graph_train(b->graph, &optimizer, false));
    must(ebb_device_open(argv[4], &device, &b->device));
    must(ebb_lower(b->graph, b->device, &b->low));
    must(ebb_machine_create(NULL, &b->machine));
    must(ebb_run_measure_links(b->device, NULL, UINT64_MAX, b->machine));
    must(ebb_run_measure_steps(b->low, MEASURE_REPS, b->machine));
    b->at_first = take(b->low->steps.n, sizeof *b->at_first);
    b->room = take(b->low->steps.n, sizeof *b->room);
}

/* ---- choices ----------------------------------------------------------------------------------- */

static ebb_choice *choices_of(const bench *b, size_t s) {
    return &b->low->program->choices.data[b->low->program->steps.data[s].first_choice];
}

static void swap_with_first(const bench *b, size_t s, uint32_t c) {
    ebb_choice *choice = choices_of(b, s), held = choice[0];
    ebb_kernel **kernel = b->low->steps.data[s].kernel, *held_kernel = kernel[0];
    choice[0] = choice[c];
    choice[c] = held;
    kernel[0] = kernel[c];
    kernel[c] = held_kernel;
}

static uint32_t pick(const bench *b, size_t s, way w) {
    const ebb_choice *choice = choices_of(b, s);
    uint32_t least = 0, best = 0;
    const uint32_t n = w == WAY_GIVEN ? 1 : b->low->program->steps.data[s].n_choices;
    for (uint32_t c = 1; c < n; c++) {
        if (choice[c].scratch_bytes < choice[least].scratch_bytes) { least = c; }
    }
    if (w == WAY_GIVEN || w == WAY_NONE) { return least; }
    best = least;
    for (uint32_t c = 0; c < n; c++) {
        const bool fits = w == WAY_FASTEST || choice[c].scratch_bytes <= b->room[s];
        if (fits &&
            ebb_machine_step_time_ns(b->machine, &choice[c]) < ebb_machine_step_time_ns(b->machine, &choice[best])) {
            best = c;
        }
    }
    return best;
}

static void choose(bench *b, way w) {
    for (size_t s = 0; s < b->low->steps.n; s++) {
        swap_with_first(b, s, b->at_first[s]); /* as the backend gave them */
        b->at_first[s] = pick(b, s, w);
        swap_with_first(b, s, b->at_first[s]);
    }
}

static uint64_t most_scratch(const bench *b) {
    uint64_t most = 0;
    for (size_t s = 0; s < b->low->steps.n; s++) { most = ebb_max_u64(most, choices_of(b, s)->scratch_bytes); }
    return most;
}

/* What is free of the budget at each step's run under this plan, its own scratch included. */
static void find_room(bench *b, const ebb_plan *plan, uint64_t budget_bytes) {
    size_t n_actions = 0, n_stays = 0;
    const ebb_action *action = ebb_plan_actions(plan, &n_actions);
    const ebb_stay *stay = ebb_plan_stays(plan, &n_stays);
    uint64_t *change = take(n_actions + 1, sizeof *change), live = 0; /* modulo 2^64 */
    for (size_t i = 0; i < n_stays; i++) {
        if (stay[i].tensor == EBB_SCRATCH) { continue; }
        change[stay[i].first] += stay[i].size_bytes;
        change[stay[i].last] -= stay[i].size_bytes;
    }
    for (size_t a = 0; a < n_actions; a++) {
        live += change[a];
        if (action[a].kind != EBB_ACT_RUN) { continue; }
        b->room[action[a].target] = budget_bytes - ebb_min_u64(budget_bytes, live);
    }
    free(change);
}

/* ---- runs -------------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const bench *b, const ebb_plan *plan, uint64_t *ns) {
    ebb_run *run = NULL;
    must(ebb_run_create(b->low, plan, NULL, &run));
    must(ebb_run_init_values(run, 1));
    const ebb_value_info *images = &b->graph->values.data[b->graph->images];
    for (int64_t i = 0; i < ebb__shape_elements(&images->shape); i++) {
        ebb_run_images(run)[i] = (float)(i * 7919 % 1021) / 1021.0f - 0.5f;
    }
    for (int i = 0; i < b->n_rounds + WARM_UP; i++) {
        must(ebb_run_iteration(run, (uint64_t)i, (uint64_t)i + 1, 1e-4f));
        if (i >= WARM_UP) { ns[i - WARM_UP] = ebb_run_get_stats(run).iteration_ns; }
    }
    ebb_run_destroy(run);
    qsort(ns, (size_t)b->n_rounds, sizeof *ns, compare_times);
}

static bool plan_for(const bench *b, const char *policy, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.policy = policy;
    options.budget_bytes = budget_bytes;
    const ebb_status st = ebb_plan_make(b->low->program, b->machine, &options, plan_out, NULL);
    if (st != EBB_E_NO_FIT) { must(st); }
    return st == EBB_OK;
}

static void bench_way(bench *b, way w, int percent, uint64_t budget_bytes) {
    ebb_plan *plan = NULL;
    ebb_timeline timeline = {0};
    uint64_t ns[MAX_ROUNDS] = {0};
    choose(b, w);
    const bool fits = plan_for(b, "budget", budget_bytes, &plan);
    if (fits) {
        must(ebb_plan_simulate(b->low->program, plan, b->machine, &timeline, NULL, NULL));
        measure(b, plan, ns);
        if (w == WAY_NONE) { find_room(b, plan, budget_bytes); }
    }
    const uint64_t peak_bytes = fits ? ebb_plan_get_summary(plan).peak_bytes : 0;
    (void)printf("%s,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%d,%.6f,%.6f,%.6f\n", way_names[w], percent,
                 budget_bytes, peak_bytes, most_scratch(b), (double)timeline.iteration_ns * 1e-9,
                 fits ? b->n_rounds : 0, (double)ns[b->n_rounds / 2] * 1e-9, (double)ns[0] * 1e-9,
                 (double)ns[b->n_rounds - 1] * 1e-9);
    (void)fflush(stdout);
    ebb_plan_destroy(plan);
}

static void bench_budget(bench *b, int percent, uint64_t liveness_bytes) {
    const uint64_t budget_bytes = liveness_bytes / 100 * (uint64_t)percent;
    for (size_t s = 0; s < b->low->steps.n; s++) { b->room[s] = 0; }
    static const way order[] = {WAY_NONE, WAY_GIVEN, WAY_FITTING, WAY_FASTEST}; /* fitting stands on none */
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) { bench_way(b, order[i], percent, budget_bytes); }
}

int main(int argc, char **argv) {
    bench b = {.n_rounds = argc > 5 ? atoi(argv[5]) : 0};
    if (argc < 7 || b.n_rounds < 1 || b.n_rounds > MAX_ROUNDS) {
        (void)fprintf(stderr, "usage: bench_workspaces NET BATCH IMAGE BACKEND ROUNDS [tf32] BUDGET%%...\n");
        return 2;
    }
    const bool tf32 = strcmp(argv[6], "tf32") == 0;
    ebb_plan *plan = NULL;
    build(&b, argv, tf32);
    (void)plan_for(&b, "liveness", UINT64_MAX, &plan);
    const uint64_t liveness_bytes = ebb_plan_get_summary(plan).peak_bytes;
    ebb_plan_destroy(plan);
    (void)printf("way,percent,budget_bytes,peak_bytes,scratch_bytes,predicted_s,rounds,median_s,min_s,max_s\n");
    for (int i = tf32 ? 7 : 6; i < argc; i++) { bench_budget(&b, atoi(argv[i]), liveness_bytes); }
    return 0; /* the process ends: nothing is taken apart */
}
