/* SPDX-License-Identifier: Apache-2.0
 *
 * What became of a peak: blocks matched by stack, name, size and order, and sums that agree with the peaks.
 */
#include "ebb/diff.h"
#include "support.h"

typedef struct planned {
    uint64_t size_bytes;
    const char *name;
    uint32_t line; /* of its innermost frame; 0: no stack */
    ebb_role role;
} planned;

typedef struct studied {
    ebb_trace_reader *reader;
    ebb_study *study;
} studied;

static void write_trace(const char *path, const planned *blocks, size_t n) {
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    ebb_trace_writer *w = NULL;
    uint32_t function = 0, file = 0;
    options.tells = EBB_TRACE_TELLS_ROLES | EBB_TRACE_TELLS_STACKS;
    assert_int_equal(ebb_trace_writer_open(path, &options, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "forward", &function), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "model.py", &file), EBB_OK);
    for (size_t b = 0; b < n; b++) {
        ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .block = b, .time_ns = b};
        event.size_bytes = blocks[b].size_bytes;
        event.role = blocks[b].role;
        event.address = EBB_TRACE_NONE;
        assert_int_equal(ebb_trace_writer_string(w, blocks[b].name, &event.name), EBB_OK);
        if (blocks[b].line > 0) {
            assert_int_equal(ebb_trace_writer_frame(w, 0, function, file, blocks[b].line, &event.stack), EBB_OK);
        }
        assert_int_equal(ebb_trace_writer_add(w, &event), EBB_OK);
    }
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
}

static studied study(const char *name, const planned *blocks, size_t n) {
    studied s = {.study = NULL};
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.wants = 0;
    const char *path = data_path(&test_dir, name);
    write_trace(path, blocks, n);
    assert_int_equal(ebb_trace_reader_open(NULL, path, &s.reader), EBB_OK);
    assert_int_equal(ebb_study_create(s.reader, &options, &s.study), EBB_OK);
    return s;
}

static void studied_fini(studied *s) {
    ebb_study_destroy(s->study);
    ebb_trace_reader_close(s->reader);
}

/* The changes of all tables add up to that of the peak. */
static void check_sums(const ebb_diff *diff, const studied *a, const studied *b) {
    const uint64_t a_peak = ebb_study_get_summary(a->study).peak_bytes;
    const uint64_t b_peak = ebb_study_get_summary(b->study).peak_bytes;
    size_t n = 0;
    const ebb_diff_row *rows = ebb_diff_roles(diff, &n);
    uint64_t in_a = 0, in_b = 0;
    for (size_t i = 0; i < n; i++) {
        in_a += rows[i].a_bytes;
        in_b += rows[i].b_bytes;
    }
    assert_int_equal(in_a, a_peak);
    assert_int_equal(in_b, b_peak);
    const ebb_diff_blocks *changes = ebb_diff_changes(diff, &n);
    uint64_t more = 0;
    for (size_t i = 0; i < n; i++) { more += (changes[i].b_bytes - changes[i].a_bytes) * changes[i].n_blocks; }
    assert_true(more == b_peak - a_peak); /* modulo 2^64 */
}

static ebb_diff *compare(const studied *a, const studied *b) {
    ebb_diff *diff = NULL;
    assert_int_equal(ebb_diff_create(NULL, a->study, b->study, &diff), EBB_OK);
    check_sums(diff, a, b);
    return diff;
}

static void check_change(const ebb_diff *diff, size_t i, ebb_diff_change change, const char *name, uint64_t n_blocks,
                         uint64_t a_bytes, uint64_t b_bytes) {
    size_t n = 0;
    const ebb_diff_blocks *changes = ebb_diff_changes(diff, &n);
    assert_true(i < n);
    assert_string_equal(ebb_diff_change_name(changes[i].change), ebb_diff_change_name(change));
    assert_string_equal(changes[i].name, name);
    assert_int_equal(changes[i].n_blocks, n_blocks);
    assert_int_equal(changes[i].a_bytes, a_bytes);
    assert_int_equal(changes[i].b_bytes, b_bytes);
}

static size_t n_changes(const ebb_diff *diff) {
    size_t n = 0;
    (void)ebb_diff_changes(diff, &n);
    return n;
}

static const planned before[] = {
    {100, "w", 10, EBB_ROLE_PARAMETER}, {40, "x", 20, EBB_ROLE_ACTIVATION}, {40, "x", 20, EBB_ROLE_ACTIVATION},
    {40, "x", 20, EBB_ROLE_ACTIVATION}, {7, "old", 30, EBB_ROLE_TEMP},      {64, "", 50, EBB_ROLE_TEMP},
};
#define N_BEFORE (sizeof before / sizeof *before)

