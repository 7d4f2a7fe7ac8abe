/* SPDX-License-Identifier: Apache-2.0
 *
 * A place for a request that the plan does not answer.
 *
 *      address
 *        |  live  |  gap 1           | live | gap 2      |  ceiling, then the rest of the arena
 *        |        |    ...c...       |      |   ...b...  |
 *        |        | ...a...          |      |            |      a, b, c: the plan's next requests
 *
 * The gaps between live blocks are cut by the places of the plan's next requests, one request after the other. A gap
 * that becomes too small is gone. The last gap below the ceiling is the hole that is free for the longest time. If it
 * is not free for as long as the request is likely to live, there are two ways out: the plan's request that comes into
 * the hole goes elsewhere, or the arena is used beyond its ceiling. The one that costs fewer bytes is taken. A request
 * that was itself sent elsewhere never sends others: so one stray does not start a chain. What it costs is told, for a
 * third way out may cost less (pool_detour.c).
 */
#include "pool/pool_priv.h"

#define NONE EBB_POOL_NONE
#define NOWHERE EBB_POOL_NOWHERE

typedef ebb_pool_search search;

/* Free bytes, n or more. */
typedef struct gap {
    uint64_t start, end;
} gap;

typedef struct gaps {
    gap *data;
    size_t n, cap;
    uint64_t n_bytes;
} gaps;

static void add_gap(gaps *g, uint64_t start, uint64_t end) {
    if (end < start || end - start < g->n_bytes) { return; }
    EBB_ASSERT(g->n < g->cap);
    g->data[g->n++] = (gap){start, end};
}

/* Between what lives: the plan's blocks and strays, and all others. */
static ebb_status find_gaps(const search *q, ebb_bump *bump, gaps *g) {
    ebb_pool_piece *live = NULL;
    size_t n_live = 0;
    EBB_TRY(ebb__pool_replay_get_live(q->replay, bump, &live, &n_live));
    g->n_bytes = q->n;
    g->cap = n_live + q->n_taken + q->replay->n + 1;
    g->data = ebb__bump_alloc(bump, g->cap, sizeof *g->data);
    if (g->data == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t at = q->base;
    for (size_t i = 0, k = 0; i < n_live || k < q->n_taken;) {
        if (k < q->n_taken && q->taken[k].note == EBB_POOL_PLANNED) {
            k++;
            continue;
        }
        const bool is_live = i < n_live && (k == q->n_taken || live[i].start < q->taken[k].start);
        const ebb_pool_piece *p = is_live ? &live[i++] : &q->taken[k++];
        add_gap(g, at, p->start);
        at = p->start + p->n;
    }
    add_gap(g, at, q->end);
    return EBB_OK;
}

/* Bytes beyond the ceiling. */
static uint64_t growth(const search *q, const gap *g) {
    const uint64_t end = g->start + q->n;
    return end - ebb_min_u64(end, q->ceiling);
}

/* The one that goes least beyond the ceiling; among equals, the tightest. */
static const gap *choose(const search *q, const gaps *g) {
    const gap *best = NULL;
    for (const gap *x = g->data; x < g->data + g->n; x++) {
        if (best == NULL || growth(q, x) < growth(q, best) ||
            (growth(q, x) == growth(q, best) && x->end - x->start < best->end - best->start)) {
            best = x;
        }
    }
    return best;
}

/* The request at [start, end) takes its bytes from the gaps. */
static void cut(gaps *g, uint64_t start, uint64_t end) {
    for (size_t k = g->n; k-- > 0;) {
        const gap x = g->data[k];
        if (x.end <= start || end <= x.start) { continue; }
        g->data[k] = g->data[--g->n];
        if (x.start < start) { add_gap(g, x.start, start); }
        if (end < x.end) { add_gap(g, end, x.end); }
    }
}

/* A place, and how good it is. */
typedef struct hole {
    uint64_t start;        /* EBB_POOL_NOWHERE: none */
    uint64_t age;          /* free until the request that comes this many after the next */
    uint64_t growth_bytes; /* beyond the ceiling */
} hole;

/* longest: the hole below the ceiling that is free for the longest time. grown: the one that is free for as long as
 * the request lives, with the least growth. lost_bytes_out: size of the request that ends the first. */
static void follow_gaps(const search *q, gaps *g, hole *longest, hole *grown, uint64_t *lost_bytes_out) {
    const ebb_pool_replay *r = q->replay;
    const uint64_t age = ebb_min_u64(q->hint.age, r->n);
    uint32_t i = q->hint.next;
    uint64_t last_bytes = 0;
    *longest = *grown = (hole){.start = NOWHERE};
    *lost_bytes_out = 0;
    for (uint64_t k = 0; k <= r->n; k++) {
        const gap *x = choose(q, g);
        if (k <= age) { *grown = x != NULL ? (hole){x->start, age, growth(q, x)} : (hole){.start = NOWHERE}; }
        if (x != NULL && growth(q, x) == 0) {
            *longest = (hole){x->start, k, 0};
        } else if (*lost_bytes_out == 0) {
            *lost_bytes_out = last_bytes;
        }
        if (x == NULL || (growth(q, x) > 0 && k >= age)) { return; }
        const ebb_pool_expected *e = &r->requests[i];
        if (e->spot != NONE && k >= q->hint.n_skipped) {
            const uint64_t start = ebb__pool_next_start(e);
            cut(g, start, start + e->n);
        }
        last_bytes = e->n;
        i = i + 1 < r->n ? i + 1 : 0;
    }
}

ebb_status ebb__pool_find_hole(const search *q, ebb_bump *bump, ebb_pool_hole *hole_out) {
    gaps g = {0};
    hole longest, grown;
    uint64_t lost_bytes;
    EBB_TRY(find_gaps(q, bump, &g));
    follow_gaps(q, &g, &longest, &grown, &lost_bytes);
    const bool lasts = longest.start != NOWHERE && longest.age >= ebb_min_u64(q->hint.age, q->replay->n);
    const bool grows = grown.start != NOWHERE && (longest.start == NOWHERE || grown.growth_bytes < lost_bytes);
    const bool may_send = !q->hint.is_certain || lost_bytes <= q->n / 2;
    if (lasts) {
        *hole_out = (ebb_pool_hole){longest.start, 0};
    } else if (!grows && may_send) {
        *hole_out = (ebb_pool_hole){longest.start, lost_bytes};
    } else {
        *hole_out = (ebb_pool_hole){grown.start, grown.growth_bytes};
    }
    return EBB_OK;
}
