/* SPDX-License-Identifier: Apache-2.0
 *
 * Random traces: each number of a study is that of its definition, told again in loops over all pairs.
 */
#include "study_fixture.h"

#include <math.h>

#define MAX_EVENTS 160u
#define N_SEEDS 60u

typedef struct moment {
    ebb_study_kind kind;
    bool is_end; /* of a copy */
    uint64_t ns;
    size_t event, step; /* step: SIZE_MAX, or an index of steps */
} moment;

typedef struct told_block {
    uint64_t size_bytes;
    bool before, freed;
    moment moments[MAX_EVENTS]; /* alloc, accesses, free */
    size_t n;
} told_block;

typedef struct told_step {
    size_t begin, end;
} told_step;

typedef struct told {
    ebb_rng rng;
    told_block blocks[MAX_EVENTS];
    size_t n_blocks, n_events, n_steps;
    told_step steps[MAX_EVENTS];
    size_t open_step; /* SIZE_MAX */
    size_t copied;    /* the block that is being copied; SIZE_MAX */
    uint64_t last_ns;
} told;

static uint64_t below(told *t, uint64_t n) {
    return ebb__rng_below(&t->rng, n);
}

/* ---- telling ---------------------------------------------------------------------------------- */

static void note(told *t, study_fixture *f, size_t block, ebb_study_kind kind, bool is_end) {
    told_block *b = &t->blocks[block];
    b->moments[b->n++] =
        (moment){.kind = kind, .is_end = is_end, .ns = f->now_ns, .event = t->n_events++, .step = t->open_step};
    t->last_ns = f->now_ns;
}

static void tell_alloc(told *t, study_fixture *f, bool before) {
    const uint64_t size_bytes = below(t, 8) == 0 ? 0 : 1 + below(t, below(t, 2) ? 20 : 5000);
    t->blocks[t->n_blocks] = (told_block){.size_bytes = size_bytes, .before = before};
    if (before) {
        (void)study_alloc_before(f, size_bytes, EBB_ROLE_OTHER, "");
    } else {
        (void)study_alloc(f, size_bytes, EBB_ROLE_OTHER, "");
    }
    note(t, f, t->n_blocks++, EBB_STUDY_ALLOC, false);
}

static void tell_step(told *t, study_fixture *f) {
    if (t->open_step == SIZE_MAX) {
        study_begin_step(f, "step");
        t->open_step = t->n_steps;
        t->steps[t->n_steps++] = (told_step){.begin = t->n_events++, .end = SIZE_MAX};
    } else {
        study_do(f, EBB_TRACE_STEP_END, 0);
        t->steps[t->open_step].end = t->n_events++;
        t->open_step = SIZE_MAX;
    }
    t->last_ns = f->now_ns;
}

static void tell_copy(told *t, study_fixture *f, size_t block) {
    const bool begins = t->copied == SIZE_MAX;
    if (!begins) { block = t->copied; }
    study_add(f, (ebb_trace_event){.kind = begins ? EBB_TRACE_COPY_BEGIN : EBB_TRACE_COPY_END,
                                   .block = block,
                                   .size_bytes = t->blocks[block].size_bytes});
    note(t, f, block, EBB_STUDY_COPY, !begins);
    t->copied = begins ? block : SIZE_MAX;
}

static void tell_something(told *t, study_fixture *f) {
    const uint64_t what = below(t, 10);
    f->now_ns += below(t, 3) == 0 ? 0 : 1 + below(t, below(t, 4) == 0 ? 3000 : 30);
    if (what < 2 || t->n_blocks == 0) {
        tell_alloc(t, f, false);
        return;
    }
    const size_t block = (size_t)below(t, t->n_blocks);
    if (what == 2) {
        tell_step(t, f);
    } else if (t->blocks[block].freed) {
        tell_alloc(t, f, false);
    } else if (what == 3) {
        tell_copy(t, f, block);
    } else if (what == 4 && block != t->copied) {
        study_do(f, EBB_TRACE_FREE, block);
        note(t, f, block, EBB_STUDY_FREE, false);
        t->blocks[block].freed = true;
    } else {
        const bool reads = below(t, 2) == 0;
        study_do(f, reads ? EBB_TRACE_READ : EBB_TRACE_WRITE, block);
        note(t, f, block, reads ? EBB_STUDY_READ : EBB_STUDY_WRITE, false);
    }
}

