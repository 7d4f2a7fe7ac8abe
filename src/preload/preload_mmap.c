/* SPDX-License-Identifier: Apache-2.0
 *
 * In front of mmap, munmap and mremap: anonymous memory that a program may write. A range that is only reserved
 * (PROT_NONE) is no memory yet, and files are another program's. glibc's malloc does not come through here, other
 * allocators do.
 */
#include "preload/preload.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>

static void *(*real_mmap)(void *, size_t, int, int, int, off_t);
static int (*real_munmap)(void *, size_t);
static void *(*real_mremap)(void *, size_t, size_t, int, ...);

PRELOAD_EXPORT void *mmap(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset);
PRELOAD_EXPORT void *mmap64(void *address, size_t n_bytes, int protection, int flags, int fd, off64_t offset);
PRELOAD_EXPORT int munmap(void *address, size_t n_bytes);
PRELOAD_EXPORT void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...);

static bool find_real(void) {
    if (real_mmap == NULL) {
        *(void **)&real_munmap = ebb__preload_next("munmap");
        *(void **)&real_mremap = ebb__preload_next("mremap");
        *(void **)&real_mmap = ebb__preload_next("mmap");
    }
    if (real_mmap == NULL) { errno = ENOMEM; }
    return real_mmap != NULL;
}

static uint64_t key_of(const void *address) {
    return address == MAP_FAILED ? 0 : (uintptr_t)address | PRELOAD_MAPPED;
}

/* What a fixed mapping lies over is no more, unless it fails. Nobody else can have these addresses meanwhile. */
void *mmap(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset) {
    if (!find_real()) { return MAP_FAILED; }
    const uint64_t over_bytes = (flags & MAP_FIXED) != 0 ? ebb__preload_unmap((uintptr_t)address, n_bytes) : 0;
    const bool is_memory = (flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0;
    const bool is_large = is_memory && n_bytes >= ebb__preload_min_bytes;
    const preload_answer answer = is_large ? ebb__preload_ask(PRELOAD_MMAP, n_bytes) : PRELOAD_PASS;
    void *memory = MAP_FAILED;
    if (answer != PRELOAD_REFUSE) { memory = real_mmap(address, n_bytes, protection, flags, fd, offset); }
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MMAP, key_of(memory), n_bytes, n_bytes); }
    if (memory == MAP_FAILED) { ebb__preload_map_back((uintptr_t)address, over_bytes); }
    if (answer == PRELOAD_REFUSE) { errno = ENOMEM; }
    return memory;
}

void *mmap64(void *address, size_t n_bytes, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, n_bytes, protection, flags, fd, (off_t)offset);
}

int munmap(void *address, size_t n_bytes) {
    if (!find_real()) { return -1; }
    const uint64_t had_bytes = ebb__preload_unmap((uintptr_t)address, n_bytes);
    const int status = real_munmap(address, n_bytes);
    if (status != 0) { ebb__preload_map_back((uintptr_t)address, had_bytes); }
    return status;
}

/* Nobody else can have the old addresses before the kernel has let them go, and then the block is not there. */
void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list args;
    va_start(args, flags);
    void *wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    if (!find_real()) { return MAP_FAILED; }
    const uint64_t had_bytes = ebb__preload_unmap((uintptr_t)address, old_bytes);
    const bool is_large = had_bytes > 0 && new_bytes >= ebb__preload_min_bytes;
    const preload_answer answer = is_large ? ebb__preload_ask(PRELOAD_MMAP, new_bytes) : PRELOAD_PASS;
    void *moved = MAP_FAILED;
    if (answer != PRELOAD_REFUSE) { moved = real_mremap(address, old_bytes, new_bytes, flags, wanted); }
    const bool is_kept = moved == MAP_FAILED || (flags & MREMAP_DONTUNMAP) != 0;
    if (moved != MAP_FAILED && wanted != NULL) { (void)ebb__preload_unmap((uintptr_t)moved, new_bytes); }
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MMAP, key_of(moved), new_bytes, new_bytes); }
    if (is_kept) { ebb__preload_map_back((uintptr_t)address, had_bytes); }
    if (answer == PRELOAD_REFUSE) { errno = ENOMEM; }
    return moved;
}
