/* SPDX-License-Identifier: Apache-2.0
 *
 * The launchers of own kernels as the fake has them: their .cu files compiled as C.
 */
#include "backend/cuda/cuda_elementwise.cu"
#include "backend/cuda/cuda_layers.cu"
#include "backend/cuda/cuda_reductions.cu"
#include "backend/cuda/cuda_state_units.cu"
