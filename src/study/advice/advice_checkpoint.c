/* SPDX-License-Identifier: Apache-2.0
 *
 * Which modules of a PyTorch program to run inside of torch.utils.checkpoint, and what the peak would be.
 *
 * Activations belong to calls of modules (advice_modules.c): a stretch of blocks that one module makes, until a block
 * of another one comes or the module begins again. It begins again with what it began with, if it has done more in
 * between than to call one module: a loop over the layers within it is one call.
 *
 *      a call      | a | t | b | d |       t is gone when the call ends; d is what the call gives; the backward pass
 *                                          needs a and b
 *
 * With a checkpoint around the module
 *  - a and b go when the forward pass has used them for the last time;
 *  - when the backward pass first needs one of them the module runs again: a and b are back, and for a moment t is too;
 *  - what enters the module stays until then, even if nothing else needs it.
 * All else is as in the recording. Where the source tells no reads, what a call gives is the block that outlives the
 * call and goes first, and the module runs again as soon as the block is gone that went before it.
 *
 * The kind of modules is told with which the peak is least, and others beside it, as long as they win something and
 * neither holds modules of the other. A module that runs its forward inside of the backward pass is checkpointed
 * already. The whole network is never told: it would all be back when its backward pass begins.
 */
#include "study/advice/advice_modules.h"

#include "trace/trace.h"

#define MIN_SHARE 0.05      /* of the peak: less than that an estimate does not tell */
#define MIN_KIND_SHARE 0.01 /* of the peak: for one kind of modules more */
#define MAX_TRIED 12u       /* kinds, those with most bytes */
#define WHOLE_SHARE 0.9     /* of what waits at the peak: what one call has of it is the whole network */

typedef struct call {
    uint64_t begin_event, end_event;
    uint64_t needed_event,
        until_event;                  /* it runs again; the last block that it makes then goes. UINT64_MAX, 0: never */
    uint64_t last_event;              /* in the forward pass it uses for the last time what it drops */
    uint64_t again_bytes, most_bytes; /* while it runs again: now, at most */
    uint64_t dropped_bytes;
    uint32_t module;
    uint32_t given_block;             /* what it gives; STUDY_NONE: unknown */
    uint32_t first_leaf, first_place; /* of its first block */
    bool has_places;                  /* its blocks come from several, or it makes some itself */
    bool is_live;                     /* has blocks at the peak */
} call;

/* What becomes of a call's block. */
enum { FATE_NONE, FATE_GIVEN, FATE_SHORT, FATE_DROPPED };

typedef struct trial {
    ebb_study *study;
    const uint8_t *purpose;
    advice_modules modules;
    bool has_reads;
    uint32_t *used_event;   /* [blocks.n]: its last step of the forward pass begins; without reads: a call that gave it
                               runs again */
    uint32_t *done_event;   /* [blocks.n]: its last step of the forward pass ends; only with reads */
    uint32_t *needed_event; /* [blocks.n]: its first step of the backward pass begins; STUDY_NONE: never */
    uint32_t *of_block;     /* [blocks.n]: its call, from 1; 0: none */
    uint8_t *fate;          /* [blocks.n] */
    EBB_VEC(call) calls;
    advice_changes changes;
    uint64_t waiting_bytes; /* activations at the peak */
} trial;

/* ---- when blocks are used --------------------------------------------------------------------- */

static const study_step *step_at(const ebb_study *s, size_t access) {
    const uint32_t step = study_step_of(&s->accesses.data[s->by_block[access]]);
    return step != STUDY_NO_STEP ? &s->steps.data[step] : NULL;
}

/* When the step begins that makes the block. */
static uint64_t made_event(const trial *t, size_t block) {
    const ebb_study *s = t->study;
    const study_block *b = &s->blocks.data[block];
    const bool is_touched = b->first_access < study_first_access(s, block + 1);
    const study_step *step = t->has_reads && is_touched ? step_at(s, b->first_access) : NULL;
    return step != NULL && step->begin_event < b->born_event ? step->begin_event : b->born_event;
}

