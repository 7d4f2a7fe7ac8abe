/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a plan: the arena, the host slab and the file are taken once, everything is bound once, and each
 * iteration only issues commands. The runtime knows no policy.
 */
#ifndef EBB_RUN_H
#define EBB_RUN_H

#include "ebb/device.h"
#include "ebb/executor.h"
#include "ebb/graph.h"
#include "ebb/remote.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_arena ebb_arena;
typedef struct ebb_run ebb_run;

/* Device memory that several runs may use in turn. A run owns it from the run's creation until the run is parked or
 * destroyed. The device must outlive the arena, and the arena must outlive the runs. EBB_E_NO_MEMORY: the device has
 * too little memory. */
EBB_API ebb_status ebb_arena_create(ebb_device *device, uint64_t size_bytes, ebb_arena **arena_out);
EBB_API void ebb_arena_destroy(ebb_arena *arena);
EBB_API uint64_t ebb_arena_bytes(const ebb_arena *arena);

typedef struct ebb_run_options {
    size_t size_bytes;
    const ebb_mem *mem;
    ebb_arena *arena;     /* borrowed; at least the plan's peak. NULL: the run takes its own */
    const char *disk_dir; /* where the disk tier's file goes (unnamed, gone with the run); needed if the plan uses it */
    uint64_t seed;        /* of dropout */
    const char *io;       /* how the file's bytes are read and written (docs/tiers.md): "plain", "uring", or "auto" (or
                             NULL): uring where it can be had */
    ebb_remote *remote;   /* borrowed for as long as the run lives; needed if the plan uses a remote tier */
} ebb_run_options;
#define EBB_RUN_OPTIONS_INIT EBB_INIT(ebb_run_options, )

/* Take the memory and bind every step. lowered and plan must outlive the run. The plan must come from ebb_plan_make or
 * have passed ebb_plan_check. Persistent values are zero until they are set. options may be NULL. EBB_E_INVALID_PLAN:
 * the plan is for another program. EBB_E_ARGUMENT: options of another version, the arena is too small, another device's
 * or in use by another run, the plan uses the disk and there is no disk_dir, or a remote tier and there is no remote,
 * or io is unknown. EBB_E_NO_MEMORY: also where the remote has too few bytes that no other run has. EBB_E_IO: the
 * disk's file cannot be made. EBB_E_UNSUPPORTED: io is "uring", and this build or the kernel does not have it. */
EBB_API ebb_status ebb_run_create(const ebb_lowered *lowered, const ebb_plan *plan, const ebb_run_options *options,
                                  ebb_run **run_out);
EBB_API void ebb_run_destroy(ebb_run *run);

/* The host memory of a port of the network; borrowed until the run dies (see ebb_run_feed for memories that change). An
 * iteration reads an input there, and has written an output there when it returns. *port_out (may be NULL) describes
 * the port. EBB_E_ARGUMENT: no such port; the message names those that there are. */
EBB_API ebb_status ebb_run_port(ebb_run *run, const char *name, void **memory_out, ebb_port *port_out);

/* For a network that is fed early (ebb_lower_fed_early): take the batch in its inputs' ports for the next iteration.
 * Needed before the first iteration. From then on each iteration copies in what the ports hold when it is called, for
 * the iteration after it. After the last batch that may be anything valid, such as an older batch.
 *
 * Each input of such a network has two memories. They change places whenever ebb_run_feed or ebb_run_iteration returns
 * EBB_OK, so ask ebb_run_port again then. It gives the memory for the next batch that is to be copied in. The other
 * one is free at any time: a thread may fill it while an iteration goes on.
 *
 * EBB_E_ARGUMENT: the network is not fed early, the run is parked, or an element of an input is not below its limit.
 * EBB_E_IO, EBB_E_DEVICE: as ebb_run_iteration. */
EBB_API ebb_status ebb_run_feed(ebb_run *run);

