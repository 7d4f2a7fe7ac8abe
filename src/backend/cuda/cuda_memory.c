/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena and pinned host memory.
 *
 * An arena is one reservation of addresses over one piece of the card (cuMemCreate, cuMemMap): cudaMalloc rounds up,
 * keeps pools and gives up earlier when the card is nearly full. It takes whole granules, 2 MiB as a rule, and what
 * device->arena_bytes counts are those. Devices without such mapping get it from cudaMalloc.
 *
 * Host memory is mapped to the page and then registered, so that a slab of a plan's bytes costs the host these bytes
 * and no more, where allocators above cudaHostAlloc round up to powers of two. Before it is registered, several threads
 * touch its pages, huge ones where they fit: registering would make them one after the other.
 */
#include "backend/cuda/cuda_priv.h"
#include "base/thread.h"

#include <errno.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <unistd.h>

struct ebb_arena_mem {
    CUdeviceptr base;
    uint64_t size_bytes;   /* as asked for */
    uint64_t mapped_bytes; /* of the card */
    uint64_t driver_bytes; /* by which the driver's free bytes fell as it was taken */
    bool is_mapped;        /* else cudaMalloc's */
};

void *ebb__cuda_address(ebb_buf buf) {
    EBB_ASSERT(buf.arena != NULL && buf.offset <= buf.arena->size_bytes);
    EBB_ASSERT(buf.size_bytes <= buf.arena->size_bytes - buf.offset);
    return (void *)(uintptr_t)(buf.arena->base + buf.offset);
}

/* ---- the driver's calls ------------------------------------------------------------------------ */

static bool find_call(const char *name, void **fn_out) {
    enum cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    void *fn = NULL;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion(name, &fn, 12000, cudaEnableDefault, &result);
#else
    cudaError_t error = cudaGetDriverEntryPoint(name, &fn, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess) { (void)cudaGetLastError(); }
    *fn_out = fn;
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess && fn != NULL;
}

static CUmemAllocationProp property_of(const ebb_cuda_device *device) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->index}};
}

static ebb_status find_granule(ebb_cuda_device *device) {
    const CUmemAllocationProp prop = property_of(device);
    size_t granule = EBB_CUDA_ALIGNMENT; /* of cudaMalloc */
    if (device->has_mapping) {
        /* the runtime's errors have the driver's numbers */
        EBB_CUDA((cudaError_t)device->driver.granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "asking for the granules of the device's memory");
    }
    EBB_ASSERT(granule > 0 && (granule & (granule - 1)) == 0);
    device->granule_bytes = granule;
    return EBB_OK;
}

ebb_status ebb__cuda_memory_init(ebb_cuda_device *device) {
    ebb_cuda_driver *d = &device->driver;
    const struct {
        const char *name;
        void *to;
    } calls[] = {
        {"cuMemAddressReserve", &d->address_reserve},
        {"cuMemAddressFree", &d->address_free},
        {"cuMemCreate", &d->create},
        {"cuMemRelease", &d->release},
        {"cuMemMap", &d->map},
        {"cuMemUnmap", &d->unmap},
        {"cuMemSetAccess", &d->set_access},
        {"cuMemGetAllocationGranularity", &d->granularity},
        {"cuGetErrorString", &d->error_text},
    };
    int can_map = 0; /* not in the runtime's list of attributes; its numbers are the driver's */
    EBB_CUDA(cudaDeviceGetAttribute(
                 &can_map, (enum cudaDeviceAttr)CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device->index),
             "asking what the device can map");
    device->has_mapping = can_map != 0;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0] && device->has_mapping; i++) {
        void *fn = NULL;
        device->has_mapping = find_call(calls[i].name, &fn);
        memcpy(calls[i].to, &fn, sizeof fn);
    }
    return find_granule(device);
}

/* ---- the arena --------------------------------------------------------------------------------- */

static ebb_status fail_no_room(uint64_t size_bytes) {
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaGetLastError();
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) { (void)cudaGetLastError(); }
    return ebb_fail(EBB_E_NO_MEMORY,
                    "cuda: no memory for an arena of %" PRIu64 " bytes: %zu of the device's %zu are free", size_bytes,
                    free_bytes, total_bytes);
}

static ebb_status fail_mapping(ebb_cuda_device *device, CUresult result, uint64_t size_bytes) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { return fail_no_room(size_bytes); }
    const char *text = NULL;
    (void)device->driver.error_text(result, &text);
    return ebb_fail(EBB_E_DEVICE, "cuda: an arena of %" PRIu64 " bytes: %s (%d)", size_bytes,
                    text != NULL ? text : "the driver failed", (int)result);
}

