/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool: who answers a request.
 *
 *      base                                                              base + capacity
 *        | taken | free |##### the plan's bytes #####| taken |        free          |
 *        +-------+------+----------------------------+-------+----------------------+
 *          all of it the general allocator's, to whom the plan's bytes are one block
 *
 * With a plan, requests that it expects are answered from its bytes, all others by the general allocator. Without one,
 * everything is; a pool that learns then records what comes, until it sees an iteration. A plan that goes on missing is
 * dropped: its live blocks become blocks of the general allocator, what is between them free, and the pool learns anew.
 * Each time it is more patient, so a program that never repeats itself costs little.
 *
 * A call looks at one event first, the next of the plan. Where there is no plan, or the pool has a lock, or the plan's
 * books must be kept, that is a stop, and the rest of this file decides. So nobody pays for what he does not use.
 */
#include "ebb/place.h"
#include "pool/pool_priv.h"

#include <pthread.h>

/* What runs seldom is kept out of what runs for every request. */
#define SELDOM __attribute__((noinline))

/* The placer's work: a request waits for it. */
#define PLACE_STEPS ((uint64_t)50 * 1000)
#define PLACE_STEPS_A_REQUEST 1000u

#define FIRST_PATIENCE 4u /* mismatches in a few iterations */
#define MAX_PATIENCE ((uint64_t)1 << 20)

struct ebb_pool {
    const ebb_pool_event *next; /* of a pool without a lock; else the stop */
    uint64_t mask;              /* of what is below a granule */
    ebb_pool_options options;
    const ebb_pool_event **cursor; /* next, or locked_next */
    const ebb_pool_event *locked_next;
    ebb_pool_event stop;
    ebb_pool_heap *heap;
    ebb_pool_replay *replay;     /* NULL: no plan */
    uint64_t plan_start, plan_n; /* bytes; 0 of them without a plan */
    ebb_pool_learner learner;
    uint64_t patience;
    uint64_t general_bytes; /* live ones */
    ebb_pool_stats stats;   /* without what is kept elsewhere */
    pthread_mutex_t lock;
};

/* ---- making a plan ---------------------------------------------------------------------------- */

/* Room for a plan's making. */
typedef struct planning {
    ebb_pool_planned *requests;
    size_t n;
    ebb_place_item *items; /* of the requests that are planned, in their order */
    uint64_t *starts;
    size_t n_items;
    uint64_t peak;
} planning;

static bool is_plannable(const planning *p, size_t request) {
    return p->requests[request].span > 0 && p->requests[request].span <= p->n;
}

static ebb_status alloc_planning(planning *p, ebb_bump *bump, size_t n) {
    if (n >= UINT32_MAX / 4) { return ebb_fail(EBB_E_LIMIT, "an iteration of %zu requests", n); }
    *p = (planning){.n = n};
    p->requests = ebb__bump_alloc(bump, n, sizeof *p->requests);
    p->items = ebb__bump_alloc(bump, n, sizeof *p->items);
    p->starts = ebb__bump_alloc(bump, n, sizeof *p->starts);
    return p->requests != NULL && p->items != NULL && p->starts != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_place_problem describe(const ebb_pool *pool, planning *p) {
    p->n_items = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (!is_plannable(p, i)) { continue; }
        p->items[p->n_items++] =
            (ebb_place_item){.size_bytes = p->requests[i].n, .first = i, .last = (i + p->requests[i].span) % p->n};
    }
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    problem.items = p->items;
    problem.n_items = p->n_items;
    problem.period = p->n;
    problem.alignment_bytes = pool->options.alignment_bytes;
    return problem;
}

static void take_starts(planning *p) {
    size_t item = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (is_plannable(p, i)) { p->requests[i].start = p->starts[item++]; }
    }
    EBB_ASSERT(item == p->n_items);
}

