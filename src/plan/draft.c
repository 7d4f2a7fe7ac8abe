/* SPDX-License-Identifier: Apache-2.0
 *
 * From a draft to stays and slots, in one sweep over the actions.
 *
 * A tensor's parts are cut where a copy in or a drop begins or ends; most tensors are never cut and are one piece. A
 * piece's stay begins where the tensor is written or copied in while the piece is absent, and ends at its drop. A
 * persistent tensor's first drop in the list ends the stay that came around the end; its last beginning is that stay's
 * first. Pieces side by side whose stays begin and end together make one stay.
 *
 * A slot begins at an out or a move, and is over after the last in or move that reads it before its bytes are written
 * there anew or its tensor changes. What reads a tier before anything was copied there reads the slot that came around
 * the end, which is the last one there; if none exists, the copy is always there.
 *
 * Stays and slots are entered where they begin, and their ends filled in later, so they come in the order of their
 * beginnings, and only those that begin at one action are still to be sorted.
 */
#include "plan/plan_priv.h"

#define NONE UINT64_MAX

ebb_status ebb__draft_init(ebb_draft *draft, const ebb_program *program, const ebb_mem *mem) {
    size_t n_tensors = 0;
    (void)ebb_program_tensors(program, &n_tensors);
    *draft = (ebb_draft){.mem = ebb__mem_or_default(mem)};
    draft->resident = ebb__calloc(mem, n_tensors, 1);
    draft->home = ebb__calloc(mem, n_tensors, 1);
    if (draft->resident == NULL || draft->home == NULL) {
        ebb__draft_fini(draft);
        return EBB_E_NO_MEMORY;
    }
    ebb__draft_reset(draft, program);
    return EBB_OK;
}

void ebb__draft_fini(ebb_draft *draft) {
    EBB_VEC_FINI(draft->mem, &draft->actions);
    EBB_VEC_FINI(draft->mem, &draft->absent);
    ebb__free(draft->mem, draft->resident);
    ebb__free(draft->mem, draft->home);
    draft->resident = draft->home = NULL;
}

void ebb__draft_reset(ebb_draft *draft, const ebb_program *program) {
    size_t n_tensors = 0;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n_tensors);
    draft->actions.n = draft->absent.n = 0;
    for (size_t t = 0; t < n_tensors; t++) {
        draft->resident[t] = tensors[t].persistent;
        draft->home[t] = EBB_HOST;
    }
}

ebb_status ebb__draft_copy(const ebb_draft *from, const ebb_program *program, ebb_draft *to) {
    const size_t n_tensors = ebb__plan_view(program).n_tensors, n = from->actions.n;
    EBB_ASSERT(from->absent.n == 0 && from != to);
    to->actions.n = to->absent.n = 0;
    EBB_TRY(EBB_RESERVE(to->mem, &to->actions, n));
    if (n > 0) { memcpy(to->actions.data, from->actions.data, n * sizeof *to->actions.data); }
    to->actions.n = n;
    memcpy(to->resident, from->resident, n_tensors);
    memcpy(to->home, from->home, n_tensors);
    return EBB_OK;
}

ebb_status ebb__draft_add(ebb_draft *draft, const ebb_action *action, uint64_t bound) {
    const bool is_copy = action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN;
    EBB_ASSERT(bound == EBB_DRAFT_FIXED || (bound <= draft->actions.n && is_copy));
    EBB_ASSERT(!is_copy || (action->tier != EBB_DEVICE && action->tier < EBB_MAX_TIERS));
    const ebb_draft_action added = {.action = *action, .bound = bound};
    return EBB_PUSH(draft->mem, &draft->actions, added);
}

ebb_status ebb__draft_step(ebb_draft *draft, ebb_action_kind kind, uint32_t step, uint32_t choice) {
    const ebb_action action = {.kind = kind, .target = step, .choice = choice};
    EBB_ASSERT(ebb__action_computes(&action));
    return ebb__draft_add(draft, &action, EBB_DRAFT_FIXED);
}

