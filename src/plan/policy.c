/* SPDX-License-Identifier: Apache-2.0
 *
 * From a policy to a plan: the policy drafts, the draft becomes stays and slots, the placer gives them offsets, the
 * validator looks at the result.
 *
 * A policy that keeps a limit keeps it for the load, the bytes that are there at one position; placed, they may need
 * more. So the limit that it is given goes down until the placed peak is within the budget, at last to the program's
 * floor, below which there is nothing to be tried. What liveness needs is enough for any such policy, because nothing
 * has to leave then.
 *
 * When there is no plan, the least budget for which there is one is searched between the floor (tried itself) and
 * what liveness needs, by making plans: what the message names has been done.
 */
#include "ebb/place.h"
#include "plan/plan_priv.h"

#include <inttypes.h>

#define MAX_ROUNDS 5
#define MAX_RISES 2

/* The placer's work: so much a try of fit_rounds and of the search for the least budget, ... */
#define QUICK_WORK (EBB_PLACE_STEPS / 16)
#define WORK_A_STAY 64u /* ... and this; */
/* and where nothing is tried after it, of programs that are not large. */
#define THOROUGH_WORK (EBB_PLACE_STEPS / 4)
#define MAX_THOROUGH_STEPS 20000u

static const ebb_policy *const policies[] = {&ebb__policy_none, &ebb__policy_liveness, &ebb__policy_budget};
#define N_POLICIES (sizeof policies / sizeof policies[0])

const char *ebb_policy_name(size_t idx, const char **about_out) {
    if (idx >= N_POLICIES) { return NULL; }
    if (about_out != NULL) { *about_out = policies[idx]->about; }
    return policies[idx]->name;
}

typedef struct maker {
    const ebb_program *program;
    const ebb_machine *machine;
    const ebb_plan_options *options;
    const ebb_policy *policy;
    const ebb_mem *mem;
    uint64_t alignment, floor_bytes;
    uint64_t place_work;
    uint64_t liveness_bytes;    /* placed */
    uint64_t limit_floor_bytes; /* what the limit of the floor needs, placed; 0: not known yet */
    ebb_draft draft;
} maker;

/* Room for the placer's side of a plan. */
typedef struct placing {
    ebb_place_problem problem;
    ebb_place_options options;
    ebb_place_item *items;
    uint64_t *offsets;
    uint64_t work;
} placing;

static ebb_status place_items(placing *p, size_t n, uint64_t enough_bytes, uint64_t *peak_out) {
    p->problem.items = p->items;
    p->problem.n_items = n;
    p->options.enough_bytes = enough_bytes;
    p->options.max_steps = p->work + WORK_A_STAY * n;
    ebb_place_result result = {0};
    if (n > 0) { EBB_TRY(ebb_place_solve(&p->problem, &p->options, p->offsets, &result)); }
    *peak_out = result.peak_bytes;
    return EBB_OK;
}

static ebb_status place_stays(placing *p, ebb_plan *plan, uint64_t enough_bytes, uint64_t *peak_out) {
    for (size_t i = 0; i < plan->stays.n; i++) {
        const ebb_stay *s = &plan->stays.data[i];
        p->items[i] = (ebb_place_item){.size_bytes = s->size_bytes, .first = s->first, .last = s->last};
    }
    EBB_TRY(place_items(p, plan->stays.n, enough_bytes, peak_out));
    for (size_t i = 0; i < plan->stays.n; i++) { plan->stays.data[i].offset = p->offsets[i]; }
    return EBB_OK;
}

/* A tier has room as a rule, so a peak within a sixteenth of the bound is enough there. */
static ebb_status place_slots(placing *p, ebb_plan *plan, uint32_t tier, uint64_t *peak_out) {
    size_t n = 0;
    uint64_t bound = 0;
    for (size_t i = 0; i < plan->slots.n; i++) {
        const ebb_slot *s = &plan->slots.data[i];
        if (s->tier != tier) { continue; }
        p->items[n++] = (ebb_place_item){.size_bytes = s->size_bytes, .first = s->first, .last = s->last};
    }
    p->problem.items = p->items;
    p->problem.n_items = n;
    if (n > 0) { EBB_TRY(ebb_place_bound(&p->problem, p->options.mem, &bound)); }
    EBB_TRY(place_items(p, n, bound + bound / 16, peak_out));
    n = 0;
    for (size_t i = 0; i < plan->slots.n; i++) {
        if (plan->slots.data[i].tier == tier) { plan->slots.data[i].offset = p->offsets[n++]; }
    }
    return EBB_OK;
}

/* What a try came to: placed peaks, of the arena and of the tiers. */
typedef struct outcome {
    uint64_t peak_bytes, tier_bytes[EBB_N_TIERS];
} outcome;

