/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated values, a record at a time, through a buffer of fixed size: memory is that and the longest record.
 * Quotes, ends of lines and the byte order mark are dealt with here; what the fields mean is not.
 *
 * Input without an end must not be read for ever: a record, its fields, and the empty lines in a row are limited, so
 * each record comes, or is refused, after a bounded number of bytes.
 */
#include "base/csv.h"

#include "base/file.h"

#define BUFFER_BYTES ((size_t)64 * 1024)
#define MAX_RECORD_BYTES ((size_t)16 * 1024 * 1024)
#define MAX_FIELDS (EBB_CSV_MAX_COLUMNS + 1u)
#define MAX_EMPTY_LINES (1000u * 1000u) /* in a row */

static ebb_status refuse(const ebb_csv *csv, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: %s", csv->name, csv->line, what);
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Read once, after the first n bytes of the buffer. */
static ebb_status read_behind(ebb_csv *csv, size_t n) {
    EBB_ASSERT(csv->source != NULL && n < BUFFER_BYTES && !csv->eof);
    const int64_t got = csv->source(csv->source_ctx, csv->buf + n, BUFFER_BYTES - n);
    if (got < 0) { return ebb__fail_errno(csv->name, "read"); }
    EBB_ASSERT((uint64_t)got <= BUFFER_BYTES - n);
    csv->eof = got == 0;
    csv->at = csv->buf;
    csv->end = csv->buf + n + (size_t)got;
    return EBB_OK;
}

/* Read on when nothing is at hand; false in *more_out: the file has ended. */
static ebb_status fill(ebb_csv *csv, bool *more_out) {
    if (csv->at == csv->end && !csv->eof) { EBB_TRY(read_behind(csv, 0)); }
    *more_out = csv->at < csv->end;
    return EBB_OK;
}

static ebb_status append(ebb_csv *csv, const char *from, size_t n) {
    if (n > MAX_RECORD_BYTES - csv->text.n) { return refuse(csv, "a line of more than 16 MiB"); }
    EBB_TRY(EBB_RESERVE(csv->mem, &csv->text, n + 1)); /* and its NUL */
    memcpy(csv->text.data + csv->text.n, from, n);
    csv->text.n += n;
    return EBB_OK;
}

/* ---- fields ----------------------------------------------------------------------------------- */

/* The next field of the record begins here, in its text. */
static ebb_status begin_field(ebb_csv *csv, size_t at) {
    EBB_ASSERT(at <= csv->text.n);
    if (csv->field.n == MAX_FIELDS) { return refuse(csv, "more than 256 columns"); }
    return EBB_PUSH(csv->mem, &csv->field, at);
}

/* What stopped a field. */
typedef enum stop { STOP_COMMA, STOP_LINE, STOP_FILE } stop;

static bool is_plain(char c) {
    return c != ',' && c != '\n' && c != '\0';
}

/* Up to a comma or the end of the line, which is taken. */
static ebb_status read_plain(ebb_csv *csv, stop *stop_out) {
    for (bool more = true;;) {
        EBB_TRY(fill(csv, &more));
        if (!more) {
            *stop_out = STOP_FILE;
            return append(csv, "", 0);
        }
        const char *from = csv->at;
        while (csv->at < csv->end && is_plain(*csv->at)) { csv->at++; }
        EBB_TRY(append(csv, from, (size_t)(csv->at - from)));
        if (csv->at == csv->end) { continue; }
        if (*csv->at == '\0') { return refuse(csv, "a byte 0: this is no text"); }
        *stop_out = *csv->at++ == ',' ? STOP_COMMA : STOP_LINE;
        return EBB_OK;
    }
}

/* The inside of quotes, after the first one, and the last one. */
static ebb_status read_quoted(ebb_csv *csv) {
    for (bool more = true;;) {
        EBB_TRY(fill(csv, &more));
        if (!more) { return refuse(csv, "a quote without its end"); }
        const char *from = csv->at;
        while (csv->at < csv->end && *csv->at != '"' && *csv->at != '\0') { csv->next_line += *csv->at++ == '\n'; }
        EBB_TRY(append(csv, from, (size_t)(csv->at - from)));
        if (csv->at == csv->end) { continue; }
        if (*csv->at++ == '\0') { return refuse(csv, "a byte 0: this is no text"); }
        EBB_TRY(fill(csv, &more));
        if (!more || *csv->at != '"') { return EBB_OK; }
        csv->at++;
        EBB_TRY(append(csv, "\"", 1));
    }
}

static void drop_carriage_return(ebb_csv *csv, size_t field) {
    EBB_ASSERT(field <= csv->text.n);
    if (csv->text.n > field && csv->text.data[csv->text.n - 1] == '\r') { csv->text.n--; }
}

static ebb_status read_field(ebb_csv *csv, stop *stop_out) {
    bool more = false;
    const size_t field = csv->text.n;
    EBB_TRY(begin_field(csv, field));
    EBB_TRY(fill(csv, &more));
    if (!more || *csv->at != '"') {
        EBB_TRY(read_plain(csv, stop_out));
        if (*stop_out != STOP_COMMA) { drop_carriage_return(csv, field); }
    } else {
        csv->at++;
        csv->any_quoted = true;
        EBB_TRY(read_quoted(csv));
        const size_t closed = csv->text.n;
        EBB_TRY(read_plain(csv, stop_out));
        if (*stop_out != STOP_COMMA) { drop_carriage_return(csv, closed); }
        if (csv->text.n > closed) { return refuse(csv, "text after the end of a quote"); }
    }
    EBB_ASSERT(csv->text.n < csv->text.cap && csv->at <= csv->end);
    csv->text.data[csv->text.n++] = '\0'; /* append left room for it */
    return EBB_OK;
}

/* ---- records ---------------------------------------------------------------------------------- */

static bool is_empty_line(const ebb_csv *csv) {
    return csv->field.n == 1 && !csv->any_quoted && csv->text.data[strspn(csv->text.data, " \t")] == '\0';
}

/* The end of a line that is at hand whole and has no quotes in it, as nearly all are; NULL: it is another. */
static const char *find_plain_end(const ebb_csv *csv) {
    const size_t n_at_hand = (size_t)ebb_min_u64((uint64_t)(csv->end - csv->at), BUFFER_BYTES);
    const char *end = memchr(csv->at, '\n', n_at_hand);
    if (end == NULL) { return NULL; }
    const size_t n = (size_t)(end - csv->at);
    return memchr(csv->at, '"', n) == NULL && memchr(csv->at, '\0', n) == NULL ? end : NULL;
}

/* Such a line: copied at once, and cut at its commas. */
static ebb_status read_plain_line(ebb_csv *csv, const char *end) {
    EBB_TRY(append(csv, csv->at, (size_t)(end - csv->at)));
    drop_carriage_return(csv, 0);
    csv->text.data[csv->text.n++] = '\0';
    csv->at = end + 1;
    csv->next_line++;
    EBB_TRY(begin_field(csv, 0));
    char *const text = csv->text.data;
    for (size_t at = 0; at < csv->text.n; at++) {
        if (text[at] != ',') { continue; }
        text[at] = '\0';
        EBB_TRY(begin_field(csv, at + 1));
    }
    return EBB_OK;
}

static ebb_status read_record(ebb_csv *csv) {
    EBB_ASSERT(csv->next_line >= csv->line);
    csv->line = csv->next_line;
    csv->text.n = csv->field.n = 0;
    csv->any_quoted = false;
    const char *plain_end = find_plain_end(csv);
    if (plain_end != NULL) { return read_plain_line(csv, plain_end); }
    for (stop stopped = STOP_COMMA; stopped == STOP_COMMA;) {
        EBB_TRY(read_field(csv, &stopped));
        csv->next_line += stopped == STOP_LINE;
    }
    return EBB_OK;
}

ebb_status ebb__csv_next(ebb_csv *csv, bool *done_out) {
    bool more = true;
    for (size_t n_empty = 0; n_empty <= MAX_EMPTY_LINES; n_empty++) {
        EBB_TRY(fill(csv, &more));
        if (more) { EBB_TRY(read_record(csv)); }
        if (more && is_empty_line(csv)) { continue; }
        EBB_ASSERT(!more || csv->field.n > 0);
        *done_out = !more;
        return EBB_OK;
    }
    return refuse(csv, "the end of a million empty lines");
}

/* ---- open and close --------------------------------------------------------------------------- */

/* The file's first bytes, at least the three that a mark has: a pipe may give them one by one. */
static ebb_status skip_byte_order_mark(ebb_csv *csv) {
    while (csv->end - csv->at < 3 && !csv->eof) {
        const size_t n = (size_t)(csv->end - csv->at);
        EBB_TRY(read_behind(csv, n));
    }
    if (csv->end - csv->at >= 3 && memcmp(csv->at, "\xef\xbb\xbf", 3) == 0) { csv->at += 3; }
    return EBB_OK;
}

ebb_status ebb__csv_open(const ebb_mem *mem, const char *name, ebb_csv_source source, void *ctx, ebb_csv *csv_out) {
    ebb_csv csv = {
        .mem = ebb__mem_or_default(mem), .name = name, .source = source, .source_ctx = ctx, .line = 1, .next_line = 1};
    csv.buf = ebb__alloc(csv.mem, BUFFER_BYTES, 1);
    if (csv.buf == NULL) { return EBB_E_NO_MEMORY; }
    csv.at = csv.end = csv.buf;
    const ebb_status st = skip_byte_order_mark(&csv);
    if (st != EBB_OK) {
        ebb__csv_close(&csv);
        return st;
    }
    *csv_out = csv;
    return EBB_OK;
}

ebb_status ebb__csv_open_memory(const ebb_mem *mem, const char *name, const char *data, size_t n_bytes,
                                ebb_csv *csv_out) {
    ebb_csv csv = {.mem = ebb__mem_or_default(mem), .name = name, .line = 1, .next_line = 1};
    csv.at = data;
    csv.end = data + n_bytes;
    csv.eof = true;
    EBB_TRY(skip_byte_order_mark(&csv));
    *csv_out = csv;
    return EBB_OK;
}

void ebb__csv_close(ebb_csv *csv) {
    ebb__free(csv->mem, csv->buf);
    EBB_VEC_FINI(csv->mem, &csv->text);
    EBB_VEC_FINI(csv->mem, &csv->field);
}
