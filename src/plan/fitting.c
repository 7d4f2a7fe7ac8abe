/* SPDX-License-Identifier: Apache-2.0
 *
 * Choices of algorithm that make the plan fastest within its budget. Bytes that scratch takes are missing for tensors:
 * a faster algorithm is worth what has to leave for it, or it is not. Only a plan knows what that costs, because copies
 * hide behind computing, and what left for one step is away during its neighbours too. So whole plans are made, with
 * whatever policy, and the predicted times of their iterations are compared:
 *
 *   1. with the fastest, the given and the least choice of every step. If all that is fastest fits with nothing moved,
 *      that is the end. Where a bound shows that no plan with the given or the least choices is faster than one that is
 *      there already, none with the given is made, and one with the least without care;
 *   2. from the plan of least, and then from the best so far as long as that helps: with the fastest choices whose
 *      scratch fits into the bytes that are free when their step runs, once with copies in as early as they are and
 *      once as if each came at the last moment (but those whose stay lives around the end: that it could come later is
 *      not counted on). Beyond these, the choices for which there is no room are put in order of the time that they win
 *      for each byte that would have to leave, and how many of the first of them are taken is searched by halves;
 *   3. with one choice of one step changed, the steps first where most time is between two choices;
 *   4. the best choices once more, with all the care that a plan gets, and the best plan's own moves with faster
 *      choices where there still is room.
 *
 * The plans of step 1 are those that the ways make which are called so, and the result is never slower, as predicted,
 * than these. Those of steps 2 and 3 are made quickly. There are at most N_FIXED_WAYS + MAX_TRIES + 1 plans, 68, and of
 * larger programs fewer, so that those of TRY_STEPS / MAX_TRIES steps to TRY_STEPS / MIN_TRIES take about as long;
 * above these 4,000 it is N_FIXED_WAYS + MIN_TRIES + 1, or one less where the last need not be made again.
 */
#include "plan/maker.h"

#include <math.h>

#define TRY_STEPS 20000u
#define MIN_TRIES 4u
#define MAX_TRIES 64u
#define N_PARTS 8u /* of the order of choices, looked at first */
#define MAX_ROUNDS 3
#define N_FIXED_WAYS 3u /* least, given, fastest */

/* One that is faster than the base's (order_candidates); or a step to be changed, with any choice (order_steps). */
typedef struct candidate {
    uint32_t step, choice;
} candidate;

/* Choices that were tried: their hash, and what their plan takes; UINT64_MAX: they have none. */
typedef struct attempt {
    uint64_t hash, ns;
} attempt;

typedef struct fitting {
    ebb_maker *m;
    ebb_program_view view;
    ebb_bump bump;
    uint32_t *choice;  /* [n_steps]: to be tried */
    uint32_t *base;    /* [n_steps]: where choices to be tried start from */
    uint64_t *room[2]; /* [n_steps]: bytes for scratch; [1]: with copies in at the last moment */
    /* [n_choices] each, for one order at a time */
    candidate *candidates;
    uint32_t *order; /* of candidates */
    uint64_t *key;
    size_t n_candidates; /* of order_candidates */
    attempt tried[N_FIXED_WAYS + MAX_TRIES];
    size_t n_tried;
    uint64_t n_tries; /* left */
    ebb_plan *best;
    uint64_t best_ns;
    bool best_is_hasty;    /* it was made so */
    uint32_t *best_choice; /* [n_steps] */
    uint64_t bound_ns;     /* all that must be computed, at its fastest: no iteration takes less */
} fitting;

static const ebb_choice *choice_at(const fitting *f, size_t step, uint32_t choice) {
    EBB_ASSERT(choice < f->view.steps[step].n_choices);
    return &f->view.choices[f->view.steps[step].first_choice + choice];
}

static uint64_t ns_of(const fitting *f, size_t step, uint32_t choice) {
    return ebb_machine_step_time_ns(f->m->machine, choice_at(f, step, choice));
}

