/* SPDX-License-Identifier: Apache-2.0
 *
 * Between iterations: reading and writing what persists, wherever the plan keeps it at that moment, in the arena, in
 * the slab, in the file, or in two of them at once (a resident tensor with a clean copy); and parking, which
 * leaves the arena to another run.
 */
#include "run/run.h"

#define ZERO_BYTES ((uint64_t)1 << 16) /* copied at once */

typedef struct value_place {
    const ebb_value_info *info;
    ebb_layout layout;
    uint64_t bytes; /* as it lies on the device */
    const ebb_home *homes;
    size_t n_homes;
    uint32_t tensor;
} value_place;

static ebb_status find_place(const ebb_run *run, ebb_value value, value_place *place_out) {
    const ebb_graph *graph = run->lowered->graph;
    if (value >= graph->values.n) { return ebb_fail(EBB_E_ARGUMENT, "value %u: no such value", value); }
    const ebb_value_info *info = &graph->values.data[value];
    const ebb_lowered_value *at = &run->lowered->values[value];
    if (at->tensor == UINT32_MAX) {
        return ebb_fail(EBB_E_ARGUMENT, "value '%s': no step of the program touches it", info->name);
    }
    if (!ebb__value_is_persistent(info->kind) && !info->kept) {
        return ebb_fail(EBB_E_ARGUMENT,
                        "value '%s': it is not there between iterations, as it neither persists nor is kept",
                        info->name);
    }
    size_t n_homes = 0;
    const ebb_home *homes = ebb_executor_homes(run->executor, at->tensor, &n_homes);
    EBB_ASSERT(n_homes > 0);
    EBB_ASSERT(at->layout != EBB_LAYOUT_ANY && !info->opaque);
    *place_out = (value_place){.info = info,
                               .layout = at->layout,
                               .homes = homes,
                               .n_homes = n_homes,
                               .tensor = at->tensor,
                               .bytes = run->lowered->program->tensors.data[at->tensor].size_bytes};
    return EBB_OK;
}

/* Copy between a stay and host memory, at once. */
static ebb_status copy_arena(ebb_run *run, ebb_copy_direction direction, uint64_t offset, uint64_t bytes, void *host) {
    EBB_ASSERT(offset <= run->arena->size_bytes && bytes <= run->arena->size_bytes - offset);
    ebb_buf buf = {.arena = run->arena->memory, .offset = offset, .size_bytes = bytes};
    EBB_TRY(run->device->ops->copy(run->border, direction, buf, host));
    return run->device->ops->stream_sync(run->border);
}

static const char *name_of(const ebb_run *run, const value_place *at) {
    return run->lowered->program->tensors.data[at->tensor].name;
}

static ebb_status write_packed(ebb_run *run, const value_place *at, void *packed) {
    EBB_ASSERT(run->parked == NULL);
    for (size_t h = 0; h < at->n_homes; h++) {
        const ebb_home *home = &at->homes[h];
        unsigned char *part = (unsigned char *)packed + home->begin;
        if (home->tier == EBB_DEVICE) {
            EBB_TRY(copy_arena(run, EBB_COPY_IN, home->offset, home->size_bytes, part));
        } else {
            EBB_TRY(ebb__tiers_move(&run->tiers, EBB_COPY_OUT, name_of(run, at), home, part));
        }
    }
    return EBB_OK;
}

/* Bytes in the arena, or parked, come first; tiers may hold the same bytes, or others. */
static ebb_status read_packed(ebb_run *run, const value_place *at, void *packed) {
    uint64_t n_read = 0, parked = run->parked != NULL ? run->parked_at[at->tensor] : 0;
    for (size_t h = 0; h < at->n_homes; h++) {
        const ebb_home *home = &at->homes[h];
        unsigned char *part = (unsigned char *)packed + home->begin;
        if (home->tier != EBB_DEVICE && n_read == at->bytes) { break; }
        if (home->tier != EBB_DEVICE) {
            EBB_TRY(ebb__tiers_move(&run->tiers, EBB_COPY_IN, name_of(run, at), home, part));
            continue;
        }
        if (run->parked == NULL) {
            EBB_TRY(copy_arena(run, EBB_COPY_OUT, home->offset, home->size_bytes, part));
        } else {
            EBB_TRY(ebb__tiers_copy(&run->tiers, part, run->parked + parked, home->size_bytes));
            parked += home->size_bytes;
        }
        n_read += home->size_bytes;
    }
    return EBB_OK;
}

