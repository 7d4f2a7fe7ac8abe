/* SPDX-License-Identifier: Apache-2.0
 *
 * Inception v4 (Szegedy et al., AAAI 2017, figures 3 to 9) with batch-norm after every convolution, epsilon 1e-3, and
 * the names of timm's inception_v4: features.0 to features.21, last_linear. Dropout of 0.2 before the last layer, as in
 * the paper.
 *
 * Modules are tables: a branch is a chain of convolutions, some after a pool; the branches' results are
 * concatenated in their order.
 */
#include "graph/zoo_priv.h"

/* A convolution of kernel h x w with its batch-norm and ReLU. Stride 1 pads to keep the size unless it is marked
 * valid; stride 2 never pads. */
typedef struct unit {
    const char *name;
    int32_t channels, h, w, stride;
    bool valid;
} unit;

static ebb_value add_unit(ebb_zoo_net *net, const char *prefix, const unit *u, ebb_value x) {
    bool pads = u->stride == 1 && !u->valid;
    int32_t top = pads ? u->h / 2 : 0, left = pads ? u->w / 2 : 0;
    ebb_window window = {
        .kernel = {u->h, u->w}, .stride = {u->stride, u->stride}, .pad_begin = {top, left}, .pad_end = {top, left}};
    ebb_zoo_name_buf name = ebb__zoo_name("%s%s%s", prefix, u->name[0] != '\0' ? "." : "", u->name);
    x = ebb__zoo_conv(net, ebb__zoo_name("%s.conv", name.text).text, x, u->channels, &window, false);
    x = ebb__zoo_norm(net, ebb__zoo_name("%s.bn", name.text).text, x);
    return ebb__zoo_relu(net, ebb__zoo_name("%s.relu", name.text).text, x);
}

static ebb_value add_units(ebb_zoo_net *net, const char *prefix, const unit *u, size_t n, ebb_value x) {
    for (size_t i = 0; i < n; i++) { x = add_unit(net, prefix, &u[i], x); }
    return x;
}
#define CHAIN(net, prefix, x, ...)                                                                                     \
    add_units((net), (prefix), (const unit[]){__VA_ARGS__}, sizeof((const unit[]){__VA_ARGS__}) / sizeof(unit), (x))

static ebb_value shrink(ebb_zoo_net *net, const char *prefix, const char *name, ebb_value x) {
    return ebb__zoo_max_pool(net, ebb__zoo_name("%s.%s", prefix, name).text, x, 3, 2);
}

/* 3x3, stride 1, where padding does not count. */
static ebb_value average(ebb_zoo_net *net, const char *prefix, ebb_value x) {
    ebb_window window = ebb_window_square(3, 1, 1);
    return ebb_graph_avg_pool(net->graph, ebb__zoo_name("%s.branch3.0", prefix).text, x, &window);
}

static ebb_value concat(ebb_zoo_net *net, const char *prefix, const ebb_value *x, size_t n) {
    return ebb_graph_concat(net->graph, ebb__zoo_name("%s.concat", prefix).text, x, n);
}

static ebb_value mixed_3a(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[2];
    y[0] = shrink(net, p, "maxpool", x);
    y[1] = CHAIN(net, p, x, {"conv", 96, 3, 3, 2, false});
    return concat(net, p, y, 2);
}

static ebb_value mixed_4a(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[2];
    y[0] = CHAIN(net, p, x, {"branch0.0", 64, 1, 1, 1, false}, {"branch0.1", 96, 3, 3, 1, true});
    y[1] = CHAIN(net, p, x, {"branch1.0", 64, 1, 1, 1, false}, {"branch1.1", 64, 1, 7, 1, false},
                 {"branch1.2", 64, 7, 1, 1, false}, {"branch1.3", 96, 3, 3, 1, true});
    return concat(net, p, y, 2);
}

static ebb_value mixed_5a(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[2];
    y[0] = CHAIN(net, p, x, {"conv", 192, 3, 3, 2, false});
    y[1] = shrink(net, p, "maxpool", x);
    return concat(net, p, y, 2);
}

static ebb_value inception_a(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[4];
    y[0] = CHAIN(net, p, x, {"branch0", 96, 1, 1, 1, false});
    y[1] = CHAIN(net, p, x, {"branch1.0", 64, 1, 1, 1, false}, {"branch1.1", 96, 3, 3, 1, false});
    y[2] = CHAIN(net, p, x, {"branch2.0", 64, 1, 1, 1, false}, {"branch2.1", 96, 3, 3, 1, false},
                 {"branch2.2", 96, 3, 3, 1, false});
    y[3] = CHAIN(net, p, average(net, p, x), {"branch3.1", 96, 1, 1, 1, false});
    return concat(net, p, y, 4);
}

