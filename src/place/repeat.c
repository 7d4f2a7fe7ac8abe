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
 * 4. The rest (most of the warm-up and of the end) is mostly much like the circle too: the first iteration
 * allocates more between its usual blocks, the last one ends early. So each item left is taken for the copy that is
 * missing nearby, of its size, and gets that one's offset where it is free (wish_offsets below).
 * 5. All others are placed around those that live at the same time. The circle's peak is enough there, so the steady
 *    part never pays for the beginning.
 */
#include "place/place_priv.h"

#define MIN_ALIKE 3u
#define MAX_TOGETHER 4u                         /* iterations in the circle */
#define TURN_STEPS ((uint64_t)20 * 1000 * 1000) /* for the circle as one turn */
#define REST_STEPS ((uint64_t)10 * 1000 * 1000) /* for what is left */
#define LEAST_SHARE 2u                          /* of the items, as a part, that must have found their offset */

/* Copies of items of the circle that should be there and are not, by moment; at most as many as there are items. */
typedef struct missing {
    uint64_t *size_bytes, *birth, *death, *offset; /* times as repeat's moment */
    size_t n;
} missing;

typedef struct repeat {
    const ebb_place_job *job;
    ebb_bump *bump;
    uint64_t begin, length;    /* of the circle */
    size_t n_together;         /* iterations in it */
    ebb_place_item *circle;    /* [n_circle] */
    uint32_t *source;          /* [n_circle]: the items that they are of */
    size_t n_circle, n_always; /* the latter first: they live through all of it */
    uint64_t *fixed;           /* [n_items] */
    uint64_t *offsets;         /* [n_items]: of a problem at hand */
    uint64_t *moment;          /* [n_items]: birth, where the circle begins at a multiple of its length */
    uint64_t *wish;            /* [n_items]: the offset of the copy that it is taken for, or EBB_PLACE_ANYWHERE */
    missing gone;              /* from turns in which something is left */
    uint64_t turn;             /* which one of its turns is the circle itself */
    uint64_t *n_found;         /* [n_items]: 1 + the turn in which the item of the circle was last found */
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
    r->n_together = count_together(p, first + n_alike / 2 * period, period);
    if (r->n_together >= n_alike) { return false; }
    r->begin = first + (n_alike - r->n_together) / 2 * period;
    r->length = r->n_together * period;
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
    EBB_TRY(ebb__place_search(&job, r->offsets, result));
    job.max_steps = ebb_min_u64(job.max_steps, TURN_STEPS);
    return r->n_together == 2 ? ebb__place_in_turns(&job, r->offsets, result) : EBB_OK;
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

static void note_missing(repeat *r, uint64_t turn, size_t from, size_t to) {
    for (size_t k = from; k < to && r->gone.n < r->job->problem->n_items; k++) {
        const uint32_t like = r->idx[k];
        if (r->key[like] == EBB_PLACE_ANYWHERE || r->n_found[like] == turn + 1) { continue; }
        r->gone.size_bytes[r->gone.n] = size_of(r, like);
        r->gone.birth[r->gone.n] = turn * r->length + r->moment[like] % r->length;
        r->gone.death[r->gone.n] = r->gone.birth[r->gone.n] + life_of(r, like);
        r->gone.offset[r->gone.n++] = r->key[like];
    }
}

/* The items idx[begin] to idx[end - 1] are those of a turn, idx[from] to idx[to - 1] of the circle's own. How many have
 * found their offset. */
static size_t fix_turn(repeat *r, size_t begin, size_t end, size_t from, size_t to) {
    const uint64_t turn = r->moment[r->idx[begin]] / r->length;
    size_t n_fixed = 0, n_open = 0;
    for (size_t i = begin, model = from; i < end; i++) {
        const uint32_t item = r->idx[i];
        if (r->fixed[item] != EBB_PLACE_ANYWHERE) { continue; }
        while (model < to && compare(r, r->idx[model], item) < 0) { model++; }
        const bool is_like = model < to && compare(r, r->idx[model], item) == 0;
        const uint32_t like = is_like ? r->idx[model++] : 0;
        if (!is_like || r->key[like] == EBB_PLACE_ANYWHERE) {
            n_open++;
            continue;
        }
        r->fixed[item] = r->key[like];
        r->n_found[like] = turn + 1;
        n_fixed++;
    }
    if (n_open > 0) { note_missing(r, turn, from, to); }
    return n_fixed;
}

/* How many have found their offset. */
static size_t fix_copies(repeat *r) {
    const size_t n = r->job->problem->n_items;
    size_t from = 0, to = 0, n_fixed = 0;
    r->turn = r->moment[r->source[r->n_always]] / r->length;
    while (from < n && r->moment[r->idx[from]] / r->length < r->turn) { from++; }
    for (to = from; to < n && r->moment[r->idx[to]] / r->length == r->turn;) { to++; }
    for (size_t begin = 0, end = 0; begin < n; begin = end) {
        const uint64_t turn = r->moment[r->idx[begin]] / r->length;
        while (end < n && r->moment[r->idx[end]] / r->length == turn) { end++; }
        n_fixed += fix_turn(r, begin, end, from, to);
    }
    return n_fixed;
}

/* Offsets of the circle's items, to whatever is like them. */
static ebb_status fix_all(repeat *r, size_t *n_fixed_out) {
    const size_t n = r->job->problem->n_items;
    EBB_TRY(sort_births(r));
    for (size_t i = 0; i < n; i++) {
        r->fixed[i] = r->key[i] = EBB_PLACE_ANYWHERE;
        r->n_found[i] = 0;
    }
    for (size_t i = 0; i < r->n_circle; i++) {
        if (i < r->n_always) { r->fixed[r->source[i]] = r->offsets[i]; }
        if (i >= r->n_always) { r->key[r->source[i]] = r->offsets[i]; }
    }
    *n_fixed_out = r->n_always + (r->n_circle > r->n_always ? fix_copies(r) : 0);
    return EBB_OK;
}

/* ---- what is nearly a copy -------------------------------------------------------------------- */

typedef struct wanting {
    uint32_t *left, *gone;      /* items, missing copies */
    uint64_t *when, *gone_when; /* of each of them: when, from the circle outwards */
    size_t n_left, n_gone;
} wanting;

/* On one side of the circle: what is left and the copies that are missing, both from the circle outwards, the k-th of a
 * size to the k-th, unless they are farther apart than a turn. Times are compared that face the circle: deaths before
 * it, births after it, for what is unusual is farther out. */
static ebb_status wish_on_side(repeat *r, bool is_before, wanting *w) {
    const size_t n = r->job->problem->n_items;
    w->n_left = w->n_gone = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (r->fixed[i] != EBB_PLACE_ANYWHERE || (r->moment[i] / r->length < r->turn) != is_before) { continue; }
        w->left[w->n_left++] = i;
        w->when[i] = is_before ? UINT64_MAX - r->moment[i] - life_of(r, i) : r->moment[i];
    }
    for (uint32_t g = 0; g < r->gone.n; g++) {
        if ((r->gone.birth[g] / r->length < r->turn) != is_before) { continue; }
        w->gone[w->n_gone++] = g;
        w->gone_when[g] = is_before ? UINT64_MAX - r->gone.death[g] : r->gone.birth[g];
    }
    EBB_TRY(ebb__sort_by_key(r->job->mem, w->left, w->n_left, w->when));
    EBB_TRY(ebb__sort_by_key(r->job->mem, w->left, w->n_left, r->key));
    EBB_TRY(ebb__sort_by_key(r->job->mem, w->gone, w->n_gone, w->gone_when));
    EBB_TRY(ebb__sort_by_key(r->job->mem, w->gone, w->n_gone, r->gone.size_bytes));
    for (size_t i = 0, g = 0; i < w->n_left && g < w->n_gone;) {
        const uint32_t item = w->left[i], like = w->gone[g];
        const uint64_t size_bytes = r->key[item], of_like_bytes = r->gone.size_bytes[like];
        const uint64_t when = w->when[item], of_like = w->gone_when[like];
        const bool is_far = ebb_max_u64(when, of_like) - ebb_min_u64(when, of_like) > r->length;
        const bool is_same = size_bytes == of_like_bytes;
        if (is_same && !is_far) { r->wish[item] = r->gone.offset[like]; }
        i += (is_same && !is_far) || size_bytes < of_like_bytes || (is_same && when < of_like);
        g += (is_same && !is_far) || size_bytes > of_like_bytes || (is_same && when > of_like);
    }
    return EBB_OK;
}

