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
    ebb_tape_recipe recipe = {.first = last, .last = last, .holds = UINT32_MAX};
    bool is_possible = (w->uses.use[last].mode & EBB_WRITE) != 0;
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

const ebb_tape_recipe *ebb__tape_recipe(const ebb_tape *s, uint32_t tensor, uint32_t place) {
    const ebb_best_walk *w = s->w;
    const ebb_tape_recipe *recipe = NULL;
    for (uint64_t use = w->uses.start[tensor]; use < w->uses.start[tensor + 1]; use++) {
        if (w->uses.use[use].step >= place) { break; }
        if ((w->uses.use[use].mode & EBB_WRITE) != 0) { recipe = &s->recipes[use]; }
    }
    return recipe == NULL || recipe->time_ns < 0 || recipe->holds < place ? NULL : recipe;
}

/* ---- load --------------------------------------------------------------------------------------- */

uint32_t ebb__tape_block_begin(const ebb_tape *s, uint32_t block) {
    return block == 0 ? s->begin : s->links.data[s->run[block * EBB_TAPE_BLOCK - 1]].next;
}

int64_t ebb__tape_block_most(ebb_tape *s, uint32_t block) {
    ebb_tape_block *b = &s->blocks[block];
    if (!b->is_stale) { return b->most; }
    b->most = INT64_MIN;
    b->is_stale = false;
    for (uint32_t n = ebb__tape_block_begin(s, block); n != NONE && s->links.data[n].block == block;) {
        const int64_t load = n != s->begin ? ebb__tape_load(s, n) : INT64_MIN;
        b->most = load > b->most ? load : b->most;
        s->n_visits++;
        n = s->links.data[n].next;
    }
    return b->most;
}

/* A tensor stays from touch to touch, or no longer does: bytes are added between their nodes. */
static void add_between(ebb_tape *s, uint32_t from, uint32_t to, int64_t bytes) {
    ebb_tape_link *links = s->links.data;
    const uint32_t last = links[to].block;
    uint32_t n = from;
    s->blocks[links[from].block].is_stale = s->blocks[last].is_stale = true;
    if (links[from].block < last) {
        for (const uint32_t block = links[from].block; links[n].block == block; n = links[n].next) {
            links[n].through += bytes;
            s->n_visits++;
        }
        for (uint32_t b = links[from].block + 1; b < last; b++) {
            s->blocks[b].through += bytes;
            s->blocks[b].most += bytes;
            s->n_visits++;
        }
        n = ebb__tape_block_begin(s, last);
    }
    for (; n != to; n = links[n].next) {
        links[n].through += bytes;
        s->n_visits++;
    }
}

/* The ends of a tensor's touches have changed. */
static void set_ends(ebb_tape *s, uint32_t t) {
    s->first_label[t] = s->first[t] != NONE ? s->touches.data[s->first[t]].label : 0;
    s->last_label[t] = s->last[t] != NONE ? s->touches.data[s->last[t]].label : 0;
}

/* ---- touches ------------------------------------------------------------------------------------ */

uint32_t ebb__tape_before(const ebb_tape *s, uint32_t tensor, uint64_t label) {
    uint32_t touch = s->last[tensor];
    while (touch != NONE && s->touches.data[touch].label >= label) { touch = s->touches.data[touch].prev; }
    return touch;
}

static void link_touch(ebb_tape *s, uint32_t touch) {
    touch_t *touches = s->touches.data, *t = &touches[touch];
    const int64_t bytes = s->bytes[t->tensor];
    t->label = s->nodes.data[t->node].label;
    t->prev = ebb__tape_before(s, t->tensor, t->label);
    t->next = t->prev != NONE ? touches[t->prev].next : s->first[t->tensor];
    const bool stayed = ebb__tape_stays(s, t->prev);
    if (stayed && t->fresh) { add_between(s, touches[t->prev].node, t->node, -bytes); }
    if (!stayed && !t->fresh && t->prev != NONE) { add_between(s, touches[t->prev].node, t->node, bytes); }
    if (t->fresh || t->prev == NONE) { s->links.data[t->node].own += bytes; }
    *(t->prev != NONE ? &touches[t->prev].next : &s->first[t->tensor]) = touch;
    *(t->next != NONE ? &touches[t->next].prev : &s->last[t->tensor]) = touch;
    set_ends(s, t->tensor);
}

