/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory through the caller's hooks: single blocks, doubling arrays, and the bump, whose blocks
 * all die with it.
 */
#include "base/base.h"

#include <stdlib.h>

#define BUMP_CHUNK_BYTES ((size_t)64 * 1024)
#define BUMP_ALIGN ((size_t)16)

struct ebb_bump_chunk {
    ebb_bump_chunk *next;
    size_t cap, used; /* bytes behind this header */
};

static void *default_alloc(void *ctx, size_t size_bytes) {
    (void)ctx;
    return malloc(size_bytes);
}

static void *default_resize(void *ctx, void *ptr, size_t size_bytes) {
    (void)ctx;
    return realloc(ptr, size_bytes);
}

static void default_free(void *ctx, void *ptr) {
    (void)ctx;
    free(ptr);
}

const ebb_mem *ebb__mem_or_default(const ebb_mem *mem) {
    static const ebb_mem hooks = {default_alloc, default_resize, default_free, NULL};
    return mem != NULL ? mem : &hooks;
}

void *ebb__alloc(const ebb_mem *mem, size_t n, size_t elem_bytes) {
    uint64_t size_bytes = 0;
    if (!ebb_mul_u64(n, elem_bytes, &size_bytes) || size_bytes > SIZE_MAX) {
        (void)ebb_fail(EBB_E_NO_MEMORY, "out of host memory: %zu times %zu bytes", n, elem_bytes);
        return NULL;
    }
    mem = ebb__mem_or_default(mem);
    void *ptr = mem->alloc(mem->ctx, size_bytes > 0 ? (size_t)size_bytes : 1);
    if (ptr == NULL) { (void)ebb_fail(EBB_E_NO_MEMORY, "out of host memory: %zu times %zu bytes", n, elem_bytes); }
    return ptr;
}

void *ebb__calloc(const ebb_mem *mem, size_t n, size_t elem_bytes) {
    void *ptr = ebb__alloc(mem, n, elem_bytes);
    if (ptr != NULL) { memset(ptr, 0, n * elem_bytes); }
    return ptr;
}

void ebb__free(const ebb_mem *mem, void *ptr) {
    mem = ebb__mem_or_default(mem);
    if (ptr != NULL) { mem->free(mem->ctx, ptr); }
}

char *ebb__strdup(const ebb_mem *mem, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = ebb__alloc(mem, n, 1);
    if (copy != NULL) { memcpy(copy, text, n); }
    return copy;
}

ebb_status ebb__grow(const ebb_mem *mem, void **data, size_t *cap, size_t n, size_t n_more, size_t elem_bytes) {
    EBB_ASSERT(n <= *cap);
    if (n_more <= *cap - n) { return EBB_OK; }
    size_t want = *cap < 8 ? 8 : *cap;
    while (want - n < n_more) {
        if (want > SIZE_MAX / 2 / elem_bytes) {
            return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: an array of %zu elements", n);
        }
        want *= 2;
    }
    mem = ebb__mem_or_default(mem);
    void *grown = mem->resize(mem->ctx, *data, want * elem_bytes);
    if (grown == NULL) {
        return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: an array of %zu times %zu bytes", want, elem_bytes);
    }
    *data = grown;
    *cap = want;
    return EBB_OK;
}

void ebb__bump_init(ebb_bump *bump, const ebb_mem *mem) {
    bump->mem = ebb__mem_or_default(mem);
    bump->head = NULL;
}

void ebb__bump_fini(ebb_bump *bump) {
    while (bump->head != NULL) {
        ebb_bump_chunk *next = bump->head->next;
        ebb__free(bump->mem, bump->head);
        bump->head = next;
    }
}

void *ebb__bump_alloc(ebb_bump *bump, size_t n, size_t elem_bytes) {
    if (elem_bytes != 0 && n > (SIZE_MAX - 2 * BUMP_CHUNK_BYTES) / elem_bytes) {
        (void)ebb_fail(EBB_E_NO_MEMORY, "out of host memory: %zu times %zu bytes", n, elem_bytes);
        return NULL;
    }
    size_t size_bytes = (size_t)ebb_align_up(n * elem_bytes, BUMP_ALIGN);
    const size_t header = (size_t)ebb_align_up(sizeof(ebb_bump_chunk), BUMP_ALIGN);
    ebb_bump_chunk *chunk = bump->head;
    if (chunk == NULL || chunk->cap - chunk->used < size_bytes) {
        size_t cap = size_bytes > BUMP_CHUNK_BYTES / 4 ? size_bytes : BUMP_CHUNK_BYTES;
        chunk = ebb__alloc(bump->mem, 1, header + cap);
        if (chunk == NULL) { return NULL; }
        chunk->cap = cap;
        chunk->used = 0;
        bool large = cap == size_bytes && bump->head != NULL; /* keep filling the open chunk after it */
        chunk->next = large ? bump->head->next : bump->head;
        if (large) {
            bump->head->next = chunk;
        } else {
            bump->head = chunk;
        }
    }
    void *ptr = (char *)chunk + header + chunk->used;
    chunk->used += size_bytes;
    return ptr;
}

char *ebb__bump_strdup(ebb_bump *bump, const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = ebb__bump_alloc(bump, n, 1);
    if (copy != NULL) { memcpy(copy, text, n); }
    return copy;
}

ebb_status ebb__bump_own(ebb_bump *bump, const char **text) {
    if (*text == NULL) { return EBB_OK; }
    *text = ebb__bump_strdup(bump, *text);
    return *text != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

char *ebb__bump_printf(ebb_bump *bump, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    EBB_ASSERT(n >= 0);
    char *text = ebb__bump_alloc(bump, (size_t)n + 1, 1);
    if (text == NULL) { return NULL; }
    va_start(args, fmt);
    (void)vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    return text;
}
