/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of algorithm: the ways to come to them, those where each step is judged by itself, and what the choices of a
 * plan come to.
 *
 * Of equal choices the first counts, so that the least scratch is the same whatever the machine's times, and a machine
 * that knows no times leaves the backend's order as it is.
 */
#include "plan/maker.h"

typedef struct way {
    const char *name, *about;
} way;

static const way ways[EBB_N_ALGORITHMS] = {
    [EBB_ALGORITHMS_GIVEN] = {"given", "the backend's first; bits do not depend on the budget"},
    [EBB_ALGORITHMS_LEAST] = {"least", "the least scratch; bits do not depend on the budget"},
    [EBB_ALGORITHMS_FITTING] = {"fitting", "what makes the plan fastest within the budget"},
    [EBB_ALGORITHMS_FASTEST] = {"fastest", "the least time, whatever its scratch"},
    [EBB_ALGORITHMS_GREEDY] = {"greedy", "SuperNeurons: the fastest that the bytes left at each step hold"},
};

const char *ebb_algorithms_name(size_t idx, const char **about_out) {
    if (idx >= EBB_N_ALGORITHMS) { return NULL; }
    if (about_out != NULL) { *about_out = ways[idx].about; }
    return ways[idx].name;
}

ebb_algorithms ebb__algorithms_find(const char *name) {
    uint32_t how = 0;
    while (how < EBB_N_ALGORITHMS && (name == NULL || strcmp(ways[how].name, name) != 0)) { how++; }
    return (ebb_algorithms)how;
}

static bool is_better(const ebb_machine *machine, ebb_algorithms how, const ebb_choice *a, const ebb_choice *b) {
    return how == EBB_ALGORITHMS_LEAST ? a->scratch_bytes < b->scratch_bytes
                                       : ebb_machine_step_time_ns(machine, a) < ebb_machine_step_time_ns(machine, b);
}

void ebb__algorithms_choose(const ebb_program *program, const ebb_machine *machine, ebb_algorithms how,
                            uint32_t *choice_out) {
    const ebb_program_view view = ebb__plan_view(program);
    EBB_ASSERT(how < EBB_N_ALGORITHMS && how != EBB_ALGORITHMS_FITTING && how != EBB_ALGORITHMS_GREEDY);
    for (size_t s = 0; s < view.n_steps; s++) {
        const ebb_choice *choices = &view.choices[view.steps[s].first_choice];
        choice_out[s] = 0;
        for (uint32_t c = 1; how != EBB_ALGORITHMS_GIVEN && c < view.steps[s].n_choices; c++) {
            if (is_better(machine, how, &choices[c], &choices[choice_out[s]])) { choice_out[s] = c; }
        }
    }
}

uint64_t ebb__plan_floor(const ebb_program *program, const uint32_t *choice, uint32_t *step_out) {
    const ebb_program_view view = ebb__plan_view(program);
    uint64_t floor_bytes = 0;
    uint32_t floor_step = 0;
    for (uint32_t s = 0; s < view.n_steps; s++) {
        const ebb_step *step = &view.steps[s];
        EBB_ASSERT(ebb__choice_of(choice, s) < step->n_choices);
        const ebb_choice *chosen = &view.choices[step->first_choice + ebb__choice_of(choice, s)];
        const uint64_t bytes = ebb__program_step_bytes(program, step, chosen->scratch_bytes);
        if (bytes <= floor_bytes) { continue; }
        floor_bytes = bytes;
        floor_step = s;
    }
    *step_out = floor_step;
    return floor_bytes;
}

ebb_status ebb__algorithms_apply(const ebb_program *program, const ebb_plan *plan, const uint32_t *choice,
                                 ebb_plan *copy) {
    const ebb_program_view view = ebb__plan_view(program);
    size_t next = 0;
    copy->budget_bytes = plan->budget_bytes;
    copy->fingerprint = plan->fingerprint;
    copy->alignment_bytes = plan->alignment_bytes;
    copy->has_nominal_times = plan->has_nominal_times;
    EBB_TRY(EBB_RESERVE(copy->mem, &copy->actions, plan->actions.n));
    EBB_TRY(EBB_RESERVE(copy->mem, &copy->slots, plan->slots.n));
    if (plan->slots.n > 0) { memcpy(copy->slots.data, plan->slots.data, plan->slots.n * sizeof *plan->slots.data); }
    copy->slots.n = plan->slots.n;
    for (uint64_t a = 0; a < plan->actions.n; a++) {
        ebb_action action = plan->actions.data[a];
        ebb_stay scratch = {.tensor = EBB_SCRATCH, .first = a, .last = a + 1};
        if (action.kind == EBB_ACT_RUN || action.kind == EBB_ACT_AGAIN) {
            action.choice = choice[action.target];
            scratch.size_bytes = view.choices[view.steps[action.target].first_choice + action.choice].scratch_bytes;
        }
        copy->actions.data[copy->actions.n++] = action;
        for (; next < plan->stays.n && plan->stays.data[next].first == a; next++) {
            if (plan->stays.data[next].tensor == EBB_SCRATCH) { continue; }
            EBB_TRY(EBB_PUSH(copy->mem, &copy->stays, plan->stays.data[next]));
        }
        if (scratch.size_bytes > 0) { EBB_TRY(EBB_PUSH(copy->mem, &copy->stays, scratch)); }
    }
    EBB_ASSERT(next == plan->stays.n);
    return EBB_OK;
}

ebb_choice_figures ebb_plan_choice_figures(const ebb_program *program, const ebb_plan *plan,
                                           const ebb_machine *machine) {
    const ebb_program_view view = ebb__plan_view(program);
    ebb_choice_figures f = {.n_open_steps = 0};
    for (size_t a = 0; a < plan->actions.n; a++) {
        const ebb_action *action = &plan->actions.data[a];
        if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) { continue; }
        const ebb_step *step = &view.steps[action->target];
        const ebb_choice *choices = &view.choices[step->first_choice];
        EBB_ASSERT(action->choice < step->n_choices);
        f.given_ns = ebb__add_ns(f.given_ns, ebb_machine_step_time_ns(machine, choices));
        f.chosen_ns = ebb__add_ns(f.chosen_ns, ebb_machine_step_time_ns(machine, &choices[action->choice]));
        f.most_scratch_bytes = ebb_max_u64(f.most_scratch_bytes, choices[action->choice].scratch_bytes);
        if (action->kind != EBB_ACT_RUN || step->n_choices == 1) { continue; }
        f.n_open_steps++;
        f.n_steps[ebb_min_u64(action->choice, EBB_CHOICES_TOLD - 1)]++;
    }
    return f;
}
