/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes, in which the tier "remote" keeps its bytes. ebb itself talks to no network: a remote is a
 * number of bytes and a function that moves some of them. ebb_remote_open_mpi makes one from the processes that mpirun
 * started; a program with another way to reach another process's memory makes its own with ebb_remote_create.
 *
 *      ebb_remote *remote = NULL;
 *      if (ebb_remote_open_mpi(NULL, lend_bytes, &remote) == EBB_OK && remote != NULL) {
 *          options.remote = remote;    of ebb_run_options or ebb_session_options
 *          ...
 *      }
 *      ebb_remote_destroy(remote);
 */
#ifndef EBB_REMOTE_H
#define EBB_REMOTE_H

#include "ebb/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_remote ebb_remote;

#define EBB_REMOTE_WHY_BYTES 256

typedef struct ebb_remote_ops {
    size_t size_bytes;
    /* Move n_bytes between memory of this process and the remote's bytes from `at` on: out writes them, else they are
     * read. It returns when that is done, and every later move, by whatever thread, finds what was written. Several
     * threads call it at once, for bytes that have nothing in common. false: it failed, and why_out is a text that says
     * why, such as "connection lost". */
    bool (*move)(void *ctx, bool out, void *memory, uint64_t n_bytes, uint64_t at, char why_out[EBB_REMOTE_WHY_BYTES]);
    void (*close)(void *ctx); /* by ebb_remote_destroy; NULL is fine */
} ebb_remote_ops;
#define EBB_REMOTE_OPS_INIT EBB_INIT(ebb_remote_ops, )

/* A remote of size_bytes. Runs borrow it, one thread at a time creates and destroys runs that do, and each has its own
 * bytes of it. ctx must live until ebb_remote_destroy. EBB_E_ARGUMENT: ops of another version or without move, or no
 * bytes. */
EBB_API ebb_status ebb_remote_create(const ebb_mem *mem, const ebb_remote_ops *ops, void *ctx, uint64_t size_bytes,
                                     ebb_remote **remote_out);
/* Destroy the runs that use it first. */
EBB_API void ebb_remote_destroy(ebb_remote *remote);
EBB_API uint64_t ebb_remote_bytes(const ebb_remote *remote);

/* Join the processes that mpirun started; each of them calls this, once and at the same time. In the first one (rank 0)
 * *remote_out becomes the memory that all others lend, one after the other by rank. The others lend lend_bytes each:
 * in them the call returns when rank 0 has destroyed the remote, and *remote_out is NULL. Rank 0 lends nothing.
 * EBB_E_UNSUPPORTED: this build has no MPI, or MPI cannot be loaded. EBB_E_ARGUMENT: there is no other process, MPI
 * does not allow calls from several threads in turn, or lend_bytes is 0. EBB_E_NO_MEMORY, at rank 0: another process
 * does not have that much memory; the message names it. The others return EBB_OK then. EBB_E_IO: MPI failed. Where MPI
 * is not initialized this initializes it, with MPI_THREAD_SERIALIZED, and ebb_remote_destroy finalizes it. Else the
 * caller has done that and will finalize it, and makes no call of MPI while ebb makes some. */
EBB_API ebb_status ebb_remote_open_mpi(const ebb_mem *mem, uint64_t lend_bytes, ebb_remote **remote_out);

#ifdef __cplusplus
}
#endif

#endif
