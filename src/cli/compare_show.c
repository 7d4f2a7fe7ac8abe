/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of `ebb compare`. A row is a list of cells; as many as the terminal has room for stand in a line, and the
 * others below them, so the table fits any width.
 */
#include "compare_show.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define MAX_CELLS 24u
#define INDENT 4u

typedef struct cell {
    char text[48];
    char head[48];
    size_t width;
} cell;

typedef struct cells {
    cell at[MAX_CELLS];
    size_t n;
} cells;

/* ---- cells ------------------------------------------------------------------------------------- */

static EBB_PRINTF(4, 5) void add(cells *row, const char *head, size_t width, const char *fmt, ...) {
    va_list args;
    if (row->n == MAX_CELLS) { return; }
    cell *c = &row->at[row->n++];
    va_start(args, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, args);
    va_end(args);
    snprintf(c->head, sizeof c->head, "%s", head);
    const size_t n = strlen(head);
    c->width = n > width ? n : width;
}

static void add_bytes(cells *row, const char *head, uint64_t bytes) {
    char text[32];
    add(row, head, 10, "%s", bytes > 0 ? ebb_bytes_format(bytes, text, sizeof text) : "-");
}

/* Four digits or more. */
static void add_time(cells *row, const char *head, double s) {
    if (s >= 1) {
        add(row, head, 9, "%.3f s", s);
    } else {
        add(row, head, 9, s <= 0 ? "-" : s >= 0.1 ? "%.1f ms" : "%.3f ms", s * 1e3);
    }
}

static const ebb_compared_budget *budget_of(const ebb_cli_shown *shown, const ebb_compared *row) {
    size_t n = 0;
    return &ebb_comparison_budgets(shown->comparison, &n)[row->budget];
}

/* Whether any plan copies between two tiers, either way. */
static bool is_used(const ebb_cli_shown *shown, uint32_t near, uint32_t far) {
    size_t n = 0;
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].copied_bytes[near][far] > 0 || rows[i].copied_bytes[far][near] > 0) { return true; }
    }
    return false;
}

static void add_links(const ebb_cli_shown *shown, const ebb_compared *row, cells *out) {
    const ebb_topology *t = ebb_comparison_topology(shown->comparison);
    for (uint32_t near = 0; near < t->n_tiers; near++) {
        for (uint32_t far = near + 1; far < t->n_tiers; far++) {
            char head[48];
            if (!is_used(shown, near, far)) { continue; }
            snprintf(head, sizeof head, near == EBB_DEVICE ? "to %.20s" : "to %.20s on", t->tier[far].name);
            add_bytes(out, head, row->copied_bytes[near][far]);
            snprintf(head, sizeof head, near == EBB_DEVICE ? "from %.20s" : "from %.20s on", t->tier[far].name);
            add_bytes(out, head, row->copied_bytes[far][near]);
        }
    }
}

static bool has_runs(const ebb_cli_shown *shown) {
    size_t n = 0;
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    for (size_t i = 0; i < n; i++) {
        if (rows[i].run.has_run) { return true; }
    }
    return false;
}

static void add_run(const ebb_compared_run *run, cells *out) {
    char text[32];
    add_time(out, "measured", run->time_s);
    add(out, "its peak", 10, "%s",
        run->peak_bytes == UINT64_MAX ? "-" : ebb_bytes_format(run->peak_bytes, text, sizeof text));
    add(out, "loss bits", 9, "%08" PRIx32, run->loss_bits);
}

/* with_bound: the table says nowhere else what no plan is faster than. */
static cells make_row(const ebb_cli_shown *shown, const ebb_compared *row, bool with_bound) {
    cells out = {.n = 0};
    add_bytes(&out, "peak", row->summary.peak_bytes);
    add_links(shown, row, &out);
    add(&out, "again", 6, "%" PRIu64, row->summary.n_recomputed_steps);
    add_time(&out, "stall", (double)row->timeline.stall_ns[EBB_COMPUTE] / 1e9);
    add_time(&out, "time", (double)row->timeline.iteration_ns / 1e9);
    if (with_bound) { add_time(&out, "bound", (double)budget_of(shown, row)->certificate.bound_ns / 1e9); }
    add(&out, "gap", 8, "%.2f %%", row->gap * 100);
    if (has_runs(shown)) { add_run(&row->run, &out); }
    return out;
}

/* ---- lines ------------------------------------------------------------------------------------- */

typedef const char *name_fn(const ebb_cli_shown *shown, const ebb_compared *row, char buf[48]);

static const char *policy_text(const ebb_cli_shown *shown, const ebb_compared *row, char buf[48]) {
    (void)shown;
    (void)buf;
    return row->policy;
}

