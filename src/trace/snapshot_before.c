/* SPDX-License-Identifier: Apache-2.0
 * The blocks that were there before the events of a snapshot.
 *
 * A snapshot shows the end (the segments with their blocks) and what led to it as far as the recording goes back (the
 * events, of which a ring may have lost the first). The blocks from before follow from both: a block whose first
 * event is a free, and one that is allocated at the end though no event speaks of its address, were there when the
 * recording began; and the segments of that moment are those of the end with the events undone, last to first.
 */
#include "trace/snapshot.h"

void ebb__snapshot_before_init(ebb_snapshot_before *before, const ebb_mem *mem) {
    memset(before, 0, sizeof *before);
    before->mem = mem;
    ebb__ranges_init(&before->segments, mem);
}

void ebb__snapshot_before_fini(ebb_snapshot_before *before) {
    EBB_VEC_FINI(before->mem, &before->blocks);
    ebb__ranges_fini(&before->segments);
}

bool ebb__snapshot_is_death(const ebb_snapshot_before *before, const ebb_snapshot_event *event) {
    return event->action == (before->has_requests ? EBB_SNAPSHOT_FREE_REQUESTED : EBB_SNAPSHOT_FREE_COMPLETED);
}

/* ---- blocks ----------------------------------------------------------------------------------- */

/* Blocks that are freed without having been allocated. seen: the addresses of all events. */
static ebb_status find_freed(const ebb_snapshot *s, const ebb_snapshot_list *events, ebb_u64_map *seen,
                             ebb_snapshot_before *before) {
    const ebb_snapshot_event *event = s->events.data + events->first;
    for (uint64_t i = 0; i < events->n && !before->has_requests; i++) {
        before->has_requests = event[i].action == EBB_SNAPSHOT_FREE_REQUESTED;
    }
    for (uint64_t i = 0; i < events->n; i++) {
        if (event[i].action > EBB_SNAPSHOT_FREE_COMPLETED) { continue; }
        uint64_t *value = NULL;
        bool is_new = false;
        EBB_TRY(ebb__u64_map_add(seen, event[i].address, &value, &is_new));
        if (!is_new || !ebb__snapshot_is_death(before, &event[i])) { continue; }
        const ebb_snapshot_kept block = {event[i].address, event[i].size_bytes, 0, event[i].stream};
        EBB_TRY(EBB_PUSH(s->mem, &before->blocks, block));
    }
    return EBB_OK;
}

/* A segment's blocks that are allocated and of which no event speaks. */
static ebb_status find_kept(const ebb_snapshot *s, const ebb_snapshot_segment *segment, const ebb_u64_map *seen,
                            ebb_snapshot_before *before) {
    if (segment->blocks == 0) { return EBB_OK; }
    const ebb_snapshot_list *list = &s->lists.data[segment->blocks - 1];
    EBB_ASSERT(list->n == 0 || list->first + list->n <= s->blocks.n);
    uint64_t offset = 0;
    for (uint64_t i = 0; i < list->n; i++) {
        const ebb_snapshot_block *b = &s->blocks.data[list->first + i];
        const uint64_t address = b->address != EBB_TRACE_NONE ? b->address : segment->address + offset;
        offset += b->size_bytes;
        if (!b->is_allocated || ebb__u64_map_find(seen, address) != NULL) { continue; }
        const ebb_snapshot_kept block = {address, b->requested_bytes, b->stack, segment->stream};
        EBB_TRY(EBB_PUSH(s->mem, &before->blocks, block));
    }
    return EBB_OK;
}

static ebb_status find_blocks(const ebb_snapshot *s, uint32_t device, const ebb_snapshot_list *events,
                              ebb_snapshot_before *before) {
    ebb_u64_map seen;
    ebb__u64_map_init(&seen, s->mem);
    ebb_status st = events->n > 0 ? find_freed(s, events, &seen, before) : EBB_OK;
    for (size_t i = 0; st == EBB_OK && i < s->segments.n; i++) {
        const ebb_snapshot_segment *segment = &s->segments.data[i];
        if (segment->device == device) { st = find_kept(s, segment, &seen, before); }
    }
    ebb__u64_map_fini(&seen);
    return st;
}

/* ---- segments --------------------------------------------------------------------------------- */

static ebb_status find_segments(const ebb_snapshot *s, uint32_t device, const ebb_snapshot_list *events,
                                ebb_ranges *held) {
    for (size_t i = 0; i < s->segments.n; i++) {
        const ebb_snapshot_segment *segment = &s->segments.data[i];
        if (segment->device != device) { continue; }
        const ebb_range range = {segment->address, segment->total_bytes, segment->stack};
        EBB_TRY(ebb__ranges_add(held, &range, NULL, NULL));
    }
    for (uint64_t i = events->n; i-- > 0;) {
        const ebb_snapshot_event *event = &s->events.data[events->first + i];
        const ebb_range range = {event->address, event->size_bytes, 0};
        if (event->action == EBB_SNAPSHOT_SEGMENT_ALLOC) {
            EBB_TRY(ebb__ranges_remove(held, &range, NULL, NULL));
        } else if (event->action == EBB_SNAPSHOT_SEGMENT_FREE && s->has_segments) {
            EBB_TRY(ebb__ranges_add(held, &range, NULL, NULL));
        }
    }
    return EBB_OK;
}

ebb_status ebb__snapshot_find_before(const ebb_snapshot *s, uint32_t device, ebb_snapshot_before *before) {
    const ebb_snapshot_list none = {0};
    const ebb_snapshot_list *events = device < s->devices.n ? &s->devices.data[device] : &none;
    EBB_TRY(find_blocks(s, device, events, before));
    return find_segments(s, device, events, &before->segments);
}
