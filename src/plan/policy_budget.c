/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy budget: plain and honest. It walks the steps in order with the set of tensors that are on the device.
 * Where room is missing, the tensor whose next use is farthest leaves (among equals the bigger), in the cheapest
 * of these ways:
 *
 *   nothing to do   its content is not needed any more, or has a copy on a lower tier
 *   copy            out now, in when it is wanted: its bytes over the link, twice, at full price
 *   compute again   the steps that make it from what will be at hand (budget_closure.c)
 *
 * A tensor that a step reads and that is absent comes back, and may make others leave. A tensor that comes back on the
 * way of a recomputation stays while there is room, so whether a segment is made again once or for each use falls out
 * of the room that there is.
 *
 * Invariants
 *  1. A tensor that left to be computed again can be: the leaves of its closure are marked as needed until then, so
 *     that they do not die and are themselves only left in ways from which they come back.
 *  2. load is the rounded bytes of what is present plus the scratch of the step at hand, and never above the limit.
 *  3. A locked tensor does not leave. Every present tensor without locks has an entry in the heap or among the
 *     stuck.
 *
 * Recomputation can get stuck for room where a copy would not. The tensor is then remembered as copy-only, the lap
 * goes on as if it were there, to find all such tensors at once, and is walked again. In the last try nothing is
 * computed again.
 *
 * The circle: a first lap begins with all persistent tensors on lower tiers and shows which of them are on the device
 * at its end. The second begins with these and ends by bringing back exactly them.
 *
 * Time: near-linear, O((n + actions) log n) a lap, where what is popped can leave. What cannot, as a leaf of what will
 * be computed again for which no tier has room, waits among the stuck and is asked again when no other is left, once
 * a step. That is O(n log n) a step at worst, quadratic in all, where at every step the tiers are full and nearly all
 * that is present is stuck. It is not bounded, because a use that has passed may have made a way for any of them, and
 * the one that is not asked may be the only one that can leave.
 *
 * Choices of algorithm are given (fitting.c tries others). Not here: better orders, splitting tensors, weighing how
 * much of a copy hides behind computing.
 */
#include "plan/budget.h"

#define MAX_TRIES 10
#define MAX_DEPTH 256
#define NONE UINT32_MAX
#define NEVER EBB_BUDGET_NEVER

typedef ebb_budget_walk walk;
typedef ebb_budget_tensor tensor_state;

/* Not within the limits: no message, for the caller may try others. */
#define NO_WAY EBB_E_NO_FIT

static uint32_t choice_of(const walk *w, const ebb_step *step) {
    return ebb__choice_of(w->input->choice, (size_t)(step - w->view.steps));
}

