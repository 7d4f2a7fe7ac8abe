/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of importing a program fails in turn, for each of the stored inputs of the readers' fuzz targets.
 */
#include "ebb/program_import.h"
#include "support.h"

#include <dirent.h>

#define CORPUS "tests/fuzz/corpus"

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

static void import_corpus(const char *name, const char *format) {
    char folder[128];
    size_t n = 0;
    (void)snprintf(folder, sizeof folder, CORPUS "/foreign_%s", name);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[512];
        if (entry->d_name[0] == '.') { continue; }
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        import_failing(path, format);
        n++;
    }
    assert_true(n > 0);
    assert_int_equal(closedir(dir), 0);
}

static void test_formats(void **state) {
    (void)state;
    import_corpus("dtr", "dtr");
    import_corpus("node_link", "node-link");
    import_corpus("min_cut", "min-cut");
    import_corpus("g10", "g10");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_formats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
