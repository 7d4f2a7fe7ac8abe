/* SPDX-License-Identifier: Apache-2.0
 *
 * The validator. It replays the actions over the program and believes nothing that a policy, a draft or the
 * placer said: versions, presence, places and the circle are all worked out again here, by code that none of
 * them uses. Before a plan runs, this is the last word.
 *
 * Rules
 *  1. The plan is for this program (fingerprint, alignment); indices are in range; stays and slots are in order. A
 * bound that it certifies is what the program gives, if that is all that its rule looks at.
 *  2. A stay or slot is a part of its tensor; it begins, in the tensor and in the arena, at a multiple of the
 * alignment; a stay ends within the budget. Only persistent tensors' stays and slots live around the end; a stay
 * without beginning and end is [0, 0).
 *  3. Each step runs once, in any order that the versions allow (4), or in the program's if that keeps it; it is run
 *     again only after its run, with the same choice, and if it can be.
 *  4. What an action reads is present and at the version that the program means there. For run and again that
 *     is the version that the step read in the program, for in and move it is decided by who reads it later.
 *  5. Stays begin where an action brings their part, and end where it is dropped or where the circle ends;
 *     scratch is there for exactly the actions that need it, and large enough. What a step accesses is present whole,
 * and its parts lie side by side; so does what is copied.
 *  6. A slot begins with the out or move that fills it, holds the same part, and is alive at each in or move that reads
 *     it. On one tier no byte of a tensor has two slots at one time.
 *  7. Where the circle closes: what lives around the end holds the tensor's final version, and so does all that is on
 *     the device of a persistent tensor, each byte of which has that version somewhere; each kept tensor has it on the
 *     device, in one piece.
 *  8. No two live stays share a byte, nor two live slots of one tier.
 *
 * The live stays of each tensor are an ordered set, by where in the tensor they begin, and so are its live slots on
 * each tier: as no two of them share a byte, whatever shares bytes with a range is next to where the range would be.
 * One walk over the actions, some sorts: O(n log n), and O(parts) an access to a tensor of several live parts.
 */
#include "plan/ordset.h"
#include "plan/plan_priv.h"

#include <inttypes.h>

#define NONE EBB_NO_PIECE
#define UNFILLED UINT32_MAX /* the version of what the action at hand has yet to fill */
#define NOT_RUN UINT32_MAX

typedef struct replay {
    const ebb_program *program;
    const ebb_plan *plan;
    ebb_program_view view;
    uint64_t n; /* actions */
    ebb_bump bump;
    uint32_t *final;        /* [n_tensors]: the program's last version */
    ebb_shelf stays, slots; /* the live ones */
    uint32_t *stay_version, *slot_version;
    uint32_t *reads, *leaves;   /* [n_accesses]: versions */
    uint32_t *choice;           /* [n_steps]: of the run, or NOT_RUN */
    uint32_t *slot_ends;        /* slots in order of last */
    size_t stay, slot, n_ended; /* how far the walk is in stays, slots, slot_ends */
    size_t n_run;               /* steps */
    uint64_t at;
} replay;

static const ebb_stay *stay_at(const replay *r, uint32_t idx) {
    return &r->plan->stays.data[idx];
}

static const ebb_slot *slot_at(const replay *r, uint32_t idx) {
    return &r->plan->slots.data[idx];
}

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

/* The fault of a part of a tensor; NULL: none. */
static const char *judge_part(const replay *r, uint32_t tensor, uint64_t begin, uint64_t size_bytes) {
    const uint64_t tensor_bytes = r->view.tensors[tensor].size_bytes;
    if (size_bytes == 0 || begin >= tensor_bytes || size_bytes > tensor_bytes - begin) {
        return "it is not a part of its tensor";
    }
    return begin % r->view.alignment != 0 ? "it begins within the alignment of its tensor" : NULL;
}

