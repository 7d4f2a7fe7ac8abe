/* SPDX-License-Identifier: Apache-2.0
 *
 * From a policy to a plan, with the choices of algorithm at hand: the policy drafts, the draft becomes stays and slots,
 * the placer gives them offsets.
 *
 * A policy that keeps a limit keeps it for the load: the bytes that are there at one position. Their placement may need
 * more. So the policy is given limits below the budget. These are the rungs of a ladder:
 *
 *      floor = rung 0 < rung 1 < rung 2 < ...
 *
 * Each rung is a small part above the one before it. The ladder begins at the program's floor, and neither it nor the
 * plan of a rung depends on the budget. This makes two things exact:
 *
 *  1. Whatever fits a budget fits every larger one. A budget has a plan if it holds the plan that the policy wants
 * where it fits, or if there is a rung whose placed plan it holds; when the rungs just below the budget do not serve,
 * all others are tried.
 *  2. The least budget that a refusal names is the least that is accepted: it is the least that this plan or the plan
 * of any rung needs.
 *
 * Where no rung serves, the policy's other drafts under the lowest rungs are tried. They come in a fixed order, and
 * each counts only if it needs less than all before it, so both stay exact. Below that, other policies are asked whose
 * ladders may begin lower (contest.c); each of them is exact in the same way.
 *
 * A policy weighs times, and measured times differ from run to run. So whether a budget has a plan is decided with
 * machines whose times are always the same (the nominal ones: a present desktop, one whose copies cost nothing, and one
 * whose copies cost more than computing). A budget that was accepted once is accepted always.
 *
 * Then comes speed: a plan with the machine's own times, under the highest limit that serves within a few tries. These
 * limits are the budget's own, not rungs. If none of them serves, the nominal machine's plan is taken, and says so; for
 * a policy that searches also where it is clearly the faster one.
 */
#include "plan/maker.h"
#include "ebb/place.h"

#include <inttypes.h>

#define MAX_TRIES 5
#define MAX_RISES 4
#define MAX_LARGE_RISES 2

/* Programs of more steps are large: their plans take seconds, so the tries are few. */
#define MAX_SMALL_STEPS 20000u

/* A rung is this part above the one before it: the more steps, the fewer rungs. */
#define LADDER_STEPS ((uint64_t)1 << 15)
#define MIN_LADDER_PARTS 16u
#define MAX_LADDER_PARTS 64u

/* The policy's other drafts are tried under this many of the lowest rungs; the more steps, the fewer tries. */
#define LOW_RUNGS 2u
#define LOW_STEPS ((size_t)1 << 14)
#define MIN_LOW_TRIES 8u

/* The placer's work: for the plan of a rung; for a last plan, of a program that is not large. */
#define QUICK_WORK EBB_PLACING_QUICK
#define HASTY_WORK (EBB_PLACE_STEPS / 1024) /* of a hasty maker, and for a plan that is too slow anyway */
#define FIRST_WORK (EBB_PLACE_STEPS / 256)  /* of a first plan that the first sweep does not place */
#define THOROUGH_WORK (EBB_PLACE_STEPS / 4)
#define FULL_WORK EBB_PLACE_STEPS /* with the machine's own times: what is lost here is lost for good */

/* The nominal machine's plan is made for a lower limit, and is taken only if it wins more than this part of the time
 * that the policy's plan takes before a search. */
#define WORTH_NOMINAL 0.001

/* What a plan takes where a lower limit is tried, too, in times of computing each step once. */
#define SLOW 1.15
#define SLOW_FIRST 1.3 /* the same of a first plan of a small program */

/* A rival's plan that takes this many times as long as the plan at hand gets no better limit. */
#define NEAR 1.1

#define UNKNOWN 0u /* no plan needs no bytes */

typedef ebb_maker maker;

/* ---- a try ------------------------------------------------------------------------------------- */

/* Draft for the reordered program, and name the steps as the program does. */
static ebb_status draft_turned(maker *m, const ebb_policy *policy, const ebb_policy_input *input) {
    ebb_policy_input turned = *input;
    turned.program = m->reordered.program;
    turned.choice = m->reordered.choice;
    EBB_TRY(policy->draft(&turned, &m->draft));
    for (size_t i = 0; i < m->draft.actions.n; i++) {
        ebb_action *action = &m->draft.actions.data[i].action;
        if (ebb__action_computes(action)) { action->target = m->reordered.order[action->target]; }
    }
    return EBB_OK;
}

/* Draft and sweep. EBB_E_NO_FIT without a message: the policy finds no way within these limits. */
static ebb_status draft_plan(maker *m, const ebb_policy *policy, const ebb_policy_input *input, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    ebb__draft_reset(&m->draft, m->program);
    EBB_TRY(m->is_turned ? draft_turned(m, policy, input) : policy->draft(input, &m->draft));
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__draft_is_valid(&m->draft, m->program));
    EBB_TRY(ebb__plan_create(m->mem, m->options->policy, ebb_machine_topology(m->machine), &plan));
    plan->budget_bytes = m->options->budget_bytes;
    plan->fingerprint = m->fingerprint;
    plan->alignment_bytes = m->alignment;
    ebb_status st = ebb__draft_to_plan(&m->draft, m->program, plan);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

/* A peak of enough_bytes will do; above limit_bytes the plan will not be taken. */
static ebb_status place(const maker *m, ebb_plan *plan, uint64_t work, uint64_t enough_bytes, uint64_t limit_bytes,
                        ebb_placed *placed_out) {
    if (m->is_hasty) { work = m->is_first ? 0 : HASTY_WORK; }
    ebb_placing_options options = {.alignment = m->alignment,
                                   .work = work,
                                   .enough_bytes = m->is_first ? limit_bytes : enough_bytes,
                                   .limit_bytes = limit_bytes};
    memcpy(options.tier_bytes, m->options->tier_bytes, sizeof options.tier_bytes);
    EBB_TRY(ebb__plan_place(plan, &options, placed_out));
    if (!m->is_first || m->is_large || placed_out->peak_bytes <= limit_bytes) { return EBB_OK; }
    options.work = FIRST_WORK;
    return ebb__plan_place(plan, &options, placed_out);
}

