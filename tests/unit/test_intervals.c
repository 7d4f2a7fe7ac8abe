/* SPDX-License-Identifier: Apache-2.0
 *
 * Intervals, outliers, what could leave and churn, worked out by hand.
 */
#include "study_fixture.h"

#include <math.h>

static void at(study_fixture *f, uint64_t ns, ebb_trace_kind kind, uint64_t block) {
    f->now_ns = ns;
    study_do(f, kind, block);
}

/* a: alloc 0, write 10, read 30, read 70, free 100. p (before): read 20, write 90. */
static void kinds_and_quantiles(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t p = study_alloc_before(&f, 8, EBB_ROLE_PARAMETER, "p");
    const uint64_t a = study_alloc(&f, 64, EBB_ROLE_ACTIVATION, "a");
    at(&f, 10, EBB_TRACE_WRITE, a);
    at(&f, 20, EBB_TRACE_READ, p);
    at(&f, 30, EBB_TRACE_READ, a);
    at(&f, 70, EBB_TRACE_READ, a);
    at(&f, 90, EBB_TRACE_WRITE, p);
    at(&f, 100, EBB_TRACE_FREE, a);
    const ebb_study *s = study_fixture_study(&f, NULL);
    ebb_study_times t = ebb_study_intervals(s, EBB_STUDY_ANY, EBB_STUDY_ANY); /* 10 20 30 40 70 */
    assert_true(t.count == 5 && t.min_ns == 10 && t.max_ns == 70 && t.p50_ns == 30 && t.p75_ns == 40);
    assert_true(t.p90_ns == 70 && t.p99_ns == 70 && t.mean_ns == 34.0);
    assert_true(t.log2_counts[3] == 1 && t.log2_counts[4] == 2 && t.log2_counts[5] == 1 && t.log2_counts[6] == 1);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_ALLOC, EBB_STUDY_WRITE).p50_ns, 10);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_WRITE, EBB_STUDY_READ).p50_ns, 20);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_READ, EBB_STUDY_READ).p50_ns, 40);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_READ, EBB_STUDY_FREE).p50_ns, 30);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_READ, EBB_STUDY_WRITE).p50_ns, 70);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_ALLOC, EBB_STUDY_READ).count, 0); /* p's was before */
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_ANY, EBB_STUDY_READ).count, 0);   /* no pair */
    assert_int_equal(ebb_study_interval_quantile(s, EBB_STUDY_ANY, EBB_STUDY_ANY, 0.0), 10);
    assert_int_equal(ebb_study_interval_quantile(s, EBB_STUDY_ANY, EBB_STUDY_ANY, 0.2), 10);
    assert_int_equal(ebb_study_interval_quantile(s, EBB_STUDY_ANY, EBB_STUDY_ANY, 0.21), 20);
    assert_int_equal(ebb_study_intervals_until(s, EBB_STUDY_ANY, EBB_STUDY_ANY, 39), 3);
    t = ebb_study_lifetimes(s);
    assert_true(t.count == 1 && t.p50_ns == 100);
    assert_int_equal(ebb_study_get_block(s, a).longest_idle_ns, 40);
    size_t n = 0;
    const ebb_study_cell *cells = ebb_study_density(s, &n);
    assert_int_equal(n, 5); /* 64 bytes: 24; 10 ns: floor(4 log2 10) = 13 */
    assert_true(cells[0].interval_log == 13 && cells[0].size_log == 24 && cells[0].count == 1);
    study_fixture_fini(&f);
}

/* Nothing is idle while it is copied; before and after it is. */
static void copies(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t a = study_alloc(&f, 64, EBB_ROLE_ACTIVATION, "a");
    at(&f, 10, EBB_TRACE_WRITE, a);
    f.now_ns = 15;
    study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_COPY_BEGIN, .block = a, .size_bytes = 64});
    at(&f, 55, EBB_TRACE_COPY_END, a);
    at(&f, 56, EBB_TRACE_FREE, a);
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_ANY, EBB_STUDY_ANY).count, 3);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_WRITE, EBB_STUDY_COPY).p50_ns, 5);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_COPY, EBB_STUDY_COPY).count, 0);
    assert_int_equal(ebb_study_intervals(s, EBB_STUDY_COPY, EBB_STUDY_FREE).p50_ns, 1);
    assert_int_equal(ebb_study_get_block(s, a).n_copies, 1);
    study_fixture_fini(&f);
}

/* The paper's: 25 us bring 79.37 KB at 6.4 GB/s out and 6.3 in; 0.8 s bring 2.54 GB. */
static void the_bound_of_a_swap(void **state) {
    (void)state;
    static const struct { uint64_t interval_ns, size_bytes; } cases[] = {{25000, 79370}, {800000000, 2539842519}};
    for (size_t i = 0; i < 2; i++) {
        for (unsigned more = 0; more < 2; more++) {
            study_fixture f;
            study_fixture_init(&f, STUDY_TELLS_ALL);
            const uint64_t a = study_alloc(&f, cases[i].size_bytes + more, EBB_ROLE_ACTIVATION, "a");
            study_do(&f, EBB_TRACE_WRITE, a);
            at(&f, cases[i].interval_ns, EBB_TRACE_READ, a);
            study_do(&f, EBB_TRACE_FREE, a);
            const ebb_study_swappable w = ebb_study_get_swappable(study_fixture_study(&f, NULL));
            assert_true(w.known && fabs(w.bytes_per_s - 3.17480315e9) < 10);
            assert_int_equal(w.n_intervals, 1 - more);
            assert_int_equal(w.bytes, more == 1 ? 0 : cases[i].size_bytes);
            study_fixture_fini(&f);
        }
    }
}

