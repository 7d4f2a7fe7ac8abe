/* SPDX-License-Identifier: Apache-2.0
 *
 * Nominal machines: their times are the same everywhere, so that what is decided with them (which budgets have a plan)
 * is the same on every machine. One is a present desktop, one has copies that cost nothing, and one has copies that
 * cost more than computing.
 */
#include "plan/maker.h"

static ebb_status add_tiers(const ebb_topology *has, ebb_machine *machine) {
    for (uint32_t t = ebb_machine_topology(machine)->n_tiers; t < has->n_tiers; t++) {
        uint32_t added = 0;
        EBB_TRY(ebb_machine_add_tier(machine, &has->tier[t], &added));
    }
    return EBB_OK;
}

/* bytes_per_s: of all copies; 0: as a desktop has them, and where it has no link, as slow as a disk. */
static ebb_status set_links(double bytes_per_s, ebb_machine *machine) {
    for (uint32_t t = 1; t < ebb_machine_topology(machine)->n_tiers; t++) {
        ebb_link link = {.near = EBB_DEVICE, .far = t, .out.engine = 1, .in.engine = 1, EBB_LINK_SHARES_ONE};
        const bool is_linked = ebb_machine_link(machine, EBB_DEVICE, t, &link);
        if (bytes_per_s == 0 && is_linked) { continue; }
        link.out = link.in = (ebb_way){bytes_per_s > 0 ? bytes_per_s : 1e9, 0, 1};
        EBB_TRY(ebb_machine_set_link(machine, &link));
    }
    return EBB_OK;
}

ebb_status ebb__nominal_machine(const ebb_mem *mem, const ebb_machine *like, uint32_t which,
                                ebb_machine **machine_out) {
    static const double bytes_per_s[EBB_MAKER_NOMINAL] = {0, 1e18, 1};
    ebb_machine *machine = NULL;
    EBB_TRY(ebb_machine_create(mem, &machine));
    ebb_status st = add_tiers(ebb_machine_topology(like), machine);
    if (st == EBB_OK) { st = set_links(bytes_per_s[which], machine); }
    if (st != EBB_OK) {
        ebb_machine_destroy(machine);
        return st;
    }
    *machine_out = machine;
    return EBB_OK;
}
