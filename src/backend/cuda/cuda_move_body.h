/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements that move without changing: channels into a wider tensor, channels out of one (with something added), and
 * between the two orders of an image.
 */
#ifndef EBB_SRC_CUDA_MOVE_BODY_H
#define EBB_SRC_CUDA_MOVE_BODY_H

#include "backend/cuda/cuda_quad.h"
#include "backend/cuda/cuda_launch_ops.h"

/* Where in the wide side element i of the narrow one is. */
EBB_HD uint64_t ebb__cuda_wide(const ebb_cuda_move_args *args, uint64_t i) {
    uint64_t row;
    const uint64_t within = ebb__cuda_divide(i, args->run, &row);
    return row * args->row + args->first + within;
}

/* Runs, rows and what lies before the first run are whole quads: then so is the wide side's part of each. */
#define EBB_CUDA_RUNS_BY_FOUR(args) (((args)->n | (args)->run | (args)->row | (args)->first) % 4 == 0)

/* The elements of the wide side that belong to the narrow side's elements at ... at + 3. */
EBB_HD ebb_cuda_quad ebb__cuda_load_wide(const ebb_cuda_move_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad quad = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (fit == EBB_CUDA_ALL || (fit == EBB_CUDA_FOURS && at < args->n)) {
        return ebb__cuda_load_quad(args->src + ebb__cuda_wide(args, at));
    }
    for (uint64_t j = 0; fit == EBB_CUDA_SOME && j < 4; j++) {
        if (at + j < args->n) { quad.v[j] = args->src[ebb__cuda_wide(args, at + j)]; }
    }
    return quad;
}

EBB_HD void ebb__cuda_store_wide(const ebb_cuda_move_args *args, uint64_t at, ebb_cuda_fit fit, ebb_cuda_quad quad) {
    if (fit == EBB_CUDA_ALL || (fit == EBB_CUDA_FOURS && at < args->n)) {
        ebb__cuda_store_quad(args->dst + ebb__cuda_wide(args, at), quad);
    }
    for (uint64_t j = 0; fit == EBB_CUDA_SOME && j < 4; j++) {
        if (at + j < args->n) { args->dst[ebb__cuda_wide(args, at + j)] = quad.v[j]; }
    }
}

EBB_HD void ebb__cuda_join_quads(const ebb_cuda_move_args *args, uint64_t at, ebb_cuda_fit fit) {
    ebb_cuda_quad x[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load(args->src, at + k * EBB_CUDA_STRIDE, args->n, fit);
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) { ebb__cuda_store_wide(args, at + k * EBB_CUDA_STRIDE, fit, x[k]); }
}

EBB_HD void ebb__cuda_slice_quads(const ebb_cuda_move_args *args, uint64_t at, ebb_cuda_fit fit) {
    const ebb_cuda_quad zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
    ebb_cuda_quad x[EBB_CUDA_QUADS], acc[EBB_CUDA_QUADS];
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        x[k] = ebb__cuda_load_wide(args, at + k * EBB_CUDA_STRIDE, fit);
        acc[k] = args->acc != NULL ? ebb__cuda_load(args->acc, at + k * EBB_CUDA_STRIDE, args->n, fit) : zeros;
    }
    for (unsigned k = 0; k < EBB_CUDA_QUADS; k++) {
        for (int j = 0; j < 4; j++) { x[k].v[j] = args->acc != NULL ? x[k].v[j] + acc[k].v[j] : x[k].v[j]; }
        ebb__cuda_store(args->dst, at + k * EBB_CUDA_STRIDE, args->n, fit, x[k]);
    }
}

/* By elements of dst: what is written in one go lies together. */
EBB_HD void ebb__cuda_transpose_element(const ebb_cuda_transpose_args *args, uint64_t i) {
    uint64_t line, image;
    const uint64_t row = ebb__cuda_divide(i, args->n_rows, &line);
    const uint64_t column = ebb__cuda_divide(line, args->n_columns, &image);
    args->dst[i] = args->src[(image * args->n_rows + row) * args->n_columns + column];
}

#endif