/* At a byte a ns each way and no latency: a, 100 bytes, is idle from 10 to 510, so absent from 110 to 410. b comes at
 * 200 with 50 bytes and goes at 300; c, 90 bytes, lives from 300 to 450, when a is back already. */
static void absent_at_the_peak(void **state) {
    (void)state;
    for (unsigned late = 0; late < 2; late++) {
        study_fixture f;
        ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
        options.out_bytes_per_s = options.in_bytes_per_s = 1e9;
        study_fixture_init(&f, STUDY_TELLS_ALL);
        const uint64_t a = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "a");
        at(&f, 10, EBB_TRACE_WRITE, a);
        f.now_ns = 200;
        const uint64_t b = study_alloc(&f, 50, EBB_ROLE_TEMP, "b");
        at(&f, 300, EBB_TRACE_FREE, b);
        const uint64_t c = study_alloc(&f, 90, EBB_ROLE_TEMP, "c");
        at(&f, late == 1 ? 450 : 400, EBB_TRACE_FREE, c);
        at(&f, 510, EBB_TRACE_READ, a);
        study_do(&f, EBB_TRACE_FREE, a);
        const ebb_study *s = study_fixture_study(&f, &options);
        const ebb_study_swappable w = ebb_study_get_swappable(s);
        assert_int_equal(ebb_study_get_summary(s).peak_bytes, 190);
        assert_true(w.bytes == 100 && w.n_blocks == 1 && w.n_intervals == 1);
        assert_true(w.bytes_at_peak == 100 && w.n_blocks_at_peak == 1);
        assert_int_equal(w.peak_bytes, late == 1 ? 190 : 100);
        assert_true(fabs(w.out_busy - 100.0 / 510) < 1e-12 && fabs(w.in_busy - 100.0 / 510) < 1e-12);
        assert_true(fabs(w.byte_seconds - 100 * 300e-9) < 1e-15);
        assert_true(fabs(w.byte_seconds_all - (510 * 100 + 100 * 50 + (late == 1 ? 150 : 100) * 90) * 1e-9) < 1e-15);
        size_t n = 0;
        const ebb_study_tip *tips = ebb_study_advice(s, &n);
        bool advised = false;
        for (size_t i = 0; i < n; i++) { advised = advised || strcmp(tips[i].key, "swap") == 0; }
        assert_true(advised == (late == 0));
        study_fixture_fini(&f);
    }
}

/* Weights that are there before and after, 100 bytes, are out until 400 and from 600 on; two that come meanwhile need
 * no more room than they. */
static void out_at_both_ends(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.out_bytes_per_s = options.in_bytes_per_s = 1e9;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t weights = study_alloc_before(&f, 100, EBB_ROLE_PARAMETER, "weights");
    f.now_ns = 10;
    const uint64_t early = study_alloc(&f, 70, EBB_ROLE_TEMP, "early");
    at(&f, 390, EBB_TRACE_FREE, early);
    at(&f, 500, EBB_TRACE_READ, weights);
    f.now_ns = 610;
    const uint64_t late = study_alloc(&f, 80, EBB_ROLE_TEMP, "late");
    at(&f, 1000, EBB_TRACE_FREE, late);
    const ebb_study *s = study_fixture_study(&f, &options);
    const ebb_study_swappable w = ebb_study_get_swappable(s);
    assert_int_equal(ebb_study_get_summary(s).peak_bytes, 180);
    assert_true(w.bytes == 100 && w.n_intervals == 2 && w.bytes_at_peak == 100);
    assert_int_equal(w.peak_bytes, 100);
    assert_true(fabs(w.out_busy - 0.1) < 1e-12 && fabs(w.in_busy - 0.1) < 1e-12);
    assert_true(fabs(w.byte_seconds - 100 * 800e-9) < 1e-15);
    study_fixture_fini(&f);
}

/* Each iteration keeps one block of 100 bytes idle for 500 ns, and a weight of 40 from its read on. However many
 * iterations were recorded, the totals are those of one. */
