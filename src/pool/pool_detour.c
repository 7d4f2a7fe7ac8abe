/* SPDX-License-Identifier: Apache-2.0
 *
 * A place for a request that the plan does not answer and that fits into no hole: the requests to come make room.
 *
 *      address
 *        |  live     | a' |            the new block takes the place of a; a goes to a' this time; b stays
 *        |######## new ########| b |
 *        |  live              |    c   ...     c lives beyond the window: it stays
 *       now                         end of the window
 *
 * The plan is only a plan until a block is born. So the window, which is the rest of the iteration or, if that is
 * longer, the life of the new block, is a problem for the placer. What lives is fixed until it is likely to be freed.
 * The new block and the requests to come are free. What lives beyond the window stays where the plan has it, so the
 * next iteration is as planned. If that place is taken, it is left out of the problem, and goes elsewhere when it
 * comes.
 *
 * The placer may move all of them, and each one that is moved costs more than a call that follows the plan. So what
 * need not move stays (see below).
 *
 * It is only worth the placer's time if no hole is long enough. Most programs need it a few times, until the arena is
 * as large as their noise needs it.
 */
#include "ebb/place.h"
#include "pool/pool_priv.h"

#define STEPS ((uint64_t)20 * 1000)
#define STEPS_AN_ITEM 500u

typedef ebb_pool_search search;

/* Times are requests after the next one, from 1; the new block comes at 0. */
typedef struct window {
    const search *q;
    uint64_t n_ahead; /* requests */
    uint64_t end;     /* time */
    ebb_place_item *items;
    uint64_t *fixed, *hints, *offsets;
    uint32_t *requests; /* [n]: of what may move; EBB_POOL_NONE */
    size_t n, n_live;
} window;

