/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files from their records: which column is which, then each row's numbers. Whatever a problem must
 * be is checked here, where file, line and column can be named, so that no solver refuses what this let through as
 * malformed.
 */
#include "base/file.h"
#include "place/place_csv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_ROWS ((size_t)1 << 31)
#define MAX_BYTES ((uint64_t)1 << 63) /* of all sizes and what alignments may waste together */
#define FIRST_LOOK ((size_t)4096)     /* at ids that are there twice: after this many rows, twice as many, ... */

typedef struct reader {
    ebb_csv *csv;
    ebb_place_file *file;
    uint32_t column[EBB_CSV_N_KNOWN];  /* where the columns are, or EBB_CSV_NO_COLUMN */
    uint64_t total_bytes, fixed_bytes; /* of all sizes and alignments; of those with an offset */
    uint64_t highest, highest_end;     /* of the fixed ones: offset and end of the one that ends last */
    size_t highest_line;
    bool are_not_counted; /* ids: see is_behind_last */
} reader;

/* ---- refusing --------------------------------------------------------------------------------- */

static ebb_status refuse(const reader *r, const char *column, const char *field, const char *why) {
    char shown[EBB_CSV_SHOWN_BYTES];
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: %s: '%s' %s", r->csv->name, r->csv->line, column,
                    ebb__place_file_show(field, shown), why);
}

static const char *name_of(const reader *r, ebb_csv_kind kind) {
    EBB_ASSERT(r->column[kind] < r->file->columns.n);
    return r->file->names.data + r->file->columns.data[r->column[kind]].name;
}

static const char *field_of(const reader *r, ebb_csv_kind kind) {
    EBB_ASSERT(r->column[kind] < r->csv->field.n);
    return ebb__csv_field(r->csv, r->column[kind]);
}

/* Refuse the row at hand for its field of this kind. */
static ebb_status refuse_field(const reader *r, ebb_csv_kind kind, const char *why) {
    return refuse(r, name_of(r, kind), field_of(r, kind), why);
}

static bool has(const reader *r, ebb_csv_kind kind) {
    return r->column[kind] != EBB_CSV_NO_COLUMN;
}

/* ---- the first line --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    ebb_csv_kind kind;
} known[] = {
    {"id", EBB_CSV_ID},         {"buffer", EBB_CSV_ID},   {"buffer_id", EBB_CSV_ID}, {"lower", EBB_CSV_LOWER},
    {"start", EBB_CSV_LOWER},   {"begin", EBB_CSV_LOWER}, {"upper", EBB_CSV_UPPER},  {"end", EBB_CSV_UPPER},
    {"size", EBB_CSV_SIZE},     {"hint", EBB_CSV_HINT},   {"gaps", EBB_CSV_GAPS},    {"alignment", EBB_CSV_ALIGNMENT},
    {"offset", EBB_CSV_OFFSET},
};

static ebb_csv_kind kind_of(const char *name) {
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(known[i].name, name) == 0) { return known[i].kind; }
    }
    return EBB_CSV_OTHER;
}

/* Without the blanks around it, in place: the record is the reader's own. */
static char *trim(char *field) {
    field += strspn(field, " \t");
    size_t n = strlen(field);
    while (n > 0 && (field[n - 1] == ' ' || field[n - 1] == '\t')) { n--; }
    field[n] = '\0';
    return field;
}

static ebb_status check_new_name(const reader *r, const char *name) {
    if (name[0] == '\0') { return refuse(r, "column", name, "is no name"); }
    for (size_t i = 0; i < r->file->columns.n; i++) {
        const char *other = r->file->names.data + r->file->columns.data[i].name;
        if (strcmp(other, name) == 0) { return refuse(r, "column", name, "is there twice"); }
    }
    return EBB_OK;
}

static ebb_status read_column(reader *r, uint32_t idx) {
    const char *name = trim(r->csv->text.data + r->csv->field.data[idx]);
    const ebb_csv_kind kind = kind_of(name);
    EBB_TRY(check_new_name(r, name));
    if (kind != EBB_CSV_OTHER && has(r, kind)) {
        char why[64];
        (void)snprintf(why, sizeof why, "is the same as the column '%s'", name_of(r, kind));
        return refuse(r, "column", name, why);
    }
    EBB_TRY(ebb__place_file_add_column(r->file, kind, name));
    if (kind != EBB_CSV_OTHER) { r->column[kind] = idx; }
    return EBB_OK;
}

