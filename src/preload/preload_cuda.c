/* SPDX-License-Identifier: Apache-2.0
 *
 * In front of CUDA's memory, the runtime's and the driver's, without its headers: the functions' types are its ABI. A
 * program may reach them by its link, by dlsym, or by cuGetProcAddress; each way ends at the wrapper, which calls what
 * that way would have found. The runtime calls the driver: the inner call is let through unrecorded.
 *
 * All sizes that a program can be told are under the limit, where there is one.
 */
#include "preload/cuda_activity.h"
#include "preload/preload.h"

#include <stdatomic.h>

enum { CUDA_OK = 0, CUDA_OUT_OF_MEMORY = 2, CUDA_NOT_THERE = 3 };
enum { PER_THREAD_STREAM = 2 }; /* a flag of cuGetProcAddress */
enum { LOCATION_DEVICE = 1 };   /* of memory that cuMemCreate makes */
enum { TOTAL_AT = 288 };        /* in what describes a device: its memory's bytes, in all versions from 10 on */
enum { FIRST_64_BIT_VERSION = 3020, FIRST_FIVE_ARGUMENTS = 12000 };

/* What CUmemAllocationProp begins with. */
typedef struct allocation_prop {
    int type, handle_types, location_type, location_id;
} allocation_prop;

/* cudaExtent. */
typedef struct extent {
    size_t width, height, depth;
} extent;

typedef struct function {
    const char *name;      /* as it is exported */
    const char *base_name; /* as cuGetProcAddress has it; NULL: the same */
    void *wrapper;
    _Atomic(void *) real;
} function;

static void *find_real(const char *name);

#define REAL(name, ...)                                                                                                \
    int (*real)(__VA_ARGS__) = NULL;                                                                                   \
    ebb__preload_activity_start();                                                                                     \
    *(void **)&real = find_real(#name);                                                                                \
    if (real == NULL) { return CUDA_NOT_THERE; }

static bool is_runtime(const char *name) {
    return strncmp(name, "cuda", 4) == 0;
}

/* The space of the device that this thread works on. */
static uint32_t current_device(bool runtime) {
    static _Atomic(void *) known[2];
    int (*get)(int *) = NULL;
    int device = 0;
    void *found = atomic_load(&known[runtime]);
    if (found == NULL) {
        atomic_store(&known[runtime], found = find_real(runtime ? "cudaGetDevice" : "cuCtxGetDevice"));
    }
    memcpy(&get, &found, sizeof get);
    if (get == NULL || get(&device) != CUDA_OK || device < 0) { return PRELOAD_DEVICE; }
    return PRELOAD_DEVICE + (uint32_t)device;
}

/* A function that gives memory: its address or handle goes to *out. SPACE and SIZE may use its parameters; TAKEN is
 * what it took, KEY under what it is freed. */
#define TAKES(name, space, size, taken, key, params, args)                                                             \
    PRELOAD_EXPORT int name params;                                                                                    \
    int name params {                                                                                                  \
        REAL(name, PARAMS params)                                                                                      \
        const uint64_t asked_bytes = (size);                                                                           \
        const uint32_t in_space = ebb__preload_counts(asked_bytes) ? (space) : PRELOAD_MAX_SPACES;                     \
        const preload_answer answer = ebb__preload_ask(in_space, asked_bytes);                                         \
        if (answer == PRELOAD_REFUSE) { return CUDA_OUT_OF_MEMORY; }                                                   \
        const int status = real args;                                                                                  \
        if (answer == PRELOAD_RECORD) {                                                                                \
            ebb__preload_done(in_space, status == CUDA_OK ? (key) : 0, asked_bytes, (taken));                          \
        }                                                                                                              \
        return status;                                                                                                 \
    }
#define PARAMS(...) __VA_ARGS__

#define GIVES(name, params, args)                                                                                      \
    PRELOAD_EXPORT int name params;                                                                                    \
    int name params {                                                                                                  \
        REAL(name, PARAMS params)                                                                                      \
        preload_block was;                                                                                             \
        const bool had = ebb__preload_may_be(at) && ebb__preload_take(at, &was);                                       \
        const int status = real args;                                                                                  \
        if (status != CUDA_OK && had) { ebb__preload_give_back(&was); }                                                \
        return status;                                                                                                 \
    }

#define RUNTIME current_device(true)
#define DRIVER current_device(false)

TAKES(cudaMalloc, RUNTIME, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes), (out, n_bytes))
TAKES(cudaMallocAsync, RUNTIME, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, void *stream),
      (out, n_bytes, stream))
