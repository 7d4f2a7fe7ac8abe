/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads names as the Itanium C++ ABI mangles them (its section 5.1, as GCC and Clang follow it) into a tree.
 *
 * Invariants
 *  1. Node 0 means none; a node's children have smaller numbers, so the tree has no circle.
 *  2. Anything that is not understood sets has_failed, and from then on nothing is taken.
 *
 * Expressions (in decltype, noexcept, sizes of arrays) are not read.
 */
#include "base/demangle_priv.h"

#include <ctype.h>

typedef struct parser {
    ebb_demangler *d;
    const char *at;
    unsigned n_nodes, n_known, depth;
    bool has_failed;
} parser;

static uint16_t read_type(parser *p);
static uint16_t read_name(parser *p);
static uint16_t read_entity(parser *p);
static uint16_t read_encoding(parser *p);
static uint16_t read_argument(parser *p);

/* ---- the tree --------------------------------------------------------------------------------- */

static uint16_t fail(parser *p) {
    p->has_failed = true;
    p->at = "";
    return 0;
}

static uint16_t add(parser *p, ebb_demangle_node node) {
    if (p->has_failed || p->n_nodes == EBB_DEMANGLE_NODES) { return fail(p); }
    EBB_ASSERT(node.first < p->n_nodes && node.second < p->n_nodes);
    p->d->node[p->n_nodes] = node;
    return (uint16_t)p->n_nodes++;
}

static uint16_t add_text(parser *p, const char *text) {
    return add(p, (ebb_demangle_node){.kind = DEMANGLED_TEXT, .text = text, .n_bytes = (uint16_t)strlen(text)});
}

static uint16_t add_around(parser *p, uint16_t kind, uint16_t first, const char *text) {
    return add(p, (ebb_demangle_node){.kind = kind, .first = first, .text = text, .n_bytes = (uint16_t)strlen(text)});
}

static uint16_t add_pair(parser *p, uint16_t kind, uint16_t first, uint16_t second) {
    return add(p, (ebb_demangle_node){.kind = kind, .first = first, .second = second});
}

/* It may be referred to. */
static uint16_t learn(parser *p, uint16_t node) {
    if (p->has_failed || p->n_known == EBB_DEMANGLE_KNOWN) { return fail(p); }
    p->d->known[p->n_known++] = node;
    return node;
}

/* ---- letters ---------------------------------------------------------------------------------- */

