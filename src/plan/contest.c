/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans for one budget by a policy that searches and by its rivals; the fastest is taken. So it is never slower than
 * any of them. Where the policy has no plan, only those rivals are asked that may need less, and a refusal names what
 * they need.
 *
 *      quick rivals    may have a plan that costs no time, or next to none; then there is nothing to search for
 *      the policy      makes a plan without a search
 *      rivals that     take as long as the policy's own search, or less. If one of them has a plan that costs no time,
 *      search          the policy need not search
 *      the policy      searches
 *      all rivals      those that only copy are not asked if a bound says that they cannot win. In a small program each
 *                      of the others plans as if it were asked alone. In a larger one it has much to beat by then, and
 *                      costs little: what is simulated to be slower is placed without care
 *      lower budgets   of a small program: what fits there fits here
 *
 * In a small program, other threads make the plans that take long before they are asked for (ahead.h).
 */
#include "plan/ahead.h"

#define MAX_RIVALED_STEPS 5000u /* up to here all rivals are asked */
/* The same below the policy's least budget, for rules whose time grows fast. */
#define MAX_LOWER_STEPS 1024u

/* Lower budgets, of a small program. */
#define GRID_PARTS 64u /* of a budget: their distance is 1/64 to 1/128 of it */
#define GRID_BUDGETS 4
#define WORTH_BELOW 1.03 /* times the bound: a plan before a search */

/* Keep the faster one of two plans within a budget; the first may be NULL. */
static ebb_status keep_faster(const ebb_maker *m, ebb_plan **plan, ebb_plan *other) {
    bool faster = true;
    const ebb_status st = *plan != NULL ? ebb__maker_is_faster(m, other, *plan, &faster) : EBB_OK;
    if (st == EBB_OK && faster) {
        ebb_plan *slower = *plan;
        *plan = other;
        other = slower;
    }
    ebb_plan_destroy(other);
    return st;
}

static bool computes_again(const ebb_plan *plan) {
    for (size_t i = 0; i < plan->actions.n; i++) {
        if (plan->actions.data[i].kind == EBB_ACT_AGAIN) { return true; }
    }
    return false;
}

/* What a maker knows by its own policy, while another one is asked. */
typedef struct own_state {
    const ebb_policy *policy;
    ebb_ladder rungs;
    uint64_t least_bytes, fitting_bytes, unsearched_ns;
} own_state;

static own_state begin_other(ebb_maker *m, const ebb_policy *policy) {
    const own_state own = {.policy = m->policy,
                           .rungs = ebb__ladder_begin(m),
                           .least_bytes = m->least_bytes,
                           .fitting_bytes = m->fitting_bytes,
                           .unsearched_ns = m->unsearched_ns};
    m->policy = policy;
    m->least_bytes = m->fitting_bytes = 0;
    return own;
}

static void end_other(ebb_maker *m, const own_state *own) {
    ebb__ladder_end(m, own->rungs);
    m->policy = own->policy;
    m->least_bytes = own->least_bytes;
    m->fitting_bytes = own->fitting_bytes;
    m->unsearched_ns = own->unsearched_ns;
}

/* A rival's plan for a larger program, in less time: a nominal machine is asked only if there is no plan with the
 * machine's own times. */
static ebb_status fit_in_turn(ebb_maker *m, const ebb_policy *policy, uint64_t budget_bytes, bool may_be_nominal,
                              ebb_plan **plan_out) {
    const ebb_policy *own = m->policy;
    const uint64_t own_unsearched_ns = m->unsearched_ns;
    m->policy = policy;
    m->unsearched_ns = UINT64_MAX;
    ebb_status st = (policy->rivals != NULL ? ebb__contest : ebb__maker_fit_own)(m, budget_bytes, plan_out);
    if (st == EBB_E_NO_FIT && may_be_nominal) {
        const ebb_ladder own_rungs = ebb__ladder_begin(m);
        st = ebb__maker_fit_nominal(m, budget_bytes, plan_out);
        ebb__ladder_end(m, own_rungs);
        if (st == EBB_OK) { (*plan_out)->has_nominal_times = true; }
    }
    m->policy = own;
    m->unsearched_ns = own_unsearched_ns;
    return st;
}

