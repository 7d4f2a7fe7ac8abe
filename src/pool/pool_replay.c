/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of an iteration, followed call by call.
 *
 *      events:   free x | alloc a | alloc b | free a | alloc c | ... | stop
 *                  ^ followed up to here; the books may be behind
 *
 * An iteration is a row of events, requests and frees, in the order in which they are expected. A call that is the
 * next event is answered from it and moves on by one: that is all there is to a call that follows (pool_priv.h).
 * Nothing is noted, for what lives is known from how far it was followed. Any other call first brings the books up to
 * date, by going through the events that were followed since; so each is gone through once, and of many rounds one
 * tells all.
 *
 * The books say what lives in each distinct start of the plan. The placement is sound as long as whatever lives is
 * what the plan has living there; it does not matter whether more has been freed. So the blocks to be watched are the
 * late ones: those that live and whose free the cursor has passed. While there is one, nothing is followed without
 * the books, and a request gets its place if that touches no late block:
 *
 *      live now = (a part of what the plan has living at the cursor) + late
 *      the place of the request at the cursor is disjoint from the first by the placement, from the second by looking
 *
 * A request that the plan does not have may get bytes of it, at a place where nothing lives: a stray. The next request
 * whose place touches the stray is guarded: its event is a stop until the stray is gone or the cursor has passed. All
 * others are followed as before. A guarded request goes elsewhere.
 *
 * A request may be sent elsewhere beforehand, on a detour: then its event is a stop too, and when it comes, it becomes
 * a stray there. After that, or if it does not come, its place is its own again.
 *
 * A block that is dead although its free is yet to come, because it was freed early or never taken, is no danger, but
 * a call may free what no longer lives: the event becomes a stop until the cursor has passed it.
 *
 * Frees are put where they came: among those between the same two requests the awaited one changes places with the
 * one that came, so after one iteration their order is right; and a free moves over a few requests too, as far as
 * the placement's lifetimes allow.
 *
 * When a request has another size than the expected one, it is taken for the next one, if it has its size: one was left
 * out. Else it is taken for the expected one in another size, if it has about that, or else for one too many. The first
 * two are guesses. When the request comes that was skipped, the guess was wrong, and the cursor goes back. If the next
 * request does not fit either, the two sizes are looked for together, a few requests ahead: then some were left out.
 * When that fails too, the last EBB_POOL_GRAM sizes are looked up in a table of all places of the iteration. If several
 * places have these sizes, the one that is nearest to where the cursor should be is taken. Moving there makes the books
 * anew, O(requests), and is not done again before a part of an iteration.
 *
 * Invariants, while nothing is followed without the books:
 * 1. A free stands after its request and before the request that dies no sooner by the plan (round the circle).
 * 2. Listed as late is what lives and is not awaited, where awaited means: the next event of it is its free.
 * 3. A free is a stop exactly while it is awaited and its block does not live.
 * 4. The guard of a stray is the first request from the cursor on whose place touches it.
 */
#include "pool/pool_priv.h"

#define MAX_AHEAD 64u /* requests that may have been left out at once without the table */
#define MAX_MOVE 64u  /* events over which a free moves */
#define MAX_LATE 16u  /* while there are more, nothing is answered from the plan */
#define MISS_WORTH 8u /* hits that make up for a miss */
#define MIN_EXCESS 32u
#define JUMPS_AN_ITERATION 64u
#define MAX_GRAMS 64u /* equal places that are looked at */
#define AGE_FADES 8u
#define FIRST_AGE 8u /* part of an iteration */
#define NONE EBB_POOL_NONE

typedef ebb_pool_spot spot;
typedef ebb_pool_event event;
typedef ebb_pool_meaning meaning;
typedef ebb_pool_expected expected;

static uint64_t count_taken(const ebb_pool_replay *r) {
    return r->n_hits + r->n_others;
}

/* ---- tables ----------------------------------------------------------------------------------- */

static uint64_t table_size(uint64_t n) {
    uint64_t size = 16;
    while (size < 2 * n) { size *= 2; }
    return size;
}

