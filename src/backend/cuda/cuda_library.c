/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles of cuBLASLt and cuDNN, and their statuses as ours. Neither library has been called on a GPU yet.
 */
#include "backend/cuda/cuda_library.h"
#include "backend/cuda/cuda_conv_algorithms.h"

ebb_status ebb__cuda_fail_blas(cublasStatus_t status, const char *op, const char *call) {
    ebb_status code = EBB_E_DEVICE;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_ARCH_MISMATCH) { code = EBB_E_UNSUPPORTED; }
    if (status == CUBLAS_STATUS_ALLOC_FAILED) { code = EBB_E_NO_MEMORY; }
    (void)cudaGetLastError(); /* what the runtime remembers would fail the next launch */
    return ebb_fail(code, "cuda: %s: %s: %s (%d)", op, call, cublasLtGetStatusString(status), (int)status);
}

ebb_status ebb__cuda_fail_dnn(cudnnStatus_t status, const char *op, const char *call, const char *what) {
    char detail[256] = "";
    ebb_status code = EBB_E_DEVICE;
    if (CUDNN_STATUS_CATEGORY((int)status) == CUDNN_STATUS_NOT_SUPPORTED) { code = EBB_E_UNSUPPORTED; }
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
        code = EBB_E_NO_MEMORY;
    }
    cudnnGetLastErrorString(detail, sizeof detail);
    detail[sizeof detail - 1] = '\0';
    (void)cudaGetLastError();
    return ebb_fail(code, "cuda: %s: %s of %s: %s (%s)", op, call, what, cudnnGetErrorString(status), detail);
}

ebb_status ebb__cuda_libraries(ebb_cuda_device *device, ebb_cuda_libraries **libraries_out) {
    if (device->libraries == NULL) {
        device->libraries = ebb__calloc(device->base.mem, 1, sizeof *device->libraries);
        if (device->libraries == NULL) { return EBB_E_NO_MEMORY; }
    }
    *libraries_out = device->libraries;
    return EBB_OK;
}

ebb_status ebb__cuda_blas(ebb_cuda_device *device, const char *op, cublasLtHandle_t *handle_out) {
    ebb_cuda_libraries *libraries = NULL;
    EBB_TRY(ebb__cuda_libraries(device, &libraries));
    if (libraries->blas == NULL) { EBB_CUDA_BLAS(op, cublasLtCreate, &libraries->blas); }
    *handle_out = libraries->blas;
    return EBB_OK;
}

ebb_status ebb__cuda_dnn(ebb_cuda_device *device, const char *op, ebb_cuda_libraries **libraries_out) {
    ebb_cuda_libraries *libraries = NULL;
    EBB_TRY(ebb__cuda_libraries(device, &libraries));
    if (libraries->dnn == NULL && libraries->described == NULL) {
        EBB_CUDA_DNN(op, "the library", cudnnCreate, &libraries->dnn);
    }
    *libraries_out = libraries;
    return EBB_OK;
}

ebb_status ebb__cuda_times_key(const ebb_cuda_device *device, uint64_t *key_out) {
    const uint64_t facts[] = {device->tf32, device->nondeterministic, cudnnGetVersion(), cublasLtGetVersion()};
    struct cudaDeviceProp properties;
    EBB_CUDA(cudaGetDeviceProperties(&properties, device->index), "asking what the device is");
    properties.name[sizeof properties.name - 1] = '\0';
    *key_out = ebb__hash(ebb__hash(EBB_HASH_INIT, facts, sizeof facts), properties.name, strlen(properties.name));
    return EBB_OK;
}

void ebb__cuda_libraries_fini(ebb_cuda_device *device) {
    ebb_cuda_libraries *libraries = device->libraries;
    const ebb_mem *mem = device->base.mem;
    if (libraries == NULL) { return; }
    for (size_t i = 0; i < libraries->convs.n; i++) { ebb__cuda_conv_destroy(libraries->convs.data[i]); }
    EBB_VEC_FINI(mem, &libraries->convs);
    if (libraries->dnn != NULL) { (void)cudnnDestroy(libraries->dnn); }
    if (libraries->blas != NULL) { (void)cublasLtDestroy(libraries->blas); }
    ebb__free(mem, libraries);
    device->libraries = NULL;
}
