/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers of own kernels as the fake has them: their .cu files compiled as C.
 */
#include "backend/cuda/cuda_elementwise.cu"
