/* SPDX-License-Identifier: Apache-2.0
 *
 * The iteration of a trace: what a training run repeats, found in its events alone or taken from marks. What counts
 * as one, where it begins, and how it is found is told in docs/iteration.md.
 */
#ifndef EBB_ITERATION_H
#define EBB_ITERATION_H

#include "ebb/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the answer stands on, the best first. */
typedef enum ebb_iteration_source {
    EBB_ITERATION_FROM_MARKS,       /* EBB_TRACE_ITERATION_BEGIN and _END */
    EBB_ITERATION_FROM_ANNOTATIONS, /* updates: an optimizer's steps, known by names, call stacks or phases */
    EBB_ITERATION_FROM_EVENTS
} ebb_iteration_source;

/* Which work was recorded, as far as the trace tells, whether it repeats or not. */
typedef enum ebb_iteration_work {
    EBB_ITERATION_WORK_UNKNOWN,  /* the trace does not tell */
    EBB_ITERATION_WORK_FORWARD,  /* forward passes alone: an evaluation, inference */
    EBB_ITERATION_WORK_BACKWARD, /* backward passes, but no optimizer stepped */
    EBB_ITERATION_WORK_TRAINING  /* an optimizer stepped, or iterations are marked */
} ebb_iteration_work;

/* "unknown", "forward", "backward", "training"; static. */
EBB_API const char *ebb_iteration_work_name(ebb_iteration_work work);

/* All in events of the trace as a reader gives them, marks among them, the first is 0. */
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

/* A stretch of events. The parts of a trace in order are all of its events. */
typedef struct ebb_iteration_part {
    ebb_iteration_part_kind kind;
    uint64_t first_event, n_events;
    double regularity; /* of an iteration: the share of events that it and the usual one have in common; else 0 */
} ebb_iteration_part;

typedef struct ebb_iteration_finder ebb_iteration_finder;

/* reader (may be NULL: no mark has a name) gives the names of marks; it is asked while events are added, and not
 * kept behind the last one. */
EBB_API ebb_status ebb_iteration_finder_create(const ebb_mem *mem, const ebb_trace_reader *reader,
                                               ebb_iteration_finder **finder_out);
EBB_API void ebb_iteration_finder_destroy(ebb_iteration_finder *finder); /* NULL is fine */

/* The next event, as a reader gives it. At most 16 bytes an event are kept. EBB_E_ARGUMENT: a block that was not
 * allocated, or is not the next number. EBB_E_LIMIT: more than 2^32 - 2 events. */
EBB_API ebb_status ebb_iteration_finder_add(ebb_iteration_finder *finder, const ebb_trace_event *event);

/* Look for it in all that was added; more may be added afterwards. That there is none is no failure. */
EBB_API ebb_status ebb_iteration_finder_find(ebb_iteration_finder *finder, ebb_iteration *iteration_out);

/* What the last call of find made of the trace; borrowed until the next. None where it did not find it. */
EBB_API const ebb_iteration_part *ebb_iteration_finder_parts(const ebb_iteration_finder *finder, size_t *n_out);

#ifdef __cplusplus
}
#endif

#endif
