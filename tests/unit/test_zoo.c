/* SPDX-License-Identifier: Apache-2.0
 *
 * Every network of the zoo: its published number of parameters, its names, its contract in training and inference,
 * and what is said about names and images that do not work.
 */
#include "graph/graph.h"
#include "support.h"

typedef struct known_net {
    const char *name;
    int64_t n_parameters;
} known_net;

/* torchvision's and timm's own counts; alexnet, lenet, mlp and CIFAR's by hand from their tables. */
static const known_net known[] = {
    {"mlp", 669706},
    {"lenet", 431080},
    {"alexnet", 62378344},
    {"alexnet_tv", 61100840},
    {"vgg11", 132863336},
    {"vgg13", 133047848},
    {"vgg16", 138357544},
    {"vgg19", 143667240},
    {"vgg11_bn", 132868840},
    {"vgg13_bn", 133053736},
    {"vgg16_bn", 138365992},
    {"vgg19_bn", 143678248},
    {"resnet18", 11689512},
    {"resnet34", 21797672},
    {"resnet50", 25557032},
    {"resnet101", 44549160},
    {"resnet152", 60192808},
    {"resnet:3,4,6,3", 25557032},
    {"resnet20", 272474},
    {"resnet110", 1730714},
    {"resnet_cifar:18", 1730714},
    {"densenet121", 7978856},
    {"inception4", 42679816},
    {"perceptron:512", 407050},
    {"resnet18_cifar", 11173962},
    {"resnet34_cifar", 21282122},
    {"resnet50_cifar", 23520842},
    {"resnet101_cifar", 42512970},
    {"vgg11_cifar", 9493770},
    {"vgg13_cifar", 9678666},
    {"vgg16_cifar", 14990922},
    {"vgg19_cifar", 20303178},
};
#define N_KNOWN (sizeof known / sizeof known[0])

static ebb_graph *build(const char *name, const ebb_zoo_options *options) {
    ebb_graph *graph = NULL;
    ebb_status st = ebb_zoo_build(name, options, &graph);
    if (st != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    return graph;
}

static void expect_valid(const ebb_graph *graph) {
    if (ebb__graph_validate(graph) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
}

static int64_t n_elements(const ebb_graph *graph, ebb_value_kind kind) {
    int64_t n = 0;
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (info->kind == kind) { n += ebb__shape_elements(&info->shape); }
    }
    return n;
}

static size_t n_ops(const ebb_graph *graph, ebb_op_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < graph->ops.n; i++) { n += graph->ops.data[i].kind == kind; }
    return n;
}

static const ebb_value_info *find(const ebb_graph *graph, const char *name) {
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (ebb__value_is_persistent(info->kind) && strcmp(info->name, name) == 0) { return info; }
    }
    return NULL;
}

/* A weights' file: names, shapes, order. */
static uint64_t names_hash(const ebb_graph *graph) {
    uint64_t h = EBB_HASH_INIT;
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        if (info->kind != EBB_VALUE_PARAMETER && info->kind != EBB_VALUE_BUFFER) { continue; }
        h = ebb__hash(h, info->name, strlen(info->name) + 1);
        h = ebb__hash(h, info->shape.dims, (size_t)info->shape.n_dims * sizeof info->shape.dims[0]);
    }
    return h;
}

static void test_parameter_counts(void **state) {
    (void)state;
    for (size_t i = 0; i < N_KNOWN; i++) {
        ebb_graph *graph = build(known[i].name, NULL);
        if (n_elements(graph, EBB_VALUE_PARAMETER) != known[i].n_parameters) {
            fail_msg("%s has %lld parameters", known[i].name, (long long)n_elements(graph, EBB_VALUE_PARAMETER));
        }
        expect_valid(graph);
        ebb_graph_destroy(graph);
    }
}

/* ---- contract --------------------------------------------------------------------------------- */

/* Each parameter has a gradient, and the update follows the gradient's maker or the last reader at once. */
static void expect_updates(const ebb_graph *graph, size_t n_states) {
    size_t n_parameters = 0;
    for (size_t v = 0; v < graph->values.n; v++) { n_parameters += graph->values.data[v].kind == EBB_VALUE_PARAMETER; }
    assert_int_equal(n_ops(graph, EBB_OP_UPDATE), n_parameters);
    for (size_t i = 0; i < graph->ops.n; i++) {
        const ebb_op *op = &graph->ops.data[i];
        if (op->kind != EBB_OP_UPDATE) { continue; }
        assert_int_equal(op->n_inout, 1 + n_states);
        size_t k = i;
        while (graph->ops.data[k - 1].kind == EBB_OP_UPDATE) { k--; }
        const ebb_op *before = &graph->ops.data[k - 1];
        bool due = false;
        for (uint32_t j = 0; j < before->n_in; j++) { due = due || before->in[j] == op->inout[0]; }
        for (uint32_t j = 0; j < before->n_out; j++) { due = due || before->out[j] == op->in[0]; }
        if (!due) { fail_msg("%s comes late, behind %s", op->name, before->name); }
    }
}

