/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime from inside. A run is a plan turned into commands: one command an action, bound once, issued in
 * the plan's order each iteration, with the waits that the schedule names. There is no decision left to take.
 *
 *      plan order     run 0   out t   run 1   run 2   in t    run 3 ...
 *      compute         [0]             [1]     [2]             [3]      waits for 'in t'
 *      out                     [t....]
 *      in                                              [t..]            waits for 'out t' and for its bytes
 *
 * Invariants
 *  1. Nothing is allocated, bound or opened between ebb_run_create's return and the end of the run, but for
 *     recording and for reading values, which happen between iterations.
 *  2. The run touches no byte of the arena at or after the plan's peak.
 *  3. An error of a copy to or from a file or a remote is known before the iteration that read its bytes returns.
 */
#ifndef EBB_SRC_RUN_H
#define EBB_SRC_RUN_H

#include "backend/backend.h"
#include "backend/lower.h"
#include "ebb/executor.h"
#include "ebb/run.h"
#include "plan/plan.h"
#include "remote/remote.h"
#include "run/tier_file.h"

struct ebb_arena {
    const ebb_mem *mem;
    ebb_device *device;
    ebb_arena_mem *memory;
    uint64_t size_bytes;
    const ebb_run *holder; /* the run that has it; NULL: none */
    bool was_used;         /* by a run, which may have left something in it */
};

/* Two buffers between the device and a store that is called, taken in turns: while one is copied from or to the device,
 * the store is written from or read into the other. buffer[0] is NULL where none are needed. */
typedef struct ebb_staging {
    unsigned char *buffer[2];
    ebb_event *full[2], *free[2]; /* when the command that fills a buffer, or empties it, has ended */
    uint64_t n_issued;            /* pieces that were queued, as the issuing thread counts */
    uint64_t n_called;            /* pieces that were moved to or from the store, as the host calls count */
} ebb_staging;

/* What a lower tier's bytes lie in. */
typedef struct ebb_tier_store {
    ebb_store kind;
    uint64_t size_bytes;    /* taken; 0: nothing is */
    unsigned char *memory;  /* of EBB_STORE_MEMORY */
    ebb_tier_file file;     /* of EBB_STORE_FILE */
    ebb_remote_claim claim; /* of EBB_STORE_REMOTE */
    ebb_staging staging[2]; /* by ebb_copy_direction; of stores that are called, if the host cannot read the device */
} ebb_tier_store;

typedef struct ebb_tiers_failure ebb_tiers_failure;

typedef struct ebb_tiers {
    ebb_device *device;
    uint32_t n_tiers;
    ebb_tier_store store[EBB_MAX_TIERS];
    uint64_t staging_bytes;                   /* of each buffer: the most that a piece of a copy has */
    ebb_stream *call_stream[EBB_MAX_ENGINES]; /* where staged copies of an engine call the store; NULL: it makes none */
    ebb_event *join[EBB_MAX_ENGINES];         /* around copies of such an engine that are not staged */
    ebb_lane *lane[EBB_MAX_ENGINES];        /* of each engine that moves bytes of files; EBB_COMPUTE: the host's own */
    unsigned char *bounce[EBB_MAX_ENGINES]; /* for moves between stores that are called, of each engine with such */
    char name[EBB_MAX_TIERS][EBB_NAME_BYTES];
    bool only_notes; /* the device carries nothing out: neither does the host, it says what it would touch */
    ebb_tiers_failure *failure;
} ebb_tiers;

typedef struct ebb_tiers_options {
    const ebb_topology *topology;
    uint64_t bytes[EBB_MAX_TIERS]; /* to take of each */
    uint64_t largest_bytes;        /* the most that one copy to a store that is called moves */
    const char *disk_dir, *io;     /* this and the next: of ebb_run_options */
    ebb_remote *remote;
} ebb_tiers_options;

/* Close them whatever this returns. */
ebb_status ebb__tiers_open(ebb_device *device, const ebb_tiers_options *options, ebb_tiers *tiers);
void ebb__tiers_close(ebb_tiers *tiers);
/* The first failure of a copy to or from a store that is called, since the tiers were opened. */
ebb_status ebb__tiers_check(ebb_tiers *tiers);
/* Bytes taken of one kind. */
uint64_t ebb__tiers_bytes(const ebb_tiers *tiers, ebb_store kind);
/* How the bytes of files move; NULL: there are no files. */
const char *ebb__tiers_io(const ebb_tiers *tiers);

/* One copy between two tiers. buf: on the device, if one of them is it. */
typedef struct ebb_transfer {
    ebb_tiers *tiers;
    uint32_t from, to;
    uint32_t engine;    /* that makes it */
    const char *tensor; /* its name, for messages */
    ebb_buf buf;
    uint64_t from_offset, to_offset; /* in lower tiers */
    uint64_t size_bytes;
    uint64_t called_bytes; /* moved to or from the store so far, of a staged copy that is under way */
} ebb_transfer;

/* Queue it on its engine's stream and, if it is staged, on the engine's call_stream too. The transfer must live until
 * both have done it. */
