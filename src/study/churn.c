/* SPDX-License-Identifier: Apache-2.0
 *
 * How much is allocated anew, and what would be needed if no block lived before its first access or after its last.
 */
#include "study/study_priv.h"

#include <math.h>

/* ---- churn ------------------------------------------------------------------------------------ */

static bool is_again(const ebb_study *s, uint32_t freed_entry, uint32_t entry) {
    const study_block *old = &s->blocks.data[freed_entry >> 1], *new = &s->blocks.data[entry >> 1];
    return (freed_entry & 1u) != 0 && old->size_bytes == new->size_bytes && old->space == new->space;
}

void ebb__study_find_churn(ebb_study *s) {
    ebb_study_churn *c = &s->churn;
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i];
        const study_block *block = &s->blocks.data[entry >> 1];
        if ((entry & 1u) != 0) {
            c->n_frees++;
            continue;
        }
        if (block->before) { continue; }
        c->n_allocs++;
        c->alloc_bytes = study_add(c->alloc_bytes, block->size_bytes);
        if (i == 0 || !is_again(s, s->log.data[i - 1], entry)) { continue; }
        c->n_at_once++;
        c->at_once_bytes = study_add(c->at_once_bytes, block->size_bytes);
    }
    const bool has_times = s->summary.duration_ns != EBB_STUDY_UNKNOWN && s->summary.duration_ns > 0;
    const double seconds = has_times ? (double)s->summary.duration_ns * 1e-9 : NAN;
    c->allocs_per_s = (double)c->n_allocs / seconds;
    c->bytes_per_s = (double)c->alloc_bytes / seconds;
    c->turnover = s->summary.mean_live_bytes > 0 ? (double)c->alloc_bytes / (double)s->summary.mean_live_bytes : NAN;
}

ebb_study_churn ebb_study_get_churn(const ebb_study *study) {
    return study->churn;
}

/* ---- nothing idle ----------------------------------------------------------------------------- */

/* When a block would begin and end, as 2 x event, plus 1 for an end: at one event all that begins comes first. A step
 * touches all that it touches at once, from its begin to its end. */
static bool find_extent(const ebb_study *s, uint32_t block, uint64_t *begin_out, uint64_t *end_out) {
    const study_block *b = &s->blocks.data[block];
    const size_t first = b->first_access, end = study_first_access(s, (size_t)block + 1);
    const bool stays = b->died_event == STUDY_NONE;
    if (first == end && !stays) { return false; }
    uint64_t begin_event = b->born_event, end_event = STUDY_NONE;
    if (!b->before && first < end) {
        const study_access *a = &s->accesses.data[s->by_block[first]];
        const uint32_t step = study_step_of(a);
        begin_event = ebb_max_u64(begin_event, step != STUDY_NO_STEP ? s->steps.data[step].begin_event : a->event);
    }
    if (!stays) {
        const study_access *a = &s->accesses.data[s->by_block[end - 1]];
        const uint32_t step = study_step_of(a);
        end_event = ebb_min_u64(b->died_event, step != STUDY_NO_STEP ? s->steps.data[step].end_event : a->event);
    }
    EBB_ASSERT(begin_event <= end_event);
    *begin_out = 2 * begin_event;
    *end_out = 2 * end_event + 1;
    return true;
}

static ebb_status sort_extents(const ebb_study *s, ebb_bump *scratch, uint32_t **order_out, size_t *n_out) {
    const size_t n = s->blocks.n;
    uint64_t *key = ebb__bump_alloc(scratch, 2 * n, sizeof *key);
    uint32_t *order = ebb__bump_alloc(scratch, 2 * n, sizeof *order);
    size_t n_taken = 0;
    if (key == NULL || order == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t b = 0; b < n; b++) {
        if (!find_extent(s, b, &key[2 * (size_t)b], &key[2 * (size_t)b + 1])) { continue; }
        order[n_taken++] = b << 1;
        order[n_taken++] = b << 1 | 1u;
    }
    EBB_TRY(ebb__sort_by_key(s->mem, order, n_taken, key));
    *order_out = order;
    *n_out = n_taken;
    return EBB_OK;
}

ebb_status ebb__study_nothing_idle(const ebb_study *s, uint64_t *peak_bytes_out) {
    if (!study_tells(s, EBB_TRACE_TELLS_ACCESSES)) {
        *peak_bytes_out = EBB_STUDY_UNKNOWN;
        return EBB_OK;
    }
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    uint32_t *order = NULL;
    size_t n = 0;
    const ebb_status st = sort_extents(s, &scratch, &order, &n);
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        const uint64_t size_bytes = s->blocks.data[order[i] >> 1].size_bytes;
        live_bytes += (order[i] & 1u) != 0 ? 0 - size_bytes : size_bytes;
        peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
    }
    if (st == EBB_OK) { *peak_bytes_out = peak_bytes; }
    ebb__bump_fini(&scratch);
    return st;
}
