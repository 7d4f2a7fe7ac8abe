/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement in one sweep through time: what dies leaves a gap, what is born goes into the lowest gap that holds it,
 * as an allocator would do it that knows each item's end. O(n log n) whatever the items.
 *
 * The circle is cut at a section. What lives around the cut is there at the beginning, goes, and comes back to
 * where it was; no other item may lie there then. These items are stacked at the bottom by the time at which they
 * come back, earliest lowest:
 *
 *        |                                        |     so an item that dies at the time d may lie anywhere above
 *        |    +-------------------------+         |     those that come back before d, and finding its gap is one
 *      c |####|     free for a while    |#########|     question: the lowest from that address on. Where lifetimes
 *        |    +--+---------------+------+         |     nest, as weights' that leave between the forward and the
 *      b |#######|               |################|     backward pass, what goes first lies highest, and its place
 *        |       +----+     +----+                |     joins the room above.
 *      a |############|     |#####################|
 *        +----------------------------------------+
 *       cut          time                        cut
 *
 * A sweep may as well go backward through time. Gaps are kept in a tree ordered by address, each node with the
 * largest gap below it, balanced by random priorities (Seidel and Aragon, 'Randomized search trees', Algorithmica 16,
 * 1996), which here are a hash of a count, so that all is deterministic.
 *
 * Invariants
 *  1. No two gaps touch. The last one has no end.
 *  2. What returns finds its place free: items lie above all that return before they die.
 */
#include "place/place_priv.h"

#define NO_GAP 0u
#define NOWHERE UINT64_MAX
#define VISITS_A_LOOK 4u /* visiting this many gaps takes about as long as a look in the measure of taken.c */
#define SORT_WORK 4u     /* an item, in the same measure */

typedef struct gap {
    uint64_t start, end;
    uint64_t largest_bytes; /* of the gaps below and this */
    uint32_t left, right, priority;
} gap;

typedef struct sweep {
    const ebb_sections *sections;
    const ebb_place_sweep_options *options;
    gap *gaps; /* 0 means none */
    uint32_t root, unused, n_made;
    uint32_t *first, *last; /* [n_items]: in the sweep's time; last <= first: around the cut */
    uint32_t *birth, *death, *around;
    size_t n_births, n_deaths, n_around;
    size_t next_death, next_return; /* of death, of around */
    uint64_t *offsets, *key;
    uint64_t visits;
} sweep;

/* ---- gaps ------------------------------------------------------------------------------------- */

/* A number that looks random; no two of 32 bits give the same. */
static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static uint32_t make_gap(sweep *s, uint64_t start, uint64_t end) {
    uint32_t t = s->unused;
    EBB_ASSERT(start < end);
    if (t != NO_GAP) {
        s->unused = s->gaps[t].left;
    } else {
        t = ++s->n_made;
    }
    s->gaps[t] = (gap){.start = start, .end = end, .largest_bytes = end - start, .priority = mix(t)};
    return t;
}

static void update(sweep *s, uint32_t t) {
    gap *g = &s->gaps[t];
    const uint64_t below = ebb_max_u64(s->gaps[g->left].largest_bytes, s->gaps[g->right].largest_bytes);
    g->largest_bytes = ebb_max_u64(g->end - g->start, below);
    s->visits++;
}

/* The child comes up; t goes down on the other side. */
static uint32_t rotate(sweep *s, uint32_t t, bool left_comes) {
    gap *g = &s->gaps[t];
    const uint32_t child = left_comes ? g->left : g->right;
    EBB_ASSERT(child != NO_GAP && s->gaps[child].priority > g->priority);
    gap *c = &s->gaps[child];
    if (left_comes) {
        g->left = c->right;
        c->right = t;
    } else {
        g->right = c->left;
        c->left = t;
    }
    update(s, t);
    return child;
}

static uint32_t insert(sweep *s, uint32_t t, uint32_t added) {
    if (t == NO_GAP) { return added; }
    const bool is_left = s->gaps[added].start < s->gaps[t].start;
    EBB_ASSERT(is_left ? s->gaps[added].end < s->gaps[t].start : s->gaps[t].end < s->gaps[added].start);
    uint32_t *child = is_left ? &s->gaps[t].left : &s->gaps[t].right;
    *child = insert(s, *child, added);
    if (s->gaps[*child].priority > s->gaps[t].priority) { t = rotate(s, t, is_left); }
    update(s, t);
    return t;
}

static uint32_t join(sweep *s, uint32_t a, uint32_t b) {
    if (a == NO_GAP || b == NO_GAP) { return a == NO_GAP ? b : a; }
    const bool a_is_above = s->gaps[a].priority > s->gaps[b].priority;
    if (a_is_above) {
        s->gaps[a].right = join(s, s->gaps[a].right, b);
    } else {
        s->gaps[b].left = join(s, a, s->gaps[b].left);
    }
    update(s, a_is_above ? a : b);
    return a_is_above ? a : b;
}

