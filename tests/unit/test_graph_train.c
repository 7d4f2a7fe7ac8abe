/* SPDX-License-Identifier: Apache-2.0
 *
 * From forward to training: the order of the operators written out for small networks, the passes alone, optimisers'
 * operands and arithmetic, and how parameters begin.
 */
#include "interpreter.h"

#include <math.h>

typedef struct fixture {
    ebb_graph *graph;
    ebb_value x, labels;
} fixture;

static fixture make(bool inference) {
    ebb_graph_options options = EBB_GRAPH_OPTIONS_INIT;
    options.inference = inference;
    fixture f = {0};
    expect_ok(ebb_graph_create(&options, &f.graph));
    f.x = ebb_graph_images(f.graph, 2, 3, 8, 8);
    f.labels = ebb_graph_labels(f.graph, 2, 4);
    return f;
}

static void add_head(fixture *f, ebb_value x) {
    x = ebb_graph_linear(f->graph, "fc", ebb_graph_flatten(f->graph, "flat", x), 4, true);
    (void)ebb_graph_softmax_loss(f->graph, x, f->labels);
    expect_ok(ebb_graph_check(f->graph));
}

/* The names of all operators after the last FETCH, one a line. */
static void expect_backward(const ebb_graph *graph, const char *want) {
    char text[4096] = "";
    size_t first = 0;
    for (size_t i = 0; i < graph->ops.n; i++) {
        if (graph->ops.data[i].kind == EBB_OP_FETCH) { first = i + 1; }
    }
    for (size_t i = first; i < graph->ops.n; i++) {
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof text - n, "%s\n", graph->ops.data[i].name);
    }
    assert_string_equal(text, want);
}

static void test_order(void **state) {
    (void)state;
    fixture f = make(false);
    ebb_window window = ebb_window_square(3, 1, 1);
    ebb_value x = ebb_graph_conv(f.graph, "a", f.x, 3, &window, true);
    x = ebb_graph_relu(f.graph, "r", ebb_graph_batch_norm(f.graph, "bn", x, 1e-5f, 0.1f));
    ebb_value y = ebb_graph_relu(f.graph, "s", ebb_graph_conv(f.graph, "b", x, 3, &window, false));
    add_head(&f, ebb_graph_relu(f.graph, "t", ebb_graph_add(f.graph, "sum", x, y)));
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    expect_ok(ebb_graph_train(f.graph, &optimizer, false));
    expect_backward(f.graph, "loss.bwd\n"
                             "fc.bwd_weights\nfc.bias.update\nfc.bwd_data\nfc.weight.update\n"
                             "sum.relu_bwd\n"
                             "b.relu_bwd\nb.bwd_weights\nb.bwd_data\nb.weight.update\n"
                             "r.grad_add\n"
                             "bn.bwd\nbn.weight.update\nbn.bias.update\n"
                             "a.bwd_weights\na.weight.update\na.bias.update\n");
    ebb_graph_destroy(f.graph);
}

static void test_slices_are_added_in_one_op(void **state) {
    (void)state;
    fixture f = make(false);
    ebb_value x = ebb_graph_conv(f.graph, "a", f.x, 2, NULL, false);
    ebb_value y = ebb_graph_conv(f.graph, "b", x, 3, NULL, false);
    ebb_value z = ebb_graph_concat(f.graph, "inner", (ebb_value[]){x, y}, 2);
    add_head(&f, ebb_graph_concat(f.graph, "outer", (ebb_value[]){z, y}, 2));
    expect_ok(ebb_graph_train(f.graph, NULL, true));
    expect_backward(f.graph, "loss.bwd\nfc.bwd_weights\nfc.bwd_data\n"
                             "b.slice\nb.slice_add\n" /* y's part of outer, then that of inner within outer */
                             "b.bwd_weights\nb.bwd_data\n"
                             "a.slice_add\n"
                             "a.bwd_weights\n");
    for (size_t i = 0; i < f.graph->ops.n; i++) {
        const ebb_op *op = &f.graph->ops.data[i];
        if (strcmp(op->name, "b.slice") == 0) { assert_int_equal(op->attr.offset, 5); }
        if (strcmp(op->name, "b.slice_add") == 0) { assert_int_equal(op->attr.offset, 2); }
        if (strcmp(op->name, "a.slice_add") == 0) { assert_int_equal(op->attr.offset, 0); }
    }
    ebb_graph_destroy(f.graph);
}

