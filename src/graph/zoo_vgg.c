/* SPDX-License-Identifier: Apache-2.0
 *
 * VGG (Simonyan and Zisserman, ICLR 2015) with torchvision's names. Its adaptive pool to 7x7 does nothing at 224x224
 * and is not here: other image sizes flatten what is left.
 */
#include "graph/zoo_priv.h"

/* Convolutions in each of the five groups; a max pool ends each. */
static const int *groups_of(int64_t depth) {
    static const int a[5] = {1, 1, 2, 2, 2}, b[5] = {2, 2, 2, 2, 2}, d[5] = {2, 2, 3, 3, 3}, e[5] = {2, 2, 4, 4, 4};
    return depth == 11 ? a : depth == 13 ? b : depth == 16 ? d : e;
}

static ebb_value features(ebb_zoo_net *net, ebb_value x) {
    static const int64_t channels[5] = {64, 128, 256, 512, 512};
    const int *n_convs = groups_of(net->arg[0]);
    bool norm = net->arg[1] != 0;
    ebb_window window = ebb_window_square(3, 1, 1);
    int n = 0;
    for (int group = 0; group < 5; group++) {
        for (int i = 0; i < n_convs[group]; i++) {
            x = ebb__zoo_conv(net, ebb__zoo_name("features.%d", n++).text, x, channels[group], &window, true);
            if (norm) { x = ebb__zoo_norm(net, ebb__zoo_name("features.%d", n++).text, x); }
            x = ebb__zoo_relu(net, ebb__zoo_name("features.%d", n++).text, x);
        }
        x = ebb__zoo_max_pool(net, ebb__zoo_name("features.%d", n++).text, x, 2, 2);
    }
    return x;
}

static ebb_value linear(ebb_zoo_net *net, const char *name, ebb_value x, int64_t out_features) {
    x = ebb_graph_linear(net->graph, name, x, out_features, true);
    ebb__graph_init_weights(net->graph, EBB_INIT_NORMAL, 0.01f);
    ebb__graph_init_bias(net->graph, EBB_INIT_ZERO, 0.0f);
    return x;
}

/* For CIFAR: one hidden layer of 512, as the 1x1 image that is left has 512 channels. */
ebb_value ebb__zoo_vgg_cifar(ebb_zoo_net *net, ebb_value x) {
    net->conv_init = EBB_ZOO_INIT_FAN_OUT;
    x = ebb_graph_flatten(net->graph, "flatten", features(net, x));
    x = ebb__zoo_relu(net, "classifier.1", linear(net, "classifier.0", x, 512));
    x = ebb__zoo_dropout(net, "classifier.2", x, 0.5f);
    return linear(net, "classifier.3", x, net->classes);
}

ebb_value ebb__zoo_vgg(ebb_zoo_net *net, ebb_value x) {
    net->conv_init = EBB_ZOO_INIT_FAN_OUT;
    x = ebb_graph_flatten(net->graph, "flatten", features(net, x));
    x = ebb__zoo_relu(net, "classifier.1", linear(net, "classifier.0", x, 4096));
    x = ebb__zoo_dropout(net, "classifier.2", x, 0.5f);
    x = ebb__zoo_relu(net, "classifier.4", linear(net, "classifier.3", x, 4096));
    x = ebb__zoo_dropout(net, "classifier.5", x, 0.5f);
    return linear(net, "classifier.6", x, net->classes);
}