static ebb_status check_stay_form(const replay *r, size_t idx) {
    const ebb_stay *stay = &r->plan->stays.data[idx];
    const char *rule = NULL;
    uint64_t end = 0;
    bool around = stay->first >= stay->last;
    if (stay->first >= r->n || stay->last > r->n) {
        rule = "a stay beyond the actions";
    } else if (stay->tensor != EBB_SCRATCH && stay->tensor >= r->view.n_tensors) {
        rule = "a stay of no tensor";
    } else if (stay->tensor == EBB_SCRATCH && (stay->last != stay->first + 1 || stay->begin != 0)) {
        rule = "scratch that outlives its action";
    } else if (around && !r->view.tensors[stay->tensor].persistent) {
        rule = "a stay around the end of a tensor that is not persistent";
    } else if (stay->first == stay->last && stay->first != 0) {
        rule = "a stay that is everywhere but has a beginning";
    } else if (stay->offset % r->view.alignment != 0) {
        rule = "a stay whose offset is not aligned";
    } else if (!ebb_add_u64(stay->offset, stay->size_bytes, &end) || end > r->plan->budget_bytes) {
        rule = "a stay that ends beyond the budget";
    } else if (stay->tensor != EBB_SCRATCH) {
        rule = judge_part(r, stay->tensor, stay->begin, stay->size_bytes);
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
    } else if (slot->tensor >= r->view.n_tensors || slot->tier == EBB_DEVICE ||
               slot->tier >= r->plan->topology.n_tiers) {
        rule = "a slot of no tensor or tier";
    } else if (slot->first >= slot->last && !r->view.tensors[slot->tensor].persistent) {
        rule = "a slot around the end of a tensor that is not persistent";
    } else if (slot->first == slot->last && slot->first != 0) {
        rule = "a slot that is everywhere but has a beginning";
    } else if (!ebb_add_u64(slot->offset, slot->size_bytes, &end)) {
        rule = "a slot that ends beyond 64 bits";
    } else {
        rule = judge_part(r, slot->tensor, slot->begin, slot->size_bytes);
    }
    if (rule == NULL) { return EBB_OK; }
    return ebb_fail(EBB_E_INVALID_PLAN, "plan: slot %zu (tensor %d at action %" PRIu64 "): %s", idx, (int)slot->tensor,
                    slot->first, rule);
}

static ebb_status check_form(const replay *r) {
    const ebb_plan *plan = r->plan;
    if (plan->fingerprint != ebb_program_fingerprint(r->program)) {
        return ebb_fail(EBB_E_INVALID_PLAN,
                        "plan: it is for another program (fingerprint %016" PRIx64
                        "): another network, batch, image, optimizer or backend",
                        plan->fingerprint);
    }
    if (plan->alignment_bytes != r->view.alignment) {
        return ebb_fail(EBB_E_INVALID_PLAN, "plan: its alignment is not the program's");
    }
    const ebb_certificate *c = &plan->certificate;
    if (c->bytes_rule != NULL && strcmp(c->bytes_rule, "step") == 0 &&
        c->bound_bytes != ebb_program_floor_bytes(r->program, NULL)) {
        return ebb_fail(EBB_E_INVALID_PLAN, "plan: the bound of %" PRIu64 " bytes is not what the rule step gives",
                        c->bound_bytes);
    }
    for (size_t i = 0; i < plan->stays.n; i++) {
        EBB_TRY(check_stay_form(r, i));
        const ebb_stay *stay = &plan->stays.data[i], *before = i > 0 ? stay - 1 : stay;
        if (ebb__comes_after(before->first, before->tensor, before->begin, stay->first, stay->tensor, stay->begin)) {
            return ebb_fail(EBB_E_INVALID_PLAN, "plan: stay %zu is out of order", i);
        }
    }
    for (size_t i = 0; i < plan->slots.n; i++) {
        EBB_TRY(check_slot_form(r, i));
        const ebb_slot *slot = &plan->slots.data[i], *before = i > 0 ? slot - 1 : slot;
        if (ebb__comes_after(before->first, before->tensor, before->begin, slot->first, slot->tensor, slot->begin)) {
            return ebb_fail(EBB_E_INVALID_PLAN, "plan: slot %zu is out of order", i);
        }
    }
    return EBB_OK;
}

