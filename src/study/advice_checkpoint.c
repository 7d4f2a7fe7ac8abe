/* SPDX-License-Identifier: Apache-2.0
 *
 * Which modules of a PyTorch program to run inside of torch.utils.checkpoint, and what the peak would be.
 *
 * Activations are grouped by the module that made them, once for each depth of nesting: by the first parts of their
 * name (layer1.0 of layer1.0.conv1.convolution), or where the source names nothing by their call stack, up to the frame
 * of a module's forward. A group's calls are told apart by what the module itself does again, and by what it gave being
 * gone.
 *
 *      a call      | a | b | c | d |       a checkpoint around it keeps d, what the next one takes, and has a, b, c
 * again while its backward runs
 *
 * So the peak is that of a recording where a, b and c are gone from behind d until the backward pass first needs one of
 * them, when all of them come back, and d a second time. It is not above that of a recording without a, b and c of any
 * call, and with those of the largest call all the time. The depth at which it is least is told. It is an estimate:
 * what else enters a module is there already, and what a call frees before its end counts as kept.
 *
 * A module that runs its forward inside of the backward pass is checkpointed already: what holds it, or it holds, stays
 * as it is.
 */
#include "study/advice.h"

#include "trace/trace.h"

#include <limits.h>

#define MAX_DEPTH 6u
#define MIN_SHARE 0.05 /* of the peak: less than that an estimate does not tell */
#define MAX_CALLS 4u   /* from a module's forward to the frame of the module, _call_impl and its like between them */

typedef struct call {
    uint64_t bytes;
    uint64_t needed_event, until_event; /* computed again: from then, to then; UINT64_MAX: never */
    uint32_t last_block, group;
} call;

/* What is below a stack's frame: a step of the backward pass; a checkpoint, or a module inside of such a step. */
enum { IS_BACKWARD = 1, IS_AGAIN = 2 };

/* The groups and calls of one depth, and what the peak would be then. */
typedef struct trial {
    ebb_study *study;
    const uint8_t *purpose;
    bool by_name;
    unsigned depth;
    size_t n_leaves;    /* above all numbers of names, or of stacks */
    uint32_t *group_of; /* [n_leaves]: of this depth; 0: none */
    uint32_t *call_of;  /* [n_leaves]: of the leaf's last block, from 1 */
    uint32_t *frame_of; /* [n_leaves]: the frame that a stack is grouped by */
    uint8_t *depth_of;  /* [n_leaves]: modules' frames of a stack */
    uint8_t *quarters;  /* [blocks.n] */
    uint8_t *again_of;  /* [n_leaves]: IS_... of a stack */
    uint32_t *of_block; /* [blocks.n]: its call, from 1; 0: none */
    advice_changes changes;
    EBB_VEC(bool) is_done; /* of groups: checkpointed already */
    EBB_VEC(call) calls;
    EBB_VEC(uint32_t) current; /* of groups: its call, from 1 */
    ebb_trace_keys keys;
} trial;

static uint32_t leaf_of(const trial *t, const study_block *b) {
    return t->by_name ? b->name : b->stack;
}

/* ---- groups ----------------------------------------------------------------------------------- */

/* Of "a.b.c.op" at depth 2: "a.b". The last part is what the module did, and not of its name. */
static size_t prefix_length(const char *name, unsigned depth) {
    size_t n = 0;
    for (size_t i = 0; name[i] != '\0'; i++) {
        if (name[i] != '.') { continue; }
        n = i;
        if (--depth == 0) { break; }
    }
    return n;
}

static uint8_t again_by(const trial *t, uint32_t stack, uint32_t caller) {
    const ebb_study *s = t->study;
    const advice_frame here = ebb__study_frame_of(s, stack);
    const char *file = ebb_trace_reader_string(s->reader, ebb_trace_reader_frame(s->reader, stack).file);
    uint8_t is = t->again_of[caller];
    if (here == FRAME_BACKWARD) { is |= IS_BACKWARD; }
    if (here == FRAME_FORWARD && (is & IS_BACKWARD) != 0) { is |= IS_AGAIN; }
    if (strstr(file, "torch/utils/checkpoint.py") != NULL) { is |= IS_AGAIN; }
    return is;
}

