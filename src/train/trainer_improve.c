/* SPDX-License-Identifier: Apache-2.0
 *
 * A better plan while training goes on. A thread plans again with more effort, inside the arena that there is. Between
 * two steps the trainer asks whether it has ended. If an iteration should be faster with its plan, the run parks, a run
 * of the new plan gets the values from it, and the old one goes. If any of that fails, the old one takes back its arena
 * and training goes on as before.
 *
 * The values are all that is remembered from step to step (trainer.c), and a step computes the same bits by any plan.
 * So training has the same bits whenever a plan is taken, which differs from run to run.
 */
#include "base/thread.h"
#include "train/trainer_priv.h"

#include <inttypes.h>
#include <stdatomic.h>

struct ebb_trainer_improving {
    const ebb_trainer *trainer; /* the thread reads its program and machine */
    ebb_plan_options options;
    pthread_t thread;
    atomic_bool is_done, is_stopped;
    ebb_status status;
    char message[512]; /* of the thread's failure */
    ebb_plan *plan;    /* once it is done; NULL: there is none */
};

typedef ebb_trainer_improving improving;

static bool is_stopped(void *ctx) {
    const improving *i = ctx;
    return atomic_load(&i->is_stopped);
}

static void *plan_again(void *arg) {
    improving *i = arg;
    const ebb_session *s = i->trainer->session;
    ebb__thread_stand_back();
    i->status = ebb_plan_make(s->program, s->machine, &i->options, &i->plan, NULL);
    if (i->status != EBB_OK) { (void)snprintf(i->message, sizeof i->message, "%s", ebb_last_error()); }
    atomic_store(&i->is_done, true);
    return NULL;
}

/* Whatever a tier holds for the plan, or beside it for evaluation, is not the new plan's: for a moment there are both.
 */
static void leave_tiers(const ebb_trainer *trainer, ebb_plan_options *options) {
    const ebb_plan_summary now = ebb_plan_get_summary(trainer->plan);
    ebb_plan_summary eval = {0};
    if (trainer->eval.plan != NULL) { eval = ebb_plan_get_summary(trainer->eval.plan); }
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) {
        uint64_t *limit_bytes = &options->tier_bytes[t];
        const uint64_t taken_bytes = ebb_max_u64(now.tier_bytes[t], eval.tier_bytes[t]);
        if (*limit_bytes != UINT64_MAX) { *limit_bytes -= ebb_min_u64(*limit_bytes, taken_bytes); }
    }
}

static ebb_status set_options(improving *i) {
    const ebb_trainer *trainer = i->trainer;
    ebb_plan_options *options = &i->options;
    const uint64_t slab_bytes = trainer->session->options.no_slab ? 0 : UINT64_MAX;
    EBB_TRY(ebb__trainer_plan_options(trainer, slab_bytes, options));
    leave_tiers(trainer, options);
    options->budget_bytes = ebb_arena_bytes(trainer->arena);
    options->effort = trainer->options.improve_effort;
    options->n_threads = 1;
    options->progress = (ebb_progress){0};
    options->stop = is_stopped;
    options->stop_ctx = i;
    return EBB_OK;
}

ebb_status ebb__trainer_improve_begin(ebb_trainer *trainer) {
    if (trainer->options.improve_effort == 0) { return EBB_OK; }
    improving *i = ebb__calloc(trainer->mem, 1, sizeof *i);
    if (i == NULL) { return EBB_E_NO_MEMORY; }
    i->trainer = trainer;
    ebb_status status = set_options(i);
    if (status == EBB_OK && ebb__thread_start(plan_again, i, &i->thread) != 0) {
        status = ebb_fail(EBB_E_NO_MEMORY, "no thread can be started to improve the plan");
    }
    if (status != EBB_OK) {
        ebb__free(trainer->mem, i);
        return status;
    }
    trainer->improving = i;
    return EBB_OK;
}

void ebb__trainer_improve_end(ebb_trainer *trainer) {
    improving *i = trainer->improving;
    if (i == NULL) { return; }
    atomic_store(&i->is_stopped, true);
    (void)pthread_join(i->thread, NULL);
    ebb_plan_destroy(i->plan);
    ebb__free(trainer->mem, i);
    trainer->improving = NULL;
}

/* ---- taking it --------------------------------------------------------------------------------- */

static ebb_status is_faster(const ebb_trainer *trainer, const ebb_plan *plan, bool *is_faster_out) {
    const ebb_session *s = trainer->session;
    ebb_timeline timeline;
    EBB_TRY(ebb_plan_simulate(s->program, plan, s->machine, &timeline, NULL, NULL));
    *is_faster_out = (double)timeline.iteration_ns * 1e-9 < trainer->info.step_time_predicted_s;
    return EBB_OK;
}

