/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that grows with each iteration: losses with their graph in a sum, outputs in a list.
 *
 *      | one | two | three | four |       a line's blocks that were born in each part and outlive the last one:
 *        ##    ##     ##     ##           a staircase, they leak
 *        ####                             made once, as the optimizer's state is
 *                            ##           in use when the recording ended
 *
 * Blocks are told apart by their call stack and name. The stretch from the first iteration's begin to the last one's
 * end is cut into N_PARTS parts of as many events each; where so few iterations were found that the stretch may be the
 * building of a model, only blocks whose role says that they belong to an iteration count.
 */
#include "study/advice/advice.h"

#include "trace/trace.h"

#include <inttypes.h>

#define N_PARTS 4u
#define UNEVEN 3u /* the part with most blocks has at most this many times those of the one with least */

typedef struct line {
    uint64_t bytes, n_blocks;
    uint64_t n_in[N_PARTS];
} line;

typedef struct search {
    ebb_study *study;
    uint32_t *line_of; /* [blocks.n]: from 1; 0: not one that could leak */
    EBB_VEC(line) lines;
    ebb_trace_keys keys;
    uint64_t first_event, end_event;
    bool is_sure; /* iterations enough */
} search;

/* ---- lines ------------------------------------------------------------------------------------ */

static bool find_stretch(search *w) {
    const ebb_study *s = w->study;
    size_t n = 0;
    for (size_t p = 0; p < s->parts.n; p++) {
        const ebb_iteration_part *part = &s->parts.data[p];
        if (part->kind != EBB_ITERATION_PART_ITERATION) { continue; }
        if (n++ == 0) { w->first_event = part->first_event; }
        w->end_event = part->first_event + part->n_events;
    }
    w->is_sure = n >= N_PARTS;
    if (n == 0) { w->end_event = s->summary.n_events; }
    return w->end_event - w->first_event >= N_PARTS;
}

static bool may_leak(const search *w, const study_block *b) {
    const bool is_there = b->born_event >= w->first_event && b->born_event < w->end_event;
    if (b->before || !is_there || b->died_event < w->end_event || (b->stack | b->name) == 0) { return false; }
    switch ((ebb_role)b->role) {
    case EBB_ROLE_PARAMETER:
    case EBB_ROLE_BUFFER:
    case EBB_ROLE_OPTIMIZER_STATE: return false;
    case EBB_ROLE_ACTIVATION:
    case EBB_ROLE_INPUT:
    case EBB_ROLE_TEMP: return true;
    default: return w->is_sure;
    }
}

static ebb_status find_lines(search *w) {
    ebb_study *s = w->study;
    for (size_t i = 0; i < s->blocks.n; i++) {
        const study_block *b = &s->blocks.data[i];
        const uint32_t key[] = {b->stack, b->name};
        bool is_new = false;
        if (!may_leak(w, b)) { continue; }
        EBB_TRY(ebb__trace_keys_add(&w->keys, key, sizeof key, &w->line_of[i], &is_new));
        if (is_new) { EBB_TRY(EBB_PUSH(s->mem, &w->lines, ((line){.bytes = 0}))); }
        line *l = &w->lines.data[w->line_of[i] - 1];
        l->bytes = study_add(l->bytes, b->size_bytes);
        l->n_blocks++;
        l->n_in[(b->born_event - w->first_event) * N_PARTS / (w->end_event - w->first_event)]++;
    }
    return EBB_OK;
}

static bool is_staircase(const line *l) {
    uint64_t least = l->n_in[0], most = l->n_in[0];
    for (size_t p = 1; p < N_PARTS; p++) {
        least = ebb_min_u64(least, l->n_in[p]);
        most = ebb_max_u64(most, l->n_in[p]);
    }
    return least > 0 && most <= UNEVEN * least;
}

/* ---- words ------------------------------------------------------------------------------------ */

/* How many steps the staircase has: iterations, or where too few were found how often the line ran that leaks most. */
static uint64_t count_rounds(const search *w) {
    const line *best = NULL;
    for (size_t i = 0; i < w->lines.n; i++) {
        const line *l = &w->lines.data[i];
        if (is_staircase(l) && (best == NULL || l->bytes > best->bytes)) { best = l; }
    }
    EBB_ASSERT(best != NULL);
    return w->is_sure ? ebb_min_u64(w->study->iteration.count, best->n_blocks) : best->n_blocks;
}

