/* SPDX-License-Identifier: Apache-2.0
 *
 * Where in a repetition the iteration begins. Any event of it could be the first; what decides is, in this order:
 *
 *  1. what comes before the first iteration and behind the last one (set-up, the end of the program) is not part of the
 *     repetition: an event with which the first run begins and behind which the last one ends is where iterations meet;
 *  2. memory is least there, or becomes so by frees alone, and something else comes between two iterations (an
 *     evaluation): where a run ends and another begins;
 *  3. where memory is least, and if that is so more than once, where it then is more for longest. Were blocks freed
 * right before it, the boundary may lie among these frees: then a place where a run begins or ends is taken.
 *
 * Places of different runs are compared by what is behind them, as offsets into the first run's repetition.
 */
#include "trace/iteration_priv.h"

typedef struct vote {
    uint32_t offset;
    uint32_t n_begins, n_ends;
} vote;

typedef struct offsets {
    const ebb_iteration_text *text;
    uint32_t length;
    ebb_stretch run; /* the first one */
    EBB_VEC(vote) votes;
    bool is_whole; /* the last run ends as the first one begins */
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
        const uint32_t ends = (run.last - at) % o->length;
        EBB_TRY(add_vote(o, (o->length - (at - run.first)) % o->length, true));
        EBB_TRY(add_vote(o, ends, false));
        if (r == runs->n - 1) { o->is_whole = ends == 0; }
    }
    return EBB_OK;
}

/* Whether memory is least there, or is after nothing but frees. */
static bool is_low(const offsets *o, uint32_t offset, uint64_t least_bytes) {
    for (uint32_t n_on = 0; n_on < o->length; n_on++) {
        const uint32_t at = o->run.first + (offset + n_on) % o->length;
        if (o->text->least[at] == least_bytes) { return true; }
        if ((o->text->symbols[at] & EBB_SYMBOL_MASK) != EBB_SYMBOL_FREE) { return false; }
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

/* Back over frees from the least place, to one where a run begins or ends, if there is one. */
static uint32_t step_back(const offsets *o, uint32_t least) {
    const uint32_t *s = o->text->symbols + o->run.first;
    const vote *best = NULL;
    for (uint32_t n_back = 0; n_back < o->length; n_back++) {
        const uint32_t offset = (least + o->length - n_back) % o->length;
        const vote *next = find_vote(o, offset);
        if (next != NULL && (best == NULL || next->n_begins + next->n_ends > best->n_begins + best->n_ends)) {
            best = next;
        }
        if ((s[(offset + o->length - 1) % o->length] & EBB_SYMBOL_MASK) != EBB_SYMBOL_FREE) { break; }
    }
    return best != NULL ? best->offset : least;
}

static uint32_t find_offset(const offsets *o) {
    const uint32_t least = ebb__iteration_least(o->text->least, o->run.first, o->run.last);
    if (o->is_whole) { return 0; }
    const vote *agreed = find_agreed(o, o->text->least[least]);
    return agreed != NULL ? agreed->offset : step_back(o, (least - o->run.first) % o->length);
}

ebb_status ebb__iteration_start(const ebb_iteration_text *text, uint32_t length, const ebb_stretches *runs,
                                uint32_t *start_out) {
    offsets o = {.text = text, .length = length, .run = runs->data[0]};
    ebb_status st = count_votes(&o, runs);
    if (st == EBB_OK) {
        const uint32_t offset = find_offset(&o);
        const bool has_room = offset + length <= o.run.last - o.run.first;
        *start_out = o.run.first + (has_room ? offset : 0);
    }
    EBB_VEC_FINI(text->finder->mem, &o.votes);
    return st;
}
