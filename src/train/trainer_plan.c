/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets and plans. The device's budget is the caller's; the host's is shared out:
 *
 *      host_bytes = data's buffers + batches at the run's ports + staging of values + parked state + slab + decoding
 *
 * where parked state is what training leaves on the host while the evaluated network has the arena, and the
 * slab gets what is left but a part for decoding, to which comes what the plans do not use. Without host_bytes, where
 * a disk or a remote can have the rest, the slab gets what is free on the machine less the others. Both networks are
 * planned before anything is taken, so that one arena of the larger peak serves both.
 */
#include "train/trainer_priv.h"

#include <inttypes.h>

#define MEASURE_REPS 2
#define STEP_NAME_BYTES 128

/* ---- the machine ------------------------------------------------------------------------------ */

static ebb_status find_machine(ebb_trainer *trainer) {
    ebb_session *s = trainer->session;
    EBB_TRY(ebb__session_open_machine(s));
    if (s->options.machine_path != NULL) { return EBB_OK; }
    const ebb_progress *progress = &trainer->options.progress;
    ebb__tell(progress, "measuring the machine", 0, 0);
    const uint64_t floor_bytes = ebb_program_floor_bytes(s->program, NULL);
    const ebb_session_options *o = &s->options;
    EBB_TRY(ebb_run_measure_links(s->device, o->disk_dir, o->io, o->remote, floor_bytes, s->machine));
    ebb_measure_options options = EBB_MEASURE_OPTIONS_INIT;
    options.reps = MEASURE_REPS;
    options.all_choices = strcmp(s->options.algorithms, "given") != 0;
    options.progress = *progress;
    return ebb_run_measure_steps(s->lowered, &options, s->machine);
}

/* ---- the host's budget ------------------------------------------------------------------------ */

static uint64_t largest_value(const ebb_graph *graph) {
    uint64_t largest = 0;
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (!ebb__value_is_persistent(info->kind) && !info->kept) { continue; }
        largest = ebb_max_u64(largest, (uint64_t)ebb__shape_elements(&info->shape));
    }
    return largest;
}

uint64_t ebb__lasting_bytes(const ebb_lowered *lowered) {
    size_t n = 0;
    uint64_t bytes = 0;
    const ebb_tensor *tensors = ebb_program_tensors(ebb_lowered_program(lowered), &n);
    for (size_t t = 0; t < n; t++) { bytes += tensors[t].persistent || tensors[t].kept ? tensors[t].size_bytes : 0; }
    return bytes;
}

uint64_t ebb__trainer_buffer_bytes(const ebb_trainer *trainer) {
    const ebb_session_options *o = &trainer->session->options;
    const uint64_t batch = (uint64_t)(o->batch * o->channels * o->height * o->width) * sizeof(float) +
                           (uint64_t)o->batch * sizeof(int32_t);
    const uint64_t n_batches = trainer->session->feeds_early ? 2 : 1;
    uint64_t bytes = ebb_data_get_info(trainer->train).host_bytes + n_batches * batch;
    if (trainer->test != NULL) { bytes += ebb_data_get_info(trainer->test).host_bytes + batch; }
    bytes += ebb__allowance_peak(trainer->decoding);
    return bytes + 2 * trainer->staging_elements * sizeof(float); /* plain, and as it lies on the device */
}

/* What the slab leaves for decoding in any case: an eighth, within what any picture takes row by row. */
static uint64_t decoding_share(uint64_t host_bytes) {
    return ebb_max_u64(EBB_IMAGE_LEAST_BYTES, ebb_min_u64(EBB_IMAGE_THREAD_BYTES, host_bytes / 8));
}

