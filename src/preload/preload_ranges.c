/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorder's ranges: what is mapped, of which a program may unmap any part, and where CUDA's handles are mapped.
 */
#include "preload/preload_recorder_priv.h"

#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

/* ---- mapped blocks ------------------------------------------------------------------------------- */

static atomic_size_t n_mapped; /* the ranges of mapped, for a glance without the lock */

/* A mapped block is no more, or what is left of one comes. *ctx: the bytes that went. */
static ebb_status follow_mapped(void *ctx, const ebb_range *range, bool comes) {
    uint64_t *n_bytes = ctx;
    const uint64_t key = range->address | PRELOAD_MAPPED;
    EBB_ASSERT(range->size_bytes > 0 && (range->address & PRELOAD_MAPPED) == 0);
    atomic_fetch_add_explicit(&n_mapped, comes ? 1 : SIZE_MAX, memory_order_relaxed);
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
    /* This thread sees its own mappings. */
    if (atomic_load_explicit(&n_mapped, memory_order_relaxed) == 0) { return 0; }
    const int saved_errno = errno;
    const uint64_t page_bytes = (uint64_t)getpagesize();
    if (address % page_bytes != 0 || size_bytes > INT64_MAX) { return 0; } /* the kernel refuses those */
    if (!ebb__recorder_enter()) { return 0; }
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

/* One use of it more: the program's own, or a mapping. Its block's number; EBB_TRACE_NONE: it has none. */
static uint64_t use_handle(uint64_t handle) {
    preload_block *block = find_handle(handle);
    if (block == NULL) { return EBB_TRACE_NONE; }
    block->n_uses++;
    return block->block;
}

/* One use of it less; without any it is no more. Nothing where another block has the handle by now. */
static void release_handle(uint64_t handle, uint64_t number) {
    preload_block *block = find_handle(handle);
    if (block == NULL || block->block != number || --block->n_uses > 0) { return; }
    ebb__recorder_end_block(block);
    ebb__recorder_flush();
}

/* *ctx: the handle of what comes. CUDA unmaps no part of a mapping; were one left, it would be no one's. */
static ebb_status follow_view(void *ctx, const ebb_range *range, bool comes) {
    const uint64_t *handle = ctx;
    preload_block view = {.key = range->address, .block = *handle};
    preload_block *old = ebb__preload_blocks_find(&ebb__recorder.handle_of, range->address);
    EBB_ASSERT((old == NULL) == comes);
    if (!comes) {
        release_handle(old->block, old->size_bytes);
        ebb__preload_blocks_remove(&ebb__recorder.handle_of, old);
        return EBB_OK;
    }
    view.size_bytes = use_handle(*handle);
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
    (void)use_handle(handle);
    ebb__recorder_leave();
}

uint64_t ebb__preload_handle_block(uint64_t handle) {
    if (!ebb__recorder_enter()) { return EBB_TRACE_NONE; }
    const preload_block *block = find_handle(handle);
    const uint64_t number = block != NULL ? block->block : EBB_TRACE_NONE;
    ebb__recorder_leave();
    return number;
}

void ebb__preload_handle_released(uint64_t handle, uint64_t block) {
    if (!ebb__recorder_enter()) { return; }
    release_handle(handle, block);
    ebb__recorder_leave();
}