static void train_and_check(const char *name, const ebb_optimizer *optimizer, bool keep) {
    ebb_graph *graph = build(name, NULL);
    if (ebb_graph_train(graph, optimizer, keep) != EBB_OK) { fail_msg("%s", ebb_last_error()); }
    expect_valid(graph);
    assert_int_equal(n_elements(graph, EBB_VALUE_GRADIENT), n_elements(graph, EBB_VALUE_PARAMETER));
    for (size_t v = 0; v < graph->values.n; v++) {
        const ebb_value_info *info = &graph->values.data[v];
        assert_int_equal(info->kept, keep && info->kind == EBB_VALUE_GRADIENT);
    }
    if (optimizer != NULL) {
        expect_updates(graph, 1);
    } else {
        assert_int_equal(n_ops(graph, EBB_OP_UPDATE), 0);
    }
    ebb_graph_destroy(graph);
}

static void test_training(void **state) {
    (void)state;
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    for (size_t i = 0; i < N_KNOWN; i++) {
        train_and_check(known[i].name, &optimizer, false);
        train_and_check(known[i].name, &optimizer, true);
        train_and_check(known[i].name, NULL, true);
    }
}

static void test_inference(void **state) {
    (void)state;
    static const ebb_op_kind never[] = {EBB_OP_DROPOUT, EBB_OP_BATCH_NORM, EBB_OP_BATCH_NORM_STATS, EBB_OP_RELU};
    for (size_t i = 0; i < N_KNOWN; i++) {
        ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
        options.inference = true;
        ebb_graph *graph = build(known[i].name, &options);
        ebb_graph *training = build(known[i].name, NULL);
        expect_valid(graph);
        for (size_t k = 0; k < sizeof never / sizeof never[0]; k++) { assert_int_equal(n_ops(graph, never[k]), 0); }
        for (size_t v = 0; v < graph->values.n; v++) { assert_false(graph->values.data[v].opaque); }
        assert_true(names_hash(graph) == names_hash(training));
        size_t n = graph->ops.n;
        assert_int_equal(ebb__graph_simplify(graph), EBB_OK);
        assert_int_equal(graph->ops.n, n);
        assert_int_equal(ebb_graph_train(graph, NULL, true), EBB_E_ARGUMENT);
        ebb_graph_destroy(graph);
        ebb_graph_destroy(training);
    }
}

static void test_every_relu_is_fused(void **state) {
    (void)state;
    static const char *const nets[] = {"alexnet", "vgg16_bn", "resnet50", "densenet121", "inception4", "lenet"};
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        ebb_graph *graph = build(nets[i], NULL);
        assert_int_equal(ebb__graph_simplify(graph), EBB_OK);
        assert_int_equal(n_ops(graph, EBB_OP_RELU), 0);
        ebb_graph_destroy(graph);
    }
}

static void test_no_dropout(void **state) {
    (void)state;
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    ebb_graph *with = build("vgg16", &options);
    options.no_dropout = true;
    ebb_graph *without = build("vgg16", &options);
    assert_int_equal(n_ops(with, EBB_OP_DROPOUT), 2);
    assert_int_equal(n_ops(without, EBB_OP_DROPOUT), 0);
    ebb_graph_destroy(with);
    ebb_graph_destroy(without);
}

/* ---- names and sizes -------------------------------------------------------------------------- */

