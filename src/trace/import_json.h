/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON for importers: an array's elements one at a time, so that memory is for one of them and not for the file.
 *
 * What is read is `{"nodes": [element, ...], "other": value, ...}`, or just the array. Each element, and each other
 * member that the handler wants, is given whole: as tokens in the order of the text. An array or object is followed by
 * what lies in it; in an object each value comes behind the token of its key.
 */
#ifndef EBB_SRC_IMPORT_JSON_H
#define EBB_SRC_IMPORT_JSON_H

#include "trace/import_priv.h"

typedef enum ebb_import_json_kind {
    EBB_IMPORT_JSON_NULL,
    EBB_IMPORT_JSON_BOOL,   /* its text is "true" or "false" */
    EBB_IMPORT_JSON_NUMBER, /* as it is written */
    EBB_IMPORT_JSON_STRING,
    EBB_IMPORT_JSON_KEY,
    EBB_IMPORT_JSON_ARRAY,
    EBB_IMPORT_JSON_OBJECT,
} ebb_import_json_kind;

typedef struct ebb_import_json_token {
    ebb_import_json_kind kind;
    uint32_t text; /* where in texts; with a NUL behind it */
    uint32_t next; /* the token behind all that lies in this one */
} ebb_import_json_token;

/* Token 0 is the whole value. */
typedef struct ebb_import_json {
    const ebb_import_json_token *tokens;
    const char *texts;
    const struct ebb_import_json_reader *reader; /* for messages */
} ebb_import_json;

typedef struct ebb_import_json_handler {
    const char *array; /* the member whose elements are wanted */
    bool takes_list;   /* the file may be just the array */
    ebb_status (*element)(void *ctx, const ebb_import_json *json);
    bool (*wants)(void *ctx, const char *key);
    ebb_status (*member)(void *ctx, const char *key, const ebb_import_json *json);
    void *ctx;
} ebb_import_json_handler;

/* Read all of the importer's file. One that ends too early gives what it has, and sets importer->cut. EBB_E_FORMAT
 * names line and cause; EBB_E_LIMIT: a value of more than 64 MiB. */
ebb_status ebb__import_json_read(ebb_importer *importer, const ebb_import_json_handler *handler);

/* EBB_E_FORMAT with file and line before the text. */
ebb_status ebb__import_json_fail(const ebb_import_json *json, const char *fmt, ...) EBB_PRINTF(2, 3);

/* ---- looking into a value --------------------------------------------------------------------- */

#define EBB_IMPORT_JSON_NONE UINT32_MAX

/* The value of this key (of its last, as Python has it) in the object at token; EBB_IMPORT_JSON_NONE: there is none, or
 * it is no object. */
uint32_t ebb__import_json_member(const ebb_import_json *json, uint32_t token, const char *key);

static inline const char *ebb__import_json_text(const ebb_import_json *json, uint32_t token) {
    return json->texts + json->tokens[token].text;
}

static inline bool ebb__import_json_is(const ebb_import_json *json, uint32_t token, ebb_import_json_kind kind) {
    return token != EBB_IMPORT_JSON_NONE && json->tokens[token].kind == kind;
}

/* The text of the member key that is a string; NULL: there is none. */
const char *ebb__import_json_string(const ebb_import_json *json, uint32_t token, const char *key);

/* A number that is whole and fits; false: it is not. */
bool ebb__import_json_u64(const ebb_import_json *json, uint32_t token, uint64_t *number_out);
bool ebb__import_json_i64(const ebb_import_json *json, uint32_t token, int64_t *number_out);

/* A number of thousands, of which three decimals count: 12.3456 is 12345. false: it is negative, or does not fit. */
bool ebb__import_json_thousandths(const ebb_import_json *json, uint32_t token, uint64_t *number_out);

#endif
