/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the iteration in the events alone: candidates for its length are elected, one is chosen by what it does to
 * memory, its begin is looked for, and then every place where it comes again: by hash wherever it does so exactly,
 * within its runs also where it does not, and between two iterations also where events were put in or left out, as
 * long as half of them are the same.
 */
#include "trace/iteration_priv.h"

#define MIN_EVENTS 4u /* less is nothing twice */
#define MIN_COMMON 0.5
#define STAYS_SHARE 64u /* of the peak: less that stays is nothing */
#define MAX_LONGER 1.5  /* an irregular iteration's length at most, by the usual one's */

typedef struct search {
    const ebb_iteration_text *text;
    uint32_t length, start; /* of the one that the others are compared with */
    ebb_stretches runs;
    ebb_stretches found;
} search;

static bool is_free(const ebb_iteration_text *text, uint32_t at) {
    return ebb__symbol_is_free(text->symbols[at]);
}

/* Without the row of frees at its end, which has others where an evaluation, or nothing, follows. */
static uint32_t length_of_core(const search *s) {
    uint32_t length = s->length;
    while (s->text->is_sorted && length > 1 && is_free(s->text, s->start + length - 1)) { length--; }
    return length;
}

/* Whether the iteration's core is there, and behind it a row of frees if it has one, or the end. */
static bool is_core(const search *s, uint32_t at, uint32_t n_core) {
    const uint32_t behind = at + n_core;
    const bool ends = n_core == s->length || behind == s->text->n || is_free(s->text, behind);
    return ends && memcmp(s->text->symbols + at, s->text->symbols + s->start, n_core * sizeof(uint32_t)) == 0;
}

/* The first of those in a row that reaches the one that the others are compared with. */
static uint32_t first_of_row(const search *s, uint32_t n_core, uint64_t power, uint64_t wanted) {
    uint32_t first = s->start;
    while (first >= s->length && ebb__iteration_window(s->text, first - s->length, n_core, power) == wanted) {
        first -= s->length;
    }
    return first;
}

/* All exact ones, and behind them the inexact ones of the same run. */
static ebb_status find_all(search *s) {
    const ebb_iteration_text *text = s->text;
    const uint32_t n_core = length_of_core(s);
    const uint64_t power = ebb__iteration_power(n_core);
    const uint64_t wanted = ebb__iteration_window(text, s->start, n_core, power);
    const uint32_t first = first_of_row(s, n_core, power, wanted); /* what overlaps it is another place in a loop */
    size_t run = 0;
    uint32_t at = 0, behind = 0; /* the last one's end */
    while (n_core <= text->n - at) {
        while (run < s->runs.n && s->runs.data[run].last < at + s->length) { run++; }
        const bool goes_on = behind == at && s->found.n > 0 && run < s->runs.n && s->runs.data[run].first <= at;
        const bool is_one = ebb__iteration_window(text, at, n_core, power) == wanted && is_core(s, at, n_core);
        if ((!is_one && !goes_on) || (at < first && first - at < s->length)) {
            at++;
            continue;
        }
        ebb_stretch next = {at, at + (is_one ? n_core : s->length)};
        while (next.last < text->n && next.last - at < s->length && is_free(text, next.last)) { next.last++; }
        EBB_TRY(EBB_PUSH(text->finder->mem, &s->found, next));
        at = behind = next.last;
    }
    return EBB_OK;
}

static bool is_common(const search *s, ebb_stretch gap) {
    const ebb_stretch reference = {s->start, s->start + s->length};
    const uint32_t n_longer = (uint32_t)ebb_max_u64(s->length, gap.last - gap.first);
    return ebb__iteration_n_common(s->text->symbols, reference, gap) >= MIN_COMMON * n_longer;
}

/* Irregular iterations between two that were found: one that fills the gap, or as many of the usual length as follow
 * the first or come before the second. */
static ebb_status fill_gap(const search *s, ebb_stretch gap, ebb_stretches *all) {
    const ebb_mem *mem = s->text->finder->mem;
    const uint32_t n_gap = gap.last - gap.first;
    const bool may_fill = n_gap > s->length / 2 && n_gap <= MAX_LONGER * s->length;
    if (may_fill && is_common(s, gap)) { return EBB_PUSH(mem, all, gap); }
    for (; s->length <= gap.last - gap.first; gap.first += s->length) {
        const ebb_stretch next = {gap.first, gap.first + s->length};
        if (!is_common(s, next)) { break; }
        EBB_TRY(EBB_PUSH(mem, all, next));
    }
    uint32_t first = gap.last;
    while (s->length <= first - gap.first && is_common(s, (ebb_stretch){first - s->length, first})) {
        first -= s->length;
    }
    for (; first < gap.last; first += s->length) {
        const ebb_stretch next = {first, first + s->length};
        EBB_TRY(EBB_PUSH(mem, all, next));
    }
    return EBB_OK;
}

/* The bytes of the blocks that are made there and live on behind. In kept events. */
static uint64_t staying_bytes(const ebb_iteration_text *text, ebb_stretch part, uint32_t behind) {
    const ebb_iteration_finder *finder = text->finder;
    uint64_t bytes = 0;
    for (uint32_t at = part.first; at < part.last; at++) {
        const uint32_t block = finder->blocks.data[at];
        const bool is_made = (finder->symbols.data[at] & EBB_SYMBOL_MASK) == EBB_SYMBOL_ALLOC;
        if (is_made && text->died[block] >= behind) { bytes += finder->sizes.data[block]; }
    }
    return bytes;
}

