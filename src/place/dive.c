/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement from the bottom up under a cap: the search that wins where a plan fills its budget at all times, and
 * greedy orders leave holes.
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
 * Ties of offset are broken by a rank (longest, largest ... first).
 *
 * The queue is not of items but of sections: an item is filed under the section of its highest skyline, and a section's
 * items all rise with it, so that what is placed over hundreds of them touches one. A skyline that has risen above the
 * one that an item is filed under shows when the item comes first; it is then filed again. Of equal skylines the
 * section in which most items live is taken, so that few have items.
 *
 * A tree over the sections answers for a range the highest skyline and the largest remainder in O(log n). Items of a
 * section are in a leftist heap by rank (Crane, 1972), those that wait for it in one by offset.
 */
#include "place/place_priv.h"

#define WORK_A_LOOK 12u /* in the measure of taken.c */
#define NO_ITEM UINT32_MAX
#define NO_SECTION UINT32_MAX

/* A section in the queue, as it was: its skyline, and the first of its items. */
typedef struct entry {
    uint64_t offset, rank;
    uint32_t section;
} entry;

/* What holds for a range. */
typedef struct answer {
    uint64_t sky, rest;                /* the highest skyline, the largest remainder */
    uint32_t sky_at, rest_at, most_at; /* their sections, and that in which most items live */
} answer;

/* For a node's sections; a value that holds for all of them is kept at the node and not handed down. */
typedef struct tree_node {
    answer of;
    uint64_t sky_all;     /* a lower limit of all skylines */
    uint64_t rest_placed; /* the remainders of the children are less by this */
} tree_node;

/* An item in a heap. */
typedef struct link {
    uint32_t left, right, distance;
} link;

typedef struct dive {
    const ebb_sections *sections;
    const ebb_place_dive_options *options;
    tree_node *tree;   /* nodes as in a heap */
    uint32_t *n_alive; /* [sections] */
    entry *queue;
    size_t n_queue, cap_queue, n_left;
    uint32_t *filed, *waiting; /* [sections]: the first item of its heap */
    uint64_t *sky;             /* [sections]: as it was when it was looked at last */
    uint64_t *has_waiting;     /* a bit a section */
    link *links;               /* [items] */
    bool *is_placed;
    uint64_t *offsets;
    uint64_t cap_bytes, work;
} dive;

/* ---- the tree --------------------------------------------------------------------------------- */

static ebb_place_node root_of(const dive *d) {
    return (ebb_place_node){0, 0, d->sections->n};
}

static uint32_t more_alive(const dive *d, uint32_t a, uint32_t b) {
    return d->n_alive[b] > d->n_alive[a] ? b : a;
}

static answer both(const dive *d, answer a, answer b) {
    if (a.sky < b.sky || (a.sky == b.sky && more_alive(d, a.sky_at, b.sky_at) == b.sky_at)) {
        a.sky = b.sky;
        a.sky_at = b.sky_at;
    }
    if (a.rest < b.rest) {
        a.rest = b.rest;
        a.rest_at = b.rest_at;
    }
    a.most_at = more_alive(d, a.most_at, b.most_at);
    return a;
}

/* The children's answer, with what holds for all of the node. */
static answer within(const tree_node *n, answer a) {
    if (n->sky_all >= a.sky) {
        a.sky = n->sky_all;
        a.sky_at = a.most_at;
    }
    EBB_ASSERT(a.rest >= n->rest_placed);
    a.rest -= n->rest_placed;
    return a;
}

static void build(dive *d, ebb_place_node v, const uint64_t *rest) {
    tree_node *n = &d->tree[v.idx];
    EBB_ASSERT(v.first < v.last && v.last <= d->sections->n);
    *n = (tree_node){.sky_all = 0};
    if (v.last - v.first == 1) {
        n->of = (answer){.rest = rest[v.first], .sky_at = v.first, .rest_at = v.first, .most_at = v.first};
        return;
    }
    build(d, ebb__place_left_of(v), rest);
    build(d, ebb__place_right_of(v), rest);
    n->of = both(d, d->tree[2 * v.idx + 1].of, d->tree[2 * v.idx + 2].of);
}

