/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of this folder: the device, memory, streams, events, captured iterations, layouts, kernels.
 *
 *   cuda_plugin.c   the entry                     cuda_layout.c   interned layouts, pack and unpack
 *   cuda_device.c   the table; open, info         cuda_kernel.c   operator -> maker; create, bind, run
 *   cuda_memory.c   the arena, pinned memory      cuda_flat.c ... one file a family of operators: its makers
 *   cuda_stream.c   streams, events, calls        cuda_*.cu       launchers of own kernels (cuda_launch.h)
 *   cuda_capture.c  iterations as CUDA graphs
 *
 * Every call that may fail goes through EBB_CUDA, which makes a status of it and clears what the runtime remembers.
 * No file calls another's statics; nothing here reads device memory from the host.
 */
#ifndef EBB_SRC_CUDA_PRIV_H
#define EBB_SRC_CUDA_PRIV_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/cuda_launch_ops.h"
#include "backend/kernel_check.h"

#include <pthread.h>

#include <cuda.h>

#define EBB_CUDA_ALIGNMENT 256u /* of offsets: what cudaMalloc gives, and all libraries' vector loads need */

#define EBB_CUDA(expr, what)                                                                                           \
    do {                                                                                                               \
        cudaError_t ebb_cuda_error_ = (expr);                                                                          \
        if (ebb_cuda_error_ != cudaSuccess) { return ebb__cuda_fail(ebb_cuda_error_, (what)); }                        \
    } while (0)
/* EBB_E_NO_DEVICE, EBB_E_NO_MEMORY or EBB_E_DEVICE, with what was being done and the runtime's words. */
ebb_status ebb__cuda_fail(cudaError_t error, const char *what);

/* The driver's calls that the runtime has no name for; found at run time, so that nothing links libcuda. */
typedef struct ebb_cuda_driver {
    CUresult (*address_reserve)(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                unsigned long long flags);
    CUresult (*address_free)(CUdeviceptr ptr, size_t size);
    CUresult (*create)(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
                       unsigned long long flags);
    CUresult (*release)(CUmemGenericAllocationHandle handle);
    CUresult (*map)(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                    unsigned long long flags);
    CUresult (*unmap)(CUdeviceptr ptr, size_t size);
    CUresult (*set_access)(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count);
    CUresult (*granularity)(size_t *granularity, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags option);
    CUresult (*error_text)(CUresult error, const char **text);
} ebb_cuda_driver;

typedef struct ebb_cuda_iteration ebb_cuda_iteration; /* cuda_capture.c */

/* A run's state and where the device has it. */
typedef struct ebb_cuda_state_slot {
    const ebb_run_state *state; /* NULL: free */
    ebb_cuda_state sent;
    bool is_sent;
    uint32_t n_bound; /* kernels that hold it */
} ebb_cuda_state_slot;

/* Runs on one device that are bound at one time; two is usual, for training and for evaluation. */
#define EBB_CUDA_MAX_STATES 64u

/* Event times count from the latest anchor at their record: the runtime tells them apart in single precision, which has
 * tens of nanoseconds a second later and milliseconds an hour later. */
typedef struct ebb_cuda_anchor {
    cudaEvent_t event;
    uint64_t ns; /* when it was, on ebb__now_ns's clock */
} ebb_cuda_anchor;
#define EBB_CUDA_N_ANCHORS 16u

typedef struct ebb_cuda_layout {
    ebb_shape shape; /* bytes: one dimension, how many */
    ebb_dtype dtype;
    enum { EBB_CUDA_PLAIN, EBB_CUDA_CHANNELS_LAST, EBB_CUDA_BYTES } order;
    uint64_t size_bytes;
} ebb_cuda_layout;

typedef struct ebb_cuda_device {
    ebb_device base;
    int index;
    int32_t n_threads; /* of the host: images are decoded there */
    bool tf32, nondeterministic;
    bool warned_own;        /* a convolution by the own kernel has been warned of */
    bool has_mapping;       /* the arena by create and map; else by cudaMalloc */
    ebb_cuda_driver driver; /* where has_mapping */
    uint64_t granule_bytes; /* an arena has whole ones */
    uint64_t arena_bytes;   /* of the card, in arenas that are there, whole granules */
    cudaStream_t stream;    /* its own: for replays, and for work outside of a run's streams */
    ebb_cuda_anchor anchors[EBB_CUDA_N_ANCHORS];
    uint64_t n_anchors;     /* ever; number k is anchors[k % EBB_CUDA_N_ANCHORS] */
    ebb_cuda_state *states; /* on the device, [EBB_CUDA_MAX_STATES] */
    unsigned *tickets;      /* after them, [EBB_CUDA_MAX_STATES][EBB_CUDA_MAX_TICKETS]: see cuda_rows.h */
    ebb_cuda_state_slot slots[EBB_CUDA_MAX_STATES];
    bool no_capture, capturing;
    ebb_cuda_iteration *current; /* between begin and end, unless it is replayed or is never to be captured */
    EBB_VEC(ebb_cuda_iteration *) iterations;
    uint64_t n_captures; /* ever */
    EBB_VEC(ebb_cuda_layout) layouts;
    ebb_layout *layout_slots; /* [n_layout_slots], a power of two; EBB_LAYOUT_ANY is empty */
    size_t n_layout_slots;
    struct ebb_cuda_libraries *libraries; /* cuda_library.c; NULL until an operator needs one */
} ebb_cuda_device;

