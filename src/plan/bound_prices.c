/* SPDX-License-Identifier: Apache-2.0
 *
 * Prices for what no plan can avoid, and the bound that they show (bound.h).
 *
 * The bound of given shares and prices is the sum of
 *      each segment's computing, times its share
 *    + each pivot's missing bytes, times their price
 *    - for each interval, the most that its absences save: the price of its bytes at the pivots where it is absent,
 * less what leaving and coming back cost at the shares of the segments where they happen
 *
 * The last is a walk along the interval with four states, present or absent, with a copy or without. The bound is
 * concave in shares and prices, and is climbed along a running mean of subgradients, in which each price, and the
 * shares of each segment, are divided by the size of their own recent subgradients (Adam; Kingma and Ba, ICLR 2015).
 * Steps get shorter. At first, groups of neighbouring segments move together, and the groups become smaller: moving
 * each segment by itself from the start hardly finds the way up. The climb may end short of the top; what it has is a
 * bound all the same.
 *
 * Rounding: SAFETY is far more than the sums can be off.
 */
#include "plan/bound.h"

#include <math.h>

#define N_SEGMENTS_MAX (EBB_BOUND_PIVOTS + 1)
#define N_WAYS 3u   /* COMPUTING, IN, OUT */
#define N_WIDTHS 5u /* groups of 16, 8, 4, 2 and 1 segments */
#define GROUPED 0.3 /* of the climb, with groups of two and more */
#define SAFETY 1e-7
#define MEMORY 0.9         /* of the running mean */
#define SQUARE_MEMORY 0.99 /* of the mean of squares */
#define STEP 0.1           /* of the first round: of a share */

enum { COMPUTING, IN, OUT };

/* At most, by care: rounds, and visits of segments along intervals, 2^26 of which take up to half a second. */
static const struct {
    uint64_t rounds, visits;
} work_of[] = {
    [EBB_BOUND_AT_ONCE] = {25, (uint64_t)1 << 22},
    [EBB_BOUND_QUICK] = {300, (uint64_t)1 << 26},
    [EBB_BOUND_LONG] = {2000, (uint64_t)1 << 26},
};

/* A point, a direction or a subgradient. There is no pivot after the last segment: its price stays 0. */
typedef struct vector {
    double share[N_SEGMENTS_MAX][N_WAYS];
    double price[N_SEGMENTS_MAX]; /* of a byte; in units of pricer.unit */
} vector;

/* What the point at hand asks. Segments after the last are those of the next iteration. */
typedef struct tolls {
    double of[N_SEGMENTS_MAX][N_WAYS];                    /* for a nanosecond of each way in a segment */
    double least[N_WAYS][N_SEGMENTS_MAX][N_SEGMENTS_MAX]; /* of a segment and this many after it */
    double upto[2 * N_SEGMENTS_MAX + 1];                  /* the prices of a byte before a segment */
} tolls;

typedef struct pricer {
    const ebb_bound_problem *problem;
    uint32_t n_segments;
    double unit; /* nanoseconds a byte, so that a step along a price is about as long as one along a share */
    tolls tolls;
} pricer;

typedef struct climber {
    pricer pricer;
    vector at;                  /* a point */
    vector best;                /* the point with the largest bound */
    vector slope, mean, square; /* at that point; running means of the slopes and of their squares */
} climber;

/* ---- along an interval -------------------------------------------------------------------------------- */

/* What happened in a segment, on the best way to each state. Coming back is before leaving. */
enum { BACK_BARE = 1, BACK_COPY = 2, COPY = 4, LEAVE_BARE = 8, LEAVE_COPY = 16 };

typedef struct states {
    double present, present_copy, absent, absent_copy; /* saved so far */
} states;

static double less(double a, double b) {
    return a < b ? a : b;
}

/* A copy that is impossible takes INFINITY, and costs that even where the toll is 0. */
static double cost(double toll, double ns) {
    return ns < INFINITY ? toll * ns : INFINITY;
}

