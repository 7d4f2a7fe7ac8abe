/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of the policy best: from keys to a draft that keeps the limits. It goes through the steps in order with the
 * set of tensors that are on the device. Where room is missing, a tensor leaves as best_price.c chooses; what a step
 * reads and is absent comes back, by a copy or by running again what made it, and may make others leave.
 *
 * What is dead is dropped when room is wanted, because until then it may spare a recomputation; its drop then goes up
 * to right after its last use.
 *
 * The walk keeps a clock of computing and one for each engine that copies out. A copy out begins as early as its
 * content is there, in the past of the walk: what leaves is decided where room is missing, but the plan knows it from
 * the start. Bytes that are dropped before their copy has ended are free only then.
 */
#include "plan/best.h"
#include "plan/budget.h"

#include <math.h>

#define NONE EBB_BEST_NONE
#define NEVER EBB_BEST_NEVER
#define NO_WAY EBB_E_NO_FIT

typedef ebb_best_walk walk;
typedef ebb_best_tensor tensor_state;

static uint32_t choice_of(const walk *w, const ebb_step *step) {
    return ebb__choice_of(w->input->choice, (size_t)(step - w->view.steps));
}

static const ebb_choice *chosen(const walk *w, const ebb_step *step) {
    return &w->view.choices[step->first_choice + choice_of(w, step)];
}

/* ---- what is where ------------------------------------------------------------------------------- */

static void arrive(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    EBB_ASSERT(!state->present && state->bytes > 0);
    if (state->gone) { ebb__best_set_gone(w, t, false); }
    /* A tensor that is computed again only as an input of others may be dead when it arrives. Unlike those that die
     * later, it does not go to the front: where many copies wait, not all tensors are looked at, so it may stay a
     * little longer and save the next recomputation. */
    ebb__best_queue_add(&w->by_copy, (ebb_best_floor){.tensor = t});
    ebb__best_queue_add(&w->by_again, (ebb_best_floor){.tensor = t});
    state->present = true;
    state->again_ns = -1;
    state->bound = w->draft->actions.n;
    w->load += state->bytes;
    ebb__best_changed(w, t);
}

static void release_copy(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    if (!state->copied) { return; }
    state->copied = false;
    w->tier_used[state->tier] -= state->bytes;
}

static void set_copy(walk *w, uint32_t t, uint32_t tier) {
    EBB_ASSERT(tier < EBB_MAX_TIERS && !w->state[t].copied);
    EBB_ASSERT(ebb__has_room(w->input->tier_bytes[tier], w->tier_used[tier], w->state[t].bytes));
    w->state[t].copied = true;
    w->state[t].tier = tier;
    w->tier_used[tier] += w->state[t].bytes;
    const uint64_t none_used[EBB_MAX_TIERS] = {0};
    w->has_spilled = w->has_spilled ||
                     (w->only_tier == EBB_MAX_TIERS && tier != ebb__pick_tier(w->input, none_used, w->state[t].bytes));
}

/* ---- time --------------------------------------------------------------------------------------- */

/* Wait until no more than room bytes are pending. */
static void wait_for_room(walk *w, uint64_t room) {
    while (w->pending_bytes > room) {
        size_t first = 0;
        for (size_t i = 1; i < w->pending.n; i++) {
            if (w->pending.data[i].end_ns < w->pending.data[first].end_ns) { first = i; }
        }
        w->now_ns = fmax(w->now_ns, w->pending.data[first].end_ns);
        w->pending_bytes -= w->pending.data[first].bytes;
        w->pending.data[first] = w->pending.data[--w->pending.n];
    }
}

static ebb_status compute(walk *w, uint32_t step_idx, ebb_action_kind kind) {
    const ebb_step *step = &w->view.steps[step_idx];
    wait_for_room(w, w->limit_bytes - w->load);
    w->now_ns += w->step_ns[step_idx];
    if (w->now_ns >= w->limit_ns) { return NO_WAY; }
    return ebb__draft_step(w->draft, kind, step_idx, choice_of(w, step));
}