static ebb_status read_columns(reader *r) {
    static const char *const needed[EBB_CSV_N_NEEDED] = {"id", "lower", "upper", "size"};
    bool done = false;
    for (size_t k = 0; k < EBB_CSV_N_KNOWN; k++) { r->column[k] = EBB_CSV_NO_COLUMN; }
    EBB_TRY(ebb__csv_next(r->csv, &done));
    if (done) { return ebb_fail(EBB_E_FORMAT, "%s: the file is empty: it has no line of columns", r->csv->name); }
    for (size_t i = 0; i < r->csv->field.n; i++) { EBB_TRY(read_column(r, (uint32_t)i)); }
    if (r->csv->field.n - has(r, EBB_CSV_OFFSET) > EBB_CSV_MAX_COLUMNS) {
        return ebb_fail(EBB_E_FORMAT, "%s:%zu: more than %u columns", r->csv->name, r->csv->line, EBB_CSV_MAX_COLUMNS);
    }
    for (size_t k = 0; k < EBB_CSV_N_NEEDED; k++) {
        if (r->column[k] != EBB_CSV_NO_COLUMN) { continue; }
        return ebb_fail(
            EBB_E_FORMAT,
            "%s:%zu: there is no column '%s': the first line names them, in lower case, with commas between",
            r->csv->name, r->csv->line, needed[k]);
    }
    EBB_ASSERT(r->file->columns.n == r->csv->field.n);
    r->file->inclusive = strcmp(name_of(r, EBB_CSV_UPPER), "end") == 0;
    return EBB_OK;
}

/* ---- numbers ---------------------------------------------------------------------------------- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_blanks(const char *at) {
    while (*at == ' ' || *at == '\t') { at++; }
    return at;
}

/* Take digits; NULL, or why they are no number of 64 bits. */
static const char *take_u64(const char **at, uint64_t *value_out) {
    uint64_t value = 0;
    const char *c = *at;
    if (!is_digit(*c)) { return *c == '-' && is_digit(c[1]) ? "is negative" : "is not a whole number"; }
    for (; is_digit(*c); c++) {
        if (!ebb_mul_u64(value, 10, &value) || !ebb_add_u64(value, (uint64_t)(*c - '0'), &value)) {
            return "is beyond 64 bits";
        }
    }
    *at = c;
    *value_out = value;
    return NULL;
}

static ebb_status read_u64(const reader *r, ebb_csv_kind kind, uint64_t *value_out) {
    const char *at = skip_blanks(field_of(r, kind));
    uint64_t value = 0;
    if (*at == '\0') { return refuse_field(r, kind, "is no number"); }
    const char *why = take_u64(&at, &value);
    if (why == NULL && *skip_blanks(at) != '\0') { why = "is not a whole number"; }
    if (why != NULL) { return refuse_field(r, kind, why); }
    *value_out = value;
    return EBB_OK;
}

static bool is_empty(const reader *r, ebb_csv_kind kind) {
    return *skip_blanks(field_of(r, kind)) == '\0';
}

/* ---- a row ------------------------------------------------------------------------------------ */

static ebb_status read_times(const reader *r, ebb_place_item *item) {
    EBB_TRY(read_u64(r, EBB_CSV_LOWER, &item->first));
    EBB_TRY(read_u64(r, EBB_CSV_UPPER, &item->last));
    if (r->file->inclusive) {
        if (item->last == UINT64_MAX) { return refuse_field(r, EBB_CSV_UPPER, "is beyond 64 bits"); }
        item->last++;
    }
    if (item->first < item->last) { return EBB_OK; }
    char why[64];
    (void)snprintf(why, sizeof why, "is %s %s, %" PRIu64, r->file->inclusive ? "below" : "not above",
                   name_of(r, EBB_CSV_LOWER), item->first);
    return refuse_field(r, EBB_CSV_UPPER, why);
}

/* Solvers compute with 63 bits, whatever order they place in. */
static ebb_status add_bytes(reader *r, ebb_csv_kind kind, uint64_t bytes) {
    EBB_ASSERT(r->total_bytes < MAX_BYTES);
    if (bytes >= MAX_BYTES - r->total_bytes) {
        return refuse_field(r, kind, "makes sizes and alignments add up to 2^63 or more");
    }
    r->total_bytes += bytes;
    return EBB_OK;
}

static ebb_status read_size(reader *r, ebb_place_item *item) {
    EBB_TRY(read_u64(r, EBB_CSV_SIZE, &item->size_bytes));
    return add_bytes(r, EBB_CSV_SIZE, item->size_bytes);
}

