/* SPDX-License-Identifier: Apache-2.0
 *
 * dry: row-major layouts, no data. Streams and events are real, so the runtime's order of commands can be
 * exercised; runs and copies are commands that do nothing; an arena is a size.
 *
 * Opaque bytes are those of a compact device: a bit an element for a ReLU's mask, a byte for a place within
 * a pool's window of up to 256, four beyond, LRN's workspace as large as dst.
 */
#include "backend/dry/dry.h"
#include "backend/host_memory.h"
#include "backend/kernel_check.h"
#include "backend/plain.h"

#define DRY_ALIGNMENT_BYTES 64u

struct ebb_arena_mem {
    uint64_t size_bytes;
};

static uint64_t opaque_bytes(const ebb_kernel_desc *desc, uint32_t out_idx) {
    const uint64_t n = (uint64_t)ebb__shape_elements(&ebb__kernel_out(desc, out_idx)->shape);
    switch (desc->kind) {
    case EBB_OP_BATCH_NORM: return ebb_align_up((n + 7) / 8, DRY_ALIGNMENT_BYTES);
    case EBB_OP_MAX_POOL: return (int64_t)desc->attr.kernel[0] * desc->attr.kernel[1] <= 256 ? n : 4 * n;
    default: return 4 * n;
    }
}

static ebb_status run_nothing(ebb_kernel *kernel, ebb_bound *bound) {
    (void)kernel, (void)bound;
    return EBB_OK;
}

static ebb_status open_device(const ebb_device_options *options, ebb_device **device_out) {
    const ebb_plain_device kind = {.host = {.base = {.ops = &ebb__backend_dry}, .run = run_nothing},
                                   .opaque_bytes = opaque_bytes};
    return ebb__plain_open(options, &kind, device_out);
}

/* No memory ever runs out on it. */
static ebb_status get_info(ebb_device *device, ebb_device_info *info_out) {
    (void)device;
    *info_out = (ebb_device_info){.name = "no device", .capacity_bytes = UINT64_MAX, .n_threads = 1};
    return EBB_OK;
}

static ebb_status create_arena(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out) {
    ebb_arena_mem *arena = ebb__alloc(device->mem, 1, sizeof *arena);
    if (arena == NULL) { return EBB_E_NO_MEMORY; }
    arena->size_bytes = size_bytes;
    *arena_out = arena;
    return EBB_OK;
}

static void destroy_arena(ebb_device *device, ebb_arena_mem *arena) {
    ebb__free(device->mem, arena);
}

/* Nothing is kept of a binding, but a binding is made, as the table wants one. */
struct ebb_bound {
    uint64_t rng_stream;
};

static ebb_status bind_kernel(ebb_kernel *kernel, const ebb_binding *binding, ebb_bound **bound_out) {
    ebb_bound *bound = ebb__alloc(kernel->device->mem, 1, sizeof *bound);
    if (bound == NULL) { return EBB_E_NO_MEMORY; }
    bound->rng_stream = binding->rng_stream;
    *bound_out = bound;
    return EBB_OK;
}

static ebb_status copy_nothing(ebb_stream *stream, ebb_copy_direction direction, ebb_buf device_side, void *host_side) {
    (void)direction, (void)device_side, (void)host_side;
    return ebb__host_run(stream, NULL, NULL);
}

const ebb_backend_ops ebb__backend_dry = {
    .abi = EBB_BACKEND_ABI,
    .name = "dry",
    .about = "no data: exact bytes, times from a machine description",
    .alignment_bytes = DRY_ALIGNMENT_BYTES,
    .open = open_device,
    .close = ebb__plain_close,
    .info = get_info,
    .arena_create = create_arena,
    .arena_destroy = destroy_arena,
    .host_alloc = ebb__host_alloc,
    .host_free = ebb__host_free,
    .layout_plain = ebb__plain_layout_plain,
    .layout_bytes = ebb__plain_layout_bytes,
    .layout_name = ebb__plain_layout_name,
    .layout_pack = ebb__plain_layout_copy,
    .layout_unpack = ebb__plain_layout_copy,
    .kernel_create = ebb__plain_kernel_create,
    .kernel_destroy = ebb__plain_kernel_destroy,
    .bind = bind_kernel,
    .unbind = ebb__plain_unbind,
    .stream_create = ebb__host_stream_create,
    .stream_destroy = ebb__host_stream_destroy,
    .event_create = ebb__host_event_create,
    .event_destroy = ebb__host_event_destroy,
    .run = ebb__host_run,
    .copy = copy_nothing,
    .call = ebb__host_call,
    .event_record = ebb__host_event_record,
    .event_wait = ebb__host_event_wait,
    .event_sync = ebb__host_event_sync,
    .event_time_ns = ebb__host_event_time_ns,
    .stream_sync = ebb__host_stream_sync,
    .stream_waited_ns = ebb__host_stream_waited_ns,
};
