/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is given out from both ends: from the lower one what stays for long, from the upper one what comes and
 * goes, so that the two do not leave holes among each other. First fit from the end asked for.
 *
 * A call takes time in proportion to the number of holes, of which there are few.
 */
#ifndef EBB_SRC_TWO_ENDS_H
#define EBB_SRC_TWO_ENDS_H

#include "base/base.h"

typedef struct ebb_hole {
    uint64_t begin, end;
} ebb_hole;

typedef struct ebb_two_ends {
    const ebb_mem *mem;
    EBB_VEC(ebb_hole) holes; /* in order; no two touch */
} ebb_two_ends;

#define EBB_NO_ROOM UINT64_MAX

/* All of it is free. After a failure, too, it can be ended. */
ebb_status ebb__two_ends_init(ebb_two_ends *space, const ebb_mem *mem, uint64_t size_bytes);
void ebb__two_ends_fini(ebb_two_ends *space);

/* Where the bytes are now, or EBB_NO_ROOM: no hole has as many. No bytes are at 0. */
uint64_t ebb__two_ends_take(ebb_two_ends *space, uint64_t bytes, bool is_upper);
ebb_status ebb__two_ends_give_back(ebb_two_ends *space, uint64_t at, uint64_t bytes);
uint64_t ebb__two_ends_largest(const ebb_two_ends *space);

#endif
