/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests share: memory hooks that fail on demand and count what is out.
 */
#ifndef EBB_TESTS_SUPPORT_H
#define EBB_TESTS_SUPPORT_H

#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

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
 * until it succeeds: each failure must be EBB_E_NO_MEMORY, and body must have given everything back. */
#define OOM_LOOP(mem_name, st, body)                                                                                   \
    do {                                                                                                               \
        ebb_status st = EBB_E_NO_MEMORY;                                                                               \
        for (size_t oom_at_ = 1; st != EBB_OK; oom_at_++) {                                                            \
            failing_mem oom_mem_;                                                                                      \
            const ebb_mem *mem_name = &failing_mem_init(&oom_mem_, oom_at_)->hooks;                                    \
            body;                                                                                                      \
            assert_int_equal(oom_mem_.n_live, 0);                                                                      \
            assert_true(st == EBB_OK || st == EBB_E_NO_MEMORY);                                                        \
            assert_true(st == EBB_OK || oom_mem_.n_calls >= oom_at_);                                                  \
        }                                                                                                              \
    } while (0)

#endif
