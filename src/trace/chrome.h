/* SPDX-License-Identifier: Apache-2.0
 *
 * A Chrome trace as it is held between its reading (import_chrome.c) and its writing as events (import_chrome_write.c).
 */
#ifndef EBB_SRC_TRACE_CHROME_H
#define EBB_SRC_TRACE_CHROME_H

#include "trace/import_priv.h"
#include "base/u64_map.h"

#define CHROME_MAX_DEVICES 64u

typedef enum chrome_span_kind {
    CHROME_STEP,
    CHROME_ITERATION, /* ProfilerStep#N */
    CHROME_FRAME,     /* a Python function: a frame of the call stack */
} chrome_span_kind;

/* name is a number of texts, as of strings; thread one of threads. */
typedef struct chrome_span {
    uint64_t begin_ns, end_ns;
    uint32_t name;
    uint32_t thread : 27;
    unsigned kind : 2;
    bool is_forward : 1; /* autograd numbered it */
} chrome_span;

/* An alloc or free; or, with size 0, an instant of that name. */
typedef struct chrome_point {
    uint64_t time_ns, address, size_bytes;
    uint32_t thread;
    uint32_t name;
    uint16_t device;
    bool is_free;
} chrome_point;

typedef struct chrome_device {
    uint64_t type; /* of PyTorch's list: 0 the processor, 1 CUDA ... */
    uint64_t index;
    uint64_t n_points;
    bool tells_totals;
    bool is_unsound;                                   /* a total was less than what had just been allocated */
    uint64_t first_ns, before_bytes;                   /* what was allocated before the earliest point */
    uint64_t last_ns, allocated_bytes, reserved_bytes; /* after the latest */
} chrome_device;

typedef struct chrome_thread {
    uint32_t name; /* 0: none */
    uint64_t n_steps;
    uint32_t row;
} chrome_thread;

typedef struct chrome {
    ebb_importer *importer;
    ebb_trace_keys texts;
    ebb_trace_keys thread_keys;     /* pid and tid as texts */
    EBB_VEC(chrome_thread) threads; /* [i]: of key i + 1 */
    EBB_VEC(chrome_span) spans;
    EBB_VEC(chrome_point) points;
    chrome_device devices[CHROME_MAX_DEVICES];
    size_t n_devices;
    uint64_t base_unix_ns;
    bool any_frame, any_memory;
} chrome;

/* "cuda:0" */
void ebb__chrome_device_name(const chrome_device *device, char *buf, size_t buf_bytes);

/* Write it all through the importer, for the device that its options ask for. */
ebb_status ebb__chrome_write(chrome *c);

#endif
