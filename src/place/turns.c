/* SPDX-License-Identifier: Apache-2.0
 *
 * Circles of two turns that are alike, as repeat.c makes them of recordings in which some items outlive an iteration:
 * each such item needs two places, which it takes in turn, and a search that knows nothing of it has to find the same
 * stack at two moments. Here one turn is solved in place of both.
 *
 *      |<------- a turn ------->|
 *      |-----+            +-----|    the slot: what is still there of the turn before, and what is born already of the
 *      |     |  (free)    |     |    next. Both are one item of one turn, around the cut (here, the turn's ends).
 *      |-----+------------+-----|
 *      |       the wall         |    as large: those that live on and on, of this turn
 *      |------------------------|
 *      |       all others       |
 *
 * From turn to turn, slot and wall change places. Whatever lies in the slot when it is free goes with it: it neither
 * reaches out of the slot, for there is the bottom of the arena on one side and the wall on the other, nor lives across
 * the cut, where the slot is full. So one turn's answer is one for both, and the bound is the same. Items that do not
 * live at the cut, if they outlive a turn, have two places to themselves.
 */
#include "place/place_priv.h"

#define MAX_LONG 2048u /* items that outlive a turn */
#define N_ORDERS 2u    /* of the slot */

typedef struct turns {
    const ebb_place_job *job;
    ebb_bump *bump;
    uint64_t length;     /* of a turn */
    uint64_t cut;        /* within a turn */
    uint64_t base_bytes; /* of those that live always, and those with two places */
    uint64_t slot_bytes; /* and the wall's */
    uint32_t *idx;       /* [n_pairs]: of each pair of items, the one of the first turn, ... */
    uint32_t *twin;      /* [n_pairs]: ... and that of the second */
    uint32_t *in_slot;   /* [n_in_slot]: pairs, the shortest first */
    size_t n_pairs, n_in_slot;
    ebb_place_item *items; /* [n_pairs + 1]: one turn; the last one is the wall */
    uint64_t *fixed;       /* [n_pairs + 1] */
    uint64_t *offsets;     /* [n_pairs + 1] */
    uint64_t *key;         /* [n_items] */
} turns;

static const ebb_place_item *item_of(const turns *t, size_t i) {
    return &t->job->problem->items[i];
}

static uint64_t life_of(const turns *t, size_t i) {
    return ebb__place_life_length(t->job->problem->period, item_of(t, i));
}

static uint64_t birth_of(const turns *t, size_t i) {
    return ebb__place_birth(t->job->problem->period, item_of(t, i));
}

static uint64_t bytes_of(const turns *t, size_t i) {
    return ebb_align_up(item_of(t, i)->size_bytes, t->job->problem->alignment_bytes);
}

static bool lives_always(const turns *t, size_t i) {
    return life_of(t, i) == t->job->problem->period;
}

/* ---- pairs ------------------------------------------------------------------------------------ */

static ebb_status sort_by(const turns *t, uint64_t (*of)(const turns *t, size_t i), uint32_t *idx, size_t n) {
    for (size_t k = 0; k < n; k++) { t->key[idx[k]] = of(t, idx[k]); }
    return ebb__sort_by_key(t->job->mem, idx, n, t->key);
}

static uint64_t moment_of(const turns *t, size_t i) {
    return birth_of(t, i) % t->length;
}

static bool are_alike(const turns *t, uint32_t a, uint32_t b) {
    return moment_of(t, a) == moment_of(t, b) && life_of(t, a) == life_of(t, b) && bytes_of(t, a) == bytes_of(t, b);
}

/* *found_out: each item has its like in the other turn. */
static ebb_status find_pairs(turns *t, bool *found_out) {
    const size_t n_items = t->job->problem->n_items;
    uint32_t *all = ebb__bump_alloc(t->bump, n_items, sizeof *all);
    size_t n = 0;
    *found_out = false;
    if (all == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n_items; i++) {
        if (item_of(t, i)->size_bytes == 0) { continue; }
        if (lives_always(t, i)) {
            t->base_bytes += bytes_of(t, i);
        } else {
            all[n++] = (uint32_t)i;
        }
    }
    EBB_TRY(sort_by(t, birth_of, all, n));
    EBB_TRY(sort_by(t, bytes_of, all, n));
    EBB_TRY(sort_by(t, life_of, all, n));
    EBB_TRY(sort_by(t, moment_of, all, n));
    for (size_t begin = 0, end = 0; begin < n; begin = end) { /* the first turn's before the second's */
        for (end = begin + 1; end < n && are_alike(t, all[begin], all[end]);) { end++; }
        const size_t half = (end - begin) / 2;
        for (size_t k = 0; k < half; k++) {
            t->idx[t->n_pairs] = all[begin + k];
            t->twin[t->n_pairs++] = all[begin + half + k];
        }
        const bool is_even = half > 0 && (end - begin) % 2 == 0 && birth_of(t, all[begin + half - 1]) < t->length &&
                             birth_of(t, all[begin + half]) >= t->length;
        if (!is_even) { return EBB_OK; }
    }
    *found_out = true;
    return EBB_OK;
}