static ebb_policy_input make_input(maker *m, const ebb_machine *machine, uint64_t limit_bytes, uint64_t budget_bytes) {
    ebb_policy_input input = {.program = m->program,
                              .machine = machine,
                              .mem = m->mem,
                              .choice = m->choice,
                              .limit_bytes = limit_bytes,
                              .budget_bytes = budget_bytes};
    if (m->to_beat_ns < UINT64_MAX / 2 && machine == m->machine) {
        input.worth_ns = (uint64_t)(NEAR * (double)m->to_beat_ns);
    }
    input.is_hasty = m->is_hasty || machine != m->machine;
    input.walks = m->walks;
    input.effort = m->effort;
    input.kept = m->policy->rivals != NULL && m->options->effort > 0 && !m->is_hasty ? &m->kept : NULL;
    input.other = m->other;
    input.as_coded = m->options->as_coded;
    input.n_threads = m->options->n_threads;
    input.progress = m->effort > 0 ? &m->options->progress : NULL;
    input.options = m->options;
    input.known_order = m->is_order_known ? m->reordered.order : NULL;
    input.copies_only = m->options->no_recompute || m->policy->copies_only;
    memcpy(input.tier_bytes, m->options->tier_bytes, sizeof input.tier_bytes);
    return input;
}

/* The least peak of a load: it is rounded up to the alignment, and the end of the highest stay is not. */
static uint64_t least_peak(const maker *m, uint64_t load_bytes) {
    return load_bytes - ebb_min_u64(load_bytes, m->alignment - 1);
}

/* The machine and the limits that a plan is made for. */
typedef struct aim {
    const ebb_machine *machine;
    uint64_t limit_bytes;  /* of the load */
    uint64_t work;         /* of the placer */
    uint64_t enough_bytes; /* a peak that will do */
    uint64_t budget_bytes; /* above which the plan will not be taken */
} aim;

/* Whether the tiers hold what is placed in them. If not, input gets lower limits for the next try. */
static bool tighten(const maker *m, const ebb_placed *got, ebb_policy_input *input) {
    bool fits = true;
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        uint64_t cap = m->options->tier_bytes[tier];
        if (got->tier_bytes[tier] <= cap) { continue; }
        uint64_t over = got->tier_bytes[tier] - cap;
        input->tier_bytes[tier] -= ebb_min_u64(over, input->tier_bytes[tier]);
        input->early_out = fits = false;
    }
    return fits;
}

ebb_status ebb__maker_time(const ebb_maker *m, const ebb_plan *plan, uint64_t *time_ns_out) {
    ebb_timeline timeline = {0};
    EBB_TRY(ebb_plan_simulate(m->program, plan, m->machine, &timeline, NULL, NULL));
    *time_ns_out = timeline.iteration_ns;
    return EBB_OK;
}

/* Whether a plan takes this many times as long as the one to beat. Placing it can change its time only a little. */
static ebb_status is_beaten(const maker *m, const ebb_plan *plan, double times, bool *beaten_out) {
    uint64_t time_ns = 0;
    *beaten_out = false;
    if (m->to_beat_ns == UINT64_MAX) { return EBB_OK; }
    EBB_TRY(ebb__maker_time(m, plan, &time_ns));
    *beaten_out = (double)time_ns >= times * (double)m->to_beat_ns;
    return EBB_OK;
}

/* What comes out of a search has been placed by it, with one of the lower works. */
static ebb_status place_well(const maker *m, ebb_plan *plan, const aim *a, ebb_placed *placed_out) {
    const uint64_t work[] = {EBB_PLACING_QUICK, EBB_PLACING_SET, EBB_PLACING_ROUND, a->work};
    for (size_t n = sizeof work / sizeof work[0], i = m->effort > 0 ? 0 : n - 1; i < n; i++) {
        EBB_TRY(place(m, plan, work[i], a->enough_bytes, a->budget_bytes, placed_out));
        if (placed_out->peak_bytes <= a->enough_bytes) { break; }
    }
    return EBB_OK;
}

/* Placing is worth much work only for a plan that wins. */
static ebb_status place_rival(const maker *m, ebb_plan *plan, const aim *a, ebb_placed *placed_out) {
    bool is_out = false;
    EBB_TRY(place(m, plan, HASTY_WORK, a->enough_bytes, a->budget_bytes, placed_out));
    EBB_TRY(is_beaten(m, plan, 1, &is_out));
    if (is_out || placed_out->peak_bytes <= a->enough_bytes) { return EBB_OK; }
    return place_well(m, plan, a, placed_out);
}

/* Draft a plan and place it. *plan_out NULL: its load alone is above the budget; the peak in *placed_out is then the
 * least that it could have. */
