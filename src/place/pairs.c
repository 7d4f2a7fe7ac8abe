/* SPDX-License-Identifier: Apache-2.0
 *
 * Is there a placement of few items with a peak of at most so much, and where? A search through the ways in which pairs
 * of items can lie, complete for alignments, fixed offsets and gaps.
 *
 * Of two items that share sections, the distance of their offsets must not lie in some open intervals, one for plain
 * items:
 *
 *        first below second           not these               second below first
 *     --------------------------+-----------------------+-------------------------> second's offset - first's
 *                               a                       b
 *
 * (which side is which, the signs say.) Each item has a least and a greatest offset; where one side of an interval is
 * out of reach, the other narrows them; where both are, there is no placement. When nothing narrows any more and the
 * least offsets themselves are a placement, they are the answer. Otherwise some interval is violated by them: its two
 * sides are tried, the less costly first.
 *
 * Invariant: whatever is undone is on the trail, so what was narrowed since a choice is widened again.
 */
#include "place/place_priv.h"

#define MAX_ITEMS 64u
#define MAX_PARTS 1024u /* of all: each two are looked at once */
#define MAX_INTERVALS 4096u
#define INTERVALS_A_STEP 8u /* looked at in the time of a search step */

/* Of what keeps two apart: the second's offset is at b or more, or at a or less. */
typedef enum side { OPEN, ABOVE, BELOW } side;

/* Old values: of a least offset, a greatest, a side. */
typedef struct change {
    int64_t *offset; /* NULL: the side */
    int64_t was;
    uint32_t idx;
} change;

typedef struct search {
    const ebb_parts *parts;
    const ebb_place_job *job;
    uint32_t n_items;
    uint32_t *item;                              /* [n_items]: those that hold something */
    int64_t *least, *greatest, *alignment, *top; /* [n_items] */
    ebb_aparts intervals;
    side *side;
    EBB_VEC(change) trail;
    uint64_t work, max_work;
} search;

/* ---- narrowing -------------------------------------------------------------------------------- */

static ebb_status set_offset(search *s, int64_t *offset, int64_t value) {
    EBB_ASSERT(*offset != value);
    EBB_TRY(EBB_PUSH(s->parts->mem, &s->trail, ((change){offset, *offset, 0})));
    *offset = value;
    return EBB_OK;
}

static ebb_status set_side(search *s, uint32_t idx, side chosen) {
    EBB_ASSERT(idx < s->intervals.n && chosen != OPEN && s->side[idx] == OPEN);
    EBB_TRY(EBB_PUSH(s->parts->mem, &s->trail, ((change){NULL, (int64_t)s->side[idx], idx})));
    s->side[idx] = chosen;
    return EBB_OK;
}

static void undo(search *s, size_t n_changes) {
    EBB_ASSERT(n_changes <= s->trail.n);
    while (s->trail.n > n_changes) {
        const change c = s->trail.data[--s->trail.n];
        if (c.offset != NULL) {
            *c.offset = c.was;
        } else {
            s->side[c.idx] = (side)c.was;
        }
    }
}

/* upper's offset is lower's + distance or more. */
static ebb_status keep_apart(search *s, uint32_t lower, uint32_t upper, int64_t distance, bool *changed) {
    int64_t least = s->least[lower] + distance, greatest = s->greatest[upper] - distance;
    if (least > s->least[upper]) {
        const int64_t over = least % s->alignment[upper]; /* least is above an offset, so not negative */
        if (over > 0) { least += s->alignment[upper] - over; }
        EBB_ASSERT(least > 0 && least % s->alignment[upper] == 0);
        EBB_TRY(set_offset(s, &s->least[upper], least));
        *changed = true;
    }
    if (greatest < s->greatest[lower]) {
        const int64_t over = greatest > 0 ? greatest % s->alignment[lower] : 0;
        EBB_ASSERT(greatest - over <= s->greatest[lower]);
        EBB_TRY(set_offset(s, &s->greatest[lower], greatest - over));
        *changed = true;
    }
    return EBB_OK;
}

