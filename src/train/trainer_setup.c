/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a lowered network: the data says what it has, the network what it wants where neither the
 * caller nor the data do, and from then on every size in the options is a real one.
 */
#include "train/trainer_priv.h"

#include <inttypes.h>

#define DEFAULT_ENDLESS_STEPS 100

ebb_status ebb__trainer_ports(ebb_run *run, ebb_trainer_ports *ports_out) {
    void *images = NULL, *labels = NULL, *loss = NULL, *correct = NULL;
    EBB_TRY(ebb_run_port(run, "images", &images, NULL));
    EBB_TRY(ebb_run_port(run, "labels", &labels, NULL));
    EBB_TRY(ebb_run_port(run, "loss", &loss, NULL));
    EBB_TRY(ebb_run_port(run, "correct", &correct, NULL));
    *ports_out = (ebb_trainer_ports){.images = images, .labels = labels, .loss = loss, .correct = correct};
    return EBB_OK;
}

/* What the network would take by itself, where nothing else says. */
static ebb_status take_network_sizes(ebb_trainer *trainer) {
    ebb_session_options *o = &trainer->session->options;
    if (o->channels > 0 && o->height > 0 && o->width > 0 && o->classes > 0) { return EBB_OK; }
    EBB_TRY(ebb__session_take_sizes(trainer->session));
    const bool synthetic = strcmp(trainer->options.data, "synthetic") == 0;
    if (o->classes == 0 && synthetic) { o->classes = trainer->session->graph->classes; }
    return EBB_OK;
}

static ebb_status open_split(ebb_trainer *trainer, ebb_split split, ebb_data **data_out) {
    const ebb_trainer_options *o = &trainer->options;
    const ebb_session_options *s = &trainer->session->options;
    ebb_data_options d = EBB_DATA_OPTIONS_INIT;
    d.mem = trainer->mem;
    d.split = split;
    d.channels = s->channels;
    d.height = s->height;
    d.width = s->width;
    d.classes = s->classes;
    d.augment = o->augment;
    d.seed = o->seed;
    ebb_device_info device;
    EBB_TRY(ebb_device_get_info(trainer->session->device, &device));
    d.n_threads = 1;
    if (device.n_threads > 0 && !ebb__data_has_size(o->data)) {
        d.n_threads = device.n_threads < EBB_DATA_MAX_THREADS ? device.n_threads : EBB_DATA_MAX_THREADS;
    }
    return ebb__data_open_within(o->data, &d, trainer->decoding, data_out);
}

