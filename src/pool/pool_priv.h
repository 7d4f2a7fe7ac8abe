/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool's parts: a general allocator (pool_heap.c), what finds the iteration (pool_learn.c, pool_template.c), what
 * places it around the blocks that live (pool_place.c), the plan, followed (pool_replay.c), and places for requests
 * that the plan does not have: in a hole of it (pool_hole.c), or where the requests to come make room
 * (pool_detour.c). All deal in addresses and in bytes rounded up to the granule.
 */
#ifndef EBB_SRC_POOL_PRIV_H
#define EBB_SRC_POOL_PRIV_H

#include "base/base.h"
#include "ebb/pool.h"

#define EBB_POOL_NONE UINT32_MAX
#define EBB_POOL_NOWHERE UINT64_MAX
#define EBB_POOL_PLANNED UINT64_MAX /* the note of what a plan holds of the arena */

typedef struct ebb_pool_piece {
    uint64_t start, n;
    uint64_t note;
} ebb_pool_piece;

/* ---- general allocator ------------------------------------------------------------------------ */

typedef struct ebb_pool_heap ebb_pool_heap;

/* Over [start, start + n). */
ebb_status ebb__pool_heap_create(const ebb_mem *mem, uint64_t start, uint64_t n, ebb_pool_heap **heap_out);
void ebb__pool_heap_destroy(ebb_pool_heap *heap);

/* Take n bytes, n > 0; note is kept beside the block. *start_out is EBB_POOL_NOWHERE where there is no room. */
ebb_status ebb__pool_heap_take(ebb_pool_heap *heap, uint64_t n, uint64_t note, uint64_t *start_out);

/* Change the note of the taken block that starts there. */
void ebb__pool_heap_note(ebb_pool_heap *heap, uint64_t start, uint64_t note);

/* Give back the block that starts there; *n_out is 0 where none does, or one whose note is EBB_POOL_PLANNED. */
void ebb__pool_heap_give(ebb_pool_heap *heap, uint64_t start, uint64_t *n_out, uint64_t *note_out);

/* Cut the taken block that starts there after n bytes, which are fewer than it has: two taken blocks, the second
 * with note 0. Room for it has been made. */
void ebb__pool_heap_cut(ebb_pool_heap *heap, uint64_t start, uint64_t n);

/* Make room in the books for n_more blocks. */
ebb_status ebb__pool_heap_reserve(ebb_pool_heap *heap, size_t n_more);

/* Taken blocks. */
size_t ebb__pool_heap_count(const ebb_pool_heap *heap);

/* All taken blocks in order of address, from the bump. O(blocks). */
ebb_status ebb__pool_heap_list(const ebb_pool_heap *heap, ebb_bump *bump, ebb_pool_piece **pieces_out, size_t *n_out);

/* Take these pieces, which are free, and in order of address. Room for two blocks each has been made. O(blocks). */
void ebb__pool_heap_take_pieces(ebb_pool_heap *heap, const ebb_pool_piece *pieces, size_t n);

/* Neighbours, trees and table agree. O(blocks). */
bool ebb__pool_heap_is_valid(ebb_pool_heap *heap);

/* ---- the plan of an iteration ----------------------------------------------------------------- */

typedef struct ebb_pool_planned {
    uint64_t n, span;
    uint64_t start; /* of meaning where 0 < span <= requests */
    uint64_t note;  /* where lives */
    bool lives;     /* there already, at start: it was taken in the iteration before */
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
    uint64_t note; /* of the block that lives there */
    uint32_t spot; /* EBB_POOL_NONE: not planned */
    uint32_t span;
    uint32_t alloc_at, free_at; /* events; the second where it is planned */
    uint32_t late_at;           /* in the list of the late; EBB_POOL_NONE */
    uint64_t detour;            /* the next one comes here instead, once; its event is a stop. EBB_POOL_NOWHERE */
} ebb_pool_expected;

/* Where the next one comes. */
static inline uint64_t ebb__pool_next_start(const ebb_pool_expected *e) {
    return e->detour != EBB_POOL_NOWHERE ? e->detour : e->start;
}