TAKES(cudaMallocAsync_ptsz, RUNTIME, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, void *stream),
      (out, n_bytes, stream))
TAKES(cudaMallocFromPoolAsync, RUNTIME, n_bytes, n_bytes, *out,
      (uint64_t * out, size_t n_bytes, void *pool, void *stream), (out, n_bytes, pool, stream))
TAKES(cudaMallocFromPoolAsync_ptsz, RUNTIME, n_bytes, n_bytes, *out,
      (uint64_t * out, size_t n_bytes, void *pool, void *stream), (out, n_bytes, pool, stream))
TAKES(cudaMallocPitch, RUNTIME, (width) * (height), (*pitch) * (height), *out,
      (uint64_t * out, size_t *pitch, size_t width, size_t height), (out, pitch, width, height))
/* *out begins with the address and the pitch. */
TAKES(cudaMalloc3D, RUNTIME, (size.width) * (size.height) * (size.depth), (out[1]) * (size.height) * (size.depth), *out,
      (uint64_t * out, extent size), (out, size))
TAKES(cudaMallocManaged, PRELOAD_MANAGED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, unsigned flags),
      (out, n_bytes, flags))
TAKES(cudaMallocHost, PRELOAD_PINNED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes), (out, n_bytes))
TAKES(cudaHostAlloc, PRELOAD_PINNED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, unsigned flags),
      (out, n_bytes, flags))
TAKES(cuMemAlloc_v2, DRIVER, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes), (out, n_bytes))
TAKES(cuMemAllocPitch_v2, DRIVER, (width) * (height), (*pitch) * (height), *out,
      (uint64_t * out, size_t *pitch, size_t width, size_t height, unsigned elem_bytes),
      (out, pitch, width, height, elem_bytes))
TAKES(cuMemAllocManaged, PRELOAD_MANAGED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, unsigned flags),
      (out, n_bytes, flags))
TAKES(cuMemAllocHost_v2, PRELOAD_PINNED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes), (out, n_bytes))
TAKES(cuMemAllocHost, PRELOAD_PINNED, n_bytes, n_bytes, *out, (uint64_t * out, unsigned n_bytes), (out, n_bytes))
TAKES(cuMemHostAlloc, PRELOAD_PINNED, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, unsigned flags),
      (out, n_bytes, flags))
TAKES(cuMemAllocAsync, DRIVER, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, void *stream),
      (out, n_bytes, stream))
TAKES(cuMemAllocAsync_ptsz, DRIVER, n_bytes, n_bytes, *out, (uint64_t * out, size_t n_bytes, void *stream),
      (out, n_bytes, stream))
TAKES(cuMemAllocFromPoolAsync, DRIVER, n_bytes, n_bytes, *out,
      (uint64_t * out, size_t n_bytes, void *pool, void *stream), (out, n_bytes, pool, stream))
TAKES(cuMemAllocFromPoolAsync_ptsz, DRIVER, n_bytes, n_bytes, *out,
      (uint64_t * out, size_t n_bytes, void *pool, void *stream), (out, n_bytes, pool, stream))

static uint32_t space_of_prop(const allocation_prop *prop) {
    if (prop->location_type != LOCATION_DEVICE) { return PRELOAD_PINNED; }
    return prop->location_id >= 0 ? PRELOAD_DEVICE + (uint32_t)prop->location_id : PRELOAD_DEVICE;
}
TAKES(cuMemCreate, space_of_prop(prop), n_bytes, n_bytes, *out | PRELOAD_HANDLE,
      (uint64_t * out, size_t n_bytes, const allocation_prop *prop, unsigned long long flags),
      (out, n_bytes, prop, flags))

