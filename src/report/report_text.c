/* SPDX-License-Identifier: Apache-2.0
 *
 * The report for a terminal: words first, then the curve as a line of bars, then tables. Lines have the width that was
 * asked for: sentences are broken between words, names are shortened in their middle, numbers are kept whole.
 */
#include "report/report_priv.h"

#include <inttypes.h>

#define MAX_CURVE_BINS 120u
#define MAX_ROWS 12u
#define MIN_NAME_COLUMNS 12u
#define MAX_NAME_COLUMNS 60u

#define ROW_NAME 34u
#define NARROW_ROW_NAME 25u /* leaves room for a number in 40 columns */
#define WIDE_COLUMNS 80u    /* from here on a table has its last column */

typedef struct text {
    const ebb_report *report;
    ebb_report_out *out;
} text;

/* ---- lines ------------------------------------------------------------------------------------ */

static void head(const text *t, const char *title) {
    ebb__report_put(t->out, "\n");
    (void)ebb__report_put_wrapped(t->out, title, 0, 0, t->report->n_columns);
    ebb__report_put(t->out, "\n");
}

/* The columns left for a name in a line that has n columns of other things. */
static size_t name_columns(const text *t, size_t n) {
    const size_t n_left = t->report->n_columns > n + MIN_NAME_COLUMNS ? t->report->n_columns - n : MIN_NAME_COLUMNS;
    return n_left < MAX_NAME_COLUMNS ? n_left : MAX_NAME_COLUMNS;
}

/* Anybody's text in a column of n characters. */
static void put_column(const text *t, const char *name, size_t n) {
    const size_t n_shown = ebb__report_put_clean(t->out, name[0] != '\0' ? name : "(no name)", n);
    for (size_t i = n_shown; i < n; i++) { ebb__report_put(t->out, " "); }
}

static void put_bytes(const text *t, uint64_t bytes) {
    char buf[REPORT_TEXT_BYTES];
    ebb__report_printf(t->out, " %12s", ebb__report_bytes_text(bytes, buf));
}

static void put_share(const text *t, uint64_t part, uint64_t whole) {
    const uint64_t tenths = whole > 0 ? (uint64_t)(1000.0 * (double)part / (double)whole + 0.5) : 0;
    ebb__report_printf(t->out, " %3" PRIu64 ".%" PRIu64 " %%", tenths / 10, tenths % 10);
}

/* "  name", as wide as every table's first column is. */
static void row_name(const text *t, const char *name) {
    ebb__report_put(t->out, "  ");
    put_column(t, name, t->report->n_columns < WIDE_COLUMNS ? NARROW_ROW_NAME : ROW_NAME);
}

static void row_bytes(const text *t, const char *name, uint64_t bytes) {
    char buf[REPORT_TEXT_BYTES];
    row_name(t, name);
    ebb__report_printf(t->out, " %12s", ebb__report_bytes_text(bytes, buf));
    if (bytes != EBB_STUDY_UNKNOWN && t->report->n_columns >= WIDE_COLUMNS) {
        ebb__report_printf(t->out, " %18" PRIu64, bytes);
    }
    ebb__report_put(t->out, "\n");
}

static void row_count(const text *t, const char *name, uint64_t n) {
    row_name(t, name);
    ebb__report_printf(t->out, " %12" PRIu64 "\n", n);
}

static void row_time(const text *t, const char *name, uint64_t ns) {
    char buf[REPORT_TEXT_BYTES];
    /* A micro sign has two bytes and one column. */
    ebb__report_time_text(ns, buf);
    row_name(t, name);
    ebb__report_printf(t->out, " %*s\n", strstr(buf, "\xc2\xb5") != NULL ? 13 : 12, buf);
}

/* ---- sections --------------------------------------------------------------------------------- */

static ebb_status put_title(const text *t, const char *recorded, ebb_bump *bump) {
    const ebb_study_summary *s = &t->report->summary;
    const ebb_trace_device *device = ebb__report_device(t->report);
    char duration[REPORT_TEXT_BYTES] = "";
    if (s->duration_ns != EBB_STUDY_UNKNOWN) { (void)ebb__report_time_text(s->duration_ns, duration); }
    const char *events = ebb__bump_printf(bump, "%" PRIu64 " event%s", s->n_events, s->n_events == 1 ? "" : "s");
    if (events == NULL) { return EBB_E_NO_MEMORY; }
    const char *title = ebb__bump_printf(bump, "%s: %s, %s, %" PRIu64 " block%s%s%s%s%s", t->report->name, recorded,
                                         s->is_moment ? "one moment" : events, s->n_blocks, s->n_blocks == 1 ? "" : "s",
                                         device != NULL ? " of " : "", device != NULL ? device->name : "",
                                         duration[0] != '\0' ? ", " : "", duration);
    if (title == NULL) { return EBB_E_NO_MEMORY; }
    (void)ebb__report_put_wrapped(t->out, title, 0, 2, t->report->n_columns);
    ebb__report_put(t->out, "\n");
    return EBB_OK;
}

