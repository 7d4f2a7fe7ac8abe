/* SPDX-License-Identifier: Apache-2.0
 *
 * Fragmentation, what-ifs and advice, worked out by hand.
 */
#include "study_fixture.h"

#define MIB ((uint64_t)1024 * 1024)
#define TELLS (EBB_TRACE_TELLS_SEGMENTS | EBB_TRACE_TELLS_ADDRESSES | EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_STACKS)

/* Segments at 0 (4096 bytes) and 8192 (2048), the second one empty by then; in the first lie 100 bytes at 512 and 1000
 * at 2048:      | 512 free | 100 live, 412 rounding | 1024 free | 1000 live, 24 rounding | 1024 free |          */
static void parts_of_what_is_lost(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, TELLS);
    assert_int_equal(ebb_trace_writer_note(f.writer, "source", "pytorch snapshot"), EBB_OK);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 0, 4096);
    f.stack = study_frame(&f, 0, "one", "/home/me/a.py", 1);
    const uint64_t a = study_alloc_at(&f, 100, 512, EBB_ROLE_OTHER, "");
    f.stack = study_frame(&f, 0, "two", "/home/me/a.py", 2);
    const uint64_t b = study_alloc_at(&f, 1000, 2048, EBB_ROLE_OTHER, "");
    f.now_ns = 10;
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 8192, 2048);
    f.now_ns = 20;
    const uint64_t c = study_alloc_at(&f, 7, 8192, EBB_ROLE_OTHER, "");
    f.now_ns = 40;
    study_do(&f, EBB_TRACE_FREE, c);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 16384, 512);
    const ebb_study *s = study_fixture_study(&f, NULL);
    const ebb_study_fragmentation p = ebb_study_get_fragmentation(s);
    assert_true(p.known && p.reserved_peak_bytes == 6656 && p.moment_ns == 40);
    assert_true(p.live_bytes == 1100 && p.lost_bytes == 5556);
    assert_true(p.rounding_bytes == 412 + 24 && p.pinned_bytes == 512 + 1024 + 1024 && p.empty_bytes == 2560);
    assert_int_equal(p.rounding_bytes + p.pinned_bytes + p.empty_bytes, p.lost_bytes);
    assert_true(p.n_segments == 3 && p.n_empty == 2);
    /* 2996 for 10 ns, 5044 for 10, 5037 for 20 */
    assert_int_equal(p.mean_lost_bytes, (2996 * 10 + 5044 * 10 + 5037 * 20 + 20) / 40);
    size_t n = 0;
    const ebb_study_segment *g = ebb_study_segments(s, &n);
    assert_int_equal(n, 3);
    assert_true(g[0].address == 0 && g[0].free_bytes == 2996 && g[0].live_bytes == 1100 && g[0].n_pins == 2);
    assert_int_equal(g[0].largest_free_bytes, 1024);
    assert_true(g[1].address == 8192 && g[1].n_pins == 0 && g[1].largest_free_bytes == 2048);
    uint64_t pins[4];
    assert_int_equal(ebb_study_segment_pins(s, 0, 0, 4, pins), 2);
    assert_true(pins[0] == a && pins[1] == b);
    assert_int_equal(ebb_study_segment_pins(s, 0, 1, 4, pins), 1);
    assert_int_equal(ebb_study_segment_pins(s, 1, 0, 4, pins), 0);
    const ebb_study_holder *h = ebb_study_pinners(s, &n);
    assert_int_equal(n, 2);
    assert_true(h[0].bytes == 1498 && h[1].bytes == 1498);
    assert_string_equal(h[0].label, "one (me/a.py:1)");
    study_fixture_fini(&f);
}

/* Within the time in which this much is reserved, the moment with the most live bytes counts; and a block may lie in
 * two pieces of an expandable segment. */
