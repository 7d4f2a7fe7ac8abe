/* SPDX-License-Identifier: Apache-2.0
 *
 * What the zoo's networks share: a network under construction, names made of pieces, and the layers that come in
 * threes. A network's function takes the images and returns the logits; it need not look at failures, since the
 * graph remembers the first one and later calls do nothing.
 */
#ifndef EBB_SRC_ZOO_PRIV_H
#define EBB_SRC_ZOO_PRIV_H

#include "graph/graph_priv.h"

#define EBB_ZOO_MAX_ARGS 4

/* How the weights of convolutions begin: PyTorch's default, or He et al.'s normal scaled by either side. */
typedef enum ebb_zoo_init { EBB_ZOO_INIT_DEFAULT, EBB_ZOO_INIT_FAN_IN, EBB_ZOO_INIT_FAN_OUT } ebb_zoo_init;

typedef struct ebb_zoo_net {
    ebb_graph *graph;
    const int64_t *arg; /* the figures after the colon, or the row's own */
    int64_t classes;
    bool no_dropout;
    ebb_zoo_init conv_init;
    float epsilon; /* batch-norm's */
} ebb_zoo_net;

typedef ebb_value (*ebb_zoo_fn)(ebb_zoo_net *net, ebb_value images);

/* A layer's name on the stack: ebb__zoo_name("layer%d.%d", 1, 0).text. */
typedef struct ebb_zoo_name_buf {
    char text[96];
} ebb_zoo_name_buf;
ebb_zoo_name_buf ebb__zoo_name(const char *fmt, ...) EBB_PRINTF(1, 2);

/* Convolution whose weights begin as conv_init says; a bias at zero then, or as PyTorch's. */
ebb_value ebb__zoo_conv(ebb_zoo_net *net, const char *name, ebb_value x, int64_t out_channels, const ebb_window *window,
                        bool bias);
ebb_value ebb__zoo_norm(ebb_zoo_net *net, const char *name, ebb_value x);
ebb_value ebb__zoo_relu(ebb_zoo_net *net, const char *name, ebb_value x);
ebb_value ebb__zoo_max_pool(ebb_zoo_net *net, const char *name, ebb_value x, int32_t kernel, int32_t stride);
ebb_value ebb__zoo_dropout(ebb_zoo_net *net, const char *name, ebb_value x, float p);

ebb_value ebb__zoo_mlp(ebb_zoo_net *net, ebb_value x);
ebb_value ebb__zoo_perceptron(ebb_zoo_net *net, ebb_value x); /* arg: hidden units */
ebb_value ebb__zoo_lenet(ebb_zoo_net *net, ebb_value x);
ebb_value ebb__zoo_alexnet(ebb_zoo_net *net, ebb_value x);
ebb_value ebb__zoo_alexnet_tv(ebb_zoo_net *net, ebb_value x);
ebb_value ebb__zoo_vgg(ebb_zoo_net *net, ebb_value x);                /* arg: depth, 1 with batch-norm */
ebb_value ebb__zoo_resnet_basic(ebb_zoo_net *net, ebb_value x);       /* arg: blocks of each of four stages */
ebb_value ebb__zoo_resnet(ebb_zoo_net *net, ebb_value x);             /* arg: the same, bottlenecks */
ebb_value ebb__zoo_resnet_basic_cifar(ebb_zoo_net *net, ebb_value x); /* as resnet_basic, for images of 32x32 */
ebb_value ebb__zoo_resnet_wide_cifar(ebb_zoo_net *net, ebb_value x);  /* as resnet, for images of 32x32 */
ebb_value ebb__zoo_vgg_cifar(ebb_zoo_net *net, ebb_value x);          /* as vgg, with 512 hidden units */
ebb_value ebb__zoo_resnet_cifar(ebb_zoo_net *net, ebb_value x);       /* arg: blocks of each of three stages */
ebb_value ebb__zoo_densenet(ebb_zoo_net *net, ebb_value x);           /* arg: layers of each of four blocks */
ebb_value ebb__zoo_inception4(ebb_zoo_net *net, ebb_value x);

#endif
