/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a report: a buffer in front of the sink, numbers without the locale, and anybody's bytes made fit for a
 * terminal, for JSON inside of a page's script, and for HTML.
 */
#include "report/report_priv.h"

#include <math.h>
#include <stdlib.h>

/* ---- the buffer ------------------------------------------------------------------------------- */

ebb_status ebb__report_flush(ebb_report_out *out) {
    if (out->status == EBB_OK && out->n > 0) { out->status = out->sink(out->ctx, out->buffer, out->n); }
    out->n = 0;
    return out->status;
}

void ebb__report_put_n(ebb_report_out *out, const void *data, size_t n_bytes) {
    const char *bytes = data;
    while (n_bytes > 0 && out->status == EBB_OK) {
        const size_t n = n_bytes < sizeof out->buffer - out->n ? n_bytes : sizeof out->buffer - out->n;
        memcpy(out->buffer + out->n, bytes, n);
        out->n += n;
        out->n_total += n;
        bytes += n;
        n_bytes -= n;
        if (out->n == sizeof out->buffer) { (void)ebb__report_flush(out); }
    }
}

void ebb__report_put(ebb_report_out *out, const char *text) {
    ebb__report_put_n(out, text, strlen(text));
}

void ebb__report_printf(ebb_report_out *out, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    EBB_ASSERT(n >= 0 && (size_t)n < sizeof line);
    ebb__report_put_n(out, line, n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void ebb__report_put_f64(ebb_report_out *out, double x, int n_digits) {
    if (!isfinite(x)) {
        ebb__report_put(out, "null");
        return;
    }
    char text[40];
    int n = snprintf(text, sizeof text, "%.*g", n_digits < 15 ? n_digits : 15, x);
    if (n_digits > 15 && strtod(text, NULL) != x) { n = snprintf(text, sizeof text, "%.*g", n_digits, x); }
    for (int i = 0; i < n; i++) {
        if (strchr("0123456789+-e", text[i]) == NULL) { text[i] = '.'; } /* the locale's own point */
    }
    ebb__report_put_n(out, text, (size_t)n);
}

/* ---- anybody's text --------------------------------------------------------------------------- */

#define NO_CHARACTER UINT32_MAX

/* The character at c, and how many bytes it has; NO_CHARACTER and one byte where this is none of UTF-8. */
static uint32_t read_character(const unsigned char *c, size_t *n_bytes_out) {
    *n_bytes_out = 1;
    if (c[0] < 0x80) { return c[0]; }
    const size_t n = ebb__utf8_character(c, strnlen((const char *)c, 4));
    if (n == 0) { return NO_CHARACTER; }
    uint32_t code = c[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) { code = code << 6 | (c[i] & 0x3fu); }
    *n_bytes_out = n;
    return code;
}

/* What a terminal would obey, or what would turn the direction of what follows. */
static bool is_control(uint32_t code) {
    const bool is_direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
    return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 || is_direction;
}

static size_t count_within(const char *text, size_t n_bytes) {
    size_t n = 0, n_of_one = 0;
    for (const char *c = text; c < text + n_bytes; c += n_of_one, n++) {
        (void)read_character((const unsigned char *)c, &n_of_one);
    }
    return n;
}

static size_t count_characters(const char *text) {
    return count_within(text, strlen(text));
}

/* The next n characters of text; where the text goes on. */
static const char *put_characters(ebb_report_out *out, const char *text, size_t n) {
    const unsigned char *c = (const unsigned char *)text;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const uint32_t code = read_character(c, &n_bytes);
        if (code == NO_CHARACTER || is_control(code)) {
            ebb__report_put_n(out, "?", 1);
        } else {
            ebb__report_put_n(out, c, n_bytes);
        }
        c += n_bytes;
    }
    return (const char *)c;
}

static const char *skip_characters(const char *text, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++, text += n_bytes) { (void)read_character((const unsigned char *)text, &n_bytes); }
    return text;
}

