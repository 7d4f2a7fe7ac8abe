/* SPDX-License-Identifier: Apache-2.0
 *
 * A device over the fake with what an iteration needs, for the tests of streams, captures and failures: three streams,
 * an arena, pinned memory, and an iteration that has everything in it that a run issues.
 *
 *   compute   feed ──► a    add a + b = c         relu c = d    fetch d ──►
 *   in        wait c read, copy in ──► b, record in             (of the iteration before)
 *   out                     wait add, copy c ──► host
 */
#ifndef EBB_TESTS_FAKE_BENCH_H
#define EBB_TESTS_FAKE_BENCH_H

#include "backend/cuda/cuda.h"
#include "fake_cuda.h"
#include "support.h"

enum { FAKE_N = 64 };
#define FAKE_BYTES ((uint64_t)FAKE_N * sizeof(float))
enum { BUF_A, BUF_B, BUF_C, BUF_D, N_BUFS };
enum { KERNEL_FEED, KERNEL_ADD, KERNEL_RELU, KERNEL_FETCH, N_KERNELS };
enum { STREAM_COMPUTE, STREAM_OUT, STREAM_IN, N_STREAMS };
enum { EVENT_IN, EVENT_ADDED, EVENT_OUT, N_EVENTS };

typedef struct fake_bench {
    const ebb_backend_ops *ops;
    ebb_device *device;
    ebb_arena_mem *arena;
    ebb_stream *stream[N_STREAMS];
    ebb_event *event[N_EVENTS];
    ebb_kernel *kernel[N_KERNELS];
    ebb_bound *bound[N_KERNELS];
    ebb_run_state state;
    void *port[2];   /* state.port: what FEED reads, what FETCH writes */
    float *in, *out; /* pinned: what copies bring and take */
} fake_bench;

static inline ebb_buf fake_buf(const fake_bench *b, int idx) {
    return (ebb_buf){.arena = b->arena, .offset = 256 * (uint64_t)idx, .size_bytes = FAKE_BYTES};
}

static inline ebb_status fake_bench_kernel(fake_bench *b, int idx, ebb_op_kind kind, int port, const int *bufs,
                                           uint32_t n_in, uint32_t n_out) {
    ebb_operand operands[3];
    ebb_buf places[3];
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        operands[i] = (ebb_operand){.shape = {.n_dims = 1, .dims = {FAKE_N}}, .layout = EBB_LAYOUT_ANY};
        places[i] = fake_buf(b, bufs[i]);
    }
    const ebb_kernel_desc desc = {
        .kind = kind, .attr = {.port = port}, .n_in = n_in, .n_out = n_out, .operand = operands};
    const ebb_binding binding = {.operand = places, .state = &b->state};
    EBB_TRY(b->ops->kernel_create(b->device, &desc, &b->kernel[idx]));
    return b->ops->bind(b->kernel[idx], &binding, &b->bound[idx]);
}

static inline ebb_status fake_bench_kernels(fake_bench *b) {
    EBB_TRY(fake_bench_kernel(b, KERNEL_FEED, EBB_OP_FEED, 0, (int[]){BUF_A}, 0, 1));
    EBB_TRY(fake_bench_kernel(b, KERNEL_ADD, EBB_OP_ADD, 0, (int[]){BUF_A, BUF_B, BUF_C}, 2, 1));
    EBB_TRY(fake_bench_kernel(b, KERNEL_RELU, EBB_OP_RELU, 0, (int[]){BUF_C, BUF_D}, 1, 1));
    return fake_bench_kernel(b, KERNEL_FETCH, EBB_OP_FETCH, 1, (int[]){BUF_D}, 1, 0);
}

/* Close it whatever this returns. */
static inline ebb_status fake_bench_open(fake_bench *b, const ebb_mem *mem, bool no_capture) {
    *b = (fake_bench){.ops = &ebb__backend_cuda};
    ebb_device_options options = EBB_DEVICE_OPTIONS_INIT;
    options.mem = ebb__mem_or_default(mem);
    options.no_capture = no_capture;
    b->state.port = b->port;
    EBB_TRY(b->ops->open(&options, &b->device));
    EBB_TRY(b->ops->arena_create(b->device, 256 * N_BUFS, &b->arena));
    EBB_TRY(b->ops->host_alloc(b->device, FAKE_BYTES, (void **)&b->in));
    EBB_TRY(b->ops->host_alloc(b->device, FAKE_BYTES, (void **)&b->out));
    EBB_TRY(b->ops->host_alloc(b->device, FAKE_BYTES, &b->port[0]));
    EBB_TRY(b->ops->host_alloc(b->device, FAKE_BYTES, &b->port[1]));
    for (int s = 0; s < N_STREAMS; s++) {
        EBB_TRY(b->ops->stream_create(b->device, s == STREAM_COMPUTE, &b->stream[s]));
    }
    for (int e = 0; e < N_EVENTS; e++) { EBB_TRY(b->ops->event_create(b->device, &b->event[e])); }
    return fake_bench_kernels(b);
}

