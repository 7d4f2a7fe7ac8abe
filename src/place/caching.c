/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp, as of version 2.x), over segments.h:
 *
 *  - Sizes in multiples of 512 bytes; with roundup_power2_divisions D, sizes above 512 D in D steps between powers
 * of 2.
 *  - Up to 1 MiB from the small pool of its stream, in segments of 2 MiB; all else from the large one, in segments
 *    of 20 MiB, or from 10 MiB on of the size in multiples of 2 MiB.
 *  - The smallest free block that is large enough, of equal ones the lowest. The rest of it becomes a block: small
 *    pools from 512 bytes on, large ones above 1 MiB.
 *  - max_split_size M: a block of M or more is never split; it is for requests of M or more alone, and only for those
 *    that leave less than 20 MiB of it unused.
 *  - garbage_collection_threshold T, where there is a capacity: before a segment is taken while more than T of the
 *    capacity is, free segments of the large pools of all streams go: all that have been free for as long as the
 *    average or longer, then the same of those that are left, until T is taken or less. How long is counted in requests
 *    to the large pools.
 *  - Where the capacity does not suffice: with M, the smallest free segment of the stream that is enough, or from the
 *    largest down until they are, of those of M or more; where all of them are not enough, or M is not set, all free
 *    segments.
 *  - expandable_segments: one segment for each pool of each stream, which grows in pages of 2 MiB and 20 MiB; any rest
 *    of 512 bytes or more is split off. A free block counts as large as it can grow. Free pages are given back wherever
 *    they lie, and the segment grows there again before it does at its end.
 *
 * Left out: private pools of CUDA graphs, and blocks that wait for another stream. Where the capacity does not
 * suffice even so, PyTorch fails; here more is taken, so that the answer says how much would have been needed.
 */
#include "place/caching.h"

#include "place/segments.h"

#define KIB ((uint64_t)1024)
#define MIB (1024 * KIB)
#define GRANULE_BYTES ((uint64_t)512)
#define SMALL_BYTES MIB
#define SMALL_SEGMENT_BYTES (2 * MIB)
#define LARGE_SEGMENT_BYTES (20 * MIB)
#define OWN_SEGMENT_BYTES (10 * MIB) /* from this many on a segment is made to measure */
#define SEGMENT_STEP_BYTES (2 * MIB)
#define TOO_LARGE ((uint64_t)1 << 62)
#define MAX_STREAMS 256u

struct ebb_caching {
    const ebb_mem *mem;
    ebb_caching_settings settings;
    ebb_segments segments;
    EBB_VEC(uint64_t) streams; /* that of pools 2 i and 2 i + 1 */
    uint64_t peak_bytes;
};

/* ---- rules ------------------------------------------------------------------------------------ */

static unsigned log2_of(uint64_t x) {
    unsigned k = 0;
    for (; x > 1; x >>= 1) { k++; }
    return k;
}

static uint64_t divisions_for(const ebb_caching_settings *s, uint64_t size_bytes) {
    const unsigned log = log2_of(size_bytes), first = log2_of(MIB);
    const unsigned idx = log > first ? log - first : 0;
    return s->roundup_power2[idx < EBB_CACHING_N_ROUNDUPS ? idx : EBB_CACHING_N_ROUNDUPS - 1];
}

/* Up to the next of the steps into which the powers of 2 are divided. */
static uint64_t round_to_division(uint64_t size_bytes, uint64_t divisions) {
    const uint64_t floor = (uint64_t)1 << log2_of(size_bytes);
    EBB_ASSERT(divisions > 1 && floor <= size_bytes && size_bytes / 2 < floor);
    if (floor == size_bytes) { return size_bytes; }
    const uint64_t step = floor >> log2_of(divisions);
    return step == 0 ? 2 * floor : ebb_align_up(size_bytes, step);
}

uint64_t ebb__caching_round(const ebb_caching_settings *settings, uint64_t size_bytes) {
    EBB_ASSERT(size_bytes < TOO_LARGE);
    if (size_bytes < GRANULE_BYTES) { return GRANULE_BYTES; }
    const uint64_t divisions = divisions_for(settings, size_bytes);
    if (divisions > 1 && size_bytes > GRANULE_BYTES * divisions) { return round_to_division(size_bytes, divisions); }
    return ebb_align_up(size_bytes, GRANULE_BYTES);
}

static uint64_t segment_bytes_for(uint64_t size_bytes) {
    if (size_bytes <= SMALL_BYTES) { return SMALL_SEGMENT_BYTES; }
    return size_bytes < OWN_SEGMENT_BYTES ? LARGE_SEGMENT_BYTES : ebb_align_up(size_bytes, SEGMENT_STEP_BYTES);
}

bool ebb__caching_max_split_matters(const ebb_caching_settings *settings, uint64_t largest_bytes) {
    if (largest_bytes >= TOO_LARGE / 2) { return true; }
    const uint64_t segment_bytes = segment_bytes_for(ebb__caching_round(settings, largest_bytes));
    return ebb_max_u64(segment_bytes, LARGE_SEGMENT_BYTES) >= settings->max_split_bytes;
}