static void find_uses(trial *t, size_t block) {
    const ebb_study *s = t->study;
    t->used_event[block] = t->done_event[block] = 0;
    t->needed_event[block] = STUDY_NONE;
    for (size_t i = s->blocks.data[block].first_access; i < study_first_access(s, block + 1); i++) {
        const study_step *step = step_at(s, i);
        const bool is_read = study_touch_of(&s->accesses.data[s->by_block[i]]) == TOUCH_READ;
        if (step == NULL || step->phase == EBB_TRACE_PHASE_UPDATE) { continue; }
        if (step->phase != EBB_TRACE_PHASE_BACKWARD) {
            t->used_event[block] = step->begin_event;
            t->done_event[block] = step->end_event;
        } else if (is_read) {
            t->needed_event[block] = step->begin_event;
            return;
        }
    }
}

/* Without reads deaths tell the steps of the backward pass: one makes gradients, then frees those that it was given,
 * then what it has read. So it begins with the first birth since something older went.
 *
 * The step that frees what a call gave is of the call's own end, like a ReLU's, if what it made last is as large. Else,
 * like a convolution's or a norm's, which make gradients of weights last, it is of what comes after the module, whose
 * own backward pass begins later. */
static ebb_status find_uses_by_deaths(trial *t) {
    const ebb_study *s = t->study;
    uint32_t begin_event = 0, gone_event = 0;
    bool is_over = true;               /* something older has gone since the step began */
    EBB_VEC(uint32_t) made = {.n = 0}; /* in order; the last one lives */
    ebb_status st = EBB_OK;
    memset(t->fate, FATE_NONE, s->blocks.n);
    for (size_t i = 0; i < s->log.n && st == EBB_OK; i++) {
        const uint32_t block = s->log.data[i] >> 1;
        const study_block *b = &s->blocks.data[block];
        if ((s->log.data[i] & 1u) == 0) {
            t->needed_event[block] = t->used_event[block] = STUDY_NONE;
            begin_event = is_over ? b->born_event : begin_event;
            is_over = false;
            st = EBB_PUSH(s->mem, &made, block);
            continue;
        }
        is_over = is_over || b->born_event < begin_event;
        t->fate[block] = FATE_SHORT; /* for now: it is gone */
        while (made.n > 0 && t->fate[made.data[made.n - 1]] == FATE_SHORT) { made.n--; }
        if (t->purpose[block] != PURPOSE_ACTIVATION) { continue; }
        const bool is_own = made.n > 0 && s->blocks.data[made.data[made.n - 1]].size_bytes == b->size_bytes;
        t->needed_event[block] = begin_event > gone_event ? begin_event : gone_event + 1;
        t->used_event[block] = is_own ? t->needed_event[block] : b->died_event + 1;
        gone_event = b->died_event;
    }
    EBB_VEC_FINI(s->mem, &made);
    return st;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static bool is_of_forward(const trial *t, size_t block) {
    const study_block *b = &t->study->blocks.data[block];
    if (t->purpose[block] != PURPOSE_ACTIVATION || b->size_bytes == 0) { return false; }
    return !t->modules.by_name || ebb__study_birth_phase(t->study, block) != EBB_TRACE_PHASE_BACKWARD;
}

/* last_leaf: of the block before, which is of the same operator if it has the same one. */
static bool begins_again(const call *c, uint32_t leaf, uint32_t last_leaf) {
    return c->has_places && leaf == c->first_leaf && leaf != last_leaf;
}

static ebb_status add_to_call(trial *t, size_t block, uint32_t module, uint32_t place, uint32_t *open) {
    const ebb_study *s = t->study;
    const study_block *b = &s->blocks.data[block];
    if (*open == 0) {
        const call c = {.module = module,
                        .begin_event = made_event(t, block),
                        .end_event = UINT64_MAX,
                        .needed_event = UINT64_MAX,
                        .first_leaf = advice_leaf_of(&t->modules, b),
                        .first_place = place,
                        .given_block = STUDY_NONE};
        EBB_TRY(EBB_PUSH(s->mem, &t->calls, c));
        *open = (uint32_t)t->calls.n;
    }
    call *c = &t->calls.data[*open - 1];
    c->has_places = c->has_places || place == 0 || place != c->first_place;
    c->is_live = c->is_live || b->live_at_peak;
    t->of_block[block] = *open;
    return EBB_OK;
}

static ebb_status find_calls(trial *t, uint64_t kinds) {
    const ebb_study *s = t->study;
    uint32_t open = 0, last_leaf = 0;
    t->calls.n = 0;
    for (size_t i = 0; i < s->blocks.n; i++) {
        const study_block *b = &s->blocks.data[i];
        const uint32_t leaf = advice_leaf_of(&t->modules, b);
        uint32_t place = 0;
        const uint32_t module = is_of_forward(t, i) ? ebb__advice_module_of(&t->modules, b, kinds, &place) : 0;
        t->of_block[i] = 0;
        if (b->before) { continue; }
        call *c = open != 0 ? &t->calls.data[open - 1] : NULL;
        if (c != NULL && (c->module != module || begins_again(c, leaf, last_leaf))) {
            c->end_event = made_event(t, i);
            open = 0;
        }
        if (module != 0) { EBB_TRY(add_to_call(t, i, module, place, &open)); }
        last_leaf = leaf;
    }
    return EBB_OK;
}

/* Whether the block is there after the call, so that the forward pass, or the backward pass, can use it. */
static bool outlives_call(const trial *t, size_t block) {
    const call *c = &t->calls.data[t->of_block[block] - 1];
    return c->end_event != UINT64_MAX && t->study->blocks.data[block].died_event > c->end_event;
}

/* A step of what comes after the call may begin before it makes the block with which the call ends. */
static bool is_read_later(const trial *t, size_t block) {
    return t->has_reads && t->done_event[block] >= t->calls.data[t->of_block[block] - 1].end_event;
}

/* What a call gives where no step of the forward pass reads it later: what outlives the call and goes first. */
static void find_given(trial *t) {
    const ebb_study *s = t->study;
    for (size_t i = 0; i < s->blocks.n; i++) {
        if (t->of_block[i] == 0 || !outlives_call(t, i)) { continue; }
        call *c = &t->calls.data[t->of_block[i] - 1];
        if (c->given_block == STUDY_NONE) { c->given_block = (uint32_t)i; }
        const bool was_read = is_read_later(t, c->given_block), is_read = is_read_later(t, i);
        const bool goes_first = s->blocks.data[i].died_event < s->blocks.data[c->given_block].died_event;
        if (is_read != was_read ? is_read : goes_first) { c->given_block = (uint32_t)i; }
    }
}

/* When the call's own backward pass first reads what it gave, as that of a ReLU does; UINT64_MAX: never. */
static uint64_t own_read_of(const trial *t, const call *c) {
    const ebb_study *s = t->study;
    if (!t->has_reads || c->given_block == STUDY_NONE) { return UINT64_MAX; }
    for (size_t i = s->blocks.data[c->given_block].first_access; i < study_first_access(s, c->given_block + 1); i++) {
        const study_step *step = step_at(s, i);
        if (step == NULL || step->phase != EBB_TRACE_PHASE_BACKWARD) { continue; }
        if (ebb__advice_module_has_step(&t->modules, c->module, step)) { return step->begin_event; }
    }
    return UINT64_MAX;
}

/* Until when the forward pass uses what a call drops: it runs again up to there. */
static uint64_t last_event_of(const trial *t, size_t block) {
    const uint32_t born_event = t->study->blocks.data[block].born_event;
    return t->has_reads ? ebb_max_u64(born_event, t->used_event[block]) : born_event;
}

static void find_fates(trial *t) {
    for (size_t i = 0; i < t->study->blocks.n; i++) {
        t->fate[i] = FATE_NONE;
        if (t->of_block[i] == 0) { continue; }
        call *c = &t->calls.data[t->of_block[i] - 1];
        const bool is_needed = t->needed_event[i] != STUDY_NONE, outlives = outlives_call(t, i);
        if (c->given_block == i || is_read_later(t, i)) {
            t->fate[i] = FATE_GIVEN;
        } else if (!outlives || !is_needed) {
            t->fate[i] =
                outlives ? FATE_GIVEN : FATE_SHORT; /* something else holds what the backward pass never reads */
        } else {
            t->fate[i] = FATE_DROPPED;
            c->until_event = ebb_max_u64(c->until_event, t->study->blocks.data[i].died_event);
            c->last_event = ebb_max_u64(c->last_event, last_event_of(t, i));
            c->dropped_bytes = study_add(c->dropped_bytes, t->study->blocks.data[i].size_bytes);
            c->needed_event = ebb_min_u64(c->needed_event, t->needed_event[i]);
        }
    }
    for (size_t i = 0; i < t->calls.n; i++) {
        call *c = &t->calls.data[i];
        if (c->until_event == 0) { continue; }
        if (t->has_reads) {
            c->needed_event = ebb_min_u64(c->needed_event, own_read_of(t, c));
        } else {
            c->needed_event = ebb_min_u64(c->needed_event, t->used_event[c->given_block]);
            c->needed_event = ebb_max_u64(c->needed_event, c->end_event);
        }
    }
}

/* ---- running again ---------------------------------------------------------------------------- */

/* What a call holds at most when it runs again: all that it drops, and for a moment what it frees itself. It stops once
 * it has all that it dropped. */
static void find_most(trial *t) {
    const ebb_study *s = t->study;
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t block = s->log.data[i] >> 1;
        if (t->fate[block] != FATE_DROPPED && t->fate[block] != FATE_SHORT) { continue; }
        if (s->blocks.data[block].born_event > t->calls.data[t->of_block[block] - 1].last_event) { continue; }
        call *c = &t->calls.data[t->of_block[block] - 1];
        if ((s->log.data[i] & 1u) == 0) {
            c->again_bytes = study_add(c->again_bytes, s->blocks.data[block].size_bytes);
            c->most_bytes = ebb_max_u64(c->most_bytes, c->again_bytes);
        } else if (t->fate[block] == FATE_SHORT) {
            c->again_bytes -= s->blocks.data[block].size_bytes;
        }
    }
}