/* ---- the replay (rules 3 to 7) ----------------------------------------------------------------- */

/* Versions as program.h words them: each write makes the next. */
static void count_versions(replay *r) {
    for (size_t i = 0; i < r->view.n_accesses; i++) {
        uint32_t *final = &r->final[r->view.accesses[i].tensor];
        r->reads[i] = *final;
        if ((r->view.accesses[i].mode & EBB_WRITE) != 0) { ++*final; }
        r->leaves[i] = *final;
        EBB_ASSERT(r->leaves[i] >= r->reads[i]);
    }
}

/* ---- live pieces -------------------------------------------------------------------------------- */

/* false: it shares bytes of its tensor with one that is live. */
static bool enter_stay(replay *r, uint32_t idx, uint32_t version) {
    r->stay_version[idx] = version;
    return ebb__shelf_add(&r->stays, idx);
}

/* The same on its tier. */
static bool enter_slot(replay *r, uint32_t idx, uint32_t version) {
    r->slot_version[idx] = version;
    return ebb__shelf_add(&r->slots, idx);
}

/* The live slot on a tier that holds a range of a tensor, or NONE. */
static uint32_t find_slot(const replay *r, uint32_t tensor, uint32_t tier, uint64_t begin, uint64_t end) {
    const ebb_shelf *s = &r->slots;
    const uint32_t rank = ebb__shelf_above(s, ebb__shelf_slot_group(tensor, tier), begin);
    return rank != NONE && s->begin[rank] <= begin && end <= s->end[rank] ? s->number[rank] : NONE;
}

/* The bytes of a range of a tensor that are on the device. */
typedef struct range_state {
    bool is_whole, is_straight; /* nothing is absent; it lies in one piece */
    bool is_equal;              /* all is at one version */
    uint32_t version;           /* of the first piece */
    uint32_t first;             /* rank of the first stay, or NONE */
} range_state;

static range_state look_at(const replay *r, uint32_t tensor, uint64_t begin, uint64_t end) {
    range_state state = {.is_straight = true, .is_equal = true, .first = NONE};
    uint64_t next = begin, base = 0;
    const ebb_shelf *s = &r->stays;
    for (uint32_t i = ebb__shelf_above(s, tensor, begin); i != NONE && next < end && s->begin[i] <= next;
         i = ebb__shelf_next(s, i + 1, tensor)) {
        const ebb_stay *stay = stay_at(r, s->number[i]);
        const uint32_t version = r->stay_version[s->number[i]];
        if (state.first == NONE) {
            state.first = i;
            state.version = version;
            base = stay->offset - stay->begin; /* wraps, and so does the other */
        }
        state.is_straight = state.is_straight && stay->offset - stay->begin == base;
        state.is_equal = state.is_equal && version == state.version;
        next = s->end[i];
    }
    state.is_whole = next >= end;
    return state;
}

static ebb_status begin_around(replay *r) {
    for (uint32_t i = 0; i < r->plan->stays.n; i++) {
        const ebb_stay *stay = stay_at(r, i);
        if (stay->first < stay->last) { continue; }
        if (!enter_stay(r, i, 0)) { return broken_end(r, stay->tensor, "two stays of a byte around the end"); }
    }
    for (uint32_t i = 0; i < r->plan->slots.n; i++) {
        const ebb_slot *slot = slot_at(r, i);
        if (slot->first < slot->last) { continue; }
        if (!enter_slot(r, i, 0)) { return broken_end(r, slot->tensor, "two slots of a byte around the end"); }
    }
    return EBB_OK;
}

static void end_slots(replay *r) {
    for (; r->n_ended < r->plan->slots.n; r->n_ended++) {
        const uint32_t idx = r->slot_ends[r->n_ended];
        const ebb_slot *slot = slot_at(r, idx);
        if (slot->last > r->at) { return; }
        if (slot->first != slot->last) { ebb__shelf_remove(&r->slots, idx); }
    }
}