static ebb_status read_alignment(reader *r) {
    EBB_ASSERT(r->file->alignments.n == r->file->items.n);
    uint64_t alignment = 1;
    if (!is_empty(r, EBB_CSV_ALIGNMENT)) { EBB_TRY(read_u64(r, EBB_CSV_ALIGNMENT, &alignment)); }
    if (alignment == 0) { return refuse_field(r, EBB_CSV_ALIGNMENT, "is no alignment"); }
    EBB_TRY(add_bytes(r, EBB_CSV_ALIGNMENT, alignment - 1));
    r->file->has_alignments = r->file->has_alignments || alignment != 1;
    return EBB_PUSH(r->file->mem, &r->file->alignments, alignment);
}

static ebb_status read_hint(reader *r) {
    EBB_ASSERT(r->file->hints.n == r->file->items.n);
    uint64_t hint = EBB_PLACE_ANYWHERE;
    const char *field = field_of(r, EBB_CSV_HINT);
    if (!is_empty(r, EBB_CSV_HINT) && strcmp(field, "-1") != 0) {
        EBB_TRY(read_u64(r, EBB_CSV_HINT, &hint));
        if (hint >= MAX_BYTES) { return refuse_field(r, EBB_CSV_HINT, "is 2^63 or more"); }
        r->file->has_hints = true;
    }
    return EBB_PUSH(r->file->mem, &r->file->hints, hint);
}

static ebb_status read_offset(reader *r, uint64_t size_bytes) {
    uint64_t offset = EBB_PLACE_ANYWHERE;
    if (!is_empty(r, EBB_CSV_OFFSET)) {
        EBB_TRY(read_u64(r, EBB_CSV_OFFSET, &offset));
        const uint64_t alignment = has(r, EBB_CSV_ALIGNMENT) ? r->file->alignments.data[r->file->alignments.n - 1] : 1;
        if (offset % alignment != 0) { return refuse_field(r, EBB_CSV_OFFSET, "is not a multiple of the alignment"); }
        if (offset >= MAX_BYTES - size_bytes) {
            return refuse_field(r, EBB_CSV_OFFSET, "makes the buffer end at 2^63 or beyond");
        }
        if (offset + size_bytes >= r->highest_end) {
            r->highest = offset;
            r->highest_end = offset + size_bytes;
            r->highest_line = r->csv->line;
        }
        r->fixed_bytes += size_bytes + alignment - 1;
        EBB_ASSERT(r->fixed_bytes <= r->total_bytes && r->highest_end < MAX_BYTES);
        r->file->has_fixed = true;
    }
    return EBB_PUSH(r->file->mem, &r->file->fixed, offset);
}

/* Above the highest fixed buffer there may have to be room for all that are not. */
static ebb_status check_highest(const reader *r) {
    EBB_ASSERT(r->fixed_bytes <= r->total_bytes && r->total_bytes < MAX_BYTES);
    if (r->highest_end < MAX_BYTES - (r->total_bytes - r->fixed_bytes)) { return EBB_OK; }
    return ebb_fail(EBB_E_FORMAT,
                    "%s:%zu: offset: '%" PRIu64 "' and the sizes and alignments of buffers without an offset add up "
                    "to 2^63 or more",
                    r->csv->name, r->highest_line, r->highest);
}

/* ---- gaps ------------------------------------------------------------------------------------- */

static const char not_a_gap[] = "is not a gap, t0-t1 or t0-t1@lo:hi";

static bool take_char(const char **at, char c) {
    if (**at != c) { return false; }
    (*at)++;
    return true;
}

static const char *take_pair(const char **at, char between, uint64_t *a_out, uint64_t *b_out) {
    if (!is_digit(**at)) { return not_a_gap; }
    const char *why = take_u64(at, a_out);
    if (why != NULL) { return why; }
    if (!take_char(at, between) || !is_digit(**at)) { return not_a_gap; }
    return take_u64(at, b_out);
}

/* Up to a blank; NULL, or why it is not one. */
static const char *take_gap(const reader *r, const char **at, ebb_place_gap *gap) {
    const char *why = take_pair(at, '-', &gap->first, &gap->last);
    EBB_ASSERT(why != NULL || *at != field_of(r, EBB_CSV_GAPS));
    if (why == NULL && take_char(at, '@')) { why = take_pair(at, ':', &gap->low_bytes, &gap->high_bytes); }
    if (why != NULL) { return why; }
    if (**at != '\0' && **at != ' ' && **at != '\t') { return not_a_gap; }
    if (r->file->inclusive && gap->last == UINT64_MAX) { return "is beyond 64 bits"; }
    gap->last += r->file->inclusive ? 1 : 0;
    return NULL;
}

