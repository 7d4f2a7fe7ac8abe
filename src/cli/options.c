/* SPDX-License-Identifier: Apache-2.0
 *
 * Options by table: one loop reads any command's line and prints any command's help. A value may follow its
 * option as the next argument or after '='; "--" ends the options. If an option is given twice, the last one counts.
 */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

static const char *const wants[] = {
    [EBB_CLI_FLAG] = "no value",
    [EBB_CLI_TEXT] = "a value",
    [EBB_CLI_COUNT] = "a whole number",
    [EBB_CLI_AMOUNT] = "a whole number from 1",
    [EBB_CLI_SIZE] = "a whole number from 1 to 2147483647",
    [EBB_CLI_NUMBER] = "a number up to 3.4e38",
    [EBB_CLI_BYTES] = "bytes, as in 512MB or 2GiB",
    [EBB_CLI_MEMORY] = "bytes, as in 512MB or 2GiB, or a per cent, as in 60%",
    [EBB_CLI_BYTES_OR_NONE] = "bytes, as in 512MB or 2GiB",
    [EBB_CLI_MEMORY_OR_NONE] = "bytes, as in 512MB or 2GiB, or a per cent, as in 60%",
    [EBB_CLI_PERCENT] = "a per cent, as in 5%",
    [EBB_CLI_IMAGE] = "height and width, as in 224x224",
};

static bool read_u64(const char *text, uint64_t *value_out) {
    if (*text < '0' || *text > '9') { return false; }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || *end != '\0') { return false; }
    *value_out = value;
    return true;
}

/* One side of an image, or a count of something there must be: 1 to 2^31 - 1. */
static bool read_size(const char *text, int64_t *value_out) {
    uint64_t value = 0;
    if (!read_u64(text, &value) || value == 0 || value > INT32_MAX) { return false; }
    *value_out = (int64_t)value;
    return true;
}

static bool read_number(const char *text, double *value_out) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value)) { return false; }
    *value_out = value;
    return true;
}

/* 0 or more, with the sign. */
static bool read_percent(const char *text, double *percent_out) {
    char number[64];
    const size_t n = strlen(text);
    if (n < 2 || n > sizeof number || text[n - 1] != '%') { return false; }
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    return read_number(number, percent_out) && *percent_out >= 0.0;
}

bool ebb__cli_read_memory(const char *text, ebb_cli_memory *memory_out) {
    const size_t n = strlen(text);
    ebb_cli_memory memory = {0, 0.0};
    if (n > 0 && text[n - 1] == '%') {
        if (!read_percent(text, &memory.percent)) { return false; }
    } else if (ebb_bytes_parse(text, &memory.bytes) != EBB_OK) {
        return false;
    }
    *memory_out = memory;
    return true;
}

static bool read_image(const char *text, ebb_cli_image *image_out) {
    char height[16];
    const char *x = strchr(text, 'x');
    ebb_cli_image image;
    if (x == NULL || (size_t)(x - text) >= sizeof height) { return false; }
    memcpy(height, text, (size_t)(x - text));
    height[x - text] = '\0';
    if (!read_size(height, &image.height) || !read_size(x + 1, &image.width)) { return false; }
    *image_out = image;
    return true;
}

static bool read_float(const char *text, float *value_out) {
    double value = 0.0;
    if (!read_number(text, &value) || !isfinite((float)value)) { return false; }
    *value_out = (float)value;
    return true;
}

static bool is_some(const ebb_cli_memory *memory) {
    return memory->bytes > 0 || memory->percent > 0.0;
}

static bool read_value(const ebb_cli_option *option, const char *text, void *member) {
    switch (option->kind) {
    case EBB_CLI_FLAG: return false;
    case EBB_CLI_TEXT: *(const char **)member = text; return *text != '\0';
    case EBB_CLI_COUNT: return read_u64(text, member);
    case EBB_CLI_AMOUNT: return read_u64(text, member) && *(const uint64_t *)member > 0;
    case EBB_CLI_SIZE: return read_size(text, member);
    case EBB_CLI_NUMBER: return read_float(text, member);
    case EBB_CLI_BYTES: return ebb_bytes_parse(text, member) == EBB_OK && *(const uint64_t *)member > 0;
    case EBB_CLI_MEMORY: return ebb__cli_read_memory(text, member) && is_some(member);
    case EBB_CLI_BYTES_OR_NONE: return ebb_bytes_parse(text, member) == EBB_OK;
    case EBB_CLI_MEMORY_OR_NONE: return ebb__cli_read_memory(text, member);
    case EBB_CLI_PERCENT: {
        ebb_cli_percent *percent = member;
        percent->is_given = true;
        return read_percent(text, &percent->percent);
    }
    case EBB_CLI_IMAGE: return read_image(text, member);
    }
    return false;
}

