/* SPDX-License-Identifier: Apache-2.0
 *
 * The solver `best` where single items have alignments, fixed offsets or gaps. A plain problem goes straight to best.c.
 *
 * 1. The problem is made plain: all bytes held all the time, in units of the common multiple of all alignments, above
 *    all that is fixed. (Gaps that only say that items live around the end of all time make it a circle.) It is solved
 *    so, which yields a placement whatever the problem. Where there are no gaps, nothing is fixed and all sizes are
 *    whole units, nothing is lost by it: in any placement the items can sink, lowest first, until each lies at the
 *    bottom or on another, and then all offsets are sums of sizes.
 * 2. Greedy orders, each item into a gap among the parts of those before it.
 * 3. The problem is made loose: nothing fixed or aligned, each part an item of its own. What holds for it holds for the
 *    problem, so a bound that the search proves is one; and from the lowest up is an order to place the problem in.
 * 4. Ejection (eject_parts.c), under lower and lower caps.
 * 5. Repair: what sticks out above the bound goes first, and all is placed again; where that no longer helps, some of
 *    what ends at the peak goes earlier, by lot. An order that is no worse is kept and changed further.
 *
 * It ends as best.c does, by work that is counted.
 */
#include "place/place_priv.h"

#define MAX_FAILED_REPAIRS 20u /* in a row */
#define PLAIN_SHARE 4u         /* of the work, if it is not all */
#define LOOSE_SHARE 4u         /* of what is left */
#define ORDER_SHARE 2u         /* of what is left */
#define ASK_EVERY 4096u        /* steps of a filling, whether to stop */

typedef enum order_key { BY_SIZE, BY_LIFETIME, BY_BIRTH, BY_AREA, N_KEYS } order_key;

static const struct {
    order_key key;
    ebb_place_fit fit;
} orders[] = {
    {BY_SIZE, EBB_PLACE_TIGHTEST},     {BY_SIZE, EBB_PLACE_LOWEST},    {BY_LIFETIME, EBB_PLACE_LOWEST},
    {BY_LIFETIME, EBB_PLACE_TIGHTEST}, {BY_BIRTH, EBB_PLACE_TIGHTEST}, {BY_AREA, EBB_PLACE_LOWEST},
};

typedef struct solver {
    const ebb_place_job *job;
    ebb_bump *bump;
    ebb_parts parts;
    uint32_t *idx;      /* [n_items]: the order at hand */
    uint32_t *kept_idx; /* [n_items]: the one that is changed further */
    ebb_place_fit kept_fit;
    uint64_t *kept_offsets;
    uint64_t *key;
    uint64_t *offsets, *best; /* [n_items]: of the order at hand; the best */
    uint64_t kept_peak_bytes, peak_bytes, bound_bytes;
    uint64_t work, max_work;
    ebb_rng rng;
} solver;

static bool is_done(const solver *s) {
    return s->peak_bytes <= ebb_max_u64(s->bound_bytes, s->job->enough_bytes);
}

static bool is_over(const solver *s, uint64_t work) {
    return is_done(s) || s->work >= work || s->job->stop(s->job->stop_ctx);
}

static void keep_better(solver *s, uint64_t peak_bytes) {
    EBB_ASSERT(peak_bytes >= s->bound_bytes);
    if (peak_bytes >= s->peak_bytes) { return; }
    s->peak_bytes = peak_bytes;
    memcpy(s->best, s->offsets, s->parts.problem->n_items * sizeof *s->best);
}

/* ---- as a plain problem ----------------------------------------------------------------------- */

typedef struct reduction {
    ebb_place_problem problem; /* in units */
    ebb_place_item *items;
    uint64_t unit_bytes, base_bytes;
    bool is_exact;        /* what is best for it is best for the problem */
    bool is_circle;       /* gaps are no more: time goes round, from ... */
    uint64_t first, last; /* ... to */
} reduction;