static const ebb_choice *chosen(const walk *w, const ebb_step *step) {
    EBB_ASSERT(choice_of(w, step) < step->n_choices);
    return &w->view.choices[step->first_choice + choice_of(w, step)];
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static bool never_written(const walk *w, uint32_t t) {
    uint64_t first = w->uses.start[t];
    return first == w->uses.start[t + 1] || w->next_write[first] == NEVER;
}

/* The step by which the current content is wanted; NEVER: it is dead. After the last step are what must be there
 * at the end, and then the next lap. */
static uint64_t find_need(const walk *w, uint32_t t) {
    const tensor_state *state = &w->state[t];
    uint64_t until = state->needed > w->step ? state->needed - 1 : NEVER;
    if (state->use < w->uses.start[t + 1]) {
        const ebb_use *use = &w->uses.use[state->use];
        return (use->mode & EBB_READ) != 0 ? use->step : until;
    }
    if (w->view.tensors[t].kept) { return w->view.n_steps; }
    if (w->view.tensors[t].persistent) { return w->view.n_steps + 1 + w->uses.use[w->uses.start[t]].step; }
    return until;
}

static void release_copy(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    if (!state->copied) { return; }
    EBB_ASSERT(state->tier < EBB_MAX_TIERS && w->tier_used[state->tier] >= state->bytes);
    state->copied = false;
    w->tier_used[state->tier] -= state->bytes;
}

static void set_copy(walk *w, uint32_t t, uint32_t tier) {
    EBB_ASSERT(tier < EBB_MAX_TIERS && !w->state[t].copied);
    w->state[t].copied = true;
    w->state[t].tier = tier;
    w->tier_used[tier] += w->state[t].bytes;
    EBB_ASSERT(w->tier_used[tier] <= w->input->tier_bytes[tier]);
}

static void arrive(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    EBB_ASSERT(!state->present && state->bytes > 0);
    state->present = true;
    state->bound = w->draft->actions.n;
    w->load += state->bytes;
    EBB_ASSERT(w->load >= state->bytes);
}

static ebb_status drop(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    EBB_ASSERT(state->present && state->locks == 0);
    EBB_TRY(ebb__draft_tensor(w->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
    state->present = false;
    state->bound = w->draft->actions.n;
    state->stamp++;
    EBB_ASSERT(w->load >= state->bytes);
    w->load -= state->bytes;
    if (find_need(w, t) == NEVER && !w->view.tensors[t].persistent) { release_copy(w, t); }
    return EBB_OK;
}

/* A present tensor without locks: drop it if it is dead, else let it be a candidate. */
static ebb_status settle(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    if (!state->present || state->locks > 0) { return EBB_OK; }
    uint64_t need = find_need(w, t);
    if (need == NEVER) { return drop(w, t); }
    return ebb__budget_push(w, (ebb_budget_entry){need, state->bytes, t, ++state->stamp});
}

static ebb_status unlock(walk *w, uint32_t t) {
    EBB_ASSERT(w->state[t].locks > 0);
    return --w->state[t].locks == 0 ? settle(w, t) : EBB_OK;
}

static void lock_all(walk *w, const ebb_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        w->state[w->view.accesses[step->first_access + i].tensor].locks++;
    }
}

static ebb_status unlock_all(walk *w, const ebb_step *step) {
    ebb_status st = EBB_OK;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        ebb_status one = unlock(w, w->view.accesses[step->first_access + i].tensor);
        if (st == EBB_OK) { st = one; }
    }
    return st;
}

/* ---- leaving ----------------------------------------------------------------------------------- */

/* The leaves of the closure just found are needed until its horizon. */
static ebb_status keep_leaves(walk *w, uint32_t t) {
    const ebb_budget_closure *c = &w->closure;
    for (uint32_t i = 0; i < c->n_leaves; i++) {
        uint32_t leaf = c->leaves[i];
        tensor_state *state = &w->state[leaf];
        EBB_ASSERT(state->present || state->copied);
        uint32_t burden = w->state[t].burden + c->n_steps;
        if (state->burden < burden) { state->burden = burden; }
        if (state->needed >= c->horizon + 1) { continue; }
        state->needed = c->horizon + 1;
        ebb_budget_expiry expiry = {.tensor = leaf, .next = w->expiry_head[c->horizon]};
        EBB_TRY(EBB_PUSH(w->input->mem, &w->expiries, expiry));
        w->expiry_head[c->horizon] = (uint32_t)(w->expiries.n - 1);
        if (leaf != t) { EBB_TRY(settle(w, leaf)); }
    }
    return EBB_OK;
}

static ebb_status copy_out(walk *w, uint32_t t, uint32_t tier) {
    EBB_ASSERT(w->state[t].present && w->state[t].bound <= w->draft->actions.n);
    set_copy(w, t, tier);
    if (never_written(w, t)) { /* the copy is made once and stays */
        w->draft->home[t] = (uint8_t)tier;
        return EBB_OK;
    }
    return ebb__draft_tensor(w->draft, EBB_ACT_OUT, t, tier, w->state[t].bound);
}

/* NO_WAY: it cannot leave and come back. */
static ebb_status leave(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    uint64_t need = find_need(w, t), copy_ns = UINT64_MAX;
    EBB_ASSERT(state->present && state->locks == 0);
    if (need == NEVER || state->copied) { return drop(w, t); }
    uint32_t tier = ebb__pick_tier(w->input, w->tier_used, state->bytes);
    if (tier < EBB_MAX_TIERS) {
        copy_ns = ebb_machine_copy_time_ns(w->input->machine, EBB_DEVICE, tier, state->bytes) +
                  ebb_machine_copy_time_ns(w->input->machine, tier, EBB_DEVICE, state->bytes);
    }
    uint64_t horizon = state->needed > w->step ? ebb_max_u64(need, state->needed - 1) : need;
    bool may_again = !w->copies_only && !w->copy_only[t] && horizon <= w->view.n_steps;
    if (may_again && ebb__budget_find_closure(w, t, horizon, copy_ns)) {
        EBB_TRY(keep_leaves(w, t));
    } else if (tier < EBB_MAX_TIERS) {
        EBB_TRY(copy_out(w, t, tier));
    } else {
        return NO_WAY;
    }
    return drop(w, t);
}

static ebb_status evict_one(walk *w) {
    for (;;) {
        if (w->heap.n == 0 && (w->stuck_retried || w->stuck.n == 0)) { return NO_WAY; }
        if (w->heap.n == 0) {
            w->stuck_retried = true;
            for (; w->stuck.n > 0; w->stuck.n--) { EBB_TRY(ebb__budget_push(w, w->stuck.data[w->stuck.n - 1])); }
        }
        ebb_budget_entry entry = ebb__budget_pop(w);
        const tensor_state *state = &w->state[entry.tensor];
        if (state->stamp != entry.stamp || !state->present || state->locks > 0) { continue; }
        ebb_status st = leave(w, entry.tensor);
        if (st != NO_WAY) { return st; }
        EBB_TRY(EBB_PUSH(w->input->mem, &w->stuck, entry));
    }
}

static ebb_status make_room(walk *w, uint64_t bytes) {
    uint64_t limit = w->input->limit_bytes;
    if (bytes > limit) { return NO_WAY; }
    while (w->load > limit - bytes) { EBB_TRY(evict_one(w)); }
    EBB_ASSERT(w->load + bytes <= limit);
    return EBB_OK;
}

/* ---- coming back ------------------------------------------------------------------------------- */

static ebb_status bring(walk *w, uint32_t t);

/* Room for what a step writes and is absent, and its scratch. */
static ebb_status make_room_to_run(walk *w, const ebb_step *step) {
    uint64_t bytes = ebb_align_up(chosen(w, step)->scratch_bytes, w->view.alignment);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const tensor_state *state = &w->state[w->view.accesses[step->first_access + i].tensor];
        if (!state->present) { bytes += state->bytes; }
    }
    return make_room(w, bytes);
}

