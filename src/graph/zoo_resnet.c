/* SPDX-License-Identifier: Apache-2.0
 *
 * ResNets (He et al., CVPR 2016). Those for ImageNet are torchvision's, names included: bottlenecks carry their stride
 * in the 3x3. Those for CIFAR follow section 4.2, depth 6n+2, but where a stage changes the shape the shortcut is a 1x1
 * convolution with batch-norm (the paper's option B) instead of padding with zeros, in torchvision's names.
 */
#include "graph/zoo_priv.h"

/* One residual block: what it is called, its width inside and outside, its stride. */
typedef struct block {
    const char *name;
    int64_t width, out_channels;
    int32_t stride;
} block;

static ebb_value conv_norm(ebb_zoo_net *net, const block *b, int layer, ebb_value x, int64_t channels,
                           const ebb_window *window) {
    x = ebb__zoo_conv(net, ebb__zoo_name("%s.conv%d", b->name, layer).text, x, channels, window, false);
    return ebb__zoo_norm(net, ebb__zoo_name("%s.bn%d", b->name, layer).text, x);
}

static ebb_value relu(ebb_zoo_net *net, const block *b, int layer, ebb_value x) {
    return ebb__zoo_relu(net, ebb__zoo_name("%s.relu%d", b->name, layer).text, x);
}

/* x itself, or projected to the block's shape. */
static ebb_value shortcut(ebb_zoo_net *net, const block *b, ebb_value x) {
    bool same = x < net->graph->values.n && net->graph->values.data[x].shape.dims[1] == b->out_channels;
    if (same && b->stride == 1) { return x; }
    ebb_window window = ebb_window_square(1, b->stride, 0);
    x = ebb__zoo_conv(net, ebb__zoo_name("%s.downsample.0", b->name).text, x, b->out_channels, &window, false);
    return ebb__zoo_norm(net, ebb__zoo_name("%s.downsample.1", b->name).text, x);
}

static ebb_value join(ebb_zoo_net *net, const block *b, ebb_value x, ebb_value y) {
    return ebb_graph_add(net->graph, ebb__zoo_name("%s.add", b->name).text, y, shortcut(net, b, x));
}

static ebb_value basic(ebb_zoo_net *net, const block *b, ebb_value x) {
    ebb_window first = ebb_window_square(3, b->stride, 1), second = ebb_window_square(3, 1, 1);
    ebb_value y = relu(net, b, 1, conv_norm(net, b, 1, x, b->width, &first));
    y = conv_norm(net, b, 2, y, b->out_channels, &second);
    return relu(net, b, 2, join(net, b, x, y));
}

static ebb_value bottleneck(ebb_zoo_net *net, const block *b, ebb_value x) {
    ebb_window point = ebb_window_square(1, 1, 0), middle = ebb_window_square(3, b->stride, 1);
    ebb_value y = relu(net, b, 1, conv_norm(net, b, 1, x, b->width, &point));
    y = relu(net, b, 2, conv_norm(net, b, 2, y, b->width, &middle));
    y = conv_norm(net, b, 3, y, b->out_channels, &point);
    return relu(net, b, 3, join(net, b, x, y));
}

/* Stages 1, 2, ... of arg[stage - 1] blocks; the width doubles and the image halves with each. */
static ebb_value stages(ebb_zoo_net *net, ebb_value x, int n_stages, int64_t width, int64_t expansion) {
    for (int stage = 1; stage <= n_stages; stage++) {
        for (int64_t i = 0; i < net->arg[stage - 1]; i++) {
            ebb_zoo_name_buf name = ebb__zoo_name("layer%d.%lld", stage, (long long)i);
            block b = {name.text, width, width * expansion, i == 0 && stage > 1 ? 2 : 1};
            x = expansion > 1 ? bottleneck(net, &b, x) : basic(net, &b, x);
        }
        width *= 2;
    }
    return x;
}

static ebb_value head(ebb_zoo_net *net, ebb_value x) {
    x = ebb_graph_global_avg_pool(net->graph, "avgpool", x);
    x = ebb_graph_flatten(net->graph, "flatten", x);
    return ebb_graph_linear(net->graph, "fc", x, net->classes, true);
}

static ebb_value imagenet(ebb_zoo_net *net, ebb_value x, int64_t expansion) {
    net->conv_init = EBB_ZOO_INIT_FAN_OUT;
    ebb_window stem = ebb_window_square(7, 2, 3), pool = ebb_window_square(3, 2, 1);
    x = ebb__zoo_conv(net, "conv1", x, 64, &stem, false);
    x = ebb__zoo_relu(net, "relu", ebb__zoo_norm(net, "bn1", x));
    x = ebb_graph_max_pool(net->graph, "maxpool", x, &pool);
    return head(net, stages(net, x, 4, 64, expansion));
}

/* The network for ImageNet with the stem of the one for CIFAR: it keeps the image's size and has no pool. */
static ebb_value small_images(ebb_zoo_net *net, ebb_value x, int64_t expansion) {
    net->conv_init = EBB_ZOO_INIT_FAN_OUT;
    ebb_window stem = ebb_window_square(3, 1, 1);
    x = ebb__zoo_conv(net, "conv1", x, 64, &stem, false);
    x = ebb__zoo_relu(net, "relu", ebb__zoo_norm(net, "bn1", x));
    return head(net, stages(net, x, 4, 64, expansion));
}

ebb_value ebb__zoo_resnet_basic_cifar(ebb_zoo_net *net, ebb_value x) {
    return small_images(net, x, 1);
}

ebb_value ebb__zoo_resnet_wide_cifar(ebb_zoo_net *net, ebb_value x) {
    return small_images(net, x, 4);
}

ebb_value ebb__zoo_resnet_basic(ebb_zoo_net *net, ebb_value x) {
    return imagenet(net, x, 1);
}

ebb_value ebb__zoo_resnet(ebb_zoo_net *net, ebb_value x) {
    return imagenet(net, x, 4);
}

ebb_value ebb__zoo_resnet_cifar(ebb_zoo_net *net, ebb_value x) {
    int64_t arg[3] = {net->arg[0], net->arg[0], net->arg[0]};
    net->arg = arg;
    net->conv_init = EBB_ZOO_INIT_FAN_OUT;
    ebb_window window = ebb_window_square(3, 1, 1);
    x = ebb__zoo_conv(net, "conv1", x, 16, &window, false);
    x = ebb__zoo_relu(net, "relu", ebb__zoo_norm(net, "bn1", x));
    x = stages(net, x, 3, 16, 1);
    net->arg = NULL;
    return head(net, x);
}
