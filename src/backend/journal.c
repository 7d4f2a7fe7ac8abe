/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal's table: memory that is address space alone, kernels that say their bytes, streams that are numbers. See
 * journal.h.
 */
#include "backend/journal.h"
#include "backend/kernel_check.h"

#include <inttypes.h>
#include <sys/mman.h>

/* A piece of host memory, or a file, and its space. */
typedef struct piece {
    const void *base;
    uint64_t size_bytes;
    uint32_t space;
    bool file;
} piece;

typedef struct journal_device {
    ebb_device base;
    ebb_backend_ops ops; /* the inner device's alignment makes it no constant */
    ebb_device *inner;
    ebb_journal journal;
    EBB_VEC(piece) pieces;
    bool captures, in_iteration;
    uint64_t captured_from;      /* entry with which the graph that is written down begins; 0: none is */
    EBB_VEC(ebb_stream *) parts; /* streams that take part in an iteration */
    uint32_t graphs, fork;       /* the thread of the graphs, and its event */
} journal_device;

struct ebb_arena_mem {
    uint32_t space;
    uint64_t size_bytes;
};

struct ebb_stream {
    ebb_device *device;
    uint32_t number;
    uint32_t join;                       /* its event for graphs, once it takes part in them */
    EBB_VEC(ebb_journal_access) pending; /* of the next call */
};

struct ebb_event {
    uint32_t number;
    uint64_t time_ns; /* of its latest record: the entry's number */
};

typedef struct journal_kernel {
    ebb_kernel base;
    ebb_kernel *inner;
    ebb_op_kind kind;
    int32_t port;
    uint32_t n_in, n_out, n_inout;
} journal_kernel;

/* operands, scratch, state, port */
#define N_BEYOND_OPERANDS 3u

struct ebb_bound {
    uint32_t n_accesses;
    ebb_journal_access access[];
};

static journal_device *self(const ebb_device *device) {
    return (journal_device *)device;
}

const ebb_journal *ebb__journal_get(const ebb_device *device) {
    return &self(device)->journal;
}

/* ---- writing down ------------------------------------------------------------------------------ */

ebb_status ebb__journal_write(const ebb_mem *mem, ebb_journal *j, ebb_journal_entry entry,
                              const ebb_journal_access *accesses, uint32_t n) {
    entry.first_access = j->accesses.n;
    entry.n_accesses = n;
    EBB_TRY(EBB_RESERVE(mem, &j->accesses, n));
    EBB_TRY(EBB_PUSH(mem, &j->entries, entry));
    for (uint32_t i = 0; i < n; i++) { j->accesses.data[j->accesses.n++] = accesses[i]; }
    return EBB_OK;
}

void ebb__journal_fini(const ebb_mem *mem, ebb_journal *journal) {
    EBB_VEC_FINI(mem, &journal->entries);
    EBB_VEC_FINI(mem, &journal->accesses);
    EBB_VEC_FINI(mem, &journal->spaces);
}

static ebb_status write_entry(ebb_device *device, ebb_journal_entry entry, const ebb_journal_access *accesses,
                              uint32_t n) {
    return ebb__journal_write(device->mem, &self(device)->journal, entry, accesses, n);
}

/* Where a piece of host memory is in the journal's terms. */
static ebb_journal_access find_host(const journal_device *d, const void *ptr, uint64_t size_bytes, uint32_t mode) {
    const uint64_t at = (uintptr_t)ptr;
    for (size_t i = 0; i < d->pieces.n; i++) {
        const piece *p = &d->pieces.data[i];
        const uint64_t base = (uintptr_t)p->base;
        if (p->file || at < base || at >= base + p->size_bytes) { continue; }
        return (ebb_journal_access){at - base, at - base + size_bytes, p->space, mode};
    }
    return (ebb_journal_access){at, at + size_bytes, EBB_JOURNAL_HOST_MEMORY, mode};
}

