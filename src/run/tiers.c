/* SPDX-License-Identifier: Apache-2.0
 *
 * The lower tiers: slabs of host memory (pinned where the backend says so) and files without a name in the directory
 * for them. All are taken whole before the first iteration, so that a full disk is an error at the start and not
 * halfway. A copy to or from a file is a host call in the copy stream's order; where the host cannot read the device's
 * memory, it goes through a staging buffer, one for each tier and direction, which the stream's own order protects. A
 * move between lower tiers is a host call too.
 */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define BOUNCE_BYTES ((uint64_t)1 << 18)

/* A file that no one else sees and that is gone with the process, whatever ends it. */
static ebb_status open_unnamed(const char *dir, int *fd_out) {
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) { /* file systems without O_TMPFILE */
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/ebb-XXXXXX", dir);
        if (n < 0 || (size_t)n >= sizeof path) { return ebb_fail(EBB_E_IO, "disk tier %s: the path is too long", dir); }
        fd = mkostemp(path, O_CLOEXEC);
        if (fd >= 0) { (void)unlink(path); }
    }
    if (fd < 0) { return ebb_fail(EBB_E_IO, "disk tier %s: cannot make a file there: %s", dir, strerror(errno)); }
    *fd_out = fd;
    return EBB_OK;
}

static ebb_status open_file(const char *disk_dir, ebb_tier_store *store) {
    if (disk_dir == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "the plan moves %llu bytes to the disk tier and no directory is given for it",
                        (unsigned long long)store->size_bytes);
    }
    EBB_TRY(open_unnamed(disk_dir, &store->fd));
    EBB_ASSERT(store->fd >= 0 && store->size_bytes > 0);
    int error = posix_fallocate(store->fd, 0, (off_t)store->size_bytes);
    if (error != 0) {
        return ebb_fail(EBB_E_IO, "disk tier %s: no room for %llu bytes: %s", disk_dir,
                        (unsigned long long)store->size_bytes, strerror(error));
    }
    return EBB_OK;
}

static ebb_status alloc_host(ebb_tiers *tiers, uint64_t size_bytes, unsigned char **memory_out) {
    void *memory = NULL;
    EBB_TRY(tiers->device->ops->host_alloc(tiers->device, size_bytes, &memory));
    *memory_out = memory;
    return EBB_OK;
}

static ebb_status open_store(ebb_tiers *tiers, const char *disk_dir, ebb_tier_store *store) {
    if (store->size_bytes == 0) { return EBB_OK; }
    if (store->kind == EBB_STORE_MEMORY) { return alloc_host(tiers, store->size_bytes, &store->memory); }
    if (!tiers->only_notes) { EBB_TRY(open_file(disk_dir, store)); }
    for (int d = 0; d < 2 && !tiers->device->ops->host_visible; d++) {
        EBB_TRY(alloc_host(tiers, tiers->staging_bytes, &store->staging[d]));
    }
    return EBB_OK;
}

static bool is_file(const ebb_tiers *tiers, uint32_t tier) {
    return tiers->store[tier].kind == EBB_STORE_FILE && tiers->store[tier].size_bytes > 0;
}

/* Engines work side by side, so each that may move something from file to file has memory of its own for that. */
static ebb_status open_bounces(ebb_tiers *tiers, const ebb_topology *topology) {
    for (uint32_t from = 1; from < topology->n_tiers; from++) {
        for (uint32_t to = 1; to < topology->n_tiers; to++) {
            const uint32_t engine = topology->way[from][to];
            const bool bounces = is_file(tiers, from) && is_file(tiers, to) && engine != EBB_COMPUTE;
            if (!bounces || tiers->bounce[engine] != NULL) { continue; }
            EBB_TRY(alloc_host(tiers, BOUNCE_BYTES, &tiers->bounce[engine]));
        }
    }
    return EBB_OK;
}

