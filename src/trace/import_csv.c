/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers with lifetimes (docs/place-format.md) as a trace: an alloc at the lower time and a free at the upper one,
 * frees before the allocs of the same time, for lifetimes are half-open. Alignments, hints and gaps are not events and
 * stay behind. Buffers come in any order, so all of them are held, some 40 bytes each, and sorted.
 */
#include "base/csv.h"
#include "trace/import_priv.h"

#include <errno.h>

#define MAX_BUFFERS ((size_t)1 << 30)
#define NO_COLUMN SIZE_MAX

enum { COLUMN_ID, COLUMN_LOWER, COLUMN_UPPER, COLUMN_SIZE, N_NEEDED, COLUMN_OFFSET = N_NEEDED, N_COLUMNS };

static const struct {
    const char *name;
    unsigned column;
    bool is_last; /* the last time of the buffer, not the one after it */
} names[] = {
    {"id", COLUMN_ID, false},         {"buffer", COLUMN_ID, false},   {"buffer_id", COLUMN_ID, false},
    {"lower", COLUMN_LOWER, false},   {"start", COLUMN_LOWER, false}, {"begin", COLUMN_LOWER, false},
    {"upper", COLUMN_UPPER, false},   {"end", COLUMN_UPPER, true},    {"size", COLUMN_SIZE, false},
    {"offset", COLUMN_OFFSET, false},
};

typedef struct buffer {
    uint64_t lower, upper, size_bytes, offset;
    uint32_t name;
} buffer;

typedef struct reader {
    ebb_importer *importer;
    ebb_csv csv;
    ebb_status failure; /* of the bytes' source */
    char why[256];
    size_t column[N_COLUMNS];
    bool is_last;
    EBB_VEC(buffer) buffers;
} reader;

/* ---- bytes ------------------------------------------------------------------------------------ */

static int64_t give(void *ctx, void *buf, size_t n_bytes) {
    reader *r = ctx;
    size_t n = 0;
    r->failure = ebb__import_read(r->importer, buf, n_bytes, &n);
    if (r->failure == EBB_OK) { return (int64_t)n; }
    (void)snprintf(r->why, sizeof r->why, "%s", ebb_last_error());
    errno = EIO;
    return -1;
}

static ebb_status next(reader *r, bool *done_out) {
    const ebb_status st = ebb__csv_next(&r->csv, done_out);
    return r->failure == EBB_OK ? st : ebb_fail(r->failure, "%s", r->why);
}

/* ---- the first line --------------------------------------------------------------------------- */

static size_t find_name(const char *name, size_t n) {
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strlen(names[i].name) == n && memcmp(names[i].name, name, n) == 0) { return i; }
    }
    return NO_COLUMN;
}

static ebb_status read_names(reader *r) {
    bool done = false;
    EBB_TRY(next(r, &done));
    for (size_t c = 0; c < N_COLUMNS; c++) { r->column[c] = NO_COLUMN; }
    for (size_t i = 0; !done && i < r->csv.field.n; i++) {
        const char *field = ebb__csv_field(&r->csv, i);
        const size_t found = find_name(field, strlen(field));
        if (found == NO_COLUMN) { continue; }
        size_t *column = &r->column[names[found].column];
        if (*column != NO_COLUMN) {
            return ebb_fail(EBB_E_FORMAT, "%s:%zu: two columns mean %s", r->csv.name, r->csv.line, field);
        }
        *column = i;
        r->is_last = r->is_last || names[found].is_last;
    }
    for (size_t c = 0; c < N_NEEDED; c++) {
        if (r->column[c] == NO_COLUMN) {
            return ebb_fail(EBB_E_FORMAT, "%s:%zu: the columns id, lower, upper and size are not all there",
                            r->csv.name, r->csv.line);
        }
    }
    return EBB_OK;
}

/* The name of the column at [*at, stop), without blanks around it; *at goes after its comma. */
static size_t take_name(const char **at, const char *stop) {
    const char *from = *at, *to = memchr(from, ',', (size_t)(stop - from));
    if (to == NULL) { to = stop; }
    *at = to < stop ? to + 1 : stop;
    if (to > from && to[-1] == '\r') { to--; }
    return find_name(from, (size_t)(to - from));
}

bool ebb__import_is_csv(const uint8_t *head, size_t n, const char *path) {
    (void)path;
    const char *at = (const char *)head, *stop = NULL;
    unsigned found = 0;
    if (n >= 3 && memcmp(at, "\xef\xbb\xbf", 3) == 0) {
        at += 3;
        n -= 3;
    }
    stop = n > 0 ? memchr(at, '\n', n) : NULL;
    if (stop == NULL) { stop = at + n; }
    while (at < stop) {
        const size_t i = take_name(&at, stop);
        if (i != NO_COLUMN) { found |= 1u << names[i].column; }
    }
    return (found & ((1u << N_NEEDED) - 1)) == (1u << N_NEEDED) - 1;
}

/* ---- buffers ---------------------------------------------------------------------------------- */

