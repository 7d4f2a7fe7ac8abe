/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop. Step number s is batch s mod (batches in an epoch) of epoch s / (batches in an epoch), iteration
 * s and update s + 1: nothing else is remembered from step to step but the values themselves, so a step after
 * a checkpoint is the step that would have been.
 */
#include "train/trainer_priv.h"

#include <stdlib.h>

/* ---- create, destroy -------------------------------------------------------------------------- */

static ebb_status own_texts(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    const char **texts[] = {&o->data, &o->load_path, &o->checkpoint_path, &o->record_path, &o->plan_path};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) { EBB_TRY(ebb__bump_own(&trainer->bump, texts[i])); }
    return EBB_OK;
}

static void fill_info(ebb_trainer *trainer) {
    const ebb_session_options *o = &trainer->session->options;
    const ebb_graph *graph = trainer->session->graph;
    ebb_trainer_info *info = &trainer->info;
    info->net = o->net != NULL ? o->net : graph->name;
    info->backend = o->backend;
    info->policy = ebb_plan_get_summary(trainer->plan).policy;
    info->n_steps = trainer->options.n_steps;
    info->batch = o->batch;
    info->channels = o->channels;
    info->height = o->height;
    info->width = o->width;
    info->classes = o->classes;
    info->n_train_images = ebb_data_get_info(trainer->train).n_images;
    info->n_test_images = trainer->test != NULL ? ebb_data_get_info(trainer->test).n_images : 0;
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *value = &graph->values.data[v];
        if (value->kind == EBB_VALUE_PARAMETER) { info->n_parameters += (uint64_t)ebb__shape_elements(&value->shape); }
    }
}

/* The first content: a checkpoint's, or the seed's and then what is to be loaded. */
static ebb_status fill_values(ebb_trainer *trainer) {
    const ebb_trainer_options *o = &trainer->options;
    bool found = false;
    if (o->checkpoint_path != NULL) { EBB_TRY(ebb__trainer_resume(trainer, o->checkpoint_path, &found)); }
    trainer->info.first_step = trainer->step;
    if (found) { return EBB_OK; }
    EBB_TRY(ebb_run_init_values(trainer->run, o->seed));
    return o->load_path != NULL ? ebb__trainer_load(trainer, o->load_path) : EBB_OK;
}

static ebb_status set_up(ebb_trainer *trainer, ebb_no_fit *no_fit_out, char *step_name_out) {
    EBB_TRY(own_texts(trainer));
    EBB_TRY(ebb__trainer_open(trainer));
    EBB_TRY(ebb__trainer_plan(trainer, no_fit_out, step_name_out));
    fill_info(trainer);
    return fill_values(trainer);
}

ebb_status ebb_trainer_create(const ebb_trainer_options *options, ebb_trainer **trainer_out, ebb_no_fit *no_fit_out,
                              char *step_name_out) {
    EBB_NEED(options);
    EBB_NEED(trainer_out);
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "ebb_trainer_options of %zu bytes", options->size_bytes);
    }
    ebb_trainer *trainer = ebb__calloc(options->session.mem, 1, sizeof *trainer);
    if (trainer == NULL) { return EBB_E_NO_MEMORY; }
    trainer->mem = ebb__mem_or_default(options->session.mem);
    trainer->options = *options;
    ebb__bump_init(&trainer->bump, trainer->mem);
    ebb_status status = set_up(trainer, no_fit_out, step_name_out);
    if (status != EBB_OK) {
        ebb_trainer_destroy(trainer);
        return status;
    }
    *trainer_out = trainer;
    return EBB_OK;
}

void ebb_trainer_destroy(ebb_trainer *trainer) {
    if (trainer == NULL) { return; }
    const ebb_mem *mem = trainer->mem;
    ebb__trainer_improve_end(trainer);
    ebb_data_close(trainer->train); /* before the run: it may be reading a batch to its ports */
    ebb_run_destroy(trainer->run);
    ebb_arena_destroy(trainer->arena);
    ebb__free(mem, trainer->staging);
    ebb_plan_destroy(trainer->eval.plan);
    ebb_lowered_destroy(trainer->eval.lowered);
    ebb_graph_destroy(trainer->eval.graph);
    ebb_plan_destroy(trainer->plan);
    ebb_session_close(trainer->session);
    ebb_data_close(trainer->test);
    ebb__allowance_destroy(trainer->decoding);
    ebb__bump_fini(&trainer->bump);
    ebb__free(mem, trainer);
}

