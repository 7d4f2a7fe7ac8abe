/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement by sweeps, a few greedy orders and dives, the best of which is kept and then repaired.
 *
 * Sweeps (sweep.c) go through time and are by far the cheapest; begun at several places of the circle and in both
 * directions they are also the best where many things move.
 *
 * An order is gone through once; each item goes into a gap among those placed before it that share a section
 * with it (taken.c finds it). Largest first is the strongest single order on training's items, where a few
 * large activations make the peak and small ones fill what they leave; longest first wins where lifetimes
 * nest; in order of birth is what an allocator would do that knows each item's end, and it gains much from
 * having a few of the largest in place before. Dives (dive.c) go from the bottom up under a cap and win where a
 * plan fills its budget at all times. Repair puts the items that stick out above the lower bound
 * first and places all again, over and over: they then displace those that are easily placed elsewhere.
 *
 * All this goes on until the lower bound is met, or the peak is good enough, or the work allowed is done. Work is
 * counted, not timed, so the same problem gives the same answer anywhere. An order under which the gaps become too many
 * is given up early, and one that is no better than the best so far when that shows. The first sweep is gone through
 * whatever it takes, which is O(n log n).
 *
 * Items that live in all sections come first of all, at the bottom: whatever is placed, they could be moved
 * there without raising the peak, and what then is asked about starts above them.
 */
#include "place/place_priv.h"

/* Work is spans looked at, about 30 ns each. */
#define MAX_FAILED_REPAIRS 40u                /* in a row */
#define FREE_WORK ((uint64_t)2 * 1000 * 1000) /* an order may always do this much, if so much is left ... */
#define MAX_WORK_A_LEVEL 12u                  /* ... and so much an item and level of the tree */
#define N_CUTS 8u                             /* of the circle, for sweeps */
#define GIVEN_UP UINT64_MAX

typedef enum order_key { BY_SIZE, BY_LIFETIME, BY_SHORTNESS, BY_AREA, BY_BIRTH } order_key;

typedef struct order {
    order_key key;
    ebb_place_fit fit;
    uint32_t n_large; /* so many of the largest go before all others */
} order;

static const order orders[] = {
    {BY_SIZE, EBB_PLACE_TIGHTEST, 0},     {BY_SIZE, EBB_PLACE_LOWEST, 0},     {BY_LIFETIME, EBB_PLACE_LOWEST, 0},
    {BY_BIRTH, EBB_PLACE_TIGHTEST, 0},    {BY_BIRTH, EBB_PLACE_TIGHTEST, 64}, {BY_BIRTH, EBB_PLACE_TIGHTEST, 256},
    {BY_BIRTH, EBB_PLACE_TIGHTEST, 1024}, {BY_AREA, EBB_PLACE_LOWEST, 0},
};

/* An order and what came of it. */
typedef struct attempt {
    uint32_t *idx;     /* [n_items] */
    uint64_t *offsets; /* [n_items] */
    ebb_place_fit fit;
    bool is_order;       /* it came of going through idx with this fit */
    uint64_t peak_bytes; /* or GIVEN_UP */
} attempt;

typedef struct solver {
    const ebb_place_job *job;
    ebb_sections sections;
    uint64_t *key;       /* [n_items] */
    uint64_t *size_rank; /* [n_items]: 0 is the largest */
    attempt now, best;
    uint64_t base_bytes; /* what lives in all sections */
    uint64_t work, max_work;
    uint64_t max_work_an_item;
    bool is_large; /* there are only sweeps, because one order might take more than a quarter of the work */
} solver;

/* ---- orders ----------------------------------------------------------------------------------- */

static uint64_t n_sections_of(const solver *s, size_t item) {
    ebb_place_range range = s->sections.range[item];
    return range.first < range.last ? range.last - range.first : s->sections.n - range.first + range.last;
}

/* Larger keys come first. */
static uint64_t key_of(const solver *s, size_t item, order_key key) {
    const uint64_t size_bytes = s->sections.rounded[item], n_sections = n_sections_of(s, item);
    uint64_t area = 0;
    switch (key) {
    case BY_SIZE: return size_bytes;
    case BY_LIFETIME: return n_sections;
    case BY_SHORTNESS: return UINT64_MAX - n_sections;
    case BY_BIRTH: return UINT64_MAX - s->sections.range[item].first;
    case BY_AREA: return ebb_mul_u64(size_bytes, n_sections, &area) ? area : UINT64_MAX;
    }
    return 0;
}

