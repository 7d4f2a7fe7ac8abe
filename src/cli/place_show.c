/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of `ebb place`: rows for one answer, a table of several, or an object a line.
 */
#include "place_command.h"

#include <inttypes.h>

double ebb__cli_place_ratio(const ebb_place_result *result) {
    return result->bound_bytes > 0 ? (double)result->peak_bytes / (double)result->bound_bytes : 1.0;
}

static bool is_optimal(const ebb_cli_answer *answer) {
    return answer->result.peak_bytes == answer->result.bound_bytes;
}

/* Less than the alignment above the bound, no placement is lower by a whole multiple of it. */
static void print_optimal(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    const uint64_t above_bytes = answer->result.peak_bytes - answer->result.bound_bytes;
    if (above_bytes == 0) {
        ebb__cli_row("optimal", "proven");
    } else if (above_bytes < facts->alignment_bytes) {
        ebb__cli_row("optimal", "proven, but for %" PRIu64 " bytes", above_bytes);
    } else {
        ebb__cli_row("optimal", "not proven");
    }
}

void ebb__cli_place_print(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    ebb__cli_row("buffers", "%zu", facts->n_buffers);
    ebb__cli_row("solver", "%s", answer->solver);
    ebb__cli_row_bytes("peak", answer->result.peak_bytes);
    ebb__cli_row_bytes("bound", answer->result.bound_bytes);
    ebb__cli_row("peak / bound", "%.6f", ebb__cli_place_ratio(&answer->result));
    if (answer->result.steady_bound_bytes > 0) {
        ebb__cli_row_bytes("steady peak", answer->result.steady_peak_bytes);
        ebb__cli_row_bytes("steady bound", answer->result.steady_bound_bytes);
    }
    print_optimal(facts, answer);
    if (facts->capacity_bytes > 0) {
        ebb__cli_row_bytes("capacity", facts->capacity_bytes);
        ebb__cli_row("fits", "%s", ebb__cli_place_fits(facts, answer) ? "yes" : "no");
    }
    ebb__cli_row("steps", "%" PRIu64, answer->result.n_steps);
    ebb__cli_row("time", "%.4f s", answer->time_s);
}

#define SOLVER_COLUMNS 16
#define PEAK_COLUMNS 20
#define RATIO_COLUMNS 13
#define VERDICT_COLUMNS 8
#define TIME_COLUMNS 10

/* The table's columns; 0: one has no room. */
typedef struct widths {
    size_t peak, ratio, time;
} widths;

static size_t n_digits(uint64_t x) {
    char text[24];
    return (size_t)snprintf(text, sizeof text, "%" PRIu64, x);
}

static size_t width_of(const widths *w) {
    return SOLVER_COLUMNS + 1 + w->peak + (w->ratio > 0 ? 1 + w->ratio : 0) + 1 + VERDICT_COLUMNS +
           (w->time > 0 ? 1 + w->time : 0);
}

/* As wide as the terminal: first without the spaces, then without the time, and then without the ratio. A peak may have
 * a digit more than the bound. */
static widths widths_for(const ebb_cli_place_facts *facts) {
    widths w = {PEAK_COLUMNS, RATIO_COLUMNS, TIME_COLUMNS};
    const size_t n_columns = ebb__cli_columns();
    if (n_columns == 0 || width_of(&w) <= n_columns) { return w; }
    w.peak = n_digits(facts->bound_bytes) + 1;
    w.ratio = sizeof "1.000000";
    if (width_of(&w) > n_columns) { w.time = 0; }
    if (width_of(&w) > n_columns) { w.ratio = 0; }
    return w;
}