/* "60 %, 1.50 GiB": as it was asked for, and what it is. */
static const char *budget_text(const ebb_cli_shown *shown, const ebb_compared *row, char buf[48]) {
    char share[32] = "", bytes[32];
    const ebb_cli_memory asked = shown->budgets->at[row->budget];
    if (asked.percent > 0) { snprintf(share, sizeof share, "%g %%, ", asked.percent); }
    snprintf(buf, 48, "%.14s%s", share, ebb_bytes_format(budget_of(shown, row)->bytes, bytes, sizeof bytes));
    return buf;
}

static size_t widest(const ebb_cli_shown *shown, name_fn *name, const char *head) {
    char buf[48];
    size_t n = 0, width = strlen(head);
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    for (size_t i = 0; i < n; i++) {
        const size_t length = strlen(name(shown, &rows[i], buf));
        width = length > width ? length : width;
    }
    return width;
}

static void print_cells(const char *name, size_t width, const cells *row, bool heads) {
    const size_t n_columns = ebb__cli_line_columns(stdout);
    size_t at = INDENT + width;
    printf("%*s%-*s", (int)INDENT, "", (int)width, name);
    for (size_t i = 0; i < row->n; i++) {
        const size_t wide = row->at[i].width + 1;
        if (at + wide >= n_columns && at > INDENT + 2) {
            printf("\n%*s", (int)INDENT + 2, "");
            at = INDENT + 2;
        }
        printf("%*s", (int)wide, heads ? row->at[i].head : row->at[i].text);
        at += wide;
    }
    printf("\n");
}

static void print_budget(const ebb_cli_shown *shown, const ebb_compared *row) {
    char buf[48];
    const double bound_s = (double)budget_of(shown, row)->certificate.bound_ns / 1e9;
    printf("%s: no plan is faster than %.3f %s\n", budget_text(shown, row, buf), bound_s >= 1 ? bound_s : bound_s * 1e3,
           bound_s >= 1 ? "s" : "ms");
}

/* A table for each budget, with a row for each policy that has a plan. */
static void show_policies(const ebb_cli_shown *shown, const ebb_compared *rows, size_t n) {
    const size_t width = widest(shown, policy_text, "policy");
    for (size_t i = 0; i < n; i++) {
        const bool is_first = i == 0 || rows[i].budget != rows[i - 1].budget;
        if (is_first) { print_budget(shown, &rows[i]); }
        const cells row = make_row(shown, &rows[i], false);
        if (is_first) { print_cells("policy", width, &row, true); }
        if (rows[i].plan != NULL) { print_cells(rows[i].policy, width, &row, false); }
    }
}

/* One table, with a row for each budget. */
static void show_budgets(const ebb_cli_shown *shown, const ebb_compared *rows, size_t n) {
    const size_t width = widest(shown, budget_text, "budget");
    ebb__cli_row("policy", "%s", rows[0].policy);
    for (size_t i = 0; i < n; i++) {
        char buf[48];
        const cells row = make_row(shown, &rows[i], true), none = {.at = {{"no plan", "", 10}}, .n = 1};
        if (i == 0) { print_cells("budget", width, &row, true); }
        print_cells(budget_text(shown, &rows[i], buf), width, rows[i].plan != NULL ? &row : &none, false);
    }
}

static void show_table(const ebb_cli_shown *shown) {
    size_t n = 0, n_budgets = 0, n_tensors = 0, n_steps = 0;
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    (void)ebb_comparison_budgets(shown->comparison, &n_budgets);
    ebb_program_tensors(shown->subject->parts.program, &n_tensors);
    ebb_program_steps(shown->subject->parts.program, &n_steps);
    ebb__cli_row("tensors", "%zu", n_tensors);
    ebb__cli_row("steps", "%zu", n_steps);
    ebb__cli_row_bytes("liveness needs", shown->liveness_bytes);
    ebb__cli_row("plans made in", "%.2f s", shown->made_s);
    if (n_budgets > 1 && n == n_budgets) {
        show_budgets(shown, rows, n);
    } else {
        show_policies(shown, rows, n);
    }
}

/* ---- what has no plan -------------------------------------------------------------------------- */

static bool is_told_before(const ebb_compared *rows, size_t row) {
    for (size_t i = 0; i < row; i++) {
        if (rows[i].why != NULL && strcmp(rows[i].policy, rows[row].policy) == 0) { return true; }
    }
    return false;
}