/* Training goes without a test split; evaluation then says what is missing. */
static ebb_status open_test(ebb_trainer *trainer) {
    if (trainer->options.no_evaluation) {
        trainer->eval_status = EBB_E_ARGUMENT;
        trainer->eval_message = "evaluation was not wanted when the trainer was made";
        return EBB_OK;
    }
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
    const ebb_trainer_options *o = &trainer->options;
    ebb_session_options *s = &trainer->session->options;
    if (!ebb__data_has_size(o->data)) { EBB_TRY(take_network_sizes(trainer)); }
    const uint64_t before = ebb__resident_get().anonymous_bytes;
    EBB_TRY(ebb__allowance_create(trainer->mem, EBB_DATA_ALLOWANCE_BYTES, &trainer->decoding));
    EBB_TRY(open_split(trainer, EBB_SPLIT_TRAIN, &trainer->train));
    ebb_data_info info = ebb_data_get_info(trainer->train);
    s->channels = info.channels;
    s->height = info.height;
    s->width = info.width;
    s->classes = info.classes;
    if (info.n_images < (uint64_t)s->batch) {
        return ebb_fail(EBB_E_ARGUMENT, "data '%s': its %" PRIu64 " images make no batch of %" PRId64, o->data,
                        info.n_images, s->batch);
    }
    EBB_TRY(open_test(trainer));
    if (!trainer->session->feeds_early) { EBB_TRY(ebb__data_reserve(trainer->train, s->batch)); }
    trainer->batches_per_epoch = info.n_images == UINT64_MAX ? UINT64_MAX : info.n_images / (uint64_t)s->batch;
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

static bool is_rate(float x) {
    return x >= 0 && isfinite(x);
}

static ebb_status check_optimizer(const ebb_trainer_options *o) {
    const ebb_optimizer *p = &o->session.optimizer;
    if (!is_rate(o->learning_rate)) {
        return ebb_fail(EBB_E_ARGUMENT, "a learning rate of %g is not possible", ebb__shown((double)o->learning_rate));
    }
    if (!is_rate(p->momentum)) {
        return ebb_fail(EBB_E_ARGUMENT, "a momentum of %g is not possible", ebb__shown((double)p->momentum));
    }
    if (!is_rate(p->weight_decay)) {
        return ebb_fail(EBB_E_ARGUMENT, "a weight decay of %g is not possible", ebb__shown((double)p->weight_decay));
    }
    return EBB_OK;
}

/* A better plan is looked for with the same algorithms, which decide the bits. */
static ebb_status check_improving(const ebb_trainer_options *o) {
    const ebb_session_options *s = &o->session;
    if (o->improve_effort == 0) { return EBB_OK; }
    if (s->budget_bytes == 0 && s->budget_percent <= 0) {
        return ebb_fail(EBB_E_ARGUMENT, "a plan can be improved where there is a budget");
    }
    if ((s->policy != NULL && strcmp(s->policy, "best") != 0) || s->slowdown >= 0) {
        return ebb_fail(EBB_E_ARGUMENT, "a plan can be improved if it is the fastest that the policy best finds");
    }
    if (s->algorithms != NULL && strcmp(s->algorithms, "given") != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "a plan can be improved with the algorithms given; others may change bits");
    }
    if (s->host_bytes > 0) {
        return ebb_fail(EBB_E_ARGUMENT,
                        "a plan cannot be improved within a limit of the host's memory: for a moment it "
                        "holds the copies of two plans");
    }
    return EBB_OK;
}

static ebb_status check_options(const ebb_trainer_options *o) {
    if ((o->session.net == NULL) == (o->session.network_fn == NULL) || o->session.program != NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "a trainer needs a network's name or a function that builds it, one of both");
    }
    EBB_TRY(ebb__lr_schedule_check(&o->schedule));
    const ebb_session_options *s = &o->session;
    if (o->plan_path != NULL && (s->budget_bytes > 0 || s->budget_percent > 0 || s->slowdown >= 0)) {
        return ebb_fail(EBB_E_ARGUMENT, "a plan or a budget, not both");
    }
    if (o->memory_includes_context && o->session.budget_bytes == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "a budget that includes the context is one in bytes");
    }
    EBB_TRY(check_improving(o));
    return check_optimizer(o);
}

ebb_status ebb__trainer_open(ebb_trainer *trainer) {
    ebb_trainer_options *o = &trainer->options;
    EBB_TRY(check_options(o));
    EBB_TRY(ebb__session_create(&o->session, &trainer->session));
    trainer->session->options.within_free = true;
    if (o->session.accounting != NULL && strcmp(o->session.accounting, "paper") == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "nothing can be trained with paper accounting: its program has no kernels");
    }
    if (o->data == NULL) { o->data = "synthetic"; }
    EBB_TRY(ebb__session_open_device(trainer->session));
    ebb__tell(&o->progress, "reading the data", 0, 0);
    EBB_TRY(open_data(trainer));
    EBB_TRY(count_steps(trainer));
    ebb__tell(&o->progress, "making the program", 0, 0);
    EBB_TRY(ebb__session_lower(trainer->session));
    if (trainer->test == NULL) { return EBB_OK; }
    EBB_TRY(ebb__session_build(trainer->session, true, &trainer->eval.graph));
    return ebb_lower(trainer->eval.graph, trainer->session->device, &trainer->eval.lowered);
}
