/* SPDX-License-Identifier: Apache-2.0
 *
 * What the fuzz targets of importers share: hostile bytes are refused with a status that fits, or become a trace that
 * its reader takes to the end, with the blocks and events that were stated. Needs the format's name.
 */
#ifndef EBB_TESTS_IMPORT_FUZZ_H
#define EBB_TESTS_IMPORT_FUZZ_H

#include "trace/import_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_trace(int fd, const ebb_trace_import_result *result) {
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    if (lseek(fd, 0, SEEK_SET) != 0 || ebb__trace_reader_open_fd(NULL, "made", fd, &reader) != EBB_OK) { abort(); }
    for (bool done = false; !done;) {
        if (ebb_trace_reader_next(reader, &event, &done) != EBB_OK) { abort(); }
    }
    const ebb_trace_info info = ebb_trace_reader_info(reader);
    if (info.complete != result->complete || info.n_events != result->n_events || info.n_blocks != result->n_blocks) {
        abort();
    }
    if (info.tells != result->tells || ebb_trace_reader_note(reader, "source") == NULL) { abort(); }
    ebb_trace_reader_close(reader);
}

static int fuzz_import(const char *format, const uint8_t *data, size_t size) {
    ebb_stream stream = ebb__stream_memory("fuzz", data, size);
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_trace_import_result result;
    const int fd = memfd_create("fuzz", MFD_CLOEXEC), twin = dup(fd);
    if (fd < 0 || twin < 0) { abort(); }
    options.format = format;
    options.device = size > 0 && data[size - 1] == '\n' ? "all" : NULL;
    const ebb_status st = ebb__import_stream(&stream, twin, &options, &result);
    if (st == EBB_OK) {
        check_trace(fd, &result);
        return 0;
    }
    if (st != EBB_E_FORMAT && st != EBB_E_UNSUPPORTED && st != EBB_E_LIMIT) { abort(); }
    (void)close(fd);
    return 0;
}

#endif