static ebb_status change(trial *t, uint64_t event, uint64_t bytes, bool goes) {
    return EBB_PUSH(t->study->mem, &t->changes, ((advice_change){event, bytes, goes}));
}

/* The first call that ends after this event; NULL: none. */
static const call *call_at(const trial *t, uint64_t event) {
    size_t first = 0, last = t->calls.n;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (t->calls.data[middle].end_event > event) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    return first < t->calls.n ? &t->calls.data[first] : NULL;
}

/* The earliest of the calls that this block enters, which runs again last; NULL: it enters none. */
static const call *entered_call(const trial *t, size_t block) {
    const ebb_study *s = t->study;
    const study_block *b = &s->blocks.data[block];
    const call *own = t->of_block[block] != 0 ? &t->calls.data[t->of_block[block] - 1] : NULL;
    if (!t->has_reads) { /* it goes as soon as a call has used it */
        const call *c = call_at(t, (uint64_t)b->died_event - 1);
        return c != NULL && c != own && c->begin_event < b->died_event && b->born_event < c->begin_event ? c : NULL;
    }
    for (size_t i = b->first_access; i < study_first_access(s, block + 1); i++) {
        const study_step *step = step_at(s, i);
        if (step == NULL || step->phase == EBB_TRACE_PHASE_BACKWARD) { continue; }
        const call *c = call_at(t, step->begin_event);
        if (c != NULL && c != own && c->begin_event <= step->begin_event) { return c; }
    }
    return NULL;
}