/* Whether what a step to be run again reads and writes is at the version that it means; own is in its chain. */
static bool can_repeat(const walk *w, const ebb_step *step, uint32_t own) {
    if (step->repeat != EBB_REPEAT_EXACT) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint64_t at = step->first_access + i;
        uint32_t t = w->view.accesses[at].tensor, mode = w->view.accesses[at].mode;
        if (t == own) { continue; }
        uint32_t meant = mode == EBB_READ ? w->versions.read[at] : w->versions.after[at];
        if (mode == EBB_UPDATE || w->state[t].version != meant) { return false; }
    }
    return true;
}

static ebb_status repeat_locked(walk *w, uint32_t step_idx, uint32_t own) {
    const ebb_step *step = &w->view.steps[step_idx];
    if (!can_repeat(w, step, own) || ++w->n_again > w->max_again) { return NO_WAY; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if (access->tensor != own && access->mode == EBB_READ) { EBB_TRY(bring(w, access->tensor)); }
    }
    EBB_TRY(make_room_to_run(w, step));
    EBB_TRY(ebb__draft_step(w->draft, EBB_ACT_AGAIN, step_idx, choice_of(w, step)));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint32_t t = w->view.accesses[step->first_access + i].tensor;
        if (!w->state[t].present) { arrive(w, t); }
        if (t == own) { w->state[t].bound = w->draft->actions.n; }
    }
    return EBB_OK;
}

