/* SPDX-License-Identifier: Apache-2.0
 *
 * Access-time intervals: the time between two moments of one block that follow each other (Li et al., 'Pinpointing the
 * memory behaviors of DNN training', ISPASS 2021). All of them are kept, sorted, once together and once by pair of
 * kinds, so that each quantile is exact: 16 bytes an interval, about one for each read and write.
 */
#include "study/intervals.h"

#include <math.h>

#define ALL STUDY_N_PAIRS /* after the pairs: all together */
#define CELLS_AN_OCTAVE 4.0
#define N_CELL_LOGS 256u

/* ---- going through them ----------------------------------------------------------------------- */

ebb_status ebb__study_each_interval(const ebb_study *s, uint32_t block, ebb_study_visit visit, void *ctx) {
    const study_block *b = &s->blocks.data[block];
    const size_t end = study_first_access(s, (size_t)block + 1);
    ebb_study_interval interval = {
        .block = block, .size_bytes = b->size_bytes, .from = EBB_STUDY_ALLOC, .begin_ns = b->born_ns};
    bool has_begin = !b->before, is_copying = false;
    for (size_t i = b->first_access; i < end; i++) {
        const study_access *a = &s->accesses.data[s->by_block[i]];
        const study_touch touch = study_touch_of(a);
        interval.to = study_kind_of(touch);
        interval.end_ns = a->time_ns;
        EBB_ASSERT(interval.end_ns >= interval.begin_ns || !has_begin);
        if (has_begin && !(is_copying && touch == TOUCH_COPY_END)) { EBB_TRY(visit(ctx, &interval)); }
        has_begin = true;
        is_copying = touch == TOUCH_COPY_BEGIN;
        interval.from = interval.to;
        interval.begin_ns = a->time_ns;
    }
    if (b->died_event == STUDY_NONE || !has_begin) { return EBB_OK; }
    interval.to = EBB_STUDY_FREE;
    interval.end_ns = b->died_ns;
    return visit(ctx, &interval);
}

static ebb_status each_interval(const ebb_study *s, ebb_study_visit visit, void *ctx) {
    for (size_t b = 0; b < s->blocks.n; b++) { EBB_TRY(ebb__study_each_interval(s, (uint32_t)b, visit, ctx)); }
    return EBB_OK;
}

/* ---- times ------------------------------------------------------------------------------------ */

static uint64_t quantile(const uint64_t *sorted, size_t n, double share) {
    if (n == 0) { return EBB_STUDY_UNKNOWN; }
    const double rank = ceil(share * (double)n * (1.0 - 1e-12));
    const size_t at = rank < 1.0 ? 1 : (size_t)rank;
    return sorted[at < n ? at - 1 : n - 1];
}

static unsigned log2_of(uint64_t x) {
    unsigned k = 0;
    for (; x > 1; x >>= 1) { k++; }
    return k;
}

static ebb_study_times times_of(const uint64_t *sorted, size_t n) {
    ebb_study_times t = {.count = n,
                         .min_ns = n > 0 ? sorted[0] : EBB_STUDY_UNKNOWN,
                         .max_ns = n > 0 ? sorted[n - 1] : EBB_STUDY_UNKNOWN,
                         .p50_ns = quantile(sorted, n, 0.5),
                         .p75_ns = quantile(sorted, n, 0.75),
                         .p90_ns = quantile(sorted, n, 0.9),
                         .p99_ns = quantile(sorted, n, 0.99),
                         .mean_ns = NAN};
    double sum_ns = 0;
    for (size_t i = 0; i < n; i++) {
        sum_ns += (double)sorted[i];
        t.log2_counts[log2_of(sorted[i])]++;
    }
    if (n > 0) { t.mean_ns = sum_ns / (double)n; }
    return t;
}

/* ---- all, sorted ------------------------------------------------------------------------------ */

typedef struct gathering {
    ebb_study *study;
    uint64_t *ns;
    uint8_t *pair;
    size_t n, cap;
} gathering;