/* What the slab may have. */
static ebb_status share_host(const ebb_trainer *trainer, uint64_t *slab_bytes_out, ebb_no_fit *no_fit_out) {
    const uint64_t limit = trainer->session->options.host_bytes;
    *slab_bytes_out = trainer->session->options.no_slab ? 0 : UINT64_MAX;
    if (limit == 0) { return EBB_OK; }
    const bool decodes = ebb__data_decodes(trainer->train);
    const uint64_t buffers = ebb__trainer_buffer_bytes(trainer) + (decodes ? EBB_IMAGE_LEAST_BYTES : 0);
    const uint64_t parked = trainer->test != NULL ? ebb__lasting_bytes(trainer->session->lowered) : 0;
    if (buffers + parked > limit) {
        if (no_fit_out != NULL) { *no_fit_out = (ebb_no_fit){.least_host_bytes = buffers + parked}; }
        return ebb_fail(EBB_E_NO_FIT,
                        "host memory: data and values need %" PRIu64 " bytes, state during evaluation %" PRIu64
                        ", together at least %" PRIu64 "; %" PRIu64 " are allowed",
                        buffers, parked, buffers + parked, limit);
    }
    const uint64_t rest = limit - buffers - parked;
    const uint64_t more = decodes ? decoding_share(limit) - EBB_IMAGE_LEAST_BYTES : 0;
    if (!trainer->session->options.no_slab) { *slab_bytes_out = rest - ebb_min_u64(rest, more); }
    return EBB_OK;
}

static uint64_t slab_bytes_of(const ebb_plan *plan) {
    return plan != NULL ? ebb_plan_get_summary(plan).tier_bytes[EBB_HOST] : 0;
}

/* All that is left now that the plans are made. */
static void limit_decoding(ebb_trainer *trainer) {
    const uint64_t limit = trainer->session->options.host_bytes;
    if (limit == 0) { return; }
    uint64_t taken = ebb__trainer_buffer_bytes(trainer) + slab_bytes_of(trainer->plan);
    if (trainer->test != NULL) {
        taken += ebb__lasting_bytes(trainer->session->lowered) + slab_bytes_of(trainer->eval.plan);
    }
    ebb__allowance_limit(trainer->decoding, limit - ebb_min_u64(limit, taken));
}

/* ---- plans ------------------------------------------------------------------------------------ */

/* What of the budget is the context's. */
static uint64_t context_share(const ebb_trainer *trainer) {
    return trainer->options.memory_includes_context ? trainer->info.context_bytes : 0;
}

/* What else the host will hold, where there is a limit: buffers, and while the other network has the arena, what is
 * parked and the other slab. */
static uint64_t other_bytes(const ebb_trainer *trainer) {
    const uint64_t parked = trainer->test != NULL ? ebb__lasting_bytes(trainer->session->lowered) : 0;
    return ebb__trainer_buffer_bytes(trainer) + parked + slab_bytes_of(trainer->plan);
}

ebb_status ebb__trainer_plan_options(const ebb_trainer *trainer, uint64_t slab_bytes, ebb_plan_options *options_out) {
    EBB_TRY(ebb_session_plan_options(trainer->session, options_out));
    uint64_t *budget_bytes = &options_out->budget_bytes;
    const uint64_t context_bytes = context_share(trainer);
    if (context_bytes > 0) {
        *budget_bytes = ebb_max_u64(*budget_bytes - ebb_min_u64(*budget_bytes, context_bytes), 1);
    }
    uint64_t *room_bytes = &options_out->tier_bytes[EBB_HOST];
    if (*room_bytes != UINT64_MAX) { *room_bytes -= ebb_min_u64(*room_bytes, other_bytes(trainer)); }
    *room_bytes = ebb_min_u64(*room_bytes, slab_bytes);
    return EBB_OK;
}

/* After what was measured, for which libraries have loaded what they need. */
static ebb_status find_context(ebb_trainer *trainer) {
    ebb_device_info info;
    EBB_TRY(ebb_device_get_info(trainer->session->device, &info));
    trainer->info.context_bytes = info.context_bytes;
    return EBB_OK;
}

/* The least budget as the caller counts it. */
static ebb_status add_context(const ebb_trainer *trainer, ebb_no_fit *no_fit) {
    const uint64_t context_bytes = context_share(trainer);
    if (context_bytes == 0 || no_fit->least_budget_bytes == 0) { return EBB_E_NO_FIT; }
    no_fit->least_budget_bytes += context_bytes;
    return ebb_fail(EBB_E_NO_FIT, "%s; with the context's %llu bytes: %llu", ebb_last_error(),
                    (unsigned long long)context_bytes, (unsigned long long)no_fit->least_budget_bytes);
}

/* The plan that was made before, if there is one, is for this program, and the host has room for its copies. It also
 * says how algorithms are chosen. */