static ebb_status repeat(walk *w, uint32_t step_idx, uint32_t own) {
    const ebb_step *step = &w->view.steps[step_idx];
    EBB_ASSERT(step_idx < w->step); /* it was run once */
    lock_all(w, step);
    ebb_status st = repeat_locked(w, step_idx, own);
    ebb_status undo = unlock_all(w, step);
    return st != EBB_OK ? st : undo;
}

/* Run the chain that makes t's current version; t is locked by the caller. */
static ebb_status compute_again(walk *w, uint32_t t) {
    uint64_t first = w->state[t].made, last = first;
    if (last == NEVER) { return NO_WAY; }
    for (; w->uses.use[first].mode != EBB_WRITE; first--) {
        if (first == w->uses.start[t]) { return NO_WAY; }
    }
    EBB_ASSERT(first >= w->uses.start[t] && last < w->uses.start[t + 1]);
    for (uint64_t use = first; use <= last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) != 0) { EBB_TRY(repeat(w, w->uses.use[use].step, t)); }
    }
    return EBB_OK;
}

/* Make t present; the caller has it locked. */
static ebb_status bring(walk *w, uint32_t t) {
    EBB_ASSERT(w->state[t].locks > 0);
    if (w->state[t].present) { return EBB_OK; }
    if (w->state[t].copied) {
        uint64_t bound = w->state[t].bound;
        EBB_TRY(make_room(w, w->state[t].bytes));
        EBB_TRY(ebb__draft_tensor(w->draft, EBB_ACT_IN, t, w->state[t].tier, bound));
        arrive(w, t);
        return EBB_OK;
    }
    if (w->depth >= MAX_DEPTH) { return NO_WAY; }
    w->depth++;
    ebb_status st = compute_again(w, t);
    w->depth--;
    EBB_ASSERT(st != EBB_OK || w->state[t].present);
    return st;
}

/* The same for a step of the program or the end. If recomputation gets stuck, the tensor is copy-only from the
 * next try on, and this lap goes on as if it were there. */
static ebb_status bring_or_learn(walk *w, uint32_t t) {
    ebb_status st = bring(w, t);
    if (st != NO_WAY || w->state[t].copied || w->copies_only) { return st; }
    w->copy_only[t] = 1;
    w->gave_up = true;
    if (w->state[t].present) { return EBB_OK; } /* part of its chain was made */
    EBB_TRY(make_room(w, w->state[t].bytes));
    arrive(w, t);
    return EBB_OK;
}

/* ---- the lap ----------------------------------------------------------------------------------- */

static void write_tensor(walk *w, uint32_t t, uint32_t version) {
    tensor_state *state = &w->state[t];
    release_copy(w, t);
    EBB_ASSERT(version == state->version + 1 && w->uses.use[state->use].step == w->step);
    state->version = version;
    state->made = state->use;
    state->bound = w->draft->actions.n;
    if (!state->present) { arrive(w, t); }
}

static ebb_status expire(walk *w, uint32_t step_idx) {
    for (uint32_t i = w->expiry_head[step_idx]; i != NONE; i = w->expiries.data[i].next) {
        uint32_t t = w->expiries.data[i].tensor;
        tensor_state *state = &w->state[t];
        EBB_ASSERT(t < w->view.n_tensors && state->needed > step_idx);
        if (state->needed > w->step) { continue; }
        state->burden = 0;
        EBB_TRY(settle(w, t));
        if (!state->present && !w->view.tensors[t].persistent && find_need(w, t) == NEVER) { release_copy(w, t); }
    }
    return EBB_OK;
}

/* The deep check, where it does not take long. */
static bool seems_valid(const walk *w) {
    return EBB_DEBUG < 2 || w->view.n_tensors > EBB_BUDGET_MAX_WALKED || ebb__budget_walk_is_valid(w);
}