static ebb_status place_plan(const maker *m, ebb_plan *plan, uint64_t enough_bytes, outcome *outcome_out) {
    size_t n = plan->stays.n > plan->slots.n ? plan->stays.n : plan->slots.n;
    placing p = {.problem = EBB_PLACE_PROBLEM_INIT, .options = EBB_PLACE_OPTIONS_INIT, .work = m->place_work};
    p.options.mem = m->mem;
    p.problem.alignment_bytes = m->alignment;
    p.problem.period = plan->actions.n;
    p.items = ebb__alloc(m->mem, n, sizeof *p.items);
    p.offsets = ebb__alloc(m->mem, n, sizeof *p.offsets);
    ebb_status st = p.items != NULL && p.offsets != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (st == EBB_OK) { st = place_stays(&p, plan, enough_bytes, &outcome_out->peak_bytes); }
    for (uint32_t tier = 0; st == EBB_OK && tier < EBB_N_TIERS; tier++) {
        st = place_slots(&p, plan, tier, &outcome_out->tier_bytes[tier]);
    }
    ebb__free(m->mem, p.items);
    ebb__free(m->mem, p.offsets);
    return st;
}

/* Draft, sweep, place, once; a placed peak of enough_bytes will do. EBB_E_NO_FIT without a message: the policy finds no
 * way within these limits. */
