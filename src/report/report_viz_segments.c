/* SPDX-License-Identifier: Apache-2.0
 *
 * The segments of a snapshot: what is held at the end of a pass, and the blocks in it with the gaps between them. Where
 * a source tells no segments, what blocks have touched is one; unless that is far more than ever lived, for a host's
 * heap and its mappings lie tens of TiB apart.
 */
#include "report/report_viz.h"

#define FAR_APART 64u /* times the peak */

static uint64_t by_number(const void *item) {
    return ((const viz_block *)item)->block;
}

static uint64_t by_address(const void *item) {
    return ((const viz_block *)item)->address;
}

/* By address; of equal ones the first that came. */
static ebb_status sort_live(viz *v) {
    viz_block *live = v->d->live.data;
    EBB_TRY(ebb__sort_items(v->mem, live, v->d->live.n, sizeof *live, by_number));
    return ebb__sort_items(v->mem, live, v->d->live.n, sizeof *live, by_address);
}

/* A free block has no stack and NULL for its own. */
static ebb_status put_block(viz *v, uint64_t address, uint64_t size_bytes, const viz_block *own) {
    ebb__report_viz_next(v);
    ebb__report_viz_open_dict(v);
    ebb__report_viz_number(v, WORD_ADDRESS, address);
    ebb__report_viz_number(v, WORD_SIZE, size_bytes);
    ebb__report_viz_number(v, WORD_REQUESTED_SIZE, own != NULL ? own->size_bytes : 0);
    ebb__report_viz_pair(v, WORD_STATE, own != NULL ? WORD_ACTIVE_ALLOCATED : WORD_INACTIVE);
    EBB_TRY(ebb__report_viz_frames(v, own != NULL ? own->stack : 0));
    ebb__report_viz_close_dict(v);
    return EBB_OK;
}

/* The blocks [first, last), with the gaps between them. */
static ebb_status put_blocks(viz *v, const ebb_range *range, size_t first, size_t last) {
    uint64_t at = range->address;
    const uint64_t end = range->address + range->size_bytes;
    const size_t n_outer = v->n_in_batch;
    ebb__report_viz_word(v, WORD_BLOCKS);
    ebb__report_viz_open_list(v);
    for (size_t i = first; i < last; i++) {
        const viz_block *b = &v->d->live.data[i];
        if (b->address > at) { EBB_TRY(put_block(v, at, b->address - at, NULL)); }
        const uint64_t limit = i + 1 < last ? v->d->live.data[i + 1].address : end;
        EBB_ASSERT(range->address <= b->address && b->address <= limit);
        const uint64_t rounded =
            ebb_align_up(ebb_min_u64(b->size_bytes, UINT64_MAX - VIZ_BLOCK_ALIGN), VIZ_BLOCK_ALIGN);
        const uint64_t size_bytes = ebb_max_u64(ebb_min_u64(rounded, limit - b->address), 1);
        EBB_TRY(put_block(v, b->address, size_bytes, b));
        at = b->address + size_bytes;
    }
    if (at < end) { EBB_TRY(put_block(v, at, end - at, NULL)); }
    ebb__report_viz_close_list(v);
    v->n_in_batch = n_outer;
    return EBB_OK;
}

static ebb_status put_segment(viz *v, uint32_t device, const ebb_range *range, size_t first, size_t last) {
    uint64_t requested = 0;
    EBB_ASSERT(first <= last && last <= v->d->live.n && range->size_bytes > 0);
    for (size_t i = first; i < last; i++) { requested += v->d->live.data[i].size_bytes; }
    ebb__report_viz_next(v);
    ebb__report_viz_open_dict(v);
    ebb__report_viz_number(v, WORD_DEVICE, device);
    ebb__report_viz_number(v, WORD_ADDRESS, range->address);
    ebb__report_viz_number(v, WORD_TOTAL_SIZE, range->size_bytes);
    ebb__report_viz_number(v, WORD_ALLOCATED_SIZE, requested);
    ebb__report_viz_number(v, WORD_ACTIVE_SIZE, requested);
    ebb__report_viz_number(v, WORD_REQUESTED_SIZE, requested);
    ebb__report_viz_number(v, WORD_STREAM, v->stream_of[first < last ? v->d->live.data[first].row : 0]);
    ebb__report_viz_pair(v, WORD_SEGMENT_TYPE, range->size_bytes > (uint64_t)2 << 20 ? WORD_LARGE : WORD_SMALL);
    ebb__report_viz_word(v, WORD_SEGMENT_POOL_ID);
    ebb__report_pickle_u64(&v->pickle, 0);
    ebb__report_pickle_u64(&v->pickle, 0);
    ebb__report_pickle_op(&v->pickle, 0x86);
    ebb__report_viz_word(v, WORD_IS_EXPANDABLE);
    ebb__report_pickle_op(&v->pickle, 0x89);
    EBB_TRY(ebb__report_viz_frames(v, range->stack));
    EBB_TRY(put_blocks(v, range, first, last));
    ebb__report_viz_close_dict(v);
    return EBB_OK;
}

ebb_status ebb__report_viz_segments(viz *v, uint32_t device) {
    const uint64_t span_bytes = v->d->first_address < v->d->last_address ? v->d->last_address - v->d->first_address : 0;
    if (v->d->held.ranges.n == 0 && span_bytes > 0 && span_bytes / FAR_APART <= v->d->peak_bytes) {
        const ebb_range range = {v->d->first_address, span_bytes, 0};
        EBB_TRY(ebb__ranges_add(&v->d->held, &range, NULL, NULL));
    }
    EBB_TRY(sort_live(v));
    size_t i = 0;
    for (size_t r = 0; r <= v->d->held.ranges.n; r++) {
        const ebb_range *range = r < v->d->held.ranges.n ? &v->d->held.ranges.data[r] : NULL;
        for (; i < v->d->live.n && (range == NULL || v->d->live.data[i].address < range->address); i++) {
            const ebb_range own = {v->d->live.data[i].address, ebb_max_u64(v->d->live.data[i].size_bytes, 1), 0};
            EBB_TRY(put_segment(v, device, &own, i, i + 1));
        }
        if (range == NULL) { break; }
        const size_t first = i;
        while (i < v->d->live.n && v->d->live.data[i].address - range->address < range->size_bytes) { i++; }
        EBB_TRY(put_segment(v, device, range, first, i));
    }
    return EBB_OK;
}
