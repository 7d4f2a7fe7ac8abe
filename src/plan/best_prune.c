/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputations that turn out to be needless. A walk decides what leaves without knowing all that comes after, so when
 * it is over some of what it computes again could as well have stayed: there was room. Each step that is run again is
 * looked at, the dearest first. It goes if what it makes can stay from where it was dropped, or is not used; then what
 * was computed again only for it goes too, and leaves room for others.
 *
 * Drops of what has no copy are where the last action on their tensor is (best_walk.c moves them there), so taking an
 * action away may free bytes earlier.
 */
#include "plan/best.h"

#define NONE EBB_BEST_NONE

/* An action on a tensor. */
typedef struct touch {
    uint32_t action;
    bool writes, updates, drops, copies; /* writes: all of it, whatever was there */
    bool copied;                         /* after it the content has a copy, so that its drop does not move */
} touch;

typedef struct pruner {
    ebb_best_walk *w;
    ebb_draft_action *actions;
    size_t n;
    uint32_t *start; /* [n_tensors + 1] */
    touch *touches;
    bool *deleted;     /* [n] */
    bool *present;     /* [n_tensors]: while the load is measured; before that, whether there is a copy */
    bool *updated;     /* [n_tensors]: some step updates it */
    int64_t *load;     /* [n]: at each action */
    uint32_t *drop_at; /* [n]: where a drop is by now: it goes up when the action before it goes */
} pruner;

static bool is_again(const pruner *p, uint32_t a) {
    return p->actions[a].action.kind == EBB_ACT_AGAIN;
}

static int64_t bytes_of(const pruner *p, uint32_t t) {
    return (int64_t)p->w->state[t].bytes;
}

/* ---- setting up --------------------------------------------------------------------------------- */

static uint32_t count_touches(const pruner *p, size_t a) {
    const ebb_action *action = &p->actions[a].action;
    return ebb__action_computes(action) ? p->w->view.steps[action->target].n_accesses : 1;
}

/* The i-th touch of an action, and its tensor. */
static uint32_t get_touch(const pruner *p, size_t a, uint32_t i, touch *touch_out) {
    const ebb_action *action = &p->actions[a].action;
    *touch_out = (touch){.action = (uint32_t)a,
                         .drops = action->kind == EBB_ACT_DROP,
                         .copies = action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN};
    if (!ebb__action_computes(action)) { return action->target; }
    const ebb_access *access = &p->w->view.accesses[p->w->view.steps[action->target].first_access + i];
    touch_out->updates = access->mode == EBB_UPDATE;
    touch_out->writes = access->mode == EBB_WRITE;
    return access->tensor;
}

static void list_touches(pruner *p) {
    const size_t n_tensors = p->w->view.n_tensors;
    touch one;
    memset(p->start, 0, (n_tensors + 1) * sizeof *p->start);
    for (size_t a = 0; a < p->n; a++) {
        for (uint32_t i = 0; i < count_touches(p, a); i++) { p->start[get_touch(p, a, i, &one) + 1]++; }
    }
    for (size_t t = 0; t < n_tensors; t++) { p->start[t + 1] += p->start[t]; }
    for (size_t a = 0; a < p->n; a++) {
        for (uint32_t i = 0; i < count_touches(p, a); i++) {
            const uint32_t t = get_touch(p, a, i, &one);
            p->updated[t] = p->updated[t] || one.updates;
            p->present[t] = one.copies || (p->present[t] && !one.writes && !one.updates);
            one.copied = p->present[t];
            p->touches[p->start[t]++] = one;
        }
    }
    for (size_t t = n_tensors; t > 0; t--) { p->start[t] = p->start[t - 1]; }
    p->start[0] = 0;
}

static void measure(pruner *p) {
    const ebb_program_view *view = &p->w->view;
    int64_t load = 0;
    for (uint32_t t = 0; t < view->n_tensors; t++) {
        p->present[t] = p->w->draft->resident[t] != 0;
        load += p->present[t] ? bytes_of(p, t) : 0;
    }
    for (size_t a = 0; a < p->n; a++) {
        const ebb_action *action = &p->actions[a].action;
        int64_t also = 0;
        if (ebb__action_computes(action)) {
            const ebb_step *step = &view->steps[action->target];
            also = (int64_t)ebb_align_up(view->choices[step->first_choice + action->choice].scratch_bytes,
                                         view->alignment);
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                const uint32_t t = view->accesses[step->first_access + i].tensor;
                load += p->present[t] ? 0 : bytes_of(p, t);
                p->present[t] = true;
            }
        } else if (action->kind == EBB_ACT_IN) {
            load += bytes_of(p, action->target);
            p->present[action->target] = true;
        } else if (action->kind == EBB_ACT_DROP) {
            load -= bytes_of(p, action->target);
            p->present[action->target] = false;
        }
        p->load[a] = load + also;
    }
}