ebb_trainer_info ebb_trainer_get_info(const ebb_trainer *trainer) {
    return trainer->info;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static ebb_batch batch_of(const ebb_trainer *trainer, uint64_t step) {
    return (ebb_batch){
        .epoch = step / trainer->batches_per_epoch,
        .idx = step % trainer->batches_per_epoch,
        .n = trainer->session->options.batch,
    };
}

static ebb_status read_at(ebb_trainer *trainer, uint64_t step) {
    return ebb_data_read(trainer->train, batch_of(trainer, step), trainer->ports.images, trainer->ports.labels, NULL);
}

/* Fed early, the inputs' memories have changed places. */
static ebb_status turn_ports(ebb_trainer *trainer) {
    if (!trainer->session->feeds_early) { return EBB_OK; }
    trainer->other_ports = trainer->ports;
    return ebb__trainer_ports(trainer->run, &trainer->ports);
}

/* Fed early, this step has its batch, but for the first one. Take the next step's, ask for the one after it. */
static ebb_status read_next(ebb_trainer *trainer) {
    const uint64_t next = trainer->step + 1, n = trainer->options.n_steps;
    if (!trainer->is_fed) {
        EBB_TRY(read_at(trainer, trainer->step));
        EBB_TRY(ebb_run_feed(trainer->run));
        EBB_TRY(turn_ports(trainer));
        trainer->is_fed = true;
    }
    if (next < n) { EBB_TRY(read_at(trainer, next)); }
    if (next + 1 >= n) { return EBB_OK; }
    return ebb_data_prefetch_to(trainer->train, batch_of(trainer, next + 1), trainer->other_ports.images,
                                trainer->other_ports.labels);
}

/* Take this step's batch, ask for the next. */
static ebb_status read_batch(ebb_trainer *trainer) {
    if (trainer->session->feeds_early) { return read_next(trainer); }
    EBB_TRY(read_at(trainer, trainer->step));
    if (trainer->step + 1 == trainer->options.n_steps) { return EBB_OK; }
    return ebb_data_prefetch(trainer->train, batch_of(trainer, trainer->step + 1));
}

/* A loss that is not finite ends training, or is warned of once. */
static ebb_status judge_loss(ebb_trainer *trainer, const ebb_step_result *result) {
    const unsigned long long at = result->step;
    const double loss = ebb__shown((double)result->loss);
    if (isfinite(loss)) { return EBB_OK; }
    if (!trainer->options.keep_going) {
        return ebb_fail(EBB_E_NOT_FINITE, "step %llu: the loss is %g at a learning rate of %g; a smaller one may help",
                        at, loss, (double)result->learning_rate);
    }
    if (!trainer->warned) { ebb__log(EBB_LOG_WARN, "step %llu: the loss is %g", at, loss); }
    trainer->warned = true;
    return EBB_OK;
}

static ebb_status checkpoint_if_due(ebb_trainer *trainer) {
    const ebb_trainer_options *o = &trainer->options;
    if (o->checkpoint_path == NULL) { return EBB_OK; }
    bool due = o->checkpoint_every > 0 && trainer->step % o->checkpoint_every == 0;
    if (!due && trainer->step < o->n_steps) { return EBB_OK; }
    const ebb_status status = ebb_trainer_checkpoint(trainer, o->checkpoint_path);
    if (status != EBB_E_NOT_FINITE || !o->keep_going) { return status; }
    ebb__log(EBB_LOG_WARN, "%s", ebb_last_error());
    return EBB_OK;
}

/* Before the first of the last steps. */
static ebb_status record_if_due(ebb_trainer *trainer) {
    const ebb_trainer_options *o = &trainer->options;
    const uint64_t n_left = o->n_steps - trainer->step;
    if (o->record_path == NULL || trainer->is_recorded || n_left > ebb_max_u64(1, o->n_record_steps)) { return EBB_OK; }
    trainer->is_recorded = true;
    return ebb_run_record_next(trainer->run, o->record_path, n_left);
}

/* The iterations after which all that runs on the device is there: a backend may capture the second as a graph. */
#define N_SETTLING_STEPS 3

/* The plan knows the bytes beside the arena from before slab, streams and graphs were there. With them there may be
 * more, which breaks a budget that includes them. So they are measured again, and more is said. */
static ebb_status check_context(const ebb_trainer *trainer) {
    const uint64_t budget_bytes = trainer->session->options.budget_bytes;
    char taken[32], more[32];
    ebb_device_info info;
    if (!trainer->options.memory_includes_context || trainer->n_times != N_SETTLING_STEPS) { return EBB_OK; }
    EBB_TRY(ebb_device_get_info(trainer->session->device, &info));
    const uint64_t arena_bytes = ebb_align_up(ebb_arena_bytes(trainer->arena), ebb_max_u64(info.granule_bytes, 1));
    const uint64_t taken_bytes = arena_bytes + info.context_bytes;
    if (taken_bytes <= budget_bytes) { return EBB_OK; }
    ebb__log(
        EBB_LOG_WARN,
        "the device has %s taken, %s more than the memory given: so much came to the context after the plan was made",
        ebb_bytes_format(taken_bytes, taken, sizeof taken),
        ebb_bytes_format(taken_bytes - budget_bytes, more, sizeof more));
    return EBB_OK;
}

ebb_status ebb_trainer_step(ebb_trainer *trainer, ebb_step_result *result_out, bool *done_out) {
    EBB_NEED(trainer);
    EBB_NEED(result_out);
    EBB_NEED(done_out);
    const ebb_trainer_options *o = &trainer->options;
    if (trainer->step >= o->n_steps) {
        *done_out = true;
        return EBB_OK;
    }
    if (!trainer->is_recorded) { EBB_TRY(ebb__trainer_take_better(trainer)); }
    const uint64_t update = trainer->step + 1;
    ebb_step_result result = {.step = update, .learning_rate = ebb__lr_at(&o->schedule, o->learning_rate, update)};
    result.epoch = batch_of(trainer, trainer->step).epoch;
    result.is_improved = trainer->info.improved_at_step == update;
    const uint64_t begin_ns = ebb__now_ns();
    EBB_TRY(read_batch(trainer));
    result.wait_data_s = (double)(ebb__now_ns() - begin_ns) * 1e-9;
    EBB_TRY(record_if_due(trainer));
    EBB_TRY(ebb_run_iteration(trainer->run, trainer->step, update, result.learning_rate));
    trainer->step = update;
    EBB_TRY(turn_ports(trainer));
    const ebb_run_stats stats = ebb_run_get_stats(trainer->run);
    result.time_s = (double)stats.iteration_ns * 1e-9;
    result.loss = *trainer->ports.loss;
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        trainer->stalls_s[e][trainer->n_times % EBB_TRAINER_N_TIMES] = (float)stats.stall_ns[e] * 1e-9f;
    }
    trainer->times_s[trainer->n_times++ % EBB_TRAINER_N_TIMES] = (float)result.time_s;
    EBB_TRY(check_context(trainer));
    EBB_TRY(judge_loss(trainer, &result));
    EBB_TRY(checkpoint_if_due(trainer));
    *result_out = result;
    *done_out = false;
    return EBB_OK;
}

