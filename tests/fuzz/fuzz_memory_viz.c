/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots for PyTorch's viewer, of hostile traces: what is written is one that can be imported again, or there is
 * an error.
 */
#include "ebb/report.h"
#include "trace/import_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct written {
    uint8_t *data;
    size_t n, cap;
} written;

static ebb_status take(void *ctx, const void *data, size_t n_bytes) {
    written *w = ctx;
    while (w->cap - w->n < n_bytes) {
        w->cap = w->cap == 0 ? 65536 : 2 * w->cap;
        w->data = realloc(w->data, w->cap);
        if (w->data == NULL) { abort(); }
    }
    memcpy(w->data + w->n, data, n_bytes);
    w->n += n_bytes;
    return EBB_OK;
}

static void import_again(const written *w) {
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_stream stream = ebb__stream_memory("written", w->data, w->n);
    const int fd = memfd_create("again", MFD_CLOEXEC);
    if (fd < 0) { abort(); }
    options.device = "all";
    const ebb_status st = ebb__import_stream(&stream, fd, &options, NULL);
    if (st != EBB_OK && st != EBB_E_LIMIT) { abort(); }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char path[64];
    ebb_report *report = NULL;
    written w = {.n = 0};
    if (size < TRACE_MAGIC_BYTES || memcmp(data, TRACE_MAGIC, TRACE_MAGIC_BYTES) != 0) { return 0; }
    const int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) { abort(); }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (ebb_report_create(path, NULL, &report) != EBB_OK) { abort(); }
    if (ebb_report_write(report, "memory-viz", take, &w) == EBB_OK) { import_again(&w); }
    ebb_report_destroy(report);
    (void)close(fd);
    free(w.data);
    return 0;
}
