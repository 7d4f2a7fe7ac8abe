/* SPDX-License-Identifier: Apache-2.0
 *
 * Roles that a recording does not tell. Where it has call stacks, they follow from what PyTorch's frames say of the
 * blocks that are allocated below them, and from how long those live. The innermost frame that says anything counts.
 *
 *      below                                    that lives          is
 *      an optimizer                             past the iteration  its state; else a temporary
 *      a module's forward                       within it           an activation
 *      the backward pass                        past the pass       a gradient; else a temporary
 *      a module's making, moving, loading       past the iteration  a parameter; else a temporary
 *      a loader of data                         -                   an input
 *      a library's handle                       -                   a workspace
 *
 * Blocks below none of these frames stay unknown, and so do blocks from before the recording without a stack.
 *
 * An execution trace has no stacks, but it tells what each step reads and writes, and in which pass. There a block
 *
 *      that                                                   is
 *      only updates touch, and that outlives its step         the optimizer's state; else a temporary of its step
 *      forward passes read and updates write                  a parameter
 *      only forward passes write, from before                 a buffer
 *      a backward pass writes, updates and no forward read    a gradient
 *      only a backward pass touches                           a temporary
 *      is born in a forward pass and goes again               an activation
 *
 * A block outlives its step if another pass begins before it is touched for the last time, or if it lives past the
 * iteration. What updates or a backward pass touch is no temporary if no update comes after it: what is kept goes then,
 * too, since the recording ends.
 */
#include "study/study_priv.h"

typedef enum place {
    PLACE_ANY,
    PLACE_OPTIMIZER,
    PLACE_FORWARD,
    PLACE_BACKWARD,
    PLACE_SETUP,
    PLACE_DATA,
    PLACE_LIBRARY
} place;

static bool is_one_of(const char *function, const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(function, names[i]) == 0) { return true; }
    }
    return false;
}

static bool is_setup(const char *function, const char *file) {
    static const char *const names[] = {"_apply",          "convert",         "reset_parameters",      "to_empty",
                                        "from_pretrained", "load_state_dict", "_load_from_state_dict", "_init_weights",
                                        "register_buffer"};
    if (is_one_of(function, names, sizeof names / sizeof names[0])) { return true; }
    return strcmp(function, "__init__") == 0 && strstr(file, "torch/nn/") != NULL;
}

static place place_of(const ebb_study *s, uint32_t stack) {
    const ebb_trace_frame f = ebb_trace_reader_frame(s->reader, stack);
    const char *function = ebb_trace_reader_string(s->reader, f.function);
    const char *file = ebb_trace_reader_string(s->reader, f.file);
    if (strstr(function, "Workspace") != NULL) { return PLACE_LIBRARY; }
    if (strstr(file, "/optim/") != NULL || strstr(file, "/optimizers/") != NULL) { return PLACE_OPTIMIZER; }
    if (strstr(file, "/utils/data/") != NULL || strcmp(function, "pin_memory") == 0) { return PLACE_DATA; }
    if (is_setup(function, file)) { return PLACE_SETUP; }
    if (strcmp(function, "forward") == 0) { return PLACE_FORWARD; }
    const bool is_engine = strstr(function, "autograd::Engine::") != NULL;
    const bool is_node =
        study_begins_with(function, "torch::autograd::generated::") || strstr(function, "AccumulateGrad") != NULL;
    return is_engine || is_node || strcmp(function, "backward") == 0 ? PLACE_BACKWARD : PLACE_ANY;
}

static uint8_t *places_of(const ebb_study *s) {
    const size_t n = (size_t)s->max_stack + 1;
    uint8_t *places = ebb__alloc(s->mem, n, sizeof *places);
    if (places == NULL) { return NULL; }
    places[0] = PLACE_ANY;
    for (uint32_t stack = 1; stack < n; stack++) {
        const place here = place_of(s, stack);
        const uint32_t caller = ebb_trace_reader_frame(s->reader, stack).caller;
        EBB_ASSERT(caller < stack);
        places[stack] = here != PLACE_ANY ? (uint8_t)here : places[caller];
    }
    return places;
}

