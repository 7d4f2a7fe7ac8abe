/* SPDX-License-Identifier: Apache-2.0
 *
 * From a draft to stays and slots, in one sweep over the actions.
 *
 * A stay begins where a tensor is written or copied in while absent, and ends at its drop. A persistent tensor's
 * first drop in the list ends the stay that came around the end; its last beginning is that stay's first. A slot
 * begins at an out and is over behind the last in before the next out. Copies in before the first out read the
 * slot that came around the end, which is the last out's; without any out, the copy is always there.
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
    ebb_draft_action added = {.action = {.kind = kind, .target = target, .choice = choice}, .bound = bound};
    return EBB_PUSH(draft->mem, &draft->actions, added);
}

/* What the sweep knows of a tensor. */
typedef struct track {
    uint64_t begun;    /* of the stay that is open, or NONE */
    uint64_t around;   /* where the stay from around the end was dropped, or NONE */
    uint64_t out;      /* the latest out, or NONE */
    uint64_t last_in;  /* behind the latest in since, or NONE */
    uint64_t early_in; /* behind the latest in before the first out, or NONE */
    uint32_t tier;     /* of the latest out */
    bool open, from_start;
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

static void open_stay(track *row, uint64_t at) {
    if (row->open) { return; }
    row->open = true;
    row->from_start = false;
    row->begun = at;
}

static ebb_status sweep_step(sweep *s, const ebb_action *action, uint64_t at) {
    const ebb_step *step = &s->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        open_stay(&s->rows[s->view.accesses[step->first_access + i].tensor], at);
    }
    uint64_t scratch_bytes = s->view.choices[step->first_choice + action->choice].scratch_bytes;
    if (scratch_bytes == 0) { return EBB_OK; }
    ebb_stay stay = {.tensor = EBB_SCRATCH, .first = at, .last = at + 1, .size_bytes = scratch_bytes};
    return EBB_PUSH(s->plan->mem, &s->plan->stays, stay);
}

static ebb_status sweep_copy(sweep *s, const ebb_action *action, uint64_t at) {
    track *row = &s->rows[action->target];
    if (action->kind == EBB_ACT_IN) {
        open_stay(row, at);
        *(row->out == NONE ? &row->early_in : &row->last_in) = at + 1;
        return EBB_OK;
    }
    if (row->out != NONE) { /* the slot before; of no use if nothing was read from it */
        uint64_t last = row->last_in != NONE ? row->last_in : row->out + 1;
        EBB_TRY(push_slot(s, action->target, row->tier, row->out, last));
    }
    row->out = at;
    row->last_in = NONE;
    row->tier = action->choice;
    return EBB_OK;
}

static ebb_status sweep_drop(sweep *s, uint32_t tensor, uint64_t at) {
    track *row = &s->rows[tensor];
    if (!row->open) { return ebb_fail(EBB_E_INTERNAL, "a draft drops tensor %u, which is absent", tensor); }
    row->open = false;
    if (row->from_start) {
        row->around = at;
        return EBB_OK;
    }
    return push_stay(s, tensor, row->begun, at);
}

static ebb_status close_stay(sweep *s, uint32_t t) {
    const track *row = &s->rows[t];
    if (!row->open) { return EBB_OK; }
    if (s->draft->resident[t]) {
        return row->from_start ? push_stay(s, t, 0, 0) : push_stay(s, t, row->begun, row->around);
    }
    return push_stay(s, t, row->begun, s->plan->actions.n);
}

static ebb_status close_slot(sweep *s, uint32_t t) {
    const track *row = &s->rows[t];
    bool around = s->view.tensors[t].persistent && (!s->draft->resident[t] || row->early_in != NONE);
    if (row->out == NONE) { return around ? push_slot(s, t, s->draft->home[t], 0, 0) : EBB_OK; }
    if (around) { return push_slot(s, t, row->tier, row->out, row->early_in != NONE ? row->early_in : 0); }
    return push_slot(s, t, row->tier, row->out, row->last_in != NONE ? row->last_in : row->out + 1);
}

static ebb_status sweep_actions(sweep *s) {
    for (uint64_t at = 0; at < s->draft->actions.n; at++) {
        ebb_action action = s->draft->actions.data[at].action;
        switch (action.kind) {
        case EBB_ACT_DROP: EBB_TRY(sweep_drop(s, action.target, at)); break;
        case EBB_ACT_OUT:
        case EBB_ACT_IN: EBB_TRY(sweep_copy(s, &action, at)); break;
        default: EBB_TRY(sweep_step(s, &action, at)); break;
        }
        if (action.kind == EBB_ACT_OUT) { action.choice = 0; }
        EBB_TRY(EBB_PUSH(s->plan->mem, &s->plan->actions, action));
    }
    for (uint32_t t = 0; t < s->view.n_tensors; t++) {
        EBB_TRY(close_stay(s, t));
        EBB_TRY(close_slot(s, t));
    }
    ebb__plan_sort(s->plan);
    return EBB_OK;
}

ebb_status ebb__draft_to_plan(const ebb_draft *draft, const ebb_program *program, ebb_plan *plan) {
    sweep s = {.draft = draft, .plan = plan, .view = ebb__plan_view(program)};
    s.rows = ebb__alloc(draft->mem, s.view.n_tensors, sizeof *s.rows);
    if (s.rows == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < s.view.n_tensors; t++) {
        s.rows[t] = (track){.begun = NONE, .around = NONE, .out = NONE, .last_in = NONE, .early_in = NONE};
        s.rows[t].open = s.rows[t].from_start = draft->resident[t] != 0;
    }
    ebb_status st = sweep_actions(&s);
    ebb__free(draft->mem, s.rows);
    return st;
}
