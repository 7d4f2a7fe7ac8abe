/* SPDX-License-Identifier: Apache-2.0
 *
 * What a placement problem may say, and its lower bound.
 *
 * Sizes and what alignments may waste add up to less than 2^63 bytes, those of items that may move even above the
 * highest that is fixed. So a greedy order never leaves 63 bits: each item raises the end of all by its size and its
 * alignment at most.
 */
#include "place/item_name.h"
#include "place/place_priv.h"

#define TOO_LARGE ((uint64_t)1 << 63)
#define MIN_BOUND_WORK ((uint64_t)1000 * 1000) /* for what fixed items say, at most */
#define BOUND_WORK_AN_ITEM 16u

typedef unsigned long long ull;

/* ---- alignments and fixed offsets ------------------------------------------------------------- */

uint64_t ebb__place_common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) { /* many processors take several times as long for 64 bits as for 32 */
        const uint64_t rest = (a | b) >> 32 == 0 ? (uint32_t)a % (uint32_t)b : a % b;
        EBB_ASSERT(rest < b);
        a = b;
        b = rest;
    }
    return a;
}

uint64_t ebb__place_common_multiple(uint64_t a, uint64_t b) {
    uint64_t multiple = 0;
    EBB_ASSERT(a > 0 && b > 0);
    return ebb_mul_u64(a / ebb__place_common_divisor(a, b), b, &multiple) && multiple < TOO_LARGE ? multiple : 0;
}

uint64_t ebb__place_alignment(const ebb_place_problem *problem, size_t item) {
    if (problem->alignments == NULL || problem->alignments[item] == 1) { return problem->alignment_bytes; }
    return ebb__place_common_multiple(problem->alignment_bytes, problem->alignments[item]);
}

bool ebb__place_is_fixed(const ebb_place_problem *problem, size_t item) {
    return problem->fixed != NULL && problem->fixed[item] != EBB_PLACE_ANYWHERE;
}

bool ebb__place_is_plain(const ebb_place_problem *problem) {
    for (size_t i = 0; i < problem->n_items; i++) {
        if (ebb__place_is_fixed(problem, i)) { return false; }
        if (problem->alignments != NULL && problem->alignment_bytes % problem->alignments[i] != 0) { return false; }
    }
    return problem->n_gaps == 0;
}

/* ---- the rules -------------------------------------------------------------------------------- */

static ebb_status bad_item(const ebb_place_problem *problem, size_t idx, const char *why) {
    const ebb_place_item *item = &problem->items[idx];
    return ebb_fail(EBB_E_ARGUMENT, "item %s (%llu bytes, [%llu, %llu)): %s", ebb__item_name(problem, idx).text,
                    (ull)item->size_bytes, (ull)item->first, (ull)item->last, why);
}

static ebb_status check_life(const ebb_place_problem *problem, size_t i) {
    const ebb_place_item *item = &problem->items[i];
    if (problem->period == 0 && item->first >= item->last) { return bad_item(problem, i, "it lives at no time"); }
    if (problem->period != 0 && (item->first > problem->period || item->last > problem->period)) {
        return bad_item(problem, i, "it lives beyond the period");
    }
    return EBB_OK;
}

/* What all items may need at most, and those that are not fixed. */
typedef struct demand {
    uint64_t total_bytes, movable_bytes;
} demand;

static ebb_status check_size(const ebb_place_problem *problem, size_t i, demand *all) {
    const ebb_place_item *item = &problem->items[i];
    const uint64_t align = problem->alignment_bytes;
    uint64_t wasted_bytes = 0;
    if (problem->alignments != NULL) {
        if (problem->alignments[i] == 0) { return bad_item(problem, i, "an alignment of 0"); }
        const uint64_t multiple = ebb__place_alignment(problem, i);
        if (multiple == 0) { return bad_item(problem, i, "an alignment of more than 63 bits"); }
        wasted_bytes = multiple - align;
    }
    EBB_ASSERT(all->movable_bytes <= all->total_bytes && all->total_bytes < TOO_LARGE);
    if (item->size_bytes >= TOO_LARGE || ebb_align_up(item->size_bytes, align) >= TOO_LARGE - all->total_bytes) {
        return bad_item(problem, i, "sizes add up to more than 63 bits");
    }
    const uint64_t held_bytes = ebb_align_up(item->size_bytes, align);
    if (wasted_bytes >= TOO_LARGE - all->total_bytes - held_bytes) {
        return bad_item(problem, i, "sizes and alignments add up to more than 63 bits");
    }
    all->total_bytes += held_bytes + wasted_bytes;
    if (!ebb__place_is_fixed(problem, i)) { all->movable_bytes += held_bytes + wasted_bytes; }
    return EBB_OK;
}

