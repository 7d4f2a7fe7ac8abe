/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems of which a part repeats: recordings of training, whose iterations are alike but for the first and the end.
 *
 *      |  warm-up  | 1 | 2 | 3 | 4 | 5 | 6 | 7 |tail|
 *      +-----------+---+---+---+---+---+---+---+----+
 *                          |circle |                      of two iterations, as some blocks live for more than one
 *
 * 1. The longest run of iterations that are equally long is looked for; fewer than three are not worth it.
 * 2. A few of its middle are made a circle: what is born in them, and what lives through all of them. A circle of so
 *    few items is solved much better than the whole, whose copies of it each go their own way.
 * 3. Whatever is born, lives and is as large as an item of the circle has its offset. Two such copies never collide,
 *    wherever they are: they are parts of one circle, rolled along time.
 * 4. What is left (most of the warm-up and of the end) is placed around those that live at the same time. The circle's
 *    peak is enough there, so the steady part never pays for the beginning.
 */
#include "place/place_priv.h"

#define MIN_ALIKE 3u
#define MAX_TOGETHER 4u                         /* iterations in the circle */
#define REST_STEPS ((uint64_t)10 * 1000 * 1000) /* for what is left */
#define LEAST_SHARE 2u                          /* of the items, as a part, that must have found their offset */

typedef struct repeat {
    const ebb_place_job *job;
    ebb_bump *bump;
    uint64_t begin, length;    /* of the circle */
    ebb_place_item *circle;    /* [n_circle] */
    uint32_t *source;          /* [n_circle]: the items that they are of */
    size_t n_circle, n_always; /* the latter first: they live through all of it */
    uint64_t *fixed;           /* [n_items] */
    uint64_t *offsets;         /* [n_items]: of a problem at hand */
    uint64_t *moment;          /* [n_items]: birth, where the circle begins at a multiple of its length */
    uint32_t *idx;             /* [n_items] */
    uint64_t *key;             /* [n_items] */
} repeat;

/* ---- the circle ------------------------------------------------------------------------------- */

/* The longest run of iterations of one length; how many there are. */
static size_t find_alike(const ebb_place_job *job, size_t *at_out) {
    const uint64_t *start = job->starts;
    size_t best = 0;
    for (size_t i = 0, n = 0; i + 1 < job->n_starts; i++) {
        n = i > 0 && start[i + 1] - start[i] == start[i] - start[i - 1] ? n + 1 : 1;
        if (n <= best) { continue; }
        best = n;
        *at_out = i + 1 - n;
    }
    return best;
}

/* As many as the longest life needs of those that are born in one and do not outlive MAX_TOGETHER. */
static size_t count_together(const ebb_place_problem *p, uint64_t begin, uint64_t period) {
    uint64_t together = 1;
    for (size_t i = 0; i < p->n_items; i++) {
        const ebb_place_item *item = &p->items[i];
        if (item->first < begin || item->first >= begin + period || item->size_bytes == 0) { continue; }
        const uint64_t n = (item->last - item->first + period - 1) / period;
        if (n <= MAX_TOGETHER) { together = ebb_max_u64(together, n); }
    }
    return (size_t)together;
}

/* Whether there is one. */
static bool find_circle(repeat *r) {
    size_t at = 0;
    const ebb_place_problem *p = r->job->problem;
    const size_t n_alike = find_alike(r->job, &at);
    if (n_alike < MIN_ALIKE || r->job->starts[at + 1] == r->job->starts[at]) { return false; }
    const uint64_t first = r->job->starts[at], period = r->job->starts[at + 1] - first;
    const size_t n_together = count_together(p, first + n_alike / 2 * period, period);
    if (n_together >= n_alike) { return false; }
    r->begin = first + (n_alike - n_together) / 2 * period;
    r->length = n_together * period;
    return true;
}

static bool lives_through(const repeat *r, const ebb_place_item *item) {
    return item->first < r->begin && item->last >= r->begin + r->length;
}

