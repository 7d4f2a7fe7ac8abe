/* SPDX-License-Identifier: Apache-2.0
 *
 * What a backend is: one const table. It owns device memory, layouts, kernels, streams and events; it knows
 * nothing of programs, plans or budgets. Lowering (lower.h) asks it for layouts and kernels; the runtime
 * binds kernels to places in the arena and issues them to streams.
 *
 * The table was gone through for three kinds of device before any was written:
 *
 *                     ref, cpu                        cuda                            dry
 *   arena             mapped host memory              cuMemCreate/cuMemMap            nothing, bytes only
 *   stream, compute   the caller's thread             a CUDA stream                   the caller's thread
 *   stream, copies    a thread with a queue           a CUDA stream                   the same
 *   event             a flag that a stream sets       cudaEvent                       the same
 *   wait              blocks that stream's thread     cudaStreamWaitEvent             the same
 *   copy              memcpy                          cudaMemcpyAsync, pinned         counted only
 *   call              on that stream's thread         cudaLaunchHostFunc              the same
 *   kernel            oneDNN primitive                cuDNN plan, own kernel          work figures only
 *   bind              memory objects made once        variant pack made once          nothing
 *   stream_waited_ns  counted by the stream           NULL                            the same
 *   iteration_begin   NULL                            graph capture, then replay      NULL
 *
 * Where a table lies in a library of its own, see plugin.h; what is lent to it counts as part of EBB_BACKEND_ABI, and
 * so do ebb_device_options.
 *
 * Contracts
 *  1. Commands on one stream run in the order of issue. Issuing never waits for the device, save on a stream
 *     whose device is the caller's thread. Late errors surface in stream_sync.
 *  2. run allocates no device memory and is a pure function of operands, kernel and ebb_run_state. The same
 *     kernel on the same bytes gives the same bytes, wherever in the arena they lie.
 *  3. Device memory is an ebb_buf, never a pointer, outside the backend; only host_visible devices may have
 *     it read by the host (ebb_backend_ops.host_address).
 *  4. A kernel's layouts do not depend on the choice of algorithm, only its scratch and time do.
 *  5. One device is used by one thread at a time, but for the streams' own threads.
 */
#ifndef EBB_SRC_BACKEND_H
#define EBB_SRC_BACKEND_H

#include "base/base.h"
#include "ebb/device.h"
#include "graph/graph.h"

#define EBB_BACKEND_ABI 9u

/* A backend's own types begin with these members; the rest is theirs. */
typedef struct ebb_backend_ops ebb_backend_ops;

struct ebb_device {
    const ebb_backend_ops *ops;
    const ebb_mem *mem;
    uint64_t times_key; /* of what a kernel's time depends on beside its work: a card, options, libraries */
};

typedef struct ebb_arena_mem ebb_arena_mem; /* one piece of device memory */

/* What an arena has taken so far, as the kernel or a driver counts it. */
typedef struct ebb_arena_use {
    /* Pages: where the highest one that was touched ends, at most the arena's size. A driver: what it gave for the
     * arena, in its granules. UINT64_MAX: not known. */
    uint64_t peak_bytes;
    uint64_t resident_bytes; /* of pages: all that are in memory; 0: not known */
} ebb_arena_use;

typedef struct ebb_buf {
    ebb_arena_mem *arena;
    uint64_t offset, size_bytes;
} ebb_buf;

/* Layouts are interned: within one device, equal layouts have equal ids. */
typedef uint32_t ebb_layout;
#define EBB_LAYOUT_ANY UINT32_MAX /* not decided yet: the kernel chooses */

typedef struct ebb_operand {
    ebb_shape shape;
    ebb_dtype dtype;
    bool opaque;       /* an output whose bytes the kernel decides; as an input its layout is given */
    ebb_layout layout; /* what it is in now (inputs), should be in (outputs), or EBB_LAYOUT_ANY */
} ebb_operand;

/* An operator with its operands, in the order of graph.h's table. in, out, inout follow one another in
 * operand. Equal descriptions mean equal kernels: lowering makes each once. */
