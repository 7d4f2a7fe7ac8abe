/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass as a chain of stages, for rules that are made for chains. A border lies between two forward steps
 * where just one tensor crosses: the articulation points of the graph. In a chain of layers each layer is a stage; of a
 * network with branches, all between two points through which everything goes. What cannot be made again and what comes
 * from outside (images, labels) does not count, and belongs to no stage.
 */
#ifndef EBB_SRC_STAGES_H
#define EBB_SRC_STAGES_H

#include "plan/remake.h"

#define EBB_NO_STAGE UINT32_MAX

typedef struct ebb_stages {
    uint32_t n;
    uint32_t *of_step; /* [n_steps]: of a forward step */
    uint32_t *crosser; /* [n]: the tensor that crosses into a stage; of stage 0, EBB_NO_TENSOR */
    /* [n_tensors]: the stages that it is made in and read in last, forward; EBB_NO_STAGE: it belongs to none */
    uint32_t *made, *read;
} ebb_stages;

/* At most max_stages of them: beyond that neighbours become one. Arrays come from the bump of r. */
ebb_status ebb__stages_find(ebb_remake *r, uint32_t max_stages, ebb_stages *stages_out);

#endif