static ebb_status place(const ebb_pool *pool, planning *p) {
    const ebb_place_problem problem = describe(pool, p);
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    ebb_place_result result = {0};
    options.mem = pool->options.mem;
    options.max_steps = ebb_min_u64(PLACE_STEPS + PLACE_STEPS_A_REQUEST * (uint64_t)p->n,
                                    EBB_PLACE_STEPS + EBB_PLACE_STEPS_AN_ITEM * (uint64_t)p->n);
    EBB_TRY(ebb_place_solve(&problem, &options, p->starts, &result));
    p->peak = result.peak_bytes;
    take_starts(p);
    return EBB_OK;
}

/* The same with starts that were given. */
static ebb_status check_given(const ebb_pool *pool, planning *p, const uint64_t *offsets) {
    const ebb_place_problem problem = describe(pool, p);
    size_t item = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (!is_plannable(p, i)) { continue; }
        p->starts[item++] = offsets[i];
    }
    EBB_TRY(ebb_place_check(&problem, pool->options.mem, p->starts, &p->peak));
    take_starts(p);
    return EBB_OK;
}

static void note_end(ebb_pool *pool, uint64_t end) {
    pool->stats.peak_bytes = ebb_max_u64(pool->stats.peak_bytes, end - pool->options.base);
}

/* *fits_out: whether there was room for it. */
static ebb_status begin_plan(ebb_pool *pool, planning *p, bool *fits_out) {
    uint64_t start = EBB_POOL_NOWHERE;
    EBB_ASSERT(pool->replay == NULL);
    EBB_TRY(ebb__pool_heap_take(pool->heap, p->peak, 0, &start));
    *fits_out = start != EBB_POOL_NOWHERE;
    if (!*fits_out) { return EBB_OK; }
    for (size_t i = 0; i < p->n; i++) { p->requests[i].start += start; }
    const ebb_status st = ebb__pool_replay_create(pool->options.mem, p->requests, p->n, &pool->replay);
    if (st != EBB_OK) {
        uint64_t n, note;
        ebb__pool_heap_give(pool->heap, start, &n, &note);
        return st;
    }
    pool->plan_start = start;
    pool->plan_n = p->peak;
    pool->stats.n_plans++;
    pool->stats.plan_bytes = p->peak;
    note_end(pool, start + p->peak);
    ebb__pool_learner_reset(&pool->learner);
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_heap_is_valid(pool->heap));
    return EBB_OK;
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

/* Behind the last event comes the first. */
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
    if (next != NULL) { *pool->cursor = next; }
}

/* ---- dropping it ------------------------------------------------------------------------------ */

/* The plan's bytes become blocks of their own, what is between the live ones is given back. */
static void carve(ebb_pool *pool, const ebb_pool_piece *pieces, size_t n_pieces) {
    uint64_t at = pool->plan_start, n, note;
    const uint64_t end = pool->plan_start + pool->plan_n;
    for (size_t k = 0; k < n_pieces; k++) {
        const uint64_t start = pieces[k].start;
        EBB_ASSERT(start >= at && start + pieces[k].n <= end);
        if (start > at) {
            ebb__pool_heap_cut(pool->heap, at, start - at);
            ebb__pool_heap_give(pool->heap, at, &n, &note);
        }
        at = start + pieces[k].n;
        if (at < end) { ebb__pool_heap_cut(pool->heap, start, pieces[k].n); }
    }
    if (at < end) { ebb__pool_heap_give(pool->heap, at, &n, &note); }
}

