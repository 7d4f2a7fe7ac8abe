/* SPDX-License-Identifier: Apache-2.0
 *
 * Lower tiers as one pool, after SuperNeurons' unified tensor pool (Wang et al., PPoPP 2018, section 3.3.1), where the
 * host's memory comes before what is slower. A policy puts a copy on the first tier with room, so those that leave
 * first fill the host, and they are the ones that are read last. Here a plan that is finished is changed: where a copy
 * has no room on the near tier, those there whose next read is farther away (Belady's rule) move on to the far tier, by
 * actions of the plan:
 *
 *      before   out a host ........................ out b disk ... in b disk ... in a host
 *      after    out a host ... move a host disk ... out b host ... in b host ... move a disk host ... in a host
 *
 * A move on goes as far up as it takes time, so that the near tier's bytes are free when they are wanted. As the near
 * tier gets room again, copies come back to it ahead of their read, as far ahead as reading them takes; where there is
 * no room in time they come in from the far tier. The stays on the device are as they were, and so is the arena. The
 * simulator is the judge: what is not faster is not taken.
 *
 * Each copy that finds no room looks through all that are on the near tier, and each that comes back through the
 * actions on its way: quadratic at worst, and only in plans that use two tiers.
 */
#include "plan/move_on.h"

#define NONE UINT32_MAX
#define MAX_ROUNDS 4

/* A slot that may lie on either tier: whole, filled by an out, read by ins, and gone before the iteration ends. */
typedef struct copy {
    uint32_t slot; /* of the plan */
    uint64_t bytes;
    uint64_t next_read; /* as the walk goes on */
    uint64_t last_event;
    uint64_t move;      /* the action before which it moves on; UINT64_MAX: it does not */
    uint64_t back;      /* and comes back, the same */
    uint64_t first_far; /* its first read after it was on the far tier; UINT64_MAX: there is none */
    bool is_near;       /* at its beginning */
    bool is_fixed;      /* it has to stay where it is */
} copy;

typedef struct pool {
    const ebb_plan *plan;
    const ebb_machine *machine;
    ebb_program_view view;
    uint32_t near, far;
    uint64_t cap_bytes; /* of the near tier */
    size_t most_moves;
    ebb_bump bump;
    copy *copies; /* [n_copies], by the out that fills them */
    size_t n_copies;
    uint32_t *copy_of;   /* [n_actions]: of an out or in */
    uint64_t *next_read; /* [n_actions]: of an out or in: the next in of the copy, or UINT64_MAX */
    uint64_t *time;      /* [n_actions]: computing before it */
    uint32_t *on_near;   /* [n_copies]: those that are there, while the walk goes on */
    size_t n_on_near;
    uint32_t *slots_by_end; /* [n_slots] */
    uint32_t *copy_of_slot; /* [n_slots]; NONE: it has to stay where it is */
    uint32_t *moved;        /* [n_moved]: copies that move on, in the order in which their room is wanted */
    size_t n_moved;
    size_t n_moves; /* of the plan that was made: on, and back */
} pool;

static uint64_t rounded(const pool *p, uint64_t bytes) {
    return ebb_align_up(bytes, p->view.alignment);
}

/* ---- what may lie on either ---------------------------------------------------------------------- */

static bool is_whole_slot(const pool *p, const ebb_slot *slot) {
    if (slot->tier != p->near && slot->tier != p->far) { return false; }
    const ebb_action *filler = &p->plan->actions.data[slot->first];
    return slot->first < slot->last && slot->begin == 0 &&
           slot->size_bytes == p->view.tensors[slot->tensor].size_bytes && filler->kind == EBB_ACT_OUT &&
           filler->target == slot->tensor && filler->tier == slot->tier;
}

