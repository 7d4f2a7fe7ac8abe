/* SPDX-License-Identifier: Apache-2.0
 *
 * What libebb and libebb_mpi.so know of each other.
 */
#ifndef EBB_SRC_MPI_PLUGIN_H
#define EBB_SRC_MPI_PLUGIN_H

#include "ebb/remote.h"

#define EBB_MPI_PLUGIN_ABI 1u
#define EBB_MPI_WHY_BYTES 512

typedef struct ebb_mpi_joined {
    void *ctx; /* of the ops; NULL: this process lent its memory, and that is over */
    uint64_t size_bytes;
    ebb_remote_ops ops;
} ebb_mpi_joined;

/* The one symbol that libebb_mpi.so shows is such a table. */
#define EBB_MPI_PLUGIN_SYMBOL "ebb_mpi_plugin_table"
typedef struct ebb_mpi_plugin {
    uint32_t abi;
    /* See ebb_remote_open_mpi. A failure is told in why_out. */
    ebb_status (*join)(const ebb_mem *mem, uint64_t lend_bytes, ebb_mpi_joined *joined_out,
                       char why_out[EBB_MPI_WHY_BYTES]);
} ebb_mpi_plugin;

#endif