/* A lower budget, and what no plan within it is faster than. */
typedef struct lower_budget {
    uint64_t bytes, bound_ns;
} lower_budget;

/* Plans made for a budget by several policies. */
typedef struct contest {
    uint64_t budget_bytes;
    uint64_t free_ns;   /* an iteration without a budget: nothing is faster */
    uint64_t time_ns;   /* to beat; UINT64_MAX: nothing */
    uint64_t copies_ns; /* no plan that only copies is faster */
    bool is_quick;      /* only a plan that costs no time is wanted */
    uint64_t asked;     /* rivals that need not be asked again, a bit for each */
    ebb_plan *plan;     /* the fastest so far */
    lower_budget below[GRID_BUDGETS];
    uint32_t n_below;
    ebb_ahead *ahead; /* plans that other threads make */
} contest;

/* A plan by a policy that is not the maker's, as when it is asked alone. */
static ebb_status fit_alone(ebb_maker *m, const ebb_policy *policy, const contest *c, ebb_plan **plan_out) {
    ebb_status st = EBB_OK;
    if (ebb__ahead_take(c->ahead, policy, c->budget_bytes, &st, plan_out)) { return st; }
    const own_state own = begin_other(m, policy);
    st = ebb__maker_fit(m, c->budget_bytes, plan_out);
    end_other(m, &own);
    return st;
}

/* A plan of a rival. EBB_E_NO_FIT without a message: it has none. */
static ebb_status fit_rival(ebb_maker *m, const ebb_policy *rival, const contest *c, ebb_plan **plan_out) {
    const ebb_policy *own = m->policy;
    if (!rival->keeps_limit) {
        m->policy = rival;
        const ebb_status st = ebb__maker_try_fixed(m, plan_out);
        m->policy = own;
        return st;
    }
    if (m->is_small) { return fit_alone(m, rival, c, plan_out); }
    const bool is_beaten = rival->never_copies && c->plan != NULL; /* it had no plan, or gave it up as too slow */
    return fit_in_turn(m, rival, c->budget_bytes, !c->is_quick && !is_beaten, plan_out);
}

/* Not if a rival is for copies and there is no tier, or if it only copies and cannot be as fast as time_ns. */
static bool may_ask(const ebb_maker *m, const ebb_policy *rival, const contest *c) {
    const bool may_copy = m->is_small && ebb__has_tiers(m->options->tier_bytes);
    if (rival->is_for_copies && !may_copy) { return false; }
    return !rival->copies_only || c->copies_ns < c->time_ns;
}

/* Ask a rival, unless it cannot win, or the caller has stopped the search and there
 * is a plan. What it makes is kept if it is faster. Little work is spent on what does not beat time_ns, unless the
 * program is small; in rare cases the policy, asked alone, would go on from there to a faster plan. */
static ebb_status ask(ebb_maker *m, const ebb_policy *rival, contest *c) {
    ebb_plan *plan = NULL;
    if (!may_ask(m, rival, c)) { return EBB_OK; }
    if (c->plan != NULL && ebb__is_stopped(m->options)) { return EBB_OK; }
    const bool searches = rival->rivals != NULL; /* its first plan says little of what it finds */
    m->to_beat_ns = m->is_small || searches ? UINT64_MAX : c->time_ns;
    const ebb_status st = fit_rival(m, rival, c, &plan);
    if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
    if (st == EBB_OK && m->options->no_recompute && computes_again(plan)) {
        ebb_plan_destroy(plan);
        plan = NULL;
    }
    if (plan != NULL) { EBB_TRY(keep_faster(m, &c->plan, plan)); }
    return c->plan != NULL ? ebb__maker_time(m, c->plan, &c->time_ns) : EBB_OK;
}

/* How many rivals are asked: of a program with many steps one, because rules for copies take minutes there. */
static uint32_t count_rivals(const ebb_maker *m) {
    if (m->is_large || ebb__plan_view(m->program).n_steps > MAX_RIVALED_STEPS) { return 1; }
    return m->options->effort > 0 ? m->policy->n_rivals : m->policy->n_quick_rivals;
}

/* What plans with copies alone take at least, as far as it matters beside time_ns. */
static ebb_status bound_copies(const ebb_maker *m, contest *c) {
    ebb_plan_options copies = *m->options;
    copies.no_recompute = true;
    return ebb__bound_choices(m->program, m->machine, &copies, m->choice, c->time_ns, &c->copies_ns);
}

