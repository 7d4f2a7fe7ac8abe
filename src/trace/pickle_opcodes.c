/* SPDX-License-Identifier: Apache-2.0
 *
 * The opcodes of a pickle: how long their arguments are, and why those that are no data are refused.
 */
#include "trace/pickle_priv.h"

/* X(code, byte, why not) */
#define REFUSED_OPCODES(X)                                                                                             \
    X(GLOBAL, 'c', "names code")                                                                                       \
    X(STACK_GLOBAL, 0x93, "names code")                                                                                \
    X(REDUCE, 'R', "calls code")                                                                                       \
    X(BUILD, 'b', "calls code")                                                                                        \
    X(INST, 'i', "calls code")                                                                                         \
    X(OBJ, 'o', "calls code")                                                                                          \
    X(NEWOBJ, 0x81, "calls code")                                                                                      \
    X(NEWOBJ_EX, 0x92, "calls code")                                                                                   \
    X(EXT1, 0x82, "names code")                                                                                        \
    X(EXT2, 0x83, "names code")                                                                                        \
    X(EXT4, 0x84, "names code")                                                                                        \
    X(PERSID, 'P', "refers to another file")                                                                           \
    X(BINPERSID, 'Q', "refers to another file")                                                                        \
    X(NEXT_BUFFER, 0x97, "refers to another file")                                                                     \
    X(READONLY_BUFFER, 0x98, "refers to another file")                                                                 \
    X(INT, 'I', "is of protocol 0")                                                                                    \
    X(LONG, 'L', "is of protocol 0")                                                                                   \
    X(FLOAT, 'F', "is of protocol 0")                                                                                  \
    X(STRING, 'S', "is of protocol 0")                                                                                 \
    X(UNICODE, 'V', "is of protocol 0")                                                                                \
    X(GET, 'g', "is of protocol 0")                                                                                    \
    X(PUT, 'p', "is of protocol 0")

const uint8_t ebb__pickle_argument_bytes[256] = {
#define OPCODE_BYTES(code, byte, n) [byte] = (n),
    PICKLE_DATA_OPCODES(OPCODE_BYTES)
#undef OPCODE_BYTES
};

typedef struct refusal {
    uint8_t byte;
    const char *name, *why;
} refusal;

static const refusal refusals[] = {
#define OPCODE_REFUSAL(code, byte, why) {byte, #code, why},
    REFUSED_OPCODES(OPCODE_REFUSAL)
#undef OPCODE_REFUSAL
};

ebb_status ebb__pickle_refuse(const ebb_pickle *p, uint8_t byte) {
    const unsigned long long offset = ebb__pickle_offset(p) - 1;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (refusals[i].byte == byte) {
            return ebb_fail(EBB_E_UNSUPPORTED, "%s: offset %llu: the opcode %s %s; a snapshot is data alone", p->name,
                            offset, refusals[i].name, refusals[i].why);
        }
    }
    return ebb_fail(EBB_E_FORMAT, "%s: offset %llu: 0x%02x is no opcode of a pickle", p->name, offset, byte);
}
