/* SPDX-License-Identifier: Apache-2.0
 *
 * The lower tiers: slabs of host memory (pinned where the backend says so), files (tier_file.c) and memory of other
 * processes (remote.c). All are taken whole before the first iteration, so that a full disk is an error at the start
 * and not halfway. Files and remotes are called: a copy to or from one is a host call in the copy stream's order. A
 * move between lower tiers is a host call too.
 *
 * Where the host cannot read the device's memory, a copy to or from a store that is called is staged: it goes in pieces
 * through two buffers, which its tier has for each direction. The engine's stream copies between the device and the
 * buffers. A second stream of the engine calls the host, which moves the bytes between the buffers and the store.
 * Events hand the buffers from one stream to the other, so both work at once:
 *
 *      out   stream        copy a | copy b |         copy a |         copy b
 *            call stream            write a           | write b       | write a ...
 *      in    call stream   read a | read b |          read a |        read b
 *            stream                 copy a            | copy b        | copy a ...
 *
 * Each stream works in the engine's order. So only the later half of one copy and the earlier half of the next one may
 * be done in another order than the engine's, and these have no bytes in common: one half touches the device, the other
 * the store. A copy of such an engine that is not staged waits for both streams, and both wait for it.
 */
#include "run/run.h"
#include "backend/host_copy.h"

#include <pthread.h>

#define BOUNCE_BYTES ((uint64_t)1 << 18)
#define PIECE_BYTES ((uint64_t)1 << 20) /* the least that is worth a call of its own */
#define MAX_PIECES 8u                   /* of a copy: each takes a place in its stream's queue */

/* The first copy that failed; copies fail in the threads of streams. */
struct ebb_tiers_failure {
    pthread_mutex_t lock;
    ebb_status status;
    char message[512];
};

static ebb_status open_failure(ebb_tiers *tiers) {
    tiers->failure = ebb__calloc(tiers->device->mem, 1, sizeof *tiers->failure);
    if (tiers->failure == NULL) { return EBB_E_NO_MEMORY; }
    pthread_mutex_init(&tiers->failure->lock, NULL);
    return EBB_OK;
}

static void close_failure(ebb_tiers *tiers) {
    if (tiers->failure == NULL) { return; }
    pthread_mutex_destroy(&tiers->failure->lock);
    ebb__free(tiers->device->mem, tiers->failure);
}

static ebb_status alloc_host(ebb_tiers *tiers, uint64_t size_bytes, unsigned char **memory_out) {
    void *memory = NULL;
    EBB_TRY(tiers->device->ops->host_alloc(tiers->device, size_bytes, &memory));
    *memory_out = memory;
    return EBB_OK;
}

static ebb_status open_slab(ebb_tiers *tiers, uint32_t tier) {
    ebb_tier_store *store = &tiers->store[tier];
    const ebb_status status = alloc_host(tiers, store->size_bytes, &store->memory);
    if (status == EBB_OK) { return EBB_OK; }
    return ebb_fail(status, "%s tier: %s; with a limit on it and another tier for the rest it takes less",
                    tiers->name[tier], ebb_last_error());
}

static ebb_status open_file(ebb_tiers *tiers, uint32_t tier, const char *disk_dir, ebb_io io) {
    ebb_tier_store *store = &tiers->store[tier];
    if (tiers->lane[EBB_COMPUTE] == NULL) { EBB_TRY(ebb__lane_open(tiers->device, io, &tiers->lane[EBB_COMPUTE])); }
    const bool wants_direct = ebb__lane_has_ring(tiers->lane[EBB_COMPUTE]);
    return ebb__tier_file_open(tiers->name[tier], disk_dir, store->size_bytes, wants_direct, &store->file);
}

static ebb_status claim_remote(ebb_tiers *tiers, uint32_t tier, ebb_remote *remote) {
    ebb_tier_store *store = &tiers->store[tier];
    if (remote == NULL) {
        return ebb_fail(
            EBB_E_ARGUMENT,
            "the plan needs %llu bytes in the %s tier, and no process lends memory; set ebb_run_options.remote",
            (unsigned long long)store->size_bytes, tiers->name[tier]);
    }
    if (ebb__remote_claim(remote, store->size_bytes, &store->claim)) { return EBB_OK; }
    return ebb_fail(EBB_E_NO_MEMORY, "%s tier: no room for %llu bytes in the %llu that other processes lend",
                    tiers->name[tier], (unsigned long long)store->size_bytes,
                    (unsigned long long)ebb_remote_bytes(remote));
}

