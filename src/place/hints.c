/* SPDX-License-Identifier: Apache-2.0
 *
 * Offsets that the caller prefers, given where that costs nothing: an answer is there already, and its peak stays.
 *
 * Items without a wish keep their offsets. The others, larger first, go to their wish if it is free. The rest go back
 * to where they were or, where that is taken now, into the lowest gap below the peak. One that finds none is put back
 * before any wish is heard, and all is tried again, some rounds long; after them, or when the work is done that may be,
 * the answer stays as it was.
 */
#include "place/place_priv.h"

#define MAX_ROUNDS 8u
#define WORK_SHARE 8u    /* of what the search might do ... */
#define WORK_AN_ITEM 64u /* ... and so much more */

typedef struct wishes {
    const ebb_place_job *job;
    ebb_parts parts;
    const uint64_t *before; /* the answer */
    uint64_t peak_bytes;    /* its peak */
    uint32_t *by_offset;    /* [n_items] */
    uint32_t *idx;          /* [n]: what has a wish, larger first */
    size_t n;
    bool *waits;       /* [n_items]: it has a wish that may be heard */
    bool *is_there;    /* [n_items]: in the round at hand */
    uint64_t *offsets; /* [n_items]: of the round at hand */
    uint64_t work, max_work;
} wishes;

static bool is_over(const wishes *w, const ebb_fill *fill) {
    return w->work + ebb__taken_work(fill->taken) > w->max_work || w->job->stop(w->job->stop_ctx);
}

static bool has_wish(const wishes *w, size_t i) {
    const uint64_t hint = w->job->problem->hints[i], top_bytes = w->parts.top[i];
    if (hint == EBB_PLACE_ANYWHERE || top_bytes == 0 || ebb__place_is_fixed(w->job->problem, i)) { return false; }
    EBB_ASSERT(top_bytes <= w->peak_bytes);
    return hint != w->before[i] && hint % w->parts.alignment[i] == 0 && hint <= w->peak_bytes - top_bytes;
}

static ebb_status prepare(wishes *w, ebb_bump *bump) {
    const size_t n = w->job->problem->n_items;
    uint64_t *key = ebb__bump_alloc(bump, n, sizeof *key);
    EBB_TRY(ebb__place_split(w->job->problem, bump, &w->parts));
    w->by_offset = ebb__bump_alloc(bump, n, sizeof *w->by_offset);
    w->idx = ebb__bump_alloc(bump, n, sizeof *w->idx);
    w->waits = ebb__bump_alloc(bump, n, sizeof *w->waits);
    w->is_there = ebb__bump_alloc(bump, n, sizeof *w->is_there);
    w->offsets = ebb__bump_alloc(bump, n, sizeof *w->offsets);
    if (key == NULL || w->by_offset == NULL || w->idx == NULL || w->waits == NULL || w->is_there == NULL ||
        w->offsets == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        w->by_offset[i] = (uint32_t)i;
        w->waits[i] = has_wish(w, i);
        if (w->waits[i]) { w->idx[w->n++] = (uint32_t)i; }
        EBB_ASSERT(w->parts.top[i] == 0 || w->before[i] <= w->peak_bytes - w->parts.top[i]);
        key[i] = UINT64_MAX - w->parts.top[i];
    }
    EBB_TRY(ebb__sort_by_key(w->job->mem, w->idx, w->n, key));
    return ebb__sort_by_key(w->job->mem, w->by_offset, n, w->before);
}

static ebb_status put_if_free(wishes *w, ebb_fill *fill, size_t i, uint64_t offset) {
    return ebb__fill_put_at(fill, i, offset, &w->is_there[i]);
}

/* Each item that waits and is not there yet: at its wish, or where it was. */
static ebb_status put_waiting(wishes *w, ebb_fill *fill, const uint64_t *offsets) {
    for (size_t k = 0; k < w->n && !is_over(w, fill); k++) {
        const uint32_t i = w->idx[k];
        EBB_ASSERT(k == 0 || w->parts.top[w->idx[k - 1]] >= w->parts.top[i]);
        if (w->waits[i] && !w->is_there[i]) { EBB_TRY(put_if_free(w, fill, i, offsets[i])); }
    }
    return EBB_OK;
}

/* *met_out: all have a place below the peak. Otherwise those that have none wait no more. */
static ebb_status pass_round(wishes *w, ebb_fill *fill, bool *met_out) {
    const size_t n = w->job->problem->n_items;
    bool met = true;
    for (size_t i = 0; i < n; i++) { w->is_there[i] = ebb__place_is_fixed(w->job->problem, i); }
    for (size_t k = 0; k < n; k++) {
        const uint32_t i = w->by_offset[k];
        if (w->waits[i] || w->is_there[i] || w->parts.top[i] == 0) { continue; }
        EBB_TRY(put_if_free(w, fill, i, w->before[i]));
        EBB_ASSERT(w->is_there[i]);
    }
    EBB_TRY(put_waiting(w, fill, w->job->problem->hints));
    EBB_TRY(put_waiting(w, fill, w->before));
    for (size_t k = 0; k < w->n && !is_over(w, fill); k++) {
        const uint32_t i = w->idx[k];
        if (!w->waits[i] || w->is_there[i]) { continue; }
        EBB_TRY(ebb__fill_put(fill, i, 0, EBB_PLACE_LOWEST));
        if (fill->offsets[i] + w->parts.top[i] <= w->peak_bytes) { continue; }
        w->waits[i] = met = false;
    }
    *met_out = met && !is_over(w, fill);
    return EBB_OK;
}

static ebb_status hear(wishes *w, uint64_t *offsets, ebb_place_result *result) {
    bool met = false;
    for (unsigned k = 0; k < MAX_ROUNDS && !met && w->work <= w->max_work; k++) {
        ebb_bump bump;
        ebb_fill fill;
        ebb__bump_init(&bump, w->job->mem);
        ebb_status st = ebb__fill_begin(&w->parts, &bump, w->offsets, &fill);
        if (st == EBB_OK) { st = pass_round(w, &fill, &met); }
        if (st == EBB_OK) {
            w->work += ebb__taken_work(fill.taken) + w->job->problem->n_items;
            EBB_ASSERT(!met || fill.peak_bytes <= w->peak_bytes);
            if (met) { result->peak_bytes = fill.peak_bytes; }
        }
        ebb__bump_fini(&bump);
        if (st != EBB_OK) { return st; }
    }
    result->n_steps += w->work;
    if (met) { memcpy(offsets, w->offsets, w->job->problem->n_items * sizeof *offsets); }
    return EBB_OK;
}

ebb_status ebb__place_please(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    if (job->problem->hints == NULL || job->problem->n_items == 0) { return EBB_OK; }
    wishes w = {.job = job,
                .before = offsets,
                .peak_bytes = result->peak_bytes,
                .max_work = job->max_steps / WORK_SHARE + WORK_AN_ITEM * job->problem->n_items};
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    ebb_status st = prepare(&w, &bump);
    if (st == EBB_OK && w.n > 0) { st = hear(&w, offsets, result); }
    EBB_ASSERT(result->peak_bytes <= w.peak_bytes && result->peak_bytes >= result->bound_bytes);
    ebb__bump_fini(&bump);
    return st;
}