static void unlink_touch(ebb_tape *s, uint32_t touch) {
    touch_t *touches = s->touches.data, *t = &touches[touch];
    const int64_t bytes = s->bytes[t->tensor];
    const bool stays = t->next != NONE && !touches[t->next].fresh && t->prev != NONE; /* once it is taken out */
    *(t->prev != NONE ? &touches[t->prev].next : &s->first[t->tensor]) = t->next;
    *(t->next != NONE ? &touches[t->next].prev : &s->last[t->tensor]) = t->prev;
    set_ends(s, t->tensor);
    if (stays && t->fresh) { add_between(s, touches[t->prev].node, t->node, bytes); }
    if (!stays && !t->fresh && t->prev != NONE) { add_between(s, touches[t->prev].node, t->node, -bytes); }
    if (t->fresh || t->prev == NONE) { s->links.data[t->node].own -= bytes; }
}

/* ---- nodes -------------------------------------------------------------------------------------- */

/* There is room in the list for each that was made. */
static void enter_again(ebb_tape *s, uint32_t n) {
    s->nodes.data[n].again_idx = (uint32_t)s->again.n;
    s->again.data[s->again.n++] = n;
    s->again_ns += s->w->step_ns[s->nodes.data[n].action.target];
}

static void relabel(ebb_tape *s) {
    uint64_t label = GAP;
    for (uint32_t n = s->begin; n != NONE; n = s->links.data[n].next, label += GAP) {
        node_t *node = &s->nodes.data[n];
        node->label = label;
        for (uint32_t i = 0; i < node->n_touches; i++) { s->touches.data[node->first_touch + i].label = label; }
    }
    for (uint32_t t = 0; t < s->w->view.n_tensors; t++) { set_ends(s, t); }
}

static int64_t scratch_of(const ebb_tape *s, const ebb_action *action) {
    if (!ebb__action_computes(action)) { return 0; }
    const ebb_program_view *view = &s->w->view;
    const uint64_t choice = view->steps[action->target].first_choice + action->choice;
    return (int64_t)ebb_align_up(view->choices[choice].scratch_bytes, view->alignment);
}

void ebb__tape_link(ebb_tape *s, uint32_t n, uint32_t before) {
    node_t *nodes = s->nodes.data, *node = &nodes[n];
    ebb_tape_link *links = s->links.data;
    const uint32_t prev = links[before].prev;
    EBB_ASSERT(!node->is_linked && prev != NONE && node->action.kind == EBB_ACT_AGAIN);
    if (nodes[before].label - nodes[prev].label < 2) { relabel(s); }
    node->label = nodes[prev].label + (nodes[before].label - nodes[prev].label) / 2;
    node->is_linked = true;
    const uint32_t block = links[before].block;
    const int64_t through = ebb__tape_through(s, prev) - s->blocks[block].through;
    links[n] = (ebb_tape_link){scratch_of(s, &node->action), through, prev, before, block};
    s->blocks[block].is_stale = true;
    links[prev].next = links[before].prev = n;
    for (uint32_t i = 0; i < node->n_touches; i++) { link_touch(s, node->first_touch + i); }
    enter_again(s, n);
}

