/* SPDX-License-Identifier: Apache-2.0
 *
 * The oracle: every operator as plain loops over row-major arrays, sums in double, never made faster. Other
 * backends are held against it, and it against finite differences. One file holds one family of operators.
 */
#ifndef EBB_SRC_REF_H
#define EBB_SRC_REF_H

#include "backend/kernel_check.h"

extern const ebb_backend_ops ebb__backend_ref;

/* A bound kernel that is being run. */
typedef struct ebb_ref_call {
    const ebb_kernel_desc *desc;
    void *const *operand; /* as desc->operand */
    const ebb_run_state *state;
    uint64_t rng_stream;
} ebb_ref_call;

typedef ebb_status (*ebb_ref_fn)(const ebb_ref_call *call);

ebb_ref_fn ebb__ref_function(ebb_op_kind kind);

ebb_status ebb__ref_feed(const ebb_ref_call *call);
ebb_status ebb__ref_fetch(const ebb_ref_call *call);
ebb_status ebb__ref_conv(const ebb_ref_call *call);
ebb_status ebb__ref_conv_bwd_data(const ebb_ref_call *call);
ebb_status ebb__ref_conv_bwd_weights(const ebb_ref_call *call);
ebb_status ebb__ref_linear(const ebb_ref_call *call);
ebb_status ebb__ref_linear_bwd_data(const ebb_ref_call *call);
ebb_status ebb__ref_linear_bwd_weights(const ebb_ref_call *call);
ebb_status ebb__ref_batch_norm(const ebb_ref_call *call);
ebb_status ebb__ref_batch_norm_infer(const ebb_ref_call *call);
ebb_status ebb__ref_batch_norm_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_batch_norm_stats(const ebb_ref_call *call);
ebb_status ebb__ref_relu(const ebb_ref_call *call);
ebb_status ebb__ref_relu_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_add(const ebb_ref_call *call);
ebb_status ebb__ref_max_pool(const ebb_ref_call *call);
ebb_status ebb__ref_max_pool_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_avg_pool(const ebb_ref_call *call);
ebb_status ebb__ref_avg_pool_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_lrn(const ebb_ref_call *call);
ebb_status ebb__ref_lrn_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_dropout(const ebb_ref_call *call);
ebb_status ebb__ref_concat(const ebb_ref_call *call);
ebb_status ebb__ref_slice(const ebb_ref_call *call);
ebb_status ebb__ref_same_elements(const ebb_ref_call *call); /* RESHAPE, REORDER */
ebb_status ebb__ref_softmax_loss(const ebb_ref_call *call);
ebb_status ebb__ref_softmax_loss_bwd(const ebb_ref_call *call);
ebb_status ebb__ref_update(const ebb_ref_call *call);

/* ---- what the operators are written with ---------------------------------------------------------- */

static inline const void *ebb__ref_in(const ebb_ref_call *call, uint32_t idx) {
    return call->operand[idx];
}

static inline void *ebb__ref_out(const ebb_ref_call *call, uint32_t idx) {
    return call->operand[call->desc->n_in + idx];
}

static inline void *ebb__ref_inout(const ebb_ref_call *call, uint32_t idx) {
    return call->operand[call->desc->n_in + call->desc->n_out + idx];
}

/* An operand as (n, c, rest): batch, channels, everything after them. */
typedef struct ebb_ref_ncr {
    int64_t n, c, rest;
} ebb_ref_ncr;

static inline ebb_ref_ncr ebb__ref_ncr(const ebb_operand *operand) {
    const ebb_shape *s = &operand->shape;
    ebb_ref_ncr r = {.n = s->dims[0], .c = s->n_dims > 1 ? s->dims[1] : 1, .rest = 1};
    for (int32_t i = 2; i < s->n_dims; i++) { r.rest *= s->dims[i]; }
    return r;
}

/* Row-major number of (a, b, c, d) in (., nb, nc, nd). */
static inline int64_t ebb__ref_at(const ebb_shape *shape, int64_t a, int64_t b, int64_t c, int64_t d) {
    return ((a * shape->dims[1] + b) * shape->dims[2] + c) * shape->dims[3] + d;
}

#endif
