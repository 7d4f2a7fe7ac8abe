/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb plan`: what a budget costs, before anything is trained. Takes a network of the zoo, lowered for a
 * backend, or a program's text file; makes a plan or checks one, and prints the figures.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct plan_values {
    ebb_cli_network network;
    const char *check, *out, *program_out;
    bool check_hazards, json;
} plan_values;

#define AT(member) offsetof(plan_values, member)
static const ebb_cli_option plan_options[] = {
    EBB_CLI_NETWORK_OPTIONS(plan_values),
    EBB_CLI_PLAN_OPTIONS(plan_values),
    {"--check", EBB_CLI_TEXT, AT(check), "FILE", "check this plan instead of making one"},
    {"--check-hazards", EBB_CLI_FLAG, AT(check_hazards), NULL, "prove that its commands cannot race on any device"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE", "write the plan"},
    {"--program-out", EBB_CLI_TEXT, AT(program_out), "FILE", "write the program that is planned for"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object on stdout, for programs"},
};

/* What is planned for, and what it is made of. */
typedef struct subject {
    ebb_device *device;
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_program *loaded;
    const ebb_program *program;
    ebb_machine *machine;
    double made_s; /* what making the program took */
} subject;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void subject_fini(subject *s) {
    ebb_machine_destroy(s->machine);
    ebb_program_destroy(s->loaded);
    ebb_lowered_destroy(s->lowered);
    ebb_graph_destroy(s->graph);
    ebb_device_close(s->device);
}

/* A training graph of the network, lowered. */
static ebb_status lower_network(const char *net, const ebb_cli_network *options, subject *s) {
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    ebb_status status = EBB_OK;
    if (options->optimizer != NULL) { status = ebb_optimizer_parse(options->optimizer, &optimizer.kind); }
    if (status == EBB_OK) { status = ebb__cli_build_network(net, options, &s->graph); }
    if (status == EBB_OK) { status = ebb_graph_train(s->graph, &optimizer, false); }
    if (status == EBB_OK) { status = ebb__cli_open_device(options, &s->device); }
    if (status == EBB_OK) { status = ebb_lower(s->graph, s->device, &s->lowered); }
    if (status == EBB_OK) { s->program = ebb_lowered_program(s->lowered); }
    return status;
}

/* A name with a slash or a dot in it is a program file's; the zoo's have neither. */
static bool is_program_file(const char *name) {
    return strpbrk(name, "/.") != NULL;
}

/* By its first word. */
static bool is_plan_file(const char *name) {
    static const char word[] = "ebb-plan ";
    char begin[sizeof word] = "";
    struct stat info;
    FILE *file = stat(name, &info) == 0 && S_ISREG(info.st_mode) ? fopen(name, "re") : NULL;
    if (file == NULL) { return false; }
    const bool is_plan = fgets(begin, sizeof begin, file) != NULL && strcmp(begin, word) == 0;
    (void)fclose(file);
    return is_plan;
}

static ebb_status subject_init(const char *name, const ebb_cli_network *options, subject *s) {
    ebb_status status = EBB_OK;
    double start_s = now_s();
    ebb__progress_tell("making the program", 0, 0);
    if (is_program_file(name)) {
        status = ebb_program_load(NULL, name, &s->loaded);
        s->program = s->loaded;
    } else {
        status = lower_network(name, options, s);
    }
    s->made_s = now_s() - start_s;
    if (status != EBB_OK) { return status; }
    return options->machine != NULL ? ebb_machine_load(NULL, options->machine, &s->machine)
                                    : ebb_machine_create(NULL, &s->machine);
}

/* What the policy liveness needs: what --memory N% is of, and a row of the table. */
static ebb_status liveness_bytes(const subject *s, uint64_t *bytes_out) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_plan *plan = NULL;
    options.policy = "liveness";
    ebb__progress_tell("planning", 0, 0);
    ebb_status status = ebb_plan_make(s->program, s->machine, &options, &plan, NULL);
    if (status == EBB_OK) { *bytes_out = ebb_plan_get_summary(plan).peak_bytes; }
    ebb_plan_destroy(plan);
    return status;
}

static void set_plan_options(const ebb_cli_network *network, uint64_t liveness, ebb_plan_options *options) {
    bool has_budget = network->memory.bytes > 0 || network->memory.percent > 0.0;
    options->policy = network->policy != NULL ? network->policy : has_budget ? "budget" : "liveness";
    if (network->memory.percent > 0.0) {
        double bytes = (double)liveness * network->memory.percent / 100.0;
        options->budget_bytes = bytes < 9e18 ? (uint64_t)bytes : UINT64_MAX;
    } else if (has_budget) {
        options->budget_bytes = network->memory.bytes;
    }
    if (network->algorithms != NULL) { options->algorithms = network->algorithms; }
    options->tier_bytes[EBB_TIER_HOST] = network->host_memory;
    if (network->disk != NULL) { options->tier_bytes[EBB_TIER_DISK] = UINT64_MAX; }
}

typedef struct figures {
    double program_s, plan_s; /* what making them took */
    size_t n_tensors, n_steps;
    uint64_t floor_bytes, liveness_bytes;
    uint64_t bound_bytes; /* of placements with the program's alignment */
    ebb_plan_summary plan;
    ebb_timeline timeline;
    ebb_choice_figures choices;
    ebb_run_proof proof; /* of no iterations: not asked for */
} figures;

/* Offsets are multiples of the alignment, so stays are apart by their sizes rounded up. Where the highest is not whole,
 * the peak may end below that: it is then at its bound, but for less than an alignment. */
static ebb_status find_bound(const ebb_program *program, const ebb_plan *plan, uint64_t *bound_out) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    size_t n_actions = 0;
    uint64_t bound_bytes = 0;
    const ebb_stay *stays = ebb_plan_stays(plan, &problem.n_items);
    (void)ebb_plan_actions(plan, &n_actions);
    ebb_place_item *items = malloc((problem.n_items + 1) * sizeof *items);
    if (items == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < problem.n_items; i++) {
        items[i] = (ebb_place_item){stays[i].size_bytes, stays[i].first, stays[i].last};
    }
    problem.items = items;
    problem.alignment_bytes = ebb_program_alignment_bytes(program);
    problem.period = n_actions;
    const ebb_status status = ebb_place_bound(&problem, NULL, &bound_bytes);
    free(items);
    if (status != EBB_OK) { return status; }
    const uint64_t peak_bytes = ebb_plan_get_summary(plan).peak_bytes;
    *bound_out = bound_bytes < peak_bytes ? bound_bytes : peak_bytes;
    return EBB_OK;
}

static ebb_status collect_figures(const subject *s, const ebb_plan *plan, figures *f) {
    ebb_program_tensors(s->program, &f->n_tensors);
    ebb_program_steps(s->program, &f->n_steps);
    f->floor_bytes = ebb_program_floor_bytes(s->program, NULL);
    f->plan = ebb_plan_get_summary(plan);
    f->choices = ebb_plan_choice_figures(s->program, plan, s->machine);
    const ebb_status status = find_bound(s->program, plan, &f->bound_bytes);
    if (status != EBB_OK) { return status; }
    return ebb_plan_simulate(s->program, plan, s->machine, &f->timeline, NULL, NULL);
}

static double peak_over_bound(const figures *f) {
    return f->bound_bytes > 0 ? (double)f->plan.peak_bytes / (double)f->bound_bytes : 1.0;
}

static void print_table(const figures *f) {
    ebb__cli_row("tensors", "%zu", f->n_tensors);
    ebb__cli_row("steps", "%zu", f->n_steps);
    ebb__cli_row_bytes("floor (one step)", f->floor_bytes);
    ebb__cli_row_bytes("liveness needs", f->liveness_bytes);
    ebb__cli_row("policy", "%s", f->plan.policy);
    if (f->plan.budget_bytes != UINT64_MAX) { ebb__cli_row_bytes("budget", f->plan.budget_bytes); }
    ebb__cli_row_bytes("planned peak", f->plan.peak_bytes);
    ebb__cli_row_bytes("bound", f->bound_bytes);
    ebb__cli_row("peak / bound", "%.4f", peak_over_bound(f));
    ebb__cli_row_bytes("copied out", f->plan.moved_out_bytes);
    ebb__cli_row_bytes("copied in", f->plan.moved_in_bytes);
    ebb__cli_row_bytes("host tier", f->plan.tier_bytes[EBB_TIER_HOST]);
    ebb__cli_row_bytes("disk tier", f->plan.tier_bytes[EBB_TIER_DISK]);
    ebb__cli_row("steps computed again", "%" PRIu64, f->plan.n_recomputed_steps);
    ebb__cli_row("predicted time", "%.4f s", (double)f->timeline.iteration_ns / 1e9);
    ebb__cli_row("of it computed again", "%.4f s", (double)f->timeline.again_ns / 1e9);
    ebb__cli_row_choices("", f->plan.algorithms, &f->choices);
    ebb__cli_row("program made in", "%.4f s", f->program_s);
    ebb__cli_row("plan made in", "%.4f s", f->plan_s);
    if (f->proof.n_iterations == 0) { return; }
    ebb__cli_row("free of hazards", "%" PRIu64 " iterations, %" PRIu64 " commands", f->proof.n_iterations,
                 f->proof.n_commands);
    ebb__cli_row("conflicts in order", "%" PRIu64 ", as graphs %" PRIu64, f->proof.n_pairs, f->proof.n_graph_pairs);
    ebb__cli_row("versions found", "%" PRIu64, f->proof.n_versions);
    ebb__cli_row("waits", "%" PRIu64 ", %" PRIu64 " of them implied", f->proof.n_waits, f->proof.n_implied_waits);
}

static void print_json(const ebb_program *program, const figures *f) {
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("program", ebb_program_name(program));
    ebb__json_u64("tensors", f->n_tensors);
    ebb__json_u64("steps", f->n_steps);
    ebb__json_u64("floor_bytes", f->floor_bytes);
    ebb__json_u64("liveness_bytes", f->liveness_bytes);
    ebb__json_text("policy", f->plan.policy);
    ebb__json_limit("budget_bytes", f->plan.budget_bytes);
    ebb__json_u64("peak_planned_bytes", f->plan.peak_bytes);
    ebb__json_u64("bound_bytes", f->bound_bytes);
    ebb__json_f64("peak_over_bound", peak_over_bound(f));
    ebb__json_u64("moved_out_bytes", f->plan.moved_out_bytes);
    ebb__json_u64("moved_in_bytes", f->plan.moved_in_bytes);
    ebb__json_u64("host_bytes", f->plan.tier_bytes[EBB_TIER_HOST]);
    ebb__json_u64("disk_bytes", f->plan.tier_bytes[EBB_TIER_DISK]);
    ebb__json_u64("recomputed_steps", f->plan.n_recomputed_steps);
    ebb__json_f64("step_time_predicted_s", (double)f->timeline.iteration_ns / 1e9);
    ebb__json_f64("again_time_predicted_s", (double)f->timeline.again_ns / 1e9);
    ebb__json_choices(f->plan.algorithms, &f->choices);
    ebb__json_f64("program_made_s", f->program_s);
    ebb__json_f64("plan_made_s", f->plan_s);
    if (f->proof.n_iterations > 0) {
        ebb__json_u64("proven_iterations", f->proof.n_iterations);
        ebb__json_u64("proven_commands", f->proof.n_commands);
        ebb__json_u64("proven_pairs", f->proof.n_pairs);
        ebb__json_u64("proven_pairs_as_graphs", f->proof.n_graph_pairs);
        ebb__json_u64("proven_versions", f->proof.n_versions);
        ebb__json_u64("waits", f->proof.n_waits);
        ebb__json_u64("implied_waits", f->proof.n_implied_waits);
    }
    ebb__json_end();
}

static int show_plan(const subject *s, const plan_values *values, const ebb_plan *plan, figures *f) {
    f->program_s = s->made_s;
    ebb_status status = collect_figures(s, plan, f);
    ebb__progress_tell("checking the plan", 0, 0);
    if (status == EBB_OK && values->check_hazards) { status = ebb_run_prove(s->graph, s->device, plan, &f->proof); }
    if (status == EBB_OK && values->out != NULL) { status = ebb_plan_save(plan, values->out); }
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    ebb__progress_clear();
    if (values->json) {
        print_json(s->program, f);
    } else {
        print_table(f);
    }
    return ebb__cli_close_output();
}

static const char *step_name(const ebb_program *program, uint32_t step) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    return step < n_steps ? steps[step].name : NULL;
}

static int make_plan(const subject *s, const plan_values *values) {
    ebb_plan_options options = EBB_PLAN_OPTIONS_INIT;
    ebb_no_fit no_fit = {0};
    ebb_plan *plan = NULL;
    figures f = {.plan_s = 0.0};
    ebb_status status = liveness_bytes(s, &f.liveness_bytes);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    set_plan_options(&values->network, f.liveness_bytes, &options);
    double start_s = now_s();
    status = ebb_plan_make(s->program, s->machine, &options, &plan, &no_fit);
    if (status == EBB_E_NO_FIT) { return ebb__cli_no_fit(&no_fit, step_name(s->program, no_fit.step), values->json); }
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    f.plan_s = now_s() - start_s;
    int code = show_plan(s, values, plan, &f);
    ebb_plan_destroy(plan);
    return code;
}

/* The file whose plan is not right, and why. */
static int refuse_plan(const plan_values *values, ebb_status status) {
    ebb__cli_say("%s: %s", values->check, ebb_last_error());
    if (!values->json) { return ebb__cli_exit_code(status); }
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_bool("ok", false);
    ebb__json_text("error", ebb_last_error());
    ebb__json_end();
    const int code = ebb__cli_close_output();
    return code != EBB_EXIT_DONE ? code : ebb__cli_exit_code(status);
}

static int check_plan(const subject *s, const plan_values *values) {
    ebb_plan *plan = NULL;
    figures f = {.plan_s = 0.0};
    int code = EBB_EXIT_DONE;
    ebb_status status = ebb_plan_load(NULL, values->check, &plan);
    if (status == EBB_OK) { status = ebb_plan_check(s->program, plan); }
    const bool is_refused = status == EBB_E_INVALID_PLAN && plan != NULL;
    if (status == EBB_OK) { status = liveness_bytes(s, &f.liveness_bytes); }
    if (is_refused) {
        code = refuse_plan(values, status);
    } else {
        code = status == EBB_OK ? show_plan(s, values, plan, &f) : ebb__cli_failed(status);
    }
    ebb_plan_destroy(plan);
    return code;
}

/* An output may replace neither the other one nor what is read. */
static int check_outputs(const plan_values *values, const char *name) {
    const char *const outputs[] = {values->out, values->program_out};
    const char *const inputs[] = {is_program_file(name) ? name : NULL, values->check, values->network.machine};
    if (outputs[0] != NULL && outputs[1] != NULL && ebb__cli_is_same_file(outputs[0], outputs[1])) {
        return ebb__cli_usage("plan: -o and --program-out would both write %s", outputs[1]);
    }
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++) {
        for (size_t j = 0; j < sizeof inputs / sizeof inputs[0]; j++) {
            if (outputs[i] == NULL || inputs[j] == NULL || !ebb__cli_is_same_file(outputs[i], inputs[j])) { continue; }
            return ebb__cli_usage("plan: %s is what is read", outputs[i]);
        }
    }
    return EBB_EXIT_DONE;
}

static int run_plan(const ebb_cli_command *command, int argc, char **argv) {
    plan_values values = {.network = {.host_memory = UINT64_MAX}};
    ebb_cli_arguments arguments;
    subject s = {.device = NULL};
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (arguments.n == 0) { return ebb__cli_usage("plan: say which network or program; see ebb plan --help"); }
    if (is_plan_file(arguments.at[0])) {
        return ebb__cli_usage("plan: %s is a plan; say which network or program it is for, and --check %s",
                              arguments.at[0], arguments.at[0]);
    }
    if (values.check_hazards && is_program_file(arguments.at[0])) {
        return ebb__cli_usage("plan: --check-hazards takes a network: a program alone says no kernels");
    }
    code = check_outputs(&values, arguments.at[0]);
    if (code != EBB_EXIT_DONE) { return code; }
    ebb_status status = subject_init(arguments.at[0], &values.network, &s);
    if (status == EBB_OK && values.program_out != NULL) { status = ebb_program_save(s.program, values.program_out); }
    if (status != EBB_OK) {
        code = ebb__cli_failed(status);
    } else {
        code = values.check != NULL ? check_plan(&s, &values) : make_plan(&s, &values);
    }
    subject_fini(&s);
    return code;
}

static void print_more(FILE *out) {
    fputs(
        "\nPROGRAM is a file that --program-out wrote. For a recording, such as one of PyTorch, see `ebb report` and\n"
        "`ebb place`.\n",
        out);
    ebb__cli_print_names(out);
}

const ebb_cli_command ebb__cli_plan = {
    .name = "plan",
    .arguments = "NET|PROGRAM [option ...]",
    .about = "make a plan for a budget, or check one, and show its figures",
    .options = plan_options,
    .n_options = sizeof plan_options / sizeof plan_options[0],
    .n_arguments_max = 1,
    .run = run_plan,
    .more_help = print_more,
};