static uint64_t add_to_hash(uint64_t hash, uint64_t n) {
    hash = (hash ^ n) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static uint32_t behind(uint32_t i, uint32_t n) {
    return i + 1 < n ? i + 1 : 0;
}

/* From one to another, forward round a circle of n. */
static uint32_t way(uint32_t from, uint32_t to, uint32_t n) {
    return to >= from ? to - from : to + (n - from);
}

/* Where the spot of this start stands in the table, or the empty place where it would. */
static uint32_t *find_spot(const ebb_pool_replay *r, uint64_t start) {
    uint64_t i = add_to_hash(0, start) & r->mask;
    while (r->spot_table[i] != NONE && r->spots[r->spot_table[i]].start != start) { i = (i + 1) & r->mask; }
    return &r->spot_table[i];
}

static void get_gram(const ebb_pool_replay *r, uint32_t first, uint64_t sizes[EBB_POOL_GRAM]) {
    for (unsigned k = 0; k < EBB_POOL_GRAM; k++, first = behind(first, r->n)) { sizes[k] = r->requests[first].n; }
}

/* Where the request that begins these sizes stands, or the empty place where it would. */
static uint32_t *find_gram(const ebb_pool_replay *r, const uint64_t sizes[EBB_POOL_GRAM]) {
    uint64_t hash = 0, others[EBB_POOL_GRAM];
    for (unsigned k = 0; k < EBB_POOL_GRAM; k++) { hash = add_to_hash(hash, sizes[k]); }
    uint64_t i = hash & r->mask;
    for (; r->gram_table[i] != NONE; i = (i + 1) & r->mask) {
        get_gram(r, r->gram_table[i], others);
        if (memcmp(sizes, others, sizeof others) == 0) { break; }
    }
    return &r->gram_table[i];
}

static void fill_grams(ebb_pool_replay *r) {
    uint64_t sizes[EBB_POOL_GRAM];
    for (uint32_t i = 0; i < r->n; i++) {
        get_gram(r, i, sizes);
        uint32_t *e = find_gram(r, sizes);
        r->next_gram[i] = *e;
        *e = i;
    }
}

/* ---- making ----------------------------------------------------------------------------------- */

static bool is_planned(const ebb_pool_planned *p, size_t n) {
    return p->span > 0 && p->span <= n;
}

static uint32_t add_spot(ebb_pool_replay *r, uint64_t start) {
    uint32_t *e = find_spot(r, start);
    if (*e == NONE) {
        EBB_ASSERT(r->n_spots < r->n);
        r->spots[r->n_spots] = (spot){start, NONE};
        *e = r->n_spots++;
    }
    return *e;
}

static void copy_requests(ebb_pool_replay *r, const ebb_pool_planned *requests) {
    for (uint32_t i = 0; i < r->n; i++) {
        const ebb_pool_planned *p = &requests[i];
        r->requests[i] = (expected){.n = p->n, .spot = NONE, .late_at = NONE, .detour = EBB_POOL_NOWHERE};
        if (!is_planned(p, r->n)) { continue; }
        r->requests[i].start = p->start;
        r->requests[i].span = (uint32_t)p->span;
        r->requests[i].spot = add_spot(r, p->start);
        if (!p->lives) { continue; }
        EBB_ASSERT(r->spots[r->requests[i].spot].live == NONE);
        r->spots[r->requests[i].spot].live = i;
        r->requests[i].note = p->note;
        r->live_bytes += p->n;
    }
    r->peak_bytes = r->live_bytes;
}

/* Before each request what dies there. first[n + 1] is scratch. */
static void lay_events(ebb_pool_replay *r, uint32_t *first) {
    memset(first, 0, (r->n + 1) * sizeof *first);
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->requests[i].spot != NONE) { first[(i + (uint64_t)r->requests[i].span) % r->n + 1]++; }
    }
    for (uint32_t i = 0; i < r->n; i++) { first[i + 1] += first[i] + 1; }
    for (uint32_t i = 0; i < r->n; i++) {
        expected *q = &r->requests[i];
        q->alloc_at = first[i + 1] - 1;
        r->meanings[q->alloc_at] = (meaning){.request = i, .before = i};
        r->events[q->alloc_at] = (event){q->spot != NONE ? q->n : EBB_POOL_STOP, q->start};
    }
    for (uint32_t i = 0; i < r->n; i++) {
        expected *q = &r->requests[i];
        if (q->spot == NONE) { continue; }
        const uint32_t death = (uint32_t)((i + (uint64_t)q->span) % r->n);
        q->free_at = first[death]++;
        r->meanings[q->free_at] = (meaning){.request = i, .is_free = 1, .before = death};
        r->events[q->free_at] = (event){EBB_POOL_FREE, q->start};
    }
    r->events[r->n_events] = (event){EBB_POOL_STOP, EBB_POOL_NOWHERE};
}

static void *take_from_bump(ebb_bump *bump, uint64_t n, size_t elem_bytes, ebb_status *st) {
    void *ptr = *st == EBB_OK ? ebb__bump_alloc(bump, n, elem_bytes) : NULL;
    if (ptr == NULL) { *st = EBB_E_NO_MEMORY; }
    return ptr;
}

static void make_books(ebb_pool_replay *r);

static ebb_status fill(ebb_pool_replay *r, const ebb_pool_planned *requests) {
    const uint64_t size = table_size(r->n);
    ebb_status st = EBB_OK;
    r->n_events = r->n;
    for (uint32_t i = 0; i < r->n; i++) { r->n_events += is_planned(&requests[i], r->n) ? 1 : 0; }
    r->events = take_from_bump(&r->bump, (uint64_t)r->n_events + 1, sizeof *r->events, &st);
    r->meanings = take_from_bump(&r->bump, r->n_events, sizeof *r->meanings, &st);
    r->requests = take_from_bump(&r->bump, r->n, sizeof *r->requests, &st);
    r->spots = take_from_bump(&r->bump, r->n, sizeof *r->spots, &st);
    r->spot_table = take_from_bump(&r->bump, size, sizeof *r->spot_table, &st);
    r->gram_table = take_from_bump(&r->bump, size, sizeof *r->gram_table, &st);
    r->next_gram = take_from_bump(&r->bump, r->n, sizeof *r->next_gram, &st);
    r->late = take_from_bump(&r->bump, (uint64_t)r->n + 1, sizeof *r->late, &st);
    EBB_TRY(st);
    r->mask = size - 1;
    memset(r->spot_table, 0xff, size * sizeof *r->spot_table);
    memset(r->gram_table, 0xff, size * sizeof *r->gram_table);
    copy_requests(r, requests);
    lay_events(r, r->late);
    fill_grams(r);
    r->at = 0;
    r->skipped = NONE;
    r->stray_age = r->n / FIRST_AGE;
    make_books(r);
    return EBB_OK;
}

