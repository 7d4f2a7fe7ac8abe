/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena that is filled one item after the other, whatever the problem: first what is fixed, then each item into a
 * gap among those that are there.
 */
#include "place/item_name.h"
#include "place/place_priv.h"

#define MAX_LOOKS ((size_t)100 * 1000 * 1000) /* at pairs of parts, for a message */

typedef unsigned long long ull;

static ebb_status take(ebb_fill *fill, size_t item, uint64_t offset) {
    const ebb_parts *parts = fill->parts;
    EBB_ASSERT(offset % parts->alignment[item] == 0);
    EBB_ASSERT(offset + parts->top[item] > offset); /* it holds something, and ends within 64 bits */
    for (size_t k = parts->first[item]; k < parts->first[item + 1]; k++) {
        const ebb_place_part *part = &parts->part[k];
        EBB_TRY(ebb__taken_add(fill->taken, part->range, offset + part->low_bytes, part->high_bytes - part->low_bytes));
    }
    fill->offsets[item] = offset;
    fill->peak_bytes = ebb_max_u64(fill->peak_bytes, offset + parts->top[item]);
    return EBB_OK;
}

/* ---- what is fixed ---------------------------------------------------------------------------- */

static bool collide(const ebb_parts *parts, size_t a, size_t b) {
    const uint64_t *fixed = parts->problem->fixed;
    for (size_t k = parts->first[a]; k < parts->first[a + 1]; k++) {
        for (size_t l = parts->first[b]; l < parts->first[b + 1]; l++) {
            const ebb_place_part *x = &parts->part[k], *y = &parts->part[l];
            const bool share_bytes = fixed[a] + x->low_bytes < fixed[b] + y->high_bytes &&
                                     fixed[b] + y->low_bytes < fixed[a] + x->high_bytes;
            if (share_bytes && ebb__place_share_time(x->range, y->range)) { return true; }
        }
    }
    return false;
}

static size_t n_parts_of(const ebb_parts *parts, size_t item) {
    return parts->first[item + 1] - parts->first[item];
}

/* The item does not fit where it is fixed: name another in its way, unless that is long to find. */
static ebb_status say_overlap(const ebb_parts *parts, size_t item) {
    const ebb_place_problem *p = parts->problem;
    const uint64_t *fixed = p->fixed;
    size_t other = 0, n_looks = 0;
    for (; other < p->n_items && n_looks < MAX_LOOKS; other++) {
        if (other == item || !ebb__place_is_fixed(p, other)) { continue; }
        n_looks += 1 + n_parts_of(parts, item) * n_parts_of(parts, other);
        if (n_looks < MAX_LOOKS && collide(parts, other, item)) { break; }
    }
    EBB_ASSERT(other < p->n_items || n_looks >= MAX_LOOKS);
    if (n_looks >= MAX_LOOKS) {
        return ebb_fail(EBB_E_NO_FIT, "item %s overlaps another where they are fixed, at offset %llu",
                        ebb__item_name(p, item).text, (ull)fixed[item]);
    }
    const size_t a = other < item ? other : item, b = other < item ? item : other;
    return ebb_fail(EBB_E_NO_FIT, "items %s and %s overlap where they are fixed, at offsets %llu and %llu",
                    ebb__item_name(p, a).text, ebb__item_name(p, b).text, (ull)fixed[a], (ull)fixed[b]);
}

static ebb_status take_fixed(ebb_fill *fill, size_t item) {
    const uint64_t offset = fill->parts->problem->fixed[item];
    bool done = false;
    fill->offsets[item] = offset;
    if (fill->parts->top[item] == 0) { return EBB_OK; }
    EBB_TRY(ebb__fill_put_at(fill, item, offset, &done));
    return done ? EBB_OK : say_overlap(fill->parts, item);
}

/* From the lowest up, so that what is taken grows at its end. */
static ebb_status take_all_fixed(ebb_fill *fill, ebb_bump *bump) {
    const ebb_place_problem *p = fill->parts->problem;
    uint32_t *idx = ebb__bump_alloc(bump, p->n_items, sizeof *idx);
    size_t n = 0;
    if (idx == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < p->n_items; i++) {
        if (ebb__place_is_fixed(p, i)) { idx[n++] = (uint32_t)i; }
    }
    EBB_TRY(ebb__sort_by_key(fill->parts->mem, idx, n, p->fixed));
    for (size_t k = 0; k < n; k++) { EBB_TRY(take_fixed(fill, idx[k])); }
    return EBB_OK;
}

/* ---- filling ---------------------------------------------------------------------------------- */

ebb_status ebb__fill_begin(const ebb_parts *parts, ebb_bump *bump, uint64_t *offsets, ebb_fill *fill_out) {
    ebb_fill fill = {.parts = parts, .offsets = offsets};
    EBB_TRY(ebb__taken_create(bump, parts->n_sections, &fill.taken));
    EBB_TRY(ebb__taken_reserve(fill.taken, parts->max_parts));
    for (size_t i = 0; i < parts->problem->n_items; i++) { offsets[i] = 0; }
    if (parts->problem->fixed != NULL) { EBB_TRY(take_all_fixed(&fill, bump)); }
    EBB_ASSERT(fill.peak_bytes <= parts->bound_bytes);
    *fill_out = fill;
    return EBB_OK;
}

uint64_t ebb__fill_bound(const ebb_fill *fill, uint64_t max_work) {
    const ebb_parts *parts = fill->parts;
    const uint64_t end = ebb__taken_work(fill->taken) + max_work;
    uint64_t bound_bytes = 0;
    for (size_t i = 0; i < parts->problem->n_items && ebb__taken_work(fill->taken) < end; i++) {
        if (parts->top[i] == 0 || ebb__place_is_fixed(parts->problem, i)) { continue; }
        const uint64_t lowest = ebb__taken_find_parts(fill->taken, parts, i, 0, EBB_PLACE_LOWEST);
        bound_bytes = ebb_max_u64(bound_bytes, lowest + parts->top[i]);
    }
    return bound_bytes;
}

ebb_status ebb__fill_put_at(ebb_fill *fill, size_t item, uint64_t offset, bool *done_out) {
    EBB_ASSERT(item < fill->parts->problem->n_items && fill->parts->top[item] > 0);
    *done_out = ebb__taken_find_parts(fill->taken, fill->parts, item, offset, EBB_PLACE_LOWEST) == offset;
    return *done_out ? take(fill, item, offset) : EBB_OK;
}

ebb_status ebb__fill_put(ebb_fill *fill, size_t item, uint64_t base, ebb_place_fit fit) {
    EBB_ASSERT(item < fill->parts->problem->n_items);
    if (fill->parts->top[item] == 0 || ebb__place_is_fixed(fill->parts->problem, item)) { return EBB_OK; }
    const uint64_t offset = ebb__taken_find_parts(fill->taken, fill->parts, item, base, fit);
    EBB_ASSERT(offset >= base);
    return take(fill, item, offset);
}
