/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events are CUDA's own. This file adds times on one clock (see ebb_cuda_anchor), and calls of the host in
 * stream order whose failures are kept until stream_sync.
 *
 * Calls wait in a ring that is made with the stream, so no command allocates; if it is full, issuing blocks until the
 * oldest call has ended. CUDA makes the calls in the order of issue, on a thread of its own. After a failed call the
 * next ones are left out until stream_sync has returned the failure. Copies and kernels are already the device's, so
 * they are carried out all the same, on content that is not trusted any more. After a failure of the device CUDA makes
 * no call at all, so a wait for a place in the ring asks the stream from time to time.
 */
#include "backend/cuda/cuda_priv.h"

#define RING_CALLS 1024u
#define MESSAGE_BYTES 512
#define ANCHOR_NS ((uint64_t)1000 * 1000 * 1000)
#define PATIENCE_NS ((uint64_t)100 * 1000 * 1000)

typedef struct call {
    ebb_call_fn fn;
    void *ctx;
} call;

typedef struct ebb_cuda_calls {
    pthread_mutex_t lock;
    pthread_cond_t taken;
    size_t first, n; /* the one that is being done is still in it */
    ebb_status status;
    char message[MESSAGE_BYTES];
    call ring[RING_CALLS];
} ebb_cuda_calls;

ebb_status ebb__cuda_begin_command(ebb_stream *stream) {
    EBB_TRY(ebb__cuda_enter(ebb__cuda_of(stream->device)));
    return ebb__cuda_capture_join(stream);
}

/* ---- calls ------------------------------------------------------------------------------------- */

static void CUDART_CB do_call(void *arg) {
    ebb_cuda_calls *calls = arg;
    pthread_mutex_lock(&calls->lock);
    EBB_ASSERT(calls->n > 0);
    const call c = calls->ring[calls->first];
    const bool skip = calls->status != EBB_OK;
    pthread_mutex_unlock(&calls->lock);
    const ebb_status status = skip ? EBB_OK : c.fn(c.ctx);
    pthread_mutex_lock(&calls->lock);
    if (status != EBB_OK) {
        calls->status = status;
        (void)snprintf(calls->message, sizeof calls->message, "%s", ebb_last_error());
    }
    calls->first = (calls->first + 1) % RING_CALLS;
    calls->n--;
    pthread_cond_signal(&calls->taken);
    pthread_mutex_unlock(&calls->lock);
}

/* Wait a while for a place in the ring; whether there is one now. */
static bool wait_for_place(ebb_cuda_calls *calls) {
    const uint64_t until_ns = ebb__now_ns() + PATIENCE_NS;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    int error = 0;
    pthread_mutex_lock(&calls->lock);
    while (calls->n == RING_CALLS && error == 0) {
        error = pthread_cond_timedwait(&calls->taken, &calls->lock, &until);
    }
    const bool is_there = calls->n < RING_CALLS;
    pthread_mutex_unlock(&calls->lock);
    return is_there;
}

ebb_status ebb__cuda_call(ebb_stream *stream, ebb_call_fn fn, void *ctx) {
    ebb_cuda_calls *calls = stream->calls;
    EBB_TRY(ebb__cuda_capture_note_call(ebb__cuda_of(stream->device)));
    EBB_TRY(ebb__cuda_begin_command(stream));
    while (!wait_for_place(calls)) {
        const cudaError_t error = cudaStreamQuery(stream->handle);
        (void)cudaGetLastError(); /* that it is not ready is remembered, too */
        if (error != cudaErrorNotReady) { EBB_CUDA(error, "a call of the host"); }
    }
    pthread_mutex_lock(&calls->lock);
    calls->ring[(calls->first + calls->n) % RING_CALLS] = (call){fn, ctx};
    calls->n++;
    pthread_mutex_unlock(&calls->lock);
    cudaError_t error = cudaLaunchHostFunc(stream->handle, do_call, calls);
    if (error == cudaSuccess) { return EBB_OK; }
    pthread_mutex_lock(&calls->lock);
    calls->n--; /* the last one: it will never be made */
    pthread_mutex_unlock(&calls->lock);
    return ebb__cuda_fail(error, "a call of the host");
}

static ebb_status take_failure(ebb_cuda_calls *calls) {
    pthread_mutex_lock(&calls->lock);
    const ebb_status status = calls->status;
    calls->status = EBB_OK;
    pthread_mutex_unlock(&calls->lock);
    return status == EBB_OK ? EBB_OK : ebb__fail_adopt(status, calls->message);
}