static bool take(parser *p, const char *text) {
    const size_t n = strlen(text);
    if (strncmp(p->at, text, n) != 0) { return false; }
    p->at += n;
    return true;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static unsigned read_number(parser *p) {
    unsigned x = 0;
    for (; is_digit(*p->at) && x < 1u << 16; p->at++) { x = x * 10 + (unsigned)(*p->at - '0'); }
    return x;
}

/* "_" is 0, "0_" is 1, "Z_" is 36. */
static unsigned read_base36(parser *p) {
    unsigned x = 0;
    if (take(p, "_")) { return 0; }
    for (; isalnum((unsigned char)*p->at) && x < 1u << 16; p->at++) {
        x = x * 36 + (unsigned)(is_digit(*p->at) ? *p->at - '0' : toupper((unsigned char)*p->at) - 'A' + 10);
    }
    if (!take(p, "_")) { (void)fail(p); }
    return x + 1;
}

/* Of a list; a function that is for & or && alone has that before its end, and no type is either alone. */
static bool take_end(parser *p) {
    return take(p, "E") || take(p, "RE") || take(p, "OE");
}

/* A list's items from here to its end, which is taken; 0: none exist. */
static uint16_t read_list(parser *p, uint16_t (*read_item)(parser *p)) {
    uint16_t items[64];
    unsigned n = 0;
    for (; !take_end(p); n++) {
        if (*p->at == '\0' || n == sizeof items / sizeof *items) { return fail(p); }
        items[n] = read_item(p);
    }
    uint16_t list = 0;
    while (n > 0) { list = add_pair(p, DEMANGLED_ITEM, items[--n], list); }
    return list;
}

/* ---- names ------------------------------------------------------------------------------------ */

static uint16_t read_source_name(parser *p) {
    const unsigned n = read_number(p);
    const char *text = p->at;
    if (n == 0 || n > UINT16_MAX || strnlen(text, n) < n) { return fail(p); }
    p->at += n;
    if (n >= 10 && strncmp(text, "_GLOBAL__N", 10) == 0) { return add_text(p, "(anonymous namespace)"); }
    return add(p, (ebb_demangle_node){.kind = DEMANGLED_TEXT, .text = text, .n_bytes = (uint16_t)n});
}

/* Two letters and a sign each. */
static uint16_t read_operator(parser *p) {
    static const char signs[] = "ps+ ng- ad& de* co~ pl+ mi- ml* dv/ rm% an& or| eo^ aS= pL+= mI-= mL*= dV/= rM%= aN&= "
                                "oR|= eO^= ls<< rs>> lS<<= rS>>= eq== ne!= lt< gt> le<= ge>= ss<=> nt! aa&& oo|| pp++ "
                                "mm-- cm, pm->* pt-> cl() ix[] qu? nw_new na_new[] dl_delete da_delete[] aw_co_await ";
    if (take(p, "cv")) { return add_around(p, DEMANGLED_PREFIXED, read_type(p), "operator "); }
    if (take(p, "li")) { return add_around(p, DEMANGLED_PREFIXED, read_source_name(p), "operator\"\" "); }
    for (const char *at = signs; *at != '\0'; at = strchr(at, ' ') + 1) {
        if (strncmp(p->at, at, 2) != 0) { continue; }
        p->at += 2;
        const bool is_word = at[2] == '_';
        const char *text = at + 2 + is_word;
        const ebb_demangle_node sign = {
            .kind = DEMANGLED_TEXT, .text = text, .n_bytes = (uint16_t)(strchr(text, ' ') - text)};
        return add_around(p, DEMANGLED_PREFIXED, add(p, sign), is_word ? "operator " : "operator");
    }
    return fail(p);
}

/* A lambda, or a type without a name. What a lambda takes is left out. */
static uint16_t read_unnamed(parser *p) {
    const bool is_lambda = take(p, "Ul");
    unsigned number = 1;
    if (is_lambda) {
        (void)read_list(p, read_type);
    } else if (!take(p, "Ut")) {
        return fail(p);
    }
    if (is_digit(*p->at)) { number = read_number(p) + 2; }
    if (!take(p, "_")) { return fail(p); }
    return add(p, (ebb_demangle_node){.kind = DEMANGLED_UNNAMED,
                                      .text = is_lambda ? "{lambda#" : "{unnamed#",
                                      .n_bytes = (uint16_t)number});
}

/* of: the name around it, of which a constructor is named. */
static uint16_t read_unqualified(parser *p, uint16_t of) {
    uint16_t name = 0;
    (void)take(p, "L"); /* of this file alone */
    if (is_digit(*p->at)) {
        name = read_source_name(p);
    } else if (*p->at == 'U') {
        name = read_unnamed(p);
    } else if (of != 0 && p->at[0] == 'C' && p->at[1] >= '1' && p->at[1] <= '5') {
        p->at += 2;
        name = add_around(p, DEMANGLED_MAKER, of, "");
    } else if (of != 0 && p->at[0] == 'D' && is_digit(p->at[1])) {
        p->at += 2;
        name = add_around(p, DEMANGLED_MAKER, of, "~");
    } else {
        name = read_operator(p);
    }
    while (take(p, "B")) { (void)read_source_name(p); } /* the tag of an ABI */
    return name;
}

/* ---- template arguments ----------------------------------------------------------------------- */

/* After the L. */
static uint16_t read_literal(parser *p) {
    static const char *const suffixes[][2] = {{"i", ""},   {"j", "u"},  {"l", "l"},
                                              {"m", "ul"}, {"x", "ll"}, {"y", "ull"}};
    if (take(p, "_Z") || take(p, "Z")) {
        const uint16_t entity = read_encoding(p);
        return take(p, "E") ? entity : fail(p);
    }
    if (take(p, "b0E")) { return add_text(p, "false"); }
    if (take(p, "b1E")) { return add_text(p, "true"); }
    const char *type_text = p->at;
    const uint16_t type = read_type(p);
    const bool is_negative = take(p, "n");
    const size_t n = strcspn(p->at, "E");
    if (n > UINT8_MAX || p->at[n] == '\0') { return fail(p); }
    const uint16_t value = add(p, (ebb_demangle_node){.kind = DEMANGLED_TEXT, .text = p->at, .n_bytes = (uint16_t)n});
    p->at += n + 1;
    const uint16_t number = is_negative ? add_around(p, DEMANGLED_PREFIXED, value, "-") : value;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (type_text[0] == suffixes[i][0][0]) { return add_around(p, DEMANGLED_DECORATED, number, suffixes[i][1]); }
    }
    return add_pair(p, DEMANGLED_CAST, type, number);
}

