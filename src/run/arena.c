/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena: the one piece of device memory that a run takes, before its first step.
 */
#include "run/run.h"

ebb_status ebb_arena_create(ebb_device *device, uint64_t size_bytes, ebb_arena **arena_out) {
    EBB_NEED(device);
    EBB_NEED(arena_out);
    ebb_arena *arena = ebb__calloc(device->mem, 1, sizeof *arena);
    if (arena == NULL) { return EBB_E_NO_MEMORY; }
    arena->mem = device->mem;
    arena->device = device;
    arena->size_bytes = size_bytes;
    ebb_status st = device->ops->arena_create(device, size_bytes, &arena->memory);
    if (st != EBB_OK) {
        ebb__free(arena->mem, arena);
        return st;
    }
    EBB_ASSERT(arena->memory != NULL);
    *arena_out = arena;
    return EBB_OK;
}

void ebb_arena_destroy(ebb_arena *arena) {
    if (arena == NULL) { return; }
    EBB_ASSERT(arena->device != NULL && arena->memory != NULL);
    arena->device->ops->arena_destroy(arena->device, arena->memory);
    ebb__free(arena->mem, arena);
}

ebb_status ebb__arena_take(ebb_arena *arena, const ebb_run *run) {
    if (arena->holder != NULL) {
        return ebb_fail(EBB_E_ARGUMENT, "the arena is in use by another run (park or destroy that one)");
    }
    arena->holder = run;
    return EBB_OK;
}

void ebb__arena_leave(ebb_arena *arena, const ebb_run *run) {
    if (arena->holder == run) { arena->holder = NULL; }
}

uint64_t ebb_arena_bytes(const ebb_arena *arena) {
    return arena->size_bytes;
}