/* Whether a quick rival may have a plan that costs no time. One that only copies takes long, so it is asked once: now,
 * or after the search if the bound shows that its plan costs time. */
static bool is_asked_first(const ebb_policy *rival, const contest *c) {
    return !rival->copies_only || c->copies_ns <= c->free_ns;
}

/* Ask a rival for good. */
static ebb_status ask_once(ebb_maker *m, uint32_t i, contest *c) {
    c->asked |= (uint64_t)1 << i;
    return ask(m, m->policy->rivals[i], c);
}

/* Ask the quick rivals for a plan that costs no time, because then there is nothing to search for. */
static ebb_status ask_quick(ebb_maker *m, uint32_t n, contest *c) {
    bool is_free = false;
    c->time_ns = c->free_ns + 1;
    EBB_TRY(bound_copies(m, c));
    for (uint32_t i = 0; i < n && !is_free; i++) {
        const ebb_policy *rival = m->policy->rivals[i];
        if (!is_asked_first(rival, c)) { continue; }
        c->is_quick = !rival->copies_only;
        c->time_ns = c->is_quick ? c->free_ns + 1 : UINT64_MAX;
        const bool comes_again = c->is_quick && !m->is_small; /* of a small program, its plan would be the same */
        EBB_TRY(comes_again ? ask(m, rival, c) : ask_once(m, i, c));
        is_free = c->plan != NULL && c->time_ns <= c->free_ns;
    }
    c->is_quick = false;
    return EBB_OK;
}

/* Rivals that search and may have a plan that costs no time. They are asked sooner or later, unless there is one. */
static ebb_status ask_searching(ebb_maker *m, uint32_t n, uint32_t n_quick, contest *c) {
    for (uint32_t i = n_quick; i < n && c->time_ns > c->free_ns; i++) {
        const ebb_policy *rival = m->policy->rivals[i];
        if (rival->rivals != NULL && is_asked_first(rival, c)) { EBB_TRY(ask_once(m, i, c)); }
    }
    return EBB_OK;
}

/* Whether plans that take long are asked for that are independent of each other. */
static bool is_thorough(const ebb_maker *m) {
    return m->is_small && m->options->effort > 0;
}

/* The policy's plan before a search costs time: the rivals that search, and then the policy itself, unless one of them
 * has a plan that costs none. */
static ebb_status search_on(ebb_maker *m, uint32_t n, uint32_t n_quick, contest *c, ebb_fitted *f) {
    EBB_TRY(ask_searching(m, n, n_quick, c));
    m->to_beat_ns = UINT64_MAX;
    return c->time_ns > c->free_ns ? ebb__maker_search_on(m, c->budget_bytes, f) : EBB_OK;
}

/* The policy itself. */
static ebb_status ask_own(ebb_maker *m, uint32_t n, uint32_t n_quick, contest *c) {
    ebb_fitted f = {0};
    uint64_t own_ns = UINT64_MAX;
    m->to_beat_ns = UINT64_MAX;
    ebb_status st = ebb__maker_fit_unsearched(m, c->budget_bytes, &f);
    if (st == EBB_E_NO_FIT) { return EBB_OK; }
    if (st == EBB_OK) { st = ebb__maker_time(m, f.plan, &own_ns); }
    if (st == EBB_OK && own_ns > c->free_ns) { st = search_on(m, n, n_quick, c, &f); }
    if (st != EBB_OK) {
        ebb_plan_destroy(f.plan);
        return st;
    }
    EBB_TRY(keep_faster(m, &c->plan, f.plan));
    return ebb__maker_time(m, c->plan, &c->time_ns);
}

/* The lower budgets to ask for, from a grid that neighbouring budgets share. A plan before a search has a say, so that
 * more effort does not lead to fewer. */