static void put_sentence(const text *t, const char *before, const char *sentence) {
    const size_t indent = 2 + strlen(before);
    ebb__report_printf(t->out, "  %s", before);
    (void)ebb__report_put_wrapped(t->out, sentence, indent, indent, t->report->n_columns);
    ebb__report_put(t->out, "\n");
}

/* At most n_rows lines; returns how many are left to the next ones. */
static size_t put_frames(const text *t, char *line, size_t n_rows) {
    for (; n_rows > 0 && *line != '\0'; n_rows--) {
        char *end = line + strcspn(line, "\n");
        const bool is_last = *end == '\0';
        *end = '\0';
        ebb__report_put(t->out, "    ");
        (void)ebb__report_put_clean(t->out, line, t->report->n_columns - 4);
        ebb__report_put(t->out, "\n");
        line = is_last ? end : end + 1;
    }
    return n_rows;
}

static void put_refused(const text *t, const ebb_report_words *words) {
    char called[] = REPORT_CALLEES;
    if (words->refused == NULL) { return; }
    put_sentence(t, "", words->refused);
    size_t n_rows = put_frames(t, words->refused_stack, MAX_ROWS);
    if (words->refused_callees[0] != '\0') { n_rows = put_frames(t, called, n_rows); }
    (void)put_frames(t, words->refused_callees, n_rows);
}

static void put_words(const text *t, const ebb_report_words *words) {
    EBB_ASSERT(words->peak != NULL && words->win != NULL && words->n_causes <= REPORT_MAX_CAUSES);
    head(t, "in short");
    if (words->device != NULL) { put_sentence(t, "", words->device); }
    put_refused(t, words);
    put_sentence(t, "", words->peak);
    for (size_t i = 0; i < words->n_causes; i++) {
        char number[32];
        (void)snprintf(number, sizeof number, "%zu. ", i + 1);
        put_sentence(t, number, words->causes[i]);
    }
    put_sentence(t, "", words->win);
    if (words->unknown != NULL) { put_sentence(t, "", words->unknown); }
    size_t n = 0;
    const ebb_study_tip *tips = ebb_study_advice(t->report->study, &n);
    if (n > 0) { head(t, "what to do"); }
    for (size_t i = 0; i < n; i++) { put_sentence(t, "- ", tips[i].sentence); }
}

static const char *const bars[] = {" ",
                                   "\xe2\x96\x81",
                                   "\xe2\x96\x82",
                                   "\xe2\x96\x83",
                                   "\xe2\x96\x84",
                                   "\xe2\x96\x85",
                                   "\xe2\x96\x86",
                                   "\xe2\x96\x87",
                                   "\xe2\x96\x88"};

static ebb_status put_curve(const text *t) {
    const ebb_study_summary *s = &t->report->summary;
    const size_t n_bins = ebb_min_u64(t->report->n_columns - 4, MAX_CURVE_BINS);
    if (s->n_blocks == 0 || s->is_moment) { return EBB_OK; }
    ebb_study_bin *bins = ebb__alloc(t->report->mem, n_bins, sizeof *bins);
    if (bins == NULL) { return EBB_E_NO_MEMORY; }
    ebb_study_axis axis = EBB_STUDY_BY_TIME;
    const ebb_status status = ebb_study_curve(t->report->study, EBB_STUDY_BY_TIME, n_bins, bins, &axis);
    if (status == EBB_OK) {
        head(t, axis == EBB_STUDY_BY_TIME ? "live bytes over time" : "live bytes over events");
        ebb__report_put(t->out, "  ");
        for (size_t i = 0; i < n_bins; i++) {
            EBB_ASSERT(bins[i].high_bytes <= s->peak_bytes);
            const double share = s->peak_bytes > 0 ? (double)bins[i].high_bytes / (double)s->peak_bytes : 0.0;
            ebb__report_put(t->out, bars[bins[i].high_bytes == 0 ? 0 : 1 + (size_t)(share * 7.0)]);
        }
        ebb__report_put(t->out, "\n");
    }
    ebb__free(t->report->mem, bins);
    return status;
}