/* One above the other: always valid, and what check_problem left room for. */
static void stack_all(solver *s, uint64_t base_bytes) {
    uint64_t top = base_bytes;
    for (size_t i = 0; i < s->parts.problem->n_items; i++) {
        s->offsets[i] = ebb__place_is_fixed(s->parts.problem, i) ? s->parts.problem->fixed[i] : 0;
        if (s->parts.top[i] == 0 || ebb__place_is_fixed(s->parts.problem, i)) { continue; }
        const uint64_t alignment = s->parts.alignment[i];
        s->offsets[i] = (top + alignment - 1) / alignment * alignment;
        EBB_ASSERT(s->offsets[i] >= top && s->offsets[i] % alignment == 0);
        top = s->offsets[i] + s->parts.top[i];
    }
    keep_better(s, ebb_max_u64(top, s->parts.bound_bytes));
}

/* Whether all gaps only say that an item lives around the end: of all the problem's time it lacks one stretch. */
static bool is_circle(const ebb_place_problem *p, uint64_t *first_out, uint64_t *last_out) {
    uint64_t first = UINT64_MAX, last = 0;
    for (size_t i = 0; i < p->n_items && p->period == 0; i++) {
        first = ebb_min_u64(first, p->items[i].first);
        last = ebb_max_u64(last, p->items[i].last);
    }
    *first_out = p->period == 0 ? first : 0;
    *last_out = p->period == 0 ? last : p->period;
    for (size_t g = 0; g < p->n_gaps; g++) {
        const ebb_place_gap *gap = &p->gaps[g];
        const ebb_place_item *item = &p->items[gap->item];
        if (gap->low_bytes != gap->high_bytes || (g > 0 && gap[-1].item == gap->item)) { return false; }
        if (item->first != *first_out || item->last != *last_out) { return false; }
    }
    return true;
}

/* unit_bytes is 0 when there is no common multiple that leaves all within 63 bits. */
static void measure(const solver *s, reduction *plain) {
    const ebb_place_problem *p = s->parts.problem;
    uint64_t unit = p->alignment_bytes, total_bytes = 0, waste_bytes = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        if (s->parts.top[i] == 0) { continue; }
        total_bytes += s->parts.top[i];
        if (ebb__place_is_fixed(p, i)) {
            plain->base_bytes = ebb_max_u64(plain->base_bytes, p->fixed[i] + s->parts.top[i]);
        } else if (unit != 0) {
            unit = ebb__place_common_multiple(unit, s->parts.alignment[i]);
        }
    }
    const bool fits = unit != 0 && ebb_mul_u64(unit, p->n_items + 1, &waste_bytes) &&
                      waste_bytes < ((uint64_t)1 << 63) - ebb_min_u64(total_bytes, ((uint64_t)1 << 63) - 1) &&
                      plain->base_bytes < ((uint64_t)1 << 63) - total_bytes - waste_bytes;
    plain->unit_bytes = fits ? unit : 0;
    plain->is_circle = p->n_gaps > 0 && is_circle(p, &plain->first, &plain->last);
    plain->is_exact = plain->base_bytes == 0 && (p->n_gaps == 0 || plain->is_circle);
}

static void make_plain(const solver *s, reduction *plain) {
    const ebb_place_problem *p = s->parts.problem;
    const uint64_t unit = plain->unit_bytes;
    for (size_t i = 0; i < p->n_items; i++) {
        const uint64_t bytes = ebb__place_is_fixed(p, i) ? 0 : s->parts.top[i];
        plain->items[i] = p->items[i];
        plain->items[i].size_bytes = (bytes + unit - 1) / unit;
        plain->is_exact = plain->is_exact && bytes % unit == 0;
    }
    EBB_ASSERT(unit > 0 && unit % p->alignment_bytes == 0);
    plain->base_bytes = (plain->base_bytes + unit - 1) / unit * unit;
    plain->problem = EBB_PLACE_PROBLEM_INIT;
    plain->problem.items = plain->items;
    plain->problem.n_items = p->n_items;
    plain->problem.period = p->period;
    if (!plain->is_circle) { return; }
    EBB_ASSERT(plain->first < plain->last);
    plain->problem.period = plain->last - plain->first;
    for (size_t i = 0; i < p->n_items; i++) {
        const ebb_place_item it = p->items[i];
        plain->items[i].first = it.first - plain->first;
        plain->items[i].last = it.last - plain->first;
    }
    for (size_t g = 0; g < p->n_gaps; g++) {
        plain->items[p->gaps[g].item].first = p->gaps[g].last - plain->first;
        plain->items[p->gaps[g].item].last = p->gaps[g].first - plain->first;
        EBB_ASSERT(p->gaps[g].last - plain->first <= plain->problem.period);
    }
}

