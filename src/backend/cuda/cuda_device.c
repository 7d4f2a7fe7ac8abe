/* SPDX-License-Identifier: Apache-2.0
 *
 * The device and its table: which GPU, what it can, and what of its memory is gone before ebb takes any.
 */
#include "backend/cuda/cuda_priv.h"
#include "backend/plugin.h"

#include <sched.h>

/* EBB_E_NO_DEVICE for all errors that say that no GPU can be used here: none is there, or this build has no code for
 * it. */
static ebb_status code_of(cudaError_t error) {
    switch (error) {
    case cudaErrorMemoryAllocation: return EBB_E_NO_MEMORY;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion: return EBB_E_NO_DEVICE;
    default: return EBB_E_DEVICE;
    }
}

ebb_status ebb__cuda_fail(cudaError_t error, const char *what) {
    (void)cudaGetLastError(); /* what it remembers would fail the next launch */
    return ebb_fail(code_of(error), "cuda: %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

ebb_status ebb__cuda_enter(const ebb_cuda_device *device) {
    EBB_CUDA(cudaSetDevice(device->index), "choosing the device");
    return EBB_OK;
}

/* ---- opening ----------------------------------------------------------------------------------- */

static ebb_status check_driver(void) {
    int driver = 0;
    EBB_CUDA(cudaDriverGetVersion(&driver), "asking for the driver's version");
    if (driver == 0) {
        return ebb_fail(EBB_E_NO_DEVICE,
                        "cuda: there is no NVIDIA driver (libcuda.so.1) on this machine; install one "
                        "that is made for CUDA %d.%d or later",
                        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    if (driver / 1000 < CUDART_VERSION / 1000) {
        return ebb_fail(EBB_E_NO_DEVICE,
                        "cuda: the NVIDIA driver is made for CUDA %d.%d; install one for %d.%d or later", driver / 1000,
                        driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    }
    return EBB_OK;
}

static ebb_status check_index(int index) {
    int n_devices = 0;
    EBB_TRY(check_driver());
    cudaError_t error = cudaGetDeviceCount(&n_devices);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && n_devices == 0)) {
        (void)cudaGetLastError();
        return ebb_fail(EBB_E_NO_DEVICE, "cuda: there is a driver, but it finds no GPU on this machine");
    }
    EBB_CUDA(error, "looking for GPUs");
    if (index < 0 || index >= n_devices) {
        return ebb_fail(EBB_E_NO_DEVICE, "cuda: no device %d; there are %d, from 0", index, n_devices);
    }
    return EBB_OK;
}

static void close_device(ebb_device *base) {
    if (base == NULL) { return; }
    ebb_cuda_device *device = ebb__cuda_of(base);
    (void)ebb__cuda_enter(device);
    ebb__cuda_capture_abandon(device);
    ebb__cuda_capture_forget(device, NULL);
    ebb__cuda_libraries_fini(device);
    ebb__cuda_layouts_fini(device);
    if (device->states != NULL) { (void)cudaFree(device->states); }
    ebb__cuda_anchor_fini(device);
    if (device->stream != NULL) { (void)cudaStreamDestroy(device->stream); }
    (void)cudaGetLastError();
    ebb__free(base->mem, device);
}

/* A kernel at once: a GPU that this build has no code for is known before anything is planned for it. */
static ebb_status try_kernel(ebb_cuda_device *device) {
    const ebb_cuda_set_state_args args = {.dst = device->states};
    EBB_CUDA(ebb__cuda_launch_set_state(device->stream, &args, 1), "the first kernel");
    EBB_CUDA(cudaStreamSynchronize(device->stream), "the first kernel");
    return EBB_OK;
}

static ebb_status fill_in(ebb_cuda_device *device) {
    void *states = NULL;
    EBB_TRY(ebb__cuda_enter(device));
    EBB_TRY(ebb__cuda_times_key(device, &device->base.times_key));
    EBB_TRY(ebb__cuda_memory_init(device));
    EBB_CUDA(cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking), "a stream");
    const size_t n_ticket_bytes = EBB_CUDA_MAX_STATES * EBB_CUDA_MAX_TICKETS * sizeof *device->tickets;
    EBB_CUDA(cudaMalloc(&states, EBB_CUDA_MAX_STATES * sizeof *device->states + n_ticket_bytes),
             "the iteration's figures");
    device->states = states;
    device->tickets = (unsigned *)(void *)(device->states + EBB_CUDA_MAX_STATES);
    EBB_CUDA(cudaMemset(device->tickets, 0, n_ticket_bytes), "the iteration's figures");
    EBB_TRY(try_kernel(device));
    return ebb__cuda_anchor_init(device);
}

/* That the process may run on. */
static int32_t host_threads(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

static ebb_status open_device(const ebb_device_options *options, ebb_device **device_out) {
    EBB_TRY(check_index(options->index));
    ebb_cuda_device *device = ebb__calloc(options->mem, 1, sizeof *device);
    if (device == NULL) { return EBB_E_NO_MEMORY; }
    device->base = (ebb_device){.ops = &ebb__backend_cuda, .mem = options->mem};
    device->index = options->index;
    device->n_threads = options->n_threads > 0 ? options->n_threads : host_threads();
    device->tf32 = options->tf32;
    device->nondeterministic = options->nondeterministic;
    device->no_capture = options->no_capture;
    ebb_status st = fill_in(device);
    if (st != EBB_OK) {
        close_device(&device->base);
        return st;
    }
    *device_out = &device->base;
    return EBB_OK;
}

/* The context's bytes are all that is taken of the card and is not ours: the context itself, the libraries' code and
 * tables so far, and whatever other processes have there. */
static ebb_status describe(ebb_device *base, ebb_device_info *info_out) {
    ebb_cuda_device *device = ebb__cuda_of(base);
    struct cudaDeviceProp properties;
    size_t free_bytes = 0, total_bytes = 0;
    EBB_TRY(ebb__cuda_enter(device));
    EBB_CUDA(cudaGetDeviceProperties(&properties, device->index), "asking what the device is");
    EBB_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for the device's memory");
    const uint64_t taken_bytes = total_bytes - ebb_min_u64(free_bytes, total_bytes);
    *info_out = (ebb_device_info){.capacity_bytes = total_bytes,
                                  .context_bytes = taken_bytes - ebb_min_u64(device->arena_bytes, taken_bytes),
                                  .granule_bytes = device->granule_bytes,
                                  .cache_bytes = (uint64_t)(properties.l2CacheSize > 0 ? properties.l2CacheSize : 0),
                                  .n_threads = device->n_threads};
    (void)snprintf(info_out->name, sizeof info_out->name, "%.127s", properties.name);
    return EBB_OK;
}

const ebb_backend_ops ebb__backend_cuda = {
    .abi = EBB_BACKEND_ABI,
    .name = "cuda",
    .about = EBB_PLUGIN_CUDA_ABOUT,
    .alignment_bytes = EBB_CUDA_ALIGNMENT,
    .host_visible = false,
    .has_data = true,
    .feeds_early = true,
    .open = open_device,
    .close = close_device,
    .info = describe,
    .arena_create = ebb__cuda_arena_create,
    .arena_destroy = ebb__cuda_arena_destroy,
    .arena_measure = ebb__cuda_arena_measure,
    .host_alloc = ebb__cuda_host_alloc,
    .host_free = ebb__cuda_host_free,
    .layout_plain = ebb__cuda_layout_plain,
    .layout_bytes = ebb__cuda_layout_bytes,
    .layout_name = ebb__cuda_layout_name,
    .layout_pack = ebb__cuda_layout_pack,
    .layout_unpack = ebb__cuda_layout_unpack,
    .kernel_create = ebb__cuda_kernel_create,
    .kernel_destroy = ebb__cuda_kernel_destroy,
    .bind = ebb__cuda_bind,
    .unbind = ebb__cuda_unbind,
    .merges = ebb__cuda_merges,
    .stream_create = ebb__cuda_stream_create,
    .stream_destroy = ebb__cuda_stream_destroy,
    .event_create = ebb__cuda_event_create,
    .event_destroy = ebb__cuda_event_destroy,
    .run = ebb__cuda_run,
    .copy = ebb__cuda_copy,
    .call = ebb__cuda_call,
    .event_record = ebb__cuda_event_record,
    .event_wait = ebb__cuda_event_wait,
    .event_sync = ebb__cuda_event_sync,
    .event_time_ns = ebb__cuda_event_time_ns,
    .stream_sync = ebb__cuda_stream_sync,
    .iteration_begin = ebb__cuda_iteration_begin,
    .iteration_end = ebb__cuda_iteration_end,
};
