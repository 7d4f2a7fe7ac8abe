/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's ranges: what is mapped, of which a program may unmap any part, and where CUDA's handles are mapped.
 */
#include "preload/preload_recorder_priv.h"

#include <errno.h>
#include <unistd.h>

/* ---- mapped blocks ------------------------------------------------------------------------------- */

/* A mapped block is no more, or what is left of one comes. *ctx: the bytes that went. */
static ebb_status follow_mapped(void *ctx, const ebb_range *range, bool comes) {
    uint64_t *n_bytes = ctx;
    const uint64_t key = range->address | PRELOAD_MAPPED;
    EBB_ASSERT(range->size_bytes > 0 && (range->address & PRELOAD_MAPPED) == 0);
    if (comes) {
        ebb__recorder_begin_block(
            (preload_block){.key = key, .size_bytes = range->size_bytes, .space = PRELOAD_MMAP, .stack = range->stack});
        *n_bytes -= range->size_bytes;
        return EBB_OK;
    }
    preload_block *block = ebb__preload_blocks_find(&ebb__recorder.blocks, key);
    EBB_ASSERT(ebb__recorder.is_over || (block != NULL && block->size_bytes == range->size_bytes));
    if (block != NULL) { ebb__recorder_end_block(block); }
    *n_bytes += range->size_bytes;
    return EBB_OK;
}

void ebb__recorder_begin_mapped(uint64_t address, uint64_t size_bytes, uint32_t stack) {
    const ebb_range range = {address, size_bytes, stack};
    uint64_t n_bytes = 0;
    if (ebb__ranges_add(&ebb__recorder.mapped, &range, follow_mapped, &n_bytes) != EBB_OK) { ebb__recorder_give_up(); }
}

uint64_t ebb__preload_unmap(uint64_t address, uint64_t size_bytes) {
    if (ebb__recorder.mapped.ranges.n == 0) { return 0; } /* a glance; this thread sees its own mappings */
    const int saved_errno = errno;
    const uint64_t page_bytes = (uint64_t)getpagesize();
    if (address % page_bytes != 0 || size_bytes > INT64_MAX || !ebb__recorder_enter()) {
        return 0;
    } /* the kernel refuses those */
    const ebb_range range = {address, ebb_align_up(size_bytes, page_bytes), 0};
    uint64_t n_bytes = 0;
    if (!ebb__recorder.is_over &&
        ebb__ranges_remove(&ebb__recorder.mapped, &range, follow_mapped, &n_bytes) != EBB_OK) {
        ebb__recorder_give_up();
    }
    if (n_bytes > 0) { ebb__recorder_flush(); }
    ebb__recorder_leave();
    errno = saved_errno;
    return n_bytes;
}

void ebb__preload_map_back(uint64_t address, uint64_t size_bytes) {
    const int saved_errno = errno;
    if (size_bytes == 0 || !ebb__recorder_enter()) { return; }
    if (!ebb__recorder.is_over) { ebb__recorder_begin_mapped(address, size_bytes, 0); }
    ebb__recorder_flush();
    ebb__recorder_leave();
    errno = saved_errno;
}

/* ---- handles ------------------------------------------------------------------------------------- */

/* A physical handle's block; NULL: it is a small one, or imported. */
static preload_block *find_handle(uint64_t handle) {
    preload_block *block = ebb__preload_blocks_find(&ebb__recorder.blocks, handle | PRELOAD_HANDLE);
    EBB_ASSERT(block == NULL || block->n_uses > 0);
    return ebb__recorder.is_over ? NULL : block;
}

/* One use of it more: the program's own, or a mapping. */
static void use_handle(uint64_t handle) {
    preload_block *block = find_handle(handle);
    if (block != NULL) { block->n_uses++; }
}

/* One use of it less; without any it is no more. */
static void release_handle(uint64_t handle) {
    preload_block *block = find_handle(handle);
    if (block == NULL || --block->n_uses > 0) { return; }
    ebb__recorder_end_block(block);
    ebb__recorder_flush();
}

/* *ctx: the handle of what comes. CUDA unmaps no part of a mapping; were one left, it would be nobody's. */
static ebb_status follow_view(void *ctx, const ebb_range *range, bool comes) {
    const uint64_t *handle = ctx;
    const preload_block view = {.key = range->address, .block = *handle};
    preload_block *old = ebb__preload_blocks_find(&ebb__recorder.handle_of, range->address);
    EBB_ASSERT((old == NULL) == comes);
    if (!comes) {
        release_handle(old->block);
        ebb__preload_blocks_remove(&ebb__recorder.handle_of, old);
        return EBB_OK;
    }
    use_handle(*handle);
    return ebb__preload_blocks_add(&ebb__recorder.handle_of, &view) ? EBB_OK : EBB_E_NO_MEMORY;
}

void ebb__preload_handle_mapped(uint64_t address, uint64_t size_bytes, uint64_t handle) {
    const ebb_range range = {address, size_bytes, 0};
    if (!ebb__recorder_enter()) { return; }
    if (!ebb__recorder.is_over && ebb__ranges_add(&ebb__recorder.views, &range, follow_view, &handle) != EBB_OK) {
        ebb__recorder_give_up();
    }
    ebb__recorder_leave();
}

void ebb__preload_handle_unmapped(uint64_t address, uint64_t size_bytes) {
    const ebb_range range = {address, size_bytes, 0};
    uint64_t nobodys = 0;
    if (!ebb__recorder_enter()) { return; }
    if (!ebb__recorder.is_over && ebb__ranges_remove(&ebb__recorder.views, &range, follow_view, &nobodys) != EBB_OK) {
        ebb__recorder_give_up();
    }
    ebb__recorder_leave();
}

void ebb__preload_handle_retained(uint64_t handle) {
    if (!ebb__recorder_enter()) { return; }
    use_handle(handle);
    ebb__recorder_leave();
}

void ebb__preload_handle_released(uint64_t handle) {
    if (!ebb__recorder_enter()) { return; }
    release_handle(handle);
    ebb__recorder_leave();
}
