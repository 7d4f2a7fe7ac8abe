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
    ebb__cli_row("optimal", "%s", is_optimal(answer) ? "proven" : "not proven");
    if (facts->capacity_bytes > 0) {
        ebb__cli_row_bytes("capacity", facts->capacity_bytes);
        ebb__cli_row("fits", "%s", ebb__cli_place_fits(facts, answer) ? "yes" : "no");
    }
    ebb__cli_row("steps", "%" PRIu64, answer->result.n_steps);
    ebb__cli_row("time", "%.4f s", answer->time_s);
}

void ebb__cli_place_print_head(const ebb_cli_place_facts *facts) {
    printf("%zu buffers, bound %" PRIu64 " bytes", facts->n_buffers, facts->bound_bytes);
    if (facts->capacity_bytes > 0) { printf(", capacity %" PRIu64 " bytes", facts->capacity_bytes); }
    printf("\n%-16s %20s %13s %-8s %10s\n", "solver", "peak", "peak / bound", "", "time");
}

void ebb__cli_place_print_row(const ebb_cli_place_facts *facts, const ebb_cli_answer *answer) {
    if (answer->refused[0] != '\0') {
        printf("%-16s %20s  %s\n", answer->solver, "-", answer->refused);
        return;
    }
    const char *verdict = is_optimal(answer) ? "optimal" : "";
    if (facts->capacity_bytes > 0 && !ebb__cli_place_fits(facts, answer)) { verdict = "no fit"; }
    printf("%-16s %20" PRIu64 " %13.6f %-8s %8.4f s\n", answer->solver, answer->result.peak_bytes,
           ebb__cli_place_ratio(&answer->result), verdict, answer->time_s);
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
