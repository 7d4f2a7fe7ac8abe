/* SPDX-License-Identifier: Apache-2.0
 *
 * A framework embeds this to follow a plan with its own kernels and memory. An executor turns the actions of a plan
 * into commands. A command says which engine does it, where its bytes lie, and what it waits for. In each iteration the
 * executor passes the commands, in the plan's order, to the caller's functions. It computes and copies nothing itself,
 * takes no memory after its creation, and knows no device.
 *
 *      for each command:   wait(engine, event) for each of its waits
 *                          compute(command) or copy(command)
 *                          record(engine, event), if something waits for it
 *
 * Engines are the plan's (ebb_plan_topology): one computes, the others copy. A step whose choice copies_in goes to an
 * engine for copies, if there is one; it is passed to compute all the same. A caller with queues uses one queue per
 * engine, and implements wait and record with the queues' events. A caller that finishes each command before it returns
 * needs neither, because the plan's order is a legal sequential execution.
 *
 * examples/embed.c is a complete example.
 */
#ifndef EBB_EXECUTOR_H
#define EBB_EXECUTOR_H

#include "ebb/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_executor ebb_executor;

#define EBB_NO_EVENT UINT32_MAX

/* Command number i is for the plan's action i. */
typedef struct ebb_command {
    ebb_action action;
    uint32_t engine; /* EBB_NO_ENGINE: a drop */
    uint32_t n_waits;
    const uint32_t *waits; /* events that its engine waits for before it does this */
    uint32_t event;        /* to be recorded after it; EBB_NO_EVENT: nothing waits for it */
    /* run, again: */
    const uint64_t *offsets; /* in the arena, of the tensors that the step accesses, in the order of its accesses */
    uint64_t scratch_offset, scratch_bytes;
    /* out, in, move: */
    uint32_t from, to; /* tiers; EBB_DEVICE is the arena */
    uint64_t from_offset, to_offset, size_bytes;
} ebb_command;

/* Where bytes of a persistent or kept tensor lie between two iterations. */
typedef struct ebb_home {
    uint64_t begin, size_bytes; /* of the tensor */
    uint32_t tier;
    uint64_t offset; /* in the arena or the tier */
} ebb_home;

/* The caller's functions. Each gets ctx; any other result than EBB_OK ends the iteration. */
typedef struct ebb_executor_ops {
    size_t size_bytes;
    ebb_status (*compute)(void *ctx, const ebb_command *command);
    ebb_status (*copy)(void *ctx, const ebb_command *command);
    /* wait must return at once for an event that was never recorded, as in the first iteration. NULL: neither is
     * needed. */
    ebb_status (*wait)(void *ctx, uint32_t engine, uint32_t event);
    ebb_status (*record)(void *ctx, uint32_t engine, uint32_t event);
} ebb_executor_ops;
#define EBB_EXECUTOR_OPS_INIT EBB_INIT(ebb_executor_ops, )

/* The plan is one for the program: made here, or it has passed ebb_plan_check. Both are borrowed until the executor
 * dies. EBB_E_INVALID_PLAN: the plan is for another program. EBB_E_LIMIT: it has about 2^31 stays or slots, or more.
 * O(n log n). */
EBB_API ebb_status ebb_executor_create(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan,
                                       ebb_executor **executor_out);
EBB_API void ebb_executor_destroy(ebb_executor *executor);

/* Views, borrowed until the executor dies: to bind kernels to their bytes beforehand, say. */
EBB_API const ebb_command *ebb_executor_commands(const ebb_executor *executor, size_t *n_out);
EBB_API uint32_t ebb_executor_n_events(const ebb_executor *executor); /* numbered from 0 */

/* Where a tensor lies between two iterations: what persists must be put there before the first, at every home; what is
 * kept or persists can be read there after each. Those in the arena come first. Homes may hold the same bytes twice.
 * *n_out is 0 for a tensor that is neither, and for EBB_NO_TENSOR. */
EBB_API const ebb_home *ebb_executor_homes(const ebb_executor *executor, uint32_t tensor, size_t *n_out);

/* One iteration. EBB_E_ARGUMENT: ops of another version, or compute or copy is NULL. Else what a callback returned. */
EBB_API ebb_status ebb_executor_iterate(ebb_executor *executor, const ebb_executor_ops *ops, void *ctx);

/* ---- the proof -------------------------------------------------------------------------------- */

typedef struct ebb_proof {
    uint64_t n_iterations, n_commands; /* issued: kernels, copies and calls */
    uint64_t n_pairs;                  /* of accesses to the same bytes on different engines or the host, proven */
    uint64_t n_events, n_waits;        /* issued */
    uint64_t n_implied_waits;          /* of them, those that order nothing which was not ordered before */
    uint64_t n_versions;               /* reads proven to find the version that the program means */
    uint64_t n_graph_pairs;            /* of a run (ebb_run_prove) with iterations as graphs; 0: it has none */
} ebb_proof;

/* Prove that a program that follows the plan with an executor gets the result of its commands one after the other,
 * however freely the engines go: write down some iterations of commands, waits and records, with homes written and read
 * between them, order every two accesses to the same byte, one of which writes, by what queues promise, and find at
 * each read the version that the program means (docs/hazards.md). Nothing is computed, and no memory is taken but for
 * the proof. O(n log n).
 *
 * The proof assumes of the caller: one queue an engine, whose commands are done in order; a wait that is for all that
 * the event's latest record comes after; homes that are written and read while every queue is idle. It need not be idle
 * between iterations otherwise.
 *
 * The failures of ebb_executor_create. EBB_E_INTERNAL: a hazard; the message names both commands, the tensor and the
 * bytes. EBB_E_LIMIT: the commands have 2^31 accesses or more. */
EBB_API ebb_status ebb_executor_prove(const ebb_mem *mem, const ebb_program *program, const ebb_plan *plan,
                                      ebb_proof *proof_out);

#ifdef __cplusplus
}
#endif

#endif