static ebb_status find_below(const ebb_maker *m, contest *c) {
    uint64_t grid_bytes = 1;
    if (!is_thorough(m) || m->unsearched_ns == UINT64_MAX) { return EBB_OK; }
    while (grid_bytes <= c->budget_bytes / GRID_PARTS) { grid_bytes *= 2; }
    uint64_t at = c->budget_bytes / grid_bytes * grid_bytes;
    if (at == c->budget_bytes) { at -= grid_bytes; }
    for (; c->n_below < GRID_BUDGETS && at >= m->floor_bytes; at -= grid_bytes) {
        lower_budget *lower = &c->below[c->n_below];
        ebb_plan_options options = *m->options;
        options.budget_bytes = lower->bytes = at;
        EBB_TRY(ebb__bound_choices(m->program, m->machine, &options, m->choice, c->time_ns, &lower->bound_ns));
        if (WORTH_BELOW * (double)lower->bound_ns >= (double)m->unsearched_ns) { break; }
        if (lower->bound_ns >= c->time_ns) { break; }
        c->n_below++;
    }
    return EBB_OK;
}

/* What is fast is not worth a thread. */
static bool takes_long(const ebb_policy *rival) {
    return rival->rivals != NULL || rival->is_for_copies;
}

/* Have other threads begin what will probably be asked for: rivals that search, and the lower budgets. */
static ebb_status begin_ahead(const ebb_maker *m, uint32_t n_rivals, contest *c) {
    ebb_ahead_ask asks[EBB_AHEAD_MAX];
    uint32_t n = 0;
    if (!is_thorough(m)) { return EBB_OK; }
    for (uint32_t i = 0; i < n_rivals && n < EBB_AHEAD_MAX - GRID_BUDGETS; i++) {
        const ebb_policy *rival = m->policy->rivals[i];
        if ((c->asked >> i & 1) != 0 || !takes_long(rival) || !may_ask(m, rival, c)) { continue; }
        asks[n++] = (ebb_ahead_ask){.policy = rival, .budget_bytes = c->budget_bytes};
    }
    for (uint32_t i = 0; i < c->n_below; i++) {
        asks[n++] = (ebb_ahead_ask){.policy = m->policy, .budget_bytes = c->below[i].bytes};
    }
    return ebb__ahead_begin(m, asks, n, &c->ahead);
}

/* The policy's plan within a lower budget. */
static ebb_status fit_below(ebb_maker *m, uint64_t budget_bytes, const contest *c, ebb_plan **plan_out) {
    const uint64_t unsearched_ns = m->unsearched_ns;
    ebb_status st = EBB_OK;
    if (ebb__ahead_take(c->ahead, m->policy, budget_bytes, &st, plan_out)) { return st; }
    m->to_beat_ns = UINT64_MAX;
    st = ebb__maker_fit_own(m, budget_bytes, plan_out);
    m->unsearched_ns = unsearched_ns;
    return st;
}

/* What was found within a lower budget is a plan here, too. */
static ebb_status ask_below(ebb_maker *m, contest *c) {
    for (uint32_t i = 0; i < c->n_below && c->below[i].bound_ns < c->time_ns && c->time_ns > c->free_ns; i++) {
        ebb_plan *plan = NULL;
        if (ebb__is_stopped(m->options)) { break; }
        const ebb_status st = fit_below(m, c->below[i].bytes, c, &plan);
        if (st == EBB_E_NO_FIT) { continue; }
        EBB_TRY(st);
        EBB_TRY(keep_faster(m, &c->plan, plan));
        EBB_TRY(ebb__maker_time(m, c->plan, &c->time_ns));
    }
    return EBB_OK;
}

/* First the quick rivals, then the policy itself, and last all rivals, which have much to beat by then. */
static ebb_status ask_all(ebb_maker *m, contest *c) {
    const ebb_policy *own = m->policy;
    const uint32_t n = count_rivals(m), n_quick = m->is_large ? 0 : (uint32_t)ebb_min_u64(n, own->n_quick_rivals);
    EBB_ASSERT(own->n_rivals <= 64);
    if (!m->is_large) { EBB_TRY(ask_quick(m, n_quick, c)); }
    if (c->plan == NULL) { c->time_ns = UINT64_MAX; }
    if ((double)c->time_ns > EBB_CLOSE * (double)c->free_ns) { EBB_TRY(ask_own(m, n, n_quick, c)); }
    if (c->time_ns <= c->free_ns) { return EBB_OK; }
    if (c->copies_ns > c->free_ns) { EBB_TRY(bound_copies(m, c)); } /* it has not been found whole */
    EBB_TRY(find_below(m, c));
    EBB_TRY(begin_ahead(m, n, c));
    for (uint32_t i = 0; i < n && c->time_ns > c->free_ns; i++) {
        if ((c->asked >> i & 1) == 0) { EBB_TRY(ask(m, own->rivals[i], c)); }
    }
    return ask_below(m, c);
}