static size_t count(const ebb_graph *graph, ebb_op_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < graph->ops.n; i++) { n += graph->ops.data[i].kind == kind; }
    return n;
}

/* A ReLU stays where its input has another reader, a flatten where something else reads it. */
static void test_passes_leave_shared_values(void **state) {
    (void)state;
    for (int inference = 0; inference < 2; inference++) {
        fixture f = make(inference != 0);
        ebb_value x = ebb_graph_batch_norm(f.graph, "bn", f.x, 1e-5f, 0.1f);
        ebb_value y = ebb_graph_add(f.graph, "sum", x, ebb_graph_relu(f.graph, "kept", x));
        y = ebb_graph_flatten(f.graph, "flat", ebb_graph_relu(f.graph, "fused", y));
        ebb_value a = ebb_graph_linear(f.graph, "fc1", y, 4, true), b = ebb_graph_linear(f.graph, "fc2", y, 4, true);
        (void)ebb_graph_softmax_loss(f.graph, ebb_graph_add(f.graph, "logits", a, b), f.labels);
        expect_ok(ebb__graph_simplify(f.graph));
        assert_int_equal(count(f.graph, EBB_OP_RELU), 1);
        assert_int_equal(count(f.graph, EBB_OP_RESHAPE), 1);
        size_t n_ops = f.graph->ops.n, n_values = f.graph->values.n;
        expect_ok(ebb__graph_simplify(f.graph));
        assert_true(f.graph->ops.n == n_ops && f.graph->values.n == n_values);
        expect_ok(ebb__graph_validate(f.graph));
        ebb_graph_destroy(f.graph);
    }
}

static void test_what_cannot_be_trained(void **state) {
    (void)state;
    fixture f = make(false);
    assert_int_equal(ebb_graph_train(f.graph, NULL, true), EBB_E_ARGUMENT); /* no loss yet */
    add_head(&f, ebb_graph_conv(f.graph, "a", f.x, 2, NULL, false));
    assert_int_equal(ebb_graph_train(f.graph, NULL, false), EBB_E_ARGUMENT);
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    optimizer.momentum = 1.0f;
    assert_int_equal(ebb_graph_train(f.graph, &optimizer, false), EBB_E_ARGUMENT);
    optimizer = EBB_OPTIMIZER_INIT;
    optimizer.weight_decay = NAN;
    assert_int_equal(ebb_graph_train(f.graph, &optimizer, false), EBB_E_ARGUMENT);
    optimizer = EBB_OPTIMIZER_INIT;
    expect_ok(ebb_graph_train(f.graph, &optimizer, false)); /* none of these has spoilt it */
    assert_int_equal(ebb_graph_train(f.graph, &optimizer, false), EBB_E_ARGUMENT);
    expect_ok(ebb__graph_simplify(f.graph));
    assert_int_equal(ebb_graph_relu(f.graph, "late", f.x), EBB_NO_VALUE);
    assert_int_equal(ebb_graph_check(f.graph), EBB_E_ARGUMENT);
    ebb_graph_destroy(f.graph);

    f = make(false);
    ebb_value flat = ebb_graph_flatten(f.graph, "flat", ebb_graph_global_avg_pool(f.graph, "p", f.x));
    flat = ebb_graph_concat(f.graph, "k", (ebb_value[]){flat, flat}, 1);
    f.graph->classes = 3;
    (void)ebb_graph_softmax_loss(f.graph, flat, f.labels);
    assert_int_equal(ebb_graph_train(f.graph, NULL, true), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "depends on no parameter"));
    ebb_graph_destroy(f.graph);
}

/* ---- optimisers ------------------------------------------------------------------------------- */

typedef struct figures {
    double w, m, v;
} figures;