/* The deepest of a stack's module frames that is no deeper than that. A frame's caller has a smaller number. */
static void find_frames(trial *t) {
    const ebb_study *s = t->study;
    t->frame_of[0] = t->depth_of[0] = t->again_of[0] = 0;
    for (uint32_t stack = 1; stack < t->n_leaves; stack++) {
        const uint32_t caller = ebb_trace_reader_frame(s->reader, stack).caller;
        const bool is_module = ebb__study_frame_of(s, stack) == FRAME_FORWARD && t->depth_of[caller] < UINT8_MAX;
        EBB_ASSERT(caller < stack);
        t->depth_of[stack] = (uint8_t)(t->depth_of[caller] + is_module);
        t->again_of[stack] = again_by(t, stack, caller);
        t->frame_of[stack] = is_module && t->depth_of[stack] <= t->depth ? stack : t->frame_of[caller];
    }
}

static ebb_status find_group(trial *t, uint32_t leaf, uint32_t *group_out) {
    bool is_new = false;
    *group_out = 0;
    if (t->by_name) {
        const char *name = ebb_trace_reader_string(t->study->reader, leaf);
        const size_t n = prefix_length(name, t->depth);
        return n > 0 ? ebb__trace_keys_add(&t->keys, name, n, group_out, &is_new) : EBB_OK;
    }
    if (t->frame_of[leaf] == 0) { return EBB_OK; }
    const ebb_trace_frame f = ebb_trace_reader_frame(t->study->reader, t->frame_of[leaf]);
    const uint32_t key[] = {f.caller, f.function, f.file}; /* whatever line of it runs */
    return ebb__trace_keys_add(&t->keys, key, sizeof key, group_out, &is_new);
}

/* ---- calls ------------------------------------------------------------------------------------ */

/* Whether the module of this depth did it itself. What its modules do may come again in a loop over them. */
static bool is_direct(const trial *t, uint32_t leaf) {
    if (!t->by_name) { return t->depth_of[leaf] <= t->depth; }
    const char *name = ebb_trace_reader_string(t->study->reader, leaf);
    return prefix_length(name, t->depth) == prefix_length(name, UINT_MAX);
}

/* Whether what a call gave was gone before this block came: its backward pass has been. */
static bool is_over(const trial *t, uint32_t number, const study_block *b) {
    return t->study->blocks.data[t->calls.data[number - 1].last_block].died_event < b->born_event;
}

/* The group of a block is found, and whether it is computed again already. */
static ebb_status note_group(trial *t, size_t block) {
    const uint32_t leaf = leaf_of(t, &t->study->blocks.data[block]);
    uint32_t *group = &t->group_of[leaf];
    if (*group == 0) { EBB_TRY(find_group(t, leaf, group)); }
    while (t->is_done.n <= *group) { EBB_TRY(EBB_PUSH(t->study->mem, &t->is_done, false)); }
    const bool is_again = t->by_name ? ebb__study_birth_phase(t->study, block) == EBB_TRACE_PHASE_BACKWARD
                                     : (t->again_of[leaf] & IS_AGAIN) != 0;
    if (is_again && *group != 0) { t->is_done.data[*group] = true; }
    return EBB_OK;
}

static ebb_status add_to_call(trial *t, size_t block, uint32_t group) {
    const study_block *b = &t->study->blocks.data[block];
    const uint32_t leaf = leaf_of(t, b);
    while (t->current.n <= group) { EBB_TRY(EBB_PUSH(t->study->mem, &t->current, 0)); }
    uint32_t *current = &t->current.data[group];
    const bool comes_again = *current != 0 && t->call_of[leaf] == *current && is_direct(t, leaf);
    if (*current == 0 || comes_again || is_over(t, *current, b)) {
        EBB_TRY(EBB_PUSH(t->study->mem, &t->calls, ((call){.group = group, .needed_event = UINT64_MAX})));
        *current = (uint32_t)t->calls.n;
    }
    t->call_of[leaf] = t->of_block[block] = *current;
    call *c = &t->calls.data[*current - 1];
    c->bytes = study_add(c->bytes, b->size_bytes);
    c->last_block = (uint32_t)block;
    return EBB_OK;
}

