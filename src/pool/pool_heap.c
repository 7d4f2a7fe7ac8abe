/* SPDX-License-Identifier: Apache-2.0
 *
 * The general allocator of the pool: two-level segregated fit (Masmano et al., 'TLSF: a new dynamic memory allocator
 * for real-time systems', ECRTS 2004), with its books outside of what it manages.
 *
 * Free blocks hang in classes by size: one for each power of two, cut into N_FINE parts. Two levels of bits tell which
 * classes are not empty. A class is a digital tree of the sizes in it, with a list of the blocks of each. So the
 * smallest block that is large enough is found in as many steps as a size has bits, however many blocks do not fit: a
 * tight fit keeps the arena low while there is no plan yet. Neighbours in address are linked, and free neighbours are
 * joined at once. A table of all taken blocks by their start stands in for the header that others put before a block.
 *
 * Invariants: no two free blocks touch; every free block hangs in the class of its size, in whose tree
 * the blocks below the k-th level on one side have the same k bits next to those that tell the class; every taken one
 * stands in the table.
 */
#include "pool/pool_priv.h"

#define FINE_BITS 5u
#define N_FINE (1u << FINE_BITS)
#define N_COARSE 64u
#define NONE EBB_POOL_NONE
#define MIN_TABLE 64u

typedef struct block {
    uint64_t start, n, note;
    uint32_t before, behind;         /* in address; NONE at the ends */
    uint32_t list_before, list_next; /* of its size, while it is free; list_next also of unused blocks */
    uint32_t above, below[2];        /* in the tree, of the first in its list; NONE */
    bool is_free;
} block;

struct ebb_pool_heap {
    const ebb_mem *mem;
    EBB_VEC(block) blocks;
    uint32_t unused;
    uint32_t first; /* in address */
    uint64_t coarse;
    uint32_t fine[N_COARSE];
    uint32_t tree[N_COARSE][N_FINE];
    uint32_t *table; /* of taken blocks; NONE: empty */
    size_t table_size, n_taken;
};

/* ---- classes of size -------------------------------------------------------------------------- */

typedef struct size_class {
    unsigned coarse, fine;
} size_class;

/* Sizes below N_FINE have a class each. */
static size_class class_of(uint64_t n) {
    if (n < N_FINE) { return (size_class){0, (unsigned)n}; }
    const unsigned log2 = 63 - (unsigned)__builtin_clzll(n);
    return (size_class){log2 - FINE_BITS + 1, (unsigned)(n >> (log2 - FINE_BITS)) - N_FINE};
}

/* ---- free blocks ------------------------------------------------------------------------------ */

/* Where the first block of n bytes stands in its class, or would; *above_out is what it hangs on. */
static uint32_t *find_size(ebb_pool_heap *heap, uint64_t n, uint32_t *above_out) {
    const size_class c = class_of(n);
    uint32_t *at = &heap->tree[c.coarse][c.fine];
    *above_out = NONE;
    for (unsigned bit = c.coarse - 1; *at != NONE && heap->blocks.data[*at].n != n;) {
        *above_out = *at;
        at = &heap->blocks.data[*at].below[n >> --bit & 1];
    }
    return at;
}

static void hang(ebb_pool_heap *heap, uint32_t b) {
    block *v = &heap->blocks.data[b];
    const size_class c = class_of(v->n);
    EBB_ASSERT(v->n > 0 && c.coarse < N_COARSE);
    v->is_free = true;
    v->list_before = v->list_next = v->below[0] = v->below[1] = NONE;
    uint32_t *at = find_size(heap, v->n, &v->above);
    if (*at == NONE) {
        *at = b;
    } else { /* after the first, which need not be moved in the tree */
        block *first = &heap->blocks.data[*at];
        v->list_before = *at;
        v->list_next = first->list_next;
        if (v->list_next != NONE) { heap->blocks.data[v->list_next].list_before = b; }
        first->list_next = b;
    }
    heap->fine[c.coarse] |= 1u << c.fine;
    heap->coarse |= (uint64_t)1 << c.coarse;
}

