/* SPDX-License-Identifier: Apache-2.0
 *
 * The iterations that a trace tells of: by marks, or by updates, which are where an optimizer stepped.
 *
 * A trace tells of updates in three ways. The first that it has is taken:
 *
 *  1. annotations and steps named "Optimizer.step#...", from their begin to their end;
 *  2. call stacks with a frame of an optimizer's step;
 *  3. steps whose phase is update and that write to a block that was there before.
 *
 * Each update has an identity: the line of the program that called it, or what it does. Updates without an allocation
 * between them are one group, such as a loop over optimizers. An iteration is one group, or several if their
 * identities repeat with a longer period, as the two optimizers of a GAN do.
 *
 * An iteration begins where the one before ended, at an update's end. If other work came between, such as an
 * evaluation, the part that all iterations have in common is at the end, and the iteration begins with it.
 */
#include "trace/iteration_priv.h"
#include "trace/trace.h"

/* ---- marks ------------------------------------------------------------------------------------ */

/* A marked one goes from its begin mark to its end mark, both included, or where it has none up to the next begin mark;
 * one that neither ends is not whole. */

ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations) {
    bool is_open = false;
    uint64_t first_event = 0;
    for (size_t m = 0; m < finder->marks.n; m++) {
        const ebb_iteration_mark *mark = &finder->marks.data[m];
        const bool begins = mark->mark == EBB_TRACE_ITERATION_BEGIN;
        if (is_open) {
            ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION, .first_event = first_event};
            part.n_events = mark->event + (begins ? 0u : 1u) - first_event;
            EBB_TRY(EBB_PUSH(finder->mem, iterations, part));
        }
        is_open = begins;
        first_event = mark->event;
    }
    return EBB_OK;
}

/* ---- updates ---------------------------------------------------------------------------------- */

#define MAX_PERIOD 16u
#define MAX_USUAL 64u   /* stretches that are tried as the usual one */
#define MANY_SHARE 1.5  /* of the median length: a longer stretch holds something else, too */
#define ALIKE_SHARE 16u /* of the longer one: lengths that differ by less are equal */
#define MIN_ALIKE 0.8
#define MIN_TIMES 4u  /* times that updates of one name must take turns, so that it is not by accident */
#define ODD_SHARE 16u /* of the updates: fewer may break the period */
#define OPTIMIZER "Optimizer.step#"

/* ---- what is kept of each event ---------------------------------------------------------------- */

static bool begins_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static ebb_status begin_update(ebb_iteration_finder *finder, ebb_iteration_evidence by, uint64_t who) {
    const uint32_t at = (uint32_t)finder->symbols.n;
    const ebb_iteration_update update = {.first = at, .last = at, .who = who};
    finder->is_open[by] = true;
    return EBB_PUSH(finder->mem, &finder->updates[by], update);
}

static void end_update(ebb_iteration_finder *finder, ebb_iteration_evidence by) {
    if (!finder->is_open[by]) { return; }
    finder->is_open[by] = false;
    finder->updates[by].data[finder->updates[by].n - 1].last = (uint32_t)finder->symbols.n;
}

static const char *text_of(const ebb_iteration_finder *finder, uint32_t string) {
    return finder->reader != NULL ? ebb_trace_reader_string(finder->reader, string) : "";
}

static ebb_status note_annotation(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    const char *name = text_of(finder, event->name);
    const bool ends = begins_with(name, EBB_TRACE_END_PREFIX);
    if (!begins_with(ends ? name + strlen(EBB_TRACE_END_PREFIX) : name, OPTIMIZER)) { return EBB_OK; }
    if (ends || event->number > 0) {
        end_update(finder, EBB_ITERATION_BY_NAME);
        return EBB_OK;
    }
    finder->update_step = EBB_TRACE_NONE;
    return begin_update(finder, EBB_ITERATION_BY_NAME, (uint64_t)event->stack << 32 | event->name);
}

/* A file of an optimizer. */
static bool is_of_optimizer(const char *file) {
    const bool is_one = strstr(file, "/optim/") != NULL || strstr(file, "/optimizers/") != NULL;
    return is_one && strstr(file, "lr_scheduler") == NULL;
}

