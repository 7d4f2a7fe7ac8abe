/* SPDX-License-Identifier: Apache-2.0
 *
 * What `diff` and `check` share: a file's study, and changes in words.
 */
#ifndef EBB_SRC_CLI_COMPARE_H
#define EBB_SRC_CLI_COMPARE_H

#include "cli.h"

/* A file, read and studied: what is at its peak. Zero-initialise; fini in any case. */
typedef struct ebb_cli_studied {
    ebb_trace_reader *reader;
    ebb_study *study;
    uint64_t peak_bytes;
    bool is_cut;    /* the recording's end is missing */
    bool is_moment; /* it shows what was live at one moment; peak_bytes are those */
} ebb_cli_studied;

/* device: as of ebb_trace_open_device. */
ebb_status ebb__cli_study(const char *path, const char *device, ebb_cli_studied *studied_out);
/* The same without a study, in no more memory than for what lives at once; and then, with the device asked for, the
 * study. */
ebb_status ebb__cli_find_peak(const char *path, const char *device, ebb_cli_studied *studied_out);
ebb_status ebb__cli_study_found(const char *device, ebb_cli_studied *studied);
/* The name of the device that was studied, where others were left out; else NULL. */
const char *ebb__cli_device(const ebb_cli_studied *studied);
void ebb__cli_studied_fini(ebb_cli_studied *studied);

/* A holder's label, or words for one that the recording has no label for, such as "(no call stack)". */
const char *ebb__cli_holder_label(const char *label, ebb_study_group group);

/* "+1.50 MiB", "-3.00 KiB", in buf; and "+12.3 %", "< 0.1 %", "x 37", "x 5e+07", "new" where there was nothing. */
char *ebb__cli_delta(uint64_t a_bytes, uint64_t b_bytes, char *buf, size_t buf_bytes);
char *ebb__cli_delta_percent(uint64_t a_bytes, uint64_t b_bytes, char *buf, size_t buf_bytes);

/* A line each; at most n_lines, then how many more there are. only_more: those that make the peak higher. */
void ebb__cli_print_changes(const ebb_diff *diff, size_t n_lines, bool only_more);
void ebb__cli_json_changes(const char *key, const ebb_diff *diff, bool only_more);

#endif
