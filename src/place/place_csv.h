/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement file inside: what is kept of it, and how its records and its columns are read.
 */
#ifndef EBB_SRC_PLACE_CSV_H
#define EBB_SRC_PLACE_CSV_H

#include "base/base.h"
#include "ebb/place_file.h"

/* ---- what is kept ----------------------------------------------------------------------------- */

typedef enum ebb_csv_kind {
    EBB_CSV_ID,
    EBB_CSV_LOWER,
    EBB_CSV_UPPER, /* or "end", which is one less */
    EBB_CSV_SIZE,
    EBB_CSV_N_NEEDED, /* the columns above must be there */
    EBB_CSV_ALIGNMENT = EBB_CSV_N_NEEDED,
    EBB_CSV_HINT,
    EBB_CSV_GAPS,
    EBB_CSV_OFFSET,
    EBB_CSV_N_KNOWN,
    EBB_CSV_OTHER = EBB_CSV_N_KNOWN, /* kept as it is */
} ebb_csv_kind;

#define EBB_CSV_MAX_COLUMNS 256u /* besides the one of offsets, which an answer has more than its problem */
#define EBB_CSV_NO_COLUMN UINT32_MAX

typedef struct ebb_csv_column {
    ebb_csv_kind kind;
    size_t name; /* where in names */
} ebb_csv_column;

/* Arrays of one element an item where their column is there, else empty. A row's texts, its id and then its unknown
 * columns in order, stand one behind the other from row_text on, each with its NUL. */
struct ebb_place_file {
    const ebb_mem *mem;
    EBB_VEC(ebb_csv_column) columns;
    EBB_VEC(char) names;
    bool inclusive; /* the upper column is called "end" */
    EBB_VEC(ebb_place_item) items;
    EBB_VEC(uint64_t) alignments;
    EBB_VEC(uint64_t) hints; /* EBB_PLACE_ANYWHERE: none */
    EBB_VEC(uint64_t) fixed;
    EBB_VEC(ebb_place_gap) gaps;
    EBB_VEC(char) texts;
    EBB_VEC(size_t) row_text;
    bool has_alignments, has_fixed, has_hints; /* some item has one that is not the default */
    uint64_t alignment_bytes, period;
};

ebb_status ebb__place_file_new(const ebb_mem *mem, ebb_place_file **file_out);
ebb_status ebb__place_file_add_column(ebb_place_file *file, ebb_csv_kind kind, const char *name);
/* Append a text to the row at hand. */
ebb_status ebb__place_file_add_text(ebb_place_file *file, const char *text);

/* The item without a circle: one that lives around the end of the circle lives through all of it, but for the gap
 * *around_out, which is empty where it does not. */
ebb_place_item ebb__place_file_unwind(const ebb_place_file *file, size_t item, ebb_place_gap *around_out);

/* EBB_E_ARGUMENT: of an answer, an item that ends beyond what a file can say. */
ebb_status ebb__place_file_check_ends(const ebb_place_file *file, const uint64_t *offsets);

/* ---- records ---------------------------------------------------------------------------------- */

/* Comma-separated values record by record, from a source or from memory. */
typedef struct ebb_csv {
    const ebb_mem *mem;
    const char *name;
    ebb_place_source source; /* NULL: all is in memory */
    void *source_ctx;
    char *buf; /* NULL: the bytes are the caller's */
    const char *at, *end;
    bool eof;
    size_t line;        /* on which the record at hand begins */
    size_t next_line;   /* on which the next one does */
    EBB_VEC(char) text; /* of the record's fields, each with its NUL */
    EBB_VEC(size_t) field;
    bool any_quoted;
} ebb_csv;

ebb_status ebb__csv_open(const ebb_mem *mem, const char *name, ebb_place_source source, void *ctx, ebb_csv *csv_out);
ebb_status ebb__csv_open_memory(const ebb_mem *mem, const char *name, const char *data, size_t n_bytes,
                                ebb_csv *csv_out);
void ebb__csv_close(ebb_csv *csv);

/* The next record that is not an empty line; *done_out: there is none. EBB_E_FORMAT names the line. */
ebb_status ebb__csv_next(ebb_csv *csv, bool *done_out);

static inline const char *ebb__csv_field(const ebb_csv *csv, size_t idx) {
    return csv->text.data + csv->field.data[idx];
}

/* ---- reading ---------------------------------------------------------------------------------- */

/* Read all records as a placement file. */
ebb_status ebb__place_file_parse(ebb_csv *csv, ebb_place_file **file_out);

/* ---- the names of rows ------------------------------------------------------------------------ */

typedef struct ebb_csv_twin {
    size_t row, earlier; /* row: SIZE_MAX where there is none */
} ebb_csv_twin;

/* The first row that has the id of an earlier one. O(n log n) whatever the ids are. */
ebb_status ebb__csv_find_twin(const ebb_place_file *file, ebb_csv_twin *twin_out);

#endif
