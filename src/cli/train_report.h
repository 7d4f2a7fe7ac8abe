/* SPDX-License-Identifier: Apache-2.0
 *
 * What `ebb train` says while it runs and when it is done, for people or as JSON lines.
 */
#ifndef EBB_SRC_CLI_TRAIN_REPORT_H
#define EBB_SRC_CLI_TRAIN_REPORT_H

#include "cli.h"

typedef struct ebb_cli_train_report {
    bool as_json;
    ebb_trainer_info info;
} ebb_cli_train_report;

void ebb__cli_report_begin(ebb_cli_train_report *report);
/* Show that steps come next; this many are done. */
void ebb__cli_report_go_on(const ebb_cli_train_report *report, uint64_t step);
void ebb__cli_report_step(const ebb_cli_train_report *report, const ebb_step_result *step);
/* A better plan was taken before the step that comes next; info is of now. */
void ebb__cli_report_improved(ebb_cli_train_report *report, ebb_trainer_info info);
void ebb__cli_report_eval(const ebb_cli_train_report *report, uint64_t n_epochs, const ebb_eval_result *eval);
void ebb__cli_report_end(const ebb_cli_train_report *report, const ebb_trainer_summary *summary);

#endif
