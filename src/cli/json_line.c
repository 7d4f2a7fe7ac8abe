/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines: an object per line, members in the order of the calls.
 */
#include "cli.h"

#include "ebb/json.h"

static void put(void *ctx, const char *text, size_t n_bytes) {
    (void)ctx;
    (void)fwrite(text, 1, n_bytes, stdout); /* main looks at stdout's errors at the end */
}

/* One object is written at a time, with what is in it, and only main's thread writes. */
static ebb_json line = {.put = put};

void ebb__json_begin(void) {
    ebb_json_open(&line, NULL, '{');
}

void ebb__json_text(const char *key, const char *value) {
    ebb_json_text(&line, key, value);
}

void ebb__json_u64(const char *key, uint64_t value) {
    ebb_json_u64(&line, key, value);
}

void ebb__json_limit(const char *key, uint64_t value) {
    if (value == UINT64_MAX) {
        ebb_json_null(&line, key);
    } else {
        ebb_json_u64(&line, key, value);
    }
}

void ebb__json_bool(const char *key, bool value) {
    ebb_json_bool(&line, key, value);
}

void ebb__json_f64(const char *key, double value) {
    ebb_json_f64(&line, key, value, EBB_JSON_F64_DIGITS);
}

void ebb__json_f32(const char *key, float value) {
    ebb_json_f64(&line, key, (double)value, EBB_JSON_F32_DIGITS);
}

void ebb__json_list_begin(const char *key) {
    ebb_json_open(&line, key, '[');
}

void ebb__json_list_end(void) {
    ebb_json_close(&line, ']');
}

void ebb__json_item_begin(void) {
    ebb_json_open(&line, NULL, '{');
}

void ebb__json_item_end(void) {
    ebb_json_close(&line, '}');
}

void ebb__json_u64s(const char *key, const uint64_t *values, size_t n) {
    ebb_json_open(&line, key, '[');
    for (size_t i = 0; i < n; i++) { ebb_json_u64(&line, NULL, values[i]); }
    ebb_json_close(&line, ']');
}

void ebb__json_end(void) {
    ebb_json_close(&line, '}');
    putchar('\n');
    fflush(stdout);
}
