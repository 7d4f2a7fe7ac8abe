/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of placements. It shares no code with the solver, not even the reading of the problem.
 *
 * Time is swept; the live items are kept in order of offset. As long as they do not overlap, an item that
 * is born can only collide with its two neighbours in that order. The order is a tree of bits over the items'
 * ranks by offset, 64 children a node: neighbours are found by counting zeros.
 */
#include "base/base.h"
#include "ebb/place.h"

#define N_LEVELS 6u /* 64^6 ranks */
#define NO_RANK UINT64_MAX

typedef struct pair {
    uint64_t key;
    uint64_t value;
} pair;

typedef struct rank_set {
    uint64_t *level[N_LEVELS]; /* a bit of level k + 1 is set when the word of level k is not 0 */
} rank_set;

typedef struct checker {
    const ebb_place_problem *problem;
    const uint64_t *offsets;
    ebb_bump bump;
    pair *by_offset; /* [n_items]: value is the item of this rank */
    uint64_t *rank;  /* [n_items] */
    pair *events;    /* value: rank * 2, + 1 for a birth */
    pair *spare;     /* as long as events */
    size_t n_events;
    rank_set live;
} checker;

/* ---- a set of ranks --------------------------------------------------------------------------- */

static ebb_status init_ranks(rank_set *set, ebb_bump *bump, size_t n) {
    for (unsigned k = 0; k < N_LEVELS; k++) {
        n = n / 64 + 1;
        set->level[k] = ebb__bump_alloc(bump, n, sizeof(uint64_t));
        if (set->level[k] == NULL) { return EBB_E_NO_MEMORY; }
        memset(set->level[k], 0, n * sizeof(uint64_t));
    }
    return EBB_OK;
}

static void insert_rank(rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) { set->level[k][rank / 64] |= (uint64_t)1 << (rank % 64); }
}

static void remove_rank(rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        set->level[k][rank / 64] &= ~((uint64_t)1 << (rank % 64));
        if (set->level[k][rank / 64] != 0) { return; }
    }
}

static uint64_t rank_before(const rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        uint64_t lower = set->level[k][rank / 64] & (((uint64_t)1 << (rank % 64)) - 1);
        if (lower == 0) { continue; }
        rank = rank / 64 * 64 + 63 - (uint64_t)__builtin_clzll(lower);
        while (k-- > 0) { rank = rank * 64 + 63 - (uint64_t)__builtin_clzll(set->level[k][rank]); }
        return rank;
    }
    return NO_RANK;
}

static uint64_t rank_behind(const rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        uint64_t higher = rank % 64 == 63 ? 0 : set->level[k][rank / 64] & (UINT64_MAX << (rank % 64 + 1));
        if (higher == 0) { continue; }
        rank = rank / 64 * 64 + (uint64_t)__builtin_ctzll(higher);
        while (k-- > 0) { rank = rank * 64 + (uint64_t)__builtin_ctzll(set->level[k][rank]); }
        return rank;
    }
    return NO_RANK;
}

/* ---- sorting ---------------------------------------------------------------------------------- */

static void merge_runs(const pair *from, size_t n_a, size_t n, pair *to) {
    size_t a = 0, b = n_a;
    for (size_t i = 0; i < n; i++) {
        bool take_a = b == n || (a < n_a && from[a].key <= from[b].key);
        to[i] = take_a ? from[a++] : from[b++];
    }
}

/* By key, stable: runs of 1, 2, 4, ... are merged. */
static void sort_pairs(pair *pairs, size_t n, pair *spare) {
    pair *from = pairs, *to = spare;
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t i = 0; i < n; i += 2 * run) {
            size_t n_left = n - i;
            merge_runs(from + i, n_left < run ? n_left : run, n_left < 2 * run ? n_left : 2 * run, to + i);
        }
        pair *swap = from;
        from = to;
        to = swap;
    }
    if (from != pairs) { memcpy(pairs, from, n * sizeof *pairs); }
}

/* ---- the check -------------------------------------------------------------------------------- */

static uint64_t end_of(const checker *c, uint64_t item) {
    const uint64_t mask = c->problem->alignment_bytes - 1;
    return c->offsets[item] + ((c->problem->items[item].size_bytes + mask) & ~mask);
}

static ebb_status check_item(const checker *c, size_t i) {
    const ebb_place_item *item = &c->problem->items[i];
    const uint64_t align = c->problem->alignment_bytes, period = c->problem->period;
    if (period == 0 ? item->first >= item->last : item->first > period || item->last > period) {
        return ebb_fail(EBB_E_ARGUMENT, "item %zu: its times [%llu, %llu) are none", i, (unsigned long long)item->first,
                        (unsigned long long)item->last);
    }
    if (c->offsets[i] % align != 0) {
        return ebb_fail(EBB_E_INVALID_PLAN, "item %zu: offset %llu is not aligned to %llu", i,
                        (unsigned long long)c->offsets[i], (unsigned long long)align);
    }
    if (item->size_bytes > UINT64_MAX - (align - 1) || end_of(c, i) < c->offsets[i]) {
        return ebb_fail(EBB_E_INVALID_PLAN, "item %zu: %llu bytes at offset %llu end beyond 64 bits", i,
                        (unsigned long long)item->size_bytes, (unsigned long long)c->offsets[i]);
    }
    return EBB_OK;
}

