/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an allocator takes segment by segment from the device, and cuts into blocks. The segments lie one
 * after the other.
 *
 *      segment                    segment             segment
 *      +-------+-----+-----------+-------------------+--------+-----+
 *      | used  |free | used      | free              | used   |free |   Blocks know their neighbours in their segment,
 *      +-------+-----+-----------+-------------------+--------+-----+   so that what is given back joins them at once.
 *
 * Free blocks are in trees, one a pool, in order of address or of size; each node knows the largest block below it. So
 * the lowest that holds a request, and the smallest, are found in O(log n), where the allocators replayed here walk
 * a list: the same block by another way. Trees are balanced by random priorities (Seidel and Aragon, 'Randomized search
 * trees', Algorithmica 16, 1996), a hash of a count, so that all is deterministic.
 *
 * A pool may also be one segment that grows in pages, as expandable segments do: at its end, and where pages within it
 * were given back. Such a hole is a block too, which is neither free nor used.
 *
 *      +--------+-------+------------+-------+--------+-----+ - - -
 *      | used   | free  | hole       | free  | used   |free |  grows     A free block followed by a hole counts as
 *      +--------+-------+------------+-------+--------+-----+ - - -      large as both, the one at the end as endless.
 *                       ^ page       ^ page                ^ page
 *
 * Invariants
 *  1. Two free blocks of one segment never touch, nor two holes.
 *  2. The blocks of a segment cover it; holes are whole pages, and the last block is not a hole.
 */
#include "place/segments.h"

#define TOO_LARGE ((uint64_t)1 << 63)

static bool comes_before(const ebb_segments *s, uint32_t a, uint32_t b) {
    const ebb_block *x = &s->blocks.data[a], *y = &s->blocks.data[b];
    if (s->fit == EBB_PLACE_TIGHTEST && x->size_bytes != y->size_bytes) { return x->size_bytes < y->size_bytes; }
    return x->start < y->start;
}

/* ---- trees ------------------------------------------------------------------------------------ */

static void update(ebb_segments *s, uint32_t t) {
    ebb_block *b = &s->blocks.data[t];
    const uint64_t left = s->blocks.data[b->left].largest_bytes, right = s->blocks.data[b->right].largest_bytes;
    b->largest_bytes = ebb_max_u64(b->size_bytes, ebb_max_u64(left, right));
    s->n_visits++;
}

/* All before the block, and all after it. */
static void split_tree(ebb_segments *s, uint32_t t, uint32_t at, uint32_t *before, uint32_t *behind) {
    if (t == EBB_NO_BLOCK) {
        *before = *behind = EBB_NO_BLOCK;
        return;
    }
    ebb_block *b = &s->blocks.data[t];
    if (comes_before(s, t, at)) {
        *before = t;
        split_tree(s, b->right, at, &b->right, behind);
    } else {
        *behind = t;
        split_tree(s, b->left, at, before, &b->left);
    }
    update(s, t);
}

/* From the root down; what lies above the new node only hears of its size. */
static void insert(ebb_segments *s, uint32_t *root, uint32_t added) {
    ebb_block *a = &s->blocks.data[added];
    uint32_t *link = root;
    while (*link != EBB_NO_BLOCK && a->priority <= s->blocks.data[*link].priority) {
        ebb_block *b = &s->blocks.data[*link];
        b->largest_bytes = ebb_max_u64(b->largest_bytes, a->size_bytes);
        s->n_visits++;
        link = comes_before(s, added, *link) ? &b->left : &b->right;
    }
    split_tree(s, *link, added, &a->left, &a->right);
    update(s, added);
    *link = added;
}

/* All of a come before all of b. */
static uint32_t join(ebb_segments *s, uint32_t a, uint32_t b) {
    uint32_t root = EBB_NO_BLOCK, *link = &root;
    while (a != EBB_NO_BLOCK && b != EBB_NO_BLOCK) {
        ebb_block *x = &s->blocks.data[a], *y = &s->blocks.data[b];
        const uint64_t largest_bytes = ebb_max_u64(x->largest_bytes, y->largest_bytes);
        const bool a_is_above = x->priority > y->priority;
        *link = a_is_above ? a : b;
        s->blocks.data[*link].largest_bytes = largest_bytes;
        s->n_visits++;
        link = a_is_above ? &x->right : &y->left;
        a = a_is_above ? *link : a;
        b = a_is_above ? b : *link;
    }
    *link = a == EBB_NO_BLOCK ? b : a;
    return root;
}

/* Nodes above that have a larger one below them need no second look. */
static uint32_t drop(ebb_segments *s, uint32_t t, uint32_t dropped) {
    EBB_ASSERT(t != EBB_NO_BLOCK);
    ebb_block *b = &s->blocks.data[t];
    if (t == dropped) { return join(s, b->left, b->right); }
    uint32_t *child = comes_before(s, dropped, t) ? &b->left : &b->right;
    *child = drop(s, *child, dropped);
    if (b->largest_bytes == s->blocks.data[dropped].size_bytes) {
        update(s, t);
    } else {
        s->n_visits++;
    }
    return t;
}

/* The first in the tree's order that holds so much: the lowest, or the smallest. */
static uint32_t find(ebb_segments *s, uint32_t t, uint64_t size_bytes) {
    while (s->blocks.data[t].largest_bytes >= size_bytes) {
        const ebb_block *b = &s->blocks.data[t];
        s->n_visits++;
        if (s->blocks.data[b->left].largest_bytes >= size_bytes) {
            t = b->left;
        } else if (b->size_bytes >= size_bytes) {
            return t;
        } else {
            t = b->right;
        }
    }
    return EBB_NO_BLOCK;
}

static void add_free(ebb_segments *s, uint32_t t) {
    ebb_block *b = &s->blocks.data[t];
    EBB_ASSERT(!b->is_free && b->size_bytes > 0 && b->pool < s->pools.n);
    ebb_segment_pool *pool = &s->pools.data[b->pool];
    b->is_free = true;
    b->freed_at = s->clock;
    b->left = b->right = EBB_NO_BLOCK;
    b->largest_bytes = b->size_bytes;
    insert(s, &pool->root, t);
}

static void drop_free(ebb_segments *s, uint32_t t) {
    ebb_block *b = &s->blocks.data[t];
    EBB_ASSERT(b->is_free);
    ebb_segment_pool *pool = &s->pools.data[b->pool];
    pool->root = drop(s, pool->root, t);
    b->is_free = false;
}

/* The free block that follows another one in its tree's order; EBB_NO_BLOCK: it is the last. */
static uint32_t find_next(ebb_segments *s, uint32_t t) {
    uint32_t found = EBB_NO_BLOCK;
    for (uint32_t at = s->pools.data[s->blocks.data[t].pool].root; at != EBB_NO_BLOCK; s->n_visits++) {
        const bool is_behind = comes_before(s, t, at);
        found = is_behind ? at : found;
        at = is_behind ? s->blocks.data[at].left : s->blocks.data[at].right;
    }
    return found;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

/* A number that looks random; no two of 32 bits give the same. */
static uint32_t mix(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static ebb_status make_block(ebb_segments *s, ebb_block block, uint32_t *block_out) {
    uint32_t t = s->unused;
    block.priority = mix(s->n_made++);
    if (t != EBB_NO_BLOCK) {
        EBB_ASSERT(!s->blocks.data[t].is_free);
        s->unused = s->blocks.data[t].next;
        s->blocks.data[t] = block;
    } else {
        t = (uint32_t)s->blocks.n;
        EBB_TRY(EBB_PUSH(s->mem, &s->blocks, block));
    }
    *block_out = t;
    return EBB_OK;
}

/* The block grows over the one after it, which then no longer exists. */
static void swallow_next(ebb_segments *s, uint32_t t) {
    const uint32_t gone = s->blocks.data[t].next;
    EBB_ASSERT(gone != EBB_NO_BLOCK && s->blocks.data[gone].prev == t && !s->blocks.data[gone].is_free);
    EBB_ASSERT(s->blocks.data[t].start + s->blocks.data[t].size_bytes == s->blocks.data[gone].start);
    const uint32_t next = s->blocks.data[gone].next;
    s->blocks.data[t].size_bytes += s->blocks.data[gone].size_bytes;
    s->blocks.data[t].next = next;
    if (next != EBB_NO_BLOCK) { s->blocks.data[next].prev = t; }
    ebb_segment_pool *pool = &s->pools.data[s->blocks.data[t].pool];
    if (pool->last == gone) { pool->last = t; }
    s->blocks.data[gone].next = s->unused;
    s->unused = gone;
}

/* Keep the block's first bytes; the rest becomes free. */
static ebb_status cut_block(ebb_segments *s, uint32_t t, uint64_t size_bytes) {
    const ebb_block b = s->blocks.data[t];
    uint32_t rest = EBB_NO_BLOCK;
    EBB_ASSERT(!b.is_free && size_bytes > 0 && size_bytes < b.size_bytes);
    EBB_TRY(make_block(s,
                       (ebb_block){.start = b.start + size_bytes,
                                   .size_bytes = b.size_bytes - size_bytes,
                                   .pool = b.pool,
                                   .prev = t,
                                   .next = b.next},
                       &rest));
    s->blocks.data[t].size_bytes = size_bytes;
    s->blocks.data[t].next = rest;
    if (b.next != EBB_NO_BLOCK) { s->blocks.data[b.next].prev = rest; }
    if (s->pools.data[b.pool].last == t) { s->pools.data[b.pool].last = rest; }
    add_free(s, rest);
    return EBB_OK;
}

/* Free, in order with its neighbours, which it touches and which are used. */
static bool is_free_block_valid(const ebb_segments *s, uint32_t t) {
    const ebb_block *b = &s->blocks.data[t], *prev = &s->blocks.data[b->prev], *next = &s->blocks.data[b->next];
    const bool grows = s->pools.data[b->pool].grows; /* its addresses are its own */
    if (!b->is_free || b->size_bytes == 0 || (!grows && b->start + b->size_bytes > s->total_bytes)) { return false; }
    if (b->prev != EBB_NO_BLOCK && (prev->is_free || prev->start + prev->size_bytes != b->start)) { return false; }
    return b->next == EBB_NO_BLOCK || (!next->is_free && b->start + b->size_bytes == next->start);
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__segments_init(ebb_segments *s, const ebb_mem *mem, ebb_place_fit fit) {
    *s = (ebb_segments){.mem = mem, .fit = fit};
    return EBB_PUSH(mem, &s->blocks, (ebb_block){0});
}

void ebb__segments_fini(ebb_segments *s) {
    EBB_VEC_FINI(s->mem, &s->pools);
    EBB_VEC_FINI(s->mem, &s->blocks);
}

/* How large a free block of a pool that grows can become. */
static uint64_t room_of(const ebb_segments *s, uint32_t t) {
    const ebb_block *b = &s->blocks.data[t], *next = &s->blocks.data[b->next];
    if (b->next == EBB_NO_BLOCK) { return UINT64_MAX; }
    return b->size_bytes + (next->is_hole ? next->size_bytes : 0);
}

/* The free block that a request gets; EBB_NO_BLOCK: it needs bytes from below. Where the pool grows, the next larger
 * one is better as long as it could become less large. */
static uint32_t find_free(ebb_segments *s, const ebb_segment_request *request) {
    if (request->pool >= s->pools.n) { return EBB_NO_BLOCK; }
    const ebb_segment_pool *pool = &s->pools.data[request->pool];
    uint32_t t = find(s, pool->root, request->size_bytes);
    while (t != EBB_NO_BLOCK && pool->grows) {
        const uint32_t next = find_next(s, t);
        if (next == EBB_NO_BLOCK || room_of(s, next) >= room_of(s, t)) { break; }
        t = next;
    }
    const bool is_too_large = request->too_large_bytes != 0 && s->blocks.data[t].size_bytes >= request->too_large_bytes;
    return is_too_large ? EBB_NO_BLOCK : t;
}

bool ebb__segments_has(ebb_segments *s, const ebb_segment_request *request) {
    return find_free(s, request) != EBB_NO_BLOCK;
}

static ebb_status take_bytes(ebb_segments *s, uint64_t n_bytes) {
    if (n_bytes >= TOO_LARGE - s->total_bytes) {
        return ebb_fail(EBB_E_UNSUPPORTED, "the allocator would take segments of 2^63 bytes or more");
    }
    s->total_bytes += n_bytes;
    s->held_bytes += n_bytes;
    return EBB_OK;
}

static ebb_status take_segment(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out) {
    const ebb_block segment = {.start = s->total_bytes, .size_bytes = request->segment_bytes, .pool = request->pool};
    EBB_TRY(take_bytes(s, request->segment_bytes));
    return make_block(s, segment, block_out);
}

/* The next multiple of pages, which may be of 20 MiB. */
static uint64_t to_pages(uint64_t n_bytes, uint64_t page_bytes) {
    return (n_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* A block, of no kind yet, that touches the one in front of it; EBB_NO_BLOCK: the first of its pool's segment. */
static ebb_status insert_block(ebb_segments *s, uint32_t pool, uint32_t prev, uint64_t size_bytes,
                               uint32_t *block_out) {
    const ebb_block *b = &s->blocks.data[prev];
    const bool has_prev = prev != EBB_NO_BLOCK;
    const uint64_t start = has_prev ? b->start + b->size_bytes : 0;
    const uint32_t next = has_prev ? b->next : s->pools.data[pool].first;
    const ebb_block block = {.start = start, .size_bytes = size_bytes, .pool = pool, .prev = prev, .next = next};
    EBB_TRY(make_block(s, block, block_out));
    if (has_prev) {
        s->blocks.data[prev].next = *block_out;
    } else {
        s->pools.data[pool].first = *block_out;
    }
    if (next != EBB_NO_BLOCK) { s->blocks.data[next].prev = *block_out; }
    if (s->pools.data[pool].last == prev) { s->pools.data[pool].last = *block_out; }
    return EBB_OK;
}

/* Where pages have to be mapped for a request: the lowest hole with room enough, counted from the free block in front
 * of it over free blocks and holes; prev is the block in front of the hole. The end has room for anything. */
static uint32_t find_room(ebb_segments *s, const ebb_segment_request *request) {
    const ebb_segment_pool *pool = &s->pools.data[request->pool];
    for (uint32_t t = pool->n_holes > 0 ? pool->first : EBB_NO_BLOCK; t != EBB_NO_BLOCK; t = s->blocks.data[t].next) {
        s->n_visits++;
        if (!s->blocks.data[t].is_hole) { continue; }
        const uint32_t prev = s->blocks.data[t].prev;
        const bool joins = prev != EBB_NO_BLOCK && s->blocks.data[prev].is_free;
        uint64_t room_bytes = joins ? s->blocks.data[prev].size_bytes : 0;
        uint32_t at = t;
        for (; at != EBB_NO_BLOCK && room_bytes < request->size_bytes; at = s->blocks.data[at].next) {
            const ebb_block *b = &s->blocks.data[at];
            if (!b->is_free && !b->is_hole) { break; }
            room_bytes += b->size_bytes;
        }
        if (at == EBB_NO_BLOCK || room_bytes >= request->size_bytes) { return t; }
    }
    return EBB_NO_BLOCK;
}

/* Pages of a hole, from its beginning, become a block of no kind. */
static ebb_status map_hole(ebb_segments *s, uint32_t hole, uint64_t n_bytes) {
    uint32_t rest = EBB_NO_BLOCK;
    ebb_block *b = &s->blocks.data[hole];
    EBB_ASSERT(b->is_hole && n_bytes <= b->size_bytes);
    const uint64_t rest_bytes = b->size_bytes - n_bytes;
    b->size_bytes = n_bytes;
    if (rest_bytes > 0) { EBB_TRY(insert_block(s, b->pool, hole, rest_bytes, &rest)); }
    s->blocks.data[hole].is_hole = false;
    s->blocks.data[rest].is_hole = rest != EBB_NO_BLOCK;
    s->pools.data[s->blocks.data[hole].pool].n_holes -= rest == EBB_NO_BLOCK;
    return EBB_OK;
}

/* Take pages from a hole on, or at the end of the pool if there is no hole, until they and the free blocks between them
 * are enough. */
static ebb_status grow_pool(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out) {
    uint32_t at = find_room(s, request);
    uint32_t t = at != EBB_NO_BLOCK ? s->blocks.data[at].prev : s->pools.data[request->pool].last;
    const bool joins = t != EBB_NO_BLOCK && s->blocks.data[t].is_free;
    if (joins) { drop_free(s, t); }
    uint64_t there_bytes = joins ? s->blocks.data[t].size_bytes : 0;
    bool has_any = joins;
    while (there_bytes < request->size_bytes) {
        const uint64_t missing_bytes = to_pages(request->size_bytes - there_bytes, request->page_bytes);
        const uint64_t n_bytes =
            at != EBB_NO_BLOCK ? ebb_min_u64(missing_bytes, s->blocks.data[at].size_bytes) : missing_bytes;
        EBB_TRY(take_bytes(s, n_bytes));
        if (at != EBB_NO_BLOCK) {
            EBB_TRY(map_hole(s, at, n_bytes));
        } else {
            EBB_TRY(insert_block(s, request->pool, t, n_bytes, &at));
        }
        if (has_any) {
            swallow_next(s, t);
        } else {
            t = at;
            has_any = true;
        }
        at = s->blocks.data[t].next;
        if (at != EBB_NO_BLOCK && s->blocks.data[at].is_free) {
            drop_free(s, at);
            swallow_next(s, t);
            at = s->blocks.data[t].next;
        }
        there_bytes = s->blocks.data[t].size_bytes;
    }
    *block_out = t;
    return EBB_OK;
}

ebb_status ebb__segments_take(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out) {
    EBB_ASSERT(request->size_bytes > 0 && request->size_bytes < TOO_LARGE && request->min_rest_bytes > 0);
    EBB_ASSERT(request->segment_bytes >= request->size_bytes || request->page_bytes != 0);
    while (s->pools.n <= request->pool) { EBB_TRY(EBB_PUSH(s->mem, &s->pools, (ebb_segment_pool){0})); }
    s->pools.data[request->pool].grows = request->page_bytes != 0;
    uint32_t t = find_free(s, request);
    if (t != EBB_NO_BLOCK) {
        drop_free(s, t);
    } else {
        EBB_TRY(request->page_bytes != 0 ? grow_pool(s, request, &t) : take_segment(s, request, &t));
    }
    EBB_ASSERT(s->blocks.data[t].size_bytes >= request->size_bytes && s->blocks.data[t].pool == request->pool);
    const uint64_t rest_bytes = s->blocks.data[t].size_bytes - request->size_bytes;
    if (rest_bytes >= request->min_rest_bytes) { EBB_TRY(cut_block(s, t, request->size_bytes)); }
    *block_out = t;
    return EBB_OK;
}

/* ---- giving back ------------------------------------------------------------------------------ */

void ebb__segments_give(ebb_segments *s, uint32_t block) {
    const uint32_t prev = s->blocks.data[block].prev, next = s->blocks.data[block].next;
    EBB_ASSERT(block != EBB_NO_BLOCK && block < s->blocks.n && !s->blocks.data[block].is_free);
    if (next != EBB_NO_BLOCK && s->blocks.data[next].is_free) {
        drop_free(s, next);
        swallow_next(s, block);
    }
    if (prev != EBB_NO_BLOCK && s->blocks.data[prev].is_free) {
        drop_free(s, prev);
        swallow_next(s, prev);
        block = prev;
    }
    add_free(s, block);
    EBB_ASSERT(is_free_block_valid(s, block));
}

bool ebb__segments_is_whole(const ebb_segments *s, uint32_t block) {
    const ebb_block *b = &s->blocks.data[block];
    return b->is_free && b->prev == EBB_NO_BLOCK && b->next == EBB_NO_BLOCK && !s->pools.data[b->pool].grows;
}

void ebb__segments_drop(ebb_segments *s, uint32_t block) {
    EBB_ASSERT(ebb__segments_is_whole(s, block) && s->held_bytes >= s->blocks.data[block].size_bytes);
    drop_free(s, block);
    s->held_bytes -= s->blocks.data[block].size_bytes;
    s->blocks.data[block].next = s->unused;
    s->unused = block;
}

/* The block has no bytes any more, or they are another's. */
static void remove_block(ebb_segments *s, uint32_t t) {
    const uint32_t prev = s->blocks.data[t].prev, next = s->blocks.data[t].next;
    ebb_segment_pool *pool = &s->pools.data[s->blocks.data[t].pool];
    if (prev != EBB_NO_BLOCK) { s->blocks.data[prev].next = next; }
    if (next != EBB_NO_BLOCK) { s->blocks.data[next].prev = prev; }
    if (pool->first == t) { pool->first = next; }
    if (pool->last == t) { pool->last = prev; }
    s->blocks.data[t].is_hole = false;
    s->blocks.data[t].next = s->unused;
    s->unused = t;
}

/* The block becomes a hole, joined with those beside it; at the end of its pool it goes. */
static void make_hole(ebb_segments *s, uint32_t t) {
    ebb_segment_pool *pool = &s->pools.data[s->blocks.data[t].pool];
    const uint32_t prev = s->blocks.data[t].prev, next = s->blocks.data[t].next;
    s->blocks.data[t].is_hole = true;
    pool->n_holes++;
    if (next != EBB_NO_BLOCK && s->blocks.data[next].is_hole) {
        swallow_next(s, t);
        pool->n_holes--;
    }
    if (prev != EBB_NO_BLOCK && s->blocks.data[prev].is_hole) {
        swallow_next(s, prev);
        pool->n_holes--;
        t = prev;
    }
    if (pool->last == t) {
        pool->n_holes--;
        remove_block(s, t);
    }
}

/* Free bytes before its first whole page and after its last one stay. */
static ebb_status unmap(ebb_segments *s, uint32_t t, uint64_t page_bytes) {
    const ebb_block b = s->blocks.data[t];
    const uint64_t first = to_pages(b.start, page_bytes), end = b.start + b.size_bytes;
    const uint64_t last = end / page_bytes * page_bytes;
    if (first >= last) { return EBB_OK; }
    uint32_t hole = t, rest = EBB_NO_BLOCK;
    drop_free(s, t);
    s->blocks.data[t].size_bytes = first > b.start ? first - b.start : last - first;
    if (first > b.start) { EBB_TRY(insert_block(s, b.pool, t, last - first, &hole)); }
    if (last < end) { EBB_TRY(insert_block(s, b.pool, hole, end - last, &rest)); }
    if (hole != t) { add_free(s, t); }
    if (rest != EBB_NO_BLOCK) { add_free(s, rest); }
    EBB_ASSERT(s->held_bytes >= last - first);
    s->held_bytes -= last - first;
    make_hole(s, hole);
    return EBB_OK;
}

ebb_status ebb__segments_unmap(ebb_segments *s, uint32_t pool, uint64_t page_bytes) {
    if (!s->pools.data[pool].grows) { return EBB_OK; }
    for (uint32_t t = s->pools.data[pool].first, next = EBB_NO_BLOCK; t != EBB_NO_BLOCK; t = next) {
        next = s->blocks.data[t].next;
        if (s->blocks.data[next].is_hole) { next = s->blocks.data[next].next; } /* it may join the new one */
        if (s->blocks.data[t].is_free) { EBB_TRY(unmap(s, t, page_bytes)); }
    }
    return EBB_OK;
}