/* ---- leaving ------------------------------------------------------------------------------------ */

static ebb_status drop(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    EBB_ASSERT(state->present && state->locks == 0 && w->load >= state->bytes);
    EBB_TRY(ebb__draft_tensor(w->draft, EBB_ACT_DROP, t, EBB_DEVICE, EBB_DRAFT_FIXED));
    ebb__best_queue_remove(&w->by_copy, t);
    ebb__best_queue_remove(&w->by_again, t);
    state->present = false;
    state->bound = w->draft->actions.n;
    w->load -= state->bytes;
    if (state->copied && state->out_ns > w->now_ns) {
        const ebb_best_pending pending = {.end_ns = state->out_ns, .bytes = state->bytes};
        EBB_TRY(EBB_PUSH(w->input->mem, &w->pending, pending));
        w->pending_bytes += state->bytes;
    }
    return EBB_OK;
}

/* As early as the content is there and the engine has finished its earlier copies. */
static ebb_status copy_out(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    const uint32_t tier = ebb__best_pick_tier(w, t);
    if (tier == EBB_MAX_TIERS) { return NO_WAY; }
    set_copy(w, t, tier);
    state->out_ns = 0;
    if (state->never_written) { /* the copy is made once and stays */
        w->draft->home[t] = (uint8_t)tier;
        return EBB_OK;
    }
    const uint8_t engine = w->out_engine[tier];
    const double takes_ns = ebb__best_copy_ns(w, t, tier, false);
    state->out_ns = w->engine_ns[engine] = fmax(w->engine_ns[engine], state->ready_ns) + takes_ns;
    const uint64_t bound = w->engine_bound[engine] = ebb_max_u64(w->engine_bound[engine], state->bound);
    return ebb__draft_tensor(w->draft, EBB_ACT_OUT, t, tier, bound);
}

static ebb_status evict_one(walk *w, uint64_t bytes) {
    uint32_t t = NONE;
    const ebb_best_way way = ebb__best_choose(w, bytes, &t);
    if (way == EBB_BEST_STUCK) { return NO_WAY; }
    if (way == EBB_BEST_COPY && !w->state[t].copied) { EBB_TRY(copy_out(w, t)); }
    EBB_TRY(drop(w, t));
    if (way == EBB_BEST_DROP && !w->view.tensors[t].persistent) { release_copy(w, t); }
    ebb__best_changed(w, t);
    if (!w->state[t].copied && w->state[t].made != NEVER) { ebb__best_set_gone(w, t, true); }
    return EBB_OK;
}

/* There is no room for a recomputation: of all that wait for it, the smallest one. Copied, it would need less. */
static void note_blocked(walk *w) {
    for (uint32_t d = w->depth; d-- > 0;) {
        const uint32_t t = w->chain[d];
        if (w->keys->no_again[t]) { continue; }
        if (w->blocked == NONE || w->state[t].bytes < w->state[w->blocked].bytes) { w->blocked = t; }
    }
}

static ebb_status make_room(walk *w, uint64_t bytes) {
    const uint64_t limit = w->limit_bytes;
    if (bytes > limit) { return NO_WAY; }
    while (w->load > limit - bytes) {
        const ebb_status st = evict_one(w, w->load - (limit - bytes));
        if (st == NO_WAY) { note_blocked(w); }
        EBB_TRY(st);
    }
    return EBB_OK;
}

/* ---- coming back -------------------------------------------------------------------------------- */

static ebb_status bring(walk *w, uint32_t t);

static void lock_all(walk *w, const ebb_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        w->state[w->view.accesses[step->first_access + i].tensor].locks++;
    }
}

static void unlock_all(walk *w, const ebb_step *step) {
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        w->state[w->view.accesses[step->first_access + i].tensor].locks--;
    }
}