typedef struct ebb_kernel_desc {
    ebb_op_kind kind;
    ebb_op_attr attr;
    uint32_t n_in, n_out, n_inout;
    const ebb_operand *operand; /* [n_in + n_out + n_inout] */
    uint32_t choice;            /* which algorithm; 0 is always there */
} ebb_kernel_desc;

/* What every kernel says of itself; a backend's kernel begins with it. */
typedef struct ebb_kernel {
    ebb_device *device;
    /* [n_in + n_out + n_inout], the backend's memory: the layout that each operand must be in. Where it
     * differs from what an input is in, lowering puts a REORDER step before. */
    const ebb_layout *layout;
    const char *algorithm; /* static; for people */
    uint64_t scratch_bytes;
    uint32_t n_choices;
    uint32_t inplace; /* bit i: output 0 may be the same bytes as input i */
    double flops, traffic_bytes;
} ebb_kernel;

typedef struct ebb_bound ebb_bound;   /* a kernel with its operands' places */
typedef struct ebb_stream ebb_stream; /* begins with an ebb_device * */
typedef struct ebb_event ebb_event;

/* What changes from one iteration to the next. Its address is given at bind and stays; the host writes it
 * only between iterations. */
typedef struct ebb_run_state {
    uint64_t seed;
    uint64_t iteration; /* from 0; dropout's masks depend on it */
    uint64_t update;    /* from 1: how many updates, this one included, the optimiser has made */
    float learning_rate;
    void *const *port; /* host memory (host_alloc's) of each port that FEED and FETCH name; see ports_move */
    bool ports_move;   /* inputs have other memory in each iteration; else ports are fixed at bind */
} ebb_run_state;

typedef struct ebb_binding {
    const ebb_buf *operand; /* [n_in + n_out + n_inout]; a device without data gets offsets all the same */
    ebb_buf scratch;
    const ebb_run_state *state;
    uint64_t rng_stream;
} ebb_binding;

typedef enum ebb_copy_direction { EBB_COPY_OUT, EBB_COPY_IN } ebb_copy_direction;

typedef ebb_status (*ebb_call_fn)(void *ctx);

/* Bytes that host code reads or writes: of memory from base on, or of the file that base stands for. The memory of
 * another process is a file here, too. */
typedef struct ebb_touch {
    const void *base;
    uint64_t offset, size_bytes;
    ebb_access_mode mode;
    bool file;
} ebb_touch;

struct ebb_backend_ops {
    uint32_t abi; /* EBB_BACKEND_ABI */
    const char *name;
    const char *about;
    uint64_t alignment_bytes; /* of every offset in an arena */
    bool host_visible;        /* host_address works, and the file tier needs no staging */
    bool has_data;            /* false: bytes and times only, nothing is computed */
    bool feeds_early;         /* an input is better copied in during the iteration before (ebb_lower_fed_early) */

    ebb_status (*open)(const ebb_device_options *options, ebb_device **device_out);
    void (*close)(ebb_device *device);
    ebb_status (*info)(ebb_device *device, ebb_device_info *info_out);

    /* memory */
    ebb_status (*arena_create)(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out);
    void (*arena_destroy)(ebb_device *device, ebb_arena_mem *arena);
    ebb_arena_use (*arena_measure)(ebb_device *device, const ebb_arena_mem *arena); /* NULL: nothing is known */
    ebb_status (*host_alloc)(ebb_device *device, uint64_t size_bytes,
                             void **ptr_out); /* zeroed; pinned where it pays */
    void (*host_free)(ebb_device *device, void *ptr, uint64_t size_bytes);
    void *(*host_address)(ebb_buf buf); /* NULL entry unless host_visible */

