/* SPDX-License-Identifier: Apache-2.0
 *
 * The fake's device, errors and memory.
 */
#include "fake_priv.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

fake_cuda fake;

static cudaError_t last_error;

/* What cuMemCreate gives. */
typedef struct piece {
    size_t n_bytes;
    int n_holders;
} piece;

/* Device memory that can be reached, and reserved addresses. */
typedef struct range {
    unsigned char *base;
    size_t n_bytes;
    bool is_open;        /* there are bytes behind it, and the right to use them */
    struct piece *piece; /* that is mapped there */
    bool is_malloc;
    bool is_pinned; /* host memory */
    struct range *next;
} range;

static range *ranges;

/* ---- control ----------------------------------------------------------------------------------- */

void fake_cuda_reset(uint64_t seed) {
    if (fake.n_live != 0) {
        (void)fprintf(stderr, "fake_cuda: %zu things are still alive\n", fake.n_live);
        abort();
    }
    fake_forget_captures();
    fake = (fake_cuda){.driver_version = CUDART_VERSION,
                       .dnn_version = 90000,
                       .name = "Fake GPU",
                       .blas_version = 120000,
                       .n_devices = 1,
                       .has_mapping = true,
                       .total_bytes = (uint64_t)64 << 20,
                       .context_bytes = (uint64_t)3 << 20,
                       .granule_bytes = (uint64_t)2 << 20,
                       .seed = seed};
    last_error = cudaSuccess;
}

void fake_cuda_fail(uint64_t call, cudaError_t error) {
    fake.n_calls = 0;
    fake.fail_at = call;
    fake.error = error;
    fake.failed = NULL;
}

uint64_t fake_random(uint64_t n) {
    fake.seed = fake.seed * 6364136223846793005u + 1442695040888963407u;
    return (fake.seed >> 33) % n;
}

cudaError_t fake_set_error(cudaError_t error) {
    if (error != cudaSuccess) { last_error = error; }
    return error;
}

cudaError_t fake_begin(const char *name) {
    if (++fake.n_calls != fake.fail_at) { return cudaSuccess; }
    fake.failed = name;
    return fake_set_error(fake.error);
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess ? "no error" : "what the test wants to go wrong";
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOther";
}

/* ---- the device -------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version) {
    FAKE_CALL();
    *version = fake.driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    FAKE_CALL();
    *count = fake.n_devices;
    return fake.n_devices > 0 ? cudaSuccess : fake_set_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    FAKE_CALL();
    return device < fake.n_devices ? cudaSuccess : fake_set_error(cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    (void)device;
    FAKE_CALL();
    memset(properties, 0, sizeof *properties);
    (void)snprintf(properties->name, sizeof properties->name, "%s", fake.name);
    properties->multiProcessorCount = 3;
    properties->totalGlobalMem = fake.total_bytes;
    properties->l2CacheSize = (int)fake.cache_bytes;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    (void)device;
    FAKE_CALL();
    *value = (int)attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED && fake.has_mapping;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    FAKE_CALL();
    *total_bytes = fake.total_bytes;
    *free_bytes = fake.total_bytes - fake.context_bytes - fake.used_bytes;
    return cudaSuccess;
}

/* ---- ranges ------------------------------------------------------------------------------------ */

static bool is_room(size_t n_bytes) {
    return n_bytes <= fake.total_bytes - fake.context_bytes - fake.used_bytes;
}

/* In huge pages from a huge page's beginning, if the kernel has them: each command changes the rights of all pages. */
static unsigned char *map_range(size_t n_bytes) {
    const size_t huge = (size_t)2 << 20, spare_bytes = n_bytes >= huge ? huge : 0;
    const int rights = fake.has_no_locks ? PROT_READ | PROT_WRITE : PROT_NONE;
    unsigned char *map = mmap(NULL, n_bytes + 4096 + spare_bytes, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) { abort(); }
    if (spare_bytes == 0) { return map; }
    const size_t before_bytes = -(uintptr_t)map & (huge - 1);
    unsigned char *base = map + before_bytes;
    if (before_bytes > 0) { (void)munmap(map, before_bytes); }
    (void)munmap(base + (n_bytes + 4095) / 4096 * 4096 + 4096, spare_bytes - before_bytes);
    (void)madvise(base, n_bytes, MADV_HUGEPAGE);
    return base;
}

static range *add_range(size_t n_bytes) {
    range *r = calloc(1, sizeof *r);
    r->base = map_range(n_bytes);
    r->n_bytes = n_bytes;
    r->next = ranges;
    ranges = r;
    fake.n_live++;
    return r;
}

static range **find_range(const void *base) {
    range **at = &ranges;
    while (*at != NULL && (*at)->base != base) { at = &(*at)->next; }
    return at;
}

static void remove_range(range **at) {
    range *r = *at;
    *at = r->next;
    if (!r->is_pinned) { (void)munmap(r->base, r->n_bytes + 4096); }
    free(r);
    fake.n_live--;
}