static void totals_are_of_one_iteration(void **state) {
    (void)state;
    for (unsigned n_iterations = 3; n_iterations <= 9; n_iterations += 3) {
        study_fixture f;
        ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
        options.out_bytes_per_s = options.in_bytes_per_s = 1e9;
        study_fixture_init(&f, STUDY_TELLS_ALL);
        const uint64_t weight = study_alloc_before(&f, 40, EBB_ROLE_PARAMETER, "weight");
        for (unsigned i = 0; i < n_iterations; i++) {
            f.now_ns = 1000 * (uint64_t)i;
            study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_BEGIN, .number = i});
            study_do(&f, EBB_TRACE_READ, weight);
            const uint64_t kept = study_alloc(&f, 100, EBB_ROLE_ACTIVATION, "kept");
            study_do(&f, EBB_TRACE_WRITE, kept);
            at(&f, 1000 * (uint64_t)i + 500, EBB_TRACE_READ, kept);
            study_do(&f, EBB_TRACE_FREE, kept);
            at(&f, 1000 * (uint64_t)i + 900, EBB_TRACE_WRITE, weight);
            study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_MARK, .mark = EBB_TRACE_ITERATION_END, .number = i});
        }
        const ebb_study_swappable w = ebb_study_get_swappable(study_fixture_study(&f, &options));
        assert_true(w.is_of_iteration);
        assert_true(w.bytes == 140 && w.n_blocks == 2);
        assert_int_equal(w.n_intervals, 3); /* the weight: from its read to its write, and on to the next read */
        assert_true(fabs(w.byte_seconds_all - (500 * 100 + 1000 * 40) * 1e-9) < 1e-15);
        study_fixture_fini(&f);
    }
}

/* Eight of 1 ns x 64 bytes, and one of 1000 ns: Q1 = Q3 = 64, so is the fence. */
static void an_outlier(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t a = study_alloc_before(&f, 64, EBB_ROLE_ACTIVATION, "a");
    for (unsigned i = 0; i < 9; i++) { at(&f, i, EBB_TRACE_READ, a); }
    at(&f, 1008, EBB_TRACE_READ, a);
    const ebb_study_outliers o = ebb_study_get_outliers(study_fixture_study(&f, NULL));
    assert_true(o.count == 1 && o.n_kept == 1 && fabs(o.fence_byte_s - 64e-9) < 1e-18);
    const ebb_study_interval *x = &o.intervals[0];
    assert_true(x->block == a && x->begin_ns == 8 && x->end_ns == 1008 && x->size_bytes == 64 && x->is_free);
    assert_true(x->from == EBB_STUDY_READ && x->to == EBB_STUDY_READ);
    study_fixture_fini(&f);
}

static void churn(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, STUDY_TELLS_ALL);
    const uint64_t w = study_alloc_before(&f, 100, EBB_ROLE_PARAMETER, "w");
    uint64_t a = study_alloc(&f, 100, EBB_ROLE_TEMP, "a");
    for (unsigned i = 0; i < 4; i++) {
        f.now_ns += 250000000;
        study_do(&f, EBB_TRACE_FREE, a);
        if (i % 2 == 1) { at(&f, f.now_ns, EBB_TRACE_READ, w); } /* does not come between */
        a = study_alloc(&f, i == 3 ? 99 : 100, EBB_ROLE_TEMP, "a");
    }
    const ebb_study_churn c = ebb_study_get_churn(study_fixture_study(&f, NULL));
    assert_true(c.n_allocs == 5 && c.n_frees == 4 && c.alloc_bytes == 499);
    assert_true(c.n_at_once == 3 && c.at_once_bytes == 300);
    assert_true(c.allocs_per_s == 5.0 && c.bytes_per_s == 499.0);
    assert_true(fabs(c.turnover - 499.0 / 200.0) < 1e-9);
    study_fixture_fini(&f);
}

/* What a source does not tell. */
static void unknown(void **state) {
    (void)state;
    static const uint32_t tells[] = {0, EBB_TRACE_TELLS_TIMES, EBB_TRACE_TELLS_ACCESSES};
    for (size_t i = 0; i < 3; i++) {
        study_fixture f;
        study_fixture_init(&f, tells[i]);
        const uint64_t a = study_alloc(&f, 64, EBB_ROLE_ACTIVATION, "a");
        at(&f, 7, EBB_TRACE_WRITE, a);
        at(&f, 9, EBB_TRACE_FREE, a);
        const ebb_study *s = study_fixture_study(&f, NULL);
        const ebb_study_times t = ebb_study_intervals(s, EBB_STUDY_ANY, EBB_STUDY_ANY);
        assert_true(t.count == 0 && t.p50_ns == EBB_STUDY_UNKNOWN && isnan(t.mean_ns));
        assert_int_equal(ebb_study_lifetimes(s).count, i == 1 ? 1 : 0);
        assert_false(ebb_study_get_swappable(s).known);
        assert_true(isnan(ebb_study_get_churn(s).allocs_per_s) == (i != 1));
        assert_true(ebb_study_get_block(s, a).longest_idle_ns == EBB_STUDY_UNKNOWN);
        assert_int_equal(ebb_study_get_outliers(s).count, 0);
        study_fixture_fini(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_and_quantiles),
        cmocka_unit_test(copies),
        cmocka_unit_test(the_bound_of_a_swap),
        cmocka_unit_test(absent_at_the_peak),
        cmocka_unit_test(out_at_both_ends),
        cmocka_unit_test(totals_are_of_one_iteration),
        cmocka_unit_test(an_outlier),
        cmocka_unit_test(churn),
        cmocka_unit_test(unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