/* Room for the value as it lies on the device. Where nothing is carried out an address is enough. */
static void *take_packed(const ebb_run *run, const value_place *at) {
    EBB_ASSERT(!run->tiers.only_notes || at->bytes <= run->note_bytes);
    return run->tiers.only_notes ? run->note_at : ebb__alloc(run->mem, 1, at->bytes);
}

static void give_packed(const ebb_run *run, void *packed) {
    if (!run->tiers.only_notes) { ebb__free(run->mem, packed); }
}

/* FEED copies plain bytes, so a port holds its input as that lies on the device. */
ebb_status ebb__run_set_inputs(ebb_run *run) {
    const ebb_graph *graph = run->lowered->graph;
    EBB_ASSERT(run->lowered->feeds_early);
    if (!run->device->ops->has_data) { return EBB_OK; }
    EBB_TRY(ebb__run_drain(run));
    for (size_t o = 0; o < graph->ops.n && graph->ops.data[o].kind == EBB_OP_FEED; o++) {
        const ebb_op *op = &graph->ops.data[o];
        const uint32_t tensor = run->lowered->values[op->out[0]].tensor;
        value_place at = {.tensor = tensor, .bytes = graph->ports.data[op->attr.port].size_bytes};
        at.homes = ebb_executor_homes(run->executor, tensor, &at.n_homes);
        EBB_ASSERT(at.bytes == run->lowered->program->tensors.data[tensor].size_bytes);
        const ebb_touch filled = {.base = run->port[op->attr.port], .size_bytes = at.bytes, .mode = EBB_WRITE};
        EBB_TRY(ebb__touch(run->device, NULL, &filled, 1));
        EBB_TRY(write_packed(run, &at, run->port[op->attr.port]));
    }
    return EBB_OK;
}