/* Sort the order at hand by s->key, keeping it among equals. */
static ebb_status sort_now(solver *s) {
    return ebb__sort_by_key(s->job->mem, s->now.idx, s->sections.n_items, s->key);
}

static ebb_status sort_by(solver *s, order_key key) {
    for (size_t i = 0; i < s->sections.n_items; i++) { s->key[i] = UINT64_MAX - key_of(s, i, key); }
    return sort_now(s);
}

/* Ties: larger, then longer, then first in the problem. */
static ebb_status make_order(solver *s, const order *o) {
    for (size_t i = 0; i < s->sections.n_items; i++) { s->now.idx[i] = (uint32_t)i; }
    if (o->key != BY_LIFETIME) { EBB_TRY(sort_by(s, BY_LIFETIME)); }
    if (o->key != BY_SIZE) { EBB_TRY(sort_by(s, BY_SIZE)); }
    EBB_TRY(sort_by(s, o->key));
    s->now.fit = o->fit;
    if (o->n_large == 0) { return EBB_OK; }
    for (size_t i = 0; i < s->sections.n_items; i++) { s->key[i] = ebb_min_u64(s->size_rank[i], o->n_large); }
    return sort_now(s);
}

/* What sticks out above the lower bound goes first, in the order in which it was. */
static ebb_status make_repaired_order(solver *s) {
    for (size_t i = 0; i < s->sections.n_items; i++) {
        s->key[i] = s->now.offsets[i] + s->sections.rounded[i] > s->sections.bound_bytes ? 0 : 1;
    }
    return sort_now(s);
}

/* ---- attempts --------------------------------------------------------------------------------- */

/* Items that live always are stacked at the bottom. */
static void stack_always(const solver *s, uint64_t *offsets) {
    uint64_t stacked_bytes = 0;
    for (size_t i = 0; i < s->sections.n_items; i++) {
        offsets[i] = 0;
        if (s->sections.rounded[i] == 0 || !ebb__place_lives_always(&s->sections, i)) { continue; }
        offsets[i] = stacked_bytes;
        stacked_bytes += s->sections.rounded[i];
    }
    EBB_ASSERT(stacked_bytes == s->base_bytes);
}

/* In the order at hand, until the peak or the work is too much. */
static ebb_status place_all(solver *s, ebb_taken *taken, uint64_t give_up_bytes) {
    const uint64_t max_work = s->max_work > s->work ? s->max_work - s->work : 0;
    uint64_t peak_bytes = s->base_bytes;
    s->now.is_order = true;
    s->now.peak_bytes = GIVEN_UP;
    stack_always(s, s->now.offsets);
    for (size_t i = 0; i < s->sections.n_items; i++) {
        const uint32_t item = s->now.idx[i];
        const uint64_t size_bytes = s->sections.rounded[item];
        if (size_bytes == 0 || ebb__place_lives_always(&s->sections, item)) { continue; }
        const uint64_t work = ebb__taken_work(taken);
        if (work > max_work || (work > FREE_WORK && work / (i + 1) > s->max_work_an_item)) { return EBB_OK; }
        uint64_t offset = ebb__taken_find(taken, s->sections.range[item], size_bytes, s->base_bytes, s->now.fit);
        peak_bytes = ebb_max_u64(peak_bytes, offset + size_bytes);
        if (peak_bytes >= give_up_bytes) { return EBB_OK; }
        EBB_TRY(ebb__taken_add(taken, s->sections.range[item], offset, size_bytes));
        s->now.offsets[item] = offset;
    }
    EBB_ASSERT(peak_bytes >= s->sections.bound_bytes);
    s->now.peak_bytes = peak_bytes;
    return EBB_OK;
}

/* Place all items in the order at hand, unless it is given up. */
static ebb_status try_now(solver *s, uint64_t give_up_bytes) {
    ebb_bump bump;
    ebb__bump_init(&bump, s->job->mem);
    ebb_taken *taken = NULL;
    ebb_status st = ebb__taken_create(&bump, s->sections.n, &taken);
    if (st == EBB_OK) { st = place_all(s, taken, give_up_bytes); }
    if (st == EBB_OK) { s->work += ebb__taken_work(taken); }
    ebb__bump_fini(&bump);
    return st;
}

