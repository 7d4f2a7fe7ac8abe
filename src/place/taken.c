/* SPDX-License-Identifier: Apache-2.0
 *
 * What of the arena is taken in each section, so that a gap for a range of sections is found without looking
 * at every item that lives in it.
 *
 * A balanced binary tree over the sections; each node stands for a range of them and has two sets of spans
 * [start, end) of the arena:
 *
 *     cover   what items take in all of the node's sections (of these items, those that do not cover the
 *             parent too)
 *     below   what any item takes in any of the node's sections: the covers of the whole subtree
 *
 *     sections   0   1   2   3   4   5   6   7        An item of sections [1, 6) lies in the covers of the
 *               └─┬─┘   └─┬─┘   └─┬─┘   └─┬─┘         nodes 1, 2-3 and 4-5, and in below of these and of all
 *                 └───┬───┘       └───┬───┘           nodes above them. To find what is taken in any of
 *                     └───────┬───────┘               [1, 6), unite below of 1, 2-3, 4-5 with cover of all
 *                                                     nodes above these. An item is in O(log n) sets and a
 *                                                     question asks O(log n) sets.
 *
 * Invariants
 *  1. The spans of a set are sorted and do not touch: neighbours are merged. So a set is as long as there are
 *     gaps in it, not items, and a well-packed arena has few.
 *  2. Sets only grow.
 *
 * Worst case: items that leave a gap beside each of them, O(n) spans a set; on the stays of training programs
 * sets have tens.
 */
#include "place/place_priv.h"

#define LOOKS_A_STEP 2u       /* of work */
#define LOOKS_A_SPAN 3u       /* of the heap of cursors: what comes next is far away in memory */
#define SPANS_MOVED_A_LOOK 8u /* moving this many spans takes about as long as looking at one */
#define CURSORS_A_LEVEL 8u    /* of a part: two ranges, at most four nodes each */

typedef struct span {
    uint64_t start, end;
} span;

typedef struct span_set {
    span *data;
    uint32_t n, cap;
} span_set;

/* A set that is being read for one part of an item: its spans that end above the part at the ground. */
typedef struct cursor {
    const span *at, *end;
    uint64_t low_bytes; /* where the part begins in the item */
    uint64_t lift;      /* how far the part ends below the item's top */
} cursor;

struct ebb_taken {
    ebb_bump *bump;
    uint32_t n_sections;
    size_t n_nodes;
    uint64_t work;
    span_set *cover, *below; /* nodes as in a heap: the children of v are 2v + 1 and 2v + 2 */
    cursor *heap;            /* by what the first span starts, lifted */
    uint32_t n_cursors, cap;
    uint32_t max_cursors; /* of a part */
};

typedef ebb_place_node node;

ebb_status ebb__taken_create(ebb_bump *bump, uint32_t n_sections, ebb_taken **taken_out) {
    size_t n_nodes = 1;
    uint32_t n_levels = 1;
    for (; n_nodes < n_sections; n_nodes *= 2) { n_levels++; }
    n_nodes *= 2; /* halving unevenly never goes deeper than the next power of two */
    EBB_ASSERT(n_nodes / 2 >= n_sections && n_levels <= 33);
    ebb_taken *taken = ebb__bump_alloc(bump, 1, sizeof *taken);
    if (taken == NULL) { return EBB_E_NO_MEMORY; }
    *taken = (ebb_taken){
        .bump = bump, .n_sections = n_sections, .n_nodes = n_nodes, .max_cursors = CURSORS_A_LEVEL * n_levels};
    taken->cover = ebb__bump_alloc(bump, n_nodes, sizeof *taken->cover);
    taken->below = ebb__bump_alloc(bump, n_nodes, sizeof *taken->below);
    if (taken->cover == NULL || taken->below == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__taken_reserve(taken, 1));
    memset(taken->cover, 0, n_nodes * sizeof *taken->cover);
    memset(taken->below, 0, n_nodes * sizeof *taken->below);
    *taken_out = taken;
    return EBB_OK;
}