static const ebb_study *tell(told *t, study_fixture *f, uint64_t seed, const ebb_study_options *options) {
    memset(t, 0, sizeof *t);
    ebb__rng_init(&t->rng, seed, 0);
    t->open_step = t->copied = SIZE_MAX;
    study_fixture_init(f, STUDY_TELLS_ALL);
    f->now_ns = 100;
    for (uint64_t n = below(t, 5); n > 0; n--) { tell_alloc(t, f, true); }
    for (uint64_t n = below(t, MAX_EVENTS - 10); n > 0; n--) { tell_something(t, f); }
    return study_fixture_study(f, options);
}

/* ---- definitions ------------------------------------------------------------------------------ */

/* Whether a block lives after this event. */
static bool lives(const told_block *b, size_t event) {
    return b->moments[0].event <= event && !(b->freed && b->moments[b->n - 1].event <= event);
}

static uint64_t live_behind(const told *t, size_t event) {
    uint64_t live_bytes = 0;
    for (size_t b = 0; b < t->n_blocks; b++) {
        live_bytes += lives(&t->blocks[b], event) ? t->blocks[b].size_bytes : 0;
    }
    return live_bytes;
}

static uint64_t ns_of(const told *t, size_t event, uint64_t *found) {
    for (size_t b = 0; b < t->n_blocks; b++) {
        for (size_t m = 0; m < t->blocks[b].n; m++) {
            if (t->blocks[b].moments[m].event == event) { *found = t->blocks[b].moments[m].ns; }
        }
    }
    return *found;
}

static void check_peak(const told *t, const ebb_study *study) {
    const ebb_study_summary sum = ebb_study_get_summary(study);
    uint64_t peak_bytes = 0;
    size_t peak_event = SIZE_MAX;
    for (size_t e = 0; e < t->n_events; e++) {
        if (live_behind(t, e) > peak_bytes) {
            peak_bytes = live_behind(t, e);
            peak_event = e;
        }
    }
    assert_int_equal(sum.peak_bytes, peak_bytes);
    if (peak_bytes == 0) { return; }
    assert_int_equal(sum.peak_event, peak_event);
    uint64_t ns = 0;
    assert_int_equal(sum.peak_ns, ns_of(t, peak_event, &ns));
    for (size_t b = 0; b < t->n_blocks; b++) {
        assert_true(ebb_study_get_block(study, b).live_at_peak == lives(&t->blocks[b], peak_event));
    }
}

static void check_curve(const told *t, const ebb_study *study) {
    ebb_study_bin bins[7];
    ebb_study_axis axis;
    if (t->n_events == 0) { return; }
    assert_int_equal(ebb_study_curve(study, EBB_STUDY_BY_EVENT, 7, bins, &axis), EBB_OK);
    for (size_t k = 0; k < 7; k++) {
        const uint64_t first = t->n_events * k / 7, last = t->n_events * (k + 1) / 7;
        uint64_t low = first > 0 ? live_behind(t, (size_t)first - 1) : 0, high = low;
        for (uint64_t e = first; e < last; e++) {
            low = ebb_min_u64(low, live_behind(t, (size_t)e));
            high = ebb_max_u64(high, live_behind(t, (size_t)e));
        }
        assert_true(bins[k].first == first && bins[k].last == last);
        assert_true(bins[k].low_bytes == low && bins[k].high_bytes == high);
    }
}

typedef struct told_interval {
    uint64_t begin_ns, end_ns, size_bytes;
    size_t block;
    ebb_study_kind from, to;
} told_interval;

static size_t list_intervals(const told *t, told_interval *list) {
    size_t n = 0;
    for (size_t b = 0; b < t->n_blocks; b++) {
        const told_block *block = &t->blocks[b];
        for (size_t m = block->before ? 2 : 1; m < block->n; m++) {
            const moment *x = &block->moments[m - 1], *y = &block->moments[m];
            if (x->kind == EBB_STUDY_COPY && !x->is_end && y->is_end) { continue; }
            list[n++] = (told_interval){x->ns, y->ns, block->size_bytes, b, x->kind, y->kind};
        }
    }
    return n;
}

/* Of those of a pair, how many are at most so long; and all of them. */
static size_t count_until(const told_interval *list, size_t n, int from, int to, uint64_t ns) {
    size_t n_until = 0;
    for (size_t i = 0; i < n; i++) {
        const bool is_it = from == EBB_STUDY_ANY || ((int)list[i].from == from && (int)list[i].to == to);
        n_until += is_it && list[i].end_ns - list[i].begin_ns <= ns;
    }
    return n_until;
}

