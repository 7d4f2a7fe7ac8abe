/* SPDX-License-Identifier: Apache-2.0
 *
 * The output of `ebb train`. As JSON: an object a step, one where a better plan is taken, one an evaluation, one at the
 * end, each told from the others by its members ("step", "predicted_before_s", "accuracy", "schema_version"); a loss
 * that is not finite is null. For people: what will be done, about twenty lines of steps, evaluations, and a table at
 * the end; on a terminal a progress line besides.
 */
#include "train_report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* A caller's buffer of 32 bytes for each number of a line. */
static const char *bytes_text(uint64_t bytes, char buf[32]) {
    return ebb_bytes_format(bytes, buf, 32);
}

void ebb__cli_report_begin(ebb_cli_train_report *report) {
    const ebb_trainer_info *info = &report->info;
    ebb__progress_clear();
    if (report->as_json) { return; }
    char peak[32], budget[32], liveness[32];
    bool has_budget = info->plan.budget_bytes != UINT64_MAX;
    char text[512];
    snprintf(text, sizeof text,
             "%s on %s: batch %" PRId64 " of %" PRId64 "x%" PRId64 "x%" PRId64 ", %" PRId64
             " classes, %.2f million parameters",
             info->net, info->backend, info->batch, info->channels, info->height, info->width, info->classes,
             (double)info->n_parameters / 1e6);
    ebb__cli_print_words(stdout, 0, 2, text);
    snprintf(text, sizeof text, "policy %s: %s planned, budget %s, liveness needs %s; predicted %.4f s a step",
             info->policy, bytes_text(info->plan.peak_bytes, peak),
             has_budget ? bytes_text(info->plan.budget_bytes, budget) : "without limit",
             bytes_text(info->liveness_bytes, liveness), info->step_time_predicted_s);
    ebb__cli_print_words(stdout, 0, 2, text);
    if (info->context_bytes > 0) { printf("beside it on the device: %s\n", bytes_text(info->context_bytes, peak)); }
    if (info->first_step > 0) { printf("continues after step %" PRIu64 "\n", info->first_step); }
    fflush(stdout);
}

void ebb__cli_report_go_on(const ebb_cli_train_report *report, uint64_t step) {
    ebb__progress_tell("step", step, report->info.n_steps);
}

/* A NaN without its sign, which says nothing. */
static double shown(double x) {
    return isnan(x) ? fabs(x) : x;
}

