/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements that move without changing: channels into a wider tensor, channels out of one (with something added), and
 * between the two orders of an image.
 */
#ifndef EBB_SRC_CUDA_MOVE_BODY_H
#define EBB_SRC_CUDA_MOVE_BODY_H

#include "backend/cuda/cuda_divide.h"
#include "backend/cuda/cuda_launch_ops.h"

/* Where in the wide side element i of the narrow one is. */
EBB_HD uint64_t ebb__cuda_wide(const ebb_cuda_move_args *args, uint64_t i) {
    uint64_t row;
    const uint64_t within = ebb__cuda_divide(i, args->run, &row);
    return row * args->row + args->first + within;
}

EBB_HD void ebb__cuda_join_element(const ebb_cuda_move_args *args, uint64_t i) {
    args->dst[ebb__cuda_wide(args, i)] = args->src[i];
}

EBB_HD void ebb__cuda_slice_element(const ebb_cuda_move_args *args, uint64_t i) {
    const float v = args->src[ebb__cuda_wide(args, i)];
    args->dst[i] = args->acc != NULL ? v + args->acc[i] : v;
}

/* By elements of dst: what is written in one go lies together. */
EBB_HD void ebb__cuda_transpose_element(const ebb_cuda_transpose_args *args, uint64_t i) {
    uint64_t line, image;
    const uint64_t row = ebb__cuda_divide(i, args->n_rows, &line);
    const uint64_t column = ebb__cuda_divide(line, args->n_columns, &image);
    args->dst[i] = args->src[(image * args->n_rows + row) * args->n_columns + column];
}

#endif
