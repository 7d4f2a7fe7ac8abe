/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterations that the trace names itself. A marked one goes from its begin mark to its end mark, both included, or
 * where it has none up to the next begin mark; one that neither ends is not whole.
 */
#include "trace/iteration_priv.h"

ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations) {
    bool is_open = false;
    uint64_t first_event = 0;
    for (size_t m = 0; m < finder->marks.n; m++) {
        const ebb_iteration_mark *mark = &finder->marks.data[m];
        if (mark->mark == EBB_TRACE_ANNOTATION) { continue; }
        const bool begins = mark->mark == EBB_TRACE_ITERATION_BEGIN;
        if (is_open) {
            ebb_iteration_part part = {.kind = EBB_PART_ITERATION, .first_event = first_event};
            part.n_events = mark->event + (begins ? 0u : 1u) - first_event;
            EBB_TRY(EBB_PUSH(finder->mem, iterations, part));
        }
        is_open = begins;
        first_event = mark->event;
    }
    return EBB_OK;
}
