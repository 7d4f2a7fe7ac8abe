/* SPDX-License-Identifier: Apache-2.0
 *
 * The logs of the SINGA line of work, in each of their forms.
 */
#include "import_support.h"

typedef struct expectation {
    ebb_trace_kind kind;
    uint64_t time, block, size;
} expectation;

static void expect(const imported *im, const expectation *expected, size_t n) {
    assert_int_equal(im->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(im->events[i].kind, expected[i].kind);
        assert_int_equal(im->events[i].time_ns, expected[i].time);
        if (expected[i].kind == EBB_TRACE_MARK) { continue; }
        assert_int_equal(im->events[i].block, expected[i].block);
        assert_int_equal(im->events[i].size_bytes, expected[i].size);
    }
}
#define EXPECT(im, ...)                                                                                                \
    expect((im), (const expectation[]){__VA_ARGS__}, sizeof((expectation[]){__VA_ARGS__}) / sizeof(expectation))

/* The pool's log: ns, capitals, colons; an address comes again. */
static void test_pool_log(void **state) {
    (void)state;
    imported im;
    const char *text =
        "MALLOC: 0x7f0e18000000 1728 1607927705996027234\nWRITE: 0x7f0e18000000 1728 1607927705996027244\n"
        "READ: 0x7f0e18000000 1728 1607927705996027254\nFREE: 0x7f0e18000000 1607927705996027264\n"
        "MALLOC: 0x7f0e18000000 64 1607927705996027274\n";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    assert_string_equal(im.result.format, "singa");
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ACCESSES | EBB_TRACE_TELLS_ADDRESSES);
    assert_true(ebb_trace_reader_info(im.reader).start_unix_ns == 1607927705996027234u);
    EXPECT(&im, {EBB_TRACE_ALLOC, 0, 0, 1728}, {EBB_TRACE_WRITE, 10, 0, 1728}, {EBB_TRACE_READ, 20, 0, 1728},
           {EBB_TRACE_FREE, 30, 0, 1728}, {EBB_TRACE_ALLOC, 40, 1, 64});
    assert_true(im.events[0].address == 0x7f0e18000000u);
    assert_int_equal(im.result.n_left_out, 0);
    imported_fini(&im);
}

/* SmartPool's: ms, frees without a size, numbered lines. */
static void test_smartpool_log(void **state) {
    (void)state;
    imported im;
    const char *text = "1 Malloc 0x10 96 1512107272964\n2 Malloc 0x20 12 1512107272965\n3 Free 0x10 1512107272967\n";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_TIMES | EBB_TRACE_TELLS_ADDRESSES);
    EXPECT(&im, {EBB_TRACE_ALLOC, 0, 0, 96}, {EBB_TRACE_ALLOC, 1000000, 1, 12}, {EBB_TRACE_FREE, 3000000, 0, 96});
    imported_fini(&im);
}

/* AutoSwap's: Read, Layer, Mutable with sizes; the first blocks were there before; words after. */
static void test_autoswap_log(void **state) {
    (void)state;
    imported im;
    const char *text = "Malloc 0x1 5 1529635706083534856 (data_&size)\nMutable 0x2 7 1529635706083534857\n"
                       "Layer 0x2 1529635706083534858\nRead 0x3 1529635706083534859\nFree 0x3 9 1529635706083534860\n"
                       "Free 0x3 9 1529635706083534861 SwapOut(Sync)\n";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    EXPECT(&im, {EBB_TRACE_ALLOC, 0, 0, 7}, {EBB_TRACE_ALLOC, 0, 1, 9}, {EBB_TRACE_ALLOC, 0, 2, 5},
           {EBB_TRACE_WRITE, 1, 0, 7}, {EBB_TRACE_READ, 2, 0, 7}, {EBB_TRACE_READ, 3, 1, 9}, {EBB_TRACE_FREE, 4, 1, 9});
    assert_true(im.events[0].before && im.events[1].before && !im.events[2].before);
    /* A layer's read stays apart from a plain one. */
    assert_string_equal(ebb_trace_reader_note(im.reader, "row.3"), "layer");
    assert_int_equal(im.events[4].row, 3);
    assert_int_equal(im.events[5].row, 0);
    assert_int_equal(im.result.n_left_out, 1);
    imported_fini(&im);
}

