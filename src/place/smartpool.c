/* SPDX-License-Identifier: Apache-2.0
 *
 * The solvers `smartpool-ff`, `smartpool-bf` and `smartpool-cyclic`: the pool of Zhang, Yeung, Shu, He and Wang,
 * 'Efficient memory management for GPU-based deep learning systems', arXiv 1903.06631, 2019, with the rules of its
 * authors' code: largest first, of equal sizes the earlier born; each goes into a gap among those of its time.
 *
 *          +-----------------------------+
 *          | all others                  |      -ff and -bf: what lives around the end of the iteration is placed by
 *          +-----------------------------+      itself and has its region twice, because the next iteration's comes
 *          | around the end, second copy |      before this one's goes. Here the placement uses the first copy alone;
 *          +-----------------------------+      the other is reserved, as it was there.
 *          | around the end              |
 *          +-----------------------------+      -cyclic, their pool for swapping: time is a circle, and there is one
 *          | lives always                |      region for all.
 *          +-----------------------------+
 *
 * First fit takes the lowest gap. Best fit takes the smallest between two that are taken, or goes above all; the gap
 * below the lowest counts only when there is no other. What lives always was allocated before that pool was planned;
 * here it lies below. With fixed offsets, of which the pool knew none, the twofold region begins above all of them.
 */
#include "place/place_priv.h"

/* Sets of items. */
enum { ALWAYS = 1u, AROUND = 2u, WITHIN = 4u };

typedef struct packing {
    const ebb_place_job *job;
    const ebb_place_problem *problem;
    ebb_fill fill;
    uint32_t *idx; /* [n_items]: in the order in which they are placed */
    uint64_t *key;
    uint64_t asked_work;
} packing;

static unsigned group_of(const ebb_place_problem *p, const ebb_place_item *item) {
    if (p->period == 0) { return WITHIN; }
    if (ebb__place_life_length(p->period, item) == p->period) { return ALWAYS; }
    return ebb__place_birth(p->period, item) > ebb__place_death(p->period, item) ? AROUND : WITHIN;
}

static ebb_status sort_items(packing *pool) {
    const ebb_mem *mem = pool->job->mem;
    const ebb_place_problem *p = pool->problem;
    for (size_t i = 0; i < p->n_items; i++) {
        pool->idx[i] = (uint32_t)i;
        pool->key[i] = p->items[i].first;
    }
    EBB_TRY(ebb__sort_by_key(mem, pool->idx, p->n_items, pool->key));
    for (size_t i = 0; i < p->n_items; i++) { pool->key[i] = UINT64_MAX - p->items[i].size_bytes; }
    return ebb__sort_by_key(mem, pool->idx, p->n_items, pool->key);
}

/* *end_out is the end of the highest of these items, or base if none exists. */
static ebb_status put_groups(packing *pool, unsigned groups, uint64_t base, ebb_place_fit fit, uint64_t *end_out) {
    const ebb_place_problem *p = pool->problem;
    uint64_t end = base;
    for (size_t k = 0; k < p->n_items; k++) {
        const uint32_t item = pool->idx[k];
        if ((group_of(p, &p->items[item]) & groups) == 0 || ebb__place_is_fixed(p, item)) { continue; }
        EBB_TRY(ebb__place_go_on(pool->job, ebb__taken_work(pool->fill.taken), &pool->asked_work));
        EBB_TRY(ebb__place_stay_below(pool->job, pool->fill.peak_bytes));
        EBB_TRY(ebb__fill_put(&pool->fill, item, base, fit));
        EBB_ASSERT(pool->fill.parts->top[item] == 0 || pool->fill.offsets[item] >= base);
        end = ebb_max_u64(end, pool->fill.offsets[item] + pool->fill.parts->top[item]);
    }
    *end_out = end;
    return EBB_OK;
}

static ebb_status put_apart(packing *pool, ebb_place_fit fit) {
    const uint64_t fixed_end = pool->fill.peak_bytes;
    uint64_t base = 0, end = 0;
    EBB_TRY(put_groups(pool, ALWAYS, 0, EBB_PLACE_LOWEST, &base));
    const uint64_t around_base = ebb_max_u64(base, fixed_end);
    EBB_TRY(put_groups(pool, AROUND, around_base, fit, &end));
    EBB_ASSERT(end >= around_base && around_base >= base);
    if (end > around_base) { base = end + (end - around_base); }
    EBB_ASSERT(base >= fixed_end || end == around_base);
    EBB_TRY(put_groups(pool, WITHIN, base, fit, &end));
    pool->fill.peak_bytes = ebb_max_u64(pool->fill.peak_bytes, base);
    return EBB_OK;
}

static ebb_status put_together(packing *pool, ebb_place_fit fit) {
    uint64_t base = 0, end = 0;
    EBB_TRY(put_groups(pool, ALWAYS, 0, EBB_PLACE_LOWEST, &base));
    return put_groups(pool, AROUND | WITHIN, base, fit, &end);
}

static ebb_status solve(const ebb_place_job *job, ebb_status (*put)(packing *pool, ebb_place_fit fit),
                        ebb_place_fit fit, uint64_t *offsets, ebb_place_result *result) {
    const size_t n = job->problem->n_items;
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    ebb_parts parts;
    packing pool = {.job = job,
                    .problem = job->problem,
                    .idx = ebb__bump_alloc(&bump, n, sizeof *pool.idx),
                    .key = ebb__bump_alloc(&bump, n, sizeof *pool.key)};
    ebb_status st = pool.idx != NULL && pool.key != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = sort_items(&pool); }
    if (st == EBB_OK) { st = ebb__place_split(job->problem, &bump, &parts); }
    if (st == EBB_OK) { st = ebb__fill_begin(&parts, &bump, offsets, &pool.fill); }
    if (st == EBB_OK) { st = put(&pool, fit); }
    if (st == EBB_OK) {
        EBB_ASSERT(pool.fill.peak_bytes >= parts.bound_bytes);
        result->peak_bytes = pool.fill.peak_bytes;
        result->n_steps = ebb__taken_work(pool.fill.taken);
    }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__place_smartpool_ff(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    return solve(job, put_apart, EBB_PLACE_LOWEST, offsets, result);
}

ebb_status ebb__place_smartpool_bf(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    return solve(job, put_apart, EBB_PLACE_BETWEEN, offsets, result);
}

ebb_status ebb__place_smartpool_cyclic(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    return solve(job, put_together, EBB_PLACE_BETWEEN, offsets, result);
}
