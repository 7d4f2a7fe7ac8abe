/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into ebb: MPI's one-sided calls work FAIL_MPI_AFTER times, and then fail. FAIL_MPI is "Get" or "Put".
 */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static atomic_int n_moves;

static bool breaks(const char *what) {
    const char *which = getenv("FAIL_MPI"), *after = getenv("FAIL_MPI_AFTER");
    if (which == NULL || after == NULL || strcmp(which, what) != 0) { return false; }
    return atomic_fetch_add(&n_moves, 1) >= atoi(after);
}

int MPI_Get(void *to, int n, MPI_Datatype type, int rank, MPI_Aint at, int n_there, MPI_Datatype type_there,
            MPI_Win win) {
    return breaks("Get") ? MPI_ERR_OTHER : PMPI_Get(to, n, type, rank, at, n_there, type_there, win);
}

int MPI_Put(const void *from, int n, MPI_Datatype type, int rank, MPI_Aint at, int n_there, MPI_Datatype type_there,
            MPI_Win win) {
    return breaks("Put") ? MPI_ERR_OTHER : PMPI_Put(from, n, type, rank, at, n_there, type_there, win);
}