static void put_breakdown(const text *t) {
    if (!ebb__report_has_roles(t->report)) { return; }
    const ebb_study_breakdown b = ebb_study_get_breakdown(t->report->study);
    uint64_t all_bytes = 0;
    for (int role = 0; role < EBB_N_ROLES; role++) { all_bytes += b.in_all[role].bytes; }
    const bool is_moment = t->report->summary.is_moment, is_wide = t->report->n_columns >= WIDE_COLUMNS && !is_moment;
    head(t, is_moment           ? "roles                  when it was taken"
            : !is_wide          ? "roles                      at the peak"
            : b.is_of_iteration ? "roles                      at the peak               of an iteration"
                                : "roles                      at the peak            of the recording");
    if (t->report->summary.roles_inferred) {
        const bool by_stacks = ebb__report_tells(t->report, EBB_TRACE_TELLS_STACKS);
        put_sentence(t, "",
                     by_stacks ? "as call stacks and lives tell; the source does not"
                               : "as reads and writes tell; the source does not");
    }
    for (int role = 0; role < EBB_N_ROLES; role++) {
        if (b.at_peak[role].n_blocks == 0 && b.in_all[role].n_blocks == 0) { continue; }
        ebb__report_printf(t->out, "  %-16s", ebb_role_name((ebb_role)role));
        put_bytes(t, b.at_peak[role].bytes);
        put_share(t, b.at_peak[role].bytes, t->report->summary.peak_bytes);
        if (is_wide) {
            ebb__report_put(t->out, "    ");
            put_bytes(t, b.in_all[role].bytes);
            put_share(t, b.in_all[role].bytes, all_bytes);
        }
        ebb__report_put(t->out, "\n");
    }
}

static ebb_status put_holders(const text *t, ebb_bump *bump) {
    const ebb_report_holders found = ebb__report_holders(t->report);
    const bool is_wide = t->report->n_columns >= WIDE_COLUMNS;
    const size_t n_name = name_columns(t, is_wide ? 40 : 24); /* bytes, a share, and where there is room blocks */
    const ebb_report_fold *rows = NULL;
    size_t n = 0;
    if (found.n == 0) { return EBB_OK; }
    EBB_TRY(ebb__report_fold(t->report, found.group, bump, &rows, &n));
    ebb__report_printf(t->out, "\nwho holds %s, by %s\n", t->report->summary.is_moment ? "what is live" : "the peak",
                       found.by);
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        ebb__report_put(t->out, "  ");
        put_column(t, rows[i].label, n_name);
        put_bytes(t, rows[i].bytes);
        put_share(t, rows[i].bytes, t->report->summary.peak_bytes);
        if (is_wide) {
            ebb__report_printf(t->out, " %8" PRIu64 " block%s", rows[i].n_blocks, rows[i].n_blocks == 1 ? "" : "s");
        }
        ebb__report_put(t->out, "\n");
    }
    if (n > MAX_ROWS) { ebb__report_printf(t->out, "  and %zu more\n", n - MAX_ROWS); }
    return EBB_OK;
}

static void put_intervals(const text *t) {
    const ebb_study_times times = ebb_study_intervals(t->report->study, EBB_STUDY_ANY, EBB_STUDY_ANY);
    const ebb_study_swappable swap = ebb_study_get_swappable(t->report->study);
    if (times.count > 0) {
        head(t, "how long blocks lie idle between two accesses");
        row_count(t, "intervals", times.count);
        row_time(t, "half are at most", times.p50_ns);
        row_time(t, "90 % are at most", times.p90_ns);
        row_time(t, "99 % are at most", times.p99_ns);
        row_time(t, "longest", times.max_ns);
    }
    if (!swap.known) { return; }
    head(t, swap.is_of_iteration ? "what could be copied out and back in time, in one iteration"
                                 : "what could be copied out and back in time");
    row_count(t, "blocks", swap.n_blocks);
    row_bytes(t, "their bytes", swap.bytes);
    row_bytes(t, "of that at the peak", swap.bytes_at_peak);
    row_bytes(t, "peak without it", swap.peak_bytes);
}

static void put_fragmentation(const text *t) {
    const ebb_study_fragmentation f = ebb_study_get_fragmentation(t->report->study);
    if (!f.known) { return; }
    head(t, "fragmentation, when most is reserved");
    row_bytes(t, "reserved", f.reserved_peak_bytes);
    row_bytes(t, "live", f.live_bytes);
    row_bytes(t, "lost", f.lost_bytes);
    row_bytes(t, "  to rounding", f.rounding_bytes);
    row_bytes(t, "  beside live blocks in segments", f.pinned_bytes);
    row_bytes(t, "  in empty segments", f.empty_bytes);
    size_t n = 0;
    const ebb_study_holder *pinners = ebb_study_pinners(t->report->study, &n);
    if (n > 0) { head(t, "who keeps free bytes from use"); }
    for (size_t i = 0; i < n && i < MAX_ROWS; i++) {
        ebb__report_put(t->out, "  ");
        put_column(t, pinners[i].label, name_columns(t, t->report->n_columns < WIDE_COLUMNS ? 16 : 40));
        put_bytes(t, pinners[i].bytes);
        ebb__report_put(t->out, "\n");
    }
}

