/* SPDX-License-Identifier: Apache-2.0
 *
 * The process's resident memory by the kernel's own count (/proc/self/status), to hold our figures against.
 */
#include "train/trainer_priv.h"

#include <stdlib.h>

static uint64_t read_status(const char *key) {
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) { return 0; }
    char line[256];
    uint64_t bytes = 0;
    const size_t n = strlen(key);
    while (bytes == 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, n) == 0) { bytes = strtoull(line + n, NULL, 10) * 1024; /* it says kB, means KiB */ }
    }
    (void)fclose(file);
    return bytes;
}

uint64_t ebb__resident_bytes(void) {
    return read_status("VmRSS:");
}

uint64_t ebb__resident_peak_bytes(void) {
    return read_status("VmHWM:");
}
