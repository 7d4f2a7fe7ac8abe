/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's files: a name for its own that no other process has, what `ebb record` is told, and what the program's
 * command line was. Nothing here allocates.
 *
 * The first process that does anything has OUT, others OUT.PID; one that becomes another program by exec keeps its
 * number and has OUT.PID.1 and so on.
 */
#include "preload/preload.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define MAX_TRIES 1000

int ebb__preload_make_file(const char *base, char *path) {
    for (int i = 0; i < MAX_TRIES; i++) {
        int n = 0;
        if (i == 0) { n = snprintf(path, PRELOAD_MAX_PATH_BYTES, "%s", base); }
        if (i == 1) { n = snprintf(path, PRELOAD_MAX_PATH_BYTES, "%s.%d", base, (int)getpid()); }
        if (i > 1) { n = snprintf(path, PRELOAD_MAX_PATH_BYTES, "%s.%d.%d", base, (int)getpid(), i - 1); }
        if (n < 0 || (size_t)n >= PRELOAD_MAX_PATH_BYTES) { break; }
        const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) { return fd; }
        if (errno != EEXIST) {
            (void)ebb__fail_errno(path, "record to");
            return -1;
        }
    }
    (void)ebb_fail(EBB_E_IO, "%s: no name is left for the recording of a process", base);
    return -1;
}

void ebb__preload_read_command(char *text, size_t n_bytes) {
    const int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, n_bytes - 1) : 0;
    if (fd >= 0) { (void)close(fd); }
    n = n > 0 ? n : 0;
    while (n > 0 && text[n - 1] == '\0') { n--; }
    for (ssize_t i = 0; i < n; i++) { text[i] = (unsigned char)text[i] < ' ' ? ' ' : text[i]; }
    text[n] = '\0';
}

void ebb__preload_tell(const char *says, const char *what) {
    static const char wanted[] = "/memfd:" PRELOAD_SAYS;
    char name[sizeof wanted] = "", line[PRELOAD_MAX_PATH_BYTES + 256];
    if (readlink(says, name, sizeof wanted - 1) < 0 || strcmp(name, wanted) != 0) { return; }
    const int fd = open(says, O_WRONLY | O_APPEND | O_CLOEXEC);
    const int n = snprintf(line, sizeof line, "%s\n", what);
    const size_t n_bytes = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    if (fd >= 0 && write(fd, line, n_bytes) < 0) { /* then no one hears of it */
    }
    if (fd >= 0) { (void)close(fd); }
}