/* The n_chars characters from text on in max_chars columns: the beginning and the end, with dots between them. */
static size_t put_shortened(ebb_report_out *out, const char *text, size_t n_chars, size_t max_chars) {
    if (max_chars == 0 || n_chars <= max_chars) {
        (void)put_characters(out, text, n_chars);
        return n_chars;
    }
    const size_t n_dots = max_chars < 3 ? max_chars : 3, n_head = (max_chars - n_dots) / 2;
    const size_t n_tail = max_chars - n_dots - n_head;
    (void)put_characters(out, text, n_head);
    ebb__report_put_n(out, "...", n_dots);
    (void)put_characters(out, skip_characters(text, n_chars - n_tail), n_tail);
    return max_chars;
}

size_t ebb__report_put_clean(ebb_report_out *out, const char *text, size_t max_chars) {
    return put_shortened(out, text, count_characters(text), max_chars);
}

/* Bytes of the unit that text begins with, 0: it begins with another word. */
static size_t unit_bytes(const char *text) {
    static const char *const units[] = {"B",  "KiB", "MiB", "GiB", "TiB", "PiB",      "%",
                                        "ns", "ms",  "s",   "min", "h",   "\xc2\xb5s"};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const size_t n = strlen(units[i]);
        if (strncmp(text, units[i], n) == 0 && strchr(" \n.,:;)", text[n]) != NULL) { return n; }
    }
    return 0;
}

/* Bytes up to the next space at which a line may end: not one between a number and its unit. */
static size_t word_bytes(const char *text) {
    const size_t n = strcspn(text, " \n");
    const bool is_number = n > 0 && text[n] == ' ' && text[n - 1] >= '0' && text[n - 1] <= '9';
    if (!is_number || unit_bytes(text + n + 1) == 0) { return n; }
    return n + 1 + strcspn(text + n + 1, " \n");
}

size_t ebb__report_put_wrapped(ebb_report_out *out, const char *text, size_t at, size_t indent, size_t n_columns) {
    EBB_ASSERT(indent < n_columns);
    size_t first = at; /* where the line's first word begins: one that is too long for it is not moved for nothing */
    while (*text != '\0') {
        const size_t n_bytes = word_bytes(text), n = count_within(text, n_bytes);
        if (at > first && n > 0 && at + 1 + n > n_columns) {
            ebb__report_printf(out, "\n%*s", (int)indent, "");
            at = first = indent;
        } else if (at > first) {
            ebb__report_put_n(out, " ", 1);
            at++;
        }
        at += put_shortened(out, text, n, n_columns - (at < n_columns ? at : indent));
        text += n_bytes;
        if (*text == '\n' && text[1] != '\0') {
            ebb__report_printf(out, "\n%*s", (int)indent, "");
            at = first = indent;
        }
        text += *text != '\0';
    }
    return at;
}

void ebb__report_put_json_text(ebb_report_out *out, const char *text) {
    size_t n_bytes = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c += n_bytes) {
        const uint32_t code = read_character(c, &n_bytes);
        if (code == NO_CHARACTER) {
            ebb__report_put(out, "\\ufffd");
        } else if (code == '"' || code == '\\') {
            ebb__report_printf(out, "\\%c", (int)code);
        } else if (is_control(code) || code == '<' || code == '>' || code == '&' || code == '\'') {
            ebb__report_printf(out, "\\u%04x", (unsigned)code); /* so that no text ends or opens a script */
        } else {
            ebb__report_put_n(out, c, n_bytes);
        }
    }
}

void ebb__report_put_html_text(ebb_report_out *out, const char *text) {
    size_t n_bytes = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c += n_bytes) {
        const uint32_t code = read_character(c, &n_bytes);
        if (code == NO_CHARACTER || is_control(code)) {
            ebb__report_put(out, "\xef\xbf\xbd");
        } else if (strchr("<>&\"'", (int)code) != NULL && code < 0x80) {
            ebb__report_printf(out, "&#%u;", (unsigned)code);
        } else {
            ebb__report_put_n(out, c, n_bytes);
        }
    }
}
