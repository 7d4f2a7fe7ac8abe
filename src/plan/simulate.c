/* SPDX-License-Identifier: Apache-2.0
 *
 * The predicted timeline. The same schedule that the runtime follows is followed with the machine's times: an
 * action starts when its engine is free, when what it waits for has ended, and not before its iteration was asked
 * for, which is when the one before had computed everything. Laps are repeated until one takes as long as the one
 * before it, the steady iteration; after MAX_LAPS that differ the last one counts.
 */
#include "plan/plan_priv.h"

#define MAX_LAPS 8

typedef struct laps {
    const ebb_plan *plan;
    ebb_schedule schedule;
    uint64_t *duration;    /* [n_actions] */
    uint64_t *start, *end; /* [n_actions]: of this lap, from the first lap's beginning */
    uint64_t *before;      /* [n_actions]: ends of the lap before */
    uint64_t free[EBB_N_ENGINES];
    uint64_t begin; /* of this lap */
} laps;

static void set_durations(const ebb_program *program, const ebb_machine *machine, ebb_plan_cursor *cursor,
                          uint64_t *duration) {
    const ebb_plan *plan = cursor->plan;
    const ebb_program_view view = ebb__plan_view(program);
    for (size_t a = 0; a < plan->actions.n; a++) {
        const ebb_action *action = &plan->actions.data[a];
        ebb__plan_cursor_next(cursor);
        if (action->kind == EBB_ACT_DROP) {
            duration[a] = 0;
        } else if (action->kind == EBB_ACT_OUT || action->kind == EBB_ACT_IN) {
            EBB_ASSERT(cursor->slot[action->target] < plan->slots.n);
            const ebb_slot *slot = &plan->slots.data[cursor->slot[action->target]];
            duration[a] =
                ebb__machine_copy_ns(machine, (ebb_tier)slot->tier, action->kind == EBB_ACT_OUT, slot->size_bytes);
        } else {
            const ebb_step *step = &view.steps[action->target];
            duration[a] = ebb_machine_step_time_ns(machine, &view.choices[step->first_choice + action->choice]);
        }
    }
}

/* One iteration; returns what it took. Sums saturate: a machine may be as slow as it likes. */
static uint64_t run_lap(laps *l) {
    const ebb_schedule *s = &l->schedule;
    uint64_t last = l->begin;
    for (size_t a = 0; a < l->plan->actions.n; a++) {
        uint8_t engine = s->engine[a];
        uint64_t at = l->begin;
        if (engine != EBB_N_ENGINES) { at = ebb_max_u64(at, l->free[engine]); }
        for (uint64_t i = s->start[a]; i < s->start[a + 1]; i++) {
            uint64_t on = s->dep[i];
            EBB_ASSERT(s->engine[on] != engine && s->engine[on] != EBB_N_ENGINES);
            at = ebb_max_u64(at, on < a ? l->end[on] : l->before[on]);
        }
        l->start[a] = l->end[a] = at;
        if (engine == EBB_N_ENGINES) {
            l->start[a] = l->end[a] = ebb_max_u64(l->begin, l->free[EBB_ENGINE_COMPUTE]);
            continue;
        }
        l->end[a] = ebb__add_ns(at, l->duration[a]);
        EBB_ASSERT(l->start[a] >= l->begin && l->end[a] >= l->free[engine]);
        l->free[engine] = l->end[a];
        if (engine == EBB_ENGINE_COMPUTE) { last = ebb_max_u64(last, l->end[a]); }
    }
    EBB_ASSERT(last >= l->begin);
    return last - l->begin;
}

static void repeat_laps(laps *l, ebb_timeline *timeline) {
    uint64_t took = UINT64_MAX;
    for (int lap = 0; lap < MAX_LAPS; lap++) {
        uint64_t *spare = l->before;
        l->before = l->end;
        l->end = spare;
        uint64_t now = run_lap(l);
        timeline->iteration_ns = now;
        if (now == took) { return; }
        took = now;
        if (lap + 1 < MAX_LAPS) { l->begin = ebb__add_ns(l->begin, now); }
    }
}

static void sum_times(const laps *l, ebb_timeline *timeline) {
    for (size_t a = 0; a < l->plan->actions.n; a++) {
        uint8_t engine = l->schedule.engine[a];
        if (engine == EBB_N_ENGINES) { continue; }
        timeline->busy_ns[engine] = ebb__add_ns(timeline->busy_ns[engine], l->duration[a]);
        if (l->plan->actions.data[a].kind != EBB_ACT_AGAIN) { continue; }
        timeline->again_ns = ebb__add_ns(timeline->again_ns, l->duration[a]);
    }
    EBB_ASSERT(timeline->again_ns <= timeline->busy_ns[EBB_ENGINE_COMPUTE]);
}

static ebb_status simulate(const ebb_program *program, const ebb_machine *machine, laps *l, ebb_bump *bump,
                           ebb_timeline *timeline) {
    size_t n = l->plan->actions.n;
    ebb_plan_cursor cursor;
    EBB_TRY(ebb__plan_schedule(program, l->plan, bump, &l->schedule));
    EBB_TRY(ebb__plan_cursor_init(program, l->plan, bump, &cursor));
    l->duration = ebb__bump_alloc(bump, n, sizeof *l->duration);
    l->start = ebb__bump_alloc(bump, n, sizeof *l->start);
    l->end = ebb__bump_alloc(bump, n, sizeof *l->end);
    l->before = ebb__bump_alloc(bump, n, sizeof *l->before);
    if (l->duration == NULL || l->start == NULL || l->end == NULL || l->before == NULL) { return EBB_E_NO_MEMORY; }
    memset(l->end, 0, n * sizeof *l->end);
    set_durations(program, machine, &cursor, l->duration);
    repeat_laps(l, timeline);
    sum_times(l, timeline);
    return EBB_OK;
}

ebb_status ebb_plan_simulate(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                             ebb_timeline *timeline_out, uint64_t *start_ns_out, uint64_t *end_ns_out) {
    laps l = {.plan = plan};
    ebb_timeline timeline = {0};
    ebb_bump bump;
    ebb__bump_init(&bump, plan->mem);
    ebb_status st = simulate(program, machine, &l, &bump, &timeline);
    for (size_t a = 0; st == EBB_OK && a < plan->actions.n; a++) {
        if (start_ns_out != NULL) { start_ns_out[a] = l.start[a] - l.begin; }
        if (end_ns_out != NULL) { end_ns_out[a] = l.end[a] - l.begin; }
    }
    if (st == EBB_OK) { *timeline_out = timeline; }
    ebb__bump_fini(&bump);
    return st;
}
