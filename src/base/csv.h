/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated values record by record, from whatever gives bytes, or from memory.
 */
#ifndef EBB_SRC_CSV_H
#define EBB_SRC_CSV_H

#include "base/base.h"

#define EBB_CSV_MAX_COLUMNS 256u /* and one that an answer has more than its problem */

/* Up to n_bytes into buf; 0 at the end, -1 with errno on failure. */
typedef int64_t (*ebb_csv_source)(void *ctx, void *buf, size_t n_bytes);

typedef struct ebb_csv {
    const ebb_mem *mem;
    const char *name;
    ebb_csv_source source; /* NULL: all is in memory */
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

ebb_status ebb__csv_open(const ebb_mem *mem, const char *name, ebb_csv_source source, void *ctx, ebb_csv *csv_out);
ebb_status ebb__csv_open_memory(const ebb_mem *mem, const char *name, const char *data, size_t n_bytes,
                                ebb_csv *csv_out);
void ebb__csv_close(ebb_csv *csv);

/* The next record that is not an empty line; *done_out: none. EBB_E_FORMAT names the line. */
ebb_status ebb__csv_next(ebb_csv *csv, bool *done_out);

static inline const char *ebb__csv_field(const ebb_csv *csv, size_t idx) {
    return csv->text.data + csv->field.data[idx];
}

#endif
