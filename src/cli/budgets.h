/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of budgets on the command line, for `compare` and the curve of `plan`.
 */
#ifndef EBB_SRC_CLI_BUDGETS_H
#define EBB_SRC_CLI_BUDGETS_H

#include "cli.h"

#define EBB_CLI_MAX_BUDGETS 256u

typedef struct ebb_cli_budgets {
    ebb_cli_memory at[EBB_CLI_MAX_BUDGETS];
    size_t n;
} ebb_cli_budgets;

/* false: it is not a list of budgets, or one of too many. */
bool ebb__cli_read_budgets(const char *text, ebb_cli_budgets *budgets_out);

/* The bytes of a budget whose 100 % are liveness_bytes. */
uint64_t ebb__cli_budget_bytes(ebb_cli_memory memory, uint64_t liveness_bytes);

#endif
