/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that look for an order share: the program as what an order is judged by, and the order at hand.
 */
#ifndef EBB_SRC_ORDER_PRIV_H
#define EBB_SRC_ORDER_PRIV_H

#include "plan/order.h"

#define EBB_ORDER_NONE UINT32_MAX

/* Lists: row i of list is list[start[i] .. start[i + 1]). */
typedef struct ebb_order_rows {
    uint64_t *start;
    uint32_t *list;
} ebb_order_rows;

/* Which step must be before which, and how many bytes each makes and ends. Persistent tensors are in always_bytes. A
 * tensor that dies with the step that makes it is in own_bytes, as scratch is. Every other tensor is made by one step,
 * its first write, and dies when the last of its users has run: the readers of its last version, or its last writer if
 * none exist. Other accesses need no look: the versions put them between the two. A kept tensor has no users. */
typedef struct ebb_order_graph {
    size_t n_steps, n_tensors;
    uint64_t always_bytes;
    uint64_t *made_bytes, *own_bytes; /* of each step */
    uint64_t *size_bytes;             /* of each tensor */
    uint32_t *maker;                  /* of each tensor: a step, or EBB_ORDER_NONE: it does not count */
    ebb_order_rows before, after;     /* of each step: steps that must be before it, and after it; some twice */
    ebb_order_rows users;             /* of each tensor: steps */
    ebb_order_rows used;              /* of each step: tensors */
} ebb_order_graph;

typedef struct ebb_order_search {
    ebb_order_graph graph;
    const ebb_mem *mem;
    ebb_bump bump;
    uint32_t *order, *place; /* the step at each place, and the other way round */
    uint64_t *live;          /* [n_steps + 1]: bytes between steps: before each place, and at the end */
    uint64_t *load;          /* [n_steps]: bytes at each place */
    uint64_t peak_bytes;     /* the most of load */
    size_t n_at_peak;        /* how many places have it */
    uint64_t bound_bytes;    /* no order has less */
    uint64_t work;           /* steps of search that are left */
    uint32_t *trial;         /* [n_steps]: an order to be judged */
    uint32_t *left;          /* [n_tensors]: for counting */
} ebb_order_search;

/* Take the order in trial if it has a lower peak, or the same one at fewer places. */
bool ebb__order_take(ebb_order_search *s);

/* Write trial: the order at hand, but each step that then makes no load higher goes as early as the versions allow, as
 * long as its own load is below the peak; back: as late. Near-linear. */
ebb_status ebb__order_pull(ebb_order_search *s, bool back);

/* Write trial: the order at hand with the steps of places [begin, end), at most EBB_ORDER_WINDOW, in another order
 * whose loads there are below the peak; found by a beam that builds it from its beginning, or from its end.
 * *found_out: whether there is one. */
#define EBB_ORDER_WINDOW 512u
ebb_status ebb__order_reorder(ebb_order_search *s, size_t begin, size_t end, bool back, bool *found_out);

/* The set of steps that must have run, and may have, before a step such that the fewest bytes are live there: no order
 * has a lower load at that step, and bound_bytes is raised to it. Write trial: the order at hand, but with that set
 * first. *found_out: whether the load of the step is above its least. */
ebb_status ebb__order_cut(ebb_order_search *s, uint32_t step, bool *found_out);

#endif
