/* SPDX-License-Identifier: Apache-2.0
 *
 * What a program of PyTorch's could set or change for its peak: activations that leave meanwhile, the optimizer's
 * state, what its step needs, gradients that are kept through the forward pass. Each with the peak that the same
 * recording would have then, all else as it was. Checkpointing is advice_checkpoint.c.
 *
 * What a block is for says its role. Where none is told, as in a snapshot, its call stack does: what was allocated
 * below a module's forward and is freed again is an activation, what was allocated below an optimizer and lives longer
 * than an iteration is its state.
 */
#include "study/advice.h"

#define FEW_TEMPS 4u /* so many are of one parameter */

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

/* Of each stack what its innermost frame says that says anything: what is computed again is activations too. */
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

/* Whether the step that touches it first is of the optimizer's. */
static bool is_born_in_update(const ebb_study *s, size_t block) {
    const size_t first = s->blocks.data[block].first_access;
    if (first == study_first_access(s, block + 1)) { return false; }
    const uint32_t step = study_step_of(&s->accesses.data[s->by_block[first]]);
    return step != STUDY_NO_STEP && s->steps.data[step].phase == EBB_TRACE_PHASE_UPDATE;
}

static advice_purpose purpose_by_role(const ebb_study *s, size_t block) {
    const study_block *b = &s->blocks.data[block];
    if (b->role == EBB_ROLE_ACTIVATION) { return PURPOSE_ACTIVATION; }
    if (b->role == EBB_ROLE_OPTIMIZER_STATE) { return PURPOSE_STATE; }
    return b->role == EBB_ROLE_TEMP && is_born_in_update(s, block) ? PURPOSE_STEP_TEMP : PURPOSE_UNKNOWN;
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

static ebb_status find_purposes(const ebb_study *s, uint8_t *purpose) {
    const bool has_roles = study_tells(s, EBB_TRACE_TELLS_ROLES);
    uint8_t *frame = has_roles ? NULL : frames_of(s);
    if (!has_roles && frame == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < s->blocks.n; b++) {
        purpose[b] = (uint8_t)(has_roles ? purpose_by_role(s, b) : purpose_by_stack(s, b, frame));
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

/* The peak if blocks of this purpose had so many quarters of their bytes. */
static ebb_status peak_of(const ebb_study *s, const uint8_t *purpose, advice_purpose which, uint8_t left,
                          uint64_t *peak_bytes_out) {
    uint8_t *quarters = ebb__alloc(s->mem, s->blocks.n, sizeof *quarters);
    if (quarters == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < s->blocks.n; b++) { quarters[b] = purpose[b] == which ? left : 4; }
    *peak_bytes_out = ebb__study_peak_with(s, quarters);
    ebb__free(s->mem, quarters);
    return EBB_OK;
}

/* ---- the optimizer ---------------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static ebb_status advise_state(ebb_study *s, const uint8_t *purpose) {
    const uint64_t peak_bytes = s->summary.peak_bytes, state_bytes = share_at_peak(s, purpose, PURPOSE_STATE).bytes;
    uint64_t small_bytes = 0;
    if (!ebb__study_is_worth(state_bytes, peak_bytes)) { return EBB_OK; }
    EBB_TRY(peak_of(s, purpose, PURPOSE_STATE, 1, &small_bytes));
    const uint64_t won_bytes = peak_bytes - small_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char state[ADVICE_BYTES_CHARS], small[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "optimizer_state", won_bytes,
        ebb__bump_printf(&s->bump,
                         "the optimizer's state is %s of the peak (%.1f %%): kept in 8 bits rather than 32 "
                         "(bitsandbytes.optim.AdamW8bit, torchao.optim.AdamW8bit), the peak would be %s",
                         ebb_bytes_format(state_bytes, state, sizeof state), percent(state_bytes, peak_bytes),
                         ebb_bytes_format(small_bytes, small, sizeof small)));
}

static ebb_status advise_step(ebb_study *s, const uint8_t *purpose) {
    const uint64_t peak_bytes = s->summary.peak_bytes;
    const ebb_study_share temps = share_at_peak(s, purpose, PURPOSE_STEP_TEMP);
    uint64_t without_bytes = 0;
    if (!ebb__study_is_worth(temps.bytes, peak_bytes)) { return EBB_OK; }
    EBB_TRY(peak_of(s, purpose, PURPOSE_STEP_TEMP, 0, &without_bytes));
    const uint64_t won_bytes = peak_bytes - without_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char temp[ADVICE_BYTES_CHARS], without[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "optimizer_step", won_bytes,
        ebb__bump_printf(&s->bump,
                         "the peak is in the optimizer's step, whose temporaries are %s of it: with fused=True, which "
                         "needs none, the peak would be %s%s",
                         ebb_bytes_format(temps.bytes, temp, sizeof temp),
                         ebb_bytes_format(without_bytes, without, sizeof without),
                         temps.n_blocks > FEW_TEMPS ? "; with foreach=False they are of one parameter at a time" : ""));
}

/* ---- gradients through the forward pass ------------------------------------------------------- */

/* From the event at which an iteration begins to that at which its backward pass first touches a gradient. */
typedef struct pause {
    uint64_t begin_event, end_event, size_bytes;
} pause;
typedef EBB_VEC(pause) pauses;

/* What a block holds at first_event is not read before the backward pass: it is written anew, or set to zero. */
static bool find_pause(const ebb_study *s, size_t block, uint64_t first_event, uint64_t end_event, pause *pause_out) {
    bool is_written = false;
    for (size_t i = s->blocks.data[block].first_access; i < study_first_access(s, block + 1); i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        if (a->event < first_event) { continue; }
        if (a->event >= end_event) { return false; }
        const uint32_t step = study_step_of(a);
        const bool is_backward = step != STUDY_NO_STEP && s->steps.data[step].phase == EBB_TRACE_PHASE_BACKWARD;
        if (is_backward) {
            *pause_out = (pause){first_event, a->event, s->blocks.data[block].size_bytes};
            return is_written;
        }
        if (study_touch_of(a) == TOUCH_READ) { return false; }
        is_written = true;
    }
    return false;
}

static ebb_status find_pauses(const ebb_study *s, pauses *all) {
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        if (block->role != EBB_ROLE_GRADIENT) { continue; }
        for (size_t p = 0; p < s->parts.n; p++) {
            const ebb_iteration_part *part = &s->parts.data[p];
            const uint64_t first = part->first_event, end = part->first_event + part->n_events;
            const bool is_there = block->born_event < first && block->died_event > first;
            pause found;
            if (part->kind != EBB_ITERATION_PART_ITERATION || !is_there) { continue; }
            if (find_pause(s, b, first, end, &found)) { EBB_TRY(EBB_PUSH(s->mem, all, found)); }
        }
    }
    return EBB_OK;
}

static uint64_t by_begin(const void *item) {
    return ((const pause *)item)->begin_event;
}

static uint64_t by_end(const void *item) {
    return ((const pause *)item)->end_event;
}

/* The peak if nothing of the pauses were there; ends has the same ones in the order in which they end. */
static uint64_t peak_with_pauses(const ebb_study *s, const pauses *begins, const pauses *ends) {
    uint64_t live_bytes = 0, peak_bytes = 0;
    size_t next_begin = 0, next_end = 0;
    for (size_t i = 0; i <= s->log.n; i++) {
        const uint64_t event = i < s->log.n ? study_log_event(s, s->log.data[i]) : UINT64_MAX;
        for (; next_end < ends->n && ends->data[next_end].end_event <= event; next_end++) {
            for (; next_begin < begins->n && begins->data[next_begin].begin_event <= ends->data[next_end].end_event;) {
                live_bytes -= begins->data[next_begin++].size_bytes;
            }
            live_bytes += ends->data[next_end].size_bytes;
            peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
        }
        for (; next_begin < begins->n && begins->data[next_begin].begin_event <= event; next_begin++) {
            live_bytes -= begins->data[next_begin].size_bytes;
        }
        if (i == s->log.n) { break; }
        const uint64_t bytes = s->blocks.data[s->log.data[i] >> 1].size_bytes;
        live_bytes += (s->log.data[i] & 1u) != 0 ? 0 - bytes : bytes;
        peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
    }
    return peak_bytes;
}

static ebb_status measure_pauses(const ebb_study *s, pauses *begins, pauses *ends, uint64_t *peak_bytes_out) {
    EBB_TRY(find_pauses(s, begins));
    EBB_TRY(find_pauses(s, ends));
    EBB_TRY(ebb__sort_items(s->mem, begins->data, begins->n, sizeof *begins->data, by_begin));
    EBB_TRY(ebb__sort_items(s->mem, ends->data, ends->n, sizeof *ends->data, by_end));
    *peak_bytes_out = peak_with_pauses(s, begins, ends);
    return EBB_OK;
}

static ebb_status advise_gradients(ebb_study *s) {
    const uint64_t peak_bytes = s->summary.peak_bytes;
    uint64_t without_bytes = peak_bytes;
    pauses begins = {.n = 0}, ends = {.n = 0};
    const ebb_status st = measure_pauses(s, &begins, &ends, &without_bytes);
    EBB_VEC_FINI(s->mem, &begins);
    EBB_VEC_FINI(s->mem, &ends);
    EBB_TRY(st);
    EBB_ASSERT(without_bytes <= peak_bytes);
    const uint64_t won_bytes = peak_bytes - without_bytes;
    if (!ebb__study_is_worth(won_bytes, peak_bytes)) { return EBB_OK; }
    char from[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    return ebb__study_add_tip(
        s, "zero_grad", won_bytes,
        ebb__bump_printf(&s->bump,
                         "gradients are set to zero and kept through the forward pass: "
                         "optimizer.zero_grad(set_to_none=True) frees them, and the peak would be %s rather than %s",
                         ebb_bytes_format(without_bytes, to, sizeof to),
                         ebb_bytes_format(peak_bytes, from, sizeof from)));
}

/* ---- what could leave ------------------------------------------------------------------------- */

/* "" or what is to be said first: what was recorded on the processor has nowhere to leave for. */
static const char *where(const ebb_study *s) {
    const char *device = ebb_trace_reader_note(s->reader, "device");
    if (device == NULL) { device = ebb_trace_reader_note(s->reader, "space.0"); }
    const bool on_host = device != NULL && study_begins_with(device, "cpu");
    return on_host ? "on a device with memory of its own, if it is as fast: " : "";
}

static ebb_status advise_away(ebb_study *s, const char *key, uint32_t roles, const char *what, const char *how) {
    study_away away = {.sum = {.known = false}};
    study_holders holders = {.n = 0};
    const char *names = "";
    ebb_status st = ebb__study_find_away(s, roles, &away);
    const uint64_t peak_bytes = s->summary.peak_bytes, least_bytes = away.sum.peak_bytes;
    const uint64_t won_bytes = away.sum.known && least_bytes < peak_bytes ? peak_bytes - least_bytes : 0;
    const bool is_worth = ebb__study_is_worth(won_bytes, peak_bytes);
    const study_set set = {.blocks = away.blocks.data, .n = away.blocks.n};
    if (st == EBB_OK && is_worth) { st = ebb__study_group(s, EBB_STUDY_BY_MODULE, &set, &holders); }
    if (st == EBB_OK && is_worth) { st = ebb__study_name_holders(s, &holders, &names); }
    EBB_VEC_FINI(s->mem, &holders);
    EBB_VEC_FINI(s->mem, &away.blocks);
    EBB_TRY(st);
    if (!is_worth) { return EBB_OK; }
    char idle[ADVICE_BYTES_CHARS], to[ADVICE_BYTES_CHARS];
    const double busy = away.sum.out_busy > away.sum.in_busy ? away.sum.out_busy : away.sum.in_busy;
    return ebb__study_add_tip(
        s, key, won_bytes,
        ebb__bump_printf(
            &s->bump,
            "%s%s of the peak are %s that lie idle long enough to be copied out and back (%.1f GB/s out, "
            "%.1f GB/s in)%s%s: %s; each block by itself, the peak could be as low as %s, and a link would "
            "copy %.3g %% of the time",
            where(s), ebb_bytes_format(away.sum.bytes_at_peak, idle, sizeof idle), what,
            s->options.out_bytes_per_s * 1e-9, s->options.in_bytes_per_s * 1e-9,
            names[0] != '\0' ? ", most of them of " : "", names, how, ebb_bytes_format(least_bytes, to, sizeof to),
            100 * busy));
}

/* ---- the door --------------------------------------------------------------------------------- */

static ebb_status advise(ebb_study *s, uint8_t *purpose) {
    EBB_TRY(find_purposes(s, purpose));
    EBB_TRY(ebb__study_advise_checkpoint(s, purpose));
    EBB_TRY(advise_state(s, purpose));
    EBB_TRY(advise_step(s, purpose));
    if (!study_tells(s, EBB_TRACE_TELLS_ROLES)) { return EBB_OK; }
    EBB_TRY(advise_gradients(s));
    EBB_TRY(advise_away(s, "save_on_cpu", 1u << EBB_ROLE_ACTIVATION, "activations",
                        "run their forward inside of torch.autograd.graph.save_on_cpu(pin_memory=True)"));
    return advise_away(s, "offload", 1u << EBB_ROLE_PARAMETER | 1u << EBB_ROLE_OPTIMIZER_STATE,
                       "parameters and optimizer state",
                       "FSDP's CPUOffload keeps both on the host, torchao.optim.CPUOffloadOptimizer the state");
}

ebb_status ebb__study_advise_torch(ebb_study *s) {
    uint8_t *purpose = ebb__alloc(s->mem, s->blocks.n, sizeof *purpose);
    if (purpose == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status st = advise(s, purpose);
    ebb__free(s->mem, purpose);
    return st;
}