/* Whether what is made between two iterations outlives the second: then it is part of the first, as what an optimiser
 * keeps; an evaluation leaves nothing behind. */
static bool does_stay(const search *s, ebb_stretch gap) {
    const ebb_iteration_text *text = s->text;
    if (gap.last - gap.first > s->length / 2) { return false; }
    const ebb_stretch made = {ebb__iteration_place(text, gap.first), ebb__iteration_place(text, gap.last)};
    const uint32_t behind = ebb__iteration_place(text, gap.last + s->length);
    return staying_bytes(text, made, behind) > text->peak_bytes / STAYS_SHARE;
}

static ebb_stretch kept_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part) {
    return (ebb_stretch){ebb__iteration_at_of(finder, part->first_event),
                         ebb__iteration_at_of(finder, part->first_event + part->n_events)};
}

void ebb__iteration_drop_first(const ebb_iteration_text *text, ebb_iteration_parts *iterations) {
    if (iterations->n < 3) { return; }
    const ebb_stretch first = kept_of(text->finder, &iterations->data[0]);
    const ebb_stretch second = kept_of(text->finder, &iterations->data[1]);
    const uint32_t behind = kept_of(text->finder, &iterations->data[iterations->n - 1]).last;
    const uint64_t more_bytes = text->peak_bytes / STAYS_SHARE;
    if (staying_bytes(text, first, behind) <= staying_bytes(text, second, behind) + more_bytes) { return; }
    memmove(iterations->data, iterations->data + 1, --iterations->n * sizeof *iterations->data);
}

static ebb_status fill_gaps(search *s) {
    const ebb_mem *mem = s->text->finder->mem;
    ebb_stretches all = {0};
    ebb_status st = EBB_OK;
    for (size_t i = 0; st == EBB_OK && i < s->found.n; i++) {
        const ebb_stretch gap = {i > 0 ? s->found.data[i - 1].last : 0, s->found.data[i].first};
        if (i > 0 && does_stay(s, gap)) {
            all.data[all.n - 1].last = gap.last;
        } else if (i > 0) {
            st = fill_gap(s, gap, &all);
        }
        if (st == EBB_OK) { st = EBB_PUSH(mem, &all, s->found.data[i]); }
    }
    EBB_VEC_FINI(mem, &s->found);
    s->found = all;
    return st;
}

/* The last kept event of [first, last] before which no more than these bytes are live, or the first one. */
static uint32_t last_with(const ebb_iteration_text *text, uint32_t first, uint32_t last, uint64_t bytes) {
    uint32_t at = last;
    while (at > first && text->live_bytes[at] > bytes) { at--; }
    return at;
}

/* The kept event before which an iteration ends whose last step is the one before this place. */
static uint32_t boundary_of(const ebb_iteration_text *text, uint32_t at) {
    EBB_ASSERT(at > 0);
    return last_with(text, text->places[at - 1] + 1, text->places[at], text->least[at]);
}

/* Stretches of a text of steps to kept events. Between two steps, the boundary is the last kept event with the least
 * memory; before the trace's first step, the last one with as much as there is at the iteration's end. */
static void place_all(search *s) {
    const ebb_iteration_text *text = s->text;
    for (size_t i = 0; i < s->found.n; i++) {
        ebb_stretch *next = &s->found.data[i];
        const uint64_t end_bytes = text->least[next->last];
        next->first = next->first > 0 ? boundary_of(text, next->first) : last_with(text, 0, text->places[0], end_bytes);
        next->last = boundary_of(text, next->last);
    }
}

/* What is passed over between two iterations belongs to the first; behind the last one of a row, to none. */
static ebb_status tell(const search *s, ebb_iteration_parts *iterations) {
    const ebb_iteration_finder *finder = s->text->finder;
    for (size_t i = 0; i < s->found.n; i++) {
        const ebb_stretch *next = &s->found.data[i];
        const bool is_last = i + 1 == s->found.n || next[1].first != next->last;
        ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION,
                                   .first_event = ebb__iteration_event_of(finder, next->first)};
        const uint64_t end =
            is_last ? ebb__iteration_event_of(finder, next->last - 1) + 1 : ebb__iteration_event_of(finder, next->last);
        part.n_events = end - part.first_event;
        EBB_TRY(EBB_PUSH(finder->mem, iterations, part));
    }
    return EBB_OK;
}

static ebb_status find(search *s, const ebb_u32s *lengths, bool exact, ebb_iteration_parts *iterations) {
    EBB_TRY(ebb__iteration_choose(s->text, lengths, exact, &s->length, &s->runs));
    if (s->length == 0) { return EBB_OK; }
    EBB_TRY(ebb__iteration_start(s->text, s->length, &s->runs, &s->start));
    EBB_TRY(find_all(s));
    EBB_TRY(fill_gaps(s));
    if (s->found.n < 2) { return EBB_OK; }
    if (s->text->places != NULL) { place_all(s); }
    return tell(s, iterations);
}

ebb_status ebb__iteration_from_events(const ebb_iteration_text *text, const ebb_u32s *lengths, bool exact,
                                      ebb_iteration_parts *iterations) {
    if (text->n < MIN_EVENTS) { return EBB_OK; }
    search s = {.text = text};
    const ebb_status st = find(&s, lengths, exact, iterations);
    EBB_VEC_FINI(text->finder->mem, &s.runs);
    EBB_VEC_FINI(text->finder->mem, &s.found);
    return st;
}