static ebb_status load_plan(ebb_trainer *trainer, uint64_t slab_bytes, ebb_no_fit *no_fit_out) {
    const char *path = trainer->options.plan_path;
    if (path == NULL) { return EBB_OK; }
    EBB_TRY(ebb_plan_load(trainer->mem, path, &trainer->plan));
    const ebb_status status = ebb_plan_check(trainer->session->program, trainer->plan);
    if (status == EBB_E_INVALID_PLAN) { return ebb_fail(status, "%s: %s", path, ebb_last_error()); }
    if (status != EBB_OK) { return status; }
    trainer->session->options.algorithms = ebb_plan_get_summary(trainer->plan).algorithms;
    const uint64_t needed_bytes = slab_bytes_of(trainer->plan);
    if (needed_bytes <= slab_bytes) { return EBB_OK; }
    const uint64_t limit = ebb_max_u64(trainer->session->options.host_bytes, slab_bytes);
    if (no_fit_out != NULL) { *no_fit_out = (ebb_no_fit){.least_host_bytes = needed_bytes + (limit - slab_bytes)}; }
    return ebb_fail(EBB_E_NO_FIT, "%s: it keeps %" PRIu64 " bytes in the host's memory, where %" PRIu64 " are left",
                    path, needed_bytes, slab_bytes);
}

static ebb_status plan_learning(ebb_trainer *trainer, uint64_t slab_bytes, ebb_no_fit *no_fit_out,
                                char *step_name_out) {
    if (trainer->plan != NULL) { return EBB_OK; }
    ebb_plan_options options;
    EBB_TRY(ebb__trainer_plan_options(trainer, slab_bytes, &options));
    ebb_no_fit no_fit = {0};
    const ebb_session *s = trainer->session;
    ebb_status status = ebb_plan_make(s->program, s->machine, &options, &trainer->plan, &no_fit);
    if (status != EBB_E_NO_FIT) { return status; }
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(s->program, &n_steps);
    status = add_context(trainer, &no_fit);
    if (no_fit_out != NULL) { *no_fit_out = no_fit; }
    if (step_name_out != NULL) {
        (void)snprintf(step_name_out, STEP_NAME_BYTES, "%s", no_fit.step < n_steps ? steps[no_fit.step].name : "");
    }
    return status;
}

/* What training has of the remote tier is not evaluation's. */
static void leave_remote(const ebb_trainer *trainer, ebb_plan_options *options) {
    const uint32_t remote = ebb_topology_tier_of(ebb_machine_topology(trainer->session->machine), EBB_STORE_REMOTE);
    if (remote == EBB_MAX_TIERS) { return; }
    uint64_t *limit_bytes = &options->tier_bytes[remote];
    *limit_bytes -= ebb_min_u64(*limit_bytes, ebb_plan_get_summary(trainer->plan).tier_bytes[remote]);
}