static ebb_journal_access find_device(ebb_buf buf, uint32_t mode) {
    EBB_ASSERT(buf.offset + buf.size_bytes <= buf.arena->size_bytes);
    return (ebb_journal_access){buf.offset, buf.offset + buf.size_bytes, buf.arena->space, mode};
}

static ebb_status add_space(journal_device *d, ebb_journal_space kind, uint32_t *space_out) {
    EBB_TRY(EBB_PUSH(d->base.mem, &d->journal.spaces, kind));
    *space_out = (uint32_t)(d->journal.spaces.n - 1);
    return EBB_OK;
}

static ebb_status add_piece(journal_device *d, piece p) {
    EBB_TRY(add_space(d, p.file ? EBB_JOURNAL_FILE_SPACE : EBB_JOURNAL_HOST_SPACE, &p.space));
    return EBB_PUSH(d->base.mem, &d->pieces, p);
}

static ebb_status find_file(journal_device *d, const void *base, uint32_t *space_out) {
    for (size_t i = 0; i < d->pieces.n; i++) {
        if (!d->pieces.data[i].file || d->pieces.data[i].base != base) { continue; }
        *space_out = d->pieces.data[i].space;
        return EBB_OK;
    }
    EBB_TRY(add_piece(d, (piece){.base = base, .file = true}));
    *space_out = d->pieces.data[d->pieces.n - 1].space;
    return EBB_OK;
}

static ebb_status find_touch(journal_device *d, const ebb_touch *touch, ebb_journal_access *access_out) {
    if (!touch->file) {
        *access_out = find_host(d, (const unsigned char *)touch->base + touch->offset, touch->size_bytes, touch->mode);
        return EBB_OK;
    }
    uint32_t space = 0;
    EBB_TRY(find_file(d, touch->base, &space));
    *access_out = (ebb_journal_access){touch->offset, touch->offset + touch->size_bytes, space, touch->mode};
    return EBB_OK;
}

static ebb_status touch(ebb_device *device, ebb_stream *stream, const ebb_touch *touches, size_t n) {
    ebb_journal_access *accesses = ebb__alloc(device->mem, ebb_max_u64(n, 1), sizeof *accesses);
    if (accesses == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = EBB_OK;
    for (size_t i = 0; i < n && st == EBB_OK; i++) { st = find_touch(self(device), &touches[i], &accesses[i]); }
    if (st == EBB_OK && stream == NULL) {
        st = write_entry(device, (ebb_journal_entry){.kind = EBB_JOURNAL_HOST}, accesses, (uint32_t)n);
    }
    for (size_t i = 0; i < n && st == EBB_OK && stream != NULL; i++) {
        st = EBB_PUSH(device->mem, &stream->pending, accesses[i]);
    }
    ebb__free(device->mem, accesses);
    return st;
}

/* ---- memory ------------------------------------------------------------------------------------ */

static ebb_status create_arena(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out) {
    ebb_arena_mem *arena = ebb__alloc(device->mem, 1, sizeof *arena);
    if (arena == NULL) { return EBB_E_NO_MEMORY; }
    arena->size_bytes = size_bytes;
    ebb_status status = add_space(self(device), EBB_JOURNAL_DEVICE_SPACE, &arena->space);
    if (status != EBB_OK) {
        ebb__free(device->mem, arena);
        return status;
    }
    *arena_out = arena;
    return EBB_OK;
}

static void destroy_arena(ebb_device *device, ebb_arena_mem *arena) {
    ebb__free(device->mem, arena);
}

/* Zero when it is read; nothing is taken for what no one touches, so a slab may be larger than memory. */
static ebb_status alloc_host(ebb_device *device, uint64_t size_bytes, void **ptr_out) {
    const size_t n_bytes = (size_t)ebb_max_u64(size_bytes, 1);
    void *ptr = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED) { return ebb_fail(EBB_E_NO_MEMORY, "no address space for %" PRIu64 " bytes", size_bytes); }
    ebb_status status = add_piece(self(device), (piece){.base = ptr, .size_bytes = n_bytes});
    if (status != EBB_OK) {
        (void)munmap(ptr, n_bytes);
        return status;
    }
    *ptr_out = ptr;
    return EBB_OK;
}

