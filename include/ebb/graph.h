/* SPDX-License-Identifier: Apache-2.0
 *
 * Networks: values and the operators between them, before any device has a say. Built by hand with the
 * calls below or by name from the zoo; a training graph then gets its backward and update operators.
 *
 * A value is a dense tensor, images as (N, C, H, W), float32 unless said. A builder call that fails
 * returns EBB_NO_VALUE and the graph remembers the first failure: later calls do nothing, so check
 * once, with ebb_graph_check. Values belong to their graph.
 */
#ifndef EBB_GRAPH_H
#define EBB_GRAPH_H

#include "ebb/base.h"
#include "ebb/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ebb_graph ebb_graph;
typedef uint32_t ebb_value;
#define EBB_NO_VALUE UINT32_MAX

typedef struct ebb_graph_options {
    size_t size_bytes;
    const ebb_mem *mem; /* outlives the graph */
    const char *name;   /* copied */
    bool inference;     /* batch-norm uses its running statistics, dropout is left out, nothing to learn */
} ebb_graph_options;
#define EBB_GRAPH_OPTIONS_INIT EBB_INIT(ebb_graph_options, )

/* An empty graph. options may be NULL, here and in the zoo. */
EBB_API ebb_status ebb_graph_create(const ebb_graph_options *options, ebb_graph **graph_out);
EBB_API void ebb_graph_destroy(ebb_graph *graph);

/* The first failure of a builder call, with its message in ebb_last_error; EBB_OK if no call failed. */
EBB_API ebb_status ebb_graph_check(const ebb_graph *graph);

/* Ports connect the host and an iteration: the host fills inputs before the iteration and reads outputs after it. A
 * graph declares its ports by name; a run holds their memory (ebb_run_port). */
typedef struct ebb_port {
    const char *name; /* lives as long as the graph */
    ebb_value value;
    ebb_dtype dtype;
    bool is_input;
    uint32_t n_dims;
    int64_t dims[4]; /* row-major */
    uint64_t size_bytes;
    int64_t below; /* of an input of s32: an iteration refuses elements that are not in [0, below); 0: takes all */
} ebb_port;

/* An input of 1 to 4 dimensions. Layers compute with f32. */
EBB_API ebb_value ebb_graph_input(ebb_graph *graph, const char *name, ebb_dtype dtype, const int64_t *dims,
                                  size_t n_dims);
/* Give a value to the host as an output of this name. Returns the value. */
EBB_API ebb_value ebb_graph_output(ebb_graph *graph, const char *name, ebb_value value);
EBB_API const ebb_port *ebb_graph_ports(const ebb_graph *graph,
                                        size_t *n_out); /* borrowed until the next is declared */

/* The inputs "images" (N, C, H, W) and "labels" (N), s32 in [0, classes). One of each. */
EBB_API ebb_value ebb_graph_images(ebb_graph *graph, int64_t n, int64_t channels, int64_t height, int64_t width);
EBB_API ebb_value ebb_graph_labels(ebb_graph *graph, int64_t n, int64_t classes);

/* Windows of convolutions and pools: zeros mean kernel 1, stride 1, no padding, dilation 1, one group. */
typedef struct ebb_window {
    int32_t kernel[2]; /* (height, width), as every pair here */
    int32_t stride[2];
    int32_t pad_begin[2]; /* top, left */
    int32_t pad_end[2];   /* bottom, right */
    int32_t dilation[2];
    int32_t groups;     /* convolutions only */
    bool ceil_mode;     /* pools only: a last partial window counts, as PyTorch's ceil_mode */
    bool count_padding; /* average pools only: padding counts in the divisor */
} ebb_window;

/* kernel, stride and padding the same in both directions. */
EBB_API ebb_window ebb_window_square(int32_t kernel, int32_t stride, int32_t pad);

/* name becomes the prefix of the parameters: name.weight, name.bias, name.running_mean ... as in PyTorch. In calls for
 * layers, name may be NULL, which makes one up, and window may be NULL, which is one of zeros. */
EBB_API ebb_value ebb_graph_conv(ebb_graph *graph, const char *name, ebb_value src, int64_t out_channels,
                                 const ebb_window *window, bool bias);
EBB_API ebb_value ebb_graph_linear(ebb_graph *graph, const char *name, ebb_value src, int64_t out_features, bool bias);
EBB_API ebb_value ebb_graph_batch_norm(ebb_graph *graph, const char *name, ebb_value src, float epsilon,
                                       float momentum);
EBB_API ebb_value ebb_graph_relu(ebb_graph *graph, const char *name, ebb_value src);
EBB_API ebb_value ebb_graph_max_pool(ebb_graph *graph, const char *name, ebb_value src, const ebb_window *window);
EBB_API ebb_value ebb_graph_avg_pool(ebb_graph *graph, const char *name, ebb_value src, const ebb_window *window);
EBB_API ebb_value ebb_graph_global_avg_pool(ebb_graph *graph, const char *name, ebb_value src);
/* Across channels: dst = src * (k + alpha / size * sum of squares) ^ -beta; the sum is over size channels; if size is
 * even, one channel more before than after. */