/* What an item of this size and end leaves in [first, last). */
static void put_in(dive *d, ebb_place_node v, ebb_place_range range, uint64_t end, uint64_t size_bytes) {
    tree_node *n = &d->tree[v.idx];
    EBB_ASSERT(range.first < v.last && range.last > v.first);
    if (range.first <= v.first && range.last >= v.last) {
        EBB_ASSERT(end >= n->of.sky && n->of.rest >= size_bytes);
        n->sky_all = n->of.sky = end;
        n->of.sky_at = n->of.most_at;
        n->of.rest -= size_bytes;
        n->rest_placed += size_bytes;
        return;
    }
    const ebb_place_node left = ebb__place_left_of(v), right = ebb__place_right_of(v);
    if (range.first < left.last) { put_in(d, left, range, end, size_bytes); }
    if (range.last > right.first) { put_in(d, right, range, end, size_bytes); }
    n->of = within(n, both(d, d->tree[left.idx].of, d->tree[right.idx].of));
}

static answer ask(const dive *d, ebb_place_node v, ebb_place_range range) {
    const tree_node *n = &d->tree[v.idx];
    EBB_ASSERT(range.first < v.last && range.last > v.first);
    if (range.first <= v.first && range.last >= v.last) { return n->of; }
    const ebb_place_node left = ebb__place_left_of(v), right = ebb__place_right_of(v);
    if (range.last <= right.first) { return within(n, ask(d, left, range)); }
    if (range.first >= left.last) { return within(n, ask(d, right, range)); }
    return within(n, both(d, ask(d, left, range), ask(d, right, range)));
}

/* The one or two ranges of an item; how many. */
static unsigned split(const dive *d, uint32_t item, ebb_place_range part[2]) {
    const ebb_place_range range = d->sections->range[item];
    const bool wraps = range.first >= range.last;
    part[0] = (ebb_place_range){range.first, wraps ? d->sections->n : range.last};
    part[1] = (ebb_place_range){0, range.last};
    return wraps && range.last > 0 ? 2 : 1;
}

static answer ask_of(dive *d, uint32_t item) {
    ebb_place_range part[2];
    const unsigned n_parts = split(d, item, part);
    const answer a = ask(d, root_of(d), part[0]);
    d->work += WORK_A_LOOK;
    return n_parts == 1 ? a : both(d, a, ask(d, root_of(d), part[1]));
}

/* ---- heaps of items --------------------------------------------------------------------------- */

static uint32_t merge(dive *d, const uint64_t *key, uint32_t a, uint32_t b) {
    if (a == NO_ITEM || b == NO_ITEM) { return a == NO_ITEM ? b : a; }
    if (key[b] < key[a]) {
        const uint32_t swap = a;
        a = b;
        b = swap;
    }
    link *l = &d->links[a];
    l->right = merge(d, key, l->right, b);
    if (l->left == NO_ITEM || d->links[l->left].distance < d->links[l->right].distance) {
        const uint32_t swap = l->left;
        l->left = l->right;
        l->right = swap;
    }
    l->distance = l->right == NO_ITEM ? 1 : d->links[l->right].distance + 1;
    return a;
}

static uint32_t without_first(dive *d, const uint64_t *key, uint32_t first) {
    const uint32_t rest = merge(d, key, d->links[first].left, d->links[first].right);
    d->links[first] = (link){NO_ITEM, NO_ITEM, 1};
    return rest;
}

/* ---- the queue of sections -------------------------------------------------------------------- */

static bool is_before(const entry *a, const entry *b) {
    return a->offset != b->offset ? a->offset < b->offset : a->rank < b->rank;
}

static ebb_status push(dive *d, uint32_t section) {
    if (d->filed[section] == NO_ITEM) { return EBB_OK; }
    EBB_TRY(ebb__grow(d->sections->mem, (void **)&d->queue, &d->cap_queue, d->n_queue, 1, sizeof *d->queue));
    const entry e = {d->sky[section], d->options->rank[d->filed[section]], section};
    size_t i = d->n_queue++;
    for (; i > 0 && is_before(&e, &d->queue[(i - 1) / 2]); i = (i - 1) / 2) { d->queue[i] = d->queue[(i - 1) / 2]; }
    d->queue[i] = e;
    return EBB_OK;
}

static entry pop(dive *d) {
    EBB_ASSERT(d->n_queue > 0);
    const entry top = d->queue[0], moved = d->queue[--d->n_queue];
    size_t i = 0;
    for (size_t child = 1; child < d->n_queue; child = 2 * i + 1) {
        if (child + 1 < d->n_queue && is_before(&d->queue[child + 1], &d->queue[child])) { child++; }
        if (!is_before(&d->queue[child], &moved)) { break; }
        d->queue[i] = d->queue[child];
        i = child;
    }
    d->queue[i] = moved;
    return top;
}

/* File items, a heap, under a section; it is queued anew if its first is another, or its skyline. */
static ebb_status file(dive *d, uint32_t items, uint32_t section, uint64_t sky) {
    const uint32_t first = d->filed[section];
    const bool rises = sky != d->sky[section];
    EBB_ASSERT(items != NO_ITEM && sky >= d->sky[section]);
    d->filed[section] = merge(d, d->options->rank, first, items);
    d->sky[section] = sky;
    return rises || d->filed[section] != first ? push(d, section) : EBB_OK;
}

