/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of memory that an allocator cuts from segments: what a replay of one works on.
 */
#ifndef EBB_SRC_PLACE_SEGMENTS_H
#define EBB_SRC_PLACE_SEGMENTS_H

#include "place/place_priv.h"

#define EBB_NO_BLOCK 0u
#define EBB_N_SEGMENT_POOLS 2u

typedef struct ebb_block {
    uint64_t start, size_bytes;
    uint64_t largest_bytes;         /* of the free blocks below it in its tree, and itself */
    uint32_t left, right, priority; /* in the tree */
    uint32_t prev, next;            /* in the segment */
    uint32_t pool;
    bool is_free;
} ebb_block;

typedef struct ebb_segments {
    const ebb_mem *mem;
    ebb_place_fit fit; /* LOWEST or TIGHTEST, of equal ones the lowest */
    EBB_VEC(ebb_block) blocks;
    uint32_t root[EBB_N_SEGMENT_POOLS];
    uint32_t unused, n_made;
    uint64_t total_bytes; /* of all segments */
    uint64_t n_visits;    /* the measure of work */
} ebb_segments;

typedef struct ebb_segment_request {
    uint64_t size_bytes;     /* not 0 */
    uint64_t segment_bytes;  /* of the segment that is taken if no free block will do; size_bytes or more */
    uint64_t min_rest_bytes; /* what is left of a block becomes one of its own from so many bytes on; not 0 */
    uint32_t pool;           /* below EBB_N_SEGMENT_POOLS; each has segments of its own */
} ebb_segment_request;

ebb_status ebb__segments_init(ebb_segments *s, const ebb_mem *mem, ebb_place_fit fit);
void ebb__segments_fini(ebb_segments *s);

/* A block, good until it is given back; blocks.data[*block_out].start is where it lies. */
ebb_status ebb__segments_take(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out);
void ebb__segments_give(ebb_segments *s, uint32_t block);

#endif