/* ---- one turn --------------------------------------------------------------------------------- */

static bool outlives(const turns *t, size_t pair) {
    return life_of(t, t->idx[pair]) > t->length;
}

/* Whether it lives at this moment, of each turn, more than once. */
static bool is_double_at(const turns *t, size_t pair, uint64_t moment) {
    const uint64_t begin = moment_of(t, t->idx[pair]);
    const uint64_t since = moment >= begin ? moment - begin : moment + t->length - begin;
    return since < life_of(t, t->idx[pair]) - t->length;
}

static uint64_t double_bytes(const turns *t, const uint32_t *pairs, size_t n, uint64_t moment) {
    uint64_t sum = 0;
    for (size_t k = 0; k < n; k++) {
        if (is_double_at(t, pairs[k], moment)) { sum += bytes_of(t, t->idx[pairs[k]]); }
    }
    return sum;
}

static uint64_t life_of_pair(const turns *t, size_t pair) {
    return life_of(t, t->idx[pair]);
}

/* The cut is where most bytes are doubled. *found_out: there is one. */
static ebb_status fill_slot(turns *t, bool *found_out) {
    size_t n = 0;
    for (size_t k = 0; k < t->n_pairs; k++) {
        if (outlives(t, k)) { t->in_slot[n++] = (uint32_t)k; }
    }
    *found_out = n > 0 && n <= MAX_LONG;
    for (size_t k = 0; k < n && *found_out; k++) {
        const uint64_t moment = moment_of(t, t->idx[t->in_slot[k]]), bytes = double_bytes(t, t->in_slot, n, moment);
        if (bytes <= t->slot_bytes) { continue; }
        t->slot_bytes = bytes;
        t->cut = moment;
    }
    for (size_t k = 0; k < n && *found_out; k++) {
        const uint32_t pair = t->in_slot[k];
        if (is_double_at(t, pair, t->cut)) {
            t->in_slot[t->n_in_slot++] = pair;
        } else {
            t->base_bytes += 2 * bytes_of(t, t->idx[pair]);
        }
    }
    return sort_by(t, life_of_pair, t->in_slot, t->n_in_slot);
}

static ebb_place_item arc(const turns *t, uint64_t bytes, uint64_t birth, uint64_t life) {
    const uint64_t death = birth + life;
    return (ebb_place_item){bytes, birth, death > t->length ? death - t->length : death};
}

static void make_turn(turns *t) {
    for (size_t k = 0; k < t->n_pairs; k++) {
        const uint32_t i = t->idx[k];
        t->fixed[k] = EBB_PLACE_ANYWHERE;
        t->items[k] =
            outlives(t, k) ? (ebb_place_item){0, 0, 1} : arc(t, bytes_of(t, i), moment_of(t, i), life_of(t, i));
    }
    for (size_t s = 0; s < t->n_in_slot; s++) {
        const uint32_t k = t->in_slot[s], i = t->idx[k];
        t->items[k] = arc(t, bytes_of(t, i), moment_of(t, i), life_of(t, i) - t->length);
    }
    t->items[t->n_pairs] = (ebb_place_item){t->slot_bytes, 0, t->length};
    t->fixed[t->n_pairs] = t->slot_bytes;
}

