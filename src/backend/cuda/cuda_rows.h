/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the rows of (n_rows, c) in one launch, and what is made of them for each channel.
 *
 * A block has up to 8 quads of channels (a group: 128 bytes of a row) and a part of the rows; its threads are (row,
 * quad), so that neighbouring lanes have neighbouring bytes. Each thread adds chains of rows in single precision and
 * the chains in double precision; a tree adds the threads; the blocks' sums lie in scratch, and the block of a group
 * that is done last adds them. Everything is added in an order that the sizes alone decide: which block is the last
 * changes who adds, not in what order. The last one is told by a ticket, an integer that is 0 between launches.
 *
 *   ebb__cuda_rows_add      a thread's rows          -> shared->pair
 *   ebb__cuda_rows_halve    the tree, a level a call -> shared->pair of row 0
 *   ebb__cuda_rows_put      a block's sums           -> scratch
 *   ebb__cuda_rows_take     the blocks' sums         -> shared->pair, and the tree again
 *   finish                  a channel's sums         -> results
 *
 * Between any two of them all of a block's threads wait. EBB_CUDA_ROWS(launcher, args, kind, finish) defines
 * launcher(stream, args) for args that begin with `ebb_cuda_sums_args rows`; finish(args, c, sum) is called for each
 * channel.
 */
#ifndef EBB_SRC_CUDA_ROWS_H
#define EBB_SRC_CUDA_ROWS_H

#include "backend/cuda/cuda_sums_body.h"

typedef struct ebb_cuda_shared {
    ebb_cuda_pair pair[4][EBB_CUDA_BLOCK]; /* of each thread's four channels */
    bool is_last;
} ebb_cuda_shared;

/* The group that block `block` belongs to. */
EBB_HD unsigned ebb__cuda_group_of(const ebb_cuda_sums_args *rows, unsigned block) {
    return block % rows->n_groups;
}

/* The first channel of a thread. */
EBB_HD uint64_t ebb__cuda_channel_of(const ebb_cuda_sums_args *rows, unsigned block, unsigned thread) {
    return 4 * ((uint64_t)ebb__cuda_group_of(rows, block) * rows->n_lanes + thread % rows->n_lanes);
}

