/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation of a report fails in turn, in every format.
 */
#include "ebb/report.h"
#include "report_support.h"

static ebb_status forget(void *ctx, const void *data, size_t n_bytes) {
    (void)ctx;
    (void)data;
    (void)n_bytes;
    return EBB_OK;
}

static ebb_status report_all(const ebb_mem *mem, const char *path, const char *format) {
    ebb_report_options options = EBB_REPORT_OPTIONS_INIT;
    options.mem = mem;
    ebb_report *report = NULL;
    ebb_status status = ebb_report_create(path, &options, &report);
    if (status == EBB_OK) { status = ebb_report_write(report, format, forget, NULL); }
    ebb_report_destroy(report);
    return status == EBB_E_UNSUPPORTED ? EBB_OK : status;
}

static void test_report_oom(void **state) {
    (void)state;
    recorder r;
    char path[256];
    (void)snprintf(path, sizeof path, "%s", data_path(&test_dir, "recording"));
    record_random(&r, path, 7, 255 & ~(uint32_t)EBB_TRACE_TELLS_ADDRESSES, 60);
    const char *format = NULL;
    for (size_t i = 0; (format = ebb_report_format_name(i, NULL)) != NULL; i++) {
        OOM_LOOP(mem, st, st = report_all(mem, path, format));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_DIR(test_report_oom)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
