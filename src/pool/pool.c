/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: who answers a request.
 *
 *      base                                                              base + capacity
 *        | taken | plan | taken | plan | free | plan |        free          |
 *        +-------+------+-------+------+------+------+----------------------+
 *          all of it the general allocator's, to whom the pieces that the plan holds are taken
 *
 * With a plan, requests that it expects are answered from its bytes. The others go into holes of the plan
 * (pool_hole.c), or requests to come make room for them (pool_detour.c), or they go to the general allocator. Without a
 * plan, every request goes there; a pool that learns then records what comes, until it sees an iteration. It goes on
 * recording for some time, for the first plan may be of a part of the iteration, or of an iteration with noise in it; a
 * better one takes its place. When a plan goes on missing later, it records again. A plan that misses most requests is
 * dropped: its live blocks become blocks of the general allocator, and what is between them is free.
 *
 * A call looks at one event first, the next of the plan. Where there is no plan, or the pool has a lock, or it records,
 * or the plan's books must be kept, that is a stop, and the rest of this file decides. Unused features cost nothing.
 */
#include "pool/pool_priv.h"

#include <pthread.h>

/* What runs seldom is kept out of what runs for every request. */
#define SELDOM __attribute__((noinline))

#define PROOF 2u          /* how often what was recorded before a plan is recorded after it */
#define MIN_PROOF 2048u   /* requests */
#define MIN_HELD 256u     /* requests that a plan has answered before it failed */
#define FIRST_PATIENCE 4u /* mismatches */
#define MORE_PATIENCE 4u
#define MAX_PATIENCE ((uint64_t)1 << 40)
#define SLACK 128u                           /* a part of what lives at most, by which the arena may always be larger */
#define LOOKS_A_REQUEST 256u                 /* steps of searches for holes */
#define MAX_MOVES (EBB_POOL_STRAYS / 2)      /* of requests that make room for one block */
#define DETOUR_STEPS ((uint64_t)1000 * 1000) /* of the placer, for detours: less than 0.1 s */
#define DETOUR_STEPS_A_MISS 500u
#define DOUBT_ITERATIONS 12u /* by the plan that is doubted */

struct ebb_pool {
    const ebb_pool_event *next; /* of a pool without a lock; else the stop */
    uint64_t mask;              /* of what is below a granule */
    ebb_pool_options options;
    const ebb_pool_event **cursor; /* next, or locked_next */
    const ebb_pool_event *locked_next;
    ebb_pool_event stop;
    ebb_pool_heap *heap;
    ebb_pool_replay *replay;          /* NULL: no plan */
    EBB_VEC(ebb_pool_piece) pieces;   /* of the arena that the plan holds, in order of address */
    uint64_t plan_start, plan_extent; /* from the first piece to the end of the last */
    ebb_pool_learner learner;
    bool records;              /* every call, for the learner */
    uint64_t records_until;    /* this many, where there is a plan */
    uint64_t missed, patience; /* mismatches since the last record, and how many make the pool record again */
    uint64_t general_bytes;    /* live ones */
    uint64_t top;              /* the highest end of what was handed out or planned since there is this plan */
    uint64_t n_looked;         /* steps of all searches for holes, about */
    uint64_t n_detour_steps;   /* of the placer, for detours */
    ebb_pool_stats stats;      /* without what is kept elsewhere */
    pthread_mutex_t lock;
};

/* ---- making a plan ---------------------------------------------------------------------------- */

static void note_end(ebb_pool *pool, uint64_t end) {
    pool->stats.peak_bytes = ebb_max_u64(pool->stats.peak_bytes, end - pool->options.base);
    pool->top = ebb_max_u64(pool->top, end);
}

static ebb_status begin_planning(const ebb_pool *pool, ebb_bump *bump, size_t n, ebb_pool_planning *p) {
    *p = (ebb_pool_planning){.mem = pool->options.mem,
                             .bump = bump,
                             .base = pool->options.base,
                             .alignment_bytes = pool->options.alignment_bytes};
    return ebb__pool_planning_init(p, n);
}

/* The blocks that live and are the plan's become its own, and what it needs beside them is taken. All that can fail
 * comes first. */