static ebb_status open_store(ebb_tiers *tiers, uint32_t tier, const ebb_tiers_options *options, ebb_io io) {
    ebb_tier_store *store = &tiers->store[tier];
    if (store->size_bytes == 0) { return EBB_OK; }
    if (store->kind == EBB_STORE_MEMORY) { return open_slab(tiers, tier); }
    if (tiers->only_notes) { return EBB_OK; }
    return store->kind == EBB_STORE_FILE ? open_file(tiers, tier, options->disk_dir, io)
                                         : claim_remote(tiers, tier, options->remote);
}

static bool is_called(const ebb_tiers *tiers, uint32_t tier) {
    return ebb__moves_by_calls(tiers->store[tier].kind) && tiers->store[tier].size_bytes > 0;
}

static bool is_file(const ebb_tiers *tiers, uint32_t tier) {
    return tiers->store[tier].kind == EBB_STORE_FILE && tiers->store[tier].size_bytes > 0;
}

static ebb_status open_staging(ebb_tiers *tiers, ebb_staging *staging) {
    ebb_device *device = tiers->device;
    for (int i = 0; i < 2; i++) {
        EBB_TRY(alloc_host(tiers, tiers->staging_bytes, &staging->buffer[i]));
        EBB_TRY(device->ops->event_create(device, &staging->full[i]));
        EBB_TRY(device->ops->event_create(device, &staging->free[i]));
    }
    return EBB_OK;
}

static ebb_status open_call_stream(ebb_tiers *tiers, uint32_t engine) {
    ebb_device *device = tiers->device;
    if (tiers->call_stream[engine] != NULL) { return EBB_OK; }
    EBB_TRY(device->ops->stream_create(device, false, &tiers->call_stream[engine]));
    return device->ops->event_create(device, &tiers->join[engine]);
}

/* For the ways between the device and each store that is called. */
static ebb_status open_stagings(ebb_tiers *tiers, const ebb_topology *topology) {
    if (tiers->device->ops->host_visible) { return EBB_OK; }
    for (uint32_t t = 1; t < topology->n_tiers; t++) {
        const uint32_t engine[2] = {
            [EBB_COPY_OUT] = topology->way[EBB_DEVICE][t], [EBB_COPY_IN] = topology->way[t][EBB_DEVICE]};
        for (int d = 0; d < 2 && is_called(tiers, t); d++) {
            if (engine[d] == EBB_COMPUTE) { continue; }
            EBB_TRY(open_staging(tiers, &tiers->store[t].staging[d]));
            EBB_TRY(open_call_stream(tiers, engine[d]));
        }
    }
    return EBB_OK;
}

/* Engines work side by side, so each that may move bytes of a file has a lane of its own, and memory if it may move
 * some between two stores that are called. */
static ebb_status open_engines(ebb_tiers *tiers, const ebb_topology *topology, ebb_io io) {
    for (uint32_t from = 0; from < topology->n_tiers; from++) {
        for (uint32_t to = 0; to < topology->n_tiers; to++) {
            const uint32_t engine = topology->way[from][to];
            const bool reads = is_called(tiers, from), writes = is_called(tiers, to);
            const bool has_file = is_file(tiers, from) || is_file(tiers, to);
            if (engine == EBB_COMPUTE) { continue; }
            if (has_file && tiers->lane[engine] == NULL && !tiers->only_notes) {
                EBB_TRY(ebb__lane_open(tiers->device, io, &tiers->lane[engine]));
            }
            if (reads && writes && tiers->bounce[engine] == NULL) {
                EBB_TRY(alloc_host(tiers, BOUNCE_BYTES, &tiers->bounce[engine]));
            }
        }
    }
    return EBB_OK;
}

static uint64_t piece_bytes(uint64_t largest_bytes) {
    const uint64_t bytes = largest_bytes / MAX_PIECES + (largest_bytes % MAX_PIECES != 0);
    return ebb_min_u64(largest_bytes, ebb_align_up(ebb_max_u64(bytes, PIECE_BYTES), PIECE_BYTES));
}

