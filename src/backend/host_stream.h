/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams and events for devices whose memory is host memory. Their tables name these functions directly
 * (ref, cpu, dry); what differs between such devices is only what running a kernel means, so their device
 * begins with an ebb_host_device that says it.
 *
 *   compute stream   the caller's thread: a command is done when its issue returns, and so is its error
 *   other streams    a thread each, with helpers for large copies if the device computes with several threads, and
 *                    a ring of commands taken at creation; a full ring blocks the issuer, which cannot deadlock: a
 *                    command waits only for what was issued before it
 *
 * Invariants
 *  1. Nothing is allocated by a command.
 *  2. An event's records complete in the order of their issue, also across streams; so 'record k is done' is
 *     one number, and a wait means the record that was the latest when the wait was issued.
 *  3. After a failure a stream's thread leaves out runs, copies and calls until stream_sync has told of it,
 *     but goes on waiting and recording: no one hangs, and no order is lost.
 *  4. An event must outlive the queued commands that name it.
 */
#ifndef EBB_SRC_HOST_STREAM_H
#define EBB_SRC_HOST_STREAM_H

#include "backend/backend.h"

typedef struct ebb_host_device {
    ebb_device base;
    ebb_status (*run)(ebb_kernel *kernel, ebb_bound *bound);
    uint32_t n_threads; /* that compute, and then copy a large piece together; 0 or 1: each stream's copies alone */
} ebb_host_device;

ebb_status ebb__host_stream_create(ebb_device *device, bool compute, ebb_stream **stream_out);
void ebb__host_stream_destroy(ebb_stream *stream);
ebb_status ebb__host_stream_sync(ebb_stream *stream);
uint64_t ebb__host_stream_waited_ns(const ebb_stream *stream);

ebb_status ebb__host_run(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound);
ebb_status ebb__host_copy(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side);
ebb_status ebb__host_call(ebb_stream *stream, ebb_call_fn fn, void *ctx);

ebb_status ebb__host_event_create(ebb_device *device, ebb_event **event_out);
void ebb__host_event_destroy(ebb_device *device, ebb_event *event);
ebb_status ebb__host_event_record(ebb_stream *stream, ebb_event *event);
ebb_status ebb__host_event_wait(ebb_stream *stream, ebb_event *event);
ebb_status ebb__host_event_sync(ebb_device *device, ebb_event *event);
uint64_t ebb__host_event_time_ns(ebb_device *device, ebb_event *event);

#endif