/* ---- streams ----------------------------------------------------------------------------------- */

static ebb_cuda_calls *make_calls(const ebb_mem *mem) {
    ebb_cuda_calls *calls = ebb__calloc(mem, 1, sizeof *calls);
    if (calls == NULL) { return NULL; }
    pthread_mutex_init(&calls->lock, NULL);
    pthread_condattr_t clock; /* ebb__now_ns's */
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&calls->taken, &clock);
    pthread_condattr_destroy(&clock);
    return calls;
}

static void free_stream(ebb_stream *stream) {
    const ebb_mem *mem = stream->device->mem;
    if (stream->join != NULL) { (void)cudaEventDestroy(stream->join); }
    if (stream->handle != NULL) { (void)cudaStreamDestroy(stream->handle); }
    (void)cudaGetLastError();
    if (stream->calls != NULL) {
        pthread_cond_destroy(&stream->calls->taken);
        pthread_mutex_destroy(&stream->calls->lock);
        ebb__free(mem, stream->calls);
    }
    ebb__free(mem, stream);
}

static ebb_status fill_in(ebb_stream *stream) {
    stream->calls = make_calls(stream->device->mem);
    if (stream->calls == NULL) { return EBB_E_NO_MEMORY; }
    EBB_CUDA(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking), "a stream");
    EBB_CUDA(cudaEventCreateWithFlags(&stream->join, cudaEventDisableTiming), "a stream");
    return EBB_OK;
}

ebb_status ebb__cuda_stream_create(ebb_device *device, bool compute, ebb_stream **stream_out) {
    (void)compute;
    EBB_TRY(ebb__cuda_enter(ebb__cuda_of(device)));
    ebb_stream *stream = ebb__calloc(device->mem, 1, sizeof *stream);
    if (stream == NULL) { return EBB_E_NO_MEMORY; }
    stream->device = device;
    ebb_status st = fill_in(stream);
    if (st != EBB_OK) {
        free_stream(stream);
        return st;
    }
    *stream_out = stream;
    return EBB_OK;
}

void ebb__cuda_stream_destroy(ebb_stream *stream) {
    if (stream == NULL) { return; }
    ebb_cuda_device *device = ebb__cuda_of(stream->device);
    (void)ebb__cuda_enter(device);
    ebb__cuda_capture_abandon(device);
    (void)cudaStreamSynchronize(stream->handle);
    ebb__cuda_capture_forget(device, stream);
    free_stream(stream);
}

/* ---- events ------------------------------------------------------------------------------------ */

static ebb_cuda_anchor *get_anchor(ebb_cuda_device *device, uint64_t number) {
    EBB_ASSERT(number < device->n_anchors);
    const uint64_t oldest = device->n_anchors > EBB_CUDA_N_ANCHORS ? device->n_anchors - EBB_CUDA_N_ANCHORS : 0;
    return &device->anchors[ebb_max_u64(number, oldest) % EBB_CUDA_N_ANCHORS];
}

static uint64_t time_after(const ebb_cuda_anchor *anchor, cudaEvent_t event) {
    float ms = 0.0f;
    if (cudaEventElapsedTime(&ms, anchor->event, event) != cudaSuccess) {
        (void)cudaGetLastError();
        return anchor->ns;
    }
    return anchor->ns + (uint64_t)((double)(ms > 0.0f ? ms : 0.0f) * 1e6);
}

/* Recorded on the device's own stream and waited for, so it is for when the device has nothing to do. */
static ebb_status move_anchor(ebb_cuda_device *device) {
    ebb_cuda_anchor *next = &device->anchors[device->n_anchors % EBB_CUDA_N_ANCHORS];
    EBB_CUDA(cudaEventRecord(next->event, device->stream), "an anchor of times");
    EBB_CUDA(cudaEventSynchronize(next->event), "an anchor of times");
    next->ns =
        device->n_anchors == 0 ? ebb__now_ns() : time_after(get_anchor(device, device->n_anchors - 1), next->event);
    device->n_anchors++;
    return EBB_OK;
}

ebb_status ebb__cuda_anchor_init(ebb_cuda_device *device) {
    for (size_t i = 0; i < EBB_CUDA_N_ANCHORS; i++) {
        EBB_CUDA(cudaEventCreateWithFlags(&device->anchors[i].event, cudaEventDefault), "an anchor of times");
    }
    return move_anchor(device);
}

void ebb__cuda_anchor_fini(ebb_cuda_device *device) {
    for (size_t i = 0; i < EBB_CUDA_N_ANCHORS; i++) {
        if (device->anchors[i].event != NULL) { (void)cudaEventDestroy(device->anchors[i].event); }
    }
}

