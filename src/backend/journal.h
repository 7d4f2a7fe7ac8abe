/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal: a device that carries nothing out and writes down what it is told to do, in the order of issue: each
 * command with its stream and the bytes that it reads and writes, each event recorded and waited for, each time that
 * the host waits, and what the host itself touches. It wraps another device, whose layouts, kernels' bytes and
 * alignment it has, so a network lowers on it as on that one, and a plan for the one is a plan for the other.
 *
 * It shows itself as a device of the strictest kind: with data that the host cannot see, so that copies to a file go
 * through staging, and with no stream that is the host's thread.
 *
 * Bytes are named by space and range. Each arena, each piece from host_alloc and each file is a space of its own, never
 * used again; all other host memory is space 0, by its addresses. A kernel reads the run's state too, and its port.
 *
 * Asked for captures, it has the order of a device that captures iterations: the first goes as it is, each later one is
 * a graph. Its edges are the streams' order and its own events; a wait for an event from before it is not one; but the
 * whole of it lies after all that the streams which take part had before, and these wait for all of it:
 *
 *   stream   ... record join                  wait fork ... commands ... record join          wait fork ...
 *   graphs       wait joins ... record fork                              wait joins ... record fork
 *
 * That is for one run at a time, whose iterations call no one.
 *
 * Not told: what a kernel does within its operands (bind alone refuses operands that overlap but for those that the
 * kernel may take in place), and memory that lives as long as the run and never changes (bound kernels, transfers).
 */
#ifndef EBB_SRC_JOURNAL_H
#define EBB_SRC_JOURNAL_H

#include "backend/backend.h"

typedef enum ebb_journal_kind {
    EBB_JOURNAL_RUN,
    EBB_JOURNAL_COPY,
    EBB_JOURNAL_CALL,
    EBB_JOURNAL_HOST, /* the host touches memory or a file itself */
    EBB_JOURNAL_RECORD,
    EBB_JOURNAL_WAIT,
    EBB_JOURNAL_EVENT_SYNC,
    EBB_JOURNAL_STREAM_SYNC,
} ebb_journal_kind;

#define EBB_JOURNAL_HOST_MEMORY 0u /* the space */

typedef enum ebb_journal_space {
    EBB_JOURNAL_HOST_SPACE,
    EBB_JOURNAL_DEVICE_SPACE,
    EBB_JOURNAL_FILE_SPACE
} ebb_journal_space;

typedef struct ebb_journal_access {
    uint64_t begin, end;
    uint32_t space;
    uint32_t mode; /* ebb_access_mode */
} ebb_journal_access;

typedef struct ebb_journal_entry {
    ebb_journal_kind kind;
    uint32_t thread; /* 0: the host; else the stream, from 1 */
    uint32_t event;
    uint32_t n_accesses;
    uint64_t first_access;
    const void *what; /* run: the bound kernel; call: its ctx */
} ebb_journal_entry;

typedef struct ebb_journal {
    EBB_VEC(ebb_journal_entry) entries;
    EBB_VEC(ebb_journal_access) accesses;
    EBB_VEC(ebb_journal_space) spaces;
    uint32_t n_threads, n_events;
} ebb_journal;

/* Write an entry down: its accesses are set here. For callers without a device; mem is the same for all of it. */
ebb_status ebb__journal_write(const ebb_mem *mem, ebb_journal *journal, ebb_journal_entry entry,
                              const ebb_journal_access *accesses, uint32_t n);
void ebb__journal_fini(const ebb_mem *mem, ebb_journal *journal);

/* inner is borrowed and outlives it. */
ebb_status ebb__journal_open(ebb_device *inner, ebb_device **device_out);
/* Forget what was written down; no stream and no event is there. captures: as above, from now on. */
void ebb__journal_restart(ebb_device *device, bool captures);
/* The entries so far; each call on the device adds some. */
const ebb_journal *ebb__journal_get(const ebb_device *device);

#endif
