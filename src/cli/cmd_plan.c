/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb plan`: what a budget costs, before anything is trained. Takes a network of the zoo, lowered for a
 * backend, a program's text file, or a recording, one iteration of which becomes a program; makes a plan or checks
 * one, and prints the figures.
 */
#include "compare_show.h"

#include <inttypes.h>

typedef struct plan_values {
    ebb_cli_network network;
    const char *check, *curve, *out, *program_out;
    bool check_hazards, workspaces, json;
} plan_values;

#define AT(member) offsetof(plan_values, member)
static const ebb_cli_option plan_options[] = {
    EBB_CLI_NETWORK_OPTIONS(plan_values),
    EBB_CLI_PLAN_OPTIONS(plan_values),
    {"--remote", EBB_CLI_BYTES, AT(network.remote), "SIZE", "plan as if other processes lent SIZE in all"},
    {"--accounting", EBB_CLI_TEXT, AT(network.accounting), "A",
     "count the device's bytes (device) or a network's as SuperNeurons does (paper)"},
    {"--check", EBB_CLI_TEXT, AT(check), "FILE", "check this plan instead of making one"},
    {"--check-hazards", EBB_CLI_FLAG, AT(check_hazards), NULL, "prove that its commands cannot race on any device"},
    {"--curve", EBB_CLI_TEXT, AT(curve), "FILE",
     "plan for 24 budgets from all to the least, and write time over memory: OUT.svg or OUT.csv"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE", "write the plan"},
    {"--program-out", EBB_CLI_TEXT, AT(program_out), "FILE", "write the program that is planned for"},
    {"--workspaces", EBB_CLI_FLAG, AT(workspaces), NULL,
     "show each step's scratch beside that of its fastest algorithm"},
    {"--as-coded", EBB_CLI_FLAG, AT(network.as_coded), NULL,
     "papers' policies with the mistakes of their authors' code"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object on stdout, for programs"},
};

typedef struct figures {
    bool is_own;              /* made here: its bounds are of this machine */
    double program_s, plan_s; /* what making them took */
    size_t n_tensors, n_steps;
    uint64_t floor_bytes, liveness_bytes;
    ebb_plan_summary plan;
    ebb_topology topology;
    ebb_timeline timeline;
    ebb_choice_figures choices;
    const ebb_plan *open; /* whose workspaces are shown; NULL: they are not */
    ebb_proof proof;      /* of no iterations: not asked for */
} figures;

static ebb_status collect_figures(const ebb_cli_subject *s, const ebb_plan *plan, figures *f) {
    const ebb_program *program = s->parts.program;
    ebb_program_tensors(program, &f->n_tensors);
    ebb_program_steps(program, &f->n_steps);
    f->floor_bytes = ebb_program_floor_bytes(program, NULL);
    f->plan = ebb_plan_get_summary(plan);
    f->topology = *ebb_plan_topology(plan);
    f->choices = ebb_plan_choice_figures(program, plan, s->parts.machine);
    return ebb_plan_simulate(program, plan, s->parts.machine, &f->timeline, NULL, NULL);
}

/* How far the predicted time is above the bound on it, as a share of the bound. */
static double gap(const figures *f) {
    const double bound_ns = (double)f->plan.certificate.bound_ns, time_ns = (double)f->timeline.iteration_ns;
    return bound_ns > 0 ? time_ns / bound_ns - 1 : 0;
}

static double peak_over_bound(const figures *f) {
    return f->plan.bound_bytes > 0 ? (double)f->plan.peak_bytes / (double)f->plan.bound_bytes : 1.0;
}

static bool has_remote(const figures *f) {
    return ebb_topology_tier_of(&f->topology, EBB_STORE_REMOTE) < EBB_MAX_TIERS;
}

static uint64_t remote_bytes(const figures *f) {
    return has_remote(f) ? f->plan.tier_bytes[ebb_topology_tier_of(&f->topology, EBB_STORE_REMOTE)] : 0;
}

static void print_table(const ebb_cli_subject *s, const figures *f) {
    if (s->is_recording) { ebb__cli_row_bytes("recording's peak", s->notes.peak_bytes); }
    ebb__cli_row("tensors", "%zu", f->n_tensors);
    ebb__cli_row("steps", "%zu", f->n_steps);
    ebb__cli_row_bytes("floor (one step)", f->floor_bytes);
    ebb__cli_row_bytes("liveness needs", f->liveness_bytes);
    ebb__cli_row("policy", "%s", f->plan.policy);
    if (f->plan.budget_bytes != UINT64_MAX) { ebb__cli_row_bytes("budget", f->plan.budget_bytes); }
    ebb__cli_row_bytes("planned peak", f->plan.peak_bytes);
    ebb__cli_row_bytes("bound", f->plan.bound_bytes);
    ebb__cli_row("peak / bound", "%.4f", peak_over_bound(f));
    ebb__cli_row_bytes("copied out", f->plan.moved_out_bytes);
    ebb__cli_row_bytes("copied in", f->plan.moved_in_bytes);
    if (f->plan.moved_on_bytes > 0) { ebb__cli_row_bytes("moved on", f->plan.moved_on_bytes); }
    ebb__cli_row_bytes("host tier", f->plan.tier_bytes[EBB_HOST]);
    ebb__cli_row_bytes("disk tier", f->plan.tier_bytes[EBB_DISK]);
    if (has_remote(f)) { ebb__cli_row_bytes("remote tier", remote_bytes(f)); }
    ebb__cli_row("steps computed again", "%" PRIu64, f->plan.n_recomputed_steps);
    ebb__cli_row("predicted time", "%.4f s", (double)f->timeline.iteration_ns / 1e9);
    ebb__cli_row("of it computed again", "%.4f s", (double)f->timeline.again_ns / 1e9);
    ebb__cli_row("of it waiting for copies", "%.4f s", (double)f->timeline.stall_ns[EBB_COMPUTE] / 1e9);
    if (f->plan.certificate.ns_rule != NULL) {
        ebb__cli_row(f->is_own ? "no plan is faster than" : "the file's bound on time", "%.4f s",
                     (double)f->plan.certificate.bound_ns / 1e9);
        if (f->is_own) { ebb__cli_row("gap", "%.2f %%", gap(f) * 100); }
    }
    if (f->plan.has_nominal_times) {
        ebb__cli_row("drafted with", "round figures; with the machine's times no plan is as fast, or none fits");
    }
    ebb__cli_row_choices("", f->plan.algorithms, &f->choices);
    ebb__cli_row("program made in", "%.4f s", f->program_s);
    ebb__cli_row("plan made in", "%.4f s", f->plan_s);
    if (f->proof.n_iterations == 0) { return; }
    ebb__cli_row("free of hazards", "%" PRIu64 " iterations, %" PRIu64 " commands", f->proof.n_iterations,
                 f->proof.n_commands);
    if (s->parts.graph != NULL) {
        ebb__cli_row("conflicts in order", "%" PRIu64 ", as graphs %" PRIu64, f->proof.n_pairs, f->proof.n_graph_pairs);
    } else {
        ebb__cli_row("conflicts in order", "%" PRIu64, f->proof.n_pairs);
    }
    ebb__cli_row("versions found", "%" PRIu64, f->proof.n_versions);
    ebb__cli_row("waits", "%" PRIu64 ", %" PRIu64 " of them implied", f->proof.n_waits, f->proof.n_implied_waits);
}

static void print_engines(const figures *f) {
    ebb__json_list_begin("engines");
    for (uint32_t e = 0; e < f->topology.n_engines; e++) {
        ebb__json_item_begin();
        ebb__json_text("engine", f->topology.engine[e]);
        ebb__json_f64("busy_predicted_s", (double)f->timeline.busy_ns[e] / 1e9);
        ebb__json_f64("stall_predicted_s", (double)f->timeline.stall_ns[e] / 1e9);
        ebb__json_item_end();
    }
    ebb__json_list_end();
}

static void print_json(const ebb_cli_subject *s, const figures *f) {
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("program", ebb_program_name(s->parts.program));
    if (s->is_recording) {
        ebb__json_u64("recording_peak_bytes", s->notes.peak_bytes);
        ebb__json_u64("recording_iterations", s->notes.iteration.count);
    }
    ebb__json_u64("tensors", f->n_tensors);
    ebb__json_u64("steps", f->n_steps);
    ebb__json_u64("floor_bytes", f->floor_bytes);
    ebb__json_u64("liveness_bytes", f->liveness_bytes);
    ebb__json_text("policy", f->plan.policy);
    ebb__json_limit("budget_bytes", f->plan.budget_bytes);
    ebb__json_u64("peak_planned_bytes", f->plan.peak_bytes);
    ebb__json_u64("bound_bytes", f->plan.bound_bytes);
    ebb__json_f64("peak_over_bound", peak_over_bound(f));
    ebb__json_u64("moved_out_bytes", f->plan.moved_out_bytes);
    ebb__json_u64("moved_in_bytes", f->plan.moved_in_bytes);
    ebb__json_u64("moved_on_bytes", f->plan.moved_on_bytes);
    ebb__json_u64("host_bytes", f->plan.tier_bytes[EBB_HOST]);
    ebb__json_u64("disk_bytes", f->plan.tier_bytes[EBB_DISK]);
    ebb__json_u64("remote_bytes", remote_bytes(f));
    ebb__json_u64("recomputed_steps", f->plan.n_recomputed_steps);
    ebb__json_f64("step_time_predicted_s", (double)f->timeline.iteration_ns / 1e9);
    ebb__json_f64("again_time_predicted_s", (double)f->timeline.again_ns / 1e9);
    ebb__json_f64("stall_time_predicted_s", (double)f->timeline.stall_ns[EBB_COMPUTE] / 1e9);
    print_engines(f);
    if (f->plan.certificate.bytes_rule != NULL) {
        ebb__json_u64("certified_bytes", f->plan.certificate.bound_bytes);
        ebb__json_text("certified_bytes_rule", f->plan.certificate.bytes_rule);
    }
    if (f->plan.certificate.ns_rule != NULL) {
        ebb__json_f64("bound_step_time_s", (double)f->plan.certificate.bound_ns / 1e9);
        ebb__json_text("bound_step_time_rule", f->plan.certificate.ns_rule);
        if (f->is_own) { ebb__json_f64("gap", gap(f)); }
    }
    ebb__json_bool("nominal_times", f->plan.has_nominal_times);
    ebb__json_choices(f->plan.algorithms, &f->choices);
    if (f->open != NULL) { ebb__cli_print_workspaces(s->parts.program, f->open, s->parts.machine, true); }
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

/* A network's kernels, ports and graphs are part of the proof; of a program alone it is of the plan's commands. */
static ebb_status prove(const ebb_cli_subject *s, const ebb_plan *plan, ebb_proof *proof_out) {
    if (s->parts.graph != NULL) { return ebb_run_prove(s->parts.graph, s->parts.device, plan, proof_out); }
    return ebb_executor_prove(NULL, s->parts.program, plan, proof_out);
}

static int show_plan(const ebb_cli_subject *s, const plan_values *values, const ebb_plan *plan, figures *f) {
    f->program_s = s->made_s;
    f->open = values->workspaces ? plan : NULL;
    ebb_status status = collect_figures(s, plan, f);
    ebb__progress_tell("checking the plan", 0, 0);
    if (status == EBB_OK && values->check_hazards) { status = prove(s, plan, &f->proof); }
    if (status == EBB_OK && values->out != NULL) { status = ebb_plan_save(plan, values->out); }
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    ebb__progress_clear();
    if (values->json) {
        print_json(s, f);
    } else {
        print_table(s, f);
        if (f->open != NULL) { ebb__cli_print_workspaces(s->parts.program, plan, s->parts.machine, false); }
    }
    return ebb__cli_close_output();
}

static const char *step_name(const ebb_program *program, uint32_t step) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    return step < n_steps ? steps[step].name : NULL;
}

static int make_plan(const ebb_cli_subject *s, const plan_values *values) {
    ebb_no_fit no_fit = {0};
    ebb_plan *plan = NULL;
    figures f = {.is_own = true};
    ebb__progress_tell("planning", 0, 0);
    ebb_status status = ebb_session_liveness_bytes(s->session, &f.liveness_bytes);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    const double start_s = ebb__cli_now_s();
    status = ebb_session_plan(s->session, &plan, &no_fit);
    if (status == EBB_E_NO_FIT) {
        return ebb__cli_no_fit(&values->network, &no_fit, step_name(s->parts.program, no_fit.step), values->json);
    }
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    f.plan_s = ebb__cli_now_s() - start_s;
    int code = show_plan(s, values, plan, &f);
    ebb_plan_destroy(plan);
    return code;
}

#define CURVE_BUDGETS 24u

/* From what liveness needs to the program's floor, which no plan is below. */
static void choose_budgets(uint64_t liveness_bytes, uint64_t floor_bytes, ebb_cli_budgets *budgets) {
    const uint64_t range = liveness_bytes > floor_bytes ? liveness_bytes - floor_bytes : 0;
    for (budgets->n = 0; budgets->n < CURVE_BUDGETS; budgets->n++) {
        const uint64_t below = (uint64_t)((double)range * (double)budgets->n / (CURVE_BUDGETS - 1));
        budgets->at[budgets->n] = (ebb_cli_memory){liveness_bytes - below, 0};
    }
}

/* Time over memory by one policy. */
static int draw_curve(const ebb_cli_subject *s, const plan_values *values) {
    ebb_comparison *comparison = NULL;
    ebb_cli_budgets budgets;
    uint64_t bytes[CURVE_BUDGETS];
    const char *policy = values->network.policy != NULL ? values->network.policy : "best";
    ebb_cli_shown shown = {.subject = s, .budgets = &budgets};
    ebb_comparison_options options = EBB_COMPARISON_OPTIONS_INIT;
    ebb__progress_tell("planning", 0, 0);
    ebb_status status = ebb_session_liveness_bytes(s->session, &shown.liveness_bytes);
    if (status == EBB_OK) { status = ebb_session_plan_options(s->session, &options.plan); }
    choose_budgets(shown.liveness_bytes, ebb_program_floor_bytes(s->parts.program, NULL), &budgets);
    for (size_t i = 0; i < budgets.n; i++) { bytes[i] = budgets.at[i].bytes; }
    options.policies = &policy;
    options.n_policies = 1;
    options.budgets = bytes;
    options.n_budgets = budgets.n;
    options.is_monotone = true;
    options.n_threads = ebb__cli_count_processors();
    options.progress = ebb__progress();
    const double begin_s = ebb__cli_now_s();
    if (status == EBB_OK) { status = ebb_comparison_create(s->parts.program, s->parts.machine, &options, &comparison); }
    shown.made_s = ebb__cli_now_s() - begin_s;
    shown.comparison = comparison;
    if (status == EBB_OK) { status = ebb_comparison_save(comparison, values->curve); }
    if (status == EBB_OK) { ebb__cli_show(&shown, values->json); }
    const int code = status == EBB_OK ? ebb__cli_close_output() : ebb__cli_failed(status);
    if (status == EBB_OK) { ebb__cli_wrote(values->curve); }
    ebb_comparison_destroy(comparison);
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

static int check_plan(const ebb_cli_subject *s, const plan_values *values) {
    ebb_plan *plan = NULL;
    figures f = {.plan_s = 0.0};
    int code = EBB_EXIT_DONE;
    ebb_status status = ebb_plan_load(NULL, values->check, &plan);
    if (status == EBB_OK) { status = ebb_plan_check(s->parts.program, plan); }
    const bool is_refused = status == EBB_E_INVALID_PLAN && plan != NULL;
    ebb__progress_tell("planning", 0, 0);
    if (status == EBB_OK) { status = ebb_session_liveness_bytes(s->session, &f.liveness_bytes); }
    if (is_refused) {
        code = refuse_plan(values, status);
    } else {
        code = status == EBB_OK ? show_plan(s, values, plan, &f) : ebb__cli_failed(status);
    }
    ebb_plan_destroy(plan);
    return code;
}

/* An output may replace neither the other one nor what is read, and is not to fail after the work. */
static int check_outputs(const plan_values *values, const char *name) {
    const ebb_cli_output outputs[] = {
        {"-o", values->out}, {"--program-out", values->program_out}, {"--curve", values->curve}};
    const size_t n_outputs = sizeof outputs / sizeof outputs[0];
    const char *const inputs[] = {ebb__cli_is_program_file(name) ? name : NULL, values->check, values->network.machine};
    if (!ebb__cli_are_apart(&ebb__cli_plan, outputs, n_outputs)) { return EBB_EXIT_USAGE; }
    for (size_t i = 0; i < n_outputs; i++) {
        for (size_t j = 0; j < sizeof inputs / sizeof inputs[0]; j++) {
            const char *path = outputs[i].path;
            if (path == NULL || inputs[j] == NULL || !ebb__cli_is_same_file(path, inputs[j])) { continue; }
            return ebb__cli_usage("plan: %s is what is read", path);
        }
        const ebb_status status = outputs[i].path != NULL ? ebb_path_check_writable(outputs[i].path) : EBB_OK;
        if (status != EBB_OK) { return ebb__cli_failed(status); }
    }
    return EBB_EXIT_DONE;
}

static int run_plan(const ebb_cli_command *command, int argc, char **argv) {
    plan_values values = {.network = {.host_memory = UINT64_MAX, .effort = 1}};
    ebb_cli_arguments arguments;
    ebb_cli_subject s = {.session = NULL};
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (arguments.n == 0) { return ebb__cli_usage("plan: say which network or program; see ebb plan --help"); }
    if (!ebb__cli_is_subject(command, arguments.at[0])) { return EBB_EXIT_USAGE; }
    if (values.curve != NULL && (values.check != NULL || values.out != NULL || values.network.slowdown.is_given ||
                                 values.network.memory.bytes > 0 || values.network.memory.percent > 0)) {
        return ebb__cli_usage(
            "plan: --curve is about many plans; it goes without --check, -o, --memory and --slowdown");
    }
    code = check_outputs(&values, arguments.at[0]);
    if (code != EBB_EXIT_DONE) { return code; }
    ebb_status status = ebb__cli_subject_init(arguments.at[0], &values.network, &s);
    if (status == EBB_OK && values.program_out != NULL) {
        status = ebb_program_save(s.parts.program, values.program_out);
    }
    if (status != EBB_OK) {
        code = ebb__cli_subject_failed(arguments.at[0], status);
    } else if (values.curve != NULL) {
        code = draw_curve(&s, &values);
    } else {
        code = values.check != NULL ? check_plan(&s, &values) : make_plan(&s, &values);
    }
    ebb__cli_subject_fini(&s);
    return code;
}

static void print_more(FILE *out) {
    ebb__cli_print_paragraph(out, "PROGRAM is a file that --program-out wrote, or a recording: a trace, or whatever "
                                  "else `ebb import` reads. One iteration of a recording is planned for, or all of it "
                                  "where none is found. Its steps are never run again, since a recording does not tell "
                                  "whether they can be. --device N is then the accelerator whose blocks are meant.");
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
