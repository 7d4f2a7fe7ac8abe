/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated values, a record at a time, through a buffer of fixed size: memory is that and the longest record.
 * Quotes, ends of lines and the byte order mark are dealt with here; what the fields mean is not.
 */
#include "base/file.h"
#include "place/place_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)64 * 1024)

static ebb_status refuse(const ebb_csv *csv, const char *what) {
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: %s", csv->name, csv->line, what);
}

/* ---- bytes ------------------------------------------------------------------------------------ */

/* Read once, behind the first n bytes of the buffer. */
static ebb_status read_behind(ebb_csv *csv, size_t n) {
    ssize_t got = -1;
    do { got = read(csv->fd, csv->buf + n, BUFFER_BYTES - n); } while (got < 0 && errno == EINTR);
    if (got < 0) { return ebb__fail_errno(csv->name, "read"); }
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
    EBB_TRY(EBB_RESERVE(csv->mem, &csv->text, n + 1)); /* and its NUL */
    memcpy(csv->text.data + csv->text.n, from, n);
    csv->text.n += n;
    return EBB_OK;
}

/* ---- fields ----------------------------------------------------------------------------------- */

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

/* The inside of quotes, behind the first one, and the last one. */
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
    if (csv->text.n > field && csv->text.data[csv->text.n - 1] == '\r') { csv->text.n--; }
}

static ebb_status read_field(ebb_csv *csv, stop *stop_out) {
    bool more = false;
    const size_t field = csv->text.n;
    EBB_TRY(EBB_PUSH(csv->mem, &csv->field, field));
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
        if (csv->text.n > closed) { return refuse(csv, "text behind the end of a quote"); }
    }
    csv->text.data[csv->text.n++] = '\0'; /* append left room for it */
    return EBB_OK;
}

/* ---- records ---------------------------------------------------------------------------------- */

static bool is_empty_line(const ebb_csv *csv) {
    return csv->field.n == 1 && !csv->any_quoted && csv->text.data[strspn(csv->text.data, " \t")] == '\0';
}

static ebb_status read_record(ebb_csv *csv) {
    csv->line = csv->next_line;
    csv->text.n = csv->field.n = 0;
    csv->any_quoted = false;
    for (stop stopped = STOP_COMMA; stopped == STOP_COMMA;) {
        EBB_TRY(read_field(csv, &stopped));
        csv->next_line += stopped == STOP_LINE;
    }
    return EBB_OK;
}

ebb_status ebb__csv_next(ebb_csv *csv, bool *done_out) {
    for (bool more = true;;) {
        EBB_TRY(fill(csv, &more));
        if (!more) { break; }
        EBB_TRY(read_record(csv));
        if (is_empty_line(csv)) { continue; }
        *done_out = false;
        return EBB_OK;
    }
    *done_out = true;
    return EBB_OK;
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

static ebb_status open_fd(ebb_csv *csv, const char *path) {
    csv->buf = ebb__alloc(csv->mem, BUFFER_BYTES, 1);
    if (csv->buf == NULL) { return EBB_E_NO_MEMORY; }
    csv->at = csv->end = csv->buf;
    csv->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (csv->fd < 0) { return ebb__fail_errno(path, "open"); }
    return skip_byte_order_mark(csv);
}

ebb_status ebb__csv_open(const ebb_mem *mem, const char *path, ebb_csv *csv_out) {
    ebb_csv csv = {.mem = ebb__mem_or_default(mem), .name = path, .fd = -1, .line = 1, .next_line = 1};
    ebb_status st = open_fd(&csv, path);
    if (st != EBB_OK) {
        ebb__csv_close(&csv);
        return st;
    }
    *csv_out = csv;
    return EBB_OK;
}

ebb_status ebb__csv_open_memory(const ebb_mem *mem, const char *name, const char *data, size_t n_bytes,
                                ebb_csv *csv_out) {
    ebb_csv csv = {.mem = ebb__mem_or_default(mem), .name = name, .fd = -1, .line = 1, .next_line = 1};
    csv.at = data;
    csv.end = data + n_bytes;
    csv.eof = true;
    EBB_TRY(skip_byte_order_mark(&csv));
    *csv_out = csv;
    return EBB_OK;
}

void ebb__csv_close(ebb_csv *csv) {
    if (csv->fd >= 0) { (void)close(csv->fd); }
    ebb__free(csv->mem, csv->buf);
    EBB_VEC_FINI(csv->mem, &csv->text);
    EBB_VEC_FINI(csv->mem, &csv->field);
}
