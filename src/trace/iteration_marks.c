/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations that the trace names itself.
 *
 * A marked one goes from its begin mark to its end mark, both included, or where it has none up to the next begin mark;
 * one that neither ends is not whole.
 */
#include "trace/iteration_priv.h"

ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations) {
    bool is_open = false;
    uint64_t first_event = 0;
    for (size_t m = 0; m < finder->marks.n; m++) {
        const ebb_iteration_mark *mark = &finder->marks.data[m];
        const bool begins = mark->mark == EBB_TRACE_ITERATION_BEGIN;
        if (is_open) {
            ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION, .first_event = first_event};
            part.n_events = mark->event + (begins ? 0u : 1u) - first_event;
            EBB_TRY(EBB_PUSH(finder->mem, iterations, part));
        }
        is_open = begins;
        first_event = mark->event;
    }
    return EBB_OK;
}

uint32_t ebb__iteration_least(const uint64_t *live_bytes, uint32_t first, uint32_t last) {
    uint32_t best = first, low = first;
    double most = -1.0, more = 0.0; /* byte-events above the least, behind low */
    for (uint32_t at = first + 1; at <= last; at++) {
        if (at < last && live_bytes[at] > live_bytes[low]) {
            more += (double)(live_bytes[at] - live_bytes[low]);
            continue;
        }
        if (more > most) {
            most = more;
            best = low;
        }
        if (at < last && live_bytes[at] < live_bytes[low]) {
            most = -1.0;
            best = at;
        }
        low = at;
        more = 0.0;
    }
    return best;
}