ebb_status ebb__draft_tensor(ebb_draft *draft, ebb_action_kind kind, uint32_t tensor, uint32_t tier, uint64_t bound) {
    const ebb_action action = {.kind = kind, .target = tensor, .tier = (uint16_t)tier, .size_bytes = EBB_WHOLE};
    EBB_ASSERT(!ebb__action_computes(&action));
    return ebb__draft_add(draft, &action, bound);
}

void ebb__draft_resident(const ebb_draft *draft, const ebb_program *program, uint64_t alignment, uint64_t *bytes_out) {
    size_t n = 0;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n);
    for (size_t t = 0; t < n; t++) {
        bytes_out[t] = draft->resident[t] ? ebb_align_up(tensors[t].size_bytes, alignment) : 0;
    }
    for (size_t i = 0; i < draft->absent.n; i++) {
        const ebb_part *part = &draft->absent.data[i];
        bytes_out[part->tensor] -= ebb_align_up(part->end - part->begin, alignment);
    }
}

bool ebb__draft_is_valid(const ebb_draft *draft, const ebb_program *program) {
    const ebb_program_view view = ebb__plan_view(program);
    uint64_t *first = ebb__calloc(draft->mem, 2 * view.n_tensors, sizeof *first), *present = first + view.n_tensors;
    bool is_valid = true;
    if (first == NULL) { return true; } /* it cannot be told */
    ebb__draft_resident(draft, program, 1, first);
    ebb__draft_resident(draft, program, 1, present);
    for (size_t a = 0; is_valid && a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (ebb__action_computes(action)) {
            const ebb_step *step = &view.steps[action->target];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                const ebb_access *access = &view.accesses[step->first_access + i];
                const uint64_t bytes = view.tensors[access->tensor].size_bytes;
                is_valid = is_valid && (present[access->tensor] == bytes || access->mode != EBB_READ);
                present[access->tensor] = bytes;
            }
            continue;
        }
        if (action->kind == EBB_ACT_MOVE) { continue; }
        const uint64_t all = view.tensors[action->target].size_bytes, end = ebb__action_end(action, all);
        const uint64_t bytes = end - action->begin, there = present[action->target];
        is_valid = action->kind == EBB_ACT_IN ? there <= all - bytes : there >= bytes;
        if (action->kind == EBB_ACT_IN) { present[action->target] += bytes; }
        if (action->kind == EBB_ACT_DROP) { present[action->target] -= bytes; }
    }
    for (size_t t = 0; t < view.n_tensors; t++) { is_valid = is_valid && present[t] >= first[t]; }
    ebb__free(draft->mem, first);
    return is_valid;
}

/* ---- pieces ------------------------------------------------------------------------------------- */

/* A piece of a tensor as the sweep knows it. */
typedef struct piece {
    uint64_t begin, end;
    uint64_t stay;   /* the open one, or NONE: that from around the end */
    uint64_t around; /* where the stay from around the end was dropped, or NONE */
    bool open, resident;
    bool leaves; /* at any time: there is a drop */
} piece;

/* A slot that an action began, in the order of beginning. */
typedef struct filled {
    uint64_t last_read; /* after the latest action that read it, or NONE */
    uint64_t next;      /* of the same tensor, an earlier one, or NONE */
    bool open;          /* nothing has taken its bytes on the tier */
    bool stale;         /* its tensor has changed since */
} filled;

/* Something that read a tier on which the tensor had no slot yet. */
typedef struct early_read {
    ebb_part part;
    uint32_t tier;
    uint64_t until; /* after the action */
    uint64_t next;  /* of the same tensor, or NONE */
} early_read;

