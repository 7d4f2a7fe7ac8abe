/* SPDX-License-Identifier: Apache-2.0
 *
 * A draft as a tape that can be changed (tape.h): putting in and taking out costs the touches of the nodes and
 * the stretch over which a tensor comes to stay or no longer does.
 *
 * Labels are 2^20 apart at first, and a node that is put in gets the middle of its neighbours'; where none is left, all
 * are given out anew.
 */
#include "plan/tape.h"

#define NONE EBB_TAPE_NONE
#define GAP ((uint64_t)1 << 20)

typedef ebb_tape_node node_t;
typedef ebb_tape_touch touch_t;

static size_t count_blocks(const ebb_tape *tape) {
    return tape->w->view.n_steps / EBB_TAPE_BLOCK + 1;
}

/* ---- recipes ------------------------------------------------------------------------------------ */

/* The place up to which what an access of a step means is so: the next step that writes the tensor. */
static uint32_t holds_until(const ebb_best_walk *w, uint32_t tensor, uint32_t step) {
    uint64_t low = w->uses.start[tensor];
    for (uint64_t high = w->uses.start[tensor + 1]; low < high;) {
        const uint64_t middle = low + (high - low) / 2;
        if (w->uses.use[middle].step <= step) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool is_last = low == w->uses.start[tensor + 1];
    return is_last || w->next_write[low] == EBB_BEST_NEVER ? (uint32_t)w->view.n_steps : (uint32_t)w->next_write[low];
}

/* Whether a step can be one of a chain that makes a tensor. */
static bool join_chain(const ebb_best_walk *w, uint32_t own, uint32_t step_idx, ebb_tape_recipe *recipe) {
    const ebb_step *step = &w->view.steps[step_idx];
    if (step->repeat != EBB_REPEAT_EXACT) { return false; }
    recipe->time_ns += w->step_ns[step_idx];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &w->view.accesses[step->first_access + i];
        if (access->tensor == own) { continue; }
        if (access->mode == EBB_UPDATE) { return false; }
        const uint32_t holds = holds_until(w, access->tensor, step_idx);
        recipe->holds = holds < recipe->holds ? holds : recipe->holds;
    }
    return true;
}

