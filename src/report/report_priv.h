/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this folder share: the report, the table of its renderers, and `ebb_report_out`, the buffer that
 * they write to. It remembers the sink's first failure, so that each word need not be checked.
 *
 * Names in recordings are anybody's bytes. Whatever goes out as text goes through put_clean, ebb_json_text or
 * put_html_text.
 */
#ifndef EBB_SRC_REPORT_PRIV_H
#define EBB_SRC_REPORT_PRIV_H

#include "base/base.h"
#include "ebb/json.h"
#include "ebb/report.h"
#include "ebb/study.h"

#define REPORT_BUFFER_BYTES ((size_t)1 << 16)

/* ---- output ----------------------------------------------------------------------------------- */

typedef struct ebb_report_out {
    ebb_report_sink sink;
    void *ctx;
    ebb_status status; /* of the first failure; nothing is written after it */
    uint64_t n_total;  /* bytes so far */
    size_t n;          /* in the buffer */
    char buffer[REPORT_BUFFER_BYTES];
} ebb_report_out;

void ebb__report_put(ebb_report_out *out, const char *text);
void ebb__report_put_n(ebb_report_out *out, const void *data, size_t n_bytes);
void ebb__report_printf(ebb_report_out *out, const char *fmt, ...)
    EBB_PRINTF(2, 3); /* no floats: their point is the locale's */

/* Write text for a terminal, with '?' for invalid UTF-8 and control characters. Of more than max_chars characters (0:
 * no limit) the middle is left out, since the end of a path says most. Returns how many characters were written. */
size_t ebb__report_put_clean(ebb_report_out *out, const char *text, size_t max_chars);

/* The same in lines of at most n_columns, broken between words and where the text has a newline. The first line begins
 * in column `at`, the others in column indent. A word that is longer than a line is shortened. Returns the column after
 * the text. */
size_t ebb__report_put_wrapped(ebb_report_out *out, const char *text, size_t at, size_t indent, size_t n_columns);

/* Escaped for HTML, between tags and in attributes. */
void ebb__report_put_html_text(ebb_report_out *out, const char *text);

/* Hand over what is in the buffer; the first failure's status. */
ebb_status ebb__report_flush(ebb_report_out *out);

/* ---- JSON ------------------------------------------------------------------------------------- */

#define REPORT_PICTURE_DIGITS 7 /* enough for what is drawn */

/* A writer to out, fit for a script of a page. Its keys are ours, not a recording's. */
ebb_json ebb__report_json(ebb_report_out *out);

/* ---- numbers for people ------------------------------------------------------------------------ */

/* "12.3 µs" into buf, which has REPORT_TEXT_BYTES; "unknown" for EBB_STUDY_UNKNOWN. Returns buf. */
#define REPORT_TEXT_BYTES 32
char *ebb__report_time_text(uint64_t ns, char *buf);
char *ebb__report_bytes_text(uint64_t bytes, char *buf); /* the same for bytes */

/* ---- the report and its renderers -------------------------------------------------------------- */

struct ebb_report {
    const ebb_mem *mem;
    char *path, *name, *temp_dir, *device; /* the last two may be NULL */
    double out_bytes_per_s, in_bytes_per_s;
    uint64_t latency_ns;
    uint32_t n_columns; /* of a text */
    ebb_progress progress;
    ebb_trace_reader *reader; /* of the study; NULL before it is made */
    ebb_study *study;
    ebb_study_summary summary;
};

/* Make report->study, unless it is there. */
ebb_status ebb__report_read(ebb_report *report);
/* A reader of its own for the report's recording and device. */
ebb_status ebb__report_open(const ebb_report *report, ebb_trace_reader **reader_out);

/* The device that the report is of, and all that are known; NULL: the source tells none. */
const ebb_trace_device *ebb__report_device(const ebb_report *report);
const ebb_trace_device *ebb__report_devices(const ebb_report *report, size_t *n_out);
/* What an import left out: names with commas; NULL: nothing. */
const char *ebb__report_left_out(const ebb_report *report);

/* How long a row's engine waited for others in an iteration, as the recording notes it; false: it does not. */
typedef struct ebb_report_stall {
    const char *engine;
    uint64_t ns;
} ebb_report_stall;
#define REPORT_MAX_STALLS 16u /* rows that may have one */
bool ebb__report_stall(const ebb_report *report, uint32_t row, ebb_report_stall *stall_out);

/* Whether the recording tells a thing, by its EBB_TRACE_TELLS_. */
bool ebb__report_tells(const ebb_report *report, uint32_t bit);

/* Whether roles are told or inferred. */
bool ebb__report_has_roles(const ebb_report *report);

/* The grouping of holders that says most: call sites, else modules, names; none: roles are all there is. */
typedef struct ebb_report_holders {
    ebb_study_group group;
    const char *by; /* "site", "module", "name", "role" */
    const ebb_study_holder *holders;
    size_t n;
} ebb_report_holders;
ebb_report_holders ebb__report_holders(const ebb_report *report);

/* Holders of one group as rows, in a bump; those of equal layers are one, "h.*.attn x24". */
typedef struct ebb_report_fold {
    const char *label;
    uint64_t bytes, n_blocks;
    uint64_t role_bytes[EBB_N_ROLES];
    const ebb_study_holder *const *members;
    size_t n_members;
} ebb_report_fold;
ebb_status ebb__report_fold(const ebb_report *report, ebb_study_group group, ebb_bump *bump,
                            const ebb_report_fold **rows_out, size_t *n_out);

/* A few words about the recorded program, from the bump; NULL: no memory. */
const char *ebb__report_title(const ebb_report *report, ebb_bump *bump);

/* The first section, in plain words: sentences in a bump. */
#define REPORT_MAX_CAUSES 3u
#define REPORT_CALLEES "which called, the innermost first:"
#define REPORT_STACK_BYTES 2048 /* of a stack that is told at once; cut at a line */
typedef struct ebb_report_words {
    const char *title;     /* what was recorded */
    const char *device;    /* which one this is, and which others there are; NULL: there is one */
    const char *refused;   /* the last allocation that was not to be had; NULL: none */
    char *refused_stack;   /* whose, a frame a line, from the program's own frame outwards */
    char *refused_callees; /* what that frame called, the innermost first; "": nothing */
    const char *peak;
    const char *causes[REPORT_MAX_CAUSES];
    size_t n_causes;
    const char *win;     /* the largest thing that could leave for free */
    const char *unknown; /* what the source does not tell; NULL: it tells all */
} ebb_report_words;
ebb_status ebb__report_words(const ebb_report *report, ebb_bump *bump, ebb_report_words *words_out);

/* A way to write a report. It writes to out and returns the status of what else can fail (reading the recording,
 * memory); out remembers its own. */
typedef struct ebb_report_renderer {
    const char *name, *about;
    ebb_status (*render)(ebb_report *report, ebb_report_out *out);
    ebb_status (*check)(void); /* whether this build can; NULL: every build */
} ebb_report_renderer;

ebb_status ebb__report_render_text(ebb_report *report, ebb_report_out *out);
ebb_status ebb__report_render_json(ebb_report *report, ebb_report_out *out);
ebb_status ebb__report_check_html(void);
ebb_status ebb__report_render_html(ebb_report *report, ebb_report_out *out);
ebb_status ebb__report_render_perfetto(ebb_report *report, ebb_report_out *out);
ebb_status ebb__report_render_memory_viz(ebb_report *report, ebb_report_out *out);

/* The object of --json, as a member of an open object or outermost (key NULL). */
ebb_status ebb__report_put_json(ebb_report *report, ebb_json *json, const char *key);

#endif
