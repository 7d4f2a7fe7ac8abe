/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program of PyTorch's could set or change for its peak: activations that leave meanwhile, the optimizer's
 * state, what its step needs, gradients that are kept through the forward pass. Each with the peak that the same
 * recording would have then, all else as it was. Checkpointing is advice_checkpoint.c.
 *
 * What a block is for says its role. Where none is told, as in a snapshot, its call stack does: what was allocated
 * below a module's forward and is freed again is an activation, what was allocated below an optimizer and lives longer
 * than an iteration is its state. An execution trace has no stacks, but passes that read and write: what a forward pass
 * makes is an activation if it goes again, and the rest is as infer_roles.c has it.
 */
#include "study/advice/advice.h"

#include "trace/trace.h"

#define FEW_TEMPS 4u /* this many are of one parameter */

/* ---- what blocks are for ---------------------------------------------------------------------- */

advice_frame ebb__study_frame_of(const ebb_study *s, uint32_t stack) {
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
    const char *function = ebb_trace_reader_string(s->reader, f.function);
    const char *file = ebb_trace_reader_string(s->reader, f.file);
    if (strcmp(function, "forward") == 0) { return FRAME_FORWARD; }
    if (strstr(file, "/optim/") != NULL || strstr(file, "/optimizers/") != NULL) { return FRAME_OPTIMIZER; }
    const bool is_engine = strstr(function, "autograd::Engine::") != NULL;
    const bool is_node = study_begins_with(function, "torch::autograd::generated::");
    return is_engine || is_node || strcmp(function, "backward") == 0 ? FRAME_BACKWARD : FRAME_ANY;
}

/* For each stack, the purpose by its innermost frame that tells one: blocks that are computed again are activations
 * too. */
static uint8_t *frames_of(const ebb_study *s) {
    const size_t n = (size_t)s->max_stack + 1;
    uint8_t *frame = ebb__alloc(s->mem, n, sizeof *frame);
    if (frame == NULL) { return NULL; }
    frame[0] = FRAME_ANY;
    for (uint32_t stack = 1; stack < n; stack++) {
        const advice_frame here = ebb__study_frame_of(s, stack);
        const uint32_t caller = ebb_trace_reader_frame(s->reader, stack).caller;
        EBB_ASSERT(caller < stack);
        frame[stack] = here != FRAME_ANY ? (uint8_t)here : frame[caller];
    }
    return frame;
}

uint32_t ebb__study_birth_phase(const ebb_study *s, size_t block) {
    const size_t first = s->blocks.data[block].first_access;
    if (first == study_first_access(s, block + 1)) { return EBB_TRACE_PHASE_UNKNOWN; }
    const uint32_t step = study_step_of(&s->accesses.data[s->by_block[first]]);
    return step != STUDY_NO_STEP ? s->steps.data[step].phase : (uint32_t)EBB_TRACE_PHASE_UNKNOWN;
}

static advice_purpose purpose_by_role(const ebb_study *s, size_t block) {
    const study_block *b = &s->blocks.data[block];
    if (b->role == EBB_ROLE_ACTIVATION) { return PURPOSE_ACTIVATION; }
    if (b->role == EBB_ROLE_OPTIMIZER_STATE) { return PURPOSE_STATE; }
    return b->role == EBB_ROLE_TEMP && ebb__study_birth_phase(s, block) == EBB_TRACE_PHASE_UPDATE ? PURPOSE_STEP_TEMP
                                                                                                  : PURPOSE_UNKNOWN;
}

static bool outlives_iteration(const ebb_study *s, const study_block *b) {
    if (b->died_event == STUDY_NONE) { return true; }
    return s->iteration.found && b->died_event - b->born_event > s->iteration.length_events;
}

static advice_purpose purpose_by_stack(const ebb_study *s, size_t block, const uint8_t *frame) {
    const study_block *b = &s->blocks.data[block];
    if (frame[b->stack] == FRAME_OPTIMIZER) { return outlives_iteration(s, b) ? PURPOSE_STATE : PURPOSE_STEP_TEMP; }
    const bool is_activation = frame[b->stack] == FRAME_FORWARD && !b->before && b->died_event != STUDY_NONE;
    return is_activation ? PURPOSE_ACTIVATION : PURPOSE_UNKNOWN;
}

