/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement under a cap by ejection, as eject.c has it, of items of any kind: what sticks out is put back one by one
 * where what it overlaps is least worth; that is taken out and put back in turn. A fixed item is worth more than all
 * the rest together.
 *
 * Gaps and windows leave no order of address that a sweep could keep, so here each two items that live together know
 * the distances of their offsets at which they collide (parts.c): a table as long as there are such pairs. It is made
 * only where they are no more than MAX_APARTS, some thousands of items.
 */
#include "place/place_priv.h"

#include <math.h>

#define OUT UINT64_MAX
#define MAX_ITEMS 6000u
#define MAX_APARTS ((size_t)4 * 1000 * 1000)
#define PARTS_A_STEP 8u /* pairs looked at in the time of a step */
#define WORK_A_STEP 8u
#define MAX_SEEN 64u /* of the pool */
#define FIXED_WORTH ((int64_t)1 << 50)
#define MAX_WORTH ((int64_t)1 << 24)

/* The item's offset must not be in [other's + from, other's + to). */
typedef struct bar {
    uint32_t other;
    int64_t from, to;
} bar;

/* From this offset on, so much more worth is overlapped. */
typedef struct change {
    uint64_t offset;
    int64_t worth;
} change;

struct ebb_ejector {
    const ebb_parts *parts;
    size_t *first; /* [n_items + 1]: item i has the bars [first[i], first[i + 1]) */
    bar *bars;
    uint64_t *offsets;       /* [n_items]: OUT: to be put back */
    int64_t *worth, *growth; /* [n_items] */
    uint32_t *pool;
    uint32_t n_pool, step;
    change *changes, *spare; /* [twice the bars of an item] */
    uint64_t cap_bytes, work;
};

/* ---- who is in whose way ---------------------------------------------------------------------- */

static ebb_status list_aparts(const ebb_parts *parts, ebb_aparts *list, bool *are_few_out) {
    const size_t n = parts->problem->n_items;
    for (size_t j = 1; j < n; j++) {
        for (size_t i = 0; i < j && list->n <= MAX_APARTS; i++) {
            const ebb_apart names = {.first = (uint32_t)i, .second = (uint32_t)j};
            EBB_TRY(ebb__place_add_aparts(parts, i, j, names, list));
        }
    }
    *are_few_out = list->n <= MAX_APARTS;
    return EBB_OK;
}

