/* SPDX-License-Identifier: Apache-2.0
 *
 * From a draft to stays and slots, in one sweep over the actions.
 *
 * A stay begins where a tensor is written or copied in while absent, and ends at its drop. A persistent tensor's
 * first drop in the list ends the stay that came around the end; its last beginning is that stay's first. A slot
 * begins at an out and is over behind the last in before the next out. Copies in before the first out read the
 * slot that came around the end, which is the last out's; without any out, the copy is always there.
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
    ebb__free(draft->mem, draft->resident);
    ebb__free(draft->mem, draft->home);
    draft->resident = draft->home = NULL;
}

void ebb__draft_reset(ebb_draft *draft, const ebb_program *program) {
    size_t n_tensors = 0;
    const ebb_tensor *tensors = ebb_program_tensors(program, &n_tensors);
    draft->actions.n = 0;
    for (size_t t = 0; t < n_tensors; t++) {
        draft->resident[t] = tensors[t].persistent;
        draft->home[t] = EBB_TIER_HOST;
    }
}

ebb_status ebb__draft_add(ebb_draft *draft, ebb_action_kind kind, uint32_t target, uint32_t choice, uint64_t bound) {
    EBB_ASSERT(bound == EBB_DRAFT_FIXED || (bound <= draft->actions.n && (kind == EBB_ACT_OUT || kind == EBB_ACT_IN)));
    EBB_ASSERT(kind != EBB_ACT_OUT || choice < EBB_N_TIERS);
    ebb_draft_action added = {.action = {.kind = kind, .target = target, .choice = choice}, .bound = bound};
    return EBB_PUSH(draft->mem, &draft->actions, added);
}

bool ebb__draft_is_valid(const ebb_draft *draft, const ebb_program *program) {
    const ebb_program_view view = ebb__plan_view(program);
    bool *present = ebb__calloc(draft->mem, view.n_tensors, sizeof *present), is_valid = true;
    if (present == NULL) { return true; } /* nobody knows */
    for (size_t t = 0; t < view.n_tensors; t++) { present[t] = draft->resident[t] != 0; }
    for (size_t a = 0; is_valid && a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN) {
            const ebb_step *step = &view.steps[action->target];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                const ebb_access *access = &view.accesses[step->first_access + i];
                is_valid = is_valid && (present[access->tensor] || access->mode != EBB_READ);
                present[access->tensor] = true;
            }
            continue;
        }
        is_valid = present[action->target] == (action->kind != EBB_ACT_IN);
        present[action->target] = action->kind != EBB_ACT_DROP;
    }
    for (size_t t = 0; t < view.n_tensors; t++) { is_valid = is_valid && (present[t] || !draft->resident[t]); }
    ebb__free(draft->mem, present);
    return is_valid;
}

/* What the sweep knows of a tensor. */
typedef struct track {
    uint64_t stay;     /* the open one, or NONE: that from around the end */
    uint64_t slot;     /* the latest that an out began, or NONE */
    uint64_t around;   /* where the stay from around the end was dropped, or NONE */
    uint64_t last_in;  /* behind the latest in from that slot, or NONE */
    uint64_t early_in; /* behind the latest in before the first out, or NONE */
    bool open;
    bool leaves, is_copied; /* at any time: there is a drop, an out */
} track;

typedef struct sweep {
    const ebb_draft *draft;
    ebb_plan *plan;
    ebb_program_view view;
    track *rows;
} sweep;

static ebb_status push_stay(sweep *s, uint32_t tensor, uint64_t first, uint64_t last) {
    ebb_stay stay = {.tensor = tensor, .first = first, .last = last, .size_bytes = s->view.tensors[tensor].size_bytes};
    return EBB_PUSH(s->plan->mem, &s->plan->stays, stay);
}

static ebb_status push_slot(sweep *s, uint32_t tensor, uint32_t tier, uint64_t first, uint64_t last) {
    ebb_slot slot = {
        .tensor = tensor, .tier = tier, .first = first, .last = last, .size_bytes = s->view.tensors[tensor].size_bytes};
    return EBB_PUSH(s->plan->mem, &s->plan->slots, slot);
}

static bool copy_goes_around(const sweep *s, uint32_t t) {
    return s->view.tensors[t].persistent && (!s->draft->resident[t] || s->rows[t].early_in != NONE);
}

