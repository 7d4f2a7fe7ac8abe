/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON, member by member. ebb's output and reports are written with this. It writes brackets, commas, escapes
 * and numbers; the bytes go to a callback, piece by piece, and nothing is kept.
 *
 *     ebb_json json = {.put = put_to_file, .ctx = file};
 *     ebb_json_open(&json, NULL, '{');
 *     ebb_json_u64(&json, "steps", 3);
 *     ebb_json_open(&json, "losses", '[');
 *     ebb_json_f64(&json, NULL, 0.5, EBB_JSON_F32_DIGITS);
 *     ebb_json_close(&json, ']');
 *     ebb_json_close(&json, '}');
 *
 * The key is NULL in an array and for the outermost value. Text may have any bytes: those that are not UTF-8 become
 * U+FFFD. Threads: one at a time per ebb_json.
 */
#ifndef EBB_JSON_H
#define EBB_JSON_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { EBB_JSON_MAX_DEPTH = 32 }; /* of objects and arrays in each other */

/* With this many digits, a number reads back as the same bits. */
enum { EBB_JSON_F32_DIGITS = 9, EBB_JSON_F64_DIGITS = 17 };

typedef struct ebb_json {
    void (*put)(void *ctx, const char *text, size_t n_bytes);
    void *ctx;
    bool is_for_page;                    /* no text ends or begins a script of HTML, and arrays are without spaces */
    uint32_t line_depth;                 /* down to this depth each member begins a line; 0: all is one line */
    uint32_t depth;                      /* from here on zero when it begins */
    bool has_member[EBB_JSON_MAX_DEPTH]; /* of the open objects and arrays */
} ebb_json;

EBB_API void ebb_json_open(ebb_json *json, const char *key, char bracket); /* '{' or '[' */
EBB_API void ebb_json_close(ebb_json *json, char bracket);                 /* '}' or ']' */
EBB_API void ebb_json_u64(ebb_json *json, const char *key, uint64_t value);
/* Writes at most n_digits, and at most 15 if that gives the same number. Infinity and NaN, which JSON does not have,
 * become null. The locale does not matter. */
EBB_API void ebb_json_f64(ebb_json *json, const char *key, double value, int n_digits);
EBB_API void ebb_json_text(ebb_json *json, const char *key, const char *value); /* NULL: null */
EBB_API void ebb_json_bool(ebb_json *json, const char *key, bool value);
EBB_API void ebb_json_null(ebb_json *json, const char *key);

#ifdef __cplusplus
}
#endif

#endif
