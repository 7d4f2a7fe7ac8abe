/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading from front to end. zlib reads gzipped and plain files alike, so nothing here has to know which it is.
 */
#include "base/byte_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_GROWTH_BYTES ((size_t)1 << 20)
#define MAX_READ_BYTES ((size_t)1 << 30) /* gzread counts in unsigned */

ebb_status ebb__stream_open(const char *name, ebb_stream *stream_out) {
    int fd = -1;
    EBB_TRY(ebb_path_open_input(name, &fd));
    return ebb__stream_open_fd(name, fd, stream_out);
}

ebb_status ebb__stream_open_fd(const char *name, int fd, ebb_stream *stream_out) {
    struct stat info;
    const bool is_regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    const uint64_t file_bytes = is_regular ? (uint64_t)info.st_size : 0;
    gzFile file = gzdopen(fd, "rbe");
    if (file == NULL) {
        (void)close(fd);
        return ebb_fail(EBB_E_NO_MEMORY, "out of host memory: reading %s", name);
    }
    *stream_out = (ebb_stream){.name = name, .file = file, .file_bytes = file_bytes};
    return EBB_OK;
}

uint64_t ebb__stream_file_offset(const ebb_stream *stream) {
    const z_off_t offset = stream->file != NULL ? gzoffset(stream->file) : (z_off_t)stream->offset;
    return offset > 0 ? (uint64_t)offset : 0;
}

bool ebb__stream_rewind(ebb_stream *stream) {
    if (stream->file != NULL && gzrewind(stream->file) != 0) { return false; }
    stream->offset = 0;
    return true;
}

ebb_stream ebb__stream_memory(const char *name, const void *data, size_t n_bytes) {
    return (ebb_stream){.name = name, .data = data, .n_bytes = n_bytes};
}

void ebb__stream_close(ebb_stream *stream) {
    if (stream->file != NULL) { (void)gzclose(stream->file); }
    stream->file = NULL;
}

static size_t read_memory(ebb_stream *stream, void *dst, size_t n) {
    size_t left = stream->n_bytes - (size_t)stream->offset;
    if (n > left) { n = left; }
    if (n > 0) { memcpy(dst, stream->data + stream->offset, n); }
    return n;
}

static ebb_status read_file(ebb_stream *stream, void *dst, size_t n, size_t *n_out) {
    size_t got = 0;
    while (got < n) {
        size_t want = n - got < MAX_READ_BYTES ? n - got : MAX_READ_BYTES;
        int result = gzread(stream->file, (char *)dst + got, (unsigned)want);
        int code = Z_OK;
        const char *cause = gzerror(stream->file, &code);
        if (code == Z_BUF_ERROR && stream->may_be_cut) {
            stream->is_cut = true;
            got += result > 0 ? (size_t)result : 0;
            break;
        }
        if (result < 0 || (code != Z_OK && code != Z_STREAM_END)) {
            uint64_t at = stream->offset + got;
            if (code == Z_ERRNO) {
                return ebb_fail(EBB_E_IO, "%s: byte %" PRIu64 ": %s", stream->name, at, strerror(errno));
            }
            return ebb_fail(EBB_E_FORMAT, "%s: byte %" PRIu64 " of its content: gzip: %s", stream->name, at,
                            code == Z_BUF_ERROR ? "the file is cut off" : cause);
        }
        if (result == 0) { break; }
        got += (size_t)result;
    }
    *n_out = got;
    return EBB_OK;
}

ebb_status ebb__stream_read_some(ebb_stream *stream, void *dst, size_t n, size_t *n_out) {
    size_t got = 0;
    if (stream->file != NULL) {
        EBB_TRY(read_file(stream, dst, n, &got));
    } else {
        got = read_memory(stream, dst, n);
    }
    stream->offset += got;
    *n_out = got;
    return EBB_OK;
}

ebb_status ebb__stream_read(ebb_stream *stream, void *dst, size_t n, const char *what) {
    size_t got = 0;
    EBB_TRY(ebb__stream_read_some(stream, dst, n, &got));
    if (got < n) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte %" PRIu64 ": the file ends within %s, %zu bytes are missing",
                        stream->name, stream->offset, what, n - got);
    }
    return EBB_OK;
}

ebb_status ebb__stream_read_new(ebb_stream *stream, const ebb_mem *mem, size_t n, const char *what,
                                uint8_t **data_out) {
    mem = ebb__mem_or_default(mem);
    uint8_t *data = NULL;
    ebb_status status = EBB_OK;
    for (size_t at = 0, room = FIRST_GROWTH_BYTES; at < n && status == EBB_OK; at = room, room *= 2) {
        if (room > n || room > SIZE_MAX / 2) { room = n; }
        uint8_t *grown = mem->resize(mem->ctx, data, room);
        if (grown == NULL) {
            status = ebb_fail(EBB_E_NO_MEMORY, "out of host memory: %s of %s", what, stream->name);
        } else {
            data = grown;
            status = ebb__stream_read(stream, data + at, room - at, what);
        }
    }
    if (status == EBB_OK) {
        *data_out = data;
    } else {
        ebb__free(mem, data);
    }
    return status;
}

ebb_status ebb__stream_expect_end(ebb_stream *stream) {
    uint8_t byte = 0;
    size_t got = 0;
    uint64_t at = stream->offset;
    EBB_TRY(ebb__stream_read_some(stream, &byte, 1, &got));
    if (got != 0) {
        return ebb_fail(EBB_E_FORMAT, "%s: byte %" PRIu64 ": the file goes on after its end", stream->name, at);
    }
    return EBB_OK;
}