/* What modules make is named after them, scratch that nothing reads and what is made again in the backward pass too;
 * gradients are named after an operator. */
static advice_purpose purpose_by_accesses(const ebb_study *s, size_t block) {
    const study_block *b = &s->blocks.data[block];
    const char *name = ebb_trace_reader_string(s->reader, b->name);
    const uint32_t phase = ebb__study_birth_phase(s, block);
    const bool has_module = ebb__trace_keys_find(&s->class_keys, name, ebb__study_module_length(b, name)) != 0;
    if (b->likely_role == EBB_ROLE_OPTIMIZER_STATE) { return PURPOSE_STATE; }
    if (phase == EBB_TRACE_PHASE_UPDATE) {
        return b->likely_role == EBB_ROLE_TEMP ? PURPOSE_STEP_TEMP : PURPOSE_UNKNOWN;
    }
    const bool is_made = phase == EBB_TRACE_PHASE_FORWARD || has_module;
    return is_made && !b->before && b->died_event != STUDY_NONE ? PURPOSE_ACTIVATION : PURPOSE_UNKNOWN;
}

/* Where neither roles nor stacks are told, what reads and writes say has to do. */
static bool has_only_accesses(const ebb_study *s) {
    return (s->summary.tells & (EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STACKS)) == 0 &&
           study_tells(s, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
}

static ebb_status find_purposes(const ebb_study *s, const bool *leaks, uint8_t *purpose) {
    const bool has_roles = study_tells(s, EBB_TRACE_TELLS_ROLES), has_accesses = has_only_accesses(s);
    uint8_t *frame = has_roles || has_accesses ? NULL : frames_of(s);
    if (!has_roles && !has_accesses && frame == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < s->blocks.n; b++) {
        purpose[b] = (uint8_t)(leaks[b]       ? PURPOSE_LEAK
                               : has_roles    ? purpose_by_role(s, b)
                               : has_accesses ? purpose_by_accesses(s, b)
                                              : purpose_by_stack(s, b, frame));
    }
    ebb__free(s->mem, frame);
    return EBB_OK;
}

static ebb_study_share share_at_peak(const ebb_study *s, const uint8_t *purpose, advice_purpose which) {
    ebb_study_share share = {.bytes = 0};
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (purpose[b] != which || !s->blocks.data[b].live_at_peak) { continue; }
        share.bytes = study_add(share.bytes, s->blocks.data[b].size_bytes);
        share.n_blocks++;
    }
    return share;
}

/* ---- the peak otherwise ----------------------------------------------------------------------- */

uint64_t ebb__study_peak_with(const ebb_study *s, const uint8_t *quarters) {
    uint64_t live_bytes = 0, peak_bytes = 0;
    for (size_t i = 0; i < s->log.n; i++) {
        const uint32_t entry = s->log.data[i];
        EBB_ASSERT(quarters[entry >> 1] <= 4);
        const uint64_t bytes = study_part(s->blocks.data[entry >> 1].size_bytes, quarters[entry >> 1], 4);
        live_bytes += (entry & 1u) != 0 ? 0 - bytes : bytes;
        peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
    }
    return peak_bytes;
}

/* In the order of events; at one what goes goes first. */
static uint64_t by_event(const void *item) {
    const advice_change *c = item;
    return c->event << 1 | !c->goes;
}

ebb_status ebb__study_peak_changed(const ebb_study *s, advice_changes *changes, uint64_t *peak_bytes_out) {
    uint64_t live_bytes = 0, peak_bytes = 0;
    size_t next = 0;
    EBB_TRY(ebb__sort_items(s->mem, changes->data, changes->n, sizeof *changes->data, by_event));
    for (size_t i = 0; i <= s->log.n; i++) {
        const uint64_t event = i < s->log.n ? study_log_event(s, s->log.data[i]) : UINT64_MAX;
        for (; next < changes->n && changes->data[next].event <= event; next++) {
            const advice_change *c = &changes->data[next];
            EBB_ASSERT(!c->goes || c->bytes <= live_bytes);
            live_bytes += c->goes ? 0 - c->bytes : c->bytes;
            peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
        }
        if (i == s->log.n) { break; }
        const uint64_t bytes = s->blocks.data[s->log.data[i] >> 1].size_bytes;
        live_bytes += (s->log.data[i] & 1u) != 0 ? 0 - bytes : bytes;
        peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
    }
    *peak_bytes_out = peak_bytes;
    return EBB_OK;
}

