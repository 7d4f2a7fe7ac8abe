/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb train`: a network from its name to its trained weights, inside a budget.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGPIPE (its output is not read any more) end it after the step at hand: the
 * checkpoint is written if one was asked for, so is the trace of what was recorded till then, and the exit code is 128
 * plus the signal's number. A second SIGINT or SIGTERM ends it at once, as SIGQUIT always does.
 */
#include "cli.h"
#include "train_report.h"

#include <inttypes.h>
#include <string.h>

typedef struct train_values {
    ebb_cli_network network;
    const char *data;
    bool augment;
    uint64_t steps, epochs;
    float learning_rate;
    const char *lr_schedule;
    uint64_t warmup;
    float momentum, weight_decay;
    uint64_t seed;
    const char *load, *save, *checkpoint, *record, *save_gradients, *plan;
    uint64_t checkpoint_every, record_steps;
    uint64_t improve;
    bool eval, no_eval, json, memory_includes_context, keep_going;
} train_values;

#define AT(member) offsetof(train_values, member)
static const ebb_cli_option train_options[] = {
    {"--data", EBB_CLI_TEXT, AT(data), "DATA",
     "synthetic (the default), mnist:DIR, cifar10:DIR, cifar100:DIR, images:DIR, digits:FILE, tensors:FILE"},
    {"--augment", EBB_CLI_FLAG, AT(augment), NULL, "crop and flip training images at random"},
    EBB_CLI_NETWORK_OPTIONS(train_values),
    {"--steps", EBB_CLI_AMOUNT, AT(steps), "N", "train for this many steps (with synthetic data 100)"},
    {"--epochs", EBB_CLI_AMOUNT, AT(epochs), "N", "train for this many passes over the data (1)"},
    {"--lr", EBB_CLI_NUMBER, AT(learning_rate), "X", "learning rate (0.003)"},
    {"--lr-schedule", EBB_CLI_TEXT, AT(lr_schedule), "S",
     "constant, cosine, linear, or step:N (a tenth every N steps)"},
    {"--warmup", EBB_CLI_COUNT, AT(warmup), "N", "steps in which the learning rate rises from 0"},
    {"--momentum", EBB_CLI_NUMBER, AT(momentum), "X", "momentum, for the optimizers momentum and nesterov (0.9)"},
    {"--weight-decay", EBB_CLI_NUMBER, AT(weight_decay), "X", "weight decay (0)"},
    {"--seed", EBB_CLI_COUNT, AT(seed), "N", "seed of the first weights, the data's order and dropout (0)"},
    EBB_CLI_PLAN_OPTIONS(train_values),
    {"--improve", EBB_CLI_COUNT, AT(improve), "N",
     "plan again with this effort while training, and take the plan between two steps if it is faster (0: no)"},
    EBB_CLI_IO_OPTION(train_values),
    {"--remote", EBB_CLI_BYTES, AT(network.remote), "SIZE",
     "let copies go to memory that mpirun's other processes lend, too, SIZE each"},
    {"--memory-includes-context", EBB_CLI_FLAG, AT(memory_includes_context), NULL,
     "GPU: the budget includes what the vendor's context takes"},
    {"--plan", EBB_CLI_TEXT, AT(plan), "FILE",
     "follow this plan (`ebb plan -o` wrote it for the same network) and make none"},
    {"--load", EBB_CLI_TEXT, AT(load), "F", "begin with these weights (safetensors)"},
    {"--save", EBB_CLI_TEXT, AT(save), "F", "write the weights at the end (safetensors)"},
    {"--checkpoint", EBB_CLI_TEXT, AT(checkpoint), "F",
     "continue from this file if it exists; write everything to it at the end"},
    {"--checkpoint-every", EBB_CLI_COUNT, AT(checkpoint_every), "N", "write the checkpoint every N steps, too"},
    {"--record", EBB_CLI_TEXT, AT(record), "F", "record the last step's memory as a trace"},
    {"--record-steps", EBB_CLI_AMOUNT, AT(record_steps), "N", "with --record: the last N steps instead of one"},
    {"--save-gradients", EBB_CLI_TEXT, AT(save_gradients), "F",
     "update nothing, and write the last step's gradients (safetensors)"},
    {"--keep-going", EBB_CLI_FLAG, AT(keep_going), NULL, "train on when the loss is not finite"},
    {"--eval", EBB_CLI_FLAG, AT(eval), NULL,
     "evaluate after each epoch and at the end, or end with an error if the data hold out no images for it (the "
     "default: if they do)"},
    {"--no-eval", EBB_CLI_FLAG, AT(no_eval), NULL, "do not evaluate"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object per line on stdout, for programs"},
};

static ebb_status set_options(const train_values *values, const char *net, ebb_trainer_options *options) {
    options->data = values->data;
    options->augment = values->augment;
    options->n_steps = values->steps;
    options->n_epochs = values->epochs;
    options->learning_rate = values->learning_rate;
    options->session.optimizer.momentum = values->momentum;
    options->session.optimizer.weight_decay = values->weight_decay;
    options->seed = values->seed;
    options->load_path = values->load;
    options->plan_path = values->plan;
    options->checkpoint_path = values->checkpoint;
    options->checkpoint_every = values->checkpoint_every;
    options->record_path = values->record;
    options->n_record_steps = values->record_steps;
    options->keep_going = values->keep_going;
    options->improve_effort = (uint32_t)(values->improve < UINT32_MAX ? values->improve : UINT32_MAX);
    options->no_evaluation = values->no_eval;
    options->session.keep_gradients = values->save_gradients != NULL;
    options->schedule.warmup_updates = values->warmup;
    options->memory_includes_context = values->memory_includes_context;
    options->progress = ebb__progress();
    ebb_status status = EBB_OK;
    if (values->lr_schedule != NULL) { status = ebb_lr_schedule_parse(values->lr_schedule, &options->schedule); }
    return status == EBB_OK ? ebb__cli_session_options(net, &values->network, &options->session) : status;
}

static ebb_status evaluate(ebb_trainer *trainer, const ebb_cli_train_report *report, uint64_t n_epochs, uint64_t step) {
    ebb_eval_result eval;
    ebb_status status = ebb_trainer_evaluate(trainer, &eval);
    if (status != EBB_OK) { return status; }
    ebb__cli_report_eval(report, n_epochs, &eval);
    ebb__cli_report_go_on(report, step);
    return EBB_OK;
}

/* All steps, or as many as there are before a signal. After each epoch comes an evaluation; after the last step
 * too, be it the end of an epoch or not. */
static ebb_status run_steps(ebb_trainer *trainer, const train_values *values, ebb_cli_train_report *report,
                            uint64_t *last_step_out) {
    const ebb_trainer_info *info = &report->info;
    bool is_endless = info->n_train_images == UINT64_MAX;
    uint64_t epoch_steps = is_endless ? info->n_steps : info->n_train_images / (uint64_t)info->batch;
    bool may_evaluate = !values->no_eval && info->n_test_images > 0;
    ebb__cli_report_go_on(report, info->first_step);
    for (;;) {
        ebb_step_result step;
        bool done = false;
        ebb_status status = ebb_trainer_step(trainer, &step, &done);
        if (status != EBB_OK || done) { return status; }
        *last_step_out = step.step;
        if (step.is_improved) { ebb__cli_report_improved(report, ebb_trainer_get_info(trainer)); }
        ebb__cli_report_step(report, &step);
        bool is_epoch_end = epoch_steps > 0 && step.step % epoch_steps == 0;
        if (ebb__cli_caught() == 0 && may_evaluate && (is_epoch_end || step.step == info->n_steps)) {
            status = evaluate(trainer, report, is_endless ? step.epoch : step.epoch + 1, step.step);
            if (status != EBB_OK) { return status; }
        }
        if (ebb__cli_caught() != 0) { return EBB_OK; }
    }
}

static ebb_status finish(ebb_trainer *trainer, const train_values *values, const ebb_cli_train_report *report) {
    ebb_trainer_summary summary;
    ebb__progress_tell("finishing", 0, 0);
    ebb_status status = ebb_trainer_summarize(trainer, &summary);
    if (status == EBB_OK && values->save != NULL) { status = ebb_trainer_save(trainer, values->save); }
    if (status == EBB_OK && values->save_gradients != NULL) {
        status = ebb_trainer_save_gradients(trainer, values->save_gradients);
    }
    if (status == EBB_OK) { ebb__cli_report_end(report, &summary); }
    return status == EBB_OK ? ebb_trainer_record_status(trainer) : status;
}

#define MAX_TOLD_BYTES 8192

/* Write what became of the trace to buf: it is closed with the run. Steps count from 1. */
static void tell_trace(const ebb_trainer *trainer, const train_values *values, uint64_t last_step, char *buf,
                       size_t buf_bytes) {
    const uint64_t n_steps = ebb_trainer_get_info(trainer).n_steps;
    const uint64_t n_recorded = values->record_steps > 0 ? values->record_steps : 1;
    const uint64_t first_step = n_recorded < n_steps ? n_steps - n_recorded + 1 : 1;
    if (last_step < first_step) {
        snprintf(buf, buf_bytes, "; no trace: it was to begin with step %" PRIu64, first_step);
    } else if (ebb_trainer_record_status(trainer) == EBB_OK) {
        snprintf(buf, buf_bytes, "; the trace up to here is in %s", values->record);
    } else {
        snprintf(buf, buf_bytes, "; %s", ebb_last_error());
    }
}

/* The loss, or a value that was to be written, is not finite. */
static int end_not_finite(const train_values *values) {
    ebb__cli_say("%s%s", ebb_last_error(), values->keep_going ? "" : " (--keep-going goes on)");
    if (values->json) {
        ebb__json_begin();
        ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
        ebb__json_text("error", ebb_last_error());
        ebb__json_end();
    }
    return ebb__cli_exit_code(EBB_E_NOT_FINITE);
}

static int end_by_signal(ebb_trainer *trainer, const train_values *values, uint64_t last_step) {
    const int number = ebb__cli_caught();
    if (values->checkpoint != NULL) {
        ebb_status status = ebb_trainer_checkpoint(trainer, values->checkpoint);
        if (status == EBB_E_NOT_FINITE) { return end_not_finite(values); }
        if (status != EBB_OK) { return ebb__cli_failed(status); }
    }
    char trace[MAX_TOLD_BYTES] = "";
    const char *checkpoint = values->checkpoint != NULL ? values->checkpoint : "";
    if (values->record != NULL) { tell_trace(trainer, values, last_step, trace, sizeof trace); }
    ebb__cli_say("ended by signal %d%s%s%s", number, values->checkpoint != NULL ? "; everything is in " : "",
                 checkpoint, trace);
    return 128 + number;
}

static int train(ebb_trainer *trainer, const train_values *values) {
    ebb_cli_train_report report = {.as_json = values->json, .info = ebb_trainer_get_info(trainer)};
    ebb__cli_catch_ends();
    ebb__cli_catch_pipe();
    ebb__cli_report_begin(&report);
    uint64_t last_step = 0; /* that was made */
    ebb_status status = run_steps(trainer, values, &report, &last_step);
    if (status == EBB_OK && ebb__cli_caught() != 0) { return end_by_signal(trainer, values, last_step); }
    if (status == EBB_OK) { status = finish(trainer, values, &report); }
    if (status == EBB_E_NOT_FINITE) { return end_not_finite(values); }
    if (status == EBB_E_NO_FIT) {
        return ebb__cli_no_fit(&values->network, &report.info.eval_no_fit, NULL, values->json);
    }
    return status == EBB_OK ? ebb__cli_close_output() : ebb__cli_failed(status);
}

#define N_OUTPUTS 4

/* The outputs are written after the training; check before it that they can be. */
static ebb_status check_outputs(const ebb_cli_output outputs[N_OUTPUTS]) {
    ebb_status status = EBB_OK;
    for (size_t i = 0; i < N_OUTPUTS && status == EBB_OK; i++) {
        if (outputs[i].path != NULL) { status = ebb_path_check_writable(outputs[i].path); }
    }
    return status;
}

/* The options that a plan's tiers need. What else is wrong with its file is said once the network is there. */
static bool check_plan(const train_values *values) {
    ebb_plan *plan = NULL;
    bool is_right = true;
    if (values->plan == NULL || ebb_plan_load(NULL, values->plan, &plan) != EBB_OK) { return true; }
    const ebb_topology *topology = ebb_plan_topology(plan);
    const ebb_plan_summary summary = ebb_plan_get_summary(plan);
    for (uint32_t t = 1; t < topology->n_tiers && is_right; t++) {
        const ebb_store store = topology->tier[t].store;
        const char *option = store == EBB_STORE_FILE && values->network.disk == NULL    ? "--disk DIR"
                             : store == EBB_STORE_REMOTE && values->network.remote == 0 ? "--remote SIZE, with mpirun"
                                                                                        : NULL;
        if (summary.tier_bytes[t] == 0 || option == NULL) { continue; }
        char shown[4096];
        is_right = false;
        (void)ebb__cli_usage("train: %s keeps %" PRIu64 " bytes in the tier %s; add %s",
                             ebb__cli_clean(values->plan, shown, sizeof shown), summary.tier_bytes[t],
                             topology->tier[t].name, option);
    }
    ebb_plan_destroy(plan);
    return is_right;
}

/* From the network's name on. */
static int train_network(const char *net, const train_values *values, const ebb_cli_output outputs[N_OUTPUTS]) {
    ebb_trainer_options options = EBB_TRAINER_OPTIONS_INIT;
    ebb_trainer *trainer = NULL;
    ebb_no_fit no_fit = {0};
    char step_name[128] = "";
    ebb_status status = set_options(values, net, &options);
    if (status == EBB_OK) { status = check_outputs(outputs); }
    if (status == EBB_OK) { ebb__cli_warn_slow(&values->network); }
    if (status == EBB_OK) { status = ebb_trainer_create(&options, &trainer, &no_fit, step_name); }
    if (status == EBB_E_NO_FIT) { return ebb__cli_no_fit(&values->network, &no_fit, step_name, values->json); }
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    const bool can_evaluate = ebb_trainer_get_info(trainer).n_test_images > 0;
    const int code = values->eval && !can_evaluate
                         ? ebb__cli_usage("train: --eval: the data hold out no images to evaluate with")
                         : train(trainer, values);
    ebb_trainer_destroy(trainer);
    return code;
}

/* What the trainer refuses, in the words of the command line. */
static bool check_improve(const train_values *values) {
    const ebb_cli_network *n = &values->network;
    const char *against = values->plan != NULL   ? "--plan, which is followed as it is"
                          : n->slowdown.is_given ? "--slowdown, which asks for less memory, not for less time"
                          : n->host_memory != UINT64_MAX && n->host_memory > 0
                              ? "--host-memory, because for a moment it holds the copies of two plans"
                          : n->policy != NULL && strcmp(n->policy, "best") != 0 ? "other policies than best"
                          : n->algorithms != NULL && strcmp(n->algorithms, "given") != 0
                              ? "--algorithms, because others may change the bits"
                              : NULL;
    if (against != NULL) { (void)ebb__cli_usage("train: --improve does not go with %s", against); }
    if (against == NULL && n->memory.bytes == 0 && n->memory.percent == 0) {
        (void)ebb__cli_usage("train: --improve needs a budget: add --memory SIZE");
        return false;
    }
    return against == NULL;
}

static int run_train(const ebb_cli_command *command, int argc, char **argv) {
    const ebb_trainer_options options = EBB_TRAINER_OPTIONS_INIT;
    train_values values = {.network = {.host_memory = UINT64_MAX, .effort = 1},
                           .learning_rate = options.learning_rate,
                           .momentum = options.session.optimizer.momentum,
                           .weight_decay = options.session.optimizer.weight_decay};
    ebb_cli_arguments arguments;
    int code = EBB_EXIT_DONE;
    ebb__cli_hush_lender(argc, argv);
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (arguments.n == 0) { return ebb__cli_usage("train: say which network; see ebb train --help"); }
    if (values.steps > 0 && values.epochs > 0) { return ebb__cli_usage("train: --steps or --epochs, not both"); }
    if (values.record_steps > 0 && values.record == NULL) {
        return ebb__cli_usage("train: --record-steps without --record");
    }
    if (values.checkpoint_every > 0 && values.checkpoint == NULL) {
        return ebb__cli_usage("train: --checkpoint-every without --checkpoint");
    }
    const ebb_cli_network *n = &values.network;
    if (values.plan != NULL && (n->memory.bytes > 0 || n->memory.percent > 0 || n->slowdown.is_given ||
                                n->margin.is_given || n->policy != NULL || n->algorithms != NULL || n->no_recompute)) {
        return ebb__cli_usage("train: --plan has decided what --memory, --slowdown, --margin, --policy, --algorithms "
                              "and --no-recompute ask for");
    }
    if (values.improve > 0 && !check_improve(&values)) { return EBB_EXIT_USAGE; }
    if (values.memory_includes_context && values.network.memory.bytes == 0) {
        return ebb__cli_usage("train: --memory-includes-context takes a --memory in bytes");
    }
    const ebb_cli_output outputs[N_OUTPUTS] = {{"--save", values.save},
                                               {"--checkpoint", values.checkpoint},
                                               {"--record", values.record},
                                               {"--save-gradients", values.save_gradients}};
    if (!ebb__cli_are_apart(command, outputs, N_OUTPUTS) || !ebb__cli_check_threads(command, &values.network) ||
        !check_plan(&values)) {
        return EBB_EXIT_USAGE;
    }
    if (!ebb__cli_join(&values.network, &code)) { return code; }
    code = train_network(arguments.at[0], &values, outputs);
    ebb__cli_leave(&values.network);
    return code;
}

const ebb_cli_command ebb__cli_train = {
    .name = "train",
    .arguments = "NET [option ...]",
    .about = "train a network inside a memory budget",
    .options = train_options,
    .n_options = sizeof train_options / sizeof train_options[0],
    .n_arguments_max = 1,
    .run = run_train,
    .more_help = ebb__cli_print_names,
    .computes = true,
};
