/* SPDX-License-Identifier: Apache-2.0
 *
 * When to copy, where that slows computing. A copy begins as soon as its bytes are there, or free: as a rule when a
 * step has ended, and so beside the next one. On a processor that matters: a step that is bound by memory hardly goes
 * on beside a copy, while a product of matrices loses less. So in a finished plan copies go down the list, to before
 * steps that they slow less, and are held there until what is computed before has ended.
 *
 *      before   run conv . run norm . run conv          after    run conv . run norm . run conv
 *                          out a                                                       out a (held)
 *
 * Where bytes lie does not change. A copy out stays before its tensor's drop; a copy in makes the stay that it begins
 * shorter; no copy passes another one that fills its bytes on a tier.
 *
 * The simulator is the judge. First all copies are held at once, where they are, or before the next step that is bound
 * by arithmetic. From the fastest of these each copy by itself is tried in other places, for as long as MAX_WORK lasts:
 * a trial takes as long as a simulation.
 */
#include "plan/hold.h"

#define MAX_WORK ((uint64_t)1 << 22) /* actions of all trials together */
#define MAX_PASSES 3
#define MAX_ON_WAY 64u /* steps that a copy may pass */
#define MAX_LOOKS                                                                                                      \
    4096u           /* actions, and tensors of their steps, that are looked at for a copy: few steps may have many */
#define N_PLACES 5u /* of a copy: not held; held where it is; before one of the next steps bound by arithmetic */

typedef struct held_copy {
    uint64_t at;               /* its action */
    uint64_t before[N_PLACES]; /* the action before which it goes */
    uint32_t n_places, which;
    uint32_t slot; /* that it fills or reads */
} held_copy;

typedef struct holder {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_plan_options *options;
    const ebb_plan *plan;
    ebb_program_view view;
    ebb_bump bump;
    held_copy *copies;
    size_t n_copies;
    uint32_t *filled; /* [n_actions]: the slot that begins there; EBB_NO_PIECE */
    uint64_t *before; /* [n_actions]: the action before which each goes */
    uint64_t *number; /* [n_actions + 1]: of each in the trial; the end's */
    uint64_t *place;  /* [n_actions + 1]: of what goes before each, in the trial */
    uint64_t *next;   /* [n_actions + 1]: the same, while places are given */
    ebb_plan *trial;
    uint64_t best_ns, work;
} holder;

/* ---- where a copy may go ------------------------------------------------------------------------ */

static bool is_copy(const ebb_action *action) {
    return action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN;
}

/* Whether a copy must not pass an action on its tensor. A copy out may pass what only reads it. */
static bool bars_tensor(const holder *h, const ebb_action *copy, const ebb_action *action) {
    if (!ebb__action_computes(action)) { return action->target == copy->target; }
    const ebb_step *step = &h->view.steps[action->target];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &h->view.accesses[step->first_access + i];
        const bool bars = copy->kind == EBB_ACT_IN || access->mode != EBB_READ;
        if (access->tensor == copy->target && bars) { return true; }
    }
    return false;
}

/* Whether a copy must not pass an action because of slots: a copy out would come when it is not wanted any more; a copy
 * in reads bytes that are filled there; or a slot that ended with the action before the copy would begin where it
 * ended, and no plan can say that. */
static bool bars_slot(const holder *h, const held_copy *c, uint64_t at) {
    const ebb_slot *mine = &h->plan->slots.data[c->slot];
    const bool fills = h->plan->actions.data[c->at].kind == EBB_ACT_OUT;
    if (fills && mine->first < mine->last && at + 1 >= mine->last) { return true; }
    if (h->filled[at] == EBB_NO_PIECE) { return false; }
    const ebb_slot *other = &h->plan->slots.data[h->filled[at]];
    if (other->first > other->last && other->last == c->at) { return true; }
    return !fills && mine->tier == other->tier && mine->offset < other->offset + other->size_bytes &&
           other->offset < mine->offset + mine->size_bytes;
}

static bool is_arithmetic(const holder *h, const ebb_action *action) {
    const ebb_choice *choice = &h->view.choices[h->view.steps[action->target].first_choice + action->choice];
    return ebb_machine_step_kind(h->machine, choice) == EBB_STEP_ARITHMETIC;
}

static void find_places(const holder *h, held_copy *c) {
    const ebb_action *actions = h->plan->actions.data, *copy = &actions[c->at];
    uint32_t n_passed = 0;
    uint64_t n_looks = 0;
    c->before[0] = c->before[1] = c->at;
    c->n_places = 2;
    for (uint64_t x = c->at + 1; x < h->plan->actions.n && c->n_places < N_PLACES && n_passed < MAX_ON_WAY; x++) {
        const ebb_action *action = &actions[x];
        const bool computes = ebb__action_computes(action);
        n_looks += computes ? 1 + h->view.steps[action->target].n_accesses : 1;
        if (n_looks > MAX_LOOKS) { return; }
        if (computes && n_passed > 0 && is_arithmetic(h, action)) { c->before[c->n_places++] = x; }
        if (action->kind == EBB_ACT_MOVE || bars_tensor(h, copy, action) || bars_slot(h, c, x)) { return; }
        n_passed += computes;
    }
}

