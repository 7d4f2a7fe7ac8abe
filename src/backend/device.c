/* SPDX-License-Identifier: Apache-2.0
 *
 * The public face of devices: a name becomes a table, and its calls go through it.
 */
#include "backend/backend.h"

const char *ebb_backend_name(size_t idx, const char **about_out) {
    const ebb_backend_ops *ops = ebb__backend_get(idx);
    if (ops == NULL) { return NULL; }
    if (about_out != NULL) { *about_out = ops->about; }
    return ops->name;
}

static const char *name_at(const void *ctx, size_t i) {
    (void)ctx;
    return ebb_backend_name(i, NULL);
}

static ebb_status fail_no_backend(const char *name) {
    char known[EBB_SUGGESTION_BYTES];
    return ebb_fail(EBB_E_NO_DEVICE, "no backend '%s' in this build%s", name,
                    ebb__suggest_or_list(name, name_at, NULL, known));
}

ebb_status ebb_device_open(const char *backend, const ebb_device_options *options, ebb_device **device_out) {
    EBB_NEED(backend);
    EBB_NEED(device_out);
    const ebb_backend_ops *ops = ebb__backend_find(backend);
    if (ops == NULL) { return fail_no_backend(backend); }
    ebb_device_options full = EBB_DEVICE_OPTIONS_INIT;
    if (options != NULL) { full = *options; }
    if (full.size_bytes != sizeof full) { return ebb_fail(EBB_E_ARGUMENT, "device: options of another version"); }
    if (full.n_threads < 0) { return ebb_fail(EBB_E_ARGUMENT, "%d threads", (int)full.n_threads); }
    full.mem = ebb__mem_or_default(full.mem);
    return ops->open(&full, device_out);
}

void ebb_device_close(ebb_device *device) {
    if (device != NULL) { device->ops->close(device); }
}

ebb_status ebb_device_get_info(ebb_device *device, ebb_device_info *info_out) {
    EBB_NEED(device);
    EBB_NEED(info_out);
    return device->ops->info(device, info_out);
}

const char *ebb_device_backend(const ebb_device *device) {
    return device->ops->name;
}
