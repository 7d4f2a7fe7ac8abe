/* SPDX-License-Identifier: Apache-2.0
 *
 * The loader of plug-ins, and what it says when there is nothing to be had.
 */
#include "backend/plugin.h"
#include "base/library.h"

static ebb_status fail_loading(const char *name, const ebb_library *library, bool missing, const char *why) {
    if (missing) {
        return ebb_fail(EBB_E_NO_DEVICE,
                        "backend %s: there is no %s in %s, in the folder ebb there, or on the library path; build ebb "
                        "where its vendor's toolkit is",
                        name, library->path, library->folder);
    }
    return ebb_fail(EBB_E_NO_DEVICE,
                    "backend %s: a library that it needs cannot be loaded: %s; install it, or name its folder in "
                    "LD_LIBRARY_PATH",
                    name, why);
}

static void log_line(ebb_log_level level, const char *message) {
    ebb__log(level, "%s", message);
}

ebb_status ebb__plugin_load(const char *name, const ebb_backend_ops **ops_out) {
    static const ebb_plugin_host host = {
        .abi = EBB_BACKEND_ABI, .fail = ebb__fail_adopt, .last_error = ebb_last_error, .log = log_line};
    ebb_library library;
    bool missing = false;
    const char *why = NULL;
    if (!ebb__library_load(name, EBB_PLUGIN_SYMBOL, &library, &missing, &why)) {
        return fail_loading(name, &library, missing, why);
    }
    ebb_plugin_fn entry = NULL;
    memcpy(&entry, &library.symbol, sizeof entry); /* C has no cast from object to function */
    const ebb_backend_ops *ops = entry != NULL ? entry(&host) : NULL;
    if (ops == NULL || ops->abi != EBB_BACKEND_ABI) {
        return ebb_fail(EBB_E_NO_DEVICE, "backend %s: %s is no plug-in of this version of ebb", name, library.path);
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