/* One update of one weight, from the papers' formulas in double. */
static figures step_of(const ebb_optimizer *o, figures at, double g, double lr, int t) {
    if (o->kind == EBB_OPT_ADAMW) { at.w -= lr * (double)o->weight_decay * at.w; }
    if (o->kind != EBB_OPT_ADAMW) { g += (double)o->weight_decay * at.w; }
    double mu = (double)o->momentum, b1 = (double)o->beta1, b2 = (double)o->beta2;
    switch (o->kind) {
    case EBB_OPT_SGD: at.w -= lr * g; break;
    case EBB_OPT_MOMENTUM:
        at.m = mu * at.m + g;
        at.w -= lr * at.m;
        break;
    case EBB_OPT_NESTEROV:
        at.m = mu * at.m + g;
        at.w -= lr * (g + mu * at.m);
        break;
    case EBB_OPT_ADAM:
    case EBB_OPT_ADAMW:
        at.m = b1 * at.m + (1.0 - b1) * g;
        at.v = b2 * at.v + (1.0 - b2) * g * g;
        at.w -= lr * (at.m / (1.0 - pow(b1, t))) / (sqrt(at.v / (1.0 - pow(b2, t))) + (double)o->epsilon);
        break;
    }
    return at;
}

static const ebb_op *find_update(const ebb_graph *graph, const char *name) {
    for (size_t i = 0; i < graph->ops.n; i++) {
        if (strcmp(graph->ops.data[i].name, name) == 0) { return &graph->ops.data[i]; }
    }
    fail_msg("no %s", name);
    return NULL;
}

static void check_optimizer(ebb_optimizer_kind kind, uint32_t n_states) {
    ebb_optimizer optimizer = EBB_OPTIMIZER_INIT;
    optimizer.kind = kind;
    optimizer.weight_decay = 0.01f;
    fixture f = make(false);
    add_head(&f, ebb_graph_conv(f.graph, "a", f.x, 2, NULL, false));
    expect_ok(ebb_graph_train(f.graph, &optimizer, true));
    const ebb_op *op = find_update(f.graph, "a.weight.update");
    assert_int_equal(op->n_inout, 1 + n_states);
    float images[2 * 3 * 8 * 8];
    int32_t labels[2] = {1, 3};
    for (size_t i = 0; i < sizeof images / sizeof *images; i++) { images[i] = 0.1f * (float)(i % 13) - 0.6f; }
    interpreter it;
    interpreter_init(&it, f.graph, images, labels);
    figures at = {(double)interpreter_value(&it, op->inout[0])[1], 0.0, 0.0};
    for (int t = 1; t <= 4; t++) {
        it.state.update = (uint64_t)t;
        interpreter_run(&it);
        at = step_of(&optimizer, at, (double)interpreter_value(&it, op->in[0])[1], (double)it.state.learning_rate, t);
        assert_true(fabs(at.w - (double)interpreter_value(&it, op->inout[0])[1]) < 1e-5);
    }
    interpreter_fini(&it);
    ebb_graph_destroy(f.graph);
}

static void test_optimizers(void **state) {
    (void)state;
    static const char *const names[] = {"sgd", "momentum", "nesterov", "adam", "adamw"};
    static const uint32_t n_states[] = {0, 1, 1, 2, 2};
    ebb_optimizer_kind kind = EBB_OPT_SGD;
    for (size_t i = 0; i < 5; i++) {
        expect_ok(ebb_optimizer_parse(names[i], &kind));
        check_optimizer(kind, n_states[i]);
    }
    assert_int_equal(ebb_optimizer_parse("adamax", &kind), EBB_E_ARGUMENT);
    assert_non_null(strstr(ebb_last_error(), "'adamax'; near it: adam"));
}

/* ---- how parameters begin --------------------------------------------------------------------- */

static ebb_value find_value(const ebb_graph *graph, const char *name) {
    for (size_t v = 0; v < graph->values.n; v++) {
        if (strcmp(graph->values.data[v].name, name) == 0) { return (ebb_value)v; }
    }
    fail_msg("no %s", name);
    return EBB_NO_VALUE;
}

