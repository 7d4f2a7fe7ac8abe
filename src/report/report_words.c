/* SPDX-License-Identifier: Apache-2.0
 *
 * What a report says in plain words before it shows anything: the peak, who holds it, and what of it could leave for
 * free. The numbers are the study's; here they become sentences, each with the bytes that it is about.
 */
#include "report/report_priv.h"

#include <inttypes.h>
#include <math.h>

/* ---- numbers for people ----------------------------------------------------------------------- */

char *ebb__report_time_text(uint64_t ns, char *buf) {
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{3600e9, "h"}, {60e9, "min"}, {1e9, "s"}, {1e6, "ms"}, {1e3, "\xc2\xb5s"}};
    if (ns == EBB_STUDY_UNKNOWN) {
        (void)snprintf(buf, REPORT_TEXT_BYTES, "unknown");
        return buf;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        const double x = (double)ns / units[i].ns;
        if (x < (i < 2 ? 2.0 : 1.0)) { continue; }
        (void)snprintf(buf, REPORT_TEXT_BYTES, "%.*f %s", x < 10.0 ? 2 : x < 100.0 ? 1 : 0, x, units[i].unit);
        return buf;
    }
    (void)snprintf(buf, REPORT_TEXT_BYTES, "%" PRIu64 " ns", ns);
    return buf;
}

char *ebb__report_bytes_text(uint64_t bytes, char *buf) {
    if (bytes == EBB_STUDY_UNKNOWN) {
        (void)snprintf(buf, REPORT_TEXT_BYTES, "unknown");
        return buf;
    }
    return ebb_bytes_format(bytes, buf, REPORT_TEXT_BYTES);
}

static double percent(uint64_t part, uint64_t whole) {
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* ---- who holds the peak ----------------------------------------------------------------------- */

static uint64_t named_bytes(const ebb_study_holder *holders, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) { bytes += holders[i].label[0] != '\0' ? holders[i].bytes : 0; }
    return bytes;
}

/* The grouping in which most bytes have a name. */
ebb_report_holders ebb__report_holders(const ebb_report *report) {
    static const struct {
        ebb_study_group group;
        const char *by;
    } groups[] = {{EBB_STUDY_BY_SITE, "site"}, {EBB_STUDY_BY_MODULE, "module"}, {EBB_STUDY_BY_NAME, "name"}};
    ebb_report_holders best = {.group = EBB_STUDY_N_GROUPS, .by = "role"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        ebb_report_holders found = {.group = groups[i].group, .by = groups[i].by};
        found.holders = ebb_study_holders(report->study, found.group, &found.n);
        const bool is_better = best.n == 0 || named_bytes(found.holders, found.n) > named_bytes(best.holders, best.n);
        if (found.n > 0 && is_better) { best = found; }
    }
    return best;
}

static const char *holder_cause(const ebb_report *report, ebb_bump *bump, const ebb_report_fold *row) {
    char bytes[REPORT_TEXT_BYTES];
    return ebb__bump_printf(bump, "%s: %s (%.1f %%) in %" PRIu64 " block%s.",
                            row->label[0] != '\0' ? row->label : "what has no name",
                            ebb__report_bytes_text(row->bytes, bytes), percent(row->bytes, report->summary.peak_bytes),
                            row->n_blocks, row->n_blocks == 1 ? "" : "s");
}

/* Who holds the peak, equal layers as one. */
typedef struct rows_of_holders {
    const ebb_report_fold *rows;
    size_t n;
} rows_of_holders;

/* The row with most of a role; NULL: none with a name has any. */
static const ebb_report_fold *first_of_role(const rows_of_holders *found, size_t role) {
    const ebb_report_fold *best = NULL;
    for (size_t i = 0; i < found->n; i++) {
        const ebb_report_fold *row = &found->rows[i];
        if (row->label[0] == '\0' || row->role_bytes[role] == 0) { continue; }
        if (best == NULL || row->role_bytes[role] > best->role_bytes[role]) { best = row; }
    }
    return best;
}