static void free_host(ebb_device *device, void *ptr, uint64_t size_bytes) {
    journal_device *d = self(device);
    if (ptr == NULL) { return; }
    for (size_t i = 0; i < d->pieces.n; i++) {
        if (d->pieces.data[i].base != ptr) { continue; }
        d->pieces.data[i] = d->pieces.data[--d->pieces.n];
        break;
    }
    (void)munmap(ptr, (size_t)ebb_max_u64(size_bytes, 1));
}

/* ---- layouts, of the inner device --------------------------------------------------------------- */

static ebb_status get_info(ebb_device *device, ebb_device_info *info_out) {
    return self(device)->inner->ops->info(self(device)->inner, info_out);
}

static ebb_status layout_plain(ebb_device *device, ebb_dtype dtype, const ebb_shape *shape, ebb_layout *layout_out) {
    return self(device)->inner->ops->layout_plain(self(device)->inner, dtype, shape, layout_out);
}

static uint64_t layout_bytes(const ebb_device *device, ebb_layout layout) {
    return self(device)->inner->ops->layout_bytes(self(device)->inner, layout);
}

static const char *layout_name(const ebb_device *device, ebb_layout layout) {
    return self(device)->inner->ops->layout_name(self(device)->inner, layout);
}

static ebb_status layout_pack(ebb_device *device, ebb_layout layout, const void *plain, void *packed) {
    (void)plain;
    const ebb_touch fill = {.base = packed, .size_bytes = layout_bytes(device, layout), .mode = EBB_WRITE};
    return touch(device, NULL, &fill, 1);
}

static ebb_status layout_unpack(ebb_device *device, ebb_layout layout, const void *packed, void *plain) {
    (void)plain;
    const ebb_touch look = {.base = packed, .size_bytes = layout_bytes(device, layout), .mode = EBB_READ};
    return touch(device, NULL, &look, 1);
}

/* ---- kernels ----------------------------------------------------------------------------------- */

static ebb_status create_kernel(ebb_device *device, const ebb_kernel_desc *desc, ebb_kernel **kernel_out) {
    ebb_device *inner = self(device)->inner;
    journal_kernel *kernel = ebb__alloc(device->mem, 1, sizeof *kernel);
    if (kernel == NULL) { return EBB_E_NO_MEMORY; }
    *kernel = (journal_kernel){.kind = desc->kind,
                               .port = desc->attr.port,
                               .n_in = desc->n_in,
                               .n_out = desc->n_out,
                               .n_inout = desc->n_inout};
    ebb_status status = inner->ops->kernel_create(inner, desc, &kernel->inner);
    if (status != EBB_OK) {
        ebb__free(device->mem, kernel);
        return status;
    }
    kernel->base = *kernel->inner;
    kernel->base.device = device;
    *kernel_out = &kernel->base;
    return EBB_OK;
}

static ebb_status ask_merges(ebb_device *device, const ebb_kernel_desc *desc, bool *merges_out) {
    ebb_device *inner = self(device)->inner;
    *merges_out = false;
    return inner->ops->merges != NULL ? inner->ops->merges(inner, desc, merges_out) : EBB_OK;
}

static void destroy_kernel(ebb_kernel *base) {
    if (base == NULL) { return; }
    journal_kernel *kernel = (journal_kernel *)base;
    kernel->inner->device->ops->kernel_destroy(kernel->inner);
    ebb__free(base->device->mem, kernel);
}

static bool is_in_place(const journal_kernel *kernel, uint32_t i, uint32_t k, const ebb_journal_access *access) {
    return i < kernel->n_in && k == kernel->n_in && kernel->n_out > 0 && i < 32 && (kernel->base.inplace >> i & 1u) &&
           access[i].begin == access[k].begin;
}

