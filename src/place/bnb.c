/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact search as a solver: it lowers the peak of a placement that is given, and raises the lower bound.
 *
 * The items fall into parts between which nothing lives. Each is lowered by itself, until it is no higher than the
 * bound or than another part that could not be brought lower.
 *
 * Whether a cap suffices is asked of the search (bnb_search.c) again and again, each time with a little more work, in
 * its modes in turn and with other ranks: how long a search takes depends wildly on its first decisions, this many
 * short ones find far more than a long one. Ranks are orders by load, width, area and size; once each has been tried in
 * each mode, disturbed a little by counted random numbers. First the bound is probed, because the less slack there is,
 * the more follows from each decision; then the bound and a height halfway to it from the best peak, by turns, and
 * nearer to that peak when a round of runs has found nothing.
 */
#include "place/bnb_priv.h"
#include "place/search.h"

#define N_ROUND (N_ORDERS * EBB_BNB_N_MODES) /* runs */
#define N_LOW_DIVES 2u                       /* work of the first runs: this many times all items without a step back */
#define N_HIGH_DIVES 8u                      /* and above the bound */
#define GROW 32                              /* a run gets more than the last by this part */
#define EXCESS_PARTS 64
#define MAX_BRIEF_ITEMS 512u
#define BRIEF_WORK_AN_ITEM ((uint64_t)1280)
#define BRIEF_PARTS 64u                 /* of all work, of which it may take one */
#define MAX_REASONS ((uint64_t)1 << 22) /* words, and as many again */

typedef struct part {
    ebb_bnb b;
    const uint32_t *item; /* [b.n] in the problem */
    uint64_t *key;        /* [b.n], for sorting */
    uint32_t *idx;
    uint64_t *fullness;   /* [b.n]: load of the fullest section */
    unsigned size_shift;  /* shifted so, sizes have 32 bits */
    int64_t lower, upper; /* no lower peak is possible; the best peak so far */
} part;

typedef struct lowering {
    const ebb_sections *sections;
    const ebb_place_bnb_options *options;
    uint64_t *offsets;
    uint32_t cut;    /* no item crosses this section's beginning */
    uint32_t *order; /* [n_items]: by their first section after the cut */
    uint64_t lower_bytes, peak_bytes, work;
} lowering;

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* ---- ranks and caps --------------------------------------------------------------------------- */

#define N_RANK_KEYS 3u
#define N_ORDERS 4u
typedef enum rank_key { BY_LOAD, BY_WIDTH, BY_AREA, BY_SIZE } rank_key;

static uint32_t width_of(const part *p, uint32_t item) {
    return p->b.range[item].last - p->b.range[item].first;
}

/* In 1024ths. */
static uint64_t key_of(const part *p, uint32_t item, rank_key key) {
    const uint64_t width = width_of(p, item), size = (uint64_t)(p->b.size[item] >> p->size_shift);
    return (key == BY_WIDTH ? width : key == BY_SIZE ? size : width * size) * 1024;
}

/* The greatest first by one of the orders, disturbed by up to 30 % if that is asked for, but for the load, which many
 * have in common. */
static ebb_status make_rank(part *p, const ebb_mem *mem, uint64_t n_th, bool is_disturbed) {
    static const rank_key orders[N_ORDERS][N_RANK_KEYS] = {{BY_LOAD, BY_WIDTH, BY_AREA},
                                                           {BY_WIDTH, BY_AREA, BY_LOAD},
                                                           {BY_AREA, BY_WIDTH, BY_LOAD},
                                                           {BY_SIZE, BY_AREA, BY_LOAD}};
    ebb_rng rng;
    ebb__rng_init(&rng, n_th, 0);
    for (uint32_t i = 0; i < p->b.n; i++) { p->idx[i] = i; }
    for (unsigned k = N_RANK_KEYS; k-- > 0;) {
        const rank_key by = orders[n_th % N_ORDERS][k];
        for (uint32_t i = 0; i < p->b.n; i++) {
            const uint64_t noise = is_disturbed ? ebb__rng_below(&rng, 308) : 0;
            const uint64_t key = by == BY_LOAD ? p->fullness[i] : key_of(p, i, by);
            p->key[i] = UINT64_MAX - (by == BY_LOAD ? key : key + key / 1024 * noise);
        }
        EBB_TRY(ebb__sort_by_key(mem, p->idx, p->b.n, p->key));
    }
    for (uint32_t i = 0; i < p->b.n; i++) {
        EBB_ASSERT(p->idx[i] < p->b.n);
        p->b.rank[p->idx[i]] = i;
    }
    return EBB_OK;
}

/* ---- a part ----------------------------------------------------------------------------------- */

