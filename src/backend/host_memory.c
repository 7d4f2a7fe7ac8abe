/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas and host pieces straight from the kernel: they are large, page-aligned, zero, and go back whole.
 */
#include "backend/host_memory.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((uint64_t)2 << 20)
#define MAX_CACHES 8

struct ebb_arena_mem {
    unsigned char *map; /* where its first page begins */
    unsigned char *base;
    uint64_t size_bytes;
    uint64_t open_bytes; /* from map to the guard page */
};

static uint64_t page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Read the first of these files that has a number; the word "max" is not one. */
static uint64_t read_number(const char *const paths[2], uint64_t otherwise) {
    for (size_t i = 0; i < 2; i++) {
        FILE *file = fopen(paths[i], "re");
        if (file == NULL) { continue; }
        uint64_t number = 0;
        const int n_read = fscanf(file, "%" SCNu64, &number);
        (void)fclose(file);
        if (n_read == 1) { return number; }
    }
    return otherwise;
}

/* The number after a key in a file of such lines; 0: none. */
static uint64_t read_line(const char *path, const char *key) {
    char line[160];
    uint64_t number = 0;
    FILE *file = fopen(path, "re");
    if (file == NULL) { return 0; }
    while (fgets(line, sizeof line, file) != NULL) {
        const size_t n = strlen(key);
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%" SCNu64, &number) == 1) { break; }
    }
    (void)fclose(file);
    return number;
}

#define GROUP "/sys/fs/cgroup/"
#define GROUP_1 "/sys/fs/cgroup/memory/"

static uint64_t control_group_limit(void) {
    static const char *const paths[2] = {GROUP "memory.max", GROUP_1 "memory.limit_in_bytes"};
    return read_number(paths, UINT64_MAX);
}

/* Without the pages of files that it can give up at once. */
static uint64_t control_group_use(void) {
    static const char *const paths[2] = {GROUP "memory.current", GROUP_1 "memory.usage_in_bytes"};
    const uint64_t used_bytes = read_number(paths, 0);
    const uint64_t idle_bytes =
        read_line(GROUP "memory.stat", "inactive_file ") + read_line(GROUP_1 "memory.stat", "total_inactive_file ");
    return used_bytes - ebb_min_u64(used_bytes, idle_bytes);
}

uint64_t ebb__host_free_bytes(void) {
    const uint64_t free_kib = read_line("/proc/meminfo", "MemAvailable:");
    const uint64_t free_bytes = free_kib > 0 ? free_kib * 1024 : UINT64_MAX;
    const uint64_t limit_bytes = control_group_limit();
    if (limit_bytes == UINT64_MAX) { return free_bytes; }
    return ebb_min_u64(free_bytes, limit_bytes - ebb_min_u64(limit_bytes, control_group_use()));
}

static uint64_t capacity_bytes(void) {
    return ebb_min_u64((uint64_t)sysconf(_SC_PHYS_PAGES) * page_bytes(), control_group_limit());
}

static ebb_status fail_mapping(const char *what, uint64_t size_bytes, const char *remedy) {
    char size[32], capacity[32];
    return ebb_fail(EBB_E_NO_MEMORY, "this machine's memory of %s has no room for %s of %s%s",
                    ebb_bytes_format(capacity_bytes(), capacity, sizeof capacity), what,
                    ebb_bytes_format(size_bytes, size, sizeof size), remedy);
}

static ebb_status fail_arena(uint64_t size_bytes) {
    return fail_mapping("an arena", size_bytes, "; a smaller batch or budget needs less");
}

/* Reserve more than enough, keep what begins at a multiple of 2 MiB, open all of it but the guard page. */
static ebb_status map_arena(ebb_arena_mem *arena, uint64_t size_bytes) {
    const uint64_t page = page_bytes();
    if (size_bytes > ((uint64_t)1 << 46)) { return fail_arena(size_bytes); }
    const uint64_t open_bytes = ebb_align_up(ebb_max_u64(size_bytes, 1), page);
    const uint64_t reserved = open_bytes + page + HUGE_PAGE_BYTES;
    unsigned char *start = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) { return fail_arena(size_bytes); }
    const uint64_t skip = ebb_align_up((uintptr_t)start, HUGE_PAGE_BYTES) - (uintptr_t)start;
    if (skip > 0) { (void)munmap(start, skip); }
    arena->map = start + skip;
    arena->base = arena->map + (open_bytes - ebb_align_up(size_bytes, EBB_HOST_ALIGNMENT));
    arena->size_bytes = size_bytes;
    arena->open_bytes = open_bytes;
    (void)munmap(arena->map + open_bytes + page, reserved - skip - open_bytes - page);
    /* Mapped anew rather than opened with mprotect, so that the kernel accounts for it. */
    void *opened = mmap(arena->map, open_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (opened == MAP_FAILED) {
        ebb_status status = fail_arena(size_bytes);
        (void)munmap(arena->map, open_bytes + page);
        return status;
    }
    const uint64_t large_bytes = (open_bytes - 1) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (large_bytes > 0) { (void)madvise(arena->map, large_bytes, MADV_HUGEPAGE); }
    (void)madvise(arena->map + large_bytes, open_bytes - large_bytes, MADV_NOHUGEPAGE);
    return EBB_OK;
}