static ebb_status solve_plain(solver *s, reduction *plain) {
    const ebb_place_problem *p = s->parts.problem;
    make_plain(s, plain);
    ebb_place_job job = *s->job;
    ebb_place_result result = {0};
    job.problem = &plain->problem;
    if (!plain->is_exact) { job.max_steps = 1 + job.max_steps / PLAIN_SHARE; }
    job.enough_bytes =
        job.enough_bytes < plain->base_bytes ? 0 : (job.enough_bytes - plain->base_bytes) / plain->unit_bytes;
    EBB_TRY(ebb__place_best(&job, s->offsets, &result));
    uint64_t peak_bytes = s->parts.bound_bytes; /* the highest fixed one's end, if that is higher */
    for (size_t i = 0; i < p->n_items; i++) {
        const bool is_fixed = ebb__place_is_fixed(p, i);
        EBB_ASSERT(s->offsets[i] <= (UINT64_MAX - plain->base_bytes) / plain->unit_bytes);
        s->offsets[i] = is_fixed ? p->fixed[i] : s->offsets[i] * plain->unit_bytes + plain->base_bytes;
        if (s->parts.top[i] == 0 && !is_fixed) { s->offsets[i] = 0; }
        if (s->parts.top[i] > 0) { peak_bytes = ebb_max_u64(peak_bytes, s->offsets[i] + s->parts.top[i]); }
    }
    keep_better(s, peak_bytes);
    s->work += result.n_steps;
    EBB_ASSERT(result.peak_bytes >= result.bound_bytes && s->peak_bytes <= peak_bytes);
    if (plain->is_exact) { s->bound_bytes = ebb_max_u64(s->bound_bytes, result.bound_bytes * plain->unit_bytes); }
    return EBB_OK;
}

/* ---- orders ----------------------------------------------------------------------------------- */

/* Bytes by sections. */
static uint64_t held_area_of(const ebb_parts *parts, size_t item) {
    uint64_t sum = 0;
    for (size_t k = parts->first[item]; k < parts->first[item + 1]; k++) {
        const uint64_t n_sections = ebb__place_length(parts->n_sections, parts->part[k].range);
        uint64_t area = 0;
        if (!ebb_mul_u64(parts->part[k].high_bytes - parts->part[k].low_bytes, n_sections, &area) ||
            !ebb_add_u64(sum, area, &sum)) {
            return UINT64_MAX;
        }
    }
    return sum;
}

static uint64_t key_of(const solver *s, size_t item, order_key key) {
    const ebb_place_problem *p = s->parts.problem;
    const ebb_place_item *it = &p->items[item];
    switch (key) {
    case BY_SIZE: return UINT64_MAX - s->parts.top[item];
    case BY_LIFETIME: return UINT64_MAX - ebb__place_life_length(p->period, it);
    case BY_BIRTH: return it->first;
    case BY_AREA: return UINT64_MAX - held_area_of(&s->parts, item);
    case N_KEYS: break;
    }
    return 0;
}

static ebb_status sort_by(solver *s, order_key key) {
    for (size_t i = 0; i < s->parts.problem->n_items; i++) { s->key[i] = key_of(s, i, key); }
    return ebb__sort_by_key(s->parts.mem, s->idx, s->parts.problem->n_items, s->key);
}

/* Ties: larger, then longer, then first in the problem. */
static ebb_status make_order(solver *s, order_key key) {
    for (size_t i = 0; i < s->parts.problem->n_items; i++) { s->idx[i] = (uint32_t)i; }
    EBB_TRY(sort_by(s, BY_LIFETIME));
    EBB_TRY(sort_by(s, BY_SIZE));
    return sort_by(s, key);
}

