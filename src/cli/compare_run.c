/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans that run: see compare_run.h. The data is synthetic, the same batches for each plan. The first iteration warms
 * up; where there are more, its time does not count.
 */
#include "compare_run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MEASURE_REPS 2
#define LEARNING_RATE 0.003f

ebb_status ebb__cli_measure_machine(const ebb_cli_network *network, const ebb_session_parts *parts) {
    if (network->machine != NULL) { return EBB_OK; }
    const ebb_progress progress = ebb__progress();
    const bool all_choices = network->algorithms != NULL && strcmp(network->algorithms, "given") != 0;
    ebb__progress_tell("measuring the machine", 0, 0);
    const uint64_t floor_bytes = ebb_program_floor_bytes(parts->program, NULL);
    const ebb_status status =
        ebb_run_measure_links(parts->device, network->disk, network->io, network->lent, floor_bytes, parts->machine);
    if (status != EBB_OK) { return status; }
    ebb_measure_options options = EBB_MEASURE_OPTIONS_INIT;
    options.reps = MEASURE_REPS;
    options.all_choices = all_choices;
    options.progress = progress;
    return ebb_run_measure_steps(parts->lowered, &options, parts->machine);
}

/* A run's ports, and the data for them. */
typedef struct feed {
    float *images;
    int32_t *labels;
    const float *loss;
    int64_t n_images;
    ebb_data *data;
} feed;

static ebb_status open_feed(ebb_run *run, feed *f) {
    ebb_port images, labels;
    void *image_memory = NULL, *label_memory = NULL, *loss_memory = NULL;
    ebb_status status = ebb_run_port(run, "images", &image_memory, &images);
    if (status == EBB_OK) { status = ebb_run_port(run, "labels", &label_memory, &labels); }
    if (status == EBB_OK) { status = ebb_run_port(run, "loss", &loss_memory, NULL); }
    if (status != EBB_OK) { return status; }
    ebb_data_options options = EBB_DATA_OPTIONS_INIT;
    options.channels = images.dims[1];
    options.height = images.dims[2];
    options.width = images.dims[3];
    options.classes = labels.below;
    *f = (feed){.images = image_memory, .labels = label_memory, .loss = loss_memory, .n_images = images.dims[0]};
    return ebb_data_open("synthetic", &options, &f->data);
}

static int order_times(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median without the first. */
static double median(double *times_s, uint64_t n) {
    if (n == 1) { return times_s[0]; }
    qsort(times_s + 1, n - 1, sizeof *times_s, order_times);
    return times_s[1 + (n - 1) / 2];
}

static ebb_status iterate(ebb_run *run, uint64_t n_steps, double *times_s, ebb_compared_run *measured) {
    feed f = {.data = NULL};
    ebb_status status = open_feed(run, &f);
    for (uint64_t i = 0; i < n_steps && status == EBB_OK; i++) {
        const ebb_batch batch = {.epoch = 0, .idx = i, .n = f.n_images};
        status = ebb_data_read(f.data, batch, f.images, f.labels, NULL);
        if (status == EBB_OK) { status = ebb_run_iteration(run, i, i + 1, LEARNING_RATE); }
        if (status != EBB_OK) { break; }
        times_s[i] = (double)ebb_run_get_stats(run).iteration_ns / 1e9;
        memcpy(&measured->loss_bits, f.loss, sizeof measured->loss_bits);
    }
    ebb_data_close(f.data);
    return status;
}

static ebb_status run_plan(const ebb_cli_network *network, const ebb_session_parts *parts, const ebb_plan *plan,
                           uint64_t n_steps, ebb_compared_run *measured) {
    ebb_run_options options = EBB_RUN_OPTIONS_INIT;
    ebb_run *run = NULL;
    double *times_s = calloc(n_steps, sizeof *times_s);
    options.disk_dir = network->disk;
    options.io = network->io;
    options.remote = network->lent;
    ebb_status status = times_s != NULL ? EBB_OK : EBB_E_NO_MEMORY;
    if (status == EBB_OK) { status = ebb_run_create(parts->lowered, plan, &options, &run); }
    if (status == EBB_OK) { status = ebb_run_init_values(run, 0); }
    if (status == EBB_OK) { status = iterate(run, n_steps, times_s, measured); }
    if (status == EBB_OK) {
        measured->has_run = true;
        measured->time_s = median(times_s, n_steps);
        measured->peak_bytes = ebb_run_get_stats(run).peak_bytes;
    }
    ebb_run_destroy(run);
    free(times_s);
    return status;
}

/* The row before it with the same plan, or its own number. */
static size_t find_twin(const ebb_compared *rows, size_t row) {
    for (size_t i = 0; i < row; i++) {
        if (rows[i].plan == rows[row].plan) { return i; }
    }
    return row;
}

ebb_status ebb__cli_run_rows(const ebb_cli_network *network, const ebb_session_parts *parts, uint64_t n_steps,
                             ebb_comparison *comparison) {
    size_t n = 0, n_plans = 0, n_run = 0;
    const ebb_compared *rows = ebb_comparison_rows(comparison, &n);
    for (size_t i = 0; i < n; i++) { n_plans += rows[i].plan != NULL && find_twin(rows, i) == i; }
    for (size_t i = 0; i < n; i++) {
        ebb_compared_run measured = {.has_run = false};
        if (rows[i].plan == NULL) { continue; }
        const size_t twin = find_twin(rows, i);
        ebb_status status = EBB_OK;
        if (twin == i) {
            ebb__progress_tell("running", n_run++, n_plans);
            ebb__progress_detail("%s", rows[i].policy);
            status = run_plan(network, parts, rows[i].plan, n_steps, &measured);
        } else {
            measured = rows[twin].run;
        }
        if (status == EBB_OK) { status = ebb_comparison_set_run(comparison, i, &measured); }
        if (status != EBB_OK) { return status; }
    }
    return EBB_OK;
}

bool ebb__cli_have_same_bits(const ebb_comparison *comparison) {
    size_t n = 0;
    const ebb_compared *rows = ebb_comparison_rows(comparison, &n), *first = NULL;
    for (size_t i = 0; i < n; i++) {
        if (!rows[i].run.has_run) { continue; }
        if (first == NULL) { first = &rows[i]; }
        if (rows[i].run.loss_bits != first->run.loss_bits) { return false; }
    }
    return true;
}
