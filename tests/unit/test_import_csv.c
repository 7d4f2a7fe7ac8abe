/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files as traces: which events come of which columns, and what is refused.
 */
#include "import_support.h"

static void test_events(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "id,lower,upper,size\nb,3,5,20\na,0,3,10\nc,3,4,5\n", &im), EBB_OK);
    assert_string_equal(im.result.format, "csv");
    assert_int_equal(im.result.tells, 0);
    assert_string_equal(ebb_trace_reader_note(im.reader, "source"), "minimalloc csv");
    static const struct {
        ebb_trace_kind kind;
        uint64_t time, block, size;
        const char *name;
    } expected[] = {
        {EBB_TRACE_ALLOC, 0, 0, 10, "a"}, {EBB_TRACE_FREE, 3, 0, 10, "a"}, {EBB_TRACE_ALLOC, 3, 1, 20, "b"},
        {EBB_TRACE_ALLOC, 3, 2, 5, "c"},  {EBB_TRACE_FREE, 4, 2, 5, "c"},  {EBB_TRACE_FREE, 5, 1, 20, "b"},
    };
    assert_int_equal(im.n, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(im.events[i].kind, expected[i].kind);
        assert_int_equal(im.events[i].time_ns, expected[i].time);
        assert_int_equal(im.events[i].block, expected[i].block);
        assert_int_equal(im.events[i].size_bytes, expected[i].size);
        assert_int_equal(im.events[i].role, EBB_ROLE_UNKNOWN);
        assert_string_equal(ebb_trace_reader_string(im.reader, im.events[i].name), expected[i].name);
    }
    imported_fini(&im);
}

/* Columns in another order, the last time instead of the one after it, offsets of some, a mark, CR LF, quotes. */
static void test_forms(void **state) {
    (void)state;
    imported im;
    const char *text = "\xef\xbb\xbfsize,offset,start,end,note,buffer\r\n8, 64 ,1,1,x,\"a,b\"\r\n\r\n4,,0,2,,c\r\n";
    assert_int_equal(import_text("f", text, &im), EBB_OK);
    assert_int_equal(im.result.tells, EBB_TRACE_TELLS_ADDRESSES);
    assert_int_equal(im.n, 4);
    assert_true(im.events[0].address == EBB_TRACE_NONE);
    assert_int_equal(im.events[1].address, 64);
    assert_string_equal(ebb_trace_reader_string(im.reader, im.events[1].name), "a,b");
    assert_int_equal(im.events[2].time_ns, 2);
    assert_int_equal(im.events[2].block, 1);
    assert_int_equal(im.events[3].time_ns, 3);
    imported_fini(&im);
    assert_int_equal(import_text("f", "id,lower,upper,size\n", &im), EBB_OK);
    assert_int_equal(im.n, 0);
    imported_fini(&im);
}

/* A trace's texts are UTF-8, whatever the file's are. */
static void test_bytes(void **state) {
    (void)state;
    imported im;
    assert_int_equal(import_text("f", "id,lower,upper,size\n\xffx\xc3\xb6,0,1,8\n", &im), EBB_OK);
    assert_string_equal(ebb_trace_reader_string(im.reader, im.events[0].name), "?x\xc3\xb6");
    imported_fini(&im);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"id,lower,upper,size\na,0,1\n", "f:2: too few fields"},
        {"id,lower,upper,size\na,0,x,1\n", "f:2: 'x' is not a whole number"},
        {"id,lower,upper,size\na,0,1,18446744073709551616\n", "f:2: '18446744073709551616' is not"},
        {"id,lower,upper,size\na,0,1,-1\n", "f:2: '-1' is not"},
        {"id,lower,upper,size\na,0,1,1\nb,2,2,1\n", "f:3: the buffer ends before it begins"},
        {"id,lower,end,size\na,0,18446744073709551615,1\n", "f:2: an end without a time after it"},
        {"id,lower,upper,size,end\n", "f:1: two columns mean end"},
        {"id,lower,upper,size\n\"a,0,1,1\n", "f:2: a quote without its end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        imported im;
        assert_int_equal(import_text("f", cases[i].text, &im), EBB_E_FORMAT);
        expect_message(cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_events), IN_DIR(test_forms), IN_DIR(test_bytes),
                                       IN_DIR(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
