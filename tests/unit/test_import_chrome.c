/* SPDX-License-Identifier: Apache-2.0
 *
 * Chrome traces of a profiler: order, devices, steps and their nesting, marks, stacks, and what was there before.
 */
#include "import_support.h"

#define MEMORY(ts, bytes, addr)                                                                                        \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":2,\"ts\":" #ts ",\"args\":{\"Bytes\":" #bytes               \
    ",\"Addr\":" #addr ",\"Device Type\":0,\"Device Id\":-1}}"
#define CUDA(ts, bytes, addr, id, total)                                                                               \
    "{\"ph\":\"i\",\"name\":\"[memory]\",\"pid\":1,\"tid\":2,\"ts\":" #ts ",\"args\":{\"Bytes\":" #bytes               \
    ",\"Addr\":" #addr ",\"Device Type\":1,\"Device Id\":" #id ",\"Total Allocated\":" #total                          \
    ",\"Total Reserved\":4096}}"
#define SPAN(cat, name, tid, ts, dur)                                                                                  \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":1,\"tid\":" #tid ",\"ts\":" #ts ",\"dur\":" #dur  \
    ",\"args\":{\"Sequence number\":3}}"

/* The events as text: kind and time, then what the kind has. */
static void describe(const imported *im, char *out, size_t cap) {
    size_t n = 0;
    out[0] = '\0';
    for (size_t i = 0; i < im->n; i++) {
        const ebb_trace_event *e = &im->events[i];
        const char *name = ebb_trace_reader_string(im->reader, e->name);
        char what[128] = "";
        static const char kinds[] = "+-RWL()CcMSs";
        if (e->kind == EBB_TRACE_ALLOC || e->kind == EBB_TRACE_FREE) {
            (void)snprintf(what, sizeof what, "%d:%d%s", (int)e->block, (int)e->size_bytes, e->before ? "b" : "");
        } else if (e->kind == EBB_TRACE_STEP_BEGIN) {
            (void)snprintf(what, sizeof what, "%s/%u/%u", name, e->phase, e->row);
        } else if (e->kind == EBB_TRACE_MARK) {
            (void)snprintf(what, sizeof what, "%u%s#%d", e->mark, name, (int)e->number);
        }
        n += (size_t)snprintf(out + n, cap - n, "%c%d%s%s ", kinds[e->kind], (int)e->time_ns,
                              what[0] != '\0' ? "=" : "", what);
        assert_true(n < cap);
    }
}

static void expect_events(const char *json, const char *expected) {
    imported im;
    char text[2048];
    assert_int_equal(import_text("f.json", json, &im), EBB_OK);
    assert_string_equal(im.result.format, "chrome");
    describe(&im, text, sizeof text);
    assert_string_equal(text, expected);
    imported_fini(&im);
}

/* Out of order in the file; times from the earliest on, in ns; an address twice. */
static void test_memory(void **state) {
    (void)state;
    expect_events("[" MEMORY(20.5, -64, 4096) "," MEMORY(10, 64, 4096) "," MEMORY(30.123, 32, 4096) "]",
                  "+0=0:64 -10500=0:64 +20123=1:32 ");
    imported im;
    assert_int_equal(
        import_text("f", "{\"schemaVersion\":1,\"baseTimeNanoseconds\":1000,\"traceEvents\":[" MEMORY(5, 8, 1) "]}",
                    &im),
        EBB_OK);
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES);
    assert_int_equal(ebb_trace_reader_info(im.reader).start_unix_ns, 6000);
    assert_string_equal(ebb_trace_reader_note(im.reader, "device"), "cpu");
    assert_string_equal(ebb_trace_reader_note(im.reader, "space.0"), "cpu");
    imported_fini(&im);
}

/* Steps nest by time on their thread; siblings touch; one that reaches out is cut; allocs lie within. */
static void test_steps(void **state) {
    (void)state;
    expect_events("{\"traceEvents\":[" SPAN("cpu_op", "in", 2, 12, 4) "," SPAN("cpu_op", "out", 2, 10, 10) "," SPAN(
                      "cpu_op", "far", 2, 18,
                      9) "," SPAN("kernel", "k", 7, 11,
                                  20) "," SPAN("cuda_runtime", "no", 2, 1,
                                               2) "," SPAN("cpu_op", "next", 2, 20,
                                                           1) "," MEMORY(12, 8, 1) "," MEMORY(16, -8, 1) "]}",
                  "(0=out/0/0 (1000=k/0/3 (2000=in/0/0 +2000=0:8 -6000=0:8 )6000 (8000=far/0/0 )10000 )10000 "
                  "(10000=next/0/0 )11000 )21000 ");
}

