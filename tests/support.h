/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests share: memory hooks that fail on demand and count what is out, a folder of a test's own that goes again,
 * and what a failure has to say.
 */
#ifndef EBB_TESTS_SUPPORT_H
#define EBB_TESTS_SUPPORT_H

#include "base/base.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct failing_mem {
    ebb_mem hooks;
    size_t n_calls; /* alloc and resize */
    size_t fail_at; /* from 1; 0: never */
    size_t n_live;  /* blocks that are out */
} failing_mem;

static inline bool failing_mem_fails(failing_mem *f) {
    return ++f->n_calls == f->fail_at;
}

static inline void *failing_mem_alloc(void *ctx, size_t size_bytes) {
    failing_mem *f = ctx;
    if (failing_mem_fails(f)) { return NULL; }
    void *ptr = malloc(size_bytes);
    f->n_live += ptr != NULL;
    return ptr;
}

static inline void *failing_mem_resize(void *ctx, void *ptr, size_t size_bytes) {
    failing_mem *f = ctx;
    if (failing_mem_fails(f)) { return NULL; }
    void *grown = realloc(ptr, size_bytes);
    f->n_live += ptr == NULL && grown != NULL;
    return grown;
}

static inline void failing_mem_free(void *ctx, void *ptr) {
    failing_mem *f = ctx;
    f->n_live -= ptr != NULL;
    free(ptr);
}

static inline failing_mem *failing_mem_init(failing_mem *f, size_t fail_at) {
    *f = (failing_mem){.hooks = {failing_mem_alloc, failing_mem_resize, failing_mem_free, f}, .fail_at = fail_at};
    return f;
}

/* Run body, which sets st and takes its memory from the hooks mem, with its 1st, 2nd, 3rd ... allocation failing,
 * until none does: each failure must be EBB_E_NO_MEMORY, and body must have given everything back. Once body has done
 * without an allocation, as a search may, not every one is tried any more. */
#define OOM_LOOP(mem_name, st, body)                                                                                   \
    do {                                                                                                               \
        bool is_tolerant_ = false, has_failed_ = true;                                                                 \
        for (size_t oom_at_ = 1; has_failed_; oom_at_ += is_tolerant_ ? 1 + oom_at_ / 8 : 1) {                         \
            ebb_status st = EBB_E_NO_MEMORY;                                                                           \
            failing_mem oom_mem_;                                                                                      \
            const ebb_mem *mem_name = &failing_mem_init(&oom_mem_, oom_at_)->hooks;                                    \
            body;                                                                                                      \
            has_failed_ = oom_mem_.n_calls >= oom_at_;                                                                 \
            is_tolerant_ = is_tolerant_ || (has_failed_ && st == EBB_OK);                                              \
            assert_int_equal(oom_mem_.n_live, 0);                                                                      \
            assert_true(st == EBB_OK || (has_failed_ && st == EBB_E_NO_MEMORY));                                       \
        }                                                                                                              \
    } while (0)

/* ---- a folder --------------------------------------------------------------------------------- */

typedef struct data_dir {
    char path[64];
    char file[256]; /* of the last call of data_path */
} data_dir;

static inline void data_dir_make(data_dir *d) {
    strcpy(d->path, "/tmp/ebb-test-XXXXXX");
    assert_non_null(mkdtemp(d->path));
}

static inline int data_dir_remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
    (void)info;
    (void)kind;
    (void)at;
    return remove(path);
}

static inline void data_dir_remove(data_dir *d) {
    assert_int_equal(nftw(d->path, data_dir_remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* The path of a file in it, with the folders on the way made. Valid until the next call. */
static inline const char *data_path(data_dir *d, const char *name) {
    (void)snprintf(d->file, sizeof d->file, "%s/%s", d->path, name);
    for (char *c = d->file + strlen(d->path) + 1; *c != '\0'; c++) {
        if (*c != '/') { continue; }
        *c = '\0';
        (void)mkdir(d->file, 0700);
        *c = '/';
    }
    return d->file;
}

static inline void data_put(data_dir *d, const char *name, const void *data, size_t n) {
    FILE *file = fopen(data_path(d, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* The folder of the test that runs, for tests listed as IN_DIR(test). */
static data_dir test_dir __attribute__((unused));

static inline int setup_dir(void **state) {
    (void)state;
    data_dir_make(&test_dir);
    return 0;
}

static inline int teardown_dir(void **state) {
    (void)state;
    data_dir_remove(&test_dir);
    return 0;
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, setup_dir, teardown_dir)

/* ---- a file ----------------------------------------------------------------------------------- */

/* The path of the test or group that runs, between setup_path and teardown_path; an empty file at first. */
static char test_path[64] __attribute__((unused));

static inline int setup_path(void **state) {
    (void)state;
    strcpy(test_path, "/tmp/ebb-test-XXXXXX");
    const int fd = mkstemp(test_path);
    return fd < 0 || close(fd) != 0 ? -1 : 0;
}

static inline int teardown_path(void **state) {
    (void)state;
    (void)unlink(test_path);
    return 0;
}

/* ---- failures --------------------------------------------------------------------------------- */

/* The last failure's message has these words in it. */
static inline void expect_message(const char *says) {
    if (strstr(ebb_last_error(), says) == NULL) { fail_msg("'%s' does not say '%s'", ebb_last_error(), says); }
}

/* For a case that takes long: it runs where all tests are asked for (tools/test.sh all), and is skipped otherwise. */
static inline void only_when_all(void) {
    if (getenv("EBB_TEST_ALL") == NULL) {
        print_message("it takes long, and runs with tools/test.sh all\n");
        skip();
    }
}

/* How often a test does what it repeats: quick in tools/test.sh; under tools/test.sh all as usual with the sanitizers
 * and most in the long form. */
static inline uint64_t by_form(uint64_t quick, uint64_t usual, uint64_t most) {
    if (getenv("EBB_TEST_ALL") != NULL) { return most; }
    return getenv("EBB_TEST_MORE") != NULL ? usual : quick;
}

/* An environment variable's number. */
static inline uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

#endif
