/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a report: a buffer in front of the sink, and anybody's bytes made fit for a terminal and for HTML.
 */
#include "report/report_priv.h"

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

static void put_json(void *ctx, const char *text, size_t n_bytes) {
    ebb__report_put_n(ctx, text, n_bytes);
}

ebb_json ebb__report_json(ebb_report_out *out) {
    return (ebb_json){.put = put_json, .ctx = out, .is_for_page = true};
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

/* ---- anybody's text --------------------------------------------------------------------------- */

static size_t count_within(const char *text, size_t n_bytes) {
    size_t n = 0, n_of_one = 0;
    for (const char *c = text; c < text + n_bytes; c += n_of_one, n++) { (void)ebb__utf8_read(c, &n_of_one); }
    return n;
}

static size_t count_characters(const char *text) {
    return count_within(text, strlen(text));
}

/* The next n characters of text; where the text goes on. */
static const char *put_characters(ebb_report_out *out, const char *text, size_t n) {
    const char *c = text;
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = 0;
        const uint32_t code = ebb__utf8_read(c, &n_bytes);
        if (code == EBB_UTF8_NONE || ebb__utf8_is_control(code)) {
            ebb__report_put_n(out, "?", 1);
        } else {
            ebb__report_put_n(out, c, n_bytes);
        }
        c += n_bytes;
    }
    return c;
}

static const char *skip_characters(const char *text, size_t n) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < n; i++, text += n_bytes) { (void)ebb__utf8_read(text, &n_bytes); }
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

void ebb__report_put_html_text(ebb_report_out *out, const char *text) {
    size_t n_bytes = 0;
    for (const char *c = text; *c != '\0'; c += n_bytes) {
        const uint32_t code = ebb__utf8_read(c, &n_bytes);
        if (code == EBB_UTF8_NONE || ebb__utf8_is_control(code)) {
            ebb__report_put(out, "\xef\xbf\xbd");
        } else if (strchr("<>&\"'", (int)code) != NULL && code < 0x80) {
            ebb__report_printf(out, "&#%u;", (unsigned)code);
        } else {
            ebb__report_put_n(out, c, n_bytes);
        }
    }
}
