/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends that live in a library of their own. libebb knows their names always and loads them when a device is
 * opened, so that one build runs where their vendor's libraries are and where they are not.
 *
 *   libebb.so                                        libebb_NAME.so
 *     registry row (name, about, open)                 ebb_backend_plugin(host) -> the table
 *     ebb_device_open ── dlopen, once asked for ──►    open ... : the device's ops are the library's table
 *     the last error's words  ◄── host->fail ──        ebb_fail
 *
 * The library links no libebb: it compiles what it uses of base/ and backend/ once more, and gets what there must be
 * one of (the thread's last error, the log) from the loader. It is never unloaded: its vendor's libraries keep threads.
 */
#ifndef EBB_SRC_PLUGIN_H
#define EBB_SRC_PLUGIN_H

#include "backend/backend.h"

/* The functions that libebb lends to a plug-in, of the same EBB_BACKEND_ABI as the table that is asked for. */
typedef struct ebb_plugin_host {
    uint32_t abi;
    ebb_status (*fail)(ebb_status code, const char *message); /* returns code */
    const char *(*last_error)(void);                          /* this thread's, "" before the first */
    void (*log)(ebb_log_level level, const char *message);
} ebb_plugin_host;

/* The one symbol that such a library shows. NULL: it was built against another EBB_BACKEND_ABI. */
#define EBB_PLUGIN_SYMBOL "ebb_backend_plugin"
typedef const ebb_backend_ops *(*ebb_plugin_fn)(const ebb_plugin_host *host);

/* The table in libebb_NAME.so: looked for beside libebb, in the folder ebb there, then on the system's library path.
 * EBB_E_NO_DEVICE says which library is missing, or what is wrong with the one that was found. */
ebb_status ebb__plugin_load(const char *name, const ebb_backend_ops **ops_out);

/* Registry row: a name, a line about it, and an open that loads. A device's ops are the loaded table. */
extern const ebb_backend_ops ebb__plugin_cuda;
/* The line, which the table has as well. */
#define EBB_PLUGIN_CUDA_ABOUT "an NVIDIA GPU, with cuDNN and cuBLAS (a plug-in, loaded when asked for)"

#endif