void ebb__caching_ask(const ebb_caching_settings *settings, ebb_segment_request *request) {
    const uint64_t size_bytes = request->size_bytes, max_split_bytes = settings->max_split_bytes;
    EBB_ASSERT(size_bytes >= GRANULE_BYTES && size_bytes < TOO_LARGE);
    const bool is_small = size_bytes <= SMALL_BYTES;
    request->pool = is_small ? 0 : 1;
    request->segment_bytes = segment_bytes_for(size_bytes);
    request->min_rest_bytes = is_small || settings->expandable_segments ? GRANULE_BYTES : SMALL_BYTES + 1;
    if (settings->expandable_segments) {
        request->page_bytes = is_small ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES;
    } else if (max_split_bytes != 0) {
        const bool is_oversize = size_bytes >= max_split_bytes;
        request->too_large_bytes = is_oversize ? size_bytes + LARGE_SEGMENT_BYTES : max_split_bytes;
        if (is_oversize && !is_small) { request->min_rest_bytes = TOO_LARGE; }
    }
}

/* ---- giving back ------------------------------------------------------------------------------ */

static bool is_large(const ebb_caching *c, uint32_t block) {
    return c->segments.blocks.data[block].pool % 2 == 1;
}

/* How long a block has been free, in requests to large pools. */
static uint64_t age_of(const ebb_caching *c, uint32_t block) {
    const ebb_block *b = &c->segments.blocks.data[block];
    EBB_ASSERT(b->is_free && c->segments.clock >= b->freed_at);
    return c->segments.clock - b->freed_at;
}

static void drop(ebb_caching *c, uint32_t block, uint64_t *freed_bytes) {
    *freed_bytes += c->segments.blocks.data[block].size_bytes;
    ebb__segments_drop(&c->segments, block);
}

/* Segments as old as the average or older, again and again, until this many bytes are freed; a round ends only when all
 * that are as old are gone. */
static void collect_old(ebb_caching *c, uint64_t target_bytes) {
    uint64_t total_age = 0, n_free = 0, freed_bytes = 0;
    for (uint32_t t = 1; t < c->segments.blocks.n; t++) {
        if (!is_large(c, t) || !ebb__segments_is_whole(&c->segments, t)) { continue; }
        total_age += age_of(c, t);
        n_free++;
    }
    while (freed_bytes < target_bytes && n_free > 0) {
        const double mean_age = (double)total_age / (double)n_free;
        const uint64_t n_before = n_free;
        for (uint32_t t = 1; t < c->segments.blocks.n; t++) {
            if (!is_large(c, t) || !ebb__segments_is_whole(&c->segments, t)) { continue; }
            if ((double)age_of(c, t) < mean_age) { continue; }
            EBB_ASSERT(n_free > 0 && total_age >= age_of(c, t));
            total_age -= age_of(c, t);
            n_free--;
            drop(c, t, &freed_bytes);
        }
        if (n_free == n_before) { return; }
    }
}

static void collect_garbage(ebb_caching *c) {
    const uint64_t threshold_bytes = (uint64_t)(c->settings.gc_threshold * (double)c->settings.capacity_bytes);
    if (c->segments.held_bytes > threshold_bytes) { collect_old(c, c->segments.held_bytes - threshold_bytes); }
}

/* The whole free segment of this pool of max_split_size or more that is the smallest of at least min_bytes; or, where
 * none exists so large, the largest. */
static uint32_t find_oversize(const ebb_caching *c, uint32_t pool, uint64_t min_bytes) {
    uint32_t found = EBB_NO_BLOCK;
    for (uint32_t t = 1; t < c->segments.blocks.n; t++) {
        const ebb_block *b = &c->segments.blocks.data[t], *best = &c->segments.blocks.data[found];
        if (b->pool != pool || !ebb__segments_is_whole(&c->segments, t)) { continue; }
        if (b->size_bytes < c->settings.max_split_bytes) { continue; }
        const bool fits = b->size_bytes >= min_bytes, best_fits = best->size_bytes >= min_bytes;
        const bool is_better = fits != best_fits ? fits : (b->size_bytes < best->size_bytes) == fits;
        if (found == EBB_NO_BLOCK || is_better) { found = t; }
    }
    return found;
}

/* false: they are not enough for the request. */
static bool release_oversize(ebb_caching *c, const ebb_segment_request *request) {
    const uint64_t min_bytes = ebb_max_u64(request->size_bytes, c->settings.max_split_bytes);
    for (uint64_t freed_bytes = 0; freed_bytes < min_bytes;) {
        const uint32_t t = find_oversize(c, request->pool, min_bytes);
        if (t == EBB_NO_BLOCK) { return false; }
        EBB_ASSERT(c->segments.blocks.data[t].size_bytes >= c->settings.max_split_bytes);
        drop(c, t, &freed_bytes);
    }
    return true;
}

