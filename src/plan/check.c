/* SPDX-License-Identifier: Apache-2.0
 *
 * The validator. It replays the actions over the program and believes nothing that a policy, a draft or the
 * placer said: versions, presence, places and the circle are all worked out again here, by code that none of
 * them uses. Before a plan runs, this is the last word.
 *
 * Rules
 *  1. The plan is for this program (fingerprint); indices are in range; stays and slots are in order.
 *  2. A stay has its tensor's size, an aligned offset, and ends within the budget. Only persistent tensors'
 *     stays and slots live around the end; a stay without beginning and end is [0, 0).
 *  3. Each step runs once, in order; it is run again only after its run and with the same choice.
 *  4. What an action reads is present and at the version that the program means there. For run and again that
 *     is the version that the step read in the program, for in it is decided by who reads it later.
 *  5. Stays begin where an action brings their tensor, and end where it is dropped or where the circle ends;
 *     scratch is there for exactly the actions that need it, and large enough.
 *  6. A slot begins with its out and is alive at each in. A tensor has one slot at a time.
 *  7. Where the circle closes: what lives around the end holds the tensor's final version, each persistent
 *     tensor has that version somewhere, each kept tensor has it on the device.
 *  8. No two live stays share a byte, nor two live slots of one tier.
 *
 * One walk over the actions, two sorts for each of the arena and the tiers: O(n log n).
 */
#include "plan/ordset.h"
#include "plan/plan_priv.h"

#include <inttypes.h>

#define NONE UINT64_MAX

typedef struct tensor_state {
    uint64_t stay, slot; /* index of the live one, or NONE */
    uint32_t version;    /* of what is on the device */
    uint32_t slot_version;
    uint32_t final; /* the program's */
} tensor_state;

typedef struct replay {
    const ebb_program *program;
    const ebb_plan *plan;
    ebb_program_view view;
    uint64_t n; /* actions */
    ebb_bump bump;
    tensor_state *state;        /* [n_tensors] */
    uint32_t *reads, *leaves;   /* [n_accesses]: versions */
    uint32_t *choice;           /* [n_steps]: of the run */
    uint32_t *slot_ends;        /* slots in order of last */
    size_t stay, slot, n_ended; /* how far the walk is in stays, slots, slot_ends */
    uint32_t next_step;
    uint64_t at;
} replay;

/* The action at hand breaks a rule. */
static ebb_status broken(const replay *r, const char *rule) {
    EBB_ASSERT(r->at < r->n);
    const ebb_action *action = &r->plan->actions.data[r->at];
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: action %" PRIu64 " (%s %u): %s", r->at, ebb__action_name(action->kind),
                    action->target, rule);
}

static ebb_status broken_for(const replay *r, uint32_t tensor, const char *rule) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: action %" PRIu64 " (%s %u), tensor %u '%s': %s", r->at,
                    ebb__action_name(action->kind), action->target, tensor, r->view.tensors[tensor].name, rule);
}

static ebb_status broken_end(const replay *r, uint32_t tensor, const char *rule) {
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: end of the circle, tensor %u '%s': %s", tensor,
                    r->view.tensors[tensor].name, rule);
}

/* ---- the form (rules 1, 2) --------------------------------------------------------------------- */

static ebb_status check_stay_form(const replay *r, size_t idx) {
    const ebb_stay *stay = &r->plan->stays.data[idx];
    const char *rule = NULL;
    uint64_t end = 0;
    bool around = stay->first >= stay->last;
    if (stay->first >= r->n || stay->last > r->n) {
        rule = "a stay beyond the actions";
    } else if (stay->tensor != EBB_SCRATCH && stay->tensor >= r->view.n_tensors) {
        rule = "a stay of no tensor";
    } else if (stay->tensor == EBB_SCRATCH && stay->last != stay->first + 1) {
        rule = "scratch that outlives its action";
    } else if (stay->tensor != EBB_SCRATCH && stay->size_bytes != r->view.tensors[stay->tensor].size_bytes) {
        rule = "a stay that has not its tensor's size";
    } else if (around && !r->view.tensors[stay->tensor].persistent) {
        rule = "a stay around the end of a tensor that is not persistent";
    } else if (stay->first == stay->last && stay->first != 0) {
        rule = "a stay that is everywhere but has a beginning";
    } else if (stay->offset % r->view.alignment != 0) {
        rule = "a stay whose offset is not aligned";
    } else if (!ebb_add_u64(stay->offset, stay->size_bytes, &end) || end > r->plan->budget_bytes) {
        rule = "a stay that ends beyond the budget";
    }
    if (rule == NULL) { return EBB_OK; }
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: stay %zu (tensor %d at action %" PRIu64 "): %s", idx, (int)stay->tensor,
                    stay->first, rule);
}