/* The stack that called the outermost optimizer's step in this one, plus 1; 0: none. It is known for the
 * stack's caller already. */
static uint32_t caller_of_step(const ebb_iteration_finder *finder, uint32_t stack) {
    if (stack == 0) { return 0; }
    const ebb_trace_frame frame = ebb_trace_reader_frame(finder->reader, stack);
    EBB_ASSERT(frame.caller < stack);
    if (finder->callers.data[frame.caller] != 0) { return finder->callers.data[frame.caller]; }
    const char *function = text_of(finder, frame.function);
    const bool steps = strstr(function, "step") != NULL || strcmp(function, "wrapper") == 0;
    return steps && is_of_optimizer(text_of(finder, frame.file)) ? frame.caller + 1 : 0;
}

static ebb_status note_stack(ebb_iteration_finder *finder, uint32_t stack) {
    if (stack == 0 || finder->reader == NULL) { return EBB_OK; }
    while (finder->callers.n <= stack) {
        const uint32_t caller = caller_of_step(finder, (uint32_t)finder->callers.n);
        EBB_TRY(EBB_PUSH(finder->mem, &finder->callers, caller));
    }
    const uint32_t caller = finder->callers.data[stack];
    const ebb_iteration_update *last = finder->updates[EBB_ITERATION_BY_STACK].data;
    last = finder->is_open[EBB_ITERATION_BY_STACK] ? last + finder->updates[EBB_ITERATION_BY_STACK].n - 1 : NULL;
    if (last != NULL && last->who == caller) { return EBB_OK; }
    end_update(finder, EBB_ITERATION_BY_STACK);
    return caller != 0 ? begin_update(finder, EBB_ITERATION_BY_STACK, caller) : EBB_OK;
}

static ebb_status note_step(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    if (event->phase == EBB_TRACE_PHASE_UPDATE) {
        if (!finder->is_open[EBB_ITERATION_BY_PHASE]) { EBB_TRY(begin_update(finder, EBB_ITERATION_BY_PHASE, 0)); }
    } else if (event->phase != EBB_TRACE_PHASE_UNKNOWN) {
        end_update(finder, EBB_ITERATION_BY_PHASE);
    }
    finder->sees_forward = finder->sees_forward || event->phase == EBB_TRACE_PHASE_FORWARD;
    finder->sees_backward = finder->sees_backward || event->phase == EBB_TRACE_PHASE_BACKWARD;
    const bool is_named = finder->is_open[EBB_ITERATION_BY_NAME] && finder->update_step == EBB_TRACE_NONE;
    if (is_named && begins_with(text_of(finder, event->name), OPTIMIZER)) { finder->update_step = event->step; }
    return EBB_OK;
}

ebb_status ebb__iteration_note(ebb_iteration_finder *finder, const ebb_trace_event *event) {
    if (event->kind == EBB_TRACE_MARK) {
        return event->mark == EBB_TRACE_ANNOTATION ? note_annotation(finder, event) : EBB_OK;
    }
    if (event->kind == EBB_TRACE_STEP_BEGIN) { return note_step(finder, event); }
    if (event->kind == EBB_TRACE_STEP_END && event->step == finder->update_step) {
        end_update(finder, EBB_ITERATION_BY_NAME);
    }
    return event->kind == EBB_TRACE_ALLOC ? note_stack(finder, event->stack) : EBB_OK;
}

/* ---- groups ------------------------------------------------------------------------------------ */

static bool is_kind(const ebb_iteration_finder *finder, uint32_t at, uint32_t kind) {
    return (finder->symbols.data[at] & EBB_SYMBOL_MASK) == kind;
}

/* Whether it writes to a block that was there before. */
static bool does_write(const ebb_iteration_text *all, const ebb_iteration_update *update) {
    for (uint32_t at = update->first; at < update->last; at++) {
        const bool writes = is_kind(all->finder, at, EBB_SYMBOL_WRITE);
        if (writes && all->born[all->finder->blocks.data[at]] < update->first) { return true; }
    }
    return false;
}

