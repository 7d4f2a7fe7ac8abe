/* SPDX-License-Identifier: Apache-2.0
 *
 * In front of malloc and its family. Small requests are handed on after one comparison; a free looks at a filter.
 *
 * While dlsym finds the real functions it may itself ask for memory, before there is any: a small buffer serves that.
 */
#include "preload/preload.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#define EARLY_BYTES ((size_t)8192)

static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void *(*real_aligned_alloc)(size_t, size_t);
static void *(*real_memalign)(size_t, size_t);
static int (*real_posix_memalign)(void **, size_t, size_t);
static void (*real_free)(void *);

static _Alignas(16) uint8_t early[EARLY_BYTES];
static atomic_size_t early_used;
static _Thread_local bool is_finding __attribute__((tls_model("initial-exec")));

PRELOAD_EXPORT void *malloc(size_t n_bytes);
PRELOAD_EXPORT void *calloc(size_t n, size_t elem_bytes);
PRELOAD_EXPORT void *realloc(void *memory, size_t n_bytes);
PRELOAD_EXPORT void *reallocarray(void *memory, size_t n, size_t elem_bytes);
PRELOAD_EXPORT void *aligned_alloc(size_t alignment, size_t n_bytes);
PRELOAD_EXPORT void *memalign(size_t alignment, size_t n_bytes);
PRELOAD_EXPORT int posix_memalign(void **memory_out, size_t alignment, size_t n_bytes);
PRELOAD_EXPORT void *valloc(size_t n_bytes);
PRELOAD_EXPORT void free(void *memory);

/* real_malloc comes last: where it is there, all are. */
static void find_real(void) {
    is_finding = true;
    *(void **)&real_calloc = ebb__preload_next("calloc");
    *(void **)&real_realloc = ebb__preload_next("realloc");
    *(void **)&real_aligned_alloc = ebb__preload_next("aligned_alloc");
    *(void **)&real_memalign = ebb__preload_next("memalign");
    *(void **)&real_posix_memalign = ebb__preload_next("posix_memalign");
    *(void **)&real_free = ebb__preload_next("free");
    *(void **)&real_malloc = ebb__preload_next("malloc");
    is_finding = false;
}

static void *take_early(size_t n_bytes) {
    const size_t n = (n_bytes + 15) / 16 * 16;
    const size_t at = atomic_fetch_add(&early_used, n);
    return n_bytes <= EARLY_BYTES && at + n <= EARLY_BYTES ? early + at : NULL;
}

static bool is_early(const void *memory) {
    return (uintptr_t)memory - (uintptr_t)early < EARLY_BYTES;
}

/* The real functions are there; false: take the early buffer. */
static inline bool is_ready(void) {
    if (__builtin_expect(real_malloc != NULL, 1)) { return true; }
    if (!is_finding) { find_real(); }
    return real_malloc != NULL;
}

/* ---- large ones --------------------------------------------------------------------------------- */

typedef enum family { MALLOC, CALLOC, ALIGNED, MEMALIGN } family;

static void *call_real(family which, size_t alignment, size_t n_bytes) {
    switch (which) {
    case MALLOC: return real_malloc(n_bytes);
    case CALLOC: return real_calloc(1, n_bytes);
    case ALIGNED: return real_aligned_alloc(alignment, n_bytes);
    case MEMALIGN: return real_memalign(alignment, n_bytes);
    }
    EBB_ASSERT(false);
    return NULL;
}

static void *take_large(family which, size_t alignment, size_t n_bytes) {
    const preload_answer answer = ebb__preload_ask(PRELOAD_MALLOC, n_bytes);
    if (answer == PRELOAD_REFUSE) {
        errno = ENOMEM;
        return NULL;
    }
    void *memory = call_real(which, alignment, n_bytes);
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MALLOC, (uintptr_t)memory, n_bytes, n_bytes); }
    return memory;
}