static void begin_depth(trial *t, unsigned depth) {
    t->depth = depth;
    ebb__trace_keys_fini(&t->keys);
    ebb__trace_keys_init(&t->keys, t->study->mem);
    t->calls.n = t->current.n = t->is_done.n = t->changes.n = 0;
    memset(t->of_block, 0, t->study->blocks.n * sizeof *t->of_block);
    memset(t->call_of, 0, t->n_leaves * sizeof *t->call_of);
    memset(t->group_of, 0, t->n_leaves * sizeof *t->group_of);
    memset(t->quarters, 4, t->study->blocks.n);
    if (!t->by_name) { find_frames(t); }
}

static ebb_status find_calls(trial *t) {
    const ebb_study *s = t->study;
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->purpose[b] == PURPOSE_ACTIVATION && s->blocks.data[b].size_bytes > 0) { EBB_TRY(note_group(t, b)); }
    }
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->purpose[b] != PURPOSE_ACTIVATION || s->blocks.data[b].size_bytes == 0) { continue; }
        const uint32_t group = t->group_of[leaf_of(t, &s->blocks.data[b])];
        if (group == 0 || t->is_done.data[group]) { continue; }
        EBB_TRY(add_to_call(t, b, group));
        t->quarters[b] = 0;
    }
    return EBB_OK;
}

/* ---- the peak --------------------------------------------------------------------------------- */

/* The step of the backward pass that reads it first; UINT64_MAX: none. */
static uint64_t first_needed(const ebb_study *s, size_t block) {
    for (size_t i = s->blocks.data[block].first_access; i < study_first_access(s, block + 1); i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        const uint32_t step = study_step_of(a);
        const bool is_backward = step != STUDY_NO_STEP && s->steps.data[step].phase == EBB_TRACE_PHASE_BACKWARD;
        if (is_backward && study_touch_of(a) == TOUCH_READ) { return s->steps.data[step].begin_event; }
    }
    return UINT64_MAX;
}

/* Where no reads are told: when what the call gave is gone, whose last reader runs right before. */
static void find_needed(trial *t) {
    const ebb_study *s = t->study;
    const bool has_reads = study_tells(s, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->of_block[b] == 0) { continue; }
        call *c = &t->calls.data[t->of_block[b] - 1];
        const bool is_last = c->last_block == b;
        if (has_reads && !is_last) { c->needed_event = ebb_min_u64(c->needed_event, first_needed(s, b)); }
        if (!has_reads && is_last) { c->needed_event = s->blocks.data[b].died_event; }
    }
}

static ebb_status change(trial *t, uint64_t event, uint64_t bytes, bool goes) {
    return EBB_PUSH(t->study->mem, &t->changes, ((advice_change){event, bytes, goes}));
}

static ebb_status peak_by_time(trial *t, uint64_t *peak_bytes_out) {
    const ebb_study *s = t->study;
    find_needed(t);
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->of_block[b] == 0) { continue; }
        call *c = &t->calls.data[t->of_block[b] - 1];
        const study_block *block = &s->blocks.data[b];
        const uint64_t given_event = (uint64_t)s->blocks.data[c->last_block].born_event + 1;
        const bool waits = given_event < c->needed_event && c->needed_event < block->died_event;
        if (c->last_block == b || c->needed_event == UINT64_MAX || !waits) { continue; }
        EBB_TRY(change(t, given_event, block->size_bytes, true));
        EBB_TRY(change(t, c->needed_event, block->size_bytes, false));
        c->until_event = ebb_max_u64(c->until_event, block->died_event);
    }
    for (size_t i = 0; i < t->calls.n; i++) {
        const call *c = &t->calls.data[i];
        if (c->until_event == 0) { continue; }
        EBB_TRY(change(t, c->needed_event, s->blocks.data[c->last_block].size_bytes, false));
        EBB_TRY(change(t, c->until_event, s->blocks.data[c->last_block].size_bytes, true));
    }
    return ebb__study_peak_changed(s, &t->changes, peak_bytes_out);
}

