/* SPDX-License-Identifier: Apache-2.0
 *
 * A program from a trace: one iteration of what was recorded, to be planned for.
 *
 *  - The iteration is the one of the most regular ones (ebb/iteration.h) in which most bytes are live at once; of equal
 *    ones the last. Where no iteration is found, all of the trace is taken for one.
 *  - A block becomes a tensor. One that is live throughout is persistent. One that is freed within the iteration, after
 *    it was read there, and one of the same bytes at the same address that is live at its end are one persistent
 * tensor. Any other block that reaches over a border is told as far as it is in the iteration: a step 'border' makes it
 * at the beginning, and at the end it is kept.
 *  - An operator (a step of the trace) becomes a step; where operators are nested, each stretch of one without inner
 * ones does. What happens outside of operators is a step each: a read, a write, a copy.
 *  - A block that is not accessed is written by its allocation and read by its free. So is every block where the trace
 *    tells no accesses.
 *  - A write to what has a content is an update: a trace does not tell whether all of it was written.
 *  - A trace does not tell whether a step can be run again, so none can (EBB_REPEAT_NEVER), nor what else than its
 *    accesses a step depends on, so steps keep their order.
 *  - Times are those of the events: an operator's without its inner ones; without operators, the time to the next step.
 *    Copies have none, since they ran beside the computing.
 */
#ifndef EBB_PROGRAM_TRACE_H
#define EBB_PROGRAM_TRACE_H

#include "ebb/iteration.h"
#include "ebb/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_program_trace_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *name;         /* the program's; NULL: the network's, if the trace has it, else "trace" */
    uint64_t alignment_bytes; /* the program's; 0: 1, so that its bytes are those of the trace */
} ebb_program_trace_options;
#define EBB_PROGRAM_TRACE_OPTIONS_INIT EBB_INIT(ebb_program_trace_options, )

/* How the program came about. */
typedef struct ebb_program_trace_notes {
    ebb_iteration iteration;        /* found is false: all of the trace was taken */
    uint64_t first_event, n_events; /* what was taken */
    uint64_t peak_bytes;            /* the most bytes of blocks that are live at once in it */
    uint64_t n_blocks;              /* that are in it */
    uint64_t n_persistent;          /* of these, live throughout */
    uint64_t n_joined;              /* pairs that became one persistent tensor */
    uint64_t n_from_before;         /* live at its beginning, and made by a step 'border' */
    uint64_t n_to_after;            /* live at its end, and kept */
    uint64_t n_untouched;           /* without an access: alive from their allocation to their free */
    uint64_t n_operators;           /* steps that are operators, or a stretch of one */
    uint64_t n_copies;              /* steps that are copies from or to another tier */
    bool has_accesses, has_times;   /* the trace tells them */
    bool is_slowed;                 /* the recorder makes steps longer than they are without it */
} ebb_program_trace_notes;

/* Read what is left of the trace (a reader at its front gives all) and make a finished program, the caller's to
 * destroy. The reader stays the caller's; the program keeps nothing of it. options and notes_out may be NULL.
 * EBB_E_ARGUMENT: options of another version, a wrong alignment. EBB_E_FORMAT: the trace is malformed, nothing is
 * allocated in it, or there is more than a program may hold. EBB_E_LIMIT: 2^32 - 2 events or more. EBB_E_IO. Linear in
 * the events, of which about 40 bytes each are kept meanwhile. */
EBB_API ebb_status ebb_program_from_trace(ebb_trace_reader *reader, const ebb_program_trace_options *options,
                                          ebb_program **program_out, ebb_program_trace_notes *notes_out);

#ifdef __cplusplus
}
#endif

#endif
