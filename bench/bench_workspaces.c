/* SPDX-License-Identifier: Apache-2.0
 *
 * What scratch memory is worth: training steps with each way to choose every step's algorithm, budget by budget.
 *
 *   bench_workspaces NET BATCH IMAGE BACKEND ROUNDS [tf32] BUDGET%...
 *
 * The ways are the planner's (ebb_algorithms_name); for a choice of fitting that trades, see src/plan/fitting.c.
 *
 * Times are measured once, ahead. Prints CSV: way, per cent, budget, peak, most scratch of a step, predicted seconds,
 * rounds, and median, least and most seconds of an iteration; a budget that is too small has a 0 as rounds. Not a test.
 */
#include "ebb/ebb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEASURE_REPS = 3, WARM_UP = 3, MAX_ROUNDS = 100 };

typedef struct bench {
    ebb_session *session;
    ebb_session_parts parts;
    int n_rounds;
} bench;

static void must(ebb_status st) {
    if (st == EBB_OK) { return; }
    (void)fprintf(stderr, "bench_workspaces: %s\n", ebb_last_error());
    exit(st == EBB_E_NO_DEVICE ? 5 : 1);
}

static void build(bench *b, char **argv, bool tf32) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    options.net = argv[1];
    options.batch = atoi(argv[2]);
    options.height = options.width = atoi(argv[3]);
    options.backend = argv[4];
    options.tf32 = tf32;
    options.feed = "first"; /* one batch in one place serves all iterations */
    must(ebb_session_open(&options, &b->session));
    b->parts = ebb_session_get_parts(b->session);
    must(ebb_run_measure_links(b->parts.device, NULL, NULL, NULL, UINT64_MAX, b->parts.machine));
    ebb_measure_options measuring = EBB_MEASURE_OPTIONS_INIT;
    measuring.reps = MEASURE_REPS;
    measuring.all_choices = true;
    must(ebb_run_measure_steps(b->parts.lowered, &measuring, b->parts.machine));
}

/* ---- runs -------------------------------------------------------------------------------------- */

static int compare_times(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const bench *b, const ebb_plan *plan, uint64_t *ns) {
    ebb_run *run = NULL;
    must(ebb_run_create(b->parts.lowered, plan, NULL, &run));
    must(ebb_run_init_values(run, 1));
    void *images = NULL;
    ebb_port port;
    must(ebb_run_port(run, "images", &images, &port));
    for (uint64_t i = 0; i < port.size_bytes / sizeof(float); i++) {
        ((float *)images)[i] = (float)(i * 7919 % 1021) / 1021.0f - 0.5f;
    }
    for (int i = 0; i < b->n_rounds + WARM_UP; i++) {
        must(ebb_run_iteration(run, (uint64_t)i, (uint64_t)i + 1, 1e-4f));
        if (i >= WARM_UP) { ns[i - WARM_UP] = ebb_run_get_stats(run).iteration_ns; }
    }
    ebb_run_destroy(run);
    qsort(ns, (size_t)b->n_rounds, sizeof *ns, compare_times);
}

static bool plan_for(const bench *b, const char *way, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    options.algorithms = way;
    options.budget_bytes = budget_bytes;
    const ebb_status st = ebb_plan_make(b->parts.program, b->parts.machine, &options, plan_out, NULL);
    if (st != EBB_E_NO_FIT) { must(st); }
    return st == EBB_OK;
}

static void bench_way(const bench *b, const char *way, int percent, uint64_t budget_bytes) {
    ebb_plan *plan = NULL;
    ebb_timeline timeline = {0};
    ebb_choice_figures choices = {0};
    uint64_t ns[MAX_ROUNDS] = {0};
    const bool fits = plan_for(b, way, budget_bytes, &plan);
    if (fits) {
        must(ebb_plan_simulate(b->parts.program, plan, b->parts.machine, &timeline, NULL, NULL));
        choices = ebb_plan_choice_figures(b->parts.program, plan, b->parts.machine);
        measure(b, plan, ns);
    }
    const uint64_t peak_bytes = fits ? ebb_plan_get_summary(plan).peak_bytes : 0;
    (void)printf("%s,%d,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%.6f,%d,%.6f,%.6f,%.6f\n", way, percent, budget_bytes,
                 peak_bytes, choices.most_scratch_bytes, (double)timeline.iteration_ns * 1e-9, fits ? b->n_rounds : 0,
                 (double)ns[b->n_rounds / 2] * 1e-9, (double)ns[0] * 1e-9, (double)ns[b->n_rounds - 1] * 1e-9);
    (void)fflush(stdout);
    ebb_plan_destroy(plan);
}

static void bench_budget(const bench *b, int percent, uint64_t liveness_bytes) {
    const uint64_t budget_bytes = liveness_bytes / 100 * (uint64_t)percent;
    const char *way = NULL;
    for (size_t i = 0; (way = ebb_algorithms_name(i, NULL)) != NULL; i++) { bench_way(b, way, percent, budget_bytes); }
}

int main(int argc, char **argv) {
    bench b = {.n_rounds = argc > 5 ? atoi(argv[5]) : 0};
    if (argc < 7 || b.n_rounds < 1 || b.n_rounds > MAX_ROUNDS) {
        (void)fprintf(stderr, "usage: bench_workspaces NET BATCH IMAGE BACKEND ROUNDS [tf32] BUDGET%%...\n");
        return 2;
    }
    const bool tf32 = strcmp(argv[6], "tf32") == 0;
    uint64_t liveness_bytes = 0;
    build(&b, argv, tf32);
    must(ebb_session_liveness_bytes(b.session, &liveness_bytes));
    (void)printf("way,percent,budget_bytes,peak_bytes,scratch_bytes,predicted_s,rounds,median_s,min_s,max_s\n");
    for (int i = tf32 ? 7 : 6; i < argc; i++) { bench_budget(&b, atoi(argv[i]), liveness_bytes); }
    return 0; /* the process ends: nothing is taken apart */
}
