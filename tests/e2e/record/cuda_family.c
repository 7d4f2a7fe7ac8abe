/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function of CUDA that gives memory, as its own headers declare them, for test_record.sh: the i-th allocation is
 * of i times 100 KiB. The first argument says how functions are found: link (what the linker has), name (dlsym), entry
 * (the driver's through cuGetProcAddress), runtime (through cudaGetDriverEntryPointByVersion). Also compiled with
 * CUDA_API_PER_THREAD_DEFAULT_STREAM, which makes others of some.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define UNIT ((size_t)100 * 1024)
#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define STREAMS CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
#else
#define STREAMS CU_GET_PROC_ADDRESS_DEFAULT
#endif

static const char *way;
static void *driver, *runtime;
static CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);

/* The function as way has it; linked is what the linker has. */
static void *find(const char *exported, const char *name, void *linked) {
    void *found = NULL;
    const bool is_driver = strncmp(name, "cuda", 4) != 0;
    if (strcmp(way, "link") == 0) { return linked; }
    if (is_driver && strcmp(way, "entry") == 0) { get(name, &found, 12000, STREAMS, NULL); }
    if (is_driver && strcmp(way, "runtime") == 0) {
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, NULL);
    }
    return found != NULL ? found : dlsym(is_driver ? driver : runtime, exported);
}

#define F(name) ((__typeof__(&name))find(TEXT(name), #name, (void *)&name))

/* Sums of statuses: 0 where all is well. */
static int use_runtime(void) {
    void *at[8];
    struct cudaPitchedPtr cube;
    size_t pitch = 0;
    int wrong = F(cudaMalloc)(&at[0], 1 * UNIT) + F(cudaMallocAsync)(&at[1], 2 * UNIT, NULL);
    wrong += F(cudaMallocFromPoolAsync)(&at[2], 3 * UNIT, NULL, NULL);
    wrong += F(cudaMallocManaged)(&at[3], 4 * UNIT, cudaMemAttachGlobal);
    wrong += F(cudaMallocPitch)(&at[4], &pitch, 1000, 500); /* of 1024 bytes */
    wrong += F(cudaMalloc3D)(&cube, (struct cudaExtent){1000, 60, 10});
    wrong += F(cudaMallocHost)(&at[5], 7 * UNIT) + F(cudaHostAlloc)(&at[6], 8 * UNIT, cudaHostAllocPortable);
    wrong += F(cudaFree)(at[0]) + F(cudaFreeAsync)(at[1], NULL) + F(cudaFreeAsync)(at[2], NULL) + F(cudaFree)(at[3]);
    wrong += F(cudaFree)(at[4]) + F(cudaFree)(cube.ptr) + F(cudaFreeHost)(at[5]) + F(cudaFreeHost)(at[6]);
    return wrong + (pitch != 1024) + (cube.pitch != 1024);
}

static int use_driver(void) {
    CUdeviceptr at[5];
    void *host[2];
    size_t pitch = 0;
    int wrong = F(cuMemAlloc)(&at[0], 1 * UNIT) + F(cuMemAllocAsync)(&at[1], 2 * UNIT, NULL);
    wrong += F(cuMemAllocFromPoolAsync)(&at[2], 3 * UNIT, NULL, NULL);
    wrong += F(cuMemAllocManaged)(&at[3], 4 * UNIT, CU_MEM_ATTACH_GLOBAL);
    wrong += F(cuMemAllocPitch)(&at[4], &pitch, 1000, 500, 4);
    wrong += F(cuMemAllocHost)(&host[0], 6 * UNIT) + F(cuMemHostAlloc)(&host[1], 7 * UNIT, CU_MEMHOSTALLOC_PORTABLE);
    wrong += F(cuMemFree)(at[0]) + F(cuMemFreeAsync)(at[1], NULL) + F(cuMemFreeAsync)(at[2], NULL);
    wrong += F(cuMemFree)(at[3]) + F(cuMemFree)(at[4]) + F(cuMemFreeHost)(host[0]) + F(cuMemFreeHost)(host[1]);
    return wrong + (pitch != 1024);
}

/* A handle lives until it is released as often as made and retained, and mapped nowhere. */
static int use_handles(void) {
    CUmemGenericAllocationHandle handle = 0, same = 0;
    CUdeviceptr mark = 0;
    const CUdeviceptr at = 0x10000000;
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    prop.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 2};
    int wrong = F(cuMemCreate)(&handle, 80 * UNIT, &prop, 0) + F(cuMemMap)(at, 80 * UNIT, 0, handle, 0);
    wrong += F(cuMemRetainAllocationHandle)(&same, (void *)at) + F(cuMemRelease)(handle);
    wrong += F(cuMemUnmap)(at, 80 * UNIT);
    wrong += F(cuMemAlloc)(&mark, 90 * UNIT) + F(cuMemFree)(mark); /* while the handle lives */
    wrong += F(cuMemRelease)(same);
    wrong += F(cuMemAlloc)(&mark, 100 * UNIT) + F(cuMemFree)(mark); /* and no more */
    return wrong + (same != handle);
}

/* What there is, in MiB; and a device that is reset has nothing any more. */
static int use_device(void) {
    struct cudaDeviceProp properties = {0};
    size_t total = 0, rest = 0, driver_rest = 0, driver_total = 0, all = 0;
    void *at = NULL;
    int wrong = F(cudaMalloc)(&at, 11 * UNIT) + F(cudaMalloc)(&at, 12 * UNIT);
    wrong += F(cudaGetDeviceProperties)(&properties, 1) + F(cudaMemGetInfo)(&rest, &total);
    wrong += F(cuMemGetInfo)(&driver_rest, &driver_total) + F(cuDeviceTotalMem)(&all, 1);
    printf("%zu %zu %zu %zu %zu %zu\n", properties.totalGlobalMem >> 20, rest >> 20, total >> 20, driver_rest >> 20,
           driver_total >> 20, all >> 20);
    return wrong + F(cudaDeviceReset)();
}

int main(int argc, char **argv) {
    way = argc > 1 ? argv[1] : "link";
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    return use_runtime() + use_driver() + use_handles() + use_device();
}
