/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the iteration: what is kept of a trace, the sources in their order, and the answer. A source gives stretches
 * that are one iteration each; here the usual one among them is chosen, each is compared with it, and the trace is cut
 * into parts.
 */
#include "trace/iteration_priv.h"

#include <math.h>

#define MAX_UNSURE 0.5     /* the confidence, where nothing tells that an optimizer stepped */
#define MIN_EXACT 0.95     /* from this regularity on, what repeats is the same each time */
#define MAX_AFTER_SHARE 4u /* of an iteration: what may come after its last update */
#define MAX_UNLIKELY 0.25  /* the same, where nothing looks like gradients either */
#define MAX_LENGTHS 4u     /* that one iteration may have, where frees differ */

/* ---- what is kept ------------------------------------------------------------------------------ */

ebb_status ebb_iteration_finder_create(const ebb_mem *mem, const ebb_trace_reader *reader,
                                       ebb_iteration_finder **finder_out) {
    EBB_NEED(finder_out);
    mem = ebb__mem_or_default(mem);
    ebb_iteration_finder *finder = ebb__calloc(mem, 1, sizeof *finder);
    if (finder == NULL) { return EBB_E_NO_MEMORY; }
    finder->mem = mem;
    finder->reader = reader;
    finder->update_step = EBB_TRACE_NONE;
    *finder_out = finder;
    return EBB_OK;
}

void ebb_iteration_finder_destroy(ebb_iteration_finder *finder) {
    if (finder == NULL) { return; }
    EBB_VEC_FINI(finder->mem, &finder->symbols);
    EBB_VEC_FINI(finder->mem, &finder->blocks);
    EBB_VEC_FINI(finder->mem, &finder->sizes);
    EBB_VEC_FINI(finder->mem, &finder->passed);
    EBB_VEC_FINI(finder->mem, &finder->marks);
    for (int by = 0; by < EBB_ITERATION_N_EVIDENCE; by++) { EBB_VEC_FINI(finder->mem, &finder->updates[by]); }
    EBB_VEC_FINI(finder->mem, &finder->callers);
    EBB_VEC_FINI(finder->mem, &finder->parts);
    ebb__free(finder->mem, finder);
}

static uint32_t symbol_of(const ebb_trace_event *event, uint64_t size_bytes) {
    static const uint32_t of_kind[EBB_TRACE_N_KINDS] = {
        [EBB_TRACE_ALLOC] = EBB_SYMBOL_ALLOC,     [EBB_TRACE_FREE] = EBB_SYMBOL_FREE,
        [EBB_TRACE_READ] = EBB_SYMBOL_READ,       [EBB_TRACE_WRITE] = EBB_SYMBOL_WRITE,
        [EBB_TRACE_STEP_BEGIN] = EBB_SYMBOL_STEP, [EBB_TRACE_STEP_END] = EBB_SYMBOL_STEP_END};
    const bool begins = event->kind == EBB_TRACE_STEP_BEGIN;
    const uint64_t same[3] = {event->kind, size_bytes, begins ? (uint64_t)event->op << 32 | event->phase : 0};
    const uint64_t hash = ebb__hash(EBB_HASH_INIT, same, sizeof same);
    return ((uint32_t)(hash >> 32) & ~(uint32_t)EBB_SYMBOL_MASK) | of_kind[event->kind];
}

static ebb_status pass(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    const uint64_t n = finder->symbols.n + finder->passed.n;
    EBB_TRY(EBB_PUSH(finder->mem, &finder->passed, (uint32_t)n));
    if (event->kind != EBB_TRACE_MARK) { return EBB_OK; }
    ebb_iteration_mark mark = {(uint32_t)n, event->mark};
    if (event->mark == EBB_TRACE_ANNOTATION) { return EBB_OK; }
    if (event->mark == EBB_TRACE_ITERATION_BEGIN && finder->marks.n == 0) {
        finder->first_guess = (uint32_t)finder->symbols.n;
    }
    finder->n_guesses += event->mark == EBB_TRACE_ITERATION_END && event->name != 0;
    return EBB_PUSH(finder->mem, &finder->marks, mark);
}

