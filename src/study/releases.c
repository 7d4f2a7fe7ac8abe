/* SPDX-License-Identifier: Apache-2.0
 *
 * When the recorded allocator gave segments back, and whether that was all that it kept free: what
 * torch.cuda.empty_cache() does, or a part, as PyTorch does by itself under garbage_collection_threshold and
 * max_split_size.
 *
 * Segments that go one right after the other, with no block and no new segment between, are one release. It was a part
 * if a segment without a live block is left. Where addresses are not told, each release counts as all.
 */
#include "study/study_priv.h"

typedef struct release_walk {
    ebb_study *study;
    uint32_t *there; /* the segments that are there, by space and address */
    size_t n_there, n_empty;
    uint32_t *n_live; /* of each segment: its live blocks */
    uint32_t *home;   /* of each block: its segment; STUDY_NONE: unknown */
} release_walk;

/* The number of segments that are there and begin at this place or before it. */
static size_t n_up_to(const release_walk *w, uint32_t space, uint64_t address) {
    size_t low = 0, high = w->n_there;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const study_segment *g = &w->study->segments.data[w->there[middle]];
        if (g->space < space || (g->space == space && g->address <= address)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void pass_block(release_walk *w, uint32_t entry) {
    const uint32_t b = entry >> 1;
    const study_block *block = &w->study->blocks.data[b];
    if ((entry & 1u) != 0) {
        if (w->home[b] == STUDY_NONE) { return; }
        EBB_ASSERT(w->n_live[w->home[b]] > 0);
        w->n_empty += --w->n_live[w->home[b]] == 0;
        return;
    }
    const size_t n = block->address != EBB_TRACE_NONE ? n_up_to(w, block->space, block->address) : 0;
    const study_segment *g = n > 0 ? &w->study->segments.data[w->there[n - 1]] : NULL;
    const bool is_in = g != NULL && g->space == block->space && block->address - g->address < g->size_bytes;
    w->home[b] = is_in ? w->there[n - 1] : STUDY_NONE;
    if (is_in) { w->n_empty -= w->n_live[w->home[b]]++ == 0; }
}

static ebb_status pass_segment(release_walk *w, uint32_t entry, bool goes_on) {
    ebb_study *s = w->study;
    const uint32_t idx = entry >> 1;
    const study_segment *g = &s->segments.data[idx];
    const size_t at = n_up_to(w, g->space, g->address);
    if ((entry & 1u) == 0) {
        memmove(&w->there[at + 1], &w->there[at], (w->n_there - at) * sizeof *w->there);
        w->there[at] = idx;
        w->n_there++;
        w->n_empty++;
        return EBB_OK;
    }
    size_t is_at = at;
    while (is_at > 0 && w->there[is_at - 1] != idx) { is_at--; }
    EBB_ASSERT(is_at > 0);
    memmove(&w->there[is_at - 1], &w->there[is_at], (w->n_there - is_at) * sizeof *w->there);
    w->n_there--;
    w->n_empty -= w->n_live[idx] == 0;
    if (!goes_on) {
        const study_release fresh = {.event = g->died_event};
        EBB_TRY(EBB_PUSH(s->mem, &s->releases, fresh));
    }
    study_release *release = &s->releases.data[s->releases.n - 1];
    release->bytes += g->size_bytes;
    release->is_part = w->n_empty > 0 && study_tells(s, EBB_TRACE_TELLS_ADDRESSES);
    return EBB_OK;
}

static ebb_status walk(release_walk *w) {
    const ebb_study *s = w->study;
    bool is_release = false;
    for (size_t i = 0, k = 0; k < s->segment_log.n;) {
        const uint32_t event = study_segment_event(s, s->segment_log.data[k]);
        if (i < s->log.n && study_log_event(s, s->log.data[i]) < event) {
            pass_block(w, s->log.data[i++]);
            is_release = false;
            continue;
        }
        EBB_TRY(pass_segment(w, s->segment_log.data[k], is_release));
        is_release = (s->segment_log.data[k++] & 1u) != 0;
    }
    return EBB_OK;
}

ebb_status ebb__study_find_releases(ebb_study *s) {
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    release_walk w = {.study = s,
                      .there = ebb__bump_alloc(&scratch, s->segments.n + 1, sizeof *w.there),
                      .n_live = ebb__bump_alloc(&scratch, s->segments.n + 1, sizeof *w.n_live),
                      .home = ebb__bump_alloc(&scratch, s->blocks.n + 1, sizeof *w.home)};
    ebb_status st = w.there != NULL && w.n_live != NULL && w.home != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        memset(w.n_live, 0, (s->segments.n + 1) * sizeof *w.n_live);
        st = walk(&w);
    }
    ebb__bump_fini(&scratch);
    return st;
}