/* Room for what a step writes and is absent, and its scratch; then run it. */
static ebb_status run_in_room(walk *w, uint32_t step_idx, ebb_action_kind kind) {
    const ebb_step *step = &w->view.steps[step_idx];
    uint64_t bytes = ebb_align_up(chosen(w, step)->scratch_bytes, w->view.alignment);
    const uint64_t scratch = bytes;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const tensor_state *state = &w->state[w->view.accesses[step->first_access + i].tensor];
        if (!state->present) { bytes += state->bytes; }
    }
    EBB_TRY(make_room(w, bytes));
    w->load += scratch;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = w->view.accesses[step->first_access + i].tensor;
        if (!w->state[t].present) { arrive(w, t); }
    }
    EBB_TRY(compute(w, step_idx, kind));
    w->load -= scratch;
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        tensor_state *state = &w->state[access->tensor];
        if ((access->mode & EBB_WRITE) == 0) { continue; }
        state->bound = w->draft->actions.n;
        state->ready_ns = w->now_ns;
    }
    return EBB_OK;
}

/* Whether what a step to be run again reads and writes is at the version that it means; own is in its chain. */
static bool can_repeat(const walk *w, const ebb_step *step, uint32_t own) {
    if (step->repeat != EBB_REPEAT_EXACT) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t at = step->first_access + i;
        const uint32_t t = w->view.accesses[at].tensor, mode = w->view.accesses[at].mode;
        if (t == own) { continue; }
        const uint32_t meant = mode == EBB_READ ? w->versions.read[at] : w->versions.after[at];
        if (mode == EBB_UPDATE || w->state[t].version != meant) { return false; }
    }
    return true;
}

static ebb_status repeat(walk *w, uint32_t step_idx, uint32_t own) {
    const ebb_step *step = &w->view.steps[step_idx];
    EBB_ASSERT(step_idx < w->step);
    if (!can_repeat(w, step, own) || ++w->n_again > w->max_again) { return NO_WAY; }
    lock_all(w, step);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if (access->tensor != own && access->mode == EBB_READ) { EBB_TRY(bring(w, access->tensor)); }
    }
    EBB_TRY(run_in_room(w, step_idx, EBB_ACT_AGAIN));
    unlock_all(w, step);
    return EBB_OK;
}

/* Run the chain that makes t's current version; t is locked by the caller. */
static ebb_status compute_again(walk *w, uint32_t t) {
    const uint64_t first = ebb__best_find_chain(w, t), last = w->state[t].made;
    if (first == NEVER) { return NO_WAY; }
    for (uint64_t use = first; use <= last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) != 0) { EBB_TRY(repeat(w, w->uses.use[use].step, t)); }
    }
    return EBB_OK;
}

/* Make t present; the caller has it locked. */
static ebb_status bring(walk *w, uint32_t t) {
    tensor_state *state = &w->state[t];
    EBB_ASSERT(state->locks > 0);
    if (state->present) { return EBB_OK; }
    if (state->copied) {
        const uint64_t bound = state->bound;
        EBB_TRY(make_room(w, state->bytes));
        EBB_TRY(ebb__draft_tensor(w->draft, EBB_ACT_IN, t, state->tier, bound));
        arrive(w, t);
        return EBB_OK;
    }
    if (w->depth == EBB_BEST_MAX_DEPTH) { return NO_WAY; }
    w->chain[w->depth++] = t;
    const ebb_status st = compute_again(w, t);
    w->depth--;
    EBB_ASSERT(st != EBB_OK || state->present);
    return st;
}

/* ---- the lap ------------------------------------------------------------------------------------ */

static void write_tensor(walk *w, uint32_t t, uint32_t version) {
    tensor_state *state = &w->state[t];
    release_copy(w, t);
    EBB_ASSERT(version == state->version + 1 && w->uses.use[state->use].step == w->step);
    state->version = version;
    state->made = state->use;
    state->again_ns = -1;
    state->chain_ns = w->step_ns[w->step] + (w->uses.use[state->use].mode == EBB_WRITE ? 0 : state->chain_ns);
    ebb__best_queue_lower(&w->by_copy, t, 0);
    ebb__best_queue_lower(&w->by_again, t, 0);
}