/* A hash of an update's steps and allocations. Accesses do not count: addresses that come again may move them. */
static uint64_t what_is_done(const ebb_iteration_text *all, const ebb_iteration_update *update) {
    uint64_t hash = EBB_HASH_INIT;
    for (uint32_t at = update->first; at < update->last; at++) {
        const uint32_t *symbol = &all->symbols[at];
        const bool counts = is_kind(all->finder, at, EBB_SYMBOL_STEP) || is_kind(all->finder, at, EBB_SYMBOL_ALLOC);
        if (counts) { hash = ebb__hash(hash, symbol, sizeof *symbol); }
    }
    return hash;
}

/* Whether an update by this evidence says which line of the program called it. */
static bool has_caller(ebb_iteration_evidence by, const ebb_iteration_update *update) {
    return by == EBB_ITERATION_BY_STACK || (by == EBB_ITERATION_BY_NAME && update->who >> 32 != 0);
}

bool ebb__iteration_makes(const ebb_iteration_finder *finder, uint32_t first, uint32_t last) {
    for (uint32_t at = first; at < last; at++) {
        if (is_kind(finder, at, EBB_SYMBOL_ALLOC)) { return true; }
    }
    return false;
}

/* The updates, whole and with their identities, from the best evidence. */
static ebb_status collect(const ebb_iteration_text *all, ebb_iteration_updates *updates,
                          ebb_iteration_evidence *source_out) {
    const ebb_iteration_finder *finder = all->finder;
    for (int by = 0; by < EBB_ITERATION_N_EVIDENCE && updates->n == 0; by++) {
        for (size_t u = 0; u < finder->updates[by].n; u++) {
            ebb_iteration_update update = finder->updates[by].data[u];
            const bool is_open = finder->is_open[by] && u + 1 == finder->updates[by].n;
            if (is_open && by != EBB_ITERATION_BY_NAME) { update.last = all->n; }
            if (by == EBB_ITERATION_BY_PHASE && !does_write(all, &update)) { continue; }
            if (!has_caller((ebb_iteration_evidence)by, &update)) { update.who = what_is_done(all, &update); }
            EBB_TRY(EBB_PUSH(finder->mem, updates, update));
        }
        if (updates->n > 0) { *source_out = (ebb_iteration_evidence)by; }
    }
    return EBB_OK;
}

/* Updates without an allocation between become one, unless none would be left to compare with. */
static void join(const ebb_iteration_finder *finder, ebb_iteration_updates *updates) {
    uint32_t n_apart = 1;
    for (size_t u = 1; u < updates->n && n_apart < 2; u++) {
        n_apart += ebb__iteration_makes(finder, updates->data[u - 1].last, updates->data[u].first);
    }
    if (updates->n == 0 || n_apart < 2) { return; }
    size_t n = 1;
    for (size_t u = 1; u < updates->n; u++) {
        ebb_iteration_update *last = &updates->data[n - 1];
        if (ebb__iteration_makes(finder, last->last, updates->data[u].first)) {
            updates->data[n++] = updates->data[u];
        } else {
            last->last = updates->data[u].last;
            last->who = ebb__hash(last->who, &updates->data[u].who, sizeof last->who);
        }
    }
    updates->n = n;
}

/* The least number of groups after which identities come again, at least n_times; 1 where they never do. The first
 * period may differ. */
static uint32_t find_period(const ebb_iteration_updates *groups, uint32_t n_times) {
    const size_t n = groups->n;
    for (uint32_t period = 1; period <= MAX_PERIOD && n_times * period <= n; period++) {
        size_t n_odd = 0;
        for (size_t i = 3 * period <= n ? period : 0; i + period < n; i++) {
            n_odd += groups->data[i].who != groups->data[i + period].who;
        }
        if (n_odd <= n / ODD_SHARE) { return period; }
    }
    return 1;
}

/* ---- iterations -------------------------------------------------------------------------------- */

typedef struct builder {
    const ebb_iteration_text *all, *work; /* all events; all but frees */
    const ebb_iteration_updates *groups;
    ebb_bump *bump;
    uint32_t period;
    ebb_stretch *stretches; /* of work, from one iteration's end to the next one's */
    uint32_t n;
} builder;

