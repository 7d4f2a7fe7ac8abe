/* SPDX-License-Identifier: Apache-2.0
 *
 * The time that a draft takes, before it is placed: a quick stand-in for the simulator (simulate.c), which needs
 * places. The device's memory is one heap here: bytes that were dropped are free for anyone as soon as their copy out
 * has ended. Tensors are there or absent as a whole. The actions are gone through once, in order, with a clock of each
 * engine. What copies slow computing is added at the end, as if all of them went on while something is computed.
 *
 * The same run says where the bytes of each drop are free, and a draft can be changed so that it drops them only there
 * (ebb__best_settle).
 */
#include "plan/best.h"

#include <math.h>

typedef struct content {
    double ready_ns;  /* when it was made or has arrived */
    double copied_ns; /* when its copy out has ended */
    bool present;
} content;

typedef struct timing {
    const ebb_policy_input *input;
    const ebb_best_drag *drag;
    const ebb_draft *draft;
    ebb_program_view view;
    content *tensor;
    ebb_best_pending *pending;
    uint64_t *drop; /* the actions of those that are pending */
    size_t n_pending;
    uint64_t pending_bytes, load, limit_bytes;
    double engine_ns[EBB_MAX_ENGINES], busy_ns[EBB_MAX_ENGINES];
    double slowed_ns;  /* by copies */
    uint64_t at;       /* the action at hand */
    uint64_t *settled; /* [n actions]: of a drop, the action before which its bytes are free; NULL: not wanted */
} timing;

static uint64_t rounded(const timing *x, uint32_t t) {
    return ebb_align_up(x->view.tensors[t].size_bytes, x->view.alignment);
}

/* The bytes of a pending drop are free before the action at hand. */
static void take_pending(timing *x, size_t i) {
    if (x->settled != NULL) { x->settled[x->drop[i]] = x->at; }
    x->pending_bytes -= x->pending[i].bytes;
    x->pending[i] = x->pending[--x->n_pending];
    x->drop[i] = x->drop[x->n_pending];
}

/* The copies that have ended by now. They would not be waited for later either, so the time stays the same. */
static void settle_ended(timing *x, double now_ns) {
    if (x->settled == NULL) { return; }
    for (size_t i = x->n_pending; i-- > 0;) {
        if (x->pending[i].end_ns <= now_ns) { take_pending(x, i); }
    }
}

/* A tensor whose bytes are wanted again; what brings it waits for its copy out in any case. */
static void settle_tensor(timing *x, uint32_t tensor) {
    if (x->settled == NULL) { return; }
    for (size_t i = x->n_pending; i-- > 0;) {
        if (x->draft->actions.data[x->drop[i]].action.target == tensor) { take_pending(x, i); }
    }
}

/* When what is pending leaves room for the load. */
static double wait_for_room(timing *x, double now_ns) {
    const uint64_t room = x->limit_bytes - ebb_min_u64(x->load, x->limit_bytes);
    while (x->pending_bytes > room) {
        size_t first = 0;
        for (size_t i = 1; i < x->n_pending; i++) {
            if (x->pending[i].end_ns < x->pending[first].end_ns) { first = i; }
        }
        now_ns = fmax(now_ns, x->pending[first].end_ns);
        take_pending(x, first);
    }
    return now_ns;
}

static void compute(timing *x, const ebb_action *action) {
    const ebb_step *step = &x->view.steps[action->target];
    const ebb_choice *choice = &x->view.choices[step->first_choice + action->choice];
    const uint64_t scratch = ebb_align_up(choice->scratch_bytes, x->view.alignment);
    double start_ns = x->engine_ns[EBB_COMPUTE];
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const uint32_t t = x->view.accesses[step->first_access + i].tensor;
        if (x->tensor[t].present) { start_ns = fmax(start_ns, x->tensor[t].ready_ns); }
        if (x->tensor[t].present) { continue; }
        settle_tensor(x, t);
        x->load += rounded(x, t);
        x->tensor[t].present = true;
    }
    x->load += scratch;
    start_ns = wait_for_room(x, start_ns);
    settle_ended(x, start_ns);
    x->load -= scratch;
    x->engine_ns[EBB_COMPUTE] = start_ns + (double)ebb_machine_step_time_ns(x->input->machine, choice);
    for (uint32_t i = 0; i < step->n_accesses; i++) {
        const ebb_access *access = &x->view.accesses[step->first_access + i];
        if ((access->mode & EBB_WRITE) != 0) {
            x->tensor[access->tensor] =
                (content){.ready_ns = x->engine_ns[EBB_COMPUTE], .copied_ns = 0, .present = true};
        }
    }
}

static void copy(timing *x, const ebb_action *action) {
    content *c = &x->tensor[action->target];
    const bool in = action->kind == EBB_ACT_IN;
    const uint8_t engine = ebb__topology_engine_of(ebb_machine_topology(x->input->machine), action);
    const double takes_ns = (double)ebb_machine_copy_time_ns(
        x->input->machine, in ? action->tier : EBB_DEVICE, in ? EBB_DEVICE : action->tier, rounded(x, action->target));
    double start_ns = fmax(x->engine_ns[engine], in ? c->copied_ns : c->ready_ns);
    if (in) {
        settle_tensor(x, action->target);
        x->load += rounded(x, action->target);
        start_ns = wait_for_room(x, fmax(start_ns, x->engine_ns[EBB_COMPUTE]));
    }
    x->engine_ns[engine] = start_ns + takes_ns;
    x->busy_ns[engine] += takes_ns;
    x->slowed_ns += takes_ns * x->drag->of[action->tier];
    if (in) {
        *c = (content){.ready_ns = start_ns + takes_ns, .copied_ns = c->copied_ns, .present = true};
    } else {
        c->copied_ns = start_ns + takes_ns;
    }
}