static ebb_status begin_plan(ebb_pool *pool, const ebb_pool_planning *p) {
    uint64_t n, note;
    EBB_ASSERT(pool->replay == NULL && p->n_pieces > 0 && p->end - pool->options.base <= pool->options.capacity_bytes);
    EBB_TRY(ebb__pool_heap_reserve(pool->heap, 2 * p->n_pieces));
    pool->pieces.n = 0;
    EBB_TRY(EBB_RESERVE(pool->options.mem, &pool->pieces, p->n_pieces));
    EBB_TRY(ebb__pool_replay_create(pool->options.mem, p->requests, p->n, &pool->replay));
    for (size_t i = 0; i < p->n; i++) {
        if (!p->requests[i].lives) { continue; }
        ebb__pool_heap_give(pool->heap, p->requests[i].start, &n, &note);
        EBB_ASSERT(n == p->requests[i].n && pool->general_bytes >= n);
        pool->general_bytes -= n;
    }
    ebb__pool_heap_take_pieces(pool->heap, p->pieces, p->n_pieces);
    memcpy(pool->pieces.data, p->pieces, p->n_pieces * sizeof *p->pieces);
    pool->pieces.n = p->n_pieces;
    pool->plan_start = p->pieces[0].start;
    pool->plan_extent = p->end - pool->plan_start;
    pool->stats.n_plans++;
    pool->stats.plan_bytes = 0;
    for (size_t k = 0; k < p->n_pieces; k++) { pool->stats.plan_bytes += p->pieces[k].n; }
    pool->top = p->n_taken > 0 ? p->taken[p->n_taken - 1].start + p->taken[p->n_taken - 1].n : pool->options.base;
    note_end(pool, p->end);
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_heap_is_valid(pool->heap));
    return EBB_OK;
}

static bool has_room(const ebb_pool *pool, const ebb_pool_planning *p) {
    return p->end - pool->options.base <= (pool->options.capacity_bytes & ~pool->mask);
}

/* ---- following it ----------------------------------------------------------------------------- */

static uint64_t count_live(const ebb_pool *pool) {
    return pool->general_bytes + (pool->replay != NULL ? pool->replay->live_bytes : 0);
}

/* The most that has lived since this was last called. */
static void note_live(ebb_pool *pool) {
    uint64_t most = pool->general_bytes;
    if (pool->replay != NULL) {
        EBB_ASSERT(pool->replay->peak_bytes >= pool->replay->live_bytes);
        most += pool->replay->peak_bytes;
        pool->replay->peak_bytes = pool->replay->live_bytes;
    }
    pool->stats.peak_live_bytes = ebb_max_u64(pool->stats.peak_live_bytes, most);
}

/* After the last event comes the first. */
static void go_round(ebb_pool *pool) {
    ebb_pool_replay *r = pool->replay;
    if (r == NULL || *pool->cursor != &r->events[r->n_events]) { return; }
    *pool->cursor = r->events;
    r->n_rounds++;
}

/* From here on the books are kept. */
static void halt(ebb_pool *pool) {
    if (*pool->cursor != &pool->stop) { ebb__pool_replay_catch_up(pool->replay, *pool->cursor); }
    *pool->cursor = &pool->stop;
    note_live(pool);
}

/* From here on the plan is followed without them, if it may be. */
static void go_on(ebb_pool *pool) {
    const ebb_pool_event *next = pool->replay != NULL ? ebb__pool_replay_get_next(pool->replay) : NULL;
    EBB_ASSERT(*pool->cursor == &pool->stop);
    note_live(pool);
    if (next != NULL && !pool->records) { *pool->cursor = next; }
}

/* ---- dropping it ------------------------------------------------------------------------------ */

/* A piece of the plan's bytes becomes blocks of their own; what is between the live ones is given back. */
static void carve(ebb_pool *pool, const ebb_pool_piece *piece, const ebb_pool_piece *live, size_t n_live) {
    uint64_t at = piece->start, n, note;
    const uint64_t end = piece->start + piece->n;
    ebb__pool_heap_note(pool->heap, at, 0);
    for (size_t k = 0; k < n_live; k++) {
        const uint64_t start = live[k].start;
        EBB_ASSERT(start >= at && start + live[k].n <= end);
        if (start > at) {
            ebb__pool_heap_cut(pool->heap, at, start - at);
            ebb__pool_heap_give(pool->heap, at, &n, &note);
        }
        at = start + live[k].n;
        if (at < end) { ebb__pool_heap_cut(pool->heap, start, live[k].n); }
        ebb__pool_heap_note(pool->heap, start, live[k].note);
    }
    if (at < end) { ebb__pool_heap_give(pool->heap, at, &n, &note); }
}