/* *fits_out: whether there may still be a placement. */
static ebb_status narrow_by(search *s, uint32_t idx, bool *changed, bool *fits_out) {
    const ebb_apart v = s->intervals.data[idx];
    const bool can_be_above = s->side[idx] != BELOW && s->greatest[v.second] - s->least[v.first] >= v.b;
    const bool can_be_below = s->side[idx] != ABOVE && s->least[v.second] - s->greatest[v.first] <= v.a;
    *fits_out = can_be_above || can_be_below;
    if (can_be_above == can_be_below) { return EBB_OK; }
    if (can_be_above) { return keep_apart(s, v.first, v.second, v.b, changed); }
    return keep_apart(s, v.second, v.first, -v.a, changed);
}

static ebb_status narrow(search *s, bool *fits_out) {
    bool changed = true, fits = true;
    while (changed && fits) {
        changed = false;
        for (uint32_t k = 0; k < s->intervals.n && fits; k++) { EBB_TRY(narrow_by(s, k, &changed, &fits)); }
        for (uint32_t i = 0; i < s->n_items && fits; i++) { fits = s->least[i] <= s->greatest[i]; }
        s->work += 1 + s->intervals.n / INTERVALS_A_STEP;
    }
    *fits_out = fits;
    return EBB_OK;
}

/* ---- the search ------------------------------------------------------------------------------- */

/* The widest that the least offsets violate; intervals.n when none. */
static uint32_t find_violated(const search *s) {
    uint32_t found = (uint32_t)s->intervals.n;
    for (uint32_t k = 0; k < s->intervals.n; k++) {
        const ebb_apart *v = &s->intervals.data[k];
        const int64_t distance = s->least[v->second] - s->least[v->first];
        if (distance <= v->a || distance >= v->b) { continue; }
        const ebb_apart *best = &s->intervals.data[found];
        if (found == s->intervals.n || v->b - v->a > best->b - best->a) { found = k; }
    }
    return found;
}

/* The side on which the item that is pushed ends lower. */
static side cheaper_side(const search *s, const ebb_apart *v) {
    const int64_t second_end = s->least[v->first] + v->b + s->top[v->second];
    const int64_t first_end = s->least[v->second] - v->a + s->top[v->first];
    return second_end <= first_end ? ABOVE : BELOW;
}