ebb_status ebb__taken_reserve(ebb_taken *taken, size_t max_parts) {
    const uint32_t max_cursors = taken->max_cursors;
    if (max_parts <= taken->cap / max_cursors) { return EBB_OK; }
    if (max_parts > UINT32_MAX / max_cursors) { return ebb_fail(EBB_E_LIMIT, "an item has %zu parts", max_parts); }
    taken->heap = ebb__bump_alloc(taken->bump, max_parts * max_cursors, sizeof *taken->heap);
    if (taken->heap == NULL) { return EBB_E_NO_MEMORY; }
    taken->cap = (uint32_t)(max_parts * max_cursors);
    EBB_ASSERT(taken->n_cursors == 0);
    return EBB_OK;
}

static ebb_status copy_sets(ebb_taken *to, span_set *sets, const span_set *from) {
    for (size_t v = 0; v < to->n_nodes; v++) {
        if (from[v].n == 0) { continue; }
        sets[v] = (span_set){ebb__bump_alloc(to->bump, from[v].n, sizeof *sets[v].data), from[v].n, from[v].n};
        if (sets[v].data == NULL) { return EBB_E_NO_MEMORY; }
        memcpy(sets[v].data, from[v].data, from[v].n * sizeof *sets[v].data);
        to->work += 1 + from[v].n / SPANS_MOVED_A_LOOK;
    }
    return EBB_OK;
}

ebb_status ebb__taken_copy(const ebb_taken *from, ebb_bump *bump, ebb_taken **taken_out) {
    ebb_taken *taken = NULL;
    EBB_TRY(ebb__taken_create(bump, from->n_sections, &taken));
    EBB_TRY(copy_sets(taken, taken->cover, from->cover));
    EBB_TRY(copy_sets(taken, taken->below, from->below));
    *taken_out = taken;
    return EBB_OK;
}

uint64_t ebb__taken_work(const ebb_taken *taken) {
    return taken->work / LOOKS_A_STEP;
}

/* ---- sets ------------------------------------------------------------------------------------- */

/* The first span from at on that ends at or above address; looks ahead in growing leaps, as the answer is
 * mostly near. */
static const span *skip_to(const span *at, const span *end, uint64_t address) {
    size_t leap = 1, n = (size_t)(end - at);
    while (leap <= n && at[leap - 1].end < address) { leap *= 2; }
    size_t lo = leap / 2, hi = leap <= n ? leap - 1 : n; /* the answer lies in [lo, hi] */
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (at[mid].end < address) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return at + lo;
}

static ebb_status reserve_span(ebb_taken *taken, span_set *set) {
    if (set->n < set->cap) { return EBB_OK; }
    uint32_t cap = set->cap == 0 ? 1 : 2 * set->cap;
    span *data = ebb__bump_alloc(taken->bump, cap, sizeof *data);
    if (data == NULL) { return EBB_E_NO_MEMORY; }
    if (set->n > 0) { memcpy(data, set->data, set->n * sizeof *data); }
    set->data = data;
    set->cap = cap;
    return EBB_OK;
}

/* Unite the set with a span, merging what it touches. */
static ebb_status add_span(ebb_taken *taken, span_set *set, span add) {
    const bool is_highest = set->n == 0 || set->data[set->n - 1].end < add.start;
    uint32_t lo = is_highest ? set->n : (uint32_t)(skip_to(set->data, set->data + set->n, add.start) - set->data);
    uint32_t hi = lo;
    while (hi < set->n && set->data[hi].start <= add.end) { hi++; }
    EBB_ASSERT(lo <= hi && hi <= set->n && (lo == 0 || set->data[lo - 1].end < add.start));
    taken->work += 1 + hi - lo + (set->n - lo) / SPANS_MOVED_A_LOOK;
    if (lo == hi) { /* touches none */
        EBB_TRY(reserve_span(taken, set));
        memmove(set->data + lo + 1, set->data + lo, (set->n - lo) * sizeof *set->data);
        set->data[lo] = add;
        set->n++;
        return EBB_OK;
    }
    add.start = ebb_min_u64(add.start, set->data[lo].start);
    add.end = ebb_max_u64(add.end, set->data[hi - 1].end);
    set->data[lo] = add;
    memmove(set->data + lo + 1, set->data + hi, (set->n - hi) * sizeof *set->data);
    set->n -= hi - lo - 1;
    EBB_ASSERT(set->n > 0 && set->n <= set->cap);
    return EBB_OK;
}

