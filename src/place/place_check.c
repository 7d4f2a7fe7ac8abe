/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of placements. It shares no code with the solver, not even the reading of the problem,
 * but for what a message calls an item.
 *
 * What an item holds over a stretch of time is a piece: one for most items, more with gaps or around the end. Time is
 * swept; the live pieces are kept in order of address. As long as they do not overlap, a piece that is born can only
 * collide with its two neighbours in that order. The order is a tree of bits over the pieces' ranks by address, 64
 * children a node: neighbours are found by counting zeros.
 */
#include "base/base.h"
#include "ebb/place.h"
#include "place/item_name.h"

#define N_LEVELS 6u /* 64^6 ranks */
#define NO_RANK UINT64_MAX
#define HALF_BITS 32u
#define DIGIT_BITS 11u
#define N_DIGITS (1u << DIGIT_BITS)

typedef unsigned long long ull;

typedef struct rank_set {
    uint64_t *level[N_LEVELS]; /* a bit of level k + 1 is set when the word of level k is not 0 */
} rank_set;

/* What an item holds over one stretch of time: its bytes [low, low + size). */
typedef struct piece {
    uint64_t start, end; /* in the arena */
    uint64_t first, last;
    size_t item;
} piece;

typedef struct checker {
    const ebb_place_problem *problem;
    const uint64_t *offsets;
    ebb_bump bump;
    piece *pieces;
    uint32_t n_pieces;
    uint32_t *by_start, *by_first, *by_last; /* [n_pieces]: pieces in this order */
    uint32_t *rank;                          /* [n_pieces]: of each piece in by_start */
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
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        const uint64_t before = set->level[k][rank / 64];
        set->level[k][rank / 64] = before | (uint64_t)1 << (rank % 64);
        if (before != 0) { return; }
    }
}

static void remove_rank(rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        set->level[k][rank / 64] &= ~((uint64_t)1 << (rank % 64));
        if (set->level[k][rank / 64] != 0) { return; }
    }
}

/* The words above a rank have a bit for it exactly if it is there. */
static bool has_rank(const rank_set *set, uint64_t rank) {
    const bool is_there = (set->level[0][rank / 64] >> (rank % 64) & 1) != 0;
    for (unsigned k = 1; k < N_LEVELS && is_there; k++) {
        rank /= 64;
        if ((set->level[k][rank / 64] >> (rank % 64) & 1) == 0) { return false; }
    }
    return is_there;
}

static uint64_t rank_before(const rank_set *set, uint64_t rank) {
    for (unsigned k = 0; k < N_LEVELS; k++, rank /= 64) {
        uint64_t lower = set->level[k][rank / 64] & (((uint64_t)1 << (rank % 64)) - 1);
        if (lower == 0) { continue; }
        rank = rank / 64 * 64 + 63 - (uint64_t)__builtin_clzll(lower);
        while (k-- > 0) { rank = rank * 64 + 63 - (uint64_t)__builtin_clzll(set->level[k][rank]); }
        EBB_ASSERT(has_rank(set, rank));
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
        EBB_ASSERT(has_rank(set, rank));
        return rank;
    }
    return NO_RANK;
}

/* ---- sorting ---------------------------------------------------------------------------------- */

/* Words, stable, by these bits; to has room for as many. */
static void sort_by_digit(const uint64_t *from, uint64_t *to, size_t n, unsigned shift) {
    size_t begin[N_DIGITS + 1] = {0};
    for (size_t i = 0; i < n; i++) { begin[(from[i] >> shift) % N_DIGITS + 1]++; }
    for (size_t d = 0; d < N_DIGITS; d++) { begin[d + 1] += begin[d]; }
    for (size_t i = 0; i < n; i++) { to[begin[(from[i] >> shift) % N_DIGITS]++] = from[i]; }
    EBB_ASSERT(begin[N_DIGITS] == n);
}

/* By their upper halves, of which only these bits are not the same in all; where the sorted words are then. */
static uint64_t *sort_words(uint64_t *words, size_t n, uint64_t *spare, uint32_t differing) {
    EBB_ASSERT(differing != 0);
    for (unsigned shift = (unsigned)__builtin_ctz(differing); shift < HALF_BITS; shift += DIGIT_BITS) {
        if ((differing >> shift) % N_DIGITS == 0) { continue; }
        sort_by_digit(words, spare, n, HALF_BITS + shift);
        uint64_t *swap = words;
        words = spare;
        spare = swap;
    }
    return words;
}

