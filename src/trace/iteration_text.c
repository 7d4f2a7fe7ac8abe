/* SPDX-License-Identifier: Apache-2.0
 *
 * What the search looks things up in: hashes of all prefixes (so that a window's hash is a subtraction; Karp and Rabin,
 * 1987), the live bytes, and the life of each block.
 */
#include "trace/iteration_priv.h"

#define HASH_BASE 0x9ddfea08eb382d69u
#define HASH_SPREAD 0xff51afd7ed558ccdu

uint64_t ebb__iteration_power(uint32_t n) {
    uint64_t power = 1, square = HASH_BASE;
    for (; n > 0; n /= 2) {
        if (n % 2 == 1) { power *= square; }
        square *= square;
    }
    return power;
}

static void read_event(ebb_iteration_text *text, uint32_t at) {
    const uint32_t symbol = text->symbols[at], block = text->finder->blocks.data[at];
    uint64_t live_bytes = text->live_bytes[at];
    const uint64_t spread = (symbol + (uint64_t)1) * HASH_SPREAD;
    text->prefix[at + 1] = text->prefix[at] * HASH_BASE + (spread ^ spread >> 32);
    if ((symbol & EBB_SYMBOL_MASK) == EBB_SYMBOL_ALLOC) {
        text->born[block] = at;
        live_bytes += text->finder->sizes.data[block];
    } else if ((symbol & EBB_SYMBOL_MASK) == EBB_SYMBOL_FREE && text->died[block] == text->n) {
        text->died[block] = at;
        live_bytes -= text->finder->sizes.data[block];
    }
    text->live_bytes[at + 1] = live_bytes;
    text->peak_bytes = ebb_max_u64(text->peak_bytes, live_bytes);
}

ebb_status ebb__iteration_text_init(ebb_iteration_text *text, const ebb_iteration_finder *finder, ebb_bump *bump) {
    const size_t n = finder->symbols.n, n_blocks = finder->sizes.n;
    *text = (ebb_iteration_text){.finder = finder, .symbols = finder->symbols.data, .n = (uint32_t)n};
    text->prefix = ebb__bump_alloc(bump, n + 1, sizeof *text->prefix);
    text->live_bytes = ebb__bump_alloc(bump, n + 1, sizeof *text->live_bytes);
    text->born = ebb__bump_alloc(bump, n_blocks, sizeof *text->born);
    text->died = ebb__bump_alloc(bump, n_blocks, sizeof *text->died);
    if (text->prefix == NULL || text->live_bytes == NULL || text->born == NULL || text->died == NULL) {
        return EBB_E_NO_MEMORY;
    }
    text->prefix[0] = text->live_bytes[0] = 0;
    for (size_t b = 0; b < n_blocks; b++) { text->died[b] = text->n; }
    for (uint32_t at = 0; at < text->n; at++) { read_event(text, at); }
    return EBB_OK;
}
