/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of what moves elements, of biases, and of pools and LRN.
 */
#include "backend/cuda/cuda_bias_body.h"
#include "backend/cuda/cuda_move_body.h"
#include "backend/cuda/cuda_window_body.h"

EBB_CUDA_TILES(ebb__cuda_launch_bias, ebb_cuda_bias_args, EBB_CUDA_CHANNELS_BY_FOUR, ebb__cuda_bias_quads)
EBB_CUDA_TILES(ebb__cuda_launch_join, ebb_cuda_move_args, EBB_CUDA_RUNS_BY_FOUR, ebb__cuda_join_quads)
EBB_CUDA_TILES(ebb__cuda_launch_slice, ebb_cuda_move_args, EBB_CUDA_RUNS_BY_FOUR, ebb__cuda_slice_quads)
EBB_CUDA_EACH(ebb__cuda_launch_transpose, ebb_cuda_transpose_args, ebb__cuda_transpose_element)
EBB_CUDA_POOL(ebb__cuda_launch_max_pool, ebb__cuda_max_pool)
EBB_CUDA_POOL(ebb__cuda_launch_max_pool_bwd, ebb__cuda_max_pool_bwd)
EBB_CUDA_POOL(ebb__cuda_launch_avg_pool, ebb__cuda_avg_pool)
EBB_CUDA_POOL(ebb__cuda_launch_avg_pool_bwd, ebb__cuda_avg_pool_bwd)
EBB_CUDA_EACH(ebb__cuda_launch_lrn, ebb_cuda_lrn_args, ebb__cuda_lrn_element)
EBB_CUDA_EACH(ebb__cuda_launch_lrn_bwd, ebb_cuda_lrn_args, ebb__cuda_lrn_bwd_element)
