/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA that has no device, for test_record.sh: with -DRUNTIME the runtime's library, which finds the driver as the
 * real one does (dlopen, dlsym, cuGetProcAddress), else the driver's. Addresses are numbers; each allocation takes some
 * host memory as well, as the real ones do. Without CUDA's headers; cuda_family.c is compiled with them.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

#ifdef RUNTIME

typedef struct extent {
    size_t width, height, depth;
} extent;

static int (*get_proc)(const char *, void **, int, uint64_t, int *);

/* The driver's function of this name; each time anew, for programs that have both kinds of streams. */
static void *driver(const char *name, uint64_t flags) {
    void *found = NULL;
    int how = 0;
    if (get_proc == NULL) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        *(void **)&get_proc = dlsym(library, "cuGetProcAddress_v2");
        get_proc("cuGetProcAddress", (void **)&get_proc, 12000, 0, &how);
    }
    get_proc(name, &found, 12000, flags, &how);
    return found;
}

#define CALL(name, flags, types, args) (*(int(**) types)(void *[]){driver(name, flags)}) args

EXPORT int cudaRuntimeGetVersion(int *version) {
    *version = 12000;
    return 0;
}

EXPORT int cudaGetDevice(int *device) {
    *device = 1;
    return 0;
}

EXPORT int cudaMalloc(uint64_t *out, size_t n) {
    return CALL("cuMemAlloc", 0, (uint64_t *, size_t), (out, n));
}

EXPORT int cudaMallocPitch(uint64_t *out, size_t *pitch, size_t width, size_t height) {
    return CALL("cuMemAllocPitch", 0, (uint64_t *, size_t *, size_t, size_t, unsigned), (out, pitch, width, height, 4));
}

EXPORT int cudaMalloc3D(uint64_t *out, extent size) {
    out[2] = size.width;
    out[3] = size.height;
    return cudaMallocPitch(&out[0], &out[1], size.width, size.height * size.depth);
}

EXPORT int cudaMallocManaged(uint64_t *out, size_t n, unsigned flags) {
    return CALL("cuMemAllocManaged", 0, (uint64_t *, size_t, unsigned), (out, n, flags));
}

EXPORT int cudaMallocHost(uint64_t *out, size_t n) {
    return CALL("cuMemHostAlloc", 0, (uint64_t *, size_t, unsigned), (out, n, 0));
}

EXPORT int cudaHostAlloc(uint64_t *out, size_t n, unsigned flags) {
    return CALL("cuMemHostAlloc", 0, (uint64_t *, size_t, unsigned), (out, n, flags));
}

EXPORT int cudaFree(uint64_t at) {
    return at == 0 ? 0 : CALL("cuMemFree", 0, (uint64_t), (at));
}

EXPORT int cudaFreeHost(uint64_t at) {
    return CALL("cuMemFreeHost", 0, (uint64_t), (at));
}

#define STREAMS(suffix, flags)                                                                                         \
    EXPORT int cudaMallocAsync##suffix(uint64_t *out, size_t n, void *stream) {                                        \
        return CALL("cuMemAllocAsync", flags, (uint64_t *, size_t, void *), (out, n, stream));                         \
    }                                                                                                                  \
    EXPORT int cudaMallocFromPoolAsync##suffix(uint64_t *out, size_t n, void *pool, void *stream) {                    \
        return CALL("cuMemAllocFromPoolAsync", flags, (uint64_t *, size_t, void *, void *), (out, n, pool, stream));   \
    }                                                                                                                  \
    EXPORT int cudaFreeAsync##suffix(uint64_t at, void *stream) {                                                      \
        return CALL("cuMemFreeAsync", flags, (uint64_t, void *), (at, stream));                                        \
    }                                                                                                                  \
    EXPORT int cudaGetDriverEntryPointByVersion##suffix(const char *name, void **out, unsigned version,                \
                                                        uint64_t wanted, int *found) {                                 \
        (void)driver("cuMemAlloc", 0);                                                                                 \
        return get_proc(name, out, (int)version, wanted == 0 ? flags : wanted, found);                                 \
    }                                                                                                                  \
    EXPORT int cudaGetDriverEntryPoint##suffix(const char *name, void **out, uint64_t wanted, int *found) {            \
        return cudaGetDriverEntryPointByVersion##suffix(name, out, 12000, wanted, found);                              \
    }
