/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb import`: another tool's recording as a trace, or another planner's graph as a program, and what was in it. The
 * output comes to its place whole or not at all.
 */
#include "cli.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

typedef struct import_values {
    const char *out, *format, *device;
    bool json;
} import_values;

#define AT(member) offsetof(import_values, member)
static const ebb_cli_option import_options[] = {
    {"-o", EBB_CLI_TEXT, AT(out), "OUT", "where the trace or the program goes; must be given"},
    {"--format", EBB_CLI_TEXT, AT(format), "F", "what FILE is (below; by itself, from its first bytes)"},
    {"--device", EBB_CLI_TEXT, AT(device), "N|cpu|all",
     "whose blocks (the accelerator with most of them, else the processor; of a trace: all)"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "what was read as an object on stdout, for programs"},
};

static void print_tells(const char *name, uint32_t wanted) {
    char text[512] = "nothing";
    const char *words = NULL;
    size_t n = 0;
    for (size_t i = 0; ebb_trace_tells_name(i, &words) != NULL && n < sizeof text; i++) {
        if ((wanted >> i & 1) == 0) { continue; }
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", n > 0 ? ", " : "", words);
    }
    ebb__cli_row(name, "%s", text);
}

static void print_result(const ebb_trace_import_result *result) {
    ebb__cli_row("format", "%s", result->format);
    ebb__cli_row("events", "%" PRIu64, result->n_events);
    ebb__cli_row("blocks", "%" PRIu64, result->n_blocks);
    if (result->device[0] != '\0') { ebb__cli_row("device", "%s", result->device); }
    if (result->left_out[0] != '\0') { ebb__cli_row("other devices", "%s: not read", result->left_out); }
    if (result->n_left_out > 0) { ebb__cli_row("left out", "%" PRIu64, result->n_left_out); }
    print_tells("it tells", result->tells);
    print_tells("it does not tell", ~result->tells);
}

static void print_json(const char *path, const import_values *values, const ebb_trace_import_result *result) {
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("file", path);
    ebb__json_text("out", values->out);
    ebb__json_text("format", result->format);
    ebb__json_u64("events", result->n_events);
    ebb__json_u64("blocks", result->n_blocks);
    ebb__json_u64("left_out", result->n_left_out);
    ebb__json_bool("complete", result->complete);
    const char *name = NULL;
    for (size_t i = 0; (name = ebb_trace_tells_name(i, NULL)) != NULL; i++) {
        char key[32];
        snprintf(key, sizeof key, "tells_%s", name);
        ebb__json_bool(key, (result->tells >> i & 1) != 0);
    }
    ebb__json_end();
}

/* Formats of recordings, then those of programs. */
static const char *format_at(size_t i, const char **about_out, bool *is_program_out) {
    size_t n_traces = 0;
    while (ebb_trace_format_name(n_traces, NULL) != NULL) { n_traces++; }
    *is_program_out = i >= n_traces;
    return i < n_traces ? ebb_trace_format_name(i, about_out) : ebb_program_format_name(i - n_traces, about_out);
}

static bool is_format(const char *name, bool *is_program_out) {
    const char *known = NULL;
    for (size_t i = 0; (known = format_at(i, NULL, is_program_out)) != NULL; i++) {
        if (strcmp(known, name) == 0) { return true; }
    }
    return false;
}

static const char *format_name(const void *ctx, size_t i) {
    bool is_program = false;
    (void)ctx;
    return format_at(i, NULL, &is_program);
}

static int check_values(const import_values *values, const ebb_cli_arguments *arguments, bool *is_program_out) {
    if (arguments->n == 0) {
        return ebb__cli_usage("import: say which file, or - for standard input; see ebb import --help");
    }
    if (values->out == NULL) { return ebb__cli_usage("import: say with -o where the trace or the program goes"); }
    if (strcmp(values->out, "-") == 0) {
        return ebb__cli_usage("import: - is what is read; what is written goes to a file");
    }
    if (values->format != NULL && !is_format(values->format, is_program_out)) {
        char near[128];
        return ebb__cli_usage(
            "import: there is no format %s%s; see ebb import --help", values->format,
            ebb_suggest(values->format, strlen(values->format), format_name, NULL, near, sizeof near));
    }
    if (strcmp(arguments->at[0], "-") != 0 && ebb__cli_is_same_file(arguments->at[0], values->out)) {
        return ebb__cli_usage("import: the output would replace what it is made of, %s", values->out);
    }
    const ebb_status status = ebb_path_check_writable(values->out);
    return status == EBB_OK ? EBB_EXIT_DONE : ebb__cli_failed(status);
}

static int show_program(const char *path, const import_values *values, const ebb_program *program) {
    size_t n_tensors = 0, n_steps = 0;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n_tensors);
    uint64_t bytes = 0;
    (void)ebb_program_steps(program, &n_steps);
    for (size_t t = 0; t < n_tensors; t++) { bytes += tensors[t].size_bytes; }
    if (values->json) {
        ebb__json_begin();
        ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
        ebb__json_text("file", path);
        ebb__json_text("out", values->out);
        ebb__json_text("program", ebb_program_name(program));
        ebb__json_u64("tensors", n_tensors);
        ebb__json_u64("steps", n_steps);
        ebb__json_u64("tensor_bytes", bytes);
        ebb__json_u64("floor_bytes", ebb_program_floor_bytes(program, NULL));
        ebb__json_end();
    } else {
        ebb__cli_row("program", "%s", ebb_program_name(program));
        ebb__cli_row("tensors", "%zu", n_tensors);
        ebb__cli_row("steps", "%zu", n_steps);
        ebb__cli_row_bytes("all tensors", bytes);
        ebb__cli_row_bytes("floor (one step)", ebb_program_floor_bytes(program, NULL));
    }
    return ebb__cli_close_output();
}

/* *code_out is written if the file is a program's. */
static bool run_program(const char *path, const import_values *values, int *code_out) {
    ebb_program_import_options options = EBB_PROGRAM_IMPORT_OPTIONS_INIT;
    ebb_program *program = NULL;
    options.format = values->format;
    options.progress = ebb__progress();
    ebb_status status = ebb_program_import(path, &options, &program);
    if (status == EBB_E_UNSUPPORTED && values->format == NULL) { return false; }
    if (status == EBB_OK) { status = ebb_program_save(program, values->out); }
    ebb__progress_clear();
    *code_out = status == EBB_OK ? show_program(path, values, program) : ebb__cli_file_failed(status);
    ebb_program_destroy(program);
    return true;
}

/* A pipe can be read once only; its content is taken for a recording. */
static bool can_be_read_again(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static int run_import(const ebb_cli_command *command, int argc, char **argv) {
    import_values values = {.json = false};
    ebb_cli_arguments arguments;
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_trace_import_result result;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    bool is_program = false;
    code = check_values(&values, &arguments, &is_program);
    if (code != EBB_EXIT_DONE) { return code; }
    const char *path = strcmp(arguments.at[0], "-") == 0 ? "/dev/stdin" : arguments.at[0];
    is_program = values.format != NULL ? is_program : can_be_read_again(path);
    if (is_program && run_program(path, &values, &code)) { return code; }
    options.format = values.format;
    options.device = values.device;
    options.temp_dir = ebb__cli_temp_dir();
    options.progress = ebb__progress();
    ebb__progress_tell("reading the recording", 0, 0);
    const ebb_status status = ebb_trace_import(path, values.out, &options, &result);
    if (status != EBB_OK) { return ebb__cli_file_failed(status); }
    ebb__progress_clear();
    if (!result.complete) { ebb__cli_warn_of_cut(path); }
    if (values.json) {
        print_json(path, &values, &result);
    } else {
        print_result(&result);
    }
    return ebb__cli_close_output();
}

static void print_formats(FILE *out) {
    const char *name = NULL, *about = "";
    bool was_program = false, is_program = false;
    fprintf(out, "\nFILE may be gzipped; - is standard input.\n\nformats of recordings, which become traces:\n");
    for (size_t i = 0; (name = format_at(i, &about, &is_program)) != NULL; i++) {
        if (is_program && !was_program) { fprintf(out, "\nformats of programs (from - only with --format):\n"); }
        ebb__cli_print_about(out, 18, name, about);
        was_program = is_program;
    }
}

const ebb_cli_command ebb__cli_import = {
    .name = "import",
    .arguments = "FILE|- -o OUT [option ...]",
    .about = "make a trace of another tool's recording, or a program of another planner's graph",
    .options = import_options,
    .n_options = sizeof import_options / sizeof import_options[0],
    .n_arguments_max = 1,
    .run = run_import,
    .more_help = print_formats,
};