typedef struct sweep {
    const ebb_draft *draft;
    ebb_plan *plan;
    ebb_program_view view;
    ebb_bump bump;
    uint64_t *first_piece; /* [n_tensors + 1] */
    piece *pieces;
    EBB_VEC(filled) filled; /* beside the plan's slots */
    EBB_VEC(early_read) early;
    uint64_t *slot, *early_of; /* [n_tensors]: the latest of either, or NONE */
} sweep;

static uint64_t end_of(const sweep *s, const ebb_action *action) {
    return ebb__action_end(action, s->view.tensors[action->target].size_bytes);
}

/* Whether an action cuts its tensor. */
static bool cuts(const ebb_action *action) {
    const bool is_on_device = action->kind == EBB_ACT_IN || action->kind == EBB_ACT_DROP;
    return is_on_device && action->size_bytes != EBB_WHOLE;
}

/* Enter a cut among those of its tensor, which are in order; the row has room. */
static void enter_cut(uint64_t *cuts_of, uint64_t *n, uint64_t at) {
    uint64_t i = *n;
    while (i > 0 && cuts_of[i - 1] > at) { i--; }
    if (i > 0 && cuts_of[i - 1] == at) { return; }
    memmove(&cuts_of[i + 1], &cuts_of[i], (*n - i) * sizeof *cuts_of);
    cuts_of[i] = at;
    ++*n;
}

/* The cuts of each tensor, its ends among them: row[t] .. row[t] + n[t] of cut. */
static ebb_status find_cuts(sweep *s, uint64_t **row_out, uint64_t **n_out, uint64_t **cut_out) {
    const size_t n_tensors = s->view.n_tensors;
    uint64_t *row = ebb__bump_alloc(&s->bump, n_tensors + 1, sizeof *row);
    uint64_t *n = ebb__bump_alloc(&s->bump, n_tensors, sizeof *n);
    if (row == NULL || n == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n_tensors; t++) { n[t] = 2; }
    for (size_t a = 0; a < s->draft->actions.n; a++) {
        const ebb_action *action = &s->draft->actions.data[a].action;
        if (cuts(action)) { n[action->target] += 2; }
    }
    for (size_t i = 0; i < s->draft->absent.n; i++) { n[s->draft->absent.data[i].tensor] += 2; }
    row[0] = 0;
    for (size_t t = 0; t < n_tensors; t++) { row[t + 1] = row[t] + n[t]; }
    uint64_t *cut = ebb__bump_alloc(&s->bump, row[n_tensors], sizeof *cut);
    if (cut == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n_tensors; t++) {
        n[t] = 0;
        enter_cut(&cut[row[t]], &n[t], 0);
        enter_cut(&cut[row[t]], &n[t], s->view.tensors[t].size_bytes);
    }
    for (size_t a = 0; a < s->draft->actions.n; a++) {
        const ebb_action *action = &s->draft->actions.data[a].action;
        if (!cuts(action)) { continue; }
        enter_cut(&cut[row[action->target]], &n[action->target], action->begin);
        enter_cut(&cut[row[action->target]], &n[action->target], end_of(s, action));
    }
    for (size_t i = 0; i < s->draft->absent.n; i++) {
        const ebb_part *part = &s->draft->absent.data[i];
        enter_cut(&cut[row[part->tensor]], &n[part->tensor], part->begin);
        enter_cut(&cut[row[part->tensor]], &n[part->tensor], part->end);
    }
    *row_out = row;
    *n_out = n;
    *cut_out = cut;
    return EBB_OK;
}

