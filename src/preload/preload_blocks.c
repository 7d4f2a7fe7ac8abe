/* SPDX-License-Identifier: Apache-2.0
 *
 * Live blocks by the key under which the program will free them. Open addressing with linear probing, at most half
 * full; what is removed is closed up, so that no graves gather. Under the recorder's lock.
 */
#include "preload/preload.h"

#define FIRST_SLOTS ((size_t)1024)

static size_t home_of(const preload_blocks *blocks, uint64_t key) {
    return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (blocks->n_slots - 1);
}

static size_t probe(const preload_blocks *blocks, uint64_t key) {
    size_t at = home_of(blocks, key);
    EBB_ASSERT(key != 0 && 2 * blocks->n <= blocks->n_slots && (blocks->n_slots & (blocks->n_slots - 1)) == 0);
    while (blocks->slot[at].key != 0 && blocks->slot[at].key != key) { at = (at + 1) & (blocks->n_slots - 1); }
    return at;
}

preload_block *ebb__preload_blocks_find(const preload_blocks *blocks, uint64_t key) {
    if (key == 0 || blocks->n_slots == 0) { return NULL; } /* free slots have that key */
    preload_block *found = &blocks->slot[probe(blocks, key)];
    return found->key == key ? found : NULL;
}

static bool grow(preload_blocks *blocks) {
    preload_blocks larger = {.n_slots = blocks->n_slots == 0 ? FIRST_SLOTS : 2 * blocks->n_slots, .n = blocks->n};
    larger.slot = ebb__calloc(&ebb__preload_mem, larger.n_slots, sizeof *larger.slot);
    if (larger.slot == NULL) { return false; }
    for (size_t i = 0; i < blocks->n_slots; i++) {
        if (blocks->slot[i].key != 0) { larger.slot[probe(&larger, blocks->slot[i].key)] = blocks->slot[i]; }
    }
    ebb__free(&ebb__preload_mem, blocks->slot);
    EBB_ASSERT(2 * (larger.n + 1) <= larger.n_slots);
    *blocks = larger;
    return true;
}

bool ebb__preload_blocks_add(preload_blocks *blocks, const preload_block *block) {
    EBB_ASSERT(block->key != 0 && ebb__preload_blocks_find(blocks, block->key) == NULL);
    if (2 * (blocks->n + 1) > blocks->n_slots && !grow(blocks)) { return false; }
    blocks->slot[probe(blocks, block->key)] = *block;
    blocks->n++;
    return true;
}

void ebb__preload_blocks_remove(preload_blocks *blocks, preload_block *block) {
    const size_t mask = blocks->n_slots - 1;
    size_t hole = (size_t)(block - blocks->slot);
    EBB_ASSERT(hole < blocks->n_slots && block->key != 0 && blocks->n > 0);
    for (size_t at = (hole + 1) & mask; blocks->slot[at].key != 0; at = (at + 1) & mask) {
        /* Whoever probed across the hole to get here moves into it. */
        if (((at - home_of(blocks, blocks->slot[at].key)) & mask) >= ((at - hole) & mask)) {
            blocks->slot[hole] = blocks->slot[at];
            hole = at;
        }
    }
    blocks->slot[hole].key = 0;
    blocks->n--;
}
