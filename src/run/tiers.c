/* SPDX-License-Identifier: Apache-2.0
 *
 * The lower tiers: a slab of host memory (pinned where the backend says so) and a file without a name in the
 * directory for the disk tier. Both are taken whole before the first iteration, so that a full disk is an error at
 * the start and not halfway. A copy to or from the file is a host call in the copy stream's order; where the host
 * cannot read the device's memory, it goes through a staging buffer, one each way, which the stream's own order
 * protects.
 */
#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* A file that nobody else sees and that is gone when we are, whatever ends us. */
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

static ebb_status open_file(const char *disk_dir, ebb_tiers *tiers) {
    if (disk_dir == NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "the plan moves %llu bytes to the disk tier and no directory is given for it",
                        (unsigned long long)tiers->file_bytes);
    }
    EBB_TRY(open_unnamed(disk_dir, &tiers->fd));
    EBB_ASSERT(tiers->fd >= 0 && tiers->file_bytes > 0);
    int error = posix_fallocate(tiers->fd, 0, (off_t)tiers->file_bytes);
    if (error != 0) {
        return ebb_fail(EBB_E_IO, "disk tier %s: no room for %llu bytes: %s", disk_dir,
                        (unsigned long long)tiers->file_bytes, strerror(error));
    }
    return EBB_OK;
}

static ebb_status open_staging(ebb_tiers *tiers, uint64_t largest_bytes) {
    EBB_ASSERT(largest_bytes > 0 && !tiers->device->ops->host_visible);
    tiers->staging_bytes = largest_bytes;
    for (int d = 0; d < 2; d++) {
        void *ptr = NULL;
        EBB_TRY(tiers->device->ops->host_alloc(tiers->device, largest_bytes, &ptr));
        tiers->staging[d] = ptr;
    }
    return EBB_OK;
}

ebb_status ebb__tiers_open(ebb_device *device, const uint64_t tier_bytes[EBB_N_TIERS], const char *disk_dir,
                           uint64_t largest_bytes, ebb_tiers *tiers) {
    *tiers = (ebb_tiers){.device = device, .fd = -1, .only_notes = ebb__only_writes_down(device)};
    atomic_init(&tiers->status, EBB_OK);
    atomic_init(&tiers->error_number, 0);
    if (!device->ops->has_data) { return EBB_OK; }
    if (tier_bytes[EBB_TIER_HOST] > 0) {
        void *slab = NULL;
        EBB_TRY(device->ops->host_alloc(device, tier_bytes[EBB_TIER_HOST], &slab));
        tiers->slab = slab;
        tiers->slab_bytes = tier_bytes[EBB_TIER_HOST];
    }
    tiers->file_bytes = tier_bytes[EBB_TIER_DISK];
    if (tiers->file_bytes == 0) { return EBB_OK; }
    if (!tiers->only_notes) { EBB_TRY(open_file(disk_dir, tiers)); }
    return device->ops->host_visible ? EBB_OK : open_staging(tiers, largest_bytes);
}