static uint32_t drop(sweep *s, uint32_t t, uint32_t dropped) {
    EBB_ASSERT(t != NO_GAP);
    if (t == dropped) { return join(s, s->gaps[t].left, s->gaps[t].right); }
    uint32_t *child = s->gaps[dropped].start < s->gaps[t].start ? &s->gaps[t].left : &s->gaps[t].right;
    *child = drop(s, *child, dropped);
    update(s, t);
    return t;
}

static void drop_gap(sweep *s, uint32_t t) {
    s->root = drop(s, s->root, t);
    s->gaps[t].left = s->unused;
    s->unused = t;
}

/* New ends of a gap, which leave it where it is in the order. */
static void resize(sweep *s, uint32_t t, uint32_t resized, uint64_t start, uint64_t end) {
    EBB_ASSERT(t != NO_GAP && start < end);
    if (t == resized) {
        s->gaps[t].start = start;
        s->gaps[t].end = end;
    } else {
        const bool is_left = s->gaps[resized].start < s->gaps[t].start;
        resize(s, is_left ? s->gaps[t].left : s->gaps[t].right, resized, start, end);
    }
    update(s, t);
}

/* The lowest address from this one on at which size_bytes are free. */
static uint64_t find_room(sweep *s, uint32_t t, uint64_t from, uint64_t size_bytes) {
    const gap *g = &s->gaps[t];
    s->visits++;
    if (t == NO_GAP || g->largest_bytes < size_bytes) { return NOWHERE; }
    if (g->start > from) {
        const uint64_t found = find_room(s, g->left, from, size_bytes);
        if (found != NOWHERE) { return found; }
    }
    const uint64_t start = ebb_max_u64(g->start, from);
    if (g->end > start && g->end - start >= size_bytes) { return start; }
    return find_room(s, g->right, from, size_bytes);
}

/* The last gap that starts at or below the address, and the first above it. */
static void find_neighbours(sweep *s, uint64_t address, uint32_t *below_out, uint32_t *above_out) {
    *below_out = *above_out = NO_GAP;
    for (uint32_t t = s->root; t != NO_GAP; s->visits++) {
        const bool is_above = s->gaps[t].start > address;
        *(is_above ? above_out : below_out) = t;
        t = is_above ? s->gaps[t].left : s->gaps[t].right;
    }
}

static void take(sweep *s, uint64_t start, uint64_t size_bytes) {
    uint32_t t = NO_GAP, above = NO_GAP;
    find_neighbours(s, start, &t, &above);
    const gap g = s->gaps[t];
    const uint64_t end = start + size_bytes;
    EBB_ASSERT(t != NO_GAP && g.start <= start && end <= g.end);
    if (g.start < start) {
        resize(s, s->root, t, g.start, start);
        if (end < g.end) { s->root = insert(s, s->root, make_gap(s, end, g.end)); }
    } else if (end < g.end) {
        resize(s, s->root, t, end, g.end);
    } else {
        drop_gap(s, t);
    }
}

static void give(sweep *s, uint64_t start, uint64_t size_bytes) {
    uint32_t below = NO_GAP, above = NO_GAP;
    uint64_t end = start + size_bytes;
    find_neighbours(s, start, &below, &above);
    EBB_ASSERT(below == NO_GAP || s->gaps[below].end <= start);
    EBB_ASSERT(above == NO_GAP || s->gaps[above].start >= end);
    const bool joins_below = below != NO_GAP && s->gaps[below].end == start;
    const bool joins_above = above != NO_GAP && s->gaps[above].start == end;
    if (joins_below) {
        if (joins_above) {
            end = s->gaps[above].end;
            drop_gap(s, above);
        }
        resize(s, s->root, below, s->gaps[below].start, end);
    } else if (joins_above) {
        resize(s, s->root, above, start, s->gaps[above].end);
    } else {
        s->root = insert(s, s->root, make_gap(s, start, end));
    }
}

/* ---- time ------------------------------------------------------------------------------------- */

static bool is_around(const sweep *s, uint32_t item) {
    return s->last[item] <= s->first[item];
}

/* An item's sections as the sweep meets them. */
static void set_times(sweep *s, uint32_t item) {
    const uint32_t n = s->sections->n;
    const ebb_place_range range = s->sections->range[item];
    const uint32_t length = ebb__place_n_sections(s->sections, item);
    const uint32_t first = (uint32_t)(((uint64_t)range.first + n - s->options->cut) % n);
    const uint32_t last = first + length <= n ? first + length : first + length - n;
    EBB_ASSERT(length > 0 && length < n && first < n && last > 0 && last <= n);
    s->first[item] = s->options->backward ? n - last : first;
    s->last[item] = s->options->backward ? n - first : last;
}

