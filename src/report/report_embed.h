/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that the build made bytes of: the page's parts (src/report/page) and Chart.js, which is empty where the build
 * did not find it. cmake/report.cmake writes their definitions.
 */
#ifndef EBB_SRC_REPORT_EMBED_H
#define EBB_SRC_REPORT_EMBED_H

#include <stddef.h>

typedef struct ebb_report_file {
    const unsigned char *data;
    size_t n_bytes;
} ebb_report_file;

extern const ebb_report_file ebb__report_template, ebb__report_style, ebb__report_script, ebb__report_charts;

#endif
