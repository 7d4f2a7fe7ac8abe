/* SPDX-License-Identifier: Apache-2.0
 *
 * A file, plain or gzipped, read from front to end, or bytes in memory, for parsers: a read gives all bytes
 * that were asked for or fails with file, offset and cause.
 */
#ifndef EBB_SRC_BYTE_STREAM_H
#define EBB_SRC_BYTE_STREAM_H

#include "base/base.h"

#include <zlib.h>

typedef struct ebb_stream {
    const char *name;
    gzFile file;         /* or */
    const uint8_t *data; /* bytes in memory */
    size_t n_bytes;
    uint64_t offset;     /* of uncompressed bytes: where the next read begins */
    uint64_t file_bytes; /* as they are on the disk; 0: not a regular file */
    bool may_be_cut;     /* set by the caller: a gzipped file that is cut off is no failure */
    bool is_cut;         /* it was, and ended there */
} ebb_stream;

/* EBB_E_IO: it cannot be opened. name and data are borrowed. */
ebb_status ebb__stream_open(const char *name, ebb_stream *stream_out);
ebb_stream ebb__stream_memory(const char *name, const void *data, size_t n_bytes);
/* The same of an open file, which is the stream's in any case. */
ebb_status ebb__stream_open_fd(const char *name, int fd, ebb_stream *stream_out);
void ebb__stream_close(ebb_stream *stream);

/* How many of file_bytes were read. */
uint64_t ebb__stream_file_offset(const ebb_stream *stream);

/* Begin again at the front; false, and nothing has changed, where the file cannot (a pipe). */
bool ebb__stream_rewind(ebb_stream *stream);

/* At most n bytes; *n_out is less only at the end. */
ebb_status ebb__stream_read_some(ebb_stream *stream, void *dst, size_t n, size_t *n_out);
/* EBB_E_FORMAT: it ends too early; what says what was being read. */
ebb_status ebb__stream_read(ebb_stream *stream, void *dst, size_t n, const char *what);
/* n bytes into an array of the caller's (ebb__free), taken as they arrive: a header that lies about its size costs
 * nothing. NULL for none. */
ebb_status ebb__stream_read_new(ebb_stream *stream, const ebb_mem *mem, size_t n, const char *what, uint8_t **data_out);
/* EBB_E_FORMAT unless the stream ends here. */
ebb_status ebb__stream_expect_end(ebb_stream *stream);

#endif
