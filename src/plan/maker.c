/* SPDX-License-Identifier: Apache-2.0
 *
 * From a policy to a plan, with the choices of algorithm at hand: the policy drafts, the draft becomes stays and slots,
 * the placer gives them offsets.
 *
 * A policy that keeps a limit keeps it for the load, the bytes that are there at one position; placed, they may need
 * more. So the limit that it is given goes down until the placed peak is within the budget, at last to the program's
 * floor, below which there is nothing to be tried. That last try is the same whatever the budget is, so what it needs,
 * placed, is a budget that works. What liveness needs is another, because nothing has to leave then.
 *
 * When there is no plan, the least budget for which there is one is searched between the floor (tried itself) and
 * these two, by making plans: what the message names has been done. Of a large program the last try's is named.
 *
 * A policy weighs times, and measured times differ from run to run. So where it finds no plan with the machine's times,
 * the last word has a nominal machine's, with which the least budget is searched too: what was named once is accepted
 * always.
 */
#include "plan/maker.h"
#include "ebb/place.h"

#include <inttypes.h>

#define MAX_ROUNDS 5
#define MAX_RISES 2

/* Programs of more steps are large: their plans take seconds, so the tries are few. */
#define MAX_SMALL_STEPS 20000u

/* The placer's work: so much a try of fit_rounds and of the search for the least budget, and where nothing is tried
 * after it, of programs that are not large. */
#define QUICK_WORK (EBB_PLACE_STEPS / 16)
#define HASTY_WORK (EBB_PLACE_STEPS / 1024) /* of a hasty maker */
#define THOROUGH_WORK (EBB_PLACE_STEPS / 4)

#define UNKNOWN 0u /* no plan needs no bytes */

typedef ebb_maker maker;

/* ---- a try ------------------------------------------------------------------------------------- */

/* Draft and sweep. EBB_E_NO_FIT without a message: the policy finds no way within these limits. */
static ebb_status draft_plan(maker *m, const ebb_policy *policy, const ebb_policy_input *input, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    ebb__draft_reset(&m->draft, m->program);
    EBB_TRY(policy->draft(input, &m->draft));
    EBB_ASSERT(EBB_DEBUG < 2 || ebb__draft_is_valid(&m->draft, m->program));
    EBB_TRY(ebb__plan_create(m->mem, m->policy->name, &plan));
    plan->budget_bytes = m->options->budget_bytes;
    plan->fingerprint = m->fingerprint;
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
    ebb_placing_options options = {.alignment = m->alignment,
                                   .work = m->is_hasty ? HASTY_WORK : work,
                                   .enough_bytes = enough_bytes,
                                   .limit_bytes = limit_bytes};
    memcpy(options.tier_bytes, m->options->tier_bytes, sizeof options.tier_bytes);
    return ebb__plan_place(plan, &options, placed_out);
}

static ebb_policy_input make_input(const maker *m, uint64_t limit_bytes) {
    ebb_policy_input input = {
        .program = m->program, .machine = m->machine, .mem = m->mem, .choice = m->choice, .limit_bytes = limit_bytes};
    memcpy(input.tier_bytes, m->options->tier_bytes, sizeof input.tier_bytes);
    return input;
}

/* All that a policy may use, under this limit. */
static ebb_policy_input make_limited_input(const maker *m, uint64_t limit_bytes) {
    ebb_policy_input input = make_input(m, ebb_max_u64(limit_bytes / m->alignment * m->alignment, m->floor_bytes));
    input.early_out = input.early_in = true;
    return input;
}

static ebb_status try_input(maker *m, const ebb_policy_input *input, uint64_t work, uint64_t budget_bytes,
                            ebb_plan **plan_out, ebb_placed *placed_out) {
    ebb_plan *plan = NULL;
    EBB_ASSERT(input->limit_bytes >= m->floor_bytes && input->limit_bytes % m->alignment == 0);
    EBB_TRY(draft_plan(m, m->policy, input, &plan));
    ebb_status st = place(m, plan, work, budget_bytes, budget_bytes, placed_out);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return EBB_OK;
}