static ebb_status try_input(maker *m, const ebb_policy_input *input, const aim *a, ebb_plan **plan_out,
                            ebb_placed *placed_out) {
    ebb_plan *plan = NULL;
    uint64_t bound_bytes = 0;
    EBB_TRY(draft_plan(m, m->policy, input, &plan));
    ebb_status st = ebb__plan_bound(plan, m->alignment, &bound_bytes);
    placed_out->peak_bytes = least_peak(m, bound_bytes);
    if (st == EBB_OK && placed_out->peak_bytes > a->budget_bytes && !ebb__has_small_tiers(m->options->tier_bytes)) {
        ebb_plan_destroy(plan);
        *plan_out = NULL;
        return EBB_OK;
    }
    if (st == EBB_OK) {
        st = m->to_beat_ns < UINT64_MAX ? place_rival(m, plan, a, placed_out) : place_well(m, plan, a, placed_out);
    }
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

/* *need_out: the bytes that the plan needs. *plan_out NULL: they are above the budget, and it needs at least that many.
 * EBB_E_NO_FIT without a message: there is no such plan at any budget. */
static ebb_status try_aim(maker *m, const aim *a, ebb_plan **plan_out, uint64_t *need_out) {
    ebb_policy_input input = make_input(m, a->machine, a->limit_bytes, a->budget_bytes);
    EBB_ASSERT(a->limit_bytes >= m->floor_bytes && a->limit_bytes % m->alignment == 0);
    input.early_out = input.early_in = true;
    for (int attempt = 0; attempt < MAX_TRIES; attempt++) {
        ebb_plan *plan = NULL;
        ebb_placed got = {0};
        EBB_TRY(try_input(m, &input, a, &plan, &got));
        const bool fits = tighten(m, &got, &input);
        if (!fits || got.peak_bytes > a->budget_bytes) {
            ebb_plan_destroy(plan);
            plan = NULL;
        }
        if (!fits) { continue; }
        *plan_out = plan;
        *need_out = got.peak_bytes;
        return EBB_OK;
    }
    return EBB_E_NO_FIT;
}

/* ---- the ladder -------------------------------------------------------------------------------- */

/* The plan of a rung on a nominal machine. EBB_E_NO_FIT without a message: the budget does not hold it. Everything
 * learned of its need is remembered. */
static ebb_status try_rung(maker *m, uint32_t machine, size_t rung, uint64_t budget_bytes, ebb_plan **plan_out) {
    uint64_t *need = &m->rungs.data[rung].need_bytes[machine], peak_bytes = 0;
    const uint64_t limit = m->rungs.data[rung].limit_bytes;
    const aim a = {.machine = m->nominal[machine],
                   .limit_bytes = limit,
                   .work = QUICK_WORK,
                   .enough_bytes = m->is_large ? limit + limit / 64 : limit,
                   .budget_bytes = budget_bytes};
    if (*need > budget_bytes) { return EBB_E_NO_FIT; }
    ebb_plan *plan = NULL;
    ebb_status st = try_aim(m, &a, &plan, &peak_bytes);
    if (st == EBB_OK) { *need = ebb_max_u64(*need, peak_bytes); }
    if (st == EBB_E_NO_FIT) { *need = UINT64_MAX; }
    if (st == EBB_OK && plan == NULL) { return EBB_E_NO_FIT; }
    if (st == EBB_OK) { *plan_out = plan; }
    return st;
}

/* ---- within a budget --------------------------------------------------------------------------- */

static bool searches(const maker *m) {
    return m->policy->rivals != NULL;
}

/* A policy that searches and has no tier for copies has its first drafts quickly, so a limit is looked for that leaves
 * little of the budget. */
static bool is_thrifty(const maker *m) {
    return searches(m) && !ebb__has_tiers(m->options->tier_bytes);
}

/* The placer will lose as much again, and more under a lower limit. The limit falls by a 64th at least. */
static uint64_t shrink(uint64_t limit_bytes, uint64_t budget_bytes, uint64_t need_bytes) {
    const double share = (double)budget_bytes / (double)need_bytes;
    EBB_ASSERT(share >= 0 && share <= 1);
    return (uint64_t)((double)limit_bytes * (share < 127.0 / 128 ? share * share : 63.0 / 64));
}

/* Try rungs below the budget, in large steps down, and the lowest last. */
static ebb_status go_down(maker *m, uint32_t machine, uint64_t budget_bytes, ebb_plan **plan_out) {
    size_t rung = 0;
    EBB_TRY(ebb__ladder_find(m, ebb__load_limit(budget_bytes), &rung));
    for (int attempt = 0; attempt < MAX_TRIES; attempt++) {
        if (attempt == MAX_TRIES - 1) { rung = 0; }
        const ebb_status st = try_rung(m, machine, rung, budget_bytes, plan_out);
        if (st != EBB_E_NO_FIT || rung == 0) { return st; }
        const ebb_rung *failed = &m->rungs.data[rung];
        const uint64_t bytes = shrink(failed->limit_bytes, budget_bytes, failed->need_bytes[machine]);
        const size_t below = rung - 1;
        EBB_TRY(ebb__ladder_find(m, bytes, &rung));
        rung = ebb_min_u64(rung, below);
    }
    return EBB_E_NO_FIT;
}

/* Try all rungs but the lowest, from the highest that is not above the budget. */
static ebb_status try_others(maker *m, uint32_t machine, uint64_t budget_bytes, ebb_plan **plan_out) {
    size_t rung = 0;
    EBB_TRY(ebb__ladder_find(m, budget_bytes, &rung));
    for (; rung > 0; rung--) {
        const ebb_status st = try_rung(m, machine, rung, budget_bytes, plan_out);
        if (st != EBB_E_NO_FIT) { return st; }
    }
    return EBB_E_NO_FIT;
}

/* EBB_E_NO_FIT without a message: the budget has no plan. */
ebb_status ebb__maker_fit_nominal(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_status st = EBB_E_NO_FIT;
    for (uint32_t i = 0; i < m->n_nominal && st == EBB_E_NO_FIT; i++) {
        st = go_down(m, i, budget_bytes, plan_out);
        if (st == EBB_E_NO_FIT) { st = try_others(m, i, budget_bytes, plan_out); }
    }
    return st;
}

/* ---- the least --------------------------------------------------------------------------------- */

static ebb_status find_fitting(maker *m, uint64_t most_bytes);

/* Lower *least if the plan of a rung needs less. */
static ebb_status ask_rung(maker *m, size_t rung, uint64_t *least) {
    for (uint32_t i = 0; i < m->n_nominal; i++) {
        ebb_plan *plan = NULL;
        const ebb_status st = try_rung(m, i, rung, *least - 1, &plan);
        ebb_plan_destroy(plan);
        if (st == EBB_E_NO_FIT) { continue; }
        if (st != EBB_OK) { return st; }
        EBB_ASSERT(m->rungs.data[rung].need_bytes[i] < *least);
        *least = m->rungs.data[rung].need_bytes[i];
    }
    return EBB_OK;
}

/* The least that the plan where it fits or any rung needs. */
static ebb_status find_least_rung(maker *m, uint64_t *least_out) {
    uint64_t least = UINT64_MAX;
    EBB_TRY(ebb__ladder_extend(m, 0));
    EBB_TRY(ask_rung(m, 0, &least));
    if (m->fitting_bytes == UNKNOWN) { EBB_TRY(find_fitting(m, least)); } /* placing it may be spared */
    if (m->fitting_bytes != UNKNOWN) { least = ebb_min_u64(least, m->fitting_bytes); }
    for (size_t rung = 1; least > m->floor_bytes; rung++) {
        EBB_TRY(ebb__ladder_extend(m, m->rungs.data[rung - 1].limit_bytes));
        EBB_ASSERT(rung < m->rungs.n); /* under a limit that holds all tensors each policy has a plan */
        if (m->rungs.data[rung].limit_bytes >= least) { break; }
        EBB_TRY(ask_rung(m, rung, &least));
    }
    *least_out = least;
    return EBB_OK;
}

/* Lower *least if this other draft under a rung needs less; the plan is then the caller's. */
static ebb_status try_other(maker *m, uint32_t other, uint64_t limit_bytes, uint64_t *least, ebb_plan **plan_out) {
    const aim a = {.machine = m->nominal[0],
                   .limit_bytes = limit_bytes,
                   .work = QUICK_WORK,
                   .enough_bytes = limit_bytes,
                   .budget_bytes = *least - 1};
    uint64_t peak_bytes = 0;
    m->other = other;
    const ebb_status st = try_aim(m, &a, plan_out, &peak_bytes);
    m->other = 0;
    if (st == EBB_OK && *plan_out != NULL) { *least = peak_bytes; }
    return st == EBB_E_NO_FIT ? EBB_OK : st;
}

/* Go on below the least that a rung needs, until the budget holds a plan. EBB_E_NO_FIT without a message: it holds
 * none, and the least is known. */
static ebb_status go_below(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    uint64_t least = 0;
    EBB_TRY(find_least_rung(m, &least));
    EBB_TRY(ebb__ladder_extend(m, m->rungs.data[0].limit_bytes)); /* LOW_RUNGS at least */
    const size_t n_others = m->is_large ? 0 : m->policy->n_others;
    const size_t n_tries = ebb_max_u64(LOW_STEPS / ebb__plan_view(m->program).n_steps, MIN_LOW_TRIES);
    for (size_t i = 0; i < ebb_min_u64(n_tries, LOW_RUNGS * n_others); i++) {
        ebb_plan *plan = NULL;
        const uint64_t limit_bytes = m->rungs.data[i / n_others].limit_bytes;
        if (least == m->floor_bytes || limit_bytes >= least) { break; }
        EBB_TRY(try_other(m, (uint32_t)(i % n_others) + 1, limit_bytes, &least, &plan));
        if (plan != NULL && least <= budget_bytes) {
            *plan_out = plan;
            return EBB_OK;
        }
        ebb_plan_destroy(plan);
    }
    m->least_bytes = least;
    return EBB_E_NO_FIT;
}

/* ---- the machine's own times ------------------------------------------------------------------- */

typedef ebb_fitted fitted;

/* The first drafts of a policy that searches only tell which limit will do. */
static uint64_t own_work(const maker *m) {
    if (searches(m)) { return m->effort == 0 ? QUICK_WORK : THOROUGH_WORK; }
    return FULL_WORK;
}

/* A large program is tried few times, so its first limit is what fills the budget if the placer loses as much as it did
 * of the nominal machine's plan. */
static uint64_t first_limit(const maker *m, uint64_t budget_bytes) {
    if (is_thrifty(m)) { return ebb__draft_full_load(budget_bytes); }
    return ebb_min_u64(ebb__load_limit(budget_bytes), (uint64_t)((double)budget_bytes / m->loss * (127.0 / 128)));
}

static ebb_status fit_tries(maker *m, uint64_t budget_bytes, fitted *fitted_out) {
    const uint64_t low_bytes = ebb_align_up(m->floor_bytes, m->alignment);
    fitted f = {.limit_bytes = first_limit(m, budget_bytes), .failed_bytes = budget_bytes, .is_turned = m->is_turned};
    for (int attempt = 0; attempt < MAX_TRIES; attempt++) {
        uint64_t need_bytes = 0;
        if (attempt == MAX_TRIES - 1) { f.limit_bytes = low_bytes; }
        f.limit_bytes = ebb_max_u64(f.limit_bytes / m->alignment * m->alignment, low_bytes);
        const aim a = {.machine = m->machine,
                       .limit_bytes = f.limit_bytes,
                       .work = own_work(m),
                       .enough_bytes = budget_bytes,
                       .budget_bytes = budget_bytes};
        const ebb_status st = try_aim(m, &a, &f.plan, &need_bytes);
        if (st == EBB_OK && f.plan != NULL) { *fitted_out = f; }
        if (st != EBB_OK || f.plan != NULL) { return st; }
        if (f.limit_bytes == low_bytes) { break; }
        f.failed_bytes = f.limit_bytes;
        f.limit_bytes = shrink(f.limit_bytes, budget_bytes, need_bytes);
    }
    return EBB_E_NO_FIT;
}

ebb_status ebb__maker_is_faster(const ebb_maker *m, const ebb_plan *a, const ebb_plan *b, bool *faster_out) {
    uint64_t a_ns = 0, b_ns = 0;
    EBB_TRY(ebb__maker_time(m, a, &a_ns));
    EBB_TRY(ebb__maker_time(m, b, &b_ns));
    *faster_out = a_ns < b_ns;
    return EBB_OK;
}

/* The end of the highest stay. */
static uint64_t peak_of(const ebb_plan *plan) {
    uint64_t peak_bytes = 0;
    for (size_t i = 0; i < plan->stays.n; i++) {
        peak_bytes = ebb_max_u64(peak_bytes, plan->stays.data[i].offset + plan->stays.data[i].size_bytes);
    }
    return peak_bytes;
}

/* A limit between the one that fits and one that does not: what would fill the budget if the placer lost as much again,
 * or halfway. For a large program a try that fails takes long, so it is the first where that can be. */
static uint64_t pick_higher(const maker *m, uint64_t budget_bytes, const fitted *f) {
    const double share = (double)budget_bytes / (double)ebb_max_u64(peak_of(f->plan), 1);
    const double filling = (double)f->limit_bytes * share * (127.0 / 128);
    uint64_t limit_bytes = f->limit_bytes + (f->failed_bytes - f->limit_bytes) / 2;
    if (filling > (double)f->limit_bytes && filling < (double)f->failed_bytes) {
        limit_bytes = m->is_large ? (uint64_t)filling : ebb_max_u64(limit_bytes, (uint64_t)filling);
    }
    return limit_bytes / m->alignment * m->alignment;
}

/* One more plan, taken if it is faster. */
static ebb_status try_limit(maker *m, uint64_t limit_bytes, uint64_t budget_bytes, fitted *f, bool *fits_out) {
    ebb_plan *plan = NULL;
    uint64_t need_bytes = 0;
    bool faster = false;
    const aim a = {.machine = m->machine,
                   .limit_bytes = limit_bytes,
                   .work = own_work(m),
                   .enough_bytes = budget_bytes,
                   .budget_bytes = budget_bytes};
    ebb_status st = try_aim(m, &a, &plan, &need_bytes);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    *fits_out = plan != NULL;
    if (plan == NULL) { return EBB_OK; }
    st = ebb__maker_is_faster(m, plan, f->plan, &faster);
    if (faster) {
        ebb_plan *slower = f->plan;
        f->plan = plan;
        f->limit_bytes = limit_bytes;
        plan = slower;
    }
    ebb_plan_destroy(plan);
    return st;
}

static ebb_status try_higher(maker *m, uint64_t budget_bytes, fitted *f) {
    bool fits = false;
    EBB_ASSERT(f->failed_bytes > f->limit_bytes);
    const uint64_t limit_bytes = ebb_max_u64(pick_higher(m, budget_bytes, f), f->limit_bytes);
    EBB_TRY(try_limit(m, limit_bytes, budget_bytes, f, &fits));
    *(fits ? &f->limit_bytes : &f->failed_bytes) = limit_bytes;
    return EBB_OK;
}

/* The limit is found with the first plans that a policy has for each; the search is for that limit alone, so that more
 * effort cannot lead to another limit and a slower plan. */
ebb_status ebb__maker_search_on(ebb_maker *m, uint64_t budget_bytes, ebb_fitted *f) {
    bool fits = false;
    if (m->is_hasty || !searches(m) || m->options->effort == 0) { return EBB_OK; }
    m->effort = m->options->effort;
    m->is_turned = f->is_turned;
    const ebb_status st = try_limit(m, f->limit_bytes, budget_bytes, f, &fits);
    m->is_turned = false;
    m->effort = 0;
    return st;
}

/* The tries go down in large steps, so a higher limit may do, until the budget is used but for a fiftieth. */
static ebb_status raise_limit(maker *m, uint64_t budget_bytes, fitted *f) {
    ebb_status st = EBB_OK;
    if (m->is_hasty) { return EBB_OK; }
    for (int i = 0; st == EBB_OK && i < (m->is_large ? MAX_LARGE_RISES : MAX_RISES); i++) {
        const bool is_used = peak_of(f->plan) >= budget_bytes - budget_bytes / (is_thrifty(m) ? 400 : 50);
        const uint64_t close_bytes = budget_bytes / (is_thrifty(m) ? 256 : 64) + m->alignment;
        if (is_used || f->failed_bytes <= f->limit_bytes + close_bytes) { break; }
        st = try_higher(m, budget_bytes, f);
    }
    return st;
}

/* Where little room is left, most drafts of a policy that searches cannot be placed, and the one that can is slow.
 * Under a lower limit the others may be. */
static ebb_status try_lower(maker *m, uint64_t budget_bytes, fitted *f) {
    const uint64_t limit_bytes = f->limit_bytes / 16 * 15 / m->alignment * m->alignment;
    uint64_t time_ns = 0;
    bool fits = false;
    if (!searches(m) || m->policy->picks_limits || m->is_hasty || m->is_large || limit_bytes < m->floor_bytes) {
        return EBB_OK;
    }
    EBB_TRY(ebb__maker_time(m, f->plan, &time_ns));
    if ((double)time_ns < SLOW * (double)ebb__computing_ns(m->program, m->machine, m->choice)) { return EBB_OK; }
    return try_limit(m, limit_bytes, budget_bytes, f, &fits);
}

/* The fastest plan before a search, in the order of steps at hand. EBB_E_NO_FIT without a message: a few tries found
 * none. */
static ebb_status fit_first(maker *m, uint64_t budget_bytes, fitted *f) {
    uint64_t time_ns = 0;
    bool is_out = false;
    EBB_TRY(fit_tries(m, budget_bytes, f));
    EBB_TRY(is_beaten(m, f->plan, NEAR, &is_out));
    if (!is_out) {
        EBB_TRY(raise_limit(m, budget_bytes, f));
        EBB_TRY(try_lower(m, budget_bytes, f));
    }
    EBB_TRY(ebb__maker_time(m, f->plan, &time_ns));
    m->unsearched_ns = ebb_min_u64(m->unsearched_ns, time_ns);
    return EBB_OK;
}

/* The same in the lower order. Its plan is taken if it is faster. */
static ebb_status fit_turned(maker *m, uint64_t budget_bytes, fitted *f) {
    fitted turned = {0};
    bool is_taken = false;
    m->is_turned = true;
    ebb_status st = fit_first(m, budget_bytes, &turned);
    m->is_turned = false;
    if (st == EBB_OK && f->plan != NULL) { st = ebb__maker_is_faster(m, turned.plan, f->plan, &is_taken); }
    if (f->plan == NULL) { is_taken = st == EBB_OK; }
    ebb_plan_destroy(is_taken ? f->plan : turned.plan);
    if (is_taken) { *f = turned; }
    return st == EBB_E_NO_FIT && f->plan != NULL ? EBB_OK : st;
}

/* The search goes on in the order that is better without it, so that more effort cannot lead to a slower plan. */
ebb_status ebb__maker_fit_unsearched(ebb_maker *m, uint64_t budget_bytes, ebb_fitted *f_out) {
    fitted f = {0};
    const bool has_turned = m->policy->changes_order && m->reordered.program != NULL;
    ebb_status st = fit_first(m, budget_bytes, &f);
    if (has_turned && (st == EBB_OK || st == EBB_E_NO_FIT)) { st = fit_turned(m, budget_bytes, &f); }
    if (st == EBB_OK) {
        *f_out = f;
    } else {
        ebb_plan_destroy(f.plan);
    }
    return st;
}

ebb_status ebb__maker_fit_own(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    fitted f = {0};
    EBB_TRY(ebb__maker_fit_unsearched(m, budget_bytes, &f));
    const ebb_status st = ebb__maker_search_on(m, budget_bytes, &f);
    if (st == EBB_OK) {
        *plan_out = f.plan;
    } else {
        ebb_plan_destroy(f.plan);
    }
    return st;
}

/* How much of a placed plan's peak the placer lost. */
static ebb_status measure_loss(maker *m, const ebb_plan *plan) {
    uint64_t load_bytes = 0;
    EBB_TRY(ebb__plan_bound(plan, m->alignment, &load_bytes));
    m->loss = (double)ebb_max_u64(peak_of(plan), load_bytes) / (double)ebb_max_u64(load_bytes, 1);
    return EBB_OK;
}

/* Whether the nominal machine's plan is the one to take. Whether it is worth it is judged before the search, so that
 * more effort cannot lead to a slower plan. */
static ebb_status is_nominal_best(const maker *m, const ebb_plan *nominal, const ebb_plan *own, bool *best_out) {
    uint64_t nominal_ns = 0;
    EBB_TRY(ebb__maker_time(m, nominal, &nominal_ns));
    *best_out = false;
    if ((double)nominal_ns * (1 + WORTH_NOMINAL) >= (double)m->unsearched_ns) { return EBB_OK; }
    return ebb__maker_is_faster(m, nominal, own, best_out);
}

/* The plan of the first rung that serves, and with the machine's own times the first that fits; the latter, if there is
 * one. The placer is asked for its first sweep, and then for a little more. What it finds, more work finds too, so what
 * has a plan here has one where more is tried. */
static ebb_status fit_in_haste(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan *nominal = NULL;
    fitted own = {0};
    if (budget_bytes < m->floor_bytes) { return EBB_E_NO_FIT; }
    EBB_TRY(go_down(m, 0, budget_bytes, &nominal));
    ebb_status st = m->is_large ? measure_loss(m, nominal) : EBB_OK;
    m->walks = true;
    if (st == EBB_OK) { st = fit_tries(m, budget_bytes, &own); }
    if (st == EBB_E_NO_FIT) {
        m->walks = false;
        st = fit_tries(m, budget_bytes, &own);
    }
    m->walks = false;
    const bool is_nominal = st == EBB_E_NO_FIT;
    if (st != EBB_OK && !is_nominal) {
        ebb_plan_destroy(nominal);
        return st;
    }
    nominal->has_nominal_times = true;
    ebb_plan_destroy(is_nominal ? own.plan : nominal);
    *plan_out = is_nominal ? nominal : own.plan;
    return EBB_OK;
}

/* The same from a ladder of its own: what rungs need is not found exactly. */
static ebb_status fit_first_plan(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    const ebb_ladder own = ebb__ladder_begin(m);
    m->is_first = m->is_hasty = true;
    const ebb_status st = fit_in_haste(m, budget_bytes, plan_out);
    m->is_first = m->is_hasty = false;
    ebb__ladder_end(m, own);
    return st;
}

/* Put the first plan in the place of this one if it is faster, so that effort cannot lead to a slower one. */
static ebb_status keep_first(maker *m, uint64_t budget_bytes, ebb_plan **plan) {
    ebb_plan *first = NULL;
    bool is_first = false;
    ebb_status st = fit_first_plan(m, budget_bytes, &first);
    if (st == EBB_E_NO_FIT) { return EBB_OK; }
    if (st == EBB_OK) { st = ebb__maker_is_faster(m, first, *plan, &is_first); }
    ebb_plan_destroy(is_first ? *plan : first);
    if (is_first) { *plan = first; }
    return st;
}

ebb_status ebb__maker_fit(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan *nominal = NULL, *own = NULL;
    if (budget_bytes < m->floor_bytes) { return EBB_E_NO_FIT; }
    if (m->is_hasty) { return ebb__maker_fit_own(m, budget_bytes, plan_out); }
    ebb_status st = ebb__maker_fit_nominal(m, budget_bytes, &nominal);
    if (st == EBB_E_NO_FIT) { st = go_below(m, budget_bytes, &nominal); }
    if (st == EBB_E_NO_FIT) { return ebb__contest_below(m, budget_bytes, plan_out); }
    if (st != EBB_OK) { return st; }
    const bool has_rivals = searches(m);
    m->unsearched_ns = UINT64_MAX;
    if (m->is_large) { st = measure_loss(m, nominal); }
    if (st == EBB_OK) { st = ebb__maker_find_order(m); }
    if (st == EBB_OK) { st = (has_rivals ? ebb__contest : ebb__maker_fit_own)(m, budget_bytes, &own); }
    bool is_nominal = st == EBB_E_NO_FIT;
    if (st == EBB_OK && has_rivals) { st = is_nominal_best(m, nominal, own, &is_nominal); }
    if (st != EBB_OK && st != EBB_E_NO_FIT) {
        ebb_plan_destroy(own);
        ebb_plan_destroy(nominal);
        return st;
    }
    nominal->has_nominal_times = true;
    ebb_plan_destroy(is_nominal ? own : nominal);
    own = is_nominal ? nominal : own;
    if (has_rivals) { st = keep_first(m, budget_bytes, &own); }
    if (st != EBB_OK && st != EBB_E_NO_FIT) {
        ebb_plan_destroy(own);
        return st;
    }
    *plan_out = own;
    return EBB_OK;
}

/* ---- without one ------------------------------------------------------------------------------- */

static ebb_status make_unlimited(maker *m, const ebb_policy *policy, uint64_t budget_bytes, ebb_plan **plan_out,
                                 uint64_t *peak_out);

/* A load can be lower and yet be placed higher: put another policy's plan in the place of this one if it is placed
 * lower. */
static ebb_status take_lower(maker *m, const ebb_policy *policy, ebb_plan **plan, uint64_t *peak) {
    ebb_plan *other = NULL;
    uint64_t other_peak = 0;
    EBB_TRY(make_unlimited(m, policy, *peak - 1, &other, &other_peak));
    if (other == NULL || other_peak >= *peak) {
        ebb_plan_destroy(other);
        return EBB_OK;
    }
    ebb_plan_destroy(*plan);
    *plan = other;
    *peak = other_peak;
    return EBB_OK;
}

/* A plan of a policy that keeps no limit, and its peak; nothing if its load alone is above the budget. */
static ebb_status make_unlimited(maker *m, const ebb_policy *policy, uint64_t budget_bytes, ebb_plan **plan_out,
                                 uint64_t *peak_out) {
    ebb_policy_input input = make_input(m, m->machine, UINT64_MAX, UINT64_MAX);
    ebb_plan *plan = NULL;
    ebb_placed got = {0};
    uint64_t bound_bytes = 0;
    EBB_ASSERT(!policy->keeps_limit);
    EBB_TRY(draft_plan(m, policy, &input, &plan));
    ebb_status st = ebb__plan_bound(plan, m->alignment, &bound_bytes);
    const bool may_fit = least_peak(m, bound_bytes) <= budget_bytes;
    if (st == EBB_OK && may_fit) {
        const uint64_t work = m->is_large ? QUICK_WORK : THOROUGH_WORK;
        st = place(m, plan, work, m->is_hasty ? budget_bytes : 0, UINT64_MAX, &got);
    }
    if (st == EBB_OK && may_fit && policy->yardstick != NULL &&
        (got.peak_bytes > least_peak(m, bound_bytes) || ebb__liveness_drops_persistent(m->program))) {
        st = take_lower(m, policy->yardstick, &plan, &got.peak_bytes);
    }
    if (st != EBB_OK || !may_fit) {
        ebb_plan_destroy(plan);
        const bool has_other = st == EBB_OK && policy->yardstick != NULL;
        return has_other ? make_unlimited(m, policy->yardstick, budget_bytes, plan_out, peak_out) : st;
    }
    *plan_out = plan;
    *peak_out = got.peak_bytes;
    return EBB_OK;
}

/* Put the plan of the lower order in the place of one that does not fit. */
static ebb_status fit_ordered(maker *m, uint64_t budget_bytes, ebb_plan **plan) {
    ebb_plan *ordered = NULL;
    uint64_t peak_bytes = UNKNOWN;
    EBB_TRY(ebb__maker_find_order(m));
    const ebb_status st = make_unlimited(m, &ebb__policy_order, budget_bytes, &ordered, &peak_bytes);
    const bool is_lower = ordered != NULL && (*plan == NULL || peak_bytes < m->fitting_bytes);
    ebb_plan_destroy(is_lower ? *plan : ordered);
    if (!is_lower) { return st; }
    *plan = ordered;
    m->fitting_bytes = peak_bytes;
    return EBB_OK;
}

/* The plan that the policy wants where the budget holds it, if there is one. */
static ebb_status make_fitting(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    if (m->policy->when_it_fits == NULL) { return EBB_OK; }
    EBB_TRY(make_unlimited(m, m->policy->when_it_fits, budget_bytes, &plan, &m->fitting_bytes));
    const bool fits = plan != NULL && m->fitting_bytes <= budget_bytes;
    const ebb_status st = fits || !ebb__maker_may_reorder(m) ? EBB_OK : fit_ordered(m, budget_bytes, &plan);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

/* The lower need of that plan in the program's order and in the lower one, unless their loads are above most_bytes. */
static ebb_status find_fitting(maker *m, uint64_t most_bytes) {
    ebb_plan *plan = NULL;
    if (m->policy->when_it_fits == NULL) { return EBB_OK; }
    ebb_status st = make_unlimited(m, m->policy->when_it_fits, most_bytes, &plan, &m->fitting_bytes);
    if (st == EBB_OK && ebb__maker_may_reorder(m)) { st = fit_ordered(m, most_bytes, &plan); }
    ebb_plan_destroy(plan);
    return st;
}

/* ---- too little -------------------------------------------------------------------------------- */

ebb_status ebb__maker_find_least(ebb_maker *m, uint64_t *least_out) {
    EBB_ASSERT(!m->is_hasty);
    ebb_plan *plan = NULL;
    ebb_status st = EBB_OK;
    if (!m->policy->keeps_limit) {
        st = make_unlimited(m, m->policy, UINT64_MAX, &plan, least_out);
        ebb_plan_destroy(plan);
        return st;
    }
    if (m->least_bytes == UNKNOWN) { st = go_below(m, 0, &plan); }
    if (st == EBB_E_NO_FIT) { st = ebb__contest_below(m, 0, &plan); }
    EBB_ASSERT(plan == NULL); /* no budget is 0 */
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    *least_out = m->least_bytes;
    return EBB_OK;
}

ebb_status ebb__maker_refuse(const ebb_maker *m, uint64_t least_bytes, ebb_no_fit *no_fit_out) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(m->program, &n_steps);
    const uint64_t granule_bytes = m->options->granule_bytes;
    const uint64_t beyond = granule_bytes > 0 ? least_bytes % granule_bytes : 0;
    if (beyond > 0) { least_bytes += ebb_min_u64(granule_bytes - beyond, UINT64_MAX - least_bytes); }
    const ebb_no_fit no_fit = {.least_budget_bytes = least_bytes, .step = m->floor_step, .step_bytes = m->floor_bytes};
    EBB_ASSERT(least_bytes > m->options->budget_bytes && least_bytes >= no_fit.step_bytes && no_fit.step < n_steps);
    if (no_fit_out != NULL) { *no_fit_out = no_fit; }
    return ebb_fail(EBB_E_NO_FIT,
                    "a budget of %" PRIu64 " bytes is too small for policy %s: step %u '%s' alone touches %" PRIu64
                    " bytes; the least budget is %" PRIu64 " bytes",
                    m->options->budget_bytes, m->policy->name, no_fit.step, steps[no_fit.step].name, no_fit.step_bytes,
                    least_bytes);
}

/* ---- with the choices at hand ------------------------------------------------------------------ */

ebb_status ebb__maker_try_fixed(ebb_maker *m, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    uint64_t peak_bytes = 0;
    EBB_TRY(make_unlimited(m, m->policy, m->options->budget_bytes, &plan, &peak_bytes));
    if (plan == NULL || peak_bytes > m->options->budget_bytes) {
        ebb_plan_destroy(plan);
        return EBB_E_NO_FIT;
    }
    *plan_out = plan;
    return EBB_OK;
}

static ebb_status try_within(maker *m, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    EBB_TRY(make_fitting(m, m->options->budget_bytes, &plan));
    if (plan != NULL && m->fitting_bytes <= m->options->budget_bytes) {
        *plan_out = plan;
        return EBB_OK;
    }
    ebb_plan_destroy(plan);
    return ebb__maker_fit(m, m->options->budget_bytes, plan_out);
}

/* A bound by prices is one for the program's order of steps. */
ebb_status ebb__maker_bound(ebb_maker *m, uint64_t stop_ns, uint64_t *bound_ns_out) {
    *bound_ns_out = ebb__computing_ns(m->program, m->machine, m->choice);
    if (m->is_large || !searches(m) || *bound_ns_out >= stop_ns) { return EBB_OK; }
    EBB_TRY(ebb__maker_find_order(m));
    if (m->reordered.program != NULL) { return EBB_OK; }
    return ebb__bound_choices(m->program, m->machine, m->options, m->choice, stop_ns, bound_ns_out);
}

/* Drop a slow first plan of a small program: searching takes a fraction of a second, and may find a faster one. */
static ebb_status refuse_slow(const maker *m, ebb_plan **plan) {
    uint64_t time_ns = 0;
    EBB_TRY(ebb__maker_time(m, *plan, &time_ns));
    if ((double)time_ns <= SLOW_FIRST * (double)ebb__computing_ns(m->program, m->machine, m->choice)) { return EBB_OK; }
    ebb_plan_destroy(*plan);
    *plan = NULL;
    return EBB_E_NO_FIT;
}

/* EBB_E_NO_FIT without a message: with care there may be one, perhaps the one that the policy wants where it fits. */
static ebb_status try_first(maker *m, ebb_plan **plan_out) {
    const ebb_policy_input input = make_input(m, m->machine, UINT64_MAX, UINT64_MAX);
    ebb_plan *fitting = NULL;
    uint64_t load_bytes = 0;
    EBB_TRY(draft_plan(m, m->policy->when_it_fits, &input, &fitting));
    const ebb_status st = ebb__plan_bound(fitting, m->alignment, &load_bytes);
    ebb_plan_destroy(fitting);
    if (st != EBB_OK) { return st; }
    if (least_peak(m, load_bytes) <= m->options->budget_bytes) { return EBB_E_NO_FIT; }
    EBB_TRY(fit_first_plan(m, m->options->budget_bytes, plan_out));
    return m->is_small ? refuse_slow(m, plan_out) : EBB_OK;
}

ebb_status ebb__maker_try(ebb_maker *m, ebb_plan **plan_out) {
    if (!m->policy->keeps_limit) { return ebb__maker_try_fixed(m, plan_out); }
    const ebb_status st = m->first_will_do && !m->is_hasty ? try_first(m, plan_out) : EBB_E_NO_FIT;
    return st == EBB_E_NO_FIT ? try_within(m, plan_out) : st;
}

ebb_status ebb__maker_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    uint64_t least_bytes = 0;
    ebb_status st = ebb__maker_try(m, plan_out);
    if (st != EBB_E_NO_FIT) { return st; }
    EBB_TRY(ebb__maker_find_least(m, &least_bytes));
    return ebb__maker_refuse(m, least_bytes, no_fit_out);
}