GIVES(cudaFree, (uint64_t at), (at))
GIVES(cudaFreeAsync, (uint64_t at, void *stream), (at, stream))
GIVES(cudaFreeAsync_ptsz, (uint64_t at, void *stream), (at, stream))
GIVES(cudaFreeHost, (uint64_t at), (at))
GIVES(cuMemFree_v2, (uint64_t at), (at))
GIVES(cuMemFreeHost, (uint64_t at), (at))
GIVES(cuMemFreeAsync, (uint64_t at, void *stream), (at, stream))
GIVES(cuMemFreeAsync_ptsz, (uint64_t at, void *stream), (at, stream))

/* ---- physical handles ---------------------------------------------------------------------------- */

PRELOAD_EXPORT int cuMemMap(uint64_t at, size_t n_bytes, size_t offset, uint64_t handle, unsigned long long flags);
PRELOAD_EXPORT int cuMemUnmap(uint64_t at, size_t n_bytes);
PRELOAD_EXPORT int cuMemRelease(uint64_t handle);
PRELOAD_EXPORT int cuMemRetainAllocationHandle(uint64_t *out, void *at);

int cuMemMap(uint64_t at, size_t n_bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    REAL(cuMemMap, uint64_t, size_t, size_t, uint64_t, unsigned long long)
    const int status = real(at, n_bytes, offset, handle, flags);
    if (status == CUDA_OK) { ebb__preload_handle_mapped(at, n_bytes, handle); }
    return status;
}

int cuMemUnmap(uint64_t at, size_t n_bytes) {
    REAL(cuMemUnmap, uint64_t, size_t)
    const int status = real(at, n_bytes);
    if (status == CUDA_OK) { ebb__preload_handle_unmapped(at, n_bytes); } /* its views know which handle's block */
    return status;
}

int cuMemRelease(uint64_t handle) {
    REAL(cuMemRelease, uint64_t)
    const uint64_t block = ebb__preload_handle_block(handle);
    const int status = real(handle);
    if (status == CUDA_OK) { ebb__preload_handle_released(handle, block); }
    return status;
}

int cuMemRetainAllocationHandle(uint64_t *out, void *at) {
    REAL(cuMemRetainAllocationHandle, uint64_t *, void *)
    const int status = real(out, at);
    if (status == CUDA_OK) { ebb__preload_handle_retained(*out); }
    return status;
}

/* ---- all of a device at once --------------------------------------------------------------------- */

PRELOAD_EXPORT int cudaDeviceReset(void);
PRELOAD_EXPORT int cuDevicePrimaryCtxReset_v2(int device);

int cudaDeviceReset(void) {
    REAL(cudaDeviceReset, void)
    const uint32_t space = RUNTIME;
    const int status = real();
    if (status == CUDA_OK) { ebb__preload_reset(space); }
    return status;
}

int cuDevicePrimaryCtxReset_v2(int device) {
    REAL(cuDevicePrimaryCtxReset_v2, int)
    const int status = real(device);
    if (status == CUDA_OK && device >= 0) { ebb__preload_reset(PRELOAD_DEVICE + (uint32_t)device); }
    return status;
}

/* ---- how much there is --------------------------------------------------------------------------- */

PRELOAD_EXPORT int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
PRELOAD_EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
PRELOAD_EXPORT int cuDeviceTotalMem_v2(size_t *total_bytes, int device);
PRELOAD_EXPORT int cudaGetDeviceProperties(uint8_t *properties, int device);
PRELOAD_EXPORT int cudaGetDeviceProperties_v2(uint8_t *properties, int device);

int cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    REAL(cudaMemGetInfo, size_t *, size_t *)
    const int status = real(free_bytes, total_bytes);
    if (status == CUDA_OK) { ebb__preload_shrink(RUNTIME, free_bytes, total_bytes); }
    return status;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    REAL(cuMemGetInfo_v2, size_t *, size_t *)
    const int status = real(free_bytes, total_bytes);
    if (status == CUDA_OK) { ebb__preload_shrink(DRIVER, free_bytes, total_bytes); }
    return status;
}

static void shrink_total(size_t *total_bytes) {
    uint64_t rest = UINT64_MAX;
    ebb__preload_shrink(PRELOAD_DEVICE, &rest, total_bytes);
}

