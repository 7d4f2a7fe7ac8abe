/* SPDX-License-Identifier: Apache-2.0
 *
 * The finder of iterations from inside. Of each event that says what a program does, a symbol is kept: its kind and a
 * hash of what is the same whenever the program does it again (sizes, operators; never addresses, times or numbers of
 * blocks), and its block. The rest (marks, labels, copies, segments) depends on timing or on what came before, and is
 * passed over: places are counted in kept events ('at') inside, in events of the trace outside.
 */
#ifndef EBB_SRC_TRACE_ITERATION_PRIV_H
#define EBB_SRC_TRACE_ITERATION_PRIV_H

#include "base/base.h"
#include "ebb/iteration.h"

#define EBB_NO_BLOCK UINT32_MAX

/* The low bits of a symbol. */
enum { EBB_SYMBOL_OTHER, EBB_SYMBOL_ALLOC, EBB_SYMBOL_FREE, EBB_SYMBOL_READ, EBB_SYMBOL_WRITE, EBB_SYMBOL_MASK = 7 };

typedef struct ebb_iteration_mark {
    uint32_t event; /* in the trace */
    uint32_t mark;
} ebb_iteration_mark;

/* Kept events [first, last). */
typedef struct ebb_stretch {
    uint32_t first, last;
} ebb_stretch;
typedef EBB_VEC(ebb_stretch) ebb_stretches;
typedef EBB_VEC(ebb_iteration_part) ebb_iteration_parts;

struct ebb_iteration_finder {
    const ebb_mem *mem;
    const ebb_trace_reader *reader;
    EBB_VEC(uint32_t) symbols; /* of the kept events */
    EBB_VEC(uint32_t) blocks;  /* as many; or EBB_NO_BLOCK */
    EBB_VEC(uint64_t) sizes;   /* by block */
    EBB_VEC(uint32_t) passed;  /* the events of the trace that are not kept */
    EBB_VEC(ebb_iteration_mark) marks;
    ebb_iteration_parts parts; /* the answer */
};

/* The event of the trace that is the kept event at, and the first kept event at or behind an event of the trace. */
uint64_t ebb__iteration_event_of(const ebb_iteration_finder *finder, uint32_t at);
uint32_t ebb__iteration_at_of(const ebb_iteration_finder *finder, uint64_t event);

/* iteration_match.c: how many events of b come in the same order in a, about: places where both go on alike are looked
 * for nearby only. Linear. */
uint32_t ebb__iteration_n_common(const ebb_iteration_finder *finder, ebb_stretch a, ebb_stretch b);

/* iteration_marks.c: the iterations that are marked, in order. */
ebb_status ebb__iteration_from_marks(const ebb_iteration_finder *finder, ebb_iteration_parts *iterations);

/* iteration_judge.c: the answer and the parts, from n > 0 iterations in order that do not overlap. trim: irregular ones
 * in front and at the end are none. */
ebb_status ebb__iteration_judge(ebb_iteration_finder *finder, ebb_iteration_part *iterations, size_t n, bool trim,
                                ebb_iteration *iteration_out);

#endif