void ebb__tape_unlink(ebb_tape *s, uint32_t n) {
    node_t *nodes = s->nodes.data, *node = &nodes[n];
    ebb_tape_link *links = s->links.data, *link = &links[n];
    EBB_ASSERT(node->is_linked && node->action.kind == EBB_ACT_AGAIN);
    for (uint32_t i = node->n_touches; i-- > 0;) { unlink_touch(s, node->first_touch + i); }
    EBB_ASSERT(ebb__tape_through(s, n) == ebb__tape_through(s, link->prev));
    s->blocks[link->block].is_stale = true;
    links[link->prev].next = link->next;
    links[link->next].prev = link->prev;
    node->is_linked = false;
    const uint32_t last = s->again.data[--s->again.n];
    s->again.data[node->again_idx] = last;
    nodes[last].again_idx = node->again_idx;
    s->again_ns -= s->w->step_ns[node->action.target];
}

void ebb__tape_release(ebb_tape *s, uint32_t node) {
    node_t *it = &s->nodes.data[node];
    EBB_ASSERT(!it->is_linked);
    s->links.data[node].next = s->unused[it->action.target];
    s->unused[it->action.target] = node;
}

static ebb_status make_node(ebb_tape *s, const ebb_action *action, uint32_t place, uint32_t *node_out) {
    const uint32_t idx = (uint32_t)s->nodes.n;
    node_t node = {.place = place, .chain = NONE, .action = *action};
    const ebb_tape_link link = {.prev = NONE, .next = NONE};
    node.first_touch = (uint32_t)s->touches.n;
    EBB_TRY(EBB_PUSH(s->mem, &s->nodes, node));
    EBB_TRY(EBB_PUSH(s->mem, &s->links, link));
    EBB_TRY(EBB_RESERVE(s->mem, &s->again, s->nodes.n - s->again.n));
    *node_out = idx;
    return EBB_OK;
}

static ebb_status add_touch(ebb_tape *s, uint32_t node, uint32_t tensor, uint32_t mode) {
    const touch_t touch = {.node = node,
                           .prev = NONE,
                           .next = NONE,
                           .tensor = tensor,
                           .fresh = mode == EBB_WRITE,
                           .writes = (mode & EBB_WRITE) != 0};
    if (s->is_fixed[tensor]) { return EBB_OK; }
    EBB_TRY(EBB_PUSH(s->mem, &s->touches, touch));
    s->nodes.data[node].n_touches++;
    return EBB_OK;
}

static ebb_status make_step(ebb_tape *s, ebb_action_kind kind, uint32_t step_idx, uint32_t place, uint32_t *node_out) {
    const ebb_step *step = &s->w->view.steps[step_idx];
    const ebb_action action = {
        .kind = kind, .target = step_idx, .choice = ebb__choice_of(s->w->input->choice, step_idx)};
    EBB_TRY(make_node(s, &action, place, node_out));
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &s->w->view.accesses[step->first_access + i];
        EBB_TRY(add_touch(s, *node_out, access->tensor, access->mode));
    }
    return EBB_OK;
}

ebb_status ebb__tape_make_chain(ebb_tape *s, const ebb_tape_recipe *recipe, uint32_t place, uint32_t *first_out) {
    uint32_t first = NONE, before = NONE;
    for (uint64_t use = recipe->first; use <= recipe->last; use++) {
        const uint32_t step = s->w->uses.use[use].step;
        uint32_t n = s->unused[step];
        if ((s->w->uses.use[use].mode & EBB_WRITE) == 0) { continue; }
        if (n != NONE) {
            s->unused[step] = s->links.data[n].next;
        } else {
            EBB_TRY(make_step(s, EBB_ACT_AGAIN, step, place, &n));
        }
        first = first == NONE ? n : first;
        if (before != NONE) { s->nodes.data[before].chain = n; }
        s->nodes.data[n].chain = first;
        s->nodes.data[n].place = place;
        s->nodes.data[n].is_closed = n != first;
        before = n;
    }
    *first_out = first;
    return EBB_OK;
}

/* ---- reading a draft ---------------------------------------------------------------------------- */

