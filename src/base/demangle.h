/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of C++ functions as a program has them: at::native::add<float> of _ZN2at6native3addIfEEvRKNS_6TensorE.
 *
 * For reading, so without results and parameters. The bytes may be anybody's, and the place may be inside malloc: it
 * takes no memory, goes no deeper than a fixed depth, and writes no more than it is asked for.
 *
 * Why not the C++ library's own, __cxa_demangle. It has no limits: a name of 300 bytes, in which each template has the
 * one before it twice, made it write 1.7 GB in 10 seconds, and recordings hold anybody's names. It takes its memory
 * from malloc, which the preloaded recorder stands in front of, in programs that may have no C++ at all. And it writes
 * parameters, which would then have to be taken off again, by a parser.
 */
#ifndef EBB_SRC_BASE_DEMANGLE_H
#define EBB_SRC_BASE_DEMANGLE_H

#include "base/base.h"

enum { EBB_DEMANGLE_NODES = 2048, EBB_DEMANGLE_KNOWN = 1024 };

/* A name as a trace has it; with its templates it may be any length. */
#define EBB_DEMANGLE_NAME_BYTES ((size_t)512)

typedef struct ebb_demangle_node {
    uint16_t kind, first, second, n_bytes;
    const char *text;
} ebb_demangle_node;

/* What it works in; too large for a stack. */
typedef struct ebb_demangler {
    ebb_demangle_node node[EBB_DEMANGLE_NODES];
    uint16_t known[EBB_DEMANGLE_KNOWN]; /* what a name may refer to again */
} ebb_demangler;

/* Write the name to buf[buf_bytes], its end cut off where it is longer; false, and buf is untouched: it is not one of
 * C++, or has in it what this does not read (expressions). */
bool ebb__demangle(ebb_demangler *d, const char *mangled, char *buf, size_t buf_bytes);

#endif