/* The peak if blocks of this purpose had this many quarters of their bytes. */
static ebb_status peak_of(const ebb_study *s, const uint8_t *purpose, advice_purpose which, uint8_t left,
                          uint64_t *peak_bytes_out) {
    uint8_t *quarters = ebb__alloc(s->mem, s->blocks.n, sizeof *quarters);
    if (quarters == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < s->blocks.n; b++) { quarters[b] = purpose[b] == which ? left : 4; }
    *peak_bytes_out = ebb__study_peak_with(s, quarters);
    ebb__free(s->mem, quarters);
    return EBB_OK;
}

/* ---- a budget --------------------------------------------------------------------------------- */

/* Blocks of the CPU cannot leave for the host. The device is the chosen one, else the first. */
static bool is_on_host(const ebb_study *s) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(s->reader, &n, &chosen);
    if (n > 0 && devices[chosen].is_named) { return devices[chosen].is_host; }
    const char *device = ebb_trace_reader_note(s->reader, "device");
    if (device == NULL) { device = ebb_trace_reader_note(s->reader, "space.0"); }
    return device != NULL && study_begins_with(device, "cpu");
}

static bool has_gradients(const ebb_study *s) {
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (s->blocks.data[b].likely_role == EBB_ROLE_GRADIENT) { return true; }
    }
    return false;
}

/* A program that trains, and whose peak is of what a Budget can move or compute again. How far it can go down is told
 * if it is known what lies idle. */
static ebb_status advise_budget(ebb_study *s, const uint8_t *purpose) {
    const uint64_t peak_bytes = s->summary.peak_bytes,
                   activation_bytes = share_at_peak(s, purpose, PURPOSE_ACTIVATION).bytes;
    const uint64_t held_bytes = study_add(activation_bytes, share_at_peak(s, purpose, PURPOSE_STATE).bytes);
    const ebb_study_swappable *w = &s->swappable;
    if (!has_gradients(s) || !ebb__study_is_worth(held_bytes, peak_bytes)) { return EBB_OK; }
    if (w->known && w->peak_bytes >= peak_bytes) { return EBB_OK; }
    char to[ADVICE_BYTES_CHARS];
    const char *how_far = w->known ? ebb__bump_printf(&s->bump, "; with copies alone the peak could be as low as %s",
                                                      ebb_bytes_format(w->peak_bytes, to, sizeof to))
                                   : "";
    if (how_far == NULL) { return EBB_E_NO_MEMORY; }
    return ebb__study_add_tip(
        s, "budget", w->known ? peak_bytes - w->peak_bytes : 0,
        ebb__bump_printf(&s->bump,
                         "to keep a budget with the same bits: fit = ebb.torch.Budget(\"SIZE\", model, optimizer%s) "
                         "before the loop, "
                         "\"with fit.step():\" around each step%s; ebb.torch.plan says what it costs",
                         is_on_host(s) ? ", spill=\"FOLDER\"" : "", how_far),
        NULL);
}

/* ---- the optimizer ---------------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* The optimizers of torch.optim. small: what keeps their state in 8 bits; NULL: nothing does. A class in adam.py can be
 * AdamW, too, whose step is Adam's since PyTorch 2.6. */
