/* SPDX-License-Identifier: Apache-2.0
 *
 * The small and the old: multi-layer perceptrons, LeNet-5, both AlexNets.
 *
 * LeNet: 20 and 50 maps of 5x5, max pools, 500 hidden units, as Caffe's example; ReLU after each of the three, where
 * Caffe's has it after the hidden layer only.
 *
 * alexnet is the network of Krizhevsky et al. (NIPS 2012) in one tower without groups, as the papers on memory
 * measure it: 227x227, 96/256/384/384/256 maps, LRN of five channels after the first two ReLUs (k 2, beta 0.75 and the
 * paper's alpha of 1e-4 a channel: 5e-4 here, where alpha is divided by the size), dropout 0.5. alexnet_tv is
 * torchvision's, after Krizhevsky's 'One weird trick' (2014).
 */
#include "graph/zoo_priv.h"

ebb_value ebb__zoo_mlp(ebb_zoo_net *net, ebb_value x) {
    x = ebb_graph_flatten(net->graph, "flatten", x);
    x = ebb__zoo_relu(net, "relu1", ebb_graph_linear(net->graph, "fc1", x, 512, true));
    x = ebb__zoo_relu(net, "relu2", ebb_graph_linear(net->graph, "fc2", x, 512, true));
    return ebb_graph_linear(net->graph, "fc3", x, net->classes, true);
}

ebb_value ebb__zoo_perceptron(ebb_zoo_net *net, ebb_value x) {
    x = ebb_graph_flatten(net->graph, "flatten", x);
    x = ebb__zoo_relu(net, "relu1", ebb_graph_linear(net->graph, "fc1", x, net->arg[0], true));
    return ebb_graph_linear(net->graph, "fc2", x, net->classes, true);
}

ebb_value ebb__zoo_lenet(ebb_zoo_net *net, ebb_value x) {
    ebb_window window = ebb_window_square(5, 1, 0);
    x = ebb__zoo_relu(net, "relu1", ebb__zoo_conv(net, "conv1", x, 20, &window, true));
    x = ebb__zoo_max_pool(net, "pool1", x, 2, 2);
    x = ebb__zoo_relu(net, "relu2", ebb__zoo_conv(net, "conv2", x, 50, &window, true));
    x = ebb__zoo_max_pool(net, "pool2", x, 2, 2);
    x = ebb_graph_flatten(net->graph, "flatten", x);
    x = ebb__zoo_relu(net, "relu3", ebb_graph_linear(net->graph, "fc1", x, 500, true));
    return ebb_graph_linear(net->graph, "fc2", x, net->classes, true);
}

/* One of AlexNet's convolutions with what follows it; layers count on as in a torch.nn.Sequential. */
typedef struct alexnet_layer {
    int32_t channels, kernel, stride, pad;
    bool lrn, pool;
} alexnet_layer;

static ebb_value alexnet_features(ebb_zoo_net *net, ebb_value x, const alexnet_layer layer[5]) {
    int n = 0;
    for (int i = 0; i < 5; i++) {
        ebb_window window = ebb_window_square(layer[i].kernel, layer[i].stride, layer[i].pad);
        x = ebb__zoo_conv(net, ebb__zoo_name("features.%d", n++).text, x, layer[i].channels, &window, true);
        x = ebb__zoo_relu(net, ebb__zoo_name("features.%d", n++).text, x);
        if (layer[i].lrn) {
            x = ebb_graph_lrn(net->graph, ebb__zoo_name("features.%d", n++).text, x, 5, 5e-4f, 0.75f, 2.0f);
        }
        if (layer[i].pool) { x = ebb__zoo_max_pool(net, ebb__zoo_name("features.%d", n++).text, x, 3, 2); }
    }
    return ebb_graph_flatten(net->graph, "flatten", x);
}

ebb_value ebb__zoo_alexnet(ebb_zoo_net *net, ebb_value x) {
    static const alexnet_layer layer[5] = {{96, 11, 4, 0, true, true},
                                           {256, 5, 1, 2, true, true},
                                           {384, 3, 1, 1, false, false},
                                           {384, 3, 1, 1, false, false},
                                           {256, 3, 1, 1, false, true}};
    x = alexnet_features(net, x, layer);
    x = ebb__zoo_relu(net, "classifier.1", ebb_graph_linear(net->graph, "classifier.0", x, 4096, true));
    x = ebb__zoo_dropout(net, "classifier.2", x, 0.5f);
    x = ebb__zoo_relu(net, "classifier.4", ebb_graph_linear(net->graph, "classifier.3", x, 4096, true));
    x = ebb__zoo_dropout(net, "classifier.5", x, 0.5f);
    return ebb_graph_linear(net->graph, "classifier.6", x, net->classes, true);
}

ebb_value ebb__zoo_alexnet_tv(ebb_zoo_net *net, ebb_value x) {
    static const alexnet_layer layer[5] = {{64, 11, 4, 2, false, true},
                                           {192, 5, 1, 2, false, true},
                                           {384, 3, 1, 1, false, false},
                                           {256, 3, 1, 1, false, false},
                                           {256, 3, 1, 1, false, true}};
    x = alexnet_features(net, x, layer);
    x = ebb__zoo_dropout(net, "classifier.0", x, 0.5f);
    x = ebb__zoo_relu(net, "classifier.2", ebb_graph_linear(net->graph, "classifier.1", x, 4096, true));
    x = ebb__zoo_dropout(net, "classifier.3", x, 0.5f);
    x = ebb__zoo_relu(net, "classifier.5", ebb_graph_linear(net->graph, "classifier.4", x, 4096, true));
    return ebb_graph_linear(net->graph, "classifier.6", x, net->classes, true);
}
