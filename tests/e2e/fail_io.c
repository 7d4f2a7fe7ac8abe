/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into ebb: what moves to or from a file without a name works FAIL_IO_AFTER times, and then fails with EIO,
 * as on a disk that breaks. FAIL_IO is "read" or "write".
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int n_moves;

static bool breaks(int fd, const char *what) {
    const char *which = getenv("FAIL_IO"), *after = getenv("FAIL_IO_AFTER");
    struct stat about;
    if (which == NULL || after == NULL || strcmp(which, what) != 0) { return false; }
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_nlink > 0) { return false; }
    return atomic_fetch_add(&n_moves, 1) >= atoi(after);
}

ssize_t pread(int fd, void *ptr, size_t n, off_t at) {
    ssize_t (*real)(int, void *, size_t, off_t) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "pread");
    memcpy(&real, &symbol, sizeof real);
    if (!breaks(fd, "read")) { return real(fd, ptr, n, at); }
    errno = EIO;
    return -1;
}

ssize_t pwrite(int fd, const void *ptr, size_t n, off_t at) {
    ssize_t (*real)(int, const void *, size_t, off_t) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "pwrite");
    memcpy(&real, &symbol, sizeof real);
    if (!breaks(fd, "write")) { return real(fd, ptr, n, at); }
    errno = EIO;
    return -1;
}