/* In both items' lists. */
static ebb_status list_bars(ebb_ejector *e, ebb_bump *bump, const ebb_aparts *list) {
    const size_t n = e->parts->problem->n_items;
    e->bars = ebb__bump_alloc(bump, 2 * list->n, sizeof *e->bars);
    size_t *next = ebb__bump_alloc(bump, n + 1, sizeof *next), most = 0;
    if (e->bars == NULL || next == NULL) { return EBB_E_NO_MEMORY; }
    memset(e->first, 0, (n + 1) * sizeof *e->first);
    for (size_t k = 0; k < list->n; k++) {
        e->first[list->data[k].first + 1]++;
        e->first[list->data[k].second + 1]++;
    }
    for (size_t i = 0; i < n; i++) {
        most = e->first[i + 1] > most ? e->first[i + 1] : most;
        e->first[i + 1] += e->first[i];
    }
    EBB_ASSERT(e->first[n] == 2 * list->n);
    memcpy(next, e->first, (n + 1) * sizeof *next);
    for (size_t k = 0; k < list->n; k++) {
        const ebb_apart *p = &list->data[k];
        EBB_ASSERT(p->a < p->b);
        e->bars[next[p->second]++] = (bar){p->first, p->a + 1, p->b};
        e->bars[next[p->first]++] = (bar){p->second, 1 - p->b, -p->a};
    }
    e->changes = ebb__bump_alloc(bump, 2 * most + 1, sizeof *e->changes);
    e->spare = ebb__bump_alloc(bump, 2 * most + 1, sizeof *e->spare);
    return e->changes != NULL && e->spare != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status alloc_all(ebb_ejector *e, ebb_bump *bump) {
    const size_t n = e->parts->problem->n_items;
    e->first = ebb__bump_alloc(bump, n + 1, sizeof *e->first);
    e->offsets = ebb__bump_alloc(bump, n, sizeof *e->offsets);
    e->worth = ebb__bump_alloc(bump, n, sizeof *e->worth);
    e->growth = ebb__bump_alloc(bump, n, sizeof *e->growth);
    e->pool = ebb__bump_alloc(bump, n, sizeof *e->pool);
    return e->first != NULL && e->offsets != NULL && e->worth != NULL && e->growth != NULL && e->pool != NULL
               ? EBB_OK
               : EBB_E_NO_MEMORY;
}

/* The root of what an item holds over its life, as part of the most that one could. */
static void find_growth(ebb_ejector *e) {
    const ebb_parts *parts = e->parts;
    for (size_t i = 0; i < parts->problem->n_items; i++) {
        double area = 0.0;
        for (size_t k = parts->first[i]; k < parts->first[i + 1]; k++) {
            const ebb_place_part *p = &parts->part[k];
            area += (double)(p->high_bytes - p->low_bytes) * ebb__place_length(parts->n_sections, p->range);
        }
        const double most = (double)ebb_max_u64(parts->bound_bytes, 1) * (double)parts->n_sections;
        e->growth[i] = 1 + (int64_t)(sqrt(area / most) * (double)(MAX_WORTH - 1));
        EBB_ASSERT(e->growth[i] >= 1);
    }
}

ebb_status ebb__ejector_create(const ebb_parts *parts, ebb_bump *bump, ebb_ejector **ejector_out, uint64_t *work) {
    ebb_aparts list = {0};
    bool are_few = false;
    ebb_ejector *e = NULL;
    *ejector_out = NULL;
    const size_t n_parts = parts->first[parts->problem->n_items];
    if (parts->problem->n_items > MAX_ITEMS || n_parts > 2 * MAX_ITEMS) { return EBB_OK; }
    ebb_status st = list_aparts(parts, &list, &are_few);
    *work += n_parts * n_parts / 2 / PARTS_A_STEP;
    if (st == EBB_OK && are_few) {
        e = ebb__bump_alloc(bump, 1, sizeof *e);
        st = e != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    }
    if (e != NULL) {
        *e = (ebb_ejector){.parts = parts};
        st = alloc_all(e, bump);
        if (st == EBB_OK) { st = list_bars(e, bump, &list); }
        if (st == EBB_OK) { find_growth(e); }
    }
    EBB_VEC_FINI(parts->mem, &list);
    if (st == EBB_OK) { *ejector_out = e; }
    return st;
}

/* ---- one step --------------------------------------------------------------------------------- */

static void merge_two(const change *from, size_t n_one, size_t n, change *to) {
    for (size_t i = 0, a = 0, b = n_one; i < n; i++) {
        const bool is_a = b == n || (a < n_one && from[a].offset <= from[b].offset);
        to[i] = is_a ? from[a++] : from[b++];
    }
}

static void sort_changes(ebb_ejector *e, size_t n) {
    for (size_t run = 1; run < n; run *= 2) {
        for (size_t i = 0; i < n; i += 2 * run) {
            const size_t left = n - i;
            merge_two(e->changes + i, left < run ? left : run, left < 2 * run ? left : 2 * run, e->spare + i);
        }
        change *swap = e->changes;
        e->changes = e->spare;
        e->spare = swap;
    }
}

static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

/* The items that overlap at offset 0, and where that changes below highest; how often. */
static size_t list_changes(ebb_ejector *e, size_t item, uint64_t highest, int64_t *worth_out) {
    size_t n = 0;
    *worth_out = 0;
    for (size_t k = e->first[item]; k < e->first[item + 1]; k++) {
        const bar *b = &e->bars[k];
        if (e->offsets[b->other] == OUT) { continue; }
        const int64_t at = (int64_t)e->offsets[b->other], from = at + b->from, to = at + b->to;
        if (to <= 0 || from > (int64_t)highest) { continue; }
        if (from <= 0) {
            *worth_out += e->worth[b->other];
        } else {
            e->changes[n++] = (change){(uint64_t)from, e->worth[b->other]};
        }
        if (to <= (int64_t)highest) { e->changes[n++] = (change){(uint64_t)to, -e->worth[b->other]}; }
    }
    return n;
}

/* Where the least is overlapped, of offsets that are aligned; where that is nothing, in the tightest room. */
static uint64_t choose(ebb_ejector *e, size_t item, int64_t *worth_out) {
    const uint64_t highest = e->cap_bytes - e->parts->top[item], alignment = e->parts->alignment[item];
    int64_t worth = 0, least = INT64_MAX;
    const size_t n = list_changes(e, item, highest, &worth);
    uint64_t best = 0, best_room = UINT64_MAX, at = 0;
    sort_changes(e, n);
    e->work += n / 2;
    for (size_t i = 0;;) { /* worth holds for offsets in [at, until] */
        const uint64_t until = i < n ? e->changes[i].offset - 1 : highest;
        const uint64_t low = (at + alignment - 1) / alignment * alignment, high = until / alignment * alignment;
        const bool is_better = worth < least || (worth == 0 && until - at < best_room);
        EBB_ASSERT(worth >= 0 && at <= until + 1);
        if (low <= high && (is_better || (worth == least && worth > 0 && mix(e->step + (uint32_t)i) % 2 == 0))) {
            least = worth;
            best = worth > 0 && mix(e->step ^ (uint32_t)i) % 4 == 0 ? high : low;
            best_room = until - at;
        }
        if (i == n) { break; }
        at = e->changes[i].offset;
        for (; i < n && e->changes[i].offset == at; i++) { worth += e->changes[i].worth; }
    }
    *worth_out = least;
    return best;
}

/* The one that is worth most, of those that came last. */
static uint32_t take_from_pool(ebb_ejector *e) {
    uint32_t best = e->n_pool - 1;
    for (uint32_t i = e->n_pool; i-- > 0 && i + MAX_SEEN > e->n_pool;) {
        if (e->worth[e->pool[i]] > e->worth[e->pool[best]]) { best = i; }
    }
    const uint32_t taken = e->pool[best];
    e->pool[best] = e->pool[--e->n_pool];
    return taken;
}

static void take_out(ebb_ejector *e, uint32_t item) {
    EBB_ASSERT(e->offsets[item] != OUT && !ebb__place_is_fixed(e->parts->problem, item));
    e->offsets[item] = OUT;
    e->pool[e->n_pool++] = item;
}

/* false: only what is fixed is in its way. */
static bool put_back(ebb_ejector *e) {
    const uint32_t item = take_from_pool(e), n_pool = e->n_pool;
    int64_t worth = 0;
    e->step++;
    e->work += WORK_A_STEP + (e->first[item + 1] - e->first[item]) / PARTS_A_STEP;
    const uint64_t offset = choose(e, item, &worth);
    if (worth >= FIXED_WORTH) { return false; }
    for (size_t k = e->first[item]; k < e->first[item + 1]; k++) {
        const bar *b = &e->bars[k];
        if (e->offsets[b->other] == OUT) { continue; }
        const int64_t at = (int64_t)e->offsets[b->other];
        if ((int64_t)offset >= at + b->from && (int64_t)offset < at + b->to) { take_out(e, b->other); }
    }
    EBB_ASSERT(offset % e->parts->alignment[item] == 0 && offset + e->parts->top[item] <= e->cap_bytes);
    e->offsets[item] = offset;
    if (e->n_pool > n_pool && e->worth[item] < FIXED_WORTH / MAX_ITEMS / 2) { e->worth[item] += e->growth[item]; }
    return true;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static void begin(ebb_ejector *e, const uint64_t *offsets) {
    const ebb_parts *parts = e->parts;
    e->n_pool = e->step = 0;
    e->work = 0;
    for (size_t i = 0; i < parts->problem->n_items; i++) {
        const bool is_fixed = ebb__place_is_fixed(parts->problem, i);
        e->worth[i] = is_fixed ? FIXED_WORTH : e->growth[i];
        e->offsets[i] = offsets[i];
        EBB_ASSERT(!is_fixed || parts->top[i] == 0 || offsets[i] + parts->top[i] <= e->cap_bytes);
        if (parts->top[i] > 0 && offsets[i] + parts->top[i] > e->cap_bytes) { take_out(e, (uint32_t)i); }
    }
}

void ebb__ejector_run(ebb_ejector *e, const ebb_place_eject_options *options, uint64_t *offsets, uint64_t *peak_out,
                      uint64_t *work) {
    const ebb_parts *parts = e->parts;
    uint64_t peak_bytes = 0;
    bool goes_on = true;
    e->cap_bytes = options->cap_bytes;
    EBB_ASSERT(options->cap_bytes >= parts->bound_bytes && options->cap_bytes < (uint64_t)1 << 63);
    begin(e, offsets);
    while (goes_on && e->n_pool > 0 && e->work < options->max_work && !ebb__place_eject_stops(options, e->step)) {
        goes_on = put_back(e);
    }
    *work += e->work + parts->problem->n_items;
    *peak_out = UINT64_MAX;
    if (e->n_pool > 0 || !goes_on) { return; }
    for (size_t i = 0; i < parts->problem->n_items; i++) {
        offsets[i] = e->offsets[i];
        if (parts->top[i] > 0) { peak_bytes = ebb_max_u64(peak_bytes, offsets[i] + parts->top[i]); }
    }
    EBB_ASSERT(peak_bytes <= options->cap_bytes);
    *peak_out = peak_bytes;
}
