/* SPDX-License-Identifier: Apache-2.0
 *
 * An arena that is filled one item after the other, whatever the problem: first what is fixed, then each item into a
 * gap among those that are there.
 */
#include "place/place_priv.h"

typedef unsigned long long ull;

static ebb_status take(ebb_fill *fill, size_t item, uint64_t offset) {
    const ebb_parts *parts = fill->parts;
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

/* The item does not fit where it is fixed: name the first that is in its way. */
static ebb_status say_overlap(const ebb_parts *parts, size_t item) {
    size_t other = 0;
    while (other < item && !(ebb__place_is_fixed(parts->problem, other) && collide(parts, other, item))) { other++; }
    EBB_ASSERT(other < item);
    return ebb_fail(EBB_E_NO_FIT, "items %zu and %zu overlap where they are fixed, at offsets %llu and %llu", other,
                    item, (ull)parts->problem->fixed[other], (ull)parts->problem->fixed[item]);
}

static ebb_status take_fixed(ebb_fill *fill, size_t item) {
    const uint64_t offset = fill->parts->problem->fixed[item];
    fill->offsets[item] = offset;
    if (fill->parts->top[item] == 0) { return EBB_OK; }
    if (ebb__taken_find_parts(fill->taken, fill->parts, item, offset, EBB_PLACE_LOWEST) != offset) {
        return say_overlap(fill->parts, item);
    }
    return take(fill, item, offset);
}

/* ---- filling ---------------------------------------------------------------------------------- */

ebb_status ebb__fill_begin(const ebb_parts *parts, ebb_bump *bump, uint64_t *offsets, ebb_fill *fill_out) {
    ebb_fill fill = {.parts = parts, .offsets = offsets};
    EBB_TRY(ebb__taken_create(bump, parts->n_sections, &fill.taken));
    EBB_TRY(ebb__taken_reserve(fill.taken, parts->max_parts));
    for (size_t i = 0; i < parts->problem->n_items; i++) {
        offsets[i] = 0;
        if (ebb__place_is_fixed(parts->problem, i)) { EBB_TRY(take_fixed(&fill, i)); }
    }
    *fill_out = fill;
    return EBB_OK;
}

ebb_status ebb__fill_put(ebb_fill *fill, size_t item, uint64_t base, ebb_place_fit fit) {
    if (fill->parts->top[item] == 0 || ebb__place_is_fixed(fill->parts->problem, item)) { return EBB_OK; }
    return take(fill, item, ebb__taken_find_parts(fill->taken, fill->parts, item, base, fit));
}