void ebb__cli_tell_without_plan(const ebb_cli_shown *shown) {
    size_t n = 0, n_budgets = 0;
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    const ebb_compared_budget *budgets = ebb_comparison_budgets(shown->comparison, &n_budgets);
    for (size_t i = 0; i < n; i++) {
        char bytes[32];
        size_t n_without = 0;
        if (rows[i].why == NULL || is_told_before(rows, i)) { continue; }
        for (size_t j = i; j < n; j++) {
            n_without += rows[j].why != NULL && strcmp(rows[i].policy, rows[j].policy) == 0;
        }
        ebb__cli_say("note: %s has no plan at %zu of %zu budgets, the first %s: %s", rows[i].policy, n_without,
                     n_budgets, ebb_bytes_format(budgets[rows[i].budget].bytes, bytes, sizeof bytes), rows[i].why);
    }
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static void json_budgets(const ebb_cli_shown *shown) {
    size_t n = 0;
    const ebb_compared_budget *budgets = ebb_comparison_budgets(shown->comparison, &n);
    ebb__json_list_begin("budgets");
    for (size_t i = 0; i < n; i++) {
        ebb__json_item_begin();
        ebb__json_u64("budget_bytes", budgets[i].bytes);
        if (shown->budgets->at[i].percent > 0) { ebb__json_f64("budget_percent", shown->budgets->at[i].percent); }
        ebb__json_f64("bound_step_time_s", (double)budgets[i].certificate.bound_ns / 1e9);
        ebb__json_text("bound_step_time_rule", budgets[i].certificate.ns_rule);
        ebb__json_item_end();
    }
    ebb__json_list_end();
}

static void json_links(const ebb_cli_shown *shown, const ebb_compared *row) {
    const ebb_topology *t = ebb_comparison_topology(shown->comparison);
    ebb__json_list_begin("links");
    for (uint32_t from = 0; from < t->n_tiers; from++) {
        for (uint32_t to = 0; to < t->n_tiers; to++) {
            if (row->copied_bytes[from][to] == 0) { continue; }
            ebb__json_item_begin();
            ebb__json_text("from", t->tier[from].name);
            ebb__json_text("to", t->tier[to].name);
            ebb__json_u64("bytes", row->copied_bytes[from][to]);
            ebb__json_item_end();
        }
    }
    ebb__json_list_end();
}

static void json_plan(const ebb_cli_shown *shown, const ebb_compared *row) {
    ebb__json_u64("peak_planned_bytes", row->summary.peak_bytes);
    json_links(shown, row);
    ebb__json_u64("recomputed_steps", row->summary.n_recomputed_steps);
    ebb__json_f64("stall_time_predicted_s", (double)row->timeline.stall_ns[EBB_COMPUTE] / 1e9);
    ebb__json_f64("again_time_predicted_s", (double)row->timeline.again_ns / 1e9);
    ebb__json_f64("step_time_predicted_s", (double)row->timeline.iteration_ns / 1e9);
    ebb__json_f64("gap", row->gap);
    if (!row->run.has_run) { return; }
    char hex[16];
    snprintf(hex, sizeof hex, "%08" PRIx32, row->run.loss_bits);
    ebb__json_f64("step_time_measured_s", row->run.time_s);
    ebb__json_limit("peak_measured_bytes", row->run.peak_bytes);
    ebb__json_text("loss_hex", hex);
}

static void show_json(const ebb_cli_shown *shown) {
    size_t n = 0, n_budgets = 0;
    const ebb_compared *rows = ebb_comparison_rows(shown->comparison, &n);
    const ebb_compared_budget *budgets = ebb_comparison_budgets(shown->comparison, &n_budgets);
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("program", ebb_program_name(shown->subject->parts.program));
    ebb__json_u64("liveness_bytes", shown->liveness_bytes);
    ebb__json_f64("plans_made_s", shown->made_s);
    json_budgets(shown);
    ebb__json_list_begin("plans");
    for (size_t i = 0; i < n; i++) {
        ebb__json_item_begin();
        ebb__json_text("policy", rows[i].policy);
        ebb__json_u64("budget_bytes", budgets[rows[i].budget].bytes);
        ebb__json_f64("plan_made_s", rows[i].made_s);
        if (rows[i].plan != NULL) {
            json_plan(shown, &rows[i]);
        } else {
            ebb__json_text("error", rows[i].why);
            ebb__json_u64("least_budget_bytes", rows[i].no_fit.least_budget_bytes);
        }
        ebb__json_item_end();
    }
    ebb__json_list_end();
    ebb__json_end();
}

void ebb__cli_show(const ebb_cli_shown *shown, bool as_json) {
    ebb__progress_clear();
    if (as_json) {
        show_json(shown);
    } else {
        show_table(shown);
    }
}