static ebb_status read_number(const reader *r, unsigned column, uint64_t *number_out) {
    EBB_ASSERT(r->column[column] < r->csv.field.n);
    const char *text = ebb__csv_field(&r->csv, r->column[column]);
    if (ebb__parse_u64(text, number_out)) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: '%.40s' is not a whole number below 2^64", r->csv.name, r->csv.line, text);
}

static ebb_status read_buffer(reader *r) {
    buffer b = {.offset = EBB_TRACE_NONE};
    for (size_t c = 0; c < N_COLUMNS; c++) {
        if (r->column[c] != NO_COLUMN && r->column[c] >= r->csv.field.n) {
            return ebb_fail(EBB_E_FORMAT, "%s:%zu: too few fields", r->csv.name, r->csv.line);
        }
    }
    EBB_TRY(read_number(r, COLUMN_LOWER, &b.lower));
    EBB_TRY(read_number(r, COLUMN_UPPER, &b.upper));
    EBB_TRY(read_number(r, COLUMN_SIZE, &b.size_bytes));
    const bool has_offset =
        r->column[COLUMN_OFFSET] != NO_COLUMN && ebb__csv_field(&r->csv, r->column[COLUMN_OFFSET])[0] != '\0';
    if (has_offset) { EBB_TRY(read_number(r, COLUMN_OFFSET, &b.offset)); }
    if (r->is_last && !ebb_add_u64(b.upper, 1, &b.upper)) {
        return ebb_fail(EBB_E_FORMAT, "%s:%zu: an end without a time after it", r->csv.name, r->csv.line);
    }
    if (b.lower >= b.upper) {
        return ebb_fail(EBB_E_FORMAT, "%s:%zu: the buffer ends before it begins", r->csv.name, r->csv.line);
    }
    if (r->buffers.n == MAX_BUFFERS) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^30 buffers", r->csv.name); }
    const char *id = ebb__csv_field(&r->csv, r->column[COLUMN_ID]);
    EBB_TRY(ebb__import_string(r->importer, id, &b.name));
    return EBB_PUSH(r->importer->mem, &r->buffers, b);
}

static ebb_status read_buffers(reader *r) {
    EBB_TRY(read_names(r));
    const bool has_offsets = r->column[COLUMN_OFFSET] != NO_COLUMN;
    EBB_TRY(ebb__import_begin(r->importer, has_offsets ? EBB_TRACE_TELLS_ADDRESSES : 0, 0));
    for (bool done = false;;) {
        EBB_TRY(next(r, &done));
        if (done) { return EBB_OK; }
        EBB_TRY(read_buffer(r));
    }
}

/* ---- events ----------------------------------------------------------------------------------- */

/* order holds the frees, then the allocs, as index and n + index, by time. */
static ebb_status write_events(const reader *r, const uint32_t *order, uint64_t *block) {
    const size_t n = r->buffers.n;
    uint64_t n_blocks = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        const size_t at = order[i] % n;
        const buffer *b = &r->buffers.data[at];
        EBB_ASSERT(b->lower < b->upper); /* so that its alloc was before its free */
        ebb_trace_event event = {.kind = EBB_TRACE_FREE, .time_ns = b->upper, .block = block[at]};
        if (order[i] >= n) {
            block[at] = n_blocks++;
            event = (ebb_trace_event){.kind = EBB_TRACE_ALLOC,
                                      .time_ns = b->lower,
                                      .block = block[at],
                                      .size_bytes = b->size_bytes,
                                      .address = b->offset,
                                      .name = b->name,
                                      .role = EBB_ROLE_UNKNOWN};
        }
        EBB_TRY(ebb_trace_writer_add(r->importer->writer, &event));
    }
    return EBB_OK;
}

static ebb_status sort_events(const reader *r) {
    const size_t n = r->buffers.n;
    const ebb_mem *mem = r->importer->mem;
    uint64_t *times = ebb__alloc(mem, 3 * n + 1, sizeof *times); /* of 2 n events; and n blocks */
    uint32_t *order = ebb__alloc(mem, 2 * n + 1, sizeof *order);
    ebb_status st = times != NULL && order != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    for (size_t i = 0; i < n && st == EBB_OK; i++) {
        times[i] = r->buffers.data[i].upper;
        times[n + i] = r->buffers.data[i].lower;
    }
    for (size_t i = 0; i < 2 * n && st == EBB_OK; i++) { order[i] = (uint32_t)i; }
    if (st == EBB_OK) { st = ebb__sort_by_key(mem, order, 2 * n, times); }
    if (st == EBB_OK) { st = write_events(r, order, times + 2 * n); }
    ebb__free(mem, times);
    ebb__free(mem, order);
    return st;
}

ebb_status ebb__import_csv(ebb_importer *importer) {
    reader r = {.importer = importer};
    EBB_TRY(ebb__csv_open(importer->mem, importer->path, give, &r, &r.csv));
    ebb_status st = read_buffers(&r);
    if (st == EBB_OK) { st = sort_events(&r); }
    ebb__csv_close(&r.csv);
    EBB_VEC_FINI(importer->mem, &r.buffers);
    return st;
}