/* Another takes the place of v in the tree, or NONE, where nothing is below. */
static void replace(ebb_pool_heap *heap, uint32_t v, uint32_t by) {
    block *blocks = heap->blocks.data;
    const block *old = &blocks[v];
    const size_class c = class_of(old->n);
    if (old->above == NONE) {
        heap->tree[c.coarse][c.fine] = by;
    } else {
        blocks[old->above].below[blocks[old->above].below[1] == v] = by;
    }
    if (by == NONE) { return; }
    blocks[by].above = old->above;
    for (unsigned side = 0; side < 2; side++) {
        blocks[by].below[side] = old->below[side];
        if (old->below[side] != NONE) { blocks[old->below[side]].above = by; }
    }
}

/* Any that has nothing below it may stand higher up: it has the same bits as what is between. */
static void remove_size(ebb_pool_heap *heap, uint32_t v) {
    uint32_t leaf = v, next = v;
    while (next != NONE) {
        const block *l = &heap->blocks.data[next];
        leaf = next;
        next = l->below[l->below[0] == NONE];
    }
    replace(heap, leaf, NONE);
    if (leaf != v) { replace(heap, v, leaf); }
}

static void unhang(ebb_pool_heap *heap, uint32_t b) {
    block *v = &heap->blocks.data[b];
    const size_class c = class_of(v->n);
    EBB_ASSERT(v->is_free);
    v->is_free = false;
    if (v->list_next != NONE) { heap->blocks.data[v->list_next].list_before = v->list_before; }
    if (v->list_before != NONE) {
        heap->blocks.data[v->list_before].list_next = v->list_next;
        return;
    }
    if (v->list_next != NONE) {
        replace(heap, b, v->list_next);
        return;
    }
    remove_size(heap, b);
    if (heap->tree[c.coarse][c.fine] != NONE) { return; }
    heap->fine[c.coarse] &= ~(1u << c.fine);
    if (heap->fine[c.coarse] == 0) { heap->coarse &= ~((uint64_t)1 << c.coarse); }
}

/* The smallest in a part of a tree: smaller ones are on the side of the bit 0, where there is one. */
static uint32_t find_least(const ebb_pool_heap *heap, uint32_t v) {
    const block *blocks = heap->blocks.data;
    uint32_t best = v;
    for (; v != NONE; v = blocks[v].below[blocks[v].below[0] == NONE]) {
        if (blocks[v].n < blocks[best].n) { best = v; }
    }
    return best;
}

/* The smallest of n bytes or more in the class of n, or NONE. */
static uint32_t find_fit(const ebb_pool_heap *heap, uint64_t n) {
    const size_class c = class_of(n);
    const block *blocks = heap->blocks.data;
    uint32_t best = NONE, larger = NONE; /* the lowest part of the tree in which all are larger */
    uint32_t v = heap->tree[c.coarse][c.fine];
    for (unsigned bit = c.coarse - 1; v != NONE;) {
        if (blocks[v].n >= n && (best == NONE || blocks[v].n < blocks[best].n)) { best = v; }
        if (blocks[v].n == n) { return v; }
        const unsigned side = n >> --bit & 1;
        if (side == 0 && blocks[v].below[1] != NONE) { larger = blocks[v].below[1]; }
        v = blocks[v].below[side];
    }
    const uint32_t least = find_least(heap, larger);
    return best == NONE || (least != NONE && blocks[least].n < blocks[best].n) ? least : best;
}

/* The smallest free block of n bytes or more, or NONE: of the class of n, or else of the next class in which one is. */
static uint32_t find_free(const ebb_pool_heap *heap, uint64_t n) {
    const uint32_t fit = find_fit(heap, n);
    if (fit != NONE) { return fit; }
    const size_class c = class_of(n);
    const uint32_t fine = c.fine + 1 < N_FINE ? heap->fine[c.coarse] & (UINT32_MAX << (c.fine + 1)) : 0;
    const uint64_t coarse = c.coarse + 1 < N_COARSE ? heap->coarse & (UINT64_MAX << (c.coarse + 1)) : 0;
    if (fine != 0) { return find_least(heap, heap->tree[c.coarse][__builtin_ctz(fine)]); }
    if (coarse == 0) { return NONE; }
    const unsigned next = (unsigned)__builtin_ctzll(coarse);
    return find_least(heap, heap->tree[next][__builtin_ctz(heap->fine[next])]);
}