ebb_status ebb__tiers_open(ebb_device *device, const ebb_tiers_options *options, ebb_tiers *tiers) {
    const ebb_topology *topology = options->topology;
    ebb_io io = EBB_IO_AUTO;
    *tiers = (ebb_tiers){.device = device,
                         .n_tiers = topology->n_tiers,
                         .staging_bytes = piece_bytes(options->largest_bytes),
                         .only_notes = ebb__only_writes_down(device)};
    for (uint32_t t = 0; t < topology->n_tiers; t++) {
        const bool takes = device->ops->has_data && t != EBB_DEVICE;
        tiers->store[t] = (ebb_tier_store){
            .kind = topology->tier[t].store, .size_bytes = takes ? options->bytes[t] : 0, .file = EBB_TIER_FILE_INIT};
        memcpy(tiers->name[t], topology->tier[t].name, EBB_NAME_BYTES);
    }
    EBB_TRY(open_failure(tiers));
    EBB_TRY(ebb__io_parse(options->io, &io));
    for (uint32_t t = 1; t < topology->n_tiers; t++) { EBB_TRY(open_store(tiers, t, options, io)); }
    EBB_TRY(open_stagings(tiers, topology));
    return open_engines(tiers, topology, io);
}

static void close_staging(const ebb_tiers *tiers, ebb_staging *staging) {
    const ebb_backend_ops *ops = tiers->device->ops;
    for (int i = 0; i < 2; i++) {
        if (staging->full[i] != NULL) { ops->event_destroy(tiers->device, staging->full[i]); }
        if (staging->free[i] != NULL) { ops->event_destroy(tiers->device, staging->free[i]); }
        if (staging->buffer[i] != NULL) { ops->host_free(tiers->device, staging->buffer[i], tiers->staging_bytes); }
    }
}

static void close_call_streams(const ebb_tiers *tiers) {
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        if (tiers->call_stream[e] != NULL) { tiers->device->ops->stream_destroy(tiers->call_stream[e]); }
        if (tiers->join[e] != NULL) { tiers->device->ops->event_destroy(tiers->device, tiers->join[e]); }
    }
}

void ebb__tiers_close(ebb_tiers *tiers) {
    if (tiers->device == NULL) { return; }
    const ebb_backend_ops *ops = tiers->device->ops;
    close_call_streams(tiers);
    for (uint32_t t = 1; t < tiers->n_tiers; t++) {
        ebb_tier_store *store = &tiers->store[t];
        if (store->memory != NULL) { ops->host_free(tiers->device, store->memory, store->size_bytes); }
        for (int d = 0; d < 2; d++) { close_staging(tiers, &store->staging[d]); }
        ebb__tier_file_close(&store->file);
        ebb__remote_release(&store->claim);
    }
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        if (tiers->bounce[e] != NULL) { ops->host_free(tiers->device, tiers->bounce[e], BOUNCE_BYTES); }
        ebb__lane_close(tiers->lane[e]);
    }
    close_failure(tiers);
}

uint64_t ebb__tiers_bytes(const ebb_tiers *tiers, ebb_store kind) {
    uint64_t bytes = 0;
    for (uint32_t t = 1; t < tiers->n_tiers; t++) {
        bytes += tiers->store[t].kind == kind ? tiers->store[t].size_bytes : 0;
    }
    return bytes;
}

const char *ebb__tiers_io(const ebb_tiers *tiers) {
    bool is_direct = false;
    if (tiers->lane[EBB_COMPUTE] == NULL) { return NULL; }
    for (uint32_t t = 1; t < tiers->n_tiers; t++) { is_direct = is_direct || tiers->store[t].file.direct_fd >= 0; }
    return !ebb__lane_has_ring(tiers->lane[EBB_COMPUTE]) ? "plain" : is_direct ? "uring direct" : "uring";
}

ebb_status ebb__tiers_check(ebb_tiers *tiers) {
    ebb_tiers_failure *failure = tiers->failure;
    pthread_mutex_lock(&failure->lock);
    const ebb_status status = failure->status;
    if (status != EBB_OK) { (void)ebb__fail_adopt(status, failure->message); }
    pthread_mutex_unlock(&failure->lock);
    return status;
}

