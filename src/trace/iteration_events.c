/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the iteration in the events alone: candidates for its length are elected, one is chosen by what it does to
 * memory, its begin is looked for, and then every place where it comes again: by hash wherever it does so exactly,
 * within its runs also where it does not, and between two iterations also where events were put in or left out, as
 * long as half of them are the same.
 */
#include "trace/iteration_priv.h"

/* ---- where an iteration begins ---------------------------------------------------------------- */

/* Where in a repetition the iteration begins. Any event of it could be the first; what decides is, in this order:
 *
 *  1. what comes before the first iteration and after the last one (set-up, the end of the program) is not part of the
 *     repetition: an event with which the first run begins and after which the last one ends is where iterations meet;
 *  2. memory is least there, or becomes so before anything is allocated, and something else comes between two
 * iterations (an evaluation): where a run ends and another begins; or the trace ends;
 *  3. where memory is least, and if that is so more than once, where most is added until it is so again. If memory
 * hardly grew before it was least, the boundary may lie earlier: an optimiser's gradients are freed at the begin of the
 * loop's body. Then it is where a run ends, or, if nothing was allocated in between, where one begins. A run that only
 * one difference ended, such as copies in another order, says nothing: most of what follows is what came before.
 *
 * A boundary is in no step: what comes after an evaluation may begin with the same steps as the evaluation does.
 *
 * Places of different runs are compared by what is after them, as offsets into the first run's repetition. */

#define GROWTH_SHARE 4u /* of the height of memory: less is hardly growth */
#define MIN_ALIKE 0.5   /* of what follows a run: with this share the repetition goes on */

#define NOWHERE UINT32_MAX

typedef struct vote {
    uint32_t offset;
    uint32_t n_begins, n_ends;
    uint32_t n_stops; /* ends after which the repetition does not go on */
} vote;

typedef struct offsets {
    const ebb_iteration_text *text;
    uint32_t length;
    ebb_stretch run; /* two repetitions of the first one */
    EBB_VEC(vote) votes;
    uint32_t first_begins; /* the first run, as an offset */
    uint32_t last_ends;    /* the last run, if the trace does, too; else NOWHERE */
    bool is_whole;         /* the last run ends as the first one begins */
} offsets;

typedef enum run_edge { RUN_BEGINS, RUN_IS_CUT, RUN_STOPS } run_edge;

static ebb_status add_vote(offsets *o, uint32_t offset, run_edge edge) {
    EBB_ASSERT(offset < o->length);
    size_t v = 0;
    while (v < o->votes.n && o->votes.data[v].offset != offset) { v++; }
    if (v == o->votes.n) {
        if (v == 64) { return EBB_OK; } /* they do not agree anyway */
        vote none = {.offset = offset};
        EBB_TRY(EBB_PUSH(o->text->finder->mem, &o->votes, none));
    }
    o->votes.data[v].n_begins += edge == RUN_BEGINS;
    o->votes.data[v].n_ends += edge != RUN_BEGINS;
    o->votes.data[v].n_stops += edge == RUN_STOPS;
    return EBB_OK;
}

/* Whether most of what follows the run is what would come next in it. */
static bool is_cut(const ebb_iteration_text *text, ebb_stretch run, uint32_t length) {
    const uint32_t n = (uint32_t)ebb_min_u64(length, text->n - run.last);
    const ebb_stretch wanted = {run.last - length, run.last - length + n}, next = {run.last, run.last + n};
    return n > 0 && ebb__iteration_n_common(text->symbols, wanted, next) >= MIN_ALIKE * n;
}

static bool begins_step(const ebb_iteration_text *text, uint32_t at) {
    return (text->symbols[at] & EBB_SYMBOL_MASK) == EBB_SYMBOL_STEP;
}

