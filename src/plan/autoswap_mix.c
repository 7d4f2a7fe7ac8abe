/* SPDX-License-Identifier: Apache-2.0
 *
 * AutoSwap's Bayesian optimisation: candidates are ordered by a * AOA + b * DOA + c * WDOA + d * SWDOA, each term with
 * mean 0 and variance 1 over the candidates, and weights in [-1, 1] that give the least overhead.
 *
 * Bayesian optimisation asks for the overhead at one point after the other. A Gaussian process through what is known
 * says for any other point what to expect there and how far that may be off; the next point is the one where
 * expectation plus KAPPA times deviation is highest (Srinivas et al., arXiv 0912.3995). The covariance of two points
 * at distance r is Matern's of smoothness 5/2 with length 1. The best of N_DRAWS points is taken, drawn with a fixed
 * seed, so that one input gives one answer.
 *
 * It begins with the four scores by themselves, so it is never worse than the best of them. As coded, DOA has no part,
 * and SWDOA is not scaled, which makes it the only one that matters where its weight is not 0.
 */
#include "plan/autoswap.h"

#include <math.h>

#define N EBB_AUTOSWAP_N_SCORES
#define N_ASKED 20u
#define N_POINTS (N + N_ASKED)
#define N_DRAWS 500u
#define KAPPA 5.0
#define NOISE 1e-6

typedef struct process {
    double at[N_POINTS][N];
    double value[N_POINTS]; /* to be high: the overhead below 0 */
    size_t n;
    double factor[N_POINTS][N_POINTS]; /* Cholesky's, of the covariances */
    double weight[N_POINTS];           /* inverse of the covariances times the scaled values */
    double mean, deviation;            /* of the values */
    double scaled[N][2];               /* of each score: mean and deviation over the candidates */
} process;

/* ---- the Gaussian process ---------------------------------------------------------------------- */

static double covariance(const double a[N], const double b[N]) {
    double square = 0;
    for (size_t i = 0; i < N; i++) { square += (a[i] - b[i]) * (a[i] - b[i]); }
    const double r = sqrt(5 * square);
    return (1 + r + r * r / 3) * exp(-r);
}

static void scale_values(process *p) {
    double sum = 0, square = 0;
    for (size_t i = 0; i < p->n; i++) { sum += p->value[i]; }
    p->mean = sum / (double)p->n;
    for (size_t i = 0; i < p->n; i++) { square += (p->value[i] - p->mean) * (p->value[i] - p->mean); }
    p->deviation = square > 0 ? sqrt(square / (double)p->n) : 1;
}

static void factorise(process *p) {
    for (size_t i = 0; i < p->n; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = covariance(p->at[i], p->at[j]) + (i == j ? NOISE : 0);
            for (size_t k = 0; k < j; k++) { sum -= p->factor[i][k] * p->factor[j][k]; }
            p->factor[i][j] = i == j ? sqrt(fmax(sum, NOISE)) : sum / p->factor[j][j];
        }
    }
}

/* factor * x = right, from the front. */
static void solve_front(const process *p, const double right[N_POINTS], double x[N_POINTS]) {
    for (size_t i = 0; i < p->n; i++) {
        double sum = right[i];
        for (size_t k = 0; k < i; k++) { sum -= p->factor[i][k] * x[k]; }
        x[i] = sum / p->factor[i][i];
    }
}

/* The transposed factor * x = right, from the back. */
static void solve_back(const process *p, const double right[N_POINTS], double x[N_POINTS]) {
    for (size_t i = p->n; i-- > 0;) {
        double sum = right[i];
        for (size_t k = i + 1; k < p->n; k++) { sum -= p->factor[k][i] * x[k]; }
        x[i] = sum / p->factor[i][i];
    }
}

static void learn(process *p) {
    double scaled[N_POINTS], half[N_POINTS];
    scale_values(p);
    factorise(p);
    for (size_t i = 0; i < p->n; i++) { scaled[i] = (p->value[i] - p->mean) / p->deviation; }
    solve_front(p, scaled, half);
    solve_back(p, half, p->weight);
}

