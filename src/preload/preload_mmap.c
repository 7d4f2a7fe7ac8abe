/* SPDX-License-Identifier: Apache-2.0
 *
 * In front of mmap, munmap and mremap: anonymous memory that a program may write. A range that is only reserved
 * (PROT_NONE) is no memory yet, and files are somebody else's. glibc's malloc does not come through here, other
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

void *mmap(void *address, size_t n_bytes, int protection, int flags, int fd, off_t offset) {
    if (!find_real()) { return MAP_FAILED; }
    if ((flags & MAP_FIXED) != 0) { ebb__preload_unmap((uintptr_t)address, n_bytes); }
    const bool is_memory = (flags & MAP_ANONYMOUS) != 0 && (protection & PROT_WRITE) != 0;
    if (!is_memory || n_bytes < ebb__preload_min_bytes) {
        return real_mmap(address, n_bytes, protection, flags, fd, offset);
    }
    const preload_answer answer = ebb__preload_ask(PRELOAD_MMAP, n_bytes);
    if (answer == PRELOAD_REFUSE) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = real_mmap(address, n_bytes, protection, flags, fd, offset);
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MMAP, key_of(memory), n_bytes, n_bytes); }
    return memory;
}

void *mmap64(void *address, size_t n_bytes, int protection, int flags, int fd, off64_t offset) {
    return mmap(address, n_bytes, protection, flags, fd, (off_t)offset);
}

int munmap(void *address, size_t n_bytes) {
    if (!find_real()) { return -1; }
    ebb__preload_unmap((uintptr_t)address, n_bytes);
    return real_munmap(address, n_bytes);
}

/* Nobody else can have the old addresses before the kernel has let them go, and then the block is not there. */
void *mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, ...) {
    va_list args;
    va_start(args, flags);
    void *wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(args, void *) : NULL;
    va_end(args);
    if (!find_real()) { return MAP_FAILED; }
    preload_block was;
    const bool had = ebb__preload_may_be(key_of(address)) && ebb__preload_take(key_of(address), &was);
    if (had) { ebb__preload_unmap((uintptr_t)address, old_bytes); }
    const preload_answer answer =
        had && new_bytes >= ebb__preload_min_bytes ? ebb__preload_ask(PRELOAD_MMAP, new_bytes) : PRELOAD_PASS;
    void *moved = MAP_FAILED;
    if (answer != PRELOAD_REFUSE) { moved = real_mremap(address, old_bytes, new_bytes, flags, wanted); }
    if (answer == PRELOAD_RECORD) { ebb__preload_done(PRELOAD_MMAP, key_of(moved), new_bytes, new_bytes); }
    if (moved == MAP_FAILED && had) { ebb__preload_give_back(&was); }
    if (answer == PRELOAD_REFUSE) { errno = ENOMEM; }
    return moved;
}
