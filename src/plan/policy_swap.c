/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy swap: AutoSwap's question (arXiv 1903.06631, section V) without its limits. What is copied out, and when,
 * so that an iteration takes the least time within the budget, if nothing is computed again?
 *
 * It searches sets of gaps (away.h). So it looks at all absences of all tensors, of which one tensor may have several,
 * around all peaks, and also across the iteration's end; what has not changed since its last copy is not copied out
 * again, and what is overwritten next is not copied at all.
 *
 *      a first set    the gaps that hide their copies best, until no load is above the limit
 *      tiers          copies go to the fastest tier that has room. If one was full, a second first set is tried: what
 *                     is away longest goes to a slower tier, as long as that has time. The faster set is taken
 *      annealing      a few are taken out, and others put in until the limit is kept again; or a tensor moves to
 *                     another tier. Copies in are timed by when places began in the run before, with its stalls
 *      placing        the limit for loads goes down from the budget. What is found for each is placed and simulated,
 *                     and the fastest that fits is taken. So no time is better than its simulation
 *      waste          with more effort, the limit stays at the budget, and by how much a placed draft is above it
 *                     counts as bytes that are taken there
 *
 * Random numbers have a fixed seed, and effort counts visits, not time. Cost: O(places + gaps chosen) for a set,
 * VISITS in all for each limit and each set; the first set takes O(gaps) for each gap that is chosen. From effort 1
 * on, more effort goes on where less would have stopped.
 *
 * Where a rule, or the walks of the policy best, are faster than what was searched for, their plan is taken.
 *
 * The same search serves the policy best as a rival for small programs (ebb__policy_exchange). There it may also drop a
 * tensor at once and compute it again where the gap ends, which needs no link; and a half or a quarter of a large
 * tensor may leave by itself. Walks are bad where a few tensors are a large part of the budget: each copy then has to
 * wait for another one, and they do not see how that adds up.
 *
 * With a slowdown of 0 it says the lowest peak that costs nothing.
 */
#include "plan/away.h"
#include "plan/best.h"

#include <math.h>

#define MAX_STEPS 20000u                 /* of a larger program the draft is that of the policy budget */
#define FIRST_VISITS ((uint64_t)1 << 25) /* for the first limit; about a quarter of a second */
#define VISITS ((uint64_t)1 << 23)       /* for each other set */
#define VISITS_A_GAP ((uint64_t)1 << 16) /* at most: small programs have little to find */
#define N_LIMITS 16u                     /* a 64th of the budget apart */
#define WASTE_SETS 32u                   /* in each round of effort beyond the first */
#define FORGOTTEN 4 /* of what is known to be wasted: a part, with each set that is no reason to know better */
#define MAX_OUT 3u  /* gaps that are taken out at once */
#define HEAT 0.003  /* of the computing time: a loss that is taken with a chance of 1 in e */
#define SPREAD 2.0  /* of the logarithm of chance in scores */
#define MAX_SETTLES 8

/* For one draft, ebb__policy_exchange searches this often, and splits large tensors like this. Several searches with
 * the same split find different sets. The last ones are only for programs with large persistent tensors. */
static const ebb_away_split exchange_splits[] = {
    {1, 1}, {2, 1}, {4, 1}, {1, 1}, {2, 1}, {4, 1}, {2, 2}, {4, 4}, {1, 2}, {1, 4}, {2, 2}, {4, 4},
};

typedef struct search {
    ebb_away away;
    bool *best, *at;              /* [n_gaps] */
    uint8_t *best_tier, *at_tier; /* [n_tensors] */
    bool *best_again, *at_again;  /* [n_tensors] */
    uint32_t n_tiers;             /* that take copies */
    bool has_spilled;             /* to another tier, because one was full */
    bool is_patient;              /* in a first set: what is away longest goes to a slow tier, while that has time */
    double busy_ns[EBB_MAX_TIERS], peak_ns; /* for that: copies out so far; the peak if nothing leaves */
    double *best_meant_ns;                  /* [n + 1] */
    double best_ns, at_ns, computing_ns;
    double placed_ns;   /* of the draft that is taken, simulated */
    uint32_t *covering; /* [n_gaps] */
    int64_t *waste;     /* [n]: what placing wastes, as far as it is known; base counts it */
    uint64_t *over;     /* [n_steps + 1]: by how much the latest draft was above the budget */
    ebb_rng rng;
} search;

