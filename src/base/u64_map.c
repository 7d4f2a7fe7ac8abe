/* SPDX-License-Identifier: Apache-2.0
 *
 * The map of u64_map.h. Removing moves back what the freed slot had kept from its home, so that no slot is ever
 * marked as deleted.
 */
#include "base/u64_map.h"

#define FIRST_SLOTS ((size_t)64)

void ebb__u64_map_init(ebb_u64_map *map, const ebb_mem *mem) {
    *map = (ebb_u64_map){.mem = mem};
}

void ebb__u64_map_fini(ebb_u64_map *map) {
    ebb__free(map->mem, map->slot);
    *map = (ebb_u64_map){.mem = map->mem};
}

static size_t home_of(const ebb_u64_map *map, uint64_t key) {
    const uint64_t mixed = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 32 ^ mixed) & (map->n_slots - 1);
}

/* The slot of this key, or the free one where it belongs. */
static ebb_u64_slot *slot_of(const ebb_u64_map *map, uint64_t key) {
    size_t i = home_of(map, key);
    while (map->slot[i].used && map->slot[i].key != key) { i = (i + 1) & (map->n_slots - 1); }
    return &map->slot[i];
}

uint64_t *ebb__u64_map_find(const ebb_u64_map *map, uint64_t key) {
    if (map->n_slots == 0) { return NULL; }
    ebb_u64_slot *slot = slot_of(map, key);
    return slot->used ? &slot->value : NULL;
}

static ebb_status grow(ebb_u64_map *map) {
    if (2 * (map->n + 1) <= map->n_slots) { return EBB_OK; }
    const ebb_u64_map old = *map;
    const size_t n_slots = old.n_slots == 0 ? FIRST_SLOTS : 2 * old.n_slots;
    EBB_ASSERT((n_slots & (n_slots - 1)) == 0);
    ebb_u64_slot *slot = ebb__calloc(map->mem, n_slots, sizeof *slot);
    if (slot == NULL) { return EBB_E_NO_MEMORY; }
    map->slot = slot;
    map->n_slots = n_slots;
    for (size_t i = 0; i < old.n_slots; i++) {
        if (old.slot[i].used) { *slot_of(map, old.slot[i].key) = old.slot[i]; }
    }
    ebb__free(map->mem, old.slot);
    return EBB_OK;
}

ebb_status ebb__u64_map_add(ebb_u64_map *map, uint64_t key, uint64_t **value_out, bool *is_new_out) {
    EBB_TRY(grow(map));
    ebb_u64_slot *slot = slot_of(map, key);
    EBB_ASSERT(2 * (map->n + 1) <= map->n_slots); /* so that a search ends */
    *is_new_out = !slot->used;
    if (!slot->used) {
        *slot = (ebb_u64_slot){key, 0, true};
        map->n++;
    }
    *value_out = &slot->value;
    return EBB_OK;
}

void ebb__u64_map_remove(ebb_u64_map *map, uint64_t key) {
    if (ebb__u64_map_find(map, key) == NULL) { return; }
    const size_t mask = map->n_slots - 1;
    size_t hole = (size_t)(slot_of(map, key) - map->slot);
    for (size_t i = (hole + 1) & mask; map->slot[i].used; i = (i + 1) & mask) {
        const size_t home = home_of(map, map->slot[i].key);
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->slot[hole] = map->slot[i];
            hole = i;
        }
    }
    EBB_ASSERT(map->slot[hole].used && map->n > 0);
    map->slot[hole].used = false;
    map->n--;
}
