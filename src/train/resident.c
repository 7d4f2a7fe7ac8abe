/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's resident memory by the kernel's own count (/proc/self/status), to hold our figures against.
 * Where the kernel does not say, figures are 0.
 */
#include "train/trainer_priv.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

ebb_resident ebb__resident_get(void) {
    ebb_resident resident = {0};
    const struct {
        const char *key;
        uint64_t *bytes;
    } rows[] = {
        {"VmHWM:", &resident.peak_bytes},
        {"RssAnon:", &resident.anonymous_bytes},
        {"RssFile:", &resident.file_bytes},
    };
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) { return resident; }
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            const size_t n = strlen(rows[r].key);
            if (strncmp(line, rows[r].key, n) != 0) { continue; }
            *rows[r].bytes = strtoull(line + n, NULL, 10) * 1024; /* it says kB and means KiB */
        }
    }
    (void)fclose(file);
    return resident;
}

void ebb__resident_reset_peak(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) { return; }
    ssize_t written = write(fd, "5", 1); /* proc(5): reset the peak */
    (void)written;                       /* where it is not allowed, the peak is of the whole process */
    (void)close(fd);
}