typedef struct optimizer_class {
    const char *name, *file;
    bool has_fused;
    const char *small;
} optimizer_class;
#define SMALL_ADAMW "bitsandbytes.optim.AdamW8bit, torchao.optim.AdamW8bit"
#define SMALL_ADAM "bitsandbytes.optim.Adam8bit, torchao.optim.Adam8bit"
#define SMALL_OF_ADAM_PY "bitsandbytes.optim or torchao.optim, Adam8bit or AdamW8bit"
#define SMALL_SGD "bitsandbytes.optim.SGD8bit"
#define SMALL_OF_ANY "bitsandbytes.optim and torchao.optim have some that do"
static const optimizer_class optimizers[] = {{"AdamW", "/adamw.py", true, SMALL_ADAMW},
                                             {"Adamax", "/adamax.py", false, NULL},
                                             {"Adam", "/adam.py", true, SMALL_ADAM},
                                             {"SGD", "/sgd.py", true, SMALL_SGD},
                                             {"Adagrad", "/adagrad.py", true, "bitsandbytes.optim.Adagrad8bit"},
                                             {"ASGD", "/asgd.py", false, NULL},
                                             {"Adadelta", "/adadelta.py", false, NULL},
                                             {"Adafactor", "/_adafactor.py", false, NULL},
                                             {"NAdam", "/nadam.py", false, NULL},
                                             {"RAdam", "/radam.py", false, NULL},
                                             {"RMSprop", "/rmsprop.py", false, "bitsandbytes.optim.RMSprop8bit"},
                                             {"Rprop", "/rprop.py", false, NULL}};
static const optimizer_class of_adam_py = {"Adam", "/adam.py", true, SMALL_OF_ADAM_PY};
#define N_OPTIMIZERS (sizeof optimizers / sizeof optimizers[0])

/* "AdamW" and "AdamW.step" are AdamW, and Adam is not. */
static const optimizer_class *find_optimizer(const char *name) {
    for (size_t i = 0; i < N_OPTIMIZERS; i++) {
        const size_t n = strlen(optimizers[i].name);
        if (strncmp(name, optimizers[i].name, n) == 0 && (name[n] == '\0' || name[n] == '.')) { return &optimizers[i]; }
    }
    return NULL;
}

/* What a source says of the optimizer: a recorder's note, a step of a profiler's, a file of torch.optim. NULL: nothing,
 * or that it is not one of these. */
static const optimizer_class *optimizer_of(const ebb_study *s) {
    static const char note[] = "optimizer.", range[] = "Optimizer.step#", folder[] = "torch/optim";
    const char *key = NULL;
    for (size_t i = 0; ebb__trace_reader_note_at(s->reader, i, &key) != NULL; i++) {
        if (study_begins_with(key, note)) { return find_optimizer(key + strlen(note)); }
    }
    for (size_t i = 0; i < s->steps.n; i++) {
        const char *name = ebb_trace_reader_string(s->reader, s->steps.data[i].name);
        if (study_begins_with(name, range)) { return find_optimizer(name + strlen(range)); }
    }
    for (uint32_t stack = 1; stack <= s->max_stack; stack++) {
        const char *file = ebb_trace_reader_string(s->reader, ebb_trace_reader_frame(s->reader, stack).file);
        const char *slash = strrchr(file, '/');
        for (size_t i = 0; strstr(file, folder) != NULL && i < N_OPTIMIZERS; i++) {
            if (strcmp(slash, of_adam_py.file) == 0) { return &of_adam_py; }
            if (strcmp(slash, optimizers[i].file) == 0) { return &optimizers[i]; }
        }
    }
    return NULL;
}

/* By the optimizer's class, or by what its state is called. NULL: there is none. */
static const char *small_optimizer(const ebb_study *s, const uint8_t *purpose) {
    static const char momentum[] = ".momentum_buffer";
    const optimizer_class *optimizer = optimizer_of(s);
    if (optimizer != NULL) { return optimizer->small; }
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (purpose[b] != PURPOSE_STATE || !s->blocks.data[b].live_at_peak) { continue; }
        const char *name = ebb_trace_reader_string(s->reader, s->blocks.data[b].name);
        const size_t n = strlen(name), n_end = sizeof momentum - 1;
        if (n > n_end && strcmp(name + n - n_end, momentum) == 0) { return SMALL_SGD; }
    }
    return SMALL_OF_ANY;
}