/* Each run's ends. One whose repetition is not exactly the first run's has no vote. */
static ebb_status count_votes(offsets *o, const ebb_stretches *runs) {
    const uint64_t power = ebb__iteration_power(o->length);
    const uint64_t wanted = ebb__iteration_window(o->text, o->run.first, o->length, power);
    for (size_t r = 0; r < runs->n; r++) {
        const ebb_stretch run = runs->data[r];
        uint32_t at = run.first; /* where this run is as the first one begins */
        const uint32_t end = run.first + (uint32_t)ebb_min_u64(o->length, run.last - run.first - o->length + 1);
        while (at < end && ebb__iteration_window(o->text, at, o->length, power) != wanted) { at++; }
        if (at == end) { continue; }
        /* A step's end belongs to what was before, its begin to what comes; a text of steps alone has no ends. */
        uint32_t first = run.first, last = run.last;
        if (begins_step(o->text, last - 1) && !begins_step(o->text, last - 2)) { last--; }
        while ((o->text->symbols[first] & EBB_SYMBOL_MASK) == EBB_SYMBOL_STEP_END && first < end) { first++; }
        const uint32_t begins = (o->length + first - at) % o->length, ends = (last - at) % o->length;
        EBB_TRY(add_vote(o, begins, RUN_BEGINS));
        EBB_TRY(add_vote(o, ends, is_cut(o->text, run, o->length) ? RUN_IS_CUT : RUN_STOPS));
        if (r == 0) { o->first_begins = begins; }
        if (r < runs->n - 1) { continue; }
        o->is_whole = ends == o->first_begins;
        o->last_ends = run.last == o->text->n ? ends : NOWHERE;
    }
    return EBB_OK;
}

/* Whether memory is least there, or becomes so before anything is allocated. */
static bool is_low(const offsets *o, uint32_t offset, uint64_t least_bytes) {
    for (uint32_t n_on = 0; n_on < o->length; n_on++) {
        const uint32_t at = o->run.first + (offset + n_on) % o->length;
        if (o->text->least[at] == least_bytes) { return true; }
        if ((o->text->symbols[at] & EBB_SYMBOL_MASK) == EBB_SYMBOL_ALLOC) { return false; }
    }
    return false;
}

static const vote *find_agreed(const offsets *o, uint64_t least_bytes) {
    const vote *best = NULL;
    for (size_t v = 0; v < o->votes.n; v++) {
        const vote *next = &o->votes.data[v];
        if (next->n_begins == 0 || next->n_ends == 0 || !is_low(o, next->offset, least_bytes)) { continue; }
        if (best == NULL || next->n_begins + next->n_ends > best->n_begins + best->n_ends) { best = next; }
    }
    return best;
}

static const vote *find_vote(const offsets *o, uint32_t offset) {
    for (size_t v = 0; v < o->votes.n; v++) {
        if (o->votes.data[v].offset == offset) { return &o->votes.data[v]; }
    }
    return NULL;
}

/* The height of memory within a repetition. */
static uint64_t height_of(const offsets *o, uint64_t least_bytes) {
    uint64_t most = least_bytes;
    const uint32_t last = ebb__iteration_place(o->text, o->run.first + o->length);
    for (uint32_t at = ebb__iteration_place(o->text, o->run.first); at < last; at++) {
        most = ebb_max_u64(most, o->text->live_bytes[at]);
    }
    return most - least_bytes;
}

/* Back from the least place, as long as memory from there on hardly grew before it became least, to where a run stops;
 * or, as long as nothing was allocated, to where a run begins. The least place itself where there is neither. */
static uint32_t step_back(const offsets *o, uint32_t least) {
    const uint64_t *bytes = o->text->least + o->run.first;
    const uint64_t slack = height_of(o, bytes[least]) / GROWTH_SHARE;
    uint64_t most = 0;
    uint32_t best = least, best_score = 0;
    bool is_narrow = true;
    for (uint32_t n_back = 0; n_back < o->length; n_back++) {
        const uint32_t offset = (least + o->length - n_back) % o->length;
        const vote *next = find_vote(o, offset);
        most = ebb_max_u64(most, bytes[offset]);
        if (most - bytes[offset] > slack) { break; }
        const uint32_t score = next != NULL ? 2 * next->n_stops + (is_narrow ? next->n_begins : 0) : 0;
        if (score > best_score) {
            best = offset;
            best_score = score;
        }
        const uint32_t before = o->run.first + (offset + o->length - 1) % o->length;
        is_narrow = is_narrow && (o->text->symbols[before] & EBB_SYMBOL_MASK) != EBB_SYMBOL_ALLOC;
    }
    return best;
}

static uint32_t find_offset(const offsets *o) {
    const uint32_t least = ebb__iteration_least(o->text->least, o->run.first, o->run.last);
    if (o->is_whole) { return o->first_begins; }
    const vote *agreed = find_agreed(o, o->text->least[least]);
    if (agreed != NULL) { return agreed->offset; }
    if (o->last_ends != NOWHERE && is_low(o, o->last_ends, o->text->least[least])) { return o->last_ends; }
    return step_back(o, (least - o->run.first) % o->length);
}

static int32_t deeper(const offsets *o, uint32_t offset) {
    switch (o->text->symbols[o->run.first + offset] & EBB_SYMBOL_MASK) {
    case EBB_SYMBOL_STEP: return 1;
    case EBB_SYMBOL_STEP_END: return -1;
    default: return 0;
    }
}

