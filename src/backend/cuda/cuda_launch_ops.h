/* SPDX-License-Identifier: Apache-2.0
 *
 * Launchers of the operators' own kernels, as cuda_launch.h says. Images are channels last: element i of an image
 * tensor is of channel i % c, and its row is i / c.
 */
#ifndef EBB_SRC_CUDA_LAUNCH_OPS_H
#define EBB_SRC_CUDA_LAUNCH_OPS_H

#include "backend/cuda/cuda_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- dropout, updates ---------------------------------------------------------------------------- */

typedef struct ebb_cuda_dropout_args {
    const float *src;
    float *dst;
    const ebb_cuda_state *state;
    uint64_t stream_hash; /* of the random stream; the iteration is hashed after it */
    uint64_t n;
    uint64_t c, hw; /* last: elements lie as (n, hw, c) and are counted as (n, c, hw) */
    float p, scale;
} ebb_cuda_dropout_args;

cudaError_t ebb__cuda_launch_dropout(cudaStream_t stream, const ebb_cuda_dropout_args *args);
cudaError_t ebb__cuda_launch_dropout_last(cudaStream_t stream, const ebb_cuda_dropout_args *args);

typedef struct ebb_cuda_update_args {
    const float *gradient;
    float *weights, *first, *second; /* momentum, or Adam's moments */
    const ebb_cuda_state *state;
    uint64_t n;
    float momentum, weight_decay, beta1, beta2, epsilon;
    int32_t rule; /* ebb_optimizer_kind */
} ebb_cuda_update_args;

cudaError_t ebb__cuda_launch_update(cudaStream_t stream, const ebb_cuda_update_args *args);

/* ---- elements that only move --------------------------------------------------------------------- */

/* The narrow side's runs lie within the wide side's rows, from element `first` of each. */
typedef struct ebb_cuda_move_args {
    const float *src, *acc; /* acc: NULL, or added (slice) */
    float *dst;
    uint64_t n; /* of the narrow side */
    uint64_t run, row, first;
} ebb_cuda_move_args;

cudaError_t ebb__cuda_launch_join(cudaStream_t stream, const ebb_cuda_move_args *args);
cudaError_t ebb__cuda_launch_slice(cudaStream_t stream, const ebb_cuda_move_args *args);

/* Each image's (n_rows, n_columns) becomes (n_columns, n_rows). */
typedef struct ebb_cuda_transpose_args {
    const float *src;
    float *dst;
    uint64_t n_rows, n_columns;
} ebb_cuda_transpose_args;

cudaError_t ebb__cuda_launch_transpose(cudaStream_t stream, const ebb_cuda_transpose_args *args, uint64_t n);

/* ---- after a product ---------------------------------------------------------------------------- */

typedef struct ebb_cuda_bias_args {
    float *x;
    const float *bias; /* [c]; NULL: none */
    uint64_t n, c;
    bool relu;
} ebb_cuda_bias_args;

cudaError_t ebb__cuda_launch_bias(cudaStream_t stream, const ebb_cuda_bias_args *args);

/* ---- convolutions without cuDNN ------------------------------------------------------------------ */

typedef struct ebb_cuda_conv_args {
    const float *src, *weights, *dst; /* the two that are read */
    float *to;
    int64_t n_images;
    int32_t src_c, dst_c, group_c, group_dst_c; /* of a group: src's and dst's channels */
    int32_t src_size[2], dst_size[2], kernel[2], stride[2], pad[2], dilation[2];
    bool adds; /* backward data: to what is there */
} ebb_cuda_conv_args;

cudaError_t ebb__cuda_launch_conv(cudaStream_t stream, const ebb_cuda_conv_args *args, uint64_t n_dst);
cudaError_t ebb__cuda_launch_conv_bwd_data(cudaStream_t stream, const ebb_cuda_conv_args *args, uint64_t n_src);
cudaError_t ebb__cuda_launch_conv_bwd_weights(cudaStream_t stream, const ebb_cuda_conv_args *args, uint64_t n_weights);