static ebb_status run_step(walk *w, uint32_t step_idx) {
    const ebb_step *step = &w->view.steps[step_idx];
    if (w->n_looks > w->max_looks) { return NO_WAY; }
    w->looks_at_step = w->n_looks;
    EBB_ASSERT(w->load <= w->limit_bytes);
    w->step = step_idx;
    lock_all(w, step);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if ((access->mode & EBB_READ) != 0) { EBB_TRY(bring(w, access->tensor)); }
    }
    EBB_TRY(run_in_room(w, step_idx, EBB_ACT_RUN));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint64_t at = step->first_access + i;
        const uint32_t t = w->view.accesses[at].tensor;
        if ((w->view.accesses[at].mode & EBB_WRITE) != 0) { write_tensor(w, t, w->versions.after[at]); }
        w->state[t].use++;
        ebb__best_set_need(w, t);
    }
    w->step = step_idx + 1;
    unlock_all(w, step);
    return EBB_OK;
}

/* At the end: kept tensors are present, and if the circle is to be closed (close), of the persistent ones exactly
 * those that were at the start. */
static ebb_status end_lap(walk *w, bool close) {
    w->step = w->view.n_steps;
    const uint8_t *resident = w->draft->resident;
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        w->state[t].locks += w->view.tensors[t].kept || (close && resident[t]);
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (w->state[t].locks > 0) { EBB_TRY(bring(w, t)); }
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        tensor_state *state = &w->state[t];
        if (!state->present || state->locks > 0 || (w->view.tensors[t].persistent && !close)) { continue; }
        if (w->view.tensors[t].persistent && !state->copied) { EBB_TRY(copy_out(w, t)); }
        EBB_TRY(drop(w, t));
    }
    return EBB_OK;
}

/* Begin with the persistent tensors of the draft's resident on the device, the others on tiers. spill: those for
 * which no tier has room become resident. */
static ebb_status begin_lap(walk *w, bool spill) {
    w->draft->actions.n = w->draft->absent.n = w->pending.n = 0;
    w->load = w->n_again = w->pending_bytes = w->step = 0;
    w->depth = w->mark = w->queue_segment = 0;
    ebb__best_queue_empty(&w->by_copy, w->view.n_tensors);
    ebb__best_queue_empty(&w->by_again, w->view.n_tensors);
    memset(w->tensor_mark, 0, w->view.n_tensors * sizeof *w->tensor_mark);
    memset(w->step_mark, 0, w->view.n_steps * sizeof *w->step_mark);
    memset(w->n_gone, 0, w->view.n_steps * sizeof *w->n_gone);
    w->now_ns = 0;
    memset(w->tier_used, 0, sizeof w->tier_used);
    memset(w->engine_ns, 0, sizeof w->engine_ns);
    memset(w->engine_bound, 0, sizeof w->engine_bound);
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        const tensor_state *was = &w->state[t];
        w->state[t] = (tensor_state){.bytes = was->bytes,
                                     .weight = was->weight,
                                     .copy_weight = was->copy_weight,
                                     .never_written = was->never_written,
                                     .never_again = was->never_again,
                                     .use = w->uses.start[t],
                                     .made = NEVER,
                                     .again_ns = -1};
        ebb__best_set_need(w, t);
    }
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (!w->view.tensors[t].persistent) { continue; }
        const uint32_t tier = ebb__best_pick_tier(w, t);
        if (!w->draft->resident[t] && tier == EBB_MAX_TIERS) {
            if (!spill) { return NO_WAY; }
            w->draft->resident[t] = 1;
        }
        if (w->draft->resident[t]) {
            arrive(w, t);
        } else {
            set_copy(w, t, tier);
            w->draft->home[t] = (uint8_t)tier;
        }
    }
    return w->load <= w->limit_bytes ? EBB_OK : NO_WAY;
}

