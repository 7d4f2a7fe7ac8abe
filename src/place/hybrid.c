/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement in one sweep through time around obstacles: some items, as a rule the largest, lie where they lie; each of
 * the others goes, in order of birth, into a gap that holds it for all its life. A few hundred obstacles are what lets
 * millions of small items meet the bound.
 *
 * Which gap: the smallest, or that in which it lies beside what dies at about the same time, so that both leave one gap
 * in the end and not two. Both are weighed against each other: what is left of the gap over the item's size, and how
 * far the neighbours' remaining lives differ. Allocators cannot know the latter; where sizes and lifetimes are noise,
 * it takes away half of what the smallest gap leaves above the bound.
 *
 * The arena is a list of blocks in order of address, as in an allocator: what dies finds its neighbours in O(1). Gaps
 * also stand in lists by size: 32 classes for each power of two, of which a bit tells whether there are any. An
 * obstacle that is not alive yet splits no gap; items born before it that die after its birth must keep clear of it,
 *
 *        |    gap         |  obstacle  |                 and so sees only what the obstacles that are born in
 *        |....[== item ======================]..         its life leave of each gap. Most items live too short
 *        |                |############|                 a time to meet any.
 *
 * Invariants
 *  1. No two gaps are neighbours. The last one has no end, and stands in no list.
 *  2. An item in the way of an obstacle is dead when the obstacle is born.
 */
#include "place/place_priv.h"

#define NONE UINT32_MAX
#define WORK_AN_ITEM 8u
#define END ((uint64_t)1 << 63)
#define CLASS_BITS 5u
#define N_CLASSES ((64u - CLASS_BITS) << CLASS_BITS)
#define MAX_SEEN 100u         /* gaps that are looked at for an item */
#define MAX_SEEN_OF_CLASS 64u /* of one class */
#define MAX_SEEN_IN_HASTE 24u
#define MAX_WEIGHED_IN_HASTE 12u /* what lies beside a gap takes longer to look at than the gap */
#define CLASSES_IN_HASTE 3u
#define ONE ((uint64_t)1 << 16)
#define TOO_MUCH ((uint64_t)1 << 40)
#define FEW_OBSTACLES 32u /* sorted where they are needed */

/* A piece of the arena, up to where the next begins. A gap says itself where that is, and when the items beside it die,
 * which stay the same while it stands in a list: many are looked at for an item, and each is a line of cache. */
typedef struct block {
    uint64_t start, gap_end; /* 0: no gap */
    uint32_t below, above;   /* neighbours; NONE: the arena's ends */
    union {
        uint32_t before; /* of a gap, in the list of its class; NONE: it is the first */
        uint32_t last;   /* of the item that lies there */
    };
    uint32_t behind;                 /* of a gap, as the next two */
    uint32_t last_below, last_above; /* NONE: nothing is there */
} block;

typedef struct hybrid {
    const ebb_sections *sections;
    const ebb_place_hybrid_options *options;
    uint64_t *offsets;
    EBB_VEC(block) blocks;
    uint32_t unused, highest; /* blocks: a list by above; the last gap */
    uint32_t *block_of;       /* [n_items] */
    uint32_t class_head[N_CLASSES];
    uint64_t class_bits[N_CLASSES / 64];
    uint32_t next_death, next_obstacle;
    uint32_t *by_address; /* obstacles that are born; options->obstacles are by birth */
    uint32_t *born;       /* when these are */
    uint32_t n_by_address;
    ebb_place_span *clear; /* what the obstacles that an item meets take, by address */
    uint32_t n_clear;
    uint64_t top; /* end of the highest item so far */
    uint64_t work;
} hybrid;

/* ---- gaps by size ----------------------------------------------------------------------------- */

static uint32_t class_of(uint64_t size_bytes) {
    if (size_bytes >> CLASS_BITS == 0) { return (uint32_t)size_bytes; }
    const unsigned shift = 63 - CLASS_BITS - (unsigned)__builtin_clzll(size_bytes);
    return (uint32_t)((uint64_t)shift << CLASS_BITS) + (uint32_t)(size_bytes >> shift);
}

static uint64_t end_of(const hybrid *h, const block *b) {
    return b->above == NONE ? END : h->blocks.data[b->above].start;
}

