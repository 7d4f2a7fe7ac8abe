/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb report`: what a recording tells, for people or for programs. What goes to stdout is text or one object of JSON;
 * what goes to files is a page, Perfetto's events, or what PyTorch's memory viewer reads.
 */
#include "cli.h"

typedef struct report_values {
    const char *page, *perfetto, *memory_viz, *machine, *device;
    bool text, json;
} report_values;

#define AT(member) offsetof(report_values, member)
static const ebb_cli_option report_options[] = {
    {"-o", EBB_CLI_TEXT, AT(page), "OUT.html",
     "write a page that opens in a browser, from the disk and without a network"},
    {"--text", EBB_CLI_FLAG, AT(text), NULL, "text on stdout (the default)"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "an object on stdout, for programs"},
    {"--perfetto", EBB_CLI_TEXT, AT(perfetto), "OUT", "write events for ui.perfetto.dev"},
    {"--memory-viz", EBB_CLI_TEXT, AT(memory_viz), "OUT", "write what PyTorch's memory viewer reads"},
    {"--machine", EBB_CLI_TEXT, AT(machine), "FILE", "for what could leave: bandwidths, as `ebb probe` wrote them"},
    {"--device", EBB_CLI_TEXT, AT(device), "N|NAME|list",
     "whose blocks (an accelerator's, of several the highest peak's); list shows what there is"},
};

/* A file to write, and as what. */
typedef struct output {
    const char *format, *path;
} output;
#define N_OUTPUTS 3

static int check_values(const report_values *values, const ebb_cli_arguments *arguments, const output *outputs) {
    if (arguments->n == 0) { return ebb__cli_usage("report: say which file; see ebb report --help"); }
    if (values->text && values->json) { return ebb__cli_usage("report: --text or --json, not both"); }
    for (int i = 0; i < N_OUTPUTS; i++) {
        if (outputs[i].path == NULL) { continue; }
        for (int j = 0; j < i; j++) {
            if (outputs[j].path != NULL && ebb__cli_is_same_file(outputs[i].path, outputs[j].path)) {
                return ebb__cli_usage("report: %s would be written twice", outputs[i].path);
            }
        }
        if (ebb__cli_is_same_file(outputs[i].path, arguments->at[0])) {
            return ebb__cli_usage("report: %s is what is read", outputs[i].path);
        }
        ebb_status status = ebb_report_check_format(outputs[i].format);
        if (status == EBB_OK) { status = ebb_path_check_writable(outputs[i].path); }
        if (status != EBB_OK) { return ebb__cli_failed(status); }
    }
    return EBB_EXIT_DONE;
}

static ebb_status set_machine(const char *path, ebb_report_options *options) {
    if (path == NULL) { return EBB_OK; }
    ebb_machine *machine = NULL;
    const ebb_status status = ebb_machine_load(NULL, path, &machine);
    if (status != EBB_OK) { return status; }
    ebb_link link;
    if (ebb_machine_link(machine, EBB_DEVICE, EBB_HOST, &link)) {
        options->out_bytes_per_s = link.out.bytes_per_s;
        options->in_bytes_per_s = link.in.bytes_per_s;
        options->latency_ns = link.out.latency_ns;
    }
    ebb_machine_destroy(machine);
    return EBB_OK;
}

static ebb_status print(void *ctx, const void *data, size_t n_bytes) {
    (void)ctx;
    ebb__progress_clear();
    (void)fwrite(data, 1, n_bytes, stdout); /* ebb__cli_close_output sees whether it arrived */
    return EBB_OK;
}

static ebb_status write_all(ebb_report *report, const report_values *values, const output *outputs) {
    bool any = false;
    for (int i = 0; i < N_OUTPUTS; i++) {
        if (outputs[i].path == NULL) { continue; }
        const ebb_status status = ebb_report_save(report, outputs[i].format, outputs[i].path);
        if (status != EBB_OK) { return status; }
        any = true;
    }
    if (any && !values->text && !values->json) { return EBB_OK; }
    return ebb_report_write(report, values->json ? "json" : "text", print, NULL);
}

static int run_report(const ebb_cli_command *command, int argc, char **argv) {
    report_values values = {.page = NULL};
    ebb_cli_arguments arguments;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (ebb__cli_lists_devices(values.device) && arguments.n > 0) { return ebb__cli_list_devices(arguments.at[0]); }
    const output outputs[N_OUTPUTS] = {
        {"html", values.page}, {"perfetto", values.perfetto}, {"memory-viz", values.memory_viz}};
    code = check_values(&values, &arguments, outputs);
    if (code != EBB_EXIT_DONE) { return code; }
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    ebb_report *report = NULL;
    ebb__progress_tell("reading the recording", 0, 0);
    options.temp_dir = ebb__cli_temp_dir();
    options.device = values.device;
    options.n_columns = ebb__cli_columns();
    options.progress = ebb__progress();
    ebb_status status = set_machine(values.machine, &options);
    if (status == EBB_OK) { status = ebb_report_create(arguments.at[0], &options, &report); }
    if (status == EBB_OK) { status = write_all(report, &values, outputs); }
    if (status == EBB_OK && !ebb_report_is_complete(report)) { ebb__cli_warn_of_cut(arguments.at[0]); }
    for (int i = 0; i < N_OUTPUTS && status == EBB_OK; i++) {
        if (outputs[i].path != NULL) { ebb__cli_wrote(outputs[i].path); }
    }
    ebb_report_destroy(report);
    return status == EBB_OK ? ebb__cli_close_output() : ebb__cli_file_failed(status);
}

static void print_more(FILE *out) {
    ebb__cli_print_paragraph(
        out, "FILE is a trace of ebb's, or any file that `ebb import` reads. docs/report.md explains what is shown.");
}

const ebb_cli_command ebb__cli_report = {
    .name = "report",
    .arguments = "FILE [-o OUT.html | --text | --json | --perfetto OUT | --memory-viz OUT]",
    .about = "show where the memory of a recorded run goes",
    .options = report_options,
    .n_options = sizeof report_options / sizeof report_options[0],
    .n_arguments_max = 1,
    .run = run_report,
    .more_help = print_more,
};
