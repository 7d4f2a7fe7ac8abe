/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison as a table for people, and as JSON.
 */
#ifndef EBB_SRC_CLI_COMPARE_SHOW_H
#define EBB_SRC_CLI_COMPARE_SHOW_H

#include "budgets.h"
#include "subject.h"

/* The comparison to be shown, and the budgets as they were asked for. */
typedef struct ebb_cli_shown {
    const ebb_cli_subject *subject;
    const ebb_comparison *comparison;
    const ebb_cli_budgets *budgets;
    uint64_t liveness_bytes;
    double made_s;
} ebb_cli_shown;

/* A table for each budget, or one table where there is one policy, as wide as the terminal; or an object. */
void ebb__cli_show(const ebb_cli_shown *shown, bool as_json);
/* On stderr: which policies have no plan at which budgets, and why. */
void ebb__cli_tell_without_plan(const ebb_cli_shown *shown);

#endif