static uint32_t float_bits(float value) {
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void show_progress(const ebb_trainer_info *info, const ebb_step_result *step) {
    char peak[32];
    double img_s = step->time_s > 0.0 ? (double)info->batch / step->time_s : 0.0;
    ebb__progress_tell("step", step->step, info->n_steps);
    ebb__progress_detail("loss %.4g, %.1f img/s, step %.4f s (predicted %.4f), peak %s", shown((double)step->loss),
                         img_s, step->time_s, info->step_time_predicted_s, bytes_text(info->plan.peak_bytes, peak));
}

/* The first step, the last, and about twenty between. */
static bool is_worth_a_line(const ebb_trainer_info *info, uint64_t step) {
    uint64_t every = info->n_steps > 20 ? info->n_steps / 20 : 1;
    return step == info->first_step + 1 || step == info->n_steps || step % every == 0;
}

void ebb__cli_report_step(const ebb_cli_train_report *report, const ebb_step_result *step) {
    if (report->as_json) {
        ebb__progress_clear();
        char hex[16];
        snprintf(hex, sizeof hex, "%08" PRIx32, float_bits(step->loss));
        ebb__json_begin();
        ebb__json_u64("step", step->step);
        ebb__json_f32("loss", step->loss);
        ebb__json_text("loss_hex", hex);
        ebb__json_f64("time_s", step->time_s);
        ebb__json_u64("epoch", step->epoch);
        ebb__json_f32("learning_rate", step->learning_rate);
        ebb__json_f64("wait_data_s", step->wait_data_s);
        ebb__json_end();
    } else if (is_worth_a_line(&report->info, step->step)) {
        ebb__progress_clear();
        printf("step %" PRIu64 ": loss %.6g, %.4f s\n", step->step, shown((double)step->loss), step->time_s);
        fflush(stdout);
    }
    show_progress(&report->info, step);
}

void ebb__cli_report_improved(ebb_cli_train_report *report, ebb_trainer_info info) {
    const double before_s = report->info.step_time_predicted_s;
    report->info = info;
    ebb__progress_clear();
    if (report->as_json) {
        ebb__json_begin();
        ebb__json_u64("improved_at_step", info.improved_at_step);
        ebb__json_f64("step_time_predicted_s", info.step_time_predicted_s);
        ebb__json_f64("predicted_before_s", before_s);
        ebb__json_end();
        return;
    }
    printf("step %" PRIu64 ": from here by a better plan, predicted %.4f s a step (before %.4f)\n",
           info.improved_at_step, info.step_time_predicted_s, before_s);
    fflush(stdout);
}

void ebb__cli_report_eval(const ebb_cli_train_report *report, uint64_t n_epochs, const ebb_eval_result *eval) {
    ebb__progress_clear();
    if (report->as_json) {
        ebb__json_begin();
        ebb__json_u64("epoch", n_epochs);
        ebb__json_f64("accuracy", eval->accuracy);
        ebb__json_f64("loss", eval->loss);
        ebb__json_u64("images", eval->n_images);
        ebb__json_end();
        return;
    }
    printf("epoch %" PRIu64 ": accuracy %.2f %% on %" PRIu64 " images held out, loss %.4g\n", n_epochs,
           100.0 * eval->accuracy, eval->n_images, shown(eval->loss));
    fflush(stdout);
}

static void print_json_end(const ebb_trainer_info *info, const ebb_trainer_summary *summary) {
    const ebb_plan_summary *plan = &info->plan;
    ebb__json_begin();
    ebb__json_u64("schema_version", EBB_CLI_SCHEMA_VERSION);
    ebb__json_text("net", info->net);
    ebb__json_text("backend", info->backend);
    ebb__json_text("policy", info->policy);
    ebb__json_limit("budget_bytes", plan->budget_bytes);
    ebb__json_u64("peak_planned_bytes", plan->peak_bytes);
    ebb__json_limit("peak_measured_bytes", summary->run.peak_bytes);
    ebb__json_u64("moved_out_bytes", summary->run.moved_out_bytes);
    ebb__json_u64("moved_in_bytes", summary->run.moved_in_bytes);
    ebb__json_u64("moved_on_bytes", summary->run.moved_on_bytes);
    ebb__json_u64("recomputed_steps", summary->run.n_recomputed_steps);
    ebb__json_f64("again_time_predicted_s", summary->again_time_s);
    ebb__json_f64("step_time_predicted_s", info->step_time_predicted_s);
    ebb__json_u64("improved_at_step", info->improved_at_step);
    ebb__json_f64("stall_time_predicted_s", info->stall_predicted_s[EBB_COMPUTE]);
    ebb__json_f64("stall_time_measured_s", summary->stall_median_s[EBB_COMPUTE]);
    ebb__json_list_begin("engines");
    for (uint32_t e = 0; e < info->n_engines; e++) {
        ebb__json_item_begin();
        ebb__json_text("engine", info->engine_name[e]);
        ebb__json_f64("busy_predicted_s", info->busy_predicted_s[e]);
        ebb__json_f64("stall_predicted_s", info->stall_predicted_s[e]);
        ebb__json_f64("stall_measured_s", summary->stall_median_s[e]);
        ebb__json_u64("moved_bytes", summary->run.engine_bytes[e]);
        ebb__json_item_end();
    }
    ebb__json_list_end();
    ebb__json_choices(plan->algorithms, &info->choices);
    ebb__json_f64("step_time_median_s", summary->step_time_median_s);
    ebb__json_f64("images_per_s", summary->images_per_s);
    ebb__json_text("weights_sha256", summary->weights_sha256);
    ebb__json_u64("liveness_bytes", info->liveness_bytes);
    ebb__json_u64("arena_bytes", summary->run.arena_bytes);
    ebb__json_u64("context_bytes", info->context_bytes);
    ebb__json_u64("context_end_bytes", summary->context_bytes);
    ebb__json_u64("arena_resident_bytes", summary->run.arena_resident_bytes);
    ebb__json_u64("slab_bytes", summary->run.slab_bytes);
    ebb__json_u64("file_bytes", summary->run.file_bytes);
    ebb__json_text("file_io", summary->run.file_io);
    ebb__json_u64("remote_bytes", summary->run.remote_bytes);
    ebb__json_u64("data_bytes", summary->data_bytes);
    ebb__json_u64("constant_bytes", summary->constant_bytes);
    ebb__json_u64("resident_peak_bytes", summary->resident_peak_bytes);
    ebb__json_end();
}

/* What an engine waits for others, as two rows. */
static void print_stall(const char *what, double measured_s, double predicted_s) {
    char name[EBB_NAME_BYTES + 32];
    snprintf(name, sizeof name, "  %s (median)", what);
    if (!isnan(measured_s)) {
        ebb__cli_row(name, "%.4f s", measured_s);
    } else {
        ebb__cli_row(name, "not known");
    }
    snprintf(name, sizeof name, "  %s (predicted)", what);
    ebb__cli_row(name, "%.4f s", predicted_s);
}

/* Each part is counted by itself; the kernel counts what was in memory at once. The difference has a line, so that all
 * lines add up. */
static void print_process(const ebb_trainer_summary *summary) {
    const ebb_run_stats *run = &summary->run;
    const uint64_t parts[] = {run->arena_bytes, run->slab_bytes, summary->data_bytes, summary->constant_bytes};
    static const char *const names[] = {"  arena", "  host slab", "  data", "  constant (code, kernels)"};
    uint64_t bytes = 0;
    char text[32];
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ebb__cli_row_bytes(names[i], parts[i]);
        bytes += parts[i];
    }
    if (summary->resident_peak_bytes >= bytes) {
        ebb__cli_row_bytes("  the rest (heap, stacks)", summary->resident_peak_bytes - bytes);
    } else {
        const uint64_t less = bytes - summary->resident_peak_bytes;
        ebb__cli_row("  not all in memory at once", "-%s  -%" PRIu64, ebb_bytes_format(less, text, sizeof text), less);
    }
    ebb__cli_row_bytes("  peak of the process", summary->resident_peak_bytes);
}