static bool is_over(const search *s, uint32_t place) {
    return s->away.load[place] > ebb__away_limit(&s->away);
}

/* How much of a gap is left when both copies are made, per byte of it; with chance. */
static double score(search *s, const ebb_away_gap *g, bool by_chance) {
    const bool is_again = s->away.again[g->tensor]; /* as a whole */
    const double bytes = (double)(is_again ? ebb__away_tensor_bytes(&s->away, g->tensor) : g->bytes);
    const double left_ns =
        is_again ? -s->away.again_ns[g->tensor] : ebb__away_gap_ns(&s->away, g) - g->out_ns - g->in_ns;
    double worth = left_ns > 0 ? left_ns * bytes : left_ns / bytes;
    if (by_chance && worth > 0) { worth *= exp(SPREAD * (double)ebb__rng_normal(&s->rng)); }
    return worth;
}

/* Whether a slow tier's engine has time for this, too, until the peak, and the gap for both copies. */
static bool has_time(const search *s, const ebb_away_gap *g, uint32_t tier) {
    const ebb_machine *machine = s->away.input->machine;
    const double out_ns = (double)ebb_machine_copy_time_ns(machine, EBB_DEVICE, tier, g->bytes);
    const double in_ns = (double)ebb_machine_copy_time_ns(machine, tier, EBB_DEVICE, g->bytes);
    return s->busy_ns[tier] + out_ns <= s->peak_ns && out_ns + in_ns < ebb__away_gap_ns(&s->away, g);
}

/* The fastest other tier that has time; if none has, the tensor's own. */
static uint32_t pick_slow_tier(const search *s, const ebb_away_gap *g) {
    uint64_t used_bytes[EBB_MAX_TIERS];
    memcpy(used_bytes, s->away.tier_used, sizeof used_bytes);
    const uint64_t bytes = ebb__away_tensor_bytes(&s->away, g->tensor);
    for (uint32_t tier = g->tier;
         (tier = ebb__pick_next_tier(s->away.input, used_bytes, bytes, tier)) != EBB_MAX_TIERS;) {
        if (has_time(s, g, tier)) { return tier; }
    }
    return g->tier;
}

/* Where copies of a gap's tensor go if it is chosen; EBB_MAX_TIERS: no tier has room, or it has to stay because
 * something is computed again from it. */
static uint32_t pick_tier(const search *s, uint32_t i) {
    const ebb_away *away = &s->away;
    const ebb_away_gap *g = &away->gaps[i];
    if (!ebb__away_allows(away, i)) { return EBB_MAX_TIERS; }
    if (away->again[g->tensor]) { return g->tier; }
    const bool has_room = ebb__away_has_room(away, i, g->tier);
    if (s->n_tiers == 1 || away->n_away[g->tensor] > 0) { return has_room ? g->tier : EBB_MAX_TIERS; }
    const uint32_t slow = s->is_patient ? pick_slow_tier(s, g) : g->tier;
    if (slow != g->tier) { return slow; }
    if (has_room) { return g->tier; }
    return ebb__pick_tier(away->input, away->tier_used, ebb__away_tensor_bytes(away, g->tensor));
}

static void choose(search *s, uint32_t i) {
    const ebb_away_gap *g = &s->away.gaps[i];
    const uint32_t tier = pick_tier(s, i);
    s->has_spilled = s->has_spilled || tier != g->tier;
    if (tier != g->tier) { ebb__away_move(&s->away, g->tensor, tier); }
    s->busy_ns[tier] += g->out_ns;
    ebb__away_set(&s->away, i, true);
}

/* Choose gaps until no load is above the limit. false: no set does that. */
static bool choose_more(search *s, bool by_chance) {
    for (;;) {
        const uint32_t peak = ebb__away_peak(&s->away);
        uint32_t best = UINT32_MAX;
        double most = -INFINITY;
        s->away.n_visits += s->away.n_gaps;
        if (!is_over(s, peak)) { return true; }
        for (uint32_t i = 0; i < s->away.n_gaps; i++) {
            const ebb_away_gap *g = &s->away.gaps[i];
            if (s->away.chosen[i] || !ebb__away_covers(&s->away, g, peak)) { continue; }
            if (pick_tier(s, i) == EBB_MAX_TIERS) { continue; }
            const double worth = score(s, g, by_chance);
            if (worth > most) {
                most = worth;
                best = i;
            }
        }
        if (best == UINT32_MAX) { return false; }
        choose(s, best);
    }
}

