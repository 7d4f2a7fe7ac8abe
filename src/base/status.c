/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes, the thread's last message, the log callback. These and the backend table are the only
 * globals of the library.
 */
#include "base/base.h"

#include <stdlib.h>

#define MESSAGE_BYTES 1024

static _Thread_local char last_message[MESSAGE_BYTES];

static struct {
    ebb_log_fn fn;
    void *ctx;
    ebb_log_level max_level;
} log_sink;

const char *ebb_version(void) {
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
    return TEXT(EBB_VERSION_MAJOR) "." TEXT(EBB_VERSION_MINOR) "." TEXT(EBB_VERSION_PATCH);
#undef TEXT
#undef TEXT_
}

const char *ebb_status_text(ebb_status status) {
    switch (status) {
#define STATUS_CASE(name, value, text)                                                                                 \
    case EBB_##name: return text;
        EBB_STATUS_TABLE(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

const char *ebb_last_error(void) {
    return last_message;
}

ebb_status ebb_fail(ebb_status code, const char *fmt, ...) {
    char text[MESSAGE_BYTES]; /* the arguments may point into last_message */
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ebb__utf8_make_line(text); /* what a file has may be in it */
    memcpy(last_message, text, sizeof text);
    return code;
}

ebb_status ebb__fail_adopt(ebb_status code, const char *message) {
    return ebb_fail(code, "%s", message);
}

void ebb_log_set(ebb_log_fn fn, void *ctx, ebb_log_level max_level) {
    log_sink.fn = fn;
    log_sink.ctx = ctx;
    log_sink.max_level = max_level;
}

void ebb__log(ebb_log_level level, const char *fmt, ...) {
    if (log_sink.fn == NULL || level > log_sink.max_level) { return; }
    char text[MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ebb__utf8_make_line(text);
    log_sink.fn(log_sink.ctx, level, text);
}

void ebb__assert_failed(const char *cond, const char *file, int line) {
    ebb__log(EBB_LOG_ERROR, "%s:%d: broken invariant: %s", file, line, cond);
    __builtin_trap(); /* debug builds only: see EBB_ASSERT */
}