static void keep(lowering *l, part *p) {
    p->upper = 0;
    for (uint32_t i = 0; i < p->b.n; i++) {
        const int64_t end = p->b.offset[i] + p->b.size[i];
        if (end > p->upper) { p->upper = end; }
        l->offsets[p->item[i]] = (uint64_t)p->b.offset[i];
    }
    EBB_ASSERT(p->upper <= p->b.cap);
}

/* A round: each order in each mode, and from the second on disturbed. */
typedef struct round {
    uint64_t n_th, max_work;
} round;

/* Whether all items fit below the cap, by the next run of a round. */
static ebb_status run(lowering *l, part *p, round *r, int64_t cap) {
    EBB_ASSERT(cap >= p->lower && cap < p->upper && l->work < l->options->max_work);
    EBB_TRY(make_rank(p, l->sections->mem, r->n_th / EBB_BNB_N_MODES, r->n_th >= N_ROUND));
    p->b.mode = (ebb_bnb_mode)(r->n_th % EBB_BNB_N_MODES);
    p->b.cap = cap;
    p->b.max_work = ebb_min_u64(r->max_work, l->options->max_work - l->work);
    const ebb_bnb_verdict verdict = ebb__bnb_run(&p->b);
    if (verdict == EBB_BNB_YES) { keep(l, p); }
    if (verdict == EBB_BNB_NO) { p->lower = p->b.cap + 1; }
    EBB_ASSERT(p->lower <= p->upper); /* it was not proved that what is there cannot be */
    l->work += p->b.work + 16 * (uint64_t)p->b.n;
    r->max_work += 1 + r->max_work / GROW;
    r->n_th++;
    return EBB_OK;
}

/* Until it is no higher than target, or work is through. From the second round on every other run tries to take away
 * only a part of what is above the lowest peak that is looked for: a half, half as much after each round of these that
 * has not succeeded, and a half again when that has come to a granule. */
static ebb_status lower_part(lowering *l, part *p, int64_t target) {
    const uint64_t dive = (uint64_t)p->b.n * ebb__bnb_step_work(&p->b, (ebb_place_range){0, p->b.m});
    const uint64_t first = l->options->n_before * N_ROUND * 1024; /* other ranks than before */
    round low = {first, N_LOW_DIVES * dive}, high = {first, N_HIGH_DIVES * dive};
    int64_t n_parts = EXCESS_PARTS / 2;
    EBB_ASSERT(dive > 0 && target >= 0);
    for (uint64_t n_runs = 0; p->upper > p->lower && p->upper > target; n_runs++) {
        if (l->work >= l->options->max_work || l->options->stop(l->options->stop_ctx)) { return EBB_OK; }
        const int64_t lowest = p->lower > target ? p->lower : target, upper = p->upper;
        if (n_runs < N_ROUND || n_runs % 2 == 0) {
            EBB_TRY(run(l, p, &low, lowest));
            continue;
        }
        const int64_t less = n_parts > 0 ? (upper - lowest) / (EXCESS_PARTS / n_parts) : 0; /* both powers of two */
        EBB_TRY(run(l, p, &high, upper - (less > 0 ? less : 1)));
        if (p->upper < upper) {
            high.n_th = first;
        } else if (high.n_th % N_ROUND == 0) {
            n_parts = less > 1 ? n_parts / 2 : EXCESS_PARTS / 2;
        }
    }
    return EBB_OK;
}

/* Sections from here on that items of the part live in, in the order after the cut. */
static uint32_t after_cut(const lowering *l, uint32_t section) {
    EBB_ASSERT(section < l->sections->n);
    return ebb__place_distance(l->sections->n, l->cut, section);
}

static ebb_place_range range_of(const lowering *l, uint32_t item) {
    const uint32_t first = after_cut(l, l->sections->range[item].first);
    return (ebb_place_range){first, first + ebb__place_n_sections(l->sections, item)};
}

static uint64_t end_of(const lowering *l, uint32_t item) {
    return l->offsets[item] + l->sections->rounded[item];
}

/* Too much for the search: its time would not pay, or its memory. */
static bool is_too_large(const lowering *l, const uint32_t *items, uint32_t n) {
    uint64_t n_lists = 0;
    if (n > EBB_BNB_MAX_ITEMS) { return true; }
    for (uint32_t i = 0; i < n; i++) {
        const ebb_place_range range = range_of(l, items[i]);
        n_lists += range.last - range.first;
        if (end_of(l, items[i]) >= EBB_BNB_TOO_HIGH) { return true; }
    }
    return n_lists * ((n + 63) / 64) > MAX_REASONS;
}