static void list_gap(hybrid *h, uint32_t at) {
    block *b = &h->blocks.data[at];
    b->gap_end = end_of(h, b);
    EBB_ASSERT(b->start < b->gap_end);
    EBB_ASSERT(b->below == NONE || h->blocks.data[b->below].gap_end == 0);
    if (b->above == NONE) { return; }
    EBB_ASSERT(h->blocks.data[b->above].gap_end == 0);
    b->last_below = b->below != NONE ? h->blocks.data[b->below].last : NONE;
    b->last_above = h->blocks.data[b->above].last;
    const uint32_t class = class_of(b->gap_end - b->start);
    b->before = NONE;
    b->behind = h->class_head[class];
    if (b->behind != NONE) { h->blocks.data[b->behind].before = at; }
    h->class_head[class] = at;
    h->class_bits[class / 64] |= (uint64_t)1 << class % 64;
}

static void unlist_gap(hybrid *h, uint32_t at) {
    block *b = &h->blocks.data[at];
    const uint64_t end = b->gap_end;
    EBB_ASSERT(end != 0 && end == end_of(h, b));
    b->gap_end = 0;
    if (b->above == NONE) { return; }
    if (b->behind != NONE) { h->blocks.data[b->behind].before = b->before; }
    if (b->before != NONE) {
        h->blocks.data[b->before].behind = b->behind;
        return;
    }
    const uint32_t class = class_of(end - b->start);
    h->class_head[class] = b->behind;
    if (b->behind == NONE) { h->class_bits[class / 64] &= ~((uint64_t)1 << class % 64); }
}

/* The first class from this one on that has gaps. */
static uint32_t class_from(const hybrid *h, uint32_t class) {
    if (class >= N_CLASSES) { return N_CLASSES; }
    uint64_t bits = h->class_bits[class / 64] & UINT64_MAX << class % 64;
    for (class /= 64; bits == 0;) {
        if (++class == N_CLASSES / 64) { return N_CLASSES; }
        bits = h->class_bits[class];
    }
    return class * 64 + (uint32_t)__builtin_ctzll(bits);
}

/* ---- blocks ----------------------------------------------------------------------------------- */

/* A new block above this one. */
static uint32_t split(hybrid *h, uint32_t at, uint64_t start) {
    uint32_t made = h->unused;
    if (made != NONE) {
        h->unused = h->blocks.data[made].above;
    } else {
        made = (uint32_t)h->blocks.n++;
    }
    block *b = &h->blocks.data[at], *m = &h->blocks.data[made];
    EBB_ASSERT(made < h->blocks.n && b->start < start && start < end_of(h, b));
    *m = (block){.start = start, .below = at, .above = b->above};
    if (b->above != NONE) { h->blocks.data[b->above].below = made; }
    b->above = made;
    if (at == h->highest) { h->highest = made; }
    return made;
}

/* The block and the one above it become one. */
static void merge(hybrid *h, uint32_t at) {
    block *b = &h->blocks.data[at];
    const uint32_t gone = b->above;
    EBB_ASSERT(gone != NONE && h->blocks.data[gone].below == at);
    b->above = h->blocks.data[gone].above;
    if (b->above != NONE) { h->blocks.data[b->above].below = at; }
    if (gone == h->highest) { h->highest = at; }
    h->blocks.data[gone].above = h->unused;
    h->unused = gone;
}

/* Take [start, start + size) of this gap. */
static ebb_status take(hybrid *h, uint32_t at, uint64_t start, uint64_t size_bytes, uint32_t item) {
    EBB_TRY(EBB_RESERVE(h->sections->mem, &h->blocks, 2));
    const uint64_t end = h->blocks.data[at].gap_end;
    EBB_ASSERT(h->blocks.data[at].start <= start && start + size_bytes <= end);
    unlist_gap(h, at);
    const uint32_t taken = h->blocks.data[at].start < start ? split(h, at, start) : at;
    const uint32_t above = start + size_bytes < end ? split(h, taken, start + size_bytes) : NONE;
    h->blocks.data[taken].gap_end = 0;
    h->blocks.data[taken].last = h->sections->range[item].last;
    h->block_of[item] = taken;
    if (taken != at) { list_gap(h, at); }
    if (above != NONE) { list_gap(h, above); }
    return EBB_OK;
}

static void give(hybrid *h, uint32_t item) {
    uint32_t at = h->block_of[item];
    EBB_ASSERT(at < h->blocks.n && h->blocks.data[at].gap_end == 0);
    const uint32_t above = h->blocks.data[at].above, below = h->blocks.data[at].below;
    if (above != NONE && h->blocks.data[above].gap_end != 0) {
        unlist_gap(h, above);
        merge(h, at);
    }
    if (below != NONE && h->blocks.data[below].gap_end != 0) {
        unlist_gap(h, below);
        merge(h, below);
        at = below;
    }
    list_gap(h, at);
}

