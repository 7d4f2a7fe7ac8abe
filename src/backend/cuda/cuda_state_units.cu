/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of what reads the run's state: dropout, updates.
 */
#include "backend/cuda/cuda_dropout_body.h"
#include "backend/cuda/cuda_update_body.h"

EBB_CUDA_EACH(ebb__cuda_launch_dropout, ebb_cuda_dropout_args, ebb__cuda_dropout_element)
EBB_CUDA_EACH(ebb__cuda_launch_update, ebb_cuda_update_args, ebb__cuda_update_element)
