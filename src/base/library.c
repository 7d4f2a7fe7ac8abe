/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ebb's own libraries are looked for.
 */
#include "base/library.h"

#include <dlfcn.h>
#include <unistd.h>

/* The folder that this code was loaded from, "." where no one can say. */
static void find_own_folder(char folder_out[EBB_LIBRARY_PATH_BYTES]) {
    static const char here = 0;
    Dl_info info;
    (void)snprintf(folder_out, EBB_LIBRARY_PATH_BYTES, ".");
    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) { return; }
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) { return; }
    (void)snprintf(folder_out, EBB_LIBRARY_PATH_BYTES, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
}

/* Where libebb_NAME.so is, or its bare name for the system to look. */
static void find_library(const char *name, const char *folder, char path_out[EBB_LIBRARY_PATH_BYTES]) {
    static const char *const within[] = {"/", "/ebb/"};
    for (size_t i = 0; i < sizeof within / sizeof within[0]; i++) {
        int n = snprintf(path_out, EBB_LIBRARY_PATH_BYTES, "%s%slibebb_%s.so", folder, within[i], name);
        if (n < EBB_LIBRARY_PATH_BYTES && access(path_out, F_OK) == 0) { return; }
    }
    (void)snprintf(path_out, EBB_LIBRARY_PATH_BYTES, "libebb_%s.so", name);
}

bool ebb__library_load(const char *name, const char *symbol, ebb_library *library_out, bool *missing_out,
                       const char **why_out) {
    find_own_folder(library_out->folder);
    find_library(name, library_out->folder, library_out->path);
    void *library = dlopen(library_out->path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror(), *path = library_out->path;
        *missing_out = strchr(path, '/') == NULL && (why == NULL || strncmp(why, path, strlen(path)) == 0);
        *why_out = why != NULL ? why : path;
        return false;
    }
    library_out->symbol = dlsym(library, symbol);
    return true;
}