static void set_all(search *s, const bool *chosen, const uint8_t *tier, const bool *again) {
    for (uint32_t t = 0; s->n_tiers > 1 && t < s->away.view.n_tensors; t++) {
        if (s->away.tier[t] != tier[t]) { ebb__away_move(&s->away, t, tier[t]); }
    }
    for (uint32_t t = 0; s->away.may_again && t < s->away.view.n_tensors; t++) {
        if (s->away.again[t] != again[t]) { ebb__away_compute(&s->away, t, again[t]); }
    }
    for (uint32_t i = 0; i < s->away.n_gaps; i++) {
        if (s->away.chosen[i] != chosen[i]) { ebb__away_set(&s->away, i, chosen[i]); }
    }
}

static void keep_all(search *s, bool *chosen, uint8_t *tier, bool *again) {
    memcpy(chosen, s->away.chosen, s->away.n_gaps * sizeof *chosen);
    memcpy(tier, s->away.tier, s->away.view.n_tensors * sizeof *tier);
    memcpy(again, s->away.again, s->away.view.n_tensors * sizeof *again);
}

static void keep_best(search *s, double time_ns) {
    keep_all(s, s->best, s->best_tier, s->best_again);
    s->best_ns = time_ns;
    memcpy(s->best_meant_ns, s->away.meant_ns, (s->away.n + 1) * sizeof *s->best_meant_ns);
}

static uint32_t pick_chosen(search *s) {
    uint32_t n = 0, *list = s->covering;
    for (uint32_t i = 0; i < s->away.n_gaps; i++) {
        if (s->away.chosen[i]) { list[n++] = i; }
    }
    return n > 0 ? list[ebb__rng_below(&s->rng, n)] : UINT32_MAX;
}

/* Another tier that takes copies. */
static uint32_t pick_other_tier(search *s, uint32_t tier) {
    for (uint64_t n = 1 + ebb__rng_below(&s->rng, s->n_tiers - 1); n > 0;) {
        tier = tier + 1 < EBB_MAX_TIERS ? tier + 1 : EBB_DEVICE + 1;
        n -= s->away.input->tier_bytes[tier] > 0;
    }
    return tier;
}

/* A tensor moves to another tier, and if that is full, another one from there. */
static void change_tiers(search *s) {
    const uint32_t i = pick_chosen(s), k = pick_chosen(s);
    if (i == UINT32_MAX) { return; }
    const uint32_t a = s->away.gaps[i].tensor, b = s->away.gaps[k].tensor, from = s->away.tier[a];
    const uint32_t to = pick_other_tier(s, from), b_from = s->away.tier[b];
    ebb__away_move(&s->away, a, to);
    if (ebb__away_is_over(&s->away, to) && b_from == to) { ebb__away_move(&s->away, b, from); }
    if (!ebb__away_is_over(&s->away, from) && !ebb__away_is_over(&s->away, to)) { return; }
    ebb__away_move(&s->away, b, b_from);
    ebb__away_move(&s->away, a, from);
}

/* No gap of a tensor covers a place any more. */
static void stay(search *s, uint32_t t, uint32_t place) {
    ebb_away *a = &s->away;
    for (uint32_t k = a->gap_start[t]; k < a->gap_start[t + 1]; k++) {
        const uint32_t i = a->gap_of[k];
        if (a->chosen[i] && (ebb__away_covers(a, &a->gaps[i], place) || a->gaps[i].need == place)) {
            ebb__away_set(a, i, false);
        }
    }
}

/* Compute a tensor again that is copied or stays, and let what that reads stay until then; or no longer. */
static void change_way(search *s) {
    ebb_away *a = &s->away;
    const uint32_t t = a->gaps[ebb__rng_below(&s->rng, a->n_gaps)].tensor;
    if (!a->can_again[t]) { return; }
    for (uint32_t k = a->gap_start[t]; k < a->gap_start[t + 1]; k++) {
        if (a->chosen[a->gap_of[k]]) { ebb__away_set(a, a->gap_of[k], false); }
    }
    ebb__away_compute(a, t, !a->again[t]);
    for (uint32_t k = a->gap_start[t]; k < a->gap_start[t + 1]; k++) {
        const uint32_t i = a->gap_of[k];
        for (uint32_t r = a->read_start[t]; a->again[t] && r < a->read_start[t + 1]; r++) {
            stay(s, a->reads[r], a->gaps[i].need);
        }
        if (!a->chosen[i] && pick_tier(s, i) != EBB_MAX_TIERS) { choose(s, i); }
    }
}

