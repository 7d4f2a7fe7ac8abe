/* SPDX-License-Identifier: Apache-2.0
 *
 * Files as tiers. With io_uring a move is cut into chunks, of which up to DEPTH are in flight: enough to keep a disk
 * busy, and a bound on what is queued. Direct I/O keeps the kernel's cache out of it, which would otherwise take as
 * much host memory as the tier has bytes:
 *
 *      bytes of a tensor     ..|.......|.......|.......|...
 *      pages of the file       |       |       |       |
 *      go by                 a    b       b       b      a     a: through the cache, b: direct
 *
 * Direct I/O wants whole blocks, so what lies on a page in part goes through the cache (a). Such a page has bytes of
 * other tensors too, and they go the same way. A page that is inside a tensor has no bytes of any other one, so no page
 * is ever in both at once, and the kernel keeps both in step over time. It also wants aligned memory; where a tensor is
 * not, chunks go through a buffer.
 */
#include "run/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef EBB_HAVE_URING
#include <liburing.h>
#endif

#define PAGE_BYTES 4096u
#define CHUNK_BYTES ((uint64_t)1 << 19)
#define DEPTH 8u
#define MOST_AT_ONCE ((uint64_t)1 << 30) /* of pread and pwrite */

ebb_status ebb__io_parse(const char *name, ebb_io *io_out) {
    static const char *const names[] = {
        [EBB_IO_AUTO] = "auto", [EBB_IO_PLAIN] = "plain", [EBB_IO_URING] = "uring", NULL};
    char known[EBB_SUGGESTION_BYTES];
    for (int i = 0; names[i] != NULL; i++) {
        if (name == NULL || strcmp(name, names[i]) == 0) {
            *io_out = (ebb_io)i;
            return EBB_OK;
        }
    }
    return ebb_fail(EBB_E_ARGUMENT, "no such way of input and output: '%s'%s", name,
                    ebb__suggest_or_list(name, ebb__name_in_list, names, known));
}

/* ---- the file ------------------------------------------------------------------------------------ */

static ebb_status open_unnamed(const char *name, const char *dir, int *fd_out) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) { /* file systems without O_TMPFILE */
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/ebb-XXXXXX", dir);
        if (n < 0 || (size_t)n >= sizeof path) {
            return ebb_fail(EBB_E_IO, "%s tier %s: the path is too long", name, dir);
        }
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) { (void)unlink(path); }
    }
    if (fd < 0) { return ebb_fail(EBB_E_IO, "%s tier %s: cannot make a file there: %s", name, dir, strerror(errno)); }
    *fd_out = fd;
    return EBB_OK;
}

/* Memory has to be aligned to a block where the kernel does not say what it wants. */
static uint64_t direct_alignment(int fd) {
#ifdef STATX_DIOALIGN
    struct statx about;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &about) == 0 && (about.stx_mask & STATX_DIOALIGN) != 0 &&
        about.stx_dio_mem_align > 0) {
        return about.stx_dio_mem_align;
    }
#else
    (void)fd;
#endif
    return PAGE_BYTES;
}

/* Open it once more, past the cache. The first block is read as a test, because some file systems refuse
 * only then. */
static void open_direct(ebb_tier_file *file) {
    char path[64];
    _Alignas(PAGE_BYTES) unsigned char block[PAGE_BYTES];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    const int fd = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (fd < 0) { return; }
    if (pread(fd, block, sizeof block, 0) < 0) {
        (void)close(fd);
        return;
    }
    file->direct_fd = fd;
    file->memory_alignment = direct_alignment(fd);
}

ebb_status ebb__tier_file_open(const char *name, const char *dir, uint64_t size_bytes, bool wants_direct,
                               ebb_tier_file *file) {
    if (dir == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "the plan moves %llu bytes to the %s tier and no directory is given for it",
                        (unsigned long long)size_bytes, name);
    }
    EBB_TRY(open_unnamed(name, dir, &file->fd));
    EBB_ASSERT(file->fd >= 0 && size_bytes > 0);
    const int error = posix_fallocate(file->fd, 0, (off_t)size_bytes);
    if (error != 0) {
        return ebb_fail(EBB_E_IO, "%s tier %s: no room for %llu bytes: %s", name, dir, (unsigned long long)size_bytes,
                        strerror(error));
    }
    if (wants_direct) {
        open_direct(file);
        (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM); /* pages that go direct are not to be read ahead */
    }
    return EBB_OK;
}

void ebb__tier_file_close(ebb_tier_file *file) {
    if (file->direct_fd >= 0) { (void)close(file->direct_fd); }
    if (file->fd >= 0) { (void)close(file->fd); }
    *file = EBB_TIER_FILE_INIT;
}

/* ---- through the cache --------------------------------------------------------------------------- */