static ebb_status walk_lap(walk *w, bool close) {
    EBB_TRY(begin_lap(w, !close));
    for (uint32_t s = 0; s < w->view.n_steps; s++) { EBB_TRY(run_step(w, s)); }
    return end_lap(w, close);
}

/* ---- the draft ---------------------------------------------------------------------------------- */

typedef struct moving {
    const walk *w;
    size_t n;                 /* actions */
    uint64_t *last;           /* [n_tensors]: one past the last action on it so far */
    bool *copied;             /* [n_tensors]: what it holds has a copy */
    uint64_t *before;         /* [n]: the action before which each goes; its own index if it stays */
    uint64_t *start, *place;  /* [n + 1]: of what goes before each; [n]: the new index of each */
    ebb_draft_action *sorted; /* [n] */
} moving;

static ebb_status init_moving(moving *m, ebb_bump *bump) {
    const size_t n = m->n, n_tensors = m->w->view.n_tensors;
    m->last = ebb__bump_alloc(bump, n_tensors, sizeof *m->last);
    m->copied = ebb__bump_alloc(bump, n_tensors, sizeof *m->copied);
    m->before = ebb__bump_alloc(bump, n, sizeof *m->before);
    m->start = ebb__bump_alloc(bump, n + 1, sizeof *m->start);
    m->place = ebb__bump_alloc(bump, n, sizeof *m->place);
    m->sorted = ebb__bump_alloc(bump, n, sizeof *m->sorted);
    if (m->last == NULL || m->copied == NULL || m->before == NULL || m->start == NULL || m->place == NULL ||
        m->sorted == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(m->last, 0, n_tensors * sizeof *m->last);
    memset(m->copied, 0, n_tensors * sizeof *m->copied);
    memset(m->start, 0, (n + 1) * sizeof *m->start);
    return EBB_OK;
}

/* Drops of what has no copy go up to right after the last action on their tensor. Those of what has one stay: what
 * comes into their bytes would wait for the copy. */
static void find_places(moving *m, const ebb_draft_action *actions) {
    for (size_t a = 0; a < m->n; a++) {
        const ebb_action *action = &actions[a].action;
        m->before[a] = a;
        if (ebb__action_computes(action)) {
            const ebb_step *step = &m->w->view.steps[action->target];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                const ebb_access *access = &m->w->view.accesses[step->first_access + i];
                m->last[access->tensor] = a + 1;
                if ((access->mode & EBB_WRITE) != 0) { m->copied[access->tensor] = false; }
            }
            continue;
        }
        if (action->kind != EBB_ACT_DROP) { m->copied[action->target] = true; }
        if (action->kind == EBB_ACT_DROP && !m->copied[action->target]) { m->before[a] = m->last[action->target]; }
        m->last[action->target] = a + 1;
    }
}

/* What moves goes before what stays. */
static void sort_by_place(moving *m, const ebb_draft_action *actions) {
    for (size_t a = 0; a < m->n; a++) { m->start[m->before[a] + 1]++; }
    for (size_t i = 0; i < m->n; i++) { m->start[i + 1] += m->start[i]; }
    for (int pass = 0; pass < 2; pass++) {
        for (size_t a = 0; a < m->n; a++) {
            if ((m->before[a] == a) != (pass == 1)) { continue; }
            m->place[a] = m->start[m->before[a]]++;
            m->sorted[m->place[a]] = actions[a];
        }
    }
    for (size_t i = 0; i < m->n; i++) {
        uint64_t *bound = &m->sorted[i].bound;
        if (*bound == EBB_DRAFT_FIXED || *bound == 0) { continue; }
        uint64_t last = *bound - 1; /* other tensors' drops go up, also past what made the content */
        while (last > 0 && m->before[last] != last && actions[last].action.target != m->sorted[i].action.target) {
            last--;
        }
        *bound = m->place[last] + 1;
    }
}

