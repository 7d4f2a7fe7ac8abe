/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy best: for each time that a tensor is not used, keep it, copy it out or compute it again, so that an
 * iteration takes the least time within the limits.
 *
 * It searches. A walk through the program (best_walk.c) turns keys, a few numbers for each tensor, into a whole draft
 * that keeps the limits; needless recomputations are taken out of it (best_prune.c); a quick estimate says what it
 * takes (best_time.c). What looks better than all before is placed and simulated, and only what is then faster counts.
 *
 *      seeds     walks with equal keys: by one price for all copies, with copies only, and by the bound's prices, each
 *                with several prices and reaches
 *      rounds    simulated annealing over the keys, from the best so far, where anything can be copied; a larger
 *                tensor's keys change more often. Then local search (best_refine.c) from several drafts at once
 *                (best_lanes.c), unless nothing may be computed again. Each unit of effort is one round, so more effort
 *                goes on where less would have stopped.
 *
 * Random numbers have a fixed seed, and effort counts looks at tensors, not time: one build gives the same plan each
 * time. Other builds may not, because pow and exp differ in their last bits between libraries.
 *
 * Cost: each tensor that leaves is chosen among all that are there, so a walk takes O(tensors that leave * tensors
 * there). All walks but the very first stop after SEED_LOOKS for each kind of seed, as many for repairs, and
 * ROUND_LOOKS for each round.
 *
 * The sources are in docs/best.md.
 *
 * In haste the draft is that of the policy budget, or, for a first plan, that of one walk.
 *
 * Not here: parts of tensors, other orders of the steps (policy order), choices of algorithm (fitting.c), programs of
 * more than MAX_STEPS steps, which get the draft of the policy budget.
 */
#include "plan/best.h"

#include <math.h>

#define MAX_STEPS 20000u
#define ROUND_LOOKS ((uint64_t)1 << 27) /* about a second */
#define MAX_ANNEALS 3u                  /* in a round, of small programs */
#define ROUND_WALKS_A_TENSOR 20u        /* at most, added to MIN_ROUND_WALKS: small programs have little to find */
#define MIN_ROUND_WALKS 100u
#define SEED_LOOKS (ROUND_LOOKS / 2)
#define LANE_LOOKS (ROUND_LOOKS / 4)      /* of local search, for each lane in each round */
#define COPIES_LOOKS (ROUND_LOOKS / 16)   /* the same where there are copies, which it does not change */
#define MAX_PLACED 2u                     /* drafts of lanes, in one round */
#define MAX_LOWER 4u                      /* limits, in one round of local search */
#define ROUND_WORK (EBB_PLACE_STEPS / 8)  /* of placing what comes out of a round */
#define PLACING_LOOKS ((uint64_t)1 << 18) /* that placing and simulating a draft counts for */
#define PARTS 100                         /* of a round, that are told */
#define ANNEALED 0.5                      /* the share of a round that annealing takes, about */
#define HEAT 0.003                        /* of the computing time: a loss that is taken with a chance of 1 in e */
#define CLOSE 1.001                       /* times the bound: what is as close is not worth a search */
#define HOPELESS 1.15                     /* times what the walk before took */
#define FIRST_PRICE 0.1f                  /* of copies in a first plan: most of their time is hidden by computing */

typedef struct search {
    const ebb_policy_input *input;
    ebb_best_walk walk;
    ebb_draft draft; /* of the walk at hand */
    ebb_draft *best_draft;
    ebb_best_keys best, tried, at;
    ebb_best_lanes lanes;
    uint64_t lane_limit_bytes;
    uint64_t placed_bytes; /* what the last draft that was placed needs */
    bool has_draft;
    double keys_ns;                 /* what the walk by the best keys takes, estimated */
    double best_ns;                 /* of best_draft, simulated; INFINITY: it cannot be placed */
    double computing_ns, enough_ns; /* what is as fast as this is good enough */
    uint32_t round;
    uint64_t round_looks; /* before this round */
    ebb_rng rng;
    double *upto; /* [n_tensors]: bytes of this and those before it */
} search;

/* ---- keys --------------------------------------------------------------------------------------- */

