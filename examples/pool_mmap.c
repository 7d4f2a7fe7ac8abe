/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool alone, over an mmap of one's own: a loop that asks for the same blocks again and again, first while the pool
 * learns, then from its plan.
 *
 *   cc pool_mmap.c $(pkg-config --cflags --libs ebb) -o pool_mmap && ./pool_mmap
 */
#define _DEFAULT_SOURCE
#include <ebb/pool.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA_BYTES ((size_t)256 << 20)
#define N_LAYERS 40

/* Activations grow from layer to layer, then go in reverse order; each layer has a workspace. */
static ebb_status iterate(ebb_pool *pool) {
    uint64_t activation[N_LAYERS], workspace;
    for (int i = 0; i < N_LAYERS; i++) {
        const size_t size_bytes = (size_t)(1 + i % 7) * 300000;
        if (ebb_pool_alloc(pool, size_bytes, &activation[i]) != EBB_OK) { return EBB_E_NO_FIT; }
        if (ebb_pool_alloc(pool, 3 * size_bytes / 2, &workspace) != EBB_OK) { return EBB_E_NO_FIT; }
        memset((void *)(uintptr_t)activation[i], i, size_bytes);
        if (ebb_pool_free(pool, workspace) != EBB_OK) { return EBB_E_ARGUMENT; }
    }
    for (int i = N_LAYERS; i-- > 0;) {
        if (*(char *)(uintptr_t)activation[i] != (char)i) { return EBB_E_INTERNAL; }
        if (ebb_pool_free(pool, activation[i]) != EBB_OK) { return EBB_E_ARGUMENT; }
    }
    return EBB_OK;
}

int main(void) {
    void *arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ebb_pool_options options = EBB_POOL_OPTIONS_INIT;
    ebb_pool_stats stats = {.size_bytes = sizeof stats};
    ebb_pool *pool = NULL;
    if (arena == MAP_FAILED) { return 1; }
    options.base = (uint64_t)(uintptr_t)arena;
    options.capacity_bytes = ARENA_BYTES;
    options.learns = true;
    ebb_status st = ebb_pool_create(&options, &pool);
    for (int k = 0; k < 100 && st == EBB_OK; k++) { st = iterate(pool); }
    if (st == EBB_OK) { st = ebb_pool_get_stats(pool, &stats); }
    if (st == EBB_OK) {
        printf("%llu requests, %llu from the plan of %llu bytes; most that lived at once: %llu bytes\n",
               (unsigned long long)stats.n_requests, (unsigned long long)stats.n_hits,
               (unsigned long long)stats.plan_bytes, (unsigned long long)stats.peak_live_bytes);
    } else {
        fprintf(stderr, "pool_mmap: %s\n", ebb_last_error());
    }
    ebb_pool_destroy(pool);
    return st == EBB_OK && munmap(arena, ARENA_BYTES) == 0 ? 0 : 1;
}