/* Look ahead for what the beginning depends on: what is always there. */
static ebb_status begin_sweep(sweep *s) {
    for (uint32_t t = 0; t < s->view.n_tensors; t++) {
        s->rows[t] = (track){.stay = NONE, .slot = NONE, .around = NONE, .last_in = NONE, .early_in = NONE};
        s->rows[t].open = s->draft->resident[t] != 0;
    }
    for (uint64_t at = 0; at < s->draft->actions.n; at++) {
        const ebb_action *action = &s->draft->actions.data[at].action;
        if (action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN) { continue; }
        track *row = &s->rows[action->target];
        row->leaves = row->leaves || action->kind == EBB_ACT_DROP;
        row->is_copied = row->is_copied || action->kind == EBB_ACT_OUT;
        if (action->kind == EBB_ACT_IN && !row->is_copied) { row->early_in = at + 1; }
    }
    for (uint32_t t = 0; t < s->view.n_tensors; t++) {
        const track *row = &s->rows[t];
        if (row->open && !row->leaves) { EBB_TRY(push_stay(s, t, 0, 0)); }
        if (copy_goes_around(s, t) && !row->is_copied) { EBB_TRY(push_slot(s, t, s->draft->home[t], 0, 0)); }
    }
    return EBB_OK;
}

static ebb_status open_stay(sweep *s, uint32_t t, uint64_t at) {
    track *row = &s->rows[t];
    if (row->open) { return EBB_OK; }
    row->open = true;
    row->stay = s->plan->stays.n;
    return push_stay(s, t, at, NONE);
}

static ebb_status sweep_step(sweep *s, const ebb_action *action, uint64_t at) {
    const ebb_step *step = &s->view.steps[action->target];
    EBB_ASSERT(action->choice < step->n_choices);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        EBB_TRY(open_stay(s, s->view.accesses[step->first_access + i].tensor, at));
    }
    uint64_t scratch_bytes = s->view.choices[step->first_choice + action->choice].scratch_bytes;
    if (scratch_bytes == 0) { return EBB_OK; }
    ebb_stay stay = {.tensor = EBB_SCRATCH, .first = at, .last = at + 1, .size_bytes = scratch_bytes};
    return EBB_PUSH(s->plan->mem, &s->plan->stays, stay);
}

/* A slot's end where none follows around the end; one that nothing was read from ends with its out. */
static void end_slot(sweep *s, const track *row) {
    ebb_slot *slot = &s->plan->slots.data[row->slot];
    EBB_ASSERT(slot->last == NONE && (row->last_in == NONE || row->last_in > slot->first));
    slot->last = row->last_in != NONE ? row->last_in : slot->first + 1;
}

static ebb_status sweep_copy(sweep *s, const ebb_action *action, uint64_t at) {
    track *row = &s->rows[action->target];
    if (action->kind == EBB_ACT_IN) {
        if (row->slot != NONE) { row->last_in = at + 1; }
        return open_stay(s, action->target, at);
    }
    if (row->slot != NONE) { end_slot(s, row); }
    row->slot = s->plan->slots.n;
    row->last_in = NONE;
    return push_slot(s, action->target, action->choice, at, NONE);
}

static ebb_status sweep_drop(sweep *s, uint32_t tensor, uint64_t at) {
    track *row = &s->rows[tensor];
    if (!row->open) { return ebb_fail(EBB_E_INTERNAL, "a draft drops tensor %u, which is absent", tensor); }
    if (row->stay == NONE) {
        EBB_ASSERT(row->around == NONE);
        row->around = at;
    } else {
        EBB_ASSERT(s->plan->stays.data[row->stay].tensor == tensor);
        s->plan->stays.data[row->stay].last = at;
    }
    row->open = false;
    return EBB_OK;
}

static void close_tensor(sweep *s, uint32_t t) {
    const track *row = &s->rows[t];
    EBB_ASSERT(row->open || !s->draft->resident[t]);
    if (row->open && row->stay != NONE) {
        EBB_ASSERT(s->plan->stays.data[row->stay].last == NONE);
        s->plan->stays.data[row->stay].last = s->draft->resident[t] ? row->around : s->plan->actions.n;
    }
    if (row->slot == NONE) { return; }
    if (copy_goes_around(s, t)) {
        EBB_ASSERT(s->plan->slots.data[row->slot].first > 0);
        s->plan->slots.data[row->slot].last = row->early_in != NONE ? row->early_in : 0;
    } else {
        end_slot(s, row);
    }
}