ebb_status ebb__maker_place(const ebb_maker *m, ebb_plan *plan) {
    ebb_placed got = {0};
    const uint64_t budget_bytes = m->options->budget_bytes;
    EBB_TRY(place(m, plan, QUICK_WORK, budget_bytes, budget_bytes, &got));
    return ebb__placed_fits(&got, budget_bytes, m->options->tier_bytes) ? EBB_OK : EBB_E_NO_FIT;
}

void ebb__maker_choose(ebb_maker *m, const uint32_t *choice) {
    ebb__maker_forget_order(m);
    m->choice = choice;
    m->floor_bytes = ebb__plan_floor(m->program, choice, &m->floor_step);
    m->fitting_bytes = m->least_bytes = UNKNOWN;
    m->to_beat_ns = UINT64_MAX;
    m->loss = 1;
    m->rungs.n = 0;
}

ebb_status ebb__maker_init(ebb_maker *m, const ebb_program *program, const ebb_machine *machine,
                           const ebb_plan_options *options, const ebb_policy *policy) {
    size_t n_steps = 0;
    (void)ebb_program_steps(program, &n_steps);
    *m = (ebb_maker){.program = program,
                     .machine = machine,
                     .options = options,
                     .policy = policy,
                     .mem = ebb__mem_or_default(options->mem),
                     .alignment = ebb_program_alignment_bytes(program),
                     .fingerprint = ebb_program_fingerprint(program),
                     .is_small = n_steps <= EBB_SMALL_STEPS,
                     .is_large = n_steps > MAX_SMALL_STEPS};
    const bool copies = !policy->never_copies && ebb__has_tiers(options->tier_bytes); /* else all are alike */
    m->n_nominal = m->is_large || !copies ? 1 : EBB_MAKER_NOMINAL;
    m->n_ladder_parts = ebb_min_u64(ebb_max_u64(LADDER_STEPS / n_steps, MIN_LADDER_PARTS), MAX_LADDER_PARTS);
    ebb__maker_choose(m, NULL);
    ebb_status st = EBB_OK;
    for (uint32_t i = 0; st == EBB_OK && i < EBB_MAKER_NOMINAL; i++) {
        st = ebb__nominal_machine(m->mem, machine, i, &m->nominal[i]);
    }
    if (st == EBB_OK) { st = ebb__draft_init(&m->draft, program, m->mem); }
    if (st != EBB_OK) { ebb__maker_fini(m); }
    return st;
}

void ebb__maker_fini(ebb_maker *m) {
    ebb__maker_forget_order(m);
    ebb__draft_fini(&m->draft);
    EBB_VEC_FINI(m->mem, &m->rungs);
    for (uint32_t i = 0; i < EBB_MAKER_NOMINAL; i++) {
        ebb_machine_destroy(m->nominal[i]);
        m->nominal[i] = NULL;
    }
}