/* ---- actions ------------------------------------------------------------------------------------ */

static uint64_t end_of(const replay *r, const ebb_action *action) {
    return ebb__action_end(action, r->view.tensors[action->target].size_bytes);
}

/* Whether the action at hand is one that can bring the stay. */
static bool brings(const replay *r, const ebb_stay *stay) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    if (action->kind == EBB_ACT_IN) {
        return action->target == stay->tensor && stay->begin >= action->begin &&
               stay->begin + stay->size_bytes <= end_of(r, action);
    }
    if (!ebb__action_computes(action)) { return false; }
    const ebb_step *step = &r->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &r->view.accesses[step->first_access + i];
        if (access->tensor == stay->tensor) { return access->mode == EBB_WRITE; }
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
            if (!brings(r, stay)) { return broken_for(r, stay->tensor, "a stay that nothing brings"); }
            if (!enter_stay(r, (uint32_t)r->stay, UNFILLED)) {
                return broken_for(r, stay->tensor, "it is already present");
            }
        }
    }
    return EBB_OK;
}

static ebb_status begin_slots(replay *r) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    for (; r->slot < r->plan->slots.n && r->plan->slots.data[r->slot].first == r->at; r->slot++) {
        const ebb_slot *slot = &r->plan->slots.data[r->slot];
        if (slot->first == 0 && slot->last == 0) { continue; }
        const bool is_out = action->kind == EBB_ACT_OUT && action->tier == slot->tier;
        const bool is_move = action->kind == EBB_ACT_MOVE && action->to == slot->tier;
        if (!(is_out || is_move) || action->target != slot->tensor || slot->begin != action->begin ||
            slot->begin + slot->size_bytes != end_of(r, action)) {
            return broken_for(r, slot->tensor, "a slot that nothing fills");
        }
        if (!enter_slot(r, (uint32_t)r->slot, UNFILLED)) {
            return broken_for(r, slot->tensor, "two slots on one tier at one time");
        }
    }
    return EBB_OK;
}

/* Rule 3. */
static ebb_status check_step(replay *r, const ebb_action *action) {
    const ebb_step *step = &r->view.steps[action->target];
    uint32_t *choice = &r->choice[action->target];
    if (action->choice >= step->n_choices) { return broken(r, "no such choice"); }
    if (action->kind == EBB_ACT_RUN) {
        if (*choice != NOT_RUN) { return broken(r, "a step is run twice"); }
        if (ebb_program_keeps_order(r->program) && action->target != r->n_run) {
            return broken(r, "not in the program's order, which this program keeps");
        }
        *choice = action->choice;
        r->n_run++;
        return EBB_OK;
    }
    if (*choice == NOT_RUN) { return broken(r, "a step is run again before it was run"); }
    if (step->repeat != EBB_REPEAT_EXACT) {
        return broken(r, "run again, but the step cannot make the same bits again");
    }
    return *choice != action->choice ? broken(r, "run again with another choice") : EBB_OK;
}

static ebb_status replay_step(replay *r, const ebb_action *action, uint64_t scratch_bytes) {
    EBB_TRY(check_step(r, action));
    const ebb_step *step = &r->view.steps[action->target];
    uint64_t needed = r->view.choices[step->first_choice + action->choice].scratch_bytes;
    if (scratch_bytes < needed) { return broken(r, "its scratch is missing or too small"); }
    if (scratch_bytes > 0 && needed == 0) { return broken(r, "scratch that it does not need"); }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t at = step->first_access + i;
        const ebb_access *access = &r->view.accesses[at];
        const range_state state = look_at(r, access->tensor, 0, r->view.tensors[access->tensor].size_bytes);
        if (!state.is_whole) { return broken_for(r, access->tensor, "it is not present"); }
        if (!state.is_straight) { return broken_for(r, access->tensor, "its parts do not lie side by side"); }
        if ((access->mode & EBB_READ) != 0 && !(state.is_equal && state.version == r->reads[at])) {
            return broken_for(r, access->tensor, "it is not at the version that the step reads");
        }
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t at = step->first_access + i;
        const uint32_t tensor = r->view.accesses[at].tensor;
        for (uint32_t p = ebb__shelf_above(&r->stays, tensor, 0); p != NONE;
             p = ebb__shelf_next(&r->stays, p + 1, tensor)) {
            r->stay_version[r->stays.number[p]] = r->leaves[at];
        }
    }
    return EBB_OK;
}

