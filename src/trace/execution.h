/* SPDX-License-Identifier: Apache-2.0
 *
 * A PyTorch execution trace as it is held between its reading (import_execution.c) and its writing as events
 * (import_execution_write.c), and what operators' schemas say (execution_schema.c).
 */
#ifndef EBB_SRC_TRACE_EXECUTION_H
#define EBB_SRC_TRACE_EXECUTION_H

#include "trace/import_priv.h"
#include "base/u64_map.h"

#define EXECUTION_MAX_ARGS 64u
#define EXECUTION_MAX_DEVICES 64u

/* ---- schemas ---------------------------------------------------------------------------------- */

/* One bit an argument, in the schema's order. */
typedef struct execution_schema {
    bool is_there;       /* nodes of autograd and of annotations have none */
    bool only_allocates; /* what it returns has no content yet */
    uint64_t aliased;    /* may be what is returned */
    uint64_t written;
    uint64_t overwritten; /* written without being read */
    uint64_t ignored;     /* neither read nor written: only its size or its storage changes */
} execution_schema;

/* "aten::add_.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1) -> Tensor(a!)"; "" has nothing. */
execution_schema ebb__execution_schema(const char *text);

/* ---- nodes ------------------------------------------------------------------------------------ */

typedef enum execution_use { EXECUTION_BIRTH, EXECUTION_READ, EXECUTION_WRITE, EXECUTION_HOLD } execution_use;

/* What a node does to a block. Each of its blocks has a HOLD last: while one of these is to come the block lives. */
typedef struct execution_touch {
    uint32_t block : 30;
    unsigned use : 2;
} execution_touch;

/* What the observer calls a node's scope; others are operators to us. */
enum { EXECUTION_SCOPE_BACKWARD = 1, EXECUTION_SCOPE_RANGE = 7 };

typedef struct execution_node {
    uint64_t id, parent; /* ids are given when nodes begin */
    uint64_t first_touch;
    uint64_t sequence; /* the same for an operator and for the node of the backward pass that it makes; 0: none */
    uint32_t n_touches;
    uint32_t name; /* of texts */
    uint32_t thread;
    uint8_t scope;
} execution_node;

/* What a storage id stands for from one production to the next. */
typedef struct execution_block {
    uint64_t size_bytes;
    uint64_t number;  /* in the trace, plus one; 0: not yet */
    uint32_t n_holds; /* to come */
    uint16_t device;
    bool before;      /* it was not produced in the recording */
    bool is_replaced; /* its storage id stands for another one now */
} execution_block;

typedef struct execution {
    ebb_importer *importer;
    ebb_trace_keys texts;
    EBB_VEC(execution_node) nodes; /* in the order of their ends */
    EBB_VEC(execution_touch) touches;
    EBB_VEC(execution_block) blocks;
    ebb_import_device devices[EXECUTION_MAX_DEVICES];
    size_t n_devices;
    size_t n_threads;
} execution;

/* ---- modules ---------------------------------------------------------------------------------- */

/* A module, or what the blocks of an operator within one are called. */
typedef struct execution_name {
    const char *text;
    size_t last;     /* of a module: where the innermost range's name begins in it */
    uint32_t string; /* the writer's */
} execution_name;

typedef struct execution_modules {
    ebb_importer *importer;
    ebb_bump bump;
    ebb_trace_keys keys;           /* { module around, name of texts, whether it is a range } */
    EBB_VEC(execution_name) names; /* [i]: of key i; 0: no module */
    ebb_u64_map of_sequence;
} execution_modules;

ebb_status ebb__execution_modules_init(execution_modules *m, ebb_importer *importer);
void ebb__execution_modules_fini(execution_modules *m);

/* Whether a range of this name is one of the program's. PyTorch has some of its own. */
bool ebb__execution_is_own_range(const char *name);

/* The module that a range is, within another one or none (0); is_range false: what an operator's blocks are called
 * there. text: that of name, a number of texts. */
ebb_status ebb__execution_find_name(execution_modules *m, uint32_t around, uint32_t name, const char *text,
                                    bool is_range, uint32_t *number_out);

/* The module of the operator that made a node of the backward pass: the last one with its sequence number. */
ebb_status ebb__execution_note_sequence(execution_modules *m, uint64_t sequence, uint32_t module);
uint32_t ebb__execution_module_of(const execution_modules *m, uint64_t sequence);

/* ---- writing ---------------------------------------------------------------------------------- */

/* Write it all through the importer, for the device that its options ask for. */
ebb_status ebb__execution_write(execution *e);

#endif
