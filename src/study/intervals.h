/* SPDX-License-Identifier: Apache-2.0
 *
 * Intervals one by one, and which of them are long enough to leave in.
 */
#ifndef EBB_SRC_STUDY_INTERVALS_H
#define EBB_SRC_STUDY_INTERVALS_H

#include "study/study_priv.h"

typedef ebb_status (*ebb_study_visit)(void *ctx, const ebb_study_interval *interval);

/* The intervals of a block in order of time; is_free is not set. */
ebb_status ebb__study_each_interval(const ebb_study *s, uint32_t block, ebb_study_visit visit, void *ctx);

/* Whether a block of this many bytes could be out and in again within the interval. */
bool ebb__study_is_free(const ebb_study *s, uint64_t interval_ns, uint64_t size_bytes);

#endif