static void print_cells(const widths *w, const char *const cells[5]) {
    char line[256];
    size_t n = (size_t)snprintf(line, sizeof line, "%-*s %*s", SOLVER_COLUMNS, cells[0], (int)w->peak, cells[1]);
    if (w->ratio > 0) { n += (size_t)snprintf(line + n, sizeof line - n, " %*s", (int)w->ratio, cells[2]); }
    if (w->time > 0) {
        snprintf(line + n, sizeof line - n, " %-*s %*s", VERDICT_COLUMNS, cells[3], (int)w->time, cells[4]);
    } else if (cells[3][0] != '\0') {
        snprintf(line + n, sizeof line - n, " %s", cells[3]);
    }
    printf("%s\n", line);
}

void ebb__cli_place_print_head(const ebb_cli_place_facts *facts) {
    const widths w = widths_for(facts);
    char head[128], capacity[64] = "";
    if (facts->capacity_bytes > 0) {
        snprintf(capacity, sizeof capacity, ", capacity %" PRIu64 " bytes", facts->capacity_bytes);
    }
    snprintf(head, sizeof head, "%zu buffers, bound %" PRIu64 " bytes%s", facts->n_buffers, facts->bound_bytes,
             capacity);
    ebb__cli_print_words(stdout, 0, 2, head);
    const char *ratio = w.ratio < RATIO_COLUMNS ? "/ bound" : "peak / bound";
    print_cells(&w, (const char *const[]){"solver", "peak", ratio, "", "time"});
}

void ebb__cli_place_print_row(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    const widths w = widths_for(facts);
    if (answer->refused[0] != '\0') {
        const int n = printf("%-*s %*s  ", SOLVER_COLUMNS, answer->solver, (int)w.peak, "-");
        ebb__cli_print_words(stdout, (size_t)n, 2, answer->refused);
        return;
    }
    char peak[24], ratio[32], time[32];
    const char *verdict = is_optimal(answer) ? "optimal" : "";
    if (facts->capacity_bytes > 0 && !ebb__cli_place_fits(facts, answer)) { verdict = "no fit"; }
    snprintf(peak, sizeof peak, "%" PRIu64, answer->result.peak_bytes);
    snprintf(ratio, sizeof ratio, "%.6f", ebb__cli_place_ratio(&answer->result));
    snprintf(time, sizeof time, "%.4f s", answer->time_s);
    print_cells(&w, (const char *const[]){answer->solver, peak, ratio, verdict, time});
    fflush(stdout);
}

static void begin_object(const ebb_cli_place_facts *facts, const char *solver) {
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("solver", solver);
    ebb__json_u64("buffers", facts->n_buffers);
}

void ebb__cli_place_print_json(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    begin_object(facts, answer->solver);
    if (answer->refused[0] != '\0') {
        ebb__json_text("error", answer->refused);
        ebb__json_end();
        return;
    }
    ebb__json_u64("peak_bytes", answer->result.peak_bytes);
    ebb__json_u64("lower_bound_bytes", answer->result.bound_bytes);
    ebb__json_f64("ratio", ebb__cli_place_ratio(&answer->result));
    ebb__json_bool("optimal", is_optimal(answer));
    if (answer->result.steady_bound_bytes > 0) {
        ebb__json_u64("steady_peak_bytes", answer->result.steady_peak_bytes);
        ebb__json_u64("steady_bound_bytes", answer->result.steady_bound_bytes);
    }
    ebb__json_f64("time_s", answer->time_s);
    ebb__json_u64("steps", answer->result.n_steps);
    if (facts->capacity_bytes > 0) {
        ebb__json_u64("capacity_bytes", facts->capacity_bytes);
        ebb__json_bool("fits", ebb__cli_place_fits(facts, answer));
    }
    ebb__json_end();
}

void ebb__cli_place_print_no_fit(const ebb_cli_place_facts *facts, const char *why) {
    begin_object(facts, NULL);
    ebb__json_text("error", why);
    ebb__json_u64("lower_bound_bytes", facts->bound_bytes);
    if (facts->capacity_bytes > 0) { ebb__json_u64("capacity_bytes", facts->capacity_bytes); }
    ebb__json_bool("fits", false);
    ebb__json_end();
}