static ebb_status make_pieces(sweep *s) {
    uint64_t *row = NULL, *n = NULL, *cut = NULL;
    EBB_TRY(find_cuts(s, &row, &n, &cut));
    s->first_piece = ebb__bump_alloc(&s->bump, s->view.n_tensors + 1, sizeof *s->first_piece);
    s->pieces = ebb__bump_alloc(&s->bump, row[s->view.n_tensors], sizeof *s->pieces);
    if (s->first_piece == NULL || s->pieces == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t at = 0;
    for (size_t t = 0; t < s->view.n_tensors; t++) {
        const bool resident = s->draft->resident[t] != 0;
        s->first_piece[t] = at;
        for (uint64_t i = 0; i + 1 < n[t]; i++) {
            s->pieces[at++] = (piece){.begin = cut[row[t] + i],
                                      .end = cut[row[t] + i + 1],
                                      .stay = NONE,
                                      .around = NONE,
                                      .open = resident,
                                      .resident = resident};
        }
    }
    s->first_piece[s->view.n_tensors] = at;
    for (size_t i = 0; i < s->draft->absent.n; i++) {
        const ebb_part *part = &s->draft->absent.data[i];
        for (uint64_t p = s->first_piece[part->tensor]; p < s->first_piece[part->tensor + 1]; p++) {
            piece *it = &s->pieces[p];
            if (it->begin >= part->begin && it->end <= part->end) { it->open = it->resident = false; }
        }
    }
    return EBB_OK;
}

/* ---- stays -------------------------------------------------------------------------------------- */

static ebb_status push_stay(sweep *s, uint32_t tensor, const piece *it, uint64_t first, uint64_t last) {
    const ebb_stay stay = {
        .tensor = tensor, .first = first, .last = last, .begin = it->begin, .size_bytes = it->end - it->begin};
    return EBB_PUSH(s->plan->mem, &s->plan->stays, stay);
}

static ebb_status open_stay(sweep *s, uint32_t t, piece *it, uint64_t at) {
    if (it->open) { return EBB_OK; }
    it->open = true;
    it->stay = s->plan->stays.n;
    return push_stay(s, t, it, at, NONE);
}

/* Pieces that are resident and never leave are always there. */
static ebb_status begin_stays(sweep *s) {
    for (uint64_t a = 0; a < s->draft->actions.n; a++) {
        const ebb_action *action = &s->draft->actions.data[a].action;
        if (action->kind != EBB_ACT_DROP) { continue; }
        for (uint64_t p = s->first_piece[action->target]; p < s->first_piece[action->target + 1]; p++) {
            piece *it = &s->pieces[p];
            if (it->begin >= action->begin && it->end <= end_of(s, action)) { it->leaves = true; }
        }
    }
    for (uint32_t t = 0; t < s->view.n_tensors; t++) {
        for (uint64_t p = s->first_piece[t]; p < s->first_piece[t + 1]; p++) {
            if (s->pieces[p].open && !s->pieces[p].leaves) { EBB_TRY(push_stay(s, t, &s->pieces[p], 0, 0)); }
        }
    }
    return EBB_OK;
}

static ebb_status sweep_drop(sweep *s, const ebb_action *action, uint64_t at) {
    for (uint64_t p = s->first_piece[action->target]; p < s->first_piece[action->target + 1]; p++) {
        piece *it = &s->pieces[p];
        if (it->begin < action->begin || it->end > end_of(s, action)) { continue; }
        if (!it->open) { return ebb_fail(EBB_E_INTERNAL, "a draft drops tensor %u, which is absent", action->target); }
        if (it->stay == NONE) {
            EBB_ASSERT(it->around == NONE);
            it->around = at;
        } else {
            EBB_ASSERT(s->plan->stays.data[it->stay].tensor == action->target);
            s->plan->stays.data[it->stay].last = at;
        }
        it->open = false;
    }
    return EBB_OK;
}

static void close_piece(sweep *s, const piece *it) {
    EBB_ASSERT(it->open || !it->resident);
    if (!it->open || it->stay == NONE) { return; }
    EBB_ASSERT(s->plan->stays.data[it->stay].last == NONE);
    s->plan->stays.data[it->stay].last = it->resident ? it->around : s->plan->actions.n;
}

/* ---- slots -------------------------------------------------------------------------------------- */

/* The slot's end where nothing follows around the end; one that nothing was read from ends with what filled it. */
static uint64_t end_of_slot(const sweep *s, uint64_t slot) {
    const filled *f = &s->filled.data[slot];
    return f->last_read != NONE ? f->last_read : s->plan->slots.data[slot].first + 1;
}

static bool shares_bytes(const ebb_slot *slot, uint64_t begin, uint64_t end) {
    return slot->begin < end && begin < slot->begin + slot->size_bytes;
}

static ebb_status read_slot(sweep *s, const ebb_action *action, uint64_t at) {
    const uint64_t begin = action->begin, end = end_of(s, action);
    for (uint64_t i = s->slot[action->target]; i != NONE; i = s->filled.data[i].next) {
        const ebb_slot *slot = &s->plan->slots.data[i];
        if (!s->filled.data[i].open || slot->tier != action->tier || !shares_bytes(slot, begin, end)) { continue; }
        s->filled.data[i].last_read = at + 1;
        return EBB_OK;
    }
    const early_read early = {.part = {action->target, begin, end},
                              .tier = action->tier,
                              .until = at + 1,
                              .next = s->early_of[action->target]};
    s->early_of[action->target] = s->early.n;
    return EBB_PUSH(s->plan->mem, &s->early, early);
}

static ebb_status fill_slot(sweep *s, const ebb_action *action, uint32_t tier, uint64_t at) {
    const uint32_t t = action->target;
    const uint64_t begin = action->begin, end = end_of(s, action);
    for (uint64_t i = s->slot[t]; i != NONE; i = s->filled.data[i].next) {
        filled *before = &s->filled.data[i];
        const ebb_slot *slot = &s->plan->slots.data[i];
        if (!before->open || slot->tier != tier || !shares_bytes(slot, begin, end)) { continue; }
        before->open = false;
        s->plan->slots.data[i].last = end_of_slot(s, i);
    }
    const ebb_slot slot = {
        .tensor = t, .tier = tier, .first = at, .last = NONE, .begin = begin, .size_bytes = end - begin};
    const filled f = {.last_read = NONE, .next = s->slot[t], .open = true};
    s->slot[t] = s->plan->slots.n;
    EBB_TRY(EBB_PUSH(s->plan->mem, &s->filled, f));
    return EBB_PUSH(s->plan->mem, &s->plan->slots, slot);
}

/* Something is always there on a tier: all of the tensor. Slots that nothing fills come after those that are filled. */
static ebb_status keep_always(sweep *s, uint32_t t, uint32_t tier) {
    const ebb_slot slot = {.tensor = t, .tier = tier, .size_bytes = s->view.tensors[t].size_bytes};
    for (size_t i = s->plan->slots.n; i-- > s->filled.n && s->plan->slots.data[i].tensor == t;) {
        if (s->plan->slots.data[i].tier == tier) { return EBB_OK; }
    }
    return EBB_PUSH(s->plan->mem, &s->plan->slots, slot);
}

/* Until when an open slot is read in the next iteration; NONE: it is not. */
static uint64_t read_early(const sweep *s, const ebb_slot *slot) {
    uint64_t until = NONE;
    for (uint64_t i = s->early_of[slot->tensor]; i != NONE; i = s->early.data[i].next) {
        const early_read *e = &s->early.data[i];
        if (e->tier != slot->tier || !shares_bytes(slot, e->part.begin, e->part.end)) { continue; }
        until = until == NONE ? e->until : ebb_max_u64(until, e->until);
    }
    return until;
}

/* Whether some of these bytes of the tensor are only in slots where the circle closes. */
static bool is_any_away(const sweep *s, uint32_t t, uint64_t begin, uint64_t end) {
    bool is = false;
    for (uint64_t p = s->first_piece[t]; p < s->first_piece[t + 1]; p++) {
        const piece *it = &s->pieces[p];
        is = is || (!it->resident && it->begin < end && begin < it->end);
    }
    return is && s->view.tensors[t].persistent;
}

/* Whether a slot that was filled goes around the end and serves the read. */
static bool is_served(const sweep *s, const early_read *early) {
    for (uint64_t i = s->slot[early->part.tensor]; i != NONE; i = s->filled.data[i].next) {
        const filled *f = &s->filled.data[i];
        const ebb_slot *slot = &s->plan->slots.data[i];
        if (!f->open || f->stale || slot->tier != early->tier) { continue; }
        if (shares_bytes(slot, early->part.begin, early->part.end)) { return true; }
    }
    return false;
}

/* What the first action fills was there before it on another tier, and is there again where the circle closes. */
static ebb_status close_slots(sweep *s, uint32_t t) {
    bool has_slot = false;
    for (uint64_t i = s->early_of[t]; i != NONE; i = s->early.data[i].next) {
        if (!is_served(s, &s->early.data[i])) { EBB_TRY(keep_always(s, t, s->early.data[i].tier)); }
        has_slot = true;
    }
    for (uint64_t i = s->slot[t]; i != NONE; i = s->filled.data[i].next) {
        ebb_slot *slot = &s->plan->slots.data[i];
        const filled *f = &s->filled.data[i];
        if (!f->open) { continue; }
        const uint64_t until = read_early(s, slot);
        const bool may_go_around = !f->stale && s->view.tensors[t].persistent && slot->first > 0;
        const bool goes_around =
            may_go_around && (is_any_away(s, t, slot->begin, slot->begin + slot->size_bytes) || until != NONE);
        slot->last = !goes_around ? end_of_slot(s, i) : until != NONE ? until : 0;
        has_slot = has_slot || goes_around;
    }
    return is_any_away(s, t, 0, s->view.tensors[t].size_bytes) && !has_slot ? keep_always(s, t, s->draft->home[t])
                                                                            : EBB_OK;
}

/* ---- the sweep over actions ---------------------------------------------------------------------- */

/* The tensor has changed: its slots are of an old version. */
static void outdate_slots(sweep *s, uint32_t t) {
    for (uint64_t i = s->slot[t]; i != NONE; i = s->filled.data[i].next) { s->filled.data[i].stale = true; }
}

static ebb_status sweep_step(sweep *s, const ebb_action *action, uint64_t at) {
    const ebb_step *step = &s->view.steps[action->target];
    EBB_ASSERT(action->choice < step->n_choices);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &s->view.accesses[step->first_access + i];
        const uint32_t t = access->tensor;
        for (uint64_t p = s->first_piece[t]; p < s->first_piece[t + 1]; p++) {
            EBB_TRY(open_stay(s, t, &s->pieces[p], at));
        }
        if ((access->mode & EBB_WRITE) != 0 && action->kind == EBB_ACT_RUN) { outdate_slots(s, t); }
    }
    uint64_t scratch_bytes = s->view.choices[step->first_choice + action->choice].scratch_bytes;
    if (scratch_bytes == 0) { return EBB_OK; }
    ebb_stay stay = {.tensor = EBB_SCRATCH, .first = at, .last = at + 1, .size_bytes = scratch_bytes};
    return EBB_PUSH(s->plan->mem, &s->plan->stays, stay);
}