static ebb_status tell(search *w, const study_set *set, uint64_t all_bytes, uint64_t won_bytes) {
    ebb_study *s = w->study;
    const uint64_t n_rounds = count_rounds(w), peak_bytes = s->summary.peak_bytes;
    study_holders holders = {.n = 0};
    advice_names names = {.first = ""};
    ebb_status st = ebb__study_group(s, EBB_STUDY_BY_SITE, set, &holders);
    if (st == EBB_OK && holders.n == 0) { st = ebb__study_group(s, EBB_STUDY_BY_NAME, set, &holders); }
    if (st == EBB_OK) { st = ebb__study_name_holders(s, &holders, &names); }
    EBB_VEC_FINI(s->mem, &holders);
    EBB_TRY(st);
    char step[ADVICE_BYTES_CHARS], all[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    const char *how = study_speaker_of(s) != SPEAKER_PYTORCH
                          ? ""
                          : "; a tensor that is kept keeps all that its backward pass would need: add up loss.item(), "
                            "keep output.detach() (or .cpu() of it), evaluate under torch.no_grad()";
    return ebb__study_add_tip(
        s, "leak", won_bytes,
        ebb__bump_printf(&s->bump,
                         "live memory grows by %s an iteration: blocks allocated at %s outlive their iteration, %s in "
                         "%zu blocks by the end, of %" PRIu64 " iterations; without them the peak would be about %s%s",
                         ebb_bytes_format(all_bytes / n_rounds, step, sizeof step), names.first,
                         ebb_bytes_format(all_bytes, all, sizeof all), set->n, n_rounds,
                         ebb_bytes_format(peak_bytes - won_bytes, to, sizeof to), how),
        &names);
}

/* ---- the door --------------------------------------------------------------------------------- */

/* What leaks by now is one iteration's at any time, if nothing leaked. */
static ebb_status weigh(search *w, bool *leaks, uint32_t *blocks, uint8_t *quarters) {
    ebb_study *s = w->study;
    study_set set = {.blocks = blocks};
    uint64_t all_bytes = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        quarters[b] = 4;
        if (w->line_of[b] == 0 || !is_staircase(&w->lines.data[w->line_of[b] - 1])) { continue; }
        blocks[set.n++] = (uint32_t)b;
        quarters[b] = 0;
        all_bytes = study_add(all_bytes, s->blocks.data[b].size_bytes);
    }
    if (set.n == 0) { return EBB_OK; }
    const uint64_t peak_bytes = s->summary.peak_bytes, step_bytes = all_bytes / count_rounds(w);
    const uint64_t least_bytes = study_add(ebb__study_peak_with(s, quarters), step_bytes);
    if (least_bytes >= peak_bytes || !ebb__study_is_worth(peak_bytes - least_bytes, peak_bytes)) { return EBB_OK; }
    for (size_t i = 0; i < set.n; i++) { leaks[blocks[i]] = true; }
    return tell(w, &set, all_bytes, peak_bytes - least_bytes);
}

ebb_status ebb__study_advise_leak(ebb_study *s, bool *leaks) {
    search w = {.study = s};
    if (!find_stretch(&w)) { return EBB_OK; }
    ebb__trace_keys_init(&w.keys, s->mem);
    w.line_of = ebb__calloc(s->mem, s->blocks.n, sizeof *w.line_of);
    uint32_t *blocks = ebb__alloc(s->mem, s->blocks.n, sizeof *blocks);
    uint8_t *quarters = ebb__alloc(s->mem, s->blocks.n, sizeof *quarters);
    ebb_status st = w.line_of != NULL && blocks != NULL && quarters != NULL ? find_lines(&w) : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = weigh(&w, leaks, blocks, quarters); }
    ebb__free(s->mem, quarters);
    ebb__free(s->mem, blocks);
    ebb__free(s->mem, w.line_of);
    EBB_VEC_FINI(s->mem, &w.lines);
    ebb__trace_keys_fini(&w.keys);
    return st;
}
