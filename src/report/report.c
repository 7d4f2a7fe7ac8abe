/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as an object, the table of its formats, and where they are written to.
 */
#include "base/file.h"
#include "report/report_priv.h"

#include <inttypes.h>
#include <stdlib.h>

static const ebb_report_renderer renderers[] = {
    {"text", "words, a curve and tables for a terminal", ebb__report_render_text, NULL},
    {"json", "one object, for programs", ebb__report_render_json, NULL},
    {"html", "a page for a browser, with pictures, in one file", ebb__report_render_html, ebb__report_check_html},
    {"perfetto", "Chrome's trace events, for ui.perfetto.dev", ebb__report_render_perfetto, NULL},
    {"memory-viz", "a snapshot as PyTorch's memory viewer reads it", ebb__report_render_memory_viz, NULL},
};
#define N_RENDERERS (sizeof renderers / sizeof renderers[0])

#define DEFAULT_COLUMNS 100u /* where the text does not go to a terminal */
#define MIN_COLUMNS 40u      /* a number, its unit and some of a name */

ebb_status ebb_report_create(const char *path, const ebb_report_options *options, ebb_report **report_out) {
    EBB_NEED(path);
    EBB_NEED(report_out);
    ebb_report_options o = EBB_REPORT_OPTIONS_INIT;
    if (options != NULL) {
        if (options->size_bytes != sizeof o) { return ebb_fail(EBB_E_ARGUMENT, "report options of another version"); }
        o = *options;
    }
    const ebb_mem *mem = ebb__mem_or_default(o.mem);
    ebb_report *report = ebb__calloc(mem, 1, sizeof *report);
    if (report == NULL) { return EBB_E_NO_MEMORY; }
    report->mem = mem;
    report->out_bytes_per_s = o.out_bytes_per_s;
    report->in_bytes_per_s = o.in_bytes_per_s;
    report->latency_ns = o.latency_ns;
    report->progress = o.progress;
    report->n_columns = o.n_columns == 0 ? DEFAULT_COLUMNS : o.n_columns < MIN_COLUMNS ? MIN_COLUMNS : o.n_columns;
    report->path = ebb__strdup(mem, path);
    report->temp_dir = o.temp_dir != NULL ? ebb__strdup(mem, o.temp_dir) : NULL;
    report->name = ebb__strdup(mem, o.name != NULL ? o.name : ebb__base_name(path));
    report->device = o.device != NULL ? ebb__strdup(mem, o.device) : NULL;
    if (report->path == NULL || report->name == NULL || (o.temp_dir != NULL && report->temp_dir == NULL) ||
        (o.device != NULL && report->device == NULL)) {
        ebb_report_destroy(report);
        return EBB_E_NO_MEMORY;
    }
    *report_out = report;
    return EBB_OK;
}

void ebb_report_destroy(ebb_report *report) {
    if (report == NULL) { return; }
    ebb_study_destroy(report->study);
    ebb_trace_reader_close(report->reader);
    ebb__free(report->mem, report->path);
    ebb__free(report->mem, report->temp_dir);
    ebb__free(report->mem, report->device);
    ebb__free(report->mem, report->name);
    ebb__free(report->mem, report);
}

ebb_status ebb__report_open(const ebb_report *report, ebb_trace_reader **reader_out) {
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.mem = report->mem;
    options.temp_dir = report->temp_dir;
    options.device = report->device;
    options.progress = report->progress;
    return ebb_trace_open(report->path, &options, reader_out);
}

ebb_status ebb__report_read(ebb_report *report) {
    if (report->study != NULL) { return EBB_OK; }
    ebb_study_options options = EBB_STUDY_OPTIONS_INIT;
    options.mem = report->mem;
    if (report->out_bytes_per_s > 0.0) { options.out_bytes_per_s = report->out_bytes_per_s; }
    if (report->in_bytes_per_s > 0.0) { options.in_bytes_per_s = report->in_bytes_per_s; }
    options.latency_ns = report->latency_ns;
    ebb_trace_reader *reader = NULL;
    EBB_TRY(ebb__report_open(report, &reader));
    const ebb_status status = ebb_study_create(reader, &options, &report->study);
    if (status != EBB_OK) {
        ebb_trace_reader_close(reader);
        return status;
    }
    report->reader = reader;
    report->summary = ebb_study_get_summary(report->study);
    return EBB_OK;
}

