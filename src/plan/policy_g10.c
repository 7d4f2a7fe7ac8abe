/* SPDX-License-Identifier: Apache-2.0
 *
 * The policy g10: Zhang et al., "G10: Enabling An Efficient Unified GPU Memory and Storage Architecture with Smart
 * Tensor Migrations", MICRO 2023, section 4.3, as the authors' simulator has it (scheduling_prefetch). Parameters
 * leave, too, also around the end of the iteration.
 *
 * Choosing. Until no load is above the limit, the gap leaves whose tensor would take the most bytes times time off the
 * places that are above it. It counts from when half of its copy out is done until half of its copy in is, over the
 * slowest tier, beside all copies chosen before. A gap of one step stays.
 *
 * Tiers. It goes to the slowest tier over which both copies and half a copy more fit in the gap. If all of that tier's
 * time for copies out is taken until the copy would have ended alone, or it would end within the first place, it goes
 * to the next faster tier with room.
 *
 * Links. A link's time is booked place by place. The copy out takes what is free from the beginning of the gap on, the
 * copy in what is free back from its end. Where the two meet the gap stays. Otherwise its bytes are off the load
 * between them.
 *
 * The rest. Where a load is still above the limit when no gap is left, G10 relies on page faults. Here more gaps
 * leave, though their copies are not hidden: at the place with the highest load the one with the most bytes times time,
 * to the fastest tier with room. The simulator does the same for G10 without page faults.
 *
 * As coded the search also ends at the first gap that is too short for copies over any tier; their loop takes it up
 * again and again.
 *
 * The gaps say when each tensor is away (away.h). There a copy in begins as late as is safe, or earlier where those
 * after it need the link. G10's begin as early as there is room. Tensors of less than a thousandth of the limit stay.
 *
 * Takes gaps * places, and what gaps that are looked at anew take.
 */
#include "plan/away.h"
#include "plan/g10.h"

#include <math.h>

#define HALF_MORE 2.5 /* copies that have to fit in a gap: one each way, and half a one in case the way is late */

typedef struct g10 {
    ebb_away away;
    uint32_t n;
    uint32_t tiers[EBB_MAX_TIERS], n_tiers; /* that hold something, from the slowest on */
    double *free_ns[EBB_MAX_ENGINES];       /* [n]: what an engine has left of the time of each place */
    int64_t *load;                          /* [n]: less what is off, as the rule counts it */
    uint64_t *held[EBB_MAX_TIERS];          /* [n]: bytes on a tier */
    uint64_t most_held[EBB_MAX_TIERS];
    double *over_ns;        /* [n + 1]: how long places before this one are above the limit */
    uint32_t *heap, n_heap; /* gaps that were not tried yet; the first is the best one, as far as is known */
    double *relief;         /* [n_gaps]: when it was looked at last */
    uint32_t *looked_at;    /* [n_gaps]: in which round, from 1 on; 0: never */
    ebb_g10 told;
} g10;

/* ---- tiers and engines -------------------------------------------------------------------------- */

static double trip_ns(const g10 *g, uint32_t tier, uint64_t bytes) {
    return (double)ebb__trip_ns(g->away.input->machine, tier, bytes);
}

static void list_tiers(g10 *g) {
    const uint64_t bytes = (uint64_t)1 << 30;
    for (uint32_t tier = 1; tier < EBB_MAX_TIERS; tier++) {
        if (g->away.input->tier_bytes[tier] == 0) { continue; }
        uint32_t at = g->n_tiers++;
        for (; at > 0 && trip_ns(g, g->tiers[at - 1], bytes) < trip_ns(g, tier, bytes); at--) {
            g->tiers[at] = g->tiers[at - 1];
        }
        g->tiers[at] = tier;
    }
}

static double *free_of(const g10 *g, uint32_t tier, bool is_out) {
    const ebb_action copy = {.kind = is_out ? EBB_ACT_OUT : EBB_ACT_IN, .tier = (uint16_t)tier};
    return g->free_ns[ebb__topology_engine_of(ebb_machine_topology(g->away.input->machine), &copy)];
}

/* ---- times of a gap ----------------------------------------------------------------------------- */

/* Places of a gap go on above n in the next iteration. */
static uint32_t wrapped(const g10 *g, uint32_t place) {
    return place < g->n ? place : place - g->n;
}

static double when(const g10 *g, uint32_t place) {
    const double *begin_ns = g->away.begin_ns;
    return place <= g->n ? begin_ns[place] : begin_ns[g->n] + begin_ns[place - g->n];
}

