/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a pickle of Python (protocols 2 to 5) as a stream of what is put into what, and builds no tree of it.
 *
 * A pickle is a program for a machine with a stack and a memo. This machine knows data alone: numbers, texts, lists,
 * dictionaries, tuples. An opcode that names or calls code is refused by its name, and nothing is ever run.
 *
 * A list or dictionary is a number with a slot of eight bytes. ebb__pickle_next stops where values are put into one
 * and shows them on the machine's stack; the caller takes what it wants of them and may say what the container has
 * become (ebb__pickle_become). Whoever refers to it later, through the memo, finds that in its place. What the caller
 * does not take is gone. So memory is eight bytes for each thing that the pickle memoises or contains, and the
 * distinct texts; nesting costs no C stack.
 */
#ifndef EBB_SRC_TRACE_PICKLE_H
#define EBB_SRC_TRACE_PICKLE_H

#include "trace/trace_priv.h"

typedef struct ebb_pickle ebb_pickle;

/* The low four bits are the kind, the rest is the kind's. */
typedef struct ebb_pickle_value {
    uint64_t bits;
} ebb_pickle_value;

typedef enum ebb_pickle_kind {
    EBB_PICKLE_ABSENT, /* no value at all */
    EBB_PICKLE_NONE,
    EBB_PICKLE_BOOL,
    EBB_PICKLE_INT,
    EBB_PICKLE_WIDE_INT, /* of more than 60 bits */
    EBB_PICKLE_FLOAT,
    EBB_PICKLE_STRING, /* its number: the first distinct text is 1 */
    EBB_PICKLE_PAIR,   /* a tuple of two small numbers */
    EBB_PICKLE_LIST,
    EBB_PICKLE_DICT,
    EBB_PICKLE_OTHER, /* bytes, sets, other tuples, texts of more than 1 MiB, integers of more than 64 bits */
    EBB_PICKLE_MINE,  /* the caller's, from ebb__pickle_mine */
} ebb_pickle_kind;

static inline ebb_pickle_kind ebb__pickle_kind(ebb_pickle_value value) {
    return (ebb_pickle_kind)(value.bits & 15);
}

static inline uint64_t ebb__pickle_payload(ebb_pickle_value value) {
    return value.bits >> 4;
}

/* number is below 2^60. */
static inline ebb_pickle_value ebb__pickle_mine(uint64_t number) {
    return (ebb_pickle_value){number << 4 | EBB_PICKLE_MINE};
}

typedef struct ebb_pickle_source {
    const char *name; /* for messages */
    ebb_trace_read_fn read;
    void *ctx;
    const char *const *keys; /* [n_keys]: distinct texts, which get the string numbers 1 to n_keys */
    size_t n_keys;
} ebb_pickle_source;

/* The source's name is borrowed as long as the pickle is open. */
ebb_status ebb__pickle_open(const ebb_mem *mem, const ebb_pickle_source *source, ebb_pickle **pickle_out);
void ebb__pickle_close(ebb_pickle *pickle);

typedef enum ebb_pickle_step_kind {
    EBB_PICKLE_APPEND, /* items[n] are put after those of the list target */
    EBB_PICKLE_SET,    /* items[2 n]: n times a key and its value, for the dictionary target */
    EBB_PICKLE_END,    /* the pickle is target; there is no further step */
} ebb_pickle_step_kind;

typedef struct ebb_pickle_step {
    ebb_pickle_step_kind kind;
    ebb_pickle_value target; /* append, set: as it was made, whatever it has become */
    const ebb_pickle_value *items;
    size_t n;
} ebb_pickle_step;

/* The next step; its items live until the call after. EBB_E_UNSUPPORTED: code, or another protocol. EBB_E_FORMAT.
 * EBB_E_LIMIT: more values than any snapshot has. All name the file and the offset. */
ebb_status ebb__pickle_next(ebb_pickle *pickle, ebb_pickle_step *step_out);

/* From now on the list or dictionary target reads as mine. */
void ebb__pickle_become(ebb_pickle *pickle, ebb_pickle_value target, ebb_pickle_value mine);

/* What a value reads as now. */
ebb_pickle_value ebb__pickle_resolve(const ebb_pickle *pickle, ebb_pickle_value value);

/* Store "NAME: offset N: what" and return EBB_E_FORMAT. */
ebb_status ebb__pickle_malformed(const ebb_pickle *pickle, const char *what);

/* false: no integer of 0 to 2^64 - 1, *x_out is untouched. */
bool ebb__pickle_u64(const ebb_pickle *pickle, ebb_pickle_value value, uint64_t *x_out);

/* The bytes of a string (no NUL after them). */
const char *ebb__pickle_text(const ebb_pickle *pickle, uint64_t string, size_t *n_bytes_out);
uint32_t ebb__pickle_n_strings(const ebb_pickle *pickle);

/* Append a number, text, truth value or pair to buf[0 .. *n_bytes) of cap bytes, as people write it; nothing of other
 * kinds, and what does not fit is cut off. */
void ebb__pickle_show(const ebb_pickle *pickle, ebb_pickle_value value, char *buf, size_t cap, size_t *n_bytes);

#endif
