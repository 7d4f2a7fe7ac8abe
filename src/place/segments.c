/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory that an allocator has taken from below it, segment by segment, and cuts into blocks. The segments lie one
 * behind the other.
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
 * A pool may also be one segment that grows in pages at its end, as expandable segments do. The free block at its end
 * is in no tree: it could be as large as anything, so all others come before it.
 *
 * Invariants
 *  1. Two free blocks of one segment never touch.
 *  2. The blocks of a segment cover it.
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

/* All before the block, and all behind it. */
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

/* The end of a pool that grows, which is in no tree. */
static bool is_end(const ebb_segments *s, uint32_t t) {
    const ebb_segment_pool *pool = &s->pools.data[s->blocks.data[t].pool];
    return pool->grows && pool->last == t;
}

static void add_free(ebb_segments *s, uint32_t t) {
    ebb_block *b = &s->blocks.data[t];
    EBB_ASSERT(!b->is_free && b->size_bytes > 0 && b->pool < s->pools.n);
    ebb_segment_pool *pool = &s->pools.data[b->pool];
    b->is_free = true;
    b->freed_at = pool->n_asked;
    b->left = b->right = EBB_NO_BLOCK;
    b->largest_bytes = b->size_bytes;
    if (!is_end(s, t)) { insert(s, &pool->root, t); }
}

static void drop_free(ebb_segments *s, uint32_t t) {
    ebb_block *b = &s->blocks.data[t];
    EBB_ASSERT(b->is_free);
    ebb_segment_pool *pool = &s->pools.data[b->pool];
    if (!is_end(s, t)) { pool->root = drop(s, pool->root, t); }
    b->is_free = false;
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

/* The block grows over the one behind it, which is no more. */
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

/* Keep the block's first bytes; what is behind them is free. */
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

/* The free block that a request gets; EBB_NO_BLOCK: it needs bytes from below. */
static uint32_t find_free(ebb_segments *s, const ebb_segment_request *request) {
    if (request->pool >= s->pools.n) { return EBB_NO_BLOCK; }
    const ebb_segment_pool *pool = &s->pools.data[request->pool];
    uint32_t t = find(s, pool->root, request->size_bytes);
    if (t == EBB_NO_BLOCK && pool->grows && pool->last != EBB_NO_BLOCK) {
        const ebb_block *end = &s->blocks.data[pool->last];
        t = end->is_free && end->size_bytes >= request->size_bytes ? pool->last : EBB_NO_BLOCK;
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

/* Pages at the end of the pool, joined with what is free there. */
static ebb_status grow_pool(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out) {
    const uint32_t last = s->pools.data[request->pool].last;
    const bool joins = last != EBB_NO_BLOCK && s->blocks.data[last].is_free;
    const uint64_t there_bytes = joins ? s->blocks.data[last].size_bytes : 0;
    EBB_ASSERT(there_bytes < request->size_bytes);
    const uint64_t n_pages = (request->size_bytes - there_bytes - 1) / request->page_bytes + 1;
    EBB_TRY(take_bytes(s, n_pages * request->page_bytes));
    if (joins) {
        drop_free(s, last);
        s->blocks.data[last].size_bytes += n_pages * request->page_bytes;
        *block_out = last;
        return EBB_OK;
    }
    ebb_block added = {.size_bytes = n_pages * request->page_bytes, .pool = request->pool, .prev = last};
    if (last != EBB_NO_BLOCK) { added.start = s->blocks.data[last].start + s->blocks.data[last].size_bytes; }
    EBB_TRY(make_block(s, added, block_out));
    if (last != EBB_NO_BLOCK) { s->blocks.data[last].next = *block_out; }
    s->pools.data[request->pool].last = *block_out;
    return EBB_OK;
}

ebb_status ebb__segments_take(ebb_segments *s, const ebb_segment_request *request, uint32_t *block_out) {
    EBB_ASSERT(request->size_bytes > 0 && request->size_bytes < TOO_LARGE && request->min_rest_bytes > 0);
    EBB_ASSERT(request->segment_bytes >= request->size_bytes || request->page_bytes != 0);
    while (s->pools.n <= request->pool) { EBB_TRY(EBB_PUSH(s->mem, &s->pools, (ebb_segment_pool){0})); }
    s->pools.data[request->pool].grows = request->page_bytes != 0;
    s->pools.data[request->pool].n_asked++;
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

void ebb__segments_trim(ebb_segments *s, uint32_t pool, uint64_t page_bytes) {
    const uint32_t last = s->pools.data[pool].last;
    if (!s->pools.data[pool].grows || last == EBB_NO_BLOCK || !s->blocks.data[last].is_free) { return; }
    ebb_block *end = &s->blocks.data[last];
    const uint64_t used_bytes = (page_bytes - end->start % page_bytes) % page_bytes; /* of its first page */
    if (end->size_bytes <= used_bytes) { return; }
    s->held_bytes -= end->size_bytes - used_bytes;
    if (used_bytes > 0) {
        end->size_bytes = end->largest_bytes = used_bytes;
        return;
    }
    end->is_free = false;
    s->pools.data[pool].last = end->prev;
    if (end->prev != EBB_NO_BLOCK) { s->blocks.data[end->prev].next = EBB_NO_BLOCK; }
    end->next = s->unused;
    s->unused = last;
}
