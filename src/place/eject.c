/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement under a cap by ejection: from a placement that is too high, what sticks out is taken out and put back
 * one by one, each where what it overlaps is least worth; that is taken out in turn and put back likewise, until
 * nothing is left to be put back.
 *
 * What an item is worth is the root of its area (small and short ones find another place easily), once more for each
 * time it had to be put back by force: so those that are hard to place push the others about, and no two push each
 * other for ever.
 * This is how the ejection pool of Nagata and Braysy works ('A powerful route minimization heuristic for the vehicle
 * routing problem with time windows', Operations Research Letters 37, 2009).
 *
 * All is local: a step costs as much as there are items that live together with the one put back. These are found in
 * an array by birth, and lists of what lives at some sections, far enough apart to be no longer than the array.
 */
#include "place/place_priv.h"

#include <math.h>

#define OUT UINT64_MAX
#define WORK_A_STEP 8u
#define MAX_SEEN 64u
#define FEW 8u            /* sorted in place */
#define MAX_IN_BUCKET 64u /* else merged */
#define MIN_BETWEEN 16u   /* births, between two stops */

typedef struct piece {
    uint64_t offset, size_bytes; /* OUT: to be put back */
    uint32_t first, last;        /* sections */
    uint32_t seen;               /* in this step */
    uint64_t worth;
} piece;

/* From this offset of the item that is looked at on, it overlaps so much more worth. */
typedef struct change {
    uint64_t offset;
    int64_t worth;
} change;

typedef struct eject {
    const ebb_sections *sections;
    const ebb_place_eject_options *options;
    piece *pieces; /* by birth, as the compact's items are */
    uint32_t n_pieces;
    uint32_t *born;                 /* [sections + 1]: the first piece born in it or later */
    uint32_t *stop_at, *stop_begin; /* sections, and where their list begins */
    uint32_t n_stops;
    uint32_t *alive; /* the lists: pieces alive at a stop */
    uint32_t *pool;
    uint32_t n_pool;
    uint32_t *near; /* what lives together with the one looked at */
    uint32_t n_near, step;
    change *changes, *spare;
    uint64_t *growth; /* what is added to a piece's worth each time */
    uint32_t *bucket; /* [as many as changes + 1] */
    uint64_t work;
} eject;

/* ---- who lives together ----------------------------------------------------------------------- */

static bool wraps(const piece *p) {
    return p->first >= p->last;
}

static bool lives_at(const piece *p, uint32_t section) {
    return p->first <= section ? wraps(p) || section < p->last : wraps(p) && section < p->last;
}

static void note_near(eject *e, uint32_t p) {
    if (e->pieces[p].seen == e->step || e->pieces[p].offset == OUT) { return; }
    e->pieces[p].seen = e->step;
    EBB_ASSERT(e->n_near < e->n_pieces);
    e->near[e->n_near++] = p;
}

/* In sections [first, last): what is alive at the last stop before, what was born since. */
static void find_near_in(eject *e, uint32_t first, uint32_t last) {
    uint32_t lo = 0, hi = e->n_stops;
    while (hi - lo > 1) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (e->stop_at[mid] <= first) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    for (uint32_t i = e->stop_begin[lo]; i < e->stop_begin[lo + 1]; i++) {
        if (lives_at(&e->pieces[e->alive[i]], first)) { note_near(e, e->alive[i]); }
    }
    const uint32_t since = e->born[e->stop_at[lo] + 1], now = e->born[first + 1], end = e->born[last];
    for (uint32_t p = since; p < now; p++) {
        if (lives_at(&e->pieces[p], first)) { note_near(e, p); }
    }
    for (uint32_t p = now; p < end; p++) { note_near(e, p); }
    e->work += (e->stop_begin[lo + 1] - e->stop_begin[lo] + end - since) / 8;
}

static void find_near(eject *e, const piece *p) {
    e->n_near = 0;
    e->step++;
    find_near_in(e, p->first, wraps(p) ? e->sections->n : p->last);
    if (wraps(p) && p->last > 0) { find_near_in(e, 0, p->last); }
}

/* ---- one step --------------------------------------------------------------------------------- */

static void sort_few(change *c, uint32_t n) {
    for (uint32_t i = 1; i < n; i++) {
        const change moved = c[i];
        uint32_t at = i;
        for (; at > 0 && c[at - 1].offset > moved.offset; at--) { c[at] = c[at - 1]; }
        c[at] = moved;
    }
}

static void merge_two(const change *from, uint32_t n_one, uint32_t n, change *to) {
    for (uint32_t i = 0, a = 0, b = n_one; i < n; i++) {
        const bool is_a = b == n || (a < n_one && from[a].offset <= from[b].offset);
        to[i] = is_a ? from[a++] : from[b++];
    }
}

static void swap_changes(eject *e) {
    change *swap = e->changes;
    e->changes = e->spare;
    e->spare = swap;
}

static void merge_sort(eject *e, uint32_t n) {
    for (uint32_t i = 0; i < n; i += FEW) { sort_few(e->changes + i, n - i < FEW ? n - i : FEW); }
    for (uint32_t run = FEW; run < n; run *= 2) {
        for (uint32_t i = 0; i < n; i += 2 * run) {
            const uint32_t left = n - i, one = left < run ? left : run, two = left < 2 * run ? left : 2 * run;
            merge_two(e->changes + i, one, two, e->spare + i);
        }
        swap_changes(e);
    }
}

/* By offset. They are spread fairly evenly as a rule: counted into as many buckets as there are, little is left to be
 * sorted. */
static void sort_changes(eject *e, uint32_t n, uint64_t highest) {
    if (n < MAX_IN_BUCKET) {
        sort_few(e->changes, n);
        return;
    }
    const double scale = (double)n / ((double)highest + 1) * (1 - 1e-9);
    uint32_t most = 0;
    memset(e->bucket, 0, ((size_t)n + 1) * sizeof *e->bucket);
    for (uint32_t i = 0; i < n; i++) { e->bucket[(uint32_t)((double)e->changes[i].offset * scale) + 1]++; }
    for (uint32_t k = 0; k < n; k++) {
        most = e->bucket[k + 1] > most ? e->bucket[k + 1] : most;
        e->bucket[k + 1] += e->bucket[k];
    }
    if (most > MAX_IN_BUCKET) {
        merge_sort(e, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        e->spare[e->bucket[(uint32_t)((double)e->changes[i].offset * scale)]++] = e->changes[i];
    }
    swap_changes(e);
    sort_few(e->changes, n);
}

static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* What the piece overlaps at the bottom, and where that changes, as its offset rises; how often. */
static uint32_t list_changes(eject *e, const piece *p, uint64_t highest, int64_t *worth_out) {
    uint32_t n = 0;
    *worth_out = 0;
    for (uint32_t i = 0; i < e->n_near; i++) {
        const piece *q = &e->pieces[e->near[i]];
        const uint64_t end = q->offset + q->size_bytes;
        if (q->offset < p->size_bytes) {
            *worth_out += (int64_t)q->worth;
        } else if (q->offset - p->size_bytes < highest) {
            e->changes[n++] = (change){q->offset - p->size_bytes + 1, (int64_t)q->worth};
        }
        if (end <= highest) { e->changes[n++] = (change){end, -(int64_t)q->worth}; }
    }
    return n;
}

/* Places that are equally good are not drawn with equal chances, but differently from step to step. */
static uint64_t choose(eject *e, const piece *p) {
    EBB_ASSERT(p->size_bytes > 0 && p->size_bytes <= e->options->cap_bytes);
    const uint64_t highest = e->options->cap_bytes - p->size_bytes;
    int64_t worth = 0, least = INT64_MAX;
    const uint32_t n = list_changes(e, p, highest, &worth);
    uint64_t best = 0, best_room = UINT64_MAX, at = 0;
    sort_changes(e, n, highest);
    e->work += n / 2;
    for (uint32_t i = 0;;) { /* worth holds for offsets in [at, until] */
        const uint64_t until = i < n ? e->changes[i].offset - 1 : highest;
        const uint64_t room = until - at;
        EBB_ASSERT(worth >= 0 && at <= until + 1);
        const bool is_better = worth < least || (worth == 0 && room < best_room);
        if (i == 0 || e->changes[i - 1].offset <= until) {
            if (is_better || (worth == least && worth > 0 && mix(e->step + i) % 2 == 0)) {
                least = worth;
                best = worth > 0 && mix(e->step ^ i) % 4 == 0 ? until : at;
                best_room = room;
            }
        }
        if (i == n) { return best; }
        at = e->changes[i].offset;
        for (; i < n && e->changes[i].offset == at; i++) { worth += e->changes[i].worth; }
    }
}

/* The one that is worth most, of those that came last. */
static uint32_t take_from_pool(eject *e) {
    EBB_ASSERT(e->n_pool > 0);
    uint32_t best = e->n_pool - 1;
    for (uint32_t i = e->n_pool; i-- > 0 && i + MAX_SEEN > e->n_pool;) {
        if (e->pieces[e->pool[i]].worth > e->pieces[e->pool[best]].worth) { best = i; }
    }
    const uint32_t taken = e->pool[best];
    e->pool[best] = e->pool[--e->n_pool];
    return taken;
}

static void put_back(eject *e) {
    const uint32_t x = take_from_pool(e), n_pool = e->n_pool;
    piece *p = &e->pieces[x];
    find_near(e, p);
    EBB_ASSERT(p->offset == OUT);
    p->offset = choose(e, p);
    EBB_ASSERT(p->offset <= e->options->cap_bytes - p->size_bytes);
    for (uint32_t i = 0; i < e->n_near; i++) {
        piece *q = &e->pieces[e->near[i]];
        if (q->offset >= p->offset + p->size_bytes || p->offset >= q->offset + q->size_bytes) { continue; }
        EBB_ASSERT(q->offset != OUT && q != p && e->n_pool < e->n_pieces);
        q->offset = OUT;
        e->pool[e->n_pool++] = e->near[i];
    }
    if (e->n_pool > n_pool) { p->worth += e->growth[x]; }
    e->work += WORK_A_STEP;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status alloc_all(eject *e, ebb_bump *bump) {
    const size_t n = e->n_pieces;
    e->pieces = ebb__bump_alloc(bump, n, sizeof *e->pieces);
    e->born = ebb__bump_alloc(bump, (size_t)e->sections->n + 1, sizeof *e->born);
    e->pool = ebb__bump_alloc(bump, n, sizeof *e->pool);
    e->near = ebb__bump_alloc(bump, n, sizeof *e->near);
    e->growth = ebb__bump_alloc(bump, n, sizeof *e->growth);
    e->changes = ebb__bump_alloc(bump, 2 * n, sizeof *e->changes);
    e->spare = ebb__bump_alloc(bump, 2 * n, sizeof *e->spare);
    e->bucket = ebb__bump_alloc(bump, 2 * n + 1, sizeof *e->bucket);
    e->stop_at = ebb__bump_alloc(bump, n / MIN_BETWEEN + 2, sizeof *e->stop_at);
    e->stop_begin = ebb__bump_alloc(bump, n / MIN_BETWEEN + 3, sizeof *e->stop_begin);
    e->alive = ebb__bump_alloc(bump, 3 * n, sizeof *e->alive);
    return e->pieces != NULL && e->born != NULL && e->pool != NULL && e->near != NULL && e->growth != NULL &&
                   e->changes != NULL && e->spare != NULL && e->bucket != NULL && e->stop_at != NULL &&
                   e->stop_begin != NULL && e->alive != NULL
               ? EBB_OK
               : EBB_E_NO_MEMORY;
}

static void list_pieces(eject *e, const uint64_t *offsets) {
    const ebb_sections *s = e->sections;
    uint32_t born = 0;
    for (uint32_t i = 0; i < e->n_pieces; i++) {
        const ebb_place_range r = s->range[i];
        EBB_ASSERT(i == 0 || r.first >= s->range[i - 1].first);
        e->growth[i] = 1 + (uint64_t)sqrt((double)s->rounded[i] * ebb__place_length(s->n, r));
        e->pieces[i] = (piece){offsets[i], s->rounded[i], r.first, r.last, 0, e->growth[i]};
        while (born <= r.first) { e->born[born++] = i; }
        if (offsets[i] + s->rounded[i] > e->options->cap_bytes) {
            e->pieces[i].offset = OUT;
            e->pool[e->n_pool++] = i;
        }
    }
    while (born <= s->n) { e->born[born++] = e->n_pieces; }
}

/* What lives at this section, of those alive at the last stop and those born since, becomes the next stop. */
static void add_stop(eject *e, uint32_t section) {
    const uint32_t k = e->n_stops++, end = k == 0 ? 0 : e->stop_begin[k];
    const uint32_t begin = k == 0 ? 0 : e->stop_begin[k - 1], since = k == 0 ? 0 : e->born[e->stop_at[k - 1] + 1];
    const uint32_t until = k == 0 ? e->n_pieces : e->born[section + 1]; /* at the first, some live around the end */
    uint32_t n = end;
    for (uint32_t i = begin; i < end; i++) {
        if (lives_at(&e->pieces[e->alive[i]], section)) { e->alive[n++] = e->alive[i]; }
    }
    for (uint32_t p = since; p < until; p++) {
        if (lives_at(&e->pieces[p], section)) { e->alive[n++] = p; }
    }
    EBB_ASSERT(section < e->sections->n && n >= end && n <= 3 * e->n_pieces); /* some around the end twice */
    e->stop_at[k] = section;
    e->stop_begin[k] = end;
    e->stop_begin[k + 1] = n;
}

/* As many births between two as the list is long. */
static void list_stops(eject *e) {
    add_stop(e, 0);
    for (uint32_t section = 1; section < e->sections->n; section++) {
        const uint32_t last = e->n_stops - 1, length = e->stop_begin[last + 1] - e->stop_begin[last];
        const uint32_t n_born = e->born[section + 1] - e->born[e->stop_at[last] + 1];
        if (n_born >= MIN_BETWEEN && n_born >= length) { add_stop(e, section); }
    }
}

static uint64_t write_offsets(const eject *e, uint64_t *offsets) {
    uint64_t peak = 0;
    for (uint32_t p = 0; p < e->n_pieces; p++) {
        EBB_ASSERT(e->pieces[p].offset <= e->options->cap_bytes - e->pieces[p].size_bytes);
        offsets[p] = e->pieces[p].offset;
        peak = ebb_max_u64(peak, e->pieces[p].offset + e->pieces[p].size_bytes);
    }
    return peak;
}

ebb_status ebb__place_eject(const ebb_sections *sections, const ebb_place_eject_options *options, uint64_t *offsets,
                            uint64_t *peak_out, uint64_t *work) {
    eject e = {.sections = sections, .options = options, .n_pieces = (uint32_t)sections->n_items};
    ebb_bump bump;
    ebb__bump_init(&bump, sections->mem);
    EBB_ASSERT(options->cap_bytes >= sections->bound_bytes);
    const ebb_status st = alloc_all(&e, &bump);
    if (st == EBB_OK) {
        list_pieces(&e, offsets);
        list_stops(&e);
        while (e.n_pool > 0 && e.work < options->max_work && !ebb__place_eject_stops(options, e.step)) { put_back(&e); }
        *peak_out = e.n_pool == 0 ? write_offsets(&e, offsets) : UINT64_MAX;
        *work += e.work + sections->n_items;
    }
    ebb__bump_fini(&bump);
    return st;
}
