/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory snapshots from hostile bytes: the import gives a whole trace of which everything can be read, or an error;
 * and it takes no more memory than some hundred times the file beside its buffers.
 */
#include "trace/import_priv.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HEAD_BYTES ((size_t)16) /* keeps the size in front of a block, and its alignment */
#define BASE_BYTES ((size_t)32 << 20)
#define BYTES_PER_BYTE ((size_t)1000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Hooks that count what is out, and end the program above a limit. */
typedef struct counted {
    size_t n_bytes, max_bytes;
} counted;

static void *count_resize(void *ctx, void *ptr, size_t size_bytes) {
    counted *c = ctx;
    char *block = ptr == NULL ? NULL : (char *)ptr - HEAD_BYTES;
    size_t old_bytes = 0;
    if (block != NULL) { memcpy(&old_bytes, block, sizeof old_bytes); }
    if (size_bytes > c->max_bytes || c->n_bytes - old_bytes + size_bytes > c->max_bytes) { abort(); }
    block = realloc(block, HEAD_BYTES + size_bytes);
    if (block == NULL) { abort(); }
    memcpy(block, &size_bytes, sizeof size_bytes);
    c->n_bytes += size_bytes - old_bytes;
    return block + HEAD_BYTES;
}

static void *count_alloc(void *ctx, size_t size_bytes) {
    return count_resize(ctx, NULL, size_bytes);
}

static void count_free(void *ctx, void *ptr) {
    counted *c = ctx;
    size_t n_bytes = 0;
    if (ptr == NULL) { return; }
    memcpy(&n_bytes, (char *)ptr - HEAD_BYTES, sizeof n_bytes);
    c->n_bytes -= n_bytes;
    free((char *)ptr - HEAD_BYTES);
}

static void check_stack(const ebb_trace_reader *reader, uint32_t stack) {
    while (stack != 0) {
        const ebb_trace_frame frame = ebb_trace_reader_frame(reader, stack);
        (void)ebb_trace_reader_string(reader, frame.function);
        (void)ebb_trace_reader_string(reader, frame.file);
        if (frame.caller >= stack) { abort(); }
        stack = frame.caller;
    }
}

static void check_trace(const ebb_mem *mem, int fd, const ebb_trace_import_result *result) {
    ebb_trace_reader *reader = NULL;
    ebb_trace_event event;
    uint64_t n = 0;
    if (lseek(fd, 0, SEEK_SET) != 0 || ebb__trace_reader_open_fd(mem, "fuzz", fd, &reader) != EBB_OK) { abort(); }
    for (bool done = false; !done; n += !done) {
        if (ebb_trace_reader_next(reader, &event, &done) != EBB_OK) { abort(); }
        if (!done && n < 10000) { check_stack(reader, event.stack); }
    }
    const ebb_trace_info info = ebb_trace_reader_info(reader);
    if (!info.complete || info.n_events != result->n_events || info.n_blocks != result->n_blocks) { abort(); }
    if (n != info.n_events) { abort(); }
    ebb_trace_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    counted count = {0, BASE_BYTES + BYTES_PER_BYTE * size};
    const ebb_mem mem = {count_alloc, count_resize, count_free, &count};
    ebb_trace_import_options options = EBB_TRACE_IMPORT_OPTIONS_INIT;
    ebb_trace_import_result result;
    options.mem = &mem;
    options.format = "snapshot";
    options.device = size % 4 == 0 ? "all" : size % 4 == 1 ? "1" : NULL;
    ebb_stream stream = ebb__stream_memory("fuzz", data, size);
    const int fd = memfd_create("fuzz", MFD_CLOEXEC), twin = fd >= 0 ? dup(fd) : -1;
    if (twin < 0) { abort(); }
    const ebb_status st = ebb__import_stream(&stream, twin, &options, &result);
    if (st == EBB_OK) {
        check_trace(&mem, fd, &result);
    } else {
        (void)close(fd);
        if (st != EBB_E_FORMAT && st != EBB_E_UNSUPPORTED && st != EBB_E_LIMIT && st != EBB_E_ARGUMENT) { abort(); }
    }
    if (count.n_bytes != 0) { abort(); }
    return 0;
}