static ebb_tape_recipe find_recipe(const ebb_best_walk *w, uint32_t tensor, uint64_t last) {
    ebb_tape_recipe recipe = {.first = last, .last = last, .step = w->uses.use[last].step, .holds = UINT32_MAX};
    bool is_possible = true;
    EBB_ASSERT((w->uses.use[last].mode & EBB_WRITE) != 0);
    while (is_possible && w->uses.use[recipe.first].mode != EBB_WRITE) {
        is_possible = recipe.first-- > w->uses.start[tensor];
    }
    for (uint64_t use = recipe.first; is_possible && use <= last; use++) {
        if ((w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        is_possible = join_chain(w, tensor, w->uses.use[use].step, &recipe);
    }
    const uint32_t holds = holds_until(w, tensor, w->uses.use[last].step);
    recipe.holds = holds < recipe.holds ? holds : recipe.holds;
    if (!is_possible) { recipe.time_ns = -1; }
    return recipe;
}

const ebb_tape_recipe *ebb__tape_recipe(const ebb_tape *tape, uint32_t tensor, uint32_t place) {
    const ebb_tape_recipes *all = tape->recipes;
    uint64_t i = all->start[tensor + 1];
    while (i > all->start[tensor] && all->recipe[i - 1].step >= place) { i--; }
    const ebb_tape_recipe *recipe = i > all->start[tensor] ? &all->recipe[i - 1] : NULL;
    return recipe == NULL || recipe->time_ns < 0 || recipe->holds < place ? NULL : recipe;
}

/* ---- load --------------------------------------------------------------------------------------- */

uint32_t ebb__tape_block_begin(const ebb_tape *tape, uint32_t block) {
    return block == 0 ? tape->begin : tape->links.data[tape->run[block * EBB_TAPE_BLOCK - 1]].next;
}

int64_t ebb__tape_block_most(ebb_tape *tape, uint32_t block) {
    ebb_tape_block *b = &tape->blocks[block];
    if (!b->is_stale) { return b->most; }
    b->most = INT64_MIN;
    b->is_stale = false;
    for (uint32_t n = ebb__tape_block_begin(tape, block); n != NONE && tape->links.data[n].block == block;) {
        const int64_t load = n != tape->begin ? ebb__tape_load(tape, n) : INT64_MIN;
        b->most = load > b->most ? load : b->most;
        tape->n_visits++;
        n = tape->links.data[n].next;
    }
    return b->most;
}

/* ---- spans -------------------------------------------------------------------------------------- */

static void set_span(ebb_tape *tape, uint32_t tensor, uint32_t block, bool spans) {
    const uint32_t rank = tape->rank[tensor];
    if (rank == NONE) { return; }
    uint64_t *word = &tape->spans[block * tape->span_words + rank / 64];
    *word = spans ? *word | (uint64_t)1 << rank % 64 : *word & ~((uint64_t)1 << rank % 64);
}

size_t ebb__tape_next_span(const ebb_tape *tape, uint32_t block, size_t rank) {
    const uint64_t *row = &tape->spans[block * tape->span_words];
    for (size_t i = rank / 64; i < tape->span_words; i++, rank = 64 * i) {
        const uint64_t left = row[i] >> rank % 64;
        if (left != 0) { return rank + (size_t)__builtin_ctzll(left); }
    }
    return tape->n_by_size;
}

/* A tensor stays from touch to touch, or no longer does: bytes are added between their nodes. */
static void add_between(ebb_tape *tape, uint32_t tensor, uint32_t from, uint32_t to, int64_t bytes) {
    ebb_tape_link *links = tape->links.data;
    const uint32_t last = links[to].block;
    uint32_t n = from;
    tape->blocks[links[from].block].is_stale = tape->blocks[last].is_stale = true;
    if (links[from].block < last) {
        for (const uint32_t block = links[from].block; links[n].block == block; n = links[n].next) {
            links[n].through += bytes;
            tape->n_visits++;
        }
        for (uint32_t b = links[from].block + 1; b < last; b++) {
            tape->blocks[b].through += bytes;
            tape->blocks[b].most += bytes;
            set_span(tape, tensor, b, bytes > 0);
            tape->n_visits++;
        }
        n = ebb__tape_block_begin(tape, last);
    }
    for (; n != to; n = links[n].next) {
        links[n].through += bytes;
        tape->n_visits++;
    }
}

/* ---- touches ------------------------------------------------------------------------------------ */

/* Most questions are about the same stretch as the ones before. */
uint32_t ebb__tape_before(ebb_tape *tape, uint32_t tensor, uint64_t label) {
    const touch_t *touches = tape->touches.data;
    uint32_t touch = tape->near[tensor] != NONE ? tape->near[tensor] : tape->last[tensor];
    while (touch != NONE && touches[touch].label >= label) { touch = touches[touch].prev; }
    if (touch == NONE) { return NONE; }
    for (uint32_t next = touches[touch].next; next != NONE && touches[next].label < label; next = touches[next].next) {
        touch = next;
    }
    tape->near[tensor] = touch;
    return touch;
}

static void link_touch(ebb_tape *tape, uint32_t touch) {
    touch_t *touches = tape->touches.data, *t = &touches[touch];
    const int64_t bytes = tape->bytes[t->tensor];
    t->label = tape->nodes.data[t->node].label;
    t->prev = ebb__tape_before(tape, t->tensor, t->label);
    t->next = t->prev != NONE ? touches[t->prev].next : tape->first[t->tensor];
    const bool stayed = ebb__tape_stays(tape, t->prev);
    if (stayed && t->fresh) { add_between(tape, t->tensor, touches[t->prev].node, t->node, -bytes); }
    if (!stayed && !t->fresh && t->prev != NONE) {
        add_between(tape, t->tensor, touches[t->prev].node, t->node, bytes);
    }
    if (t->fresh || t->prev == NONE) { tape->links.data[t->node].own += bytes; }
    set_span(tape, t->tensor, tape->links.data[t->node].block, false);
    *(t->prev != NONE ? &touches[t->prev].next : &tape->first[t->tensor]) = touch;
    *(t->next != NONE ? &touches[t->next].prev : &tape->last[t->tensor]) = touch;
}

/* What a tensor stays over, now that a touch between two others is taken out. */
static void span_at(ebb_tape *tape, uint32_t from, uint32_t at, uint32_t to, uint32_t tensor) {
    const ebb_tape_link *links = tape->links.data;
    const uint32_t block = links[at].block;
    if (links[from].block < block && block < links[to].block) { set_span(tape, tensor, block, true); }
}

static void unlink_touch(ebb_tape *tape, uint32_t touch) {
    touch_t *touches = tape->touches.data, *t = &touches[touch];
    const int64_t bytes = tape->bytes[t->tensor];
    const bool stays = t->next != NONE && !touches[t->next].fresh && t->prev != NONE; /* once it is taken out */
    *(t->prev != NONE ? &touches[t->prev].next : &tape->first[t->tensor]) = t->next;
    *(t->next != NONE ? &touches[t->next].prev : &tape->last[t->tensor]) = t->prev;
    if (tape->near[t->tensor] == touch) { tape->near[t->tensor] = t->prev; }
    if (stays && t->fresh) { add_between(tape, t->tensor, touches[t->prev].node, t->node, bytes); }
    if (!stays && !t->fresh && t->prev != NONE) {
        add_between(tape, t->tensor, touches[t->prev].node, t->node, -bytes);
    }
    if (t->fresh || t->prev == NONE) { tape->links.data[t->node].own -= bytes; }
    if (stays) { span_at(tape, touches[t->prev].node, t->node, touches[t->next].node, t->tensor); }
}

/* ---- nodes -------------------------------------------------------------------------------------- */

/* There is room in the list for each that was made. */
static void enter_again(ebb_tape *tape, uint32_t n) {
    tape->nodes.data[n].again_idx = (uint32_t)tape->again.n;
    tape->again.data[tape->again.n++] = n;
    tape->again_ns += tape->w->step_ns[tape->nodes.data[n].action.target];
}

static void leave_again(ebb_tape *tape, uint32_t n) {
    const node_t *node = &tape->nodes.data[n];
    const uint32_t last = tape->again.data[--tape->again.n];
    tape->again.data[node->again_idx] = last;
    tape->nodes.data[last].again_idx = node->again_idx;
    tape->again_ns -= tape->w->step_ns[node->action.target];
}

static void relabel(ebb_tape *tape) {
    uint64_t label = GAP;
    for (uint32_t n = tape->begin; n != NONE; n = tape->links.data[n].next, label += GAP) {
        node_t *node = &tape->nodes.data[n];
        node->label = label;
        for (uint32_t i = 0; i < node->n_touches; i++) { tape->touches.data[node->first_touch + i].label = label; }
    }
}

static int64_t scratch_of(const ebb_tape *tape, const ebb_action *action) {
    if (!ebb__action_computes(action)) { return 0; }
    const ebb_program_view *view = &tape->w->view;
    const uint64_t choice = view->steps[action->target].first_choice + action->choice;
    return (int64_t)ebb_align_up(view->choices[choice].scratch_bytes, view->alignment);
}

/* The bytes at a node beside those of tensors. */
static int64_t base_of(const ebb_tape *tape, const node_t *node) {
    return scratch_of(tape, &node->action) + (tape->waste != NULL ? (int64_t)tape->waste[node->place] : 0);
}

void ebb__tape_link(ebb_tape *tape, uint32_t n, uint32_t before) {
    node_t *nodes = tape->nodes.data, *node = &nodes[n];
    ebb_tape_link *links = tape->links.data;
    const uint32_t prev = links[before].prev;
    EBB_ASSERT(!node->is_linked && prev != NONE && node->action.kind != EBB_ACT_RUN);
    if (nodes[before].label - nodes[prev].label < 2) { relabel(tape); }
    node->label = nodes[prev].label + (nodes[before].label - nodes[prev].label) / 2;
    node->is_linked = true;
    const uint32_t block = links[before].block;
    const int64_t through = ebb__tape_through(tape, prev) - tape->blocks[block].through;
    links[n] = (ebb_tape_link){base_of(tape, node), through, prev, before, block};
    tape->blocks[block].is_stale = true;
    links[prev].next = links[before].prev = n;
    for (uint32_t i = 0; i < node->n_touches; i++) { link_touch(tape, node->first_touch + i); }
    if (node->action.kind == EBB_ACT_AGAIN) { enter_again(tape, n); }
}

void ebb__tape_unlink(ebb_tape *tape, uint32_t n) {
    node_t *nodes = tape->nodes.data, *node = &nodes[n];
    ebb_tape_link *links = tape->links.data, *link = &links[n];
    EBB_ASSERT(node->is_linked && node->action.kind != EBB_ACT_RUN);
    for (uint32_t i = node->n_touches; i-- > 0;) { unlink_touch(tape, node->first_touch + i); }
    EBB_ASSERT(ebb__tape_through(tape, n) == ebb__tape_through(tape, link->prev));
    tape->blocks[link->block].is_stale = true;
    links[link->prev].next = link->next;
    links[link->next].prev = link->prev;
    node->is_linked = false;
    if (node->action.kind == EBB_ACT_AGAIN) { leave_again(tape, n); }
}

void ebb__tape_release(ebb_tape *tape, uint32_t node) {
    node_t *it = &tape->nodes.data[node];
    EBB_ASSERT(!it->is_linked);
    tape->links.data[node].next = tape->unused[it->action.target];
    tape->unused[it->action.target] = node;
}

static ebb_status make_node(ebb_tape *tape, const ebb_action *action, uint32_t place, uint32_t *node_out) {
    const uint32_t idx = (uint32_t)tape->nodes.n;
    node_t node = {.place = place, .chain = NONE, .action = *action};
    const ebb_tape_link link = {.prev = NONE, .next = NONE};
    node.first_touch = (uint32_t)tape->touches.n;
    EBB_TRY(EBB_PUSH(tape->mem, &tape->nodes, node));
    EBB_TRY(EBB_PUSH(tape->mem, &tape->links, link));
    EBB_TRY(EBB_RESERVE(tape->mem, &tape->again, tape->nodes.n - tape->again.n));
    *node_out = idx;
    return EBB_OK;
}

static ebb_status add_touch(ebb_tape *tape, uint32_t node, uint32_t tensor, uint32_t mode) {
    const touch_t touch = {.node = node,
                           .prev = NONE,
                           .next = NONE,
                           .tensor = tensor,
                           .fresh = mode == EBB_WRITE,
                           .writes = (mode & EBB_WRITE) != 0};
    if (tape->is_fixed[tensor]) { return EBB_OK; }
    EBB_TRY(EBB_PUSH(tape->mem, &tape->touches, touch));
    tape->nodes.data[node].n_touches++;
    return EBB_OK;
}

static ebb_status make_step(ebb_tape *tape, ebb_action_kind kind, uint32_t step_idx, uint32_t place,
                            uint32_t *node_out) {
    const ebb_step *step = &tape->w->view.steps[step_idx];
    const ebb_action action = {
        .kind = kind, .target = step_idx, .choice = ebb__choice_of(tape->w->input->choice, step_idx)};
    EBB_TRY(make_node(tape, &action, place, node_out));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &tape->w->view.accesses[step->first_access + i];
        EBB_TRY(add_touch(tape, *node_out, access->tensor, access->mode));
    }
    return EBB_OK;
}

ebb_status ebb__tape_make_chain(ebb_tape *tape, const ebb_tape_recipe *recipe, uint32_t place, uint32_t *first_out) {
    uint32_t first = NONE, before = NONE;
    for (uint64_t use = recipe->first; use <= recipe->last; use++) {
        const uint32_t step = tape->w->uses.use[use].step;
        uint32_t n = tape->unused[step];
        if ((tape->w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        if (n != NONE) {
            tape->unused[step] = tape->links.data[n].next;
        } else {
            EBB_TRY(make_step(tape, EBB_ACT_AGAIN, step, place, &n));
        }
        first = first == NONE ? n : first;
        if (before != NONE) { tape->nodes.data[before].chain = n; }
        tape->nodes.data[n].chain = first;
        tape->nodes.data[n].place = place;
        tape->nodes.data[n].is_closed = n != first;
        before = n;
    }
    *first_out = first;
    return EBB_OK;
}

/* ---- copies ------------------------------------------------------------------------------------- */

/* What the walk over the nodes knows of a tensor's copy. */
typedef struct copy_state {
    uint32_t out, drop; /* nodes; NONE */
    size_t copy;        /* its index in copies; SIZE_MAX: none yet */
} copy_state;

static bool is_same_tier(const ebb_tape *tape, uint32_t a, uint32_t b) {
    return tape->nodes.data[a].action.tier == tape->nodes.data[b].action.tier;
}

/* No copy of this version counts, neither one that was found nor one to come. */
static void forget_copy(ebb_tape *tape, copy_state *state) {
    if (state->copy != SIZE_MAX) { tape->copies.data[state->copy].in = NONE; }
    state->out = NONE;
}

static ebb_status see_copy(ebb_tape *tape, uint32_t n, copy_state *state) {
    switch (tape->nodes.data[n].action.kind) {
    case EBB_ACT_OUT:
        if (state->out != NONE) { forget_copy(tape, state); }
        *state = (copy_state){.out = n, .drop = NONE, .copy = SIZE_MAX};
        return EBB_OK;
    case EBB_ACT_DROP: state->drop = state->drop == NONE ? n : state->drop; return EBB_OK;
    case EBB_ACT_IN:
        if (state->out == NONE || state->drop == NONE || state->copy != SIZE_MAX ||
            !is_same_tier(tape, n, state->out)) {
            forget_copy(tape, state);
            return EBB_OK;
        }
        state->copy = tape->copies.n;
        const ebb_tape_copy copy = {.out = state->out, .drop = state->drop, .in = n};
        return EBB_PUSH(tape->mem, &tape->copies, copy);
    default: forget_copy(tape, state); return EBB_OK;
    }
}

static void keep_known(ebb_tape *tape) {
    size_t n = 0;
    for (size_t i = 0; i < tape->copies.n; i++) {
        if (tape->copies.data[i].in != NONE) { tape->copies.data[n++] = tape->copies.data[i]; }
    }
    tape->copies.n = n;
}

/* Find the copies that are read once. A copy is good until the program writes its tensor anew, also where that is
 * computed again in between. Persistent tensors are left out: their copies may be read in the next iteration. */
static ebb_status find_copies(ebb_tape *tape, copy_state *state) {
    const ebb_program_view *view = &tape->w->view;
    for (size_t t = 0; t < view->n_tensors; t++) { state[t] = (copy_state){NONE, NONE, SIZE_MAX}; }
    for (uint32_t n = tape->begin; n != NONE; n = tape->links.data[n].next) {
        const node_t *node = &tape->nodes.data[n];
        for (uint32_t i = 0; i < node->n_touches && node->action.kind == EBB_ACT_RUN; i++) {
            const touch_t *touch = &tape->touches.data[node->first_touch + i];
            if (touch->writes) { state[touch->tensor] = (copy_state){NONE, NONE, SIZE_MAX}; }
        }
        const bool is_copy = !ebb__action_computes(&node->action) && node->action.target != NONE;
        if (is_copy && !view->tensors[node->action.target].persistent) {
            EBB_TRY(see_copy(tape, n, &state[node->action.target]));
        }
    }
    keep_known(tape);
    return EBB_OK;
}

static ebb_status make_spare(ebb_tape *tape) {
    const ebb_tape_copy *like = &tape->copies.data[0];
    const uint32_t from[3] = {like->out, like->drop, like->in};
    uint32_t *to[3] = {&tape->spare.out, &tape->spare.drop, &tape->spare.in};
    for (int i = 0; i < 3; i++) {
        const node_t node = tape->nodes.data[from[i]];
        EBB_TRY(make_node(tape, &node.action, node.place, to[i]));
        EBB_TRY(add_touch(tape, *to[i], node.action.target, i == 2 ? EBB_WRITE : EBB_READ));
    }
    return EBB_OK;
}

static ebb_status read_copies(ebb_tape *tape) {
    copy_state *state = ebb__alloc(tape->mem, tape->w->view.n_tensors, sizeof *state);
    tape->copies.n = 0;
    ebb_status st = state != NULL ? find_copies(tape, state) : EBB_E_NO_MEMORY;
    if (st == EBB_OK && tape->copies.n > 0) { st = make_spare(tape); }
    ebb__free(tape->mem, state);
    return st;
}

static void set_copy_node(ebb_tape *tape, uint32_t n, uint32_t like, uint32_t tensor) {
    node_t *node = &tape->nodes.data[n];
    EBB_ASSERT(!node->is_linked && node->n_touches == 1);
    node->action = tape->nodes.data[like].action;
    node->action.target = tensor;
    node->place = tape->nodes.data[like].place;
    tape->touches.data[node->first_touch].tensor = tensor;
}

void ebb__tape_set_spare(ebb_tape *tape, const ebb_tape_copy *like, uint32_t tensor) {
    set_copy_node(tape, tape->spare.out, like->out, tensor);
    set_copy_node(tape, tape->spare.drop, like->drop, tensor);
    set_copy_node(tape, tape->spare.in, like->in, tensor);
}

/* ---- reading a draft ---------------------------------------------------------------------------- */

/* A tensor that is on the device from end to end, and never copied or dropped. */
static void find_fixed(ebb_tape *tape, const ebb_draft *draft) {
    for (size_t t = 0; t < tape->w->view.n_tensors; t++) { tape->is_fixed[t] = draft->resident[t] != 0; }
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (!ebb__action_computes(action)) { tape->is_fixed[action->target] = false; }
    }
}

/* Nodes are linked in order, at the end; has_copy: what each tensor holds has a copy. */
static ebb_status read_action(ebb_tape *tape, const ebb_action *action, uint32_t *place, bool *has_copy,
                              uint32_t *maker) {
    uint32_t n = NONE;
    if (!ebb__action_computes(action)) {
        const bool is_drop = action->kind == EBB_ACT_DROP;
        if (is_drop && !has_copy[action->target]) { return EBB_OK; }
        EBB_TRY(make_node(tape, action, *place, &n));
        if (!is_drop) { has_copy[action->target] = true; }
        if (action->kind == EBB_ACT_IN) { maker[action->target] = NONE; }
        if (action->kind == EBB_ACT_MOVE) { return EBB_OK; }
        return add_touch(tape, n, action->target, action->kind == EBB_ACT_IN ? EBB_WRITE : EBB_READ);
    }
    EBB_TRY(make_step(tape, (ebb_action_kind)action->kind, action->target, *place, &n));
    tape->nodes.data[n].action.choice = action->choice;
    const bool is_run = action->kind == EBB_ACT_RUN;
    const ebb_step *step = &tape->w->view.steps[action->target];
    if (is_run) { tape->run[*place] = n; }
    if (!is_run) { tape->nodes.data[n].chain = n; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &tape->w->view.accesses[step->first_access + i];
        const uint32_t t = access->tensor, before = maker[t];
        if ((access->mode & EBB_WRITE) == 0) { continue; }
        has_copy[t] = false;
        if (!is_run && access->mode == EBB_UPDATE && before != NONE) { /* it goes on with what made it */
            tape->nodes.data[n].chain = tape->nodes.data[before].chain;
            tape->nodes.data[before].chain = n;
        }
        maker[t] = is_run ? NONE : n;
    }
    *place += is_run;
    return EBB_OK;
}

static ebb_status read_end(ebb_tape *tape, const ebb_draft *draft, bool is_end) {
    const ebb_action nothing = {.kind = EBB_ACT_DROP, .target = NONE};
    const ebb_program_view *view = &tape->w->view;
    uint32_t n = NONE;
    EBB_TRY(make_node(tape, &nothing, is_end ? (uint32_t)view->n_steps : 0, &n));
    for (uint32_t t = 0; t < view->n_tensors; t++) {
        const bool is_there = draft->resident[t] != 0 || (is_end && view->tensors[t].kept);
        if (is_there) { EBB_TRY(add_touch(tape, n, t, is_end ? EBB_READ : EBB_WRITE)); }
    }
    *(is_end ? &tape->end : &tape->begin) = n;
    return EBB_OK;
}

static void link_all(ebb_tape *tape) {
    int64_t fixed = 0;
    for (size_t b = 0; b < count_blocks(tape); b++) { tape->blocks[b] = (ebb_tape_block){.is_stale = true}; }
    memset(tape->spans, 0, count_blocks(tape) * tape->span_words * sizeof *tape->spans);
    for (uint32_t t = 0; t < tape->w->view.n_tensors; t++) { fixed += tape->is_fixed[t] ? tape->bytes[t] : 0; }
    for (uint32_t n = 0; n < tape->nodes.n; n++) {
        node_t *node = &tape->nodes.data[n];
        node->label = (n + 1) * GAP;
        node->is_linked = true;
        tape->links.data[n] = (ebb_tape_link){.own = base_of(tape, node),
                                              .through = fixed,
                                              .block = node->place / EBB_TAPE_BLOCK,
                                              .prev = n > 0 ? n - 1 : NONE,
                                              .next = n + 1 < tape->nodes.n ? n + 1 : NONE};
    }
    for (uint32_t n = 0; n < tape->nodes.n; n++) {
        const node_t *node = &tape->nodes.data[n];
        for (uint32_t i = 0; i < node->n_touches; i++) { link_touch(tape, node->first_touch + i); }
        if (node->action.kind == EBB_ACT_AGAIN) { enter_again(tape, n); }
    }
}

/* Between the first and the last node of a chain its tensor is not what it is at the last. */
static void close_chains(ebb_tape *tape) {
    for (uint32_t n = 0; n < tape->nodes.n; n++) {
        const node_t *node = &tape->nodes.data[n];
        if (node->chain == NONE || node->chain <= n) { continue; } /* chains are in order */
        for (uint32_t between = n + 1; between <= node->chain; between++) {
            tape->nodes.data[between].is_closed = true;
        }
    }
}

ebb_status ebb__tape_read(ebb_tape *tape, const ebb_draft *draft) {
    const size_t n_tensors = tape->w->view.n_tensors;
    uint32_t place = 0;
    bool *has_copy = ebb__calloc(tape->mem, n_tensors, sizeof *has_copy);
    uint32_t *maker = ebb__alloc(tape->mem, n_tensors, sizeof *maker);
    ebb_status st = has_copy != NULL && maker != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    tape->nodes.n = tape->links.n = tape->touches.n = tape->again.n = 0;
    tape->again_ns = 0;
    for (uint32_t t = 0; t < n_tensors; t++) { tape->first[t] = tape->last[t] = tape->near[t] = NONE; }
    for (size_t i = 0; i < tape->w->view.n_steps; i++) { tape->unused[i] = NONE; }
    for (size_t t = 0; st == EBB_OK && t < n_tensors; t++) { maker[t] = NONE; }
    find_fixed(tape, draft);
    if (st == EBB_OK) { st = read_end(tape, draft, false); }
    for (size_t a = 0; st == EBB_OK && a < draft->actions.n; a++) {
        st = read_action(tape, &draft->actions.data[a].action, &place, has_copy, maker);
    }
    if (st == EBB_OK) { st = read_end(tape, draft, true); }
    if (st == EBB_OK) {
        link_all(tape);
        close_chains(tape);
        st = read_copies(tape);
    }
    ebb__free(tape->mem, has_copy);
    ebb__free(tape->mem, maker);
    return st;
}

/* ---- writing one -------------------------------------------------------------------------------- */

/* Drops after a node; index[t]: after the action that filled or dropped a tensor. */
static ebb_status write_drops(const ebb_tape *tape, const node_t *node, ebb_draft *draft, uint64_t *index) {
    const bool is_drop = node->action.kind == EBB_ACT_DROP && node->action.target != NONE;
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const touch_t *touch = &tape->touches.data[node->first_touch + i];
        const bool leaves = !ebb__tape_stays(tape, node->first_touch + i) && node != &tape->nodes.data[tape->end];
        if (leaves && !is_drop) {
            EBB_TRY(ebb__draft_tensor(draft, EBB_ACT_DROP, touch->tensor, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
        if (leaves || touch->writes) { index[touch->tensor] = draft->actions.n; }
    }
    return EBB_OK;
}

static ebb_status write_node(const ebb_tape *tape, const node_t *node, ebb_draft *draft, uint64_t *index) {
    const ebb_action *action = &node->action;
    const bool is_copy = action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN;
    const bool is_end = action->kind == EBB_ACT_DROP && action->target == NONE;
    if (!is_end) { EBB_TRY(ebb__draft_add(draft, action, is_copy ? index[action->target] : EBB_DRAFT_FIXED)); }
    return write_drops(tape, node, draft, index);
}

ebb_status ebb__tape_write(const ebb_tape *tape, ebb_draft *draft) {
    uint64_t *index = ebb__calloc(tape->mem, tape->w->view.n_tensors, sizeof *index);
    ebb_status st = index != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    draft->actions.n = draft->absent.n = 0;
    for (uint32_t n = tape->begin; st == EBB_OK && n != NONE; n = tape->links.data[n].next) {
        st = write_node(tape, &tape->nodes.data[n], draft, index);
    }
    ebb__free(tape->mem, index);
    return st;
}

/* ---- setting up --------------------------------------------------------------------------------- */

static size_t count_writes(const ebb_best_walk *w) {
    size_t n = 0;
    for (uint64_t use = 0; use < w->view.n_accesses; use++) { n += (w->uses.use[use].mode & EBB_WRITE) != 0; }
    return n;
}

ebb_status ebb__tape_find_recipes(const ebb_best_walk *w, ebb_bump *bump, ebb_tape_recipes **recipes_out) {
    ebb_tape_recipes *all = ebb__bump_alloc(bump, 1, sizeof *all);
    if (all == NULL) { return EBB_E_NO_MEMORY; }
    all->start = ebb__bump_alloc(bump, w->view.n_tensors + 1, sizeof *all->start);
    all->recipe = ebb__bump_alloc(bump, count_writes(w), sizeof *all->recipe);
    if (all->start == NULL || all->recipe == NULL) { return EBB_E_NO_MEMORY; }
    uint64_t n = 0;
    for (uint32_t t = 0; t < w->view.n_tensors; t++) {
        all->start[t] = n;
        for (uint64_t use = w->uses.start[t]; use < w->uses.start[t + 1]; use++) {
            if ((w->uses.use[use].mode & EBB_WRITE) != 0) { all->recipe[n++] = find_recipe(w, t, use); }
        }
    }
    all->start[w->view.n_tensors] = n;
    *recipes_out = all;
    return EBB_OK;
}

static bool can_be_made(const ebb_tape *tape, uint32_t t) {
    const uint64_t end = tape->recipes->start[t + 1];
    uint64_t i = tape->recipes->start[t];
    while (i < end && tape->recipes->recipe[i].time_ns < 0) { i++; }
    return i < end;
}

static ebb_status sort_by_size(ebb_tape *tape) {
    const size_t n_tensors = tape->w->view.n_tensors;
    uint64_t *key = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *key);
    tape->by_size = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->by_size);
    tape->rank = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->rank);
    if (key == NULL || tape->by_size == NULL || tape->rank == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t t = 0; t < n_tensors; t++) {
        key[t] = UINT64_MAX - (uint64_t)tape->bytes[t];
        tape->rank[t] = NONE;
        if (can_be_made(tape, t)) { tape->by_size[tape->n_by_size++] = t; }
    }
    EBB_TRY(ebb__sort_by_key(tape->mem, tape->by_size, tape->n_by_size, key));
    for (uint32_t i = 0; i < tape->n_by_size; i++) { tape->rank[tape->by_size[i]] = i; }
    tape->span_words = tape->n_by_size / 64 + 1;
    tape->spans = ebb__bump_alloc(&tape->bump, count_blocks(tape) * tape->span_words, sizeof *tape->spans);
    return tape->spans != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

ebb_status ebb__tape_init(ebb_tape *tape, const ebb_best_walk *w, const ebb_tape_recipes *recipes,
                          const uint64_t *waste) {
    const size_t n_tensors = w->view.n_tensors;
    *tape = (ebb_tape){.w = w, .mem = w->input->mem, .recipes = recipes, .waste = waste};
    ebb__bump_init(&tape->bump, tape->mem);
    tape->first = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->first);
    tape->last = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->last);
    tape->near = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->near);
    tape->is_fixed = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->is_fixed);
    tape->bytes = ebb__bump_alloc(&tape->bump, n_tensors, sizeof *tape->bytes);
    tape->unused = ebb__bump_alloc(&tape->bump, w->view.n_steps, sizeof *tape->unused);
    tape->blocks = ebb__bump_alloc(&tape->bump, count_blocks(tape), sizeof *tape->blocks);
    tape->run = ebb__bump_alloc(&tape->bump, w->view.n_steps, sizeof *tape->run);
    if (tape->first == NULL || tape->last == NULL || tape->near == NULL || tape->is_fixed == NULL ||
        tape->bytes == NULL || tape->unused == NULL || tape->run == NULL || tape->blocks == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (uint32_t t = 0; t < n_tensors; t++) { tape->bytes[t] = (int64_t)w->state[t].bytes; }
    return sort_by_size(tape);
}