static void carve_all(ebb_pool *pool, const ebb_pool_piece *live, size_t n_live) {
    size_t k = 0;
    for (size_t i = 0; i < pool->pieces.n; i++) {
        const ebb_pool_piece *piece = &pool->pieces.data[i];
        const size_t first = k;
        while (k < n_live && live[k].start < piece->start + piece->n) { k++; }
        carve(pool, piece, live + first, k - first);
    }
    EBB_ASSERT(k == n_live);
}

static ebb_status drop_plan(ebb_pool *pool) {
    if (pool->replay == NULL) { return EBB_OK; }
    ebb_bump bump;
    ebb_pool_piece *live = NULL;
    size_t n_live = 0;
    ebb__bump_init(&bump, pool->options.mem);
    ebb_status st = ebb__pool_replay_get_live(pool->replay, &bump, &live, &n_live);
    if (st == EBB_OK) { st = ebb__pool_heap_reserve(pool->heap, 2 * n_live + pool->pieces.n); }
    if (st == EBB_OK) {
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_replay_is_valid(pool->replay));
        carve_all(pool, live, n_live);
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_heap_is_valid(pool->heap));
        pool->stats.n_hits += pool->replay->n_hits;
        pool->general_bytes += pool->replay->live_bytes;
        ebb__pool_replay_destroy(pool->replay);
        pool->replay = NULL;
        pool->pieces.n = 0;
        pool->plan_start = pool->plan_extent = 0;
        pool->stats.plan_bytes = 0;
    }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- learning --------------------------------------------------------------------------------- */

/* What lives: the plan's own from the last round, and others. */
static ebb_status find_living(const ebb_pool *pool, const ebb_pool_template *t, ebb_pool_planning *p) {
    ebb_pool_piece *taken = NULL;
    size_t n = 0;
    EBB_TRY(ebb__pool_heap_list(pool->heap, p->bump, &taken, &n));
    p->taken = taken;
    for (size_t k = 0; k < n; k++) {
        const uint64_t place = taken[k].note - 1 - t->first;
        const uint32_t i = taken[k].note > t->first && place < t->n_last ? t->request_of[place] : EBB_POOL_NONE;
        if (i == EBB_POOL_NONE || p->requests[i].span > p->n || i + p->requests[i].span < p->n) {
            taken[p->n_taken++] = taken[k];
            continue;
        }
        EBB_ASSERT(p->requests[i].n == taken[k].n && !p->requests[i].lives);
        p->requests[i].start = taken[k].start;
        p->requests[i].note = taken[k].note;
        p->requests[i].lives = true;
    }
    return EBB_OK;
}

/* Instead of the plan that there is. */
static ebb_status plan_iteration(ebb_pool *pool, ebb_bump *bump, const ebb_pool_guess *guess) {
    ebb_pool_template t;
    ebb_pool_planning p;
    const uint64_t live_bytes = count_live(pool);
    EBB_TRY(ebb__pool_template_make(&pool->learner, guess, live_bytes, pool->stats.peak_live_bytes, bump, &t));
    if (!t.is_sound) {
        ebb__pool_learner_refuse(&pool->learner, guess);
        return EBB_OK;
    }
    if (!t.is_likely && pool->replay != NULL) {
        ebb__pool_learner_wait(&pool->learner, guess);
        return EBB_OK;
    }
    EBB_TRY(begin_planning(pool, bump, t.n, &p));
    memcpy(p.requests, t.requests, t.n * sizeof *t.requests);
    EBB_TRY(drop_plan(pool));
    EBB_TRY(find_living(pool, &t, &p));
    EBB_TRY(ebb__pool_place(&p));
    ebb__pool_learner_wait(&pool->learner, guess);
    if (p.n_pieces == 0 || !has_room(pool, &p)) { return EBB_OK; }
    EBB_TRY(begin_plan(pool, &p));
    pool->records_until = ebb_max_u64(PROOF * pool->learner.records.n, MIN_PROOF);
    return EBB_OK;
}

/* Learning is a service: what fails in it, for want of memory, does not fail the request. */
static SELDOM void learn(ebb_pool *pool) {
    const uint64_t n_planned = pool->replay != NULL ? pool->replay->n : 0;
    const ebb_pool_guess *guess = ebb__pool_learner_find(&pool->learner, count_live(pool), n_planned);
    ebb_bump bump;
    if (guess == NULL) { return; }
    ebb__bump_init(&bump, pool->options.mem);
    if (plan_iteration(pool, &bump, guess) != EBB_OK) { ebb__pool_learner_wait(&pool->learner, guess); }
    ebb__bump_fini(&bump);
}