ebb_status ebb_run_set_value(ebb_run *run, ebb_value value, const float *plain) {
    EBB_NEED(run);
    EBB_NEED(plain);
    value_place at;
    if (run->parked != NULL) { return ebb_fail(EBB_E_ARGUMENT, "the run has left its arena to another (unpark it)"); }
    EBB_TRY(find_place(run, value, &at));
    if (!run->device->ops->has_data) { return EBB_OK; }
    EBB_TRY(ebb__run_drain(run));
    void *packed = take_packed(run, &at);
    if (packed == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = run->device->ops->layout_pack(run->device, at.layout, plain, packed);
    if (st == EBB_OK) { st = write_packed(run, &at, packed); }
    give_packed(run, packed);
    return st;
}

ebb_status ebb_run_get_value(ebb_run *run, ebb_value value, float *plain_out) {
    EBB_NEED(run);
    EBB_NEED(plain_out);
    value_place at;
    EBB_TRY(find_place(run, value, &at));
    if (!run->device->ops->has_data) {
        memset(plain_out, 0, (size_t)ebb__shape_elements(&at.info->shape) * sizeof *plain_out);
        return EBB_OK;
    }
    EBB_TRY(ebb__run_drain(run));
    void *packed = take_packed(run, &at);
    if (packed == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = read_packed(run, &at, packed);
    if (st == EBB_OK) { st = run->device->ops->layout_unpack(run->device, at.layout, packed, plain_out); }
    give_packed(run, packed);
    return st;
}

ebb_status ebb_run_init_values(ebb_run *run, uint64_t seed) {
    EBB_NEED(run);
    const ebb_graph *graph = run->lowered->graph;
    for (ebb_value v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        bool touched = run->lowered->values[v].tensor != UINT32_MAX;
        if (!ebb__value_is_persistent(info->kind) || !touched || !run->device->ops->has_data) { continue; }
        float *plain = ebb__alloc(run->mem, (size_t)ebb__shape_elements(&info->shape), sizeof *plain);
        if (plain == NULL) { return EBB_E_NO_MEMORY; }
        ebb__graph_init_value(graph, v, seed, plain);
        ebb_status st = ebb_run_set_value(run, v, plain);
        ebb__free(run->mem, plain);
        EBB_TRY(st);
    }
    return EBB_OK;
}

static ebb_status clear_tensor(ebb_run *run, uint32_t tensor, void *zeros) {
    size_t n_homes = 0;
    const ebb_home *homes = ebb_executor_homes(run->executor, tensor, &n_homes);
    for (size_t h = 0; h < n_homes; h++) {
        if (homes[h].tier != EBB_DEVICE) { continue; } /* lower tiers are new with each run */
        for (uint64_t at = 0; at < homes[h].size_bytes; at += ZERO_BYTES) {
            const uint64_t n = ebb_min_u64(ZERO_BYTES, homes[h].size_bytes - at);
            EBB_TRY(copy_arena(run, EBB_COPY_IN, homes[h].offset + at, n, zeros));
        }
    }
    return EBB_OK;
}

ebb_status ebb__run_clear(ebb_run *run) {
    if (!run->device->ops->has_data) { return EBB_OK; }
    void *zeros = ebb__calloc(run->mem, 1, ZERO_BYTES);
    if (zeros == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = EBB_OK;
    for (uint32_t t = 0; t < run->lowered->program->tensors.n && st == EBB_OK; t++) {
        st = clear_tensor(run, t, zeros);
    }
    ebb__free(run->mem, zeros);
    return st;
}

/* ---- parking ----------------------------------------------------------------------------------- */

/* The part of a tensor whose home is the arena. */
static uint64_t resident_bytes(const ebb_run *run, uint32_t tensor) {
    size_t n_homes = 0;
    const ebb_home *homes = ebb_executor_homes(run->executor, tensor, &n_homes);
    uint64_t bytes = 0;
    for (size_t h = 0; h < n_homes; h++) { bytes += homes[h].tier == EBB_DEVICE ? homes[h].size_bytes : 0; }
    return bytes;
}

uint64_t ebb_run_parked_bytes(const ebb_run *run) {
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < run->lowered->program->tensors.n; t++) { bytes += resident_bytes(run, t); }
    return bytes;
}

static ebb_status move_parked(ebb_run *run, ebb_copy_direction direction) {
    EBB_ASSERT(run->parked != NULL);
    uint64_t at = 0;
    for (uint32_t t = 0; t < run->lowered->program->tensors.n; t++) {
        size_t n_homes = 0;
        const ebb_home *homes = ebb_executor_homes(run->executor, t, &n_homes);
        run->parked_at[t] = at;
        for (size_t h = 0; h < n_homes; h++) {
            if (homes[h].tier != EBB_DEVICE) { continue; }
            EBB_TRY(copy_arena(run, direction, homes[h].offset, homes[h].size_bytes, run->parked + at));
            at += homes[h].size_bytes;
        }
    }
    EBB_ASSERT(at == ebb_run_parked_bytes(run));
    return EBB_OK;
}

/* As for packed values: where nothing is carried out an address is enough. */
static unsigned char *take_parked(const ebb_run *run) {
    return run->tiers.only_notes ? (unsigned char *)run->note_at + run->note_bytes
                                 : ebb__alloc(run->mem, 1, ebb_run_parked_bytes(run));
}

void ebb__run_give_parked(ebb_run *run) {
    if (!run->tiers.only_notes) { ebb__free(run->mem, run->parked); }
    run->parked = NULL;
}

ebb_status ebb_run_park(ebb_run *run) {
    EBB_NEED(run);
    if (run->parked != NULL) { return ebb_fail(EBB_E_ARGUMENT, "the run is parked already"); }
    EBB_TRY(ebb__run_drain(run));
    run->parked = take_parked(run);
    if (run->parked == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status st = run->device->ops->has_data ? move_parked(run, EBB_COPY_OUT) : EBB_OK;
    if (st != EBB_OK) {
        ebb__run_give_parked(run);
    } else {
        ebb__arena_leave(run->arena, run);
    }
    EBB_RUN_DEEP_CHECK(run);
    return st;
}

ebb_status ebb_run_unpark(ebb_run *run) {
    EBB_NEED(run);
    if (run->parked == NULL) { return ebb_fail(EBB_E_ARGUMENT, "the run is not parked"); }
    EBB_TRY(ebb__arena_take(run->arena, run));
    ebb_status st = run->device->ops->has_data ? move_parked(run, EBB_COPY_IN) : EBB_OK;
    ebb__run_give_parked(run);
    run->failed = run->failed || st != EBB_OK;
    EBB_RUN_DEEP_CHECK(run);
    return st;
}