/* One iteration: number iteration (dropout's masks), number update from 1 (Adam's correction), learning rate.
 * Returns when the host-visible results are there. EBB_E_ARGUMENT: the run is parked, or is to be fed early and has no
 * batch; an element of an input is not below its limit; update is 0, or the rate is negative or not finite. Nothing
 * was computed then, and the next iteration works. EBB_E_IO: the disk or the remote tier; the message names tensor and
 * tier. After a failure halfway, the content is not valid, and every further iteration fails with EBB_E_DEVICE. */
EBB_API ebb_status ebb_run_iteration(ebb_run *run, uint64_t iteration, uint64_t update, float learning_rate);

/* Between iterations: the content of a persistent or kept value by its graph's number, row-major float32, wherever
 * the plan keeps it; plain has as many elements as the value's shape. EBB_E_ARGUMENT: the value neither persists nor is
 * kept, so it is not there between iterations; set: the run is parked. */
EBB_API ebb_status ebb_run_set_value(ebb_run *run, ebb_value value, const float *plain);
EBB_API ebb_status ebb_run_get_value(ebb_run *run, ebb_value value, float *plain_out);
/* Every persistent value's initial content, from the seed. */
EBB_API ebb_status ebb_run_init_values(ebb_run *run, uint64_t seed);

/* Leave the arena to another run, and take it back. Between the two, persistent and kept content is on the host, and
 * ebb_run_get_value finds it there. EBB_E_ARGUMENT: parked already, or not parked, or another run still has the
 * arena. */
EBB_API ebb_status ebb_run_park(ebb_run *run);
EBB_API uint64_t ebb_run_parked_bytes(const ebb_run *run); /* what parking takes of the host */
EBB_API ebb_status ebb_run_unpark(ebb_run *run);

typedef struct ebb_run_stats {
    /* Measured for the arena, over all its runs: the end of the highest page that was used, as the kernel counts pages.
     * The arena ends at a page without access, so this is the arena's size exactly if its last page is used. On a card:
     * what the driver gave for the arena, in its granules. UINT64_MAX: not known (there is no memory, or the kernel
     * does not say). */
    uint64_t peak_bytes;
    uint64_t arena_bytes;          /* taken */
    uint64_t arena_resident_bytes; /* of it, as the kernel counts pages; 0: not known */
    uint64_t slab_bytes;           /* host slab taken */
    uint64_t file_bytes;           /* of the disk tier */
    const char *file_io;   /* how its bytes move: "plain", "uring", "uring direct" (past the kernel's cache); NULL: the
                              plan does not use it. Static */
    uint64_t remote_bytes; /* of the memory of other processes */
    uint64_t engine_bytes[EBB_MAX_ENGINES];   /* that each engine's copies move in an iteration */
    uint64_t moved_out_bytes, moved_in_bytes; /* an iteration; the sum over its commands */
    uint64_t moved_on_bytes;                  /* the same, from one lower tier to another */
    uint64_t n_recomputed_steps;
    uint64_t iteration_ns; /* of the last */
    /* Measured, in the last iteration, for each engine of the plan: how long it waited for what other engines do. A
     * wait counts in the iteration in which it ends. 0: the plan does not use the engine, or it never waited.
     * UINT64_MAX: not known (the device does not count, or there was no iteration yet). ebb_timeline.stall_ns predicts
     * it. Where computing is done by the caller's thread (ref, cpu, dry), a copy is issued only when computing gets to
     * it, so engines of copies never wait for computing, and the timeline predicts more for them. */
    uint64_t stall_ns[EBB_MAX_ENGINES];
} ebb_run_stats;
EBB_API ebb_run_stats ebb_run_get_stats(const ebb_run *run);

/* Record the next n_iterations into a trace file (docs/trace-format.md). Each iteration is written when it has ended,
 * without what happens between iterations. If the run ends early, the file has the iterations that ran. If the
 * recording cannot be made or written, the iterations still run; a warning is logged at once, no file remains, and the
 * next call returns the cause. Ends an earlier recording. EBB_E_ARGUMENT: n_iterations is 0. */
EBB_API ebb_status ebb_run_record_next(ebb_run *run, const char *path, uint64_t n_iterations);
/* EBB_OK: the last recording is written or not finished yet, or there was none. Otherwise it is lost, and the status
 * tells why: EBB_E_IO, EBB_E_NO_MEMORY, or what the iteration failed with. */