static ebb_status advise_state(ebb_study *s, const uint8_t *purpose) {
    const uint64_t peak_bytes = s->summary.peak_bytes, state_bytes = share_at_peak(s, purpose, PURPOSE_STATE).bytes;
    uint64_t small_bytes = 0;
    const char *names = small_optimizer(s, purpose);
    if (names == NULL || !ebb__study_is_worth(state_bytes, peak_bytes)) { return EBB_OK; }
    EBB_TRY(peak_of(s, purpose, PURPOSE_STATE, 1, &small_bytes));
    const uint64_t won_bytes = peak_bytes - small_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char state[ADVICE_BYTES_CHARS], small[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "optimizer_state", won_bytes,
        ebb__bump_printf(&s->bump,
                         "the optimizer's state is %s of the peak (%.1f %%): kept in 8 bits rather than 32 "
                         "(%s), which changes the result, the peak would be %s",
                         ebb_bytes_format(state_bytes, state, sizeof state), percent(state_bytes, peak_bytes), names,
                         ebb_bytes_format(small_bytes, small, sizeof small)),
        NULL);
}

/* Whether the step is done for many parameters at once, by the operators _foreach_... */
static bool has_foreach(const ebb_study *s) {
    for (size_t i = 0; i < s->steps.n; i++) {
        const study_step *step = &s->steps.data[i];
        if (strstr(ebb_trace_reader_string(s->reader, step->op), "_foreach_") != NULL) { return true; }
        if (strstr(ebb_trace_reader_string(s->reader, step->name), "_foreach_") != NULL) { return true; }
    }
    for (uint32_t stack = 1; stack <= s->max_stack; stack++) {
        const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
        if (strstr(ebb_trace_reader_string(s->reader, f.function), "_foreach_") != NULL) { return true; }
    }
    return false;
}

/* With foreach=False: the temporaries of one parameter at a time, at most so much. */
static uint64_t few_temps_bytes(const ebb_study *s, const uint8_t *purpose) {
    uint64_t largest_bytes = 0;
    for (size_t b = 0; b < s->blocks.n; b++) {
        if (purpose[b] != PURPOSE_STEP_TEMP || !s->blocks.data[b].live_at_peak) { continue; }
        largest_bytes = ebb_max_u64(largest_bytes, s->blocks.data[b].size_bytes);
    }
    uint64_t bytes = UINT64_MAX;
    (void)ebb_mul_u64(largest_bytes, FEW_TEMPS, &bytes);
    return bytes;
}

static ebb_status tell_step(ebb_study *s, const uint8_t *purpose, const optimizer_class *optimizer,
                            uint64_t least_bytes) {
    const uint64_t peak_bytes = s->summary.peak_bytes;
    const ebb_study_share temps = share_at_peak(s, purpose, PURPOSE_STEP_TEMP);
    const bool can_be_few = temps.n_blocks > FEW_TEMPS && has_foreach(s);
    char temp[ADVICE_BYTES_CHARS], least[ADVICE_BYTES_CHARS];
    (void)ebb_bytes_format(temps.bytes, temp, sizeof temp);
    if (optimizer->has_fused) {
        return ebb__study_add_tip(
            s, "optimizer_step", peak_bytes - least_bytes,
            ebb__bump_printf(
                &s->bump,
                "the peak is in the optimizer's step, whose temporaries are %s of it: with fused=True, which "
                "needs none and may round differently, the peak would be %s%s",
                temp, ebb_bytes_format(least_bytes, least, sizeof least),
                can_be_few ? "; with foreach=False they are of one parameter at a time" : ""),
            NULL);
    }
    const uint64_t few_bytes = study_add(least_bytes, few_temps_bytes(s, purpose));
    if (!can_be_few || few_bytes >= peak_bytes || !ebb__study_is_worth(peak_bytes - few_bytes, peak_bytes)) {
        return EBB_OK;
    }
    return ebb__study_add_tip(
        s, "optimizer_step", peak_bytes - few_bytes,
        ebb__bump_printf(
            &s->bump,
            "the peak is in the optimizer's step, whose temporaries are %s of it: with foreach=False they are "
            "of one parameter at a time, and the peak would be at most %s",
            temp, ebb_bytes_format(few_bytes, least, sizeof least)),
        NULL);
}