static SELDOM ebb_status unlearn(ebb_pool *pool) {
    const uint64_t n_hits = pool->replay->n_hits, n = pool->replay->n;
    EBB_TRY(drop_plan(pool));
    ebb__pool_learner_fail(&pool->learner, n_hits >= MIN_HELD && n_hits >= 4 * n);
    pool->stats.n_drops++;
    pool->records = true;
    return EBB_OK;
}

static void stop_recording(ebb_pool *pool) {
    pool->records = false;
    pool->missed = 0;
    ebb__pool_learner_reset(&pool->learner);
    ebb__pool_learner_fini(&pool->learner, pool->options.mem);
}

/* A plan goes on missing, but not so often that it is dropped: perhaps there is a better one. Each time it takes more
 * mismatches. */
static void doubt(ebb_pool *pool) {
    if (pool->records || !pool->options.learns || ++pool->missed < pool->patience) { return; }
    pool->patience = ebb_min_u64(MORE_PATIENCE * pool->patience, MAX_PATIENCE);
    pool->records = true;
    pool->records_until = ebb_max_u64(DOUBT_ITERATIONS * (uint64_t)pool->replay->n, MIN_PROOF);
}

static bool is_in_plan(const ebb_pool *pool, uint64_t start, uint64_t n) {
    for (size_t k = 0; k < pool->pieces.n; k++) {
        const ebb_pool_piece *p = &pool->pieces.data[k];
        if (start < p->start + p->n && p->start < start + n) { return true; }
    }
    return false;
}

static void record(ebb_pool *pool, uint64_t n, uint64_t live_bytes, uint64_t start, bool is_hit) {
    const ebb_pool_record came = {.n = n, .live_bytes = live_bytes};
    uint64_t note = 0;
    if (ebb__pool_learner_take(&pool->learner, pool->options.mem, &came, is_hit, &note) != EBB_OK) { return; }
    if (is_hit || (pool->replay != NULL && is_in_plan(pool, start, n))) {
        ebb__pool_replay_note(pool->replay, start, note);
    } else {
        ebb__pool_heap_note(pool->heap, start, note);
    }
    if (pool->replay != NULL && pool->learner.records.n >= pool->records_until) { stop_recording(pool); }
}

/* ---- taking and giving ------------------------------------------------------------------------ */

static ebb_status no_room(const ebb_pool *pool, uint64_t size_bytes) {
    return ebb_fail(EBB_E_NO_FIT,
                    "%llu bytes: no room in a pool of %llu bytes, of which %llu live and %llu are planned",
                    (unsigned long long)size_bytes, (unsigned long long)pool->options.capacity_bytes,
                    (unsigned long long)count_live(pool), (unsigned long long)pool->stats.plan_bytes);
}

/* ---- holes of the plan ------------------------------------------------------------------------ */

/* The plan holds these bytes too. What they touch of its pieces becomes one with them. */
static ebb_status widen_plan(ebb_pool *pool, uint64_t start, uint64_t end) {
    ebb_pool_piece *pieces = pool->pieces.data;
    size_t first = 0, last;
    uint64_t n, note;
    while (first < pool->pieces.n && pieces[first].start + pieces[first].n < start) { first++; }
    for (last = first; last < pool->pieces.n && pieces[last].start <= end; last++) {}
    ebb_pool_piece all = {.start = start, .n = end - start, .note = EBB_POOL_PLANNED};
    if (first < last) {
        all.start = ebb_min_u64(start, pieces[first].start);
        all.n = ebb_max_u64(end, pieces[last - 1].start + pieces[last - 1].n) - all.start;
    }
    if (last == first + 1 && all.start == pieces[first].start && all.n == pieces[first].n) { return EBB_OK; }
    EBB_TRY(ebb__pool_heap_reserve(pool->heap, 2));
    EBB_TRY(EBB_RESERVE(pool->options.mem, &pool->pieces, 1));
    pieces = pool->pieces.data;
    for (size_t k = first; k < last; k++) {
        ebb__pool_heap_note(pool->heap, pieces[k].start, 0);
        ebb__pool_heap_give(pool->heap, pieces[k].start, &n, &note);
        pool->stats.plan_bytes -= n;
    }
    ebb__pool_heap_take_pieces(pool->heap, &all, 1);
    pool->stats.plan_bytes += all.n;
    memmove(&pieces[first + 1], &pieces[last], (pool->pieces.n - last) * sizeof *pieces);
    pieces[first] = all;
    pool->pieces.n = pool->pieces.n + 1 - (last - first);
    pool->plan_start = pieces[0].start;
    pool->plan_extent = pieces[pool->pieces.n - 1].start + pieces[pool->pieces.n - 1].n - pool->plan_start;
    return EBB_OK;
}

