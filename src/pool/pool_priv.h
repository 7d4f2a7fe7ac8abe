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

/* Neighbours, lists and table agree. O(blocks). */
bool ebb__pool_heap_is_valid(const ebb_pool_heap *heap);

/* ---- the plan of an iteration ----------------------------------------------------------------- */

typedef struct ebb_pool_planned {
    uint64_t n, span;
    uint64_t start; /* of meaning where 0 < span <= requests */
} ebb_pool_planned;

/* requests[n] are copied. */
typedef struct ebb_pool_replay ebb_pool_replay;
ebb_status ebb__pool_replay_create(const ebb_mem *mem, const ebb_pool_planned *requests, size_t n,
                                   ebb_pool_replay **replay_out);
void ebb__pool_replay_destroy(ebb_pool_replay *replay);

/* What a request needs to be answered, together. */
typedef struct ebb_pool_expected {
    uint64_t n, start;
    uint32_t slot;                  /* EBB_POOL_NONE: not planned */
    uint32_t death;                 /* the request before which it is dead */
    uint32_t first_death, n_deaths; /* deaths[first_death ...]: what is dead before this one */
} ebb_pool_expected;

typedef struct ebb_pool_death {
    uint32_t request, slot;
} ebb_pool_death;

/* A place of the table of starts. */
typedef struct ebb_pool_slot {
    uint64_t start; /* EBB_POOL_NOWHERE: empty */
    uint32_t live;  /* the request that lives there; EBB_POOL_NONE */
} ebb_pool_slot;

#define EBB_POOL_MAX_LATE 16u /* while there are more, nothing is answered from the plan */
#define EBB_POOL_GRAM 4u      /* sizes that tell a place */

struct ebb_pool_replay {
    ebb_pool_expected *requests;
    ebb_pool_slot *slots;
    uint64_t mask; /* of both tables */
    unsigned shift;
    uint32_t n, cursor;
    ebb_pool_death *deaths;
    uint32_t late[EBB_POOL_MAX_LATE], n_late; /* requests */
    bool is_overdue;                          /* there may be late ones beyond the list */
    uint64_t n_hits, n_others;                /* requests */
    uint32_t n_slots;                         /* that are not empty */
    struct ebb_pool_gram *grams;
    uint64_t recent[EBB_POOL_GRAM]; /* sizes since the last one that was where the plan has it */
    uint32_t n_recent;
    uint64_t window_end, n_missed; /* mismatches until so many requests have come */
    uint64_t n_worst;              /* most mismatches in a window */
    const ebb_mem *mem;
    ebb_bump bump;
};

typedef enum ebb_pool_answer { EBB_POOL_HIT, EBB_POOL_UNPLANNED, EBB_POOL_MISMATCH } ebb_pool_answer;

/* The slot of this start, or the empty one where it would stand. */
static inline ebb_pool_slot *ebb__pool_replay_slot(const ebb_pool_replay *r, uint64_t start) {
    size_t i = (size_t)((start * 0x9e3779b97f4a7c15u) >> r->shift);
    while (r->slots[i].start != start && r->slots[i].start != EBB_POOL_NOWHERE) { i = (i + 1) & r->mask; }
    return &r->slots[i];
}

/* For a request that ..._take does not answer: *start_out is its place where it is a hit. */
ebb_pool_answer ebb__pool_replay_search(ebb_pool_replay *replay, uint64_t n, uint64_t *start_out);
void ebb__pool_replay_forget_late(ebb_pool_replay *replay, uint32_t request);

/* Whether all that has to be dead before this request is. */
static inline bool ebb__pool_replay_is_settled(const ebb_pool_replay *r, const ebb_pool_expected *q) {
    for (uint32_t k = 0; k < q->n_deaths; k++) {
        const ebb_pool_death dead = r->deaths[q->first_death + k];
        if (r->slots[dead.slot].live == dead.request) { return false; }
    }
    return true;
}

/* A request came; whether it is just the expected one, and nothing is in its way: *start_out is its place. */
static inline bool ebb__pool_replay_take(ebb_pool_replay *r, uint64_t n, uint64_t *start_out) {
    const uint32_t at = r->cursor;
    const ebb_pool_expected *q = &r->requests[at];
    if (q->n != n || (r->n_late | r->n_recent) != 0 || q->slot == EBB_POOL_NONE || !ebb__pool_replay_is_settled(r, q)) {
        return false;
    }
    EBB_ASSERT(r->slots[q->slot].live == EBB_POOL_NONE);
    r->slots[q->slot].live = at;
    r->cursor = at + 1 < r->n ? at + 1 : 0;
    r->n_hits++;
    *start_out = q->start;
    return true;
}

/* The bytes of the block that starts there, which is now free; 0: none does. */
static inline uint64_t ebb__pool_replay_give(ebb_pool_replay *r, uint64_t start) {
    ebb_pool_slot *e = ebb__pool_replay_slot(r, start);
    const uint32_t request = e->live; /* of an empty one, none */
    if (request == EBB_POOL_NONE) { return 0; }
    e->live = EBB_POOL_NONE;
    if (r->n_late > 0) { ebb__pool_replay_forget_late(r, request); }
    return r->requests[request].n;
}

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