static ebb_status run_step(walk *w, uint32_t step_idx) {
    const ebb_step *step = &w->view.steps[step_idx];
    const bool is_sound = seems_valid(w);
    EBB_ASSERT(is_sound && w->load <= w->input->limit_bytes);
    w->step = step_idx;
    w->stuck_retried = false;
    lock_all(w, step);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if ((access->mode & EBB_READ) != 0) { EBB_TRY(bring_or_learn(w, access->tensor)); }
    }
    EBB_TRY(make_room_to_run(w, step));
    EBB_TRY(ebb__draft_step(w->draft, EBB_ACT_RUN, step_idx, choice_of(w, step)));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint64_t at = step->first_access + i;
        uint32_t t = w->view.accesses[at].tensor;
        if ((w->view.accesses[at].mode & EBB_WRITE) != 0) { write_tensor(w, t, w->versions.after[at]); }
        w->state[t].use++;
    }
    w->step = step_idx + 1;
    EBB_TRY(unlock_all(w, step));
    return expire(w, step_idx);
}

/* At the end: kept tensors are present, and if the circle is to be closed (close), of the persistent ones exactly
 * those that were at the start. */
static ebb_status end_lap(walk *w, bool close) {
    w->step = w->view.n_steps;
    w->stuck_retried = false;
    const uint8_t *resident = w->draft->resident;
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->state[t].locks += w->view.tensors[t].kept || (close && resident[t]);
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (w->state[t].locks > 0) { EBB_TRY(bring_or_learn(w, t)); }
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        tensor_state *state = &w->state[t];
        if (!state->present || state->locks > 0 || (w->view.tensors[t].persistent && !close)) { continue; }
        if (w->view.tensors[t].persistent && !state->copied) {
            uint32_t tier = ebb__pick_tier(w->input, w->tier_used, state->bytes);
            if (tier == EBB_MAX_TIERS) { return NO_WAY; }
            EBB_TRY(copy_out(w, t, tier));
        }
        EBB_TRY(drop(w, t));
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        EBB_ASSERT(!close || !w->view.tensors[t].persistent || w->state[t].present == (resident[t] != 0));
    }
    return EBB_OK;
}

/* Begin with the persistent tensors of the draft's resident on the device, the others on tiers. spill: those for
 * which no tier has room become resident. */
static ebb_status begin_lap(walk *w, bool spill) {
    w->draft->actions.n = w->heap.n = w->stuck.n = w->expiries.n = 0;
    w->load = w->n_again = w->depth = 0;
    w->gave_up = false;
    memset(w->tier_used, 0, sizeof w->tier_used);
    for (size_t s = 0; s <= w->view.n_steps; s++) { w->expiry_head[s] = NONE; }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->state[t] = (tensor_state){.bytes = w->state[t].bytes, .use = w->uses.start[t], .made = NEVER};
    }
    w->step = 0;
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (!w->view.tensors[t].persistent) { continue; }
        uint32_t tier = ebb__pick_tier(w->input, w->tier_used, w->state[t].bytes);
        if (!w->draft->resident[t] && tier == EBB_MAX_TIERS) {
            if (!spill) { return NO_WAY; }
            w->draft->resident[t] = 1;
        }
        if (w->draft->resident[t]) {
            arrive(w, t);
            EBB_TRY(settle(w, t));
        } else {
            set_copy(w, t, tier);
            w->draft->home[t] = (uint8_t)tier;
        }
    }
    return w->load <= w->input->limit_bytes ? EBB_OK : NO_WAY;
}

static ebb_status walk_lap(walk *w, bool close) {
    EBB_TRY(begin_lap(w, !close));
    for (uint32_t s = 0; s < w->view.n_steps; s++) { EBB_TRY(run_step(w, s)); }
    return end_lap(w, close);
}

/* Two laps: the first finds out who is on the device at the end. */
static ebb_status walk_laps(walk *w) {
    memset(w->draft->resident, 0, w->view.n_tensors);
    EBB_TRY(walk_lap(w, false));
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->draft->resident[t] = w->view.tensors[t].persistent && w->state[t].present;
    }
    return walk_lap(w, true);
}

/* ---- the policy -------------------------------------------------------------------------------- */

