/* SPDX-License-Identifier: Apache-2.0
 *
 * What to do, in sentences, each with the bytes that it wins: only what the numbers of this study support, in the words
 * of the recorder. A sentence is for at least 1 % of the peak, or of what is reserved. Settings of PyTorch's
 * allocator are spoken of only where the replay of the recorded settings agrees with what was recorded; otherwise it
 * does not know this allocator.
 */
#include "study/advice/advice.h"

#include <inttypes.h>

#define MIN_SHARE 0.01

bool ebb__study_is_worth(uint64_t won_bytes, uint64_t of_bytes) {
    return won_bytes > 0 && (double)won_bytes >= MIN_SHARE * (double)of_bytes;
}

static const ebb_study_what_if *find_row(const ebb_study *s, const char *key) {
    for (size_t i = 0; i < s->what_ifs.n; i++) {
        const ebb_study_what_if *row = &s->what_ifs.data[i];
        if (strcmp(row->key, key) == 0) { return row->bytes != EBB_STUDY_UNKNOWN ? row : NULL; }
    }
    return NULL;
}

/* What leaks has no end, so whatever else wins more comes after it. A budget comes next: it does what is below it in
 * one, and changes no result. */
static unsigned rank_of(const ebb_study_tip *tip) {
    return strcmp(tip->key, "leak") == 0 ? 0 : strcmp(tip->key, "budget") == 0 ? 1 : 2;
}

static bool comes_before(const ebb_study_tip *a, const ebb_study_tip *b) {
    return rank_of(a) != rank_of(b) ? rank_of(a) < rank_of(b) : a->won_bytes > b->won_bytes;
}

ebb_status ebb__study_add_tip(ebb_study *s, const char *key, uint64_t won_bytes, const char *sentence,
                              const advice_names *names) {
    if (sentence == NULL) { return EBB_E_NO_MEMORY; }
    ebb_study_tip tip = {.key = key, .sentence = sentence, .won_bytes = won_bytes};
    if (names != NULL) {
        tip.names = names->all;
        tip.n_names = names->n;
    }
    EBB_TRY(EBB_PUSH(s->mem, &s->tips, tip));
    size_t at = s->tips.n - 1; /* there are a handful */
    for (; at > 0 && comes_before(&tip, &s->tips.data[at - 1]); at--) { s->tips.data[at] = s->tips.data[at - 1]; }
    s->tips.data[at] = tip;
    return EBB_OK;
}

ebb_status ebb__study_name_holders(ebb_study *s, const study_holders *holders, advice_names *names_out) {
    const char *first = "", **all = ebb__bump_alloc(&s->bump, holders->n, sizeof *all);
    size_t n = 0;
    if (all == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < holders->n; i++) {
        const ebb_study_holder *h = &holders->data[i];
        if (h->bytes == 0 || h->label[0] == '\0') { continue; }
        if (n < EBB_STUDY_MAX_NAMED) {
            first = ebb__bump_printf(&s->bump, "%s%s%s", first, n > 0 ? ", " : "", h->label);
        }
        if (first == NULL) { return EBB_E_NO_MEMORY; }
        all[n++] = h->label;
    }
    if (n > EBB_STUDY_MAX_NAMED) {
        first = ebb__bump_printf(&s->bump, "%s and %zu more", first, n - EBB_STUDY_MAX_NAMED);
    }
    *names_out = (advice_names){.first = first, .all = all, .n = n};
    return first != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* ---- what is reserved ------------------------------------------------------------------------- */

static bool replay_agrees(const ebb_study *s) {
    const ebb_study_what_if *row = find_row(s, "pytorch-recorded");
    if (row == NULL) { row = find_row(s, "pytorch"); }
    if (row == NULL) { return false; }
    const double recorded = (double)s->summary.reserved_peak_bytes, error = (double)row->bytes - recorded;
    return (error < 0 ? -error : error) <= STUDY_MAX_REPLAY_ERROR * recorded;
}

static ebb_status advise_setting(ebb_study *s) {
    const uint64_t reserved_bytes = s->summary.reserved_peak_bytes;
    const ebb_study_what_if *best = NULL;
    if (!study_is_pytorch(s) || !replay_agrees(s)) { return EBB_OK; }
    for (size_t i = 0; i < s->what_ifs.n; i++) {
        const ebb_study_what_if *row = &s->what_ifs.data[i];
        if (!study_begins_with(row->key, "pytorch:") || row->bytes == EBB_STUDY_UNKNOWN) { continue; }
        if (best == NULL || row->bytes < best->bytes) { best = row; }
    }
    if (best == NULL || best->bytes >= reserved_bytes) { return EBB_OK; }
    const uint64_t won_bytes = reserved_bytes - best->bytes;
    if (!ebb__study_is_worth(won_bytes, reserved_bytes)) { return EBB_OK; }
    char from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "allocator_setting", won_bytes,
        ebb__bump_printf(&s->bump, "setting PYTORCH_CUDA_ALLOC_CONF=%s would bring what is reserved from %s to %s",
                         best->setting, ebb_bytes_format(reserved_bytes, from, sizeof from),
                         ebb_bytes_format(best->bytes, to, sizeof to)),
        NULL);
}

static ebb_status advise_placement(ebb_study *s) {
    const uint64_t reserved_bytes = s->summary.reserved_peak_bytes;
    const ebb_study_what_if *row = find_row(s, "placement");
    if (row == NULL || row->of_iteration || row->bytes >= reserved_bytes) { return EBB_OK; }
    const uint64_t won_bytes = reserved_bytes - row->bytes;
    if (!ebb__study_is_worth(won_bytes, reserved_bytes)) { return EBB_OK; }
    char from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "placement", won_bytes,
        ebb__bump_printf(&s->bump, "with offsets planned ahead these blocks fit into %s, where %s is reserved",
                         ebb_bytes_format(row->bytes, to, sizeof to),
                         ebb_bytes_format(reserved_bytes, from, sizeof from)),
        NULL);
}

