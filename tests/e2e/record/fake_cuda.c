/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA that has no device, for test_record.sh: with -DRUNTIME the runtime's library, which finds the driver as the
 * real one does (dlopen, dlsym, cuGetProcAddress), else the driver's. Addresses are numbers; each allocation takes some
 * host memory as well, as the real ones do.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef RUNTIME

static int (*get_proc)(const char *, void **, int, uint64_t, int *);
static int (*mem_alloc)(uint64_t *, size_t);
static int (*mem_free)(uint64_t);
static int (*host_alloc)(uint64_t *, size_t, unsigned);
static int (*host_free)(uint64_t);
static int (*mem_info)(size_t *, size_t *);

static void load(void) {
    int found = 0;
    if (get_proc != NULL) { return; }
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&get_proc = dlsym(driver, "cuGetProcAddress_v2");
    get_proc("cuGetProcAddress", (void **)&get_proc, 12000, 0, &found);
    get_proc("cuMemAlloc", (void **)&mem_alloc, 12000, 0, &found);
    get_proc("cuMemFree", (void **)&mem_free, 12000, 0, &found);
    get_proc("cuMemHostAlloc", (void **)&host_alloc, 12000, 0, &found);
    get_proc("cuMemFreeHost", (void **)&host_free, 12000, 0, &found);
    get_proc("cuMemGetInfo", (void **)&mem_info, 12000, 0, &found);
}

EXPORT int cudaGetDevice(int *device) {
    *device = 1;
    return 0;
}

EXPORT int cudaMalloc(uint64_t *out, size_t n) {
    load();
    return mem_alloc(out, n);
}

EXPORT int cudaMallocAsync(uint64_t *out, size_t n, void *stream) {
    (void)stream;
    return cudaMalloc(out, n);
}

EXPORT int cudaFree(uint64_t at) {
    load();
    return mem_free(at);
}

EXPORT int cudaFreeAsync(uint64_t at, void *stream) {
    (void)stream;
    return cudaFree(at);
}

EXPORT int cudaMallocHost(uint64_t *out, size_t n) {
    load();
    return host_alloc(out, n, 0);
}

EXPORT int cudaFreeHost(uint64_t at) {
    load();
    return host_free(at);
}

EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    load();
    return mem_info(free_bytes, total_bytes);
}

#else

static uint64_t next = 0x7000000000;
static void *own;

static uint64_t take(size_t n) {
    void *more = malloc(1 << 20);
    free(own);
    own = more;
    next += (n + 4095) / 4096 * 4096;
    return next - (n + 4095) / 4096 * 4096;
}

EXPORT int cuCtxGetDevice(int *device) {
    *device = 1;
    return 0;
}

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t n) {
    *out = take(n);
    return 0;
}

EXPORT int cuMemFree_v2(uint64_t at) {
    return at == 0;
}

EXPORT int cuMemAllocAsync(uint64_t *out, size_t n, void *stream) {
    (void)stream;
    return cuMemAlloc_v2(out, n);
}

EXPORT int cuMemAllocAsync_ptsz(uint64_t *out, size_t n, void *stream) {
    (void)stream;
    return cuMemAlloc_v2(out, n);
}

EXPORT int cuMemFreeAsync(uint64_t at, void *stream) {
    (void)stream;
    return at == 0;
}

EXPORT int cuMemHostAlloc(uint64_t *out, size_t n, unsigned flags) {
    (void)flags;
    *out = (uintptr_t)malloc(n);
    return 0;
}

EXPORT int cuMemFreeHost(uint64_t at) {
    free((void *)(uintptr_t)at);
    return 0;
}

EXPORT int cuMemCreate(uint64_t *out, size_t n, const int *prop, unsigned long long flags) {
    (void)prop;
    (void)flags;
    *out = take(n) >> 12;
    return 0;
}

EXPORT int cuMemMap(uint64_t at, size_t n, size_t offset, uint64_t handle, unsigned long long flags) {
    (void)n;
    (void)offset;
    (void)flags;
    return at == 0 || handle == 0;
}

EXPORT int cuMemUnmap(uint64_t at, size_t n) {
    (void)n;
    return at == 0;
}

EXPORT int cuMemRelease(uint64_t handle) {
    return handle == 0;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = (size_t)60 << 30;
    *total_bytes = (size_t)80 << 30;
    return 0;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    char exported[64];
    static const char *const forms[] = {"_v2", ""};
    (void)version;
    *out = NULL;
    for (int i = 0; i < 2 && *out == NULL; i++) {
        strcpy(exported, name);
        strcat(exported, flags == 2 && i == 0 ? "_ptsz" : forms[i]);
        *out = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), exported);
    }
    if (found != NULL) { *found = *out == NULL; }
    return *out == NULL;
}

#endif
