/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement from the bottom up under a cap: the search that wins where a plan fills its budget at all times, and
 * the greedy orders of place.c leave holes.
 *
 * Each section has a skyline, the end of the highest item so far, and a remainder, the bytes of the items that are
 * still to be placed in it. Nothing is ever placed below a skyline, so an item's offset is the highest skyline of
 * its sections, and what lies between that and the other skylines is lost. The item with the lowest offset goes
 * first, but only where nothing is lost that is needed: where offset + remainder stays within the cap in all of
 * its sections. Otherwise some section has a hole under it that others must fill first, and the item waits until
 * something is placed there. When all wait, the cap rises to the least at which one need not.
 *
 *         cap ---------------------------
 *              |  remainder |           |     an item over both sections would lie at b
 *              |            |           |     and lose what is between a and b;
 *            a |............|.........b |     it must wait if b + remainder > cap on the left
 *              |  skyline   | skyline   |
 *
 * Ties of offset are broken by a rank (longest, largest ... first). Two trees over the sections answer for a range
 * the highest skyline and the largest remainder in O(log n). An item that waits is looked at again only when its
 * hole is filled; still, many long items that overlap may be looked at often, so the work is limited.
 */
#include "place/place_priv.h"

#define WORK_A_LOOK 12u /* in the measure of taken.c */

typedef struct entry {
    uint64_t offset; /* not above what it is now: skylines only rise */
    uint64_t rank;
    uint32_t item;
} entry;

/* Values of a node's sections; what holds for all of them is kept at the node and not handed down. */
typedef struct tree_node {
    uint64_t sky, sky_all;      /* the highest skyline; a lower limit of all */
    uint64_t rest, rest_placed; /* the largest remainder; already less by this for the children */
    uint32_t rest_at;           /* the section of the largest remainder */
} tree_node;

typedef struct dive {
    const ebb_sections *sections;
    tree_node *tree; /* nodes as in a heap */
    entry *heap;
    size_t n_heap, n_left;
    uint32_t *waiting, *next_waiting; /* [sections], [items]: lists of item + 1; 0: none */
    bool *is_placed;
    const uint64_t *rank;
    uint64_t *offsets;
    uint64_t cap_bytes, give_up_bytes, work;
} dive;

/* ---- the trees -------------------------------------------------------------------------------- */

typedef struct node_range {
    size_t idx;
    uint32_t first, last;
} node_range;

static node_range left_of(node_range v) {
    return (node_range){2 * v.idx + 1, v.first, v.first + (v.last - v.first) / 2};
}

static node_range right_of(node_range v) {
    return (node_range){2 * v.idx + 2, v.first + (v.last - v.first) / 2, v.last};
}

static void build(dive *d, node_range v, const uint64_t *rest, uint64_t base_bytes) {
    tree_node *n = &d->tree[v.idx];
    *n = (tree_node){.sky = base_bytes, .rest_at = v.first};
    if (v.last - v.first == 1) {
        n->rest = rest[v.first];
        return;
    }
    build(d, left_of(v), rest, base_bytes);
    build(d, right_of(v), rest, base_bytes);
    const tree_node *a = &d->tree[2 * v.idx + 1], *b = &d->tree[2 * v.idx + 2];
    n->rest = ebb_max_u64(a->rest, b->rest);
    n->rest_at = a->rest >= b->rest ? a->rest_at : b->rest_at;
}

/* What an item of this size and end leaves in [first, last). */
static void put_in(dive *d, node_range v, ebb_place_range range, uint64_t end, uint64_t size_bytes) {
    if (range.first >= v.last || range.last <= v.first) { return; }
    tree_node *n = &d->tree[v.idx];
    n->sky = ebb_max_u64(n->sky, end);
    if (range.first <= v.first && range.last >= v.last) {
        n->sky_all = ebb_max_u64(n->sky_all, end);
        n->rest -= size_bytes;
        n->rest_placed += size_bytes;
        return;
    }
    put_in(d, left_of(v), range, end, size_bytes);
    put_in(d, right_of(v), range, end, size_bytes);
    const tree_node *a = &d->tree[2 * v.idx + 1], *b = &d->tree[2 * v.idx + 2];
    n->rest = ebb_max_u64(a->rest, b->rest) - n->rest_placed;
    n->rest_at = a->rest >= b->rest ? a->rest_at : b->rest_at;
}

