/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb check`: whether a recording's peak is what it may be, for a test that runs on every change. The answer is the
 * exit code; where it is 'no', what grew is named, or who holds the peak where there is nothing to compare with.
 */
#include "compare.h"

#include <inttypes.h>

#define N_NAMED 5
#define NUMBER_COLUMNS 34 /* in front of a holder's name */

typedef struct check_values {
    uint64_t max_peak; /* UINT64_MAX: not said */
    const char *baseline, *device;
    ebb_cli_memory tolerance;
    bool incomplete, json;
} check_values;

#define AT(member) offsetof(check_values, member)
static const ebb_cli_option check_options[] = {
    {"--max-peak", EBB_CLI_BYTES_OR_NONE, AT(max_peak), "SIZE", "the most that the peak may be, as in 2GiB"},
    {"--baseline", EBB_CLI_TEXT, AT(baseline), "FILE", "another recording, whose peak it may not exceed"},
    {"--tolerance", EBB_CLI_MEMORY_OR_NONE, AT(tolerance), "N%|SIZE", "by more than this (0)"},
    {"--device", EBB_CLI_TEXT, AT(device), "N|NAME|list",
     "whose blocks (an accelerator's, of several the highest peak's); list shows what there is"},
    {"--incomplete", EBB_CLI_FLAG, AT(incomplete), NULL,
     "judge recordings that are cut off or have no history by what they have"},
    {"--json", EBB_CLI_FLAG, AT(json), NULL, "the answer as an object on stdout, for programs"},
};

typedef struct check_answer {
    const ebb_cli_studied *file, *baseline; /* baseline: NULL without one */
    uint64_t limit_bytes;
    const ebb_diff *diff; /* to the baseline */
} check_answer;

static int check_arguments(const check_values *values, const ebb_cli_arguments *arguments) {
    if (arguments->n == 0) { return ebb__cli_usage("check: say which file; see ebb check --help"); }
    if (values->max_peak == UINT64_MAX && values->baseline == NULL) {
        return ebb__cli_usage("check: say with --max-peak or --baseline what the peak may be");
    }
    const bool tolerates = values->tolerance.bytes > 0 || values->tolerance.percent > 0.0;
    if (tolerates && values->baseline == NULL) { return ebb__cli_usage("check: --tolerance without --baseline"); }
    return EBB_EXIT_DONE;
}

/* The least of what was asked for. */
static uint64_t limit_of(const check_values *values, const ebb_cli_studied *baseline) {
    uint64_t limit = values->max_peak;
    if (baseline->study == NULL) { return limit; }
    const double more = (double)baseline->peak_bytes * (values->tolerance.percent / 100.0);
    uint64_t allowed = baseline->peak_bytes;
    allowed += values->tolerance.percent > 0.0 && more < 0x1p62 ? (uint64_t)more : values->tolerance.bytes;
    return allowed < limit && allowed >= baseline->peak_bytes ? allowed : limit;
}

/* Call sites, or names where no stack was recorded. */
static ebb_study_group holder_group(const ebb_study *study) {
    size_t n = 0;
    (void)ebb_study_holders(study, EBB_STUDY_BY_SITE, &n);
    return n > 0 ? EBB_STUDY_BY_SITE : EBB_STUDY_BY_NAME;
}

static void print_holders(const ebb_study *study) {
    char text[32], label[4096];
    const size_t n_columns = ebb__cli_columns();
    const size_t n_label = n_columns == 0 ? 0 : n_columns > NUMBER_COLUMNS ? n_columns - NUMBER_COLUMNS : 1;
    size_t n = 0;
    const ebb_study_group group = holder_group(study);
    const ebb_study_holder *holders = ebb_study_holders(study, group, &n);
    for (size_t i = 0; i < n && i < N_NAMED; i++) {
        const char *name = ebb__cli_holder_label(holders[i].label, group);
        const int n_before =
            printf("  held %12s %6" PRIu64 " block%s ", ebb_bytes_format(holders[i].bytes, text, sizeof text),
                   holders[i].n_blocks, holders[i].n_blocks == 1 ? " " : "s");
        ebb__cli_shorten(name, n_label, label, sizeof label);
        ebb__cli_print_words(stdout, n_before > 0 ? (size_t)n_before : 0, NUMBER_COLUMNS, label);
    }
}

static void json_holders(const ebb_study *study) {
    const ebb_study_group group = holder_group(study);
    size_t n = 0;
    const ebb_study_holder *holders = ebb_study_holders(study, group, &n);
    ebb__json_list_begin("held");
    for (size_t i = 0; i < n && i < N_NAMED; i++) {
        ebb__json_item_begin();
        ebb__json_text("label", ebb__cli_holder_label(holders[i].label, group));
        ebb__json_u64("bytes", holders[i].bytes);
        ebb__json_u64("blocks", holders[i].n_blocks);
        ebb__json_item_end();
    }
    ebb__json_list_end();
}

/* It is too high, though no higher than the baseline or without one: who holds it is told. */
static bool tells_holders(const check_answer *answer) {
    const uint64_t peak_bytes = answer->file->peak_bytes;
    const bool grew = answer->diff != NULL && peak_bytes > answer->baseline->peak_bytes;
    return peak_bytes > answer->limit_bytes && !grew;
}

static void print_text(const char *path, const check_answer *answer) {
    char peak[32], limit[32], over[32], delta[32], percent[32];
    char of[80] = "", name[64];
    const uint64_t peak_bytes = answer->file->peak_bytes;
    const char *device = ebb__cli_device(answer->file), *what = answer->file->is_moment ? "what was live" : "the peak";
    const bool fits = peak_bytes <= answer->limit_bytes;
    if (device != NULL) { snprintf(of, sizeof of, " of %s", ebb__cli_clean(device, name, sizeof name)); }
    ebb_bytes_format(peak_bytes, peak, sizeof peak);
    ebb_bytes_format(answer->limit_bytes, limit, sizeof limit);
    if (fits) {
        printf("%s: %s%s, %s, is within %s", path, what, of, peak, limit);
    } else {
        printf("%s: %s%s, %s, exceeds %s by %s", path, what, of, peak, limit,
               ebb_bytes_format(peak_bytes - answer->limit_bytes, over, sizeof over));
    }
    if (answer->diff != NULL) {
        const uint64_t base_bytes = answer->baseline->peak_bytes;
        printf("; %s %s since the baseline", ebb__cli_delta(base_bytes, peak_bytes, delta, sizeof delta),
               ebb__cli_delta_percent(base_bytes, peak_bytes, percent, sizeof percent));
    }
    printf("\n");
    if (fits) { return; }
    if (tells_holders(answer)) {
        print_holders(answer->file->study);
    } else {
        ebb__cli_print_changes(answer->diff, N_NAMED, true);
    }
}

static void print_json(const char *path, const check_answer *answer) {
    const uint64_t peak_bytes = answer->file->peak_bytes;
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("file", path);
    ebb__json_text("device", ebb__cli_device(answer->file));
    ebb__json_bool("ok", peak_bytes <= answer->limit_bytes);
    ebb__json_u64("peak_bytes", peak_bytes);
    ebb__json_u64("limit_bytes", answer->limit_bytes);
    if (answer->diff != NULL) {
        ebb__json_u64("baseline_peak_bytes", answer->baseline->peak_bytes);
        ebb__cli_json_changes("grew", answer->diff, true);
    } else {
        ebb__json_text("baseline_peak_bytes", NULL);
        ebb__json_text("grew", NULL);
    }
    if (tells_holders(answer)) { json_holders(answer->file->study); }
    ebb__json_end();
}

static int say(const char *path, const check_values *values, const check_answer *answer) {
    ebb__progress_clear();
    if (values->json) {
        print_json(path, answer);
    } else {
        print_text(path, answer);
    }
    const int code = ebb__cli_close_output();
    if (code != EBB_EXIT_DONE) { return code; }
    return answer->file->peak_bytes <= answer->limit_bytes ? EBB_EXIT_DONE : EBB_EXIT_NO;
}

/* What holds the peak is asked only where there is something to be said of it. */
static ebb_status measure(const char *path, const check_values *values, ebb_cli_studied *file) {
    const ebb_status status = ebb__cli_find_peak(path, values->device, file);
    if (status != EBB_OK || file->peak_bytes <= values->max_peak) { return status; }
    return ebb__cli_study_found(values->device, file);
}

static ebb_status compare(const char *path, const check_values *values, ebb_cli_studied *file,
                          ebb_cli_studied *baseline, ebb_diff **diff_out) {
    ebb_status status = ebb__cli_study(path, values->device, file);
    if (status == EBB_OK) { status = ebb__cli_study(values->baseline, values->device, baseline); }
    return status == EBB_OK ? ebb_diff_create(NULL, baseline->study, file->study, diff_out) : status;
}

/* A recording that is cut off may have had its peak after the cut, and a snapshot without history may have had it
 * before. They are judged only if that is asked for. */
static bool may_be_judged(const char *path, const check_values *values, const ebb_cli_studied *studied) {
    if (!studied->is_cut && !studied->is_moment) { return true; }
    if (values->incomplete) {
        if (studied->is_moment) { ebb__cli_warn_of_moment(path); }
        if (studied->is_cut) { ebb__cli_warn_of_cut(path); }
        return true;
    }
    ebb__cli_say("%s: the %s, so its peak is not known; --incomplete judges what it has", path,
                 studied->is_moment ? "snapshot shows one moment and has no history" : "recording is cut off");
    return false;
}

static int run_check(const ebb_cli_command *command, int argc, char **argv) {
    check_values values = {.max_peak = UINT64_MAX};
    ebb_cli_arguments arguments;
    ebb_cli_studied file = {.study = NULL}, baseline = {.study = NULL};
    ebb_diff *diff = NULL;
    int code = EBB_EXIT_DONE;
    if (!ebb__cli_parse(command, argc, argv, &values, &arguments, &code)) { return code; }
    if (ebb__cli_lists_devices(values.device) && arguments.n > 0) { return ebb__cli_list_devices(arguments.at[0]); }
    code = check_arguments(&values, &arguments);
    if (code != EBB_EXIT_DONE) { return code; }
    ebb_status status = values.baseline != NULL ? compare(arguments.at[0], &values, &file, &baseline, &diff)
                                                : measure(arguments.at[0], &values, &file);
    const check_answer answer = {
        .file = &file, .baseline = &baseline, .limit_bytes = limit_of(&values, &baseline), .diff = diff};
    if (status != EBB_OK) {
        code = ebb__cli_file_failed(status);
    } else if (!may_be_judged(arguments.at[0], &values, &file) || !may_be_judged(values.baseline, &values, &baseline)) {
        code = EBB_EXIT_INPUT;
    } else {
        code = say(arguments.at[0], &values, &answer);
    }
    ebb_diff_destroy(diff);
    ebb__cli_studied_fini(&file);
    ebb__cli_studied_fini(&baseline);
    return code;
}

static void print_more(FILE *out) {
    ebb__cli_print_paragraph(out, "FILE is a trace of ebb's, or any file that `ebb import` reads. Exit code 0: the "
                                  "peak is within both limits, 1: it is not, and what grew is named. A recording that "
                                  "is cut off, and a snapshot without history, are refused with exit code 3.");
}

const ebb_cli_command ebb__cli_check = {
    .name = "check",
    .arguments = "FILE --max-peak SIZE | --baseline FILE [--tolerance N%]",
    .about = "whether a recorded run's peak is what it may be",
    .options = check_options,
    .n_options = sizeof check_options / sizeof check_options[0],
    .n_arguments_max = 1,
    .run = run_check,
    .more_help = print_more,
};
