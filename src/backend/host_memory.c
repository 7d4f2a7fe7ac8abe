/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas and host pieces straight from the kernel: they are large, page-aligned, zero, and go back whole.
 */
#include "backend/host_memory.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)

struct ebb_arena_mem {
    unsigned char *base;
    uint64_t size_bytes;
    uint64_t mapped_bytes; /* from base, the guard page included */
};

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static ebb_status fail_mapping(const char *what, uint64_t size_bytes) {
    return ebb_fail(EBB_E_NO_MEMORY, "no memory for %s of %" PRIu64 " bytes: %s", what, size_bytes, strerror(errno));
}

/* Reserve more than enough, keep what begins at a multiple of 2 MiB, open all of it but the guard page. */
static ebb_status map_arena(ebb_arena_mem *arena, uint64_t size_bytes) {
    const uint64_t page = page_bytes();
    if (size_bytes > ((uint64_t)1 << 46)) {
        return ebb_fail(EBB_E_NO_MEMORY, "an arena of %" PRIu64 " bytes is beyond any memory", size_bytes);
    }
    const uint64_t open_bytes = ebb_align_up(ebb_max_u64(size_bytes, 1), page);
    const uint64_t reserved = open_bytes + page + HUGE_PAGE_BYTES;
    unsigned char *start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) { return fail_mapping("an arena", size_bytes); }
    const uint64_t skip = ebb_align_up((uintptr_t)start, HUGE_PAGE_BYTES) - (uintptr_t)start;
    if (skip > 0) { (void)munmap(start, skip); }
    arena->base = start + skip;
    arena->size_bytes = size_bytes;
    arena->mapped_bytes = open_bytes + page;
    (void)munmap(arena->base + arena->mapped_bytes, reserved - skip - arena->mapped_bytes);
    /* Mapped anew rather than opened with mprotect, so that the kernel accounts for it. */
    void *opened =
        mmap(arena->base, open_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (opened == MAP_FAILED) {
        ebb_status status = fail_mapping("an arena", size_bytes);
        (void)munmap(arena->base, arena->mapped_bytes);
        return status;
    }
    if (open_bytes >= HUGE_PAGE_BYTES) { (void)madvise(arena->base, open_bytes, MADV_HUGEPAGE); }
    return EBB_OK;
}

ebb_status ebb__host_arena_create(ebb_device *device, uint64_t size_bytes, ebb_arena_mem **arena_out) {
    ebb_arena_mem *arena = ebb__calloc(device->mem, 1, sizeof *arena);
    if (arena == NULL) { return EBB_E_NO_MEMORY; }
    ebb_status status = map_arena(arena, size_bytes);
    if (status != EBB_OK) {
        ebb__free(device->mem, arena);
        return status;
    }
    *arena_out = arena;
    return EBB_OK;
}

void ebb__host_arena_destroy(ebb_device *device, ebb_arena_mem *arena) {
    if (arena == NULL) { return; }
    (void)munmap(arena->base, arena->mapped_bytes);
    ebb__free(device->mem, arena);
}

void *ebb__host_address(ebb_buf buf) {
#if EBB_DEBUG >= 2
    EBB_ASSERT(buf.arena != NULL);
    EBB_ASSERT(buf.offset <= buf.arena->size_bytes);
    EBB_ASSERT(buf.size_bytes <= buf.arena->size_bytes - buf.offset);
#endif
    return buf.arena->base + buf.offset;
}

ebb_status ebb__host_alloc(ebb_device *device, uint64_t size_bytes, void **ptr_out) {
    (void)device;
    const size_t n_bytes = (size_t)ebb_max_u64(size_bytes, 1);
    void *ptr = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED) { return fail_mapping("a host piece", size_bytes); }
    if (size_bytes >= HUGE_PAGE_BYTES) { (void)madvise(ptr, n_bytes, MADV_HUGEPAGE); }
    *ptr_out = ptr;
    return EBB_OK;
}

void ebb__host_free(ebb_device *device, void *ptr, uint64_t size_bytes) {
    (void)device;
    if (ptr != NULL) { (void)munmap(ptr, (size_t)ebb_max_u64(size_bytes, 1)); }
}

static uint64_t control_group_limit(void) {
    static const char *const paths[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        FILE *file = fopen(paths[i], "r");
        if (file == NULL) { continue; }
        uint64_t limit_bytes = 0;
        int n_read = fscanf(file, "%" SCNu64, &limit_bytes); /* "max" where there is none */
        (void)fclose(file);
        if (n_read == 1) { return limit_bytes; }
    }
    return UINT64_MAX;
}

static void read_processor_name(char *name, size_t name_bytes) {
    (void)snprintf(name, name_bytes, "processor");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) { return; }
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) { continue; }
        colon += strspn(colon, ": ");
        (void)snprintf(name, name_bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    (void)fclose(file);
}

void ebb__host_describe(ebb_device_info *info_out) {
    *info_out = (ebb_device_info){.n_threads = 1};
    read_processor_name(info_out->name, sizeof info_out->name);
    info_out->capacity_bytes = ebb_min_u64((uint64_t)sysconf(_SC_PHYS_PAGES) * page_bytes(), control_group_limit());
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) { info_out->n_threads = CPU_COUNT(&set); }
}