ebb_status ebb__pool_replay_create(const ebb_mem *mem, const ebb_pool_planned *requests, size_t n,
                                   ebb_pool_replay **replay_out) {
    EBB_ASSERT(n > 0 && n < UINT32_MAX / 4);
    ebb_pool_replay *r = ebb__calloc(mem, 1, sizeof *r);
    if (r == NULL) { return EBB_E_NO_MEMORY; }
    r->mem = mem;
    r->n = (uint32_t)n;
    ebb__bump_init(&r->bump, mem);
    const ebb_status st = fill(r, requests);
    if (st != EBB_OK) {
        ebb__pool_replay_destroy(r);
        return st;
    }
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_replay_is_valid(r));
    *replay_out = r;
    return EBB_OK;
}

void ebb__pool_replay_destroy(ebb_pool_replay *replay) {
    if (replay == NULL) { return; }
    ebb__bump_fini(&replay->bump);
    ebb__free(replay->mem, replay);
}

/* ---- the books -------------------------------------------------------------------------------- */

static bool is_live(const ebb_pool_replay *r, uint32_t request) {
    return r->requests[request].spot != NONE && r->spots[r->requests[request].spot].live == request;
}

/* A planned request whose next event is its free. */
static bool is_awaited(const ebb_pool_replay *r, uint32_t request) {
    const expected *q = &r->requests[request];
    EBB_ASSERT(q->spot != NONE);
    const uint32_t born = behind(q->alloc_at, r->n_events);
    return way(born, r->at, r->n_events) <= way(born, q->free_at, r->n_events);
}

static void add_late(ebb_pool_replay *r, uint32_t request) {
    EBB_ASSERT(r->requests[request].late_at == NONE && r->n_late < r->n);
    r->requests[request].late_at = r->n_late;
    r->late[r->n_late++] = request;
}

static void forget_late(ebb_pool_replay *r, uint32_t request) {
    const uint32_t k = r->requests[request].late_at;
    EBB_ASSERT(k < r->n_late && r->late[k] == request);
    r->late[k] = r->late[--r->n_late];
    r->requests[r->late[k]].late_at = k;
    r->requests[request].late_at = NONE;
}

static bool touches_late(const ebb_pool_replay *r, const expected *q) {
    if (r->n_late > MAX_LATE) { return true; }
    for (uint32_t k = 0; k < r->n_late; k++) {
        const expected *l = &r->requests[r->late[k]];
        if (q->start < l->start + l->n && l->start < q->start + q->n) { return true; }
    }
    return false;
}

/* ---- strays in the plan's bytes --------------------------------------------------------------- */

static bool touches(const expected *q, const ebb_pool_stray *s) {
    return q->spot != NONE && q->start < s->start + s->n && s->start < q->start + q->n;
}

static bool is_guarded(const ebb_pool_replay *r, uint32_t request) {
    for (uint32_t k = 0; k < r->n_strays; k++) {
        if (r->strays[k].guard == request) { return true; }
    }
    return false;
}

/* The event of a planned request is a stop while it is guarded or sent elsewhere. */
static void stop_or_go(ebb_pool_replay *r, uint32_t request) {
    const expected *q = &r->requests[request];
    const bool stops = q->detour != EBB_POOL_NOWHERE || is_guarded(r, request);
    EBB_ASSERT(q->spot != NONE);
    r->events[q->alloc_at].n = stops ? EBB_POOL_STOP : q->n;
}

void ebb__pool_replay_detour(ebb_pool_replay *r, uint32_t request, uint64_t start) {
    expected *q = &r->requests[request];
    q->detour = start != q->start ? start : EBB_POOL_NOWHERE;
    stop_or_go(r, request);
}

static void lift_guard(ebb_pool_replay *r, ebb_pool_stray *s) {
    const uint32_t request = s->guard;
    s->guard = NONE;
    if (request != NONE) { stop_or_go(r, request); }
}

/* At the first request from `next` on that touches the stray. O(requests). */
static void put_guard(ebb_pool_replay *r, ebb_pool_stray *s, uint32_t next) {
    lift_guard(r, s);
    for (uint32_t k = 0, i = next; k < r->n; k++, i = behind(i, r->n)) {
        if (!touches(&r->requests[i], s)) { continue; }
        s->guard = i;
        stop_or_go(r, i);
        return;
    }
}

/* A guard that is passed goes on. */
static void pass_guards(ebb_pool_replay *r, uint32_t request) {
    for (uint32_t k = 0; k < r->n_strays; k++) {
        if (r->strays[k].guard == request) { put_guard(r, &r->strays[k], behind(request, r->n)); }
    }
}