/* Keep a copy of the attempt at hand if it is better; whether it was. */
static bool keep_better(solver *s) {
    if (s->now.peak_bytes >= s->best.peak_bytes) { return false; }
    const size_t n = s->sections.n_items;
    if (n > 0) {
        memcpy(s->best.idx, s->now.idx, n * sizeof *s->best.idx);
        memcpy(s->best.offsets, s->now.offsets, n * sizeof *s->best.offsets);
    }
    s->best.fit = s->now.fit;
    s->best.is_order = s->now.is_order;
    s->best.peak_bytes = s->now.peak_bytes;
    return true;
}

static bool is_done(const solver *s) {
    return s->best.peak_bytes <= ebb_max_u64(s->sections.bound_bytes, s->job->enough_bytes);
}

static bool is_over(const solver *s, uint64_t work) {
    return is_done(s) || s->work >= work || s->job->stop(s->job->stop_ctx);
}

static ebb_status sweep(solver *s, uint32_t eighth, bool backward) {
    const ebb_place_sweep_options options = {
        .idx = s->now.idx,
        .cut = (uint32_t)((uint64_t)s->sections.n * eighth / N_CUTS),
        .backward = backward,
        .base_bytes = s->base_bytes,
        .give_up_bytes = s->best.peak_bytes,
    };
    s->now.is_order = false;
    stack_always(s, s->now.offsets);
    EBB_TRY(ebb__place_sweep(&s->sections, &options, s->now.offsets, &s->now.peak_bytes, &s->work));
    EBB_ASSERT(s->now.peak_bytes >= s->sections.bound_bytes);
    (void)keep_better(s);
    return EBB_OK;
}

/* The first is never given up, so something has been found. */
static ebb_status try_sweeps(solver *s) {
    static const order births[] = {
        {BY_LIFETIME, EBB_PLACE_LOWEST, 0}, {BY_SHORTNESS, EBB_PLACE_LOWEST, 0}, {BY_SIZE, EBB_PLACE_LOWEST, 0}};
    static const uint32_t eighths[N_CUTS] = {0, 5, 6, 4, 2, 7, 3, 1};
    const uint64_t end = s->is_large ? s->max_work : s->max_work / 4;
    for (size_t b = 0; b < sizeof births / sizeof births[0]; b++) {
        EBB_TRY(make_order(s, &births[b]));
        for (size_t c = 0; c < N_CUTS; c++) {
            EBB_TRY(sweep(s, eighths[c], false));
            if (is_over(s, end)) { return EBB_OK; }
            EBB_TRY(sweep(s, eighths[c], true));
            if (is_over(s, end)) { return EBB_OK; }
        }
    }
    return EBB_OK;
}

static ebb_status try_orders(solver *s) {
    for (size_t o = 0; o < sizeof orders / sizeof orders[0] && !is_over(s, s->max_work); o++) {
        EBB_TRY(make_order(s, &orders[o]));
        EBB_TRY(try_now(s, s->best.peak_bytes));
        (void)keep_better(s);
    }
    return EBB_OK;
}

/* Lower offsets first: placed so again, each item lies where it did or lower. */
static ebb_status settle(solver *s) {
    for (size_t i = 0; i < s->sections.n_items; i++) {
        s->now.idx[i] = (uint32_t)i;
        s->key[i] = s->now.offsets[i];
    }
    EBB_TRY(sort_now(s));
    s->now.fit = EBB_PLACE_LOWEST;
    EBB_TRY(try_now(s, GIVEN_UP));
    (void)keep_better(s);
    return EBB_OK;
}

/* From the bottom up, ties by this order, under a cap that leaves so many eighths of the gap that there is. */
static ebb_status dive(solver *s, const order *o, uint64_t n_eighths, uint64_t max_work) {
    const uint64_t bound_bytes = s->sections.bound_bytes;
    EBB_TRY(make_order(s, o));
    for (size_t i = 0; i < s->sections.n_items; i++) { s->key[s->now.idx[i]] = i; }
    const ebb_place_dive_options options = {
        .rank = s->key,
        .base_bytes = s->base_bytes,
        .cap_bytes = bound_bytes + (s->best.peak_bytes - bound_bytes) / 8 * n_eighths,
        .give_up_bytes = s->best.peak_bytes,
        .max_work = max_work,
    };
    s->now.is_order = false;
    stack_always(s, s->now.offsets);
    EBB_TRY(ebb__place_dive(&s->sections, &options, s->now.offsets, &s->now.peak_bytes, &s->work));
    EBB_ASSERT(s->now.peak_bytes >= bound_bytes);
    return keep_better(s) ? settle(s) : EBB_OK;
}