EBB_API ebb_status ebb_run_record_status(const ebb_run *run);

/* Prove that a run of the plan cannot do anything else than its commands would one after the other, however freely the
 * device and its streams go: issue some iterations, with values read and written between them, to a device that only
 * writes them down, order every two accesses to the same byte of the device, the host and the file by what a device
 * promises, and find at each read the version that the program means (docs/hazards.md). Then, where the plan leaves
 * disk and remote alone, the same of a device that captures iterations as graphs. graph is what was lowered on device
 * and planned; nothing is computed, and the device's memory is not touched. EBB_E_INVALID_PLAN: the plan is for another
 * program. EBB_E_INTERNAL: a hazard; the message names both commands, the tensor and the bytes. A hazard is a pair that
 * is not ordered, or a read of bytes that were never written, that are not one content, or that are of another version
 * than the program means. EBB_E_LIMIT: the commands have 2^31 accesses or more. */
EBB_API ebb_status ebb_run_prove(ebb_graph *graph, ebb_device *device, const ebb_plan *plan, ebb_proof *proof_out);

typedef struct ebb_measure_options {
    size_t size_bytes;
    uint32_t reps;           /* of each kernel, or more, after one warm-up */
    bool all_choices;        /* of each step; else the first alone */
    ebb_progress progress;   /* told of each kernel */
    bool (*stop)(void *ctx); /* asked before each kernel; true ends the measuring with EBB_OK. NULL: never */
    void *stop_ctx;
} ebb_measure_options;
#define EBB_MEASURE_OPTIONS_INIT EBB_INIT(ebb_measure_options, EBB_SET(reps, 5))

/* Measure each distinct kernel of a lowered network in an arena with room for one kernel at a time, and store the least
 * time under its key, one kernel after the other. One that takes eight times as long as another of its step is run once
 * or twice; an algorithm that did so at two steps gets its time at further ones by its rate there. On a processor a
 * kernel finds in the cache what it would find there in training; this takes as much memory as the cache has, up to 64
 * MiB. Kernels whose times the machine has already are left out. If the device holds no data, nothing is measured,
 * here and below, and the machine stays as it is. EBB_E_ARGUMENT: options of another version. */
EBB_API ebb_status ebb_run_measure_steps(const ebb_lowered *lowered, const ebb_measure_options *options,
                                         ebb_machine *machine);

/* Measure the links of a device (host; the disk under disk_dir when it is not NULL, by io as in ebb_run_options; and
 * the remote when it is not NULL, for which the machine gets a tier if it has none), each way alone, both at once, and
 * beside kernels; and its rates, in an arena of at most limit_bytes and as much of each tier: so measuring for a budget
 * keeps to it. What needs more is not measured, and stays as it was: both ways at once need 4 MiB, copies beside
 * kernels about 11 MiB (shares of ebb_link). The links between host and disk, and host and remote, get the rates of
 * those two. The host tier's capacity becomes what this process may have of the machine's memory. */
EBB_API ebb_status ebb_run_measure_links(ebb_device *device, const char *disk_dir, const char *io, ebb_remote *remote,
                                         uint64_t limit_bytes, ebb_machine *machine);

/* Bytes per second between the device and the host's memory: each direction alone, and the sum of both directions at
 * once. */
typedef struct ebb_copy_rates {
    double out_bytes_per_s, in_bytes_per_s, both_bytes_per_s;
} ebb_copy_rates;

/* Measure them with memory that the device's backend gives, as runs use it, and with any other; in an arena of at most
 * limit_bytes, or 8 KiB, and twice as much of the host. Nothing else may use the device during the call. For a device
 * without data the rates are 0. EBB_E_NO_MEMORY, EBB_E_DEVICE. */
EBB_API ebb_status ebb_run_measure_copies(ebb_device *device, uint64_t limit_bytes, ebb_copy_rates *pinned_out,
                                          ebb_copy_rates *pageable_out);

#ifdef __cplusplus
}
#endif

#endif