static ebb_status count_one(void *ctx, const ebb_study_interval *interval) {
    gathering *g = ctx;
    g->cap++;
    study_block *b = &g->study->blocks.data[interval->block];
    const uint64_t ns = interval->end_ns - interval->begin_ns;
    if (b->longest_idle_ns == EBB_STUDY_UNKNOWN || ns > b->longest_idle_ns) { b->longest_idle_ns = ns; }
    return EBB_OK;
}

static ebb_status take_one(void *ctx, const ebb_study_interval *interval) {
    gathering *g = ctx;
    EBB_ASSERT(g->n < g->cap);
    g->ns[g->n] = interval->end_ns - interval->begin_ns;
    g->pair[g->n++] = (uint8_t)((unsigned)interval->from * EBB_STUDY_N_KINDS + (unsigned)interval->to);
    return EBB_OK;
}

/* Sorted all together, then dealt out to the pairs in that order. */
static void deal_out(ebb_study *s, const gathering *g, const uint32_t *order) {
    size_t at[STUDY_N_PAIRS + 1] = {0};
    for (size_t i = 0; i < g->n; i++) { at[g->pair[i] + 1]++; }
    for (size_t p = 0; p < STUDY_N_PAIRS; p++) { at[p + 1] += at[p]; }
    memcpy(s->pair_first, at, sizeof at);
    for (size_t i = 0; i < g->n; i++) {
        const uint64_t ns = g->ns[order[i]];
        s->sorted_ns[i] = ns;
        s->pair_ns[at[g->pair[order[i]]]++] = ns;
    }
    for (size_t p = 0; p < STUDY_N_PAIRS; p++) {
        s->times[p] = times_of(s->pair_ns + s->pair_first[p], s->pair_first[p + 1] - s->pair_first[p]);
    }
    s->times[ALL] = times_of(s->sorted_ns, g->n);
}