int cuDeviceTotalMem_v2(size_t *total_bytes, int device) {
    REAL(cuDeviceTotalMem_v2, size_t *, int)
    const int status = real(total_bytes, device);
    if (status == CUDA_OK) { shrink_total(total_bytes); }
    return status;
}

int cudaGetDeviceProperties(uint8_t *properties, int device) {
    REAL(cudaGetDeviceProperties, uint8_t *, int)
    const int status = real(properties, device);
    if (status == CUDA_OK) { shrink_total((size_t *)(void *)(properties + TOTAL_AT)); }
    return status;
}

int cudaGetDeviceProperties_v2(uint8_t *properties, int device) {
    REAL(cudaGetDeviceProperties_v2, uint8_t *, int)
    const int status = real(properties, device);
    if (status == CUDA_OK) { shrink_total((size_t *)(void *)(properties + TOTAL_AT)); }
    return status;
}

/* ---- the table ----------------------------------------------------------------------------------- */

/* Below, after the table that they look at. */
PRELOAD_EXPORT int cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags);
PRELOAD_EXPORT int cuGetProcAddress_v2(const char *symbol, void **out, int version, uint64_t flags, int *found);
PRELOAD_EXPORT int cudaGetDriverEntryPoint(const char *symbol, void **out, uint64_t flags, int *found);
PRELOAD_EXPORT int cudaGetDriverEntryPoint_ptsz(const char *symbol, void **out, uint64_t flags, int *found);
PRELOAD_EXPORT int cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version, uint64_t flags,
                                                    int *found);
PRELOAD_EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **out, unsigned version,
                                                         uint64_t flags, int *found);

