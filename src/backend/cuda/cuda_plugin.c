/* SPDX-License-Identifier: Apache-2.0
 *
 * The entry of libebb_cuda.so, and what stands in it for base/status.c: a failure's words go to libebb's thread-local,
 * which is the one that its callers read, and lines of the log to libebb's.
 */
#include "backend/plugin.h"
#include "backend/cuda/cuda.h"

#define MESSAGE_BYTES 1024

static const ebb_plugin_host *host; /* set before anything else is called, and the same ever after */

ebb_status ebb_fail(ebb_status code, const char *fmt, ...) {
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return host->fail(code, message);
}

ebb_status ebb__fail_adopt(ebb_status code, const char *message) {
    return host->fail(code, message);
}

void ebb__log(ebb_log_level level, const char *fmt, ...) {
    char message[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    host->log(level, message);
}

const char *ebb_last_error(void) {
    return host->last_error();
}

_Noreturn void ebb__assert_failed(const char *cond, const char *file, int line) {
    (void)ebb_fail(EBB_E_INTERNAL, "%s:%d: broken invariant: %s", file, line, cond);
    __builtin_trap(); /* debug builds only: see EBB_ASSERT */
}

EBB_API const ebb_backend_ops *ebb_backend_plugin(const ebb_plugin_host *lent);
EBB_API const ebb_backend_ops *ebb_backend_plugin(const ebb_plugin_host *lent) {
    if (lent->abi != EBB_BACKEND_ABI) { return NULL; }
    host = lent;
    return &ebb__backend_cuda;
}