/* Up to here the arena has been used, or would be if hardly anything were lost between blocks. */
static uint64_t get_ceiling(const ebb_pool *pool, uint64_t n) {
    const uint64_t most = pool->stats.peak_live_bytes;
    return ebb_max_u64(pool->top, pool->options.base + ebb_max_u64(most + most / SLACK, count_live(pool) + n));
}

/* The requests that make room for a new block get their places. One that gets none goes elsewhere when it comes. */
static void follow_detour(ebb_pool *pool, const ebb_pool_detour *d) {
    for (size_t k = 0; k < d->n_moves; k++) {
        const ebb_pool_move *m = &d->moves[k];
        if (widen_plan(pool, m->start, m->start + pool->replay->requests[m->request].n) != EBB_OK) { continue; }
        ebb__pool_replay_detour(pool->replay, m->request, m->start);
    }
}

/* The placer may take as many steps as some plans take, and some more for each unexpected request. What the plan has no
 * place for comes in every iteration; others do not make room for it. */
static bool may_detour(const ebb_pool *pool, const ebb_pool_hint *hint) {
    const ebb_pool_expected *requests = pool->replay->requests;
    if (hint->request != EBB_POOL_NONE && requests[hint->request].spot == EBB_POOL_NONE) { return false; }
    return pool->n_detour_steps <= DETOUR_STEPS + DETOUR_STEPS_A_MISS * pool->stats.n_mismatches;
}

/* In a hole that lasts. If there is none, where the requests to come make room, or whatever else costs least. */
static ebb_status find_place(ebb_pool *pool, ebb_bump *bump, const ebb_pool_hint *hint, uint64_t n,
                             uint64_t *start_out) {
    ebb_pool_piece *taken = NULL;
    const uint64_t end = pool->options.base + (pool->options.capacity_bytes & ~pool->mask);
    ebb_pool_search search = {.replay = pool->replay,
                              .hint = *hint,
                              .n = n,
                              .base = pool->options.base,
                              .ceiling = ebb_min_u64(get_ceiling(pool, n), end),
                              .end = end,
                              .alignment_bytes = pool->mask + 1};
    ebb_pool_hole hole;
    ebb_pool_detour detour;
    EBB_TRY(ebb__pool_heap_list(pool->heap, bump, &taken, &search.n_taken));
    search.taken = taken;
    EBB_TRY(ebb__pool_find_hole(&search, bump, &hole));
    *start_out = hole.start;
    if ((hole.start != EBB_POOL_NOWHERE && hole.cost == 0) || !may_detour(pool, hint)) { return EBB_OK; }
    if (ebb__pool_find_detour(&search, pool->options.mem, bump, &detour) != EBB_OK) { return EBB_OK; }
    pool->n_detour_steps += detour.n_steps;
    if (detour.hole.cost > search.end - search.ceiling || detour.n_moves > MAX_MOVES) { return EBB_OK; }
    if (hole.start != EBB_POOL_NOWHERE && detour.hole.cost >= hole.cost) { return EBB_OK; }
    EBB_TRY(widen_plan(pool, detour.hole.start, detour.hole.start + n));
    follow_detour(pool, &detour);
    *start_out = detour.hole.start;
    return EBB_OK;
}

/* Searches take as many steps as there are blocks and requests, so a long iteration gets one now and then. */
static bool may_look(ebb_pool *pool) {
    const uint64_t n_requests = pool->stats.n_requests + pool->stats.n_hits + ebb__pool_replay_count(pool->replay);
    if (pool->replay->n_strays == EBB_POOL_STRAYS || pool->n_looked > LOOKS_A_REQUEST * n_requests) { return false; }
    pool->n_looked += ebb__pool_heap_count(pool->heap) + 2 * (uint64_t)pool->replay->n;
    return true;
}

/* A place for a request that the plan does not answer: where a detour leads it, *start, or a good one in the plan's
 * bytes. EBB_POOL_NOWHERE: there is none. */
