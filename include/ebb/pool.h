/* SPDX-License-Identifier: Apache-2.0
 *
 * The run-time pool: malloc and free over one arena for programs that ask for the same blocks in every iteration.
 * A placement decides beforehand where each request of an iteration goes, so the pool answers without a search, and the
 * arena is hardly larger than the most bytes that live at once (the idea of SmartPool: Zhang et al., 'Efficient Memory
 * Management for GPU-based Deep Learning Systems', arXiv 1903.06631, section 4).
 *
 * The pool notices calls that do not follow the plan: an extra or missing request, another size, another order, a late
 * free. It serves such requests from a general allocator over the rest of the arena, never with bytes of a live block,
 * and finds its place in the iteration again. A pool that learns records the requests, finds the iteration once it has
 * come twice, even with some noise in it, and places it around the live blocks. It does so again when the plan misses
 * too often. docs/pool.md has the details and the costs.
 *
 * The pool only computes addresses and never accesses the memory there: the arena may be memory of this process, an
 * mmap, or a device's.
 *
 * Threads: one pool, one thread at a time, unless it was made with options.locked. Independent of everything in ebb
 * but placement.
 */
#ifndef EBB_POOL_H
#define EBB_POOL_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_pool ebb_pool;

typedef struct ebb_pool_options {
    size_t size_bytes;
    const ebb_mem *mem;      /* for the pool's books; kept. NULL: malloc's */
    uint64_t base;           /* address of the arena's first byte, aligned */
    uint64_t capacity_bytes; /* of the arena; bytes after the last whole granule are not used */
    uint64_t
        alignment_bytes; /* the granule, a power of two: addresses are multiples of it, sizes are rounded up to it */
    bool learns;         /* find the iteration, plan, and plan anew by itself */
    bool locked;         /* every call takes a lock */
} ebb_pool_options;
#define EBB_POOL_OPTIONS_INIT EBB_INIT(ebb_pool_options, EBB_SET(alignment_bytes, 512))

/* A request of an iteration; requests stand in the order in which they come. The block is freed before the request that
 * comes `span` requests later, in this iteration or the next: 1 means before the very next one. If span is 0, or more
 * than the number of requests, the request is not planned, and goes to the general allocator. */
typedef struct ebb_pool_request {
    uint64_t size_bytes;
    uint64_t span;
} ebb_pool_request;

typedef struct ebb_pool_stats {
    size_t size_bytes;                    /* set by the caller to sizeof this */
    uint64_t n_requests;                  /* answered with a block */
    uint64_t n_hits;                      /* answered from the plan */
    uint64_t n_unplanned;                 /* expected, but without a place in the plan */
    uint64_t n_mismatches;                /* unexpected, or their place was still in use */
    uint64_t n_plans;                     /* made by itself or given */
    uint64_t n_drops;                     /* of plans that missed too much, or left no room */
    uint64_t live_bytes, peak_live_bytes; /* rounded sizes */
    uint64_t plan_bytes;                  /* of the arena that the plan holds; 0: none */
    uint64_t peak_bytes;                  /* the highest end of anything handed out, and of the plan, from base */
} ebb_pool_stats;

/* The pool is the caller's (ebb_pool_destroy). EBB_E_ARGUMENT: options of another version; an arena of no granule, of
 * 2^62 bytes or more, beyond 64 bits, or not aligned; an alignment that is no power of two, or above 2^32.
 * EBB_E_LIMIT: the system has no room for a lock. */
EBB_API ebb_status ebb_pool_create(const ebb_pool_options *options, ebb_pool **pool_out);
/* Live blocks are forgotten. */
EBB_API void ebb_pool_destroy(ebb_pool *pool);

/* From the next request on, follow an iteration of requests[n] instead of the current plan. offsets[n] are relative to
 * the plan's first byte, as ebb_place_solve gives them for items that live at [i, i + span) of a circle of n; they are
 * checked, and the plan lies in one piece. If offsets is NULL, the pool places the requests around the live blocks. The
 * arrays are not kept. If n is 0, the pool continues without a plan. EBB_E_NO_FIT: there is no room for them;
 * EBB_E_INVALID_PLAN: live requests overlap, or are not aligned; EBB_E_LIMIT: an iteration of 2^30 - 1 requests or
 * more. After a failure, the pool continues without a plan or, if there is not enough memory even for that, with its
 * old plan. */
EBB_API ebb_status ebb_pool_plan(ebb_pool *pool, const ebb_pool_request *requests, size_t n, const uint64_t *offsets);

/* Take a block of size_bytes; 0 counts as 1. EBB_E_NO_FIT: no room; if the plan expected the request, it still counts
 * as come, and the plan continues after it. EBB_E_NO_MEMORY: no memory for the pool's records; EBB_E_LIMIT: 2^32
 * blocks; neither for a request that gets its place in the plan. O(1), amortised over the calls before if they were not
 * as planned; a pool that learns takes longer when it makes a plan. */
EBB_API ebb_status ebb_pool_alloc(ebb_pool *pool, uint64_t size_bytes, uint64_t *address_out);

/* Give back the block at address. EBB_E_ARGUMENT: no live block begins there; nothing is changed. */
EBB_API ebb_status ebb_pool_free(ebb_pool *pool, uint64_t address);

/* EBB_E_ARGUMENT: stats of another version. */
EBB_API ebb_status ebb_pool_get_stats(ebb_pool *pool, ebb_pool_stats *stats_out);

#ifdef __cplusplus
}
#endif

#endif