#define SAME(name)                                                                                                     \
    { #name, NULL, (void *)(name), NULL }
#define BASE(name, base)                                                                                               \
    { #name, base, (void *)(name), NULL }
static function functions[] = {
    SAME(cudaMalloc),
    SAME(cudaMallocAsync),
    SAME(cudaMallocAsync_ptsz),
    SAME(cudaMallocFromPoolAsync),
    SAME(cudaMallocFromPoolAsync_ptsz),
    SAME(cudaMallocPitch),
    SAME(cudaMalloc3D),
    SAME(cudaMallocManaged),
    SAME(cudaMallocHost),
    SAME(cudaHostAlloc),
    SAME(cudaFree),
    SAME(cudaFreeAsync),
    SAME(cudaFreeAsync_ptsz),
    SAME(cudaFreeHost),
    SAME(cudaDeviceReset),
    SAME(cudaMemGetInfo),
    SAME(cudaGetDeviceProperties),
    SAME(cudaGetDeviceProperties_v2),
    SAME(cudaGetDriverEntryPoint),
    SAME(cudaGetDriverEntryPoint_ptsz),
    SAME(cudaGetDriverEntryPointByVersion),
    SAME(cudaGetDriverEntryPointByVersion_ptsz),
    BASE(cuMemAlloc_v2, "cuMemAlloc"),
    BASE(cuMemAllocPitch_v2, "cuMemAllocPitch"),
    SAME(cuMemAllocManaged),
    BASE(cuMemAllocHost_v2, "cuMemAllocHost"),
    SAME(cuMemAllocHost), /* after its successor, which has the same base name */
    SAME(cuMemHostAlloc),
    SAME(cuMemAllocAsync),
    BASE(cuMemAllocAsync_ptsz, "cuMemAllocAsync"),
    SAME(cuMemAllocFromPoolAsync),
    BASE(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync"),
    BASE(cuMemFree_v2, "cuMemFree"),
    SAME(cuMemFreeHost),
    SAME(cuMemFreeAsync),
    BASE(cuMemFreeAsync_ptsz, "cuMemFreeAsync"),
    SAME(cuMemCreate),
    SAME(cuMemMap),
    SAME(cuMemUnmap),
    SAME(cuMemRelease),
    SAME(cuMemRetainAllocationHandle),
    BASE(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset"),
    BASE(cuMemGetInfo_v2, "cuMemGetInfo"),
    BASE(cuDeviceTotalMem_v2, "cuDeviceTotalMem"),
    SAME(cuGetProcAddress),
    SAME(cuGetProcAddress_v2),
};
#define N_FUNCTIONS (sizeof functions / sizeof functions[0])

static function *find_function(const char *name) {
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        if (strcmp(functions[i].name, name) == 0) { return &functions[i]; }
    }
    return NULL;
}

/* What the program's own way found; else what its link would find, also in a library that only a part of it sees. */
static void *find_real(const char *name) {
    function *f = find_function(name);
    void *real = f != NULL ? atomic_load(&f->real) : NULL;
    if (real != NULL) { return real; }
    real = ebb__preload_next(name);
    if (real == NULL) { real = ebb__preload_in_library(is_runtime(name) ? "libcudart.so" : "libcuda.so", name); }
    if (f != NULL && real != NULL) { atomic_store(&f->real, real); }
    return real;
}

void *ebb__preload_cuda_wrap(const char *name, void *real) {
    function *f = find_function(name);
    if (f == NULL) { return NULL; }
    EBB_ASSERT(real != NULL);
    if (real != f->wrapper) { atomic_store(&f->real, real); }
    return f->wrapper;
}

/* The function with this base name for the program's kind of stream. */
static function *find_base(const char *name, int version, uint64_t flags) {
    if (strcmp(name, "cuGetProcAddress") == 0) {
        return find_function(version >= FIRST_FIVE_ARGUMENTS ? "cuGetProcAddress_v2" : name);
    }
    function *found = NULL;
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        function *f = &functions[i];
        const size_t n = strlen(f->name);
        const bool is_per_thread = n > 5 && strcmp(f->name + n - 5, "_ptsz") == 0;
        const bool is_wanted = strcmp(f->base_name != NULL ? f->base_name : f->name, name) == 0;
        if (!is_wanted || is_runtime(name) || (is_per_thread && (flags & PER_THREAD_STREAM) == 0)) { continue; }
        if (found == NULL || is_per_thread) { found = f; }
    }
    return found;
}

static void wrap_found(const char *name, void **out, int version, uint64_t flags) {
    if (name == NULL || out == NULL || *out == NULL || version < FIRST_64_BIT_VERSION) { return; }
    function *f = find_base(name, version, flags);
    if (f == NULL || *out == f->wrapper) { return; }
    atomic_store(&f->real, *out);
    *out = f->wrapper;
}

/* The runtime's version, where a function has none among its parameters. */
static int runtime_version(void) {
    int (*get)(int *) = NULL;
    int version = 0;
    *(void **)&get = find_real("cudaRuntimeGetVersion");
    return get != NULL && get(&version) == CUDA_OK ? version : FIRST_FIVE_ARGUMENTS;
}

/* In programs whose streams are each thread's own unless they say so. */
static uint64_t or_per_thread(uint64_t flags) {
    return flags == 0 ? PER_THREAD_STREAM : flags;
}

/* A function that finds functions of the driver. WANTED: for which kind of stream. */
#define FINDS(name, version, wanted, params, args)                                                                     \
    int name params {                                                                                                  \
        REAL(name, PARAMS params)                                                                                      \
        const int status = real args;                                                                                  \
        if (status == CUDA_OK) { wrap_found(symbol, out, (int)(version), (wanted)); }                                  \
        return status;                                                                                                 \
    }

FINDS(cuGetProcAddress, version, flags, (const char *symbol, void **out, int version, uint64_t flags),
      (symbol, out, version, flags))
FINDS(cuGetProcAddress_v2, version, flags, (const char *symbol, void **out, int version, uint64_t flags, int *found),
      (symbol, out, version, flags, found))
FINDS(cudaGetDriverEntryPoint, runtime_version(), flags, (const char *symbol, void **out, uint64_t flags, int *found),
      (symbol, out, flags, found))
FINDS(cudaGetDriverEntryPoint_ptsz, runtime_version(), or_per_thread(flags),
      (const char *symbol, void **out, uint64_t flags, int *found), (symbol, out, flags, found))
FINDS(cudaGetDriverEntryPointByVersion, version, flags,
      (const char *symbol, void **out, unsigned version, uint64_t flags, int *found),
      (symbol, out, version, flags, found))
FINDS(cudaGetDriverEntryPointByVersion_ptsz, version, or_per_thread(flags),
      (const char *symbol, void **out, unsigned version, uint64_t flags, int *found),
      (symbol, out, version, flags, found))
