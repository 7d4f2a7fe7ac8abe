/* SPDX-License-Identifier: Apache-2.0
 *
 * A tier's file, and the lanes in which its bytes move. A lane belongs to one engine, so what moves on different
 * engines is in flight side by side.
 */
#ifndef EBB_SRC_TIER_FILE_H
#define EBB_SRC_TIER_FILE_H

#include "backend/backend.h"

/* How the bytes are read and written (ebb_run_options.io). */
typedef enum ebb_io {
    EBB_IO_AUTO,  /* by io_uring where this build and the kernel have it */
    EBB_IO_PLAIN, /* by pread and pwrite, through the kernel's cache */
    EBB_IO_URING,
} ebb_io;

/* EBB_E_ARGUMENT: no such way; the message lists them. NULL is "auto". */
ebb_status ebb__io_parse(const char *name, ebb_io *io_out);

/* A file that no one else sees and that is gone with the process. */
typedef struct ebb_tier_file {
    int fd;                    /* through the kernel's cache; -1: none is open */
    int direct_fd;             /* the same file without the cache; -1: the file system refuses that */
    uint64_t memory_alignment; /* that direct_fd asks for */
} ebb_tier_file;

#define EBB_TIER_FILE_INIT ((ebb_tier_file){.fd = -1, .direct_fd = -1, .memory_alignment = 1})

/* Make it, with all its bytes allocated. name is the tier's, for messages. Close it whatever this returns. EBB_E_IO. */
ebb_status ebb__tier_file_open(const char *name, const char *dir, uint64_t size_bytes, bool wants_direct,
                               ebb_tier_file *file);
void ebb__tier_file_close(ebb_tier_file *file);

typedef struct ebb_lane ebb_lane;

/* EBB_IO_AUTO takes pread and pwrite where io_uring cannot be had; EBB_IO_URING is EBB_E_UNSUPPORTED then. */
ebb_status ebb__lane_open(ebb_device *device, ebb_io io, ebb_lane **lane_out);
void ebb__lane_close(ebb_lane *lane); /* NULL is fine */
bool ebb__lane_has_ring(const ebb_lane *lane);

#define EBB_FILE_ENDS (-1)

/* Move n bytes between memory and the file, whose byte `at` is the first. Returns when all are moved and nothing is in
 * flight any more: 0, an error number, or EBB_FILE_ENDS where the file is shorter. Threads: one after the other. */
int ebb__lane_move(ebb_lane *lane, const ebb_tier_file *file, ebb_copy_direction direction, unsigned char *ptr,
                   uint64_t n, uint64_t at);

#endif
