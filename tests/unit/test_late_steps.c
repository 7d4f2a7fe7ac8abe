/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps put into a trace: between its events by time, each on a row of its own where they overlap; an invalid file
 * leaves the trace as it is, and so does each allocation that fails in turn.
 */
#include "support.h"

#include "ebb/trace.h"

#include <unistd.h>

static char trace[64], steps[64];

static void write_text(const char *text) {
    FILE *file = fopen(steps, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* A block of 8 bytes from time 10 to time 20, made by a stack. */
static void write_trace(void) {
    ebb_trace_writer *w = NULL;
    uint32_t text = 0, stack = 0;
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    options.tells = EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_STACKS;
    assert_int_equal(ebb_trace_writer_open(trace, &options, &w), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(w, "source", "test"), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, "caller", &text), EBB_OK);
    assert_int_equal(ebb_trace_writer_frame(w, 0, text, 0, 7, &stack), EBB_OK);
    ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .time_ns = 10, .size_bytes = 8, .stack = stack};
    assert_int_equal(ebb_trace_writer_add(w, &event), EBB_OK);
    event = (ebb_trace_event){.kind = EBB_TRACE_FREE, .time_ns = 20};
    assert_int_equal(ebb_trace_writer_add(w, &event), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
}

/* Its events as 'kind time row name', whether it is whole, and its note. */
static void tell(char *text, size_t n_bytes) {
    static const char *const kinds[EBB_TRACE_N_KINDS] = {"alloc", "free", "", "", "", "begin", "end"};
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    size_t n = 0;
    assert_int_equal(ebb_trace_reader_open(NULL, trace, &r), EBB_OK);
    for (bool done = false; !done;) {
        assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
        if (done) { break; }
        const char *name = event.kind == EBB_TRACE_ALLOC
                               ? ebb_trace_reader_string(r, ebb_trace_reader_frame(r, event.stack).function)
                               : ebb_trace_reader_string(r, event.name);
        n += (size_t)snprintf(text + n, n_bytes - n, "%s %d %u %s\n", kinds[event.kind], (int)event.time_ns, event.row,
                              name);
    }
    (void)snprintf(text + n, n_bytes - n, "%s %s", ebb_trace_reader_info(r).complete ? "whole" : "cut",
                   ebb_trace_reader_note(r, "source"));
    ebb_trace_reader_close(r);
}

#define SAMPLE                                                                                                         \
    "ebb-late-steps 1 1000\n"                                                                                          \
    "n kernel b\nn copy a, 4 bytes\n"                                                                                  \
    "e 0 1015 1030 0 7\ne 1 1005 1015 0 7\nd 2\ne 0 1012 1018 0 7\ne 1 900 950 1 7\ne 0 10"
#define MERGED                                                                                                         \
    "begin 0 3 a, 4 bytes\nend 1 3 \nbegin 5 4 a, 4 bytes\nalloc 10 0 caller\nbegin 12 5 b\nend 15 4 \nbegin 15 4 b\n" \
    "end 18 5 \nfree 20 0 \nend 30 4 \n"
#define PLAIN "alloc 10 0 caller\nfree 20 0 \nwhole test"

static void steps_stand_by_their_times(void **state) {
    (void)state;
    char text[1024];
    uint64_t n_steps = 0, n_lost = 0;
    write_trace();
    write_text(SAMPLE);
    assert_int_equal(ebb_trace_add_late_steps(NULL, trace, steps, &n_steps, &n_lost), EBB_OK);
    assert_int_equal(n_steps, 4);
    assert_int_equal(n_lost, 2);
    tell(text, sizeof text);
    assert_string_equal(text, MERGED "whole test");
}

static void a_cut_trace_stays_cut(void **state) {
    (void)state;
    char text[1024];
    write_trace();
    write_text(SAMPLE);
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    bool done = false;
    assert_int_equal(ebb_trace_reader_open(NULL, trace, &r), EBB_OK);
    while (!done && ebb_trace_reader_info(r).n_events < 2) {
        assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
    }
    assert_int_equal(truncate(trace, (off_t)ebb_trace_reader_info(r).offset), 0);
    ebb_trace_reader_close(r);
    assert_int_equal(ebb_trace_add_late_steps(NULL, trace, steps, NULL, NULL), EBB_OK);
    tell(text, sizeof text);
    assert_string_equal(text, MERGED "cut test");
}

static void what_is_no_file_of_steps_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",
                                      "ebb-late-steps 2 0\n",
                                      "ebb-late-steps 1 x\n",
                                      "ebb-late-steps 1 0\nx\n",
                                      "ebb-late-steps 1 0\nn name\n",
                                      "ebb-late-steps 1 0\ne 0 1 2 0 0\n",
                                      "ebb-late-steps 1 0\nn a b\ne 0 2 1 0 0\n",
                                      "ebb-late-steps 1 0\nn a b\ne 0 1 2 0\n",
                                      "ebb-late-steps 1 0\nn a b\ne 0 1 2 0 4294967296\n",
                                      "ebb-late-steps 1 0\nd -1\n"};
    char text[1024];
    write_trace();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_text(bad[i]);
        assert_int_equal(ebb_trace_add_late_steps(NULL, trace, steps, NULL, NULL), EBB_E_FORMAT);
        tell(text, sizeof text);
        assert_string_equal(text, PLAIN);
    }
    assert_int_equal(ebb_trace_add_late_steps(NULL, trace, "/tmp/no/such/steps", NULL, NULL), EBB_E_IO);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    char text[1024];
    write_trace();
    write_text(SAMPLE);
    for (uint64_t n = 1;; n++) {
        failing_mem mem;
        const ebb_status st = ebb_trace_add_late_steps(&failing_mem_init(&mem, n)->hooks, trace, steps, NULL, NULL);
        tell(text, sizeof text);
        assert_string_equal(text, st == EBB_OK ? MERGED "whole test" : PLAIN);
        if (st == EBB_OK) { break; }
        assert_int_equal(st, EBB_E_NO_MEMORY);
    }
}

static int set_up(void **state) {
    (void)state;
    (void)snprintf(trace, sizeof trace, "/tmp/ebb-late-XXXXXX");
    (void)snprintf(steps, sizeof steps, "/tmp/ebb-late-XXXXXX");
    const int a = mkstemp(trace), b = mkstemp(steps);
    return a >= 0 && b >= 0 && close(a) == 0 && close(b) == 0 ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    return unlink(trace) + unlink(steps);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_stand_by_their_times),
        cmocka_unit_test(a_cut_trace_stays_cut),
        cmocka_unit_test(what_is_no_file_of_steps_is_refused),
        cmocka_unit_test(any_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