/* A tensor that is on the device from end to end, and never copied or dropped. */
static void find_fixed(ebb_tape *s, const ebb_draft *draft) {
    for (size_t t = 0; t < s->w->view.n_tensors; t++) { s->is_fixed[t] = draft->resident[t] != 0; }
    for (size_t a = 0; a < draft->actions.n; a++) {
        const ebb_action *action = &draft->actions.data[a].action;
        if (!ebb__action_computes(action)) { s->is_fixed[action->target] = false; }
    }
}

/* Nodes are linked in order, at the end; has_copy: what each tensor holds has a copy. */
static ebb_status read_action(ebb_tape *s, const ebb_action *action, uint32_t *place, bool *has_copy, uint32_t *maker) {
    uint32_t n = NONE;
    if (!ebb__action_computes(action)) {
        const bool is_drop = action->kind == EBB_ACT_DROP;
        if (is_drop && !has_copy[action->target]) { return EBB_OK; }
        EBB_TRY(make_node(s, action, *place, &n));
        if (!is_drop) { has_copy[action->target] = true; }
        if (action->kind == EBB_ACT_IN) { maker[action->target] = NONE; }
        if (action->kind == EBB_ACT_MOVE) { return EBB_OK; }
        return add_touch(s, n, action->target, action->kind == EBB_ACT_IN ? EBB_WRITE : EBB_READ);
    }
    EBB_TRY(make_step(s, (ebb_action_kind)action->kind, action->target, *place, &n));
    s->nodes.data[n].action.choice = action->choice;
    const bool is_run = action->kind == EBB_ACT_RUN;
    const ebb_step *step = &s->w->view.steps[action->target];
    if (is_run) { s->run[*place] = n; }
    if (!is_run) { s->nodes.data[n].chain = n; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &s->w->view.accesses[step->first_access + i];
        const uint32_t t = access->tensor, before = maker[t];
        if ((access->mode & EBB_WRITE) == 0) { continue; }
        has_copy[t] = false;
        if (!is_run && access->mode == EBB_UPDATE && before != NONE) { /* it goes on with what made it */
            s->nodes.data[n].chain = s->nodes.data[before].chain;
            s->nodes.data[before].chain = n;
        }
        maker[t] = is_run ? NONE : n;
    }
    *place += is_run;
    return EBB_OK;
}

static ebb_status read_end(ebb_tape *s, const ebb_draft *draft, bool is_end) {
    const ebb_action nothing = {.kind = EBB_ACT_DROP, .target = NONE};
    const ebb_program_view *view = &s->w->view;
    uint32_t n = NONE;
    EBB_TRY(make_node(s, &nothing, is_end ? (uint32_t)view->n_steps : 0, &n));
    for (uint32_t t = 0; t < view->n_tensors; t++) {
        const bool is_there = draft->resident[t] != 0 || (is_end && view->tensors[t].kept);
        if (is_there) { EBB_TRY(add_touch(s, n, t, is_end ? EBB_READ : EBB_WRITE)); }
    }
    *(is_end ? &s->end : &s->begin) = n;
    return EBB_OK;
}

static void link_all(ebb_tape *s) {
    int64_t fixed = 0;
    for (size_t b = 0; b <= s->w->view.n_steps / EBB_TAPE_BLOCK; b++) {
        s->blocks[b] = (ebb_tape_block){.is_stale = true};
    }
    for (uint32_t t = 0; t < s->w->view.n_tensors; t++) { fixed += s->is_fixed[t] ? s->bytes[t] : 0; }
    for (uint32_t n = 0; n < s->nodes.n; n++) {
        node_t *node = &s->nodes.data[n];
        node->label = (n + 1) * GAP;
        node->is_linked = true;
        s->links.data[n] = (ebb_tape_link){.own = scratch_of(s, &node->action),
                                           .through = fixed,
                                           .block = node->place / EBB_TAPE_BLOCK,
                                           .prev = n > 0 ? n - 1 : NONE,
                                           .next = n + 1 < s->nodes.n ? n + 1 : NONE};
    }
    for (uint32_t n = 0; n < s->nodes.n; n++) {
        const node_t *node = &s->nodes.data[n];
        for (uint32_t i = 0; i < node->n_touches; i++) { link_touch(s, node->first_touch + i); }
        if (node->action.kind == EBB_ACT_AGAIN) { enter_again(s, n); }
    }
}

