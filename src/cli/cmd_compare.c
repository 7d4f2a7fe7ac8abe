/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb compare`: policies side by side. The program is made once; for each budget each policy makes a plan, several at
 * a time, and one table shows what they need and how far they are from what no plan can beat. With --run the plans are
 * run too, and must all give the same bits.
 */
#include "compare_run.h"
#include "compare_show.h"

#include <stdlib.h>
#include <string.h>

#define MAX_POLICIES 64u

typedef struct compare_values {
    ebb_cli_network network;
    const char *policies, *memory, *out;
    uint64_t steps;
    bool run, json;
} compare_values;

#define AT(member) offsetof(compare_values, member)
static const ebb_cli_option compare_options[] = {
    EBB_CLI_NETWORK_OPTIONS(compare_values),
    {"--policies", EBB_CLI_TEXT, AT(policies), "P,...", "which policies (all; ebb plan --help has a list)"},
    {"--memory", EBB_CLI_TEXT, AT(memory), "LIST",
     "budgets: 2GiB,60%, ranges as 90%..10% (the default), with a step as 90%..10%:20%"},
    {"--run", EBB_CLI_FLAG, AT(run), NULL, "run each plan, measure it, and compare the losses' bits"},
    {"--steps", EBB_CLI_AMOUNT, AT(steps), "N", "with --run: for this many iterations (3)"},
    {"--optimizer", EBB_CLI_TEXT, AT(network.optimizer), "O", "sgd, momentum (the default), nesterov, adam, adamw"},
    {"--algorithms", EBB_CLI_TEXT, AT(network.algorithms), "A", "how each step's algorithm is chosen (below; given)"},
    {"--effort", EBB_CLI_COUNT, AT(network.effort), "N", "how long the policies best and swap search (1)"},
    {"--host-memory", EBB_CLI_BYTES_OR_NONE, AT(network.host_memory), "SIZE",
     "the most for copies in the host's memory; 0: copy nothing out (no limit)"},
    {"--no-recompute", EBB_CLI_FLAG, AT(network.no_recompute), NULL, "compute nothing again"},
    {"--disk", EBB_CLI_TEXT, AT(network.disk), "DIR",
     "let copies go to a file in this folder, too: where the host has no room, or the disk is faster"},
    EBB_CLI_IO_OPTION(compare_values),
    {"--remote", EBB_CLI_BYTES, AT(network.remote), "SIZE",
     "as if other processes lent SIZE in all; with --run: let copies go to memory that mpirun's other processes lend, "
     "SIZE each"},
    {"--accounting", EBB_CLI_TEXT, AT(network.accounting), "A",
     "count the device's bytes (device) or a network's as SuperNeurons does (paper)"},
    {"--machine", EBB_CLI_TEXT, AT(network.machine), "FILE", "times and bandwidths, as `ebb probe` wrote them"},
    {"-o", EBB_CLI_TEXT, AT(out), "FILE", "write it: OUT.svg, a picture of time over memory, or OUT.csv"},
    {"--as-coded", EBB_CLI_FLAG, AT(network.as_coded), NULL,
     "papers' policies with the mistakes of their authors' code"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "one object on stdout, for programs"},
};

/* The names between commas; *text_out holds them, the caller's to free. */
typedef struct policy_list {
    char *text;
    const char *name[MAX_POLICIES];
    size_t n;
} policy_list;

static bool split_policies(const char *text, policy_list *list) {
    list->n = 0;
    list->text = text != NULL ? strdup(text) : NULL;
    if (text == NULL) { return true; }
    for (char *at = list->text; at != NULL && list->n < MAX_POLICIES;) {
        char *comma = strchr(at, ',');
        if (comma != NULL) { *comma = '\0'; }
        list->name[list->n++] = at;
        at = comma != NULL ? comma + 1 : NULL;
    }
    return list->text != NULL;
}

static ebb_status compare(const ebb_cli_subject *s, const compare_values *values, const ebb_cli_budgets *budgets,
                          uint64_t liveness_bytes, ebb_comparison **comparison_out) {
    uint64_t bytes[EBB_CLI_MAX_BUDGETS];
    policy_list policies;
    ebb_comparison_options options = EBB_COMPARISON_OPTIONS_INIT;
    for (size_t i = 0; i < budgets->n; i++) { bytes[i] = ebb__cli_budget_bytes(budgets->at[i], liveness_bytes); }
    ebb_status status = split_policies(values->policies, &policies) ? EBB_OK : EBB_E_NO_MEMORY;
    if (status == EBB_OK) { status = ebb_session_plan_options(s->session, &options.plan); }
    options.policies = policies.name;
    options.n_policies = policies.n;
    options.budgets = bytes;
    options.n_budgets = budgets->n;
    options.n_threads = ebb__cli_count_processors();
    options.progress = ebb__progress();
    if (status == EBB_OK) {
        status = ebb_comparison_create(s->parts.program, s->parts.machine, &options, comparison_out);
    }
    free(policies.text);
    return status;
}

static bool has_plan(const ebb_comparison *comparison) {
    size_t n = 0;
    const ebb_compared *rows = ebb_comparison_rows(comparison, &n);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].plan != NULL) { return true; }
    }
    return false;
}

static int show(const compare_values *values, const ebb_cli_shown *shown) {
    ebb__cli_show(shown, values->json);
    int code = ebb__cli_close_output();
    ebb__cli_tell_without_plan(shown);
    if (!ebb__cli_have_same_bits(shown->comparison)) {
        ebb__cli_say("the plans' losses are not the same bits");
        code = code != EBB_EXIT_DONE ? code : EBB_EXIT_NO;
    }
    if (!has_plan(shown->comparison)) { code = code != EBB_EXIT_DONE ? code : EBB_EXIT_NO; }
    return code;
}

static int compare_and_show(const ebb_cli_subject *s, const compare_values *values, const ebb_cli_budgets *budgets) {
    ebb_comparison *comparison = NULL;
    ebb_cli_shown shown = {.subject = s, .budgets = budgets};
    ebb_status status = values->run ? ebb__cli_measure_machine(&values->network, &s->parts) : EBB_OK;
    ebb__progress_tell("planning", 0, 0);
    if (status == EBB_OK) { status = ebb_session_liveness_bytes(s->session, &shown.liveness_bytes); }
    const double begin_s = ebb__cli_now_s();
    if (status == EBB_OK) { status = compare(s, values, budgets, shown.liveness_bytes, &comparison); }
    shown.made_s = ebb__cli_now_s() - begin_s;
    shown.comparison = comparison;
    if (status == EBB_OK && values->run) {
        status = ebb__cli_run_rows(&values->network, &s->parts, values->steps, comparison);
    }
    if (status == EBB_OK && values->out != NULL) { status = ebb_comparison_save(comparison, values->out); }
    const int code = status == EBB_OK ? show(values, &shown) : ebb__cli_failed(status);
    if (status == EBB_OK && values->out != NULL) { ebb__cli_wrote(values->out); }
    ebb_comparison_destroy(comparison);
    return code;
}

/* Refuse what is wrong before anything is made; EBB_EXIT_DONE: nothing is. */
static int check_values(const compare_values *values, const char *name, ebb_cli_budgets *budgets) {
    if (!ebb__cli_read_budgets(values->memory, budgets)) {
        return ebb__cli_usage(
            "compare: --memory takes budgets, as in 2GiB,60%%, or ranges, as in 90%%..10%%:20%%, at most %u "
            "in all, not '%s'",
            EBB_CLI_MAX_BUDGETS, values->memory);
    }
    if (values->run && ebb__cli_is_program_file(name)) {
        return ebb__cli_usage("compare: --run takes a network of the zoo; a program alone has no kernels");
    }
    if (values->run && values->network.backend != NULL && strcmp(values->network.backend, "dry") == 0) {
        return ebb__cli_usage("compare: --run takes a backend that computes; dry has no data");
    }
    return ebb__cli_check_threads(&ebb__cli_compare, &values->network) ? EBB_EXIT_DONE : EBB_EXIT_USAGE;
}

/* From the network's or program's name on. */
static int compare_named(const char *name, const compare_values *values, const ebb_cli_budgets *budgets) {
    ebb_cli_subject s = {.session = NULL};
    if (values->run) { ebb__cli_warn_slow(&values->network); }
    ebb_status status = values->out != NULL ? ebb_path_check_writable(values->out) : EBB_OK;
    if (status == EBB_OK) { status = ebb__cli_subject_init(name, &values->network, &s); }
    const int code = status == EBB_OK ? compare_and_show(&s, values, budgets) : ebb__cli_subject_failed(name, status);
    ebb__cli_subject_fini(&s);
    return code;
}

static int run_compare(const ebb_cli_command *command, int argc, char **argv) {
    compare_values values = {.network = {.host_memory = UINT64_MAX, .effort = 1}, .memory = "90%..10%", .steps = 3};
    ebb_cli_arguments arguments;
    ebb_cli_budgets budgets;
    int code = EBB_EXIT_DONE;
    ebb__cli_hush_lender(argc, argv);
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (arguments.n == 0) { return ebb__cli_usage("compare: say which network or program; see ebb compare --help"); }
    if (!ebb__cli_is_subject(command, arguments.at[0])) { return EBB_EXIT_USAGE; }
    code = check_values(&values, arguments.at[0], &budgets);
    if (code != EBB_EXIT_DONE) { return code; }
    values.network.runs_here = values.run;
    values.network.feed = "first"; /* what is compared is the plan; run_plan reads each batch itself */
    if (values.run && !ebb__cli_join(&values.network, &code)) { return code; }
    code = compare_named(arguments.at[0], &values, &budgets);
    ebb__cli_leave(&values.network);
    return code;
}

static void print_more(FILE *out) {
    ebb__cli_print_paragraph(
        out, "PROGRAM is what ebb plan takes. Where a policy has no plan for a budget, a note on stderr says why. The "
             "gap is how far the predicted time is above the time that no plan can beat.");
    ebb__cli_print_names(out);
}

const ebb_cli_command ebb__cli_compare = {
    .name = "compare",
    .arguments = "NET|PROGRAM [option ...]",
    .about = "compare what policies make of budgets, as predicted and, with --run, as measured",
    .options = compare_options,
    .n_options = sizeof compare_options / sizeof compare_options[0],
    .n_arguments_max = 1,
    .run = run_compare,
    .more_help = print_more,
    .computes = true,
};