/* In the order at hand; *peak_out is UINT64_MAX where it was given up: at this peak, or with the work. */
static ebb_status fill_all(solver *s, ebb_place_fit fit, uint64_t give_up_bytes, uint64_t *peak_out) {
    ebb_bump bump;
    ebb_fill fill = {0};
    ebb__bump_init(&bump, s->job->mem);
    ebb_status st = ebb__fill_begin(&s->parts, &bump, s->offsets, &fill);
    *peak_out = UINT64_MAX;
    size_t i = 0;
    const size_t n = s->parts.problem->n_items;
    uint64_t asked_work = 0;
    for (; st == EBB_OK && i < n && fill.peak_bytes < give_up_bytes; i++) {
        const uint64_t work = ebb__taken_work(fill.taken);
        if (s->work + work > s->max_work) { break; }
        if (work - asked_work >= ASK_EVERY) { /* with a gap below each item this takes O(n^2) */
            asked_work = work;
            if (s->job->stop(s->job->stop_ctx)) { break; }
        }
        st = ebb__fill_put(&fill, s->idx[i], 0, fit);
    }
    if (st == EBB_OK) {
        s->work += ebb__taken_work(fill.taken) + n;
        EBB_ASSERT(fill.peak_bytes < (uint64_t)1 << 63);
        if (i == n && fill.peak_bytes < give_up_bytes) {
            *peak_out = fill.peak_bytes;
            keep_better(s, fill.peak_bytes);
        }
    }
    ebb__bump_fini(&bump);
    return st;
}

/* Keep an order that is no worse, so that changes add up. */
static void keep_order(solver *s, ebb_place_fit fit, uint64_t peak_bytes) {
    if (peak_bytes > s->kept_peak_bytes || peak_bytes == UINT64_MAX) { return; }
    EBB_ASSERT(peak_bytes >= s->peak_bytes && s->peak_bytes >= s->bound_bytes);
    s->kept_peak_bytes = peak_bytes;
    s->kept_fit = fit;
    memcpy(s->kept_idx, s->idx, s->parts.problem->n_items * sizeof *s->idx);
    memcpy(s->kept_offsets, s->offsets, s->parts.problem->n_items * sizeof *s->offsets);
}

/* By ascending offset of the best: each then lies where it did or lower. */
static ebb_status settle(solver *s) {
    uint64_t peak_bytes = 0;
    for (size_t i = 0; i < s->parts.problem->n_items; i++) {
        s->idx[i] = (uint32_t)i;
        s->key[i] = s->best[i];
    }
    EBB_TRY(ebb__sort_by_key(s->parts.mem, s->idx, s->parts.problem->n_items, s->key));
    EBB_TRY(fill_all(s, EBB_PLACE_LOWEST, UINT64_MAX, &peak_bytes));
    keep_order(s, EBB_PLACE_LOWEST, peak_bytes);
    return EBB_OK;
}

static ebb_status try_orders(solver *s) {
    const uint64_t end = s->work + (s->max_work - ebb_min_u64(s->work, s->max_work)) / ORDER_SHARE;
    if (is_over(s, end)) { return EBB_OK; }
    EBB_TRY(settle(s));
    for (size_t k = 0; k < sizeof orders / sizeof orders[0] && !is_over(s, end); k++) {
        uint64_t peak_bytes = 0;
        EBB_TRY(make_order(s, orders[k].key));
        EBB_TRY(fill_all(s, orders[k].fit, ebb_max_u64(s->kept_peak_bytes, 1), &peak_bytes));
        keep_order(s, orders[k].fit, peak_bytes);
    }
    return EBB_OK;
}

/* ---- as a loose problem ----------------------------------------------------------------------- */

/* Parts, or where gaps only make a circle the items, and whose they are. */
typedef struct relaxation {
    ebb_place_problem problem; /* in multiples of the problem's alignment */
    ebb_place_item *items;
    uint32_t *owner;
    uint64_t *low, *offsets;
} relaxation;