static inline void fake_bench_streams_fini(fake_bench *b) {
    for (int s = 0; s < N_STREAMS; s++) {
        b->ops->stream_destroy(b->stream[s]);
        b->stream[s] = NULL;
    }
}

static inline void fake_bench_close(fake_bench *b) {
    fake_bench_streams_fini(b);
    for (int k = 0; k < N_KERNELS; k++) {
        if (b->bound[k] != NULL) { b->ops->unbind(b->kernel[k], b->bound[k]); }
        b->ops->kernel_destroy(b->kernel[k]);
    }
    if (b->device == NULL) { return; }
    for (int e = 0; e < N_EVENTS; e++) { b->ops->event_destroy(b->device, b->event[e]); }
    b->ops->host_free(b->device, b->port[1], FAKE_BYTES);
    b->ops->host_free(b->device, b->port[0], FAKE_BYTES);
    b->ops->host_free(b->device, b->out, FAKE_BYTES);
    b->ops->host_free(b->device, b->in, FAKE_BYTES);
    b->ops->arena_destroy(b->device, b->arena);
    b->ops->close(b->device);
}

/* What each iteration reads: figures of its own. */
static inline void fake_bench_fill(fake_bench *b, int iteration) {
    float *fed = b->port[0];
    for (int i = 0; i < FAKE_N; i++) {
        b->in[i] = (float)(i * (iteration + 1));
        fed[i] = (float)(-30 * iteration - i);
    }
}

static inline ebb_status fake_bench_issue(fake_bench *b) {
    const ebb_backend_ops *ops = b->ops;
    ebb_stream *compute = b->stream[STREAM_COMPUTE], *in = b->stream[STREAM_IN], *out = b->stream[STREAM_OUT];
    EBB_TRY(ops->event_wait(in, b->event[EVENT_ADDED])); /* of the iteration before: b has been read */
    EBB_TRY(ops->copy(in, EBB_COPY_IN, fake_buf(b, BUF_B), b->in));
    EBB_TRY(ops->event_record(in, b->event[EVENT_IN]));
    EBB_TRY(ops->run(compute, b->kernel[KERNEL_FEED], b->bound[KERNEL_FEED]));
    EBB_TRY(ops->event_wait(compute, b->event[EVENT_IN]));
    EBB_TRY(ops->event_wait(compute, b->event[EVENT_OUT])); /* of the iteration before: c has left */
    EBB_TRY(ops->run(compute, b->kernel[KERNEL_ADD], b->bound[KERNEL_ADD]));
    EBB_TRY(ops->event_record(compute, b->event[EVENT_ADDED]));
    EBB_TRY(ops->event_wait(out, b->event[EVENT_ADDED]));
    EBB_TRY(ops->copy(out, EBB_COPY_OUT, fake_buf(b, BUF_C), b->out));
    EBB_TRY(ops->event_record(out, b->event[EVENT_OUT]));
    EBB_TRY(ops->run(compute, b->kernel[KERNEL_RELU], b->bound[KERNEL_RELU]));
    return ops->run(compute, b->kernel[KERNEL_FETCH], b->bound[KERNEL_FETCH]);
}

/* An iteration as the runtime makes one, and then everything waited for. */
static inline ebb_status fake_bench_iterate(fake_bench *b, uint64_t run_id) {
    for (bool again = true; again;) {
        bool issue = true;
        EBB_TRY(b->ops->iteration_begin(b->device, run_id, &issue));
        const ebb_status issued = issue ? fake_bench_issue(b) : EBB_OK;
        EBB_TRY(b->ops->iteration_end(b->device, run_id, issued, &again));
    }
    for (int s = 0; s < N_STREAMS; s++) { EBB_TRY(b->ops->stream_sync(b->stream[s])); }
    return EBB_OK;
}

static inline void fake_bench_check(const fake_bench *b) {
    const float *fed = b->port[0], *fetched = b->port[1];
    for (int i = 0; i < FAKE_N; i++) {
        const float sum = fed[i] + b->in[i];
        assert_true(b->out[i] == sum);
        assert_true(fetched[i] == (sum < 0.0f ? 0.0f : sum));
    }
}

#endif
