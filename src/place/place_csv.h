/* SPDX-License-Identifier: Apache-2.0
 *
 * The placement file inside: what is kept of it, and how its columns are read.
 */
#ifndef EBB_SRC_PLACE_CSV_H
#define EBB_SRC_PLACE_CSV_H

#include "base/csv.h"
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

#define EBB_CSV_NO_COLUMN UINT32_MAX

typedef struct ebb_csv_column {
    ebb_csv_kind kind;
    size_t name; /* where in names */
} ebb_csv_column;

/* Arrays of one element an item where their column is there, else empty. A row's texts, its id and then its unknown
 * columns in order, stand one after the other from row_text on, each with its NUL. */
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
    EBB_VEC(size_t) line;                      /* of each row; empty where it is not known, or kept */
    bool has_alignments, has_fixed, has_hints; /* some item has one that is not the default */
    uint64_t alignment_bytes, period;
};

ebb_status ebb__place_file_new(const ebb_mem *mem, ebb_place_file **file_out);
ebb_status ebb__place_file_add_column(ebb_place_file *file, ebb_csv_kind kind, const char *name);
/* Append a text to the row at hand. */
ebb_status ebb__place_file_add_text(ebb_place_file *file, const char *text);

/* A text of a file for a message: on one line, and not all of it if it is long. */
#define EBB_CSV_SHOWN_BYTES 48u
const char *ebb__place_file_show(const char *text, char buf[EBB_CSV_SHOWN_BYTES]);

/* The item without a circle: one that lives around the end of the circle lives through all of it, but for the gap
 * *around_out, which is empty where it does not. */
ebb_place_item ebb__place_file_unwind(const ebb_place_file *file, size_t item, ebb_place_gap *around_out);

/* EBB_E_ARGUMENT: of an answer, an item that ends beyond what a file can say. */
ebb_status ebb__place_file_check_ends(const ebb_place_file *file, const uint64_t *offsets);

/* ---- reading ---------------------------------------------------------------------------------- */

/* Read all records as a placement file. */
ebb_status ebb__place_file_parse(ebb_csv *csv, ebb_place_file **file_out);

/* ---- the names of rows ------------------------------------------------------------------------ */

typedef struct ebb_csv_twin {
    size_t row, earlier; /* row: SIZE_MAX if none exists */
} ebb_csv_twin;

/* The first row that has the id of an earlier one. O(n log n) whatever the ids are. */
ebb_status ebb__csv_find_twin(const ebb_place_file *file, ebb_csv_twin *twin_out);

#endif