static ebb_status sweep_in(sweep *s, const ebb_action *action, uint64_t at) {
    EBB_TRY(read_slot(s, action, at));
    for (uint64_t p = s->first_piece[action->target]; p < s->first_piece[action->target + 1]; p++) {
        piece *it = &s->pieces[p];
        if (it->begin < action->begin || it->end > end_of(s, action)) { continue; }
        EBB_TRY(open_stay(s, action->target, it, at));
    }
    return EBB_OK;
}

static ebb_status sweep_action(sweep *s, const ebb_action *action, uint64_t at) {
    switch (action->kind) {
    case EBB_ACT_OUT: return fill_slot(s, action, action->tier, at);
    case EBB_ACT_IN: return sweep_in(s, action, at);
    case EBB_ACT_MOVE: EBB_TRY(read_slot(s, action, at)); return fill_slot(s, action, action->to, at);
    case EBB_ACT_DROP: return sweep_drop(s, action, at);
    default: return sweep_step(s, action, at);
    }
}

/* ---- in order ----------------------------------------------------------------------------------- */

static bool is_in_order(const ebb_plan *plan) {
    for (size_t i = 1; i < plan->stays.n; i++) {
        const ebb_stay *a = &plan->stays.data[i - 1], *b = &plan->stays.data[i];
        if (ebb__comes_after(a->first, a->tensor, a->begin, b->first, b->tensor, b->begin)) { return false; }
    }
    for (size_t i = 1; i < plan->slots.n; i++) {
        const ebb_slot *a = &plan->slots.data[i - 1], *b = &plan->slots.data[i];
        if (ebb__comes_after(a->first, a->tensor, a->begin, b->first, b->tensor, b->begin)) { return false; }
    }
    return true;
}