static ebb_status lodge(ebb_pool *pool, uint64_t n, uint64_t *start) {
    const ebb_pool_hint hint = ebb__pool_replay_get_hint(pool->replay, n);
    if (*start == EBB_POOL_NOWHERE) {
        ebb_bump bump;
        if (!may_look(pool)) { return EBB_OK; }
        ebb__bump_init(&bump, pool->options.mem);
        const ebb_status st = find_place(pool, &bump, &hint, n, start);
        ebb__bump_fini(&bump);
        EBB_TRY(st);
        if (*start == EBB_POOL_NOWHERE) { return EBB_OK; }
        if (!is_in_plan(pool, *start, n)) {
            *start = EBB_POOL_NOWHERE;
            return EBB_OK;
        }
        EBB_TRY(widen_plan(pool, *start, *start + n));
    }
    ebb__pool_replay_lodge(pool->replay, *start, n, &hint);
    note_live(pool);
    note_end(pool, *start + n);
    return EBB_OK;
}

/* From a detour's end, a hole of the plan, or the general allocator. A plan that is in its way goes, if the pool can
 * learn another. */
static ebb_status take_general(ebb_pool *pool, uint64_t n, uint64_t start, uint64_t *start_out) {
    const uint64_t live_bytes = count_live(pool);
    if (pool->replay != NULL) {
        const bool is_expected = start != EBB_POOL_NOWHERE;
        EBB_TRY(lodge(pool, n, &start));
        if (start != EBB_POOL_NOWHERE) {
            pool->stats.n_requests++;
            if (pool->records) { record(pool, n, live_bytes, start, is_expected); }
            *start_out = start;
            return EBB_OK;
        }
    }
    EBB_TRY(ebb__pool_heap_take(pool->heap, n, 0, &start));
    if (start == EBB_POOL_NOWHERE && pool->options.learns && pool->replay != NULL) {
        EBB_TRY(unlearn(pool));
        EBB_TRY(ebb__pool_heap_take(pool->heap, n, 0, &start));
    }
    if (start == EBB_POOL_NOWHERE) { return no_room(pool, n); }
    EBB_ASSERT(start - pool->options.base <= pool->options.capacity_bytes - n);
    pool->stats.n_requests++;
    pool->general_bytes += n;
    note_end(pool, start + n);
    if (pool->records) { record(pool, n, live_bytes, start, false); }
    *start_out = start;
    return EBB_OK;
}

static ebb_status take_planned(ebb_pool *pool, uint64_t n, uint64_t *start_out) {
    const uint64_t live_bytes = count_live(pool);
    uint64_t start = EBB_POOL_NOWHERE;
    switch (ebb__pool_replay_search(pool->replay, n, &start)) {
    case EBB_POOL_HIT:
        *start_out = start;
        if (pool->records) { record(pool, n, live_bytes, *start_out, true); }
        return EBB_OK;
    case EBB_POOL_UNPLANNED: pool->stats.n_unplanned++; break;
    case EBB_POOL_DETOURED:
    case EBB_POOL_DISPLACED: pool->stats.n_mismatches++; break;
    case EBB_POOL_MISMATCH:
        pool->stats.n_mismatches++;
        doubt(pool);
        break;
    }
    if (pool->options.learns && ebb__pool_replay_is_stale(pool->replay)) { (void)unlearn(pool); }
    return take_general(pool, n, start, start_out);
}

/* A request that does not follow. */
static ebb_status take_other(ebb_pool *pool, uint64_t size_bytes, uint64_t *start_out) {
    EBB_ASSERT(*pool->cursor == &pool->stop);
    if (size_bytes > pool->options.capacity_bytes) { return no_room(pool, size_bytes); }
    const uint64_t n = ebb_align_up(ebb_max_u64(size_bytes, 1), pool->mask + 1);
    if (pool->records) { learn(pool); }
    if (pool->replay != NULL) { return take_planned(pool, n, start_out); }
    return take_general(pool, n, EBB_POOL_NOWHERE, start_out);
}

static ebb_status give_general(ebb_pool *pool, uint64_t address) {
    uint64_t n = 0, note = 0;
    ebb__pool_heap_give(pool->heap, address, &n, &note);
    if (pool->records) { ebb__pool_learner_give(&pool->learner, note, n); }
    EBB_ASSERT(pool->general_bytes >= n);
    pool->general_bytes -= n;
    return n > 0 ? EBB_OK : EBB_E_ARGUMENT;
}

