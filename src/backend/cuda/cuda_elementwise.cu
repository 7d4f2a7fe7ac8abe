/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of what goes element by element: ReLU, its backward, addition, a run's state.
 */
#include "backend/cuda/cuda_elementwise_body.h"

EBB_CUDA_EACH(ebb__cuda_launch_relu, ebb_cuda_relu_args, ebb__cuda_relu_element)
EBB_CUDA_EACH(ebb__cuda_launch_relu_bwd, ebb_cuda_relu_bwd_args, ebb__cuda_relu_bwd_element)
EBB_CUDA_EACH(ebb__cuda_launch_add, ebb_cuda_add_args, ebb__cuda_add_element)
EBB_CUDA_EACH(ebb__cuda_launch_set_state, ebb_cuda_set_state_args, ebb__cuda_set_state_element)