/* Reserve addresses, map a piece of the card there, and get access to it. After a failure nothing is left of it. */
static ebb_status map_arena(ebb_cuda_device *device, ebb_arena_mem *arena) {
    const ebb_cuda_driver *d = &device->driver;
    const CUmemAllocationProp prop = property_of(device);
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle piece = 0;
    CUdeviceptr base = 0;
    const uint64_t n_bytes = ebb_align_up(ebb_max_u64(arena->size_bytes, 1), device->granule_bytes);
    CUresult r = d->create(&piece, n_bytes, &prop, 0);
    if (r != CUDA_SUCCESS) { return fail_mapping(device, r, arena->size_bytes); }
    r = d->address_reserve(&base, n_bytes, 0, 0, 0);
    if (r == CUDA_SUCCESS) {
        r = d->map(base, n_bytes, 0, piece, 0);
        if (r == CUDA_SUCCESS) {
            r = d->set_access(base, n_bytes, &access, 1);
            if (r != CUDA_SUCCESS) { (void)d->unmap(base, n_bytes); }
        }
        if (r != CUDA_SUCCESS) { (void)d->address_free(base, n_bytes); }
    }
    (void)d->release(piece); /* the mapping keeps it */
    if (r != CUDA_SUCCESS) { return fail_mapping(device, r, arena->size_bytes); }
    arena->base = base;
    arena->mapped_bytes = n_bytes;
    arena->is_mapped = true;
    return EBB_OK;
}

static ebb_status allocate_arena(const ebb_cuda_device *device, ebb_arena_mem *arena) {
    void *ptr = NULL;
    const uint64_t n_bytes = ebb_align_up(ebb_max_u64(arena->size_bytes, 1), device->granule_bytes);
    cudaError_t error = cudaMalloc(&ptr, n_bytes);
    if (error == cudaErrorMemoryAllocation) { return fail_no_room(arena->size_bytes); }
    EBB_CUDA(error, "an arena");
    arena->base = (CUdeviceptr)(uintptr_t)ptr;
    arena->mapped_bytes = n_bytes;
    return EBB_OK;
}

/* Unmapping does not wait, so this waits for everything that still uses the bytes. */
static void give_back(ebb_cuda_device *device, ebb_arena_mem *arena) {
    ebb__cuda_capture_abandon(device);
    (void)cudaDeviceSynchronize();
    (void)cudaGetLastError();
    if (arena->is_mapped) {
        (void)device->driver.unmap(arena->base, arena->mapped_bytes);
        (void)device->driver.address_free(arena->base, arena->mapped_bytes);
    } else if (arena->base != 0) {
        (void)cudaFree((void *)(uintptr_t)arena->base);
    }
}

/* Zero, as every backend's arena is: a kernel that is measured before anything was computed then sees numbers. */
static ebb_status clear_arena(const ebb_arena_mem *arena) {
    EBB_CUDA(cudaMemset((void *)(uintptr_t)arena->base, 0, arena->mapped_bytes), "clearing an arena");
    EBB_CUDA(cudaDeviceSynchronize(), "clearing an arena");
    return EBB_OK;
}

static ebb_status fill_in(ebb_cuda_device *device, ebb_arena_mem *arena) {
    size_t before_bytes = 0, after_bytes = 0, total_bytes = 0;
    EBB_TRY(ebb__cuda_enter(device));
    EBB_CUDA(cudaMemGetInfo(&before_bytes, &total_bytes), "asking for the device's memory");
    EBB_TRY(device->has_mapping ? map_arena(device, arena) : allocate_arena(device, arena));
    EBB_CUDA(cudaMemGetInfo(&after_bytes, &total_bytes), "asking for the device's memory");
    arena->driver_bytes = before_bytes - ebb_min_u64(after_bytes, before_bytes);
    return clear_arena(arena);
}

ebb_status ebb__cuda_arena_create(ebb_device *base, uint64_t size_bytes, ebb_arena_mem **arena_out) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    if (size_bytes > ((uint64_t)1 << 46)) {
        return ebb_fail(EBB_E_NO_MEMORY, "an arena of %" PRIu64 " bytes is beyond any memory", size_bytes);
    }
    ebb_arena_mem *arena = ebb__calloc(base->mem, 1, sizeof *arena);
    if (arena == NULL) { return EBB_E_NO_MEMORY; }
    arena->size_bytes = size_bytes;
    ebb_status st = fill_in(device, arena);
    if (st != EBB_OK) {
        give_back(device, arena);
        ebb__free(base->mem, arena);
        return st;
    }
    device->arena_bytes += arena->mapped_bytes;
    *arena_out = arena;
    return EBB_OK;
}

void ebb__cuda_arena_destroy(ebb_device *base, ebb_arena_mem *arena) {
    if (arena == NULL) { return; }
    ebb_cuda_device *device = ebb__cuda_of(base);
    EBB_ASSERT(device->arena_bytes >= arena->mapped_bytes);
    (void)ebb__cuda_enter(device);
    device->arena_bytes -= arena->mapped_bytes;
    give_back(device, arena);
    ebb__free(base->mem, arena);
}