static ebb_status give_other(ebb_pool *pool, uint64_t address) {
    uint64_t note = 0;
    const uint64_t n =
        address - pool->plan_start < pool->plan_extent ? ebb__pool_replay_give(pool->replay, address, &note) : 0;
    if (n > 0) {
        if (pool->records) { ebb__pool_learner_give(&pool->learner, note, n); }
        return EBB_OK;
    }
    const ebb_status st = give_general(pool, address);
    if (st == EBB_OK) { return EBB_OK; }
    return ebb_fail(st, "no live block of the pool begins at address %#llx", (unsigned long long)address);
}

static void enter(ebb_pool *pool) {
    if (pool->options.locked) { (void)pthread_mutex_lock(&pool->lock); }
}

static void leave(ebb_pool *pool) {
    if (pool->options.locked) { (void)pthread_mutex_unlock(&pool->lock); }
}

static bool follow_alloc(const ebb_pool *pool, const ebb_pool_event **next, uint64_t size_bytes, uint64_t *start_out) {
    return ebb__pool_follow_alloc(next, size_bytes, pool->mask, pool->options.capacity_bytes, start_out);
}

static SELDOM ebb_status take(ebb_pool *pool, uint64_t size_bytes, uint64_t *address_out) {
    ebb_status st = EBB_OK;
    enter(pool);
    go_round(pool);
    if (!follow_alloc(pool, pool->cursor, size_bytes, address_out)) {
        halt(pool);
        st = take_other(pool, size_bytes, address_out);
        go_on(pool);
    }
    leave(pool);
    return st;
}

static SELDOM ebb_status give(ebb_pool *pool, uint64_t address) {
    ebb_status st = EBB_OK;
    enter(pool);
    go_round(pool);
    if (!ebb__pool_follow_free(pool->cursor, address)) {
        halt(pool);
        st = give_other(pool, address);
        go_on(pool);
    }
    leave(pool);
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status check_options(const ebb_pool_options *o) {
    if (o->size_bytes != sizeof *o) { return ebb_fail(EBB_E_ARGUMENT, "options of another version"); }
    const uint64_t align = o->alignment_bytes;
    if (align == 0 || (align & (align - 1)) != 0 || align > (uint64_t)1 << 32) {
        return ebb_fail(EBB_E_ARGUMENT, "an alignment of %llu bytes is no power of two up to 2^32",
                        (unsigned long long)align);
    }
    if (o->base % align != 0) { return ebb_fail(EBB_E_ARGUMENT, "the arena's address is not aligned"); }
    if (o->capacity_bytes < align) { return ebb_fail(EBB_E_ARGUMENT, "an arena of less than a granule"); }
    if (o->capacity_bytes >= (uint64_t)1 << 62 || o->base > UINT64_MAX - o->capacity_bytes) {
        return ebb_fail(EBB_E_ARGUMENT, "an arena beyond 64 bits");
    }
    return EBB_OK;
}

ebb_status ebb_pool_create(const ebb_pool_options *options, ebb_pool **pool_out) {
    EBB_NEED(options);
    EBB_NEED(pool_out);
    EBB_TRY(check_options(options));
    ebb_pool *pool = ebb__calloc(options->mem, 1, sizeof *pool);
    if (pool == NULL) { return EBB_E_NO_MEMORY; }
    pool->options = *options;
    pool->mask = options->alignment_bytes - 1;
    pool->stop = (ebb_pool_event){EBB_POOL_STOP, EBB_POOL_NOWHERE};
    pool->next = pool->locked_next = &pool->stop;
    pool->cursor = options->locked ? &pool->locked_next : &pool->next;
    pool->records = options->learns;
    pool->patience = FIRST_PATIENCE;
    ebb__pool_learner_reset(&pool->learner);
    ebb_status st =
        ebb__pool_heap_create(options->mem, options->base, options->capacity_bytes & ~pool->mask, &pool->heap);
    if (st == EBB_OK && pthread_mutex_init(&pool->lock, NULL) != 0) {
        st = ebb_fail(EBB_E_LIMIT, "the system has no room for a lock");
    }
    if (st != EBB_OK) {
        ebb__pool_heap_destroy(pool->heap);
        ebb__free(options->mem, pool);
        return st;
    }
    *pool_out = pool;
    return EBB_OK;
}

void ebb_pool_destroy(ebb_pool *pool) {
    if (pool == NULL) { return; }
    (void)pthread_mutex_destroy(&pool->lock);
    ebb__pool_replay_destroy(pool->replay);
    ebb__pool_heap_destroy(pool->heap);
    EBB_VEC_FINI(pool->options.mem, &pool->pieces);
    ebb__pool_learner_fini(&pool->learner, pool->options.mem);
    ebb__free(pool->options.mem, pool);
}

/* One piece of the arena for offsets that were given. */
static ebb_status find_piece(ebb_pool *pool, ebb_pool_planning *p) {
    uint64_t n, note, start = EBB_POOL_NOWHERE;
    if (p->n_pieces == 0) { return EBB_OK; }
    EBB_TRY(ebb__pool_heap_take(pool->heap, p->end, 0, &start));
    if (start == EBB_POOL_NOWHERE) { return no_room(pool, p->end); }
    ebb__pool_heap_give(pool->heap, start, &n, &note); /* begin_plan takes it */
    for (size_t i = 0; i < p->n; i++) { p->requests[i].start += start; }
    p->pieces[0].start = start;
    p->end += start;
    return EBB_OK;
}

static ebb_status place_given(ebb_pool *pool, ebb_pool_planning *p, const uint64_t *offsets) {
    ebb_pool_piece *taken = NULL;
    if (offsets != NULL) {
        EBB_TRY(ebb__pool_check_given(p, offsets));
        return find_piece(pool, p);
    }
    EBB_TRY(ebb__pool_heap_list(pool->heap, p->bump, &taken, &p->n_taken));
    p->taken = taken;
    EBB_TRY(ebb__pool_place(p));
    return has_room(pool, p) ? EBB_OK : no_room(pool, p->end - pool->options.base);
}

static ebb_status plan(ebb_pool *pool, ebb_bump *bump, const ebb_pool_request *requests, size_t n,
                       const uint64_t *offsets) {
    ebb_pool_planning p;
    EBB_TRY(drop_plan(pool));
    pool->records = pool->options.learns;
    if (n == 0) { return EBB_OK; }
    EBB_TRY(begin_planning(pool, bump, n, &p));
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = ebb_max_u64(requests[i].size_bytes, 1);
        if (bytes > pool->options.capacity_bytes) { return no_room(pool, bytes); }
        p.requests[i] = (ebb_pool_planned){.n = ebb_align_up(bytes, pool->mask + 1), .span = requests[i].span};
    }
    EBB_TRY(place_given(pool, &p, offsets));
    if (p.n_pieces == 0) { return EBB_OK; }
    EBB_TRY(begin_plan(pool, &p));
    stop_recording(pool);
    return EBB_OK;
}