STREAMS(, 0)
STREAMS(_ptsz, 2)

EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return CALL("cuMemGetInfo", 0, (size_t *, size_t *), (free_bytes, total_bytes));
}

EXPORT int cudaGetDeviceProperties(char *properties, int device) {
    size_t n = 0;
    const int status = CALL("cuDeviceTotalMem", 0, (size_t *, int), (&n, device));
    memcpy(properties + 288, &n, sizeof n);
    return status;
}

EXPORT int cudaDeviceReset(void) {
    return CALL("cuDevicePrimaryCtxReset", 0, (int), (1));
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

EXPORT int cuMemAllocPitch_v2(uint64_t *out, size_t *pitch, size_t width, size_t height, unsigned n_bytes) {
    *pitch = (width + 511) / 512 * 512;
    *out = take(*pitch * height);
    return n_bytes == 0;
}

EXPORT int cuMemAllocManaged(uint64_t *out, size_t n, unsigned flags) {
    return cuMemAlloc_v2(out, n) + (flags == 0);
}

EXPORT int cuMemFree_v2(uint64_t at) {
    return at == 0;
}

#define STREAMS(suffix)                                                                                                \
    EXPORT int cuMemAllocAsync##suffix(uint64_t *out, size_t n, void *stream) {                                        \
        (void)stream;                                                                                                  \
        return cuMemAlloc_v2(out, n);                                                                                  \
    }                                                                                                                  \
    EXPORT int cuMemAllocFromPoolAsync##suffix(uint64_t *out, size_t n, void *pool, void *stream) {                    \
        (void)pool;                                                                                                    \
        (void)stream;                                                                                                  \
        return cuMemAlloc_v2(out, n);                                                                                  \
    }                                                                                                                  \
    EXPORT int cuMemFreeAsync##suffix(uint64_t at, void *stream) {                                                     \
        (void)stream;                                                                                                  \
        return at == 0;                                                                                                \
    }
STREAMS()
STREAMS(_ptsz)

EXPORT int cuMemHostAlloc(uint64_t *out, size_t n, unsigned flags) {
    (void)flags;
    *out = (uintptr_t)malloc(n);
    return 0;
}

EXPORT int cuMemAllocHost_v2(uint64_t *out, size_t n) {
    return cuMemHostAlloc(out, n, 0);
}

EXPORT int cuMemAllocHost(uint64_t *out, unsigned n) {
    return cuMemHostAlloc(out, n, 0);
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

static uint64_t last_mapped;

EXPORT int cuMemMap(uint64_t at, size_t n, size_t offset, uint64_t handle, unsigned long long flags) {
    (void)n;
    (void)offset;
    (void)flags;
    last_mapped = handle;
    return at == 0 || handle == 0;
}

EXPORT int cuMemRetainAllocationHandle(uint64_t *out, void *at) {
    *out = last_mapped;
    return at == NULL;
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

EXPORT int cuDeviceTotalMem_v2(size_t *total_bytes, int device) {
    *total_bytes = (size_t)80 << 30;
    return device != 1;
}

EXPORT int cuDevicePrimaryCtxReset_v2(int device) {
    return device != 1;
}

EXPORT int cuGetProcAddress_v2(const char *name, void **out, int version, uint64_t flags, int *found) {
    char exported[64];
    static const char *const forms[] = {"_v2", ""};
    (void)version;
    *out = NULL;
    for (int i = flags == 2 ? -1 : 0; i < 2 && *out == NULL; i++) {
        strcpy(exported, name);
        strcat(exported, i < 0 ? "_ptsz" : forms[i]);
        *out = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), exported);
    }
    if (found != NULL) { *found = *out == NULL; }
    return *out == NULL;
}

#endif
