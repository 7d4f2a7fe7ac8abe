/* SPDX-License-Identifier: Apache-2.0
 *
 * The solvers `first-fit`, `best-fit` and `pytorch`: what an allocator does with the items that knows nothing of their
 * future. Births and deaths are gone through in order of time, at one time deaths first, else in the order of
 * the problem; the peak is the sum of the segments that it took, of which none is ever given back.
 *
 * best-fit    Nvidia's CnMem: sizes in granules of 512 bytes; the smallest free block that holds it, of equal ones the
 *             lowest; what is left of it stays free; where none will do, a segment of just this size; blocks
 *             join within their segment. It begins without a segment, or with one of the size that is asked for.
 * first-fit   the same, but the lowest free block that holds it.
 * pytorch     the caching allocator of PyTorch without settings and streams; its rules are in caching.c.
 *
 * An item holds its block through its gaps, as no allocator takes back a part. An alignment that the granule is no
 * multiple of is had by asking for that much more.
 *
 * The circle: what lives around the end is there at the beginning, allocated in order of birth, and goes and comes in
 * each period. Periods are replayed until one takes no new segment and gives all these their old offsets: from there on
 * each is like that one. Where that does not come within some periods, they keep their blocks all the time.
 */
#include "place/caching.h"
#include "place/segments.h"

#define GRANULE_BYTES ((uint64_t)512)
#define MAX_PERIODS 16u
#define TOO_LARGE ((uint64_t)1 << 61)

typedef struct replay {
    const ebb_place_job *job;
    const ebb_place_problem *problem;
    ebb_segments segments;
    void (*ask)(uint64_t granule_bytes, ebb_segment_request *request); /* size_bytes is there */
    uint64_t granule_bytes;
    uint32_t *event; /* [2 * n_items] in order of time; below n_items a death, else a birth */
    uint32_t *block; /* [n_items] */
    uint64_t *offsets;
    uint64_t peak_bytes, n_visits; /* of passes that are over */
    uint64_t asked_work;
} replay;

/* ---- allocators ------------------------------------------------------------------------------- */

static void ask_cnmem(uint64_t granule_bytes, ebb_segment_request *request) {
    (void)granule_bytes;
    request->segment_bytes = request->size_bytes;
    request->min_rest_bytes = 1;
}

static void ask_pytorch(uint64_t granule_bytes, ebb_segment_request *request) {
    static const ebb_caching_settings defaults = {.expandable_segments = false};
    ebb__caching_ask(&defaults, request);
    request->segment_bytes = ebb_align_up(request->segment_bytes, granule_bytes);
    EBB_ASSERT(request->segment_bytes >= request->size_bytes && request->size_bytes % granule_bytes == 0);
    if (request->pool == 0) { request->min_rest_bytes = granule_bytes; }
}

/* ---- items ------------------------------------------------------------------------------------ */

static bool lives_always(const ebb_place_problem *p, size_t i) {
    return p->period != 0 && ebb__place_life_length(p->period, &p->items[i]) == p->period;
}

static uint64_t birth_of(const ebb_place_problem *p, size_t i) {
    return ebb__place_birth(p->period, &p->items[i]);
}

static uint64_t death_of(const ebb_place_problem *p, size_t i) {
    return ebb__place_death(p->period, &p->items[i]);
}

static bool lives_around(const ebb_place_problem *p, size_t i) {
    return !lives_always(p, i) && birth_of(p, i) > death_of(p, i);
}

static ebb_status bear(replay *r, uint32_t item) {
    const ebb_place_problem *p = r->problem;
    const uint64_t alignment = ebb__place_alignment(p, item);
    const bool is_odd = r->granule_bytes % alignment != 0;
    ebb_segment_request request = {.size_bytes = p->items[item].size_bytes};
    if (is_odd) { request.size_bytes += alignment - p->alignment_bytes; }
    request.size_bytes = ebb_align_up(request.size_bytes, r->granule_bytes);
    EBB_ASSERT(request.size_bytes >= p->items[item].size_bytes && r->granule_bytes % GRANULE_BYTES == 0);
    r->ask(r->granule_bytes, &request);
    EBB_TRY(ebb__segments_take(&r->segments, &request, &r->block[item]));
    const ebb_block *block = &r->segments.blocks.data[r->block[item]];
    r->offsets[item] = is_odd ? (block->start + alignment - 1) / alignment * alignment : block->start;
    EBB_ASSERT(!block->is_free && r->offsets[item] % alignment == 0);
    EBB_ASSERT(r->offsets[item] + p->items[item].size_bytes <= block->start + block->size_bytes);
    return EBB_OK;
}

/* ---- time ------------------------------------------------------------------------------------- */

static ebb_status sort_events(replay *r, ebb_bump *bump) {
    const size_t n = r->problem->n_items;
    uint64_t *time = ebb__bump_alloc(bump, 2 * n, sizeof *time);
    r->event = ebb__bump_alloc(bump, 2 * n, sizeof *r->event);
    if (time == NULL || r->event == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        time[i] = death_of(r->problem, i);
        time[n + i] = birth_of(r->problem, i);
        r->event[i] = (uint32_t)i;
        r->event[n + i] = (uint32_t)(n + i);
    }
    return ebb__sort_by_key(bump->mem, r->event, 2 * n, time);
}