/* ---- windows ------------------------------------------------------------------------------------- */

typedef struct ebb_cuda_pool_args {
    const float *from; /* src forward, diff_dst backward */
    float *to;         /* dst forward, diff_src backward */
    void *indices;     /* place within the window, 1 or 4 bytes each; NULL: not wanted */
    int64_t c;
    int32_t src_h, src_w, dst_h, dst_w;
    int32_t kernel[2], stride[2], pad[2];
    int32_t index_bytes;
    bool count_padding;
} ebb_cuda_pool_args;

cudaError_t ebb__cuda_launch_max_pool(cudaStream_t stream, const ebb_cuda_pool_args *args, uint64_t n_dst);
cudaError_t ebb__cuda_launch_max_pool_bwd(cudaStream_t stream, const ebb_cuda_pool_args *args, uint64_t n_src);
cudaError_t ebb__cuda_launch_avg_pool(cudaStream_t stream, const ebb_cuda_pool_args *args, uint64_t n_dst);
cudaError_t ebb__cuda_launch_avg_pool_bwd(cudaStream_t stream, const ebb_cuda_pool_args *args, uint64_t n_src);

typedef struct ebb_cuda_lrn_args {
    const float *src, *diff_dst;
    float *base; /* the sum that is raised to -beta; forward without backward: NULL */
    float *to;   /* dst, or diff_src */
    int64_t c;
    int32_t size;
    float alpha, beta, k; /* alpha is divided by size already */
} ebb_cuda_lrn_args;

cudaError_t ebb__cuda_launch_lrn(cudaStream_t stream, const ebb_cuda_lrn_args *args, uint64_t n);
cudaError_t ebb__cuda_launch_lrn_bwd(cudaStream_t stream, const ebb_cuda_lrn_args *args, uint64_t n);

/* ---- sums over rows, in an order that the sizes alone decide ------------------------------------- */

#define EBB_CUDA_FOLD 64u         /* pairs that one thread adds */
#define EBB_CUDA_SUM_BLOCKS 1024u /* about: enough to fill any GPU, and few enough to be added by one of them */
#define EBB_CUDA_GROUP_LANES 8u   /* quads of channels that a block has: 128 bytes of a row */
#define EBB_CUDA_MAX_TICKETS (EBB_CUDA_SUM_BLOCKS / 2) /* of a run: groups whose rows more than one block has */

typedef struct ebb_cuda_pair {
    double a, b;
} ebb_cuda_pair;

/* x (n_rows, c); see cuda_rows.h. ebb__cuda_sums_args fills in all that the sizes decide. */
typedef struct ebb_cuda_sums_args {
    const float *x, *src, *mean; /* src and mean: for gradients */
    const uint8_t *mask;         /* a bit an element, in the order of cuda_quad.h; NULL: all pass */
    ebb_cuda_pair *sums;         /* [n_parts][c]; unused if there is one part */
    unsigned *tickets;           /* [n_groups], zeros before and after */
    uint64_t n_rows, c, part_rows;
    uint32_t n_groups, n_parts, n_lanes; /* lanes: quads of a group, a power of two */
} ebb_cuda_sums_args;

/* dst[c]: the sums of x. */
typedef struct ebb_cuda_column_args {
    ebb_cuda_sums_args rows;
    float *dst;
} ebb_cuda_column_args;

cudaError_t ebb__cuda_launch_sum_columns(cudaStream_t stream, const ebb_cuda_column_args *args);

/* to[group][c]: each the sum of EBB_CUDA_FOLD of from[n][c] in order. */
typedef struct ebb_cuda_fold_args {
    const ebb_cuda_pair *from;
    ebb_cuda_pair *to;
    uint64_t n, c;
} ebb_cuda_fold_args;

cudaError_t ebb__cuda_launch_fold(cudaStream_t stream, const ebb_cuda_fold_args *args, uint64_t n_units);

/* ---- batch-norm ---------------------------------------------------------------------------------- */