static void check_pair(const ebb_study *study, const told_interval *list, size_t n, int from, int to) {
    const ebb_study_kind f = (ebb_study_kind)from, g = (ebb_study_kind)to;
    const ebb_study_times times = ebb_study_intervals(study, f, g);
    const size_t count = count_until(list, n, from, to, UINT64_MAX);
    assert_int_equal(times.count, count);
    assert_int_equal(ebb_study_intervals_until(study, f, g, 17), count_until(list, n, from, to, 17));
    if (count == 0) {
        assert_true(times.p50_ns == EBB_STUDY_UNKNOWN && isnan(times.mean_ns));
        return;
    }
    const struct {
        double share;
        uint64_t ns;
    } given[] = {{0.5, times.p50_ns},  {0.75, times.p75_ns}, {0.9, times.p90_ns},
                 {0.99, times.p99_ns}, {1.0, times.max_ns},  {0.3, ebb_study_interval_quantile(study, f, g, 0.3)}};
    for (size_t q = 0; q < sizeof given / sizeof *given; q++) { /* enough are at most so long, and no fewer would do */
        const double needed = given[q].share * (double)count - 1e-6;
        assert_true((double)count_until(list, n, from, to, given[q].ns) >= needed);
        assert_true(given[q].ns == 0 || (double)count_until(list, n, from, to, given[q].ns - 1) < needed);
    }
    uint64_t n_binned = 0;
    for (size_t k = 0; k < 64; k++) { n_binned += times.log2_counts[k]; }
    assert_int_equal(n_binned, count);
    assert_int_equal(times.log2_counts[4], count_until(list, n, from, to, 31) - count_until(list, n, from, to, 15));
}

static void check_outliers(const ebb_study *study, const told_interval *list, size_t n) {
    const ebb_study_outliers o = ebb_study_get_outliers(study);
    double products[MAX_EVENTS];
    size_t n_products = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        const double p = (double)(list[i].end_ns - list[i].begin_ns) * (double)list[i].size_bytes;
        size_t at = n_products;
        if (p <= 0) { continue; }
        for (; at > 0 && products[at - 1] > p; at--) { products[at] = products[at - 1]; }
        products[at] = p;
        n_products++;
    }
    if (n_products == 0) {
        assert_int_equal(o.count, 0);
        return;
    }
    const double q1 = products[(size_t)ceil(0.25 * (double)n_products) - 1];
    const double q3 = products[(size_t)ceil(0.75 * (double)n_products) - 1];
    const double fence = exp(log(q3) + 1.5 * (log(q3) - log(q1)));
    for (size_t i = 0; i < n_products; i++) { count += products[i] > fence * (1 + 1e-9); }
    assert_true(fabs(o.fence_byte_s * 1e9 - fence) <= 1e-6 * fence);
    assert_int_equal(o.count, count);
    assert_int_equal(o.n_kept, count < 3 ? count : 3);
    for (size_t i = 0; i < o.n_kept; i++) {
        const double p = (double)(o.intervals[i].end_ns - o.intervals[i].begin_ns) * (double)o.intervals[i].size_bytes;
        assert_true(p == products[n_products - 1 - i]);
    }
}

static void check_intervals(const told *t, const ebb_study *study) {
    told_interval list[MAX_EVENTS];
    const size_t n = list_intervals(t, list);
    check_pair(study, list, n, EBB_STUDY_ANY, EBB_STUDY_ANY);
    for (int from = 0; from < EBB_STUDY_N_KINDS; from++) {
        for (int to = 0; to < EBB_STUDY_N_KINDS; to++) { check_pair(study, list, n, from, to); }
    }
    for (size_t b = 0; b < t->n_blocks; b++) {
        uint64_t longest_ns = EBB_STUDY_UNKNOWN;
        for (size_t i = 0; i < n; i++) {
            const uint64_t ns = list[i].end_ns - list[i].begin_ns;
            if (list[i].block == b && (longest_ns == EBB_STUDY_UNKNOWN || ns > longest_ns)) { longest_ns = ns; }
        }
        assert_true(ebb_study_get_block(study, b).longest_idle_ns == longest_ns);
    }
    uint64_t n_cells = 0;
    size_t n_listed = 0;
    const ebb_study_cell *cells = ebb_study_density(study, &n_listed);
    for (size_t i = 0; i < n_listed; i++) { n_cells += cells[i].count; }
    assert_int_equal(n_cells, n);
    check_outliers(study, list, n);
}

/* Windows of absence: out at 2 bytes a ns, in at 4, and 3 ns before each. From ANY it is out already, to ANY it stays
 * out; both would fit in even so. */