ebb_status ebb__caching_empty(ebb_caching *c) {
    uint64_t freed_bytes = 0;
    for (uint32_t t = 1; t < c->segments.blocks.n; t++) {
        if (ebb__segments_is_whole(&c->segments, t)) { drop(c, t, &freed_bytes); }
    }
    for (uint32_t p = 0; p < c->segments.pools.n; p++) {
        EBB_TRY(ebb__segments_unmap(&c->segments, p, p % 2 == 0 ? SMALL_SEGMENT_BYTES : LARGE_SEGMENT_BYTES));
    }
    return EBB_OK;
}

/* Before bytes are taken from the device. */
static ebb_status make_room(ebb_caching *c, const ebb_segment_request *request) {
    const uint64_t capacity_bytes = c->settings.capacity_bytes;
    if (c->settings.gc_threshold > 0) { collect_garbage(c); }
    if (c->segments.held_bytes + request->segment_bytes <= capacity_bytes) { return EBB_OK; }
    const bool may_release = c->settings.max_split_bytes != 0 && !c->settings.expandable_segments;
    const bool is_enough = may_release && release_oversize(c, request);
    const bool has_room = c->segments.held_bytes + request->segment_bytes <= capacity_bytes;
    return is_enough && has_room ? EBB_OK : ebb__caching_empty(c);
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__caching_create(const ebb_mem *mem, const ebb_caching_settings *settings, ebb_caching **caching_out) {
    mem = ebb__mem_or_default(mem);
    ebb_caching *c = ebb__calloc(mem, 1, sizeof *c);
    if (c == NULL) { return EBB_E_NO_MEMORY; }
    c->mem = mem;
    c->settings = *settings;
    const ebb_status st = ebb__segments_init(&c->segments, mem, EBB_PLACE_TIGHTEST);
    if (st != EBB_OK) {
        ebb__free(mem, c);
        return st;
    }
    *caching_out = c;
    return EBB_OK;
}

void ebb__caching_destroy(ebb_caching *c) {
    if (c == NULL) { return; }
    EBB_VEC_FINI(c->mem, &c->streams);
    ebb__segments_fini(&c->segments);
    ebb__free(c->mem, c);
}

static ebb_status find_stream(ebb_caching *c, uint64_t stream, uint32_t *idx_out) {
    for (uint32_t i = 0; i < c->streams.n; i++) {
        if (c->streams.data[i] == stream) {
            *idx_out = i;
            return EBB_OK;
        }
    }
    if (c->streams.n >= MAX_STREAMS) { return ebb_fail(EBB_E_LIMIT, "more than %u streams", MAX_STREAMS); }
    *idx_out = (uint32_t)c->streams.n;
    return EBB_PUSH(c->mem, &c->streams, stream);
}

/* The size of the segment to take for this many bytes of a stream. */
static ebb_status ask_for(ebb_caching *c, uint64_t size_bytes, uint64_t stream, ebb_segment_request *request_out) {
    uint32_t idx = 0;
    if (size_bytes >= TOO_LARGE / 2) { return ebb_fail(EBB_E_UNSUPPORTED, "a block of 2^61 bytes or more"); }
    EBB_TRY(find_stream(c, stream, &idx));
    *request_out = (ebb_segment_request){.size_bytes = ebb__caching_round(&c->settings, size_bytes)};
    ebb__caching_ask(&c->settings, request_out);
    request_out->pool += 2 * idx;
    return EBB_OK;
}

ebb_status ebb__caching_release(ebb_caching *c, uint64_t freed_bytes, uint64_t size_bytes, uint64_t stream) {
    ebb_segment_request request;
    if (c->settings.expandable_segments) { return EBB_OK; }
    if (c->settings.gc_threshold > 0) {
        collect_old(c, freed_bytes);
    } else if (c->settings.max_split_bytes != 0) {
        EBB_TRY(ask_for(c, size_bytes, stream, &request));
        (void)release_oversize(c, &request);
    }
    return EBB_OK;
}

ebb_status ebb__caching_take(ebb_caching *c, uint64_t size_bytes, uint64_t stream, uint32_t *block_out) {
    ebb_segment_request request;
    if (size_bytes == 0) {
        *block_out = EBB_NO_BLOCK;
        return EBB_OK;
    }
    EBB_TRY(ask_for(c, size_bytes, stream, &request));
    if (c->settings.capacity_bytes != 0 && !ebb__segments_has(&c->segments, &request)) {
        EBB_TRY(make_room(c, &request));
    }
    c->segments.clock += request.pool % 2;
    EBB_TRY(ebb__segments_take(&c->segments, &request, block_out));
    EBB_ASSERT(c->segments.blocks.data[*block_out].size_bytes >= size_bytes);
    c->peak_bytes = ebb_max_u64(c->peak_bytes, c->segments.held_bytes);
    return EBB_OK;
}

void ebb__caching_give(ebb_caching *c, uint32_t block) {
    if (block != EBB_NO_BLOCK) { ebb__segments_give(&c->segments, block); }
}

uint64_t ebb__caching_reserved(const ebb_caching *c, uint64_t *peak_bytes_out) {
    EBB_ASSERT(c->peak_bytes >= c->segments.held_bytes);
    *peak_bytes_out = c->peak_bytes;
    return c->segments.held_bytes;
}