/* What the options write, and how its name may end. Where all other endings are refused, `instead` says what would
 * write those; else only those of another kind of file are, and `what` says what is written. needs_ending: the ending
 * says which of several formats is written. */
typedef struct written {
    const char *command, *option, *endings;
    const char *what, *instead;
    bool needs_ending;
} written;

#define OTHER_FORMATS " (also: --text, --json, --perfetto OUT.json, --memory-viz OUT.pickle)"
#define OTHER_READER " (PyTorch reads it with safetensors.torch.load_file)"
static const written writes[] = {
    {"report", "-o", "html, htm", NULL, OTHER_FORMATS, false},
    {"report", "--perfetto", "json", NULL, "", false},
    {"report", "--memory-viz", "pickle, pkl", NULL, "", false},
    {"compare", "-o", "svg, csv", NULL, "", true},
    {"plan", "--curve", "svg, csv", NULL, "", true},
    {"place", "--svg", "svg", NULL, "", false},
    {"place", "-o", "csv", NULL, " (a picture: --svg OUT.svg)", false},
    {"train", "--save", "safetensors", NULL, OTHER_READER, false},
    {"train", "--save-gradients", "safetensors", NULL, OTHER_READER, false},
    {"train", "--checkpoint", "checkpoint, safetensors", "a checkpoint, as in OUT.safetensors", NULL, false},
    {"train", "--record", "trace", "a trace, as in OUT.trace", NULL, false},
    {"record", "-o", "trace", "a trace, as in OUT.trace", NULL, false},
    {"import", "-o", "trace, program", "a trace or a program, as in OUT.trace", NULL, false},
    {"plan", "-o", "plan", "a plan, as in OUT.plan", NULL, false},
    {"plan", "--program-out", "program", "a program, as in OUT.program", NULL, false},
    {"probe", "-o", "machine, json", "a machine's description, as in OUT.machine", NULL, false},
};
#define N_WRITES (sizeof writes / sizeof writes[0])

static const char other_files[] =
    "pdf, png, jpg, jpeg, gif, webp, md, xml, yaml, pt, pth, npy, npz, onnx, h5, zip, gz, "
    "tar, py, c, xls, xlsx";

static bool is_ending(const char *ending, const char *endings) {
    for (const char *at = endings; *at != '\0'; at += strcspn(at, ", "), at += strspn(at, ", ")) {
        const size_t n = strcspn(at, ", ");
        if (strlen(ending) == n && strncasecmp(ending, at, n) == 0) { return true; }
    }
    return false;
}

static bool is_another_kind(const char *ending) {
    bool is_known = is_ending(ending, other_files);
    for (size_t i = 0; !is_known && i < N_WRITES; i++) { is_known = is_ending(ending, writes[i].endings); }
    return is_known;
}

static const written *find_written(const ebb_cli_command *command, const char *option) {
    for (size_t i = 0; i < N_WRITES; i++) {
        if (strcmp(writes[i].command, command->name) == 0 && strcmp(writes[i].option, option) == 0) {
            return &writes[i];
        }
    }
    return NULL;
}

/* Whether the path's ending fits what the option writes. false: an error was printed. */
static bool check_ending(const ebb_cli_command *command, const char *option, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path, *dot = strrchr(name, '.');
    const written *w = find_written(command, option);
    const bool has_ending = dot != NULL && dot != name;
    if (w == NULL || (!has_ending && !w->needs_ending)) { return true; }
    if (has_ending && is_ending(dot + 1, w->endings)) { return true; }
    if (w->what != NULL && has_ending) {
        if (!is_another_kind(dot + 1)) { return true; }
        ebb__cli_usage("%s: %s does not write %s: it writes %s", command->name, option, dot, w->what);
    } else {
        ebb__cli_usage("%s: %s does not write %s: it writes a file that ends in %s%s", command->name, option,
                       has_ending ? dot : path, w->endings, w->instead);
    }
    return false;
}

static const ebb_cli_option *find_option(const ebb_cli_command *command, const char *arg, size_t name_len) {
    for (size_t i = 0; i < command->n_options; i++) {
        const ebb_cli_option *option = &command->options[i];
        if (strlen(option->name) == name_len && strncmp(option->name, arg, name_len) == 0) { return option; }
    }
    return NULL;
}

static const char *option_name(const void *ctx, size_t i) {
    const ebb_cli_command *command = ctx;
    if (i < command->n_options) { return command->options[i].name; }
    return i == command->n_options ? "--help" : NULL;
}