static ebb_status create_part(const lowering *l, ebb_bump *bump, const uint32_t *items, uint32_t n, part *p_out) {
    const uint32_t from = range_of(l, items[0]).first;
    EBB_ASSERT(n > 0 && n <= EBB_BNB_MAX_ITEMS);
    uint32_t to = from;
    for (uint32_t i = 0; i < n; i++) { to = larger(to, range_of(l, items[i]).last); }
    part p = {.item = items, .upper = 0};
    EBB_TRY(ebb__bnb_create(bump, n, to - from, &p.b));
    p.key = ebb__bump_alloc(bump, n, sizeof *p.key);
    p.idx = ebb__bump_alloc(bump, n, sizeof *p.idx);
    p.fullness = ebb__bump_alloc(bump, n, sizeof *p.fullness);
    if (p.key == NULL || p.idx == NULL || p.fullness == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) {
        const ebb_place_range range = range_of(l, items[i]);
        const int64_t end = (int64_t)end_of(l, items[i]);
        EBB_ASSERT(i == 0 || range.first >= range_of(l, items[i - 1]).first);
        p.b.range[i] = (ebb_place_range){range.first - from, range.last - from};
        p.b.size[i] = (int64_t)l->sections->rounded[items[i]];
        p.upper = end > p.upper ? end : p.upper;
    }
    while (p.upper >> p.size_shift > UINT32_MAX) { p.size_shift++; }
    p.b.stop = l->options->stop;
    p.b.stop_ctx = l->options->stop_ctx;
    p.b.most_work = l->options->max_work;
    EBB_TRY(ebb__bnb_prepare(&p.b, bump));
    for (uint32_t t = 0; t < p.b.m; t++) {
        EBB_ASSERT(p.b.load[t] > 0 && p.b.load[t] <= l->sections->bound_bytes);
        p.lower = (int64_t)ebb_max_u64((uint64_t)p.lower, p.b.load[t]);
    }
    EBB_ASSERT(p.lower <= p.upper);
    for (uint32_t i = 0; i < n; i++) {
        p.fullness[i] = 0;
        for (uint32_t t = p.b.range[i].first; t < p.b.range[i].last; t++) {
            p.fullness[i] = ebb_max_u64(p.fullness[i], p.b.load[t]);
        }
    }
    *p_out = p;
    return EBB_OK;
}

/* ---- all parts -------------------------------------------------------------------------------- */

static ebb_status handle_part(lowering *l, const uint32_t *items, uint32_t n) {
    uint64_t peak_bytes = 0;
    for (uint32_t i = 0; i < n; i++) { peak_bytes = ebb_max_u64(peak_bytes, end_of(l, items[i])); }
    if (peak_bytes <= l->peak_bytes || is_too_large(l, items, n)) {
        l->peak_bytes = ebb_max_u64(l->peak_bytes, peak_bytes);
        return EBB_OK;
    }
    ebb_bump bump;
    part p;
    ebb__bump_init(&bump, l->sections->mem);
    ebb_status st = create_part(l, &bump, items, n, &p);
    if (st == EBB_OK) { st = lower_part(l, &p, (int64_t)l->peak_bytes); }
    if (st == EBB_OK) {
        l->peak_bytes = ebb_max_u64(l->peak_bytes, (uint64_t)p.upper);
        l->lower_bytes = ebb_max_u64(l->lower_bytes, (uint64_t)p.lower);
    }
    ebb__bump_fini(&bump);
    return st;
}

/* From one section that no item crosses the beginning of to the next. */
static ebb_status handle_parts(lowering *l) {
    uint32_t begin = 0, end = 0; /* the part's first item; where its items end */
    for (uint32_t i = 0; i < l->sections->n_items; i++) {
        const ebb_place_range range = range_of(l, l->order[i]);
        if (range.first >= end && i > begin) {
            EBB_TRY(handle_part(l, l->order + begin, i - begin));
            begin = i;
        }
        end = larger(end, range.last);
    }
    return begin < l->sections->n_items ? handle_part(l, l->order + begin, l->sections->n_items - begin) : EBB_OK;
}

/* A section whose beginning no item crosses; false if none exists. */
static bool find_cut(const lowering *l, uint32_t *n_crossing, uint32_t *cut_out) {
    const ebb_sections *sections = l->sections;
    memset(n_crossing, 0, ((size_t)sections->n + 1) * sizeof *n_crossing);
    for (size_t i = 0; i < sections->n_items; i++) { /* differences, modulo 2^32 */
        const ebb_place_range range = sections->range[i];
        n_crossing[range.first + 1]++;
        n_crossing[range.last]--;
        n_crossing[0] += range.first >= range.last;
    }
    uint32_t n = 0;
    for (uint32_t t = 0; t < sections->n; t++) {
        n += n_crossing[t];
        EBB_ASSERT(n <= sections->n_items);
        if (n > 0) { continue; }
        *cut_out = t;
        return true;
    }
    return false;
}

