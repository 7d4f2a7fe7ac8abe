/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph as other modules see it: values, and operators in the order in which they will run. Forward,
 * backward, update, feed and fetch are the same kind of thing, so that a backend implements one table
 * and the planner sees every byte. No layouts here: those are a backend's.
 *
 * Invariants
 *  1. ops are in a legal order: each value is produced before it is read.
 *  2. A value is produced once (out) by one op, or never: then it is persistent (parameter, buffer,
 *     optimiser state) and only ops that list it in inout change it, or a pass took it out and no op
 *     names it any more.
 *  3. Every op is a pure function of its inputs, its attributes and the run's (seed, iteration, learning
 *     rate); only inout ops have an effect beyond their outputs. So whatever lists no inout may be run
 *     again. Batch-norm's running statistics move in an op of their own for this reason.
 *
 * Operands by kind (the order is the contract; [x] is optional):
 *
 *   kind              in                                   out                       inout
 *   FEED              -                                    value                     -        attr.port
 *   FETCH             value                                -                         -        attr.port
 *   CONV              src weights [bias]                   dst                       -        relu
 *   CONV_BWD_DATA     diff_dst weights                     diff_src                  -
 *   CONV_BWD_WEIGHTS  src diff_dst                         diff_weights [diff_bias]  -
 *   CONV_BWD_DATA_ADD diff_dst weights                     -                         diff_src
 *                     made by lowering only: diff_src += what CONV_BWD_DATA makes
 *   LINEAR            src weights [bias]                   dst                       -        relu
 *   LINEAR_BWD_DATA   diff_dst weights                     diff_src                  -
 *   LINEAR_BWD_WEIGHTS src diff_dst                        diff_weights [diff_bias]  -
 *   BATCH_NORM        src gamma beta                       dst mean variance [mask]  -        relu -> mask
 *   BATCH_NORM_INFER  src gamma beta mean variance         dst                       -        relu
 *   BATCH_NORM_BWD    src diff_dst mean variance gamma [mask]  diff_src diff_gamma diff_beta  -
 *   BATCH_NORM_STATS  mean variance                        -                         running_mean running_var
 *   RELU              src                                  dst                       -
 *   RELU_BWD          diff_dst dst                         diff_src                  -
 *   MAX_POOL          src                                  dst [indices]             -        (training: indices)
 *   MAX_POOL_BWD      diff_dst indices                     diff_src                  -
 *   AVG_POOL          src                                  dst                       -
 *   AVG_POOL_BWD      diff_dst                             diff_src                  -
 *   LRN               src                                  dst [workspace]           -        (training: workspace)
 *   LRN_BWD           src diff_dst workspace               diff_src                  -
 *   DROPOUT           src                                  dst                       -        rng_stream
 *   DROPOUT_BWD       diff_dst                             diff_src                  -        rng_stream
 *   ADD               a b                                  dst                       -        relu
 *   CONCAT            src ...                              dst                       -
 *   SLICE             src [acc]                            dst                       -        channels from
 *                     attr.offset, as many as dst has; dst = slice (+ acc)
 *   RESHAPE           src                                  dst                       -        same elements, row major
 *   SOFTMAX_LOSS      logits labels                        loss probabilities correct -       loss (1), correct (1)
 *   SOFTMAX_LOSS_BWD  probabilities labels                 diff_logits               -
 *   UPDATE            gradient                             -                         weights [state1 [state2]]
 *   REORDER           src                                  dst                       -        made by lowering only
 *
 * Weights: conv (O, I/groups, KH, KW), linear (O, I) where src of more than 2 dims counts as flattened;
 * variance is the biased one of the batch, running_var moves with the unbiased one, as PyTorch's.
 * mask, indices and workspace are opaque: the backend alone knows their bytes; they are kept for backward.
 * Their shape is dst's, their type u8. loss and correct are float32 of one element.
 *
 * Attributes by kind, beside what the table says: a backward op has those of its forward op, but relu only as
 * BATCH_NORM_BWD, which then reads the mask; before the others stands a RELU_BWD. Pools have dilation 1 and a pad_end
 * that already holds what ceil_mode adds. BATCH_NORM_STATS: momentum, and size = values per channel (N*H*W),
 * for the unbiased variance. UPDATE: only what its optimizer reads, the rest is 0.
 */
#ifndef EBB_SRC_GRAPH_H
#define EBB_SRC_GRAPH_H

#include "base/base.h"
#include "ebb/graph.h"