/* ---- where an item goes ----------------------------------------------------------------------- */

/* The next above those that are there. */
static void add_clear(hybrid *h, uint32_t item) {
    const uint64_t start = h->offsets[item], end = start + h->sections->rounded[item];
    EBB_ASSERT(h->n_clear < h->options->n_obstacles);
    EBB_ASSERT(h->n_clear == 0 || h->clear[h->n_clear - 1].start <= start);
    if (h->n_clear > 0 && start <= h->clear[h->n_clear - 1].end) {
        h->clear[h->n_clear - 1].end = ebb_max_u64(h->clear[h->n_clear - 1].end, end);
    } else {
        h->clear[h->n_clear++] = (ebb_place_span){start, end};
    }
}

/* These obstacles, sorted by address as they come. */
static void add_few(hybrid *h, const uint32_t *obstacles, uint32_t n) {
    uint32_t few[FEW_OBSTACLES];
    EBB_ASSERT(n <= FEW_OBSTACLES);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i;
        for (; at > 0 && h->offsets[few[at - 1]] > h->offsets[obstacles[i]]; at--) { few[at] = few[at - 1]; }
        few[at] = obstacles[i];
    }
    for (uint32_t i = 0; i < n; i++) { add_clear(h, few[i]); }
}

/* List the bytes taken by obstacles that are born in the item's life. */
static void find_clear(hybrid *h, ebb_place_range range) {
    const ebb_place_hybrid_options *o = h->options;
    const uint32_t *next = o->obstacles + h->next_obstacle;
    const uint32_t n_left = o->n_obstacles - h->next_obstacle;
    uint32_t n = 0;
    h->n_clear = 0;
    while (n < n_left && n <= FEW_OBSTACLES && h->sections->range[next[n]].first < range.last) { n++; }
    h->work += n / 4;
    if (n <= FEW_OBSTACLES) {
        add_few(h, next, n);
        return;
    }
    uint32_t n_later = 0;
    h->work += h->n_by_address / 16;
    for (uint32_t i = 0; i < h->n_by_address; i++) {
        const uint32_t item = h->by_address[i], born = h->born[i];
        h->by_address[n_later] = item; /* the others are in no item's way any more */
        h->born[n_later] = born;
        n_later += born > range.first;
        if (born > range.first && born < range.last) { add_clear(h, item); }
    }
    h->n_by_address = n_later;
}

/* The first place in the gap, clear of obstacles; END if none exists. */
static uint64_t place_in(const hybrid *h, const block *b, uint64_t size_bytes) {
    const uint64_t end = b->gap_end;
    uint64_t start = b->start;
    uint32_t lo = 0, hi = h->n_clear;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (h->clear[mid].end <= start) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    for (; lo < h->n_clear && h->clear[lo].start < start + size_bytes; lo++) { start = h->clear[lo].end; }
    return start < end && end - start >= size_bytes ? start : END;
}

/* A place for an item, what is wrong with it, and how much may be left of a gap that is no worse. */
typedef struct spot {
    uint32_t gap;
    uint64_t start, faults, most_waste;
} spot;

/* Division in doubles is several times as fast where a double holds both, and no less exact: the quotient of two below
 * 2^52 is no nearer to a whole number that it is not than doubles are to each other. */
static uint64_t divide(uint64_t a, uint64_t b) {
    if ((a | b) >> 52 != 0) { return a / b; }
    return (uint64_t)(int64_t)((double)(int64_t)a / (double)(int64_t)b);
}

/* How far the lives that an item and a neighbour who dies then have left differ, in parts of ONE. */
static uint64_t mismatch(uint32_t last, ebb_place_range range) {
    if (last == NONE) { return ONE; }
    EBB_ASSERT(range.first < range.last);
    const uint64_t a = range.last - range.first, b = last > range.first ? last - range.first : 1;
    return ONE - divide(ONE * ebb_min_u64(a, b), ebb_max_u64(a, b));
}

/* The bytes left of a gap, as a fault: alone, or in parts of the item's size. */
static uint64_t faults_of(const hybrid *h, uint64_t waste, uint64_t size_bytes) {
    if (h->options->weight == 0) { return waste; }
    return waste < TOO_MUCH ? divide(ONE * waste, size_bytes) : UINT64_MAX / 2;
}