static ebb_status look(search *s, ebb_pairs_answer *answer_out) {
    bool fits = false;
    EBB_TRY(narrow(s, &fits));
    *answer_out = EBB_PAIRS_NONE;
    if (!fits) { return EBB_OK; }
    const uint32_t violated = find_violated(s);
    *answer_out = EBB_PAIRS_FOUND;
    if (violated == s->intervals.n) { return EBB_OK; }
    *answer_out = EBB_PAIRS_GIVEN_UP;
    if (s->work >= s->max_work || s->job->stop(s->job->stop_ctx)) { return EBB_OK; }
    const side first_try = cheaper_side(s, &s->intervals.data[violated]);
    const size_t n_changes = s->trail.n;
    for (unsigned k = 0; k < 2; k++) {
        EBB_TRY(set_side(s, violated, (k == 0) == (first_try == ABOVE) ? ABOVE : BELOW));
        EBB_TRY(look(s, answer_out));
        if (*answer_out != EBB_PAIRS_NONE) { return EBB_OK; }
        undo(s, n_changes);
    }
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static bool are_alike(const search *s, uint32_t first, uint32_t second) {
    const ebb_parts *p = s->parts;
    const size_t i = s->item[first], j = s->item[second];
    const size_t n = p->first[i + 1] - p->first[i];
    if (p->alignment[i] != p->alignment[j] || p->first[j + 1] - p->first[j] != n) { return false; }
    if (ebb__place_is_fixed(p->problem, i) || ebb__place_is_fixed(p->problem, j)) { return false; }
    for (size_t k = 0; k < n; k++) {
        const ebb_place_part *x = &p->part[p->first[i] + k], *y = &p->part[p->first[j] + k];
        if (x->range.first != y->range.first || x->range.last != y->range.last) { return false; }
        if (x->low_bytes != y->low_bytes || x->high_bytes != y->high_bytes) { return false; }
    }
    return true;
}

static ebb_status add_intervals(search *s) {
    for (uint32_t j = 1; j < s->n_items; j++) {
        for (uint32_t i = 0; i < j && s->intervals.n <= MAX_INTERVALS; i++) {
            const ebb_apart names = {.first = i, .second = j};
            EBB_TRY(ebb__place_add_aparts(s->parts, s->item[i], s->item[j], names, &s->intervals));
        }
    }
    s->side = ebb__calloc(s->parts->mem, s->intervals.n, sizeof *s->side);
    if (s->side == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < s->intervals.n; k++) { /* of those that are alike, the first lies lower */
        const ebb_apart *v = &s->intervals.data[k];
        const bool is_only = (k == 0 || v[-1].first != v->first || v[-1].second != v->second) &&
                             (k + 1 == s->intervals.n || v[1].first != v->first || v[1].second != v->second);
        if (is_only && are_alike(s, v->first, v->second)) { s->side[k] = ABOVE; }
    }
    return EBB_OK;
}

static ebb_status prepare(search *s, ebb_bump *bump, uint64_t cap_bytes, bool *fits_out) {
    const ebb_parts *p = s->parts;
    EBB_ASSERT(cap_bytes < (uint64_t)1 << 63);
    s->item = ebb__bump_alloc(bump, MAX_ITEMS, sizeof *s->item);
    int64_t *numbers = ebb__bump_alloc(bump, (size_t)4 * MAX_ITEMS, sizeof *numbers);
    if (s->item == NULL || numbers == NULL) { return EBB_E_NO_MEMORY; }
    s->least = numbers;
    s->greatest = numbers + MAX_ITEMS;
    s->alignment = numbers + (size_t)2 * MAX_ITEMS;
    s->top = numbers + (size_t)3 * MAX_ITEMS;
    *fits_out = true;
    for (size_t i = 0; i < p->problem->n_items; i++) {
        if (p->top[i] == 0) { continue; }
        const uint32_t k = s->n_items++;
        EBB_ASSERT(k < MAX_ITEMS);
        const bool is_fixed = ebb__place_is_fixed(p->problem, i);
        const uint64_t room = cap_bytes < p->top[i] ? 0 : cap_bytes - p->top[i];
        s->item[k] = (uint32_t)i;
        s->alignment[k] = (int64_t)p->alignment[i];
        s->top[k] = (int64_t)p->top[i];
        s->least[k] = is_fixed ? (int64_t)p->problem->fixed[i] : 0;
        s->greatest[k] = is_fixed ? s->least[k] : (int64_t)(room - room % p->alignment[i]);
        if (cap_bytes < p->top[i] || (uint64_t)s->least[k] > room) { *fits_out = false; }
    }
    return add_intervals(s);
}

bool ebb__place_are_few(const ebb_parts *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->problem->n_items && n <= MAX_ITEMS; i++) { n += p->top[i] > 0 ? 1 : 0; }
    return n <= MAX_ITEMS && p->first[p->problem->n_items] <= MAX_PARTS;
}

ebb_status ebb__place_pairs(const ebb_parts *parts, const ebb_place_job *job, const ebb_pairs_limits *limits,
                            uint64_t *offsets, ebb_pairs_answer *answer_out, uint64_t *work) {
    *answer_out = EBB_PAIRS_GIVEN_UP;
    if (!ebb__place_are_few(parts)) { return EBB_OK; }
    ebb_bump bump;
    ebb__bump_init(&bump, job->mem);
    search s = {.parts = parts, .job = job, .max_work = limits->max_work};
    ebb_pairs_answer answer = EBB_PAIRS_GIVEN_UP;
    bool fits = false;
    ebb_status st = prepare(&s, &bump, limits->cap_bytes, &fits);
    if (st == EBB_OK && !fits) { answer = EBB_PAIRS_NONE; }
    if (st == EBB_OK && fits && s.intervals.n <= MAX_INTERVALS) { st = look(&s, &answer); }
    if (st == EBB_OK) {
        for (uint32_t k = 0; answer == EBB_PAIRS_FOUND && k < s.n_items; k++) {
            EBB_ASSERT(s.least[k] >= 0 && s.least[k] <= s.greatest[k] && s.least[k] % s.alignment[k] == 0);
            offsets[s.item[k]] = (uint64_t)s.least[k];
        }
        EBB_ASSERT(answer != EBB_PAIRS_FOUND || fits);
        *work += s.work;
        *answer_out = answer;
    }
    ebb__free(job->mem, s.side);
    EBB_VEC_FINI(job->mem, &s.trail);
    EBB_VEC_FINI(job->mem, &s.intervals);
    ebb__bump_fini(&bump);
    return st;
}