static bool is_born_within(const repeat *r, const ebb_place_item *item) {
    return item->first >= r->begin && item->first < r->begin + r->length && item->last - item->first <= r->length;
}

static void add_to_circle(repeat *r, size_t i, ebb_place_item item) {
    r->source[r->n_circle] = (uint32_t)i;
    r->circle[r->n_circle++] = item;
}

static void make_circle(repeat *r) {
    const ebb_place_problem *p = r->job->problem;
    for (size_t i = 0; i < p->n_items; i++) {
        if (!lives_through(r, &p->items[i])) { continue; }
        add_to_circle(r, i, (ebb_place_item){p->items[i].size_bytes, 0, r->length});
    }
    r->n_always = r->n_circle;
    for (size_t i = 0; i < p->n_items; i++) {
        if (!is_born_within(r, &p->items[i])) { continue; }
        const uint64_t birth = p->items[i].first - r->begin, death = p->items[i].last - r->begin;
        add_to_circle(r, i,
                      (ebb_place_item){p->items[i].size_bytes, birth, death > r->length ? death - r->length : death});
    }
}

static ebb_status solve_circle(const repeat *r, ebb_place_result *result) {
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    ebb_place_job job = *r->job;
    problem.items = r->circle;
    problem.n_items = r->n_circle;
    problem.alignment_bytes = r->job->problem->alignment_bytes;
    problem.period = r->length;
    job.problem = &problem;
    job.n_starts = 0;
    job.default_steps = job.max_steps;
    return ebb__place_search(&job, r->offsets, result);
}

/* ---- its copies ------------------------------------------------------------------------------- */

static uint64_t life_of(const repeat *r, uint32_t i) {
    const ebb_place_item *item = &r->job->problem->items[i];
    return item->last - item->first;
}

static uint64_t size_of(const repeat *r, uint32_t i) {
    return r->job->problem->items[i].size_bytes;
}

/* By moment of birth, then life, then size. */
static ebb_status sort_births(repeat *r) {
    const size_t n = r->job->problem->n_items;
    const uint64_t ahead = (r->length - r->begin % r->length) % r->length;
    for (size_t i = 0; i < n; i++) {
        r->idx[i] = (uint32_t)i;
        r->moment[i] = r->job->problem->items[i].first + ahead;
        r->key[i] = size_of(r, (uint32_t)i);
    }
    EBB_TRY(ebb__sort_by_key(r->job->mem, r->idx, n, r->key));
    for (size_t i = 0; i < n; i++) { r->key[i] = life_of(r, (uint32_t)i); }
    EBB_TRY(ebb__sort_by_key(r->job->mem, r->idx, n, r->key));
    return ebb__sort_by_key(r->job->mem, r->idx, n, r->moment);
}

/* Less than, equal to, or more than 0, as the one's birth in its turn of the circle, its life or its size is. */
static int compare(const repeat *r, uint32_t a, uint32_t b) {
    const uint64_t of_a[] = {r->moment[a] % r->length, life_of(r, a), size_of(r, a)};
    const uint64_t of_b[] = {r->moment[b] % r->length, life_of(r, b), size_of(r, b)};
    for (int k = 0; k < 3; k++) {
        if (of_a[k] != of_b[k]) { return of_a[k] < of_b[k] ? -1 : 1; }
    }
    return 0;
}

/* How many have found their offset. */
static size_t fix_copies(repeat *r) {
    const size_t n = r->job->problem->n_items, turn = (size_t)((r->moment[r->source[r->n_always]]) / r->length);
    size_t from = 0, to = 0, n_fixed = 0;
    while (from < n && r->moment[r->idx[from]] / r->length < turn) { from++; }
    for (to = from; to < n && r->moment[r->idx[to]] / r->length == turn;) { to++; }
    for (size_t i = 0, model = from; i < n; i++) {
        const uint32_t item = r->idx[i];
        if (i > 0 && r->moment[item] / r->length != r->moment[r->idx[i - 1]] / r->length) { model = from; }
        while (model < to && compare(r, r->idx[model], item) < 0) { model++; }
        if (model == to || compare(r, r->idx[model], item) != 0) { continue; }
        const uint32_t like = r->idx[model++];
        if (r->fixed[item] != EBB_PLACE_ANYWHERE || r->key[like] == EBB_PLACE_ANYWHERE) { continue; }
        r->fixed[item] = r->key[like];
        n_fixed++;
    }
    return n_fixed;
}

