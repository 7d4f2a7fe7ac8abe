/* SPDX-License-Identifier: Apache-2.0
 *
 * The decisions of FlashNeuron (policy_flashneuron.c), and the time that an iteration takes in its own accounting.
 */
#ifndef EBB_SRC_FLASHNEURON_H
#define EBB_SRC_FLASHNEURON_H

#include "plan/sequence.h"

typedef struct ebb_flashneuron {
    uint64_t time_ns;     /* of the iteration, if computing waits wherever the rule says so */
    uint64_t moved_bytes; /* out, and in again */
    size_t n_moved;
    uint32_t stuck_at; /* after EBB_E_NO_FIT: the step for which there was no room; UINT32_MAX: too much would stay */
} ebb_flashneuron;

/* Decide which tensors are away, and when, in a sequence of all steps in order. What stays is chosen for a device of
 * line_bytes; the device has input->limit_bytes. EBB_E_NO_FIT without a message: the rule has no way; *told_out is
 * written then, too. */
ebb_status ebb__flashneuron_decide(const ebb_policy_input *input, uint64_t line_bytes, ebb_sequence *sequence,
                                   ebb_flashneuron *told_out);

#endif
