/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of sums over rows and of what is made of them: batch-norm, bias gradients, the loss.
 */
#include "backend/cuda/cuda_loss_body.h"
#include "backend/cuda/cuda_norm_body.h"

EBB_CUDA_ROWS(ebb__cuda_launch_sum_columns, ebb_cuda_column_args, EBB_CUDA_PLAIN, ebb__cuda_column)
EBB_CUDA_ROWS(ebb__cuda_launch_norm_statistics, ebb_cuda_norm_channel_args, EBB_CUDA_STATISTICS,
              ebb__cuda_norm_forward_channel)
EBB_CUDA_ROWS(ebb__cuda_launch_norm_gradients, ebb_cuda_norm_channel_args, EBB_CUDA_GRADIENTS,
              ebb__cuda_norm_backward_channel)
EBB_CUDA_EACH(ebb__cuda_launch_fold, ebb_cuda_fold_args, ebb__cuda_fold_element)
EBB_CUDA_EACH(ebb__cuda_launch_norm_infer_channel, ebb_cuda_norm_channel_args, ebb__cuda_norm_infer_channel)
EBB_CUDA_TILES(ebb__cuda_launch_norm, ebb_cuda_norm_args, EBB_CUDA_CHANNELS_BY_FOUR, ebb__cuda_norm_quads)
EBB_CUDA_TILES(ebb__cuda_launch_norm_bwd, ebb_cuda_norm_args, EBB_CUDA_CHANNELS_BY_FOUR, ebb__cuda_norm_bwd_quads)
EBB_CUDA_EACH(ebb__cuda_launch_norm_stats, ebb_cuda_norm_stats_args, ebb__cuda_norm_stats_element)
EBB_CUDA_EACH(ebb__cuda_launch_loss_largest, ebb_cuda_loss_args, ebb__cuda_loss_largest_element)
EBB_CUDA_EACH(ebb__cuda_launch_loss_sums, ebb_cuda_loss_args, ebb__cuda_loss_sums_element)
EBB_CUDA_EACH(ebb__cuda_launch_loss_rows, ebb_cuda_loss_args, ebb__cuda_loss_rows_element)
EBB_CUDA_EACH(ebb__cuda_launch_loss_put, ebb_cuda_loss_put_args, ebb__cuda_loss_put_element)
EBB_CUDA_EACH(ebb__cuda_launch_loss_bwd, ebb_cuda_loss_bwd_args, ebb__cuda_loss_bwd_element)