static ebb_status init_keys(search *s, ebb_best_keys *keys) {
    const size_t n = s->walk.view.n_tensors;
    keys->weight = ebb__bump_alloc(&s->walk.bump, n, sizeof *keys->weight);
    keys->copy = ebb__bump_alloc(&s->walk.bump, n, sizeof *keys->copy);
    keys->resident = ebb__bump_alloc(&s->walk.bump, n, sizeof *keys->resident);
    keys->no_again = ebb__bump_alloc(&s->walk.bump, n, sizeof *keys->no_again);
    if (keys->weight == NULL || keys->copy == NULL || keys->resident == NULL || keys->no_again == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(keys->weight, 0, n * sizeof *keys->weight);
    memset(keys->copy, 0, n * sizeof *keys->copy);
    memset(keys->resident, 0, n * sizeof *keys->resident);
    memset(keys->no_again, 0, n * sizeof *keys->no_again);
    keys->link_price = keys->reach = 1;
    keys->copies_only = keys->by_duals = keys->keeps_parts = false;
    return EBB_OK;
}

static void copy_keys(const search *s, ebb_best_keys *to, const ebb_best_keys *from) {
    const size_t n = s->walk.view.n_tensors;
    memcpy(to->weight, from->weight, n * sizeof *to->weight);
    memcpy(to->copy, from->copy, n * sizeof *to->copy);
    memcpy(to->resident, from->resident, n * sizeof *to->resident);
    memcpy(to->no_again, from->no_again, n * sizeof *to->no_again);
    to->link_price = from->link_price;
    to->reach = from->reach;
    to->copies_only = from->copies_only;
    to->by_duals = from->by_duals;
    to->keeps_parts = from->keeps_parts;
}

/* Pick a random tensor, weighted by its bytes. */
static size_t pick_tensor(search *s) {
    const size_t n = s->walk.view.n_tensors;
    const double at = (double)ebb__rng_unit(&s->rng) * s->upto[n - 1];
    size_t low = 0;
    for (size_t high = n - 1; low < high;) {
        const size_t middle = low + (high - low) / 2;
        if (s->upto[middle] <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Neighbours are of one layer, as a rule. */
static void vary_neighbours(search *s, float size) {
    const size_t first = pick_tensor(s), end = ebb_min_u64(first + 8, s->walk.view.n_tensors);
    const float by = size * ebb__rng_normal(&s->rng);
    for (size_t t = first; t < end; t++) { s->tried.weight[t] += by; }
}

static void vary_tensors(search *s, uint64_t n, float size) {
    for (; n > 0; n--) {
        const size_t t = pick_tensor(s);
        float *key = ebb__rng_below(&s->rng, 2) == 0 ? &s->tried.copy[t] : &s->tried.weight[t];
        *key = ebb__rng_below(&s->rng, 10) < 3 ? 0 : *key + size * ebb__rng_normal(&s->rng);
    }
}

static bool has_no_again(const search *s) {
    size_t t = 0;
    while (t < s->walk.view.n_tensors && !s->tried.no_again[t]) { t++; }
    return t < s->walk.view.n_tensors;
}

static void vary_ways(search *s, uint64_t n) {
    for (; n > 0; n--) {
        bool *no_again = &s->tried.no_again[pick_tensor(s)];
        *no_again = !*no_again;
    }
}

/* A weight is multiplied, an exponent is moved. */
static void vary_reach(search *s) {
    const float by = ebb__rng_normal(&s->rng);
    s->tried.reach = s->tried.by_duals ? s->tried.reach * exp2f(by) : fmaxf(0, s->tried.reach + 0.3f * by);
}

/* The keys tried: most often those of a few tensors, sometimes of many. */
static void vary(search *s) {
    const uint64_t kind = ebb__rng_below(&s->rng, 10);
    const float size = ebb__rng_below(&s->rng, 10) < 7 ? 1.5f : 4.5f;
    if (kind == 3 && has_no_again(s)) {
        vary_ways(s, 1 + ebb__rng_below(&s->rng, 3));
        return;
    }
    switch (kind) {
    case 0: vary_reach(s); break;
    case 1: s->tried.link_price *= exp2f(ebb__rng_normal(&s->rng)); break;
    case 2: vary_neighbours(s, size); return;
    default: break;
    }
    const uint64_t most = kind < 6 ? 3 : s->walk.view.n_tensors / 20 + 1;
    vary_tensors(s, 1 + ebb__rng_below(&s->rng, most), size);
}

/* ---- drafts ------------------------------------------------------------------------------------- */

/* The simulated time of the draft at hand, once it is placed; INFINITY: its places are not within the budget. */
static ebb_status time_placed(search *s, uint64_t work, double *time_ns_out) {
    const ebb_policy_input *input = s->input;
    ebb_placing_options options = {.alignment = s->walk.view.alignment,
                                   .work = work,
                                   .enough_bytes = input->budget_bytes,
                                   .limit_bytes = input->budget_bytes};
    ebb_timeline timeline = {0};
    ebb_placed placed = {0};
    ebb_plan *plan = NULL;
    *time_ns_out = INFINITY;
    memcpy(options.tier_bytes, input->tier_bytes, sizeof options.tier_bytes);
    EBB_TRY(ebb__plan_create(input->mem, "best", ebb_machine_topology(input->machine), &plan));
    plan->alignment_bytes = s->walk.view.alignment;
    ebb_status st = ebb__draft_to_plan(&s->draft, input->program, plan);
    if (st == EBB_OK) { st = ebb__plan_place(plan, &options, &placed); }
    s->placed_bytes = placed.peak_bytes;
    bool fits = placed.peak_bytes <= input->budget_bytes;
    for (uint32_t t = 1; t < EBB_MAX_TIERS; t++) { fits = fits && placed.tier_bytes[t] <= input->tier_bytes[t]; }
    if (st == EBB_OK && fits) {
        st = ebb_plan_simulate(input->program, plan, input->machine, &timeline, NULL, NULL);
        *time_ns_out = (double)timeline.iteration_ns;
    }
    ebb_plan_destroy(plan);
    return st;
}

/* The draft at hand, if it is the fastest so far, or the first. *estimate_ns: its time; INFINITY from now on if it
 * cannot be placed. */
static ebb_status take_faster(search *s, uint64_t work, double *estimate_ns) {
    double time_ns = INFINITY;
    s->walk.n_looks += PLACING_LOOKS;
    EBB_TRY(time_placed(s, work, &time_ns));
    if (time_ns == INFINITY) { *estimate_ns = INFINITY; }
    if (time_ns >= s->best_ns && s->has_draft) { return EBB_OK; }
    ebb__draft_swap(s->best_draft, &s->draft);
    s->has_draft = true;
    s->best_ns = time_ns;
    return EBB_OK;
}

/* Walk with the keys tried. *time_ns_out: estimated; INFINITY: no draft, or it takes limit_ns or more. */
static ebb_status try_keys(search *s, bool find_resident, double limit_ns, double *time_ns_out) {
    *time_ns_out = INFINITY;
    const ebb_status st = ebb__best_walk(&s->walk, &s->tried, limit_ns, find_resident);
    if (st == EBB_E_NO_FIT) { return EBB_OK; }
    if (st != EBB_OK) { return st; }
    EBB_TRY(ebb__best_time(s->input, &s->walk.drag, &s->draft, time_ns_out));
    if (!s->input->copies_only) { EBB_TRY(ebb__best_lanes_offer(&s->lanes, &s->draft, *time_ns_out)); }
    if (*time_ns_out >= s->best_ns) { return EBB_OK; }
    const double before_ns = s->best_ns;
    const bool is_first = !s->has_draft;
    EBB_TRY(take_faster(s, EBB_PLACING_QUICK, time_ns_out));
    if (!is_first && s->best_ns >= before_ns) { return EBB_OK; }
    copy_keys(s, &s->best, &s->tried);
    s->keys_ns = *time_ns_out;
    return EBB_OK;
}

/* ---- the search --------------------------------------------------------------------------------- */

/* Three kinds of seeds, one after the other: by one price for all copies; the same, with copies only; and by the
 * bound's prices. Within a kind, all prices are tried for one reach, then for the next: if looks run out, the first few
 * seeds should differ most. */
static const float seed_prices[] = {1, 0.3f, 0.1f, 0.02f, 0.005f}, seed_reaches[] = {1, 0.5f, 0.25f, 0, 1.5f, 2};
static const float dual_prices[] = {1, 1.2f, 0.7f, 1.5f}, dual_reaches[] = {0.03f, 0.3f, 3};
#define N_SEED_PRICES (sizeof seed_prices / sizeof seed_prices[0])
#define N_DUAL_PRICES (sizeof dual_prices / sizeof dual_prices[0])
#define N_PLAIN (N_SEED_PRICES * sizeof seed_reaches / sizeof seed_reaches[0])
#define N_DUAL (2 * N_DUAL_PRICES * sizeof dual_reaches / sizeof dual_reaches[0])
#define N_SEEDS (2 * N_PLAIN + N_DUAL)

/* The keys of seed i. false: another seed is the same. */
static bool set_seed(search *s, size_t i) {
    const bool has_copies = ebb__has_tiers(s->input->tier_bytes);
    const size_t plain = i % N_PLAIN, dual = (i - ebb_min_u64(i, 2 * N_PLAIN)) / 2;
    s->tried.by_duals = i >= 2 * N_PLAIN;
    s->tried.keeps_parts = s->tried.by_duals && i % 2 == 1;
    s->tried.copies_only = !s->tried.by_duals && i >= N_PLAIN;
    const size_t price = s->tried.by_duals ? dual % N_DUAL_PRICES : plain % N_SEED_PRICES;
    s->tried.link_price = s->tried.by_duals ? dual_prices[price] : seed_prices[price];
    s->tried.reach = s->tried.by_duals ? dual_reaches[dual / N_DUAL_PRICES] : seed_reaches[plain / N_SEED_PRICES];
    memset(s->tried.no_again, 0, s->walk.view.n_tensors * sizeof *s->tried.no_again);
    if (s->tried.by_duals && s->walk.duals == NULL) { return false; }
    if (s->tried.copies_only) { return has_copies && !s->input->copies_only && price == 0; }
    return has_copies || price == 0;
}

/* Those that found no room to compute something again: what they name is copied instead, until there is room. */
static ebb_status repair_seeds(search *s, const bool blocked[N_SEEDS]) {
    double time_ns = INFINITY;
    s->walk.max_looks = s->walk.n_looks + SEED_LOOKS;
    for (size_t i = 0; i < N_SEEDS && s->walk.n_looks < s->walk.max_looks; i++) {
        if (!blocked[i] || !ebb__has_tiers(s->input->tier_bytes)) { continue; }
        (void)set_seed(s, i);
        do {
            EBB_TRY(try_keys(s, true, INFINITY, &time_ns));
            if (s->walk.blocked != EBB_BEST_NONE) { s->tried.no_again[s->walk.blocked] = true; }
        } while (s->walk.blocked != EBB_BEST_NONE && s->walk.n_looks < s->walk.max_looks);
    }
    return EBB_OK;
}

/* Each kind has SEED_LOOKS in all; only the very first walk may go past them. */
static ebb_status seed(search *s) {
    bool blocked[N_SEEDS] = {false};
    double time_ns = INFINITY;
    uint64_t first = 0;
    EBB_TRY(ebb__best_find_duals(&s->walk, &s->walk.duals, &s->enough_ns));
    s->enough_ns = fmax(s->computing_ns, CLOSE * s->enough_ns);
    for (size_t i = 0; i < N_SEEDS && s->best_ns > s->enough_ns; i++) {
        if (i % N_PLAIN == 0 && i <= 2 * N_PLAIN) { first = s->walk.n_looks; }
        if (!set_seed(s, i)) { continue; }
        s->walk.max_looks = i == 0 ? UINT64_MAX : first + SEED_LOOKS;
        EBB_TRY(try_keys(s, true, INFINITY, &time_ns));
        blocked[i] = s->walk.blocked != EBB_BEST_NONE;
    }
    return repair_seeds(s, blocked);
}

static bool is_taken(search *s, double at_ns, double time_ns, double share_done) {
    const double heat = HEAT * s->computing_ns * (1 - share_done), dice = (double)ebb__rng_unit(&s->rng);
    return time_ns <= at_ns || exp((at_ns - time_ns) / fmax(heat, 1)) > dice;
}

/* How far all rounds are; of this one, the share that is done. */
static void tell(const search *s, double share_done) {
    const uint64_t n = PARTS * (uint64_t)s->input->effort;
    ebb__tell(s->input->progress, "searching, part", PARTS * (uint64_t)s->round + (uint64_t)(PARTS * share_done), n);
}

static ebb_status anneal(search *s) {
    const uint64_t first = s->walk.n_looks, n_walks = MIN_ROUND_WALKS + ROUND_WALKS_A_TENSOR * s->walk.view.n_tensors;
    double at_ns = s->keys_ns;
    copy_keys(s, &s->at, &s->best);
    s->walk.max_looks = first + ROUND_LOOKS;
    for (uint64_t i = 0; i < n_walks && s->walk.n_looks - first < ROUND_LOOKS; i++) {
        const double by_looks = (double)(s->walk.n_looks - first) / (double)ROUND_LOOKS;
        double time_ns = INFINITY;
        tell(s, (double)(s->walk.n_looks - s->round_looks) / (double)ROUND_LOOKS * ANNEALED);
        copy_keys(s, &s->tried, &s->at);
        vary(s);
        EBB_TRY(try_keys(s, false, at_ns * HOPELESS, &time_ns));
        if (!is_taken(s, at_ns, time_ns, fmax(by_looks, (double)i / (double)n_walks))) { continue; }
        copy_keys(s, &s->at, &s->tried);
        at_ns = time_ns;
    }
    return EBB_OK;
}

/* Local search in all lanes; the fastest of their drafts that can be placed is taken. If there are faster ones than
 * before and none of them can, the lanes get a lower limit and go on. */
static ebb_status refine(search *s) {
    const uint64_t n_looks = ebb__has_tiers(s->input->tier_bytes) ? COPIES_LOOKS : LANE_LOOKS;
    for (uint32_t i = 0; i < MAX_LOWER; i++) {
        uint64_t need_bytes = UINT64_MAX;
        tell(s, ebb__has_tiers(s->input->tier_bytes) ? ANNEALED : (double)i / MAX_LOWER);
        EBB_TRY(ebb__best_lanes_run(&s->lanes, s->lane_limit_bytes, n_looks >> i));
        for (uint32_t k = 0; k < MAX_PLACED; k++) {
            const ebb_best_lane *lane = &s->lanes.lane[s->lanes.by_time[k]];
            double time_ns = lane->time_ns;
            if (time_ns >= s->best_ns) { break; }
            EBB_TRY(ebb__best_lanes_copy(lane, &s->draft));
            EBB_TRY(take_faster(s, ROUND_WORK, &time_ns));
            need_bytes = ebb_min_u64(need_bytes, s->placed_bytes);
        }
        if (need_bytes == UINT64_MAX || need_bytes <= s->input->budget_bytes) { break; }
        const double share = (double)s->input->budget_bytes / (double)need_bytes;
        s->lane_limit_bytes = (uint64_t)((double)s->lane_limit_bytes * fmin(share, 1023.0 / 1024));
    }
    return EBB_OK;
}

/* Keys matter for copies; without any, local search is better all the time. */
static ebb_status find_best(search *s) {
    const bool has_copies = ebb__has_tiers(s->input->tier_bytes);
    EBB_TRY(seed(s));
    if (!s->has_draft) { return EBB_E_NO_FIT; }
    const bool is_placed = s->best_ns < INFINITY;
    for (uint32_t i = 0; is_placed && i < s->input->effort && s->best_ns > s->enough_ns; i++) {
        s->round = i;
        s->round_looks = s->walk.n_looks;
        for (uint32_t k = 0; has_copies && k < MAX_ANNEALS && s->walk.n_looks - s->round_looks < ROUND_LOOKS / 2; k++) {
            EBB_TRY(anneal(s));
        }
        if (!s->input->copies_only) { EBB_TRY(refine(s)); }
    }
    return EBB_OK;
}

/* The draft of one walk, whatever time it takes. */
static ebb_status take_walk(search *s, float link_price, float reach) {
    s->tried.link_price = link_price;
    s->tried.reach = reach;
    EBB_TRY(ebb__best_walk(&s->walk, &s->tried, INFINITY, true));
    ebb__draft_swap(s->best_draft, &s->draft);
    return EBB_OK;
}

/* Take the first walk that succeeds. */
static ebb_status find_any(search *s) {
    const float price = s->input->walks ? FIRST_PRICE : 1;
    for (float reach = 1; reach >= 0; reach -= 0.25f) {
        const ebb_status st = take_walk(s, price, reach);
        if (st != EBB_E_NO_FIT) { return st; }
    }
    return EBB_E_NO_FIT;
}

/* These seeds were placed lowest, among all that were tried on networks of the zoo. */
static const float other_prices[] = {0.3f, 0.1f, 0.02f, 1}, other_reaches[] = {0, 0.25f, 1, 1.5f, 2};
#define N_OTHER_REACHES (sizeof other_reaches / sizeof other_reaches[0])
#define N_OTHERS (N_OTHER_REACHES * sizeof other_prices / sizeof other_prices[0])

static ebb_status find_other(search *s) {
    const uint32_t i = s->input->other - 1;
    return take_walk(s, other_prices[i / N_OTHER_REACHES], other_reaches[i % N_OTHER_REACHES]);
}

static ebb_status init_search(search *s) {
    const size_t n = s->walk.view.n_tensors;
    EBB_TRY(init_keys(s, &s->best));
    EBB_TRY(init_keys(s, &s->tried));
    EBB_TRY(init_keys(s, &s->at));
    s->upto = ebb__bump_alloc(&s->walk.bump, n, sizeof *s->upto);
    if (s->upto == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t t = 0; t < n; t++) { s->upto[t] = (double)s->walk.state[t].bytes + (t > 0 ? s->upto[t - 1] : 0); }
    for (size_t i = 0; i < s->walk.view.n_steps; i++) { s->computing_ns += s->walk.step_ns[i]; }
    return EBB_OK;
}

static ebb_status search_drafts(const ebb_policy_input *input, ebb_draft *draft) {
    search s = {.input = input, .best_draft = draft, .best_ns = INFINITY, .lane_limit_bytes = input->limit_bytes};
    ebb__rng_init(&s.rng, 1, 1);
    EBB_TRY(ebb__draft_init(&s.draft, input->program, input->mem));
    ebb__draft_reset(&s.draft, input->program);
    ebb_status st = ebb__best_walk_init(&s.walk, input, &s.draft);
    if (st == EBB_OK) { st = init_search(&s); }
    const bool has_lanes = input->other == 0 && !input->is_hasty && !input->copies_only;
    if (st == EBB_OK && has_lanes) { st = ebb__best_lanes_init(&s.lanes, input); }
    if (st == EBB_OK) { st = input->other > 0 ? find_other(&s) : input->is_hasty ? find_any(&s) : find_best(&s); }
    if (has_lanes) { ebb__best_lanes_fini(&s.lanes); }
    ebb__best_walk_fini(&s.walk);
    ebb__draft_fini(&s.draft);
    return st;
}

static ebb_status draft_best(const ebb_policy_input *input, ebb_draft *draft) {
    const bool is_large = ebb__plan_view(input->program).n_steps > MAX_STEPS;
    if (!is_large && (!input->is_hasty || input->walks || input->other > 0)) { return search_drafts(input, draft); }
    const ebb_status st = ebb__policy_budget.draft(input, draft);
    if (st != EBB_E_NO_FIT || is_large) { return st; }
    ebb__draft_reset(draft, input->program);
    return search_drafts(input, draft);
}

/* All that have a rule for what leaves. */
static const ebb_policy *const rivals[] = {
    &ebb__policy_budget,
    &ebb__policy_autoswap_bo,
    &ebb__policy_autoswap_doa,
    &ebb__policy_autoswap_aoa,
    &ebb__policy_autoswap_wdoa,
    &ebb__policy_autoswap_swdoa,
    &ebb__policy_autoswap_vote,
    &ebb__policy_recompute_speed,
    &ebb__policy_recompute_memory,
    &ebb__policy_recompute_cost_aware,
    &ebb__policy_recompute_printed,
    &ebb__policy_sqrt_n,
    &ebb__policy_vdnn_all,
    &ebb__policy_vdnn_conv,
    &ebb__policy_utp,
    &ebb__policy_tensor_cache,
    &ebb__policy_tensor_cache_next,
    &ebb__policy_superneurons,
    &ebb__policy_chen_greedy,
    &ebb__policy_ap_sqrt_n,
    &ebb__policy_ap_greedy,
    &ebb__policy_revolve,
    &ebb__policy_mixed,
    &ebb__policy_capuchin,
    &ebb__policy_mu_two,
    &ebb__policy_g10,
    &ebb__policy_dtr,
    &ebb__policy_dtr_eq,
};

const ebb_policy ebb__policy_best = {
    .name = "best",
    .about = "searches for the fastest plan inside a budget: what stays, what is copied out, what is computed again",
    .keeps_limit = true,
    .changes_order = true,
    .when_it_fits = &ebb__policy_liveness,
    .rivals = rivals,
    .n_rivals = sizeof rivals / sizeof rivals[0],
    .n_quick_rivals = 2,
    .n_others = N_OTHERS,
    .draft = draft_best,
};
