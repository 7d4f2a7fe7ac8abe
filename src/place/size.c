/* SPDX-License-Identifier: Apache-2.0
 *
 * The solver `size`: largest first, each into the tightest gap that is left for all its life; of equal sizes the longer
 * life first. So do the planners of TensorFlow Lite (simple_memory_arena) and, when it packs by size, XLA
 * (heap_simulator); Pisarchyk and Lee, 'Efficient memory management for deep neural net inference', 2020, compare it
 * with others.
 *
 * No better than O(n^2) where items leave gaps beside each of them; on the items of networks near O(n log n).
 */
#include "place/place_priv.h"

static ebb_status fill_all(const ebb_place_job *job, ebb_bump *bump, uint64_t *offsets, ebb_place_result *result) {
    const ebb_place_problem *p = job->problem;
    ebb_parts parts;
    ebb_fill fill;
    uint32_t *idx = ebb__bump_alloc(bump, p->n_items, sizeof *idx);
    uint64_t *key = ebb__bump_alloc(bump, p->n_items, sizeof *key);
    if (idx == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < p->n_items; i++) {
        idx[i] = (uint32_t)i;
        key[i] = UINT64_MAX - ebb__place_life_length(p->period, &p->items[i]);
    }
    EBB_TRY(ebb__sort_by_key(job->mem, idx, p->n_items, key));
    for (size_t i = 0; i < p->n_items; i++) { key[i] = UINT64_MAX - p->items[i].size_bytes; }
    EBB_TRY(ebb__sort_by_key(job->mem, idx, p->n_items, key));
    EBB_TRY(ebb__place_split(p, bump, &parts));
    EBB_TRY(ebb__fill_begin(&parts, bump, offsets, &fill));
    uint64_t asked_work = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        EBB_TRY(ebb__place_go_on(job, ebb__taken_work(fill.taken), &asked_work));
        EBB_TRY(ebb__place_stay_below(job, fill.peak_bytes));
        EBB_TRY(ebb__fill_put(&fill, idx[i], 0, EBB_PLACE_TIGHTEST));
    }
    EBB_ASSERT(fill.peak_bytes >= parts.bound_bytes);
    result->peak_bytes = fill.peak_bytes;
    result->n_steps = ebb__taken_work(fill.taken);
    return EBB_OK;
}

ebb_status ebb__place_by_size(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    const ebb_status st = fill_all(job, &bump, offsets, result);
    ebb__bump_fini(&bump);
    return st;
}
