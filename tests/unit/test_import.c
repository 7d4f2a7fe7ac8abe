/* SPDX-License-Identifier: Apache-2.0
 *
 * Importing: formats are told apart, traces go through as they are, zipped ones too, and a failure leaves nothing.
 */
#include "import_support.h"

#include <zlib.h>

/* A small trace, at path. */
static void write_trace(const char *path) {
    ebb_trace_writer *writer = NULL;
    assert_int_equal(ebb_trace_writer_open(path, NULL, &writer), EBB_OK);
    assert_int_equal(ebb_trace_writer_note(writer, "source", "a test"), EBB_OK);
    const ebb_trace_event alloc = {.kind = EBB_TRACE_ALLOC, .size_bytes = 100, .address = EBB_TRACE_NONE};
    const ebb_trace_event end = {.kind = EBB_TRACE_FREE, .time_ns = 5};
    assert_int_equal(ebb_trace_writer_add(writer, &alloc), EBB_OK);
    assert_int_equal(ebb_trace_writer_add(writer, &end), EBB_OK);
    assert_int_equal(ebb_trace_writer_close(writer), EBB_OK);
}

static size_t get(const char *name, uint8_t *data, size_t cap) {
    FILE *file = fopen(data_path(&test_dir, name), "rb");
    assert_non_null(file);
    const size_t n = fread(data, 1, cap, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static void put_zipped(const char *name, const uint8_t *data, size_t n) {
    gzFile file = gzopen(data_path(&test_dir, name), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
}

static void test_copy(void **state) {
    (void)state;
    uint8_t data[1024];
    imported im;
    write_trace(data_path(&test_dir, "a"));
    const size_t n = get("a", data, sizeof data);
    assert_int_equal(import_bytes("b", data, n, NULL, &im), EBB_OK);
    assert_string_equal(im.result.format, "ebb");
    assert_int_equal(im.n, 2);
    assert_int_equal(im.result.n_blocks, 1);
    assert_true(im.result.complete);
    assert_string_equal(ebb_trace_reader_note(im.reader, "source"), "a test");
    imported_fini(&im);
    put_zipped("c.gz", data, n);
    const size_t n_zipped = get("c.gz", data, sizeof data);
    assert_int_equal(import_bytes("d", data, n_zipped, NULL, &im), EBB_OK);
    assert_int_equal(im.n, 2);
    imported_fini(&im);
}

/* What a killed recorder left is copied up to its cut. */
static void test_cut_copy(void **state) {
    (void)state;
    uint8_t data[1024];
    imported im = {0};
    ebb_trace_import_result result;
    write_trace(data_path(&test_dir, "a"));
    const size_t n = get("a", data, sizeof data);
    data_put(&test_dir, "a", data, n - 4); /* the end record and a byte of the free */
    char out[300];
    (void)snprintf(out, sizeof out, "%s/out", test_dir.path);
    assert_int_equal(ebb_trace_import(data_path(&test_dir, "a"), out, NULL, &result), EBB_OK);
    assert_false(result.complete);
    assert_int_equal(result.n_events, 1);
    assert_int_equal(ebb_trace_reader_open(NULL, out, &im.reader), EBB_OK);
    read_all(&im);
    assert_int_equal(im.n, 1);
    imported_fini(&im);
}

static void test_open_any(void **state) {
    (void)state;
    uint8_t data[1024];
    imported im;
    write_trace(data_path(&test_dir, "a"));
    put_zipped("c.gz", data, get("a", data, sizeof data));
    static const char *const names[] = {"a", "c.gz"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ebb_trace_open_any(NULL, data_path(&test_dir, names[i]), NULL, &im.reader), EBB_OK);
        read_all(&im);
        assert_int_equal(im.n, 2);
        imported_fini(&im);
    }
    assert_int_equal(ebb_trace_open_any(NULL, data_path(&test_dir, "none"), NULL, &im.reader), EBB_E_IO);
    expect_message("none: cannot open");
    char here[512];
    (void)snprintf(here, sizeof here, "%s", data_path(&test_dir, "."));
    assert_int_equal(ebb_trace_open_any(NULL, data_path(&test_dir, "c.gz"), here, &im.reader), EBB_OK);
    imported_fini(&im);
    assert_int_equal(ebb_trace_open_any(NULL, data_path(&test_dir, "c.gz"), "/no/such/folder", &im.reader), EBB_E_IO);
    expect_message("/no/such/folder: cannot make a temporary file in");
    assert_int_equal(ebb_trace_open_any(NULL, data_path(&test_dir, "a"), "/no/such/folder", &im.reader), EBB_OK);
    imported_fini(&im);
}

static void test_refused(void **state) {
    (void)state;
    imported im;
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    assert_int_equal(import_text("f", "", &im), EBB_E_FORMAT);
    expect_message("f: an empty file");
    assert_int_equal(import_text("f", "something else", &im), EBB_E_UNSUPPORTED);
    expect_message("f: neither a trace nor a recording");
    options.format = "xyz";
    assert_int_equal(import_bytes("f", "x", 1, &options, &im), EBB_E_ARGUMENT);
    expect_message("no format xyz");
    options.format = "ebb";
    assert_int_equal(import_bytes("f", "x", 1, &options, &im), EBB_E_FORMAT);
    expect_message("f: not a trace");
    options.device = "-1";
    assert_int_equal(import_bytes("f", "x", 1, &options, &im), EBB_E_ARGUMENT);
    expect_message("not -1");
    options.size_bytes--;
    assert_int_equal(import_bytes("f", "x", 1, &options, &im), EBB_E_ARGUMENT);
    expect_message("another version");
}

/* A gzipped file that ends too early. */
static void test_cut_gzip(void **state) {
    (void)state;
    uint8_t data[1024];
    imported im;
    write_trace(data_path(&test_dir, "a"));
    put_zipped("c.gz", data, get("a", data, sizeof data));
    const size_t n = get("c.gz", data, sizeof data);
    /* Without gzip's own end the trace may be whole; with less, it ends at the cut. */
    assert_int_equal(import_bytes("d", data, n - 8, NULL, &im), EBB_OK);
    assert_true(im.result.complete);
    const size_t n_whole = im.n;
    imported_fini(&im);
    assert_int_equal(import_bytes("d", data, n - 16, NULL, &im), EBB_OK);
    assert_false(im.result.complete);
    assert_true(im.n <= n_whole);
    imported_fini(&im);
}

/* What stands at the target stays until the import is done. */
static void test_target_stays(void **state) {
    (void)state;
    uint8_t data[16];
    char out[300];
    (void)snprintf(out, sizeof out, "%s/out", test_dir.path);
    data_put(&test_dir, "out", "before", 6);
    data_put(&test_dir, "bad",
             "\x89"
             "ebbtr\r\n",
             8);
    assert_int_equal(ebb_trace_import(data_path(&test_dir, "bad"), out, NULL, NULL), EBB_E_FORMAT);
    assert_int_equal(get("out", data, sizeof data), 6);
    write_trace(data_path(&test_dir, "a"));
    assert_int_equal(ebb_trace_import(data_path(&test_dir, "a"), "/nowhere/out", NULL, NULL), EBB_E_IO);
}

static void test_names(void **state) {
    (void)state;
    const char *about = NULL;
    size_t n = 0;
    for (; ebb_trace_format_name(n, &about) != NULL; n++) { assert_true(strlen(about) > 0); }
    assert_true(n > 0);
    assert_string_equal(ebb_trace_format_name(0, NULL), "ebb");
    static const char log[] = "Malloc 0x1 512\nFree 0x1\n", csv[] = "id,lower,upper,size\n", none[] = "nothing";
    assert_string_equal(ebb_trace_format_of(log, strlen(log), "file"), "singa");
    assert_string_equal(ebb_trace_format_of(csv, strlen(csv), "file"), "csv");
    assert_null(ebb_trace_format_of(none, strlen(none), "file"));
    assert_null(ebb_trace_format_of(NULL, 0, "file"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_DIR(test_copy),     IN_DIR(test_cut_copy),     IN_DIR(test_open_any),        IN_DIR(test_refused),
        IN_DIR(test_cut_gzip), IN_DIR(test_target_stays), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