/* After the cursor was put somewhere. O(requests). */
static void make_books(ebb_pool_replay *r) {
    r->n_late = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        expected *q = &r->requests[i];
        if (q->spot == NONE) { continue; }
        const bool awaited = is_awaited(r, i), lives = is_live(r, i);
        q->late_at = NONE;
        if (lives && !awaited) { add_late(r, i); }
        r->events[q->free_at].n = awaited && !lives ? EBB_POOL_STOP : EBB_POOL_FREE;
    }
}

/* The event at the cursor came. */
static void follow(ebb_pool_replay *r) {
    const meaning m = r->meanings[r->at];
    const expected *q = &r->requests[m.request];
    spot *s = &r->spots[q->spot];
    EBB_ASSERT(r->events[r->at].n != EBB_POOL_STOP && r->events[r->at].start == q->start && q->late_at == NONE);
    if (m.is_free) {
        EBB_ASSERT(s->live == m.request && r->live_bytes >= q->n);
        s->live = NONE;
        r->requests[m.request].note = 0;
        r->live_bytes -= q->n;
    } else {
        EBB_ASSERT(s->live == NONE && r->events[r->at].n == q->n);
        s->live = m.request;
        r->live_bytes += q->n;
        r->peak_bytes = ebb_max_u64(r->peak_bytes, r->live_bytes);
        r->n_hits++;
        r->n_recent = 0;
        r->n_astray = 0;
    }
    r->at = behind(r->at, r->n_events);
}

/* It does not come. What lives at a request's place although it is dead by the plan is from now on that request's. */
static void pass(ebb_pool_replay *r) {
    const meaning m = r->meanings[r->at];
    const expected *q = &r->requests[m.request];
    const bool lives = is_live(r, m.request);
    if (m.is_free) {
        EBB_ASSERT((r->events[r->at].n == EBB_POOL_FREE) == lives);
        r->events[r->at].n = EBB_POOL_FREE;
        if (lives) { add_late(r, m.request); }
    } else if (lives) {
        forget_late(r, m.request);
    } else if (q->spot != NONE) {
        EBB_ASSERT(r->events[q->free_at].n == EBB_POOL_FREE);
        r->events[q->free_at].n = EBB_POOL_STOP;
    }
    r->at = behind(r->at, r->n_events);
    if (m.is_free) { return; }
    if (q->detour != EBB_POOL_NOWHERE) { ebb__pool_replay_detour(r, m.request, q->start); }
    pass_guards(r, m.request);
}

const ebb_pool_event *ebb__pool_replay_get_next(const ebb_pool_replay *r) {
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__pool_replay_is_valid(r));
    EBB_ASSERT(r->n_rounds == 0);
    return r->n_late == 0 ? &r->events[r->at] : NULL;
}

/* Nothing that is followed for a round was missing a block, for its free would have been a stop; so every further
 * round is like the first. */
void ebb__pool_replay_catch_up(ebb_pool_replay *r, const ebb_pool_event *next) {
    const uint64_t N = r->n_events;
    EBB_ASSERT(next >= r->events && next <= r->events + N && r->n_late == 0);
    const uint64_t to = (uint64_t)(next - r->events) + r->n_rounds * N;
    EBB_ASSERT(to >= r->at);
    const uint64_t n_passed = to - r->at, n_more = n_passed / N > 1 ? n_passed / N - 1 : 0;
    for (uint64_t k = n_more * N; k < n_passed; k++) { follow(r); }
    r->n_hits += n_more * (N - r->n);
    r->n_rounds = 0;
    EBB_ASSERT(r->at == to % N);
}

/* ---- the order of frees ----------------------------------------------------------------------- */

static void note_place(ebb_pool_replay *r, uint32_t at) {
    expected *q = &r->requests[r->meanings[at].request];
    if (r->meanings[at].is_free) {
        q->free_at = at;
    } else {
        q->alloc_at = at;
    }
}

static void exchange(ebb_pool_replay *r, uint32_t a, uint32_t b) {
    const event e = r->events[a];
    const meaning m = r->meanings[a];
    EBB_ASSERT(m.is_free && r->meanings[b].is_free && m.before == r->meanings[b].before);
    r->events[a] = r->events[b];
    r->meanings[a] = r->meanings[b];
    r->events[b] = e;
    r->meanings[b] = m;
    note_place(r, a);
    note_place(r, b);
}

/* Put a free elsewhere, before this request; what is between moves up. */
static void move(ebb_pool_replay *r, uint32_t from, uint32_t to, uint32_t before) {
    const event e = r->events[from];
    meaning m = r->meanings[from];
    EBB_ASSERT(m.is_free && way(behind(m.request, r->n), before, r->n) < r->requests[m.request].span);
    const int step = from < to ? 1 : -1;
    for (uint32_t k = from; k != to; k += (uint32_t)step) {
        r->events[k] = r->events[k + (uint32_t)step];
        r->meanings[k] = r->meanings[k + (uint32_t)step];
        note_place(r, k);
    }
    m.before = before;
    r->events[to] = e;
    r->meanings[to] = m;
    note_place(r, to);
}