EBB_API ebb_value ebb_graph_lrn(ebb_graph *graph, const char *name, ebb_value src, int32_t size, float alpha,
                                float beta, float k);
/* Zero with probability p, else scale by 1 / (1 - p). The mask is a function of seed, iteration and element index. */
EBB_API ebb_value ebb_graph_dropout(ebb_graph *graph, const char *name, ebb_value src, float p);
EBB_API ebb_value ebb_graph_add(ebb_graph *graph, const char *name, ebb_value a, ebb_value b);
/* Along channels. */
EBB_API ebb_value ebb_graph_concat(ebb_graph *graph, const char *name, const ebb_value *src, size_t n_src);
EBB_API ebb_value ebb_graph_flatten(ebb_graph *graph, const char *name, ebb_value src);
/* Mean cross-entropy of softmax(logits) (N, classes) against the labels: a scalar, the graph's loss. Declares the
 * outputs "loss" and "correct", how many of the batch the network got right, each a float. */
EBB_API ebb_value ebb_graph_softmax_loss(ebb_graph *graph, ebb_value logits, ebb_value labels);

/* The number of values in the graph, and the shape of one: dims_out[0..*n_dims_out), at most 4. */
EBB_API size_t ebb_graph_n_values(const ebb_graph *graph);
EBB_API ebb_status ebb_graph_value_shape(const ebb_graph *graph, ebb_value value, int64_t dims_out[4],
                                         size_t *n_dims_out);

/* Optimisers. Each keeps no, one or two tensors of the parameter's size. */
typedef enum ebb_optimizer_kind {
    EBB_OPT_SGD,      /* w -= lr * g */
    EBB_OPT_MOMENTUM, /* v = mu * v + g; w -= lr * v (PyTorch's form) */
    EBB_OPT_NESTEROV, /* v = mu * v + g; w -= lr * (g + mu * v) */
    EBB_OPT_ADAM,     /* L2 weight decay, bias-corrected (Kingma and Ba, 2015, algorithm 1) */
    EBB_OPT_ADAMW,    /* decoupled weight decay (Loshchilov and Hutter, 2019, algorithm 2) */
} ebb_optimizer_kind;

typedef struct ebb_optimizer {
    size_t size_bytes;
    ebb_optimizer_kind kind;
    float momentum; /* mu */
    float beta1, beta2, epsilon;
    float weight_decay;
} ebb_optimizer;
#define EBB_OPTIMIZER_INIT                                                                                             \
    EBB_INIT(ebb_optimizer, EBB_SET(kind, EBB_OPT_MOMENTUM) EBB_SET(momentum, 0.9f) EBB_SET(beta1, 0.9f)               \
                                EBB_SET(beta2, 0.999f) EBB_SET(epsilon, 1e-8f))

/* "sgd", "momentum", "nesterov", "adam", "adamw". */
EBB_API ebb_status ebb_optimizer_parse(const char *name, ebb_optimizer_kind *kind_out);

/* Turn a forward graph into a training graph: add the backward operators of its loss, and an update of each parameter
 * as soon as nothing in the iteration reads its old value any more. keep_gradients: every parameter's gradient stays to
 * the end of the iteration, so that the host can read it; the optimizer may then be NULL, and nothing is updated.
 * EBB_E_ARGUMENT, with the graph unchanged: it was made for inference, has no loss, is already a training graph, or a
 * number of the optimizer is out of range. Any later failure stays with the graph. */
EBB_API ebb_status ebb_graph_train(ebb_graph *graph, const ebb_optimizer *optimizer, bool keep_gradients);

/* ---- the zoo ---------------------------------------------------------------------------------- */

typedef struct ebb_zoo_options {
    size_t size_bytes;
    const ebb_mem *mem;
    int64_t batch, channels, height, width, classes; /* 0: the network's own default; batch 1 */
    bool inference;
    bool no_dropout; /* for comparisons with other implementations, whose masks are others */
} ebb_zoo_options;
#define EBB_ZOO_OPTIONS_INIT EBB_INIT(ebb_zoo_options, )

/* Build a network by name: "resnet50", "vgg16_bn", "resnet:3,4,6,3" ... (ebb_zoo_name lists them).
 * EBB_E_ARGUMENT: no such name, or the image is too small for it (the message names the layer). */
EBB_API ebb_status ebb_zoo_build(const char *name, const ebb_zoo_options *options, ebb_graph **graph_out);

/* The name number idx, and in *about_out (may be NULL) a line about it. NULL after the last one. */
EBB_API const char *ebb_zoo_name(size_t idx, const char **about_out);

#ifdef __cplusplus
}
#endif

#endif
