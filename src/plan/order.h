/* SPDX-License-Identifier: Apache-2.0
 *
 * An order of a program's steps with a low peak of liveness.
 */
#ifndef EBB_SRC_ORDER_H
#define EBB_SRC_ORDER_H

#include "program/program.h"

/* Loads: the most bytes, each tensor and scratch rounded up to the alignment, that are there at one step if each tensor
 * is there from its first write to its last use (the policy liveness). */
typedef struct ebb_order_figures {
    uint64_t program_bytes; /* in the program's order */
    uint64_t order_bytes;   /* in the order found */
    uint64_t bound_bytes;   /* no order that the versions allow has less */
} ebb_order_figures;

/* How much is looked for. */
typedef enum ebb_order_care {
    EBB_ORDER_QUICK,    /* near-linear passes alone */
    EBB_ORDER_THOROUGH, /* search too, for as many steps of search as EBB_ORDER_WORK says; large programs: as above */
} ebb_order_care;

/* order_out[i]: the step at place i, for all steps. The load is never above that of the program's order, and where it
 * is not below, or the program keeps its order, the order is the program's. choice: as of ebb_policy_input. The result
 * depends on the arguments alone. */
ebb_status ebb__order_find(const ebb_program *program, const uint32_t *choice, ebb_order_care care, const ebb_mem *mem,
                           uint32_t *order_out, ebb_order_figures *figures_out);

/* The route of SuperNeurons (Wang et al., PPoPP 2018, algorithm 1): depth first, from the steps that wait for none. A
 * step is placed at the last visit from a step before it; those after it are visited in the order in which the program
 * names the tensors between them. Linear. */
ebb_status ebb__order_route(const ebb_program *program, const ebb_mem *mem, uint32_t *order_out);

#endif