static ebb_status init_window(const search *q, ebb_bump *bump, window *w) {
    const ebb_pool_replay *r = q->replay;
    const uint64_t most = (uint64_t)r->n_spots + r->n_strays + q->n_taken + r->n + 1;
    const uint64_t to_end = r->n - q->hint.next, age = ebb_min_u64(q->hint.age, r->n);
    *w = (window){.q = q, .n_ahead = ebb_max_u64(to_end, age)};
    w->end = w->n_ahead + 1;
    w->items = ebb__bump_alloc(bump, most, sizeof *w->items);
    w->fixed = ebb__bump_alloc(bump, most, sizeof *w->fixed);
    w->hints = ebb__bump_alloc(bump, most, sizeof *w->hints);
    w->offsets = ebb__bump_alloc(bump, most, sizeof *w->offsets);
    w->requests = ebb__bump_alloc(bump, most, sizeof *w->requests);
    const bool has_room = w->items != NULL && w->fixed != NULL && w->hints != NULL && w->offsets != NULL;
    return has_room && w->requests != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* At an address that it must have, or would rather have, or NOWHERE. */
static void add(window *w, ebb_place_item item, uint64_t fixed, uint64_t hint, uint32_t request) {
    item.last = ebb_min_u64(item.last, w->end);
    w->items[w->n] = item;
    w->fixed[w->n] = fixed != EBB_POOL_NOWHERE ? fixed - w->q->base : EBB_PLACE_ANYWHERE;
    w->hints[w->n] = hint != EBB_POOL_NOWHERE ? hint - w->q->base : EBB_PLACE_ANYWHERE;
    w->requests[w->n++] = request;
}

static void add_fixed(window *w, uint64_t n, uint64_t first, uint64_t last, uint64_t start) {
    add(w, (ebb_place_item){n, first, ebb_max_u64(last, 1)}, start, EBB_POOL_NOWHERE, EBB_POOL_NONE);
}

/* When a late block will be freed is not known. */
static void add_live(window *w) {
    const search *q = w->q;
    const ebb_pool_replay *r = q->replay;
    for (uint32_t s = 0; s < r->n_spots; s++) {
        const uint32_t i = r->spots[s].live;
        if (i == EBB_POOL_NONE) { continue; }
        const ebb_pool_expected *e = &r->requests[i];
        const bool is_late = e->late_at != EBB_POOL_NONE;
        const uint64_t left = is_late ? r->stray_age : ebb__pool_replay_time_left(r, i, q->hint.next);
        add_fixed(w, e->n, 0, left + 1, e->start);
    }
    for (uint32_t k = 0; k < r->n_strays; k++) {
        const ebb_pool_stray *s = &r->strays[k];
        add_fixed(w, s->n, 0, ebb__pool_replay_stray_left(r, s, q->hint.next) + 1, s->start);
    }
    for (size_t k = 0; k < q->n_taken;) {
        if (q->taken[k].note == EBB_POOL_PLANNED) {
            k++;
            continue;
        }
        const uint64_t start = q->taken[k].start;
        uint64_t end = start;
        for (; k < q->n_taken && q->taken[k].start == end && q->taken[k].note != EBB_POOL_PLANNED; k++) {
            end += q->taken[k].n;
        }
        add_fixed(w, end - start, 0, w->end, start);
    }
    w->n_live = w->n;
}

static bool meets_live(const window *w, uint64_t n, uint64_t first, uint64_t offset) {
    for (size_t k = 0; k < w->n_live; k++) {
        const ebb_place_item *l = &w->items[k];
        if (l->last > first && w->fixed[k] < offset + n && offset < w->fixed[k] + l->size_bytes) { return true; }
    }
    return false;
}

static void add_ahead(window *w) {
    const search *q = w->q;
    const ebb_pool_replay *r = q->replay;
    for (uint64_t k = q->hint.n_skipped; k < w->n_ahead; k++) {
        const uint32_t i = (uint32_t)((q->hint.next + k) % r->n);
        const ebb_pool_expected *e = &r->requests[i];
        const uint64_t first = k + 1, last = first + e->span, start = ebb__pool_next_start(e);
        if (e->spot == EBB_POOL_NONE) { continue; }
        if (last <= w->end) {
            add(w, (ebb_place_item){e->n, first, last}, EBB_POOL_NOWHERE, start, i);
        } else if (!meets_live(w, e->n, first, start - q->base)) {
            add_fixed(w, e->n, first, last, start);
        }
    }
}

/* ---- few moves -------------------------------------------------------------------------------- */

/* The placer has moved whatever it liked. Most of that was not needed. So all but what is fixed begins where the plan
 * has it, and only what is in the way of the new block goes elsewhere: into a gap, or else to where the placer has it,
 * out of which goes what is in the way there. */
typedef struct settling {
    const window *w;
    uint64_t cap_bytes;
    uint64_t *at; /* [n]: offsets; EBB_PLACE_ANYWHERE */
    bool *had_gap;
    uint32_t *out; /* items without an offset */
    size_t n_out;
} settling;

static bool collide(const settling *s, size_t a, size_t b, uint64_t offset_of_a) {
    const ebb_place_item *x = &s->w->items[a], *y = &s->w->items[b];
    return a != b && s->at[b] != EBB_PLACE_ANYWHERE && x->first < y->last && y->first < x->last &&
           offset_of_a < s->at[b] + y->size_bytes && s->at[b] < offset_of_a + x->size_bytes;
}

/* To where the placer has it. */
static void put_by_force(settling *s, size_t item) {
    s->at[item] = s->w->offsets[item];
    for (size_t k = s->w->n_live; k < s->w->n; k++) {
        if (!collide(s, item, k, s->at[item])) { continue; }
        s->at[k] = EBB_PLACE_ANYWHERE;
        s->out[s->n_out++] = (uint32_t)k;
    }
}

/* The lowest gap; whether there is one. */
static bool put_in_gap(settling *s, size_t item) {
    const uint64_t n = s->w->items[item].size_bytes;
    uint64_t offset = 0;
    for (size_t k = 0, n_free = 0; n_free < s->w->n && offset + n <= s->cap_bytes; k = k + 1 < s->w->n ? k + 1 : 0) {
        n_free++;
        if (!collide(s, item, k, offset)) { continue; }
        offset = s->at[k] + s->w->items[k].size_bytes;
        n_free = 0;
    }
    if (offset + n > s->cap_bytes) { return false; }
    s->at[item] = offset;
    return true;
}

static ebb_status settle(window *w, ebb_bump *bump, size_t new, uint64_t cap_bytes) {
    settling s = {.w = w, .cap_bytes = cap_bytes};
    s.at = ebb__bump_alloc(bump, w->n, sizeof *s.at);
    s.had_gap = ebb__bump_alloc(bump, w->n, sizeof *s.had_gap);
    s.out = ebb__bump_alloc(bump, w->n, sizeof *s.out);
    if (s.at == NULL || s.had_gap == NULL || s.out == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < w->n; k++) {
        const ebb_place_item *item = &w->items[k];
        const bool is_fixed = w->fixed[k] != EBB_PLACE_ANYWHERE;
        s.at[k] = is_fixed ? w->fixed[k] : w->hints[k];
        s.had_gap[k] = false;
        if (is_fixed || k == new) { continue; }
        if (s.at[k] + item->size_bytes <= cap_bytes && !meets_live(w, item->size_bytes, item->first, s.at[k])) {
            continue;
        }
        s.at[k] = EBB_PLACE_ANYWHERE;
        s.out[s.n_out++] = (uint32_t)k;
    }
    put_by_force(&s, new);
    while (s.n_out > 0) {
        const uint32_t item = s.out[--s.n_out];
        if (!s.had_gap[item] && put_in_gap(&s, item)) {
            s.had_gap[item] = true;
        } else {
            put_by_force(&s, item);
        }
    }
    memcpy(w->offsets, s.at, w->n * sizeof *s.at);
    return EBB_OK;
}

static ebb_status read_moves(const window *w, ebb_bump *bump, ebb_pool_detour *d) {
    d->moves = ebb__bump_alloc(bump, w->n, sizeof *d->moves);
    if (d->moves == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = w->n_live; k < w->n; k++) {
        if (w->requests[k] == EBB_POOL_NONE || w->offsets[k] == w->hints[k]) { continue; }
        d->moves[d->n_moves++] = (ebb_pool_move){w->requests[k], w->q->base + w->offsets[k]};
    }
    return EBB_OK;
}

ebb_status ebb__pool_find_detour(const search *q, const ebb_mem *mem, ebb_bump *bump, ebb_pool_detour *d) {
    window w;
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    ebb_place_options options = EBB_PLACE_OPTIONS_INIT;
    options.any_end = true;
    ebb_place_result result = {0};
    *d = (ebb_pool_detour){.hole = {.start = EBB_POOL_NOWHERE}};
    EBB_TRY(init_window(q, bump, &w));
    add_live(&w);
    add_ahead(&w);
    const size_t new = w.n;
    add(&w, (ebb_place_item){q->n, 0, q->hint.age + 1}, EBB_POOL_NOWHERE, EBB_POOL_NOWHERE, EBB_POOL_NONE);
    problem.items = w.items;
    problem.n_items = w.n;
    problem.alignment_bytes = q->alignment_bytes;
    problem.fixed = w.fixed;
    problem.hints = w.hints;
    options.mem = mem;
    options.max_steps = STEPS + STEPS_AN_ITEM * w.n;
    options.enough_bytes = q->ceiling - q->base;
    EBB_TRY(ebb_place_solve(&problem, &options, w.offsets, &result));
    const uint64_t end = q->base + result.peak_bytes;
    d->n_steps = result.n_steps;
    d->hole = (ebb_pool_hole){q->base + w.offsets[new], end - ebb_min_u64(end, q->ceiling)};
    EBB_TRY(settle(&w, bump, new, ebb_max_u64(end, q->ceiling) - q->base));
    return read_moves(&w, bump, d);
}
