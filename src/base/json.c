/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, member by member: see ebb/json.h.
 */
#include "ebb/json.h"

#include "base/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static void put(ebb_json *json, const char *text) {
    json->put(json->ctx, text, strlen(text));
}

static void put_text(ebb_json *json, const char *text) {
    put(json, "\"");
    const char *plain = text; /* what is not written yet, up to c, goes as it is */
    size_t n_bytes = 0;
    for (const char *c = text; *c != '\0'; c += n_bytes) {
        const uint32_t code = ebb__utf8_read(c, &n_bytes);
        const bool is_kept =
            json->is_for_page ? !ebb__utf8_is_control(code) && strchr("<>&'", *c) == NULL : code >= 0x20;
        if (code != EBB_UTF8_NONE && code != '"' && code != '\\' && is_kept) { continue; }
        char escape[8];
        const char *format = code == EBB_UTF8_NONE ? "\\ufffd" : code == '"' || code == '\\' ? "\\%c" : "\\u%04x";
        (void)snprintf(escape, sizeof escape, format, (unsigned)code);
        json->put(json->ctx, plain, (size_t)(c - plain));
        put(json, escape);
        plain = c + n_bytes;
    }
    put(json, plain);
    put(json, "\"");
}

static void put_line(ebb_json *json) {
    put(json, "\n");
    for (uint32_t d = 0; d < json->depth; d++) { put(json, "  "); }
}

static void put_key(ebb_json *json, const char *key) {
    if (json->depth > 0) {
        bool *has_member = &json->has_member[json->depth - 1];
        const bool is_line = json->depth <= json->line_depth;
        if (*has_member) { put(json, is_line || (key == NULL && json->is_for_page) ? "," : ", "); }
        if (is_line) { put_line(json); }
        *has_member = true;
    }
    if (key == NULL) { return; }
    put_text(json, key);
    put(json, ": ");
}

void ebb_json_open(ebb_json *json, const char *key, char bracket) {
    EBB_ASSERT(bracket == '{' || bracket == '[');
    EBB_ASSERT(json->depth < EBB_JSON_MAX_DEPTH);
    put_key(json, key);
    json->put(json->ctx, &bracket, 1);
    json->has_member[json->depth++] = false;
}

void ebb_json_close(ebb_json *json, char bracket) {
    EBB_ASSERT(bracket == '}' || bracket == ']');
    EBB_ASSERT(json->depth > 0);
    json->depth--;
    if (json->depth < json->line_depth && json->has_member[json->depth]) { put_line(json); }
    json->put(json->ctx, &bracket, 1);
}

void ebb_json_u64(ebb_json *json, const char *key, uint64_t value) {
    char text[24];
    put_key(json, key);
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    put(json, text);
}

void ebb_json_f64(ebb_json *json, const char *key, double value, int n_digits) {
    if (!isfinite(value)) {
        ebb_json_null(json, key);
        return;
    }
    char text[EBB_F64_BYTES];
    const char *end = NULL;
    put_key(json, key);
    (void)ebb__format_f64(value, n_digits < 15 ? n_digits : 15, text);
    if (n_digits > 15 && ebb__parse_f64(text, &end) != value) { (void)ebb__format_f64(value, n_digits, text); }
    put(json, text);
}

void ebb_json_text(ebb_json *json, const char *key, const char *value) {
    if (value == NULL) {
        ebb_json_null(json, key);
        return;
    }
    put_key(json, key);
    put_text(json, value);
}

void ebb_json_bool(ebb_json *json, const char *key, bool value) {
    put_key(json, key);
    put(json, value ? "true" : "false");
}

void ebb_json_null(ebb_json *json, const char *key) {
    put_key(json, key);
    put(json, "null");
}