/* A block was freed while its free was awaited. */
static void free_awaited(ebb_pool_replay *r, uint32_t request) {
    const uint32_t at = r->at, planned_at = r->requests[request].free_at;
    const meaning now = r->meanings[at], then = r->meanings[planned_at];
    if (now.is_free && now.before == then.before) {
        EBB_ASSERT(planned_at >= at);
        exchange(r, at, planned_at);
    } else if (planned_at > at && planned_at - at <= MAX_MOVE) {
        move(r, planned_at, at, now.before);
    } else {
        r->events[planned_at].n = EBB_POOL_STOP;
        return;
    }
    r->at = behind(at, r->n_events);
}

/* A block was freed after that. */
static void free_late(ebb_pool_replay *r, uint32_t request) {
    const uint32_t at = r->at, planned_at = r->requests[request].free_at;
    const uint32_t before = r->meanings[at].before, age = way(behind(request, r->n), before, r->n);
    forget_late(r, request);
    if (age < r->requests[request].span && planned_at < at && at - planned_at <= MAX_MOVE) {
        move(r, planned_at, at - 1, before);
    }
}

static ebb_pool_stray *find_stray(ebb_pool_replay *r, uint64_t start) {
    for (uint32_t k = 0; k < r->n_strays; k++) {
        if (r->strays[k].start == start) { return &r->strays[k]; }
    }
    return NULL;
}

/* The longest counts, and is slowly forgotten: a stray that is taken to die too soon costs more than one that is taken
 * to live too long. */
static void note_age(ebb_pool_replay *r, uint64_t age) {
    r->stray_age = ebb_max_u64(age, r->stray_age - (r->stray_age - ebb_min_u64(age, r->stray_age)) / AGE_FADES);
}

/* It is a planned request as far as one can tell: that has not come beside it. */
static bool is_known(const ebb_pool_replay *r, const ebb_pool_stray *s) {
    return s->seems != NONE && !is_live(r, s->seems);
}

/* Of a planned request, the plan tells; and if that moment has passed, nothing does. */
uint64_t ebb__pool_replay_stray_left(const ebb_pool_replay *r, const ebb_pool_stray *s, uint32_t next) {
    const uint64_t is = count_taken(r) - s->born, age = is_known(r, s) ? s->age : r->stray_age;
    const uint64_t left = age > is ? age - is : 0;
    if (!is_known(r, s) || r->requests[s->seems].spot == NONE) { return left; }
    const uint32_t death = (uint32_t)((s->seems + (uint64_t)r->requests[s->seems].span) % r->n);
    const uint32_t planned = way(next, death, r->n);
    return planned <= left + ebb_min_u64(MAX_AHEAD, r->n / 8) ? planned : 0;
}

static uint64_t give_stray(ebb_pool_replay *r, uint64_t start, uint64_t *note_out) {
    ebb_pool_stray *s = find_stray(r, start);
    if (s == NULL) { return 0; }
    const uint64_t n = s->n;
    EBB_ASSERT(r->live_bytes >= n);
    lift_guard(r, s);
    *note_out = s->note;
    r->live_bytes -= n;
    if (!is_known(r, s)) { note_age(r, count_taken(r) - s->born); }
    *s = r->strays[--r->n_strays];
    return n;
}

void ebb__pool_replay_lodge(ebb_pool_replay *r, uint64_t start, uint64_t n, const ebb_pool_hint *hint) {
    EBB_ASSERT(r->n_strays < EBB_POOL_STRAYS);
    ebb_pool_stray *s = &r->strays[r->n_strays++];
    *s = (ebb_pool_stray){
        .start = start, .n = n, .born = count_taken(r), .age = hint->age, .seems = hint->request, .guard = NONE};
    put_guard(r, s, r->meanings[r->at].before);
    r->live_bytes += n;
    r->peak_bytes = ebb_max_u64(r->peak_bytes, r->live_bytes);
}

uint64_t ebb__pool_replay_give(ebb_pool_replay *r, uint64_t start, uint64_t *note_out) {
    const uint32_t s = *find_spot(r, start);
    const uint32_t request = s != NONE ? r->spots[s].live : NONE;
    if (request == NONE) { return give_stray(r, start, note_out); }
    expected *q = &r->requests[request];
    EBB_ASSERT(r->live_bytes >= q->n && (q->late_at != NONE) != is_awaited(r, request));
    *note_out = q->note;
    q->note = 0;
    r->spots[s].live = NONE;
    r->live_bytes -= q->n;
    if (q->late_at != NONE) {
        free_late(r, request);
    } else {
        free_awaited(r, request);
    }
    return q->n;
}

void ebb__pool_replay_note(ebb_pool_replay *r, uint64_t start, uint64_t note) {
    const uint32_t s = *find_spot(r, start);
    if (s != NONE && r->spots[s].live != NONE) {
        r->requests[r->spots[s].live].note = note;
        return;
    }
    ebb_pool_stray *stray = find_stray(r, start);
    EBB_ASSERT(stray != NULL);
    stray->note = note;
}

