/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs. Not part of libebb: libebb_cuda.so is made of this folder, and plugin.h says how it is loaded.
 */
#ifndef EBB_SRC_CUDA_H
#define EBB_SRC_CUDA_H

#include "backend/backend.h"

extern const ebb_backend_ops ebb__backend_cuda;

#endif
