/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events on host memory: see host_stream.h for what they promise. A stream's ring and its error
 * are guarded by the stream's lock, an event's count of completed records by the event's. The count is also
 * atomic, so that a wait for what is long done takes no lock. A stream's waited_ns is atomic because other threads
 * read it; only the thread that carries out the stream's commands writes it.
 */
#include "backend/host_stream.h"
#include "backend/host_copy.h"
#include "backend/host_memory.h"
#include "base/thread.h"

#include <stdatomic.h>

#define RING_COMMANDS ((size_t)2048)
#define MESSAGE_BYTES 512

typedef enum command_kind { COMMAND_RUN, COMMAND_COPY, COMMAND_CALL, COMMAND_RECORD, COMMAND_WAIT } command_kind;

typedef struct command {
    command_kind kind;
    union {
        struct {
            ebb_kernel *kernel;
            ebb_bound *bound;
        } run;
        struct {
            void *dst;
            const void *src;
            uint64_t size_bytes;
        } copy;
        struct {
            ebb_call_fn fn;
            void *ctx;
        } call;
        struct {
            ebb_event *event;
            uint64_t number; /* of the record, from 1 */
        } event;
    };
} command;

struct ebb_event {
    uint64_t n_issued; /* the issuing thread's */
    atomic_uint_least64_t n_done;
    uint64_t time_ns; /* of record n_done; written before n_done is */
    pthread_mutex_t lock;
    pthread_cond_t recorded;
};

struct ebb_stream {
    ebb_device *device;
    atomic_uint_least64_t waited_ns;
    bool compute; /* the rest is unused then */
    bool has_thread, stopping;
    ebb_copy_crew *crew;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t issued, taken;
    command *ring;   /* [RING_COMMANDS] */
    size_t first, n; /* the one that is being executed is still in it */
    ebb_status status;
    char message[MESSAGE_BYTES];
};

static void wait_for_record(ebb_event *event, uint64_t number) {
    if (atomic_load_explicit(&event->n_done, memory_order_acquire) >= number) { return; }
    pthread_mutex_lock(&event->lock);
    while (atomic_load_explicit(&event->n_done, memory_order_relaxed) < number) {
        pthread_cond_wait(&event->recorded, &event->lock);
    }
    pthread_mutex_unlock(&event->lock);
}

/* As a stream's command: what holds the stream up is counted. */
static void wait_in_stream(ebb_stream *stream, ebb_event *event, uint64_t number) {
    if (atomic_load_explicit(&event->n_done, memory_order_acquire) >= number) { return; }
    const uint64_t begin_ns = ebb__now_ns();
    wait_for_record(event, number);
    atomic_fetch_add_explicit(&stream->waited_ns, ebb__now_ns() - begin_ns, memory_order_relaxed);
}

static void complete_record(ebb_event *event, uint64_t number) {
    wait_for_record(event, number - 1); /* still to come only when the event changed its stream */
    pthread_mutex_lock(&event->lock);
    event->time_ns = ebb__now_ns();
    atomic_store_explicit(&event->n_done, number, memory_order_release);
    pthread_cond_broadcast(&event->recorded);
    pthread_mutex_unlock(&event->lock);
}

static ebb_status execute(ebb_stream *stream, const command *c) {
    switch (c->kind) {
    case COMMAND_RUN: return ((const ebb_host_device *)stream->device)->run(c->run.kernel, c->run.bound);
    case COMMAND_COPY:
        ebb__copy_by_crew(stream->crew, c->copy.dst, c->copy.src, (size_t)c->copy.size_bytes);
        return EBB_OK;
    case COMMAND_CALL: return c->call.fn(c->call.ctx);
    case COMMAND_RECORD: complete_record(c->event.event, c->event.number); return EBB_OK;
    case COMMAND_WAIT: wait_in_stream(stream, c->event.event, c->event.number); return EBB_OK;
    }
    return ebb_fail(EBB_E_INTERNAL, "a stream was given a command of kind %d", (int)c->kind);
}

static void remember_failure(ebb_stream *stream, ebb_status status) {
    if (status == EBB_OK || stream->status != EBB_OK) { return; }
    stream->status = status;
    (void)snprintf(stream->message, sizeof stream->message, "%s", ebb_last_error());
}