static void relax_item(const solver *s, const reduction *plain, size_t i, relaxation *loose) {
    const uint64_t align = s->parts.problem->alignment_bytes;
    for (size_t k = s->parts.first[i]; k < s->parts.first[i + 1]; k++) {
        const ebb_place_part *part = &s->parts.part[k];
        const size_t n = loose->problem.n_items;
        loose->owner[n] = (uint32_t)i;
        loose->low[n] = part->low_bytes / align;
        loose->items[n] =
            (ebb_place_item){(part->high_bytes - part->low_bytes) / align, part->range.first, part->range.last};
        EBB_ASSERT(part->low_bytes % align == 0 && loose->items[n].size_bytes > 0);
        loose->problem.n_items++;
        if (!plain->is_circle) { continue; }
        loose->items[n] = plain->items[i];
        loose->items[n].size_bytes = s->parts.top[i] / align;
        return;
    }
}

static ebb_status relax(const solver *s, const reduction *plain, ebb_bump *bump, relaxation *loose) {
    const size_t n = s->parts.problem->n_items, n_parts = s->parts.first[n];
    loose->items = ebb__bump_alloc(bump, n_parts, sizeof *loose->items);
    loose->owner = ebb__bump_alloc(bump, n_parts, sizeof *loose->owner);
    loose->low = ebb__bump_alloc(bump, n_parts, sizeof *loose->low);
    loose->offsets = ebb__bump_alloc(bump, n_parts, sizeof *loose->offsets);
    if (loose->items == NULL || loose->owner == NULL || loose->low == NULL || loose->offsets == NULL) {
        return EBB_E_NO_MEMORY;
    }
    loose->problem = EBB_PLACE_PROBLEM_INIT;
    loose->problem.items = loose->items;
    loose->problem.period = plain->is_circle ? plain->problem.period : s->parts.n_sections;
    if (s->parts.problem->period == 0 && !plain->is_circle) { loose->problem.period = 0; }
    for (size_t i = 0; i < n; i++) { relax_item(s, plain, i, loose); }
    EBB_ASSERT(loose->problem.n_items <= n_parts);
    return EBB_OK;
}

/* The items from the lowest up: an item lies where its largest part does. */
static ebb_status sort_by_loose(solver *s, const relaxation *loose) {
    const size_t n = s->parts.problem->n_items;
    uint64_t largest_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        s->idx[i] = (uint32_t)i;
        s->key[i] = 0;
    }
    for (size_t k = 0; k < loose->problem.n_items; k++) {
        const bool is_next = k == 0 || loose->owner[k] != loose->owner[k - 1];
        const uint64_t offset = loose->offsets[k], low = loose->low[k], bytes = loose->items[k].size_bytes;
        if (!is_next && bytes <= largest_bytes) { continue; }
        EBB_ASSERT(loose->owner[k] < n && bytes > 0);
        largest_bytes = bytes;
        s->key[loose->owner[k]] = offset > low ? offset - low : 0;
    }
    return ebb__sort_by_key(s->parts.mem, s->idx, n, s->key);
}

static ebb_status solve_loose(solver *s, const reduction *plain, ebb_bump *bump) {
    const uint64_t align = s->parts.problem->alignment_bytes;
    relaxation loose = {.items = NULL};
    ebb_place_job job = *s->job;
    ebb_place_result result = {0};
    uint64_t peak_bytes = 0;
    EBB_TRY(relax(s, plain, bump, &loose));
    job.problem = &loose.problem;
    job.max_steps = 1 + (s->max_work - ebb_min_u64(s->work, s->max_work)) / LOOSE_SHARE;
    job.enough_bytes /= align;
    EBB_TRY(ebb__place_best(&job, loose.offsets, &result));
    s->work += result.n_steps;
    EBB_ASSERT(result.bound_bytes <= result.peak_bytes && result.bound_bytes * align <= s->peak_bytes);
    s->bound_bytes = ebb_max_u64(s->bound_bytes, result.bound_bytes * align);
    EBB_TRY(sort_by_loose(s, &loose));
    EBB_TRY(fill_all(s, EBB_PLACE_LOWEST, UINT64_MAX, &peak_bytes));
    keep_order(s, EBB_PLACE_LOWEST, peak_bytes);
    return EBB_OK;
}