static ebb_status try_policy(maker *m, const ebb_policy *policy, const ebb_policy_input *input, uint64_t enough_bytes,
                             ebb_plan **plan_out, outcome *outcome_out) {
    ebb_plan *plan = NULL;
    ebb__draft_reset(&m->draft, m->program);
    EBB_TRY(policy->draft(input, &m->draft));
    EBB_TRY(ebb__plan_create(m->mem, m->policy->name, &plan));
    plan->budget_bytes = m->options->budget_bytes;
    plan->fingerprint = ebb_program_fingerprint(m->program);
    ebb_status st = ebb__draft_to_plan(&m->draft, m->program, plan);
    if (st == EBB_OK) { st = place_plan(m, plan, enough_bytes, outcome_out); }
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

static ebb_policy_input make_input(const maker *m, uint64_t limit_bytes) {
    ebb_policy_input input = {.program = m->program, .machine = m->machine, .mem = m->mem, .limit_bytes = limit_bytes};
    memcpy(input.tier_bytes, m->options->tier_bytes, sizeof input.tier_bytes);
    return input;
}

/* Whether it fits; if not, the limits for the next try. */
static bool tighten(const maker *m, uint64_t budget_bytes, const outcome *got, ebb_policy_input *input) {
    bool fits = true;
    for (uint32_t tier = 0; tier < EBB_N_TIERS; tier++) {
        uint64_t cap = m->options->tier_bytes[tier];
        if (got->tier_bytes[tier] <= cap) { continue; }
        uint64_t over = got->tier_bytes[tier] - cap;
        input->tier_bytes[tier] -= ebb_min_u64(over, input->tier_bytes[tier]);
        input->early_out = fits = false;
    }
    if (got->peak_bytes <= budget_bytes) { return fits; }
    /* What the placer lost this time it will lose again, and more under a lower limit; at least something must
     * change. */
    double share = (double)budget_bytes / (double)got->peak_bytes;
    share = share < 127.0 / 128 ? share * share : 63.0 / 64;
    uint64_t limit = (uint64_t)((double)input->limit_bytes * share);
    input->limit_bytes = ebb_max_u64(limit / m->alignment * m->alignment, m->floor_bytes);
    return false;
}

/* A plan that fits, the limits that led to it, and the lowest limit above that is known not to, if one is. */
typedef struct fitted {
    ebb_plan *plan;
    ebb_policy_input input;
    uint64_t failed_bytes;
} fitted;

/* A load of all the budget is hardly ever placed within it, so the first limit is a little lower. The last is the
 * floor. */
static ebb_status fit_rounds(maker *m, uint64_t budget_bytes, fitted *fitted_out) {
    ebb_policy_input input = make_input(m, (budget_bytes - budget_bytes / 64) / m->alignment * m->alignment);
    uint64_t failed_bytes = budget_bytes;
    input.limit_bytes = ebb_max_u64(input.limit_bytes, m->floor_bytes);
    input.early_out = input.early_in = true;
    for (int round = 0; round < MAX_ROUNDS; round++) {
        ebb_plan *plan = NULL;
        outcome got = {0};
        if (round == MAX_ROUNDS - 1) { input.limit_bytes = m->floor_bytes; }
        ebb_policy_input before = input;
        if (input.limit_bytes == m->floor_bytes && m->limit_floor_bytes > budget_bytes) { break; } /* known to fail */
        EBB_TRY(try_policy(m, m->policy, &input, budget_bytes, &plan, &got));
        if (tighten(m, budget_bytes, &got, &input)) {
            *fitted_out = (fitted){plan, before, failed_bytes};
            return EBB_OK;
        }
        ebb_plan_destroy(plan);
        if (input.limit_bytes < before.limit_bytes) { failed_bytes = before.limit_bytes; }
        bool same_tiers = memcmp(before.tier_bytes, input.tier_bytes, sizeof input.tier_bytes) == 0;
        if (before.limit_bytes == m->floor_bytes && same_tiers && before.early_out == input.early_out) { break; }
    }
    return EBB_E_NO_FIT;
}

static uint64_t work_for(const maker *m) {
    size_t n_steps = 0;
    (void)ebb_program_steps(m->program, &n_steps);
    return n_steps <= MAX_THOROUGH_STEPS ? THOROUGH_WORK : QUICK_WORK;
}

static ebb_status is_faster(const maker *m, const ebb_plan *a, const ebb_plan *b, bool *faster_out) {
    ebb_timeline time_a = {0}, time_b = {0};
    EBB_TRY(ebb_plan_simulate(m->program, a, m->machine, &time_a, NULL, NULL));
    EBB_TRY(ebb_plan_simulate(m->program, b, m->machine, &time_b, NULL, NULL));
    *faster_out = time_a.iteration_ns < time_b.iteration_ns;
    return EBB_OK;
}

/* A limit between the one that fits and one that does not. */
static ebb_status try_higher(maker *m, uint64_t budget_bytes, fitted *f) {
    ebb_plan *plan = NULL;
    outcome got = {0};
    ebb_policy_input input = f->input;
    input.limit_bytes += (f->failed_bytes - input.limit_bytes) / 2 / m->alignment * m->alignment;
    ebb_policy_input before = input;
    ebb_status st = try_policy(m, m->policy, &input, budget_bytes, &plan, &got);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    if (st == EBB_E_NO_FIT || !tighten(m, budget_bytes, &got, &input)) {
        f->failed_bytes = before.limit_bytes;
        ebb_plan_destroy(plan);
        return EBB_OK;
    }
    bool faster = false;
    st = is_faster(m, plan, f->plan, &faster);
    if (faster) {
        ebb_plan *slower = f->plan;
        f->plan = plan;
        plan = slower;
    }
    f->input = before;
    ebb_plan_destroy(plan);
    return st;
}

/* The rounds go down in large steps, so a higher limit may do; it is tried where that takes little, and placed with
 * more care. */
static ebb_status raise_limit(maker *m, uint64_t budget_bytes, fitted *f) {
    ebb_status st = EBB_OK;
    if (work_for(m) != THOROUGH_WORK) { return EBB_OK; }
    m->place_work = THOROUGH_WORK;
    for (int i = 0; st == EBB_OK && i < MAX_RISES; i++) {
        if (f->failed_bytes - f->input.limit_bytes <= budget_bytes / 64 + m->alignment) { break; }
        st = try_higher(m, budget_bytes, f);
    }
    m->place_work = QUICK_WORK;
    return st;
}

/* The plan of the policy liveness, and its peak. */
static ebb_status make_liveness(maker *m, ebb_plan **plan_out, uint64_t *peak_out) {
    ebb_policy_input input = make_input(m, UINT64_MAX);
    outcome got = {0};
    m->place_work = work_for(m);
    ebb_status st = try_policy(m, &ebb__policy_liveness, &input, 0, plan_out, &got);
    m->place_work = QUICK_WORK;
    *peak_out = got.peak_bytes;
    return st;
}

/* A plan within a budget, for a policy that keeps one. EBB_E_NO_FIT without a message: there is none. */
static ebb_status fit(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    fitted f = {0};
    if (budget_bytes < m->floor_bytes) { return EBB_E_NO_FIT; }
    EBB_TRY(fit_rounds(m, budget_bytes, &f));
    ebb_status st = raise_limit(m, budget_bytes, &f);
    if (st != EBB_OK) {
        ebb_plan_destroy(f.plan);
        return st;
    }
    *plan_out = f.plan;
    return EBB_OK;
}

/* A budget for which there is a plan: what the limit of the floor needs, placed, which is the last that fit tries
 * for any budget; or what liveness needs. */
static ebb_status find_enough(maker *m, uint64_t *enough_out) {
    ebb_policy_input input = make_input(m, m->floor_bytes);
    input.early_out = input.early_in = true;
    ebb_plan *plan = NULL;
    outcome got = {0};
    *enough_out = m->liveness_bytes;
    ebb_status st = try_policy(m, m->policy, &input, m->floor_bytes, &plan, &got);
    ebb_plan_destroy(plan);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    m->limit_floor_bytes = st == EBB_OK ? got.peak_bytes : UINT64_MAX;
    if (st == EBB_E_NO_FIT) { return EBB_OK; }
    if (!tighten(m, got.peak_bytes, &got, &input)) { return EBB_OK; } /* a tier is too small */
    if (got.peak_bytes > m->options->budget_bytes) { *enough_out = ebb_min_u64(got.peak_bytes, m->liveness_bytes); }
    return EBB_OK;
}

/* The least budget above one that has no plan: the floor, or by halving what lies between it and enough. What is named
 * must work, so the last candidate that had a plan is named: what was enough once, placed for itself, need not be so
 * again when it is the budget. */
static ebb_status find_least(maker *m, uint64_t *least_out) {
    uint64_t low = ebb_max_u64(m->options->budget_bytes, m->floor_bytes), high = 0;
    EBB_TRY(find_enough(m, &high));
    uint64_t candidate = m->options->budget_bytes < m->floor_bytes ? m->floor_bytes : high;
    bool is_tried = false; /* high */
    while (candidate < m->liveness_bytes) {
        fitted f = {0};
        ebb_status st = fit_rounds(m, candidate, &f);
        ebb_plan_destroy(f.plan);
        if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
        if (st == EBB_OK) {
            high = candidate;
            is_tried = true;
        } else {
            low = candidate;
            if (candidate >= high) { high = m->liveness_bytes; }
        }
        if (high == m->floor_bytes) { break; }
        candidate = ebb_align_up(low + (high - low) / 2, m->alignment);
        if (high - low > ebb_max_u64(m->alignment, high / 100) && candidate < high) { continue; }
        if (is_tried) { break; }
        candidate = high;
    }
    *least_out = high;
    return EBB_OK;
}

static ebb_status explain(const maker *m, uint64_t least_bytes, ebb_no_fit *no_fit_out) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(m->program, &n_steps);
    ebb_no_fit no_fit = {.least_budget_bytes = least_bytes};
    no_fit.step_bytes = ebb_program_floor_bytes(m->program, &no_fit.step);
    if (no_fit_out != NULL) { *no_fit_out = no_fit; }
    return ebb_fail(EBB_E_NO_FIT,
                    "a budget of %" PRIu64 " bytes is too small for policy %s: step %u '%s' alone touches %" PRIu64
                    " bytes; the least budget is %" PRIu64 " bytes",
                    m->options->budget_bytes, m->policy->name, no_fit.step,
                    no_fit.step < n_steps ? steps[no_fit.step].name : "", no_fit.step_bytes, least_bytes);
}