static uint64_t scratch_of(const fitting *f, size_t step, uint32_t choice) {
    return ebb_align_up(choice_at(f, step, choice)->scratch_bytes, f->view.alignment);
}

static void copy_choices(const fitting *f, uint32_t *dst, const uint32_t *src) {
    memcpy(dst, src, f->view.n_steps * sizeof *dst);
}

/* ---- plans ------------------------------------------------------------------------------------- */

static bool is_perfect(const fitting *f) {
    return f->best != NULL && f->best_ns <= f->bound_ns;
}

static bool may_go_on(const fitting *f) {
    return f->n_tries > 0 && !is_perfect(f);
}

/* Take over a plan with the choices to be tried; *ns_out: its time. */
static ebb_status keep_better(fitting *f, ebb_plan *plan, uint64_t *ns_out) {
    const ebb_status st = ebb__maker_time(f->m, plan, ns_out);
    if (st != EBB_OK || (f->best != NULL && *ns_out >= f->best_ns)) {
        ebb_plan_destroy(plan);
    } else {
        ebb_plan_destroy(f->best);
        f->best = plan;
        f->best_ns = *ns_out;
        f->best_is_hasty = f->m->is_hasty;
        copy_choices(f, f->best_choice, f->choice);
    }
    return st;
}

/* The attempt with the choices to be tried, or a new one with its plan; NULL: enough is tried. None of them has a plan:
 * they were tried before, or do not fit. */
static ebb_status try_choice(fitting *f, attempt **made_out, ebb_plan **plan_out) {
    const uint64_t hash = ebb__hash(EBB_HASH_INIT, f->choice, f->view.n_steps * sizeof *f->choice);
    *made_out = NULL;
    for (size_t i = 0; i < f->n_tried; i++) {
        if (f->tried[i].hash == hash) {
            *made_out = &f->tried[i];
            return EBB_OK;
        }
    }
    if (!may_go_on(f)) { return EBB_OK; }
    EBB_ASSERT(f->n_tried < sizeof f->tried / sizeof f->tried[0]);
    f->n_tries--;
    *made_out = &f->tried[f->n_tried++];
    **made_out = (attempt){.hash = hash, .ns = UINT64_MAX};
    ebb__maker_choose(f->m, f->choice);
    ebb_status st = ebb__maker_try(f->m, plan_out);
    return st == EBB_E_NO_FIT ? EBB_OK : st;
}

/* *ns_out: the time of the plan with the choices to be tried; UINT64_MAX: none, or enough is tried. */
static ebb_status consider(fitting *f, uint64_t *ns_out) {
    ebb_plan *plan = NULL;
    attempt *made = NULL;
    EBB_TRY(try_choice(f, &made, &plan));
    if (plan != NULL) { EBB_TRY(keep_better(f, plan, &made->ns)); }
    *ns_out = made != NULL ? made->ns : UINT64_MAX;
    return EBB_OK;
}

/* ---- room -------------------------------------------------------------------------------------- */

/* For each copy in: the first action after it that needs it. */
static void find_needs(const fitting *f, const ebb_plan *plan, uint64_t *need, uint64_t *next) {
    for (size_t t = 0; t < f->view.n_tensors; t++) { next[t] = UINT64_MAX; }
    for (uint64_t a = plan->actions.n; a-- > 0;) {
        const ebb_action *action = &plan->actions.data[a];
        if (action->kind == EBB_ACT_RUN || action->kind == EBB_ACT_AGAIN) {
            const ebb_step *step = &f->view.steps[action->target];
            for (uint32_t i = 0; i < step->n_accesses; i++) {
                next[f->view.accesses[step->first_access + i].tensor] = a;
            }
            continue;
        }
        if (action->kind == EBB_ACT_IN) { need[a] = next[action->target]; }
        next[action->target] = action->kind == EBB_ACT_OUT ? a : UINT64_MAX;
    }
}

