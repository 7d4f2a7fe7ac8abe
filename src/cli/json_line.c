/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines: an object a line, members in the order of the calls.
 */
#include "cli.h"

#include <inttypes.h>
#include <math.h>

/* One object is written at a time, with what is in it, and only main's thread writes. */
static bool is_first;

static void write_string(const char *text) {
    putchar('"');
    for (size_t n = 1; *text != '\0'; text += n > 0 ? n : 1) {
        n = ebb__cli_character(text);
        if (n == 0) {
            printf("\\ufffd");
        } else if (*text == '"' || *text == '\\') {
            printf("\\%c", *text);
        } else if (n == 1 && *text < 0x20) {
            printf("\\u%04x", (unsigned)*text);
        } else {
            printf("%.*s", (int)n, text);
        }
    }
    putchar('"');
}

static void write_key(const char *key) {
    if (!is_first) { printf(", "); }
    is_first = false;
    write_string(key);
    printf(": ");
}

static void write_number(double value, int digits) {
    if (isfinite(value)) {
        printf("%.*g", digits, value);
    } else {
        printf("null");
    }
}

void ebb__json_begin(void) {
    is_first = true;
    putchar('{');
}

void ebb__json_text(const char *key, const char *value) {
    write_key(key);
    if (value != NULL) {
        write_string(value);
    } else {
        printf("null");
    }
}

void ebb__json_u64(const char *key, uint64_t value) {
    write_key(key);
    printf("%" PRIu64, value);
}

void ebb__json_limit(const char *key, uint64_t value) {
    if (value == UINT64_MAX) {
        ebb__json_text(key, NULL);
    } else {
        ebb__json_u64(key, value);
    }
}

void ebb__json_bool(const char *key, bool value) {
    write_key(key);
    printf(value ? "true" : "false");
}

void ebb__json_f64(const char *key, double value) {
    write_key(key);
    write_number(value, 17);
}

void ebb__json_f32(const char *key, float value) {
    write_key(key);
    write_number((double)value, 9);
}

void ebb__json_list_begin(const char *key) {
    write_key(key);
    putchar('[');
    is_first = true;
}

void ebb__json_u64s(const char *key, const uint64_t *values, size_t n) {
    write_key(key);
    putchar('[');
    for (size_t i = 0; i < n; i++) { printf("%s%" PRIu64, i > 0 ? ", " : "", values[i]); }
    putchar(']');
}

void ebb__json_item_begin(void) {
    printf(is_first ? "{" : ", {");
    is_first = true;
}

void ebb__json_item_end(void) {
    putchar('}');
    is_first = false;
}

void ebb__json_list_end(void) {
    putchar(']');
    is_first = false;
}

void ebb__json_end(void) {
    puts("}");
    fflush(stdout);
}