static ebb_status make_fixed(maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    ebb_policy_input input = make_input(m, UINT64_MAX);
    ebb_plan *plan = NULL;
    outcome got = {0};
    m->place_work = work_for(m);
    EBB_TRY(try_policy(m, m->policy, &input, 0, &plan, &got));
    if (got.peak_bytes > m->options->budget_bytes) {
        ebb_plan_destroy(plan);
        return explain(m, got.peak_bytes, no_fit_out);
    }
    *plan_out = plan;
    return EBB_OK;
}

static ebb_status make_within(maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    ebb_plan *plan = NULL;
    EBB_TRY(make_liveness(m, &plan, &m->liveness_bytes));
    if (m->liveness_bytes <= m->options->budget_bytes) {
        *plan_out = plan;
        return EBB_OK;
    }
    ebb_plan_destroy(plan);
    ebb_status st = fit(m, m->options->budget_bytes, plan_out);
    if (st != EBB_E_NO_FIT) { return st; }
    uint64_t least_bytes = 0;
    EBB_TRY(find_least(m, &least_bytes));
    return explain(m, least_bytes, no_fit_out);
}

static const ebb_policy *find_policy(const char *name) {
    for (size_t i = 0; i < N_POLICIES; i++) {
        if (name != NULL && strcmp(policies[i]->name, name) == 0) { return policies[i]; }
    }
    return NULL;
}

ebb_status ebb_plan_make(const ebb_program *program, const ebb_machine *machine, const ebb_plan_options *options,
                         ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    maker m = {.program = program, .machine = machine, .options = options, .place_work = QUICK_WORK};
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "ebb_plan_options of %zu bytes", options->size_bytes);
    }
    m.policy = find_policy(options->policy);
    if (m.policy == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "no policy is called '%s'", options->policy != NULL ? options->policy : "");
    }
    m.mem = ebb__mem_or_default(options->mem);
    m.alignment = ebb_program_alignment_bytes(program);
    m.floor_bytes = ebb_program_floor_bytes(program, NULL);
    EBB_TRY(ebb__draft_init(&m.draft, program, m.mem));
    ebb_plan *plan = NULL;
    ebb_status st = m.policy->keeps_limit ? make_within(&m, &plan, no_fit_out) : make_fixed(&m, &plan, no_fit_out);
    ebb__draft_fini(&m.draft);
    if (st == EBB_OK) { st = ebb__plan_seal(plan); }
    if (st == EBB_OK) { st = ebb_plan_check(program, plan); }
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}
