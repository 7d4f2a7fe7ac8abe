/* SPDX-License-Identifier: Apache-2.0
 *
 * The zoo: the table of networks, what a name on the command line means, and the frame around each network
 * (images and labels in, loss out). The networks themselves are in zoo_*.c.
 */
#include "graph/zoo_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MAX_BLOCKS 333333 /* of a network: a million convolutions */

typedef struct zoo_row {
    const char *name; /* up to a colon, if there is one: after it stand the figures' names */
    const char *about;
    ebb_zoo_fn build;
    int64_t n_args; /* figures that the user gives after a colon */
    int64_t arg[EBB_ZOO_MAX_ARGS];
    int64_t channels, size, classes;
} zoo_row;

static const zoo_row zoo[] = {
    {"mlp", "784-512-512-10 fully connected", ebb__zoo_mlp, 0, {0}, 1, 28, 10},
    {"perceptron:N", "784-N-10 fully connected", ebb__zoo_perceptron, 1, {0}, 1, 28, 10},
    {"lenet", "LeNet-5 with ReLU and max pools, 20 and 50 maps", ebb__zoo_lenet, 0, {0}, 1, 28, 10},
    {"alexnet", "AlexNet of 2012 in one tower, with LRN", ebb__zoo_alexnet, 0, {0}, 3, 227, 1000},
    {"alexnet_tv", "AlexNet as in torchvision", ebb__zoo_alexnet_tv, 0, {0}, 3, 224, 1000},
    {"vgg11", "VGG-A", ebb__zoo_vgg, 0, {11, 0}, 3, 224, 1000},
    {"vgg13", "VGG-B", ebb__zoo_vgg, 0, {13, 0}, 3, 224, 1000},
    {"vgg16", "VGG-D", ebb__zoo_vgg, 0, {16, 0}, 3, 224, 1000},
    {"vgg19", "VGG-E", ebb__zoo_vgg, 0, {19, 0}, 3, 224, 1000},
    {"vgg11_bn", "VGG-A with batch-norm", ebb__zoo_vgg, 0, {11, 1}, 3, 224, 1000},
    {"vgg13_bn", "VGG-B with batch-norm", ebb__zoo_vgg, 0, {13, 1}, 3, 224, 1000},
    {"vgg16_bn", "VGG-D with batch-norm", ebb__zoo_vgg, 0, {16, 1}, 3, 224, 1000},
    {"vgg19_bn", "VGG-E with batch-norm", ebb__zoo_vgg, 0, {19, 1}, 3, 224, 1000},
    {"resnet18", "ResNet-18", ebb__zoo_resnet_basic, 0, {2, 2, 2, 2}, 3, 224, 1000},
    {"resnet34", "ResNet-34", ebb__zoo_resnet_basic, 0, {3, 4, 6, 3}, 3, 224, 1000},
    {"resnet50", "ResNet-50, stride in the 3x3", ebb__zoo_resnet, 0, {3, 4, 6, 3}, 3, 224, 1000},
    {"resnet101", "ResNet-101", ebb__zoo_resnet, 0, {3, 4, 23, 3}, 3, 224, 1000},
    {"resnet152", "ResNet-152", ebb__zoo_resnet, 0, {3, 8, 36, 3}, 3, 224, 1000},
    {"resnet:N1,N2,N3,N4", "ResNet with this many bottlenecks in each stage", ebb__zoo_resnet, 4, {0}, 3, 224, 1000},
    {"resnet20", "ResNet-20 for CIFAR", ebb__zoo_resnet_cifar, 0, {3}, 3, 32, 10},
    {"resnet32", "ResNet-32 for CIFAR", ebb__zoo_resnet_cifar, 0, {5}, 3, 32, 10},
    {"resnet44", "ResNet-44 for CIFAR", ebb__zoo_resnet_cifar, 0, {7}, 3, 32, 10},
    {"resnet56", "ResNet-56 for CIFAR", ebb__zoo_resnet_cifar, 0, {9}, 3, 32, 10},
    {"resnet110", "ResNet-110 for CIFAR", ebb__zoo_resnet_cifar, 0, {18}, 3, 32, 10},
    {"resnet_cifar:N", "ResNet of depth 6N+2 for CIFAR", ebb__zoo_resnet_cifar, 1, {0}, 3, 32, 10},
    {"resnet18_cifar", "ResNet-18 with a stem for CIFAR", ebb__zoo_resnet_basic_cifar, 0, {2, 2, 2, 2}, 3, 32, 10},
    {"resnet34_cifar", "ResNet-34 with a stem for CIFAR", ebb__zoo_resnet_basic_cifar, 0, {3, 4, 6, 3}, 3, 32, 10},
    {"resnet50_cifar", "ResNet-50 with a stem for CIFAR", ebb__zoo_resnet_wide_cifar, 0, {3, 4, 6, 3}, 3, 32, 10},
    {"resnet101_cifar", "ResNet-101 with a stem for CIFAR", ebb__zoo_resnet_wide_cifar, 0, {3, 4, 23, 3}, 3, 32, 10},
    {"vgg11_cifar", "VGG-A with batch-norm, 512 hidden units", ebb__zoo_vgg_cifar, 0, {11, 1}, 3, 32, 10},
    {"vgg13_cifar", "VGG-B with batch-norm, 512 hidden units", ebb__zoo_vgg_cifar, 0, {13, 1}, 3, 32, 10},
    {"vgg16_cifar", "VGG-D with batch-norm, 512 hidden units", ebb__zoo_vgg_cifar, 0, {16, 1}, 3, 32, 10},
    {"vgg19_cifar", "VGG-E with batch-norm, 512 hidden units", ebb__zoo_vgg_cifar, 0, {19, 1}, 3, 32, 10},
    {"densenet121", "DenseNet-121", ebb__zoo_densenet, 0, {6, 12, 24, 16}, 3, 224, 1000},
    {"inception4", "Inception v4 with batch-norm", ebb__zoo_inception4, 0, {0}, 3, 299, 1000},
};
#define N_ZOO (sizeof zoo / sizeof zoo[0])

