/* SPDX-License-Identifier: Apache-2.0
 *
 * A map from numbers of 64 bits to numbers of 64 bits: slots probed one after the other, at most half of them full.
 */
#ifndef EBB_SRC_BASE_U64_MAP_H
#define EBB_SRC_BASE_U64_MAP_H

#include "base/base.h"

typedef struct ebb_u64_slot {
    uint64_t key, value;
    bool used;
} ebb_u64_slot;

typedef struct ebb_u64_map {
    const ebb_mem *mem;
    ebb_u64_slot *slot; /* [n_slots], a power of two or 0 */
    size_t n_slots, n;
} ebb_u64_map;

void ebb__u64_map_init(ebb_u64_map *map, const ebb_mem *mem);
void ebb__u64_map_fini(ebb_u64_map *map);

/* Where this key's value is, until the next add or remove; NULL when it is not in. */
uint64_t *ebb__u64_map_find(const ebb_u64_map *map, uint64_t key);

/* Where this key's value is, put in as 0 when it is new. */
ebb_status ebb__u64_map_add(ebb_u64_map *map, uint64_t key, uint64_t **value_out, bool *is_new_out);

/* Nothing happens when it is not in. */
void ebb__u64_map_remove(ebb_u64_map *map, uint64_t key);

#endif