static ebb_status replay_out(replay *r, const ebb_action *action) {
    const uint32_t t = action->target;
    const range_state state = look_at(r, t, action->begin, end_of(r, action));
    const uint32_t slot = find_slot(r, t, action->tier, action->begin, end_of(r, action));
    if (!state.is_whole) { return broken_for(r, t, "it is not present"); }
    if (!state.is_straight) { return broken_for(r, t, "its parts do not lie side by side"); }
    if (!state.is_equal) { return broken_for(r, t, "its parts are of different versions"); }
    if (slot == NONE) { return broken_for(r, t, "it has no slot"); }
    if (r->slot_version[slot] != UNFILLED) { return broken_for(r, t, "its slot does not begin here"); }
    r->slot_version[slot] = state.version;
    return EBB_OK;
}

static ebb_status replay_in(replay *r, const ebb_action *action) {
    const uint32_t t = action->target;
    const uint64_t end = end_of(r, action);
    const range_state state = look_at(r, t, action->begin, end);
    const uint32_t slot = find_slot(r, t, action->tier, action->begin, end);
    if (slot == NONE) { return broken_for(r, t, "it has no slot"); }
    if (!state.is_whole) { return broken_for(r, t, "it is not present"); }
    if (!state.is_straight) { return broken_for(r, t, "its parts do not lie side by side"); }
    for (uint32_t i = state.first; i != NONE && r->stays.begin[i] < end; i = ebb__shelf_next(&r->stays, i + 1, t)) {
        uint32_t *version = &r->stay_version[r->stays.number[i]];
        if (*version != UNFILLED) { return broken_for(r, t, "it is already present"); }
        *version = r->slot_version[slot];
    }
    return EBB_OK;
}

static ebb_status replay_move(replay *r, const ebb_action *action) {
    const uint32_t t = action->target;
    const uint32_t from = find_slot(r, t, action->tier, action->begin, end_of(r, action));
    const uint32_t to = find_slot(r, t, action->to, action->begin, end_of(r, action));
    if (from == NONE || to == NONE) { return broken_for(r, t, "it has no slot"); }
    if (r->slot_version[to] != UNFILLED) { return broken_for(r, t, "its slot does not begin here"); }
    r->slot_version[to] = r->slot_version[from];
    return EBB_OK;
}

static ebb_status replay_drop(replay *r, const ebb_action *action) {
    const uint32_t t = action->target;
    const uint64_t end = end_of(r, action);
    const range_state state = look_at(r, t, action->begin, end);
    if (!state.is_whole) { return broken_for(r, t, "it is not present"); }
    for (uint32_t i = state.first; i != NONE && r->stays.begin[i] < end; i = ebb__shelf_next(&r->stays, i + 1, t)) {
        const ebb_stay *stay = stay_at(r, r->stays.number[i]);
        const bool is_within = stay->begin >= action->begin && stay->begin + stay->size_bytes <= end;
        if (!is_within || stay->last != r->at || stay->first == stay->last) {
            return broken_for(r, t, "its stay does not end here");
        }
        ebb__shelf_remove(&r->stays, r->stays.number[i]);
    }
    return EBB_OK;
}