static float *content(const char *net, bool inference, const char *name, uint64_t seed, size_t *n_out) {
    ebb_zoo_options options = EBB_ZOO_OPTIONS_INIT;
    options.inference = inference;
    ebb_graph *graph = NULL;
    expect_ok(ebb_zoo_build(net, &options, &graph));
    ebb_value v = find_value(graph, name);
    size_t n = (size_t)ebb__shape_elements(&graph->values.data[v].shape);
    float *x = malloc(n * sizeof *x);
    ebb__graph_init_value(graph, v, seed, x);
    ebb_graph_destroy(graph);
    *n_out = n;
    return x;
}

static void expect_moments(const char *net, const char *name, double mean, double deviation, double limit) {
    size_t n = 0;
    float *x = content(net, false, name, 5, &n);
    double sum = 0.0, squares = 0.0, largest = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        largest = fmax(largest, fabs((double)x[i]));
    }
    double slack = 5.0 * deviation / sqrt((double)n);
    assert_true(fabs(sum / (double)n - mean) <= slack);
    assert_true(fabs(sqrt(squares / (double)n) - deviation) <= slack);
    assert_true(largest <= limit);
    free(x);
}

static void test_distributions(void **state) {
    (void)state;
    double he = sqrt(2.0 / (512.0 * 9.0)), uniform = 1.0 / sqrt(2048.0);
    expect_moments("resnet50", "layer4.1.conv2.weight", 0.0, he, 7.0 * he);
    expect_moments("resnet50", "fc.weight", 0.0, uniform / sqrt(3.0), uniform);
    expect_moments("resnet50", "fc.bias", 0.0, uniform / sqrt(3.0), uniform);
    expect_moments("resnet50", "bn1.weight", 1.0, 0.0, 1.0);
    expect_moments("resnet50", "bn1.running_var", 1.0, 0.0, 1.0);
    expect_moments("vgg16", "classifier.6.weight", 0.0, 0.01, 0.07);
    expect_moments("vgg16", "features.0.bias", 0.0, 0.0, 0.0);
    expect_moments("densenet121", "features.denseblock4.denselayer1.conv1.weight", 0.0, sqrt(2.0 / 512.0), 0.5);
}

/* Against Box and Muller's formula with the C library's functions in double. */
static void test_normal_numbers(void **state) {
    (void)state;
    size_t n = 0;
    float *x = content("resnet18", false, "layer1.0.conv1.weight", 5, &n);
    uint64_t stream = ebb__hash(EBB_HASH_INIT, "layer1.0.conv1.weight", strlen("layer1.0.conv1.weight"));
    double scale = sqrt(2.0 / (64.0 * 9.0));
    for (size_t i = 0; i < n; i += 4) {
        uint32_t words[4];
        ebb__philox(5, stream, i / 4, words);
        for (size_t k = 0; k < 4; k += 2) {
            double radius = scale * sqrt(-2.0 * log(1.0 - (double)ebb__unit_float(words[k])));
            double angle = 2.0 * 3.14159265358979323846 * (double)ebb__unit_float(words[k + 1]);
            assert_true(fabs((double)x[i + k] - radius * cos(angle)) <= 3e-7 * radius);
            assert_true(fabs((double)x[i + k + 1] - radius * sin(angle)) <= 3e-7 * radius);
        }
    }
    free(x);
}

static void test_content_depends_on_name_and_seed_alone(void **state) {
    (void)state;
    size_t n = 0, n_other = 0;
    float *x = content("resnet18", false, "conv1.weight", 5, &n);
    float *inference = content("resnet18", true, "conv1.weight", 5, &n_other);
    float *deeper = content("resnet34", false, "conv1.weight", 5, &n_other);
    float *seed = content("resnet18", false, "conv1.weight", 6, &n_other);
    float *name = content("resnet18", false, "layer1.0.conv1.weight", 5, &n_other);
    assert_memory_equal(x, inference, n * sizeof *x);
    assert_memory_equal(x, deeper, n * sizeof *x);
    assert_memory_not_equal(x, seed, n * sizeof *x);
    assert_memory_not_equal(x, name, 64 * sizeof *x);
    free(x);
    free(inference);
    free(deeper);
    free(seed);
    free(name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_slices_are_added_in_one_op),
        cmocka_unit_test(test_passes_leave_shared_values),
        cmocka_unit_test(test_what_cannot_be_trained),
        cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_normal_numbers),
        cmocka_unit_test(test_content_depends_on_name_and_seed_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