/* X(kind, name, n_in_min, n_in_max (0: any), n_out_max, n_inout_max) */
#define EBB_OP_TABLE(X)                                                                                                \
    X(FEED, "feed", 0, 0, 1, 0)                                                                                        \
    X(FETCH, "fetch", 1, 1, 0, 0)                                                                                      \
    X(CONV, "conv", 2, 3, 1, 0)                                                                                        \
    X(CONV_BWD_DATA, "conv_bwd_data", 2, 2, 1, 0)                                                                      \
    X(CONV_BWD_WEIGHTS, "conv_bwd_weights", 2, 2, 2, 0)                                                                \
    X(CONV_BWD_DATA_ADD, "conv_bwd_data_add", 2, 2, 0, 1)                                                              \
    X(LINEAR, "linear", 2, 3, 1, 0)                                                                                    \
    X(LINEAR_BWD_DATA, "linear_bwd_data", 2, 2, 1, 0)                                                                  \
    X(LINEAR_BWD_WEIGHTS, "linear_bwd_weights", 2, 2, 2, 0)                                                            \
    X(BATCH_NORM, "batch_norm", 3, 3, 4, 0)                                                                            \
    X(BATCH_NORM_INFER, "batch_norm_infer", 5, 5, 1, 0)                                                                \
    X(BATCH_NORM_BWD, "batch_norm_bwd", 5, 6, 3, 0)                                                                    \
    X(BATCH_NORM_STATS, "batch_norm_stats", 2, 2, 0, 2)                                                                \
    X(RELU, "relu", 1, 1, 1, 0)                                                                                        \
    X(RELU_BWD, "relu_bwd", 2, 2, 1, 0)                                                                                \
    X(MAX_POOL, "max_pool", 1, 1, 2, 0)                                                                                \
    X(MAX_POOL_BWD, "max_pool_bwd", 2, 2, 1, 0)                                                                        \
    X(AVG_POOL, "avg_pool", 1, 1, 1, 0)                                                                                \
    X(AVG_POOL_BWD, "avg_pool_bwd", 1, 1, 1, 0)                                                                        \
    X(LRN, "lrn", 1, 1, 2, 0)                                                                                          \
    X(LRN_BWD, "lrn_bwd", 3, 3, 1, 0)                                                                                  \
    X(DROPOUT, "dropout", 1, 1, 1, 0)                                                                                  \
    X(DROPOUT_BWD, "dropout_bwd", 1, 1, 1, 0)                                                                          \
    X(ADD, "add", 2, 2, 1, 0)                                                                                          \
    X(CONCAT, "concat", 1, 0, 1, 0)                                                                                    \
    X(SLICE, "slice", 1, 2, 1, 0)                                                                                      \
    X(RESHAPE, "reshape", 1, 1, 1, 0)                                                                                  \
    X(SOFTMAX_LOSS, "softmax_loss", 2, 2, 3, 0)                                                                        \
    X(SOFTMAX_LOSS_BWD, "softmax_loss_bwd", 2, 2, 1, 0)                                                                \
    X(UPDATE, "update", 1, 1, 0, 3)                                                                                    \
    X(REORDER, "reorder", 1, 1, 1, 0)

typedef enum ebb_op_kind {
#define EBB_OP_ENUM(kind, name, n_in_min, n_in_max, n_out_max, n_inout_max) EBB_OP_##kind,
    EBB_OP_TABLE(EBB_OP_ENUM)
#undef EBB_OP_ENUM
        EBB_N_OPS
} ebb_op_kind;

const char *ebb__op_name(ebb_op_kind kind);

/* Whether an operator of this kind may have this many operands, as the table has it; where it has a maximum of outputs
 * or inouts there is at least one. */
bool ebb__op_takes(ebb_op_kind kind, uint32_t n_in, uint32_t n_out, uint32_t n_inout);

typedef struct ebb_shape {
    int32_t n_dims; /* 1..4 */
    int32_t reserved;
    int64_t dims[4];
} ebb_shape;

int64_t ebb__shape_elements(const ebb_shape *shape);
bool ebb__shape_equal(const ebb_shape *a, const ebb_shape *b);
/* The shape after h, for tables. */
size_t ebb__shape_hash(uint64_t h, const ebb_shape *shape);

/* Everything an op's kind leaves open. Only 4-byte members, so that there is no padding and equal
 * attributes are equal bytes; unused ones are 0. */