/* What enters a call that runs again stays until that is over. */
static ebb_status keep_entering(trial *t) {
    const ebb_study *s = t->study;
    for (size_t i = 0; i < s->blocks.n; i++) {
        const study_block *b = &s->blocks.data[i];
        const bool may_go = t->purpose[i] == PURPOSE_ACTIVATION && b->died_event != STUDY_NONE && b->size_bytes > 0;
        if (!may_go || t->fate[i] == FATE_DROPPED || t->fate[i] == FATE_SHORT) { continue; }
        const call *c = entered_call(t, i);
        if (c == NULL || c->until_event <= b->died_event) { continue; }
        EBB_TRY(change(t, (uint64_t)b->died_event + 1, b->size_bytes, false));
        EBB_TRY(change(t, c->until_event + 1, b->size_bytes, true));
    }
    return EBB_OK;
}

/* The peak with a checkpoint around each module of these kinds. */
static ebb_status try_kinds(trial *t, uint64_t kinds, uint64_t *peak_bytes_out) {
    const ebb_study *s = t->study;
    t->changes.n = 0;
    EBB_TRY(find_calls(t, kinds));
    find_given(t);
    find_fates(t);
    find_most(t);
    for (size_t i = 0; i < s->blocks.n; i++) {
        if (t->fate[i] != FATE_DROPPED) { continue; }
        const study_block *b = &s->blocks.data[i];
        const call *c = &t->calls.data[t->of_block[i] - 1];
        const uint64_t gone_event = t->has_reads ? last_event_of(t, i) + 1 : c->end_event;
        if (gone_event >= c->needed_event || c->needed_event >= b->died_event) { continue; }
        EBB_TRY(change(t, gone_event, b->size_bytes, true));
        EBB_TRY(change(t, c->needed_event, b->size_bytes, false));
    }
    for (size_t i = 0; i < t->calls.n; i++) {
        const call *c = &t->calls.data[i];
        if (c->until_event == 0 || c->most_bytes <= c->dropped_bytes) { continue; }
        EBB_TRY(change(t, c->needed_event, c->most_bytes - c->dropped_bytes, false));
        EBB_TRY(change(t, c->needed_event + 1, c->most_bytes - c->dropped_bytes, true));
    }
    EBB_TRY(keep_entering(t));
    return ebb__study_peak_changed(s, &t->changes, peak_bytes_out);
}