static ebb_status try_loose(solver *s, const reduction *plain) {
    ebb_bump bump;
    if (is_over(s, s->max_work)) { return EBB_OK; }
    ebb__bump_init(&bump, s->job->mem);
    const ebb_status st = solve_loose(s, plain, &bump);
    ebb__bump_fini(&bump);
    return st;
}

/* ---- repair ----------------------------------------------------------------------------------- */

/* Items that stick out come first, in the order in which they were. */
static ebb_status lift(solver *s) {
    for (size_t i = 0; i < s->parts.problem->n_items; i++) {
        s->key[i] = s->offsets[i] + s->parts.top[i] > s->bound_bytes ? 0 : 1;
    }
    return ebb__sort_by_key(s->parts.mem, s->idx, s->parts.problem->n_items, s->key);
}

/* A few go to places before their own: mostly of those that end at the peak. */
static void draw_changes(solver *s) {
    const ebb_parts *parts = &s->parts;
    const size_t n = parts->problem->n_items;
    for (uint64_t k = 1 + ebb__rng_below(&s->rng, 3); k > 0; k--) {
        const bool any = ebb__rng_below(&s->rng, 4) == 0;
        size_t from = ebb__rng_below(&s->rng, n);
        for (size_t i = 0; i < n && !any; i++, from = (from + 1) % n) {
            if (s->kept_offsets[s->idx[from]] + parts->top[s->idx[from]] == s->kept_peak_bytes) { break; }
        }
        const size_t to = ebb__rng_below(&s->rng, from + 1);
        EBB_ASSERT(from < n && to <= from);
        const uint32_t moved = s->idx[from];
        memmove(&s->idx[to + 1], &s->idx[to], (from - to) * sizeof *s->idx);
        s->idx[to] = moved;
    }
}

static ebb_status repair(solver *s, uint64_t end) {
    const size_t n = s->parts.problem->n_items;
    unsigned n_failed = 0;
    uint64_t peak_bytes = 0;
    memcpy(s->idx, s->kept_idx, n * sizeof *s->idx);
    memcpy(s->offsets, s->kept_offsets, n * sizeof *s->offsets);
    while (!is_over(s, end)) {
        const uint64_t before_bytes = s->kept_peak_bytes;
        if (n_failed < MAX_FAILED_REPAIRS) {
            EBB_TRY(lift(s));
            EBB_TRY(fill_all(s, s->kept_fit, UINT64_MAX, &peak_bytes));
        } else {
            memcpy(s->idx, s->kept_idx, n * sizeof *s->idx);
            draw_changes(s);
            EBB_TRY(fill_all(s, s->kept_fit, s->kept_peak_bytes + 1, &peak_bytes));
        }
        keep_order(s, s->kept_fit, peak_bytes);
        EBB_ASSERT(s->kept_peak_bytes <= before_bytes && s->kept_peak_bytes >= s->peak_bytes);
        n_failed = s->kept_peak_bytes < before_bytes ? 0 : n_failed + 1;
    }
    return EBB_OK;
}

/* ---- ejection --------------------------------------------------------------------------------- */

static ebb_status eject_all(solver *s, ebb_ejector *ejector, uint64_t end) {
    const uint64_t begin = s->work, n = s->parts.problem->n_items;
    for (uint64_t n_parts = EBB_EJECT_FIRST_PARTS; n_parts > 0 && !is_over(s, end);) {
        const ebb_place_eject_options options = {.cap_bytes =
                                                     ebb__place_eject_cap(s->bound_bytes, s->peak_bytes, n_parts),
                                                 .max_work = (end - begin) / EBB_N_EJECTIONS + 1,
                                                 .job = s->job};
        uint64_t peak_bytes = 0;
        memcpy(s->offsets, s->best, n * sizeof *s->offsets);
        ebb__ejector_run(ejector, &options, s->offsets, &peak_bytes, &s->work);
        EBB_ASSERT(peak_bytes <= options.cap_bytes || peak_bytes == UINT64_MAX);
        n_parts = ebb__place_eject_next_parts(n_parts, peak_bytes < s->peak_bytes);
        keep_better(s, peak_bytes);
    }
    return EBB_OK;
}

