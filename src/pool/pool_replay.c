/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of an iteration, followed request by request.
 *
 * A cursor stands at the request that is expected. The placement is sound as long as whatever lives is what the plan
 * has living there; it does not matter whether more has been freed, or in which order. So one thing alone has to be
 * watched: blocks that the plan has dead at the cursor and that still live, the late ones. Whenever the cursor moves
 * on, the requests that die there are looked at (each once an iteration, so O(1) a request), and those that still live
 * are put on the list of the late. A request whose place touches no late block gets it:
 *
 *      live now = (a part of what the plan has living at the cursor) + late
 *      the place of the request at the cursor is disjoint from the first by the placement, from the second by looking
 *
 * When a request has another size than the expected one, it is first taken for one too many. If the next does not fit
 * either, the two sizes are looked for together, a few requests ahead: then some were left out, or one had another
 * size. When that fails too, the last EBB_POOL_GRAM sizes are looked up in a table of all places of the iteration that
 * they tell. Moving to a place behind or far ahead makes the list of the late anew, O(requests).
 *
 * A block that is freed is found by its start: a table of the plan's distinct starts, made once, has a slot for each,
 * which says what lives there. No two requests with one start live at a time.
 *
 * Most requests come as expected while nothing is late; they, and frees, are answered by the few lines of
 * pool_priv.h, the rest here.
 */
#include "pool/pool_priv.h"

#define MAX_AHEAD 64u /* requests that may have been left out at once without the table */
#define WINDOW_ITERATIONS 4u
#define MIN_WINDOW 1024u
#define AMBIGUOUS (EBB_POOL_NONE - 1)
#define NONE EBB_POOL_NONE

typedef struct ebb_pool_gram {
    uint64_t hash;
    uint32_t at; /* the request behind the sizes; NONE: empty; or AMBIGUOUS */
} gram_entry;

typedef ebb_pool_slot slot;
typedef ebb_pool_expected planned;

/* ---- tables ----------------------------------------------------------------------------------- */

static size_t table_size(size_t n) {
    size_t size = 16;
    while (size < 4 * n) { size *= 2; }
    return size;
}

static uint64_t add_to_hash(uint64_t hash, uint64_t n) {
    hash = (hash ^ n) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static gram_entry *find_gram(const ebb_pool_replay *r, uint64_t hash) {
    size_t i = (size_t)(hash & r->mask);
    while (r->grams[i].at != NONE && r->grams[i].hash != hash) { i = (i + 1) & r->mask; }
    return &r->grams[i];
}

static uint32_t next_of(const ebb_pool_replay *r, uint32_t at) {
    return at + 1 < r->n ? at + 1 : 0;
}

static void fill_grams(ebb_pool_replay *r) {
    for (size_t i = 0; i <= r->mask; i++) { r->grams[i].at = NONE; }
    for (uint32_t i = 0; i < r->n; i++) {
        uint64_t hash = 0;
        uint32_t at = i;
        for (unsigned k = 0; k < EBB_POOL_GRAM; k++, at = next_of(r, at)) {
            hash = add_to_hash(hash, r->requests[at].n);
        }
        gram_entry *e = find_gram(r, hash);
        *e = (gram_entry){hash, e->at == NONE ? at : AMBIGUOUS};
    }
}

/* ---- making ----------------------------------------------------------------------------------- */

static bool is_planned(const ebb_pool_planned *p, size_t n) {
    return p->span > 0 && p->span <= n;
}

static void copy_requests(ebb_pool_replay *r, const ebb_pool_planned *requests) {
    for (uint32_t i = 0; i < r->n; i++) { r->requests[i] = (planned){.n = requests[i].n, .slot = NONE}; }
    for (uint32_t i = 0; i < r->n; i++) {
        const ebb_pool_planned *p = &requests[i];
        if (!is_planned(p, r->n)) { continue; }
        slot *e = ebb__pool_replay_slot(r, p->start);
        r->n_slots += e->start == EBB_POOL_NOWHERE ? 1 : 0;
        e->start = p->start;
        r->requests[i].start = p->start;
        r->requests[i].slot = (uint32_t)(e - r->slots);
        r->requests[i].death = (uint32_t)((i + p->span) % r->n);
        r->requests[r->requests[i].death].n_deaths++;
    }
}

static void sort_deaths(ebb_pool_replay *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++) {
        r->requests[i].first_death = n;
        n += r->requests[i].n_deaths;
        r->requests[i].n_deaths = 0;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (r->requests[i].slot == NONE) { continue; }
        planned *last = &r->requests[r->requests[i].death];
        r->deaths[last->first_death + last->n_deaths++] = (ebb_pool_death){i, r->requests[i].slot};
    }
}