static void print_table_end(const ebb_trainer_info *info, const ebb_trainer_summary *summary) {
    const ebb_run_stats *run = &summary->run;
    printf("\ndevice memory\n");
    ebb__cli_row_bytes("  planned peak", info->plan.peak_bytes);
    if (run->peak_bytes != UINT64_MAX) {
        ebb__cli_row_bytes("  measured peak", run->peak_bytes);
    } else {
        ebb__cli_row("  measured peak", "not known");
    }
    printf("an iteration\n");
    ebb__cli_row_bytes("  copied out", run->moved_out_bytes);
    ebb__cli_row_bytes("  copied in", run->moved_in_bytes);
    if (run->moved_on_bytes > 0) { ebb__cli_row_bytes("  moved on", run->moved_on_bytes); }
    ebb__cli_row("  steps computed again", "%" PRIu64, run->n_recomputed_steps);
    ebb__cli_row("  time (median)", "%.4f s", summary->step_time_median_s);
    ebb__cli_row("  time (predicted)", "%.4f s", info->step_time_predicted_s);
    print_stall("waits for copies", summary->stall_median_s[EBB_COMPUTE], info->stall_predicted_s[EBB_COMPUTE]);
    for (uint32_t e = EBB_COMPUTE + 1; e < info->n_engines; e++) {
        char what[EBB_NAME_BYTES + 8];
        if (info->busy_predicted_s[e] <= 0) { continue; } /* the plan does not use it */
        snprintf(what, sizeof what, "%s waits", info->engine_name[e]);
        print_stall(what, summary->stall_median_s[e], info->stall_predicted_s[e]);
    }
    ebb__cli_row("  images a second", "%.1f", summary->images_per_s);
    ebb__cli_row_choices("  ", info->plan.algorithms, &info->choices);
    printf("resident memory of the process, as the kernel counts it\n");
    print_process(summary);
    if (run->file_bytes > 0) { ebb__cli_row_bytes("  file on disk", run->file_bytes); }
    if (run->remote_bytes > 0) { ebb__cli_row_bytes("  in other processes", run->remote_bytes); }
    if (run->file_io != NULL) { ebb__cli_row("  how it is read and written", "%s", run->file_io); }
    printf("weights sha256 %s\n", summary->weights_sha256);
}

void ebb__cli_report_end(const ebb_cli_train_report *report, const ebb_trainer_summary *summary) {
    ebb__progress_clear();
    if (report->as_json) {
        print_json_end(&report->info, summary);
    } else {
        print_table_end(&report->info, summary);
    }
}
