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
 *                with several prices and reaches. If the first one finds the fastest tier full, the others are patient:
 *                what is away long enough for both copies goes to a slower tier
 *      rounds    simulated annealing over the keys, from the best so far, where anything can be copied; a larger
 *                tensor's keys change more often. Then local search (best_refine.c) from several drafts at once
 *                (best_lanes.c), unless nothing may be computed again. Each unit of effort is one round, so more effort
 *                goes on where less would have stopped.
 *
 * Random numbers have a fixed seed, and effort counts looks at tensors, not time: one build gives the same plan each
 * time. Other builds may not, because pow and exp differ in their last bits between libraries.
 *
 * Cost: a walk looks at a few tensors for each one that leaves (best_queue.c), so its time is nearly linear in the
 * program. All walks but the very first stop after SEED_LOOKS for each kind of seed, as many for repairs, and
 * ROUND_LOOKS for each round. Walks with lower limits have SEED_LOOKS more, before the first round and in each.
 *
 * A search without effort makes its seeds and stops. It may be kept (ebb_policy_input.kept), and goes on later.
 *
 * The sources are in docs/best.md.
 *
 * In haste the draft is that of the policy budget, or, for a first plan, that of one walk.
 *
 * Not here: parts of tensors, other orders of the steps (policy order), choices of algorithm (fitting.c), programs of
 * more than MAX_STEPS steps, which get the draft of the policy budget, with copies or without any.
 */
#include "plan/best.h"

#include <math.h>

#define MAX_STEPS ((size_t)1 << 18)
#define ROUND_LOOKS ((uint64_t)1 << 27) /* of annealing: about a second of a processor */
#define MAX_ANNEALS 3u                  /* in a round, of small programs */
#define ROUND_WALKS_A_TENSOR 20u        /* at most, added to MIN_ROUND_WALKS: small programs have little to find */
#define MIN_ROUND_WALKS 100u
#define ROUND_ACTIONS ((uint64_t)1 << 20) /* of all drafts: with many actions and few looks, walks take as long */
#define SEED_LOOKS (ROUND_LOOKS / 2)
#define LANE_LOOKS (ROUND_LOOKS / 5)   /* of local search, for each lane in each round */
#define COPIES_LOOKS (ROUND_LOOKS / 8) /* the same where there are copies, which annealing changes as well */
#define MAX_PLACED 2u                  /* drafts of lanes, in each part of a round */
#define LANE_PARTS 4u                  /* of a round of local search; up to twice as many */
#define FORGOTTEN 4u                   /* of what is known to be wasted: a part, with each draft that can be placed */
#define PLACING_LOOKS ((uint64_t)1 << 18) /* that placing and simulating a draft counts for */
#define PARTS 100                         /* of a round, that are told */
#define ANNEALED 0.5                      /* the share of a round that annealing takes, about */
#define HEAT 0.003                        /* of the computing time: a loss that is taken with a chance of 1 in e */
#define MIN_SHARED_STEPS 256u             /* of a program whose walks several threads make */
#define HOPELESS 1.15                     /* times what the walk before took */
#define FIRST_PRICE 0.1f                  /* of copies in a first plan: most of their time is hidden by computing */

typedef struct ebb_best_kept {
    ebb_policy_input own; /* the caller's goes when it returns, and a search may be kept */
    const ebb_policy_input *input;
    ebb_best_hand hand[EBB_BEST_HANDS];
    uint32_t n_hands;
    ebb_best_hand *first; /* hand[0] */
    ebb_program_view view;
    ebb_draft best_draft;
    ebb_best_keys best, at;
    ebb_best_lanes lanes;
    uint64_t *waste;       /* [n_steps + 1]: what placing wastes at each place, as far as it is known */
    uint64_t *wasted;      /* [n_steps + 1]: the same by drafts of lanes that are above the budget there */
    uint64_t *over, *load; /* [n_steps + 1]: by how much one of them is, and what is there */
    bool has_draft;
    bool is_patient;                /* seeds are: the fastest tier does not hold all that leaves */
    double keys_ns;                 /* what the walk by the best keys takes, estimated */
    double best_ns;                 /* of best_draft, simulated; INFINITY: it cannot be placed */
    double computing_ns, enough_ns; /* what is as fast as this is good enough */
    uint64_t n_looks, max_looks;    /* of all walks so far; a walk that passes the latter is given up */
    uint64_t lower_looks;           /* that walks with lower limits may still take */
    uint32_t round;
    uint64_t round_looks; /* before this round */
    ebb_rng rng;
    double *upto; /* [n_tensors]: bytes of this and those before it */
} ebb_best_kept;