/* The most for which that is no more than this. */
static uint64_t most_waste(const hybrid *h, uint64_t faults, uint64_t size_bytes) {
    uint64_t least_more = 0;
    if (h->options->weight == 0) { return faults; }
    if (faults >= UINT64_MAX / 2) { return UINT64_MAX; }
    if (!ebb_mul_u64(faults + 1, size_bytes, &least_more)) { return TOO_MUCH - 1; }
    return ebb_min_u64((least_more - 1) / ONE, TOO_MUCH - 1);
}

/* The gap's lowest place, or its highest, where the neighbour there is the better one. */
static void consider(const hybrid *h, uint32_t at, uint32_t item, spot *best) {
    const ebb_place_range range = h->sections->range[item];
    const uint64_t size_bytes = h->sections->rounded[item];
    const block *b = &h->blocks.data[at];
    const uint64_t end = b->gap_end, gap_bytes = end - b->start;
    if (gap_bytes < size_bytes) { return; }
    const uint64_t waste = gap_bytes - size_bytes;
    if (waste > best->most_waste) { return; }
    uint64_t start = place_in(h, b, size_bytes), faults = faults_of(h, waste, size_bytes);
    EBB_ASSERT(faults <= best->faults);
    if (start == END) { return; }
    if (h->options->weight > 0) {
        const uint64_t below = start == b->start ? mismatch(b->last_below, range) : ONE;
        const uint64_t above = h->n_clear == 0 ? mismatch(b->last_above, range) : ONE;
        faults += h->options->weight * (waste == 0 ? (below + above) / 2 : ebb_min_u64(below, above));
        start = above < below ? end - size_bytes : start;
    }
    if (faults < best->faults || (faults == best->faults && start < best->start)) {
        *best = (spot){at, start, faults, most_waste(h, faults, size_bytes)};
    }
}

static spot find_spot(hybrid *h, uint32_t item) {
    const uint64_t size_bytes = h->sections->rounded[item];
    spot best = {.gap = NONE, .start = END, .faults = UINT64_MAX, .most_waste = UINT64_MAX};
    uint32_t n_seen = 0;
    const bool is_hasty = h->options->is_hasty;
    const uint32_t in_haste = h->options->weight > 0 ? MAX_WEIGHED_IN_HASTE : MAX_SEEN_IN_HASTE;
    const uint32_t max_seen = is_hasty ? in_haste : MAX_SEEN;
    const uint32_t max_of_class = is_hasty ? in_haste / CLASSES_IN_HASTE : MAX_SEEN_OF_CLASS;
    find_clear(h, h->sections->range[item]);
    for (uint32_t class = class_of(size_bytes); n_seen < max_seen; class ++) {
        class = class_from(h, class);
        if (class == N_CLASSES || (h->options->weight == 0 && best.gap != NONE)) { break; }
        uint32_t at = h->class_head[class];
        for (uint32_t n = 0; at != NONE && n < max_of_class; n++, n_seen++) {
            const uint32_t behind = h->blocks.data[at].behind;
            if (behind != NONE) { __builtin_prefetch(&h->blocks.data[behind]); }
            consider(h, at, item, &best);
            at = behind;
        }
    }
    h->work += WORK_AN_ITEM + n_seen / 4;
    if (best.gap != NONE) { return best; }
    return (spot){.gap = h->highest, .start = place_in(h, &h->blocks.data[h->highest], size_bytes)};
}

/* ---- time ------------------------------------------------------------------------------------- */

static void let_die(hybrid *h, uint32_t section) {
    for (; h->next_death < h->sections->n_items; h->next_death++) {
        const uint32_t item = h->options->by_death[h->next_death];
        if (h->sections->range[item].last > section) { return; }
        give(h, item);
    }
}

/* The gap in which an obstacle finds its place: one of those that are large enough, which are few. */
static uint32_t gap_at(hybrid *h, uint64_t address, uint64_t size_bytes) {
    if (h->blocks.data[h->highest].start <= address) { return h->highest; }
    for (uint32_t class = class_from(h, class_of(size_bytes)); class < N_CLASSES; class = class_from(h, class + 1)) {
        for (uint32_t at = h->class_head[class]; at != NONE; at = h->blocks.data[at].behind) {
            const block *b = &h->blocks.data[at];
            h->work++;
            if (b->start <= address && address + size_bytes <= b->gap_end) { return at; }
        }
    }
    EBB_ASSERT(false); /* nothing else lies there: see find_clear */
    return h->highest;
}