static inline ebb_cuda_device *ebb__cuda_of(ebb_device *device) {
    return (ebb_cuda_device *)device;
}

/* Make device the calling thread's: before every call of the runtime that does not name a stream of it. */
ebb_status ebb__cuda_enter(const ebb_cuda_device *device);

/* ---- memory (cuda_memory.c) -------------------------------------------------------------------- */

void *ebb__cuda_address(ebb_buf buf); /* on the device; never to be read by the host */
/* Find the driver's calls; has_mapping is false where the device or the driver has none. */
ebb_status ebb__cuda_memory_init(ebb_cuda_device *device);

/* ---- streams and events (cuda_stream.c) -------------------------------------------------------- */

struct ebb_stream {
    ebb_device *device;
    cudaStream_t handle;
    struct ebb_cuda_calls *calls; /* host calls under way, and the first one's failure */
    cudaEvent_t join;             /* recorded after all of it, where other streams wait for that */
    uint64_t joined;              /* number of the latest capture that it is or was part of */
};

struct ebb_event {
    cudaEvent_t handle;
    uint64_t anchor;   /* number of the device's latest when it was recorded */
    uint64_t captured; /* number of the capture that has its latest record; 0: none */
    bool is_recorded;
};

/* Before each command: the device is the thread's, and the stream part of a capture that is going on. */
ebb_status ebb__cuda_begin_command(ebb_stream *stream);
/* The first anchor; events' times begin there. */
ebb_status ebb__cuda_anchor_init(ebb_cuda_device *device);
void ebb__cuda_anchor_fini(ebb_cuda_device *device);

/* ---- captured iterations (cuda_capture.c) ------------------------------------------------------ */

/* Before each command: the stream takes part in the iteration that is noted or captured, if one is. */
ebb_status ebb__cuda_capture_join(ebb_stream *stream);
/* Before a call of the host. */
ebb_status ebb__cuda_capture_note_call(ebb_cuda_device *device);
/* Whether a kernel that reads the state is being captured: then each launch of the graph sends it. */
bool ebb__cuda_capture_keeps_state(ebb_cuda_device *device, uint32_t slot);
/* After a copy from a port that moves (ebb_run_state): a graph's launches must find the port where it is then. */
ebb_status ebb__cuda_capture_note_feed(ebb_cuda_device *device, const ebb_run_state *state, int32_t port, void *dst,
                                       uint64_t bytes);
/* The number of the capture that is going on; 0: none is. */
uint64_t ebb__cuda_capture_number(const ebb_cuda_device *device);
/* The event after the latest launch of a captured iteration, without a time. false: none, or no more. */
bool ebb__cuda_capture_done(const ebb_cuda_device *device, uint64_t number, cudaEvent_t *done_out);
/* Give up what is being captured, if anything is: before everything that waits for the device. */
void ebb__cuda_capture_abandon(ebb_cuda_device *device);
/* Drop the iterations that stream is part of; NULL: all. */
void ebb__cuda_capture_forget(ebb_cuda_device *device, const ebb_stream *stream);

/* ---- the run's state (cuda_state.c) ------------------------------------------------------------ */

/* A kernel that reads state holds its slot from bind to unbind. EBB_E_LIMIT: more runs than there are slots. */
ebb_status ebb__cuda_state_hold(ebb_cuda_device *device, const ebb_run_state *state, uint32_t *slot_out);
void ebb__cuda_state_release(ebb_cuda_device *device, uint32_t slot);
/* Before a kernel that reads it: carry to the device what has changed, in the stream's order. */
ebb_status ebb__cuda_state_send(ebb_cuda_device *device, uint32_t slot, cudaStream_t stream);

/* ---- layouts (cuda_layout.c) ------------------------------------------------------------------- */

const ebb_cuda_layout *ebb__cuda_layout(const ebb_device *device, ebb_layout layout);
/* (n, c, h, w) with c innermost. EBB_E_ARGUMENT: not four dimensions. */
ebb_status ebb__cuda_layout_channels_last(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape,
                                          ebb_layout *layout_out);
/* Bytes that only one operator's own kernels understand. */
ebb_status ebb__cuda_layout_of_bytes(ebb_device *device, uint64_t size_bytes, ebb_layout *layout_out);
void ebb__cuda_layouts_fini(ebb_cuda_device *device);

/* ---- kernels (cuda_kernel.c) ------------------------------------------------------------------- */

typedef struct ebb_cuda_kernel ebb_cuda_kernel;

