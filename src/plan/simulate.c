/* SPDX-License-Identifier: Apache-2.0
 *
 * The predicted timeline. The same schedule that the runtime follows is followed with the machine's times: an
 * action starts when its engine is free, when what it waits for has ended, and not before its iteration was asked
 * for, which is when the one before had computed everything. Laps are repeated until one takes as long as the one
 * before it, the steady iteration; after MAX_LAPS that differ the last one counts.
 *
 * Time goes from event to event, an event being the start or end of an action. Between two of them every busy engine
 * works at a constant rate: its own, less what others leave of it. Two directions of a link slow each other by the
 * link's both_rate; each copy slows computing by its link's work_rate, and computing slows the copy by its copy_rate,
 * which differ between steps bound by arithmetic and those bound by memory.
 *
 * As an engine works in order, one number says which of its actions have ended, of all laps. O(n engines) a lap.
 */
#include "plan/plan_priv.h"

#include <math.h>

#define MAX_LAPS 8u
#define LEAST_RATE 1e-12 /* of an engine's own, so that whatever a machine says, times stay numbers */

typedef struct engine {
    const uint32_t *actions; /* in order; of one lap */
    uint64_t n;
    uint64_t n_done; /* of all laps */
    bool busy;
    double left_ns;     /* of the action at hand, at its own rate */
    ebb_link link;      /* of the copy at hand: from its near tier to its far one */
    ebb_step_kind kind; /* of the step at hand */
    double stall_ns;    /* in the lap at hand */
} engine;

typedef struct laps {
    const ebb_plan *plan;
    const ebb_machine *machine;
    uint32_t tier_of[EBB_MAX_TIERS]; /* the machine's, of each of the plan's */
    ebb_schedule schedule;
    uint32_t *rank; /* [n_actions]: how many of its engine come before it */
    uint64_t *duration;
    uint8_t *kind;       /* [n_actions]: of the step computed */
    double *start, *end; /* [2 * n_actions]: of laps of even and odd numbers */
    uint32_t n_engines;
    engine engines[EBB_MAX_ENGINES];
    double now_ns;
    uint64_t n_laps; /* begun */
    double begin_ns; /* of the lap at hand */
} laps;

/* ---- setting up -------------------------------------------------------------------------------- */

static void find_tiers(laps *l) {
    const ebb_topology *has = ebb_machine_topology(l->machine), *wants = &l->plan->topology;
    for (uint32_t t = 0; t < wants->n_tiers; t++) {
        l->tier_of[t] = t == EBB_DEVICE ? EBB_DEVICE : ebb_topology_tier(has, wants->tier[t].name);
    }
}

/* Between which of the machine's tiers an action copies; false: it does not. */
static bool find_way(const laps *l, size_t a, uint32_t *from_out, uint32_t *to_out) {
    const ebb_action *action = &l->plan->actions.data[a];
    switch (action->kind) {
    case EBB_ACT_OUT: *from_out = EBB_DEVICE, *to_out = l->tier_of[action->tier]; return true;
    case EBB_ACT_IN: *from_out = l->tier_of[action->tier], *to_out = EBB_DEVICE; return true;
    case EBB_ACT_MOVE: *from_out = l->tier_of[action->tier], *to_out = l->tier_of[action->to]; return true;
    case EBB_ACT_DROP: return false;
    default: *from_out = l->tier_of[ebb__topology_feeds_from(&l->plan->topology)], *to_out = EBB_DEVICE;
    }
    return l->schedule.engine[a] != EBB_COMPUTE;
}

static ebb_status fail_way(const laps *l, size_t a) {
    const ebb_action *action = &l->plan->actions.data[a];
    const ebb_tier *tier = l->plan->topology.tier;
    const bool is_move = action->kind == EBB_ACT_MOVE;
    const uint32_t far = ebb__action_computes(action) ? ebb__topology_feeds_from(&l->plan->topology) : action->tier;
    return ebb_fail(
        EBB_E_ARGUMENT,
        "plan: action %zu copies between the tiers '%s' and '%s'; the machine has no such tiers, or no link "
        "between them",
        a, tier[is_move ? action->tier : EBB_DEVICE].name, tier[is_move ? action->to : far].name);
}

/* The bytes that a step writes. */
static uint64_t bytes_made(const ebb_program_view *view, const ebb_step *step) {
    uint64_t bytes = 0;
    for (uint64_t i = step->first_access; i < step->first_access + step->n_accesses; i++) {
        if (view->accesses[i].mode != EBB_READ) { bytes += view->tensors[view->accesses[i].tensor].size_bytes; }
    }
    return bytes;
}