static void protect(int rights) {
    for (range *r = ranges; r != NULL && !fake.has_no_locks; r = r->next) {
        if (r->is_open && mprotect(r->base, r->n_bytes, rights) != 0) { abort(); }
    }
}

void fake_cuda_unlock(void) {
    protect(PROT_READ | PROT_WRITE);
}

void fake_cuda_lock(void) {
    protect(PROT_NONE);
}

static bool is_pinned(const void *ptr, size_t n_bytes) {
    const unsigned char *begin = ptr;
    for (const range *r = ranges; r != NULL; r = r->next) {
        if (r->is_pinned && begin >= r->base && begin + n_bytes <= r->base + r->n_bytes) { return true; }
    }
    return false;
}

static bool is_device(const void *ptr, size_t n_bytes) {
    const unsigned char *begin = ptr;
    for (const range *r = ranges; r != NULL; r = r->next) {
        if (r->is_open && begin >= r->base && begin + n_bytes <= r->base + r->n_bytes) { return true; }
    }
    return false;
}

/* ---- cudaMalloc and pinning -------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **ptr, size_t n_bytes) {
    FAKE_CALL();
    cudaError_t error = fake_refuse_in_capture();
    if (error != cudaSuccess) { return error; }
    if (!is_room(n_bytes)) { return fake_set_error(cudaErrorMemoryAllocation); }
    n_bytes = (n_bytes + 4095) / 4096 * 4096;
    range *r = add_range(n_bytes);
    r->is_open = r->is_malloc = true;
    fake.used_bytes += n_bytes;
    if (fake.used_bytes > fake.most_used_bytes) { fake.most_used_bytes = fake.used_bytes; }
    *ptr = r->base;
    return cudaSuccess;
}

/* It waits for the device, as the runtime's does. */
cudaError_t cudaFree(void *ptr) {
    fake_run_all();
    range **at = find_range(ptr);
    if (*at == NULL || !(*at)->is_malloc) { abort(); }
    fake.used_bytes -= (*at)->n_bytes;
    remove_range(at);
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaMemset(void *ptr, int value, size_t n_bytes) {
    FAKE_CALL();
    if (!is_device(ptr, n_bytes)) { return fake_set_error(cudaErrorInvalidValue); }
    fake_cuda_unlock();
    memset(ptr, value, n_bytes);
    fake_cuda_lock();
    return cudaSuccess;
}

static uint64_t count_untouched(void *ptr, size_t n_bytes) {
    const size_t n_pages = n_bytes / (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *is_there = calloc(n_pages, 1);
    uint64_t n = 0;
    if (mincore(ptr, n_bytes, is_there) != 0) { abort(); }
    for (size_t i = 0; i < n_pages; i++) { n += (is_there[i] & 1u) == 0; }
    free(is_there);
    return n;
}

cudaError_t cudaHostRegister(void *ptr, size_t n_bytes, unsigned flags) {
    (void)flags;
    FAKE_CALL();
    fake.n_untouched_pages += count_untouched(ptr, n_bytes);
    range *r = calloc(1, sizeof *r);
    *r = (range){.base = ptr, .n_bytes = n_bytes, .is_pinned = true, .next = ranges};
    ranges = r;
    fake.n_live++;
    fake.pinned_bytes += n_bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *ptr) {
    range **at = find_range(ptr);
    if (*at == NULL || !(*at)->is_pinned) { abort(); }
    fake.pinned_bytes -= (*at)->n_bytes;
    remove_range(at);
    FAKE_CALL();
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n_bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    FAKE_CALL();
    const void *device_side = kind == cudaMemcpyDeviceToHost ? src : dst;
    if (!is_device(device_side, n_bytes)) { return fake_set_error(cudaErrorInvalidValue); }
    if (kind == cudaMemcpyDeviceToDevice) {
        if (!is_device(src, n_bytes)) { return fake_set_error(cudaErrorInvalidValue); }
    } else if (!is_pinned(kind == cudaMemcpyDeviceToHost ? dst : src, n_bytes)) {
        fake.n_pageable_copies++;
    }
    const fake_command c = {.kind = FAKE_COPY, .dst = dst, .src = src, .n_bytes = n_bytes};
    return fake_issue(stream, &c);
}

/* ---- the driver's calls ------------------------------------------------------------------------ */

#define FAKE_DRIVER_CALL()                                                                                             \
    do {                                                                                                               \
        if (fake_begin(__func__) != cudaSuccess) {                                                                     \
            last_error = cudaSuccess;    /* the runtime does not remember the driver's */                              \
            return (CUresult)fake.error; /* the driver has the same numbers */                                         \
        }                                                                                                              \
    } while (0)

static void drop_piece(piece *p) {
    if (--p->n_holders > 0) { return; }
    fake.used_bytes -= p->n_bytes;
    fake.n_live--;
    free(p);
}

static CUresult mem_granularity(size_t *granularity, const CUmemAllocationProp *prop,
                                CUmemAllocationGranularity_flags option) {
    (void)option;
    FAKE_DRIVER_CALL();
    if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) { return CUDA_ERROR_INVALID_VALUE; }
    *granularity = fake.granule_bytes;
    return CUDA_SUCCESS;
}

static CUresult mem_create(CUmemGenericAllocationHandle *handle, size_t n_bytes, const CUmemAllocationProp *prop,
                           unsigned long long flags) {
    (void)prop;
    (void)flags;
    FAKE_DRIVER_CALL();
    if (n_bytes == 0 || n_bytes % fake.granule_bytes != 0) { return CUDA_ERROR_INVALID_VALUE; }
    if (!is_room(n_bytes)) { return CUDA_ERROR_OUT_OF_MEMORY; }
    piece *p = calloc(1, sizeof *p);
    *p = (piece){.n_bytes = n_bytes, .n_holders = 1};
    fake.used_bytes += n_bytes;
    if (fake.used_bytes > fake.most_used_bytes) { fake.most_used_bytes = fake.used_bytes; }
    fake.n_live++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)p;
    return CUDA_SUCCESS;
}

