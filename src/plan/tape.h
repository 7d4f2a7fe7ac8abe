/* SPDX-License-Identifier: Apache-2.0
 *
 * A draft as a tape that can be changed: what is computed and copied, one after the other, and the load at each.
 * Local search works on it (best_refine.c), because a change costs only the stretch that it touches.
 *
 *      node     an action, or one of the two ends of the iteration
 *      touch    a node's access to a tensor; fresh if it makes the content anew (a write, a copy in), so that what was
 *               there before need not have stayed
 *
 * Between two touches of a tensor, one after the other, the tensor is on the device unless the second one is fresh.
 * There are no drops: a tensor is dropped after a touch if the next one is fresh or if there is none. Only where it
 * has a copy its drop is a node, since the bytes are free when the copy has ended, not before.
 *
 * A chain is one or more nodes that compute one tensor again: the step that wrote it and the steps that updated it
 * since. It is put in and taken out as a whole.
 *
 * Placing a draft may need more memory than its load. Where earlier drafts needed more, that many bytes count as taken:
 * the waste at each place.
 *
 * A sequence (sequence.h) says the same as a tape: what is computed and what is away. It is made once by fixed rules
 * and drafted; a tape is read from a draft, changed many times, and written as a draft again.
 */
#ifndef EBB_SRC_TAPE_H
#define EBB_SRC_TAPE_H

#include "plan/best.h"

#define EBB_TAPE_NONE UINT32_MAX

typedef struct ebb_tape_touch {
    uint64_t label; /* its node's */
    uint32_t node;
    uint32_t prev, next; /* touches of the tensor */
    uint32_t tensor;
    bool fresh, writes;
} ebb_tape_touch;

/* Where a node is on the tape, and the load there. By itself, as stretches of it are visited all the time. */
typedef struct ebb_tape_link {
    int64_t own;     /* bytes of what is there at the node, but was not before, and its scratch */
    int64_t through; /* bytes between it and the next one, less those of its block */
    uint32_t prev, next;
    uint32_t block;
} ebb_tape_link;

/* Nodes at neighbouring places: most stretches cover many whole blocks, which are changed and looked at as one. */
typedef struct ebb_tape_block {
    int64_t through; /* added to that of all its nodes */
    int64_t most;    /* the highest load of its nodes, unless it is stale */
    bool is_stale;
} ebb_tape_block;
#define EBB_TAPE_BLOCK 32u /* places */

typedef struct ebb_tape_node {
    uint64_t label; /* ascending along the tape */
    uint32_t first_touch, n_touches;
    uint32_t place;     /* how many runs come before it */
    uint32_t chain;     /* the next node of its chain; the last one's is the first; NONE: it is in none */
    uint32_t again_idx; /* in again */
    uint32_t group;     /* of chains that were made for one another */
    bool is_linked;
    bool is_closed;    /* nothing may be put in before it: a chain has begun and not ended */
    ebb_action action; /* of an end: a drop without a target */
} ebb_tape_node;

/* How a version of a tensor is made again. */
typedef struct ebb_tape_recipe {
    uint64_t first, last; /* uses of the tensor; those among them that write are the chain's */
    uint32_t step;        /* that of the last one */
    uint32_t holds;       /* the last place at which what it needs is as it was */
    double time_ns;       /* below 0: it cannot be made again */
} ebb_tape_recipe;

typedef struct ebb_tape_recipes {
    uint64_t *start; /* [n_tensors + 1]: those of a tensor's versions, in order */
    ebb_tape_recipe *recipe;
} ebb_tape_recipes;

/* A copy that is read once: the nodes that copy out, drop and copy in. */
typedef struct ebb_tape_copy {
    uint32_t out, drop, in;
} ebb_tape_copy;

typedef struct ebb_tape {
    const ebb_best_walk *w;
    const ebb_mem *mem;
    ebb_bump bump;
    EBB_VEC(ebb_tape_node) nodes;
    EBB_VEC(ebb_tape_link) links; /* of each node */
    ebb_tape_block *blocks;       /* [n_steps / EBB_TAPE_BLOCK + 1] */
    EBB_VEC(ebb_tape_touch) touches;
    uint32_t *first, *last; /* [n_tensors]: touches */
    uint32_t *near;         /* [n_tensors]: the touch that was asked for last, of those linked; NONE */
    bool *is_fixed;         /* [n_tensors]: always on the device; it has no touches */
    uint32_t *unused;       /* [n_steps]: a node that was taken out, to be used again; they are linked by next */
    const ebb_tape_recipes *recipes; /* borrowed */
    const uint64_t *waste;           /* [n_steps + 1]: bytes that placing wastes at each place; NULL: none; borrowed */
    int64_t *bytes;                  /* [n_tensors]: rounded up */
    uint32_t *by_size;               /* tensors that can be made again, the largest first */
    uint32_t *rank;                  /* [n_tensors]: among by_size; NONE */
    size_t n_by_size;
    uint64_t *spans; /* [blocks * span_words]: by block and rank, a bit: the tensor stays all through, untouched */
    size_t span_words;
    uint32_t begin, end;           /* nodes */
    uint32_t *run;                 /* [n_steps]: the node of the run at each place */
    EBB_VEC(uint32_t) again;       /* the linked nodes that compute again, in no order */
    EBB_VEC(ebb_tape_copy) copies; /* of tensors that are not persistent; as they were before a trial */
    ebb_tape_copy spare;           /* for a trial to put in; its nodes are not linked before */
    double again_ns;               /* their time */
    uint64_t n_visits;             /* of links: what changes cost */
} ebb_tape;

