/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of importing a program fails in turn, for each of the stored inputs of the readers' fuzz targets.
 */
#include "corpus.h"
#include "ebb/program_import.h"

static void import_failing(const char *path, const char *format) {
    ebb_status st = EBB_E_NO_MEMORY;
    for (size_t at = 1; st == EBB_E_NO_MEMORY; at++) {
        failing_mem f;
        ebb_program *program = NULL;
        ebb_program_import_options options = EBB_PROGRAM_IMPORT_OPTIONS_INIT;
        options.mem = &failing_mem_init(&f, at)->hooks;
        options.format = format;
        st = ebb_program_import(path, &options, &program);
        ebb_program_destroy(program);
        assert_int_equal(f.n_live, 0);
    }
    assert_true(st == EBB_OK || st == EBB_E_FORMAT);
}

static void test_formats(void **state) {
    (void)state;
    each_in_corpus("foreign_dtr", "dtr", import_failing);
    each_in_corpus("foreign_node_link", "node-link", import_failing);
    each_in_corpus("foreign_min_cut", "min-cut", import_failing);
    each_in_corpus("foreign_g10", "g10", import_failing);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