static ebb_status keep(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    const bool has_block = event->kind <= EBB_TRACE_WRITE;
    if (event->kind == EBB_TRACE_ALLOC) {
        if (event->block != finder->sizes.n) {
            return ebb_fail(EBB_E_ARGUMENT, "an alloc of another block than the next");
        }
        EBB_TRY(EBB_PUSH(finder->mem, &finder->sizes, event->size_bytes));
    }
    if (has_block && event->block >= finder->sizes.n) {
        return ebb_fail(EBB_E_ARGUMENT, "a block that was not allocated");
    }
    EBB_TRY(EBB_RESERVE(finder->mem, &finder->symbols, 1));
    EBB_TRY(EBB_PUSH(finder->mem, &finder->blocks, has_block ? (uint32_t)event->block : EBB_ITERATION_NO_BLOCK));
    finder->symbols.data[finder->symbols.n++] = symbol_of(event, has_block ? finder->sizes.data[event->block] : 0);
    return EBB_OK;
}

ebb_status ebb_iteration_finder_add(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    EBB_NEED(finder);
    EBB_NEED(event);
    if (finder->symbols.n + finder->passed.n >= UINT32_MAX - 1) {
        return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 events");
    }
    switch (event->kind) {
    case EBB_TRACE_ALLOC:
    case EBB_TRACE_FREE:
    case EBB_TRACE_READ:
    case EBB_TRACE_WRITE:
    case EBB_TRACE_STEP_BEGIN:
    case EBB_TRACE_STEP_END: EBB_TRY(ebb__iteration_note(finder, event)); return keep(finder, event);
    case EBB_TRACE_MARK: EBB_TRY(ebb__iteration_note(finder, event)); return pass(finder, event);
    default: return pass(finder, event);
    }
}

/* How many passed events come before this one of the trace. */
static uint32_t n_passed_before(const ebb_iteration_finder *finder, uint64_t event) {
    size_t low = 0, high = finder->passed.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (finder->passed.data[middle] < event) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint32_t)low;
}

uint32_t ebb__iteration_at_of(const ebb_iteration_finder *finder, uint64_t event) {
    return (uint32_t)event - n_passed_before(finder, event);
}

