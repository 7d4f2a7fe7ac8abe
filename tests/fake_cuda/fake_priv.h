/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fake's files share: commands, queues, captures.
 */
#ifndef EBB_TESTS_FAKE_PRIV_H
#define EBB_TESTS_FAKE_PRIV_H

#include "fake_cuda.h"

#include "backend/cuda/cuda_each.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Begin a call of the runtime: it fails here when it is its turn. */
#define FAKE_CALL()                                                                                                    \
    do {                                                                                                               \
        cudaError_t fake_error_ = fake_begin(__func__);                                                                \
        if (fake_error_ != cudaSuccess) { return fake_error_; }                                                        \
    } while (0)
cudaError_t fake_begin(const char *name);
cudaError_t fake_set_error(cudaError_t error); /* returns it */

typedef enum fake_kind { FAKE_COPY, FAKE_EACH, FAKE_HOST, FAKE_RECORD, FAKE_WAIT, FAKE_GRAPH } fake_kind;

typedef struct fake_command {
    fake_kind kind;
    void *dst;
    const void *src;
    size_t n_bytes;
    ebb_cuda_element_fn element;
    unsigned char args[192];
    uint64_t n;
    cudaHostFn_t fn;
    void *ctx;
    cudaEvent_t event;
    uint64_t number; /* of the record */
    struct CUgraphExec_st *exec;
} fake_command;

/* Indices of nodes. */
typedef struct fake_set {
    size_t *data, n, cap;
} fake_set;

typedef struct fake_node {
    fake_command command;
    fake_set after;
} fake_node;

struct CUgraph_st {
    fake_node *nodes;
    size_t n, cap;
};

struct CUgraphExec_st {
    struct CUgraph_st graph;
    const struct CUgraph_st *source; /* what it was made of */
};

typedef struct fake_capture {
    struct CUgraph_st *graph;
    cudaStream_t origin;
    bool invalid, over;
    struct fake_capture *next; /* all that ever were, until the reset */
} fake_capture;

struct CUstream_st {
    fake_command *queue;
    size_t first, n, cap; /* queue[first .. n) is to be done */
    fake_capture *capture;
    fake_set last; /* what the next node comes after */
    struct CUstream_st *next;
};

struct CUevent_st {
    uint64_t n_issued, n_done, time_ns;
    bool no_timing;
    fake_capture *capture; /* that has its latest record */
    fake_set last;
};

extern struct CUstream_st *fake_streams;
extern fake_capture *fake_capturing; /* the one that is going on; NULL */

uint64_t fake_random(uint64_t n);
void fake_set_add(fake_set *set, size_t value);
void fake_set_join(fake_set *set, const fake_set *other);
void fake_set_fini(fake_set *set);

/* Write all over a workspace, in the stream's order. */
cudaError_t fake_spoil(cudaStream_t stream, void *workspace, uint64_t n_bytes);
cudaError_t fake_issue(cudaStream_t stream, const fake_command *command);
void fake_execute(const fake_command *command);
void fake_run_graph(const struct CUgraph_st *graph);
void fake_forget_captures(void); /* when there are no events */
void fake_graph_fini(struct CUgraph_st *graph);
/* Run what may run until done(ctx). */
void fake_run_until(bool (*done)(const void *ctx), const void *ctx);
bool fake_is_idle(void);
void fake_run_all(void);
/* A call that a capture does not bear. */
cudaError_t fake_refuse_in_capture(void);

#endif