const ebb_trace_device *ebb__report_devices(const ebb_report *report, size_t *n_out) {
    size_t chosen = 0;
    return ebb_trace_reader_devices(report->reader, n_out, &chosen);
}

const ebb_trace_device *ebb__report_device(const ebb_report *report) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(report->reader, &n, &chosen);
    const bool is_told = n > 0 && (n > 1 || devices[chosen].is_named || ebb__report_left_out(report) != NULL);
    return is_told ? &devices[chosen] : NULL;
}

const char *ebb__report_left_out(const ebb_report *report) {
    return ebb_trace_reader_left_out(report->reader);
}

bool ebb__report_tells(const ebb_report *report, uint32_t bit) {
    return (report->summary.tells & bit) != 0;
}

bool ebb__report_stall(const ebb_report *report, uint32_t row, ebb_report_stall *stall_out) {
    char key[24];
    (void)snprintf(key, sizeof key, "stall.%" PRIu32, row);
    const char *ns = ebb_trace_reader_note(report->reader, key);
    (void)snprintf(key, sizeof key, "row.%" PRIu32, row);
    const char *engine = ebb_trace_reader_note(report->reader, key);
    const size_t n_digits = ns != NULL ? strspn(ns, "0123456789") : 0;
    if (engine == NULL || n_digits == 0 || n_digits > 19 || ns[n_digits] != '\0') { return false; }
    *stall_out = (ebb_report_stall){.engine = engine, .ns = strtoull(ns, NULL, 10)};
    return true;
}

bool ebb__report_has_roles(const ebb_report *report) {
    return ebb__report_tells(report, EBB_TRACE_TELLS_ROLES) || report->summary.roles_inferred;
}

const char *ebb_report_format_name(size_t i, const char **about_out) {
    if (i >= N_RENDERERS) { return NULL; }
    if (about_out != NULL) { *about_out = renderers[i].about; }
    return renderers[i].name;
}

static ebb_status find_renderer(const char *format, const ebb_report_renderer **renderer_out) {
    for (size_t i = 0; i < N_RENDERERS; i++) {
        if (strcmp(renderers[i].name, format) != 0) { continue; }
        *renderer_out = &renderers[i];
        return renderers[i].check != NULL ? renderers[i].check() : EBB_OK;
    }
    return ebb_fail(EBB_E_ARGUMENT, "there is no report format %s", format);
}

ebb_status ebb_report_check_format(const char *format) {
    EBB_NEED(format);
    const ebb_report_renderer *renderer = NULL;
    return find_renderer(format, &renderer);
}

ebb_status ebb_report_write(ebb_report *report, const char *format, ebb_report_sink sink, void *ctx) {
    EBB_NEED(report);
    EBB_NEED(format);
    EBB_NEED(sink);
    const ebb_report_renderer *renderer = NULL;
    EBB_TRY(find_renderer(format, &renderer));
    ebb_report_out *out = ebb__calloc(report->mem, 1, sizeof *out);
    if (out == NULL) { return EBB_E_NO_MEMORY; }
    out->sink = sink;
    out->ctx = ctx;
    ebb_status status = renderer->render(report, out);
    if (status == EBB_OK) { status = ebb__report_flush(out); }
    ebb__free(report->mem, out);
    return status;
}

bool ebb_report_is_complete(const ebb_report *report) {
    return report->study == NULL || report->summary.complete;
}

static ebb_status write_to_file(void *ctx, const void *data, size_t n_bytes) {
    return ebb__file_writer_write(ctx, data, n_bytes);
}

ebb_status ebb_report_save(ebb_report *report, const char *format, const char *path) {
    EBB_NEED(report);
    EBB_NEED(format);
    EBB_NEED(path);
    ebb_file_writer *writer = NULL;
    EBB_TRY(ebb__file_writer_open(report->mem, path, 0, &writer));
    const ebb_status status = ebb_report_write(report, format, write_to_file, writer);
    if (status != EBB_OK) {
        ebb__file_writer_abandon(writer);
        return status;
    }
    return ebb__file_writer_commit(writer);
}
