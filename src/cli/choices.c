/* SPDX-License-Identifier: Apache-2.0
 *
 * The choices of algorithm of a plan, for people and programs.
 */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

static double won_s(const ebb_choice_figures *choices) {
    return ((double)choices->given_ns - (double)choices->chosen_ns) / 1e9;
}

/* "choice 0: 12, choice 3: 1" */
static void print_counts(const ebb_choice_figures *choices, char *buf, size_t buf_bytes) {
    size_t at = 0;
    snprintf(buf, buf_bytes, "none");
    for (int c = 0; c < EBB_CHOICES_TOLD && at < buf_bytes; c++) {
        if (choices->n_steps[c] == 0) { continue; }
        at += (size_t)snprintf(buf + at, buf_bytes - at, "%schoice %d%s: %" PRIu64, at > 0 ? ", " : "", c,
                               c + 1 == EBB_CHOICES_TOLD ? " or above" : "", choices->n_steps[c]);
    }
}

void ebb__cli_row_choices(const char *indent, const char *algorithms, const ebb_choice_figures *choices) {
    char counts[256], name[32];
    if (choices->n_open_steps == 0 && strcmp(algorithms, ebb_algorithms_name(0, NULL)) == 0) { return; }
    print_counts(choices, counts, sizeof counts);
    snprintf(name, sizeof name, "%salgorithms", indent);
    ebb__cli_row(name, "%s", algorithms);
    snprintf(name, sizeof name, "%ssteps with several", indent);
    ebb__cli_row(name, "%s", counts);
    snprintf(name, sizeof name, "%smost scratch of a step", indent);
    ebb__cli_row_bytes(name, choices->most_scratch_bytes);
    snprintf(name, sizeof name, "%stime won over given", indent);
    ebb__cli_row(name, "%.4f s", won_s(choices));
}

void ebb__json_choices(const char *algorithms, const ebb_choice_figures *choices) {
    ebb__json_text("algorithms", algorithms);
    ebb__json_u64("steps_with_choice", choices->n_open_steps);
    ebb__json_u64s("steps_by_choice", choices->n_steps, EBB_CHOICES_TOLD);
    ebb__json_u64("most_scratch_bytes", choices->most_scratch_bytes);
    ebb__json_f64("time_won_predicted_s", won_s(choices));
}
