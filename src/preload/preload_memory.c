/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for the recorder, straight from the kernel: inside a program's malloc there is no malloc. Small pieces are
 * cut off chunks and never come back; large ones (tables that grow) are mappings of their own. One thread at a time:
 * the recorder's lock is held.
 */
#include "preload/preload.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK_BYTES ((size_t)256 * 1024)
#define LARGE_BYTES ((size_t)32 * 1024)
#define HEADER_BYTES ((size_t)16) /* before each piece: its size */

static uint8_t *chunk;
static size_t chunk_left;

static void *map(size_t size_bytes) {
    /* The kernel itself: mmap would be the one of this library. */
    const long at = syscall(SYS_mmap, NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    return at == -1 ? NULL : (void *)(intptr_t)at;
}

static void *take(void *ctx, size_t size_bytes) {
    (void)ctx;
    if (size_bytes > SIZE_MAX / 2) { return NULL; }
    const size_t n = (size_bytes + HEADER_BYTES + 15) / 16 * 16;
    uint8_t *at = NULL;
    if (n >= LARGE_BYTES) {
        at = map(n);
    } else {
        if (chunk_left < n) {
            chunk = map(CHUNK_BYTES);
            chunk_left = chunk != NULL ? CHUNK_BYTES : 0;
        }
        at = chunk;
        if (at != NULL) {
            EBB_ASSERT(n <= chunk_left);
            chunk += n;
            chunk_left -= n;
        }
    }
    if (at == NULL) { return NULL; }
    *(size_t *)(void *)at = n;
    return at + HEADER_BYTES;
}

static void give(void *ctx, void *piece) {
    (void)ctx;
    if (piece == NULL) { return; }
    uint8_t *at = (uint8_t *)piece - HEADER_BYTES;
    const size_t n = *(size_t *)(void *)at;
    EBB_ASSERT(n > HEADER_BYTES && n % 16 == 0 && (uintptr_t)at % 16 == 0);
    if (n >= LARGE_BYTES) { (void)syscall(SYS_munmap, at, n); }
}

static void *resize(void *ctx, void *piece, size_t size_bytes) {
    void *grown = take(ctx, size_bytes);
    if (grown == NULL || piece == NULL) { return grown; }
    const size_t n = *(size_t *)(void *)((uint8_t *)piece - HEADER_BYTES) - HEADER_BYTES;
    memcpy(grown, piece, n < size_bytes ? n : size_bytes);
    give(ctx, piece);
    return grown;
}

const ebb_mem ebb__preload_mem = {take, resize, give, NULL};