static ebb_status fill(ebb_pool_replay *r, const ebb_pool_planned *requests) {
    const size_t size = table_size(r->n);
    r->requests = ebb__bump_alloc(&r->bump, r->n, sizeof *r->requests);
    r->deaths = ebb__bump_alloc(&r->bump, r->n, sizeof *r->deaths);
    r->slots = ebb__bump_alloc(&r->bump, size, sizeof *r->slots);
    r->grams = ebb__bump_alloc(&r->bump, size, sizeof *r->grams);
    if (r->requests == NULL || r->deaths == NULL || r->slots == NULL || r->grams == NULL) { return EBB_E_NO_MEMORY; }
    r->mask = size - 1;
    r->shift = 64 - (unsigned)__builtin_ctzll(size);
    for (size_t i = 0; i < size; i++) { r->slots[i] = (slot){.start = EBB_POOL_NOWHERE, .live = NONE}; }
    copy_requests(r, requests);
    sort_deaths(r);
    fill_grams(r);
    return EBB_OK;
}

ebb_status ebb__pool_replay_create(const ebb_mem *mem, const ebb_pool_planned *requests, size_t n,
                                   ebb_pool_replay **replay_out) {
    EBB_ASSERT(n > 0 && n < AMBIGUOUS / 2);
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
    EBB_ASSERT(ebb__pool_replay_is_valid(r));
    *replay_out = r;
    return EBB_OK;
}

void ebb__pool_replay_destroy(ebb_pool_replay *replay) {
    if (replay == NULL) { return; }
    ebb__bump_fini(&replay->bump);
    ebb__free(replay->mem, replay);
}

/* ---- the late --------------------------------------------------------------------------------- */

static bool is_live(const ebb_pool_replay *r, uint32_t request) {
    return r->requests[request].slot != NONE && r->slots[r->requests[request].slot].live == request;
}

static void add_late(ebb_pool_replay *r, uint32_t request) {
    for (uint32_t k = 0; k < r->n_late; k++) {
        if (r->late[k] == request) { return; }
    }
    if (r->n_late == EBB_POOL_MAX_LATE) {
        r->is_overdue = true;
        return;
    }
    r->late[r->n_late++] = request;
}

/* What dies before the request at the cursor. */
static void settle(ebb_pool_replay *r) {
    const planned *q = &r->requests[r->cursor];
    for (uint32_t k = 0; k < q->n_deaths; k++) {
        const uint32_t dead = r->deaths[q->first_death + k].request;
        if (is_live(r, dead)) { add_late(r, dead); }
    }
}

static bool lives_at_cursor(const ebb_pool_replay *r, uint32_t request) {
    const uint32_t born = next_of(r, request), death = r->requests[request].death;
    /* Living at [request + 1, death] of the circle: at the cursor it is dead where it dies before or at it. */
    const uint32_t age = (r->cursor + r->n - born) % r->n, life = (death + r->n - born) % r->n;
    return age < life;
}

static void find_late(ebb_pool_replay *r) {
    r->n_late = 0;
    r->is_overdue = false;
    for (size_t s = 0; s <= r->mask; s++) {
        if (r->slots[s].live != NONE && !lives_at_cursor(r, r->slots[s].live)) { add_late(r, r->slots[s].live); }
    }
}

void ebb__pool_replay_forget_late(ebb_pool_replay *r, uint32_t request) {
    for (uint32_t k = 0; k < r->n_late; k++) {
        if (r->late[k] != request) { continue; }
        r->late[k] = r->late[--r->n_late];
        if (r->is_overdue) { find_late(r); }
        return;
    }
}

static bool touches_late(const ebb_pool_replay *r, const planned *q) {
    for (uint32_t k = 0; k < r->n_late; k++) {
        const planned *l = &r->requests[r->late[k]];
        if (q->start < l->start + l->n && l->start < q->start + q->n) { return true; }
    }
    return r->is_overdue;
}

/* ---- the cursor ------------------------------------------------------------------------------- */

static void advance(ebb_pool_replay *r) {
    if (++r->cursor == r->n) { r->cursor = 0; }
}

static void count_mismatch(ebb_pool_replay *r) {
    const uint64_t n_taken = r->n_hits + r->n_others;
    if (n_taken >= r->window_end) {
        r->window_end = n_taken + ebb_max_u64(WINDOW_ITERATIONS * (uint64_t)r->n, MIN_WINDOW);
        r->n_missed = 0;
    }
    r->n_missed++;
    r->n_worst = ebb_max_u64(r->n_worst, r->n_missed);
}

/* Over requests that do not come. */
static void skip_to(ebb_pool_replay *r, uint32_t at) {
    while (r->cursor != at) {
        settle(r);
        advance(r);
    }
}

static void remember(ebb_pool_replay *r, uint64_t n) {
    if (r->n_recent == EBB_POOL_GRAM) { memmove(r->recent, r->recent + 1, (EBB_POOL_GRAM - 1) * sizeof *r->recent); }
    if (r->n_recent < EBB_POOL_GRAM) { r->n_recent++; }
    r->recent[r->n_recent - 1] = n;
}

