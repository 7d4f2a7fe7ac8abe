/* SPDX-License-Identifier: Apache-2.0
 *
 * The backends of this build, one line each. The first is the default.
 */
#include "backend/backend.h"
#include "backend/dry/dry.h"
#include "backend/ref/ref.h"

/* cpu is there with oneDNN only, and its folder may be left out of a tree. */
#if defined(EBB_HAVE_DNNL) && defined(__has_include)
#if __has_include("backend/cpu/cpu.h")
#include "backend/cpu/cpu.h"
#define HAVE_CPU
#endif
#endif

static const ebb_backend_ops *const backends[] = {
#ifdef HAVE_CPU
    &ebb__backend_cpu,
#endif
    &ebb__backend_ref,
    &ebb__backend_dry,
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
