/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors on the device in the walk of the policy best, for each way to leave: a binary heap with the lowest score
 * first. A score (best_price.c) changes all the time, but mostly it rises: the next use comes nearer, and what a tensor
 * would be computed from leaves. So the heap has floors. A floor was found when the tensor was last looked at, and the
 * score is not below it now. To choose, take tensors from the top and look at them, until the next floor is above the
 * lowest score.
 *
 * Whatever may lower a score lowers its floor, at most to 0, so that the tensor is looked at again.
 */
#include "plan/best.h"

static void put(ebb_best_queue *q, uint32_t at, ebb_best_floor entry) {
    q->entry[at] = entry;
    q->place[entry.tensor] = at;
}

static void sift_up(ebb_best_queue *q, uint32_t at, ebb_best_floor entry) {
    for (; at > 0 && entry.score < q->entry[(at - 1) / 2].score; at = (at - 1) / 2) {
        put(q, at, q->entry[(at - 1) / 2]);
    }
    put(q, at, entry);
}

static void sift_down(ebb_best_queue *q, uint32_t at, ebb_best_floor entry) {
    for (uint32_t below = 2 * at + 1; below < q->n; below = 2 * at + 1) {
        below += below + 1 < q->n && q->entry[below + 1].score < q->entry[below].score;
        if (q->entry[below].score >= entry.score) { break; }
        put(q, at, q->entry[below]);
        at = below;
    }
    put(q, at, entry);
}

ebb_status ebb__best_queue_init(ebb_best_queue *q, ebb_bump *bump, size_t n_tensors) {
    q->entry = ebb__bump_alloc(bump, n_tensors, sizeof *q->entry);
    q->place = ebb__bump_alloc(bump, n_tensors, sizeof *q->place);
    return q->entry != NULL && q->place != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

void ebb__best_queue_empty(ebb_best_queue *q, size_t n_tensors) {
    q->n = 0;
    for (size_t t = 0; t < n_tensors; t++) { q->place[t] = EBB_BEST_NONE; }
}

void ebb__best_queue_add(ebb_best_queue *q, ebb_best_floor entry) {
    EBB_ASSERT(q->place[entry.tensor] == EBB_BEST_NONE);
    sift_up(q, q->n++, entry);
}

void ebb__best_queue_remove(ebb_best_queue *q, uint32_t t) {
    const uint32_t at = q->place[t];
    EBB_ASSERT(at < q->n);
    q->place[t] = EBB_BEST_NONE;
    const ebb_best_floor last = q->entry[--q->n];
    if (last.tensor == t) { return; }
    if (at > 0 && last.score < q->entry[(at - 1) / 2].score) {
        sift_up(q, at, last);
    } else {
        sift_down(q, at, last);
    }
}

void ebb__best_queue_raise_top(ebb_best_queue *q, double score) {
    sift_down(q, 0, (ebb_best_floor){.score = score, .tensor = q->entry[0].tensor});
}

void ebb__best_queue_lower(ebb_best_queue *q, uint32_t t, double score) {
    const uint32_t at = q->place[t];
    if (at == EBB_BEST_NONE || q->entry[at].score <= score) { return; }
    sift_up(q, at, (ebb_best_floor){.score = score, .tensor = t});
}

void ebb__best_queue_lower_all(ebb_best_queue *q) {
    for (uint32_t i = 0; i < q->n; i++) { q->entry[i].score = q->entry[i].score > 0 ? 0 : q->entry[i].score; }
}