const char *ebb_zoo_name(size_t idx, const char **about_out) {
    if (idx >= N_ZOO) { return NULL; }
    if (about_out != NULL) { *about_out = zoo[idx].about; }
    return zoo[idx].name;
}

/* ---- names ------------------------------------------------------------------------------------ */

static const char *name_at(const void *ctx, size_t i) {
    (void)ctx;
    return ebb_zoo_name(i, NULL);
}

/* Add the families of a name such as "resnet51", of which any size can be had. */
static void add_families(const char *name, char names[EBB_SUGGESTION_BYTES]) {
    const size_t n_stem = strcspn(name, "0123456789");
    const char *before = "; of any size: ";
    for (size_t i = 0; i < N_ZOO && n_stem > 0 && name[n_stem] != '\0'; i++) {
        const char *family = zoo[i].name;
        const size_t at = strlen(names);
        if (zoo[i].n_args == 0 || strncmp(name, family, n_stem) != 0 || strstr(names, family) != NULL) { continue; }
        if (at + strlen(before) + strlen(family) >= EBB_SUGGESTION_BYTES) { return; }
        snprintf(names + at, EBB_SUGGESTION_BYTES - at, "%s%s", before, family);
        before = ", ";
    }
}

static ebb_status fail_unknown(const char *name) {
    char names[EBB_SUGGESTION_BYTES];
    (void)ebb__suggest_or_list(name, name_at, NULL, names);
    add_families(name, names);
    return ebb_fail(EBB_E_ARGUMENT, "there is no network '%.64s'%s", name, names);
}

static ebb_status parse_arg(const char *name, const char **at, int64_t *arg_out) {
    char *end = NULL;
    errno = 0;
    long long x = strtoll(*at, &end, 10);
    size_t n = strcspn(*at, ",");
    if (n == 0 || (*at)[0] < '0' || (*at)[0] > '9' || end != *at + n) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': '%.*s' is not a number of blocks", name,
                        (int)ebb_min_u64(n, 32), *at);
    }
    if (errno != 0 || x < 1 || x > MAX_BLOCKS) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': %.*s blocks, where 1 to %d are possible", name,
                        (int)ebb_min_u64(n, 32), *at, MAX_BLOCKS);
    }
    *at = end;
    *arg_out = x;
    return EBB_OK;
}

static ebb_status parse_args(const char *name, const zoo_row *row, int64_t arg_out[EBB_ZOO_MAX_ARGS]) {
    const char *at = name + strcspn(name, ":");
    int64_t n_args = 0, sum = 0;
    if (*at == ':' && row->n_args == 0) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': %s takes no figures", name, row->name);
    }
    while (*at != '\0' && n_args < row->n_args) {
        at++; /* the colon or a comma */
        EBB_TRY(parse_arg(name, &at, &arg_out[n_args]));
        sum += arg_out[n_args++];
    }
    if (n_args < row->n_args || *at != '\0') {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': %d %s wanted, as in %s", name, (int)row->n_args,
                        row->n_args == 1 ? "figure is" : "figures are", row->name);
    }
    if (sum > MAX_BLOCKS) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': %lld blocks in all, where %d are possible", name,
                        (long long)sum, MAX_BLOCKS);
    }
    return EBB_OK;
}

static ebb_status find_row(const char *name, const zoo_row **row_out, int64_t arg_out[EBB_ZOO_MAX_ARGS]) {
    size_t n = strcspn(name, ":");
    for (size_t i = 0; i < N_ZOO; i++) {
        if (strcspn(zoo[i].name, ":") != n || memcmp(zoo[i].name, name, n) != 0) { continue; }
        memcpy(arg_out, zoo[i].arg, sizeof zoo[i].arg);
        EBB_TRY(parse_args(name, &zoo[i], arg_out));
        *row_out = &zoo[i];
        return EBB_OK;
    }
    return fail_unknown(name);
}