/* Beside what the run has now. */
static ebb_status check_room(const ebb_trainer *trainer, const ebb_plan *plan) {
    const uint64_t needed = ebb_plan_get_summary(plan).tier_bytes[EBB_HOST] + ebb_run_parked_bytes(trainer->run);
    const uint64_t free_bytes = ebb__session_host_free();
    if (needed <= free_bytes) { return EBB_OK; }
    return ebb_fail(EBB_E_NO_MEMORY, "it needs %" PRIu64 " bytes of the host's memory; %" PRIu64 " are free", needed,
                    free_bytes);
}

static ebb_status copy_values(ebb_trainer *trainer, ebb_run *to) {
    const ebb_graph *graph = trainer->session->graph;
    for (size_t v = 0; v < graph->values.n; v++) {
        if (!ebb__value_is_persistent(graph->values.data[v].kind)) { continue; }
        EBB_TRY(ebb_run_get_value(trainer->run, (ebb_value)v, trainer->staging));
        EBB_TRY(ebb_run_set_value(to, (ebb_value)v, trainer->staging));
    }
    return EBB_OK;
}

/* The run is parked. */
static ebb_status create_filled(ebb_trainer *trainer, const ebb_plan *plan, ebb_run **run_out) {
    ebb_run *run = NULL;
    EBB_TRY(ebb__trainer_create_run(trainer, trainer->session->lowered, plan, &run));
    const ebb_status status = copy_values(trainer, run);
    if (status != EBB_OK) {
        ebb_run_destroy(run);
        return status;
    }
    *run_out = run;
    return EBB_OK;
}

/* A batch that is being read ahead may be on its way to the old run's memory. The new run is fed anew. */
static void finish_reading(ebb_trainer *trainer) {
    if (!trainer->session->feeds_early) { return; }
    ebb__data_forget_ahead(trainer->train);
    trainer->is_fed = false;
}

/* The new run is there: from here on it is the run. */
static ebb_status replace_run(ebb_trainer *trainer, ebb_plan *plan, ebb_run *run) {
    ebb_run_destroy(trainer->run);
    ebb_plan_destroy(trainer->plan);
    trainer->run = run;
    trainer->plan = plan;
    trainer->n_times = 0; /* medians are of steps by one plan */
    trainer->info.plan = ebb_plan_get_summary(plan);
    trainer->info.policy = trainer->info.plan.policy; /* a plan's texts are its own */
    trainer->info.improved_at_step = trainer->step + 1;
    EBB_TRY(ebb__trainer_predict(trainer));
    return ebb__trainer_ports(run, &trainer->ports);
}

/* *plan_io goes to the trainer if it is taken. Nothing has changed if the failure is in *why_not_out. */
static ebb_status take_plan(ebb_trainer *trainer, ebb_plan **plan_io, ebb_status *why_not_out) {
    ebb_run *run = NULL;
    *why_not_out = check_room(trainer, *plan_io);
    if (*why_not_out != EBB_OK) { return EBB_OK; }
    finish_reading(trainer);
    *why_not_out = ebb_run_park(trainer->run);
    if (*why_not_out != EBB_OK) { return EBB_OK; }
    *why_not_out = create_filled(trainer, *plan_io, &run);
    if (*why_not_out != EBB_OK) { return ebb_run_unpark(trainer->run); }
    ebb_plan *plan = *plan_io;
    *plan_io = NULL;
    return replace_run(trainer, plan, run);
}

bool ebb__trainer_has_planned(const ebb_trainer *trainer) {
    return trainer->improving == NULL || atomic_load(&trainer->improving->is_done);
}

ebb_status ebb__trainer_take_better(ebb_trainer *trainer) {
    improving *i = trainer->improving;
    if (i == NULL || !ebb__trainer_has_planned(trainer)) { return EBB_OK; }
    bool faster = false;
    ebb_status status = EBB_OK, why_not = EBB_OK;
    if (i->status != EBB_OK) { why_not = ebb__fail_adopt(i->status, i->message); }
    if (why_not == EBB_OK) { why_not = is_faster(trainer, i->plan, &faster); }
    if (why_not == EBB_OK && faster) { status = take_plan(trainer, &i->plan, &why_not); }
    if (status == EBB_OK && why_not != EBB_OK && why_not != EBB_E_NO_FIT) {
        ebb__log(EBB_LOG_WARN, "no better plan is taken: %s", ebb_last_error());
    }
    ebb__trainer_improve_end(trainer);
    return status;
}
