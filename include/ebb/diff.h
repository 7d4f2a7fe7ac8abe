/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing two studies: the holders of each peak, and how they changed from the first to the second. docs/diff.md says
 * how blocks are matched.
 */
#ifndef EBB_DIFF_H
#define EBB_DIFF_H

#include "ebb/study.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_diff ebb_diff;

/* Compare the blocks that are live at the two peaks. The diff borrows the studies and their readers until it is
 * destroyed. EBB_E_LIMIT: 2^31 blocks or more at the peaks. Linear time. */
EBB_API ebb_status ebb_diff_create(const ebb_mem *mem, const ebb_study *a, const ebb_study *b, ebb_diff **diff_out);
EBB_API void ebb_diff_destroy(ebb_diff *diff);

/* Bytes and blocks at the peaks under one label. */
typedef struct ebb_diff_row {
    const char *label;
    uint64_t a_bytes, b_bytes;
    uint64_t a_blocks, b_blocks;
} ebb_diff_row;

/* By role, and by holder as in ebb_study_holders; the largest change first. The rows of each side add up to its peak.
 * Labels are those of the studies, or "". */
EBB_API const ebb_diff_row *ebb_diff_roles(const ebb_diff *diff, size_t *n_out);
EBB_API const ebb_diff_row *ebb_diff_holders(const ebb_diff *diff, ebb_study_group group, size_t *n_out);

typedef enum ebb_diff_change { EBB_DIFF_GREW, EBB_DIFF_SHRANK, EBB_DIFF_CAME, EBB_DIFF_WENT } ebb_diff_change;
EBB_API const char *ebb_diff_change_name(ebb_diff_change change); /* static: "grew", "shrank", "came", "went" */

/* Blocks that changed in the same way. */
typedef struct ebb_diff_blocks {
    ebb_diff_change change;
    const char *name, *site; /* "": none */
    ebb_role role;
    uint64_t n_blocks;
    uint64_t a_bytes, b_bytes; /* of each block; 0 on the side that does not have it */
} ebb_diff_blocks;

/* The blocks that grew, shrank, came and went, the largest change first. The changes add up to the change of the peak.
 */
EBB_API const ebb_diff_blocks *ebb_diff_changes(const ebb_diff *diff, size_t *n_out);

#ifdef __cplusplus
}
#endif

#endif