/* That evaluation does not fit stops no training: it is said when someone asks for one. */
static ebb_status plan_evaluation(ebb_trainer *trainer, uint64_t slab_bytes) {
    if (trainer->test == NULL) { return EBB_OK; }
    const uint64_t taken = slab_bytes_of(trainer->plan);
    if (slab_bytes != UINT64_MAX) { slab_bytes -= ebb_min_u64(slab_bytes, taken); }
    ebb_plan_options options;
    EBB_TRY(ebb__trainer_plan_options(trainer, slab_bytes, &options));
    if (options.slowdown >= 0 || trainer->options.plan_path != NULL) { /* the arena is there already */
        options.budget_bytes = ebb_plan_get_summary(trainer->plan).peak_bytes;
        options.slowdown = -1;
    }
    leave_remote(trainer, &options);
    options.policy = options.budget_bytes != UINT64_MAX ? "best" : "liveness";
    ebb_no_fit no_fit = {0};
    ebb_status status = ebb_plan_make(ebb_lowered_program(trainer->eval.lowered), trainer->session->machine, &options,
                                      &trainer->eval.plan, &no_fit);
    if (status != EBB_E_NO_FIT) { return status; }
    status = add_context(trainer, &no_fit);
    trainer->info.eval_no_fit = no_fit;
    ebb__log(EBB_LOG_WARN, "no evaluation: %s", ebb_last_error());
    trainer->eval_status = status;
    trainer->eval_message = ebb__bump_printf(&trainer->bump, "evaluation: %s", ebb_last_error());
    return trainer->eval_message != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

ebb_status ebb__trainer_predict(ebb_trainer *trainer) {
    const ebb_session *s = trainer->session;
    ebb_timeline timeline;
    EBB_TRY(ebb_plan_simulate(s->program, trainer->plan, s->machine, &timeline, NULL, NULL));
    trainer->info.step_time_predicted_s = (double)timeline.iteration_ns * 1e-9;
    const ebb_topology *topology = ebb_plan_topology(trainer->plan);
    trainer->info.n_engines = topology->n_engines;
    for (uint32_t e = 0; e < topology->n_engines; e++) {
        trainer->info.engine_name[e] = topology->engine[e];
        trainer->info.busy_predicted_s[e] = (double)timeline.busy_ns[e] / 1e9;
        trainer->info.stall_predicted_s[e] = (double)timeline.stall_ns[e] / 1e9;
    }
    trainer->again_ns = timeline.again_ns;
    trainer->info.choices = ebb_plan_choice_figures(s->program, trainer->plan, s->machine);
    return EBB_OK;
}

/* ---- taking the memory ------------------------------------------------------------------------ */

ebb_status ebb__trainer_create_run(const ebb_trainer *trainer, const ebb_lowered *lowered, const ebb_plan *plan,
                                   ebb_run **run_out) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    options.mem = trainer->mem;
    options.arena = trainer->arena;
    options.disk_dir = trainer->session->options.disk_dir;
    options.io = trainer->session->options.io;
    options.remote = trainer->session->options.remote;
    options.seed = trainer->options.seed;
    return ebb_run_create(lowered, plan, &options, run_out);
}

/* What the plans need, and for a better plan later on all of the budget that a plan can use. */
static uint64_t arena_bytes_of(const ebb_trainer *trainer) {
    uint64_t bytes = trainer->info.plan.peak_bytes;
    const uint64_t usable_bytes = ebb_min_u64(trainer->info.plan.budget_bytes, trainer->info.liveness_bytes);
    if (trainer->options.improve_effort > 0) { bytes = ebb_max_u64(bytes, usable_bytes); }
    if (trainer->eval.plan == NULL) { return bytes; }
    return ebb_max_u64(bytes, ebb_plan_get_summary(trainer->eval.plan).peak_bytes);
}

static ebb_status take_memory(ebb_trainer *trainer) {
    const uint64_t resident = ebb__resident_get().anonymous_bytes;
    trainer->before_bytes = resident > trainer->data_resident_bytes ? resident - trainer->data_resident_bytes : 0;
    ebb__resident_reset_peak(); /* measuring took some that is free again */
    trainer->info.plan = ebb_plan_get_summary(trainer->plan);
    trainer->staging = ebb__alloc(trainer->mem, (size_t)trainer->staging_elements, sizeof *trainer->staging);
    if (trainer->staging == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb_arena_create(trainer->session->device, arena_bytes_of(trainer), &trainer->arena));
    EBB_TRY(ebb__trainer_create_run(trainer, trainer->session->lowered, trainer->plan, &trainer->run));
    return ebb__trainer_ports(trainer->run, &trainer->ports);
}

ebb_status ebb__trainer_plan(ebb_trainer *trainer, ebb_no_fit *no_fit_out, char *step_name_out) {
    trainer->staging_elements = largest_value(trainer->session->graph);
    uint64_t slab_bytes = 0;
    EBB_TRY(share_host(trainer, &slab_bytes, no_fit_out));
    EBB_TRY(load_plan(trainer, slab_bytes, no_fit_out));
    EBB_TRY(find_machine(trainer));
    EBB_TRY(find_context(trainer));
    ebb__tell(&trainer->options.progress, "planning", 0, 0);
    EBB_TRY(ebb_session_liveness_bytes(trainer->session, &trainer->info.liveness_bytes));
    EBB_TRY(plan_learning(trainer, slab_bytes, no_fit_out, step_name_out));
    EBB_TRY(plan_evaluation(trainer, slab_bytes));
    limit_decoding(trainer);
    EBB_TRY(ebb__trainer_predict(trainer));
    ebb__tell(&trainer->options.progress, "taking the memory", 0, 0);
    EBB_TRY(take_memory(trainer));
    return ebb__trainer_improve_begin(trainer);
}