static ebb_status check_slot_form(const replay *r, size_t idx) {
    const ebb_slot *slot = &r->plan->slots.data[idx];
    const char *rule = NULL;
    uint64_t end = 0;
    if (slot->first >= r->n || slot->last > r->n) {
        rule = "a slot beyond the actions";
    } else if (slot->tensor >= r->view.n_tensors || slot->tier >= EBB_N_TIERS) {
        rule = "a slot of no tensor or tier";
    } else if (slot->size_bytes != r->view.tensors[slot->tensor].size_bytes) {
        rule = "a slot that has not its tensor's size";
    } else if (slot->first >= slot->last && !r->view.tensors[slot->tensor].persistent) {
        rule = "a slot around the end of a tensor that is not persistent";
    } else if (slot->first == slot->last && slot->first != 0) {
        rule = "a slot that is everywhere but has a beginning";
    } else if (!ebb_add_u64(slot->offset, slot->size_bytes, &end)) {
        rule = "a slot that ends beyond 64 bits";
    }
    if (rule == NULL) { return EBB_OK; }
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: slot %zu (tensor %d at action %" PRIu64 "): %s", idx, (int)slot->tensor,
                    slot->first, rule);
}

static ebb_status check_form(const replay *r) {
    const ebb_plan *plan = r->plan;
    if (plan->fingerprint != ebb_program_fingerprint(r->program)) {
        return ebb_fail(EBB_E_INVALID_PLAN, "plan: it is for another program (fingerprint %016" PRIx64 ")",
                        plan->fingerprint);
    }
    for (size_t i = 0; i < plan->stays.n; i++) {
        EBB_TRY(check_stay_form(r, i));
        const ebb_stay *stay = &plan->stays.data[i], *before = i > 0 ? stay - 1 : stay;
        if (before->first > stay->first || (before->first == stay->first && before->tensor > stay->tensor)) {
            return ebb_fail(EBB_E_INVALID_PLAN, "plan: stay %zu is out of order", i);
        }
    }
    for (size_t i = 0; i < plan->slots.n; i++) {
        EBB_TRY(check_slot_form(r, i));
        const ebb_slot *slot = &plan->slots.data[i], *before = i > 0 ? slot - 1 : slot;
        if (before->first > slot->first || (before->first == slot->first && before->tensor > slot->tensor)) {
            return ebb_fail(EBB_E_INVALID_PLAN, "plan: slot %zu is out of order", i);
        }
    }
    return EBB_OK;
}

/* ---- the replay (rules 3 to 7) ----------------------------------------------------------------- */

/* Versions as program.h words them: each write makes the next. */
static void count_versions(replay *r) {
    for (size_t i = 0; i < r->view.n_accesses; i++) {
        tensor_state *state = &r->state[r->view.accesses[i].tensor];
        r->reads[i] = state->final;
        if ((r->view.accesses[i].mode & EBB_WRITE) != 0) { state->final++; }
        r->leaves[i] = state->final;
        EBB_ASSERT(r->leaves[i] >= r->reads[i]);
    }
}

static ebb_status begin_around(replay *r) {
    for (size_t i = 0; i < r->plan->stays.n; i++) {
        const ebb_stay *stay = &r->plan->stays.data[i];
        if (stay->first < stay->last) { continue; }
        if (r->state[stay->tensor].stay != NONE) { return broken_end(r, stay->tensor, "two stays around the end"); }
        r->state[stay->tensor].stay = i;
    }
    for (size_t i = 0; i < r->plan->slots.n; i++) {
        const ebb_slot *slot = &r->plan->slots.data[i];
        if (slot->first < slot->last) { continue; }
        if (r->state[slot->tensor].slot != NONE) { return broken_end(r, slot->tensor, "two slots around the end"); }
        r->state[slot->tensor].slot = i;
    }
    return EBB_OK;
}

