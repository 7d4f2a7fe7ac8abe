/* SPDX-License-Identifier: Apache-2.0
 *
 * The solver 'best': stages, the cheapest first, of which the best placement is kept.
 *
 *     nested      two sweeps, longest first (here, sweep.c)
 *     briefly     of a few hundred items, the first runs of the stage 'exact' (bnb.c)
 *     summit      what lives at the fullest moment first (summit.c)
 *     quick fronts  of very many items, the stage 'fronts' in haste (fronts.c)
 *     hybrids     a sweep through time around obstacles; first one, then others (hybrids.c, hybrid.c)
 *     fronts      sweeps from the fullest moment in both directions; between the former (fronts.c, outward.c)
 *     sweeps      through time from several places of the circle, in both directions (here, sweep.c)
 *     orders      each item in turn into a gap among those before it (orders.c, taken.c)
 *     exact       a search of whether it fits below, again after all else (bnb.c)
 *     dives       from the bottom up under a cap (here, dive.c)
 *     repair      what sticks out goes first (orders.c)
 *     ejection    what sticks out is put back by force (here, eject.c)
 *
 * All this goes on until the lower bound is met, or the peak is good enough, or the work allowed is done. Work is
 * counted, not timed, so the same problem gives the same answer anywhere. The first sweep is gone through whatever it
 * takes, which is O(n log n).
 *
 * Of more than a few hundred thousand items, one sweep in each direction from the fullest moment comes first: lifetimes
 * of programs, and of the blocks that programs allocate, meet the bound there or are given up early. After it, a peak
 * within a third of a percent of the bound is good enough, unless the caller asks for a peak or for a number of steps:
 * a sweep or three around obstacles come there where anything does.
 *
 * That is the search in haste. Where it has not met the bound, the search that asks for more goes through all stages,
 * with the work that is left, and the better of the two answers counts. Neither is always the better one: among mallocs
 * the second often meets a bound that the first came near to, and is sometimes far worse. Of more than half a million
 * items or so, too little work is left for it to be better, and it is left out.
 */
#include "place/search.h"

#define N_CUTS 8u /* of the circle, for sweeps */
#define MAX_NESTED 200000u
#define MAX_PATIENT 200000u    /* items */
#define MANY 2000u             /* items */
#define DIVE_WORK_AN_ITEM 50u  /* at least */
#define FULL_WORK_AN_ITEM 100u /* likewise, of a search after the one in haste */

/* ---- sweeps and dives ------------------------------------------------------------------------- */

static ebb_status sweep(ebb_search *s, uint32_t eighth, bool backward) {
    const ebb_place_sweep_options options = {
        .idx = s->now.idx,
        .cut = (uint32_t)((uint64_t)s->sections->n * eighth / N_CUTS),
        .backward = backward,
        .give_up_bytes = s->best.peak_bytes,
    };
    EBB_ASSERT(eighth < N_CUTS);
    s->now.is_order = false;
    EBB_TRY(ebb__place_sweep(s->sections, &options, s->now.offsets, &s->now.peak_bytes, &s->work));
    (void)ebb__search_keep(s);
    return EBB_OK;
}

/* Where lifetimes nest, as training's do, one of these meets the bound at once. */
static ebb_status try_nested(ebb_search *s) {
    static const ebb_order longest = {{EBB_BY_LIFETIME, EBB_BY_SIZE}, EBB_PLACE_LOWEST, 0};
    if (s->sections->n_items > MAX_NESTED) { return EBB_OK; }
    EBB_TRY(ebb__search_sort(s, &longest));
    EBB_TRY(sweep(s, 0, false));
    return ebb__search_is_over(s, s->max_work) ? EBB_OK : sweep(s, 0, true);
}

