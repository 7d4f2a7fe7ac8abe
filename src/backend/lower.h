/* SPDX-License-Identifier: Apache-2.0
 *
 * A lowered network as the runtime sees it: the program's steps beside the kernels and operands that
 * compute them.
 */
#ifndef EBB_SRC_LOWER_H
#define EBB_SRC_LOWER_H

#include "backend/backend.h"
#include "program/program.h"

typedef struct ebb_lowered_step {
    uint32_t op; /* index into the graph's ops; UINT32_MAX for a reorder */
    uint32_t n_operands;
    const uint32_t *operand; /* tensors: in, out, inout; one tensor may stand twice (in place) */
    const uint64_t *bytes;   /* of each operand */
    ebb_kernel **kernel;     /* [the step's n_choices]; shared between equal steps */
    uint64_t rng_stream;
} ebb_lowered_step;

/* Where a value of the graph lies. */
typedef struct ebb_lowered_value {
    uint32_t tensor; /* UINT32_MAX: nothing ever touches it */
    ebb_layout layout;
} ebb_lowered_value;

struct ebb_lowered {
    const ebb_mem *mem;
    ebb_bump bump;
    ebb_device *device;
    const ebb_graph *graph;
    bool feeds_early; /* ebb_lower_fed_early */
    ebb_program *program;
    EBB_VEC(ebb_lowered_step) steps;
    EBB_VEC(ebb_kernel *) kernels; /* each once; owned */
    ebb_lowered_value *values;     /* [n_values of the graph] */
};

/* For each FEED of the graph, which come first in it, the operator before which its step is to stand; the number of
 * operators stands for the end. feed_place.c. The array comes from the bump. */
ebb_status ebb__place_feeds(const ebb_graph *graph, ebb_bump *bump, uint32_t **feed_at_out);

#endif