/* Items in the order after the cut, if there is one. */
static ebb_status prepare(lowering *l, ebb_bump *bump, bool *has_cut_out) {
    const ebb_sections *sections = l->sections;
    uint64_t *key = ebb__bump_alloc(bump, sections->n_items, sizeof *key);
    uint32_t *n_crossing = ebb__bump_alloc(bump, (size_t)sections->n + 1, sizeof *n_crossing);
    l->order = ebb__bump_alloc(bump, sections->n_items, sizeof *l->order);
    if (key == NULL || n_crossing == NULL || l->order == NULL) { return EBB_E_NO_MEMORY; }
    *has_cut_out = find_cut(l, n_crossing, &l->cut);
    if (!*has_cut_out) { return EBB_OK; }
    for (uint32_t i = 0; i < sections->n_items; i++) {
        const ebb_place_range range = range_of(l, i);
        l->order[i] = i;
        key[i] = (uint64_t)range.first << 32 | (UINT32_MAX - range.last);
    }
    return ebb__sort_by_key(sections->mem, l->order, sections->n_items, key);
}

ebb_status ebb__place_bnb(const ebb_sections *sections, const ebb_place_bnb_options *options, uint64_t *offsets,
                          ebb_place_bnb_result *result) {
    ebb_bump bump;
    ebb__bump_init(&bump, sections->mem);
    lowering l = {.sections = sections, .options = options, .offsets = offsets, .lower_bytes = sections->bound_bytes};
    bool has_cut = false;
    l.peak_bytes = ebb_max_u64(sections->bound_bytes, options->enough_bytes); /* nothing below is of use */
    ebb_status st = prepare(&l, &bump, &has_cut);
    if (st == EBB_OK && has_cut) { st = handle_parts(&l); }
    if (st == EBB_OK) {
        EBB_ASSERT(l.lower_bytes >= sections->bound_bytes && l.lower_bytes <= l.peak_bytes);
        result->bound_bytes = l.lower_bytes;
        result->work = l.work;
    }
    ebb__bump_fini(&bump);
    return st;
}

static ebb_status search_exactly(ebb_search *s, uint64_t max_work) {
    const size_t n = s->sections->n_items;
    const ebb_place_bnb_options options = {
        .enough_bytes = s->enough_bytes,
        .n_before = s->n_exact,
        .max_work = max_work,
        .stop = s->job->stop,
        .stop_ctx = s->job->stop_ctx,
    };
    ebb_place_bnb_result result = {0};
    EBB_ASSERT(s->best.peak_bytes != UINT64_MAX);
    memcpy(s->now.offsets, s->best.offsets, n * sizeof *s->now.offsets);
    s->now.is_order = false;
    EBB_TRY(ebb__place_bnb(s->sections, &options, s->now.offsets, &result));
    s->work += result.work;
    s->proved_bytes = ebb_max_u64(s->proved_bytes, result.bound_bytes);
    s->now.peak_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        s->now.peak_bytes = ebb_max_u64(s->now.peak_bytes, s->now.offsets[i] + s->sections->rounded[i]);
    }
    EBB_ASSERT(s->now.peak_bytes <= s->best.peak_bytes && s->now.peak_bytes >= s->proved_bytes);
    (void)ebb__search_keep(s);
    return EBB_OK;
}

/* Before all that takes long: of so few items, others find what its first runs do after ten times the work, if at all.
 */
ebb_status ebb__search_exact_briefly(ebb_search *s) {
    const size_t n = s->sections->n_items;
    if (n > MAX_BRIEF_ITEMS || ebb__search_is_over(s, s->max_work)) { return EBB_OK; }
    return search_exactly(s, ebb_min_u64(ebb__search_left(s) / BRIEF_PARTS, BRIEF_WORK_AN_ITEM * n));
}

/* Of few items this is the stage most likely to succeed, so half of the work is its own, and what others leave. */
ebb_status ebb__search_exact(ebb_search *s) {
    const uint64_t left = ebb__search_left(s);
    const bool is_first = s->n_exact == 0;
    if (ebb__search_is_over(s, s->max_work) || (is_first && s->sections->n_items > EBB_BNB_MAX_ITEMS)) {
        return EBB_OK;
    }
    EBB_TRY(search_exactly(s, is_first ? left / 2 : left));
    s->n_exact++;
    return EBB_OK;
}