/* The peak with a checkpoint around each module of this depth. */
static ebb_status try_depth(trial *t, unsigned depth, uint64_t *peak_bytes_out) {
    const ebb_study *s = t->study;
    uint64_t most_bytes = 0, by_time_bytes = 0;
    begin_depth(t, depth);
    EBB_TRY(find_calls(t));
    for (size_t i = 0; i < t->calls.n; i++) {
        const call *c = &t->calls.data[i];
        const uint64_t kept_bytes = s->blocks.data[c->last_block].size_bytes;
        EBB_ASSERT(kept_bytes <= c->bytes);
        t->quarters[c->last_block] = 4;
        most_bytes = ebb_max_u64(most_bytes, c->bytes - kept_bytes);
    }
    EBB_TRY(peak_by_time(t, &by_time_bytes));
    *peak_bytes_out = ebb_min_u64(by_time_bytes, study_add(ebb__study_peak_with(s, t->quarters), most_bytes));
    return EBB_OK;
}

/* ---- words ------------------------------------------------------------------------------------ */

/* What PyTorch's profiler calls the module of a forward, in a frame of its own around it; NULL: it does not. */
static const char *profiled_module(const ebb_study *s, uint32_t frame) {
    static const char prefix[] = "nn.Module: ";
    for (unsigned i = 0; i < MAX_CALLS && frame != 0; i++) {
        const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, frame);
        const char *function = ebb_trace_reader_string(s->reader, f.function);
        if (study_begins_with(function, prefix)) { return function + sizeof prefix - 1; }
        frame = f.caller;
    }
    return NULL;
}

static const char *label_of(trial *t, uint32_t leaf) {
    ebb_study *s = t->study;
    const char *name = ebb_trace_reader_string(s->reader, leaf);
    if (t->by_name) { return ebb__study_module_label(s, name, prefix_length(name, t->depth)); }
    const char *module = profiled_module(s, t->frame_of[leaf]);
    return module != NULL ? module : ebb__study_frame_label(s, t->frame_of[leaf], &s->bump);
}

/* What of each group lives at the peak, in the order in which the program has them. Groups are numbered from 1. */
static ebb_status list_groups(trial *t, study_holders *holders, uint64_t *bytes_out) {
    ebb_study *s = t->study;
    while (holders->n + 1 < t->current.n) { EBB_TRY(EBB_PUSH(s->mem, holders, ((ebb_study_holder){.label = ""}))); }
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        const uint32_t leaf = leaf_of(t, block);
        if (t->purpose[b] != PURPOSE_ACTIVATION || !block->live_at_peak) { continue; }
        *bytes_out = study_add(*bytes_out, block->size_bytes);
        if (t->of_block[b] == 0) { continue; }
        ebb_study_holder *h = &holders->data[t->group_of[leaf] - 1];
        if (h->n_blocks++ == 0) { h->label = label_of(t, leaf); }
        if (h->label == NULL) { return EBB_E_NO_MEMORY; }
        h->bytes = study_add(h->bytes, block->size_bytes);
    }
    return EBB_OK;
}

static ebb_status tell(trial *t, unsigned depth) {
    ebb_study *s = t->study;
    const uint64_t peak_bytes = s->summary.peak_bytes;
    uint64_t least_bytes = 0, bytes = 0;
    advice_names names = {.first = ""};
    study_holders holders = {.n = 0};
    ebb_status st = try_depth(t, depth, &least_bytes);
    if (st == EBB_OK) { st = list_groups(t, &holders, &bytes); }
    if (st == EBB_OK) { st = ebb__study_name_holders(s, &holders, &names); }
    EBB_VEC_FINI(s->mem, &holders);
    EBB_TRY(st);
    char from[ADVICE_BYTES_CHARS], held[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "checkpoint", peak_bytes - least_bytes,
        ebb__bump_printf(&s->bump,
                         "%s of the %s at the peak are activations that wait for the backward pass: calling each of %s "
                         "through torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False) keeps what comes "
                         "out of it and computes the rest again; the peak would be about %s",
                         ebb_bytes_format(bytes, held, sizeof held), ebb_bytes_format(peak_bytes, from, sizeof from),
                         names.first, ebb_bytes_format(least_bytes, to, sizeof to)),
        &names);
}