/* Take a few out, and perhaps one in. */
static void vary(search *s) {
    if (s->away.may_again && s->away.n_gaps > 0 && ebb__rng_below(&s->rng, 4) == 0) {
        change_way(s);
        return;
    }
    if (s->n_tiers > 1 && ebb__rng_below(&s->rng, s->has_spilled ? 2 : 8) == 0) {
        change_tiers(s);
        return;
    }
    const uint64_t n_out = ebb__rng_below(&s->rng, MAX_OUT + 1);
    for (uint64_t k = 0; k < n_out; k++) {
        const uint32_t i = pick_chosen(s);
        if (i != UINT32_MAX) { ebb__away_set(&s->away, i, false); }
    }
    if (n_out > 0 && ebb__rng_below(&s->rng, 4) > 0) { return; }
    const uint32_t i = (uint32_t)ebb__rng_below(&s->rng, s->away.n_gaps);
    if (!s->away.chosen[i] && pick_tier(s, i) != EBB_MAX_TIERS) { choose(s, i); }
}

/* What was never dropped did not have to be chosen. */
static void drop_unused(search *s) {
    for (uint32_t i = 0; i < s->away.n_gaps; i++) {
        const ebb_away_gap *g = &s->away.gaps[i];
        if (s->away.chosen[i] && !g->is_dropped) { ebb__away_set(&s->away, i, false); }
    }
}

static void anneal(search *s, uint64_t max_visits) {
    const uint64_t first = s->away.n_visits;
    while (s->best_ns > s->computing_ns && s->away.n_visits - first < max_visits) {
        const double done = (double)(s->away.n_visits - first) / (double)max_visits;
        const double heat = fmax(1, HEAT * s->computing_ns * (1 - done));
        vary(s);
        const double time_ns = choose_more(s, true) ? ebb__away_run(&s->away) : INFINITY;
        if (time_ns > s->at_ns && exp((s->at_ns - time_ns) / heat) <= (double)ebb__rng_unit(&s->rng)) {
            set_all(s, s->at, s->at_tier, s->at_again);
            continue;
        }
        s->at_ns = time_ns;
        if (time_ns < s->best_ns) { keep_best(s, time_ns); }
        keep_all(s, s->at, s->at_tier, s->at_again);
        memcpy(s->away.meant_ns, s->away.run_ns, (s->away.n + 1) * sizeof *s->away.meant_ns);
    }
}

static void settle(search *s) {
    set_all(s, s->best, s->best_tier, s->best_again);
    memcpy(s->away.meant_ns, s->best_meant_ns, (s->away.n + 1) * sizeof *s->best_meant_ns);
    for (int i = 0; i < MAX_SETTLES; i++) {
        (void)ebb__away_run(&s->away);
        drop_unused(s);
    }
    s->away.drops_early = true;
    (void)ebb__away_run(&s->away);
    s->away.drops_early = false;
}

static ebb_status init_search(search *s) {
    const size_t n = s->away.n_gaps + 1;
    s->best = ebb__bump_alloc(&s->away.bump, n, sizeof *s->best);
    s->at = ebb__bump_alloc(&s->away.bump, n, sizeof *s->at);
    s->best_tier = ebb__bump_alloc(&s->away.bump, s->away.view.n_tensors, sizeof *s->best_tier);
    s->at_tier = ebb__bump_alloc(&s->away.bump, s->away.view.n_tensors, sizeof *s->at_tier);
    s->best_meant_ns = ebb__bump_alloc(&s->away.bump, s->away.n + 1, sizeof *s->best_meant_ns);
    s->best_again = ebb__bump_alloc(&s->away.bump, s->away.view.n_tensors, sizeof *s->best_again);
    s->at_again = ebb__bump_alloc(&s->away.bump, s->away.view.n_tensors, sizeof *s->at_again);
    s->covering = ebb__bump_alloc(&s->away.bump, n, sizeof *s->covering);
    s->waste = ebb__bump_alloc(&s->away.bump, s->away.n + 1, sizeof *s->waste);
    s->over = ebb__bump_alloc(&s->away.bump, s->away.view.n_steps + 1, sizeof *s->over);
    if (s->best == NULL || s->at == NULL || s->covering == NULL || s->best_meant_ns == NULL || s->waste == NULL ||
        s->over == NULL || s->best_tier == NULL || s->at_tier == NULL || s->best_again == NULL || s->at_again == NULL) {
        return EBB_E_NO_MEMORY;
    }
    for (uint32_t tier = EBB_DEVICE + 1; tier < EBB_MAX_TIERS; tier++) {
        s->n_tiers += s->away.input->tier_bytes[tier] > 0;
    }
    s->peak_ns = s->away.begin_ns[ebb__away_peak(&s->away)];
    memset(s->waste, 0, (s->away.n + 1) * sizeof *s->waste);
    s->computing_ns = s->away.begin_ns[s->away.n];
    return EBB_OK;
}