/* Make one stay of those side by side that begin and end together. */
static void join_stays(ebb_plan *plan) {
    size_t n = 0;
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        ebb_stay *before = n > 0 ? &plan->stays.data[n - 1] : NULL;
        const bool joins = before != NULL && before->tensor == stay->tensor && before->first == stay->first &&
                           before->last == stay->last && before->begin + before->size_bytes == stay->begin &&
                           stay->tensor != EBB_SCRATCH;
        if (joins) {
            before->size_bytes += stay->size_bytes;
        } else {
            plan->stays.data[n++] = *stay;
        }
    }
    plan->stays.n = n;
}

static ebb_status put_in_order(ebb_plan *plan) {
    EBB_TRY(ebb__plan_sort_pieces(plan));
    join_stays(plan);
    const bool is_sound = EBB_DEBUG < 2 || is_in_order(plan);
    EBB_ASSERT(is_sound);
    return EBB_OK;
}

/* ---- all ----------------------------------------------------------------------------------------- */

static ebb_status begin_sweep(sweep *s) {
    const size_t n_tensors = s->view.n_tensors;
    s->slot = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->slot);
    s->early_of = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->early_of);
    if (s->slot == NULL || s->early_of == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n_tensors; t++) { s->slot[t] = s->early_of[t] = NONE; }
    EBB_TRY(make_pieces(s));
    return begin_stays(s);
}