/* The second of its size if there is one: that leaves the tree as it is. */
static uint32_t choose(const ebb_pool_heap *heap, uint64_t n) {
    const uint32_t first = find_free(heap, n);
    return first == NONE || heap->blocks.data[first].list_next == NONE ? first : heap->blocks.data[first].list_next;
}

/* ---- the table of taken blocks ---------------------------------------------------------------- */

static size_t home_of(uint64_t start, size_t table_size) {
    return (size_t)((start * 0x9e3779b97f4a7c15u) >> 32) & (table_size - 1);
}

/* The slot of the block that starts there, or the empty one where it would stand. */
static size_t find_slot(const ebb_pool_heap *heap, const uint32_t *table, size_t table_size, uint64_t start) {
    size_t s = home_of(start, table_size);
    while (table[s] != NONE && heap->blocks.data[table[s]].start != start) { s = (s + 1) & (table_size - 1); }
    return s;
}

static ebb_status reserve_table(ebb_pool_heap *heap, size_t n_more) {
    size_t size = heap->table_size > 0 ? heap->table_size : MIN_TABLE;
    while (size < 2 * (heap->n_taken + n_more)) { size *= 2; }
    if (size == heap->table_size) { return EBB_OK; }
    uint32_t *table = ebb__alloc(heap->mem, size, sizeof *table);
    if (table == NULL) { return EBB_E_NO_MEMORY; }
    memset(table, 0xff, size * sizeof *table);
    for (size_t s = 0; s < heap->table_size; s++) {
        const uint32_t b = heap->table[s];
        if (b != NONE) { table[find_slot(heap, table, size, heap->blocks.data[b].start)] = b; }
    }
    ebb__free(heap->mem, heap->table);
    heap->table = table;
    heap->table_size = size;
    return EBB_OK;
}

static void put_in_table(ebb_pool_heap *heap, uint32_t b) {
    const size_t s = find_slot(heap, heap->table, heap->table_size, heap->blocks.data[b].start);
    EBB_ASSERT(heap->table[s] == NONE && !heap->blocks.data[b].is_free);
    EBB_ASSERT(2 * (heap->n_taken + 1) <= heap->table_size); /* a search ends */
    heap->table[s] = b;
    heap->n_taken++;
}

/* What stands after the slot moves up where its way from home leads over it. */
static void remove_slot(ebb_pool_heap *heap, size_t hole) {
    const size_t mask = heap->table_size - 1;
    EBB_ASSERT(heap->table[hole] != NONE && heap->n_taken > 0);
    for (size_t s = (hole + 1) & mask; heap->table[s] != NONE; s = (s + 1) & mask) {
        const size_t home = home_of(heap->blocks.data[heap->table[s]].start, heap->table_size);
        if (((s - home) & mask) < ((s - hole) & mask)) { continue; }
        heap->table[hole] = heap->table[s];
        hole = s;
    }
    heap->table[hole] = NONE;
    heap->n_taken--;
}

/* ---- blocks ----------------------------------------------------------------------------------- */

/* There is room for it. */
static uint32_t make_block(ebb_pool_heap *heap, uint64_t start, uint64_t n) {
    uint32_t b = heap->unused;
    if (b != NONE) {
        heap->unused = heap->blocks.data[b].list_next;
    } else {
        EBB_ASSERT(heap->blocks.n < heap->blocks.cap);
        b = (uint32_t)heap->blocks.n++;
    }
    heap->blocks.data[b] = (block){.start = start, .n = n, .before = NONE, .behind = NONE};
    return b;
}

/* The bytes after the first n become a block of their own, which it returns. */
static uint32_t split(ebb_pool_heap *heap, uint32_t b, uint64_t n) {
    EBB_ASSERT(n > 0 && n < heap->blocks.data[b].n);
    const uint32_t rest = make_block(heap, heap->blocks.data[b].start + n, heap->blocks.data[b].n - n);
    block *v = &heap->blocks.data[b], *r = &heap->blocks.data[rest];
    r->before = b;
    r->behind = v->behind;
    if (r->behind != NONE) { heap->blocks.data[r->behind].before = rest; }
    v->behind = rest;
    v->n = n;
    return rest;
}

