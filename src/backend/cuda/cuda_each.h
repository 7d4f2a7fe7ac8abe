/* SPDX-License-Identifier: Apache-2.0
 *
 * How a .cu file says that each element is its own work: see cuda_launch.h. EBB_CUDA_EACH(launcher, args, element)
 * defines a launcher with the prototype
 *
 *   cudaError_t launcher(cudaStream_t stream, const args *a, uint64_t n)
 *
 * that calls element(a, i) for each i below n, in any order. The addresses in args are the device's; args itself
 * travels with the launch.
 */
#ifndef EBB_SRC_CUDA_EACH_H
#define EBB_SRC_CUDA_EACH_H

#include "backend/cuda/cuda_launch.h"

#define EBB_CUDA_BLOCK 256u /* threads */

#ifdef __CUDACC__

#define EBB_HD __host__ __device__ static inline

#define EBB_CUDA_MAX_GRID 65536u /* enough to fill any GPU; each thread then takes several elements */

static inline unsigned ebb__cuda_grid(uint64_t n) {
    const uint64_t blocks = (n + EBB_CUDA_BLOCK - 1) / EBB_CUDA_BLOCK;
    return (unsigned)(blocks < EBB_CUDA_MAX_GRID ? blocks : EBB_CUDA_MAX_GRID);
}

#define EBB_CUDA_CHECK(is_so) ((void)0)
#define EBB_CUDA_ALIGNED(n_bytes) __align__(n_bytes)

#define EBB_CUDA_EACH_AS(linkage, launcher, args_type, element)                                                        \
    static __global__ void launcher##_kernel(const args_type args, uint64_t n) {                                       \
        const uint64_t step = (uint64_t)gridDim.x * blockDim.x;                                                        \
        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) { element(&args, i); }    \
    }                                                                                                                  \
    linkage cudaError_t launcher(cudaStream_t stream, const args_type *args, uint64_t n) {                             \
        if (n == 0) { return cudaSuccess; }                                                                            \
        launcher##_kernel<<<ebb__cuda_grid(n), EBB_CUDA_BLOCK, 0, stream>>>(*args, n);                                 \
        return cudaGetLastError();                                                                                     \
    }

#else

#include "base/base.h"

#define EBB_HD static inline
#define EBB_CUDA_CHECK(is_so) EBB_ASSERT(is_so)
#define EBB_CUDA_ALIGNED(n_bytes) _Alignas(n_bytes)

typedef void (*ebb_cuda_element_fn)(const void *args, uint64_t i);
/* The tests': queue element over [0, n) on a stream; args is copied. */
cudaError_t ebb__cuda_each_on_host(cudaStream_t stream, ebb_cuda_element_fn element, const void *args,
                                   size_t args_bytes, uint64_t n);

#define EBB_CUDA_EACH_AS(linkage, launcher, args_type, element)                                                        \
    static void launcher##_on_host(const void *args, uint64_t i) {                                                     \
        element((const args_type *)args, i);                                                                           \
    }                                                                                                                  \
    linkage cudaError_t launcher(cudaStream_t stream, const args_type *args, uint64_t n) {                             \
        return ebb__cuda_each_on_host(stream, launcher##_on_host, args, sizeof *args, n);                              \
    }

#endif

#define EBB_CUDA_EACH(launcher, args_type, element) EBB_CUDA_EACH_AS(, launcher, args_type, element)

#endif