static ebb_status move_drops(walk *w) {
    moving m = {.w = w, .n = w->draft->actions.n};
    ebb_bump bump;
    ebb__bump_init(&bump, w->input->mem);
    const ebb_status st = init_moving(&m, &bump);
    if (st == EBB_OK) {
        find_places(&m, w->draft->actions.data);
        sort_by_place(&m, w->draft->actions.data);
        memcpy(w->draft->actions.data, m.sorted, m.n * sizeof *m.sorted);
    }
    ebb__bump_fini(&bump);
    return st;
}

/* ---- keys --------------------------------------------------------------------------------------- */

static void set_keys(walk *w, const ebb_best_keys *keys) {
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        tensor_state *state = &w->state[t];
        state->weight = exp2((double)keys->weight[t]);
        state->copy_weight = exp2((double)keys->copy[t]);
        state->never_again = w->input->copies_only || keys->copies_only || keys->no_again[t];
    }
    for (size_t d = 0; (w->keys == NULL || w->reach != keys->reach) && d < 3 * w->view.n_steps + 2; d++) {
        w->far[d] = pow((double)d + 1, (double)keys->reach);
    }
    w->reach = keys->reach;
    w->keys = keys;
}

ebb_status ebb__best_walk(ebb_best_walk *w, ebb_best_keys *keys, double limit_ns, bool find_resident) {
    set_keys(w, keys);
    w->limit_bytes = keys->limit_bytes;
    w->limit_ns = limit_ns;
    w->blocked = NONE;
    w->has_spilled = false;
    if (find_resident) {
        memset(w->draft->resident, 0, w->view.n_tensors);
        EBB_TRY(walk_lap(w, false));
        for (uint32_t t = 0; t < w->view.n_tensors; t++) {
            keys->resident[t] = w->view.tensors[t].persistent && w->state[t].present;
        }
    }
    memcpy(w->draft->resident, keys->resident, w->view.n_tensors);
    EBB_TRY(walk_lap(w, true));
    EBB_TRY(ebb__budget_close_copies(w->input, w->draft));
    EBB_TRY(move_drops(w));
    if (w->n_again > 0) {
        EBB_TRY(ebb__best_prune(w));
        EBB_TRY(move_drops(w));
    }
    return ebb__draft_move_up(w->draft, w->input->program, w->input->machine, w->limit_bytes, w->input->early_out,
                              w->input->early_in);
}

/* ---- setting up --------------------------------------------------------------------------------- */

static void set_tiers(walk *w) {
    const ebb_topology *topology = ebb_machine_topology(w->input->machine);
    uint32_t n_tiers = 0;
    w->n_tiers = topology->n_tiers;
    w->only_tier = EBB_MAX_TIERS;
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        if (w->input->tier_bytes[tier] == 0) { continue; }
        const ebb_action out = {.kind = EBB_ACT_OUT, .tier = (uint16_t)tier};
        EBB_ASSERT(tier < w->n_tiers);
        w->out_engine[tier] = ebb__topology_engine_of(topology, &out);
        w->only_tier = n_tiers++ == 0 ? tier : EBB_MAX_TIERS;
    }
}

static void set_copy_times(walk *w, uint32_t t) {
    const ebb_machine *machine = w->input->machine;
    double *ns = &w->copy_ns[(size_t)t * w->n_tiers * 2];
    for (uint32_t tier = 1; tier < w->n_tiers; tier++) {
        ns[2 * tier] = (double)ebb_machine_copy_time_ns(machine, EBB_DEVICE, tier, w->state[t].bytes);
        ns[2 * tier + 1] = (double)ebb_machine_copy_time_ns(machine, tier, EBB_DEVICE, w->state[t].bytes);
    }
}

/* A part is a tensor whose last reader makes something at least as large from it and can run again: an input of a
 * concatenation, say. */