static void *serve(void *arg) {
    ebb_stream *stream = arg;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        while (stream->n == 0 && !stream->stopping) { pthread_cond_wait(&stream->issued, &stream->lock); }
        if (stream->n == 0) { break; }
        command c = stream->ring[stream->first];
        bool skip = stream->status != EBB_OK && c.kind < COMMAND_RECORD;
        pthread_mutex_unlock(&stream->lock);
        ebb_status status = skip ? EBB_OK : execute(stream, &c);
        pthread_mutex_lock(&stream->lock);
        remember_failure(stream, status);
        stream->first = (stream->first + 1) % RING_COMMANDS;
        stream->n--;
        pthread_cond_signal(&stream->taken);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static ebb_status issue(ebb_stream *stream, const command *c) {
    if (stream->compute) { return execute(stream, c); }
    pthread_mutex_lock(&stream->lock);
    while (stream->n == RING_COMMANDS) { pthread_cond_wait(&stream->taken, &stream->lock); }
    stream->ring[(stream->first + stream->n) % RING_COMMANDS] = *c;
    stream->n++;
    if (stream->n == 1) { pthread_cond_signal(&stream->issued); }
    pthread_mutex_unlock(&stream->lock);
    return EBB_OK;
}

/* Everything is undone by end_thread, also after a failure. */
static ebb_status begin_thread(ebb_stream *stream) {
    const uint32_t n_threads = ((const ebb_host_device *)stream->device)->n_threads;
    stream->ring = ebb__alloc(stream->device->mem, RING_COMMANDS, sizeof *stream->ring);
    if (stream->ring == NULL) { return EBB_E_NO_MEMORY; }
    EBB_TRY(ebb__copy_crew_create(stream->device->mem, n_threads, &stream->crew));
    const int error = ebb__thread_start(serve, stream, &stream->thread);
    if (error != 0) { return ebb_fail(EBB_E_DEVICE, "no thread for a stream: %s", strerror(error)); }
    stream->has_thread = true;
    return EBB_OK;
}

static void end_thread(ebb_stream *stream) {
    if (stream->has_thread) {
        pthread_mutex_lock(&stream->lock);
        stream->stopping = true;
        pthread_cond_signal(&stream->issued);
        pthread_mutex_unlock(&stream->lock);
        pthread_join(stream->thread, NULL);
    }
    ebb__copy_crew_destroy(stream->crew);
    pthread_cond_destroy(&stream->taken);
    pthread_cond_destroy(&stream->issued);
    pthread_mutex_destroy(&stream->lock);
    ebb__free(stream->device->mem, stream->ring);
}

ebb_status ebb__host_stream_create(ebb_device *device, bool compute, ebb_stream **stream_out) {
    ebb_stream *stream = ebb__calloc(device->mem, 1, sizeof *stream);
    if (stream == NULL) { return EBB_E_NO_MEMORY; }
    stream->device = device;
    stream->compute = compute;
    atomic_init(&stream->waited_ns, 0);
    if (!compute) {
        pthread_mutex_init(&stream->lock, NULL);
        pthread_cond_init(&stream->issued, NULL);
        pthread_cond_init(&stream->taken, NULL);
        const ebb_status st = begin_thread(stream);
        if (st != EBB_OK) {
            end_thread(stream);
            ebb__free(device->mem, stream);
            return st;
        }
    }
    *stream_out = stream;
    return EBB_OK;
}

void ebb__host_stream_destroy(ebb_stream *stream) {
    if (stream == NULL) { return; }
    const ebb_mem *mem = stream->device->mem;
    if (!stream->compute) { end_thread(stream); }
    ebb__free(mem, stream);
}

ebb_status ebb__host_stream_sync(ebb_stream *stream) {
    if (stream->compute) { return EBB_OK; }
    pthread_mutex_lock(&stream->lock);
    while (stream->n > 0) { pthread_cond_wait(&stream->taken, &stream->lock); }
    ebb_status status = stream->status;
    stream->status = EBB_OK;
    pthread_mutex_unlock(&stream->lock);
    return status == EBB_OK ? EBB_OK : ebb__fail_adopt(status, stream->message);
}

uint64_t ebb__host_stream_waited_ns(const ebb_stream *stream) {
    return atomic_load_explicit(&stream->waited_ns, memory_order_relaxed);
}

ebb_status ebb__host_run(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    command c = {.kind = COMMAND_RUN, .run = {kernel, bound}};
    return issue(stream, &c);
}

ebb_status ebb__host_copy(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side) {
    void *device_ptr = ebb__host_address(device_side);
    bool out = direction == EBB_COPY_OUT;
    command c = {.kind = COMMAND_COPY,
                 .copy = {out ? host_side : device_ptr, out ? device_ptr : host_side, device_side.size_bytes}};
    return issue(stream, &c);
}

ebb_status ebb__host_call(ebb_stream *stream, ebb_call_fn fn, void *ctx) {
    command c = {.kind = COMMAND_CALL, .call = {fn, ctx}};
    return issue(stream, &c);
}

ebb_status ebb__host_event_create(ebb_device *device, ebb_event **event_out) {
    ebb_event *event = ebb__calloc(device->mem, 1, sizeof *event);
    if (event == NULL) { return EBB_E_NO_MEMORY; }
    atomic_init(&event->n_done, 0);
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->recorded, NULL);
    *event_out = event;
    return EBB_OK;
}

void ebb__host_event_destroy(ebb_device *device, ebb_event *event) {
    if (event == NULL) { return; }
    pthread_mutex_lock(&event->lock); /* whoever completed the last record has left it then */
    pthread_mutex_unlock(&event->lock);
    pthread_cond_destroy(&event->recorded);
    pthread_mutex_destroy(&event->lock);
    ebb__free(device->mem, event);
}

ebb_status ebb__host_event_record(ebb_stream *stream, ebb_event *event) {
    command c = {.kind = COMMAND_RECORD, .event = {event, ++event->n_issued}};
    return issue(stream, &c);
}

ebb_status ebb__host_event_wait(ebb_stream *stream, ebb_event *event) {
    if (event->n_issued == 0) { return EBB_OK; }
    command c = {.kind = COMMAND_WAIT, .event = {event, event->n_issued}};
    return issue(stream, &c);
}

ebb_status ebb__host_event_sync(ebb_device *device, ebb_event *event) {
    (void)device;
    wait_for_record(event, event->n_issued);
    return EBB_OK;
}

uint64_t ebb__host_event_time_ns(ebb_device *device, ebb_event *event) {
    (void)device;
    EBB_ASSERT(atomic_load_explicit(&event->n_done, memory_order_acquire) == event->n_issued);
    return event->time_ns;
}