static void rank_items(checker *c) {
    const size_t n = c->problem->n_items;
    for (size_t i = 0; i < n; i++) { c->by_offset[i] = (pair){c->offsets[i], i}; }
    sort_pairs(c->by_offset, n, c->spare);
    for (size_t r = 0; r < n; r++) { c->rank[c->by_offset[r].value] = r; }
}

/* Births or deaths of all items; an item around the end is two pieces, [first, period) and [0, last). */
static void push_events(checker *c, bool births) {
    const uint64_t period = c->problem->period;
    for (size_t i = 0; i < c->problem->n_items; i++) {
        const ebb_place_item *item = &c->problem->items[i];
        if (item->size_bytes == 0) { continue; }
        const uint64_t first = period > 0 ? item->first % period : item->first;
        const uint64_t last = period > 0 ? item->last % period : item->last;
        const uint64_t value = c->rank[i] * 2 + (births ? 1 : 0);
        const bool wraps = first >= last;
        c->events[c->n_events++] = (pair){births ? first : wraps ? period : last, value};
        if (wraps && last > 0) { c->events[c->n_events++] = (pair){births ? 0 : last, value}; }
    }
}

static ebb_status check_neighbour(const checker *c, uint64_t lower_rank, uint64_t upper_rank, uint64_t time) {
    if (lower_rank == NO_RANK || upper_rank == NO_RANK) { return EBB_OK; }
    const uint64_t lower = c->by_offset[lower_rank].value, upper = c->by_offset[upper_rank].value;
    if (end_of(c, lower) <= c->offsets[upper]) { return EBB_OK; }
    return ebb_fail(EBB_E_INVALID_PLAN, "items %llu and %llu overlap at time %llu: bytes [%llu, %llu) and [%llu, %llu)",
                    (unsigned long long)lower, (unsigned long long)upper, (unsigned long long)time,
                    (unsigned long long)c->offsets[lower], (unsigned long long)end_of(c, lower),
                    (unsigned long long)c->offsets[upper], (unsigned long long)end_of(c, upper));
}

static ebb_status sweep(checker *c) {
    for (size_t e = 0; e < c->n_events; e++) {
        const uint64_t rank = c->events[e].value / 2, time = c->events[e].key;
        if (c->events[e].value % 2 == 0) {
            remove_rank(&c->live, rank);
            continue;
        }
        EBB_TRY(check_neighbour(c, rank_before(&c->live, rank), rank, time));
        EBB_TRY(check_neighbour(c, rank, rank_behind(&c->live, rank), time));
        insert_rank(&c->live, rank);
    }
    return EBB_OK;
}

static ebb_status check(checker *c) {
    const size_t n = c->problem->n_items;
    const uint64_t align = c->problem->alignment_bytes;
    if (align == 0 || (align & (align - 1)) != 0) { return ebb_fail(EBB_E_ARGUMENT, "a bad alignment"); }
    for (size_t i = 0; i < n; i++) { EBB_TRY(check_item(c, i)); }
    c->by_offset = ebb__bump_alloc(&c->bump, n, sizeof *c->by_offset);
    c->rank = ebb__bump_alloc(&c->bump, n, sizeof *c->rank);
    c->events = ebb__bump_alloc(&c->bump, n, 4 * sizeof *c->events);
    c->spare = ebb__bump_alloc(&c->bump, n, 4 * sizeof *c->spare);
    if (c->by_offset == NULL || c->rank == NULL || c->events == NULL || c->spare == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(init_ranks(&c->live, &c->bump, n));
    rank_items(c);
    push_events(c, false); /* at one time, deaths come first */
    push_events(c, true);
    sort_pairs(c->events, c->n_events, c->spare);
    return sweep(c);
}

ebb_status ebb_place_check(const ebb_place_problem *problem, const ebb_mem *mem, const uint64_t *offsets,
                           uint64_t *peak_bytes_out) {
    checker c = {.problem = problem, .offsets = offsets};
    ebb__bump_init(&c.bump, mem);
    ebb_status st = check(&c);
    if (st == EBB_OK && peak_bytes_out != NULL) {
        uint64_t peak_bytes = 0;
        for (size_t i = 0; i < problem->n_items; i++) {
            if (problem->items[i].size_bytes > 0) { peak_bytes = ebb_max_u64(peak_bytes, end_of(&c, i)); }
        }
        *peak_bytes_out = peak_bytes;
    }
    ebb__bump_fini(&c.bump);
    return st;
}