/* Offsets of the circle's items, to whatever is like them. */
static ebb_status fix_all(repeat *r, size_t *n_fixed_out) {
    const size_t n = r->job->problem->n_items;
    EBB_TRY(sort_births(r));
    for (size_t i = 0; i < n; i++) { r->fixed[i] = r->key[i] = EBB_PLACE_ANYWHERE; }
    for (size_t i = 0; i < r->n_circle; i++) {
        if (i < r->n_always) { r->fixed[r->source[i]] = r->offsets[i]; }
        if (i >= r->n_always) { r->key[r->source[i]] = r->offsets[i]; }
    }
    *n_fixed_out = r->n_always + (r->n_circle > r->n_always ? fix_copies(r) : 0);
    return EBB_OK;
}

/* ---- what is left ----------------------------------------------------------------------------- */

/* The lives of all that has no offset yet, in order and made one where they touch: [n_out]. */
static ebb_status find_open_times(const repeat *r, ebb_place_item **open_out, size_t *n_out) {
    const ebb_place_problem *p = r->job->problem;
    ebb_place_item *open = ebb__bump_alloc(r->bump, p->n_items, sizeof *open);
    size_t n = 0;
    if (open == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < p->n_items; k++) { /* by birth */
        const ebb_place_item *item = &p->items[r->idx[k]];
        if (r->fixed[r->idx[k]] != EBB_PLACE_ANYWHERE) { continue; }
        if (n > 0 && item->first <= open[n - 1].last) {
            open[n - 1].last = ebb_max_u64(open[n - 1].last, item->last);
        } else {
            open[n++] = *item;
        }
    }
    *open_out = open;
    *n_out = n;
    return EBB_OK;
}

