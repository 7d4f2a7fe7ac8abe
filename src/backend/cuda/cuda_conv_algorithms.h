/* SPDX-License-Identifier: Apache-2.0
 *
 * A convolution's algorithms by cuDNN, for one direction, shape and padding: found once and kept with the device, in
 * the order in which kernels offer them as choices. (The library calls one that is ready to run an execution plan; a
 * plan is something else here.)
 */
#ifndef EBB_SRC_CUDA_CONV_ALGORITHMS_H
#define EBB_SRC_CUDA_CONV_ALGORITHMS_H

#include "backend/cuda/cuda_library.h"

/* Tensors of the graph, by role: their unique ids. */
enum { EBB_CUDA_CONV_SRC = 1, EBB_CUDA_CONV_WEIGHTS, EBB_CUDA_CONV_DST, EBB_CUDA_CONV_BIAS };

/* Everything that the choice of algorithms depends on. There is no padding between members. */
typedef struct ebb_cuda_conv_key {
    int64_t direction; /* EBB_OP_CONV to EBB_OP_CONV_BWD_DATA_ADD, which adds to what is in src */
    int64_t src[4], weights[4], dst[4];
    int64_t stride[2], pad_begin[2], pad_end[2], dilation[2];
    int64_t bias, relu; /* 0 or 1: what comes after a forward convolution */
} ebb_cuda_conv_key;

typedef struct ebb_cuda_conv_algorithm {
    cudnnBackendDescriptor_t execution;
    uint64_t workspace_bytes;
    const char *name; /* static: the library and the number that it gives the engine */
} ebb_cuda_conv_algorithm;

#define EBB_CUDA_CONV_MAX_ALGORITHMS 8u

struct ebb_cuda_conv {
    const ebb_mem *mem;
    ebb_cuda_conv_key key;
    ebb_cuda_conv_algorithm algorithms[EBB_CUDA_CONV_MAX_ALGORITHMS];
    uint32_t n_algorithms;                  /* at least 1 */
    bool has_tail;                          /* they do the key's bias and ReLU too */
    EBB_VEC(cudnnBackendDescriptor_t) made; /* all that algorithms stand on, in the order in which it was made */
};

/* The device's, found now or before; it lives as long as the device. EBB_E_UNSUPPORTED: the library has none that is
 * allowed. */
ebb_status ebb__cuda_conv_find(ebb_cuda_device *device, const ebb_cuda_conv_key *key, const ebb_cuda_conv **conv_out);
void ebb__cuda_conv_destroy(ebb_cuda_conv *conv);

typedef struct ebb_cuda_conv_places {
    void *src, *weights, *dst;
    void *bias; /* read where the algorithms add one */
    void *workspace;
} ebb_cuda_conv_places;

/* The addresses of one binding; to be destroyed. */
ebb_status ebb__cuda_conv_pack(const ebb_cuda_conv *conv, const ebb_cuda_conv_places *at,
                               cudnnBackendDescriptor_t *pack_out);

#endif
