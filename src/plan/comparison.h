/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison from inside, for the files that write it.
 */
#ifndef EBB_SRC_COMPARISON_H
#define EBB_SRC_COMPARISON_H

#include "base/file.h"
#include "ebb/comparison.h"
#include "plan/plan_priv.h"

struct ebb_comparison {
    const ebb_mem *mem;
    ebb_bump bump; /* all texts and arrays */
    char *program; /* its name */
    uint64_t liveness_bytes;
    ebb_topology topology;
    ebb_compared_budget *budgets;
    size_t *by_bytes; /* [n_budgets]: numbers of the budgets, from the least */
    size_t n_budgets;
    ebb_compared *rows; /* [n_budgets * n_policies], by budget */
    size_t n_policies;
    ebb_plan **plans; /* ours, one for each row; a row's plan may be another row's */
};

/* Write it; the writer remembers its first failure. */
/* The time that no plan like a row's beats within its budget; the row has a plan. */
uint64_t ebb__comparison_bound(const ebb_comparison *c, const ebb_compared *row);

void ebb__comparison_write_csv(const ebb_comparison *c, ebb_file_writer *out);
void ebb__comparison_write_svg(const ebb_comparison *c, ebb_file_writer *out);

#endif
