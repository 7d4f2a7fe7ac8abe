/* SPDX-License-Identifier: Apache-2.0
 *
 * The stored inputs of the fuzz targets, one after the other.
 */
#ifndef EBB_TESTS_CORPUS_H
#define EBB_TESTS_CORPUS_H

#include "support.h"

#include <dirent.h>

/* There is one at least. */
static inline void each_in_corpus(const char *target, const char *format,
                                  void (*try_file)(const char *path, const char *format)) {
    char folder[128];
    size_t n = 0;
    (void)snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", target);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[512];
        if (entry->d_name[0] == '.') { continue; }
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        try_file(path, format);
        n++;
    }
    assert_true(n > 0);
    assert_int_equal(closedir(dir), 0);
}

#endif
