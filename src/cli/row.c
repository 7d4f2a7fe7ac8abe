/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the tables that commands print for people: a name, its value in a column, and of bytes also the exact
 * number after it.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define NAME_WIDTH 30
#define MIN_NAME_WIDTH 18
#define VALUE_WIDTH 12

void ebb__cli_print_about(FILE *out, size_t width, const char *name, const char *about) {
    const int n = fprintf(out, "  %-*s ", (int)width, name);
    ebb__cli_print_words(out, n > 0 ? (size_t)n : 0, width + 3, about);
}

/* Where stdout is narrow, names give way, as far as they are short. */
static int name_width(void) {
    const int n_columns = (int)ebb__cli_columns(), n_left = n_columns - 1 - VALUE_WIDTH;
    return n_columns == 0 || n_left > NAME_WIDTH ? NAME_WIDTH : n_left < MIN_NAME_WIDTH ? MIN_NAME_WIDTH : n_left;
}

void ebb__cli_row(const char *name, const char *fmt, ...) {
    char value[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(value, sizeof value, fmt, args);
    va_end(args);
    const int n = printf("%-*s ", name_width(), name);
    if (strlen(value) > VALUE_WIDTH) {
        ebb__cli_print_words(stdout, (size_t)n, (size_t)n, value);
    } else {
        printf("%*s\n", VALUE_WIDTH, value);
    }
}

void ebb__cli_row_bytes(const char *name, uint64_t bytes) {
    char text[32];
    printf("%-*s %*s  %" PRIu64 "\n", name_width(), name, VALUE_WIDTH, ebb_bytes_format(bytes, text, sizeof text),
           bytes);
}