static ebb_status set_durations(laps *l, const ebb_program *program) {
    const ebb_program_view view = ebb__plan_view(program);
    for (size_t a = 0; a < l->plan->actions.n; a++) {
        const ebb_action *action = &l->plan->actions.data[a];
        uint32_t from = 0, to = 0;
        const bool copies = find_way(l, a, &from, &to);
        l->duration[a] = 0;
        if (ebb__action_computes(action)) {
            const ebb_step *step = &view.steps[action->target];
            const ebb_choice *choice = &view.choices[step->first_choice + action->choice];
            l->duration[a] = copies ? ebb__machine_feed_time_ns(l->machine, from, choice, bytes_made(&view, step))
                                    : ebb_machine_step_time_ns(l->machine, choice);
            l->kind[a] = (uint8_t)ebb_machine_step_kind(l->machine, choice);
        } else if (copies) {
            const uint64_t end = ebb__action_end(action, view.tensors[action->target].size_bytes);
            l->duration[a] = ebb_machine_copy_time_ns(l->machine, from, to, end - action->begin);
        }
        if (l->duration[a] == UINT64_MAX) { return fail_way(l, a); }
    }
    return EBB_OK;
}

static ebb_status set_queues(laps *l, ebb_bump *bump) {
    const size_t n = l->plan->actions.n;
    const uint8_t *engine_of = l->schedule.engine;
    uint32_t *actions = ebb__bump_alloc(bump, n, sizeof *actions);
    l->rank = ebb__bump_alloc(bump, n, sizeof *l->rank);
    if (actions == NULL || l->rank == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t e = 0; e < l->n_engines; e++) {
        l->engines[e] = (engine){.actions = actions};
        for (size_t a = 0; a < n; a++) {
            if (engine_of[a] != e) { continue; }
            l->rank[a] = (uint32_t)l->engines[e].n++;
            *actions++ = (uint32_t)a;
        }
    }
    return EBB_OK;
}

/* ---- events ------------------------------------------------------------------------------------- */

/* Whether an action of a lap has ended; laps before the first have. */
static bool has_ended(const laps *l, uint64_t action, uint64_t lap, bool in_lap_before) {
    if (in_lap_before && lap == 0) { return true; }
    const engine *e = &l->engines[l->schedule.engine[action]];
    return e->n_done > (lap - in_lap_before) * e->n + l->rank[action];
}

/* Whether the engine has something to do that was asked for. */
static bool has_work(const laps *l, const engine *e) {
    return e->n > 0 && e->n_done < l->n_laps * e->n;
}

static bool may_start(const laps *l, const engine *e) {
    const uint64_t lap = e->n_done / e->n;
    const uint32_t a = e->actions[e->n_done % e->n];
    for (uint64_t i = l->schedule.start[a]; i < l->schedule.start[a + 1]; i++) {
        const uint64_t on = l->schedule.dep[i];
        if (!has_ended(l, on, lap, on >= a)) { return false; }
    }
    return true;
}

static double *time_of(const laps *l, double *times, const engine *e) {
    const uint64_t lap = e->n_done / e->n;
    return &times[(lap & 1) * l->plan->actions.n + e->actions[e->n_done % e->n]];
}

static void start_action(laps *l, engine *e) {
    const uint32_t a = e->actions[e->n_done % e->n];
    e->busy = true;
    e->left_ns = (double)l->duration[a];
    uint32_t from = 0, to = 0;
    if (find_way(l, a, &from, &to)) {
        (void)ebb_machine_link(l->machine, from, to, &e->link); /* set_durations has seen that it is there */
    } else {
        e->kind = (ebb_step_kind)l->kind[a];
    }
    *time_of(l, l->start, e) = l->now_ns;
}

static double rate_of(const laps *l, const engine *e) {
    const engine *compute = &l->engines[EBB_COMPUTE];
    double rate = e != compute && compute->busy ? e->link.copy_rate[compute->kind] : 1;
    for (uint32_t i = 0; i < l->n_engines; i++) {
        const engine *other = &l->engines[i];
        if (other == e || other == compute || !other->busy) { continue; }
        if (e == compute) {
            rate *= other->link.work_rate[e->kind];
        } else if (other->link.near == e->link.far && other->link.far == e->link.near) {
            rate *= e->link.both_rate;
        }
    }
    return fmax(rate, LEAST_RATE);
}

/* Go to the next end of an action. */
static void advance(laps *l) {
    double rate[EBB_MAX_ENGINES], least_ns = INFINITY;
    for (uint32_t i = 0; i < l->n_engines; i++) {
        const engine *e = &l->engines[i];
        if (!e->busy) { continue; }
        rate[i] = rate_of(l, e);
        least_ns = fmin(least_ns, e->left_ns / rate[i]);
    }
    EBB_ASSERT(least_ns < INFINITY);
    l->now_ns += least_ns;
    for (uint32_t i = 0; i < l->n_engines; i++) {
        engine *e = &l->engines[i];
        if (!e->busy) {
            e->stall_ns += has_work(l, e) ? least_ns : 0;
            continue;
        }
        const bool ends = e->left_ns / rate[i] <= least_ns;
        e->left_ns -= least_ns * rate[i];
        if (!ends) { continue; }
        e->busy = false;
        *time_of(l, l->end, e) = l->now_ns;
        e->n_done++;
    }
}

static void start_all(laps *l) {
    for (uint32_t i = 0; i < l->n_engines; i++) {
        engine *e = &l->engines[i];
        if (!e->busy && has_work(l, e) && may_start(l, e)) { start_action(l, e); }
    }
}