/* Between the first and the last node of a chain its tensor is not what it is at the last. */
static void close_chains(ebb_tape *s) {
    for (uint32_t n = 0; n < s->nodes.n; n++) {
        const node_t *node = &s->nodes.data[n];
        if (node->chain == NONE || node->chain <= n) { continue; } /* chains are in order */
        for (uint32_t between = n + 1; between <= node->chain; between++) { s->nodes.data[between].is_closed = true; }
    }
}

ebb_status ebb__tape_read(ebb_tape *s, const ebb_draft *draft) {
    const size_t n_tensors = s->w->view.n_tensors;
    uint32_t place = 0;
    bool *has_copy = ebb__calloc(s->mem, n_tensors, sizeof *has_copy);
    uint32_t *maker = ebb__alloc(s->mem, n_tensors, sizeof *maker);
    ebb_status st = has_copy != NULL && maker != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    s->nodes.n = s->links.n = s->touches.n = s->again.n = 0;
    s->again_ns = 0;
    for (uint32_t t = 0; t < n_tensors; t++) {
        s->first[t] = s->last[t] = NONE;
        set_ends(s, t);
    }
    for (size_t i = 0; i < s->w->view.n_steps; i++) { s->unused[i] = NONE; }
    for (size_t t = 0; st == EBB_OK && t < n_tensors; t++) { maker[t] = NONE; }
    find_fixed(s, draft);
    if (st == EBB_OK) { st = read_end(s, draft, false); }
    for (size_t a = 0; st == EBB_OK && a < draft->actions.n; a++) {
        st = read_action(s, &draft->actions.data[a].action, &place, has_copy, maker);
    }
    if (st == EBB_OK) { st = read_end(s, draft, true); }
    if (st == EBB_OK) {
        link_all(s);
        close_chains(s);
    }
    ebb__free(s->mem, has_copy);
    ebb__free(s->mem, maker);
    return st;
}

/* ---- writing one -------------------------------------------------------------------------------- */

/* Drops after a node; index[t]: after the action that filled or dropped a tensor. */
static ebb_status write_drops(const ebb_tape *s, const node_t *node, ebb_draft *draft, uint64_t *index) {
    const bool is_drop = node->action.kind == EBB_ACT_DROP && node->action.target != NONE;
    for (uint32_t i = 0; i < node->n_touches; i++) {
        const touch_t *touch = &s->touches.data[node->first_touch + i];
        const bool leaves = !ebb__tape_stays(s, node->first_touch + i) && node != &s->nodes.data[s->end];
        if (leaves && !is_drop) {
            EBB_TRY(ebb__draft_tensor(draft, EBB_ACT_DROP, touch->tensor, EBB_DEVICE, EBB_DRAFT_FIXED));
        }
        if (leaves || touch->writes) { index[touch->tensor] = draft->actions.n; }
    }
    return EBB_OK;
}

static ebb_status write_node(const ebb_tape *s, const node_t *node, ebb_draft *draft, uint64_t *index) {
    const ebb_action *action = &node->action;
    const bool is_copy = action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN;
    const bool is_end = action->kind == EBB_ACT_DROP && action->target == NONE;
    if (!is_end) { EBB_TRY(ebb__draft_add(draft, action, is_copy ? index[action->target] : EBB_DRAFT_FIXED)); }
    return write_drops(s, node, draft, index);
}