void ebb__tiers_close(ebb_tiers *tiers) {
    if (tiers->device == NULL) { return; }
    const ebb_backend_ops *ops = tiers->device->ops;
    if (tiers->slab != NULL) { ops->host_free(tiers->device, tiers->slab, tiers->slab_bytes); }
    for (int d = 0; d < 2; d++) {
        if (tiers->staging[d] != NULL) { ops->host_free(tiers->device, tiers->staging[d], tiers->staging_bytes); }
    }
    if (tiers->fd >= 0) { (void)close(tiers->fd); }
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

/* Move n bytes between memory and the file; a failure is noted for whoever asks later, and returned. */
static ebb_status move_bytes(ebb_tiers *tiers, ebb_copy_direction direction, unsigned char *ptr, uint64_t n,
                             uint64_t at) {
    EBB_ASSERT(tiers->fd >= 0 && ptr != NULL);
    EBB_ASSERT(at <= tiers->file_bytes && n <= tiers->file_bytes - at);
    while (n > 0) {
        size_t piece = (size_t)ebb_min_u64(n, 1u << 30);
        ssize_t done = direction == EBB_COPY_OUT ? pwrite(tiers->fd, ptr, piece, (off_t)at)
                                                 : pread(tiers->fd, ptr, piece, (off_t)at);
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

static ebb_status move_file(void *ctx) {
    const ebb_transfer *t = ctx;
    const ebb_backend_ops *ops = t->tiers->device->ops;
    unsigned char *ptr = ops->host_visible ? ops->host_address(t->buf) : t->tiers->staging[t->direction];
    return move_bytes(t->tiers, t->direction, ptr, t->buf.size_bytes, t->offset);
}

/* What a host call, or the host itself (stream NULL), touches when it moves bytes between memory and the file. */
static ebb_status touch_file(ebb_stream *stream, const ebb_transfer *t, const void *memory) {
    const bool out = t->direction == EBB_COPY_OUT;
    const ebb_touch touches[2] = {
        {.base = memory, .size_bytes = t->buf.size_bytes, .mode = out ? EBB_READ : EBB_WRITE},
        {.base = &t->tiers->fd,
         .offset = t->offset,
         .size_bytes = t->buf.size_bytes,
         .mode = out ? EBB_WRITE : EBB_READ,
         .file = true},
    };
    return ebb__touch(t->tiers->device, stream, touches, 2);
}

ebb_status ebb__tiers_copy(ebb_tiers *tiers, void *dst, const void *src, uint64_t bytes) {
    const ebb_touch touches[2] = {{.base = src, .size_bytes = bytes, .mode = EBB_READ},
                                  {.base = dst, .size_bytes = bytes, .mode = EBB_WRITE}};
    if (!tiers->only_notes) { memcpy(dst, src, (size_t)bytes); }
    return ebb__touch(tiers->device, NULL, touches, 2);
}

static bool is_in_slab(const ebb_tiers *tiers, uint64_t offset, uint64_t size_bytes) {
    return tiers->slab != NULL && offset <= tiers->slab_bytes && size_bytes <= tiers->slab_bytes - offset;
}

ebb_status ebb__tiers_transfer(ebb_stream *stream, ebb_transfer *transfer) {
    ebb_tiers *tiers = transfer->tiers;
    const ebb_backend_ops *ops = tiers->device->ops;
    EBB_ASSERT(transfer->tier < EBB_N_TIERS && transfer->buf.size_bytes > 0);
    if (transfer->tier == EBB_TIER_HOST || !ops->has_data) {
        EBB_ASSERT(!ops->has_data || is_in_slab(tiers, transfer->offset, transfer->buf.size_bytes));
        void *host = tiers->slab != NULL ? tiers->slab + transfer->offset : NULL;
        return ops->copy(stream, transfer->direction, transfer->buf, host);
    }
    if (ops->host_visible) { return ops->call(stream, move_file, transfer); }
    void *staging = tiers->staging[transfer->direction];
    EBB_ASSERT(staging != NULL && transfer->buf.size_bytes <= tiers->staging_bytes);
    EBB_TRY(touch_file(stream, transfer, staging));
    if (transfer->direction == EBB_COPY_OUT) {
        EBB_TRY(ops->copy(stream, EBB_COPY_OUT, transfer->buf, staging));
        return ops->call(stream, move_file, transfer);
    }
    EBB_TRY(ops->call(stream, move_file, transfer));
    return ops->copy(stream, EBB_COPY_IN, transfer->buf, staging);
}

ebb_status ebb__tiers_move(ebb_tiers *tiers, ebb_copy_direction direction, const ebb_slot *slot, uint64_t bytes,
                           void *host) {
    EBB_ASSERT(slot->tier < EBB_N_TIERS && bytes <= slot->size_bytes);
    const bool out = direction == EBB_COPY_OUT;
    if (slot->tier == EBB_TIER_HOST) {
        EBB_ASSERT(is_in_slab(tiers, slot->offset, bytes));
        unsigned char *there = tiers->slab + slot->offset;
        return ebb__tiers_copy(tiers, out ? there : host, out ? host : there, bytes);
    }
    if (!tiers->only_notes) { return move_bytes(tiers, direction, host, bytes, slot->offset); }
    const ebb_transfer t = {
        .tiers = tiers, .direction = direction, .buf = {.size_bytes = bytes}, .offset = slot->offset};
    return touch_file(NULL, &t, host);
}