static size_t list_windows(const told *t, told_interval *windows, ebb_study_swappable *sum) {
    told_interval list[2 * MAX_EVENTS];
    size_t n = list_intervals(t, list), n_windows = 0;
    bool has_one[MAX_EVENTS] = {false};
    for (size_t b = 0; b < t->n_blocks; b++) {
        const told_block *block = &t->blocks[b];
        const size_t first = 1, last = block->freed ? block->n - 1 : block->n;
        told_interval x = {block->moments[0].ns, t->last_ns, block->size_bytes, b, EBB_STUDY_ANY, EBB_STUDY_ANY};
        if (first == last && block->before && !block->freed) { list[n++] = x; }
        if (first == last) { continue; }
        if (block->before) {
            list[n] = x;
            list[n].to = block->moments[first].kind;
            list[n++].end_ns = block->moments[first].ns;
        }
        if (!block->freed) {
            list[n] = x;
            list[n].from = block->moments[last - 1].kind;
            list[n++].begin_ns = block->moments[last - 1].ns;
        }
    }
    for (size_t i = 0; i < n; i++) {
        const told_interval *x = &list[i];
        double out = 3 + (double)x->size_bytes / 2, in = 3 + (double)x->size_bytes / 4;
        if (x->from == EBB_STUDY_ALLOC || x->to == EBB_STUDY_FREE || x->size_bytes == 0) { continue; }
        if (out + in > (double)(x->end_ns - x->begin_ns)) { continue; }
        sum->n_intervals++;
        if (!has_one[x->block]) {
            sum->n_blocks++;
            sum->bytes += x->size_bytes;
        }
        has_one[x->block] = true;
        out = x->from == EBB_STUDY_ANY ? 0 : out;
        in = x->to == EBB_STUDY_ANY ? 0 : in;
        windows[n_windows] = *x;
        windows[n_windows].begin_ns += (uint64_t)ceil(out);
        windows[n_windows].end_ns -= (uint64_t)ceil(in);
        if (windows[n_windows].begin_ns < windows[n_windows].end_ns) {
            sum->out_busy += ceil(out);
            sum->in_busy += ceil(in);
            sum->byte_seconds +=
                (double)x->size_bytes * (double)(windows[n_windows].end_ns - windows[n_windows].begin_ns) * 1e-9;
            if (x->to == EBB_STUDY_ANY) { windows[n_windows].end_ns = UINT64_MAX; }
            n_windows++;
        }
    }
    return n_windows;
}

static uint64_t absent_at(const told_interval *windows, size_t n, uint64_t ns) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += windows[i].begin_ns < ns && ns < windows[i].end_ns ? windows[i].size_bytes : 0;
    }
    return bytes;
}

/* The event tells a block that was there before. */
static bool is_from_before(const told *t, size_t event) {
    for (size_t b = 0; b < t->n_blocks; b++) {
        if (t->blocks[b].before && t->blocks[b].moments[0].event == event) { return true; }
    }
    return false;
}

static void check_swappable(const told *t, const ebb_study *study) {
    told_interval windows[2 * MAX_EVENTS];
    ebb_study_swappable expected = {.known = true};
    const size_t n = list_windows(t, windows, &expected);
    const ebb_study_swappable got = ebb_study_get_swappable(study);
    assert_true(got.known);
    assert_int_equal(got.n_intervals, expected.n_intervals);
    assert_int_equal(got.n_blocks, expected.n_blocks);
    assert_int_equal(got.bytes, expected.bytes);
    assert_true(fabs(got.byte_seconds - expected.byte_seconds) < 1e-9 * (1 + expected.byte_seconds));
    const ebb_study_summary sum = ebb_study_get_summary(study);
    const double duration_ns = sum.duration_ns > 0 ? (double)sum.duration_ns : 1;
    assert_true(fabs(got.out_busy - expected.out_busy / duration_ns) < 1e-9);
    assert_true(fabs(got.in_busy - expected.in_busy / duration_ns) < 1e-9);
    assert_int_equal(got.bytes_at_peak, t->n_blocks > 0 ? absent_at(windows, n, sum.peak_ns) : 0);
    uint64_t peak_bytes = 0, ns = 0;
    for (size_t e = 0; e < t->n_events; e++) { /* after each event of a block */
        uint64_t here = UINT64_MAX;
        if (ns_of(t, e, &here) == UINT64_MAX) { continue; }
        ns = here;
        if (is_from_before(t, e)) { continue; }
        peak_bytes = ebb_max_u64(peak_bytes, live_behind(t, e) - absent_at(windows, n, ns));
    }
    if (t->n_events > 0) {
        peak_bytes = ebb_max_u64(peak_bytes, live_behind(t, t->n_events) - absent_at(windows, n, sum.last_ns));
    }
    for (size_t i = 0; i < n; i++) { /* when something is back, before what happens at that time */
        if (windows[i].end_ns == UINT64_MAX) { continue; }
        size_t e = 0;
        for (size_t k = 0; k < t->n_events; k++) {
            uint64_t here = UINT64_MAX;
            if (ns_of(t, k, &here) < windows[i].end_ns) { e = k; }
        }
        peak_bytes = ebb_max_u64(peak_bytes, live_behind(t, e) - absent_at(windows, n, windows[i].end_ns));
    }
    assert_int_equal(got.peak_bytes, peak_bytes);
}