static uint64_t key_of(const checker *c, size_t k, size_t member) {
    uint64_t key;
    memcpy(&key, (const char *)&c->pieces[k] + member, sizeof key);
    return key;
}

/* Pieces by one of their members, half of it at a time, beside the piece in one word; there is room for two words a
 * piece. */
static void sort_pieces(const checker *c, size_t member, uint64_t *words, uint32_t *sorted) {
    const size_t n = c->n_pieces;
    uint64_t differing = 0, before = 0;
    bool in_order = true;
    for (size_t k = 0; k < n; k++) {
        const uint64_t key = key_of(c, k, member);
        differing |= key ^ key_of(c, 0, member);
        in_order = in_order && before <= key;
        before = key;
        sorted[k] = (uint32_t)k;
    }
    for (unsigned half = 0; half < 2 * HALF_BITS && !in_order; half += HALF_BITS) {
        const uint32_t differs_here = (uint32_t)(differing >> half);
        if (differs_here == 0) { continue; }
        for (size_t k = 0; k < n; k++) { words[k] = key_of(c, sorted[k], member) >> half << HALF_BITS | sorted[k]; }
        const uint64_t *done = sort_words(words, n, words + n, differs_here);
        for (size_t k = 0; k < n; k++) { sorted[k] = (uint32_t)done[k]; }
    }
}

/* ---- the problem ------------------------------------------------------------------------------ */

/* Whether the item's bytes and offset obey what is said of it alone. */
static ebb_status check_offset(const checker *c, size_t i) {
    const ebb_place_problem *p = c->problem;
    const uint64_t offset = c->offsets[i], own = p->alignments != NULL ? p->alignments[i] : 1;
    if (own == 0) { return ebb_fail(EBB_E_ARGUMENT, "item %s: an alignment of 0", ebb__item_name(p, i).text); }
    if (offset % p->alignment_bytes != 0 || offset % own != 0) {
        return ebb_fail(EBB_E_INVALID_PLAN, "item %s: offset %llu is not aligned to %llu", ebb__item_name(p, i).text,
                        (ull)offset, (ull)(offset % own != 0 ? own : p->alignment_bytes));
    }
    if (p->fixed != NULL && p->fixed[i] != EBB_PLACE_ANYWHERE && p->fixed[i] != offset) {
        return ebb_fail(EBB_E_INVALID_PLAN, "item %s: offset %llu, but it is fixed at %llu", ebb__item_name(p, i).text,
                        (ull)offset, (ull)p->fixed[i]);
    }
    const uint64_t waste = p->alignment_bytes - 1, size_bytes = p->items[i].size_bytes;
    if (size_bytes > UINT64_MAX - waste || ((size_bytes + waste) & ~waste) > UINT64_MAX - offset) {
        return ebb_fail(EBB_E_INVALID_PLAN, "item %s: %llu bytes at offset %llu end beyond 64 bits",
                        ebb__item_name(p, i).text, (ull)size_bytes, (ull)offset);
    }
    return EBB_OK;
}

static ebb_status check_item(const checker *c, size_t i) {
    const ebb_place_item *item = &c->problem->items[i];
    const uint64_t period = c->problem->period;
    if (period == 0 ? item->first >= item->last : item->first > period || item->last > period) {
        return ebb_fail(EBB_E_ARGUMENT, "item %s: its times [%llu, %llu) are none", ebb__item_name(c->problem, i).text,
                        (ull)item->first, (ull)item->last);
    }
    return check_offset(c, i);
}