/* ---- shared layers ---------------------------------------------------------------------------- */

ebb_zoo_name_buf ebb__zoo_name(const char *fmt, ...) {
    ebb_zoo_name_buf name;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(name.text, sizeof name.text, fmt, args);
    va_end(args);
    EBB_ASSERT(n >= 0 && (size_t)n < sizeof name.text);
    (void)n;
    return name;
}

ebb_value ebb__zoo_conv(ebb_zoo_net *net, const char *name, ebb_value x, int64_t out_channels, const ebb_window *window,
                        bool bias) {
    int64_t in_channels = x < net->graph->values.n ? net->graph->values.data[x].shape.dims[1] : 1;
    ebb_value dst = ebb_graph_conv(net->graph, name, x, out_channels, window, bias);
    if (net->conv_init == EBB_ZOO_INIT_DEFAULT) { return dst; }
    int64_t maps = net->conv_init == EBB_ZOO_INIT_FAN_IN ? in_channels : out_channels;
    double fan = (double)maps * window->kernel[0] * window->kernel[1];
    ebb__graph_init_weights(net->graph, EBB_INIT_NORMAL, (float)sqrt(2.0 / fan));
    if (bias) { ebb__graph_init_bias(net->graph, EBB_INIT_ZERO, 0.0f); }
    return dst;
}

ebb_value ebb__zoo_norm(ebb_zoo_net *net, const char *name, ebb_value x) {
    return ebb_graph_batch_norm(net->graph, name, x, net->epsilon, 0.1f);
}

ebb_value ebb__zoo_relu(ebb_zoo_net *net, const char *name, ebb_value x) {
    return ebb_graph_relu(net->graph, name, x);
}

ebb_value ebb__zoo_max_pool(ebb_zoo_net *net, const char *name, ebb_value x, int32_t kernel, int32_t stride) {
    ebb_window window = ebb_window_square(kernel, stride, 0);
    return ebb_graph_max_pool(net->graph, name, x, &window);
}

ebb_value ebb__zoo_dropout(ebb_zoo_net *net, const char *name, ebb_value x, float p) {
    return net->no_dropout ? x : ebb_graph_dropout(net->graph, name, x, p);
}

/* ---- building --------------------------------------------------------------------------------- */

static ebb_status check_options(const char *name, const ebb_zoo_options *options) {
    if (options->size_bytes != sizeof *options) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': options of an unknown size", name);
    }
    if (options->batch < 0 || options->channels < 0 || options->height < 0 || options->width < 0 ||
        options->classes < 0) {
        return ebb_fail(EBB_E_ARGUMENT, "network '%.64s': a negative batch, image size or number of classes", name);
    }
    return EBB_OK;
}

static int64_t or_default(int64_t x, int64_t otherwise) {
    return x != 0 ? x : otherwise;
}

static ebb_status fill(ebb_graph *graph, const zoo_row *row, const int64_t *arg, const ebb_zoo_options *options) {
    int64_t n = or_default(options->batch, 1);
    ebb_zoo_net net = {.graph = graph,
                       .arg = arg,
                       .classes = or_default(options->classes, row->classes),
                       .no_dropout = options->no_dropout,
                       .epsilon = 1e-5f};
    ebb_value images = ebb_graph_images(graph, n, or_default(options->channels, row->channels),
                                        or_default(options->height, row->size), or_default(options->width, row->size));
    ebb_value labels = ebb_graph_labels(graph, n, net.classes);
    (void)ebb_graph_softmax_loss(graph, row->build(&net, images), labels);
    EBB_TRY(ebb_graph_check(graph));
    return graph->inference ? ebb__graph_simplify(graph) : EBB_OK;
}

ebb_status ebb_zoo_build(const char *name, const ebb_zoo_options *options, ebb_graph **graph_out) {
    EBB_NEED(name);
    EBB_NEED(graph_out);
    ebb_zoo_options defaults = EBB_ZOO_OPTIONS_INIT;
    if (options == NULL) { options = &defaults; }
    EBB_TRY(check_options(name, options));
    const zoo_row *row = NULL;
    int64_t arg[EBB_ZOO_MAX_ARGS];
    EBB_TRY(find_row(name, &row, arg));
    ebb_graph_options graph_options = EBB_GRAPH_OPTIONS_INIT;
    graph_options.mem = options->mem;
    graph_options.name = name;
    graph_options.inference = options->inference;
    ebb_graph *graph = NULL;
    EBB_TRY(ebb_graph_create(&graph_options, &graph));
    ebb_status st = fill(graph, row, arg, options);
    if (st != EBB_OK) {
        ebb_graph_destroy(graph);
        return st;
    }
    *graph_out = graph;
    return EBB_OK;
}