static void find_tolls(pricer *p, const vector *at) {
    const uint32_t n = p->n_segments;
    tolls *t = &p->tolls;
    for (uint32_t j = 0; j < n; j++) {
        const double computing = at->share[j][COMPUTING], drag = p->problem->drag;
        t->of[j][COMPUTING] = computing;
        t->of[j][IN] = at->share[j][IN] + drag * computing;
        t->of[j][OUT] = at->share[j][OUT] + drag * computing;
    }
    for (uint32_t w = 0; w < N_WAYS; w++) {
        for (uint32_t j = 0; j < n; j++) {
            double least = INFINITY;
            for (uint32_t i = 0, k = j; i < n; i++, k = k + 1 < n ? k + 1 : 0) {
                least = less(least, t->of[k][w]);
                t->least[w][j][i] = least;
            }
        }
    }
    for (uint32_t j = 0; j < 2 * n; j++) { t->upto[j + 1] = t->upto[j] + at->price[j < n ? j : j - n] * p->unit; }
}

/* Whether no absence in the interval can save as much as coming back costs. */
static bool is_hopeless(const pricer *p, const ebb_bound_interval *interval) {
    const tolls *t = &p->tolls;
    const uint32_t n = p->n_segments, first = interval->first, length = interval->last - first;
    const uint32_t lead = interval->lead < n ? interval->lead : n - 1, from = (first + n - lead) % n;
    const double saves = interval->bytes * (t->upto[interval->last] - t->upto[first]);
    const uint32_t far = length < n ? length : n - 1, all = lead + length < n ? lead + length : n - 1;
    if (interval->maker != EBB_BOUND_NONE && saves > t->least[COMPUTING][first][far] * interval->again_ns) {
        return false;
    }
    const double out = interval->has_copy ? 0 : cost(t->least[OUT][from][all], interval->out_ns);
    return saves <= out + cost(t->least[IN][first][far], interval->in_ns);
}

static void add_copy(const pricer *p, double by[N_WAYS], uint32_t way, double ns) {
    by[way] += ns;
    by[COMPUTING] += p->problem->drag * ns;
}

static bool raise(double *value, double to) {
    if (to <= *value) { return false; }
    *value = to;
    return true;
}

static uint8_t pass_segment(states *s, const ebb_bound_interval *interval, const double toll[N_WAYS]) {
    const double again = interval->maker != EBB_BOUND_NONE ? toll[COMPUTING] * interval->again_ns : INFINITY;
    const double in = cost(toll[IN], interval->in_ns);
    uint8_t did = 0;
    if (raise(&s->present, s->absent - again)) { did |= BACK_BARE; }
    if (raise(&s->present_copy, s->absent_copy - less(again, in))) { did |= BACK_COPY; }
    if (raise(&s->present_copy, s->present - cost(toll[OUT], interval->out_ns))) { did |= COPY; }
    if (raise(&s->absent, s->present)) { did |= LEAVE_BARE; }
    if (raise(&s->absent_copy, s->present_copy)) { did |= LEAVE_COPY; }
    return did;
}

/* The cheapest segment before the interval in which it could be copied; interval->first: none. */
static uint32_t find_early_copy(const pricer *p, const ebb_bound_interval *interval) {
    uint32_t best = interval->first;
    for (uint32_t i = 1; i <= interval->lead; i++) {
        const uint32_t segment = (interval->first + p->n_segments - i % p->n_segments) % p->n_segments;
        const bool is_first = best == interval->first;
        if (is_first || p->tolls.of[segment][OUT] < p->tolls.of[best][OUT]) { best = segment; }
    }
    return best;
}

/* Go the best way back from the end, and subtract from the subgradient what it costs and saves. */
static void go_back(const pricer *p, const ebb_bound_interval *interval, const uint8_t *did, bool copy, uint32_t early,
                    vector *slope) {
    bool absent = false;
    for (uint32_t i = interval->last - interval->first + 1; i-- > 0;) {
        const uint32_t segment = (interval->first + i) % p->n_segments;
        double *by = slope->share[segment];
        if (absent) { slope->price[segment] -= interval->bytes * p->unit; }
        if (absent && (did[i] & (copy ? LEAVE_COPY : LEAVE_BARE)) != 0) { absent = false; }
        if (!absent && copy && (did[i] & COPY) != 0) {
            add_copy(p, by, OUT, interval->out_ns);
            copy = false;
        }
        if (absent || (did[i] & (copy ? BACK_COPY : BACK_BARE)) == 0) { continue; }
        const double *toll = p->tolls.of[segment];
        const bool again = !copy || (interval->maker != EBB_BOUND_NONE &&
                                     toll[COMPUTING] * interval->again_ns < cost(toll[IN], interval->in_ns));
        if (again) {
            by[COMPUTING] += interval->again_ns;
        } else {
            add_copy(p, by, IN, interval->in_ns);
        }
        absent = true;
    }
    if (copy && !interval->has_copy) { add_copy(p, slope->share[early], OUT, interval->out_ns); }
}