static ebb_status check_gap(const checker *c, size_t g, uint64_t from) {
    const ebb_place_gap *gap = &c->problem->gaps[g];
    const ebb_place_item *item = &c->problem->items[gap->item];
    if (gap->first < from || gap->first >= gap->last || gap->last > item->last || item->first >= item->last) {
        return ebb_fail(EBB_E_ARGUMENT, "gap %zu of item %s: its times [%llu, %llu) are not within [%llu, %llu)", g,
                        ebb__item_name(c->problem, gap->item).text, (ull)gap->first, (ull)gap->last, (ull)from,
                        (ull)item->last);
    }
    if (gap->low_bytes > gap->high_bytes || gap->high_bytes > item->size_bytes) {
        return ebb_fail(EBB_E_ARGUMENT, "gap %zu of item %s: its bytes [%llu, %llu) are not the item's", g,
                        ebb__item_name(c->problem, gap->item).text, (ull)gap->low_bytes, (ull)gap->high_bytes);
    }
    return EBB_OK;
}

/* Bytes [low, high) of an item at times [first, last). Pieces begin at multiples of the alignment, so an end that is
 * not rounded up overlaps with the same pieces. */
static void add_piece(checker *c, size_t item, ebb_place_gap held) {
    const uint64_t waste = c->problem->alignment_bytes - 1, offset = c->offsets[item];
    if (held.low_bytes == held.high_bytes) { return; }
    EBB_ASSERT(held.low_bytes < held.high_bytes && held.first < held.last);
    c->pieces[c->n_pieces++] = (piece){.start = offset + (held.low_bytes & ~waste),
                                       .end = offset + held.high_bytes,
                                       .first = held.first,
                                       .last = held.last,
                                       .item = item};
}

/* An item around the end is two pieces, [first, period) and [0, last). */
static void add_around(checker *c, size_t i) {
    const ebb_place_item *item = &c->problem->items[i];
    const uint64_t period = c->problem->period;
    EBB_ASSERT(period > 0 && item->first >= item->last);
    if (item->first < period) { add_piece(c, i, (ebb_place_gap){i, item->first, period, 0, item->size_bytes}); }
    if (item->last > 0) { add_piece(c, i, (ebb_place_gap){i, 0, item->last, 0, item->size_bytes}); }
    if (item->first == period && item->last == 0) { /* the whole circle */
        add_piece(c, i, (ebb_place_gap){i, 0, period, 0, item->size_bytes});
    }
}

static ebb_status make_pieces(checker *c) {
    const ebb_place_problem *p = c->problem;
    size_t g = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        EBB_TRY(check_item(c, i));
        uint64_t time = p->items[i].first;
        const uint64_t last = p->items[i].last, size_bytes = p->items[i].size_bytes;
        if (time >= last) { add_around(c, i); }
        for (; g < p->n_gaps && p->gaps[g].item == i; g++) {
            EBB_TRY(check_gap(c, g, time));
            if (time < p->gaps[g].first) { add_piece(c, i, (ebb_place_gap){i, time, p->gaps[g].first, 0, size_bytes}); }
            add_piece(c, i, p->gaps[g]);
            time = p->gaps[g].last;
        }
        if (time < last) { add_piece(c, i, (ebb_place_gap){i, time, last, 0, size_bytes}); }
    }
    if (g == p->n_gaps) { return EBB_OK; }
    return ebb_fail(EBB_E_ARGUMENT, "gap %zu: item %s is not after the one before it", g,
                    ebb__item_name(p, p->gaps[g].item).text);
}

/* ---- the check -------------------------------------------------------------------------------- */

static ebb_status order_pieces(checker *c) {
    const uint32_t n = c->n_pieces;
    uint32_t *orders = ebb__bump_alloc(&c->bump, n, 4 * sizeof *orders);
    if (orders == NULL) { return EBB_E_NO_MEMORY; }
    c->by_start = orders;
    c->by_first = orders + n;
    c->by_last = orders + 2 * (size_t)n;
    c->rank = orders + 3 * (size_t)n;
    uint64_t *words = ebb__alloc(c->bump.mem, n, 2 * sizeof *words);
    if (words == NULL) { return EBB_E_NO_MEMORY; }
    sort_pieces(c, offsetof(piece, start), words, c->by_start);
    sort_pieces(c, offsetof(piece, first), words, c->by_first);
    sort_pieces(c, offsetof(piece, last), words, c->by_last);
    ebb__free(c->bump.mem, words); /* there are many */
    for (uint32_t r = 0; r < n; r++) {
        EBB_ASSERT(r == 0 || c->pieces[c->by_start[r - 1]].start <= c->pieces[c->by_start[r]].start);
        c->rank[c->by_start[r]] = r;
    }
    return init_ranks(&c->live, &c->bump, n);
}