/* The first n accesses are the arena's: operands in their order, and scratch. */
static ebb_status check_overlaps(const journal_kernel *kernel, const ebb_journal_access *access, uint32_t n) {
    for (uint32_t k = 1; k < n; k++) {
        for (uint32_t i = 0; i < k; i++) {
            const bool meet = access[i].begin < access[k].end && access[k].begin < access[i].end;
            const bool writes = ((access[i].mode | access[k].mode) & EBB_WRITE) != 0;
            if (!meet || !writes || is_in_place(kernel, i, k, access)) { continue; }
            return ebb_fail(
                EBB_E_INTERNAL,
                "%s: operand %u at [%" PRIu64 ", %" PRIu64 ") overlaps operand %u at [%" PRIu64 ", %" PRIu64 ")",
                ebb__op_name(kernel->kind), k, access[k].begin, access[k].end, i, access[i].begin, access[i].end);
        }
    }
    return EBB_OK;
}

static uint32_t operand_mode(const journal_kernel *kernel, uint32_t idx) {
    if (idx < kernel->n_in) { return EBB_READ; }
    return idx < kernel->n_in + kernel->n_out ? EBB_WRITE : EBB_UPDATE;
}

static ebb_status bind_kernel(ebb_kernel *base, const ebb_binding *binding, ebb_bound **bound_out) {
    const journal_kernel *kernel = (const journal_kernel *)base;
    const journal_device *d = self(base->device);
    const uint32_t n = kernel->n_in + kernel->n_out + kernel->n_inout;
    ebb_bound *bound =
        ebb__alloc(base->device->mem, 1, sizeof *bound + (n + N_BEYOND_OPERANDS) * sizeof *bound->access);
    if (bound == NULL) { return EBB_E_NO_MEMORY; }
    for (uint32_t i = 0; i < n; i++) { bound->access[i] = find_device(binding->operand[i], operand_mode(kernel, i)); }
    bound->n_accesses = n;
    if (binding->scratch.size_bytes > 0) {
        bound->access[bound->n_accesses++] = find_device(binding->scratch, EBB_WRITE);
    }
    ebb_status status = check_overlaps(kernel, bound->access, bound->n_accesses);
    if (status != EBB_OK) {
        ebb__free(base->device->mem, bound);
        return status;
    }
    bound->access[bound->n_accesses++] = find_host(d, binding->state, sizeof *binding->state, EBB_READ);
    if (kernel->kind == EBB_OP_FEED || kernel->kind == EBB_OP_FETCH) {
        const uint32_t mode = kernel->kind == EBB_OP_FEED ? EBB_READ : EBB_WRITE;
        bound->access[bound->n_accesses++] =
            find_host(d, binding->state->port[kernel->port], binding->operand[0].size_bytes, mode);
    }
    *bound_out = bound;
    return EBB_OK;
}

static void unbind_kernel(ebb_kernel *kernel, ebb_bound *bound) {
    ebb__free(kernel->device->mem, bound);
}

/* ---- streams and events ------------------------------------------------------------------------- */

static ebb_status create_stream(ebb_device *device, bool compute, ebb_stream **stream_out) {
    (void)compute;
    ebb_stream *stream = ebb__calloc(device->mem, 1, sizeof *stream);
    if (stream == NULL) { return EBB_E_NO_MEMORY; }
    stream->device = device;
    stream->number = self(device)->journal.n_threads++;
    *stream_out = stream;
    return EBB_OK;
}

/* In the first iteration: which streams the later ones, as graphs, are of. */
static ebb_status take_part(ebb_stream *stream) {
    journal_device *d = self(stream->device);
    if (!d->in_iteration || d->captured_from > 0) { return EBB_OK; }
    for (size_t i = 0; i < d->parts.n; i++) {
        if (d->parts.data[i] == stream) { return EBB_OK; }
    }
    stream->join = d->journal.n_events++;
    return EBB_PUSH(d->base.mem, &d->parts, stream);
}

