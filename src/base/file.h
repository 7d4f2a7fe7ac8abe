/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are read whole, and files that are written whole or not at all. Programs, plans, weights,
 * checkpoints and traces all go through the writer, so that a kill, a full disk or an error at any moment
 * leaves the target as it was.
 */
#ifndef EBB_SRC_FILE_H
#define EBB_SRC_FILE_H

#include "base/base.h"

/* Store "PATH: cannot WHAT: cause", the cause from errno, and return EBB_E_IO. */
ebb_status ebb__fail_errno(const char *path, const char *what);

/* What follows the last slash of a path; a slash that ends it does not count. */
const char *ebb__base_name(const char *path);

/* Read the whole file; *data_out is the caller's (ebb__free with mem) and has a NUL after its *n_bytes_out bytes.
 * EBB_E_IO: it cannot be read. EBB_E_LIMIT: it has more than max_bytes. */
ebb_status ebb__file_read_all(const ebb_mem *mem, const char *path, uint64_t max_bytes, char **data_out,
                              size_t *n_bytes_out);

typedef struct ebb_file_writer ebb_file_writer;

enum {
    /* Give the unfinished file a name beside the target even where the file system can do without: for tests. */
    EBB_FILE_NAMED = 1u << 0,
    /* Write at path from the start, for a recording of which a killed process should leave what there is. Not
     * brought to the disk by commit. */
    EBB_FILE_IN_PLACE = 1u << 1,
};

/* Begin a file that is to be at path (copied). An existing file stays until commit. A path that is no regular
 * file (a pipe, /dev/stdout) is written as the bytes come. */
ebb_status ebb__file_writer_open(const ebb_mem *mem, const char *path, unsigned flags, ebb_file_writer **writer_out);

/* The same into an open file, which is the writer's then and of which nothing is removed; name is for messages. */
ebb_status ebb__file_writer_open_fd(const ebb_mem *mem, const char *name, int fd, ebb_file_writer **writer_out);

/* Append. The first failure is remembered: later calls do nothing and return it again, so a caller may look only
 * at commit's status. */
ebb_status ebb__file_writer_write(ebb_file_writer *writer, const void *data, size_t n_bytes);
ebb_status ebb__file_writer_printf(ebb_file_writer *writer, const char *fmt, ...) EBB_PRINTF(2, 3);

/* Bytes appended so far. */
uint64_t ebb__file_writer_offset(const ebb_file_writer *writer);

/* Hand what was appended to the kernel now. */
ebb_status ebb__file_writer_flush(ebb_file_writer *writer);

/* Bring everything to the disk and put it in the target's place, atomically. Frees the writer in any case; on
 * failure nothing of it remains. */
ebb_status ebb__file_writer_commit(ebb_file_writer *writer);

/* Forget the file; NULL is fine. */
void ebb__file_writer_abandon(ebb_file_writer *writer);

#endif