EBB_HD void ebb__cuda_rows_add(const ebb_cuda_sums_args *rows, unsigned block, unsigned thread, bool by_four,
                               ebb_cuda_sums_kind kind, ebb_cuda_shared *shared) {
    const ebb_cuda_quad zeros = {{0.0f, 0.0f, 0.0f, 0.0f}};
    const uint64_t c = ebb__cuda_channel_of(rows, block, thread), step = EBB_CUDA_BLOCK / rows->n_lanes;
    const uint64_t first = block / rows->n_groups * rows->part_rows, past = first + rows->part_rows;
    const uint64_t end = past < rows->n_rows ? past : rows->n_rows;
    const bool is_there = c < rows->c;
    const float *from = kind == EBB_CUDA_STATISTICS ? rows->x : rows->mean;
    ebb_cuda_quad origin = zeros;
    if (is_there && kind != EBB_CUDA_PLAIN) { origin = ebb__cuda_row_quad(from, c, rows->c, by_four, zeros); }
    for (int j = 0; j < 4; j++) {
        shared->pair[j][thread].a = 0.0;
        shared->pair[j][thread].b = 0.0;
    }
    for (uint64_t r = first + thread / rows->n_lanes; is_there && r < end;) {
        float a[4] = {0.0f, 0.0f, 0.0f, 0.0f}, b[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (unsigned i = 0; i < EBB_CUDA_CHAIN && r < end; i += EBB_CUDA_ROWS_AT_ONCE) {
            ebb__cuda_add_rows(rows, r, end, step, c, by_four, kind, origin, a, b);
            r += EBB_CUDA_ROWS_AT_ONCE * step;
        }
        for (int j = 0; j < 4; j++) {
            shared->pair[j][thread].a += (double)a[j];
            shared->pair[j][thread].b += (double)b[j];
        }
    }
}

EBB_HD void ebb__cuda_rows_halve(const ebb_cuda_sums_args *rows, unsigned half, unsigned thread,
                                 ebb_cuda_shared *shared) {
    if (thread / rows->n_lanes >= half) { return; }
    for (int j = 0; j < 4; j++) {
        shared->pair[j][thread].a += shared->pair[j][thread + half * rows->n_lanes].a;
        shared->pair[j][thread].b += shared->pair[j][thread + half * rows->n_lanes].b;
    }
}

EBB_HD void ebb__cuda_rows_put(const ebb_cuda_sums_args *rows, unsigned block, unsigned thread,
                               const ebb_cuda_shared *shared) {
    const uint64_t c = ebb__cuda_channel_of(rows, block, thread);
    ebb_cuda_pair *sums = rows->sums + (uint64_t)(block / rows->n_groups) * rows->c;
    if (thread >= rows->n_lanes) { return; }
    for (uint64_t j = 0; j < 4 && c + j < rows->c; j++) { ebb__cuda_put_pair(sums + c + j, shared->pair[j][thread]); }
}

EBB_HD void ebb__cuda_rows_take(const ebb_cuda_sums_args *rows, unsigned block, unsigned thread,
                                ebb_cuda_shared *shared) {
    const uint64_t c = ebb__cuda_channel_of(rows, block, thread);
    const unsigned n_rows = EBB_CUDA_BLOCK / rows->n_lanes;
    for (uint64_t j = 0; j < 4; j++) {
        ebb_cuda_pair sum;
        sum.a = 0.0;
        sum.b = 0.0;
        for (unsigned s = thread / rows->n_lanes; s < rows->n_parts && c + j < rows->c; s += n_rows) {
            const ebb_cuda_pair part = ebb__cuda_get_pair(rows->sums + s * rows->c + c + j);
            sum.a += part.a;
            sum.b += part.b;
        }
        shared->pair[j][thread] = sum;
    }
}

#ifdef __CUDACC__

/* The tree; then all threads see row 0's. */
static __device__ inline void ebb__cuda_add_threads(const ebb_cuda_sums_args *rows, ebb_cuda_shared *shared) {
    for (unsigned half = EBB_CUDA_BLOCK / rows->n_lanes / 2; half > 0; half /= 2) {
        __syncthreads();
        ebb__cuda_rows_halve(rows, half, threadIdx.x, shared);
    }
    __syncthreads();
}

/* Whether all other blocks of the group have put their sums. */
static __device__ inline bool ebb__cuda_is_last(const ebb_cuda_sums_args *rows, ebb_cuda_shared *shared) {
    unsigned *ticket = rows->tickets + ebb__cuda_group_of(rows, blockIdx.x);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        shared->is_last = atomicAdd(ticket, 1u) == rows->n_parts - 1;
        if (shared->is_last) { *ticket = 0; }
    }
    __syncthreads();
    __threadfence();
    return shared->is_last;
}

