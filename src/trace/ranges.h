/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranges of addresses an allocator holds of a device. Ranges come and go as wholes or, where pages are mapped
 * and unmapped singly, in parts: removing the middle of one leaves two.
 */
#ifndef EBB_SRC_TRACE_RANGES_H
#define EBB_SRC_TRACE_RANGES_H

#include "base/base.h"

typedef struct ebb_range {
    uint64_t address, size_bytes;
    uint32_t stack; /* the caller's */
} ebb_range;

typedef struct ebb_ranges {
    const ebb_mem *mem;
    EBB_VEC(ebb_range) ranges; /* by address, none overlap, none is empty */
} ebb_ranges;

/* Called for each range that comes or goes; a range that is cut goes, and what is left of it comes. */
typedef ebb_status (*ebb_ranges_fn)(void *ctx, const ebb_range *range, bool comes);

void ebb__ranges_init(ebb_ranges *ranges, const ebb_mem *mem);
void ebb__ranges_fini(ebb_ranges *ranges);

/* What range overlaps is removed first. One without bytes, or beyond the end of addresses, is nothing. fn may be NULL.
 * EBB_E_LIMIT: more ranges than a device has pages for. */
ebb_status ebb__ranges_add(ebb_ranges *ranges, const ebb_range *range, ebb_ranges_fn fn, void *ctx);
ebb_status ebb__ranges_remove(ebb_ranges *ranges, const ebb_range *range, ebb_ranges_fn fn, void *ctx);

/* The range that begins at address, until the next call; NULL: none does. */
const ebb_range *ebb__ranges_find(const ebb_ranges *ranges, uint64_t address);

#endif