ebb_status ebb__budget_find_next_writes(const ebb_program_view *view, const ebb_uses *uses, ebb_bump *bump,
                                        uint64_t **next_write_out) {
    uint64_t *next_write = ebb__bump_alloc(bump, view->n_accesses, sizeof *next_write);
    if (next_write == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < view->n_tensors; t++) {
        uint64_t next = NEVER;
        for (uint64_t use = uses->start[t + 1]; use-- > uses->start[t];) {
            EBB_ASSERT(next == NEVER || uses->use[use].step < next);
            if ((uses->use[use].mode & EBB_WRITE) != 0) { next = uses->use[use].step; }
            next_write[use] = next;
        }
    }
    *next_write_out = next_write;
    return EBB_OK;
}

static ebb_status init_walk(walk *w) {
    w->view = ebb__plan_view(w->input->program);
    w->max_again = 16 * (uint64_t)w->view.n_steps + 1024;
    EBB_TRY(ebb__program_versions(w->input->program, &w->bump, &w->versions));
    EBB_TRY(ebb__program_uses(w->input->program, &w->bump, &w->uses));
    EBB_TRY(ebb__budget_find_next_writes(&w->view, &w->uses, &w->bump, &w->next_write));
    w->step_ns = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->step_ns);
    w->state = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->state);
    w->copy_only = ebb__bump_alloc(&w->bump, w->view.n_tensors, 1);
    w->tensor_mark = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->tensor_mark);
    w->step_mark = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->step_mark);
    w->expiry_head = ebb__bump_alloc(&w->bump, w->view.n_steps + 1, sizeof *w->expiry_head);
    if (w->step_ns == NULL || w->state == NULL || w->copy_only == NULL || w->tensor_mark == NULL ||
        w->step_mark == NULL || w->expiry_head == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (size_t s = 0; s < w->view.n_steps; s++) {
        w->step_ns[s] = ebb_machine_step_time_ns(w->input->machine, chosen(w, &w->view.steps[s]));
        w->step_mark[s] = 0;
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->state[t].bytes = ebb_align_up(w->view.tensors[t].size_bytes, w->view.alignment);
        w->copy_only[t] = 0;
        w->tensor_mark[t] = 0;
    }
    return EBB_OK;
}

ebb_status ebb__budget_close_copies(const ebb_policy_input *input, ebb_draft *draft) {
    const size_t n_tensors = ebb__plan_view(input->program).n_tensors;
    uint8_t *tier = ebb__calloc(input->mem, n_tensors, sizeof *tier);
    if (tier == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (action->kind == EBB_ACT_OUT) { tier[action->target] = (uint8_t)action->tier; }
    }
    for (size_t a = 0; a < draft->actions.n; a++) {
        ebb_action *action = &draft->actions.data[a].action;
        if (action->kind == EBB_ACT_OUT) { tier[action->target] = 0; } /* the first: from here on they are right */
        if (action->kind == EBB_ACT_IN && tier[action->target] != 0) { action->tier = tier[action->target]; }
    }
    ebb__free(input->mem, tier);
    return EBB_OK;
}

static ebb_status draft_budget(const ebb_policy_input *input, ebb_draft *draft) {
    walk w = {.input = input, .draft = draft};
    ebb__bump_init(&w.bump, input->mem);
    ebb_status st = init_walk(&w);
    for (int tries = 1; st == EBB_OK; tries++) {
        w.copies_only = input->copies_only || tries == MAX_TRIES;
        st = walk_laps(&w);
        if (st == EBB_OK && !w.gave_up) { break; }
        if (st == NO_WAY && !w.copies_only) {
            tries = MAX_TRIES - 1;
            st = EBB_OK;
        }
    }
    if (st == EBB_OK) { st = ebb__budget_close_copies(input, draft); }
    if (st == EBB_OK) {
        st = ebb__draft_move_up(draft, input->program, input->machine, input->limit_bytes, input->early_out,
                                input->early_in);
    }
    EBB_VEC_FINI(input->mem, &w.heap);
    EBB_VEC_FINI(input->mem, &w.stuck);
    EBB_VEC_FINI(input->mem, &w.expiries);
    ebb__bump_fini(&w.bump);
    return st;
}

const ebb_policy ebb__policy_budget = {
    .name = "budget",
    .about = "stays inside a budget: what is needed again last is copied out or computed again, whichever is cheaper",
    .keeps_limit = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_budget,
};