static uint64_t highest_sky(const dive *d, node_range v, ebb_place_range range) {
    if (range.first >= v.last || range.last <= v.first) { return 0; }
    const tree_node *n = &d->tree[v.idx];
    if (range.first <= v.first && range.last >= v.last) { return n->sky; }
    uint64_t below = ebb_max_u64(highest_sky(d, left_of(v), range), highest_sky(d, right_of(v), range));
    return ebb_max_u64(n->sky_all, below);
}

typedef struct rest {
    uint64_t size_bytes;
    uint32_t section;
} rest;

static rest largest_rest(const dive *d, node_range v, ebb_place_range range) {
    if (range.first >= v.last || range.last <= v.first) { return (rest){0, UINT32_MAX}; }
    const tree_node *n = &d->tree[v.idx];
    if (range.first <= v.first && range.last >= v.last) { return (rest){n->rest, n->rest_at}; }
    const rest a = largest_rest(d, left_of(v), range), b = largest_rest(d, right_of(v), range);
    rest most = b.section == UINT32_MAX || (a.section != UINT32_MAX && a.size_bytes >= b.size_bytes) ? a : b;
    most.size_bytes -= n->rest_placed;
    return most;
}

/* The one or two ranges of an item, the second empty where it does not live around the end. */
static void split(const dive *d, uint32_t item, ebb_place_range part[2]) {
    const ebb_place_range range = d->sections->range[item];
    const bool wraps = range.first >= range.last;
    part[0] = (ebb_place_range){range.first, wraps ? d->sections->n : range.last};
    part[1] = (ebb_place_range){0, wraps ? range.last : 0};
}

static node_range root_of(const dive *d) {
    return (node_range){0, 0, d->sections->n};
}

static uint64_t offset_of(const dive *d, uint32_t item) {
    ebb_place_range part[2];
    split(d, item, part);
    return ebb_max_u64(highest_sky(d, root_of(d), part[0]), highest_sky(d, root_of(d), part[1]));
}

static rest rest_of(const dive *d, uint32_t item) {
    ebb_place_range part[2];
    split(d, item, part);
    const rest a = largest_rest(d, root_of(d), part[0]), b = largest_rest(d, root_of(d), part[1]);
    return b.section == UINT32_MAX || a.size_bytes >= b.size_bytes ? a : b;
}

/* ---- the queue -------------------------------------------------------------------------------- */

static bool is_before(const entry *a, const entry *b) {
    return a->offset != b->offset ? a->offset < b->offset : a->rank < b->rank;
}

static void push(dive *d, uint64_t offset, uint32_t item) {
    const entry e = {offset, d->rank[item], item};
    size_t i = d->n_heap++;
    for (; i > 0 && is_before(&e, &d->heap[(i - 1) / 2]); i = (i - 1) / 2) { d->heap[i] = d->heap[(i - 1) / 2]; }
    d->heap[i] = e;
}

static entry pop(dive *d) {
    const entry top = d->heap[0], moved = d->heap[--d->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < d->n_heap; child = 2 * i + 1) {
        if (child + 1 < d->n_heap && is_before(&d->heap[child + 1], &d->heap[child])) { child++; }
        if (!is_before(&d->heap[child], &moved)) { break; }
        d->heap[i] = d->heap[child];
        i = child;
    }
    d->heap[i] = moved;
    return top;
}

/* ---- the dive --------------------------------------------------------------------------------- */

static void wake(dive *d, ebb_place_range range) {
    for (uint32_t s = range.first; s < range.last; s++) {
        while (d->waiting[s] != 0) {
            const uint32_t item = d->waiting[s] - 1;
            d->waiting[s] = d->next_waiting[item];
            push(d, d->offsets[item], item);
        }
    }
    d->work += (range.last - range.first) / 16;
}

static void place(dive *d, uint32_t item, uint64_t offset) {
    ebb_place_range part[2];
    const uint64_t size_bytes = d->sections->rounded[item];
    split(d, item, part);
    d->offsets[item] = offset;
    d->is_placed[item] = true;
    d->n_left--;
    for (unsigned i = 0; i < 2; i++) {
        put_in(d, root_of(d), part[i], offset + size_bytes, size_bytes);
        wake(d, part[i]);
    }
}