    /* layouts */
    ebb_status (*layout_plain)(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out);
    uint64_t (*layout_bytes)(const ebb_device *device, ebb_layout layout);
    const char *(*layout_name)(const ebb_device *device, ebb_layout layout); /* for people: "nChw16c" */
    /* Between row-major plain bytes and bytes as they lie on the device, both in host memory. Padding is
     * zeroed by pack. */
    ebb_status (*layout_pack)(ebb_device *device, ebb_layout layout, const void *plain, void *packed);
    ebb_status (*layout_unpack)(ebb_device *device, ebb_layout layout, const void *packed, void *plain);

    /* kernels. EBB_E_UNSUPPORTED: the message names the operator and what of it. EBB_E_LIMIT: no such choice. */
    ebb_status (*kernel_create)(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out);
    void (*kernel_destroy)(ebb_kernel *kernel);
    ebb_status (*bind)(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out);
    void (*unbind)(ebb_kernel *kernel, ebb_bound *bound);

    /* optional: NULL: never. Whether desc, which lowering can put in place of two operators (graph.h: CONV_BWD_DATA_ADD
     * for CONV_BWD_DATA and an ADD), is the better choice. */
    ebb_status (*merges)(ebb_device *device, const ebb_kernel_desc *desc, bool *merges_out);

    /* streams and events */
    ebb_status (*stream_create)(ebb_device *device, bool compute, ebb_stream **stream_out);
    void (*stream_destroy)(ebb_stream *stream); /* what is queued is finished first */
    ebb_status (*event_create)(ebb_device *device, ebb_event **event_out);
    void (*event_destroy)(ebb_device *device, ebb_event *event);
    ebb_status (*run)(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound);
    ebb_status (*copy)(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side);
    ebb_status (*call)(ebb_stream *stream, ebb_call_fn fn, void *ctx); /* fn on the host, in stream order */
    ebb_status (*event_record)(ebb_stream *stream, ebb_event *event);
    ebb_status (*event_wait)(ebb_stream *stream, ebb_event *event); /* for its latest record; none yet: no wait */
    ebb_status (*event_sync)(ebb_device *device, ebb_event *event); /* the host waits */
    /* Of its latest record, once synced; 0: that was part of a captured iteration. */
    uint64_t (*event_time_ns)(ebb_device *device, ebb_event *event);
    ebb_status (*stream_sync)(ebb_stream *stream); /* the first late error of this stream, once */

    /* optional: NULL: not known. How long event_wait has kept the stream from going on, since the stream was made. A
     * wait counts when it has ended. Any thread may ask. */
    uint64_t (*stream_waited_ns)(const ebb_stream *stream);

    /* optional: NULL: every command is issued each iteration. *issue_out false: the backend has captured this
     * run_id's iteration and replays it by itself; the caller issues nothing and calls end. Between begin and end come
     * the same commands each time, and waits only for events of the streams that they are issued to. A run_id is good
     * until a stream that it used is destroyed. end is told how issuing went, and returns a failure of it, unless
     * *again_out is true: then nothing of the iteration has run (a capture failed), and the caller begins it again. An
     * iteration may be left without its end. */
    ebb_status (*iteration_begin)(ebb_device *device, uint64_t run_id, bool *issue_out);
    ebb_status (*iteration_end)(ebb_device *device, uint64_t run_id, ebb_status issued, bool *again_out);

    /* optional: NULL: commands are carried out. Else the device only writes them down (journal.h): nothing is computed,
     * copied or called, and what host code touches is said here. stream NULL: the host itself, now; else what the next
     * call in that stream would touch. */
    ebb_status (*touch)(ebb_device *device, ebb_stream *stream, const ebb_touch *touches, size_t n);
};

static inline bool ebb__only_writes_down(const ebb_device *device) {
    return device->ops->touch != NULL;
}

static inline ebb_status ebb__touch(ebb_device *device, ebb_stream *stream, const ebb_touch *touches, size_t n) {
    return device->ops->touch != NULL ? device->ops->touch(device, stream, touches, n) : EBB_OK;
}

/* The backends of this build, in the order in which `--help` names them; NULL past the last (registry.c). */
const ebb_backend_ops *ebb__backend_get(size_t idx);
const ebb_backend_ops *ebb__backend_find(const char *name);

#endif