/* After its letter. */
static uint16_t read_pack(parser *p) {
    if (p->depth++ >= DEMANGLE_MAX_DEPTH) { return fail(p); }
    const uint16_t list = read_list(p, read_argument);
    p->depth--;
    return add_pair(p, DEMANGLED_PACK, list, 0);
}

static uint16_t read_argument(parser *p) {
    if (take(p, "L")) { return read_literal(p); }
    if (take(p, "J") || take(p, "I")) { return read_pack(p); } /* I: as older compilers have it */
    return *p->at == 'X' ? fail(p) : read_type(p);
}

/* After the I. */
static uint16_t read_arguments(parser *p, uint16_t of) {
    const uint16_t list = read_list(p, read_argument);
    return add_pair(p, DEMANGLED_TEMPLATE, of, list);
}

/* ---- names of names --------------------------------------------------------------------------- */

static uint16_t read_substitution(parser *p) {
    static const char *const known[][2] = {{"Sa", "std::allocator"}, {"Sb", "std::basic_string"},
                                           {"Ss", "std::string"},    {"Si", "std::istream"},
                                           {"So", "std::ostream"},   {"Sd", "std::iostream"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (take(p, known[i][0])) { return add_text(p, known[i][1]); }
    }
    if (!take(p, "S")) { return fail(p); }
    const unsigned which = read_base36(p);
    return which < p->n_known ? p->d->known[which] : fail(p);
}

/* One that only an instance would tell, such as a generic lambda's. */
static uint16_t read_parameter(parser *p) {
    if (!take(p, "T")) { return fail(p); }
    (void)read_base36(p);
    return add_text(p, "auto");
}

static uint16_t join(parser *p, uint16_t around, uint16_t name) {
    return around != 0 ? add_pair(p, DEMANGLED_QUALIFIED, around, name) : name;
}

/* After the N. */
static uint16_t read_nested(parser *p) {
    uint16_t name = 0;
    bool is_known = true; /* the name so far is no new one */
    while (*p->at == 'r' || *p->at == 'V' || *p->at == 'K') { p->at++; }
    if (*p->at == 'R' || *p->at == 'O') { p->at++; }
    while (!p->has_failed && *p->at != 'E') {
        if (*p->at == 'M') { /* of what initialises a member */
            p->at++;
            continue;
        }
        is_known = false;
        if (name == 0 && take(p, "St")) {
            name = add_text(p, "std");
            is_known = true;
        } else if (name == 0 && *p->at == 'S') {
            name = read_substitution(p);
            is_known = true;
        } else if (name == 0 && *p->at == 'T') {
            name = read_parameter(p);
        } else if (name != 0 && take(p, "I")) {
            name = read_arguments(p, name);
        } else {
            name = join(p, name, read_unqualified(p, name));
        }
        if (!is_known) { (void)learn(p, name); }
    }
    if (!take(p, "E") || name == 0 || is_known) { return fail(p); }
    p->n_known--; /* whether it may be referred to as a whole, the caller knows */
    return name;
}

/* After the Z: what is within a function. */
static uint16_t read_local(parser *p) {
    const uint16_t function = read_encoding(p);
    if (!take(p, "E")) { return fail(p); }
    if (take(p, "s")) { /* a text */
        while (*p->at == '_' || is_digit(*p->at)) { p->at++; }
        return add_pair(p, DEMANGLED_QUALIFIED, function, add_text(p, "{text}"));
    }
    if (take(p, "d")) { (void)read_base36(p); } /* in a parameter's default */
    const uint16_t name = add_pair(p, DEMANGLED_QUALIFIED, function, read_name(p));
    if (take(p, "_")) { /* which of several */
        (void)take(p, "_");
        while (is_digit(*p->at)) { p->at++; }
        (void)take(p, "_");
    }
    return name;
}

static uint16_t read_name_here(parser *p) {
    if (take(p, "N")) { return read_nested(p); }
    if (take(p, "Z")) { return read_local(p); }
    uint16_t name = 0;
    bool is_known = false;
    if (take(p, "St")) {
        name = add_text(p, "std");
        name = join(p, name, read_unqualified(p, 0));
    } else if (*p->at == 'S') {
        name = read_substitution(p);
        is_known = true;
    } else {
        name = read_unqualified(p, 0);
    }
    if (*p->at != 'I') { return name; }
    if (!is_known) { (void)learn(p, name); }
    p->at++;
    return read_arguments(p, name);
}

static uint16_t read_name(parser *p) {
    if (p->depth++ >= DEMANGLE_MAX_DEPTH) { return fail(p); }
    const uint16_t name = read_name_here(p);
    p->depth--;
    return name;
}

/* ---- types ------------------------------------------------------------------------------------ */

/* 0: none of these. */
static uint16_t read_builtin(parser *p) {
    static const char *const letters[] = {"signed char",
                                          "bool",
                                          "char",
                                          "double",
                                          "long double",
                                          "float",
                                          "__float128",
                                          "unsigned char",
                                          "int",
                                          "unsigned int",
                                          NULL,
                                          "long",
                                          "unsigned long",
                                          "__int128",
                                          "unsigned __int128",
                                          NULL,
                                          NULL,
                                          NULL,
                                          "short",
                                          "unsigned short",
                                          NULL,
                                          "void",
                                          "wchar_t",
                                          "long long",
                                          "unsigned long long",
                                          "..."};
    static const char *const types[][2] = {{"Dn", "decltype(nullptr)"},
                                           {"Di", "char32_t"},
                                           {"Ds", "char16_t"},
                                           {"Du", "char8_t"},
                                           {"Da", "auto"},
                                           {"Dc", "decltype(auto)"},
                                           {"Dh", "half"},
                                           {"DF16_", "_Float16"},
                                           {"DF16b", "std::bfloat16_t"}};
    if (*p->at >= 'a' && *p->at <= 'z') {
        const char *text = letters[*p->at - 'a'];
        if (text == NULL) { return 0; }
        p->at++;
        return add_text(p, text);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (take(p, types[i][0])) { return add_text(p, types[i][1]); }
    }
    return 0;
}

/* After the F. Whether it is for & or && alone is left out. */
static uint16_t read_function(parser *p) {
    (void)take(p, "Y"); /* a C function */
    const uint16_t result = read_type(p);
    const bool takes_none = take(p, "vE") || take(p, "vRE") || take(p, "vOE");
    const uint16_t list = takes_none ? 0 : read_list(p, read_type);
    return add_pair(p, DEMANGLED_FUNCTION, result, list);
}

/* After the A; sizes that are expressions are not read. */
static uint16_t read_array(parser *p) {
    const char *size = p->at;
    while (is_digit(*p->at)) { p->at++; }
    const size_t n = (size_t)(p->at - size);
    if (n > UINT8_MAX || !take(p, "_")) { return fail(p); }
    const uint16_t item = read_type(p);
    return add(p, (ebb_demangle_node){.kind = DEMANGLED_ARRAY, .first = item, .text = size, .n_bytes = (uint16_t)n});
}

/* Whatever is written before a type; 0: nothing of it. */
static uint16_t read_qualified(parser *p) {
    static const char *const signs[][2] = {{"P", "*"},         {"R", "&"},           {"O", "&&"},
                                           {"C", " _Complex"}, {"G", " _Imaginary"}, {"Dp", ""}};
    if (*p->at == 'r' || *p->at == 'V' || *p->at == 'K') {
        const bool is_restrict = take(p, "r"), is_volatile = take(p, "V"), is_const = take(p, "K");
        const uint16_t type = read_type(p);
        const char *const words[] = {"",          " const",          " volatile",          " const volatile",
                                     " restrict", " const restrict", " volatile restrict", " const volatile restrict"};
        return add_around(p, DEMANGLED_DECORATED, type, words[is_const + 2 * is_volatile + 4 * is_restrict]);
    }
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!take(p, signs[i][0])) { continue; }
        const uint16_t type = read_type(p);
        return add_around(p, i < 3 ? DEMANGLED_POINTER : DEMANGLED_DECORATED, type, signs[i][1]);
    }
    return 0;
}