/* After all sizes: what is movable goes above the highest fixed item, at worst. */
static ebb_status check_fixed(const ebb_place_problem *problem, size_t i, uint64_t movable_bytes) {
    if (!ebb__place_is_fixed(problem, i)) { return EBB_OK; }
    const ebb_place_item *item = &problem->items[i];
    const uint64_t multiple = ebb__place_alignment(problem, i), offset = problem->fixed[i];
    if (offset % multiple != 0) {
        return ebb_fail(EBB_E_ARGUMENT, "item %s: its fixed offset %llu is not aligned to %llu",
                        ebb__item_name(problem, i).text, (ull)offset, (ull)multiple);
    }
    EBB_ASSERT(multiple > 0 && movable_bytes < TOO_LARGE);
    if (offset >= TOO_LARGE - movable_bytes - ebb_align_up(item->size_bytes, problem->alignment_bytes)) {
        return bad_item(problem, i, "its fixed offset leaves no room within 63 bits");
    }
    return EBB_OK;
}

static ebb_status bad_gap(const ebb_place_problem *problem, size_t idx, const char *why) {
    const ebb_place_gap *gap = &problem->gaps[idx];
    return ebb_fail(EBB_E_ARGUMENT, "gap %zu of item %s ([%llu, %llu), bytes [%llu, %llu)): %s", idx,
                    ebb__item_name(problem, gap->item).text, (ull)gap->first, (ull)gap->last, (ull)gap->low_bytes,
                    (ull)gap->high_bytes, why);
}

static ebb_status check_gap(const ebb_place_problem *problem, size_t g) {
    const ebb_place_gap *gap = &problem->gaps[g];
    if (gap->item >= problem->n_items) { return bad_gap(problem, g, "there is no such item"); }
    const ebb_place_item *item = &problem->items[gap->item];
    if (gap->first >= gap->last) { return bad_gap(problem, g, "it is at no time"); }
    if (item->first >= item->last) { return bad_gap(problem, g, "the item lives around the end"); }
    if (gap->first < item->first || gap->last > item->last) {
        return bad_gap(problem, g, "outside of the item's life");
    }
    if (gap->low_bytes > gap->high_bytes) { return bad_gap(problem, g, "its window is reversed"); }
    if (gap->high_bytes > item->size_bytes) { return bad_gap(problem, g, "its window goes beyond the item's size"); }
    if (g == 0 || gap[-1].item < gap->item) { return EBB_OK; }
    if (gap[-1].item > gap->item) { return bad_gap(problem, g, "gaps are not in the order of their items"); }
    return gap->first >= gap[-1].last ? EBB_OK : bad_gap(problem, g, "it begins before the one before it ends");
}

ebb_status ebb__place_check_problem(const ebb_place_problem *problem) {
    const uint64_t align = problem->alignment_bytes;
    demand all = {0};
    if (problem->size_bytes != sizeof *problem) { return ebb_fail(EBB_E_ARGUMENT, "a problem of another version"); }
    if (align == 0 || (align & (align - 1)) != 0 || align >= TOO_LARGE) {
        return ebb_fail(EBB_E_ARGUMENT, "an alignment of %llu bytes is %s", (ull)align,
                        align == TOO_LARGE ? "beyond 63 bits" : "not a power of two");
    }
    if ((problem->n_items > 0 && problem->items == NULL) || (problem->n_gaps > 0 && problem->gaps == NULL)) {
        return ebb_fail(EBB_E_ARGUMENT, "there are %zu items and %zu gaps, but items or gaps is NULL", problem->n_items,
                        problem->n_gaps);
    }
    if (problem->n_items >= UINT32_MAX / 2) { return ebb_fail(EBB_E_LIMIT, "more than 2^31 items"); }
    if (problem->n_gaps >= UINT32_MAX / 4 - problem->n_items / 2) {
        return ebb_fail(EBB_E_LIMIT, "more than 2^31 items and gaps");
    }
    for (size_t i = 0; i < problem->n_items; i++) {
        EBB_TRY(check_life(problem, i));
        EBB_TRY(check_size(problem, i, &all));
    }
    for (size_t i = 0; problem->fixed != NULL && i < problem->n_items; i++) {
        EBB_TRY(check_fixed(problem, i, all.movable_bytes));
    }
    for (size_t g = 0; g < problem->n_gaps; g++) { EBB_TRY(check_gap(problem, g)); }
    return EBB_OK;
}

