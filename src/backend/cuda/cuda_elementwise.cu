/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of what goes element by element: ReLU, its backward, addition, a run's state.
 */
#include "backend/cuda/cuda_elementwise_body.h"

EBB_CUDA_TILES(ebb__cuda_launch_relu, ebb_cuda_relu_args, EBB_CUDA_ENDS_WITH_FOUR, ebb__cuda_relu_quads)
EBB_CUDA_TILES(ebb__cuda_launch_relu_bwd, ebb_cuda_relu_bwd_args, EBB_CUDA_ENDS_WITH_FOUR, ebb__cuda_relu_bwd_quads)
EBB_CUDA_TILES(ebb__cuda_launch_add, ebb_cuda_add_args, EBB_CUDA_ENDS_WITH_FOUR, ebb__cuda_add_quads)
EBB_CUDA_EACH(ebb__cuda_launch_set_state, ebb_cuda_set_state_args, ebb__cuda_set_state_element)