static double run_chosen(search *s, bool is_chosen) {
    return is_chosen ? ebb__away_run(&s->away) : INFINITY;
}

/* If the fastest tier does not hold all, try the other way round, too: what is away longest goes to a slower one. */
static bool choose_first(search *s) {
    const bool is_chosen = choose_more(s, false);
    if (!s->has_spilled || s->best_ns < INFINITY) { return is_chosen; }
    const double spilled_ns = run_chosen(s, is_chosen);
    keep_all(s, s->at, s->at_tier, s->at_again);
    for (uint32_t i = 0; i < s->away.n_gaps; i++) {
        if (s->away.chosen[i]) { ebb__away_set(&s->away, i, false); }
    }
    memset(s->busy_ns, 0, sizeof s->busy_ns);
    s->is_patient = true;
    const double patient_ns = run_chosen(s, choose_more(s, false));
    s->is_patient = false;
    if (patient_ns > spilled_ns) { set_all(s, s->at, s->at_tier, s->at_again); }
    return fmin(spilled_ns, patient_ns) < INFINITY;
}

/* The best set that is found for a limit, from the chosen one on. false: there is none. */
static bool find_set(search *s, uint64_t visits) {
    if (!choose_first(s)) { return false; }
    s->at_ns = ebb__away_run(&s->away);
    keep_best(s, s->at_ns);
    keep_all(s, s->at, s->at_tier, s->at_again);
    if (s->away.n_gaps > 0) { anneal(s, visits); }
    settle(s);
    return true;
}

/* From now on these bytes more are taken at a place; below 0: less. */
static void add_waste(search *s, uint32_t place, int64_t bytes) {
    s->waste[place] += bytes;
    s->away.base[place] += bytes;
    s->away.load[place] += bytes;
}

/* Where the placed draft is above the budget, as much is wasted, up to all that there may be. */
static void waste_over(search *s) {
    for (uint32_t p = 0; p < s->away.n; p++) {
        uint64_t most = 0;
        for (uint32_t step = s->away.step[p]; step < s->away.step[p + 1]; step++) {
            most = ebb_max_u64(most, s->over[step]);
        }
        add_waste(s, p, (int64_t)ebb_min_u64(most, s->away.input->limit_bytes - (uint64_t)s->waste[p]));
    }
}

static void forget_waste(search *s) {
    for (uint32_t p = 0; p < s->away.n; p++) { add_waste(s, p, -(s->waste[p] + FORGOTTEN - 1) / FORGOTTEN); }
}

/* Place the set and take its draft if it is the fastest so far. *bytes_out: what it needs. */
static ebb_status take_placed(search *s, uint64_t work, ebb_draft *trial, ebb_draft *draft, uint64_t *bytes_out) {
    double time_ns = INFINITY;
    ebb__draft_reset(trial, s->away.input->program);
    EBB_TRY(ebb__away_draft(&s->away, trial));
    EBB_TRY(ebb__best_place(s->away.input, trial, work, &time_ns, bytes_out, s->over, NULL));
    if (time_ns < s->placed_ns) {
        s->placed_ns = time_ns;
        ebb__draft_swap(draft, trial);
    }
    return EBB_OK;
}

/* A search is worth fewer visits where there are few gaps; the parts of a tensor count as one. */
static uint64_t cap_visits(const search *s, uint64_t visits) {
    uint64_t n_gaps = 0;
    for (uint32_t i = 0; i < s->away.n_gaps; i++) { n_gaps += s->away.gaps[i].begin == 0; }
    return ebb_min_u64(visits, VISITS_A_GAP * n_gaps);
}

