/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithms that are not worth measuring at every step. cuDNN's smallest ones take seconds for what others do in a
 * millisecond, for every convolution of a kind: two of them tell what the rest would take.
 */
#ifndef EBB_SRC_RUN_MEASURE_SLOW_H
#define EBB_SRC_RUN_MEASURE_SLOW_H

#include "run/run.h"

#define EBB_SLOW_TIMES 8u /* as long as another choice of the step: hopeless */
#define EBB_SLOW_KINDS 32u

typedef struct ebb_slow_kernel {
    const char *kind, *name; /* of the step, of the algorithm; borrowed */
    uint32_t n_seen;
    double ns_per_flop; /* the least that was seen */
} ebb_slow_kernel;

typedef struct ebb_slow_kernels {
    uint32_t n;
    ebb_slow_kernel seen[EBB_SLOW_KINDS];
} ebb_slow_kernels;

/* One was measured, and was hopeless. */
void ebb__slow_note(ebb_slow_kernels *slow, const char *kind, const ebb_choice *choice, uint64_t ns);

/* Whether it was hopeless twice, and would be here; then how long it would take. */
bool ebb__slow_guess(const ebb_slow_kernels *slow, const char *kind, const ebb_choice *choice, uint64_t hopeless_ns,
                     uint64_t *ns_out);

#endif