/* Out of the steps that are open there, back to where the outermost began. */
static uint32_t leave_steps(const offsets *o, uint32_t offset) {
    int32_t depth = 0, least = 0;
    for (uint32_t n_on = 0; n_on < o->length; n_on++) {
        depth += deeper(o, (offset + n_on) % o->length);
        least = depth < least ? depth : least;
    }
    depth = 0;
    for (uint32_t n_back = 0; n_back < o->length; n_back++) {
        const uint32_t at = (offset + o->length - n_back) % o->length;
        if (depth == least) { return at; }
        depth -= deeper(o, (at + o->length - 1) % o->length);
    }
    return offset;
}

/* Two repetitions of a run; not the first one, if there are three, for that may begin in what memory is otherwise at.
 */
static ebb_stretch two_of(ebb_stretch run, uint32_t length) {
    EBB_ASSERT(length > 0 && length < run.last - run.first);
    if ((run.last - run.first) / length < 2) { return run; } /* a little is missing at its end */
    const uint32_t first = (uint32_t)ebb_min_u64(run.first + (uint64_t)length, run.last - 2 * (uint64_t)length);
    return (ebb_stretch){first, first + 2 * length};
}

/* Forward to where no block is freed. */
static uint32_t behind_frees(const ebb_iteration_text *text, uint32_t at, uint32_t last) {
    while (at < last && ebb__symbol_is_free(text->symbols[at])) { at++; }
    return at;
}

static uint32_t place_start(const offsets *o, ebb_stretch run) {
    const ebb_iteration_text *text = o->text;
    uint32_t offset = find_offset(o);
    offset = leave_steps(o, offset);
    if (text->is_sorted) { offset = behind_frees(text, o->run.first + offset, o->run.last) - o->run.first; }
    offset = (o->run.first - run.first + offset) % o->length;
    return run.first + (offset + o->length <= run.last - run.first ? offset : 0);
}

ebb_status ebb__iteration_start(const ebb_iteration_text *text, uint32_t length, const ebb_stretches *runs,
                                uint32_t *start_out) {
    offsets o = {.text = text, .length = length, .run = two_of(runs->data[0], length), .last_ends = NOWHERE};
    const ebb_status st = count_votes(&o, runs);
    if (st == EBB_OK) { *start_out = place_start(&o, runs->data[0]); }
    EBB_VEC_FINI(text->finder->mem, &o.votes);
    return st;
}

/* ---- all of them ------------------------------------------------------------------------------ */

#define MIN_EVENTS 4u /* less is nothing twice */
#define MIN_COMMON 0.5
#define STAYS_SHARE 64u /* of the peak: less that stays is nothing */
#define MAX_LONGER 1.5  /* an irregular iteration's length at most, by the usual one's */

typedef struct search {
    const ebb_iteration_text *text;
    uint32_t length, start; /* of the one that the others are compared with */
    ebb_stretches runs;
    ebb_stretches found;
    bool is_joined; /* of unequal passes */
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

/* Whether the iteration's core is there, and after it a row of frees if it has one, or the end. */
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

/* All exact ones, and after them the inexact ones of the same run. */
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

/* The bytes of the blocks that are made there and live on after. In kept events. */
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

/* Events passed over between two iterations belong to the first; after the last one of a row, to none. */
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
    EBB_TRY(ebb__iteration_choose(s->text, lengths, exact, &s->length, &s->runs, &s->is_joined));
    if (s->length == 0) { return EBB_OK; }
    EBB_TRY(ebb__iteration_start(s->text, s->length, &s->runs, &s->start));
    EBB_TRY(find_all(s));
    EBB_TRY(fill_gaps(s));
    if (s->found.n < 2) { return EBB_OK; }
    if (s->text->places != NULL) { place_all(s); }
    return tell(s, iterations);
}

ebb_status ebb__iteration_from_events(const ebb_iteration_text *text, const ebb_u32s *lengths, bool exact,
                                      ebb_iteration_parts *iterations, bool *is_joined_out) {
    *is_joined_out = false;
    if (text->n < MIN_EVENTS) { return EBB_OK; }
    search s = {.text = text};
    const ebb_status st = find(&s, lengths, exact, iterations);
    *is_joined_out = s.is_joined;
    EBB_VEC_FINI(text->finder->mem, &s.runs);
    EBB_VEC_FINI(text->finder->mem, &s.found);
    return st;
}