static const char *role_cause(const ebb_report *report, ebb_bump *bump, size_t role, ebb_study_share share,
                              const ebb_report_fold *first) {
    char bytes[REPORT_TEXT_BYTES], most[REPORT_TEXT_BYTES];
    return ebb__bump_printf(
        bump, "%s: %s (%.1f %%) in %" PRIu64 " block%s%s%s%s%s%s.", ebb_role_name((ebb_role)role),
        ebb__report_bytes_text(share.bytes, bytes), percent(share.bytes, report->summary.peak_bytes), share.n_blocks,
        share.n_blocks == 1 ? "" : "s", first != NULL ? ", the most for " : "", first != NULL ? first->label : "",
        first != NULL ? " (" : "", first != NULL ? ebb__report_bytes_text(first->role_bytes[role], most) : "",
        first != NULL ? ")" : "");
}

/* The three greatest roles. */
static ebb_status role_causes(const ebb_report *report, ebb_bump *bump, const rows_of_holders *found,
                              ebb_report_words *words) {
    ebb_study_breakdown breakdown = ebb_study_get_breakdown(report->study);
    while (words->n_causes < REPORT_MAX_CAUSES) {
        size_t best = 0;
        for (size_t role = 1; role < EBB_N_ROLES; role++) {
            if (breakdown.at_peak[role].bytes > breakdown.at_peak[best].bytes) { best = role; }
        }
        if (breakdown.at_peak[best].bytes == 0) { return EBB_OK; }
        const char *cause = role_cause(report, bump, best, breakdown.at_peak[best], first_of_role(found, best));
        if (cause == NULL) { return EBB_E_NO_MEMORY; }
        words->causes[words->n_causes++] = cause;
        breakdown.at_peak[best].bytes = 0;
    }
    return EBB_OK;
}

/* Roles say most where they are told: the blocks of one role are many, and have many names. */
static ebb_status tell_causes(const ebb_report *report, ebb_bump *bump, ebb_report_words *words) {
    const ebb_report_holders holders = ebb__report_holders(report);
    rows_of_holders found = {.n = 0};
    if (holders.n > 0) { EBB_TRY(ebb__report_fold(report, holders.group, bump, &found.rows, &found.n)); }
    if (ebb__report_tells(report, EBB_TRACE_TELLS_ROLES)) { return role_causes(report, bump, &found, words); }
    for (size_t i = 0; i < found.n && i < REPORT_MAX_CAUSES; i++) {
        words->causes[i] = holder_cause(report, bump, &found.rows[i]);
        if (words->causes[i] == NULL) { return EBB_E_NO_MEMORY; }
        words->n_causes++;
    }
    return EBB_OK;
}

/* ---- the peak, and what could leave ------------------------------------------------------------ */

static const char *tell_peak(const ebb_report *report, ebb_bump *bump) {
    const ebb_study_summary *s = &report->summary;
    char bytes[REPORT_TEXT_BYTES], when[REPORT_TEXT_BYTES];
    if (s->peak_event == EBB_STUDY_UNKNOWN) {
        return ebb__bump_strdup(bump, "Nothing is allocated in this recording.");
    }
    EBB_ASSERT(s->peak_ns >= s->first_ns && s->peak_event < s->n_events && s->n_live_at_peak > 0);
    const char *const plural = s->n_live_at_peak == 1 ? "" : "s";
    if (s->is_moment) {
        return ebb__bump_printf(
            bump,
            "%s (%" PRIu64 " bytes) were live, in %" PRIu64 " block%s, when this snapshot was taken. It "
            "has no history, so its peak is not known: torch.cuda.memory._record_memory_history() at "
            "the program's beginning records one.",
            ebb__report_bytes_text(s->peak_bytes, bytes), s->peak_bytes, s->n_live_at_peak, plural);
    }
    if (ebb__report_tells(report, EBB_TRACE_TELLS_TIMES)) {
        return ebb__bump_printf(
            bump, "At most %s (%" PRIu64 " bytes) are live at once, in %" PRIu64 " block%s, %s after the beginning.",
            ebb__report_bytes_text(s->peak_bytes, bytes), s->peak_bytes, s->n_live_at_peak, plural,
            ebb__report_time_text(s->peak_ns - s->first_ns, when));
    }
    return ebb__bump_printf(bump,
                            "At most %s (%" PRIu64 " bytes) are live at once, in %" PRIu64 " block%s, at event %" PRIu64
                            " of %" PRIu64 ".",
                            ebb__report_bytes_text(s->peak_bytes, bytes), s->peak_bytes, s->n_live_at_peak, plural,
                            s->peak_event, s->n_events);
}

