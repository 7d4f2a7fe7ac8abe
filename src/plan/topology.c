/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiers and engines by name: what a machine has, and what a plan that was made for it needs.
 */
#include "plan/plan_priv.h"

#include <ctype.h>

static const char *const stores[EBB_N_STORES] = {"device", "memory", "file", "remote"};

const char *ebb__store_name(ebb_store store) {
    return store < EBB_N_STORES ? stores[store] : "?";
}

ebb_store ebb__store_find(const char *name) {
    uint32_t store = 0;
    while (store < EBB_N_STORES && strcmp(stores[store], name) != 0) { store++; }
    return (ebb_store)store;
}

uint32_t ebb_topology_tier(const ebb_topology *topology, const char *name) {
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        if (strcmp(topology->tier[t].name, name) == 0) { return t; }
    }
    return EBB_MAX_TIERS;
}

uint32_t ebb_topology_tier_of(const ebb_topology *topology, ebb_store store) {
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        if (topology->tier[t].store == store) { return t; }
    }
    return EBB_MAX_TIERS;
}

uint32_t ebb__topology_engine(const ebb_topology *topology, const char *name) {
    for (uint32_t e = 0; e < topology->n_engines; e++) {
        if (strcmp(topology->engine[e], name) == 0) { return e; }
    }
    return EBB_MAX_ENGINES;
}

static bool is_name(const char *name) {
    size_t n = 0;
    for (; name[n] != '\0' && n < EBB_NAME_BYTES; n++) {
        if (!isalnum((unsigned char)name[n]) && name[n] != '_' && name[n] != '-') { return false; }
    }
    return n > 0 && n < EBB_NAME_BYTES;
}

ebb_status ebb__topology_add_tier(ebb_topology *topology, const ebb_tier *tier, uint32_t *tier_out) {
    const bool is_device = topology->n_tiers == EBB_DEVICE;
    if (!is_name(tier->name) || tier->store >= EBB_N_STORES || (tier->store == EBB_STORE_DEVICE) != is_device) {
        return ebb_fail(EBB_E_ARGUMENT,
                        "tier %u: its name is not one of letters, digits, '_' and '-', or its store is not right",
                        topology->n_tiers);
    }
    if (ebb_topology_tier(topology, tier->name) != EBB_MAX_TIERS) {
        return ebb_fail(EBB_E_ARGUMENT, "tier '%s': there are two of that name", tier->name);
    }
    if (topology->n_tiers == EBB_MAX_TIERS) { return ebb_fail(EBB_E_LIMIT, "more than %u tiers", EBB_MAX_TIERS); }
    *tier_out = topology->n_tiers;
    topology->tier[topology->n_tiers++] = *tier;
    return EBB_OK;
}

ebb_status ebb__topology_add_engine(ebb_topology *topology, const char *name, uint32_t *engine_out) {
    if (!is_name(name)) {
        return ebb_fail(EBB_E_ARGUMENT, "engine %u: its name is not one of letters, digits, '_' and '-'",
                        topology->n_engines);
    }
    if (ebb__topology_engine(topology, name) != EBB_MAX_ENGINES) {
        return ebb_fail(EBB_E_ARGUMENT, "engine '%s': there are two of that name", name);
    }
    if (topology->n_engines == EBB_MAX_ENGINES) {
        return ebb_fail(EBB_E_LIMIT, "more than %u engines", EBB_MAX_ENGINES);
    }
    *engine_out = topology->n_engines;
    (void)snprintf(topology->engine[topology->n_engines++], EBB_NAME_BYTES, "%s", name);
    return EBB_OK;
}

uint8_t ebb__topology_engine_of(const ebb_topology *topology, const ebb_action *action) {
    switch (action->kind) {
    case EBB_ACT_OUT: return topology->way[EBB_DEVICE][action->tier];
    case EBB_ACT_IN: return topology->way[action->tier][EBB_DEVICE];
    case EBB_ACT_MOVE: return topology->way[action->tier][action->to];
    case EBB_ACT_DROP: return EBB_NO_ENGINE;
    default: return EBB_COMPUTE;
    }
}

uint32_t ebb__topology_feeds_from(const ebb_topology *topology) {
    const uint32_t tier = ebb_topology_tier_of(topology, EBB_STORE_MEMORY);
    return tier != EBB_MAX_TIERS && topology->way[tier][EBB_DEVICE] != 0 ? tier : EBB_DEVICE;
}