ebb_status ebb__tiers_open(ebb_device *device, const ebb_topology *topology, const uint64_t tier_bytes[EBB_MAX_TIERS],
                           const char *disk_dir, uint64_t largest_bytes, ebb_tiers *tiers) {
    *tiers = (ebb_tiers){.device = device,
                         .n_tiers = topology->n_tiers,
                         .staging_bytes = largest_bytes,
                         .only_notes = ebb__only_writes_down(device)};
    atomic_init(&tiers->status, EBB_OK);
    atomic_init(&tiers->error_number, 0);
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        const bool takes = device->ops->has_data && t != EBB_DEVICE;
        tiers->store[t] =
            (ebb_tier_store){.kind = topology->tier[t].store, .size_bytes = takes ? tier_bytes[t] : 0, .fd = -1};
    }
    for (uint32_t t = 1; t < topology->n_tiers; t++) { EBB_TRY(open_store(tiers, disk_dir, &tiers->store[t])); }
    return open_bounces(tiers, topology);
}

void ebb__tiers_close(ebb_tiers *tiers) {
    if (tiers->device == NULL) { return; }
    const ebb_backend_ops *ops = tiers->device->ops;
    for (uint32_t t = 1; t < tiers->n_tiers; t++) {
        ebb_tier_store *store = &tiers->store[t];
        if (store->memory != NULL) { ops->host_free(tiers->device, store->memory, store->size_bytes); }
        for (int d = 0; d < 2; d++) {
            if (store->staging[d] != NULL) { ops->host_free(tiers->device, store->staging[d], tiers->staging_bytes); }
        }
        if (store->fd >= 0) { (void)close(store->fd); }
    }
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        if (tiers->bounce[e] != NULL) { ops->host_free(tiers->device, tiers->bounce[e], BOUNCE_BYTES); }
    }
}

uint64_t ebb__tiers_bytes(const ebb_tiers *tiers, ebb_store kind) {
    uint64_t bytes = 0;
    for (uint32_t t = 1; t < tiers->n_tiers; t++) {
        bytes += tiers->store[t].kind == kind ? tiers->store[t].size_bytes : 0;
    }
    return bytes;
}

ebb_status ebb__tiers_check(ebb_tiers *tiers) {
    int status = atomic_load(&tiers->status);
    if (status == EBB_OK) { return EBB_OK; }
    return ebb_fail((ebb_status)status, "disk tier: a copy failed: %s", strerror(atomic_load(&tiers->error_number)));
}

static void note_failure(ebb_tiers *tiers, int error) {
    EBB_ASSERT(error != 0);
    int none = 0;
    if (atomic_compare_exchange_strong(&tiers->error_number, &none, error)) { atomic_store(&tiers->status, EBB_E_IO); }
}