/* Whether what the action names is there to be named. */
static ebb_status check_target(const replay *r, const ebb_action *action) {
    const uint32_t n_tiers = r->plan->topology.n_tiers;
    if (action->kind > EBB_ACT_DROP) { return broken(r, "no such action"); }
    if (ebb__action_computes(action)) {
        return action->target >= r->view.n_steps ? broken(r, "no such step or tensor") : EBB_OK;
    }
    if (action->target >= r->view.n_tensors) { return broken(r, "no such step or tensor"); }
    const uint64_t tensor_bytes = r->view.tensors[action->target].size_bytes;
    const bool is_whole = action->size_bytes == EBB_WHOLE && action->begin == 0;
    const uint64_t size_bytes = is_whole ? tensor_bytes : action->size_bytes;
    const char *rule = judge_part(r, action->target, action->begin, size_bytes);
    if (rule != NULL) { return broken_for(r, action->target, rule); }
    if (action->kind == EBB_ACT_DROP) { return EBB_OK; }
    const bool has_tiers = action->tier != EBB_DEVICE && action->tier < n_tiers &&
                           (action->kind != EBB_ACT_MOVE || (action->to != EBB_DEVICE && action->to < n_tiers));
    if (!has_tiers) { return broken(r, "no such tier"); }
    return ebb__topology_engine_of(&r->plan->topology, action) == EBB_COMPUTE ? broken(r, "no way between the tiers")
                                                                              : EBB_OK;
}

static ebb_status replay_action(replay *r) {
    const ebb_action *action = &r->plan->actions.data[r->at];
    uint64_t scratch_bytes = 0;
    EBB_TRY(check_target(r, action));
    end_slots(r);
    EBB_TRY(begin_stays(r, &scratch_bytes));
    EBB_TRY(begin_slots(r));
    if (ebb__action_computes(action)) { return replay_step(r, action, scratch_bytes); }
    if (scratch_bytes > 0) { return broken(r, "scratch that it does not need"); }
    switch (action->kind) {
    case EBB_ACT_OUT: return replay_out(r, action);
    case EBB_ACT_IN: return replay_in(r, action);
    case EBB_ACT_MOVE: return replay_move(r, action);
    default: return replay_drop(r, action);
    }
}

/* ---- the end (rule 7) ---------------------------------------------------------------------------- */

/* Where the live piece of a group that holds this place ends, or the place itself. */
static uint64_t follow(const ebb_shelf *s, uint64_t group, uint64_t place) {
    const uint32_t rank = ebb__shelf_above(s, group, place);
    return rank != NONE && s->begin[rank] <= place ? s->end[rank] : place;
}

/* The first byte of a tensor that no piece around the end holds. */
static uint64_t follow_around(const replay *r, uint32_t t) {
    uint64_t place = 0;
    for (uint64_t before = UINT64_MAX; place != before;) {
        before = place;
        const uint32_t rank = ebb__shelf_above(&r->stays, t, place);
        const ebb_stay *stay = rank != NONE ? stay_at(r, r->stays.number[rank]) : NULL;
        if (stay != NULL && stay->first >= stay->last && stay->begin <= place) { place = r->stays.end[rank]; }
        for (uint32_t tier = 1; tier < r->plan->topology.n_tiers; tier++) {
            place = follow(&r->slots, ebb__shelf_slot_group(t, tier), place);
        }
    }
    return place;
}

static ebb_status check_end(const replay *r, uint32_t t) {
    const uint32_t final = r->final[t];
    const ebb_tensor *tensor = &r->view.tensors[t];
    for (uint32_t i = ebb__shelf_above(&r->stays, t, 0); i != NONE; i = ebb__shelf_next(&r->stays, i + 1, t)) {
        const ebb_stay *stay = stay_at(r, r->stays.number[i]);
        const bool goes_around = stay->first >= stay->last, is_stale = r->stay_version[r->stays.number[i]] != final;
        if (!goes_around && stay->last != r->n) { return broken_end(r, t, "its stay is not ended by a drop"); }
        if (goes_around && is_stale) { return broken_end(r, t, "its stay goes around with a stale version"); }
        if (tensor->persistent && is_stale) { return broken_end(r, t, "its stay at the end is of a stale version"); }
    }
    for (uint64_t group = ebb__shelf_slot_group(t, 1); group < ebb__shelf_slot_group(t, r->plan->topology.n_tiers);
         group++) {
        for (uint32_t i = ebb__shelf_above(&r->slots, group, 0); i != NONE;
             i = ebb__shelf_next(&r->slots, i + 1, group)) {
            if (r->slot_version[r->slots.number[i]] == final) { continue; }
            return broken_end(r, t, "its slot goes around with a stale version");
        }
    }
    if (tensor->persistent && follow_around(r, t) < tensor->size_bytes) {
        return broken_end(r, t, "its content is lost");
    }
    const range_state kept = look_at(r, t, 0, tensor->size_bytes);
    const bool is_there = kept.is_whole && kept.is_straight && kept.is_equal && kept.version == final;
    if (tensor->kept && !is_there) { return broken_end(r, t, "it is kept but not on the device"); }
    return EBB_OK;
}