static ebb_status go_on(replay *r) {
    return ebb__place_go_on(r->job, r->n_visits + r->segments.n_visits, &r->asked_work);
}

/* The items that live before the first period. */
static ebb_status bear_residents(replay *r) {
    const size_t n = r->problem->n_items;
    for (size_t e = 0; e < 2 * n; e++) {
        EBB_TRY(go_on(r));
        if (r->event[e] < n) { continue; }
        const uint32_t item = r->event[e] - (uint32_t)n;
        if (r->problem->items[item].size_bytes == 0) { continue; }
        if (lives_always(r->problem, item) || lives_around(r->problem, item)) { EBB_TRY(bear(r, item)); }
    }
    return EBB_OK;
}

/* keep: what lives around the end keeps its block. *moved_out: one of them came back to another offset. */
static ebb_status pass_period(replay *r, bool keep, bool *moved_out) {
    const ebb_place_problem *p = r->problem;
    const size_t n = p->n_items;
    bool moved = false;
    for (size_t e = 0; e < 2 * n; e++) {
        const bool dies = r->event[e] < n;
        const uint32_t item = dies ? r->event[e] : r->event[e] - (uint32_t)n;
        const bool is_around = lives_around(p, item);
        if (p->items[item].size_bytes == 0 || lives_always(p, item) || (keep && is_around)) { continue; }
        EBB_TRY(go_on(r));
        if (dies) {
            ebb__segments_give(&r->segments, r->block[item]);
            continue;
        }
        const uint64_t before = r->offsets[item];
        EBB_TRY(bear(r, item));
        EBB_ASSERT(r->offsets[item] + p->items[item].size_bytes <= r->segments.total_bytes);
        moved = moved || (is_around && r->offsets[item] != before);
    }
    *moved_out = moved;
    return EBB_OK;
}

/* The state before any request. */
static ebb_status take_first_segment(replay *r) {
    uint32_t block = EBB_NO_BLOCK;
    const uint64_t bytes = r->job->first_segment_bytes;
    if (bytes == 0 || r->ask != ask_cnmem) { return EBB_OK; }
    if (bytes >= TOO_LARGE) { return ebb_fail(EBB_E_ARGUMENT, "a first segment of 2^61 bytes or more"); }
    const uint64_t size_bytes = ebb_align_up(bytes, r->granule_bytes);
    const ebb_segment_request request = {
        .size_bytes = size_bytes, .segment_bytes = size_bytes, .min_rest_bytes = r->granule_bytes};
    EBB_TRY(ebb__segments_take(&r->segments, &request, &block));
    ebb__segments_give(&r->segments, block);
    return EBB_OK;
}

static ebb_status pass_periods(replay *r, bool keep, bool *repeats_out) {
    bool repeats = r->problem->period == 0, moved = false;
    EBB_TRY(bear_residents(r));
    for (unsigned k = 0; k < MAX_PERIODS; k++) {
        const uint64_t total_bytes = r->segments.total_bytes;
        EBB_TRY(pass_period(r, keep, &moved));
        EBB_ASSERT(r->segments.total_bytes >= total_bytes && !(keep && moved));
        repeats = repeats || (!moved && r->segments.total_bytes == total_bytes);
        if (repeats) { break; }
    }
    *repeats_out = repeats || keep; /* then any period will do */
    return EBB_OK;
}

static ebb_status pass_time(replay *r, const ebb_mem *mem, ebb_place_fit fit, bool keep, bool *repeats_out) {
    for (size_t i = 0; i < r->problem->n_items; i++) { r->offsets[i] = 0; }
    ebb_status st = ebb__segments_init(&r->segments, mem, fit);
    if (st == EBB_OK) { st = take_first_segment(r); }
    if (st == EBB_OK) { st = pass_periods(r, keep, repeats_out); }
    r->peak_bytes = r->segments.total_bytes;
    r->n_visits += r->segments.n_visits;
    ebb__segments_fini(&r->segments);
    return st;
}

static ebb_status solve(const ebb_place_job *job, ebb_place_fit fit, replay *r, ebb_place_result *result) {
    bool repeats = false;
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    r->job = job;
    r->problem = job->problem;
    r->granule_bytes = ebb_max_u64(GRANULE_BYTES, job->problem->alignment_bytes);
    r->block = ebb__bump_alloc(&bump, job->problem->n_items, sizeof *r->block);
    ebb_status st = r->block != NULL ? sort_events(r, &bump) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = pass_time(r, job->mem, fit, false, &repeats); }
    if (st == EBB_OK && !repeats) { st = pass_time(r, job->mem, fit, true, &repeats); }
    if (st == EBB_OK) {
        EBB_ASSERT(repeats && r->peak_bytes >= result->bound_bytes);
        result->peak_bytes = r->peak_bytes;
        result->n_steps = r->n_visits;
    }
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__place_first_fit(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    replay r = {.ask = ask_cnmem, .offsets = offsets};
    return solve(job, EBB_PLACE_LOWEST, &r, result);
}

ebb_status ebb__place_best_fit(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    replay r = {.ask = ask_cnmem, .offsets = offsets};
    return solve(job, EBB_PLACE_TIGHTEST, &r, result);
}

ebb_status ebb__place_pytorch(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result) {
    replay r = {.ask = ask_pytorch, .offsets = offsets};
    return solve(job, EBB_PLACE_TIGHTEST, &r, result);
}