static void has_value(const char *net, const char *name, int32_t n_dims, const int64_t *dims) {
    ebb_graph *graph = build(net, NULL);
    const ebb_value_info *info = find(graph, name);
    if (info == NULL) { fail_msg("%s has no %s", net, name); }
    ebb_shape want = {.n_dims = n_dims};
    memcpy(want.dims, dims, (size_t)n_dims * sizeof *dims);
    if (!ebb__shape_equal(&info->shape, &want)) { fail_msg("%s: %s has another shape", net, name); }
    ebb_graph_destroy(graph);
}
#define HAS_VALUE(net, name, ...)                                                                                      \
    has_value(net, name, (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void test_names(void **state) {
    (void)state;
    HAS_VALUE("resnet50", "conv1.weight", 64, 3, 7, 7);
    HAS_VALUE("resnet50", "layer1.0.downsample.0.weight", 256, 64, 1, 1);
    HAS_VALUE("resnet50", "layer1.0.downsample.1.running_var", 256);
    HAS_VALUE("resnet50", "layer4.2.conv2.weight", 512, 512, 3, 3);
    HAS_VALUE("resnet50", "fc.weight", 1000, 2048);
    HAS_VALUE("resnet18", "layer2.0.downsample.0.weight", 128, 64, 1, 1);
    HAS_VALUE("resnet34", "layer3.5.bn2.bias", 256);
    HAS_VALUE("vgg16", "features.28.weight", 512, 512, 3, 3);
    HAS_VALUE("vgg16", "classifier.0.weight", 4096, 25088);
    HAS_VALUE("vgg16_bn", "features.41.running_mean", 512);
    HAS_VALUE("alexnet_tv", "features.10.weight", 256, 256, 3, 3);
    HAS_VALUE("alexnet_tv", "classifier.1.weight", 4096, 9216);
    HAS_VALUE("alexnet", "features.4.weight", 256, 96, 5, 5);
    HAS_VALUE("densenet121", "features.denseblock4.denselayer16.norm1.weight", 992);
    HAS_VALUE("densenet121", "features.transition3.conv.weight", 512, 1024, 1, 1);
    HAS_VALUE("densenet121", "classifier.weight", 1000, 1024);
    HAS_VALUE("inception4", "features.0.conv.weight", 32, 3, 3, 3);
    HAS_VALUE("inception4", "features.4.branch1.2.conv.weight", 64, 64, 7, 1);
    HAS_VALUE("inception4", "features.18.branch0.1.bn.running_mean", 192);
    HAS_VALUE("inception4", "features.21.branch2_2.conv.weight", 512, 448, 1, 3);
    HAS_VALUE("inception4", "last_linear.weight", 1000, 1536);
}

/* Names and shapes were compared with torchvision 0.14.1's state_dicts, one by one, when these were written down. */
static void test_names_stay(void **state) {
    (void)state;
    static const struct {
        const char *net;
        uint64_t hash;
    } row[] = {
        {"vgg11", 0x30f2dcf34f392e33u},     {"vgg13", 0x3734ffb430123cedu},       {"vgg16", 0xca26bf62c9eaaefbu},
        {"vgg19", 0x97fed257bb9afb3du},     {"vgg11_bn", 0xa2e951996e7bfab1u},    {"vgg13_bn", 0xc03056f443194e11u},
        {"vgg16_bn", 0x8f42673b3951553au},  {"vgg19_bn", 0xe8502bc13636ad51u},    {"resnet18", 0x54fae339f13327d8u},
        {"resnet34", 0x827b64c92cbe1194u},  {"resnet50", 0x3f939d14507f871fu},    {"resnet101", 0x7f5ad1d8f5654b4au},
        {"resnet152", 0xab1b9f034c6ac0f0u}, {"densenet121", 0x37c7c12c9f58f6e3u}, {"alexnet_tv", 0xf94c522c467570eau},

    };
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        ebb_graph *graph = build(row[i].net, NULL);
        if (names_hash(graph) != row[i].hash) {
            fail_msg("%s: other names or shapes: 0x%016llxu", row[i].net, (unsigned long long)names_hash(graph));
        }
        ebb_graph_destroy(graph);
    }
}

static void test_table(void **state) {
    (void)state;
    const char *about = NULL;
    size_t n = 0;
    for (; ebb_zoo_name(n, &about) != NULL; n++) {
        assert_true(about[0] != '\0');
        const char *name = ebb_zoo_name(n, NULL);
        if (strchr(name, ':') != NULL) { continue; }
        ebb_graph_destroy(build(name, NULL));
    }
    assert_true(n > 20);
    assert_null(ebb_zoo_name(n, &about));
}

static void test_sizes(void **state) {
    (void)state;
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.batch = 3;
    options.channels = 1;
    options.height = 107;
    options.width = 139;
    options.classes = 7;
    static const char *const nets[] = {"alexnet", "vgg11", "resnet18", "inception4", "densenet121", "resnet20"};
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        ebb_graph *graph = build(nets[i], &options);
        int64_t dims[4];
        size_t n_dims = 0;
        assert_int_equal(ebb_graph_value_shape(graph, ebb__graph_port(graph, "images")->value, dims, &n_dims), EBB_OK);
        assert_int_equal(n_dims, 4);
        assert_true(dims[0] == 3 && dims[1] == 1 && dims[2] == 107 && dims[3] == 139);
        assert_int_equal(graph->classes, 7);
        expect_valid(graph);
        ebb_graph_destroy(graph);
    }
}

static void expect_error(const char *net, int64_t size, ebb_status status, const char *part) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.height = options.width = size;
    ebb_graph *graph = NULL;
    assert_int_equal(ebb_zoo_build(net, &options, &graph), status);
    assert_null(graph);
    if (strstr(ebb_last_error(), part) == NULL) { fail_msg("'%s' does not say '%s'", ebb_last_error(), part); }
}