/* ---- words ------------------------------------------------------------------------------------ */

static bool has_label(const study_holders *holders, const char *label) {
    for (size_t i = 0; i < holders->n; i++) {
        if (strcmp(holders->data[i].label, label) == 0) { return true; }
    }
    return false;
}

/* The modules with something at the peak, in the order in which the program has them. */
static ebb_status list_modules(trial *t, study_holders *holders) {
    ebb_study *s = t->study;
    bool *is_live = ebb__calloc(s->mem, t->modules.all.n, sizeof *is_live);
    if (is_live == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = EBB_OK;
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->of_block[b] == 0 || !s->blocks.data[b].live_at_peak) { continue; }
        is_live[t->calls.data[t->of_block[b] - 1].module] = true;
    }
    for (uint32_t module = 0; module < t->modules.all.n && st == EBB_OK; module++) {
        if (!is_live[module]) { continue; }
        const ebb_study_holder h = {.label = ebb__advice_module_label(&t->modules, module), .bytes = 1};
        if (h.label == NULL) {
            st = EBB_E_NO_MEMORY;
        } else if (!has_label(holders, h.label)) {
            st = EBB_PUSH(s->mem, holders, h);
        }
    }
    ebb__free(s->mem, is_live);
    return st;
}

static size_t n_live_calls(const trial *t) {
    size_t n = 0;
    for (size_t i = 0; i < t->calls.n; i++) { n += t->calls.data[i].is_live; }
    return n;
}

