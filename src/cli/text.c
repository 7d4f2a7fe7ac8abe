/* SPDX-License-Identifier: Apache-2.0
 *
 * Anybody's text: names in recordings and paths are bytes of others, and the terminal obeys some of them. The library
 * has its own rule for characters (base/utf8.c), but the command line sees include/ebb alone.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LONGEST_WORD 256 /* characters, in a message */
#define MOST_COLUMNS 10000
#define USUAL_COLUMNS 100 /* of a line, where nothing says how wide it may be */

/* The width that COLUMNS asks for, as POSIX has it; 0: none. */
static uint32_t asked_columns(void) {
    const char *text = getenv("COLUMNS");
    char *end = NULL;
    const unsigned long n = text != NULL && text[0] >= '1' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;
    return n > 0 && *end == '\0' && n <= MOST_COLUMNS ? (uint32_t)n : 0;
}

/* The width of the terminal that fd is; 0: it is not one, or its width is not known. */
static uint32_t terminal_columns(int fd) {
    struct winsize size = {.ws_col = 0};
    return isatty(fd) == 1 && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

uint32_t ebb__cli_columns(void) {
    const uint32_t n_asked = asked_columns();
    return n_asked > 0 ? n_asked : terminal_columns(STDOUT_FILENO);
}

size_t ebb__cli_line_columns(FILE *out) {
    if (out != stdout && out != stderr) { return USUAL_COLUMNS; }
    const uint32_t n_asked = asked_columns(), n = n_asked > 0 ? n_asked : terminal_columns(fileno(out));
    return n > 0 ? n : USUAL_COLUMNS;
}

void ebb__cli_print_words(FILE *out, size_t n_before, size_t n_indent, const char *text) {
    const size_t n_columns = ebb__cli_line_columns(out);
    const char *line = text;
    size_t column = n_before, indent = 0; /* of the line that begins there */
    for (const char *word = text; *word != '\0';) {
        const size_t n_spaces = strspn(word, " "), n_bytes = n_spaces + strcspn(word + n_spaces, " ");
        size_t n = 0;
        for (size_t at = 0; at < n_bytes; n++) { at += ebb__cli_character(word + at); }
        if (word > text && column > n_indent && column + n > n_columns) {
            fprintf(out, "%*s%.*s\n", (int)indent, "", (int)(word - line), line);
            line = word + n_spaces;
            indent = n_indent;
            column = n_indent + n - n_spaces;
        } else {
            column += n;
        }
        word += n_bytes;
    }
    fprintf(out, "%*s%s\n", (int)indent, "", line);
}

void ebb__cli_print_paragraph(FILE *out, const char *text) {
    fputc('\n', out);
    ebb__cli_print_words(out, 0, 0, text);
}

size_t ebb__cli_character(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    const size_t n = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : c[0] < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++) {
        if ((c[i] & 0xc0) != 0x80) { return 0; } /* a NUL too */
    }
    const bool is_too_long = n > 2 && ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90));
    const bool is_none = n > 2 && ((c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90));
    return is_too_long || is_none ? 0 : n;
}

/* What a terminal would obey, or what would turn the direction of what follows. */
static bool is_control(const char *text, size_t n_bytes) {
    const unsigned char *c = (const unsigned char *)text;
    if (n_bytes == 1) { return c[0] < 0x20 || c[0] == 0x7f; }
    if (n_bytes == 2) { return c[0] == 0xc2 && c[1] < 0xa0; }
    const bool is_line_or_direction = c[1] == 0x80 ? c[2] >= 0xa8 && c[2] <= 0xae : c[1] == 0x81 && c[2] >= 0xa6;
    return n_bytes == 3 && c[0] == 0xe2 && is_line_or_direction;
}

char *ebb__cli_clean(const char *text, char *buf, size_t buf_bytes) {
    size_t n = 0;
    while (*text != '\0') {
        const size_t n_bytes = ebb__cli_character(text);
        const bool is_shown = n_bytes > 0 && !is_control(text, n_bytes);
        const size_t n_put = is_shown ? n_bytes : 1;
        if (n + n_put >= buf_bytes) { break; }
        memcpy(buf + n, is_shown ? text : "?", n_put);
        n += n_put;
        text += n_bytes > 0 ? n_bytes : 1;
    }
    buf[n] = '\0';
    return buf;
}

size_t ebb__cli_count(const char *text) {
    size_t n = 0;
    for (size_t i = 0; text[i] != '\0'; n++) { i += ebb__cli_character(text + i); }
    return n;
}

/* Where the character after the first n begins. */
static size_t skip(const char *text, size_t n) {
    size_t at = 0;
    for (size_t i = 0; i < n; i++) { at += ebb__cli_character(text + at); }
    return at;
}

/* Shorten the first n characters of text to n_columns. Returns what follows them. */
static char *cut_middle(char *text, size_t n, size_t n_columns) {
    static const char dots[] = "...";
    const size_t n_dots = n_columns < sizeof dots - 1 ? n_columns : sizeof dots - 1, n_head = (n_columns - n_dots) / 2;
    const size_t head = skip(text, n_head), tail = skip(text, n - (n_columns - n_dots - n_head)), end = skip(text, n);
    memcpy(text + head, dots, n_dots);
    memmove(text + head + n_dots, text + tail, strlen(text + tail) + 1);
    return text + head + n_dots + (end - tail);
}

char *ebb__cli_shorten(const char *text, size_t n_columns, char *buf, size_t buf_bytes) {
    const size_t n = ebb__cli_count(ebb__cli_clean(text, buf, buf_bytes));
    if (n_columns > 0 && n > n_columns) { (void)cut_middle(buf, n, n_columns); }
    return buf;
}

char *ebb__cli_clean_message(const char *text, char *buf, size_t buf_bytes) {
    for (char *word = ebb__cli_clean(text, buf, buf_bytes); *word != '\0'; word += strspn(word, " ")) {
        size_t n = 0, at = 0;
        for (; word[at] != ' ' && word[at] != '\0'; n++) { at += ebb__cli_character(word + at); }
        word = n > LONGEST_WORD ? cut_middle(word, n, LONGEST_WORD) : word + at;
    }
    return buf;
}
