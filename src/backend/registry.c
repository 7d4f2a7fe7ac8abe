/* SPDX-License-Identifier: Apache-2.0
 *
 * The backends of this build, one line each. The first is the default; cpu is there with oneDNN only, and
 * plug-ins are named whether their library is there or not.
 */
#include "backend/backend.h"
#include "backend/dry/dry.h"
#include "backend/plugin.h"
#include "backend/ref/ref.h"
#ifdef EBB_HAVE_DNNL
#include "backend/cpu/cpu.h"
#endif

static const ebb_backend_ops *const backends[] = {
#ifdef EBB_HAVE_DNNL
    &ebb__backend_cpu,
#endif
    &ebb__backend_ref,
    &ebb__backend_dry,
    &ebb__plugin_cuda,
};

const ebb_backend_ops *ebb__backend_get(size_t idx) {
    return idx < sizeof backends / sizeof backends[0] ? backends[idx] : NULL;
}

const ebb_backend_ops *ebb__backend_find(const char *name) {
    for (size_t i = 0; ebb__backend_get(i) != NULL; i++) {
        if (strcmp(backends[i]->name, name) == 0) { return backends[i]; }
    }
    return NULL;
}