/* ---- one step that is run again ----------------------------------------------------------------- */

/* The place of an action among the touches of a tensor. */
static uint32_t find_touch(const pruner *p, uint32_t t, uint32_t a) {
    uint32_t low = p->start[t];
    for (uint32_t high = p->start[t + 1]; high - low > 1;) {
        const uint32_t middle = low + (high - low) / 2;
        if (p->touches[middle].action <= a) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint32_t touch_before(const pruner *p, uint32_t t, uint32_t at) {
    while (at > p->start[t]) {
        at--;
        if (!p->deleted[p->touches[at].action]) { return at; }
    }
    return NONE;
}

static uint32_t touch_after(const pruner *p, uint32_t t, uint32_t at) {
    for (at++; at < p->start[t + 1]; at++) {
        if (!p->deleted[p->touches[at].action]) { return at; }
    }
    return NONE;
}

static void add_load(pruner *p, size_t first, size_t end, int64_t bytes) {
    for (size_t a = first; a < end; a++) { p->load[a] += bytes; }
}

static bool fits(const pruner *p, size_t first, size_t end, int64_t bytes) {
    const int64_t limit = (int64_t)p->w->limit_bytes;
    for (size_t a = first; a < end; a++) {
        if (p->load[a] + bytes > limit) { return false; }
    }
    return true;
}

/* Nothing uses what the action at hand makes of a tensor, whose next touch this is. */
static bool is_unused(const touch *after) {
    return after->drops || after->writes;
}

/* Whether a tensor that the action a writes can do without it, but for the room. */
static bool can_spare(const pruner *p, uint32_t a, uint32_t t) {
    const uint32_t at = find_touch(p, t, a), before = touch_before(p, t, at), after = touch_after(p, t, at);
    if (p->updated[t] || before == NONE || after == NONE) { return false; }
    if (!p->touches[before].drops || is_unused(&p->touches[after])) { return true; }
    const uint32_t made = touch_before(p, t, before);
    return made != NONE && !p->touches[made].copies; /* other actions rely on a copy */
}

static void spare_output(pruner *p, uint32_t a, uint32_t t) {
    const uint32_t at = find_touch(p, t, a), before = touch_before(p, t, at), after = touch_after(p, t, at);
    const uint32_t drop = p->touches[before].action, next = p->touches[after].action;
    if (!p->touches[before].drops) { return; } /* it is there anyway */
    if (!is_unused(&p->touches[after])) {
        p->deleted[drop] = true;
        add_load(p, p->drop_at[drop], a, bytes_of(p, t));
        return;
    }
    p->deleted[next] = p->deleted[next] || p->touches[after].drops;
    add_load(p, a, p->drop_at[next], -bytes_of(p, t));
}

/* A tensor that it read is free from its touch before on, if this was the last one. */
static void spare_input(pruner *p, uint32_t a, uint32_t t) {
    const uint32_t at = find_touch(p, t, a), before = touch_before(p, t, at), after = touch_after(p, t, at);
    if (before == NONE || after == NONE || !p->touches[after].drops || p->touches[after].copied) { return; }
    uint32_t *drop_at = &p->drop_at[p->touches[after].action];
    add_load(p, p->touches[before].action + 1, *drop_at, -bytes_of(p, t));
    *drop_at = p->touches[before].action + 1;
}

/* Whether all that it writes can be spared. Tensors that stay are checked together, from the earliest drop. */
static bool may_go(const pruner *p, uint32_t a, const ebb_access *accesses, uint32_t n_accesses) {
    uint32_t first_drop = a;
    int64_t bytes = 0;
    for (uint32_t i = 0; i < n_accesses; i++) {
        const uint32_t t = accesses[i].tensor, before = touch_before(p, t, find_touch(p, t, a));
        if (accesses[i].mode == EBB_UPDATE) { return false; }
        if (accesses[i].mode != EBB_WRITE) { continue; }
        if (!can_spare(p, a, t)) { return false; }
        if (!p->touches[before].drops) { continue; }
        const uint32_t drop_at = p->drop_at[p->touches[before].action];
        first_drop = drop_at < first_drop ? drop_at : first_drop;
        bytes += bytes_of(p, t);
    }
    return fits(p, first_drop, a, bytes);
}

static bool take_away(pruner *p, uint32_t a) {
    const ebb_step *step = &p->w->view.steps[p->actions[a].action.target];
    const ebb_access *accesses = &p->w->view.accesses[step->first_access];
    if (!may_go(p, a, accesses, step->n_accesses)) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (accesses[i].mode == EBB_WRITE) { spare_output(p, a, accesses[i].tensor); }
    }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        if (accesses[i].mode == EBB_READ) { spare_input(p, a, accesses[i].tensor); }
    }
    p->deleted[a] = true;
    return true;
}

