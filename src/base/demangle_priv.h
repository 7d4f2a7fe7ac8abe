/* SPDX-License-Identifier: Apache-2.0
 *
 * The tree of a C++ name, between its reading and its writing.
 */
#ifndef EBB_SRC_BASE_DEMANGLE_PRIV_H
#define EBB_SRC_BASE_DEMANGLE_PRIV_H

#include "base/demangle.h"

#define DEMANGLE_MAX_DEPTH 48u

/* Of nodes. */
enum {
    DEMANGLED_TEXT,
    DEMANGLED_QUALIFIED, /* first::second */
    DEMANGLED_TEMPLATE,  /* first<list second> */
    DEMANGLED_ITEM,      /* of a list: first, and what comes after it */
    DEMANGLED_PACK,      /* list first, as items of the list around */
    DEMANGLED_POINTER,   /* to first; text: the sign */
    DEMANGLED_DECORATED, /* first text */
    DEMANGLED_PREFIXED,  /* text first */
    DEMANGLED_FUNCTION,  /* first (list second) */
    DEMANGLED_ARRAY,     /* first [text] */
    DEMANGLED_MEMBER,    /* second first::* */
    DEMANGLED_CAST,      /* (first)text */
    DEMANGLED_MAKER,     /* the last part of the name first, after text */
    DEMANGLED_UNNAMED,   /* text n_bytes} */
};

/* Write node[name] and what is below it; as ebb__demangle. */
bool ebb__demangle_write(const ebb_demangle_node *node, uint16_t name, char *buf, size_t buf_bytes);

#endif