static bool is_zero(const unsigned char *begin, const unsigned char *end) {
    while (begin < end && *begin == 0) { begin++; }
    return begin == end;
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
    EBB_ASSERT(is_zero(arena->map, arena->base));
    EBB_ASSERT(is_zero(arena->base + arena->size_bytes, arena->map + arena->open_bytes));
    (void)munmap(arena->map, arena->open_bytes + page_bytes());
    ebb__free(device->mem, arena);
}

/* Where the highest page that was touched ends, counted from map; 0: none was. UINT64_MAX: the kernel does not say. */
static uint64_t touched_end(const ebb_arena_mem *arena) {
    enum { ENTRIES = 512 };
    const uint64_t touched = (uint64_t)3 << 62; /* bits 63 and 62: in memory, or swapped out */
    const uint64_t page = page_bytes(), first = (uintptr_t)arena->map / page;
    const int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return UINT64_MAX; }
    uint64_t entry[ENTRIES], left = arena->open_bytes / page, end_bytes = 0;
    while (left > 0 && end_bytes == 0) {
        const uint64_t n = ebb_min_u64(left, ENTRIES);
        const off_t at = (off_t)((first + left - n) * sizeof entry[0]);
        if (pread(fd, entry, n * sizeof entry[0], at) != (ssize_t)(n * sizeof entry[0])) {
            end_bytes = UINT64_MAX;
            break;
        }
        for (uint64_t i = n; i > 0 && end_bytes == 0; i--) {
            end_bytes = (entry[i - 1] & touched) != 0 ? (left - n + i) * page : 0;
        }
        left -= n;
    }
    (void)close(fd);
    return end_bytes;
}

static uint64_t resident_bytes(const ebb_arena_mem *arena) {
    const uint64_t page = page_bytes();
    unsigned char seen[1024];
    uint64_t resident = 0;
    for (uint64_t at = 0; at < arena->open_bytes; at += page * sizeof seen) {
        const uint64_t piece = ebb_min_u64(page * sizeof seen, arena->open_bytes - at);
        if (mincore(arena->map + at, (size_t)piece, seen) != 0) { return 0; }
        for (uint64_t p = 0; p < piece / page; p++) { resident += (seen[p] & 1u) ? page : 0; }
    }
    return resident;
}

ebb_arena_use ebb__host_arena_measure(ebb_device *device, const ebb_arena_mem *arena) {
    (void)device;
    const uint64_t end_bytes = touched_end(arena), before_bytes = (uint64_t)(arena->base - arena->map);
    const uint64_t peak_bytes = end_bytes - ebb_min_u64(before_bytes, end_bytes);
    return (ebb_arena_use){.peak_bytes =
                               end_bytes == UINT64_MAX ? UINT64_MAX : ebb_min_u64(peak_bytes, arena->size_bytes),
                           .resident_bytes = resident_bytes(arena)};
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
    if (ptr == MAP_FAILED) { return fail_mapping("a host piece", size_bytes, ""); }
    if (size_bytes >= HUGE_PAGE_BYTES) { (void)madvise(ptr, n_bytes, MADV_HUGEPAGE); }
    *ptr_out = ptr;
    return EBB_OK;
}

void ebb__host_free(ebb_device *device, void *ptr, uint64_t size_bytes) {
    (void)device;
    if (ptr != NULL) { (void)munmap(ptr, (size_t)ebb_max_u64(size_bytes, 1)); }
}

static void read_processor_name(char *name, size_t name_bytes) {
    (void)snprintf(name, name_bytes, "processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
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

/* The size of the first processor's largest cache; 0 if Linux does not say. */
static uint64_t find_cache_bytes(void) {
    uint64_t most_bytes = 0;
    for (int i = 0; i < MAX_CACHES; i++) {
        char path[64];
        unsigned long kib = 0;
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "re");
        if (file == NULL) { break; }
        if (fscanf(file, "%luK", &kib) == 1) { most_bytes = ebb_max_u64(most_bytes, (uint64_t)kib << 10); }
        (void)fclose(file);
    }
    return most_bytes;
}

void ebb__host_describe(ebb_device_info *info_out) {
    *info_out = (ebb_device_info){.n_threads = 1, .cache_bytes = find_cache_bytes()};
    read_processor_name(info_out->name, sizeof info_out->name);
    info_out->capacity_bytes = capacity_bytes();
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) { info_out->n_threads = CPU_COUNT(&set); }
}
