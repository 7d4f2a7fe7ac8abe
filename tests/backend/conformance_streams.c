/* SPDX-License-Identifier: Apache-2.0
 *
 * What the runtime counts on: copies that arrive, events that order two streams, calls in stream order, errors
 * that surface once. Written against the table alone.
 */
#include "conformance.h"

#include <stdlib.h>
#include <time.h>

#define PIECE_BYTES ((uint64_t)64 * 1024)

typedef struct pair {
    ebb_stream *compute, *copies;
    ebb_event *event;
} pair;

static pair pair_init(bench *b) {
    pair p = {0};
    MUST(b->ops->stream_create(b->device, true, &p.compute));
    MUST(b->ops->stream_create(b->device, false, &p.copies));
    MUST(b->ops->event_create(b->device, &p.event));
    return p;
}

static void pair_fini(bench *b, pair *p) {
    b->ops->stream_destroy(p->compute);
    b->ops->stream_destroy(p->copies);
    b->ops->event_destroy(b->device, p->event);
}

/* In on one stream, out on the other, into other host memory. */
void copies_round_trip(void **state) {
    bench *b = *state;
    pair p = pair_init(b);
    const ebb_buf buf = {b->arena, 64 * b->ops->alignment_bytes, PIECE_BYTES};
    for (uint64_t i = 0; i < PIECE_BYTES; i++) { b->image[i] = (unsigned char)(i * 7 + i / 251); }
    memset(b->before, 0, PIECE_BYTES);
    MUST(b->ops->copy(p.copies, EBB_COPY_IN, buf, b->image));
    MUST(b->ops->event_record(p.copies, p.event));
    MUST(b->ops->event_wait(p.compute, p.event));
    MUST(b->ops->copy(p.compute, EBB_COPY_OUT, buf, b->before));
    MUST(b->ops->stream_sync(p.compute));
    MUST(b->ops->stream_sync(p.copies));
    if (b->ops->has_data) { assert_memory_equal(b->before, b->image, PIECE_BYTES); }
    pair_fini(b, &p);
}

typedef struct note {
    int *next, seen;
} note;

static ebb_status take_number(void *ctx) {
    note *n = ctx;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    n->seen = (*n->next)++;
    return EBB_OK;
}

/* Whether waits have held the stream up, as far as the device counts them. */
static void expect_waits(const bench *b, const ebb_stream *stream, bool has_waited) {
    if (b->ops->stream_waited_ns == NULL) { return; }
    assert_int_equal(b->ops->stream_waited_ns(stream) > 0, has_waited);
}

/* Calls alternate between two streams, each after the other's event, which is recorded anew every time. */
void events_order_streams(void **state) {
    bench *b = *state;
    pair p = pair_init(b);
    int next = 0;
    note notes[10];
    uint64_t last_ns = 0;
    MUST(b->ops->event_wait(p.compute, p.event)); /* never recorded: no wait */
    expect_waits(b, p.compute, false);
    for (int i = 0; i < 10; i++) {
        notes[i] = (note){.next = &next, .seen = -1};
        ebb_stream *stream = i % 2 == 0 ? p.copies : p.compute;
        MUST(b->ops->event_wait(stream, p.event));
        MUST(b->ops->call(stream, take_number, &notes[i]));
        MUST(b->ops->event_record(stream, p.event));
    }
    MUST(b->ops->event_sync(b->device, p.event));
    for (int i = 0; i < 10; i++) { assert_int_equal(notes[i].seen, i); }
    expect_waits(b, p.compute, true);
    for (int i = 0; i < 3; i++) {
        MUST(b->ops->event_record(p.copies, p.event));
        MUST(b->ops->event_sync(b->device, p.event));
        const uint64_t now_ns = b->ops->event_time_ns(b->device, p.event);
        assert_true(now_ns >= last_ns);
        last_ns = now_ns;
    }
    pair_fini(b, &p);
}

static ebb_status fail_call(void *ctx) {
    (void)ctx;
    return ebb_fail(EBB_E_IO, "no room on the test's disk");
}

static ebb_status count_call(void *ctx) {
    ++*(int *)ctx;
    return EBB_OK;
}

/* The failed stream leaves out all commands after the failure, records its events all the same, and works again
 * once it has told. */
void late_errors_surface_once(void **state) {
    bench *b = *state;
    pair p = pair_init(b);
    int n_calls = 0;
    MUST(b->ops->call(p.copies, fail_call, NULL));
    MUST(b->ops->call(p.copies, count_call, &n_calls));
    MUST(b->ops->event_record(p.copies, p.event));
    MUST(b->ops->event_sync(b->device, p.event));
    assert_int_equal(b->ops->stream_sync(p.copies), EBB_E_IO);
    assert_string_equal(ebb_last_error(), "no room on the test's disk");
    assert_int_equal(n_calls, 0);
    MUST(b->ops->stream_sync(p.copies));
    MUST(b->ops->call(p.copies, count_call, &n_calls));
    MUST(b->ops->stream_sync(p.copies));
    assert_int_equal(n_calls, 1);
    pair_fini(b, &p);
}

static ebb_kernel *make_relu(bench *b, const ebb_shape *shape) {
    ebb_operand operand[2] = {{.shape = *shape}, {.shape = *shape}};
    MUST(b->ops->layout_plain(b->device, EBB_F32, shape, &operand[0].layout));
    operand[1].layout = operand[0].layout;
    const ebb_kernel_desc desc = {.kind = EBB_OP_RELU, .n_in = 1, .n_out = 1, .operand = operand};
    ebb_kernel *kernel = NULL;
    MUST(b->ops->kernel_create(b->device, &desc, &kernel));
    return kernel;
}

/* Content comes in, is computed on, and goes out again, three times over with one binding. */
void kernels_run_in_stream_order(void **state) {
    bench *b = *state;
    pair p = pair_init(b);
    const ebb_shape shape = {.n_dims = 2, .dims = {8, 16}};
    ebb_kernel *kernel = make_relu(b, &shape);
    const uint64_t n_bytes = 8 * 16 * sizeof(float), step = ebb_align_up(n_bytes, b->ops->alignment_bytes);
    const ebb_buf buf[2] = {{b->arena, 0, n_bytes}, {b->arena, step, n_bytes}};
    const ebb_buf scratch = {b->arena, 2 * step, kernel->scratch_bytes};
    const ebb_binding binding = {.operand = buf, .scratch = scratch, .state = &b->state};
    ebb_bound *bound = NULL;
    MUST(b->ops->bind(kernel, &binding, &bound));
    float *in = (float *)b->image, *out = (float *)b->before;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8 * 16; i++) { in[i] = (float)(i - 30 * round - 20); }
        MUST(b->ops->copy(p.copies, EBB_COPY_IN, buf[0], in));
        MUST(b->ops->event_record(p.copies, p.event));
        MUST(b->ops->event_wait(p.compute, p.event));
        MUST(b->ops->run(p.compute, kernel, bound));
        MUST(b->ops->event_record(p.compute, p.event));
        MUST(b->ops->event_wait(p.copies, p.event));
        MUST(b->ops->copy(p.copies, EBB_COPY_OUT, buf[1], out));
        MUST(b->ops->stream_sync(p.copies));
        for (int i = 0; b->ops->has_data && i < 8 * 16; i++) { assert_true(out[i] == (in[i] > 0.0f ? in[i] : 0.0f)); }
    }
    b->ops->unbind(kernel, bound);
    b->ops->kernel_destroy(kernel);
    pair_fini(b, &p);
}