#define EBB_CUDA_ROWS_AS(launcher, args_type, by_four, kind, finish)                                                   \
    static __global__ void __launch_bounds__(EBB_CUDA_BLOCK) launcher##_kernel(const args_type args) {                 \
        __shared__ ebb_cuda_shared shared;                                                                             \
        const uint64_t c = ebb__cuda_channel_of(&args.rows, blockIdx.x, threadIdx.x);                                  \
        ebb__cuda_rows_add(&args.rows, blockIdx.x, threadIdx.x, by_four, kind, &shared);                               \
        ebb__cuda_add_threads(&args.rows, &shared);                                                                    \
        if (args.rows.n_parts > 1) {                                                                                   \
            ebb__cuda_rows_put(&args.rows, blockIdx.x, threadIdx.x, &shared);                                          \
            if (!ebb__cuda_is_last(&args.rows, &shared)) { return; }                                                   \
            ebb__cuda_rows_take(&args.rows, blockIdx.x, threadIdx.x, &shared);                                         \
            ebb__cuda_add_threads(&args.rows, &shared);                                                                \
        }                                                                                                              \
        for (unsigned j = 0; j < 4 && threadIdx.x < args.rows.n_lanes && c + j < args.rows.c; j++) {                   \
            finish(&args, c + j, shared.pair[j][threadIdx.x]);                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static cudaError_t launcher(cudaStream_t stream, const args_type *args) {                                          \
        launcher##_kernel<<<args->rows.n_groups * args->rows.n_parts, EBB_CUDA_BLOCK, 0, stream>>>(*args);             \
        return cudaGetLastError();                                                                                     \
    }

#else

static inline void ebb__cuda_add_threads(const ebb_cuda_sums_args *rows, ebb_cuda_shared *shared) {
    for (unsigned half = EBB_CUDA_BLOCK / rows->n_lanes / 2; half > 0; half /= 2) {
        for (unsigned t = 0; t < EBB_CUDA_BLOCK; t++) { ebb__cuda_rows_halve(rows, half, t, shared); }
    }
}

static inline bool ebb__cuda_is_last(const ebb_cuda_sums_args *rows, unsigned block) {
    unsigned *ticket = rows->tickets + ebb__cuda_group_of(rows, block);
    const bool is_last = (*ticket)++ == rows->n_parts - 1;
    if (is_last) { *ticket = 0; }
    return is_last;
}

/* Blocks one after the other, in any order, and the threads of each from wait to wait. */
#define EBB_CUDA_ROWS_AS(launcher, args_type, by_four, kind, finish)                                                   \
    static void launcher##_block(const args_type *args, uint64_t number) {                                             \
        const unsigned block = (unsigned)number;                                                                       \
        ebb_cuda_shared shared;                                                                                        \
        for (unsigned t = 0; t < EBB_CUDA_BLOCK; t++) {                                                                \
            ebb__cuda_rows_add(&args->rows, block, t, by_four, kind, &shared);                                         \
        }                                                                                                              \
        ebb__cuda_add_threads(&args->rows, &shared);                                                                   \
        if (args->rows.n_parts > 1) {                                                                                  \
            for (unsigned t = 0; t < EBB_CUDA_BLOCK; t++) { ebb__cuda_rows_put(&args->rows, block, t, &shared); }      \
            if (!ebb__cuda_is_last(&args->rows, block)) { return; }                                                    \
            for (unsigned t = 0; t < EBB_CUDA_BLOCK; t++) { ebb__cuda_rows_take(&args->rows, block, t, &shared); }     \
            ebb__cuda_add_threads(&args->rows, &shared);                                                               \
        }                                                                                                              \
        for (unsigned t = 0; t < args->rows.n_lanes; t++) {                                                            \
            const uint64_t c = ebb__cuda_channel_of(&args->rows, block, t);                                            \
            for (unsigned j = 0; j < 4 && c + j < args->rows.c; j++) { finish(args, c + j, shared.pair[j][t]); }       \
        }                                                                                                              \
    }                                                                                                                  \
    EBB_CUDA_EACH_AS(static, launcher##_blocks, args_type, launcher##_block)                                           \
    static cudaError_t launcher(cudaStream_t stream, const args_type *args) {                                          \
        return launcher##_blocks(stream, args, (uint64_t)args->rows.n_groups * args->rows.n_parts);                    \
    }

#endif

#define EBB_CUDA_ROWS(launcher, args_type, kind, finish)                                                               \
    EBB_CUDA_ROWS_AS(launcher##_fours, args_type, true, kind, finish)                                                  \
    EBB_CUDA_ROWS_AS(launcher##_any, args_type, false, kind, finish)                                                   \
    cudaError_t launcher(cudaStream_t stream, const args_type *args) {                                                 \
        return args->rows.c % 4 == 0 ? launcher##_fours(stream, args) : launcher##_any(stream, args);                  \
    }

#endif
