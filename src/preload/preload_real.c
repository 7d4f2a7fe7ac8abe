/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds what this library stands in front of. dlsym is one of these, so glibc's is asked for by its version.
 */
#include "preload/preload.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

typedef void *(*dlsym_fn)(void *handle, const char *name);

static dlsym_fn real_dlsym;

static dlsym_fn find_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    dlsym_fn found = NULL;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0] && found == NULL; i++) {
        *(void **)&found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    return found;
}

void *ebb__preload_dlsym(void *handle, const char *name) {
    if (real_dlsym == NULL) { real_dlsym = find_dlsym(); }
    return real_dlsym != NULL ? real_dlsym(handle, name) : NULL;
}

void *ebb__preload_next(const char *name) {
    return ebb__preload_dlsym(RTLD_NEXT, name);
}

typedef struct library_search {
    const char *prefix;
    size_t n_left; /* to go past before the one that is wanted */
    char path[PRELOAD_MAX_PATH_BYTES];
} library_search;

static int look_at_library(struct dl_phdr_info *info, size_t n_bytes, void *ctx) {
    (void)n_bytes;
    library_search *search = ctx;
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *base = slash != NULL ? slash + 1 : info->dlpi_name;
    if (strncmp(base, search->prefix, strlen(search->prefix)) != 0 || search->n_left-- > 0) { return 0; }
    (void)snprintf(search->path, sizeof search->path, "%s", info->dlpi_name);
    return 1;
}

static void *find_in_loaded(const char *path, const char *name) {
    void *handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) { return NULL; }
    void *found = ebb__preload_dlsym(handle, name);
    (void)dlclose(handle); /* it was loaded before, and stays */
    return found;
}

/* Opened after the walk, during which the linker holds a lock that dlopen takes as its second. */
void *ebb__preload_in_library(const char *prefix, const char *name) {
    library_search search = {.prefix = prefix};
    void *found = NULL;
    for (size_t i = 0; found == NULL; i++) {
        search.n_left = i;
        if (dl_iterate_phdr(look_at_library, &search) == 0) { return NULL; }
        found = find_in_loaded(search.path, name);
    }
    return found;
}

/* A program that loads CUDA by hand gets the wrappers here. Everything else is handed on by a jump: dlsym looks at who
 * called it (RTLD_NEXT), and that must not be us. cmake/preload.cmake has this file optimised, which makes it one. */
PRELOAD_EXPORT void *dlsym(void *restrict handle, const char *restrict name);
PRELOAD_EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
    if (real_dlsym == NULL) { real_dlsym = find_dlsym(); }
    if (name[0] == 'c' && name[1] == 'u' && handle != RTLD_NEXT) {
        void *real = real_dlsym(handle, name);
        void *wrapper = real != NULL ? ebb__preload_cuda_wrap(name, real) : NULL;
        return wrapper != NULL ? wrapper : real;
    }
    return real_dlsym(handle, name);
}