/* Load of all but scratch; need NULL: as the plan has it. */
static void add_loads(const fitting *f, const ebb_plan *plan, const uint64_t *need, ebb_load *load) {
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *stay = &plan->stays.data[i];
        uint64_t first = stay->first;
        if (stay->tensor == EBB_SCRATCH) { continue; }
        const ebb_action *action = &plan->actions.data[first];
        const bool is_in = action->kind == EBB_ACT_IN && action->target == stay->tensor && first < stay->last;
        if (need != NULL && is_in && need[first] < stay->last) { first = need[first]; }
        ebb__load_add(load, first, stay->last, ebb_align_up(stay->size_bytes, f->view.alignment));
    }
}

/* The free bytes of the budget at each step, whenever it runs. */
static void set_room(const fitting *f, const ebb_plan *plan, const ebb_load *load, uint64_t *room) {
    const uint64_t limit = ebb__load_limit(plan->budget_bytes);
    uint64_t there = 0;
    for (size_t s = 0; s < f->view.n_steps; s++) { room[s] = UINT64_MAX; }
    for (size_t a = 0; a < plan->actions.n; a++) {
        const ebb_action *action = &plan->actions.data[a];
        there += load->change[a];
        if (action->kind != EBB_ACT_RUN && action->kind != EBB_ACT_AGAIN) { continue; }
        const uint64_t is_free = limit - ebb_min_u64(limit, there);
        room[action->target] = ebb_min_u64(room[action->target], is_free / f->view.alignment * f->view.alignment);
    }
}

static ebb_status find_room(fitting *f, const ebb_plan *plan) {
    ebb_bump bump;
    ebb__bump_init(&bump, f->m->mem);
    uint64_t *need = ebb__bump_alloc(&bump, plan->actions.n, sizeof *need);
    uint64_t *next = ebb__bump_alloc(&bump, f->view.n_tensors, sizeof *next);
    ebb_status st = need != NULL && next != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { find_needs(f, plan, need, next); }
    for (int late = 0; late < 2 && st == EBB_OK; late++) {
        ebb_load load;
        st = ebb__load_init(&load, f->m->mem, plan->actions.n);
        if (st != EBB_OK) { break; }
        add_loads(f, plan, late ? need : NULL, &load);
        set_room(f, plan, &load, f->room[late]);
        ebb__load_fini(&load);
    }
    ebb__bump_fini(&bump);
    return st;
}

/* To be tried: for each step the fastest choice that has room, or the base's. */
static void fill_room(fitting *f, const uint64_t *room) {
    copy_choices(f, f->choice, f->base);
    for (size_t s = 0; s < f->view.n_steps; s++) {
        for (uint32_t c = 0; c < f->view.steps[s].n_choices; c++) {
            const bool has_room = scratch_of(f, s, c) <= room[s];
            if (has_room && ns_of(f, s, c) < ns_of(f, s, f->choice[s])) { f->choice[s] = c; }
        }
    }
}

/* ---- beyond the room --------------------------------------------------------------------------- */

/* The choices faster than the base's, those that win most time for a byte first. */
static ebb_status order_candidates(fitting *f) {
    f->n_candidates = 0;
    for (uint32_t s = 0; s < f->view.n_steps; s++) {
        const uint64_t base_ns = ns_of(f, s, f->base[s]);
        for (uint32_t c = 0; c < f->view.steps[s].n_choices; c++) {
            const uint64_t ns = ns_of(f, s, c), scratch_bytes = scratch_of(f, s, c);
            if (ns >= base_ns) { continue; }
            const uint64_t over = scratch_bytes - ebb_min_u64(scratch_bytes, f->room[1][s]);
            f->order[f->n_candidates] = (uint32_t)f->n_candidates;
            f->key[f->n_candidates] = (uint64_t)fmin((double)over * 1024.0 / (double)(base_ns - ns), 1e18);
            f->candidates[f->n_candidates++] = (candidate){.step = s, .choice = c};
        }
    }
    return ebb__sort_by_key(f->m->mem, f->order, f->n_candidates, f->key);
}

