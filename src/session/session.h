/* SPDX-License-Identifier: Apache-2.0
 *
 * A session from inside, for the trainer, which goes from one stage to the next by itself: between them it opens its
 * data, which has sizes, and measures the machine.
 *
 *      create    options and their defaults      build    the graph, for training
 *      device    the device                      lower    the program
 */
#ifndef EBB_SRC_SESSION_H
#define EBB_SRC_SESSION_H

#include "ebb/session.h"
#include "graph/graph.h"

struct ebb_session {
    const ebb_mem *mem;
    ebb_bump bump;
    ebb_session_options options; /* texts are ours; backend, batch, policy and algorithms are there */
    ebb_device *device;
    bool owns_device;
    bool feeds_early; /* once there is a device */
    ebb_graph *graph;
    ebb_lowered *lowered;
    ebb_program *paper; /* with paper accounting */
    const ebb_program *program;
    ebb_machine *machine;
    uint64_t liveness_bytes; /* 0: not known yet */
};

ebb_status ebb__session_create(const ebb_session_options *options, ebb_session **session_out);
ebb_status ebb__session_open_device(ebb_session *session);
/* The network by the options' sizes, the caller's. */
ebb_status ebb__session_build(const ebb_session *session, bool inference, ebb_graph **graph_out);
/* Build the session's graph and let the options have its sizes. */
ebb_status ebb__session_take_sizes(ebb_session *session);
/* The session's graph, built unless it has these sizes already, made one for training and lowered. */
ebb_status ebb__session_lower(ebb_session *session);
ebb_status ebb__session_open_machine(ebb_session *session);
/* What this process can still get of the host's memory without swapping; UINT64_MAX: not known. */
uint64_t ebb__session_host_free(void);

#endif
