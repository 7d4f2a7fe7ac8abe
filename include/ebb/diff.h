/* SPDX-License-Identifier: Apache-2.0
 *
 * Two studies side by side: what holds the peak of each, and what became of it from the one to the other. docs/diff.md
 * says how blocks are matched.
 */
#ifndef EBB_DIFF_H
#define EBB_DIFF_H

#include "ebb/study.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_diff ebb_diff;

/* Compare what is live at the peaks. The studies and their readers are borrowed until the diff goes. EBB_E_LIMIT: 2^31
 * blocks or more at the peaks. Linear time. */
EBB_API ebb_status ebb_diff_create(const ebb_mem *mem, const ebb_study *a, const ebb_study *b, ebb_diff **diff_out);
EBB_API void ebb_diff_destroy(ebb_diff *diff); /* NULL is fine */

/* Bytes and blocks at the peaks under one label. */
typedef struct ebb_diff_row {
    const char *label;
    uint64_t a_bytes, b_bytes;
    uint64_t a_blocks, b_blocks;
} ebb_diff_row;

/* By role, and by holder as ebb_study_holders groups them; what changed most first. Rows of both sides add up to the
 * peaks; labels are in the words of the studies, "" for what has none. */
EBB_API const ebb_diff_row *ebb_diff_roles(const ebb_diff *diff, size_t *n_out);
EBB_API const ebb_diff_row *ebb_diff_holders(const ebb_diff *diff, ebb_study_group group, size_t *n_out);

typedef enum ebb_diff_change { EBB_DIFF_GREW, EBB_DIFF_SHRANK, EBB_DIFF_CAME, EBB_DIFF_WENT } ebb_diff_change;
EBB_API const char *ebb_diff_change_name(ebb_diff_change change); /* static: "grew", "shrank", "came", "went" */

/* Blocks that changed alike. */
typedef struct ebb_diff_blocks {
    ebb_diff_change change;
    const char *name, *site; /* "" where there is none */
    ebb_role role;
    uint64_t n_blocks;
    uint64_t a_bytes, b_bytes; /* of each of them; 0 where it is not there */
} ebb_diff_blocks;

/* What grew, shrank, came and went, what changed the peak most first. The changes add up to that of the peak. */
EBB_API const ebb_diff_blocks *ebb_diff_changes(const ebb_diff *diff, size_t *n_out);

#ifdef __cplusplus
}
#endif

#endif
