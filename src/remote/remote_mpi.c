/* SPDX-License-Identifier: Apache-2.0
 *
 * The remote over MPI, as libebb has it: libebb links no MPI, so that only those who use it need it. libebb_mpi.so is
 * loaded when a program asks for such a remote.
 */
#include "base/library.h"
#include "remote/mpi/mpi_plugin.h"
#include "remote/remote.h"

static ebb_status load(const ebb_mpi_plugin **plugin_out) {
    ebb_library library;
    bool missing = false;
    const char *why = NULL;
    if (!ebb__library_load("mpi", EBB_MPI_PLUGIN_SYMBOL, &library, &missing, &why)) {
        return missing ? ebb_fail(EBB_E_UNSUPPORTED,
                                  "this build has no MPI: there is no %s in %s; install an MPI (Debian's "
                                  "libopenmpi-dev and openmpi-bin) and build again",
                                  library.path, library.folder)
                       : ebb_fail(EBB_E_UNSUPPORTED, "MPI cannot be loaded: %s", why);
    }
    const ebb_mpi_plugin *plugin = library.symbol;
    if (plugin == NULL || plugin->abi != EBB_MPI_PLUGIN_ABI) {
        return ebb_fail(EBB_E_UNSUPPORTED, "%s is not of this version of ebb", library.path);
    }
    *plugin_out = plugin;
    return EBB_OK;
}

ebb_status ebb_remote_open_mpi(const ebb_mem *mem, uint64_t lend_bytes, ebb_remote **remote_out) {
    EBB_NEED(remote_out);
    const ebb_mpi_plugin *plugin = NULL;
    ebb_mpi_joined joined = {.ctx = NULL};
    char why[EBB_MPI_WHY_BYTES] = "";
    if (lend_bytes == 0) { return ebb_fail(EBB_E_ARGUMENT, "remote: each process must lend at least one byte"); }
    EBB_TRY(load(&plugin));
    mem = ebb__mem_or_default(mem);
    const ebb_status joins = plugin->join(mem, lend_bytes, &joined, why);
    if (joins != EBB_OK) { return ebb_fail(joins, "%s", why); }
    ebb_remote *remote = NULL;
    if (joined.ctx != NULL) {
        const ebb_status status = ebb_remote_create(mem, &joined.ops, joined.ctx, joined.size_bytes, &remote);
        if (status != EBB_OK) {
            joined.ops.close(joined.ctx);
            return status;
        }
    }
    *remote_out = remote;
    return EBB_OK;
}