static void end_slots(replay *r) {
    for (; r->n_ended < r->plan->slots.n; r->n_ended++) {
        uint64_t idx = r->slot_ends[r->n_ended];
        EBB_ASSERT(idx < r->plan->slots.n);
        const ebb_slot *slot = &r->plan->slots.data[idx];
        if (slot->last > r->at) { return; }
        if (slot->first != slot->last && r->state[slot->tensor].slot == idx) { r->state[slot->tensor].slot = NONE; }
    }
}

/* Whether the action at hand is one that can bring the tensor. */
static bool brings(const replay *r, uint32_t tensor) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    if (action->kind == EBB_ACT_IN) { return action->target == tensor; }
    if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) { return false; }
    const ebb_step *step = &r->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &r->view.accesses[step->first_access + i];
        if (access->tensor == tensor) { return access->mode == EBB_WRITE; }
    }
    return false;
}

/* Begin the stays that begin here. *scratch_out: bytes of scratch that are there. */
static ebb_status begin_stays(replay *r, uint64_t *scratch_out) {
    bool has_scratch = false;
    *scratch_out = 0;
    for (; r->stay < r->plan->stays.n && r->plan->stays.data[r->stay].first == r->at; r->stay++) {
        const ebb_stay *stay = &r->plan->stays.data[r->stay];
        if (stay->tensor == EBB_SCRATCH) {
            if (has_scratch) { return broken(r, "scratch twice"); }
            has_scratch = true;
            *scratch_out = stay->size_bytes;
        } else if (stay->last != 0 || stay->first != 0) { /* what is always there does not begin */
            if (r->state[stay->tensor].stay != NONE) { return broken_for(r, stay->tensor, "it is already present"); }
            if (!brings(r, stay->tensor)) { return broken_for(r, stay->tensor, "a stay that nothing brings"); }
            r->state[stay->tensor].stay = r->stay;
            r->state[stay->tensor].version = UINT32_MAX; /* until the action has filled it */
        }
    }
    return EBB_OK;
}

static ebb_status begin_slots(replay *r) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    for (; r->slot < r->plan->slots.n && r->plan->slots.data[r->slot].first == r->at; r->slot++) {
        const ebb_slot *slot = &r->plan->slots.data[r->slot];
        if (slot->first == 0 && slot->last == 0) { continue; }
        if (action->kind != EBB_ACT_OUT || action->target != slot->tensor) {
            return broken_for(r, slot->tensor, "a slot that nothing fills");
        }
        if (r->state[slot->tensor].slot != NONE) { return broken_for(r, slot->tensor, "two slots at one time"); }
        r->state[slot->tensor].slot = r->slot;
        r->state[slot->tensor].slot_version = UINT32_MAX;
    }
    return EBB_OK;
}

/* Rule 3: which choice is meant. */
static ebb_status check_step(replay *r, const ebb_action *action) {
    const ebb_step *step = &r->view.steps[action->target];
    if (action->choice >= step->n_choices) { return broken(r, "no such choice"); }
    if (action->kind == EBB_ACT_RUN) {
        if (action->target != r->next_step) { return broken(r, "a step out of the program's order"); }
        r->next_step++;
        r->choice[action->target] = action->choice;
    } else {
        if (action->target >= r->next_step) { return broken(r, "a step is run again before it was run"); }
        if (r->choice[action->target] != action->choice) { return broken(r, "run again with another choice"); }
    }
    return EBB_OK;
}

static ebb_status replay_step(replay *r, const ebb_action *action, uint64_t scratch_bytes) {
    EBB_TRY(check_step(r, action));
    const ebb_step *step = &r->view.steps[action->target];
    uint64_t needed = r->view.choices[step->first_choice + action->choice].scratch_bytes;
    if (scratch_bytes < needed) { return broken(r, "its scratch is missing or too small"); }
    if (scratch_bytes > 0 && needed == 0) { return broken(r, "scratch that it does not need"); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint64_t at = step->first_access + i;
        const ebb_access *access = &r->view.accesses[at];
        const tensor_state *state = &r->state[access->tensor];
        if (state->stay == NONE) { return broken_for(r, access->tensor, "it is not present"); }
        if ((access->mode & EBB_READ) != 0 && state->version != r->reads[at]) {
            return broken_for(r, access->tensor, "it is not at the version that the step reads");
        }
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint64_t at = step->first_access + i;
        r->state[r->view.accesses[at].tensor].version = r->leaves[at];
    }
    return EBB_OK;
}