static bool is_set_valid(const span_set *set) {
    for (uint32_t i = 0; i < set->n; i++) {
        if (set->data[i].start >= set->data[i].end) { return false; }
        if (i > 0 && set->data[i - 1].end >= set->data[i].start) { return false; }
    }
    return true;
}

/* ---- taking ----------------------------------------------------------------------------------- */

static ebb_status add_range(ebb_taken *taken, node v, uint32_t first, uint32_t last, span add) {
    if (first >= v.last || last <= v.first) { return EBB_OK; }
    EBB_TRY(add_span(taken, &taken->below[v.idx], add));
    if (EBB_DEBUG >= 2) { EBB_ASSERT(is_set_valid(&taken->below[v.idx])); }
    if (first <= v.first && last >= v.last) { return add_span(taken, &taken->cover[v.idx], add); }
    EBB_TRY(add_range(taken, ebb__place_left_of(v), first, last, add));
    return add_range(taken, ebb__place_right_of(v), first, last, add);
}

ebb_status ebb__taken_add(ebb_taken *taken, ebb_place_range range, uint64_t offset, uint64_t size_bytes) {
    const node root = {0, 0, taken->n_sections};
    const span add = {offset, offset + size_bytes};
    EBB_ASSERT(size_bytes > 0 && add.end > offset);
    EBB_ASSERT(range.first < taken->n_sections && range.last <= taken->n_sections);
    if (range.first < range.last) { return add_range(taken, root, range.first, range.last, add); }
    EBB_TRY(add_range(taken, root, range.first, taken->n_sections, add));
    return add_range(taken, root, 0, range.last, add);
}

/* ---- finding ---------------------------------------------------------------------------------- */

/* For which item it looks. An offset o is free for a part when no span of its sections meets [o + low, o + high): when
 * each either ends at or below o + low, or starts, lifted, at or above o + top. */
typedef struct question {
    const ebb_place_part *part;
    size_t n_parts;
    uint64_t top_bytes; /* of all parts */
    uint64_t alignment, base;
    ebb_place_fit fit;
} question;

static uint64_t key_of(const cursor *c) {
    return c->at->start + c->lift;
}

static void sink(ebb_taken *taken, uint32_t i) {
    cursor *heap = taken->heap, moved = heap[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= taken->n_cursors) { break; }
        if (child + 1 < taken->n_cursors && key_of(&heap[child + 1]) < key_of(&heap[child])) { child++; }
        if (key_of(&heap[child]) >= key_of(&moved)) { break; }
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moved;
}

static void open_cursor(ebb_taken *taken, const span_set *set, cursor c, uint64_t base) {
    taken->work++;
    if (set->n == 0 || set->data[set->n - 1].end <= base + c.low_bytes) { return; }
    EBB_ASSERT(taken->n_cursors < taken->cap);
    c.end = set->data + set->n;
    c.at = skip_to(set->data, c.end, base + c.low_bytes + 1);
    taken->heap[taken->n_cursors++] = c;
}

static void open_range(ebb_taken *taken, node v, ebb_place_range range, cursor c, uint64_t base) {
    if (range.first >= v.last || range.last <= v.first || taken->below[v.idx].n == 0) { return; }
    if (range.first <= v.first && range.last >= v.last) {
        open_cursor(taken, &taken->below[v.idx], c, base);
        return;
    }
    open_cursor(taken, &taken->cover[v.idx], c, base);
    open_range(taken, ebb__place_left_of(v), range, c, base);
    open_range(taken, ebb__place_right_of(v), range, c, base);
}

