/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of convolutions without cuDNN.
 */
#include "backend/cuda/cuda_conv_body.h"

EBB_CUDA_EACH(ebb__cuda_launch_conv, ebb_cuda_conv_args, ebb__cuda_conv_element)
EBB_CUDA_EACH(ebb__cuda_launch_conv_bwd_data, ebb_cuda_conv_args, ebb__cuda_conv_bwd_data_element)
EBB_CUDA_EACH(ebb__cuda_launch_conv_bwd_weights, ebb_cuda_conv_args, ebb__cuda_conv_bwd_weights_element)