static ebb_status replay_copy(replay *r, const ebb_action *action) {
    tensor_state *state = &r->state[action->target];
    if (state->stay == NONE) { return broken_for(r, action->target, "it is not present"); }
    if (state->slot == NONE) { return broken_for(r, action->target, "it has no slot"); }
    const ebb_slot *slot = &r->plan->slots.data[state->slot];
    if (action->kind == EBB_ACT_OUT) {
        if (slot->first != r->at || slot->last == slot->first) {
            return broken_for(r, action->target, "its slot does not begin here");
        }
        state->slot_version = state->version;
        return EBB_OK;
    }
    if (r->plan->stays.data[state->stay].first != r->at || state->version != UINT32_MAX) {
        return broken_for(r, action->target, "it is already present");
    }
    state->version = state->slot_version;
    return EBB_OK;
}

static ebb_status replay_drop(replay *r, const ebb_action *action) {
    tensor_state *state = &r->state[action->target];
    if (state->stay == NONE) { return broken_for(r, action->target, "it is not present"); }
    const ebb_stay *stay = &r->plan->stays.data[state->stay];
    if (stay->last != r->at || stay->first == stay->last) {
        return broken_for(r, action->target, "its stay does not end here");
    }
    state->stay = NONE;
    return EBB_OK;
}

static ebb_status replay_action(replay *r) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    uint64_t scratch_bytes = 0;
    if (action->kind > EBB_ACT_DROP) { return broken(r, "no such action"); }
    bool computes = action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN;
    if (action->target >= (computes ? r->view.n_steps : r->view.n_tensors)) {
        return broken(r, "no such step or tensor");
    }
    end_slots(r);
    EBB_TRY(begin_stays(r, &scratch_bytes));
    EBB_TRY(begin_slots(r));
    if (computes) { return replay_step(r, action, scratch_bytes); }
    if (scratch_bytes > 0) { return broken(r, "scratch that it does not need"); }
    return action->kind == EBB_ACT_DROP ? replay_drop(r, action) : replay_copy(r, action);
}

/* Rule 7, for one tensor. */
static ebb_status check_end(const replay *r, uint32_t t) {
    const tensor_state *state = &r->state[t];
    const ebb_tensor *tensor = &r->view.tensors[t];
    bool on_device = state->stay != NONE && state->version == state->final, goes_around = false;
    if (state->stay != NONE) {
        const ebb_stay *stay = &r->plan->stays.data[state->stay];
        goes_around = stay->first >= stay->last;
        if (!goes_around && stay->last != r->n) { return broken_end(r, t, "its stay is not ended by a drop"); }
        if (goes_around && !on_device) { return broken_end(r, t, "its stay goes around with a stale version"); }
    }
    bool in_slot = state->slot != NONE && state->slot_version == state->final;
    if (state->slot != NONE && !in_slot) { return broken_end(r, t, "its slot goes around with a stale version"); }
    if (tensor->persistent && !goes_around && !in_slot) { return broken_end(r, t, "its content is lost"); }
    if (tensor->kept && !on_device) { return broken_end(r, t, "it is kept but not on the device"); }
    return EBB_OK;
}

/* What lived around the end at the start must be what does so at the end. */
static ebb_status check_closed(const replay *r) {
    for (size_t i = 0; i < r->plan->stays.n; i++) {
        const ebb_stay *stay = &r->plan->stays.data[i];
        if (stay->first >= stay->last && r->state[stay->tensor].stay != i) {
            return broken_end(r, stay->tensor, "its stay around the end is not there at the end");
        }
    }
    for (size_t i = 0; i < r->plan->slots.n; i++) {
        const ebb_slot *slot = &r->plan->slots.data[i];
        if (slot->first >= slot->last && r->state[slot->tensor].slot != i) {
            return broken_end(r, slot->tensor, "its slot around the end is not there at the end");
        }
    }
    return EBB_OK;
}

