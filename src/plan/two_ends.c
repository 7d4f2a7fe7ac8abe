/* SPDX-License-Identifier: Apache-2.0
 *
 * Holes in order: see two_ends.h.
 */
#include "plan/two_ends.h"

ebb_status ebb__two_ends_init(ebb_two_ends *space, const ebb_mem *mem, uint64_t size_bytes) {
    *space = (ebb_two_ends){.mem = mem};
    if (size_bytes == 0) { return EBB_OK; }
    return EBB_PUSH(mem, &space->holes, ((ebb_hole){.begin = 0, .end = size_bytes}));
}

void ebb__two_ends_fini(ebb_two_ends *space) {
    EBB_VEC_FINI(space->mem, &space->holes);
}

static void remove_hole(ebb_two_ends *space, size_t at) {
    ebb_hole *hole = &space->holes.data[at];
    memmove(hole, hole + 1, (space->holes.n - at - 1) * sizeof *hole);
    space->holes.n--;
}

uint64_t ebb__two_ends_take(ebb_two_ends *space, uint64_t bytes, bool is_upper) {
    if (bytes == 0) { return 0; }
    for (size_t i = 0; i < space->holes.n; i++) {
        const size_t at = is_upper ? space->holes.n - 1 - i : i;
        ebb_hole *hole = &space->holes.data[at];
        if (hole->end - hole->begin < bytes) { continue; }
        const uint64_t found = is_upper ? hole->end - bytes : hole->begin;
        *(is_upper ? &hole->end : &hole->begin) = is_upper ? found : found + bytes;
        if (hole->begin == hole->end) { remove_hole(space, at); }
        return found;
    }
    return EBB_NO_ROOM;
}

ebb_status ebb__two_ends_give_back(ebb_two_ends *space, uint64_t begin, uint64_t bytes) {
    const uint64_t end = begin + bytes;
    size_t at = 0;
    if (bytes == 0) { return EBB_OK; }
    EBB_TRY(EBB_RESERVE(space->mem, &space->holes, 1));
    ebb_hole *holes = space->holes.data;
    while (at < space->holes.n && holes[at].begin < begin) { at++; }
    const bool joins_lower = at > 0 && holes[at - 1].end == begin;
    const bool joins_upper = at < space->holes.n && holes[at].begin == end;
    EBB_ASSERT((at == 0 || holes[at - 1].end <= begin) && (at == space->holes.n || holes[at].begin >= end));
    if (joins_lower && joins_upper) {
        holes[at - 1].end = holes[at].end;
        remove_hole(space, at);
    } else if (joins_lower) {
        holes[at - 1].end = end;
    } else if (joins_upper) {
        holes[at].begin = begin;
    } else {
        memmove(&holes[at + 1], &holes[at], (space->holes.n - at) * sizeof *holes);
        holes[at] = (ebb_hole){.begin = begin, .end = end};
        space->holes.n++;
    }
    return EBB_OK;
}

uint64_t ebb__two_ends_largest(const ebb_two_ends *space) {
    uint64_t most = 0;
    for (size_t i = 0; i < space->holes.n; i++) {
        most = ebb_max_u64(most, space->holes.data[i].end - space->holes.data[i].begin);
    }
    return most;
}