static uint16_t read_compound(parser *p) {
    if (take(p, "F") || take(p, "DoF")) { return read_function(p); }
    if (take(p, "A")) { return read_array(p); }
    if (take(p, "M")) {
        const uint16_t class = read_type(p);
        return add_pair(p, DEMANGLED_MEMBER, class, read_type(p));
    }
    if (take(p, "Dv")) {
        (void)read_number(p);
        return take(p, "_") ? add_around(p, DEMANGLED_DECORATED, read_type(p), " __vector") : fail(p);
    }
    if (take(p, "u")) { return read_source_name(p); }
    if (take(p, "U")) {
        const uint16_t word = read_source_name(p);
        return add_pair(p, DEMANGLED_CAST, word, read_type(p));
    }
    if (p->at[0] == 'T' && (p->at[1] == 's' || p->at[1] == 'u' || p->at[1] == 'e')) { p->at += 2; }
    return *p->at == 'T' ? read_parameter(p) : read_name(p);
}

static uint16_t read_type_here(parser *p) {
    uint16_t type = read_builtin(p);
    if (type != 0) { return type; }
    if (p->at[0] == 'S' && p->at[1] != 't') {
        type = read_substitution(p);
        if (!take(p, "I")) { return type; }
        return learn(p, read_arguments(p, type));
    }
    type = read_qualified(p);
    if (type == 0 && !p->has_failed) { type = read_compound(p); }
    (void)learn(p, type);
    if (p->d->node[type].kind == DEMANGLED_TEXT && take(p, "I")) { /* a parameter that is a template */
        type = learn(p, read_arguments(p, type));
    }
    return type;
}