static ebb_status try_sweeps(ebb_search *s) {
    static const ebb_order births[] = {{{EBB_BY_LIFETIME, EBB_BY_SIZE}, EBB_PLACE_LOWEST, 0},
                                       {{EBB_BY_SHORTNESS, EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0},
                                       {{EBB_BY_SIZE, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0}};
    static const uint32_t eighths[N_CUTS] = {0, 5, 6, 4, 2, 7, 3, 1};
    const uint64_t end = s->work + ebb__search_left(s) / 4;
    if (s->best.peak_bytes != UINT64_MAX && ebb__search_is_over(s, end)) { return EBB_OK; }
    for (size_t b = 0; b < sizeof births / sizeof births[0]; b++) {
        EBB_TRY(ebb__search_sort(s, &births[b]));
        for (size_t c = 0; c < 2 * N_CUTS; c++) {
            EBB_TRY(sweep(s, eighths[c / 2], c % 2 != 0));
            if (ebb__search_is_over(s, end)) { return EBB_OK; }
        }
    }
    return EBB_OK;
}

/* From the bottom up, ties by this order with noise, under a cap that leaves this many eighths of the excess.
 */
static ebb_status dive(ebb_search *s, const ebb_order *o, uint64_t n_eighths, uint64_t noise, ebb_rng *rng,
                       uint64_t max_work) {
    const uint64_t bound_bytes = s->sections->bound_bytes;
    EBB_ASSERT(n_eighths < 8 && s->best.peak_bytes > bound_bytes);
    EBB_TRY(ebb__search_sort(s, o));
    if (noise > 0) {
        for (size_t i = 0; i < s->sections->n_items; i++) { s->key[s->now.idx[i]] = i + ebb__rng_below(rng, noise); }
        EBB_TRY(ebb__sort_by_key(s->job->mem, s->now.idx, s->sections->n_items, s->key));
    }
    for (size_t i = 0; i < s->sections->n_items; i++) { s->key[s->now.idx[i]] = i; }
    const ebb_place_dive_options options = {
        .rank = s->key,
        .cap_bytes = bound_bytes + (s->best.peak_bytes - bound_bytes) / 8 * n_eighths,
        .give_up_bytes = s->best.peak_bytes,
        .max_work = max_work,
    };
    s->now.is_order = false;
    EBB_TRY(ebb__place_dive(s->sections, &options, s->now.offsets, &s->now.peak_bytes, &s->work));
    return ebb__search_keep(s) ? ebb__search_settle(s) : EBB_OK;
}

/* Each rank as it is, under the bound as cap where it is near, else under lower and lower ones; then with noise: ranks
 * are the same to a dive that fails, and a few places exchanged are often all that it lacks. Whatever is found narrows
 * the excess, and with it the caps. */
static ebb_status try_dives(ebb_search *s) {
    static const ebb_order ranks[] = {{{EBB_BY_LIFETIME, EBB_BY_AREA, EBB_BY_LOAD}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_LOAD, EBB_BY_AREA, EBB_BY_LIFETIME}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_LOAD, EBB_BY_LIFETIME, EBB_BY_AREA}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_SIZE, EBB_BY_AREA, EBB_BY_LOAD}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_AREA, EBB_BY_LIFETIME, EBB_BY_LOAD}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_BIRTH, EBB_BY_LIFETIME, EBB_BY_SIZE}, EBB_PLACE_LOWEST, 0},
                                      {{EBB_BY_LIFETIME, EBB_BY_SIZE, EBB_BY_LOAD}, EBB_PLACE_LOWEST, 0}};
    const bool is_near = ebb__search_is_near(s);
    const uint64_t end = s->work + ebb__search_left(s) / (is_near ? 2 : 5);
    const size_t n_ranks = sizeof ranks / sizeof ranks[0];
    if (end < s->work + DIVE_WORK_AN_ITEM * s->sections->n_items) { return EBB_OK; }
    ebb_rng rng;
    ebb__rng_init(&rng, 1, 0);
    for (uint64_t t = 0; !ebb__search_is_over(s, end); t++) {
        const ebb_order *o = &ranks[t % n_ranks];
        const bool is_systematic = t < (is_near ? 1 : 8) * n_ranks;
        const uint64_t n_eighths = is_systematic ? is_near ? 0 : 7 - t / n_ranks : ebb__rng_below(&rng, 8);
        const uint64_t noise = is_systematic ? 0 : s->sections->n_items >> (1 + ebb__rng_below(&rng, 6));
        EBB_TRY(dive(s, o, n_eighths, noise, &rng, end - s->work));
    }
    return EBB_OK;
}

/* ---- ejection --------------------------------------------------------------------------------- */