/* To be tried: the base with the first n of them. */
static void take_candidates(fitting *f, size_t n) {
    EBB_ASSERT(n <= f->n_candidates);
    copy_choices(f, f->choice, f->base);
    for (size_t i = 0; i < n; i++) {
        const candidate *o = &f->candidates[f->order[i]];
        if (ns_of(f, o->step, o->choice) < ns_of(f, o->step, f->choice[o->step])) { f->choice[o->step] = o->choice; }
    }
}

/* How many of them: a few numbers, then halves of what is between around the best. */
static ebb_status search_candidates(fitting *f) {
    const size_t n_parts = f->n_tries < 2 * N_PARTS ? 2 : N_PARTS;
    size_t best = 0;
    uint64_t ns = 0, best_ns = 0;
    EBB_TRY(order_candidates(f));
    take_candidates(f, 0);
    EBB_TRY(consider(f, &best_ns));
    for (size_t part = 1; part < n_parts; part++) {
        take_candidates(f, f->n_candidates * part / n_parts);
        EBB_TRY(consider(f, &ns));
        if (ns < best_ns) {
            best_ns = ns;
            best = f->n_candidates * part / n_parts;
        }
    }
    for (size_t width = f->n_candidates / n_parts / 2; width > 0 && may_go_on(f); width /= 2) {
        const size_t around[2] = {best - (width < best ? width : best), best + width};
        for (size_t i = 0; i < 2; i++) {
            if (around[i] > f->n_candidates) { continue; }
            take_candidates(f, around[i]);
            EBB_TRY(consider(f, &ns));
            if (ns >= best_ns) { continue; }
            best_ns = ns;
            best = around[i];
        }
    }
    return EBB_OK;
}

/* From the base, with the room that was found. */
static ebb_status expand(fitting *f) {
    uint64_t ns = 0;
    for (int late = 0; late < 2; late++) {
        fill_room(f, f->room[late]);
        EBB_TRY(consider(f, &ns));
    }
    copy_choices(f, f->base, f->choice); /* with copies in at the last moment */
    return search_candidates(f);
}

static ebb_status expand_best(fitting *f) {
    EBB_ASSERT(f->best != NULL);
    EBB_TRY(find_room(f, f->best));
    copy_choices(f, f->base, f->best_choice);
    return expand(f);
}

/* ---- one by one -------------------------------------------------------------------------------- */

/* Steps with several choices, those first where most time is between two. */
static ebb_status order_steps(fitting *f, size_t *n_out) {
    size_t n = 0;
    for (uint32_t s = 0; s < f->view.n_steps; s++) {
        uint64_t low_ns = UINT64_MAX, high_ns = 0;
        for (uint32_t c = 0; c < f->view.steps[s].n_choices; c++) {
            low_ns = ebb_min_u64(low_ns, ns_of(f, s, c));
            high_ns = ebb_max_u64(high_ns, ns_of(f, s, c));
        }
        if (f->view.steps[s].n_choices == 1) { continue; }
        f->order[n] = (uint32_t)n;
        f->candidates[n].step = s;
        f->key[n++] = UINT64_MAX - (high_ns - low_ns);
    }
    *n_out = n;
    return ebb__sort_by_key(f->m->mem, f->order, n, f->key);
}

static ebb_status change_one(fitting *f, uint32_t step) {
    uint64_t ns = 0;
    for (uint32_t c = 0; c < f->view.steps[step].n_choices; c++) {
        copy_choices(f, f->choice, f->best_choice);
        f->choice[step] = c;
        EBB_TRY(consider(f, &ns));
    }
    return EBB_OK;
}

static ebb_status change_each(fitting *f) {
    size_t n = 0;
    EBB_TRY(order_steps(f, &n));
    for (uint64_t before_ns = UINT64_MAX; f->best_ns < before_ns && may_go_on(f);) {
        before_ns = f->best_ns;
        for (size_t i = 0; i < n && may_go_on(f); i++) { EBB_TRY(change_one(f, f->candidates[f->order[i]].step)); }
    }
    return EBB_OK;
}