static void open_part(ebb_taken *taken, const ebb_place_part *part, uint64_t top_bytes, uint64_t base) {
    const node root = {0, 0, taken->n_sections};
    const cursor c = {.low_bytes = part->low_bytes, .lift = top_bytes - part->high_bytes};
    const bool wraps = part->range.first >= part->range.last;
    EBB_ASSERT(part->low_bytes < part->high_bytes && part->high_bytes <= top_bytes);
    EBB_ASSERT(part->range.first < taken->n_sections && part->range.last <= taken->n_sections);
    ebb_place_range range = part->range;
    if (wraps) { range.last = taken->n_sections; }
    open_range(taken, root, range, c, base);
    if (!wraps) { return; }
    range = (ebb_place_range){0, part->range.last};
    open_range(taken, root, range, c, base);
}

/* The cursor with the lowest span goes on to what ends above its part at the ground. */
static void advance(ebb_taken *taken, uint64_t ground) {
    cursor *top = &taken->heap[0];
    top->at = skip_to(top->at, top->end, ground + top->low_bytes + 1);
    taken->work += LOOKS_A_SPAN;
    if (top->at == top->end) { *top = taken->heap[--taken->n_cursors]; }
    if (taken->n_cursors > 0) { sink(taken, 0); }
}

static uint64_t align_to_any(uint64_t offset, uint64_t alignment) {
    return alignment == 1 ? offset : (offset + alignment - 1) / alignment * alignment;
}

static uint64_t find(ebb_taken *taken, const question *q) {
    uint64_t ground = align_to_any(q->base, q->alignment); /* nothing below will do, or it was looked at */
    uint64_t lowest = UINT64_MAX;                          /* below all that is taken */
    uint64_t best = UINT64_MAX, best_spare = UINT64_MAX;
    uint64_t n_ranges = 0; /* that are taken, with gaps between */
    EBB_ASSERT(q->n_parts > 0 && q->alignment > 0 && ground >= q->base);
    taken->n_cursors = 0;
    for (size_t k = 0; k < q->n_parts; k++) { open_part(taken, &q->part[k], q->top_bytes, ground); }
    for (uint32_t i = taken->n_cursors / 2; i-- > 0;) { sink(taken, i); }
    while (taken->n_cursors > 0) {
        const cursor *c = &taken->heap[0];
        const span next = *c->at;
        const uint64_t key = key_of(c);
        n_ranges += n_ranges == 0 || next.start > ground + c->low_bytes ? 1 : 0;
        if (key >= ground + q->top_bytes && key - q->top_bytes - ground < best_spare) {
            if (n_ranges == 1 && q->fit == EBB_PLACE_BETWEEN) {
                lowest = ground;
            } else {
                best = ground;
                best_spare = key - q->top_bytes - ground;
                if (q->fit == EBB_PLACE_LOWEST || best_spare == 0) { return best; }
            }
        }
        ground = ebb_max_u64(ground, align_to_any(next.end - c->low_bytes, q->alignment));
        advance(taken, ground);
    }
    if (n_ranges == 1 && lowest != UINT64_MAX) { return lowest; }
    return best != UINT64_MAX ? best : ground;
}

uint64_t ebb__taken_find(ebb_taken *taken, ebb_place_range range, uint64_t size_bytes, uint64_t base,
                         ebb_place_fit fit) {
    const ebb_place_part all = {.range = range, .high_bytes = size_bytes};
    const question q = {.part = &all, .n_parts = 1, .top_bytes = size_bytes, .alignment = 1, .base = base, .fit = fit};
    return find(taken, &q);
}

uint64_t ebb__taken_find_parts(ebb_taken *taken, const ebb_parts *parts, size_t item, uint64_t base,
                               ebb_place_fit fit) {
    const question q = {.part = parts->part + parts->first[item],
                        .n_parts = parts->first[item + 1] - parts->first[item],
                        .top_bytes = parts->top[item],
                        .alignment = parts->alignment[item],
                        .base = base,
                        .fit = fit};
    return find(taken, &q);
}