/* Nothing lives there. O(requests). */
static bool is_free_there(const ebb_pool_replay *r, uint64_t start, uint64_t n) {
    for (uint32_t s = 0; s < r->n_spots; s++) {
        const uint64_t other = r->spots[s].start, live = r->spots[s].live;
        if (live != NONE && start < other + r->requests[live].n && other < start + n) { return false; }
    }
    for (uint32_t k = 0; k < r->n_strays; k++) {
        if (start < r->strays[k].start + r->strays[k].n && r->strays[k].start < start + n) { return false; }
    }
    return true;
}

/* ---- finding the place ------------------------------------------------------------------------ */

static void count_mismatch(ebb_pool_replay *r) {
    const uint64_t n_since = count_taken(r) - r->missed_at;
    r->n_excess -= ebb_min_u64(r->n_excess, n_since / MISS_WORTH);
    r->n_excess++;
    r->missed_at = count_taken(r);
}

static void remember(ebb_pool_replay *r, uint64_t n) {
    if (r->n_recent == EBB_POOL_GRAM) { memmove(r->recent, r->recent + 1, (EBB_POOL_GRAM - 1) * sizeof *r->recent); }
    if (r->n_recent < EBB_POOL_GRAM) { r->n_recent++; }
    r->recent[r->n_recent - 1] = n;
    r->n_astray++;
}

/* The request that this one is, if the one before did not fit either: the nearest ahead that has its size after one
 * of the size before; or the one after the cursor, if the one before was of another size than planned. */
static uint32_t look_ahead(const ebb_pool_replay *r, uint64_t before, uint64_t n) {
    uint32_t request = r->meanings[r->at].before;
    for (uint32_t k = 0; k < MAX_AHEAD && k < r->n; k++) {
        const uint32_t next = behind(request, r->n);
        if (r->requests[next].n == n && (k == 0 || r->requests[request].n == before)) { return next; }
        request = next;
    }
    return NONE;
}

/* The one that the last few sizes tell: where several places have them, the one that is nearest to where it should be
 * if all had come since the plan was left. */
static uint32_t look_up(ebb_pool_replay *r) {
    if (r->n_recent < EBB_POOL_GRAM || count_taken(r) < r->next_jump) { return NONE; }
    const uint64_t now = r->meanings[r->at].before + r->n_astray - 1;
    uint32_t best = NONE, best_distance = NONE, first = *find_gram(r, r->recent);
    for (unsigned k = 0; k < MAX_GRAMS && first != NONE; k++, first = r->next_gram[first]) {
        const uint32_t request = (uint32_t)((first + (uint64_t)EBB_POOL_GRAM - 1) % r->n);
        const uint32_t ahead = way((uint32_t)(now % r->n), request, r->n), distance = ebb_min_u64(ahead, r->n - ahead);
        if (distance < best_distance) {
            best = request;
            best_distance = distance;
        }
    }
    return best;
}

/* Over what does not come. */
static void skip_to(ebb_pool_replay *r, uint32_t request) {
    while (r->meanings[r->at].before != request) { pass(r); }
}

/* O(requests). */
static void put_cursor(ebb_pool_replay *r, uint32_t request) {
    r->at = r->requests[request].alloc_at;
    make_books(r);
    for (uint32_t k = 0; k < r->n_strays; k++) { put_guard(r, &r->strays[k], request); }
}

static void jump_to(ebb_pool_replay *r, uint32_t request) {
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->requests[i].detour != EBB_POOL_NOWHERE) { ebb__pool_replay_detour(r, i, r->requests[i].start); }
    }
    put_cursor(r, request);
    r->next_jump = count_taken(r) + r->n / JUMPS_AN_ITERATION;
}

/* The request that was skipped comes after all: what came instead was one too many. */
static bool go_back(ebb_pool_replay *r, uint64_t n, uint32_t skipped) {
    if (skipped == NONE || count_taken(r) != r->skipped_at + 1 || r->requests[skipped].n != n) { return false; }
    ebb_pool_stray *last = r->n_strays > 0 ? &r->strays[r->n_strays - 1] : NULL;
    if (r->lost == skipped) { /* it was of another size */
        if (last != NULL && last->seems == skipped) { last->seems = NONE; }
        put_cursor(r, skipped);
        return true;
    }
    expected *q = &r->requests[behind(skipped, r->n)];
    if (!is_live(r, behind(skipped, r->n)) || r->n_strays == EBB_POOL_STRAYS) { return false; }
    r->strays[r->n_strays++] = (ebb_pool_stray){
        .start = q->start, .n = q->n, .note = q->note, .born = r->skipped_at, .seems = NONE, .guard = NONE};
    r->spots[q->spot].live = NONE;
    q->note = 0;
    put_cursor(r, skipped);
    return true;
}

/* The expected request may be left out, and this is the next one. */
static bool skip_one(ebb_pool_replay *r, uint64_t n) {
    const uint32_t now = r->meanings[r->at].before, next = behind(now, r->n);
    const expected *q = &r->requests[next];
    if (q->n != n || q->spot == NONE || !is_free_there(r, q->start, n)) { return false; }
    skip_to(r, next);
    r->skipped = now;
    r->skipped_at = count_taken(r);
    return true;
}