/* The choices of the best plan, without haste. */
static ebb_status make_again(fitting *f) {
    ebb_plan *plan = NULL;
    uint64_t ns = 0;
    if (!f->best_is_hasty) { return EBB_OK; }
    copy_choices(f, f->choice, f->best_choice);
    ebb__maker_choose(f->m, f->choice);
    ebb_status st = ebb__maker_try(f->m, &plan);
    if (st != EBB_OK) { return st == EBB_E_NO_FIT ? EBB_OK : st; }
    return keep_better(f, plan, &ns);
}

/* ---- the same moves ---------------------------------------------------------------------------- */

static ebb_status keep_moves(fitting *f) {
    ebb_plan *plan = NULL;
    uint64_t ns = 0;
    EBB_TRY(find_room(f, f->best));
    copy_choices(f, f->base, f->best_choice);
    fill_room(f, f->room[0]);
    if (memcmp(f->choice, f->base, f->view.n_steps * sizeof *f->choice) == 0) { return EBB_OK; }
    EBB_TRY(ebb__plan_create(f->m->mem, f->best->policy, &f->best->topology, &plan));
    ebb_status st = ebb__algorithms_apply(f->m->program, f->best, f->choice, plan);
    if (st == EBB_OK) { st = ebb__maker_place(f->m, plan); }
    if (st == EBB_OK) { return keep_better(f, plan, &ns); }
    ebb_plan_destroy(plan);
    return st == EBB_E_NO_FIT ? EBB_OK : st;
}

/* ---- all --------------------------------------------------------------------------------------- */

static ebb_status try_way(fitting *f, ebb_algorithms how) {
    uint64_t ns = 0;
    ebb__algorithms_choose(f->m->program, f->m->machine, how, f->choice);
    return consider(f, &ns);
}

/* Whether no plan with the choices to be tried is faster than the best so far. */
static ebb_status is_beaten(fitting *f, bool *beaten_out) {
    uint64_t least_ns = 0;
    *beaten_out = false;
    if (f->best == NULL) { return EBB_OK; }
    ebb__maker_choose(f->m, f->choice);
    EBB_TRY(ebb__maker_bound(f->m, f->best_ns, &least_ns));
    *beaten_out = least_ns >= f->best_ns;
    return EBB_OK;
}

static ebb_status try_given(fitting *f) {
    bool is_out = false;
    uint64_t ns = 0;
    ebb__algorithms_choose(f->m->program, f->m->machine, EBB_ALGORITHMS_GIVEN, f->choice);
    EBB_TRY(is_beaten(f, &is_out));
    return is_out ? EBB_OK : consider(f, &ns);
}

/* The plan of least is asked for its room; with the choices that have room there the search begins. */
static ebb_status start_from_least(fitting *f) {
    ebb_plan *plan = NULL;
    attempt *made = NULL;
    ebb__algorithms_choose(f->m->program, f->m->machine, EBB_ALGORITHMS_LEAST, f->choice);
    copy_choices(f, f->base, f->choice);
    EBB_TRY(is_beaten(f, &f->m->is_hasty));
    ebb_status st = try_choice(f, &made, &plan);
    f->m->is_hasty = false;
    if (st != EBB_OK) { return st; }
    if (plan == NULL) { return try_given(f); }
    st = find_room(f, plan);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    EBB_TRY(keep_better(f, plan, &made->ns));
    EBB_TRY(try_given(f));
    f->m->is_hasty = true;
    return expand(f);
}

static ebb_status search(fitting *f) {
    EBB_TRY(try_way(f, EBB_ALGORITHMS_FASTEST));
    if (is_perfect(f)) { return EBB_OK; }
    EBB_TRY(start_from_least(f));
    if (f->best == NULL) { return EBB_E_NO_FIT; }
    f->m->is_hasty = true;
    uint64_t before_ns = UINT64_MAX;
    for (int round = 0; round < MAX_ROUNDS && f->best_ns < before_ns; round++) {
        before_ns = f->best_ns;
        EBB_TRY(expand_best(f));
    }
    EBB_TRY(change_each(f));
    f->m->is_hasty = false;
    EBB_TRY(make_again(f));
    return keep_moves(f);
}