ebb_status ebb__tape_write(const ebb_tape *s, ebb_draft *draft) {
    uint64_t *index = ebb__calloc(s->mem, s->w->view.n_tensors, sizeof *index);
    ebb_status st = index != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    draft->actions.n = draft->absent.n = 0;
    for (uint32_t n = s->begin; st == EBB_OK && n != NONE; n = s->links.data[n].next) {
        st = write_node(s, &s->nodes.data[n], draft, index);
    }
    ebb__free(s->mem, index);
    return st;
}

/* ---- setting up --------------------------------------------------------------------------------- */

ebb_status ebb__tape_init(ebb_tape *s, const ebb_best_walk *w) {
    const size_t n_tensors = w->view.n_tensors;
    *s = (ebb_tape){.w = w, .mem = w->input->mem};
    ebb__bump_init(&s->bump, s->mem);
    s->first = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->first);
    s->last = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->last);
    s->first_label = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->first_label);
    s->last_label = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->last_label);
    s->is_fixed = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->is_fixed);
    s->bytes = ebb__bump_alloc(&s->bump, n_tensors, sizeof *s->bytes);
    s->unused = ebb__bump_alloc(&s->bump, w->view.n_steps, sizeof *s->unused);
    s->blocks = ebb__bump_alloc(&s->bump, w->view.n_steps / EBB_TAPE_BLOCK + 1, sizeof *s->blocks);
    s->run = ebb__bump_alloc(&s->bump, w->view.n_steps, sizeof *s->run);
    s->recipes = ebb__bump_alloc(&s->bump, w->view.n_accesses, sizeof *s->recipes);
    if (s->first == NULL || s->last == NULL || s->is_fixed == NULL || s->bytes == NULL || s->unused == NULL ||
        s->run == NULL || s->blocks == NULL || s->recipes == NULL || s->first_label == NULL || s->last_label == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (uint32_t t = 0; t < n_tensors; t++) {
        s->bytes[t] = (int64_t)w->state[t].bytes;
        for (uint64_t use = w->uses.start[t]; use < w->uses.start[t + 1]; use++) {
            s->recipes[use] = find_recipe(w, t, use);
        }
    }
    return EBB_OK;
}

void ebb__tape_fini(ebb_tape *s) {
    ebb__bump_fini(&s->bump);
    EBB_VEC_FINI(s->mem, &s->nodes);
    EBB_VEC_FINI(s->mem, &s->links);
    EBB_VEC_FINI(s->mem, &s->touches);
    EBB_VEC_FINI(s->mem, &s->again);
}

/* ---- checks ------------------------------------------------------------------------------------- */

bool ebb__tape_is_valid(const ebb_tape *s) {
    int64_t through = 0;
    for (uint32_t t = 0; t < s->w->view.n_tensors; t++) { through += s->is_fixed[t] ? s->bytes[t] : 0; }
    for (uint32_t n = s->begin; n != NONE; n = s->links.data[n].next) {
        const node_t *node = &s->nodes.data[n];
        const ebb_tape_link *link = &s->links.data[n];
        int64_t own = scratch_of(s, &node->action);
        for (uint32_t i = 0; i < node->n_touches; i++) {
            const touch_t *touch = &s->touches.data[node->first_touch + i];
            const bool stayed = !touch->fresh, stays = ebb__tape_stays(s, node->first_touch + i);
            if (touch->label != node->label || (touch->prev == NONE && !touch->fresh)) { return false; }
            own += stayed ? 0 : s->bytes[touch->tensor];
            through += (stays - stayed) * s->bytes[touch->tensor];
        }
        if (own != link->own || through != ebb__tape_through(s, n)) { return false; }
        const ebb_tape_block *block = &s->blocks[link->block];
        if (n != s->begin && !block->is_stale && block->most < ebb__tape_load(s, n)) { return false; }
        if (link->next != NONE && s->nodes.data[link->next].label <= node->label) { return false; }
    }
    return true;
}