static void test_errors(void **state) {
    (void)state;
    expect_error("vgg17", 0, EBB_E_ARGUMENT, "near it: vgg11, vgg13, vgg16, vgg19");
    expect_error("resnet51", 0, EBB_E_ARGUMENT, "; of any size: resnet:N1,N2,N3,N4, resnet_cifar:N");
    expect_error("resnet5O", 0, EBB_E_ARGUMENT, "resnet50");
    expect_error("transformer", 0, EBB_E_ARGUMENT, "there are: mlp, perceptron:N, lenet");
    expect_error("bert", 0, EBB_E_ARGUMENT, "there are: mlp");
    expect_error("gpt2", 0, EBB_E_ARGUMENT, "there are: mlp");
    expect_error("vgg", 0, EBB_E_ARGUMENT, "near it: vgg11");
    expect_error("", 0, EBB_E_ARGUMENT, "there are: mlp");
    expect_error("resnet:3,4", 0, EBB_E_ARGUMENT, "4 figures are wanted, as in resnet:N1,N2,N3,N4");
    expect_error("resnet", 0, EBB_E_ARGUMENT, "4 figures are wanted");
    expect_error("resnet:", 0, EBB_E_ARGUMENT, "'' is not a number");
    expect_error("resnet:3,4,6,", 0, EBB_E_ARGUMENT, "'' is not a number");
    expect_error("resnet:3,4,six,3", 0, EBB_E_ARGUMENT, "'six' is not a number");
    expect_error("resnet:3,4,-6,3", 0, EBB_E_ARGUMENT, "'-6' is not a number");
    expect_error("resnet:3,4,6,3,5", 0, EBB_E_ARGUMENT, "4 figures are wanted");
    expect_error("resnet:0,0,0,0", 0, EBB_E_ARGUMENT, "0 blocks, where 1 to");
    expect_error("resnet:3,4,6,99999999999", 0, EBB_E_ARGUMENT, "99999999999 blocks");
    expect_error("resnet:3,4,6,99999999999999999999999", 0, EBB_E_ARGUMENT, "blocks, where");
    expect_error("resnet:300000,300000,1,1", 0, EBB_E_ARGUMENT, "600002 blocks in all");
    expect_error("resnet50:3", 0, EBB_E_ARGUMENT, "resnet50 takes no figures");
    expect_error("resnet_cifar:x", 0, EBB_E_ARGUMENT, "'x' is not a number");
    expect_error("vgg16", 16, EBB_E_ARGUMENT, "vgg16: features.30: the image is too small here: height 1");
    expect_error("lenet", 8, EBB_E_ARGUMENT, "lenet: conv2: the image is too small here");
    expect_error("inception4", 60, EBB_E_ARGUMENT, "the image is too small here");
    expect_error("resnet50", 32, EBB_E_ARGUMENT, "layer4.0.bn2: a batch of one 1x1 image");
    expect_error("mlp", -1, EBB_E_ARGUMENT, "a negative");
    expect_error("resnet50", INT64_MAX / 2, EBB_E_LIMIT, "images");
}

static uint64_t time_to_train(const char *net, size_t *n_ops_out) {
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    uint64_t start = ebb__now_ns();
    ebb_graph *graph = build(net, NULL);
    assert_int_equal(ebb_graph_train(graph, &optimizer, false), EBB_OK);
    uint64_t took = ebb__now_ns() - start;
    *n_ops_out = graph->ops.n;
    ebb_graph_destroy(graph);
    return took;
}

/* Ten times the layers take some ten times as long, not a hundred. */
static void test_deep_nets_are_linear(void **state) {
    (void)state;
    size_t n_small = 0, n_large = 0;
    uint64_t small = time_to_train("resnet:100,100,100,30", &n_small);
    uint64_t large = time_to_train("resnet:1000,1000,1000,300", &n_large);
    assert_true(n_large > 9 * n_small);
    print_message("%zu ops in %.3f s, %zu in %.3f s\n", n_small, (double)small * 1e-9, n_large, (double)large * 1e-9);
    assert_true(large < 40 * small);
}

static void test_out_of_memory(void **state) {
    (void)state;
    static const char *const nets[] = {"alexnet", "resnet18", "resnet20"};
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    for (size_t i = 0; i < sizeof nets / sizeof nets[0]; i++) {
        OOM_LOOP(mem, st, {
            ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
            options.mem = mem;
            ebb_graph *graph = NULL;
            st = ebb_zoo_build(nets[i], &options, &graph);
            if (st == EBB_OK) { st = ebb_graph_train(graph, &optimizer, true); }
            ebb_graph_destroy(graph);
        });
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameter_counts),
        cmocka_unit_test(test_training),
        cmocka_unit_test(test_inference),
        cmocka_unit_test(test_every_relu_is_fused),
        cmocka_unit_test(test_no_dropout),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_names_stay),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_deep_nets_are_linear),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