static ebb_status advise_step(ebb_study *s, const uint8_t *purpose) {
    const uint64_t peak_bytes = s->summary.peak_bytes;
    uint64_t least_bytes = 0;
    if (!ebb__study_is_worth(share_at_peak(s, purpose, PURPOSE_STEP_TEMP).bytes, peak_bytes)) { return EBB_OK; }
    EBB_TRY(peak_of(s, purpose, PURPOSE_STEP_TEMP, 0, &least_bytes));
    const optimizer_class *optimizer = optimizer_of(s);
    if (optimizer == NULL || !ebb__study_is_worth(peak_bytes - least_bytes, peak_bytes)) { return EBB_OK; }
    return tell_step(s, purpose, optimizer, least_bytes);
}

/* ---- gradients through the forward pass ------------------------------------------------------- */

/* What a block holds at first_event is not read before the backward pass: it is written anew, set to zero, or freed.
 * *at: an index into by_block, none of its accesses before which is at first_event or later; it goes on to the first
 * that is.
 */
static bool find_pause(const ebb_study *s, size_t block, const ebb_iteration_part *part, size_t *at,
                       uint64_t *needed_event_out) {
    const size_t end = study_first_access(s, block + 1);
    const uint64_t first_event = part->first_event, end_event = first_event + part->n_events;
    bool is_written = false;
    while (*at < end && s->accesses.data[s->by_block[*at]].event < first_event) { ++*at; }
    for (size_t i = *at; i < end; i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        if (a->event >= end_event) { return false; }
        const uint32_t step = study_step_of(a);
        const bool is_backward = step != STUDY_NO_STEP && s->steps.data[step].phase == EBB_TRACE_PHASE_BACKWARD;
        if (is_backward) {
            *needed_event_out = a->event;
            return is_written;
        }
        if (study_touch_of(a) == TOUCH_READ) { return false; }
        is_written = true;
    }
    *needed_event_out = s->blocks.data[block].died_event;
    return *needed_event_out < end_event;
}

/* The first part that begins after this event. */
static size_t first_part_behind(const ebb_study *s, uint64_t event) {
    size_t first = 0, last = s->parts.n;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        if (s->parts.data[middle].first_event > event) {
            last = middle;
        } else {
            first = middle + 1;
        }
    }
    return first;
}

/* Gradients from an iteration's begin to where its backward pass first touches them. Linear in accesses and in the
 * iterations that each one lives through. */
static ebb_status find_pauses(const ebb_study *s, advice_changes *all) {
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        size_t at = block->first_access;
        if (block->likely_role != EBB_ROLE_GRADIENT) { continue; }
        for (size_t p = first_part_behind(s, block->born_event); p < s->parts.n; p++) {
            const ebb_iteration_part *part = &s->parts.data[p];
            uint64_t needed = 0;
            if (part->first_event >= block->died_event) { break; }
            if (part->kind != EBB_ITERATION_PART_ITERATION || !find_pause(s, b, part, &at, &needed)) { continue; }
            EBB_TRY(EBB_PUSH(s->mem, all, ((advice_change){part->first_event, block->size_bytes, true})));
            EBB_TRY(EBB_PUSH(s->mem, all, ((advice_change){needed, block->size_bytes, false})));
        }
    }
    return EBB_OK;
}

static ebb_status advise_gradients(ebb_study *s) {
    const uint64_t peak_bytes = s->summary.peak_bytes;
    uint64_t without_bytes = peak_bytes;
    advice_changes changes = {.n = 0};
    ebb_status st = find_pauses(s, &changes);
    if (st == EBB_OK) { st = ebb__study_peak_changed(s, &changes, &without_bytes); }
    EBB_VEC_FINI(s->mem, &changes);
    EBB_TRY(st);
    EBB_ASSERT(without_bytes <= peak_bytes);
    const uint64_t won_bytes = peak_bytes - without_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "zero_grad", won_bytes,
        ebb__bump_printf(&s->bump,
                         "gradients are kept through the forward pass: optimizer.zero_grad(set_to_none=True) right "
                         "after optimizer.step() frees them, and the peak would be %s rather than %s",
                         ebb_bytes_format(without_bytes, to, sizeof to),
                         ebb_bytes_format(peak_bytes, from, sizeof from)),
        NULL);
}