struct ebb_cuda_kernel {
    ebb_kernel base;
    const ebb_mem *mem;
    ebb_op_attr attr;
    uint32_t n_in, n_out, n_inout;
    ebb_shape shape;     /* of operand 0 */
    uint64_t n_elements; /* of operand 0 */
    ebb_layout *layout;  /* base.layout, writable while it is built */
    bool reads_state;    /* bound->state is wanted */
    bool adds_rows;      /* bound->tickets are */
    /* Queue it. Nothing is allocated, nothing waits. */
    ebb_status (*run)(const ebb_cuda_kernel *kernel, const ebb_bound *bound, cudaStream_t stream);
    /* A family's own data, such as its library's descriptors; destroyed with the kernel. */
    void *extra;
    void (*extra_destroy)(const ebb_cuda_kernel *kernel);
    /* Data for one binding (a variant pack); both are NULL where addresses are enough. */
    ebb_status (*pack_create)(const ebb_cuda_kernel *kernel, ebb_bound *bound);
    void (*pack_destroy)(const ebb_cuda_kernel *kernel, ebb_bound *bound);
};

struct ebb_bound {
    const ebb_run_state *host_state; /* for its ports */
    const ebb_cuda_state *state;     /* on the device; NULL unless the kernel reads it */
    unsigned *tickets; /* of the run, whose kernels come one after the other; NULL unless rows are added */
    uint32_t slot;     /* of the state and the tickets, where either is not NULL */
    uint64_t rng_stream;
    void *scratch;
    void *pack;
    void *at[]; /* address of each operand */
};

/* Every operand in the layout of the first one that has been decided; plain if none has. For shapes that are equal. */
ebb_status ebb__cuda_all_same(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);

/* ---- libraries (cuda_library.c) ---------------------------------------------------------------- */

/* A hash of the card's name, the options and the libraries' versions. */
ebb_status ebb__cuda_times_key(const ebb_cuda_device *device, uint64_t *key_out);
void ebb__cuda_libraries_fini(ebb_cuda_device *device);

/* ---- table entries ----------------------------------------------------------------------------- */

ebb_status ebb__cuda_arena_create(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out);
void ebb__cuda_arena_destroy(ebb_device *device, ebb_arena_mem *arena);
ebb_arena_use ebb__cuda_arena_measure(ebb_device *device, const ebb_arena_mem *arena);
ebb_status ebb__cuda_host_alloc(ebb_device *device, uint64_t size_bytes, void **ptr_out);
void ebb__cuda_host_free(ebb_device *device, void *ptr, uint64_t size_bytes);
ebb_status ebb__cuda_layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out);
uint64_t ebb__cuda_layout_bytes(const ebb_device *device, ebb_layout layout);
const char *ebb__cuda_layout_name(const ebb_device *device, ebb_layout layout);
ebb_status ebb__cuda_layout_pack(ebb_device *device, ebb_layout layout, const void *plain, void *packed);
ebb_status ebb__cuda_layout_unpack(ebb_device *device, ebb_layout layout, const void *packed, void *plain);
ebb_status ebb__cuda_kernel_create(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out);
void ebb__cuda_kernel_destroy(ebb_kernel *kernel);
ebb_status ebb__cuda_bind(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out);
void ebb__cuda_unbind(ebb_kernel *kernel, ebb_bound *bound);
ebb_status ebb__cuda_merges(ebb_device *device, const ebb_kernel_desc *desc, bool *merges_out);
ebb_status ebb__cuda_stream_create(ebb_device *device, bool compute, ebb_stream **stream_out);
void ebb__cuda_stream_destroy(ebb_stream *stream);
ebb_status ebb__cuda_stream_sync(ebb_stream *stream);
ebb_status ebb__cuda_run(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound);
ebb_status ebb__cuda_copy(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side);
ebb_status ebb__cuda_call(ebb_stream *stream, ebb_call_fn fn, void *ctx);
ebb_status ebb__cuda_event_create(ebb_device *device, ebb_event **event_out);
void ebb__cuda_event_destroy(ebb_device *device, ebb_event *event);
ebb_status ebb__cuda_event_record(ebb_stream *stream, ebb_event *event);
ebb_status ebb__cuda_event_wait(ebb_stream *stream, ebb_event *event);
ebb_status ebb__cuda_event_sync(ebb_device *device, ebb_event *event);
uint64_t ebb__cuda_event_time_ns(ebb_device *device, ebb_event *event);
ebb_status ebb__cuda_iteration_begin(ebb_device *device, uint64_t run_id, bool *issue_out);
ebb_status ebb__cuda_iteration_end(ebb_device *device, uint64_t run_id, ebb_status issued, bool *again_out);

/* ---- families of operators: fill in a kernel whose common parts are there ---------------------- */

typedef ebb_status (*ebb_cuda_make_fn)(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);

ebb_status ebb__cuda_make_flat(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_conv(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_linear(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_port(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_pool(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_lrn(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_dropout(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_update(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_concat(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_slice(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_reshape(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_reorder(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_batch_norm(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_batch_norm_stats(ebb_cuda_device *device, const ebb_kernel_desc *desc,
                                           ebb_cuda_kernel *kernel);
ebb_status ebb__cuda_make_loss(ebb_cuda_device *device, const ebb_kernel_desc *desc, ebb_cuda_kernel *kernel);

#endif