void ebb__tape_fini(ebb_tape *tape) {
    ebb__bump_fini(&tape->bump);
    EBB_VEC_FINI(tape->mem, &tape->nodes);
    EBB_VEC_FINI(tape->mem, &tape->links);
    EBB_VEC_FINI(tape->mem, &tape->touches);
    EBB_VEC_FINI(tape->mem, &tape->again);
    EBB_VEC_FINI(tape->mem, &tape->copies);
}

/* ---- checks ------------------------------------------------------------------------------------- */

/* Whether a tensor stays all through a block, untouched. */
static bool is_spanned(const ebb_tape *tape, uint32_t t, uint32_t block) {
    for (uint32_t touch = tape->first[t]; touch != NONE; touch = tape->touches.data[touch].next) {
        const uint32_t next = tape->touches.data[touch].next;
        if (!ebb__tape_stays(tape, touch)) { continue; }
        const ebb_tape_link *links = tape->links.data;
        const uint32_t from = links[tape->touches.data[touch].node].block,
                       to = links[tape->touches.data[next].node].block;
        if (from < block && block < to) { return true; }
    }
    return false;
}

static bool are_spans_valid(const ebb_tape *tape) {
    for (uint32_t b = 0; b < count_blocks(tape); b++) {
        size_t next = ebb__tape_next_span(tape, b, 0);
        for (uint32_t i = 0; i < tape->n_by_size; i++) {
            const bool is_set = next == i;
            if (is_set != is_spanned(tape, tape->by_size[i], b)) { return false; }
            if (is_set) { next = ebb__tape_next_span(tape, b, i + 1); }
        }
    }
    return true;
}