/* A block that was not freed counts as kept. */
static bool is_kept(const ebb_study *s, const study_block *b) {
    if (b->died_event == STUDY_NONE) { return true; }
    return s->iteration.found && b->died_event - b->born_event > s->iteration.length_events;
}

/* Where an iteration is known, an activation does not outlive it, be it freed or not. */
static bool is_activation(const ebb_study *s, const study_block *b) {
    const uint64_t died = b->died_event == STUDY_NONE ? s->summary.n_events : b->died_event;
    return !b->before && (!s->iteration.found || died - b->born_event <= s->iteration.length_events);
}

/* end_event: the end of the backward pass that the block was born in, if it was born in one. */
static ebb_role role_at(const ebb_study *s, const study_block *b, place where, uint32_t end_event) {
    switch (where) {
    case PLACE_OPTIMIZER: return is_kept(s, b) ? EBB_ROLE_OPTIMIZER_STATE : EBB_ROLE_TEMP;
    case PLACE_FORWARD: return is_activation(s, b) ? EBB_ROLE_ACTIVATION : EBB_ROLE_OTHER;
    case PLACE_BACKWARD:
        return b->died_event == STUDY_NONE || b->died_event > end_event ? EBB_ROLE_GRADIENT : EBB_ROLE_TEMP;
    case PLACE_SETUP: return is_kept(s, b) ? EBB_ROLE_PARAMETER : EBB_ROLE_TEMP;
    case PLACE_DATA: return EBB_ROLE_INPUT;
    case PLACE_LIBRARY: return EBB_ROLE_WORKSPACE;
    case PLACE_ANY: break;
    }
    return EBB_ROLE_UNKNOWN;
}

/* Last to first, so that the end of a backward pass is known before its blocks are: the next alloc elsewhere. */
static void give_roles(ebb_study *s, const uint8_t *places) {
    uint32_t end_event = STUDY_NONE;
    for (size_t i = s->blocks.n; i-- > 0;) {
        study_block *b = &s->blocks.data[i];
        const place where = (place)places[b->stack];
        if (where != PLACE_BACKWARD && where != PLACE_ANY) { end_event = b->born_event; }
        if (b->role != EBB_ROLE_UNKNOWN) { continue; }
        b->likely_role = (uint8_t)role_at(s, b, where, end_event);
        s->summary.roles_inferred = s->summary.roles_inferred || b->likely_role != EBB_ROLE_UNKNOWN;
    }
}

/* ---- by accesses ------------------------------------------------------------------------------ */

#define IN(phase) (1u << (phase))
#define FORWARD IN(EBB_TRACE_PHASE_FORWARD)
#define BACKWARD IN(EBB_TRACE_PHASE_BACKWARD)
#define UPDATE IN(EBB_TRACE_PHASE_UPDATE)

static uint32_t phase_of(const ebb_study *s, const study_access *a) {
    const uint32_t step = study_step_of(a);
    return step != STUDY_NO_STEP ? s->steps.data[step].phase : (uint32_t)EBB_TRACE_PHASE_UNKNOWN;
}

/* When passes end, for steps and for all. */
typedef struct pass_ends {
    uint32_t *next_event; /* [steps]: the first step of a forward or backward pass after this one; STUDY_NONE: none */
    uint32_t last_update_event;
} pass_ends;

/* has_update_out: there is a step of an optimizer, so that passes are told. */
static ebb_status find_pass_ends(const ebb_study *s, pass_ends *ends, bool *has_update_out) {
    uint32_t next_event = STUDY_NONE;
    *has_update_out = false;
    *ends = (pass_ends){.next_event = ebb__alloc(s->mem, s->steps.n, sizeof *ends->next_event)};
    if (ends->next_event == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = s->steps.n; i-- > 0;) {
        const study_step *step = &s->steps.data[i];
        ends->next_event[i] = next_event;
        if (step->phase == EBB_TRACE_PHASE_FORWARD || step->phase == EBB_TRACE_PHASE_BACKWARD) {
            next_event = step->begin_event;
        } else if (step->phase == EBB_TRACE_PHASE_UPDATE) {
            if (!*has_update_out) { ends->last_update_event = step->begin_event; }
            *has_update_out = true;
        }
    }
    return EBB_OK;
}