static void the_moment_and_a_block_across(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, TELLS);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 4096, 1000);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 5096, 1000);
    f.now_ns = 3;
    (void)study_alloc_at(&f, 1500, 4196, EBB_ROLE_OTHER, "");
    f.now_ns = 4;
    const uint64_t b = study_alloc_at(&f, 10, 6000, EBB_ROLE_OTHER, "");
    study_do(&f, EBB_TRACE_FREE, b);
    const ebb_study *s = study_fixture_study(&f, NULL);
    const ebb_study_fragmentation p = ebb_study_get_fragmentation(s);
    assert_true(p.reserved_peak_bytes == 2000 && p.moment_ns == 4 && p.live_bytes == 1510);
    assert_true(p.lost_bytes == 490 && p.rounding_bytes == 0 && p.pinned_bytes == 490 && p.n_empty == 0);
    size_t n = 0;
    const ebb_study_segment *g = ebb_study_segments(s, &n);
    assert_int_equal(n, 2);
    assert_true(g[0].address == 5096 && g[0].free_bytes == 390 && g[0].n_pins == 2);
    assert_true(g[1].address == 4096 && g[1].free_bytes == 100 && g[1].n_pins == 1);
    study_fixture_fini(&f);
}

static void without_segments_or_addresses(void **state) {
    (void)state;
    for (unsigned k = 0; k < 2; k++) {
        study_fixture f;
        study_fixture_init(&f, k == 0 ? EBB_TRACE_TELLS_ADDRESSES : EBB_TRACE_TELLS_SEGMENTS);
        study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 0, 4096);
        (void)study_alloc(&f, 96, EBB_ROLE_OTHER, "");
        const ebb_study *s = study_fixture_study(&f, NULL);
        const ebb_study_fragmentation p = ebb_study_get_fragmentation(s);
        size_t n = 0;
        assert_true(p.known == (k == 1));
        assert_int_equal(p.lost_bytes, k == 1 ? 4000 : 0);
        assert_true(k == 0 || (p.rounding_bytes == EBB_STUDY_UNKNOWN && p.pinned_bytes == EBB_STUDY_UNKNOWN));
        (void)ebb_study_segments(s, &n);
        assert_int_equal(n, 0);
        study_fixture_fini(&f);
    }
}

/* Segments that the recording has not seen: fewer bytes than are live. Then all of it is unknown. */
static void segments_are_missing(void **state) {
    (void)state;
    study_fixture f;
    size_t n = 1;
    study_fixture_init(&f, TELLS);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 0, 4096);
    (void)study_alloc_at(&f, 100, 0, EBB_ROLE_OTHER, "");
    (void)study_alloc_at(&f, 5000, 1 << 20, EBB_ROLE_OTHER, "");
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_false(ebb_study_get_fragmentation(s).known);
    (void)ebb_study_segments(s, &n);
    assert_int_equal(n, 0);
    (void)ebb_study_pinners(s, &n);
    assert_int_equal(n, 0);
    study_fixture_fini(&f);
}

/* Much is reserved at the beginning and little live; 0.5 % of it goes, and then it is full. */
static void the_moment_is_near_the_most(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, TELLS);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 0, 9950);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 1 << 20, 50);
    (void)study_alloc_at(&f, 100, 0, EBB_ROLE_OTHER, "");
    f.now_ns = 5;
    study_segment_do(&f, EBB_TRACE_SEGMENT_FREE, 1 << 20, 0);
    (void)study_alloc_at(&f, 9000, 200, EBB_ROLE_OTHER, "");
    const ebb_study_fragmentation p = ebb_study_get_fragmentation(study_fixture_study(&f, NULL));
    assert_true(p.known && p.reserved_peak_bytes == 10000 && p.reserved_bytes == 9950 && p.live_bytes == 9100);
    assert_true(p.lost_bytes == 850 && p.moment_ns == 5 && p.moment_event == 4);
    study_fixture_fini(&f);
}

/* ---- what if ---------------------------------------------------------------------------------- */

static uint64_t what_if(const ebb_study *s, const char *key) {
    size_t n = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(s, &n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].key, key) == 0) { return rows[i].bytes; }
    }
    fail_msg("no row %s", key);
    return 0;
}