/* What comes after it on the streams that take part lies after all that is before it on them. */
static ebb_status write_border(journal_device *d) {
    ebb_journal_entry record = {.kind = EBB_JOURNAL_RECORD}, wait = {.kind = EBB_JOURNAL_WAIT, .thread = d->graphs};
    for (size_t i = 0; i < d->parts.n; i++) {
        record.thread = d->parts.data[i]->number;
        record.event = wait.event = d->parts.data[i]->join;
        EBB_TRY(write_entry(&d->base, record, NULL, 0));
        EBB_TRY(write_entry(&d->base, wait, NULL, 0));
    }
    record.thread = d->graphs;
    record.event = wait.event = d->fork;
    EBB_TRY(write_entry(&d->base, record, NULL, 0));
    for (size_t i = 0; i < d->parts.n; i++) {
        wait.thread = d->parts.data[i]->number;
        EBB_TRY(write_entry(&d->base, wait, NULL, 0));
    }
    return EBB_OK;
}

static ebb_status sync_stream(ebb_stream *stream) {
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_STREAM_SYNC, .thread = stream->number};
    return write_entry(stream->device, entry, NULL, 0);
}

static void destroy_stream(ebb_stream *stream) {
    if (stream == NULL) { return; }
    (void)sync_stream(stream); /* without it there seems to be less order than there is */
    for (size_t i = self(stream->device)->parts.n; i-- > 0;) {
        if (self(stream->device)->parts.data[i] == stream) { self(stream->device)->parts.n = 0; }
    }
    EBB_VEC_FINI(stream->device->mem, &stream->pending);
    ebb__free(stream->device->mem, stream);
}

static ebb_status create_event(ebb_device *device, ebb_event **event_out) {
    ebb_event *event = ebb__calloc(device->mem, 1, sizeof *event);
    if (event == NULL) { return EBB_E_NO_MEMORY; }
    event->number = self(device)->journal.n_events++;
    *event_out = event;
    return EBB_OK;
}

static void destroy_event(ebb_device *device, ebb_event *event) {
    ebb__free(device->mem, event);
}

static ebb_status run_kernel(ebb_stream *stream, ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel;
    EBB_TRY(take_part(stream));
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_RUN, .thread = stream->number, .what = bound};
    return write_entry(stream->device, entry, bound->access, bound->n_accesses);
}

static ebb_status copy_bytes(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side) {
    const bool out = direction == EBB_COPY_OUT;
    EBB_TRY(take_part(stream));
    const ebb_journal_access accesses[2] = {
        find_device(device_side, out ? EBB_READ : EBB_WRITE),
        find_host(self(stream->device), host_side, device_side.size_bytes, out ? EBB_WRITE : EBB_READ),
    };
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_COPY, .thread = stream->number};
    return write_entry(stream->device, entry, accesses, 2);
}

static ebb_status call_host(ebb_stream *stream, ebb_call_fn fn, void *ctx) {
    (void)fn;
    if (self(stream->device)->captures) { return ebb_fail(EBB_E_UNSUPPORTED, "journal: a graph that calls the host"); }
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_CALL, .thread = stream->number, .what = ctx};
    EBB_TRY(write_entry(stream->device, entry, stream->pending.data, (uint32_t)stream->pending.n));
    stream->pending.n = 0;
    return EBB_OK;
}

static ebb_status record_event(ebb_stream *stream, ebb_event *event) {
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_RECORD, .thread = stream->number, .event = event->number};
    event->time_ns = self(stream->device)->journal.entries.n;
    return write_entry(stream->device, entry, NULL, 0);
}

static ebb_status wait_event(ebb_stream *stream, ebb_event *event) {
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_WAIT, .thread = stream->number, .event = event->number};
    EBB_TRY(take_part(stream));
    if (event->time_ns < self(stream->device)->captured_from) { return EBB_OK; }
    return write_entry(stream->device, entry, NULL, 0);
}

static ebb_status sync_event(ebb_device *device, ebb_event *event) {
    const ebb_journal_entry entry = {.kind = EBB_JOURNAL_EVENT_SYNC, .event = event->number};
    return write_entry(device, entry, NULL, 0);
}