/* A stay around the end must have been dropped since the start, at its last. */
static ebb_status check_dropped(const replay *r) {
    for (size_t i = 0; i < r->plan->stays.n; i++) {
        const ebb_stay *stay = &r->plan->stays.data[i];
        if (stay->first <= stay->last) { continue; }
        const ebb_action *action = stay->last < r->n ? &r->plan->actions.data[stay->last] : NULL;
        if (action == NULL || action->kind != EBB_ACT_DROP || action->target != stay->tensor) {
            return broken_end(r, stay->tensor, "its stay around the end is not ended by a drop");
        }
    }
    return EBB_OK;
}

static ebb_status replay_actions(replay *r) {
    count_versions(r);
    EBB_TRY(check_dropped(r));
    EBB_TRY(begin_around(r));
    for (r->at = 0; r->at < r->n; r->at++) { EBB_TRY(replay_action(r)); }
    end_slots(r);
    EBB_ASSERT(r->next_step <= r->view.n_steps && r->stay <= r->plan->stays.n && r->slot <= r->plan->slots.n);
    if (r->next_step != r->view.n_steps) {
        return ebb_fail(EBB_E_INVALID_PLAN, "plan: step %u '%s' is never run", r->next_step,
                        r->view.steps[r->next_step].name);
    }
    EBB_TRY(check_closed(r));
    for (uint32_t t = 0; t < r->view.n_tensors; t++) { EBB_TRY(check_end(r, t)); }
    return EBB_OK;
}

/* ---- bytes (rule 8) ---------------------------------------------------------------------------- */

/* A stay or a slot as a rectangle: when and where. */
typedef struct box {
    uint64_t first, last, low, high;
    uint32_t tensor;
} box;

static ebb_status overlapping(const char *what, const box *a, const box *b, uint64_t time) {
    return ebb_fail(EBB_E_INVALID_PLAN,
                    "plan: action %" PRIu64 ": %s of tensors %d and %d overlap: [%" PRIu64 ", %" PRIu64
                    ") and [%" PRIu64 ", %" PRIu64 ")",
                    time, what, (int)a->tensor, (int)b->tensor, a->low, a->high, b->low, b->high);
}

/* While the live boxes are disjoint, a new one overlaps any of them only if it overlaps a neighbour. */
static ebb_status enter_box(const char *what, const box *boxes, ebb_ordset *live, uint64_t idx, uint64_t time) {
    const box *b = &boxes[idx];
    EBB_ASSERT(!ebb__ordset_has(live, idx) && b->low <= b->high);
    uint64_t left = ebb__ordset_prev(live, idx), right = ebb__ordset_next(live, idx);
    if (left != EBB_ORDSET_NONE && boxes[left].high > b->low) { return overlapping(what, &boxes[left], b, time); }
    if (right != EBB_ORDSET_NONE && boxes[right].low < b->high) { return overlapping(what, b, &boxes[right], time); }
    ebb__ordset_add(live, idx);
    return EBB_OK;
}

/* The boxes' numbers in order of the keys. */
static ebb_status order_boxes(ebb_bump *bump, const uint64_t *key, size_t n, uint32_t **order_out) {
    if (n >= UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "plan: more than 2^32 - 2 stays or slots"); }
    uint32_t *order = ebb__bump_alloc(bump, n, sizeof *order);
    if (order == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) { order[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(bump->mem, order, n, key));
    *order_out = order;
    return EBB_OK;
}

/* boxes: in order of first, as drawn; ranked: in order of low; rank: where each of boxes is in ranked; ends: numbers of
 * boxes in order of last. */
typedef struct packing {
    const box *boxes;
    size_t n;
    box *ranked;
    uint32_t *rank, *ends;
    ebb_ordset live; /* ranks */
} packing;

static ebb_status init_packing(packing *p, ebb_bump *bump) {
    uint32_t *by_low = NULL;
    uint64_t *key = ebb__bump_alloc(bump, p->n, sizeof *key);
    p->ranked = ebb__bump_alloc(bump, p->n, sizeof *p->ranked);
    p->rank = ebb__bump_alloc(bump, p->n, sizeof *p->rank);
    if (key == NULL || p->ranked == NULL || p->rank == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < p->n; i++) { key[i] = p->boxes[i].last; }
    EBB_TRY(order_boxes(bump, key, p->n, &p->ends));
    for (size_t i = 0; i < p->n; i++) { key[i] = p->boxes[i].low; }
    EBB_TRY(order_boxes(bump, key, p->n, &by_low));
    for (size_t i = 0; i < p->n; i++) {
        p->ranked[i] = p->boxes[by_low[i]];
        EBB_ASSERT(i == 0 || p->ranked[i - 1].low <= p->ranked[i].low);
        p->rank[by_low[i]] = (uint32_t)i;
    }
    return ebb__ordset_init(&p->live, p->n, bump);
}