typedef ebb_best_kept search;

/* ---- keys --------------------------------------------------------------------------------------- */

/* Pick a random tensor, weighted by its bytes. */
static size_t pick_tensor(search *s) {
    const size_t n = s->view.n_tensors;
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
static void vary_neighbours(search *s, ebb_best_keys *keys, float size) {
    const size_t first = pick_tensor(s), end = ebb_min_u64(first + 8, s->view.n_tensors);
    const float by = size * ebb__rng_normal(&s->rng);
    for (size_t t = first; t < end; t++) { keys->weight[t] += by; }
}

static void vary_tensors(search *s, ebb_best_keys *keys, uint64_t n, float size) {
    for (; n > 0; n--) {
        const size_t t = pick_tensor(s);
        float *key = ebb__rng_below(&s->rng, 2) == 0 ? &keys->copy[t] : &keys->weight[t];
        *key = ebb__rng_below(&s->rng, 10) < 3 ? 0 : *key + size * ebb__rng_normal(&s->rng);
    }
}

static bool has_no_again(const search *s, const ebb_best_keys *keys) {
    size_t t = 0;
    while (t < s->view.n_tensors && !keys->no_again[t]) { t++; }
    return t < s->view.n_tensors;
}

static void vary_ways(search *s, ebb_best_keys *keys, uint64_t n) {
    for (; n > 0; n--) {
        bool *no_again = &keys->no_again[pick_tensor(s)];
        *no_again = !*no_again;
    }
}

/* A weight is multiplied, an exponent is moved. */
static void vary_reach(search *s, ebb_best_keys *keys) {
    const float by = ebb__rng_normal(&s->rng);
    keys->reach = keys->by_duals ? keys->reach * exp2f(by) : fmaxf(0, keys->reach + 0.3f * by);
}

static bool has_several_tiers(const search *s) {
    return ebb__has_tiers(s->input->tier_bytes) && s->first->walk.only_tier == EBB_MAX_TIERS;
}

static void vary_link(search *s, ebb_best_keys *keys) {
    if (!has_several_tiers(s) || ebb__rng_below(&s->rng, 2) == 0) {
        keys->link_price *= exp2f(ebb__rng_normal(&s->rng));
    } else if (keys->patience == INFINITY) {
        keys->patience = 1;
    } else {
        keys->patience = ebb__rng_below(&s->rng, 4) == 0 ? INFINITY : keys->patience * exp2f(ebb__rng_normal(&s->rng));
    }
}

/* Most often those of a few tensors, sometimes of many. */
static void vary(search *s, ebb_best_keys *keys) {
    const uint64_t kind = ebb__rng_below(&s->rng, 10);
    const float size = ebb__rng_below(&s->rng, 10) < 7 ? 1.5f : 4.5f;
    if (kind == 3 && has_no_again(s, keys)) {
        vary_ways(s, keys, 1 + ebb__rng_below(&s->rng, 3));
        return;
    }
    switch (kind) {
    case 0: vary_reach(s, keys); break;
    case 1: vary_link(s, keys); break;
    case 2: vary_neighbours(s, keys, size); return;
    default: break;
    }
    const uint64_t most = kind < 6 ? 3 : s->view.n_tensors / 20 + 1;
    vary_tensors(s, keys, 1 + ebb__rng_below(&s->rng, most), size);
}

/* ---- drafts ------------------------------------------------------------------------------------- */

/* Take the hand's draft, which has been placed, if it is the fastest so far, or the first. */
static bool take_faster(search *s, ebb_best_hand *hand) {
    s->n_looks += PLACING_LOOKS;
    if (hand->placed_ns >= s->best_ns && s->has_draft) { return false; }
    ebb__draft_swap(&s->best_draft, &hand->draft);
    s->has_draft = true;
    s->best_ns = hand->placed_ns;
    return true;
}

/* Have the first n hands walk with their keys. All looks are theirs: how many of them others take is not known yet. */
static void hand_out(search *s, uint32_t n, bool find_resident, double limit_ns) {
    for (uint32_t i = 0; i < n; i++) {
        ebb_best_hand *hand = &s->hand[i];
        hand->max_looks = s->max_looks - ebb_min_u64(s->max_looks, s->n_looks);
        hand->max_lower_looks = s->lower_looks;
        hand->limit_ns = limit_ns;
        hand->place_ns = s->best_ns;
        hand->find_resident = find_resident;
    }
    ebb__best_hands_run(s->hand, n);
}

/* A hand that lowers its limit goes on for as long as its drafts seem faster than the fastest one, and has the looks
 * that others leave. If these have changed since, it may have to begin anew, so that the answer does not depend on how
 * many hands there are. */
static void ask_anew(search *s, ebb_best_hand *hand) {
    const bool is_short = hand->max_lower_looks != s->lower_looks && hand->n_lower_looks > s->lower_looks;
    if (hand->n_lowered == 0 || (hand->place_ns == s->best_ns && !is_short)) { return; }
    hand->keys.limit_bytes = hand->first_limit_bytes;
    hand->max_lower_looks = s->lower_looks;
    hand->place_ns = s->best_ns;
    ebb__best_hands_run(hand, 1);
}

/* Take a hand's answer. *time_ns_out: the estimated time of its draft. INFINITY: there is no draft, it is too slow, or
 * it cannot be placed. */
static ebb_status take_answer(search *s, ebb_best_hand *hand, double *time_ns_out) {
    ask_anew(s, hand);
    const uint64_t looks_at_step = s->n_looks + hand->looks_at_step;
    *time_ns_out = INFINITY;
    if (hand->status != EBB_OK) { return ebb__fail_adopt(hand->status, hand->message); }
    s->n_looks += hand->n_looks;
    if (looks_at_step > s->max_looks) {
        hand->walk.blocked = EBB_BEST_NONE;
        return EBB_OK;
    }
    s->lower_looks -= ebb_min_u64(s->lower_looks, hand->n_lower_looks);
    if (hand->time_ns == INFINITY) { return EBB_OK; }
    *time_ns_out = hand->time_ns;
    if (!s->input->copies_only) { EBB_TRY(ebb__best_lanes_offer(&s->lanes, &hand->draft, hand->time_ns)); }
    if (hand->time_ns >= s->best_ns) { return EBB_OK; }
    if (hand->placed_ns == INFINITY) { *time_ns_out = INFINITY; }
    if (!take_faster(s, hand)) { return EBB_OK; }
    ebb__best_keys_copy(&s->best, &hand->keys, s->view.n_tensors);
    s->keys_ns = *time_ns_out;
    return EBB_OK;
}

/* The caller wants no more, and there is something to give. */
static bool is_stopped(const search *s) {
    return s->has_draft && ebb__is_stopped(s->input->options);
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
static bool set_seed(const search *s, ebb_best_keys *keys, size_t i) {
    const bool has_copies = ebb__has_tiers(s->input->tier_bytes);
    const size_t plain = i % N_PLAIN, dual = (i - ebb_min_u64(i, 2 * N_PLAIN)) / 2;
    keys->by_duals = i >= 2 * N_PLAIN;
    keys->keeps_parts = keys->by_duals && i % 2 == 1;
    keys->copies_only = !keys->by_duals && i >= N_PLAIN;
    keys->limit_bytes = s->input->limit_bytes;
    const size_t price = keys->by_duals ? dual % N_DUAL_PRICES : plain % N_SEED_PRICES;
    keys->link_price = keys->by_duals ? dual_prices[price] : seed_prices[price];
    keys->reach = keys->by_duals ? dual_reaches[dual / N_DUAL_PRICES] : seed_reaches[plain / N_SEED_PRICES];
    keys->patience = s->is_patient ? 1 : INFINITY;
    memset(keys->no_again, 0, s->view.n_tensors * sizeof *keys->no_again);
    if (keys->by_duals && s->first->walk.duals == NULL) { return false; }
    if (keys->copies_only) { return has_copies && !s->input->copies_only && price == 0; }
    return has_copies || price == 0;
}

/* Those that found no room to compute something again: what they name is copied instead, until there is room. */
static ebb_status repair_seeds(search *s, const bool blocked[N_SEEDS]) {
    double time_ns = INFINITY;
    s->max_looks = s->n_looks + SEED_LOOKS;
    for (size_t i = 0; i < N_SEEDS && s->n_looks < s->max_looks; i++) {
        const ebb_best_walk *walk = &s->first->walk;
        if (!blocked[i] || !ebb__has_tiers(s->input->tier_bytes) || is_stopped(s)) { continue; }
        (void)set_seed(s, &s->first->keys, i);
        do {
            hand_out(s, 1, true, INFINITY);
            EBB_TRY(take_answer(s, s->first, &time_ns));
            if (walk->blocked != EBB_BEST_NONE) { s->first->keys.no_again[walk->blocked] = true; }
        } while (walk->blocked != EBB_BEST_NONE && s->n_looks < s->max_looks);
    }
    return EBB_OK;
}

/* Hand out the next seeds, from *next to end at most. number[k]: which one hand k has. */
static uint32_t hand_out_seeds(search *s, size_t *next, size_t end, size_t number[EBB_BEST_HANDS]) {
    uint32_t n = 0;
    for (; *next < end && n < s->n_hands; (*next)++) {
        if (set_seed(s, &s->hand[n].keys, *next)) { number[n++] = *next; }
    }
    if (n > 0) { hand_out(s, n, true, INFINITY); }
    return n;
}

/* The seeds of one kind, begin to end. They have SEED_LOOKS in all; only the very first walk may go past them. */
static ebb_status seed_kind(search *s, size_t begin, size_t end, bool blocked[N_SEEDS]) {
    const uint64_t max_looks = s->n_looks + SEED_LOOKS;
    double time_ns = INFINITY;
    for (size_t next = begin; next < end && s->best_ns > s->enough_ns && !is_stopped(s);) {
        size_t number[EBB_BEST_HANDS];
        s->max_looks = next == 0 ? UINT64_MAX : max_looks;
        const uint32_t n = hand_out_seeds(s, &next, end, number);
        for (uint32_t k = 0; k < n && s->best_ns > s->enough_ns; k++) {
            s->max_looks = number[k] == 0 ? UINT64_MAX : max_looks;
            EBB_TRY(take_answer(s, &s->hand[k], &time_ns));
            blocked[number[k]] = s->hand[k].walk.blocked != EBB_BEST_NONE;
        }
    }
    return EBB_OK;
}

static ebb_status seed(search *s) {
    const size_t n_first = has_several_tiers(s) ? 1 : 0;
    bool blocked[N_SEEDS] = {false};
    EBB_TRY(ebb__best_find_duals(&s->first->walk, &s->first->walk.duals, &s->enough_ns));
    for (uint32_t i = 1; i < s->n_hands; i++) { s->hand[i].walk.duals = s->first->walk.duals; }
    s->enough_ns = fmax(s->computing_ns, EBB_CLOSE * s->enough_ns);
    EBB_TRY(seed_kind(s, 0, n_first, blocked));
    s->is_patient = n_first > 0 && s->first->walk.has_spilled;
    EBB_TRY(seed_kind(s, n_first, N_PLAIN, blocked));
    EBB_TRY(seed_kind(s, N_PLAIN, 2 * N_PLAIN, blocked));
    EBB_TRY(seed_kind(s, 2 * N_PLAIN, N_SEEDS, blocked));
    return repair_seeds(s, blocked);
}

static bool is_taken(const search *s, float dice, double at_ns, double time_ns, double share_done) {
    const double heat = HEAT * s->computing_ns * (1 - share_done);
    return time_ns <= at_ns || exp((at_ns - time_ns) / fmax(heat, 1)) > (double)dice;
}

/* How far all rounds are; of this one, the share that is done. */
static void tell(const search *s, double share_done) {
    const uint64_t n = PARTS * (uint64_t)s->input->effort;
    ebb__tell(s->input->progress, "searching, part", PARTS * (uint64_t)s->round + (uint64_t)(PARTS * share_done), n);
}

/* Hand out n variations of the keys at hand, as they come if none of them is taken. */
static void hand_out_variations(search *s, uint32_t n, double limit_ns) {
    for (uint32_t k = 0; k < n; k++) {
        ebb_best_hand *hand = &s->hand[k];
        ebb__best_keys_copy(&hand->keys, &s->at, s->view.n_tensors);
        vary(s, &hand->keys);
        hand->dice = ebb__rng_unit(&s->rng);
        hand->rng_after = s->rng;
    }
    hand_out(s, n, false, limit_ns);
}

/* The most walks of an annealing. *is_enough_out: it is one with enough actions for a round. */
static uint64_t count_walks(const search *s, bool *is_enough_out) {
    const uint64_t wanted = ROUND_WALKS_A_TENSOR * s->view.n_tensors;
    const uint64_t most = ROUND_ACTIONS / ebb_max_u64(s->best_draft.actions.n, 1);
    *is_enough_out = most <= wanted;
    return MIN_ROUND_WALKS + ebb_min_u64(wanted, most);
}

/* If a variation is taken, the others of the same keys are thrown away. *is_enough_out: there is nothing left of the
 * round for another one. */
static ebb_status anneal(search *s, bool *is_enough_out) {
    const uint64_t first = s->n_looks, n_walks = count_walks(s, is_enough_out);
    double at_ns = s->keys_ns;
    ebb__best_keys_copy(&s->at, &s->best, s->view.n_tensors);
    s->max_looks = first + ROUND_LOOKS;
    for (uint64_t i = 0; i < n_walks && s->n_looks - first < ROUND_LOOKS && !is_stopped(s);) {
        const uint32_t n = (uint32_t)ebb_min_u64(s->n_hands, n_walks - i);
        bool was_taken = false;
        hand_out_variations(s, n, at_ns * HOPELESS);
        for (uint32_t k = 0; k < n && !was_taken && s->n_looks - first < ROUND_LOOKS; k++, i++) {
            const double by_looks = (double)(s->n_looks - first) / (double)ROUND_LOOKS;
            double time_ns = INFINITY;
            tell(s, fmin(1, (double)(s->n_looks - s->round_looks) / (double)ROUND_LOOKS) * ANNEALED);
            EBB_TRY(take_answer(s, &s->hand[k], &time_ns));
            s->rng = s->hand[k].rng_after;
            was_taken = is_taken(s, s->hand[k].dice, at_ns, time_ns, fmax(by_looks, (double)i / (double)n_walks));
            if (!was_taken) { continue; }
            ebb__best_keys_copy(&s->at, &s->hand[k].keys, s->view.n_tensors);
            at_ns = time_ns;
        }
    }
    *is_enough_out = *is_enough_out || s->n_looks - s->round_looks >= ROUND_LOOKS / 2;
    return EBB_OK;
}

/* Where the placed draft is above the budget, as much more is wasted. Where some waste was already known, that counts
 * twice, up to the stack less the load: otherwise a draft whose load is low there would stay the same for many parts.
 */
static void note_waste(search *s) {
    for (size_t p = 0; p <= s->view.n_steps; p++) {
        if (s->over[p] == 0) { continue; }
        const uint64_t stack = s->input->budget_bytes + s->over[p], all = stack - ebb_min_u64(s->load[p], stack);
        const uint64_t least = s->waste[p] + s->over[p], wasted = ebb_min_u64(least + s->waste[p], all);
        const uint64_t now = ebb_min_u64(ebb_max_u64(least, wasted), s->input->limit_bytes);
        s->wasted[p] = ebb_max_u64(s->wasted[p], now);
    }
}

/* Place the fastest drafts of lanes, until one is within the budget. */
static ebb_status place_lanes(search *s, bool *is_over_out) {
    const size_t n = s->view.n_steps + 1;
    bool is_placed = false;
    *is_over_out = false;
    memcpy(s->wasted, s->waste, n * sizeof *s->wasted);
    for (uint32_t k = 0; k < MAX_PLACED && !is_placed; k++) {
        const ebb_best_lane *lane = &s->lanes.lane[s->lanes.by_time[k]];
        if (lane->time_ns >= s->best_ns) { break; }
        EBB_TRY(ebb__best_lanes_copy(lane, &s->first->draft));
        EBB_TRY(ebb__best_hand_place(s->first, EBB_PLACING_ROUND, s->over, s->load));
        is_placed = s->first->placed_ns < INFINITY;
        *is_over_out = !is_placed && (*is_over_out || s->first->placed_bytes > s->input->budget_bytes);
        (void)take_faster(s, s->first);
        note_waste(s);
    }
    return EBB_OK;
}

static void take_waste(search *s) {
    memcpy(s->waste, s->wasted, (s->view.n_steps + 1) * sizeof *s->waste);
    ebb__best_lanes_renew(&s->lanes);
}

static void forget_waste(search *s) {
    for (size_t p = 0; p <= s->view.n_steps; p++) { s->waste[p] -= (s->waste[p] + FORGOTTEN - 1) / FORGOTTEN; }
}

static bool has_moved(const search *s) {
    for (uint32_t i = 0; i < EBB_BEST_LANES; i++) {
        if (s->lanes.lane[i].has_moved) { return true; }
    }
    return false;
}

static bool has_waste(const search *s) {
    for (size_t p = 0; p <= s->view.n_steps; p++) {
        if (s->waste[p] > 0) { return true; }
    }
    return false;
}

/* Local search in all lanes, in parts; after each, the fastest of their drafts that can be placed is taken. If there
 * are faster ones than before and none of them can, what is above the budget counts as waste where it is; else a part
 * of that is forgotten. A round ends with what can be placed, if there is time; or early, if no lane found anything. */
static ebb_status refine(search *s) {
    const bool has_copies = ebb__has_tiers(s->input->tier_bytes);
    const uint64_t n_looks = (has_copies ? COPIES_LOOKS : LANE_LOOKS) / LANE_PARTS;
    bool is_over = false;
    for (uint32_t i = 0; (i < LANE_PARTS || (is_over && i < 2 * LANE_PARTS)) && !is_stopped(s); i++) {
        tell(s, has_copies ? ANNEALED : fmin(1, (double)i / LANE_PARTS));
        EBB_TRY(ebb__best_lanes_run(&s->lanes, s->waste, n_looks));
        EBB_TRY(place_lanes(s, &is_over));
        if (is_over) {
            take_waste(s);
        } else if (!has_moved(s) && !has_waste(s)) {
            break;
        } else {
            forget_waste(s);
        }
    }
    return EBB_OK;
}

/* Keys matter for copies; without any, local search is better all the time. */
static ebb_status go_on(search *s) {
    const bool has_copies = ebb__has_tiers(s->input->tier_bytes);
    const bool is_placed = s->best_ns < INFINITY;
    for (uint32_t i = 0; is_placed && i < s->input->effort && s->best_ns > s->enough_ns && !is_stopped(s); i++) {
        s->round = i;
        s->round_looks = s->n_looks;
        s->lower_looks = SEED_LOOKS;
        bool is_enough = !has_copies;
        for (uint32_t k = 0; k < MAX_ANNEALS && !is_enough && !is_stopped(s); k++) { EBB_TRY(anneal(s, &is_enough)); }
        if (!s->input->copies_only) { EBB_TRY(refine(s)); }
    }
    return EBB_OK;
}

static ebb_status find_best(search *s) {
    if (!s->has_draft) { EBB_TRY(seed(s)); }
    return s->has_draft ? go_on(s) : EBB_E_NO_FIT;
}

/* The draft of one walk, whatever time it takes. */
static ebb_status take_walk(search *s, float link_price, float reach) {
    s->first->keys.link_price = link_price;
    s->first->keys.reach = reach;
    EBB_TRY(ebb__best_walk(&s->first->walk, &s->first->keys, INFINITY, true));
    ebb__draft_swap(&s->best_draft, &s->first->draft);
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
    const ebb_best_walk *walk = &s->first->walk;
    ebb_bump *bump = &s->first->walk.bump;
    const size_t n = s->view.n_tensors, n_places = s->view.n_steps + 1;
    EBB_TRY(ebb__best_keys_init(&s->best, bump, n, s->input->limit_bytes));
    EBB_TRY(ebb__best_keys_init(&s->at, bump, n, s->input->limit_bytes));
    s->upto = ebb__bump_alloc(bump, n, sizeof *s->upto);
    s->waste = ebb__bump_alloc(bump, n_places, sizeof *s->waste);
    s->over = ebb__bump_alloc(bump, n_places, sizeof *s->over);
    s->load = ebb__bump_alloc(bump, n_places, sizeof *s->load);
    s->wasted = ebb__bump_alloc(bump, n_places, sizeof *s->wasted);
    if (s->upto == NULL || s->waste == NULL || s->wasted == NULL || s->over == NULL || s->load == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memset(s->waste, 0, n_places * sizeof *s->waste);
    for (size_t t = 0; t < n; t++) { s->upto[t] = (double)walk->state[t].bytes + (t > 0 ? s->upto[t - 1] : 0); }
    s->computing_ns = walk->begin_ns[s->view.n_steps];
    return EBB_OK;
}

/* Walks of small programs are over sooner than a thread begins. */
static uint32_t count_hands(const search *s, bool is_search) {
    if (!is_search || s->view.n_steps < MIN_SHARED_STEPS) { return 1; }
    return (uint32_t)ebb_min_u64(ebb_max_u64(s->input->n_threads, 1), EBB_BEST_HANDS);
}

static void fini_search(search *s) {
    if (s->lanes.input != NULL) { ebb__best_lanes_fini(&s->lanes); }
    ebb__best_hands_fini(s->hand, s->n_hands);
    ebb__draft_fini(&s->best_draft);
}

/* fini also after a failure. */
static ebb_status begin_search(search *s, const ebb_policy_input *input) {
    const bool is_search = input->other == 0 && !input->is_hasty;
    *s = (search){.own = *input,
                  .input = &s->own,
                  .view = ebb__plan_view(input->program),
                  .best_ns = INFINITY,
                  .lower_looks = SEED_LOOKS};
    ebb__rng_init(&s->rng, 1, 1);
    s->first = &s->hand[0];
    s->n_hands = count_hands(s, is_search);
    EBB_TRY(ebb__draft_init(&s->best_draft, input->program, input->mem));
    ebb__draft_reset(&s->best_draft, input->program);
    EBB_TRY(ebb__best_hands_init(s->hand, s->n_hands, s->input));
    EBB_TRY(init_search(s));
    return is_search && !input->copies_only ? ebb__best_lanes_init(&s->lanes, s->input) : EBB_OK;
}

/* ---- searches that go on later ------------------------------------------------------------------ */

void ebb__best_forget(ebb_best_kept **kept) {
    search *s = *kept;
    if (s == NULL) { return; }
    fini_search(s);
    ebb__free(s->own.mem, s);
    *kept = NULL;
}

/* Whether the first walks of a search would be the same. */
static bool is_same(const ebb_policy_input *a, const ebb_policy_input *b) {
    return a->program == b->program && a->machine == b->machine && a->choice == b->choice &&
           a->limit_bytes == b->limit_bytes && a->budget_bytes == b->budget_bytes && a->early_in == b->early_in &&
           a->early_out == b->early_out && a->copies_only == b->copies_only && a->n_threads == b->n_threads &&
           memcmp(a->tier_bytes, b->tier_bytes, sizeof a->tier_bytes) == 0;
}

/* Take the search that was kept, or begin one. */
static ebb_status open_search(const ebb_policy_input *input, search **search_out) {
    ebb_best_kept **kept = input->kept;
    if (kept != NULL && *kept != NULL && input->effort > 0 && is_same(input, &(*kept)->own)) {
        *search_out = *kept;
        *kept = NULL;
        (*search_out)->own = *input;
        return EBB_OK;
    }
    *search_out = ebb__alloc(input->mem, 1, sizeof **search_out);
    return *search_out != NULL ? begin_search(*search_out, input) : EBB_E_NO_MEMORY;
}

/* A search without effort is kept if it is the fastest so far: only that one goes on. */
static bool is_worth_keeping(const search *s) {
    ebb_best_kept **kept = s->input->kept;
    if (kept == NULL || !s->has_draft || s->input->effort > 0) { return false; }
    return *kept == NULL || s->best_ns < (*kept)->best_ns;
}

static ebb_status search_drafts(const ebb_policy_input *input, ebb_draft *draft) {
    search *s = NULL;
    ebb_status st = open_search(input, &s);
    if (st == EBB_OK) { st = input->other > 0 ? find_other(s) : input->is_hasty ? find_any(s) : find_best(s); }
    if (st == EBB_OK && is_worth_keeping(s)) {
        ebb__best_forget(input->kept);
        *input->kept = s;
        return ebb__draft_copy(&s->best_draft, input->program, draft);
    }
    if (st == EBB_OK) { ebb__draft_swap(draft, &s->best_draft); }
    ebb__best_forget(&s);
    return st;
}

/* Of a large program: without copies, if that is possible. The rival budget copies, and what is faster is taken. */
static ebb_status draft_large(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_policy_input alone = *input;
    if (input->is_hasty || input->copies_only) { return ebb__policy_budget.draft(input, draft); }
    memset(alone.tier_bytes, 0, sizeof alone.tier_bytes);
    const ebb_status st = ebb__policy_budget.draft(&alone, draft);
    if (st != EBB_E_NO_FIT) { return st; }
    ebb__draft_reset(draft, input->program);
    return ebb__policy_budget.draft(input, draft);
}

static ebb_status draft_best(const ebb_policy_input *input, ebb_draft *draft) {
    if (ebb__plan_view(input->program).n_steps > MAX_STEPS) { return draft_large(input, draft); }
    if (!input->is_hasty || input->walks || input->other > 0) { return search_drafts(input, draft); }
    const ebb_status st = ebb__policy_budget.draft(input, draft);
    if (st != EBB_E_NO_FIT) { return st; }
    ebb__draft_reset(draft, input->program);
    return search_drafts(input, draft);
}

/* All that have a rule for what leaves. */
static const ebb_policy *const rivals[] = {
    &ebb__policy_budget,
    &ebb__policy_autoswap_bo,
    &ebb__policy_swap,
    &ebb__policy_exchange,
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
    &ebb__policy_flashneuron,
    &ebb__policy_dtr,
    &ebb__policy_dtr_eq,
};

/* Copies alone, each as early or late as it can be, need less than walks find; so does, without copies, a recurrence
 * for all stages of a chain together. */
static const ebb_policy *const lower[] = {&ebb__policy_swap, &ebb__policy_mixed, &ebb__policy_dtr_eq};

const ebb_policy ebb__policy_best = {
    .name = "best",
    .about = "searches for the fastest plan inside a budget: what stays, what is copied out, what is computed again",
    .keeps_limit = true,
    .changes_order = true,
    .when_it_fits = &ebb__policy_liveness,
    .rivals = rivals,
    .n_rivals = sizeof rivals / sizeof rivals[0],
    .n_quick_rivals = 2,
    .lower = lower,
    .n_lower = sizeof lower / sizeof lower[0],
    .n_quick_lower = 2,
    .n_others = N_OTHERS,
    .draft = draft_best,
};