/* The block after b, which hangs in no list, becomes part of it. */
static void join_behind(ebb_pool_heap *heap, uint32_t b) {
    block *v = &heap->blocks.data[b];
    const uint32_t gone = v->behind;
    EBB_ASSERT(gone != NONE && v->start + v->n == heap->blocks.data[gone].start);
    v->n += heap->blocks.data[gone].n;
    v->behind = heap->blocks.data[gone].behind;
    if (v->behind != NONE) { heap->blocks.data[v->behind].before = b; }
    heap->blocks.data[gone].list_next = heap->unused;
    heap->unused = gone;
}

static bool is_free(const ebb_pool_heap *heap, uint32_t b) {
    return b != NONE && heap->blocks.data[b].is_free;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* Of blocks that are not in use only the first is counted on. */
ebb_status ebb__pool_heap_reserve(ebb_pool_heap *heap, size_t n_more) {
    if (heap->blocks.n + n_more >= NONE) { return ebb_fail(EBB_E_LIMIT, "a pool of more than 2^32 blocks"); }
    if (n_more > 1 || heap->unused == NONE) { EBB_TRY(EBB_RESERVE(heap->mem, &heap->blocks, n_more)); }
    return reserve_table(heap, n_more);
}

ebb_status ebb__pool_heap_create(const ebb_mem *mem, uint64_t start, uint64_t n, ebb_pool_heap **heap_out) {
    EBB_ASSERT(n > 0 && start + n > start);
    ebb_pool_heap *heap = ebb__calloc(mem, 1, sizeof *heap);
    if (heap == NULL) { return EBB_E_NO_MEMORY; }
    heap->mem = mem;
    heap->unused = NONE;
    memset(heap->tree, 0xff, sizeof heap->tree);
    const ebb_status st = ebb__pool_heap_reserve(heap, 1);
    if (st != EBB_OK) {
        ebb__pool_heap_destroy(heap);
        return st;
    }
    heap->first = make_block(heap, start, n);
    hang(heap, heap->first);
    *heap_out = heap;
    return EBB_OK;
}

void ebb__pool_heap_destroy(ebb_pool_heap *heap) {
    if (heap == NULL) { return; }
    EBB_VEC_FINI(heap->mem, &heap->blocks);
    ebb__free(heap->mem, heap->table);
    ebb__free(heap->mem, heap);
}

ebb_status ebb__pool_heap_take(ebb_pool_heap *heap, uint64_t n, uint64_t note, uint64_t *start_out) {
    EBB_ASSERT(n > 0);
    const uint32_t b = choose(heap, n);
    if (b == NONE) {
        *start_out = EBB_POOL_NOWHERE;
        return EBB_OK;
    }
    EBB_TRY(ebb__pool_heap_reserve(heap, 1));
    EBB_ASSERT(heap->blocks.data[b].is_free && heap->blocks.data[b].n >= n);
    unhang(heap, b);
    if (heap->blocks.data[b].n > n) { hang(heap, split(heap, b, n)); }
    heap->blocks.data[b].note = note;
    put_in_table(heap, b);
    *start_out = heap->blocks.data[b].start;
    return EBB_OK;
}

void ebb__pool_heap_note(ebb_pool_heap *heap, uint64_t start, uint64_t note) {
    const uint32_t b = heap->table[find_slot(heap, heap->table, heap->table_size, start)];
    EBB_ASSERT(b != NONE);
    heap->blocks.data[b].note = note;
}

void ebb__pool_heap_give(ebb_pool_heap *heap, uint64_t start, uint64_t *n_out, uint64_t *note_out) {
    *n_out = 0;
    if (heap->table_size == 0) { return; }
    const size_t slot = find_slot(heap, heap->table, heap->table_size, start);
    uint32_t b = heap->table[slot];
    if (b == NONE || heap->blocks.data[b].note == EBB_POOL_PLANNED) { return; }
    remove_slot(heap, slot);
    EBB_ASSERT(!heap->blocks.data[b].is_free && heap->blocks.data[b].start == start);
    *n_out = heap->blocks.data[b].n;
    *note_out = heap->blocks.data[b].note;
    if (is_free(heap, heap->blocks.data[b].behind)) {
        unhang(heap, heap->blocks.data[b].behind);
        join_behind(heap, b);
    }
    const uint32_t before = heap->blocks.data[b].before;
    if (is_free(heap, before)) {
        unhang(heap, before);
        join_behind(heap, before);
        b = before;
    }
    hang(heap, b);
}

size_t ebb__pool_heap_count(const ebb_pool_heap *heap) {
    return heap->n_taken;
}

ebb_status ebb__pool_heap_list(const ebb_pool_heap *heap, ebb_bump *bump, ebb_pool_piece **pieces_out, size_t *n_out) {
    ebb_pool_piece *pieces = ebb__bump_alloc(bump, heap->n_taken, sizeof *pieces);
    size_t n = 0;
    if (pieces == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t b = heap->first; b != NONE; b = heap->blocks.data[b].behind) {
        const block *v = &heap->blocks.data[b];
        if (!v->is_free) { pieces[n++] = (ebb_pool_piece){.start = v->start, .n = v->n, .note = v->note}; }
    }
    EBB_ASSERT(n == heap->n_taken);
    *pieces_out = pieces;
    *n_out = n;
    return EBB_OK;
}

void ebb__pool_heap_take_pieces(ebb_pool_heap *heap, const ebb_pool_piece *pieces, size_t n) {
    uint32_t b = heap->first;
    for (size_t k = 0; k < n; k++) {
        const ebb_pool_piece *p = &pieces[k];
        while (heap->blocks.data[b].start + heap->blocks.data[b].n <= p->start) { b = heap->blocks.data[b].behind; }
        const uint64_t before = p->start - heap->blocks.data[b].start;
        EBB_ASSERT(heap->blocks.data[b].is_free && before + p->n <= heap->blocks.data[b].n);
        unhang(heap, b);
        if (before > 0) {
            const uint32_t rest = split(heap, b, before);
            hang(heap, b);
            b = rest;
        }
        if (heap->blocks.data[b].n > p->n) { hang(heap, split(heap, b, p->n)); }
        heap->blocks.data[b].note = p->note;
        put_in_table(heap, b);
    }
}

void ebb__pool_heap_cut(ebb_pool_heap *heap, uint64_t start, uint64_t n) {
    const uint32_t b = heap->table[find_slot(heap, heap->table, heap->table_size, start)];
    EBB_ASSERT(b != NONE);
    const uint32_t rest = split(heap, b, n);
    put_in_table(heap, rest);
}

static bool hangs(ebb_pool_heap *heap, uint32_t b) {
    const block *v = &heap->blocks.data[b];
    const size_class c = class_of(v->n);
    uint32_t above;
    const uint32_t first = *find_size(heap, v->n, &above);
    if (first == NONE || (heap->coarse >> c.coarse & 1) == 0 || (heap->fine[c.coarse] >> c.fine & 1) == 0) {
        return false;
    }
    const bool is_listed = v->list_next == NONE || heap->blocks.data[v->list_next].list_before == b;
    if (v->list_before == NONE) { return is_listed && b == first && v->above == above; }
    return is_listed && heap->blocks.data[v->list_before].list_next == b;
}

bool ebb__pool_heap_is_valid(ebb_pool_heap *heap) {
    uint64_t end = heap->blocks.data[heap->first].start;
    size_t n_taken = 0;
    uint32_t before = NONE;
    for (uint32_t b = heap->first; b != NONE; before = b, b = heap->blocks.data[b].behind) {
        const block *v = &heap->blocks.data[b];
        if (v->start != end || v->n == 0 || v->before != before) { return false; }
        if (v->is_free && (is_free(heap, before) || !hangs(heap, b))) { return false; }
        if (!v->is_free && heap->table[find_slot(heap, heap->table, heap->table_size, v->start)] != b) { return false; }
        n_taken += v->is_free ? 0 : 1;
        end += v->n;
    }
    return n_taken == heap->n_taken;
}