/* Take away what has ended by this time; what is always there does not end. */
static void end_boxes(packing *p, size_t *n_ended, uint64_t time) {
    for (; *n_ended < p->n && p->boxes[p->ends[*n_ended]].last <= time; ++*n_ended) {
        const uint32_t idx = p->ends[*n_ended];
        EBB_ASSERT(p->boxes[idx].first == p->boxes[idx].last || ebb__ordset_has(&p->live, p->rank[idx]));
        if (p->boxes[idx].first != p->boxes[idx].last) { ebb__ordset_remove(&p->live, p->rank[idx]); }
    }
}

/* boxes are in order of first. */
static ebb_status check_disjoint(const char *what, const box *boxes, size_t n, ebb_bump *bump) {
    packing p = {.boxes = boxes, .n = n};
    size_t n_ended = 0;
    EBB_TRY(init_packing(&p, bump));
    for (size_t i = 0; i < n; i++) {
        if (boxes[i].first >= boxes[i].last) { EBB_TRY(enter_box(what, p.ranked, &p.live, p.rank[i], 0)); }
    }
    for (size_t i = 0; i < n; i++) {
        EBB_ASSERT(i == 0 || boxes[i - 1].first <= boxes[i].first);
        end_boxes(&p, &n_ended, boxes[i].first);
        if (boxes[i].first == boxes[i].last) { continue; }
        EBB_TRY(enter_box(what, p.ranked, &p.live, p.rank[i], boxes[i].first));
    }
    return EBB_OK;
}

static ebb_status check_arena(replay *r) {
    size_t n = r->plan->stays.n;
    box *boxes = ebb__bump_alloc(&r->bump, n, sizeof *boxes);
    if (boxes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < n; i++) {
        const ebb_stay *s = &r->plan->stays.data[i];
        boxes[i] = (box){s->first, s->last, s->offset, s->offset + s->size_bytes, s->tensor};
    }
    return check_disjoint("stays", boxes, n, &r->bump);
}

static ebb_status check_tier(replay *r, uint32_t tier) {
    size_t n = 0;
    box *boxes = ebb__bump_alloc(&r->bump, r->plan->slots.n, sizeof *boxes);
    if (boxes == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t i = 0; i < r->plan->slots.n; i++) {
        const ebb_slot *s = &r->plan->slots.data[i];
        if (s->tier == tier) { boxes[n++] = (box){s->first, s->last, s->offset, s->offset + s->size_bytes, s->tensor}; }
    }
    return check_disjoint("slots", boxes, n, &r->bump);
}

/* ---- all --------------------------------------------------------------------------------------- */

static ebb_status init_replay(replay *r) {
    r->view = ebb__plan_view(r->program);
    r->n = r->plan->actions.n;
    r->state = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *r->state);
    r->reads = ebb__bump_alloc(&r->bump, r->view.n_accesses, sizeof *r->reads);
    r->leaves = ebb__bump_alloc(&r->bump, r->view.n_accesses, sizeof *r->leaves);
    r->choice = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *r->choice);
    if (r->state == NULL || r->reads == NULL || r->leaves == NULL || r->choice == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < r->view.n_tensors; t++) { r->state[t] = (tensor_state){.stay = NONE, .slot = NONE}; }
    return ebb__plan_order_slot_ends(r->plan, &r->bump, &r->slot_ends);
}

ebb_status ebb_plan_check(const ebb_program *program, const ebb_plan *plan) {
    replay r = {.program = program, .plan = plan};
    ebb__bump_init(&r.bump, plan->mem);
    ebb_status st = init_replay(&r);
    if (st == EBB_OK) { st = check_form(&r); }
    if (st == EBB_OK) { st = replay_actions(&r); }
    if (st == EBB_OK) { st = check_arena(&r); }
    for (uint32_t tier = 0; st == EBB_OK && tier < EBB_N_TIERS; tier++) { st = check_tier(&r, tier); }
    ebb__bump_fini(&r.bump);
    return st;
}