/* The old block is no more before the real call: after it another thread may have its address. */
static void *resize_large(void *memory, size_t n_bytes) {
    preload_block was;
    const bool had = memory != NULL && ebb__preload_take((uintptr_t)memory, &was);
    const bool is_large = n_bytes >= ebb__preload_min_bytes;
    const preload_answer answer = is_large ? ebb__preload_ask(PRELOAD_MALLOC, n_bytes) : PRELOAD_PASS;
    void *resized = NULL;
    if (answer != PRELOAD_REFUSE) { resized = real_realloc(memory, n_bytes); }
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MALLOC, (uintptr_t)resized, n_bytes, n_bytes); }
    if (resized == NULL && had && n_bytes > 0) { ebb__preload_give_back(&was); }
    if (answer == PRELOAD_REFUSE) { errno = ENOMEM; }
    return resized;
}

/* ---- what the program calls ---------------------------------------------------------------------- */

void *malloc(size_t n_bytes) {
    if (!is_ready()) { return take_early(n_bytes); }
    return n_bytes < ebb__preload_min_bytes ? real_malloc(n_bytes) : take_large(MALLOC, 0, n_bytes);
}

void *calloc(size_t n, size_t elem_bytes) {
    size_t n_bytes = 0;
    if (__builtin_mul_overflow(n, elem_bytes, &n_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    if (!is_ready()) { return take_early(n_bytes); } /* zero: it is static */
    return n_bytes < ebb__preload_min_bytes ? real_calloc(n, elem_bytes) : take_large(CALLOC, 0, n_bytes);
}

void *realloc(void *memory, size_t n_bytes) {
    if (!is_ready()) { return take_early(n_bytes); }
    if (is_early(memory)) { /* it stays behind; how long it was no one knows */
        const size_t n_left = (size_t)(early + EARLY_BYTES - (uint8_t *)memory);
        void *moved = malloc(n_bytes);
        if (moved != NULL) { memcpy(moved, memory, n_bytes < n_left ? n_bytes : n_left); }
        return moved;
    }
    if (n_bytes < ebb__preload_min_bytes && !ebb__preload_may_be((uintptr_t)memory)) {
        return real_realloc(memory, n_bytes);
    }
    return resize_large(memory, n_bytes);
}

void *reallocarray(void *memory, size_t n, size_t elem_bytes) {
    size_t n_bytes = 0;
    if (__builtin_mul_overflow(n, elem_bytes, &n_bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(memory, n_bytes);
}

void *aligned_alloc(size_t alignment, size_t n_bytes) {
    if (!is_ready()) { return NULL; }
    return n_bytes < ebb__preload_min_bytes ? real_aligned_alloc(alignment, n_bytes)
                                            : take_large(ALIGNED, alignment, n_bytes);
}

void *memalign(size_t alignment, size_t n_bytes) {
    if (!is_ready()) { return NULL; }
    return n_bytes < ebb__preload_min_bytes ? real_memalign(alignment, n_bytes)
                                            : take_large(MEMALIGN, alignment, n_bytes);
}

void *valloc(size_t n_bytes) {
    return memalign((size_t)getpagesize(), n_bytes);
}

int posix_memalign(void **memory_out, size_t alignment, size_t n_bytes) {
    if (!is_ready()) { return ENOMEM; }
    if (n_bytes < ebb__preload_min_bytes) { return real_posix_memalign(memory_out, alignment, n_bytes); }
    const preload_answer answer = ebb__preload_ask(PRELOAD_MALLOC, n_bytes);
    if (answer == PRELOAD_REFUSE) { return ENOMEM; }
    void *memory = NULL;
    const int status = real_posix_memalign(&memory, alignment, n_bytes);
    EBB_ASSERT(status == 0 || memory == NULL);
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MALLOC, (uintptr_t)memory, n_bytes, n_bytes); }
    if (status == 0) { *memory_out = memory; }
    return status;
}

void free(void *memory) {
    preload_block was;
    if (memory == NULL || is_early(memory)) { return; }
    if (ebb__preload_may_be((uintptr_t)memory)) { (void)ebb__preload_take((uintptr_t)memory, &was); }
    if (is_ready()) { real_free(memory); }
}