/* A copy between memory and a store that is called: which, and for messages, of what. */
typedef struct called_copy {
    ebb_tiers *tiers;
    uint32_t tier, engine;
    const char *tensor;
    ebb_copy_direction direction; /* out: into the store */
} called_copy;

static ebb_status fail_copy(const called_copy *copy, uint64_t n, uint64_t at, const char *why) {
    const bool is_of_file = copy->tiers->store[copy->tier].kind == EBB_STORE_FILE;
    const ebb_status status =
        ebb_fail(EBB_E_IO, "%s tier: cannot %s tensor '%s', %llu bytes at %llu of the tier's %s: %s",
                 copy->tiers->name[copy->tier], copy->direction == EBB_COPY_OUT ? "write" : "read", copy->tensor,
                 (unsigned long long)n, (unsigned long long)at, is_of_file ? "file" : "memory", why);
    ebb_tiers_failure *failure = copy->tiers->failure;
    pthread_mutex_lock(&failure->lock);
    if (failure->status == EBB_OK) {
        failure->status = status;
        (void)snprintf(failure->message, sizeof failure->message, "%s", ebb_last_error());
    }
    pthread_mutex_unlock(&failure->lock);
    return status;
}

/* Move n bytes between memory and a store that is called; a failure is noted for ebb__tiers_check, and returned. */
static ebb_status move_bytes(const called_copy *copy, unsigned char *ptr, uint64_t n, uint64_t at) {
    const ebb_tier_store *store = &copy->tiers->store[copy->tier];
    EBB_ASSERT(at <= store->size_bytes && n <= store->size_bytes - at);
    EBB_ASSERT(copy->tensor != NULL);
    if (store->kind == EBB_STORE_REMOTE) {
        char why[EBB_REMOTE_WHY_BYTES];
        const bool is_done = ebb__remote_move(&store->claim, copy->direction == EBB_COPY_OUT, ptr, n, at, why);
        return is_done ? EBB_OK : fail_copy(copy, n, at, why);
    }
    ebb_lane *lane = copy->tiers->lane[copy->engine];
    EBB_ASSERT(lane != NULL);
    const int error = ebb__lane_move(lane, &store->file, copy->direction, ptr, n, at);
    if (error == 0) { return EBB_OK; }
    return fail_copy(copy, n, at, error == EBB_FILE_ENDS ? "the file ends there" : strerror(error));
}