ebb_status ebb_trainer_record_status(const ebb_trainer *trainer) {
    EBB_NEED(trainer);
    return ebb_run_record_status(trainer->run);
}

/* ---- the summary ------------------------------------------------------------------------------ */

static int order_times(const void *a, const void *b) {
    const float fa = *(const float *)a, fb = *(const float *)b;
    return fa < fb ? -1 : fa > fb;
}

/* The median over the steps that are remembered. */
static double median_of(const ebb_trainer *trainer, const float times_s[EBB_TRAINER_N_TIMES]) {
    float sorted[EBB_TRAINER_N_TIMES];
    const size_t n = (size_t)ebb_min_u64(trainer->n_times, EBB_TRAINER_N_TIMES);
    if (n == 0) { return 0; }
    memcpy(sorted, times_s, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, order_times);
    return n % 2 == 1 ? (double)sorted[n / 2] : ((double)sorted[n / 2 - 1] + (double)sorted[n / 2]) / 2;
}

/* Before the first step it is not known either. */
static double median_stall(const ebb_trainer *trainer, const ebb_run_stats *stats, uint32_t engine) {
    return stats->stall_ns[engine] != UINT64_MAX ? median_of(trainer, trainer->stalls_s[engine]) : (double)NAN;
}

ebb_status ebb_trainer_summarize(ebb_trainer *trainer, ebb_trainer_summary *summary_out) {
    EBB_NEED(trainer);
    EBB_NEED(summary_out);
    ebb_trainer_summary summary = {
        .run = ebb_run_get_stats(trainer->run),
        .step_time_median_s = median_of(trainer, trainer->times_s),
        .again_time_s = (double)trainer->again_ns * 1e-9,
        .data_bytes = ebb__trainer_buffer_bytes(trainer),
    };
    if (trainer->eval_status == EBB_OK) { summary.data_bytes += ebb_run_parked_bytes(trainer->run); }
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        summary.stall_median_s[e] = median_stall(trainer, &summary.run, e);
    }
    if (summary.step_time_median_s > 0) {
        summary.images_per_s = (double)trainer->session->options.batch / summary.step_time_median_s;
    }
    EBB_TRY(ebb__trainer_hash(trainer, EBB_VALUES_WEIGHTS, summary.weights_sha256, NULL));
    ebb_device_info device;
    EBB_TRY(ebb_device_get_info(trainer->session->device, &device));
    summary.context_bytes = device.context_bytes;
    const ebb_resident resident = ebb__resident_get();
    summary.constant_bytes = trainer->before_bytes + resident.file_bytes;
    summary.resident_peak_bytes = resident.peak_bytes;
    *summary_out = summary;
    return EBB_OK;
}