ebb_status ebb__contest(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    contest c = {.budget_bytes = budget_bytes, .time_ns = UINT64_MAX};
    c.free_ns = ebb__computing_ns(m->program, m->machine, m->choice);
    const ebb_status st = ask_all(m, &c);
    ebb__ahead_end(c.ahead);
    m->to_beat_ns = UINT64_MAX;
    if (st != EBB_OK) {
        ebb_plan_destroy(c.plan);
        return st;
    }
    *plan_out = c.plan;
    return c.plan != NULL ? EBB_OK : EBB_E_NO_FIT;
}

/* ---- below the policy's least budget ------------------------------------------------------------ */

/* Up to how many steps this one is asked: where there is enough time. */
static size_t most_steps_below(const ebb_maker *m, uint32_t i) {
    return i < m->policy->n_quick_lower ? MAX_RIVALED_STEPS : MAX_LOWER_STEPS;
}

static bool is_among_lower(const ebb_policy *policy, const ebb_policy *one) {
    for (uint32_t i = 0; i < policy->n_lower; i++) {
        if (policy->lower[i] == one) { return true; }
    }
    return false;
}

/* One such policy, with a ladder of its own. EBB_E_NO_FIT without a message: it has no plan, and *least_out is what it
 * needs. */
static ebb_status fit_or_find_least(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out, uint64_t *least_out) {
    ebb_status st = EBB_E_NO_FIT;
    if (budget_bytes > 0) {
        st = m->policy->keeps_limit ? ebb__maker_fit(m, budget_bytes, plan_out) : ebb__maker_try_fixed(m, plan_out);
    }
    if (st != EBB_E_NO_FIT) { return st; }
    EBB_TRY(ebb__maker_find_least(m, least_out));
    return EBB_E_NO_FIT;
}

/* Ask a policy, unless it cannot have a plan. */
static ebb_status ask_lower(ebb_maker *m, const ebb_policy *policy, uint64_t budget_bytes, ebb_plan **plan) {
    const bool has_tiers = ebb__has_tiers(m->options->tier_bytes);
    const bool needs_tier = policy->copies_only || policy->is_for_copies;
    if (needs_tier ? !has_tiers : m->options->no_recompute) { return EBB_OK; }
    const own_state own = begin_other(m, policy);
    ebb_plan *other = NULL;
    uint64_t least_bytes = 0;
    const ebb_status st = fit_or_find_least(m, budget_bytes, &other, &least_bytes);
    end_other(m, &own);
    if (st == EBB_E_NO_FIT) {
        m->least_bytes = ebb_min_u64(own.least_bytes, least_bytes);
        return EBB_OK;
    }
    return st == EBB_OK ? keep_faster(m, plan, other) : st;
}

/* For a small program, ask every rival, unless the caller only wants a first plan. */
static ebb_status ask_all_lower(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan) {
    const ebb_policy *own = m->policy;
    const size_t n_steps = ebb__plan_view(m->program).n_steps;
    for (uint32_t i = 0; i < own->n_lower; i++) {
        if (n_steps <= most_steps_below(m, i)) { EBB_TRY(ask_lower(m, own->lower[i], budget_bytes, plan)); }
    }
    const uint32_t n = m->is_small && m->options->effort > 0 ? own->n_rivals : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_among_lower(own, own->rivals[i])) { EBB_TRY(ask_lower(m, own->rivals[i], budget_bytes, plan)); }
    }
    return EBB_OK;
}

ebb_status ebb__contest_below(ebb_maker *m, uint64_t budget_bytes, ebb_plan **plan_out) {
    ebb_plan *plan = NULL;
    const ebb_status st = ask_all_lower(m, budget_bytes, &plan);
    if (st != EBB_OK) {
        ebb_plan_destroy(plan);
        return st;
    }
    *plan_out = plan;
    return plan != NULL ? EBB_OK : EBB_E_NO_FIT;
}