static ebb_status check_neighbour(const checker *c, uint64_t lower_rank, uint64_t upper_rank, uint64_t time) {
    if (lower_rank == NO_RANK || upper_rank == NO_RANK) { return EBB_OK; }
    EBB_ASSERT(lower_rank < upper_rank && upper_rank < c->n_pieces);
    const piece *lower = &c->pieces[c->by_start[lower_rank]], *upper = &c->pieces[c->by_start[upper_rank]];
    if (lower->end <= upper->start) { return EBB_OK; }
    return ebb_fail(EBB_E_INVALID_PLAN, "items %s and %s overlap at time %llu: bytes [%llu, %llu) and [%llu, %llu)",
                    ebb__item_name(c->problem, lower->item).text, ebb__item_name(c->problem, upper->item).text,
                    (ull)time, (ull)lower->start, (ull)lower->end, (ull)upper->start, (ull)upper->end);
}

/* At one time, deaths come first. */
static ebb_status sweep(checker *c) {
    for (uint32_t birth = 0, death = 0; birth < c->n_pieces; birth++) {
        const uint32_t born = c->by_first[birth];
        const uint64_t time = c->pieces[born].first, rank = c->rank[born];
        for (; death < c->n_pieces && c->pieces[c->by_last[death]].last <= time; death++) {
            EBB_ASSERT(has_rank(&c->live, c->rank[c->by_last[death]]));
            remove_rank(&c->live, c->rank[c->by_last[death]]);
        }
        EBB_ASSERT(!has_rank(&c->live, rank));
        EBB_TRY(check_neighbour(c, rank_before(&c->live, rank), rank, time));
        EBB_TRY(check_neighbour(c, rank, rank_behind(&c->live, rank), time));
        insert_rank(&c->live, rank);
    }
    return EBB_OK;
}

static ebb_status check(checker *c) {
    const ebb_place_problem *p = c->problem;
    const uint64_t align = p->alignment_bytes;
    if (p->size_bytes != sizeof *p) { return ebb_fail(EBB_E_ARGUMENT, "a problem of another version"); }
    if (align == 0 || (align & (align - 1)) != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "an alignment of %llu bytes is not a power of two", (ull)align);
    }
    if (p->n_items > UINT32_MAX / 4 || p->n_gaps > UINT32_MAX / 8) {
        return ebb_fail(EBB_E_LIMIT, "%zu items and %zu gaps are too many to be checked", p->n_items, p->n_gaps);
    }
    if ((p->n_items > 0 && p->items == NULL) || (p->n_gaps > 0 && p->gaps == NULL)) {
        return ebb_fail(EBB_E_ARGUMENT, "%zu items and %zu gaps, but items or gaps is NULL", p->n_items, p->n_gaps);
    }
    const size_t max_pieces = (p->period != 0 ? 2 : 1) * p->n_items + 2 * p->n_gaps;
    c->pieces = ebb__bump_alloc(&c->bump, max_pieces, sizeof *c->pieces);
    if (c->pieces == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(make_pieces(c));
    EBB_ASSERT(c->n_pieces <= max_pieces);
    EBB_TRY(order_pieces(c));
    return sweep(c);
}

ebb_status ebb_place_check(const ebb_place_problem *problem, const ebb_mem *mem, const uint64_t *offsets,
                           uint64_t *peak_bytes_out) {
    EBB_NEED(problem);
    EBB_NEED_ARRAY(offsets, problem->n_items);
    checker c = {.problem = problem, .offsets = offsets};
    ebb__bump_init(&c.bump, mem);
    ebb_status st = check(&c);
    if (st == EBB_OK && peak_bytes_out != NULL) {
        uint64_t peak_bytes = 0;
        for (size_t k = 0; k < c.n_pieces; k++) { peak_bytes = ebb_max_u64(peak_bytes, c.pieces[k].end); }
        *peak_bytes_out = peak_bytes;
    }
    ebb__bump_fini(&c.bump);
    return st;
}
