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

/* A step's fastest choice; of equal ones the first. */
static const ebb_choice *fastest_of(const ebb_machine *machine, const ebb_choice *choices, uint32_t n) {
    const ebb_choice *fastest = choices;
    for (uint32_t c = 1; c < n; c++) {
        const bool is_faster =
            ebb_machine_step_time_ns(machine, &choices[c]) < ebb_machine_step_time_ns(machine, fastest);
        fastest = is_faster ? &choices[c] : fastest;
    }
    return fastest;
}

static void print_workspace(const ebb_step *step, const ebb_choice *assigned, const ebb_choice *fastest, bool as_json) {
    char name[128], has[32], wants[32];
    if (!as_json) {
        printf("  %-40s %12s %12s  %s\n", ebb__cli_clean(step->name, name, sizeof name),
               ebb_bytes_format(assigned->scratch_bytes, has, sizeof has),
               ebb_bytes_format(fastest->scratch_bytes, wants, sizeof wants), assigned->name);
        return;
    }
    ebb__json_item_begin();
    ebb__json_text("step", step->name);
    ebb__json_text("algorithm", assigned->name);
    ebb__json_u64("scratch_bytes", assigned->scratch_bytes);
    ebb__json_text("fastest", fastest->name);
    ebb__json_u64("fastest_scratch_bytes", fastest->scratch_bytes);
    ebb__json_item_end();
}

void ebb__cli_print_workspaces(const ebb_program *program, const ebb_plan *plan, const ebb_machine *machine,
                               bool as_json) {
    size_t n_steps = 0, n_choices = 0, n_actions = 0;
    const ebb_step *steps = ebb_program_steps(program, &n_steps);
    const ebb_choice *choices = ebb_program_choices(program, &n_choices);
    const ebb_action *actions = ebb_plan_actions(plan, &n_actions);
    if (as_json) {
        ebb__json_list_begin("workspaces");
    } else {
        printf("scratch of steps with several algorithms: assigned, of the fastest, which\n");
    }
    for (size_t a = 0; a < n_actions; a++) {
        if (actions[a].kind != EBB_ACT_RUN || steps[actions[a].target].n_choices == 1) { continue; }
        const ebb_step *step = &steps[actions[a].target];
        const ebb_choice *own = &choices[step->first_choice];
        print_workspace(step, &own[actions[a].choice], fastest_of(machine, own, step->n_choices), as_json);
    }
    if (as_json) { ebb__json_list_end(); }
}