static CUresult mem_release(CUmemGenericAllocationHandle handle) {
    drop_piece((piece *)(uintptr_t)handle);
    FAKE_DRIVER_CALL();
    return CUDA_SUCCESS;
}

static CUresult mem_reserve(CUdeviceptr *ptr, size_t n_bytes, size_t alignment, CUdeviceptr address,
                            unsigned long long flags) {
    (void)alignment;
    (void)address;
    (void)flags;
    FAKE_DRIVER_CALL();
    *ptr = (CUdeviceptr)(uintptr_t)add_range(n_bytes)->base;
    return CUDA_SUCCESS;
}

static CUresult mem_address_free(CUdeviceptr ptr, size_t n_bytes) {
    range **at = find_range((void *)(uintptr_t)ptr);
    if (*at == NULL || (*at)->n_bytes != n_bytes || (*at)->piece != NULL) { abort(); }
    remove_range(at);
    FAKE_DRIVER_CALL();
    return CUDA_SUCCESS;
}

static CUresult mem_map(CUdeviceptr ptr, size_t n_bytes, size_t offset, CUmemGenericAllocationHandle handle,
                        unsigned long long flags) {
    (void)offset;
    (void)flags;
    FAKE_DRIVER_CALL();
    range *r = *find_range((void *)(uintptr_t)ptr);
    piece *p = (piece *)(uintptr_t)handle;
    if (r == NULL || r->n_bytes != n_bytes || p->n_bytes != n_bytes || r->piece != NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    p->n_holders++;
    r->piece = p;
    return CUDA_SUCCESS;
}

static CUresult mem_unmap(CUdeviceptr ptr, size_t n_bytes) {
    range *r = *find_range((void *)(uintptr_t)ptr);
    if (r == NULL || r->n_bytes != n_bytes || r->piece == NULL) { abort(); }
    if (!fake_is_idle()) { abort(); } /* the driver waits for no one */
    drop_piece(r->piece);
    r->piece = NULL;
    r->is_open = false;
    FAKE_DRIVER_CALL();
    return CUDA_SUCCESS;
}

static CUresult mem_set_access(CUdeviceptr ptr, size_t n_bytes, const CUmemAccessDesc *desc, size_t count) {
    FAKE_DRIVER_CALL();
    range *r = *find_range((void *)(uintptr_t)ptr);
    if (r == NULL || r->n_bytes != n_bytes || r->piece == NULL || count != 1) { return CUDA_ERROR_INVALID_VALUE; }
    r->is_open = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

static CUresult error_text(CUresult error, const char **text) {
    (void)error;
    *text = "what the test wants to go wrong in the driver";
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **fn, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result) {
    static const struct {
        const char *name;
        void (*fn)(void);
    } table[] = {
        {"cuMemAddressReserve", (void (*)(void))mem_reserve},
        {"cuMemAddressFree", (void (*)(void))mem_address_free},
        {"cuMemCreate", (void (*)(void))mem_create},
        {"cuMemRelease", (void (*)(void))mem_release},
        {"cuMemMap", (void (*)(void))mem_map},
        {"cuMemUnmap", (void (*)(void))mem_unmap},
        {"cuMemSetAccess", (void (*)(void))mem_set_access},
        {"cuMemGetAllocationGranularity", (void (*)(void))mem_granularity},
        {"cuGetErrorString", (void (*)(void))error_text},
    };
    (void)version;
    (void)flags;
    FAKE_CALL();
    *result = cudaDriverEntryPointSymbolNotFound;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(name, table[i].name) != 0) { continue; }
        memcpy(fn, &table[i].fn, sizeof *fn);
        *result = cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(const char *name, void **fn, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult *result) {
    return cudaGetDriverEntryPointByVersion(name, fn, 12000, flags, result);
}
