/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the tree of a C++ name. A type is written around what it is the type of: its left part, "void (*", and its
 * right part, ")(int)". Parts of the tree may be shared, and then the text is exponentially longer than the name:
 * MAX_STEPS bounds what is looked at, the buffer what is written.
 */
#include "base/demangle_priv.h"

#define MAX_STEPS 20000u

typedef struct printer {
    const ebb_demangle_node *node;
    char *buf;
    size_t n, n_max;
    unsigned n_steps, depth;
    bool has_failed;
} printer;

static void print(printer *w, uint16_t idx);

static void put_n(printer *w, const char *text, size_t n) {
    for (; n > 0 && w->n < w->n_max; n--) { w->buf[w->n++] = *text++; }
}

static void put(printer *w, const char *text) {
    put_n(w, text, strlen(text));
}

static void print_list(printer *w, uint16_t list) {
    for (bool is_first = true; list != 0 && !w->has_failed; list = w->node[list].second) {
        const size_t before = w->n;
        if (!is_first) { put(w, ", "); }
        const size_t begun = w->n;
        print(w, w->node[list].first);
        if (w->n == begun && w->n < w->n_max) { /* nothing, as an empty pack */
            w->n = before;
        } else {
            is_first = false;
        }
    }
}

static bool is_around(const printer *w, uint16_t idx) {
    return w->node[idx].kind == DEMANGLED_FUNCTION || w->node[idx].kind == DEMANGLED_ARRAY;
}

/* The name's last part: of a class what its constructor is called. */
static void print_last(printer *w, uint16_t idx) {
    while (w->node[idx].kind == DEMANGLED_QUALIFIED || w->node[idx].kind == DEMANGLED_TEMPLATE) {
        idx = w->node[idx].kind == DEMANGLED_QUALIFIED ? w->node[idx].second : w->node[idx].first;
    }
    const ebb_demangle_node *node = &w->node[idx];
    size_t begin = node->kind == DEMANGLED_TEXT ? node->n_bytes : 0;
    while (begin > 0 && node->text[begin - 1] != ':') { begin--; }
    if (node->kind == DEMANGLED_TEXT) { put_n(w, node->text + begin, node->n_bytes - begin); }
}

static bool enter(printer *w) {
    w->has_failed = w->has_failed || ++w->n_steps > MAX_STEPS || w->depth >= 2 * DEMANGLE_MAX_DEPTH;
    if (w->has_failed || w->n == w->n_max) { return false; }
    w->depth++;
    return true;
}

static void print_left(printer *w, uint16_t idx) { /* long: one switch */
    const ebb_demangle_node *node = &w->node[idx];
    char number[16];
    if (!enter(w)) { return; }
    switch (node->kind) {
    case DEMANGLED_TEXT: put_n(w, node->text, node->n_bytes); break;
    case DEMANGLED_QUALIFIED:
        print(w, node->first);
        put(w, "::");
        print(w, node->second);
        break;
    case DEMANGLED_TEMPLATE:
        print(w, node->first);
        put(w, "<");
        print_list(w, node->second);
        put(w, ">");
        break;
    case DEMANGLED_PACK: print_list(w, node->first); break;
    case DEMANGLED_POINTER:
        print_left(w, node->first);
        if (is_around(w, node->first)) { put(w, "("); }
        put_n(w, node->text, node->n_bytes);
        break;
    case DEMANGLED_DECORATED:
        print_left(w, node->first);
        put_n(w, node->text, node->n_bytes);
        break;
    case DEMANGLED_PREFIXED:
        put_n(w, node->text, node->n_bytes);
        print(w, node->first);
        break;
    case DEMANGLED_FUNCTION:
    case DEMANGLED_ARRAY:
        print_left(w, node->first);
        put(w, " ");
        break;
    case DEMANGLED_MEMBER:
        print_left(w, node->second);
        put(w, is_around(w, node->second) ? "(" : " ");
        print(w, node->first);
        put(w, "::*");
        break;
    case DEMANGLED_CAST:
        put(w, "(");
        print(w, node->first);
        put(w, ")");
        print(w, node->second);
        break;
    case DEMANGLED_UNNAMED:
        (void)snprintf(number, sizeof number, "%u}", node->n_bytes);
        put(w, node->text);
        put(w, number);
        break;
    default:
        EBB_ASSERT(node->kind == DEMANGLED_MAKER);
        put_n(w, node->text, node->n_bytes);
        print_last(w, node->first);
        break;
    }
    w->depth--;
}

static void print_right(printer *w, uint16_t idx) {
    const ebb_demangle_node *node = &w->node[idx];
    if (!enter(w)) { return; }
    const uint16_t inner = node->kind == DEMANGLED_MEMBER ? node->second : node->first;
    if ((node->kind == DEMANGLED_POINTER || node->kind == DEMANGLED_MEMBER) && is_around(w, inner)) { put(w, ")"); }
    if (node->kind == DEMANGLED_FUNCTION) {
        put(w, "(");
        print_list(w, node->second);
        put(w, ")");
    }
    if (node->kind == DEMANGLED_ARRAY) {
        put(w, "[");
        put_n(w, node->text, node->n_bytes);
        put(w, "]");
    }
    const bool is_type = node->kind == DEMANGLED_POINTER || node->kind == DEMANGLED_DECORATED ||
                         node->kind == DEMANGLED_MEMBER || is_around(w, idx);
    if (is_type) { print_right(w, inner); }
    w->depth--;
}

static void print(printer *w, uint16_t idx) {
    print_left(w, idx);
    print_right(w, idx);
}

/* ---- the door --------------------------------------------------------------------------------- */

bool ebb__demangle_write(const ebb_demangle_node *node, uint16_t name, char *buf, size_t buf_bytes) {
    char text[1024];
    if (buf_bytes == 0) { return false; }
    printer w = {.node = node, .buf = text, .n_max = sizeof text};
    if (w.n_max > buf_bytes - 1) { w.n_max = buf_bytes - 1; }
    print(&w, name);
    if (w.has_failed) { return false; }
    memcpy(buf, text, w.n);
    buf[w.n] = '\0';
    return true;
}