static void test_phases_and_marks(void **state) {
    (void)state;
    expect_events(
        "[" SPAN("user_annotation", "ProfilerStep#7", 2, 0, 100) "," SPAN("cpu_op", "aten::mm", 2, 1, 2) "," SPAN(
            "cpu_op", "autograd::engine::evaluate_function: MmBackward0", 2, 10,
            5) "," SPAN("cpu_op", "b", 2, 11, 1) "," SPAN("user_annotation", "Optimizer.step#SGD.step", 2, 20,
                                                          5) "," SPAN("cpu_op", "c", 2, 21,
                                                                      1) "," SPAN("gpu_user_annotation",
                                                                                  "ProfilerStep#7", 3, 0,
                                                                                  100) "," MEMORY(50, 1, 1) "]",
        "M0=0#7 (1000=aten::mm/0/0 )3000 (10000=autograd::engine::evaluate_function: MmBackward0/1/0 (11000=b/1/0 "
        ")12000 )15000 M20000=2Optimizer.step#SGD.step#0 (20000=Optimizer.step#SGD.step/2/0 (21000=c/2/0 )22000 )25000 "
        "+50000=0:1 M100000=1#7 ");
}

/* A block is called after the outermost operator around it, and not after what the program calls a stretch of itself.
 */
static void test_names(void **state) {
    (void)state;
    static const char *const names[] = {"", "aten::linear", "Optimizer.step#SGD.step", ""};
    imported im;
    assert_int_equal(
        import_text(
            "f",
            "[" SPAN("user_annotation", "mine", 2, 0, 100) "," MEMORY(5, 8, 1) "," SPAN(
                "cpu_op", "aten::linear", 2, 10,
                9) "," SPAN("cpu_op", "aten::empty", 2, 12,
                            2) "," MEMORY(13, 16, 1) "," SPAN("user_annotation", "Optimizer.step#SGD.step", 2, 30,
                                                              9) "," SPAN("cpu_op", "aten::mul", 2, 31,
                                                                          2) "," MEMORY(32, 24, 1) "," MEMORY(50, 32,
                                                                                                              1) "]",
            &im),
        EBB_OK);
    expect_names(&im, names, sizeof names / sizeof names[0]);
    imported_fini(&im);
}

/* With Python's stacks an iteration begins within a call of the profiler's step(), and ends within the next one. */
static void test_iterations_across_frames(void **state) {
    (void)state;
    expect_events("[" SPAN("python_function", "profiler.py(1): step", 2, 0, 3) "," SPAN(
                      "user_annotation", "ProfilerStep#1", 2, 1,
                      41) "," SPAN("python_function", "t.py(2): train", 2, 5,
                                   30) "," MEMORY(20, 8, 1) "," SPAN("python_function", "profiler.py(1): step", 2, 40,
                                                                     6) "," SPAN("user_annotation", "ProfilerStep#2", 2,
                                                                                 44, 20) "," MEMORY(50, -8, 1) "]",
                  "M1000=0#1 +20000=0:8 M42000=1#1 M44000=0#2 -50000=0:8 M64000=1#2 ");
}

/* Totals say what was allocated before; of that, what is freed later is known block by block. */
static void test_before(void **state) {
    (void)state;
    imported im;
    char text[1024];
    assert_int_equal(import_text("f",
                                 "[" CUDA(10, 100, 512, 0, 1100) "," CUDA(20, -300, 1024, 0, 800) "," CUDA(
                                     30, -100, 512, 0, 700) "," MEMORY(11, 5, 5) "]",
                                 &im),
                     EBB_OK);
    describe(&im, text, sizeof text);
    assert_string_equal(text, "+0=0:300b +0=1:700b +0=2:100 -10000=0:300 -20000=2:100 ");
    assert_true(im.events[1].address == EBB_TRACE_NONE);
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES | EBB_TRACE_TELLS_BEFORE);
    assert_int_equal(ebb_trace_reader_info(im.reader).live_bytes, 700);
    assert_string_equal(ebb_trace_reader_note(im.reader, "device"), "cuda:0");
    assert_string_equal(ebb_trace_reader_note(im.reader, "stated.allocated_bytes"), "700");
    assert_string_equal(ebb_trace_reader_note(im.reader, "stated.reserved_bytes"), "4096");
    imported_fini(&im);
}

/* Totals that cannot be right say nothing. */
static void test_unsound_totals(void **state) {
    (void)state;
    expect_events("[" CUDA(10, 100, 512, 0, 0) "," CUDA(20, -100, 512, 0, 0) "," CUDA(30, 8, 512, 0, 8) "]",
                  "+0=0:100 -10000=0:100 +20000=1:8 ");
}

