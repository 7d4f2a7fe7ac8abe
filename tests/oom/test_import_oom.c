/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of importing fails in turn, for each of the stored inputs of the importers' fuzz targets.
 */
#include "corpus.h"
#include "trace/trace.h"

/* Import the file with each allocation failing; the first status that is not for want of memory is the last. */
static void import_failing(const char *path, const char *format) {
    char out[300];
    (void)snprintf(out, sizeof out, "%s/out", test_dir.path);
    ebb_status st = EBB_E_NO_MEMORY;
    for (size_t at = 1; st == EBB_E_NO_MEMORY; at++) {
        failing_mem f;
        ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
        options.mem = &failing_mem_init(&f, at)->hooks;
        options.format = format;
        st = ebb_trace_import(path, out, &options, NULL);
        assert_int_equal(f.n_live, 0);
        assert_int_equal(access(out, F_OK), st == EBB_OK ? 0 : -1);
    }
    assert_int_equal(unlink(out), st == EBB_OK ? 0 : -1);
}

static void test_formats(void **state) {
    (void)state;
    each_in_corpus("import_execution", "execution", import_failing);
    each_in_corpus("import_chrome", "chrome", import_failing);
    each_in_corpus("import_singa", "singa", import_failing);
    each_in_corpus("import_csv", "csv", import_failing);
}

static void test_open_any(void **state) {
    (void)state;
    data_put(&test_dir, "f", "Malloc 0x1 5\nFree 0x1\n", 22);
    OOM_LOOP(mem, st, {
        ebb_trace_reader *reader = NULL;
        st = ebb_trace_open_any(mem, data_path(&test_dir, "f"), NULL, &reader);
        ebb_trace_reader_close(reader);
    });
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_formats), IN_DIR(test_open_any)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
