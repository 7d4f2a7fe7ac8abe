/* SPDX-License-Identifier: Apache-2.0
 *
 * The base of all public headers: status codes, the text of the last error, the hooks through which ebb takes all host
 * memory, and the log callback.
 *
 * Rules of the whole library:
 *  - A function that can fail returns ebb_status. Its outputs come last, end in _out, and are written
 *    only on EBB_OK.
 *  - Bytes are uint64_t, times are nanoseconds or seconds as the name says, intervals are half-open.
 *  - The library never ends the process, never prints, never reads the environment.
 *  - A pointer must not be NULL, unless its comment says that it may. A function that returns ebb_status checks
 *    this: it returns EBB_E_ARGUMENT, and the message names the argument. A call that adds to a graph checks it
 *    too, and returns EBB_NO_VALUE. Other functions cannot say what is wrong, so they do not check.
 *  - NULL is fine without a comment for mem, for progress, for the ctx of a callback, for an array of no elements, and
 *    for functions that destroy, close or abandon an object, which then do nothing.
 *  - Objects are not locked: one object, one thread at a time, unless its header says otherwise.
 */
#ifndef EBB_BASE_H
#define EBB_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define EBB_API __attribute__((visibility("default")))
#define EBB_PRINTF(fmt_idx, args_idx) __attribute__((format(printf, fmt_idx, args_idx)))
#else
#define EBB_API
#define EBB_PRINTF(fmt_idx, args_idx)
#endif

/* EBB_..._INIT makes options: it sets size_bytes and the defaults that differ from 0; everything else is 0. */
#ifdef __cplusplus
#define EBB_SET(member, value) init.member = value;
#define EBB_INIT(type, sets)                                                                                           \
    ([] {                                                                                                              \
        type init = type();                                                                                            \
        init.size_bytes = sizeof(type);                                                                                \
        sets return init;                                                                                              \
    }())
#else
#define EBB_SET(member, value) , .member = value
#define EBB_INIT(type, sets) ((type){.size_bytes = sizeof(type) sets})
#endif

#define EBB_VERSION_MAJOR 0
#define EBB_VERSION_MINOR 1
#define EBB_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* The enum, the names and the CLI's exit codes come from this one table: X(code, value, text). */
#define EBB_STATUS_TABLE(X)                                                                                            \
    X(OK, 0, "ok")                                                                                                     \
    X(E_ARGUMENT, -1, "bad argument")                                                                                  \
    X(E_NO_MEMORY, -2, "out of host memory")                                                                           \
    X(E_NO_FIT, -3, "does not fit the budget")                                                                         \
    X(E_FORMAT, -4, "malformed input")                                                                                 \
    X(E_IO, -5, "input or output failed")                                                                              \
    X(E_NO_DEVICE, -6, "no such device or backend")                                                                    \
    X(E_UNSUPPORTED, -7, "not supported")                                                                              \
    X(E_LIMIT, -8, "a limit is exceeded")                                                                              \
    X(E_INVALID_PLAN, -9, "the plan breaks a rule")                                                                    \
    X(E_DEVICE, -10, "the device failed")                                                                              \
    X(E_INTERNAL, -11, "internal error")                                                                               \
    X(E_NOT_FINITE, -12, "a number is not finite")

typedef enum ebb_status {
#define EBB_STATUS_ENUM(name, value, text) EBB_##name = (value),
    EBB_STATUS_TABLE(EBB_STATUS_ENUM)
#undef EBB_STATUS_ENUM
} ebb_status;

/* "0.1.0"; static. */
EBB_API const char *ebb_version(void);

/* A few words for a code; static, never NULL. */
EBB_API const char *ebb_status_text(ebb_status status);

/* The message of this thread's last failure: one line, no newline, names the file, the place and the
 * cause. Valid until the thread's next failure; "" before the first. */
EBB_API const char *ebb_last_error(void);

/* Where host memory comes from. alloc and resize return NULL if there is no memory; resize(NULL) is
 * alloc; free accepts NULL. Called from the thread that calls the library, and from several at once where options say
 * so. An object keeps the hooks it was made with, so they must outlive it. NULL where hooks are asked for means
 * malloc's. */
typedef struct ebb_mem {
    void *(*alloc)(void *ctx, size_t size_bytes);
    void *(*resize)(void *ctx, void *ptr, size_t size_bytes);
    void (*free)(void *ctx, void *ptr);
    void *ctx;
} ebb_mem;

typedef enum ebb_log_level {
    EBB_LOG_ERROR,
    EBB_LOG_WARN,
    EBB_LOG_INFO,
    EBB_LOG_DEBUG,
    EBB_LOG_TRACE,
} ebb_log_level;

typedef void (*ebb_log_fn)(void *ctx, ebb_log_level level, const char *message);

/* Install the log callback; NULL (the default) is silence. Messages above max_level are not made.
 * Set it before other threads use the library. */
EBB_API void ebb_log_set(ebb_log_fn fn, void *ctx, ebb_log_level max_level);

/* A callback that long work calls now and then to say how far it is. */
typedef struct ebb_progress {
    /* what: the work in a few words, such as "measuring kernels"; static. n_done of its n pieces are done; if n is 0,
     * the number of pieces is not known. Called from the thread that called the library; it must not call the library
     * itself. NULL: no calls. */
    void (*tell)(void *ctx, const char *what, uint64_t n_done, uint64_t n);
    void *ctx; /* the caller's */
} ebb_progress;

/* Read "2GiB", "512MB", "1048576" or "1.5GB" (decimal and binary units, case-insensitive; a bare
 * number is bytes). EBB_E_ARGUMENT: not a number of bytes, negative, or beyond 64 bits. */
EBB_API ebb_status ebb_bytes_parse(const char *text, uint64_t *bytes_out);

/* Write bytes for people, "1.50 GiB", into buf of buf_bytes (24 suffice); returns buf. */
EBB_API char *ebb_bytes_format(uint64_t bytes, char *buf, size_t buf_bytes);

/* Write bytes as ebb_bytes_parse reads them, such as "178MiB": three digits, rounded up, so never less than bytes.
 * Returns buf (24 bytes suffice). */
EBB_API char *ebb_bytes_round_up(uint64_t bytes, char *buf, size_t buf_bytes);

/* Name i of those that there are; NULL: there are no more. */
typedef const char *ebb_name_at(const void *ctx, size_t i);

/* Write "; near it: adam, adamw" to buf: the names that a mistyped word of n bytes may mean, or "" if none is near. A
 * word and a name end before a ':'. Returns buf (128 bytes suffice for a few names; those beyond are left out). */
EBB_API char *ebb_suggest(const char *word, size_t n, ebb_name_at *name_at, const void *ctx, char *buf,
                          size_t buf_bytes);

/* Open a file, a pipe or a terminal for reading; the caller closes *fd_out. Waits for a pipe at most three seconds.
 * EBB_E_IO: it cannot be opened, or no program has opened the pipe for writing. EBB_E_FORMAT: a device, which may have
 * no end. */
EBB_API ebb_status ebb_path_open_input(const char *path, int *fd_out);

/* Check, without writing, whether a file can be made or replaced at path, as far as its folder tells. Call it before
 * long work whose result goes there. EBB_E_IO: there is no such folder, writing is not allowed, or path is a folder or
 * a link to a missing file. */
EBB_API ebb_status ebb_path_check_writable(const char *path);

#ifdef __cplusplus
}
#endif

#endif