static void the_same_has_not_changed(void **state) {
    (void)state;
    studied a = study("a", before, N_BEFORE), b = study("b", before, N_BEFORE);
    ebb_diff *diff = compare(&a, &b);
    assert_int_equal(n_changes(diff), 0);
    ebb_diff_destroy(diff);
    studied_fini(&a);
    studied_fini(&b);
}

static void lines_that_moved_change_nothing(void **state) {
    (void)state;
    planned moved[N_BEFORE];
    memcpy(moved, before, sizeof moved);
    for (size_t i = 0; i < N_BEFORE; i++) { moved[i].line += 3; }
    studied a = study("a", before, N_BEFORE), b = study("b", moved, N_BEFORE);
    ebb_diff *diff = compare(&a, &b);
    assert_int_equal(n_changes(diff), 0);
    ebb_diff_destroy(diff);
    studied_fini(&a);
    studied_fini(&b);
}

static void blocks_grow_shrink_come_and_go(void **state) {
    (void)state;
    static const planned after[] = {
        {100, "w", 10, EBB_ROLE_PARAMETER},  {40, "x", 20, EBB_ROLE_ACTIVATION}, {90, "x", 20, EBB_ROLE_ACTIVATION},
        {90, "x", 20, EBB_ROLE_ACTIVATION},  {60, "", 50, EBB_ROLE_TEMP},        {500, "new", 60, EBB_ROLE_GRADIENT},
        {500, "new", 60, EBB_ROLE_GRADIENT},
    };
    studied a = study("a", before, N_BEFORE), b = study("b", after, sizeof after / sizeof *after);
    ebb_diff *diff = compare(&a, &b);
    size_t n = 0;
    assert_int_equal(n_changes(diff), 4);
    check_change(diff, 0, EBB_DIFF_CAME, "new", 2, 0, 500);
    check_change(diff, 1, EBB_DIFF_GREW, "x", 2, 40, 90);
    check_change(diff, 2, EBB_DIFF_WENT, "old", 1, 7, 0);
    check_change(diff, 3, EBB_DIFF_SHRANK, "", 1, 64, 60);
    assert_string_equal(ebb_diff_changes(diff, &n)[1].site, "forward (model.py:20)");
    const ebb_diff_row *rows = ebb_diff_roles(diff, &n);
    assert_string_equal(rows[0].label, "gradient");
    assert_int_equal(rows[0].b_bytes, 1000);
    rows = ebb_diff_holders(diff, EBB_STUDY_BY_NAME, &n);
    assert_int_equal(n, 5);
    assert_string_equal(rows[1].label, "x");
    assert_int_equal(rows[1].b_bytes - rows[1].a_bytes, 100);
    ebb_diff_destroy(diff);
    studied_fini(&a);
    studied_fini(&b);
}

static void names_match_where_stacks_do_not(void **state) {
    (void)state;
    static const planned one[] = {{100, "w", 0, EBB_ROLE_PARAMETER}, {8, "", 0, EBB_ROLE_TEMP}};
    static const planned two[] = {{130, "w", 77, EBB_ROLE_PARAMETER}, {9, "", 78, EBB_ROLE_TEMP}};
    studied a = study("a", one, 2), b = study("b", two, 2);
    ebb_diff *diff = compare(&a, &b);
    assert_int_equal(n_changes(diff), 3);
    check_change(diff, 0, EBB_DIFF_GREW, "w", 1, 100, 130);
    ebb_diff_destroy(diff);
    studied_fini(&a);
    studied_fini(&b);
}

static void nothing_may_be_compared(void **state) {
    (void)state;
    studied a = study("a", NULL, 0), b = study("b", before, N_BEFORE);
    ebb_diff *diff = compare(&a, &b);
    assert_int_equal(n_changes(diff), 4); /* three x are one */
    ebb_diff_destroy(diff);
    diff = compare(&a, &a);
    assert_int_equal(n_changes(diff), 0);
    ebb_diff_destroy(diff);
    studied_fini(&a);
    studied_fini(&b);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    studied a = study("a", before, N_BEFORE), b = study("b", before, N_BEFORE - 2);
    OOM_LOOP(mem, st, {
        ebb_diff *diff = NULL;
        st = ebb_diff_create(mem, a.study, b.study, &diff);
        ebb_diff_destroy(diff);
    });
    studied_fini(&a);
    studied_fini(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(the_same_has_not_changed),       IN_DIR(lines_that_moved_change_nothing),
        IN_DIR(blocks_grow_shrink_come_and_go), IN_DIR(names_match_where_stacks_do_not),
        IN_DIR(nothing_may_be_compared),        IN_DIR(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