static ebb_status drop_plan(ebb_pool *pool) {
    if (pool->replay == NULL) { return EBB_OK; }
    ebb_bump bump;
    ebb_pool_piece *pieces = NULL;
    size_t n_pieces = 0;
    ebb__bump_init(&bump, pool->options.mem);
    ebb_status st = ebb__pool_replay_get_live(pool->replay, &bump, &pieces, &n_pieces);
    if (st == EBB_OK) { st = ebb__pool_heap_reserve(pool->heap, 2 * n_pieces + 1); }
    if (st == EBB_OK) {
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_replay_is_valid(pool->replay));
        carve(pool, pieces, n_pieces);
        EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_heap_is_valid(pool->heap));
        pool->stats.n_hits += pool->replay->n_hits;
        pool->general_bytes += pool->replay->live_bytes;
        ebb__pool_replay_destroy(pool->replay);
        pool->replay = NULL;
        pool->plan_start = pool->plan_n = 0;
        pool->stats.plan_bytes = 0;
        ebb__pool_learner_reset(&pool->learner);
    }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- learning --------------------------------------------------------------------------------- */

static ebb_status plan_iteration(ebb_pool *pool, ebb_bump *bump, size_t length) {
    planning p;
    bool fits = false;
    EBB_TRY(alloc_planning(&p, bump, length));
    ebb__pool_learner_get(&pool->learner, length, p.requests);
    EBB_TRY(place(pool, &p));
    if (p.peak == 0) { return EBB_OK; }
    EBB_TRY(begin_plan(pool, &p, &fits));
    return fits ? EBB_OK : ebb__pool_learner_wait(&pool->learner, pool->options.mem, p.requests, length);
}

/* Learning is a service: what fails in it, for want of memory, does not fail the request. */
static SELDOM void learn(ebb_pool *pool) {
    size_t length = 0;
    ebb_bump bump;
    ebb__bump_init(&bump, pool->options.mem);
    if (ebb__pool_learner_find(&pool->learner, pool->options.mem, &length) == EBB_OK && length > 0) {
        (void)plan_iteration(pool, &bump, length);
    }
    ebb__bump_fini(&bump);
}

static SELDOM void unlearn(ebb_pool *pool) {
    if (drop_plan(pool) != EBB_OK) { return; }
    pool->learner.n_failed++;
    ebb__pool_learner_reset(&pool->learner);
    pool->stats.n_drops++;
    pool->patience = ebb_min_u64(2 * pool->patience, MAX_PATIENCE);
}

/* ---- taking and giving ------------------------------------------------------------------------ */

static ebb_status no_room(const ebb_pool *pool, uint64_t size_bytes) {
    return ebb_fail(EBB_E_NO_FIT,
                    "%llu bytes: no room in a pool of %llu bytes, of which %llu live and %llu are planned",
                    (unsigned long long)size_bytes, (unsigned long long)pool->options.capacity_bytes,
                    (unsigned long long)count_live(pool), (unsigned long long)pool->stats.plan_bytes);
}

/* From the general allocator. */
static ebb_status take_general(ebb_pool *pool, uint64_t n, uint64_t *start_out) {
    const bool records = pool->options.learns && pool->replay == NULL;
    uint64_t number = 0, start = EBB_POOL_NOWHERE;
    EBB_TRY(ebb__pool_heap_take(pool->heap, n, 0, &start));
    if (start == EBB_POOL_NOWHERE) { return no_room(pool, n); }
    pool->stats.n_requests++;
    if (records && ebb__pool_learner_take(&pool->learner, pool->options.mem, n, &number) == EBB_OK) {
        ebb__pool_heap_note(pool->heap, start, number + 1);
    }
    EBB_ASSERT(start - pool->options.base <= pool->options.capacity_bytes - n);
    EBB_ASSERT(start + n <= pool->plan_start || start >= pool->plan_start + pool->plan_n);
    pool->general_bytes += n;
    note_end(pool, start + n);
    *start_out = start;
    return EBB_OK;
}