/* What these calls made of the peak. */
static uint64_t called_bytes(const trial *t) {
    uint64_t bytes = 0;
    for (size_t b = 0; b < t->study->blocks.n; b++) {
        const study_block *block = &t->study->blocks.data[b];
        if (t->of_block[b] != 0 && block->live_at_peak) { bytes = study_add(bytes, block->size_bytes); }
    }
    return bytes;
}

/* By classes, operators or functions. */
static bool has_batch_norm(const ebb_study *s) {
    for (size_t i = 0; i < s->classes.n; i++) {
        if (strstr(s->classes.data[i], "BatchNorm") != NULL) { return true; }
    }
    for (size_t i = 0; i < s->steps.n; i++) {
        if (strstr(ebb_trace_reader_string(s->reader, s->steps.data[i].op), "batch_norm") != NULL) { return true; }
    }
    for (uint32_t stack = 1; stack <= s->max_stack; stack++) {
        const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
        if (strstr(ebb_trace_reader_string(s->reader, f.function), "batch_norm") != NULL) { return true; }
    }
    return false;
}

static ebb_status tell(trial *t, uint64_t kinds) {
    ebb_study *s = t->study;
    const uint64_t peak_bytes = s->summary.peak_bytes;
    uint64_t least_bytes = 0;
    advice_names names = {.first = ""};
    study_holders holders = {.n = 0};
    ebb_status st = try_kinds(t, kinds, &least_bytes);
    if (st == EBB_OK) { st = list_modules(t, &holders); }
    if (st == EBB_OK) { st = ebb__study_name_holders(s, &holders, &names); }
    EBB_VEC_FINI(s->mem, &holders);
    EBB_TRY(st);
    const size_t n_live = n_live_calls(t);
    char from[ADVICE_BYTES_CHARS], held[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "checkpoint", peak_bytes - least_bytes,
        ebb__bump_printf(
            &s->bump,
            "%s of the %s at the peak are activations that wait for the backward pass and that %s made: "
            "calling %s%s through torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False) keeps "
            "what comes out of %s and computes the rest again; the peak would be about %s%s",
            ebb_bytes_format(called_bytes(t), held, sizeof held), ebb_bytes_format(peak_bytes, from, sizeof from),
            n_live > 1 ? "these modules" : "one module", n_live > 1 ? "each of " : "", names.first,
            n_live > 1 ? "each" : "it", ebb_bytes_format(least_bytes, to, sizeof to),
            has_batch_norm(s) ? "; batch norm updates its running statistics twice then, which changes what "
                                "evaluation gives"
                              : ""),
        &names);
}

/* ---- the search ------------------------------------------------------------------------------- */

typedef struct candidate {
    uint64_t bytes; /* of its modules' activations; then the peak with it alone */
    uint32_t kind;
} candidate;

static uint64_t falling_bytes(const void *item) {
    return ~((const candidate *)item)->bytes;
}

static uint64_t rising_bytes(const void *item) {
    return ((const candidate *)item)->bytes;
}

/* Whether the calls that were tried last are one, which makes nearly all that waits at the peak. */
static bool is_whole_network(const trial *t) {
    return n_live_calls(t) <= 1 && (double)called_bytes(t) >= WHOLE_SHARE * (double)t->waiting_bytes;
}