/* The request that this one is, if the one before did not fit either: the nearest ahead that has its size behind one
 * of the size before; or the one behind the cursor, if the one before was of another size than planned. */
static uint32_t look_ahead(const ebb_pool_replay *r, uint64_t before, uint64_t n) {
    uint32_t at = r->cursor;
    for (uint32_t k = 0; k < MAX_AHEAD && k < r->n; k++) {
        const uint32_t next = next_of(r, at);
        if (r->requests[next].n == n && (k == 0 || r->requests[at].n == before)) { return next; }
        at = next;
    }
    return NONE;
}

static uint32_t look_up(const ebb_pool_replay *r) {
    uint64_t hash = 0;
    for (unsigned k = 0; k < EBB_POOL_GRAM; k++) { hash = add_to_hash(hash, r->recent[k]); }
    const uint32_t behind = find_gram(r, hash)->at;
    if (behind == NONE || behind == AMBIGUOUS) { return NONE; }
    return behind > 0 ? behind - 1 : r->n - 1;
}

/* Move the cursor to the request that this is, when it is not the expected one; whether one was found. */
static bool find_place(ebb_pool_replay *r, uint64_t n) {
    count_mismatch(r);
    remember(r, n);
    if (r->n_recent < 2) { return false; }
    uint32_t at = look_ahead(r, r->recent[r->n_recent - 2], n);
    if (at != NONE) {
        skip_to(r, at);
        return true;
    }
    if (r->n_recent < EBB_POOL_GRAM) { return false; }
    at = look_up(r);
    if (at == NONE) { return false; }
    r->cursor = at;
    find_late(r);
    return true;
}

/* ---- the whole -------------------------------------------------------------------------------- */

ebb_pool_answer ebb__pool_replay_search(ebb_pool_replay *r, uint64_t n, uint64_t *start_out) {
    r->n_others++;
    if (r->requests[r->cursor].n != n && !find_place(r, n)) { return EBB_POOL_MISMATCH; }
    settle(r);
    const uint32_t at = r->cursor;
    const planned *q = &r->requests[at];
    EBB_ASSERT(q->n == n);
    r->n_recent = 0;
    advance(r);
    if (q->slot == NONE) { return EBB_POOL_UNPLANNED; }
    if (r->n_late > 0 && touches_late(r, q)) {
        count_mismatch(r);
        return EBB_POOL_MISMATCH;
    }
    EBB_ASSERT(r->slots[q->slot].live == NONE);
    r->slots[q->slot].live = at;
    *start_out = q->start;
    r->n_others--;
    r->n_hits++;
    return EBB_POOL_HIT;
}

ebb_status ebb__pool_replay_get_live(const ebb_pool_replay *r, ebb_bump *bump, ebb_pool_piece **pieces_out,
                                     size_t *n_out) {
    ebb_pool_piece *pieces = ebb__bump_alloc(bump, r->n_slots, sizeof *pieces);
    uint64_t *start = ebb__bump_alloc(bump, r->n_slots, sizeof *start);
    uint32_t *idx = ebb__bump_alloc(bump, r->n_slots, sizeof *idx);
    uint32_t *request = ebb__bump_alloc(bump, r->n_slots, sizeof *request);
    if (pieces == NULL || start == NULL || idx == NULL || request == NULL) { return EBB_E_NO_MEMORY; }
    uint32_t n = 0;
    for (size_t s = 0; s <= r->mask; s++) {
        if (r->slots[s].live == NONE) { continue; }
        start[n] = r->slots[s].start;
        request[n] = r->slots[s].live;
        idx[n] = n;
        n++;
    }
    EBB_TRY(ebb__sort_by_key(r->mem, idx, n, start));
    for (uint32_t k = 0; k < n; k++) { pieces[k] = (ebb_pool_piece){start[idx[k]], r->requests[request[idx[k]]].n}; }
    *pieces_out = pieces;
    *n_out = n;
    return EBB_OK;
}

bool ebb__pool_replay_is_stale(const ebb_pool_replay *replay, uint64_t patience) {
    return replay->n_worst >= patience;
}

bool ebb__pool_replay_is_valid(const ebb_pool_replay *r) {
    if (r->cursor >= r->n || r->n_late > EBB_POOL_MAX_LATE || r->n_slots > r->n) { return false; }
    for (uint32_t i = 0; i < r->n; i++) {
        const planned *q = &r->requests[i];
        if (q->slot != NONE && r->slots[q->slot].start != q->start) { return false; }
        for (uint32_t k = 0; k < q->n_deaths; k++) {
            if (r->requests[r->deaths[q->first_death + k].request].death != i) { return false; }
        }
    }
    for (size_t s = 0; s <= r->mask; s++) {
        if (r->slots[s].live != NONE && r->requests[r->slots[s].live].slot != s) { return false; }
    }
    for (uint32_t k = 0; k < r->n_late; k++) {
        if (!is_live(r, r->late[k])) { return false; }
    }
    return true;
}