/* Whether what lived around the end at the start does so at the end. It cannot be otherwise: such a piece ends only at
 * its last, and begins again at its first, after that, or the plan is refused there. */
static bool is_closed(const replay *r) {
    for (uint32_t i = 0; i < r->plan->stays.n; i++) {
        if (stay_at(r, i)->first >= stay_at(r, i)->last && !ebb__shelf_has(&r->stays, i)) { return false; }
    }
    for (uint32_t i = 0; i < r->plan->slots.n; i++) {
        if (slot_at(r, i)->first >= slot_at(r, i)->last && !ebb__shelf_has(&r->slots, i)) { return false; }
    }
    return true;
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
    EBB_ASSERT(r->n_run <= r->view.n_steps && r->stay <= r->plan->stays.n && r->slot <= r->plan->slots.n);
    for (uint32_t i = 0; r->n_run < r->view.n_steps && i < r->view.n_steps; i++) {
        if (r->choice[i] != NOT_RUN) { continue; }
        return ebb_fail(EBB_E_INVALID_PLAN, "plan: step %u '%s' is never run", i, r->view.steps[i].name);
    }
    EBB_ASSERT(is_closed(r));
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
    r->final = ebb__bump_alloc(&r->bump, r->view.n_tensors, sizeof *r->final);
    r->reads = ebb__bump_alloc(&r->bump, r->view.n_accesses, sizeof *r->reads);
    r->leaves = ebb__bump_alloc(&r->bump, r->view.n_accesses, sizeof *r->leaves);
    r->choice = ebb__bump_alloc(&r->bump, r->view.n_steps, sizeof *r->choice);
    r->stay_version = ebb__bump_alloc(&r->bump, r->plan->stays.n, sizeof *r->stay_version);
    r->slot_version = ebb__bump_alloc(&r->bump, r->plan->slots.n, sizeof *r->slot_version);
    if (r->final == NULL || r->reads == NULL || r->leaves == NULL || r->choice == NULL || r->stay_version == NULL ||
        r->slot_version == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(ebb__shelf_of_stays(&r->stays, r->plan, &r->bump));
    EBB_TRY(ebb__shelf_of_slots(&r->slots, r->plan, &r->bump));
    for (size_t t = 0; t < r->view.n_tensors; t++) { r->final[t] = 0; }
    for (size_t s = 0; s < r->view.n_steps; s++) { r->choice[s] = NOT_RUN; }
    return ebb__plan_order_slot_ends(r->plan, &r->bump, &r->slot_ends);
}

ebb_status ebb_plan_check(const ebb_program *program, const ebb_plan *plan) {
    EBB_NEED(program);
    EBB_NEED(plan);
    replay r = {.program = program, .plan = plan};
    ebb__bump_init(&r.bump, plan->mem);
    ebb_status st = init_replay(&r);
    if (st == EBB_OK) { st = check_form(&r); }
    if (st == EBB_OK) { st = replay_actions(&r); }
    if (st == EBB_OK) { st = check_arena(&r); }
    for (uint32_t tier = 1; st == EBB_OK && tier < plan->topology.n_tiers; tier++) { st = check_tier(&r, tier); }
    ebb__bump_fini(&r.bump);
    return st;
}
