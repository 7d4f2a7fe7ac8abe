/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement files written: the columns as they were read, numbers afresh, with the offsets of an answer.
 */
#include "base/file.h"
#include "place/place_csv.h"

typedef struct writer {
    ebb_file_writer *out; /* remembers its first failure; commit tells it */
    const ebb_place_file *file;
    const uint64_t *offsets;
    size_t gap; /* the next one to write: they are in order of items */
    /* For the current row: */
    ebb_place_item life;
    ebb_place_gap around;
    const char *text; /* the next one that is kept as it was */
} writer;

static void put(writer *w, const char *text) {
    (void)ebb__file_writer_write(w->out, text, strlen(text));
}

static void put_u64(writer *w, uint64_t x) {
    char digits[24], *at = digits + sizeof digits;
    do {
        *--at = (char)('0' + x % 10);
        x /= 10;
    } while (x > 0);
    (void)ebb__file_writer_write(w->out, at, (size_t)(digits + sizeof digits - at));
}

/* In quotes where it must be: a mark of byte order that is text looks like the file's. */
static void put_text(writer *w, const char *text) {
    if (text[strcspn(text, ",\"\r\n")] == '\0' && strncmp(text, "\xef\xbb\xbf", 3) != 0) {
        put(w, text);
        return;
    }
    put(w, "\"");
    for (const char *at = text; *at != '\0';) {
        const size_t n_plain = strcspn(at, "\"");
        (void)ebb__file_writer_write(w->out, at, n_plain);
        at += n_plain;
        if (*at == '"') {
            put(w, "\"\"");
            at++;
        }
    }
    put(w, "\"");
}

static void put_upper(writer *w, uint64_t last) {
    EBB_ASSERT(last > 0);
    put_u64(w, w->file->inclusive ? last - 1 : last);
}

static void put_gap(writer *w, const ebb_place_gap *gap) {
    EBB_ASSERT(gap->first < gap->last && gap->low_bytes <= gap->high_bytes);
    put_u64(w, gap->first);
    put(w, "-");
    put_upper(w, gap->last);
    if (gap->low_bytes == gap->high_bytes) { return; }
    put(w, "@");
    put_u64(w, gap->low_bytes);
    put(w, ":");
    put_u64(w, gap->high_bytes);
}

static void put_gaps(writer *w, size_t row) {
    if (w->around.first < w->around.last) { put_gap(w, &w->around); }
    for (bool first = true; w->gap < w->file->gaps.n && w->file->gaps.data[w->gap].item == row; first = false) {
        if (!first) { put(w, " "); }
        put_gap(w, &w->file->gaps.data[w->gap++]);
    }
}

static void put_hint(writer *w, uint64_t hint) {
    if (hint >= (uint64_t)1 << 63) { /* no file has offsets there */
        put(w, "-1");
    } else {
        put_u64(w, hint);
    }
}

static void put_field(writer *w, ebb_csv_kind kind, size_t row) {
    const ebb_place_file *file = w->file;
    EBB_ASSERT(row < file->items.n);
    switch (kind) {
    case EBB_CSV_ID: put_text(w, ebb_place_file_id(file, row)); break;
    case EBB_CSV_LOWER: put_u64(w, w->life.first); break;
    case EBB_CSV_UPPER: put_upper(w, w->life.last); break;
    case EBB_CSV_SIZE: put_u64(w, w->life.size_bytes); break;
    case EBB_CSV_ALIGNMENT: put_u64(w, file->alignments.data[row]); break;
    case EBB_CSV_HINT: put_hint(w, file->hints.data[row]); break;
    case EBB_CSV_GAPS: put_gaps(w, row); break;
    case EBB_CSV_OFFSET: put_u64(w, w->offsets[row]); break;
    case EBB_CSV_OTHER:
        put_text(w, w->text);
        w->text += strlen(w->text) + 1;
        break;
    }
}

static bool has_offset(const ebb_place_file *file) {
    for (size_t c = 0; c < file->columns.n; c++) {
        if (file->columns.data[c].kind == EBB_CSV_OFFSET) { return true; }
    }
    return false;
}

static void put_columns(writer *w, bool with_offset) {
    for (size_t c = 0; c < w->file->columns.n; c++) {
        if (c > 0) { put(w, ","); }
        put_text(w, w->file->names.data + w->file->columns.data[c].name);
    }
    put(w, with_offset ? ",offset\n" : "\n");
}

static void put_row(writer *w, size_t row, bool with_offset) {
    w->life = ebb__place_file_unwind(w->file, row, &w->around);
    EBB_ASSERT(w->life.first < w->life.last);
    w->text = ebb_place_file_id(w->file, row);
    w->text += strlen(w->text) + 1;
    for (size_t c = 0; c < w->file->columns.n; c++) {
        if (c > 0) { put(w, ","); }
        put_field(w, w->file->columns.data[c].kind, row);
    }
    if (with_offset) {
        put(w, ",");
        put_u64(w, w->offsets[row]);
    }
    put(w, "\n");
}

ebb_status ebb_place_file_write(const ebb_place_file *file, const uint64_t *offsets, const char *path) {
    EBB_NEED(file);
    EBB_NEED_ARRAY(offsets, file->items.n);
    EBB_NEED(path);
    writer w = {.file = file, .offsets = offsets};
    const bool with_offset = !has_offset(file);
    EBB_TRY(ebb__place_file_check_ends(file, offsets));
    EBB_TRY(ebb__file_writer_open(file->mem, path, 0, &w.out));
    put_columns(&w, with_offset);
    for (size_t row = 0; row < file->items.n; row++) { put_row(&w, row, with_offset); }
    EBB_ASSERT(w.gap == file->gaps.n);
    return ebb__file_writer_commit(w.out);
}
