/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as one object of JSON. Its first members are fixed (docs/report.md); what a source does not tell is null.
 */
#include "report/report_priv.h"

#include <math.h>

#define SCHEMA_VERSION 1
#define MAX_HOLDERS 200u
#define MAX_REFUSED 100u /* the last ones */
#define MAX_STACK_BYTES 4096

/* ---- numbers that may be unknown --------------------------------------------------------------- */

static void put_u64(ebb_json *json, const char *key, uint64_t value) {
    if (value == EBB_STUDY_UNKNOWN) {
        ebb_json_null(json, key);
    } else {
        ebb_json_u64(json, key, value);
    }
}

static void put_seconds(ebb_json *json, const char *key, uint64_t ns) {
    ebb_json_f64(json, key, ns == EBB_STUDY_UNKNOWN ? NAN : (double)ns / 1e9,
                 EBB_JSON_F64_DIGITS); /* NaN becomes null */
}

static void put_known(ebb_json *json, const char *key, bool known, uint64_t value) {
    put_u64(json, key, known ? value : EBB_STUDY_UNKNOWN);
}

/* ---- parts ------------------------------------------------------------------------------------ */

static void put_roles(ebb_json *json, const char *key, const ebb_study_share shares[EBB_N_ROLES]) {
    ebb_json_open(json, key, '[');
    for (int role = 0; role < EBB_N_ROLES; role++) {
        if (shares[role].n_blocks == 0) { continue; }
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "role", ebb_role_name((ebb_role)role));
        ebb_json_u64(json, "bytes", shares[role].bytes);
        ebb_json_u64(json, "blocks", shares[role].n_blocks);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_uses(ebb_json *json, const char *key, const ebb_study_share shares[EBB_STUDY_N_USES]) {
    ebb_json_open(json, key, '[');
    for (int use = 0; use < EBB_STUDY_N_USES; use++) {
        if (shares[use].n_blocks == 0) { continue; }
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "use", ebb_study_use_name((ebb_study_use)use));
        ebb_json_u64(json, "bytes", shares[use].bytes);
        ebb_json_u64(json, "blocks", shares[use].n_blocks);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_intervals(const ebb_report *report, ebb_json *json) {
    const ebb_study_times times = ebb_study_intervals(report->study, EBB_STUDY_ANY, EBB_STUDY_ANY);
    const bool known =
        ebb__report_tells(report, EBB_TRACE_TELLS_TIMES) && ebb__report_tells(report, EBB_TRACE_TELLS_ACCESSES);
    ebb_json_open(json, "intervals", '{');
    put_known(json, "count", known, times.count);
    put_seconds(json, "p50_s", known ? times.p50_ns : EBB_STUDY_UNKNOWN);
    put_seconds(json, "p90_s", known ? times.p90_ns : EBB_STUDY_UNKNOWN);
    put_seconds(json, "p99_s", known ? times.p99_ns : EBB_STUDY_UNKNOWN);
    put_seconds(json, "max_s", known ? times.max_ns : EBB_STUDY_UNKNOWN);
    ebb_json_close(json, '}');
}

static void put_swappable(const ebb_report *report, ebb_json *json) {
    const ebb_study_swappable swap = ebb_study_get_swappable(report->study);
    ebb_json_open(json, "swappable", '{');
    ebb_json_bool(json, "of_iteration", swap.is_of_iteration);
    put_known(json, "bytes", swap.known, swap.bytes);
    put_known(json, "blocks", swap.known, swap.n_blocks);
    put_known(json, "bytes_at_peak", swap.known, swap.bytes_at_peak);
    put_known(json, "blocks_at_peak", swap.known, swap.n_blocks_at_peak);
    put_known(json, "peak_without_bytes", swap.known, swap.peak_bytes);
    ebb_json_f64(json, "byte_seconds", swap.known ? swap.byte_seconds : NAN, EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "bytes_per_s", swap.bytes_per_s, EBB_JSON_F64_DIGITS);
    ebb_json_close(json, '}');
}

static void put_fragmentation(const ebb_report *report, ebb_json *json) {
    const ebb_study_fragmentation f = ebb_study_get_fragmentation(report->study);
    ebb_json_open(json, "fragmentation", '{');
    put_known(json, "reserved_peak_bytes", f.known, f.reserved_peak_bytes);
    put_known(json, "lost_bytes", f.known, f.lost_bytes);
    put_known(json, "rounding_bytes", f.known, f.rounding_bytes);
    put_known(json, "pinned_bytes", f.known, f.pinned_bytes);
    put_known(json, "empty_bytes", f.known, f.empty_bytes);
    put_known(json, "segments", f.known, f.n_segments);
    ebb_json_close(json, '}');
}

/* The frames of a stack, an array of texts. */
static void put_stack(const ebb_report *report, ebb_json *json, uint32_t stack) {
    char lines[MAX_STACK_BYTES];
    char *line = ebb_study_stack_text(report->study, stack, lines, sizeof lines);
    ebb_json_open(json, "stack", '[');
    while (*line != '\0') {
        char *end = strchr(line, '\n');
        if (end != NULL) { *end = '\0'; }
        ebb_json_text(json, NULL, line);
        line = end != NULL ? end + 1 : line + strlen(line);
    }
    ebb_json_close(json, ']');
}

static void put_holders(const ebb_report *report, ebb_json *json) {
    const ebb_report_holders found = ebb__report_holders(report);
    ebb_json_open(json, "holders", '[');
    for (size_t i = 0; i < found.n && i < MAX_HOLDERS; i++) {
        const ebb_study_holder *holder = &found.holders[i];
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "by", found.by);
        ebb_json_text(json, "label", holder->label);
        ebb_json_u64(json, "bytes", holder->bytes);
        ebb_json_u64(json, "blocks", holder->n_blocks);
        put_stack(report, json, holder->stack);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_advice(const ebb_report *report, ebb_json *json) {
    size_t n = 0;
    const ebb_study_tip *tips = ebb_study_advice(report->study, &n);
    ebb_json_open(json, "advice", '[');
    for (size_t i = 0; i < n; i++) {
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "key", tips[i].key);
        ebb_json_text(json, "sentence", tips[i].sentence);
        put_u64(json, "won_bytes", tips[i].won_bytes);
        ebb_json_open(json, "names", '[');
        for (size_t k = 0; k < tips[i].n_names; k++) { ebb_json_text(json, NULL, tips[i].names[k]); }
        ebb_json_close(json, ']');
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_refused(const ebb_report *report, ebb_json *json) {
    const bool has_times = ebb__report_tells(report, EBB_TRACE_TELLS_TIMES);
    size_t n = 0;
    const ebb_study_refusal *all = ebb_study_refusals(report->study, &n);
    ebb_json_open(json, "refused", '[');
    for (size_t i = n > MAX_REFUSED ? n - MAX_REFUSED : 0; i < n; i++) {
        ebb_json_open(json, NULL, '{');
        ebb_json_u64(json, "bytes", all[i].size_bytes);
        ebb_json_u64(json, "live_bytes", all[i].live_bytes);
        put_seconds(json, "time_s", has_times ? all[i].time_ns - report->summary.first_ns : EBB_STUDY_UNKNOWN);
        ebb_json_u64(json, "event", all[i].event);
        put_u64(json, "free_bytes", all[i].free_bytes);
        put_u64(json, "capacity_bytes", all[i].capacity_bytes);
        put_u64(json, "reserved_bytes", all[i].reserved_bytes);
        ebb_json_text(json, "site", all[i].site);
        put_stack(report, json, all[i].stack);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_what_ifs(const ebb_report *report, ebb_json *json) {
    size_t n = 0;
    const ebb_study_what_if *rows = ebb_study_what_ifs(report->study, &n);
    ebb_json_open(json, "what_if", '[');
    for (size_t i = 0; i < n; i++) {
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "key", rows[i].key);
        ebb_json_text(json, "about", rows[i].about);
        ebb_json_text(json, "setting", rows[i].setting);
        put_u64(json, "bytes", rows[i].bytes);
        ebb_json_bool(json, "is_reserved", rows[i].is_reserved);
        ebb_json_bool(json, "of_iteration", rows[i].of_iteration);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
}

static void put_tells(const ebb_report *report, ebb_json *json) {
    const char *name = NULL;
    ebb_json_open(json, "tells", '{');
    for (size_t i = 0; (name = ebb_trace_tells_name(i, NULL)) != NULL; i++) {
        ebb_json_bool(json, name, ebb__report_tells(report, 1u << i));
    }
    ebb_json_close(json, '}');
}

static void put_iteration(const ebb_report *report, ebb_json *json) {
    const ebb_iteration iteration = ebb_study_get_iteration(report->study);
    ebb_json_open(json, "iteration", '{');
    ebb_json_bool(json, "found", iteration.found);
    ebb_json_text(json, "work", ebb_iteration_work_name(iteration.work));
    put_known(json, "first_event", iteration.found, iteration.first_event);
    put_known(json, "length_events", iteration.found, iteration.length_events);
    put_known(json, "count", iteration.found, iteration.count);
    ebb_json_f64(json, "confidence", iteration.found ? iteration.confidence : NAN, EBB_JSON_F64_DIGITS);
    ebb_json_f64(json, "regularity", iteration.found ? iteration.regularity : NAN, EBB_JSON_F64_DIGITS);
    ebb_json_open(json, "stalls", '[');
    for (uint32_t row = 0; row < REPORT_MAX_STALLS; row++) {
        ebb_report_stall stall;
        if (!ebb__report_stall(report, row, &stall)) { continue; }
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "engine", stall.engine);
        put_seconds(json, "stall_s", stall.ns);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
    ebb_json_close(json, '}');
}

/* Whose numbers these are, and all that the recording has; those that its import left out are known by name alone. */
static void put_devices(const ebb_report *report, ebb_json *json) {
    size_t n = 0;
    const ebb_trace_device *devices = ebb__report_devices(report, &n), *device = ebb__report_device(report);
    ebb_json_text(json, "device", device != NULL ? device->name : NULL);
    ebb_json_open(json, "devices", '[');
    for (size_t i = 0; i < n && device != NULL; i++) {
        ebb_json_open(json, NULL, '{');
        ebb_json_text(json, "name", devices[i].name);
        ebb_json_u64(json, "blocks", devices[i].n_blocks);
        ebb_json_u64(json, "peak_bytes", devices[i].peak_bytes);
        ebb_json_close(json, '}');
    }
    ebb_json_close(json, ']');
    ebb_json_text(json, "devices_left_out", ebb__report_left_out(report));
}

static ebb_status put_recorded(const ebb_report *report, ebb_json *json) {
    ebb_bump bump;
    ebb__bump_init(&bump, report->mem);
    const char *title = ebb__report_title(report, &bump);
    if (title != NULL) { ebb_json_text(json, "recorded", title); }
    ebb__bump_fini(&bump);
    return title != NULL ? EBB_OK : EBB_E_NO_MEMORY;
}

static ebb_status put_more(const ebb_report *report, ebb_json *json) {
    const ebb_study_summary *s = &report->summary;
    const ebb_study_breakdown breakdown = ebb_study_get_breakdown(report->study);
    const ebb_study_times lives = ebb_study_lifetimes(report->study);
    const ebb_study_churn churn = ebb_study_get_churn(report->study);
    ebb_json_text(json, "name", report->name);
    EBB_TRY(put_recorded(report, json));
    put_devices(report, json);
    ebb_json_bool(json, "complete", s->complete);
    ebb_json_bool(json, "is_moment", s->is_moment);
    put_tells(report, json);
    ebb_json_bool(json, "roles_inferred", s->roles_inferred);
    put_u64(json, "peak_event", s->is_moment ? EBB_STUDY_UNKNOWN : s->peak_event);
    ebb_json_u64(json, "peak_blocks", s->n_live_at_peak);
    put_u64(json, "end_live_bytes", s->end_live_bytes);
    put_u64(json, "span_bytes", s->span_bytes);
    put_u64(json, "stated_allocated_bytes", s->stated_allocated_bytes);
    put_u64(json, "stated_reserved_bytes", s->stated_reserved_bytes);
    ebb_json_u64(json, "steps", s->n_steps);
    ebb_json_u64(json, "accesses", s->n_accesses);
    put_roles(json, "static", breakdown.in_all);
    ebb_json_bool(json, "static_of_iteration", breakdown.is_of_iteration);
    put_uses(json, "uses_at_peak", breakdown.use_at_peak);
    put_uses(json, "uses_static", breakdown.use_in_all);
    ebb_json_open(json, "lifetimes", '{');
    put_known(json, "count", ebb__report_tells(report, EBB_TRACE_TELLS_TIMES), lives.count);
    put_seconds(json, "p50_s", lives.p50_ns);
    put_seconds(json, "p90_s", lives.p90_ns);
    put_seconds(json, "p99_s", lives.p99_ns);
    ebb_json_close(json, '}');
    ebb_json_open(json, "churn", '{');
    ebb_json_u64(json, "allocs", churn.n_allocs);
    ebb_json_u64(json, "frees", churn.n_frees);
    ebb_json_u64(json, "bytes", churn.alloc_bytes);
    ebb_json_f64(json, "turnover", churn.turnover, EBB_JSON_F64_DIGITS);
    ebb_json_close(json, '}');
    put_what_ifs(report, json);
    return EBB_OK;
}

ebb_status ebb__report_put_json(ebb_report *report, ebb_json *json, const char *key) {
    EBB_TRY(ebb__report_read(report));
    const ebb_study_summary *s = &report->summary;
    const bool has_times =
        ebb__report_tells(report, EBB_TRACE_TELLS_TIMES) && !s->is_moment && s->peak_event != EBB_STUDY_UNKNOWN;
    const ebb_study_breakdown breakdown = ebb_study_get_breakdown(report->study);
    ebb_json_open(json, key, '{');
    ebb_json_u64(json, "schema_version", SCHEMA_VERSION);
    ebb_json_text(json, "source", s->source[0] != '\0' ? s->source : NULL);
    put_u64(json, "events", s->is_moment ? EBB_STUDY_UNKNOWN : s->n_events);
    ebb_json_u64(json, "blocks", s->n_blocks);
    put_seconds(json, "duration_s", s->duration_ns);
    put_u64(json, "peak_bytes", s->is_moment ? EBB_STUDY_UNKNOWN : s->peak_bytes);
    put_seconds(json, "peak_time_s", has_times ? s->peak_ns - s->first_ns : EBB_STUDY_UNKNOWN);
    put_roles(json, "live_at_peak", breakdown.at_peak);
    put_iteration(report, json);
    put_intervals(report, json);
    put_swappable(report, json);
    put_fragmentation(report, json);
    put_holders(report, json);
    put_refused(report, json);
    put_advice(report, json);
    EBB_TRY(put_more(report, json));
    ebb_json_close(json, '}');
    return EBB_OK;
}

ebb_status ebb__report_render_json(ebb_report *report, ebb_report_out *out) {
    ebb_json json = ebb__report_json(out);
    EBB_TRY(ebb__report_put_json(report, &json, NULL));
    ebb__report_put(out, "\n");
    return EBB_OK;
}