static ebb_status find_copies(holder *h) {
    const size_t n = h->plan->actions.n;
    ebb_plan_cursor cursor;
    EBB_TRY(ebb__plan_cursor_init(h->plan, &h->bump, &cursor));
    for (size_t a = 0; a < n; a++) { h->filled[a] = EBB_NO_PIECE; }
    for (size_t s = 0; s < h->plan->slots.n; s++) { h->filled[h->plan->slots.data[s].first] = (uint32_t)s; }
    for (size_t a = 0; a < n; a++) {
        const ebb_action *action = &h->plan->actions.data[a];
        ebb__plan_cursor_next(&cursor);
        EBB_ASSERT(!action->held);
        if (!is_copy(action)) { continue; }
        held_copy *c = &h->copies[h->n_copies++];
        *c = (held_copy){.at = a};
        c->slot = ebb__plan_cursor_slot(&cursor, action->target, action->tier, action->begin);
        EBB_ASSERT(c->slot != EBB_NO_PIECE);
        find_places(h, c);
    }
    return EBB_OK;
}

/* ---- a trial ------------------------------------------------------------------------------------ */

/* What goes down comes before what it goes to, in the old order. */
static void number_actions(holder *h) {
    const size_t n = h->plan->actions.n;
    memset(h->place, 0, (n + 1) * sizeof *h->place);
    for (size_t a = 0; a < n; a++) { h->before[a] = a; }
    for (size_t i = 0; i < h->n_copies; i++) { h->before[h->copies[i].at] = h->copies[i].before[h->copies[i].which]; }
    for (size_t a = 0; a < n; a++) { h->place[h->before[a] + 1]++; }
    for (size_t a = 0; a < n; a++) { h->place[a + 1] += h->place[a]; }
    memcpy(h->next, h->place, (n + 1) * sizeof *h->next);
    for (int stays = 0; stays < 2; stays++) {
        for (size_t a = 0; a < n; a++) {
            if ((h->before[a] == a) == (stays == 1)) { h->number[a] = h->next[h->before[a]]++; }
        }
    }
    h->number[n] = n;
}

/* A stay ends where it is dropped, and no drop goes anywhere; one that is always there is [0, 0). */
static void write_stays(holder *h) {
    for (size_t i = 0; i < h->trial->stays.n; i++) {
        const ebb_stay *was = &h->plan->stays.data[i];
        ebb_stay *stay = &h->trial->stays.data[i];
        *stay = *was;
        if (was->first == 0 && was->last == 0) { continue; }
        stay->first = h->number[was->first];
        stay->last = was->tensor == EBB_SCRATCH ? stay->first + 1 : h->number[was->last];
    }
}

/* A slot lasts until what reads it has gone down. */
static void write_slots(holder *h) {
    ebb_slot *slots = h->trial->slots.data;
    for (size_t i = 0; i < h->trial->slots.n; i++) {
        const ebb_slot *was = &h->plan->slots.data[i];
        slots[i] = *was;
        if (was->first == 0 && was->last == 0) { continue; }
        slots[i].first = h->number[was->first];
        slots[i].last = h->place[was->last];
    }
    for (size_t i = 0; i < h->n_copies; i++) {
        const held_copy *c = &h->copies[i];
        const uint64_t after = h->number[c->at] + 1;
        if (c->at >= h->plan->slots.data[c->slot].last) { continue; }
        slots[c->slot].last = ebb_max_u64(slots[c->slot].last, after);
    }
}

static ebb_status write_trial(holder *h) {
    ebb_plan *t = h->trial;
    number_actions(h);
    for (size_t a = 0; a < t->actions.n; a++) { t->actions.data[h->number[a]] = h->plan->actions.data[a]; }
    for (size_t i = 0; i < h->n_copies; i++) {
        t->actions.data[h->number[h->copies[i].at]].held = h->copies[i].which > 0;
    }
    write_stays(h);
    write_slots(h);
    return ebb__plan_sort_pieces(t);
}

static ebb_status time_trial(holder *h, uint64_t *ns_out) {
    ebb_timeline timeline;
    EBB_TRY(write_trial(h));
    EBB_TRY(ebb_plan_simulate(h->program, h->trial, h->machine, &timeline, NULL, NULL));
    h->work += h->plan->actions.n;
    *ns_out = timeline.iteration_ns;
    return EBB_OK;
}