/* Whatever is found narrows the gap, and with it the caps of the dives behind it. */
static ebb_status try_dives(solver *s) {
    static const order ranks[] = {{BY_LIFETIME, EBB_PLACE_LOWEST, 0},
                                  {BY_BIRTH, EBB_PLACE_LOWEST, 0},
                                  {BY_AREA, EBB_PLACE_LOWEST, 0},
                                  {BY_SIZE, EBB_PLACE_LOWEST, 0}};
    const uint64_t end = ebb_min_u64(s->max_work, s->work + s->max_work / 5 * 3);
    for (uint64_t n_eighths = 8; n_eighths-- > 0;) {
        for (size_t r = 0; r < sizeof ranks / sizeof ranks[0]; r++) {
            if (is_over(s, end)) { return EBB_OK; }
            EBB_TRY(dive(s, &ranks[r], n_eighths, end - s->work));
        }
    }
    return EBB_OK;
}

static ebb_status repair(solver *s) {
    const uint64_t end = ebb_min_u64(s->max_work, s->work + s->max_work / 5);
    const size_t n = s->sections.n_items;
    if (is_over(s, end)) { return EBB_OK; }
    memcpy(s->now.idx, s->best.idx, n * sizeof *s->now.idx);
    memcpy(s->now.offsets, s->best.offsets, n * sizeof *s->now.offsets);
    s->now.fit = s->best.fit;
    s->now.peak_bytes = s->best.peak_bytes;
    if (!s->best.is_order) { EBB_TRY(settle(s)); }
    for (unsigned n_failed = 0; n_failed < MAX_FAILED_REPAIRS; n_failed++) {
        if (is_over(s, end) || s->now.peak_bytes == GIVEN_UP) { break; }
        EBB_TRY(make_repaired_order(s));
        EBB_TRY(try_now(s, GIVEN_UP));
        if (keep_better(s)) { n_failed = 0; }
    }
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status alloc_attempt(attempt *a, ebb_bump *bump, size_t n) {
    a->idx = ebb__bump_alloc(bump, n, sizeof *a->idx);
    a->offsets = ebb__bump_alloc(bump, n, sizeof *a->offsets);
    a->peak_bytes = GIVEN_UP;
    return a->idx != NULL && a->offsets != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status prepare(solver *s, ebb_bump *bump) {
    const size_t n = s->job->problem->n_items;
    EBB_TRY(ebb__place_cut(s->job->problem, bump, &s->sections));
    EBB_TRY(alloc_attempt(&s->now, bump, n));
    EBB_TRY(alloc_attempt(&s->best, bump, n));
    s->key = ebb__bump_alloc(bump, n, sizeof *s->key);
    s->size_rank = ebb__bump_alloc(bump, n, sizeof *s->size_rank);
    if (s->key == NULL || s->size_rank == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(make_order(s, &orders[0]));
    for (size_t i = 0; i < n; i++) { s->size_rank[s->now.idx[i]] = i; }
    for (size_t i = 0; i < n; i++) {
        if (s->sections.rounded[i] > 0 && ebb__place_lives_always(&s->sections, i)) {
            s->base_bytes += s->sections.rounded[i];
        }
    }
    s->max_work_an_item = MAX_WORK_A_LEVEL;
    for (uint32_t m = s->sections.n; m > 0; m /= 2) { s->max_work_an_item += MAX_WORK_A_LEVEL; }
    s->is_large = n > s->max_work / 4 / s->max_work_an_item;
    return EBB_OK;
}

ebb_status ebb__place_best(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    solver s = {.job = job, .max_work = job->max_steps};
    ebb_status st = prepare(&s, &bump);
    if (st == EBB_OK) { st = try_sweeps(&s); }
    if (st == EBB_OK && !s.is_large) { st = try_orders(&s); }
    if (st == EBB_OK && !s.is_large) { st = try_dives(&s); }
    if (st == EBB_OK && !s.is_large) { st = repair(&s); }
    if (st == EBB_OK) {
        if (s.sections.n_items > 0) { memcpy(offsets, s.best.offsets, s.sections.n_items * sizeof *offsets); }
        result->peak_bytes = s.best.peak_bytes;
        result->n_steps = s.work;
    }
    ebb__bump_fini(&bump);
    return st;
}
