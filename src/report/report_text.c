/* SPDX-License-Identifier: Apache-2.0
 *
 * The report for a terminal: words first, then the curve as a line of bars, then tables. Lines are at most some 100
 * columns wide; long names are cut in the middle of nothing, at their end.
 */
#include "report/report_priv.h"

#include <inttypes.h>

#define N_CURVE_BINS 80u
#define MAX_ROWS 12u
#define NAME_COLUMNS 48u

typedef struct text {
    const ebb_report *report;
    ebb_report_out *out;
} text;

/* ---- lines ------------------------------------------------------------------------------------ */

static void head(const text *t, const char *title) {
    ebb__report_printf(t->out, "\n%s\n", title);
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

static void row_bytes(const text *t, const char *name, uint64_t bytes) {
    char buf[REPORT_TEXT_BYTES];
    ebb__report_printf(t->out, "  %-34s %12s", name, ebb__report_bytes_text(bytes, buf));
    if (bytes != EBB_STUDY_UNKNOWN) { ebb__report_printf(t->out, " %18" PRIu64, bytes); }
    ebb__report_put(t->out, "\n");
}

static void row_count(const text *t, const char *name, uint64_t n) {
    ebb__report_printf(t->out, "  %-34s %12" PRIu64 "\n", name, n);
}

static void row_time(const text *t, const char *name, uint64_t ns) {
    char buf[REPORT_TEXT_BYTES];
    /* A micro sign has two bytes and one column. */
    ebb__report_time_text(ns, buf);
    ebb__report_printf(t->out, "  %-34s %*s\n", name, strstr(buf, "\xc2\xb5") != NULL ? 13 : 12, buf);
}

/* ---- sections --------------------------------------------------------------------------------- */

static void put_title(const text *t) {
    const ebb_study_summary *s = &t->report->summary;
    (void)ebb__report_put_clean(t->out, t->report->name, 0);
    ebb__report_put(t->out, ": ");
    (void)ebb__report_put_clean(t->out, s->source[0] != '\0' ? s->source : "source unknown", 0);
    ebb__report_printf(t->out, ", %" PRIu64 " event%s, %" PRIu64 " block%s", s->n_events, s->n_events == 1 ? "" : "s",
                       s->n_blocks, s->n_blocks == 1 ? "" : "s");
    const ebb_trace_device *device = ebb__report_device(t->report);
    if (device != NULL) {
        ebb__report_put(t->out, " of ");
        (void)ebb__report_put_clean(t->out, device->name, 0);
    }
    if (s->duration_ns != EBB_STUDY_UNKNOWN) {
        char buf[REPORT_TEXT_BYTES];
        ebb__report_printf(t->out, ", %s", ebb__report_time_text(s->duration_ns, buf));
    }
    ebb__report_put(t->out, "\n");
}

static void put_sentence(const text *t, const char *before, const char *sentence) {
    ebb__report_printf(t->out, "  %s", before);
    (void)ebb__report_put_clean(t->out, sentence, 0);
    ebb__report_put(t->out, "\n");
}

static void put_refused(const text *t, const ebb_report_words *words) {
    if (words->refused == NULL) { return; }
    put_sentence(t, "", words->refused);
    char *line = words->refused_stack;
    for (size_t i = 0; i < MAX_ROWS && *line != '\0'; i++) {
        char *end = line + strcspn(line, "\n");
        const bool is_last = *end == '\0';
        *end = '\0';
        put_sentence(t, "  ", line);
        line = is_last ? end : end + 1;
    }
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
    if (s->n_blocks == 0) { return EBB_OK; }
    ebb_study_bin *bins = ebb__alloc(t->report->mem, N_CURVE_BINS, sizeof *bins);
    if (bins == NULL) { return EBB_E_NO_MEMORY; }
    ebb_study_axis axis = EBB_STUDY_BY_TIME;
    const ebb_status status = ebb_study_curve(t->report->study, EBB_STUDY_BY_TIME, N_CURVE_BINS, bins, &axis);
    if (status == EBB_OK) {
        head(t, axis == EBB_STUDY_BY_TIME ? "live bytes over time" : "live bytes over events");
        ebb__report_put(t->out, "  ");
        for (size_t i = 0; i < N_CURVE_BINS; i++) {
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
    if (!ebb__report_tells(t->report, EBB_TRACE_TELLS_ROLES)) { return; }
    const ebb_study_breakdown b = ebb_study_get_breakdown(t->report->study);
    uint64_t all_bytes = 0;
    for (int role = 0; role < EBB_N_ROLES; role++) { all_bytes += b.in_all[role].bytes; }
    head(t, b.is_of_iteration ? "roles                      at the peak               of an iteration"
                              : "roles                      at the peak            of the recording");
    for (int role = 0; role < EBB_N_ROLES; role++) {
        if (b.at_peak[role].n_blocks == 0 && b.in_all[role].n_blocks == 0) { continue; }
        ebb__report_printf(t->out, "  %-16s", ebb_role_name((ebb_role)role));
        put_bytes(t, b.at_peak[role].bytes);
        put_share(t, b.at_peak[role].bytes, t->report->summary.peak_bytes);
        ebb__report_put(t->out, "    ");
        put_bytes(t, b.in_all[role].bytes);
        put_share(t, b.in_all[role].bytes, all_bytes);
        ebb__report_put(t->out, "\n");
    }
}

static void put_holders(const text *t) {
    const ebb_report_holders found = ebb__report_holders(t->report);
    if (found.n == 0) { return; }
    ebb__report_printf(t->out, "\nwho holds the peak, by %s\n", found.by);
    for (size_t i = 0; i < found.n && i < MAX_ROWS; i++) {
        ebb__report_put(t->out, "  ");
        put_column(t, found.holders[i].label, NAME_COLUMNS);
        put_bytes(t, found.holders[i].bytes);
        put_share(t, found.holders[i].bytes, t->report->summary.peak_bytes);
        ebb__report_printf(t->out, " %8" PRIu64 " block%s\n", found.holders[i].n_blocks,
                           found.holders[i].n_blocks == 1 ? "" : "s");
    }
    if (found.n > MAX_ROWS) { ebb__report_printf(t->out, "  and %zu more\n", found.n - MAX_ROWS); }
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
    head(t, "what could be copied out and back in time");
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
        put_column(t, pinners[i].label, NAME_COLUMNS);
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
        ebb__report_put(t->out, "  ");
        put_column(t, rows[i].key, 34);
        put_bytes(t, rows[i].bytes);
        ebb__report_printf(t->out, "  %s%s\n", rows[i].about, rows[i].of_iteration ? " (of one iteration)" : "");
    }
    if (n_same > 0) { ebb__report_printf(t->out, "  pytorch with %zu other settings: the same\n", n_same); }
}

static void put_iteration(const text *t) {
    const ebb_iteration iteration = ebb_study_get_iteration(t->report->study);
    head(t, "iteration");
    if (!iteration.found) {
        ebb__report_put(t->out, "  none was found\n");
        return;
    }
    row_count(t, "first event", iteration.first_event);
    row_count(t, "events", iteration.length_events);
    row_count(t, "times", iteration.count);
    if (iteration.count == 1) { /* from a mark; there is nothing to be confident of */
        ebb__report_put(t->out, "  one pass, as marked; nothing is repeated\n");
        return;
    }
    ebb__report_put(t->out, "  confidence                         ");
    ebb__report_printf(t->out, "%10d %%\n", (int)(100.0 * iteration.confidence + 0.5));
}

ebb_status ebb__report_render_text(ebb_report *report, ebb_report_out *out) {
    EBB_TRY(ebb__report_read(report));
    const text t = {.report = report, .out = out};
    ebb_bump bump;
    ebb_report_words words;
    ebb__bump_init(&bump, report->mem);
    ebb_status status = ebb__report_words(report, &bump, &words);
    if (status == EBB_OK) {
        put_title(&t);
        put_words(&t, &words);
        status = put_curve(&t);
    }
    if (status == EBB_OK) {
        put_breakdown(&t);
        put_holders(&t);
        put_intervals(&t);
        put_fragmentation(&t);
        put_what_ifs(&t);
        put_iteration(&t);
    }
    ebb__bump_fini(&bump);
    return status;
}