/* Take option argv[*i] and its value; *i is then the last argument taken. */
static bool take_option(const ebb_cli_command *command, char **argv, int *i, void *values) {
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t name_len = equals != NULL ? (size_t)(equals - arg) : strlen(arg);
    const ebb_cli_option *option = find_option(command, arg, name_len);
    if (option == NULL) {
        char near[128];
        ebb__cli_usage("%s: there is no option %.*s%s; see ebb %s --help", command->name, (int)name_len, arg,
                       ebb_suggest(arg, name_len, option_name, command, near, sizeof near), command->name);
        return false;
    }
    char *member = (char *)values + option->offset;
    if (option->kind == EBB_CLI_FLAG && equals == NULL) {
        *(bool *)(void *)member = true;
        return true;
    }
    const char *text = equals != NULL ? equals + 1 : argv[*i + 1];
    if (text == NULL) {
        ebb__cli_usage("%s: %s takes %s", command->name, option->name, wants[option->kind]);
        return false;
    }
    if (equals == NULL) { (*i)++; }
    if (!read_value(option, text, member)) {
        ebb__cli_usage("%s: %s takes %s, not '%s'", command->name, option->name, wants[option->kind], text);
        return false;
    }
    return option->kind != EBB_CLI_TEXT || check_ending(command, option->name, text);
}

static bool take_argument(const ebb_cli_command *command, const char *arg, ebb_cli_arguments *arguments) {
    if (arguments->n == command->n_arguments_max) {
        ebb__cli_usage("%s: %s is one argument too many; see ebb %s --help", command->name, arg, command->name);
        return false;
    }
    arguments->at[arguments->n++] = arg;
    return true;
}

bool ebb__cli_parse(const ebb_cli_command *command, int argc, char **argv, void *values,
                    ebb_cli_arguments *arguments_out, int *exit_out) {
    bool options_ended = false;
    *arguments_out = (ebb_cli_arguments){.n = 0};
    *exit_out = EBB_EXIT_USAGE;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        bool is_option = !options_ended && arg[0] == '-' && arg[1] != '\0';
        if (is_option && strcmp(arg, "--") == 0) {
            options_ended = true;
        } else if (is_option && (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0)) {
            ebb__cli_print_help(command);
            *exit_out = ebb__cli_close_output();
            return false;
        } else if (is_option) {
            if (!take_option(command, argv, &i, values)) { return false; }
        } else if (!take_argument(command, arg, arguments_out)) {
            return false;
        }
    }
    return true;
}

void ebb__cli_print_help(const ebb_cli_command *command) {
    char usage[512];
    snprintf(usage, sizeof usage, "usage: ebb %s %s", command->name, command->arguments);
    ebb__cli_print_words(stdout, 0, 11, usage);
    ebb__cli_print_paragraph(stdout, command->about);
    printf("\noptions:\n");
    for (size_t i = 0; i < command->n_options; i++) {
        const ebb_cli_option *option = &command->options[i];
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", option->name, option->value != NULL ? " " : "",
                 option->value != NULL ? option->value : "");
        ebb__cli_print_about(stdout, 26, left, option->help);
    }
    if (command->more_help != NULL) { command->more_help(stdout); }
}

const char *ebb__cli_temp_dir(void) {
    const char *dir = getenv("TMPDIR");
    return dir != NULL && *dir != '\0' ? dir : NULL;
}

/* The folder of a path that need not be there yet. */
static bool stat_folder(const char *path, struct stat *info) {
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    const bool is_there = folder != NULL && stat(folder, info) == 0;
    free(folder);
    return is_there;
}

static const char *name_in_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static bool is_one(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool ebb__cli_is_same_file(const char *a, const char *b) {
    if (strcmp(a, b) == 0) { return true; }
    struct stat info_a, info_b;
    const bool has_a = stat(a, &info_a) == 0, has_b = stat(b, &info_b) == 0;
    if (has_a && has_b) { return S_ISREG(info_a.st_mode) && is_one(&info_a, &info_b); }
    return has_a == has_b && strcmp(name_in_folder(a), name_in_folder(b)) == 0 && stat_folder(a, &info_a) &&
           stat_folder(b, &info_b) && is_one(&info_a, &info_b);
}

bool ebb__cli_are_apart(const ebb_cli_command *command, const ebb_cli_output *outputs, size_t n) {
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            const ebb_cli_output *a = &outputs[i], *b = &outputs[j];
            if (a->path == NULL || b->path == NULL || !ebb__cli_is_same_file(a->path, b->path)) { continue; }
            ebb__cli_usage("%s: %s and %s would both write %s", command->name, a->option, b->option, b->path);
            return false;
        }
    }
    return true;
}