/* All wait: raise the cap to the least that one of them needs, and look at all of them again. */
static void raise_cap(dive *d, size_t n_items) {
    uint64_t least_bytes = UINT64_MAX;
    memset(d->waiting, 0, d->sections->n * sizeof *d->waiting);
    for (uint32_t i = 0; i < n_items; i++) {
        if (d->is_placed[i]) { continue; }
        const uint64_t offset = offset_of(d, i);
        least_bytes = ebb_min_u64(least_bytes, offset + rest_of(d, i).size_bytes);
        push(d, offset, i);
        d->work += WORK_A_LOOK;
    }
    EBB_ASSERT(least_bytes > d->cap_bytes);
    d->cap_bytes = least_bytes;
}

/* Look at the queue's first: place it, let it wait, or put it back where it belongs by now. */
static void look(dive *d) {
    const entry e = pop(d);
    const uint64_t offset = offset_of(d, e.item);
    d->work += WORK_A_LOOK;
    if (offset > e.offset) {
        push(d, offset, e.item);
        return;
    }
    const rest r = rest_of(d, e.item);
    if (offset + r.size_bytes <= d->cap_bytes) {
        place(d, e.item, offset);
        return;
    }
    d->offsets[e.item] = offset;
    d->next_waiting[e.item] = d->waiting[r.section];
    d->waiting[r.section] = e.item + 1;
}

static ebb_status prepare(dive *d, ebb_bump *bump, size_t n_items, uint64_t base_bytes) {
    const uint32_t n_sections = d->sections->n;
    size_t n_nodes = 1;
    while (n_nodes < n_sections) { n_nodes *= 2; }
    d->tree = ebb__bump_alloc(bump, 2 * n_nodes, sizeof *d->tree);
    d->heap = ebb__bump_alloc(bump, n_items, sizeof *d->heap);
    d->waiting = ebb__bump_alloc(bump, n_sections, sizeof *d->waiting);
    d->next_waiting = ebb__bump_alloc(bump, n_items, sizeof *d->next_waiting);
    d->is_placed = ebb__bump_alloc(bump, n_items, sizeof *d->is_placed);
    uint64_t *bytes = ebb__bump_alloc(bump, (size_t)n_sections + 1, sizeof *bytes);
    if (d->tree == NULL || d->heap == NULL || d->waiting == NULL || d->next_waiting == NULL || d->is_placed == NULL ||
        bytes == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(d->waiting, 0, n_sections * sizeof *d->waiting);
    memset(bytes, 0, ((size_t)n_sections + 1) * sizeof *bytes);
    for (uint32_t i = 0; i < n_items; i++) {
        const uint64_t size_bytes = d->sections->rounded[i];
        d->is_placed[i] = size_bytes == 0 || ebb__place_lives_always(d->sections, i);
        if (d->is_placed[i]) { continue; }
        ebb_place_range part[2];
        split(d, i, part);
        for (unsigned k = 0; k < 2; k++) { /* differences, modulo 2^64; an empty part cancels out */
            bytes[part[k].first] += size_bytes;
            bytes[part[k].last] -= size_bytes;
        }
        d->n_left++;
        push(d, base_bytes, i);
    }
    for (uint32_t s = 1; s < n_sections; s++) { bytes[s] += bytes[s - 1]; }
    build(d, root_of(d), bytes, base_bytes);
    return EBB_OK;
}

ebb_status ebb__place_dive(const ebb_sections *sections, const ebb_place_dive_options *options, uint64_t *offsets,
                           uint64_t *peak_out, uint64_t *work) {
    dive d = {.sections = sections,
              .rank = options->rank,
              .offsets = offsets,
              .cap_bytes = options->cap_bytes,
              .give_up_bytes = options->give_up_bytes};
    ebb_bump bump;
    ebb__bump_init(&bump, sections->mem);
    ebb_status st = prepare(&d, &bump, sections->n_items, options->base_bytes);
    while (st == EBB_OK && d.n_left > 0 && d.work < options->max_work && d.cap_bytes < d.give_up_bytes) {
        if (d.n_heap == 0) {
            raise_cap(&d, sections->n_items);
        } else {
            look(&d);
        }
    }
    if (st == EBB_OK) { *peak_out = d.n_left == 0 ? d.tree[0].sky : UINT64_MAX; }
    *work += d.work;
    ebb__bump_fini(&bump);
    return st;
}