/* Per channel, from its sums. forward: mean, variance, scale. backward: diff_gamma, diff_beta and what the second
 * pass multiplies by. infer: scale, from a given variance; no sums. */
typedef struct ebb_cuda_norm_channel_args {
    ebb_cuda_sums_args rows;
    const float *gamma;
    float *mean, *variance; /* backward reads variance */
    float *diff_gamma, *diff_beta;
    float *coef; /* [c] scale; backward [3][c]: scale, by distance, constant */
    float epsilon;
} ebb_cuda_norm_channel_args;

cudaError_t ebb__cuda_launch_norm_statistics(cudaStream_t stream, const ebb_cuda_norm_channel_args *args);
cudaError_t ebb__cuda_launch_norm_gradients(cudaStream_t stream, const ebb_cuda_norm_channel_args *args);
cudaError_t ebb__cuda_launch_norm_infer_channel(cudaStream_t stream, const ebb_cuda_norm_channel_args *args,
                                                uint64_t c);

typedef struct ebb_cuda_norm_args {
    const float *src, *diff_dst, *mean, *coef, *beta;
    float *to;
    uint8_t *mask;
    uint64_t n, c;
    bool relu;
} ebb_cuda_norm_args;

cudaError_t ebb__cuda_launch_norm(cudaStream_t stream, const ebb_cuda_norm_args *args);
cudaError_t ebb__cuda_launch_norm_bwd(cudaStream_t stream, const ebb_cuda_norm_args *args);

typedef struct ebb_cuda_norm_stats_args {
    const float *mean, *variance;
    float *running_mean, *running_var;
    float momentum, unbias;
} ebb_cuda_norm_stats_args;

cudaError_t ebb__cuda_launch_norm_stats(cudaStream_t stream, const ebb_cuda_norm_stats_args *args, uint64_t c);

/* ---- loss ---------------------------------------------------------------------------------------- */

#define EBB_CUDA_LANES 32u /* threads a row: lane l takes classes l, l + 32, ... */

typedef struct ebb_cuda_largest {
    float value;
    int32_t at; /* -1: the lane has no class */
} ebb_cuda_largest;

/* Three launches over (row, lane): the largest of each lane; sums of exp; probabilities, and of lane 0 the row's
 * loss and whether it is right. An invalid label gives a loss that is not a number. */
typedef struct ebb_cuda_loss_args {
    const float *logits;
    const int32_t *labels;
    float *probabilities;
    ebb_cuda_largest *largest; /* [n_rows][EBB_CUDA_LANES] */
    double *exp_sums;          /* the same */
    ebb_cuda_pair *rows;       /* [n_rows]: loss, correct */
    uint64_t n_classes;
} ebb_cuda_loss_args;

cudaError_t ebb__cuda_launch_loss_largest(cudaStream_t stream, const ebb_cuda_loss_args *args, uint64_t n_units);
cudaError_t ebb__cuda_launch_loss_sums(cudaStream_t stream, const ebb_cuda_loss_args *args, uint64_t n_units);
cudaError_t ebb__cuda_launch_loss_rows(cudaStream_t stream, const ebb_cuda_loss_args *args, uint64_t n_units);

typedef struct ebb_cuda_loss_put_args {
    const ebb_cuda_pair *sums; /* [n] */
    float *loss, *correct;
    uint64_t n;
    double n_rows;
} ebb_cuda_loss_put_args;

cudaError_t ebb__cuda_launch_loss_put(cudaStream_t stream, const ebb_cuda_loss_put_args *args, uint64_t one);

typedef struct ebb_cuda_loss_bwd_args {
    const float *probabilities;
    const int32_t *labels;
    float *diff_logits;
    uint64_t n_classes;
    float share;
} ebb_cuda_loss_bwd_args;

cudaError_t ebb__cuda_launch_loss_bwd(cudaStream_t stream, const ebb_cuda_loss_bwd_args *args, uint64_t n);

#ifdef __cplusplus
}
#endif

#endif
