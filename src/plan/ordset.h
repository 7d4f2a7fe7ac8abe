/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of small integers with neighbours: a tree of 64-bit words, each bit of a word saying whether the word
 * below it has any. Add, remove, next and previous touch one word a level, log64 of the range.
 */
#ifndef EBB_SRC_ORDSET_H
#define EBB_SRC_ORDSET_H

#include "base/base.h"

#define EBB_ORDSET_LEVELS 6
#define EBB_ORDSET_NONE UINT64_MAX

typedef struct ebb_ordset {
    uint64_t *word[EBB_ORDSET_LEVELS]; /* [0] holds the members */
    uint32_t n_levels;
    uint64_t range;
} ebb_ordset;

/* Empty, for members below range. */
ebb_status ebb__ordset_init(ebb_ordset *set, uint64_t range, ebb_bump *bump);
bool ebb__ordset_has(const ebb_ordset *set, uint64_t member);
void ebb__ordset_add(ebb_ordset *set, uint64_t member);
void ebb__ordset_remove(ebb_ordset *set, uint64_t member);
/* The least member >= from, the greatest <= from; EBB_ORDSET_NONE if none exists. */
uint64_t ebb__ordset_next(const ebb_ordset *set, uint64_t from);
uint64_t ebb__ordset_prev(const ebb_ordset *set, uint64_t from);

#endif
