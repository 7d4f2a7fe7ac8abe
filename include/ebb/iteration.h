/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration of a trace: the part that a training run repeats, found from the events alone or taken from marks.
 * docs/iteration.md says what counts as an iteration, where it begins, and how it is found.
 */
#ifndef EBB_ITERATION_H
#define EBB_ITERATION_H

#include "ebb/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The evidence for the answer, the best first. */
typedef enum ebb_iteration_source {
    EBB_ITERATION_FROM_MARKS,       /* EBB_TRACE_ITERATION_BEGIN and _END */
    EBB_ITERATION_FROM_ANNOTATIONS, /* updates: an optimizer's steps, known by names, call stacks or phases */
    EBB_ITERATION_FROM_EVENTS
} ebb_iteration_source;

/* The kind of work that was recorded, as far as the trace tells, whether it repeats or not. */
typedef enum ebb_iteration_work {
    EBB_ITERATION_WORK_UNKNOWN,  /* the trace does not tell */
    EBB_ITERATION_WORK_FORWARD,  /* forward passes alone: an evaluation, inference */
    EBB_ITERATION_WORK_BACKWARD, /* backward passes, but no optimizer stepped */
    EBB_ITERATION_WORK_TRAINING  /* an optimizer stepped, or iterations are marked */
} ebb_iteration_work;

/* "unknown", "forward", "backward", "training"; static. */
EBB_API const char *ebb_iteration_work_name(ebb_iteration_work work);

/* Events are counted from 0, as a reader gives them, marks included. */
typedef struct ebb_iteration {
    ebb_iteration_work work;
    bool found; /* false: all that follows is 0 */
    ebb_iteration_source source;
    uint64_t first_event; /* of the first iteration; without marks, of the first of the usual form: before is warm-up */
    uint64_t length_events; /* of the usual iteration */
    uint64_t count;         /* whole iterations, also irregular ones between regular ones; without marks 2 at least */
    double regularity;      /* the mean over the iterations */
    double confidence;      /* that these are the iterations of a training; docs/iteration.md has the rule */
} ebb_iteration;

typedef enum ebb_iteration_part_kind {
    EBB_ITERATION_PART_BEFORE,    /* warm-up */
    EBB_ITERATION_PART_ITERATION, /* one */
    EBB_ITERATION_PART_BETWEEN,   /* belongs to none, such as an evaluation */
    EBB_ITERATION_PART_AFTER      /* the tail */
} ebb_iteration_part_kind;

/* A range of events. The parts of a trace, in order, cover all its events. */
typedef struct ebb_iteration_part {
    ebb_iteration_part_kind kind;
    uint64_t first_event, n_events;
    double regularity; /* of an iteration: the share of events that it and the usual one have in common; else 0 */
} ebb_iteration_part;

typedef struct ebb_iteration_finder ebb_iteration_finder;

/* reader gives the names of marks; it is used only while events are added. NULL: marks have no names. */
EBB_API ebb_status ebb_iteration_finder_create(const ebb_mem *mem, const ebb_trace_reader *reader,
                                               ebb_iteration_finder **finder_out);
EBB_API void ebb_iteration_finder_destroy(ebb_iteration_finder *finder);

/* The next event, as a reader gives it. At most 16 bytes an event are kept. EBB_E_ARGUMENT: a block that was not
 * allocated, or is not the next number. EBB_E_LIMIT: more than 2^32 - 2 events. */
EBB_API ebb_status ebb_iteration_finder_add(ebb_iteration_finder *finder, const ebb_trace_event *event);

/* Look for the iteration in all events so far; more may be added afterwards. Finding none is not a failure. */
EBB_API ebb_status ebb_iteration_finder_find(ebb_iteration_finder *finder, ebb_iteration *iteration_out);

/* The parts of the trace by the last call of find; borrowed until the next call. None if no iteration was found. */
EBB_API const ebb_iteration_part *ebb_iteration_finder_parts(const ebb_iteration_finder *finder, size_t *n_out);

#ifdef __cplusplus
}
#endif

#endif
