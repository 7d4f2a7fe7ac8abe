/* SPDX-License-Identifier: Apache-2.0
 *
 * The modules of a PyTorch program, as far as the names or the call stacks of its activations tell them, in kinds:
 * those that a program would treat alike.
 */
#ifndef EBB_SRC_STUDY_ADVICE_MODULES_H
#define EBB_SRC_STUDY_ADVICE_MODULES_H

#include "study/advice/advice.h"

#define ADVICE_MAX_KINDS 64u /* so that a set of kinds is 64 bits */

typedef struct advice_module {
    uint32_t parent; /* 0: none */
    uint32_t kind;   /* 0: it cannot be called, or its kind is one of too many */
    uint32_t leaf;   /* of which it is known: a name that begins with its own, or the stack of its forward's frame */
    uint32_t depth;
    uint32_t called_at; /* where its parent calls it: the stack of the line, or by names the module itself */
    bool is_again;      /* it runs in the backward pass too, so it is checkpointed already */
} advice_module;

typedef struct advice_kind {
    uint64_t nests; /* the kinds that hold modules of this one, or are held by them */
    uint64_t bytes; /* of activations in its modules */
} advice_kind;

typedef struct advice_modules {
    ebb_study *study;
    bool by_name;
    size_t n_leaves;            /* above all numbers of names, or of stacks */
    uint32_t *of_leaf;          /* [n_leaves]: the innermost module; 0: none */
    uint8_t *again_of;          /* [n_leaves]: of stacks, see advice_modules.c */
    EBB_VEC(advice_module) all; /* from 1; a parent has a smaller number */
    EBB_VEC(advice_kind) kinds; /* from 1 */
    ebb_trace_keys keys, kind_keys, line_keys;
    EBB_VEC(uint32_t) line_set; /* of lines, from 1: a line of the same forward */
    EBB_VEC(uint32_t) line_of;  /* of modules: one of their lines */
} advice_modules;

/* *found_out: there are names or stacks. Fini it in any case. */
ebb_status ebb__advice_modules_find(advice_modules *m, ebb_study *s, const uint8_t *purpose, bool *found_out);
void ebb__advice_modules_fini(advice_modules *m);

/* The number of what the block's module is known by. */
static inline uint32_t advice_leaf_of(const advice_modules *m, const study_block *b) {
    return m->by_name ? b->name : b->stack;
}

/* The module of one of these kinds that made a block; 0: none. *place_out: where in it, the called_at of the module
 * that it called, or 0 where it made the block itself. */
uint32_t ebb__advice_module_of(const advice_modules *m, const study_block *b, uint64_t kinds, uint32_t *place_out);

/* Whether a step is of the module, as far as steps are named after modules. */
bool ebb__advice_module_has_step(const advice_modules *m, uint32_t module, const study_step *step);

/* In the study's bump; NULL: no memory. */
const char *ebb__advice_module_label(const advice_modules *m, uint32_t module);

#endif