static uint16_t read_type(parser *p) {
    if (p->has_failed || *p->at == '\0' || p->depth++ >= DEMANGLE_MAX_DEPTH) { return fail(p); }
    const uint16_t type = read_type_here(p);
    p->depth--;
    return type;
}

/* ---- functions -------------------------------------------------------------------------------- */

static uint16_t read_special(parser *p) {
    static const char *const of_types[][2] = {
        {"TV", "vtable for "}, {"TT", "VTT for "}, {"TI", "typeinfo for "}, {"TS", "typeinfo name for "}};
    for (size_t i = 0; i < sizeof of_types / sizeof *of_types; i++) {
        if (take(p, of_types[i][0])) { return add_around(p, DEMANGLED_PREFIXED, read_type(p), of_types[i][1]); }
    }
    if (take(p, "GV")) { return add_around(p, DEMANGLED_PREFIXED, read_name(p), "guard variable for "); }
    if (!take(p, "Th") && !take(p, "Tv")) { return fail(p); }
    while (*p->at == 'n' || *p->at == '_' || is_digit(*p->at)) { p->at++; }
    return add_around(p, DEMANGLED_PREFIXED, read_entity(p), "thunk to ");
}

/* Without its parameters, which are after it. */
static uint16_t read_entity(parser *p) {
    if (p->depth++ >= DEMANGLE_MAX_DEPTH) { return fail(p); }
    const uint16_t name = *p->at == 'T' || *p->at == 'G' ? read_special(p) : read_name(p);
    p->depth--;
    return name;
}

/* A function within another name has its parameters after it, up to an E. */
static uint16_t read_encoding(parser *p) {
    if (p->depth++ >= DEMANGLE_MAX_DEPTH) { return fail(p); }
    const uint16_t name = read_entity(p);
    while (!p->has_failed && *p->at != 'E') { (void)read_type(p); }
    p->depth--;
    return name;
}

/* ---- the door --------------------------------------------------------------------------------- */

bool ebb__demangle(ebb_demangler *d, const char *mangled, char *buf, size_t buf_bytes) {
    if (strncmp(mangled, "_Z", 2) != 0) { return false; }
    parser p = {.d = d, .at = mangled + 2, .n_nodes = 1};
    d->node[0] = (ebb_demangle_node){.kind = DEMANGLED_TEXT, .text = ""};
    const uint16_t name = read_entity(&p);
    return !p.has_failed && ebb__demangle_write(d->node, name, buf, buf_bytes);
}