static void find_parts(walk *w) {
    memset(w->is_part, 0, w->view.n_tensors * sizeof *w->is_part);
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        if (w->uses.start[t] == w->uses.start[t + 1] || w->view.tensors[t].persistent) { continue; }
        const ebb_use *last = &w->uses.use[w->uses.start[t + 1] - 1];
        const ebb_step *step = &w->view.steps[last->step];
        if (last->mode != EBB_READ || step->repeat != EBB_REPEAT_EXACT) { continue; }
        for (uint32_t i = 0; i < step->n_accesses; i++) {
            const ebb_access *access = &w->view.accesses[step->first_access + i];
            w->is_part[t] =
                w->is_part[t] || (access->mode == EBB_WRITE && w->state[access->tensor].bytes >= w->state[t].bytes);
        }
    }
}

ebb_status ebb__best_walk_init(ebb_best_walk *w, const ebb_policy_input *input, ebb_draft *draft) {
    *w = (walk){.input = input, .draft = draft};
    ebb__bump_init(&w->bump, input->mem);
    w->view = ebb__plan_view(input->program);
    w->max_again = 64 * (uint64_t)w->view.n_steps + 1024;
    w->max_looks = UINT64_MAX;
    set_tiers(w);
    EBB_TRY(ebb__program_versions(input->program, &w->bump, &w->versions));
    EBB_TRY(ebb__program_uses(input->program, &w->bump, &w->uses));
    EBB_TRY(ebb__budget_find_next_writes(&w->view, &w->uses, &w->bump, &w->next_write));
    w->step_ns = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->step_ns);
    w->begin_ns = ebb__bump_alloc(&w->bump, w->view.n_steps + 1, sizeof *w->begin_ns);
    w->state = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->state);
    EBB_TRY(ebb__best_queue_init(&w->by_copy, &w->bump, w->view.n_tensors));
    EBB_TRY(ebb__best_queue_init(&w->by_again, &w->bump, w->view.n_tensors));
    w->aside = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->aside);
    w->waiting = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->waiting);
    w->copy_ns = ebb__bump_alloc(&w->bump, 2 * (size_t)w->n_tiers * w->view.n_tensors, sizeof *w->copy_ns);
    w->is_part = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->is_part);
    w->far = ebb__bump_alloc(&w->bump, 3 * w->view.n_steps + 2, sizeof *w->far);
    w->tensor_mark = ebb__bump_alloc(&w->bump, w->view.n_tensors, sizeof *w->tensor_mark);
    w->step_mark = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->step_mark);
    w->n_gone = ebb__bump_alloc(&w->bump, w->view.n_steps, sizeof *w->n_gone);
    if (w->copy_ns == NULL || w->far == NULL || w->step_ns == NULL || w->state == NULL || w->aside == NULL ||
        w->begin_ns == NULL || w->waiting == NULL || w->is_part == NULL || w->tensor_mark == NULL ||
        w->step_mark == NULL || w->n_gone == NULL) {
        return EBB_E_NO_MEMORY;
    }
    w->begin_ns[0] = 0;
    for (size_t s = 0; s < w->view.n_steps; s++) {
        w->step_ns[s] = (double)ebb_machine_step_time_ns(input->machine, chosen(w, &w->view.steps[s]));
        w->begin_ns[s + 1] = w->begin_ns[s] + w->step_ns[s];
    }
    ebb__best_find_drag(input, &w->drag);
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        const uint64_t first = w->uses.start[t];
        w->state[t].bytes = ebb_align_up(w->view.tensors[t].size_bytes, w->view.alignment);
        w->state[t].never_written = first == w->uses.start[t + 1] || w->next_write[first] == NEVER;
        set_copy_times(w, t);
    }
    find_parts(w);
    return EBB_OK;
}

void ebb__best_walk_fini(ebb_best_walk *w) {
    EBB_VEC_FINI(w->input->mem, &w->pending);
    ebb__bump_fini(&w->bump);
}