static bool lives_at(const ebb_place_item *open, size_t n, const ebb_place_item *item) {
    size_t low = 0, high = n; /* the first that ends after the item's birth */
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (open[middle].last <= item->first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && open[low].first < item->last;
}

/* Place items without an offset around those that have one; *peak_out is the highest end among them. */
static ebb_status place_rest(repeat *r, uint64_t enough_bytes, uint64_t *peak_out, uint64_t *steps) {
    const ebb_place_problem *p = r->job->problem;
    ebb_place_item *open = NULL;
    size_t n_open = 0, n = 0;
    *peak_out = 0;
    EBB_TRY(find_open_times(r, &open, &n_open));
    if (n_open == 0) { return EBB_OK; }
    ebb_place_item *items = ebb__bump_alloc(r->bump, p->n_items, sizeof *items);
    uint64_t *fixed = ebb__bump_alloc(r->bump, p->n_items, sizeof *fixed);
    if (items == NULL || fixed == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < p->n_items; i++) {
        if (!lives_at(open, n_open, &p->items[i])) { continue; }
        r->key[n] = i;
        fixed[n] = r->fixed[i];
        items[n++] = p->items[i];
    }
    ebb_place_problem problem = EBB_PLACE_PROBLEM_INIT;
    problem.items = items;
    problem.n_items = n;
    problem.alignment_bytes = p->alignment_bytes;
    problem.fixed = fixed;
    ebb_place_job job = *r->job;
    ebb_place_result result = {0};
    job.problem = &problem;
    job.n_starts = 0;
    job.enough_bytes = enough_bytes;
    job.max_steps = ebb_min_u64(job.max_steps, REST_STEPS);
    job.default_steps = job.max_steps;
    EBB_TRY(ebb__place_search(&job, r->offsets, &result));
    for (size_t k = 0; k < n; k++) { r->fixed[r->key[k]] = r->offsets[k]; }
    *peak_out = result.peak_bytes;
    *steps += result.n_steps;
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status prepare(repeat *r) {
    const size_t n = r->job->problem->n_items;
    r->circle = ebb__bump_alloc(r->bump, n, sizeof *r->circle);
    r->source = ebb__bump_alloc(r->bump, n, sizeof *r->source);
    r->fixed = ebb__bump_alloc(r->bump, n, sizeof *r->fixed);
    r->offsets = ebb__bump_alloc(r->bump, n, sizeof *r->offsets);
    r->moment = ebb__bump_alloc(r->bump, n, sizeof *r->moment);
    r->idx = ebb__bump_alloc(r->bump, n, sizeof *r->idx);
    r->key = ebb__bump_alloc(r->bump, n, sizeof *r->key);
    const bool ok = r->circle != NULL && r->source != NULL && r->fixed != NULL && r->offsets != NULL &&
                    r->moment != NULL && r->idx != NULL && r->key != NULL;
    return ok ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status solve(repeat *r, uint64_t *offsets, ebb_place_result *result, bool *found_out) {
    const ebb_place_problem *p = r->job->problem;
    ebb_place_result circle = {0};
    size_t n_fixed = 0;
    uint64_t rest_bytes = 0;
    EBB_TRY(prepare(r));
    make_circle(r);
    EBB_TRY(solve_circle(r, &circle));
    EBB_TRY(fix_all(r, &n_fixed));
    if (n_fixed < p->n_items / LEAST_SHARE) { return EBB_OK; }
    EBB_TRY(ebb_place_bound(p, r->job->mem, &result->bound_bytes));
    const uint64_t enough_bytes =
        ebb_max_u64(r->job->enough_bytes, ebb_max_u64(circle.peak_bytes, result->bound_bytes));
    result->n_steps = circle.n_steps;
    EBB_TRY(place_rest(r, enough_bytes, &rest_bytes, &result->n_steps));
    result->peak_bytes = ebb_max_u64(circle.peak_bytes, rest_bytes);
    memcpy(offsets, r->fixed, p->n_items * sizeof *offsets);
    *found_out = true;
    return EBB_OK;
}

ebb_status ebb__place_repeating(const ebb_place_job *job, uint64_t *offsets, ebb_place_result *result,
                                bool *found_out) {
    ebb_bump bump;
    repeat r = {.job = job, .bump = &bump};
    *found_out = false;
    if (!ebb__place_is_plain(job->problem) || job->problem->period != 0 || !find_circle(&r)) { return EBB_OK; }
    ebb__bump_init(&bump, job->mem);
    const ebb_status st = solve(&r, offsets, result, found_out);
    ebb__bump_fini(&bump);
    return st;
}

ebb_status ebb__place_judge_steady(const ebb_place_job *job, const uint64_t *offsets, ebb_place_result *result) {
    const ebb_place_problem *p = job->problem;
    repeat r = {.job = job};
    ebb_place_problem steady = *p;
    if (!find_circle(&r)) { return EBB_OK; }
    ebb_place_item *items = ebb__alloc(job->mem, p->n_items, sizeof *items);
    if (items == NULL) { return EBB_E_NO_MEMORY; }
    steady.items = items;
    steady.n_items = 0;
    result->steady_peak_bytes = 0;
    for (size_t i = 0; i < p->n_items; i++) {
        ebb_place_item item = p->items[i];
        item.first = ebb_max_u64(item.first, r.begin);
        item.last = ebb_min_u64(item.last, r.begin + r.length);
        if (item.first >= item.last || item.size_bytes == 0) { continue; }
        items[steady.n_items++] = item;
        const uint64_t end = offsets[i] + ebb_align_up(item.size_bytes, p->alignment_bytes);
        result->steady_peak_bytes = ebb_max_u64(result->steady_peak_bytes, end);
    }
    const ebb_status st = ebb_place_bound(&steady, job->mem, &result->steady_bound_bytes);
    ebb__free(job->mem, items);
    return st;
}
