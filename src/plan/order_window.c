/* SPDX-License-Identifier: Apache-2.0
 *
 * Another order of the steps within a window of places, by beam search: states are sets of steps that have been put,
 * from the window's beginning or from its end. The live bytes depend on the set alone, so of two ways to one set that
 * with the lower peak counts. Of all sets of a size the BEAM with the fewest bytes live are followed; among them
 * are all sets if there are no more, and then the search is exhaustive.
 *
 * Where a step can be put that leaves no more live than before and whose load is not above the state's peak, nothing
 * else is tried: it can go at once in any order that continues the state, and no load becomes higher.
 */
#include "plan/order_priv.h"

#define BEAM 64u
#define N_WORDS ((EBB_ORDER_WINDOW + 63) / 64)

typedef struct state {
    uint64_t put[N_WORDS], ready[N_WORDS]; /* bits by place within the window */
    uint64_t live_bytes, peak_bytes, hash;
} state;

/* A state that follows from one of the beam. */
typedef struct child {
    uint32_t parent, place;
    uint64_t live_bytes, peak_bytes, hash;
} child;

/* A tensor that may die within the window. */
typedef struct life {
    uint64_t users[N_WORDS];
    uint64_t size_bytes;
} life;

typedef struct window {
    ebb_order_search *s;
    ebb_bump bump;
    size_t begin, n, n_words;
    bool back;
    uint64_t *first_life; /* [n + 1]: of each place, where its row of life_of begins */
    uint32_t *life_of;
    EBB_VEC(life) lives;
    state *beam, *next; /* [BEAM] */
    size_t n_beam;
    uint32_t *parent, *place; /* [n * BEAM]: how each state of each round came about */
    EBB_VEC(child) children;
    EBB_VEC(uint32_t) rank;
    EBB_VEC(uint64_t) key;
} window;

static bool has(const uint64_t *bits, size_t i) {
    return (bits[i / 64] >> (i % 64) & 1) != 0;
}