/* Nothing is faster than what has been placed, or the caller wants no more. */
static bool is_done(const search *s, const ebb_policy_input *input) {
    if (s->placed_ns <= s->computing_ns) { return true; }
    return s->placed_ns < INFINITY && ebb__is_stopped(input->options);
}

/* The limit goes down from the budget. It ends where even the estimate is no faster than what has been placed. */
static ebb_status go_down(search *s, ebb_policy_input *input, ebb_draft *trial, ebb_draft *draft) {
    const uint64_t budget = input->budget_bytes, alignment = s->away.view.alignment;
    const uint32_t n_sets = input->effort > 0 ? 2 : 1;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < N_LIMITS; i++) {
        bool is_better = false;
        input->limit_bytes = (budget - budget / 64 * i) / alignment * alignment;
        for (uint32_t k = 0; k < n_sets && !is_done(s, input); k++) {
            const uint64_t visits = i + k == 0 && !input->is_hasty ? FIRST_VISITS : VISITS;
            if (!find_set(s, cap_visits(s, visits))) { return EBB_OK; }
            if (s->best_ns >= s->placed_ns) { continue; }
            is_better = true;
            EBB_TRY(take_placed(s, EBB_PLACING_QUICK, trial, draft, &bytes));
        }
        if (!is_better) { break; }
    }
    return EBB_OK;
}

/* The limit stays, and the load is lower only where placing wastes memory. */
static ebb_status go_around_waste(search *s, ebb_policy_input *input, ebb_draft *trial, ebb_draft *draft) {
    const uint64_t alignment = s->away.view.alignment;
    const uint64_t n_sets = input->effort > 1 ? WASTE_SETS * ((uint64_t)input->effort - 1) : 0;
    input->limit_bytes = input->budget_bytes / alignment * alignment;
    for (uint64_t i = 0; i < n_sets && !is_done(s, input); i++) {
        uint64_t bytes = 0;
        if (!find_set(s, cap_visits(s, i == 0 ? FIRST_VISITS : VISITS))) { return EBB_OK; }
        if (s->best_ns < s->placed_ns) { EBB_TRY(take_placed(s, EBB_PLACING_SET, trial, draft, &bytes)); }
        if (bytes > input->budget_bytes) {
            waste_over(s);
        } else {
            forget_waste(s);
        }
    }
    return EBB_OK;
}

static ebb_status search_sets(search *s, ebb_policy_input *input, ebb_draft *draft) {
    ebb_draft trial;
    EBB_TRY(init_search(s));
    if (input->is_hasty && !input->walks) { return find_set(s, 0) ? ebb__away_draft(&s->away, draft) : EBB_E_NO_FIT; }
    EBB_TRY(ebb__draft_init(&trial, input->program, input->mem));
    ebb_status st = go_down(s, input, &trial, draft);
    if (st == EBB_OK) { st = go_around_waste(s, input, &trial, draft); }
    ebb__draft_fini(&trial);
    return st == EBB_OK && s->placed_ns == INFINITY ? EBB_E_NO_FIT : st;
}

/* *placed_ns_io: what the draft has to beat, and what it takes. */
static ebb_status search_from(const ebb_policy_input *input, uint64_t seed, bool may_again, ebb_away_split split,
                              double *placed_ns_io, ebb_draft *draft) {
    search s = {.best_ns = INFINITY, .placed_ns = *placed_ns_io};
    ebb_policy_input own = *input;
    ebb__rng_init(&s.rng, seed, 1);
    ebb_status st = ebb__away_init(&s.away, &own, may_again, split);
    if (st == EBB_OK) { st = search_sets(&s, &own, draft); }
    *placed_ns_io = s.placed_ns;
    ebb__away_fini(&s.away);
    return st;
}

static ebb_status draft_sets(const ebb_policy_input *input, ebb_draft *draft) {
    double placed_ns = INFINITY;
    return search_from(input, 1, false, EBB_AWAY_WHOLE, &placed_ns, draft);
}

/* Put the faster of two drafts, as estimated, into *draft. */
static ebb_status take_faster(const ebb_policy_input *input, ebb_draft *draft, ebb_draft *other) {
    double time_ns = 0, other_ns = 0;
    ebb_best_drag drag;
    ebb__best_find_drag(input, &drag);
    EBB_TRY(ebb__best_time(input, &drag, draft, &time_ns));
    EBB_TRY(ebb__best_time(input, &drag, other, &other_ns));
    if (other_ns < time_ns) { ebb__draft_swap(draft, other); }
    return EBB_OK;
}