static ebb_status advise_pins(ebb_study *s) {
    const ebb_study_fragmentation *f = &s->fragmentation;
    char bytes[ADVICE_BYTES_CHARS], all[ADVICE_BYTES_CHARS];
    const char *how = study_speaker_of(s) != SPEAKER_PYTORCH
                          ? "emptying the allocator's cache before would give them back"
                          : "torch.cuda.empty_cache() before would give them back, or garbage_collection_threshold in "
                            "PYTORCH_CUDA_ALLOC_CONF where a memory fraction is set";
    if (f->empty_bytes != EBB_STUDY_UNKNOWN && ebb__study_is_worth(f->empty_bytes, f->reserved_peak_bytes)) {
        EBB_TRY(ebb__study_add_tip(
            s, "empty_segments", f->empty_bytes,
            ebb__bump_printf(&s->bump, "%s of the %s reserved at most lie in segments that hold nothing: %s",
                             ebb_bytes_format(f->empty_bytes, bytes, sizeof bytes),
                             ebb_bytes_format(f->reserved_peak_bytes, all, sizeof all), how),
            NULL));
    }
    if (s->pinners.n == 0 || s->pinners.data[0].label[0] == '\0') { return EBB_OK; }
    const ebb_study_holder *h = &s->pinners.data[0];
    if (!ebb__study_is_worth(h->bytes, f->reserved_peak_bytes)) { return EBB_OK; }
    return ebb__study_add_tip(s, "pins", h->bytes,
                              ebb__bump_printf(&s->bump,
                                               "blocks of %s keep %s free but reserved in the segments where they lie",
                                               h->label, ebb_bytes_format(h->bytes, bytes, sizeof bytes)),
                              NULL);
}

/* ---- the peak --------------------------------------------------------------------------------- */

static ebb_status advise_swap(ebb_study *s) {
    const ebb_study_swappable *w = &s->swappable;
    const uint64_t peak_bytes = s->summary.peak_bytes;
    if (!w->known || w->peak_bytes >= peak_bytes) { return EBB_OK; }
    const uint64_t won_bytes = peak_bytes - w->peak_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char idle[ADVICE_BYTES_CHARS], from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    const double busy = w->out_busy > w->in_busy ? w->out_busy : w->in_busy;
    const bool is_ebb = study_speaker_of(s) == SPEAKER_EBB;
    return ebb__study_add_tip(
        s, "swap", won_bytes,
        ebb__bump_printf(&s->bump,
                         "%s of the %s at the peak lie idle long enough to be copied out and back (%.1f "
                         "GB/s out, %.1f GB/s in): if each block is looked at alone, the peak could be as low as %s; "
                         "for all of them a link would copy %.3g %% of the time%s",
                         ebb_bytes_format(w->bytes_at_peak, idle, sizeof idle),
                         ebb_bytes_format(peak_bytes, from, sizeof from), s->options.out_bytes_per_s * 1e-9,
                         s->options.in_bytes_per_s * 1e-9, ebb_bytes_format(w->peak_bytes, to, sizeof to), 100 * busy,
                         is_ebb ? "; ebb train --memory SIZE plans such copies, and what to compute again" : ""),
        NULL);
}

static ebb_status advise_lifetimes(ebb_study *s) {
    const bool is_torch = study_speaker_of(s) == SPEAKER_PYTORCH;
    const ebb_study_what_if *row = find_row(s, "nothing-idle");
    const uint64_t peak_bytes = s->summary.peak_bytes;
    if (row == NULL || row->bytes >= peak_bytes) { return EBB_OK; }
    const uint64_t won_bytes = peak_bytes - row->bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "lifetimes", won_bytes,
        ebb__bump_printf(&s->bump,
                         "blocks are allocated before they are used or freed late: from first to last use "
                         "they need %s at the peak rather than %s%s",
                         ebb_bytes_format(row->bytes, to, sizeof to), ebb_bytes_format(peak_bytes, from, sizeof from),
                         is_torch ? "; del frees what is no longer used, a batch or a loss" : ""),
        NULL);
}

/* ---- the door --------------------------------------------------------------------------------- */

static ebb_status advise(ebb_study *s, bool *leaks) {
    if (s->summary.is_moment) { return s->fragmentation.known ? advise_pins(s) : EBB_OK; }
    EBB_TRY(ebb__study_advise_leak(s, leaks));
    EBB_TRY(study_speaker_of(s) == SPEAKER_PYTORCH ? ebb__study_advise_torch(s, leaks) : advise_swap(s));
    EBB_TRY(advise_lifetimes(s));
    if (!s->fragmentation.known) { return EBB_OK; }
    EBB_TRY(advise_setting(s));
    EBB_TRY(advise_placement(s));
    return advise_pins(s);
}

ebb_status ebb__study_advise(ebb_study *s) {
    if ((s->options.wants & EBB_STUDY_ADVICE) == 0) { return EBB_OK; }
    bool *leaks = ebb__calloc(s->mem, s->blocks.n, sizeof *leaks);
    if (leaks == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = advise(s, leaks);
    ebb__free(s->mem, leaks);
    return st;
}

const ebb_study_tip *ebb_study_advice(const ebb_study *study, size_t *n_out) {
    *n_out = study->tips.n;
    return study->tips.data;
}