/* The recipes of a walk's program; they come from the bump, and serve all tapes of walks over that program. */
ebb_status ebb__tape_find_recipes(const ebb_best_walk *w, ebb_bump *bump, ebb_tape_recipes **recipes_out);

/* Borrows the walk, the recipes and the waste. fini also after a failure. */
ebb_status ebb__tape_init(ebb_tape *tape, const ebb_best_walk *w, const ebb_tape_recipes *recipes,
                          const uint64_t *waste);
void ebb__tape_fini(ebb_tape *tape);

/* Read a draft of the walk. */
ebb_status ebb__tape_read(ebb_tape *tape, const ebb_draft *draft);

/* Write it as a draft; who is resident, and where copies that are always there are, stay as they are in it. */
ebb_status ebb__tape_write(const ebb_tape *tape, ebb_draft *draft);

/* How to make the content again that a tensor has at a place; NULL: it cannot be done. */
const ebb_tape_recipe *ebb__tape_recipe(const ebb_tape *tape, uint32_t tensor, uint32_t place);

/* The last touch of a tensor before a node; NONE. */
uint32_t ebb__tape_before(ebb_tape *tape, uint32_t tensor, uint64_t label);

/* Whether it is on the device at a place between nodes: after the touch before, and until the next one. */
static inline bool ebb__tape_stays(const ebb_tape *tape, uint32_t touch_before) {
    if (touch_before == EBB_TAPE_NONE) { return false; }
    const uint32_t next = tape->touches.data[touch_before].next;
    return next != EBB_TAPE_NONE && !tape->touches.data[next].fresh;
}

/* Whether a node drops a tensor that has a copy. */
static inline bool ebb__tape_drops(const ebb_tape *tape, uint32_t node) {
    const ebb_action *action = &tape->nodes.data[node].action;
    return action->kind == EBB_ACT_DROP && action->target != EBB_TAPE_NONE;
}

/* Bytes between a node and the next one. */
static inline int64_t ebb__tape_through(const ebb_tape *tape, uint32_t node) {
    const ebb_tape_link *link = &tape->links.data[node];
    return link->through + tape->blocks[link->block].through;
}

/* Bytes at a node that is not the first. */
static inline int64_t ebb__tape_load(const ebb_tape *tape, uint32_t node) {
    const ebb_tape_link *link = &tape->links.data[node];
    return ebb__tape_through(tape, link->prev) + link->own;
}

/* The next tensor at `rank` or after it that stays all through a block, untouched; its rank, or n_by_size: there is
 * none. */
size_t ebb__tape_next_span(const ebb_tape *tape, uint32_t block, size_t rank);

/* The first node of a block, and the highest load in it. */
uint32_t ebb__tape_block_begin(const ebb_tape *tape, uint32_t block);
int64_t ebb__tape_block_most(ebb_tape *tape, uint32_t block);

/* Make the nodes of a recipe, not linked; the first of them. */
ebb_status ebb__tape_make_chain(ebb_tape *tape, const ebb_tape_recipe *recipe, uint32_t place, uint32_t *first_out);

/* Make the spare copy, whose nodes are not linked, one of a tensor: at the places and of the tier of one of the copies.
 */
void ebb__tape_set_spare(ebb_tape *tape, const ebb_tape_copy *like, uint32_t tensor);

/* Put a node of a chain or a copy in before another node; take it out: the last of its chain first. What it reads and
 * makes must be there, or be made so before the tape is written. A node that was taken out still knows the next one. */
void ebb__tape_link(ebb_tape *tape, uint32_t node, uint32_t before);
void ebb__tape_unlink(ebb_tape *tape, uint32_t node);
/* A node that was taken out may be used again. */
void ebb__tape_release(ebb_tape *tape, uint32_t node);

/* Whether loads, labels and touches are right: deep. */
bool ebb__tape_is_valid(const ebb_tape *tape);

#endif