/* Move n bytes between memory and a file; a failure is noted for ebb__tiers_check, and returned. */
static ebb_status move_bytes(ebb_tiers *tiers, ebb_copy_direction direction, unsigned char *ptr, uint64_t n,
                             const ebb_tier_store *file, uint64_t at) {
    EBB_ASSERT(file->fd >= 0 && ptr != NULL);
    EBB_ASSERT(at <= file->size_bytes && n <= file->size_bytes - at);
    while (n > 0) {
        size_t piece = (size_t)ebb_min_u64(n, 1u << 30);
        ssize_t done = direction == EBB_COPY_OUT ? pwrite(file->fd, ptr, piece, (off_t)at)
                                                 : pread(file->fd, ptr, piece, (off_t)at);
        if (done < 0 && errno == EINTR) { continue; }
        if (done <= 0) {
            note_failure(tiers, done < 0 ? errno : EIO);
            return ebb__tiers_check(tiers);
        }
        EBB_ASSERT((size_t)done <= piece);
        ptr += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return EBB_OK;
}

/* ---- host calls --------------------------------------------------------------------------------- */

static bool is_out(const ebb_transfer *t) {
    return t->from == EBB_DEVICE;
}

static bool is_move(const ebb_transfer *t) {
    return t->from != EBB_DEVICE && t->to != EBB_DEVICE;
}

/* The lower tier of a copy between it and the device. */
static ebb_tier_store *lower_store(const ebb_transfer *t) {
    return &t->tiers->store[is_out(t) ? t->to : t->from];
}

static uint64_t lower_offset(const ebb_transfer *t) {
    return is_out(t) ? t->to_offset : t->from_offset;
}

/* Between the device, or its staging, and a file. */
static ebb_status move_file(void *ctx) {
    const ebb_transfer *t = ctx;
    const ebb_backend_ops *ops = t->tiers->device->ops;
    const ebb_copy_direction direction = is_out(t) ? EBB_COPY_OUT : EBB_COPY_IN;
    const ebb_tier_store *store = lower_store(t);
    unsigned char *ptr = ops->host_visible ? ops->host_address(t->buf) : store->staging[direction];
    return move_bytes(t->tiers, direction, ptr, t->size_bytes, store, lower_offset(t));
}

static ebb_status move_between_files(const ebb_transfer *t) {
    unsigned char *bounce = t->tiers->bounce[t->engine];
    for (uint64_t at = 0; at < t->size_bytes; at += BOUNCE_BYTES) {
        const uint64_t n = ebb_min_u64(BOUNCE_BYTES, t->size_bytes - at);
        const ebb_tier_store *from = &t->tiers->store[t->from], *to = &t->tiers->store[t->to];
        EBB_TRY(move_bytes(t->tiers, EBB_COPY_IN, bounce, n, from, t->from_offset + at));
        EBB_TRY(move_bytes(t->tiers, EBB_COPY_OUT, bounce, n, to, t->to_offset + at));
    }
    return EBB_OK;
}

/* Between two lower tiers. */
static ebb_status move_on(void *ctx) {
    const ebb_transfer *t = ctx;
    const ebb_tier_store *from = &t->tiers->store[t->from], *to = &t->tiers->store[t->to];
    if (from->kind == EBB_STORE_FILE && to->kind == EBB_STORE_FILE) { return move_between_files(t); }
    if (from->kind == EBB_STORE_FILE) {
        return move_bytes(t->tiers, EBB_COPY_IN, to->memory + t->to_offset, t->size_bytes, from, t->from_offset);
    }
    if (to->kind == EBB_STORE_FILE) {
        return move_bytes(t->tiers, EBB_COPY_OUT, from->memory + t->from_offset, t->size_bytes, to, t->to_offset);
    }
    memcpy(to->memory + t->to_offset, from->memory + t->from_offset, (size_t)t->size_bytes);
    return EBB_OK;
}

/* What host code touches of a lower tier. */
static ebb_touch touch_of(const ebb_tier_store *store, uint64_t offset, uint64_t size_bytes, ebb_access_mode mode) {
    if (store->kind == EBB_STORE_FILE) {
        return (ebb_touch){.base = &store->fd, .offset = offset, .size_bytes = size_bytes, .mode = mode, .file = true};
    }
    return (ebb_touch){.base = store->memory + offset, .size_bytes = size_bytes, .mode = mode};
}

/* What a host call, or the host itself (stream NULL), touches when it moves bytes between memory and a slot. */
static ebb_status touch_slot(ebb_tiers *tiers, ebb_stream *stream, ebb_copy_direction direction,
                             const ebb_tier_store *store, uint64_t offset, uint64_t size_bytes, const void *memory) {
    const bool out = direction == EBB_COPY_OUT;
    const ebb_touch touches[2] = {
        {.base = memory, .size_bytes = size_bytes, .mode = out ? EBB_READ : EBB_WRITE},
        touch_of(store, offset, size_bytes, out ? EBB_WRITE : EBB_READ),
    };
    return ebb__touch(tiers->device, stream, touches, 2);
}

ebb_status ebb__tiers_copy(ebb_tiers *tiers, void *dst, const void *src, uint64_t bytes) {
    const ebb_touch touches[2] = {{.base = src, .size_bytes = bytes, .mode = EBB_READ},
                                  {.base = dst, .size_bytes = bytes, .mode = EBB_WRITE}};
    if (!tiers->only_notes) { memcpy(dst, src, (size_t)bytes); }
    return ebb__touch(tiers->device, NULL, touches, 2);
}

/* ---- transfers ---------------------------------------------------------------------------------- */

static bool is_inside(const ebb_tier_store *store, uint64_t offset, uint64_t size_bytes) {
    return offset <= store->size_bytes && size_bytes <= store->size_bytes - offset;
}

uint64_t ebb__tiers_count_commands(const ebb_transfer *transfer) {
    const bool is_staged = !is_move(transfer) && lower_store(transfer)->staging[0] != NULL;
    return is_staged ? 2 : 1;
}

static ebb_status transfer_on(ebb_stream *stream, ebb_transfer *t) {
    const ebb_tier_store *from = &t->tiers->store[t->from], *to = &t->tiers->store[t->to];
    EBB_ASSERT(is_inside(from, t->from_offset, t->size_bytes) && is_inside(to, t->to_offset, t->size_bytes));
    const ebb_touch touches[2] = {touch_of(from, t->from_offset, t->size_bytes, EBB_READ),
                                  touch_of(to, t->to_offset, t->size_bytes, EBB_WRITE)};
    EBB_TRY(ebb__touch(t->tiers->device, stream, touches, 2));
    return t->tiers->device->ops->call(stream, move_on, t);
}

ebb_status ebb__tiers_transfer(ebb_stream *stream, ebb_transfer *t) {
    const ebb_backend_ops *ops = t->tiers->device->ops;
    const ebb_copy_direction direction = is_out(t) ? EBB_COPY_OUT : EBB_COPY_IN;
    EBB_ASSERT(t->from < t->tiers->n_tiers && t->to < t->tiers->n_tiers && t->from != t->to && t->size_bytes > 0);
    if (!ops->has_data) { return is_move(t) ? EBB_OK : ops->copy(stream, direction, t->buf, NULL); }
    if (is_move(t)) { return transfer_on(stream, t); }
    const ebb_tier_store *store = lower_store(t);
    EBB_ASSERT(is_inside(store, lower_offset(t), t->size_bytes) && t->buf.size_bytes == t->size_bytes);
    if (store->kind == EBB_STORE_MEMORY) {
        return ops->copy(stream, direction, t->buf, store->memory + lower_offset(t));
    }
    if (ops->host_visible) { return ops->call(stream, move_file, t); }
    void *staging = store->staging[direction];
    EBB_ASSERT(staging != NULL && t->size_bytes <= t->tiers->staging_bytes);
    EBB_TRY(touch_slot(t->tiers, stream, direction, store, lower_offset(t), t->size_bytes, staging));
    if (direction == EBB_COPY_OUT) {
        EBB_TRY(ops->copy(stream, EBB_COPY_OUT, t->buf, staging));
        return ops->call(stream, move_file, t);
    }
    EBB_TRY(ops->call(stream, move_file, t));
    return ops->copy(stream, EBB_COPY_IN, t->buf, staging);
}

ebb_status ebb__tiers_move(ebb_tiers *tiers, ebb_copy_direction direction, const ebb_home *home, void *host) {
    const ebb_tier_store *store = &tiers->store[home->tier];
    const bool out = direction == EBB_COPY_OUT;
    const uint64_t bytes = home->size_bytes;
    EBB_ASSERT(home->tier < tiers->n_tiers && is_inside(store, home->offset, bytes));
    if (store->kind == EBB_STORE_MEMORY) {
        unsigned char *there = store->memory + home->offset;
        return ebb__tiers_copy(tiers, out ? there : host, out ? host : there, bytes);
    }
    if (!tiers->only_notes) { return move_bytes(tiers, direction, host, bytes, store, home->offset); }
    return touch_slot(tiers, NULL, direction, store, home->offset, bytes, host);
}
