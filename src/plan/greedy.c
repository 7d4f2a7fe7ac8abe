/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms chosen as SuperNeurons chooses convolution workspaces (Wang et al., PPoPP 2018, section 3.5): tensors come
 * first. The plan is that of the least scratch. At each step of it the bytes of the budget that are free then decide:
 * the fastest choice whose scratch fits into them is taken. Nothing moves to make room, and no step is weighed against
 * another.
 *
 * The free bytes are those of the load. Where the placer cannot use all of them, less is given out in the next round;
 * the last round gives out nothing, which is the plan itself.
 */
#include "plan/maker.h"

#define MAX_ROUNDS 5

typedef struct greedy {
    ebb_maker *m;
    ebb_program_view view;
    ebb_bump bump;
    uint64_t *room;   /* [n_steps]: bytes that are free whenever it runs */
    uint32_t *choice; /* [n_steps] */
} greedy;

static const ebb_choice *choice_at(const greedy *g, size_t step, uint32_t choice) {
    return &g->view.choices[g->view.steps[step].first_choice + choice];
}

static ebb_status find_room(greedy *g, const ebb_plan *plan) {
    const uint64_t budget = g->m->options->budget_bytes;
    ebb_load load;
    uint64_t there = 0;
    EBB_TRY(ebb__load_init(&load, g->m->mem, plan->actions.n));
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        if (stay->tensor == EBB_SCRATCH) { continue; }
        ebb__load_add(&load, stay->first, stay->last, ebb_align_up(stay->size_bytes, g->view.alignment));
    }
    for (size_t s = 0; s < g->view.n_steps; s++) { g->room[s] = UINT64_MAX; }
    for (size_t a = 0; a < plan->actions.n; a++) {
        const ebb_action *action = &plan->actions.data[a];
        there += load.change[a];
        if (!ebb__action_computes(action)) { continue; }
        g->room[action->target] = ebb_min_u64(g->room[action->target], budget - ebb_min_u64(budget, there));
    }
    ebb__load_fini(&load);
    return EBB_OK;
}

/* A plan's choices are the least; these are faster ones for which there is room. */
static void choose(greedy *g, const uint32_t *least, uint64_t held_back_bytes) {
    for (size_t s = 0; s < g->view.n_steps; s++) {
        const uint64_t room = g->room[s] - ebb_min_u64(g->room[s], held_back_bytes);
        uint64_t best_ns = ebb_machine_step_time_ns(g->m->machine, choice_at(g, s, least[s]));
        g->choice[s] = least[s];
        for (uint32_t c = 0; c < g->view.steps[s].n_choices; c++) {
            const ebb_choice *it = choice_at(g, s, c);
            const uint64_t ns = ebb_machine_step_time_ns(g->m->machine, it);
            if (ns >= best_ns || ebb_align_up(it->scratch_bytes, g->view.alignment) > room) { continue; }
            best_ns = ns;
            g->choice[s] = c;
        }
    }
}

/* EBB_E_NO_FIT without a message: it cannot be placed. */
static ebb_status try_choices(const greedy *g, const ebb_plan *plan, ebb_plan **plan_out) {
    ebb_plan *copy = NULL;
    EBB_TRY(ebb__plan_create(g->m->mem, plan->policy, &plan->topology, &copy));
    ebb_status st = ebb__algorithms_apply(g->m->program, plan, g->choice, copy);
    if (st == EBB_OK) { st = ebb__maker_place(g->m, copy); }
    if (st != EBB_OK) {
        ebb_plan_destroy(copy);
        return st;
    }
    *plan_out = copy;
    return EBB_OK;
}

/* Put a plan with faster choices in the place of the plan of the least. */
static ebb_status improve(greedy *g, const uint32_t *least, ebb_plan **plan) {
    EBB_TRY(find_room(g, *plan));
    uint64_t held_back_bytes = 0;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        ebb_plan *faster = NULL;
        choose(g, least, held_back_bytes);
        const ebb_status st = try_choices(g, *plan, &faster);
        if (st == EBB_OK) {
            ebb_plan_destroy(*plan);
            *plan = faster;
        }
        if (st != EBB_E_NO_FIT) { return st; }
        const uint64_t part = ebb_max_u64((*plan)->budget_bytes / 64, 1);
        held_back_bytes = held_back_bytes == 0 ? part : 2 * held_back_bytes;
    }
    return EBB_OK;
}

ebb_status ebb__greedy_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    greedy g = {.m = m, .view = ebb__plan_view(m->program)};
    ebb_plan *plan = NULL;
    ebb__bump_init(&g.bump, m->mem);
    uint32_t *least = ebb__bump_alloc(&g.bump, g.view.n_steps, sizeof *least);
    g.choice = ebb__bump_alloc(&g.bump, g.view.n_steps, sizeof *g.choice);
    g.room = ebb__bump_alloc(&g.bump, g.view.n_steps, sizeof *g.room);
    ebb_status st = least != NULL && g.choice != NULL && g.room != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) {
        ebb__algorithms_choose(m->program, m->machine, EBB_ALGORITHMS_LEAST, least);
        ebb__maker_choose(m, least);
        st = ebb__maker_make(m, &plan, no_fit_out);
    }
    if (st == EBB_OK) { st = improve(&g, least, &plan); }
    ebb__maker_choose(m, NULL);
    ebb__bump_fini(&g.bump);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}