/* The kinds with most bytes, each with the peak that it would bring alone. */
static ebb_status find_candidates(trial *t, candidate *candidates, size_t *n_out) {
    const ebb_study *s = t->study;
    size_t n = 0, n_kept = 0;
    for (uint32_t kind = 1; kind <= t->modules.kinds.n; kind++) {
        const advice_kind *k = &t->modules.kinds.data[kind - 1];
        if ((k->nests >> (kind - 1) & 1u) == 0) { candidates[n++] = (candidate){k->bytes, kind}; }
    }
    EBB_TRY(ebb__sort_items(s->mem, candidates, n, sizeof *candidates, falling_bytes));
    for (size_t i = 0; i < n && i < MAX_TRIED; i++) {
        candidate c = candidates[i];
        EBB_TRY(try_kinds(t, (uint64_t)1 << (c.kind - 1), &c.bytes));
        if (c.bytes < s->summary.peak_bytes && !is_whole_network(t)) { candidates[n_kept++] = c; }
    }
    *n_out = n_kept;
    return ebb__sort_items(s->mem, candidates, n_kept, sizeof *candidates, rising_bytes);
}

static ebb_status search(trial *t) {
    const uint64_t peak_bytes = t->study->summary.peak_bytes;
    candidate candidates[ADVICE_MAX_KINDS];
    uint64_t least_bytes = peak_bytes, kinds = 0;
    size_t n = 0;
    EBB_TRY(find_candidates(t, candidates, &n));
    for (size_t i = 0; i < n; i++) {
        const uint64_t bit = (uint64_t)1 << (candidates[i].kind - 1);
        uint64_t bytes = 0;
        if ((t->modules.kinds.data[candidates[i].kind - 1].nests & kinds) != 0) { continue; }
        EBB_TRY(try_kinds(t, kinds | bit, &bytes));
        if ((double)bytes > (double)least_bytes - MIN_KIND_SHARE * (double)peak_bytes) { continue; }
        least_bytes = bytes;
        kinds |= bit;
    }
    const bool is_worth = (double)least_bytes < (1.0 - MIN_SHARE) * (double)peak_bytes;
    return is_worth ? tell(t, kinds) : EBB_OK;
}

static ebb_status prepare(trial *t) {
    const ebb_study *s = t->study;
    const size_t n = s->blocks.n;
    t->used_event = ebb__alloc(s->mem, n, sizeof *t->used_event);
    t->done_event = ebb__alloc(s->mem, n, sizeof *t->done_event);
    t->needed_event = ebb__alloc(s->mem, n, sizeof *t->needed_event);
    t->of_block = ebb__alloc(s->mem, n, sizeof *t->of_block);
    t->fate = ebb__alloc(s->mem, n, sizeof *t->fate);
    const bool has_events = t->used_event != NULL && t->done_event != NULL && t->needed_event != NULL;
    if (!has_events || t->of_block == NULL || t->fate == NULL) { return EBB_E_NO_MEMORY; }
    t->has_reads = study_tells(s, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
    if (!t->has_reads) { EBB_TRY(find_uses_by_deaths(t)); }
    for (size_t b = 0; b < n; b++) {
        if (t->has_reads) { find_uses(t, b); }
        if (t->purpose[b] != PURPOSE_ACTIVATION || !s->blocks.data[b].live_at_peak) { continue; }
        t->waiting_bytes = study_add(t->waiting_bytes, s->blocks.data[b].size_bytes);
    }
    return EBB_OK;
}

ebb_status ebb__study_advise_checkpoint(ebb_study *s, const uint8_t *purpose) {
    trial t = {.study = s, .purpose = purpose};
    bool found = false;
    ebb_status st = ebb__advice_modules_find(&t.modules, s, purpose, &found);
    if (st == EBB_OK && found) { st = prepare(&t); }
    if (st == EBB_OK && found) { st = search(&t); }
    ebb__advice_modules_fini(&t.modules);
    EBB_VEC_FINI(s->mem, &t.calls);
    EBB_VEC_FINI(s->mem, &t.changes);
    ebb__free(s->mem, t.used_event);
    ebb__free(s->mem, t.done_event);
    ebb__free(s->mem, t.needed_event);
    ebb__free(s->mem, t.of_block);
    ebb__free(s->mem, t.fate);
    return st;
}