static ebb_status init_fitting(fitting *f) {
    const size_t n_steps = f->view.n_steps;
    size_t n_choices = 0;
    (void)ebb_program_choices(f->m->program, &n_choices);
    if (n_choices > UINT32_MAX) { return ebb_fail(EBB_E_LIMIT, "plan: more than 2^32 - 1 choices of algorithm"); }
    uint32_t **const per_step[] = {&f->choice, &f->base, &f->best_choice};
    for (size_t i = 0; i < sizeof per_step / sizeof per_step[0]; i++) {
        *per_step[i] = ebb__bump_alloc(&f->bump, n_steps, sizeof(uint32_t));
        if (*per_step[i] == NULL) { return EBB_E_NO_MEMORY; }
    }
    f->room[0] = ebb__bump_alloc(&f->bump, n_steps, sizeof *f->room[0]);
    f->room[1] = ebb__bump_alloc(&f->bump, n_steps, sizeof *f->room[1]);
    f->candidates = ebb__bump_alloc(&f->bump, n_choices, sizeof *f->candidates);
    f->order = ebb__bump_alloc(&f->bump, n_choices, sizeof *f->order);
    f->key = ebb__bump_alloc(&f->bump, n_choices, sizeof *f->key);
    if (f->room[0] == NULL || f->room[1] == NULL || f->candidates == NULL || f->order == NULL || f->key == NULL) {
        return EBB_E_NO_MEMORY;
    }
    ebb__algorithms_choose(f->m->program, f->m->machine, EBB_ALGORITHMS_FASTEST, f->choice);
    for (size_t s = 0; s < n_steps; s++) { f->bound_ns = ebb__add_ns(f->bound_ns, ns_of(f, s, f->choice[s])); }
    f->n_tries = N_FIXED_WAYS + ebb_min_u64(ebb_max_u64(TRY_STEPS / n_steps, MIN_TRIES), MAX_TRIES);
    return EBB_OK;
}

/* Name the least budget of the fixed ways: with it, there is at least the plan of that way. */
static ebb_status refuse(fitting *f, ebb_no_fit *no_fit_out) {
    static const ebb_algorithms how[N_FIXED_WAYS] = {EBB_ALGORITHMS_LEAST, EBB_ALGORITHMS_GIVEN,
                                                     EBB_ALGORITHMS_FASTEST};
    const size_t n_bytes = f->view.n_steps * sizeof *f->choice;
    uint64_t least_bytes = UINT64_MAX;
    f->m->is_hasty = false;
    for (size_t i = 0; i < N_FIXED_WAYS; i++) {
        uint64_t bytes = 0;
        ebb__algorithms_choose(f->m->program, f->m->machine, how[i], f->choice);
        if (i > 0 && memcmp(f->choice, f->best_choice, n_bytes) == 0) { continue; }
        ebb__maker_choose(f->m, f->choice);
        EBB_TRY(ebb__maker_find_least(f->m, &bytes));
        if (bytes >= least_bytes) { continue; }
        least_bytes = bytes;
        copy_choices(f, f->best_choice, f->choice);
    }
    ebb__maker_choose(f->m, f->best_choice);
    return ebb__maker_refuse(f->m, least_bytes, no_fit_out);
}

ebb_status ebb__fitting_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    fitting f = {.m = m, .view = ebb__plan_view(m->program)};
    ebb__bump_init(&f.bump, m->mem);
    ebb_status st = init_fitting(&f);
    if (st == EBB_OK) { st = search(&f); }
    if (st == EBB_OK) {
        *plan_out = f.best;
        f.best = NULL;
    } else if (st == EBB_E_NO_FIT) {
        st = refuse(&f, no_fit_out);
    }
    ebb_plan_destroy(f.best);
    ebb__maker_choose(m, NULL);
    ebb__bump_fini(&f.bump);
    return st;
}