static ebb_status try_ejection(solver *s, uint64_t end) {
    ebb_bump bump;
    ebb_ejector *ejector = NULL;
    if (is_over(s, end)) { return EBB_OK; }
    ebb__bump_init(&bump, s->job->mem);
    ebb_status st = ebb__ejector_create(&s->parts, &bump, &ejector, &s->work);
    if (st == EBB_OK && ejector != NULL) { st = eject_all(s, ejector, end); }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status prepare(solver *s) {
    const size_t n = s->job->problem->n_items;
    EBB_TRY(ebb__place_split(s->job->problem, s->bump, &s->parts));
    s->idx = ebb__bump_alloc(s->bump, n, sizeof *s->idx);
    s->kept_idx = ebb__bump_alloc(s->bump, n, sizeof *s->kept_idx);
    s->key = ebb__bump_alloc(s->bump, n, sizeof *s->key);
    s->offsets = ebb__bump_alloc(s->bump, n, sizeof *s->offsets);
    s->kept_offsets = ebb__bump_alloc(s->bump, n, sizeof *s->kept_offsets);
    s->best = ebb__bump_alloc(s->bump, n, sizeof *s->best);
    const bool ok = s->idx != NULL && s->kept_idx != NULL && s->key != NULL && s->offsets != NULL &&
                    s->kept_offsets != NULL && s->best != NULL;
    s->peak_bytes = s->kept_peak_bytes = UINT64_MAX;
    s->max_work = s->job->max_steps;
    ebb__rng_init(&s->rng, 1, 0);
    return ok ? EBB_OK : EBB_E_NO_MEMORY;
}

/* Fixed items that overlap are said before anything else is done. */
static ebb_status check_fixed(solver *s) {
    ebb_bump bump;
    ebb_fill fill = {0};
    ebb__bump_init(&bump, s->job->mem);
    const ebb_status st =
        s->job->problem->fixed == NULL ? EBB_OK : ebb__fill_begin(&s->parts, &bump, s->offsets, &fill);
    ebb__bump_fini(&bump);
    return st;
}

static ebb_status solve(solver *s) {
    reduction plain = {0};
    EBB_TRY(prepare(s));
    EBB_TRY(check_fixed(s));
    measure(s, &plain);
    plain.items = ebb__bump_alloc(s->bump, s->job->problem->n_items, sizeof *plain.items);
    if (plain.items == NULL) { return EBB_E_NO_MEMORY; }
    if (plain.unit_bytes == 0) {
        stack_all(s, plain.base_bytes);
        plain.is_circle = false;
    } else {
        EBB_TRY(solve_plain(s, &plain));
        if (plain.is_exact) { return EBB_OK; }
    }
    EBB_TRY(try_orders(s));
    EBB_TRY(try_loose(s, &plain));
    if (is_over(s, s->max_work) || s->kept_peak_bytes == UINT64_MAX) { return EBB_OK; }
    EBB_ASSERT(s->work < s->max_work && s->peak_bytes > s->bound_bytes);
    EBB_TRY(try_ejection(s, s->max_work));
    return repair(s, s->max_work);
}

ebb_status ebb__place_any(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    if (ebb__place_is_plain(job->problem)) { return ebb__place_best(job, offsets, result); }
    EBB_TRY(ebb_place_bound(job->problem, job->mem, &result->bound_bytes));
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    solver s = {.job = job, .bump = &bump, .bound_bytes = result->bound_bytes};
    const ebb_status st = solve(&s);
    if (st == EBB_OK) {
        EBB_ASSERT(s.peak_bytes >= s.bound_bytes && s.bound_bytes >= result->bound_bytes);
        memcpy(offsets, s.best, job->problem->n_items * sizeof *offsets);
        *result = (ebb_place_result){.peak_bytes = s.peak_bytes, .bound_bytes = s.bound_bytes, .n_steps = s.work};
    }
    ebb__bump_fini(&bump);
    return st;
}
