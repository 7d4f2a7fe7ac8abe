/* SPDX-License-Identifier: Apache-2.0
 *
 * DenseNet (Huang et al., CVPR 2017) with torchvision's names: growth 32, bottlenecks of 128, compression by half.
 *
 * A dense block's input to layer i+1 is the input to layer i with the new maps after it: the same channels in the same
 * order as a concatenation of all earlier maps, but each concat has two parts, and the maps themselves are
 * free as soon as they are in it.
 */
#include "graph/zoo_priv.h"

#define GROWTH 32
#define BOTTLENECK 128

/* Batch-norm, ReLU, convolution. */
static ebb_value norm_relu_conv(ebb_zoo_net *net, const char *prefix, int layer, ebb_value x, int64_t channels) {
    ebb_window window = layer == 1 ? ebb_window_square(1, 1, 0) : ebb_window_square(3, 1, 1);
    x = ebb__zoo_norm(net, ebb__zoo_name("%s.norm%d", prefix, layer).text, x);
    x = ebb__zoo_relu(net, ebb__zoo_name("%s.relu%d", prefix, layer).text, x);
    return ebb__zoo_conv(net, ebb__zoo_name("%s.conv%d", prefix, layer).text, x, channels, &window, false);
}

static ebb_value dense_block(ebb_zoo_net *net, int block, ebb_value x) {
    for (int64_t i = 1; i <= net->arg[block - 1]; i++) {
        ebb_zoo_name_buf prefix = ebb__zoo_name("features.denseblock%d.denselayer%lld", block, (long long)i);
        ebb_value y = norm_relu_conv(net, prefix.text, 1, x, BOTTLENECK);
        y = norm_relu_conv(net, prefix.text, 2, y, GROWTH);
        x = ebb_graph_concat(net->graph, ebb__zoo_name("%s.concat", prefix.text).text, (ebb_value[]){x, y}, 2);
    }
    return x;
}

static ebb_value transition(ebb_zoo_net *net, int block, ebb_value x) {
    int64_t channels = x < net->graph->values.n ? net->graph->values.data[x].shape.dims[1] : 2;
    ebb_zoo_name_buf prefix = ebb__zoo_name("features.transition%d", block);
    ebb_window point = ebb_window_square(1, 1, 0), half = ebb_window_square(2, 2, 0);
    x = ebb__zoo_norm(net, ebb__zoo_name("%s.norm", prefix.text).text, x);
    x = ebb__zoo_relu(net, ebb__zoo_name("%s.relu", prefix.text).text, x);
    x = ebb__zoo_conv(net, ebb__zoo_name("%s.conv", prefix.text).text, x, channels / 2, &point, false);
    return ebb_graph_avg_pool(net->graph, ebb__zoo_name("%s.pool", prefix.text).text, x, &half);
}

ebb_value ebb__zoo_densenet(ebb_zoo_net *net, ebb_value x) {
    net->conv_init = EBB_ZOO_INIT_FAN_IN;
    ebb_window stem = ebb_window_square(7, 2, 3), pool = ebb_window_square(3, 2, 1);
    x = ebb__zoo_conv(net, "features.conv0", x, 64, &stem, false);
    x = ebb__zoo_relu(net, "features.relu0", ebb__zoo_norm(net, "features.norm0", x));
    x = ebb_graph_max_pool(net->graph, "features.pool0", x, &pool);
    for (int block = 1; block <= 4; block++) {
        x = dense_block(net, block, x);
        if (block < 4) { x = transition(net, block, x); }
    }
    x = ebb__zoo_relu(net, "relu", ebb__zoo_norm(net, "features.norm5", x));
    x = ebb_graph_global_avg_pool(net->graph, "avgpool", x);
    x = ebb_graph_flatten(net->graph, "flatten", x);
    x = ebb_graph_linear(net->graph, "classifier", x, net->classes, true);
    ebb__graph_init_bias(net->graph, EBB_INIT_ZERO, 0.0f);
    return x;
}