/* Which copy each out fills and each in reads. One that is read by anything else than a whole in has to stay. */
static void enter_copy(pool *p, uint32_t s, uint64_t a, uint32_t *open) {
    const ebb_slot *slot = &p->plan->slots.data[s];
    const uint32_t c = (uint32_t)p->n_copies++, *other = &open[slot->tier != p->far];
    p->copies[c] = (copy){.slot = s, .bytes = rounded(p, slot->size_bytes), .move = UINT64_MAX, .back = UINT64_MAX};
    p->copy_of[a] = open[slot->tier == p->far] = c;
    if (*other == NONE || p->plan->slots.data[p->copies[*other].slot].last <= a) { return; }
    p->copies[c].is_fixed = p->copies[*other].is_fixed = true; /* a tensor with a copy on each */
}

static ebb_status find_copies(pool *p) {
    const size_t n = p->plan->actions.n, n_slots = p->plan->slots.n, n_tensors = p->view.n_tensors;
    p->copies = ebb__bump_alloc(&p->bump, n_slots, sizeof *p->copies);
    p->on_near = ebb__bump_alloc(&p->bump, n_slots, sizeof *p->on_near);
    p->moved = ebb__bump_alloc(&p->bump, n_slots, sizeof *p->moved);
    p->copy_of = ebb__bump_alloc(&p->bump, n, sizeof *p->copy_of);
    p->next_read = ebb__bump_alloc(&p->bump, n, sizeof *p->next_read);
    uint32_t *open = ebb__bump_alloc(&p->bump, 2 * n_tensors, sizeof *open);
    bool *stays = ebb__bump_alloc(&p->bump, n_tensors, sizeof *stays); /* it has a copy that goes around the end */
    if (p->copies == NULL || p->on_near == NULL || p->moved == NULL || p->copy_of == NULL || p->next_read == NULL ||
        open == NULL || stays == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (size_t i = 0; i < 2 * n_tensors; i++) { open[i] = NONE; }
    memset(stays, 0, n_tensors * sizeof *stays);
    for (size_t i = 0; i < n_slots; i++) {
        const ebb_slot *slot = &p->plan->slots.data[i];
        stays[slot->tensor] = stays[slot->tensor] || slot->first >= slot->last;
    }
    size_t s = 0;
    for (size_t a = 0; a < n; a++) {
        const ebb_action *action = &p->plan->actions.data[a];
        p->copy_of[a] = NONE;
        for (; s < n_slots && p->plan->slots.data[s].first <= a; s++) {
            const ebb_slot *slot = &p->plan->slots.data[s];
            if (!stays[slot->tensor] && is_whole_slot(p, slot)) {
                enter_copy(p, (uint32_t)s, a, &open[2 * slot->tensor]);
            } else if (slot->tier == p->near || slot->tier == p->far) {
                open[2 * slot->tensor + (slot->tier == p->far)] = NONE;
            }
        }
        const bool reads = action->kind == EBB_ACT_IN || action->kind == EBB_ACT_MOVE;
        if (!reads || (action->tier != p->near && action->tier != p->far)) { continue; }
        const uint32_t c = open[2 * action->target + (action->tier == p->far)];
        if (c == NONE) { continue; }
        p->copy_of[a] = c;
        if (action->kind == EBB_ACT_MOVE || action->size_bytes != EBB_WHOLE) { p->copies[c].is_fixed = true; }
    }
    for (size_t c = 0; c < p->n_copies; c++) { p->copies[c].next_read = UINT64_MAX; }
    for (size_t a = n; a-- > 0;) {
        if (p->copy_of[a] == NONE) { continue; }
        copy *it = &p->copies[p->copy_of[a]];
        p->next_read[a] = it->next_read;
        if (p->plan->actions.data[a].kind == EBB_ACT_IN) { it->next_read = a; }
    }
    return EBB_OK;
}

static ebb_status find_times(pool *p) {
    uint64_t time = 0;
    p->time = ebb__bump_alloc(&p->bump, p->plan->actions.n, sizeof *p->time);
    if (p->time == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t a = 0; a < p->plan->actions.n; a++) {
        const ebb_action *action = &p->plan->actions.data[a];
        p->time[a] = time;
        if (!ebb__action_computes(action)) { continue; }
        const ebb_choice *choice = &p->view.choices[p->view.steps[action->target].first_choice + action->choice];
        time = ebb__add_ns(time, ebb_machine_step_time_ns(p->machine, choice));
    }
    return EBB_OK;
}

/* ---- the walk ------------------------------------------------------------------------------------ */

static void take_off(pool *p, uint32_t c) {
    size_t i = 0;
    while (p->on_near[i] != c) { i++; }
    p->on_near[i] = p->on_near[--p->n_on_near];
}

static bool is_on_near(const pool *p, uint32_t c) {
    return p->copies[c].is_near && p->copies[c].move == UINT64_MAX;
}

/* The copy there that is read last of all, after this position; NONE: there is none. */
static uint32_t find_farthest(const pool *p, uint64_t after) {
    uint32_t found = NONE;
    for (size_t i = 0; i < p->n_on_near; i++) {
        const copy *it = &p->copies[p->on_near[i]];
        if (it->next_read == UINT64_MAX || it->next_read <= after) { continue; }
        after = it->next_read;
        found = p->on_near[i];
    }
    return found;
}

/* Make room before action a for a copy that is read next at `read`: all of it, or nothing moves. */
static bool make_room(pool *p, uint64_t a, uint64_t bytes, uint64_t read, uint64_t *used_bytes) {
    const size_t n_before = p->n_moved;
    uint64_t used = *used_bytes;
    while (used > p->cap_bytes || bytes > p->cap_bytes - used) {
        const uint32_t c = find_farthest(p, read);
        if (c == NONE || p->n_moved == p->most_moves) { break; }
        take_off(p, c);
        p->copies[c].move = a;
        p->moved[p->n_moved++] = c;
        used -= p->copies[c].bytes;
    }
    if (used <= p->cap_bytes && bytes <= p->cap_bytes - used) {
        *used_bytes = used;
        return true;
    }
    while (p->n_moved > n_before) {
        const uint32_t c = p->moved[--p->n_moved];
        p->copies[c].move = UINT64_MAX;
        p->on_near[p->n_on_near++] = c;
    }
    return false;
}

/* Where each copy lies, and which move on. Bytes of other slots on the near tier are always taken from it. */
static void walk(pool *p) {
    const ebb_plan *plan = p->plan;
    size_t ends = 0;
    uint64_t used = 0;
    p->n_on_near = p->n_moved = 0;
    for (size_t s = 0; s < plan->slots.n; s++) {
        const ebb_slot *slot = &plan->slots.data[s];
        const bool goes_around = slot->tier == p->near && slot->first >= slot->last;
        if (goes_around) { used += rounded(p, slot->size_bytes); }
    }
    for (size_t a = 0, s = 0; a < plan->actions.n; a++) {
        for (; ends < plan->slots.n && plan->slots.data[p->slots_by_end[ends]].last <= a; ends++) {
            const uint32_t which = p->slots_by_end[ends], c = p->copy_of_slot[which];
            const ebb_slot *slot = &plan->slots.data[which];
            if (slot->first >= slot->last) { continue; }
            if (c == NONE ? slot->tier == p->near : is_on_near(p, c)) { used -= rounded(p, slot->size_bytes); }
            if (c != NONE && is_on_near(p, c)) { take_off(p, c); }
        }
        for (; s < plan->slots.n && plan->slots.data[s].first <= a; s++) {
            const ebb_slot *slot = &plan->slots.data[s];
            const uint32_t c = p->copy_of_slot[s];
            if (slot->first >= slot->last) { continue; }
            if (c == NONE) {
                used += slot->tier == p->near ? rounded(p, slot->size_bytes) : 0;
                continue;
            }
            copy *it = &p->copies[c];
            it->is_near = make_room(p, a, it->bytes, p->next_read[a], &used);
            if (!it->is_near) { continue; }
            used += it->bytes;
            p->on_near[p->n_on_near++] = c;
        }
        if (p->copy_of[a] == NONE) { continue; }
        copy *it = &p->copies[p->copy_of[a]];
        it->next_read = p->next_read[a];
        if (it->move == UINT64_MAX) { it->last_event = a; }
    }
}

/* From the last move to the first: each ends when its room is wanted and when the one after it begins. */
static void move_up(pool *p) {
    uint64_t is_free = UINT64_MAX;
    for (size_t i = p->n_moved; i-- > 0;) {
        copy *it = &p->copies[p->moved[i]];
        const uint64_t takes = ebb_machine_copy_time_ns(p->machine, p->near, p->far, it->bytes);
        const uint64_t until = ebb_min_u64(p->time[it->move], is_free);
        is_free = until > takes ? until - takes : 0;
        while (it->move > it->last_event + 1 && p->time[it->move] > is_free) { it->move--; }
    }
}

/* ---- coming back ---------------------------------------------------------------------------------- */

static uint64_t slot_last(const pool *p, const copy *it) {
    return p->plan->slots.data[it->slot].last;
}

/* When a copy is on the far tier at the earliest; UINT64_MAX: never. */
static uint64_t far_since(const pool *p, const copy *it) {
    return it->is_near ? it->move : p->plan->slots.data[it->slot].first + 1;
}

/* The bytes of the near tier that are taken at each action. */
static void count_near(const pool *p, uint64_t *used) {
    const size_t n = p->plan->actions.n;
    memset(used, 0, n * sizeof *used);
    for (size_t s = 0; s < p->plan->slots.n; s++) {
        const ebb_slot *slot = &p->plan->slots.data[s];
        const copy *it = p->copy_of_slot[s] != NONE ? &p->copies[p->copy_of_slot[s]] : NULL;
        const bool goes_around = slot->first >= slot->last;
        const uint64_t last = it != NULL ? ebb_min_u64(it->move, slot->last) : slot->last;
        if (it != NULL ? !it->is_near : slot->tier != p->near) { continue; }
        for (uint64_t a = goes_around ? 0 : slot->first; a < (goes_around ? n : last); a++) {
            used[a] += rounded(p, slot->size_bytes);
        }
    }
}

static void find_first_reads(pool *p) {
    for (size_t c = 0; c < p->n_copies; c++) { p->copies[c].first_far = UINT64_MAX; }
    for (size_t a = p->plan->actions.n; a-- > 0;) {
        const uint32_t c = p->copy_of[a];
        if (c == NONE || p->copies[c].is_fixed || p->plan->actions.data[a].kind != EBB_ACT_IN) { continue; }
        if (a >= far_since(p, &p->copies[c])) { p->copies[c].first_far = a; }
    }
}

/* Let a copy come back before its read at a, not sooner than at a time, if the near tier has room from there on. */
static void come_back(const pool *p, copy *it, uint64_t a, uint64_t time, uint64_t *used) {
    bool has_room = it->bytes <= p->cap_bytes;
    for (uint64_t x = a; has_room && x < slot_last(p, it); x++) { has_room = used[x] <= p->cap_bytes - it->bytes; }
    uint64_t x = a;
    while (has_room && x > far_since(p, it) + 1 && p->time[x] > time && used[x - 1] <= p->cap_bytes - it->bytes) {
        x--;
    }
    if (x == a) { return; }
    it->back = x;
    for (; x < slot_last(p, it); x++) { used[x] += it->bytes; }
}

/* From the last read to the first: each copy is back when it is read and when the copy after it begins to come. */
static ebb_status bring_back(pool *p) {
    uint64_t is_free = UINT64_MAX;
    uint64_t *used = ebb__bump_alloc(&p->bump, p->plan->actions.n, sizeof *used);
    if (used == NULL) { return EBB_E_NO_MEMORY; }
    if (p->plan->topology.way[p->far][p->near] == 0) { return EBB_OK; }
    count_near(p, used);
    find_first_reads(p);
    for (size_t a = p->plan->actions.n; a-- > 0;) {
        copy *it = p->copy_of[a] != NONE ? &p->copies[p->copy_of[a]] : NULL;
        if (it == NULL || it->first_far != a) { continue; }
        const uint64_t takes = ebb_machine_copy_time_ns(p->machine, p->far, p->near, it->bytes);
        const uint64_t until = ebb_min_u64(p->time[a], is_free);
        is_free = until > takes ? until - takes : 0;
        come_back(p, it, a, is_free, used);
    }
    return EBB_OK;
}

/* ---- the new plan -------------------------------------------------------------------------------- */

/* A move, and where it is put. */
typedef struct moving {
    uint64_t before, at;
    uint32_t copy;
    bool is_back;
} moving;

static uint64_t before_key(const void *item) {
    return ((const moving *)item)->before;
}

/* Moves in the order of the actions before which they go. */
static ebb_status list_moves(pool *p, moving **moves_out, size_t *n_out) {
    size_t n = 0;
    moving *moves = ebb__bump_alloc(&p->bump, 2 * p->n_copies, sizeof *moves);
    if (moves == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t c = 0; c < p->n_copies; c++) {
        const copy *it = &p->copies[c];
        if (it->move != UINT64_MAX) { moves[n++] = (moving){.before = it->move, .copy = c}; }
        if (it->back != UINT64_MAX) { moves[n++] = (moving){.before = it->back, .copy = c, .is_back = true}; }
    }
    *moves_out = moves;
    *n_out = p->n_moves = n;
    return ebb__sort_items(p->plan->mem, moves, n, sizeof *moves, before_key);
}

/* The tier that a copy is on at an action. */
static uint32_t tier_at(const pool *p, const copy *it, uint64_t a) {
    return (it->is_near && a < it->move) || a >= it->back ? p->near : p->far;
}

/* All actions, with the moves between them; at[a]: where action a is now. */
static ebb_status write_actions(pool *p, ebb_plan *made, moving *moves, size_t n_moves, uint64_t *at) {
    const ebb_plan *plan = p->plan;
    size_t next = 0;
    for (size_t a = 0; a < plan->actions.n; a++) {
        for (; next < n_moves && moves[next].before == a; next++) {
            const bool is_back = moves[next].is_back;
            const ebb_action move = {.kind = EBB_ACT_MOVE,
                                     .target = plan->slots.data[p->copies[moves[next].copy].slot].tensor,
                                     .tier = (uint16_t)(is_back ? p->far : p->near),
                                     .to = (uint16_t)(is_back ? p->near : p->far),
                                     .size_bytes = EBB_WHOLE};
            moves[next].at = made->actions.n;
            EBB_TRY(EBB_PUSH(made->mem, &made->actions, move));
        }
        ebb_action action = plan->actions.data[a];
        const copy *it = p->copy_of[a] != NONE ? &p->copies[p->copy_of[a]] : NULL;
        if (it != NULL && !it->is_fixed) { action.tier = (uint16_t)tier_at(p, it, a); }
        at[a] = made->actions.n;
        EBB_TRY(EBB_PUSH(made->mem, &made->actions, action));
    }
    at[plan->actions.n] = made->actions.n;
    EBB_ASSERT(next == n_moves);
    return EBB_OK;
}

/* Each slot from its first to its last; a move ends it and begins the next. */
static ebb_status write_slots(pool *p, ebb_plan *made, const moving *moves, size_t n_moves, const uint64_t *at) {
    uint64_t *latest = ebb__bump_alloc(&p->bump, p->n_copies, sizeof *latest);
    if (latest == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t c = 0; c < p->n_copies; c++) { latest[c] = p->copies[c].slot; }
    for (size_t s = 0; s < p->plan->slots.n; s++) {
        const uint32_t c = p->copy_of_slot[s];
        ebb_slot slot = p->plan->slots.data[s];
        slot.first = at[slot.first];
        slot.last = slot.last > 0 ? at[slot.last - 1] + 1 : 0; /* moves before the next action are not in it */
        if (c != NONE) { slot.tier = p->copies[c].is_near ? p->near : p->far; }
        EBB_TRY(EBB_PUSH(made->mem, &made->slots, slot));
    }
    for (size_t i = 0; i < n_moves; i++) {
        ebb_slot *before = &made->slots.data[latest[moves[i].copy]], on = *before;
        before->last = moves[i].at + 1;
        on.first = moves[i].at;
        on.tier = moves[i].is_back ? p->near : p->far;
        latest[moves[i].copy] = made->slots.n;
        EBB_TRY(EBB_PUSH(made->mem, &made->slots, on));
    }
    return ebb__plan_sort_pieces(made);
}

static ebb_status write_plan(pool *p, ebb_plan *made) {
    const ebb_plan *plan = p->plan;
    size_t n_moves = 0;
    moving *moves = NULL;
    uint64_t *at = ebb__bump_alloc(&p->bump, plan->actions.n + 1, sizeof *at);
    if (at == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(list_moves(p, &moves, &n_moves));
    EBB_TRY(write_actions(p, made, moves, n_moves, at));
    for (size_t i = 0; i < plan->stays.n; i++) {
        ebb_stay stay = plan->stays.data[i];
        stay.last = stay.tensor == EBB_SCRATCH ? at[stay.first] + 1 : at[stay.last];
        stay.first = at[stay.first];
        EBB_TRY(EBB_PUSH(made->mem, &made->stays, stay));
    }
    return write_slots(p, made, moves, n_moves, at);
}

/* One plan, with as much on the near tier as cap_bytes. */
static ebb_status pool_within(pool *p, ebb_plan *made) {
    p->n_copies = 0;
    EBB_TRY(find_copies(p));
    EBB_TRY(find_times(p));
    p->copy_of_slot = ebb__bump_alloc(&p->bump, p->plan->slots.n, sizeof *p->copy_of_slot);
    if (p->copy_of_slot == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__plan_order_slot_ends(p->plan, &p->bump, &p->slots_by_end));
    for (size_t s = 0; s < p->plan->slots.n; s++) { p->copy_of_slot[s] = NONE; }
    for (uint32_t c = 0; c < p->n_copies; c++) {
        if (!p->copies[c].is_fixed) { p->copy_of_slot[p->copies[c].slot] = c; }
    }
    walk(p);
    move_up(p);
    EBB_TRY(bring_back(p));
    return write_plan(p, made);
}

/* ---- pairs of tiers ------------------------------------------------------------------------------ */

/* Whether tiers hold their slots; else *over_out: by how much the near one does not. */
static bool fits(const ebb_plan_options *limits, const ebb_placed *got, uint32_t near, uint64_t *over_out) {
    bool all = true;
    *over_out = 0;
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) {
        if (got->tier_bytes[t] <= limits->tier_bytes[t]) { continue; }
        all = false;
        if (t == near) { *over_out = got->tier_bytes[t] - limits->tier_bytes[t]; }
    }
    return all;
}

/* *made_out NULL: there is no plan in which something moves on. */
static ebb_status pool_pair(pool *p, const ebb_plan_options *limits, ebb_plan **made_out) {
    p->cap_bytes = limits->tier_bytes[p->near];
    for (int round = 0; round < MAX_ROUNDS; round++) {
        ebb_plan *made = NULL;
        ebb_placed got = {0};
        uint64_t over = 0;
        EBB_TRY(ebb__plan_create_like(p->plan, &made));
        ebb__bump_init(&p->bump, p->plan->mem);
        ebb_status st = pool_within(p, made);
        ebb__bump_fini(&p->bump);
        const bool moves = p->n_moves > 0;
        if (st == EBB_OK && moves) {
            const ebb_placing_options options = {.alignment = p->view.alignment, .work = EBB_PLACING_QUICK};
            st = ebb__plan_place_slots(made, &options, &got);
        }
        const bool taken = st == EBB_OK && moves && fits(limits, &got, p->near, &over);
        if (taken) { *made_out = made; }
        if (!taken) { ebb_plan_destroy(made); }
        if (st != EBB_OK || taken || over == 0) { return st; }
        p->cap_bytes -= ebb_min_u64(p->cap_bytes, over);
    }
    return EBB_OK;
}

static ebb_status predict(const ebb_program *program, const ebb_machine *machine, ebb_plan *plan, uint64_t *ns_out) {
    ebb_timeline timeline;
    EBB_TRY(ebb__plan_seal(plan));
    EBB_TRY(ebb_plan_simulate(program, plan, machine, &timeline, NULL, NULL));
    *ns_out = timeline.iteration_ns;
    return EBB_OK;
}

/* Whether something is copied to the far tier while the near one has a limit and is the faster of the two. */
static bool may_gain(const ebb_plan *plan, const ebb_machine *machine, const ebb_plan_options *limits, uint32_t near,
                     uint32_t far) {
    const uint64_t some = (uint64_t)1 << 20;
    if (plan->topology.way[near][far] == 0 || limits->tier_bytes[near] == 0 || limits->tier_bytes[far] == 0 ||
        limits->tier_bytes[near] == UINT64_MAX ||
        ebb_machine_copy_time_ns(machine, near, EBB_DEVICE, some) >=
            ebb_machine_copy_time_ns(machine, far, EBB_DEVICE, some)) {
        return false;
    }
    for (size_t s = 0; s < plan->slots.n; s++) {
        const ebb_slot *slot = &plan->slots.data[s];
        if (slot->tier == far && slot->first < slot->last) { return true; }
    }
    return false;
}

/* Takes what is faster. With fewer moves each time: where the far tier is what an iteration waits for, more of them
 * make it wait longer. */
static ebb_status try_pair(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                           uint32_t near, uint32_t far, ebb_plan **plan_io) {
    ebb_plan *plan = *plan_io, *best = NULL;
    pool p = {.plan = plan, .machine = machine, .view = ebb__plan_view(program), .near = near, .far = far};
    uint64_t best_ns = 0, ns = 0;
    ebb_status st = predict(program, machine, plan, &best_ns);
    p.most_moves = plan->slots.n;
    for (bool is_last = false; st == EBB_OK && !is_last;) {
        ebb_plan *made = NULL;
        is_last = p.most_moves == 0;
        st = pool_pair(&p, limits, &made);
        if (st == EBB_OK && made != NULL) { st = predict(program, machine, made, &ns); }
        const bool wins = st == EBB_OK && made != NULL && ns < best_ns;
        ebb_plan_destroy(wins ? best : made);
        if (wins) {
            best = made;
            best_ns = ns;
        }
        p.most_moves = p.n_moved / 2;
    }
    if (best != NULL && st == EBB_OK) {
        ebb_plan_destroy(plan);
        *plan_io = best;
    } else {
        ebb_plan_destroy(best);
    }
    return st;
}

ebb_status ebb__plan_move_on(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *limits,
                             ebb_plan **plan_io) {
    const uint32_t n_tiers = (*plan_io)->topology.n_tiers;
    for (uint32_t near = 1; near < n_tiers; near++) {
        for (uint32_t far = 1; far < n_tiers; far++) {
            if (far == near || !may_gain(*plan_io, machine, limits, near, far)) { continue; }
            EBB_TRY(try_pair(program, machine, limits, near, far, plan_io));
        }
    }
    return EBB_OK;
}