/* ---- all of them -------------------------------------------------------------------------------- */

static bool go_through(pruner *p, const uint32_t *order, size_t n_order) {
    bool any = false;
    for (size_t i = 0; i < n_order; i++) {
        if (!p->deleted[order[i]] && take_away(p, order[i])) { any = true; }
    }
    return any;
}

/* Actions that stay close up; bounds follow. */
static void close_up(pruner *p, uint32_t *place) {
    size_t n = 0;
    for (size_t a = 0; a < p->n; a++) {
        place[a] = (uint32_t)n;
        if (p->deleted[a]) { continue; }
        p->actions[n] = p->actions[a];
        uint64_t *bound = &p->actions[n].bound;
        if (*bound != EBB_DRAFT_FIXED && *bound < p->n) { *bound = *bound <= a ? place[*bound] : n; }
        n++;
    }
    p->w->draft->actions.n = n;
}

static ebb_status make_pruner(pruner *p, ebb_bump *bump) {
    const size_t n_tensors = p->w->view.n_tensors;
    size_t n_touches = 0;
    for (size_t a = 0; a < p->n; a++) { n_touches += count_touches(p, a); }
    p->start = ebb__bump_alloc(bump, n_tensors + 1, sizeof *p->start);
    p->touches = ebb__bump_alloc(bump, n_touches, sizeof *p->touches);
    p->deleted = ebb__bump_alloc(bump, p->n, sizeof *p->deleted);
    p->present = ebb__bump_alloc(bump, n_tensors, sizeof *p->present);
    p->updated = ebb__bump_alloc(bump, n_tensors, sizeof *p->updated);
    p->load = ebb__bump_alloc(bump, p->n, sizeof *p->load);
    p->drop_at = ebb__bump_alloc(bump, p->n, sizeof *p->drop_at);
    if (p->start == NULL || p->touches == NULL || p->deleted == NULL || p->present == NULL || p->updated == NULL ||
        p->load == NULL || p->drop_at == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (uint32_t a = 0; a < p->n; a++) { p->drop_at[a] = a; }
    memset(p->deleted, 0, p->n * sizeof *p->deleted);
    memset(p->present, 0, n_tensors * sizeof *p->present);
    memset(p->updated, 0, n_tensors * sizeof *p->updated);
    return EBB_OK;
}

static ebb_status prune(pruner *p, ebb_bump *bump) {
    EBB_TRY(make_pruner(p, bump));
    list_touches(p);
    measure(p);
    size_t n_again = 0;
    uint32_t *order = ebb__bump_alloc(bump, p->n, sizeof *order);
    uint64_t *key = ebb__bump_alloc(bump, p->n, sizeof *key);
    if (order == NULL || key == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t a = 0; a < p->n; a++) {
        if (!is_again(p, a)) { continue; }
        key[a] = UINT64_MAX - (uint64_t)p->w->step_ns[p->actions[a].action.target];
        order[n_again++] = a;
    }
    EBB_TRY(ebb__sort_by_key(bump->mem, order, n_again, key));
    bool any = false;
    while (go_through(p, order, n_again)) { any = true; }
    if (any) { close_up(p, order); }
    return EBB_OK;
}

ebb_status ebb__best_prune(ebb_best_walk *w) {
    pruner p = {.w = w, .actions = w->draft->actions.data, .n = w->draft->actions.n};
    ebb_bump bump;
    ebb__bump_init(&bump, w->input->mem);
    const ebb_status st = prune(&p, &bump);
    ebb__bump_fini(&bump);
    return st;
}
