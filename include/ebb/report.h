/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports about the memory of a recorded run, for people (text, a page for the browser) and for programs (JSON,
 * Perfetto, PyTorch's memory viewer). docs/report.md describes them.
 */
#ifndef EBB_REPORT_H
#define EBB_REPORT_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_report ebb_report;

typedef struct ebb_report_options {
    size_t size_bytes;
    const ebb_mem *mem;
    const char *name;       /* what the report calls the recording; NULL: the file's name */
    double out_bytes_per_s; /* of the links, to compute what could leave; 0: the study's defaults */
    double in_bytes_per_s;
    uint64_t latency_ns;  /* of each copy, before its first byte */
    const char *temp_dir; /* as of ebb_trace_open_any; copied */
    const char
        *device; /* as of ebb_trace_open_device; copied. NULL: the default device; memory-viz then shows all devices */
    uint32_t n_columns;    /* the longest line of the text, at least 40; 0: 100 */
    ebb_progress progress; /* told how far the recording is read */
} ebb_report_options;
#define EBB_REPORT_OPTIONS_INIT EBB_INIT(ebb_report_options, )

/* A report on the recording at path, in any format that ebb_trace_open_any takes. The file is read when a report is
 * written, so it must stay there until then. options may be NULL. EBB_E_ARGUMENT: options of another version.
 */
EBB_API ebb_status ebb_report_create(const char *path, const ebb_report_options *options, ebb_report **report_out);
EBB_API void ebb_report_destroy(ebb_report *report);

/* The name of the i-th format and a line about it; NULL after the last. Static. */
EBB_API const char *ebb_report_format_name(size_t i, const char **about_out);

/* Whether this build writes that format. EBB_E_ARGUMENT: there is no format of this name. EBB_E_UNSUPPORTED: the
 * message says what is missing from this build. */
EBB_API ebb_status ebb_report_check_format(const char *format);

/* Takes the report, piece by piece. If it returns another status than EBB_OK, writing ends with that status. */
typedef ebb_status (*ebb_report_sink)(void *ctx, const void *data, size_t n_bytes);

/* Write the report in the format of this name. Fails as ebb_report_check_format, and with EBB_E_IO or EBB_E_FORMAT if
 * the recording cannot be read, and EBB_E_UNSUPPORTED if its format or version is not known. After a failure the sink
 * has got a part of a report. */
EBB_API ebb_status ebb_report_write(ebb_report *report, const char *format, ebb_report_sink sink, void *ctx);

/* false: the recording was cut off, so its peak may have been higher. Known only after something was written; before
 * that it is true. */
EBB_API bool ebb_report_is_complete(const ebb_report *report);

/* The same to a file, which is written completely or not at all. */
EBB_API ebb_status ebb_report_save(ebb_report *report, const char *format, const char *path);

#ifdef __cplusplus
}
#endif

#endif