static ebb_status init_trial(holder *h) {
    const ebb_plan *plan = h->plan;
    EBB_TRY(ebb__plan_create_like(plan, &h->trial));
    for (size_t i = 0; i < plan->actions.n; i++) {
        EBB_TRY(EBB_PUSH(plan->mem, &h->trial->actions, plan->actions.data[i]));
    }
    for (size_t i = 0; i < plan->stays.n; i++) { EBB_TRY(EBB_PUSH(plan->mem, &h->trial->stays, plan->stays.data[i])); }
    for (size_t i = 0; i < plan->slots.n; i++) { EBB_TRY(EBB_PUSH(plan->mem, &h->trial->slots, plan->slots.data[i])); }
    return EBB_OK;
}

/* ---- the search --------------------------------------------------------------------------------- */

/* Put all copies in their places of this number, or in the last one before it. */
static void put_all(holder *h, uint32_t place) {
    for (size_t i = 0; i < h->n_copies; i++) {
        held_copy *c = &h->copies[i];
        c->which = place < c->n_places ? place : c->n_places - 1;
    }
}

static ebb_status try_together(holder *h) {
    uint32_t best = 0;
    EBB_TRY(time_trial(h, &h->best_ns));
    for (uint32_t place = 1; place <= 2; place++) {
        uint64_t ns = 0;
        put_all(h, place);
        EBB_TRY(time_trial(h, &ns));
        if (ns >= h->best_ns) { continue; }
        h->best_ns = ns;
        best = place;
    }
    put_all(h, best);
    return EBB_OK;
}

static ebb_status try_places(holder *h, held_copy *c, bool *has_gained) {
    const uint32_t was = c->which;
    uint32_t best = was;
    for (uint32_t place = 0; place < c->n_places && h->work < MAX_WORK && !ebb__is_stopped(h->options); place++) {
        uint64_t ns = 0;
        if (place == was) { continue; }
        c->which = place;
        EBB_TRY(time_trial(h, &ns));
        if (ns >= h->best_ns) { continue; }
        h->best_ns = ns;
        best = place;
        *has_gained = true;
    }
    c->which = best;
    return EBB_OK;
}

static ebb_status hold(holder *h) {
    const size_t n = h->plan->actions.n;
    h->copies = ebb__bump_alloc(&h->bump, n, sizeof *h->copies);
    h->filled = ebb__bump_alloc(&h->bump, n, sizeof *h->filled);
    h->before = ebb__bump_alloc(&h->bump, n, sizeof *h->before);
    h->number = ebb__bump_alloc(&h->bump, n + 1, sizeof *h->number);
    h->place = ebb__bump_alloc(&h->bump, n + 1, sizeof *h->place);
    h->next = ebb__bump_alloc(&h->bump, n + 1, sizeof *h->next);
    if (h->copies == NULL || h->filled == NULL || h->before == NULL || h->number == NULL || h->place == NULL ||
        h->next == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(find_copies(h));
    EBB_TRY(init_trial(h));
    EBB_TRY(try_together(h));
    bool has_gained = h->options->effort > 0;
    for (int pass = 0; pass < MAX_PASSES && has_gained; pass++) {
        has_gained = false;
        for (size_t i = 0; i < h->n_copies; i++) {
            ebb__tell(&h->options->progress, "holding copies", i, h->n_copies);
            EBB_TRY(try_places(h, &h->copies[i], &has_gained));
        }
    }
    return write_trial(h);
}

/* Whether copies slow computing on this machine. */
static bool may_gain(const ebb_plan *plan, const ebb_machine *machine) {
    for (size_t s = 0; s < plan->slots.n; s++) {
        ebb_link link;
        const char *name = plan->topology.tier[plan->slots.data[s].tier].name;
        const uint32_t tier = ebb_topology_tier(ebb_machine_topology(machine), name);
        if (!ebb_machine_link(machine, EBB_DEVICE, tier, &link)) { continue; }
        for (int k = 0; k < EBB_N_STEP_KINDS; k++) {
            if (link.work_rate[k] < 1) { return true; }
        }
    }
    return false;
}

ebb_status ebb__plan_hold(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                          ebb_plan **plan_io) {
    holder h = {
        .program = program, .machine = machine, .options = options, .plan = *plan_io, .view = ebb__plan_view(program)};
    if (!may_gain(h.plan, machine)) { return EBB_OK; }
    ebb__bump_init(&h.bump, h.plan->mem);
    const ebb_status st = hold(&h);
    ebb__bump_fini(&h.bump);
    if (st != EBB_OK) {
        ebb_plan_destroy(h.trial);
        return st;
    }
    ebb_plan_destroy(*plan_io);
    *plan_io = h.trial;
    return EBB_OK;
}
