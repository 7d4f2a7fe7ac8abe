/* SPDX-License-Identifier: Apache-2.0
 *
 * What every module may use: failing with a message, checked arithmetic, memory through the hooks,
 * growable arrays, a bump for what dies together, hashing, counter-based random numbers. No word of
 * the domain but the names of roles.
 */
#ifndef EBB_SRC_BASE_H
#define EBB_SRC_BASE_H

#include "ebb/base.h"
#include "ebb/role.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- failing ---------------------------------------------------------------------------------- */

/* Store the message for ebb_last_error and return code. Called by the function that first detects a failure;
 * callers forward the code and stay silent. */
ebb_status ebb_fail(ebb_status code, const char *fmt, ...) EBB_PRINTF(2, 3);

/* Put text from another thread (it carried status and message back) in as this thread's message. */
ebb_status ebb__fail_adopt(ebb_status code, const char *message);

/* The edge of the library: a public function begins with one line for each pointer that it needs, and returns
 * EBB_E_ARGUMENT if that is NULL. An array may be NULL where it has no elements. */
#define EBB_NEED(argument)                                                                                             \
    do {                                                                                                               \
        if ((argument) == NULL) { return ebb_fail(EBB_E_ARGUMENT, "%s: %s is NULL", __func__, #argument); }            \
    } while (0)
#define EBB_NEED_ARRAY(argument, n)                                                                                    \
    do {                                                                                                               \
        if ((n) > 0) { EBB_NEED(argument); }                                                                           \
    } while (0)

/* For messages about a name that is not known: what ebb_suggest says, or if no name is near "; there are: ..." with
 * all. Returns buf. */
#define EBB_SUGGESTION_BYTES 1024
char *ebb__suggest_or_list(const char *word, ebb_name_at *name_at, const void *ctx, char buf[EBB_SUGGESTION_BYTES]);
/* For names in an array that ends with NULL, which is the ctx. */
const char *ebb__name_in_list(const void *names, size_t i);
/* How many bytes to insert, drop or change to turn word a (n_a bytes) into word b (n_b bytes); SIZE_MAX if either has
 * more than 48. */
size_t ebb__edit_distance(const char *a, size_t n_a, const char *b, size_t n_b);

void ebb__log(ebb_log_level level, const char *fmt, ...) EBB_PRINTF(2, 3);

/* progress may be NULL. */
static inline void ebb__tell(const ebb_progress *progress, const char *what, uint64_t n_done, uint64_t n) {
    if (progress != NULL && progress->tell != NULL) { progress->tell(progress->ctx, what, n_done, n); }
}

/* Our own invariants, never input: checked in builds with EBB_DEBUG at 1 or more (tests, CI), gone in a
 * release build. EBB_DEBUG at 2 also runs the deep ..._is_valid() walks. */
#ifndef EBB_DEBUG
#define EBB_DEBUG 0
#endif
#if EBB_DEBUG >= 1
#define EBB_ASSERT(cond) ((cond) ? (void)0 : ebb__assert_failed(#cond, __FILE__, __LINE__))
#else
#define EBB_ASSERT(cond) ((void)(false && (cond))) /* never evaluated, but what it names counts as used */
#endif
_Noreturn void ebb__assert_failed(const char *cond, const char *file, int line);

#define EBB_TRY(expr)                                                                                                  \
    do {                                                                                                               \
        ebb_status ebb_try_status_ = (expr);                                                                           \
        if (ebb_try_status_ != EBB_OK) { return ebb_try_status_; }                                                     \
    } while (0)

/* ---- arithmetic ------------------------------------------------------------------------------- */

/* false: it would overflow, and *out is untouched. */
static inline bool ebb_add_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (a > UINT64_MAX - b) { return false; }
    *out = a + b;
    return true;
}

static inline bool ebb_mul_u64(uint64_t a, uint64_t b, uint64_t *out) {
    if (b != 0 && a > UINT64_MAX / b) { return false; }
    *out = a * b;
    return true;
}

/* align is a power of two; the caller knows that x + align does not overflow. */
static inline uint64_t ebb_align_up(uint64_t x, uint64_t align) {
    return (x + align - 1) & ~(align - 1);
}

static inline uint64_t ebb_min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline uint64_t ebb_max_u64(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* ---- memory ----------------------------------------------------------------------------------- */

/* The hooks to use: mem itself, or malloc's when NULL. */
const ebb_mem *ebb__mem_or_default(const ebb_mem *mem);

/* NULL if none exists; n * elem_bytes is checked. calloc's memory is zeroed. */
void *ebb__alloc(const ebb_mem *mem, size_t n, size_t elem_bytes);
void *ebb__calloc(const ebb_mem *mem, size_t n, size_t elem_bytes);
void ebb__free(const ebb_mem *mem, void *ptr);
char *ebb__strdup(const ebb_mem *mem, const char *text);

/* Make room for n_more elements after n in an array that doubles. */
ebb_status ebb__grow(const ebb_mem *mem, void **data, size_t *cap, size_t n, size_t n_more, size_t elem_bytes);

/* A growable array: EBB_VEC(int) v = {0}; EBB_PUSH(mem, &v, 3) yields a status. */
#define EBB_VEC(type)                                                                                                  \
    struct {                                                                                                           \
        type *data;                                                                                                    \
        size_t n, cap;                                                                                                 \
    }
#define EBB_RESERVE(mem, v, n_more)                                                                                    \
    ((n_more) <= (v)->cap - (v)->n                                                                                     \
         ? EBB_OK                                                                                                      \
         : ebb__grow((mem), (void **)&(v)->data, &(v)->cap, (v)->n, (n_more), sizeof *(v)->data))
#define EBB_PUSH(mem, v, value)                                                                                        \
    (EBB_RESERVE((mem), (v), 1) == EBB_OK ? ((v)->data[(v)->n++] = (value), EBB_OK) : EBB_E_NO_MEMORY)
#define EBB_VEC_FINI(mem, v)                                                                                           \
    do {                                                                                                               \
        ebb__free((mem), (v)->data);                                                                                   \
        (v)->data = NULL;                                                                                              \
        (v)->n = (v)->cap = 0;                                                                                         \
    } while (0)

/* Temporary host memory that dies together. Zero-initialise, set mem; fini frees all. */
typedef struct ebb_bump_chunk ebb_bump_chunk;
typedef struct ebb_bump {
    const ebb_mem *mem;
    ebb_bump_chunk *head;
} ebb_bump;

void ebb__bump_init(ebb_bump *bump, const ebb_mem *mem);
void ebb__bump_fini(ebb_bump *bump);
/* 16-byte aligned, not zeroed; NULL if none exists (the message is stored). */
void *ebb__bump_alloc(ebb_bump *bump, size_t n, size_t elem_bytes);
char *ebb__bump_strdup(ebb_bump *bump, const char *text);
ebb_status ebb__bump_own(ebb_bump *bump, const char **text); /* *text becomes a copy; NULL stays */
char *ebb__bump_printf(ebb_bump *bump, const char *fmt, ...) EBB_PRINTF(2, 3);

/* ---- sorting ---------------------------------------------------------------------------------- */

/* The first of n places that is not before what the context asks for, or n; those before come first. */
size_t ebb__first_not_before(size_t n, bool (*is_before)(const void *ctx, size_t place), const void *ctx);

/* The last of x[n], which never fall, that is at most this; 0 if none is. */
size_t ebb__last_at_most(const double *x, size_t n, double most);

/* Reorder idx[n] so that key[idx[0]] <= key[idx[1]] <= ...; equal keys keep their order. Linear in n. */
ebb_status ebb__sort_by_key(const ebb_mem *mem, uint32_t *idx, size_t n, const uint64_t *key);

/* Reorder n items, below 2^32, so that their keys never fall; ~x for a key has the greatest x first. Equal keys keep
 * their order. Linear in n. */
ebb_status ebb__sort_items(const ebb_mem *mem, void *items, size_t n, size_t item_bytes,
                           uint64_t (*key_of)(const void *item));

/* ---- text ------------------------------------------------------------------------------------- */

/* Bytes of the character of UTF-8 with which text begins, of which n_bytes are there; 0: it begins with none. */
size_t ebb__utf8_character(const void *text, size_t n_bytes);

/* A whole decimal number below 2^64, with blanks around it or not; false: it is not one. */
bool ebb__parse_u64(const char *text, uint64_t *number_out);

/* The number with which the text begins, as strtod reads it in the C locale: the program around us may have set another
 * one, with another point. No blanks, NaN, infinity or hexadecimal. *end_out: what follows; the text itself where no
 * number of less than 128 characters begins. */
double ebb__parse_f64(const char *text, const char **end_out);
/* Undo what the locale did to the point of the number in this text, which was printed with one. Returns text. */
char *ebb__set_point(char *text);
#define EBB_F64_BYTES 40
/* Like "%.*g" in the C locale. Returns buf. */
char *ebb__format_f64(double value, int n_digits, char buf[EBB_F64_BYTES]);

/* The character with which the text begins, and how many bytes it has; EBB_UTF8_NONE and one byte: it is not UTF-8. */
#define EBB_UTF8_NONE UINT32_MAX
uint32_t ebb__utf8_read(const char *text, size_t *n_bytes_out);

/* What a terminal would obey, or what would turn the direction of what follows. */
bool ebb__utf8_is_control(uint32_t code);

/* How many of n_bytes are whole characters, none of them NUL, before the first that are not. */
size_t ebb__utf8_sound_bytes(const void *text, size_t n_bytes);

/* Make a line of text: what ends a line becomes a blank, what is no character or would be obeyed by a terminal '?'. */
void ebb__utf8_make_line(char *text);

/* The role of this name (n_bytes long, no NUL needed). */
bool ebb__role_find(const char *name, size_t n_bytes, ebb_role *role_out);

/* ---- hashing and random numbers --------------------------------------------------------------- */

#define EBB_HASH_INIT 0xcbf29ce484222325u
/* 64-bit hash of bytes, chained through h; not for adversaries. */
uint64_t ebb__hash(uint64_t h, const void *data, size_t n_bytes);

/* Counter-based random numbers (Philox 4x32-10; Salmon et al., 'Parallel random numbers: as easy as
 * 1, 2, 3', SC 2011): the same (seed, stream, counter) gives the same four words anywhere, in any
 * order, which is what lets a step be run again. */
void ebb__philox(uint64_t seed, uint64_t stream, uint64_t counter, uint32_t words_out[4]);

/* Uniform in [0, 1) with 24 bits. */
static inline float ebb__unit_float(uint32_t word) {
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

/* A sequence over ebb__philox, for what is drawn in order. */
typedef struct ebb_rng {
    uint64_t seed, stream, counter;
    uint32_t words[4];
    unsigned n_left;
} ebb_rng;

void ebb__rng_init(ebb_rng *rng, uint64_t seed, uint64_t stream);
uint32_t ebb__rng_u32(ebb_rng *rng);
/* Uniform in [0, n), n > 0, without bias. */
uint64_t ebb__rng_below(ebb_rng *rng, uint64_t n);
float ebb__rng_unit(ebb_rng *rng);
/* Standard normal (Box-Muller). */
float ebb__rng_normal(ebb_rng *rng);

/* ---- time ------------------------------------------------------------------------------------- */

/* Monotonic clock. */
uint64_t ebb__now_ns(void);

#endif