typedef ebb_status (*drafter)(const ebb_policy_input *input, ebb_draft *draft);

/* What is faster, as estimated, or what there is. */
static ebb_status draft_faster(const ebb_policy_input *input, drafter first, drafter second, ebb_draft *draft) {
    ebb_draft other;
    EBB_TRY(ebb__draft_init(&other, input->program, input->mem));
    ebb__draft_reset(&other, input->program);
    ebb_status st = first(input, draft);
    const ebb_status others = st == EBB_OK || st == EBB_E_NO_FIT ? second(input, &other) : st;
    if (others == EBB_OK && st == EBB_OK) {
        st = take_faster(input, draft, &other);
    } else if (others == EBB_OK) {
        ebb__draft_swap(draft, &other);
        st = EBB_OK;
    } else if (others != EBB_E_NO_FIT) {
        st = others;
    }
    ebb__draft_fini(&other);
    return st;
}

/* AutoSwap's best mix, or, where it has no draft or a slower one, what is needed last is copied out first. */
static ebb_status draft_rules(const ebb_policy_input *input, ebb_draft *draft) {
    return draft_faster(input, ebb__policy_budget.draft, ebb__policy_autoswap_bo.draft, draft);
}

static ebb_status draft_walks(const ebb_policy_input *input, ebb_draft *draft) {
    return ebb__policy_best.draft(input, draft);
}

/* In haste a walk costs as little as a set. */
static ebb_status draft_swap(const ebb_policy_input *input, ebb_draft *draft) {
    EBB_ASSERT(input->copies_only);
    if (ebb__plan_view(input->program).n_steps > MAX_STEPS) { return ebb__policy_budget.draft(input, draft); }
    return input->is_hasty ? draft_faster(input, draft_sets, draft_walks, draft) : draft_sets(input, draft);
}

static bool has_large_persistent(const ebb_policy_input *input) {
    const ebb_program_view view = ebb__plan_view(input->program);
    size_t t = 0;
    while (t < view.n_tensors && !(view.tensors[t].persistent && ebb__away_is_large(input, &view.tensors[t]))) { t++; }
    return t < view.n_tensors;
}

static ebb_status draft_exchange(const ebb_policy_input *input, ebb_draft *draft) {
    const size_t n = input->is_hasty ? 1 : sizeof exchange_splits / sizeof *exchange_splits;
    const bool may_part = input->options == NULL || !input->options->no_parts;
    const bool may_part_persistent = may_part && has_large_persistent(input);
    double placed_ns = INFINITY;
    bool is_found = false;
    for (size_t i = 0; i < n; i++) {
        const ebb_away_split split = may_part ? exchange_splits[i] : EBB_AWAY_WHOLE;
        if (exchange_splits[i].persistent > 1 && !may_part_persistent) { continue; }
        const ebb_status st = search_from(input, i + 1, !input->copies_only, split, &placed_ns, draft);
        if (st != EBB_OK && st != EBB_E_NO_FIT) { return st; }
        is_found = is_found || st == EBB_OK;
    }
    return is_found ? EBB_OK : EBB_E_NO_FIT;
}

const ebb_policy ebb__policy_exchange = {.name = "best",
                                         .about = "",
                                         .keeps_limit = true,
                                         .changes_order = true,
                                         .is_for_copies = true,
                                         .draft = draft_exchange};

static const ebb_policy rules = {
    .name = "swap", .about = "", .keeps_limit = true, .copies_only = true, .draft = draft_rules};

static const ebb_policy walks = {
    .name = "swap", .about = "", .keeps_limit = true, .copies_only = true, .changes_order = true, .draft = draft_walks};

static const ebb_policy *const rivals[] = {&rules, &walks};

const ebb_policy ebb__policy_swap = {
    .name = "swap",
    .about = "searches what to copy out, and when; nothing is computed again",
    .keeps_limit = true,
    .copies_only = true,
    .changes_order = true,
    .picks_limits = true,
    .when_it_fits = &ebb__policy_liveness,
    .rivals = rivals,
    .n_rivals = 2,
    .n_quick_rivals = 1,
    .draft = draft_swap,
};
