/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading JSON, of any size: the elements of one array, or the members of the outermost object, one at a time, so that
 * memory is for one of them and not for the file.
 *
 * The input is `{"nodes": [element, ...], "other": value, ...}`, or just the array. Each element, and each other
 * member that the handler wants, is given whole: as tokens in the order of the text. An array or object is followed by
 * what lies in it; in an object each value comes after the token of its key.
 */
#ifndef EBB_SRC_JSON_READ_H
#define EBB_SRC_JSON_READ_H

#include "base/base.h"

typedef enum ebb_json_kind {
    EBB_JSON_NULL,
    EBB_JSON_BOOL,   /* its text is "true" or "false" */
    EBB_JSON_NUMBER, /* as it is written */
    EBB_JSON_STRING,
    EBB_JSON_KEY,
    EBB_JSON_ARRAY,
    EBB_JSON_OBJECT,
} ebb_json_kind;

typedef struct ebb_json_token {
    ebb_json_kind kind;
    uint32_t text; /* where in texts; with a NUL after it */
    uint32_t next; /* the token after all that lies in this one */
} ebb_json_token;

/* Token 0 is the whole value. */
typedef struct ebb_json_value {
    const ebb_json_token *tokens;
    const char *texts;
    const struct ebb_json_reader *reader; /* for messages */
} ebb_json_value;

/* Where the text comes from. */
typedef struct ebb_json_source {
    const ebb_mem *mem;
    const char *path; /* for messages */
    /* At most n bytes; *n_out is 0 at the end only. */
    ebb_status (*read)(void *ctx, void *buf, size_t n, size_t *n_out);
    void *ctx;
    const char *part;    /* what of the file the text is, such as "the header"; NULL: all, and messages name lines */
    uint64_t first_byte; /* of the part */
    bool is_strict;      /* text that is not UTF-8, has a NUL in it, or is cut off is refused */
    bool is_cut;         /* said when reading: the text ends too early */
} ebb_json_source;

typedef struct ebb_json_handler {
    const char *array; /* the member whose elements are wanted; NULL: none is */
    bool takes_list;   /* the file may be just the array */
    ebb_status (*element)(void *ctx, const ebb_json_value *json);
    bool (*wants)(void *ctx, const char *key);
    ebb_status (*member)(void *ctx, const char *key, const ebb_json_value *json);
    void *ctx;
} ebb_json_handler;

/* Read all of the source. One that ends too early gives what it has, and sets is_cut. EBB_E_FORMAT names line and
 * cause; EBB_E_LIMIT: a value of more than 64 MiB. */
ebb_status ebb__json_read(ebb_json_source *source, const ebb_json_handler *handler);

/* EBB_E_FORMAT with file and line before the text. */
ebb_status ebb__json_value_fail(const ebb_json_value *json, const char *fmt, ...) EBB_PRINTF(2, 3);

/* ---- looking into a value --------------------------------------------------------------------- */

#define EBB_JSON_NONE UINT32_MAX

/* The value of this key (of its last, as Python has it) in the object at token; EBB_JSON_NONE: none, or
 * it is no object. */
uint32_t ebb__json_value_member(const ebb_json_value *json, uint32_t token, const char *key);

static inline const char *ebb__json_value_text(const ebb_json_value *json, uint32_t token) {
    return json->texts + json->tokens[token].text;
}

static inline bool ebb__json_value_is(const ebb_json_value *json, uint32_t token, ebb_json_kind kind) {
    return token != EBB_JSON_NONE && json->tokens[token].kind == kind;
}

/* The text of the member key that is a string; NULL: none. */
const char *ebb__json_value_string(const ebb_json_value *json, uint32_t token, const char *key);

/* A number that is whole and fits; false: it is not. */
bool ebb__json_value_u64(const ebb_json_value *json, uint32_t token, uint64_t *number_out);
bool ebb__json_value_i64(const ebb_json_value *json, uint32_t token, int64_t *number_out);

/* A number, whatever the locale; false: it has more than 127 characters. Infinite if it is too large for a double. */
bool ebb__json_value_f64(const ebb_json_value *json, uint32_t token, double *number_out);

/* A number of thousands, of which three decimals count: 12.3456 is 12345. false: it is negative, or does not fit. */
bool ebb__json_value_thousandths(const ebb_json_value *json, uint32_t token, uint64_t *number_out);

#endif