/* The most that absences in the interval save. */
static double save(const pricer *p, const ebb_bound_interval *interval, const vector *at, vector *slope) {
    uint8_t did[2 * N_SEGMENTS_MAX];
    if (is_hopeless(p, interval)) { return 0; }
    const uint32_t early = find_early_copy(p, interval);
    states s = {.present = 0, .present_copy = -INFINITY, .absent = -INFINITY, .absent_copy = -INFINITY};
    if (early != interval->first) { s.present_copy = -cost(p->tolls.of[early][OUT], interval->out_ns); }
    if (interval->has_copy) { s.present_copy = 0; }
    for (uint32_t i = 0; i <= interval->last - interval->first; i++) {
        const uint32_t segment = (interval->first + i) % p->n_segments;
        did[i] = pass_segment(&s, interval, p->tolls.of[segment]);
        s.absent += interval->bytes * at->price[segment] * p->unit;
        s.absent_copy += interval->bytes * at->price[segment] * p->unit;
    }
    const bool copy = s.present_copy > s.present;
    go_back(p, interval, did, copy, early, slope);
    return copy ? s.present_copy : s.present;
}

/* ---- the bound of a point ----------------------------------------------------------------------- */

static double bound_at(pricer *p, const vector *at, vector *slope) {
    const ebb_bound_problem *problem = p->problem;
    double bound = 0;
    find_tolls(p, at);
    *slope = (vector){0};
    for (uint32_t j = 0; j < p->n_segments; j++) {
        slope->share[j][COMPUTING] = problem->computing_ns[j];
        slope->price[j] = j < problem->n_pivots ? problem->missing[j] * p->unit : 0;
        bound += at->share[j][COMPUTING] * problem->computing_ns[j] + at->price[j] * slope->price[j];
    }
    for (size_t i = 0; i < problem->n_intervals; i++) { bound -= save(p, &problem->intervals[i], at, slope); }
    slope->price[problem->n_pivots] = 0;
    return bound;
}

/* ---- the climb ---------------------------------------------------------------------------------- */

/* The nearest shares that are not negative and add up to 1. */
static void project_shares(double share[N_WAYS]) {
    bool is_in[N_WAYS] = {true, true, true};
    for (uint32_t round = 0; round < N_WAYS; round++) {
        double sum = 0, n = 0;
        for (uint32_t w = 0; w < N_WAYS; w++) {
            sum += is_in[w] ? share[w] : 0;
            n += is_in[w];
        }
        bool is_done = true;
        for (uint32_t w = 0; w < N_WAYS; w++) {
            if (!is_in[w]) { continue; }
            share[w] -= (sum - 1) / n;
            if (share[w] < 0) {
                share[w] = 0;
                is_in[w] = false;
                is_done = false;
            }
        }
        if (is_done) { return; }
    }
}

/* Tie the segments of each group of width together: their shares change alike, and one pivot in a group has a price,
 * the one where most is missing. */
static void tie(const pricer *p, uint32_t width, vector *slope) {
    for (uint32_t first = 0; first < p->n_segments; first += width) {
        const uint32_t end = first + width < p->n_segments ? first + width : p->n_segments;
        double mean[N_WAYS] = {0};
        uint32_t most = first;
        for (uint32_t j = first; j < end; j++) {
            for (uint32_t w = 0; w < N_WAYS; w++) { mean[w] += slope->share[j][w] / (end - first); }
            if (j < p->problem->n_pivots && p->problem->missing[j] > p->problem->missing[most]) { most = j; }
        }
        for (uint32_t j = first; j < end; j++) {
            memcpy(slope->share[j], mean, sizeof mean);
            if (j != most) { slope->price[j] = 0; }
        }
    }
}

static void mix(double *mean, double with, double memory) {
    *mean = memory * *mean + (1 - memory) * with;
}

