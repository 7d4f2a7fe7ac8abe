/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the rows of (n_rows, c) in scratch, for what needs them: batch-norm, bias gradients, the loss.
 */
#ifndef EBB_SRC_CUDA_SUMS_H
#define EBB_SRC_CUDA_SUMS_H

#include "backend/cuda/cuda_launch_ops.h"
#include "backend/cuda/cuda_priv.h"

/* Who adds what of x (n_rows, c), whose sums lie in scratch, of at least ebb__cuda_sums_bytes. */
ebb_cuda_sums_args ebb__cuda_sums(const float *x, uint64_t n_rows, uint64_t c, void *scratch, unsigned *tickets);
uint64_t ebb__cuda_sums_bytes(uint64_t n_rows, uint64_t c);

/* dst[c]: the sums of x, by way of scratch. */
ebb_status ebb__cuda_sum_rows(cudaStream_t stream, const float *x, uint64_t n_rows, uint64_t c, void *scratch,
                              unsigned *tickets, float *dst);

/* The bytes of n pairs and of all that they are folded to, [.][c]. */
uint64_t ebb__cuda_fold_bytes(uint64_t n, uint64_t c);
/* From sums[n][c], after which there is the room that fold_bytes says, to at most EBB_CUDA_FOLD a channel: *n. */
ebb_status ebb__cuda_fold(cudaStream_t stream, ebb_cuda_pair **sums, uint64_t *n, uint64_t c);

#endif