/* One of the plan's distinct starts. */
typedef struct ebb_pool_spot {
    uint64_t start;
    uint32_t live; /* the request that lives there; EBB_POOL_NONE */
} ebb_pool_spot;

/* A block in the plan's bytes that the plan does not have there. */
typedef struct ebb_pool_stray {
    uint64_t start, n, note;
    uint64_t born;  /* requests before it */
    uint64_t age;   /* how many requests it is likely to live for, ... */
    uint32_t seems; /* ... if it is this planned request; EBB_POOL_NONE: it is none */
    uint32_t guard; /* the next request whose place it touches, whose event is a stop; EBB_POOL_NONE */
} ebb_pool_stray;

#define EBB_POOL_GRAM 4u     /* sizes that tell a place */
#define EBB_POOL_STRAYS 256u /* in the plan's bytes at once */

typedef struct ebb_pool_replay {
    ebb_pool_event *events; /* in time order; after them a stop */
    ebb_pool_meaning *meanings;
    ebb_pool_expected *requests;
    ebb_pool_spot *spots;
    uint32_t *spot_table; /* spots by start */
    uint32_t *gram_table; /* requests by their size and those of the next few: the first of equal ones */
    uint32_t *next_gram;  /* [n]: the next of the same sizes; EBB_POOL_NONE */
    uint32_t *late;       /* requests */
    uint64_t mask;        /* of both tables */
    uint32_t n, n_events, n_spots, n_late;
    uint32_t at;       /* the event that is expected, as far as the books are kept */
    uint64_t n_rounds; /* the times that the end was passed since */
    uint64_t live_bytes, peak_bytes;
    ebb_pool_stray strays[EBB_POOL_STRAYS];
    uint32_t n_strays;
    uint32_t skipped;          /* the request that was taken to be left out or of another size, or EBB_POOL_NONE, ... */
    uint64_t skipped_at;       /* ... when this many had come */
    uint32_t lost;             /* the planned request that came last and did not get its place; EBB_POOL_NONE */
    uint64_t stray_age;        /* for how many requests a stray lives at most, as the last ones tell */
    uint64_t n_hits, n_others; /* requests */
    uint64_t recent[EBB_POOL_GRAM]; /* sizes since the last one that was where the plan has it */
    uint32_t n_recent;
    uint64_t n_astray;            /* requests since then */
    uint64_t next_jump;           /* not before this many requests */
    uint64_t missed_at, n_excess; /* requests when one last missed; misses, less one for each MISS_WORTH that hit */
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

typedef enum ebb_pool_answer {
    EBB_POOL_HIT,
    EBB_POOL_UNPLANNED,
    EBB_POOL_DETOURED,
    EBB_POOL_DISPLACED,
    EBB_POOL_MISMATCH
} ebb_pool_answer;

/* With the books up to date: a request came; *start_out is its place where it is a hit, or where a detour leads it,
 * which is free. */
ebb_pool_answer ebb__pool_replay_search(ebb_pool_replay *replay, uint64_t n, uint64_t *start_out);

/* With the books up to date: the bytes of the block that starts there, which is now free; 0: none does. */
uint64_t ebb__pool_replay_give(ebb_pool_replay *replay, uint64_t start, uint64_t *note_out);

/* The same: note is kept beside the block that starts there, which lives. */
void ebb__pool_replay_note(ebb_pool_replay *replay, uint64_t start, uint64_t note);

/* The knowledge of a request that the plan did not answer, while the books are as they were then. */
typedef struct ebb_pool_hint {
    uint32_t request;   /* the planned request that it seems to be; EBB_POOL_NONE */
    uint32_t next;      /* the request that comes next */
    uint64_t age;       /* it is likely to be freed before the request that comes this many after `next` */
    bool is_certain;    /* it is that request, which did not get its place */
    uint32_t n_skipped; /* of the next requests, these are not expected: this one stands for the last of them */
} ebb_pool_hint;
ebb_pool_hint ebb__pool_replay_get_hint(const ebb_pool_replay *replay, uint64_t n);

/* A stray lives in the plan's bytes, at a place where nothing lives. There are fewer than EBB_POOL_STRAYS. */
void ebb__pool_replay_lodge(ebb_pool_replay *replay, uint64_t start, uint64_t n, const ebb_pool_hint *hint);

/* The next time that it comes, this planned request gets this place instead of its own, if that is free then. */
void ebb__pool_replay_detour(ebb_pool_replay *replay, uint32_t request, uint64_t start);

/* Requests from `next` on until a stray is likely to be freed. */
uint64_t ebb__pool_replay_stray_left(const ebb_pool_replay *replay, const ebb_pool_stray *stray, uint32_t next);

/* Requests from `next` on until the free of what a planned request has living is expected. */
uint32_t ebb__pool_replay_time_left(const ebb_pool_replay *replay, uint32_t request, uint32_t next);

/* The live blocks in order of address, from the bump. */
ebb_status ebb__pool_replay_get_live(const ebb_pool_replay *replay, ebb_bump *bump, ebb_pool_piece **pieces_out,
                                     size_t *n_out);

/* Requests that it has seen. */
uint64_t ebb__pool_replay_count(const ebb_pool_replay *replay);

/* Whether mismatches are more than an iteration with some noise has. */
bool ebb__pool_replay_is_stale(const ebb_pool_replay *replay);

bool ebb__pool_replay_is_valid(const ebb_pool_replay *replay);

/* ---- a hole for what the plan does not have --------------------------------------------------- */

/* Where a request is best put that the plan did not answer. */
typedef struct ebb_pool_search {
    const ebb_pool_piece *taken; /* in order of address; those of EBB_POOL_PLANNED are left out */
    size_t n_taken;
    const ebb_pool_replay *replay;
    ebb_pool_hint hint;
    uint64_t n;             /* bytes */
    uint64_t base, ceiling; /* the arena should not be used beyond */
    uint64_t end;           /* of the arena */
    uint64_t alignment_bytes;
} ebb_pool_search;

typedef struct ebb_pool_hole {
    uint64_t start; /* EBB_POOL_NOWHERE: no place is free */
    uint64_t cost;  /* bytes: beyond the ceiling, or of the planned request that has to go elsewhere; 0: none */
} ebb_pool_hole;

ebb_status ebb__pool_find_hole(const ebb_pool_search *search, ebb_bump *bump, ebb_pool_hole *hole_out);

/* A planned request that goes elsewhere, once. */
typedef struct ebb_pool_move {
    uint32_t request;
    uint64_t start;
} ebb_pool_move;

/* A place that is free if some of the requests to come go elsewhere. */
typedef struct ebb_pool_detour {
    ebb_pool_hole hole;
    ebb_pool_move *moves;
    size_t n_moves;
    uint64_t n_steps; /* that the placer took */
} ebb_pool_detour;

ebb_status ebb__pool_find_detour(const ebb_pool_search *search, const ebb_mem *mem, ebb_bump *bump,
                                 ebb_pool_detour *detour_out);

/* ---- finding the iteration -------------------------------------------------------------------- */

/* A request, as far as it is of use for finding the iteration. */
typedef struct ebb_pool_record {
    uint64_t n;
    uint64_t live_bytes; /* when it came */
    uint32_t death;      /* the record before which it was freed; 0: not yet (record 0 is freed before none) */
    uint32_t freed;      /* a hash of the bytes that were freed between the request before and this */
    uint32_t n_missed;   /* of the records so far, those that no plan answered */
} ebb_pool_record;

/* That the records from `begin` on are those from `from` on once more. */
typedef struct ebb_pool_guess {
    uint32_t begin, from;
    uint32_t at;                                  /* what the next request should be like */
    uint32_t n_wrong;                             /* records of either round that the other does not have */
    uint32_t n_lost;                              /* of them the last ones */
    uint32_t round, wrong_before, wrong_in_round; /* where this round began, n_wrong then, and of the round before */
    uint32_t measured_at;
    uint64_t least_bytes, most_bytes; /* that lived in a round */
    bool is_wrong;
} ebb_pool_guess;

#define EBB_POOL_GUESSES 8u

typedef struct ebb_pool_learner {
    EBB_VEC(ebb_pool_record) records;
    EBB_VEC(uint32_t) table; /* the record with which such sizes ended last; EBB_POOL_NONE */
    ebb_pool_guess guesses[EBB_POOL_GUESSES];
    uint32_t n_guesses;
    uint64_t first;       /* number of the first record's request */
    uint64_t freed_bytes; /* since the last request */
    uint32_t n_missed;
    uint64_t n_looked_back; /* records */
    uint32_t not_before;    /* records */
    uint32_t origin;        /* the record from which on an iteration must be a good part of all */
    unsigned n_failed;      /* plans that did not hold */
} ebb_pool_learner;

void ebb__pool_learner_reset(ebb_pool_learner *learner);
void ebb__pool_learner_fini(ebb_pool_learner *learner, const ebb_mem *mem);

/* A request came while so much lived, and a plan answered it or not; *note_out is for the block: its number + 1. */
ebb_status ebb__pool_learner_take(ebb_pool_learner *learner, const ebb_mem *mem, const ebb_pool_record *record,
                                  bool is_hit, uint64_t *note_out);
void ebb__pool_learner_give(ebb_pool_learner *learner, uint64_t note, uint64_t n);

/* The guess by which an iteration ends here, where hardly more lives than anywhere in it; NULL: none. With
 * n_planned, the requests of the plan that there is, one that is better than that. */
const ebb_pool_guess *ebb__pool_learner_find(ebb_pool_learner *learner, uint64_t live_bytes, uint64_t n_planned);

/* The plan was dropped. has_held: it was right for some time, so something else has begun. */
void ebb__pool_learner_fail(ebb_pool_learner *learner, bool has_held);

/* No plan comes of it here: look again after some requests. */
void ebb__pool_learner_wait(ebb_pool_learner *learner, const ebb_pool_guess *guess);
void ebb__pool_learner_refuse(ebb_pool_learner *learner, const ebb_pool_guess *guess);

/* Move a guess on by the record i; match[record - begin], or NULL: the record of the round before that it is like. */
void ebb__pool_guess_follow(ebb_pool_guess *guess, const ebb_pool_record *records, uint32_t i, uint32_t *match);

/* ---- the iteration that was found ------------------------------------------------------------- */

typedef struct ebb_pool_template {
    ebb_pool_planned *requests; /* without starts */
    size_t n;
    uint64_t first;       /* number of the first request of the last round */
    uint32_t *request_of; /* [n_last]: what the requests of the last round are; EBB_POOL_NONE */
    size_t n_last;
    bool is_sound;  /* the rounds agree in when blocks are freed */
    bool is_likely; /* no more would live at once than ever did */
} ebb_pool_template;

/* From the bump. live_bytes live, of at most peak_bytes so far. */
ebb_status ebb__pool_template_make(const ebb_pool_learner *learner, const ebb_pool_guess *guess, uint64_t live_bytes,
                                   uint64_t peak_bytes, ebb_bump *bump, ebb_pool_template *template_out);

/* ---- placing it ------------------------------------------------------------------------------- */

/* Room for a plan's making. */
typedef struct ebb_pool_planning {
    const ebb_mem *mem;
    ebb_bump *bump;
    uint64_t base, alignment_bytes;
    ebb_pool_planned *requests;
    size_t n;
    const ebb_pool_piece *taken; /* what lives and is not the plan's, in order of address */
    size_t n_taken;
    ebb_pool_piece *pieces; /* of the arena that it takes, in order of address */
    size_t n_pieces;
    uint64_t end; /* of the last */
} ebb_pool_planning;

ebb_status ebb__pool_planning_init(ebb_pool_planning *p, size_t n);

/* A start for each request that is planned, and what they take of the arena, around what is taken; the end may be
 * beyond the arena's. No pieces: nothing is planned. */
ebb_status ebb__pool_place(ebb_pool_planning *p);

/* The same with offsets that were given, within one piece, which is not there yet. */
ebb_status ebb__pool_check_given(ebb_pool_planning *p, const uint64_t *offsets);

#endif