static ebb_status sweep_actions(sweep *s) {
    ebb_plan *plan = s->plan;
    EBB_ASSERT(plan->actions.n == 0 && plan->stays.n == 0 && plan->slots.n == 0);
    EBB_TRY(EBB_RESERVE(plan->mem, &plan->actions, s->draft->actions.n));
    EBB_TRY(begin_sweep(s));
    for (uint64_t at = 0; at < s->draft->actions.n; at++) {
        const ebb_action *action = &s->draft->actions.data[at].action;
        EBB_TRY(sweep_action(s, action, at));
        plan->actions.data[plan->actions.n++] = *action;
    }
    EBB_ASSERT(plan->actions.n == s->draft->actions.n && plan->slots.n <= plan->actions.n);
    for (uint64_t p = 0; p < s->first_piece[s->view.n_tensors]; p++) { close_piece(s, &s->pieces[p]); }
    for (uint32_t t = 0; t < s->view.n_tensors; t++) { EBB_TRY(close_slots(s, t)); }
    return put_in_order(plan);
}

ebb_status ebb__draft_to_plan(const ebb_draft *draft, const ebb_program *program, ebb_plan *plan) {
    sweep s = {.draft = draft, .plan = plan, .view = ebb__plan_view(program)};
    ebb__bump_init(&s.bump, draft->mem);
    ebb_status st = sweep_actions(&s);
    EBB_VEC_FINI(plan->mem, &s.filled);
    EBB_VEC_FINI(plan->mem, &s.early);
    ebb__bump_fini(&s.bump);
    return st;
}
