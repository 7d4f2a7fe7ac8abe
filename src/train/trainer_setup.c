/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a lowered network: the data says what it has, the network what it wants where neither the
 * caller nor the data do, and from then on every size in the options is a real one.
 */
#include "train/trainer_priv.h"

#include <inttypes.h>

#define DEFAULT_ENDLESS_STEPS 100

/* ---- networks --------------------------------------------------------------------------------- */

static ebb_status build(const ebb_trainer *trainer, bool inference, ebb_graph **graph_out) {
    const ebb_trainer_options *o = &trainer->options;
    ebb_zoo_options zoo = EBB_ZOO_OPTIONS_INIT;
    zoo.mem = trainer->mem;
    zoo.batch = o->batch;
    zoo.channels = o->channels;
    zoo.height = o->height;
    zoo.width = o->width;
    zoo.classes = o->classes;
    zoo.inference = inference;
    zoo.no_dropout = o->no_dropout;
    ebb_graph *graph = NULL;
    EBB_TRY(o->net != NULL ? ebb_zoo_build(o->net, &zoo, &graph) : o->network_fn(o->network_ctx, &zoo, &graph));
    ebb_status status = ebb_graph_check(graph);
    const ebb_port *images = ebb__graph_port(graph, "images");
    const bool has_images = images != NULL && images->is_input && images->n_dims == 4 && images->dtype == EBB_F32;
    if (status == EBB_OK && (!has_images || graph->loss == EBB_NO_VALUE)) {
        status = ebb_fail(EBB_E_ARGUMENT, "network %s: it has no images, or no loss", graph->name);
    }
    if (status != EBB_OK) {
        ebb_graph_destroy(graph);
        return status;
    }
    *graph_out = graph;
    return EBB_OK;
}

ebb_status ebb__trainer_prepare(ebb_trainer *trainer, bool inference, ebb_prepared *prepared) {
    const ebb_trainer_options *o = &trainer->options;
    EBB_TRY(build(trainer, inference, &prepared->graph));
    if (!inference) {
        EBB_TRY(ebb_graph_train(prepared->graph, o->keep_gradients ? NULL : &o->optimizer, o->keep_gradients));
    }
    return ebb_lower(prepared->graph, trainer->device, &prepared->lowered);
}

ebb_status ebb__trainer_ports(ebb_run *run, ebb_trainer_ports *ports_out) {
    void *images = NULL, *labels = NULL, *loss = NULL, *correct = NULL;
    EBB_TRY(ebb_run_port(run, "images", &images, NULL));
    EBB_TRY(ebb_run_port(run, "labels", &labels, NULL));
    EBB_TRY(ebb_run_port(run, "loss", &loss, NULL));
    EBB_TRY(ebb_run_port(run, "correct", &correct, NULL));
    *ports_out = (ebb_trainer_ports){.images = images, .labels = labels, .loss = loss, .correct = correct};
    return EBB_OK;
}

void ebb__prepared_fini(ebb_prepared *prepared) {
    ebb_plan_destroy(prepared->plan);
    ebb_lowered_destroy(prepared->lowered);
    ebb_graph_destroy(prepared->graph);
    *prepared = (ebb_prepared){0};
}

/* ---- sizes ------------------------------------------------------------------------------------ */

/* What the network would take by itself, where nothing else says. */
static ebb_status take_network_sizes(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    if (o->channels > 0 && o->height > 0 && o->width > 0 && o->classes > 0) { return EBB_OK; }
    ebb_graph *graph = NULL;
    EBB_TRY(build(trainer, true, &graph));
    const ebb_port *images = ebb__graph_port(graph, "images");
    o->channels = images->dims[1];
    o->height = images->dims[2];
    o->width = images->dims[3];
    const bool synthetic = strcmp(o->data, "synthetic") == 0;
    if (o->classes == 0 && synthetic) { o->classes = graph->classes; }
    ebb_graph_destroy(graph);
    return EBB_OK;
}

static ebb_status open_split(ebb_trainer *trainer, ebb_split split, ebb_data **data_out) {
    const ebb_trainer_options *o = &trainer->options;
    ebb_data_options d = EBB_DATA_OPTIONS_INIT;
    d.mem = trainer->mem;
    d.split = split;
    d.channels = o->channels;
    d.height = o->height;
    d.width = o->width;
    d.classes = o->classes;
    d.augment = o->augment;
    d.seed = o->seed;
    ebb_device_info device;
    EBB_TRY(ebb_device_get_info(trainer->device, &device));
    d.n_threads = 1;
    if (device.n_threads > 0 && !ebb__data_has_size(o->data)) {
        d.n_threads = device.n_threads < EBB_DATA_MAX_THREADS ? device.n_threads : EBB_DATA_MAX_THREADS;
    }
    return ebb__data_open_within(o->data, &d, trainer->decoding, data_out);
}

