/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb diff`: what holds the peaks of two recordings, side by side, and what became of it from the one to the other.
 */
#include "compare.h"

#include <inttypes.h>
#include <string.h>

#define DEFAULT_LINES 10

typedef struct diff_values {
    uint64_t lines;
    const char *device;
    bool json;
} diff_values;

#define AT(member) offsetof(diff_values, member)
static const ebb_cli_option diff_options[] = {
    {"--lines", EBB_CLI_AMOUNT, AT(lines), "N", "at most this many lines of each table (10)"},
    {"--device", EBB_CLI_TEXT, AT(device), "N|NAME|list",
     "whose blocks (an accelerator's, of several the highest peak's); list shows what there is"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "an object on stdout, for programs: all lines"},
};

/* The tables of holders, and their keys in JSON. */
static const struct {
    ebb_study_group group;
    const char *title, *key;
} tables[] = {
    {EBB_STUDY_BY_SITE, "by call site", "sites"},
    {EBB_STUDY_BY_MODULE, "by module", "modules"},
    {EBB_STUDY_BY_NAME, "by name", "names"},
};
#define N_TABLES (sizeof tables / sizeof *tables)

/* ---- for people -------------------------------------------------------------------------------- */

#define ROW_COLUMNS 95 /* a whole row, its label in LABEL_COLUMNS */
#define LABEL_COLUMNS 40
#define MIN_LABEL_COLUMNS 24     /* a terminal without room for this gets each row in two lines */
#define NARROW_NUMBER_COLUMNS 22 /* the difference and the per cent in the first of them */

/* In n_columns; a longer one is cut on a terminal, and elsewhere stands whole in a line of its own. */
static void print_label(const char *indent, const char *label, size_t n_columns) {
    char shown[4096];
    const bool is_cut = ebb__cli_columns() > 0;
    const size_t n = ebb__cli_count(ebb__cli_shorten(label, is_cut ? n_columns : 0, shown, sizeof shown));
    printf("%s%s", indent, shown);
    if (n > n_columns) { printf("\n%s", indent); }
    printf("%*s", (int)(n > n_columns ? n_columns : n_columns - n), "");
}

static void print_row(const char *indent, const char *label, uint64_t a_bytes, uint64_t b_bytes) {
    char a[32], b[32], delta[32], percent[32];
    const size_t n_columns = ebb__cli_columns(), n_indent = strlen(indent);
    const size_t n_missing = n_columns > 0 && n_columns < ROW_COLUMNS ? ROW_COLUMNS - n_columns : 0;
    ebb_bytes_format(a_bytes, a, sizeof a);
    ebb_bytes_format(b_bytes, b, sizeof b);
    ebb__cli_delta(a_bytes, b_bytes, delta, sizeof delta);
    ebb__cli_delta_percent(a_bytes, b_bytes, percent, sizeof percent);
    if (n_missing <= LABEL_COLUMNS - MIN_LABEL_COLUMNS) {
        print_label(indent, label, LABEL_COLUMNS - n_missing - n_indent);
        printf(" %12s -> %12s %14s %10s\n", a, b, delta, percent);
    } else {
        const size_t n_label = n_columns > NARROW_NUMBER_COLUMNS ? n_columns - NARROW_NUMBER_COLUMNS : 1;
        print_label(indent, label, n_label > n_indent ? n_label - n_indent : 1);
        printf(" %12s %8s\n%s  %s -> %s\n", delta, percent, indent, a, b);
    }
}

/* Rows that changed. One that holds everything says nothing. */
static void print_rows(const char *title, ebb_study_group group, const ebb_diff_row *rows, size_t n, uint64_t n_lines) {
    size_t n_changed = 0;
    while (n_changed < n && rows[n_changed].a_bytes != rows[n_changed].b_bytes) { n_changed++; }
    if (n_changed == 0 || (n == 1 && rows[0].label[0] == '\0')) { return; }
    printf("\n%s\n", title);
    for (size_t i = 0; i < n_changed && i < n_lines; i++) {
        print_row("  ", ebb__cli_holder_label(rows[i].label, group), rows[i].a_bytes, rows[i].b_bytes);
    }
    if (n_changed > n_lines) { printf("  and %" PRIu64 " more\n", (uint64_t)n_changed - n_lines); }
}

/* Of which devices, where the one or the other recording has several. */
static void print_devices(const ebb_cli_studied *a, const ebb_cli_studied *b) {
    const char *a_device = ebb__cli_device(a), *b_device = ebb__cli_device(b);
    char a_name[64], b_name[64];
    if (a_device == NULL && b_device == NULL) { return; }
    printf("%s -> %s, which --device chooses\n",
           ebb__cli_clean(a_device != NULL ? a_device : "(one device)", a_name, sizeof a_name),
           ebb__cli_clean(b_device != NULL ? b_device : "(one device)", b_name, sizeof b_name));
}

static void print_text(const ebb_diff *diff, const ebb_cli_studied *a, const ebb_cli_studied *b, uint64_t n_lines) {
    size_t n = 0;
    print_devices(a, b);
    print_row("", a->is_moment || b->is_moment ? "live" : "peak", a->peak_bytes, b->peak_bytes);
    const ebb_diff_row *rows = ebb_diff_roles(diff, &n);
    print_rows("by role", EBB_STUDY_BY_NAME, rows, n, n_lines); /* a role has a name */
    for (size_t t = 0; t < N_TABLES; t++) {
        rows = ebb_diff_holders(diff, tables[t].group, &n);
        print_rows(tables[t].title, tables[t].group, rows, n, n_lines);
    }
    (void)ebb_diff_changes(diff, &n);
    if (n == 0) { return; }
    printf("\nblocks %s\n", a->is_moment || b->is_moment ? "that are live" : "at the peak");
    ebb__cli_print_changes(diff, n_lines, false);
}

/* ---- for programs ------------------------------------------------------------------------------ */

static void json_rows(const char *key, const ebb_diff_row *rows, size_t n) {
    ebb__json_list_begin(key);
    for (size_t i = 0; i < n; i++) {
        ebb__json_item_begin();
        ebb__json_text("label", rows[i].label[0] != '\0' ? rows[i].label : NULL);
        ebb__json_u64("a_bytes", rows[i].a_bytes);
        ebb__json_u64("b_bytes", rows[i].b_bytes);
        ebb__json_u64("a_blocks", rows[i].a_blocks);
        ebb__json_u64("b_blocks", rows[i].b_blocks);
        ebb__json_item_end();
    }
    ebb__json_list_end();
}

static void print_json(const char *const paths[], const ebb_diff *diff, const ebb_cli_studied *a,
                       const ebb_cli_studied *b) {
    size_t n = 0;
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("a", paths[0]);
    ebb__json_text("b", paths[1]);
    ebb__json_text("a_device", ebb__cli_device(a));
    ebb__json_text("b_device", ebb__cli_device(b));
    ebb__json_u64("a_peak_bytes", a->peak_bytes);
    ebb__json_u64("b_peak_bytes", b->peak_bytes);
    const ebb_diff_row *rows = ebb_diff_roles(diff, &n);
    json_rows("roles", rows, n);
    for (size_t t = 0; t < N_TABLES; t++) {
        rows = ebb_diff_holders(diff, tables[t].group, &n);
        json_rows(tables[t].key, rows, n);
    }
    ebb__cli_json_changes("changes", diff, false);
    ebb__json_end();
}

static int run_diff(const ebb_cli_command *command, int argc, char **argv) {
    diff_values values = {.lines = DEFAULT_LINES};
    ebb_cli_arguments arguments;
    ebb_cli_studied a = {.study = NULL}, b = {.study = NULL};
    ebb_diff *diff = NULL;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (ebb__cli_lists_devices(values.device) && arguments.n > 0) { return ebb__cli_list_devices(arguments.at[0]); }
    if (arguments.n != 2) { return ebb__cli_usage("diff: say which two files; see ebb diff --help"); }
    ebb_status status = ebb__cli_study(arguments.at[0], values.device, &a);
    if (status == EBB_OK) { status = ebb__cli_study(arguments.at[1], values.device, &b); }
    if (status == EBB_OK) { status = ebb_diff_create(NULL, a.study, b.study, &diff); }
    if (status == EBB_OK && a.is_cut) { ebb__cli_warn_of_cut(arguments.at[0]); }
    if (status == EBB_OK && b.is_cut) { ebb__cli_warn_of_cut(arguments.at[1]); }
    if (status == EBB_OK && a.is_moment) { ebb__cli_warn_of_moment(arguments.at[0]); }
    if (status == EBB_OK && b.is_moment) { ebb__cli_warn_of_moment(arguments.at[1]); }
    ebb__progress_clear();
    if (status == EBB_OK && values.json) { print_json(arguments.at, diff, &a, &b); }
    if (status == EBB_OK && !values.json) { print_text(diff, &a, &b, values.lines); }
    code = status == EBB_OK ? ebb__cli_close_output() : ebb__cli_file_failed(status);
    ebb_diff_destroy(diff);
    ebb__cli_studied_fini(&a);
    ebb__cli_studied_fini(&b);
    return code;
}

static void print_more(FILE *out) {
    ebb__cli_print_paragraph(
        out, "A and B are traces of ebb's, or any files that `ebb import` reads. docs/diff.md explains what is shown.");
}

const ebb_cli_command ebb__cli_diff = {
    .name = "diff",
    .arguments = "A B [option ...]",
    .about = "what became of the peak from one recorded run to another",
    .options = diff_options,
    .n_options = sizeof diff_options / sizeof diff_options[0],
    .n_arguments_max = 2,
    .run = run_diff,
    .more_help = print_more,
};