/* One of another size has half to one and a half times the size. */
static bool is_alike(const ebb_pool_replay *r, uint64_t n) {
    const expected *q = &r->requests[r->meanings[r->at].before];
    return q->n / 2 <= n && n <= q->n + q->n / 2;
}

/* Since a request was taken to be of another size, only requests of its size have come, and here is one more than the
 * plan has: they are all one place behind, and this is the last of them. */
static uint32_t find_last_of_run(const ebb_pool_replay *r, uint64_t n, uint32_t skipped) {
    const uint32_t now = r->meanings[r->at].before;
    uint32_t last = skipped;
    if (skipped == NONE || count_taken(r) != r->skipped_at + way(skipped, now, r->n)) { return NONE; }
    for (uint32_t i = skipped; i != now; i = behind(i, r->n)) {
        if (r->requests[i].n != n) { return NONE; }
        last = i;
    }
    return last;
}

/* What came is taken for the expected request in another size. */
static void stand_in(ebb_pool_replay *r) {
    r->lost = r->skipped = r->meanings[r->at].before;
    r->skipped_at = count_taken(r) - 1;
    while (r->meanings[r->at].is_free) { pass(r); }
    pass(r);
}

/* Move the cursor to the request that this is, when it is not the expected one; whether one was found. */
static bool find_place(ebb_pool_replay *r, uint64_t n) {
    const uint32_t skipped = r->skipped;
    r->skipped = NONE;
    count_mismatch(r);
    remember(r, n);
    if (go_back(r, n, skipped)) { return true; }
    if (r->n_recent < 2) { return skip_one(r, n); }
    uint32_t request = look_ahead(r, r->recent[r->n_recent - 2], n);
    if (request != NONE) {
        skip_to(r, request);
        return true;
    }
    request = look_up(r);
    if (request == NONE) { return false; }
    jump_to(r, request);
    return true;
}

/* The cursor's request was sent elsewhere, but its own place will do: nothing lives there, or is sent there. */
static bool is_home_free(const ebb_pool_replay *r, uint32_t request) {
    const expected *q = &r->requests[request];
    if (!is_free_there(r, q->start, q->n)) { return false; }
    uint32_t i = behind(request, r->n);
    for (uint32_t k = 1; k < q->span; k++, i = behind(i, r->n)) {
        const expected *e = &r->requests[i];
        if (e->detour != EBB_POOL_NOWHERE && e->detour < q->start + q->n && q->start < e->detour + e->n) {
            return false;
        }
    }
    return true;
}

ebb_pool_answer ebb__pool_replay_search(ebb_pool_replay *r, uint64_t n, uint64_t *start_out) {
    const uint32_t skipped = r->skipped;
    if (r->requests[r->meanings[r->at].before].n != n && !find_place(r, n)) {
        r->lost = find_last_of_run(r, n, skipped);
        r->n_others++;
        if (r->lost == NONE && r->n_recent == 1 && is_alike(r, n)) { stand_in(r); }
        return EBB_POOL_MISMATCH;
    }
    while (r->meanings[r->at].is_free) { pass(r); }
    const expected *q = &r->requests[r->meanings[r->at].request];
    EBB_ASSERT(q->n == n && q->alloc_at == r->at);
    r->n_recent = 0;
    r->n_astray = 0;
    if (q->detour != EBB_POOL_NOWHERE && is_home_free(r, r->meanings[r->at].request)) {
        ebb__pool_replay_detour(r, r->meanings[r->at].request, q->start);
    }
    const uint64_t detour = q->detour;
    const bool is_sent = detour != EBB_POOL_NOWHERE, meets_stray = is_guarded(r, r->meanings[r->at].request);
    r->lost = NONE;
    if (q->spot != NONE && !is_sent && !meets_stray && (r->n_late == 0 || !touches_late(r, q))) {
        *start_out = q->start;
        follow(r);
        return EBB_POOL_HIT;
    }
    r->n_others++;
    r->lost = r->meanings[r->at].request;
    for (uint32_t k = 0; k < r->n_strays; k++) { /* what seemed to be it was another */
        if (r->strays[k].seems == r->lost) { r->strays[k].seems = NONE; }
    }
    pass(r);
    if (q->spot == NONE) { return EBB_POOL_UNPLANNED; }
    if (is_sent && r->n_strays < EBB_POOL_STRAYS && is_free_there(r, detour, n)) {
        *start_out = detour;
        return EBB_POOL_DETOURED;
    }
    if (is_sent || meets_stray) { return EBB_POOL_DISPLACED; }
    count_mismatch(r);
    return EBB_POOL_MISMATCH;
}

/* After one that was left out, the next one comes. */
static uint32_t guess_request(const ebb_pool_replay *r, uint64_t n) {
    const uint32_t now = r->meanings[r->at].before, next = behind(now, r->n);
    if (r->requests[next].n == n) { return next; }
    return is_alike(r, n) ? now : NONE;
}