static void set(uint64_t *bits, size_t i) {
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static uint32_t step_at(const window *w, size_t place) {
    return w->s->order[w->begin + place];
}

/* Place of a step within the window; n: it is outside. */
static size_t place_in(const window *w, uint32_t step) {
    const size_t place = w->s->place[step];
    return place >= w->begin && place < w->begin + w->n ? place - w->begin : w->n;
}

/* ---- the window --------------------------------------------------------------------------------- */

/* Enter a tensor that a step of the window uses, unless a step after the window does too. */
static ebb_status enter_life(window *w, uint32_t t) {
    const ebb_order_graph *g = &w->s->graph;
    life new = {.size_bytes = g->size_bytes[t]};
    for (uint64_t u = g->users.start[t]; u < g->users.start[t + 1]; u++) {
        const size_t place = place_in(w, g->users.list[u]);
        if (w->s->place[g->users.list[u]] >= w->begin + w->n) {
            w->s->left[t] = UINT32_MAX - 1;
            return EBB_OK;
        }
        if (place < w->n) { set(new.users, place); }
    }
    w->s->left[t] = (uint32_t)w->lives.n;
    return EBB_PUSH(w->s->mem, &w->lives, new);
}

static ebb_status init_lives(window *w) {
    const ebb_order_graph *g = &w->s->graph;
    uint64_t n_uses = 0;
    for (size_t i = 0; i < w->n; i++) {
        const uint32_t step = step_at(w, i);
        n_uses += g->used.start[step + 1] - g->used.start[step];
        for (uint64_t u = g->used.start[step]; u < g->used.start[step + 1]; u++) {
            w->s->left[g->used.list[u]] = UINT32_MAX; /* not looked at yet */
        }
    }
    w->first_life = ebb__bump_alloc(&w->bump, w->n + 1, sizeof *w->first_life);
    w->life_of = ebb__bump_alloc(&w->bump, n_uses, sizeof *w->life_of);
    if (w->first_life == NULL || w->life_of == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t at = 0;
    for (size_t i = 0; i < w->n; i++) {
        const uint32_t step = step_at(w, i);
        w->first_life[i] = at;
        for (uint64_t u = g->used.start[step]; u < g->used.start[step + 1]; u++) {
            const uint32_t t = g->used.list[u];
            if (w->s->left[t] == UINT32_MAX) { EBB_TRY(enter_life(w, t)); }
            if (w->s->left[t] < w->lives.n) { w->life_of[at++] = w->s->left[t]; }
        }
    }
    w->first_life[w->n] = at;
    return EBB_OK;
}

/* Whether all that a step must come after, or back: before, has been put. */
static bool is_ready(const window *w, const state *it, size_t place) {
    const ebb_order_graph *g = &w->s->graph;
    const uint32_t step = step_at(w, place);
    const ebb_order_rows *rows = w->back ? &g->after : &g->before;
    for (uint64_t i = rows->start[step]; i < rows->start[step + 1]; i++) {
        const size_t other = place_in(w, rows->list[i]);
        if (other < w->n && !has(it->put, other)) { return false; }
    }
    return true;
}

static ebb_status init_window(window *w) {
    EBB_TRY(init_lives(w));
    w->n_words = (w->n + 63) / 64;
    w->beam = ebb__bump_alloc(&w->bump, BEAM, sizeof *w->beam);
    w->next = ebb__bump_alloc(&w->bump, BEAM, sizeof *w->next);
    w->parent = ebb__bump_alloc(&w->bump, w->n * BEAM, sizeof *w->parent);
    w->place = ebb__bump_alloc(&w->bump, w->n * BEAM, sizeof *w->place);
    if (w->beam == NULL || w->next == NULL || w->parent == NULL || w->place == NULL) { return EBB_E_NO_MEMORY; }
    /* A load up to the bound costs nothing, as some step has it in any order. */
    state first = {.live_bytes = w->s->live[w->begin + (w->back ? w->n : 0)], .peak_bytes = w->s->bound_bytes};
    for (size_t i = 0; i < w->n; i++) {
        if (is_ready(w, &first, i)) { set(first.ready, i); }
    }
    w->beam[0] = first;
    w->n_beam = 1;
    return EBB_OK;
}

/* ---- a round ------------------------------------------------------------------------------------ */

/* Bytes that end with a step, or back: that are live because of it alone. */
static uint64_t turned_bytes(const window *w, const state *it, size_t place) {
    uint64_t bytes = 0;
    for (uint64_t i = w->first_life[place]; i < w->first_life[place + 1]; i++) {
        const life *l = &w->lives.data[w->life_of[i]];
        bool turns = true;
        for (size_t k = 0; turns && k < w->n_words; k++) {
            const uint64_t self = place / 64 == k ? (uint64_t)1 << (place % 64) : 0;
            turns = w->back ? (l->users[k] & it->put[k]) == 0 : (l->users[k] & ~(it->put[k] | self)) == 0;
        }
        if (turns) { bytes += l->size_bytes; }
    }
    return bytes;
}

/* A word for each place; their sum modulo 2 tells sets apart. */
static uint64_t word_of(size_t place) {
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static child make_child(const window *w, uint32_t parent, size_t place) {
    const state *it = &w->beam[parent];
    const uint32_t step = step_at(w, place);
    const uint64_t made = w->s->graph.made_bytes[step], turned = turned_bytes(w, it, place);
    const uint64_t load = it->live_bytes + w->s->graph.own_bytes[step] + (w->back ? turned : made);
    return (child){.parent = parent,
                   .place = (uint32_t)place,
                   .live_bytes = w->back ? it->live_bytes + turned - made : it->live_bytes + made - turned,
                   .peak_bytes = ebb_max_u64(it->peak_bytes, load),
                   .hash = it->hash ^ word_of(place)};
}

/* The children of a state whose peaks are below the order's. */
static ebb_status add_children(window *w, uint32_t parent) {
    const state *it = &w->beam[parent];
    const size_t n_before = w->children.n;
    for (size_t k = 0; k < w->n_words; k++) {
        for (uint64_t bits = it->ready[k]; bits != 0; bits &= bits - 1) {
            const child new = make_child(w, parent, 64 * k + (size_t)__builtin_ctzll(bits));
            w->s->work -= w->s->work > 0;
            if (new.peak_bytes >= w->s->peak_bytes) { continue; }
            const bool at_once = new.live_bytes <= it->live_bytes &&new.peak_bytes == it->peak_bytes;
            if (at_once) { w->children.n = n_before; }
            EBB_TRY(EBB_PUSH(w->s->mem, &w->children, new));
            if (at_once) { return EBB_OK; }
        }
    }
    return EBB_OK;
}

static ebb_status sort_by(window *w, size_t member) {
    for (size_t i = 0; i < w->children.n; i++) {
        memcpy(&w->key.data[i], (const char *)&w->children.data[i] + member, sizeof(uint64_t));
    }
    return ebb__sort_by_key(w->s->mem, w->rank.data, w->children.n, w->key.data);
}

/* The fewest bytes first; ways to one set side by side, the one with the lowest peak first. */
static ebb_status rank_children(window *w) {
    EBB_TRY(EBB_RESERVE(w->s->mem, &w->rank, w->children.n));
    EBB_TRY(EBB_RESERVE(w->s->mem, &w->key, w->children.n));
    for (uint32_t i = 0; i < w->children.n; i++) { w->rank.data[i] = i; }
    EBB_TRY(sort_by(w, offsetof(child, peak_bytes)));
    EBB_TRY(sort_by(w, offsetof(child, hash)));
    return sort_by(w, offsetof(child, live_bytes));
}

static void follow(const window *w, const child *c, state *state_out) {
    const ebb_order_graph *g = &w->s->graph;
    const ebb_order_rows *rows = w->back ? &g->before : &g->after;
    const uint32_t step = step_at(w, c->place);
    *state_out = w->beam[c->parent];
    state_out->live_bytes = c->live_bytes;
    state_out->peak_bytes = c->peak_bytes;
    state_out->hash = c->hash;
    set(state_out->put, c->place);
    state_out->ready[c->place / 64] &= ~((uint64_t)1 << (c->place % 64));
    for (uint64_t i = rows->start[step]; i < rows->start[step + 1]; i++) {
        const size_t next = place_in(w, rows->list[i]);
        if (next < w->n && is_ready(w, state_out, next)) { set(state_out->ready, next); }
    }
}

static ebb_status search_round(window *w, size_t round) {
    w->children.n = 0;
    for (uint32_t i = 0; i < w->n_beam; i++) { EBB_TRY(add_children(w, i)); }
    EBB_TRY(rank_children(w));
    size_t n = 0;
    for (size_t i = 0; i < w->children.n && n < BEAM; i++) {
        const child *c = &w->children.data[w->rank.data[i]];
        if (n > 0 && w->next[n - 1].hash == c->hash) { continue; }
        w->parent[round * BEAM + n] = c->parent;
        w->place[round * BEAM + n] = c->place;
        follow(w, c, &w->next[n++]);
    }
    state *swap = w->beam;
    w->beam = w->next;
    w->next = swap;
    w->n_beam = n;
    return EBB_OK;
}

/* All states of the last round are the whole window; the first has the lowest peak. */
static void write_trial(const window *w) {
    ebb_order_search *s = w->s;
    memcpy(s->trial, s->order, s->graph.n_steps * sizeof *s->trial);
    uint32_t at = 0;
    for (size_t round = w->n; round-- > 0;) {
        const size_t to = w->back ? w->n - 1 - round : round;
        s->trial[w->begin + to] = step_at(w, w->place[round * BEAM + at]);
        at = w->parent[round * BEAM + at];
    }
}

ebb_status ebb__order_reorder(ebb_order_search *s, size_t begin, size_t end, bool back, bool *found_out) {
    window w = {.s = s, .begin = begin, .n = end - begin, .back = back};
    EBB_ASSERT(begin < end && end <= s->graph.n_steps && w.n <= EBB_ORDER_WINDOW);
    ebb__bump_init(&w.bump, s->mem);
    ebb_status st = init_window(&w);
    for (size_t round = 0; st == EBB_OK && round < w.n && w.n_beam > 0; round++) { st = search_round(&w, round); }
    if (st == EBB_OK) {
        *found_out = w.n_beam > 0;
        if (*found_out) { write_trial(&w); }
    }
    ebb__bump_fini(&w.bump);
    EBB_VEC_FINI(s->mem, &w.lives);
    EBB_VEC_FINI(s->mem, &w.children);
    EBB_VEC_FINI(s->mem, &w.rank);
    EBB_VEC_FINI(s->mem, &w.key);
    return st;
}
