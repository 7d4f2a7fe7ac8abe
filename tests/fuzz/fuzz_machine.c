/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzz target: the machine file's reader. A machine that it lets through can be asked for times and written.
 */
#include "plan/machine_priv.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const ebb_machine *machine) {
    const ebb_topology *topology = ebb_machine_topology(machine);
    const ebb_choice choice = {.key = 0x0123456789abcdef, .flops = 1e300, .traffic_bytes = 1e300};
    if (ebb_machine_step_time_ns(machine, &choice) > EBB_MACHINE_MAX_NS) { abort(); }
    for (uint32_t from = 0; from < topology->n_tiers; from++) {
        for (uint32_t to = 0; to < topology->n_tiers; to++) {
            ebb_link link;
            const bool is_linked = ebb_machine_link(machine, from, to, &link);
            const uint64_t time_ns = ebb_machine_copy_time_ns(machine, from, to, UINT64_MAX);
            if (is_linked ? time_ns > EBB_MACHINE_MAX_NS : time_ns != UINT64_MAX) { abort(); }
            if (is_linked && link.out.engine >= topology->n_engines) { abort(); }
        }
    }
    if (ebb_machine_save(machine, "/dev/null") != EBB_OK) { abort(); }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ebb_machine *machine = NULL;
    if (ebb__machine_parse(NULL, "fuzz", (const char *)data, size, &machine) != EBB_OK) { return 0; }
    use(machine);
    ebb_machine_destroy(machine);
    return 0;
}
