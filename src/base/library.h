/* SPDX-License-Identifier: Apache-2.0
 *
 * Libraries of ebb's own that are loaded when something asks for them (libebb_cuda.so, libebb_mpi.so): one build runs
 * where what they are linked with is installed, and where it is not.
 */
#ifndef EBB_SRC_LIBRARY_H
#define EBB_SRC_LIBRARY_H

#include "base/base.h"

#define EBB_LIBRARY_PATH_BYTES 4096

typedef struct ebb_library {
    char path[EBB_LIBRARY_PATH_BYTES];   /* what was loaded; the bare name if it was found nowhere */
    char folder[EBB_LIBRARY_PATH_BYTES]; /* libebb's own, which was looked in first */
    void *symbol;                        /* its entry; NULL: it has none */
} ebb_library;

/* Load libebb_NAME.so and find a symbol in it. It is looked for beside libebb, in the folder ebb there, then on the
 * system's library path, and never unloaded. false: it could not be loaded. missing_out then says whether it is
 * missing, and why_out, until the thread's next call of dlerror, why. */
bool ebb__library_load(const char *name, const char *symbol, ebb_library *library_out, bool *missing_out,
                       const char **why_out);

#endif
