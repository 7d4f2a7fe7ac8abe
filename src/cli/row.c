/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the tables that commands print for people: a name, its value in a column, and of bytes also the exact
 * number after it.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>

#define NAME_WIDTH 30
#define VALUE_WIDTH 12

void ebb__cli_row(const char *name, const char *fmt, ...) {
    char value[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    printf("%-*s %*s\n", NAME_WIDTH, name, VALUE_WIDTH, value);
}

void ebb__cli_row_bytes(const char *name, uint64_t bytes) {
    char text[32];
    printf("%-*s %*s  %" PRIu64 "\n", NAME_WIDTH, name, VALUE_WIDTH, ebb_bytes_format(bytes, text, sizeof text), bytes);
}
