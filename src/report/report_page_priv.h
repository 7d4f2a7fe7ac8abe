/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files that make the page share: the object that its script reads is written member by member into `json`,
 * with the texts and frames that members name by number collected on the way and written last.
 *
 * The page stays below 5 MB however long the recording is: every list has a greatest length, which is stated where the
 * list is made; what has no room of its own in a picture is drawn into a grid here.
 */
#ifndef EBB_SRC_REPORT_PAGE_PRIV_H
#define EBB_SRC_REPORT_PAGE_PRIV_H

#include "report/report_priv.h"
#include "base/u64_map.h"

/* Distinct keys, numbered from 0 in the order in which they came. */
typedef struct ebb_report_index {
    ebb_u64_map number_of;
    EBB_VEC(uint64_t) keys;
} ebb_report_index;

void ebb__report_index_init(ebb_report_index *index, const ebb_mem *mem);
void ebb__report_index_fini(ebb_report_index *index);

typedef struct ebb_report_page {
    ebb_report *report;
    const ebb_mem *mem;
    ebb_json json;
    bool by_time;            /* x is ns since the beginning; else the number of an event */
    uint64_t end;            /* of x */
    ebb_report_index texts;  /* addresses of texts that live as long as the study */
    ebb_report_index frames; /* stacks of the reader */
    size_t text_bytes;       /* of texts so far */
    ebb_bump bump;           /* texts that are made for the page */
} ebb_report_page;

/* Number of a text, or -1: "" and, when there are too many, any. */
ebb_status ebb__report_page_text(ebb_report_page *page, const char *text, int64_t *number_out);
/* Number of a stack whose frames the page has, or -1. */
ebb_status ebb__report_page_stack(ebb_report_page *page, uint32_t stack, int64_t *number_out);

void ebb__report_page_i64(ebb_report_page *page, const char *key, int64_t value);

/* x of a moment. */
uint64_t ebb__report_page_x(const ebb_report_page *page, uint64_t time_ns, uint64_t event);

/* The member "blocks". */
ebb_status ebb__report_put_blocks(ebb_report_page *page);

/* Where each block lies in the picture: y_out[n_blocks], EBB_TRACE_NONE for those that are not drawn; *top_out: above
 * all. Writes the member "pieces", which says what address a y stands for. */
ebb_status ebb__report_put_addresses(ebb_report_page *page, uint64_t *y_out, uint64_t *top_out);

/* The members "held", the segments over time, and "rows", the names of streams. */
ebb_status ebb__report_put_held(ebb_report_page *page);

/* The whole object. */
ebb_status ebb__report_put_page(ebb_report_page *page);

#endif