/* Training goes without a test split; evaluation then says what is missing. */
static ebb_status open_test(ebb_trainer *trainer) {
    ebb_status status = open_split(trainer, EBB_SPLIT_TEST, &trainer->test);
    if (status == EBB_E_IO) {
        ebb__log(EBB_LOG_WARN, "no evaluation: %s", ebb_last_error());
        trainer->eval_status = EBB_E_ARGUMENT;
        trainer->eval_message = ebb__bump_printf(&trainer->bump, "there is no test split: %s", ebb_last_error());
        return trainer->eval_message != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    }
    EBB_TRY(status);
    if (ebb_data_get_info(trainer->test).n_images > 0) { return EBB_OK; }
    ebb_data_close(trainer->test);
    trainer->test = NULL;
    trainer->eval_status = EBB_E_ARGUMENT;
    trainer->eval_message = ebb__bump_printf(&trainer->bump, "data '%s' has no test split", trainer->options.data);
    return trainer->eval_message != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status open_data(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    const uint64_t before = ebb__resident_get().anonymous_bytes;
    if (!ebb__data_has_size(o->data)) { EBB_TRY(take_network_sizes(trainer)); }
    EBB_TRY(ebb__allowance_create(trainer->mem, EBB_DATA_ALLOWANCE_BYTES, &trainer->decoding));
    EBB_TRY(open_split(trainer, EBB_SPLIT_TRAIN, &trainer->train));
    ebb_data_info info = ebb_data_get_info(trainer->train);
    o->channels = info.channels;
    o->height = info.height;
    o->width = info.width;
    o->classes = info.classes;
    if (info.n_images < (uint64_t)o->batch) {
        return ebb_fail(EBB_E_ARGUMENT, "data '%s': its %" PRIu64 " images make no batch of %" PRId64, o->data,
                        info.n_images, o->batch);
    }
    EBB_TRY(open_test(trainer));
    EBB_TRY(ebb__data_reserve(trainer->train, o->batch));
    trainer->batches_per_epoch = info.n_images == UINT64_MAX ? UINT64_MAX : info.n_images / (uint64_t)o->batch;
    const uint64_t now = ebb__resident_get().anonymous_bytes;
    trainer->data_resident_bytes = now > before ? now - before : 0;
    return EBB_OK;
}

static ebb_status count_steps(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    const bool endless = trainer->batches_per_epoch == UINT64_MAX;
    if (o->n_steps == 0 && endless && o->n_epochs > 0) {
        return ebb_fail(EBB_E_ARGUMENT, "data '%s' is endless: say steps, not epochs", o->data);
    }
    if (o->n_steps == 0 && endless) { o->n_steps = DEFAULT_ENDLESS_STEPS; }
    if (o->n_steps == 0) {
        uint64_t n_epochs = o->n_epochs > 0 ? o->n_epochs : 1;
        if (!ebb_mul_u64(n_epochs, trainer->batches_per_epoch, &o->n_steps)) {
            return ebb_fail(EBB_E_ARGUMENT, "%" PRIu64 " epochs are more steps than 64 bits count", n_epochs);
        }
    }
    if (o->schedule.total_updates == 0) { o->schedule.total_updates = o->n_steps; }
    return EBB_OK;
}

/* ---- everything before memory is taken -------------------------------------------------------- */

static ebb_status open_device(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    if (o->backend == NULL) { o->backend = ebb_backend_name(0, NULL); }
    if (o->backend == NULL) { return ebb_fail(EBB_E_NO_DEVICE, "this build has no backend"); }
    ebb_device_options d = EBB_DEVICE_OPTIONS_INIT;
    d.mem = trainer->mem;
    d.n_threads = o->n_threads;
    d.index = o->device_index;
    d.tf32 = o->tf32;
    d.nondeterministic = o->nondeterministic;
    d.no_capture = o->no_capture;
    return ebb_device_open(o->backend, &d, &trainer->device);
}

static bool is_rate(float x) {
    return x >= 0 && isfinite(x);
}

static ebb_status check_optimizer(const ebb_trainer_options *o) {
    if (!is_rate(o->learning_rate)) {
        return ebb_fail(EBB_E_ARGUMENT, "a learning rate of %g is not possible", ebb__shown((double)o->learning_rate));
    }
    if (!is_rate(o->optimizer.momentum)) {
        return ebb_fail(EBB_E_ARGUMENT, "a momentum of %g is not possible", ebb__shown((double)o->optimizer.momentum));
    }
    if (!is_rate(o->optimizer.weight_decay)) {
        return ebb_fail(EBB_E_ARGUMENT, "a weight decay of %g is not possible",
                        ebb__shown((double)o->optimizer.weight_decay));
    }
    return EBB_OK;
}

static ebb_status check_options(const ebb_trainer_options *o) {
    if ((o->net == NULL) == (o->network_fn == NULL)) {
        return ebb_fail(EBB_E_ARGUMENT, "a trainer needs a network's name or a function that builds it, one of both");
    }
    if (o->batch < 0 || o->channels < 0 || o->height < 0 || o->width < 0 || o->classes < 0) {
        return ebb_fail(EBB_E_ARGUMENT, "batch, channels, height, width and classes cannot be negative");
    }
    if (o->device_index < 0) {
        return ebb_fail(EBB_E_ARGUMENT, "there is no device of number %d", (int)o->device_index);
    }
    EBB_TRY(ebb__lr_schedule_check(&o->schedule));
    if (!(o->budget_percent >= 0 && isfinite(o->budget_percent))) {
        return ebb_fail(EBB_E_ARGUMENT, "a budget of %g %% is not possible", ebb__shown(o->budget_percent));
    }
    if (o->memory_includes_context && o->budget_bytes == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "a budget that includes the context is one in bytes");
    }
    return check_optimizer(o);
}

ebb_status ebb__trainer_open(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    EBB_TRY(check_options(o));
    if (o->data == NULL) { o->data = "synthetic"; }
    if (o->batch == 0) { o->batch = EBB_DEFAULT_BATCH; }
    EBB_TRY(open_device(trainer));
    ebb__tell(&o->progress, "reading the data", 0, 0);
    EBB_TRY(open_data(trainer));
    EBB_TRY(count_steps(trainer));
    ebb__tell(&o->progress, "making the program", 0, 0);
    EBB_TRY(ebb__trainer_prepare(trainer, false, &trainer->learn));
    if (trainer->test != NULL) { EBB_TRY(ebb__trainer_prepare(trainer, true, &trainer->eval)); }
    return EBB_OK;
}
