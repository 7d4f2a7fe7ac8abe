/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of what reads the run's state: dropout, updates.
 */
#include "backend/cuda/cuda_dropout_body.h"
#include "backend/cuda/cuda_update_body.h"

EBB_CUDA_TILES(ebb__cuda_launch_dropout, ebb_cuda_dropout_args, EBB_CUDA_ENDS_WITH_FOUR, ebb__cuda_dropout_quads)
EBB_CUDA_TILES(ebb__cuda_launch_dropout_last, ebb_cuda_dropout_args, EBB_CUDA_CHANNELS_BY_FOUR,
               ebb__cuda_dropout_last_quads)
EBB_CUDA_TILES(ebb__cuda_launch_update, ebb_cuda_update_args, EBB_CUDA_ENDS_WITH_FOUR, ebb__cuda_update_quads)