/* ---- the dive --------------------------------------------------------------------------------- */

/* An item's offset never falls, so it waits until the remainder has fallen far enough for it. */
static ebb_status wake_at(dive *d, uint32_t section, uint64_t sky) {
    const uint64_t rest = ask(d, root_of(d), (ebb_place_range){section, section + 1}).rest;
    uint32_t item = d->waiting[section];
    d->work += WORK_A_LOOK / 2;
    while (item != NO_ITEM && d->offsets[item] + rest <= d->cap_bytes) {
        d->waiting[section] = without_first(d, d->offsets, item);
        EBB_TRY(file(d, item, section, sky));
        item = d->waiting[section];
    }
    if (item == NO_ITEM) { d->has_waiting[section / 64] &= ~((uint64_t)1 << section % 64); }
    return EBB_OK;
}

static ebb_status wake(dive *d, ebb_place_range range, uint64_t sky) {
    for (uint32_t w = range.first / 64; w * 64 < range.last; w++) {
        uint64_t bits = d->has_waiting[w];
        if (w == range.first / 64) { bits &= UINT64_MAX << range.first % 64; }
        for (; bits != 0; bits &= bits - 1) {
            const uint32_t section = w * 64 + (uint32_t)__builtin_ctzll(bits);
            if (section >= range.last) { break; }
            EBB_TRY(wake_at(d, section, sky));
        }
    }
    d->work += 1 + (range.last - range.first) / 256;
    return EBB_OK;
}

static ebb_status place(dive *d, uint32_t item, uint64_t offset) {
    ebb_place_range part[2];
    const unsigned n_parts = split(d, item, part);
    const uint64_t size_bytes = d->sections->rounded[item];
    EBB_ASSERT(!d->is_placed[item] && d->n_left > 0 && offset + size_bytes <= d->cap_bytes);
    d->offsets[item] = offset;
    d->is_placed[item] = true;
    d->n_left--;
    d->work += WORK_A_LOOK;
    for (unsigned i = 0; i < n_parts; i++) {
        put_in(d, root_of(d), part[i], offset + size_bytes, size_bytes);
        EBB_TRY(wake(d, part[i], offset + size_bytes));
    }
    return EBB_OK;
}

/* All wait: raise the cap to the least that one of them needs, and look at all of them again. */
static ebb_status raise_cap(dive *d) {
    uint64_t least_bytes = UINT64_MAX;
    for (uint32_t k = 0; k < d->sections->n; k++) { d->waiting[k] = NO_ITEM; }
    memset(d->has_waiting, 0, (d->sections->n / 64 + 1) * sizeof *d->has_waiting);
    for (uint32_t i = 0; i < d->sections->n_items; i++) {
        if (d->is_placed[i]) { continue; }
        const answer a = ask_of(d, i);
        least_bytes = ebb_min_u64(least_bytes, a.sky + a.rest);
        d->links[i] = (link){NO_ITEM, NO_ITEM, 1};
        EBB_TRY(file(d, i, a.sky_at, a.sky));
    }
    EBB_ASSERT(least_bytes > d->cap_bytes);
    d->cap_bytes = least_bytes;
    return EBB_OK;
}

/* Look at the first item of the queue's first section: place it, let it wait, or file it where it belongs by now. */
static ebb_status look(dive *d) {
    const entry e = pop(d);
    const uint32_t item = d->filed[e.section];
    d->work++;
    if (item == NO_ITEM || d->sky[e.section] != e.offset || d->options->rank[item] != e.rank) { return EBB_OK; }
    const answer a = ask_of(d, item);
    const answer here = ask(d, root_of(d), (ebb_place_range){e.section, e.section + 1});
    EBB_ASSERT(!d->is_placed[item] && here.sky >= e.offset && a.sky >= here.sky);
    if (here.sky > e.offset) { /* all rise */
        d->sky[e.section] = here.sky;
        return push(d, e.section);
    }
    d->filed[e.section] = without_first(d, d->options->rank, item);
    EBB_TRY(push(d, e.section));
    if (a.sky > e.offset) { return file(d, item, a.sky_at, a.sky); }
    if (a.sky + a.rest <= d->cap_bytes) { return place(d, item, a.sky); }
    EBB_ASSERT(a.rest_at < d->sections->n);
    d->offsets[item] = a.sky;
    d->waiting[a.rest_at] = merge(d, d->offsets, d->waiting[a.rest_at], item);
    d->has_waiting[a.rest_at / 64] |= (uint64_t)1 << a.rest_at % 64;
    return EBB_OK;
}