/* Expectation plus KAPPA deviations. */
static double promise(const process *p, const double at[N]) {
    double near[N_POINTS], half[N_POINTS], expected = 0, variance = covariance(at, at);
    for (size_t i = 0; i < p->n; i++) { near[i] = covariance(at, p->at[i]); }
    solve_front(p, near, half);
    for (size_t i = 0; i < p->n; i++) {
        expected += near[i] * p->weight[i];
        variance -= half[i] * half[i];
    }
    return expected + KAPPA * sqrt(fmax(variance, 0));
}

static void draw_best(const process *p, ebb_rng *rng, double at_out[N]) {
    double most = -INFINITY;
    for (size_t i = 0; i < N_DRAWS; i++) {
        double at[N];
        for (size_t k = 0; k < N; k++) { at[k] = 2 * (double)ebb__rng_unit(rng) - 1; }
        const double mine = promise(p, at);
        if (mine <= most) { continue; }
        most = mine;
        memcpy(at_out, at, sizeof at);
    }
}

/* ---- the overhead of weights ------------------------------------------------------------------- */

static void find_scales(const ebb_autoswap *a, process *p) {
    for (size_t k = 0; k < N; k++) {
        double sum = 0, square = 0;
        for (size_t i = 0; i < a->n_blocks; i++) { sum += a->blocks[i].score[k]; }
        const double mean = sum / (double)a->n_blocks;
        for (size_t i = 0; i < a->n_blocks; i++) {
            square += (a->blocks[i].score[k] - mean) * (a->blocks[i].score[k] - mean);
        }
        const bool is_raw = a->as_coded && k == EBB_AUTOSWAP_SWDOA;
        p->scaled[k][0] = is_raw ? 0 : mean;
        p->scaled[k][1] = is_raw || square <= 0 ? 1 : sqrt(square / (double)a->n_blocks);
    }
}

static void order_by_mix(ebb_autoswap *a, const process *p, const double at[N]) {
    for (size_t i = 0; i < a->n_blocks; i++) {
        a->order[i] = i;
        a->key[i] = 0;
        for (size_t k = 0; k < N; k++) {
            const double weight = a->as_coded && k == EBB_AUTOSWAP_DOA ? 0 : at[k];
            a->key[i] += weight * (a->blocks[i].score[k] - p->scaled[k][0]) / p->scaled[k][1];
        }
    }
    ebb__autoswap_sort(a, a->order, a->n_blocks);
}

/* The overhead with these weights. A selection that leaves a peak above the limit has all candidates; so would that of
 * any other weights, and the caller refuses the limit. */
static void ask(ebb_autoswap *a, process *p, const double at[N], double limit_bytes) {
    double peak = 0;
    order_by_mix(a, p, at);
    const size_t n = ebb__autoswap_select(a, limit_bytes, &peak);
    const double overhead_ns = ebb__autoswap_stick_to(a, n, limit_bytes);
    memcpy(p->at[p->n], at, N * sizeof *at);
    p->value[p->n++] = -overhead_ns;
}

ebb_status ebb__autoswap_mix(ebb_autoswap *a, double limit_bytes) {
    process *p = ebb__bump_alloc(a->bump, 1, sizeof *p);
    ebb_rng rng;
    size_t best = 0;
    if (p == NULL) { return EBB_E_NO_MEMORY; }
    memset(p, 0, sizeof *p);
    if (a->n_blocks == 0) { return EBB_OK; }
    ebb__rng_init(&rng, 1, 1);
    find_scales(a, p);
    for (size_t k = 0; k < N; k++) {
        double at[N] = {0};
        at[k] = 1;
        ask(a, p, at, limit_bytes);
        if (p->value[k] > p->value[best]) { best = k; }
    }
    while (p->n < N_POINTS && p->value[best] < 0) {
        double at[N];
        learn(p);
        draw_best(p, &rng, at);
        ask(a, p, at, limit_bytes);
        if (p->value[p->n - 1] > p->value[best]) { best = p->n - 1; }
    }
    order_by_mix(a, p, p->at[best]);
    return EBB_OK;
}
