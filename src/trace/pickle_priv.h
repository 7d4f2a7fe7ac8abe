/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the pickle reader share: the machine (pickle.c), its bytes (pickle_bytes.c), its opcodes
 * (pickle_opcodes.c) and what its values say (pickle_values.c).
 *
 * Invariants
 *  1. at .. end is what was read and not yet taken; before an opcode it holds the opcode and its fixed argument,
 *     unless the file ends in them.
 *  2. Each mark is at most the stack's size, and they do not decrease.
 *  3. Nothing grows faster than the file: an opcode of one byte makes at most one value, one memo entry or one slot,
 *     and a memo index is at most the offset. MAX_... in pickle.c end what goes beyond any snapshot.
 */
#ifndef EBB_SRC_TRACE_PICKLE_PRIV_H
#define EBB_SRC_TRACE_PICKLE_PRIV_H

#include "trace/pickle.h"

#define PICKLE_PAIR_BITS 30 /* of each number of a pair, in its payload */

struct ebb_pickle {
    const ebb_mem *mem;
    const char *name;
    ebb_trace_read_fn read;
    void *read_ctx;
    EBB_VEC(uint8_t) buf; /* n is not used */
    const uint8_t *at, *end;
    uint64_t base; /* the file's offset of the buffer */
    bool eof;

    ebb_trace_keys strings;
    EBB_VEC(uint64_t) wide; /* integers and floats of 64 bits */
    EBB_VEC(ebb_pickle_value) stack;
    EBB_VEC(size_t) marks;
    EBB_VEC(ebb_pickle_value) memo;
    uint64_t n_memo;                   /* entries that are set */
    EBB_VEC(ebb_pickle_value) objects; /* what a list or dictionary has become; absent: it is open */

    size_t taken; /* the stack's size after the step that the caller has */
    ebb_pickle_value pushed;
};

/* ---- opcodes ---------------------------------------------------------------------------------- */

/* X(code, byte, bytes of its fixed argument) */
#define PICKLE_DATA_OPCODES(X)                                                                                         \
    X(PROTO, 0x80, 1)                                                                                                  \
    X(FRAME, 0x95, 8)                                                                                                  \
    X(STOP, '.', 0)                                                                                                    \
    X(MARK, '(', 0)                                                                                                    \
    X(POP, '0', 0)                                                                                                     \
    X(POP_MARK, '1', 0)                                                                                                \
    X(DUP, '2', 0)                                                                                                     \
    X(NONE, 'N', 0)                                                                                                    \
    X(NEWTRUE, 0x88, 0)                                                                                                \
    X(NEWFALSE, 0x89, 0)                                                                                               \
    X(BININT, 'J', 4)                                                                                                  \
    X(BININT1, 'K', 1)                                                                                                 \
    X(BININT2, 'M', 2)                                                                                                 \
    X(LONG1, 0x8a, 1)                                                                                                  \
    X(LONG4, 0x8b, 4)                                                                                                  \
    X(BINFLOAT, 'G', 8)                                                                                                \
    X(SHORT_BINSTRING, 'U', 1)                                                                                         \
    X(BINSTRING, 'T', 4)                                                                                               \
    X(SHORT_BINUNICODE, 0x8c, 1)                                                                                       \
    X(BINUNICODE, 'X', 4)                                                                                              \
    X(BINUNICODE8, 0x8d, 8)                                                                                            \
    X(SHORT_BINBYTES, 'C', 1)                                                                                          \
    X(BINBYTES, 'B', 4)                                                                                                \
    X(BINBYTES8, 0x8e, 8)                                                                                              \
    X(BYTEARRAY8, 0x96, 8)                                                                                             \
    X(EMPTY_LIST, ']', 0)                                                                                              \
    X(LIST, 'l', 0)                                                                                                    \
    X(APPEND, 'a', 0)                                                                                                  \
    X(APPENDS, 'e', 0)                                                                                                 \
    X(EMPTY_DICT, '}', 0)                                                                                              \
    X(DICT, 'd', 0)                                                                                                    \
    X(SETITEM, 's', 0)                                                                                                 \
    X(SETITEMS, 'u', 0)                                                                                                \
    X(EMPTY_TUPLE, ')', 0)                                                                                             \
    X(TUPLE, 't', 0)                                                                                                   \
    X(TUPLE1, 0x85, 0)                                                                                                 \
    X(TUPLE2, 0x86, 0)                                                                                                 \
    X(TUPLE3, 0x87, 0)                                                                                                 \
    X(EMPTY_SET, 0x8f, 0)                                                                                              \
    X(ADDITEMS, 0x90, 0)                                                                                               \
    X(FROZENSET, 0x91, 0)                                                                                              \
    X(BINGET, 'h', 1)                                                                                                  \
    X(LONG_BINGET, 'j', 4)                                                                                             \
    X(BINPUT, 'q', 1)                                                                                                  \
    X(LONG_BINPUT, 'r', 4)                                                                                             \
    X(MEMOIZE, 0x94, 0)

enum {
#define OPCODE_ENUM(code, byte, n) OP_##code = (byte),
    PICKLE_DATA_OPCODES(OPCODE_ENUM)
#undef OPCODE_ENUM
};

/* Bytes of the fixed argument of an opcode; 0 for anything else. */
extern const uint8_t ebb__pickle_argument_bytes[256];

/* Refuse the opcode in front of at, by its name. */
ebb_status ebb__pickle_refuse(const ebb_pickle *pickle, uint8_t opcode);

/* ---- bytes ------------------------------------------------------------------------------------ */

/* The file's offset of what is next. */
uint64_t ebb__pickle_offset(const ebb_pickle *pickle);

/* Have n_bytes at hand unless the file ends before. */
ebb_status ebb__pickle_fill(ebb_pickle *pickle, size_t n_bytes);

/* Pass over n_bytes. EBB_E_FORMAT: the file ends before. */
ebb_status ebb__pickle_skip(ebb_pickle *pickle, uint64_t n_bytes);

/* Take n_bytes, which live until the next fill. EBB_E_FORMAT: the file ends before. */
ebb_status ebb__pickle_take(ebb_pickle *pickle, size_t n_bytes, const uint8_t **bytes_out);

/* EBB_E_FORMAT: the file ends where there has to be more. */
ebb_status ebb__pickle_cut_off(const ebb_pickle *pickle);

static inline uint64_t ebb__pickle_little_endian(const uint8_t *at, unsigned n_bytes) {
    uint64_t x = 0;
    for (unsigned i = 0; i < n_bytes; i++) { x |= (uint64_t)at[i] << (8 * i); }
    return x;
}

#endif