static const char *advice(const ebb_study *s, const char *key) {
    size_t n = 0;
    const ebb_study_tip *tips = ebb_study_advice(s, &n);
    for (size_t i = 1; i < n; i++) { assert_true(tips[i - 1].won_bytes >= tips[i].won_bytes); }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(tips[i].key, key) == 0) { return tips[i].sentence; }
    }
    return NULL;
}

/* 30 MiB goes, 40 MiB comes, which an allocator of fixed segments cannot put there; a placement can, and segments that
 * grow too: 60 MiB of pages of 20. */
static void tell_growth(study_fixture *f, const char *conf) {
    assert_int_equal(ebb_trace_writer_note(f->writer, "source", "pytorch snapshot"), EBB_OK);
    if (conf != NULL) {
        assert_int_equal(ebb_trace_writer_note(f->writer, "allocator.PYTORCH_CUDA_ALLOC_CONF", conf), EBB_OK);
    }
    study_segment_do(f, EBB_TRACE_SEGMENT_ALLOC, 0, 30 * MIB);
    const uint64_t a = study_alloc_at(f, 30 * MIB, 0, EBB_ROLE_OTHER, "");
    study_do(f, EBB_TRACE_FREE, a);
    study_segment_do(f, EBB_TRACE_SEGMENT_ALLOC, 64 * MIB, 40 * MIB);
    (void)study_alloc_at(f, 40 * MIB, 64 * MIB, EBB_ROLE_OTHER, "");
}

static void rows_and_advice(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, TELLS);
    tell_growth(&f, NULL);
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(what_if(s, "live"), 40 * MIB);
    assert_int_equal(what_if(s, "placement"), 40 * MIB);
    assert_int_equal(what_if(s, "cnmem"), 70 * MIB);
    assert_int_equal(what_if(s, "pytorch"), 70 * MIB);
    assert_int_equal(what_if(s, "pytorch:expandable_segments"), 40 * MIB);
    assert_int_equal(what_if(s, "pytorch:max_split_size_mb:64"), 70 * MIB);
    assert_int_equal(what_if(s, "pytorch:roundup_power2_divisions:4"), 72 * MIB); /* 30 MiB are 32 */
    assert_true(what_if(s, "nothing-idle") == EBB_STUDY_UNKNOWN);
    assert_string_equal(advice(s, "allocator_setting"),
                        "setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True would bring what is reserved from "
                        "70.00 MiB to 40.00 MiB");
    assert_string_equal(advice(s, "placement"),
                        "with offsets planned ahead these blocks fit into 40.00 MiB, where 70.00 MiB is reserved");
    assert_non_null(advice(s, "empty_segments"));
    assert_null(advice(s, "swap"));
    study_fixture_fini(&f);
}

/* A capacity of 60 MiB: the segment of 30 is given back before that of 40 is taken, in the replay; that is not what was
 * recorded, so nothing is said of settings. */
static void a_replay_that_disagrees_says_nothing(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.capacity_bytes = 60 * MIB;
    study_fixture_init(&f, TELLS);
    tell_growth(&f, NULL);
    const ebb_study *s = study_fixture_study(&f, &options);
    assert_int_equal(what_if(s, "pytorch"), 40 * MIB);
    assert_int_equal(what_if(s, "pytorch:garbage_collection_threshold:0.8"), 40 * MIB);
    assert_null(advice(s, "allocator_setting"));
    study_fixture_fini(&f);
}