/* ---- laps --------------------------------------------------------------------------------------- */

static uint64_t to_ns(double ns) {
    return ns < (double)UINT64_MAX ? (uint64_t)(ns + 0.5) : UINT64_MAX;
}

/* Compute all of one more lap; what it took. */
static uint64_t run_lap(laps *l) {
    const engine *compute = &l->engines[EBB_COMPUTE];
    EBB_ASSERT(compute->n > 0);
    l->n_laps++;
    l->begin_ns = l->now_ns;
    for (uint32_t i = 0; i < l->n_engines; i++) { l->engines[i].stall_ns = 0; }
    while (compute->n_done < l->n_laps * compute->n) {
        start_all(l);
        advance(l);
    }
    return to_ns(l->now_ns - l->begin_ns);
}

/* Whether an engine has yet to end something of the laps that were asked for. */
static bool is_behind(const laps *l, uint64_t n_laps) {
    bool is = false;
    for (uint32_t i = 0; i < l->n_engines; i++) { is = is || l->engines[i].n_done < n_laps * l->engines[i].n; }
    return is;
}

static void repeat_laps(laps *l, ebb_timeline *timeline) {
    uint64_t took = UINT64_MAX;
    for (uint32_t lap = 0; lap < MAX_LAPS; lap++) {
        timeline->iteration_ns = run_lap(l);
        if (timeline->iteration_ns == took) { break; }
        took = timeline->iteration_ns;
    }
    for (uint32_t i = 0; i < l->n_engines; i++) { timeline->stall_ns[i] = to_ns(l->engines[i].stall_ns); }
    const uint64_t n_laps = l->n_laps++; /* its copies end while the next one computes */
    while (is_behind(l, n_laps)) {
        start_all(l);
        advance(l);
    }
    l->n_laps = n_laps;
}

static void sum_times(const laps *l, ebb_timeline *timeline) {
    for (size_t a = 0; a < l->plan->actions.n; a++) {
        uint8_t on = l->schedule.engine[a];
        if (on == EBB_NO_ENGINE) { continue; }
        timeline->busy_ns[on] = ebb__add_ns(timeline->busy_ns[on], l->duration[a]);
        if (on != EBB_COMPUTE || l->plan->actions.data[a].kind != EBB_ACT_AGAIN) { continue; }
        timeline->again_ns = ebb__add_ns(timeline->again_ns, l->duration[a]);
    }
    EBB_ASSERT(timeline->again_ns <= timeline->busy_ns[EBB_COMPUTE]);
}

/* Starts and ends within the steady lap; a drop is where what was computed before it has ended. */
static void tell_times(const laps *l, uint64_t *start_ns_out, uint64_t *end_ns_out) {
    const size_t n = l->plan->actions.n, first = ((l->n_laps - 1) & 1) * n;
    double computed_ns = l->begin_ns;
    for (size_t a = 0; a < n; a++) {
        const uint8_t on = l->schedule.engine[a];
        const bool is_drop = on == EBB_NO_ENGINE;
        if (on == EBB_COMPUTE) { computed_ns = l->end[first + a]; }
        const double start_ns = is_drop ? computed_ns : l->start[first + a];
        const double end_ns = is_drop ? computed_ns : l->end[first + a];
        if (start_ns_out != NULL) { start_ns_out[a] = to_ns(start_ns - l->begin_ns); }
        if (end_ns_out != NULL) { end_ns_out[a] = to_ns(end_ns - l->begin_ns); }
    }
}

static ebb_status simulate(const ebb_program *program, laps *l, ebb_bump *bump, ebb_timeline *timeline) {
    const size_t n = l->plan->actions.n;
    l->n_engines = l->plan->topology.n_engines;
    find_tiers(l);
    EBB_TRY(ebb__plan_schedule(program, l->plan, bump, &l->schedule));
    EBB_TRY(set_queues(l, bump));
    l->duration = ebb__bump_alloc(bump, n, sizeof *l->duration);
    l->start = ebb__bump_alloc(bump, 2 * n, sizeof *l->start);
    l->end = ebb__bump_alloc(bump, 2 * n, sizeof *l->end);
    l->kind = ebb__bump_alloc(bump, n, sizeof *l->kind);
    if (l->duration == NULL || l->kind == NULL || l->start == NULL || l->end == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(set_durations(l, program));
    repeat_laps(l, timeline);
    sum_times(l, timeline);
    return EBB_OK;
}

ebb_status ebb_plan_simulate(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                             ebb_timeline *timeline_out, uint64_t *start_ns_out, uint64_t *end_ns_out) {
    EBB_NEED(program);
    EBB_NEED(plan);
    EBB_NEED(machine);
    EBB_NEED(timeline_out);
    laps l = {.plan = plan, .machine = machine};
    ebb_timeline timeline = {0};
    ebb_bump bump;
    ebb__bump_init(&bump, plan->mem);
    ebb_status st = simulate(program, &l, &bump, &timeline);
    if (st == EBB_OK) {
        tell_times(&l, start_ns_out, end_ns_out);
        *timeline_out = timeline;
    }
    ebb__bump_fini(&bump);
    return st;
}
