/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, member by member: commas and brackets are seen to here.
 */
#include "report/report_priv.h"

#include <inttypes.h>

static void put_key(ebb_report_json *json, const char *key) {
    if (json->depth > 0 && json->has_member[json->depth - 1]) { ebb__report_put(json->out, key != NULL ? ", " : ","); }
    if (json->depth > 0) { json->has_member[json->depth - 1] = true; }
    if (key == NULL) { return; }
    ebb__report_put(json->out, "\"");
    ebb__report_put(json->out, key);
    ebb__report_put(json->out, "\": ");
}

void ebb__report_json_open(ebb_report_json *json, const char *key, char bracket) {
    EBB_ASSERT(bracket == '{' || bracket == '[');
    EBB_ASSERT(json->depth < REPORT_JSON_MAX_DEPTH);
    put_key(json, key);
    ebb__report_put_n(json->out, &bracket, 1);
    json->has_member[json->depth++] = false;
}

void ebb__report_json_close(ebb_report_json *json, char bracket) {
    EBB_ASSERT(bracket == '}' || bracket == ']');
    EBB_ASSERT(json->depth > 0);
    json->depth--;
    ebb__report_put_n(json->out, &bracket, 1);
}

void ebb__report_json_u64(ebb_report_json *json, const char *key, uint64_t value) {
    put_key(json, key);
    ebb__report_printf(json->out, "%" PRIu64, value);
}

void ebb__report_json_f64(ebb_report_json *json, const char *key, double value) {
    put_key(json, key);
    ebb__report_put_f64(json->out, value, 17);
}

void ebb__report_json_short(ebb_report_json *json, const char *key, double value) {
    put_key(json, key);
    ebb__report_put_f64(json->out, value, 7);
}

void ebb__report_json_text(ebb_report_json *json, const char *key, const char *value) {
    put_key(json, key);
    if (value == NULL) {
        ebb__report_put(json->out, "null");
        return;
    }
    ebb__report_put(json->out, "\"");
    ebb__report_put_json_text(json->out, value);
    ebb__report_put(json->out, "\"");
}

void ebb__report_json_bool(ebb_report_json *json, const char *key, bool value) {
    put_key(json, key);
    ebb__report_put(json->out, value ? "true" : "false");
}

void ebb__report_json_null(ebb_report_json *json, const char *key) {
    put_key(json, key);
    ebb__report_put(json->out, "null");
}