static void recorded_settings(void **state) {
    (void)state;
    static const struct {
        const char *conf;
        uint64_t bytes;
    } cases[] = {{"expandable_segments:True", 40 * MIB},
                 {"max_split_size_mb:35,expandable_segments:False", 70 * MIB},
                 {"roundup_power2_divisions:2", 80 * MIB}, /* 30 MiB are 32, 40 are 48 */
                 {"roundup_power2_divisions:[16:4,32:2,>:1]", 80 * MIB},
                 {"roundup_power2_divisions:[16:1,>:2]", 78 * MIB},
                 {"backend:native", 70 * MIB}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        study_fixture_init(&f, TELLS);
        tell_growth(&f, cases[i].conf);
        assert_int_equal(what_if(study_fixture_study(&f, NULL), "pytorch-recorded"), cases[i].bytes);
        study_fixture_fini(&f);
    }
}

/* Where the recorded allocator gave a segment back, the replay empties its cache. */
static void segments_that_went(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, TELLS);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 0, 30 * MIB);
    const uint64_t a = study_alloc_at(&f, 30 * MIB, 0, EBB_ROLE_OTHER, "");
    study_do(&f, EBB_TRACE_FREE, a);
    study_segment_do(&f, EBB_TRACE_SEGMENT_FREE, 0, 0);
    study_segment_do(&f, EBB_TRACE_SEGMENT_ALLOC, 64 * MIB, 40 * MIB);
    (void)study_alloc_at(&f, 40 * MIB, 64 * MIB, EBB_ROLE_OTHER, "");
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(what_if(s, "pytorch"), 40 * MIB);
    assert_int_equal(what_if(s, "cnmem"), 70 * MIB); /* it has no such call */
    study_fixture_fini(&f);
}

/* a is used by the first step alone, b allocated early for the last: from first to last use they never meet. */
static void nothing_idle(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_STEPS);
    const uint64_t w = study_alloc_before(&f, 5, EBB_ROLE_PARAMETER, "w");
    const uint64_t a = study_alloc(&f, 100, EBB_ROLE_OTHER, "a");
    const uint64_t x = study_alloc(&f, 1, EBB_ROLE_OTHER, "x");
    const uint64_t b = study_alloc(&f, 80, EBB_ROLE_OTHER, "b");
    const uint64_t never = study_alloc(&f, 1000, EBB_ROLE_OTHER, "never");
    study_begin_step(&f, "one"); /* reads x, writes a: both at once */
    study_do(&f, EBB_TRACE_READ, x);
    study_do(&f, EBB_TRACE_WRITE, a);
    study_do(&f, EBB_TRACE_STEP_END, 0);
    study_begin_step(&f, "two");
    study_do(&f, EBB_TRACE_READ, w);
    study_do(&f, EBB_TRACE_WRITE, b);
    study_do(&f, EBB_TRACE_STEP_END, 0);
    const uint64_t all[] = {a, x, b, never};
    for (size_t i = 0; i < 4; i++) { study_do(&f, EBB_TRACE_FREE, all[i]); }
    const ebb_study *s = study_fixture_study(&f, NULL);
    assert_int_equal(what_if(s, "live"), 1186);
    assert_int_equal(what_if(s, "nothing-idle"), 106);
    assert_non_null(advice(s, "lifetimes"));
    study_fixture_fini(&f);
}

static void nothing_asked_for(void **state) {
    (void)state;
    study_fixture f;
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    size_t n = 1;
    options.wants = 0;
    study_fixture_init(&f, TELLS);
    tell_growth(&f, NULL);
    const ebb_study *s = study_fixture_study(&f, &options);
    (void)ebb_study_what_ifs(s, &n);
    assert_int_equal(n, 0);
    (void)ebb_study_advice(s, &n);
    assert_int_equal(n, 0);
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_what_is_lost),
        cmocka_unit_test(the_moment_and_a_block_across),
        cmocka_unit_test(without_segments_or_addresses),
        cmocka_unit_test(segments_are_missing),
        cmocka_unit_test(the_moment_is_near_the_most),
        cmocka_unit_test(rows_and_advice),
        cmocka_unit_test(a_replay_that_disagrees_says_nothing),
        cmocka_unit_test(recorded_settings),
        cmocka_unit_test(segments_that_went),
        cmocka_unit_test(nothing_idle),
        cmocka_unit_test(nothing_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