/* Without times lines are counted; iterations are marked; times that go back stand still. */
static void test_order_only(void **state) {
    (void)state;
    imported im;
    assert_int_equal(
        import_text("f", "-----new itr------\nMalloc 0xA 5\nFree 0xa\n\n-----new itr------\nMalloc 0xa 6", &im),
        EBB_OK);
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_ADDRESSES);
    EXPECT(&im, {EBB_TRACE_MARK, 0, 0, 0}, {EBB_TRACE_ALLOC, 0, 0, 5}, {EBB_TRACE_FREE, 1, 0, 5},
           {EBB_TRACE_MARK, 2, 0, 0}, {EBB_TRACE_MARK, 2, 0, 0}, {EBB_TRACE_ALLOC, 2, 1, 6}, {EBB_TRACE_MARK, 2, 0, 0});
    assert_int_equal(im.events[3].mark, EBB_TRACE_ITERATION_END);
    assert_int_equal(im.events[4].mark, EBB_TRACE_ITERATION_BEGIN);
    assert_int_equal(im.events[4].number, 1);
    imported_fini(&im);
    const char *back =
        "MALLOC: 0x1 5 1607927705996027234\nMALLOC: 0x2 5 1607927705996027294\nFREE: 0x1 1607927705996027204\n";
    assert_int_equal(import_text("f", back, &im), EBB_OK);
    EXPECT(&im, {EBB_TRACE_ALLOC, 0, 0, 5}, {EBB_TRACE_ALLOC, 60, 1, 5}, {EBB_TRACE_FREE, 60, 0, 5});
    imported_fini(&im);
}

/* An alloc of what is live means that a free is missing; a free of what is not live is left out. */
static void test_missing(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "Malloc 0x1 5\nMalloc 0x1 6\nFree 0x1\nFree 0x1\nRead 0x9\n", &im), EBB_OK);
    EXPECT(&im, {EBB_TRACE_ALLOC, 0, 0, 5}, {EBB_TRACE_FREE, 1, 0, 5}, {EBB_TRACE_ALLOC, 1, 1, 6},
           {EBB_TRACE_FREE, 3, 1, 6});
    assert_int_equal(im.result.n_left_out, 3);
    imported_fini(&im);
}

static void test_cut(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "MALLOC: 0x1 5 1607927705996027234\nMALLOC: 0x", &im), EBB_OK);
    assert_int_equal(im.n, 1);
    assert_false(im.result.complete);
    assert_non_null(ebb_trace_reader_note(im.reader, "cut"));
    imported_fini(&im);
}

/* The last time is cut off, but what is left would be a whole time in another unit. */
static void test_cut_within_a_time(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "Malloc 0x1 5 1607927705996027\nMalloc 0x2 5 16079277059961", &im), EBB_OK);
    assert_int_equal(im.n, 1);
    assert_false(im.result.complete);
    imported_fini(&im);
    assert_int_equal(import_text("f", "Malloc 0x1 5 1607927705996027\nMalloc 0x2 5 1607927705996027", &im), EBB_OK);
    assert_int_equal(im.n, 2);
    assert_true(im.result.complete);
    imported_fini(&im);
}

static void test_refused(void **state) {
    (void)state;
    static const char *const lines[] = {
        "Grow 0x1 5",
        "Malloc 12 5",
        "Malloc 0x 5",
        "Malloc 0x11112222333344445 5",
        "Malloc 0xffffffffffffffff 5",
        "Malloc 0x1",
        "Malloc 0x1 1607927705996027234",
        "Malloc 0x1 99999999999999999999",
        "Malloc 0x1 5x",
        "7x Malloc 0x1 5",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[128];
        imported im;
        (void)snprintf(text, sizeof text, "Malloc 0x7 5\n%s\nFree 0x7\n", lines[i]);
        assert_int_equal(import_text("f", text, &im), EBB_E_FORMAT);
        expect_message("f:2: not 'ACTION");
    }
    char *text = malloc(5002);
    assert_non_null(text);
    memset(text, ' ', 5001);
    memcpy(text, "Free 0x7\n", 9);
    text[5001] = '\0';
    imported im;
    assert_int_equal(import_text("f", text, &im), EBB_E_FORMAT);
    expect_message("f:2: a line of more than 4096 bytes");
    free(text);
    assert_int_equal(import_bytes("f", "Free 0x7\nFree\0 0x7\n", 19, NULL, &im), EBB_E_FORMAT);
    expect_message("f:2: a byte 0");
}

/* A pipe cannot be read twice. */
static void test_pipe(void **state) {
    (void)state;
    char path[64], out[300];
    int ends[2];
    ebb_trace_import_result result;
    const char *text = "Malloc 0x1 5\nFree 0x1\n";
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], text, strlen(text)), strlen(text));
    assert_int_equal(close(ends[1]), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    (void)snprintf(out, sizeof out, "%s/out", test_dir.path);
    assert_int_equal(ebb_trace_import(path, out, NULL, &result), EBB_OK);
    assert_int_equal(result.n_events, 2);
    assert_int_equal(close(ends[0]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_pool_log),          IN_DIR(test_smartpool_log), IN_DIR(test_autoswap_log),
        IN_DIR(test_order_only),        IN_DIR(test_missing),       IN_DIR(test_cut),
        IN_DIR(test_cut_within_a_time), IN_DIR(test_refused),       IN_DIR(test_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