static ebb_status sort_events(sweep *s, const ebb_mem *mem, size_t n_items) {
    for (size_t i = 0; i < n_items; i++) {
        const uint32_t item = s->options->idx[i];
        EBB_ASSERT(s->sections->rounded[item] > 0); /* and set_times: none lives always */
        set_times(s, item);
        s->death[s->n_deaths++] = item;
        s->key[item] = s->first[item];
        if (is_around(s, item)) {
            s->around[s->n_around++] = item;
        } else {
            s->birth[s->n_births++] = item;
        }
    }
    EBB_TRY(ebb__sort_by_key(mem, s->birth, s->n_births, s->key));
    EBB_TRY(ebb__sort_by_key(mem, s->around, s->n_around, s->key));
    for (size_t i = 0; i < s->n_deaths; i++) { s->key[s->death[i]] = s->last[s->death[i]]; }
    return ebb__sort_by_key(mem, s->death, s->n_deaths, s->key);
}

/* What dies and what returns up to this time; at one time deaths come first. */
static void pass_time(sweep *s, uint32_t until) {
    for (;;) {
        const bool dies = s->next_death < s->n_deaths && s->last[s->death[s->next_death]] <= until;
        const bool returns = s->next_return < s->n_around && s->first[s->around[s->next_return]] <= until;
        const uint32_t dead = dies ? s->death[s->next_death] : 0;
        const uint32_t back = returns ? s->around[s->next_return] : 0;
        if (dies && (!returns || s->last[dead] <= s->first[back])) {
            give(s, s->offsets[dead], s->sections->rounded[dead]);
            s->next_death++;
        } else if (returns) {
            take(s, s->offsets[back], s->sections->rounded[back]);
            s->next_return++;
        } else {
            return;
        }
    }
}

/* Above all that returns before this time. */
static uint64_t lowest_for(const sweep *s, uint32_t last) {
    size_t lo = 0, hi = s->n_around;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->first[s->around[mid]] < last) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    if (lo == 0) { return 0; }
    const uint32_t highest = s->around[lo - 1];
    EBB_ASSERT(s->first[highest] < last && (lo == s->n_around || s->first[s->around[lo]] >= last));
    return s->offsets[highest] + s->sections->rounded[highest];
}

static uint64_t stack_around(sweep *s) {
    uint64_t top = 0;
    for (size_t i = 0; i < s->n_around; i++) {
        s->offsets[s->around[i]] = top;
        top += s->sections->rounded[s->around[i]];
    }
    s->root = make_gap(s, top, UINT64_MAX);
    return top;
}

static uint64_t place_births(sweep *s) {
    uint64_t peak = stack_around(s);
    for (size_t i = 0; i < s->n_births && peak < s->options->give_up_bytes; i++) {
        const uint32_t item = s->birth[i];
        const uint64_t size_bytes = s->sections->rounded[item];
        pass_time(s, s->first[item]);
        const uint64_t offset = find_room(s, s->root, lowest_for(s, s->last[item]), size_bytes);
        EBB_ASSERT(offset != NOWHERE);
        take(s, offset, size_bytes);
        s->offsets[item] = offset;
        peak = ebb_max_u64(peak, offset + size_bytes);
    }
    return peak < s->options->give_up_bytes ? peak : UINT64_MAX;
}

ebb_status ebb__place_sweep(const ebb_sections *sections, const ebb_place_sweep_options *options, uint64_t *offsets,
                            uint64_t *peak_out, uint64_t *work) {
    const size_t n = sections->n_items;
    sweep s = {.sections = sections, .options = options, .offsets = offsets};
    ebb_bump bump;
    EBB_ASSERT(options->cut < sections->n && sections->n > 0);
    ebb__bump_init(&bump, sections->mem);
    uint32_t *const items = ebb__bump_alloc(&bump, 5 * n, sizeof *items);
    s.key = ebb__bump_alloc(&bump, n, sizeof *s.key);
    s.gaps = ebb__bump_alloc(&bump, n + 2, sizeof *s.gaps);
    ebb_status st = items != NULL && s.key != NULL && s.gaps != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        s.first = items;
        s.last = items + n;
        s.birth = items + 2 * n;
        s.death = items + 3 * n;
        s.around = items + 4 * n;
        s.gaps[NO_GAP] = (gap){0};
        st = sort_events(&s, sections->mem, n);
    }
    if (st == EBB_OK) { *peak_out = place_births(&s); }
    *work += SORT_WORK * n + s.visits / VISITS_A_LOOK;
    ebb__bump_fini(&bump);
    return st;
}
