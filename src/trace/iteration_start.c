/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a repetition the iteration begins. Any event of it could be the first; what decides is, in this order:
 *
 *  1. what comes before the first iteration and behind the last one (set-up, the end of the program) is not part of the
 *     repetition: an event with which the first run begins and behind which the last one ends is where iterations meet;
 *  2. memory is least there, or becomes so before anything is allocated, and something else comes between two
 * iterations (an evaluation): where a run ends and another begins; or the trace ends;
 *  3. where memory is least, and if that is so more than once, where most is added until it is so again. If memory
 * hardly grew before it was least, the boundary may lie earlier: an optimiser's gradients are freed at the begin of the
 * loop's body. Then it is where a run ends, or, if nothing was allocated in between, where one begins.
 *
 * A boundary is in no step: what comes behind an evaluation may begin with the same steps as the evaluation does.
 *
 * Places of different runs are compared by what is behind them, as offsets into the first run's repetition.
 */
#include "trace/iteration_priv.h"

#define GROWTH_SHARE 4u /* of the height of memory: less is hardly growth */

#define NOWHERE UINT32_MAX

typedef struct vote {
    uint32_t offset;
    uint32_t n_begins, n_ends;
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

static ebb_status add_vote(offsets *o, uint32_t offset, bool begins) {
    EBB_ASSERT(offset < o->length);
    size_t v = 0;
    while (v < o->votes.n && o->votes.data[v].offset != offset) { v++; }
    if (v == o->votes.n) {
        if (v == 64) { return EBB_OK; } /* they do not agree anyway */
        vote none = {.offset = offset};
        EBB_TRY(EBB_PUSH(o->text->finder->mem, &o->votes, none));
    }
    o->votes.data[v].n_begins += begins;
    o->votes.data[v].n_ends += !begins;
    return EBB_OK;
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
        EBB_TRY(add_vote(o, begins, true));
        EBB_TRY(add_vote(o, ends, false));
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

/* Back from the least place, as long as memory from there on hardly grew before it became least, to where a run ends;
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
        const uint32_t score = next != NULL ? 2 * next->n_ends + (is_narrow ? next->n_begins : 0) : 0;
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