/* A request that does not follow. */
static ebb_status take_other(ebb_pool *pool, uint64_t size_bytes, uint64_t *start_out) {
    EBB_ASSERT(*pool->cursor == &pool->stop);
    if (size_bytes > pool->options.capacity_bytes) { return no_room(pool, size_bytes); }
    const uint64_t n = ebb_align_up(ebb_max_u64(size_bytes, 1), pool->mask + 1);
    if (pool->replay == NULL) {
        EBB_TRY(take_general(pool, n, start_out));
        if (pool->options.learns && ebb__pool_learner_is_due(&pool->learner)) { learn(pool); }
        return EBB_OK;
    }
    switch (ebb__pool_replay_search(pool->replay, n, start_out)) {
    case EBB_POOL_HIT: return EBB_OK;
    case EBB_POOL_UNPLANNED: pool->stats.n_unplanned++; break;
    case EBB_POOL_MISMATCH: pool->stats.n_mismatches++; break;
    }
    if (pool->options.learns && ebb__pool_replay_is_stale(pool->replay, pool->patience)) { unlearn(pool); }
    return take_general(pool, n, start_out);
}

static ebb_status give_general(ebb_pool *pool, uint64_t address) {
    uint64_t n = 0, note = 0;
    ebb__pool_heap_give(pool->heap, address, &n, &note);
    if (n > 0 && note > 0) { ebb__pool_learner_give(&pool->learner, note - 1); }
    EBB_ASSERT(pool->general_bytes >= n);
    pool->general_bytes -= n;
    return n > 0 ? EBB_OK : EBB_E_ARGUMENT;
}

static ebb_status give_other(ebb_pool *pool, uint64_t address) {
    const bool is_planned = address - pool->plan_start < pool->plan_n;
    const ebb_status st = is_planned ? (ebb__pool_replay_give(pool->replay, address) > 0 ? EBB_OK : EBB_E_ARGUMENT)
                                     : give_general(pool, address);
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
    EBB_TRY(check_options(options));
    ebb_pool *pool = ebb__calloc(options->mem, 1, sizeof *pool);
    if (pool == NULL) { return EBB_E_NO_MEMORY; }
    pool->options = *options;
    pool->mask = options->alignment_bytes - 1;
    pool->stop = (ebb_pool_event){EBB_POOL_STOP, EBB_POOL_NOWHERE};
    pool->next = pool->locked_next = &pool->stop;
    pool->cursor = options->locked ? &pool->locked_next : &pool->next;
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
    EBB_VEC_FINI(pool->options.mem, &pool->learner.records);
    ebb__free(pool->options.mem, pool);
}

static ebb_status plan(ebb_pool *pool, ebb_bump *bump, const ebb_pool_request *requests, size_t n,
                       const uint64_t *offsets) {
    planning p;
    bool fits = false;
    EBB_TRY(drop_plan(pool));
    if (n == 0) { return EBB_OK; }
    EBB_TRY(alloc_planning(&p, bump, n));
    for (size_t i = 0; i < n; i++) {
        const uint64_t bytes = ebb_max_u64(requests[i].size_bytes, 1);
        if (bytes > pool->options.capacity_bytes) { return no_room(pool, bytes); }
        p.requests[i] = (ebb_pool_planned){.n = ebb_align_up(bytes, pool->mask + 1), .span = requests[i].span};
    }
    EBB_TRY(offsets != NULL ? check_given(pool, &p, offsets) : place(pool, &p));
    if (p.peak == 0) { return EBB_OK; }
    EBB_TRY(begin_plan(pool, &p, &fits));
    return fits ? EBB_OK : no_room(pool, p.peak);
}

ebb_status ebb_pool_plan(ebb_pool *pool, const ebb_pool_request *requests, size_t n, const uint64_t *offsets) {
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
    return follow_alloc(pool, &pool->next, size_bytes, address_out) ? EBB_OK : take(pool, size_bytes, address_out);
}

ebb_status ebb_pool_free(ebb_pool *pool, uint64_t address) {
    return ebb__pool_follow_free(&pool->next, address) ? EBB_OK : give(pool, address);
}

ebb_status ebb_pool_get_stats(ebb_pool *pool, ebb_pool_stats *stats_out) {
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