/* "" for none. */
static const char *tell_device(const ebb_report *report, ebb_bump *bump) {
    char bytes[REPORT_TEXT_BYTES];
    size_t n = 0;
    const ebb_trace_device *device = ebb__report_device(report), *devices = ebb__report_devices(report, &n);
    const char *left_out = ebb__report_left_out(report), *others = "";
    if (device == NULL || (n == 1 && left_out == NULL)) { return ""; }
    if (n == 1) { others = left_out; }
    for (size_t i = 0; i < n && others != NULL && n > 1; i++) {
        if (&devices[i] == device) { continue; }
        others = ebb__bump_printf(bump, "%s%s%s (at most %s)", others, others[0] != '\0' ? ", " : "", devices[i].name,
                                  ebb__report_bytes_text(devices[i].peak_bytes, bytes));
    }
    if (others == NULL) { return NULL; }
    return ebb__bump_printf(bump, "This is %s alone. Left out, --device asks for it: %s.", device->name, others);
}

/* How many bytes were missing, and of how many, as far as the source tells; "" where it does not. NULL: no memory. */
static const char *tell_missing(const ebb_study_refusal *r, ebb_bump *bump) {
    char missing[REPORT_TEXT_BYTES], left[REPORT_TEXT_BYTES], all[REPORT_TEXT_BYTES], reserved[REPORT_TEXT_BYTES];
    const bool has_reserved = r->reserved_bytes != EBB_STUDY_UNKNOWN && r->reserved_bytes > 0;
    const bool has_capacity = r->capacity_bytes != EBB_STUDY_UNKNOWN;
    if (r->free_bytes == EBB_STUDY_UNKNOWN) { return ""; }
    (void)ebb__report_bytes_text(r->reserved_bytes, reserved);
    const char *held = !has_reserved ? "" : ebb__bump_printf(bump, ", and the allocator held %s", reserved);
    if (held == NULL) { return NULL; }
    const uint64_t missing_bytes = r->size_bytes > r->free_bytes ? r->size_bytes - r->free_bytes : 0;
    return ebb__bump_printf(
        bump, " %s%s%s%s%s were left%s%s.", missing_bytes > 0 ? ebb__report_bytes_text(missing_bytes, missing) : "",
        missing_bytes > 0 ? " were missing: " : "", ebb__report_bytes_text(r->free_bytes, left),
        has_capacity ? " of " : "", has_capacity ? ebb__report_bytes_text(r->capacity_bytes, all) : "",
        has_capacity ? "" : " on the device", held);
}