static uint32_t step_of(const g10 *g, uint32_t place) {
    return place <= g->n ? g->away.step[place] : (uint32_t)g->away.view.n_steps + g->away.step[place - g->n];
}

/* The place of a gap in which a copy out of this length ends, or its last one. */
static uint32_t out_ends(const g10 *g, const ebb_away_gap *gap, const double *free_ns, double ns) {
    uint32_t p = gap->leave + 1;
    while ((ns -= free_ns[wrapped(g, p)]) > 0 && p + 1 < gap->need) { p++; }
    return p;
}

/* The place of a gap in which a copy in of this length has to begin, or its first one. */
static uint32_t in_begins(const g10 *g, const ebb_away_gap *gap, const double *free_ns, double ns) {
    uint32_t p = gap->need - 1;
    while ((ns -= free_ns[wrapped(g, p)]) > 0 && p > gap->leave + 1) { p--; }
    return p;
}

static void book(const g10 *g, double *free_ns, uint32_t p, uint32_t end, double ns) {
    for (; ns > 0 && p < end; p++) {
        double *left_ns = &free_ns[wrapped(g, p)];
        const double taken_ns = fmin(*left_ns, ns);
        *left_ns -= taken_ns;
        ns -= taken_ns;
    }
}

/* ---- the rule ----------------------------------------------------------------------------------- */

static void note_over(g10 *g) {
    g->over_ns[0] = 0;
    for (uint32_t p = 0; p < g->n; p++) {
        const bool is_over = g->load[p] > ebb__away_limit(&g->away);
        g->over_ns[p + 1] = g->over_ns[p] + (is_over ? g->away.begin_ns[p + 1] - g->away.begin_ns[p] : 0);
    }
}

static double over_between(const g10 *g, uint32_t from, uint32_t to) {
    const double *over_ns = g->over_ns;
    const double to_ns = to <= g->n ? over_ns[to] : over_ns[g->n] + over_ns[to - g->n];
    const double from_ns = from <= g->n ? over_ns[from] : over_ns[g->n] + over_ns[from - g->n];
    return to > from ? to_ns - from_ns : 0;
}

static double relief(const g10 *g, const ebb_away_gap *gap) {
    const uint32_t tier = g->tiers[0];
    const double half_ns = trip_ns(g, tier, g->away.view.tensors[gap->tensor].size_bytes) / 4;
    const uint32_t from = out_ends(g, gap, free_of(g, tier, true), half_ns);
    const uint32_t to = in_begins(g, gap, free_of(g, tier, false), half_ns);
    return (double)gap->bytes * over_between(g, from, to);
}

static double area(const g10 *g, uint32_t i) {
    return (double)g->away.gaps[i].bytes * ebb__away_gap_ns(&g->away, &g->away.gaps[i]);
}

static bool is_better(const g10 *g, uint32_t a, uint32_t b) {
    if (g->relief[a] != g->relief[b]) { return g->relief[a] > g->relief[b]; }
    return area(g, a) != area(g, b) ? area(g, a) > area(g, b) : a < b;
}

/* No gap of the heap is better than the one above it. */
static void sink(const g10 *g, uint32_t at) {
    for (uint32_t next = 2 * at + 1; next < g->n_heap; next = 2 * at + 1) {
        if (next + 1 < g->n_heap && is_better(g, g->heap[next + 1], g->heap[next])) { next++; }
        if (!is_better(g, g->heap[next], g->heap[at])) { break; }
        const uint32_t gap = g->heap[at];
        g->heap[at] = g->heap[next];
        g->heap[next] = gap;
        at = next;
    }
}

/* Take the best gap out of the heap. As more leaves, no gap takes more off than before: the one that is still first
 * when it is looked at anew is the best. UINT32_MAX: nothing helps. */
static uint32_t find_best(g10 *g, uint32_t round) {
    for (; g->n_heap > 0; sink(g, 0)) {
        const uint32_t i = g->heap[0];
        if (g->relief[i] <= 0) { return UINT32_MAX; }
        if (g->looked_at[i] == round) {
            g->heap[0] = g->heap[--g->n_heap];
            sink(g, 0);
            return i;
        }
        g->relief[i] = relief(g, &g->away.gaps[i]);
        g->looked_at[i] = round;
    }
    return UINT32_MAX;
}

static bool has_room(const g10 *g, uint32_t tier, uint64_t bytes) {
    return ebb__has_room(g->away.input->tier_bytes[tier], g->most_held[tier], bytes);
}