/* The slot from the bottom up, in one order or the other. */
static ebb_status solve_turn(turns *t, unsigned order, uint64_t max_steps, ebb_place_result *result) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    ebb_place_job job = *t->job;
    uint64_t offset = 0;
    for (size_t s = 0; s < t->n_in_slot; s++) {
        const uint32_t k = t->in_slot[order == 0 ? s : t->n_in_slot - 1 - s];
        t->fixed[k] = offset;
        offset += t->items[k].size_bytes;
    }
    EBB_ASSERT(offset == t->slot_bytes);
    problem.items = t->items;
    problem.n_items = t->n_pairs + 1;
    problem.alignment_bytes = t->job->problem->alignment_bytes;
    problem.period = t->length;
    problem.fixed = t->fixed;
    job.problem = &problem;
    job.n_starts = 0;
    job.enough_bytes = job.enough_bytes > t->base_bytes ? job.enough_bytes - t->base_bytes : 0;
    job.max_steps = job.default_steps = max_steps;
    return ebb__place_any(&job, t->offsets, result);
}

/* ---- both ------------------------------------------------------------------------------------- */

/* Whose slot is the wall of an even turn, and lies where the wall does. A turn begins right after the cut. */
static bool is_swapped(const turns *t, uint32_t item) {
    return (birth_of(t, item) + 2 * t->length - t->cut - 1) / t->length % 2 != 0;
}

static void unfold(const turns *t, uint64_t *offsets) {
    uint64_t base = 0;
    for (size_t i = 0; i < t->job->problem->n_items; i++) {
        offsets[i] = 0;
        if (item_of(t, i)->size_bytes == 0 || !lives_always(t, i)) { continue; }
        offsets[i] = base;
        base += bytes_of(t, i);
    }
    for (size_t k = 0; k < t->n_pairs; k++) {
        const uint32_t both[] = {t->idx[k], t->twin[k]};
        const bool is_apart = outlives(t, k) && t->items[k].size_bytes == 0;
        for (size_t h = 0; h < 2; h++) {
            if (is_apart) {
                offsets[both[h]] = base;
                base += bytes_of(t, both[h]);
            } else {
                const bool moves = t->offsets[k] < t->slot_bytes && is_swapped(t, both[h]);
                offsets[both[h]] = t->base_bytes + t->offsets[k] + (moves ? t->slot_bytes : 0);
            }
        }
    }
    EBB_ASSERT(base == t->base_bytes);
}

static ebb_status alloc_all(turns *t) {
    const size_t n = t->job->problem->n_items;
    t->idx = ebb__bump_alloc(t->bump, n, sizeof *t->idx);
    t->twin = ebb__bump_alloc(t->bump, n, sizeof *t->twin);
    t->in_slot = ebb__bump_alloc(t->bump, n, sizeof *t->in_slot);
    t->items = ebb__bump_alloc(t->bump, n + 1, sizeof *t->items);
    t->fixed = ebb__bump_alloc(t->bump, n + 1, sizeof *t->fixed);
    t->offsets = ebb__bump_alloc(t->bump, n + 1, sizeof *t->offsets);
    t->key = ebb__bump_alloc(t->bump, n + 1, sizeof *t->key);
    const bool ok = t->idx != NULL && t->twin != NULL && t->in_slot != NULL && t->items != NULL && t->fixed != NULL &&
                    t->offsets != NULL && t->key != NULL;
    return ok ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status solve(turns *t, uint64_t *offsets, ebb_place_result *result) {
    bool found = false;
    EBB_TRY(alloc_all(t));
    EBB_TRY(find_pairs(t, &found));
    if (found) { EBB_TRY(fill_slot(t, &found)); }
    if (!found) { return EBB_OK; }
    make_turn(t);
    for (unsigned order = 0; order < N_ORDERS; order++) {
        ebb_place_result turn = {0};
        if (result->peak_bytes <= ebb_max_u64(result->bound_bytes, t->job->enough_bytes)) { return EBB_OK; }
        EBB_TRY(solve_turn(t, order, t->job->max_steps / N_ORDERS + 1, &turn));
        result->n_steps += turn.n_steps;
        if (t->base_bytes + turn.peak_bytes >= result->peak_bytes) { continue; }
        result->peak_bytes = t->base_bytes + turn.peak_bytes;
        unfold(t, offsets);
    }
    return EBB_OK;
}

ebb_status ebb__place_in_turns(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    ebb_bump bump;
    turns t = {.job = job, .bump = &bump, .length = job->problem->period / 2};
    EBB_ASSERT(ebb__place_is_plain(job->problem) && job->problem->period % 2 == 0);
    ebb__bump_init(&bump, job->mem);
    const ebb_status st = solve(&t, offsets, result);
    ebb__bump_fini(&bump);
    return st;
}