/* The stack, in two where the program's own frame called others. */
static ebb_status tell_stack(const ebb_report *report, const ebb_study_refusal *r, ebb_bump *bump,
                             ebb_report_words *words) {
    char from[REPORT_STACK_BYTES], all[REPORT_STACK_BYTES];
    const uint32_t site = ebb_study_site(report->study, r->stack);
    (void)ebb_study_stack_text(report->study, site, from, sizeof from);
    (void)ebb_study_stack_text(report->study, r->stack, all, sizeof all);
    const size_t n = strlen(all), n_from = strlen(from);
    const bool is_split = n > n_from && strcmp(all + n - n_from, from) == 0;
    words->refused_stack = ebb__bump_strdup(bump, r->stack == site ? all : from);
    words->refused_callees = ebb__bump_printf(bump, "%.*s", is_split ? (int)(n - n_from - 1) : 0, all);
    return words->refused_stack != NULL && words->refused_callees != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

/* The last one: what a program that gives up has died of. */
static ebb_status tell_refused(const ebb_report *report, ebb_bump *bump, ebb_report_words *words) {
    char asked[REPORT_TEXT_BYTES], live[REPORT_TEXT_BYTES], when[2 * REPORT_TEXT_BYTES];
    size_t n = 0;
    const ebb_study_refusal *all = ebb_study_refusals(report->study, &n);
    if (n == 0) { return EBB_OK; }
    const ebb_study_refusal *r = &all[n - 1];
    EBB_ASSERT(r->time_ns >= report->summary.first_ns && r->event < report->summary.n_events);
    (void)snprintf(when, sizeof when, "at event %" PRIu64, r->event);
    if (ebb__report_tells(report, EBB_TRACE_TELLS_TIMES)) {
        (void)snprintf(when, sizeof when, "%s after the beginning",
                       ebb__report_time_text(r->time_ns - report->summary.first_ns, asked));
    }
    const char *first = n == 1 ? ebb__bump_strdup(bump, "An allocation was refused")
                               : ebb__bump_printf(bump, "%zu allocations were refused. The last", n);
    const char *missing = tell_missing(r, bump);
    if (first == NULL || missing == NULL) { return EBB_E_NO_MEMORY; }
    words->refused = ebb__bump_printf(
        bump,
        "Out of memory: %s: %s (%" PRIu64 " bytes) were asked for, %s%s%s, when %s (%" PRIu64 " bytes) were live.%s",
        first, ebb__report_bytes_text(r->size_bytes, asked), r->size_bytes, when, r->site[0] != '\0' ? ", by " : "",
        r->site, ebb__report_bytes_text(r->live_bytes, live), r->live_bytes, missing);
    return words->refused == NULL ? EBB_E_NO_MEMORY : tell_stack(report, r, bump, words);
}

static const char *tell_win(const ebb_report *report, ebb_bump *bump) {
    const ebb_study_swappable swap = ebb_study_get_swappable(report->study);
    char bytes[REPORT_TEXT_BYTES], peak[REPORT_TEXT_BYTES];
    if (!swap.known) {
        const bool is_ordered = ebb__report_tells(report, EBB_TRACE_TELLS_ACCESSES);
        return ebb__bump_printf(bump, "What could leave the device meanwhile is unknown: the source %s.",
                                is_ordered ? "tells the order of reads and writes, not their times"
                                           : "does not tell when blocks are read and written");
    }
    if (swap.bytes_at_peak == 0) {
        return ebb__bump_strdup(bump, "At the peak no block lies idle long enough to be copied out and back in time.");
    }
    return ebb__bump_printf(bump,
                            "%s of the peak, %" PRIu64 " block%s, lie idle long enough then to be copied out and "
                            "back in time. With every block away whenever it can be, the most would be %s.",
                            ebb__report_bytes_text(swap.bytes_at_peak, bytes), swap.n_blocks_at_peak,
                            swap.n_blocks_at_peak == 1 ? "" : "s", ebb__report_bytes_text(swap.peak_bytes, peak));
}

static const char *tell_unknown(const ebb_report *report, ebb_bump *bump) {
    char list[256];
    size_t n = 0;
    const char *words = NULL;
    for (size_t i = 0; ebb_trace_tells_name(i, &words) != NULL; i++) {
        if (ebb__report_tells(report, 1u << i)) { continue; }
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n > 0 ? ", " : "", words);
        EBB_ASSERT(n < sizeof list);
    }
    const char *cut = report->summary.complete ? "" : " The recording is cut off; this is what there is of it.";
    if (n == 0) { return report->summary.complete ? "" : ebb__bump_strdup(bump, cut + 1); }
    return ebb__bump_printf(bump, "The source does not tell: %s.%s", list, cut);
}

ebb_status ebb__report_words(const ebb_report *report, ebb_bump *bump, ebb_report_words *words_out) {
    ebb_report_words words = {.title = ebb__report_title(report, bump),
                              .device = tell_device(report, bump),
                              .peak = tell_peak(report, bump),
                              .win = tell_win(report, bump),
                              .unknown = tell_unknown(report, bump)};
    if (words.title == NULL || words.device == NULL || words.peak == NULL || words.win == NULL ||
        words.unknown == NULL) {
        return EBB_E_NO_MEMORY;
    }
    if (words.device[0] == '\0') { words.device = NULL; }
    if (words.unknown[0] == '\0') { words.unknown = NULL; }
    EBB_TRY(tell_refused(report, bump, &words));
    EBB_TRY(tell_causes(report, bump, &words));
    *words_out = words;
    return EBB_OK;
}
