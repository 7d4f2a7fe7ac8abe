/* SPDX-License-Identifier: Apache-2.0
 *
 * Callers that get their names after the recording: by what a callback finds, else what the recorder knew; a trace that
 * has names is left alone, and so is one for whose rewriting there is no memory.
 */
#include "support.h"

#include "ebb/trace.h"

#include <sys/stat.h>
#include <unistd.h>

static char path[64];

static uint32_t add_frame(ebb_trace_writer *w, uint32_t caller, const char *function, const char *file) {
    uint32_t f = 0, g = 0, stack = 0;
    assert_int_equal(ebb_trace_writer_string(w, function, &f), EBB_OK);
    assert_int_equal(ebb_trace_writer_string(w, file, &g), EBB_OK);
    assert_int_equal(ebb_trace_writer_frame(w, caller, f, g, 0, &stack), EBB_OK);
    return stack;
}

static void write_trace(bool has_addresses) {
    ebb_trace_writer *w = NULL;
    ebb_trace_writer_options options = EBB_TRACE_WRITER_OPTIONS_INIT;
    assert_int_equal(ebb_trace_writer_open(path, &options, &w), EBB_OK);
    if (has_addresses) {
        assert_int_equal(ebb_trace_writer_note(w, "callers", "offsets"), EBB_OK);
        assert_int_equal(ebb_trace_writer_note(w, "object./own/liba.so", "0a1b /own/real.so"), EBB_OK);
        assert_int_equal(ebb_trace_writer_note(w, "object./usr/lib/libb.so", "- /usr/lib/libb.so"), EBB_OK);
    }
    uint32_t stack = add_frame(w, 0, "main +0x10", "./unknown");
    stack = add_frame(w, stack, "_ZN1a3runEv +0x20", "/own/liba.so");
    stack = add_frame(w, stack, "+0x30", "/own/liba.so");
    stack = add_frame(w, stack, "+0x40", "/own/liba.so");
    stack = add_frame(w, stack, "+0x50", "/usr/lib/libb.so");
    stack = add_frame(w, stack, "c++0x60", "/own/liba.so");
    ebb_trace_event event = {.kind = EBB_TRACE_ALLOC, .size_bytes = 8, .stack = stack};
    assert_int_equal(ebb_trace_writer_add(w, &event), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(w), EBB_OK);
}

/* The callers of the first event, the innermost first. */
static void tell(char *text, size_t n_bytes) {
    ebb_trace_reader *r = NULL;
    ebb_trace_event event;
    bool done = false;
    size_t n = 0;
    assert_int_equal(ebb_trace_reader_open(NULL, path, &r), EBB_OK);
    assert_int_equal(ebb_trace_reader_next(r, &event, &done), EBB_OK);
    for (uint32_t s = event.stack; s != 0; s = ebb_trace_reader_frame(r, s).caller) {
        const ebb_trace_frame f = ebb_trace_reader_frame(r, s);
        n += (size_t)snprintf(text + n, n_bytes - n, "%s %s:%u\n", ebb_trace_reader_string(r, f.function),
                              ebb_trace_reader_string(r, f.file), f.line);
    }
    const char *callers = ebb_trace_reader_note(r, "callers");
    (void)snprintf(text + n, n_bytes - n, "%s", callers != NULL ? callers : "named");
    ebb_trace_reader_close(r);
}

static size_t find(void *ctx, const ebb_trace_object *object, uint64_t address, ebb_trace_source *sources, size_t n) {
    size_t *n_calls = ctx;
    ++*n_calls;
    assert_true(n >= 2);
    if (address == 0x50) {
        assert_string_equal(object->build_id, "");
        assert_false(object->wants_lines);
        sources[0] = (ebb_trace_source){"hidden", "", 0};
        return 1;
    }
    assert_string_equal(object->path, "/own/real.so");
    assert_string_equal(object->build_id, "0a1b");
    assert_true(object->wants_lines);
    if (address != 0x30) { return 0; }
    sources[0] = (ebb_trace_source){"_ZN1a6alloc_Ev", "/src/a.cc", 7};
    sources[1] = (ebb_trace_source){"step", "/src/a.cc", 9};
    return 2;
}

static void callers_get_names(void **state) {
    (void)state;
    char text[1024];
    size_t n_calls = 0;
    write_trace(true);
    assert_int_equal(ebb_trace_name_callers(NULL, path, find, &n_calls), EBB_OK);
    tell(text, sizeof text);
    assert_string_equal(text, "c++0x60 /own/liba.so:0\nhidden /usr/lib/libb.so:0\n+0x40 /own/liba.so:0\n"
                              "a::alloc_ /own/liba.so:0\nstep /src/a.cc:9\na::run /own/liba.so:0\nmain ./unknown:0\n"
                              "named");
    assert_int_equal(n_calls, 4);
}

static void what_the_recorder_knew_stays(void **state) {
    (void)state;
    char text[1024];
    write_trace(true);
    assert_int_equal(ebb_trace_name_callers(NULL, path, NULL, NULL), EBB_OK);
    tell(text, sizeof text);
    assert_string_equal(text, "c++0x60 /own/liba.so:0\n+0x50 /usr/lib/libb.so:0\n+0x40 /own/liba.so:0\n"
                              "+0x30 /own/liba.so:0\na::run /own/liba.so:0\nmain ./unknown:0\nnamed");
}

static void a_trace_with_names_is_left_alone(void **state) {
    (void)state;
    struct stat before, after;
    write_trace(false);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(ebb_trace_name_callers(NULL, path, find, NULL), EBB_OK);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
}

static void any_allocation_may_fail(void **state) {
    (void)state;
    for (size_t n = 0;; n++) {
        failing_mem mem;
        size_t n_calls = 0;
        char text[1024];
        write_trace(true);
        const ebb_status st = ebb_trace_name_callers(&failing_mem_init(&mem, n)->hooks, path, find, &n_calls);
        assert_int_equal(mem.n_live, 0);
        if (st == EBB_OK) { return; }
        assert_int_equal(st, EBB_E_NO_MEMORY);
        tell(text, sizeof text);
        assert_non_null(strstr(text, "offsets"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_get_names),
        cmocka_unit_test(what_the_recorder_knew_stays),
        cmocka_unit_test(a_trace_with_names_is_left_alone),
        cmocka_unit_test(any_allocation_may_fail),
    };
    (void)snprintf(path, sizeof path, "/tmp/ebb-late-names-%ld", (long)getpid());
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)unlink(path);
    return failed;
}