static called_copy copy_of(const ebb_transfer *t, ebb_copy_direction direction) {
    return (called_copy){.tiers = t->tiers,
                         .tier = direction == EBB_COPY_OUT ? t->to : t->from,
                         .engine = t->engine,
                         .tensor = t->tensor,
                         .direction = direction};
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

static ebb_copy_direction direction_of(const ebb_transfer *t) {
    return is_out(t) ? EBB_COPY_OUT : EBB_COPY_IN;
}

/* Between the device and a store that is called. */
static ebb_status move_called(void *ctx) {
    const ebb_transfer *t = ctx;
    const called_copy copy = copy_of(t, direction_of(t));
    return move_bytes(&copy, t->tiers->device->ops->host_address(t->buf), t->size_bytes, lower_offset(t));
}

/* Between a buffer and such a store: the next piece, in the order in which pieces were queued. */
static ebb_status move_piece(void *ctx) {
    ebb_transfer *t = ctx;
    const called_copy copy = copy_of(t, direction_of(t));
    ebb_staging *staging = &lower_store(t)->staging[direction_of(t)];
    unsigned char *buffer = staging->buffer[staging->n_called++ % 2];
    const uint64_t at = t->called_bytes, n = ebb_min_u64(t->tiers->staging_bytes, t->size_bytes - at);
    t->called_bytes = at + n < t->size_bytes ? at + n : 0;
    return move_bytes(&copy, buffer, n, lower_offset(t) + at);
}

static ebb_status move_between_called(const ebb_transfer *t) {
    unsigned char *bounce = t->tiers->bounce[t->engine];
    const called_copy in = copy_of(t, EBB_COPY_IN), out = copy_of(t, EBB_COPY_OUT);
    for (uint64_t at = 0; at < t->size_bytes; at += BOUNCE_BYTES) {
        const uint64_t n = ebb_min_u64(BOUNCE_BYTES, t->size_bytes - at);
        EBB_TRY(move_bytes(&in, bounce, n, t->from_offset + at));
        EBB_TRY(move_bytes(&out, bounce, n, t->to_offset + at));
    }
    return EBB_OK;
}

/* Between two lower tiers. */
static ebb_status move_on(void *ctx) {
    const ebb_transfer *t = ctx;
    const ebb_tier_store *from = &t->tiers->store[t->from], *to = &t->tiers->store[t->to];
    if (ebb__moves_by_calls(from->kind) && ebb__moves_by_calls(to->kind)) { return move_between_called(t); }
    if (ebb__moves_by_calls(from->kind)) {
        const called_copy in = copy_of(t, EBB_COPY_IN);
        return move_bytes(&in, to->memory + t->to_offset, t->size_bytes, t->from_offset);
    }
    if (ebb__moves_by_calls(to->kind)) {
        const called_copy out = copy_of(t, EBB_COPY_OUT);
        return move_bytes(&out, from->memory + t->from_offset, t->size_bytes, t->to_offset);
    }
    ebb__copy_uncached(to->memory + t->to_offset, from->memory + t->from_offset, (size_t)t->size_bytes);
    return EBB_OK;
}

/* What host code touches of a lower tier. */
static ebb_touch touch_of(const ebb_tier_store *store, uint64_t offset, uint64_t size_bytes, ebb_access_mode mode) {
    if (ebb__moves_by_calls(store->kind)) {
        return (ebb_touch){
            .base = &store->file, .offset = offset, .size_bytes = size_bytes, .mode = mode, .file = true};
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

static bool is_staged(const ebb_transfer *t) {
    return !is_move(t) && lower_store(t)->staging[direction_of(t)].buffer[0] != NULL;
}

uint64_t ebb__tiers_count_commands(const ebb_transfer *t) {
    return is_staged(t) ? 2 * ((t->size_bytes - 1) / t->tiers->staging_bytes + 1) : 1;
}

ebb_stream *ebb__tiers_first_stream(ebb_stream *stream, const ebb_transfer *t) {
    return is_staged(t) && !is_out(t) ? t->tiers->call_stream[t->engine] : stream;
}

ebb_stream *ebb__tiers_last_stream(ebb_stream *stream, const ebb_transfer *t) {
    return is_staged(t) && is_out(t) ? t->tiers->call_stream[t->engine] : stream;
}

/* A piece between the device and a buffer, in the engine's stream. */
static ebb_status copy_piece(ebb_stream *stream, const ebb_transfer *t, uint64_t at, uint64_t n, void *buffer) {
    const ebb_buf part = {.arena = t->buf.arena, .offset = t->buf.offset + at, .size_bytes = n};
    return t->tiers->device->ops->copy(stream, direction_of(t), part, buffer);
}

/* The same piece between the buffer and the store, in the call stream. */
static ebb_status call_piece(ebb_stream *stream, ebb_transfer *t, uint64_t at, uint64_t n, const void *buffer) {
    EBB_TRY(touch_slot(t->tiers, stream, direction_of(t), lower_store(t), lower_offset(t) + at, n, buffer));
    return t->tiers->device->ops->call(stream, move_piece, t);
}

static ebb_status transfer_staged(ebb_stream *stream, ebb_transfer *t) {
    const ebb_backend_ops *ops = t->tiers->device->ops;
    ebb_staging *staging = &lower_store(t)->staging[direction_of(t)];
    ebb_stream *fills = ebb__tiers_first_stream(stream, t), *empties = ebb__tiers_last_stream(stream, t);
    EBB_ASSERT(fills != empties && (stream == fills || stream == empties));
    for (uint64_t at = 0; at < t->size_bytes; at += t->tiers->staging_bytes) {
        const uint64_t n = ebb_min_u64(t->tiers->staging_bytes, t->size_bytes - at), turn = staging->n_issued++ % 2;
        void *buffer = staging->buffer[turn];
        EBB_TRY(ops->event_wait(fills, staging->free[turn]));
        EBB_TRY(is_out(t) ? copy_piece(fills, t, at, n, buffer) : call_piece(fills, t, at, n, buffer));
        EBB_TRY(ops->event_record(fills, staging->full[turn]));
        EBB_TRY(ops->event_wait(empties, staging->full[turn]));
        EBB_TRY(is_out(t) ? call_piece(empties, t, at, n, buffer) : copy_piece(empties, t, at, n, buffer));
        EBB_TRY(ops->event_record(empties, staging->free[turn]));
    }
    return EBB_OK;
}

static ebb_status transfer_on(ebb_stream *stream, ebb_transfer *t) {
    const ebb_tier_store *from = &t->tiers->store[t->from], *to = &t->tiers->store[t->to];
    EBB_ASSERT(is_inside(from, t->from_offset, t->size_bytes) && is_inside(to, t->to_offset, t->size_bytes));
    const ebb_touch touches[2] = {touch_of(from, t->from_offset, t->size_bytes, EBB_READ),
                                  touch_of(to, t->to_offset, t->size_bytes, EBB_WRITE)};
    EBB_TRY(ebb__touch(t->tiers->device, stream, touches, 2));
    return t->tiers->device->ops->call(stream, move_on, t);
}

static ebb_status transfer_whole(ebb_stream *stream, ebb_transfer *t) {
    const ebb_backend_ops *ops = t->tiers->device->ops;
    if (is_move(t)) { return transfer_on(stream, t); }
    const ebb_tier_store *store = lower_store(t);
    if (ebb__moves_by_calls(store->kind)) { return ops->call(stream, move_called, t); }
    return ops->copy(stream, direction_of(t), t->buf, store->memory + lower_offset(t));
}

/* From now on, commands in stream wait for all that is in the other one so far. */
static ebb_status follow(const ebb_tiers *tiers, ebb_stream *stream, ebb_stream *other, ebb_event *event) {
    EBB_TRY(tiers->device->ops->event_record(other, event));
    return tiers->device->ops->event_wait(stream, event);
}

ebb_status ebb__tiers_transfer(ebb_stream *stream, ebb_transfer *t) {
    const ebb_tiers *tiers = t->tiers;
    const ebb_backend_ops *ops = tiers->device->ops;
    EBB_ASSERT(t->from < tiers->n_tiers && t->to < tiers->n_tiers && t->from != t->to && t->size_bytes > 0);
    if (!ops->has_data) { return is_move(t) ? EBB_OK : ops->copy(stream, direction_of(t), t->buf, NULL); }
    EBB_ASSERT(is_move(t) || t->buf.size_bytes == t->size_bytes);
    EBB_ASSERT(is_move(t) || is_inside(lower_store(t), lower_offset(t), t->size_bytes));
    if (is_staged(t)) { return transfer_staged(stream, t); }
    ebb_stream *call_stream = tiers->call_stream[t->engine];
    if (call_stream == NULL) { return transfer_whole(stream, t); }
    EBB_TRY(follow(tiers, stream, call_stream, tiers->join[t->engine]));
    EBB_TRY(transfer_whole(stream, t));
    return follow(tiers, call_stream, stream, tiers->join[t->engine]);
}

ebb_status ebb__tiers_drain(ebb_tiers *tiers) {
    ebb_status first = EBB_OK;
    for (uint32_t e = 0; e < EBB_MAX_ENGINES; e++) {
        if (tiers->call_stream[e] == NULL) { continue; }
        const ebb_status st = tiers->device->ops->stream_sync(tiers->call_stream[e]);
        if (first == EBB_OK) { first = st; }
    }
    return first;
}

ebb_status ebb__tiers_move(ebb_tiers *tiers, ebb_copy_direction direction, const char *tensor, const ebb_home *home,
                           void *host) {
    const ebb_tier_store *store = &tiers->store[home->tier];
    const bool out = direction == EBB_COPY_OUT;
    const uint64_t bytes = home->size_bytes;
    EBB_ASSERT(home->tier < tiers->n_tiers && is_inside(store, home->offset, bytes));
    if (store->kind == EBB_STORE_MEMORY) {
        unsigned char *there = store->memory + home->offset;
        return ebb__tiers_copy(tiers, out ? there : host, out ? host : there, bytes);
    }
    if (!tiers->only_notes) {
        const called_copy copy = {
            .tiers = tiers, .tier = home->tier, .engine = EBB_COMPUTE, .tensor = tensor, .direction = direction};
        return move_bytes(&copy, host, bytes, home->offset);
    }
    return touch_slot(tiers, NULL, direction, store, home->offset, bytes, host);
}
