/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a repetition is training, as far as the sizes of its blocks tell. Parameters stay for the whole recording. In
 * each iteration of training a gradient as large as each of them is made; an evaluation makes none. An optimizer with a
 * state makes it once, in its first step, while the gradients of that iteration are there: blocks that stay, made
 * beside younger blocks of the same size that do not. If those gradients are older than one repetition, the repetition
 * is a part of a batch.
 */
#include "trace/iteration_priv.h"
#include "base/u64_map.h"

#define MOST_SHARE 0.5 /* of the bytes that stay, and of their blocks */
#define ALL_SHARE 0.9  /* of the bytes that stay: all but a teacher's or so */
#define WRITTEN_SHARE 0.0625
#define OFTEN_SHARE 5u   /* of the repetitions: one in this many is often */
#define STATE_SHARE 0.25 /* of the bytes that stay: the optimizer's state */

typedef struct sizes {
    uint32_t n_staying;     /* blocks of this size */
    uint32_t last_gradient; /* kept event that made the last block of this size that goes; UINT32_MAX: none */
    uint32_t last_death;    /* of that block */
    bool is_made;           /* in the repetition */
} sizes;

typedef struct weigher {
    const ebb_iteration_text *all;
    ebb_stretch one, span; /* a usual repetition; all of them */
    ebb_u64_map index;     /* by size: into sizes */
    EBB_VEC(sizes) sizes;
} weigher;

static ebb_stretch kept_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return (ebb_stretch){ebb__iteration_at_of(finder, part->first_event),
                         ebb__iteration_at_of(finder, part->first_event + part->n_events)};
}

static bool stays(const weigher *w, uint32_t block) {
    return w->all->born[block] < w->span.first && w->all->died[block] >= w->span.last;
}

static ebb_status count_staying(weigher *w) {
    const ebb_iteration_finder *finder = w->all->finder;
    for (uint32_t b = 0; b < finder->sizes.n; b++) {
        uint64_t *at = NULL;
        bool is_new = false;
        if (!stays(w, b)) { continue; }
        EBB_TRY(ebb__u64_map_add(&w->index, finder->sizes.data[b], &at, &is_new));
        if (is_new) {
            *at = w->sizes.n;
            const sizes fresh = {.last_gradient = UINT32_MAX};
            EBB_TRY(EBB_PUSH(finder->mem, &w->sizes, fresh));
        }
        w->sizes.data[*at].n_staying++;
    }
    return EBB_OK;
}

static bool is_alloc(const ebb_iteration_finder *finder, uint32_t at) {
    return (finder->symbols.data[at] & EBB_SYMBOL_MASK) == EBB_SYMBOL_ALLOC;
}

static void find_gradients(weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    double bytes = 0.0, made_bytes = 0.0, n = 0.0, n_made = 0.0;
    for (uint32_t at = w->one.first; at < w->one.last; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint64_t *found = ebb__u64_map_find(&w->index, finder->sizes.data[finder->blocks.data[at]]);
        if (found != NULL) { w->sizes.data[*found].is_made = true; }
    }
    for (uint32_t b = 0; b < finder->sizes.n; b++) {
        if (!stays(w, b)) { continue; }
        const sizes *of = &w->sizes.data[*ebb__u64_map_find(&w->index, finder->sizes.data[b])];
        const double size = (double)finder->sizes.data[b];
        bytes += size;
        made_bytes += of->is_made ? size : 0.0;
        n += 1.0;
        n_made += of->is_made;
    }
    weight->is_known = n > 0.0;
    weight->has_gradients = n > 0.0 && made_bytes >= MOST_SHARE * bytes && n_made >= MOST_SHARE * n;
    weight->has_all_gradients = weight->has_gradients && made_bytes >= ALL_SHARE * bytes;
}

/* The bytes of blocks made there that are as large as one that stays. */
static double made_bytes_of(const weigher *w, ebb_stretch part) {
    const ebb_iteration_finder *finder = w->all->finder;
    double bytes = 0.0;
    for (uint32_t at = part.first; at < part.last; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint64_t size = finder->sizes.data[finder->blocks.data[at]];
        if (ebb__u64_map_find(&w->index, size) != NULL) { bytes += (double)size; }
    }
    return bytes;
}

