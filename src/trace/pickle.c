/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine of pickle.h.
 *
 * Invariants
 *  1. at .. end is what was read and not yet taken; before an opcode it holds the opcode and its fixed argument,
 *     unless the file ends in them.
 *  2. Each mark is at most the stack's size, and they do not decrease.
 *  3. Nothing grows faster than the file: an opcode of one byte makes at most one value, one memo entry or one slot,
 *     and a memo index is at most the offset. MAX_... end what goes beyond any snapshot.
 */
#include "trace/pickle.h"

#define FIRST_BUFFER_BYTES ((size_t)256 << 10) /* longer texts make it grow */
#define MAX_ARGUMENT_BYTES ((size_t)16)        /* an opcode and its fixed argument */
#define MAX_STACK ((size_t)1 << 26)
#define MAX_MARKS ((size_t)1 << 20)
#define MAX_MEMO ((size_t)1 << 28)
#define MAX_OBJECTS ((size_t)1 << 28)
#define SMALL_INT_BITS 60

struct ebb_pickle {
    const ebb_mem *mem;
    const char *name;
    ebb_pickle_read_fn read;
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
#define DATA_OPCODES(X)                                                                                                \
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

enum {
#define OPCODE_ENUM(code, byte, n) OP_##code = (byte),
    DATA_OPCODES(OPCODE_ENUM)
#undef OPCODE_ENUM
};

static const uint8_t argument_bytes[256] = {
#define OPCODE_BYTES(code, byte, n) [byte] = (n),
    DATA_OPCODES(OPCODE_BYTES)
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

/* ---- failing ---------------------------------------------------------------------------------- */

static uint64_t offset_of(const ebb_pickle *p, const uint8_t *at) {
    return p->base + (uint64_t)(at - p->buf.data);
}

ebb_status ebb__pickle_malformed(const ebb_pickle *p, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s: offset %llu: %s", p->name, (unsigned long long)offset_of(p, p->at), what);
}

static ebb_status too_many(const ebb_pickle *p, const char *what) {
    return ebb_fail(EBB_E_LIMIT, "%s: offset %llu: more %s than a snapshot has", p->name,
                    (unsigned long long)offset_of(p, p->at), what);
}

/* Of the opcode in front of at. */
static ebb_status refuse(const ebb_pickle *p, uint8_t byte) {
    const unsigned long long offset = offset_of(p, p->at) - 1;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        if (refusals[i].byte == byte) {
            return ebb_fail(EBB_E_UNSUPPORTED, "%s: offset %llu: the opcode %s %s; a snapshot is data alone", p->name,
                            offset, refusals[i].name, refusals[i].why);
        }
    }
    return ebb_fail(EBB_E_FORMAT, "%s: offset %llu: 0x%02x is no opcode of a pickle", p->name, offset, byte);
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Have n_bytes at hand unless the file ends before. */
static ebb_status fill(ebb_pickle *p, size_t n_bytes) {
    size_t n = (size_t)(p->end - p->at);
    if (n >= n_bytes || p->eof) { return EBB_OK; }
    p->base += (uint64_t)(p->at - p->buf.data);
    if (n > 0) { memmove(p->buf.data, p->at, n); }
    const ebb_status st = EBB_RESERVE(p->mem, &p->buf, ebb_max_u64(n_bytes, FIRST_BUFFER_BYTES));
    p->at = p->buf.data;
    p->end = p->buf.data + n;
    EBB_TRY(st);
    while (n < p->buf.cap && !p->eof) {
        size_t n_read = 0;
        EBB_TRY(p->read(p->read_ctx, p->buf.data + n, p->buf.cap - n, &n_read));
        p->eof = n_read == 0;
        n += n_read;
        p->end = p->buf.data + n;
    }
    return EBB_OK;
}

static ebb_status cut_off(const ebb_pickle *p) {
    return ebb__pickle_malformed(p, "the pickle is cut off here");
}

/* Pass over n_bytes. */
static ebb_status skip(ebb_pickle *p, uint64_t n_bytes) {
    while (n_bytes > 0) {
        EBB_TRY(fill(p, 1));
        const uint64_t n_here = ebb_min_u64((uint64_t)(p->end - p->at), n_bytes);
        if (n_here == 0) { return cut_off(p); }
        p->at += n_here;
        n_bytes -= n_here;
    }
    return EBB_OK;
}

static uint64_t little_endian(const uint8_t *at, unsigned n_bytes) {
    uint64_t x = 0;
    for (unsigned i = 0; i < n_bytes; i++) { x |= (uint64_t)at[i] << (8 * i); }
    return x;
}

/* ---- values ----------------------------------------------------------------------------------- */

static ebb_pickle_value make(ebb_pickle_kind kind, uint64_t payload) {
    return (ebb_pickle_value){payload << 4 | kind};
}

static ebb_status push(ebb_pickle *p, ebb_pickle_value value) {
    if (p->stack.n == p->stack.cap) {
        if (p->stack.n >= MAX_STACK) { return too_many(p, "values"); }
        EBB_TRY(EBB_RESERVE(p->mem, &p->stack, 1));
    }
    p->stack.data[p->stack.n++] = value;
    return EBB_OK;
}

static ebb_status push_wide(ebb_pickle *p, ebb_pickle_kind kind, uint64_t bits) {
    EBB_TRY(EBB_PUSH(p->mem, &p->wide, bits));
    return push(p, make(kind, p->wide.n - 1));
}

/* negative: x is the number plus 2^64. */
static ebb_status push_int(ebb_pickle *p, uint64_t x, bool negative) {
    const uint64_t limit = (uint64_t)1 << (SMALL_INT_BITS - 1);
    if (negative ? x >= 0 - limit : x < limit) { return push(p, make(EBB_PICKLE_INT, x)); }
    return negative ? push(p, make(EBB_PICKLE_OTHER, 0)) : push_wide(p, EBB_PICKLE_WIDE_INT, x);
}

/* An integer of n_bytes, the top one holding the sign. */
static ebb_status push_long(ebb_pickle *p, uint64_t n_bytes) {
    if (n_bytes > 9) {
        EBB_TRY(skip(p, n_bytes));
        return push(p, make(EBB_PICKLE_OTHER, 0));
    }
    EBB_TRY(fill(p, (size_t)n_bytes));
    if ((uint64_t)(p->end - p->at) < n_bytes) { return cut_off(p); }
    const uint8_t *bytes = p->at;
    p->at += n_bytes;
    if (n_bytes == 9) {
        return bytes[8] == 0 ? push_int(p, little_endian(bytes, 8), false) : push(p, make(EBB_PICKLE_OTHER, 0));
    }
    const bool negative = n_bytes > 0 && bytes[n_bytes - 1] >= 0x80;
    uint64_t x = little_endian(bytes, (unsigned)n_bytes);
    if (negative && n_bytes < 8) { x |= UINT64_MAX << (8 * n_bytes); }
    return push_int(p, x, negative);
}

static ebb_status push_text(ebb_pickle *p, uint64_t n_bytes) {
    if (n_bytes > TRACE_MAX_STRING_BYTES) {
        EBB_TRY(skip(p, n_bytes));
        return push(p, make(EBB_PICKLE_OTHER, 0));
    }
    EBB_TRY(fill(p, (size_t)n_bytes));
    if ((uint64_t)(p->end - p->at) < n_bytes) { return cut_off(p); }
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__trace_keys_add(&p->strings, p->at, (size_t)n_bytes, &number, &is_new));
    p->at += n_bytes;
    return push(p, make(EBB_PICKLE_STRING, number));
}

static ebb_status push_bytes(ebb_pickle *p, uint64_t n_bytes) {
    EBB_TRY(skip(p, n_bytes));
    return push(p, make(EBB_PICKLE_OTHER, 0));
}

static ebb_status make_object(ebb_pickle *p, ebb_pickle_kind kind, ebb_pickle_value *value_out) {
    if (p->objects.n >= MAX_OBJECTS) { return too_many(p, "lists and dictionaries"); }
    const ebb_pickle_value open = {0};
    EBB_TRY(EBB_PUSH(p->mem, &p->objects, open));
    *value_out = make(kind, p->objects.n - 1);
    return EBB_OK;
}

static ebb_status push_object(ebb_pickle *p, ebb_pickle_kind kind) {
    ebb_pickle_value value;
    EBB_TRY(make_object(p, kind, &value));
    return push(p, value);
}

/* ---- the stack -------------------------------------------------------------------------------- */

static ebb_status need(const ebb_pickle *p, size_t n) {
    const size_t floor = p->marks.n > 0 ? p->marks.data[p->marks.n - 1] : 0;
    return p->stack.n - floor >= n ? EBB_OK : ebb__pickle_malformed(p, "values are missing on the stack");
}

/* Take the last mark. */
static ebb_status take_mark(ebb_pickle *p, size_t *mark_out) {
    if (p->marks.n == 0) { return ebb__pickle_malformed(p, "a mark is missing on the stack"); }
    *mark_out = p->marks.data[--p->marks.n];
    EBB_ASSERT(*mark_out <= p->stack.n);
    return EBB_OK;
}

static ebb_status push_mark(ebb_pickle *p) {
    if (p->marks.n >= MAX_MARKS) { return too_many(p, "nested values"); }
    return EBB_PUSH(p->mem, &p->marks, p->stack.n);
}

static ebb_status put(ebb_pickle *p, uint64_t idx) {
    EBB_TRY(need(p, 1));
    if (idx > offset_of(p, p->at)) { return ebb__pickle_malformed(p, "a memo entry far behind the others"); }
    if (idx >= MAX_MEMO) { return too_many(p, "memo entries"); }
    if (idx >= p->memo.n) {
        EBB_TRY(EBB_RESERVE(p->mem, &p->memo, (size_t)idx + 1 - p->memo.n));
        memset(p->memo.data + p->memo.n, 0, ((size_t)idx + 1 - p->memo.n) * sizeof *p->memo.data);
        p->memo.n = (size_t)idx + 1;
    }
    ebb_pickle_value *entry = &p->memo.data[idx];
    p->n_memo += ebb__pickle_kind(*entry) == EBB_PICKLE_ABSENT;
    *entry = p->stack.data[p->stack.n - 1];
    return EBB_OK;
}

static ebb_status get(ebb_pickle *p, uint64_t idx) {
    if (idx >= p->memo.n || ebb__pickle_kind(p->memo.data[idx]) == EBB_PICKLE_ABSENT) {
        return ebb__pickle_malformed(p, "a memo entry that was never stored");
    }
    ebb_pickle_value *entry = &p->memo.data[idx];
    *entry = ebb__pickle_resolve(p, *entry); /* the next one finds it at once */
    return push(p, *entry);
}

static bool small_number(ebb_pickle_value value) {
    return ebb__pickle_kind(value) == EBB_PICKLE_INT && ebb__pickle_payload(value) < (uint64_t)1 << 30;
}

/* The tuple of what lies on the stack from first on. */
static ebb_status make_tuple(ebb_pickle *p, size_t first) {
    ebb_pickle_value tuple = make(EBB_PICKLE_OTHER, 0);
    if (p->stack.n - first == 2) {
        const ebb_pickle_value *items = p->stack.data + first;
        if (small_number(items[0]) && small_number(items[1])) {
            tuple = make(EBB_PICKLE_PAIR, ebb__pickle_payload(items[0]) << 30 | ebb__pickle_payload(items[1]));
        }
    }
    p->stack.n = first;
    return push(p, tuple);
}

static ebb_status make_tuple_of(ebb_pickle *p, size_t n) {
    EBB_TRY(need(p, n));
    return make_tuple(p, p->stack.n - n);
}

/* A set, or what a set becomes by more items. */
static ebb_status make_set(ebb_pickle *p, bool is_new) {
    size_t mark = 0;
    EBB_TRY(take_mark(p, &mark));
    p->stack.n = mark;
    return is_new ? push(p, make(EBB_PICKLE_OTHER, 0)) : need(p, 1);
}

/* ---- steps ------------------------------------------------------------------------------------ */

/* Show what lies on the stack from first on as put into target. When the caller comes back, the stack is cut to
 * n_left and pushed goes on it, unless absent. */
static ebb_status show(ebb_pickle *p, ebb_pickle_step_kind kind, ebb_pickle_value target, size_t first,
                       ebb_pickle_step *step) {
    const size_t n = p->stack.n - first;
    const bool is_set = kind == EBB_PICKLE_SET;
    if (ebb__pickle_kind(target) != (is_set ? EBB_PICKLE_DICT : EBB_PICKLE_LIST)) {
        return ebb__pickle_malformed(p, is_set ? "items for what is no dictionary" : "items for what is no list");
    }
    if (is_set && n % 2 != 0) { return ebb__pickle_malformed(p, "a key without a value"); }
    *step = (ebb_pickle_step){kind, target, n > 0 ? p->stack.data + first : NULL, is_set ? n / 2 : n};
    p->taken = first;
    return EBB_OK;
}

/* The last n values go into what lies below them. */
static ebb_status step_of(ebb_pickle *p, ebb_pickle_step_kind kind, size_t n, ebb_pickle_step *step) {
    EBB_TRY(need(p, n + 1));
    const size_t first = p->stack.n - n;
    return show(p, kind, p->stack.data[first - 1], first, step);
}

/* What lies behind the last mark goes into what lies below the mark. */
static ebb_status step_of_marked(ebb_pickle *p, ebb_pickle_step_kind kind, ebb_pickle_step *step) {
    size_t mark = 0;
    EBB_TRY(take_mark(p, &mark));
    const size_t floor = p->marks.n > 0 ? p->marks.data[p->marks.n - 1] : 0;
    if (mark == floor) { return ebb__pickle_malformed(p, "values are missing on the stack"); }
    return show(p, kind, p->stack.data[mark - 1], mark, step);
}

/* What lies behind the last mark goes into a new one. */
static ebb_status step_of_new(ebb_pickle *p, ebb_pickle_step_kind kind, ebb_pickle_step *step) {
    size_t mark = 0;
    ebb_pickle_value target;
    EBB_TRY(take_mark(p, &mark));
    EBB_TRY(make_object(p, kind == EBB_PICKLE_SET ? EBB_PICKLE_DICT : EBB_PICKLE_LIST, &target));
    EBB_TRY(show(p, kind, target, mark, step));
    p->pushed = target;
    return EBB_OK;
}

static ebb_status step_of_end(ebb_pickle *p, ebb_pickle_step *step) {
    EBB_TRY(need(p, 1));
    *step = (ebb_pickle_step){.kind = EBB_PICKLE_END, .target = ebb__pickle_resolve(p, p->stack.data[p->stack.n - 1])};
    EBB_VEC_FINI(p->mem, &p->memo);
    EBB_VEC_FINI(p->mem, &p->stack);
    p->taken = 0;
    return EBB_OK;
}

static ebb_status pop(ebb_pickle *p) {
    const bool at_mark = p->marks.n > 0 && p->marks.data[p->marks.n - 1] == p->stack.n;
    if (at_mark) {
        p->marks.n--;
        return EBB_OK;
    }
    EBB_TRY(need(p, 1));
    p->stack.n--;
    return EBB_OK;
}

static ebb_status pop_mark(ebb_pickle *p) {
    size_t mark = 0;
    EBB_TRY(take_mark(p, &mark));
    p->stack.n = mark;
    return EBB_OK;
}

static ebb_status dup(ebb_pickle *p) {
    EBB_TRY(need(p, 1));
    return push(p, p->stack.data[p->stack.n - 1]);
}

static ebb_status check_protocol(const ebb_pickle *p, uint64_t protocol) {
    if (protocol >= 2 && protocol <= 5) { return EBB_OK; }
    return ebb_fail(EBB_E_UNSUPPORTED, "%s: a pickle of protocol %llu; 2 to 5 are read", p->name,
                    (unsigned long long)protocol);
}

/* Run one opcode with its fixed argument x, of which at points to the bytes behind. *done: there is a step.
 * long: one switch */
static ebb_status run(ebb_pickle *p, uint8_t op, uint64_t x, ebb_pickle_step *step, bool *done) {
    switch (op) {
    case OP_PROTO: return check_protocol(p, x);
    case OP_FRAME: return EBB_OK; /* where a frame ends is of no use to a reader of streams */
    case OP_MARK: return push_mark(p);
    case OP_POP: return pop(p);
    case OP_POP_MARK: return pop_mark(p);
    case OP_DUP: return dup(p);
    case OP_NONE: return push(p, make(EBB_PICKLE_NONE, 0));
    case OP_NEWTRUE: return push(p, make(EBB_PICKLE_BOOL, 1));
    case OP_NEWFALSE: return push(p, make(EBB_PICKLE_BOOL, 0));
    case OP_BININT: return push_int(p, (uint64_t)(int64_t)(int32_t)(uint32_t)x, x >> 31 != 0);
    case OP_BININT1:
    case OP_BININT2: return push_int(p, x, false);
    case OP_LONG1: return push_long(p, x);
    case OP_LONG4: return x < (uint64_t)1 << 31 ? push_long(p, x) : ebb__pickle_malformed(p, "a negative length");
    case OP_BINFLOAT: return push_wide(p, EBB_PICKLE_FLOAT, __builtin_bswap64(x));
    case OP_SHORT_BINSTRING:
    case OP_BINSTRING:
    case OP_SHORT_BINUNICODE:
    case OP_BINUNICODE:
    case OP_BINUNICODE8: return push_text(p, x);
    case OP_SHORT_BINBYTES:
    case OP_BINBYTES:
    case OP_BINBYTES8:
    case OP_BYTEARRAY8: return push_bytes(p, x);
    case OP_EMPTY_LIST: return push_object(p, EBB_PICKLE_LIST);
    case OP_EMPTY_DICT: return push_object(p, EBB_PICKLE_DICT);
    case OP_EMPTY_TUPLE: return make_tuple(p, p->stack.n);
    case OP_TUPLE1: return make_tuple_of(p, 1);
    case OP_TUPLE2: return make_tuple_of(p, 2);
    case OP_TUPLE3: return make_tuple_of(p, 3);
    case OP_TUPLE: {
        size_t mark = 0;
        EBB_TRY(take_mark(p, &mark));
        return make_tuple(p, mark);
    }
    case OP_EMPTY_SET: return push(p, make(EBB_PICKLE_OTHER, 0));
    case OP_ADDITEMS: return make_set(p, false);
    case OP_FROZENSET: return make_set(p, true);
    case OP_BINGET:
    case OP_LONG_BINGET: return get(p, x);
    case OP_BINPUT:
    case OP_LONG_BINPUT: return put(p, x);
    case OP_MEMOIZE: return put(p, p->n_memo);
    default: break;
    }
    *done = true;
    switch (op) {
    case OP_APPEND: return step_of(p, EBB_PICKLE_APPEND, 1, step);
    case OP_SETITEM: return step_of(p, EBB_PICKLE_SET, 2, step);
    case OP_APPENDS: return step_of_marked(p, EBB_PICKLE_APPEND, step);
    case OP_SETITEMS: return step_of_marked(p, EBB_PICKLE_SET, step);
    case OP_LIST: return step_of_new(p, EBB_PICKLE_APPEND, step);
    case OP_DICT: return step_of_new(p, EBB_PICKLE_SET, step);
    case OP_STOP: return step_of_end(p, step);
    default: return refuse(p, op);
    }
}

ebb_status ebb__pickle_next(ebb_pickle *p, ebb_pickle_step *step_out) {
    EBB_ASSERT(p->taken <= p->stack.n);
    p->stack.n = p->taken;
    if (ebb__pickle_kind(p->pushed) != EBB_PICKLE_ABSENT) {
        EBB_TRY(push(p, p->pushed));
        p->pushed = (ebb_pickle_value){0};
    }
    for (bool done = false; !done;) {
        if ((size_t)(p->end - p->at) < MAX_ARGUMENT_BYTES) { EBB_TRY(fill(p, MAX_ARGUMENT_BYTES)); }
        if (p->at == p->end) { return cut_off(p); }
        const uint8_t op = *p->at++;
        const unsigned n_bytes = argument_bytes[op];
        if ((size_t)(p->end - p->at) < n_bytes) { return cut_off(p); }
        const uint64_t x = little_endian(p->at, n_bytes);
        p->at += n_bytes;
        EBB_TRY(run(p, op, x, step_out, &done));
    }
    return EBB_OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

static ebb_status begin(ebb_pickle *p, const char *const *keys, size_t n_keys) {
    for (size_t i = 0; i < n_keys; i++) {
        uint32_t number = 0;
        bool is_new = false;
        EBB_TRY(ebb__trace_keys_add(&p->strings, keys[i], strlen(keys[i]), &number, &is_new));
        EBB_ASSERT(is_new && number == i + 1);
    }
    EBB_TRY(fill(p, 2));
    if (p->end - p->at < 2 || p->at[0] != OP_PROTO) {
        return ebb_fail(EBB_E_FORMAT, "%s: no pickle of protocol 2 to 5", p->name);
    }
    return EBB_OK;
}

ebb_status ebb__pickle_open(const ebb_mem *mem, const char *name, ebb_pickle_read_fn read, void *ctx,
                            const char *const *keys, size_t n_keys, ebb_pickle **pickle_out) {
    mem = ebb__mem_or_default(mem);
    ebb_pickle *p = ebb__calloc(mem, 1, sizeof *p);
    if (p == NULL) { return EBB_E_NO_MEMORY; }
    p->mem = mem;
    p->name = name;
    p->read = read;
    p->read_ctx = ctx;
    ebb__trace_keys_init(&p->strings, mem);
    const ebb_status st = begin(p, keys, n_keys);
    if (st != EBB_OK) {
        ebb__pickle_close(p);
        return st;
    }
    *pickle_out = p;
    return EBB_OK;
}

void ebb__pickle_close(ebb_pickle *p) {
    if (p == NULL) { return; }
    EBB_VEC_FINI(p->mem, &p->wide);
    EBB_VEC_FINI(p->mem, &p->stack);
    EBB_VEC_FINI(p->mem, &p->marks);
    EBB_VEC_FINI(p->mem, &p->memo);
    EBB_VEC_FINI(p->mem, &p->objects);
    ebb__trace_keys_fini(&p->strings);
    EBB_VEC_FINI(p->mem, &p->buf);
    ebb__free(p->mem, p);
}

/* ---- what values say -------------------------------------------------------------------------- */

ebb_pickle_value ebb__pickle_resolve(const ebb_pickle *p, ebb_pickle_value value) {
    const ebb_pickle_kind kind = ebb__pickle_kind(value);
    if (kind != EBB_PICKLE_LIST && kind != EBB_PICKLE_DICT) { return value; }
    const ebb_pickle_value became = p->objects.data[ebb__pickle_payload(value)];
    return ebb__pickle_kind(became) == EBB_PICKLE_ABSENT ? value : became;
}

void ebb__pickle_become(ebb_pickle *p, ebb_pickle_value target, ebb_pickle_value mine) {
    EBB_ASSERT(ebb__pickle_kind(target) == EBB_PICKLE_LIST || ebb__pickle_kind(target) == EBB_PICKLE_DICT);
    p->objects.data[ebb__pickle_payload(target)] = mine;
}

static int64_t small_int(ebb_pickle_value value) {
    return (int64_t)value.bits >> 4; /* the sign comes down with it */
}

bool ebb__pickle_u64(const ebb_pickle *p, ebb_pickle_value value, uint64_t *x_out) {
    switch (ebb__pickle_kind(value)) {
    case EBB_PICKLE_INT:
        if (small_int(value) < 0) { return false; }
        *x_out = (uint64_t)small_int(value);
        return true;
    case EBB_PICKLE_WIDE_INT: *x_out = p->wide.data[ebb__pickle_payload(value)]; return true;
    default: return false;
    }
}

const char *ebb__pickle_text(const ebb_pickle *p, uint64_t string, size_t *n_bytes_out) {
    EBB_ASSERT(string > 0 && string <= p->strings.keys.n);
    *n_bytes_out = p->strings.keys.data[string - 1].n_bytes;
    return p->strings.keys.data[string - 1].data;
}

uint32_t ebb__pickle_n_strings(const ebb_pickle *p) {
    return (uint32_t)p->strings.keys.n;
}

void ebb__pickle_show(const ebb_pickle *p, ebb_pickle_value value, char *buf, size_t cap, size_t *n_bytes) {
    EBB_ASSERT(*n_bytes < cap);
    char *at = buf + *n_bytes;
    const size_t room = cap - *n_bytes;
    const uint64_t payload = ebb__pickle_payload(value);
    size_t n_text = 0;
    const char *text = NULL;
    double x = 0;
    int n = 0;
    switch (ebb__pickle_kind(value)) {
    case EBB_PICKLE_BOOL: n = snprintf(at, room, "%s", payload != 0 ? "true" : "false"); break;
    case EBB_PICKLE_INT: n = snprintf(at, room, "%lld", (long long)small_int(value)); break;
    case EBB_PICKLE_WIDE_INT: n = snprintf(at, room, "%llu", (unsigned long long)p->wide.data[payload]); break;
    case EBB_PICKLE_FLOAT:
        memcpy(&x, &p->wide.data[payload], sizeof x);
        n = snprintf(at, room, "%.9g", x);
        break;
    case EBB_PICKLE_STRING:
        text = ebb__pickle_text(p, payload, &n_text);
        n = snprintf(at, room, "%.*s", (int)ebb_min_u64(n_text, cap), text);
        break;
    case EBB_PICKLE_PAIR:
        n = snprintf(at, room, "%llu,%llu", (unsigned long long)(payload >> 30),
                     (unsigned long long)(payload & (((uint64_t)1 << 30) - 1)));
        break;
    default: break;
    }
    *n_bytes += n < 0 ? 0 : (size_t)ebb_min_u64((uint64_t)n, room - 1);
}
