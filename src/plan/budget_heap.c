/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors that may leave, the one whose next use is farthest on top. An entry is not taken out when its tensor
 * leaves or is locked; its stamp then is not the tensor's any more, and it is skipped when popped.
 *
 * And the deep check of the walk that they belong to.
 */
#include "plan/budget.h"

static bool leaves_before(const ebb_budget_entry *a, const ebb_budget_entry *b) {
    if (a->need != b->need) { return a->need > b->need; }
    if (a->bytes != b->bytes) { return a->bytes > b->bytes; }
    return a->tensor < b->tensor;
}

ebb_status ebb__budget_push(ebb_budget_walk *w, ebb_budget_entry entry) {
    EBB_ASSERT(entry.tensor < w->view.n_tensors && entry.bytes == w->state[entry.tensor].bytes);
    EBB_TRY(EBB_PUSH(w->input->mem, &w->heap, entry));
    size_t at = w->heap.n - 1;
    for (; at > 0 && leaves_before(&entry, &w->heap.data[(at - 1) / 2]); at = (at - 1) / 2) {
        w->heap.data[at] = w->heap.data[(at - 1) / 2];
    }
    w->heap.data[at] = entry;
    EBB_ASSERT(at == 0 || !leaves_before(&entry, &w->heap.data[(at - 1) / 2]));
    return EBB_OK;
}

ebb_budget_entry ebb__budget_pop(ebb_budget_walk *w) {
    EBB_ASSERT(w->heap.n > 0);
    ebb_budget_entry top = w->heap.data[0], moved = w->heap.data[--w->heap.n];
    size_t at = 0, n = w->heap.n;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < n && leaves_before(&w->heap.data[child + 1], &w->heap.data[child])) { child++; }
        if (child >= n || !leaves_before(&w->heap.data[child], &moved)) { break; }
        w->heap.data[at] = w->heap.data[child];
        at = child;
    }
    if (n > 0) { w->heap.data[at] = moved; }
    EBB_ASSERT(n == 0 || !leaves_before(&w->heap.data[0], &top));
    return top;
}

static bool heap_is_valid(const ebb_budget_walk *w) {
    for (size_t i = 1; i < w->heap.n; i++) {
        if (leaves_before(&w->heap.data[i], &w->heap.data[(i - 1) / 2])) { return false; }
    }
    return true;
}

/* A tensor that is here without locks must be found when room is wanted (invariant 3). */
static bool is_findable(const ebb_budget_walk *w, const ebb_budget_entry *entries, size_t n, uint32_t t) {
    for (size_t i = 0; i < n; i++) {
        if (entries[i].tensor == t && entries[i].stamp == w->state[t].stamp) { return true; }
    }
    return false;
}

bool ebb__budget_walk_is_valid(const ebb_budget_walk *w) {
    uint64_t load = 0, tier_used[EBB_MAX_TIERS] = {0};
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        const ebb_budget_tensor *state = &w->state[t];
        load += state->present ? state->bytes : 0;
        if (state->copied) { tier_used[state->tier] += state->bytes; }
        if (state->locks > 0 || !state->present) { continue; }
        if (!is_findable(w, w->heap.data, w->heap.n, t) && !is_findable(w, w->stuck.data, w->stuck.n, t)) {
            return false;
        }
    }
    bool fits = load == w->load && load <= w->input->limit_bytes;
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        fits = fits && tier_used[tier] == w->tier_used[tier] && tier_used[tier] <= w->input->tier_bytes[tier];
    }
    return fits && heap_is_valid(w);
}