typedef struct wanted_place {
    const uint32_t *places;
    uint32_t at;
} wanted_place;

static bool is_earlier_place(const void *ctx, size_t place) {
    const wanted_place *wanted = ctx;
    return wanted->places[place] < wanted->at;
}

/* The first place of the text of work at a kept event or after it. */
static uint32_t work_at(const ebb_iteration_text *work, uint32_t at) {
    const wanted_place wanted = {work->places, at};
    return (uint32_t)ebb__first_not_before(work->n, is_earlier_place, &wanted);
}

static uint32_t length_of(ebb_stretch stretch) {
    return stretch.last - stretch.first;
}

static uint32_t n_that_end_so(const builder *b, uint32_t length, uint64_t wanted) {
    const uint64_t power = ebb__iteration_power(length);
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n; i++) {
        const bool is_enough = length_of(b->stretches[i]) >= length;
        n += is_enough && ebb__iteration_window(b->work, b->stretches[i].last - length, length, power) == wanted;
    }
    return n;
}

/* The stretch that most others end with; false: none ends with another. */
static bool find_usual(const builder *b, uint32_t *length_out, uint64_t *hash_out) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < b->n && i < MAX_USUAL; i++) {
        const uint32_t length = length_of(b->stretches[i]);
        if (length == 0) { continue; }
        const uint64_t hash =
            ebb__iteration_window(b->work, b->stretches[i].first, length, ebb__iteration_power(length));
        const uint32_t n = n_that_end_so(b, length, hash);
        if (n < most || (n == most && (n < 2 || length <= *length_out))) { continue; }
        most = n;
        *length_out = length;
        *hash_out = hash;
    }
    return most > 1;
}

static ebb_status find_median(const builder *b, uint32_t *median_out) {
    uint32_t *order = ebb__bump_alloc(b->bump, b->n, sizeof *order);
    uint64_t *length = ebb__bump_alloc(b->bump, b->n, sizeof *length);
    if (order == NULL || length == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < b->n; i++) {
        order[i] = i;
        length[i] = length_of(b->stretches[i]);
    }
    EBB_TRY(ebb__sort_by_key(b->all->finder->mem, order, b->n, length));
    *median_out = (uint32_t)length[order[b->n / 2]];
    return EBB_OK;
}

/* Leave out what comes before the usual work, or, if none exists, before the moment with the least memory. */
static ebb_status leave_out(builder *b) {
    uint32_t usual = 0, median = 0;
    uint64_t hash = 0;
    const bool has_usual = find_usual(b, &usual, &hash);
    const uint64_t power = ebb__iteration_power(usual);
    EBB_TRY(find_median(b, &median));
    for (uint32_t i = 0; i < b->n; i++) {
        ebb_stretch *s = &b->stretches[i];
        const uint32_t length = length_of(*s);
        const bool may_be = has_usual && length > usual;
        if (may_be && ebb__iteration_window(b->work, s->last - usual, usual, power) == hash) {
            s->first = s->last - usual;
        } else if (length > MANY_SHARE * median && i > 0) {
            const uint32_t update = b->groups->data[(size_t)i * b->period].first;
            const uint32_t first = s->first < b->work->n ? b->work->places[s->first] : b->all->n;
            if (first < update) {
                s->first = work_at(b->work, ebb__iteration_least(b->all->live_bytes, first, update));
            }
        }
    }
    return EBB_OK;
}

static ebb_status add(const builder *b, ebb_stretch s, uint32_t end, ebb_iteration_parts *iterations) {
    const ebb_iteration_finder *finder = b->all->finder;
    if (s.first >= s.last) { return EBB_OK; }
    const uint32_t first = b->work->places[s.first];
    ebb_iteration_part part = {.kind = EBB_ITERATION_PART_ITERATION,
                               .first_event = ebb__iteration_event_of(finder, first)};
    part.n_events = ebb__iteration_event_of(finder, end - 1) + 1 - part.first_event;
    return EBB_PUSH(finder->mem, iterations, part);
}

/* Where group g ends, with the frees that follow. */
static uint32_t end_of(const builder *b, size_t g) {
    uint32_t at = b->groups->data[g].last;
    while (at < b->all->n && ebb__symbol_is_free(b->all->symbols[at])) { at++; }
    return at;
}