/* ---- the bound -------------------------------------------------------------------------------- */

/* All offsets are multiples of one number. So items that live together are apart by their sizes in multiples of it, but
 * for the highest, whose last multiple may be in part. */
static ebb_status bound_by_alignment(const ebb_place_problem *problem, ebb_bump *bump, uint64_t *bound_bytes) {
    const size_t n = problem->n_items;
    uint64_t unit = 0, most_waste = 0;
    for (size_t i = 0; i < n; i++) {
        if (problem->items[i].size_bytes > 0) {
            unit = ebb__place_common_divisor(ebb__place_alignment(problem, i), unit);
        }
    }
    if (unit <= problem->alignment_bytes) { return EBB_OK; }
    ebb_place_item *items = ebb__bump_alloc(bump, n, sizeof *items);
    if (items == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        items[i] = problem->items[i];
        const uint64_t held_bytes = ebb_align_up(items[i].size_bytes, problem->alignment_bytes);
        items[i].size_bytes = (held_bytes + unit - 1) / unit * unit;
        EBB_ASSERT(items[i].size_bytes >= held_bytes && items[i].size_bytes - held_bytes < unit);
        most_waste = ebb_max_u64(most_waste, items[i].size_bytes - held_bytes);
    }
    ebb_place_problem rounded = EBB_PLACE_PROBLEM_INIT;
    ebb_sections sections;
    rounded.items = items;
    rounded.n_items = n;
    rounded.period = problem->period;
    EBB_TRY(ebb__place_cut(&rounded, bump, &sections));
    EBB_ASSERT(sections.bound_bytes % unit == 0);
    if (sections.bound_bytes > most_waste) {
        *bound_bytes = ebb_max_u64(*bound_bytes, sections.bound_bytes - most_waste);
    }
    return EBB_OK;
}

/* Where each item lies lowest among those that are fixed. */
static ebb_status bound_by_fixed(const ebb_parts *parts, ebb_bump *bump, uint64_t *bound_bytes) {
    const size_t n = parts->problem->n_items;
    size_t n_movable = 0;
    for (size_t i = 0; i < n; i++) { n_movable += ebb__place_is_fixed(parts->problem, i) ? 0 : 1; }
    if (n_movable == 0 || n_movable == n) { return EBB_OK; }
    ebb_fill fill;
    uint64_t *offsets = ebb__bump_alloc(bump, n, sizeof *offsets);
    if (offsets == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = ebb__fill_begin(parts, bump, offsets, &fill);
    if (st == EBB_E_NO_FIT) { return EBB_OK; } /* a bound of nothing: the solver says why */
    if (st != EBB_OK) { return st; }
    EBB_ASSERT(fill.peak_bytes <= *bound_bytes);
    *bound_bytes = ebb_max_u64(*bound_bytes, ebb__fill_bound(&fill, MIN_BOUND_WORK + BOUND_WORK_AN_ITEM * n));
    return EBB_OK;
}

static ebb_status find_bound(const ebb_place_problem *problem, ebb_bump *bump, uint64_t *bound_bytes) {
    if (problem->fixed == NULL && problem->n_gaps == 0) { /* parts would say the same in more memory */
        ebb_sections sections;
        EBB_TRY(ebb__place_cut(problem, bump, &sections));
        *bound_bytes = sections.bound_bytes;
    } else {
        ebb_parts parts;
        EBB_TRY(ebb__place_split(problem, bump, &parts));
        EBB_ASSERT(parts.first[problem->n_items] <= parts.max_parts * problem->n_items);
        *bound_bytes = parts.bound_bytes;
        if (problem->fixed != NULL) { EBB_TRY(bound_by_fixed(&parts, bump, bound_bytes)); }
    }
    const bool is_aligned = problem->alignments != NULL && problem->n_gaps == 0;
    return is_aligned ? bound_by_alignment(problem, bump, bound_bytes) : EBB_OK;
}

ebb_status ebb_place_bound(const ebb_place_problem *problem, const ebb_mem *mem, uint64_t *bound_bytes_out) {
    EBB_NEED(problem);
    EBB_NEED(bound_bytes_out);
    EBB_TRY(ebb__place_check_problem(problem));
    ebb_bump bump;
    uint64_t bound_bytes = 0;
    ebb__bump_init(&bump, mem);
    const ebb_status st = find_bound(problem, &bump, &bound_bytes);
    EBB_ASSERT(st != EBB_OK || bound_bytes < TOO_LARGE);
    if (st == EBB_OK) { *bound_bytes_out = bound_bytes; }
    ebb__bump_fini(&bump);
    return st;
}