static ebb_value reduction_a(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[3];
    y[0] = CHAIN(net, p, x, {"branch0", 384, 3, 3, 2, false});
    y[1] = CHAIN(net, p, x, {"branch1.0", 192, 1, 1, 1, false}, {"branch1.1", 224, 3, 3, 1, false},
                 {"branch1.2", 256, 3, 3, 2, false});
    y[2] = shrink(net, p, "branch2", x);
    return concat(net, p, y, 3);
}

static ebb_value inception_b(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[4];
    y[0] = CHAIN(net, p, x, {"branch0", 384, 1, 1, 1, false});
    y[1] = CHAIN(net, p, x, {"branch1.0", 192, 1, 1, 1, false}, {"branch1.1", 224, 1, 7, 1, false},
                 {"branch1.2", 256, 7, 1, 1, false});
    y[2] = CHAIN(net, p, x, {"branch2.0", 192, 1, 1, 1, false}, {"branch2.1", 192, 7, 1, 1, false},
                 {"branch2.2", 224, 1, 7, 1, false}, {"branch2.3", 224, 7, 1, 1, false},
                 {"branch2.4", 256, 1, 7, 1, false});
    y[3] = CHAIN(net, p, average(net, p, x), {"branch3.1", 128, 1, 1, 1, false});
    return concat(net, p, y, 4);
}

static ebb_value reduction_b(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[3];
    y[0] = CHAIN(net, p, x, {"branch0.0", 192, 1, 1, 1, false}, {"branch0.1", 192, 3, 3, 2, false});
    y[1] = CHAIN(net, p, x, {"branch1.0", 256, 1, 1, 1, false}, {"branch1.1", 256, 1, 7, 1, false},
                 {"branch1.2", 320, 7, 1, 1, false}, {"branch1.3", 320, 3, 3, 2, false});
    y[2] = shrink(net, p, "branch2", x);
    return concat(net, p, y, 3);
}

/* Two of its branches fork at their end; all six results go into one concat. */
static ebb_value inception_c(ebb_zoo_net *net, const char *p, ebb_value x) {
    ebb_value y[6];
    y[0] = CHAIN(net, p, x, {"branch0", 256, 1, 1, 1, false});
    ebb_value fork = CHAIN(net, p, x, {"branch1_0", 384, 1, 1, 1, false});
    y[1] = CHAIN(net, p, fork, {"branch1_1a", 256, 1, 3, 1, false});
    y[2] = CHAIN(net, p, fork, {"branch1_1b", 256, 3, 1, 1, false});
    fork = CHAIN(net, p, x, {"branch2_0", 384, 1, 1, 1, false}, {"branch2_1", 448, 3, 1, 1, false},
                 {"branch2_2", 512, 1, 3, 1, false});
    y[3] = CHAIN(net, p, fork, {"branch2_3a", 256, 1, 3, 1, false});
    y[4] = CHAIN(net, p, fork, {"branch2_3b", 256, 3, 1, 1, false});
    y[5] = CHAIN(net, p, average(net, p, x), {"branch3.1", 256, 1, 1, 1, false});
    return concat(net, p, y, 6);
}

typedef ebb_value (*module_fn)(ebb_zoo_net *net, const char *prefix, ebb_value x);

ebb_value ebb__zoo_inception4(ebb_zoo_net *net, ebb_value x) {
    static const struct {
        module_fn add;
        int n;
    } stage[] = {{mixed_3a, 1},    {mixed_4a, 1},    {mixed_5a, 1},    {inception_a, 4},
                 {reduction_a, 1}, {inception_b, 7}, {reduction_b, 1}, {inception_c, 3}};
    net->epsilon = 1e-3f;
    x = CHAIN(net, "features", x, {"0", 32, 3, 3, 2, false}, {"1", 32, 3, 3, 1, true}, {"2", 64, 3, 3, 1, false});
    int n = 3;
    for (size_t i = 0; i < sizeof stage / sizeof stage[0]; i++) {
        for (int k = 0; k < stage[i].n; k++) { x = stage[i].add(net, ebb__zoo_name("features.%d", n++).text, x); }
    }
    x = ebb_graph_global_avg_pool(net->graph, "global_pool", x);
    x = ebb_graph_flatten(net->graph, "flatten", x);
    x = ebb__zoo_dropout(net, "head_drop", x, 0.2f);
    return ebb_graph_linear(net->graph, "last_linear", x, net->classes, true);
}
