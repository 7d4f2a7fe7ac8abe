/* SPDX-License-Identifier: Apache-2.0
 *
 * Indices, or whole items, sorted by 64-bit keys: least significant byte first, each pass stable, so several keys are
 * sorted by calling once for each, the least important first. The C library's qsort is not stable and may take memory
 * beside the hooks.
 *
 * A pass that looked its keys up by index would miss the cache at each of a million. So half a key travels with its
 * index in one word, the passes read words in order, and the keys themselves are looked up once a half.
 */
#include "base/base.h"

#define N_DIGITS 256u
#define HALF_BITS 32u

size_t ebb__first_not_before(size_t n, bool (*is_before)(const void *ctx, size_t place), const void *ctx) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (is_before(ctx, middle)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

size_t ebb__last_at_most(const double *x, size_t n, double most) {
    size_t low = 0;
    for (size_t high = n; high - low > 1;) {
        const size_t middle = low + (high - low) / 2;
        *(x[middle] <= most ? &low : &high) = middle;
    }
    return low;
}

static void count_to_starts(size_t *count) {
    size_t start = 0;
    for (size_t d = 0; d < N_DIGITS; d++) {
        size_t n = count[d];
        count[d] = start;
        start += n;
    }
}

/* Sort words by their upper half, of which only these bits are not the same in all; to has room for as many. Where the
 * sorted words are then. */
static uint64_t *sort_words(uint64_t *from, uint64_t *to, size_t n, uint32_t differing) {
    for (unsigned shift = 0; shift < HALF_BITS; shift += 8) {
        if ((differing >> shift & (N_DIGITS - 1)) == 0) { continue; }
        size_t count[N_DIGITS] = {0};
        for (size_t i = 0; i < n; i++) { count[from[i] >> (HALF_BITS + shift) & (N_DIGITS - 1)]++; }
        count_to_starts(count);
        for (size_t i = 0; i < n; i++) { to[count[from[i] >> (HALF_BITS + shift) & (N_DIGITS - 1)]++] = from[i]; }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

ebb_status ebb__sort_by_key(const ebb_mem *mem, uint32_t *idx, size_t n, const uint64_t *key) {
    uint64_t differing = 0; /* bits that are not the same in all keys */
    bool in_order = true;
    for (size_t i = 1; i < n; i++) {
        differing |= key[idx[i]] ^ key[idx[0]];
        in_order = in_order && key[idx[i - 1]] <= key[idx[i]];
    }
    if (in_order) { return EBB_OK; }
    EBB_ASSERT(n > 1 && differing != 0);
    uint64_t *words = ebb__alloc(mem, n, 2 * sizeof *words);
    if (words == NULL) { return EBB_E_NO_MEMORY; }
    for (unsigned half = 0; half < 64; half += HALF_BITS) {
        const uint32_t differs_here = (uint32_t)(differing >> half);
        if (differs_here == 0) { continue; }
        for (size_t i = 0; i < n; i++) { words[i] = key[idx[i]] >> half << HALF_BITS | idx[i]; }
        const uint64_t *sorted = sort_words(words, words + n, n, differs_here);
        for (size_t i = 0; i < n; i++) { idx[i] = (uint32_t)sorted[i]; }
    }
    ebb__free(mem, words);
    return EBB_OK;
}

ebb_status ebb__sort_items(const ebb_mem *mem, void *items, size_t n, size_t item_bytes,
                           uint64_t (*key_of)(const void *item)) {
    EBB_ASSERT(n <= UINT32_MAX);
    if (n < 2) { return EBB_OK; }
    const char *item = items;
    ebb_bump scratch;
    ebb__bump_init(&scratch, mem);
    uint64_t *key = ebb__bump_alloc(&scratch, n, sizeof *key);
    uint32_t *idx = ebb__bump_alloc(&scratch, n, sizeof *idx);
    char *sorted = ebb__bump_alloc(&scratch, n, item_bytes);
    ebb_status st = key != NULL && idx != NULL && sorted != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        key[i] = key_of(item + i * item_bytes);
        idx[i] = (uint32_t)i;
    }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, idx, n, key); }
    for (size_t i = 0; st == EBB_OK && i < n; i++) {
        memcpy(sorted + i * item_bytes, item + idx[i] * item_bytes, item_bytes);
    }
    if (st == EBB_OK) { memcpy(items, sorted, n * item_bytes); }
    ebb__bump_fini(&scratch);
    return st;
}