static ebb_status bear_obstacles(hybrid *h, uint32_t section) {
    for (; h->next_obstacle < h->options->n_obstacles; h->next_obstacle++) {
        const uint32_t item = h->options->obstacles[h->next_obstacle];
        const uint32_t born = h->sections->range[item].first;
        if (born > section) { return EBB_OK; }
        let_die(h, born);
        const uint64_t offset = h->offsets[item], size_bytes = h->sections->rounded[item];
        EBB_TRY(take(h, gap_at(h, offset, size_bytes), offset, size_bytes, item));
    }
    return EBB_OK;
}

/* Those that live around the end are there at the beginning: from the bottom up, so that each lies in the highest gap.
 * Some come back at the end, and some never do. */
static ebb_status begin(hybrid *h, uint64_t *peak_out) {
    EBB_TRY(EBB_RESERVE(h->sections->mem, &h->blocks, 1));
    h->blocks.data[h->blocks.n++] = (block){.start = 0, .gap_end = END, .below = NONE, .above = NONE};
    *peak_out = 0;
    for (uint32_t i = 0; i < h->options->n_obstacles; i++) {
        const uint32_t item = h->by_address[i];
        const ebb_place_range range = h->sections->range[item];
        const uint64_t offset = h->offsets[item], size_bytes = h->sections->rounded[item];
        *peak_out = ebb_max_u64(*peak_out, offset + size_bytes);
        if (range.first >= range.last) { EBB_TRY(take(h, gap_at(h, offset, size_bytes), offset, size_bytes, item)); }
        if (range.first < h->sections->n) {
            h->born[h->n_by_address] = range.first;
            h->by_address[h->n_by_address++] = item;
        }
    }
    return EBB_OK;
}

/* ---- the sweep -------------------------------------------------------------------------------- */

static ebb_status place_item(hybrid *h, uint32_t item) {
    const spot found = find_spot(h, item);
    const uint64_t size_bytes = h->sections->rounded[item];
    h->offsets[item] = found.start;
    h->top = ebb_max_u64(h->top, found.start + size_bytes);
    return take(h, found.gap, found.start, size_bytes, item);
}

static ebb_status sweep(hybrid *h, uint64_t *peak_out) {
    uint32_t passed = 0; /* obstacles */
    EBB_TRY(begin(h, &h->top));
    for (uint32_t item = 0; item < h->sections->n_items && h->top < h->options->give_up_bytes; item++) {
        if (h->work > h->options->max_work) { h->top = UINT64_MAX; }
        if (passed < h->options->n_obstacles && h->options->obstacles[passed] == item) {
            passed++;
            continue;
        }
        const uint32_t section = h->sections->range[item].first;
        EBB_TRY(bear_obstacles(h, section));
        let_die(h, section);
        EBB_TRY(place_item(h, item));
    }
    *peak_out = h->top < h->options->give_up_bytes ? h->top : UINT64_MAX;
    return EBB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

static ebb_status prepare(hybrid *h, ebb_bump *bump) {
    const ebb_place_hybrid_options *o = h->options;
    const size_t n = h->sections->n_items;
    h->block_of = ebb__bump_alloc(bump, n, sizeof *h->block_of);
    h->by_address = ebb__bump_alloc(bump, o->n_obstacles, sizeof *h->by_address);
    h->born = ebb__bump_alloc(bump, o->n_obstacles, sizeof *h->born);
    h->clear = ebb__bump_alloc(bump, o->n_obstacles, sizeof *h->clear);
    if (h->block_of == NULL || h->by_address == NULL || h->born == NULL || h->clear == NULL) { return EBB_E_NO_MEMORY; }
    if (o->n_obstacles > 0) { memcpy(h->by_address, o->obstacles, o->n_obstacles * sizeof *h->by_address); }
    EBB_TRY(ebb__sort_by_key(h->sections->mem, h->by_address, o->n_obstacles, h->offsets));
    h->unused = NONE;
    h->highest = 0;
    for (uint32_t c = 0; c < N_CLASSES; c++) { h->class_head[c] = NONE; }
    return EBB_OK;
}

ebb_status ebb__place_hybrid(const ebb_sections *sections, const ebb_place_hybrid_options *options, uint64_t *offsets,
                             uint64_t *peak_out, uint64_t *work) {
    hybrid h = {.sections = sections, .options = options, .offsets = offsets};
    ebb_bump bump;
    ebb__bump_init(&bump, sections->mem);
    ebb_status st = prepare(&h, &bump);
    if (st == EBB_OK) { st = sweep(&h, peak_out); }
    *work += h.work;
    EBB_VEC_FINI(sections->mem, &h.blocks);
    ebb__bump_fini(&bump);
    return st;
}