/* Whether the touch that was asked for last is still one of the tensor's. */
static bool are_near_valid(const ebb_tape *tape) {
    bool are = true;
    for (uint32_t t = 0; t < tape->w->view.n_tensors && are; t++) {
        uint32_t touch = tape->first[t];
        while (touch != NONE && touch != tape->near[t]) { touch = tape->touches.data[touch].next; }
        are = touch == tape->near[t];
    }
    return are;
}

bool ebb__tape_is_valid(const ebb_tape *tape) {
    int64_t through = 0;
    for (uint32_t t = 0; t < tape->w->view.n_tensors; t++) { through += tape->is_fixed[t] ? tape->bytes[t] : 0; }
    for (uint32_t n = tape->begin; n != NONE; n = tape->links.data[n].next) {
        const node_t *node = &tape->nodes.data[n];
        const ebb_tape_link *link = &tape->links.data[n];
        int64_t own = base_of(tape, node);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const touch_t *touch = &tape->touches.data[node->first_touch + i];
            const bool stayed = !touch->fresh, stays = ebb__tape_stays(tape, node->first_touch + i);
            if (touch->label != node->label || (touch->prev == NONE && !touch->fresh)) { return false; }
            own += stayed ? 0 : tape->bytes[touch->tensor];
            through += (stays - stayed) * tape->bytes[touch->tensor];
        }
        if (own != link->own || through != ebb__tape_through(tape, n)) { return false; }
        const ebb_tape_block *block = &tape->blocks[link->block];
        if (n != tape->begin && !block->is_stale && block->most < ebb__tape_load(tape, n)) { return false; }
        if (link->next != NONE && tape->nodes.data[link->next].label <= node->label) { return false; }
    }
    return are_spans_valid(tape) && are_near_valid(tape);
}