uint64_t ebb__iteration_event_of(const ebb_iteration_finder *finder, uint32_t at) {
    size_t low = 0, high = finder->passed.n; /* as many are passed before it as have at most at kept ones before them */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (finder->passed.data[middle] - middle <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return (uint64_t)at + low;
}

/* ---- the answer -------------------------------------------------------------------------------- */

static uint64_t n_covered(const ebb_iteration_parts *iterations) {
    uint64_t n = 0;
    for (size_t i = 0; i < iterations->n; i++) { n += iterations->data[i].n_events; }
    return n;
}

static void swap(ebb_iteration_parts *a, ebb_iteration_parts *b) {
    const ebb_iteration_parts old = *a;
    *a = *b;
    *b = old;
}

/* In this text, if so more is found than was. *is_joined: those found hold unequal passes. */
static ebb_status find_more(const ebb_iteration_text *text, const ebb_u32s *lengths, ebb_iteration_parts *iterations,
                            bool *is_joined) {
    ebb_iteration_parts other = {0};
    bool is_other_joined = false;
    const ebb_status st = ebb__iteration_from_events(text, lengths, true, &other, &is_other_joined);
    if (st == EBB_OK && n_covered(&other) > n_covered(iterations)) {
        swap(iterations, &other);
        *is_joined = is_other_joined;
    }
    EBB_VEC_FINI(text->finder->mem, &other);
    return st;
}

/* With frees in a row as they came, or in any order, if so more is found: one order may be an accident. */
static ebb_status find_exact(const ebb_iteration_text *all, const ebb_iteration_text *sorted, const ebb_u32s *lengths,
                             ebb_iteration_parts *iterations, bool *is_joined) {
    EBB_TRY(find_more(all, lengths, iterations, is_joined));
    return find_more(sorted, lengths, iterations, is_joined);
}

/* In the symbols of some kinds alone. */
static ebb_status find_in_part(const ebb_iteration_text *all, uint32_t kinds, ebb_iteration_parts *iterations,
                               bool *is_joined) {
    ebb_u32s lengths = {0};
    ebb_iteration_text part;
    ebb_bump bump;
    ebb__bump_init(&bump, all->finder->mem);
    ebb_status st = ebb__iteration_text_init_part(&part, all, kinds, &bump);
    if (st == EBB_OK) { st = ebb__iteration_candidates(&part, &lengths); }
    if (st == EBB_OK) { st = ebb__iteration_from_events(&part, &lengths, true, iterations, is_joined); }
    EBB_VEC_FINI(all->finder->mem, &lengths);
    ebb__bump_fini(&bump);
    return st;
}

/* Where the row of frees before this event begins. */
static uint64_t before_frees(const ebb_iteration_finder *finder, uint64_t event) {
    uint32_t at = ebb__iteration_at_of(finder, event);
    while (at > 0 && ebb__symbol_is_free(finder->symbols.data[at - 1])) { at--; }
    return ebb__iteration_event_of(finder, at);
}

/* Iterations that are told by all but frees begin and end after a row of frees; where exact ones do so within that
 * row, they do. */
static void refine(const ebb_iteration_finder *finder, const ebb_iteration_parts *exact, ebb_iteration_parts *by_work) {
    for (size_t w = 0, e = 0; w < by_work->n; w++) {
        ebb_iteration_part *part = &by_work->data[w], *before = w > 0 ? part - 1 : NULL;
        const uint64_t first = before_frees(finder, part->first_event), end = part->first_event + part->n_events;
        while (e < exact->n && exact->data[e].first_event < first) { e++; }
        if (e == exact->n || exact->data[e].first_event > part->first_event) { continue; }
        const uint64_t exact_end = exact->data[e].first_event + exact->data[e].n_events;
        part->first_event = exact->data[e].first_event;
        part->n_events =
            (exact_end >= before_frees(finder, end) && exact_end < end ? exact_end : end) - part->first_event;
        if (before != NULL) {
            before->n_events = ebb_min_u64(before->n_events, part->first_event - before->first_event);
        }
    }
}

/* The lengths in kept events that iterations have, a few. */
static ebb_status add_lengths(const ebb_iteration_finder *finder, const ebb_iteration_parts *iterations,
                              ebb_u32s *lengths) {
    for (size_t i = 0; i < iterations->n && lengths->n < MAX_LENGTHS; i++) {
        const uint64_t first = iterations->data[i].first_event, last = first + iterations->data[i].n_events;
        const uint32_t length = ebb__iteration_at_of(finder, last) - ebb__iteration_at_of(finder, first);
        EBB_TRY(ebb__iteration_add_length(finder->mem, lengths, length));
    }
    return EBB_OK;
}

/* Where frees come at the same places each time, too, they say better where iterations meet. */
static ebb_status find_meetings(const ebb_iteration_text *all, const ebb_iteration_text *sorted,
                                ebb_iteration_parts *iterations) {
    ebb_iteration_parts exact = {0};
    ebb_u32s lengths = {0};
    bool is_joined = false; /* of those that are known, which stay */
    ebb_status st = add_lengths(all->finder, iterations, &lengths);
    if (st == EBB_OK) { st = find_exact(all, sorted, &lengths, &exact, &is_joined); }
    if (st == EBB_OK) { refine(all->finder, &exact, iterations); }
    EBB_VEC_FINI(all->finder->mem, &exact);
    EBB_VEC_FINI(all->finder->mem, &lengths);
    return st;
}

/* By the steps alone, if all else may come in any order; by frees, too; by all, about. */
static ebb_status find_otherwise(const ebb_iteration_text *all, const ebb_iteration_text *sorted,
                                 ebb_iteration_parts *iterations, bool *is_joined) {
    ebb_u32s lengths = {0};
    EBB_TRY(find_in_part(all, 1u << EBB_SYMBOL_STEP, iterations, is_joined));
    if (iterations->n > 0) { return EBB_OK; }
    ebb_status st = ebb__iteration_candidates(sorted, &lengths);
    if (st == EBB_OK) { st = find_exact(all, sorted, &lengths, iterations, is_joined); }
    if (st == EBB_OK && iterations->n == 0) {
        st = ebb__iteration_from_events(sorted, &lengths, false, iterations, is_joined);
    }
    EBB_VEC_FINI(all->finder->mem, &lengths);
    return st;
}

/* What a program does is told by all but frees, which are seen where they are seen. */
static ebb_status find_in_events(const ebb_iteration_text *all, ebb_bump *bump, ebb_iteration_parts *iterations,
                                 bool *is_joined) {
    ebb_iteration_text sorted;
    EBB_TRY(find_in_part(all, ~(1u << EBB_SYMBOL_FREE), iterations, is_joined));
    ebb__iteration_drop_first(all, iterations);
    EBB_TRY(ebb__iteration_text_init_sorted(&sorted, all, bump));
    return iterations->n > 0 ? find_meetings(all, &sorted, iterations)
                             : find_otherwise(all, &sorted, iterations, is_joined);
}

/* The updates of a trace, the iterations that end with them, and what is known of those that the events tell. */
typedef struct told {
    ebb_iteration_updates groups;
    uint32_t period; /* groups in an iteration */
    ebb_iteration_evidence source;
    ebb_iteration_parts iterations;
    bool is_joined; /* those that the events tell hold unequal passes */
} told;

/* Whether each iteration holds a whole period of updates and ends soon after it, and half of all updates or more are in
 * iterations. */
static bool has_updates(const ebb_iteration_finder *finder, const ebb_iteration_parts *iterations, const told *t,
                        uint32_t period) {
    size_t g = 0, n_in = 0;
    for (size_t i = 0; i < iterations->n; i++) {
        const ebb_iteration_part *part = &iterations->data[i];
        const uint32_t first = ebb__iteration_at_of(finder, part->first_event);
        const uint32_t last = ebb__iteration_at_of(finder, part->first_event + part->n_events);
        while (g < t->groups.n && t->groups.data[g].first < first) { g++; }
        if (g % t->period != 0) { return false; }
        uint32_t n = 0;
        for (; g < t->groups.n && t->groups.data[g].first < last; g++) { n++; }
        if (n != period || ebb__iteration_makes(finder, last, t->groups.data[g - 1].last)) { return false; }
        const uint32_t end = (uint32_t)ebb_min_u64(t->groups.data[g - 1].last, last);
        if (last - end > (last - first) / MAX_AFTER_SHARE) { return false; }
        n_in += n;
    }
    return 2 * n_in >= t->groups.n;
}

/* Whether updates are told for as long as the events repeat. Call stacks are told of allocations alone, so they may
 * tell only of the first updates, in which optimizers make their state. */
static bool go_on(const ebb_iteration_finder *finder, const told *t, const ebb_iteration_parts *by_events) {
    if (t->groups.n < 2) { return false; }
    if (t->source != EBB_ITERATION_BY_STACK || by_events->n == 0) { return true; }
    const uint32_t middle = ebb__iteration_at_of(finder, by_events->data[by_events->n / 2].first_event);
    return t->groups.data[t->groups.n - 1].first >= middle;
}

/* How many updates the first of these iterations holds. */
static uint32_t n_updates_in(const ebb_iteration_finder *finder, const ebb_iteration_part *part, const told *t) {
    const uint32_t first = ebb__iteration_at_of(finder, part->first_event);
    const uint32_t last = ebb__iteration_at_of(finder, part->first_event + part->n_events);
    uint32_t n = 0;
    for (size_t g = 0; g < t->groups.n; g++) {
        n += t->groups.data[g].first >= first && t->groups.data[g].first < last;
    }
    return n;
}

/* Whether the events repeat exactly with several updates, while what lies between two updates does not: one for each
 * parameter or layer, called by the same line. */
static ebb_status has_several(ebb_iteration_finder *finder, const ebb_iteration_parts *by_events, const told *t,
                              bool *has_out) {
    ebb_iteration apart = {.found = false}, together = {.found = false};
    const uint32_t n = n_updates_in(finder, &by_events->data[0], t);
    *has_out = false;
    if (n <= t->period || t->iterations.n == 0 || !has_updates(finder, by_events, t, n)) { return EBB_OK; }
    EBB_TRY(ebb__iteration_judge(finder, &t->iterations, EBB_ITERATION_FROM_ANNOTATIONS, &apart));
    EBB_TRY(ebb__iteration_judge(finder, by_events, EBB_ITERATION_FROM_ANNOTATIONS, &together));
    *has_out = together.found && together.regularity >= MIN_EXACT && (!apart.found || apart.regularity < MIN_EXACT);
    return EBB_OK;
}

/* For iterations that updates tell: how alike they are matters less. */
static void trust(ebb_iteration *answer) {
    answer->source = EBB_ITERATION_FROM_ANNOTATIONS;
    answer->confidence = (1.0 + answer->regularity) / 2.0 * (1.0 - ebb__iteration_doubt(answer->count));
}

static ebb_status find_by_updates(ebb_iteration_finder *finder, const told *t, const ebb_iteration_parts *by_events,
                                  ebb_iteration *answer) {
    const bool has_guesses = finder->has_guesses;
    const ebb_iteration_parts *best = &t->iterations;
    if (!has_guesses && by_events->n > 0 && has_updates(finder, by_events, t, t->period)) { best = by_events; }
    if (best != by_events && by_events->n > 0) {
        bool is_better = false;
        EBB_TRY(has_several(finder, by_events, t, &is_better));
        if (is_better) { best = by_events; }
    }
    if (best->n == 0) { return EBB_OK; }
    const bool by_guesses = has_guesses && best != by_events;
    EBB_TRY(ebb__iteration_judge(finder, best, by_guesses ? EBB_ITERATION_FROM_MARKS : EBB_ITERATION_FROM_ANNOTATIONS,
                                 answer));
    if (answer->found && (answer->count > 1 || !by_guesses)) { trust(answer); }
    return EBB_OK;
}

/* Whether a repetition is only a part of an update, such as one call back by an optimizer. */
static bool is_in_update(const ebb_iteration_finder *finder, const told *t, const ebb_iteration_part *part) {
    const uint32_t first = ebb__iteration_at_of(finder, part->first_event);
    const uint32_t last = ebb__iteration_at_of(finder, part->first_event + part->n_events);
    for (size_t g = 0; g < t->groups.n; g++) {
        if (t->groups.data[g].first <= first && t->groups.data[g].last >= last) { return true; }
    }
    return false;
}

/* How surely the blocks of a repetition are those of training. */
typedef enum training {
    TRAINING_UNLIKELY,
    TRAINING_LIKELY, /* there are blocks as large as those that stay, as gradients are */
    TRAINING_SURE,   /* blocks that stay are written, or an optimizer's state is made */
} training;

static training training_of(const ebb_iteration_weight *w) {
    if (w->writes) { return TRAINING_SURE; }
    if (w->has_all_gradients && w->makes_state && !w->is_half) { return TRAINING_SURE; }
    return w->has_gradients || !w->is_known ? TRAINING_LIKELY : TRAINING_UNLIKELY;
}

/* By the blocks alone. No update was told; where phases are told, only writes to blocks that stay make an iteration
 * then, and where call stacks are told, something must look like training. */
static ebb_status find_by_events(ebb_iteration_finder *finder, const ebb_iteration_text *all, const told *t,
                                 const ebb_iteration_parts *by_events, ebb_iteration *answer) {
    ebb_iteration_weight weight;
    ebb_iteration found = {.found = false};
    if (by_events->n == 0) { return EBB_OK; }
    EBB_TRY(ebb__iteration_judge(finder, by_events, EBB_ITERATION_FROM_EVENTS, &found));
    if (!found.found) { return EBB_OK; }
    EBB_TRY(ebb__iteration_weigh(all, finder->parts.data, finder->parts.n, &weight));
    const training seen = training_of(&weight);
    const bool tells_phases = finder->sees_forward || finder->sees_backward;
    const bool is_none = tells_phases ? !weight.writes : finder->callers.n > 0 && seen == TRAINING_UNLIKELY;
    if (is_none || is_in_update(finder, t, &by_events->data[by_events->n / 2])) {
        finder->parts.n = 0;
        return EBB_OK;
    }
    *answer = found;
    if (seen != TRAINING_SURE || tells_phases || t->is_joined) {
        answer->confidence = fmin(answer->confidence, seen != TRAINING_UNLIKELY ? MAX_UNSURE : MAX_UNLIKELY);
    }
    return EBB_OK;
}

/* A phase says less than a name: any code after a backward pass has it. So the events are asked first. */
static ebb_status find_by_phases(ebb_iteration_finder *finder, const told *t, const ebb_iteration_parts *by_events,
                                 ebb_iteration *answer) {
    if (by_events->n > 0) { EBB_TRY(ebb__iteration_judge(finder, by_events, EBB_ITERATION_FROM_EVENTS, answer)); }
    if (!answer->found) { EBB_TRY(find_by_updates(finder, t, by_events, answer)); }
    answer->confidence = fmin(answer->confidence, MAX_UNSURE);
    return EBB_OK;
}

/* What work was recorded. */
static ebb_iteration_work work_of(const ebb_iteration_finder *finder, const told *t) {
    if (t->groups.n > 0) { return EBB_ITERATION_WORK_TRAINING; }
    if (finder->sees_backward) { return EBB_ITERATION_WORK_BACKWARD; }
    return finder->sees_forward ? EBB_ITERATION_WORK_FORWARD : EBB_ITERATION_WORK_UNKNOWN;
}

/* The symbols of a part that are no frees, taken from its begin or from its end. */
typedef struct rest {
    const uint32_t *symbols;
    ebb_stretch left;
    bool from_end;
} rest;

static rest rest_of(const ebb_iteration_finder *finder, const ebb_iteration_part *part, bool from_end) {
    return (rest){.symbols = finder->symbols.data,
                  .left = {ebb__iteration_at_of(finder, part->first_event),
                           ebb__iteration_at_of(finder, part->first_event + part->n_events)},
                  .from_end = from_end};
}

/* false: none is left. */
static bool take(rest *r, uint32_t *symbol_out) {
    while (r->left.first < r->left.last) {
        *symbol_out = r->symbols[r->from_end ? --r->left.last : r->left.first++];
        if (!ebb__symbol_is_free(*symbol_out)) { return true; }
    }
    return false;
}

/* Whether what is before (or after) an iteration ends (or begins) as the iteration does, for half of it or more. */
static bool goes_on(const ebb_iteration_finder *finder, const ebb_iteration_part *iteration,
                    const ebb_iteration_part *beside) {
    const bool from_end = beside < iteration;
    rest one = rest_of(finder, iteration, from_end), other = rest_of(finder, beside, from_end);
    uint32_t n_same = 0, n = 0, symbol = 0, other_symbol = 0;
    for (bool is_same = true; take(&one, &symbol); n++) {
        is_same = is_same && take(&other, &other_symbol) && symbol == other_symbol;
        n_same += is_same;
    }
    return n > 0 && 2 * n_same >= n;
}

/* Whether little speaks for the iterations that were found. Most of the trace may come before or after them. Where
 * events alone tell of them, the trace may begin or end in the middle of one, so they may as well begin elsewhere. */
static bool is_thin(const ebb_iteration_finder *finder, const ebb_iteration *answer) {
    const ebb_iteration_part *parts = finder->parts.data, *first = NULL, *last = NULL;
    for (size_t p = 0; p < finder->parts.n; p++) {
        if (parts[p].kind != EBB_ITERATION_PART_ITERATION) { continue; }
        first = first != NULL ? first : &parts[p];
        last = &parts[p];
    }
    if (first == NULL) { return false; }
    const uint64_t n_spanned = last->first_event + last->n_events - first->first_event;
    if (2 * n_spanned < finder->symbols.n + finder->passed.n) { return true; }
    if (answer->source != EBB_ITERATION_FROM_EVENTS) { return false; }
    const ebb_iteration_part *end = parts + finder->parts.n;
    return (first > parts && goes_on(finder, first, first - 1)) || (last + 1 < end && goes_on(finder, last, last + 1));
}

static ebb_status find_unmarked(ebb_iteration_finder *finder, const ebb_iteration_text *all, const told *t,
                                const ebb_iteration_parts *by_events, ebb_iteration *answer) {
    ebb_status st = EBB_OK;
    const ebb_iteration_work work = work_of(finder, t);
    const bool is_single = finder->has_guesses && t->groups.n == 1;
    if (t->source == EBB_ITERATION_BY_PHASE && t->groups.n > 1) {
        st = find_by_phases(finder, t, by_events, answer);
    } else if (is_single || go_on(finder, t, by_events)) {
        st = find_by_updates(finder, t, by_events, answer);
    } else if (t->groups.n == 0 || t->source == EBB_ITERATION_BY_STACK) {
        st = find_by_events(finder, all, t, by_events, answer);
    }
    answer->work = work;
    if (st == EBB_OK && answer->found && is_thin(finder, answer)) {
        answer->confidence = fmin(answer->confidence, MAX_UNSURE);
    }
    return st;
}

static ebb_status find_by(ebb_iteration_finder *finder, ebb_bump *bump, ebb_iteration_parts *by_events, told *t,
                          ebb_iteration *answer) {
    ebb_iteration_text all;
    finder->has_guesses = finder->n_guesses > 0;
    EBB_TRY(ebb__iteration_text_init(&all, finder, bump));
    if (!finder->has_guesses) { EBB_TRY(ebb__iteration_from_marks(finder, by_events)); }
    if (by_events->n > 0) {
        answer->work = EBB_ITERATION_WORK_TRAINING;
        return ebb__iteration_judge(finder, by_events, EBB_ITERATION_FROM_MARKS, answer);
    }
    EBB_TRY(ebb__iteration_from_updates(&all, bump, &t->groups, &t->period, &t->source, &t->iterations));
    EBB_TRY(find_in_events(&all, bump, by_events, &t->is_joined));
    return find_unmarked(finder, &all, t, by_events, answer);
}

static ebb_status find(ebb_iteration_finder *finder, ebb_iteration *answer) {
    ebb_iteration_parts by_events = {0};
    told t = {.period = 1, .source = EBB_ITERATION_N_EVIDENCE};
    ebb_bump bump;
    ebb__bump_init(&bump, finder->mem);
    const ebb_status st = find_by(finder, &bump, &by_events, &t, answer);
    ebb__bump_fini(&bump);
    EBB_VEC_FINI(finder->mem, &by_events);
    EBB_VEC_FINI(finder->mem, &t.groups);
    EBB_VEC_FINI(finder->mem, &t.iterations);
    return st;
}

ebb_status ebb_iteration_finder_find(ebb_iteration_finder *finder, ebb_iteration *iteration_out) {
    EBB_NEED(finder);
    EBB_NEED(iteration_out);
    ebb_iteration answer = {.found = false};
    finder->parts.n = 0;
    const ebb_status st = find(finder, &answer);
    if (st == EBB_OK) {
        *iteration_out = answer;
    } else {
        finder->parts.n = 0;
    }
    return st;
}

const ebb_iteration_part *ebb_iteration_finder_parts(const ebb_iteration_finder *finder, size_t *n_out) {
    *n_out = finder->parts.n;
    return finder->parts.data;
}

const char *ebb_iteration_work_name(ebb_iteration_work work) {
    static const char *const names[] = {"unknown", "forward", "backward", "training"};
    return names[(unsigned)work <= EBB_ITERATION_WORK_TRAINING ? work : EBB_ITERATION_WORK_UNKNOWN];
}