/* A step along the mean. The three shares of a segment are divided by one number: only their differences matter. */
static void go(climber *c, double length) {
    for (uint32_t j = 0; j < c->pricer.n_segments; j++) {
        double square = 0;
        for (uint32_t w = 0; w < N_WAYS; w++) {
            mix(&c->mean.share[j][w], c->slope.share[j][w], MEMORY);
            mix(&c->square.share[j][w], c->slope.share[j][w] * c->slope.share[j][w], SQUARE_MEMORY);
            square = fmax(square, c->square.share[j][w]);
        }
        for (uint32_t w = 0; square > 0 && w < N_WAYS; w++) {
            c->at.share[j][w] += length * c->mean.share[j][w] / sqrt(square);
        }
        project_shares(c->at.share[j]);
        mix(&c->mean.price[j], c->slope.price[j], MEMORY);
        mix(&c->square.price[j], c->slope.price[j] * c->slope.price[j], SQUARE_MEMORY);
        if (c->square.price[j] == 0) { continue; }
        c->at.price[j] = fmax(0, c->at.price[j] + length * c->mean.price[j] / sqrt(c->square.price[j]));
    }
}

static bool is_unwanted(const ebb_bound_problem *problem) {
    return problem->is_unwanted != NULL && atomic_load(problem->is_unwanted);
}

/* Until the bound is as large as stop_ns. */
static double climb(climber *c, uint64_t n_rounds, double stop_ns) {
    double best_ns = 0;
    for (uint64_t i = 0; i < n_rounds && best_ns < stop_ns && !is_unwanted(c->pricer.problem); i++) {
        const double done = (double)i / (double)n_rounds, left = 1 - done;
        const uint32_t group = (uint32_t)(done / GROUPED * (N_WIDTHS - 1));
        const double ns = bound_at(&c->pricer, &c->at, &c->slope);
        if (ns > best_ns) {
            best_ns = ns;
            c->best = c->at;
        }
        if (group + 1 < N_WIDTHS) { tie(&c->pricer, 1u << (N_WIDTHS - 1 - group), &c->slope); }
        /* both means begin at 0; this makes up for it */
        const double begun = sqrt(1 - pow(SQUARE_MEMORY, (double)i + 1)) / (1 - pow(MEMORY, (double)i + 1));
        go(c, STEP * left * left * begun);
    }
    return best_ns;
}

static double unit_of(const ebb_bound_problem *problem, double computing_ns) {
    double most = 0;
    for (uint32_t j = 0; j < problem->n_pivots; j++) { most = fmax(most, problem->missing[j]); }
    return computing_ns / problem->n_pivots / most;
}

static uint64_t count_visits(const ebb_bound_problem *problem) {
    uint64_t n = 1;
    for (size_t i = 0; i < problem->n_intervals; i++) {
        n += problem->intervals[i].last - problem->intervals[i].first + 1;
    }
    return n;
}

ebb_status ebb__bound_price(const ebb_bound_problem *problem, ebb_bound_care care, double stop_ns, ebb_bump *bump,
                            double *bound_ns_out, ebb_bound_prices *prices_out) {
    double computing_ns = 0;
    for (uint32_t j = 0; j <= problem->n_pivots; j++) { computing_ns += problem->computing_ns[j]; }
    *bound_ns_out = computing_ns;
    if (prices_out != NULL) { memset(prices_out, 0, sizeof *prices_out); }
    if (problem->n_pivots == 0 || computing_ns == 0) { return EBB_OK; }
    climber *c = ebb__bump_alloc(bump, 1, sizeof *c);
    if (c == NULL) { return EBB_E_NO_MEMORY; }
    *c = (climber){.pricer = {.problem = problem, .n_segments = problem->n_pivots + 1}};
    c->pricer.unit = unit_of(problem, computing_ns);
    for (uint32_t j = 0; j <= problem->n_pivots; j++) { c->at.share[j][COMPUTING] = 1; }
    const uint64_t n_rounds = ebb_min_u64(work_of[care].rounds, work_of[care].visits / count_visits(problem));
    *bound_ns_out = fmax(computing_ns, climb(c, n_rounds, stop_ns * (1 + 2 * SAFETY))) * (1 - SAFETY);
    for (uint32_t j = 0; prices_out != NULL && j <= problem->n_pivots; j++) {
        prices_out->out[j] = c->best.share[j][OUT];
        prices_out->in[j] = c->best.share[j][IN];
        prices_out->byte[j] = c->best.price[j] * c->pricer.unit;
    }
    return EBB_OK;
}
