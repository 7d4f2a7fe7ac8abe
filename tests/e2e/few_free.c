/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into ebb: the file that FEW_FREE names is read where /proc/meminfo is asked for, as on a machine with less
 * free memory.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *open_as(const char *symbol_name, const char *path, const char *mode) {
    FILE *(*real)(const char *, const char *) = NULL;
    void *symbol = dlsym(RTLD_NEXT, symbol_name);
    const char *instead = getenv("FEW_FREE");
    memcpy(&real, &symbol, sizeof real);
    return real(instead != NULL && strcmp(path, "/proc/meminfo") == 0 ? instead : path, mode);
}

FILE *fopen(const char *path, const char *mode) {
    return open_as("fopen", path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    return open_as("fopen64", path, mode);
}
