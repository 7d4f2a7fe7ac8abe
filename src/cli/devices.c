/* SPDX-License-Identifier: Apache-2.0
 *
 * `--device list`: the devices of a recording.
 */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

bool ebb__cli_lists_devices(const char *device) {
    return device != NULL && strcmp(device, "list") == 0;
}

static void print_devices(ebb_trace_reader *reader) {
    size_t n = 0, chosen = 0;
    const ebb_trace_device *devices = ebb_trace_reader_devices(reader, &n, &chosen);
    for (size_t i = 0; i < n; i++) {
        char name[64], peak[32], text[192];
        snprintf(text, sizeof text, "%-16s peak %12s  %8" PRIu64 " blocks%s%s",
                 ebb__cli_clean(devices[i].name, name, sizeof name),
                 ebb_bytes_format(devices[i].peak_bytes, peak, sizeof peak), devices[i].n_blocks,
                 devices[i].is_out_of_memory ? ", ran out of memory" : "",
                 i == chosen ? ", taken without --device" : "");
        ebb__cli_print_words(stdout, 0, 2, text);
    }
    const char *others = ebb_trace_reader_left_out(reader); /* by the import, which reads one at a time */
    if (others != NULL) { printf("not read: %s\n", others); }
    if (n == 0 && others == NULL) { printf("no device: nothing is allocated in this recording\n"); }
}

ebb_status ebb__cli_open_recording(const char *path, const char *device, ebb_trace_reader **reader_out) {
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    options.device = device;
    options.temp_dir = ebb__cli_temp_dir();
    options.progress = ebb__progress();
    ebb__progress_tell("reading the recording", 0, 0);
    return ebb_trace_open(path, &options, reader_out);
}

int ebb__cli_list_devices(const char *path) {
    ebb_trace_reader *reader = NULL;
    const ebb_status status = ebb__cli_open_recording(path, NULL, &reader);
    ebb__progress_clear();
    if (status == EBB_OK) { print_devices(reader); }
    ebb_trace_reader_close(reader);
    return status == EBB_OK ? ebb__cli_close_output() : ebb__cli_file_failed(status);
}
