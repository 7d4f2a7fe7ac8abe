/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocation that was not to be had comes first in text and page, and stands in the JSON: what was asked for, when,
 * by whom, and what was live then.
 */
#include "ebb/report.h"
#include "report_support.h"
#include "study_fixture.h"

static void expect_part(const char *path, const char *format, const char *part, const char *before) {
    written w = {.text = NULL};
    ebb_report *report = NULL;
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    options.n_columns = 1000; /* sentences in one line */
    assert_int_equal(ebb_report_create(path, &options, &report), EBB_OK);
    const ebb_status status = ebb_report_write(report, format, keep_written, &w);
    ebb_report_destroy(report);
    if (status == EBB_E_UNSUPPORTED) { return; } /* a page, without Chart.js */
    assert_int_equal(status, EBB_OK);
    const char *found = strstr(w.text, part);
    if (found == NULL) { fail_msg("%s has no '%s'", format, part); }
    if (before != NULL) { assert_true(found < strstr(w.text, before)); }
    free(w.text);
}

static void refuse(study_fixture *f, const char *name, uint64_t number, uint32_t kind) {
    f->now_ns += 1000000;
    study_add(
        f,
        (ebb_trace_event){
            .kind = EBB_TRACE_MARK, .mark = kind, .number = number, .name = study_string(f, name), .stack = f->stack});
}

static void what_was_asked_for(void **state) {
    (void)state;
    static const char *const names[] = {"refused", "out of memory: 4096 bytes asked for, 3 left on the device"};
    for (size_t i = 0; i < 2; i++) {
        study_fixture f;
        study_fixture_init(&f, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_STACKS);
        const uint64_t a = study_alloc(&f, 2048, EBB_ROLE_UNKNOWN, "");
        refuse(&f, "refused", 0, EBB_TRACE_ANNOTATION);    /* someone's range of this name */
        refuse(&f, "refused", 7, EBB_TRACE_ITERATION_END); /* and iteration */
        const uint32_t main_stack = study_frame(&f, 0, "main", "/me/oom.py", 9);
        f.stack = study_frame(&f, main_stack, "grow", "/me/oom.py", 4);
        refuse(&f, names[i], 1024, EBB_TRACE_ANNOTATION);
        refuse(&f, names[i], 4096, EBB_TRACE_ANNOTATION);
        study_do(&f, EBB_TRACE_FREE, a);
        const ebb_study *s = study_fixture_study(&f, NULL);
        size_t n = 0;
        const ebb_study_refusal *all = ebb_study_refusals(s, &n);
        assert_int_equal(n, 2);
        assert_true(all[1].size_bytes == 4096 && all[1].live_bytes == 2048 && all[1].time_ns == 4000000);
        assert_string_equal(all[1].site, "grow (me/oom.py:4)");
        expect_part(
            f.path, "text",
            "Out of memory: 2 allocations were refused. The last: 4.00 KiB (4096 bytes) were asked for, 4.00 ms "
            "after the beginning, by grow (me/oom.py:4), when 2.00 KiB (2048 bytes) were live.",
            "At most");
        expect_part(f.path, "text", "    main (/me/oom.py:9)\n", "At most");
        expect_part(f.path, "html", "4.00 KiB (4096 bytes) were asked for", "At most");
        expect_part(f.path, "json", "{\"bytes\": 4096, \"live_bytes\": 2048, \"time_s\": 0.004", NULL);
        expect_part(f.path, "json", "\"stack\": [\"grow (/me/oom.py:4)\"", NULL);
        study_fixture_fini(&f);
    }
}

/* The missing bytes and the capacity: PyTorch's snapshots tell what the device had left, its errors the capacity too,
 * and ebb record knows its limit. The program's own frame comes first, a frame a line. */
static void what_was_missing(void **state) {
    (void)state;
    static const struct {
        const char *name, *limit, *part;
    } cases[] = {
        {"out of memory: 4096 bytes asked for, 1024 left on the device", NULL,
         "were live. 3.00 KiB were missing: 1.00 KiB were left on the device, and the allocator held 8.00 KiB."},
        {"out of memory: aten.add asked for 4096 bytes of cuda:0, 2048 left of 65536", NULL,
         "were live. 2.00 KiB were missing: 2.00 KiB of 64.00 KiB were left, and the allocator held 8.00 KiB."},
        {"out of memory: aten.add asked for 4096 bytes of cuda:0", NULL, "were live.\n"},
        {"refused", "5120", "were live. 1.00 KiB were missing: 3.00 KiB of 5.00 KiB were left, and"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        study_fixture f;
        study_fixture_init(&f, EBB_TRACE_TELLS_STACKS | EBB_TRACE_TELLS_SEGMENTS);
        if (cases[i].limit != NULL) {
            assert_int_equal(ebb_trace_writer_note(f.writer, "limit_bytes", cases[i].limit), EBB_OK);
        }
        study_add(&f, (ebb_trace_event){.kind = EBB_TRACE_SEGMENT_ALLOC, .address = 4096, .size_bytes = 8192});
        (void)study_alloc(&f, 2048, EBB_ROLE_UNKNOWN, "");
        const uint32_t mine = study_frame(&f, study_frame(&f, 0, "main", "/me/oom.py", 9), "grow", "/me/oom.py", 4);
        const uint32_t forward = study_frame(&f, mine, "forward", "/lib/site-packages/torch/nn/linear.py", 7);
        f.stack = study_frame(&f, forward, "at::_ops::addmm::call", "??", 0);
        refuse(&f, cases[i].name, 4096, EBB_TRACE_ANNOTATION);
        (void)study_fixture_study(&f, NULL);
        expect_part(f.path, "text", cases[i].part, "At most");
        expect_part(f.path, "text", "    grow (/me/oom.py:4)\n    main (/me/oom.py:9)\n    which called", "At most");
        expect_part(f.path, "html",
                    "<li>grow (/me/oom.py:4)</li>\n<li>main (/me/oom.py:9)</li>\n</ol>\n<p>which called, the innermost "
                    "first:</p>\n<ol",
                    "At most");
        expect_part(f.path, "json", "\"site\": \"grow (me/oom.py:4)\"", NULL);
        study_fixture_fini(&f);
    }
}

static void nothing_refused(void **state) {
    (void)state;
    study_fixture f;
    study_fixture_init(&f, 0);
    (void)study_alloc(&f, 2048, EBB_ROLE_UNKNOWN, "");
    size_t n = 1;
    (void)ebb_study_refusals(study_fixture_study(&f, NULL), &n);
    assert_int_equal(n, 0);
    expect_part(f.path, "json", "\"refused\": []", NULL);
    study_fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_asked_for), cmocka_unit_test(what_was_missing),
                                       cmocka_unit_test(nothing_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