/* A setting of PyTorch's allocator that changes nothing. */
static bool is_same_as_plain(const ebb_study_what_if *row, const ebb_study_what_if *rows, size_t n) {
    if (strncmp(row->key, "pytorch:", strlen("pytorch:")) != 0) { return false; }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(rows[i].key, "pytorch") == 0) { return rows[i].bytes == row->bytes; }
    }
    return false;
}

/* After the bytes; in a narrow terminal on lines of its own. */
static void put_about(const text *t, const char *about, bool of_iteration) {
    const bool is_wide = t->report->n_columns >= WIDE_COLUMNS;
    const size_t indent = is_wide ? 2 + ROW_NAME + 13 + 2 : 4;
    ebb__report_put(t->out, is_wide ? "  " : "\n    ");
    size_t at = ebb__report_put_wrapped(t->out, about, indent, indent, t->report->n_columns);
    if (of_iteration) {
        (void)ebb__report_put_wrapped(t->out, " (of one iteration)", at, indent, t->report->n_columns);
    }
    ebb__report_put(t->out, "\n");
}

static void put_what_ifs(const text *t) {
    size_t n = 0, n_known = 0, n_same = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(t->report->study, &n);
    for (size_t i = 0; i < n; i++) { n_known += rows[i].bytes != EBB_STUDY_UNKNOWN; }
    if (n_known < 2) { return; } /* the peak alone, which has been said */
    head(t, "what it would be");
    for (size_t i = 0; i < n; i++) {
        if (rows[i].bytes == EBB_STUDY_UNKNOWN) { continue; }
        if (is_same_as_plain(&rows[i], rows, n)) {
            n_same++;
            continue;
        }
        row_name(t, rows[i].key);
        put_bytes(t, rows[i].bytes);
        put_about(t, rows[i].about, rows[i].of_iteration);
    }
    if (n_same == 0) { return; }
    char same[64];
    (void)snprintf(same, sizeof same, "pytorch with %zu other setting%s: the same", n_same, n_same == 1 ? "" : "s");
    put_sentence(t, "", same);
}

static void put_iteration(const text *t) {
    const ebb_iteration iteration = ebb_study_get_iteration(t->report->study);
    head(t, "iteration");
    if (!iteration.found) {
        static const char *const words[] = {"none was found", "none: forward passes only, no optimizer stepped",
                                            "none: forward and backward, but no optimizer stepped",
                                            "none was found, though an optimizer stepped"};
        EBB_ASSERT((unsigned)iteration.work < sizeof words / sizeof *words);
        put_sentence(t, "", words[iteration.work]);
        return;
    }
    row_count(t, "first event", iteration.first_event);
    row_count(t, "events", iteration.length_events);
    row_count(t, "times", iteration.count);
    for (uint32_t row = 0; row < REPORT_MAX_STALLS; row++) {
        ebb_report_stall stall;
        char name[64];
        if (!ebb__report_stall(t->report, row, &stall)) { continue; }
        (void)snprintf(name, sizeof name, "%.40s waits for others", stall.engine);
        row_time(t, name, stall.ns);
    }
    if (iteration.count == 1) { /* from a mark; there is nothing to be confident of */
        put_sentence(t, "", "one pass, as marked; nothing is repeated");
        return;
    }
    row_name(t, "confidence");
    ebb__report_printf(t->out, " %10d %%\n", (int)(100.0 * iteration.confidence + 0.5));
}

ebb_status ebb__report_render_text(ebb_report *report, ebb_report_out *out) {
    EBB_TRY(ebb__report_read(report));
    const text t = {.report = report, .out = out};
    ebb_bump bump;
    ebb_report_words words;
    ebb__bump_init(&bump, report->mem);
    ebb_status status = ebb__report_words(report, &bump, &words);
    if (status == EBB_OK) { status = put_title(&t, words.title, &bump); }
    if (status == EBB_OK) {
        put_words(&t, &words);
        status = put_curve(&t);
    }
    if (status == EBB_OK) {
        put_breakdown(&t);
        status = put_holders(&t, &bump);
    }
    if (status == EBB_OK) {
        put_intervals(&t);
        put_fragmentation(&t);
        put_what_ifs(&t);
        if (!report->summary.is_moment) { put_iteration(&t); }
    }
    ebb__bump_fini(&bump);
    return status;
}