static const char *check_gap(const ebb_place_gap *gap, const ebb_place_item *item) {
    if (gap->first >= gap->last) { return "ends before it begins"; }
    if (gap->first < item->first || gap->last > item->last) { return "is not within the buffer's life"; }
    if (gap->low_bytes > gap->high_bytes) { return "has a window that ends before it begins"; }
    return gap->high_bytes > item->size_bytes ? "has a window beyond the buffer's size" : NULL;
}

/* The gap that stands at from is at fault: show it alone. */
static ebb_status refuse_gap(const reader *r, const char *from, const char *why) {
    char gap[EBB_CSV_SHOWN_BYTES + 1];
    (void)snprintf(gap, sizeof gap, "%.*s", (int)strcspn(from, " \t"), from);
    return refuse(r, name_of(r, EBB_CSV_GAPS), gap, why);
}

static int compare_gaps(const void *a, const void *b) {
    const ebb_place_gap *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Bring the row's gaps, those from n_before on, in order of time. */
static ebb_status order_gaps(reader *r, size_t n_before, bool in_order) {
    ebb_place_gap *gaps = r->file->gaps.data + n_before;
    const size_t n = r->file->gaps.n - n_before;
    if (!in_order) { qsort(gaps, n, sizeof *gaps, compare_gaps); }
    for (size_t g = 1; g < n; g++) {
        EBB_ASSERT(gaps[g - 1].first <= gaps[g].first && gaps[g].item == gaps[0].item);
        if (gaps[g - 1].last > gaps[g].first) { return refuse_field(r, EBB_CSV_GAPS, "has gaps that overlap"); }
    }
    return EBB_OK;
}

static ebb_status read_gaps(reader *r, const ebb_place_item *item) {
    const size_t n_before = r->file->gaps.n;
    bool in_order = true;
    uint64_t last_first = 0;
    for (const char *at = skip_blanks(field_of(r, EBB_CSV_GAPS)); *at != '\0'; at = skip_blanks(at)) {
        const char *from = at;
        ebb_place_gap gap = {.item = r->file->items.n};
        const char *why = take_gap(r, &at, &gap);
        if (why == NULL) { why = check_gap(&gap, item); }
        if (why != NULL) { return refuse_gap(r, from, why); }
        EBB_TRY(EBB_PUSH(r->file->mem, &r->file->gaps, gap));
        in_order = in_order && gap.first >= last_first;
        last_first = gap.first;
    }
    return r->file->gaps.n > n_before ? order_gaps(r, n_before, in_order) : EBB_OK;
}

/* ---- all of it -------------------------------------------------------------------------------- */

/* Whether an id is longer than the one before it, or as long and after it. Where all are, as numbers that are counted
 * up, no two are the same. */
static bool is_behind_last(const reader *r, const char *id) {
    const size_t n_rows = r->file->row_text.n;
    if (n_rows == 0) { return true; }
    const char *last = r->file->texts.data + r->file->row_text.data[n_rows - 1];
    const size_t n_id = strlen(id), n_last = strlen(last);
    return n_id > n_last || (n_id == n_last && memcmp(id, last, n_id) > 0);
}

/* The id, and the texts that are kept as they are. */
static ebb_status read_texts(reader *r) {
    const char *id = field_of(r, EBB_CSV_ID);
    if (id[0] == '\0') { return refuse_field(r, EBB_CSV_ID, "is no name"); }
    r->are_not_counted = r->are_not_counted || !is_behind_last(r, id);
    EBB_TRY(EBB_PUSH(r->file->mem, &r->file->row_text, r->file->texts.n));
    EBB_TRY(EBB_PUSH(r->file->mem, &r->file->line, r->csv->line));
    EBB_TRY(ebb__place_file_add_text(r->file, id));
    for (size_t i = 0; i < r->file->columns.n; i++) {
        if (r->file->columns.data[i].kind != EBB_CSV_OTHER) { continue; }
        EBB_TRY(ebb__place_file_add_text(r->file, ebb__csv_field(r->csv, i)));
    }
    return EBB_OK;
}

static ebb_status read_row(reader *r) {
    ebb_place_item item = {0};
    if (r->csv->field.n != r->file->columns.n) {
        return ebb_fail(EBB_E_FORMAT, "%s:%zu: %zu fields, but %zu columns", r->csv->name, r->csv->line,
                        r->csv->field.n, r->file->columns.n);
    }
    if (r->file->items.n >= MAX_ROWS) { return ebb_fail(EBB_E_LIMIT, "%s: more than 2^31 buffers", r->csv->name); }
    EBB_ASSERT(r->file->line.n == r->file->items.n && r->file->row_text.n == r->file->items.n);
    EBB_TRY(read_texts(r));
    EBB_TRY(read_times(r, &item));
    EBB_TRY(read_size(r, &item));
    EBB_ASSERT(item.first < item.last);
    if (has(r, EBB_CSV_ALIGNMENT)) { EBB_TRY(read_alignment(r)); }
    if (has(r, EBB_CSV_HINT)) { EBB_TRY(read_hint(r)); }
    if (has(r, EBB_CSV_GAPS)) { EBB_TRY(read_gaps(r, &item)); }
    if (has(r, EBB_CSV_OFFSET)) { EBB_TRY(read_offset(r, item.size_bytes)); }
    return EBB_PUSH(r->file->mem, &r->file->items, item);
}

/* Whether all ids so far are different. */
static ebb_status check_ids(const reader *r) {
    ebb_csv_twin twin;
    char shown[EBB_CSV_SHOWN_BYTES];
    if (!r->are_not_counted) { return EBB_OK; }
    EBB_TRY(ebb__csv_find_twin(r->file, &twin));
    if (twin.row == SIZE_MAX) { return EBB_OK; }
    const char *id = r->file->texts.data + r->file->row_text.data[twin.row];
    return ebb_fail(EBB_E_FORMAT, "%s:%zu: %s: '%s' is there already, on line %zu", r->csv->name,
                    r->file->line.data[twin.row], name_of(r, EBB_CSV_ID), ebb__place_file_show(id, shown),
                    r->file->line.data[twin.earlier]);
}

static ebb_status read_rows(reader *r) {
    size_t next_look = FIRST_LOOK;
    for (bool done = false;;) {
        EBB_TRY(ebb__csv_next(r->csv, &done));
        if (done) { break; }
        EBB_TRY(read_row(r));
        if (r->file->line.n < next_look) { continue; }
        EBB_TRY(check_ids(r));
        next_look *= 2;
    }
    EBB_TRY(check_ids(r));
    return check_highest(r);
}

/* The fault on the first line is reported, so ids before any fault after them. */
static ebb_status read_all(reader *r) {
    EBB_TRY(read_columns(r));
    const ebb_status st = read_rows(r);
    if (st != EBB_E_FORMAT) { return st; }
    char *message = ebb__strdup(r->csv->mem, ebb_last_error());
    if (message == NULL) { return EBB_E_NO_MEMORY; }
    const ebb_status ids = check_ids(r);
    if (ids == EBB_OK) { (void)ebb_fail(st, "%s", message); }
    ebb__free(r->csv->mem, message);
    return ids == EBB_OK ? st : ids;
}

ebb_status ebb__place_file_parse(ebb_csv *csv, ebb_place_file **file_out) {
    reader r = {.csv = csv};
    EBB_TRY(ebb__place_file_new(csv->mem, &r.file));
    ebb_status st = read_all(&r);
    EBB_ASSERT(st != EBB_OK || r.file->row_text.n == r.file->items.n);
    if (st != EBB_OK) {
        ebb_place_file_destroy(r.file);
        return st;
    }
    if (!r.file->has_fixed) { EBB_VEC_FINI(r.file->mem, &r.file->line); } /* ids do, where little can be wrong */
    *file_out = r.file;
    return EBB_OK;
}

ebb_status ebb_place_file_read_from(const ebb_mem *mem, const char *name, ebb_place_source source, void *ctx,
                                    ebb_place_file **file_out) {
    EBB_NEED(name);
    EBB_NEED(source);
    EBB_NEED(file_out);
    ebb_csv csv;
    EBB_TRY(ebb__csv_open(mem, name, source, ctx, &csv));
    const ebb_status st = ebb__place_file_parse(&csv, file_out);
    ebb__csv_close(&csv);
    return st;
}

static int64_t read_fd(void *ctx, void *buf, size_t n_bytes) {
    ssize_t n = -1;
    do { n = read(*(const int *)ctx, buf, n_bytes); } while (n < 0 && errno == EINTR);
    return n;
}

ebb_status ebb_place_file_read(const ebb_mem *mem, const char *path, ebb_place_file **file_out) {
    EBB_NEED(path);
    EBB_NEED(file_out);
    int fd = -1;
    EBB_TRY(ebb_path_open_input(path, &fd));
    const ebb_status st = ebb_place_file_read_from(mem, path, read_fd, &fd, file_out);
    (void)close(fd);
    return st;
}
