/* SPDX-License-Identifier: Apache-2.0
 *
 * cudaMalloc and cudaFree without an allocator above them. Nvidia documents no rounding; assumed is what cudaMemGetInfo
 * shows on cards of today: memory comes and goes in pages of 2 MiB. Above half a page a block has pages of its own;
 * smaller ones share a page, in multiples of 512 bytes, the tightest free piece first. A page goes back as soon as
 * nothing lives in it.
 */
#include "place/driver.h"

#include "place/segments.h"

#define PAGE_BYTES ((uint64_t)2 << 20)
#define OWN_BYTES (PAGE_BYTES / 2) /* a block of more has pages of its own */
#define PIECE_BYTES ((uint64_t)512)
#define TOO_LARGE ((uint64_t)1 << 61)

struct ebb_driver {
    const ebb_mem *mem;
    ebb_segments shared; /* pages */
    uint64_t own_bytes, peak_bytes;
};

ebb_status ebb__driver_create(const ebb_mem *mem, ebb_driver **driver_out) {
    mem = ebb__mem_or_default(mem);
    ebb_driver *d = ebb__calloc(mem, 1, sizeof *d);
    if (d == NULL) { return EBB_E_NO_MEMORY; }
    d->mem = mem;
    const ebb_status st = ebb__segments_init(&d->shared, mem, EBB_PLACE_TIGHTEST);
    if (st != EBB_OK) {
        ebb__free(mem, d);
        return st;
    }
    *driver_out = d;
    return EBB_OK;
}

void ebb__driver_destroy(ebb_driver *d) {
    if (d == NULL) { return; }
    ebb__segments_fini(&d->shared);
    ebb__free(d->mem, d);
}

static bool has_own_pages(uint64_t size_bytes) {
    return size_bytes > OWN_BYTES;
}

ebb_status ebb__driver_take(ebb_driver *d, uint64_t size_bytes, uint32_t *block_out) {
    uint32_t block = EBB_NO_BLOCK;
    if (size_bytes >= TOO_LARGE || d->own_bytes >= TOO_LARGE) {
        return ebb_fail(EBB_E_UNSUPPORTED, "blocks of 2^61 bytes or more");
    }
    if (has_own_pages(size_bytes)) {
        d->own_bytes += ebb_align_up(size_bytes, PAGE_BYTES);
    } else if (size_bytes > 0) {
        const ebb_segment_request request = {.size_bytes = ebb_align_up(size_bytes, PIECE_BYTES),
                                             .segment_bytes = PAGE_BYTES,
                                             .min_rest_bytes = PIECE_BYTES};
        EBB_TRY(ebb__segments_take(&d->shared, &request, &block));
    }
    d->peak_bytes = ebb_max_u64(d->peak_bytes, d->own_bytes + d->shared.held_bytes);
    *block_out = block;
    return EBB_OK;
}

void ebb__driver_give(ebb_driver *d, uint32_t block, uint64_t size_bytes) {
    if (has_own_pages(size_bytes)) {
        EBB_ASSERT(d->own_bytes >= size_bytes);
        d->own_bytes -= ebb_align_up(size_bytes, PAGE_BYTES);
        return;
    }
    if (block == EBB_NO_BLOCK) { return; }
    const uint32_t before = d->shared.blocks.data[block].prev;
    ebb__segments_give(&d->shared, block);
    const bool joined = before != EBB_NO_BLOCK && d->shared.blocks.data[before].is_free;
    if (ebb__segments_is_whole(&d->shared, joined ? before : block)) {
        ebb__segments_drop(&d->shared, joined ? before : block);
    }
}

uint64_t ebb__driver_peak(const ebb_driver *d) {
    return d->peak_bytes;
}
