/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of own kernels: what the .cu files give to the C files. Plain C types, addresses on the device, and the
 * stream; each queues one kernel and returns what the launch said.
 *
 * A kernel that works element by element has one source for the GPU and for tests on the CPU:
 *
 *   cuda_NAME_body.h   EBB_HD void element(const args *a, uint64_t i)     the arithmetic, as C and as CUDA
 *   cuda_NAME.cu       EBB_CUDA_EACH(launcher, args, element)             which thread does which element
 *
 * A kernel that reads and writes four elements at a time says so by EBB_CUDA_TILES (cuda_quad.h): its args have the
 * number of elements, and the tensors begin at multiples of 16 bytes.
 *
 * Compiled as C, EBB_CUDA_EACH makes the same launcher over ebb__cuda_each_on_host, which only tests have.
 */
#ifndef EBB_SRC_CUDA_LAUNCH_H
#define EBB_SRC_CUDA_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ebb_run_state as it lies on the device: what kernels read of the iteration. */
typedef struct ebb_cuda_state {
    uint64_t seed, iteration, update;
    float learning_rate;
} ebb_cuda_state;

typedef struct ebb_cuda_set_state_args {
    ebb_cuda_state *dst;
    ebb_cuda_state state; /* travels with the launch: no staging, no wait */
} ebb_cuda_set_state_args;

cudaError_t ebb__cuda_launch_set_state(cudaStream_t stream, const ebb_cuda_set_state_args *args, uint64_t n);

typedef struct ebb_cuda_relu_args {
    const float *src;
    float *dst;
    uint64_t n;
} ebb_cuda_relu_args;

typedef struct ebb_cuda_relu_bwd_args {
    const float *diff_dst, *dst;
    float *diff_src;
    uint64_t n;
} ebb_cuda_relu_bwd_args;

typedef struct ebb_cuda_add_args {
    const float *a, *b;
    float *dst;
    uint64_t n;
    bool relu;
} ebb_cuda_add_args;

cudaError_t ebb__cuda_launch_relu(cudaStream_t stream, const ebb_cuda_relu_args *args);
cudaError_t ebb__cuda_launch_relu_bwd(cudaStream_t stream, const ebb_cuda_relu_bwd_args *args);
cudaError_t ebb__cuda_launch_add(cudaStream_t stream, const ebb_cuda_add_args *args);

#ifdef __cplusplus
}
#endif

#endif
