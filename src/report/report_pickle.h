/* SPDX-License-Identifier: Apache-2.0
 *
 * The opcodes of pickles as PyTorch's memory viewer knows them, into a report.
 */
#ifndef EBB_SRC_REPORT_PICKLE_H
#define EBB_SRC_REPORT_PICKLE_H

#include "report/report_priv.h"

typedef struct ebb_report_pickle {
    ebb_report_out *out;
    uint32_t n_memo; /* entries */
} ebb_report_pickle;

/* An opcode, or a byte of one. */
void ebb__report_pickle_op(ebb_report_pickle *pickle, uint8_t byte);

/* Memoise what was written last; the entry's number plus one. */
uint32_t ebb__report_pickle_memoize(ebb_report_pickle *pickle);

/* The memo's entry, a number plus one. */
void ebb__report_pickle_get(ebb_report_pickle *pickle, uint32_t entry);

void ebb__report_pickle_u64(ebb_report_pickle *pickle, uint64_t x);
void ebb__report_pickle_minus_one(ebb_report_pickle *pickle);

/* Not memoised. A byte that is of no character of UTF-8 is a question mark. */
void ebb__report_pickle_text(ebb_report_pickle *pickle, const char *text);

/* A text that comes often: memoised the first time, when *entry is 0. */
void ebb__report_pickle_again(ebb_report_pickle *pickle, const char *text, uint32_t *entry);

#endif