/* ---- the door --------------------------------------------------------------------------------- */

static ebb_status search(trial *t) {
    const uint64_t peak_bytes = t->study->summary.peak_bytes;
    uint64_t least_bytes = UINT64_MAX;
    unsigned best = 0;
    for (unsigned depth = 1; depth <= MAX_DEPTH; depth++) {
        uint64_t bytes = 0;
        EBB_TRY(try_depth(t, depth, &bytes));
        if (bytes >= least_bytes) { continue; }
        least_bytes = bytes;
        best = depth;
    }
    const bool is_worth = (double)least_bytes < (1.0 - MIN_SHARE) * (double)peak_bytes;
    return is_worth ? tell(t, best) : EBB_OK;
}

/* By names where most activations have one, else by stacks. false: there is neither. */
static bool choose_leaves(trial *t) {
    const ebb_study *s = t->study;
    uint64_t n_named = 0, n_stacked = 0, n = 0;
    uint32_t max_name = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (t->purpose[b] != PURPOSE_ACTIVATION) { continue; }
        const study_block *block = &s->blocks.data[b];
        n++;
        n_named += strchr(ebb_trace_reader_string(s->reader, block->name), '.') != NULL;
        n_stacked += block->stack != 0;
        max_name = block->name > max_name ? block->name : max_name;
    }
    t->by_name = n_named * 2 > n;
    t->n_leaves = (size_t)(t->by_name ? max_name : s->max_stack) + 1;
    return t->by_name || n_stacked > 0;
}

ebb_status ebb__study_advise_checkpoint(ebb_study *s, const uint8_t *purpose) {
    trial t = {.study = s, .purpose = purpose};
    if (!choose_leaves(&t)) { return EBB_OK; }
    t.group_of = ebb__alloc(s->mem, t.n_leaves, sizeof *t.group_of);
    t.call_of = ebb__alloc(s->mem, t.n_leaves, sizeof *t.call_of);
    t.frame_of = ebb__alloc(s->mem, t.n_leaves, sizeof *t.frame_of);
    t.depth_of = ebb__alloc(s->mem, t.n_leaves, sizeof *t.depth_of);
    t.quarters = ebb__alloc(s->mem, s->blocks.n, sizeof *t.quarters);
    t.again_of = ebb__alloc(s->mem, t.n_leaves, sizeof *t.again_of);
    t.of_block = ebb__alloc(s->mem, s->blocks.n, sizeof *t.of_block);
    ebb__trace_keys_init(&t.keys, s->mem);
    const bool has_all = t.group_of != NULL && t.call_of != NULL && t.frame_of != NULL && t.depth_of != NULL;
    const bool has_rest = t.quarters != NULL && t.again_of != NULL && t.of_block != NULL;
    const ebb_status st = has_all && has_rest ? search(&t) : EBB_E_NO_MEMORY;
    ebb__trace_keys_fini(&t.keys);
    EBB_VEC_FINI(s->mem, &t.calls);
    EBB_VEC_FINI(s->mem, &t.current);
    ebb__free(s->mem, t.group_of);
    ebb__free(s->mem, t.call_of);
    ebb__free(s->mem, t.frame_of);
    ebb__free(s->mem, t.depth_of);
    ebb__free(s->mem, t.quarters);
    ebb__free(s->mem, t.again_of);
    ebb__free(s->mem, t.of_block);
    EBB_VEC_FINI(s->mem, &t.changes);
    EBB_VEC_FINI(s->mem, &t.is_done);
    return st;
}