/* Whether nothing is left of the engine's time where the copy out would be if it were alone. */
static bool is_crowded(const g10 *g, const ebb_away_gap *gap, const double *free_ns, double out_ns) {
    const double end_ns = when(g, gap->leave + 1) + out_ns;
    for (uint32_t p = gap->leave + 1; p < gap->need && when(g, p + 1) <= end_ns; p++) {
        if (free_ns[wrapped(g, p)] > 0) { return false; }
    }
    return true;
}

/* *is_short_out: no tier is fast enough. false: it stays. */
static bool pick_tier(g10 *g, uint32_t i, bool *is_short_out) {
    const ebb_away_gap *gap = &g->away.gaps[i];
    const uint64_t bytes = g->away.view.tensors[gap->tensor].size_bytes;
    uint32_t found = EBB_MAX_TIERS;
    *is_short_out = true;
    for (uint32_t k = 0; k < g->n_tiers; k++) {
        const uint32_t tier = g->tiers[k];
        if (ebb__away_gap_ns(&g->away, gap) <= HALF_MORE / 2 * trip_ns(g, tier, bytes)) { continue; }
        *is_short_out = false;
        if (!has_room(g, tier, gap->bytes)) { continue; }
        found = tier;
        const double out_ns = (double)ebb_machine_copy_time_ns(g->away.input->machine, EBB_DEVICE, tier, bytes);
        if (!is_crowded(g, gap, free_of(g, tier, true), out_ns)) { break; }
    }
    if (found == EBB_MAX_TIERS) { return false; }
    ebb__away_send(&g->away, i, found);
    return true;
}

static void hold(g10 *g, const ebb_away_gap *gap) {
    for (uint32_t p = gap->leave + 1; p < gap->need; p++) {
        uint64_t *held = &g->held[gap->tier][wrapped(g, p)];
        *held += gap->bytes;
        g->most_held[gap->tier] = ebb_max_u64(g->most_held[gap->tier], *held);
    }
}

static void try_gap(g10 *g, uint32_t i) {
    ebb_away_gap *gap = &g->away.gaps[i];
    double *out = free_of(g, gap->tier, true), *in = free_of(g, gap->tier, false);
    const uint32_t gone = out_ends(g, gap, out, gap->out_ns), back = in_begins(g, gap, in, gap->in_ns);
    if (back <= gone) { return; }
    book(g, out, gap->leave + 1, gap->need, gap->out_ns);
    book(g, in, back, gap->need, gap->in_ns);
    hold(g, gap);
    for (uint32_t p = gone + 1; p < back; p++) { g->load[wrapped(g, p)] -= (int64_t)gap->bytes; }
    ebb__away_set(&g->away, i, true);
}

static ebb_status set_up(g10 *g) {
    const ebb_topology *topology = ebb_machine_topology(g->away.input->machine);
    ebb_bump *bump = &g->away.bump;
    g->n = g->away.n;
    list_tiers(g);
    g->load = ebb__bump_alloc(bump, g->n, sizeof *g->load);
    g->over_ns = ebb__bump_alloc(bump, g->n + (size_t)1, sizeof *g->over_ns);
    g->heap = ebb__bump_alloc(bump, g->away.n_gaps + (size_t)1, sizeof *g->heap);
    g->relief = ebb__bump_alloc(bump, g->away.n_gaps + (size_t)1, sizeof *g->relief);
    g->looked_at = ebb__bump_alloc(bump, g->away.n_gaps + (size_t)1, sizeof *g->looked_at);
    if (g->load == NULL || g->over_ns == NULL || g->heap == NULL || g->relief == NULL || g->looked_at == NULL) {
        return EBB_E_NO_MEMORY;
    }
    memcpy(g->load, g->away.base, g->n * sizeof *g->load);
    memset(g->looked_at, 0, g->away.n_gaps * sizeof *g->looked_at);
    g->n_heap = g->away.n_gaps;
    for (uint32_t i = 0; i < g->n_heap; i++) {
        g->heap[i] = i;
        g->relief[i] = INFINITY;
    }
    for (uint32_t at = g->n_heap / 2; at-- > 0;) { sink(g, at); }
    for (uint32_t e = 0; e < topology->n_engines; e++) {
        g->free_ns[e] = ebb__bump_alloc(bump, g->n, sizeof *g->free_ns[e]);
        if (g->free_ns[e] == NULL) { return EBB_E_NO_MEMORY; }
        for (uint32_t p = 0; p < g->n; p++) { g->free_ns[e][p] = g->away.begin_ns[p + 1] - g->away.begin_ns[p]; }
    }
    for (uint32_t i = 0; i < g->n_tiers; i++) {
        uint64_t *held = ebb__bump_alloc(bump, g->n, sizeof *held);
        if (held == NULL) { return EBB_E_NO_MEMORY; }
        memset(held, 0, g->n * sizeof *held);
        g->held[g->tiers[i]] = held;
    }
    return EBB_OK;
}