/* What only updates touch. */
static ebb_role role_in_updates(const ebb_study *s, const pass_ends *ends, size_t block) {
    const study_block *b = &s->blocks.data[block];
    const study_access *first = &s->accesses.data[s->by_block[b->first_access]];
    const study_access *last = &s->accesses.data[s->by_block[study_first_access(s, block + 1) - 1]];
    const uint32_t next_event = ends->next_event[study_step_of(first)];
    if (b->before || next_event < last->event) { return EBB_ROLE_OPTIMIZER_STATE; }
    if (s->iteration.found) { return is_kept(s, b) ? EBB_ROLE_OPTIMIZER_STATE : EBB_ROLE_TEMP; }
    return next_event < ends->last_update_event ? EBB_ROLE_TEMP : EBB_ROLE_UNKNOWN;
}

static ebb_role role_by_accesses(const ebb_study *s, const pass_ends *ends, size_t block) {
    const study_block *b = &s->blocks.data[block];
    const size_t first = b->first_access, end = study_first_access(s, block + 1);
    uint32_t reads = 0, writes = 0;
    if (first == end) { return EBB_ROLE_UNKNOWN; }
    for (size_t i = first; i < end; i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        const study_touch touch = study_touch_of(a);
        if (touch == TOUCH_READ) { reads |= IN(phase_of(s, a)); }
        if (touch == TOUCH_WRITE) { writes |= IN(phase_of(s, a)); }
    }
    const bool is_born_forward =
        !b->before && phase_of(s, &s->accesses.data[s->by_block[first]]) == EBB_TRACE_PHASE_FORWARD;
    if ((reads | writes) == UPDATE) { return role_in_updates(s, ends, block); }
    if ((reads & FORWARD) != 0 && (writes & UPDATE) != 0) { return EBB_ROLE_PARAMETER; }
    if (b->before && writes == FORWARD) { return EBB_ROLE_BUFFER; }
    if ((writes & BACKWARD) != 0 && (reads & UPDATE) != 0 && (reads & FORWARD) == 0) { return EBB_ROLE_GRADIENT; }
    if (!b->before && (reads | writes) == BACKWARD && b->died_event < ends->last_update_event) { return EBB_ROLE_TEMP; }
    return is_born_forward && is_activation(s, b) ? EBB_ROLE_ACTIVATION : EBB_ROLE_UNKNOWN;
}

static ebb_status give_roles_by_accesses(ebb_study *s) {
    pass_ends ends;
    bool has_update = false;
    EBB_TRY(find_pass_ends(s, &ends, &has_update));
    for (size_t i = 0; i < s->blocks.n && has_update; i++) {
        study_block *b = &s->blocks.data[i];
        if (b->role != EBB_ROLE_UNKNOWN) { continue; }
        b->likely_role = (uint8_t)role_by_accesses(s, &ends, i);
        s->summary.roles_inferred = s->summary.roles_inferred || b->likely_role != EBB_ROLE_UNKNOWN;
    }
    ebb__free(s->mem, ends.next_event);
    return EBB_OK;
}

ebb_status ebb__study_infer_roles(ebb_study *s) {
    for (size_t b = 0; b < s->blocks.n; b++) { s->blocks.data[b].likely_role = s->blocks.data[b].role; }
    const uint32_t told = EBB_TRACE_TELLS_STACKS | EBB_TRACE_TELLS_ROLES;
    if (study_speaker_of(s) == SPEAKER_PYTORCH && (s->summary.tells & told) == 0 &&
        study_tells(s, EBB_TRACE_TELLS_ACCESSES)) {
        return give_roles_by_accesses(s);
    }
    if (study_speaker_of(s) != SPEAKER_PYTORCH || !study_tells(s, EBB_TRACE_TELLS_STACKS)) { return EBB_OK; }
    uint8_t *places = places_of(s);
    if (places == NULL) { return EBB_E_NO_MEMORY; }
    give_roles(s, places);
    ebb__free(s->mem, places);
    return EBB_OK;
}