ebb_status ebb__cuda_event_create(ebb_device *device, ebb_event **event_out) {
    EBB_TRY(ebb__cuda_enter(ebb__cuda_of(device)));
    ebb_event *event = ebb__calloc(device->mem, 1, sizeof *event);
    if (event == NULL) { return EBB_E_NO_MEMORY; }
    cudaError_t error = cudaEventCreateWithFlags(&event->handle, cudaEventDefault);
    if (error != cudaSuccess) {
        ebb__free(device->mem, event);
        return ebb__cuda_fail(error, "an event");
    }
    *event_out = event;
    return EBB_OK;
}

void ebb__cuda_event_destroy(ebb_device *device, ebb_event *event) {
    if (event == NULL) { return; }
    (void)ebb__cuda_enter(ebb__cuda_of(device));
    (void)cudaEventDestroy(event->handle);
    (void)cudaGetLastError();
    ebb__free(device->mem, event);
}

ebb_status ebb__cuda_event_record(ebb_stream *stream, ebb_event *event) {
    ebb_cuda_device *device = ebb__cuda_of(stream->device);
    EBB_TRY(ebb__cuda_begin_command(stream));
    EBB_CUDA(cudaEventRecord(event->handle, stream->handle), "recording an event");
    event->anchor = device->n_anchors - 1;
    event->captured = ebb__cuda_capture_number(device);
    event->is_recorded = true;
    return EBB_OK;
}

/* The event to wait for in place of this one: itself or, if its latest record is in a captured iteration, the event
 * after that iteration's latest launch. false: there is nothing to wait for. */
static bool get_record(const ebb_cuda_device *device, const ebb_event *event, cudaEvent_t *handle_out) {
    if (!event->is_recorded) { return false; }
    if (event->captured != 0) { return ebb__cuda_capture_done(device, event->captured, handle_out); }
    *handle_out = event->handle;
    return true;
}

ebb_status ebb__cuda_event_wait(ebb_stream *stream, ebb_event *event) {
    const ebb_cuda_device *device = ebb__cuda_of(stream->device);
    const uint64_t number = ebb__cuda_capture_number(device);
    EBB_TRY(ebb__cuda_begin_command(stream));
    cudaEvent_t handle = event->handle;
    if (number != 0 && event->captured != number) { return EBB_OK; } /* the launch comes after it */
    if (number == 0 && !get_record(device, event, &handle)) { return EBB_OK; }
    EBB_CUDA(cudaStreamWaitEvent(stream->handle, handle, 0), "waiting for an event");
    return EBB_OK;
}

ebb_status ebb__cuda_event_sync(ebb_device *base, ebb_event *event) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    cudaEvent_t handle = NULL;
    EBB_TRY(ebb__cuda_enter(device));
    ebb__cuda_capture_abandon(device);
    if (get_record(device, event, &handle)) { EBB_CUDA(cudaEventSynchronize(handle), "waiting for an event"); }
    return EBB_OK;
}

uint64_t ebb__cuda_event_time_ns(ebb_device *base, ebb_event *event) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    if (!event->is_recorded || event->captured != 0 || ebb__cuda_enter(device) != EBB_OK) { return 0; }
    return time_after(get_anchor(device, event->anchor), event->handle);
}

/* ---- commands ---------------------------------------------------------------------------------- */

ebb_status ebb__cuda_copy(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side) {
    EBB_TRY(ebb__cuda_begin_command(stream));
    void *device_ptr = ebb__cuda_address(device_side);
    const bool out = direction == EBB_COPY_OUT;
    EBB_CUDA(cudaMemcpyAsync(out ? host_side : device_ptr, out ? device_ptr : host_side, device_side.size_bytes,
                             out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, stream->handle),
             out ? "a copy out" : "a copy in");
    return EBB_OK;
}

/* A failure of the device is returned each time, a failure of a call once. */
ebb_status ebb__cuda_stream_sync(ebb_stream *stream) {
    ebb_cuda_device *device = ebb__cuda_of(stream->device);
    EBB_TRY(ebb__cuda_enter(device));
    ebb__cuda_capture_abandon(device);
    cudaError_t error = cudaStreamSynchronize(stream->handle);
    EBB_TRY(take_failure(stream->calls));
    EBB_CUDA(error, "what was queued on a stream");
    const bool is_old = ebb__now_ns() > get_anchor(device, device->n_anchors - 1)->ns + ANCHOR_NS;
    return is_old ? move_anchor(device) : EBB_OK;
}