ebb_pool_hint ebb__pool_replay_get_hint(const ebb_pool_replay *r, uint64_t n) {
    ebb_pool_hint hint = {.request = r->lost, .next = r->meanings[r->at].before, .age = r->stray_age};
    hint.is_certain = r->lost != NONE;
    if (hint.request == NONE) { hint.request = guess_request(r, n); }
    if (hint.request == NONE) { return hint; }
    const expected *q = &r->requests[hint.request];
    if (!hint.is_certain) { hint.n_skipped = way(hint.next, hint.request, r->n) + 1; }
    hint.age = q->spot != NONE ? hint.n_skipped + q->span - 1 : r->n;
    return hint;
}

uint32_t ebb__pool_replay_time_left(const ebb_pool_replay *r, uint32_t request, uint32_t next) {
    return way(next, r->meanings[r->requests[request].free_at].before, r->n);
}

/* ---- the whole -------------------------------------------------------------------------------- */

static uint64_t start_of(const void *piece) {
    return ((const ebb_pool_piece *)piece)->start;
}

ebb_status ebb__pool_replay_get_live(const ebb_pool_replay *r, ebb_bump *bump, ebb_pool_piece **pieces_out,
                                     size_t *n_out) {
    const uint64_t most = (uint64_t)r->n_spots + r->n_strays;
    ebb_pool_piece *pieces = ebb__bump_alloc(bump, most, sizeof *pieces);
    size_t n = 0;
    if (pieces == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t s = 0; s < r->n_spots; s++) {
        if (r->spots[s].live == NONE) { continue; }
        const expected *q = &r->requests[r->spots[s].live];
        pieces[n++] = (ebb_pool_piece){.start = q->start, .n = q->n, .note = q->note};
    }
    for (uint32_t k = 0; k < r->n_strays; k++) {
        const ebb_pool_stray *s = &r->strays[k];
        pieces[n++] = (ebb_pool_piece){.start = s->start, .n = s->n, .note = s->note};
    }
    EBB_TRY(ebb__sort_items(r->mem, pieces, n, sizeof *pieces, start_of));
    *pieces_out = pieces;
    *n_out = n;
    return EBB_OK;
}

uint64_t ebb__pool_replay_count(const ebb_pool_replay *replay) {
    return count_taken(replay);
}

bool ebb__pool_replay_is_stale(const ebb_pool_replay *replay) {
    return replay->n_excess > ebb_max_u64(MIN_EXCESS, replay->n / 2);
}

/* A request's two events, and what the books say of it (invariants 1 to 3). */
static bool is_request_valid(const ebb_pool_replay *r, uint32_t request) {
    const expected *q = &r->requests[request];
    const meaning alloc = r->meanings[q->alloc_at];
    if (alloc.is_free || alloc.request != request || alloc.before != request) { return false; }
    if (q->spot == NONE) { return q->late_at == NONE && r->events[q->alloc_at].n == EBB_POOL_STOP; }
    const meaning dead = r->meanings[q->free_at];
    const uint32_t age = way(behind(request, r->n), dead.before, r->n);
    if (!dead.is_free || dead.request != request || age >= q->span) { return false; }
    const bool awaited = is_awaited(r, request), lives = is_live(r, request);
    if ((q->late_at != NONE) != (lives && !awaited)) { return false; }
    if (r->events[q->free_at].n != (awaited && !lives ? EBB_POOL_STOP : EBB_POOL_FREE)) { return false; }
    const bool stops = is_guarded(r, request) || q->detour != EBB_POOL_NOWHERE;
    return r->events[q->alloc_at].n == (stops ? EBB_POOL_STOP : q->n) && q->detour != q->start &&
           r->spots[q->spot].start == q->start;
}

/* It overlaps nothing that lives, and its guard stands before all that it touches. */
static bool is_stray_valid(const ebb_pool_replay *r, const ebb_pool_stray *s) {
    for (uint32_t i = 0; i < r->n; i++) {
        if (is_live(r, i) && touches(&r->requests[i], s)) { return false; }
    }
    uint32_t i = r->meanings[r->at].before;
    for (uint32_t k = 0; k < r->n; k++, i = behind(i, r->n)) {
        if (touches(&r->requests[i], s)) { return s->guard == i; }
    }
    return s->guard == NONE;
}

bool ebb__pool_replay_is_valid(const ebb_pool_replay *r) {
    uint64_t live_bytes = 0;
    if (r->at >= r->n_events || r->n_late > r->n_spots || r->n_spots > r->n) { return false; }
    for (uint32_t i = 0; i < r->n; i++) {
        if (!is_request_valid(r, i)) { return false; }
        live_bytes += is_live(r, i) ? r->requests[i].n : 0;
    }
    for (uint32_t k = 0; k < r->n_events; k++) { /* each before the next request */
        const meaning *m = &r->meanings[k];
        if (m->is_free && m->before != r->meanings[behind(k, r->n_events)].before) { return false; }
    }
    for (uint32_t k = 0; k < r->n_late; k++) {
        if (r->requests[r->late[k]].late_at != k) { return false; }
    }
    for (uint32_t k = 0; k < r->n_strays; k++) {
        if (!is_stray_valid(r, &r->strays[k])) { return false; }
        live_bytes += r->strays[k].n;
    }
    return live_bytes == r->live_bytes;
}
