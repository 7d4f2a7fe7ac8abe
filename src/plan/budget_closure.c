/* SPDX-License-Identifier: Apache-2.0
 *
 * Can a tensor be made again later, and what would it take? The closure of steps that would have to run, from the
 * step that wrote the tensor back to tensors that are on the device or have a copy (the leaves).
 *
 * A step can be run again at the horizon only if what it reads is then at the version that it read. So a tensor
 * counts only at its current version, and only if nothing writes it before the horizon. The one exception is the
 * chain of a tensor that is itself being made: the write that began it and the updates after it, run in order.
 * A step that also writes something else is run again only if that too is still at this version at the horizon.
 *
 * The search ends as soon as it is too dear or too long, so it costs no more than the decision is worth.
 */
#include "plan/budget.h"

#define MAX_STEPS 96 /* of one closure, and of what hangs together through leaves */

uint64_t ebb__budget_next_write(const ebb_budget_walk *w, uint32_t t) {
    uint64_t use = w->state[t].use;
    EBB_ASSERT(use >= w->uses.start[t] && use <= w->uses.start[t + 1]);
    return use < w->uses.start[t + 1] ? w->next_write[use] : EBB_BUDGET_NEVER;
}

static bool holds(const ebb_budget_walk *w, uint32_t t, uint32_t version) {
    return w->state[t].version == version && ebb__budget_next_write(w, t) >= w->closure.horizon;
}

static bool add_tensor(ebb_budget_walk *w, uint32_t t);

static bool add_cost(ebb_budget_closure *c, uint64_t cost_ns) {
    if (!ebb_add_u64(c->cost_ns, cost_ns, &c->cost_ns)) { return false; }
    return c->cost_ns < c->limit_ns;
}

static bool add_input(ebb_budget_walk *w, uint32_t t) {
    ebb_budget_closure *c = &w->closure;
    const ebb_budget_tensor *state = &w->state[t];
    if (w->tensor_mark[t] == w->mark) { return true; }
    if (!state->present && !state->copied) { return add_tensor(w, t); }
    w->tensor_mark[t] = w->mark;
    if (c->n_leaves == EBB_BUDGET_MAX_LEAVES) { return false; }
    c->leaves[c->n_leaves++] = t;
    if (state->present) { return true; }
    return add_cost(c, ebb_machine_copy_time_ns(w->input->machine, state->tier, EBB_DEVICE, state->bytes));
}

/* own: the tensor whose chain the step belongs to. */
static bool add_step(ebb_budget_walk *w, uint32_t step_idx, uint32_t own) {
    ebb_budget_closure *c = &w->closure;
    const ebb_step *step = &w->view.steps[step_idx];
    EBB_ASSERT(step_idx < w->view.n_steps && w->step_mark[step_idx] <= w->mark);
    if (w->step_mark[step_idx] == w->mark) { return true; }
    w->step_mark[step_idx] = w->mark;
    if (step->repeat != EBB_REPEAT_EXACT) { return false; }
    if (++c->n_steps > MAX_STEPS || !add_cost(c, w->step_ns[step_idx])) { return false; }
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        uint64_t at = step->first_access + i;
        uint32_t t = w->view.accesses[at].tensor;
        if (t == own) { continue; }
        if (w->view.accesses[at].mode == EBB_UPDATE) { return false; }
        bool reads = w->view.accesses[at].mode == EBB_READ;
        if (!holds(w, t, reads ? w->versions.read[at] : w->versions.after[at])) { return false; }
        if (reads && !add_input(w, t)) { return false; }
    }
    return true;
}

/* The chain that makes t's current version. */
static bool add_tensor(ebb_budget_walk *w, uint32_t t) {
    uint64_t use = w->state[t].made;
    if (use == EBB_BUDGET_NEVER || ebb__budget_next_write(w, t) < w->closure.horizon) { return false; }
    w->tensor_mark[t] = w->mark;
    EBB_ASSERT(use >= w->uses.start[t] && use < w->state[t].use + 1);
    for (;; use--) {
        const ebb_use *made = &w->uses.use[use];
        if ((made->mode & EBB_WRITE) != 0 && !add_step(w, made->step, t)) { return false; }
        if (made->mode == EBB_WRITE) { return true; }
        if (use == w->uses.start[t]) { return false; } /* the chain begins before the iteration */
    }
}

bool ebb__budget_find_closure(ebb_budget_walk *w, uint32_t t, uint64_t horizon, uint64_t limit_ns) {
    ebb_budget_closure *c = &w->closure;
    c->horizon = horizon;
    c->limit_ns = limit_ns;
    c->cost_ns = 0;
    c->n_steps = c->n_leaves = 0;
    EBB_ASSERT(horizon >= w->step && w->state[t].present && w->mark < UINT32_MAX);
    w->mark++;
    if (!add_tensor(w, t) || w->state[t].burden + c->n_steps > MAX_STEPS) { return false; }
    EBB_ASSERT(c->n_steps > 0 && c->n_steps <= MAX_STEPS && c->n_leaves <= EBB_BUDGET_MAX_LEAVES);
    EBB_ASSERT(c->cost_ns < limit_ns);
    return true;
}
