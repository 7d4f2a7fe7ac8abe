/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool's three parts: a general allocator (pool_heap.c), the plan of an iteration (pool_replay.c), and what finds
 * the iteration (pool_learn.c). All deal in addresses and in bytes rounded up to the granule.
 */
#ifndef EBB_SRC_POOL_PRIV_H
#define EBB_SRC_POOL_PRIV_H

#include "base/base.h"
#include "ebb/pool.h"

#define EBB_POOL_NONE UINT32_MAX
#define EBB_POOL_NOWHERE UINT64_MAX

/* ---- general allocator ------------------------------------------------------------------------ */

typedef struct ebb_pool_heap ebb_pool_heap;

/* Over [start, start + n). */
ebb_status ebb__pool_heap_create(const ebb_mem *mem, uint64_t start, uint64_t n, ebb_pool_heap **heap_out);
void ebb__pool_heap_destroy(ebb_pool_heap *heap);

/* Take n bytes, n > 0; note is kept beside the block. *start_out is EBB_POOL_NOWHERE where there is no room. */
ebb_status ebb__pool_heap_take(ebb_pool_heap *heap, uint64_t n, uint64_t note, uint64_t *start_out);

/* Change the note of the taken block that starts there. */
void ebb__pool_heap_note(ebb_pool_heap *heap, uint64_t start, uint64_t note);

/* Give back the block that starts there; *n_out is 0 where none does. */
void ebb__pool_heap_give(ebb_pool_heap *heap, uint64_t start, uint64_t *n_out, uint64_t *note_out);

/* Cut the taken block that starts there after n bytes, which are fewer than it has: two taken blocks, the second
 * with note 0. Room for it has been made. */
void ebb__pool_heap_cut(ebb_pool_heap *heap, uint64_t start, uint64_t n);

/* Make room in the books for n_more blocks. */
ebb_status ebb__pool_heap_reserve(ebb_pool_heap *heap, size_t n_more);

/* Neighbours, trees and table agree. O(blocks). */
bool ebb__pool_heap_is_valid(ebb_pool_heap *heap);

/* ---- the plan of an iteration ----------------------------------------------------------------- */

typedef struct ebb_pool_planned {
    uint64_t n, span;
    uint64_t start; /* of meaning where 0 < span <= requests */
} ebb_pool_planned;

/* A call that the plan has coming: a request of n bytes, to which it gives start, or the free of what starts there. */
typedef struct ebb_pool_event {
    uint64_t n; /* of a request, or one of these: */
#define EBB_POOL_FREE 0u
#define EBB_POOL_STOP UINT64_MAX /* no call is this one; look at the books */
    uint64_t start;
} ebb_pool_event;

/* What an event is about. */
typedef struct ebb_pool_meaning {
    uint32_t request : 31;
    uint32_t is_free : 1;
    uint32_t before; /* the request before which it stands, or which it is */
} ebb_pool_meaning;

typedef struct ebb_pool_expected {
    uint64_t n, start;
    uint32_t spot; /* EBB_POOL_NONE: not planned */
    uint32_t span;
    uint32_t alloc_at, free_at; /* events; the second where it is planned */
    uint32_t late_at;           /* in the list of the late; EBB_POOL_NONE */
} ebb_pool_expected;

/* One of the plan's distinct starts. */
typedef struct ebb_pool_spot {
    uint64_t start;
    uint32_t live; /* the request that lives there; EBB_POOL_NONE */
} ebb_pool_spot;

#define EBB_POOL_GRAM 4u /* sizes that tell a place */

typedef struct ebb_pool_replay {
    ebb_pool_event *events; /* in time order; behind them a stop */
    ebb_pool_meaning *meanings;
    ebb_pool_expected *requests;
    ebb_pool_spot *spots;
    uint32_t *spot_table; /* spots by start */
    uint32_t *gram_table; /* requests by their size and those of the next few */
    uint32_t *late;       /* requests */
    uint64_t mask;        /* of both tables */
    uint32_t n, n_events, n_spots, n_late;
    uint32_t at;       /* the event that is expected, as far as the books are kept */
    uint64_t n_rounds; /* the times that the end was passed since */
    uint64_t live_bytes, peak_bytes;
    uint64_t n_hits, n_others;      /* requests */
    uint64_t recent[EBB_POOL_GRAM]; /* sizes since the last one that was where the plan has it */
    uint32_t n_recent;
    uint64_t window_end, n_missed; /* mismatches until so many requests have come */
    uint64_t n_worst;              /* most mismatches in a window */
    uint64_t next_jump;            /* not before so many requests */
    const ebb_mem *mem;
    ebb_bump bump;
} ebb_pool_replay;