typedef struct ebb_op_attr {
    int32_t kernel[2], stride[2], pad_begin[2], pad_end[2], dilation[2], groups;
    int32_t count_padding;
    int32_t relu;            /* a ReLU is fused to the end of conv, linear, batch-norm, add */
    int32_t offset;          /* SLICE: first channel */
    int32_t size;            /* LRN: channels in the sum; BATCH_NORM_STATS: values per channel */
    float alpha, beta, k;    /* LRN */
    float epsilon, momentum; /* batch-norm; UPDATE uses both too */
    float p;                 /* DROPOUT */
    int32_t port;            /* FEED, FETCH: number of the graph's port */
    int32_t optimizer;       /* UPDATE: ebb_optimizer_kind */
    float beta1, beta2, weight_decay;
} ebb_op_attr;

typedef enum ebb_value_kind {
    EBB_VALUE_TEMPORARY, /* made and read within the iteration */
    EBB_VALUE_GRADIENT,  /* a temporary that is a gradient of a parameter */
    EBB_VALUE_INPUT,     /* what FEED makes */
    EBB_VALUE_PARAMETER, /* persistent from here on */
    EBB_VALUE_BUFFER,    /* running statistics */
    EBB_VALUE_STATE,     /* the optimiser's */
} ebb_value_kind;

static inline bool ebb__value_is_persistent(ebb_value_kind kind) {
    return kind >= EBB_VALUE_PARAMETER;
}

/* How a persistent value begins. NORMAL: mean 0, deviation scale; UNIFORM: in [-scale, scale]. */
typedef enum ebb_init { EBB_INIT_ZERO, EBB_INIT_ONE, EBB_INIT_NORMAL, EBB_INIT_UNIFORM } ebb_init;

typedef struct ebb_value_info {
    const char *name; /* unique among persistent values */
    ebb_shape shape;
    ebb_dtype dtype;
    ebb_value_kind kind;
    ebb_init init;
    float init_scale;
    bool opaque;  /* the backend alone knows its bytes */
    bool kept;    /* must be there at the end of the iteration (gradients that are to be read out) */
    ebb_value of; /* gradient or state: the parameter; else EBB_NO_VALUE */
} ebb_value_info;

typedef struct ebb_op {
    ebb_op_kind kind;
    ebb_phase phase;
    const char *name;
    uint32_t n_in, n_out, n_inout;
    ebb_value *in, *out, *inout;
    ebb_op_attr attr;
    uint64_t rng_stream; /* DROPOUT and its backward: the same number */
} ebb_op;

/* The name's hash lies beside its value, so that looking and growing touch few names. */
typedef struct ebb_name_slot {
    uint32_t hash;
    ebb_value value; /* EBB_NO_VALUE: empty */
} ebb_name_slot;

struct ebb_graph {
    const ebb_mem *mem;
    ebb_bump bump; /* names and operand lists */
    const char *name;
    bool inference;
    ebb_status status; /* of the first builder call that failed */
    char *message;
    EBB_VEC(ebb_value_info) values;
    EBB_VEC(ebb_op) ops;
    EBB_VEC(ebb_port) ports;
    ebb_value loss; /* EBB_NO_VALUE if none exists */
    int64_t classes;
    bool differentiated;       /* backward is there; nothing can be built or simplified any more */
    ebb_name_slot *name_slots; /* hash table of the persistent values by name */
    size_t n_name_slots, n_names;
};

/* The port of this name; NULL: none. */
const ebb_port *ebb__graph_port(const ebb_graph *graph, const char *name);

/* Passes; each leaves the invariants whole. ebb__graph_simplify runs the first two; ebb_graph_train, the zoo's
 * inference graphs and lowering call it, as often as they like. */
ebb_status ebb__graph_simplify(ebb_graph *graph);
ebb_status ebb__graph_fuse_relu(ebb_graph *graph);    /* conv, linear, batch-norm, add followed only by a ReLU */
ebb_status ebb__graph_drop_flatten(ebb_graph *graph); /* whose only reader is a linear, which flattens by itself */
ebb_status ebb__graph_differentiate(ebb_graph *graph);
ebb_status ebb__graph_add_updates(ebb_graph *graph, const ebb_optimizer *optimizer);

/* As ebb_optimizer_parse takes it; static. */
const char *ebb__optimizer_name(ebb_optimizer_kind kind);

/* Whether the invariants above hold, and operands and shapes are those of the table. EBB_E_INTERNAL names the
 * op. Linear; tests call it, and builds with EBB_DEBUG at 2 after each pass. */
ebb_status ebb__graph_validate(const ebb_graph *graph);

/* Fill dst (row-major float32, all its elements) with the value's initial content: a function of seed
 * and the value's name only. */
void ebb__graph_init_value(const ebb_graph *graph, ebb_value value, uint64_t seed, float *dst);

#endif
