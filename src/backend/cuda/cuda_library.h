/* SPDX-License-Identifier: Apache-2.0
 *
 * A device's part of cuBLASLt and cuDNN: handles, made when the first operator needs one, and the convolutions whose
 * algorithms have been searched for (cuda_conv_algorithms.c). Here the statuses of both become ours, with the call's
 * name.
 */
#ifndef EBB_SRC_CUDA_LIBRARY_H
#define EBB_SRC_CUDA_LIBRARY_H

#include "backend/cuda/cuda_priv.h"

#include <cublasLt.h>
#include <cudnn_backend.h>

typedef struct ebb_cuda_conv ebb_cuda_conv; /* cuda_conv_algorithms.h */

typedef struct ebb_cuda_libraries {
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    /* NULL, or the device that cuDNN answers for if none exists: a described one
     * (CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, cuDNN 9.8 or later), the owner's who set it. Then there is no handle, and
     * nothing can run. */
    cudnnBackendDescriptor_t described;
    EBB_VEC(ebb_cuda_conv *) convs;
} ebb_cuda_libraries;

/* The device's, made at the first call. EBB_E_NO_MEMORY. */
ebb_status ebb__cuda_libraries(ebb_cuda_device *device, ebb_cuda_libraries **libraries_out);
/* cuBLASLt's handle, made at the first call; op, for the message, is who needs it. The device's until it is closed. By
 * the thread that makes the device's kernels alone. EBB_E_NO_MEMORY, and those of ebb__cuda_fail_blas. */
ebb_status ebb__cuda_blas(ebb_cuda_device *device, const char *op, cublasLtHandle_t *handle_out);
/* The same of cuDNN: in the libraries, dnn is there, and what is added to convs is destroyed with the device. */
ebb_status ebb__cuda_dnn(ebb_cuda_device *device, const char *op, ebb_cuda_libraries **libraries_out);

/* EBB_E_UNSUPPORTED, EBB_E_NO_MEMORY or EBB_E_DEVICE: operator, call, and the library's words. */
ebb_status ebb__cuda_fail_blas(cublasStatus_t status, const char *op, const char *call);
ebb_status ebb__cuda_fail_dnn(cudnnStatus_t status, const char *op, const char *call, const char *what);

#define EBB_CUDA_BLAS(op, call, ...)                                                                                   \
    do {                                                                                                               \
        cublasStatus_t ebb_blas_status_ = call(__VA_ARGS__);                                                           \
        if (ebb_blas_status_ != CUBLAS_STATUS_SUCCESS) { return ebb__cuda_fail_blas(ebb_blas_status_, (op), #call); }  \
    } while (0)

#define EBB_CUDA_DNN(op, what, call, ...)                                                                              \
    do {                                                                                                               \
        cudnnStatus_t ebb_dnn_status_ = call(__VA_ARGS__);                                                             \
        if (ebb_dnn_status_ != CUDNN_STATUS_SUCCESS) {                                                                 \
            return ebb__cuda_fail_dnn(ebb_dnn_status_, (op), #call, (what));                                           \
        }                                                                                                              \
    } while (0)

#endif
