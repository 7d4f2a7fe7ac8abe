/* SPDX-License-Identifier: Apache-2.0
 *
 * Hazards: whether the commands in a journal, carried out as freely as a device may, can do anything else than they
 * would one after the other. Two accesses conflict when they touch a byte in common, of the arena, of host memory or of
 * a file, and one of them writes it. The check proves that of each such pair one happens before the other, by what a
 * device promises and nothing else:
 *
 *      a stream's commands                 in the order of issue
 *      a command, and the host             after all that the host knew to be done when it issued it
 *      a wait                              after all that its event's latest record is after
 *      event_sync, stream_sync             the host is after what was recorded; after all of the stream
 *
 * The host and each stream are threads. A thread has a clock: for each thread the last of its commands that is known
 * to be done. A piece of bytes remembers its last write and each thread's last read since; an access must have them in
 * its clock. Whatever was before those is ordered with it too, as they were checked themselves.
 *
 * Order alone does not say that the right bytes are there. So each piece remembers whose content it holds as well, and
 * copies carry it: what a kernel or the host reads must be one whole content, its bytes in their places. That finds
 * copies which are too short or go astray. And where the caller says which version of what each access makes and must
 * find, what is read must be that.
 */
#ifndef EBB_SRC_HAZARD_H
#define EBB_SRC_HAZARD_H

#include "backend/journal.h"

typedef enum ebb_hazard_kind {
    EBB_HAZARD_NONE,
    EBB_HAZARD_RACE,   /* first and second conflict and nothing orders them */
    EBB_HAZARD_BROKEN, /* second reads bytes that are not one content; first wrote, or copied, some of them */
    EBB_HAZARD_VOID,   /* second reads bytes that were never written */
    EBB_HAZARD_STALE,  /* second reads another version than it must; first brought it there */
} ebb_hazard_kind;

typedef struct ebb_hazard {
    ebb_hazard_kind kind;
    uint64_t first, second;    /* entries of the journal, in the order of issue */
    ebb_journal_access access; /* second's; begin and end: the bytes in question */
} ebb_hazard;

/* The version that an access must find and the one that it makes, by numbers from 1 that the caller gives; 0:
 * not told. */
typedef struct ebb_hazard_version {
    uint64_t finds, makes;
} ebb_hazard_version;

typedef struct ebb_hazard_counts {
    uint64_t n_commands; /* runs, copies, calls */
    uint64_t n_pairs;    /* of conflicting accesses of different threads that were proven, piece by piece */
    uint64_t n_versions; /* reads that found what they had to */
    uint64_t n_records, n_waits;
    uint64_t n_early;   /* waits for an event that was not recorded yet: the first iteration's */
    uint64_t n_implied; /* other waits for what the stream knew to be done already */
} ebb_hazard_counts;

/* EBB_OK: *hazard_out says which is the first in the order of issue, or that none exists; *counts_out are those up to
 * there. versions: by access, or NULL: none is told. O(n log n) in accesses, where reads find few pieces. */
ebb_status ebb__hazard_check(const ebb_mem *mem, const ebb_journal *journal, const ebb_hazard_version *versions,
                             ebb_hazard_counts *counts_out, ebb_hazard *hazard_out);

#endif