/* Whether it fits; if not, the limits for the next try. */
static bool tighten(const maker *m, uint64_t budget_bytes, const ebb_placed *got, ebb_policy_input *input) {
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
    EBB_ASSERT(share >= 0 && share <= 1 && input->limit_bytes >= m->floor_bytes);
    share = share < 127.0 / 128 ? share * share : 63.0 / 64;
    uint64_t limit = (uint64_t)((double)input->limit_bytes * share);
    input->limit_bytes = ebb_max_u64(limit / m->alignment * m->alignment, m->floor_bytes);
    return false;
}

/* ---- within a budget --------------------------------------------------------------------------- */

/* A plan that fits, the limits that led to it, and the lowest limit above that is known not to, if one is. */
typedef struct fitted {
    ebb_plan *plan;
    ebb_policy_input input;
    uint64_t failed_bytes;
} fitted;

/* The last try: the floor as the limit. That it needs no more than the budget does not change what is done. */
static ebb_status try_last(maker *m, uint64_t budget_bytes, fitted *fitted_out) {
    ebb_placed got = {0};
    ebb_plan *plan = NULL;
    ebb_policy_input input = make_limited_input(m, m->floor_bytes);
    if (m->last_bytes != UNKNOWN && m->last_bytes > budget_bytes) { return EBB_E_NO_FIT; }
    ebb_status st = draft_plan(m, m->policy, &input, &plan);
    if (st == EBB_OK) { st = place(m, plan, QUICK_WORK, m->floor_bytes, budget_bytes, &got); }
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        if (st == EBB_E_NO_FIT) { m->last_bytes = UINT64_MAX; }
        return st;
    }
    EBB_ASSERT(got.peak_bytes >= m->floor_bytes);
    const bool tiers_fit = tighten(m, got.peak_bytes, &got, &input);
    EBB_ASSERT(m->last_bytes == UNKNOWN || m->last_bytes == got.peak_bytes);
    m->last_bytes = tiers_fit ? got.peak_bytes : UINT64_MAX;
    if (m->last_bytes > budget_bytes) {
        ebb_plan_destroy(plan);
        return EBB_E_NO_FIT;
    }
    fitted_out->plan = plan;
    fitted_out->input = make_limited_input(m, m->floor_bytes);
    return EBB_OK;
}

static bool same_limits(const ebb_policy_input *a, const ebb_policy_input *b) {
    return a->limit_bytes == b->limit_bytes && a->early_out == b->early_out &&
           memcmp(a->tier_bytes, b->tier_bytes, sizeof a->tier_bytes) == 0;
}