static bool is_about(uint32_t a, uint32_t b, uint32_t share) {
    return (a > b ? a - b : b - a) <= (a > b ? a : b) / share;
}

/* Whether one has most of what the other has, which may have more at either end, such as lines for a log. */
static bool are_alike(const builder *b, ebb_stretch x, ebb_stretch y) {
    const ebb_stretch shorter = length_of(x) < length_of(y) ? x : y, longer = length_of(x) < length_of(y) ? y : x;
    const uint32_t n = length_of(shorter);
    const ebb_stretch front = {longer.first, longer.first + n}, end = {longer.last - n, longer.last};
    return ebb__iteration_n_common(b->work->symbols, shorter, front) >= MIN_ALIKE * n ||
           ebb__iteration_n_common(b->work->symbols, shorter, end) >= MIN_ALIKE * n;
}

/* The number of stretches after which the same lengths come again, while what they do differs: two optimizers of one
 * name that take turns. */
static uint32_t find_turns(const builder *b) {
    for (uint32_t period = 1; period <= MAX_PERIOD && 2 * period <= b->n; period++) {
        bool comes_again = true, differs = period == 1;
        for (uint32_t i = 3 * period <= b->n ? period : 0; i + period < b->n && comes_again; i++) {
            comes_again = is_about(length_of(b->stretches[i]), length_of(b->stretches[i + period]), ALIKE_SHARE);
        }
        for (uint32_t i = 1; i < period && comes_again && !differs; i++) {
            differs = !are_alike(b, b->stretches[period], b->stretches[period + i]);
        }
        if (comes_again) { return differs ? period : 1; }
    }
    return 1;
}

static ebb_status cut(builder *b) {
    const ebb_iteration_finder *finder = b->all->finder;
    uint32_t before = finder->has_guesses ? work_at(b->work, finder->first_guess) : 0;
    b->n = (uint32_t)b->groups->n / b->period;
    for (uint32_t i = 0; i < b->n; i++) {
        const uint32_t end = work_at(b->work, end_of(b, (size_t)(i + 1) * b->period - 1));
        b->stretches[i] = (ebb_stretch){before, end};
        before = end;
    }
    return leave_out(b);
}

static ebb_status build(builder *b, bool is_same_caller, ebb_iteration_parts *iterations) {
    const ebb_iteration_finder *finder = b->all->finder;
    EBB_TRY(cut(b));
    if (b->period == 1 && !is_same_caller) {
        b->period = find_turns(b);
        if (b->period > 1) { EBB_TRY(cut(b)); }
    }
    for (uint32_t i = finder->has_guesses || b->stretches[0].first > 0 ? 0 : 1; i < b->n; i++) {
        EBB_TRY(add(b, b->stretches[i], end_of(b, (size_t)(i + 1) * b->period - 1), iterations));
    }
    return EBB_OK;
}

ebb_status ebb__iteration_from_updates(const ebb_iteration_text *all, ebb_bump *bump, ebb_iteration_updates *groups,
                                       uint32_t *period_out, ebb_iteration_evidence *source_out,
                                       ebb_iteration_parts *iterations) {
    const ebb_iteration_finder *finder = all->finder;
    ebb_iteration_text work;
    *period_out = 1;
    *source_out = EBB_ITERATION_N_EVIDENCE;
    EBB_TRY(collect(all, groups, source_out));
    join(finder, groups);
    if (groups->n == 0) { return EBB_OK; }
    const bool has_callers = has_caller(*source_out, &finder->updates[*source_out].data[0]);
    builder b = {.all = all, .work = &work, .groups = groups, .bump = bump};
    b.period = find_period(groups, has_callers ? 2 : MIN_TIMES);
    EBB_TRY(ebb__iteration_text_init_part(&work, all, ~(1u << EBB_SYMBOL_FREE), bump));
    b.stretches = ebb__bump_alloc(bump, groups->n, sizeof *b.stretches);
    if (b.stretches == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(build(&b, has_callers, iterations));
    *period_out = b.period;
    return EBB_OK;
}