/* Whether something often comes between repetitions that makes as many such blocks: another optimizer's pass. */
static bool is_half(const weigher *w, const ebb_iteration_part *parts, size_t n) {
    const double least = MOST_SHARE * made_bytes_of(w, w->one);
    size_t n_iterations = 0, n_others = 0;
    for (size_t p = 0; p < n; p++) {
        n_iterations += parts[p].kind == EBB_ITERATION_PART_ITERATION;
        if (parts[p].kind == EBB_ITERATION_PART_BETWEEN) {
            n_others += made_bytes_of(w, kept_of(w->all->finder, &parts[p])) >= least;
        }
    }
    return n_others * OFTEN_SHARE >= n_iterations;
}

/* Blocks that stay, made beside a block of the same size that goes and is younger than a repetition. */
static void find_state(weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    const uint32_t length = w->one.last - w->one.first;
    double bytes = 0.0, state_bytes = 0.0;
    for (uint32_t at = 0; at < w->span.first; at++) {
        if (!is_alloc(finder, at)) { continue; }
        const uint32_t block = finder->blocks.data[at];
        const uint64_t *found = ebb__u64_map_find(&w->index, finder->sizes.data[block]);
        if (found == NULL) { continue; }
        sizes *of = &w->sizes.data[*found];
        const double size = (double)finder->sizes.data[block];
        if (!stays(w, block)) {
            of->last_gradient = at;
            of->last_death = w->all->died[block];
            continue;
        }
        bytes += size;
        const bool is_beside = of->last_gradient != UINT32_MAX && of->last_death > at;
        if (is_beside && at - of->last_gradient <= length) { state_bytes += size; }
    }
    weight->makes_state = bytes > 0.0 && state_bytes >= STATE_SHARE * bytes;
}

static ebb_status weigh(weigher *w, ebb_iteration_weight *weight) {
    EBB_TRY(count_staying(w));
    find_gradients(w, weight);
    find_state(w, weight);
    return EBB_OK;
}

/* Whether the repetition writes a good share of the bytes that stay and that it touches: parameters, not statistics. */
static ebb_status find_writes(const weigher *w, ebb_iteration_weight *weight) {
    const ebb_iteration_finder *finder = w->all->finder;
    uint8_t *is_seen = ebb__calloc(finder->mem, finder->sizes.n + 1, sizeof *is_seen); /* 1: read, 2: written */
    double touched_bytes = 0.0, written_bytes = 0.0;
    if (is_seen == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t at = w->one.first; at < w->one.last; at++) {
        const uint32_t kind = finder->symbols.data[at] & EBB_SYMBOL_MASK, block = finder->blocks.data[at];
        if ((kind != EBB_SYMBOL_READ && kind != EBB_SYMBOL_WRITE) || !stays(w, block)) { continue; }
        const double size = (double)finder->sizes.data[block];
        const uint8_t bit = kind == EBB_SYMBOL_WRITE ? 2 : 1;
        touched_bytes += is_seen[block] == 0 ? size : 0.0;
        written_bytes += (is_seen[block] & 2) == 0 && bit == 2 ? size : 0.0;
        is_seen[block] |= bit;
    }
    ebb__free(finder->mem, is_seen);
    weight->writes = written_bytes > 0.0 && written_bytes >= WRITTEN_SHARE * touched_bytes;
    return EBB_OK;
}

ebb_status ebb__iteration_weigh(const ebb_iteration_text *all, const ebb_iteration_part *parts, size_t n,
                                ebb_iteration_weight *weight_out) {
    const ebb_iteration_finder *finder = all->finder;
    ebb_iteration_weight weight = {.is_known = false};
    weigher w = {.all = all, .span.first = UINT32_MAX};
    double most = -1.0;
    for (size_t p = 0; p < n; p++) {
        if (parts[p].kind != EBB_ITERATION_PART_ITERATION) { continue; }
        const ebb_stretch part = kept_of(finder, &parts[p]);
        w.span.first = (uint32_t)ebb_min_u64(w.span.first, part.first);
        w.span.last = part.last;
        if (parts[p].regularity > most) {
            most = parts[p].regularity;
            w.one = part;
        }
    }
    while (w.span.last > w.span.first && ebb__symbol_is_free(finder->symbols.data[w.span.last - 1])) { w.span.last--; }
    ebb__u64_map_init(&w.index, finder->mem);
    ebb_status st = weigh(&w, &weight);
    if (st == EBB_OK) { st = find_writes(&w, &weight); }
    if (st == EBB_OK) { weight.is_half = is_half(&w, parts, n); }
    ebb__u64_map_fini(&w.index);
    EBB_VEC_FINI(finder->mem, &w.sizes);
    if (st == EBB_OK) { *weight_out = weight; }
    return st;
}