/* ---- what begins at one action, by tensor ------------------------------------------------------ */

#define MAX_INSERTED 32u

static uint64_t tensor_of(const void *stay) {
    return ((const ebb_stay *)stay)->tensor;
}

static ebb_status sort_stays(const ebb_mem *mem, ebb_stay *stays, size_t n) {
    if (n > MAX_INSERTED) { return ebb__sort_items(mem, stays, n, sizeof *stays, tensor_of); }
    for (size_t i = 1; i < n; i++) {
        const ebb_stay stay = stays[i];
        size_t at = i;
        for (; at > 0 && stays[at - 1].tensor > stay.tensor; at--) { stays[at] = stays[at - 1]; }
        stays[at] = stay;
    }
    return EBB_OK;
}

/* An action begins at most one slot, and only the first finds others before it, those that are always there. */
static void sort_slots(ebb_plan *plan) {
    size_t n = 0;
    while (n < plan->slots.n && plan->slots.data[n].first == 0) { n++; }
    if (n < 2) { return; }
    const ebb_slot slot = plan->slots.data[n - 1];
    size_t at = n - 1;
    for (; at > 0 && plan->slots.data[at - 1].tensor > slot.tensor; at--) {
        plan->slots.data[at] = plan->slots.data[at - 1];
    }
    plan->slots.data[at] = slot;
}

static bool is_in_order(const ebb_plan *plan) {
    for (size_t i = 1; i < plan->stays.n; i++) {
        const ebb_stay *a = &plan->stays.data[i - 1], *b = &plan->stays.data[i];
        if (a->first > b->first || (a->first == b->first && a->tensor >= b->tensor)) { return false; }
    }
    for (size_t i = 1; i < plan->slots.n; i++) {
        const ebb_slot *a = &plan->slots.data[i - 1], *b = &plan->slots.data[i];
        if (a->first > b->first || (a->first == b->first && a->tensor >= b->tensor)) { return false; }
    }
    return true;
}

static ebb_status put_in_order(ebb_plan *plan) {
    ebb_stay *stays = plan->stays.data;
    for (size_t i = 0, end = 0; i < plan->stays.n; i = end) {
        for (end = i + 1; end < plan->stays.n && stays[end].first == stays[i].first; end++) {}
        if (end - i > 1) { EBB_TRY(sort_stays(plan->mem, &stays[i], end - i)); }
    }
    sort_slots(plan);
    const bool is_sound = EBB_DEBUG < 2 || is_in_order(plan);
    EBB_ASSERT(is_sound);
    return EBB_OK;
}

/* ---- the sweep --------------------------------------------------------------------------------- */

static ebb_status sweep_actions(sweep *s) {
    ebb_plan *plan = s->plan;
    EBB_ASSERT(plan->actions.n == 0 && plan->stays.n == 0 && plan->slots.n == 0);
    EBB_TRY(EBB_RESERVE(plan->mem, &plan->actions, s->draft->actions.n));
    EBB_TRY(begin_sweep(s));
    for (uint64_t at = 0; at < s->draft->actions.n; at++) {
        ebb_action action = s->draft->actions.data[at].action;
        switch (action.kind) {
        case EBB_ACT_DROP: EBB_TRY(sweep_drop(s, action.target, at)); break;
        case EBB_ACT_OUT:
        case EBB_ACT_IN: EBB_TRY(sweep_copy(s, &action, at)); break;
        default: EBB_TRY(sweep_step(s, &action, at)); break;
        }
        if (action.kind == EBB_ACT_OUT) { action.choice = 0; }
        plan->actions.data[plan->actions.n++] = action;
    }
    EBB_ASSERT(plan->actions.n == s->draft->actions.n && plan->slots.n <= plan->actions.n + s->view.n_tensors);
    for (uint32_t t = 0; t < s->view.n_tensors; t++) { close_tensor(s, t); }
    return put_in_order(plan);
}

ebb_status ebb__draft_to_plan(const ebb_draft *draft, const ebb_program *program, ebb_plan *plan) {
    sweep s = {.draft = draft, .plan = plan, .view = ebb__plan_view(program)};
    s.rows = ebb__alloc(draft->mem, s.view.n_tensors, sizeof *s.rows);
    if (s.rows == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = sweep_actions(&s);
    ebb__free(draft->mem, s.rows);
    return st;
}
