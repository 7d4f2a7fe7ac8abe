/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader of plug-ins: where it looks, and what it says when there is nothing to be had.
 */
#include "backend/plugin.h"

#include <dlfcn.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* The folder that this code was loaded from, "." where no one can say. */
static void find_own_folder(char folder_out[PATH_BYTES]) {
    Dl_info info;
    (void)snprintf(folder_out, PATH_BYTES, ".");
    if (dladdr(&ebb__plugin_cuda, &info) == 0 || info.dli_fname == NULL) { return; }
    const char *slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) { return; }
    (void)snprintf(folder_out, PATH_BYTES, "%.*s", (int)(slash - info.dli_fname), info.dli_fname);
}

/* Where libebb_NAME.so is, or its bare name for the system to look. */
static void find_library(const char *name, const char *folder, char path_out[PATH_BYTES]) {
    static const char *const within[] = {"/", "/ebb/"};
    for (size_t i = 0; i < sizeof within / sizeof within[0]; i++) {
        int n = snprintf(path_out, PATH_BYTES, "%s%slibebb_%s.so", folder, within[i], name);
        if (n < PATH_BYTES && access(path_out, F_OK) == 0) { return; }
    }
    (void)snprintf(path_out, PATH_BYTES, "libebb_%s.so", name);
}

static ebb_status fail_loading(const char *name, const char *path, const char *folder) {
    const char *why = dlerror();
    if (strchr(path, '/') == NULL && (why == NULL || strncmp(why, path, strlen(path)) == 0)) {
        return ebb_fail(EBB_E_NO_DEVICE,
                        "backend %s: there is no %s in %s, in the folder ebb there, or on the library path; build ebb "
                        "where its vendor's toolkit is",
                        name, path, folder);
    }
    return ebb_fail(EBB_E_NO_DEVICE,
                    "backend %s: a library that it needs cannot be loaded: %s; install it, or name its folder in "
                    "LD_LIBRARY_PATH",
                    name, why != NULL ? why : path);
}

static void log_line(ebb_log_level level, const char *message) {
    ebb__log(level, "%s", message);
}

ebb_status ebb__plugin_load(const char *name, const ebb_backend_ops **ops_out) {
    static const ebb_plugin_host host = {
        .abi = EBB_BACKEND_ABI, .fail = ebb__fail_adopt, .last_error = ebb_last_error, .log = log_line};
    char folder[PATH_BYTES], path[PATH_BYTES];
    find_own_folder(folder);
    find_library(name, folder, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) { return fail_loading(name, path, folder); }
    ebb_plugin_fn entry = NULL;
    void *symbol = dlsym(library, EBB_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry); /* C has no cast from object to function */
    const ebb_backend_ops *ops = entry != NULL ? entry(&host) : NULL;
    if (ops == NULL || ops->abi != EBB_BACKEND_ABI) {
        return ebb_fail(EBB_E_NO_DEVICE, "backend %s: %s is no plug-in of this version of ebb", name, path);
    }
    *ops_out = ops;
    return EBB_OK;
}

static ebb_status open_cuda(const ebb_device_options *options, ebb_device **device_out) {
    const ebb_backend_ops *ops = NULL;
    EBB_TRY(ebb__plugin_load("cuda", &ops));
    return ops->open(options, device_out);
}

const ebb_backend_ops ebb__plugin_cuda = {
    .abi = EBB_BACKEND_ABI,
    .name = "cuda",
    .about = EBB_PLUGIN_CUDA_ABOUT,
    .open = open_cuda,
};