ebb_status ebb__tiers_transfer(ebb_stream *stream, ebb_transfer *transfer);
/* The stream in which the transfer begins, and the one in which it ends; stream is its engine's. A wait that is queued
 * on the first stream before it holds it and all later copies of the engine. An event that is recorded on the last
 * stream after it comes after it and all earlier copies of the engine. */
ebb_stream *ebb__tiers_first_stream(ebb_stream *stream, const ebb_transfer *transfer);
ebb_stream *ebb__tiers_last_stream(ebb_stream *stream, const ebb_transfer *transfer);
/* Wait until the call streams are idle; the first error. */
ebb_status ebb__tiers_drain(ebb_tiers *tiers);
/* Copies and calls that it becomes on a device that writes them down. */
uint64_t ebb__tiers_count_commands(const ebb_transfer *transfer);

/* Between iterations, at once: copy what is at home on a lower tier from or to host memory. OUT fills the tier. */
ebb_status ebb__tiers_move(ebb_tiers *tiers, ebb_copy_direction direction, const char *tensor, const ebb_home *home,
                           void *host);
/* The same between two places in host memory, as memcpy has them. */
ebb_status ebb__tiers_copy(ebb_tiers *tiers, void *dst, const void *src, uint64_t bytes);

/* What the executor's command of the same number became. */
typedef struct ebb_run_command {
    ebb_kernel *kernel; /* run, again */
    ebb_bound *bound;
    ebb_transfer transfer; /* out, in, move */
} ebb_run_command;

typedef struct ebb_recording ebb_recording;

struct ebb_run {
    const ebb_mem *mem;
    ebb_bump bump;
    const ebb_lowered *lowered;
    const ebb_plan *plan;
    ebb_device *device;
    ebb_executor *executor;
    ebb_arena *arena;
    ebb_arena *own_arena; /* what to destroy */
    ebb_tiers tiers;
    ebb_run_state state;
    void **port;       /* [n_ports]: host memory of the graph's ports; state.port */
    void **other_port; /* [n_ports]: of inputs that are fed early, the memory for the batch after the one in port */
    size_t n_ports;
    bool is_fed;        /* early: there is a batch for the first iteration */
    ebb_touch *touches; /* [n_ports + 1]: room to say what the host does to ports and state */
    uint32_t n_engines;
    ebb_stream *stream[EBB_MAX_ENGINES]; /* NULL: none is needed */
    ebb_stream *border;                  /* for copies between iterations */
    const ebb_command *commands;         /* [n_commands]: the executor's */
    ebb_run_command *made;               /* [n_commands] */
    ebb_event **events;                  /* the executor's, by number */
    ebb_event *fed;                      /* when the latest step that copies in has ended; NULL: there are none */
    size_t n_commands;
    unsigned char *parked;    /* what the arena holds between iterations, while another run has the arena */
    uint64_t *parked_at;      /* [n_tensors]: where in it each begins */
    void *note_at;            /* where nothing is carried out: an address to say of packed values; not the run's */
    uint64_t note_bytes;      /* what belongs to it; parked bytes are said to be behind it */
    ebb_recording *recording; /* of the next iterations; NULL: none */
    ebb_status record_status; /* of the last recording; its words, if there was memory for them */
    char *record_message;
    uint64_t bound_end_bytes;            /* in the arena: the end of the highest byte that a command was given */
    uint64_t waited_ns[EBB_MAX_ENGINES]; /* by each engine's stream, until the last iteration's end */
    bool failed;                         /* an iteration failed halfway: the content is not to be trusted */
    ebb_run_stats stats;
};

/* arena.c: give an arena to a run, and take it from a run that has it. EBB_E_ARGUMENT: another run has it. */
ebb_status ebb__arena_take(ebb_arena *arena, const ebb_run *run);
void ebb__arena_leave(ebb_arena *arena, const ebb_run *run);

/* values.c: zeros for what lasts in the arena; and the ports' batch in the inputs that are fed early. */
ebb_status ebb__run_clear(ebb_run *run);
ebb_status ebb__run_set_inputs(ebb_run *run);

/* values.c: frees what is parked, if anything is. */
void ebb__run_give_parked(ebb_run *run);

/* commands.c: make the commands with their kernels bound and events made; undo it. */
ebb_status ebb__run_bind(ebb_run *run);
void ebb__run_unbind(ebb_run *run);

/* run_valid.c: the deep check, O(commands + tensors). */
bool ebb__run_is_valid(const ebb_run *run);
#if EBB_DEBUG >= 2
#define EBB_RUN_DEEP_CHECK(run) EBB_ASSERT(ebb__run_is_valid(run))
#else
#define EBB_RUN_DEEP_CHECK(run) ((void)0)
#endif

/* run.c: one iteration, timed. events: NULL, or two for each command but drops, to be recorded before and after it;
 * then every stream is idle when it returns. */
ebb_status ebb__run_iterate(ebb_run *run, ebb_event *const *events);
/* Wait until every stream is idle; the first error. */
ebb_status ebb__run_drain(ebb_run *run);

/* record.c: one iteration, told in run->recording's trace; with the last one, and when it is lost, the recording is
 * done with. The status is the iteration's; what became of the recording is in run. */
ebb_status ebb__run_record(ebb_run *run);
/* End a recording, if there is one, with the iterations that it has. */
void ebb__run_record_end(ebb_run *run);

#endif
