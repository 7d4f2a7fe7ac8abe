/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of memory that an allocator cuts from segments: what a replay of one works on.
 */
#ifndef EBB_SRC_PLACE_SEGMENTS_H
#define EBB_SRC_PLACE_SEGMENTS_H

#include "place/place_priv.h"

#define EBB_NO_BLOCK 0u
typedef struct ebb_block {
    uint64_t start, size_bytes;
    uint64_t largest_bytes;         /* of the free blocks below it in its tree, and itself */
    uint32_t left, right, priority; /* in the tree */
    uint32_t prev, next;            /* in the segment */
    uint64_t freed_at;              /* while it is free: the clock then */
    uint32_t pool;
    bool is_free;
    bool is_hole; /* in a pool that grows: pages that were given back; never free */
} ebb_block;

/* One that grows has one segment. */
typedef struct ebb_segment_pool {
    uint32_t root;
    uint32_t first, last; /* of one that grows: the blocks at both ends; EBB_NO_BLOCK: it has no pages */
    uint32_t n_holes;
    bool grows;
} ebb_segment_pool;

typedef struct ebb_segments {
    const ebb_mem *mem;
    ebb_place_fit fit; /* LOWEST or TIGHTEST, of equal ones the lowest */
    EBB_VEC(ebb_block) blocks;
    EBB_VEC(ebb_segment_pool) pools;
    uint32_t unused, n_made;
    uint64_t total_bytes; /* of all segments that were ever taken: where the next one begins */
    uint64_t held_bytes;  /* of those that were not given back */
    uint64_t n_visits;    /* the measure of work */
    uint64_t clock;       /* of the owner: free blocks keep what it was when they became free */
} ebb_segments;

typedef struct ebb_segment_request {
    uint64_t size_bytes;      /* not 0 */
    uint64_t segment_bytes;   /* of the segment that is taken if no free block will do; size_bytes or more */
    uint64_t min_rest_bytes;  /* what is left of a block becomes one of its own from this many bytes on; not 0 */
    uint32_t pool;            /* each has segments of its own; below 2^14 */
    uint64_t too_large_bytes; /* a free block of this many bytes or more will not do; 0: any will */
    uint64_t page_bytes;      /* not 0: the pool's one segment grows by multiples of it; always the same for a pool */
} ebb_segment_request;

ebb_status ebb__segments_init(ebb_segments *s, const ebb_mem *mem, ebb_place_fit fit);
void ebb__segments_fini(ebb_segments *s);

/* A block, good until it is given back; blocks.data[*block_out].start is where it lies. */
ebb_status ebb__segments_take(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out);
void ebb__segments_give(ebb_segments *s, uint32_t block);

/* Whether a free block will do, so that take needs no bytes from below. */
bool ebb__segments_has(ebb_segments *s, const ebb_segment_request *request);

/* Whether a block is free and all of its segment, in a pool that does not grow; and give such a segment back. */
bool ebb__segments_is_whole(const ebb_segments *s, uint32_t block);
void ebb__segments_drop(ebb_segments *s, uint32_t block);

/* Give back the pages of a pool that are free, where it grows: it grows there again before it does at its end. */
ebb_status ebb__segments_unmap(ebb_segments *s, uint32_t pool, uint64_t page_bytes);

#endif