static void test_devices(void **state) {
    (void)state;
    static const struct {
        const char *device;
        size_t n_blocks;
    } cases[] = {{NULL, 2}, {"cpu", 3}, {"0", 1}, {"1", 2}, {"all", 6}};
    const char *json = "[" CUDA(1, 9, 1, 0, 9) "," CUDA(2, 9, 2, 1, 9) "," CUDA(3, 9, 3, 1, 18) "," MEMORY(
        4, 9, 4) "," MEMORY(5, 9, 5) "," MEMORY(6, 9, 6) "]";
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
        imported im;
        options.device = cases[i].device;
        assert_int_equal(import_bytes("f", json, strlen(json), &options, &im), EBB_OK);
        assert_int_equal(im.result.n_blocks, cases[i].n_blocks);
        imported_fini(&im);
    }
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    imported im;
    options.device = "2";
    assert_int_equal(import_bytes("f", json, strlen(json), &options, &im), EBB_E_ARGUMENT);
    expect_message("has no device 2, but cuda:0, cuda:1, cpu");
}

static void test_stacks(void **state) {
    (void)state;
    imported im;
    assert_int_equal(
        import_text("f",
                    "[" SPAN("python_function", "a/b.py(12): main", 2, 0, 50) "," SPAN(
                        "python_function", "nn.Module: Linear_0", 2, 10,
                        30) "," MEMORY(20, 8, 1) "," MEMORY(45, -8, 1) "," SPAN("cpu_op", "op", 2, 19, 2) "]",
                    &im),
        EBB_OK);
    assert_int_equal(im.n, 4);
    assert_true((im.result.tells & EBB_TRACE_TELLS_STACKS) != 0);
    const ebb_trace_frame top = ebb_trace_reader_frame(im.reader, im.events[1].stack);
    const ebb_trace_frame below = ebb_trace_reader_frame(im.reader, top.caller);
    assert_string_equal(ebb_trace_reader_string(im.reader, top.function), "nn.Module: Linear_0");
    assert_string_equal(ebb_trace_reader_string(im.reader, below.function), "main");
    assert_string_equal(ebb_trace_reader_string(im.reader, below.file), "a/b.py");
    assert_int_equal(below.line, 12);
    assert_int_equal(im.events[3].stack, top.caller);
    imported_fini(&im);
}

/* What fits nothing is counted. */
static void test_left_out(void **state) {
    (void)state;
    imported im;
    const char *json = "[" MEMORY(1, 8, 1) "," MEMORY(2, 9, 1) "," MEMORY(3, -9, 1) "," MEMORY(4, -9, 1) "," MEMORY(
        5, 0, 7) "," MEMORY(6, 1e3, 7) "," MEMORY(7, 8, -7) "," SPAN("cpu_op", "x", 1, -5, 1) "]";
    assert_int_equal(import_text("f", json, &im), EBB_OK);
    char text[256];
    describe(&im, text, sizeof text);
    assert_string_equal(text, "+0=0:8 -1000=0:8 +1000=1:9 -2000=1:9 ");
    assert_int_equal(im.result.n_left_out, 6);
    imported_fini(&im);
}

static void test_cut(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "[" MEMORY(1, 8, 1) ",", &im), EBB_OK);
    assert_int_equal(im.n, 1);
    assert_false(im.result.complete);
    imported_fini(&im);
}

static void test_refused(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "[" SPAN("cpu_op", "x", 1, 5, 1) "]", &im), EBB_E_UNSUPPORTED);
    expect_message("f: no [memory] events: record with");
    assert_int_equal(import_text("f", "[{\"ph\":\"i\",\"name\":\"[memory]\",\"args\":{\"Bytes\":5}}]", &im),
                     EBB_E_UNSUPPORTED);
    expect_message("no addresses");
    assert_int_equal(import_text("f", "{\"traceEvents\":[7]}", &im), EBB_E_FORMAT);
    expect_message("f:1: an event that is no object");
}

/* Bytes that are no UTF-8. */
static void test_texts(void **state) {
    (void)state;
    expect_events("[" MEMORY(1, 8, 1) "," SPAN("cpu_op", "a\xff\xc3\xa9\xed\xa0\x80", 1, 1, 1) "]",
                  "(0=a?\xc3\xa9?\?\?/0/0 +0=0:8 )1000 ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_memory),
        IN_DIR(test_steps),
        IN_DIR(test_phases_and_marks),
        IN_DIR(test_names),
        IN_DIR(test_iterations_across_frames),
        IN_DIR(test_before),
        IN_DIR(test_devices),
        IN_DIR(test_stacks),
        IN_DIR(test_left_out),
        IN_DIR(test_cut),
        IN_DIR(test_refused),
        IN_DIR(test_texts),
        IN_DIR(test_unsound_totals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