/* ---- what could leave ------------------------------------------------------------------------- */

/* Whether the backward pass reads it, as far as the source tells phases: what it does not read is not saved for it. */
static bool is_read_in_backward(const ebb_study *s, size_t block) {
    for (size_t i = s->blocks.data[block].first_access; i < study_first_access(s, block + 1); i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        const uint32_t step = study_step_of(a), phase = step != STUDY_NO_STEP ? s->steps.data[step].phase : UINT32_MAX;
        const bool is_other = phase == EBB_TRACE_PHASE_FORWARD || phase == EBB_TRACE_PHASE_UPDATE;
        if (study_touch_of(a) == TOUCH_READ && !is_other) { return true; }
    }
    return false;
}

typedef struct proposal {
    const char *key, *what, *how;
    bool *are; /* [blocks.n]: what would leave */
} proposal;

/* A module whose parent is listed, or one of whose children is, is not: what is done to the one is done to the other.
 * The list is in order of bytes, so the greater ones stay. */
typedef struct module_list {
    ebb_trace_keys listed, parents; /* parents: every module that holds a listed one */
} module_list;

static ebb_status add_to_list(module_list *list, const char *label, bool *is_listed_out) {
    const size_t n = strcspn(label, " "); /* a class may follow */
    uint32_t number = 0;
    bool is_new = false;
    *is_listed_out = false;
    if (ebb__trace_keys_find(&list->parents, label, n) != 0) { return EBB_OK; }
    for (size_t i = 0; i < n; i++) {
        if (label[i] == '.' && ebb__trace_keys_find(&list->listed, label, i) != 0) { return EBB_OK; }
    }
    for (size_t i = 0; i < n; i++) {
        if (label[i] == '.') { EBB_TRY(ebb__trace_keys_add(&list->parents, label, i, &number, &is_new)); }
    }
    *is_listed_out = true;
    return ebb__trace_keys_add(&list->listed, label, n, &number, &is_new);
}

static ebb_status drop_nested(const ebb_study *s, study_holders *holders) {
    module_list list;
    ebb_status st = EBB_OK;
    size_t n = 0;
    ebb__trace_keys_init(&list.listed, s->mem);
    ebb__trace_keys_init(&list.parents, s->mem);
    for (size_t i = 0; i < holders->n && st == EBB_OK; i++) {
        bool is_listed = false;
        st = add_to_list(&list, holders->data[i].label, &is_listed);
        if (is_listed) { holders->data[n++] = holders->data[i]; }
    }
    if (st == EBB_OK) { holders->n = n; }
    ebb__trace_keys_fini(&list.listed);
    ebb__trace_keys_fini(&list.parents);
    return st;
}