static ebb_status alloc_all(dive *d, ebb_bump *bump) {
    const size_t n_items = d->sections->n_items, n = d->sections->n;
    size_t n_nodes = 1;
    while (n_nodes < n) { n_nodes *= 2; }
    d->tree = ebb__bump_alloc(bump, 2 * n_nodes, sizeof *d->tree);
    d->n_alive = ebb__bump_alloc(bump, n + 1, sizeof *d->n_alive);
    d->filed = ebb__bump_alloc(bump, n, sizeof *d->filed);
    d->waiting = ebb__bump_alloc(bump, n, sizeof *d->waiting);
    d->sky = ebb__bump_alloc(bump, n, sizeof *d->sky);
    d->has_waiting = ebb__bump_alloc(bump, n / 64 + 1, sizeof *d->has_waiting);
    d->links = ebb__bump_alloc(bump, n_items, sizeof *d->links);
    d->is_placed = ebb__bump_alloc(bump, n_items, sizeof *d->is_placed);
    return d->tree != NULL && d->n_alive != NULL && d->filed != NULL && d->waiting != NULL && d->sky != NULL &&
                   d->has_waiting != NULL && d->links != NULL && d->is_placed != NULL
               ? EBB_OK
               : EBB_E_NO_MEMORY;
}

/* How many items live in each section. */
static void count_alive(dive *d) {
    const uint32_t n = d->sections->n;
    memset(d->n_alive, 0, ((size_t)n + 1) * sizeof *d->n_alive);
    for (uint32_t i = 0; i < d->sections->n_items; i++) {
        ebb_place_range part[2];
        const unsigned n_parts = split(d, i, part);
        for (unsigned k = 0; k < n_parts; k++) { /* differences, modulo 2^32 */
            d->n_alive[part[k].first]++;
            d->n_alive[part[k].last]--;
        }
    }
    for (uint32_t s = 1; s < n; s++) { d->n_alive[s] += d->n_alive[s - 1]; }
}

static ebb_status prepare(dive *d, ebb_bump *bump) {
    EBB_TRY(alloc_all(d, bump));
    uint64_t *bytes = ebb__bump_alloc(bump, (size_t)d->sections->n + 1, sizeof *bytes);
    if (bytes == NULL) { return EBB_E_NO_MEMORY; }
    count_alive(d);
    ebb__place_add_up(d->sections, bytes);
    build(d, root_of(d), bytes);
    memset(d->has_waiting, 0, (d->sections->n / 64 + 1) * sizeof *d->has_waiting);
    for (uint32_t s = 0; s < d->sections->n; s++) {
        d->filed[s] = d->waiting[s] = NO_ITEM;
        d->sky[s] = 0;
    }
    d->n_left = d->sections->n_items;
    for (uint32_t i = 0; i < d->sections->n_items; i++) {
        d->is_placed[i] = false;
        d->links[i] = (link){NO_ITEM, NO_ITEM, 1};
        const uint32_t section = ask_of(d, i).sky_at;
        d->filed[section] = merge(d, d->options->rank, d->filed[section], i);
    }
    for (uint32_t s = 0; s < d->sections->n; s++) { EBB_TRY(push(d, s)); }
    return EBB_OK;
}

ebb_status ebb__place_dive(const ebb_sections *sections, const ebb_place_dive_options *options, uint64_t *offsets,
                           uint64_t *peak_out, uint64_t *work) {
    dive d = {.sections = sections, .options = options, .offsets = offsets, .cap_bytes = options->cap_bytes};
    ebb_bump bump;
    ebb__bump_init(&bump, sections->mem);
    EBB_ASSERT(options->cap_bytes >= sections->bound_bytes);
    ebb_status st = prepare(&d, &bump);
    EBB_ASSERT(st != EBB_OK || d.n_left == sections->n_items);
    while (st == EBB_OK && d.n_left > 0 && d.work < options->max_work && d.cap_bytes < options->give_up_bytes) {
        st = d.n_queue == 0 ? raise_cap(&d) : look(&d);
    }
    EBB_ASSERT(st != EBB_OK || d.n_left > 0 || (d.tree[0].of.rest == 0 && d.tree[0].of.sky <= d.cap_bytes));
    if (st == EBB_OK) { *peak_out = d.n_left == 0 ? d.tree[0].of.sky : UINT64_MAX; }
    *work += d.work;
    ebb__free(sections->mem, d.queue);
    ebb__bump_fini(&bump);
    return st;
}
