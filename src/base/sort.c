/* SPDX-License-Identifier: Apache-2.0
 *
 * Searching what is sorted, and indices sorted by 64-bit keys: least significant byte first, each pass stable, so
 * several keys are sorted by calling once for each, the least important first. The C library's qsort is not stable and
 * may take memory beside the hooks.
 */
#include "base/base.h"

#define N_DIGITS 256u

static void count_to_starts(size_t *count) {
    size_t start = 0;
    for (size_t d = 0; d < N_DIGITS; d++) {
        size_t n = count[d];
        count[d] = start;
        start += n;
    }
}

ebb_status ebb__sort_by_key(const ebb_mem *mem, uint32_t *idx, size_t n, const uint64_t *key) {
    uint32_t *spare = ebb__alloc(mem, n, sizeof *spare);
    if (spare == NULL) { return EBB_E_NO_MEMORY; }
    uint32_t *from = idx, *to = spare;
    uint64_t differing = 0; /* bits that are not the same in all keys */
    for (size_t i = 1; i < n; i++) { differing |= key[idx[i]] ^ key[idx[0]]; }
    for (unsigned shift = 0; shift < 64; shift += 8) {
        if ((differing >> shift & (N_DIGITS - 1)) == 0) { continue; }
        size_t count[N_DIGITS] = {0};
        for (size_t i = 0; i < n; i++) { count[(key[from[i]] >> shift) & (N_DIGITS - 1)]++; }
        count_to_starts(count);
        for (size_t i = 0; i < n; i++) { to[count[(key[from[i]] >> shift) & (N_DIGITS - 1)]++] = from[i]; }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != idx && n > 0) { memcpy(idx, from, n * sizeof *idx); }
    ebb__free(mem, spare);
    return EBB_OK;
}

size_t ebb__find_last(const uint64_t *sorted, size_t n, uint64_t value) {
    size_t low = 0, high = n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (sorted[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}