static ebb_status wish_offsets(repeat *r) {
    const size_t n = r->job->problem->n_items;
    wanting w = {.left = ebb__bump_alloc(r->bump, n, sizeof *w.left),
                 .gone = ebb__bump_alloc(r->bump, n, sizeof *w.gone),
                 .when = ebb__bump_alloc(r->bump, n, sizeof *w.when),
                 .gone_when = ebb__bump_alloc(r->bump, n, sizeof *w.gone_when)};
    if (w.left == NULL || w.gone == NULL || w.when == NULL || w.gone_when == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        r->wish[i] = EBB_PLACE_ANYWHERE;
        r->key[i] = size_of(r, (uint32_t)i);
    }
    EBB_TRY(wish_on_side(r, true, &w));
    return wish_on_side(r, false, &w);
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

typedef struct open_times {
    const ebb_place_item *open, *item;
} open_times;

static bool ends_before_birth(const void *ctx, size_t k) {
    const open_times *times = ctx;
    return times->open[k].last <= times->item->first;
}

/* The first that ends after the item's birth. */
static size_t find_open(const ebb_place_item *open, size_t n, const ebb_place_item *item) {
    const open_times times = {open, item};
    return ebb__first_not_before(n, ends_before_birth, &times);
}

/* Those that live at some time with what has no offset yet, as a problem of its own; r->key[k] is the k-th one's
 * number. loose[k]: its offset only if it lives at other times too. */
static ebb_status list_rest(const repeat *r, ebb_place_problem *rest, uint64_t *loose) {
    const ebb_place_problem *p = r->job->problem;
    ebb_place_item *open = NULL;
    size_t n_open = 0;
    EBB_TRY(find_open_times(r, &open, &n_open));
    ebb_place_item *items = ebb__bump_alloc(r->bump, p->n_items, sizeof *items);
    uint64_t *fixed = ebb__bump_alloc(r->bump, p->n_items, sizeof *fixed);
    if (items == NULL || fixed == NULL) { return EBB_E_NO_MEMORY; }
    *rest = EBB_PLACE_PROBLEM_INIT;
    for (size_t i = 0; i < p->n_items; i++) {
        const ebb_place_item *item = &p->items[i];
        const size_t at = find_open(open, n_open, item);
        if (at == n_open || open[at].first >= item->last) { continue; }
        const bool is_within = open[at].first <= item->first && open[at].last >= item->last;
        r->key[rest->n_items] = i;
        loose[rest->n_items] = is_within ? EBB_PLACE_ANYWHERE : r->fixed[i];
        fixed[rest->n_items] = r->fixed[i];
        items[rest->n_items++] = p->items[i];
    }
    rest->items = items;
    rest->alignment_bytes = p->alignment_bytes;
    rest->fixed = fixed;
    return EBB_OK;
}

/* The rest, as parts, in a bump of its own. */
typedef struct wishing {
    const ebb_place_problem *rest;
    ebb_bump *bump;
    ebb_parts parts;
    uint64_t *loose;   /* as list_rest's */
    uint64_t *granted; /* as rest->fixed, and wishes that are heard */
    uint64_t enough_bytes, work;
} wishing;

/* Larger first. */
static ebb_status grant(const repeat *r, wishing *w) {
    const ebb_place_problem *rest = w->rest;
    ebb_fill fill;
    uint32_t *idx = ebb__bump_alloc(w->bump, rest->n_items, sizeof *idx);
    uint64_t *smallness = ebb__bump_alloc(w->bump, rest->n_items, sizeof *smallness);
    uint64_t *offsets = ebb__bump_alloc(w->bump, rest->n_items, sizeof *offsets);
    size_t n = 0;
    if (idx == NULL || smallness == NULL || offsets == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__fill_begin(&w->parts, w->bump, offsets, &fill));
    for (size_t k = 0; k < rest->n_items; k++) {
        w->granted[k] = rest->fixed[k];
        smallness[k] = UINT64_MAX - rest->items[k].size_bytes;
        const bool has_wish = rest->fixed[k] == EBB_PLACE_ANYWHERE && r->wish[r->key[k]] != EBB_PLACE_ANYWHERE;
        if (has_wish && w->parts.top[k] > 0) { idx[n++] = (uint32_t)k; }
    }
    EBB_TRY(ebb__sort_by_key(r->job->mem, idx, n, smallness));
    for (size_t k = 0; k < n; k++) {
        bool is_there = false;
        const uint64_t wish = r->wish[r->key[idx[k]]];
        EBB_TRY(ebb__fill_put_at(&fill, idx[k], wish, &is_there));
        if (is_there) { w->granted[idx[k]] = wish; }
    }
    w->work += ebb__taken_work(fill.taken);
    return EBB_OK;
}

/* From wishes that are heard, all others by ejection; where that is not found, with a little more room. *peak_out is
 * UINT64_MAX where that is not found either. */
static ebb_status eject_rest(const repeat *r, wishing *w, uint64_t *offsets, uint64_t *peak_out) {
    static const uint64_t rooms[] = {0, 4096, 1024}; /* parts of what is enough; 0: none */
    ebb_place_eject_options options = {.max_work = ebb_min_u64(r->job->max_steps, REST_STEPS) / 4, .job = r->job};
    ebb_place_problem problem = *w->rest;
    ebb_parts parts;
    ebb_ejector *ejector = NULL;
    *peak_out = UINT64_MAX;
    problem.fixed = w->loose;
    EBB_TRY(ebb__place_split(&problem, w->bump, &parts));
    EBB_TRY(ebb__ejector_create(&parts, w->bump, &ejector, &w->work));
    if (ejector == NULL) { return EBB_OK; }
    for (size_t c = 0; c < sizeof rooms / sizeof rooms[0] && *peak_out == UINT64_MAX; c++) {
        options.cap_bytes = w->enough_bytes + (rooms[c] != 0 ? w->enough_bytes / rooms[c] : 0);
        for (size_t k = 0; k < w->rest->n_items; k++) {
            offsets[k] = w->granted[k] != EBB_PLACE_ANYWHERE ? w->granted[k] : options.cap_bytes;
        }
        ebb__ejector_run(ejector, &options, offsets, peak_out, &w->work);
    }
    return EBB_OK;
}

/* *peak_out as eject_rest's. */
static ebb_status hear_wishes(const repeat *r, wishing *w, uint64_t *offsets, uint64_t *peak_out) {
    ebb_bump bump;
    ebb__bump_init(&bump, r->job->mem);
    w->bump = &bump;
    ebb_status st = ebb__place_split(w->rest, &bump, &w->parts);
    if (st == EBB_OK) { st = grant(r, w); }
    if (st == EBB_OK) { st = eject_rest(r, w, offsets, peak_out); }
    ebb__bump_fini(&bump);
    return st;
}

/* Around those that have an offset. */
static ebb_status solve_rest(const repeat *r, const ebb_place_problem *rest, const uint64_t *fixed,
                             uint64_t enough_bytes, uint64_t *offsets, ebb_place_result *result) {
    ebb_place_problem problem = *rest;
    ebb_place_job job = *r->job;
    problem.fixed = fixed;
    job.problem = &problem;
    job.n_starts = 0;
    job.enough_bytes = enough_bytes;
    job.max_steps = ebb_min_u64(job.max_steps, REST_STEPS);
    job.default_steps = job.max_steps;
    return ebb__place_search(&job, offsets, result);
}

/* Place items without an offset around those that have one; *peak_out is the highest end among them. */
static ebb_status place_rest(repeat *r, uint64_t enough_bytes, uint64_t *peak_out, uint64_t *steps) {
    ebb_place_problem rest;
    *peak_out = 0;
    wishing w = {.rest = &rest, .enough_bytes = enough_bytes};
    w.loose = ebb__bump_alloc(r->bump, r->job->problem->n_items, sizeof *w.loose);
    if (w.loose == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(list_rest(r, &rest, w.loose));
    if (rest.n_items == 0) { return EBB_OK; }
    uint64_t *again = ebb__bump_alloc(r->bump, rest.n_items, sizeof *again);
    w.granted = ebb__bump_alloc(r->bump, rest.n_items, sizeof *w.granted);
    if (w.granted == NULL || again == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(hear_wishes(r, &w, r->offsets, peak_out));
    *steps += w.work;
    const uint64_t *const starts[] = {w.granted, rest.fixed};
    for (size_t s = 0; s < 2 && *peak_out > enough_bytes; s++) {
        ebb_place_result result = {0};
        EBB_TRY(solve_rest(r, &rest, starts[s], enough_bytes, again, &result));
        *steps += result.n_steps;
        if (result.peak_bytes >= *peak_out) { continue; }
        *peak_out = result.peak_bytes;
        memcpy(r->offsets, again, rest.n_items * sizeof *again);
    }
    for (size_t k = 0; k < rest.n_items; k++) { r->fixed[r->key[k]] = r->offsets[k]; }
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
    r->wish = ebb__bump_alloc(r->bump, n, sizeof *r->wish);
    r->n_found = ebb__bump_alloc(r->bump, n, sizeof *r->n_found);
    r->gone.size_bytes = ebb__bump_alloc(r->bump, n, sizeof *r->gone.size_bytes);
    r->gone.birth = ebb__bump_alloc(r->bump, n, sizeof *r->gone.birth);
    r->gone.death = ebb__bump_alloc(r->bump, n, sizeof *r->gone.death);
    r->gone.offset = ebb__bump_alloc(r->bump, n, sizeof *r->gone.offset);
    const bool ok = r->circle != NULL && r->source != NULL && r->fixed != NULL && r->offsets != NULL &&
                    r->moment != NULL && r->idx != NULL && r->key != NULL && r->wish != NULL && r->n_found != NULL &&
                    r->gone.size_bytes != NULL && r->gone.birth != NULL && r->gone.death != NULL &&
                    r->gone.offset != NULL;
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
    EBB_TRY(wish_offsets(r));
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
        result->steady_peak_bytes = ebb_max_u64(result->steady_peak_bytes, offsets[i] + item.size_bytes);
    }
    const ebb_status st = ebb_place_bound(&steady, job->mem, &result->steady_bound_bytes);
    result->steady_bound_bytes = ebb_min_u64(result->steady_bound_bytes, result->steady_peak_bytes);
    ebb__free(job->mem, items);
    return st;
}
