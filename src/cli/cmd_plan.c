/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb plan`: what a budget costs, before anything is trained. Takes a network of the zoo, lowered for a
 * backend, a program's text file, or a recording, one iteration of which becomes a program; makes a plan or checks
 * one, and prints the figures.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* What is planned for. */
typedef struct subject {
    ebb_session *session;
    ebb_session_parts parts;
    ebb_program *loaded; /* of a file */
    bool is_recording;
    ebb_program_trace_notes notes; /* of a recording */
    double made_s;                 /* what making the program took */
} subject;

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A name with a slash or a dot in it is a file's; the zoo's have neither. */
static bool is_program_file(const char *name) {
    return strpbrk(name, "/.") != NULL;
}

/* A file, or a pipe, of the name of no network: it is planned by a path with a slash in it. */
static bool is_file_without_slash(const char *name) {
    const size_t n = strcspn(name, ":");
    const char *network = NULL;
    for (size_t i = 0; (network = ebb_zoo_name(i, NULL)) != NULL; i++) {
        if (strncmp(network, name, n) == 0 && strcspn(network, ":") == n) { return false; }
    }
    return !is_program_file(name) && access(name, F_OK) == 0;
}

typedef enum file_kind { FILE_OTHER, FILE_PLAN, FILE_RECORDING } file_kind;

/* By its first bytes. A pipe gives them only once; it is taken for a program. */
static file_kind kind_of_file(const char *name) {
    static const char plan[] = "ebb-plan ", program[] = "ebb-program ", gzip[] = "\x1f\x8b";
    struct stat info;
    file_kind kind = FILE_OTHER;
    FILE *file = stat(name, &info) == 0 && S_ISREG(info.st_mode) ? fopen(name, "re") : NULL;
    char *head = file != NULL ? malloc(EBB_TRACE_HEAD_BYTES) : NULL;
    if (head != NULL) {
        const size_t n = fread(head, 1, EBB_TRACE_HEAD_BYTES, file);
        if (n >= strlen(plan) && memcmp(head, plan, strlen(plan)) == 0) {
            kind = FILE_PLAN;
        } else if (n < strlen(program) || memcmp(head, program, strlen(program)) != 0) {
            const bool is_gzip = n >= strlen(gzip) && memcmp(head, gzip, strlen(gzip)) == 0;
            kind = is_gzip || ebb_trace_format_of(head, n, name) != NULL ? FILE_RECORDING : FILE_OTHER;
        }
    }
    free(head);
    if (file != NULL) { (void)fclose(file); }
    return kind;
}

/* What the program is, and what it is not. */
static void tell_notes(const char *name, const ebb_program_trace_notes *notes) {
    ebb__progress_clear();
    if (notes->iteration.found) {
        ebb__cli_say("note: %s: of %" PRIu64 " iterations found (confidence %.0f%%), the one of events %" PRIu64
                     " to %" PRIu64 " is planned for",
                     name, notes->iteration.count, 100.0 * notes->iteration.confidence, notes->first_event,
                     notes->first_event + notes->n_events - 1);
    } else {
        ebb__cli_say("note: %s: no iteration was found in it, so all of it is planned for as one", name);
    }
    if (!notes->has_accesses) {
        ebb__cli_say("note: %s: it tells no reads and writes; a block is taken to be used from its allocation to its "
                     "free",
                     name);
    }
    ebb__cli_say("note: %s: a recording does not tell which steps can be run again, so none is", name);
}

static ebb_status convert_recording(const char *name, const ebb_cli_network *options, subject *s) {
    ebb_trace_reader *reader = NULL;
    char device[24];
    snprintf(device, sizeof device, "%" PRIu64, options->device);
    ebb_status status = ebb__cli_open_recording(name, options->device > 0 ? device : NULL, &reader);
    if (status == EBB_OK) { status = ebb_program_from_trace(reader, NULL, &s->loaded, &s->notes); }
    if (status == EBB_OK && !ebb_trace_reader_info(reader).complete) { ebb__cli_warn_of_cut(name); }
    ebb_trace_reader_close(reader);
    if (status == EBB_OK) { tell_notes(name, &s->notes); }
    return status;
}

static ebb_status subject_init(const char *name, const ebb_cli_network *network, subject *s) {
    ebb_session_options options = EBB_SESSION_OPTIONS_INIT;
    const bool is_file = is_program_file(name);
    double start_s = now_s();
    ebb__progress_tell("making the program", 0, 0);
    s->is_recording = is_file && kind_of_file(name) == FILE_RECORDING;
    ebb_status status = EBB_OK;
    if (is_file) {
        status = s->is_recording ? convert_recording(name, network, s) : ebb_program_load(NULL, name, &s->loaded);
    }
    if (status == EBB_OK) { status = ebb__cli_session_options(is_file ? NULL : name, network, &options); }
    options.program = s->loaded;
    if (status == EBB_OK) { status = ebb_session_open(&options, &s->session); }
    s->made_s = now_s() - start_s;
    if (status == EBB_OK) { s->parts = ebb_session_get_parts(s->session); }
    return status;
}

static void subject_fini(subject *s) {
    ebb_session_close(s->session);
    ebb_program_destroy(s->loaded);
}

typedef struct figures {
    bool is_own;              /* made here: its bounds are of this machine */
    double program_s, plan_s; /* what making them took */
    size_t n_tensors, n_steps;
    uint64_t floor_bytes, liveness_bytes;
    ebb_plan_summary plan;
    ebb_topology topology;
    ebb_timeline timeline;
    ebb_choice_figures choices;
    ebb_proof proof; /* of no iterations: not asked for */
} figures;

static ebb_status collect_figures(const subject *s, const ebb_plan *plan, figures *f) {
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

static void print_table(const subject *s, const figures *f) {
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
    ebb__cli_row_bytes("host tier", f->plan.tier_bytes[EBB_HOST]);
    ebb__cli_row_bytes("disk tier", f->plan.tier_bytes[EBB_DISK]);
    ebb__cli_row("steps computed again", "%" PRIu64, f->plan.n_recomputed_steps);
    ebb__cli_row("predicted time", "%.4f s", (double)f->timeline.iteration_ns / 1e9);
    ebb__cli_row("of it computed again", "%.4f s", (double)f->timeline.again_ns / 1e9);
    ebb__cli_row("of it waiting for copies", "%.4f s", (double)f->timeline.stall_ns[EBB_COMPUTE] / 1e9);
    if (f->plan.certificate.ns_rule != NULL) {
        ebb__cli_row("no plan is faster than", "%.4f s", (double)f->plan.certificate.bound_ns / 1e9);
        if (f->is_own) { ebb__cli_row("gap", "%.2f %%", gap(f) * 100); }
    }
    if (f->plan.has_nominal_times) { ebb__cli_row("times", "round figures: with the machine's own none was found"); }
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

static void print_json(const subject *s, const figures *f) {
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
    ebb__json_u64("host_bytes", f->plan.tier_bytes[EBB_HOST]);
    ebb__json_u64("disk_bytes", f->plan.tier_bytes[EBB_DISK]);
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
static ebb_status prove(const subject *s, const ebb_plan *plan, ebb_proof *proof_out) {
    if (s->parts.graph != NULL) { return ebb_run_prove(s->parts.graph, s->parts.device, plan, proof_out); }
    return ebb_executor_prove(NULL, s->parts.program, plan, proof_out);
}

static int show_plan(const subject *s, const plan_values *values, const ebb_plan *plan, figures *f) {
    f->program_s = s->made_s;
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
    }
    return ebb__cli_close_output();
}

static const char *step_name(const ebb_program *program, uint32_t step) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    return step < n_steps ? steps[step].name : NULL;
}

static int make_plan(const subject *s, const plan_values *values) {
    ebb_no_fit no_fit = {0};
    ebb_plan *plan = NULL;
    figures f = {.is_own = true};
    ebb__progress_tell("planning", 0, 0);
    ebb_status status = ebb_session_liveness_bytes(s->session, &f.liveness_bytes);
    if (status != EBB_OK) { return ebb__cli_failed(status); }
    double start_s = now_s();
    status = ebb_session_plan(s->session, &plan, &no_fit);
    if (status == EBB_E_NO_FIT) {
        return ebb__cli_no_fit(&values->network, &no_fit, step_name(s->parts.program, no_fit.step), values->json);
    }
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

/* An output may replace neither the other one nor what is read. */
static int check_outputs(const plan_values *values, const char *name) {
    const ebb_cli_output outputs[] = {{"-o", values->out}, {"--program-out", values->program_out}};
    const size_t n_outputs = sizeof outputs / sizeof outputs[0];
    const char *const inputs[] = {is_program_file(name) ? name : NULL, values->check, values->network.machine};
    if (!ebb__cli_are_apart(&ebb__cli_plan, outputs, n_outputs)) { return EBB_EXIT_USAGE; }
    for (size_t i = 0; i < n_outputs; i++) {
        for (size_t j = 0; j < sizeof inputs / sizeof inputs[0]; j++) {
            const char *path = outputs[i].path;
            if (path == NULL || inputs[j] == NULL || !ebb__cli_is_same_file(path, inputs[j])) { continue; }
            return ebb__cli_usage("plan: %s is what is read", path);
        }
    }
    return EBB_EXIT_DONE;
}

static int run_plan(const ebb_cli_command *command, int argc, char **argv) {
    plan_values values = {.network = {.host_memory = UINT64_MAX, .effort = 1}};
    ebb_cli_arguments arguments;
    subject s = {.session = NULL};
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (arguments.n == 0) { return ebb__cli_usage("plan: say which network or program; see ebb plan --help"); }
    if (kind_of_file(arguments.at[0]) == FILE_PLAN) {
        return ebb__cli_usage("plan: %s is a plan; say which network or program it is for, and --check %s",
                              arguments.at[0], arguments.at[0]);
    }
    if (is_file_without_slash(arguments.at[0])) {
        return ebb__cli_usage("plan: there is no network %s; if you mean the file, type ./%s", arguments.at[0],
                              arguments.at[0]);
    }
    code = check_outputs(&values, arguments.at[0]);
    if (code != EBB_EXIT_DONE) { return code; }
    ebb_status status = subject_init(arguments.at[0], &values.network, &s);
    if (status == EBB_OK && values.program_out != NULL) {
        status = ebb_program_save(s.parts.program, values.program_out);
    }
    if (status != EBB_OK) {
        code = ebb__cli_failed(status);
    } else {
        code = values.check != NULL ? check_plan(&s, &values) : make_plan(&s, &values);
    }
    subject_fini(&s);
    return code;
}

static void print_more(FILE *out) {
    fputs("\nPROGRAM is a file that --program-out wrote, or a recording: a trace, or whatever else `ebb import` reads. "
          "Of a\n"
          "recording one iteration is planned for, or all of it where none is found. Its steps are never run again, "
          "since\n"
          "a recording does not tell whether they can be. --device N is then the accelerator whose blocks are meant.\n",
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
