/* SPDX-License-Identifier: Apache-2.0
 *
 * The two tables of writer and reader: distinct keys, and live blocks. Both are arrays of slots probed one
 * after the other and at most half full.
 */
#include "trace/trace_priv.h"

#define FIRST_SLOTS 64u

/* ---- distinct keys ---------------------------------------------------------------------------- */

void ebb__trace_keys_init(ebb_trace_keys *keys, const ebb_mem *mem) {
    memset(keys, 0, sizeof *keys);
    keys->mem = mem;
    ebb__bump_init(&keys->bump, mem);
}

void ebb__trace_keys_fini(ebb_trace_keys *keys) {
    EBB_VEC_FINI(keys->mem, &keys->keys);
    ebb__free(keys->mem, keys->slot);
    ebb__bump_fini(&keys->bump);
}

static uint64_t hash_of(const void *data, size_t n_bytes) {
    const uint64_t hash = ebb__hash(EBB_HASH_INIT, data, n_bytes);
    return hash ^ hash >> 32; /* the low bits choose the slot */
}

/* The slot of this key, or the free one where it belongs. */
static uint32_t *find_key(const ebb_trace_keys *keys, uint64_t hash, const void *data, size_t n_bytes) {
    EBB_ASSERT(2 * keys->keys.n <= keys->n_slots); /* so that a search ends */
    size_t i = hash & (keys->n_slots - 1);
    for (; keys->slot[i] != 0; i = (i + 1) & (keys->n_slots - 1)) {
        const size_t k = keys->slot[i] - 1;
        if (keys->keys.data[k].hash == hash && keys->keys.data[k].n_bytes == n_bytes &&
            memcmp(keys->keys.data[k].data, data, n_bytes) == 0) {
            break;
        }
    }
    return &keys->slot[i];
}

static ebb_status grow_keys(ebb_trace_keys *keys) {
    if (2 * (keys->keys.n + 1) <= keys->n_slots) { return EBB_OK; }
    size_t n_slots = keys->n_slots == 0 ? FIRST_SLOTS : 2 * keys->n_slots;
    uint32_t *slot = ebb__calloc(keys->mem, n_slots, sizeof *slot);
    if (slot == NULL) { return EBB_E_NO_MEMORY; }
    for (size_t k = 0; k < keys->keys.n; k++) {
        size_t i = keys->keys.data[k].hash & (n_slots - 1);
        while (slot[i] != 0) { i = (i + 1) & (n_slots - 1); }
        slot[i] = (uint32_t)k + 1;
    }
    ebb__free(keys->mem, keys->slot);
    keys->slot = slot;
    keys->n_slots = n_slots;
    return EBB_OK;
}

ebb_status ebb__trace_keys_add(ebb_trace_keys *keys, const void *data, size_t n_bytes, uint32_t *number_out,
                               bool *is_new_out) {
    if (keys->keys.n >= UINT32_MAX - 1) { return ebb_fail(EBB_E_LIMIT, "more than 2^32 - 2 distinct strings"); }
    EBB_TRY(grow_keys(keys));
    EBB_TRY(EBB_RESERVE(keys->mem, &keys->keys, 1));
    const uint64_t hash = hash_of(data, n_bytes);
    uint32_t *slot = find_key(keys, hash, data, n_bytes);
    *is_new_out = *slot == 0;
    if (*is_new_out) {
        void *copy = ebb__bump_alloc(&keys->bump, n_bytes, 1);
        if (copy == NULL) { return EBB_E_NO_MEMORY; }
        memcpy(copy, data, n_bytes);
        size_t k = keys->keys.n++;
        keys->keys.data[k].data = copy;
        keys->keys.data[k].n_bytes = n_bytes;
        keys->keys.data[k].hash = hash;
        *slot = (uint32_t)keys->keys.n;
    }
    EBB_ASSERT(*slot > 0 && *slot <= keys->keys.n);
    *number_out = *slot;
    return EBB_OK;
}

uint32_t ebb__trace_keys_find(const ebb_trace_keys *keys, const void *data, size_t n_bytes) {
    return keys->n_slots > 0 ? *find_key(keys, hash_of(data, n_bytes), data, n_bytes) : 0;
}

/* ---- live blocks ------------------------------------------------------------------------------ */

void ebb__trace_live_init(ebb_trace_live *live, const ebb_mem *mem) {
    *live = (ebb_trace_live){.mem = mem};
}

void ebb__trace_live_fini(ebb_trace_live *live) {
    ebb__free(live->mem, live->slot);
    live->slot = NULL;
}

static size_t home_of(const ebb_trace_live *live, uint64_t key) {
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 32) & (live->n_slots - 1);
}

ebb_trace_block *ebb__trace_live_find(const ebb_trace_live *live, uint64_t block) {
    if (live->n_slots == 0) { return NULL; }
    for (size_t i = home_of(live, block + 1);; i = (i + 1) & (live->n_slots - 1)) {
        if (live->slot[i].block == block + 1) { return &live->slot[i]; }
        if (live->slot[i].block == 0) { return NULL; }
    }
}

static void put_block(ebb_trace_live *live, const ebb_trace_block *block) {
    size_t i = home_of(live, block->block);
    while (live->slot[i].block != 0) { i = (i + 1) & (live->n_slots - 1); }
    live->slot[i] = *block;
}

static ebb_status grow_live(ebb_trace_live *live) {
    if (2 * (live->n + 1) <= live->n_slots) { return EBB_OK; }
    ebb_trace_live old = *live;
    size_t n_slots = old.n_slots == 0 ? FIRST_SLOTS : 2 * old.n_slots;
    ebb_trace_block *slot = ebb__calloc(live->mem, n_slots, sizeof *slot);
    if (slot == NULL) { return EBB_E_NO_MEMORY; }
    live->slot = slot;
    live->n_slots = n_slots;
    for (size_t i = 0; i < old.n_slots; i++) {
        if (old.slot[i].block != 0) { put_block(live, &old.slot[i]); }
    }
    ebb__free(live->mem, old.slot);
    return EBB_OK;
}

ebb_status ebb__trace_live_add(ebb_trace_live *live, const ebb_trace_block *block) {
    EBB_ASSERT(block->block != 0 && ebb__trace_live_find(live, block->block - 1) == NULL);
    EBB_TRY(grow_live(live));
    put_block(live, block);
    live->n++;
    EBB_ASSERT(2 * live->n <= live->n_slots);
    return EBB_OK;
}

/* Move back what the freed slot kept from its home. */
void ebb__trace_live_remove(ebb_trace_live *live, ebb_trace_block *block) {
    const size_t mask = live->n_slots - 1;
    size_t hole = (size_t)(block - live->slot);
    EBB_ASSERT(hole <= mask && block->block != 0);
    for (size_t i = (hole + 1) & mask; live->slot[i].block != 0; i = (i + 1) & mask) {
        size_t home = home_of(live, live->slot[i].block);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            live->slot[hole] = live->slot[i];
            hole = i;
        }
    }
    live->slot[hole].block = 0;
    live->n--;
}