static uint64_t get_event_time(ebb_device *device, ebb_event *event) {
    (void)device;
    return event->time_ns;
}

/* ---- iterations as graphs ------------------------------------------------------------------------ */

static ebb_status begin_iteration(ebb_device *device, uint64_t run_id, bool *issue_out) {
    journal_device *d = self(device);
    (void)run_id;
    *issue_out = true;
    d->in_iteration = d->captures;
    if (d->parts.n == 0) { return EBB_OK; }
    d->captured_from = d->journal.entries.n;
    return write_border(d);
}

static ebb_status end_iteration(ebb_device *device, uint64_t run_id, ebb_status issued, bool *again_out) {
    journal_device *d = self(device);
    (void)run_id;
    *again_out = false;
    const bool captured = d->captured_from > 0;
    d->in_iteration = false;
    d->captured_from = 0;
    return issued == EBB_OK && captured ? write_border(d) : issued;
}

void ebb__journal_restart(ebb_device *device, bool captures) {
    journal_device *d = self(device);
    ebb_journal *j = &d->journal;
    j->entries.n = j->accesses.n = 0;
    j->n_threads = 1;
    j->n_events = 0;
    d->parts.n = 0;
    d->captures = captures;
    if (!captures) { return; }
    d->graphs = j->n_threads++;
    d->fork = j->n_events++;
}

/* ---- the device --------------------------------------------------------------------------------- */

static void close_device(ebb_device *device) {
    if (device == NULL) { return; }
    journal_device *d = self(device);
    const ebb_mem *mem = device->mem;
    ebb__journal_fini(mem, &d->journal);
    EBB_VEC_FINI(mem, &d->pieces);
    EBB_VEC_FINI(mem, &d->parts);
    ebb__free(mem, d);
}

static const ebb_backend_ops table = {
    .abi = EBB_BACKEND_ABI,
    .name = "journal",
    .about = "writes commands down",
    .has_data = true,
    .close = close_device,
    .info = get_info,
    .arena_create = create_arena,
    .arena_destroy = destroy_arena,
    .host_alloc = alloc_host,
    .host_free = free_host,
    .layout_plain = layout_plain,
    .layout_bytes = layout_bytes,
    .layout_name = layout_name,
    .layout_pack = layout_pack,
    .layout_unpack = layout_unpack,
    .kernel_create = create_kernel,
    .kernel_destroy = destroy_kernel,
    .bind = bind_kernel,
    .unbind = unbind_kernel,
    .merges = ask_merges,
    .stream_create = create_stream,
    .stream_destroy = destroy_stream,
    .event_create = create_event,
    .event_destroy = destroy_event,
    .run = run_kernel,
    .copy = copy_bytes,
    .call = call_host,
    .event_record = record_event,
    .event_wait = wait_event,
    .event_sync = sync_event,
    .event_time_ns = get_event_time,
    .stream_sync = sync_stream,
    .iteration_begin = begin_iteration,
    .iteration_end = end_iteration,
    .touch = touch,
};

ebb_status ebb__journal_open(ebb_device *inner, ebb_device **device_out) {
    journal_device *d = ebb__calloc(inner->mem, 1, sizeof *d);
    if (d == NULL) { return EBB_E_NO_MEMORY; }
    d->ops = table;
    d->ops.alignment_bytes = inner->ops->alignment_bytes;
    d->base = (ebb_device){.ops = &d->ops, .mem = inner->mem, .times_key = inner->times_key};
    d->inner = inner;
    d->journal.n_threads = 1;
    uint32_t space = 0;
    ebb_status status = add_space(d, EBB_JOURNAL_HOST_SPACE, &space);
    if (status != EBB_OK) {
        close_device(&d->base);
        return status;
    }
    EBB_ASSERT(space == EBB_JOURNAL_HOST_MEMORY);
    *device_out = &d->base;
    return EBB_OK;
}