/* Of few items, a quarter of the work is left to the exact search. */
static ebb_status try_ejection(ebb_search *s) {
    const uint64_t bound = s->sections->bound_bytes, begin = s->work;
    EBB_ASSERT(s->best.peak_bytes != UINT64_MAX && s->best.peak_bytes >= bound);
    if (ebb__search_is_over(s, s->max_work)) { return EBB_OK; }
    const uint64_t left = s->max_work - begin, share = s->sections->n_items > MANY ? left : left / 4 * 3;
    for (uint64_t n_parts = EBB_EJECT_FIRST_PARTS; n_parts > 0 && !ebb__search_is_over(s, begin + share);) {
        const ebb_place_eject_options options = {.cap_bytes = ebb__place_eject_cap(bound, s->best.peak_bytes, n_parts),
                                                 .max_work = share / EBB_N_EJECTIONS + 1,
                                                 .job = s->job};
        EBB_ASSERT(options.cap_bytes >= bound && options.cap_bytes < s->best.peak_bytes);
        memcpy(s->now.offsets, s->best.offsets, s->sections->n_items * sizeof *s->now.offsets);
        s->now.is_order = false;
        EBB_TRY(ebb__place_eject(s->sections, &options, s->now.offsets, &s->now.peak_bytes, &s->work));
        n_parts = ebb__place_eject_next_parts(n_parts, ebb__search_keep(s));
    }
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static bool is_many(const ebb_compact *compact) {
    return compact->sections.n_items > MAX_PATIENT;
}

static ebb_status alloc_attempt(ebb_attempt *a, ebb_bump *bump, size_t n) {
    a->idx = ebb__bump_alloc(bump, n, sizeof *a->idx);
    a->offsets = ebb__bump_alloc(bump, n, sizeof *a->offsets);
    a->peak_bytes = UINT64_MAX;
    return a->idx != NULL && a->offsets != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status search(const ebb_place_job *job, const ebb_compact *compact, bool is_hasty, ebb_bump *bump,
                         ebb_search *s) {
    static ebb_status (*const stages[])(ebb_search * s) = {
        try_nested,          ebb__search_exact_briefly, ebb__search_summit,  ebb__search_quick_fronts,
        ebb__search_hybrids, ebb__search_fronts,        ebb__search_hybrids, try_sweeps,
        ebb__search_orders,  ebb__search_exact,         try_dives,           ebb__search_repair,
        try_ejection,        ebb__search_exact,
    };
    const uint64_t base = compact->base_bytes, enough = job->enough_bytes;
    *s = (ebb_search){.job = job,
                      .compact = compact,
                      .sections = &compact->sections,
                      .proved_bytes = compact->sections.bound_bytes,
                      .enough_bytes = enough > base ? (enough - base) / compact->granule_bytes : 0,
                      .is_many = is_many(compact),
                      .is_hasty = is_hasty,
                      .max_work = job->max_steps,
                      .bump = bump};
    EBB_TRY(alloc_attempt(&s->now, bump, compact->sections.n_items));
    EBB_TRY(alloc_attempt(&s->best, bump, compact->sections.n_items));
    s->key = ebb__bump_alloc(bump, compact->sections.n_items, sizeof *s->key);
    if (s->key == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        const uint64_t before = s->best.peak_bytes;
        EBB_TRY(stages[i](s));
        EBB_ASSERT(s->best.peak_bytes <= before && s->proved_bytes <= s->best.peak_bytes);
    }
    EBB_ASSERT(s->best.peak_bytes != UINT64_MAX);
    return EBB_OK;
}

/* With the work that the one in haste has left. */
static ebb_status search_in_full(const ebb_place_job *job, const ebb_compact *compact, ebb_bump *bump, ebb_search *s) {
    ebb_search full;
    ebb_place_job rest = *job;
    rest.max_steps -= ebb_min_u64(job->max_steps, s->work);
    if (rest.max_steps < FULL_WORK_AN_ITEM * compact->sections.n_items) { return EBB_OK; }
    if (ebb__search_is_over(s, UINT64_MAX)) { return EBB_OK; }
    EBB_TRY(search(&rest, compact, false, bump, &full));
    s->work += full.work;
    s->proved_bytes = ebb_max_u64(s->proved_bytes, full.proved_bytes);
    if (full.best.peak_bytes < s->best.peak_bytes) { s->best = full.best; }
    return EBB_OK;
}

static ebb_status search_all(const ebb_place_job *job, const ebb_compact *compact, ebb_bump *bump, ebb_search *s) {
    if (!job->is_default || !is_many(compact)) { return search(job, compact, false, bump, s); }
    ebb_place_job first = *job;
    first.max_steps = ebb_min_u64(job->max_steps, ebb__place_search_steps(job->problem->n_items));
    EBB_TRY(search(&first, compact, true, bump, s));
    s->enough_bytes = 0; /* near the bound was enough in haste only */
    return search_in_full(job, compact, bump, s);
}

/* Memory that is not needed after that is given back before the search begins. */
static ebb_status prepare(const ebb_place_job *job, ebb_bump *bump, ebb_compact *compact_out) {
    ebb_bump scratch;
    ebb_sections sections;
    ebb__bump_init(&scratch, job->mem);
    ebb_status st = ebb__place_cut(job->problem, &scratch, &sections);
    if (st == EBB_OK) { st = ebb__place_compact(&sections, bump, compact_out); }
    ebb__bump_fini(&scratch);
    return st;
}

ebb_status ebb__place_best(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    ebb_compact compact;
    ebb_search s;
    ebb_status st = prepare(job, &bump, &compact);
    if (st == EBB_OK) { st = search_all(job, &compact, &bump, &s); }
    if (st == EBB_OK) {
        EBB_ASSERT(s.best.peak_bytes <= (UINT64_MAX - compact.base_bytes) / compact.granule_bytes);
        ebb__place_expand(&compact, job->problem, s.best.offsets, offsets);
        result->peak_bytes = compact.base_bytes + s.best.peak_bytes * compact.granule_bytes;
        result->bound_bytes = compact.base_bytes + s.proved_bytes * compact.granule_bytes;
        result->n_steps = s.work;
    }
    ebb__bump_fini(&bump);
    return st;
}
