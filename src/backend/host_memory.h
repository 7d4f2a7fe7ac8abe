/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory for devices whose memory is host memory: the arena, host pieces beside it, and what the host is.
 * Their tables name these functions directly.
 *
 * An arena is mapped in one piece, taken for good (no overcommit by flag) and zero:
 *
 *   |<- multiple of 2 MiB                          page |<- no access ->|
 *   [ rest | arena, size_bytes              | below 64 B ][ one page     ]
 *
 * It ends at a page without access, as closely as EBB_HOST_ALIGNMENT allows, so a kernel that runs past its arena
 * stops there instead of writing into something else. Nothing writes to an arena before its first command, so the
 * kernel's page table says what commands have touched. What follows the last multiple of 2 MiB, up to
 * 2 MiB itself, is small pages, so that there it says so to a page.
 */
#ifndef EBB_SRC_HOST_MEMORY_H
#define EBB_SRC_HOST_MEMORY_H

#include "backend/backend.h"

#define EBB_HOST_ALIGNMENT 64u /* of an arena's beginning, and so of every offset in it */

ebb_status ebb__host_arena_create(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out);
void ebb__host_arena_destroy(ebb_device *device, ebb_arena_mem *arena);
ebb_arena_use ebb__host_arena_measure(ebb_device *device, const ebb_arena_mem *arena);

/* Where buf lies. At EBB_DEBUG 2 a buf beyond its arena is a broken invariant. */
void *ebb__host_address(ebb_buf buf);

ebb_status ebb__host_alloc(ebb_device *device, uint64_t size_bytes, void **ptr_out);
void ebb__host_free(ebb_device *device, void *ptr, uint64_t size_bytes);

/* The processor's name, the memory that this process may have (the machine's or its control group's,
 * whichever is less) and the processors that it may run on. */
void ebb__host_describe(ebb_device_info *info_out);

/* The memory that this process can still get without swapping: what the machine has free, and what its control group
 * leaves it. UINT64_MAX: not known. */
uint64_t ebb__host_free_bytes(void);

#endif
