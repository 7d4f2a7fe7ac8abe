/* SPDX-License-Identifier: Apache-2.0
 *
 * What measure_slow.h says, by the time that an algorithm takes for an operation.
 */
#include "run/measure_slow.h"

static uint32_t find(const ebb_slow_kernels *slow, const char *kind, const char *name) {
    uint32_t i = 0;
    while (i < slow->n && (strcmp(slow->seen[i].kind, kind) != 0 || strcmp(slow->seen[i].name, name) != 0)) { i++; }
    return i;
}

void ebb__slow_note(ebb_slow_kernels *slow, const char *kind, const ebb_choice *choice, uint64_t ns) {
    const uint32_t i = find(slow, kind, choice->name);
    if (!(choice->flops > 0.0) || i == EBB_SLOW_KINDS) { return; }
    const double ns_per_flop = (double)ns / choice->flops;
    if (i == slow->n) { slow->seen[slow->n++] = (ebb_slow_kernel){kind, choice->name, 0, ns_per_flop}; }
    slow->seen[i].n_seen++;
    if (ns_per_flop < slow->seen[i].ns_per_flop) { slow->seen[i].ns_per_flop = ns_per_flop; }
}

bool ebb__slow_guess(const ebb_slow_kernels *slow, const char *kind, const ebb_choice *choice, uint64_t hopeless_ns,
                     uint64_t *ns_out) {
    const uint32_t i = find(slow, kind, choice->name);
    if (i == slow->n || slow->seen[i].n_seen < 2) { return false; }
    const double ns = slow->seen[i].ns_per_flop * choice->flops;
    if (!(ns > (double)hopeless_ns) || ns >= (double)UINT64_MAX) { return false; }
    *ns_out = (uint64_t)ns;
    return true;
}