/* The figure includes what another process took or gave back at that moment. */
ebb_arena_use ebb__cuda_arena_measure(ebb_device *base, const ebb_arena_mem *arena) {
    (void)base;
    return (ebb_arena_use){.peak_bytes = arena->driver_bytes};
}

/* ---- host memory ------------------------------------------------------------------------------- */

/* Registered memory is whole pages; the last one's rest is never used. */
static size_t page_up(uint64_t size_bytes) {
    return (size_t)ebb_align_up(ebb_max_u64(size_bytes, 1), (uint64_t)sysconf(_SC_PAGESIZE));
}

#define EBB_CUDA_HUGE_PAGE ((size_t)2 << 20)
#define EBB_CUDA_TOUCHED_BYTES ((size_t)16 << 20) /* that are worth a thread */
#define EBB_CUDA_MAX_TOUCHERS 16u                 /* more than memory's bandwidth has use for */

/* From a huge page's beginning where there is room for one; MAP_FAILED as mmap. */
static unsigned char *map_pages(size_t n_bytes) {
    const size_t spare_bytes = n_bytes >= EBB_CUDA_HUGE_PAGE ? EBB_CUDA_HUGE_PAGE : 0;
    unsigned char *map = mmap(NULL, n_bytes + spare_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || spare_bytes == 0) { return map; }
    const size_t before_bytes = (size_t)ebb_align_up((uintptr_t)map, EBB_CUDA_HUGE_PAGE) - (uintptr_t)map;
    unsigned char *first = map + before_bytes;
    if (before_bytes > 0) { (void)munmap(map, before_bytes); }
    if (before_bytes < spare_bytes) { (void)munmap(first + n_bytes, spare_bytes - before_bytes); }
    (void)madvise(first, n_bytes / EBB_CUDA_HUGE_PAGE * EBB_CUDA_HUGE_PAGE, MADV_HUGEPAGE); /* a wish */
    return first;
}

typedef struct touched {
    unsigned char *first;
    size_t n_bytes;
} touched;

static void *touch(void *arg) {
    const touched *part = arg;
    const size_t page_bytes = page_up(1);
    for (size_t at = 0; at < part->n_bytes; at += page_bytes) { ((volatile unsigned char *)part->first)[at] = 0; }
    return NULL;
}

/* The calling thread touches the parts of threads that cannot be started. */
static void touch_all(const ebb_cuda_device *device, unsigned char *first, size_t n_bytes) {
    pthread_t thread[EBB_CUDA_MAX_TOUCHERS];
    touched part[EBB_CUDA_MAX_TOUCHERS];
    bool is_begun[EBB_CUDA_MAX_TOUCHERS] = {false};
    const uint64_t n_most = ebb_min_u64(EBB_CUDA_MAX_TOUCHERS, (uint64_t)device->n_threads);
    const size_t n_parts = (size_t)ebb_max_u64(1, ebb_min_u64(n_most, n_bytes / EBB_CUDA_TOUCHED_BYTES));
    const size_t part_bytes = (size_t)ebb_align_up((n_bytes + n_parts - 1) / n_parts, EBB_CUDA_HUGE_PAGE);
    for (size_t k = 0; k < n_parts; k++) {
        const size_t begin = (size_t)ebb_min_u64(k * part_bytes, n_bytes);
        part[k] = (touched){first + begin, (size_t)ebb_min_u64(part_bytes, n_bytes - begin)};
        is_begun[k] = k > 0 && ebb__thread_start(touch, &part[k], &thread[k]) == 0;
    }
    for (size_t k = 0; k < n_parts; k++) {
        if (!is_begun[k]) { (void)touch(&part[k]); }
    }
    for (size_t k = 0; k < n_parts; k++) {
        if (is_begun[k]) { (void)pthread_join(thread[k], NULL); }
    }
}

ebb_status ebb__cuda_host_alloc(ebb_device *base, uint64_t size_bytes, void **ptr_out) {
    EBB_TRY(ebb__cuda_enter(ebb__cuda_of(base)));
    const size_t n_bytes = page_up(size_bytes);
    unsigned char *ptr = map_pages(n_bytes);
    if (ptr == MAP_FAILED) {
        return ebb_fail(EBB_E_NO_MEMORY, "no memory for a host piece of %" PRIu64 " bytes: %s", size_bytes,
                        strerror(errno));
    }
    touch_all(ebb__cuda_of(base), ptr, n_bytes);
    cudaError_t error = cudaHostRegister(ptr, n_bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess) {
        (void)munmap(ptr, n_bytes);
        return ebb__cuda_fail(error, "pinning host memory (a limit on locked memory?)");
    }
    *ptr_out = ptr;
    return EBB_OK;
}

void ebb__cuda_host_free(ebb_device *base, void *ptr, uint64_t size_bytes) {
    if (ptr == NULL) { return; }
    (void)ebb__cuda_enter(ebb__cuda_of(base));
    (void)cudaHostUnregister(ptr);
    (void)cudaGetLastError();
    (void)munmap(ptr, page_up(size_bytes));
}