static void choose_hidden(g10 *g) {
    for (uint32_t round = 1; g->n_tiers > 0 && round <= g->away.n_gaps; round++) {
        note_over(g);
        const uint32_t i = find_best(g, round);
        if (i == UINT32_MAX) { break; }
        const ebb_away_gap *gap = &g->away.gaps[i];
        bool is_short = false;
        if (step_of(g, gap->need) == step_of(g, gap->leave + 1) + 1) { continue; }
        if (pick_tier(g, i, &is_short)) {
            try_gap(g, i);
        } else if (is_short && g->away.input->as_coded) {
            break;
        }
    }
}

/* ---- the rest ----------------------------------------------------------------------------------- */

/* EBB_MAX_TIERS: none has room. */
static uint32_t fastest_with_room(const g10 *g, uint64_t bytes) {
    for (uint32_t i = g->n_tiers; i-- > 0;) {
        if (has_room(g, g->tiers[i], bytes)) { return g->tiers[i]; }
    }
    return EBB_MAX_TIERS;
}

/* false: no gap is left at that place. */
static bool choose_longest(g10 *g, uint32_t place) {
    uint32_t best = UINT32_MAX;
    double most = 0;
    for (uint32_t i = 0; i < g->away.n_gaps; i++) {
        const ebb_away_gap *gap = &g->away.gaps[i];
        if (g->away.chosen[i] || !ebb__away_covers(&g->away, gap, place) || area(g, i) < most) { continue; }
        if (fastest_with_room(g, gap->bytes) == EBB_MAX_TIERS) { continue; }
        most = area(g, i);
        best = i;
    }
    if (best == UINT32_MAX) { return false; }
    ebb__away_send(&g->away, best, fastest_with_room(g, g->away.gaps[best].bytes));
    hold(g, &g->away.gaps[best]);
    ebb__away_set(&g->away, best, true);
    return true;
}

/* Every gap is copied out when it begins, whatever was copied before. */
static void copy_always(ebb_away *away) {
    for (uint32_t i = 0; i < away->n_gaps; i++) {
        ebb_away_gap *gap = &away->gaps[i];
        gap->ready = gap->leave + 1;
        gap->version = i;
        gap->next_version = away->n_gaps;
        gap->has_copy = false;
    }
}

static uint32_t count_chosen(const g10 *g) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->away.n_gaps; i++) { n += g->away.chosen[i]; }
    return n;
}

static void tell_hidden(g10 *g) {
    int64_t most = 0;
    for (uint32_t p = 0; p < g->n; p++) { most = g->load[p] > most ? g->load[p] : most; }
    g->told.hidden_bytes = (uint64_t)most;
    g->told.n_hidden = count_chosen(g);
}

static ebb_status choose(g10 *g, ebb_draft *draft) {
    const int64_t limit = ebb__away_limit(&g->away);
    copy_always(&g->away);
    EBB_TRY(set_up(g));
    choose_hidden(g);
    tell_hidden(g);
    for (uint32_t peak = ebb__away_peak(&g->away); g->away.load[peak] > limit; peak = ebb__away_peak(&g->away)) {
        if (!choose_longest(g, peak)) { return EBB_E_NO_FIT; }
    }
    (void)ebb__away_run(&g->away);
    memcpy(g->away.meant_ns, g->away.run_ns, (g->n + (size_t)1) * sizeof *g->away.meant_ns);
    g->told.time_ns = ebb__away_run(&g->away);
    g->told.n_all = count_chosen(g);
    return ebb__away_draft(&g->away, draft);
}

ebb_status ebb__g10_decide(const ebb_policy_input *input, ebb_draft *draft, ebb_g10 *told_out) {
    ebb_policy_input in_order = *input;
    g10 g = {0};
    in_order.order = NULL;
    ebb_status status = ebb__away_init(&g.away, &in_order, false, EBB_AWAY_WHOLE);
    if (status == EBB_OK) { status = choose(&g, draft); }
    *told_out = g.told;
    ebb__away_fini(&g.away);
    return status;
}

static ebb_status draft_g10(const ebb_policy_input *input, ebb_draft *draft) {
    ebb_g10 told;
    return ebb__g10_decide(input, draft, &told);
}

const ebb_policy ebb__policy_g10 = {
    .name = "g10",
    .about = "G10 2023: what lowers the loads above the limit most, for the longest, is copied while it can be hidden",
    .keeps_limit = true,
    .copies_only = true,
    .when_it_fits = &ebb__policy_liveness,
    .draft = draft_g10,
};
