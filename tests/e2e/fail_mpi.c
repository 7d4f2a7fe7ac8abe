/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into ebb: what FAIL_MPI names fails. "Get" or "Put": these calls work FAIL_MPI_AFTER times, and then fail.
 * "pages": a window's memory has only its first page, as where the memory that processes share is full.
 */
#define _GNU_SOURCE /* memfd_create */
#include <mpi.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

int MPI_Win_allocate(MPI_Aint n, int unit, MPI_Info info, MPI_Comm comm, void *base_out, MPI_Win *win_out) {
    const char *which = getenv("FAIL_MPI");
    const int error = PMPI_Win_allocate(n, unit, info, comm, base_out, win_out);
    if (error != MPI_SUCCESS || n == 0 || which == NULL || strcmp(which, "pages") != 0) { return error; }
    const int fd = memfd_create("page", 0);
    if (fd < 0 || ftruncate(fd, 4096) != 0) { return MPI_ERR_OTHER; }
    void *memory = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) { return MPI_ERR_OTHER; }
    memcpy(base_out, &memory, sizeof memory);
    return MPI_SUCCESS;
}
