/* SPDX-License-Identifier: Apache-2.0
 *
 * `ebb compare --run`: the plans of a comparison, run one after the other.
 */
#ifndef EBB_SRC_CLI_COMPARE_RUN_H
#define EBB_SRC_CLI_COMPARE_RUN_H

#include "subject.h"

/* Measure the device and its kernels, unless a machine's file says what they do. */
ebb_status ebb__cli_measure_machine(const ebb_cli_network *network, const ebb_session_parts *parts);

/* Run each row's plan for n_steps iterations on the same data from the same weights, and say in the comparison what was
 * measured. A plan that several rows have is run once. */
ebb_status ebb__cli_run_rows(const ebb_cli_network *network, const ebb_session_parts *parts, uint64_t n_steps,
                             ebb_comparison *comparison);

/* Whether all runs have the same loss, to the last bit; true where nothing ran. */
bool ebb__cli_have_same_bits(const ebb_comparison *comparison);

#endif