static ebb_status fit_rounds(maker *m, uint64_t budget_bytes, fitted *fitted_out) {
    ebb_policy_input input = make_limited_input(m, ebb__load_limit(budget_bytes));
    const ebb_policy_input last = make_limited_input(m, m->floor_bytes);
    fitted f = {.failed_bytes = budget_bytes};
    for (int round = 0; round < MAX_ROUNDS; round++) {
        ebb_plan *plan = NULL;
        ebb_placed got = {0};
        if (round == MAX_ROUNDS - 1) { input.limit_bytes = m->floor_bytes; }
        if (same_limits(&input, &last)) { break; }
        f.input = input;
        ebb_status st = try_input(m, &input, QUICK_WORK, budget_bytes, &plan, &got);
        if (st == EBB_E_NO_FIT) { break; }
        if (st != EBB_OK) { return st; }
        if (tighten(m, budget_bytes, &got, &input)) {
            f.plan = plan;
            *fitted_out = f;
            return EBB_OK;
        }
        ebb_plan_destroy(plan);
        EBB_ASSERT(input.limit_bytes <= f.input.limit_bytes);
        if (input.limit_bytes < f.input.limit_bytes) { f.failed_bytes = f.input.limit_bytes; }
        if (same_limits(&input, &f.input)) { break; }
    }
    EBB_TRY(try_last(m, budget_bytes, &f));
    *fitted_out = f;
    return EBB_OK;
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
    ebb_placed got = {0};
    ebb_policy_input input = f->input;
    EBB_ASSERT(f->failed_bytes > input.limit_bytes);
    input.limit_bytes += (f->failed_bytes - input.limit_bytes) / 2 / m->alignment * m->alignment;
    ebb_policy_input before = input;
    ebb_status st = try_input(m, &input, THOROUGH_WORK, budget_bytes, &plan, &got);
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
    if (m->is_large || m->is_hasty) { return EBB_OK; }
    for (int i = 0; st == EBB_OK && i < MAX_RISES; i++) {
        if (f->failed_bytes - f->input.limit_bytes <= budget_bytes / 64 + m->alignment) { break; }
        st = try_higher(m, budget_bytes, f);
    }
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

/* ---- without one ------------------------------------------------------------------------------- */

/* A plan of a policy that keeps no limit, and its peak; nothing if its load alone is above the budget. */
static ebb_status make_unlimited(maker *m, const ebb_policy *policy, uint64_t budget_bytes, ebb_plan **plan_out,
                                 uint64_t *peak_out) {
    ebb_policy_input input = make_input(m, UINT64_MAX);
    ebb_plan *plan = NULL;
    ebb_placed got = {0};
    uint64_t bound_bytes = 0;
    EBB_ASSERT(!policy->keeps_limit);
    EBB_TRY(draft_plan(m, policy, &input, &plan));
    ebb_status st = ebb__plan_bound(plan, m->alignment, &bound_bytes);
    if (st == EBB_OK && bound_bytes <= budget_bytes) {
        const uint64_t work = m->is_large ? QUICK_WORK : THOROUGH_WORK;
        st = place(m, plan, work, m->is_hasty ? budget_bytes : 0, UINT64_MAX, &got);
    }
    if (st != EBB_OK || bound_bytes > budget_bytes) {
        ebb_plan_destroy(plan);
        return st;
    }
    EBB_ASSERT(got.peak_bytes >= bound_bytes);
    *plan_out = plan;
    *peak_out = got.peak_bytes;
    return EBB_OK;
}

/* As above, of the policy liveness. */
static ebb_status make_liveness(maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    return make_unlimited(m, &ebb__policy_liveness, budget_bytes, plan_out, &m->liveness_bytes);
}

/* ---- too little -------------------------------------------------------------------------------- */

/* A budget for which there is a plan: what the last try needs, or what liveness does. */
static ebb_status find_enough(maker *m, uint64_t *enough_out) {
    fitted f = {0};
    ebb_plan *plan = NULL;
    if (m->last_bytes == UNKNOWN) {
        ebb_status st = try_last(m, m->options->budget_bytes, &f);
        ebb_plan_destroy(f.plan);
        if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    }
    EBB_ASSERT(m->last_bytes > m->options->budget_bytes);
    if (m->liveness_bytes == UNKNOWN) { /* placing it may be spared */
        EBB_TRY(make_liveness(m, m->last_bytes, &plan));
        ebb_plan_destroy(plan);
    }
    *enough_out = m->liveness_bytes == UNKNOWN ? m->last_bytes : ebb_min_u64(m->last_bytes, m->liveness_bytes);
    return EBB_OK;
}

/* The least budget above one that has no plan: the floor, or by halving what lies between it and enough. high has a
 * plan, low has none. */
static ebb_status find_least(maker *m, uint64_t *least_out) {
    const bool is_below = m->options->budget_bytes < m->floor_bytes;
    const uint64_t precision = m->is_large ? 8 : 100;
    uint64_t low = ebb_max_u64(m->options->budget_bytes, m->floor_bytes), high = 0;
    EBB_TRY(find_enough(m, &high));
    EBB_ASSERT(low <= high);
    uint64_t candidate = is_below ? low : ebb_align_up(low + (high - low) / 2, m->alignment);
    while (candidate < high && !(m->is_large && high == m->last_bytes)) {
        fitted f = {0};
        ebb_status st = fit_rounds(m, candidate, &f);
        ebb_plan_destroy(f.plan);
        if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
        *(st == EBB_OK ? &high : &low) = candidate;
        if (high - low <= ebb_max_u64(m->alignment, high / precision)) { break; }
        candidate = ebb_align_up(low + (high - low) / 2, m->alignment);
    }
    EBB_ASSERT(high >= m->floor_bytes && high > m->options->budget_bytes);
    *least_out = high;
    return EBB_OK;
}

static ebb_status explain(const maker *m, uint64_t least_bytes, ebb_no_fit *no_fit_out) {
    size_t n_steps = 0;
    const ebb_step *steps = ebb_program_steps(m->program, &n_steps);
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

/* *peak_out: what it needs. */
static ebb_status try_fixed(maker *m, uint64_t budget_bytes, ebb_plan **plan_out, uint64_t *peak_out) {
    ebb_plan *plan = NULL;
    EBB_TRY(make_unlimited(m, m->policy, budget_bytes, &plan, peak_out));
    if (plan == NULL || *peak_out > m->options->budget_bytes) {
        ebb_plan_destroy(plan);
        return EBB_E_NO_FIT;
    }
    *plan_out = plan;
    return EBB_OK;
}

static ebb_status try_nominal(maker *m, ebb_plan **plan_out) {
    fitted f = {0};
    const ebb_machine *machine = m->machine;
    m->last_bytes = UNKNOWN;
    if (m->options->budget_bytes < m->floor_bytes) { return EBB_E_NO_FIT; }
    m->machine = m->nominal;
    ebb_status st = (m->is_large ? try_last : fit_rounds)(m, m->options->budget_bytes, &f);
    m->machine = machine;
    if (st == EBB_OK) { *plan_out = f.plan; }
    return st;
}

static ebb_status try_within(maker *m, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    EBB_TRY(make_liveness(m, m->options->budget_bytes, &plan));
    if (plan != NULL && m->liveness_bytes <= m->options->budget_bytes) {
        *plan_out = plan;
        return EBB_OK;
    }
    ebb_plan_destroy(plan);
    ebb_status st = fit(m, m->options->budget_bytes, plan_out);
    return st == EBB_E_NO_FIT ? try_nominal(m, plan_out) : st;
}

/* Behind try_within, which has tried the nominal machine last. */
static ebb_status find_least_nominal(maker *m, uint64_t *least_out) {
    const ebb_machine *machine = m->machine;
    m->machine = m->nominal;
    ebb_status st = find_least(m, least_out);
    m->machine = machine;
    return st;
}

ebb_status ebb__maker_try(ebb_maker *m, ebb_plan **plan_out) {
    uint64_t peak_bytes = 0;
    return m->policy->keeps_limit ? try_within(m, plan_out)
                                  : try_fixed(m, m->options->budget_bytes, plan_out, &peak_bytes);
}

ebb_status ebb__maker_make(ebb_maker *m, ebb_plan **plan_out, ebb_no_fit *no_fit_out) {
    uint64_t least_bytes = 0;
    EBB_ASSERT(!m->is_hasty);
    ebb_status st = m->policy->keeps_limit ? try_within(m, plan_out) : try_fixed(m, UINT64_MAX, plan_out, &least_bytes);
    if (st != EBB_E_NO_FIT) { return st; }
    if (m->policy->keeps_limit) { EBB_TRY(find_least_nominal(m, &least_bytes)); }
    return explain(m, least_bytes, no_fit_out);
}

ebb_status ebb__maker_place(const ebb_maker *m, ebb_plan *plan) {
    ebb_placed got = {0};
    const uint64_t budget_bytes = m->options->budget_bytes;
    EBB_TRY(place(m, plan, QUICK_WORK, budget_bytes, budget_bytes, &got));
    bool fits = got.peak_bytes <= budget_bytes;
    for (uint32_t tier = 0; tier < EBB_N_TIERS; tier++) {
        fits = fits && got.tier_bytes[tier] <= m->options->tier_bytes[tier];
    }
    return fits ? EBB_OK : EBB_E_NO_FIT;
}

void ebb__maker_choose(ebb_maker *m, const uint32_t *choice) {
    m->choice = choice;
    m->floor_bytes = ebb__plan_floor(m->program, choice, &m->floor_step);
    m->liveness_bytes = m->last_bytes = UNKNOWN;
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
                     .is_large = n_steps > MAX_SMALL_STEPS};
    ebb__maker_choose(m, NULL);
    ebb_status st = ebb_machine_create(m->mem, &m->nominal);
    if (st == EBB_OK) { st = ebb__draft_init(&m->draft, program, m->mem); }
    if (st != EBB_OK) { ebb__maker_fini(m); }
    return st;
}

void ebb__maker_fini(ebb_maker *m) {
    ebb__draft_fini(&m->draft);
    ebb_machine_destroy(m->nominal);
    m->nominal = NULL;
}