static void drop(timing *x, uint32_t t) {
    EBB_ASSERT(x->tensor[t].present && x->load >= rounded(x, t));
    x->load -= rounded(x, t);
    x->tensor[t].present = false;
    if (x->tensor[t].copied_ns <= x->engine_ns[EBB_COMPUTE]) { return; }
    x->drop[x->n_pending] = x->at;
    x->pending[x->n_pending++] = (ebb_best_pending){.end_ns = x->tensor[t].copied_ns, .bytes = rounded(x, t)};
    x->pending_bytes += rounded(x, t);
}

static double run(timing *x) {
    EBB_ASSERT(x->draft->absent.n == 0);
    for (uint32_t t = 0; t < x->view.n_tensors; t++) {
        x->tensor[t] = (content){.present = x->draft->resident[t] != 0};
        if (x->tensor[t].present) { x->load += rounded(x, t); }
    }
    for (size_t a = 0; a < x->draft->actions.n; a++) {
        const ebb_action *action = &x->draft->actions.data[a].action;
        x->at = a;
        EBB_ASSERT(ebb__action_computes(action) || action->size_bytes == EBB_WHOLE);
        switch (action->kind) {
        case EBB_ACT_RUN:
        case EBB_ACT_AGAIN: compute(x, action); break;
        case EBB_ACT_DROP: drop(x, action->target); break;
        default: copy(x, action); break;
        }
    }
    double time_ns = x->engine_ns[EBB_COMPUTE] + x->slowed_ns;
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) { time_ns = fmax(time_ns, x->busy_ns[e]); }
    return time_ns;
}

void ebb__best_find_drag(const ebb_policy_input *input, ebb_best_drag *drag) {
    const ebb_program_view view = ebb__plan_view(input->program);
    const uint32_t n_tiers = ebb_machine_topology(input->machine)->n_tiers;
    double kind_ns[EBB_N_STEP_KINDS] = {0};
    *drag = (ebb_best_drag){{0}};
    for (size_t s = 0; s < view.n_steps; s++) {
        const ebb_choice *choice = &view.choices[view.steps[s].first_choice + ebb__choice_of(input->choice, s)];
        const ebb_step_kind kind = ebb_machine_step_kind(input->machine, choice);
        kind_ns[kind] += (double)ebb_machine_step_time_ns(input->machine, choice);
    }
    for (uint32_t t = 1; t < n_tiers; t++) {
        ebb_link link;
        double slowed_ns = 0, all_ns = 1;
        if (!ebb_machine_link(input->machine, EBB_DEVICE, t, &link)) { continue; }
        for (int k = 0; k < EBB_N_STEP_KINDS; k++) {
            slowed_ns += kind_ns[k] * (1 - link.work_rate[k]) / link.copy_rate[k];
            all_ns += kind_ns[k];
        }
        drag->of[t] = slowed_ns / all_ns;
    }
}

/* settled may be NULL. */
static ebb_status time_draft(const ebb_policy_input *input, const ebb_best_drag *drag, const ebb_draft *draft,
                             uint64_t limit_bytes, uint64_t *settled, double *time_ns_out) {
    timing x = {.input = input, .drag = drag, .draft = draft, .limit_bytes = limit_bytes, .settled = settled};
    x.view = ebb__plan_view(input->program);
    x.tensor = ebb__alloc(input->mem, x.view.n_tensors, sizeof *x.tensor);
    x.pending = ebb__alloc(input->mem, draft->actions.n + 1, sizeof *x.pending);
    x.drop = ebb__alloc(input->mem, draft->actions.n + 1, sizeof *x.drop);
    const ebb_status st = x.tensor != NULL && x.pending != NULL && x.drop != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { *time_ns_out = run(&x); }
    ebb__free(input->mem, x.tensor);
    ebb__free(input->mem, x.pending);
    ebb__free(input->mem, x.drop);
    return st;
}

ebb_status ebb__best_time(const ebb_policy_input *input, const ebb_best_drag *drag, const ebb_draft *draft,
                          double *time_ns_out) {
    return time_draft(input, drag, draft, input->limit_bytes, NULL, time_ns_out);
}

ebb_status ebb__best_settle(const ebb_policy_input *input, const ebb_best_drag *drag, uint64_t limit_bytes,
                            ebb_draft *draft) {
    const size_t n = draft->actions.n;
    double time_ns = 0;
    uint64_t *settled = ebb__alloc(input->mem, n, sizeof *settled);
    ebb_status st = settled != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t a = 0; st == EBB_OK && a < n; a++) { settled[a] = a; }
    if (st == EBB_OK) { st = time_draft(input, drag, draft, limit_bytes, settled, &time_ns); }
    if (st == EBB_OK) { st = ebb__draft_reorder(draft, settled); }
    ebb__free(input->mem, settled);
    return st;
}