static int move_plainly(int fd, ebb_copy_direction direction, unsigned char *ptr, uint64_t n, uint64_t at) {
    while (n > 0) {
        const size_t piece = (size_t)ebb_min_u64(n, MOST_AT_ONCE);
        const ssize_t done =
            direction == EBB_COPY_OUT ? pwrite(fd, ptr, piece, (off_t)at) : pread(fd, ptr, piece, (off_t)at);
        if (done < 0 && errno == EINTR) { continue; }
        if (done <= 0) { return done < 0 ? errno : EBB_FILE_ENDS; }
        EBB_ASSERT((size_t)done <= piece);
        ptr += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return 0;
}

/* ---- lanes --------------------------------------------------------------------------------------- */

/* A chunk in flight. */
typedef struct chunk {
    unsigned char *memory; /* the tensor's */
    unsigned char *ptr;    /* what the kernel gets: memory, or a buffer */
    uint64_t at, size_bytes, done_bytes;
    bool is_taken;
} chunk;

struct ebb_lane {
    ebb_device *device;
    pthread_mutex_t lock;
    bool has_ring;
    void *buffer; /* DEPTH chunks, from the next page on */
#ifdef EBB_HAVE_URING
    struct io_uring ring;
    chunk chunks[DEPTH];
#endif
};

#define BUFFER_BYTES (DEPTH * CHUNK_BYTES + PAGE_BYTES)

#ifdef EBB_HAVE_URING

/* 0, or the error number for which there is no ring. */
static int open_ring(ebb_lane *lane) {
    int error = -io_uring_queue_init(DEPTH, &lane->ring, 0);
    if (error != 0) { return error; }
    struct io_uring_probe *probe = io_uring_get_probe_ring(&lane->ring);
    const bool works = probe != NULL && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                       io_uring_opcode_supported(probe, IORING_OP_WRITE);
    if (probe != NULL) { io_uring_free_probe(probe); }
    lane->has_ring = works;
    if (!works) { io_uring_queue_exit(&lane->ring); }
    return works ? 0 : ENOSYS;
}

static void close_ring(ebb_lane *lane) {
    io_uring_queue_exit(&lane->ring);
}

/* A move that is under way. */
typedef struct moving {
    ebb_lane *lane;
    const ebb_tier_file *file;
    ebb_copy_direction direction;
    unsigned char *ptr; /* of what is not queued yet */
    uint64_t at, left_bytes;
    uint32_t n_queued;
    int error; /* the first */
} moving;

static void fail_moving(moving *m, int error) {
    if (m->error == 0) { m->error = error; }
}

/* Queue what is left of a chunk. There is an entry for each chunk. */
static void queue_chunk(const moving *m, chunk *c) {
    struct io_uring_sqe *entry = io_uring_get_sqe(&m->lane->ring);
    EBB_ASSERT(entry != NULL);
    const int fd = m->file->direct_fd >= 0 ? m->file->direct_fd : m->file->fd;
    unsigned char *ptr = c->ptr + c->done_bytes;
    const unsigned n = (unsigned)(c->size_bytes - c->done_bytes);
    if (m->direction == EBB_COPY_OUT) {
        io_uring_prep_write(entry, fd, ptr, n, c->at + c->done_bytes);
    } else {
        io_uring_prep_read(entry, fd, ptr, n, c->at + c->done_bytes);
    }
    io_uring_sqe_set_data(entry, c);
}

static void queue_next(moving *m) {
    uint32_t i = 0;
    while (i < DEPTH && m->lane->chunks[i].is_taken) { i++; }
    EBB_ASSERT(i < DEPTH);
    chunk *c = &m->lane->chunks[i];
    *c = (chunk){.memory = m->ptr, .ptr = m->ptr, .at = m->at, .size_bytes = ebb_min_u64(CHUNK_BYTES, m->left_bytes)};
    c->is_taken = true;
    if (m->file->direct_fd >= 0 && (uintptr_t)m->ptr % m->file->memory_alignment != 0) {
        c->ptr = (unsigned char *)(uintptr_t)ebb_align_up((uintptr_t)m->lane->buffer, PAGE_BYTES) + i * CHUNK_BYTES;
        if (m->direction == EBB_COPY_OUT) { memcpy(c->ptr, c->memory, (size_t)c->size_bytes); }
    }
    queue_chunk(m, c);
    m->ptr += c->size_bytes;
    m->at += c->size_bytes;
    m->left_bytes -= c->size_bytes;
    m->n_queued++;
}

/* Take the kernel's answer for a chunk. If less than a block was left out, it goes through the cache. */
static void end_chunk(moving *m, chunk *c, int result) {
    const bool again = result == -EINTR || result == -EAGAIN;
    if (result > 0) { c->done_bytes += (uint64_t)result; }
    if (result == 0) { fail_moving(m, EBB_FILE_ENDS); }
    if (result < 0 && !again) { fail_moving(m, -result); }
    EBB_ASSERT(c->done_bytes <= c->size_bytes);
    if (m->error == 0 && c->done_bytes < c->size_bytes) {
        if (again || result % (int)PAGE_BYTES == 0) {
            queue_chunk(m, c);
            return;
        }
        const uint64_t left = c->size_bytes - c->done_bytes;
        fail_moving(m, move_plainly(m->file->fd, m->direction, c->ptr + c->done_bytes, left, c->at + c->done_bytes));
    }
    if (m->error == 0 && m->direction == EBB_COPY_IN && c->ptr != c->memory) {
        memcpy(c->memory, c->ptr, (size_t)c->size_bytes);
    }
    c->is_taken = false;
    m->n_queued--;
}

/* Hand the queue to the kernel and wait for one chunk at least. */
static void wait_for_chunk(moving *m) {
    struct io_uring *ring = &m->lane->ring;
    struct io_uring_cqe *entry = NULL;
    int result = 0;
    do {
        result = io_uring_submit_and_wait(ring, 1);
    } while (result == -EINTR || result == -EAGAIN || result == -EBUSY);
    if (result < 0) { /* the ring is broken */
        fail_moving(m, -result);
        m->n_queued = 0;
        return;
    }
    while (io_uring_peek_cqe(ring, &entry) == 0) {
        chunk *c = io_uring_cqe_get_data(entry);
        result = entry->res;
        io_uring_cqe_seen(ring, entry);
        end_chunk(m, c, result);
    }
}

/* Returns only when nothing is in flight, because the kernel has the memory till then. */
static int move_by_ring(ebb_lane *lane, const ebb_tier_file *file, ebb_copy_direction direction, unsigned char *ptr,
                        uint64_t n, uint64_t at) {
    moving m = {.lane = lane, .file = file, .direction = direction, .ptr = ptr, .at = at, .left_bytes = n};
    for (uint32_t i = 0; i < DEPTH; i++) { lane->chunks[i].is_taken = false; }
    while (m.n_queued > 0 || (m.left_bytes > 0 && m.error == 0)) {
        while (m.n_queued < DEPTH && m.left_bytes > 0 && m.error == 0) { queue_next(&m); }
        wait_for_chunk(&m);
    }
    return m.error;
}

#else

static int open_ring(ebb_lane *lane) {
    (void)lane;
    return ENOSYS;
}

static void close_ring(ebb_lane *lane) {
    (void)lane;
}

static int move_by_ring(ebb_lane *lane, const ebb_tier_file *file, ebb_copy_direction direction, unsigned char *ptr,
                        uint64_t n, uint64_t at) {
    (void)lane;
    return move_plainly(file->fd, direction, ptr, n, at);
}

#endif

ebb_status ebb__lane_open(ebb_device *device, ebb_io io, ebb_lane **lane_out) {
    ebb_lane *lane = ebb__calloc(device->mem, 1, sizeof *lane);
    if (lane == NULL) { return EBB_E_NO_MEMORY; }
    lane->device = device;
    pthread_mutex_init(&lane->lock, NULL);
    const int error = io == EBB_IO_PLAIN ? 0 : open_ring(lane);
    ebb_status status = EBB_OK;
    if (error != 0 && io == EBB_IO_URING) {
        status =
            ebb_fail(EBB_E_UNSUPPORTED, "io_uring cannot be had here: %s; plain input and output can", strerror(error));
    }
    if (status == EBB_OK && lane->has_ring) { status = device->ops->host_alloc(device, BUFFER_BYTES, &lane->buffer); }
    if (status != EBB_OK) {
        ebb__lane_close(lane);
        return status;
    }
    *lane_out = lane;
    return EBB_OK;
}

void ebb__lane_close(ebb_lane *lane) {
    if (lane == NULL) { return; }
    if (lane->has_ring) { close_ring(lane); }
    if (lane->buffer != NULL) { lane->device->ops->host_free(lane->device, lane->buffer, BUFFER_BYTES); }
    pthread_mutex_destroy(&lane->lock);
    ebb__free(lane->device->mem, lane);
}

bool ebb__lane_has_ring(const ebb_lane *lane) {
    return lane->has_ring;
}

static int move_with_ring(ebb_lane *lane, const ebb_tier_file *file, ebb_copy_direction direction, unsigned char *ptr,
                          uint64_t n, uint64_t at) {
    if (file->direct_fd < 0) { return move_by_ring(lane, file, direction, ptr, n, at); }
    const uint64_t first = ebb_align_up(at, PAGE_BYTES), last = (at + n) / PAGE_BYTES * PAGE_BYTES;
    if (first >= last) { return move_plainly(file->fd, direction, ptr, n, at); }
    const uint64_t head = first - at, middle = last - first;
    int error = move_plainly(file->fd, direction, ptr, head, at);
    if (error == 0) { error = move_by_ring(lane, file, direction, ptr + head, middle, first); }
    if (error == 0) { error = move_plainly(file->fd, direction, ptr + head + middle, n - head - middle, last); }
    return error;
}

int ebb__lane_move(ebb_lane *lane, const ebb_tier_file *file, ebb_copy_direction direction, unsigned char *ptr,
                   uint64_t n, uint64_t at) {
    EBB_ASSERT(file->fd >= 0 && ptr != NULL);
    pthread_mutex_lock(&lane->lock);
    const int error = lane->has_ring ? move_with_ring(lane, file, direction, ptr, n, at)
                                     : move_plainly(file->fd, direction, ptr, n, at);
    pthread_mutex_unlock(&lane->lock);
    return error;
}