static size_t begin_of(const told *t, const moment *m) {
    return m->step == SIZE_MAX ? m->event : t->steps[m->step].begin;
}

static size_t end_of(const told *t, const moment *m) {
    return m->step == SIZE_MAX ? m->event : t->steps[m->step].end;
}

static void check_nothing_idle(const told *t, const ebb_study *study) {
    uint64_t peak_bytes = 0;
    for (size_t e = 0; e < t->n_events; e++) { /* around each event: what it begins is there, what it ends is too */
        uint64_t live_bytes = 0;
        for (size_t b = 0; b < t->n_blocks; b++) {
            const told_block *block = &t->blocks[b];
            const size_t last = block->freed ? block->n - 1 : block->n;
            if (block->freed && last == 1) { continue; }
            size_t begin = block->moments[0].event, end = SIZE_MAX;
            if (!block->before && last > 1 && begin_of(t, &block->moments[1]) > begin) {
                begin = begin_of(t, &block->moments[1]);
            }
            if (block->freed) {
                end = end_of(t, &block->moments[last - 1]);
                end = end < block->moments[last].event ? end : block->moments[last].event;
            }
            live_bytes += begin <= e && e <= end ? block->size_bytes : 0;
        }
        peak_bytes = ebb_max_u64(peak_bytes, live_bytes);
    }
    size_t n = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(study, &n);
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].key, "nothing-idle") != 0) { continue; }
        found = true;
        assert_int_equal(rows[i].bytes, peak_bytes);
    }
    assert_true(found);
}

static void check_churn(const told *t, const ebb_study *study) {
    const ebb_study_churn got = ebb_study_get_churn(study);
    ebb_study_churn expected = {.n_allocs = 0};
    const told_block *freed = NULL; /* by the event of a birth or death before */
    for (size_t e = 0; e < t->n_events; e++) {
        for (size_t b = 0; b < t->n_blocks; b++) {
            const told_block *block = &t->blocks[b];
            if (block->freed && block->moments[block->n - 1].event == e) {
                expected.n_frees++;
                freed = block;
            }
            if (block->moments[0].event != e) { continue; }
            expected.n_allocs += !block->before;
            expected.alloc_bytes += block->before ? 0 : block->size_bytes;
            const bool at_once = !block->before && freed != NULL && freed->size_bytes == block->size_bytes;
            expected.n_at_once += at_once;
            expected.at_once_bytes += at_once ? block->size_bytes : 0;
            freed = NULL;
        }
    }
    assert_true(got.n_allocs == expected.n_allocs && got.n_frees == expected.n_frees);
    assert_true(got.alloc_bytes == expected.alloc_bytes && got.n_at_once == expected.n_at_once);
    assert_int_equal(got.at_once_bytes, expected.at_once_bytes);
}

static uint64_t seed_now;

static int print_seed(void **state) {
    (void)state;
    print_message("the last seed was %llu\n", (unsigned long long)seed_now);
    return 0;
}

static void studies_are_their_definitions(void **state) {
    (void)state;
    told *t = malloc(sizeof *t);
    assert_non_null(t);
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.out_bytes_per_s = 2e9;
    options.in_bytes_per_s = 4e9;
    options.latency_ns = 3;
    options.max_outliers = 3;
    for (uint64_t seed = 0; seed < N_SEEDS; seed++) {
        study_fixture f;
        seed_now = seed;
        const ebb_study *study = tell(t, &f, seed, &options);
        check_peak(t, study);
        check_curve(t, study);
        check_intervals(t, study);
        check_swappable(t, study);
        check_nothing_idle(t, study);
        check_churn(t, study);
        study_fixture_fini(&f);
    }
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(studies_are_their_definitions, print_seed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