/* requests[n] are copied. */
ebb_status ebb__pool_replay_create(const ebb_mem *mem, const ebb_pool_planned *requests, size_t n,
                                   ebb_pool_replay **replay_out);
void ebb__pool_replay_destroy(ebb_pool_replay *replay);

/* Whether a request is the next event: then that is done, and *start_out its place. limit: no request is larger, and
 * EBB_POOL_STOP is far larger; granule_mask: of what is below a granule. */
static inline bool ebb__pool_follow_alloc(const ebb_pool_event **next, uint64_t size_bytes, uint64_t granule_mask,
                                          uint64_t limit, uint64_t *start_out) {
    const ebb_pool_event *e = *next;
    if (size_bytes - 1 >= limit || e->n - size_bytes > granule_mask) { return false; }
    *next = e + 1;
    *start_out = e->start;
    return true;
}

/* The same of a free. */
static inline bool ebb__pool_follow_free(const ebb_pool_event **next, uint64_t start) {
    const ebb_pool_event *e = *next;
    if (e->start != start || e->n != EBB_POOL_FREE) { return false; }
    *next = e + 1;
    return true;
}

/* The event from which on calls may be followed without the books; NULL: no call may. */
const ebb_pool_event *ebb__pool_replay_get_next(const ebb_pool_replay *replay);

/* Calls were followed up to here: bring the books up to date. */
void ebb__pool_replay_catch_up(ebb_pool_replay *replay, const ebb_pool_event *next);

typedef enum ebb_pool_answer { EBB_POOL_HIT, EBB_POOL_UNPLANNED, EBB_POOL_MISMATCH } ebb_pool_answer;

/* With the books up to date: a request came; *start_out is its place where it is a hit. */
ebb_pool_answer ebb__pool_replay_search(ebb_pool_replay *replay, uint64_t n, uint64_t *start_out);

/* With the books up to date: the bytes of the block that starts there, which is now free; 0: none does. */
uint64_t ebb__pool_replay_give(ebb_pool_replay *replay, uint64_t start);

typedef struct ebb_pool_piece {
    uint64_t start, n;
} ebb_pool_piece;

/* The live blocks in order of address, from the bump. */
ebb_status ebb__pool_replay_get_live(const ebb_pool_replay *replay, ebb_bump *bump, ebb_pool_piece **pieces_out,
                                     size_t *n_out);

/* Whether a few iterations had `patience` mismatches or more. */
bool ebb__pool_replay_is_stale(const ebb_pool_replay *replay, uint64_t patience);

bool ebb__pool_replay_is_valid(const ebb_pool_replay *replay);

/* ---- finding the iteration -------------------------------------------------------------------- */

/* What requests and frees have come, as far as it is of use for finding the iteration. */
typedef struct ebb_pool_record {
    uint64_t n;
    uint64_t death; /* the request before which it was freed, as a number of requests since the beginning; 0: not yet */
    uint64_t freed; /* a sum over what was freed between the request before and this */
} ebb_pool_record;

typedef struct ebb_pool_learner {
    EBB_VEC(ebb_pool_record) records;
    uint64_t first;      /* number of the first record's request */
    uint64_t next_check; /* number of records */
    uint64_t freed;      /* since the last request */
    unsigned n_waits;    /* for room */
    unsigned n_failed;   /* plans that did not hold */
} ebb_pool_learner;

void ebb__pool_learner_reset(ebb_pool_learner *learner);

/* A request came; *number_out is its number. */
ebb_status ebb__pool_learner_take(ebb_pool_learner *learner, const ebb_mem *mem, uint64_t n, uint64_t *number_out);
void ebb__pool_learner_give(ebb_pool_learner *learner, uint64_t number);

/* Whether it is time to look for the iteration. */
bool ebb__pool_learner_is_due(const ebb_pool_learner *learner);

/* The length of the iteration that the records end with; 0: none is seen. The next request is its first. */
ebb_status ebb__pool_learner_find(ebb_pool_learner *learner, const ebb_mem *mem, size_t *length_out);

/* The last whole iteration but one: requests[length], without starts. */
void ebb__pool_learner_get(const ebb_pool_learner *learner, size_t length, ebb_pool_planned *requests);

/* There is no room for the plan: look again where in the iteration least lives. */
ebb_status ebb__pool_learner_wait(ebb_pool_learner *learner, const ebb_mem *mem, const ebb_pool_planned *requests,
                                  size_t length);

#endif
