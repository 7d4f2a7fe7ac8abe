/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine of pickle.h: its stack, its memo, and one step after the other.
 */
#include "trace/pickle_priv.h"

#define MAX_ARGUMENT_BYTES ((size_t)16) /* an opcode and its fixed argument */
#define MAX_STACK ((size_t)1 << 26)
#define MAX_MARKS ((size_t)1 << 20)
#define MAX_MEMO ((size_t)1 << 28)
#define MAX_OBJECTS ((size_t)1 << 28)
#define SMALL_INT_BITS 60

static ebb_status too_many(const ebb_pickle *p, const char *what) {
    return ebb_fail(EBB_E_LIMIT, "%s: offset %llu: more %s than a snapshot has", p->name,
                    (unsigned long long)ebb__pickle_offset(p), what);
}

/* ---- values ----------------------------------------------------------------------------------- */

static ebb_pickle_value make(ebb_pickle_kind kind, uint64_t payload) {
    EBB_ASSERT(kind == EBB_PICKLE_INT || payload >> SMALL_INT_BITS == 0);
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
        EBB_TRY(ebb__pickle_skip(p, n_bytes));
        return push(p, make(EBB_PICKLE_OTHER, 0));
    }
    const uint8_t *bytes = NULL;
    EBB_TRY(ebb__pickle_take(p, (size_t)n_bytes, &bytes));
    if (n_bytes == 9) {
        return bytes[8] == 0 ? push_int(p, ebb__pickle_little_endian(bytes, 8), false)
                             : push(p, make(EBB_PICKLE_OTHER, 0));
    }
    const bool negative = n_bytes > 0 && bytes[n_bytes - 1] >= 0x80;
    uint64_t x = ebb__pickle_little_endian(bytes, (unsigned)n_bytes);
    if (negative && n_bytes < 8) { x |= UINT64_MAX << (8 * n_bytes); }
    return push_int(p, x, negative);
}

static ebb_status push_text(ebb_pickle *p, uint64_t n_bytes) {
    if (n_bytes > TRACE_MAX_STRING_BYTES) {
        EBB_TRY(ebb__pickle_skip(p, n_bytes));
        return push(p, make(EBB_PICKLE_OTHER, 0));
    }
    const uint8_t *bytes = NULL;
    uint32_t number = 0;
    bool is_new = false;
    EBB_TRY(ebb__pickle_take(p, (size_t)n_bytes, &bytes));
    EBB_TRY(ebb__trace_keys_add(&p->strings, bytes, (size_t)n_bytes, &number, &is_new));
    return push(p, make(EBB_PICKLE_STRING, number));
}

static ebb_status push_bytes(ebb_pickle *p, uint64_t n_bytes) {
    EBB_TRY(ebb__pickle_skip(p, n_bytes));
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
    EBB_ASSERT(floor <= p->stack.n);
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
    if (idx > ebb__pickle_offset(p)) { return ebb__pickle_malformed(p, "a memo entry far beyond the others"); }
    if (idx >= MAX_MEMO) { return too_many(p, "memo entries"); }
    if (idx >= p->memo.n) {
        EBB_TRY(EBB_RESERVE(p->mem, &p->memo, (size_t)idx + 1 - p->memo.n));
        memset(p->memo.data + p->memo.n, 0, ((size_t)idx + 1 - p->memo.n) * sizeof *p->memo.data);
        p->memo.n = (size_t)idx + 1;
    }
    ebb_pickle_value *entry = &p->memo.data[idx];
    p->n_memo += ebb__pickle_kind(*entry) == EBB_PICKLE_ABSENT;
    EBB_ASSERT(p->n_memo <= p->memo.n);
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
    return ebb__pickle_kind(value) == EBB_PICKLE_INT && ebb__pickle_payload(value) >> PICKLE_PAIR_BITS == 0;
}

/* The tuple of what lies on the stack from first on. */
static ebb_status make_tuple(ebb_pickle *p, size_t first) {
    ebb_pickle_value tuple = make(EBB_PICKLE_OTHER, 0);
    EBB_ASSERT(first <= p->stack.n);
    if (p->stack.n - first == 2) {
        const ebb_pickle_value *items = p->stack.data + first;
        if (small_number(items[0]) && small_number(items[1])) {
            tuple = make(EBB_PICKLE_PAIR,
                         ebb__pickle_payload(items[0]) << PICKLE_PAIR_BITS | ebb__pickle_payload(items[1]));
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
    EBB_ASSERT(first <= p->stack.n);
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

/* What lies after the last mark goes into what lies below the mark. */
static ebb_status step_of_marked(ebb_pickle *p, ebb_pickle_step_kind kind, ebb_pickle_step *step) {
    size_t mark = 0;
    EBB_TRY(take_mark(p, &mark));
    const size_t floor = p->marks.n > 0 ? p->marks.data[p->marks.n - 1] : 0;
    if (mark == floor) { return ebb__pickle_malformed(p, "values are missing on the stack"); }
    return show(p, kind, p->stack.data[mark - 1], mark, step);
}

/* What lies after the last mark goes into a new one. */
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

/* Run one opcode with its fixed argument x; at is after that. *done: there is a step.
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
    default: return ebb__pickle_refuse(p, op);
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
        if ((size_t)(p->end - p->at) < MAX_ARGUMENT_BYTES) { EBB_TRY(ebb__pickle_fill(p, MAX_ARGUMENT_BYTES)); }
        if (p->at == p->end) { return ebb__pickle_cut_off(p); }
        const uint8_t op = *p->at++;
        const unsigned n_bytes = ebb__pickle_argument_bytes[op];
        EBB_ASSERT(n_bytes < MAX_ARGUMENT_BYTES);
        if ((size_t)(p->end - p->at) < n_bytes) { return ebb__pickle_cut_off(p); }
        const uint64_t x = ebb__pickle_little_endian(p->at, n_bytes);
        p->at += n_bytes;
        EBB_TRY(run(p, op, x, step_out, &done));
    }
    return EBB_OK;
}

/* ---- open and close --------------------------------------------------------------------------- */

static ebb_status begin(ebb_pickle *p, const ebb_pickle_source *source) {
    for (size_t i = 0; i < source->n_keys; i++) {
        uint32_t number = 0;
        bool is_new = false;
        EBB_TRY(ebb__trace_keys_add(&p->strings, source->keys[i], strlen(source->keys[i]), &number, &is_new));
        EBB_ASSERT(is_new && number == i + 1);
    }
    EBB_TRY(ebb__pickle_fill(p, 2));
    if (p->end - p->at < 2 || p->at[0] != OP_PROTO) {
        return ebb_fail(EBB_E_FORMAT, "%s: no pickle of protocol 2 to 5", p->name);
    }
    return EBB_OK;
}

ebb_status ebb__pickle_open(const ebb_mem *mem, const ebb_pickle_source *source, ebb_pickle **pickle_out) {
    mem = ebb__mem_or_default(mem);
    ebb_pickle *p = ebb__calloc(mem, 1, sizeof *p);
    if (p == NULL) { return EBB_E_NO_MEMORY; }
    p->mem = mem;
    p->name = source->name;
    p->read = source->read;
    p->read_ctx = source->ctx;
    ebb__trace_keys_init(&p->strings, mem);
    const ebb_status st = begin(p, source);
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