static ebb_status tell_away(ebb_study *s, const proposal *p, const study_away *away, uint64_t won_bytes) {
    study_holders holders = {.n = 0};
    advice_names names = {.first = ""};
    const study_set set = {.blocks = away->blocks.data, .n = away->blocks.n};
    ebb_status st = ebb__study_group(s, EBB_STUDY_BY_MODULE, &set, &holders);
    if (st == EBB_OK) { st = drop_nested(s, &holders); }
    if (st == EBB_OK) { st = ebb__study_name_holders(s, &holders, &names); }
    EBB_VEC_FINI(s->mem, &holders);
    EBB_TRY(st);
    char idle[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    const double busy = away->sum.out_busy > away->sum.in_busy ? away->sum.out_busy : away->sum.in_busy;
    return ebb__study_add_tip(
        s, p->key, won_bytes,
        ebb__bump_printf(
            &s->bump,
            "%s of the peak are %s that lie idle long enough to be copied out and back (%.1f GB/s out, "
            "%.1f GB/s in)%s%s: %s; if each block is looked at alone, the peak could be as low as %s, and a link would "
            "copy %.3g %% of the time",
            ebb_bytes_format(away->sum.bytes_at_peak, idle, sizeof idle), p->what, s->options.out_bytes_per_s * 1e-9,
            s->options.in_bytes_per_s * 1e-9, names.first[0] != '\0' ? ", most of them of " : "", names.first, p->how,
            ebb_bytes_format(away->sum.peak_bytes, to, sizeof to), 100 * busy),
        &names);
}

static ebb_status propose(ebb_study *s, const proposal *p) {
    study_away away = {.sum = {.known = false}};
    ebb_status st = ebb__study_find_away(s, p->are, &away);
    const uint64_t peak_bytes = s->summary.peak_bytes, least_bytes = away.sum.peak_bytes;
    const uint64_t won_bytes = away.sum.known && least_bytes < peak_bytes ? peak_bytes - least_bytes : 0;
    if (st == EBB_OK && ebb__study_is_worth(won_bytes, peak_bytes)) { st = tell_away(s, p, &away, won_bytes); }
    EBB_VEC_FINI(s->mem, &away.blocks);
    return st;
}

static ebb_status advise_away(ebb_study *s, const uint8_t *purpose, bool *are) {
    for (size_t b = 0; b < s->blocks.n; b++) { are[b] = purpose[b] == PURPOSE_ACTIVATION && is_read_in_backward(s, b); }
    EBB_TRY(
        propose(s, &(proposal){"save_on_cpu", "activations",
                               "run their forward inside of torch.autograd.graph.save_on_cpu(pin_memory=True)", are}));
    for (size_t b = 0; b < s->blocks.n; b++) {
        are[b] = purpose[b] == PURPOSE_STATE || s->blocks.data[b].role == EBB_ROLE_PARAMETER;
    }
    return propose(s, &(proposal){"offload", "parameters and optimizer state",
                                  "FSDP's CPUOffload keeps both on the host, torchao.optim.CPUOffloadOptimizer the "
                                  "state (updates are computed there then, and may round differently)",
                                  are});
}

/* Memory timelines name no modules, and execution traces only ranges of the program's, so what to checkpoint cannot be
 * said; another recording of the same program says it. */
static ebb_status advise_recording(ebb_study *s) {
    const char *source = s->summary.source;
    const bool names_none =
        strcmp(source, "pytorch execution trace") == 0 || strcmp(source, "pytorch memory timeline") == 0;
    if (!names_none || s->classes.n > 0 || s->blocks.n == 0) { return EBB_OK; }
    return ebb__study_add_tip(s, "record", 0,
                              "which modules to checkpoint is not known: this recording names none; "
                              "ebb.torch.record() around the same steps, also with fake tensors, tells it",
                              NULL);
}

/* ---- the door --------------------------------------------------------------------------------- */

static ebb_status advise(ebb_study *s, const bool *leaks, uint8_t *purpose) {
    EBB_TRY(find_purposes(s, leaks, purpose));
    EBB_TRY(advise_budget(s, purpose));
    EBB_TRY(ebb__study_advise_checkpoint(s, purpose));
    EBB_TRY(advise_state(s, purpose));
    EBB_TRY(advise_step(s, purpose));
    EBB_TRY(advise_recording(s));
    if (!study_tells(s, EBB_TRACE_TELLS_ROLES) && !has_only_accesses(s)) { return EBB_OK; }
    EBB_TRY(advise_gradients(s));
    if (is_on_host(s) || !study_tells(s, EBB_TRACE_TELLS_ROLES)) { return EBB_OK; }
    bool *are = ebb__alloc(s->mem, s->blocks.n, sizeof *are);
    if (are == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = advise_away(s, purpose, are);
    ebb__free(s->mem, are);
    return st;
}

ebb_status ebb__study_advise_torch(ebb_study *s, const bool *leaks) {
    uint8_t *purpose = ebb__alloc(s->mem, s->blocks.n, sizeof *purpose);
    if (purpose == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = advise(s, leaks, purpose);
    ebb__free(s->mem, purpose);
    return st;
}