static ebb_status sort_intervals(gathering *g, ebb_bump *scratch) {
    ebb_study *s = g->study;
    EBB_TRY(each_interval(s, count_one, g));
    s->sorted_ns = ebb__alloc(s->mem, g->cap, sizeof *s->sorted_ns);
    s->pair_ns = ebb__alloc(s->mem, g->cap, sizeof *s->pair_ns);
    g->ns = ebb__bump_alloc(scratch, g->cap, sizeof *g->ns);
    g->pair = ebb__bump_alloc(scratch, g->cap, sizeof *g->pair);
    uint32_t *order = ebb__bump_alloc(scratch, g->cap, sizeof *order);
    if (s->sorted_ns == NULL || s->pair_ns == NULL || g->ns == NULL || g->pair == NULL || order == NULL) {
        return EBB_E_NO_MEMORY;
    }
    EBB_TRY(each_interval(s, take_one, g));
    for (size_t i = 0; i < g->n; i++) { order[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(s->mem, order, g->n, g->ns));
    deal_out(s, g, order);
    return EBB_OK;
}

static ebb_status find_lifetimes(ebb_study *s, ebb_bump *scratch) {
    uint64_t *ns = ebb__bump_alloc(scratch, s->blocks.n, sizeof *ns);
    uint64_t *sorted = ebb__bump_alloc(scratch, s->blocks.n, sizeof *sorted);
    uint32_t *order = ebb__bump_alloc(scratch, s->blocks.n, sizeof *order);
    size_t n = 0;
    if (ns == NULL || sorted == NULL || order == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t b = 0; b < s->blocks.n; b++) {
        const study_block *block = &s->blocks.data[b];
        if (block->before || block->died_event == STUDY_NONE) { continue; }
        order[n] = (uint32_t)n;
        ns[n++] = block->died_ns - block->born_ns;
    }
    EBB_TRY(ebb__sort_by_key(s->mem, order, n, ns));
    for (size_t i = 0; i < n; i++) { sorted[i] = ns[order[i]]; }
    s->lifetimes = times_of(sorted, n);
    return EBB_OK;
}

/* ---- density ---------------------------------------------------------------------------------- */

static unsigned cell_log(uint64_t x) {
    return x <= 1 ? 0 : (unsigned)(CELLS_AN_OCTAVE * log2((double)x));
}

static ebb_status count_cell(void *ctx, const ebb_study_interval *interval) {
    uint64_t *cells = ctx;
    const unsigned i = cell_log(interval->end_ns - interval->begin_ns), b = cell_log(interval->size_bytes);
    cells[(i < N_CELL_LOGS ? i : N_CELL_LOGS - 1) * N_CELL_LOGS + (b < N_CELL_LOGS ? b : N_CELL_LOGS - 1)]++;
    return EBB_OK;
}

static ebb_status find_density(ebb_study *s, ebb_bump *scratch) {
    uint64_t *counts = ebb__bump_alloc(scratch, (size_t)N_CELL_LOGS * N_CELL_LOGS, sizeof *counts);
    if (counts == NULL) { return EBB_E_NO_MEMORY; }
    memset(counts, 0, sizeof *counts * N_CELL_LOGS * N_CELL_LOGS);
    EBB_TRY(each_interval(s, count_cell, counts));
    for (unsigned i = 0; i < N_CELL_LOGS * N_CELL_LOGS; i++) {
        if (counts[i] == 0) { continue; }
        const ebb_study_cell cell = {
            .interval_log = (uint16_t)(i / N_CELL_LOGS), .size_log = (uint16_t)(i % N_CELL_LOGS), .count = counts[i]};
        EBB_TRY(EBB_PUSH(s->mem, &s->density, cell));
    }
    return EBB_OK;
}

/* ---- outliers --------------------------------------------------------------------------------- */

typedef struct outlier_search {
    ebb_study *study;
    uint64_t *key; /* products as they are ordered */
    size_t n;
    double fence;
} outlier_search;

/* In ns x bytes. The bits of numbers that are not negative are in their order. */
static uint64_t product_bits(const ebb_study_interval *interval) {
    const double product = (double)(interval->end_ns - interval->begin_ns) * (double)interval->size_bytes;
    uint64_t bits = 0;
    memcpy(&bits, &product, sizeof bits);
    return bits;
}

static double product_of(uint64_t bits) {
    double product = 0;
    memcpy(&product, &bits, sizeof product);
    return product;
}

static ebb_status take_product(void *ctx, const ebb_study_interval *interval) {
    outlier_search *o = ctx;
    const uint64_t bits = product_bits(interval);
    if (bits != 0) { o->key[o->n++] = bits; }
    return EBB_OK;
}

static uint64_t falling_product(const void *item) {
    return ~product_bits(item);
}

/* The greatest options.max_outliers of those that are kept, in descending order. */
static ebb_status keep_greatest(ebb_study *s) {
    EBB_TRY(ebb__sort_items(s->mem, s->outliers.data, s->outliers.n, sizeof *s->outliers.data, falling_product));
    if (s->outliers.n > s->options.max_outliers) { s->outliers.n = s->options.max_outliers; }
    return EBB_OK;
}

static ebb_status take_outlier(void *ctx, const ebb_study_interval *interval) {
    outlier_search *o = ctx;
    ebb_study *s = o->study;
    if (product_of(product_bits(interval)) <= o->fence) { return EBB_OK; }
    s->n_outliers++;
    ebb_study_interval outlier = *interval;
    outlier.is_free = ebb__study_is_free(s, interval->end_ns - interval->begin_ns, interval->size_bytes);
    EBB_TRY(EBB_PUSH(s->mem, &s->outliers, outlier));
    return s->outliers.n > 2 * (size_t)s->options.max_outliers + 64 ? keep_greatest(s) : EBB_OK;
}

static ebb_status find_outliers(ebb_study *s, size_t n_intervals, ebb_bump *scratch) {
    outlier_search o = {.study = s, .key = ebb__bump_alloc(scratch, n_intervals, sizeof *o.key)};
    uint32_t *order = ebb__bump_alloc(scratch, n_intervals, sizeof *order);
    if (o.key == NULL || order == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(each_interval(s, take_product, &o));
    if (o.n == 0) { return EBB_OK; }
    for (size_t i = 0; i < o.n; i++) { order[i] = (uint32_t)i; }
    EBB_TRY(ebb__sort_by_key(s->mem, order, o.n, o.key));
    const double q1 = product_of(o.key[order[(o.n + 3) / 4 - 1]]);
    const double q3 = product_of(o.key[order[(3 * o.n + 3) / 4 - 1]]);
    EBB_ASSERT(q1 > 0 && q3 >= q1);
    o.fence = q3 * pow(q3 / q1, 1.5);
    s->fence_byte_s = o.fence * 1e-9;
    EBB_TRY(each_interval(s, take_outlier, &o));
    return keep_greatest(s);
}

/* ---- the door --------------------------------------------------------------------------------- */

ebb_status ebb__study_find_intervals(ebb_study *s) {
    for (size_t p = 0; p <= ALL; p++) { s->times[p] = times_of(NULL, 0); }
    s->lifetimes = times_of(NULL, 0);
    if (!study_tells(s, EBB_TRACE_TELLS_TIMES)) { return EBB_OK; }
    ebb_bump scratch;
    ebb__bump_init(&scratch, s->mem);
    ebb_status st = find_lifetimes(s, &scratch);
    if (st == EBB_OK && study_tells(s, EBB_TRACE_TELLS_ACCESSES)) {
        gathering g = {.study = s};
        st = sort_intervals(&g, &scratch);
        ebb__bump_fini(&scratch);
        ebb__bump_init(&scratch, s->mem);
        if (st == EBB_OK) { st = find_density(s, &scratch); }
        if (st == EBB_OK) { st = find_outliers(s, g.n, &scratch); }
    }
    ebb__bump_fini(&scratch);
    return st;
}

ebb_study_times ebb_study_lifetimes(const ebb_study *study) {
    return study->lifetimes;
}

/* The index of a pair, or ALL; ALL + 1: none of these. */
static size_t pair_of(ebb_study_kind from, ebb_study_kind to) {
    if (from == EBB_STUDY_ANY && to == EBB_STUDY_ANY) { return ALL; }
    const bool is_pair = (unsigned)from < EBB_STUDY_N_KINDS && (unsigned)to < EBB_STUDY_N_KINDS;
    return is_pair ? (unsigned)from * EBB_STUDY_N_KINDS + (unsigned)to : ALL + 1;
}

/* The sorted intervals of a pair. */
static const uint64_t *list_of(const ebb_study *s, ebb_study_kind from, ebb_study_kind to, size_t *n_out) {
    const size_t p = pair_of(from, to);
    *n_out = p <= ALL ? (size_t)s->times[p].count : 0;
    if (*n_out == 0) { return NULL; }
    return p == ALL ? s->sorted_ns : s->pair_ns + s->pair_first[p];
}

ebb_study_times ebb_study_intervals(const ebb_study *study, ebb_study_kind from, ebb_study_kind to) {
    const size_t p = pair_of(from, to);
    return p <= ALL ? study->times[p] : times_of(NULL, 0);
}

uint64_t ebb_study_interval_quantile(const ebb_study *study, ebb_study_kind from, ebb_study_kind to, double share) {
    size_t n = 0;
    const uint64_t *sorted = list_of(study, from, to, &n);
    return quantile(sorted, n, share);
}

uint64_t ebb_study_intervals_until(const ebb_study *study, ebb_study_kind from, ebb_study_kind to,
                                   uint64_t interval_ns) {
    size_t low = 0, high = 0;
    const uint64_t *sorted = list_of(study, from, to, &high);
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (sorted[mid] <= interval_ns) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

const ebb_study_cell *ebb_study_density(const ebb_study *study, size_t *n_out) {
    *n_out = study->density.n;
    return study->density.data;
}

ebb_study_outliers ebb_study_get_outliers(const ebb_study *study) {
    return (ebb_study_outliers){.intervals = study->outliers.data,
                                .n_kept = study->outliers.n,
                                .count = study->n_outliers,
                                .fence_byte_s = study->fence_byte_s};
}