ebb_status ebb_pool_plan(ebb_pool *pool, const ebb_pool_request *requests, size_t n, const uint64_t *offsets) {
    EBB_NEED(pool);
    EBB_NEED_ARRAY(requests, n);
    ebb_bump bump;
    ebb__bump_init(&bump, pool->options.mem);
    enter(pool);
    halt(pool);
    const ebb_status st = plan(pool, &bump, requests, n, offsets);
    go_on(pool);
    leave(pool);
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb_pool_alloc(ebb_pool *pool, uint64_t size_bytes, uint64_t *address_out) {
    EBB_NEED(pool);
    EBB_NEED(address_out);
    return follow_alloc(pool, &pool->next, size_bytes, address_out) ? EBB_OK : take(pool, size_bytes, address_out);
}

ebb_status ebb_pool_free(ebb_pool *pool, uint64_t address) {
    EBB_NEED(pool);
    return ebb__pool_follow_free(&pool->next, address) ? EBB_OK : give(pool, address);
}

ebb_status ebb_pool_get_stats(ebb_pool *pool, ebb_pool_stats *stats_out) {
    EBB_NEED(pool);
    EBB_NEED(stats_out);
    if (stats_out->size_bytes != sizeof *stats_out) { return ebb_fail(EBB_E_ARGUMENT, "stats of another version"); }
    enter(pool);
    halt(pool);
    ebb_pool_stats stats = pool->stats;
    if (pool->replay != NULL) { stats.n_hits += pool->replay->n_hits; }
    stats.n_requests += stats.n_hits; /* those of the general allocator are counted there */
    stats.live_bytes = count_live(pool);
    go_on(pool);
    leave(pool);
    stats.size_bytes = sizeof stats;
    *stats_out = stats;
    return EBB_OK;
}
